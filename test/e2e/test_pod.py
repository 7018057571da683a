"""One controller over many hosts: what one process with all chips does, what failures leave, and the commands."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from test_hosts import EMBEDDINGS, HEAD, needs_embeddings

LIBRARY = os.environ["TPU_LIBRARY_PATH"]
ATOLL = str(pathlib.Path(LIBRARY).parent / "atoll")
TWO_SLICES = "2*v6e:2x4"
# Nothing that names a target or a platform.
PLAIN = {k: v for k, v in os.environ.items() if k not in ("ATOLL_TARGET", "ATOLL_POD", "JAX_PLATFORMS", "PYTHONPATH")}


def until(what, seconds=10):
  end = time.monotonic() + seconds
  while not what():
    assert time.monotonic() < end, "it takes too long"
    time.sleep(0.02)


class Pod:
  """`atoll pod up` on this machine."""

  def __init__(self, target, hosts=4, **env):
    self.env = {**PLAIN, **env}
    self.process = subprocess.Popen([ATOLL, "pod", "up", f"--hosts={hosts}", f"--target={target}"], env=self.env,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = self.process.stdout.readline()
    assert line.startswith("ATOLL_POD="), line + self.process.stderr.read()
    self.address = line.strip().partition("=")[2]
    self.env["ATOLL_POD"] = self.address

  def ask(self, *args, **env):
    return subprocess.run([ATOLL, "pod", *args], capture_output=True, text=True, timeout=30, env={**self.env, **env})

  def status(self):
    p = self.ask("status", "--json")
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)

  def start(self, code, **env):
    return subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", code], env={**self.env, **env}, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

  def run(self, code, **env):
    return ended(self.start(code, **env))

  def down(self):
    if self.process.poll() is None:
      self.process.terminate()
    return self.process.communicate(timeout=20)


def ended(p, code=0):
  try:
    out, err = p.communicate(timeout=60)
  except subprocess.TimeoutExpired:
    p.send_signal(signal.SIGABRT)
    out, err = p.communicate()
    assert False, f"it hangs\n{out}{err}"
  assert p.returncode == code, f"status {p.returncode}\n{out}{err}"
  return out


@contextlib.contextmanager
def up(*args, **env):
  p = Pod(*args, **env)
  try:
    yield p
  finally:
    p.down()


@pytest.fixture(scope="module")
def pod():
  with up(TWO_SLICES) as p:
    yield p


def same_as_one_process(pod, code, target, tmp_path, **env):
  """What `keep` keeps and `told` is told, in both; they run beside each other."""
  def text(out):
    return f"""{HEAD}
def told(name, f):  # the error of f, to the letter
  try: f()
  except Exception as e: results["told." + name] = np.array(type(e).__name__ + ": " + str(e))
  else: results["told." + name] = np.array("nothing")
{code}
np.savez({str(out)!r}, **results)
"""
  (tmp_path / "one").mkdir()
  one, here = tmp_path / "one" / "it.npz", tmp_path / "pod.npz"
  jobs = [pod.start(text(here), **env), subprocess.Popen(
      [sys.executable, "-c", text(one)], env={**PLAIN, "ATOLL_TARGET": target, **env}, stdout=subprocess.PIPE,
      stderr=subprocess.PIPE, text=True)]
  for p in jobs:
    ended(p)
  one, here = np.load(one), np.load(here)
  assert one.files and set(one.files) == set(here.files)
  def said(name, value):  # several hosts name the program and who failed first
    if not name.startswith("told."): return value.tobytes()
    return re.sub(r"^(\w+: \w+: )((jit_\w+|process \d+ failed): )+", r"\1", str(value))
  wrong = [f"{name}:\n  {here[name]}\n  in one process:\n  {one[name]}" for name in one.files
           if said(name, here[name]) != said(name, one[name])]
  assert not wrong, "\n".join(wrong)
  return one


# ---- Programs

def test_a_stock_program_needs_two_variables(pod):
  env = {k: os.environ[k] for k in ("PATH", "HOME", "ATOLL_CACHE_DIR", "XDG_CACHE_HOME") if k in os.environ}
  p = subprocess.run([sys.executable, "-c", """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
devices = jax.devices()
assert jax.default_backend() == "tpu" and len(devices) == jax.local_device_count() == 16
assert jax.process_count() == 1 and all(d.process_index == 0 for d in devices)
assert [d.slice_index for d in devices] == [0] * 8 + [1] * 8
from jax.experimental import mesh_utils
for mesh in (jax.make_mesh((8,), ("x",), devices=devices[:8]),
             jax.sharding.Mesh(mesh_utils.create_hybrid_device_mesh((8,), (2,)), ("x",))):
  x = jax.device_put(jnp.arange(64.).reshape(16, 4), NamedSharding(mesh, P("x")))
  print(float(jax.jit(jnp.sum)(x)), jax.jit(lambda v: v + 1)(3))
"""], env={**env, "ATOLL_POD": pod.address, "TPU_LIBRARY_PATH": LIBRARY}, capture_output=True, text=True, timeout=60)
  assert p.stdout == "2016.0 4\n" * 2 and not p.stderr, p.stdout + p.stderr


def test_arrays_and_programs(pod, tmp_path):
  same_as_one_process(pod, """
