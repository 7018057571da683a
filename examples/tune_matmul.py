"""A product whose block shapes are bad, and what `atoll tune` says of others:

    atoll tune examples/tune_matmul.py --target=v5e
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import atoll


def kernel(x, y, o, acc):
  @pl.when(pl.program_id(2) == 0)
  def _():
    acc[...] = jnp.zeros_like(acc)
  acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

  @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
  def _():
    o[...] = acc[...].astype(o.dtype)


def matmul(x, y, bm, bk, bn):
  (m, k), n = x.shape, y.shape[1]
  return pl.pallas_call(
      kernel, out_shape=jax.ShapeDtypeStruct((m, n), x.dtype), grid=(m // bm, n // bn, k // bk),
      in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)), pl.BlockSpec((bk, bn), lambda i, j, k: (k, j))],
      out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)],
      compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))(x, y)


def make(bm=128, bk=128, bn=128):
  """The kernel with such blocks, and what it is called with. The defaults are what we have now."""
  x = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
  return lambda x, y: matmul(x, y, bm, bk, bn), (x, x)


def tune():
  sizes = [128, 256, 512, 1024, 2048]
  return atoll.Tunable(make, {"bm": sizes, "bk": sizes, "bn": sizes})
