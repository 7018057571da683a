"""Programs of several computations: their graphs, passes over them, and what becomes of them when hosts change."""

import os
import re

import pytest

from pods import PACKAGE, Pod, python

HEAD = """
import os, signal, sys, time
import atoll, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
D = jax.devices()
def on(first, n): return NamedSharding(Mesh(np.array(D[first:first + n]), ("x",)), P("x"))
@jax.jit
def a(x): return x + 1
@jax.jit
def b(x): return x * 3
def put(s, *shape): return jax.device_put(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), s)
"""


@pytest.fixture(scope="module")
def pod():
  with Pod("--hosts=4", "--target=2*v5e:2x4") as p:
    yield p


def run(pod, code, **env):
  p = python(HEAD + code, PYTHONPATH=PACKAGE, ATOLL_POD=pod.address, TPU_LIBRARY_PATH=os.environ["TPU_LIBRARY_PATH"], **env)
  assert not p.returncode, p.stdout + p.stderr
  return p.stdout


CHAIN = """
for n in {}:
  @atoll.program
  def f(x): return b(a(x))
  x = jax.jit(lambda: jnp.zeros(n, jnp.float32), out_shardings=on(0, n))()
  print(f.lower(x).as_text())
"""


def chain(n):
  return f"""program of 4 nodes {{
  %0 = argument 0
  %1 = compute jit_a(%0) on d0 : f32[1]
  %2 = compute jit_b(%1) on d0 : f32[1]
  drop %1
  return %2
}}
d0: {n} device{"s" * (n != 1)}
pass: 1 arrays dropped after their last use

"""


def test_a_chain_is_four_nodes_for_any_number_of_shards(pod, tmp_path):
  assert run(pod, CHAIN.format("1, 16")) == chain(1) + chain(16)
  with Pod("--hosts=1", "--target=v5p:16x16x16") as many:
    assert run(many, CHAIN.format("[4096]"), ATOLL_DUMP=str(tmp_path)) == chain(4096)
  (text,) = tmp_path.glob("f.*.program.txt")
  assert text.read_text() + "\n" == chain(4096)


def test_passes_change_no_bit(pod):
  assert run(pod, """
there = on(8, 8)
def f(x, host):
  u, v = a(x), a(x)                       # the same
  b(b(u))                                 # nobody wants it
  w = jax.device_put(jax.device_put(u, there), on(0, 8))
  c = jax.device_put(host, D[3])
  return b(v) + b(w), jax.device_put(jax.device_put(c, D[9]), D[14]), u
x, host = put(on(0, 8), 16, 4), np.arange(5.)
with_, without = atoll.program(f), atoll.program(f, passes=False)
for k in range(3):
  want, got, plain = f(x, host), with_(x, host), without(x, host)
  for w, g, p in zip(want, got, plain):
    assert np.array_equal(w, g) and np.array_equal(w, p) and w.sharding == g.sharding == p.sharding
  x, host = a(x), host + 1
print(with_.lower(x, host).as_text())
""") == """program of 6 nodes {
  %0 = argument 0
  %1 = argument 0 of the host
  %2 = compute jit_a(%0) on d0 : f32[2,4]
  %3 = compute jit_b(%2) on d0 : f32[2,4]
  %4 = compute jit_add(%3, %3) on d0 : f32[2,4]
  drop %3
  return %4, %1 -one-to-one-> d1, %2
}
d0: 8 devices
d1: 1 device
pass: 10 copies removed or shortened
pass: 3 done once instead of twice
pass: 10 without a use removed
pass: 1 arrays dropped after their last use

"""


RESHARD = """
from atoll import _reshard
_reshard.install()  # as where the package is installed
HOST = 4  # chips of one
def least(x, s):
  has, wants = (np.zeros((4, *x.shape), bool) for _ in range(2))
  for m, t in ((has, x.sharding), (wants, s)):
    for d, i in t.devices_indices_map(x.shape).items(): m[(d.id // HOST, *i)] = True
  return int((wants & ~has).sum()) * x.dtype.itemsize
two, three = Mesh(np.array(D[:8]).reshape(4, 2), ("x", "y")), Mesh(np.array(D[5:14]).reshape(3, 3), ("x", "y"))
"""


