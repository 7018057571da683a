"""The C API seen without JAX: bad structs, null handles, conformance."""

import ctypes
import subprocess
import sys

import pytest

pypjrt = pytest.importorskip("pypjrt")
from pypjrt._abi import pjrt_0_114 as abi  # noqa: E402


@pytest.fixture(scope="module")
def api(library):
  lib = ctypes.CDLL(library)
  lib.GetPjrtApi.restype = ctypes.c_void_p
  return abi.PJRT_Api.from_address(lib.GetPjrtApi())


def call(api, name, args):
  f = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(getattr(api, name))
  return f(ctypes.addressof(args) if args is not None else None)


def take(api, error):
  """(code, message) of an error, which is destroyed; None for no error."""
  if not error:
    return None
  c = abi.PJRT_Error_GetCode_Args(struct_size=28, error=error)
  assert not call(api, "PJRT_Error_GetCode", c)
  m = abi.PJRT_Error_Message_Args(struct_size=40, error=error)
  call(api, "PJRT_Error_Message", m)
  text = ctypes.string_at(m.message, m.message_size).decode()
  call(api, "PJRT_Error_Destroy",
       abi.PJRT_Error_Destroy_Args(struct_size=24, error=error))
  return c.code, text


def test_exports_one_symbol(library):
  out = subprocess.run(["nm", "-D", "--defined-only", library],
                       capture_output=True, text=True, check=True).stdout
  assert [line.split()[-1] for line in out.splitlines()] == ["GetPjrtApi"]


def test_version(api):
  assert api.struct_size == abi.PJRT_Api_STRUCT_SIZE
  assert api.pjrt_api_version.minor_version == 114


VOID = {"PJRT_Error_Destroy", "PJRT_Error_Message"}


@pytest.mark.parametrize("name", [n for n in abi.SLOT if n not in VOID])
def test_null_and_short_args(api, name):
  code, text = take(api, call(api, name, None))
  assert code == 3 and name in text
  args = getattr(abi, name + "_Args")()
  args.struct_size = 8
  code, text = take(api, call(api, name, args))
  assert code == 3 and "struct_size" in text


def client(api):
  args = abi.PJRT_Client_Create_Args(
      struct_size=abi.PJRT_Client_Create_Args_STRUCT_SIZE)
  assert take(api, call(api, "PJRT_Client_Create", args)) is None
  return args.client


def test_opaque_objects_start_with_null(api):
  c = client(api)
  d = abi.PJRT_Client_Devices_Args(struct_size=40, client=c)
  assert take(api, call(api, "PJRT_Client_Devices", d)) is None
  device = ctypes.cast(d.devices, ctypes.POINTER(ctypes.c_void_p))[0]
  for p in (c, device):
    assert ctypes.cast(p, ctypes.POINTER(ctypes.c_void_p))[0] is None
  assert take(api, call(api, "PJRT_Client_Destroy",
                        abi.PJRT_Client_Destroy_Args(struct_size=24, client=c))
              ) is None


def put(api, c, where, **changes):
  data = (ctypes.c_float * 6)(*range(6))
  dims = (ctypes.c_int64 * 2)(2, 3)
  args = abi.PJRT_Client_BufferFromHostBuffer_Args(
      struct_size=120, client=c, data=ctypes.addressof(data), type=11,
      dims=ctypes.addressof(dims), num_dims=2, device=where)
  for k, v in changes.items():
    setattr(args, k, v)
  return take(api, call(api, "PJRT_Client_BufferFromHostBuffer", args)), args


