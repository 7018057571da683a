"""Pallas kernels that talk to chips of other processes: the bits of one process, and what is told when one fails."""

import pytest

from test_hosts import WIRES, run, same_as_one_process

HEAD = """
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
ANY = pl.BlockSpec(memory_space=pl.ANY)
DMA, REGULAR = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
def kernel(body, shape, *scratch, dtype=jnp.float32, barrier=True):
  return pl.pallas_call(body, in_specs=[ANY], out_specs=ANY, scratch_shapes=list(scratch), name=body.__name__,
                        out_shape=jax.ShapeDtypeStruct(shape, dtype),
                        compiler_params=pltpu.CompilerParams(collective_id=0 if barrier else None))
def over(f, m=mesh, spec=P("x")):
  return jax.jit(jax.shard_map(f, mesh=m, in_specs=spec, out_specs=spec, check_vma=False))
def here(n=N):
  me = lax.axis_index("x")
  return me, (me + n - 1) % n, (me + 1) % n
def meet(n=N):
  me, left, right = here(n)
  barrier = pltpu.get_barrier_semaphore()
  for chip in (left, right):
    pl.semaphore_signal(barrier, 1, device_id=chip)
  pl.semaphore_wait(barrier, 2)
  return me, left, right
def numbers(*shape, dtype=np.float32, s=shard):
  a = np.random.default_rng(7).normal(size=shape)
  return put((a * 100).astype(dtype), s)
"""

KERNELS = HEAD + """
def permute(x, o, send, receive):  # nobody says that he is there: what comes early waits
  copy = pltpu.make_async_remote_copy(x, o, send, receive, device_id=here()[2])
  copy.start()
  copy.wait()
keep("permute", over(kernel(permute, (8, 128), DMA, DMA, barrier=False))(numbers(8 * N, 128)))

def large(x, o, send, receive):
  me, left, right = meet()
  copies = [pltpu.make_async_remote_copy(x.at[pl.ds(512 * i, 512)], o.at[pl.ds(512 * (1 - i), 512)], send.at[i],
                                         receive.at[i], device_id=chip) for i, chip in enumerate((left, right))]
  for c in copies: c.start()
  for c in copies: c.wait()
keep("large", over(kernel(large, (1024, 512), DMA((2,)), DMA((2,))))(numbers(1024 * N, 512)))

def gather(x, o, send, receive, local):
  me, _, right = meet()
  pltpu.async_copy(x, o.at[me], local).wait()
  def turn(i, _):
    part = (me - i + N) % N
    c = pltpu.make_async_remote_copy(o.at[part], o.at[part], send, receive.at[i], device_id=right)
    c.start()
    c.wait()
  lax.fori_loop(0, N - 1, turn, None)
keep("gather", over(kernel(gather, (N, 8, 128), DMA, DMA((N,)), DMA))(numbers(8 * N, 128)))

def all_to_all(x, o, send, receive, ready):
  me = lax.axis_index("x")
  for chip in range(N):
    pl.semaphore_signal(ready, 1, device_id=chip)
  pl.semaphore_wait(ready, N)
  copies = [pltpu.make_async_remote_copy(x.at[pl.ds(chip, 1), :, pl.ds(0, 128)], o.at[pl.ds(me, 1)], send, receive,
                                         device_id=chip) for chip in range(N)]
  for c in copies: c.start()
  for c in copies: c.wait()
f = over(kernel(all_to_all, (N, 16, 128), DMA, DMA, REGULAR, dtype=jnp.bfloat16, barrier=False))
keep("all_to_all", f(numbers(N * N, 16, 256, dtype=jnp.bfloat16)))

# Slots take turns; whoever has passed one on says to the left that it may be filled again.
def scatter(x, o, slots, part, send, receive, local, room):
  me, left, right = meet()
  def load(i, to):
    pltpu.async_copy(x.at[pl.ds((me - 1 - i + 2 * N) % N * 8, 8)], to, local).wait()
  load(0, slots.at[0])
  def turn(i, _):
    now, then = i % 2, (i + 1) % 2
    @pl.when(i > 0)
    def _():
      pl.semaphore_wait(room, 1)
    c = pltpu.make_async_remote_copy(slots.at[now], slots.at[then], send, receive.at[then], device_id=right)
    c.start()
    c.wait()
    load(i + 1, part)
    slots[then] += part[...]
    @pl.when(i < N - 2)
    def _():
      pl.semaphore_signal(room, 1, device_id=left)
  lax.fori_loop(0, N - 1, turn, None)
  pltpu.async_copy(slots.at[(N - 1) % 2], o, local).wait()
tile = pltpu.VMEM((8, 128), jnp.float32)
f = over(kernel(scatter, (8, 128), pltpu.VMEM((2, 8, 128), jnp.float32), tile, DMA, DMA((2,)), DMA, REGULAR))
keep("scatter", f(numbers(8 * N * N, 128)))

# In memory of a scope, in whole blocks that a grid brings, and adding what came.
def blocks(x, o, send, receive):
  me, _, right = here()
  @pl.when(pl.program_id(0) == 0)
  def _():
    meet()
  def scope(mail):
    c = pltpu.make_async_remote_copy(x, mail, send, receive, device_id=right)
    c.start()
    c.wait()
    o[...] = mail[...] + x[...]
    pl.semaphore_signal(done := pltpu.get_barrier_semaphore(), 1, device_id=(me + N - 1) % N)
    pl.semaphore_wait(done, 1)
  pl.run_scoped(scope, tile)
block = pl.BlockSpec((8, 128), lambda i: (i, 0))
f = over(pl.pallas_call(blocks, grid=(3,), in_specs=[block], out_specs=block, scratch_shapes=[DMA, DMA],
                        out_shape=jax.ShapeDtypeStruct((24, 128), jnp.float32),
                        compiler_params=pltpu.CompilerParams(collective_id=1)))
keep("blocks", f(numbers(24 * N, 128)))

one = kernel(gather, (N, 8, 128), DMA, DMA((N,)), DMA)
def step(i, v):  # collectives of the program around it
  total = lax.psum(one(v).sum(0) * (i + 1), "x")
  return lax.ppermute(total * 0.125 + v, "x", [(k, (k + 1) % N) for k in range(N)])
keep("loop", over(lambda v: lax.fori_loop(0, 5, step, v))(numbers(8 * N, 128)))
keep("branch", over(lambda v: lax.cond(lax.pmax(v.max(), "x") > 0, lambda: one(v).sum(0), lambda: v))(numbers(8 * N, 128)))

SEM, one_sem = pl.BlockSpec(memory_space=pltpu.SEMAPHORE), DMA(())
def start(x, o, send, receive):
  pltpu.make_async_remote_copy(x, o, send, receive, device_id=meet()[2]).start()
def done(x, y, send, receive, o):
  pltpu.make_async_copy(x, y, send).wait()
  pltpu.make_async_copy(x, y, receive).wait()
S = jax.ShapeDtypeStruct((8, 128), jnp.float32)
def two(x):  # semaphores that outlive a kernel
  y, s, r = pl.pallas_call(start, in_specs=[ANY], out_specs=(ANY, SEM, SEM), out_shape=(S, one_sem, one_sem),
                           compiler_params=pltpu.CompilerParams(collective_id=1))(x)
  return pl.pallas_call(done, in_specs=[ANY, ANY, SEM, SEM], out_specs=ANY, out_shape=S,
                        input_output_aliases={1: 0})(x, y, s, r)
keep("two", over(two)(numbers(8 * N, 128)))
"""


