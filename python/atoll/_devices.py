"""Devices by what is needed of them: `make_virtual_device_set().add_slice(...)`.

On a pod they are virtual: as many as are wanted, each of which stands for a chip that the controller chooses and may
change. Elsewhere they are the chips of this process, each at most once in a slice.
"""

import collections
import itertools
import re
import sys
import threading
from collections.abc import Sequence

from atoll import _virtual

_POLICIES = {"spread": _virtual.SPREAD, "fair": _virtual.FAIR}
_lock = threading.Lock()
_users = collections.Counter()  # of devices without a pod, by slices that this process holds
_numbers = itertools.count()  # of slices with a pod


class _Slice:
  """Devices, until it is closed; `with` closes it."""

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    self.close()


class VirtualSlice(_Slice):
  """Devices of a pod. They stand for chips until the slice is closed; what is on them then is lost."""

  def __init__(self, wish, islands):
    self.tpus = _virtual.add(wish, islands + next(_numbers))
    self._wish = wish

  @property
  def chips(self) -> list[tuple[int, int] | None]:
    """For each device, which chip of the pod it stands for now, and of which host: (id in jax.devices(), host)."""
    return _virtual.chips_of(self.tpus)

  def close(self) -> None:
    """Gives the devices back to the pod; arrays on them are lost. A second call does nothing."""
    wish, self._wish = self._wish, None
    if wish:
      _virtual.close(wish, self.tpus)


class Slice(_Slice):
  """Chips that were chosen; they count as used until it is closed or collected."""

  def __init__(self, tpus):
    self.tpus = tpus
    self._open = True
    with _lock:
      _users.update(tpus)

  @property
  def chips(self) -> list[tuple[int, int]]:
    """For each device: (id in jax.devices(), its process_index)."""
    return [(d.id, d.process_index) for d in self.tpus]

  def close(self) -> None:
    """Counts its chips as unused from now on; arrays on them stay. A second call does nothing."""
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

  def add_slice(self, tpu_devices: int, kind: str | None = None, topology: str | Sequence[int] | None = None,
                location: int | str | None = None, memory: int | None = None,
                policy: str = "spread") -> VirtualSlice | Slice:
    """A slice of `tpu_devices` devices, in `.tpus`; ValueError says why there is none.

    kind: of the chips, "v5e" or as device_kind has it ("TPU v5 lite"). topology: the shape of the slice, (2, 2) or
    "2x2". location: a slice of the pod (1, "slice 1") or a host ("host 2"). memory: bytes of HBM that each device
    is to have for itself. On a pod more devices than chips take turns. policy: "spread" chooses the chips with the
    fewest devices of all clients, "fair" counts each device by what its client does.
    """
    count = _number("tpu_devices", tpu_devices, 1)
    shape = _shape(topology, count)
    memory = _number("memory", memory or 0, 0)
    if policy not in _POLICIES:
      raise ValueError(f"policy {policy!r} is none of {', '.join(map(repr, _POLICIES))}")
    island, host = _location(location)
    import jax

    jax.devices()  # the client that has the pod
    spares, islands = _virtual.count()[1:]
    if spares:
      if kind is not None and len(str(kind).encode()) >= _virtual.Wish.kind.size:
        raise ValueError(f"no kind of chip is called {kind!r}")
      wish = _virtual.Wish(memory=memory, count=count, policy=_POLICIES[policy], shape=shape or (0, 0, 0),
                           island=island, host=host, kind=str(kind or "").encode())
      self.slices.append(VirtualSlice(wish, islands))
    else:
      self.slices.append(Slice(choose(count, kind, shape, island, host, memory)))
    return self.slices[-1]

  def close(self) -> None:
    """Closes all slices of the set."""
    for s in self.slices:
      s.close()


def make_virtual_device_set() -> VirtualDeviceSet:
  """A new, empty set of slices: `add_slice(n).tpus` are `n` devices of JAX.

  On a pod its devices are virtual: there may be more of them than chips, which they then share in
  turns. Elsewhere they are the chips of this process, the least used ones first. A slice keeps its
  devices until it, or the set, is closed.
  """
  return VirtualDeviceSet()


# ---- Arguments
def _number(name, value, least):
  if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
    raise ValueError(f"{name} is to be a whole number from {least} on, not {value!r}")
  return value.__index__()


def _shape(topology, count):
  if topology is None:
    return None
  try:
    shape = [int(n) for n in (topology.split("x") if isinstance(topology, str) else topology)]
  except (TypeError, ValueError):
    raise ValueError(f"topology {topology!r} is not like '2x4' or (2, 4)") from None
  shape += [1] * (3 - len(shape))
  if len(shape) != 3 or min(shape) < 1 or shape[0] * shape[1] * shape[2] != count:
    raise ValueError(f"topology {topology} has not {count} devices")
  return tuple(shape)


def _location(location):
  """Slice and host; -1: any."""
  if location is None:
    return -1, -1
  said = re.fullmatch(r"(?:(slice|host)[ _-]?)?(\d{1,6})", str(location).strip())
  if not said or isinstance(location, bool):
    raise ValueError(f"location {location!r} is no slice (1, 'slice 1') and no host ('host 2')")
  number = int(said[2])
  return (-1, number) if said[1] == "host" else (number, -1)


# ---- Without a pod
def _fits(device, kind, island, host, memory):
  stats = device.memory_stats() if memory else None
  return ((kind is None or kind in (device.device_kind, getattr(device, "target", None)))
          and island in (-1, device.slice_index) and host in (-1, device.process_index)
          and (not memory or not stats or stats.get("bytes_limit", memory) >= memory))


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


def choose(count, kind=None, shape=None, island=-1, host=-1, memory=0):
  """Chips of one slice that as few slices use as there are."""
  import jax

  from atoll import _own

  drains = _own.extension().drains  # hosts that people are about to take away
  by_slice = collections.defaultdict(list)
  for device in jax.devices():
    if _fits(device, kind, island, host, memory) and not drains(device.id):
      by_slice[device.slice_index].append(device)
  with _lock:
    best = min((w for devices in by_slice.values() for w in _windows(devices, count, shape)),
               key=lambda w: (max(_users[d] for d in w), sum(_users[d] for d in w), w[0].id), default=None)
  if best is None:
    kinds = sorted({d.device_kind for d in jax.devices()})
    wanted = ", ".join(f"{k} {v}" for k, v in (("kind", kind), ("topology", shape), ("memory", memory)) if v)
    raise ValueError(f"no slice has {count} devices{' with ' + wanted if wanted else ''}; there are "
                     f"{sorted(len(d) for d in by_slice.values())} of {', '.join(kinds)}\n"
                     "hint: on a pod (docs/pod.md) more devices than chips take turns")
  return best
