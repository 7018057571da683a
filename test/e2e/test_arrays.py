"""Arrays in and out: every type, strides, zero sizes, memories, deletion."""

import gc

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

DTYPES = [
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16,
    np.uint32, np.uint64, np.float16, np.float32, np.float64, np.complex64,
    np.complex128, ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4,
    ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float4_e2m1fn,
]


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def sample(dtype, shape):
  rng = np.random.default_rng(0)
  if np.dtype(dtype) == np.bool_:
    return rng.integers(0, 2, shape).astype(np.bool_)
  low = 0 if "uint" in np.dtype(dtype).name or "e8m0" in str(dtype) else -2
  return rng.integers(low, 2, shape).astype(np.float32).astype(dtype)


def same(x, y):
  assert x.dtype == y.dtype and x.shape == y.shape
  assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0,),
                                   (3, 0, 2), (1, 1, 1, 1, 1, 1)])
def test_round_trip(dtype, shape):
  x = sample(dtype, shape)
  y = jax.device_put(x)
  assert y.dtype == x.dtype and y.shape == x.shape
  same(np.asarray(y), x)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4,
                                   ml_dtypes.int2, ml_dtypes.uint2])
def test_narrow_integers_are_what_numpy_says(dtype):
  """A host leaves anything in the high bits of a byte; what comes back has zeros."""
  info = ml_dtypes.iinfo(dtype)
  wide = np.arange(info.min, info.max + 1, dtype=np.int8)
  x = wide.astype(dtype)
  garbage = (x.view(np.uint8) | np.uint8(0xf0)).view(dtype)
  for given in (x, garbage, np.tile(garbage, 3)[::3]):
    got = jax.jit(lambda v: (v.astype(np.int8), v < 1, v))(given)
    want = np.asarray(given.astype(dtype)).astype(np.int8)
    np.testing.assert_array_equal(np.asarray(got[0]), want)
    np.testing.assert_array_equal(np.asarray(got[1]), want < 1)
  same(np.asarray(jax.jit(lambda v: v.astype(dtype))(wide)), x)
  back = jax.pure_callback(lambda v: np.asarray(v).astype(dtype),
                           jax.ShapeDtypeStruct(wide.shape, dtype), wide)
  np.testing.assert_array_equal(np.asarray(back.astype(np.int8)), wide)


def test_special_values_keep_their_bits():
  bits = np.array([0x7fc00001, 0xffc00000, 0x7f800000, 0xff800000, 0x80000000,
                   1], np.uint32)
  y = jax.device_put(bits.view(np.float32))
  assert (np.asarray(y).view(np.uint32) == bits).all()


@pytest.mark.parametrize("view", [
    lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::2], lambda x: x[1:, 1:],
    lambda x: np.broadcast_to(x[0], (5, 8)), lambda x: x[::-1, ::-3],
    lambda x: np.asfortranarray(x)])
def test_strides(view):
  x = view(np.arange(48, dtype=np.float32).reshape(6, 8))
  same(np.asarray(jax.device_put(x)), np.ascontiguousarray(x))


def test_source_may_change_after_put():
  x = np.zeros(1 << 16, np.float32)
  y = jax.device_put(x)
  y.block_until_ready()
  x[:] = 7
  assert np.asarray(y).max() in (0, 7)  # jax may alias: only no crash
  z = jnp.array(x)  # this copies
  x[:] = 9
  assert (np.asarray(z) == 7).all()


def test_delete():
  x = jax.device_put(np.arange(4.0))
  x.delete()
  assert x.is_deleted()
  with pytest.raises(RuntimeError, match="deleted"):
    np.asarray(x)
  with pytest.raises(RuntimeError, match="deleted"):
    x + 1


def test_memory_is_freed(device):
  gc.collect()
  before = device.memory_stats()["bytes_in_use"]
  for _ in range(8):
    jax.device_put(np.zeros(1 << 20, np.float32)).block_until_ready()
  gc.collect()
  assert device.memory_stats()["bytes_in_use"] <= before + (8 << 20)


@pytest.mark.parametrize("kind", ["device", "pinned_host", "unpinned_host"])
def test_memory_kinds(device, kind):
  s = jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
  x = np.arange(12, dtype=np.float32).reshape(3, 4)
  y = jax.device_put(x, s)
  assert y.sharding.memory_kind == kind
  same(np.asarray(y), x)
  back = jax.device_put(y, jax.sharding.SingleDeviceSharding(device))
  assert back.sharding.memory_kind == "device"
  same(np.asarray(back), x)


def test_over_hbm(python):
  p = python("""
import jax, numpy as np
x = [jax.device_put(np.zeros((1 << 20,), np.float32)) for _ in range(3)]
try:
  jax.jit(lambda: jax.numpy.zeros((1 << 34,), "float32"))().block_until_ready()
except Exception as e:
  print(type(e).__name__, str(e)[:200])
""")
  assert "RESOURCE_EXHAUSTED" in p.stdout, p.stderr


def test_dlpack():
  x = jax.device_put(np.arange(6, dtype=np.float32))
  try:
    d = jax.dlpack.from_dlpack(x)
  except Exception as e:  # TPU arrays have no DLPack device: said, not crashed
    assert str(e)
  else:
    same(np.asarray(d), np.arange(6, dtype=np.float32))


def test_large_copy():
  x = np.arange(3 << 22, dtype=np.float32)
  same(np.asarray(jax.device_put(x)), x)


def test_unaligned_source():
  raw = np.zeros(4 * 1000 + 1, np.uint8)
  x = np.frombuffer(raw.data, np.float32, 1000, 1) if False else (
      raw[1:].view(np.float32))
  x[:] = np.arange(1000)
  same(np.asarray(jax.device_put(x)), np.array(x))
