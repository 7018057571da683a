"""Large values inside one step of a kernel: threads share the loops that compute them, and nobody can tell.

Values are small integers where a test asks for equality, so that every order of sums gives the same bits.
"""

import os

os.environ["ATOLL_THREADS"] = "3"
os.environ["ATOLL_LENIENT"] = "1"  # the chip has no turns of narrow types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def integers(shape, dtype="float32", seed=0, low=-4, high=5):
  return np.random.RandomState(seed).randint(low, high, shape).astype(jnp.dtype(dtype))


def whole(f, *args, out=None):
  """f of whole arrays, as a kernel of one step."""
  shape = out or jax.ShapeDtypeStruct(args[0].shape, args[0].dtype)

  def body(*refs):
    refs[-1][...] = f(*[r[...] for r in refs[:-1]])
  return np.asarray(pl.pallas_call(body, out_shape=shape)(*args))


def on_cpu(f, *args):
  with jax.default_device(jax.devices("cpu")[0]):
    return np.asarray(jax.jit(f)(*[np.asarray(a) for a in args]))


# ---- elements
@pytest.mark.parametrize("shape", [(1024, 1024), (1001, 640), (7, 96, 512), (2, 3, 40, 1024), (513, 129), (40, 8, 2048)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int8"])
def test_elements(shape, dtype):
  x, y = integers(shape, dtype), integers(shape, dtype, 1)
  f = lambda x, y: x * y + jnp.where(x > y, x, y)
  np.testing.assert_array_equal(whole(f, x, y), on_cpu(f, x, y))


def test_several_results_from_one_value():
  x = integers((768, 512))

  def body(x, a, b, c):
    v = jnp.exp2(x[...])
    a[...] = v + 1
    b[...] = v * 2
    c[...] = v[:, :128].sum(1, keepdims=True)
  shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in [x.shape, x.shape, (768, 1)]]
  a, b, c = pl.pallas_call(body, out_shape=shapes)(x)
  v = np.exp2(x)
  np.testing.assert_array_equal(a, v + 1)
  np.testing.assert_array_equal(b, v * 2)
  np.testing.assert_array_equal(c, v[:, :128].sum(1, keepdims=True))


def test_place_that_is_read():
  """x += x turned: nobody sees what another thread has already written."""
  x = integers((640, 1024))

  def body(x, o):
    o[...] = x[...]
    o[...] = o[...] + pltpu.roll(o[...], 1, 0)
  np.testing.assert_array_equal(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x), x + np.roll(x, 1, 0))


# ---- rows
def normalised(x):
  d = x - x.mean(-1, keepdims=True)
  return d * lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5)


def softmax(x):
  v = jnp.exp(x - x.max(-1, keepdims=True))
  return v / v.sum(-1, keepdims=True)


@pytest.mark.parametrize("shape", [(512, 1024), (96, 2048), (1000, 384), (3, 256, 512)])
@pytest.mark.parametrize("f", [softmax, normalised])
def test_rows(f, shape):
  x = integers(shape)
  np.testing.assert_allclose(whole(f, x), on_cpu(f, x), rtol=2e-6, atol=2e-6)


def test_rows_needed_behind_their_loop():
  x = integers((512, 512))

  def body(x, o, t, s):
    v = x[...] - x[...].max(-1, keepdims=True)
    w = v * 2 - v.sum(-1, keepdims=True)
    o[...] = w + v
    t[...] = w.T
    s[...] = v.max(0, keepdims=True)
  shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in [x.shape, x.shape, (1, 512)]]
  o, t, s = pl.pallas_call(body, out_shape=shapes)(x)
  v = x - x.max(-1, keepdims=True)
  w = v * 2 - v.sum(-1, keepdims=True)
  np.testing.assert_array_equal(o, w + v)
  np.testing.assert_array_equal(t, w.T)
  np.testing.assert_array_equal(s, v.max(0, keepdims=True))


def looped(x, at, o):
  def turn(i, _):
    k = at[i]
    v = x[k] - x[k].max(-1, keepdims=True)
    o[i] = v * v.sum(-1, keepdims=True)
    return 0
  lax.fori_loop(0, o.shape[0], turn, 0)


def run_looped(x, at):
  return pl.pallas_call(
      looped, out_shape=jax.ShapeDtypeStruct((len(at), *x.shape[1:]), x.dtype),
      in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM), pl.BlockSpec(memory_space=pltpu.SMEM)])(x, np.asarray(at, np.int32))


def test_rows_of_a_place_that_is_told():
  x = integers((3, 512, 256))
  v = x - x.max(-1, keepdims=True)
  want = v * v.sum(-1, keepdims=True)
  np.testing.assert_array_equal(run_looped(x, [2, 0, 1, 2]), want[[2, 0, 1, 2]])


