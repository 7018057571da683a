"""Indirect copies of SparseCore kernels: element type x view x direction x form of the indices, compared with NumPy."""

import dataclasses
import os
import random
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

ROWS, N = 32, 16  # of the table, as the kernel sees it; and of the other side
TYPES = {t: jnp.dtype(t) for t in ("float32", "int32", "uint32", "bfloat16", "float16", "int16", "int8", "uint8", "int4",
                                   "uint4", "float8_e4m3fn", "float8_e5m2")}


@dataclasses.dataclass(frozen=True)
class Case:
  how: str = "gather"  # gather, scatter, add
  table: str = "bfloat16"  # what lies in memory ...
  dense: str = "int32"
  viewed: bool = True  # ... seen as int32 by the copy, on both sides
  index: str = "ref"  # ref, vector, part, row, ignore
  middle: int = 0  # a dimension between rows and columns
  columns: int = 128
  slice: bool = False  # the copy takes columns from the middle of the table
  shared: bool = False  # the table is in memory that subcores share
  tiled: bool = True

  def parts(self, dtype):
    return 32 // jax.dtypes.itemsize_bits(TYPES[dtype]) if self.viewed else 1

  def shape(self, dtype, rows, columns):
    p = self.parts(dtype)
    return (rows, self.middle * p, columns) if self.middle else (rows * p, columns)


def bits_of(x):
  n = jax.dtypes.itemsize_bits(x.dtype)
  if n < 8:
    return np.asarray(x).astype(np.int8).view(np.uint8) & (2**n - 1)
  return np.asarray(x).view(f"u{n // 8}")


