"""Pallas kernels as machine code, compared with interpret mode."""
import functools

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BF16 = jnp.bfloat16
RNG = np.random.RandomState(0)


def f32(*shape):
  return RNG.randn(*shape).astype(np.float32)


def i32(low, high, *shape):
  return RNG.randint(low, high, shape).astype(np.int32)


def bf16(*shape):
  return jnp.asarray(f32(*shape), BF16)


def agree(f, args, tol):
  got = np.asarray(jax.jit(functools.partial(f, interpret=False))(*args))
  cpu = jax.devices("cpu")[0]
  with jax.default_device(cpu):
    there = [jax.device_put(np.asarray(a), cpu) for a in args]
    want = np.asarray(jax.jit(functools.partial(f, interpret=True))(*there))
  if tol == 0:
    np.testing.assert_array_equal(got, want)
  else:
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32),
                               rtol=tol, atol=tol)


CASES = {}


def case(shape, dtype, *args, tol=0, **kw):
  def register(kernel):
    CASES[kernel.__name__] = (kernel, shape, dtype, args, tol, kw)
    return kernel
  return register


@case((7, 130), jnp.float32, f32(7, 130), f32(7, 130))
def add_odd(x, y, o):
  o[...] = x[...] + y[...]


@case((13, 206), jnp.float32, f32(13, 206), tol=1e-6)
def softmax_rows(x, o):
  v = jnp.exp(x[...] - x[...].max(-1, keepdims=True))
  o[...] = v / v.sum(-1, keepdims=True)


@case((64, 200), jnp.float32, f32(64, 200), tol=1e-6)
def softmax_columns(x, o):
  v = jnp.exp(x[...] - x[...].max(0, keepdims=True))
  o[...] = v / v.sum(0, keepdims=True)


@case((128, 256), jnp.float32, f32(256, 128))
def transpose(x, o):
  o[...] = x[...].T


@case((5, 128, 128), jnp.float32, f32(3, 128, 256))
def many_transposes(x, o):
  """Planes of two kinds, some of them several times."""
  for i in range(3):
    o[i] = x[i, :, 128:].T
  v = jnp.swapaxes(x[:2, :, :128], 1, 2)
  o[3:] = v + jnp.concatenate([x[2, :, :128].T] * 2, 1).reshape(128, 2, 128).swapaxes(0, 1)


@case((16,), jnp.int32, f32(16, 200))
def argmax(x, o):
  o[...] = jnp.argmax(x[...], axis=1)


@case((8, 256), jnp.float32, f32(8, 128), f32(8, 128))
def concatenate(x, y, o):
  o[...] = jnp.concatenate([x[...], y[...]], axis=1)


@case((8, 256), jnp.float32, f32(8, 256))
def roll(x, o):
  o[...] = pltpu.roll(x[...], 5, 1)


@case((8, 128), jnp.int32, i32(-100, 100, 8, 128), i32(-100, 100, 8, 128))
def integers(x, y, o):
  o[...] = jnp.where(x[...] > y[...], x[...] % 7, (y[...] // 3) ^ x[...])


@case((8, 128), jnp.float32, f32(8, 128))
def overlapping_store(x, o):
  o[...] = x[...]
  o[pl.ds(1, 7), :] = o[pl.ds(0, 7), :] + 1.0


@case((8, 8), jnp.float32, f32(8, 128), tol=1e-6)
def reshape_sum(x, o):
  o[...] = x[...].reshape(8, 16, 8).sum(1)


@case((16, 128), jnp.float32, f32(16, 128))
def strided(x, o):
  o[...] = x[...]
  o[::2, :] = x[1::2, :]


@case((8, 128), jnp.float32, f32(8, 128), i32(0, 128, 8, 128))
def gather(x, i, o):
  o[...] = jnp.take_along_axis(x[...], i[...], axis=1)


@case((8, 128), jnp.int32, bf16(16, 128))
def bitcast(x, o):
  o[...] = pltpu.bitcast(x[...], jnp.int32)


@case((8, 128), jnp.float32, f32(8, 128))
def while_vector(x, o):
  o[...] = jax.lax.while_loop(
      lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5), (0, x[...]))[1]


@case((8, 128), jnp.float32, f32(8, 128))
def cond_vector(x, o):
  o[...] = jax.lax.cond(x[0, 0] > 0, lambda: x[...] * 2, lambda: x[...] - 1)


@case((1, 128), jnp.float32, f32(8, 128))
def swapped_carries(x, o):
  def body(i, c):
    return c[1], c[0] + x[pl.ds(i, 1), :]
  a, c = jax.lax.fori_loop(0, 7, body, (x[7:, :], x[6:7, :]))
  o[...] = a - c


@case((32, 64), jnp.float32, bf16(32, 128), bf16(64, 128), tol=2e-2)
def dot_transposed(x, y, o):
  o[...] = jax.lax.dot_general(x[...], y[...], (((1,), (1,)), ((), ())),
                               preferred_element_type=jnp.float32)


@case((4, 16, 64), jnp.float32, f32(4, 16, 32), f32(4, 32, 64), tol=1e-4)
def dot_batch(x, y, o):
  o[...] = jax.lax.dot_general(x[...], y[...], (((2,), (1,)), ((0,), (0,))),
                               preferred_element_type=jnp.float32,
                               precision="highest")


@case((8, 128), jnp.float32, f32(8, 128), tol=1e-6)
def math(x, o):
  v = jnp.abs(x[...])
  o[...] = jnp.tanh(x[...]) + jax.lax.rsqrt(v + 1) + jnp.log1p(v) + jnp.sin(v)


@case((32, 128), jnp.int8, i32(-100, 100, 32, 128))
def narrow(x, o):
  o[...] = x[...].astype(jnp.int8)


@case((16, 128), BF16, bf16(16, 128), tol=1e-2)
def bf16_arithmetic(x, o):
  o[...] = x[...] * jnp.asarray(3, BF16) + x[...]


@case((8, 128), jnp.float32, f32(8, 128),
      in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
      out_specs=pl.BlockSpec(memory_space=pl.ANY),
      scratch_shapes=[pltpu.SemaphoreType.DMA])
def dma(x, o, sem):
  copy = pltpu.make_async_copy(x, o, sem)
  copy.start()
  copy.wait()


@case((20, 128), jnp.float32, f32(20, 128), grid=(3,),
      in_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0))],
      out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)))
