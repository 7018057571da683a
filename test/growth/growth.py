#!/usr/bin/env python3
"""Work grows with the program: of every family (families.py) programs of size n and 4n are compiled,
and none of the counts of `atoll dump --counts` may be over five times as great.

usage: growth.py ATOLL [REGEX]

Builds with AT_COUNT_BLOCKS count every block of code that runs; others count the visits of walks, LLVM
instructions and bytes of arenas. tools/growth_profile.py says which functions it is that grow.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import families

MOST = 5.0
COUNTS = ("visits", "llvm_instructions", "llvm_modules", "arena_bytes", "blocks")
BATCH = 40


def measure(atoll, programs):
  """A dictionary of counts for each program, in order; {"error": ...} where it does not compile."""
  env = dict(os.environ, ATOLL_THREADS="1", ATOLL_CACHE="off")
  with tempfile.TemporaryDirectory() as folder:
    paths = []
    for i, text in enumerate(programs):
      paths.append(f"{folder}/{i}.mlir")
      pathlib.Path(paths[-1]).write_text(text)
    done = subprocess.run([atoll, "dump", "--counts", *paths], env=env, capture_output=True, text=True)
  lines = [json.loads(line) for line in done.stdout.splitlines()]
  if len(lines) != len(programs):
    sys.exit(f"{len(programs)} programs, {len(lines)} answers; exit status {done.returncode}\n{done.stderr[-3000:]}")
  return lines


def main():
  atoll, only = sys.argv[1], re.compile(sys.argv[2] if len(sys.argv) > 2 else ".")
  found = [(name, n, write) for name, (n, write) in families.all_families().items() if only.search(name)]
  bad = measured = 0
  for begin in range(0, len(found), BATCH):
    batch = found[begin:begin + BATCH]
    # Several programs share a process. The first pays for what is done once.
    programs = [families.mixed(4)] + [write(k * n) for _, n, write in batch for k in (1, 4)]
    counts = measure(atoll, programs)[1:]
    for i, (name, n, _) in enumerate(batch):
      small, large = counts[2 * i], counts[2 * i + 1]
      error = small.get("error") or large.get("error")
      if error:
        # The op does not take these elements.
        if name in families.FAMILIES or "INTERNAL" in error:
          print(f"{name}: {error}")
          bad += 1
        continue
      measured += 1
      for count in COUNTS:
        if large[count] > MOST * max(small[count], 1):
          print(f"{name}: {count} {small[count]} at {n}, {large[count]} at {4 * n}: "
                f"{large[count] / max(small[count], 1):.1f} times")
          bad += 1
  print(f"{measured} families measured, {bad} findings")
  if len(sys.argv) < 3 and measured < 250:
    print("too few families were measured")
    bad += 1
  sys.exit(bad > 0)


main()
