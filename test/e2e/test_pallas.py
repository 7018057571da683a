"""Pallas TPU kernels through JAX: what they compute, and what the checks find."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

DEFECTS = Path(__file__).resolve().parents[1] / "pallas"


def test_blocks_at_the_edge():
  def body(x, y, o):
    o[...] = x[...] * 2 + y[...]
  x = jnp.arange(19 * 300, dtype=jnp.float32).reshape(19, 300)
  spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
  f = pl.pallas_call(body, grid=(3, 3), in_specs=[spec, spec], out_specs=spec,
                     out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))
  np.testing.assert_array_equal(f(x, x), x * 2 + x)


def test_pipeline_padding_is_not_an_earlier_block():
  """A product with masked weights must not meet the NaN that an earlier block left behind the array's end."""
  def block(x, o):
    o[...] = x[...]

  def body(x, o):
    spec = pl.BlockSpec((8, 128), lambda i: (0, i))
    pltpu.emit_pipeline(block, grid=(4,), in_specs=[spec], out_specs=spec)(x, o)
  x = jnp.full((8, 500), jnp.nan)
  hbm = pl.BlockSpec(memory_space=pltpu.HBM)
  f = pl.pallas_call(body, in_specs=[hbm], out_specs=hbm, out_shape=jax.ShapeDtypeStruct((8, 512), x.dtype))
  np.testing.assert_array_equal(f(x)[:, 500:], np.zeros((8, 12)))


