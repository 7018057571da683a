"""Pallas kernels with one planted defect each, and their sound twins.

A kernel is built with sound=True or False. The line on which the chip would go wrong
ends in `# here: name`; EXPECTED says which words the report must hold. Run as a script
it prints one line of JSON: for every kernel what both twins gave.
"""

import functools
import json
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


def run(name, sound):
  make, _, call = KERNELS[name]
  x = jnp.arange(8 * 128, dtype=jnp.float32).reshape(SHAPE)
  body = functools.partial(make, sound)
  try:
    jax.block_until_ready(pl.pallas_call(body, out_shape=OUT, name=name, **call)(x))
    return ""
  except jax.errors.JaxRuntimeError as e:
    return str(e)


def line_of(name):
  for i, line in enumerate(open(__file__), 1):
    if line.rstrip().endswith(f"# here: {name}"):
      return i
  return None


if __name__ == "__main__":
  print(json.dumps({n: {"defect": run(n, False), "sound": run(n, True), "words": KERNELS[n][1], "line": line_of(n)}
                    for n in KERNELS}))
