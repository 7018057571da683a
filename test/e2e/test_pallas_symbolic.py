"""Kernels exported for symbolic shapes, called with arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

core = pytest.importorskip("jax._src.pallas.core")


def exported(f, names, constraints, *shapes):
  sizes = dict(zip(names.split(","), export.symbolic_shape(names, constraints=constraints)))
  args = [jax.ShapeDtypeStruct([sizes.get(d, d) for d in s], jnp.float32) for s in shapes]
  with core.pallas_export_experimental(True):
    return export.export(jax.jit(f), platforms=["tpu"])(*args)


def values(shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def softmax(x, o):
  e = jnp.exp(x[...] - x[...].max(-1, keepdims=True))
  o[...] = e / e.sum(-1, keepdims=True)


def through_scratch(x, o, acc):
  acc[...] = x[...] + lax.broadcasted_iota(jnp.float32, x.shape, 1)
  o[...] = acc[...] * 2


def sum_of_blocks(x, o):
  def add(i, c):
    return c + x[pl.ds(i * 8, 8), :]
  o[...] = lax.fori_loop(0, x.shape[0] // 8, add, jnp.zeros(o.shape, jnp.float32))


def rows(kernel, **more):
  def f(x):
    spec = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(kernel, grid=(x.shape[0] // 8,), in_specs=[spec], out_specs=spec, out_shape=x, **more)(x)
  return f


def halves(x):
  shape = (x.shape[0] // 2, x.shape[1])
  spec = pl.BlockSpec(shape, lambda i: (i, 0))
  return pl.pallas_call(through_scratch, grid=(2,), in_specs=[spec], out_specs=spec, out_shape=x,
                        scratch_shapes=[pltpu.VMEM(shape, jnp.float32)])(x)


def sums(x):
  return pl.pallas_call(sum_of_blocks, out_shape=jax.ShapeDtypeStruct((8, x.shape[1]), jnp.float32))(x)


@pytest.mark.parametrize("f, rule, want", [
    (rows(softmax), "mod(m,8)==0", lambda x: jax.nn.softmax(x, -1)),
    (halves, "mod(floordiv(m,2),8)==0", lambda x: (x + jnp.arange(x.shape[1])) * 2),
    (sums, "mod(m,8)==0", lambda x: x.reshape(-1, 8, x.shape[1]).sum(0)),
], ids=["blocks", "scratch", "loops"])
def test_sizes_are_filled_in(f, rule, want):
  call = exported(f, "m,n", (rule, "mod(n,128)==0"), ("m", "n")).call
  for shape in ((16, 128), (48, 384)):
    x = values(shape)
    np.testing.assert_allclose(jax.jit(call)(x), want(x), rtol=2e-5, atol=2e-5)


def test_sizes_by_a_symbolic_grid():
  def f(x, y, g):
    n = g.shape[0]
    bm, bn = x.shape[0] // n, y.shape[1] // n

    def kernel(x, y, o):
      o[...] = x[...] @ y[...]
    return pl.pallas_call(
        kernel, grid=(n, n), in_specs=[pl.BlockSpec((bm, x.shape[1]), lambda i, j: (i, 0)), pl.BlockSpec((y.shape[0], bn), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)), out_shape=jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype))(x, y)
  call = exported(f, "m,k,n,g", ("mod(floordiv(m,g),8)==0", "mod(k,128)==0", "mod(floordiv(n,g),128)==0"),
                  ("m", "k"), ("k", "n"), ("g", 1)).call
  for m, k, n, g in ((128, 256, 512, 2), (64, 128, 256, 1), (96, 128, 384, 3)):
    x, y = jnp.round(values((m, k)) * 4), jnp.round(values((k, n), 1) * 4)
    np.testing.assert_array_equal(jax.jit(call)(x, y, jnp.zeros((g, 1))), x @ y)