rng = np.random.default_rng(0)
normal = lambda *s: rng.normal(size=s).astype(np.float32)
slices = [Mesh(np.array([d for d in devices if d.slice_index == s]).reshape(2, -1), ("a", "b")) for s in (0, 1)]
keep("pmap", jax.pmap(lambda x: jax.lax.psum(x, "i") + jax.lax.axis_index("i"), axis_name="i")(normal(N, 3)))

# Between shardings, slices and chips; in pieces; nothing.
x = jax.device_put(normal(64, 48), NamedSharding(slices[0], P("a", "b")))
y = jax.device_put(x, NamedSharding(slices[1], P("b", "a")))
z = jax.jit(lambda v: v @ v.T)(y)
keep("moved", (y, z, jax.device_put(z, NamedSharding(slices[0], P())), jax.device_put(x, NamedSharding(slices[0], P("b"))),
               jax.device_put(x, devices[13]), jax.device_put(x, shard),
               jax.device_put(np.float32(3), NamedSharding(mesh, P()))))
big = jax.device_put(normal(3 << 20), devices[1])
keep("large", [jax.device_put(big, devices[i]) for i in (2, 5, 15)])
empty = jax.device_put(np.zeros((0, 4), np.float32), devices[9])
assert np.asarray(jax.device_put(empty, devices[0])).shape == (0, 4)
for t in (jnp.int4, jnp.bfloat16, bool, np.complex64, np.int8, np.float16, jnp.float8_e4m3fn, np.uint32):
  a = jax.device_put((np.arange(24) % 2).astype(t).reshape(8, 3), devices[7])
  keep(np.dtype(t).name, jax.jit(lambda v: ~v if v.dtype == bool else v + v)(jax.device_put(a, devices[12])).astype(np.float32))
host = NamedSharding(mesh, P("x"), memory_kind="pinned_host")
h = jax.device_put(np.arange(N * 4, dtype=np.float32), host)
keep("pinned", (h, jax.device_put(h, shard), jax.jit(lambda v: v * 2, out_shardings=host)(jax.device_put(h, shard)),
                jax.jit(lambda v: jax.device_put(v, jax.memory.Space.Device) * 2)(h)))

# Copies, deletion, donation.
x = put(normal(N, 300))
copies = jnp.copy(x), x.copy()
live = len(jax.live_arrays())
x.delete()
assert len(jax.live_arrays()) == live - 1
keep("copies", copies)
told("deleted", lambda: x + 1)
step = jax.jit(lambda a: a + 1, donate_argnums=0)
x = put(np.zeros((N, 4), np.float32))
kept = jax.jit(lambda a: a)(x)
y = step(x)
told("donated", lambda: step(x))
assert x.is_deleted()
for _ in range(50): y = step(y)
keep("donation", (y, kept))

# Random numbers, linear algebra, loops and collectives.
keep("random", [jax.jit(lambda k: jax.random.normal(k, (N, 128)), out_shardings=shard)(jax.random.key(1)),
                jax.random.permutation(jax.random.key(2), jnp.arange(1000)),
                jax.jit(lambda k: jax.random.bits(k, (N, 16)), out_shardings=shard)(jax.random.key(3, impl="rbg"))])
a = normal(6, 6)
keep("linear", jax.jit(lambda a: (jnp.linalg.cholesky(a), jnp.linalg.eigh(a), jnp.linalg.svd(a), jnp.sort(a, 0), jnp.fft.fft(a)))(
    jax.device_put(a @ a.T + 6 * np.eye(6, dtype=np.float32), devices[10])))
def every(v):
  v = jax.lax.fori_loop(0, 10, lambda i, u: jax.lax.psum(u, "x") * 0.01 + jnp.sin(u), v)
  v = jax.lax.while_loop(lambda s: jax.lax.pmax(s.max(), "x") < 9, lambda s: s * 1.5 + .1, v)
  return (jax.lax.cond(jax.lax.axis_index("x") % 2 == 0, lambda u: u + 1, lambda u: u - 1, v), jax.lax.all_gather(v, "x"),
          jax.lax.ppermute(v, "x", [(i, (i + 5) % N) for i in range(N)]), jax.lax.all_to_all(v.reshape(N, 4), "x", 0, 0))
over = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
keep("every", over(every)(put(normal(N, 64))))

# Ahead of time, as bytes, exported.
f = jax.jit(lambda v: jnp.tanh(v @ v.T).sum(0), in_shardings=shard, out_shardings=shard)
x = put(normal(2 * N, 32))
compiled = f.lower(x).compile()
assert compiled.memory_analysis().argument_size_in_bytes and compiled.cost_analysis()["flops"] and "dot" in compiled.as_text()
from jax.experimental import serialize_executable as se
exported = jax.export.deserialize(jax.export.export(f)(x).serialize())
keep("ahead", (compiled(x), se.deserialize_and_load(*se.serialize(compiled))(x),
               jax.jit(exported.call, in_shardings=shard, out_shardings=shard)(x)))
one = jax.ShapeDtypeStruct((3,), np.float32, sharding=jax.sharding.SingleDeviceSharding(devices[13]))
keep("ahead, one chip", jax.jit(lambda v: v + 1).lower(one).compile()(jax.device_put(np.ones(3, np.float32), devices[13])))
""", TWO_SLICES, tmp_path)


def test_memory(pod):
  pod.run("""
