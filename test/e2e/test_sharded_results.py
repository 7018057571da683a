"""What clients are told of results and arguments whose shardings were left open."""

from pathlib import Path

from test_chips import EIGHT, ok

HEAD = """
import sys
sys.path.insert(0, %r)
import sharded_random
from jax.sharding import AxisType
def mesh_of(shape, names, devices=devices):
  return Mesh(np.array(devices).reshape(shape), names, axis_types=(AxisType.Auto,) * len(names))
# In JAX's words, of whole axes, and cutting the shape evenly.
def sound(s, shape):
  assert isinstance(s, NamedSharding), s
  s.shard_shape(shape)
""" % str(Path(__file__).parent)


def run(python, code, env=None):
  return ok(python, HEAD + code, env={**EIGHT, **(env or {})})


def test_random_programs_equal_one_chip_and_return_whole_axes(python):
  out = run(python, """
cut = 0
for seed in (*range(60), 96, 200, 247):
  shape, names = sharded_random.MESHES[seed % 4]
  f, args, shardings = sharded_random.program(seed, mesh_of(shape, names))
  given = [a if s is None else jax.device_put(a, s) for a, s in zip(args, shardings)]
  compiled = jax.jit(f).lower(*given).compile()
  got = jax.jit(f)(*given)
  for s, y in zip(compiled.output_shardings, got):
    sound(s, y.shape)
    cut += not s.is_fully_replicated
  for s, a in zip(compiled.input_shardings[0], args):
    s.shard_shape(a.shape)
  alone = sharded_random.program(seed, mesh_of((1,) * len(names), names, devices[:1]))[0]
  want = jax.jit(alone)(*(jax.device_put(a, devices[0]) for a in args))
  for y, w in zip(got, want):
    np.testing.assert_allclose(y, w, rtol=2e-6, atol=2e-6, err_msg=str(seed))
print("results that are cut:", cut)
""")
  assert int(out.split(":")[1]) >= 40, out


# As XLA has them: parts of axes go, and so does what comes after them.
OPEN = """
x, ab = mesh_of((8,), ("x",)), mesh_of((4, 2), ("a", "b"))
for mesh, spec, shape, to, want in (
    (x, P("x"), (16,), (4, 4), P()), (x, P("x"), (160,), (20, 8), P()), (x, P("x"), (8, 20), (20, 8), P()),
    (x, P("x"), (64,), (8, 8), P("x")), (x, P("x"), (24, 2), (12, 4), P()),
    (ab, P(("a", "b")), (16,), (4, 4), P("a", "b")), (ab, P(("b", "a")), (16,), (4, 4), P("b")),
    (ab, P(("a", "b")), (8, 20), (20, 8), P("a")), (ab, P(("b", "a")), (24, 2), (12, 4), P("b"))):
  v = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
  y = jax.jit(lambda v: v.reshape(to) + 1)(jax.device_put(v, NamedSharding(mesh, spec)))
  np.testing.assert_array_equal(y, v.reshape(to) + 1)
  assert %s, (shape, to, y.sharding)
"""


def test_results_of_reshapes_are_cut_as_with_xla(python):
  run(python, OPEN % "y.sharding.spec == want")


def test_gspmds_results_can_be_named(python):
  run(python, OPEN % "isinstance(y.sharding, NamedSharding)", {"JAX_USE_SHARDY_PARTITIONER": "0"})


def test_constraints_that_do_not_divide(python):
  run(python, """
mesh, one = mesh_of((4, 2), ("a", "b")), mesh_of((1, 1), ("a", "b"), devices[:1])
def places(mesh, s):
  pin = lambda v: lax.with_sharding_constraint(v, NamedSharding(mesh, P(*s)))
  return dict(
      result=lambda v: pin(v + 1), value=lambda v: pin(v + 1) * 2, argument=lambda v: (pin(v), v * 3),
      loop=lambda v: lax.fori_loop(0, 3, lambda i, c: pin(c + 1), v),
      stack=lambda v: lax.scan(lambda c, k: (pin(c + k), pin(c * k)), v, jnp.arange(3.0))[1],
      branch=lambda v: lax.cond(v.sum() > 0, lambda v: pin(v), lambda v: v + 1, v),
      sum=lambda v: pin(v).sum(0), least=lambda v: jnp.argmin(pin(v), 0))
# What XLA returns where such a value is a result: whole axes that divide.
for shape, s, want in (
    ((2, 3), ("a", None), P()), ((2, 3), ("b", "a"), P("b")), ((6, 8), ("a", None), P()), ((6, 8), ("b", "a"), P("b", "a")),
    ((6, 8), (("b", "a"), None), P("b")), ((12, 9), (None, "b"), P()), ((12, 9), (("a", "b"), None), P("a"))):
  v = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
  for given in (jax.device_put(v, NamedSharding(mesh, P())), v, jax.device_put(v, NamedSharding(mesh, P("b")))):
    for (name, f), plain in zip(places(mesh, s).items(), places(one, s).values()):
      got = jax.tree.leaves(jax.jit(f)(given))
      for y, w in zip(got, jax.tree.leaves(jax.jit(plain)(jax.device_put(v, devices[0])))):
        sound(y.sharding, y.shape)
        np.testing.assert_array_equal(y, w, err_msg=f"{name} {shape} {s}")
      if name == "result" and given is v:
        assert got[0].sharding.spec == want, (shape, s, got[0].sharding)
""")


def test_updates_along_a_cut_dimension(python):
  run(python, """
mesh = mesh_of((4, 2), ("a", "b"))
def f(v, at, s):
  pin = lambda c: lax.with_sharding_constraint(c, NamedSharding(mesh, P(*s)))
  fill = lax.fori_loop(0, v.shape[0], lambda i, c: pin(lax.dynamic_update_index_in_dim(c, v[i] * 2, i, 0)), pin(v * 0))
  one = lax.dynamic_update_slice(pin(v + 1), jnp.full((1, 1), 7.0), at)  # starts wrap once and are clamped
  row = lax.dynamic_update_slice(pin(v + 2), jnp.full((1, v.shape[1]), 8.0), at)
  two = lax.dynamic_update_slice(pin(v + 3), jnp.full((2, 1), 9.0), at)
  return fill, one, row, two
for shape in ((8, 6), (10, 7), (3, 16)):
  v = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
  for s in (("a", None), ("b", "a"), (("a", "b"), None), (None, ("b", "a")), ("a", "b")):
    for at in ((0, 0), (5, 3), (-2, 4), (99, 99), (2, -1)):
      for kind in (np.int32, np.uint8, np.int64):
        if min(at) < 0 and kind == np.uint8: continue
        got = jax.jit(f, static_argnums=2)(v, tuple(kind(k) for k in at), s)
        def want(base, size, x):
          base, k = base.copy(), [min(i % n if i < 0 else i, n - m) for i, n, m in zip(at, shape, size)]
          base[k[0]:k[0] + size[0], k[1]:k[1] + size[1]] = x
          return base
        for y, w in zip(got, (v * 2, want(v + 1, (1, 1), 7), want(v + 2, (1, shape[1]), 8), want(v + 3, (2, 1), 9))):
          np.testing.assert_array_equal(y, w, err_msg=f"{shape} {s} {at} {kind}")
    if shape != (8, 6): break
""")
