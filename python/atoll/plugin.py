"""The `jax_plugins` entry point.

JAX calls `initialize()` before it makes its backends. Three ways lead to Atoll:

* as JAX's TPU (`jax.devices("tpu")` works): when JAX_PLATFORMS names `tpu` or is
  not set, and no other TPU library is there;
* as the backend `atoll`, when JAX_PLATFORMS names it;
* as the backend `proxy`, when JAX_PLATFORMS names that: the chips of a pod, as
  programs for Pathways name them (atoll/pathways.py).

JAX's host callbacks need a CPU client beside it, so `cpu` joins the list.
"""

import ctypes
import importlib.util
import os
import sys

import atoll

PRIORITY = 500
# Debian's packages of what the library is linked to.
_PACKAGES = {"libLLVM": "libllvm19", "libopenblas": "libopenblas0-serial",
             "libz": "zlib1g"}


def initialize() -> None:
  """Registers Atoll with JAX, or says on stderr why it could not."""
  try:
    _register()
  except OSError as error:  # no library, or none that can be loaded
    _say("error", "JAX has no devices of Atoll and may go on with others\n"
         f"reason: {error}{_advice(str(error))}")


def _say(level: str, text: str) -> None:
  print(f"atoll {level}: {text}", file=sys.stderr, flush=True)


def _advice(reason: str) -> str:
  for name, package in _PACKAGES.items():
    if reason.startswith(name):
      return f"\nhint: the library needs it; on Debian: apt-get install {package}"
  return ""


def _register() -> None:
  from jax._src import config, xla_bridge

  platforms = [p for p in (config.jax_platforms.value or "").split(",") if p]
  if platforms and not {"atoll", "tpu", "proxy"} & set(platforms):
    return
  path = atoll.library_path()
  if not hasattr(ctypes.CDLL(path), "GetPjrtApi"):  # OSError names what it needs
    raise OSError(f"{path} is not a PJRT plugin\n"
                  "hint: ATOLL_LIBRARY is to name a libatoll.so")
  if "proxy" in platforms:
    from atoll import pathways

    pathways.register(path, PRIORITY)
    _register_ffi(path)
  elif "atoll" in platforms:
    xla_bridge.register_plugin("atoll", priority=PRIORITY, library_path=path)
    _register_ffi(path)
  else:
    named = os.environ.get("TPU_LIBRARY_PATH")
    libtpu = importlib.util.find_spec("libtpu") is not None
    if named:
      _say_named(path, named, libtpu)
      return
    if libtpu:
      _say_real(path)
      return  # a real TPU's library goes first
    os.environ["TPU_LIBRARY_PATH"] = path
    _register_ffi(path)
  if os.environ.get("ATOLL_POD"):
    from atoll import _reshard

    _reshard.install()
  if platforms and "cpu" not in platforms:
    config.config.update("jax_platforms", ",".join([*platforms, "cpu"]))


def _say_named(path: str, named: str, libtpu: bool) -> None:
  """TPU_LIBRARY_PATH decides: says which library that is, unless there is only ours."""
  if not os.path.isfile(named):
    raise FileNotFoundError(
        f"TPU_LIBRARY_PATH={named} is not there\n"
        f"hint: unset it, or TPU_LIBRARY_PATH={path}")
  if os.path.realpath(named) != os.path.realpath(path):
    _say("note", f"TPU_LIBRARY_PATH={named} serves JAX's `tpu`, not Atoll\n"
         f"hint: TPU_LIBRARY_PATH={path} takes Atoll")
    return
  if libtpu:
    _say("note", "Atoll serves JAX's `tpu`, as TPU_LIBRARY_PATH says, not the package libtpu")
  _register_ffi(path)


def _say_real(path: str) -> None:
  """The package libtpu is there and goes first: says so, and where it cannot have a TPU."""
  from jax._src import hardware_utils

  if hardware_utils.num_available_tpu_chips_and_device_id()[0]:
    _say("note", "the package libtpu serves JAX's `tpu`, not Atoll\n"
         f"hint: TPU_LIBRARY_PATH={path} or JAX_PLATFORMS=atoll takes Atoll")
  else:
    _say("warning", "JAX takes the package libtpu for its TPU, but this machine has none\n"
         f"hint: TPU_LIBRARY_PATH={path} or JAX_PLATFORMS=atoll takes Atoll")


def _register_ffi(path: str) -> None:
  """Passes handlers of jax.ffi.register_ffi_target on to the library."""
  from jaxlib import xla_client

  from atoll import ffi

  for platform in ("tpu", "atoll"):
    xla_client.register_custom_call_handler(platform, ffi.handler(path))


def print_library_path() -> None:
  """The command `atoll-library`: where libatoll.so is."""
  print(atoll.library_path())
