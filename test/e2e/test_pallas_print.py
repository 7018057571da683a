"""Prints of kernels, and the limit on turns of their loops."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
S = jnp.array([3, 255, -2, 7], jnp.int32)


def run(body, s=S, **kw):
  def kernel(s, o):
    o[0] = s[0] if (x := body(s)) is None else x
  return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((1,), jnp.int32), in_specs=[SMEM], out_specs=SMEM, **kw)(s)


def printed(capfd, body, s=S):
  run(body, s).block_until_ready()
  return capfd.readouterr().err


def test_places(capfd):
  assert "3 and -2, 3.\n" in printed(capfd, lambda s: pl.debug_print("{} and {}, {}.", s[0], s[2], s[0]))


def test_values_behind_the_text(capfd):
  assert "x = f32[] 0.5\n" in printed(capfd, lambda s: pl.debug_print("x =", s[0].astype(jnp.float32) / 6))
  assert "x: s32[] -2\n" in printed(capfd, lambda s: pl.debug_print("x: ", s[2]))
  assert "third f32[] 0.33333334\n" in printed(capfd, lambda s: pl.debug_print("third", s[0].astype(jnp.float32) / 9))


def test_vectors(capfd):
  def kernel(x, o):
    pl.debug_print("x: {}", x[...])
    o[...] = x[...]
  for shape in (8, 128), (2, 3), (4,), (2, 2, 3):
    x = jnp.arange(np.prod(shape), dtype=jnp.int32).reshape(shape)
    pl.pallas_call(kernel, out_shape=x)(x).block_until_ready()
    out = capfd.readouterr().err
    assert f"x: s32[{','.join(map(str, shape))}] {{" in out, out
    assert [int(v) for v in re.findall(r"\d+", out.split("]", 1)[1])] == list(range(x.size)), out
    if shape == (2, 3):
      assert "x: s32[2,3] {\n  { 0, 1, 2 },\n  { 3, 4, 5 }\n}\n" in out
    if shape == (4,):
      assert "x: s32[4] {0, 1, 2, 3}\n" in out


def test_sparse_cores(capfd):
  """Scalars are arrays of one there, and the text says where they begin."""
  def kernel(x, o, v):
    pltpu.sync_copy(x, v)
    pl.debug_print("vector", v[...] + 0.5)
    pl.debug_print("few", v[...] < 2)
    pl.debug_print("scalar", 12344.625)
    pl.debug_print("none")
    pltpu.sync_copy(v, o)
  x = jnp.arange(16, dtype=jnp.float32)
  mesh = plsc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=1, num_subcores=1)
  f = pl.kernel(kernel, out_type=x, mesh=mesh, scratch_types=[pltpu.VMEM((16,), jnp.float32)])
  f(x).block_until_ready()
  out = capfd.readouterr().err
  assert "vector, data: f32[16] {0.5, 1.5, " in out
  assert "few, data: " in out and "{1, 1, 0, 0, " in out
  assert "scalar, data: f32[1] {12344.625}\n" in out and "none\n" in out


def test_few_turns_are_allowed(python):
  p = python("""
import test_pallas_print as t
print(t.run(lambda s: t.lax.fori_loop(0, s[0], lambda i, c: c + i, 0))[0])
try:
  t.run(lambda s: t.lax.while_loop(lambda i: i != 1, lambda i: i, s[0])).block_until_ready()
except Exception as e:
  print(e)
""", env={"ATOLL_KERNEL_TURNS": "1000", "PYTHONPATH": __file__.rsplit("/", 1)[0]})
  assert p.returncode == 0, p.stderr
  assert p.stdout.startswith("3\n") and "stopped after 1000 turns of its loops" in p.stdout


def test_the_plan_of_a_kernel_is_dumped(python, tmp_path):
  p = python("""
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

def kernel(x, o):
  e = jnp.exp(x[...] - x[...].max(1, keepdims=True))
  o[...] = e / e.sum(1, keepdims=True)

x = jnp.ones((64, 256))
print(float(pl.pallas_call(kernel, out_shape=x)(x)[0, 0]))
""", env={"ATOLL_DUMP": str(tmp_path), "ATOLL_CACHE": "off"})
  assert p.returncode == 0, p.stderr
  assert float(p.stdout) == 1 / 256
  plan = "".join(f.read_text() for f in tmp_path.glob("*kernels.txt"))
  assert "// kernel kernel" in plan and " in 64 rows of 256" in plan and "writes 2" in plan
