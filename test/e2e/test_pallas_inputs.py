"""Inputs of kernels that are made block by block: allow_input_fusion."""

import os
import re

import atoll
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def copy(x, o):
  o[...] = x[...]


def call(make, shape, block, dtype=jnp.float32, grid=None, index=lambda *i: i, allow=True, kernel=copy, out_dtype=None):
  grid = grid or tuple(-(-s // b) for s, b in zip(shape, block))

  def f(*args):
    return pl.pallas_call(
        kernel, grid=grid, in_specs=[pl.BlockSpec(block, index)], out_specs=pl.BlockSpec(block, index),
        out_shape=jax.ShapeDtypeStruct(shape, out_dtype or dtype),
        compiler_params=pltpu.CompilerParams(allow_input_fusion=[allow]))(make(*args))
  return jax.jit(f)


def is_fused(f, *args):
  return re.search(r"fusion.*kind=kCustom.*fused_computation", f.lower(*args).compile().as_text()) is not None


def values(shape, dtype=np.float32, seed=0):
  x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
  return jnp.asarray(x * 10).astype(dtype)


MAKERS = {
    "sum": lambda x, y: x + y,
    "square of a sum": lambda x, y: (x + y) * (x + y),
    "exponential": lambda x, y: jnp.exp(x * 0.1) - y,
    "chosen": lambda x, y: jnp.where(x > y, x, -y),
    "row": lambda x, y: x * y[:1],
    "column": lambda x, y: x + y[:, :1],
    "scalar": lambda x, y: x * y[0, 0] + 3,
    "iota": lambda x, y: x + lax.broadcasted_iota(x.dtype, x.shape, 1),
    "through bf16": lambda x, y: (x.astype(jnp.bfloat16) * y.astype(jnp.bfloat16)).astype(x.dtype),
}


@pytest.mark.parametrize("make", MAKERS, ids=str)
@pytest.mark.parametrize("shape, block", [((64, 256), (16, 256)), ((40, 300), (16, 128)), ((7, 129), (8, 128))],
                         ids=["whole rows", "edges", "odd"])
def test_same_bits(make, shape, block):
  make = MAKERS[make]
  x, y = values(shape), values(shape, seed=1)
  fused, apart = call(make, shape, block), call(make, shape, block, allow=False)
  assert not is_fused(apart, x, y)
  np.testing.assert_array_equal(np.asarray(fused(x, y)).view(np.uint32), np.asarray(apart(x, y)).view(np.uint32))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int8, jnp.int32, jnp.uint8])
def test_dtypes(dtype):
  shape, block = (96, 256), (32, 128)
  x, y = values(shape, dtype), values(shape, dtype, 1)
  f = call(lambda a, b: a + b, shape, block, dtype)
  assert is_fused(f, x, y)
  np.testing.assert_array_equal(np.asarray(f(x, y)), np.asarray(x + y))


def test_nan_and_infinity():
  shape, block = (16, 128), (8, 128)
  x = values(shape).at[0, 0].set(np.nan).at[9, 3].set(np.inf).at[15, 127].set(-np.inf)
  f = call(lambda a: a - a, shape, block)
  assert is_fused(f, x)
  np.testing.assert_array_equal(np.asarray(f(x)), np.asarray(x - x))


def test_the_array_is_not_there():
  shape, block = (65536, 1024), (128, 1024)  # more than VMEM holds
  x = jax.ShapeDtypeStruct(shape, jnp.float32)
  made, apart = (call(MAKERS["sum"], shape, block, allow=allow).lower(x, x).compile().memory_analysis()
                 .temp_size_in_bytes for allow in (True, False))
  assert apart - made == 4 * 65536 * 1024


def test_blocks_that_stay_are_made_once():
  """The window of the input stays along the inner dimension: one block for all of its steps."""
  def kernel(x, o):
    @pl.when(pl.program_id(1) == 0)
    def _(): o[...] = jnp.zeros_like(o)
    o[...] += x[...]
  shape, block = (64, 128), (16, 128)
  x = values(shape)
  f = call(lambda a: a * 2, shape, block, grid=(4, 3), index=lambda i, j: (i, 0), kernel=kernel)
  assert is_fused(f, x)
  np.testing.assert_allclose(f(x), 6 * x, rtol=1e-6)