def test_every_byte_crosses_once(pod):
  run(pod, RESHARD + """
specs = P(), P("x"), P("y", "x"), P(None, ("y", "x"))
values = np.random.default_rng(0).integers(0, 7, (36, 72, 3))
for kind in (np.float32, jnp.int4):
  for s in specs:
    v = values.astype(kind)
    x = jax.device_put(v, NamedSharding(two, s))
    for t in [NamedSharding(three, t) for t in specs] + [jax.sharding.SingleDeviceSharding(D[15])]:
      y = jax.device_put(x, t)
      assert y.sharding == t and y.committed
      for p in y.addressable_shards: assert np.array_equal(np.asarray(p.data), v[p.index])
      assert kind == jnp.int4 or _reshard.plan(x, t).wire_bytes == least(x, t), (s, t)
z = jax.device_put(jax.random.key(3), NamedSharding(two, P()))
assert jax.random.key_data(jax.device_put(z, NamedSharding(three, P()))).tolist() == jax.random.key_data(z).tolist()
big = jax.device_put(np.arange(1 << 21, dtype=np.float32).reshape(2048, 1024), NamedSharding(two, P("x", "y")))
got = jax.device_put(big, NamedSharding(Mesh(np.array(D[8:]).reshape(2, 4), ("x", "y")), P("y")))
assert np.array_equal(np.asarray(got), np.asarray(big))
""")


def test_what_is_sent_is_what_is_needed():
  """Counted on the wire between hosts; what they can read in each other's memory does not pass there."""
  with Pod("--hosts=4", "--target=2*v5e:2x4", ATOLL_LOG="info", ATOLL_POD_WIRE="messages") as pod:
    needed = int(run(pod, RESHARD + """
x = jax.jit(lambda: jnp.ones((480, 1152)), out_shardings=NamedSharding(two, P("x", "y")))()
sum = 0
for t in P("y"), P(None, "y"), P():
  t = NamedSharding(three, t)
  sum += least(x, t)
  assert np.asarray(jax.device_put(x, t)).min() == 1
print(sum)
"""))
    pod.process.terminate()
    pod.process.wait(30)
    pod.thread.join(30)
  sent = [int(n) for line in pod.errors for n in re.findall(r"has sent the others (\d+) bytes", line)]
  assert len(sent) == 4 and needed > 1 << 20 and needed <= sum(sent) <= 1.05 * needed, (needed, sent, pod.errors)


def test_edges_of_programs_reshard(pod):
  assert run(pod, RESHARD + """
import gc
to = NamedSharding(three, P("y"))
@atoll.program
def f(x):
  y = jax.device_put(a(x), to)
  return b(y), jax.device_put(jax.device_put(y, D[14]), NamedSharding(two, P()))
x = jax.device_put(np.arange(24. * 6).astype(np.float32).reshape(24, 6), NamedSharding(two, P("x", "y")))
for k in range(3):
  y, z = f(x)
  assert np.array_equal(y, (np.asarray(x) + 1) * 3) and np.array_equal(z, np.asarray(x) + 1)
  assert y.sharding == to
  x = a(x)
print(f.lower(x).as_text())
# Errors of what is resharded are those of the result.
import signal
from jax.experimental import io_callback
def bad(v): raise RuntimeError("on purpose")
e = jax.jit(lambda v: jax.pure_callback(bad, jax.ShapeDtypeStruct(v.shape, v.dtype), v))(jax.device_put(np.ones((4, 4), np.float32), D[0]))
try: print(np.asarray(b(jax.device_put(e, to.__class__(Mesh(np.array(D[8:10]), ("x",)), P("x"))))))
except Exception as e: print("on purpose" in str(e))
""") == """program of 4 nodes {
  %0 = argument 0
  %1 = compute jit_a(%0) on d0 : f32[6,3]
  %2 = compute jit_b(%1 -many-to-many-> d1) on d1 : f32[8,6]
  drop %1
  return %2, %1 -many-to-many-> d1 -many-to-many-> d2 -one-to-many-> d0
}
d0: 8 devices
d1: 9 devices
d2: 1 device
pass: 3 arrays dropped after their last use

True
"""


