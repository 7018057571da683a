"""Products inside loops over rows: a few rows of the result at a time, by several threads, and nobody can tell."""

import os

os.environ["ATOLL_THREADS"] = "3"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

STEPS = 3
T = (((1,), (1,)), ((), ()))  # rows by rows


def dot(a, b, numbers=(((1,), (0,)), ((), ()))):
  return lax.dot_general(a, b, numbers, preferred_element_type=jnp.float32)


def from_row_maximum(s):
  m = s.max(1)[:, None]
  return s - m, m


def attention(q, k, v, o, acc):
  p, m = from_row_maximum(dot(q[...], k[...], T))
  o[...] = dot(p, v[...]) + m + p.sum(1)[:, None]


def sums_over_steps(q, k, v, o, acc):
  @pl.when(pl.program_id(0) == 0)
  def _():
    acc[...] = jnp.zeros_like(acc)
  p, m = from_row_maximum(dot(q[...], k[...], T))
  acc[...] = acc[...] - m
  acc[...] += dot(p, v[...])
  o[...] = acc[...] + p.min(1)[:, None]


def narrow_first_operand(q, k, v, o, acc):
  p, m = from_row_maximum(dot(q[...].astype(jnp.bfloat16), k[...].astype(jnp.bfloat16), T))
  o[...] = dot(p.astype(jnp.bfloat16), v[...].astype(jnp.bfloat16)) + m + p.sum(1)[:, None]


def computed_second_operand(q, k, v, o, acc):
  p, m = from_row_maximum(dot(q[...] * 2, k[...] + 1, T) * 0.5)
  o[...] = dot(p, jnp.abs(v[...])) + m + p.sum(1)[:, None]


