"""Devices of a pod by what is needed of them: `make_virtual_device_set().add_slice(...)`."""

import collections
import sys
import threading

_lock = threading.Lock()
_users = collections.Counter()  # of devices, by slices that this process holds


class Slice:
  """Devices that were chosen; they count as used until it is closed or collected."""

  def __init__(self, tpus):
    self.tpus = tpus
    self._open = True
    with _lock:
      _users.update(tpus)

  def close(self):
    with _lock:
      if self._open:
        _users.subtract(self.tpus)
      self._open = False

  def __del__(self, ends=sys.is_finalizing):
    if not ends():  # then there is nobody to choose for, and perhaps no lock
      self.close()


class VirtualDeviceSet:
  """Slices of one program, on devices as little used as there are."""

  def __init__(self):
    self.slices = []

  def add_slice(self, tpu_devices, kind=None, topology=None, location=None, memory=None):
    """A slice of `tpu_devices` devices.

    kind: of the devices ("TPU v5 lite"); topology: their shape, (2, 2) or "2x2";
    location: the number of the pod's slice; memory: bytes that each must have.
    """
    self.slices.append(Slice(_choose(tpu_devices, kind, topology, location, memory)))
    return self.slices[-1]


def make_virtual_device_set():
  return VirtualDeviceSet()


def _fits(device, kind, location, memory):
  stats = device.memory_stats() if memory else None
  return ((kind is None or device.device_kind == kind) and (location is None or device.slice_index == location)
          and (not memory or not stats or stats.get("bytes_limit", memory) >= memory))


def _shape(topology, count):
  if topology is None:
    return None
  shape = [int(n) for n in topology.split("x")] if isinstance(topology, str) else list(topology)
  shape += [1] * (3 - len(shape))
  if len(shape) != 3 or shape[0] * shape[1] * shape[2] != count:
    raise ValueError(f"topology {topology} has not {count} devices")
  return shape


def _windows(devices, count, shape):
  """Sets of neighbours: boxes of the shape, or devices that follow each other."""
  if shape is None:
    for i in range(len(devices) - count + 1):
      yield devices[i:i + count]
    return
  at = {tuple(d.coords): d for d in devices if not d.core_on_chip}
  for x, y, z in sorted(at):
    box = [at.get((x + i, y + j, z + k)) for k in range(shape[2]) for j in range(shape[1]) for i in range(shape[0])]
    if all(box):
      yield box


def _choose(count, kind, topology, location, memory):
  import jax

  from atoll import _own

  drains = _own.extension().drains  # hosts that people are about to take away
  shape = _shape(topology, count)
  by_slice = collections.defaultdict(list)
  for device in jax.devices():
    if _fits(device, kind, location, memory) and not drains(device.id):
      by_slice[device.slice_index].append(device)
  with _lock:
    best = min((w for devices in by_slice.values() for w in _windows(devices, count, shape)),
               key=lambda w: (max(_users[d] for d in w), sum(_users[d] for d in w), w[0].id), default=None)
  if best is None:
    wanted = ", ".join(f"{k} {v}" for k, v in (("kind", kind), ("topology", topology), ("location", location),
                                               ("memory", memory)) if v is not None)
    raise ValueError(f"no slice has {count} devices{' with ' + wanted if wanted else ''}; there are "
                     f"{sorted(len(d) for d in by_slice.values())}")
  return best
