"""What users of Pathways write runs on a pod: JAX_PLATFORMS=proxy, pathwaysutils and its elastic manager, unmodified."""

import importlib.util
import json
import os
import socket
import threading

import pytest

import pods
from atoll import pathways

needs_pathwaysutils = pytest.mark.skipif(
    importlib.util.find_spec("pathwaysutils") is None,
    reason="no pathwaysutils (pip install pathwaysutils==0.1.13)")

BEGIN = """
import pathwaysutils
pathwaysutils.initialize()
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("s", "x"))
"""


def run(pod, user, code, scheme="atoll", **env):
  p = pods.python(BEGIN + code, PYTHONPATH=user, JAX_PLATFORMS="proxy",
                  JAX_BACKEND_TARGET=f"{scheme}://{pod.address}", **env)
  assert not p.returncode, p.stderr
  return p


# ---- Addresses
def test_addresses():
  assert pathways.address("atoll://a:1", "b:2") == "a:1"
  assert pathways.address("grpc://[::1]:29000/", "") == "[::1]:29000"
  assert pathways.address("a:1", "") == "a:1"
  assert pathways.address("", "b:2") == "b:2"
  with pytest.raises(ValueError, match="needs the address of a pod"):
    pathways.address("", "")
  for bad in ("atoll://a", "http://a:1/x", "atoll://:1", "atoll://a:x"):
    with pytest.raises(ValueError, match="is not atoll://HOST:PORT"):
      pathways.address(bad, "")


def test_a_server_that_speaks_grpc_is_known(pod):
  server = socket.create_server(("localhost", 0))

  def serve():
    s, _ = server.accept()
    s.sendall(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6))  # SETTINGS
    s.recv(100)
    s.close()

  t = threading.Thread(target=serve)
  t.start()
  there = f"localhost:{server.getsockname()[1]}"
  assert pathways.speaks_grpc(there)
  t.join()
  server.close()
  assert not pathways.speaks_grpc(there)
  assert not pathways.speaks_grpc(pod.address)


def test_no_address_is_an_error(user):
  p = pods.python("import jax; jax.devices()", PYTHONPATH=user, JAX_PLATFORMS="proxy")
  assert p.returncode and "hint: JAX_BACKEND_TARGET=atoll://HOST:PORT" in p.stderr


# ---- Programs
def test_without_pathwaysutils(pod, user):
  p = pods.python("import jax; print(len(jax.devices()), jax.numpy.arange(4).sum())", PYTHONPATH=user,
                  JAX_PLATFORMS="proxy", JAX_BACKEND_TARGET="atoll://" + pod.address)
  assert p.stdout.split() == ["16", "6"], p.stderr


@needs_pathwaysutils
@pytest.mark.parametrize("scheme", ["atoll", "grpc"])
def test_programs_get_the_chips_of_the_pod(pod, user, scheme):
  p = run(pod, user, """
a = jax.device_put(np.arange(64, dtype=np.float32).reshape(16, 4), NamedSharding(mesh, P(("s", "x"))))
print(len(jax.devices()), jax.default_backend(), sorted({d.slice_index for d in jax.devices()}))
print(jax.jit(lambda a: (a * 2).sum())(a))
print(jax.jit(lambda x: jax.pure_callback(lambda y: np.asarray(y) + 1, jax.ShapeDtypeStruct((), np.float32), x))(
    np.float32(3)))
""", scheme)
  assert p.stdout.splitlines() == ["16 tpu [0, 1]", "4032.0", "4.0"]