def edge_blocks(x, o):
  o[...] = x[...] + 1


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_interpret_mode(name):
  kernel, shape, dtype, args, tol, kw = CASES[name]

  def call(*a, interpret):
    out = jax.ShapeDtypeStruct(shape, dtype)
    return pl.pallas_call(kernel, out_shape=out, interpret=interpret, **kw)(*a)
  agree(call, args, tol)


def test_scalar_prefetch_moves_windows():
  def kernel(s, x, o):
    o[...] = x[...] * s[0]

  def call(s, x, interpret):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(4,),
        in_specs=[pl.BlockSpec((8, 128), lambda i, s: (s[i + 1], 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i, s: (i, 0)))
    out = jax.ShapeDtypeStruct((32, 128), jnp.int32)
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=out,
                          interpret=interpret)(s, x)
  agree(call, (np.array([3, 2, 0, 3, 1], np.int32), i32(0, 9, 32, 128)), 0)


def test_matmul_accumulates_in_scratch():
  def kernel(x, y, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
      acc[...] = jnp.zeros_like(acc)
    acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == 2)
    def _():
      o[...] = acc[...].astype(o.dtype)

  def call(x, y, interpret):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=0, grid=(2, 2, 3),
        in_specs=[pl.BlockSpec((128, 128), lambda i, j, k: (i, k)),
                  pl.BlockSpec((128, 128), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((128, 128), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32)])
    out = jax.ShapeDtypeStruct((256, 256), BF16)
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=out,
                          interpret=interpret)(x, y)
  agree(call, (bf16(256, 384), bf16(384, 256)), 2e-2)


def test_long_expressions_are_one_loop():
  """Random bits: twenty rounds whose values are used twice each, and what is made of them."""
  def kernel(x, o, p):
    key = jax.random.key(5)
    u = jax.random.uniform(key, x.shape)
    o[...] = jnp.where(u < 0.25, 0., x[...] / 0.75)
    y = x[...]
    for i in range(700):
      y = y + (y if i % 3 == 0 else -1.5 * y if i % 3 == 1 else x[...])
    p[...] = y

  def call(x, interpret):
    spec = pl.BlockSpec((16, 256), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct((48, 256), jnp.float32)
    return jnp.stack(pl.pallas_call(kernel, grid=(3,), in_specs=[spec], out_specs=[spec] * 2, out_shape=[out] * 2,
                                    interpret=interpret)(x))
  agree(call, (f32(48, 256),), 1e-5)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.int32, jnp.uint32])
def test_floats_to_integers_saturate(dtype):
  edges = [0, -0.0, .5, -.5, 1.5, 126.9, 127.5, 128, -128.9, -129, 255.5, 256, 32767.5, -32769, 65536, 2.**31 - 128, 2.**31,
           -2.**31, -2.**31 - 256, 2.**32 - 256, 2.**32, 1e30, -1e30, np.inf, -np.inf, np.nan]
  x = np.resize(np.float32(edges), (32, 128))

  def kernel(x, o):
    o[...] = x[...].astype(o.dtype)

  def call(x, interpret):
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, dtype), interpret=interpret)(x)
  agree(call, (x,), 0)


def test_masks_choose_between_masks():
  """A bitonic network sorts columns and says where each element was: which way a pair goes is a choice between masks."""
  x = np.random.default_rng(0).permutation(32 * 128).reshape(32, 128).astype(np.float32)
  n = len(x)

  def kernel(x, values, places):
    v = x[...]
    row = at = jax.lax.broadcasted_iota(jnp.int32, v.shape, 0)
    pairs = [(2 << a, 1 << b) for a in range(5) for b in range(a, -1, -1)]
    for size, step in pairs:
      low = (row & step) == 0
      other, there = (jnp.where(low, pltpu.roll(k, n - step, 0), pltpu.roll(k, step, 0)) for k in (v, at))
      trade = jnp.where(low == ((row & size) == 0), other < v, other > v)
      v, at = jnp.where(trade, other, v), jnp.where(trade, there, at)
    values[...], places[...] = v, at

  out = jax.ShapeDtypeStruct(x.shape, jnp.float32), jax.ShapeDtypeStruct(x.shape, jnp.int32)
  values, places = pl.pallas_call(kernel, out_shape=out)(x)
  np.testing.assert_array_equal(values, np.sort(x, 0))
  np.testing.assert_array_equal(places, np.argsort(x, 0))