def test_bad_host_buffers(api):
  c = client(api)
  d = abi.PJRT_Client_Devices_Args(struct_size=40, client=c)
  call(api, "PJRT_Client_Devices", d)
  device = ctypes.cast(d.devices, ctypes.POINTER(ctypes.c_void_p))[0]
  negative = (ctypes.c_int64 * 2)(-1, 3)
  huge = (ctypes.c_int64 * 2)(1 << 62, 1 << 62)
  for changes in (dict(type=0), dict(type=99), dict(num_dims=1000),
                  dict(dims=None), dict(data=None), dict(device=None),
                  dict(num_byte_strides=1), dict(num_byte_strides=2),
                  dict(dims=ctypes.addressof(negative)),
                  dict(dims=ctypes.addressof(huge)),
                  dict(host_buffer_semantics=77)):
    error, _ = put(api, c, device, **changes)
    assert error and error[0] == 3, changes
  error, args = put(api, c, device)
  assert error is None
  for name, extra in (("PJRT_Buffer_CopyRawToHost",
                       dict(offset=20, transfer_size=8, dst=1)),
                      ("PJRT_Buffer_CopyRawToHost",
                       dict(offset=-1, transfer_size=1, dst=1)),
                      ("PJRT_Buffer_DecreaseExternalReferenceCount", {})):
    cls = getattr(abi, name + "_Args")
    bad = cls(struct_size=getattr(abi, name + "_Args_STRUCT_SIZE"),
              buffer=args.buffer, **extra)
    assert take(api, call(api, name, bad))[0] == 3
  out = (ctypes.c_float * 6)()
  small = abi.PJRT_Buffer_ToHostBuffer_Args(
      struct_size=56, src=args.buffer, dst=ctypes.addressof(out), dst_size=8)
  assert take(api, call(api, "PJRT_Buffer_ToHostBuffer", small))[0] == 3
  call(api, "PJRT_Event_Destroy", abi.PJRT_Event_Destroy_Args(
      struct_size=24, event=args.done_with_host_buffer))
  call(api, "PJRT_Buffer_Destroy",
       abi.PJRT_Buffer_Destroy_Args(struct_size=24, buffer=args.buffer))
  call(api, "PJRT_Client_Destroy",
       abi.PJRT_Client_Destroy_Args(struct_size=24, client=c))


@pytest.mark.parametrize("code,fmt,expect", [
    (b"", b"mlir", 3), (b"not a program", b"mlir", None),
    (b"x", b"hlo", 3), (b"x", b"c++", 3),
    (b"ML\xefR" + b"\xff" * 64, b"mlir", None)])
def test_bad_programs(api, code, fmt, expect):
  c = client(api)
  program = abi.PJRT_Program(
      struct_size=48, code=ctypes.cast(ctypes.c_char_p(code), ctypes.c_void_p),
      code_size=len(code), format_size=len(fmt),
      format=ctypes.cast(ctypes.c_char_p(fmt), ctypes.c_void_p))
  args = abi.PJRT_Client_Compile_Args(
      struct_size=56, client=c, program=ctypes.addressof(program))
  error = take(api, call(api, "PJRT_Client_Compile", args))
  assert error and (expect is None or error[0] == expect), error
  call(api, "PJRT_Client_Destroy",
       abi.PJRT_Client_Destroy_Args(struct_size=24, client=c))


ADD = """
func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_damaged_executables_are_refused(library):
  import random
  from pypjrt._loader import Plugin
  from pypjrt.client import Client
  c = Client(Plugin(library))
  blob = c.compile(ADD).serialize()
  assert c.deserialize_executable(blob).num_outputs == 1
  rng = random.Random(0)
  for n in list(range(0, len(blob), 97)) + [0, 1, 7, len(blob) - 1]:
    with pytest.raises(pypjrt.errors.PjrtError):
      c.deserialize_executable(blob[:n])
    bad = bytearray(blob)
    bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
    with pytest.raises(pypjrt.errors.PjrtError):
      c.deserialize_executable(bytes(bad))


def test_conform(library):
  p = subprocess.run([sys.executable, "-m", "pypjrt.conform", "-v", library],
                     capture_output=True, text=True, timeout=300)
  assert p.returncode == 0, p.stdout + p.stderr
  assert " 0 FAIL" in p.stdout, p.stdout