@WIRES
def test_kernels(tmp_path, wire):
  same_as_one_process(KERNELS, "v5p:2x2x1", tmp_path, counts=(2, 4), wire=wire)


MESHES = HEAD + """
def ring(n):
  def gather(x, o, send, receive, local):
    me, _, right = meet(n)
    pltpu.async_copy(x, o.at[me], local).wait()
    for i in range(n - 1):
      part = (me - i + n) % n
      c = pltpu.make_async_remote_copy(o.at[part], o.at[part], send, receive.at[i], device_id=right)
      c.start()
      c.wait()
  return kernel(gather, (n, 8, 128), DMA, DMA((n,)), DMA)
for ids in ((0, 1, 2), (3, 1, 0), (0, 3), (2, 1), (3, 2, 1, 0)):  # in unequal shares, and in any order
  m = Mesh(np.array([devices[i] for i in ids]), ("x",))
  v = numbers(8 * len(ids), 128, s=NamedSharding(m, P("x")))
  keep("ring" + "".join(map(str, ids)), over(ring(len(ids)), m)(v))

# Neighbours along one axis of two.
def along(axis):
  def body(x, o, send, receive):
    to = {axis: (lax.axis_index(axis) + 1) % 2}
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id=to)
    pl.semaphore_wait(barrier, 1)
    c = pltpu.make_async_remote_copy(x, o, send, receive, device_id=to)
    c.start()
    c.wait()
  return kernel(body, (8, 128), DMA, DMA)
square = Mesh(np.array(devices).reshape(2, 2), ("a", "b"))
both = P(("a", "b"))
v = numbers(32, 128, s=NamedSharding(square, both))
for axis in ("a", "b"):
  keep(axis, over(lambda x: along(axis)(x) * 2 + along("ab".replace(axis, ""))(x), square, both)(v))
"""


@WIRES
def test_meshes(tmp_path, wire):
  same_as_one_process(MESHES, "v5p:2x2x1", tmp_path, counts=(2, 4), wire=wire)


THREADS = HEAD + """
import threading
def body(x, o, send, receive):
  right = meet(2)[2]
  c = pltpu.make_async_remote_copy(x, o, send, receive, device_id=right)
  c.start()
  c.wait()
  pltpu.sync_copy(o, o)
def work(k, c):
  m = Mesh(np.array([devices[i] for i in c]), ("x",))
  f = over(lambda x: kernel(body, (8, 128), DMA, DMA)(x) * (k + 1), m)
  x = numbers(16, 128, s=NamedSharding(m, P("x")))
  for _ in range(20):
    x = f(x) * 0.5
  results_of[k] = x
results_of = {}
sets = [(0, 3), (1, 2), (0, 2), (3, 1)]
jobs = [(k, c) for k, c in enumerate(sets) if any(devices[i].process_index == me for i in c)]
threads = [threading.Thread(target=work, args=j) for j in (jobs[me:] + jobs[:me])]
for t in threads: t.start()
for t in threads: t.join()
for k, x in sorted(results_of.items()): keep(str(k), x)
"""


