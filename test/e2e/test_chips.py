"""Programs over several chips: collectives, order of launches, waiting."""

import pathlib
import subprocess
import sys

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


def test_memory_kinds_of_a_sharded_program(python):
  ok(python, """
host = cut.with_memory_kind("pinned_host")
w, x = (np.arange(64, dtype=np.float32).reshape(8, 8) / k for k in (7, 9))
step = jax.jit(lambda w, x: (jax.device_put(w, cut) @ x, jax.device_put(x + 1, host)), out_shardings=(cut, host))
y, kept = step(jax.device_put(w, host), jax.device_put(x, cut))
assert (y.sharding.memory_kind, kept.sharding.memory_kind) == ("device", "pinned_host")
np.testing.assert_allclose(y, w @ x, rtol=1e-6)
np.testing.assert_array_equal(kept, x + 1)
""")


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


@pytest.mark.parametrize("check", ["chain-2", "chain-8", "chain-64", "opposite", "unordered", "held"])
def test_ten_thousand_launches(library, check):
  gang = pathlib.Path(__file__).resolve().parents[2] / "bench" / "gang.py"
  p = subprocess.run([sys.executable, gang, "--library", library, "--only", check],
                     capture_output=True, text=True, timeout=400)
  assert p.returncode == 0, p.stdout + p.stderr


def test_donated_shards_and_errors(python):
  ok(python, """
f = jax.jit(jax.shard_map(lambda v: v + lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P("x")), donate_argnums=0)
x = jax.device_put(jnp.ones((n,)), cut)
y = f(x)
assert x.is_deleted() and np.asarray(y).tolist() == [n + 1.0] * n
try:
  f(x); raise SystemExit("a deleted array was taken")
except (RuntimeError, ValueError): pass
# What passes through stays where it is, on every device; who donates one of them gets a copy.
places = lambda v: [s.data.unsafe_buffer_pointer() for s in v.addressable_shards]
kept, moved, again = jax.jit(jax.shard_map(lambda v: (v, v + lax.psum(v, "x"), v), mesh=mesh, in_specs=P("x"),
                                           out_specs=P("x")))(y)
assert places(kept) == places(y) == places(again)
z = f(kept)
assert np.asarray(z).tolist() == [(n + 1.0) * (n + 1)] * n and np.asarray(y).tolist() == np.asarray(again).tolist() == [n + 1.0] * n
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
from atoll import ffi
from jaxlib import lapack, xla_client
xla_client.register_custom_call_handler("tpu", ffi.handler(os.environ["TPU_LIBRARY_PATH"]))
jax.ffi.register_ffi_target("of_two_results", lapack._lapack.registrations()["lapack_sgeqrf_ffi"], platform="tpu")
def wrong(x, fails):
  moved = lax.ppermute(x, "x", [(i, (i + 1) % n) for i in range(n)])
  z = x
  for i in range(6):
    z = jnp.tanh(z @ z.T @ x)
    if i == 2: z = lax.cond(fails[0], lambda v: jax.ffi.ffi_call("of_two_results", jax.ShapeDtypeStruct(v.shape, v.dtype))(v), lambda v: v, z)
  return moved, z
ones = [jax.device_put(np.arange(n) == k, cut) for k in (-1, 3)]
f = compiled_with("on", mapped(wrong), x, ones[0])
for _ in range(30):
  jax.block_until_ready(f(x, ones[0]))
  try:
    jax.block_until_ready(f(x, ones[1]))
    raise SystemExit("a call with the wrong arguments was made")
  except jax.errors.JaxRuntimeError as e:
    assert "of_two_results" in str(e), e
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


def test_dimensions_that_axes_do_not_divide(python):
  ok(python, """
m = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(s).astype(np.float32) for s in ((50, 30), (30, 13)))
def f(a, b, pin):
  c = pin(jnp.tanh(jnp.dot(pin(a, "x"), b, precision="highest")), "x", "y")   # 50 in 4: 13, 13, 13, 11
  d = pin(a, None, ("x", "y"))                                                # 30 in 8
  e = jnp.dot(d, pin(b, ("x", "y")), precision="highest")                     # summed over parts of 30
  rows = c[jnp.arange(7) * 8 % 50]
  return c, e, c.sum(0), c.max(1), (c - c.mean(0)) / c.std(0), jnp.cumsum(c, 0), pin(d.T, "x") * 2, jax.nn.softmax(d), rows
cut = jax.jit(lambda a, b: f(a, b, lambda v, *s: lax.with_sharding_constraint(v, NamedSharding(m, P(*s)))))
whole = jax.jit(lambda a, b: f(a, b, lambda v, *s: v))
for g, w in zip(cut(a, b), whole(a, b)): np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5)
text = cut.lower(a, b).compile().as_text()
for shape in ("f32[13,7]", "f32[50,4]", "f32[4,13]"): assert shape in text, (shape, text)
""")


def test_what_is_gathered_is_told(python, tmp_path):
  out = ok(python, """
import glob
a = jax.device_put(np.ones((8, 8), np.float32), cut)
jax.block_until_ready(jax.jit(lambda a: jnp.sort(a, 0) + jnp.linalg.qr(a)[0] + jnp.sort(a, 1))(a))
print(open(glob.glob(os.environ["ATOLL_DUMP"] + "/*partition.txt")[0]).read())
""", env={**EIGHT, "ATOLL_DUMP": str(tmp_path), "ATOLL_CACHE": "off"})
  assert out.count("operand 0 whole along 0") == 1 and "whole on every device: " in out and "geqrf" in out, out


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
# Only one axis is the program's; the other cuts what is inside too.
part = lambda f, out=P("x"): jax.jit(jax.shard_map(f, mesh=m, in_specs=P("x"), out_specs=out, axis_names={"x"}, check_vma=False))
h = part(lambda x: lax.psum(x @ x.T, "x") + lax.axis_index("x"))
np.testing.assert_array_equal(h(v), np.concatenate([sum(b @ b.T for b in x.reshape(4, 4, 8)) + i for i in range(4)]))
k = part(lambda x: lax.with_sharding_constraint(jnp.cumsum(x, 0) * 2, P(None, "y")))
out = k(v)
np.testing.assert_array_equal(out, np.concatenate([b.cumsum(0) * 2 for b in x.reshape(4, 4, 8)]))
assert out.sharding.shard_shape(out.shape) == (4, 4), out.sharding
# A region in a region.
inner = jax.shard_map(lambda x: lax.psum(x, "y"), in_specs=P(None, "y"), out_specs=P(), axis_names={"y"})
nested = part(lambda x: lax.psum(inner(x), "x"), P())
np.testing.assert_array_equal(nested(v), x.reshape(4, 4, 2, 4).sum((0, 2)))
""")
