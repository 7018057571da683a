"""Programs over several chips: collectives, order of launches, waiting."""

import pytest

EIGHT = {"ATOLL_TARGET": "v5e:2x4", "JAX_PLATFORMS": "tpu"}
HEAD = """
import threading, time, os
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
n = len(devices)
mesh = Mesh(np.array(devices), ("x",))
cut = NamedSharding(mesh, P("x"))
def mapped(f, out=P("x"), mesh=mesh, spec=P("x")):
  return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=out, check_vma=False))
"""


def ok(python, code, env=EIGHT, timeout=120):
  p = python(HEAD + code, env=env, timeout=timeout)
  assert p.returncode == 0, p.stdout + p.stderr
  return p.stdout


def test_collectives_against_numpy(python):
  ok(python, """
for dtype in (np.float32, np.int32, np.int8, jnp.bfloat16, np.complex64, np.float64):
  for rows, cols in ((8, 5), (16, 3), (64, 4097)):
    x = (np.arange(n * rows * cols) % 7).reshape(n * rows, cols).astype(dtype)
    if dtype == np.float64: x = x.astype(np.float32)
    v = jnp.asarray(x)
    parts = np.asarray(x).reshape(n, rows, cols)
    total = parts.sum(0, dtype=parts.dtype)
    same = np.testing.assert_array_equal
    same(mapped(lambda a: lax.psum(a, "x"), P())(v), total)
    if dtype != np.complex64: same(mapped(lambda a: lax.pmax(a, "x"), P())(v), parts.max(0))
    same(mapped(lambda a: lax.all_gather(a, "x", tiled=True), P())(v), x)
    same(mapped(lambda a: lax.all_gather(a, "x", axis=1, tiled=True), P())(v), np.concatenate(parts, 1))
    same(mapped(lambda a: lax.psum_scatter(a, "x", tiled=True))(v), total)
    same(mapped(lambda a: lax.all_to_all(a, "x", 0, 0, tiled=True))(v),
         np.concatenate([np.concatenate([p.reshape(n, -1, cols)[i] for p in parts]) for i in range(n)]))
    same(mapped(lambda a: lax.all_to_all(a, "x", 0, 1, tiled=True))(v),
         np.concatenate([np.concatenate([p.reshape(n, -1, cols)[i] for p in parts], 1) for i in range(n)]))
    same(mapped(lambda a: lax.ppermute(a, "x", [(i, (i + 3) % n) for i in range(n)]))(v), np.roll(parts, 3, 0).reshape(x.shape))
    same(mapped(lambda a: lax.ppermute(a, "x", [(0, 1)]))(v)[:rows], np.zeros_like(total))
""")


def test_groups_of_a_mesh_and_loops_that_differ(python):
  ok(python, """
m = Mesh(np.array(devices).reshape(4, 2), ("a", "b"))
x = jnp.arange(8.0)
f = mapped(lambda v: lax.psum(v, "a") + 100 * lax.axis_index("b"), P("b"), m, P(("a", "b")))
assert np.asarray(f(x)).tolist() == [12.0, 116.0]
# Each row loops its own number of times; its collectives stay within the row.
def body(v):
  k = lax.axis_index("a") + 1
  return lax.while_loop(lambda s: s[0] < k, lambda s: (s[0] + 1, lax.psum(s[1], "b")), (0, v))[1]
assert np.asarray(mapped(body, P(("a", "b")), m, P(("a", "b")))(jnp.ones(8))).tolist() == [2, 2, 4, 4, 8, 8, 16, 16]
""")


def test_devices_that_leave_a_collective_out_are_named(python):
  out = ok(python, """
def body(v):
  k = lax.axis_index("x")
  return lax.while_loop(lambda s: s[0] < k, lambda s: (s[0] + 1, lax.psum(s[1], "x")), (0, v))[1]
try:
  jax.block_until_ready(mapped(body)(jnp.ones(8)))
except Exception as e:
  print(e)
""")
  assert "deadlock" in out and "has ended the program" in out and "chip 1 waits in all_reduce" in out


@pytest.mark.parametrize("target,steps", [("v5e:1x2", 10000), ("v5e:2x4", 10000), ("v5e:8x8", 2000)])
def test_thousands_of_steps_in_flight(python, target, steps):
  ok(python, f"""
step = mapped(lambda v: lax.psum(v, "x") * 0.1 + 1.)
x = y = jax.device_put(jnp.ones((n,)), cut)
want = np.float32(1)
for _ in range({steps}):
  y = step(y)
  want = np.float32(np.float32(want * n) * np.float32(0.1)) + np.float32(1)
  if not np.isfinite(want): break
got = np.asarray(y)
assert np.all(got == got[0])
if np.isfinite(want): np.testing.assert_allclose(got, want, rtol=1e-2)
""", env={**EIGHT, "ATOLL_TARGET": target})


