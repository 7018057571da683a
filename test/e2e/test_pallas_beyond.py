"""Kernels with disable_bounds_checks: what is there of a box is read and written, the rest goes nowhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

F32, I32 = jnp.float32, jnp.int32
SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
ANY = pl.BlockSpec(memory_space=pl.ANY)
WHOLE = pl.BlockSpec()
FAR = 2**31 - 1


def kernel(body, shape, dtype=F32, **more):
  return jax.jit(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(shape, dtype),
                                compiler_params=pltpu.CompilerParams(disable_bounds_checks=True), **more))


def at(*i):
  return jnp.array(i, I32)


def arange(*shape):
  return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_box_larger_than_its_ref():
  def body(x, o):
    o[...] = x[pl.ds(16), pl.ds(256)]
  out = kernel(body, (16, 256))(arange(8, 128))
  np.testing.assert_array_equal(out[:8, :128], arange(8, 128))


@pytest.mark.parametrize("unchecked", [True, False])
def test_rows_that_leave(unchecked):
  def body(i, x, o):
    o[...] = jnp.full((8, 128), -1.0)
    o[pl.ds(i[0], 8), :] = x[pl.ds(i[1], 8), :]
  if not unchecked:
    f = jax.jit(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 128), F32), in_specs=[SMEM, WHOLE]))
    with pytest.raises(jax.errors.JaxRuntimeError, match="access out of bounds: dimension 0, elements 3 to 11 of 8"):
      jax.block_until_ready(f(at(0, 3), arange(8, 128)))
    return
  f, x = kernel(body, (8, 128), in_specs=[SMEM, WHOLE]), arange(8, 128)
  for to in (-9, -3, 0, 5, 8, FAR):
    for start in (-3, 0, 6, FAR, -FAR):
      out = np.asarray(f(at(to, start), x))
      for r in range(8):
        if not to <= r < to + 8:
          assert (out[r] == -1).all(), (to, start, r)
        elif 0 <= start + r - to < 8:
          np.testing.assert_array_equal(out[r], x[start + r - to])


def test_scalars():
  def body(i, s, o):
    o[0] = s[i[0]]
    o[1] = 7
    o[i[1]] = 5
  f = kernel(body, (4,), I32, in_specs=[SMEM, SMEM], out_specs=SMEM)
  for load in (-1, 2, FAR):
    for store in (-FAR, 3, 4):
      out = np.asarray(f(at(load, store), jnp.arange(4)))
      assert out[1] == 7 and (load != 2 or out[0] == 2) and (store != 3 or out[3] == 5)


def test_scalars_that_a_choice_drops():
  """Bounds checks of the chip are about copies: numbers are read past the end of SMEM, and before it."""
  def body(n, starts, ends, o):
    i = pl.program_id(0)
    o[...] = jnp.full(o.shape, jax.lax.select((i > 1) & (i < n[0]), ends[i] - starts[i - 2], -1))
  f = jax.jit(pl.pallas_call(body, grid=(8,), in_specs=[SMEM] * 3, out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
                             out_shape=jax.ShapeDtypeStruct((64, 128), I32)))
  np.testing.assert_array_equal(f(at(5), jnp.arange(6), jnp.arange(5) * 3)[::8, 0], [-1, -1, 6, 8, 10, -1, -1, -1])


@pytest.mark.parametrize("either", [False, True])
def test_scalars_that_a_bound_drops(either):
  """As torch_xla's paged attention asks whether the next sequence is there and empty."""
  def body(n, ends, o):
    i = pl.program_id(0) + 1
    truth = (i >= n[0]) | (ends[i] == 0) if either else (i < n[0]) & (ends[i] == 0)
    o[...] = jnp.full(o.shape, jax.lax.cond(truth, lambda: i, lambda: -i))
  f = jax.jit(pl.pallas_call(body, grid=(6,), in_specs=[SMEM] * 2, out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
                             out_shape=jax.ShapeDtypeStruct((48, 128), I32)))
  outside = [4, 5, 6] if either else [-4, -5, -6]
  np.testing.assert_array_equal(f(at(4), at(7, 0, 3, 0))[::8, 0], [1, -2, 3, *outside])


def test_copies_of_nothing_and_long_waits():
  """A copy without elements is nowhere, and a wait only counts the bytes of its slice."""
  def body(n, x, o, s, sem):
    s[...] = jnp.zeros_like(s)
    for i in range(3):  # rows 8 to 16 of x, thrice, and nothing from before its first
      size = pl.multiple_of(n[i], 8)
      for begin, part in ((8, 8), (pl.multiple_of(n[i] - 8, 8), size)):
        pltpu.make_async_copy(x.at[pl.ds(begin, part)], s.at[pl.ds(0, part)], sem).start()
    rows = pl.multiple_of(n[0] + 24, 8)
    pltpu.make_async_copy(s.at[pl.ds(0, rows)], s.at[pl.ds(0, rows)], sem).wait()
    o[...] = s[...]
  f = pl.pallas_call(body, in_specs=[SMEM, ANY], out_shape=jax.ShapeDtypeStruct((16, 128), F32),
                     scratch_shapes=[pltpu.VMEM((16, 128), F32), pltpu.SemaphoreType.DMA])
  x = arange(16, 128)
  out = jax.jit(f)(at(0, 0, 0), x)
  np.testing.assert_array_equal(out[:8], x[8:])


