"""The MXU's registers by hand: pushes, sums and pops with loops and branches between them. On a 7x: pytest mxu.py"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

F32, BF16 = jnp.float32, jnp.bfloat16
push, add, pop = pltpu.matmul_push_rhs, pltpu.matmul_acc_lhs, pltpu.matmul_pop
SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)


def ints(*shape, seed=0, dtype=BF16):
  return np.asarray(jax.random.randint(jax.random.key(seed), shape, -4, 5)).astype(dtype)


def run(body, *operands, shape=(128, 256), **more):
  return np.asarray(jax.jit(pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(shape, F32), **more))(*operands))


def product(a, b):
  return a.astype(np.float32) @ b.astype(np.float32)


def take(dtype=F32, addr=0, mxu=0):
  return pop(addr, (128, 256), dtype, mxu)


@pytest.mark.parametrize("dtype", [BF16, F32, jnp.float8_e4m3fn])
def test_a_sum_over_a_loop(dtype):
  def body(x, y, o):
    push(y[0], 0, 0)

    def step(k, _):
      add(0, x[k], 0, load_staged_rhs=0)

      @pl.when(k < 3)
      def _():
        push(y[k + 1], 0, 0)
      return 0
    lax.fori_loop(0, 4, step, 0)
    o[...] = take()
  x, y = ints(4, 128, 256, dtype=dtype), ints(4, 256, 256, seed=1, dtype=dtype)
  np.testing.assert_array_equal(run(body, x, y), sum(product(x[k], y[k]) for k in range(4)))


def test_weights_stay_while_the_next_are_pushed():
  def body(x, y, o):
    push(y[0], 0, 0)
    push(y[2], 1, 0)
    add(0, x[0], 0, load_staged_rhs=0)
    push(y[1], 0, 0)

    def again(k, _):
      add(0, x[k], 0)
      return 0
    lax.fori_loop(1, 3, again, 0)
    add(0, x[3], 0, load_staged_rhs=0)
    add(0, x[0], 0, load_staged_rhs=1)
    o[...] = take()
  x, y = ints(4, 128, 256), ints(3, 256, 256, seed=1)
  want = product(x[0] + x[1] + x[2], y[0]) + product(x[3], y[1]) + product(x[0], y[2])
  np.testing.assert_array_equal(run(body, x, y), want)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_branch_adds_and_another_pops(n):
  def body(n, x, y, o):
    o[...] = jnp.zeros_like(o)

    @pl.when(n[0] > 0)
    def _():
      push(y[...], 0, 1, transpose=True)
      add(128, x[...], 1, load_staged_rhs=0)

    @pl.when(n[0] != 1)
    def _():
      o[...] = take(addr=128, mxu=1) + 1

    @pl.when(n[0] == 1)
    def _():
      o[...] = take(addr=128, mxu=1) + 2
    o[...] += take(addr=128, mxu=1)  # it is empty now
  x, y = ints(128, 256), ints(256, 256, seed=1)
  want = (product(x, y.T) if n else 0) + (2 if n == 1 else 1)
  np.testing.assert_array_equal(run(body, np.array([n], np.int32), x, y, in_specs=[SMEM, pl.BlockSpec(), pl.BlockSpec()]),
                                np.broadcast_to(want, (128, 256)))


def test_what_a_step_leaves_is_said():
  def body(x, y, o):
    push(y[...], 0, 0)
    add(0, x[...], 0, load_staged_rhs=0)

    @pl.when(pl.program_id(0) == 0)
    def _():
      o[...] = take()
  with pytest.raises(jax.errors.JaxRuntimeError, match=r"a sum is left in the MXU(.|\n)*mxu.py:\d+:4"):
    run(body, ints(128, 256), ints(256, 256), grid=(2,))


def test_weights_that_nobody_loaded():
  def body(n, x, y, o):
    push(y[...], 0, 0)

    @pl.when(n[0] > 0)
    def _():
      add(0, x[...], 0, load_staged_rhs=0)
    add(0, x[...], 0)
    o[...] = take()
  x, y, specs = ints(128, 256), ints(256, 256), [SMEM, pl.BlockSpec(), pl.BlockSpec()]
  np.testing.assert_array_equal(run(body, np.array([1], np.int32), x, y, in_specs=specs), 2 * product(x, y))
  with pytest.raises(jax.errors.JaxRuntimeError, match="no weights are loaded"):
    run(body, np.array([0], np.int32), x, y, in_specs=specs)
