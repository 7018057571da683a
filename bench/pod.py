#!/usr/bin/env python3
"""One controller over the processes of this machine (`atoll pod up`) beside equal processes and one process.

  bench/pod.py [--build build/release] [--hosts 4] [--rounds 9] [--only NAME,..] [--ray PYTHON] [--monarch PYTHON]
  bench/pod.py --count [--target v5p:16x16x16] [--shards 1,64,1024,4096]

All take turns, each measure in every round; printed are the best and the median of the rounds, ratios, and the
targets. The machine has to have a core for each of them to say much about more than dispatch: the load is printed.

  chain     128 launches in a row, each on what the one before made: without and with an all-reduce over all chips
  program   the same 128 as one traced program (atoll.program)
  reshard   device_put of 64 MiB from the chips of the first half of the hosts, cut along one axis, to those of the other
            half, cut along the other; GB/s
  hop       from the end of a program on the first host to the start of the next on the last one (jit, device_put,
            jit), of 1 KiB and 1 MiB: a chain of hops less what its programs take alone
  get       a step, then device_get of 1 KiB
  move      device_put and device_get of 64 MiB, and device_put from chip to chip; beside memcpy and sockets
  stages    2, 3, 4 stages, each on a chip of a host of its own: launched without waiting, and one after the other
  others    Ray's compiled graph and Monarch's call, where --ray and --monarch name a Python that has them

--count: what a client sends for a launch, by the number of its shards, and what that costs it.
"""
import argparse
import json
import os
import pathlib
import select
import socket
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
CHIPS = 4  # of the target, v5e:2x2
DEEP, HOPS, MICRO = 128, 32, 16
MIB = 1 << 20
PATIENCE = 120  # seconds for a measure


# ---- In a process of its own: what is measured there
def timed(f):
  begin = time.perf_counter()
  f()
  return time.perf_counter() - begin