OPPOSITE = """
def program(scale):
  return mapped(lambda v: lax.fori_loop(0, 2, lambda i, u: lax.psum(u, "x") * (scale / n), v))
f, g = program(1.0), program(2.0)
x = jax.device_put(jnp.ones((n,)), cut)
jax.block_until_ready((f(x), g(x)))
errors = []
def work(first, second):
  try:
    for i in range(ROUNDS):
      if errors: return  # the other thread's launches have met a deadlock
      a, b = first(x), second(x)
      if i % 200 == 199: jax.block_until_ready((a, b))
    assert sorted([float(a[0]), float(b[0])]) == [1.0, 4.0]
  except Exception as e:
    errors.append(str(e))
threads = [threading.Thread(target=work, args=p) for p in ((f, g), (g, f))]
for t in threads: t.start()
for t in threads: t.join()
print(errors[0] if errors else "in order")
"""


def test_opposite_orders_of_two_threads(python):
  assert "in order" in ok(python, OPPOSITE.replace("ROUNDS", "10000"))


def test_without_the_gang_scheduler_they_deadlock_and_are_diagnosed(python):
  out = ok(python, OPPOSITE.replace("ROUNDS", "10000"), env={**EIGHT, "ATOLL_GANG": "off"})
  assert "deadlock" in out and "waits in all_reduce" in out and "of launch" in out


def test_steps_are_accepted_while_the_first_waits(python):
  ok(python, """
def hold(v):
  time.sleep(1)
  return v
def first(v):
  return jax.pure_callback(hold, jax.ShapeDtypeStruct((), np.float32), v)
pieces = [jax.device_put(np.ones((1,), np.float32), d) for d in devices]
step = mapped(lambda v: lax.psum(v, "x") / n + 1.)
whole = lambda p: jax.make_array_from_single_device_arrays((n,), cut, p)
jax.block_until_ready(step(whole(pieces)))
held = jax.jit(first)
slow = jax.jit(lambda v: first(v[0])[None])
jax.block_until_ready(slow(pieces[0]))
t = time.perf_counter()
y = whole([slow(pieces[0])] + pieces[1:])
for _ in range(1000): y = step(y)
accepted = time.perf_counter() - t
threads = len(os.listdir("/proc/self/task"))
assert np.all(np.asarray(y) == 1001), y
total = time.perf_counter() - t
assert accepted < 0.9 < total, (accepted, total)
""", env={**EIGHT, "JAX_PLATFORMS": "tpu,cpu"})


def test_donated_shards_and_errors(python):
  ok(python, """
f = jax.jit(jax.shard_map(lambda v: v + lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P("x")), donate_argnums=0)
x = jax.device_put(jnp.ones((n,)), cut)
y = f(x)
assert x.is_deleted() and np.asarray(y).tolist() == [n + 1.0] * n
try:
  f(x); raise SystemExit("a deleted array was taken")
except (RuntimeError, ValueError): pass
""")


def test_slices_and_meshes(python):
  ok(python, """
from jax.experimental import mesh_utils
assert [d.slice_index for d in devices] == [0] * 4 + [1] * 4
assert [tuple(d.coords) for d in devices[:4]] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
h = mesh_utils.create_hybrid_device_mesh((2, 2), (2, 1), devices)
assert h.shape == (4, 2) and {d.slice_index for d in h[:2].flat} == {0}
m = Mesh(h, ("a", "b"))
f = mapped(lambda v: lax.psum(v, "a"), P("b"), m, P(("a", "b")))
assert np.asarray(f(jnp.ones(8))).tolist() == [4.0, 4.0]
""", env={**EIGHT, "ATOLL_TARGET": "2*v5e:2x2"})
  ok(python, """
m = jax.make_mesh((4, 4), ("a", "b"))
assert m.devices.shape == (4, 4) and n == 16
assert max(d.coords[2] for d in devices) == 3
""", env={**EIGHT, "ATOLL_TARGET": "v5p:2x2x4"})


def test_summands_stay_apart_until_somebody_adds_them(python):
  ok(python, """
m = Mesh(np.array(devices), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
with jax.set_mesh(m):
  a = jax.device_put(np.arange(32.).reshape(2, 16), P(None, "x"))
  b = jax.device_put(np.arange(48.).reshape(16, 3), P("x"))
  f = jax.jit(lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=P(unreduced={"x"})))
  out = f(a, b)
  parts = np.stack([np.asarray(s.data) for s in out.addressable_shards])
  want = np.einsum("ijd,djk->dik", np.arange(32.).reshape(2, 8, 2).transpose(0, 2, 1), np.arange(48.).reshape(8, 2, 3))
  np.testing.assert_array_equal(parts, want)
  np.testing.assert_array_equal(jax.reshard(out, P()), want.sum(0))
  text = jax.jit(lambda a, b: jax.reshard(f(a, b), P())).lower(a, b).compile().as_text()
  assert text.count(" all-reduce(") == 1 and "f32[2,2]" in text and "f32[2,16]" not in text, text
""")


