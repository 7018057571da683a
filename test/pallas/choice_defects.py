"""Pallas kernels with one planted defect each, and their sound twins: undefined values that a choice drops or keeps, NaN
that becomes an integer, elements that SparseCores touch by index or mask, and semaphores that copies share. As in
defects.py.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

import defects
from defects import ANY, BLOCK, DMA, ROWS, SHAPE, VMEM, kernel, on_chips
from other_defects import EIGHT, LANES, on_one_subcore, words

CHIPS = dict(rows=16, plain=True)


def column(shape):
  return lax.broadcasted_iota(jnp.int32, shape, 1)


# ---- What a choice drops

@kernel("uninitialised", rows=128, in_specs=[ANY], scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32), DMA])
def probability_zero_times_unwritten_values(sound, x, o, pages, sem):
  there = slice(0, 40)
  c = pltpu.make_async_copy(x.at[there], pages.at[there], sem)
  c.start()
  c.wait()
  s = jnp.dot(jnp.ones(SHAPE, jnp.float32), pages[...].T, preferred_element_type=jnp.float32) * 1e-3
  s = jnp.where(column(s.shape) < 40, s, -1e30)
  p = jnp.exp(s - s.max(1, keepdims=True))
  v = pages[...]  # here: probability_zero_times_unwritten_values
  if sound:
    v = jnp.where(lax.broadcasted_iota(jnp.int32, v.shape, 0) < 40, v, 0)
  o[...] = jnp.dot(p, v, preferred_element_type=jnp.float32)


@kernel("uninitialised", rows=32, grid=(4,), in_specs=[BLOCK], scratch_shapes=[VMEM],
        out_specs=pl.BlockSpec(SHAPE, lambda i: (0, 0)))
def sum_begins_a_step_late(sound, x, o, total):
  first = pl.program_id(0) == (0 if sound else 1)
  total[...] = jnp.where(first, x[...], total[...] + x[...])  # here: sum_begins_a_step_late

  @pl.when(pl.program_id(0) == 3)
  def _():
    o[...] = total[...]


@kernel("follows from undefined values", rows=1, dtype=jnp.int32, out_shape=words(SHAPE),
        scratch_shapes=[pltpu.VMEM(SHAPE, jnp.int32)])
def mask_is_a_column_too_wide(sound, x, o, s):
  s[:, 0:64] = jnp.broadcast_to(x[:, 0:64], (8, 64))
  o[...] = jnp.where(column(SHAPE) < (64 if sound else 65), s[...] * 2 + 1, 0)  # here: mask_is_a_column_too_wide


@kernel("undefined values", columns=200, grid=(2,), in_specs=[pl.BlockSpec(SHAPE, lambda j: (0, j))],
        out_specs=pl.BlockSpec(SHAPE, lambda j: (0, 0)), scratch_shapes=[VMEM])
def scores_behind_the_edge(sound, x, o, m):
  j = pl.program_id(0)

  @pl.when(j == 0)
  def _():
    m[...] = jnp.full(SHAPE, -1e30, jnp.float32)
  s = jnp.where(j * 128 + column(SHAPE) < (200 if sound else 201), x[...] * 1e-3, -1e30)  # here: scores_behind_the_edge
  m[...] += jnp.exp(s - s.max(1, keepdims=True))

  @pl.when(j == 1)
  def _():
    o[...] = m[...]


@kernel("follows from undefined values", scratch_shapes=[VMEM])
def rows_before_the_first(sound, x, o, before):
  """A convolution over time whose state nobody has filled."""
  both = jnp.concatenate([before[...], x[...]], 0)  # here: rows_before_the_first
  row = lax.broadcasted_iota(jnp.int32, SHAPE, 0)
  o[...] = x[...] + jnp.where(row < (2 if sound else 1), 0, both[6:14])


@kernel("computed from undefined values", **CHIPS)
def chips_keep_rows_that_nobody_wrote(sound):
  """A kernel of several chips has no second run."""
  def body(x, o, s, t):
    pltpu.sync_copy(x, s)
    defects.meet(1 - lax.axis_index("x"))
    row = lax.broadcasted_iota(jnp.int32, SHAPE, 0)
    t[...] = jnp.where(row < (8 if sound else 5), s[...], t[...])
    pltpu.sync_copy(t, o)  # here: chips_keep_rows_that_nobody_wrote
  return on_chips(body, [VMEM, VMEM], out_specs=ANY)


# ---- Values that become integers

@kernel("what becomes an integer is NaN", out_shape=words((8, 1)))
def greatest_of_some_roots(sound, x, o):
  v = x[...] if sound else x[...] - 5
  r = jnp.sqrt(v)  # here: greatest_of_some_roots
  o[...] = jnp.argmax(r, axis=1).reshape(8, 1)


@kernel("what becomes an integer is NaN", out_shape=words(SHAPE))
def row_of_zeros_is_quantised(sound, x, o):
  v = jnp.where(lax.broadcasted_iota(jnp.int32, SHAPE, 0) == 3, 0, x[...])
  scale = jnp.abs(v).max(1, keepdims=True) / 127
  if sound:
    scale = jnp.maximum(scale, 1e-9)
  o[...] = jnp.round(v / scale).astype(jnp.int32)  # here: row_of_zeros_is_quantised


@kernel("what becomes an integer is NaN", out_shape=words(SHAPE))
def bucket_of_a_negative_root(sound, x, o):
  v = x[...] - 5
  b = jnp.sqrt(v).astype(jnp.int32)  # here: bucket_of_a_negative_root
  o[...] = jnp.where(v >= 0, b, -1) if sound else b


@kernel("changes with what NaN becomes", out_shape=words(SHAPE))
def bucket_of_a_negative_root_is_kept(sound, x, o):
  v = x[...] - 5
  b = jnp.sqrt(v).astype(jnp.int32)  # here: bucket_of_a_negative_root_is_kept
  o[...] = jnp.where(v >= (0 if sound else -1), b * 2 + 1, -1)


@kernel("what becomes an integer is NaN", out_shape=words((8,)), in_specs=[ANY])
def scalar_ratio_becomes_an_integer(sound):
  def body(x, o, s):
    pltpu.sync_copy(x.at[0], s)
    for i in range(8):
      d = jnp.maximum(s[i], 1) if sound else s[i]
      o[i] = (s[i] / d).astype(jnp.int32)  # here: scalar_ratio_becomes_an_integer
  return body, dict(scratch_shapes=[pltpu.SMEM((128,), jnp.float32)], out_specs=pl.BlockSpec(memory_space=pltpu.SMEM))


@kernel("is NaN", out_shape=jax.ShapeDtypeStruct((8,), jnp.float32), in_specs=[ANY])
def scalar_ratio_is_stored(sound):
  def body(x, o, s):
    pltpu.sync_copy(x.at[0], s)
    for i in range(8):
      v = s[i] / s[i]  # here: scalar_ratio_is_stored
      o[i] = jnp.where(s[i] > 0, v, 0) if sound else v
  return body, dict(scratch_shapes=[pltpu.SMEM((128,), jnp.float32)], out_specs=pl.BlockSpec(memory_space=pltpu.SMEM))


# ---- By index and by mask, on SparseCores

@kernel("uninitialised", **LANES)
def histogram_is_not_cleared(sound):
  def body(x, o, v, bins):
    pltpu.sync_copy(x.at[0], v)
    if sound:
      bins[...] = jnp.zeros((8,), jnp.int32)
    plsc.addupdate_scatter(bins, [v[...]], jnp.ones((8,), jnp.int32))  # here: histogram_is_not_cleared
    pltpu.sync_copy(bins, o)
  return on_one_subcore(body, EIGHT, EIGHT, out=(8,))


@kernel("uninitialised", **LANES)
def element_that_the_mask_left_out_is_read(sound):
  def body(x, o, v, w):
    pltpu.sync_copy(x.at[0], v)
    at = lax.iota(jnp.int32, 8)
    plsc.store_scatter(w, [at], v[...], mask=at < (8 if sound else 7))
    v[...] = plsc.load_gather(w, [7 - at])  # here: element_that_the_mask_left_out_is_read
    pltpu.sync_copy(v, o)
  return on_one_subcore(body, EIGHT, EIGHT, out=(8,))


@kernel("uninitialised", **LANES)
def fewer_are_kept_than_read(sound):
  def body(x, o, v, kept):
    pltpu.sync_copy(x.at[0], v)
    if sound:
      kept[...] = jnp.zeros((8,), jnp.int32)
    plsc.store_compressed(kept.at[...], v[...], mask=v[...] > 3)
    v[...] = kept[...] + 1  # here: fewer_are_kept_than_read
    pltpu.sync_copy(v, o)
  return on_one_subcore(body, EIGHT, EIGHT, out=(8,))


@kernel("elements 8 to 9 of 8", **LANES)
def kept_elements_begin_one_late(sound):
  """Only what the mask keeps is written: each store's eight lanes reach far behind the memory."""
  def body(x, o, v, kept):
    pltpu.sync_copy(x.at[0], v)
    kept[...] = jnp.zeros((8,), jnp.int32)

    def turn(i, place):
      mask = lax.iota(jnp.int32, 8) == i
      plsc.store_compressed(kept.at[pl.ds(place, 8)], v[...], mask=mask)  # here: kept_elements_begin_one_late
      return place + mask.astype(jnp.int32).sum()
    lax.fori_loop(0, 8, turn, 0 if sound else 1)
    pltpu.sync_copy(kept, o)
  return on_one_subcore(body, EIGHT, EIGHT, out=(8,))


