#!/usr/bin/env python3
"""Atoll and XLA:CPU side by side: the same JAX functions on both, in turns, in one process.

  bench/run.py [--filter REGEX] [--rounds N] [--processes N] [--out results.json]

Prints, for each workload, the median milliseconds of both, the median of the ratios of
neighbouring runs (above 1: Atoll is faster) with its 95% interval, the fraction of this
machine's limit that Atoll reaches, and the seconds that the first call took (compilation).
Then geometric means by element type, with every ratio and with ratios over 6 taken as 6.
With --processes, each of them measures everything and their ratios count together. Limits are measured
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
import tempfile
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
            "ratios": [x / a for a, x in zip(samples["atoll"], samples["xla"])],
            **{k: statistics.median(v) * 1e3 for k, v in samples.items()},
            **{k + "_compile_s": s.compile_s for k, s in sides.items()}}


def interval(ratios):
    """The median's 95% interval from the order of the ratios, whatever their distribution; all of them if there are few."""
    n = len(ratios)
    low = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
    ordered = sorted(ratios)
    return ordered[low], ordered[n - 1 - low]


def add_figures(row, limits):
    peak = limits.get(row["dtype"]) or limits["f32"]
    limit_ms = max(row["flops"] / (peak * 1e6) if peak else 0, row["bytes"] / (limits["memory"] * 1e6))
    row["ratio"], row["fraction"] = statistics.median(row["ratios"]), limit_ms / row["atoll"]
    row["low"], row["high"] = interval(row["ratios"])


def show(row):
    print(f"{row['name']:28s} {row['atoll']:10.4f} {row['xla']:10.4f} {row['ratio']:7.2f} {row['low']:6.2f} {row['high']:6.2f} {row['fraction']:6.2f} "
          f"{row['atoll_compile_s']:10.2f} {row['xla_compile_s']:7.2f}  {row['agree']}", flush=True)


def measure_in_turns(names, rounds, devices, limits):
    rows = []
    for name in names:
        try:
            row = measure(name, rounds, devices)
        except Exception as e:  # one failing workload must not hide the others
            print(f"{name:28s} failed: {str(e).splitlines()[0][:120]}", flush=True)
            continue
        add_figures(row, limits)
        show(row)
        rows.append(row)
    return rows


def measure_in_processes(args, limits):
    """Rows of processes that each run this script: ratios together, medians of the milliseconds."""
    found = {}
    for _ in range(args.processes):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            subprocess.run([sys.executable, sys.argv[0], "--filter", args.filter, "--rounds", str(args.rounds), "--out", file.name],
                           stdout=subprocess.DEVNULL, check=True)
            for row in json.load(file)["rows"]:
                found.setdefault(row["name"], []).append(row)
    rows = []
    for same in found.values():
        row = {**same[0], "ratios": [x for r in same for x in r["ratios"]], "agree": all(r["agree"] is not False for r in same)}
        row |= {k: statistics.median(r[k] for r in same) for k in ("atoll", "xla", "atoll_compile_s", "xla_compile_s")}
        add_figures(row, limits)
        show(row)
        rows.append(row)
    return rows


def main(table=None):
    """table: name -> maker of a Work, in place of all of workloads.py."""
    if table is not None:
        WORKLOADS.clear()
        WORKLOADS.update(table)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out")
    args = parser.parse_args()
    devices = {"atoll": jax.devices()[0], "xla": jax.devices("cpu")[0]}
    print(f"Atoll: {devices['atoll'].client.platform_version.splitlines()[-1]}; peer: XLA:CPU of jaxlib {jax.lib.__version__}")
    limits = machine_limits()
    print("limits:", ", ".join(f"{k} {v:.0f}" for k, v in limits.items() if v))
    print(f"{'workload':28s} {'Atoll ms':>10s} {'XLA ms':>10s} {'ratio':>7s} {'low':>6s} {'high':>6s} {'limit':>6s} {'compile s':>10s} {'XLA s':>7s}  same")
    if args.processes > 1:
        rows = measure_in_processes(args, limits)
    else:
        rows = measure_in_turns([n for n in WORKLOADS if re.search(args.filter, n)], args.rounds, devices, limits)
    for dtype in sorted({r["dtype"] for r in rows}):
        ratios = [r["ratio"] for r in rows if r["dtype"] == dtype]
        mean, capped = (math.exp(sum(math.log(min(r, cap)) for r in ratios) / len(ratios)) for cap in (math.inf, 6))
        below = [r["name"] for r in rows if r["dtype"] == dtype and r["high"] < 0.95]
        print(f"geometric mean {dtype}: {mean:.2f} ({capped:.2f} capped at 6) over {len(ratios)} workloads, lowest {min(ratios):.2f}; "
              f"below 0.95: {', '.join(below) or 'none'}")
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"limits": limits, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
