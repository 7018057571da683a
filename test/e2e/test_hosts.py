"""One job over several processes: the bits of one process, and what is told when one fails."""

import ctypes.util
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

HEAD = """
import functools, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
me, N, L = jax.process_index(), len(devices), jax.local_device_count()
mesh = Mesh(np.array(devices), ("x",))
shard = NamedSharding(mesh, P("x"))
put = lambda a, s=shard: jax.make_array_from_callback(a.shape, s, lambda i: a[i], dtype=a.dtype)
results = {}
def keep(name, tree):  # by place in the whole array
  for i, v in enumerate(jax.tree.leaves(tree)):
    for s in v.addressable_shards:
      at = "_".join(str(k.start or 0) for k in s.index)
      results[f"{name}.{i}.{at}.{s.device.id}"] = np.asarray(s.data)
"""

SUM = """
add = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
add(put(np.ones(N, np.float32))).block_until_ready()
"""


def start(code, count, target, out, **env):
  """Starts the processes of a job; each writes what it kept to out/<process>.npz."""
  listeners = [socket.create_server(("localhost", 0)) for _ in range(count)]
  addresses = ",".join(f"localhost:{s.getsockname()[1]}" for s in listeners)
  for s in listeners:
    s.close()
  library = os.environ["TPU_LIBRARY_PATH"]
  return [subprocess.Popen(
      [sys.executable, "-c", f"{HEAD}\n{code}\nnp.savez(r'{out}/{i}.npz', **results)"],
      env={**os.environ, "ATOLL_TARGET": target, "JAX_PLATFORMS": "tpu,cpu", "TPU_LIBRARY_PATH": library,
           "TPU_PROCESS_ADDRESSES": addresses, "CLOUD_TPU_TASK_ID": str(i), **env},
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in range(count)]


def run(code, count, target, out, **env):
  out.mkdir()
  jobs = start(code, count, target, out, **env)
  ends = [p.communicate(timeout=200) for p in jobs]
  return [(p.returncode, *e) for p, e in zip(jobs, ends)]


UCX = pytest.mark.skipif(not ctypes.util.find_library("ucp"), reason="no libucx0")
WIRES = pytest.mark.parametrize("wire", ["auto", "messages", "tcp", pytest.param("ucx", marks=UCX)])


def same_as_one_process(code, target, tmp_path, counts=(2,), wire="auto"):
  (end,) = run(code, 1, target, tmp_path / "1")
  assert end[0] == 0, end[1] + end[2]
  one = np.load(tmp_path / "1" / "0.npz")
  assert one.files
  for count in counts:
    seen = set()
    for i, end in enumerate(run(code, count, target, tmp_path / str(count), ATOLL_POD_WIRE=wire)):
      assert end[0] == 0, end[1] + end[2]
      for name, a in np.load(tmp_path / str(count) / f"{i}.npz").items():
        assert a.tobytes() == one[name].tobytes(), name
        seen.add(name)
    assert seen == set(one.files)
  return one


@WIRES
def test_collectives(tmp_path, wire):
  same_as_one_process("""
rng = np.random.default_rng(0)
x = put(rng.normal(size=(8 * N, 24)).astype(np.float32))
b = put(rng.integers(0, 100, size=(8 * N, 3)).astype(np.int8))
def every(v, w):
  x = lambda f, *a, **k: f(v, "x", *a, **k)
  loop = jax.lax.fori_loop(0, 5, lambda i, u: jax.lax.psum(u, "x") * 0.1 + i, v)
  part = [list(range(0, N, 2)), list(range(1, N, 2))]
  return (x(jax.lax.psum), x(jax.lax.pmax), jax.lax.psum(w, "x"), x(jax.lax.all_gather), x(jax.lax.pmean),
          x(jax.lax.psum_scatter, tiled=True), x(jax.lax.all_to_all, split_axis=0, concat_axis=1, tiled=True),
          x(jax.lax.ppermute, [(i, (i + 1) % N) for i in range(N - 1)]), jax.lax.axis_index("x")[None], loop,
          jax.lax.psum(v, "x", axis_index_groups=part))
keep("every", jax.jit(jax.shard_map(every, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))(x, b))
# Two axes, the second across processes; what XLA partitions itself; an argument that is given up.
two = Mesh(np.array(devices).reshape(2, N // 2).T, ("a", "b"))
m = put(rng.normal(size=(64, 64)).astype(np.float32), NamedSharding(two, P("a", "b")))
step = jax.jit(lambda m: jnp.tanh(m @ m.T / 8) + m.sum(0), out_shardings=NamedSharding(two, P("b", "a")), donate_argnums=0)
for i in range(20): m = jax.device_put(step(m), NamedSharding(two, P("a", "b"))) if i == 3 else step(m)
keep("step", m)

from jax.experimental import multihost_utils
assert (multihost_utils.process_allgather(np.array([me])).ravel() == np.arange(jax.process_count())).all()
""", "v5p:2x2x1", tmp_path, counts=(2, 4), wire=wire)


@WIRES
def test_programs_of_some_processes(tmp_path, wire):
  """Unequal shares, some of the processes, none of this one: launched by all alike, or by those concerned alone."""
  same_as_one_process("""
def run(name, ids):
  rng = np.random.default_rng(list(name.encode()))
  some = Mesh(np.array([devices[i] for i in ids]), ("x",))
  n = len(ids)
  def every(v):
    x = lambda f, *a, **k: f(v, "x", *a, **k)
    return (x(jax.lax.psum), x(jax.lax.all_gather), x(jax.lax.psum_scatter, tiled=True), jax.lax.axis_index("x")[None],
            x(jax.lax.all_to_all, split_axis=0, concat_axis=1, tiled=True),
            x(jax.lax.ppermute, [(i, (i + 1) % n) for i in range(n)]))
  f = jax.jit(jax.shard_map(every, mesh=some, in_specs=P("x"), out_specs=P("x"), check_vma=False))
  a = put(rng.normal(size=(2 * n * n, 700)).astype(np.float32), NamedSharding(some, P("x")))
  out = f(a)
  jax.block_until_ready(out)
  keep(name, out)
sets = ([2, 3, 6, 7], [0, 1, 4, 5], [1, 2, 3, 4, 5], [7, 0, 3], [0, 1], [6], [5, 4, 3, 2], range(8))
for turn in range(2):
  for k, ids in enumerate(sets): run(f"{turn}.{k}", ids)
# Who is not concerned does not know how often the others launch.
for turn in range(3):
  if {2, 7} & {d.id for d in jax.local_devices()}: run(f"two.{turn}", [2, 7])
  if {0, 4} & {d.id for d in jax.local_devices()}: run(f"two others.{turn}", [4, 0])
run("all", range(8))
""", "v6e:2x4", tmp_path, counts=(4,), wire=wire)


def test_arrays_move_between_processes(tmp_path):
  """A pipeline by jit and device_put over four meshes, and trees of other types."""
  same_as_one_process("""
S = 4
meshes = [Mesh(np.array(devices[i * N // S:(i + 1) * N // S]), ("x",)) for i in range(S)]
batch = [NamedSharding(m, P("x")) for m in meshes]
rng = np.random.default_rng(0)
weights = [put(rng.normal(size=(64, 64)).astype(np.float32) / 8, NamedSharding(m, P())) for m in meshes]
forward = jax.jit(lambda w, x: jnp.tanh(x @ w))
backward = jax.jit(lambda w, x, g: jax.vjp(lambda w, x: jnp.tanh(x @ w), w, x)[1](g))
for micro in range(3):
  acts = [put(rng.normal(size=(16, 64)).astype(np.float32), batch[0])]
  for s in range(S):
    y = forward(weights[s], acts[s])
    acts.append(jax.device_put(y, batch[s + 1]) if s + 1 < S else y)
  g = acts[S]
  for s in reversed(range(S)):
    gw, gx = backward(weights[s], acts[s], g)
    keep(f"{micro}.{s}", (gw, gx))
    if s: g = jax.device_put(gx, batch[s - 1])
tree = [put(rng.integers(-8, 8, size=(4, 1000)).astype(t), batch[0])
        for t in (jnp.int4, jnp.bfloat16, bool, np.complex64, np.int8)] + [put(np.zeros((4, 0), np.float32), batch[0])]
moved = jax.device_put(tree, batch[3])
jax.block_until_ready(moved)
keep("tree", [m.astype(np.float32) if m.dtype == jnp.int4 else m for m in moved])
""", "v6e:2x4", tmp_path, counts=(4,))


def test_a_transfer_from_a_process_that_ends_is_told(tmp_path):
  ends = run(SUM + """
import os
here, there = (NamedSharding(Mesh(np.array(devices[i:i + 2]), ("x",)), P("x")) for i in (0, 2))
jax.device_put(put(np.ones(2, np.float32), here), there).block_until_ready()
add(put(np.ones(N, np.float32))).block_until_ready()  # the other one has it
if not me: os._exit(7)
try:
  jax.device_put(put(np.ones(2, np.float32), here), there).block_until_ready()
  assert False
except jax.errors.JaxRuntimeError as e:
  assert "DATA_LOSS" in str(e) and "process 0 is lost" in str(e), e
""", 2, "v6e:2x2", tmp_path / "out")
  assert ends[0][0] == 7 and ends[1][0] == 0, ends


def test_processes_and_devices(tmp_path):
  ends = run("""
assert (jax.process_count(), N, L) == (2, 8, 4), (jax.process_count(), N, L)
assert [d.process_index for d in devices] == [0] * 4 + [1] * 4
assert [d.id for d in jax.local_devices()] == list(range(4 * me, 4 * me + 4))
assert [d.local_hardware_id for d in jax.local_devices()] == list(range(4))
assert float(jax.jit(lambda a: a.sum())(jnp.arange(10.))) == 45  # this process alone
some = Mesh(np.array(devices[3:6]), ("x",))  # one device of the first process, two of the second
add = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x"), mesh=some, in_specs=P("x"), out_specs=P()))
assert float(add(put(np.ones(3, np.float32), NamedSharding(some, P("x"))))[0]) == 3
theirs = Mesh(np.array(devices[4:] if me == 0 else devices[:4]), ("x",))  # each launches a program of the other one
out = jax.jit(lambda a: a + 1)(put(np.ones(4, np.float32), NamedSharding(theirs, P("x"))))
assert out.shape == (4,) and not out.addressable_shards
out.block_until_ready()
""", 2, "v6e:2x4", tmp_path / "out")
  for end in ends:
    assert end[0] == 0, end[1] + end[2]


def test_a_process_that_ends_is_told(tmp_path):
  ends = run(SUM + """
import os
if me: os._exit(7)
try:
  add(put(np.ones(N, np.float32))).block_until_ready()
  assert False
except jax.errors.JaxRuntimeError as e:
  assert "DATA_LOSS" in str(e) and "process 1 is lost" in str(e), e
""", 2, "v6e:2x2", tmp_path / "out")
  assert ends[1][0] == 7 and ends[0][0] == 0, ends


@WIRES
def test_launches_of_several_threads_have_one_order(tmp_path, wire):
  """Threads that launch programs of the same processes in opposite orders, with work of their own before and
  after; also programs that the scheduler has no part in."""
  same_as_one_process("""
import threading
def over(c, *ids):
  m = Mesh(np.array([devices[i] for i in ids]), ("x",))
  s = NamedSharding(m, P("x"))
  f = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x") * 0.25 + v + c, mesh=m, in_specs=P("x"), out_specs=P("x")))
  g = jax.jit(jax.shard_map(lambda v: jax.lax.ppermute(v, "x", [(i, (i + 1) % len(ids)) for i in range(len(ids))]) - c,
                            mesh=m, in_specs=P("x"), out_specs=P("x")))
  here = [i for i in ids if devices[i].process_index == me]
  return f, g, jax.jit(lambda v: v * 0.5 + c), put(np.arange(4. * len(ids)).astype(np.float32), s), bool(here)
# Programs of two threads differ in a number: which of them a launch is of must be known to all.
sets = [[over(c, *ids) for c in (1, 2)] for ids in ((0, 1, 2, 3), (1, 2, 3), (0, 3), (2, 3), (1, 2))]
def work(k, order):
  f, g, local, x, here = sets[k][order]
  for i in range(40 if here else 0):
    x = (f if (i + order) % 2 else g)(x)
    x = local(x)
  done[k, order] = x
done = {}
jobs = [(k, o) for k in range(len(sets)) for o in (0, 1)]
for f, g, local, x, here in sum(sets, []):  # compiled before
  if here: f(x), g(x), local(x)
turn = jobs[me * 3 % len(jobs):] + jobs[:me * 3 % len(jobs)]  # in another order in each process
threads = [threading.Thread(target=work, args=j) for j in turn]
for t in threads: t.start()
for t in threads: t.join()
for (k, o), x in sorted(done.items(), key=lambda d: d[0]): keep(f"{k}{o}", x)
""", "v5p:2x2x1", tmp_path, counts=(2, 4), wire=wire)


def test_another_program_is_told(tmp_path):
  """A process that launches something else is waited for, until a deadline; others may be used all the same."""
  ends = run(SUM + """
other = jax.jit(jax.shard_map(lambda v: jax.lax.pmax(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
some = Mesh(np.array(devices[:1] + devices[-1:]), ("x",))
third = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x"), mesh=some, in_specs=P("x"), out_specs=P()))
try:
  (other if me else add)(put(np.ones(N, np.float32))).block_until_ready()
  assert False
except jax.errors.JaxRuntimeError as e:
  if str(e).startswith("DEADLINE_EXCEEDED"): assert "its turn did not come in time" in str(e), e
  else: assert "failed: its turn did not come in time" in str(e), e
assert float(third(put(np.ones(2, np.float32), NamedSharding(some, P("x"))))[0]) == 2
""", 2, "v6e:2x2", tmp_path / "out", ATOLL_POD_DEADLINE="2")
  for end in ends:
    assert end[0] == 0, end[1] + end[2]


def test_wrong_jobs_are_refused(python):
  for addresses, task, text in (
      ("localhost:1,localhost", "1", "`localhost` is not host:port"),
      ("localhost:1,,localhost:2", "0", "`` is not host:port"),
      ("localhost:1,localhost:2", "2", "CLOUD_TPU_TASK_ID is 2, but TPU_PROCESS_ADDRESSES has 2 addresses"),
      ("no-such-host.invalid:1,localhost:2", "0", "no-such-host.invalid:1:")):
    p = python("import jax; jax.devices('tpu')", env={"TPU_PROCESS_ADDRESSES": addresses, "CLOUD_TPU_TASK_ID": task,
                                                      "JAX_PLATFORMS": "tpu"})
    assert p.returncode and text in p.stderr, p.stderr


EMBEDDINGS = """
from jax_tpu_embedding.sparsecore.lib.nn import embedding, embedding_spec as es
from jax_tpu_embedding.sparsecore.utils import utils
from atoll import sparsecore as sp
SC = utils.num_sparsecores_per_device(devices[0])
BATCH = 16 * N * SC
mine = slice(me * BATCH // N * L, (me + 1) * BATCH // N * L)

def features(optimizer, limit):
  out = {}
  for i, d in enumerate((8, 8, 24)):
    t = es.TableSpec(vocabulary_size=2048 + 512 * i, embedding_dim=d, initializer=jax.nn.initializers.normal(),
                     combiner="sum", optimizer=optimizer(), name=f"t{i}", max_ids_per_partition=limit,
                     max_unique_ids_per_partition=limit)
    out[f"f{i}"] = es.FeatureSpec(table_spec=t, input_shape=(BATCH, 9), output_shape=(BATCH, d), name=f"f{i}")
  embedding.prepare_feature_specs_for_training(out, global_device_count=N, num_sc_per_device=SC)
  return out

# Later samples have more ids: the last process needs the most mini-batches.
def batch(fs, rng):
  return {k: np.array([rng.integers(0, f.table_spec.vocabulary_size, size=rng.integers(0, 2 + 6 * b // BATCH)).astype(np.int32)
                       for b in range(BATCH)], dtype=object) for k, f in fs.items()}

def inputs(fs, ids, minibatching):
  ids = {k: v[mine] for k, v in ids.items()}
  plan = lambda agree: sp.Plan(fs, L, N, SC, enable_minibatching=minibatching, agree=agree)
  alone = plan(None).run(ids)[1]
  arrays, count, _ = plan(sp.agree_over_processes).run(ids)
  lhs = embedding.SparseDenseMatmulInput(*[{k: jax.make_array_from_process_local_data(shard, v) for k, v in part.items()}
                                           for part in arrays])
  return embedding.PreprocessedInput(lhs, put(np.full(N, count, np.int32))), alone, count

def variables(fs, rng):
  out = {}
  for name, s in embedding.get_stacked_table_specs(fs).items():
    slots = s.optimizer.slot_variables_initializers()
    a = [put(rng.uniform(0.5, 2, size=(s.stack_vocab_size, s.stack_embedding_dim)).astype(np.float32))
         for _ in range(1 + len(slots))]
    rest = tuple(a[1:])
    out[name] = embedding.EmbeddingVariables(a[0], type(slots)(*rest) if hasattr(slots, "_fields") else rest)
  return out

def train(name, optimizer, minibatching, steps=3, spoil=None):
  rng = np.random.default_rng(1)
  fs = features(optimizer, 4 if minibatching else 256)
  kw = dict(feature_specs=fs, global_device_count=N, num_sc_per_device=SC, enable_minibatching=minibatching)
  m = functools.partial(jax.shard_map, mesh=mesh, out_specs=P("x"), check_vma=False)
  def one(pre, ev):  # lookup, dense part, update: one program
    acts = embedding.tpu_sparse_dense_matmul(pre, ev, **kw)
    grads = {k: jnp.tanh(v) + jax.lax.psum(v.sum(), "x") for k, v in acts.items()}
    return acts, embedding.tpu_sparse_dense_matmul_grad(grads, pre, ev, step=jnp.int32(3), **kw)
  step = jax.jit(m(one, in_specs=(P("x"), P("x"))), donate_argnums=1)
  ev = variables(fs, rng)
  for i in range(steps):
    pre, alone, count = inputs(fs, batch(fs, rng), minibatching)
    if spoil: pre = spoil(pre)
    acts, ev = step(pre, ev)
    keep(f"{name}.{i}", (acts, ev))
  return alone, count
sgd = lambda: es.SGDOptimizerSpec(learning_rate=0.1)
adagrad = lambda: es.AdagradOptimizerSpec(learning_rate=0.1)
"""


def needs_embeddings():
  pytest.importorskip("jax_tpu_embedding", reason="jax_tpu_embedding is not installed: its calls are not tested")


@pytest.mark.parametrize("target,counts", [("v5p:2x2x1", (2,)), ("v6e:2x2", (4,))])
def test_embeddings_of_several_processes(tmp_path, target, counts):
  needs_embeddings()
  one = same_as_one_process(EMBEDDINGS + """
for name, optimizer in (("sgd", sgd), ("adagrad", adagrad)):
  train(name, optimizer, False)
  alone, count = train(name + " in mini-batches", optimizer, True)
  assert count > 1
  if jax.process_count() == 2 and not me: assert alone < count, (alone, count)  # the other one needs more
""", target, tmp_path, counts)
  assert len(one.files) > 100


def test_a_bad_id_on_one_process_fails_all(tmp_path):
  needs_embeddings()
  ends = run(EMBEDDINGS + """
train("good", sgd, False, 1)
def spoil(pre):
  lhs = pre.sparse_dense_matmul_input
  def bad(a):
    parts = [np.asarray(s.data).copy() for s in a.addressable_shards]
    if me == 1: parts[0][0] = 1 << 20
    return jax.make_array_from_single_device_arrays(a.shape, shard, [jax.device_put(p, s.device)
                                                                     for p, s in zip(parts, a.addressable_shards)])
  ids = {k: bad(v) for k, v in lhs.lhs_embedding_ids.items()}
  return pre._replace(sparse_dense_matmul_input=lhs._replace(lhs_embedding_ids=ids)) if hasattr(pre, "_replace") else \\
      embedding.PreprocessedInput(lhs._replace(lhs_embedding_ids=ids), pre.num_minibatches)
try:
  train("bad", sgd, False, 1, spoil)
  assert False
except jax.errors.JaxRuntimeError as e:
  assert str(1 << 20) in str(e), e
  assert me == 1 or "1 failed" in str(e), e
train("good again", sgd, False, 1)
""", 2, "v5p:2x2x1", tmp_path / "out")
  for end in ends:
    assert end[0] == 0, end[1] + end[2]


@WIRES
def test_threads_with_programs_on_chips_of_their_own(tmp_path, wire):
  """The same program on chips that have none in common, launched in any order."""
  same_as_one_process("""
import threading
def work(k):
  some = Mesh(np.array(devices).reshape(-1, 2)[:, k], ("x",))
  f = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x") / some.size + v * 0.5, mesh=some, in_specs=P("x"), out_specs=P("x")))
  v = put(np.full(some.size, k + 1, np.float32), NamedSharding(some, P("x")))
  for _ in range(50):
    v = f(v) * 0.6
    v.block_until_ready()
  keep(f"thread {k}", v)
threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
for t in threads: t.start()
for t in threads: t.join()
assert len(results) == L
""", "v6e:2x4", tmp_path, counts=(4,), wire=wire)


def test_processes_end_with_launches_that_others_have_not_made(tmp_path):
  """Each has launched what the other has not: nobody waits for it at the end. What all have launched is still run."""
  ends = run(SUM + """
times = lambda k: jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x") * k, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
one, two, three = times(1), times(2), times(3)
common = one(put(np.ones(N, np.float32)))
if me: two(two(common))
else: three(one(common))
assert np.asarray(common.addressable_shards[0].data)[0] == N
""", 2, "v6e:2x4", tmp_path / "out")
  for code, out, err in ends:
    assert code == 0, out + err
