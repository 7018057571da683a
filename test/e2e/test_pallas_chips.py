"""Pallas kernels that talk: between chips, between the cores of a chip, and across two kernels."""

import pytest

SET_UP = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
P = jax.sharding.PartitionSpec
N = jax.device_count()
ANY = pl.BlockSpec(memory_space=pl.ANY)
mesh = jax.sharding.Mesh(jax.devices(), ("x",))
def over(f, **call):
  g = lambda x: pl.pallas_call(f, **call)(x)
  return jax.jit(jax.shard_map(g, mesh=mesh, in_specs=P("x", None), out_specs=P("x", None), check_vma=False))
def barrier():
  me = jax.lax.axis_index("x")
  b = pltpu.get_barrier_semaphore()
  for step in (1, N - 1):
    pl.semaphore_signal(b, 1, device_id=(me + step) % N)
  pl.semaphore_wait(b, 2)
  return (me + 1) % N
x = jnp.arange(N * 8 * 128, dtype=jnp.float32).reshape(N * 8, 128)
COLLECTIVE = pltpu.CompilerParams(collective_id=1)
"""

PERMUTE = """
def body(x, o, send, receive):
  right = barrier()
  c = pltpu.make_async_remote_copy(x, o, send, receive, device_id=right)
  c.start()
  c.wait()
f = over(body, in_specs=[ANY], out_specs=ANY, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
         scratch_shapes=[pltpu.SemaphoreType.DMA] * 2, compiler_params=COLLECTIVE)
for _ in range(3):
  np.testing.assert_array_equal(f(x), jnp.roll(x, 8, axis=0))
"""

GATHER = """
def body(x, o, send, receive, local):
  me = jax.lax.axis_index("x")
  right = barrier()
  pltpu.async_copy(x, o.at[me], local).wait()
  def turn(i, _):
    part = (me - i + N) % N
    c = pltpu.make_async_remote_copy(o.at[part], o.at[part], send, receive.at[i], device_id=right)
    c.start()
    c.wait()
    return 0
  jax.lax.fori_loop(0, N - 1, turn, 0)
g = lambda x: pl.pallas_call(body, in_specs=[ANY], out_specs=ANY, out_shape=jax.ShapeDtypeStruct((N, 8, 128), jnp.float32),
    scratch_shapes=[pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA((N,)), pltpu.SemaphoreType.DMA],
    compiler_params=COLLECTIVE)(x)
f = jax.jit(jax.shard_map(g, mesh=mesh, in_specs=P("x", None), out_specs=P("x", None, None), check_vma=False))
out = f(x).reshape(N, N, 8, 128)
for d in range(N):
  np.testing.assert_array_equal(out[d], x.reshape(N, 8, 128))
"""

TWO_KERNELS = """
SEM, DMA = pl.BlockSpec(memory_space=pltpu.SEMAPHORE), pltpu.SemaphoreType.DMA(())
SHAPE = jax.ShapeDtypeStruct((8, 128), jnp.float32)
def start(x, o, send, receive):
  pltpu.make_async_remote_copy(x, o, send, receive, device_id=barrier()).start()
def done(x, y, send, receive, o):
  pltpu.make_async_copy(x, y, send).wait()
  pltpu.make_async_copy(x, y, receive).wait()
def both(x):
  y, send, receive = pl.pallas_call(start, in_specs=[ANY], out_specs=(ANY, SEM, SEM), out_shape=(SHAPE, DMA, DMA),
                                    compiler_params=COLLECTIVE)(x)
  return pl.pallas_call(done, in_specs=[ANY, ANY, SEM, SEM], out_specs=ANY, out_shape=SHAPE,
                        input_output_aliases={1: 0})(x, y, send, receive)
f = jax.jit(jax.shard_map(both, mesh=mesh, in_specs=P("x", None), out_specs=P("x", None), check_vma=False))
np.testing.assert_array_equal(f(x), jnp.roll(x, 8, axis=0))
"""

DEADLOCK = """
def body(x, o, sem):
  me = jax.lax.axis_index("x")
  @pl.when(me != 1)
  def _():
    pl.semaphore_signal(sem, 1, device_id=(me + 1) % N)
  pl.semaphore_wait(sem, 1)
  pltpu.sync_copy(x, o)
