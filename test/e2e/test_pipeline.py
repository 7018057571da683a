"""Training in a pipeline (atoll.pipeline): bits, schedules, what is split and how, errors."""

import importlib.util
import json

import pytest

import pods
from atoll import _pipeline_cut, _pipeline_plan

pytestmark = pytest.mark.skipif(importlib.util.find_spec("flax") is None, reason="no flax (pip install flax)")

BEGIN = """
import json, jax, jax.numpy as jnp, numpy as np, atoll
import flax.linen as nn
d = jax.devices()
rng = np.random.default_rng(0)
x, y = rng.normal(size=(32, 16)).astype(np.float32), rng.normal(size=(32, 3)).astype(np.float32)

class Block(nn.Module):
  @nn.compact
  def __call__(self, x):
    return x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))

class Model(nn.Module):
  layers: int = 4
  @nn.compact
  def __call__(self, x):
    for _ in range(self.layers):
      x = Block()(x)
    return nn.Dense(3)(x)

def loss(o, t):
  return jnp.mean((o - t) ** 2)

def sgd(w, g):
  return jax.tree.map(lambda w, g: w - 0.1 * g, w, g)

def same(a, b):
  pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  return all((np.asarray(a) == np.asarray(b)).all() for a, b in pairs)

def near(a, b):
  for a, b in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)

def by_one_mesh(p, variables, *batch, **more):
  "Loss and gradients, which a mesh alone has to the bit."
  out = p.value_and_grad(p.place(variables, batch[0]), *batch, **more)
  one = p.on_one_mesh()
  assert same(out, one.value_and_grad(one.place(variables, batch[0]), *batch, **more))
  assert len(p._grad.graphs) == 1 and str(p._grad.graphs[0]).startswith("program of ")
  return out
"""


@pytest.fixture
def run(pod, user):
  def run(code):
    p = pods.python(BEGIN + code, PYTHONPATH=user, ATOLL_POD=pod.address)
    assert not p.returncode, p.stderr
    assert "Traceback" not in p.stderr and "not traced" not in p.stderr, p.stderr
    return p.stdout
  return run


# ---- Schedules
def test_orders():
  assert _pipeline_plan.stage_order("gpipe", 0, 2, 3) == [("F", 0), ("F", 1), ("F", 2), ("B", 0), ("B", 1), ("B", 2)]
  assert _pipeline_plan.stage_order("1f1b", 0, 2, 3) == [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)]
  for schedule in ("gpipe", "1f1b"):
    for stages in range(1, 6):
      for m in range(1, 8):
        ops = [op for tick in _pipeline_plan.ticks(schedule, stages, m) for op in tick]
        assert len(ops) == len(set(ops)) == 2 * stages * m
        at = {op: i for i, op in enumerate(ops)}
        for what, s, k in ops:
          assert what == "F" or at["F", s, k] < at["B", s, k]
          assert s == 0 or at["F", s - 1, k] < at["F", s, k] and at["B", s, k] < at["B", s - 1, k]
          assert k == 0 or at[what, s, k - 1] < at[what, s, k]
        # Equal stages have the bubbles of the formula.
        idle = _pipeline_plan.idle_share(schedule, [1.0] * stages, m, False)
        assert abs(idle - (stages - 1) / (m + stages - 1)) < 1e-9, (schedule, stages, m, idle)


def test_microbatches_in_flight():
  for s in range(4):
    now = most = 0
    for what, _ in _pipeline_plan.stage_order("1f1b", s, 4, 16):
      now += 1 if what == "F" else -1
      most = max(most, now)
    assert most == 4 - s


def test_shares():
  assert _pipeline_cut.share([1, 1, 1, 1], [0, 0, 0], 2, [1, 1]) == [2, 2]
  assert _pipeline_cut.share([5, 1, 1, 1, 1, 1], [0] * 5, 2, [1, 1]) == [1, 5]
  assert _pipeline_cut.share([1, 1, 1, 1], [0, 0, 0], 2, [3, 1]) == [3, 1]
  assert _pipeline_cut.share([1, 2, 1], [9, 1], 2, [1, 1]) == [2, 1]  # less crosses
  costs = [3, 1, 4, 1, 5, 9, 2, 6]
  for stages in (1, 3, 8):
    counts = _pipeline_cut.share(costs, [0] * 7, stages, [1] * stages)
    assert sum(counts) == 8 and len(counts) == stages and min(counts) >= 1


