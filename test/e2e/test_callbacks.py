"""Host callbacks: pure, io, ordered, debug, several results, errors, nesting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback


def shape(s, dtype=jnp.float32):
  return jax.ShapeDtypeStruct(s, dtype)


def test_pure_callback():
  f = jax.jit(lambda x: jax.pure_callback(np.sin, shape((4,)), x) + 1)
  x = np.arange(4, dtype=np.float32)
  assert np.allclose(np.asarray(f(x)), np.sin(x) + 1)


def test_several_operands_and_results():
  def host(a, b):
    return a + b, (a * 2).astype(np.int32)
  f = jax.jit(lambda a, b: jax.pure_callback(
      host, (shape((2, 3)), shape((2, 3), jnp.int32)), a, b))
  a = np.arange(6, dtype=np.float32).reshape(2, 3)
  s, t = f(a, a + 1)
  assert (np.asarray(s) == 2 * a + 1).all()
  assert (np.asarray(t) == 2 * a).all()


def test_empty_operand():
  f = jax.jit(lambda x: jax.pure_callback(
      lambda v: np.float32(v.size), shape(()), x))
  assert float(f(np.zeros((0, 3), np.float32))) == 0


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint32, np.float16,
                                   jnp.bfloat16, np.complex64])
def test_types(dtype):
  f = jax.jit(lambda x: jax.pure_callback(lambda v: v, shape((3,), dtype), x))
  x = np.array([0, 1, 1]).astype(dtype)
  assert (np.asarray(f(x)) == x).all()


def test_ordered_io():
  seen = []
  def f(x):
    for i in range(5):
      io_callback(lambda v, i=i: seen.append((i, float(v))), None, x + i,
                  ordered=True)
    return x
  jax.jit(f)(1.0)
  jax.effects_barrier()
  assert seen == [(i, 1.0 + i) for i in range(5)]


def test_ordered_across_calls():
  seen = []
  f = jax.jit(lambda x: io_callback(lambda v: seen.append(int(v)), None, x,
                                    ordered=True))
  for i in range(20):
    f(i)
  jax.effects_barrier()
  assert seen == list(range(20))


def test_unordered_io_runs_once_a_call():
  seen = []
  f = jax.jit(lambda x: io_callback(lambda v: seen.append(int(v)), None, x))
  for i in range(10):
    f(i)
  jax.effects_barrier()
  assert sorted(seen) == list(range(10))


def test_debug_print(capfd):
  jax.jit(lambda x: jax.debug.print("x is {}", x + 1))(41)
  jax.effects_barrier()
  assert "x is 42" in capfd.readouterr().out


def test_in_a_loop():
  seen = []
  def body(i, x):
    io_callback(lambda v: seen.append(int(v)), None, i, ordered=True)
    return x + 1
  y = jax.jit(lambda x: jax.lax.fori_loop(0, 7, body, x))(0)
  jax.effects_barrier()
  assert int(y) == 7 and seen == list(range(7))


def test_error_reaches_the_caller():
  def fail(x):
    raise RuntimeError("told you so")
  f = jax.jit(lambda x: jax.pure_callback(fail, shape(()), x))
  with pytest.raises(Exception, match="told you so"):
    f(1.0).block_until_ready()
  # And the device still works.
  assert float(jax.jit(lambda x: x * 2)(4.0)) == 8.0


def test_wrong_shape_is_an_error():
  f = jax.jit(lambda x: jax.pure_callback(
      lambda v: np.zeros((5,), np.float32), shape((2,)), x))
  with pytest.raises(Exception):
    f(1.0).block_until_ready()


def test_callback_that_computes_on_the_device():
  g = jax.jit(lambda x: x * 3)
  f = jax.jit(lambda x: jax.pure_callback(
      lambda v: np.asarray(g(v)), shape((4,)), x) + 1)
  x = np.arange(4, dtype=np.float32)
  assert (np.asarray(f(x)) == 3 * x + 1).all()


def test_grad_through():
  @jax.custom_vjp
  def f(x):
    return jax.pure_callback(np.sin, shape(()), x)
  f.defvjp(lambda x: (f(x), x), lambda x, g: (g * jnp.cos(x),))
  assert np.allclose(float(jax.jit(jax.grad(f))(jnp.float32(1.0))), np.cos(1.0),
                     atol=1e-6)


def test_large_operand():
  f = jax.jit(lambda x: jax.pure_callback(lambda v: v[::-1].copy(),
                                          shape((1 << 20,)), x))
  x = np.arange(1 << 20, dtype=np.float32)
  assert (np.asarray(f(x)) == x[::-1]).all()
