"""Inputs of several processes agree on the number of mini-batches."""

import ctypes

import atoll
from atoll import ffi
from atoll.sparsecore import _native

_AGREE_EXTENSION = 0x61746f6c
_WHY_BYTES = 4096


class _Extension(ctypes.Structure):
  _fields_ = [("base", ffi.Base), ("agree", ctypes.c_void_p)]


def agree_over_processes(bits: int) -> int:
  """Ors an integer of 64 bits over the processes of TPU_PROCESS_ADDRESSES.

  It is a Plan's `agree`: every process calls it equally often, from one thread at a
  time; launches of programs are not held up by it. JAX's devices must be there (the
  processes meet when they are asked for). One process alone agrees with itself.
  """
  call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64),
                          ctypes.c_char_p, ctypes.c_size_t)(
                              ffi.extension(atoll.library_path(),
                                            _AGREE_EXTENSION, _Extension,
                                            "agreement").agree)
  value, why = ctypes.c_uint64(bits), ctypes.create_string_buffer(_WHY_BYTES)
  code = call(ctypes.byref(value), why, len(why))
  if code:
    raise _native.error(code, why)
  return value.value
