#!/usr/bin/env python3
"""What a tiny jitted call costs: Atoll, XLA:CPU and a plug-in that does nothing, in turns.

  bench/tiny.py [--library build/release/libatoll.so] [--rounds N]

`call` is the time of one of many calls, `wait` that of a call and the wait for its result, both in
microseconds and the least of all rounds. Exit 1 unless a call on Atoll costs no more than on XLA:CPU
and at most 1.5 us more than with the empty plug-in (build/release/libempty_plugin.so).
"""
import argparse
import os
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--library", default="build/release/libatoll.so")
parser.add_argument("--rounds", type=int, default=200)
options = parser.parse_args()

os.environ["ATOLL_CACHE"] = "off"
os.environ["JAX_PLATFORMS"] = "atoll,empty,cpu"
os.environ.pop("TPU_LIBRARY_PATH", None)

from jax._src import xla_bridge

library = os.path.abspath(options.library)
xla_bridge.register_plugin("atoll", priority=500, library_path=library)
xla_bridge.register_plugin("empty", priority=400, library_path=os.path.join(os.path.dirname(library), "libempty_plugin.so"))
import jax
import numpy as np

CALLS = 500


def side(platform):
    x = jax.device_put(np.ones(8, np.float32), jax.devices(platform)[0])
    f = jax.jit(lambda x: x + 1)
    jax.block_until_ready(f(x))
    return f, x


def calls(f, x):
    start = time.perf_counter()
    for _ in range(CALLS):
        y = f(x)
    y.block_until_ready()
    return (time.perf_counter() - start) / CALLS


def waits(f, x):
    start = time.perf_counter()
    for _ in range(CALLS):
        f(x).block_until_ready()
    return (time.perf_counter() - start) / CALLS


sides = {"Atoll": side("atoll"), "XLA:CPU": side("cpu"), "empty": side("empty")}
best = {(name, how): 1.0 for name in sides for how in (calls, waits)}
for _ in range(options.rounds):
    for key in best:
        best[key] = min(best[key], key[1](*sides[key[0]]))
print("           call us  wait us")
for name in sides:
    print(f"{name:10s} {best[name, calls] * 1e6:7.2f} {best[name, waits] * 1e6:8.2f}")
ok = True
for how, label in ((calls, "call"), (waits, "wait")):
    ours = best["Atoll", how]
    ratio, above = best["XLA:CPU", how] / ours, (ours - best["empty", how]) * 1e6
    good = ratio >= 1 and above <= 1.5
    ok &= good
    print(f"{label}: XLA:CPU / Atoll {ratio:.2f} (wanted: 1 or more), above the empty plug-in {above:.2f} us (wanted: 1.5 or less) {'ok' if good else 'MISSED'}")
sys.exit(0 if ok else 1)
