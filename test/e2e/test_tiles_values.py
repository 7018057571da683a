"""What the tile program computes, through atoll.tiles and through ATOLL_TILES=tiles, against XLA:CPU."""

import numpy as np
import pytest

tiles = pytest.importorskip("atoll.tiles")
from test_tiles import jax_programs


def numbers(args):
  import jax
  rng = np.random.default_rng(0)
  leaves, tree = jax.tree.flatten(args)
  scale = lambda s: np.sqrt(max(np.prod(s[:-1], dtype=np.int64), 1)) if len(s) > 1 else 1
  return jax.tree.unflatten(tree, [(rng.normal(size=x.shape) / scale(x.shape)).astype(x.dtype) for x in leaves])


@pytest.mark.parametrize("name,mapping", [("mlp", "planned"), ("mlp", "linear"), ("transformer", "planned"),
                                          ("resnet block", "planned")])
def test_the_tile_program_computes_the_same(name, mapping):
  import jax
  fn, *args = jax_programs()[name]
  args = numbers(args)
  got, profile = tiles.run(fn, *args, mapping=mapping)
  with jax.default_device(jax.devices("cpu")[0]):
    want = jax.jit(fn)(*args)
  assert profile.peak_bytes <= 638976
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
    b = np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())


def test_loops_gathers_and_narrow_floats_run_on_tiles():
  import jax
  import jax.numpy as jnp

  def fn(table, ids, n):
    x = table[ids]

    def turn(c):
      i, x = c
      return i + 1, jnp.tanh(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3), (1, 1), "SAME")) - 0.1
    _, x = jax.lax.while_loop(lambda c: c[0] < n, turn, (0, x))
    y = jax.lax.cond(n > 3, lambda v: v[::-1] * 2, lambda v: v, x)
    return y, (y.astype(jnp.bfloat16) @ y.T.astype(jnp.bfloat16)).astype(jnp.float32), jnp.sort(y, axis=1)[:, ::2]

  table = np.random.default_rng(2).normal(size=(50, 24)).astype(np.float32)
  ids = np.arange(40, dtype=np.int32) * 7 % 50
  for n in (np.int32(2), np.int32(5)):
    got, _ = tiles.run(fn, table, ids, n)
    with jax.default_device(jax.devices("cpu")[0]):
      want = jax.jit(fn)(table, ids, n)
    for a, b, tol in zip(got, want, (1e-5, 2e-2, 1e-5)):
      np.testing.assert_allclose(a, np.asarray(b), rtol=tol, atol=tol)


# ---- ATOLL_TARGET=mk2 ----------------------------------------------------------------------
PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
assert jax.devices()[0].platform == "tpu", jax.devices()
rng = np.random.default_rng(3)
w = [jnp.asarray(rng.normal(size=s) / 8, jnp.float32) for s in ((64, 96), (96, 10))]
x = jnp.asarray(rng.normal(size=(32, 64)), jnp.float32)
def loss(w):
  return jnp.mean(jax.nn.logsumexp(jax.nn.relu(x @ w[0]) @ w[1], axis=-1))
step = jax.jit(lambda w: jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w)))
cost = step.lower(w).compile().cost_analysis()
assert cost["tile cycles"] > 1000 and 0 < cost["tile peak bytes"] < 638976, cost
got = w
for _ in range(3):
  got = step(got)
with jax.default_device(jax.devices("cpu")[0]):
  want = [jnp.asarray(np.asarray(v)) for v in w]
  cpu = jax.jit(lambda w: jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss_cpu)(w)))
  xc = jnp.asarray(np.asarray(x))
  def loss_cpu(w):
    return jnp.mean(jax.nn.logsumexp(jax.nn.relu(xc @ w[0]) @ w[1], axis=-1))
  for _ in range(3):
    want = cpu(want)
for a, b in zip(got, want):
  np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-6)
try:
  jax.jit(lambda a: jnp.tanh(a) * 2).lower(jax.ShapeDtypeStruct((40000, 8192), jnp.float32)).compile()
except Exception as e:
  assert "of 638976 at step" in str(e), e
