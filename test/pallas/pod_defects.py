#!/usr/bin/env python3
"""Races on pods: kernels of up to 130 chips with one planted defect each, and their sound twins.

  pod_defects.py [--seed 0] [--count 40] [--only 3,17] [--kind early_word] [--verbose]

A case is a kind and what its number draws: how many chips, which of them goes wrong, what was read before, in which
memory, over which dimensions. A line on which the chip would go wrong ends in `# here: kind`; where two lines race, either
may be the one that is found. Case i of a seed is the same whatever else runs. Prints a line of JSON per case and
exits with 1 if a defect was not found at its line or a twin was not clean.
"""

import argparse
import functools
import json
import os
import pathlib
import random
import subprocess
import sys

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

SHAPE = (8, 128)
TILE = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
ANY = pl.BlockSpec(memory_space=pl.ANY)
VMEM = pltpu.VMEM(SHAPE, jnp.float32)
DMA = pltpu.SemaphoreType.DMA
SEM = pltpu.SemaphoreType.REGULAR
P = jax.sharding.PartitionSpec
ONE_CORE, TWO_CORES = "v5e:16x16", "v5p:8x8x4"
KINDS = {}


def kind(target, *words):
  """One of the words is in the finding."""
  def add(make):
    KINDS[make.__name__] = (make, target, words)
    return make
  return add


def when(condition):
  return lambda f: pl.when(condition)(f)


def on(n, call, rows=8):
  """`call` on each of n chips, with rows of its own."""
  mesh = jax.sharding.Mesh(jax.devices()[:n], ("x",))
  f = jax.shard_map(call, mesh=mesh, in_specs=P("x", None), out_specs=P("x", None), check_vma=False)
  return f, jnp.ones((n * rows, 128), jnp.float32)


def chips(n, body, *scratch, out=TILE):
  return on(n, lambda x: pl.pallas_call(body, out_shape=out, in_specs=[ANY], out_specs=ANY, scratch_shapes=list(scratch))(x))


def many(draw, least):
  """Chips: half of the time more than 64."""
  return draw.randint(65, 130) if draw.random() < 0.5 else draw.randint(least, 64)


# ---- Chips of one core
@kind(ONE_CORE, "race")
def early_word(draw, sound):
  """A chip tells its left neighbour that it may copy here, before it has read for the last time."""
  n, reads, hbm = many(draw, 2), draw.randint(1, 4), draw.random() < 0.5
  bad = -1 if sound else draw.randrange(n)

  def body(x, o, s, t, ready, local, send, receive):
    me = jax.lax.axis_index("x")
    place = o if hbm else s
    pltpu.sync_copy(x, place)

    def read():
      pltpu.async_copy(place, t, local).wait()  # here: early_word

    for _ in range(reads):
      read()
    pl.semaphore_signal(ready, 1, device_id=(me + n - 1) % n)
    when(me == bad)(read)
    pl.semaphore_wait(ready, 1)
    copy = pltpu.make_async_remote_copy(x, place, send, receive, device_id=(me + 1) % n)
    copy.start()  # here: early_word
    copy.wait()
    if not hbm:
      pltpu.sync_copy(place, o)
  return chips(n, body, VMEM, VMEM, SEM, DMA, DMA, DMA)


@kind(ONE_CORE, "race")
def read_before_the_wait(draw, sound):
  n, scalars = many(draw, 1), draw.random() < 0.3
  bad = -1 if sound else draw.randrange(n)
  part = (8, 128)
  memory = pltpu.SMEM if scalars else pltpu.VMEM

  def body(x, o, s, total, ready, send, receive):
    me = jax.lax.axis_index("x")
    total[...] = jnp.zeros(SHAPE, jnp.float32)
    if scalars:  # else a read before the copy begins is one of undefined memory, not a race
      s[3, 5] = 0.0
    else:
      s[...] = jnp.zeros(part, jnp.float32)
    pl.semaphore_signal(ready, 1, device_id=(me + n - 1) % n)
    pl.semaphore_wait(ready, 1)
    copy = pltpu.make_async_remote_copy(x, s, send, receive, device_id=(me + 1) % n)
    copy.start()  # here: read_before_the_wait

    def read():
      if scalars:
        total[...] += jnp.full(SHAPE, s[3, 5])  # here: read_before_the_wait
      else:
        total[...] += s[...]  # here: read_before_the_wait

    when(me == bad)(read)
    copy.wait()
    when(me != bad)(read)
    pltpu.sync_copy(total, o)
  return chips(n, body, memory(part, jnp.float32), VMEM, SEM, DMA, DMA)