def test_pipeline_at_the_edge_of_one_of_several():
  """Rows of the last block that are not there are not those of the next matrix."""
  def block(x, o):
    o[...] = x[...] + pl.program_id(0).astype(x.dtype)

  def body(x, o):
    spec = pl.BlockSpec((None, 16, 128), lambda i, j, k: (3 - i, j, k))
    pltpu.emit_pipeline(block, grid=(4, 3, 2), in_specs=[spec], out_specs=spec)(x, o)
  x = jnp.arange(4 * 35 * 200, dtype=jnp.float32).reshape(4, 35, 200)
  hbm = pl.BlockSpec(memory_space=pltpu.HBM)
  f = pl.pallas_call(body, in_specs=[hbm], out_specs=hbm, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))
  np.testing.assert_array_equal(f(x), x + jnp.arange(3, -1, -1.0)[:, None, None])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_matmul(dtype):
  def body(x, y, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
      acc[...] = jnp.zeros_like(acc)
    acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
      o[...] = acc[...].astype(o.dtype)
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.standard_normal((256, 384)), dtype)
  y = jnp.asarray(rng.standard_normal((384, 512)), dtype)
  f = pl.pallas_call(
      body, grid=(2, 4, 3),
      in_specs=[pl.BlockSpec((128, 128), lambda i, j, k: (i, k)), pl.BlockSpec((128, 128), lambda i, j, k: (k, j))],
      out_specs=pl.BlockSpec((128, 128), lambda i, j, k: (i, j)),
      scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32)],
      out_shape=jax.ShapeDtypeStruct((256, 512), dtype),
      compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))
  # The matrix unit rounds f32 operands to bf16.
  rounded = [np.asarray(v.astype(jnp.bfloat16), np.float32) for v in (x, y)]
  np.testing.assert_allclose(np.asarray(f(x, y), np.float32), rounded[0] @ rounded[1],
                             rtol=1e-5 if dtype == jnp.float32 else 1e-2, atol=1e-4 if dtype == jnp.float32 else 0.2)


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_products_of_odd_shapes(form, dtype):
  """Either operand transposed; three steps read the same blocks."""
  left, right = form & 1, form >> 1
  dims = (((1 - left,), (right,)), ((), ()))

  def kernel(x, y, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
      o[...] = jnp.zeros_like(o)
    o[...] += jax.lax.dot_general(x[...], y[...], dims, preferred_element_type=jnp.float32)
  rng = np.random.default_rng(form)
  for m, k, n in [(33, 17, 40), (100, 65, 33), (64, 300, 136), (40, 24, 32)]:
    x = rng.integers(-4, 5, (k, m) if left else (m, k)).astype(np.float32)
    y = rng.integers(-4, 5, (n, k) if right else (k, n)).astype(np.float32)
    f = pl.pallas_call(kernel, grid=(3,), out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
                       in_specs=[pl.BlockSpec(v.shape, lambda i: (0, 0)) for v in (x, y)],
                       out_specs=pl.BlockSpec((m, n), lambda i: (0, 0)))
    want = 3 * ((x.T if left else x) @ (y.T if right else y))
    np.testing.assert_array_equal(f(jnp.asarray(x, dtype), jnp.asarray(y, dtype)), want)


SUMS = {
    "plain": (0, lambda acc, d: acc[...] + d),
    "product first": (0, lambda acc, d: d + acc[...]),
    "begins with ones": (1, lambda acc, d: acc[...] + d),
    "read twice": (0, lambda acc, d: acc[...] * 2 + acc[...] + d),
    "halved": (0, lambda acc, d: acc[...] * 0.5 + d),
    "of integers": (0, lambda acc, d: acc[...] + jnp.round(d))}


@pytest.mark.parametrize("kind", SUMS)
def test_sums_begin_as_they_are_filled(kind):
  """What a step finds in the accumulator, after something else was there."""
  start, step = SUMS[kind]

  def body(x, y, o, acc):
    @pl.when(pl.program_id(1) == 0)
    def _():
      acc[...] = jnp.full_like(acc, start)
    acc[...] = step(acc, jnp.dot(x[...], y[...], preferred_element_type=jnp.float32))

    @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
    def _():
      o[...] = acc[...]
      acc[...] = jnp.full_like(acc, 7)
  x = np.random.default_rng(1).integers(-4, 5, (2, 3, 128, 128)).astype(np.float32)
  y = np.random.default_rng(2).integers(-4, 5, (3, 128, 256)).astype(np.float32)
  f = pl.pallas_call(
      body, grid=(2, 3),
      in_specs=[pl.BlockSpec((None, None, 128, 128), lambda i, k: (i, k, 0, 0)),
                pl.BlockSpec((None, 128, 256), lambda i, k: (k, 0, 0))],
      out_specs=pl.BlockSpec((None, 128, 256), lambda i, k: (i, 0, 0)),
      scratch_shapes=[pltpu.VMEM((128, 256), jnp.float32)],
      out_shape=jax.ShapeDtypeStruct((2, 128, 256), jnp.float32))
  want = np.full((2, 128, 256), start, np.float32)
  for k in range(3):
    want = np.asarray(step(want, np.einsum("imk,kn->imn", x[:, k], y[k])))
  np.testing.assert_array_equal(f(x, y), want)


def online_softmax(x, g, o, s):
  """What a step of flash attention does with its scores, in place."""
  top = jnp.maximum(s[...], x[...].max(1, keepdims=True))
  p = jnp.exp(x[...] - top)
  keep = jnp.exp(s[...] - top)
  s[...] = top
  o[...] = o[...] * keep + p.sum(1, keepdims=True) + jnp.where(p > 0.5, p, 0)


def normalised_columns(x, g, o, s):
  """One row for all rows, and a sum down the columns in between."""
  v = x[...] - x[...].mean(1, keepdims=True)
  o[...] = v * jax.lax.rsqrt((v * v).mean(1, keepdims=True) + 1e-3) * g[0:1, :]
  s[...] = o[...] - o[...].mean(0, keepdims=True)
  o[...] = s[...] / (1 + jnp.abs(s[...]).max(1, keepdims=True)) + jnp.exp(-jnp.abs(s[...]))


def rows_that_move(x, g, o, s):
  """Reads rows further down, which a loop over rows would not have written yet."""
  p = jnp.exp(x[0:64, :] - x[0:64, :].max(1, keepdims=True))
  s[0:64, :] = p / p.sum(1, keepdims=True)
  w = s[32:96, :]
  o[0:64, :] = w - w.max(1, keepdims=True)


def read_before_written(x, g, o, s):
  """A value from before the run is used in it and after it."""
  s[...] = x[...] + 1
  old = s[...]
  p = jnp.exp(x[...] - x[...].max(1, keepdims=True))
  s[...] = p / p.sum(1, keepdims=True)
  o[...] = jnp.tanh(old) + s[...].max(1, keepdims=True)
  o[...] += old - jnp.dot(s[...].astype(jnp.bfloat16), g[...].astype(jnp.bfloat16), preferred_element_type=jnp.float32)


def column_as_row(x, g, o, s):
  """Square shapes: what one row says is no row of another."""
  m = x[...].max(1)
  p = jnp.exp(x[...] - m[:, None])
  s[...] = p * p.sum(1, keepdims=True)
  o[...] = s[...] + g[0, :][None, :] + jnp.exp(s[...] - s[...].max(1, keepdims=True))


class Held:
  """Stands for a ref outside of a kernel."""

  def __init__(self, value):
    self.value = jnp.asarray(value)

  def __getitem__(self, at):
    return self.value[at]

  def __setitem__(self, at, value):
    self.value = self.value.at[at].set(value)


def last_step():
  return pl.program_id(1) == pl.num_programs(1) - 1


def sum_whole(x, y, o, acc):
  acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

  @pl.when(last_step())
  def _():
    o[...] = acc[...]


def sum_read_on_the_way(x, y, o, acc):
  acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

  @pl.when(pl.program_id(1) % 3 == 0)
  def _():
    acc[...] = acc[...] * 2

  @pl.when(last_step())
  def _():
    o[...] = acc[...]


def sum_read_before(x, y, o, acc):
  acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)
  o[...] = jnp.where(last_step(), acc[...], 1)


