"""Atoll: a TPU pod in software.

Installed, it is a JAX plugin: unmodified programs find it as their TPU. This module
says where the library is; everything else happens inside it.
"""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # where __getattr__ finds them
  from atoll import checkpoint, debug, objects, orbax
  from atoll._devices import make_virtual_device_set
  from atoll._estimate import Estimate, estimate
  from atoll._host import HostFunction, host_function
  from atoll._own import Compiled, compiled, virtual_time
  from atoll._pipeline import Pipeline, PipelineState, pipeline
  from atoll._plan_space import Plan
  from atoll._program import Program, program
  from atoll._status import ChipStatus, Status, status
  from atoll._tune import Tunable, Tuning, tune

__version__ = "0.1.0"


def library_path() -> str:
  """The path of libatoll.so: $ATOLL_LIBRARY, the one in this package, or the one that
  $TPU_LIBRARY_PATH names for JAX."""
  named = os.environ.get("ATOLL_LIBRARY")
  path = Path(named) if named else Path(__file__).parent / "libatoll.so"
  for_jax = Path(os.environ.get("TPU_LIBRARY_PATH", ""))
  if not named and not path.is_file() and for_jax.name == "libatoll.so":
    path = for_jax
  if not path.is_file():
    raise FileNotFoundError(
        f"no Atoll library at {path}\n"
        "hint: install the wheel, or set ATOLL_LIBRARY to a built libatoll.so")
  return str(path)


def __getattr__(name):
  if name in ("estimate", "Estimate"):  # imports JAX only when it is asked for
    from atoll import _estimate
    return getattr(_estimate, name)
  if name in ("tune", "Tunable", "Tuning"):
    from atoll import _tune
    return getattr(_tune, name)
  if name in ("compiled", "Compiled", "virtual_time"):
    from atoll import _own
    return getattr(_own, name)
  if name in ("program", "Program"):
    from atoll import _program, _reshard
    _reshard.install()
    return getattr(_program, name)
  if name in ("status", "Status", "ChipStatus"):
    from atoll import _status
    return getattr(_status, name)
  if name in ("host_function", "HostFunction"):
    from atoll import _host
    return getattr(_host, name)
  if name in ("pipeline", "Pipeline", "PipelineState"):
    from atoll import _pipeline, _reshard
    _reshard.install()
    return getattr(_pipeline, name)
  if name == "Plan":
    from atoll import _plan_space
    return _plan_space.Plan
  if name == "make_virtual_device_set":
    from atoll import _devices, _reshard
    _reshard.install()
    return _devices.make_virtual_device_set
  if name in ("objects", "checkpoint", "orbax", "debug"):
    return importlib.import_module("atoll." + name)
  raise AttributeError(name)