# ---- Bits
def test_four_stages_are_one_mesh_to_the_bit(run):
  run("""
model = Model()
v = jax.jit(model.init)(jax.random.key(0), x[:8])
whole, outs = jax.jit(jax.value_and_grad(lambda w: loss(model.apply({"params": w}, x), y)))(v["params"]), []
for schedule, islands in (("gpipe", [0, 1]), ("1f1b", [0, 1]), ("1f1b", [0])):
  p = atoll.pipeline(model, stages=4, schedule=schedule, microbatches=4, loss=loss, islands=islands,
                     devices_per_stage=2)
  outs.append((by_one_mesh if not outs else p.value_and_grad)(*([p, v] if not outs else [p.place(v, x)]), x, y))
  assert len(p._grad.graphs) == 1 and sorted({s.devices[0].slice_index for s in p.stages}) == islands
  assert same(outs[-1], outs[0])
near(outs[0], whole)
""")


def test_what_is_kept_and_units(run):
  """exact: bits do not depend on the number of stages; stages=1 is the model as users write it."""
  run("""
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
model, v = Model(2), jax.jit(Model(2).init)(jax.random.key(0), x[:8])
usual = dict(stages=3, microbatches=4, loss=loss, devices_per_stage=2)
make = lambda **more: atoll.pipeline(model, **{**usual, **more})
mesh = Mesh(np.array(d[:2]), ("data",))
W, R = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
f = jax.jit(jax.value_and_grad(lambda w, x, y: loss(model.apply({"params": w}, x), y)), out_shardings=W)
w, total = jax.device_put(v["params"], W), None
for m in range(0, 32, 8):  # one after the other, in this order
  g = f(w, jax.device_put(x[m:m + 8], R), jax.device_put(y[m:m + 8], R))
  total = g if total is None else jax.tree.map(jnp.add, total, g)
one = by_one_mesh(make(stages=1), v, x, y)
assert same(one, jax.tree.map(lambda a: a / 4, total))
near(one, by_one_mesh(make(remat=True), v, x, y))
near(one, by_one_mesh(make(split=[1, 1, 1]), v, x, y))
exact = by_one_mesh(make(exact=True), v, x, y)
near(one, exact)
alone = make(exact=True, stages=1)
assert same(exact, alone.value_and_grad(alone.place(v, x), x, y))
""")


# ---- Training
def test_steps(run):
  out = run("""
try:
  import optax
  optimizer = optax.adam(1e-2)
except ImportError:
  optimizer = sgd
model = Model()
p = atoll.pipeline(model, stages=3, split=[1, 1, 3], microbatches=4, loss=loss, optimizer=optimizer,
                   devices=[d[:2], d[2:4], d[8:10]], donate=False)
first = state = p.init(jax.random.key(0), x)
w = jax.jit(model.init)(jax.random.key(0), x[:8])["params"]
assert same(p.variables(state)["params"], w)
near(p.apply(state, x), jax.jit(model.apply)({"params": w}, x))
opt = optimizer.init(w) if hasattr(optimizer, "init") else None
losses = []
@jax.jit
def step(w, opt):
  l, g = jax.value_and_grad(lambda w: loss(model.apply({"params": w}, x), y))(w)
  if opt is None:
    return l, sgd(w, g), opt
  u, opt = optimizer.update(g, opt, w)
  return l, optax.apply_updates(w, u), opt
for _ in range(4):
  state, value = p.step(state, x, y)
  l, w, opt = step(w, opt)
  near(value, l)
  losses.append(float(value))
for a, b in zip(jax.tree.leaves(p.variables(state)["params"]), jax.tree.leaves(w)):
  np.testing.assert_allclose(a, b, atol=2e-3)
assert losses[-1] < losses[0] and len(p._step.graphs) == 1
assert same(p.variables(first)["params"], jax.jit(model.init)(jax.random.key(0), x[:8])["params"])  # not donated
for s, stage in enumerate(p.stages):
  assert all(a.sharding.device_set == set(stage.devices) for a in jax.tree.leaves((state.params[s], state.opt[s])))
print(p.describe())
""")
  assert "3 stages, 1f1b, 4 microbatches" in out and "stage 2: island 1, devices 8, 9" in out
  assert "Block_2, Block_3, Dense_0" in out and "us a microbatch" in out and "bubbles: 33.3% with equal stages" in out