def test_copy_of_the_last_rows():
  def body(i, x, o, s, sem):
    s[...] = jnp.full_like(s, -1)
    pltpu.async_copy(x.at[pl.ds(i[0], 8)], s, sem).wait()
    o[...] = s[...]
  f = kernel(body, (8, 128), in_specs=[SMEM, ANY], scratch_shapes=[pltpu.VMEM((8, 128), F32), pltpu.SemaphoreType.DMA])
  x = arange(20, 128)
  for start in (0, 12, 16, 24, FAR):
    out, n = np.asarray(f(at(start), x)), max(20 - start, 0)
    np.testing.assert_array_equal(out[:n], x[start:start + 8])
    assert (out[n:] == 0).all()  # no rest of what the scratch held


def test_views_that_leave():
  def body(i, x, o):
    o[...] = x.at[i[0]].at[pl.ds(i[1], 8)][...]
  f, x = kernel(body, (8, 128), in_specs=[SMEM, WHOLE]), arange(2, 16, 128)
  for k in (0, 1, 2, -1, FAR):
    for start in (0, 12, 16, FAR):
      out, n = np.asarray(f(at(k, start), x)), max(16 - start, 0)
      if k in (0, 1):
        np.testing.assert_array_equal(out[:n], x[k, start:start + 8])


def test_a_reshaped_view_must_be_whole():
  def body(i, x, o, s, sem):
    pltpu.async_copy(x.at[pl.ds(i[0], 2)].reshape(16, 128), s, sem).wait()
    o[...] = s[...]
  f = kernel(body, (16, 128), in_specs=[SMEM, ANY], scratch_shapes=[pltpu.VMEM((16, 128), F32), pltpu.SemaphoreType.DMA])
  x = arange(4, 8, 128)
  np.testing.assert_array_equal(f(at(2), x), x[2:].reshape(16, 128))
  with pytest.raises(jax.errors.JaxRuntimeError, match="out of bounds: dimension 0, elements 0 to 2 of 1"):
    jax.block_until_ready(f(at(3), x))


def test_strides_and_masks():
  def body(i, x, o):
    o[...] = x[pl.ds(i[0], 4, stride=3), :]
    mask = jax.lax.broadcasted_iota(I32, (2, 128), 1) < 5
    pltpu.store(o.at[pl.ds(i[1], 2), :], jnp.full((2, 128), -1.0), mask=mask)
  f, x = kernel(body, (4, 128), in_specs=[SMEM, WHOLE]), arange(16, 128)
  for start in (0, 8, 15, FAR, -4):
    for store in (0, 3, 4):
      out = np.asarray(f(at(start, store), x))
      for r in range(4):
        if 0 <= start + 3 * r < 16:
          want = x[start + 3 * r].copy()
          want[:5] = -1 if store <= r < store + 2 else want[:5]
          np.testing.assert_array_equal(out[r], want)


def test_sums_of_products():
  def body(i, x, w, o, acc):
    acc[pl.ds(i[0], 8), :] = jnp.zeros((8, 128), F32)
    acc[pl.ds(i[0], 8), :] += jnp.dot(x[pl.ds(i[0], 8), :], w[...], preferred_element_type=F32)
    o[...] = acc[...]
  f = kernel(body, (16, 128), in_specs=[SMEM, WHOLE, WHOLE], scratch_shapes=[pltpu.VMEM((16, 128), F32)])
  x, w = arange(16, 128) % 7, arange(128, 128) % 5
  for start in (0, 8, 12):
    np.testing.assert_array_equal(f(at(start), x, w)[start:start + 8], (x @ w)[start:start + 8])


def test_rows_in_one_loop():
  def body(i, x, o):
    e = jnp.exp(x[pl.ds(i[0], 64), :] - x[pl.ds(i[0], 64), :].max(1, keepdims=True))
    o[pl.ds(i[0], 64), :] = e / e.sum(1, keepdims=True)
  f, x = kernel(body, (128, 128), in_specs=[SMEM, WHOLE]), arange(128, 128) % 11
  want = np.asarray(jax.nn.softmax(x, 1))
  for start in (0, 100, -10, 128):
    low, high = max(start, 0), min(start + 64, 128)
    np.testing.assert_allclose(f(at(start), x)[low:high], want[low:high], rtol=1e-5)
