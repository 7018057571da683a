#!/usr/bin/env python3
"""How long large programs compile, and what memory it takes.

  bench/growth.py [--atoll build/release/atoll] [--rounds N]

Three kinds of programs (test/growth/families.py), of 25,000 ops and of 100,000: elementwise ops with a product
every ten, functions of 100 ops each that are called in turn, and outputs of 50 ops each, no two of which are one
kernel. Each is compiled by `atoll dump --counts` without a cache, in a process of its own, with all cores; wall time
is the least of the rounds. Then 64 sines in a row, as JAX compiles them for XLA:CPU and for Atoll in turns
(TPU_LIBRARY_PATH=.../libatoll.so), medians. Ends with 1 where a bound is passed: 8 s for 100,000 ops, five times
the time and memory of 25,000, 1.5 times XLA's time for the sines.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "test" / "growth"))
import families

KINDS = {
  "a product every ten": lambda ops: families.product_every_ten(ops),
  "functions called": lambda ops: families.functions_called(ops // 100, 100),
  "distinct kernels": lambda ops: families.distinct_kernels(ops // 50, 50),
}
SMALL, LARGE = 25_000, 100_000
SECONDS, TIMES, SINES = 8.0, 5.0, 1.5


def compile_once(atoll, path):
  """Seconds, seconds of the processor, and MiB at most."""
  begin = time.monotonic()
  with subprocess.Popen([atoll, "dump", "--counts", path], env={**os.environ, "ATOLL_CACHE": "off"},
                        stdout=subprocess.DEVNULL) as process:
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    sys.exit(f"{path}: exit status {process.returncode}")
  return time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def large_programs(atoll, rounds):
  """What is over a bound."""
  over = []
  with tempfile.TemporaryDirectory() as folder:
    for kind, write in KINDS.items():
      least = {}
      for ops in (SMALL, LARGE):
        path = pathlib.Path(folder, f"{ops}.mlir")
        path.write_text(write(ops))
        runs = [compile_once(atoll, path) for _ in range(rounds)]
        least[ops] = [min(column) for column in zip(*runs)]
        print(f"{kind}, {ops} ops: {least[ops][0]:.2f} s, {least[ops][1]:.2f} s of the processor, "
              f"{least[ops][2]:.0f} MiB", flush=True)
      ratios = [large / small for small, large in zip(least[SMALL], least[LARGE])]
      print(f"{kind}: {ratios[0]:.2f} times the time, {ratios[1]:.2f} of the processor's, {ratios[2]:.2f} the memory")
      if least[LARGE][0] > SECONDS or ratios[0] > TIMES or ratios[2] > TIMES:
        over.append(kind)
  return over


def sines(rounds):
  """XLA's seconds and Atoll's."""
  import jax
  import jax.numpy as jnp

  def chain(x):
    for _ in range(64):
      x = jnp.sin(x)
    return x
  taken = {"cpu": [], "tpu": []}
  for i in range(rounds + 1):  # the first pays for what is done once
    for platform, seconds in taken.items():
      x = jax.device_put(jnp.zeros(1024 + 128 * i), jax.devices(platform)[0])
      lowered = jax.jit(chain).lower(x)
      begin = time.monotonic()
      lowered.compile()
      seconds.append(time.monotonic() - begin)
  return [statistics.median(seconds[1:]) for seconds in taken.values()]


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--atoll", default=str(TOP / "build" / "release" / "atoll"))
  parser.add_argument("--rounds", type=int, default=3)
  options = parser.parse_args()
  over = large_programs(options.atoll, options.rounds)
  os.environ["ATOLL_CACHE"] = "off"
  os.environ.pop("JAX_PLATFORMS", None)
  xla, ours = sines(2 * options.rounds + 1)
  print(f"64 sines: {ours * 1000:.0f} ms; XLA {xla * 1000:.0f} ms, {ours / xla:.2f} times")
  if ours > SINES * xla:
    over.append("64 sines")
  print("over a bound:", ", ".join(over) or "nothing")
  return bool(over)


if __name__ == "__main__":
  sys.exit(main())
