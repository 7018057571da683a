"""Pods of this machine for tests: `atoll pod up` and programs on it."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

LIBRARY = os.environ.get("ATOLL_LIBRARY", "") or os.environ.get("TPU_LIBRARY_PATH", "")
ATOLL = str(Path(LIBRARY).parent / "atoll")
PACKAGE = str(Path(__file__).resolve().parents[2] / "python")


def environment(**more):
  """A user's: no pod, no target and no platform but those given."""
  own = {k: v for k, v in os.environ.items()
         if k not in ("ATOLL_POD", "ATOLL_TARGET", "JAX_PLATFORMS", "TPU_LIBRARY_PATH", "JAX_BACKEND_TARGET")}
  return {**own, "ATOLL_LIBRARY": LIBRARY, "ATOLL": ATOLL, **more}


def installed(folder):
  """PYTHONPATH of a user who has installed the package, with its entry point."""
  about = Path(folder) / "atoll-0.1.0.dist-info"
  about.mkdir(parents=True)
  (about / "METADATA").write_text("Metadata-Version: 2.1\nName: atoll\nVersion: 0.1.0\n")
  (about / "entry_points.txt").write_text("[jax_plugins]\natoll = atoll.plugin\n")
  return os.pathsep.join([PACKAGE, str(folder)])


def atoll(*words, timeout=120, **env):
  return subprocess.run([ATOLL, *words], env=environment(**env), capture_output=True, text=True, timeout=timeout)


def python(code, timeout=240, **env):
  return subprocess.run([sys.executable, "-c", code], env=environment(**env), capture_output=True, text=True,
                        timeout=timeout)


class Pod:
  """`atoll pod up` in the background."""

  def __init__(self, *options, **env):
    self.errors = []
    self.process = subprocess.Popen([ATOLL, "pod", "up", *options], env=environment(**env), stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)
    self.thread = threading.Thread(target=self._listen, daemon=True)
    self.thread.start()
    said = self.process.stdout.readline()
    assert "ATOLL_POD=" in said or '"pod"' in said, (said, self.errors)
    self.said = said.strip()
    self.address = re.search(r"[\d.\[\]:a-z]+:\d+", said.replace("ATOLL_POD=", "")).group()

  def _listen(self):
    for line in self.process.stderr:
      self.errors.append(line.rstrip())

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    if self.process.poll() is None:
      self.process.terminate()
    self.process.wait(30)

  def status(self):
    p = atoll("pod", "status", "--json", "--pod=" + self.address)
    assert not p.returncode, p.stderr
    return json.loads(p.stdout)

  def host(self, number):
    return next(h for h in self.status()["hosts"] if h["host"] == number)

  def wait_for(self, what, seconds=60):
    """Until what(status) holds; the status."""
    until = time.monotonic() + seconds
    while True:
      s = self.status()
      if what(s):
        return s
      assert time.monotonic() < until, (s, self.errors)
      time.sleep(0.1)

  def wait_until_back(self, number, pid, seconds=60):
    """Until another process is that host."""
    def back(s):
      return s["state"] == "up" and any(
          h["host"] == number and h["state"] == "up" and h["pid"] != pid for h in s["hosts"])
    return self.wait_for(back, seconds)