def words_of(x, parts):
  """int32 elements as a view has them: of `parts` rows that follow each other, the first in the low bits."""
  b = bits_of(x).astype(np.uint32)
  b = b.reshape(*b.shape[:-2], b.shape[-2] // parts, parts, b.shape[-1])
  return sum(b[..., i, :] << np.uint32(32 // parts * i if parts > 1 else 0) for i in range(parts))


def random_array(rng, dtype, shape):
  n = jax.dtypes.itemsize_bits(dtype)
  if n < 8:
    return rng.integers(*((0, 2**n) if dtype.name[0] == "u" else (-2**(n - 1), 2**(n - 1))), shape).astype(dtype)
  return rng.integers(0, 2**n, shape, dtype=f"u{n // 8}").view(dtype)


def kernel_of(case):
  wide = case.columns * (3 if case.slice else 1)
  table = jax.ShapeDtypeStruct(case.shape(case.table, ROWS, wide), TYPES[case.table])
  dense = jax.ShapeDtypeStruct(case.shape(case.dense, N, case.columns), TYPES[case.dense])
  gather = case.how == "gather"
  indices = {"part": (3 * N,), "row": (3, N)}.get(case.index, (N,))

  def seen(ref):
    return ref.bitcast(jnp.int32) if case.viewed and ref.dtype != jnp.int32 else ref

  def body(start, x, ix, out, at, rows, sem, *shared):
    pltpu.sync_copy(ix, at)
    memory = shared[0] if shared else start if gather else out
    if shared or not gather:
      pltpu.sync_copy(start, memory)
    pick = {"ref": lambda: at, "vector": lambda: at[...], "part": lambda: at.at[pl.ds(N, N)], "row": lambda: at.at[1],
            "ignore": lambda: plsc.Indices(at, ignored_value=-1)}[case.index]()
    more = (slice(None),) * bool(case.middle) + (pl.ds(case.columns, case.columns),) if case.slice else ()
    there = seen(memory).at[(pick, *more)]
    pltpu.sync_copy(x, rows)
    if gather:
      pltpu.async_copy(there, seen(rows), sem).wait()
      pltpu.sync_copy(rows, out)
    else:
      pltpu.async_copy(seen(rows), there, sem, add=case.how == "add").wait()
      if shared:
        pltpu.sync_copy(memory, out)
  scratch = [pltpu.VMEM(indices, jnp.int32), pltpu.VMEM(dense.shape, dense.dtype), pltpu.SemaphoreType.DMA]
  if case.shared:
    scratch.append(pltpu.VMEM_SHARED(table.shape, table.dtype))
  mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="sub", num_cores=1, num_subcores=1)
  f = pl.kernel(body, out_type=dense if gather else table, mesh=mesh, scratch_types=scratch,
                compiler_params=pltpu.CompilerParams(use_tc_tiling_on_sc=case.tiled, needs_layout_passes=True))
  return f, table, dense, indices


def run(case, seed):
  rng = np.random.default_rng(seed)
  f, table, dense, indices = kernel_of(case)
  t, d = random_array(rng, table.dtype, table.shape), random_array(rng, dense.dtype, dense.shape)
  if case.how == "add" and table.dtype == jnp.float32:
    t, d = (rng.integers(-99, 99, a.shape).astype(np.float32) for a in (t, d))
  at = rng.permutation(ROWS)[:N] if case.how == "scatter" else rng.integers(0, ROWS, N)
  if case.index == "ignore":
    at[rng.random(N) < 0.4] = -1
  ix = rng.integers(0, ROWS, indices).astype(np.int32)
  ix[{"part": slice(N, 2 * N), "row": 1}.get(case.index, slice(None))] = at
  got = np.asarray(jax.jit(f)(t, d, ix))

  parts = case.parts(case.table), case.parts(case.dense)
  tw, dw = words_of(t, parts[0]), words_of(d, parts[1])
  columns = slice(case.columns, 2 * case.columns) if case.slice else slice(None)
  for i, row in enumerate(at):
    if row < 0:
      continue
    if case.how == "gather":
      dw[i] = tw[row, ..., columns]
    elif case.how == "scatter":
      tw[row, ..., columns] = dw[i]
    elif table.dtype == jnp.float32:
      tw[row, ..., columns] = (tw[row, ..., columns].view(np.float32) + dw[i].view(np.float32)).view(np.uint32)
    else:
      tw[row, ..., columns] += dw[i]
  gather = case.how == "gather"
  np.testing.assert_array_equal(words_of(got, parts[1] if gather else parts[0]), dw if gather else tw, str(case))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("how", ["gather", "scatter"])
def test_every_type_as_words(how, dtype):
  run(Case(how, dtype, "int32", dtype != "int32"), 0)
  run(Case(how, dtype, dtype, dtype != "int32"), 1)


def test_packed_on_either_side():
  for how in ("gather", "scatter"):
    for table, dense in (("int4", "bfloat16"), ("bfloat16", "int4"), ("int8", "int4"), ("int32", "int4"), ("uint4", "int32")):
      run(Case(how, table, dense), 5)


@pytest.mark.parametrize("index", ["vector", "part", "row", "ignore"])
@pytest.mark.parametrize("how", ["gather", "scatter"])
def test_forms_of_indices(how, index):
  for i, dtype in enumerate(("float32", "bfloat16", "int4")):
    run(Case(how, dtype, index=index), i)


def test_elements_of_less_than_a_word_without_tiles():
  for i, dtype in enumerate(TYPES):
    run(Case("gather", dtype, dtype, viewed=False, tiled=False, columns=64), i)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_sums_go_to_shared_memory(dtype):
  run(Case("add", dtype, dtype, viewed=False, shared=True, tiled=False), 3)


def random_case(r):
  tiled = r.random() < 0.75
  table = r.choice(list(TYPES))
  return Case(how=r.choice(["gather", "scatter"]), table=table, tiled=tiled, viewed=tiled,
              dense=r.choice(["int32", table, r.choice(list(TYPES))]) if tiled else table,
              index=r.choice(["ref", "vector", "part", "row", "ignore"]), middle=r.choice([0, 0, 8]),
              columns=128 * r.choice([1, 2]), slice=r.random() < 0.3, shared=r.random() < 0.3)


def test_random_cases():
  r = random.Random(7)
  for i in range(25):
    run(random_case(r), i)


def test_checks_find_nothing_in_them(python):
  """Copies that pack and unpack are followed as others are: what they write counts as written, and they end."""
  done = python("""
import random, test_pallas_indirect as t
for how in ("gather", "scatter"):
  for dtype in ("bfloat16", "int8", "int4"):
    t.run(t.Case(how, dtype), 1)
r = random.Random(11)
for i in range(8):
  t.run(t.random_case(r), i)
""", env={"ATOLL_CHECK": "all", "PYTHONPATH": os.path.dirname(__file__)})
  assert done.returncode == 0, done.stderr[-3000:]


def test_what_has_no_code_is_told_with_its_types_and_place():
  @pl.kernel(out_type=jax.ShapeDtypeStruct((N, 128), jnp.bfloat16),
             mesh=plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="sub", num_cores=1, num_subcores=1),
             scratch_types=[pltpu.VMEM((N,), jnp.int32), pltpu.VMEM((N, 128), jnp.bfloat16), pltpu.SemaphoreType.DMA])
  def narrower(x, ix, out, at, rows, sem):
    pltpu.sync_copy(ix, at)
    pltpu.async_copy(x.bitcast(jnp.bfloat16).at[at], rows, sem).wait()
    pltpu.sync_copy(rows, out)
  with pytest.raises(jax.errors.JaxRuntimeError,
                     match=r"tpu.enqueue_indirect_dma: rows that share their words\nat: \S+test_pallas_indirect.py:\d+:\d+ "
                           r"\(tpu.enqueue_indirect_dma\)\ndetail: the operation is .*memref<64x128xbf16"):
    jax.jit(narrower)(np.zeros((ROWS, 128), np.int32), np.zeros(N, np.int32))


WRONG = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu, tpu_sc as plsc

@pl.kernel(out_type=jax.ShapeDtypeStruct((16, 128), jnp.int32),
           mesh=plsc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=1, num_subcores=1),
           scratch_types=[pltpu.VMEM((16,), jnp.int32), pltpu.VMEM((16, 128), jnp.int32), pltpu.SemaphoreType.DMA])
def k(t, ix, o, at, rows, sem):
  pltpu.sync_copy(ix, at)
  copy = pltpu.async_copy(t.bitcast(jnp.int32).at[at], rows, sem)
  if EARLY: pltpu.sync_copy(rows, o)
  copy.wait()
  if not EARLY: pltpu.sync_copy(rows, o)
print(jax.jit(k)(np.zeros((256, 128), jnp.int4), np.full((16,), AT, np.int32))[0, 0])
"""


@pytest.mark.parametrize("early,at,says", [(0, 31, None), (0, 32, "index 32 .* outside a table of 32 rows"),
                                           (1, 0, "race"), (0, -1, "index -1 .* outside a table of 32 rows")])
def test_defects_of_packed_copies_are_found(python, early, at, says):
  done = python(f"EARLY, AT = {early}, {at}\n" + WRONG, env={"ATOLL_CHECK": "all"})
  if says is None:
    assert done.returncode == 0, done.stderr[-3000:]
  else:
    assert re.search(says, done.stderr), done.stderr[-3000:]