@kind(ONE_CORE, "race")
def source_is_stored_to_too_early(draw, sound):
  n, before = many(draw, 1), draw.randint(0, 70)
  bad = -1 if sound else draw.randrange(n)

  def body(x, o, s, t, ready, send, receive):
    me = jax.lax.axis_index("x")
    s[...] = jnp.zeros(SHAPE, jnp.float32)

    def turn(i, _):
      t[...] = jnp.full(SHAPE, i, jnp.float32)
      return 0
    jax.lax.fori_loop(0, before, turn, 0)
    pl.semaphore_signal(ready, 1, device_id=(me + n - 1) % n)
    pl.semaphore_wait(ready, 1)
    copy = pltpu.make_async_remote_copy(s, o, send, receive, device_id=(me + 1) % n)
    copy.start()

    def store():
      s[...] = jnp.ones(SHAPE, jnp.float32)  # here: source_is_stored_to_too_early

    when(me == bad)(store)
    copy.wait()
    when(me != bad)(store)
  return chips(n, body, VMEM, VMEM, SEM, DMA, DMA)


@kind(ONE_CORE, "race")
def two_neighbours_write_one_place(draw, sound):
  n = many(draw, 3)
  bad = -1 if sound else draw.randrange(n)

  def body(x, o, ready, send, receive):
    me = jax.lax.axis_index("x")
    for step in (1, n - 1):
      pl.semaphore_signal(ready, 1, device_id=(me + step) % n)
    pl.semaphore_wait(ready, 2)
    to_left = pltpu.make_async_remote_copy(x.at[0:4], o.at[0:4], send.at[0], receive.at[0], device_id=(me + n - 1) % n)
    # Upper rows come from the right, lower ones from the left, but for one chip.
    row = jnp.where((me + 1) % n == bad, 0, 4)
    to_right = pltpu.make_async_remote_copy(x.at[0:4], o.at[pl.ds(row, 4)], send.at[1], receive.at[1], device_id=(me + 1) % n)
    to_left.start()  # here: two_neighbours_write_one_place
    to_right.start()  # here: two_neighbours_write_one_place
    to_left.wait()
    to_right.wait()
  return chips(n, body, SEM, DMA((2,)), DMA((2,)))


@kind(ONE_CORE, "race")
def copy_comes_unannounced(draw, sound):
  n, loads = many(draw, 2), draw.randint(1, 3)
  bad = -1 if sound else draw.randrange(n)

  def body(x, o, s, ready, send, receive):
    me = jax.lax.axis_index("x")
    total = jnp.zeros(SHAPE, jnp.float32)
    s[...] = total  # here: copy_comes_unannounced
    for _ in range(loads):
      total += s[...]  # here: copy_comes_unannounced
    s[...] = total  # here: copy_comes_unannounced
    copy = pltpu.make_async_remote_copy(x, s, send, receive, device_id=(me + 1) % n)

    @when(me == bad)
    def _():
      copy.start()  # here: copy_comes_unannounced
    pl.semaphore_signal(ready, 1, device_id=(me + n - 1) % n)
    pl.semaphore_wait(ready, 1)

    @when(me != bad)
    def _():
      copy.start()
    copy.wait()
    pltpu.sync_copy(s, o)
  return chips(n, body, VMEM, SEM, DMA, DMA)


