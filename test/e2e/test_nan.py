"""ATOLL_CHECK=nan for plain programs: the op by the program's name, the line and the turn that made a NaN which
reached a result, and programs of which none is to be said."""

import os
import re

os.environ["ATOLL_CHECK"] = "nan"
os.environ["ATOLL_TARGET"] = "v6e:2x2"
os.environ["ATOLL_CACHE"] = "off"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

X = np.array([1., 2., -1., 4.], np.float32)
NAN = np.array([1., np.nan, 2., 3.], np.float32)


def loop(x):
  return lax.fori_loop(0, 10, lambda i, c: c - 1 + jnp.sqrt(c) * 0, x)


def scan(x):
  return lax.scan(lambda c, w: (jnp.tanh(c) * w, jnp.log(c - w)), x, jnp.arange(6.))[1]


def scalars(n):
  return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sqrt(s[1] - 1)), (0, jnp.float32(2.5)))[1]


def nested(x):
  return lax.fori_loop(0, 3, lambda i, c: loop(c), x)


def masked_then_made(x):
  return jnp.where(x > 0, jnp.log(x), 0.) + jnp.arcsin(x)


# The program, its argument, the op that is named, and the run that is told; None: only one.
MADE = {
    "log": (lambda x: jnp.log(x * 2) + 1, X, "log", None),
    "sqrt, moved": (lambda x: jnp.concatenate([jnp.sqrt(x)[::-1], x]), X, "sqrt", None),
    "x / 0": (lambda x: (x - x) / 0, X, "div", None),
    "two lines": (lambda x: (x - x) * (1 / (x - x)), X, "mul", None),
    "0 / 0": (lambda x: (x - x) / (x - x), X, "div", None),
    "inf - inf": (lambda x: jnp.exp(x * 100) - jnp.exp(x * 100) * 2, X, "sub", None),
    "a masked one before it": (masked_then_made, X, "asin", None),
    "another element came in": (jnp.log, np.array([np.nan, -1., 1.], np.float32), "log", None),
    "loop": (loop, np.array([5.5], np.float32), "sqrt", "run 7 of 10"),
    "nested loops": (nested, np.array([15.5], np.float32), "sqrt", "run 17 of 30"),
    "scan": (scan, np.array([2.5], np.float32), "log", "run 2 of 6"),
    "scalars": (scalars, 5, "sqrt", "run 3 of 5"),
    "cond": (lambda x: lax.cond(x[0] > 0, lambda y: jnp.log(-y), lambda y: y, x), X, "log", None),
    "sum": (lambda x: jnp.sum(jnp.log(x)), X, "log", None),
    "sort": (lambda x: jnp.sort(jnp.log(x)), X, "log", None),
    "fft": (lambda x: jnp.fft.fft(jnp.sqrt(x)), X, "sqrt", None),
    "dot": (lambda x: jnp.dot(x * 3e38, jnp.array([2., -2., 2., 2.])), X, "dot_general", None),
    "conv": (lambda x: jnp.convolve(x * 3e38, jnp.array([2., -2., 2.])), X, "conv_general_dilated", None),
    "cholesky": (lambda x: jnp.linalg.cholesky(-jnp.eye(4) * x), X, "cholesky", None),
    "bf16": (lambda x: jnp.log(x.astype(jnp.bfloat16)), X, "log", None),
    "f16": (lambda x: jnp.sqrt(x.astype(jnp.float16)), X, "sqrt", None),
    "f8": (lambda x: (x * 1e6).astype(jnp.float8_e4m3fn).astype(jnp.float32), X, "convert_element_type", None),
    "complex": (lambda x: (x * 1j - x * 1j) / (x - x), X, "div", None),
    "grad of a masked root": (jax.grad(lambda x: jnp.sum(jnp.where(x > 0, jnp.sqrt(x), 0.))), X * 0, "mul", None),
    "reshape and gather": (lambda x: jnp.log(x).reshape(2, 2)[jnp.array([1, 0])], X, "log", None),
}
FINE = {
    "where": (lambda x: jnp.where(x > 0, jnp.log(x), 0.), X),
    "where in a loop": (lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.where(c > 0, jnp.sqrt(c), 1.), x), X),
    "argument": (lambda x: jnp.tanh(x * 2).sum(), NAN),
    "argument through a loop": (loop, NAN[1:2]),
    "constant": (lambda x: jnp.where(x > 0, x, jnp.nan), X),
    "inf": (lambda x: jnp.exp(jnp.abs(x) * 1000) * 2, X),
    "not a result": (lambda x: (jnp.isnan(jnp.log(x)), jnp.nan_to_num(jnp.log(x))), X),
    "softmax with -inf": (lambda x: jax.nn.softmax(jnp.where(x > 0, x, -jnp.inf)), X),
    "integers": (lambda x: x.astype(jnp.int32) * 3, X),
    "double where": (jax.grad(lambda x: jnp.sum(jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.)), 0.))), X),
}