# ---- Semaphores

@kernel("the barrier semaphore is 1 when the kernel ends", **CHIPS)
def barrier_is_signalled_by_oneself_too(sound):
  def body(x, o):
    barrier = pltpu.get_barrier_semaphore()
    me = lax.axis_index("x")
    for chip in (1 - me,) if sound else (me, 1 - me):
      pl.semaphore_signal(barrier, 1, device_id=chip)  # here: barrier_is_signalled_by_oneself_too
    pl.semaphore_wait(barrier, 1)
    pltpu.sync_copy(x, o)
  return on_chips(body, out_specs=ANY)


@kernel("of the semaphores scratch 1 (argument 3)", rows=24, in_specs=[ANY], out_shape=jax.ShapeDtypeStruct((24, 128), jnp.float32))
def semaphores_are_fewer_than_slots(sound):
  def body(x, o, s, sems):
    def copy(i):
      rows = pl.ds(i * 8, 8)
      return pltpu.make_async_copy(x.at[rows], s.at[rows], sems.at[i])

    def start(i, _):
      copy(i).start()  # here: semaphores_are_fewer_than_slots
      return 0

    def wait(i, _):
      copy(i).wait()
      return 0
    lax.fori_loop(0, 3, start, 0)
    lax.fori_loop(0, 3, wait, 0)
    o[...] = s[...]
  return body, dict(scratch_shapes=[pltpu.VMEM((24, 128), jnp.float32), pltpu.SemaphoreType.DMA((3 if sound else 2,))])


