#!/usr/bin/env python3
"""Collectives between processes of this machine: by shared memory, by messages, in one process with as
many chips, and all-reduce by Open MPI. They take turns; each figure is the median over the turns of the
median of nine, in microseconds.

  pod_collectives.py [--build build/release] [--turns 3] [--processes 2,4] [--messages]
  pod_collectives.py --tcp      ours and Open MPI's over TCP

Programs: pod_collectives, reduce_mpi (built where CMake finds MPI).
"""
import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess

LINE = re.compile(r"^(\S+)\s+(\w+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+us$")


def measure(name, command, found):
  out = subprocess.run(command, capture_output=True, text=True, timeout=300,
                       env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
  if out.returncode:
    raise SystemExit(f"{command[0]}: {out.stderr.strip()}")
  for line in out.stdout.splitlines():
    m = LINE.match(line)
    if m:
      found.setdefault((m[2], int(m[3])), {}).setdefault(name, []).append(float(m[5]))


def mpi(build, processes, yields, btl="vader"):
  return ["mpirun", "--oversubscribe", "-n", str(processes), "--mca", "pml", "ob1", "--mca", "btl", f"self,{btl}",
          "--mca", "mpi_yield_when_idle", str(yields), str(build / "reduce_mpi"), "mpi"]


def compare(processes, args):
  ours, n = str(args.build / "pod_collectives"), str(processes)
  first = "tcp" if args.tcp else "shared"
  commands = {first: [ours, n, n] + ["tcp"] * args.tcp, "one": [ours, "1", n]}
  if args.messages:
    commands["messages"] = [ours, n, n, "messages"]
  btl = "tcp" if args.tcp else "vader"
  if (args.build / "reduce_mpi").exists() and shutil.which("mpirun"):
    # Who never yields gets nowhere where there are more processes than cores.
    if processes <= os.cpu_count():
      commands["mpi 0"] = mpi(args.build, processes, 0, btl)
    commands["mpi 1"] = mpi(args.build, processes, 1, btl)
  found = {}
  for _ in range(args.turns):
    for name, command in commands.items():
      measure(name, command, found)
  print(f"{processes} processes; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
  print(f"{'collective':22}{'bytes':>10}" + "".join(f"{c:>12}" for c in commands) + f"{'of MPI':>9}{'of one':>9}")
  for (what, size), runs in found.items():
    p50 = {name: statistics.median(r) for name, r in runs.items()}
    theirs = [v for name, v in p50.items() if name.startswith("mpi")]
    print(f"{what:22}{size:10}" + "".join(f"{p50[c]:12.1f}" if c in p50 else " " * 12 for c in commands)
          + (f"{p50[first] / min(theirs):9.2f}" if theirs else " " * 9) + f"{p50[first] / p50['one']:9.2f}")


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
  parser.add_argument("--turns", type=int, default=3)
  parser.add_argument("--processes", default="2,4")
  parser.add_argument("--messages", action="store_true")
  parser.add_argument("--tcp", action="store_true")
  args = parser.parse_args()
  for n in args.processes.split(","):
    compare(int(n), args)


if __name__ == "__main__":
  main()