def rows_as_second_operand(q, k, v, o, acc):
  """What comes row from row is needed whole."""
  p, m = from_row_maximum(dot(q[...], k[...], T))
  o[...] = dot(p.T, p)[:o.shape[0] // 2].sum(0)[None, :o.shape[1]] * 0 + dot(p, v[...]) + m + p.sum(1)[:, None]


def memory_is_overwritten(q, k, v, o, acc):
  """The second product reads what the run stores."""
  acc[...] = v[:acc.shape[0]] * 0 + 1
  p, m = from_row_maximum(dot(q[...], k[...], T))
  acc[...] = p[:, :acc.shape[1]] + m
  o[...] = dot(p[:, :acc.shape[0]], acc[...]) * 0 + acc[...] + p.sum(1)[:, None]


def needed_behind_the_loop(q, k, v, o, acc):
  s = dot(q[...], k[...], T)
  p, m = from_row_maximum(s)
  t = p * 2
  acc[...] = dot(p, v[...]) + m + p.sum(1)[:, None]

  @pl.when(pl.program_id(0) > 0)
  def _():
    o[...] = acc[...] + (t.min(0) + s.max(0))[None, :1]

  @pl.when(pl.program_id(0) == 0)
  def _():
    o[...] = acc[...]


def along_columns(q, k, v, o, acc):
  """Of the product's rows those come from the second operand."""
  s = dot(k[...], q[...], T).T
  p, m = from_row_maximum(s)
  o[...] = dot(p, v[...]) + m + p.sum(1)[:, None]


def leading_ones(q, k, v, o, acc):
  s = lax.dot_general(q[...][None], k[...][None], (((2,), (2,)), ((0,), (0,))), preferred_element_type=jnp.float32)
  m = s.max(2, keepdims=True)
  p = s - m
  o[...] = (lax.dot_general(p, v[...][None], (((2,), (1,)), ((0,), (0,)))) + m + p.sum(2, keepdims=True))[0]


def twice(q, k, v, o, acc):
  p, m = from_row_maximum(dot(q[...], k[...], T))
  r = jnp.sign(dot(p, v[...]))
  t, n = from_row_maximum(dot(jnp.concatenate([r, r], 1)[:, :q.shape[1]], k[...], T))
  o[...] = r + n + m + t.sum(1)[:, None]


KERNELS = [attention, sums_over_steps, narrow_first_operand, computed_second_operand, rows_as_second_operand,
           memory_is_overwritten, needed_behind_the_loop, along_columns, leading_ones, twice]
# rows, of k, between, of v
SHAPES = [(128, 128, 128, 128), (64, 256, 64, 128), (96, 128, 40, 72), (128, 72, 128, 16), (80, 128, 128, 128), (352, 256, 128, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("body", KERNELS, ids=lambda f: f.__name__)
def test_as_interpreted(body, shape):
  rows, keys, inner, out = shape
  if (body is memory_is_overwritten and keys < max(rows, out)) or (body is twice and inner > 2 * out):
    pytest.skip("no such slices")
  rng = np.random.default_rng(5)
  few = lambda *s: rng.integers(-1, 2, s).astype(np.float32)  # sums of their products are exact
  q, k, v = few(STEPS * rows, inner), few(keys, inner), few(keys, out)

  def run(interpret):
    f = pl.pallas_call(body, grid=(STEPS,), interpret=interpret, scratch_shapes=[pltpu.VMEM((rows, out), jnp.float32)],
                       in_specs=[pl.BlockSpec((rows, inner), lambda i: (i, 0)), pl.BlockSpec(k.shape, lambda i: (0, 0)),
                                 pl.BlockSpec(v.shape, lambda i: (0, 0))],
                       out_specs=pl.BlockSpec((rows, out), lambda i: (i, 0)),
                       out_shape=jax.ShapeDtypeStruct((STEPS * rows, out), jnp.float32))
    return np.asarray(jax.jit(f)(q, k, v))
  np.testing.assert_array_equal(run(False), run(True))


@pytest.mark.parametrize("heads", [(16, 6, 128), (2, 48, 128), (96, 1, 128), (1, 96, 128), (48, 128, 2)], ids=str)
def test_rows_in_other_dimensions(heads):
  """What was there before the run is read by rows that it does not have."""
  rng = np.random.default_rng(5)
  few = lambda *s: rng.integers(-1, 2, s).astype(np.float32)

  def body(q, k, v, b, o):
    p, m = from_row_maximum(dot(q[...], k[...], T))
    before = jnp.where(pl.program_id(0) == 0, 0.0, b[...])
    o[...] = dot(p, v[...]) + m + p.sum(1)[:, None] + before.reshape(o.shape)

  def run(interpret):
    f = pl.pallas_call(body, grid=(2,), interpret=interpret, out_shape=jax.ShapeDtypeStruct((192, 128), jnp.float32),
                       in_specs=[pl.BlockSpec((96, 128), lambda i: (i, 0))] + [pl.BlockSpec()] * 3,
                       out_specs=pl.BlockSpec((96, 128), lambda i: (i, 0)))
    return np.asarray(jax.jit(f)(*operands))
  operands = few(192, 128), few(128, 128), few(128, 128), few(*heads)
  np.testing.assert_array_equal(run(False), run(True))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_row(bad):
  q, k, v = np.ones((128, 128), np.float32), np.ones((128, 128), np.float32), np.ones((128, 128), np.float32)
  q[5, 7] = bad

  def body(q, k, v, o):
    s = dot(q[...], k[...], T)
    m, n = s.max(1)[:, None], s.min(1)[:, None]
    o[...] = dot(jnp.where(s == m, 1.0, 0.0), v[...]) + m + n + s.sum(1)[:, None]
  shape = jax.ShapeDtypeStruct(q.shape, q.dtype)
  run = lambda interpret: np.asarray(jax.jit(pl.pallas_call(body, out_shape=shape, interpret=interpret))(q, k, v))
  np.testing.assert_array_equal(run(False), run(True))
  assert np.isfinite(np.delete(run(False), 5, 0)).all()


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("width", [8, 24, 72, 128, 200, 300])
def test_extrema_of_rows(width, least):
  """NaNs anywhere in a row, zeros of both signs, rows of one infinity."""
  x = np.random.default_rng(1).standard_normal((64, width)).astype(np.float32)
  for i in range(width if width < 40 else 40):
    x[i, (i * 37) % width] = np.nan
  x[41], x[42], x[43, ::2] = np.inf, -np.inf, -0.0
  x[44, 3], x[45] = np.nan, np.nan

  def body(x, o):
    y = x[...]
    o[...] = jnp.broadcast_to((y.min(1) if least else y.max(1))[:, None], o.shape)
  f = jax.jit(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)))
  want = np.broadcast_to((x.min(1) if least else x.max(1))[:, None], x.shape)
  np.testing.assert_array_equal(np.asarray(f(x)), want)