f = over(body, in_specs=[ANY], out_specs=ANY, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
         scratch_shapes=[pltpu.SemaphoreType.REGULAR])
try:
  jax.block_until_ready(f(x))
except jax.errors.JaxRuntimeError as e:
  assert "core 0 of device 2 waits for semaphore 0 of scratch 0 (argument 2) (value 0, needs 1)" in str(e), e
else:
  raise AssertionError("no deadlock")
np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(x), x + 1)
"""

CORES = """
cores = pltpu.create_tensorcore_mesh("core")
@jax.jit
def swap(x):
  source, result = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
  @pl.core_map(cores)
  def _():
    def scope(mine, sem):
      core = jax.lax.axis_index("core")
      pltpu.sync_copy(source.at[pl.ds(core * 8, 8)], mine)
      pl.semaphore_signal(sem, 1, device_id={"core": 1 - core})
      pl.semaphore_wait(sem, 1)
      pltpu.sync_copy(mine, result.at[pl.ds((1 - core) * 8, 8)])
    pl.run_scoped(scope, pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.REGULAR)
  return jax.freeze(result)
two = x[:16]
np.testing.assert_array_equal(swap(two), jnp.concatenate([two[8:], two[:8]]))
"""

SHARED_GRID = """
def body(x, o, acc):
  @pl.when(pl.program_id(1) == 0)
  def _():
    acc[...] = jnp.zeros_like(acc)
  acc[...] += x[...]
  @pl.when(pl.program_id(1) == 3)
  def _():
    o[...] = acc[...]
x = jnp.arange(40 * 512, dtype=jnp.float32).reshape(40, 512)
f = pl.pallas_call(body, grid=(5, 4), in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))],
    out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, 0)), out_shape=jax.ShapeDtypeStruct((40, 128), jnp.float32),
    scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)],
    compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")))
np.testing.assert_array_equal(f(x), x.reshape(40, 4, 128).sum(1))
"""

# The block of the next step is fetched while this one's is used; a scalar says that nobody has fetched the first.
# Each core has scalars of its own.
FIRST_OF_CORE = """
def body(first, x, o, buffer, sem):
  core, step = pl.program_id(0), pl.program_id(1)
  fetch = lambda step: pltpu.make_async_copy(x.at[pl.ds((core * 4 + step) * 8, 8)], buffer.at[step % 2], sem.at[step % 2])
  was_first = first[0]
  first[0] = 0
  @pl.when(was_first == 1)
  def _():
    fetch(step).start()
  @pl.when(step < 3)
  def _():
    fetch(step + 1).start()
  fetch(step).wait()
  o[...] = buffer[step % 2]
x = jnp.arange(64 * 128, dtype=jnp.float32).reshape(64, 128)
f = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((64, 128), jnp.float32),
    grid_spec=pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2, 4), in_specs=[ANY],
        out_specs=pl.BlockSpec((8, 128), lambda i, j, first: (i * 4 + j, 0)),
        scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))]),
    compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")))
np.testing.assert_array_equal(f(jnp.ones(1, jnp.int32), x), x)
"""


@pytest.mark.parametrize("check", ["", "all"])
@pytest.mark.parametrize("codes, target", [((PERMUTE, GATHER, TWO_KERNELS, DEADLOCK), "v5e:2x2"), ((CORES, SHARED_GRID, FIRST_OF_CORE), "v5p:2x1x1")])
def test_kernels_that_talk(python, codes, target, check):
  env = {"ATOLL_TARGET": target, "ATOLL_CHECK": check, "ATOLL_CACHE": "off", "JAX_PLATFORMS": "tpu,cpu"}
  done = python(SET_UP + "".join(codes), env=env, timeout=200)
  assert done.returncode == 0, done.stderr[-2000:]
