"""Compiled programs on disk: what is found again, what is not, and what damage does."""
import os
import pathlib
import shutil
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["ATOLL_LIBRARY"]
COMMAND = str(pathlib.Path(LIBRARY).parent / "atoll")
KINDS = (ROOT / "test/programs/kinds.py").read_text()
COUNTS = re.compile(r"so far (\d+) compiled, (\d+) from the cache, (\d+) LLVM modules")


def counts(stderr):
  """Programs compiled, found in the cache, and LLVM modules made."""
  found = COUNTS.findall(stderr)
  return tuple(map(int, found[-1])) if found else (0, 0, 0)


def run(program, *args, cache, seed=0, **env):
  """A Python program under stock JAX, in its own folder."""
  env = {"ATOLL_TARGET": "v5p:2x2x1", "ATOLL_LOG": "info", "ATOLL_CACHE_DIR": str(cache),
         "PYTHONHASHSEED": str(seed), **env}
  p = subprocess.run([sys.executable, program, *args], env={**os.environ, **env}, cwd=program.parent,
                     capture_output=True, text=True, timeout=300)
  assert p.returncode == 0, p.stdout + p.stderr
  return p


def program(folder, text, blank_lines=0):
  folder.mkdir(parents=True)
  path = folder / "program.py"
  path.write_text("\n" * blank_lines + text)
  return path


def test_a_second_process_makes_no_module(tmp_path):
  first = run(program(tmp_path / "a", KINDS), cache=tmp_path / "cache", seed=1)
  made = counts(first.stderr)
  assert made[0] >= 17 and made[1] == 0 and made[2] >= 14
  # Another hash seed, folder, lines, and order: what JAX traces first it remembers.
  moved = program(tmp_path / "b" / "c", KINDS, blank_lines=3)
  lines = first.stdout.splitlines()
  second = run(moved, *(line.split()[0] for line in reversed(lines)), cache=tmp_path / "cache", seed=2)
  assert second.stdout.splitlines() == lines[::-1]
  assert counts(second.stderr) == (0, made[0] + made[1], 0)
  # Other programs of the same kinds are others.
  other = run(moved, "--salt=1", "plain", "kernel", "sharded", cache=tmp_path / "cache")
  assert counts(other.stderr)[0] >= 3


OUT_OF_BOUNDS = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
def body(i_ref, x_ref, o_ref):
  at = i_ref[0]
  o_ref[...] = x_ref[pl.ds(at, 8), :]  # here
from jax.experimental.pallas import tpu as pltpu
f = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
                   in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pltpu.VMEM)])
g = jax.jit(lambda i, x: f(i, x))
print(g(jnp.zeros(1, jnp.int32), jnp.ones((16, 128)))[0, 0])
try:
  print(g(jnp.full(1, 80, jnp.int32), jnp.ones((16, 128)))[0, 0])
except Exception as e:
  print(e)
"""


def test_messages_name_the_program_at_hand(tmp_path):
  for i, blank_lines in enumerate((0, 40)):
    path = program(tmp_path / f"folder{i}", OUT_OF_BOUNDS, blank_lines)
    p = run(path, cache=tmp_path / "cache", ATOLL_CHECK="bounds")
    line = next(n for n, t in enumerate(path.read_text().splitlines(), 1) if "# here" in t)
    assert f"{path}:{line}" in p.stdout, p.stdout
    assert f"folder{1 - i}" not in p.stdout
    assert (counts(p.stderr)[0] == 0) == (i == 1)


WARNED = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
def body(x, o, scratch):
  scratch[0:8, 0:128] = x[...]
  o[...] = scratch[0:8, 0:128]
jax.jit(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
                       scratch_shapes=[pltpu.VMEM((51200, 1024), jnp.float32)]))(jnp.ones((8, 128)))
"""


def test_warnings_of_a_compile_are_said_again(tmp_path):
  path = program(tmp_path / "a", WARNED)
  for _ in range(2):
    p = run(path, cache=tmp_path / "cache", ATOLL_LENIENT="1", ATOLL_TARGET="v5e")
    assert p.stderr.count("would refuse this kernel") == 1, p.stderr


