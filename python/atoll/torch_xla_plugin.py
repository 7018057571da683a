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

# Of each chip: its name in accelerator types, how much a chip counts there (TensorCores but for v5e and v6e), and what
# else a target calls it.
_TYPES = {
    "v4": ("v4", 2, {"tpu v4", "tpu-v4-podslice"}),
    "v5e": ("v5litepod", 1, {"tpu v5 lite", "v5litepod", "v5lite", "tpu-v5-lite-podslice", "tpu-v5-lite-device"}),
    "v5p": ("v5p", 2, {"tpu v5", "v5", "tpu-v5p-slice"}),
    "v6e": ("v6e", 1, {"tpu v6 lite", "v6litepod", "v6lite", "tpu-v6e-slice"}),
    "7x": ("tpu7x", 2, {"tpu7x", "v7x"}),
}


class Plugin(plugins.DevicePlugin):
  """The device type `ATOLL`, which nobody has to name: chips are `TPU` to torch_xla."""

  def library_path(self) -> str:
    """Of libatoll.so."""
    return atoll.library_path()


def topology(target: str) -> tuple[str, tuple[int, int, int]]:
  """The accelerator type and how many chips along x, y and z, of an ATOLL_TARGET such as `v6e:2x4`, `2*v5e:2x2` or `v5p-128`.

  The type is empty where the machine is none of the cloud's: a description of one's own, or what the library will refuse.
  """
  m = re.fullmatch(r"(?:(\d+)\*)?(.*?)(?:-(\d+))?(?::(\d+(?:x\d+){0,2}))?", target, re.IGNORECASE)
  if not m:
    return "", (1, 1, 1)
  slices, name = int(m[1] or 1), m[2].lower()
  kind, per_chip = next(((t[0], t[1]) for chip, t in _TYPES.items() if name == chip or name in t[2]), ("", 1))
  sides = [int(s) for s in m[4].lower().split("x")] if m[4] else [int(m[3] or per_chip) // per_chip]
  x, y, z = (sides + [1, 1])[:3]
  return f"{kind}-{x * y * z * slices * per_chip}" if kind else "", (x, y, z * slices)


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
  kind, sides = topology(os.environ.get("ATOLL_TARGET") or "v6e")
  chips = math.prod(sides)
  defaults = {"TPU_LIBRARY_PATH": atoll.library_path(), "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_ID": "0",
              "TPU_WORKER_HOSTNAMES": "localhost", **({"TPU_ACCELERATOR_TYPE": kind} if kind else {})}
  if not {"TPU_PROCESS_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS"} & set(os.environ):
    # Under these names they say what the host has and not, as the others do, what a process takes of it.
    defaults |= {"TPU_HOST_BOUNDS": "1,1,1", "TPU_CHIPS_PER_HOST_BOUNDS": ",".join(map(str, sides))}
  for name, value in defaults.items():
    os.environ.setdefault(name, value)
  tpu.num_available_chips = lambda: chips


_prepare()
