"""`atoll pod up --ray`: the hosts of a pod are processes that Ray starts and watches on the nodes of its cluster.

Each slice of the target is a placement group, each host an actor in it that starts `atoll host`, watches it and starts
it again. Where Ray loses a node, the pod has lost that host; Ray makes its actor anew on another node that has room, or
on that one once it is back. The controller runs beside this program, and Ray ends all actors with it, however it ends.
Ray carries no arrays and no programs: hosts, clients and the controller talk to each other directly.
"""

import argparse
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

_FIRST_DELAY, _MOST_RESTARTS, _MINUTE = 0.5, 5, 60.0
_TELL = 10.0


def delay(starts, now):
  """How long a host that has been started again at these times waits for the next time."""
  recent = [t for t in starts if now - t < _MINUTE]
  if len(recent) < _MOST_RESTARTS:
    return _FIRST_DELAY * 2**len(recent)
  return recent[-_MOST_RESTARTS] + _MINUTE - now


def slices(target, hosts):
  """How many hosts each placement group has: those of one slice, where hosts are of one."""
  count = 0
  for part in target.split(","):
    some, star, _ = part.partition("*")
    count += int(some) if star and some.isdigit() else 1
  return [hosts // count] * count if count and hosts % count == 0 else [hosts]


class _Process:
  """`atoll host` as a child of an actor."""

  def __init__(self, place, plan):
    self.place, self.plan = place, plan
    self.child, self.starts, self.ended, self.why = None, [], False, ""
    self.token = os.memfd_create("token", 0)  # leaves no file
    os.fchmod(self.token, 0o600)
    os.write(self.token, plan["token"].encode())

  def command(self):
    import ray

    here = ray.util.get_node_ip_address()
    listen = f"[{here}]:0" if ":" in here else f"{here}:0"
    return [self.program(), "host", f"--controller={self.plan['controller']}", f"--listen={listen}", f"--pod={listen}",
            f"--place={self.place}"]

  def program(self):
    if os.access(self.plan["atoll"], os.X_OK):
      return self.plan["atoll"]
    try:
      import atoll
      own = os.path.join(os.path.dirname(atoll.__file__), "atoll")
      if os.access(own, os.X_OK):
        return own
    except ImportError:
      pass
    raise FileNotFoundError(f"no {self.plan['atoll']} on this node, and no package atoll\n"
                            "hint: install the wheel on every node, or have the same files there")

  def say(self, text):
    print(f"atoll host {self.place}: {text}", file=sys.stderr, flush=True)

  def rests(self):
    """Has the host been drained, and is the pod there?"""
    p = subprocess.run([self.program(), "pod", "status", "--json", f"--pod={self.plan['controller']}"],
                       env={**os.environ, **self.plan["env"], "ATOLL_POD_TOKEN_FILE": f"/dev/fd/{self.token}"},
                       pass_fds=[self.token], capture_output=True, text=True, check=False)
    hosts = [] if p.returncode or self.ended else json.loads(p.stdout)["hosts"]
    return any(h["host"] == self.place and h["state"] == "drained" for h in hosts)

  def watch(self):
    """Of the thread that starts the child, which ends with it."""
    while not self.ended:
      self.child = subprocess.Popen(
          self.command(), env={**os.environ, **self.plan["env"], "ATOLL_POD_TOKEN_FILE": f"/dev/fd/{self.token}"},
          pass_fds=[self.token], preexec_fn=_end_with_parent)
      code = self.child.wait()
      if not code and self.rests():
        self.say(f"process {self.child.pid} has ended: host {self.place} is drained")
        while self.rests():
          time.sleep(1)
        continue
      if self.ended or not code:
        return  # the pod has ended
      wait = delay(self.starts, time.monotonic())
      self.why = f"exited with status {code}" if code > 0 else f"was ended by signal {-code}"
      self.say(f"process {self.child.pid} {self.why}; it starts again in {wait:.1f} s")
      time.sleep(wait)
      self.starts.append(time.monotonic())

  def stop(self):
    self.ended = True
    if self.child:
      self.child.terminate()


def _end_with_parent():
  ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Host:
  """The actor of a host."""

  def __init__(self, place, plan):
    self.process = _Process(place, plan)
    threading.Thread(target=self._watch, daemon=True).start()

  def _watch(self):
    try:
      self.process.watch()
    except Exception as e:  # it is said in the log of the actor, and to who asks
      self.process.why = str(e)
      self.process.say(str(e))

  def state(self):
    """Where the host runs: its number, node, pid (0: none yet), restarts and why it last ended."""
    import ray

    child = self.process.child
    return {"host": self.process.place, "node": ray.util.get_node_ip_address(), "pid": child.pid if child else 0,
            "restarts": len(self.process.starts), "why": self.process.why}

  def stop(self):
    """Ends the host's process; it is not started again."""
    self.process.stop()


# ---- The driver
def _options(argv):
  p = argparse.ArgumentParser(prog="atoll pod up --ray", allow_abbrev=False)
  p.add_argument("--atoll", default="atoll")
  p.add_argument("--hosts", type=int, default=1)
  p.add_argument("--target", default=os.environ.get("ATOLL_TARGET", "v6e"))
  p.add_argument("--address", default="auto")
  p.add_argument("--listen", default="")
  p.add_argument("--cpus", type=float, default=1.0)
  p.add_argument("--json", action="store_true")
  argv, dash, command = (argv[:argv.index("--")], True, argv[argv.index("--") + 1:]) if "--" in argv else (argv, False, [])
  o = p.parse_args(argv)
  if dash and not command:
    p.error("no command behind --")
  o.command = command
  return o


def _token(folder):
  """The token of the pod and the file that it is in."""
  given = os.environ.get("ATOLL_POD_TOKEN_FILE", "")
  if given:
    with open(given) as f:
      return f.read(), given
  path = os.path.join(folder, "token")
  text = secrets.token_hex(32)
  with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
    f.write(text)
  return text, path


class Pod:
  """A controller here and its hosts as actors."""

  def __init__(self, options, folder):
    self.o = options
    self.text, self.token = _token(folder)
    self.env = {**os.environ, "ATOLL_POD_TOKEN_FILE": self.token}
    self.groups, self.actors, self.controller, self.address = [], [], None, ""

  def start_controller(self, listen):
    """Starts the controller at the address `listen`; SystemExit if it ends at once."""
    self.controller = subprocess.Popen(
        [self.o.atoll, "pod", "up", f"--wait-hosts={self.o.hosts}", f"--target={self.o.target}", f"--listen={listen}",
         "--json"], env=self.env, stdout=subprocess.PIPE, text=True, preexec_fn=_end_with_parent)
    said = self.controller.stdout.readline()
    if not said:
      raise SystemExit(self.controller.wait() or 1)  # it has said why
    self.address = json.loads(said)["pod"]

  def start_hosts(self):
    """Asks Ray for a placement group for each slice and an actor for each host; waits for none."""
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    pod = self.address.replace(":", "-")
    shares = slices(self.o.target, self.o.hosts)
    names = [f"atoll-{pod}-{i}" for i in range(len(shares))]
    of_place = [(g, b) for g, n in enumerate(shares) for b in range(n)]
    plan = {"controller": self.address, "token": self.text, "atoll": os.path.abspath(self.o.atoll),
            "env": {k: v for k, v in os.environ.items()
                    if k.startswith("ATOLL_") and k not in ("ATOLL_POD", "ATOLL_POD_TOKEN_FILE", "ATOLL_TARGET")}}
    for name, n in zip(names, shares):
      self.groups.append(placement_group([{"CPU": self.o.cpus}] * n, strategy="SPREAD", name=name))
    for place, (g, b) in enumerate(of_place):
      actor = ray.remote(Host).options(
          name=f"atoll-{pod}-host-{place}", max_restarts=-1, max_concurrency=4,
          num_cpus=self.o.cpus, scheduling_strategy=PlacementGroupSchedulingStrategy(self.groups[g], b))
      self.actors.append(actor.remote(place, plan))

  def status(self):
    """What `atoll pod status --json` says; {} where the controller does not answer."""
    p = subprocess.run([self.o.atoll, "pod", "status", "--json", f"--pod={self.address}"], env=self.env,
                       capture_output=True, text=True, check=False)
    return json.loads(p.stdout) if not p.returncode else {}

  def wait_until_up(self):
    """Waits until all hosts are there, and says who is missing; False: the controller has ended."""
    told = time.monotonic()
    while self.controller.poll() is None:
      status = self.status()
      if status.get("state") == "up":
        return True
      if time.monotonic() - told > _TELL:
        told = time.monotonic()
        self.tell_missing(status)
      time.sleep(0.2)
    return False

  def tell_missing(self, status):
    """Says on stderr, for each host that is not in `status`, why it is not there."""
    import ray

    there = {h["host"] for h in status.get("hosts", [])}
    for place, actor in enumerate(self.actors):
      if place in there:
        continue
      try:
        why = ray.get(actor.state.remote(), timeout=1)["why"] or "its process has not come yet"
      except ray.exceptions.GetTimeoutError:
        why = f"Ray has no node for it yet (it needs {self.o.cpus:g} CPU; `ray status`)"
      except ray.exceptions.RayError as e:
        why = str(e).splitlines()[0]
      print(f"atoll warning: host {place} is not there: {why}", file=sys.stderr, flush=True)

  def run(self):
    """The status of the command; 0 without one, once the pod has ended."""
    if not self.wait_until_up():
      return self.controller.wait()
    if not self.o.command:
      if self.o.json:
        print(json.dumps({"pod": self.address, "hosts": self.o.hosts, "token_file": self.token}), flush=True)
      else:
        print(f"ATOLL_POD={self.address}\nATOLL_POD_TOKEN_FILE={self.token}", flush=True)
      return self.controller.wait()
    library = os.path.join(os.path.dirname(os.path.abspath(self.o.atoll)), "libatoll.so")
    env = {**self.env, "ATOLL_POD": self.address}
    if os.access(library, os.R_OK):
      env.setdefault("TPU_LIBRARY_PATH", library)
    code = subprocess.run(self.o.command, env=env, check=False).returncode
    return 128 - code if code < 0 else code

  def stop(self):
    """Ends the hosts and the controller, waits for it, and gives back what Ray has lent."""
    import ray

    if self.controller and self.controller.poll() is None:
      self.controller.terminate()
    for actor in self.actors:
      actor.stop.remote()
    if self.controller:
      self.controller.wait()
    for actor in self.actors:
      ray.kill(actor, no_restart=True)
    for group in self.groups:
      ray.util.remove_placement_group(group)


def _check_cluster(address):
  """Ray itself takes minutes to say that nobody is there."""
  host, _, port = address.rpartition(":")
  if not host or not port.isdigit():
    return
  try:
    socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
  except OSError as e:
    sys.exit(f"atoll pod: no Ray cluster at {address}: {e}\nhint: `ray start --head` starts one; --address=A")


def main(argv):
  """Runs `atoll pod up --ray` with these arguments; returns its exit status."""
  o = _options(argv)
  try:
    import ray
  except ImportError:
    sys.exit("atoll pod: no ray in this Python\nhint: pip install ray, or PYTHON names an interpreter that has it")
  _check_cluster(o.address)
  try:
    ray.init(address=o.address, namespace="atoll", logging_level="warning")
  except ConnectionError as e:
    sys.exit(f"atoll pod: no Ray cluster: {str(e).splitlines()[0]}\nhint: `ray start --head` starts one; --address=A")
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  here = ray.util.get_node_ip_address()
  with tempfile.TemporaryDirectory(prefix="atoll-pod-") as folder:
    pod = Pod(o, folder)
    try:
      pod.start_controller(o.listen or (f"[{here}]:0" if ":" in here else f"{here}:0"))
      pod.start_hosts()
      return pod.run()
    except KeyboardInterrupt:
      return 130
    finally:
      pod.stop()
      ray.shutdown()


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
