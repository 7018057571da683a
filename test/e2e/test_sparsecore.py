"""jax-tpu-embedding's calls from JAX: against NumPy, over chips, in place, and what is refused."""

import pytest

pytest.importorskip("jax_tpu_embedding", reason="jax_tpu_embedding is not installed: its calls are not tested")

HEAD = """
import functools, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_tpu_embedding.sparsecore.lib.nn import embedding, embedding_spec as es
from jax_tpu_embedding.sparsecore.utils import utils
devices = jax.devices()
N, SC = len(devices), 4 if "v4" in devices[0].device_kind else utils.num_sparsecores_per_device(devices[0])
mesh = Mesh(np.array(devices), ("x",))
shard = NamedSharding(mesh, P("x"))
rng = np.random.default_rng(0)
BATCH = 16 * N * SC

def features(optimizer, dims=(8, 8, 24), vocab=96, **kw):
  out = {}
  for i, d in enumerate(dims):
    t = es.TableSpec(vocabulary_size=vocab + 32 * i, embedding_dim=d, initializer=jax.nn.initializers.normal(), combiner="sum",
                     optimizer=optimizer(), name=f"t{i}", max_ids_per_partition=256, max_unique_ids_per_partition=256, **kw)
    out[f"f{i}"] = es.FeatureSpec(table_spec=t, input_shape=(BATCH, 5), output_shape=(BATCH, d), name=f"f{i}")
  embedding.prepare_feature_specs_for_training(out, global_device_count=N, num_sc_per_device=SC)
  return out

def inputs(fs, minibatching=False):
  ids = {k: np.array([rng.integers(0, f.table_spec.vocabulary_size, size=rng.integers(1, 6)).astype(np.int32)
                      for _ in range(BATCH)], dtype=object) for k, f in fs.items()}
  pre, _ = embedding.preprocess_sparse_dense_matmul_input(ids, None, fs, N, N, num_sc_per_device=SC,
                                                          enable_minibatching=minibatching, batch_number=1)
  return ids, jax.tree.map(lambda a: jax.device_put(a, shard), pre)

# Tables and slots with random values; whole[name]: the tables as NumPy sees them.
def variables(fs):
  ev, whole = {}, {}
  for name, s in embedding.get_stacked_table_specs(fs).items():
    slots = s.optimizer.slot_variables_initializers()
    arrays = [np.abs(rng.normal(size=(s.stack_vocab_size, s.stack_embedding_dim))).astype(np.float32) + 0.5
              for _ in range(1 + len(slots))]
    put = [jax.device_put(np.asarray(utils.shard_emb_table(a, num_devices=N, num_sc_per_device=SC)).reshape(a.shape), shard)
           for a in arrays]
    rest = tuple(put[1:])
    ev[name] = embedding.EmbeddingVariables(put[0], type(slots)(*rest) if hasattr(slots, "_fields") else rest)
    whole[name] = arrays
  return ev, whole

def unsharded(a):
  return np.asarray(utils.unshard_emb_table(np.asarray(a).reshape(N, -1, a.shape[-1]), num_sc_per_device=SC))

def steps(fs, minibatching=False, step=None):
  kw = dict(feature_specs=fs, global_device_count=N, num_sc_per_device=SC, enable_minibatching=minibatching)
  m = functools.partial(jax.shard_map, mesh=mesh, out_specs=P("x"), check_vma=False)
  forward = jax.jit(m(functools.partial(embedding.tpu_sparse_dense_matmul, **kw), in_specs=(P("x"), P("x"))))
  def back(g, pre, ev):
    return embedding.tpu_sparse_dense_matmul_grad(g, pre, ev, step=step, **kw)
  backward = jax.jit(m(back, in_specs=(P("x"), P("x"), P("x"))), donate_argnums=2)
  return forward, backward
"""