def sum_in_the_output(x, y, o, acc):
  o[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)


def sum_of_views(x, y, o, acc):
  acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

  @pl.when(last_step())
  def _():
    o[...] = acc.at[pl.ds(0, 64)][...].repeat(2, 0) + acc[...]


@pytest.mark.parametrize("steps", [1, 4, 70])
@pytest.mark.parametrize("body, want", [
    (sum_whole, lambda p: p.sum(1)),
    (sum_read_on_the_way, lambda p: functools.reduce(lambda a, k: (a + p[:, k]) * (1 + (k % 3 == 0)), range(p.shape[1]), 0)),
    (sum_read_before, lambda p: p.sum(1)),
    (sum_in_the_output, lambda p: p.sum(1)),
    (sum_of_views, lambda p: p.sum(1) + p.sum(1)[:, :64].repeat(2, 1))], ids=lambda f: f.__name__)
def test_sums_over_many_steps(body, want, steps):
  """Products of steps may be made later than the text says; nobody may see it."""
  if body is sum_read_on_the_way and steps > 4:
    pytest.skip("its numbers leave what f32 holds exactly")

  def kernel(x, y, o, acc):
    @pl.when(pl.program_id(1) == 0)
    def _():
      to = o if body is sum_in_the_output else acc
      to[...] = jnp.zeros_like(to)
    body(x, y, o, acc)
  x = np.random.default_rng(1).integers(-4, 5, (3, steps, 128, 128)).astype(np.float32)
  y = np.random.default_rng(2).integers(-4, 5, (steps, 128, 256)).astype(np.float32)
  f = pl.pallas_call(
      kernel, grid=(3, steps),
      in_specs=[pl.BlockSpec((None, None, 128, 128), lambda i, k: (i, k, 0, 0)),
                pl.BlockSpec((None, 128, 256), lambda i, k: (k, 0, 0))],
      out_specs=pl.BlockSpec((None, 128, 256), lambda i, k: (i, 0, 0)),
      scratch_shapes=[pltpu.VMEM((128, 256), jnp.float32)],
      out_shape=jax.ShapeDtypeStruct((3, 128, 256), jnp.float32))
  np.testing.assert_array_equal(f(x, y), want(np.einsum("ikmc,kcn->ikmn", x, y)))