@WIRES
def test_kernels_of_several_threads(tmp_path, wire):
  """Each process launches them in another order; what one has launched early waits."""
  same_as_one_process(THREADS, "v5p:2x2x1", tmp_path, counts=(2, 4), wire=wire)


PERMUTE = HEAD + """
def permute(x, o, send, receive):
  right = meet()[2]
  c = pltpu.make_async_remote_copy(x, o, send, receive, device_id=right)
  c.start()
  c.wait()
f = over(kernel(permute, (8, 128), DMA, DMA))
x = numbers(8 * N, 128)
def refused(f, *texts):
  try:
    jax.block_until_ready(f(x))
  except jax.errors.JaxRuntimeError as e:
    assert any(t in str(e) for t in texts), str(e)
  else:
    raise AssertionError("nothing failed")
"""


def told(code, tmp_path, exits=(0, 0), **env):
  ends = run(PERMUTE + code, 2, "v6e:2x2", tmp_path / "out", **env)
  assert [e[0] for e in ends] == list(exits), ends
  return ends


@WIRES
def test_a_process_that_ends_during_a_kernel_is_told(tmp_path, wire):
  told("""
import os, time, threading
jax.block_until_ready(f(x))
def waits(x, o, send, receive):
  meet()
  pl.semaphore_wait(receive, 1)
if me:
  threading.Timer(1, lambda: os._exit(7)).start()
refused(over(kernel(waits, (8, 128), DMA, REGULAR)), "process 1 is lost")
""", tmp_path, exits=(0, 7), ATOLL_POD_WIRE=wire)


@WIRES
def test_a_kernel_that_fails_on_one_process_fails_on_all(tmp_path, wire):
  told("""
def wrong(x, o, send, receive):
  chip = meet()[0]
  at = lax.select(chip == N - 1, x.shape[0], 0)
  pltpu.sync_copy(x.at[pl.ds(at, 8)], o)
  pl.semaphore_wait(receive, 1)
refused(over(kernel(wrong, (8, 128), DMA, REGULAR)), "out of bounds" if me else "process 1 failed: jit_wrapped: wrong/pallas_call: kernel wrong")
got = f(x)  # the next one works
want = np.roll(np.random.default_rng(7).normal(size=(8 * N, 128)) * 100, 8, axis=0).astype(np.float32)
for s in got.addressable_shards:
  np.testing.assert_array_equal(np.asarray(s.data), want[s.index])
""", tmp_path, ATOLL_POD_WIRE=wire)


def test_a_device_that_is_not_there_is_told(tmp_path):
  told("""
def nowhere(x, o, send, receive):
  pl.semaphore_signal(receive, 1, device_id=lax.axis_index("x") + N - 1)
  pl.semaphore_wait(receive, 1)
refused(over(kernel(nowhere, (8, 128), DMA, REGULAR, barrier=False)), "does not take part in this program", "failed:")
""", tmp_path)


@WIRES
def test_kernels_that_wait_for_each_other_are_told(tmp_path, wire):
  told("""
def stuck(x, o, send, receive):
  meet()
  pl.semaphore_wait(receive, 1)
refused(over(kernel(stuck, (8, 128), DMA, REGULAR)), "the kernels of all processes wait for each other")
""", tmp_path, ATOLL_POD_WIRE=wire)


def test_waits_for_a_slow_process_end_by_the_deadline(tmp_path):
  """The last process computes for hours before it signals."""
  ends = told("""
def slow(x, o, send, receive):
  chip = meet()[0]
  @pl.when(chip == N - 1)
  def _():
    reads = lambda i, v: v + pl.semaphore_read(receive)
    n = lax.fori_loop(0, 1 << 20, lambda i, v: lax.fori_loop(0, 1 << 20, reads, v), 0)
    pl.semaphore_signal(receive, n + 1, device_id=0)
  @pl.when(chip != N - 1)
  def _():
    pl.semaphore_wait(receive, 1)
refused(over(kernel(slow, (8, 128), DMA, REGULAR)), "s for other processes (ATOLL_POD_DEADLINE)", "failed: ")
""", tmp_path, ATOLL_POD_DEADLINE="11")
  assert "has waited 10 s for other processes in a kernel" in ends[0][2], ends[0]


def test_checks_that_need_one_process_are_told_once(tmp_path):
  ends = told("""
for k in range(2):
  got = over(lambda x: kernel(permute, (8, 128), DMA, DMA)(x) + k)(x)
  jax.block_until_ready(got)
""", tmp_path, ATOLL_CHECK="all")
  for _, _, err in ends:
    assert err.count("are checked for bounds and limits only") == 1, err
