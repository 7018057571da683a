"""More Pallas kernels with one planted defect each, and their sound twins: double buffers by hand, pipelines,
aliases, index maps, padding, cores, and rings of chips. As in defects.py; they want four chips of two cores
(ATOLL_TARGET=v5p:2x2x1).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

import defects
from defects import ANY, BLOCK, DMA, OUT, ROWS, SEM, SHAPE, VMEM, kernel, on_chips, on_cores

DMA2 = pltpu.SemaphoreType.DMA((2,))
DMA3 = pltpu.SemaphoreType.DMA((3,))
SLOTS = pltpu.VMEM((2, 8, 128), jnp.float32)
ROWS16 = jax.ShapeDtypeStruct((16, 128), jnp.float32)
STEPS = dict(rows=32, grid=(4,), out_shape=ROWS, in_specs=[BLOCK], out_specs=BLOCK)
HAND = {**STEPS, "in_specs": [ANY], "scratch_shapes": [SLOTS, DMA2]}


def zeros():
  return jnp.zeros(SHAPE, jnp.float32)


def fetch(x, s, sems, i, slot):
  return pltpu.make_async_copy(x.at[pl.ds(i * 8, 8)], s.at[slot], sems.at[slot])


# ---- Double buffers by hand

@kernel("race", **HAND)
def prefetch_into_the_slot_in_use(sound, x, o, s, sems):
  i = pl.program_id(0)
  slot, other = i % 2, (i + 1) % 2

  @pl.when(i == 0)
  def _():
    fetch(x, s, sems, 0, 0).start()
  fetch(x, s, sems, i, slot).wait()

  @pl.when(i < 3)
  def _():
    pltpu.make_async_copy(x.at[pl.ds(i * 8 + 8, 8)], s.at[other if sound else slot], sems.at[other]).start()
  o[...] = s[slot]  # here: prefetch_into_the_slot_in_use


@kernel("never waited for", **HAND)
def last_step_prefetches_too(sound, x, o, s, sems):
  i = pl.program_id(0)

  @pl.when(i == 0)
  def _():
    fetch(x, s, sems, 0, 0).start()

  @pl.when(i < (3 if sound else 4))
  def _():
    fetch(x, s, sems, jnp.minimum(i + 1, 3), (i + 1) % 2).start()  # here: last_step_prefetches_too
  fetch(x, s, sems, i, i % 2).wait()
  o[...] = s[i % 2]


@kernel("deadlock", **HAND)
def first_copy_is_not_started(sound, x, o, s, sems):
  i = pl.program_id(0)

  @pl.when(i == (0 if sound else 4))
  def _():
    fetch(x, s, sems, 0, 0).start()

  @pl.when(i < 3)
  def _():
    fetch(x, s, sems, i + 1, (i + 1) % 2).start()
  fetch(x, s, sems, i, i % 2).wait()  # here: first_copy_is_not_started
  o[...] = s[i % 2]


@kernel("race", **{**STEPS, "out_specs": ANY, "scratch_shapes": [SLOTS, DMA2]})
def slot_is_filled_before_it_was_sent(sound, x, o, s, sems):
  i = pl.program_id(0)

  def send(k):
    return pltpu.make_async_copy(s.at[k % 2], o.at[pl.ds(k * 8, 8)], sems.at[k % 2])

  def wait_for_the_last():
    @pl.when(i >= 2)
    def _():
      send(i - 2).wait()
  if sound:
    wait_for_the_last()
  s[i % 2] = x[...] * 2  # here: slot_is_filled_before_it_was_sent
  send(i).start()
  if not sound:
    wait_for_the_last()

  @pl.when(i == 3)
  def _():
    send(2).wait()
    send(3).wait()


@kernel("race", in_specs=[ANY], scratch_shapes=[SLOTS, DMA2])
def two_copies_share_a_semaphore(sound, x, o, s, sems):
  a = pltpu.make_async_copy(x, s.at[0], sems.at[0])
  b = pltpu.make_async_copy(x, s.at[1], sems.at[1 if sound else 0])
  a.start()
  b.start()
  a.wait()
  o[...] = s[0]  # here: two_copies_share_a_semaphore
  b.wait()


@kernel("race", rows=16, in_specs=[ANY], out_specs=ANY, out_shape=ROWS16, scratch_shapes=[DMA2])
def copy_of_a_copy_in_flight(sound, x, o, sems):
  a = pltpu.make_async_copy(x.at[0:8], o.at[0:8], sems.at[0])
  b = pltpu.make_async_copy(o.at[0:8], o.at[8:16], sems.at[1])
  a.start()
  if sound:
    a.wait()
  b.start()  # here: copy_of_a_copy_in_flight
  if not sound:
    a.wait()
  b.wait()


@kernel("moves on while this copy still reads it", **{**STEPS, "out_specs": ANY, "scratch_shapes": [DMA]})
def window_moves_while_it_is_sent(sound, x, o, sem):
  i = pl.program_id(0)
  c = pltpu.make_async_copy(x, o.at[pl.ds(i * 8, 8)], sem)

  @pl.when((i > 0) & (not sound))
  def _():
    c.wait()
  c.start()  # here: window_moves_while_it_is_sent

  @pl.when((i == 3) | sound)
  def _():
    c.wait()


@kernel("moves on while this copy still writes it", **{**STEPS, "in_specs": [ANY], "scratch_shapes": [DMA]})
def output_window_is_still_being_filled(sound, x, o, sem):
  i = pl.program_id(0)
  c = pltpu.make_async_copy(x.at[pl.ds(i * 8, 8)], o, sem)

  @pl.when((i > 0) & (not sound))
  def _():
    c.wait()
  c.start()  # here: output_window_is_still_being_filled

  @pl.when((i == 3) | sound)
  def _():
    c.wait()


@kernel("race", in_specs=[ANY])
def scope_ends_before_its_copy(sound, x, o):
  def outer(sem):
    def first(s):
      c = pltpu.make_async_copy(x, s, sem)
      c.start()  # here: scope_ends_before_its_copy
      if sound:
        c.wait()

    def second(s):
      s[...] = zeros()
      o[...] = s[...]
      if not sound:
        pltpu.make_async_copy(x, s, sem).wait()
    pl.run_scoped(first, VMEM)
    pl.run_scoped(second, VMEM)
  pl.run_scoped(outer, DMA)


@kernel("turns of its loops", scratch_shapes=[SEM])
def spins_on_a_semaphore(sound, x, o, sem):
  if sound:
    pl.semaphore_signal(sem, 1)
  v = jax.lax.while_loop(lambda v: v < 1, lambda v: pl.semaphore_read(sem), 0)  # here: spins_on_a_semaphore
  if sound:
    pl.semaphore_wait(sem, 1)
  o[...] = x[...] + v.astype(jnp.float32)


@kernel("race", **{**STEPS, "in_specs": [ANY], "scratch_shapes": [pltpu.VMEM((3, 8, 128), jnp.float32), DMA3]})
def triple_buffer_is_one_slot_short(sound, x, o, s, sems):
  i, slots = pl.program_id(0), 3 if sound else 2

  def copy(k):
    return pltpu.make_async_copy(x.at[pl.ds(k * 8, 8)], s.at[k % slots], sems.at[k % 3])

  @pl.when(i == 0)
  def _():
    copy(0).start()
    copy(1).start()

  @pl.when(i < 2)
  def _():
    copy(i + 2).start()  # here: triple_buffer_is_one_slot_short
  copy(i).wait()
  o[...] = s[i % slots]


@kernel("deadlock", **{**STEPS, "in_specs": [ANY], "scratch_shapes": [VMEM, DMA]})
def started_on_even_steps_only(sound, x, o, s, sem):
  i = pl.program_id(0)
  c = pltpu.make_async_copy(x.at[pl.ds(i * 8, 8)], s, sem)

  @pl.when((i % 2 == 0) | sound)
  def _():
    c.start()
  c.wait()  # here: started_on_even_steps_only
  o[...] = s[...]


# ---- emit_pipeline

@kernel("uninitialised", rows=32, in_specs=[ANY], out_specs=ANY)
def pipeline_accumulator_is_not_cleared(sound, x, o):
  def inner(x, o):
    @pl.when((pl.program_id(0) == 0) & sound)
    def _():
      o[...] = zeros()
    o[...] += x[...]  # here: pipeline_accumulator_is_not_cleared
  pltpu.emit_pipeline(inner, grid=(4,), in_specs=[BLOCK], out_specs=[pl.BlockSpec(SHAPE, lambda i: (0, 0))])(x, o)


@kernel("uninitialised", rows=32, in_specs=[ANY], out_specs=ANY, out_shape=ROWS)
def pipeline_output_is_revisited_late(sound, x, o):
  grid, turn = ((4, 2), 1) if sound else ((2, 4), 0)

  def inner(x, o):
    @pl.when(pl.program_id(turn) == 0)
    def _():
      o[...] = zeros()
    o[...] += x[...]  # here: pipeline_output_is_revisited_late
  spec = pl.BlockSpec(SHAPE, lambda i, j: ((i if sound else j), 0))
  pltpu.emit_pipeline(inner, grid=grid, in_specs=[spec], out_specs=[spec])(x, o)


@kernel("out of bounds", rows=32, in_specs=[ANY], out_specs=ANY, out_shape=ROWS)
def pipeline_block_is_off_by_one(sound, x, o):
  def inner(x, o):
    o[...] = x[...]

  def block(i):
    return (i if sound else i + 1, 0)
  run = pltpu.emit_pipeline(inner, grid=(4,), in_specs=[pl.BlockSpec(SHAPE, block)], out_specs=[BLOCK])
  run(x, o)  # here: pipeline_block_is_off_by_one


# ---- Aliases, windows, index maps

@kernel("shares its memory", **{**STEPS, "input_output_aliases": {0: 0}})
def aliased_block_was_written_before(sound):
  def block(i):
    return (i if sound else jnp.maximum(i - 1, 0), 0)  # here: aliased_block_was_written_before

  def body(x, o):
    o[...] = x[...] + 1
  return body, dict(in_specs=[pl.BlockSpec(SHAPE, block)])


@kernel("leaves the array", rows=32, columns=256, out_shape=jax.ShapeDtypeStruct((32, 256), jnp.float32), grid=(4, 2))
def index_map_is_transposed(sound):
  def body(x, o):
    o[...] = x[...]  # here: index_map_is_transposed
  straight = pl.BlockSpec(SHAPE, lambda i, j: (i, j))
  return body, dict(in_specs=[straight if sound else pl.BlockSpec(SHAPE, lambda i, j: (j, i))], out_specs=straight)


@kernel("never written", **STEPS)
def output_map_skips_blocks(sound):
  def body(x, o):
    o[...] = x[...]  # here: output_map_skips_blocks
  return body, dict(out_specs=pl.BlockSpec(SHAPE, lambda i: (i if sound else i // 2 * 2, 0)))


@kernel("never written", **STEPS)
def only_the_last_step_writes(sound, x, o):
  @pl.when((pl.program_id(0) == 3) | sound)
  def _():
    o[...] = x[...]  # here: only_the_last_step_writes


@kernel("never written")
def mask_leaves_lanes_out(sound, x, o):
  lane = jax.lax.broadcasted_iota(jnp.int32, SHAPE, 1)
  pltpu.store(o, x[...], mask=lane < (128 if sound else 100))  # here: mask_leaves_lanes_out


@kernel("out of bounds", rows=32, out_shape=ROWS, prefetch=[0, 3, 1, 2], bad=[0, 3, 1, 2])
def next_block_of_the_last(sound):
  def block(i, which):
    n = jnp.minimum(i + 1, 3) if sound else i + 1
    return (which[n], 0)  # here: next_block_of_the_last

  def body(which, x, o):
    o[...] = x[...]
  return body, dict(grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec(SHAPE, block)],
      out_specs=pl.BlockSpec(SHAPE, lambda i, which: (i, 0))))


@kernel("leaves the array", **STEPS)
def element_window_leaves(sound):
  def rows(i):
    return (i * (8 if sound else 16), 0)  # here: element_window_leaves

  def body(x, o):
    o[...] = x[...]
  return body, dict(in_specs=[pl.BlockSpec((pl.Element(8), pl.Element(128)), rows)])


@kernel("out of bounds", rows=32, out_shape=ROWS)
def index_overflows(sound, x, o):
  def turn(i, at):
    o[pl.ds(i * 8, 8), :] = x[pl.ds(jax.lax.rem(at, 24), 8), :]  # here: index_overflows
    return at * 3 + 7 if sound else at + (1 << 30)
  jax.lax.fori_loop(0, 4, turn, jnp.int32(5))


# ---- Values

@kernel("consecutive", plain=True, rows=256, columns=256)
def product_with_the_reduction_in_the_middle(sound):
  def body(a, b, o):
    @pl.when(pl.program_id(2 if sound else 1) == 0)
    def _():
      o[...] = jnp.zeros_like(o)
    o[...] += jnp.dot(a[...], b[...],  # here: product_with_the_reduction_in_the_middle
                      preferred_element_type=jnp.float32)

  def spec(f):
    return pl.BlockSpec((128, 128), f if sound else lambda i, k, j: f(i, j, k))
  return lambda x: pl.pallas_call(
      body, grid=(2, 2, 2), out_shape=jax.ShapeDtypeStruct((256, 256), jnp.float32),
      in_specs=[spec(lambda i, j, k: (i, k)), spec(lambda i, j, k: (k, j))], out_specs=spec(lambda i, j, k: (i, j)))(x, x)


@kernel("NaN", columns=200, grid=(2,), out_shape=jax.ShapeDtypeStruct((8, 256), jnp.float32))
def softmax_over_padding(sound):
  def body(x, o):
    column = jax.lax.broadcasted_iota(jnp.int32, SHAPE, 1) + pl.program_id(0) * 128
    v = jnp.where(column < 200, x[...], -1e30) if sound else x[...]
    o[...] = jnp.exp(v - v.max(axis=1, keepdims=True))  # here: softmax_over_padding
  block = pl.BlockSpec(SHAPE, lambda i: (0, i))
  return body, dict(in_specs=[block], out_specs=block)


@kernel("NaN")
def row_is_masked_wholly(sound, x, o):
  row = jax.lax.broadcasted_iota(jnp.int32, SHAPE, 0)
  v = jnp.where(row < 7, x[...], -1e30 if sound else -jnp.inf)
  o[...] = jnp.exp(v - v.max(axis=1, keepdims=True))  # here: row_is_masked_wholly


@kernel("uninitialised", **{**STEPS, "scratch_shapes": [pltpu.SMEM((1,), jnp.float32)]})
def scalar_sum_is_not_cleared(sound, x, o, s):
  @pl.when((pl.program_id(0) == 0) & sound)
  def _():
    s[0] = 0.0
  s[0] += x[0, 0]  # here: scalar_sum_is_not_cleared
  o[...] = x[...] * s[0]


@kernel("uninitialised", scratch_shapes=[pltpu.VMEM((16, 128), jnp.float32)])
def halo_is_never_filled(sound, x, o, s):
  s[4:12, :] = x[...]
  if sound:
    s[0:4, :] = jnp.zeros((4, 128), jnp.float32)
  o[...] = s[3:11, :] + x[...]  # here: halo_is_never_filled


# ---- Cores

@kernel("race", rows=16, plain=True)
def reads_what_the_other_core_writes(sound):
  def body(x, o, s, sem):
    core = jax.lax.axis_index("core")
    pltpu.sync_copy(x.at[pl.ds(core * 8, 8)], s)
    pltpu.sync_copy(s, o.at[pl.ds(core * 8, 8)])
    if sound:
      pl.semaphore_signal(sem, 1, device_id={"core": 1 - core})
      pl.semaphore_wait(sem, 1)

    @pl.when(core == 0)
    def _():
      pltpu.sync_copy(o.at[8:16], s)
  return on_cores(body, [VMEM, SEM])


def on_subcores(body, *scratch):
  mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=1)
  return pl.kernel(body, out_type=jax.ShapeDtypeStruct((256,), jnp.int32), mesh=mesh, scratch_types=list(scratch))


WORDS = pltpu.VMEM((16,), jnp.int32)
TABLE = dict(rows=16, columns=16, dtype=jnp.int32, plain=True)


@kernel("race", **TABLE)
def subcores_write_one_place(sound):
  def body(x, o, v):
    me = jax.lax.axis_index("subcore")
    pltpu.sync_copy(x.at[me], v)
    pltpu.sync_copy(v, o.at[pl.ds((me if sound else me // 2) * 16, 16)])  # here: subcores_write_one_place
  return on_subcores(body, WORDS)


@kernel("race", **TABLE)
def subcore_reads_before_the_barrier(sound):
  def body(x, o, v, shared):
    me = jax.lax.axis_index("subcore")
    pltpu.sync_copy(x.at[me], v)
    pltpu.sync_copy(v, shared.at[me])
    if sound:
      plsc.subcore_barrier()
    pltpu.sync_copy(shared.at[(me + 1) % 16], v)
    pltpu.sync_copy(v, o.at[pl.ds(me * 16, 16)])
  return on_subcores(body, WORDS, pltpu.VMEM_SHARED((16, 16), jnp.int32))


def sums_of_subcores(zeroed, waits):
  """Every subcore adds its row to the rows that it names: copies that add do not disturb each other."""
  def body(x, o, v, rows, shared):
    me = jax.lax.axis_index("subcore")
    pltpu.sync_copy(x.at[me], v.at[0])
    rows[...] = jnp.zeros((16,), jnp.int32)
    if zeroed:
      @pl.when(me == 0)
      def _():
        for i in range(1, 16):
          v[i, :] = jnp.zeros((16,), jnp.int32)
        pltpu.sync_copy(v.at[pl.ds(1, 1)], shared.at[pl.ds(0, 1)])
    plsc.subcore_barrier()
    pltpu.sync_copy(v.at[pl.ds(0, 1)], shared.at[rows.at[pl.ds(0, 1)]], add=True)  # here: sum_starts_from_nothing
    if waits:
      plsc.subcore_barrier()
    pltpu.sync_copy(shared.at[0], v.at[0])  # here: sum_is_read_before_the_barrier
    pltpu.sync_copy(v.at[0], o.at[pl.ds(me * 16, 16)])
  return on_subcores(body, pltpu.VMEM((16, 16), jnp.int32), WORDS, pltpu.VMEM_SHARED((16, 16), jnp.int32))


@kernel("race", **TABLE)
def sum_is_read_before_the_barrier(sound):
  return sums_of_subcores(zeroed=True, waits=sound)


@kernel("uninitialised", **TABLE)
def sum_starts_from_nothing(sound):
  return sums_of_subcores(zeroed=sound, waits=True)


# ---- Chips

@kernel("race", rows=16, plain=True)
def next_round_comes_before_the_last_was_read(sound):
  def body(x, o, s, send, receive):
    other = 1 - jax.lax.axis_index("x")
    defects.meet(other)
    c = pltpu.make_async_remote_copy(x, s, send, receive, device_id=other)
    c.start()
    c.wait()
    o[...] = s[...]
    if sound:
      defects.meet(other)
    c.start()  # here: next_round_comes_before_the_last_was_read
    c.wait()
    o[...] += s[...]
  return on_chips(body, [VMEM, DMA, DMA])


@kernel("out of bounds", rows=16, plain=True)
def rows_of_the_other_chip_end_sooner(sound):
  def body(x, o, s, send, receive):
    me = jax.lax.axis_index("x")
    defects.meet(1 - me)
    rows = pl.ds((me if sound else me + 1) * 8, 8)
    c = pltpu.make_async_remote_copy(x, s.at[rows], send, receive, device_id=1 - me)
    c.start()  # here: rows_of_the_other_chip_end_sooner
    c.wait()
    o[...] = s[pl.ds((1 - me) * 8, 8)]
  return on_chips(body, [pltpu.VMEM((16, 128), jnp.float32), DMA, DMA])


def on_ring(body, scratch, out=SHAPE, **call):
  mesh = jax.sharding.Mesh(jax.devices()[:4], ("x",))
  spec = jax.sharding.PartitionSpec("x", None)
  one = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(out, jnp.float32), in_specs=[ANY],
                       scratch_shapes=scratch, compiler_params=pltpu.CompilerParams(collective_id=0), **call)
  return jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


def neighbours():
  me = jax.lax.axis_index("x")
  return me, (me + 3) % 4, (me + 1) % 4


def meet_neighbours(count=2):
  _, left, right = neighbours()
  barrier = pltpu.get_barrier_semaphore()
  pl.semaphore_signal(barrier, 1, device_id=left)
  pl.semaphore_signal(barrier, 1, device_id=right)
  pl.semaphore_wait(barrier, count)


def gather(turns=3, early=False):
  """All-gather around a ring. early: a turn goes on before what it forwards has come."""
  def body(x, o, send, receive):
    me, _, right = neighbours()
    meet_neighbours()
    pltpu.sync_copy(x, o.at[pl.ds(me * 8, 8)])

    def copy(k):
      rows = pl.ds((me + 4 - k) % 4 * 8, 8)
      return pltpu.make_async_remote_copy(o.at[rows], o.at[rows], send.at[k], receive.at[k], device_id=right)
    for k in range(turns):
      copy(k).start()  # here: gather_forwards_too_early
      copy(k).wait_send()
      if not early:
        copy(k).wait_recv()
    if early:
      for k in range(turns):
        copy(k).wait_recv()
  return on_ring(body, [DMA3, DMA3], (32, 128), out_specs=ANY)


@kernel("race", rows=32, plain=True)
def gather_forwards_too_early(sound):
  return gather(early=not sound)


@kernel("never written", rows=32, plain=True)
def gather_is_one_turn_short(sound):
  return gather(3 if sound else 2)


@kernel("when the kernel ends", rows=32, plain=True)
def barrier_waits_for_one_of_two(sound):
  def body(x, o):
    meet_neighbours(2 if sound else 1)
    pltpu.sync_copy(x, o)
  return on_ring(body, [], out_specs=ANY)


@kernel("waits for the barrier semaphore", rows=32, plain=True)
def barrier_waits_for_three_of_two(sound):
  def body(x, o):
    meet_neighbours(2 if sound else 3)
    pltpu.sync_copy(x, o)
  return on_ring(body, [], out_specs=ANY)


@kernel("race", rows=32, plain=True)
def barrier_of_the_other_axis(sound):
  """Who meets its neighbour along one axis of a mesh sends along the other."""
  def body(x, o, s, send, receive):
    a, b = jax.lax.axis_index("a"), jax.lax.axis_index("b")
    s[...] = zeros()
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id={"b": 1 - b} if sound else {"a": 1 - a})
    pl.semaphore_wait(barrier, 1)
    c = pltpu.make_async_remote_copy(x, s, send, receive, device_id={"b": 1 - b})
    c.start()
    c.wait()
    o[...] = s[...]
  mesh = jax.sharding.Mesh(np.reshape(jax.devices()[:4], (2, 2)), ("a", "b"))
  spec = jax.sharding.PartitionSpec(("a", "b"), None)
  one = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(SHAPE, jnp.float32), in_specs=[ANY], scratch_shapes=[VMEM, DMA, DMA],
                       compiler_params=pltpu.CompilerParams(collective_id=0))
  return jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


@kernel("does not take part", rows=32, plain=True)
def chip_behind_the_last(sound):
  def body(x, o, s, send, receive):
    me, _, right = neighbours()
    meet_neighbours()
    c = pltpu.make_async_remote_copy(x, s, send, receive, device_id=right if sound else me + 1)
    c.start()  # here: chip_behind_the_last
    c.wait()
    o[...] = s[...]
  return on_ring(body, [VMEM, DMA, DMA])


@kernel("race", rows=32, plain=True)
def slot_is_sent_to_without_credit(sound):
  def body(x, o, s, send, receive, free):
    _, left, right = neighbours()
    meet_neighbours()
    pltpu.sync_copy(x, s.at[0])
    if sound:
      pl.semaphore_signal(free, 1, device_id=left)
    for k in range(3):
      here, there = k % 2, (k + 1) % 2
      if sound:
        pl.semaphore_wait(free, 1)
      c = pltpu.make_async_remote_copy(s.at[here], s.at[there], send.at[here], receive.at[there], device_id=right)
      c.start()  # here: slot_is_sent_to_without_credit
      c.wait()
      if sound and k < 2:
        pl.semaphore_signal(free, 1, device_id=left)
    o[...] = s[1]
  return on_ring(body, [SLOTS, DMA2, DMA2, SEM])


@kernel("waits for", rows=16, plain=True)
def sender_waits_for_its_own_receipt(sound):
  def body(x, o, s, send, receive):
    me = jax.lax.axis_index("x")
    defects.meet(1 - me)
    c = pltpu.make_async_remote_copy(x, s, send, receive, device_id=1 - me)

    @pl.when(me == 0)
    def _():
      c.start()
      c.wait_send()
      if not sound:
        c.wait_recv()  # here: sender_waits_for_its_own_receipt

    @pl.when(me == 1)
    def _():
      c.wait_recv()
    o[...] = zeros()
  return on_chips(body, [VMEM, DMA, DMA])


# ---- What an input's block is not for

@kernel("a store is lost: input 0 (argument 0), element (0, 0)", **STEPS)
def input_is_updated_in_place(sound, x, o):
  o[...] = x[...]
  (o if sound else x)[...] = x[...] + 1  # here: input_is_updated_in_place


@kernel("a store is lost: input 0 (argument 0), element (4, 0)")
def half_of_what_an_input_keeps_is_read(sound, x, o):
  x[0:4, :] = jnp.zeros((4, 128), jnp.float32)
  x[4:8, :] = jnp.zeros((4, 128), jnp.float32)  # here: half_of_what_an_input_keeps_is_read
  o[...] = zeros()
  o[0:8 if sound else 4, :] = x[0:8 if sound else 4, :]


@kernel("a store is lost: input 0 (argument 0), element (0, 3)", in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)])
def scalar_input_is_stored(sound, x, o):
  x[0, 3] = 2.0  # here: scalar_input_is_stored
  o[...] = jnp.full(SHAPE, x[0, 3] if sound else x[0, 2])


@kernel("a store is lost", plain=True)
def input_without_its_alias(sound):
  def body(x, o):
    o[...] = zeros()
    x[...] = x[...] * 2  # here: input_without_its_alias
  return pl.pallas_call(body, out_shape=OUT, input_output_aliases={0: 0} if sound else {})


@kernel("a store is lost: a block that a pipeline fetched", rows=32, out_shape=ROWS, in_specs=[ANY], out_specs=ANY)
def input_of_a_pipeline_is_updated(sound, x, o):
  def inner(a, b):
    b[...] = a[...]
    (b if sound else a)[...] = b[...] + 1  # here: input_of_a_pipeline_is_updated
  pltpu.emit_pipeline(inner, grid=(4,), in_specs=[BLOCK], out_specs=[BLOCK])(x, o)


@kernel("nobody read it before the pipeline ended", rows=16, out_shape=ROWS16, in_specs=[ANY], out_specs=ANY)
def last_block_of_a_pipeline_is_updated(sound, x, o):
  def inner(a, b):
    @pl.when(pl.program_id(0) == 1)
    def _():
      a[...] = a[...] * 2  # here: last_block_of_a_pipeline_is_updated
    b[...] = a[...] + 1 if sound else zeros()
  pltpu.emit_pipeline(inner, grid=(2,), in_specs=[BLOCK], out_specs=[BLOCK])(x, o)


if __name__ == "__main__":
  defects.main("__main__")
