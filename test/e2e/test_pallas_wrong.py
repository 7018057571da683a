"""Kernels that were damaged on their way: a status with the kernel's name, and the process lives."""

import base64
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lib import _jax, xla_client
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

X = jnp.ones((64, 256), jnp.float32)
BODY = re.compile(r"\\22body\\22: \\22([^\\]*)\\22")


def double(x, o):
  o[...] = x[...] * 2


@pytest.fixture(scope="module")
def text():
  spec = pl.BlockSpec((8, 256), lambda i: (i, 0))
  f = jax.jit(lambda x: pl.pallas_call(double, grid=(8,), in_specs=[spec], out_specs=spec, out_shape=x,
                                       compiler_params=pltpu.CompilerParams(allow_input_fusion=[True]))(x + 1))
  return f.lower(X).as_text()


def run(text):
  device = jax.devices()[0]
  program = device.client.compile_and_load(text, _jax.DeviceList((device,)), xla_client.CompileOptions())
  return np.asarray(program.execute_sharded([X]).disassemble_into_single_device_arrays()[0][0])


def test_undamaged(text):
  np.testing.assert_array_equal(run(text), 4 * np.ones((64, 256)))


def test_damaged_bodies(text):
  encoded = BODY.search(text).group(1)
  body, r = base64.b64decode(encoded), np.random.default_rng(0)
  refused = 0
  for i in range(120):
    b = bytearray(body)
    for _ in range(r.integers(1, 4)):
      b[r.integers(len(b))] = r.integers(256)
    if i % 5 == 0:
      b = b[:r.integers(len(b))]
    try:
      run(text.replace(encoded, base64.b64encode(b).decode()))
    except jax.errors.JaxRuntimeError as e:
      refused += 1
      assert "kernel double: " in str(e) or "Mosaic failed to compile" in str(e), str(e)
  assert refused > 80


@pytest.mark.parametrize("field, why", [
    ('"allow_input_fusion": true', "not an array"),
    ('"collective_id": -5', "collective_id"),
    ('"input_memory_space_colors": [{"operand_index": 7, "color": 1}]', "does not have"),
    ('"output_memory_colors": [99]', "colours"),
    ('"collective_id": "5x"', "collective_id"),
    ('"collective_id": "-9223372036854775809"', "collective_id"),
    ('"internal_scratch_in_bytes": ""', "internal_scratch_in_bytes"),
    ('"output_memory_colors": [-1, -1, 4]', "does not have"),
    ('"input_memory_space_colors": [{"operand_index": 0, "color": 99}]', "colours"),
    ('"internal_scratch_in_bytes": -1', "internal_scratch_in_bytes"),
    ('"internal_scratch_in_bytes": 99999999999999', "Ran out of memory in memory space vmem"),
    ('"serialization_format": 1', "twice"),
    ('"has_communication": 3', "not a boolean"),
])
def test_wrong_fields(text, field, why):
  with pytest.raises(jax.errors.JaxRuntimeError, match=why):
    run(text.replace('\\22allow_input_fusion\\22: [true]', field.replace('"', "\\22")))


def test_thousands_of_places_where_a_nan_may_arise(python):
  p = python("""
import time, jax, jax.numpy as jnp
from jax.experimental import pallas as pl

def kernel(x_ref, o_ref):
  for i in range(180):
    v = x_ref[...]
    for k in range(8):
      v = v * (1 + (8 * i + k) / 2048) + 1
    o_ref[...] = v

x = jnp.zeros((8, 128))
lowered = jax.jit(pl.pallas_call(kernel, out_shape=x)).lower(x)
start = time.process_time()
lowered.compile()
print(time.process_time() - start)
""", env={"ATOLL_CHECK": "nan", "ATOLL_CACHE": "off"})
  assert p.returncode == 0, p.stderr
  assert float(p.stdout) < 5