def run(f, *args):
  return jax.block_until_ready(jax.jit(f)(*args))


@pytest.mark.parametrize("name", MADE)
def test_made(name):
  f, x, op, turn = MADE[name]
  with pytest.raises(jax.errors.JaxRuntimeError) as e:
    run(f, x)
  said = str(e.value)
  assert f"has NaN, which {op} made of operands without NaN" in said, said
  assert (turn in said) if turn else "first in run" not in said, said
  if op not in ("cholesky", "conv_general_dilated"):  # they come from inside JAX
    assert re.search(r"\nat: .*\.py:\d+:\d+", said), said


@pytest.mark.parametrize("name", FINE)
def test_fine(name):
  f, x = FINE[name]
  run(f, x)


def test_f64():
  with jax.enable_x64(True):
    run(lambda x: jnp.where(x > 0, jnp.log(x), 0), np.float64(-1))
    with pytest.raises(jax.errors.JaxRuntimeError, match="log made"):
      run(jnp.log, np.float64([-1, 2]))


def test_several_chips():
  mesh = Mesh(np.array(jax.devices()).reshape(4), "x")
  f = lambda x: jnp.sum(jnp.log(x), axis=0) * 2
  cut = lambda x: jax.device_put(x, NamedSharding(mesh, P("x")))
  x = np.ones((8, 16), np.float32)
  run(f, cut(x))
  x[5, 3] = -1
  with pytest.raises(jax.errors.JaxRuntimeError, match="log made"):
    run(f, cut(x))


def shard(f, mesh, out=P("x")):
  return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=out, check_vma=False))


@pytest.mark.parametrize("f, name", [
    (lambda x: lax.psum(x, "x"), "psum"),
    (lambda x: lax.psum((x, x[:1] * 0 + 1), "x")[0], "psum"),
    (lambda x: lax.psum_scatter(jnp.tile(x, 4), "x", tiled=True), "reduce_scatter"),
    (lambda x: lax.fori_loop(0, 3, lambda i, c: lax.psum(c * 1e20, "x"), x), "psum"),
    (lambda x: lax.psum(x.astype(jnp.bfloat16), "x"), "psum"),
])
def test_sums_over_chips(f, name):
  mesh = Mesh(np.array(jax.devices()).reshape(4), "x")
  run = shard(f, mesh)
  jax.block_until_ready(run(np.zeros(16, np.float32)))
  x = np.zeros(16, np.float32)
  x[1], x[5] = np.inf, -np.inf
  with pytest.raises(jax.errors.JaxRuntimeError, match=f"which {name} made") as e:
    jax.block_until_ready(run(x))
  assert "test_nan.py" in str(e.value)
  x[1] = np.nan  # an argument's
  jax.block_until_ready(run(x))


def test_a_nan_that_a_sum_brings_is_its_makers():
  mesh = Mesh(np.array(jax.devices()).reshape(4), "x")
  run = shard(lambda x: lax.psum(jnp.sqrt(x), "x"), mesh)
  x = np.ones(16, np.float32)
  jax.block_until_ready(run(x))
  x[5] = -1
  with pytest.raises(jax.errors.JaxRuntimeError, match="which sqrt made"):
    jax.block_until_ready(run(x))


def test_results_are_the_same():
  x = np.linspace(.1, 3, 64, dtype=np.float32).reshape(8, 8)
  f = lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.tanh(c @ x) + jax.nn.softmax(c), x)
  np.testing.assert_allclose(run(f, x), jax.jit(f, backend="cpu")(x), rtol=2e-5)


def test_a_program_cannot_have_the_call():
  with pytest.raises(Exception, match="compiler's own"):
    run(lambda x: jax.ffi.ffi_call("atoll.nan", jax.ShapeDtypeStruct((4,), np.float32))(x), X)
