"""What the library itself says of this process, through an extension of its own."""

import ctypes
from typing import NamedTuple

import atoll
from atoll import ffi

_OWN_EXTENSION = 0x61746f6c
_U64 = ctypes.POINTER(ctypes.c_uint64)


class _Extension(ctypes.Structure):
  _fields_ = [("base", ffi.Base),
              ("agree", ctypes.CFUNCTYPE(ctypes.c_int, _U64, ctypes.c_char_p,
                                         ctypes.c_size_t)),
              ("recompiles", ctypes.CFUNCTYPE(None, _U64, _U64)),
              ("compiled", ctypes.CFUNCTYPE(None, _U64, _U64, _U64)),
              ("graphs", ctypes.c_void_p),
              ("virtual_ns", ctypes.CFUNCTYPE(ctypes.c_uint64))]


def extension() -> _Extension:
  return ffi.extension(atoll.library_path(), _OWN_EXTENSION, _Extension, "own")


class Compiled(NamedTuple):
  programs: int  # that were compiled
  cached: int  # that came from the disk cache instead
  modules: int  # of LLVM that were made


def compiled() -> Compiled:
  """What this process has compiled so far."""
  counts = [ctypes.c_uint64() for _ in Compiled._fields]
  extension().compiled(*(ctypes.byref(c) for c in counts))
  return Compiled(*(c.value for c in counts))


def virtual_time() -> float:
  """Seconds of virtual time on a pod of simulated hosts, from the client's start on. 0.0: hosts are not simulated."""
  return extension().virtual_ns() * 1e-9