def ok(python, code, target, **env):
  p = python(HEAD + code, env={"ATOLL_TARGET": target, "JAX_PLATFORMS": "tpu,cpu", **env}, timeout=300)
  assert p.returncode == 0, p.stdout + p.stderr
  return p.stdout


TRAIN = """
def check(optimizer, rule, minibatching, **kw):
  fs = features(optimizer, **kw)
  ids, pre = inputs(fs, minibatching)
  ev, whole = variables(fs)
  forward, backward = steps(fs, minibatching, jnp.int32(3))
  acts = forward(pre, ev)
  grads = {k: jax.device_put(rng.normal(size=(BATCH, f.table_spec.embedding_dim)).astype(np.float32), shard)
           for k, f in fs.items()}
  for k, f in fs.items():
    t = whole[f.table_spec.stacked_table_spec.stack_name][0]
    want = np.array([t[i].astype(np.float64).sum(0) for i in ids[k]])[:, :f.table_spec.embedding_dim]
    np.testing.assert_allclose(np.asarray(acts[k]), want, rtol=2e-6)
  old = jax.tree.leaves(ev)
  new = backward(grads, pre, ev)
  assert all(a.is_deleted() for a in old)
  for k, f in fs.items():
    tables = [t.astype(np.float64) for t in whole[f.table_spec.stacked_table_spec.stack_name]]
    d = f.table_spec.embedding_dim
    g = np.zeros_like(tables[0])
    seen = np.zeros(len(g), bool)
    for b, row in enumerate(ids[k]):
      for i in row:
        g[i, :d] += np.asarray(grads[k])[b]
        seen[i] = True
    want = [np.where(seen[:, None], n, o) for n, o in zip(rule(g, *tables), tables)]
    got = new[f.table_spec.stacked_table_spec.stack_name]
    for w, a in zip(want, [got.table, *jax.tree.leaves(got.slot)]):
      np.testing.assert_allclose(unsharded(a)[:, :d], w[:, :d], rtol=3e-5, atol=3e-6)
sgd = lambda g, t: (t - 0.1 * g,)
adagrad = lambda g, t, a: (t - 0.1 * g / np.sqrt(a + g * g), a + g * g)
for minibatching in (False, True):
  check(lambda: es.SGDOptimizerSpec(learning_rate=0.1), sgd, minibatching)
  check(lambda: es.AdagradOptimizerSpec(learning_rate=0.1), adagrad, minibatching)
"""


@pytest.mark.parametrize("target", ["v6e", "v6e:2x2", "v5p:2x2x1"])
def test_train_steps_against_numpy(python, target):
  ok(python, TRAIN, target)


def test_every_optimizer_on_v4(python):
  ok(python, TRAIN + """
# SGD and Adagrad equal NumPy; the others change what was looked up, and nothing else.
for spec in (es.AdamOptimizerSpec, es.LaPropOptimizerSpec, es.FTRLOptimizerSpec, es.AdagradMomentumOptimizerSpec, es.F2AOptimizerSpec):
  for minibatching in (False, True):
    fs = features(lambda: spec(learning_rate=0.1), dims=(8, 24))
    ids, pre = inputs(fs, minibatching)
    ev, whole = variables(fs)
    forward, backward = steps(fs, minibatching, jnp.int32(3))
    acts = forward(pre, ev)
    new = backward({k: jnp.ones_like(v) for k, v in acts.items()}, pre, ev)
    for k, f in fs.items():
      name = f.table_spec.stacked_table_spec.stack_name
      seen = np.zeros(len(whole[name][0]), bool)
      for row in ids[k]: seen[row] = True
      table, d = unsharded(new[name].table), f.table_spec.embedding_dim
      assert np.isfinite(table).all()
      changed = (table != whole[name][0])[:, :d]
      assert not changed[~seen].any() and changed[seen].all(), spec
""", "v4:2x2x1")


