"""Numbers of a row that kernels keep in all lanes: computed once, and nobody can tell."""

import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ROWS, LANES, STEPS = 64, 128, 5


def first():
  return pl.program_id(0) == 0


def running_maximum(x, o, m, l):
  """As flash attention keeps it."""
  @pl.when(first())
  def _():
    m[...] = jnp.full_like(m, -jnp.inf)
    l[...] = jnp.zeros_like(l)
  old = m[...]
  new = jnp.maximum(old, x[...].max(1)[:, None])
  alpha = jnp.exp(old - new)
  l[...] = l[...] * alpha + jnp.exp(x[...] - new[:, :1]).sum(1)[:, None]
  m[...] = new
  o[...] = m[...] + jnp.log(l[...])


def lanes_differ_at_first(x, o, m, l):
  @pl.when(first())
  def _():
    m[...] = lax.broadcasted_iota(jnp.int32, m.shape, 1).astype(m.dtype)
    l[...] = jnp.zeros_like(l)
  m[...] = m[...] + x[...].max(1)[:, None]
  l[...] = l[...] + 1
  o[...] = m[...] * l[...]


def lanes_differ_in_one_step(x, o, m, l):
  @pl.when(first())
  def _():
    m[...] = jnp.zeros_like(m)
    l[...] = jnp.zeros_like(l)
  m[...] = m[...] + x[...].max(1)[:, None]

  @pl.when(pl.program_id(0) == 2)
  def _():
    l[...] = x[...]
  o[...] = m[...] + l[...]


def some_lanes_are_written(x, o, m, l):
  @pl.when(first())
  def _():
    m[...] = jnp.zeros_like(m)
    l[...] = jnp.zeros_like(l)
  total = x[...].sum(1)[:, None]
  m[:, :8] = m[:, :8] + total
  l[...] = l[...] + total
  o[...] = m[...] - l[...]


def some_rows_are_written(x, o, m, l):
  @pl.when(first())
  def _():
    m[...] = jnp.zeros_like(m)
    l[...] = jnp.zeros_like(l)
  total = jnp.broadcast_to(x[...].sum(1)[:, None], m.shape)
  m[8:24, :] = m[8:24, :] + total[8:24]
  l[pl.ds(16, 8), :] = total[:8]
  o[...] = m[...] + l[...]


def one_lane_is_read(x, o, m, l):
  @pl.when(first())
  def _():
    m[...] = jnp.ones_like(m)
    l[...] = jnp.ones_like(l)
  m[...] = m[...] + x[...].min(1)[:, None]
  l[...] = jnp.broadcast_to(m[:, 5:6], l.shape) + l[:, 3:4]
  o[...] = l[...] * x[...]


def memory_of_a_loop(x, o, m, l):
  m[...] = jnp.zeros_like(m)
  l[...] = jnp.zeros_like(l)

  def add(k, _):
    part = x[pl.ds(k * 8, 8), :].sum(1)[:, None]
    m[pl.ds(k * 8, 8), :] = m[pl.ds(k * 8, 8), :] + part
    l[...] = l[...] + m[...]
  lax.fori_loop(0, ROWS // 8, add, None)
  o[...] = l[...]


def memory_of_a_scope(x, o, m, l):
  def inside(t):
    t[...] = jnp.broadcast_to(x[...].max(1)[:, None], t.shape)
    t[...] = t[...] * 2 - 1
    o[...] = x[...] - t[...]
  pl.run_scoped(inside, pltpu.VMEM((ROWS, LANES), jnp.float32))


KERNELS = [running_maximum, lanes_differ_at_first, lanes_differ_in_one_step, some_lanes_are_written, some_rows_are_written,
           one_lane_is_read, memory_of_a_loop, memory_of_a_scope]


def kernel_of(body, shape, interpret=False):
  spec = pl.BlockSpec((ROWS, LANES), lambda i: (i, 0))
  f = pl.pallas_call(body, grid=(STEPS,), in_specs=[spec], out_specs=spec, interpret=interpret,
                     scratch_shapes=[pltpu.VMEM((ROWS, LANES), jnp.float32)] * 2,
                     out_shape=jax.ShapeDtypeStruct(shape, jnp.float32))
  return jax.jit(f)


@pytest.mark.parametrize("stage", ["llvm", "asm"])
def test_the_code_can_be_printed(stage, tmp_path, library):
  """Its functions are written a second time then."""
  program = tmp_path / "p.mlir"
  program.write_text(kernel_of(running_maximum, (STEPS * ROWS, LANES)).lower(np.zeros((STEPS * ROWS, LANES), np.float32)).as_text())
  done = subprocess.run([Path(library).with_name("atoll"), "dump", f"--stage={stage}", program], capture_output=True, text=True)
  assert done.returncode == 0 and "at_k0" in done.stdout, done.stderr


@pytest.mark.parametrize("values", ["plain", "infinite"])
@pytest.mark.parametrize("body", KERNELS, ids=lambda f: f.__name__)
def test_as_interpreted(body, values):
  x = np.random.default_rng(3).integers(-9, 10, (STEPS * ROWS, LANES)).astype(np.float32) / 4
  if values == "infinite":
    x[1], x[70, 3], x[130, 7], x[131] = -np.inf, np.inf, np.nan, np.inf

  def run(interpret):
    return np.asarray(kernel_of(body, x.shape, interpret)(x))
  np.testing.assert_allclose(run(False), run(True), rtol=2e-6, atol=2e-6)


def test_lanes_of_outputs():
  """Maxima and sums that are kept in all lanes of outputs, which come again and are read before they are written."""
  rng = np.random.RandomState(2)
  x = rng.randn(4, 16, 128).astype(np.float32)

  def body(x, m, s):
    @pl.when(pl.program_id(0) == 0)
    def _():
      m[...] = jnp.full_like(m, -jnp.inf)
      s[...] = jnp.zeros_like(s)
    high = jnp.maximum(m[...], x[0].max(1, keepdims=True))
    s[...] = s[...] * jnp.exp(m[...] - high) + jnp.exp(x[0] - high).sum(1, keepdims=True)
    m[...] = high
  row = pl.BlockSpec((16, 128), lambda i: (0, 0))
  m, s = pl.pallas_call(body, grid=(4,), in_specs=[pl.BlockSpec((1, 16, 128), lambda i: (i, 0, 0))], out_specs=[row, row],
                        out_shape=[jax.ShapeDtypeStruct((16, 128), jnp.float32)] * 2)(x)
  high = x.max((0, 2))
  np.testing.assert_array_equal(m, np.broadcast_to(high[:, None], m.shape))
  total = np.exp(x - high[None, :, None]).sum((0, 2))
  np.testing.assert_allclose(s, np.broadcast_to(total[:, None], s.shape), rtol=1e-5)