@kind(ONE_CORE, "race")
def steps_of_a_ring_share_a_semaphore(draw, sound):
  """Each step of a ring has its own slot; the copy of a later step can arrive first, and end the wait of an earlier one."""
  n = draw.randint(3, 12) if draw.random() < 0.7 else draw.randint(65, 80)
  # No two steps, or all that are `shared` apart. Sound as well: nothing is used until all copies have come.
  shared = n if sound else draw.randint(1, min(n - 2, 6))
  uses_late = sound and draw.random() < 0.5
  if uses_late:
    shared = draw.randint(1, n)

  def body(x, o, s, ready, send, receive):
    me = jax.lax.axis_index("x")
    pltpu.sync_copy(x, s.at[0])
    pl.semaphore_signal(ready, 1, device_id=(me + n - 1) % n)
    pl.semaphore_wait(ready, 1)

    def step(i, total):
      source = s.at[0 if uses_late else i]
      copy = pltpu.make_async_remote_copy(source, s.at[i + 1], send, receive.at[i % shared], device_id=(me + 1) % n)
      copy.start()  # here: steps_of_a_ring_share_a_semaphore
      copy.wait()
      if not uses_late:
        total += s[i + 1]  # here: steps_of_a_ring_share_a_semaphore
      return total

    total = jax.lax.fori_loop(0, n - 1, step, jnp.zeros(SHAPE, jnp.float32))
    if uses_late:
      total = jnp.sum(s[...], axis=0)
    s[0] = total
    pltpu.sync_copy(s.at[0], o)
  return chips(n, body, pltpu.VMEM((n, *SHAPE), jnp.float32), SEM, DMA, DMA((n,)))


# Where the other copy came first, what the wait was for is not there yet.
@kind(ONE_CORE, "race", "which signals the same semaphore")
def slower_neighbour_shares_a_semaphore(draw, sound):
  """Copies of both neighbours signal one semaphore. In this run one of them comes long after the other was used."""
  n, turns = many(draw, 3), draw.randint(200, 2000)
  late_use = sound and draw.random() < 0.5
  two = sound and not late_use

  def body(x, o, s, t, ready, send, receive):
    me = jax.lax.axis_index("x")
    for step in (1, n - 1):
      pl.semaphore_signal(ready, 1, device_id=(me + step) % n)
    pl.semaphore_wait(ready, 2)
    right = pltpu.make_async_remote_copy(x, s.at[0], send.at[0], receive.at[0], device_id=(me + 1) % n)
    left = pltpu.make_async_remote_copy(x, s.at[1], send.at[1], receive.at[1 if two else 0], device_id=(me + n - 1) % n)
    right.start()

    def turn(i, _):
      t[...] = jnp.full(SHAPE, i, jnp.float32)
      return 0

    if late_use:
      left.start()
      left.wait_send()
    right.wait()
    if late_use:
      left.wait_recv()
    total = s[0]  # here: slower_neighbour_shares_a_semaphore
    if not late_use:
      jax.lax.fori_loop(0, turns, turn, 0)
      left.start()  # here: slower_neighbour_shares_a_semaphore
      left.wait()
    t[...] = total + s[1]
    pltpu.sync_copy(t, o)
  return chips(n, body, pltpu.VMEM((2, *SHAPE), jnp.float32), VMEM, SEM, DMA((2,)), DMA((2,)))


# ---- Chips of two cores
def two_cores(n, body, *scratch):
  """`body` on both cores of n chips; a tile of HBM, which they share, and a result of each."""
  def call(x):
    mesh = pltpu.create_tensorcore_mesh("core")
    out = (TILE, jax.ShapeDtypeStruct((2, *SHAPE), jnp.float32))
    return pl.kernel(body, out_type=out, mesh=mesh, scratch_types=list(scratch))(x)[1].reshape(16, 128)
  return on(n, call)