def test_an_optimizer_that_looks_at_whole_rows(python):
  ok(python, """
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_optimizer_grad as custom
scs, rows, width, batch = 2, 16, 24, 4
pointers = np.zeros((scs, 8), np.int32)
ids, samples, gains = np.full(32, 2**31 - 1, np.int32), np.full(32, 2**31 - 1, np.int32), np.full(32, np.nan, np.float32)
# SparseCore 0 wants rows 0 (twice) and 6, SparseCore 1 rows 0 and 5.
for at, (i, s, w) in {0: (0, 0, 1), 1: (0, 1, 2), 2: (3, 0, 1), 16: (0, 1, 1), 24: (2, 0, .5)}.items():
  ids[at], samples[at], gains[at] = i, s, w
pointers[0], pointers[1] = 3, 9
pointers[0, 1:], pointers[1, 0], pointers[1, 1:] = 8, 1, 9
table = rng.normal(size=(rows, width)).astype(np.float32)
state = np.abs(rng.normal(size=(rows, width))).astype(np.float32)
grad = rng.normal(size=(batch, width)).astype(np.float32)
# The step is clipped by the row's norm; the state keeps the largest entry of the row.
def rule(g, t, a, rate):
  norm = jnp.sqrt(jnp.sum(g * g, axis=1, keepdims=True))
  return t - rate * g / jnp.maximum(norm, 1.0), jnp.maximum(a, jnp.max(jnp.abs(g), axis=1, keepdims=True))
row = jax.ShapeDtypeStruct((1, width), jnp.float32)
# Version 0.1.0 of the package takes a jaxpr, 0.2.0 the text of a program.
import inspect
if "jaxpr" in inspect.signature(custom._tpu_sparse_dense_matmul_optimizer_grad_abstract_eval).parameters:
  body = {"jaxpr": jax.make_jaxpr(rule)(row, row, row, row)}
else:
  body = {"stablehlo": jax.jit(rule).lower(row, row, row, row).as_text()}
f = jax.jit(lambda p, i, s, w, g, t, a: custom.tpu_sparse_dense_matmul_optimizer_grad_primitive.bind(
    p, i, s, w, jnp.int32(1), g, jnp.float32(.5), t, a, num_hyperparameters=1, **body,
    max_ids_per_partition=8, max_unique_ids_per_partition=8), donate_argnums=(5, 6))
new_table, new_state = (np.asarray(v) for v in f(pointers.reshape(-1), ids, samples, gains, grad, jnp.asarray(table), jnp.asarray(state)))
# Rows of SparseCore 0 come first: row r is at r // 2 there.
sums = {0: grad[0] + 2 * grad[1] + grad[3], 3: grad[0], rows // 2 + 2: .5 * grad[2]}
want_table, want_state = table.copy(), state.copy()
for r, g in sums.items():
  want_table[r] = table[r] - .5 * g / max(np.sqrt((g.astype(np.float64) ** 2).sum()), 1)
  want_state[r] = np.maximum(state[r], np.abs(g).max())
np.testing.assert_allclose(new_table, want_table, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(new_state, want_state, rtol=1e-5, atol=1e-6)
""", "v6e")


def test_a_single_call_of_each_kind(python):
  ok(python, """
import sys
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_csr as csr
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_activation_unstack as unstack
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_gradient_stack as stack
# Features stand in a stack SparseCore by SparseCore.
x = np.arange(12 * 4, dtype=np.float32).reshape(12, 4)
f = jax.jit(lambda v: unstack.tpu_sparse_dense_matmul_activation_unstack_primitive.bind(
    v, per_feature_batch_sizes=(4, 8), per_feature_dims=(3, 4)))
a, b = (np.asarray(v) for v in f(x))
np.testing.assert_array_equal(a, x[[0, 1, 6, 7], :3])
np.testing.assert_array_equal(b, x[[2, 3, 4, 5, 8, 9, 10, 11]])
g = jax.jit(lambda p, q: stack.tpu_sparse_dense_matmul_gradient_stack_primitive.bind(
    p, q, stacked_batch_size=12, stacked_feature_dim=4))
want = x.copy(); want[[0, 1, 6, 7], 3] = 0
np.testing.assert_array_equal(np.asarray(g(a, b)), want)
""", "v6e")