@needs_pathwaysutils
def test_arrays_move_between_meshes(pod, user):
  p = run(pod, user, """
from pathwaysutils import reshard
from pathwaysutils.experimental import concatenate_by_mesh_axis as join, reshard as other, split_by_mesh_axis as split
import pathwaysutils.jax
assert pathwaysutils.jax.ifrt_reshard_available()
x = np.arange(64, dtype=np.float32).reshape(16, 4)
a = jax.device_put(x, NamedSharding(mesh, P(("s", "x"))))
half = NamedSharding(Mesh(mesh.devices[1], ("x",)), P(None, None))
for f in (reshard.reshard, other.reshard):
  b, key = f([a, jax.random.key(1)], [half, half.update(spec=P())])
  assert b.sharding == half and (np.asarray(b) == x).all()
parts = split.split_by_mesh_axis(a, "s")
assert [p.shape for p in parts] == [(8, 4)] * 2
for k in range(2):
  assert set(parts[k].devices()) == set(mesh.devices[k].flat) and (np.asarray(parts[k]) == x[8 * k:8 * k + 8]).all()
c = reshard.reshard(parts[0], half, donate=True)
assert (np.asarray(c) == x[:8]).all()
d, = reshard.reshard([c], [half.update(mesh=Mesh(mesh.devices[1, :2], ("x",)))], donate=True)  # parts stay where they are
assert (np.asarray(d) == x[:8]).all()
# Takes its arguments: jaxlib 0.10.2 crashes, on every platform, where they are used afterwards.
whole = join.concatenate_by_mesh_axis(split.split_by_mesh_axis(a, "s"), "s")
assert len(whole.sharding.device_set) == 16 and (np.asarray(whole) == x).all()
print("done")
""")
  assert "done" in p.stdout


@needs_pathwaysutils
@pytest.mark.parametrize("persistence", ["0", "1"])
def test_checkpoints(pod, user, tmp_path, persistence):
  """With ENABLE_PATHWAYS_PERSISTENCE=1 Orbax asks the server to write and read."""
  p = run(pod, user, f"""
import orbax.checkpoint as ocp
rows = NamedSharding(mesh, P(("s", "x")))
whole = NamedSharding(mesh, P())
tree = {{"a": jax.device_put(np.random.default_rng(0).random((16, 4), np.float32), rows),
        "b": {{"c": jax.device_put(jnp.arange(15.).reshape(3, 5).astype(jnp.bfloat16), whole),
              "key": jax.device_put(jax.random.key(3), whole), "scalar": jax.device_put(jnp.int32(7), whole)}}}}
with ocp.StandardCheckpointer() as c:
  c.save({str(tmp_path)!r} + "/step", tree)
  c.wait_until_finished()
  back = c.restore({str(tmp_path)!r} + "/step", tree)
for x, y in zip(jax.tree.leaves(tree), jax.tree.leaves(back)):
  assert (x == y).all() and x.dtype == y.dtype and x.sharding == y.sharding, (x, y)
print("done")
""", ENABLE_PATHWAYS_PERSISTENCE=persistence)
  assert "done" in p.stdout
  assert (tmp_path / "step" / "a").is_dir() == (persistence == "1")


@needs_pathwaysutils
def test_a_request_that_is_not_there_is_named(pod, user):
  p = run(pod, user, """
from pathwaysutils import plugin_executable
try:
  plugin_executable.PluginExecutable('{"colocatedPython": {}}')
except NotImplementedError as e:
  print(e)
""")
  assert p.stdout == "UNIMPLEMENTED: a pod of Atoll has no plugin program colocatedPython\n"


# ---- Elastic
TRAIN = """
import json, os, signal, subprocess, sys, time
from pathwaysutils.elastic import manager as elastic

def host(number):
  s = json.loads(subprocess.run([os.environ["ATOLL"], "pod", "status", "--json"], capture_output=True, check=True).stdout)
  return next(h for h in s["hosts"] if h["host"] == number)

manager = elastic.Manager()
assert manager.total_slice_count == 2 and manager.active_slice_indices == {0, 1}
saved, attempts, lost = {"step": 0, "w": np.zeros(16, np.float32)}, [], []

@manager.elastic_retry(minimum_slice_count=MINIMUM, poll_interval=0.5, timeout=60, max_retries=10)
def train():
  active = sorted(manager.active_slice_indices)
  attempts.append(active)
  devices = [d for i in active for d in manager.slice_to_devices[i]]
  rows = Mesh(np.array(devices), ("d",))
  w = jax.device_put(saved["w"], NamedSharding(rows, P()))
  x = jax.device_put(np.ones((len(devices), 16), np.float32), NamedSharding(rows, P("d")))
  step = jax.jit(lambda w, x: w + x.sum(0) / x.shape[0])
  until = time.monotonic() + 60
  while saved["step"] < 20 or len(active) < 2:
    w = step(w, x)
    saved["w"], saved["step"] = np.asarray(w), saved["step"] + 1
    if saved["step"] == 5 and not lost:
      lost.append(host(3)["pid"])
      os.kill(lost[0], signal.SIGNAL)
    if manager.available_inactive_slices:
      raise elastic.ScaleUpSignalError()
    if len(active) < 2:
      time.sleep(0.1)
    assert time.monotonic() < until
  return saved["w"]

w = train()
assert lost and (w == saved["step"]).all(), w
assert host(3)["pid"] != lost[0]
print(json.dumps(attempts))
"""