@kind(TWO_CORES, "race")
def one_of_two_readers_does_not_tell(draw, sound):
  """Both cores of every other chip read a tile; the next chip writes over it when they, or one of them, have told it."""
  pairs = draw.randint(33, 64) if draw.random() < 0.6 else draw.randint(1, 32)
  bad, silent = -1 if sound else draw.randrange(pairs), draw.randrange(2)

  def body(x, tile, o, b, load, send, receive, go, ready, late):
    me, core = jax.lax.axis_index("x"), jax.lax.axis_index("core")
    first, other = me % 2 == 0, me + 1 - 2 * (me % 2)
    spoilt = me // 2 == bad

    @when(core == 0)
    def _():
      pltpu.async_copy(x, tile, load).wait()
      pl.semaphore_signal(ready, 1, core_index=1)

    @when(core == 1)
    def _():
      pl.semaphore_wait(ready, 1)
    pltpu.async_copy(tile, b, load).wait()  # here: one_of_two_readers_does_not_tell
    pltpu.async_copy(b, o.at[core], load).wait()

    @when(first & jnp.logical_not(spoilt & (core == silent)))
    def _():
      pl.semaphore_signal(go, 1, device_id=other, core_index=0)

    @when(first & spoilt & (core == silent))
    def _():
      pl.semaphore_signal(late, 1, device_id=other, core_index=0)

    @when(jnp.logical_not(first) & (core == 0))
    def _():
      pl.semaphore_wait(go, jnp.where(spoilt, 1, 2))
      copy = pltpu.make_async_remote_copy(b, tile, send, receive, device_id=other)
      copy.start()  # here: one_of_two_readers_does_not_tell
      copy.wait_send()
      pl.semaphore_wait(late, jnp.where(spoilt, 1, 0))

    @when(first & (core == 0))
    def _():
      pltpu.make_async_copy(b, tile, receive).wait()
  return two_cores(2 * pairs, body, VMEM, DMA, DMA, DMA, SEM, SEM, SEM)


# ---- SparseCores
def subcores(n, body, *scratch, out=(256,)):
  def call(x):
    mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=1)
    y = pl.kernel(body, out_type=jax.ShapeDtypeStruct(out, jnp.int32), mesh=mesh, scratch_types=list(scratch),
                  compiler_params=pltpu.CompilerParams(use_tc_tiling_on_sc=False))(x.reshape(256).astype(jnp.int32))
    return y.reshape(2, 128)
  return on(n, call, rows=2)


WORDS = pltpu.VMEM((16,), jnp.int32)