BAD = """
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_csr as csr
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_grad_with_sgd as sgd
pointers = np.zeros(16, np.int32); pointers[:8] = 4
ids, samples, gains = np.zeros(32, np.int32), np.zeros(32, np.int32), np.ones(32, np.float32)
table = jnp.ones((16, 8))
def run(p=pointers, i=ids, s=samples, t=table, batch=4):
  f = jax.jit(lambda *a: csr.tpu_sparse_dense_matmul_csr_primitive.bind(
      *a[:4], jnp.int32(1), a[4], device_batch_size=batch, max_ids_per_partition=8, max_unique_ids_per_partition=8))
  try:
    return np.asarray(f(p, i, s, gains, t))
  except Exception as e:
    return str(e)
assert run()[0, 0] == 4 and not run()[1:].any()
def changed(a, at, v): a = a.copy(); a[at] = v; return a
"""


WRONG = """
import re
for call, says in (
    (lambda: run(i=changed(ids, 0, -1)), "id -1 of table"),
    (lambda: run(i=changed(ids, 1, 8)), "id 8 of table"),
    (lambda: run(s=changed(samples, 2, 2)), "sample 2 of table"),
    (lambda: run(p=changed(pointers, 1, 1 << 20)), "past the buffer"),
    (lambda: run(p=changed(pointers, 1, -3)), "backward"),
    (lambda: run(p=np.zeros(24, np.int32)), "row_ptrs should be aligned to HBM granularity!"),
    (lambda: run(batch=5), "does not divide over 2 SparseCores"),
    (lambda: run(t=jnp.ones((15, 8))), "do not divide over 2 SparseCores"),
):
  got = call()
  assert isinstance(got, str) and re.search(says, got), (says, got)
"""


def test_bad_input_is_named(python):
  ok(python, BAD + WRONG, "v6e")


OWN_INPUT = """
from atoll import sparsecore as sp
fs = features(lambda: es.SGDOptimizerSpec(learning_rate=0.1), dims=(8, 5, 24))
ids = {k: np.array([rng.integers(0, f.table_spec.vocabulary_size, rng.integers(0, 6)).astype(np.int32) for _ in range(BATCH)],
                   dtype=object) for k, f in fs.items()}
ev, _ = variables(fs)
forward, backward = steps(fs)
results = []
for module in (embedding, sp):
  pre, _ = module.preprocess_sparse_dense_matmul_input(ids, None, fs, N, N, num_sc_per_device=SC, batch_number=1)
  assert pre.lhs_gains is pre.sparse_dense_matmul_input.lhs_gains
  pre = jax.tree.map(lambda a: jax.device_put(a, shard), pre)
  acts = forward(pre, ev)
  results.append((acts, backward(acts, pre, jax.tree.map(jnp.copy, ev))))
jax.tree.map(np.testing.assert_array_equal, *results)
"""


def test_own_inputs_are_read_by_the_library(python):
  ok(python, OWN_INPUT, "v6e:2x1")


def test_a_target_without_sparsecores_says_so(python):
  head = HEAD.replace("utils.num_sparsecores_per_device(devices[0])", "2")
  bad = BAD[:BAD.index("assert run()")]
  p = python(head + bad + "print(run())", env={"ATOLL_TARGET": "v5e", "JAX_PLATFORMS": "tpu,cpu"}, timeout=120)
  assert "Only Megachip mode is supporting mixed device type computations." in p.stdout, p.stdout + p.stderr


