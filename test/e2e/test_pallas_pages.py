"""Pages copied from HBM to scratch, as attention over pages has them: a copy that waits until somebody reads it must not be seen.

Values are small integers: every product is exact, in bf16 too.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

PAGES, BLOCK, D = 12, 4, 128
BY_ROWS = (((1,), (1,)), ((), ()))


def dot(a, b, numbers=(((1,), (0,)), ((), ()))):
  return lax.dot_general(a, b, numbers, preferred_element_type=jnp.float32)


def bf16(x):
  return x.astype(jnp.float32).astype(jnp.bfloat16)


# Each takes a slot of the buffer, [BLOCK, rows, D], and q, [m, D]; and says the same in NumPy.
def scores(q, slot):
  return dot(q, bf16(slot[...]).reshape(-1, D), BY_ROWS)


def scores_numpy(q, x):
  return q @ x.reshape(-1, D).T


def weighted(q, slot):
  x = bf16(slot[...]).reshape(-1, D)
  return dot(q[:, :1] + (lax.broadcasted_iota(jnp.int32, (q.shape[0], x.shape[0]), 1) % 3).astype(jnp.float32), x)


def weighted_numpy(q, x):
  x = x.reshape(-1, D)
  return (q[:, :1] + np.arange(len(x))[None] % 3) @ x


def one_page(q, slot):
  return dot(q, bf16(slot[1]), BY_ROWS)


def one_page_numpy(q, x):
  return q @ x[1].T


def half_pages(q, slot):
  return dot(q, bf16(slot[:, 8:, :]).reshape(-1, D), BY_ROWS)


def half_pages_numpy(q, x):
  return q @ x[:, 8:].reshape(-1, D).T


def sums(q, slot):
  return q + slot[...].astype(jnp.float32).sum((0, 1))[None]


def sums_numpy(q, x):
  return q + x.sum((0, 1))[None]


def both(q, slot):
  x = bf16(slot[...])
  return dot(q, x.reshape(-1, D), BY_ROWS) + x.astype(jnp.float32).max()


def both_numpy(q, x):
  return q @ x.reshape(-1, D).T + x.max()


def tail(q, slot):
  """An odd number of rows, which no pair covers."""
  return dot(q[:, :3 * BLOCK], bf16(slot[:, :3, :]).reshape(-1, D))


def tail_numpy(q, x):
  return q[:, :3 * BLOCK] @ x[:, :3].reshape(-1, D)


def kernel(pages, q, hbm, o, buffer, sems, *, use, steps, overwrite, block=BLOCK):
  def copies(i):
    return [pltpu.make_async_copy(hbm.at[pages[i * block + k]], buffer.at[i % 2, k], sems.at[i % 2]) for k in range(block)]

  def start(i):
    for c in copies(i):
      c.start()
  start(0)
  for i in range(steps):
    if i + 1 < steps and not overwrite:
      start(i + 1)
    for c in copies(i):
      c.wait()
    got = use(q[...], buffer.at[i % 2])
    if i + 1 < steps and overwrite:
      # The next pages, in the same slot too, before anybody needs `got`.
      start(i + 1)
      pltpu.make_async_copy(hbm.at[pages[0]], buffer.at[i % 2, 1], sems.at[2]).start()
      pltpu.make_async_copy(hbm.at[pages[0]], buffer.at[i % 2, 1], sems.at[2]).wait()
    o[i] = got


def check(use, dtype, m, overwrite, count=PAGES, block=BLOCK, rows=16):
  """`count` pages of `rows` rows, `block` of them in a step."""
  steps = count // block
  rng = np.random.RandomState(0)
  hbm = rng.randint(-4, 5, (count, rows, D)).astype(np.float32)
  q = rng.randint(-3, 4, (m, D)).astype(np.float32)
  pages = rng.permutation(count).astype(np.int32)
  numpy = globals()[use.__name__ + "_numpy"]
  want = np.stack([numpy(q, hbm[pages[i * block:(i + 1) * block]]) for i in range(steps)])
  run = pl.pallas_call(
      functools.partial(kernel, use=use, steps=steps, overwrite=overwrite, block=block),
      out_shape=jax.ShapeDtypeStruct(want.shape, jnp.float32),
      grid_spec=pltpu.PrefetchScalarGridSpec(
          num_scalar_prefetch=1, grid=(1,),
          in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM), pl.BlockSpec(memory_space=pl.ANY)],
          out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
          scratch_shapes=[pltpu.VMEM((2, block, rows, D), dtype), pltpu.SemaphoreType.DMA((3,))]))
  np.testing.assert_array_equal(run(pages, q, jnp.asarray(hbm, dtype)), want)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("m", [1, 4, 15, 32])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("use", [scores, weighted, one_page, half_pages, sums, both, tail])
def test_pages(use, dtype, m, overwrite):
  check(use, dtype, m, overwrite)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("use", [scores, weighted])
@pytest.mark.parametrize("count,block,rows", [(80, 40, 16), (160, 80, 8), (600, 300, 4)])
def test_many_pages(use, dtype, count, block, rows):
  """Products that threads share; more pages than may wait."""
  check(use, dtype, 4, False, count, block, rows)


def test_source_that_changes():
  """An input that the kernel writes, as it is an output too, is copied when it is asked for."""
  rng = np.random.RandomState(1)
  x = rng.randint(-4, 5, (2, 64, D)).astype(np.float32)
  q = rng.randint(-3, 4, (4, D)).astype(np.float32)

  def body(q, x, o, y, buffer, ones, sem):
    ones[...] = jnp.ones_like(ones)
    first = pltpu.make_async_copy(y.at[0], buffer, sem.at[0])
    first.start()
    first.wait()
    second = pltpu.make_async_copy(ones, y.at[0], sem.at[1])
    second.start()
    second.wait()
    o[...] = dot(q[...], bf16(buffer[...]), BY_ROWS)
  vmem, hbm = pl.BlockSpec(memory_space=pltpu.VMEM), pl.BlockSpec(memory_space=pl.ANY)
  o, y = pl.pallas_call(
      body, in_specs=[vmem, hbm], out_specs=[vmem, hbm], input_output_aliases={1: 1},
      out_shape=[jax.ShapeDtypeStruct((4, 64), jnp.float32), jax.ShapeDtypeStruct(x.shape, jnp.float32)],
      scratch_shapes=[pltpu.VMEM((64, D), jnp.float32), pltpu.VMEM((64, D), jnp.float32), pltpu.SemaphoreType.DMA((2,))])(q, x)
  np.testing.assert_array_equal(o, q @ x[0].T)
  np.testing.assert_array_equal(y, np.stack([np.ones_like(x[0]), x[1]]))


def test_source_that_moves():
  """A window's buffer is filled again for the next step, while the scratch that was copied from it lasts."""
  rng = np.random.RandomState(2)
  x = rng.randint(-4, 5, (12, 2 * D)).astype(np.float32)
  q = rng.randint(-3, 4, (4, D)).astype(np.float32)

  def body(q, x, o, buffer, sem):
    # What the step before has copied, before the next copy.
    @pl.when(pl.program_id(0) > 0)
    def _():
      o[0] = dot(q[...], bf16(buffer[...]), BY_ROWS)
    copy = pltpu.make_async_copy(x, buffer, sem)
    copy.start()
    copy.wait()
  # Blocks at the lower edge lie in a buffer: 4 of their 8 rows are there.
  o = pl.pallas_call(
      body, grid=(3,), in_specs=[pl.BlockSpec((4, D), lambda i: (0, 0)), pl.BlockSpec((8, D), lambda i: (1, i % 2))],
      out_specs=pl.BlockSpec((1, 4, 8), lambda i: (i, 0, 0)), out_shape=jax.ShapeDtypeStruct((3, 4, 8), jnp.float32),
      scratch_shapes=[pltpu.VMEM((8, D), jnp.float32), pltpu.SemaphoreType.DMA])(q, x)
  for i in (1, 2):
    np.testing.assert_array_equal(np.asarray(o)[i, :, :4], q @ x[8:, D * ((i - 1) % 2):][:, :D].T)
