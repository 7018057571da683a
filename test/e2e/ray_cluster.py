"""A Ray cluster of several nodes on this machine for tests: each node in a network and mount namespace of its own where
this user may make them, else all side by side."""

import os
import signal
import subprocess
import sys
import time

PYTHON = os.environ.get("AT_RAY_PYTHON", sys.executable)
PORT = 26379
# Whether there is a token of Ray's in the home folder does not matter here.
os.environ["RAY_AUTH_MODE"] = "disabled"
ENV = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_initial_delay_ms": "1000",
       "RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4"}


def why_not():
  """Why there is no Ray; "": there is."""
  p = subprocess.run([PYTHON, "-c", "import ray"], capture_output=True, text=True, check=False)
  return "" if not p.returncode else "no Ray (AT_RAY_PYTHON names an interpreter that has it)"


def ip(*words):
  return not subprocess.run(["ip", *words], stderr=subprocess.DEVNULL, check=False).returncode


class Cluster:
  """Drivers have to be at a node: `inside` says how."""

  def __init__(self, nodes):
    self.hub = f"atr{os.getpid() % 100000}"
    self.nodes = nodes
    self.apart = self._make()
    self.head = f"{self.address_of(0)}:{PORT}"

  def name(self, node):
    return f"{self.hub}n{node}"

  def address_of(self, node):
    return f"10.213.81.{node + 1}" if self.apart else "127.0.0.1"

  def _make(self):
    if os.geteuid() or not ip("netns", "add", self.hub):
      return False
    made = (ip("-n", self.hub, "link", "add", "bridge", "type", "bridge") and
            ip("-n", self.hub, "link", "set", "bridge", "up") and ip("-n", self.hub, "link", "set", "lo", "up") and
            ip("-n", self.hub, "addr", "add", "10.213.81.254/24", "dev", "bridge"))
    for node in range(self.nodes):
      name = self.name(node)
      made = (made and ip("netns", "add", name) and
              ip("-n", self.hub, "link", "add", f"n{node}", "type", "veth", "peer", "name", "eth", "netns", name) and
              ip("-n", self.hub, "link", "set", f"n{node}", "master", "bridge", "up") and
              ip("-n", name, "addr", "add", f"10.213.81.{node + 1}/24", "dev", "eth") and
              ip("-n", name, "link", "set", "eth", "up") and ip("-n", name, "link", "set", "lo", "up"))
    if not made:
      self._remove()
    return made

  def _remove(self):
    for node in range(self.nodes):
      ip("netns", "del", self.name(node))
    ip("netns", "del", self.hub)

  def inside(self, *words):
    """Words of a command at the first node."""
    if not self.apart:
      return list(words)
    return ["nsenter", "-n", "-m", "-t", str(self.processes(0)[0]), *words]

  def start(self, node):
    os.makedirs("/tmp/ray", exist_ok=True)
    ray = [PYTHON, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--disable-usage-stats",
           f"--node-ip-address={self.address_of(node)}", "--object-store-memory=80000000",
           *(["--head", f"--port={PORT}", "--include-dashboard=false"] if not node else [f"--address={self.head}"])]
    own = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp/ray && exec "$@"', "sh"]
    words = ["ip", "netns", "exec", self.name(node), *own, *ray] if self.apart else ray
    p = subprocess.run(words, env=ENV, capture_output=True, text=True, timeout=300, check=False)
    assert not p.returncode, p.stdout + p.stderr

  def processes(self, node):
    p = subprocess.run(["ip", "netns", "pids", self.name(node)], capture_output=True, text=True, check=False)
    return [int(n) for n in p.stdout.split()]

  def lose(self, node):
    """The machine is switched off."""
    ip("-n", self.name(node), "link", "set", "eth", "down")
    for pid in self.processes(node):
      try:
        os.kill(pid, signal.SIGKILL)
      except ProcessLookupError:
        pass
    while self.processes(node):
      time.sleep(0.05)
    ip("-n", self.name(node), "link", "set", "eth", "up")

  def __enter__(self):
    try:
      for node in range(self.nodes):
        self.start(node)
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *exception):
    if self.apart:
      for node in range(self.nodes):
        self.lose(node)
      self._remove()
    else:
      subprocess.run([PYTHON, "-m", "ray.scripts.scripts", "stop", "--force"], capture_output=True, check=False)
