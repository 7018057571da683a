#!/usr/bin/env python3
"""What `atoll estimate --target=host` says of the workloads of bench/, beside what they take here.

  tools/host_accuracy.py [--filter REGEX] [--rounds N] [--cpu-time] [--steps N]

--cpu-time: mean CPU seconds over the number of cores for what takes over 3 ms, for a machine that
others use; too short for what runs on one thread. --steps N: the N steps of each workload that differ most, from a trace.

Before: `atoll doctor --measure` and `atoll cost collect`. Needs TPU_LIBRARY_PATH=.../libatoll.so.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["ATOLL_CACHE"] = "off"
os.environ.pop("JAX_PLATFORMS", None)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))

import jax
from jax._src.interpreters import mlir
from workloads import WORKLOADS, make


def predicted(tool, lowered):
    with tempfile.NamedTemporaryFile(suffix=".mlirbc") as file:
        file.write(mlir.module_to_bytecode(lowered.compiler_ir("stablehlo")))
        file.flush()
        run = subprocess.run([tool, "estimate", "--target=host", "--json", file.name], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr.strip())
    return json.loads(run.stdout)


def timed(compiled, args, rounds, clock):
    runs = []
    for _ in range(rounds + 1):
        start = clock()
        jax.block_until_ready(compiled(*args))
        runs.append(clock() - start)
    return runs[1:]


def measured(compiled, args, rounds, cpu):
    best = min(timed(compiled, args, rounds, time.perf_counter))
    if best < 3e-3:  # shorter than a turn of the scheduler: some run was undisturbed
        return min(timed(compiled, args, 20 * rounds, time.perf_counter))
    if not cpu:
        return best
    cores = len(os.sched_getaffinity(0))
    return statistics.mean(timed(compiled, args, rounds, time.process_time)) / cores


def traced(compiled, args, rounds):
    """Step -> its shortest time in one run; launches of one step follow each other and add up."""
    best = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(compiled(*args))
            file = next(pathlib.Path(folder).rglob("*.trace.json.gz"))
            events = json.load(gzip.open(file))["traceEvents"]
        run = collections.Counter()
        for e in events:
            name = e.get("name", "").split(" ")[0]
            if e.get("ph") == "X" and re.fullmatch(r"[a-z_0-9]+\.\d+", name):
                run[name] += e["dur"] * 1e-6
        for name, seconds in run.items():
            best[name] = min(best.get(name, seconds), seconds)
    return best


def show_steps(estimate, real, most):
    guess = {o["name"]: (o["seconds"] * o["runs"], o["shapes"]) for o in estimate["ops"]}
    rows = [(abs(guess.get(n, (0,))[0] - real.get(n, 0)), n) for n in {*guess, *real}]
    for _, n in sorted(rows, reverse=True)[:most]:
        seconds, detail = guess.get(n, (0, ""))
        print(f"    {n:24} {seconds * 1e3:10.3f} {real.get(n, 0) * 1e3:12.3f}  {detail[:90]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    tool = pathlib.Path(os.environ["TPU_LIBRARY_PATH"]).parent / "atoll"
    device = jax.devices("tpu")[0]
    errors = []
    print(f"{'workload':28} {'predicted ms':>12} {'measured ms':>12} {'error':>7}")
    for name in filter(lambda n: re.search(options.filter, n), WORKLOADS):
        work = make(name)
        args = [jax.device_put(a, device) for a in work.inputs]
        lowered = jax.jit(work.fn).lower(*args)
        try:
            estimate = predicted(tool, lowered)
        except RuntimeError as error:
            print(f"{name:28} {error}")
            continue
        guess = estimate["seconds"]
        compiled = lowered.compile()
        real = measured(compiled, args, options.rounds, options.cpu_time)
        errors.append(abs(guess - real) / real)
        print(f"{name:28} {guess * 1e3:12.3f} {real * 1e3:12.3f} {guess / real - 1:+7.0%}", flush=True)
        if options.steps:
            show_steps(estimate, traced(compiled, args, 3), options.steps)
    if errors:
        print(f"median error {statistics.median(errors):.0%}, {sum(e <= .2 for e in errors)} of {len(errors)} within 20%")


if __name__ == "__main__":
    main()
