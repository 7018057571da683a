"""Loops and branches with short steps, which are one kernel each: random programs of them beside XLA:CPU.

  python test/e2e/test_loops.py FIRST COUNT    more seeds than the test takes
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

DTYPES = ["float32", "int32", "uint8", "bool", "bfloat16", "complex64", "float32", "int32"]
SHAPES = [(), (1,), (3,), (7,), (16,), (33,), (64,), (5, 4), (8, 17), (2, 3, 5), (0,), (300,), (40, 33)]


class Maker:
  """Random computations of a state: arrays keep their shapes and types, numbers stay bounded."""

  def __init__(self, seed):
    self.rng = np.random.default_rng(seed)
    self.types = [(DTYPES[self.rng.integers(len(DTYPES))], SHAPES[self.rng.integers(len(SHAPES))])
                  for _ in range(self.rng.integers(1, 6))]
    self.constants = [self.array(*t) for t in self.types]

  def array(self, dtype, shape):
    x = self.rng.standard_normal(shape) * 2
    if dtype == "complex64":
      x = x + 1j * self.rng.standard_normal(shape)
    return np.asarray(np.round(np.real(x) * 10) if dtype in ("int32", "uint8") else x).astype(jnp.dtype(dtype))

  def pick(self, n):
    return int(self.rng.integers(n))

  def bounded(self, x):
    if x.dtype == jnp.bool_ or jnp.issubdtype(x.dtype, jnp.integer):
      return x
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
      return x / (1 + jnp.abs(x))
    return jnp.tanh(x)

  def like(self, x, dtype, shape):
    """Some of x's numbers in another type and shape."""
    n = int(np.prod(shape))
    flat = x.reshape(-1)
    flat = jnp.resize(flat, (n,)) if flat.size else jnp.zeros((n,), x.dtype)
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and dtype != "complex64":
      flat = flat.real
    if jnp.issubdtype(jnp.dtype(dtype), jnp.integer) and jnp.issubdtype(flat.dtype, jnp.floating):
      flat = jnp.clip(flat * 4, 0, 200)
    return flat.reshape(shape).astype(dtype)

  def step(self, i):
    """A function (turn, state) -> new array i of the state, chosen now."""
    dtype, shape = self.types[i]
    other, kind, shift, constant = self.pick(len(self.types)), self.pick(11), self.pick(5), self.constants[i]

    def run(turn, state):
      x = state[i]
      y = self.like(state[other], dtype, shape)
      if x.dtype == jnp.bool_:
        return [x ^ y, ~x, x & y, jnp.roll(x, shift)][kind % 4]
      if kind == 0:
        x = x + y
      elif kind == 1:
        x = x * y + jnp.asarray(constant)
      elif kind == 2:
        x = jnp.roll(x, shift) - y
      elif kind == 3 and x.ndim and x.size:
        x = x.at[turn % x.shape[0]].set(self.like(y, dtype, shape[1:]))
      elif kind == 4 and x.ndim and x.size:
        x = lax.dynamic_update_slice_in_dim(x, lax.dynamic_slice_in_dim(y, turn % x.shape[0], 1), turn % 3, 0)
      elif kind == 5 and x.size:
        x = x + x.sum(dtype=x.dtype)
      elif kind == 6 and jnp.issubdtype(x.dtype, jnp.floating) and x.ndim and x.size:
        a = jnp.asarray(constant).reshape(-1)[: x.shape[-1]]
        x = x + (x @ jnp.outer(a, a) if a.size == x.shape[-1] else x)
      elif kind == 7:
        x = x[::-1] if x.ndim else -x
      elif kind == 8 and x.dtype != jnp.complex64 and x.ndim:
        x = jnp.sort(x, axis=-1)  # no part of a nest: what is around it stays steps
      elif kind == 9:
        x = lax.fori_loop(0, 2, lambda j, z: z + y, jnp.zeros_like(x))
      else:
        x = jnp.where(jnp.asarray(turn % 2 == 0), x, y)
      return self.bounded(x)
    return run

  def body(self, depth):
    """A function (turn, state) -> state."""
    steps = [(i, self.step(i)) for i in self.rng.permutation(len(self.types)) if self.pick(4)]
    swap = self.pick(3) == 0 and len(self.types) > 1 and self.types[0] == self.types[1]
    inner = self.loop(depth - 1) if depth and self.pick(2) else None
    branches = [self.step(0) for _ in range(3)] if self.pick(3) == 0 else None

    def run(turn, state):
      state = list(state)
      for i, step in steps:
        state[i] = step(turn, state)
      if branches:
        state[0] = lax.switch(turn % 4, branches, turn, state)
      if inner:
        state = list(inner(turn, state))
      if swap:
        state[0], state[1] = state[1], state[0]
      return tuple(state)
    return run

  def loop(self, depth):
    kind, turns, body = self.pick(3), [0, 1, 2, 5, 9][self.pick(5)], self.body(depth)
    if kind == 0:
      return lambda turn, state: lax.fori_loop(0, turns, body, tuple(state))
    if kind == 1:
      def scan(turn, state):
        state, rows = lax.scan(lambda s, t: (body(t, s), s[0]), tuple(state), jnp.arange(turns), reverse=turns == 5)
        return (self.bounded(state[0] + rows.sum(0, dtype=rows.dtype)) if rows.dtype != jnp.bool_ else state[0],
                *state[1:])
      return scan

    def until(turn, state):
      def more(c):
        return (c[0] < turns) & (c[1][0].astype(jnp.float32).reshape(-1).sum() < 1e6 if c[1][0].dtype != jnp.complex64
                                 else c[0] < 7)
      return lax.while_loop(more, lambda c: (c[0] + 1, body(c[0], c[1])), (jnp.int32(0), tuple(state)))[1]
    return until


