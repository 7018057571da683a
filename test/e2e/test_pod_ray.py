"""`atoll pod up --ray`: hosts on the nodes of a Ray cluster."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import pods
import ray_cluster
from atoll import pod_ray

NODES = 4
needs_ray = pytest.mark.skipif(bool(ray_cluster.why_not()), reason=ray_cluster.why_not() or "-")

PROGRAM = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rows = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d"))
def total():
  x = jax.device_put(np.arange(2 * len(jax.devices()), dtype=np.float32), rows)
  return float(jax.jit(lambda x: x.sum())(x))
"""


# ---- Without Ray
def test_delays():
  starts, now = [], 0.0
  told = []
  for _ in range(7):
    told.append(pod_ray.delay(starts, now))
    now += told[-1]
    starts.append(now)
  assert told[:5] == [0.5, 1, 2, 4, 8] and told[5] == 60 - 15
  assert pod_ray.delay([0.0], 61.0) == 0.5


def test_slices():
  assert pod_ray.slices("2*v5e:2x4", 4) == [2, 2]
  assert pod_ray.slices("v5e:4x4", 4) == [4]
  assert pod_ray.slices("4*v5e:2x2", 2) == [2]


# ---- With it
@pytest.fixture(scope="module")
def cluster():
  with ray_cluster.Cluster(NODES) as c:
    yield c


