"""jax.lax.ragged_dot and ragged_dot_general: groups of rows, of k and of batches, and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}


def normal(*shape, dtype="float32", seed=0):
  x = np.random.default_rng(seed).standard_normal(shape, np.float32)
  return np.asarray(jnp.asarray(x, dtype))


def numbers(sizes, length):
  """The group of each position, -1: none."""
  ends = np.cumsum(np.asarray(sizes, np.int64))
  group = np.searchsorted(ends, np.arange(length), side="right")
  return np.where(group < len(sizes), group, -1)


def close(got, want, dtype):
  scale = max(1, np.abs(want).max(initial=0))
  np.testing.assert_allclose(np.asarray(got, np.float32), want, atol=TOLERANCE[dtype] * scale, rtol=0)


SIZES = [[100, 3, 0, 97], [0, 0, 0, 0], [10, 20, 30, 40], [150, 100, 7, 1], [0, 200, 0, 0]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_groups_of_rows(dtype, sizes):
  x, w = normal(200, 48, dtype=dtype), normal(4, 48, 80, dtype=dtype, seed=1)
  got = jax.jit(lax.ragged_dot)(x, w, np.int32(sizes))
  group = numbers(sizes, 200)
  want = np.einsum("mk,mkn->mn", np.float32(x), np.float32(w)[group])
  close(got, np.where(group[:, None] < 0, 0, want), dtype)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gradients(dtype, sizes):
  x, w, dy = normal(200, 48, dtype=dtype), normal(4, 48, 80, dtype=dtype, seed=1), normal(200, 80, dtype=dtype, seed=2)

  def cotangents(x, w, dy, sizes):
    return jax.vjp(lambda x, w: lax.ragged_dot(x, w, sizes), x, w)[1](dy)
  dx, dw = jax.jit(cotangents)(x, w, dy, np.int32(sizes))
  group = numbers(sizes, 200)
  mine = np.float32(group[None] == np.arange(4)[:, None])
  x, w, dy = np.float32(x), np.float32(w), np.float32(dy)
  close(dx, np.einsum("gm,mn,gkn->mk", mine, dy, w, optimize=True), dtype)
  close(dw, np.einsum("gm,mk,mn->gkn", mine, x, dy, optimize=True), dtype)


def general(contract, batch, ragged, groups):
  return lax.RaggedDotDimensionNumbers(
      dot_dimension_numbers=(contract, batch), lhs_ragged_dimensions=[ragged], rhs_group_dimensions=groups)


def test_sizes_of_each_batch():
  x, w = normal(3, 50, 20), normal(4, 3, 20, 30, seed=1)
  sizes = np.int32([[10, 20, 0, 20], [0, 0, 5, 0], [60, 1, 1, 1]])
  numbers_ = general(((2,), (2,)), ((0,), (1,)), 1, [0])
  got = jax.jit(lambda *a: lax.ragged_dot_general(*a, numbers_))(x, w, sizes)
  for b in range(3):
    group = numbers(sizes[b], 50)
    want = np.einsum("mk,mkn->mn", x[b], w[group, b])
    close(got[b], np.where(group[:, None] < 0, 0, want), "float32")


def test_groups_of_k_in_batches():
  x, y = normal(2, 30, 70), normal(2, 70, 40, seed=1)
  sizes = np.int32([[10, 0, 25], [70, 5, 5]])
  numbers_ = general(((2,), (1,)), ((0,), (0,)), 2, [])
  got = jax.jit(lambda *a: lax.ragged_dot_general(*a, numbers_))(x, y, sizes)
  assert got.shape == (3, 2, 30, 40)
  for b in range(2):
    mine = np.float32(numbers(sizes[b], 70)[None] == np.arange(3)[:, None])
    close(got[:, b], np.einsum("gk,mk,kn->gmn", mine, x[b], y[b], optimize=True), "float32")


def test_groups_of_batches():
  x, y = normal(9, 12, 20), normal(9, 20, 8, seed=1)
  numbers_ = general(((2,), (1,)), ((0,), (0,)), 0, [])
  got = jax.jit(lambda *a: lax.ragged_dot_general(*a, numbers_))(x, y, np.int32([2, 0, 4]))
  want = np.einsum("bmk,bkn->bmn", x, y)
  want[6:] = 0
  close(got, want, "float32")