else:
  raise AssertionError("2.6 GB fit on the tiles")
print("fine")
"""


def run_on_mk2(program, who):
  import os
  import subprocess
  import sys
  import atoll
  env = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
  env.update(ATOLL_TARGET="mk2", ATOLL_TILES=who, ATOLL_CACHE="off", TPU_LIBRARY_PATH=atoll.library_path())
  done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
  assert done.returncode == 0 and "fine" in done.stdout, done.stderr[-3000:]


@pytest.mark.parametrize("who", ["host", "tiles"])
def test_programs_run_on_mk2(who):
  run_on_mk2(PROGRAM, who)


# ---- Many functions ------------------------------------------------------------------------
MANY = """
import numpy as np, jax, jax.numpy as jnp
from jax import lax
rng = np.random.default_rng(1)
f = lambda *s: rng.normal(size=s).astype(np.float32)
def scan(x, w):
  return lax.scan(lambda c, v: (jnp.tanh(c @ w + v), c.sum()), jnp.zeros(8), x)
def conv(x, w, stride=1, groups=1):
  return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                  feature_group_count=groups)
functions = {
  "random": (lambda k: jax.random.normal(jax.random.key(3), (100, 7)) + k, [np.float32(1)]),
  "scan": (scan, [f(5, 8), f(8, 8)]),
  "scan's gradient": (lambda x, w: jax.grad(lambda w: scan(x, w)[0].sum())(w), [f(5, 8), f(8, 8)]),
  "fft": (lambda x: jnp.abs(jnp.fft.rfft(x)), [f(6, 32)]),
  "cumsum": (lambda x: jnp.cumsum(x, 0), [f(33, 5)]),
  "argsort": (lambda x: jnp.argsort(x, 1), [f(20, 13)]),
  "top_k": (lambda x: lax.top_k(x, 3), [f(20, 13)]),
  "scatter": (lambda x, u: x.at[jnp.array([3, 3, 5])].add(u), [f(9, 4), f(3, 4)]),
  "dynamic slices": (lambda x, i: lax.dynamic_update_slice(x, x[:2] * 2, (i, 0)) + lax.dynamic_slice(x, (i, 0), (1, 4)),
                     [f(9, 4), np.int32(4)]),
  "convolution's gradients": (jax.grad(lambda x, w: (conv(x, w, 2) ** 2).sum(), (0, 1)), [f(2, 9, 9, 4), f(3, 3, 4, 6)]),
  "groups": (lambda x, w: conv(x, w, 1, 4), [f(2, 9, 9, 8), f(3, 3, 2, 12)]),
  "pool's gradient": (jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
                                          ** 2).sum()), [f(2, 8, 8, 3)]),
  "vmap of cond": (jax.vmap(lambda v: lax.cond(v[0] > 0, lambda v: v * 2, lambda v: v - 1, v)), [f(12, 5)]),
  "switch": (lambda i, x: lax.switch(i, [lambda x: x + 1, lambda x: x * 2, lambda x: -x], x), [np.int32(2), f(12, 5)]),
  "remat": (lambda x, w: jax.grad(lambda w: jax.checkpoint(lambda w: jnp.sin(x @ w))(w).sum())(w), [f(6, 5), f(5, 4)]),
  "complex": (lambda x: (x * (1 + 2j)).real, [f(6, 5)]),
  "integers": (lambda x: (x // 3, x % 5, x << 2), [rng.integers(-50, 50, (31,)).astype(np.int32)]),
  "views": (lambda x: (jnp.concatenate([x[::-1], jnp.rot90(x)]), jnp.pad(x, ((2, 1), (0, 3)), mode="edge"), x[:0]), [f(3, 3)]),
}
for name, (fn, args) in functions.items():
  got = jax.tree.leaves(jax.jit(fn)(*args))
  with jax.default_device(jax.devices("cpu")[0]):
    want = jax.tree.leaves(jax.jit(fn)(*args))
  for a, b in zip(got, want):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5 * max(1, np.abs(b).max(initial=0)),
                               err_msg=name)
print("fine")
"""


def test_many_functions_run_on_tiles():
  run_on_mk2(MANY, "tiles")
