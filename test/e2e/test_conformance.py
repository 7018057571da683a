"""StableHLO's own test programs (beside the checkout, in ../shared/conformance) on Atoll."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

TOP = pathlib.Path(os.environ.get("AT_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
SUITE = TOP.parent / "shared" / "conformance"

# Bounds that must hold; docs/coverage.md lists every program that is behind them.
LEAST_STRICT = 1913
MOST_NOT_RELAXED = 10


@pytest.mark.skipif(not SUITE.is_dir(), reason="../shared/conformance is not here")
def test_single_device_programs(tmp_path):
    out = tmp_path / "result.json"
    env = dict(os.environ, ATOLL_CACHE="off")
    subprocess.run([sys.executable, SUITE / "run_suite.py", os.environ["ATOLL_LIBRARY"], "--name", "atoll",
                    "--category", "int,half,f32,dynamic_refined,f64,complex,int4,fp8,dynamic",
                    "--out", out], env=env, check=True, stdout=subprocess.PIPE)
    results = json.loads(out.read_text())
    broken = [r["name"] for r in results.values() if r["status"] in ("crash", "timeout")]
    assert not broken
    strict = sum(r["strict"] for r in results.values())
    not_relaxed = [(r["name"], r["msg"][:200]) for r in results.values() if not r["relaxed"]]
    print(f"{strict} of {len(results)} strict, {len(not_relaxed)} not even relaxed")
    assert len(not_relaxed) <= MOST_NOT_RELAXED, not_relaxed
    assert strict >= LEAST_STRICT
