"""Pallas kernels with one planted defect each, and their sound twins.

A kernel is built with sound=True or False. The line on which the chip would go wrong
ends in `# here: name`; the words of `kernel` are what the report must hold. Run as a
script it prints one line of JSON: for every kernel (or those named) what both twins gave.
It wants two chips of two cores (ATOLL_TARGET=v5p:2x1x1) and ATOLL_CHECK=all.

`make(sound, *refs)` is a body; `make(sound)` gives a body and more arguments of
pallas_call, or with plain=True a function of the operands.
"""

import functools
import json
import os
import sys

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

SHAPE = (8, 128)
ANY = pl.BlockSpec(memory_space=pl.ANY)
OUT = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
VMEM = pltpu.VMEM(SHAPE, jnp.float32)
DMA = pltpu.SemaphoreType.DMA
SEM = pltpu.SemaphoreType.REGULAR
KERNELS = {}


def kernel(words, **call):
  def add(make):
    KERNELS[make.__name__] = (make, words, call)
    return make
  return add


COPY = dict(in_specs=[ANY], scratch_shapes=[VMEM, DMA])


@kernel("uninitialised", scratch_shapes=[VMEM])
def scratch_is_read_first(sound, x, o, s):
  if sound:
    s[...] = jnp.zeros(SHAPE, jnp.float32)
  o[...] = x[...] + s[...]  # here: scratch_is_read_first


@kernel("uninitialised", scratch_shapes=[VMEM])
def half_of_scratch_is_filled(sound, x, o, s):
  s[0:8 if sound else 4, :] = x[0:8 if sound else 4, :]
  o[...] = s[...]  # here: half_of_scratch_is_filled


@kernel("uninitialised")
def output_is_read_first(sound, x, o):
  if sound:
    o[...] = jnp.zeros(SHAPE, jnp.float32)
  o[...] = o[...] + x[...]  # here: output_is_read_first


@kernel("uninitialised")
def scoped_memory_is_read_first(sound, x, o):
  def scope(s):
    if sound:
      s[...] = x[...]
    o[...] = s[...] + x[...]  # here: scoped_memory_is_read_first
  pl.run_scoped(scope, VMEM)


@kernel("race", **COPY)
def copy_is_read_before_the_wait(sound, x, o, s, sem):
  c = pltpu.make_async_copy(x, s, sem)
  c.start()
  if sound:
    c.wait()
  o[...] = s[...]  # here: copy_is_read_before_the_wait
  if not sound:
    c.wait()


@kernel("race", out_specs=ANY, scratch_shapes=[VMEM, DMA])
def source_is_written_before_the_wait(sound, x, o, s, sem):
  s[...] = x[...]
  c = pltpu.make_async_copy(s, o, sem)
  c.start()
  if sound:
    c.wait()
  s[...] = x[...] + 1  # here: source_is_written_before_the_wait
  if not sound:
    c.wait()


@kernel("race", in_specs=[ANY], scratch_shapes=[VMEM, pltpu.SemaphoreType.DMA((2,))])
def two_copies_into_one_place(sound, x, o, s, sems):
  a = pltpu.make_async_copy(x, s, sems.at[0])
  b = pltpu.make_async_copy(x, s, sems.at[1])
  a.start()
  if sound:
    a.wait()
  b.start()  # here: two_copies_into_one_place
  if not sound:
    a.wait()
  b.wait()
  o[...] = s[...]


@kernel("race", in_specs=[ANY], scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))])
def wrong_slot_of_a_double_buffer(sound, x, o, s, sems):
  a = pltpu.make_async_copy(x, s.at[0], sems.at[0])
  b = pltpu.make_async_copy(x, s.at[1], sems.at[1])
  a.start()
  b.start()
  a.wait()
  o[...] = s[0 if sound else 1]  # here: wrong_slot_of_a_double_buffer
  b.wait()


