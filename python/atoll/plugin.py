"""The `jax_plugins` entry point.

JAX calls `initialize()` before it makes its backends. Two ways lead to Atoll:

* as JAX's TPU (`jax.devices("tpu")` works): when JAX_PLATFORMS names `tpu` or is
  not set, and no other TPU library is there;
* as the backend `atoll`, when JAX_PLATFORMS names it.

JAX's host callbacks need a CPU client beside it, so `cpu` joins the list.
"""

import importlib.util
import os

import atoll

PRIORITY = 500


def initialize() -> None:
  from jax._src import config, xla_bridge

  path = atoll.library_path()
  named = config.jax_platforms.value or ""
  platforms = [p for p in named.split(",") if p]
  if "atoll" in platforms:
    xla_bridge.register_plugin("atoll", priority=PRIORITY, library_path=path)
    _register_ffi(path)
  elif not platforms or "tpu" in platforms:
    if "TPU_LIBRARY_PATH" in os.environ:
      if os.path.realpath(os.environ["TPU_LIBRARY_PATH"]) == os.path.realpath(
          path):
        _register_ffi(path)
      return
    if importlib.util.find_spec("libtpu") is not None:
      return  # a real TPU's library goes first
    os.environ["TPU_LIBRARY_PATH"] = path
    _register_ffi(path)
  if platforms and "cpu" not in platforms and (
      "atoll" in platforms or "tpu" in platforms):
    config.config.update("jax_platforms", ",".join([*platforms, "cpu"]))


def _register_ffi(path: str) -> None:
  """Passes handlers of jax.ffi.register_ffi_target on to the library."""
  from jaxlib import xla_client

  from atoll import ffi

  for platform in ("tpu", "atoll"):
    xla_client.register_custom_call_handler(platform, ffi.handler(path))


def print_library_path() -> None:
  print(atoll.library_path())
