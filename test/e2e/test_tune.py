"""atoll.tune and `atoll tune`: ranked variants of a kernel, and what the chip would refuse."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import atoll
from atoll import _tune

ROOT = Path(__file__).resolve().parents[2]
COMMAND = str(Path(os.environ["ATOLL_LIBRARY"]).parent / "atoll")
EXAMPLE = ROOT / "examples" / "tune_matmul.py"
SHAPE = jax.ShapeDtypeStruct((1024, 512), jnp.float32)


def double(rows=8, columns=512):
  def kernel(x, o):
    o[...] = x[...] + x[...]

  def f(x):
    return pl.pallas_call(kernel, out_shape=SHAPE, grid=(1024 // rows, 512 // columns),
                          in_specs=[pl.BlockSpec((rows, columns), lambda i, j: (i, j))],
                          out_specs=pl.BlockSpec((rows, columns), lambda i, j: (i, j)))(x)
  return f, (SHAPE,)


def command(*args):
  path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
  return subprocess.run([COMMAND, "tune", *map(str, args)], capture_output=True, text=True,
                        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": path})


def test_ranks_by_time_and_compares_with_the_default():
  found = atoll.tune(double, {"rows": [16, 64, 256]}, target="v5e")
  times = [v.seconds for v in found.variants]
  assert len(times) == 3 and times == sorted(times) and not found.refused
  assert found.best.params == {"rows": 256}
  assert found.default.params == {"rows": 8} and found.default not in found.variants
  assert found.speed_up(found.best) == found.default.seconds / found.best.seconds > 4
  assert found.default.bound == "DMA latency and pipeline fill"
  k = found.best.kernels[0]
  assert k["steps"] == 4 and k["hbm_bytes"] == 2 * 4 * 1024 * 512 and k["vmem_bytes"] == 4 * 4 * 256 * 512


def test_times_are_those_of_the_command_for_one_program(tmp_path):
  best = atoll.tune(double, {"rows": [64]}, target="v6e").best
  program = tmp_path / "p.mlirbc"
  with _tune.lowering_for("v6e"):
    program.write_bytes(_tune.lower(*double(64)))
  text = subprocess.run([COMMAND, "dump", "--mosaic", "--timing", "--target=v6e", str(program)],
                        capture_output=True, text=True, check=True).stdout
  assert f"{best.seconds * 1e6:.3f} us, {best.kernels[0]['cycles']:.0f} cycles" in text
  assert f"bound by: {best.bound}\n" in text


def test_what_the_chip_refuses_is_never_proposed():
  def make(rows, limit=None):
    f, args = double(rows)
    if rows == 48:
      raise ValueError("48 rows are too odd")
    def g(x):
      return pl.pallas_call(lambda x, o, a: o.__setitem__(..., x[...] + a[...]), out_shape=SHAPE,
                            scratch_shapes=[pltpu.VMEM((rows * 16, 512), jnp.float32)])(x)
    return (g if rows == 512 else f), args
  space = {"rows": [48, 64, 512, 4]}
  found = atoll.tune(make, space, target="v5e")
  assert [v.params["rows"] for v in found.variants] == [64]
  why = {v.params["rows"]: (v.stage, v.reason) for v in found.refused}
  assert why[48] == ("make", "ValueError: 48 rows are too odd")
  assert why[512][0] == "lowering" and why[4][0] == "lowering"
  assert "48 rows are too odd" in found.text()


def test_vmem_is_the_targets():
  def make(rows):
    x = jax.ShapeDtypeStruct((8192, 1024), jnp.float32)
    def kernel(x, o):
      o[...] = x[...] * 2
    return lambda x: pl.pallas_call(
        kernel, out_shape=x, grid=(8192 // rows,), in_specs=[pl.BlockSpec((rows, 1024), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((rows, 1024), lambda i: (i, 0)))(x), (x,)
  space = {"rows": [256, 2048]}  # 32 MiB of windows
  v5e, v6e = (atoll.tune(make, space, target=t) for t in ("v5e", "v6e"))
  assert [v.params["rows"] for v in v5e.refused] == [2048] and not v6e.refused
  assert v5e.refused[0].stage == "compiler" and "exceeded scoped vmem limit by 16.00M" in v5e.refused[0].reason
  assert "exceeded scoped vmem limit by 16.00M" in v5e.text()


def test_kernels_see_the_target():
  def make(rows):
    return double(rows * (2 if pltpu.get_tpu_info().mxu_column_size == 256 else 1))
  steps = {t: atoll.tune(make, {"rows": [64]}, target=t).best.kernels[0]["steps"] for t in ("v5e", "v6e")}
  assert steps == {"v5e": 16, "v6e": 8}
  for target, (kind, _) in _tune.DEVICES.items():
    with _tune.lowering_for(target):
      assert pltpu.get_tpu_info().chip_version.name and kind


def test_where_and_defaults():
  t = atoll.Tunable(double, {"rows": [64, 128], "columns": [128, 512]}, default={"rows": 64},
                    where=lambda rows, columns: rows * columns <= 2**15)
  found = atoll.tune(t)
  assert {tuple(v.params.values()) for v in found.variants} == {(64, 128), (64, 512), (128, 128)}
  assert found.default.params == {"rows": 64, "columns": 512} and found.default in found.variants
  assert atoll.tune(lambda rows: double(rows), {"rows": [64]}).default is None


def test_a_function_with_two_kernels_takes_the_sum():
  one = atoll.tune(double, {"rows": [64]}).best
  def make(rows):
    f, args = double(rows)
    return lambda x: f(f(x)), args
  two = atoll.tune(make, {"rows": [64]}).best
  assert len(two.kernels) == 2 and two.seconds == pytest.approx(2 * one.seconds)


def test_a_grid_that_the_run_bounds_is_timed_as_shapes_allow():
  def make(rows):
    def kernel(at, x, o):
      o[...] = x[...] * 2
    def f(n, at, x):
      grid = pltpu.PrefetchScalarGridSpec(
          num_scalar_prefetch=1, grid=(n,), in_specs=[pl.BlockSpec((rows, 512), lambda i, at: (at[i], 0))],
          out_specs=pl.BlockSpec((rows, 512), lambda i, at: (at[i], 0)))
      return pl.pallas_call(kernel, grid_spec=grid, out_shape=SHAPE)(at, x)
    return f, (jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((1024 // rows,), jnp.int32), SHAPE)
  found = atoll.tune(make, {"rows": [64, 128]})
  assert {v.params["rows"]: v.kernels[0]["steps"] for v in found.variants} == {64: 16, 128: 8}


def test_progress_is_told():
  seen = []
  atoll.tune(double, {"rows": [8, 16] * 20}, progress=lambda *a: seen.append(a))
  assert [s[:2] for s in seen] == [(i + 1, 40) for i in range(40)]


def test_mistakes_are_told():
  with pytest.raises(ValueError, match="no target 'v99'"):
    atoll.tune(double, {"rows": [8]}, target="v99")
  with pytest.raises(ValueError, match="no parameter lines; it has rows, columns"):
    atoll.tune(double, {"lines": [8]})
  with pytest.raises(ValueError, match="a value at least"):
    atoll.tune(double, {})
  none = atoll.tune(lambda n: (lambda x: x + n, (SHAPE,)), {"n": [1]})
  assert none.refused[0].reason == "ValueError: the function calls no Pallas kernel"
  with pytest.raises(ValueError, match="takes no variant: ValueError: the function calls no"):
    none.best


def test_the_command_on_the_example():
  done = command(EXAMPLE, "--target=v5e", "--param=bk=256,512", "--top=3", "--refused=2")
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert lines[0].startswith("v5e: 44 variants ranked, 6 refused, in ")
  assert lines[2].split()[:5] == ["bm", "bk", "bn", "time", "us"]
  assert [line.split()[0] for line in lines[3:7]] == ["1", "2", "3", "default"]
  assert lines[6].split()[1:4] == ["128", "128", "128"] and "1.00x" in lines[6]
  assert "exceeded scoped vmem limit" in done.stdout and "... and 4 more" in done.stdout


def test_the_command_on_a_factory_as_json():
  done = command(f"{EXAMPLE}:make", "--target", "v6e", "--param", "bm=512", "--param=bk=128,512", "--param=bn=512", "--json")
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  assert found["target"] == "v6e" and found["default"]["params"] == {"bm": 128, "bk": 128, "bn": 128}
  assert len(found["variants"]) == 2 and found["refused"] == []
  assert found["variants"][0]["speed_up"] > 2 and found["variants"][0]["kernels"][0]["mxu_cycles"] > 0


@pytest.mark.parametrize("args, why", [
    ((EXAMPLE, "--target=v99"), "v99"), ((f"{EXAMPLE}:nothing",), "has no nothing"),
    ((f"{EXAMPLE}:make",), "which values"), ((ROOT / "nowhere.py",), "no Python file"),
    ((EXAMPLE, "--param=bm"), "NAME=VALUE"), ((EXAMPLE, "--param=zz=1"), "no parameter zz"),
    ((EXAMPLE, "--wrong"), "--wrong")])
def test_the_command_says_what_is_wrong(args, why):
  done = command(*args)
  assert done.returncode == 2 and why in done.stderr and "Traceback" not in done.stderr, done.stderr
