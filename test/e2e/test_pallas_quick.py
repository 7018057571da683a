"""Kernels behind one that takes all of the compiler's time are compiled quickly or, behind more, plainly: reductions
are then functions that kernels share. Their results are those of the same kernels alone, bit for bit."""

import json
import os
import pathlib
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

ATOLL = str(pathlib.Path(os.environ["ATOLL_LIBRARY"]).parent / "atoll")


def of(body, out, dtype=jnp.float32):
  return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(out, dtype))


def reduced(how, axis, change=lambda v: v):
  """A kernel that reduces twice, so that the second calls what the first made."""
  def body(x, o):
    once = how(change(x[...]), axis=axis, keepdims=True)
    o[...] = (how(x[...] - once, axis=axis, keepdims=True) + once).astype(o.dtype)
  return lambda x: of(body, tuple(1 if i in np.atleast_1d(axis) % x.ndim else n for i, n in enumerate(x.shape)),
                      x.dtype)(x)


def rows_of_a_part(x):
  """Reads every other row of a larger array, and one that numbers of the run choose."""
  def body(x, o):
    row = x[0, 0].astype(jnp.int32) & 7
    a = jnp.sum(x[pl.ds(0, 8, 2), :], axis=1, keepdims=True)
    b = jnp.max(x[pl.ds(row, 8), :], axis=1, keepdims=True)
    o[...] = a + b * jnp.min(x[8:, :], axis=0, keepdims=True)
  return of(body, (8, x.shape[1]))(x)


def softmax_and_norm(x):
  def body(x, o):
    v = x[...]
    for _ in range(3):
      e = jnp.exp(v - jnp.max(v, axis=1, keepdims=True))
      v = e / jnp.sum(e, axis=1, keepdims=True)
      c = v - jnp.mean(v, axis=0, keepdims=True)
      v = c * jax.lax.rsqrt(jnp.mean(c * c, axis=0, keepdims=True) + 1e-5)
    o[...] = v
  return of(body, x.shape)(x)


def operands():
  r = np.random.default_rng(1)
  for shape in ((8, 128), (16, 256), (5, 100), (4, 8, 128), (24, 512)):
    x = r.standard_normal(shape).astype(np.float32)
    yield x
    yield r.integers(-2**31, 2**31, shape).astype(np.int32)
    x = x.copy()
    x.flat[::97], x.flat[1::89] = np.nan, -0.0
    yield x


def kernels():
  for x in operands():
    for axis in range(x.ndim):
      for how in (jnp.sum, jnp.max, jnp.min):
        yield reduced(how, axis), x
    yield reduced(jnp.sum, x.ndim - 1, lambda v: v * v + v), x
    if x.ndim == 2 and x.shape[0] % 8 == 0 and x.dtype == np.float32:
      yield softmax_and_norm, x
  yield rows_of_a_part, np.abs(np.random.default_rng(2).standard_normal((16, 128))).astype(np.float32)


def heavy(x, sines):
  """A function counts as 32 of codegen.h's operations; more work than the others."""
  def body(x, o):
    v = x[...]
    for _ in range(sines):
      v = jnp.sin(v)
    o[...] = v
  return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(4096,),
                        in_specs=[pl.BlockSpec((8, 128), lambda i: (0, 0))],
                        out_specs=pl.BlockSpec((8, 128), lambda i: (0, 0)))(x)


def bits(x):
  return np.asarray(x).view(np.int32)


# Over AT_CG_FULL_OPS and over AT_CG_QUICK_OPS: those behind are compiled quickly, and plainly.
@pytest.mark.parametrize("sines", [600, 1600])
def test_reductions_that_kernels_share(sines, tmp_path):
  made = list(kernels())
  inputs = [x for _, x in made]
  chosen = np.array([False])

  def all_of(chosen, inputs):
    much = jax.lax.cond(chosen[0], lambda x: heavy(x, sines), lambda x: x, jnp.ones((8, 128)))
    return much, [f(x) for (f, _), x in zip(made, inputs)]

  lowered = jax.jit(all_of).lower(chosen, inputs)
  program = tmp_path / "program.mlir"
  program.write_text(lowered.as_text())
  done = subprocess.run([ATOLL, "dump", "--counts", str(program)], capture_output=True, text=True, check=True)
  counts = json.loads(done.stdout)
  # Half of what it takes if each reduction has code of its own.
  assert 0 < counts["llvm_quick"] < 300 * len(made), counts
  _, together = lowered.compile()(chosen, inputs)
  for (f, x), y in zip(made, together):
    np.testing.assert_array_equal(bits(y), bits(jax.jit(f)(x)))