@kernel("race", in_specs=[ANY], scratch_shapes=[VMEM, pltpu.SemaphoreType.DMA((2,))])
def waits_for_the_wrong_copy(sound, x, o, s, sems):
  a = pltpu.make_async_copy(x.at[0:4], s.at[0:4], sems.at[0])
  b = pltpu.make_async_copy(x.at[4:8], s.at[4:8], sems.at[1])
  a.start()
  b.start()
  b.wait()
  if sound:
    a.wait()
  o[...] = s[...]  # here: waits_for_the_wrong_copy
  if not sound:
    a.wait()


@kernel("never waited for", **COPY)
def copy_is_never_waited_for(sound, x, o, s, sem):
  c = pltpu.make_async_copy(x, s, sem)
  c.start()  # here: copy_is_never_waited_for
  if sound:
    c.wait()
  o[...] = jnp.zeros(SHAPE, jnp.float32)


@kernel("deadlock", **COPY)
def waits_twice(sound, x, o, s, sem):
  c = pltpu.make_async_copy(x, s, sem)
  c.start()
  c.wait()
  if not sound:
    c.wait()  # here: waits_twice
  o[...] = s[...]


@kernel("deadlock", scratch_shapes=[SEM])
def nobody_signals(sound, x, o, sem):
  o[...] = x[...]
  if sound:
    pl.semaphore_signal(sem, 1)
  pl.semaphore_wait(sem, 1)  # here: nobody_signals


@kernel("deadlock", scratch_shapes=[SEM])
def waits_for_one_more(sound, x, o, sem):
  o[...] = x[...]
  pl.semaphore_signal(sem, 2)
  pl.semaphore_wait(sem, 2 if sound else 3)  # here: waits_for_one_more


@kernel("when the kernel ends", scratch_shapes=[SEM])
def signals_twice(sound, x, o, sem):
  o[...] = x[...]
  pl.semaphore_signal(sem, 1 if sound else 2)  # here: signals_twice
  pl.semaphore_wait(sem, 1)


@kernel("where its scope ends")
def scoped_semaphore_keeps_a_signal(sound, x, o):
  def scope(sem):
    pl.semaphore_signal(sem, 1)  # here: scoped_semaphore_keeps_a_signal
    if sound:
      pl.semaphore_wait(sem, 1)
  pl.run_scoped(scope, SEM)
  o[...] = x[...]


@kernel("never written")
def half_of_the_output(sound, x, o):
  o[0:8 if sound else 4, :] = x[0:8 if sound else 4, :]


@kernel("never written", out_specs=ANY, scratch_shapes=[VMEM, DMA])
def half_is_copied_out(sound, x, o, s, sem):
  n = 8 if sound else 4
  s[...] = x[...]
  c = pltpu.make_async_copy(s.at[0:n], o.at[0:n], sem)
  c.start()
  c.wait()


# ---- Windows, limits, loops

ROWS = jax.ShapeDtypeStruct((32, 128), jnp.float32)
BLOCK = pl.BlockSpec(SHAPE, lambda i: (i, 0))


@kernel("index map of input 0 (argument 0) leaves the array", rows=32, grid=(4,), out_shape=ROWS, out_specs=BLOCK)
def block_is_off_by_one(sound):
  def block(i):
    return (i if sound else i + 1, 0)  # here: block_is_off_by_one

  def body(x, o):
    o[...] = x[...]
  return body, dict(in_specs=[pl.BlockSpec(SHAPE, block)])


@kernel("index map of input 0 (argument 1) leaves the array", rows=32, out_shape=ROWS, prefetch=[0, 3, 1, 2], bad=[0, 3, 4, 2])
def prefetched_block_does_not_exist(sound):
  def block(i, which):
    return (which[i], 0)  # here: prefetched_block_does_not_exist

  def body(which, x, o):
    o[...] = x[...]
  return body, dict(grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec(SHAPE, block)],
      out_specs=pl.BlockSpec(SHAPE, lambda i, which: (i, 0))))


