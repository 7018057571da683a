"""Races among many: a case of each kind that test/pallas/pod_defects.py plants; `--count` there runs as many as you like."""

import json
import os
import pathlib
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "pallas" / "pod_defects.py"
KINDS = 15


def test_races_among_many_are_found():
  done = subprocess.run([sys.executable, str(PROGRAM), f"--count={KINDS}", "--verbose"], env=dict(os.environ),
                        capture_output=True, text=True, timeout=300)
  cases = [json.loads(line) for line in done.stdout.splitlines()]
  assert len({c["kind"] for c in cases}) == KINDS, done.stderr[-2000:]
  for c in cases:
    assert not c["wrong"], c
  assert done.returncode == 0, done.stderr[-2000:]
