"""SparseCore kernels as a writer of embedding layers has them, compared with NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

RNG = np.random.default_rng(4)
COMPILER = pltpu.CompilerParams(use_tc_tiling_on_sc=False)


def subcores(out, *scratch, count=None):
  """pl.kernel on the vector subcores of one SparseCore."""
  mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="sub", num_cores=1,
                                **({"num_subcores": count} if count else {}))
  return functools.partial(pl.kernel, out_type=out, mesh=mesh, scratch_types=list(scratch), compiler_params=COMPILER)


def lanes():
  return plsc.get_sparse_core_info().num_lanes


def clear(ref):
  for row in np.ndindex(ref.shape[:-1]):
    @pl.loop(0, ref.shape[-1], step=lanes())
    def _(i, row=row):
      ref[(*row, pl.ds(i, lanes()))] = jnp.zeros((lanes(),), ref.dtype)


def f32(*shape):
  return RNG.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32])
def test_sums_of_segments_meet_in_shared_memory(dtype):
  """Subcores add to the same rows at the same time: none of the sums is lost."""
  n, d, segments, each = 512, 16, 8, 32
  values = RNG.integers(-9, 9, (n, d)).astype(dtype)
  ids = RNG.integers(0, segments, n).astype(np.int32)

  @subcores(jax.ShapeDtypeStruct((segments, d), dtype), pltpu.VMEM((each, d), dtype), pltpu.VMEM((each,), jnp.int32),
            pltpu.VMEM((segments, d), dtype), pltpu.VMEM_SHARED((segments, d), dtype))
  def total(x, ids, o, rows, at, zero, shared):
    me = lax.axis_index("sub")

    @pl.when(me == 0)
    def _():
      clear(zero)
      pltpu.sync_copy(zero, shared)
    plsc.subcore_barrier()
    pltpu.sync_copy(x.at[pl.ds(me * each, each)], rows)
    pltpu.sync_copy(ids.at[pl.ds(me * each, each)], at)
    pltpu.sync_copy(rows, shared.at[at], add=True)
    plsc.subcore_barrier()

    @pl.when(me == 0)
    def _():
      pltpu.sync_copy(shared, o)
  want = np.zeros((segments, d), dtype)
  np.add.at(want, ids, values)
  f = jax.jit(total)
  for _ in range(50):
    np.testing.assert_array_equal(f(values, ids), want)


def test_rows_of_a_table():
  n, d, each = 256, 32, 16
  table, ids = f32(64, d), RNG.integers(0, 64, n).astype(np.int32)

  @subcores(jax.ShapeDtypeStruct((n, d), jnp.float32), pltpu.VMEM((each,), jnp.int32),
            pltpu.VMEM((each, d), jnp.float32), pltpu.SemaphoreType.DMA)
  def gather(t, ids, o, at, rows, sem):
    mine = pl.ds(lax.axis_index("sub") * each, each)
    pltpu.sync_copy(ids.at[mine], at)
    pltpu.async_copy(t.at[at], rows, sem).wait()
    pltpu.sync_copy(rows, o.at[mine])
  np.testing.assert_array_equal(gather(table, ids), table[ids])


def test_histogram():
  n, bins = 512, 64
  x = RNG.integers(0, bins, n).astype(np.int32)

  @subcores(jax.ShapeDtypeStruct((bins,), jnp.int32), pltpu.VMEM((n,), jnp.int32), pltpu.VMEM((bins,), jnp.int32),
            count=1)
  def count(x, o, values, found):
    pltpu.sync_copy(x, values)
    clear(found)

    @pl.loop(0, n, step=lanes())
    def _(i):
      v = values[pl.ds(i, lanes())]
      so_far, last = plsc.scan_count(v)
      plsc.addupdate_scatter(found, [v], so_far, mask=last)
    pltpu.sync_copy(found, o)
  np.testing.assert_array_equal(count(x), np.bincount(x, minlength=bins))


def test_running_sums_and_what_is_positive():
  n = 256
  x = RNG.integers(-5, 6, n).astype(np.int32)

  @subcores([jax.ShapeDtypeStruct((n,), jnp.int32)] * 2, pltpu.VMEM((n,), jnp.int32), pltpu.VMEM((n,), jnp.int32),
            pltpu.VMEM((n + 16,), jnp.int32), count=1)
  def scan(x, sums, positive, values, out, kept):
    pltpu.sync_copy(x, values)
    clear(kept)

    def turn(i, carry):
      total, place = carry
      v = values[pl.ds(i * lanes(), lanes())]
      out[pl.ds(i * lanes(), lanes())] = plsc.cumsum(v) + total
      plsc.store_compressed(kept.at[pl.ds(place, lanes())], v, mask=v > 0)
      return total + jnp.sum(v), place + jnp.sum((v > 0).astype(jnp.int32))
    lax.fori_loop(0, n // lanes(), turn, (jnp.int32(0), jnp.int32(0)))
    pltpu.sync_copy(out, sums)
    pltpu.sync_copy(kept.at[pl.ds(0, n)], positive)
  sums, positive = scan(x)
  np.testing.assert_array_equal(sums, np.cumsum(x))
  want = x[x > 0]
  np.testing.assert_array_equal(positive[:want.size], want)
  assert not np.any(positive[want.size:])


def test_what_a_mask_keeps_ends_where_memory_does():
  n = 64
  x = RNG.permutation(n).astype(np.int32)

  @subcores([jax.ShapeDtypeStruct((n // 2,), jnp.int32), jax.ShapeDtypeStruct((n,), jnp.int32)], pltpu.VMEM((n,), jnp.int32),
            pltpu.VMEM((n // 2,), jnp.int32), pltpu.VMEM((n,), jnp.int32), count=1)
  def odd(x, packed, spread, values, kept, out):
    pltpu.sync_copy(x, values)

    def store(i, place):
      v = values[pl.ds(i * lanes(), lanes())]
      plsc.store_compressed(kept.at[pl.ds(place, lanes())], v, mask=v % 2 == 1)
      return place + jnp.sum(v % 2)

    def load(i, place):
      v = values[pl.ds(i * lanes(), lanes())]
      out[pl.ds(i * lanes(), lanes())] = plsc.load_expanded(kept.at[pl.ds(place, lanes())], mask=v % 2 == 1)
      return place + jnp.sum(v % 2)
    lax.fori_loop(0, n // lanes(), store, jnp.int32(0))
    lax.fori_loop(0, n // lanes(), load, jnp.int32(0))
    pltpu.sync_copy(kept, packed)
    pltpu.sync_copy(out, spread)
  packed, spread = odd(x)
  np.testing.assert_array_equal(packed, x[x % 2 == 1])
  np.testing.assert_array_equal(spread, np.where(x % 2 == 1, x, 0))


def scratch_of(tiled, *scratch):
  """Copies all of its scratch, as the compiler drops what nobody uses."""
  mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="sub", num_cores=1)

  def body(*refs):
    for there, ref in zip(refs[:len(scratch)], refs[len(scratch):]):
      pltpu.sync_copy(ref, there)
  outs = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in scratch]
  f = pl.kernel(body, out_type=outs, mesh=mesh, scratch_types=list(scratch), compiler_params=pltpu.CompilerParams(use_tc_tiling_on_sc=tiled))
  return jax.jit(f).lower().compile


def scratch(*shape, dtype=jnp.int32):
  return pltpu.VMEM(shape, dtype)


def shared(*shape, dtype=jnp.int32):
  return pltpu.VMEM_SHARED(shape, dtype)


# What libtpu 0.0.51 says of each: words up to the last of an allocation and of the allocation itself.
@pytest.mark.parametrize("tiled, what, words", [
    (True, [scratch(128), scratch(70001, 3)], (143378431, 143376384)),
    (True, [scratch(128), scratch(1001, 3, 100)], (8202239, 8200192)),
    (True, [scratch(128), scratch(300003, dtype=jnp.bfloat16)], (2402303, 2400256)),
    (True, [scratch(128), scratch(2001, 300, dtype=jnp.bfloat16)], (6170623, 6168576)),
    (True, [scratch(128), scratch(600005, dtype=jnp.int8)], (2402303, 2400256)),
    (True, [scratch(128), shared(2000, 1201)], (2562047, 2560000)),
    (False, [scratch(128), scratch(70001, 3)], (8962175, 8960128)),
    (False, [scratch(128), scratch(2001, 300, dtype=jnp.bfloat16)], (4868479, 4866432)),
    (False, [scratch(128), shared(2200001)], (2202111, 2200064)),
])
def test_scratch_is_limited(tiled, what, words):
  with pytest.raises(jax.errors.JaxRuntimeError, match=rf"upper bound \({words[0]} words\) exceeds .* when allocating {words[1]} words"):
    scratch_of(tiled, *what)()


def test_scratch_up_to_the_limit():
  """Memory of the subcores and what they share are one."""
  words = plsc.get_sparse_core_info().vmem_capacity_bytes // 4
  scratch_of(True, scratch(words))()
  scratch_of(True, scratch(words - 128), shared(2048))()
  for more in ([scratch(words + 1)], [scratch(words - 128), scratch(129)], [scratch(words - 128), shared(2049)]):
    with pytest.raises(jax.errors.JaxRuntimeError, match="E3000: CompileTimeSparseCoreAllocationFailure"):
      scratch_of(True, *more)()


@pytest.mark.parametrize("nested", [False, True])
def test_memory_taken_in_the_body_is_limited(nested):
  words = plsc.get_sparse_core_info().vmem_capacity_bytes // 4

  def compiled(base, *more):
    outs = [jax.ShapeDtypeStruct((n,), jnp.int32) for n in more]

    def body(*refs):
      def take(i):
        if i == len(more):
          return
        def use(ref):
          pltpu.sync_copy(ref, refs[i])
          if nested:
            take(i + 1)
            pltpu.sync_copy(ref, refs[i])
        pl.run_scoped(use, scratch(more[i]))
        if not nested:
          take(i + 1)
      pltpu.sync_copy(refs[-1], refs[-1])
      take(0)
    f = pl.kernel(body, out_type=outs, scratch_types=[scratch(base)], mesh=plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="sub", num_cores=1))
    return jax.jit(f).lower().compile
  compiled(128, words // 2, words // 2 - 128)()
  for over in ((128, words), (128, words // 2, words // 2)):
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"upper bound \({words + 127} words\) .*\({words - 1} words\) in memory space tile_spmem"):
      compiled(*over)()


def test_loops_that_make_no_turn_take_no_memory():
  """A loop of unknown bounds comes with a second one for what is left over, which the compiler drops."""
  words = plsc.get_sparse_core_info().vmem_capacity_bytes // 4

  def compiled(n, loops):
    @subcores(jax.ShapeDtypeStruct((n,), jnp.int32), pltpu.VMEM((16,), jnp.int32))
    def f(turns, out, at):
      pltpu.sync_copy(turns, at)
      for _ in range(loops):
        @pl.loop(0, at[...][0])
        def _(i):
          pl.run_scoped(lambda ref: pltpu.sync_copy(ref, out), scratch(n))
    return jax.jit(f).lower(jax.ShapeDtypeStruct((16,), jnp.int32)).compile
  compiled(words // 2, 1)()
  with pytest.raises(jax.errors.JaxRuntimeError, match="E3000: CompileTimeSparseCoreAllocationFailure"):
    compiled(words // 2, 2)()
