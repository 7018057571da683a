#!/usr/bin/env python3
"""Programs as jaxlib serialises them, before and after XLA:CPU's optimisation, run by Atoll in format "hlo".

usage: hlo_corpus.py [--programs 500] [--seed 1] [--library build/release/libatoll.so] [--work FOLDER] [--only NUMBERS]
                     [--again] [--fields]

Draws functions (hlo_programs.py), writes each one's HloModuleProto as lowered and as XLA:CPU has compiled it, with
arguments and XLA:CPU's results, and runs them in a process of its own through the PJRT C API. Results agree within
the tolerance of whole programs (test/random/tolerance.def). With --fields the functions are those of hlo_fields.py. Backend-private custom calls are to be refused by name.
Prints what disagrees, fails or is refused, and the counts; exit 1 below 99% of what is not refused, or where more than
5% are.
"""
import argparse
import collections
import ctypes
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
REFUSED = re.compile(r"private to the backend|[Cc]ustom call|custom_call")


def tolerances():
  rows = re.findall(r"AT_TOLERANCE\(PROGRAM, (\w+), (\d+)", (TOP / "test" / "random" / "tolerance.def").read_text())
  return {dtype.lower(): int(ulp) for dtype, ulp in rows}


# ---- Making: in this process, on XLA:CPU
def parts(x, sharded):
  import numpy as np
  if not sharded:
    return [np.asarray(x)]
  return [np.asarray(s.data) for s in sorted(x.addressable_shards, key=lambda s: s.device.id)]


def one(r, drawn):
  """(family, protos, arguments, results) of a drawn function; arguments and results as lists of parts."""
  import jax
  name, f, args, sharded = drawn
  donate = () if sharded or r.random() < .9 else (0,)
  jitted = f if sharded else jax.jit(f, donate_argnums=donate, keep_unused=True)
  lowered = jitted.lower(*args)
  before = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
  compiled = lowered.compile()
  after = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
  leaves = [parts(x, sharded) for x in jax.tree.leaves(args)]
  out = compiled(*args)
  results = [parts(x, sharded) for x in jax.tree.leaves(out)]
  return name, [before, after], leaves, results, sharded


def keep(folder, number, which, proto, made):
  stem = folder / f"{number:04d}"
  stem.with_suffix(".pb").write_bytes(proto)
  name, _, args, results, sharded = made
  with open(stem.with_suffix(".pkl"), "wb") as out:
    pickle.dump((f"{name}, {which}", sharded, args, results), out)


def make_fields(folder, seed):
  """Every program of hlo_fields.py; returns how many could not be made."""
  import numpy as np
  import hlo_fields
  failures = number = 0
  for k, f in enumerate(hlo_fields.PROGRAMS):
    r = np.random.default_rng([seed, k])
    try:
      made = one(r, (f.__name__, *f(r), False))
    except Exception as e:
      failures += 1
      print(f"not made: {f.__name__}: {type(e).__name__}: {str(e)[:200]}")
      continue
    for which, proto in zip(("before", "after"), made[1]):
      keep(folder, number, which, proto, made)
      number += 1
  return failures


def make(folder, count, seed):
  import numpy as np
  import hlo_programs
  import jax
  jax.config.update("jax_enable_x64", True)
  number = failures = 0
  while number < count:
    r = np.random.default_rng([seed, number, failures])
    try:
      made = one(r, hlo_programs.draw(r))
    except Exception as e:  # a drawn function that JAX or XLA:CPU does not take
      failures += 1
      if failures > 10 * count:
        raise
      if os.environ.get("HLO_CORPUS_VERBOSE"):
        print("not made:", type(e).__name__, str(e)[:200].replace("\n", " "))
      continue
    for which, proto in zip(("before", "after"), made[1]):
      if number == count:
        break
      keep(folder, number, which, proto, made)
      number += 1
  return failures


