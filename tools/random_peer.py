"""Runs random programs on XLA:CPU and Atoll, judges both by the evaluator.

usage: python tools/random_peer.py build/release/test/random/random_programs \\
           [--first-seed 1] [--programs 200] [--sets 2] [--all-pairs] [--work FOLDER] \\
           [--out docs/random_peer.md]

The programs return every value, and every op is judged on the operands that the
implementation itself made, within test/random/tolerance.def. What XLA:CPU refuses or
stops at is run again op by op; an op with operands of these types that it never ran is
left out of later programs, which are given its value instead.
Exit 1: Atoll is beyond a tolerance and XLA:CPU is not, or is not as far beyond.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ENOUGH = 20     # times that a pair is judged
CHUNK = 40      # programs a process of random_programs
PATIENCE = 120  # seconds for one program on XLA:CPU

# ---- On XLA:CPU


def numpy_type(text):
  import ml_dtypes
  import numpy as np
  plain = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128",
           "bf16": ml_dtypes.bfloat16}
  if text in plain:
    return np.dtype(plain[text])
  kind, bits = re.match(r"(ui|i|f)(.*)", text).groups()
  name = {"ui": "uint", "i": "int", "f": "float"}[kind] + bits.lower()
  if kind == "f" and not bits.isdigit():
    name = re.sub(r"^float(\d+)", r"float\1_", name)
  return np.dtype(getattr(ml_dtypes, name, name))


class Xla:
  """One client; programs as random_programs --write made them."""

  def __init__(self):
    import jax
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir import ir
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    self.jax, self.mlir, self.ir, self.xla = jax, mlir, ir, xla_client

  def start(self):
    self.device = self.jax.devices("cpu")[0]
    self.context = self.mlir.make_ir_context()
    self.options = self.xla.CompileOptions()
    # Values between ops are judged: they must be rounded as their types say.
    self.options.env_option_overrides = [("xla_allow_excess_precision", False)]

  def run(self, folder, name):
    import numpy as np
    text = (folder / f"{name}.mlir").read_text()
    shapes = [(what, numpy_type(t), tuple(int(d) for d in dims.split(",") if d))
              for what, t, dims in re.findall(r"^// (arg|result) (\S+) (\S*)$", text, re.M)]
    with self.context:
      module = self.ir.Module.parse(text)
      if not module.operation.verify():
        raise ValueError("the module does not verify")
    exe = self.device.client.compile_and_load(
        module, self.xla.DeviceList((self.device,)), self.options)
    for data in sorted(folder.glob(f"{name}.*.in")):
      raw, at, args = data.read_bytes(), 0, []
      for what, t, dims in shapes:
        if what != "arg":
          continue
        n = int(np.prod(dims, dtype=np.int64)) * t.itemsize
        args.append(self.jax.device_put(
            np.frombuffer(raw[at:at + n], t).reshape(dims), self.device))
        at += n
      arrays = exe.execute_sharded(args).disassemble_into_single_device_arrays()
      out = [np.asarray(a[0]) for a in arrays]
      wanted = [(t, dims) for what, t, dims in shapes if what == "result"]
      if [(x.dtype, x.shape) for x in out] != wanted:
        raise ValueError("results of other types than the program's")
      data.with_suffix(".out").write_bytes(
          b"".join(np.ascontiguousarray(x).tobytes() for x in out))


def serve():
  """FOLDER/NAME on stdin; for each, one line of JSON: null, or why not.

  A child does the work: when XLA ends it, the next one starts from here.
  """
  peer = Xla()
  answers = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)  # what libraries print is no answer
  while True:
    said = tempfile.TemporaryFile()
    child = os.fork()
    if not child:
      os.dup2(said.fileno(), 2)
      peer.start()
      for line in sys.stdin:
        path = pathlib.Path(line.strip())
        signal.alarm(PATIENCE)
        try:
          peer.run(path.parent, path.name)
          why = None
        except Exception as e:  # whatever it refuses by is a finding
          why = f"{type(e).__name__}: {e}"
        signal.alarm(0)
        print(json.dumps(why), file=answers, flush=True)
      os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not code:
      return
    said.seek(0)
    lines = [l for l in said.read().decode(errors="replace").splitlines()
             if re.match(r"F\d{4} |.*rror", l)]
    print(json.dumps(f"process ended ({code}): {lines[-1] if lines else 'no word'}"),
          file=answers, flush=True)


class Peer:
  """XLA:CPU in a process of its own."""

  def __init__(self):
    self.process = subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})

  def run(self, folder, name):
    """None, or why not."""
    self.process.stdin.write(f"{folder / name}\n")
    self.process.stdin.flush()
    return json.loads(self.process.stdout.readline())

  def close(self):
    self.process.stdin.close()
    self.process.wait()


# ---- Counts


def new_state(first):
  """All counts so far: JSON, so that a run can go on later."""
  return {"next": first, "programs": 0, "whole": 0, "apart": 0, "types": [],
          "ran": {}, "refused": {}, "judged": {}, "differs": {}, "farther": [], "failures": []}


def number(text):
  return float(text.replace("nan", "inf"))


def read_verdicts(text, state):
  for line in text.splitlines():
    f = line.split("\t")
    if f[0] == "judged":
      c = state["judged"].setdefault(f"{f[1]}\t{f[2]}", [0, 0, 0.0, 0, 0.0])
      for i, v in ((0, 3), (1, 4), (3, 6)):
        c[i] += int(f[v])
      for i, v in ((2, 5), (4, 7)):
        c[i] = max(c[i], number(f[v]))
    elif f[0] == "differs":
      place, op, dtype, who, cause, atoll, xla, why = f[1:9]
      atoll, xla = number(atoll), number(xla)
      d = state["differs"].setdefault("\t".join((cause, op, dtype)),
                                      {"atoll": 0, "peer": 0, "both": 0, "off": [0.0, 0.0],
                                       "first": f"{place}: {why}"})
      d[who] += 1
      d["off"] = [max(d["off"][0], atoll), max(d["off"][1], xla)]
      if who != "peer" and (who == "atoll" or atoll > xla):
        state["farther"].append(line[8:])
    elif line.startswith("FAIL "):
      state["failures"].append(line[5:])


def without(state):
  return sorted(k for k in state["refused"] if k not in state["ran"])


def never(state):
  """Ops that ran with no types though several were tried, as patterns."""
  ran = {k.split("(")[0] for k in state["ran"]}
  tried = collections.Counter(k.split("(")[0] for k in without(state))
  return sorted(f"{op}(*" for op, n in tried.items() if n >= 4 and op not in ran)


def seldom(state, pairs):
  """Pairs of op and type that were judged fewer than ENOUGH times."""
  judged = {k: v[0] for k, v in state["judged"].items()}
  return [(op, t) for op, t in pairs
          if t not in state["types"] and judged.get(f"{op}\t{t}", 0) < ENOUGH]


PROBE = """// op reshape({t}){t}
// arg {t} 2,
// result {t} 2,
module {{ func.func public @main(%0: tensor<2x{t}>) -> tensor<2x{t}> {{
  %2 = stablehlo.reshape %0 : (tensor<2x{t}>) -> tensor<2x{t}>
  return %2 : tensor<2x{t}> }} }}
