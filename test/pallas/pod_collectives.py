#!/usr/bin/env python3
"""Collectives that kernels make themselves, on all chips of ATOLL_TARGET, compared with NumPy.

  pod_collectives.py [name ...]

Prints a line of JSON: per kernel the seconds that it took, and the most memory of the process in MiB. Written as JAX's guide to
distributed kernels has them: rings with barriers of neighbours, double buffers and capacity semaphores.
"""

import json
import resource
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

N = jax.device_count()
TILE = (8, 128)
ANY = pl.BlockSpec(memory_space=pl.ANY)
VMEM = pltpu.VMEM(TILE, jnp.float32)
DMA = pltpu.SemaphoreType.DMA
SEM = pltpu.SemaphoreType.REGULAR
KERNELS = {}


def kernel(shape, *scratch):
  """A body on tiles of every chip; `shape` of its result, of which each chip has one."""
  def add(body):
    def call(x):
      return pl.pallas_call(body, in_specs=[ANY], out_specs=ANY, scratch_shapes=list(scratch),
                            out_shape=jax.ShapeDtypeStruct(shape, jnp.float32), name=body.__name__,
                            compiler_params=pltpu.CompilerParams(collective_id=1))(x)
    KERNELS[body.__name__] = (call, shape)
    return body
  return add


def neighbours():
  me = jax.lax.axis_index("x")
  left, right = (me + N - 1) % N, (me + 1) % N
  barrier = pltpu.get_barrier_semaphore()
  for chip in (left, right):
    pl.semaphore_signal(barrier, 1, device_id=chip)
  pl.semaphore_wait(barrier, 2)
  return me, left, right


@kernel(TILE, DMA, DMA)
def permute(x, o, send, receive):
  _, _, right = neighbours()
  copy = pltpu.make_async_remote_copy(x.at[0], o, send, receive, device_id=right)
  copy.start()
  copy.wait()


@kernel(TILE, DMA, DMA)
def far_permute(x, o, send, receive):
  """To the other end of the pod, when all chips have come."""
  me, everybody = jax.lax.axis_index("x"), pltpu.get_barrier_semaphore()

  def tell(i, _):
    pl.semaphore_signal(everybody, 1, device_id=i)
    return 0
  jax.lax.fori_loop(0, N, tell, 0)
  pl.semaphore_wait(everybody, N)
  copy = pltpu.make_async_remote_copy(x.at[0], o, send, receive, device_id=N - 1 - me)
  copy.start()
  copy.wait()


@kernel((N, *TILE), DMA, DMA((N,)), DMA)
def all_gather(x, o, send, receive, local):
  me, _, right = neighbours()
  pltpu.async_copy(x.at[0], o.at[me], local).wait()

  def turn(i, _):
    part = (me - i + N) % N
    copy = pltpu.make_async_remote_copy(o.at[part], o.at[part], send, receive.at[i], device_id=right)
    copy.start()
    copy.wait()
    return 0
  jax.lax.fori_loop(0, N - 1, turn, 0)


def pass_on(me, left, right, take, slots, send, receive, room, steps):
  """A ring of sums: what comes is added to what take(i) gives, and goes on to the right."""
  def turn(i, _):
    now, then = i % 2, (i + 1) % 2
    @pl.when(i > 0)
    def _():
      pl.semaphore_wait(room, 1)
    copy = pltpu.make_async_remote_copy(slots.at[now], slots.at[then], send, receive.at[then], device_id=right)
    copy.start()
    copy.wait()
    take(i + 1, then)
    @pl.when(i < steps - 1)
    def _():
      pl.semaphore_signal(room, 1, device_id=left)  # the slot that was sent may be filled again
    return 0
  jax.lax.fori_loop(0, steps, turn, 0)


@kernel(TILE, pltpu.VMEM((2, *TILE), jnp.float32), VMEM, DMA, DMA((2,)), DMA, SEM)
def all_reduce(x, o, slots, total, send, receive, local, room):
  me, left, right = neighbours()
  pltpu.async_copy(x.at[0], slots.at[0], local).wait()
  total[...] = slots[0]

  def take(i, slot):
    total[...] += slots[slot]
  pass_on(me, left, right, take, slots, send, receive, room, N - 1)
  pltpu.async_copy(total, o, local).wait()


@kernel(TILE, pltpu.VMEM((2, *TILE), jnp.float32), VMEM, DMA, DMA((2,)), DMA, SEM)
def reduce_scatter(x, o, slots, part, send, receive, local, room):
  """The sum of tile d of every chip's row comes to chip d."""
  me, left, right = neighbours()
  load = lambda i, to: pltpu.async_copy(x.at[(me - 1 - i + 2 * N) % N], to, local).wait()
  load(0, slots.at[0])

  def take(i, slot):
    load(i, part)
    slots[slot] += part[...]
  pass_on(me, left, right, take, slots, send, receive, room, N - 1)
  pltpu.async_copy(slots.at[(N - 1) % 2], o, local).wait()


def wanted(name, x):
  tiles = x.reshape(N, -1, *TILE)[:, 0]
  if name == "permute":
    return np.roll(tiles, 1, axis=0)
  if name == "far_permute":
    return tiles[::-1]
  if name == "all_gather":
    return np.broadcast_to(tiles, (N, N, *TILE))
  if name == "all_reduce":
    return np.broadcast_to(tiles.sum(0), (N, *TILE))
  return x.reshape(N, N, *TILE).sum(0)


def main():
  mesh = jax.sharding.Mesh(jax.devices(), ("x",))
  spec = jax.sharding.PartitionSpec("x")
  out = {}
  for name in sys.argv[1:] or KERNELS:
    call, shape = KERNELS[name]
    rows = N if name == "reduce_scatter" else 1
    x = (np.arange(N * rows * 1024) % 97).astype(np.float32).reshape(N * rows, *TILE)
    f = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    start = time.time()
    got = np.asarray(f(x)).reshape(N, *shape)
    out[name] = round(time.time() - start, 2)
    np.testing.assert_array_equal(got, wanted(name, x), err_msg=name)
  out["MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
  print(json.dumps(out))


if __name__ == "__main__":
  main()
