"""Counts how often each path of codegen and of the runtime kernels is taken, and writes docs/paths.md.

usage: python tools/path_table.py build/paths [--programs 800] [--jobs 2] [--out docs/paths.md]

The build is made with the preset `paths`: the two rooms are compiled with the compiler's counters.
Runs random programs at every CPU level that this machine has, and the tests of the two rooms.
Exit status 1: a function was never entered and tools/path_reasons.json does not say why.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEVELS = ["native", "avx512_bf16", "avx512", "x86-64-v3"]
LLVM = "/usr/lib/llvm-19/bin/"


def run(command, level, profile):
  env = dict(os.environ, ATOLL_CPU=level, LLVM_PROFILE_FILE=profile)
  subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL,
                 stderr=subprocess.DEVNULL, check=False)


def random_runs(pool, program, folder, count):
  """Programs of other seeds than docs/random.md's, 20 a process."""
  for i in range(0, count, 20):
    level = LEVELS[i // 20 % len(LEVELS)]
    pool.submit(run, [program, "--seeds", f"{20000 + i}..{20019 + i}"], level,
                f"{folder}/random-%m.profraw")


def directed_runs(pool, build, folder):
  tests = [p.stem for room in ("codegen", "kernels")
           for p in sorted((ROOT / "src" / room).glob("*_test.c"))]
  for t in tests:
    pool.submit(run, [str(build / t)], "native", f"{folder}/directed-{t}.profraw")
  return tests


def export(folder, kind, binaries):
  """Function counts and regions: {file: {function: [count, regions, entered]}}."""
  merged = f"{folder}/{kind}.profdata"
  raw = [str(p) for p in pathlib.Path(folder).glob(f"{kind}-*.profraw")]
  subprocess.run([LLVM + "llvm-profdata", "merge", "-o", merged, *raw], check=True)
  objects = [a for b in binaries[1:] for a in ("-object", str(b))]
  out = subprocess.run([LLVM + "llvm-cov", "export", "--format=text", f"-instr-profile={merged}",
                        str(binaries[0]), *objects], capture_output=True, check=True, text=True)
  files = collections.defaultdict(dict)
  for f in json.loads(out.stdout)["data"][0]["functions"]:
    path = f["filenames"][0]
    m = re.search(r"src/(codegen|kernels)/([^/]+\.[ch])$", path)
    if not m or "_test" in m[2]:
      continue
    name = f["name"].split(":")[-1]
    row = files[f"{m[1]}/{m[2]}"].setdefault(name, [0, {}])
    row[0] += f["count"]
    for r in f["regions"]:
      if r[7] == 0 and r[5] == 0:  # code of the function's own file
        row[1][tuple(r[:4])] = row[1].get(tuple(r[:4]), 0) + r[4]
  return files


def why(reasons, function):
  """The reason that is given for a function, or for its whole file."""
  return reasons.get(function) or reasons.get(function.split(":")[0])


def page(random, directed, programs, reasons):
  out = ["# Paths of codegen and of the kernels", "",
         "Written by `tools/path_table.py` from the compiler's own counters (preset `paths`):",
         f"{programs} random programs (each compiled twice) at the CPU levels {', '.join(LEVELS)},",
         "and the tests of the two rooms. A number is how often a function was entered by random",
         "programs; `+n`: by the tests alone. Regions are the pieces of straight code that a",
         "condition chooses; of those never run, most build a status for input that other rooms",
         "refuse before.", ""]
  body, missing, functions, entered, regions, run = [], [], 0, 0, 0, 0
  for path in sorted(set(random) | set(directed)):
    cells, here, hit = [], 0, 0
    for name in sorted(set(random.get(path, {})) | set(directed.get(path, {}))):
      a, b = random.get(path, {}).get(name, [0, {}]), directed.get(path, {}).get(name, [0, {}])
      counts = collections.Counter()
      for table in (a[1], b[1]):
        for r, n in table.items():
          counts[r] += n
      here, hit = here + len(counts), hit + sum(n > 0 for n in counts.values())
      functions += 1
      entered += a[0] + b[0] > 0
      if not a[0] + b[0]:
        missing.append(f"{path}: {name}")
      cells.append(f"{name} {a[0]}" if a[0] else f"{name} +{b[0]}")
    regions, run = regions + here, run + hit
    body.append(f"| {path} | {hit} of {here} | {', '.join(cells)} |")
  out += [f"{entered} of {functions} functions were entered, {run} of {regions} regions run.", "",
          "| file | regions | functions |", "|---|---|---|", *body]
  if missing:
    out += ["", "## Never entered", "", "| function | why |", "|---|---|"]
    out += [f"| {m} | {why(reasons, m) or 'unexplained'} |" for m in missing]
  return "\n".join(out) + "\n", [m for m in missing if not why(reasons, m)]


def main():
  a = argparse.ArgumentParser()
  a.add_argument("build", type=pathlib.Path)
  a.add_argument("--programs", type=int, default=800)
  a.add_argument("--jobs", type=int, default=2)
  a.add_argument("--out", default=str(ROOT / "docs/paths.md"))
  o = a.parse_args()
  build = o.build.resolve()
  program = build / "test/random/random_programs"
  reasons = json.loads((ROOT / "tools/path_reasons.json").read_text())
  with tempfile.TemporaryDirectory() as folder:
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
      random_runs(pool, str(program), folder, o.programs)
      tests = directed_runs(pool, build, folder)
    random = export(folder, "random", [program])
    directed = export(folder, "directed", [build / t for t in tests])
  text, unexplained = page(random, directed, o.programs, reasons)
  pathlib.Path(o.out).write_text(text)
  for m in unexplained:
    print(f"never entered: {m}")
  return 1 if unexplained else 0


if __name__ == "__main__":
  sys.exit(main())