@kernel("out of bounds", rows=32, out_shape=ROWS)
def loop_is_one_turn_too_long(sound, x, o):
  def turn(i, _):
    o[pl.ds(i * 8, 8), :] = x[pl.ds(i * 8, 8), :] + 1  # here: loop_is_one_turn_too_long
    return 0
  jax.lax.fori_loop(0, 4 if sound else 5, turn, 0)


@kernel("out of bounds", rows=32, out_shape=ROWS)
def row_before_the_first(sound, x, o):
  def turn(i, _):
    o[pl.ds(i, 1), :] = x[pl.ds(i, 1), :] - x[pl.ds(jnp.maximum(i - 1, 0) if sound else i - 1, 1), :]  # here: row_before_the_first
    return 0
  jax.lax.fori_loop(0, 32, turn, 0)


@kernel("out of bounds", rows=32, out_shape=ROWS, out_specs=ANY, **COPY)
def copy_leaves_the_array(sound, x, o, s, sem):
  def turn(i, _):
    start = i * 8 if sound else i * 8 + 8
    c = pltpu.make_async_copy(x.at[pl.ds(start, 8)], s, sem)
    c.start()  # here: copy_leaves_the_array
    c.wait()
    pltpu.sync_copy(s, o.at[pl.ds(i * 8, 8)])
    return 0
  jax.lax.fori_loop(0, 4, turn, 0)


@kernel("out of bounds", in_specs=[ANY], scratch_shapes=[VMEM, pltpu.SemaphoreType.DMA((2,))])
def semaphore_does_not_exist(sound, x, o, s, sems):
  def turn(i, _):
    c = pltpu.make_async_copy(x, s, sems.at[i % 2 if sound else i])
    c.start()  # here: semaphore_does_not_exist
    c.wait()
    return 0
  jax.lax.fori_loop(0, 3, turn, 0)
  o[...] = s[...]


@kernel("vmem", rows=8192, columns=1024, grid=(2,), out_shape=jax.ShapeDtypeStruct((8192, 1024), jnp.float32))
def windows_do_not_fit(sound):
  def body(x, o):
    o[...] = x[...]
  block = pl.BlockSpec((128 if sound else 4096, 1024), lambda i: (i, 0))
  return body, dict(in_specs=[block], out_specs=block, grid=(64 if sound else 2,))


@kernel("a scope asks for", scratch_shapes=[pltpu.VMEM((4096, 1024), jnp.float32)])
def scopes_do_not_fit(sound, x, o, big):
  def scope(s):
    s[0:8, 0:128] = x[...]
    big[0:8, 0:128] = s[0:8, 0:128]
    o[...] = big[0:8, 0:128]
  pl.run_scoped(scope, pltpu.VMEM((4096 if sound else 32768, 1024), jnp.float32))  # here: scopes_do_not_fit


@kernel("smem")
def scalars_do_not_fit(sound):
  def body(x, o, s):
    s[0] = 1.0
    o[...] = x[...] * s[0]
  return body, dict(scratch_shapes=[pltpu.SMEM((128 if sound else 1 << 20,), jnp.float32)])


@kernel("cast", dtype=jnp.int8, rows=32, out_shape=jax.ShapeDtypeStruct((32, 128), jnp.int8))
def narrow_integers_are_multiplied(sound, x, o):
  v = x[...].astype(jnp.int32) if sound else x[...]
  o[...] = (v * v).astype(jnp.int8)  # here: narrow_integers_are_multiplied


@kernel("consecutive", rows=16, grid=(2, 2), out_shape=jax.ShapeDtypeStruct((16, 128), jnp.float32))
def reduction_axis_comes_first(sound):
  def body(x, o):
    @pl.when(pl.program_id(1 if sound else 0) == 0)
    def _():
      o[...] = jnp.zeros(SHAPE, jnp.float32)
    o[...] += x[...]  # here: reduction_axis_comes_first
  return body, dict(in_specs=[pl.BlockSpec(SHAPE, lambda i, j: (i, 0))],
                    out_specs=pl.BlockSpec(SHAPE, (lambda i, j: (i, 0)) if sound else (lambda i, j: (j, 0))))


