"""Registers XLA FFI handlers with the library, through its PJRT extension."""

import ctypes

_FFI_EXTENSION = 5  # PJRT_Extension_Type_FFI


class Base(ctypes.Structure):
  """PJRT_Extension_Base."""
  _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_uint32),
              ("next", ctypes.c_void_p)]


class _Extension(ctypes.Structure):
  _fields_ = [("base", Base), ("type_register", ctypes.c_void_p),
              ("user_data_add", ctypes.c_void_p),
              ("register_handler", ctypes.c_void_p)]


class _Args(ctypes.Structure):
  _fields_ = [("struct_size", ctypes.c_size_t), ("target", ctypes.c_char_p),
              ("target_size", ctypes.c_size_t), ("handler", ctypes.c_void_p),
              ("platform", ctypes.c_char_p), ("platform_size", ctypes.c_size_t),
              ("traits", ctypes.c_uint32)]


class _Api(ctypes.Structure):
  _fields_ = [("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p)]


def extension(path: str, kind: int, struct, what: str):
  """The library's PJRT extension of that kind, as `struct`, which begins with a
  Base."""
  library = ctypes.CDLL(path)
  library.GetPjrtApi.restype = ctypes.POINTER(_Api)
  at = library.GetPjrtApi().contents.extension
  while at:
    base = Base.from_address(at)
    if base.type == kind:
      return struct.from_address(at)
    at = base.next
  raise RuntimeError(f"{path} has no {what} extension")


def _register_function(path: str):
  address = extension(path, _FFI_EXTENSION, _Extension, "FFI").register_handler
  return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Args))(address)


def _pointer(capsule) -> int:
  get_name = ctypes.pythonapi.PyCapsule_GetName
  get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
  get = ctypes.pythonapi.PyCapsule_GetPointer
  get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
  return get(capsule, get_name(capsule))


def handler(path: str):
  """A CustomCallHandler for jaxlib's xla_client."""
  register = _register_function(path)

  def call(name, fn, platform, api_version=1, traits=0):
    if api_version != 1:
      raise NotImplementedError(
          f"custom call {name!r}: only the typed FFI (api_version 1) is "
          "supported on Atoll")
    if isinstance(fn, dict):  # a bundle: its execution stage
      fn = fn["execute"]
    target = name if isinstance(name, bytes) else name.encode()
    where = platform.encode()
    args = _Args(52, target, len(target), _pointer(fn), where, len(where),
                 int(getattr(traits, "value", traits) or 0))
    if register(ctypes.byref(args)):
      raise RuntimeError(f"registering custom call {name!r} failed")

  return call
