"""Published training figures beside the estimates of the same programs (data/tpu/training_figures.json)."""
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ATOLL = os.path.join(os.path.dirname(os.environ["TPU_LIBRARY_PATH"]), "atoll")
# As measured, of 20 rows: docs/training_figures.md lists them. Estimates without a factor are
# of a chip that does nothing but the program: most are faster than what was published.
MEDIAN, WITHIN_15, FITTED_MEDIAN, FITTED_WITHIN_15 = 0.097, 18, 0.045, 19


def test_estimates_are_near_what_was_published():
  p = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "training_figures.py"), "report", "--json",
                      "--atoll=" + ATOLL], capture_output=True, text=True, timeout=600)
  assert p.returncode == 0, p.stderr
  rows = json.loads(p.stdout)
  plain = [abs(r["published_s"] / r["estimated_s"] - 1) for r in rows]
  fitted = [abs(r["published_s"] / r["estimated_s"] / r["factor"] - 1) for r in rows]
  assert len(rows) == 20
  assert statistics.median(plain) <= MEDIAN, rows
  assert sum(e <= 0.15 for e in plain) >= WITHIN_15, rows
  assert statistics.median(fitted) <= FITTED_MEDIAN, rows
  assert sum(e <= 0.15 for e in fitted) >= FITTED_WITHIN_15, rows