@kernel("declared parallel", rows=32, grid=(4,))
def sum_over_a_parallel_axis(sound):
  def block(i):
    return (i * 0, 0)  # here: sum_over_a_parallel_axis

  def body(x, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
      o[...] = jnp.zeros(SHAPE, jnp.float32)
    o[...] += x[...]
  return body, dict(in_specs=[BLOCK], out_specs=pl.BlockSpec(SHAPE, block), compiler_params=pltpu.CompilerParams(
      dimension_semantics=("arbitrary" if sound else "parallel",)))


@kernel("uninitialised", rows=32, grid=(4,), out_shape=ROWS)
def scratch_of_the_other_core(sound):
  def body(x, o, s):
    @pl.when(pl.program_id(0) == 0)
    def _():
      s[...] = x[...]
    o[...] = x[...] + s[...]  # here: scratch_of_the_other_core
  return body, dict(in_specs=[BLOCK], out_specs=BLOCK, scratch_shapes=[VMEM], compiler_params=pltpu.CompilerParams(
      dimension_semantics=("arbitrary" if sound else "parallel",)))


@kernel("is NaN")
def zero_by_zero(sound, x, o):
  d = jnp.where(x[...] == 0, 1.0, x[...]) if sound else x[...]
  o[...] = x[...] / d  # here: zero_by_zero


@kernel("is NaN", rows=12, grid=(2,))
def padding_is_summed(sound):
  def body(x, o):
    row = jax.lax.broadcasted_iota(jnp.int32, SHAPE, 0) + pl.program_id(0) * 8
    v = jnp.where(row < 12, x[...], 0) if sound else x[...]
    o[...] = jnp.broadcast_to(v.sum(axis=0, keepdims=True), SHAPE)  # here: padding_is_summed
  return body, dict(in_specs=[BLOCK], out_specs=BLOCK, out_shape=jax.ShapeDtypeStruct((16, 128), jnp.float32))


@kernel("turns of its loops")
def loop_never_ends(sound, x, o):
  def more(i):
    return i != 7

  def turn(i):
    return i + (1 if sound else 2)
  o[...] = x[...] + jax.lax.while_loop(more, turn, 0).astype(jnp.float32)  # here: loop_never_ends


@kernel("uninitialised", scratch_shapes=[pltpu.SMEM((8,), jnp.int32)])
def scalar_is_read_first(sound, x, o, s):
  for i in range(8 if sound else 7):
    s[i] = i
  o[...] = x[...] + s[7].astype(jnp.float32)  # here: scalar_is_read_first


# ---- Copies

@kernel("race", rows=16, out_shape=jax.ShapeDtypeStruct((16, 128), jnp.float32), out_specs=ANY,
        scratch_shapes=[VMEM, pltpu.SemaphoreType.DMA((2,))])
def slot_is_filled_while_it_is_sent(sound, x, o, s, sems):
  a = pltpu.make_async_copy(s, o.at[0:8], sems.at[0])
  b = pltpu.make_async_copy(s, o.at[8:16], sems.at[1])
  s[...] = x[0:8]
  a.start()
  if sound:
    a.wait()
  s[...] = x[8:16]  # here: slot_is_filled_while_it_is_sent
  b.start()
  if not sound:
    a.wait()
  b.wait()


@kernel("deadlock", in_specs=[ANY], scratch_shapes=[VMEM, DMA])
def wait_is_for_more_bytes(sound, x, o, s, sem):
  n = 8 if sound else 4
  pltpu.make_async_copy(x.at[0:n], s.at[0:n], sem).start()
  pltpu.make_async_copy(x, s, sem).wait()  # here: wait_is_for_more_bytes
  o[...] = s[...]


@kernel("never waited for", in_specs=[ANY], scratch_shapes=[VMEM, DMA])
def wait_is_for_fewer_bytes(sound, x, o, s, sem):
  n = 8 if sound else 4
  pltpu.make_async_copy(x, s, sem).start()  # here: wait_is_for_fewer_bytes
  pltpu.make_async_copy(x.at[0:n], s.at[0:n], sem).wait()
  o[...] = jnp.zeros(SHAPE, jnp.float32)


@kernel("reads memory that it writes", rows=16, scratch_shapes=[pltpu.VMEM((16, 128), jnp.float32), DMA])
def copy_overlaps_itself(sound, x, o, s, sem):
  s[...] = x[...]
  at = 8 if sound else 4
  c = pltpu.make_async_copy(s.at[0:8], s.at[at:at + 8], sem)
  c.start()  # here: copy_overlaps_itself
  c.wait()
  o[...] = s[8:16]


# ---- Two cores of a chip

def on_cores(body, scratch):
  def f(x):
    source, result = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

    @pl.core_map(pltpu.create_tensorcore_mesh("core"))
    def _():
      pl.run_scoped(functools.partial(body, source, result), *scratch)
    return jax.freeze(result)
  return f


@kernel("race", rows=16, plain=True)
def cores_write_the_same_rows(sound):
  def body(x, o, s):
    core = jax.lax.axis_index("core")
    pltpu.sync_copy(x.at[pl.ds(core * 8, 8)], s)
    pltpu.sync_copy(s, o.at[pl.ds(core * (8 if sound else 4), 8)])  # here: cores_write_the_same_rows
  return on_cores(body, [VMEM])


@kernel("core 1 waits", rows=16, plain=True)
def other_core_is_not_signalled(sound):
  def body(x, o, sem):
    core = jax.lax.axis_index("core")
    pltpu.sync_copy(x.at[pl.ds(core * 8, 8)], o.at[pl.ds(core * 8, 8)])
    pl.semaphore_signal(sem, 1, device_id={"core": 1 - core if sound else 0})
    if not sound:
      pl.semaphore_signal(sem, 1, device_id={"core": 0})

    @pl.when(core == 1)
    def _():
      pl.semaphore_wait(sem, 1)  # here: other_core_is_not_signalled

    @pl.when(core == 0)
    def _():
      pl.semaphore_wait(sem, 1 if sound else 4)
  return on_cores(body, [SEM])


# ---- Two chips

def on_chips(body, scratch=(), barrier=True, **call):
  mesh = jax.sharding.Mesh(jax.devices()[:2], ("x",))
  spec = jax.sharding.PartitionSpec("x", None)

  def one(x):
    return pl.pallas_call(body, out_shape=OUT, in_specs=[ANY], scratch_shapes=list(scratch),
                          compiler_params=pltpu.CompilerParams(collective_id=0 if barrier else None), **call)(x)
  return jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


def meet(other):
  barrier = pltpu.get_barrier_semaphore()
  pl.semaphore_signal(barrier, 1, device_id=other)
  pl.semaphore_wait(barrier, 1)


@kernel("of device 1 waits", rows=16, plain=True)
def chips_wait_for_each_other(sound):
  def body(x, o, sem):
    other = 1 - jax.lax.axis_index("x")
    if sound:
      pl.semaphore_signal(sem, 1, device_id=other)
    pl.semaphore_wait(sem, 1)  # here: chips_wait_for_each_other
    if not sound:
      pl.semaphore_signal(sem, 1, device_id=other)
    pltpu.sync_copy(x, o)
  return on_chips(body, [SEM], barrier=False, out_specs=ANY)


@kernel("of device 1 waits", rows=16, plain=True)
def wrong_chip_is_signalled(sound):
  def body(x, o, sem):
    me = jax.lax.axis_index("x")
    pl.semaphore_signal(sem, 1, device_id=1 - me if sound else 0)
    pl.semaphore_wait(sem, 1 if sound else 1 + (1 - me))  # here: wrong_chip_is_signalled
    pltpu.sync_copy(x, o)
  return on_chips(body, [SEM], barrier=False, out_specs=ANY)


@kernel("of device 0 waits", rows=16, plain=True)
def one_chip_leaves_early(sound):
  def body(x, o):
    me = jax.lax.axis_index("x")

    @pl.when(me == 0 if not sound else me >= 0)
    def _():
      barrier = pltpu.get_barrier_semaphore()
      pl.semaphore_signal(barrier, 1, device_id=1 - me)
      pl.semaphore_wait(barrier, 1)  # here: one_chip_leaves_early
    pltpu.sync_copy(x, o)
  return on_chips(body, out_specs=ANY)


@kernel("when the kernel ends", rows=16, plain=True)
def barrier_is_signalled_twice(sound):
  def body(x, o):
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1 if sound else 2, device_id=1 - jax.lax.axis_index("x"))  # here: barrier_is_signalled_twice
    pl.semaphore_wait(barrier, 1)
    pltpu.sync_copy(x, o)
  return on_chips(body, out_specs=ANY)