"""


def pairs_of(program):
  """Pairs of op and element type that random programs have."""
  rows = [l.split("\t") for l in ask(program, ["--table"], [1, 0], 1).splitlines()]
  return sorted({(r[1].split(" ")[0], r[2]) for r in rows if r[0] == "pair" and r[2] != "token"})


def types_of(pairs, peer):
  """Element types: those that XLA:CPU has, and those that it has not."""
  types = sorted({t for _, t in pairs})
  good = []
  with tempfile.TemporaryDirectory() as top:
    for i, t in enumerate(types):
      path = pathlib.Path(top) / f"{i}.mlir"
      path.write_text(PROBE.format(t=t))
      path.with_suffix(".0.in").write_bytes(bytes(2 * numpy_type(t).itemsize))
      if peer.run(path.parent, path.stem) is None:
        good.append(t)
  return good, [t for t in types if t not in good]


# ---- Runs


def ask(program, flags, seeds, sets):
  r = subprocess.run([program, "--seeds", f"{seeds[0]}..{seeds[-1]}", "--elements", "200",
                      "--sets", str(sets), *flags], capture_output=True, text=True, check=False)
  if r.returncode not in (0, 1):
    return f"{r.stdout}\nFAIL seeds from {seeds[0]}: {r.stderr.strip()[-200:]}"
  return r.stdout


def run_all(folder, peer, state):
  """The programs in a folder; the names of those that did not run."""
  left = []
  for path in sorted(folder.glob("*.mlir")):
    text = path.read_text()
    keys = re.findall(r"^// op (.*)$", text, re.M)
    said = re.search(r"^// refused (.*)$", text, re.M)
    why = f"no form in StableHLO: {said[1]}" if said else peer.run(folder, path.stem)
    if why is None:
      for k in keys:
        state["ran"][k] = state["ran"].get(k, 0) + 1
    else:
      left.append(path.stem)
      for part in folder.glob(f"{path.stem}.*.out"):  # of the sets before
        part.unlink()
      if len(keys) == 1:
        state["refused"].setdefault(keys[0], [0, " ".join(why.split())[:300]])[0] += 1
  return left


def judge(o, peer, seeds, flags, state):
  """Written, run by the peer, judged; the names of those that did not run."""
  with tempfile.TemporaryDirectory() as folder:
    wrote = ask(o.program, [*flags, "--write", folder], seeds, o.sets)
    left = run_all(pathlib.Path(folder), peer, state)
    read_verdicts(wrote + ask(o.program, [*flags, "--read", folder], seeds, o.sets), state)
  return left


def run_chunk(o, peer, types, seeds, state):
  with tempfile.NamedTemporaryFile("w") as keys:
    keys.write("\n".join(without(state) + never(state)) + "\n")
    keys.flush()
    flags = ["--without", keys.name]
    for t in types:
      flags += ["--dtype", t]
    left = judge(o, peer, seeds, flags, state)
    for name in left:
      judge(o, peer, [int(name)], [*flags, "--apart"], state)
  state["programs"] += len(seeds)
  state["whole"] += len(seeds) - len(left)
  state["apart"] += len(left)
  state["next"] = seeds[-1] + 1


# ---- The page


def reason(text):
  """A refusal without what is only about this program."""
  text = re.sub(r"-:\d+:\d+: error: ", "", text)
  for pattern, short in (
      (r"Invalid XLA PrimitiveType", "no such element type"),
      (r"`([\w-]+)` is not supported by XLA:CPU", r"no \1 on XLA:CPU"),
      (r"no form in StableHLO", "no form in StableHLO"),
      (r"failed to legalize operation '([\w.]+)'", r"\1 is not lowered for this type"),
      (r"can't be translated to XLA HLO", "not translated to HLO"),
      (r"process ended \(-11\)", "the process crashes"),
      (r"process ended \(-14\)", "it does not end"),
      (r"process ended \(-6\).*Check failed: (.{0,60})", r"the process aborts: \1"),
      (r"process ended", "the process aborts"),
      (r"results of other types", "gives results of another type"),
      (r"RET_CHECK failure \([^)]*/([\w.]+:\d+)\) ?(.{0,40})", r"check fails in \1: \2"),
      (r"(Unsupported reduction computation)", r"\1"),
      (r"No registered implementation for.*custom call|[Cc]ustom call target '?(\w+)",
       "no such custom call"),
      (r"\w+Error: (\w+: )?(.{0,60})", r"\2")):
    if m := re.search(pattern, text):
      return m.expand(short)
  return text[:60]


def in_words(x):
  return "infinite" if x == float("inf") else f"{x:.2g}"


def cells(rows):
  return "| " + " | ".join(str(r).replace("|", "\\|") for r in rows) + " |"


def by_cause(s):
  """What XLA:CPU is beyond: (cause, op) -> [(type, counts)]."""
  groups = collections.defaultdict(list)
  for key, d in s["differs"].items():
    cause, op, dtype = key.split("\t")
    if d["peer"] or d["both"]:
      groups[cause, op].append((dtype, d))
  return groups


def page(s, o):
  pairs = {k: v for k, v in s["judged"].items() if v[0]}
  least = min((v[0] for v in pairs.values()), default=0)
  few = sorted(k.replace("\t", " ") for k, v in pairs.items() if v[0] < 20)
  beyond = sum(v[3] > 0 for v in pairs.values())
  out = ["# Random programs: Atoll beside XLA:CPU", "",
         "Written by `tools/random_peer.py` from programs of `random_programs --write`. A program",
         "returns every value; every op is judged by the evaluator on the operands that the",
         "implementation itself made, within `test/random/tolerance.def`. XLA:CPU is that of jaxlib,",
         "with `xla_allow_excess_precision=false`, for the values between the ops are judged.", "",
         f"{s['programs']} programs of seeds {o.first_seed} to {s['next'] - 1}, {o.sets} sets of arguments "
         f"each, every other one with NaN, infinities,",
         f"denormal numbers and extremes. {s['whole']} ran as they are, {s['apart']} op by op, for "
         f"XLA:CPU refuses an op of theirs.",
         f"{sum(v[0] for v in pairs.values())} results of "
         f"{len(pairs)} pairs of op and element type",
         f"were judged on both sides; {len(pairs) - len(few)} pairs at least 20 times, the least {least} times.",
         "",
         f"XLA:CPU is beyond the tolerance in {beyond} pairs, Atoll in {sum(v[1] > 0 for v in pairs.values())}; "
         f"cases where Atoll is farther from the",
         f"evaluator than XLA:CPU: {len(s['farther'])}.", ""]
  causes = collections.defaultdict(list)
  for (cause, op), rows in by_cause(s).items():
    causes[cause] += [(op, t, d) for t, d in rows]
  out += ["## Causes", "", "| cause | pairs | times | ops |", "|---|---|---|---|"]
  for cause, rows in sorted(causes.items()):
    out.append(cells([cause, len(rows), sum(d["peer"] + d["both"] for _, _, d in rows),
                      ", ".join(sorted({op for op, _, _ in rows}))]))
  out += ["", "The first of each:", ""]
  firsts = {}
  for key, d in s["differs"].items():
    cause, op, dtype = key.split("\t")
    firsts.setdefault(cause, f"- {cause}: {op} of {dtype}, program {d['first']}")
  out += [line for _, line in sorted(firsts.items())]
  out += ["", "## Where XLA:CPU is beyond the tolerance", "",
          "Off: how far the farthest element was, in units of the class that `judge.h` describes",
          "(units in the last place for exact ops, ones for integers); infinite: one is a number, the",
          "other infinite or NaN.", "",
          "| cause | op | element types | times | off: XLA:CPU | Atoll |", "|---|---|---|---|---|---|"]
  groups = by_cause(s)
  for (cause, op), rows in sorted(groups.items()):
    own = [s["judged"].get(f"{op.split()[0]}\t{t}", [0] * 5)[2] for t, _ in rows]
    out.append(cells([cause, op, ", ".join(sorted(t for t, _ in rows)),
                      sum(d["peer"] + d["both"] for _, d in rows),
                      in_words(max(d["off"][1] for _, d in rows)), in_words(max(own))]))
  out += ["", "## Where Atoll is farther", ""]
  out += [f"- {line.replace(chr(9), ' ')}" for line in s["farther"]] or ["None."]
  if s["failures"]:
    out += ["", "## Failures", ""] + [f"- {line}" for line in s["failures"]]
  out += ["", "## What XLA:CPU refuses", "",
          "Operand types before the arrow. Ops of these types were given to its programs as arguments",
          "and are judged in [random.md](random.md) alone.", "", "| why | op | types |", "|---|---|---|"]
  if s["types"]:
    out += [cells(["no such element type", "all", ", ".join(s["types"])])]
  why = collections.defaultdict(list)
  for key in without(s):
    op, types = key.split("(", 1)
    if set(re.split(r"[,)]", types)) & set(s["types"]):
      continue
    operands, result = types.split(")", 1)
    text = result if set(operands.split(",")) <= {*result.split(","), "i64", "i32", ""} else f"{operands}→{result}"
    why[reason(s["refused"][key][1]), op].append(text)
  all_of = {pattern[:-2] for pattern in never(s)}
  for (text, op), types in sorted(why.items()):
    some = sorted(set(types))
    more = f" and {len(some) - 30} more" if len(some) > 30 else ""
    if op in all_of:
      more += ", and so the others"
    out.append(cells([text, op, ", ".join(some[:30]) + more]))
  out += ["", "## Pairs compared", "", "Times judged.", "", "| op | element types |", "|---|---|"]
  ops = collections.defaultdict(list)
  for key, v in pairs.items():
    op, dtype = key.split("\t")
    ops[op].append(f"{dtype} {v[0]}")
  out += [cells([op, ", ".join(types)]) for op, types in sorted(ops.items())]
  if few:
    out += ["", f"Fewer than 20 times: {', '.join(few[:200])}{' ...' if len(few) > 200 else ''}."]
  return "\n".join(out) + "\n"


def finish(o, peer, pairs, state):
  """What was met seldom: a program of that pair alone, op by op, whatever was refused before."""
  for i, (op, t) in enumerate(seldom(state, pairs)):
    judge(o, peer, [o.first_seed + 1000000 + i], ["--apart", "--only", op, "--dtype", t], state)


def keep(o, state):
  if o.work:
    pathlib.Path(o.work, "counts.json").write_text(json.dumps(state))
  if o.out:
    pathlib.Path(o.out).write_text(page(state, o))
  print(f"{state['programs']} programs, {state['whole']} whole; {len(state['judged'])} pairs, "
        f"{len(without(state))} forms refused, {len(state['differs'])} differ, "
        f"Atoll farther {len(state['farther'])}, failures {len(state['failures'])}", flush=True)


def main():
  a = argparse.ArgumentParser()
  a.add_argument("program")
  a.add_argument("--first-seed", type=int, default=1)
  a.add_argument("--programs", type=int, default=200)
  a.add_argument("--sets", type=int, default=2, help="of arguments a program")
  a.add_argument("--all-pairs", action="store_true", help=f"each {ENOUGH} times, by programs of its own")
  a.add_argument("--refused", help="counts.json of another run: what XLA:CPU refused there is left out")
  a.add_argument("--work", help="folder that keeps counts.json: a run goes on where it stopped")
  a.add_argument("--out", help="the page to write")
  o = a.parse_args()
  state = new_state(o.first_seed)
  if o.work:
    os.makedirs(o.work, exist_ok=True)
    kept = pathlib.Path(o.work, "counts.json")
    state = json.loads(kept.read_text()) if kept.exists() else state
  if o.refused and not state["refused"]:
    known = json.loads(pathlib.Path(o.refused).read_text())
    state["refused"] = {k: known["refused"][k] for k in without(known)}
  peer = Peer()
  pairs = pairs_of(o.program)
  good, state["types"] = types_of(pairs, peer)
  last = o.first_seed + o.programs - 1
  while state["next"] <= last:
    run_chunk(o, peer, good, range(state["next"], min(state["next"] + CHUNK, last + 1)), state)
    keep(o, state)
  if o.all_pairs:
    finish(o, peer, pairs, state)
    keep(o, state)
  peer.close()
  for line in state["farther"] + state["failures"]:
    print(line)
  return 1 if state["farther"] or state["failures"] else 0


if __name__ == "__main__":
  if sys.argv[1:] == ["--serve"]:
    serve()
  else:
    sys.exit(main())
