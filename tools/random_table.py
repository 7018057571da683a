"""Runs random programs on several processes and writes docs/random.md.

usage: python tools/random_table.py build/release/test/random/random_programs \\
           [--rounds 10] [--sets 10] [--first-seed 1] [--jobs 2] [--work FOLDER] \\
           [--out docs/random.md]
"""
import argparse
import collections
import concurrent.futures
import pathlib
import subprocess
import tempfile

STEPS = 12   # of a program: random_main.c
CHUNK = 40   # programs a process


def run(program, folder, first, last, flags):
  """The output of one process, from `folder` if it ran there and found nothing."""
  kept = folder / f"{first}-{last}.txt"
  if kept.exists() and " 0 failed" in (text := kept.read_text()):
    return text
  r = subprocess.run([program, "--table", "--seeds", f"{first}..{last}", *flags],
                     capture_output=True, text=True, check=False)
  text = r.stdout
  if r.returncode not in (0, 1):
    text += f"FAIL seeds from {first}: {r.stderr.strip()[-200:]}\n0 cases, 1 failed\n"
  kept.write_text(text)
  return text


def parse(text, total):
  for line in text.splitlines():
    f = line.split("\t")
    if f[0] == "op":
      c = total["op"].setdefault((f[1], f[2]), [0, 0.0])
      c[0] += int(f[3])
      c[1] = max(c[1], float(f[4]))
    elif f[0] == "pair":
      total["pair"][f[1].strip(), f[2]] += int(f[3])
    elif f[0] == "excuse":
      x = total["excuse"].setdefault(f[1], [0, f[3], f[4]])
      x[0] += int(f[2])
    elif f[0] in ("kernel", "path"):
      total[f[0]][f[1]] += int(f[2])
    elif f[0] == "without":
      total["without"][f[1]] = f[2]
    elif line.endswith("failed") and " cases, " in line:
      cases, failed = line.split(" cases, ")
      total["cases"] += int(cases)
      total["failed"] += int(failed.split()[0])
    elif line.startswith("FAIL "):
      total["failures"].append(line)


def page(t, least_wanted, command):
  low = sorted((n, p) for p, n in t["pair"].items())
  least = low[0][0] if low else 0
  out = ["# Random programs against the evaluator", "",
         f"Written by `{command}`. Each program is compiled and run as it is, and once",
         "more with every value returned; then every op is judged on the values that the",
         "compiled program itself made, within `test/random/tolerance.def`.", "",
         f"{t['cases']} cases, {t['failed']} failed. {len(t['pair'])} pairs of an op's form and",
         f"an element type; each was judged at least {least} times, "
         f"{sum(n >= least_wanted for n in t['pair'].values())} of them at least "
         f"{least_wanted} times. [random_peer.md](random_peer.md) has such programs on XLA:CPU, too.", ""]
  out += ["## Ops by element type", "",
          "Times judged; in brackets the largest difference, in units of the class that",
          "`judge.h` describes (0 is left out).", ""]
  rows = collections.defaultdict(list)
  for (op, dtype), (n, worst) in t["op"].items():
    rows[op].append(f"{dtype} {n}" + (f" ({worst:.2g})" if worst else ""))
  out += ["| op | element types |", "|---|---|"]
  out += [f"| {op} | {', '.join(cells)} |" for op, cells in sorted(rows.items())]
  out += ["", "## What is not compared", "",
          "Of `tolerance.def`; elements that made use of it in this run.", "",
          "| what | why | elements |", "|---|---|---|"]
  out += [f"| {what} | {why} | {n} |" for n, what, why in t["excuse"].values()]
  out += ["", "## Forms judged least", "", "| form | type | times |", "|---|---|---|"]
  out += [f"| {p[0]} | {p[1]} | {n} |" for n, p in low[:12]]
  out += ["", "## Runtime kernels", "", "| kernel | steps |", "|---|---|"]
  out += [f"| {k} | {n} |" for k, n in sorted(t["kernel"].items())]
  out += ["", "## Steps by the op that they came from", "", "| step | count |", "|---|---|"]
  out += [f"| {k} | {n} |" for k, n in sorted(t["path"].items())]
  out += ["", "## Ops without programs", "", "| op | why |", "|---|---|"]
  out += [f"| {k} | {v} |" for k, v in sorted(t["without"].items())]
  if t["failures"]:
    out += ["", "## Failures", ""] + [f"- {f[5:]}" for f in sorted(set(t["failures"]))[:60]]
  return "\n".join(out) + "\n"


def main():
  a = argparse.ArgumentParser()
  a.add_argument("program")
  a.add_argument("--rounds", type=int, default=10, help="through every pair of op and type")
  a.add_argument("--sets", type=int, default=10, help="of arguments a program")
  a.add_argument("--first-seed", type=int, default=1)
  a.add_argument("--jobs", type=int, default=2)
  a.add_argument("--work", help="folder that keeps what ran; only what failed there runs again")
  a.add_argument("--out", default="docs/random.md")
  o = a.parse_args()
  total = {"op": {}, "pair": collections.Counter(), "kernel": collections.Counter(),
           "path": collections.Counter(), "without": {}, "excuse": {}, "cases": 0, "failed": 0,
           "failures": []}
  folder = pathlib.Path(o.work or tempfile.mkdtemp())
  folder.mkdir(parents=True, exist_ok=True)
  first = run(o.program, folder, 1, 0, [])
  pairs = sum(line.startswith("pair\t") for line in first.splitlines())
  seeds = -(-o.rounds * pairs // STEPS)
  each = ["--each", "--elements", "200", "--sets", str(o.sets)]
  least = o.rounds * o.sets  # times that each pair is judged
  start = o.first_seed
  # Every value judged, on several sets of arguments; then whole programs.
  chunks = [(i, min(i + CHUNK - 1, start + seeds - 1), each)
            for i in range(start, start + seeds, CHUNK)]
  whole = start + 100000
  chunks += [(i, i + CHUNK - 1, []) for i in range(whole, whole + seeds // 10, CHUNK)]
  with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
    for text in pool.map(lambda c: run(o.program, folder, *c), chunks):
      parse(text, total)
    # What failed beside them took counts from some: programs of those alone.
    few = sorted({(p[0].split(" ")[0], p[1]) for p, n in total["pair"].items() if n < least})
    apart = start + 200000
    more = [(apart + 2 * i, apart + 2 * i + 1, [*each, "--only", op, "--dtype", t])
            for i, (op, t) in enumerate(few)]
    for text in pool.map(lambda c: run(o.program, folder, *c), more):
      parse(text, total)
  with open(o.out, "w") as f:
    f.write(page(total, least, "tools/random_table.py"))
  print(f"{seeds} programs judged op by op from seed {start}; {total['cases']} cases, "
        f"{total['failed']} failed; least of a pair {min(total['pair'].values())}")


if __name__ == "__main__":
  main()
