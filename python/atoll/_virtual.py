"""Virtual devices of a pod as JAX sees them.

JAX fixes its list of devices when it makes its client, so the client of a pod has spare ones, which
`atoll.make_virtual_device_set` hands out. Until then nobody is to see them: `jax.devices()`, `jax.device_count()`
and the like are of the pod's chips. A slice's devices have the coordinates of their place in it.
"""

import ctypes
import functools
import weakref

from atoll import _own

SPREAD, FAIR = 0, 1
_WHY = 2048
_KIND = 32

_chips = weakref.WeakKeyDictionary()  # of clients: how many devices are none of the spare ones
_places = {}  # of spare devices that a slice has: their attributes


class Wish(ctypes.Structure):
  """at_msg_slice."""
  _fields_ = [("slice", ctypes.c_uint64), ("memory", ctypes.c_uint64), ("count", ctypes.c_uint32),
              ("policy", ctypes.c_uint32), ("shape", ctypes.c_uint32 * 3), ("island", ctypes.c_int32),
              ("host", ctypes.c_int32), ("kind", ctypes.c_char * _KIND), ("zero", ctypes.c_uint32)]


_U32 = ctypes.POINTER(ctypes.c_uint32)


class Calls(ctypes.Structure):
  """at_pjrt_slice_calls."""
  _fields_ = [("count", ctypes.CFUNCTYPE(None, _U32, _U32, _U32)),
              ("add", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Wish), _U32, ctypes.c_char_p, ctypes.c_size_t)),
              ("close", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
              ("find", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint32, _U32, _U32))]


@functools.cache
def _calls() -> Calls:
  return ctypes.cast(_own.extension().slices, ctypes.POINTER(Calls)).contents


# ---- What JAX lists
def is_spare(device):
  """Whether a device of JAX is a virtual one of a pod, in use or not."""
  try:
    return bool(device.virtual)
  except AttributeError:
    return False


def _count(client, devices):
  """Spare devices come last."""
  n = _chips.get(client)
  if n is None:
    n = len(devices)
    while n and is_spare(devices[n - 1]):
      n -= 1
    _chips[client] = n
  return n


@functools.cache
def hide_spares():
  """The library calls it before a client has spare devices."""
  from jaxlib import xla_client

  client, device = xla_client.Client, xla_client.Device

  def listing(listed):
    def devices(self):
      found = listed(self)
      return found[:_count(self, found)]
    return functools.wraps(listed)(devices)

  for name in ("devices", "local_devices", "_get_all_devices"):
    setattr(client, name, listing(getattr(client, name)))
  client.device_count = lambda self: len(self.devices())
  client.local_device_count = lambda self: len(self.local_devices())

  attribute, shown, told = device.__getattr__, device.__repr__, device.__str__

  def place_or(self, name):
    place = _places.get(self) if _places else None
    return place[name] if place and name in place else attribute(self, name)

  def printing(text, form):
    def print_place(self):
      place = _places.get(self) if _places else None
      return form.format(self, ",".join(map(str, place["coords"]))) if place else text(self)
    return print_place

  device.__getattr__ = place_or
  device.__repr__ = printing(shown, "TpuDevice(id={0.id}, process_index={0.process_index}, coords=({1}), core_on_chip=0)")
  device.__str__ = printing(told, "TPU_{0.id}(process={0.process_index},({1},0),{0.device_kind} on Atoll, virtual)")
  return True


# ---- Slices
def count():
  """The first spare device's id, how many there are, and the slices of the pod; all 0: there is no pod."""
  numbers = [ctypes.c_uint32() for _ in range(3)]
  _calls().count(*(ctypes.byref(n) for n in numbers))
  return [n.value for n in numbers]


def add(wish, index):
  """JAX's devices of a new slice, which has that index: its wish.slice is its number from now on. ValueError says
  why it cannot be had."""
  import jax

  devices, why = (ctypes.c_uint32 * wish.count)(), ctypes.create_string_buffer(_WHY)
  code = _calls().add(ctypes.byref(wish), devices, why, _WHY)
  if code:
    text = why.value.decode(errors="replace")
    raise (ValueError if code in (3, 8, 14) else RuntimeError)(text)
  by_id = {d.id: d for d in _everything(jax.devices()[0].client)}
  x, y, _ = wish.shape if wish.shape[0] else (wish.count, 1, 1)
  tpus = [by_id[d] for d in devices]
  for i, device in enumerate(tpus):
    _places[device] = {"coords": [i % x, i // x % y, i // (x * y)], "slice_index": index, "core_on_chip": 0}
  return tpus


def close(wish, tpus):
  """Ends a slice that `add` has made: what is on its devices is lost, and they are spare again."""
  _calls().close(wish.slice)
  for device in tpus:
    _places.pop(device, None)


def _everything(client):
  from jaxlib import xla_client

  return xla_client.Client.devices.__wrapped__(client)


def chips_of(devices):
  """For each device which chip of the pod it stands for now, and of which host."""
  chip, host, found = ctypes.c_uint32(), ctypes.c_uint32(), []
  for device in devices:
    there = _calls().find(device.id, ctypes.byref(chip), ctypes.byref(host))
    found.append((chip.value, host.value) if there else None)
  return found
