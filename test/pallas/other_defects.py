"""Pallas kernels with one planted defect each, and their sound twins: undefined values that do not become NaN, blocks
that are written twice, helper functions, kernels inside other transformations, and copies by index. As in defects.py.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

import defects
from defects import ANY, BLOCK, DMA, OUT, ROWS, SHAPE, VMEM, kernel

ROWS16 = jax.ShapeDtypeStruct((16, 128), jnp.float32)
WORDS = pltpu.VMEM(SHAPE, jnp.int32)
STEPS = dict(rows=32, grid=(4,), out_shape=ROWS, in_specs=[BLOCK], out_specs=BLOCK)
EDGE = dict(rows=20, grid=(3,), in_specs=[BLOCK])


def words(shape):
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def row_is_there(shape=SHAPE, rows=20):
  return lax.broadcasted_iota(jnp.int32, shape, 0) + pl.program_id(0) * 8 < rows


# ---- Undefined values that are no NaN, or not for long

@kernel("follows from undefined values", **EDGE, dtype=jnp.int32, out_shape=words((1, 128)))
def padding_of_integers_is_summed(sound):
  def body(x, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
      o[...] = jnp.zeros((1, 128), jnp.int32)
    v = jnp.where(row_is_there(), x[...], 0) if sound else x[...]
    o[...] += v.sum(axis=0, keepdims=True)  # here: padding_of_integers_is_summed
  return body, dict(out_specs=pl.BlockSpec((1, 128), lambda i: (0, 0)))


@kernel("follows from undefined values", **EDGE, out_shape=words((1, 1)))
def padding_is_counted(sound):
  def body(x, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
      o[0, 0] = 0
    found = (x[...] > 0) & row_is_there() if sound else x[...] > 0
    o[0, 0] += found.astype(jnp.int32).sum()  # here: padding_is_counted
  return body, dict(out_specs=pl.BlockSpec((1, 1), lambda i: (0, 0), memory_space=pltpu.SMEM))


@kernel("follows from undefined values", columns=200, grid=(1,), out_shape=words((8, 1)))
def greatest_may_be_padding(sound):
  def body(x, o):
    lane = lax.broadcasted_iota(jnp.int32, (8, 256), 1)
    v = jnp.where(lane < 200, x[...], -jnp.inf) if sound else x[...]
    o[...] = jnp.argmax(v, axis=1).reshape(8, 1)  # here: greatest_may_be_padding
  return body, dict(in_specs=[pl.BlockSpec((8, 256), lambda i: (0, 0))], out_specs=pl.BlockSpec((8, 1), lambda i: (0, 0)))


@kernel("uninitialised", **{**STEPS, "dtype": jnp.int32, "out_shape": words((32, 128)), "scratch_shapes": [WORDS]})
def choice_drops_the_wrong_step(sound, x, o, s):
  s[...] = x[...] + jnp.where(pl.program_id(0) == (0 if sound else 3), 0, s[...])  # here: choice_drops_the_wrong_step
  o[...] = s[...]


@kernel("undefined values", out_specs=ANY, dtype=jnp.int32, out_shape=words(SHAPE), scratch_shapes=[WORDS])
def choice_keeps_unwritten_rows(sound, x, o, s):
  row = lax.broadcasted_iota(jnp.int32, SHAPE, 0)
  s[...] = jnp.where(row < (8 if sound else 4), x[...], s[...])  # here: choice_keeps_unwritten_rows
  pltpu.sync_copy(s, o)


@kernel("follows from undefined values", rows=20, dtype=jnp.int32, in_specs=[ANY], out_specs=ANY, out_shape=words((1, 128)))
def pipeline_sums_what_the_last_block_left(sound, x, o):
  def inner(a, b):
    @pl.when(pl.program_id(0) == 0)
    def _():
      b[...] = jnp.zeros((1, 128), jnp.int32)
    v = jnp.where(row_is_there(), a[...], 0) if sound else a[...]
    b[...] += v.sum(axis=0, keepdims=True)  # here: pipeline_sums_what_the_last_block_left
  pltpu.emit_pipeline(inner, grid=(3,), in_specs=[BLOCK], out_specs=[pl.BlockSpec((1, 128), lambda i: (0, 0))])(x, o)


@kernel("undefined values", rows=33, grid=(4,), out_shape=ROWS, in_specs=[ANY], out_specs=BLOCK,
        scratch_shapes=[pltpu.VMEM((16, 128), jnp.float32), DMA])
def halo_is_one_row_too_far(sound, x, o, s, sem):
  rows = 9 if sound else 10  # there is room behind the array, up to its tile
  c = pltpu.make_async_copy(x.at[pl.ds(pl.program_id(0) * 8, rows)], s.at[pl.ds(0, rows)], sem)
  c.start()
  c.wait()
  o[...] = s[0:8, :] + s[rows - 8:rows, :]  # here: halo_is_one_row_too_far


# ---- Where it goes wrong, not where it is seen

@kernel("is NaN", scratch_shapes=[VMEM])
def masked_row_of_a_softmax(sound, x, o, s):
  row = lax.broadcasted_iota(jnp.int32, SHAPE, 0)
  s[...] = jnp.where(row == 3, -jnp.inf, x[...])
  top = s[...].max(axis=1, keepdims=True)
  top = jnp.where(top == -jnp.inf, 0, top) if sound else top
  p = jnp.exp(s[...] - top)  # here: masked_row_of_a_softmax
  o[...] = p * 2


def add_to(s, v):
  s[...] += v  # here: helper_adds_to_what_is_not_there


@kernel("called at", scratch_shapes=[VMEM])
def helper_adds_to_what_is_not_there(sound, x, o, s):
  if sound:
    s[...] = jnp.zeros_like(s)
  add_to(s, x[...])
  o[...] = s[...]


@jax.jit
def logarithm(v):
  return jnp.log(v)  # here: jitted_function_of_a_kernel


@kernel("is NaN")
def jitted_function_of_a_kernel(sound, x, o):
  o[...] = logarithm(x[...] + (1 if sound else -1))


@kernel("uninitialised", plain=True)
def kernel_of_a_scan(sound):
  def body(x, o, s):
    if sound:
      s[...] = x[...]
    o[...] = s[...] + x[...]  # here: kernel_of_a_scan
  call = pl.pallas_call(body, out_shape=OUT, scratch_shapes=[VMEM])
  return lambda x: lax.scan(lambda c, v: (call(c + v), None), x, jnp.stack([x] * 3))[0]


@kernel("never written", rows=32, in_specs=[ANY], out_specs=ANY, out_shape=ROWS)
def pipeline_writes_half_a_block(sound, x, o):
  def inner(a, b):
    n = 8 if sound else 4
    b[:n, :] = a[:n, :]  # here: pipeline_writes_half_a_block
  pltpu.emit_pipeline(inner, grid=(4,), in_specs=[BLOCK], out_specs=[BLOCK])(x, o)


@kernel("is no multiple of 8", rows=32, prefetch=[8], bad=[5])
def row_is_said_to_be_aligned(sound):
  def body(n, x, o):
    row = pl.multiple_of(n[0], 8)  # here: row_is_said_to_be_aligned
    o[...] = x[pl.ds(row, 8), :]
  return body, dict(grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=1, grid=(1,), in_specs=[pl.BlockSpec((32, 128), lambda i, n: (0, 0))],
      out_specs=pl.BlockSpec(SHAPE, lambda i, n: (0, 0))))


# ---- Blocks and scopes

@kernel("revisited too late", **{**STEPS, "out_shape": ROWS16})
def block_is_written_twice(sound):
  def body(x, o):
    o[...] = x[...]  # here: block_is_written_twice
  return body, dict(out_specs=pl.BlockSpec(SHAPE, lambda i: (i // 2 if sound else i % 2, 0)))


@kernel("revisited too late", rows=32, out_shape=ROWS16, prefetch=[0, 0, 1, 1], bad=[0, 1, 0, 1])
def groups_are_not_sorted(sound):
  def body(group, x, o):
    i = pl.program_id(0)

    @pl.when((i == 0) | (group[i] != group[jnp.maximum(i - 1, 0)]))
    def _():
      o[...] = jnp.zeros(SHAPE, jnp.float32)  # here: groups_are_not_sorted
    o[...] += x[...]
  return body, dict(grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec(SHAPE, lambda i, g: (i, 0))],
      out_specs=pl.BlockSpec(SHAPE, lambda i, g: (g[i], 0))))


@kernel("a scope ends while", in_specs=[ANY], scratch_shapes=[DMA])
def copy_outlives_its_memory(sound, x, o, sem):
  def first(s):
    c = pltpu.make_async_copy(x, s, sem)
    c.start()  # here: copy_outlives_its_memory
    if sound:
      c.wait()

  def then(s):
    if not sound:
      pltpu.make_async_copy(x, s, sem).wait()
  pl.run_scoped(first, VMEM)
  pl.run_scoped(then, VMEM)
  o[...] = jnp.zeros(SHAPE, jnp.float32)


# ---- Values that a choice may drop, after what was computed with them

@kernel("undefined values", scratch_shapes=[VMEM])
def keys_behind_the_last(sound, x, o, s):
  s[0:5, :] = x[0:5, :]
  products = lax.dot_general(x[...], s[...] * 2, (((1,), (1,)), ((), ())))
  there = lax.broadcasted_iota(jnp.int32, (8, 8), 1) < (5 if sound else 6)
  best = jnp.where(there, products, -1e9).max(axis=1)
  o[...] = jnp.broadcast_to(best[:, None], SHAPE)  # here: keys_behind_the_last


@kernel("undefined values", scratch_shapes=[pltpu.SMEM((4,), jnp.int32)])
def number_behind_the_last(sound, x, o, s):
  for i in range(4):
    s[i] = i * i

  def row(i, _):
    step = lax.select(i < (3 if sound else 4), s[i + 1] - s[i], 0)
    o[pl.ds(i, 1), :] = jnp.full((1, 128), step.astype(jnp.float32))  # here: number_behind_the_last
    return 0
  o[...] = x[...]
  lax.fori_loop(0, 4, row, 0)


# ---- By index

def on_one_subcore(body, *scratch, out):
  mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=1, num_subcores=1)
  return pl.kernel(body, out_type=words(out), mesh=mesh, scratch_types=list(scratch), compiler_params=pltpu.CompilerParams(
      use_tc_tiling_on_sc=False, needs_layout_passes=False))


LANES = dict(rows=1, columns=8, dtype=jnp.int32, plain=True)
EIGHT = pltpu.VMEM((8,), jnp.int32)


@kernel("out of bounds", **LANES)
def element_behind_the_last(sound):
  def body(x, o, v, w):
    pltpu.sync_copy(x.at[0], v)
    w[...] = plsc.load_gather(v, [lax.iota(jnp.int32, 8) + (0 if sound else 1)])  # here: element_behind_the_last
    pltpu.sync_copy(w, o)
  return on_one_subcore(body, EIGHT, EIGHT, out=(8,))


@kernel("out of bounds", **LANES)
def element_before_the_first(sound):
  def body(x, o, v, w):
    pltpu.sync_copy(x.at[0], v)
    w[...] = v[...]
    plsc.store_scatter(w, [lax.iota(jnp.int32, 8) - (0 if sound else 1)], v[...])  # here: element_before_the_first
    pltpu.sync_copy(w, o)
  return on_one_subcore(body, EIGHT, EIGHT, out=(8,))


@kernel("race", rows=16, columns=16, dtype=jnp.int32, plain=True)
def indices_change_under_a_copy(sound):
  def body(x, o, rows, v, sem):
    rows[...] = lax.iota(jnp.int32, 8)
    c = pltpu.make_async_copy(x.at[rows], v, sem)
    c.start()
    if sound:
      c.wait()
    rows[...] = lax.iota(jnp.int32, 8) + 8  # here: indices_change_under_a_copy
    if not sound:
      c.wait()
    pltpu.sync_copy(v, o)
  return on_one_subcore(body, EIGHT, pltpu.VMEM((8, 16), jnp.int32), DMA, out=(8, 16))


if __name__ == "__main__":
  defects.main("__main__")
