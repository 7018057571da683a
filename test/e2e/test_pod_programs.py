"""Programs that cut, loop, sort, draw and offload in ways that others here do not: the bits of one process, on a pod of
four hosts and over four equal processes."""

import test_hosts
import test_pod

CODE = """
from jax import lax
from jax.ad_checkpoint import checkpoint_name
grid = Mesh(np.array(devices).reshape(2, 4), ("a", "b"))
cube = Mesh(np.array(devices).reshape(2, 2, 2), ("a", "b", "c"))
on = lambda m, *p, **k: NamedSharding(m, P(*p), **k)
draw = lambda *shape, seed=0: np.random.default_rng(seed).normal(size=shape).astype(np.float32)
over = lambda m, i, o: lambda f: jax.jit(jax.shard_map(f, mesh=m, in_specs=i, out_specs=o, check_vma=False))
line, both = over(mesh, P("x"), P("x")), over(grid, P(("a", "b")), P(("a", "b")))

# Meshes that are no boxes, in another order than the devices are.
odd = Mesh(np.array(devices)[[6, 1, 4, 3, 0, 7]].reshape(3, 2), ("a", "b"))
if any(d.process_index == me for d in odd.devices.flat):
  f = jax.jit(lambda x, w: jnp.tanh(x @ w).sum(0), out_shardings=on(odd, "b"))
  keep("odd mesh", f(put(draw(12, 8), on(odd, "a", "b")), put(draw(8, 10, seed=1), on(odd, "b"))))

# Collectives: over one axis and both, in groups, with holes, of narrow types.
x = put(draw(64, 24), on(grid, ("a", "b")))
for axes in ("a", "b", ("a", "b")):
  keep(f"scatter {axes}", both(lambda v: lax.psum_scatter(v, axes, scatter_dimension=0, tiled=True))(x))
keep("to all", both(lambda v: lax.all_to_all(v, "b", 1, 1, tiled=True))(x))
keep("cube", over(cube, P("a", "b", "c"), P(("c", "a"), "b"))(lambda v: lax.all_to_all(v, "c", 0, 2, tiled=True))(
    put(draw(8, 4, 4), on(cube, "a", "b", "c"))))
y, groups = put(draw(16, 5)), [[0, 3, 5, 6], [7, 2, 1, 4]]
keep("groups", line(lambda v: (lax.psum(v, "x", axis_index_groups=groups),
                               lax.all_gather(v, "x", axis_index_groups=groups, tiled=True)))(y))
keep("holes", line(lambda v: lax.ppermute(v, "x", [(0, 5), (5, 3), (7, 0)]))(y))
for t in (jnp.int4, jnp.float8_e5m2, jnp.bfloat16, np.complex64):
  v = put((draw(16, 16, seed=4) * 3).astype(t))
  v = line(lambda v: lax.ppermute(v, "x", [(i, (i + 3) % N) for i in range(N)]))(v)
  keep(f"{np.dtype(t)}", jax.jit(lambda v: v.astype(np.complex64))(v))  # NumPy's files know few types

# Loops whose ends all agree on, and branches that differ by chip.
def turn(c, _):
  c = lax.ppermute(c, "x", [(i, (i + 1) % N) for i in range(N)]) * 0.5 + lax.pmean(c, "x")
  return c, lax.psum(c.sum(), "x")
def loops(v):
  c, sums = lax.scan(turn, v, None, length=17)
  n, c = lax.while_loop(lambda s: (lax.psum((s[1] * s[1]).sum(), "x") > 1e-3) & (s[0] < 40),
                        lambda s: (s[0] + 1, s[1] * 0.7), (0, c))
  i = lax.axis_index("x")
  return c, sums[None], jnp.full(1, n), lax.switch(i % 3, [lambda v: v * 2, lambda v: jnp.sort(v, -1), lambda v: v.cumsum(-1)], v)
keep("loops", over(mesh, P("x"), P("x"))(loops)(put(draw(8, 16))))

# What XLA partitions, kept as it comes out and as whole copies.
x = put(draw(32, 48), on(grid, "a", "b"))
for name, f in dict(
    sort=lambda x: jnp.sort(x, 0), sums=lambda x: jnp.cumsum(x, 1), roll=lambda x: jnp.roll(x, (3, 5), (0, 1)),
    pad=lambda x: jnp.pad(x, ((3, 2), (1, 9)), constant_values=2), reshape=lambda x: x.reshape(16, 96),
    top=lambda x: lax.top_k(x, 5), step=lambda x: x[5:27:3, 7:41], scatter=lambda x: x.at[jnp.array([3, 3, 30])].add(1.0),
    window=lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (2, 2), "SAME"),
    scan=lambda x: lax.associative_scan(jnp.multiply, x * 0.1 + 1, axis=0),
    slices=lambda x: lax.dynamic_slice(x, (x[0, 0].astype(int) + 3, 4), (10, 11))).items():
  keep(name, jax.jit(f)(x))
  keep(f"{name}, whole", jax.jit(f, out_shardings=jax.tree.map(lambda _: on(grid), jax.eval_shape(f, x)))(x))

# Random bits do not depend on where they are made.
for kind in ("threefry2x32", "rbg"):
  for cut in (("a", "b"), (("a", "b"),), ()):
    f = jax.jit(lambda k: (jax.random.normal(k, (16, 24)), jax.random.bits(k, (16, 24), jnp.uint8)), out_shardings=on(grid, *cut))
    keep(f"{kind} {cut}", f(jax.random.key(5, impl=kind)))

# Memory of the hosts, and activations that are kept there.
host, chip = on(mesh, "x", memory_kind="pinned_host"), on(mesh, "x", memory_kind="device")
z = jax.jit(lambda a: a + 1, out_shardings=host)(jax.device_put(put(draw(16, 8), host), chip) * 2)
assert z.sharding.memory_kind == "pinned_host"
keep("from the host", jax.jit(lambda h: jax.device_put(h, chip) @ jnp.ones((8, 3)), in_shardings=host)(z))
policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["h"], offload_src="device", offload_dst="pinned_host")
def loss(w, x):
  block = jax.checkpoint(lambda x, w: jnp.sin(checkpoint_name(jnp.tanh(x @ w), "h")), policy=policy)
  for _ in range(3): x = block(x, w)
  return x.sum()
keep("offloaded", jax.jit(jax.grad(loss))(put(draw(8, 8) * 0.3, on(mesh)), put(draw(16, 8, seed=2))))

# Rows of any number from each to each, and arrays of nothing.
sizes = np.array([[1 + (i + j) % 2 for j in range(N)] for i in range(N)], np.int32)
before = lambda a, axis: (np.cumsum(a, axis) - a).astype(np.int32)
keep("ragged", over(mesh, (P("x"),) * 5, P("x"))(
    lambda x, a, b, c, d: lax.ragged_all_to_all(x, jnp.zeros(16, jnp.float32), a, b, c, d, axis_name="x"))(
        put(np.arange(N * 16, dtype=np.float32)), *(put(v.reshape(-1)) for v in (before(sizes, 1), sizes, before(sizes, 0), sizes.T.copy()))))
keep("nothing", line(lambda v: lax.psum(v, "x"))(put(np.zeros((8, 0), np.float32))))
"""


def test_on_a_pod(tmp_path):
  with test_pod.up("v5e:2x4") as pod:
    test_pod.same_as_one_process(pod, CODE, "v5e:2x4", tmp_path)


def test_over_equal_processes(tmp_path):
  test_hosts.same_as_one_process(CODE, "v5e:2x4", tmp_path, (4,))