import gc, jax, time, numpy as np
for d in jax.devices():
  x = jax.device_put(np.zeros(1 << 18, np.float32), d)
  s = d.memory_stats()
  assert s["bytes_in_use"] == 1 << 20 and s["bytes_limit"] > 1 << 34, s
  x.delete()  # its bytes may still be on their way
  for _ in range(1000):
    if d.memory_stats()["bytes_in_use"] == 0: break
    time.sleep(0.001)
  assert d.memory_stats()["bytes_in_use"] == 0 and d.memory_stats()["peak_bytes_in_use"] >= 1 << 20
  for _ in range(20): jax.device_put(np.zeros(1 << 10, np.float32), d)
  assert d.memory_stats()["bytes_in_use"] == 0
""")


CALLBACKS = """
from jax.experimental import io_callback
def fails(v): raise RuntimeError("on purpose")
pure = lambda f, v, like=None: jax.pure_callback(f, jax.ShapeDtypeStruct(v.shape, v.dtype) if like is None else like, v)
over = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
x = put(np.arange(N * 3, dtype=np.float32).reshape(N, 3))
at = lambda v, i: jax.device_put(np.asarray(v, np.float32), devices[i])
"""


def test_callbacks(pod, tmp_path):
  one = same_as_one_process(pod, CALLBACKS + """
import contextlib, io
seen = []
for i in (0, 5, 15): keep(f"pure {i}", jax.jit(lambda v: pure(lambda a: a * 2, v) + 1)(at(np.arange(5), i)))
keep("each", over(lambda v: io_callback(lambda a: (seen.append(a.shape), a + 1)[1], v, v))(x))
assert seen == [(1, 3)] * N, seen
seen.clear()
@jax.jit
def ordered(v):
  for i in range(3): io_callback(lambda a, i=i: seen.append((i, float(a))), None, v + i, ordered=True)
for i in range(10): ordered(at(i, 0))
jax.effects_barrier()
assert seen == [(i, float(k + i)) for k in range(10) for i in range(3)], seen
out = io.StringIO()
with contextlib.redirect_stdout(out):
  jax.jit(lambda v: jax.debug.print("sum {} of {}", v.sum(), v.size))(x)
  jax.effects_barrier()
  jax.jit(lambda v: [jax.debug.print("{}", v + i, ordered=True) for i in range(3)] and None)(at(7, 11))
  jax.effects_barrier()
results["printed"] = np.array(out.getvalue())
big = at(np.random.default_rng(0).normal(size=1 << 20), 14)
keep("large", jax.jit(lambda v: pure(lambda a: a[::-1].copy(), v))(big))
triple = jax.jit(lambda v: v * 3)
keep("nested", jax.jit(lambda v: pure(lambda a: np.asarray(triple(at(a, 8))), v) + 1)(at(np.ones(3), 4)))
""", TWO_SLICES, tmp_path)
  assert str(one["printed"]) == "sum 1128.0 of 48\n7.0\n8.0\n9.0\n"


def test_errors(pod, tmp_path):
  """Codes and words are those of one process."""
  one = same_as_one_process(pod, CALLBACKS + """
wait = lambda f: lambda: jax.block_until_ready(f())
told("raises", wait(lambda: jax.jit(lambda v: pure(fails, v))(at(1, 9))))
told("raises on one", wait(lambda: over(lambda v: jax.lax.psum(jax.pure_callback(
    lambda a, i: fails(a) if i == 7 else a, jax.ShapeDtypeStruct(v.shape, v.dtype), v, jax.lax.axis_index("x")), "x"))(x)))
told("shape", wait(lambda: jax.jit(lambda v: pure(lambda a: np.zeros(5, np.float32), v))(at([1, 2], 9))))
failed = jax.jit(lambda v: pure(fails, v))(at(np.ones(4), 9))
moved = jax.device_put(failed, devices[0])
told("moved", lambda: np.asarray(moved))
told("used", lambda: np.asarray(moved + 1))
told("used there", lambda: np.asarray(failed * 2))
told("two chips", lambda: at(1, 0) + at(1, 5))
compiled = jax.jit(lambda a: a + 1).lower(at(np.ones(3), 6)).compile()
told("other shape", lambda: compiled(at(np.ones(4), 6)))
told("cannot be cut", lambda: jax.device_put(np.ones(3), shard))
told("too large", lambda: jax.jit(lambda: jnp.zeros(1 << 33), out_shardings=jax.sharding.SingleDeviceSharding(devices[6]))())
with jax.debug_nans(True):
  told("nan", lambda: jax.jit(jnp.log)(at(-1, 9)))
  told("nan in all", lambda: jax.jit(jnp.log)(put(-np.ones(N, np.float32))))

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
shape = jax.ShapeDtypeStruct((8, 128), np.float32)
def outside(x, o): o[...] = x[pl.ds(jnp.int32(x[0, 0]), 8), :]
told("outside", wait(lambda: jax.jit(pl.pallas_call(outside, out_shape=shape))(at(np.full((16, 128), 100), 5))))
keep("after", jax.jit(lambda v: v @ v.T)(x))
with contextlib.suppress(Exception): jax.effects_barrier()
jax._src.dispatch.runtime_tokens.clear()
""".replace("wait = ", "import contextlib\nwait = ", 1), TWO_SLICES, tmp_path)
  for name, code in (("raises", "UNKNOWN"), ("too large", "RESOURCE_EXHAUSTED"), ("outside", "OUT_OF_RANGE")):
    assert f"JaxRuntimeError: {code}" in str(one["told." + name]), one["told." + name]


def test_checks_are_the_clients(pod, tmp_path):
  """ATOLL_CHECK and ATOLL_KERNEL_TURNS of the client hold on the hosts."""
  one = same_as_one_process(pod, """
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
at = lambda v: jax.device_put(v, devices[9])
told("nan", lambda: np.asarray(jax.jit(lambda x: jnp.log(x * 2) + 1)(at(np.float32(-1)))))
told("nan in all", lambda: np.asarray(jax.jit(lambda x: jnp.log(x * 2).sum())(put(np.arange(N, dtype=np.float32) - 5))))
def race(x, o, s):
  copies = [pltpu.make_async_copy(x.at[pl.ds(i, 8)], o, s) for i in (0, 8)]
  for c in copies: c.start()
  for c in copies: c.wait()
