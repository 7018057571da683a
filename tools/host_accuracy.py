#!/usr/bin/env python3
"""What `atoll estimate --target=host` says of the workloads of bench/, beside what they take here.

  tools/host_accuracy.py [--filter REGEX] [--rounds N] [--cpu-time]

--cpu-time: CPU seconds over the number of cores, for a machine that others use; too short for
what runs on one thread.

Before: `atoll doctor --measure` and `atoll cost collect`. Needs TPU_LIBRARY_PATH=.../libatoll.so.
"""
import argparse
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
from workloads import WORKLOADS, make


def predicted(tool, lowered):
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(str(lowered.compiler_ir("stablehlo")))
        file.flush()
        run = subprocess.run([tool, "estimate", "--target=host", "--json", file.name], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr.strip())
    return json.loads(run.stdout)["seconds"]


def measured(compiled, args, rounds, cpu):
    clock = (lambda: time.process_time() / len(os.sched_getaffinity(0))) if cpu else time.perf_counter
    best = float("inf")
    for _ in range(rounds + 1):
        start = clock()
        jax.block_until_ready(compiled(*args))
        best = min(best, clock() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu-time", action="store_true")
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
            guess = predicted(tool, lowered)
        except RuntimeError as error:
            print(f"{name:28} {error}")
            continue
        real = measured(lowered.compile(), args, options.rounds, options.cpu_time)
        errors.append(abs(guess - real) / real)
        print(f"{name:28} {guess * 1e3:12.3f} {real * 1e3:12.3f} {errors[-1]:7.0%}", flush=True)
    if errors:
        print(f"median error {statistics.median(errors):.0%}, {sum(e <= .2 for e in errors)} of {len(errors)} within 20%")


if __name__ == "__main__":
    main()
