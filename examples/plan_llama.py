"""A Llama training step in pure JAX, and what `atoll plan` needs to know of it.

    atoll plan examples/plan_llama.py --target v5p --chips 256
    atoll plan examples/plan_llama.py:plan_8b --target v5e --chips 16..64

The step is built from a mesh, rules (pairs of a logical axis and the mesh axes that it is cut over), a wrapper for
what is recomputed in the backward pass, and a number of microbatches. Nothing in it is of Atoll but the last lines.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec


@dataclasses.dataclass(frozen=True)
class Config:
  layers: int
  embed: int
  mlp: int
  heads: int
  kv_heads: int
  head_dim: int = 128
  vocab: int = 128256
  batch: int = 256  # sequences of a step
  length: int = 4096
  query_block: int = 1024  # queries whose scores exist at once
  learning_rate: float = 3e-4


LLAMA_8B = Config(layers=32, embed=4096, mlp=14336, heads=32, kv_heads=8)
LLAMA_70B = Config(layers=80, embed=8192, mlp=28672, heads=64, kv_heads=8, batch=512)
# Shapes of the same kind that run anywhere, in moments.
TINY = Config(layers=2, embed=128, mlp=256, heads=8, kv_heads=4, head_dim=32, vocab=512, batch=16, length=64,
              query_block=32)


def weights(c):
  """Name -> shape and logical axes."""
  block = {
      "wq": ((c.embed, c.heads, c.head_dim), ("embed", "heads", None)),
      "wk": ((c.embed, c.kv_heads, c.head_dim), ("embed", "kv_heads", None)),
      "wv": ((c.embed, c.kv_heads, c.head_dim), ("embed", "kv_heads", None)),
      "wo": ((c.heads, c.head_dim, c.embed), ("heads", None, "embed")),
      "gate": ((c.embed, c.mlp), ("embed", "mlp")),
      "up": ((c.embed, c.mlp), ("embed", "mlp")),
      "down": ((c.mlp, c.embed), ("mlp", "embed")),
      "norm_attention": ((c.embed,), (None,)),
      "norm_mlp": ((c.embed,), (None,)),
  }
  stacked = {k: ((c.layers, *shape), ("layers", *axes)) for k, (shape, axes) in block.items()}
  return {"blocks": stacked,
          "embedding": ((c.vocab, c.embed), ("vocab", "embed")),
          "output": ((c.embed, c.vocab), ("embed", "vocab")),
          "norm": ((c.embed,), (None,))}


def is_entry(x):
  return isinstance(x, tuple)


def init(c, seed=0):
  """Weights and Adam's moments, all in float32."""
  shapes = jax.tree.map(lambda w: w[0], weights(c), is_leaf=is_entry)
  leaves, tree = jax.tree.flatten(shapes, is_leaf=is_entry)
  keys = jax.random.split(jax.random.key(seed), len(leaves))
  params = [jax.random.normal(k, s, jnp.float32) * 0.02 if len(s) > 1 else jnp.ones(s, jnp.float32)
            for k, s in zip(keys, leaves)]
  params = jax.tree.unflatten(tree, params)
  zeros = functools.partial(jax.tree.map, jnp.zeros_like)
  return {"params": params, "m": zeros(params), "v": zeros(params), "step": jnp.zeros((), jnp.int32)}


def axes(c):
  """The logical axes of every array of `init`."""
  w = jax.tree.map(lambda x: x[1], weights(c), is_leaf=is_entry)
  return {"params": w, "m": w, "v": w, "step": ()}


def norm(x, scale):
  y = x.astype(jnp.float32)
  y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)
  return (y * scale.astype(jnp.float32)).astype(x.dtype)


def rotary(x, positions):
  """x: [batch, length, heads, head_dim]."""
  half = x.shape[-1] // 2
  angles = positions[:, None].astype(jnp.float32) * 500000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
  cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]
  a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
  return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)