SMALL = """
module @small {
  func.func public @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = stablehlo.sine %0 : tensor<64x64xf32>
    return %1 : tensor<64x64xf32>
  }
}
"""


def atoll(*args, command=COMMAND, **env):
  return subprocess.run([command, *map(str, args)], capture_output=True, text=True,
                        env={**os.environ, "ATOLL_LOG": "info", **env})


@pytest.fixture
def small(tmp_path):
  path = tmp_path / "small.mlir"
  path.write_text(SMALL)
  return path


def was_found(p):
  assert p.returncode == 0, p.stderr
  return counts(p.stderr)[1] == 1


def another_build(path, folder):
  """A copy of a library with another build id, and of the command beside it."""
  folder.mkdir()
  shutil.copy(COMMAND, folder)
  data = bytearray(pathlib.Path(path).read_bytes())
  note = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"
  data[data.index(note) + len(note)] ^= 1
  copy = folder / pathlib.Path(path).name
  copy.write_bytes(data)
  copy.chmod(0o755)
  return str(copy)


def test_what_changes_the_code_is_another_program(small, tmp_path):
  cache = {"ATOLL_CACHE_DIR": str(tmp_path / "cache"), "ATOLL_THREADS": "2", "ATOLL_CPU": "x86-64-v3"}
  assert not was_found(atoll("run", small, **cache))
  assert was_found(atoll("run", small, **cache))
  same = [{"ATOLL_CPU": "X86-64-v3"}, {"ATOLL_NUMERICS": "Mixed"}, {"ATOLL_KERNEL_TURNS": "7"}, {"XLA_FLAGS": "--xla_dump_to=x"},
          {"ATOLL_CHECK": "interpret"}, {"ATOLL_GUARD": "1"}]
  other = [{"ATOLL_NUMERICS": "tpu"}, {"ATOLL_CHECK": "nan"}, {"ATOLL_TARGET": "v5p"}, {"ATOLL_THREADS": "1"},
           {"ATOLL_LATENCY_HIDING": "off"}, {"ATOLL_LENIENT": "1"},
           {"LIBTPU_INIT_ARGS": "--xla_sparse_core_enable_id_bound_check=true"}]
  if "no" not in next(l for l in atoll("doctor").stdout.splitlines() if " avx512 " in l).split():
    other.append({"ATOLL_CPU": "avx512"})
  for env in same:
    assert was_found(atoll("run", small, **{**cache, **env})), env
  for env in other:
    assert not was_found(atoll("run", small, **{**cache, **env})), env
    assert was_found(atoll("run", small, **{**cache, **env})), env
  # What a file says counts, not its name.
  costs = tmp_path / "costs.json"
  for text in ('{"traceEvents": []}', '{"traceEvents": [{}]}'):
    costs.write_text(text)
    assert not was_found(atoll("run", small, **cache, ATOLL_COSTS=str(costs)))
  build = str(pathlib.Path(another_build(LIBRARY, tmp_path / "build")).with_name("atoll"))
  assert not was_found(atoll("run", small, command=build, **cache))
  assert was_found(atoll("run", small, command=build, **cache))


def test_the_command(small, tmp_path):
  cache = {"ATOLL_CACHE_DIR": str(tmp_path / "cache"), "ATOLL_CACHE_LIMIT": "4M"}
  assert atoll("cache", "path", **cache).stdout.strip() == str(tmp_path / "cache")
  atoll("run", small, **cache)
  assert re.search(r": 1 programs, [\d.]+ KiB of 4 MiB$", atoll("cache", **cache).stdout.strip())
  assert '"entries":1' in atoll("cache", "stats", "--json", **cache).stdout
  assert atoll("cache", "clear", **cache).stdout == "1 programs removed\n"
  assert '"entries":0' in atoll("cache", "--json", **cache).stdout
  assert atoll("cache", "open", **cache).returncode == 2