def test_a_run_is_one_message(pod):
  run(pod, RESHARD + """
import json, subprocess
def sent():
  out = subprocess.run([os.environ["ATOLL"], "pod", "status", "--json"], capture_output=True, text=True, check=True).stdout
  c, = [c for c in json.loads(out)["clients"] if c["pid"] == os.getpid()]
  return c["messages"]
@atoll.program
def inner(x): return a(b(a(x)))
@atoll.program
def f(x):
  for i in range(25):
    x = inner(jax.device_put(x, NamedSharding(three if i % 2 else two, P("y"))))
  return x
x = put(NamedSharding(two, P("x", "y")), 24, 6)
x = f(f(x))
x.block_until_ready()
before = sent()
for _ in range(10): x = f(x)
x.block_until_ready()
assert sent() - before <= 22, sent() - before  # the run, and that its argument is dropped
assert all("program of 77 nodes" in str(g) for g in f.graphs) and not inner.graphs
""")


HOST = """
import threading
calls = []
def F32(*shape, **more): return jax.ShapeDtypeStruct(shape, np.float32, **more)
@atoll.host_function(F32(8, 4, sharding=on(0, 8)))
def load(step):
  calls.append("load")
  return np.full((8, 4), step, np.float32)
@atoll.host_function(F32())
def metric(v, step):
  calls.append("metric")
  if step == 2: raise ValueError("on purpose")
  return v.sum() + step
@atoll.host_function((F32(2),))
def both(m, v): return (np.array([m, v.max()], np.float32),)
x = put(on(0, 8), 8, 4)
"""


def test_host_functions_are_nodes(pod):
  assert run(pod, HOST + """
@atoll.program
def f(x, step):
  y = a(x) + load(step)
  m = metric(y, step)
  return b(y), m, b(m), both(m, x)
text = f.lower(x, np.asarray(1, np.float32)).as_text()
assert not calls  # nothing of it runs
for k in range(5):
  y, m, bm, (o,) = f(x, np.asarray(k, np.float32))
  want = np.asarray(x) + 1 + k
  assert np.array_equal(y, want * 3), k
  for v, w in (m, want.sum() + k), (bm, 3 * (want.sum() + k)), (o, [want.sum() + k, 31]):
    if k != 2:
      assert np.array_equal(v, np.asarray(w, np.float32)), (k, v, w)
      continue
    try: np.asarray(v)
    except Exception as e: assert "metric: ValueError: on purpose" in str(e), e
    else: assert False
assert len(f.graphs) == 1 and calls == ["load", "metric"] * 5, calls
print(text)
""") == """program of 11 nodes {
  %0 = argument 0
  %1 = compute jit_a(%0) on d0 : f32[1,4]
  %2 = host load()
  %3 = compute jit_add(%1, %2) on d0 : f32[1,4]
  drop %1
  %4 = host metric(%3)
  %5 = compute jit_b(%3) on d0 : f32[1,4]
  %6 = compute jit_b(%4) on d0 : f32[]
  %7 = host both(%4, %0)
  %8 = compute jit_copy(%4) on d0 : f32[]
  %9 = compute jit_copy(%7) on d0 : f32[2]
  return %5, %8, %6, %9
}
d0: 8 devices
pass: 1 arrays dropped after their last use

"""