# ---- Running: in a process of its own, on Atoll
class Runner:
  def __init__(self, library):
    import pypjrt
    self.client = pypjrt.Client.create(library)
    self.plugin = self.client._plugin

  def compile(self, proto, devices, spread, form=b"hlo"):
    from pypjrt import CompileOptions, Executable
    options = CompileOptions(num_partitions=devices, use_spmd_partitioning=devices > 1,
                             allow_spmd_sharding_propagation_to_output=[spread]).encode(self.plugin.abi)
    held = [ctypes.create_string_buffer(b, len(b)) for b in (proto, form, options)]
    where = [ctypes.cast(b, ctypes.c_void_p) for b in held]
    program = self.plugin.args("PJRT_Program", code=where[0], code_size=len(proto), format=where[1], format_size=len(form))
    a = self.plugin.args("PJRT_Client_Compile_Args", client=self.client.address, program=ctypes.addressof(program),
                         compile_options=where[2], compile_options_size=len(options))
    self.plugin.call("PJRT_Client_Compile", a)
    return Executable(self.plugin, a.executable, self.client)

  def optimized(self, executable):
    """(what it is, bytes) of the program that clients show as text."""
    program = self.plugin.args("PJRT_Program")
    a = self.plugin.args("PJRT_Executable_OptimizedProgram_Args", executable=executable._executable(),
                         program=ctypes.addressof(program))
    self.plugin.call("PJRT_Executable_OptimizedProgram", a)
    code = ctypes.create_string_buffer(program.code_size)
    program.code = ctypes.cast(code, ctypes.c_void_p)
    self.plugin.call("PJRT_Executable_OptimizedProgram", a)
    return ctypes.string_at(program.format, program.format_size), code.raw

  def run(self, name, proto, args, results, sharded, again):
    devices = len(args[0]) if sharded else 1
    executable = self.compile(proto, devices, name.startswith("manual"))
    if again:
      form, proto = self.optimized(executable)
      if form != b"hlo_with_config":
        raise RuntimeError(f"is shown as {form.decode()}")
      shown(proto)
      executable = self.compile(proto, devices, False, form)
    return self.execute(executable, args, results, devices)

  def execute(self, executable, args, results, devices):
    import numpy as np
    with self.client.devices() as there:
      buffers = []
      for d in range(devices):
        row = []
        for parts_of in args:
          x = parts_of[d]
          data = bytearray(x.tobytes()) or bytearray(1)
          row.append(self.client.buffer_from_host(data, code_of(self.plugin.abi, x.dtype), x.shape, there[d]))
        buffers.append(row)
      out = executable.execute_sharded(buffers)
      got = [[None] * devices for _ in results]
      if len(out[0]) != len(results):
        raise RuntimeError(f"{len(out[0])} results, {len(results)} expected")
      for k, parts_of in enumerate(results):
        for d in range(devices):
          want = parts_of[d]
          if out[d][k].dimensions != want.shape:
            raise RuntimeError(f"result {k} is {out[d][k].dimensions}, {want.shape} expected")
          data = out[d][k].to_host(bytearray(max(1, want.nbytes)))
          got[k][d] = np.frombuffer(bytes(data)[:want.nbytes], want.dtype).reshape(want.shape)
    return got


def shown(proto):
  """The text that jaxlib makes of an HloModuleProtoWithConfig."""
  from jaxlib import _hlo
  at, size, shift = 1, 0, 0
  while True:  # the length of the first field, the module
    size |= (proto[at] & 127) << shift
    at, shift = at + 1, shift + 7
    if proto[at - 1] < 128:
      break
  text = _hlo.HloModule.from_serialized_hlo_module_proto(proto[at:at + size]).to_string()
  if "is_scheduled=true" not in text:
    raise RuntimeError("the text has no schedule")
  return text


def code_of(abi, dtype):
  name = str(dtype)
  plain = {"bool": "PRED", "bfloat16": "BF16", "complex64": "C64", "complex128": "C128"}
  m = re.match(r"(uint|int|float)(\d+)(_.*)?$", name)
  text = plain.get(name) or {"uint": "U", "int": "S", "float": "F"}[m[1]] + m[2] + (m[3] or "").replace("_", "").upper()
  return getattr(abi, f"PJRT_Buffer_Type_{text}")


def distance(got, want):
  """Units of the largest element, over the tolerance; 0: equal."""
  import ml_dtypes
  import numpy as np
  kind = want.dtype
  if kind.kind in "iub" or "int" in str(kind):
    return 0.0 if np.array_equal(got.astype("int64"), want.astype("int64")) else np.inf
  names = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16", "complex64": "c64", "complex128": "c128"}
  limit = tolerances().get(names.get(str(kind), ""), 1)
  wide = "complex128" if kind.kind == "c" else "float64"
  a, b = got.astype(wide), want.astype(wide)
  same = (a == b) | (np.isnan(a) & np.isnan(b))
  if np.any(~np.isfinite(b) & ~same) or np.any(~np.isfinite(a) & ~same):
    return np.inf
  if same.all():
    return 0.0
  eps = float(ml_dtypes.finfo("float32" if kind == "complex64" else "float64" if kind == "complex128" else kind).eps)
  finite = np.isfinite(b)
  largest = max(np.max(np.abs(b[finite])), 1e-30)
  return float(np.max(np.abs(a - b)[~same])) / largest / eps / limit