@kernel("race", rows=16, plain=True)
def remote_copy_comes_unannounced(sound):
  def body(x, o, s, send, receive):
    other = 1 - jax.lax.axis_index("x")
    s[...] = jnp.zeros(SHAPE, jnp.float32)
    if sound:
      meet(other)
    c = pltpu.make_async_remote_copy(x, s, send, receive, device_id=other)
    c.start()  # here: remote_copy_comes_unannounced
    c.wait()
    o[...] = s[...]
    if not sound:
      meet(other)
  return on_chips(body, [VMEM, DMA, DMA])


@kernel("race", rows=16, plain=True)
def remote_data_is_read_too_early(sound):
  def body(x, o, s, send, receive):
    other = 1 - jax.lax.axis_index("x")
    c = pltpu.make_async_remote_copy(x, s, send, receive, device_id=other)
    c.start()
    meet(other)
    if sound:
      c.wait_recv()
    o[...] = s[...]  # here: remote_data_is_read_too_early
    if not sound:
      c.wait_recv()
    c.wait_send()
  return on_chips(body, [VMEM, DMA, DMA])


@kernel("never waited for", rows=16, plain=True)
def remote_copy_is_not_waited_for(sound):
  def body(x, o, s, send, receive):
    other = 1 - jax.lax.axis_index("x")
    meet(other)
    c = pltpu.make_async_remote_copy(x, s, send, receive, device_id=other)
    c.start()  # here: remote_copy_is_not_waited_for
    c.wait_recv()
    if sound:
      c.wait_send()
    o[...] = s[...]
  return on_chips(body, [VMEM, DMA, DMA])