ANY, shape = pl.BlockSpec(memory_space=pl.ANY), jax.ShapeDtypeStruct((8, 128), np.float32)
told("race", lambda: np.asarray(jax.jit(pl.pallas_call(race, in_specs=[ANY], out_specs=ANY, out_shape=shape,
                                                       scratch_shapes=[pltpu.SemaphoreType.DMA]))(at(np.ones((16, 128), np.float32)))))
def unwritten(x, o, v): o[...] = v[...] + x[...]
x = at(np.ones((8, 128), np.float32))
told("unwritten", lambda: np.asarray(jax.jit(pl.pallas_call(unwritten, out_shape=shape,
                                                            scratch_shapes=[pltpu.VMEM((8, 128), np.float32)]))(x)))
def long(x, o): o[...] = x[...] + jax.lax.fori_loop(0, jnp.int32(x[0, 0]) * 5000, lambda i, c: c * 0.5 + 1, x[0, 1])
told("long", lambda: np.asarray(jax.jit(pl.pallas_call(long, out_shape=shape))(x)))
""", TWO_SLICES, tmp_path, ATOLL_CHECK="all", ATOLL_KERNEL_TURNS="1000")
  for name, word in (("nan", "log"), ("nan in all", "log"), ("race", "race"), ("unwritten", "uninitialised"), ("long", "1000 turns")):
    assert word in str(one["told." + name]), one["told." + name]


def test_pallas_kernels(pod, tmp_path):
  same_as_one_process(pod, """
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
rng = np.random.default_rng(0)
normal = lambda *s: rng.normal(size=s).astype(np.float32)
def product(x, y, o): o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)
block = lambda shape, at: pl.BlockSpec(shape, at)
f = jax.jit(pl.pallas_call(product, grid=(2, 2), out_shape=jax.ShapeDtypeStruct((256, 256), np.float32), in_specs=[
    block((128, 256), lambda i, j: (i, 0)), block((256, 128), lambda i, j: (0, j))], out_specs=block((128, 128), lambda i, j: (i, j))))
a = normal(256, 256)
keep("product", [f(v, v) for v in (jax.device_put(a, devices[i]) for i in (0, 6, 15))])

ANY, DMA = pl.BlockSpec(memory_space=pl.ANY), pltpu.SemaphoreType.DMA
def over(body, shape, ids, *scratch):
  m = Mesh(np.array(devices)[ids], ("x",))
  k = pl.pallas_call(body, in_specs=[ANY], out_specs=ANY, scratch_shapes=list(scratch), out_shape=jax.ShapeDtypeStruct(shape, np.float32),
                     compiler_params=pltpu.CompilerParams(collective_id=0 if "barrier" in body.__name__ else None))
  return jax.jit(jax.shard_map(k, mesh=m, in_specs=P("x"), out_specs=P("x"), check_vma=False)), NamedSharding(m, P("x"))
def permute(x, o, send, receive):
  copy = pltpu.make_async_remote_copy(x, o, send, receive, device_id=(jax.lax.axis_index("x") + 5) % 8)
  copy.start()
  copy.wait()
def gather_behind_a_barrier(x, o, send, receive, local):
  me, n = jax.lax.axis_index("x"), 8
  barrier = pltpu.get_barrier_semaphore()
  for chip in ((me + 1) % n, (me + n - 1) % n): pl.semaphore_signal(barrier, 1, device_id=chip)
  pl.semaphore_wait(barrier, 2)
  pltpu.async_copy(x, o.at[me], local).wait()
  @pl.loop(0, n - 1)
  def turn(i):
    part = (me - i + n) % n
    copy = pltpu.make_async_remote_copy(o.at[part], o.at[part], send, receive.at[i], device_id=(me + 1) % n)
    copy.start()
    copy.wait()
for name, ids in (("slice", list(range(8))), ("middle", list(range(4, 12))), ("spread", list(range(0, 16, 2)))):
  f, s = over(permute, (8, 128), ids, DMA, DMA)
  keep("permute " + name, f(put(normal(64, 128), s)))
  f, s = over(gather_behind_a_barrier, (8, 8, 128), ids, DMA, DMA((7,)), DMA)
  keep("gather " + name, f(put(normal(64, 128), s)))