def test_tables_of_fewer_bits(python):
  """bf16 rows, and int8 rows with the scale of their quantisation, for inference."""
  ok(python, """
import json
scs, rows, width, batch = SC, 8 * SC, 24, 4 * SC
from atoll import sparsecore as sp
spec = sp.TableSpec("t", rows, width, max_ids_per_partition=64, max_unique_ids_per_partition=64)
fs = [sp.FeatureSpec("f", spec, (batch, 3))]
sp.stack_tables(fs, global_device_count=1, num_sc_per_device=scs)
ids = rng.integers(0, rows, (batch, 3)).astype(np.int32)
x, _ = sp.preprocess_sparse_dense_matmul_input([ids], None, fs, 1, 1, num_sc_per_device=scs)
arrays = [np.asarray(a["t"]) for a in x.sparse_dense_matmul_input]
def lookup(table, **quantisation):
  return np.asarray(program(table, **quantisation)(*arrays, table, jnp.zeros((batch, width))))
def program(table, **quantisation):
  config = {"max_ids_per_partition": 64, "max_unique_ids_per_partition": 64, "sharding_strategy": 1, **quantisation}
  call = jax.ffi.ffi_call("SparseDenseMatmulOp", jax.ShapeDtypeStruct((batch, width), jnp.float32), custom_call_api_version=1,
                          legacy_backend_config=json.dumps({"sparse_dense_matmul_config": config,
                                                            "device_type": "DEVICE_TYPE_SPARSECORE"}))
  return jax.jit(call).lower(*arrays, table, jnp.zeros((batch, width))).compile()
def want(table):
  whole = table.reshape(scs, rows // scs, width).swapaxes(0, 1).reshape(rows, width)
  return whole[ids].astype(np.float64).sum(1)
table = rng.normal(size=(rows, width)).astype(np.float32)
half = jnp.asarray(table, jnp.bfloat16)
np.testing.assert_allclose(lookup(half), want(np.asarray(half, np.float32)), rtol=1e-5, atol=1e-5)
levels = {"quantization_config": {"min_value": -2.0, "max_value": 2.0, "num_buckets": 256}}
step = 4.0 / 255
for dtype, zero in ((np.int8, 128), (np.uint8, 0)):
  small = rng.integers(0, 256, (rows, width)) - zero
  got = lookup(jnp.asarray(small.astype(dtype)), **levels)
  np.testing.assert_allclose(got, want((small + zero) * step - 2), rtol=1e-5, atol=1e-5)
# Simulated: f32 rows are moved to the nearest level, and to the ends.
np.testing.assert_allclose(lookup(table, **levels), want(np.rint((np.clip(table, -2, 2) + 2) / step) * step - 2), rtol=1e-5, atol=1e-4)
# The program's text says what becomes of a row.
assert "u8[1,24]" in program(table, **levels).as_text() and "u8[" not in program(table).as_text()
levels["quantization_config"]["num_buckets"] = 1000
assert "u16[1,24]" in program(table, **levels).as_text()
""", "v6e")


@pytest.mark.parametrize("claim", ["serialised", "samples", "narrow"])
def test_what_programs_take_in_memory(claim):
  """bench/sparsecore_memory.py ends with 1 when a claim does not hold."""
  import pathlib
  import subprocess
  import sys
  script = pathlib.Path(__file__).resolve().parents[2] / "bench" / "sparsecore_memory.py"
  p = subprocess.run([sys.executable, str(script), claim], capture_output=True, text=True, timeout=600)
  assert p.returncode == 0, p.stdout + p.stderr


