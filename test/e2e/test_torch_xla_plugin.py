"""What torch_xla is told of the machine when it finds the package, with stand-ins for the two modules that it is told through."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
STANDS_IN = """
import sys, types
for name in ("torch_xla", "torch_xla._internal", "torch_xla.experimental"):
  sys.modules[name] = types.ModuleType(name)
tpu = sys.modules["torch_xla._internal"].tpu = types.ModuleType("tpu")
tpu.num_available_chips = lambda: 0
plugins = sys.modules["torch_xla.experimental"].plugins = types.ModuleType("plugins")
plugins.DevicePlugin = object
import os
before = dict(os.environ)
from atoll import torch_xla_plugin
print(tpu.num_available_chips(), {k: v for k, v in os.environ.items() if before.get(k) != v})
"""


def told(tmp_path, **environment):
  library = tmp_path / "libatoll.so"
  library.touch()
  env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TOP / "python"), "ATOLL_LIBRARY": str(library), **environment}
  # -S: no other TPU library among the packages.
  out = subprocess.run([sys.executable, "-S", "-c", STANDS_IN], env=env, capture_output=True, text=True, check=True).stdout
  chips, changed = out.split(" ", 1)
  return int(chips), eval(changed)  # noqa: S307: printed above


@pytest.mark.parametrize("target, chips, kind, sides", [
    ("v6e:2x4", 8, "v6e-8", "2,4,1"), ("v5e", 1, "v5litepod-1", "1,1,1"), ("v5p:2x2x4", 16, "v5p-32", "2,2,4"),
    ("2*v5e:2x2", 8, "v5litepod-8", "2,2,2"), ("v5p-128", 64, "v5p-128", "64,1,1"), ("v5litepod-16", 16, "v5litepod-16", "16,1,1"),
    ("tpu-v6e-slice:2x4", 8, "v6e-8", "2,4,1"), ("", 1, "v6e-1", "1,1,1"), ("7x:2x2", 4, "tpu7x-8", "2,2,1"),
    ("tpu7x-8", 4, "tpu7x-8", "4,1,1"), ("2*v6e-4", 8, "v6e-8", "4,1,2"), ("TPU V5 LITE:2X2", 4, "v5litepod-4", "2,2,1"),
    ("v5p-16:2x2x2", 8, "v5p-16", "2,2,2")])
def test_hosts_have_the_chips_of_the_target(tmp_path, target, chips, kind, sides):
  n, changed = told(tmp_path, PJRT_DEVICE="TPU", ATOLL_TARGET=target)
  assert n == chips
  assert changed == {"TPU_LIBRARY_PATH": str(tmp_path / "libatoll.so"), "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": kind,
                     "TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_HOST_BOUNDS": "1,1,1",
                     "TPU_CHIPS_PER_HOST_BOUNDS": sides}


def machines():
  return [m for m in (json.loads(p.read_text()) for p in sorted((TOP / "data" / "hw").glob("*.json"))) if m["platform"] == "tpu"]


@pytest.mark.parametrize("machine", machines(), ids=lambda m: m["name"])
def test_chips_have_all_names_of_their_descriptions(tmp_path, machine):
  names = [machine["name"], machine["device_kind"]["value"], *machine["aliases"]]
  kinds = {told(tmp_path, PJRT_DEVICE="TPU", ATOLL_TARGET=f"{name}:2x2")[1]["TPU_ACCELERATOR_TYPE"] for name in names}
  assert len(kinds) == 1
  assert kinds.pop().endswith(f"-{4 * machine['accelerator_type_cores_per_chip']['value']}")


@pytest.mark.parametrize("target, chips", [("/my/v9-16.json:2x4", 8), ("nothing of the kind", 1), ("v6e:2x2x2x2", 1)])
def test_what_is_none_of_the_clouds_is_left_to_the_library(tmp_path, target, chips):
  n, changed = told(tmp_path, PJRT_DEVICE="TPU", ATOLL_TARGET=target)
  assert n == chips and "TPU_LIBRARY_PATH" in changed and "TPU_ACCELERATOR_TYPE" not in changed


def test_who_does_not_ask_is_told_nothing(tmp_path):
  assert told(tmp_path) == (0, {})
  assert told(tmp_path, PJRT_DEVICE="CPU") == (0, {})
  assert told(tmp_path, PJRT_DEVICE="TPU", TPU_LIBRARY_PATH=str(tmp_path / "libtpu.so")) == (0, {})


def test_the_environment_goes_first(tmp_path):
  given = {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,4,1", "TPU_WORKER_ID": "3"}
  n, changed = told(tmp_path, PJRT_DEVICE="TPU", ATOLL_TARGET="v6e:2x4", **given)
  assert n == 8 and not set(given) & set(changed) and "TPU_HOST_BOUNDS" not in changed
