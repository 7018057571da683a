"""What the Pallas TPU guide says kernels may do, one test per rule (docs/pallas.md has the table)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

F32 = jnp.float32
SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)


def call(body, *operands, shape=(8, 128), dtype=F32, **more):
  f = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(shape, dtype), **more)
  return np.asarray(jax.jit(f)(*operands))


def normal(*shape, seed=0):
  return jax.random.normal(jax.random.key(seed), shape, F32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int16", "int8", "uint32", "uint16", "uint8", "bool"])
def test_dtypes(dtype):
  def body(x, o):
    o[...] = x[...]
  x = (normal(64, 256) * 50).astype(dtype)
  np.testing.assert_array_equal(call(body, x, shape=x.shape, dtype=dtype), x)


def test_steps_go_in_order():
  def body(o, n):
    @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0))
    def _():
      n[0] = 0
    o[pl.program_id(0), pl.program_id(1)] = n[0]
    n[0] += 1
  out = call(body, shape=(3, 5), dtype=jnp.int32, grid=(3, 5), out_specs=SMEM, scratch_shapes=[pltpu.SMEM((1,), jnp.int32)])
  np.testing.assert_array_equal(out, np.arange(15).reshape(3, 5))


def test_scalars_and_single_elements():
  def body(s, x, o):
    one = x[0:1, 0]  # one element, on the vector core
    o[...] = jnp.full((8, 128), s[1] * 2.0) + jnp.broadcast_to(one.reshape(1, 1), (8, 128))
  x = normal(8, 128)
  out = call(body, jnp.array([1.0, 2.5], F32), x, in_specs=[SMEM, pl.BlockSpec()])
  np.testing.assert_allclose(out, np.full((8, 128), 5.0) + np.asarray(x)[0, 0], rtol=1e-6)


def test_smem_is_read_anywhere():
  def body(s, o):
    def turn(i, total):
      return total + s[(i * 7) % 13, i % 3]
    o[0] = jax.lax.fori_loop(0, 39, turn, 0)
  s = jnp.arange(39, dtype=jnp.int32).reshape(13, 3)
  out = call(body, s, shape=(1,), dtype=jnp.int32, in_specs=[SMEM], out_specs=SMEM)
  assert out[0] == sum(int(s[(i * 7) % 13, i % 3]) for i in range(39))


def rounded(x):
  return np.asarray(x.astype(jnp.bfloat16), np.float64)


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_products_round_unless_asked(precision):
  def body(x, y, o):
    o[...] = jnp.dot(x[...], y[...], preferred_element_type=F32)
  x, y = normal(128, 256), normal(256, 128, seed=1)
  with jax.default_matmul_precision(precision):
    out = call(body, x, y, shape=(128, 128))
  exact, coarse = np.asarray(x, np.float64) @ np.asarray(y, np.float64), rounded(x) @ rounded(y)
  want, other = (exact, coarse) if precision == "float32" else (coarse, exact)
  assert np.abs(out - want).max() < 2e-4 < np.abs(out - other).max()


@pytest.mark.parametrize("dims", [(((1,), (0,)), ((), ())), (((1,), (1,)), ((), ())), (((1,), (0,)), ((), ()))],
                         ids=["vector", "row", "column"])
def test_a_matrix_times_a_vector_is_not_rounded(dims, request):
  """The vector unit does it, but only where both lie along their last dimension."""
  name = request.node.callspec.id
  def body(x, y, o):
    v = y[...].reshape({"vector": (256,), "row": (1, 256), "column": (256, 1)}[name])
    o[...] = jax.lax.dot_general(x[...], v, dims, preferred_element_type=F32).reshape(o.shape)
  x, y = normal(128, 256), normal(1, 256, seed=1)
  out = call(body, x, y, shape=(128, 1))
  exact, coarse = np.asarray(x, np.float64) @ np.asarray(y, np.float64).T, rounded(x) @ rounded(y).T
  want, other = (coarse, exact) if name == "column" else (exact, coarse)
  assert np.abs(out - want).max() < 2e-4 < np.abs(out - other).max()


def test_transposes_fuse_into_products():
  def body(x, y, o):
    o[...] = jax.lax.dot_general(x[...], y[...], (((0,), (1,)), ((), ())), preferred_element_type=F32)
  x, y = normal(256, 128), normal(64, 256, seed=1)
  np.testing.assert_allclose(call(body, x, y, shape=(128, 64)), rounded(x).T @ rounded(y).T, atol=2e-4)


def test_transposes():
  def last(x, o):
    o[...] = x[...].T

  def leading(x, o):
    o[...] = jnp.transpose(x[...], (1, 0, 2, 3))
  x, y = normal(128, 256), normal(2, 3, 8, 128)
  np.testing.assert_array_equal(call(last, x, shape=(256, 128)), np.asarray(x).T)
  np.testing.assert_array_equal(call(leading, y, shape=(3, 2, 8, 128)), np.asarray(y).transpose(1, 0, 2, 3))


@pytest.mark.parametrize("start", [0, 3])
def test_any_slice_of_32_bits(start):
  def body(x, o):
    o[...] = x[start:start + 5, 7:107]
  x = normal(16, 128)
  np.testing.assert_array_equal(call(body, x, shape=(5, 100)), np.asarray(x)[start:start + 5, 7:107])


def test_aligned_slices_of_narrow_types():
  def body(i, x, o):
    o[...] = x[pl.ds(pl.multiple_of(i[0] * 16, 16), 16), 128:256]
  x = normal(64, 256).astype(jnp.bfloat16)
  out = call(body, jnp.array([2], jnp.int32), x, shape=(16, 128), dtype=jnp.bfloat16, in_specs=[SMEM, pl.BlockSpec()])
  np.testing.assert_array_equal(out, np.asarray(x)[32:48, 128:256])


ELEMENTWISE = {
    "add": lambda x: x + 2, "sub": lambda x: 3 - x, "mul": lambda x: x * x, "max": lambda x: jnp.maximum(x, 0.5),
    "min": lambda x: jnp.minimum(x, 0.5), "abs": jnp.abs, "where": lambda x: jnp.where(x > 0, x, -2 * x),
    "compare": lambda x: (x < 0.25).astype(F32), "cast": lambda x: x.astype(jnp.int32).astype(F32),
    "div": lambda x: x / 3, "floordiv": lambda x: x // 0.75, "mod": lambda x: x % 0.75, "exp": jnp.exp, "tanh": jnp.tanh,
    "pow": lambda x: jnp.abs(x) ** 1.5, "atan2": lambda x: jnp.arctan2(x, 1 - x), "sin": jnp.sin, "cos": jnp.cos, "relu": jax.nn.relu,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
  def body(x, o):
    o[...] = ELEMENTWISE[name](x[...])
  x = normal(16, 256)
  with jax.default_device(jax.devices("cpu")[0]):
    want = np.asarray(ELEMENTWISE[name](jnp.asarray(np.asarray(x))))
  np.testing.assert_allclose(call(body, x, shape=x.shape), want, rtol=1e-5, atol=1e-6)


def test_bitwise_and_shifts():
  def body(x, o):
    o[...] = ((x[...] & 0xff) | (x[...] << 3)) ^ (x[...] >> 2)
  x = jax.random.bits(jax.random.key(0), (16, 128)).astype(jnp.int32)
  n = np.asarray(x)
  np.testing.assert_array_equal(call(body, x, shape=x.shape, dtype=jnp.int32), ((n & 0xff) | (n << 3)) ^ (n >> 2))


def test_constructors():
  def body(o):
    o[...] = jnp.ones((8, 128)) + jnp.zeros((8, 128)) + jnp.full((8, 128), 0.5)
  assert (call(body) == 1.5).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_reductions(kind, axis):
  def body(x, o):
    o[...] = getattr(jnp, kind)(x[...], axis=axis, keepdims=True)
  x = normal(4, 16, 256)
  want = getattr(np, kind)(np.asarray(x), axis=axis, keepdims=True)
  np.testing.assert_allclose(call(body, x, shape=want.shape), want, rtol=1e-4, atol=1e-5)


def test_any_and_all():
  def body(x, o):
    o[0] = jnp.any(x[...] > 2.9).astype(jnp.int32)
    o[1] = jnp.all(x[...] > -9).astype(jnp.int32)
    o[2] = jnp.all(x[...] > 0).astype(jnp.int32)
  x = normal(64, 256)
  out = call(body, x, shape=(3,), dtype=jnp.int32, out_specs=SMEM)
  assert out.tolist() == [int((np.asarray(x) > 2.9).any()), 1, 0]


@pytest.mark.parametrize("shape", [(1, 16, 256), (4, 1, 256), (4, 16, 1)])
def test_broadcasts(shape):
  def body(x, o):
    o[...] = jnp.broadcast_to(x[...], (4, 16, 256))
  x = normal(*shape)
  np.testing.assert_array_equal(call(body, x, shape=(4, 16, 256)), np.broadcast_to(x, (4, 16, 256)))


def test_reshapes():
  def leading(x, o):
    o[...] = x[...].reshape(6, 8, 128)

  def onto_the_second_last(x, o):
    o[...] = x[...].reshape(48, 128)

  def of_a_reduction(x, o):
    o[...] = x[...].sum(-1).reshape(2, 3, 8, 1)
  x = normal(2, 3, 8, 128)
  n = np.asarray(x)
  np.testing.assert_array_equal(call(leading, x, shape=(6, 8, 128)), n.reshape(6, 8, 128))
  np.testing.assert_array_equal(call(onto_the_second_last, x, shape=(48, 128)), n.reshape(48, 128))
  np.testing.assert_allclose(call(of_a_reduction, x, shape=(2, 3, 8, 1)), n.sum(-1)[..., None], rtol=1e-4, atol=1e-4)


RANDOM = {"uniform": lambda k: jax.random.uniform(k, (8, 128), F32), "normal": lambda k: jax.random.normal(k, (8, 128), F32),
          "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (8, 128)).astype(F32)}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("inside", [True, False])
def test_random_numbers(name, inside):
  key = jax.random.key(7, impl="threefry2x32")
  if inside:
    def body(o):
      o[...] = RANDOM[name](jax.random.key(7, impl="threefry2x32"))
    out = call(body)
  else:
    def body(k, o):
      o[...] = RANDOM[name](k[...])
    out = call(body, key, in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)])
  np.testing.assert_allclose(out, RANDOM[name](key), rtol=1e-5, atol=1e-6)


def test_control_flow():
  def body(n, x, o):
    def turn(i, v):
      return jax.lax.cond(i % 2 == 0, lambda v: v * 2, lambda v: v + 1, v)
    v = jax.lax.fori_loop(0, 5, turn, x[...])
    v = jax.lax.fori_loop(0, 3, lambda i, v: v + i, v, unroll=True)
    _, v = jax.lax.while_loop(lambda c: c[0] < n[0], lambda c: (c[0] + 1, c[1] - 1), (0, v))
    o[...] = v
  x = normal(8, 128)
  v = np.asarray(x)
  for i in range(5):
    v = v * 2 if i % 2 == 0 else v + 1
  np.testing.assert_allclose(call(body, jnp.array([4], jnp.int32), x, in_specs=[SMEM, pl.BlockSpec()]), v + 3 - 4, rtol=1e-6, atol=1e-5)
