"""Programs whose FLOPs and bytes are counted by cost_analysis(), by a profile and by an estimate. A row of PROGRAMS makes the
function and its arguments."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding, PartitionSpec

PROGRAMS = {}


def program(f):
  PROGRAMS[f.__name__] = f
  return f


def ones(*shape, dtype=jnp.float32):
  return jnp.full(shape, 0.01, dtype)


@program
def gpt_step():
  import gpt
  from common import adam_init
  params = gpt.init(jax.random.key(0), 64)
  return gpt.train_step, (params, adam_init(params), jnp.float32(1), np.zeros((gpt.BATCH, gpt.CONTEXT + 1), np.int32))


def _tanh(x, o):
  o[...] = jnp.tanh(x[...]) * 2


def _product(x, y, o):
  o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)


@program
def pallas_that_says_its_costs():
  block = pl.BlockSpec((128, 128), lambda i: (i, 0))

  def f(x):
    said = pl.CostEstimate(flops=65536, transcendentals=65536, bytes_accessed=524288)
    y = pl.pallas_call(_tanh, grid=(4,), in_specs=[block], out_specs=block, cost_estimate=said,
                       out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x * 3)
    return y + 1
  return f, (ones(512, 128),)


@program
def pallas_product():
  def f(x, y):
    rows = pl.BlockSpec((128, 256), lambda i: (i, 0))
    return pl.pallas_call(_product, grid=(4,), in_specs=[rows, pl.BlockSpec((256, 128), lambda i: (0, 0))],
                          out_specs=pl.BlockSpec((128, 128), lambda i: (i, 0)),
                          out_shape=jax.ShapeDtypeStruct((512, 128), jnp.float32))(x, y)
  return f, (ones(512, 256), ones(256, 128))


@program
def mixture_of_experts():
  def loss(w, x, sizes):
    up = lax.ragged_dot(x, w["up"], sizes)
    return (lax.ragged_dot(jax.nn.silu(up), w["down"], sizes) ** 2).mean()
  w = {"up": ones(8, 64, 256), "down": ones(8, 256, 64)}
  return jax.grad(loss), (w, ones(512, 64), np.full(8, 64, np.int32))


@program
def scan_rnn():
  def loss(w, x):
    def cell(h, x):
      h = jnp.tanh(h @ w["h"] + x @ w["x"])
      return h, h.sum()
    return lax.scan(cell, jnp.zeros((16, 128)), x)[1].sum()
  return jax.value_and_grad(loss), ({"h": ones(128, 128), "x": ones(64, 128)}, ones(12, 16, 64))


@program
def branches():
  def f(x, y):
    return lax.cond(x[0, 0] > 0, lambda: jnp.sin(x @ y) + y, lambda: y - 1)
  return f, (ones(256, 256), ones(256, 256))


@program
def until_it_converges():
  def f(a, x):
    def go_on(s):
      return (s[0] < 7) & (jnp.abs(a @ s[1] - 1).max() > 1e-9)
    return lax.while_loop(go_on, lambda s: (s[0] + 1, s[1] - 0.1 * (a @ s[1] - 1)), (0, x))
  return f, (jnp.eye(128) * 2, ones(128))


@program
def convolutions():
  def loss(w, x):
    conv = functools.partial(lax.conv_general_dilated, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = jax.nn.relu(conv(x, w["a"], (2, 2), "SAME"))
    y = conv(y, w["b"], (1, 1), "VALID", rhs_dilation=(2, 2))
    return (conv(y, w["c"], (1, 1), "SAME", feature_group_count=16) ** 2).sum()
  w = {"a": ones(3, 3, 8, 16), "b": ones(3, 3, 16, 16), "c": ones(3, 3, 1, 16)}
  return jax.grad(loss), (w, ones(4, 32, 32, 8))


@program
def attention():
  def f(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(jnp.tri(128) > 0, scores, -1e30)), v)
  return jax.jit(f), (ones(2, 128, 4, 64),) * 3


@program
def recomputed_layers():
  def loss(w, x):
    layer = jax.checkpoint(lambda x, w: (jax.nn.gelu(x @ w), None))
    return lax.scan(layer, x, w)[0].mean()
  return jax.grad(loss), (ones(4, 128, 128), ones(64, 128))


@program
def norms_that_share():
  def f(x, g):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    y = (x - m) * lax.rsqrt(v + 1e-5) * g
    e = jnp.exp(x)
    return y, e.sum(-1), e @ g, jnp.tanh(y).max(0), (e * y).sum(0)
  return f, (ones(512, 256), ones(256))


@program
def running_sums():
  return lambda x: (jnp.cumsum(x, 0), lax.cummax(x, 1), lax.associative_scan(jnp.multiply, x)), (ones(256, 128),)


@program
def orders():
  return lambda x: (jnp.sort(x, -1), jnp.argmax(x, -1), *lax.top_k(x, 8)), (ones(64, 1024),)


@program
def embeddings():
  def loss(table, ids):
    return (jnp.take(table, ids, axis=0) ** 2).sum()
  return jax.grad(loss), (ones(1000, 128), np.arange(256, dtype=np.int32) % 1000)


@program
def pools():
  def loss(x):
    y = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return lax.reduce_window(y, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME").sum()
  return jax.value_and_grad(loss), (jnp.arange(2 * 32 * 32 * 16, dtype=jnp.float32).reshape(2, 32, 32, 16),)


@program
def random_masks():
  def f(x, seed):
    keep = jax.random.bernoulli(jax.random.key(seed), 0.9, x.shape)
    return jnp.where(keep, x / 0.9, 0)
  return f, (ones(256, 512), np.uint32(1))


@program
def mixed_widths():
  def f(x, w):
    y = jnp.dot(x, w, preferred_element_type=jnp.float32)
    return (y.astype(jnp.bfloat16) * 2).astype(jnp.float32) + jax.nn.sigmoid(y)
  return f, (ones(256, 256, dtype=jnp.bfloat16), ones(256, 256, dtype=jnp.bfloat16))


@program
def linear_algebra():
  def f(a, b):
    c = jnp.linalg.cholesky(a @ a.T + jnp.eye(64))
    return jax.scipy.linalg.solve_triangular(c, b, lower=True)
  return f, (ones(64, 64), ones(64, 8))


def _mesh():
  return jax.make_mesh((8,), ("d",))


@program
def tensor_parallel():
  mesh = _mesh()

  def f(x, up, down):
    return jnp.dot(jax.nn.gelu(x @ up), down, out_sharding=NamedSharding(mesh, PartitionSpec()))
  put = [jax.device_put(a, NamedSharding(mesh, PartitionSpec(*s)))
         for a, s in ((ones(256, 128), ()), (ones(128, 512), (None, "d")), (ones(512, 128), ("d",)))]
  return f, put


@program
def data_parallel_by_hand():
  mesh = _mesh()

  def part(x, w):
    y = jnp.tanh(x @ w)
    return lax.psum(x.T @ y, "d"), lax.all_gather(y @ w, "d", tiled=True).sum() + jnp.cos(y).sum()
  P = PartitionSpec
  f = jax.shard_map(part, mesh=mesh, in_specs=(P("d"), P()), out_specs=(P(), P()), check_vma=False)
  return f, (jax.device_put(ones(1024, 128), NamedSharding(mesh, P("d"))), jax.device_put(ones(128, 128), NamedSharding(mesh, P())))


def make(name):
  """The jitted function and its arguments."""
  f, args = PROGRAMS[name]()
  return (f if hasattr(f, "lower") else jax.jit(f)), args
