"""A program that runs again and again holds no more memory than at first."""

import functools

import jax
import jax.numpy as jnp


def resident_bytes():
  with open("/proc/self/statm") as f:
    return int(f.read().split()[1]) * 4096


def test_steps_keep_no_memory():
  step = jax.jit(lambda x, y: (x * 0.5 + y, jnp.sum(x)))
  x, y = jnp.ones((16, 16)), jnp.ones((16, 16))

  def run(count, x):
    for _ in range(count):
      x, total = step(x, y)
    total.block_until_ready()
    return x

  x = run(1_000, x)
  before = resident_bytes()
  run(9_000, x)
  grown = resident_bytes() - before
  assert grown <= 1 << 20, f"{grown} bytes more after 9,000 steps"


def test_training_keeps_no_memory():
  def loss(params, x, y):
    for w, b in params:
      x = jnp.tanh(x @ w + b)
    return jnp.mean((x - y) ** 2)

  @functools.partial(jax.jit, donate_argnums=0)
  def step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

  sizes = (16, 32, 32, 8)
  keys = jax.random.split(jax.random.key(0), len(sizes))
  params = [(jax.random.normal(k, (n, m)) * 0.3, jnp.zeros(m))
            for k, n, m in zip(keys, sizes, sizes[1:])]
  x, y = jax.random.normal(keys[-1], (64, 16)), jnp.ones((64, 8)) * 0.5
  first = float(loss(params, x, y))

  def run(count, params):
    for _ in range(count):
      params, value = step(params, x, y)
    return params, float(value)

  params, _ = run(1_000, params)
  before = resident_bytes()
  params, last = run(9_000, params)
  grown = resident_bytes() - before
  assert last < first / 10
  assert grown <= 1 << 20, f"{grown} bytes more after 9,000 steps"
