"""The processes of a pod: hosts that end are started again, hosts that others start, logs, and words that are wrong."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time

import pytest

import pods

PROGRAM = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rows = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d"))
x = jax.device_put(np.arange(2 * len(jax.devices()), dtype=np.float32), rows)
print(len(jax.devices()), jax.jit(lambda x: x.sum())(x))
"""


def runs(pod, chips):
  p = pods.python(PROGRAM, ATOLL_POD=pod.address, TPU_LIBRARY_PATH=pods.LIBRARY)
  assert p.stdout.split() == [str(chips), str(float(sum(range(2 * chips))))], p.stderr


@contextlib.contextmanager
def host(pod, *options, **env):
  """A host that somebody starts by hand."""
  p = subprocess.Popen([pods.ATOLL, "host", "--controller=" + pod.address, *options], env=pods.environment(**env),
                       stderr=subprocess.PIPE, text=True)
  try:
    yield p
  finally:
    p.kill()
    p.communicate()


# ---- Started again
def test_a_host_that_ends_is_started_again(tmp_path):
  logs = tmp_path / "logs"
  with pods.Pod("--hosts=2", "--target=v6e:2x2", f"--log-dir={logs}", ATOLL_LOG="info") as pod:
    runs(pod, 4)
    delays = []
    for n in range(3):
      was = pod.host(1)["pid"]
      os.kill(was, signal.SIGKILL)
      now = pod.wait_until_back(1, was)
      delays += [float(re.search(r"it starts again in ([\d.]+) s", e)[1]) for e in pod.errors
                 if f"host 1: process {was} was ended by signal 9 (Killed)" in e]
      assert [h["host"] for h in now["hosts"]] == [0, 1]
    assert delays == [0.5, 1.0, 2.0]
    runs(pod, 4)
    p = pods.atoll("pod", "logs", f"--log-dir={logs}", "--place=1", "--lines=100")
    assert p.stdout.count("host 1: ") == len(p.stdout.splitlines()) and "chips 2 to 3 of v6e:2x2" in p.stdout, p
    p = pods.atoll("pod", "logs", f"--log-dir={logs}", "--lines=1")
    assert [line.split(":")[0] for line in p.stdout.splitlines()] == ["host 0", "host 1"]


def test_as_many_lines_of_logs_as_are_asked_for(tmp_path):
  (tmp_path / "host-0.log").write_text("one\ntwo\nthree\n")
  for n, want in ((0, []), (2, ["host 0: two", "host 0: three"]), (9, ["host 0: one", "host 0: two", "host 0: three"])):
    assert pods.atoll("pod", "logs", f"--log-dir={tmp_path}", f"--lines={n}").stdout.splitlines() == want


def test_a_host_is_started_again_five_times_a_minute():
  with pods.Pod("--hosts=1", "--target=v6e") as pod:
    for n in range(6):
      was = pod.host(0)["pid"]
      os.kill(was, signal.SIGKILL)
      if n < 5:
        pod.wait_until_back(0, was)
    def told():
      return [float(t) for t in re.findall(r"it starts again in ([\d.]+) s", "\n".join(pod.errors))]

    until = time.monotonic() + 10
    while len(told()) < 6:
      assert time.monotonic() < until
      time.sleep(0.1)
    assert told()[:5] == [0.5, 1.0, 2.0, 4.0, 8.0] and 20 < told()[5] < 60, told()


def test_a_host_that_is_stopped_is_killed_and_started_again():
  with pods.Pod("--hosts=2", "--target=v6e:2x2") as pod:
    was = pod.host(0)["pid"]
    os.kill(was, signal.SIGSTOP)
    pod.wait_until_back(0, was)
    assert any(f"host 0: process {was} is lost to the controller but has not ended; it is killed" in e
               for e in pod.errors), pod.errors
    runs(pod, 4)