@kernel("race", rows=48, in_specs=[ANY], out_shape=jax.ShapeDtypeStruct((48, 128), jnp.float32),
        scratch_shapes=[pltpu.VMEM((3, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((3,))])
def three_slots_take_turns_with_two_semaphores(sound, x, o, s, sems):
  def copy(i):
    return pltpu.make_async_copy(x.at[pl.ds(i * 8, 8)], s.at[i % 3], sems.at[i % (3 if sound else 2)])
  for i in range(3):
    copy(i).start()
  for i in range(6):
    copy(i).wait()
    o[i * 8:i * 8 + 8, :] = s[i % 3]  # here: three_slots_take_turns_with_two_semaphores
    if i + 3 < 6:
      copy(i + 3).start()


# ---- Blocks

@kernel("see its BlockSpec", rows=32, columns=256, out_shape=jax.ShapeDtypeStruct((32, 256), jnp.float32))
def grid_ids_are_swapped(sound):
  def body(x, o):
    o[...] = x[...]

  def block(i, j):
    return (i, j) if sound else (j, i)
  return body, dict(grid=(4, 2), in_specs=[pl.BlockSpec(SHAPE, block)], out_specs=pl.BlockSpec(SHAPE, lambda i, j: (i, j)))


@kernel("follows from undefined values", rows=40, in_specs=[ANY], out_specs=ANY, out_shape=ROWS)
def slice_begins_behind_the_array(sound, x, o):
  def body(xb, ob):
    ob[...] = xb[...]  # here: slice_begins_behind_the_array
  last = 32 if sound else 40

  def rows(i):
    return pl.ds(pl.multiple_of(jnp.where(i == 3, last, i * 8), 8), 8), 0
  pltpu.emit_pipeline(body, grid=(4,), in_specs=[pl.BlockSpec((pl.BoundedSlice(8), 128), rows)], out_specs=[BLOCK])(x, o)


if __name__ == "__main__":
  defects.main("__main__")
