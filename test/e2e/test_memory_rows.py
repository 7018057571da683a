"""Memory of random programs against what the TPU compiler said of them (data/tpu/memory_rows.json)."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def compare():
  env = dict(os.environ, ATOLL=os.path.join(os.path.dirname(os.environ["TPU_LIBRARY_PATH"]), "atoll"))
  p = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "memory_rows.py"), "compare",
                      os.path.join(ROOT, "data", "tpu", "memory_rows.json")],
                     capture_output=True, text=True, env=env, timeout=240)
  assert p.returncode == 0, p.stdout + p.stderr
  return p.stdout


def test_memory_is_near_the_compilers():
  out = compare()
  middle = {name: float(value) for name, value in re.findall(r"^(\w+): \d+ programs, median ([\d.]+)%", out, re.M)}
  assert middle["peaks"] <= 5 and middle["temporaries"] <= 20, out
  assert "refuses: none" in out
