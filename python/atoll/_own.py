"""What the library itself says of this process, through an extension of its own."""

import ctypes
import functools
import os
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
              ("drains", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint32)),
              ("named", ctypes.c_void_p),
              ("slices", ctypes.c_void_p),
              ("virtual_ns", ctypes.CFUNCTYPE(ctypes.c_uint64)),
              ("command", ctypes.c_void_p),
              ("queued", ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32))]


def extension() -> _Extension:
  """The library's extension for this package. RuntimeError: the library has none."""
  return ffi.extension(atoll.library_path(), _OWN_EXTENSION, _Extension, "own")


class Bytes(ctypes.Structure):
  """at_bytes."""
  _fields_ = [("ptr", ctypes.c_char_p), ("len", ctypes.c_size_t)]

  @classmethod
  def of(cls, data: bytes):
    """Of `data`, which is borrowed: it has to live as long as this."""
    return cls(data, len(data))


_VOID, _TEXT, _WORDS = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32)
_MORE = [_TEXT, ctypes.c_size_t]  # why, why_bytes
_OUT = [ctypes.POINTER(_VOID), ctypes.POINTER(ctypes.c_size_t)]


class Named(ctypes.Structure):
  """at_pjrt_named_calls."""
  _fields_ = [
      ("keep", ctypes.CFUNCTYPE(ctypes.c_int, _TEXT, _TEXT, Bytes, ctypes.POINTER(_VOID), _WORDS, ctypes.c_uint32,
                                ctypes.c_bool, *_MORE)),
      ("fetch", ctypes.CFUNCTYPE(ctypes.c_int, _TEXT, ctypes.c_bool, *_OUT, _U64, _WORDS, *_MORE)),
      ("discard", ctypes.CFUNCTYPE(ctypes.c_int, _TEXT, *_MORE)),
      ("list", ctypes.CFUNCTYPE(ctypes.c_int, *_OUT, *_MORE)),
      ("free_text", ctypes.CFUNCTYPE(None, _VOID)),
      ("dtype", ctypes.CFUNCTYPE(ctypes.c_uint32, _TEXT)),
      ("made", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, _VOID, ctypes.c_uint32, *_MORE)),
      ("adopt", ctypes.CFUNCTYPE(None, _WORDS, ctypes.c_uint32)),
      ("drop", ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint32)),
      ("save", ctypes.CFUNCTYPE(ctypes.c_int, _TEXT, _TEXT, Bytes, Bytes, ctypes.POINTER(_VOID), _WORDS, ctypes.c_uint32,
                                ctypes.POINTER(_VOID), *_MORE)),
      ("restore", ctypes.CFUNCTYPE(ctypes.c_int, _TEXT, Bytes, ctypes.c_uint32, _U64, ctypes.POINTER(_VOID), *_MORE)),
      ("peek", ctypes.CFUNCTYPE(ctypes.c_int, _TEXT, ctypes.POINTER(_VOID), *_MORE)),
      ("wait", ctypes.CFUNCTYPE(ctypes.c_int, _VOID, *_OUT, *_MORE)),
  ]


@functools.cache
def named() -> Named:
  """The library's calls for named objects and checkpoints."""
  return ctypes.cast(extension().named, ctypes.POINTER(Named)).contents


def pod():
  """There is one, and JAX has its chips; or an error says what is needed."""
  import jax

  if not os.environ.get("ATOLL_POD") and not os.environ.get("JAX_BACKEND_TARGET"):
    raise RuntimeError("there is no pod\n"
                       "hint: `atoll pod up` makes one, and ATOLL_POD or JAX_BACKEND_TARGET names it")
  jax.devices()


class Compiled(NamedTuple):
  """Counts of one process, from its start on."""
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