def test_hand_made_stages(run):
  run("""
f = jax.jit(lambda w, x: (jnp.tanh(x @ w["w"]), x))
g = lambda w, t: {"a": t[0] @ w, "n": jnp.int32(3), "x": t[1]}
h = lambda w, t: t["a"] * w + t["x"][:, :3] * t["n"]
w = [{"w": np.full((16, 8), .1, np.float32)}, np.full((8, 3), .2, np.float32), np.ones(3, np.float32)]
for kept in (dict(), dict(remat=True)):
  p = atoll.pipeline(stages=[f, g, h], loss=loss, microbatches=4, optimizer=sgd, clip=0.01, **kept)
  out = by_one_mesh(p, w, x, y)
  near(out, jax.value_and_grad(lambda w: loss(h(w[2], g(w[1], f(w[0], x))), y))(jax.tree.map(jnp.asarray, w)))
  state, _ = p.step(p.place(w, x), jnp.asarray(x), y)
  change = [np.asarray(a) - b for a, b in zip(jax.tree.leaves(p.variables(state)), jax.tree.leaves(w))]
  assert abs(np.sqrt(sum((c ** 2).sum() for c in change)) - 0.001) < 1e-5
""")


def test_meshes_of_several_sizes(run):
  run("""
model, v = Model(2), jax.jit(Model(2).init)(jax.random.key(0), x[:8])
p = atoll.pipeline(model, stages=3, microbatches=4, loss=loss, devices=[d[:2], d[4:8], d[8:9]])
out = p.value_and_grad(p.place(v, x), jax.device_put(x, d[3]), y)
assert len(p._grad.graphs) == 1
near(out, jax.jit(jax.value_and_grad(lambda w: loss(model.apply({"params": w}, x), y)))(v["params"]))
""")


# ---- Models
def test_shared_parameters_state_and_random_numbers(run):
  run("""
class Tied(nn.Module):
  @nn.compact
  def __call__(self, t, train):
    e = nn.Embed(20, 16)
    x = e(t)
    for _ in range(2):
      x = Block()(x)
      x = nn.BatchNorm(use_running_average=not train)(x)
      x = nn.Dropout(0.2, deterministic=not train)(x)
    return e.attend(x)

def nll(o, t):
  return -jnp.take_along_axis(jax.nn.log_softmax(o), t[..., None], -1).mean()

t = rng.integers(0, 20, size=(32, 6))
model = Tied()
v = jax.jit(model.init, static_argnums=2)(jax.random.key(0), t[:8], False)
p = atoll.pipeline(model, stages=3, microbatches=4, loss=nll, call=dict(train=True), rngs=("dropout",), optimizer=sgd,
                   devices_per_stage=2)
value, grads = by_one_mesh(p, v, t, t, rng=jax.random.key(3))
def whole(w):
  total, stats = 0, v["batch_stats"]
  for m in range(4):
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(3), m), 0)
    o, new = model.apply({"params": w, "batch_stats": stats}, t[8 * m:8 * m + 8], True, rngs={"dropout": key},
                         mutable=["batch_stats"])
    total, stats = total + nll(o, t[8 * m:8 * m + 8]), new["batch_stats"]
  return total / 4, stats
(l, stats), g = jax.jit(jax.value_and_grad(whole, has_aux=True))(v["params"])
near((value, grads), (l, g))
state, _ = p.step(p.place(v, t), t, t, rng=jax.random.key(3))
near(p.variables(state)["batch_stats"], stats)
assert p.stages[0].names[0] == "Embed_0" and p.stages[-1].names[-1] == "Embed_0"
""")


def test_nnx(run):
  run("""
from flax import nnx
class Part(nnx.Module):
  def __init__(self, rngs):
    self.a, self.norm = nnx.Linear(16, 16, rngs=rngs), nnx.BatchNorm(16, rngs=rngs)
    self.drop = nnx.Dropout(.1, rngs=rngs)
  def __call__(self, x):
    return x + self.drop(nnx.relu(self.norm(self.a(x))))
class Whole(nnx.Module):
  def __init__(self, rngs):
    self.parts, self.out = nnx.List([Part(rngs) for _ in range(3)]), nnx.Linear(16, 3, rngs=rngs)
  def __call__(self, x):
    for part in self.parts:
      x = part(x)
    return self.out(x)
model = Whole(nnx.Rngs(0))
p = atoll.pipeline(model, stages=2, microbatches=4, loss=loss, optimizer=sgd, devices_per_stage=2)
state, losses = p.init(None, x), []
for _ in range(5):
  state, value = p.step(state, x, y)
  losses.append(float(value))
assert losses[-1] < losses[0] and len(p._step.graphs) == 1
nnx.update(model, p.variables(state))
assert set(model.out.kernel.get_value().devices()) == set(p.stages[1].devices)
""")


