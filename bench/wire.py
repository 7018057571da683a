#!/usr/bin/env python3
"""The wire between two processes of this machine beside Open MPI: trips, messages in a row,
bandwidth. The two take turns; each line has the best run and the median of nine.

  wire.py [--build build/release] [--turns 3]

Programs: wire, wire_mpi (built where CMake finds MPI; without it there is nothing to compare with).
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess

LINE = re.compile(r"^(\S+)\s+(.+?)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+(us|GB/s)$")


def measure(command, found):
  out = subprocess.run(command, capture_output=True, text=True, timeout=600)
  if out.returncode:
    raise SystemExit(f"{command[0]}: {out.stderr.strip()}")
  for line in out.stdout.splitlines():
    m = LINE.match(line)
    if m:
      medium, what, size, best, p50, unit = m.groups()
      found.setdefault((medium, what, int(size), unit), []).append((float(best), float(p50)))


def mpi(build, transport, name):
  return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "--mca", "pml", "ob1",
          "--mca", "btl", f"self,{transport}", str(build / "wire_mpi"), name]


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
  parser.add_argument("--turns", type=int, default=3)
  args = parser.parse_args()
  peers = (args.build / "wire_mpi").exists() and shutil.which("mpirun")
  if not peers:
    print("no Open MPI here (openmpi-bin, libopenmpi-dev): nothing to compare with")
  found = {}
  for _ in range(args.turns):
    for medium, transport in (("shm", "vader"), ("tcp", "tcp"), ("sealed", None), ("tls", None)):
      measure([str(args.build / "wire"), medium], found)
      if peers and transport:
        measure(mpi(args.build, transport, "mpi-" + medium), found)
  print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
  print(f"{'medium':8}{'measure':16}{'bytes':>10}{'best':>10}{'p50':>10}{'MPI best':>10}{'MPI p50':>10}"
        f"{'best':>8}{'p50':>7}  times as good")
  for (medium, what, size, unit), runs in found.items():
    if medium.startswith("mpi-"):
      continue
    rate = unit == "GB/s"
    pick = lambda rs: ((max if rate else min)(b for b, _ in rs), sorted(p for _, p in rs)[len(rs) // 2])
    ours, theirs = pick(runs), found.get(("mpi-" + medium, what, size, unit))
    line = f"{medium:8}{what:16}{size:10}{ours[0]:10.2f}{ours[1]:10.2f}"
    if theirs:
      theirs = pick(theirs)
      ratios = [o / t if rate else t / o for o, t in zip(ours, theirs)]
      line += f"{theirs[0]:10.2f}{theirs[1]:10.2f}{ratios[0]:8.2f}{ratios[1]:7.2f}"
    else:
      line += " " * 35
    print(line + f"  {unit}")


if __name__ == "__main__":
  main()
