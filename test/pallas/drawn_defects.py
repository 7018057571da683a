"""Pallas kernels with one planted defect each, and their sound twins, drawn: each kind of defect with three shapes, element
types, places and amounts, from AT_DRAWN_SEED (1). As in defects.py; tools/check_planted.py --drawn=SEED runs `atoll check` on
them.
"""
import os
import random

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from defects import ANY, DMA, KERNELS, SEM

KINDS, EACH = [], 3


class Draw:
  """What a kernel of a kind is made of."""

  def __init__(self, name):
    r = random.Random(f"{os.environ.get('AT_DRAWN_SEED', '1')} {name}")
    self.blocks = r.choice((2, 3, 4, 6))
    self.dtype = r.choice((jnp.float32, jnp.float32, jnp.int32, jnp.bfloat16))
    self.tall = 16 if self.dtype == jnp.bfloat16 else 8
    self.columns = r.choice((128, 256, 384))
    self.rows = self.blocks * self.tall
    self.shape, self.block = (self.rows, self.columns), (self.tall, self.columns)
    self.which = r.randrange(self.blocks)  # the block that goes wrong
    self.most = r.randrange(1, 4)  # by how much
    self.out = jax.ShapeDtypeStruct(self.shape, self.dtype)
    self.spec = pl.BlockSpec(self.block, lambda i: (i, 0))
    self.memory = pltpu.VMEM(self.shape, self.dtype)
    self.cut = pl.ds(self.which * self.tall, self.tall)


def kind(words):
  def add(make):
    KINDS.append(make.__name__)
    for i in range(EACH):
      name = f"{make.__name__}_{i}"
      d = Draw(name)
      body, call = make(d)
      body.__name__ = make.__name__  # where the defect is: of all that are drawn
      KERNELS[name] = body, words, {"rows": d.rows, "columns": d.columns, "dtype": d.dtype, "out_shape": d.out, **call}
    return make
  return add


@kind("race")
def drawn_read_before_the_copy_has_come(d):
  def body(sound, x, o, s, sems):
    copies = [pltpu.make_async_copy(x.at[pl.ds(b * d.tall, d.tall)], s.at[pl.ds(b * d.tall, d.tall)], sems.at[b])
              for b in range(d.blocks)]
    for c in copies:
      c.start()
    for b, c in enumerate(copies):
      if sound or b != d.which:
        c.wait()
    o[...] = s[...]  # here: drawn_read_before_the_copy_has_come
    if not sound:
      copies[d.which].wait()
  return body, dict(in_specs=[ANY], scratch_shapes=[d.memory, pltpu.SemaphoreType.DMA((d.blocks,))])


@kind("race")
def drawn_source_written_under_its_copy(d):
  def body(sound, x, o, s, sem):
    s[...] = x[...]
    c = pltpu.make_async_copy(s, o, sem)
    c.start()
    if sound:
      c.wait()
    s[d.cut, :] = x[d.cut, :] + x[d.cut, :]  # here: drawn_source_written_under_its_copy
    if not sound:
      c.wait()
  return body, dict(out_specs=ANY, scratch_shapes=[d.memory, DMA])


@kind("out of bounds")
def drawn_rows_past_the_end(d):
  def body(sound, x, o):
    first = (pl.program_id(0) + (0 if sound else d.most)) * d.tall
    o[...] = x[pl.ds(pl.multiple_of(first, d.tall), d.tall), :]  # here: drawn_rows_past_the_end
  return body, dict(grid=(d.blocks,), in_specs=[pl.BlockSpec(d.shape, lambda i: (0, 0))], out_specs=d.spec)


@kind("uninitialised")
def drawn_block_of_scratch_unwritten(d):
  def body(sound, x, o, s):
    for b in range(d.blocks):
      if sound or b != d.which:
        s[pl.ds(b * d.tall, d.tall), :] = x[pl.ds(b * d.tall, d.tall), :]
    o[...] = s[...]  # here: drawn_block_of_scratch_unwritten
  return body, dict(scratch_shapes=[d.memory])


@kind("uninitialised")
def drawn_sum_that_starts_with_nothing(d):
  def body(sound, x, o):
    @pl.when(pl.program_id(0) == (0 if sound else d.blocks - 1))
    def _():
      o[...] = jnp.zeros(d.block, d.dtype)
    o[...] += x[...]  # here: drawn_sum_that_starts_with_nothing
  return body, dict(grid=(d.blocks,), in_specs=[d.spec], out_specs=pl.BlockSpec(d.block, lambda i: (0, 0)),
                    out_shape=jax.ShapeDtypeStruct(d.block, d.dtype))


@kind("when the kernel ends")
def drawn_more_signals_than_waits(d):
  def body(sound, x, o, sem):
    o[...] = x[...]
    pltpu.semaphore_signal(sem, d.most + (0 if sound else d.blocks))  # here: drawn_more_signals_than_waits
    pltpu.semaphore_wait(sem, d.most)
  return body, dict(scratch_shapes=[SEM])


@kind("deadlock")
def drawn_more_waits_than_signals(d):
  def body(sound, x, o, sem):
    o[...] = x[...]
    pltpu.semaphore_signal(sem, d.most)
    pltpu.semaphore_wait(sem, d.most + (0 if sound else d.blocks))  # here: drawn_more_waits_than_signals
  return body, dict(scratch_shapes=[SEM])


@kind("is NaN")
def drawn_root_of_a_negative(d):
  def body(sound, x, o):
    less = jnp.float32(0 if sound else d.most)
    o[...] = jnp.sqrt(x[...].astype(jnp.float32) - less).astype(d.dtype)  # here: drawn_root_of_a_negative
  d.dtype, d.out = jnp.float32, jax.ShapeDtypeStruct(d.shape, jnp.float32)
  return body, dict(dtype=jnp.float32)


@kind("a scope asks for")
def drawn_scratch_that_does_not_fit(d):
  def body(sound, x, o):
    def scope(s):
      s[0:d.tall, :] = x[0:d.tall, :]
      o[...] = x[...] + s[0:1, :]
    pl.run_scoped(scope, pltpu.VMEM((d.tall if sound else (40 + d.most) << 13, d.columns), d.dtype))
  return body, {}


def _copies(x, o):
  o[...] = x[...]


@kind("index map of input 0 (argument 0) leaves the array")
def drawn_block_past_the_end(d):
  def call(sound):
    more = 0 if sound else d.most
    return _copies, dict(in_specs=[pl.BlockSpec(d.block, lambda i: (i + more, 0))])  # here: drawn_block_past_the_end
  return call, dict(grid=(d.blocks,), out_specs=d.spec)


@kind("never written")
def drawn_block_of_the_result_left_out(d):
  def call(sound):
    other = d.which - 1 if d.which else 1  # a neighbour: no block is visited twice
    return _copies, dict(out_specs=pl.BlockSpec(
        d.block, lambda i: (i if sound else jnp.where(i == d.which, other, i), 0)))
  return call, dict(grid=(d.blocks,), in_specs=[d.spec])
