"""A program that runs again and again holds no more memory than at first."""

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
