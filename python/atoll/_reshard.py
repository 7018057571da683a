"""`jax.device_put` of an array to another sharding, on a pod: from host to host.

Where shards of the old and the new sharding differ, JAX fetches the whole array to this
process and sends it again. Here the client says which boxes of which shards go where
(src/control/plan.h), and hosts send each byte once to a host that needs it.
"""

import concurrent.futures
import ctypes
import functools

from atoll import _own

_MEMORIES = {None: 0, "device": 0, "pinned_host": 1, "unpinned_host": 2}
_theirs = {}
# A traced program must not see how results are made here.
_aside = concurrent.futures.ThreadPoolExecutor(1, "atoll-reshard")


class Shards(ctypes.Structure):
  """at_pjrt_shards."""
  _fields_ = [("count", ctypes.c_uint32), ("rank", ctypes.c_uint32), ("devices", ctypes.POINTER(ctypes.c_uint32)),
              ("dims", ctypes.POINTER(ctypes.c_int64)), ("at", ctypes.POINTER(ctypes.c_int64))]


def _starts(sharding, shape):
  """Of each shard, in the order of the sharding's devices."""
  places = sharding.devices_indices_map(shape)
  return [s.start or 0 for d in sharding._device_assignment for s in places[d]]


class _Plan:
  """From one sharding to another, for arrays of one shape and type."""

  def __init__(self, array, sharding):
    from atoll import _program

    self._calls, shape = _program._calls(), array.shape
    to, dims = sharding._device_assignment, sharding.shard_shape(shape)
    numbers = (ctypes.c_uint32 * len(to))(*(d.id for d in to))
    size, at = (ctypes.c_int64 * max(len(dims), 1))(*dims), _starts(sharding, shape)
    at = (ctypes.c_int64 * max(len(at), 1))(*at)
    have = _starts(array.sharding, shape)
    have = (ctypes.c_int64 * max(len(have), 1))(*have)
    places, counts = _program._buffers([array])
    self.handle, why = ctypes.c_void_p(), ctypes.create_string_buffer(_program._WHY)
    _program._check(self._calls.plan_make(
        places, counts[0], have, ctypes.byref(Shards(len(to), len(dims), numbers, size, at)),
        _MEMORIES[sharding.memory_kind], ctypes.byref(self.handle), why, _program._WHY), why)
    self._shell = _aside.submit(self._make_shell, shape, array.dtype, sharding).result()
    self._numbers = (ctypes.c_uint32 * 1)(0)

  @staticmethod
  def _make_shell(shape, dtype, sharding):
    import jax

    shell = jax.jit(lambda: jax.numpy.zeros(shape, dtype), out_shardings=sharding)
    jax.block_until_ready(shell())
    return shell

  def __del__(self):
    if getattr(self, "handle", None):
      self._calls.graph_free(self.handle)

  @property
  def wire_bytes(self):
    return self._calls.plan_wire_bytes(self.handle)

  def run(self, array):
    from atoll import _program

    places, counts = _program._buffers([array])
    why = ctypes.create_string_buffer(_program._WHY)
    _program._check(self._calls.plan_run(self.handle, places, counts[0], why, _program._WHY), why)
    self._calls.graph_adopt(self.handle, self._numbers, 1)
    return self._shell()


class _Key:
  """An array's shape, type and sharding, by which a plan is found."""

  def __init__(self, array, sharding):
    self.array, self.sharding = array, sharding
    self._key = (array.shape, array.dtype, array.sharding, sharding)

  def __hash__(self):
    return hash(self._key)

  def __eq__(self, other):
    return self._key == other._key


@functools.lru_cache(256)
def _plan(key):
  plan = _Plan(key.array, key.sharding)
  key.array = None  # the key stays
  return plan


def plan(array, sharding):
  """How `array` gets to a sharding; `wire_bytes` of it go from host to host."""
  return _plan(_Key(array, sharding))


def _moves(array, sharding):
  """Is this between chips of the pod, of shards of one shape each?"""
  try:
    for s in (array.sharding, sharding):
      if s.memory_kind not in _MEMORIES or not s.is_fully_addressable:
        return False
      s.shard_shape(array.shape)  # ValueError: it does not divide
    one, = {d.client for s in (array.sharding, sharding) for d in s._device_assignment}
    return one.platform in ("tpu", "proxy", "atoll")
  except (ValueError, AttributeError):
    return False


def _instead(name, array, devices, indices, sharding):
  from atoll import _program

  if _moves(array, sharding):
    try:
      return plan(array, sharding).run(array)
    except _program._Refused as e:
      if e.code != 12:  # there is no pod
        raise RuntimeError(str(e)) from None
  return _theirs[name](array, devices, indices, sharding)


def install():
  """Once, in the place of JAX's."""
  from jax._src import array

  for name in ("shard_device_array", "shard_sharded_device_array_slow_path"):
    if name not in _theirs and hasattr(array, name):
      _theirs[name] = getattr(array, name)
      setattr(array, name, functools.partial(_instead, name))