ASYNC = """
import glob, tempfile
def compiled_with(hide, f, *args):
  os.environ["ATOLL_LATENCY_HIDING"] = hide
  with tempfile.TemporaryDirectory() as os.environ["ATOLL_DUMP"]:
    compiled = f.lower(*args).compile()
    steps = "".join(open(p).read() for p in glob.glob(os.environ["ATOLL_DUMP"] + "/*steps.txt"))
  assert (" start (" in steps) == (" done (" in steps) == (hide == "on"), steps
  return compiled
def both(make, *args):
  results = []
  for hide in ("off", "on"):
    compiled = compiled_with(hide, make(), *args)
    for _ in range(20): results.append([np.asarray(r) for r in jax.tree.leaves(compiled(*args))])
  for other in results[1:]:
    for a, b in zip(results[0], other): np.testing.assert_array_equal(a, b)
x = jax.device_put(np.random.default_rng(0).standard_normal((8 * n, 64)).astype(np.float32), cut)
ws = [jax.device_put(np.random.default_rng(i).standard_normal(s).astype(np.float32) * .1, cut)
      for i, s in enumerate([(64, 768), (768, 768), (768, 768), (768, 64)])]
"""


def test_asynchronous_collectives_give_the_same(python):
  ok(python, ASYNC + """
def layers(x, *ws):
  for w in ws: x = jnp.tanh(x @ lax.all_gather(w, "x", tiled=True))
  return x
grad = lambda: jax.jit(jax.grad(lambda ws, x: jnp.sum(jax.shard_map(layers, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x, *ws) ** 2)))
both(grad, ws, x)
# Every kind, also of devices that take no part, with other work beside; donated operands; loops and branches.
def kinds(x, w):
  y = jnp.sin(x)
  out = [lax.psum(x, "x"), lax.all_to_all(x, "x", 0, 1, tiled=True), lax.psum_scatter(x, "x", tiled=True),
         lax.ppermute(x, "x", [(0, 1), (1, 2)]), lax.all_gather(x, "x", axis=1, tiled=True)]
  for _ in range(3): y = jnp.cos(y @ w)
  return [y, *out]
both(lambda: mapped(kinds, spec=(P("x"), P())), x, np.ones((64, 64), np.float32) / 64)
def turns(x, w):
  def body(i, s):
    a, b = s
    sent = lax.ppermute(a, "x", [(k, (k + 1) % n) for k in range(n)])
    b = jnp.tanh(b @ w)
    return sent + 1, lax.cond(i % 2 == 0, lambda: lax.psum(b, "x") * .1 + jnp.sin(b), lambda: b)
  return lax.fori_loop(0, 7, body, (x, x))
both(lambda: mapped(turns, spec=(P("x"), P())), x, np.ones((64, 64), np.float32) / 64)
""", env={**EIGHT, "ATOLL_VERIFY": "1", "ATOLL_GUARD": "1"}, timeout=300)


def test_asynchronous_collectives_that_fail_or_wait_for_ever(python):
  out = ok(python, ASYNC + """
def wrong(x, fails):
  moved = lax.ppermute(x, "x", [(i, (i + 1) % n) for i in range(n)])
  z = x
  for i in range(6):
    z = jnp.tanh(z @ z.T @ x)
    if i == 2: z = lax.cond(fails[0], lambda v: jax.ffi.ffi_call("nobody", jax.ShapeDtypeStruct(v.shape, v.dtype))(v), lambda v: v, z)
  return moved, z
ones = [jax.device_put(np.arange(n) == k, cut) for k in (-1, 3)]
f = compiled_with("on", mapped(wrong), x, ones[0])
for _ in range(30):
  jax.block_until_ready(f(x, ones[0]))
  try:
    jax.block_until_ready(f(x, ones[1]))
    raise SystemExit("a call that is not there was made")
  except jax.errors.JaxRuntimeError as e:
    assert "nobody" in str(e), e
def body(s):
  total = lax.psum(s[1], "x")
  return s[0] + 1, jnp.tanh(s[1] @ s[1].T @ s[1]) , total
def lonely(v):
  k = lax.axis_index("x")
  return lax.while_loop(lambda s: s[0] < k, body, (0, v, v))[1:]
try:
  jax.block_until_ready(compiled_with("on", mapped(lonely), x)(x))
except Exception as e:
  print(e)
""")
  assert "deadlock" in out and "has ended the program" in out and "chip 1 waits in all_reduce" in out


def test_programs_with_gspmds_marks(python):
  ok(python, """
jax.config.update("jax_use_shardy_partitioner", False)
m = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
x = np.arange(128.).reshape(16, 8)
v = jax.device_put(x, NamedSharding(m, P("x", "y")))
f = jax.jit(lambda x: (x @ x.T).sum(0) + lax.with_sharding_constraint(x[:, 0] * 2, NamedSharding(m, P("y"))))
np.testing.assert_array_equal(f(v), (x @ x.T).sum(0) + x[:, 0] * 2)
g = jax.jit(jax.shard_map(lambda x: lax.psum(x, "x") + lax.axis_index("y"), mesh=m, in_specs=P("x", "y"), out_specs=P(None, "y")))
np.testing.assert_array_equal(g(v), x.reshape(4, 4, 8).sum(0) + np.repeat([0, 1], 4))
""")