""", TWO_SLICES, tmp_path)


def test_sparsecores(pod, tmp_path):
  needs_embeddings()
  same_as_one_process(pod, EMBEDDINGS + 'train("sgd", sgd, False, 2)\n', TWO_SLICES, tmp_path,
                      PYTHONPATH=os.environ.get("PYTHONPATH", ""))


TRAIN = """
import flax.linen as nn, optax
B, T, D, V, H, STAGES = 8, 8, 32, 64, 4, 4
class Block(nn.Module):
  @nn.compact
  def __call__(self, x):
    h = nn.LayerNorm()(x)
    x = x + nn.MultiHeadDotProductAttention(num_heads=H)(h, mask=nn.make_causal_mask(x[..., 0]))
    return x + nn.Dense(D)(nn.gelu(nn.Dense(4 * D)(nn.LayerNorm()(x))))
class Stage(nn.Module):
  first: bool = False
  last: bool = False
  blocks: int = 1
  @nn.compact
  def __call__(self, x):
    if self.first: x = nn.Embed(V, D)(x)
    for _ in range(self.blocks): x = Block()(x)
    return nn.Dense(V)(nn.LayerNorm()(x)) if self.last else x
adam = optax.adam(1e-2)
cross = lambda logits, y: optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
tokens = [np.random.default_rng(i).integers(0, V, (B, T + 1)) for i in range(5)]

def train(name, shape, names, data, spec):
  m = Mesh(np.array(devices).reshape(shape), names)
  at = lambda s: NamedSharding(m, s)
  model = Stage(True, True, 2)
  params = model.init(jax.random.key(0), tokens[0][:, 1:])
  state = params, adam.init(params)
  where = jax.tree_util.tree_map_with_path(lambda path, v: at(spec(jax.tree_util.keystr(path), v)), state)
  @functools.partial(jax.jit, donate_argnums=0, in_shardings=(where, at(data)), out_shardings=(where, at(P())))
  def step(state, t):
    params, opt = state
    loss, grads = jax.value_and_grad(lambda p: cross(model.apply(p, t[:, :-1]), t[:, 1:]))(params)
    updates, opt = adam.update(grads, opt)
    return (optax.apply_updates(params, updates), opt), loss
  state = jax.device_put(state, where)
  losses = []
  for t in tokens:
    state, loss = step(state, jax.device_put(t, at(data)))
    losses.append(loss)
  keep(name, (losses, state[0]))

whole = lambda path, v: P()
def fsdp(path, v):
  d = next((i for i, n in enumerate(v.shape) if n % N == 0), None)
  return P() if d is None else P(*[None] * d, "d")
def tensor(path, v):
  for part, s in (("['out']['kernel']", P("t")), ("['query']['kernel']", P(None, "t")), ("['key']['kernel']", P(None, "t")),
                  ("['value']['kernel']", P(None, "t"))):
    if part in path: return s
  return {(D, 4 * D): P(None, "t"), (4 * D, D): P("t"), (D, V): P(None, "t")}.get(v.shape, P())
