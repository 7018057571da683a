#!/usr/bin/env python3
"""Atoll and XLA:CPU side by side: the same JAX functions on both, in turns, in one process.

  bench/run.py [--filter REGEX] [--rounds N] [--out results.json] [--no-compile-cache]

Prints, for each workload, the median milliseconds of both, the ratio (above 1: Atoll is
faster), the fraction of this machine's limit that Atoll reaches, and the seconds that the
first call took (compilation). Then geometric means by element type. Limits are measured
first, by bench/peak (built with Atoll): all cores' copies past the caches, and arithmetic.
Needs TPU_LIBRARY_PATH=.../libatoll.so.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

os.environ["ATOLL_CACHE"] = "off"  # compile times are cold ones
os.environ.pop("JAX_PLATFORMS", None)
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import jax
import numpy as np
from workloads import WORKLOADS, make


def machine_limits():
    """What all cores reach at most: {"memory": GB/s, "f32": GFLOP/s, "bf16": GFLOP/s}."""
    probe = os.path.join(os.path.dirname(os.environ["TPU_LIBRARY_PATH"]), "peak")
    limits = {}
    for arguments in ([], ["memory"]):
        limits.update(json.loads(subprocess.run([probe, *arguments], capture_output=True, text=True, check=True).stdout))
    return limits


def _seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Side:
    """One backend's compiled function and its arguments on its device."""

    def __init__(self, device, fn, args):
        self.args = [jax.device_put(a, device) for a in args]
        jitted = jax.jit(fn)
        self.compile_s = _seconds(lambda: self._compile(jitted))
        self.result = jax.block_until_ready(self.call(*self.args))

    def _compile(self, jitted):
        self.call = jitted.lower(*self.args).compile()

    def run(self, repeat):
        start = time.perf_counter()
        for _ in range(repeat):
            out = self.call(*self.args)
        jax.block_until_ready(out)
        return (time.perf_counter() - start) / repeat


def agree(a, b, tolerance, flips):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)):
        x, y = np.asarray(x).astype(np.float64), np.asarray(y).astype(np.float64)
        scale = max(1.0, float(np.max(np.abs(y), initial=0)))
        close = np.isclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        if np.mean(~close) > flips:
            return False
    return True


def measure(name, rounds, devices):
    work = make(name)
    sides = {k: Side(d, work.fn, work.inputs) for k, d in devices.items()}
    same = agree(sides["atoll"].result, sides["xla"].result, work.tolerance, work.flips) if work.tolerance is not None else None
    once = max(1e-7, sides["xla"].run(1))
    repeat = max(1, math.ceil(2e-3 / once))
    samples = {k: [] for k in sides}
    for _ in range(rounds if once < 1 else 3):
        for k, side in sides.items():
            samples[k].append(side.run(repeat))
    return {"name": name, "dtype": work.dtype, "flops": work.flops, "bytes": work.bytes, "agree": same,
            **{k: statistics.median(v) * 1e3 for k, v in samples.items()},
            **{k + "_compile_s": s.compile_s for k, s in sides.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out")
    args = parser.parse_args()
    devices = {"atoll": jax.devices()[0], "xla": jax.devices("cpu")[0]}
    print(f"Atoll: {devices['atoll'].client.platform_version.splitlines()[-1]}; peer: XLA:CPU of jaxlib {jax.lib.__version__}")
    limits = machine_limits()
    print("limits:", ", ".join(f"{k} {v:.0f}" for k, v in limits.items() if v))
    print(f"{'workload':28s} {'Atoll ms':>10s} {'XLA ms':>10s} {'ratio':>7s} {'limit':>6s} {'compile s':>10s} {'XLA s':>7s}  same")
    rows = []
    for name in WORKLOADS:
        if not re.search(args.filter, name):
            continue
        try:
            r = measure(name, args.rounds, devices)
        except Exception as e:  # one failing workload must not hide the others
            print(f"{name:28s} failed: {str(e).splitlines()[0][:120]}")
            continue
        peak = limits.get(r["dtype"]) or limits["f32"]
        limit_ms = max(r["flops"] / (peak * 1e6) if peak else 0, r["bytes"] / (limits["memory"] * 1e6))
        r["ratio"], r["fraction"] = r["xla"] / r["atoll"], limit_ms / r["atoll"]
        rows.append(r)
        print(f"{name:28s} {r['atoll']:10.4f} {r['xla']:10.4f} {r['ratio']:7.2f} {r['fraction']:6.2f} "
              f"{r['atoll_compile_s']:10.2f} {r['xla_compile_s']:7.2f}  {r['agree']}", flush=True)
    for dtype in sorted({r["dtype"] for r in rows}):
        ratios = [r["ratio"] for r in rows if r["dtype"] == dtype]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {dtype}: {mean:.2f} over {len(ratios)} workloads, lowest {min(ratios):.2f}")
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"limits": limits, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
