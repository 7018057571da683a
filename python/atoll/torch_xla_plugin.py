"""The `torch_xla.plugins` entry point: what torch_xla asks of a machine that has no TPU among its PCI devices.

torch_xla loads it when it is imported. Where PJRT_DEVICE is `TPU` and the library is Atoll's (TPU_LIBRARY_PATH names it, or
there is no other), the chips of ATOLL_TARGET are those of this host: `torch_xla.launch` starts a process for each, and
nobody asks the metadata server of Google's cloud. What the environment says already stays as it is.
"""

import glob
import importlib.util
import math
import os
import pathlib
import re

from torch_xla._internal import tpu
from torch_xla.experimental import plugins

import atoll

_CORES = {"v2", "v3", "v4", "v5p"}  # whose accelerator types count two TensorCores to a chip
_TYPES = {"v5e": "v5litepod", "7x": "tpu7x"}  # where an accelerator type names the chip otherwise
_CHIPS = {name: chip for chip, name in _TYPES.items()}


class Plugin(plugins.DevicePlugin):
  """The device type `ATOLL`, which nobody has to name: chips are `TPU` to torch_xla."""

  def library_path(self) -> str:
    """Of libatoll.so."""
    return atoll.library_path()


def topology(target: str) -> tuple[str, tuple[int, int, int]]:
  """The chip and how many of them along x, y and z, of an ATOLL_TARGET such as `v6e:2x4`, `2*v5e:2x2` or `v5p-128`.

  ValueError: it is neither.
  """
  m = re.fullmatch(r"(?:(\d+)\*)?(?:tpu-)?(v\d+\w*?|7x)(?:-slice)?(?::(\d+(?:x\d+){0,2}))?", target)
  if m:
    sides = [int(s) for s in (m[3] or "1").split("x")] + [1, 1]
    return m[2], (sides[0], sides[1], sides[2] * int(m[1] or 1))
  m = re.fullmatch(r"(v\d+[a-z]*|tpu7x|7x)-(\d+)", target)
  if not m:
    raise ValueError(f"ATOLL_TARGET={target} names no TPUs")
  chip = _CHIPS.get(m[1], m[1])
  return chip, (int(m[2]) // (2 if chip in _CORES else 1), 1, 1)


def _is_ours(path: str) -> bool:
  try:
    return pathlib.Path(path).samefile(atoll.library_path())
  except OSError:
    return False


def _has_tpus() -> bool:
  return any(pathlib.Path(f).read_text().strip() == "0x1ae0" for f in glob.glob("/sys/bus/pci/devices/*/vendor"))


def _prepare() -> None:
  if os.environ.get("PJRT_DEVICE") != "TPU" or _has_tpus():
    return
  named = os.environ.get("TPU_LIBRARY_PATH")
  if not named and importlib.util.find_spec("libtpu"):
    return  # a real TPU's library goes first, as with JAX
  if named and not _is_ours(named):
    return
  chip, sides = topology(os.environ.get("ATOLL_TARGET") or "v6e")
  chips = math.prod(sides)
  defaults = {"TPU_LIBRARY_PATH": atoll.library_path(), "TPU_SKIP_MDS_QUERY": "1",
              "TPU_ACCELERATOR_TYPE": f"{_TYPES.get(chip, chip)}-{chips * (2 if chip in _CORES else 1)}",
              "TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
  if not {"TPU_PROCESS_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS"} & set(os.environ):
    # Under these names they say what the host has and not, as the others do, what a process takes of it.
    defaults |= {"TPU_HOST_BOUNDS": "1,1,1", "TPU_CHIPS_PER_HOST_BOUNDS": ",".join(map(str, sides))}
  for name, value in defaults.items():
    os.environ.setdefault(name, value)
  tpu.num_available_chips = lambda: chips


_prepare()