train("data", (N,), ("d",), P("d"), whole)
train("fsdp", (N,), ("d",), P("d"), fsdp)
train("tensor", (N // 4, 4), ("d", "t"), P("d"), tensor)

# Four stages, each on the chips of one host: jit and device_put.
meshes = [Mesh(np.array(devices).reshape(STAGES, -1)[s], ("d",)) for s in range(STAGES)]
rows, all_of = ([NamedSharding(m, s) for m in meshes] for s in (P("d"), P()))
stages = [Stage(s == 0, s == STAGES - 1) for s in range(STAGES)]
params, opts, forward, backward, update = [], [], [], [], []
for s, stage in enumerate(stages):
  x = tokens[0][:, 1:] if s == 0 else np.zeros((B, T, D), np.float32)
  params.append(jax.device_put(stage.init(jax.random.key(s), x), all_of[s]))
  opts.append(jax.device_put(adam.init(params[s]), all_of[s]))
  forward.append(jax.jit(stage.apply, out_shardings=rows[s]))
  def back(p, x, g, stage=stage, first=s == 0, last=s == STAGES - 1):
    if last:  # g: the labels
      f = lambda p, x: cross(stage.apply(p, x), g)
      loss, (gp, gx) = jax.value_and_grad(f, (0, 1))(p, x)
      return loss, gp, gx
    if first: return 0., jax.vjp(lambda p: stage.apply(p, x), p)[1](g)[0], 0.
    return 0., *jax.vjp(stage.apply, p, x)[1](g)
  backward.append(jax.jit(back))
  def move(p, o, grads):
    updates, o = adam.update(jax.tree.map(lambda *g: sum(g) / len(g), *grads), o)
    return optax.apply_updates(p, updates), o
  update.append(jax.jit(move, donate_argnums=(0, 1)))
for step, t in enumerate(tokens):
  grads, losses = [[] for _ in stages], []
  for part in np.split(t, 2):
    acts = [jax.device_put(part[:, :-1], rows[0])]
    for s in range(STAGES - 1): acts.append(jax.device_put(forward[s](params[s], acts[s]), rows[s + 1]))
    g = jax.device_put(part[:, 1:], rows[-1])
    for s in reversed(range(STAGES)):
      loss, gp, gx = backward[s](params[s], acts[s], g)
      grads[s].append(gp)
      if s == STAGES - 1: losses.append(loss)
      if s: g = jax.device_put(gx, rows[s - 1])
  for s in range(STAGES): params[s], opts[s] = update[s](params[s], opts[s], grads[s])
  keep(f"pipeline {step}", losses)
keep("pipeline", params)
"""


@pytest.mark.parametrize("target", ["v6e:2x4", "2*v6e:2x2"])
def test_a_transformer_trains(tmp_path, target):
  pytest.importorskip("flax")
  pytest.importorskip("optax")
  with up(target) as p:
    one = same_as_one_process(p, TRAIN, target, tmp_path)
  for name in ("data", "fsdp", "tensor"):
    losses = [float(one[next(f for f in one.files if f.startswith(f"{name}.{i}."))]) for i in range(5)]
    assert losses[4] < losses[0], (name, losses)


def test_what_a_client_sends_does_not_grow_with_the_shards(monkeypatch):
  monkeypatch.syspath_prepend(pathlib.Path(__file__).resolve().parents[2] / "bench")
  from pod import count
  rows = count(pathlib.Path(LIBRARY).parent, "v5p:16x16x16", "1,64,1024,4096", hosts=4, launches=10)
  assert [r[0] for r in rows] == [1, 64, 1024, 4096]
  ((messages, size),) = {tuple(r[1:3]) for r in rows}  # the launch, and that its argument is dropped
  assert messages == 2 and size <= 128, rows


# ---- Clients and hosts that come and go

WORK = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
N = len(devices)
shard = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
def over(ids):
  m = Mesh(np.array(devices)[ids], ("x",))
  f = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x") / len(ids) + 1, mesh=m, in_specs=P("x"), out_specs=P("x")))
  return f, jax.device_put(np.zeros((len(ids), 4), np.float32), NamedSharding(m, P("x")))
def say(what): print(what, flush=True)
"""


def test_two_clients_at_once(pod):
  jobs = [pod.start(WORK + f"""
f, x = over(range(N))
g, y = over(range({k}, N, 3))
say("ready")
sys.stdin.readline()
for i in range(300):
  x, y = f(x), g(y)
  if i % 50 == 0: z = jax.device_put(y, devices[i % N])
assert (np.asarray(x) == 300).all() and (np.asarray(y) == 300).all() and (np.asarray(z) == 251).all()
""") for k in (0, 1)]
  for p in jobs:
    assert p.stdout.readline() == "ready\n", p.stderr.read()
  clients = pod.status()["clients"]
  assert {c["pid"] for c in clients} == {p.pid for p in jobs} and all(c["arrays"] > 0 for c in clients), clients
  for p in jobs:
    p.stdin.write("\n")
    p.stdin.flush()
  for p in jobs:
    ended(p)
  until(lambda: pod.status()["clients"] == [])


def test_a_client_that_floods_is_slowed_down(pod, tmp_path):
  """Others do not wait behind what it has launched on another chip of the same host."""
  done = tmp_path / "polite"
  flood = pod.start(WORK + f"""
import os
f = jax.jit(lambda v: v @ v * 1e-3)
y = f(jax.device_put(np.ones((192, 192), np.float32), devices[0])).block_until_ready()
say("ready")
sys.stdin.readline()
for i in range(12000):
  y = f(y)
  if i == 6000: z = y
  if i == 7000: say("floods")
z.block_until_ready()
say(os.path.exists({str(done)!r}))
y.block_until_ready()
""")
  polite = pod.start(WORK + """
g, x = jax.jit(jnp.sin), jax.device_put(np.ones(4, np.float32), devices[1])
g(x).block_until_ready()
say("ready")
sys.stdin.readline()
for _ in range(5): np.asarray(g(x))
""")
  for p in (flood, polite):
    assert p.stdout.readline() == "ready\n", p.stderr.read()
  flood.stdin.write("\n")
  flood.stdin.flush()
  assert flood.stdout.readline() == "floods\n", flood.stderr.read()
  ended(polite)
  done.touch()
  assert ended(flood).splitlines()[-1] == "True"


def test_a_client_that_is_killed_leaves_nothing(pod):
  p = pod.start(WORK + """
big = [jax.device_put(np.ones(1 << 20, np.float32), d) for d in devices]
f, x = over(range(N))
slow = jax.jit(lambda v: jax.lax.fori_loop(0, 20, lambda i, u: jnp.tanh(u @ u), v))
ws = [jax.device_put(np.eye(256, dtype=np.float32), d) for d in devices]
x.block_until_ready()
say("ready")
for _ in range(20): x, ws = f(x), [slow(w) for w in ws]
time.sleep(60)
""")
  assert p.stdout.readline() == "ready\n", p.stderr.read()
  until(lambda: pod.status()["clients"][0]["programs"])
  (c,) = pod.status()["clients"]
  assert c["pid"] == p.pid and c["arrays"] >= 16, c
  p.kill()
  p.communicate()
  until(lambda: pod.status()["clients"] == [])
  pod.run(WORK + """
end = time.monotonic() + 20  # hosts finish what was in their queues
while any(d.memory_stats()["bytes_in_use"] for d in devices): assert time.monotonic() < end; time.sleep(0.05)
f, x = over(range(N))
assert (np.asarray(f(x)) == 1).all()
""")


LOSS = WORK + """
def lost(f):
  begin = time.monotonic()
  try: jax.block_until_ready(f())
  except jax.errors.JaxRuntimeError as e:
    assert str(e).startswith("DATA_LOSS") and "lost" in str(e), e
  else: assert False, "no error"
  assert time.monotonic() - begin < 5
each = [jax.device_put(np.full(1000, i, np.float32), d) for i, d in enumerate(devices)]
whole = jax.device_put(np.arange(N * 4, dtype=np.float32), shard)
there = range(8, 12)  # host 2's
(all_of, x), (left, y), (right, z) = over(range(N)), over(range(8)), over([0, 15])
x, y, z = all_of(x), left(y), right(z)
jax.block_until_ready((each, whole, x, y, z))
say("ready")
if "flight" in sys.argv:
  end, turns = time.monotonic() + 1, 0
  while time.monotonic() < end:
    x, y, z, turns = all_of(x), left(y), right(z), turns + 1
    if turns % 200 == 0: jax.block_until_ready((y, z))
  lost(lambda: x)
  assert (np.asarray(y) == turns + 1).all() and (np.asarray(z) == turns + 1).all()
else: sys.stdin.readline()
lost(lambda: np.asarray(each[9]))
lost(lambda: each[8] + 1)
lost(lambda: jax.device_put(each[10], devices[0]))
lost(lambda: all_of(x))
lost(lambda: np.asarray(whole))
for i, a in enumerate(each):
  if i not in there: assert (np.asarray(a) == i).all()
for s in whole.addressable_shards:
  if s.device.id not in there: np.asarray(s.data)
assert float(jax.device_put(each[1], devices[14])[0]) == 1
count = int(np.asarray(y)[0, 0])
for i in range(20): y, z = left(y), right(z)
assert (np.asarray(y) == count + 20).all() and (np.asarray(z) == count + 20).all()
end = time.monotonic() + 30
while True:  # `atoll pod up` starts the host again: its chips are there, with nothing on them
  try:
    x = all_of(jax.device_put(np.zeros((N, 4), np.float32), shard))
    assert (np.asarray(x) == 1).all()
    break
  except jax.errors.JaxRuntimeError as e:
    assert str(e).startswith("DATA_LOSS") and time.monotonic() < end, e
    time.sleep(0.1)
lost(lambda: np.asarray(each[9]))
say("done")
"""


def test_a_host_that_is_killed():
  """Its arrays are lost to all clients; all that is elsewhere goes on; the host comes back empty."""
  with up(TWO_SLICES) as pod:
    jobs = [pod.start(LOSS), pod.start(LOSS)]
    for p in jobs:
      assert p.stdout.readline() == "ready\n", p.stderr.read()
    before = pod.status()
    victim = before["hosts"][2]["pid"]
    os.kill(victim, signal.SIGKILL)
    gone = lambda h: h["state"] == "lost" or h["pid"] != victim
    until(lambda: gone(pod.status()["hosts"][2]))
    for p in jobs:
      p.stdin.write("\n")
      p.stdin.flush()
    for p in jobs:
      assert ended(p) == "done\n"
    after = pod.status()
    assert after["state"] == "up" and after["hosts"][2]["pid"] != victim and after["epoch"] > before["epoch"], after
    assert [h["pid"] for i, h in enumerate(after["hosts"]) if i != 2] == [h["pid"] for i, h in enumerate(before["hosts"]) if i != 2]
    out, err = pod.down()
    assert f"{victim}" in err and pod.process.returncode == 0, err


def test_a_host_is_killed_in_flight():
  with up(TWO_SLICES) as pod:
    victim = pod.status()["hosts"][2]["pid"]
    p = pod.start("import sys; sys.argv.append('flight')\n" + LOSS)
    assert p.stdout.readline() == "ready\n", p.stderr.read()
    time.sleep(0.2)
    os.kill(victim, signal.SIGKILL)
    assert ended(p) == "done\n"


def test_ctrl_c(pod):
  """A client that waits: at once. The pod itself: with all its processes."""
  p = pod.start(WORK + """
slow = jax.jit(lambda v: jax.lax.fori_loop(0, 1500, lambda i, u: jnp.tanh(u @ u), v))
x = slow(jax.device_put(np.eye(512, dtype=np.float32), devices[9]))
say("ready")
try: x.block_until_ready()
except KeyboardInterrupt: say("interrupted")
import os; os._exit(0)
""")
  assert p.stdout.readline() == "ready\n", p.stderr.read()
  time.sleep(0.3)
  begin = time.monotonic()
  p.send_signal(signal.SIGINT)
  assert p.stdout.readline() == "interrupted\n" and time.monotonic() - begin < 3
  ended(p)

  # A terminal sends it to all: the command ends as it likes, and `up` with it.
  p = subprocess.Popen([ATOLL, "pod", "up", "--hosts=2", "--target=v6e:1x2", "--", sys.executable, "-c", WORK + """
import os
say(os.getppid())
try:
  while True: (jax.device_put(np.ones(4, np.float32), devices[1]) + 1).block_until_ready()
except KeyboardInterrupt: os._exit(5)
"""], env=PLAIN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
  assert int(p.stdout.readline()) == p.pid
  time.sleep(0.2)
  os.killpg(p.pid, signal.SIGINT)
  p.communicate(timeout=10)
  until(lambda: subprocess.run(["pgrep", "-s", str(p.pid)], capture_output=True).returncode)

  mine = Pod("v6e:2x2", hosts=2)
  pids = [h["pid"] for h in mine.status()["hosts"]]
  client = mine.start(WORK + """
say("ready")
try:
  while True:
    x = jax.device_put(np.ones(4, np.float32), devices[3]) + 1
    x.block_until_ready()
except jax.errors.JaxRuntimeError as e: say(str(e))
""")
  assert client.stdout.readline() == "ready\n"
  mine.process.send_signal(signal.SIGINT)
  out, err = mine.process.communicate(timeout=10)
  assert mine.process.returncode == 0, err
  assert not any(pathlib.Path(f"/proc/{i}").exists() for i in pids)
  assert re.search("the controller of the pod|host . of the pod is lost", ended(client))


# ---- Commands

def test_status_and_down():
  with up("2*v5e:2x2", hosts=2) as pod:
    s = pod.status()
    assert (s["target"], s["state"], s["num_hosts"], s["num_chips"], s["clients"]) == ("2*v5e:2x2", "up", 2, 8, []), s
    assert [(h["host"], h["chips"], h["state"]) for h in s["hosts"]] == [(0, 4, "up"), (1, 4, "up")]
    client = pod.start(WORK + "f, x = over(range(N)); f(x).block_until_ready(); say('ready'); sys.stdin.readline()")
    assert client.stdout.readline() == "ready\n"
    (c,) = pod.status()["clients"]
    assert c["pid"] == client.pid and c["launches"] >= 1 and c["messages"] > 0 and c["bytes"] > 0, c
    p = pod.ask("status")
    assert p.returncode == 0 and p.stdout.startswith("2*v5e:2x2, 8 chips, up\n  host 0"), p.stdout + p.stderr
    assert f"process {client.pid}" in p.stdout and f"process {s['hosts'][1]['pid']}" in p.stdout, p.stdout
    assert pod.ask("status", f"--pod={pod.address}", ATOLL_POD="").returncode == 0
    ended(client)
    assert pod.ask("down").returncode == 0
    assert pod.process.wait(timeout=10) == 0
    assert not any(pathlib.Path(f"/proc/{h['pid']}").exists() for h in s["hosts"])


def test_up_with_a_command():
  run = lambda *command: subprocess.run([ATOLL, "pod", "up", "--hosts=2", "--target=v6e:1x2", "--", *command], env=PLAIN,
                                        capture_output=True, text=True, timeout=60)
  p = run(sys.executable, "-c", "import jax, os, sys; print(len(jax.devices()), os.environ['ATOLL_POD']); sys.exit(7)")
  assert p.returncode == 7 and p.stdout.startswith("2 127.0.0.1:"), p.stdout + p.stderr
  assert run("true").returncode == 0
  assert run("echo", "--hosts=7", "a", "--", "b").stdout == "--hosts=7 a -- b\n"
  assert run("sh", "-c", "kill -9 $$").returncode == 128 + 9
  p = run("/nobody/has/this")
  assert p.returncode == 127 and "/nobody/has/this" in p.stderr, p.stderr


def test_wrong_calls_are_told(pod, tmp_path):
  """Each within a minute, with words that say what to do."""
  other = tmp_path / "token"
  other.write_text("somebody else's secret, long enough")
  other.chmod(0o600)
  nobody = "127.0.0.1:9"
  client = "import jax; jax.devices()"

  def python(**env):
    p = subprocess.run([sys.executable, "-c", client], env={**pod.env, "JAX_PLATFORMS": "tpu", **env}, capture_output=True, text=True, timeout=60)
    assert p.returncode == 1, p.stderr
    return p.stderr

  def ask(*args, **env):
    p = pod.ask(*args, **env)
    assert p.returncode, p.stdout
    return p.stderr

  with concurrent.futures.ThreadPoolExecutor() as beside:
    wrong = [beside.submit(f, *args, ATOLL_POD_TOKEN_FILE=str(other)) for f, *args in ((ask, "status"), (ask, "down"), (python,))]
    none = [beside.submit(f, *args, ATOLL_POD=nobody) for f, *args in ((ask, "status"), (ask, "down"), (python,))]
  for said in wrong:
    assert "give both the same token" in said.result(), said.result()
  for said in none:
    assert nobody in said.result() and "refused" in said.result(), said.result()
  assert "which pod?" in ask("status", ATOLL_POD="")
  assert "ATOLL_POD" in ask("status", ATOLL_POD="nonsense")
  assert "ATOLL_POD" in python(ATOLL_POD="nonsense")
  assert "'sideways'" in ask("sideways")
  for args, word in ((("--hosts=0",), "--hosts=0"), (("--hosts=x",), "--hosts=x"), (("--hosts=3", "--target=v6e:2x2"), "3"),
                     (("--target=v99",), "v99"), (("--listen=nonsense",), "nonsense"), (("--",), "no command"),
                     (("--more",), "--more")):
    assert word in ask("up", *args), (args, word)
  assert pod.status()["clients"] == []  # nothing of it has come to the pod