def test_hosts_that_cannot_start_end_the_pod():
  p = pods.atoll("pod", "up", "--hosts=2", "--target=v6e:2x2", ATOLL_POD_WIRE="ucx", ATOLL_POD_NETWORK="tls")
  assert p.returncode and re.search(r"host \d: process \d+ exited with status 1 before the pod was there", p.stderr), p


# ---- Started by others
def test_hosts_by_hand():
  with pods.Pod("--wait-hosts=2", "--target=v6e:2x2") as pod:
    assert pod.status()["state"] == "joining"
    with host(pod, "--place=1") as one:
      pod.wait_for(lambda s: [h["host"] for h in s["hosts"]] == [1])
      with host(pod) as other:
        pod.wait_for(lambda s: s["state"] == "up")
        assert (pod.host(0)["pid"], pod.host(1)["pid"]) == (other.pid, one.pid)
        runs(pod, 4)
        one.kill()
        pod.wait_for(lambda s: s["state"] != "up")
        time.sleep(1)
        assert pod.process.poll() is None
        with host(pod, "--place=1"):
          pod.wait_until_back(1, one.pid)
          runs(pod, 4)
          pods.atoll("pod", "down", "--pod=" + pod.address)
          assert pod.process.wait(30) == 0 and other.wait(30) == 0


def test_a_command_waits_for_hosts_by_hand():
  with pods.Pod("--wait-hosts=1", "--target=v6e", "--", "sh", "-c", "echo $ATOLL_POD; exit 3") as pod:
    time.sleep(0.5)
    assert pod.process.poll() is None
    with host(pod):
      assert pod.process.wait(60) == 3
    assert pod.process.stdout.read().strip() == pod.address


def test_other_machines_need_the_token(tmp_path):
  token = tmp_path / "token"
  token.write_text("0" * 64)
  token.chmod(0o600)
  for env, told in (({}, True), ({"ATOLL_POD_TOKEN_FILE": str(token)}, False)):
    with pods.Pod("--wait-hosts=1", "--target=v6e", "--listen=0.0.0.0:0", **env) as pod:
      time.sleep(0.2)
      assert any("other machines cannot join" in e for e in pod.errors) == told, pod.errors


# ---- Words
def test_top():
  with pods.Pod("--hosts=1", "--target=v6e", "--json") as pod:
    assert json.loads(pod.said) == {"pod": pod.address, "hosts": 1}
    top = subprocess.Popen([pods.ATOLL, "pod", "top", "--json", "--every=0.2", "--pod=" + pod.address],
                           env=pods.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3):
      assert json.loads(top.stdout.readline())["hosts"][0]["state"] == "up"
    pods.atoll("pod", "down", "--pod=" + pod.address)
    assert top.wait(60) == 1 and "nobody listens at" in top.communicate()[1]


@pytest.mark.parametrize("words,why", [
    (["up", "--hosts=a:1,b:2"], "hint: --wait-hosts=N here, and there `atoll host --controller=HOST:PORT`"),
    (["up", "--hosts=a:1"], "processes of other machines are not started from here"),
    (["up", "--hosts=2", "--wait-hosts=2"], "take one"),
    (["up", "--wait-hosts=2", "--log-dir=x"], "--log-dir is for hosts that are started here"),
    (["up", "--hosts=0"], "is not 1 to 1024"),
    (["up", "python", "x.py"], "hint: -- before a command"),
    (["up", "--"], "no command behind --"),
    (["up", "--hosts=3", "--target=v6e:2x2"], "do not divide over 3 hosts"),
    (["up", "--log-dir=/proc/none/x"], "--log-dir=/proc/none/x: No such file or directory"),
    (["logs"], "hint: --log-dir=DIR"),
    (["logs", "--log-dir=/proc"], "no host-N.log in /proc"),
    (["status"], "hint: --pod=HOST:PORT, or ATOLL_POD"),
    (["walk"], "hint: up, status, top, page, trace, logs, objects, drain, undrain or down"),
])
def test_wrong_words(words, why):
  p = pods.atoll("pod", *words)
  assert p.returncode and why in p.stderr, p
