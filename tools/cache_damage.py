"""Damages the disk cache of compiled programs and looks whether anybody notices.

  cache_damage.py --library=build/release/libatoll.so [--flips=1000] [--kills=100] [--seed=N]

Flips: programs of test/programs/kinds.py are compiled under stock JAX; again and again one
bit of one of their entries is flipped, and the program runs anew. Kills: the atoll command,
compiling, is killed (SIGKILL) while it writes an entry; then it runs to its end. Results
must be the first ones, nothing may crash, fail or hang, no damaged entry may be read, and
killed writers may leave no files behind. Ends with 1 otherwise.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Small entries and large ones, code and constants, kernels, several chips.
KINDS = ["plain", "loops", "calls_back", "donates", "kernel", "sparsecore", "sharded"]


# ---- Flips: in a worker, which a crash ends
def entries_of(kinds, folder):
  """Runs every kind, each with a folder of its own; kind -> (digest, entries)."""
  found = {}
  for name in KINDS:
    os.environ["ATOLL_CACHE_DIR"] = str(folder / name)
    want = kinds.digest(getattr(kinds, name))
    found[name] = want, {p: p.read_bytes() for p in sorted((folder / name).glob("*.exe"))}
  return found


def flip_once(kinds, found, seed):
  """What came of one flipped bit, and where it was."""
  import atoll
  import jax
  draw = random.Random(seed)
  name = draw.choice(KINDS)
  want, entries = found[name]
  path = draw.choice(list(entries))
  # Half of the flips in front, where headers and tables are.
  at = draw.randrange(len(entries[path]) if draw.random() < 0.5 else min(4096, len(entries[path])))
  bad = bytearray(entries[path])
  bad[at] ^= 1 << draw.randrange(8)
  for p, good in entries.items():
    p.write_bytes(bad if p == path else good)
    p.chmod(0o600)
  os.environ["ATOLL_CACHE_DIR"] = str(path.parent)
  jax.clear_caches()
  before = atoll.compiled().programs
  try:
    same = kinds.digest(getattr(kinds, name)) == want
  except Exception as e:  # noqa: BLE001  (whatever it is, the user would see it)
    return f"error: {str(e)[:200]}", name, at
  read = atoll.compiled().programs == before
  return "wrong" if not same else "read" if read else "good", name, at


def worker(folder, begin, end):
  sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test/programs")]
  import kinds
  found = entries_of(kinds, folder)
  for seed in range(begin, end):
    print(json.dumps(["begin", seed]), flush=True)
    print(json.dumps(["end", seed, *flip_once(kinds, found, seed)]), flush=True)


def flips(args, folder):
  counts, at, end = collections.Counter(), args.seed, args.seed + args.flips
  env = {**os.environ, "TPU_LIBRARY_PATH": args.library, "ATOLL_LIBRARY": args.library,
         "ATOLL_TARGET": "v5p:2x2x1", "JAX_PLATFORMS": "tpu,cpu"}
  while at < end:
    command = [sys.executable, __file__, "--worker", str(folder), str(at), str(end)]
    try:
      done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3600)
      out, err, how = done.stdout, done.stderr, f"crash {done.returncode}"
    except subprocess.TimeoutExpired as e:
      out, err, how = (e.stdout or b"").decode(), "", "hang"
    lines = [json.loads(line) for line in out.splitlines()]
    if not lines:
      sys.exit(f"no program ran: {err[-2000:]}")
    for line in lines:
      if line[0] == "end":
        counts[line[2].split(":")[0]] += 1
        if line[2] != "good":
          print(*line[1:], file=sys.stderr)
    at = lines[-1][1] + 1
    if lines[-1][0] == "begin":
      counts[how] += 1
      print("seed", lines[-1][1], how, err[-500:], file=sys.stderr)
  return counts


# ---- Kills
def large_program(folder):
  """A program whose entry of megabytes takes a while to write."""
  import numpy as np
  data = np.cos(np.arange(1 << 20, dtype=np.float32)).tobytes().hex()
  path = folder / "large.mlir"
  path.write_text(f"""module @large {{ func.func @main(%x: tensor<1048576xf32>) -> tensor<1048576xf32> {{
    %c = stablehlo.constant dense<"0x{data}"> : tensor<1048576xf32>
    %0 = stablehlo.add %x, %c : tensor<1048576xf32>
    %1 = stablehlo.sine %0 : tensor<1048576xf32>
    return %1 : tensor<1048576xf32> }} }}""")
  return path


def kill_once(command, env, cache, draw):
  """Kills the command a random while after its temporary file is there. True: in the middle."""
  process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  while process.poll() is None and not list(cache.glob("*.tmp")):
    pass
  time.sleep(draw.random() ** 3 * 0.02)
  process.kill()
  process.wait()
  return bool(list(cache.glob("*.tmp")))


def kills(args, folder):
  counts, draw = collections.Counter(), random.Random(args.seed)
  cache, out = folder / "cache", folder / "out.npz"
  cache.mkdir()
  atoll = str(pathlib.Path(args.library).parent / "atoll")
  env = {**os.environ, "ATOLL_CACHE_DIR": str(cache), "ATOLL_LOG": "warning"}
  command = [atoll, "run", f"--out={out}", str(large_program(folder))]
  subprocess.run(command, env={**env, "ATOLL_CACHE": "off"}, check=True, capture_output=True)
  want = out.read_bytes()
  for _ in range(args.kills):
    for p in cache.glob("*.exe"):
      p.unlink()
    counts["in the middle"] += kill_once(command, env, cache, draw)
    out.unlink(missing_ok=True)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    left = len(list(cache.glob("*.tmp")))
    if done.returncode or done.stderr:
      counts["error"] += 1
      print(done.returncode, done.stderr, file=sys.stderr)
    elif out.read_bytes() != want:
      counts["wrong"] += 1
    else:
      counts["left behind" if left else "good"] += 1
  return counts


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--library", default=str(ROOT / "build/release/libatoll.so"))
  parser.add_argument("--flips", type=int, default=1000)
  parser.add_argument("--kills", type=int, default=100)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.worker:
    return worker(pathlib.Path(args.worker[0]), *map(int, args.worker[1:]))
  args.library = os.path.abspath(args.library)
  bad = 0
  for what in (flips, kills):
    with tempfile.TemporaryDirectory(prefix="atoll-damage-") as folder:
      counts = what(args, pathlib.Path(folder))
    print(f"{what.__name__}: {dict(counts)}", flush=True)
    bad += sum(n for name, n in counts.items() if name not in ("good", "in the middle"))
  return 1 if bad else 0


if __name__ == "__main__":
  sys.exit(main())
