"""atoll.estimate and the command behind it; what compiled programs say of themselves."""

import json

import jax
import jax.numpy as jnp
import pytest

import atoll


def block(x, w):
  return jax.nn.softmax(jnp.tanh(x @ w).astype(jnp.float32), -1)


def shapes(n=2048):
  s = jax.ShapeDtypeStruct((n, n), jnp.bfloat16)
  return s, s


def test_estimates_a_jitted_function():
  e = atoll.estimate(jax.jit(block), *shapes(), target="v5p")
  assert e.machine == "v5p" and e.seconds > 0
  assert e.low_seconds < e.seconds < e.high_seconds
  assert 2 * 2048**3 <= e.flops < 2.1 * 2048**3
  assert 0 < e.mfu < 1
  assert e.peak_bytes >= 2048 * 2048 * (2 + 2 + 4)
  assert all(op["source"] for op in e.ops)
  assert any("test_estimate.py" in op["line"] for op in e.ops)
  assert sum(op["seconds"] * op["runs"] for op in e.ops) == pytest.approx(
      e.kernel_seconds + e.network_seconds)


def test_bigger_takes_longer_and_newer_is_faster():
  small = atoll.estimate(block, *shapes(1024), target="v5e").seconds
  large = atoll.estimate(block, *shapes(4096), target="v5e").seconds
  newer = atoll.estimate(block, *shapes(4096), target="v6e").seconds
  assert small < large and newer < large


def test_reports(tmp_path):
  e = atoll.estimate(block, *shapes())
  page = e.html(tmp_path / "page.html", compare="v5e")
  assert page.startswith("<!doctype html>") and "second / first" in page
  assert (tmp_path / "page.html").read_text() == page
  events = json.loads(e.trace())["traceEvents"]
  assert sum(v["ph"] == "X" for v in events) == len(e.ops)
  assert len(e.xplane()) > 100
  assert "second/first" in e.compare("v5e")
  assert "MFU" in repr(e) and "dot_general" in e.text()
  assert "<iframe" in e._repr_html_()


def test_errors_say_what_to_do():
  with pytest.raises(ValueError, match="v6e"):
    atoll.estimate(block, *shapes(), target="v99")
  with pytest.raises(ValueError, match="v6e"):
    atoll.estimate(block, *shapes(), target="v6e:0x1")
  with pytest.raises(ValueError, match="interp"):
    atoll.estimate(block, *shapes(), interp="psychic")


def test_compiled_cost_and_memory_analysis():
  c = jax.jit(block).lower(jnp.ones((64, 128)), jnp.ones((128, 32))).compile()
  cost = c.cost_analysis()
  assert cost["flops"] >= 2 * 64 * 128 * 32
  assert cost["flops"] < 2.2 * 64 * 128 * 32
  assert cost["transcendentals"] >= 2 * 64 * 32
  assert cost["bytes accessed"] >= 4 * (64 * 128 + 128 * 32 + 64 * 32)
  memory = c.memory_analysis()
  assert memory.argument_size_in_bytes >= 4 * (64 * 128 + 128 * 32)
  assert memory.output_size_in_bytes >= 4 * 64 * 32
  assert memory.alias_size_in_bytes == 0


SAME = """
import jax, jax.numpy as jnp, atoll
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), "x")
put = lambda s, *p: jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, P(*p)))
def layers(w, x):
  return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, w)[0].sum()
f, args = jax.jit(jax.grad(layers)), (put((8, 1024, 1024), None, "x"), put((8192, 1024), "x"))
m = f.lower(*args).compile().memory_analysis()  # turns of the loop are unrolled for this machine
e = atoll.estimate(f, *args, target="v5e:2x2")
assert m.temp_size_in_bytes == e.temp_bytes > 8 << 20, (m.temp_size_in_bytes, e.temp_bytes)
assert m.argument_size_in_bytes == e.argument_bytes
s = jax.ShapeDtypeStruct((512, 512), jnp.float32)
m = jax.jit(jnp.linalg.eigh).lower(s).compile().memory_analysis()  # one op on this machine, QDWH on a chip
assert m.temp_size_in_bytes > 10 << 20, m.temp_size_in_bytes
"""


def test_memory_analysis_is_of_the_chips_program(python):
  p = python(SAME, {"ATOLL_TARGET": "v5e:2x2"})
  assert p.returncode == 0, p.stderr


def test_donated_arguments_are_aliased():
  f = jax.jit(lambda x: x + 1, donate_argnums=0)
  c = f.lower(jnp.ones((256, 256))).compile()
  assert c.memory_analysis().alias_size_in_bytes >= 256 * 256 * 4


def test_memory_analysis_of_host_memory():
  device = jax.devices()[0]
  host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
  f = jax.jit(lambda w, x: jax.device_put(w, jax.sharding.SingleDeviceSharding(device)) @ x)
  w = jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=host)
  memory = f.lower(w, jax.ShapeDtypeStruct((256, 128), jnp.float32)).compile().memory_analysis()
  assert memory.host_argument_size_in_bytes == 256 * 256 * 4
  assert memory.argument_size_in_bytes == 256 * 128 * 4
  assert memory.output_size_in_bytes == 256 * 128 * 4
  assert memory.host_output_size_in_bytes == 0
