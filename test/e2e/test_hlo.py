"""A sample of tools/hlo_corpus.py: programs as jaxlib serialises them, before and after XLA:CPU's optimisation."""

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import LIBRARY

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("pypjrt")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  return tmp_path_factory.mktemp("programs")


@pytest.mark.parametrize("options", [[], ["--again"]], ids=["as they come", "as they are shown"])
def test_programs_of_jaxlib(corpus, options):
  """The second run is of what Atoll shows as the optimized program, read again."""
  p = subprocess.run([sys.executable, ROOT / "tools/hlo_corpus.py", "--programs=30", "--seed=7", f"--library={LIBRARY}",
                      f"--work={corpus}", *options], capture_output=True, text=True, timeout=280)
  assert p.returncode == 0, p.stdout[-4000:] + p.stderr[-2000:]


def test_whole_programs_of_many_fields(tmp_path):
  p = subprocess.run([sys.executable, ROOT / "tools/hlo_corpus.py", "--fields", f"--library={LIBRARY}", f"--work={tmp_path}"],
                     capture_output=True, text=True, timeout=280)
  assert p.returncode == 0 and "108 programs: 108 run, 108 agree" in p.stdout, p.stdout[-4000:] + p.stderr[-2000:]


def test_as_text(python):
  done = python("""
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
f = jax.jit(lambda x: jnp.tanh(x) + 1, donate_argnums=0)
print(f.lower(jnp.ones((128, 256))).compile().as_text())
mesh = Mesh(np.array(jax.devices()), "x")
a = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("x")))
c = jax.jit(lambda a: a.sum(0), out_shardings=NamedSharding(mesh, P("x"))).lower(a).compile()
print(c.as_text())
m = c.runtime_executable().hlo_modules()[0]
print("shardings", len(m.spmd_parameters_shardings), list(m.spmd_output_sharding.tile_assignment_dimensions))
m = jax.jit(lambda a: (), keep_unused=True).lower(a).compile().runtime_executable().hlo_modules()[0]
print("of nothing", len(m.spmd_output_sharding.tuple_shardings))
""", env={"ATOLL_TARGET": "v6e:2x2"})
  assert done.returncode == 0, done.stderr
  for part in ("is_scheduled=true", "input_output_alias={ {}: (0, {}, may-alias) }", "f32[128,256]{1,0:T(8,128)} fusion(", "kind=kLoop",
               "num_partitions=4", "f32[16,64]{1,0:T(8,128)} parameter(0)", "shardings 1 [4]",
               "of nothing 1"):
    assert part in done.stdout, part


def test_as_text_of_sparsecores(python):
  """What compute_on("tpu_sparsecore") asks for; a v5e has no SparseCores."""
  program = """
import jax, jax.numpy as jnp
from jax.experimental.compute_on import compute_on
take = jax.lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
add = jax.lax.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
on = compute_on("tpu_sparsecore")
rows = on(jax.jit(lambda t, i: jax.lax.gather(t, i, take, (1, 128))))
sums = on(jax.jit(lambda t, i, u: jax.lax.scatter_add(t, i, u, add)))
i = jnp.zeros((64, 1), jnp.int32)
c = jax.jit(lambda t, i: rows(t * 2, i) + 1).lower(jnp.ones((1000, 128)), i).compile()
print(c.as_text(), c(jnp.ones((1000, 128)), i).sum())
print(jax.jit(sums).lower(jnp.ones(1000), i, jnp.ones(64)).compile().as_text())
"""
  done = python(program, env={"ATOLL_TARGET": "v6e:1x1"})
  assert done.returncode == 0 and "24576.0" in done.stdout, done.stdout + done.stderr
  for part in (' gather-start(%', ' gather-done(%', ' scatter-start(%', ' scatter-done(%', '}, execution_thread="sparsecore"'):
    assert part in done.stdout, part
  assert done.stdout.count('async_execution_thread="sparsecore"') == 2
  done = python(program, env={"ATOLL_TARGET": "v5e:1x1"})
  assert done.returncode == 0 and "24576.0" in done.stdout and "sparsecore" not in done.stdout, done.stdout + done.stderr
