"""A sample of tools/hlo_corpus.py: programs as jaxlib serialises them, before and after XLA:CPU's optimisation."""

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import LIBRARY

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("pypjrt")


def test_programs_of_jaxlib():
  p = subprocess.run([sys.executable, ROOT / "tools/hlo_corpus.py", "--programs=30", "--seed=7", f"--library={LIBRARY}"],
                     capture_output=True, text=True, timeout=280)
  assert p.returncode == 0, p.stdout[-4000:] + p.stderr[-2000:]