def test_two_sums_at_a_time():
  def body(x, y, z, o, p, q):
    @pl.when(pl.program_id(0) == 0)
    def _():
      p[...] = jnp.zeros_like(p)
    p[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(0) == 0)
    def _():
      q[...] = jnp.zeros_like(q)
    q[...] += jnp.dot(x[...], z[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(0) == pl.num_programs(0) - 1)
    def _():
      o[...] = p[...] * q[...]
  x, y, z = (np.random.default_rng(i).integers(-2, 3, (128, 512)).astype(np.float32) for i in range(3))
  rows, columns = pl.BlockSpec((128, 128), lambda k: (0, k)), pl.BlockSpec((128, 128), lambda k: (k, 0))
  f = pl.pallas_call(body, grid=(4,), in_specs=[rows, columns, columns], out_specs=pl.BlockSpec((128, 128), lambda k: (0, 0)),
                     scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32)] * 2, out_shape=jax.ShapeDtypeStruct((128, 128), jnp.float32))
  np.testing.assert_array_equal(f(x, y.T.copy(), z.T.copy()), (x @ y.T) * (x @ z.T))


def test_windows_of_edges_in_sums():
  """Blocks that reach over the edge are copies: their products cannot wait."""
  def body(x, y, o, acc):
    @pl.when(pl.program_id(1) == 0)
    def _():
      acc[...] = jnp.zeros_like(acc)
    acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(1) == 2)
    def _():
      o[...] = acc[...]
  x = np.random.default_rng(1).integers(-4, 5, (200, 384)).astype(np.float32)
  y = np.random.default_rng(2).integers(-4, 5, (384, 128)).astype(np.float32)
  f = pl.pallas_call(body, grid=(2, 3), in_specs=[pl.BlockSpec((128, 128), lambda i, k: (i, k)), pl.BlockSpec((128, 128), lambda i, k: (k, 0))],
                     out_specs=pl.BlockSpec((128, 128), lambda i, k: (i, 0)), scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32)],
                     out_shape=jax.ShapeDtypeStruct((200, 128), jnp.float32))
  np.testing.assert_array_equal(f(x, y), x @ y)


@pytest.mark.parametrize("body", [online_softmax, normalised_columns, rows_that_move, read_before_written, column_as_row])
@pytest.mark.parametrize("columns", [128, 384])
def test_rows_at_a_time(body, columns):
  rng = np.random.default_rng(5)
  size = (128, 128 if body in (column_as_row, read_before_written) else columns)
  x, g, start = (rng.standard_normal(size).astype(np.float32) for _ in range(3))
  if body is read_before_written:
    g = rng.integers(-3, 4, (128, 128)).astype(np.float32)

  def kernel(x, g, start, o, s):
    s[...] = start[...] - 1
    o[...] = start[...]
    body(x, g, o, s)
  want = [Held(v) for v in (x, g, start, np.zeros_like(x), np.zeros_like(x))]
  kernel(*want)
  f = pl.pallas_call(kernel, out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype)] * 2)
  for got, held in zip(f(x, g, start), want[3:]):
    np.testing.assert_allclose(got, held.value, rtol=2e-5, atol=2e-5 if body is not read_before_written else 2e-2)


@pytest.mark.parametrize("source, target", [
    ("uint4", "int32"), ("uint2", "int32"), ("uint4", "uint8"), ("int32", "uint4"), ("uint8", "uint2"), ("int4", "uint4")])
def test_integers_of_less_than_a_byte_keep_their_sign(source, target):
  def body(x, o):
    o[...] = x[...].astype(o.dtype)
  x = jnp.arange(64 * 128, dtype=jnp.int32).reshape(64, 128).astype(source)
  y = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, target))(x)
  np.testing.assert_array_equal(np.asarray(y.astype("int32")), np.asarray(x.astype(target).astype("int32")))


