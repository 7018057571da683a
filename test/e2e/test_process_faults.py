"""A sample of tools/process_faults.py: processes that are killed, stopped, spoken to by strangers, and what the others get."""

import os
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "process_faults.py"
KINDS = ("kill", "notice", "stop", "strangers", "imposters", "tamper", "lost", "back", "errors")


def test_sample():
  p = subprocess.run([sys.executable, str(TOOL), "--sample", "--library", os.environ["TPU_LIBRARY_PATH"]],
                     capture_output=True, text=True, timeout=560)
  assert p.returncode == 0, p.stdout + p.stderr
  ends = [line for line in p.stdout.splitlines() if " runs, 0 faults" in line]
  assert [line.split(":")[0] for line in ends] == list(KINDS), p.stdout
