"""SparseGather and SparseIota, as torch_tpu's sparse_gather and sparse_iota call them, against NumPy."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

PAD = 2**31 - 1


def call(name, out, most, *args, pad=True):
  csr = {"max_non_zeroes_per_row": most, "max_pad_per_row": 8, **({"pad_value": PAD} if pad else {})}
  config = {"device_type": "DEVICE_TYPE_SPARSECORE", "csr_config": csr, "sparse_map_row_config": {"wait_threshold": 0.5}}
  f = jax.ffi.ffi_call(name, out, custom_call_api_version=1, legacy_backend_config=json.dumps(config))
  return np.asarray(jax.jit(lambda *a: f(*a))(*args))


def rows_of(rng, sizes, high):
  """Row pointers, ids with padding, ids without."""
  pointers, ids = [], []
  for n in sizes:
    row = rng.integers(0, high, n).tolist()
    pointers.append(len(ids) + n)
    ids += row + [PAD] * (-n % 8)
  return np.array(pointers, np.int32), np.array(ids, np.int32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_rows_are_gathered_without_padding(dtype):
  rng = np.random.default_rng(1)
  for sizes in ([7, 14, 20, 0, 24, 0, 13, 0], [1] * 16, [8] * 16, [0, 0, 5], rng.integers(0, 33, 40).tolist()):
    most = max(8, *sizes)
    table = rng.integers(-99, 99, (50, 16)).astype(dtype)
    pointers, ids = rows_of(rng, sizes, 50)
    ids = np.concatenate([ids, np.full(len(sizes) * -(-most // 8) * 8 - len(ids), PAD, np.int32)])
    got = call("SparseGather", jax.ShapeDtypeStruct((len(ids), 16), dtype), most, table, pointers, ids, pad=False)
    wanted = table[ids[ids != PAD]]
    np.testing.assert_array_equal(np.asarray(got)[:len(wanted)], wanted)


def test_places_of_entries():
  rng = np.random.default_rng(2)
  for sizes in ([7, 14, 20, 0, 24, 0, 13, 0], [0], rng.integers(0, 33, 40).tolist()):
    pointers, ids = rows_of(rng, sizes, 50)
    wanted = np.where(ids == PAD, PAD, np.cumsum(ids != PAD) - 1)
    got = call("SparseIota", jax.ShapeDtypeStruct((2048,), jnp.int32), 32, pointers)
    np.testing.assert_array_equal(got[:len(wanted)], wanted)
    assert (got[len(wanted):] == PAD).all()


@pytest.mark.parametrize("pointers,ids,says", [
    ([2, 9], [0, 1] + [PAD] * 6 + [50] + [PAD] * 7, "id 50 .entry 0 of row 1. is outside a table of 50 rows"),
    ([2, 9], [0, -1] + [PAD] * 6 + [5] + [PAD] * 7, "id -1 .entry 1 of row 0. is outside a table of 50 rows"),
    ([9, 16], [0] * 16, "row 0 has 9 entries, and max_non_zeroes_per_row is 8"),
    ([2, 17], [0] * 16, "row pointer 1 is 17"),
    ([2, 1], [0] * 16, "row pointer 1 is 1"),
])
def test_wrong_rows_are_named(pointers, ids, says):
  table = np.zeros((50, 8), np.float32)
  with pytest.raises(jax.errors.JaxRuntimeError, match=says):
    np.asarray(call("SparseGather", jax.ShapeDtypeStruct((16, 8), np.float32), 8, table, np.array(pointers, np.int32),
                    np.array(ids, np.int32)))


def test_wrong_calls_are_named():
  s32 = functools.partial(np.zeros, dtype=np.int32)
  out = jax.ShapeDtypeStruct((16, 8), np.float32)
  with pytest.raises(jax.errors.JaxRuntimeError, match="SparseGather: gives a row of the table for each id"):
    call("SparseGather", out, 8, np.zeros((5, 4), np.float32), s32(2), s32(16))
  with pytest.raises(jax.errors.JaxRuntimeError, match="SparseIota: takes 1 operands"):
    call("SparseIota", jax.ShapeDtypeStruct((16,), np.int32), 8, s32(2), s32(16))
  with pytest.raises(jax.errors.JaxRuntimeError, match="UNIMPLEMENTED.*SparseMapRow"):
    call("SparseMapRow", out, 8, s32(2))
