"""Pallas kernels with one planted defect each, and their sound twins: copies that are on their way while another chip, or a
window that goes back, uses the same memory; chips that do not exist. As in defects.py.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import defects
from defects import ANY, BLOCK, DMA, ROWS, SEM, SHAPE, VMEM, kernel, meet, on_chips

CHIPS = dict(rows=16, plain=True)


def chip_is(number):
  return pl.when(jax.lax.axis_index("x") == number)


def early_word(copy, sem, sound):
  """Chip 0 makes the copy and tells chip 1 that it may go on: after the copy, or too early."""
  copy.start()
  if sound:
    copy.wait()
  pl.semaphore_signal(sem, 1, device_id=1)
  if not sound:
    copy.wait()


@kernel("race", **CHIPS)
def source_of_a_copy_is_written_by_another_chip(sound):
  def body(x, o, s, sem, local, send, receive):
    s[...] = jnp.ones(SHAPE, jnp.float32)
    meet(1 - jax.lax.axis_index("x"))
    answer = pltpu.make_async_remote_copy(x, s, send, receive, device_id=0)

    @chip_is(0)
    def _():
      early_word(pltpu.make_async_copy(s, o, local), sem, sound)
      answer.wait_recv()

    @chip_is(1)
    def _():
      pl.semaphore_wait(sem, 1)
      answer.start()  # here: source_of_a_copy_is_written_by_another_chip
      answer.wait_send()
      pltpu.sync_copy(s, o)
  return on_chips(body, [VMEM, SEM, DMA, DMA, DMA], out_specs=ANY)


@kernel("race", **CHIPS)
def destination_of_a_copy_is_written_by_another_chip(sound):
  def body(x, o, s, sem, local, send, receive):
    s[...] = jnp.ones(SHAPE, jnp.float32)
    meet(1 - jax.lax.axis_index("x"))
    answer = pltpu.make_async_remote_copy(x, s, send, receive, device_id=0)

    @chip_is(0)
    def _():
      early_word(pltpu.make_async_copy(x, s, local), sem, sound)
      answer.wait_recv()

    @chip_is(1)
    def _():
      pl.semaphore_wait(sem, 1)
      answer.start()  # here: destination_of_a_copy_is_written_by_another_chip
      answer.wait_send()
    pltpu.sync_copy(s, o)
  return on_chips(body, [VMEM, SEM, DMA, DMA, DMA], out_specs=ANY)


@kernel("race", **CHIPS)
def answer_comes_before_the_question_has_arrived(sound):
  """Who waited for a copy knows that its source was read: no other signal is needed before that is written."""
  def body(x, o, s, t, *sems):
    pltpu.sync_copy(x, s)
    t[...] = jnp.zeros(SHAPE, jnp.float32)
    meet(1 - jax.lax.axis_index("x"))
    question = pltpu.make_async_remote_copy(s, t, sems[0], sems[1], device_id=1)
    answer = pltpu.make_async_remote_copy(x, s, sems[2], sems[3], device_id=0)

    @chip_is(0)
    def _():
      question.start()
      answer.wait_recv()
      question.wait_send()

    @chip_is(1)
    def _():
      if sound:
        question.wait_recv()
      answer.start()  # here: answer_comes_before_the_question_has_arrived
      answer.wait_send()
      if not sound:
        question.wait_recv()
    o[...] = s[...] + t[...]
  return on_chips(body, [VMEM, VMEM, DMA, DMA, DMA, DMA])


@kernel("device -1", **CHIPS)
def left_neighbour_of_the_first_chip(sound):
  def body(x, o, sem):
    me = jax.lax.axis_index("x")
    left = jax.lax.rem(me + 1, 2) if sound else me - 1
    pl.semaphore_signal(sem, 1, device_id=left)  # here: left_neighbour_of_the_first_chip
    pl.semaphore_wait(sem, 1)
    pltpu.sync_copy(x, o)
  return on_chips(body, [SEM], barrier=False, out_specs=ANY)


@kernel("device -1", **CHIPS)
def copy_to_the_left_of_the_first_chip(sound):
  def body(x, o, send, receive):
    me = jax.lax.axis_index("x")
    meet(1 - me)
    c = pltpu.make_async_remote_copy(x, o, send, receive, device_id=1 - me if sound else me - 1)
    c.start()  # here: copy_to_the_left_of_the_first_chip
    c.wait()
  return on_chips(body, [DMA, DMA], out_specs=ANY)


TWO = pltpu.SemaphoreType.DMA((2,))


@kernel("race", rows=32, out_shape=ROWS, in_specs=[ANY], out_specs=ANY, scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), TWO, TWO])
def slot_is_filled_before_it_has_left(sound, x, o, s, arrived, left):
  """Two slots between two memories: a block comes into the slot that the one before last leaves."""
  def fetch(i):
    return pltpu.make_async_copy(x.at[pl.ds(i * 8, 8)], s.at[i % 2], arrived.at[i % 2])

  def send(i):
    return pltpu.make_async_copy(s.at[i % 2], o.at[pl.ds(i * 8, 8)], left.at[i % 2])
  fetch(0).start()
  for i in range(4):
    fetch(i).wait()
    if i and sound:
      send(i - 1).wait()
    if i < 3:
      fetch(i + 1).start()  # here: slot_is_filled_before_it_has_left
    send(i).start()
    if i and not sound:
      send(i - 1).wait()
  send(3).wait()


@kernel("race", in_specs=[ANY], scratch_shapes=[VMEM, DMA])
def one_row_of_many_is_not_waited_for(sound, x, o, s, sem):
  """The rows share a semaphore: nobody knows which of them is the last."""
  def row(i):
    return pltpu.make_async_copy(x.at[pl.ds((i * 3) % 8, 1)], s.at[pl.ds(i, 1)], sem)
  for i in range(8):
    row(i).start()
  for i in range(8 if sound else 7):
    row(0).wait()
  o[...] = s[...] * 2  # here: one_row_of_many_is_not_waited_for
  if not sound:
    row(0).wait()


def blocks_by_hand(first):
  """Blocks of the output beside which a copy reads the aliased input by itself."""
  def body(x, o, s, sem):
    i = pl.program_id(0)
    c = pltpu.make_async_copy(x.at[pl.ds(first(i) * 8, 8)], s, sem)
    c.start()  # here: block_on_its_way_back_is_copied
    c.wait()
    o[...] = s[...] + 1
  return body, dict(input_output_aliases={0: 0})


@kernel("still goes back to", rows=32, grid=(4,), out_shape=ROWS, in_specs=[ANY], out_specs=BLOCK, scratch_shapes=[VMEM, DMA])
def block_on_its_way_back_is_copied(sound):
  return blocks_by_hand((lambda i: jnp.minimum(i + 1, 3)) if sound else (lambda i: jnp.maximum(i - 1, 0)))


if __name__ == "__main__":
  defects.main("__main__")
