"""Sums over steps of a grid that somebody takes when they are done: when they are computed is not to be seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

STEPS = 3  # along k


def add(x, y, acc, begin):
  @pl.when(begin)
  def _():
    acc[...] = jnp.zeros_like(acc)
  acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)


def at_the_end(f):
  pl.when(pl.program_id(2) == STEPS - 1)(f)


def taken(x, y, o, p, acc):
  add(x, y, acc, pl.program_id(2) == 0)

  @at_the_end
  def _():
    o[...] = acc[...].astype(o.dtype)


def goes_on(x, y, o, p, acc):
  add(x, y, acc, (pl.program_id(0) == 0) & (pl.program_id(1) == 0) & (pl.program_id(2) == 0))

  @at_the_end
  def _():
    o[...] = acc[...].astype(o.dtype)


def goes_on_now_and_then(x, y, o, p, acc):
  add(x, y, acc, (pl.program_id(1) == 0) & (pl.program_id(2) == 0))

  @at_the_end
  def _():
    o[...] = acc[...].astype(o.dtype)


def read_again(x, y, o, p, acc):
  add(x, y, acc, pl.program_id(2) == 0)

  @at_the_end
  def _():
    o[...] = acc[...].astype(o.dtype)

  @pl.when((pl.program_id(2) == STEPS - 1) & (pl.program_id(1) == 1))
  def _():
    p[...] = acc[...] * 2


def taken_twice(x, y, o, p, acc):
  add(x, y, acc, pl.program_id(2) == 0)

  @at_the_end
  def _():
    o[...] = acc[...].astype(o.dtype)

  @at_the_end
  def _():
    p[...] = acc[...]


def two_stores(x, y, o, p, acc):
  add(x, y, acc, pl.program_id(2) == 0)

  @at_the_end
  def _():
    o[...] = acc[...].astype(o.dtype)
    p[...] = acc[...]


def changed_after(x, y, o, p, acc):
  add(x, y, acc, (pl.program_id(0) == 0) & (pl.program_id(1) == 0) & (pl.program_id(2) == 0))

  @at_the_end
  def _():
    o[...] = acc[...].astype(o.dtype)
    acc[...] = jnp.full_like(acc, 3)


def taken_each_step(x, y, o, p, acc):
  add(x, y, acc, pl.program_id(2) == 0)

  @pl.when(pl.program_id(2) != 1)
  def _():
    o[...] = acc[...].astype(o.dtype)


def computed_from(x, y, o, p, acc):
  add(x, y, acc, pl.program_id(2) == 0)

  @at_the_end
  def _():
    o[...] = jnp.maximum(acc[...], 0).astype(o.dtype)


KERNELS = [taken, goes_on, goes_on_now_and_then, read_again, taken_twice, two_stores, changed_after, taken_each_step, computed_from]


@pytest.mark.parametrize("order", ["parallel", "arbitrary"])
@pytest.mark.parametrize("types", [("float32", "float32"), ("bfloat16", "bfloat16"), ("float32", "bfloat16")], ids="-".join)
@pytest.mark.parametrize("shape", [(128, 128, 128), (64, 640, 128), (136, 128, 640)], ids=str)
@pytest.mark.parametrize("body", KERNELS, ids=lambda f: f.__name__)
def test_as_interpreted(body, shape, types, order):
  m, n, k = shape
  if order == "parallel" and body in (goes_on, goes_on_now_and_then, changed_after):
    pytest.skip("its steps depend on each other")
  rng = np.random.default_rng(3)
  few = lambda *s: jnp.asarray(rng.integers(-1, 2, s), types[0])  # exact sums
  x, y = few(2 * m, STEPS * k), few(STEPS * k, 2 * n)

  def run(interpret):
    tile = pl.BlockSpec((m, n), lambda i, j, k: (i, j))
    f = pl.pallas_call(body, grid=(2, 2, STEPS), interpret=interpret, scratch_shapes=[pltpu.VMEM((m, n), jnp.float32)],
                       in_specs=[pl.BlockSpec((m, k), lambda i, j, k: (i, k)), pl.BlockSpec((k, n), lambda i, j, k: (k, j))],
                       out_specs=[tile, tile], compiler_params=pltpu.CompilerParams(
                         dimension_semantics=("parallel" if order == "parallel" else "arbitrary", "arbitrary", "arbitrary")),
                       out_shape=[jax.ShapeDtypeStruct((2 * m, 2 * n), t) for t in (types[1], "float32")])
    o, p = (np.asarray(a, np.float32) for a in jax.jit(f)(x, y))
    if body in (taken_twice, two_stores):
      return o, p
    return o, p[:, n:] if body is read_again else 0
  for got, want in zip(run(False), run(True)):
    np.testing.assert_array_equal(got, want)


def test_blocks_of_three_dimensions():
  x, y = (np.random.default_rng(4).integers(-1, 2, (2, 256, 256)).astype(np.float32) for _ in range(2))

  def kernel(x, y, o, acc):
    @pl.when(pl.program_id(1) == 0)
    def _():
      acc[...] = jnp.zeros_like(acc)
    acc[...] += jnp.dot(x[0], y[0], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(1) == 1)
    def _():
      o[0] = acc[...].astype(o.dtype)
  f = pl.pallas_call(kernel, grid=(2, 2), scratch_shapes=[pltpu.VMEM((256, 256), jnp.float32)],
                     in_specs=[pl.BlockSpec((1, 256, 128), lambda b, k: (b, 0, k)),
                               pl.BlockSpec((1, 128, 256), lambda b, k: (b, k, 0))],
                     out_specs=pl.BlockSpec((1, 256, 256), lambda b, k: (b, 0, 0)),
                     out_shape=jax.ShapeDtypeStruct((2, 256, 256), jnp.bfloat16))
  np.testing.assert_array_equal(np.asarray(jax.jit(f)(x, y), np.float32), x @ y)
