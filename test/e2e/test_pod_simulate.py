"""Simulated hosts: unmodified programs run on them, in virtual time."""

import json
import subprocess
import sys

from pods import ATOLL, LIBRARY, PACKAGE, Pod, atoll, environment, python

PROGRAM = """
import atoll, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
assert len(devices) == 512 and jax.process_count() == 1
mesh = Mesh(np.array(devices), ("x",))
cut = NamedSharding(mesh, P("x"))
x = jax.device_put(np.ones((512, 4), np.float32), cut)
f = jax.jit(lambda v: (v @ jnp.ones((4, 4)) + v.sum()).astype(jnp.bfloat16))
y = f(x)
assert y.shape == (512, 4) and y.dtype == jnp.bfloat16 and len(y.addressable_shards) == 512
assert (np.asarray(y.addressable_shards[511].data) == 0).all()  # values are simulated
z = jax.device_put(np.ones(1 << 20, np.float32), devices[8])     # its bytes go to host 1
assert np.asarray(jax.device_put(z, devices[-1])).shape == (1 << 20,)

one, other = (NamedSharding(Mesh(np.array(d), ("x",)), P("x")) for d in (devices[:8], devices[-8:]))
a = jax.device_put(np.ones(8, np.float32), one)
step = jax.jit(lambda v: v * 2 + 1)

@atoll.program
def traced(v):
  v = step(step(v))
  return step(jax.device_put(v, other))

for _ in range(3):
  r = traced(a)
np.asarray(r.addressable_shards[0].data)
print("virtual", atoll.virtual_time())
"""

FIXED = dict(client_message=20000, client_beside=0, controller_message=3000, controller_host=300, controller_send=300,
             host_message=700, host_launch=200, host_chip=300, host_copy=3000, host_load=300000, host_answer=4000, chip_launch=0,
             host_meet=0, chip_meet=0)


def up(*more, code=PROGRAM):
  return subprocess.run([ATOLL, "pod", "up", "--simulate", "--hosts=64", "--target=v5p:8x8x8", *more, "--", sys.executable, "-c", code],
                        env=environment(PYTHONPATH=PACKAGE), capture_output=True, text=True, timeout=120)


def test_64_hosts_run_an_unmodified_and_a_traced_program(tmp_path):
  charges = tmp_path / "charges.json"
  charges.write_text(json.dumps(FIXED))
  p = up(f"--charges={charges}")
  assert p.returncode == 0, p.stderr
  assert p.stderr.count("the pod's hosts are simulated") == 1
  assert "dcn_latency_seconds" in p.stderr and "host_launch 200 ns" in p.stderr  # what was used, and where it is from
  assert float(p.stdout.split()[1]) > 0


def test_virtual_time_is_the_same_again(tmp_path):
  charges = tmp_path / "charges.json"
  charges.write_text(json.dumps(FIXED))
  code = """
import atoll, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
cut = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
x = jax.jit(lambda: jax.numpy.zeros(512), out_shardings=cut)()
f = jax.jit(lambda v: v + 1)
kept = [x]  # when arrays are dropped depends on threads
for _ in range(20): kept.append(f(kept[-1]))
np.asarray(kept[-1].addressable_shards[0].data)
print(atoll.virtual_time())
"""
  took = {up(f"--charges={charges}", code=code).stdout for _ in range(2)}
  assert len(took) == 1 and float(took.pop()) > 0


def test_status_says_what_was_busy():
  with Pod("--simulate", "--hosts=4", "--target=v5e:2x2", "--cores=2", PYTHONPATH=PACKAGE) as pod:
    p = python("import jax\nx = jax.jit(lambda: jax.numpy.ones(3))()\nprint(jax.device_get(x))", ATOLL_POD=pod.address,
               TPU_LIBRARY_PATH=LIBRARY)
    assert p.returncode == 0, p.stderr
    assert p.stdout.split() == ["[0.", "0.", "0.]"]
    s = pod.status()["simulated"]
    assert s["launches"] == 1 and s["cores"] == 2 and s["virtual_ns"] > 0 and s["hosts_busy_ns"] > 0
    (program,) = s["programs"]
    assert program["name"] and program["said_ns"] <= program["begin_ns"] <= program["end_ns"]


def test_programs_with_callbacks_are_refused():
  p = up(code="""
import jax, numpy as np
x = jax.jit(lambda: jax.pure_callback(lambda: np.float32(1), jax.ShapeDtypeStruct((), np.float32)))()
print(np.asarray(x))
""")
  assert p.returncode and "simulated hosts do not call back" in p.stderr, p.stderr


def test_objects_and_checkpoints_are_refused(tmp_path):
  p = up(code=f"""
import atoll, jax, numpy as np
x = jax.device_put(np.ones(4, np.float32), jax.devices()[1])
for f in (lambda: atoll.objects.put("x", x), lambda: atoll.checkpoint.save({str(tmp_path)!r}, {{"x": x}})):
  try: f()
  except RuntimeError as e: print(e)
""")
  assert p.stdout.count("simulated hosts keep no objects and no checkpoints") == 2, p.stdout + p.stderr


def test_options_without_simulate_are_refused():
  for option in ("--cores=all", "--charges=x", "--dispatch=parallel", "--latency-us=1", "--bandwidth=2"):
    p = atoll("pod", "up", option)
    assert p.returncode and "are for --simulate" in p.stderr
  for option in ("--cores=0", "--dispatch=later", "--latency-us=-1", "--bandwidth=x", "--charges=/nowhere", "--wait-hosts=2"):
    p = atoll("pod", "up", "--simulate", "--target=v5e:2x2", option)
    assert p.returncode and p.stderr.startswith("atoll"), p.stderr
  p = atoll("host", "--simulate")
  assert p.returncode and "atoll pod up --simulate" in p.stderr