# ---- Errors
def test_what_cannot_be(run):
  out = run("""
class One(nn.Module):
  @nn.compact
  def __call__(self, x):
    return x @ self.param("w", nn.initializers.ones, (16, 3))
class Step(nn.Module):
  @nn.compact
  def __call__(self, x, _):
    return nn.Dense(16)(x), None
class Loop(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.scan(Step, variable_axes={"params": 0}, split_rngs={"params": True}, length=4)()(x, None)[0]
key, told = jax.random.key(0), []
def make(model=Model(2), **more):
  return atoll.pipeline(model, **{**dict(stages=2, loss=loss, microbatches=4, optimizer=sgd), **more})
good = make(devices_per_stage=1)
state = good.init(key, x)
bad = make(loss=lambda o, t: o - t, devices_per_stage=1)
for f in (lambda: make(microbatches=3).init(key, x), lambda: make(microbatches=32).init(key, x),
          lambda: make(One()).init(key, x), lambda: make(Loop()).init(key, x), lambda: make(lambda x: x),
          lambda: make(schedule="zigzag"), lambda: make(split=[1, 1]).init(key, x), lambda: make(devices=[d[:1]]),
          lambda: make().step(None, x, y), lambda: good.step(state, x, y[:16]), lambda: make(None, stages=[3]),
          lambda: bad.value_and_grad(bad.init(key, x), x, y), lambda: make(islands=[7]),
          lambda: make(optimizer=None).step(state, x, y), lambda: good.step(state, x, y, rng=key)):
  try:
    f()
    told.append("nothing")
  except (ValueError, TypeError) as e:
    told.append(str(e))
print(json.dumps(told))
""")
  for said, wanted in zip(json.loads(out), [
      "a batch of 32 cannot be cut into microbatches=3 of one size", "a microbatch of 1 (a batch of 32 in 32)",
      "hint: write the model as submodules that it calls one after another", "layers in one loop (nn.scan, lax.scan)",
      "hint: it takes a flax.linen.Module, a flax.nnx.Module, or stages=[f1, f2, ...]",
      'schedule="zigzag" is neither "gpipe" nor "1f1b"',
      "has to be 2 numbers whose sum is 3: Block_0, Block_1, Dense_0",
      "devices= has 1 lists for 2 stages", "init or place comes first", "have to be batches of one size",
      "takes functions f(params, x) -> y", "has to be one number", "there are no devices on islands [7]",
      "optimizer=...) is needed", "rng= goes with"], strict=True):
    assert wanted in said, (wanted, said)


def test_the_example_of_the_docstring(run):
  assert "2 stages, 1f1b, 4 microbatches" in run("""
import doctest
from atoll import _pipeline
example, = doctest.DocTestFinder(recurse=False).find(_pipeline.pipeline)
lines = "".join(e.source for e in example.examples)
exec(lines, {})
""")


def test_without_a_pod(user):
  """Then a step is no program, and runs as it is; also on other platforms."""
  code = BEGIN.replace("import json", "import json, contextlib") + """
p = atoll.pipeline(Model(2), stages=3, microbatches=4, loss=loss, optimizer=sgd, devices_per_stage=1)
state, first = p.step(p.init(jax.random.key(0), x), x, y)
for _ in range(5):
  state, value = p.step(state, x, y)
assert value < first
print(d[0].platform)
"""
  p = pods.python(code, PYTHONPATH=user, ATOLL_TARGET="v5e:2x2")
  assert p.stdout.strip() == "tpu", p.stderr
  p = pods.python(code, PYTHONPATH=pods.PACKAGE, JAX_PLATFORMS="cpu",
                  XLA_FLAGS="--xla_force_host_platform_device_count=3")
  assert p.stdout.strip() == "cpu", p.stderr
