"""What the library itself says of a job: agreement between its processes, recompiles."""

import ctypes
from typing import NamedTuple

from atoll import _own
from atoll.sparsecore import _native

_WHY_BYTES = 4096


def agree_over_processes(bits: int) -> int:
  """Ors an integer of 64 bits over the processes of the job.

  It is a Plan's `agree`: every process calls it equally often, from one thread at a
  time; launches of programs are not held up by it. JAX's devices must be there (the
  processes meet when they are asked for). One process alone agrees with itself.
  """
  value, why = ctypes.c_uint64(bits), ctypes.create_string_buffer(_WHY_BYTES)
  code = _own.extension().agree(ctypes.byref(value), why, len(why))
  if code:
    raise _native.error(code, why)
  return value.value


class Recompiles(NamedTuple):
  """How many programs were compiled again, and how long that took."""
  count: int
  seconds: float


def recompiles() -> Recompiles:
  """Programs of this process that were compiled again because limits of their
  embedding tables had changed, and the seconds that took. A recorded run shows its
  own (`profile`)."""
  count, ns = ctypes.c_uint64(), ctypes.c_uint64()
  _own.extension().recompiles(ctypes.byref(count), ctypes.byref(ns))
  return Recompiles(count.value, ns.value * 1e-9)
