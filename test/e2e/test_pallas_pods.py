"""Kernels on pods of 256 chips: collectives that kernels make themselves, with every check and without."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "pallas" / "pod_collectives.py"
# The largest arrays are 256 tiles of 4 KiB a chip, which the checks hold three times, and JAX's own.
MOST_MIB = 3000


@pytest.mark.parametrize("target, check, names", [
    ("v5e:4x4", "all", ["permute", "far_permute", "all_gather", "all_reduce", "reduce_scatter"]),
    ("v5e:16x16", "all", ["permute", "far_permute", "all_reduce"]),
    ("v5e:16x16", "", ["permute", "all_gather", "all_reduce"]),
    ("v5p:8x8x4", "all", ["permute", "far_permute"]),
])
def test_collectives_of_kernels(target, check, names):
  env = {**os.environ, "ATOLL_TARGET": target, "ATOLL_CHECK": check, "ATOLL_CACHE": "off"}
  done = subprocess.run([sys.executable, str(PROGRAM), *names], env=env, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stderr[-2000:]
  told = json.loads(done.stdout.splitlines()[-1])
  assert set(names) < set(told)
  assert told["MiB"] < MOST_MIB
