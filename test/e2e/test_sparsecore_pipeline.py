"""Pipelined training: the DLRM of examples/ against plain JAX, beside the dense part, switched off, and failing."""

import json
import pathlib

import pytest

pytest.importorskip("jax_tpu_embedding", reason="jax_tpu_embedding is not installed: its calls are not tested")

TOP = pathlib.Path(__file__).resolve().parents[2]
HEAD = f"""
import sys
sys.path.insert(0, {str(TOP / "examples")!r})
import json, jax, numpy as np
import dlrm
from atoll import sparsecore as sp
def small(**more):
  return dlrm.Dlrm(dlrm.Options(**dict(dict(steps=100, batch=128, tables=6, rows=500, width=16, hidden=32), **more)))
"""


def run(python, code, target="v6e", **env):
  p = python(HEAD + code, env={"ATOLL_TARGET": target, "JAX_PLATFORMS": "tpu,cpu", "ATOLL_THREADS": "2", **env},
             timeout=600)
  assert p.returncode == 0, p.stdout + p.stderr
  return p.stdout


@pytest.mark.parametrize("target,sequential", [("v6e", True), ("v6e", False), ("v5p:2x2x1", False)])
def test_losses_equal_plain_jax(python, target, sequential):
  run(python, f"""
model = small(sequential={sequential})
losses, carry, _ = model.train()
assert len(losses) == 100, len(losses)
loss, table = dlrm.compare(model, losses, carry)
assert loss < 1e-5 and table < 1e-4, (loss, table)
assert losses[-1] < losses[0]
# The delay tells: without it (or with it) plain JAX comes to something else.
model.o.sequential = not model.o.sequential
other, _ = model.plain()
assert max(abs(a - b) / b for a, b in zip(losses, other)) > 1e-5
""", target)


TRAIN = """
model = small(steps=12)
losses, carry, _ = model.train()
tables = [np.asarray(a) for a in jax.tree.leaves(carry)]
print(json.dumps([losses, [t.tobytes().hex() for t in tables]]))
"""


@pytest.mark.parametrize("target", ["v6e", "v6e:2x2"])
def test_bits_do_not_depend_on_the_overlap(python, tmp_path, target):
  """Switched off, the same program runs one part after the other."""
  results = {}
  for name, flags in (("on", ""), ("off", "--tf_xla_disable_full_embedding_pipelining=true")):
    (tmp_path / name).mkdir()
    out = run(python, TRAIN, target, LIBTPU_INIT_ARGS=flags, ATOLL_DUMP=str(tmp_path / name))
    results[name] = json.loads(out.splitlines()[-1])
    steps = "".join(p.read_text() for p in (tmp_path / name).glob("jit_train_step*.steps.txt"))
    beside = [x for x in steps.splitlines() if " start " in x and "SparseDenseMatmul" in x]
    assert bool(beside) == (name == "on"), steps[:2000]
  assert results["on"] == results["off"]


def test_a_profile_shows_the_overlap(python, tmp_path):
  run(python, f"""
model = small(steps=12, batch=512, tables=26, rows=2000)
model.train()
with jax.profiler.trace({str(tmp_path)!r}):
  model.train()
events = sp.events_of({str(tmp_path)!r})
assert sp.profile_of_events(events).overlap_seconds > 0
# Of the steps that update, look up and compute, most have begun to compute before the lookup ends.
both = beside = 0
for step in (e for e in events if e.core == "module"):
  mine = [e for e in events if e.core != "module" and step.start <= e.start and e.end <= step.end + 1e-6]
  sparse = [e for e in mine if e.core == "SparseCore"]
  if len({{e.name for e in sparse}}) == 2:
    both += 1
    beside += min(e.start for e in mine if e.core == "TensorCore") < max(e.end for e in sparse)
assert both == 10 and beside > 5, (both, beside)
sp.write_timeline(events, {str(tmp_path / "lanes.json")!r})
""")
  names = {e["args"]["name"] for e in json.loads((tmp_path / "lanes.json").read_text())["traceEvents"]
           if e["name"] == "thread_name"}
  assert {"SparseCore 0", "SparseCore 1", "TensorCore"} <= names


def test_a_failure_beside_the_dense_part_is_told(python):
  """The step fails with table, id and sample; the next launch runs."""
  run(python, """
model = small()
(step, state), carry = dlrm.pipelined(model.train_step), model.carry()
for i in range(3):
  state, (carry, _) = step(state, carry, *model.batch(i))
wrapped, dense, labels = model.batch(3)
ids = np.asarray(jax.tree.leaves(wrapped.sparse_dense_matmul_input.lhs_embedding_ids)[0]).copy()
sample = int(np.asarray(wrapped.sparse_dense_matmul_input.lhs_sample_ids["all"])[0])
ids[0] = 10**6
bad = jax.tree.map(lambda a: a, wrapped)
bad.sparse_dense_matmul_input.lhs_embedding_ids["all"] = jax.device_put(ids, model.shard)
kept = jax.tree.map(lambda a: a.copy(), (state, carry))
try:
  jax.block_until_ready(step(state, carry, bad, dense, labels))
  raise SystemExit("it ran")
except jax.errors.JaxRuntimeError as e:
  assert "id 1000000 of table carry[1]['all'].table is out of range" in str(e), e
  # Features stand one behind the other in the samples of a SparseCore.
  share = model.o.batch // model.scs
  says = sp.explain(e, model.features, global_device_count=1, num_sc_per_device=model.scs)
  feature = sample // share
  assert f"feature 'f{feature:02}', table 'table{feature:02}', sample {sample % share} of the batch, id " in says, says
state, (carry, loss) = step(*kept, wrapped, dense, labels)
assert np.isfinite(float(loss))
""")