def test_prefetched_scalars_choose_blocks():
  def body(which, x, o):
    o[...] = x[...]
  x = jnp.arange(64 * 128, dtype=jnp.float32).reshape(64, 128)
  which = jnp.array([3, 0, 7, 7], jnp.int32)
  grid = pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec((8, 128), lambda i, which: (which[i], 0))],
      out_specs=pl.BlockSpec((8, 128), lambda i, which: (i, 0)))
  out = pl.pallas_call(body, grid_spec=grid, out_shape=jax.ShapeDtypeStruct((32, 128), jnp.float32))(which, x)
  np.testing.assert_array_equal(out, x.reshape(8, 8, 128)[which].reshape(32, 128))


def test_dynamic_grid_and_aliases():
  def body(x, o):
    o[...] = x[...] + 1
  x = jnp.zeros((32, 128), jnp.float32)
  spec = pl.BlockSpec((8, 128), lambda i: (i, 0))

  @jax.jit
  def f(n, x):
    return pl.pallas_call(body, grid=(n,), in_specs=[spec], out_specs=spec, input_output_aliases={0: 0},
                          out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
  out = np.asarray(f(jnp.int32(3), x))
  assert (out[:24] == 1).all() and (out[24:] == 0).all()
  assert (np.asarray(x) == 0).all()
  assert (np.asarray(f(jnp.int32(0), x)) == 0).all()


def test_double_buffer_by_hand():
  def body(x, o, buf, sems):
    def copy(i):
      return pltpu.make_async_copy(x.at[pl.ds(i * 8, 8)], buf.at[i % 2], sems.at[i % 2])
    copy(0).start()

    def turn(i, _):
      @pl.when(i + 1 < 4)
      def _():
        copy(i + 1).start()
      copy(i).wait()
      o[pl.ds(i * 8, 8), :] = buf[i % 2] * 3
      return 0
    jax.lax.fori_loop(0, 4, turn, 0)
  x = jnp.arange(32 * 128, dtype=jnp.float32).reshape(32, 128)
  f = pl.pallas_call(body, in_specs=[pl.BlockSpec(memory_space=pl.ANY)], out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
                     scratch_shapes=[pltpu.VMEM((2, 8, 128), jnp.float32), pltpu.SemaphoreType.DMA((2,))])
  np.testing.assert_array_equal(f(x), x * 3)


def test_memory_that_nobody_filled_is_overwritten():
  def body(x, _, o):
    o[...] = x[...]
  x = jnp.arange(8 * 128, dtype=jnp.float32).reshape(8, 128)

  @jax.jit
  def f(x):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={1: 0},
                          in_specs=[pl.BlockSpec(), pl.BlockSpec(memory_space=pl.ANY)])(x, jax.lax.empty(x.shape, x.dtype))
  np.testing.assert_array_equal(f(x), x)


def test_index_map_leaves_the_array():
  def body(x, o):
    o[...] = x[...]
  x = jnp.zeros((16, 128), jnp.float32)
  f = pl.pallas_call(body, grid=(2,), in_specs=[pl.BlockSpec((8, 128), lambda i: (i + 1, 0))],
                     out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)), out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))
  with pytest.raises(jax.errors.JaxRuntimeError, match=r"index map of input 0 \(argument 0\) leaves the array"):
    jax.block_until_ready(f(x))


@pytest.mark.parametrize("file,target,least", [("defects.py", "v5p:2x1x1", 40), ("more_defects.py", "v5p:2x2x1", 30),
                                                ("other_defects.py", "v5p:2x1x1", 19), ("flight_defects.py", "v5p:2x1x1", 6), ("choice_defects.py", "v5p:2x1x1", 15)])
