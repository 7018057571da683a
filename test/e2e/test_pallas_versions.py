"""Operations of kernels that later versions of JAX write than the one that the tests run with: kernels as text."""
import base64
import json

import numpy as np
import pytest

import jax
import jax.numpy as jnp

MEMREF = "memref<8x128x{0}, #tpu.memory_space<vmem>>"


def kernel(dtype, op, attributes, version=18):
  """A function of one array of 8 x 128: op(x)."""
  element = {jnp.float32: "f32", jnp.bfloat16: "bf16"}[dtype]
  memref, vector = MEMREF.format(element), f"vector<8x128x{element}>"
  text = f"""
"builtin.module"() ({{
"stable_mosaic.func.func"() ({{
^bb0(%x: {memref}, %o: {memref}):
  %i = "stable_mosaic.arith.constant"() {{value = 0 : index}} : () -> index
  %v = "stable_mosaic.vector.load"(%x, %i, %i) : ({memref}, index, index) -> {vector}
  %r = "stable_mosaic.{op}"(%v) {{{attributes}}} : ({vector}) -> {vector}
  "stable_mosaic.vector.store"(%r, %o, %i, %i) : ({vector}, {memref}, index, index) -> ()
  "stable_mosaic.func.return"() : () -> ()
}}) {{dimension_semantics = [], function_type = ({memref}, {memref}) -> (), scalar_prefetch = 0 : i64,
     scratch_operands = 0 : i64, sym_name = "main", tpu.core_type = #tpu.core_type<tc>}} : () -> ()
}}) {{stable_mosaic.version = {version} : i64}} : () -> ()
"""
  config = json.dumps({"custom_call_config": {"body": base64.b64encode(text.encode()).decode()}})
  call = jax.ffi.ffi_call("tpu_custom_call", jax.ShapeDtypeStruct((8, 128), dtype), custom_call_api_version=1,
                          legacy_backend_config=config)
  return jax.jit(lambda x: call(x))


def floats(dtype):
  """Numbers of every size, ties, both zeros, denormals, infinities and NaN."""
  bits = np.random.RandomState(3).randint(0, 1 << 32, 1024, np.uint64).astype(np.uint32)
  special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 65504, 65520, 1 + 2**-11, 1 + 3 * 2**-11], np.float32)
  x = bits.view(np.float32)
  x[:len(special)] = special
  return jnp.asarray(x, dtype).reshape(8, 128)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("exponent,mantissa", [(5, 10), (8, 7), (4, 3), (8, 23), (1, 0)])
def test_reduce_precision(dtype, exponent, mantissa):
  x = floats(dtype)
  got = kernel(dtype, "tpu.reduce_precision",
               f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32")(x)
  with jax.default_device(jax.devices("cpu")[0]):
    want = jax.lax.reduce_precision(jnp.asarray(np.asarray(x)), exponent, mantissa)
  np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


def test_precision_without_exponent_is_refused():
  with pytest.raises(Exception, match="needs exponent_bits >= 1"):
    kernel(jnp.float32, "tpu.reduce_precision", "exponent_bits = 0 : i32, mantissa_bits = 3 : i32")(floats(jnp.float32))
