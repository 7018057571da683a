"""What people see of a pod and do to it: status, top, drained hosts."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from pods import ATOLL, LIBRARY, PACKAGE, Pod, atoll, environment

PROGRAM = """
import sys
import jax, numpy as np
import atoll
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
def put(ids):
  mesh = Mesh(np.array([devices[i] for i in ids]), ("d",))
  return jax.device_put(np.ones((len(ids) * 2, 1024), np.float32), NamedSharding(mesh, P("d")))
def told(f):
  try: f()
  except Exception as e: return str(e)
  return "nothing"
@jax.jit
def doubled(x): return x * 2
for line in sys.stdin:
  exec(line)
  print("done", flush=True)
"""


class Client:
  """A program on the pod that does what it is told, line by line."""

  def __init__(self, pod):
    self.process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(ATOLL_POD=pod.address, TPU_LIBRARY_PATH=LIBRARY, PYTHONPATH=PACKAGE))

  def do(self, line):
    """What it prints."""
    self.process.stdin.write(line + "\n")
    self.process.stdin.flush()
    said = []
    for text in iter(self.process.stdout.readline, "done\n"):
      assert text, (line, said)
      said.append(text.rstrip())
    return "\n".join(said)

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    self.process.stdin.close()
    self.process.wait(30)
    self.process.stdout.close()


@pytest.fixture(scope="module")
def pod():
  with Pod("--hosts=2", "--target=2*v5e:2x2") as p:
    yield p


def state(number, is_):
  return lambda s: any(h["host"] == number and h["state"] == is_ for h in s["hosts"])


# ---- Status
def test_status_says_who_does_what(pod):
  with Client(pod) as c:
    c.do("x = put(range(8)); [doubled(x).block_until_ready() for _ in range(20)]")
    s = pod.status()
    chips = [d for h in s["hosts"] for d in h["devices"]]
    assert [(d["chip"], d["slice"], d["queued"]) for d in chips] == [(i, i // 4, 0) for i in range(8)]
    assert all(2 * 4096 <= d["in_use"] < d["limit"] for d in chips), chips
    (client,) = s["clients"]
    assert client["uid"] == os.getuid() and client["launches"] == 20 and client["hbm_bytes"] >= 8 * 2 * 4096, client
    (program,) = s["last_programs"]
    assert (program["name"], program["launches"], program["hosts"]) == ("jit_doubled", 20, 2), program
    assert program["measured"] == 2 * 5 and program["p50_us"] > 0 > program["last_us"], program
    assert all(r["given_us"] <= r["start_us"] <= r["end_us"] < 0 for r in s["runs"]), s["runs"]
    assert sum(h["holders"][0]["hbm_bytes"] for h in s["hosts"]) == client["hbm_bytes"]
    p = atoll("pod", "status", ATOLL_POD=pod.address)
    assert re.search(r"chip 5 +0 queued +\d\S+/15.75G", p.stdout), p.stdout
    assert re.search(r"jit_doubled +client \d+ +20 launches +p50 +[\d.]+ us", p.stdout), p.stdout


def test_top_fills_a_screen_and_gives_it_back(pod):
  leader, follower = pty.openpty()
  before = subprocess.run(["stty", "-g"], stdin=follower, capture_output=True, check=True).stdout
  p = subprocess.Popen([ATOLL, "pod", "top", "--every=0.1"], stdin=follower, stdout=follower, stderr=follower,
                       env=environment(ATOLL_POD=pod.address))
  screen, until = b"", time.monotonic() + 20
  while screen.count(b"\x1b[H") < 3 and time.monotonic() < until:
    if select.select([leader], [], [], 0.5)[0]:
      screen += os.read(leader, 65536)
  os.write(leader, b"q")
  assert p.wait(10) == 0
  if select.select([leader], [], [], 0.5)[0]:
    screen += os.read(leader, 65536)
  assert screen.startswith(b"\x1b[?1049h") and screen.endswith(b"\x1b[?25h\x1b[?1049l"), screen
  assert b"2*v5e:2x2, 8 chips, up" in screen and screen.count(b"host 1") >= 3, screen
  assert subprocess.run(["stty", "-g"], stdin=follower, capture_output=True, check=True).stdout == before
  os.close(leader)
  os.close(follower)
  # Not a terminal: plain lines, without end.
  p = subprocess.Popen([ATOLL, "pod", "top", "--every=0.1", "--json"], stdout=subprocess.PIPE, text=True,
                       env=environment(ATOLL_POD=pod.address))
  assert all(json.loads(p.stdout.readline())["state"] == "up" for _ in range(3))
  p.terminate()
  p.wait()
  p.stdout.close()


# ---- Drained hosts
def test_a_host_is_drained_and_taken_back(pod):
  drain = lambda *words: atoll("pod", *words, ATOLL_POD=pod.address)
  pid = pod.host(1)["pid"]
  with Client(pod) as c:
    c.do("x = put([5, 6]); y = put([1])")
    assert drain("drain", "1", "--no-wait").returncode == 0
    pod.wait_for(state(1, "draining"))
    # Nothing new goes there by choice, but who names its devices has them.
    assert c.do("slices = atoll.make_virtual_device_set(); "
                "print({host for _ in range(4) for _, host in slices.add_slice(2).chips})") == "{0}"
    assert "no slice has 8" in c.do("print(told(lambda: slices.add_slice(8)))")
    assert c.do("x = doubled(x); print(float(x.sum()))") == "8192.0"
    p = drain("drain", "1", "--timeout=0.5")
    assert p.returncode == 1 and "DEADLINE_EXCEEDED" in p.stderr and "--force" in p.stderr, p.stderr
    assert re.search(rf"client \d+ \(process {c.process.pid}, .*\): \d+ arrays, 16.00K", p.stdout), p.stdout
    c.do("del x")
    p = drain("drain", "1")
    assert p.returncode == 0 and p.stdout.endswith("host 1 is drained\n"), p.stdout + p.stderr
    pod.wait_for(lambda s: not os.path.exists(f"/proc/{pid}"), 10)
    # What was on host 0 is there; programs that come meanwhile work; elastic programs see one slice.
    assert c.do("print(float(y.sum()))") == "2048.0"
    assert "DATA_LOSS" in c.do("print(told(lambda: put([4]).block_until_ready()))")
    with Client(pod) as late:
      assert late.do("print(float(doubled(put([0, 1])).sum()))") == "8192.0"
      try:
        import pathwaysutils as _
      except ImportError:
        pass
      else:
        assert late.do("from pathwaysutils.elastic import elastic; print(set(elastic.get_active_slice_indices("
                       "{i: devices[4 * i:4 * i + 4] for i in range(2)})))") == "{0}"
      assert pod.host(1)["state"] == "drained" and pod.status()["state"] == "up"
      time.sleep(1)
      assert pod.host(1)["state"] == "drained", "it was started again"
      assert drain("undrain", "1").returncode == 0
      pod.wait_until_back(1, pid)
      assert late.do("print(float(doubled(put(range(8))).sum()))") == "32768.0"
      assert late.do("print(float(doubled(put([7])).sum()))") == "4096.0"
    # By force: what is there is told, and gone.
    c.do("x = put([4, 5, 6, 7]); z = doubled(x); z.block_until_ready()")
    p = drain("drain", "1", "--force")
    assert p.returncode == 0 and re.search(r"host 1 loses:\n  client \d+ .*: \d+ arrays, 64.00K\n", p.stdout), p.stdout
    assert "DATA_LOSS" in c.do("print(told(lambda: np.asarray(z)))")
    assert drain("drain", "--undo", "1").returncode == 0
    pod.wait_for(lambda s: s["state"] == "up" and state(1, "up")(s))


def test_what_cannot_be_drained(pod):
  for words, what in ((["9"], "there is no host 9: the pod has hosts 0 to 1"), (["x"], "which host?"), ([], "which host?"),
                      (["1", "--force", "--undo"], "take one"), (["1", "--wait"], "unknown option --wait")):
    p = atoll("pod", "drain", *words, ATOLL_POD=pod.address)
    assert p.returncode == 2 and what in p.stderr, p.stderr
  assert pod.status()["state"] == "up"