def test_scratch_ties_the_steps():
  def kernel(x, o, total):
    @pl.when(pl.program_id(0) == 0)
    def _(): total[...] = jnp.zeros_like(total)
    total[...] += x[...]
    o[...] = total[...]
  shape, block = (64, 128), (8, 128)
  x, y = values(shape), values(shape, seed=1)

  def f(x, y):
    return pl.pallas_call(
        kernel, grid=(8,), in_specs=[pl.BlockSpec(block, lambda i: (i, 0))],
        out_specs=pl.BlockSpec(block, lambda i: (i, 0)), out_shape=x, scratch_shapes=[pltpu.VMEM(block, jnp.float32)],
        compiler_params=pltpu.CompilerParams(allow_input_fusion=[True]))(x + y)
  f = jax.jit(f)
  assert is_fused(f, x, y)
  np.testing.assert_allclose(f(x, y), np.cumsum(np.asarray(x + y).reshape(8, *block), 0).reshape(shape), rtol=1e-5)


def test_one_input_of_two():
  """A product whose left operand is made and whose right one is not allowed to be."""
  def kernel(x, y, o):
    o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32, precision=lax.Precision.HIGHEST)
  a, b = values((64, 128)), values((128, 128), seed=1)

  def f(allow):
    return jax.jit(lambda a, b: pl.pallas_call(
        kernel, grid=(4,), in_specs=[pl.BlockSpec((16, 128), lambda i: (i, 0)), pl.BlockSpec((128, 128), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((16, 128), lambda i: (i, 0)), out_shape=a,
        compiler_params=pltpu.CompilerParams(allow_input_fusion=[allow, False]))(a * 2, b * 2))
  text = f(True).lower(a, b).compile().as_text()
  assert text.count("kind=kLoop") == 2  # the left operand, in the kernel's fusion, and b * 2 before it
  np.testing.assert_array_equal(f(True)(a, b), f(False)(a, b))


def test_inside_a_loop():
  shape, block = (32, 128), (8, 128)
  g = call(lambda a, b: a + b, shape, block)
  x, y = values(shape), values(shape, seed=1)
  f = jax.jit(lambda x, y: lax.fori_loop(0, 3, lambda i, a: g(a, y), x))
  np.testing.assert_array_equal(f(x, y), ((x + y) + y) + y)


def test_blocks_that_come_again_are_made_again():
  def kernel(x, o):
    o[...] = x[...] * (pl.program_id(0) + 1).astype(jnp.float32)

  def f(allow):
    spec = pl.BlockSpec((16, 128), lambda i, j: (j, 0))
    return jax.jit(lambda a, b: pl.pallas_call(
        kernel, grid=(3, 4), in_specs=[spec], out_specs=pl.BlockSpec((None, 16, 128), lambda i, j: (i, j, 0)),
        out_shape=jax.ShapeDtypeStruct((3, 64, 128), jnp.float32),
        compiler_params=pltpu.CompilerParams(allow_input_fusion=[allow]))(a * 0.3 + b))
  a, b = values((64, 128)), values((1, 128), seed=1)
  assert is_fused(f(True), a, b)
  np.testing.assert_array_equal(f(True)(a, b), f(False)(a, b))


def test_products_keep_what_they_read_again():
  def kernel(x, y, o):
    o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)
  f = jax.jit(lambda a, b: pl.pallas_call(
      kernel, grid=(2, 2), in_specs=[pl.BlockSpec((64, 128), lambda i, j: (i, 0)), pl.BlockSpec((128, 128), lambda i, j: (0, j))],
      out_specs=pl.BlockSpec((64, 128), lambda i, j: (i, j)), out_shape=jax.ShapeDtypeStruct((128, 256), jnp.float32),
      compiler_params=pltpu.CompilerParams(allow_input_fusion=[True, True]))(a, b * 2))
  assert not is_fused(f, values((128, 128)), values((128, 256)))


@pytest.mark.parametrize("padding", [(0, 0), (0, 8)], ids=["inside", "padded"])
def test_windows_at_elements(padding):
  """Rows behind a block come with it: some are made twice."""
  def kernel(x, o):
    o[...] = x[8:24, :] - x[0:16, :]
  rows = 72 - padding[1]

  def f(allow):
    spec = pl.BlockSpec((pl.Element(24, padding), pl.Element(256)), lambda i: (i * 16, 0))
    return jax.jit(lambda a, b: pl.pallas_call(
        kernel, grid=(4,), in_specs=[spec], out_specs=pl.BlockSpec((16, 256), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((64, 256), jnp.float32),
        compiler_params=pltpu.CompilerParams(allow_input_fusion=[allow]))(a + b))
  a, b = values((rows, 256)), values((rows, 256), seed=1)
  assert is_fused(f(True), a, b)
  last = 64 - padding[1]  # what lies behind the array is anything
  want = np.asarray(a + b)
  for allow in (True, False):
    np.testing.assert_array_equal(np.asarray(f(allow)(a, b))[:last], want[8:last + 8] - want[:last])


def test_bounds_that_come_as_operands():
  def kernel(x, o):
    o[...] = x[...]

  def f(allow):
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return jax.jit(lambda n, a, b: pl.pallas_call(
        kernel, grid=(n, 2), in_specs=[spec], out_specs=spec, out_shape=jax.ShapeDtypeStruct((64, 256), jnp.float32),
        compiler_params=pltpu.CompilerParams(allow_input_fusion=[False, allow]))(a * b))  # the bound is an operand too
  a, b = values((64, 256)), values((64, 256), seed=1)
  assert is_fused(f(True), 3, a, b)
  for n in (1, 5, 8):
    np.testing.assert_array_equal(f(True)(n, a, b)[:8 * n], (a * b)[:8 * n])
    np.testing.assert_array_equal(f(False)(n, a, b)[:8 * n], (a * b)[:8 * n])


@pytest.mark.parametrize("why, f", {
    "revisited often": call(lambda a, b: a + b, (64, 128), (16, 128), grid=(9, 4), index=lambda i, j: (j, 0)),
    "revisited, costly": call(lambda a, b: jnp.exp(a) + b, (64, 128), (16, 128), grid=(2, 4), index=lambda i, j: (j, 0)),
    "read by others": lambda a, b: (lambda z: (call(lambda z: z, (64, 128), (16, 128))(z), z * z))(a + b),
    "nothing computed": call(lambda a, b: a, (64, 128), (16, 128)),
    "costly, narrow": call(lambda a, b: jnp.sin(a) + b, (64, 256), (16, 128)),
}.items(), ids=lambda v: v if isinstance(v, str) else "")
def test_stays_apart(why, f):
  shape = (64, 256) if why == "costly, narrow" else (64, 128)
  assert not is_fused(jax.jit(f), values(shape), values(shape, seed=1))


def test_input_that_is_stored_stays_apart():
  def kernel(x, o):
    x[...] += 1
    o[...] = x[...]
  shape, block = (32, 128), (8, 128)
  x = values(shape)
  f = call(lambda a: a * 2, shape, block, kernel=kernel)
  assert not is_fused(f, x)
  np.testing.assert_array_equal(f(x), x * 2 + 1)


def test_checks_keep_the_array(python):
  p = python(f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_pallas_inputs as t
f = t.call(t.MAKERS["sum"], (32, 128), (8, 128))
x = t.values((32, 128))
assert not t.is_fused(f, x, x)
assert (f(x, x) == 2 * x).all()
""", env={"ATOLL_CHECK": "all"})
  assert p.returncode == 0, p.stderr


def test_estimates_count_no_round_trip():
  shape, block = (1024, 512), (64, 512)
  s = jax.ShapeDtypeStruct(shape, jnp.float32)
  made, apart = (atoll.estimate(call(MAKERS["sum"], shape, block, allow=allow), s, s, target="v5e") for allow in (True, False))
  assert sum(op["hbm_bytes"] for op in made.ops) == 3 * 4 * 1024 * 512
  assert sum(op["hbm_bytes"] for op in apart.ops) > sum(op["hbm_bytes"] for op in made.ops)
  assert made.seconds < apart.seconds and made.flops == apart.flops


def test_what_a_loop_computes_stays_an_array():
  # Loops have regions as a kernel with made inputs has.
  shape = (16, 128)
  f = call(lambda x, y: x + y, shape, (8, 128), allow=False)
  x = values(shape)
  looped = jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: f(c, x), x))
  np.testing.assert_array_equal(np.asarray(looped(x)), np.asarray(x + x + x + x))