def test_narrow_rows_are_updated(python):
  """Rows of fewer elements than a vector, and of no multiple of one."""
  import pathlib
  bench = pathlib.Path(__file__).resolve().parents[2] / "bench"
  ok(python, f"BENCH = {str(bench)!r}" + """
sys.path.insert(0, BENCH)
from sparsecore import wrapped
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_grad_with_adagrad as adagrad
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_grad_with_adam as adam
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_grad_with_sgd as sgd
limits = dict(max_ids_per_partition=1024, max_unique_ids_per_partition=1024)
def update(primitive, name, x, grad, tables, hypers):
  # Operands: ids, tables, gradient, hyperparameters.
  f = jax.jit(lambda *a: primitive.bind(*a, computation_name=name, **limits))
  return [np.asarray(v) for v in jax.tree.leaves(f(*x, *tables, grad, *map(jnp.float32, hypers)))]
for width in (1, 2, 3, 7, 8, 12, 16, 20):
  rows, batch = 1024 * SC, 64 * SC
  offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, batch))])
  ids = rng.integers(0, 700, offsets[-1])
  x = [jnp.asarray(b) for b in wrapped(rows, ids, offsets, SC, batch)] + [jnp.int32(1)]
  grad = rng.normal(size=(batch, width)).astype(np.float32)
  t, a, b = (np.abs(rng.normal(size=(rows, width))).astype(np.float32) + .5 for _ in range(3))
  g, seen = np.zeros((rows, width)), np.zeros(rows, bool)
  at = ids % SC * (rows // SC) + ids // SC
  np.add.at(g, at, grad[np.repeat(np.arange(batch), np.diff(offsets))])
  seen[at] = True
  m, v = .9 * a + .1 * g, .99 * b + .01 * g * g
  for primitive, name, tables, hypers, want in (
      (sgd.tpu_sparse_dense_matmul_grad_with_sgd_primitive, "sgd", (t,), (.1,), (t - .1 * g,)),
      (adagrad.tpu_sparse_dense_matmul_grad_with_adagrad_primitive, "adagrad", (t, a), (.1,),
       (t - .1 * g / np.sqrt(a + g * g), a + g * g)),
      (adam.tpu_sparse_dense_matmul_grad_with_adam_primitive, "adam", (t, a, b), (.1, .9, .99, 1e-3),
       (t - .1 * m / (np.sqrt(v) + 1e-3), m, v))):
    got = update(primitive, name + str(width), x, grad, tables, hypers)
    for have, new, old in zip(got, want, tables):
      np.testing.assert_allclose(have[seen], new[seen], rtol=3e-5, atol=3e-6)
      np.testing.assert_array_equal(have[~seen], old[~seen])
""", "v5p")


def test_temporaries_are_counted(python):
  """memory_analysis() has what lookups and updates hold in HBM, as size_report says: 14,272,512 bytes of a step of three
  tables on v5p where libtpu's is 14,237,696."""
  ok(python, """
import json
from atoll import sparsecore as sp
def temporaries(limit):
  spec = sp.TableSpec("t", 4096, 32, max_ids_per_partition=limit, max_unique_ids_per_partition=limit)
  fs = [sp.FeatureSpec("f", spec, (64 * SC, 3))]
  sp.stack_tables(fs, global_device_count=1, num_sc_per_device=SC)
  ids = rng.integers(0, 4096, (64 * SC, 3)).astype(np.int32)
  x, _ = sp.preprocess_sparse_dense_matmul_input([ids], None, fs, 1, 1, num_sc_per_device=SC)
  arrays = [np.asarray(a["t"]) for a in x.sparse_dense_matmul_input]
  config = {"max_ids_per_partition": limit, "max_unique_ids_per_partition": limit, "sharding_strategy": 1}
  call = jax.ffi.ffi_call("SparseDenseMatmulOp", jax.ShapeDtypeStruct((64 * SC, 32), jnp.float32), custom_call_api_version=1,
                          legacy_backend_config=json.dumps({"sparse_dense_matmul_config": config,
                                                            "device_type": "DEVICE_TYPE_SPARSECORE"}))
  m = jax.jit(call).lower(*arrays, np.zeros((4096, 32), np.float32), np.zeros((64 * SC, 32), np.float32)).compile().memory_analysis()
  report = sp.size_report(fs, "v6e", 1, training=False)
  assert m.temp_size_in_bytes >= report.stack_bytes > 0
  assert m.peak_memory_in_bytes >= m.temp_size_in_bytes + m.argument_size_in_bytes
  return m.temp_size_in_bytes - report.stack_bytes
assert temporaries(256) == temporaries(1024)
""", "v6e")
