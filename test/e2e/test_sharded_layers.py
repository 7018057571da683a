"""Layers over a mesh: what they move beside the TPU compiler's programs, and what they compute."""

import os
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "sharded_bytes.py"
# One of each model, remat policy and kind of mesh; the tool runs all.
SAMPLE = ("attention fsdp names bf16", "attention sequence remat unrolled", "attention data x fsdp x tensor",
          "moe top expert with batch", "mamba fsdp x tensor remat", "unet fsdp")


def tool(*args, **env):
  p = subprocess.run([sys.executable, TOOL, *args], env={**os.environ, **env}, capture_output=True, text=True)
  assert p.returncode == 0, p.stdout + p.stderr


def test_bytes_of_each_layer_are_those_of_the_tpu_compiler(library):
  tool("check", "--atoll", str(pathlib.Path(library).parent / "atoll"), JAX_PLATFORMS="cpu")


def test_a_sample_equals_one_chip():
  tool("equal", *SAMPLE, JAX_PLATFORMS="tpu", ATOLL_TARGET="v5e:2x4")