def test_host_functions_run_beside_the_devices(pod):
  run(pod, HOST + """
held = threading.Event()
held.set()
@atoll.host_function(F32(4))
def slow(v):
  held.wait(20)
  return v + 1
@atoll.program
def f(x, y): return b(slow(x)), a(y)
x, y = jax.device_put(np.zeros(4, np.float32), D[0]), jax.device_put(np.zeros(4, np.float32), D[9])
f(x, y)
held.clear()
out = [f(x, y) for _ in range(3)]
for _, w in out: assert np.asarray(w).tolist() == [1] * 4  # nobody has let go yet
held.set()
for v, _ in out: assert np.asarray(v).tolist() == [3] * 4
# Of shapes that are not known before. First, of arguments: the rest is a graph for each.
seen = []
@atoll.host_function
def keep(v, most):
  seen.append(len(v))
  return v[v < most], np.int32(len(v))
@atoll.program
def early(v, most):
  traced.append(1)
  few, n = keep(v, most)
  return a(few), n + few.shape[0], b(y)
traced = []
for most in (3, 5, 3, 5, 9, 0, 3):
  u, n, _ = early(np.arange(8.), most * np.ones((1,), np.int32))
  assert np.array_equal(u, np.arange(min(most, 8)) + 1) and int(n) == 8 + min(most, 8), most
assert len(early.graphs) == 4 and len(seen) == 7 and len(traced) == 5, (early.graphs, seen, traced)
assert "argument 2 of the host" in str(early.graphs[0]), str(early.graphs[0])
# Of what the program makes: one after another.
@atoll.host_function
def keep(v): return v[v > 2]
g = atoll.program(lambda v: a(keep(b(v))))
for n in (4, 6, 4):
  v = jax.device_put(np.arange(n, dtype=np.float32), D[0])
  assert np.array_equal(g(v), 3 * np.arange(1, n) + 1), n
assert not g.graphs
# What is donated later cannot be read then.
h = atoll.program(lambda v: (lambda u: (metric(u, 0), jax.jit(lambda u: u + 1, donate_argnums=0)(u)))(a(v)))
for _ in range(2):
  m, u = h(x)
  assert float(m) == 4 and np.asarray(u).tolist() == [2] * 4
# Outside of programs they are functions.
assert float(metric(x, 1)) == 1 and load(np.float32(3)).sharding == on(0, 8)
""")


def test_it_is_compiled_in_the_background(pod):
  run(pod, """
traced = []
@atoll.program
def f(x, y):
  traced.append(x.shape)
  return b(a(x)) + y
x = put(on(0, 8), 8, 4)
like = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
done = f.compile_in_background(like, np.float32(2) * np.ones(4, np.float32))
assert "compute jit_b" in done.result().as_text() and len(traced) == 1
y = f(x, np.ones(4, np.float32))
assert np.array_equal(y, (np.asarray(x) + 1) * 3 + 1) and len(traced) == 1, traced
done = [f.compile_in_background(jax.ShapeDtypeStruct((16, 4), x.dtype, sharding=s), np.ones(4, np.float32))
        for s in (x.sharding, x.sharding, on(8, 8))]
f(put(on(0, 8), 16, 4), np.ones(4, np.float32))  # waits for it
for d in done: d.result()
assert len(traced) == 3, traced  # a shape, and a place
@jax.jit
def step(x, y): return x + y
g = atoll.program(jax.jit(lambda x, y: x + y, donate_argnums=0))
g.lower(x, x)
assert not x.is_deleted()
g(x, a(x))
assert x.is_deleted()
""")


def test_what_cannot_be_lowered_says_why(pod):
  assert "looks at the values" in run(pod, """
@atoll.program
def f(x): return a(x) if float(x.sum()) > 1e9 else b(x)
try: f.lower(put(on(0, 8), 8))
except ValueError as e: print(e)
""")


def test_a_remap_lowers_once_and_traces_nothing():
  with Pod("--hosts=2", "--target=v5e:2x2") as pod:
    pid = pod.host(1)["pid"]
    out = run(pod, f"""
traced = []
@atoll.program
def f(x, host):
  traced.append(1)
  y = jax.device_put(a(x), NamedSharding(on(2, 2).mesh, P()))
  return b(y) + jax.device_put(host, on(2, 2))
def go():
  x = put(on(0, 2), 4)
  return np.asarray(f(x, np.arange(4.)))
kept = put(on(0, 2), 4)  # on the host that stays
@atoll.program
def g(x):
  traced.append(2)
  return x + kept
g(kept)
want = go()
os.kill({pid}, signal.SIGKILL)
until = time.monotonic() + 60
while True:
  try: got = go(); break
  except (RuntimeError, ValueError) as e:
    assert time.monotonic() < until and "lost" in str(e), e
    time.sleep(.1)
assert np.array_equal(got, want) and np.array_equal(go(), want)
assert np.array_equal(g(kept), 2 * np.arange(4))
print(traced)
""")
    assert out == "[2, 1]\n"