def test_checks_find_planted_defects(file, target, least):
  # Chips of two cores each.
  env = {**os.environ, "ATOLL_CHECK": "all", "ATOLL_CACHE": "off", "ATOLL_TARGET": target, "ATOLL_KERNEL_TURNS": "4000000"}
  done = subprocess.run([sys.executable, str(DEFECTS / file)], env=env, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stderr[-2000:]
  found = json.loads(done.stdout.splitlines()[-1])
  assert len(found) >= least
  for name, r in found.items():
    assert r["words"] in r["defect"], (name, r["defect"])
    assert not r["place"] or r["place"] in r["defect"], (name, r["place"], r["defect"])
    assert r["sound"] == "", (name, r["sound"])


@pytest.mark.parametrize("check", ["", "all"])
def test_registers_of_the_mxu(check):
  # Only generation 7 has them.
  env = {**os.environ, "ATOLL_TARGET": "7x", "ATOLL_CHECK": check}
  done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(DEFECTS / "mxu.py")],
                        env=env, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stdout[-3000:]


def test_named_parts_are_in_the_profile(tmp_path):
  def inner(x, o):
    with jax.named_scope("twice"):
      o[...] = x[...] * 2

  def body(x, o):
    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    pltpu.emit_pipeline(inner, grid=(4,), in_specs=[block], out_specs=[block])(x, o)
  whole = pl.BlockSpec(memory_space=pl.ANY)
  x = jnp.ones((32, 128))
  f = jax.jit(pl.pallas_call(body, in_specs=[whole], out_specs=whole, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))
  with jax.profiler.trace(str(tmp_path)):
    jax.block_until_ready(f(x))
  [space] = tmp_path.rglob("*.xplane.pb")
  planes = {p.name: p for p in jax.profiler.ProfileData.from_file(str(space)).planes}
  lines = {l.name: [e.name for e in l.events] for l in planes["/device:TPU:0"].lines}
  assert lines["Kernel core 0"].count("twice") == 4
  assert "ep_run_kernel" in lines["Kernel core 0"]


COMPARED = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
def product(x, y, o):
  o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)
def leftover(x, o, s):
  o[...] = x[...] + s[...] * {scale}
x = jax.random.normal(jax.random.key(0), (128, 128))
out = jax.ShapeDtypeStruct(x.shape, x.dtype)
jax.block_until_ready(jax.jit(pl.pallas_call(product, out_shape=out))(x, x))
if {scale}:
  jax.block_until_ready(pl.pallas_call(leftover, out_shape=out, scratch_shapes=[pltpu.VMEM(x.shape, x.dtype)])(x))
"""


@pytest.mark.parametrize("scale", [0, 1])
def test_compared_with_interpret_mode(library, tmp_path, scale):
  script = tmp_path / "script.py"
  script.write_text(COMPARED.format(scale=scale))
  env = {**os.environ, "ATOLL_CHECK": "interpret", "PYTHON": sys.executable}
  done = subprocess.run([str(Path(library).parent / "atoll"), "run", str(script)], env=env, capture_output=True, text=True,
                        timeout=120)
  if scale:  # interpret mode fills scratch with NaN
    assert done.returncode == 1 and "interpret mode differs: output 0 of leftover" in done.stderr, done.stderr[-2000:]
    assert f"kernel at {script}:7" in done.stderr
  else:
    assert done.returncode == 0 and "1 kernel runs compared with interpret mode, 0 differences" in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("mode", [True, pltpu.InterpretParams(), pltpu.InterpretParams(detect_races=True)])
def test_interpret_modes_run_here(mode):
  def body(x, o):
    o[...] = x[...] * 2
  x = jnp.arange(32 * 128, dtype=jnp.float32).reshape(32, 128)
  spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
  y = jax.jit(pl.pallas_call(body, grid=(4,), in_specs=[spec], out_specs=spec, interpret=mode,
                             out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))(x)
  assert y.devices() == {jax.devices()[0]}
  np.testing.assert_array_equal(y, x * 2)