def test_a_place_outside_is_an_error():
  x = integers((3, 512, 256))
  with pytest.raises(jax.errors.JaxRuntimeError, match="out of bounds"):
    np.asarray(run_looped(x, [0, 3]))
  test_rows_of_a_place_that_is_told()


# ---- reductions
@pytest.mark.parametrize("shape,axis", [
    ((2048, 512), 0), ((100, 300), 0), ((17, 1000), 0), ((5, 64, 768), 1), ((64, 5, 256), 0), ((33, 40, 320), (0, 1)), ((64, 4096), 1), ((12, 64, 256), (0, 2))])
@pytest.mark.parametrize("how", ["sum", "max", "min"])
def test_reductions(how, shape, axis):
  x = integers(shape)
  f = lambda x: getattr(jnp, how)(x, axis, keepdims=True)
  want = on_cpu(f, x)
  np.testing.assert_array_equal(whole(f, x, out=jax.ShapeDtypeStruct(want.shape, want.dtype)), want)


@pytest.mark.parametrize("axis", [0, 1])
def test_extrema_see_nan(axis):
  x = integers((512, 512))
  x[100, 300] = np.nan
  want = x.max(axis, keepdims=True)
  assert np.isnan(want).sum() == 1
  got = whole(lambda x: jnp.max(x, axis, keepdims=True), x, out=jax.ShapeDtypeStruct(want.shape, want.dtype))
  np.testing.assert_array_equal(got, want)


def test_sums_of_expressions_and_masks():
  x = integers((1024, 512))
  f = lambda x: jnp.stack([(x * 2 + 1).sum(0), (x > 1).astype(jnp.int32).sum(0).astype(jnp.float32)])
  want = on_cpu(f, x)
  np.testing.assert_array_equal(whole(f, x, out=jax.ShapeDtypeStruct(want.shape, want.dtype)), want)


# ---- where an extremum is
@pytest.mark.parametrize("shape,axis", [((512, 1024), 1), ((512, 1024), 0), ((300, 200), 1), ((9, 17), 1), ((40, 3), 1), ((4, 64, 130), 2)])
@pytest.mark.parametrize("how", ["argmax", "argmin"])
def test_places(how, shape, axis):
  x = integers(shape)  # most extrema are there several times
  if shape[axis] > 100:
    x.reshape(-1)[[7, 13, 2000]] = np.nan  # two in a row
    x.reshape(-1)[-3:] = -0.0
  f = lambda x: jnp.expand_dims(getattr(jnp, how)(x, axis).astype(jnp.int32), axis)
  want = on_cpu(f, x)
  np.testing.assert_array_equal(whole(f, x, out=jax.ShapeDtypeStruct(want.shape, want.dtype)), want)


# ---- turned squares
@pytest.mark.parametrize("shape,order", [
    ((1024, 512), (1, 0)), ((48, 128), (1, 0)), ((8, 128), (1, 0)), ((20, 128), (1, 0)), ((40, 56), (1, 0)),
    ((5, 64, 48), (0, 2, 1)), ((16, 5, 32), (2, 1, 0)), ((16, 8, 32), (2, 0, 1)), ((32, 8, 16), (1, 2, 0)), ((4, 24, 16), (1, 0, 2)),
    ((2, 16, 3, 40), (0, 3, 2, 1))])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int32"])
def test_transposes(shape, order, dtype):
  x = integers(shape, dtype, low=-100, high=100)
  want = np.transpose(x, order)
  np.testing.assert_array_equal(whole(lambda x: jnp.transpose(x, order), x, out=jax.ShapeDtypeStruct(want.shape, want.dtype)), want)


def test_transposes_inside_expressions():
  x, y = integers((512, 256)), integers((256, 512), seed=1)
  f = lambda x, y: (x * 2).T + y - jnp.where(y > 0, x.T, 1)
  np.testing.assert_array_equal(whole(f, x, y, out=jax.ShapeDtypeStruct(y.shape, y.dtype)), on_cpu(f, x, y))
  f = lambda x, y: x.T.sum(0, keepdims=True) + (y.T + x).T.T.max(1)[None]
  np.testing.assert_array_equal(whole(f, x, y, out=jax.ShapeDtypeStruct((1, 512), x.dtype)), on_cpu(f, x, y))


def test_transpose_into_a_part():
  x = integers((64, 128))

  def body(x, o):
    o[...] = jnp.zeros_like(o)
    o[8:136, 128:192] = x[...].T
    o[0:64, 0:128] = o[8:136, 128:192].T
  want = np.zeros((256, 256), np.float32)
  want[8:136, 128:192] = x.T
  want[:64, :128] = x
  np.testing.assert_array_equal(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(want.shape, want.dtype))(x), want)


