"""Random programs over meshes: chains of ops with constraints that need not divide.

`program(seed, mesh)` gives a function, its arguments as numpy arrays, and a sharding for
each, or None, which leaves the argument to the compiler.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24)
MESHES = (((8,), ("x",)), ((4, 2), ("a", "b")), ((2, 4), ("a", "b")), ((2, 2, 2), ("a", "b", "c")))


def spec(rng, mesh, shape, even):
  """Some axes on some dimensions, in any order; `even`: only such as divide."""
  free = list(mesh.axis_names)
  rng.shuffle(free)
  dims = [[] for _ in shape]
  for name in free:
    d = int(rng.integers(len(shape) + 1)) if shape else 0
    if d == len(shape):
      continue
    size = mesh.shape[name] * int(np.prod([mesh.shape[a] for a in dims[d]]))
    if not even or shape[d] % size == 0:
      dims[d].append(name)
  return NamedSharding(mesh, P(*(tuple(d) or None for d in dims)))


def factors(rng, n, most=4):
  """A shape of n elements."""
  shape = []
  while n > 1 and len(shape) + 1 < most:
    divisors = [k for k in range(1, n + 1) if n % k == 0]
    k = int(rng.choice(divisors))
    shape.append(k)
    n //= k
  shape.append(n)
  rng.shuffle(shape)
  return tuple(shape)


def reshape(rng, mesh, shape):
  to = factors(rng, int(np.prod(shape)))
  return to, lambda v: v.reshape(to)


def transpose(rng, mesh, shape):
  order = tuple(int(i) for i in rng.permutation(len(shape)))
  return tuple(shape[i] for i in order), lambda v: v.transpose(order)


def dot(rng, mesh, shape):
  if not shape:
    return None
  d, n = int(rng.integers(len(shape))), int(rng.choice(SIZES))
  w = (rng.integers(-2, 3, (shape[d], n)) / 4).astype(np.float32)
  return shape[:d] + shape[d + 1:] + (n,), lambda v: jnp.tensordot(v, w, ((d,), (0,))) / shape[d]


def reduction(rng, mesh, shape):
  if not shape:
    return None
  d = int(rng.integers(len(shape)))
  f = (jnp.sum, jnp.max, jnp.mean)[int(rng.integers(3))]
  return shape[:d] + shape[d + 1:], lambda v: f(v, d)


def gather(rng, mesh, shape):
  if not shape:
    return None
  d, n = int(rng.integers(len(shape))), int(rng.choice(SIZES))
  at = rng.integers(0, shape[d], n)
  return shape[:d] + (n,) + shape[d + 1:], lambda v: jnp.take(v, at, d)


def scatter(rng, mesh, shape):
  if not shape:
    return None
  d = int(rng.integers(len(shape)))
  at = rng.integers(0, shape[d], 3)
  return shape, lambda v: jnp.moveaxis(jnp.moveaxis(v, d, 0).at[at].add(0.5), 0, d)


def pad(rng, mesh, shape):
  if not shape:
    return None
  d, low, high = int(rng.integers(len(shape))), int(rng.integers(3)), int(rng.integers(3))
  width = [(low, high) if i == d else (0, 0) for i in range(len(shape))]
  return tuple(s + a + b for s, (a, b) in zip(shape, width)), lambda v: jnp.pad(v, width)


def part(rng, mesh, shape):
  if not shape:
    return None
  d = int(rng.integers(len(shape)))
  n = int(rng.integers(1, shape[d] + 1))
  start = int(rng.integers(shape[d] - n + 1))
  if rng.integers(2):
    f = lambda v: lax.slice_in_dim(v, start, start + n, axis=d)
  else:
    f = lambda v: lax.dynamic_slice_in_dim(v, jnp.int32(start), n, d)
  return shape[:d] + (n,) + shape[d + 1:], f


def join(rng, mesh, shape):
  if not shape:
    return None
  d = int(rng.integers(len(shape)))
  return shape[:d] + (2 * shape[d],) + shape[d + 1:], lambda v: jnp.concatenate((v, v + 1), d)


def broadcast(rng, mesh, shape):
  if len(shape) > 3:
    return None
  n = int(rng.choice(SIZES))
  return (n,) + shape, lambda v: jnp.broadcast_to(v, (n,) + shape)


def constraint(rng, mesh, shape):
  s = spec(rng, mesh, shape, False)
  return shape, lambda v: lax.with_sharding_constraint(v, s)


def loop(rng, mesh, shape):
  s = spec(rng, mesh, shape, False)
  return shape, lambda v: lax.fori_loop(0, 3, lambda i, c: lax.with_sharding_constraint(c * 0.5 + 1, s), v)


def stack(rng, mesh, shape):
  s = spec(rng, mesh, shape, False)

  def body(c, k):
    c = lax.with_sharding_constraint(c + k, s)
    return c, c
  return (3,) + shape, lambda v: lax.scan(body, v, jnp.arange(3, dtype=v.dtype))[1]


OPS = (reshape, reshape, reshape, transpose, dot, reduction, gather, scatter, pad, part, join, broadcast,
       constraint, constraint, loop, stack)


def program(seed, mesh):
  rng = np.random.default_rng(seed)
  shape = factors(rng, int(rng.choice((16, 24, 48, 60, 64, 96, 160))), 3)
  shardings, args = [], []
  for open_to_choice in (False, rng.integers(2)):
    s = spec(rng, mesh, shape, True)
    shardings.append(None if open_to_choice else s)
    args.append((rng.integers(-8, 9, shape) / 4).astype(np.float32))
  steps = []
  for _ in range(int(rng.integers(2, 8))):
    made = OPS[int(rng.integers(len(OPS)))](rng, mesh, shape)
    if made and int(np.prod(made[0])) <= 4096 and len(made[0]) <= 5:
      shape = made[0]
      steps.append(made[1])

  def run(x, y):
    out, v = [], x + y
    for i, step in enumerate(steps):
      v = step(v)
      if i % 2:
        out.append(v * 2)
    return out + [v + 1]
  return run, args, shardings
