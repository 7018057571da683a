#!/usr/bin/env python3
"""Programs of many Pallas kernels, no two of them equal: what compiling them takes.

usage: many_kernels.py KIND N FILE     KIND: chain, attention, copies, grid, or mixed, all in turn

Writes the StableHLO of one program of N kernels, for `atoll dump --counts FILE`. Kernels have 20 to 50 operations as users
write them, three or four times as many as JAX lowers them, and differ in shapes and constants; the same N gives the same program.
"""
import random
import sys

import jax
import jax.numpy as jnp
from jax import export, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

F32 = jnp.float32
STEPS = [
    lambda x, c: x * c, lambda x, c: jnp.tanh(x + c), lambda x, c: jnp.exp(-jnp.abs(x)) + c, lambda x, c: jnp.maximum(x, c),
    lambda x, c: x * lax.logistic(x * c), lambda x, c: jnp.log1p(x * x + c), lambda x, c: x - x.mean(-1, keepdims=True) * c,
    lambda x, c: jnp.where(x > c, x, x * c), lambda x, c: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + c),
    lambda x, c: jnp.sin(x) + c]


# Each gives the body, the shapes of the result and of the operands, and what else pallas_call takes.
def chain(rng):
  steps = [(rng.choice(STEPS), rng.uniform(.1, 2)) for _ in range(12)]
  shape = rng.choice([8, 16, 32, 64]), 128 * rng.randint(1, 6)

  def body(x, o):
    v = x[...]
    for step, c in steps:
      v = step(v, c)
    o[...] = v
  return body, shape, [shape], {}


def attention(rng):
  m, n, d = rng.choice([16, 32, 64]), 128 * rng.randint(1, 3), rng.choice([64, 128])
  scale, cap, keys = rng.uniform(.05, .2), rng.uniform(1, 50), rng.randint(1, n - 1)

  def body(q, k, v, bias, o):
    s = jnp.dot(q[...], k[...].T, preferred_element_type=F32) * scale
    s = cap * jnp.tanh(s / cap) + bias[...]
    s = jnp.where(lax.broadcasted_iota(jnp.int32, s.shape, 1) < keys, s, -1e30)
    p = jnp.exp(s - s.max(-1, keepdims=True))
    y = jnp.dot(p / p.sum(-1, keepdims=True), v[...], preferred_element_type=F32)
    y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)
    o[...] = y * lax.logistic(y) + y.max(0, keepdims=True)
  return body, (m, d), [(m, d), (n, d), (n, d), (m, n)], {}


def copies(rng):
  steps, rows, columns = rng.randint(2, 6), rng.choice([8, 16, 32]), 128 * rng.randint(1, 4)
  scale, least = rng.uniform(.1, 2), rng.uniform(1e-6, 1e-3)

  def body(x, o, inside, outside, came, went):
    load = lambda i: pltpu.make_async_copy(x.at[pl.ds(i * rows, rows)], inside.at[i % 2], came.at[i % 2])
    store = lambda i: pltpu.make_async_copy(outside.at[i % 2], o.at[pl.ds(i * rows, rows)], went.at[i % 2])
    load(0).start()

    def step(i, total):
      @pl.when(i + 1 < steps)
      def _():
        load(i + 1).start()
      load(i).wait()
      v = inside[i % 2]
      y = (v - v.mean(-1, keepdims=True)) * scale
      y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + least)
      total = total + jnp.exp(-y * y).sum(0, keepdims=True)

      @pl.when(i >= 2)
      def _():
        store(i - 2).wait()
      outside[i % 2] = jnp.tanh(y) + total
      store(i).start()
      return total
    lax.fori_loop(0, steps, step, jnp.zeros((1, columns), F32))
    for i in range(max(0, steps - 2), steps):
      store(i).wait()
  anywhere, shape = pl.BlockSpec(memory_space=pl.ANY), (steps * rows, columns)
  buffer, semaphores = pltpu.VMEM((2, rows, columns), F32), pltpu.SemaphoreType.DMA((2,))
  return body, shape, [shape], dict(in_specs=[anywhere], out_specs=anywhere, scratch_shapes=[buffer, buffer, semaphores, semaphores])


def grid(rng):
  steps, rows, columns = rng.randint(2, 5), rng.choice([8, 16, 32]), 128 * rng.randint(1, 4)
  a, b, c, d, e, f = (rng.uniform(.1, 2) for _ in range(6))

  def body(x, y, o, acc):
    @pl.when(pl.program_id(0) == 0)
    def _():
      acc[...] = jnp.zeros_like(acc)
    v = x[...] * a + y[...]
    v = v * .5 * (1 + lax.erf(v * b))
    v = jnp.exp(v - v.max(-1, keepdims=True))
    v = v / v.sum(-1, keepdims=True) * c
    acc[...] += (v * d).sum(0, keepdims=True)
    o[...] = jnp.log(v + e) + acc[...] * f
  spec, shape = pl.BlockSpec((rows, columns), lambda i: (i, 0)), (steps * rows, columns)
  return body, shape, [shape] * 2, dict(grid=(steps,), in_specs=[spec] * 2, out_specs=spec,
                                        scratch_shapes=[pltpu.VMEM((1, columns), F32)])


KINDS = {f.__name__: f for f in (chain, attention, copies, grid)}


def kernels(kind, n, seed=0):
  """n functions of a number, each with a kernel."""
  rng = random.Random(seed)

  def one(i):
    make = KINDS[kind] if kind in KINDS else list(KINDS.values())[i % len(KINDS)]
    body, result, operands, rest = make(rng)
    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(result, F32), **rest)

    def run(x):
      return call(*[x * (jnp.arange(s[0] * s[1]).reshape(s) % (7 + k) - 3) for k, s in enumerate(operands)])
    return run
  return [one(i) for i in range(n)]


def main():
  kind, n, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
  every = kernels(kind, n)
  allowed = [export.DisabledSafetyCheck.custom_call("tpu_custom_call")]
  program = export.export(jax.jit(lambda x: sum(f(x)[0, 0] for f in every)), platforms=["tpu"], disabled_checks=allowed)
  with open(path, "w") as f:
    f.write(program(jax.ShapeDtypeStruct((), F32)).mlir_module())


if __name__ == "__main__":
  main()
