"""What `atoll.estimate` says of a step of jax-tpu-embedding: ids by limits, stated and measured; timeline, advice, JSON."""

import pytest
from test_sparsecore import ok

PROGRAM = """
import json
import atoll
from atoll import sparsecore as sp
def lowered(fs, minibatching=False):
  ids, pre = inputs(fs, minibatching)
  ev, _ = variables(fs)
  kw = dict(feature_specs=fs, global_device_count=N, num_sc_per_device=SC, enable_minibatching=minibatching)
  m = functools.partial(jax.shard_map, mesh=mesh, out_specs=P("x"), check_vma=False)
  forward = m(functools.partial(embedding.tpu_sparse_dense_matmul, **kw), in_specs=(P("x"), P("x")))
  backward = m(functools.partial(embedding.tpu_sparse_dense_matmul_grad, step=None, **kw), in_specs=(P("x"), P("x"), P("x")))
  def step(pre, tables):
    return backward(jax.tree.map(jnp.tanh, forward(pre, tables)), pre, tables)
  return pre, jax.jit(step, donate_argnums=1).lower(pre, ev)
adagrad = lambda: es.AdagradOptimizerSpec(learning_rate=0.1)
TARGET = sys.argv[1] if len(sys.argv) > 1 else "v6e:2x2"
"""


def test_stages_and_distributions(python):
  ok(python, PROGRAM + """
fs = features(adagrad, dims=(12, 24))
pre, low = lowered(fs)
limits = atoll.estimate(low, target=TARGET)
lookups = [e for e in limits.embeddings if e["kind"] == "lookup"]
updates = [e for e in limits.embeddings if e["kind"] == "update"]
assert len(lookups) == len(updates) == 2 and {e["table"] for e in lookups} == {e["table"] for e in updates} == {"t0", "t1"}
assert all(e["slots"] == 1 and e["updated_rows"] > 0 for e in updates)
assert {e["width"]: e["padded_width"] for e in lookups} == {16: 16, 24: 24}  # the package pads tables itself
assert all(e["basis"] == "as many as limits allow" and e["ids"] == SC * N * SC * 256 for e in lookups)
assert abs(sum(e["seconds"] for e in limits.embeddings) / limits.sparsecore_seconds - 1) < 1e-9
assert limits.seconds >= limits.sparsecore_exposed_seconds > 0
for e in limits.embeddings:
  assert abs(sum(s["seconds"] for s in e["stages"]) / e["seconds"] - 1) < 1e-9
  rows = next(s for s in e["stages"] if s["name"] in ("exchange rows", "exchange gradients"))
  assert rows["network_bytes"] == e["unique_rows"] * e["padded_width"] * 4 * (N - 1) / N
assert "custom call" not in "".join(limits.notes)

# As the batch has it: at most 5 ids of a sample, drawn evenly.
counted = sp.LookupStats(fs, N * SC, SC)
counted.record(sp.SparseDenseMatmulInput(*pre.sparse_dense_matmul_input))
assert set(counted.data) == {"t0", "t1"}
for of in counted.data.values():
  assert 1 < of["ids_per_sample"] <= 5 and 0 < of["unique"] <= 1 and 0 < of["shared"] <= 1, of
measured = atoll.estimate(low, target=TARGET, lookups=counted.data)
for e in measured.embeddings:
  of = counted.data[e["table"]]
  assert e["basis"] == "measured" and abs(e["ids"] - of["ids_per_sample"] * e["samples"]) < 1e-6 * e["ids"]
even, skewed = (atoll.estimate(low, target=TARGET, lookups=x) for x in ("3", "3,zipf=1.5"))
assert sum(e["unique_rows"] for e in skewed.embeddings) < sum(e["unique_rows"] for e in even.embeddings)
assert measured.sparsecore_seconds < limits.sparsecore_seconds and skewed.sparsecore_seconds < even.sparsecore_seconds
assert any("LimitsEstimator" in a for a in measured.advice)
assert any("one stack" in a for a in measured.advice) == False  # widths differ
events = json.loads(measured.trace())["traceEvents"]
assert {"SparseCores"} <= {e["args"]["name"] for e in events if e["ph"] == "M"}
assert {"gather rows", "sum gradients"} <= {e["name"] for e in events}
assert "exchange rows" in measured.text()
""", "v6e:2x2")


def test_advice_and_minibatches(python):
  ok(python, PROGRAM + """
fs = features(adagrad, dims=(16, 16, 16))
pre, low = lowered(fs)
e = atoll.estimate(low, target=TARGET)
assert any("one stack" in a for a in e.advice), e.advice
over = atoll.estimate(low, target=TARGET, lookups="2000")
assert any("over its limits" in a for a in over.advice), over.advice
_, low = lowered(fs, minibatching=True)
over = atoll.estimate(low, target=TARGET, lookups="4000")
assert all(x["minibatches"] > 1 for x in over.embeddings)
assert any("mini-batches a run" in a for a in over.advice), over.advice
try:
  atoll.estimate(low, target="v5e:2x2")
  assert False, "v5e has no SparseCores"
except ValueError as problem:
  assert "SparseCores" in str(problem)
for bad in ("few", "3,zipf=-1", "{}"):
  try:
    atoll.estimate(low, target=TARGET, lookups=bad)
    assert False, bad
  except ValueError as problem:
    assert "lookups" in str(problem), problem
""", "v6e:2x2")


@pytest.mark.parametrize("target", ["v4:2x2x1", "v5p:2x2x1", "7x:2x2x1"])
def test_other_chips(python, target):
  ok(python, PROGRAM + """
pre, low = lowered(features(adagrad, dims=(8,)))
e = atoll.estimate(low, target="%s")
assert len(e.embeddings) == 2 and all(x["seconds"] > 0 for x in e.embeddings)
""" % target, target)