class Client:
  """Measures; each call is one round and returns seconds (or bytes a second)."""

  def __init__(self):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    self.jax, self.np, self.devices = jax, np, jax.devices()
    n = len(self.devices)
    mesh = Mesh(np.array(self.devices), ("x",))
    cut = NamedSharding(mesh, P("x"))
    over = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    self.steps = {"plain": over(lambda v: v + 1), "all-reduce": over(lambda v: jax.lax.psum(v, "x") / n + 1)}
    self.start = jax.make_array_from_callback((n, 32), cut, lambda i: np.zeros((n, 32), np.float32)[i])
    for f in self.steps.values():
      f(self.start).block_until_ready()
    self.programs = {}
    self.whole = lambda v: jax.device_get(v)
    if jax.process_count() > 1:
      return
    # A loop over scalars: its time does not depend on caches.
    work = lambda turns: lambda v: v + jax.lax.fori_loop(0, turns, lambda i, s: jnp.sin(s) + 1, v[0]) * 1e-9
    self.work, self.light = jax.jit(work(4000)), jax.jit(work(1))
    self.ends = [self.devices[0], self.devices[-1]]
    for f in (self.work, self.light):
      for d in self.devices:
        for size in (256, MIB // 4):
          f(jax.device_put(np.zeros(size, np.float32), d)).block_until_ready()

  def chain(self, name):
    x, f = self.start, self.steps[name]
    def run():
      y = x
      for _ in range(DEEP):
        y = f(y)
      y.block_until_ready()
    return timed(run) / DEEP

  def program(self, name):
    if name not in self.programs:
      import atoll
      f = self.steps[name]
      def many(v):
        for _ in range(DEEP):
          v = f(v)
        return v
      self.programs[name] = atoll.program(many)
      self.programs[name](self.start).block_until_ready()
    return timed(lambda: self.programs[name](self.start).block_until_ready()) / DEEP

  def reshard_rate(self, size):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from atoll import _reshard
    _reshard.install()
    half, side = len(self.devices) // 2, int((size / 4) ** .5)
    at = [NamedSharding(Mesh(self.np.array(d), ("x",)), s)
          for d, s in ((self.devices[:half], P("x")), (self.devices[half:], P(None, "x")))]
    x = self.jax.device_put(self.np.ones((side, side), self.np.float32), at[0]).block_until_ready()
    return size / min(timed(lambda: self.jax.device_put(x, at[1]).block_until_ready()) for _ in range(3))

  def moving(self, f, size, moves):
    """A chain of f, on both ends in turn or on one."""
    x = self.jax.device_put(self.np.zeros(size // 4, self.np.float32), self.ends[0]).block_until_ready()
    def run():
      y = x
      for i in range(HOPS):
        y = f(y)
        if moves:
          y = self.jax.device_put(y, self.ends[1 - i % 2])
      y.block_until_ready()
    return timed(run) / HOPS

  def hop(self, size):
    alone, moved = (min(self.moving(self.work, size, moves) for _ in range(3)) for moves in (False, True))
    return moved - alone

  def light_hop(self, size):
    return self.moving(self.light, size, True)

  def transfer(self, size):
    return self.moving(lambda y: y, size, True)

  def get(self):
    x = self.jax.device_put(self.np.zeros(256, self.np.float32), self.ends[1]).block_until_ready()
    times = []
    for _ in range(20):
      times.append(timed(lambda: self.jax.device_get(self.light(x))))
    return statistics.median(times)

  def get_in_order(self):
    """The floor: a step that somebody waits for."""
    x = self.jax.device_put(self.np.zeros(256, self.np.float32), self.ends[1]).block_until_ready()
    return statistics.median([timed(lambda: self.light(x).block_until_ready()) for _ in range(20)])

  def put_rate(self, size):
    a = self.np.ones(size // 4, self.np.float32)
    self.jax.device_put(a, self.ends[1]).block_until_ready()
    return size / min(timed(lambda: self.jax.device_put(a, self.ends[1]).block_until_ready()) for _ in range(3))

  def get_rate(self, size):
    best = 9e9
    for _ in range(3):  # an array keeps what was fetched once
      x = self.light(self.jax.device_put(self.np.ones(size // 4, self.np.float32), self.ends[1])).block_until_ready()
      best = min(best, timed(lambda: self.np.asarray(x)))
    return size / best

  def across_rate(self, size):
    x = self.jax.device_put(self.np.ones(size // 4, self.np.float32), self.ends[0]).block_until_ready()
    return size / min(timed(lambda: self.jax.device_put(x, self.ends[1]).block_until_ready()) for _ in range(3))

  def memcpy_rate(self, size, new):
    a, b = self.np.ones(size // 4, self.np.float32), self.np.zeros(size // 4, self.np.float32)
    return size / min(timed(lambda: a.copy() if new else self.np.copyto(b, a)) for _ in range(3))

  def stages(self, count, wait):
    """MICRO pieces through so many stages; seconds a piece."""
    at = [self.devices[i * len(self.devices) // count] for i in range(count)]
    pieces = [self.jax.device_put(self.np.zeros(256, self.np.float32), at[0]) for _ in range(MICRO)]
    self.jax.block_until_ready(pieces)
    def run():
      out = []
      for p in pieces:
        for s, d in enumerate(at):
          p = self.work(self.jax.device_put(p, d) if s else p)
          if wait:
            p.block_until_ready()
        out.append(p)
      self.jax.block_until_ready(out)
    return timed(run) / MICRO


def worker():
  out, sys.stdout = sys.stdout, sys.stderr
  client = Client()
  print("ready", file=out, flush=True)
  for line in sys.stdin:
    name, *args = json.loads(line)
    print(json.dumps(getattr(client, name)(*args)), file=out, flush=True)
  os._exit(0)


# ---- The processes that take turns
class Group:
  """One client, or equal processes that measure together; the first one's time counts."""

  def __init__(self, name, commands):
    self.name = name
    self.processes = [subprocess.Popen(c, env=e, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for c, e in commands]
    for p in self.processes:
      if p.stdout.readline() != "ready\n":
        sys.exit(f"{name}: the process ended")

  def ask(self, *what):
    for p in self.processes:
      p.stdin.write(json.dumps(what) + "\n")
      p.stdin.flush()
    return [self.answer(p) for p in self.processes][0]

  def answer(self, p):
    there = select.select([p.stdout], [], [], PATIENCE)[0]
    line = p.stdout.readline() if there else ""
    if not line:
      sys.exit(f"{self.name}: the process {'ended' if there else f'has not answered in {PATIENCE} s'}")
    return json.loads(line)

  def end(self):
    for p in self.processes:
      p.stdin.close()
    for p in self.processes:
      p.wait()


def groups(options):
  library = options.build / "libatoll.so"
  env = {k: v for k, v in os.environ.items() if k not in ("ATOLL_POD", "JAX_PLATFORMS", "TPU_PROCESS_ADDRESSES")}
  env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TOP / "python"), env.get("PYTHONPATH"))))
  env.update(TPU_LIBRARY_PATH=str(library), ATOLL_LIBRARY=str(library), ATOLL_TARGET=f"v5e:2x{CHIPS // 2}")
  me = [sys.executable, __file__, "--worker"]
  pods = {f"pod of {n}": n for n in dict.fromkeys((options.hosts, 1))}
  found = [Group(name, [([str(options.build / "atoll"), "pod", "up", f"--hosts={n}", "--target=" + env["ATOLL_TARGET"], "--", *me],
                         env)]) for name, n in pods.items()]
  ports = [socket.create_server(("localhost", 0)) for _ in range(CHIPS)]
  addresses = ",".join(f"localhost:{s.getsockname()[1]}" for s in ports)
  for s in ports:
    s.close()
  found.append(Group("equals", [(me, {**env, "TPU_PROCESS_ADDRESSES": addresses, "CLOUD_TPU_TASK_ID": str(i)})
                                for i in range(CHIPS)]))
  found.append(Group("one process", [(me, env)]))
  return found


SINK = """
import socket, sys
s = socket.socket(socket.AF_UNIX if sys.argv[1] == "unix" else socket.AF_INET)
s.connect(sys.argv[2] if sys.argv[1] == "unix" else ("localhost", int(sys.argv[2])))
size = int(sys.argv[3])
b = memoryview(bytearray(size))
while True:
  at = 0
  while at < size:
    n = s.recv_into(b[at:])
    if not n: sys.exit()
    at += n
  s.send(b"x")
"""


class Socket:
  """A process that takes `size` bytes and says so."""

  def __init__(self, kind, size):
    self.data = bytes(size)
    at = f"/tmp/bench-pod-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    listener.bind(at if kind == "unix" else ("localhost", 0))
    listener.listen()
    self.process = subprocess.Popen([sys.executable, "-c", SINK, kind, at if kind == "unix" else str(listener.getsockname()[1]),
                                     str(size)])
    self.peer = listener.accept()[0]
    listener.close()
    if kind == "unix":
      os.unlink(at)

  def rate(self):
    def once():
      self.peer.sendall(self.data)
      self.peer.recv(1)
    return len(self.data) / min(timed(once) for _ in range(3))

  def end(self):
    self.peer.close()
    self.process.wait()


RAY = """
import os, sys, time
os.environ.update(RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0")
import ray, numpy as np
from ray.dag import InputNode
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=200 << 20)
@ray.remote
class Host:
  def step(self, v): return v + 1
a, b = Host.remote(), Host.remote()
x = np.zeros(256, np.float32)
ray.get(a.step.remote(x))
with InputNode() as i: one = a.step.bind(i)
with InputNode() as i: two = b.step.bind(a.step.bind(i))
out = {}
def best(name, f, n=200):
  for _ in range(20): f()
  t = []
  for _ in range(n):
    begin = time.perf_counter(); f(); t.append(time.perf_counter() - begin)
  out[name] = (min(t), sorted(t)[n // 2])
best("actor call and get", lambda: ray.get(a.step.remote(x)))
c = one.experimental_compile()
best("compiled graph, one actor", lambda: ray.get(c.execute(x)))
c.teardown()
c = two.experimental_compile()
best("compiled graph, two actors", lambda: ray.get(c.execute(x)))
c.teardown()
import json
print(json.dumps(out))
"""

MONARCH = """
import json, time
from monarch.actor import Actor, endpoint, this_host
class Host(Actor):
  @endpoint
  def step(self, v): return v + 1
out = {}
for n in (1, 4):
  procs = this_host().spawn_procs({"hosts": n})
  h = procs.spawn("h", Host)
  h.step.call(1).get()
  t = []
  for _ in range(200):
    begin = time.perf_counter(); h.step.call(1).get(); t.append(time.perf_counter() - begin)
  out[f"call of {n}"] = (min(t), sorted(t)[100])
print(json.dumps(out), flush=True)
import os; os._exit(0)
"""


def other(name, python, code):
  if not python:
    return f"{name}: missing (--{name.lower()} names a Python that has it)"
  try:
    p = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=240)
  except (OSError, subprocess.TimeoutExpired) as e:
    return f"{name}: missing ({e})"
  if p.returncode:
    return f"{name}: missing ({p.stderr.strip().splitlines()[-1][:150] if p.stderr.strip() else p.returncode})"
  return {f"{name}, {k}": v for k, v in json.loads(p.stdout.splitlines()[-1]).items()}


# ---- Rounds and tables
def rounds(plan, count):
  """plan: {row: call}; each once in every round."""
  found = {k: [] for k in plan}
  for f in plan.values():
    f()
  for _ in range(count):
    for k, f in plan.items():
      found[k].append(f())
  return found


def pick(values, rate=False):
  return (max if rate else min)(values), statistics.median(values)


def table(title, found, unit, scale, rate=False):
  print(f"\n{title:48}{'best':>10}{'median':>10}  {unit}")
  picked = {k: pick(v, rate) for k, v in found.items()}
  for k, v in picked.items():
    print(f"{k:48}{v[0] * scale:10.2f}{v[1] * scale:10.2f}")
  return picked


def verdict(what, value, target, unit, most=True):
  good = value <= target if most else value >= target
  print(f"  {what}: {value:.2f} {unit}, target {'at most' if most else 'at least'} {target:.2f} {unit}"
        f"{'' if good else '   MISSED'}")


def compare(options):
  wanted = options.only.split(",") if options.only else ["chain", "program", "reshard", "hop", "get", "move", "stages", "others"]
  members = {g.name: g for g in groups(options)}
  pod, single = members[f"pod of {options.hosts}"], members["one process"]
  clients = {k: g for k, g in members.items() if k != "equals"}
  print(f"{options.rounds} rounds, load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
  say = lambda g, *what: lambda: g.ask(*what)
  us = 1e6
  if "chain" in wanted:
    t = table(f"launches in a row, {DEEP} deep, a launch", rounds({f"{k}, {s}": say(g, "chain", s)
                                                                   for s in ("plain", "all-reduce") for k, g in members.items()},
                                                                  options.rounds), "us", us)
    for s, most in (("plain", 25), ("all-reduce", 60)):
      mine, equals = t[f"{pod.name}, {s}"], t[f"equals, {s}"]
      verdict(f"{pod.name}, {s}, best", mine[0] * us, most, "us")
      verdict(f"{pod.name}, {s}, best of equal processes' best", mine[0] / equals[0], 1.3, "times")
      verdict(f"{pod.name}, {s}, median of equal processes' median", mine[1] / equals[1], 1.3, "times")
  if "program" in wanted:
    t = table(f"{DEEP} computations as a program, one of them", rounds({f"{pod.name}, {s}": say(pod, "program", s)
                                                                       for s in ("plain", "all-reduce")}, options.rounds), "us", us)
    for s, most in (("plain", 15), ("all-reduce", 40)):
      verdict(f"{pod.name}, {s}, best", t[f"{pod.name}, {s}"][0] * us, most, "us")
  if "reshard" in wanted:
    table("64 MiB, to other chips, cut the other way", rounds({k: say(g, "reshard_rate", 64 * MIB) for k, g in clients.items()},
                                                              options.rounds), "GB/s", 1e-9, True)
  if "hop" in wanted:
    plan = {f"{k}, {size} B, {what}": say(g, name, size) for size in (1024, MIB) for k, g in clients.items()
            for what, name in (("end to start", "hop"), ("device_put alone, in a row", "transfer"),
                              ("programs of nothing, a hop in all", "light_hop"))}
    plan["memcpy of 1 MiB"] = lambda: MIB / single.ask("memcpy_rate", MIB, True)
    t = table("A on the first chip, device_put, B on the last", rounds(plan, options.rounds), "us", us)
    for size, copy in ((1024, 0), (MIB, t["memcpy of 1 MiB"][0])):
      for i, which in enumerate(("best", "median")):
        verdict(f"{pod.name}, {size} B, end of A to start of B less a memcpy, {which}",
                (t[f"{pod.name}, {size} B, end to start"][i] - copy) * us, 40, "us")
  if "get" in wanted:
    plan = {f"{k}, {what}": say(g, name) for k, g in clients.items()
            for what, name in (("a step and device_get of 1 KiB", "get"), ("a step and a wait", "get_in_order"))}
    t = table("from the call to the value", rounds(plan, options.rounds), "us", us)
    for i, what in enumerate(("best", "median")):
      verdict(f"{pod.name}, {what}", t[f"{pod.name}, a step and device_get of 1 KiB"][i] * us, 100, "us")
  if "move" in wanted:
    for size in (MIB, 64 * MIB):
      plan = {f"{k}, {what}": say(g, name, size) for k, g in clients.items()
              for what, name in (("device_put", "put_rate"), ("device_get", "get_rate"), ("chip to chip", "across_rate"))}
      plan["memcpy"] = say(single, "memcpy_rate", size, False)
      plan["memcpy to new memory"] = say(single, "memcpy_rate", size, True)
      sockets = {kind: Socket(kind, size) for kind in ("unix", "tcp")}
      plan.update({f"{kind} socket": s.rate for kind, s in sockets.items()})
      t = table(f"{size // MIB} MiB", rounds(plan, options.rounds), "GB/s", 1e-9, True)
      for s in sockets.values():
        s.end()
      for what in ("device_put", "device_get", "chip to chip"):
        for copy in ("memcpy", "memcpy to new memory"):
          verdict(f"{pod.name}, {what}, of {copy} (medians)", t[f"{pod.name}, {what}"][1] / t[copy][1], 0.8, "times", False)
  if "stages" in wanted:
    plan = {f"{k}, {n} stages, {'one after the other' if wait else 'without waiting'}": say(g, "stages", n, wait)
            for n in (2, 3, 4) for k, g in clients.items() for wait in (False, True)}
    t = table(f"stages, {MICRO} pieces, a piece", rounds(plan, options.rounds), "us", us)
    for k in clients:
      print(f"  {k}: one after the other takes " + ", ".join(
          f"{t[f'{k}, {n} stages, one after the other'][1] / t[f'{k}, {n} stages, without waiting'][1]:.2f} ({n})" for n in (2, 3, 4))
          + " times as long")
  for g in members.values():
    g.end()
  if "others" in wanted:
    print(f"\n{'others':48}{'best':>10}{'median':>10}  us")
    for said in (other("Ray", options.ray, RAY), other("Monarch", options.monarch, MONARCH)):
      if isinstance(said, str):
        print(said)
        continue
      for k, v in said.items():
        print(f"{k:48}{v[0] * us:10.2f}{v[1] * us:10.2f}")


# ---- What a client sends
COUNT = """
import json, os, subprocess, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices, launches = jax.devices(), int(sys.argv[3])
def sent():
  out = subprocess.run([sys.argv[1], "pod", "status", "--json"], capture_output=True, text=True, check=True).stdout
  (c,) = [c for c in json.loads(out)["clients"] if c["pid"] == os.getpid()]
  return c["messages"], c["bytes"]
for n in map(int, sys.argv[2].split(",")):
  cut = NamedSharding(Mesh(np.array(devices[:n]), ("x",)), P("x"))
  f = jax.jit(lambda v: v + 1, in_shardings=cut, out_shardings=cut)
  x = f(jax.jit(lambda: jnp.zeros(n, jnp.float32), out_shardings=cut)())
  x.block_until_ready()
  before, cpu = sent(), time.process_time()
  for _ in range(launches): x = f(x)
  cpu = time.process_time() - cpu
  x.block_until_ready()
  after = sent()
  assert (np.asarray(x) == launches + 1).all()
  print(json.dumps([n, *((b - a) / launches for a, b in zip(before, after)), cpu / launches * 1e6]), flush=True)
"""


def count(build, target, shards, hosts, launches=20):
  """[shards, messages a launch, bytes a launch, CPU us a launch] for each number of shards."""
  env = {k: v for k, v in os.environ.items() if k not in ("ATOLL_TARGET", "JAX_PLATFORMS")}
  env["TPU_LIBRARY_PATH"] = str(build / "libatoll.so")
  atoll = str(build / "atoll")
  p = subprocess.run([atoll, "pod", "up", f"--hosts={hosts}", f"--target={target}", "--", sys.executable, "-c", COUNT, atoll, shards,
                      str(launches)], env=env, capture_output=True, text=True, timeout=300)
  if p.returncode:
    raise SystemExit(p.stdout + p.stderr)
  return [json.loads(line) for line in p.stdout.splitlines()]


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--build", type=pathlib.Path, default=TOP / "build" / "release")
  parser.add_argument("--hosts", type=int, default=4)
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--only", default="")
  parser.add_argument("--ray", default="")
  parser.add_argument("--monarch", default="")
  parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
  parser.add_argument("--count", action="store_true")
  parser.add_argument("--target", default="v5p:16x16x16")
  parser.add_argument("--shards", default="1,64,1024,4096")
  options = parser.parse_args()
  if options.worker:
    return worker()
  if not options.count:
    return compare(options)
  same = True
  for hosts in dict.fromkeys((options.hosts, 1)):
    print(f"{options.target}, {hosts} host{'s' * (hosts > 1)}: {'shards':>8}{'messages':>10}{'bytes':>8}{'CPU us':>10}  a launch")
    rows = count(options.build, options.target, options.shards, hosts)
    for row in rows:
      print(" " * (len(options.target) + len(str(hosts)) + 9) + f"{row[0]:8}{row[1]:10.2f}{row[2]:8.1f}{row[3]:10.1f}")
    same &= len({tuple(r[1:3]) for r in rows}) == 1
  print("the same for all numbers of shards" if same else "DIFFERS with the number of shards")
  return not same


if __name__ == "__main__":
  sys.exit(main())