def make(seed):
  m = Maker(seed)
  loop = m.loop(2)
  return (lambda *state: loop(jnp.int32(3), state)), [m.array(*t) for t in m.types]


def check(seed, **options):
  fn, inputs = make(seed)
  want = jax.jit(fn)(*(jax.device_put(x, jax.devices("cpu")[0]) for x in inputs))
  got = jax.jit(fn, **options)(*(jax.device_put(x, jax.devices()[0]) for x in inputs))
  for g, w in zip(got, want, strict=True):
    g, w = np.asarray(g), np.asarray(w)
    if g.dtype == jnp.bfloat16:
      np.testing.assert_allclose(g.astype(np.float32), w.astype(np.float32), atol=0.3, err_msg=f"seed {seed}")
    elif g.dtype.kind in "fc":
      np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-3, err_msg=f"seed {seed}")
    else:
      np.testing.assert_array_equal(g, w, err_msg=f"seed {seed}")


@pytest.mark.parametrize("seed", range(40))
def test_random_loops(seed):
  check(seed)


@pytest.mark.parametrize("seed", range(40, 46))
def test_donated_state(seed):
  fn, inputs = make(seed)
  check(seed, donate_argnums=tuple(range(len(inputs))))


def nests(fn, *args):
  """What `atoll dump --stage=nest` says of the program."""
  atoll = os.path.join(os.path.dirname(os.environ["ATOLL_LIBRARY"]), "atoll")
  text = jax.jit(fn).lower(*args).as_text()
  done = subprocess.run([atoll, "dump", "--stage=nest", "/dev/stdin"], input=text, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return done.stdout


def test_a_loop_in_a_loop_is_one_kernel():
  def fn(x):
    return lax.scan(lambda c, row: lax.scan(lambda c, u: (c * 0.5 + u, c), c, row), jnp.float32(0), x)
  text = nests(fn, np.zeros((4, 8), np.float32))
  assert text.count('nest "') == 1 and text.count("while ") == 2


@pytest.mark.parametrize("turns", range(4))
def test_states_change_places(turns):
  """A state that each turn makes anew from its neighbours: in its own place behind the loop, after any number of turns."""
  def turn(_, s):
    x, y = s
    return jnp.roll(x, 1, 0) * 0.5 + y, jnp.roll(y, 1, 1) + x[:, ::-1] * 0.25

  def fn(n, x, y):
    outer = lambda i, s: lax.fori_loop(0, (n + i) % 4, turn, s)
    x, y = lax.fori_loop(0, n, turn, (x, y))
    return *lax.fori_loop(0, 3, outer, (x + 1, y)), x
  x = np.arange(40 * 33, dtype=np.float32).reshape(40, 33) / 1000
  inputs = np.int32(turns), x, x[::-1] * 2
  assert "exchange p" in nests(fn, *inputs)
  with jax.default_device(jax.devices("cpu")[0]):
    want = jax.jit(fn)(*inputs)
  got = jax.jit(fn)(*(jax.device_put(a, jax.devices()[0]) for a in inputs))
  for g, w in zip(got, want, strict=True):
    np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-5)


def test_long_steps_stay_steps():
  text = nests(lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sin(x), x), np.zeros(1 << 20, np.float32))
  assert text == ""


def test_a_branch_beside_a_product():
  """The small loop inside is a kernel, the loop around the large product is not."""
  def fn(x):
    def turn(i, x):
      s = lax.fori_loop(0, 5, lambda j, s: s * 0.5 + j, x[0, 0])
      return x @ x * s
    return lax.fori_loop(0, 2, turn, x)
  text = nests(fn, np.zeros((512, 512), np.float32))
  assert text.count('nest "') == 1 and text.count("while ") == 1


if __name__ == "__main__":
  for number in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
    try:
      check(number)
    except AssertionError as e:
      print(f"seed {number}: {str(e)[:600]}", flush=True)