class RayPod(pods.Pod):
  """`atoll pod up --ray`, at a node."""

  def __init__(self, cluster, *options):
    self.cluster, self.errors = cluster, []
    self.env = pods.environment(PYTHON=ray_cluster.PYTHON, PYTHONPATH=pods.PACKAGE)
    self.process = subprocess.Popen(
        cluster.inside(pods.ATOLL, "pod", "up", "--ray", "--address=" + cluster.head, "--json", *options),
        env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    threading.Thread(target=self._listen, daemon=True).start()
    line = self.process.stdout.readline()
    assert line, self.errors
    self.said = json.loads(line)
    self.address = self.said["pod"]
    self.env.update(ATOLL_POD=self.address, ATOLL_POD_TOKEN_FILE=self.said["token_file"])

  def ask(self, *words):
    return subprocess.run(self.cluster.inside(pods.ATOLL, "pod", *words), env=self.env, capture_output=True, text=True,
                          timeout=60, check=False)

  def status(self):
    p = self.ask("status", "--json")
    assert not p.returncode, p.stderr
    return json.loads(p.stdout)

  def program(self, code):
    return subprocess.run(self.cluster.inside(sys.executable, "-c", PROGRAM + code),
                          env={**self.env, "TPU_LIBRARY_PATH": pods.LIBRARY}, capture_output=True, text=True,
                          timeout=240, check=False)


def ray(cluster, code):
  p = subprocess.run(cluster.inside(ray_cluster.PYTHON, "-c", f"""
import ray, ray.util
ray.init("{cluster.head}", namespace="atoll", logging_level="error")
{code}
"""), env=ray_cluster.ENV, capture_output=True, text=True, timeout=120, check=False)
  assert not p.returncode, p.stderr
  return p.stdout


@needs_ray
def test_a_pod_of_a_ray_cluster(cluster):
  with RayPod(cluster, "--hosts=4", "--target=2*v5e:2x4") as pod:
    hosts = pod.status()["hosts"]
    if cluster.apart:
      assert len({h["address"].rpartition(":")[0] for h in hosts}) == NODES, hosts
    assert pod.program("print(len(jax.devices()), total())").stdout.split() == ["16", "496.0"]

    # Its process ends: its actor starts it again.
    was = pod.host(3)["pid"]
    os.kill(was, signal.SIGKILL)
    pod.wait_until_back(3, was)
    assert pod.program("print(total())").stdout.split() == ["496.0"]

    # A node is lost: so is its host, until there is a node for it again.
    if cluster.apart:
      lost = pod.host(2)
      node = int(lost["address"].rpartition(":")[0].rpartition(".")[2]) - 1
      if node:  # not Ray's head
        p = subprocess.Popen(cluster.inside(sys.executable, "-c", PROGRAM + """
import time
print("begun", total(), flush=True)
input()
t = time.monotonic()
try:
  print(total())
except jax.errors.JaxRuntimeError as e:
  print("lost", str(e).split(":")[0], time.monotonic() - t < 20, flush=True)
until = time.monotonic() + 150
while True:
  try:
    print("back", total())
    break
  except jax.errors.JaxRuntimeError as e:
    assert time.monotonic() < until, e
    time.sleep(1)
"""), env={**pod.env, "TPU_LIBRARY_PATH": pods.LIBRARY}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        assert p.stdout.readline() == "begun 496.0\n"
        cluster.lose(node)
        pod.wait_for(lambda s: s["state"] != "up", 20)
        p.stdin.write("\n")
        p.stdin.flush()
        assert p.stdout.readline() == "lost DATA_LOSS True\n"
        cluster.start(node)
        out, err = p.communicate(timeout=200)
        assert out == "back 496.0\n", (out, err, pod.errors)
    assert "2" in ray(cluster, "print(sum(g['state'] == 'CREATED' for g in ray.util.placement_group_table().values()))")
    assert not pod.ask("down").returncode
    assert pod.process.wait(60) == 0, pod.errors
  assert left(cluster) == "[] []"


def left(cluster):
  """Actors and placement groups that are there."""
  return ray(cluster, """
from ray.util import list_named_actors, placement_group_table
print(list_named_actors(True), [g for g in placement_group_table().values() if g["state"] != "REMOVED"])
""").strip()


@needs_ray
def test_nothing_is_left_of_a_pod_whose_driver_is_killed(cluster):
  with RayPod(cluster, "--hosts=2", "--target=v5e:2x4") as pod:
    hosts = [h["pid"] for h in pod.status()["hosts"]]
    pod.process.kill()
    pod.process.wait()
    until = time.monotonic() + 60
    while left(cluster) != "[] []" or any(os.path.exists(f"/proc/{p}") for p in hosts):
      assert time.monotonic() < until, left(cluster)
      time.sleep(0.5)


@needs_ray
def test_a_command_on_a_ray_cluster(cluster):
  p = subprocess.run(
      cluster.inside(pods.ATOLL, "pod", "up", "--ray", "--address=" + cluster.head, "--hosts=2", "--target=v5e:2x4", "--",
                     sys.executable, "-c", PROGRAM + "print(total()); raise SystemExit(5)"),
      env=pods.environment(PYTHON=ray_cluster.PYTHON, PYTHONPATH=pods.PACKAGE), capture_output=True, text=True,
      timeout=240, check=False)
  assert (p.returncode, p.stdout) == (5, "120.0\n"), p


@needs_ray
def test_too_few_nodes_are_told(cluster):
  p = subprocess.Popen(
      cluster.inside(pods.ATOLL, "pod", "up", "--ray", "--address=" + cluster.head, "--hosts=8", "--target=v5e:2x4"),
      env=pods.environment(PYTHON=ray_cluster.PYTHON, PYTHONPATH=pods.PACKAGE), stdout=subprocess.PIPE,
      stderr=subprocess.PIPE, text=True)
  heard = []
  for line in p.stderr:
    heard.append(line)
    if "Ray has no node for it yet" in line:
      break
  else:
    raise AssertionError(heard)
  p.send_signal(signal.SIGINT)
  p.communicate(timeout=60)


@needs_ray
def test_no_cluster():
  p = subprocess.run([pods.ATOLL, "pod", "up", "--ray", "--address=127.0.0.1:9"],
                     env=pods.environment(PYTHON=ray_cluster.PYTHON, PYTHONPATH=pods.PACKAGE), capture_output=True,
                     text=True, timeout=120, check=False)
  assert p.returncode and "no Ray cluster" in p.stderr, p