def attention(c, q, k, v):
  """Causal; one block of queries after the other, whose scores are recomputed in the backward pass."""
  batch, length = q.shape[:2]
  groups, block = c.heads // c.kv_heads, min(c.query_block, length)
  q = q.reshape(batch, length // block, block, c.kv_heads, groups, c.head_dim)

  @jax.checkpoint
  def one(_, x):
    queries, first = x
    scores = jnp.einsum("bqkgd,bskd->bkgqs", queries, k, preferred_element_type=jnp.float32) * c.head_dim ** -0.5
    seen = first + jnp.arange(block)[:, None] >= jnp.arange(length)[None]
    p = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1).astype(v.dtype)
    return None, jnp.einsum("bkgqs,bskd->bqkgd", p, v)

  _, out = jax.lax.scan(one, None, (jnp.moveaxis(q, 1, 0), jnp.arange(0, length, block)))
  return jnp.moveaxis(out, 0, 1).reshape(batch, length, c.heads, c.head_dim)


def make_step(c, mesh, rules, remat, microbatches):
  """step(state, tokens) -> (state, loss)."""
  rules = dict(rules)

  def constrain(x, *names):
    spec = PartitionSpec(*(rules.get(n) for n in names))
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

  def block(x, w):
    positions = jnp.arange(x.shape[1])
    y = constrain(norm(x, w["norm_attention"]), "batch", None, None)
    q = constrain(jnp.einsum("ble,ehd->blhd", y, w["wq"]), "batch", None, "heads", None)
    k = constrain(jnp.einsum("ble,ehd->blhd", y, w["wk"]), "batch", None, "kv_heads", None)
    v = constrain(jnp.einsum("ble,ehd->blhd", y, w["wv"]), "batch", None, "kv_heads", None)
    y = attention(c, rotary(q, positions), rotary(k, positions), v)
    x = x + constrain(jnp.einsum("blhd,hde->ble", y, w["wo"]), "batch", "length", None)
    y = constrain(norm(x, w["norm_mlp"]), "batch", None, None)
    y = jax.nn.silu(y @ w["gate"]) * (y @ w["up"])
    y = constrain(y, "batch", None, "mlp")
    return x + constrain(y @ w["down"], "batch", "length", None)

  def loss(params, tokens):
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    x = constrain(w["embedding"][tokens], "batch", "length", None)
    x, _ = jax.lax.scan(lambda x, w: (remat(block)(x, w), None), x, w["blocks"])
    x = constrain(norm(x, w["norm"]), "batch", None, None)
    logits = constrain(x @ w["output"], "batch", None, "vocab").astype(jnp.float32)
    picked = jnp.sum(jnp.where(jnp.arange(c.vocab) == jnp.roll(tokens, -1, 1)[..., None], logits, 0), -1)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

  def gradients(params, tokens):
    if microbatches == 1:
      return jax.value_and_grad(loss)(params, tokens)
    parts = tokens.reshape(-1, microbatches, tokens.shape[1]).swapaxes(0, 1)
    parts = constrain(parts, None, "batch", None)

    def one(total, tokens):
      value, grads = jax.value_and_grad(loss)(params, tokens)
      return (total[0] + value, jax.tree.map(jnp.add, total[1], grads)), None

    zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
    total, _ = jax.lax.scan(one, zero, parts)
    return jax.tree.map(lambda x: x / microbatches, total)

  def step(state, tokens):
    value, grads = gradients(state["params"], tokens)
    n = state["step"] + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state["v"], grads)
    rate = c.learning_rate * jnp.sqrt(1 - 0.95 ** n) / (1 - 0.9 ** n)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), state["params"], m, v)
    return {"params": params, "m": m, "v": v, "step": n}, value

  return step


def plan_of(c):
  import atoll
  return atoll.Plan(
      init=functools.partial(init, c),
      axes=axes(c),
      step=functools.partial(make_step, c),
      batch=jax.ShapeDtypeStruct((c.batch, c.length), jnp.int32),
      batch_axes=("batch", None),
      tokens=c.batch * c.length)


def plan_8b():
  return plan_of(LLAMA_8B)


def plan_tiny():
  return plan_of(TINY)


def plan():
  return plan_of(LLAMA_70B)