# ---- turned rows
@pytest.mark.parametrize("shape", [(256, 1024), (8, 128), (16, 256), (3, 24, 384)])
@pytest.mark.parametrize("shift", [0, 1, 15, 16, 17, 64, 127])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16", "int8"])
def test_rolls(shape, shift, dtype):
  x = integers(shape, dtype, low=-100, high=100)
  for axis in (len(shape) - 1, len(shape) - 2):
    if shift >= shape[axis]:
      continue
    np.testing.assert_array_equal(whole(lambda x: pltpu.roll(x, shift, axis), x), np.roll(x, shift, axis))


@pytest.mark.parametrize("shift", [0, 1, 5, 127, 128, 300, 511])
def test_rolls_by_a_number_that_is_told(shift):
  x = integers((64, 512))

  def body(s, x, o):
    o[...] = pltpu.roll(x[...] * 2, s[0], 1) + x[...]
  run = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
                       in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pltpu.VMEM)])
  np.testing.assert_array_equal(run(np.asarray([shift], np.int32), x), np.roll(x * 2, shift, 1) + x)


@pytest.mark.parametrize("shift,stride", [(0, 1), (3, 1), (5, 2), (100, 7)])
def test_rolls_that_grow_by_row(shift, stride):
  x = integers((16, 256))
  want = np.stack([np.roll(r, shift + stride * i) for i, r in enumerate(x)])
  np.testing.assert_array_equal(whole(lambda x: pltpu.roll(x, shift, 1, stride=stride, stride_axis=0), x), want)


# ---- copies beside them
def test_pipeline():
  x = integers((2048, 512))

  def body(x, o):
    def step(x, o):
      v = x[...] - x[...].max(-1, keepdims=True)
      o[...] = v * v.sum(-1, keepdims=True)
    spec = pl.BlockSpec((512, 512), lambda i: (i, 0))
    pltpu.emit_pipeline(step, grid=(4,), in_specs=[spec], out_specs=[spec])(x, o)
  run = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
                       in_specs=[pl.BlockSpec(memory_space=pl.ANY)], out_specs=pl.BlockSpec(memory_space=pl.ANY))
  v = x - x.max(-1, keepdims=True)
  np.testing.assert_array_equal(run(x), v * v.sum(-1, keepdims=True))


@pytest.mark.parametrize("rows", [512, 2048])
def test_copies_that_wait_for_a_loop(rows):
  """Scratch that only copies write and only loads read is filled when somebody reads it: before threads do."""
  x = integers((2, rows, 256))

  def body(x, o, buffer, sem):
    for i in range(2):
      pltpu.make_async_copy(x.at[i], buffer.at[i], sem).start()
    for i in range(2):
      pltpu.make_async_copy(x.at[i], buffer.at[i], sem).wait()
      v = buffer[i] - buffer[i].max(-1, keepdims=True)
      o[i] = v * v.sum(-1, keepdims=True)
  run = pl.pallas_call(
      body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
      out_specs=pl.BlockSpec(memory_space=pltpu.VMEM), scratch_shapes=[pltpu.VMEM(x.shape, jnp.float32), pltpu.SemaphoreType.DMA])
  v = x - x.max(-1, keepdims=True)
  np.testing.assert_array_equal(run(x), v * v.sum(-1, keepdims=True))


def unrolled(turns, **params):
  """Turns of a softmax times a product, unrolled, that keep running sums."""
  x, w = integers((turns, 512, 256)), integers((turns, 256, 128), seed=1)

  def body(x, w, o, top):
    top[...] = jnp.full_like(top, -jnp.inf)
    o[...] = jnp.zeros_like(o)
    for i in range(turns):
      v = x[i]
      top[...] = jnp.maximum(top[...], v.max(-1, keepdims=True))
      o[...] = o[...] + lax.dot(v * 2 - top[...], w[i], preferred_element_type=jnp.float32)
  run = jax.jit(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((512, 128), jnp.float32),
                               scratch_shapes=[pltpu.VMEM((512, 1), jnp.float32)],
                               compiler_params=pltpu.CompilerParams(**params)))
  want = np.zeros((512, 128), np.float32)
  for i in range(turns):
    want += (x[i] * 2 - x[:i + 1].max((0, 2))[:, None]) @ w[i]
  return run.lower(x, w).compile(), (x, w), want


@pytest.mark.parametrize("unchecked", [False, True])
def test_unrolled_turns_are_compiled_once(unchecked):
  """Loops that differ in where they read are one function, also where nothing checks that: what stays inside is shared."""
  code = []
  for turns in (2, 10):
    run, args, want = unrolled(turns, disable_bounds_checks=unchecked)
    np.testing.assert_array_equal(run(*args), want)
    code.append(run.memory_analysis().generated_code_size_in_bytes)
  assert code[1] < 3 * code[0], code