def call_of(name, sound):
  """The kernel as a function of its operands, and these."""
  make, _, call = KERNELS[name]
  call = dict(call)
  shape = (call.pop("rows", 8), call.pop("columns", 128))
  x = jnp.arange(shape[0] * shape[1]).reshape(shape).astype(call.pop("dtype", jnp.float32))
  scalars, bad = call.pop("prefetch", None), call.pop("bad", None)
  operands = [x] if scalars is None else [jnp.array(scalars if sound else bad, jnp.int32), x]
  if call.pop("plain", False):
    return make(sound), operands
  if make.__code__.co_argcount == 1:
    body, more = make(sound)
    call = {**call, **more}
  else:
    body = functools.partial(make, sound)
  return pl.pallas_call(body, name=name, **{"out_shape": OUT, **call}), operands


def run(name, sound):
  f, operands = call_of(name, sound)
  try:
    jax.block_until_ready(jax.jit(f)(*operands))
    return ""
  except Exception as e:  # whoever refuses it
    return str(e) or repr(e)


def place_of(name):
  """file:line: of the defect; None where it has no one line."""
  make = KERNELS[name][0]
  path = make.__code__.co_filename
  for i, line in enumerate(open(path), 1):
    if line.rstrip().endswith(f"# here: {make.__name__}"):
      return f"{os.path.basename(path)}:{i}:"
  return None


def main(module):
  names = sys.argv[1:] or [n for n, k in KERNELS.items() if k[0].__module__ == module]
  print(json.dumps({n: {"defect": run(n, False), "sound": run(n, True), "words": KERNELS[n][1], "place": place_of(n)}
                    for n in names}))


if __name__ == "__main__":
  main("__main__")