@kind(TWO_CORES, "race")
def subcores_write_one_place(draw, sound):
  n = draw.randint(1, 12)
  bad = -1 if sound else draw.randrange(n)
  group = draw.choice([2, 4, 16])

  def body(x, o, v):
    me = jax.lax.axis_index("subcore")
    pltpu.sync_copy(x.at[pl.ds(me * 16, 16)], v)
    place = jnp.where(jax.lax.axis_index("x") == bad, me // group, me)
    pltpu.sync_copy(v, o.at[pl.ds(place * 16, 16)])  # here: subcores_write_one_place
  return subcores(n, body, WORDS)


@kind(TWO_CORES, "race")
def subcore_writes_what_others_read(draw, sound):
  """All subcores read a row; the one whose row it is writes it after the barrier, or before."""
  n = draw.randint(1, 12)
  bad, owner = -1 if sound else draw.randrange(n), draw.randrange(16)

  def body(x, o, v, shared):
    me, chip = jax.lax.axis_index("subcore"), jax.lax.axis_index("x")
    mine = pl.ds(me * 16, 16)
    pltpu.sync_copy(x.at[mine], v)
    pltpu.sync_copy(v, shared.at[me])
    plsc.subcore_barrier()
    pltpu.sync_copy(shared.at[owner], v)  # here: subcore_writes_what_others_read

    def write():
      pltpu.sync_copy(v, shared.at[owner])  # here: subcore_writes_what_others_read
    when((me == owner) & (chip == bad))(write)
    plsc.subcore_barrier()
    when((me == owner) & (chip != bad))(write)
    pltpu.sync_copy(v, o.at[mine])
  return subcores(n, body, WORDS, pltpu.VMEM_SHARED((16, 16), jnp.int32))


@kind(TWO_CORES, "race")
def sum_is_read_before_all_have_added(draw, sound):
  n = draw.randint(1, 12)
  bad, late = -1 if sound else draw.randrange(n), draw.randrange(16)

  def body(x, o, v, rows, shared):
    me, chip = jax.lax.axis_index("subcore"), jax.lax.axis_index("x")
    mine = pl.ds(me * 16, 16)
    rows[...] = jnp.zeros((16,), jnp.int32)

    @when(me == 0)
    def _():
      v[0, :] = jnp.zeros((16,), jnp.int32)
      pltpu.sync_copy(v, shared)
    plsc.subcore_barrier()
    pltpu.sync_copy(x.at[mine], v.at[0])

    def add():
      pltpu.sync_copy(v, shared.at[rows.at[pl.ds(0, 1)]], add=True)  # here: sum_is_read_before_all_have_added
    when((chip != bad) | (me != late))(add)
    plsc.subcore_barrier()
    when((chip == bad) & (me == late))(add)
    pltpu.sync_copy(shared.at[0], v.at[0])  # here: sum_is_read_before_all_have_added
    pltpu.sync_copy(v.at[0], o.at[mine])
  return subcores(n, body, pltpu.VMEM((1, 16), jnp.int32), WORDS, pltpu.VMEM_SHARED((1, 16), jnp.int32))


# ---- One core, whose steps along a parallel dimension another might run
def steps(draw, sound, body, *scratch, whole=False, semantics=None):
  """A grid of one parallel dimension or two, and perhaps one more behind them."""
  parallel = draw.randint(1, 2)
  grid = [draw.randint(2, 4) for _ in range(parallel)] + [2] * draw.randint(0, 1)
  kinds = ["parallel"] * parallel + ["arbitrary"] * (len(grid) - parallel)
  if semantics and sound:
    kinds = [semantics] * len(grid)
  total = functools.reduce(lambda a, b: a * b, grid)

  def number(*ids):
    at = 0
    for i, size in zip(ids, grid):
      at = at * size + i
    return at
  block = ANY if whole else pl.BlockSpec(SHAPE, lambda *ids: (number(*ids), 0))
  inner = functools.reduce(lambda a, b: a * b, grid[parallel:], 1)

  def kernel(*refs):
    at = number(*(pl.program_id(d) for d in range(len(grid))))
    body(at, inner, total, *refs)
  call = pl.pallas_call(kernel, grid=tuple(grid), in_specs=[block], out_specs=block, scratch_shapes=list(scratch),
                        out_shape=jax.ShapeDtypeStruct((8 * total, 128), jnp.float32),
                        input_output_aliases={0: 0} if whole else {},
                        compiler_params=pltpu.CompilerParams(dimension_semantics=tuple(kinds)))
  return call, jnp.ones((8 * total, 128), jnp.float32)


@kind(ONE_CORE, "race")
def sum_is_carried_to_the_next_index(draw, sound):
  scalar = draw.random() < 0.3

  def body(at, inner, total, x, o, s):
    @when(at % inner == 0 if sound else at == 0)
    def _():
      if scalar:
        s[0, 0] = 0.0
      else:
        s[...] = jnp.zeros(SHAPE, jnp.float32)
    if scalar:
      s[0, 0] = s[0, 0] + 1.0  # here: sum_is_carried_to_the_next_index
      o[...] = x[...] + s[0, 0]
    else:
      s[...] += x[...]  # here: sum_is_carried_to_the_next_index
      o[...] = s[...]
  return steps(draw, sound, body, pltpu.SMEM(SHAPE, jnp.float32) if scalar else VMEM)


@kind(ONE_CORE, "race")
def table_is_made_once_for_all(draw, sound):
  lines = draw.choice([1, 8])

  def body(at, inner, total, x, o, s):
    @when(at % inner == 0 if sound else at == 0)
    def _():
      s[...] = jnp.full(SHAPE, 2, jnp.float32)
    o[...] = x[...] * s[0:lines]  # here: table_is_made_once_for_all
  return steps(draw, sound, body, VMEM)


@kind(ONE_CORE, "race")
def one_tile_is_updated_by_all(draw, sound):
  far = draw.random() < 0.5

  def body(at, inner, total, x, o, s):
    other = (at + inner) % total if far else 0
    tile = pl.ds((at if sound else other) * 8, 8)
    pltpu.sync_copy(o.at[tile], s)  # here: one_tile_is_updated_by_all
    s[...] += 1
    pltpu.sync_copy(s, o.at[tile if not far else pl.ds(at * 8, 8)])  # here: one_tile_is_updated_by_all
  return steps(draw, sound, body, VMEM, whole=True)


@kind(ONE_CORE, "race")
def next_block_is_fetched_ahead(draw, sound):
  """By the step before, which another core may run. The twin's dimensions are arbitrary."""
  def body(at, inner, total, x, o, s, t, sems, back):
    fetch = lambda k: pltpu.make_async_copy(x.at[pl.ds(k * 8, 8)], s.at[k % 2], sems.at[k % 2])

    @when(at == 0)
    def _():
      fetch(at).start()

    @when(at + 1 < total)
    def _():
      fetch(at + 1).start()  # here: next_block_is_fetched_ahead
    fetch(at).wait()
    t[...] = s[at % 2] + 1
    pltpu.async_copy(t, o.at[pl.ds(at * 8, 8)], back).wait()
  return steps(draw, sound, body, pltpu.VMEM((2, *SHAPE), jnp.float32), VMEM, DMA((2,)), DMA, whole=True,
               semantics="arbitrary")


# ---- Cases
def case(seed, i, only):
  """kind, and the random numbers of one twin."""
  names = [only] if only else list(KINDS)
  return names[i % len(names)], random.Random(f"{seed} {i}")


def run(name, draw, sound):
  f, x = KINDS[name][0](draw, sound)
  try:
    jax.block_until_ready(jax.jit(f)(x))
    return ""
  except Exception as e:  # whoever refuses it
    return str(e) or repr(e)


def places(name):
  path = pathlib.Path(__file__)
  lines = path.read_text().split("\n")
  return [f"{path.name}:{i}:" for i, line in enumerate(lines, 1) if line.endswith(f"# here: {name}")]


def judge(seed, i, only):
  name, _ = case(seed, i, only)
  told = {sound: run(name, case(seed, i, only)[1], sound) for sound in (False, True)}
  at = told[False].rsplit("\nat: ", 1)[-1]
  wrong = []
  if not any(word in told[False] for word in KINDS[name][2]):
    wrong.append("not found")
  elif not any(p in at for p in places(name)):
    wrong.append("at another line")
  if told[True]:
    wrong.append("twin is not clean")
  return {"case": i, "kind": name, "wrong": wrong, "defect": told[False], "sound": told[True]}


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--count", type=int, default=40)
  parser.add_argument("--only", default="")
  parser.add_argument("--kind", default="")
  parser.add_argument("--verbose", action="store_true")
  parser.add_argument("--inside", help=argparse.SUPPRESS)
  options = parser.parse_args()
  cases = [int(i) for i in options.only.split(",") if i] or range(options.count)
  if options.inside:
    for i in cases:
      print(json.dumps(judge(options.seed, i, options.kind)), flush=True)
    return 0
  bad = 0
  for target in (ONE_CORE, TWO_CORES):
    mine = [str(i) for i in cases if KINDS[case(options.seed, i, options.kind)[0]][1] == target]
    if not mine:
      continue
    env = {"ATOLL_CHECK": "all", "ATOLL_CACHE": "off", "ATOLL_KERNEL_TURNS": "4000000", **os.environ, "ATOLL_TARGET": target}
    done = subprocess.run([sys.executable, __file__, "--inside=x", f"--seed={options.seed}", f"--kind={options.kind}",
                           f"--only={','.join(mine)}"], env=env, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    bad += done.returncode != 0 or len(lines) != len(mine)
    for r in lines:
      bad += bool(r["wrong"])
      if not options.verbose and not r["wrong"]:
        r = {k: r[k] for k in ("case", "kind", "wrong")}
      print(json.dumps(r))
  return 1 if bad else 0


if __name__ == "__main__":
  sys.exit(main())