def run_all(folder, library, numbers, start, again):
  """One line of JSON for each program, so that a stop names the one it stopped at."""
  runner = Runner(library)
  for path in sorted(folder.glob("*.pb")):
    number = int(path.stem)
    if number < start or (numbers and number not in numbers):
      continue
    name, sharded, args, results = pickle.loads(path.with_suffix(".pkl").read_bytes())
    print(json.dumps({"begin": number, "name": name}), flush=True)
    try:
      got = runner.run(name, path.read_bytes(), args, results, sharded, again)
      off = max((distance(g, w) for gs, ws in zip(got, results) for g, w in zip(gs, ws)), default=0.0)
      print(json.dumps({"off": off}), flush=True)
    except Exception as e:
      print(json.dumps({"error": f"{type(e).__name__}: {e}"[:2000]}), flush=True)


def run_apart(folder, library, only, again):
  """{number: (name, outcome)}; a process that stops is started again behind the program."""
  found, start = {}, 0
  count = len(list(folder.glob("*.pb")))
  env = {**os.environ, "PYTHONPATH": str(TOP / "tools"), "ATOLL_TARGET": "v6e:2x4"}
  while start < count:
    child = subprocess.run([sys.executable, __file__, "--run", str(folder), "--library", str(library), "--start", str(start),
                            "--only", only, *["--again"] * again], capture_output=True, text=True, env=env)
    number = None
    for line in child.stdout.splitlines():
      x = json.loads(line)
      if "begin" in x:
        number, found[x["begin"]] = x["begin"], (x["name"], {"stopped": True})
      else:
        found[number] = (found[number][0], x)
    if child.returncode == 0:
      break
    if number is None or number < start:
      raise SystemExit(child.stderr[-2000:])
    found[number] = (found[number][0], {"error": "the process stopped: " + child.stderr[-800:]})
    start = number + 1
  return found


def judge(found):
  counts, families, worst = collections.Counter(), collections.Counter(), 0.0
  for number, (name, x) in sorted(found.items()):
    if "error" in x:
      kind = "refused" if REFUSED.search(x["error"]) else "failed"
    else:
      kind = "agree" if x.get("off", float("inf")) <= 1 else "differ"
      if kind == "agree":
        worst = max(worst, x["off"])
    counts[kind] += 1
    families[name, kind] += 1
    if kind != "agree":
      print(f"{number:4d} {name}: {kind}: {x.get('error', x.get('off'))}"[:600])
  total = sum(counts.values())
  judged = total - counts["refused"]
  print(f"{total} programs: {judged} run, {counts['agree']} agree ({100 * counts['agree'] / max(judged, 1):.1f}%), "
        f"{counts['differ']} differ, {counts['failed']} fail, {counts['refused']} are refused by name "
        f"({100 * counts['refused'] / max(total, 1):.1f}%); worst {worst:.2f} of the tolerance")
  return counts["agree"] < .99 * judged or counts["refused"] > .05 * total


def main():
  p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument("--programs", type=int, default=500)
  p.add_argument("--seed", type=int, default=1)
  p.add_argument("--library", default=os.environ.get("ATOLL_LIBRARY", str(TOP / "build" / "release" / "libatoll.so")))
  p.add_argument("--work", help="keeps the programs; one that has some is not filled again")
  p.add_argument("--only", default="", help="numbers of programs, with commas")
  p.add_argument("--again", action="store_true", help="runs what Atoll shows as the optimized program instead")
  p.add_argument("--fields", action="store_true", help="the programs of hlo_fields.py instead of drawn ones")
  p.add_argument("--run", help=argparse.SUPPRESS)
  p.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
  o = p.parse_args()
  if o.run:
    return run_all(pathlib.Path(o.run), o.library, {int(n) for n in o.only.split(",") if n}, o.start, o.again)
  os.environ["JAX_PLATFORMS"] = "cpu"
  os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
  with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(o.work or temporary)
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("*.pb")):
      failures = make_fields(folder, o.seed) if o.fields else make(folder, o.programs, o.seed)
      print(f"{failures} functions were not made", flush=True)
    return judge(run_apart(folder, o.library, o.only, o.again))


if __name__ == "__main__":
  sys.exit(main())
