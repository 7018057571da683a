#!/usr/bin/env python3
"""Which functions' work grows faster than a program: counts how often each block of the compiler runs
for a family's program of size n and of size 4n (test/growth/families.py).

usage: python tools/growth_profile.py ATOLL [--families REGEX] [--scale 1] [--over 5] [--share 0.02]

ATOLL is the command built with clang's counters:
  cmake -S . -B build/counters -G Ninja -DCMAKE_C_COMPILER=clang-19 \\
    -DLLVM_DIR=/usr/lib/llvm-19/lib/cmake/llvm -DCMAKE_BUILD_TYPE=RelWithDebInfo \\
    -DCMAKE_C_FLAGS="-fprofile-instr-generate -fprofile-update=atomic" \\
    -DCMAKE_EXE_LINKER_FLAGS=-fprofile-instr-generate
Prints, for each family, the growth of all work and of every function that grows by more than `over`
and makes up more than `share` of the larger program's work.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "test/growth"))
import families

PROFDATA = "/usr/lib/llvm-19/bin/llvm-profdata"


def counts(atoll, program, folder, timeout):
  path, raw, data = (os.path.join(folder, x) for x in ("program.mlir", "raw", "data"))
  pathlib.Path(path).write_text(program)
  env = dict(os.environ, LLVM_PROFILE_FILE=raw, ATOLL_CACHE="off", ATOLL_THREADS="1")
  try:
    done = subprocess.run([atoll, "dump", "--stage=steps", path], env=env, capture_output=True, text=True,
                          timeout=timeout)
  except subprocess.TimeoutExpired:
    return None, f"over {timeout} s"
  if done.returncode:
    return None, (done.stdout + done.stderr).strip()[:300]
  subprocess.run([PROFDATA, "merge", "-o", data, raw], check=True)
  shown = subprocess.run([PROFDATA, "show", "--all-functions", "--counts", data], capture_output=True, text=True,
                         check=True).stdout
  total = {}
  for m in re.finditer(r"^  (\S+):\n    Hash: .*\n    Counters: .*\n    Function count: (\d+)\n    Block counts: \[(.*)\]",
                       shown, re.M):
    total[m[1]] = int(m[2]) + sum(map(int, filter(None, m[3].split(", "))))
  return total, None


def main():
  p = argparse.ArgumentParser()
  p.add_argument("atoll")
  p.add_argument("--families", default=".")
  p.add_argument("--scale", type=float, default=1)
  p.add_argument("--over", type=float, default=5)
  p.add_argument("--share", type=float, default=0.02)
  p.add_argument("--timeout", type=float, default=60)
  a = p.parse_args()
  for name, (n, write) in families.all_families().items():
    if not re.search(a.families, name):
      continue
    n = max(1, int(n * a.scale))
    with tempfile.TemporaryDirectory() as folder:
      small, why = counts(a.atoll, write(n), folder, a.timeout)
      large, why = counts(a.atoll, write(4 * n), folder, a.timeout) if small else (None, why)
    if not large:
      print(f"{name} n={n}: {why}", flush=True)
      continue
    all_small, all_large = sum(small.values()), sum(large.values())
    print(f"{name} n={n}: {all_small} -> {all_large}, {all_large / all_small:.2f}x", flush=True)
    for f, c in sorted(large.items(), key=lambda x: -x[1]):
      if c > a.share * all_large and c > a.over * small.get(f, 0):
        print(f"    {f}: {small.get(f, 0)} -> {c}, {c / max(1, small.get(f, 0)):.1f}x, {c / all_large:.0%}")


main()