JAX_CACHE = """
import collections, os
import jax, jax.numpy as jnp, numpy as np
from jax._src import monitoring
seen = collections.Counter()
monitoring.register_event_listener(lambda event, **more: seen.update([event.split("/")[-1]]))
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
x = np.ones((64, 64), np.float32)
for f in (lambda x: jnp.tanh(x @ x), lambda x: jnp.sort(x), lambda x: x * 3):
  jax.jit(f)(x).block_until_ready()
print(seen["cache_hits"], seen["cache_misses"])
"""


def test_jax_keeps_its_own_cache(tmp_path):
  path = program(tmp_path / "a", JAX_CACHE)
  def hits(seed, **env):
    return run(path, cache=tmp_path, seed=seed, ATOLL_CACHE="off", JAX_DIR=str(tmp_path / "jax"), **env).stdout
  assert hits(1) == "0 3\n"
  assert hits(2) == "3 0\n"
  assert hits(3, ATOLL_NUMERICS="tpu") == "0 3\n"
  assert hits(4, ATOLL_LIBRARY="", TPU_LIBRARY_PATH=another_build(LIBRARY, tmp_path / "build")) == "0 3\n"


SERIALISE = """
import pickle, sys
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable as se
blob, *trees = se.serialize(jax.jit(lambda x: jnp.sin(x) * 2).lower(jnp.ones((4, 64))).compile())
pickle.dump((blob, trees), open(sys.argv[1], "wb"))
"""
LOAD = """
import pickle, random, re, sys
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable as se
blob, trees = pickle.load(open(sys.argv[1], "rb"))
def load(blob):
  try:
    return str(float(se.deserialize_and_load(blob, *trees)(jnp.zeros((4, 64)))[0, 0]))
  except Exception as e:
    return str(e)
print(load(blob))
begin = blob.index(b"ATSERIAL")
draw, seen = random.Random(1), set()
for _ in range(300 if len(sys.argv) > 2 else 0):
  bad = bytearray(blob)
  bad[draw.randrange(begin, len(blob) - 4096)] ^= 1 << draw.randrange(8)
  seen.add(load(bytes(bad)).split(":")[0])
print(*sorted(seen))
"""


def test_serialised_executables(tmp_path):
  write, read = program(tmp_path / "a", SERIALISE), program(tmp_path / "b", LOAD)
  blob = str(tmp_path / "blob")
  def load(*args, **env):
    return run(read, blob, *args, cache=tmp_path / "cache", **{"ATOLL_TARGET": "v5e", **env}).stdout.splitlines()
  run(write, blob, cache=tmp_path / "cache", ATOLL_TARGET="v5e")
  value, codes = load("flips")
  assert value == "0.0" and set(codes.split()) <= {"FAILED_PRECONDITION", "INVALID_ARGUMENT"}
  assert "INVALID_ARGUMENT" in codes
  other_chip = load(ATOLL_TARGET="v6e")[0]
  assert other_chip.startswith("FAILED_PRECONDITION") and "is for TPU v5 lite" in other_chip, other_chip
  build = another_build(LIBRARY, tmp_path / "build")
  assert "another build of Atoll" in load(TPU_LIBRARY_PATH=build, ATOLL_LIBRARY="")[0]


def test_damage_is_not_seen():
  p = subprocess.run([sys.executable, ROOT / "tools/cache_damage.py", f"--library={LIBRARY}", "--flips=40", "--kills=5"],
                     capture_output=True, text=True, timeout=600)
  assert p.returncode == 0, p.stdout + p.stderr
  assert "flips: {'good': 40}" in p.stdout


def test_a_bad_folder_is_said_once(small, tmp_path):
  open_to_all = tmp_path / "open"
  open_to_all.mkdir()
  open_to_all.chmod(0o777)
  p = atoll("run", small, ATOLL_CACHE_DIR=str(open_to_all), ATOLL_LOG="warning")
  assert p.returncode == 0 and p.stderr.count("may be written by anybody") == 1