@needs_pathwaysutils
@pytest.mark.parametrize("minimum,loss", [("1", "SIGKILL"), ("None", "SIGKILL"), ("1", "SIGSTOP")])
def test_elastic_loses_a_host_and_takes_it_back(pod, user, minimum, loss):
  p = run(pod, user, TRAIN.replace("MINIMUM", minimum).replace("SIGNAL", loss))
  attempts = json.loads(p.stdout)
  assert attempts[0] == attempts[-1] == [0, 1], attempts
  if minimum == "1":
    assert [0] in attempts, attempts
  else:
    assert all(a == [0, 1] for a in attempts) and len(attempts) > 1, attempts


# ---- Their own example and tests
needs_example = pytest.mark.skipif(
    any(importlib.util.find_spec(m) is None for m in ("pathwaysutils", "grain", "flax")),
    reason="no pathwaysutils, grain or flax (tools/requirements-test.txt)")

EXAMPLE = """
import json, os, signal, subprocess
import orbax.checkpoint as ocp
from pathwaysutils.elastic import manager as elastic
from pathwaysutils.extras.simple_model import workload

def host(number):
  s = json.loads(subprocess.run([os.environ["ATOLL"], "pod", "status", "--json"], capture_output=True, check=True).stdout)
  return next(h for h in s["hosts"] if h["host"] == number)

manager = elastic.Manager()
snapshotter = ocp.v1.training.pathways.Snapshotter()
attempts, lost, latest, losses = [], [], 0, {}

@manager.elastic_retry(minimum_slice_count=1, poll_interval=0.5, timeout=90)
def train():
  global latest
  active = sorted(manager.active_slice_indices)
  w = workload.Workload(elastic_manager=manager, snapshot_interval=2, total_steps=16, snapshotter=snapshotter)
  w.initialize()
  if latest:
    w.restore_from_snapshot()
    w.step = latest + 1
  attempts.append((active, w.step))
  while w.step <= 16 or len(active) < 2:
    losses[w.step] = w.run_step()
    if w.step % 2:
      snapshotter.join()
      latest = w.step - 1
    if w.step == 6 and not lost:
      lost.append(host(3)["pid"])
      os.kill(lost[0], signal.SIGKILL)
    if manager.available_inactive_slices:
      raise elastic.ScaleUpSignalError()

train()
assert all(7 < l < 12 for l in losses.values()), losses
print(json.dumps(attempts))
"""


@needs_example
def test_their_example_goes_on_from_its_snapshot(pod, user):
  """The snapshot lies on the chips of both slices: that of the slice that is left is taken."""
  attempts = json.loads(run(pod, user, EXAMPLE).stdout.splitlines()[-1])
  assert attempts[0] == [[0, 1], 1] and [[0], 5] in attempts and attempts[-1][0] == [0, 1], attempts
  assert attempts[-1][1] >= 5, attempts


@needs_pathwaysutils
@pytest.mark.parametrize("name", ["reshard_test", "experimental/reshard_test", "lru_cache_test"])
def test_their_tests(pod, user, name):
  path = os.path.join(os.path.dirname(importlib.util.find_spec("pathwaysutils").origin), "test", name + ".py")
  if not os.path.isfile(path):
    pytest.skip("the package came without its tests")
  run(pod, user, f"""
import runpy, sys
sys.argv = [{path!r}]
try:
  runpy.run_path({path!r}, run_name="__main__")
except SystemExit as e:
  assert not e.code, e.code
""")
