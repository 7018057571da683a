"""What JAX sees of the chip: devices, memories, attributes, topologies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def test_device(device):
  assert jax.default_backend() == "tpu"
  assert device.platform == "tpu"
  assert device.device_kind == "TPU v6 lite"
  assert device.coords == [0, 0, 0]
  assert device.core_on_chip == 0
  assert device.num_cores == 1
  assert device.slice_index == 0
  assert device.process_index == 0
  assert "Atoll" in device.client.platform_version
  assert jax.devices("tpu") == jax.devices()
  assert jax.devices("cpu")


def test_memories(device):
  kinds = [m.kind for m in device.addressable_memories()]
  assert kinds == ["device", "pinned_host", "unpinned_host"]
  assert device.default_memory().kind == "device"


def test_memory_stats(device):
  before = device.memory_stats()
  # A v6e chip has 32 GiB of HBM, of which the runtime keeps some.
  assert 30 << 30 < before["bytes_limit"] <= 32 << 30
  x = jax.device_put(np.zeros((1024, 1024), np.float32), device)
  x.block_until_ready()
  after = device.memory_stats()
  assert after["bytes_in_use"] >= before["bytes_in_use"] + (4 << 20)
  assert after["peak_bytes_in_use"] >= after["bytes_in_use"]
  del x


def test_topology_by_name():
  from jax.experimental import topologies
  t = topologies.get_topology_desc("v5e:2x2", "tpu")
  assert len(t.devices) == 4
  assert sorted(tuple(d.coords) for d in t.devices) == [
      (0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
  assert t.devices[0].device_kind == "TPU v5 lite"
  with pytest.raises(Exception, match="v99"):
    topologies.get_topology_desc("v99:2x2", "tpu")


@pytest.mark.parametrize("target,count,kind", [
    ("v4:2x2x1", 4, "TPU v4"), ("v5p:2x2x2", 8, "TPU v5"),
    ("v5e", 1, "TPU v5 lite")])
def test_targets(python, target, count, kind):
  p = python("import jax; d = jax.devices(); print(len(d), d[0].device_kind)",
             {"ATOLL_TARGET": target})
  assert p.stdout.strip() == f"{count} {kind}", p.stderr


def test_unknown_target_is_an_error(python):
  p = python("import jax; print(jax.devices())",
             {"ATOLL_TARGET": "v99", "JAX_PLATFORMS": "tpu"})
  assert p.returncode != 0
  assert "v99" in p.stderr


def test_several_devices(python):
  p = python("""
import jax, numpy as np
d = jax.devices()
xs = [jax.device_put(np.full((3,), i, np.float32), d[i]) for i in range(4)]
for i, x in enumerate(xs):
  assert x.devices() == {d[i]}
  assert (np.asarray(x) == i).all()
y = jax.device_put(xs[1], d[3])
assert y.devices() == {d[3]} and (np.asarray(y) == 1).all()
print([float(jax.jit(lambda v: v.sum())(x)) for x in xs])
""", {"ATOLL_TARGET": "v5e:2x2"})
  assert p.stdout.strip() == "[0.0, 3.0, 6.0, 9.0]", p.stderr


def test_named_as_atoll(python, library):
  p = python(
      "import jax; print(jax.devices()[0].platform, jax.default_backend())",
      {"PJRT_NAMES_AND_LIBRARY_PATHS": f"atoll:{library}",
       "JAX_PLATFORMS": "atoll,cpu", "TPU_LIBRARY_PATH": ""})
  assert p.stdout.split()[0] == "tpu", p.stderr


def test_entry_point(python):
  """What JAX does with the wheel's entry point."""
  code = """
import os
import atoll.plugin
from jax._src import xla_bridge
real = xla_bridge.discover_pjrt_plugins
xla_bridge.discover_pjrt_plugins = lambda: atoll.plugin.initialize()
import jax
print(jax.devices()[0].platform, len(jax.devices("cpu")) > 0)
"""
  import os
  env = {"ATOLL_LIBRARY": os.environ["TPU_LIBRARY_PATH"]}
  for platforms in ("atoll", "tpu", ""):
    clean = {**env, "JAX_PLATFORMS": platforms}
    p = python("import os; os.environ.pop('TPU_LIBRARY_PATH', None)\n" + code,
               clean)
    assert p.stdout.split() == ["tpu", "True"], (platforms, p.stderr)


@pytest.mark.parametrize("named,libtpu,said", [
    ("", False, ""),
    ("", True, "warning: JAX takes the package libtpu for its TPU, but this machine has none"),
    ("ours", False, ""),
    ("ours", True, "note: Atoll serves JAX's `tpu`"),
    ("other", False, "serves JAX's `tpu`, not Atoll"),
    ("absent", False, "is not there"),
])
def test_which_library_serves_tpu_is_said(python, library, tmp_path, named, libtpu, said):
  other = tmp_path / "libother.so"
  other.write_bytes(b"")
  path = {"": "", "ours": library, "other": str(other), "absent": "/absent.so"}[named]
  if libtpu:
    (tmp_path / "libtpu").mkdir()
    (tmp_path / "libtpu" / "__init__.py").write_text("")
  p = python(f"""
import os, sys
sys.path.append({str(tmp_path)!r})
if not os.environ["TPU_LIBRARY_PATH"]: del os.environ["TPU_LIBRARY_PATH"]
import atoll.plugin
atoll.plugin.initialize()
print(os.environ.get("TPU_LIBRARY_PATH"))
""", {"TPU_LIBRARY_PATH": path, "ATOLL_LIBRARY": library, "JAX_PLATFORMS": ""})
  assert said in p.stderr and bool(said) == ("atoll" in p.stderr), p.stderr
  takes_over = not named and not libtpu
  assert p.stdout.strip() == (library if takes_over else path or "None"), p.stdout


def test_the_package_finds_the_library_that_jax_has(python):
  import os
  code = "import os; os.environ.pop('ATOLL_LIBRARY', None)\nimport atoll; print(atoll.library_path())"
  path = os.environ["TPU_LIBRARY_PATH"]
  assert python(code, {"TPU_LIBRARY_PATH": path}).stdout.strip() == path
  p = python(code, {"TPU_LIBRARY_PATH": "libtpu.so"})
  assert p.returncode != 0 and "no Atoll library" in p.stderr


def test_x64_is_there():
  with jax.enable_x64(True):
    assert jnp.arange(3, dtype=jnp.float64).dtype == np.float64
