#!/usr/bin/env python3
"""Simulated pods (`atoll pod up --simulate`) beside real ones, and beyond this machine.

  bench/pod_simulate.py --calibrate [--charges FILE]     what messages take of a real controller and of real hosts
  bench/pod_simulate.py --compare [--charges FILE]       simulated beside real pods of 2 and 4 hosts on this machine
  bench/pod_simulate.py [--only dispatch,depth,hide,model] [--hosts 2,8,32] [--plot DIR]
                                                         the experiments of docs/pod-simulation.md

--build names the build folder, --charges the file that calibration writes and simulations read, --bandwidth the
factors of the target's network that every experiment is done with (0.5,1,2).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
DEEP = 128  # computations in a row


# ---- In the process of a program on a pod: what is measured there
def clock():
  import atoll
  return atoll.virtual_time() or time.perf_counter()


def cpu_of(pid):
  """Seconds of CPU time of a process and all its threads."""
  return time.clock_gettime((~pid << 3) | 2)


class Decoder:
  """Blocks of a decoder, by hand: tensors cut over "m", examples over "d". Runs nowhere, so parameters are never filled."""

  def __init__(self, devices, shape, names, layers, width, hidden, examples, length=1024):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    self.jax = jax
    mesh = Mesh(np.array(devices).reshape(shape), names)
    ways = mesh.shape["m"]
    rows = tuple(n for n in names if n != "m")  # examples
    copies = int(np.prod([mesh.shape[n] for n in rows]))
    head = 128
    def block(x, w):
      qkv, out, up, down = w
      b, s, _ = x.shape
      q, k, v = jnp.split((x @ qkv).reshape(b, s, -1, 3 * head), 3, axis=-1)
      p = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k).astype(jnp.float32)).astype(x.dtype)
      x = x + jax.lax.psum(jnp.einsum("bhqk,bkhc->bqhc", p, v).reshape(b, s, -1) @ out, "m")
      return x + jax.lax.psum(jax.nn.gelu(x @ up) @ down, "m"), None
    def forward(w, x):
      return jax.lax.scan(lambda x, w: jax.checkpoint(block)(x, w), x, w)[0]
    def backward(w, x, g, sums):
      _, back = jax.vjp(forward, w, x)
      grads, gx = back(g)
      return gx, jax.tree.map(lambda a, b: a + b[None], sums, grads)
    def update(w, sums):
      return jax.tree.map(lambda a, b: a - 1e-3 * jax.lax.psum(b[0], rows).astype(a.dtype), w, sums)
    shapes = [((layers, width, 3 * width), P(None, None, "m")), ((layers, width, width), P(None, "m", None)),
              ((layers, width, hidden), P(None, None, "m")), ((layers, hidden, width), P(None, "m", None))]
    ws = tuple(p for _, p in shapes)
    gs = tuple(P(rows, *p) for _, p in shapes)
    xs = P(rows)
    on = lambda f, ins, outs: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False))
    self.forward, self.backward = on(forward, (ws, xs), xs), on(backward, (ws, xs, xs, gs), (xs, gs))
    self.update = on(update, (ws, gs), ws)
    zeros = lambda shape, spec: jax.jit(lambda: jnp.zeros(shape, jnp.bfloat16), out_shardings=NamedSharding(mesh, spec))()
    self.weights = tuple(zeros(s, p) for s, p in shapes)
    self.sums = tuple(zeros((copies, *s), P(rows, *p)) for s, p in shapes)
    self.rows = NamedSharding(mesh, xs)
    self.x = zeros((examples, length, width), xs)


def gpipe(stages, pieces):
  """A step: all microbatches forward, then all backward, then the update."""
  import jax
  def step(weights, sums, x):
    inputs = [[] for _ in stages]
    outs = []
    for m in range(pieces):
      y = x
      for i, s in enumerate(stages):
        y = jax.device_put(y, s.rows) if i else y
        inputs[i].append(y)
        y = s.forward(weights[i], y)
      outs.append(y)
    sums = list(sums)
    for m in range(pieces):
      g = outs[m]
      for i in reversed(range(len(stages))):
        g = jax.device_put(g, stages[i].rows) if i + 1 < len(stages) else g
        g, sums[i] = stages[i].backward(weights[i], inputs[i][m], g, sums[i])
    return [s.update(w, g) for s, w, g in zip(stages, weights, sums)]
  return step


def last_program():
  """Seconds that the chips took for the last program."""
  out = subprocess.run([os.environ["ATOLL"], "pod", "status", "--json"], capture_output=True, text=True, check=True).stdout
  last = json.loads(out)["simulated"]["programs"][-1]
  return (last["end_ns"] - last["begin_ns"]) * 1e-9


class Program:
  """Measures on the pod of this process; seconds."""

  def __init__(self, chips=None):
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    self.jax, self.np, self.devices = jax, np, jax.devices()[:chips]
    n = len(self.devices)
    mesh = Mesh(np.array(self.devices), ("x",))
    self.cut = NamedSharding(mesh, P("x"))
    one = {"plain": lambda v: v + 1, "all-reduce": lambda v: jax.lax.psum(v, "x") / n + 1}
    over = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    self.one = {k: over(f) for k, f in one.items()}
    self.many = {k: over(lambda v, f=f: jax.lax.fori_loop(0, DEEP, lambda i, v: f(v), v)) for k, f in one.items()}
    self.start = jax.jit(lambda: jax.numpy.zeros(n, jax.numpy.float32), out_shardings=self.cut)()

  def wait(self, y):
    """Until its first part is there: as many messages for any number of chips."""
    self.np.asarray(y.addressable_shards[0].data)

  def timed(self, f, rounds=3):
    self.wait(f())
    found = []
    for _ in range(rounds):
      begin = clock()
      self.wait(f())
      found.append(clock() - begin)
    return found

  def row(self, kind):
    y = self.start
    for _ in range(DEEP):
      y = self.one[kind](y)
    return y

  def opbyop(self, kind, rounds=3):
    return [t / DEEP for t in self.timed(lambda: self.row(kind), rounds)]

  def chained(self, kind, rounds=3):
    import atoll
    f = atoll.program(lambda x: self.repeat(x, kind))
    self.wait(f(self.start))
    return [t / DEEP for t in self.timed(lambda: f(self.start), rounds)]

  def repeat(self, x, kind):
    for _ in range(DEEP):
      x = self.one[kind](x)
    return x

  def fused(self, kind, rounds=3):
    return [t / DEEP for t in self.timed(lambda: self.many[kind](self.start), rounds)]

  def flowing(self, f, calls, rounds):
    """Seconds a computation where some calls are under way at a time."""
    self.wait(f())
    def run():
      for _ in range(calls):
        y = f()
      return y
    return [t / DEEP / calls for t in self.timed(run, rounds)]

  def opbyop_many(self, kind, rounds):
    return self.opbyop(kind, rounds)

  def chained_many(self, kind, rounds):
    import atoll
    f = atoll.program(lambda x: self.repeat(x, kind))
    return self.flowing(lambda: f(self.start), 16, rounds)

  def fused_many(self, kind, rounds):
    return self.flowing(lambda: self.many[kind](self.start), 16, rounds)

  def stages(self, count, rounds=15):
    import atoll
    jax = self.jax
    at = [self.devices[i * len(self.devices) // count] for i in range(count)]
    step = jax.jit(lambda v: v + 1)
    def run(x):
      for i, d in enumerate(at):
        x = step(jax.device_put(x, d) if i else x)
      return x
    f = atoll.program(run)
    x = jax.device_put(self.np.zeros(256, self.np.float32), at[0])
    return self.timed(lambda: f(x), rounds)

  def busy(self, every, turns):
    """Seconds of a computation of so many turns alone, and of one in a row of calls; on some chips of each host."""
    jax = self.jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    hosts, each = every
    per = len(self.devices) // hosts
    devices = [d for i, d in enumerate(self.devices) if i % per < each]
    mesh = Mesh(self.np.array(devices), ("x",))
    cut = NamedSharding(mesh, P("x"))
    n = len(devices)
    def one(v):
      w = jax.numpy.zeros((256, 256), jax.numpy.float32) + v[0]
      w = jax.lax.fori_loop(0, turns, lambda i, w: w @ w, w)
      return jax.lax.psum(v, "x") / n + w[0, 0]
    f = jax.jit(jax.shard_map(one, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    x = jax.jit(lambda: jax.numpy.zeros(n, jax.numpy.float32), out_shardings=cut)()
    self.wait(f(x))
    def row(k):
      y = x
      for _ in range(k):
        y = f(y)
      return y
    few, many = 8, 24
    a, b = min(self.timed(lambda: row(few), 2)), min(self.timed(lambda: row(many), 2))
    return last_program(), (b - a) / (many - few)

  def decoder(self, layers, width, hidden, ways, stages, pieces, examples, islands=1):
    """Seconds of a training step of a decoder: one after another as GPipe has it, on equal parts of the chips."""
    import atoll
    each = len(self.devices) // stages
    shape, names = ((each // ways, ways), ("d", "m")) if islands == 1 else ((islands, each // islands // ways, ways), ("i", "d", "m"))
    made = [Decoder(self.devices[i * each:(i + 1) * each], shape, names, layers // stages, width, hidden, examples // pieces)
            for i in range(stages)]
    f = atoll.program(gpipe(made, pieces))
    run = lambda: f([s.weights for s in made], [s.sums for s in made], made[0].x)[0][1]
    self.wait(run())
    return min(self.timed(run, 2))

  def cpu(self, mode, kind, pids, repeats=4):
    """CPU seconds a computation of each of these processes and of this one's thread."""
    import atoll
    f = {"opbyop": lambda: self.row(kind), "fused": lambda: self.many[kind](self.start)}.get(mode)
    if not f:
      g = atoll.program(lambda x: self.repeat(x, kind))
      f = lambda: g(self.start)
    self.wait(f())
    self.wait(f())
    best = None
    for _ in range(5):
      before = [cpu_of(p) for p in pids] + [time.process_time(), time.thread_time(), time.perf_counter()]
      for _ in range(repeats):
        self.wait(f())
      after = [cpu_of(p) for p in pids] + [time.process_time(), time.thread_time(), time.perf_counter()]
      took = [(b - a) / repeats / DEEP for a, b in zip(before, after)]
      best = took if best is None else [min(a, b) for a, b in zip(best, took)]
    return best

  def hops(self, pids, count=64):
    """CPU seconds a copy of each of these processes: from the first chip to the last and back, traced."""
    import atoll
    ends = [self.devices[0], self.devices[-1]]
    def run(x):
      for i in range(count):
        x = self.jax.device_put(x, ends[1 - i % 2])
      return x
    f = atoll.program(run)
    x = self.jax.device_put(self.np.zeros(8, self.np.float32), ends[0])
    for _ in range(3):
      self.wait(f(x))
    before = [cpu_of(p) for p in pids]
    for _ in range(8):
      self.wait(f(x))
    return [(cpu_of(p) - b) / 8 / count for p, b in zip(pids, before)]

  def text(self, kind):
    return self.one[kind].lower(self.start).as_text()


def worker():
  out, sys.stdout = sys.stdout, sys.stderr
  sys.path.insert(0, str(TOP / "python"))
  programs = {}
  for line in sys.stdin:
    chips, name, *args = json.loads(line)
    if chips not in programs:
      programs[chips] = Program(chips)
    print(json.dumps(getattr(programs[chips], name)(*args)), file=out, flush=True)
  os._exit(0)


# ---- Pods
class Pod:
  """A pod and a program on it that does what it is told."""

  def __init__(self, options, target, hosts, *more):
    env = {k: v for k, v in os.environ.items() if k not in ("ATOLL_POD", "ATOLL_TARGET", "JAX_PLATFORMS")}
    env.update(TPU_LIBRARY_PATH=str(options.build / "libatoll.so"), ATOLL_LIBRARY=str(options.build / "libatoll.so"))
    self.atoll = str(options.build / "atoll")
    self.errors = tempfile.TemporaryFile("w+")
    self.up = subprocess.Popen([self.atoll, "pod", "up", f"--hosts={hosts}", f"--target={target}", *more], env=env,
                               stdout=subprocess.PIPE, stderr=self.errors, text=True)
    line = self.up.stdout.readline()
    if "=" not in line:
      self.errors.seek(0)
      sys.exit("no pod: " + self.errors.read())
    self.env = {**env, "ATOLL": self.atoll, "ATOLL_POD": line.strip().partition("=")[2]}
    self.worker = subprocess.Popen([sys.executable, __file__, "--worker"], env=self.env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=self.errors, text=True)

  def ask(self, name, *args, chips=None):
    self.worker.stdin.write(json.dumps([chips, name, *args]) + "\n")
    self.worker.stdin.flush()
    line = self.worker.stdout.readline()
    if not line:
      self.errors.seek(0)
      sys.exit(f"{name}: the program ended\n" + self.errors.read()[-2000:])
    return json.loads(line)

  def status(self):
    return json.loads(subprocess.run([self.atoll, "pod", "status", "--json"], env=self.env, capture_output=True, text=True).stdout)

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.worker.stdin.close()
    self.worker.wait()
    self.up.terminate()
    self.up.wait()


# Nanoseconds that client and controller take where their jitter is not to be seen.
STEADY = {"client_message": 20000, "controller_message": 2000, "controller_host": 300}


def simulated(options, target, hosts, *more, steady=False):
  if steady:
    charges = json.loads(options.charges.read_text()) if options.charges.exists() else None
    if charges is None:
      sys.exit(f"{options.charges} is not there\nhint: --calibrate first")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
      f.write(json.dumps({**charges, **STEADY}))
      f.flush()
      return Pod(options, target, hosts, "--simulate", f"--charges={f.name}", *more)
  charges = [f"--charges={options.charges}"] if options.charges.exists() else []
  return Pod(options, target, hosts, "--simulate", *charges, *more)


# ---- What messages take
def estimated(options, target, program):
  """Seconds of a lowered program."""
  with tempfile.NamedTemporaryFile("w", suffix=".mlir") as f:
    f.write(program)
    f.flush()
    out = subprocess.run([str(options.build / "atoll"), "estimate", "--json", f"--target={target}", f.name], capture_output=True,
                         text=True, check=True).stdout
  return json.loads(out)["seconds"]


def calibrate(options):
  """From real pods of one and two hosts. A launch is a message and, of what it replaces, a drop."""
  seen = {}
  for hosts, target in ((1, "v5e:1x1"), (1, "v5e:2x2"), (2, "v5e:2x1"), (2, "v5e:2x2")):
    with Pod(options, target, hosts) as p:
      pids = [h["pid"] for h in p.status()["hosts"]] + [p.up.pid]
      for mode, kind in (("opbyop", "plain"), ("chained", "plain"), ("chained", "all-reduce"), ("fused", "all-reduce")):
        r = p.ask("cpu", mode, kind, pids)
        seen[hosts, target, mode, kind] = {"host": statistics.mean(r[:hosts]), "controller": r[hosts], "client": r[-3], "thread": r[-2],
                                           "wall": min(p.ask(mode, kind, 25))}
      if hosts == 2:
        seen["copy"] = statistics.mean(p.ask("hops", pids)[:2])
      text = p.ask("text", "all-reduce")
      seen[hosts, target, "estimate"] = estimated(options, "cpu", text)
  one, four = seen[1, "v5e:1x1", "chained", "plain"], seen[1, "v5e:2x2", "chained", "plain"]
  opbyop, two = seen[1, "v5e:1x1", "opbyop", "plain"], seen[2, "v5e:2x1", "opbyop", "plain"]
  chip = max(0, (four["host"] - one["host"]) / 3)
  launch = max(0, one["host"] - chip)
  message = max(0, (opbyop["host"] - one["host"]) / 2)
  # What is left of a collective's time beside the program, with one chip a host and with two, on two cores.
  each = lambda target: statistics.mean(seen[2, target, m, "all-reduce"]["wall"] for m in ("chained", "fused"))
  per1 = max(0, each("v5e:2x1") - seen[2, "v5e:2x1", "estimate"])
  per2 = max(0, each("v5e:2x2") / 2 - seen[2, "v5e:2x2", "estimate"])
  host_meet = min(max(0, 2 * (per1 - per2)), per1)
  charges = {"client_message": 0, "client_beside": max(0, opbyop["client"] - opbyop["thread"]) / 2, "controller_message": 0,
             "controller_host": 0, "controller_send": max(0, two["controller"] - opbyop["controller"]) / 2, "host_message": message,
             "host_launch": launch, "host_chip": chip, "host_copy": seen["copy"], "host_load": 300e-6,
             "host_answer": 4e-6, "chip_launch": 0, "host_meet": host_meet, "chip_meet": per1 - host_meet}
  charges = {k: round(v * 1e9) for k, v in charges.items()}
  options.charges.write_text(json.dumps(charges, indent=1) + "\n")
  print(f"{options.charges}, nanoseconds, load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
  for k, v in charges.items():
    print(f"  {k:20}{v:8}")


def compare(options):
  print(f"{'us a computation, best of 25':44}{'real':>9}{'simulated':>11}{'ratio':>8}   load {os.getloadavg()[0]:.1f}")
  ratios = []
  for hosts, target in ((2, "v5e:2x1"), (2, "v5e:2x2"), (4, "v5e:2x2")):
    modes = [(m, k) for m in ("opbyop", "chained", "fused") for k in ("plain", "all-reduce")]
    best = {}
    for make in (Pod, lambda *a: simulated(*a, "--cores=this")):
      with make(options, target, hosts) as p:
        for m, k in modes:
          best.setdefault((m, k), []).append(min(p.ask(m, k, 25)))
    for (m, k), (real, sim) in best.items():
      note = "" if 0.8 <= sim / real <= 1.2 else "   beyond 20%"
      ratios.append(sim / real)
      print(f"{hosts} hosts, {target}, {m + ', ' + k:24}{'':4}{real * 1e6:9.1f}{sim * 1e6:11.1f}{sim / real:8.2f}{note}", flush=True)
  within = sum(0.8 <= r <= 1.2 for r in ratios)
  print(f"{within} of {len(ratios)} within 20%")


# ---- The experiments
SHAPES = {1: "2x2x2", 2: "2x2x4", 4: "2x4x4", 8: "4x4x4", 16: "4x4x8", 32: "4x8x8", 64: "8x8x8", 128: "8x8x16", 256: "8x16x16",
          512: "16x16x16"}


def target_of(hosts):
  return "v5p:" + SHAPES[hosts]  # 8 chips each


def equal_process(options):
  """CPU seconds that a process of equals takes to launch one computation, and one of a long row in one program."""
  env = {k: v for k, v in os.environ.items() if k not in ("ATOLL_POD", "ATOLL_TARGET", "JAX_PLATFORMS")}
  import socket
  ports = [socket.create_server(("localhost", 0)) for _ in range(2)]
  addresses = ",".join(f"localhost:{s.getsockname()[1]}" for s in ports)
  for s in ports:
    s.close()
  env.update(TPU_LIBRARY_PATH=str(options.build / "libatoll.so"), ATOLL_LIBRARY=str(options.build / "libatoll.so"),
             ATOLL_TARGET="v5p:2x2x4", TPU_PROCESS_ADDRESSES=addresses)
  two = [subprocess.Popen([sys.executable, __file__, "--worker"], env={**env, "CLOUD_TPU_TASK_ID": str(i)}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for i in range(2)]
  for p in two:
    p.stdin.write(json.dumps([None, "cpu", "opbyop", "plain", []]) + "\n")
    p.stdin.flush()
  took = [json.loads(p.stdout.readline())[-2] for p in two]
  for p in two:
    p.stdin.close()
    p.wait()
  return min(took)


def table(title, head, rows, out):
  print(f"\n{title}\n" + "".join(f"{h:>{14 if i else 12}}" for i, h in enumerate(head)))
  for row in rows:
    print("".join(f"{x:>{14 if i else 12}}" if isinstance(x, (int, str)) else f"{x:14.1f}" for i, x in enumerate(row)), flush=True)
  out[title] = {"head": head, "rows": rows}


def dispatch(options, factor, out):
  """An all-reduce of a number over all chips, and an addition, 128 in a row: a call each, one traced program, one computation."""
  own = options.equal_us
  rows = []
  for hosts in options.hosts:
    with simulated(options, target_of(hosts), hosts, f"--bandwidth={factor}") as p:
      chips = hosts * 8
      op, chained, fused = (min(p.ask(m, "all-reduce", r)) * 1e6 for m, r in (("opbyop_many", 2), ("chained_many", 2), ("fused_many", 2)))
      chip = p.status()["simulated"]["programs"][-1]
      device = (chip["end_ns"] - chip["begin_ns"]) / DEEP * 1e-3
      rows.append([hosts, chips, op, chained, fused, max(own, device), max(own / DEEP, device), device])
  table(f"dispatch, us a computation, bandwidth x {factor}",
        ["hosts", "chips", "OpByOp", "Chained", "Fused", "equals OpByOp", "equals Fused", "chips alone"], rows, out)


def depth(options, factor, out):
  """A pipeline of S stages, each on a chip of a host of its own: hosts' work side by side, and one after the other.
  Messages take the client and the controller what STEADY says."""
  rows = []
  for stages in [h for h in (2, 4, 8, 16, 32, 64, 128) if h <= max(options.hosts)]:
    took = []
    for how in ("parallel", "sequential"):
      with simulated(options, target_of(stages), stages, f"--bandwidth={factor}", f"--dispatch={how}", steady=True) as p:
        took.append(min(p.ask("stages", stages)) * 1e6)
    rows.append([stages, took[0], took[1], took[1] / took[0]])
  table(f"a traced pipeline, us a run, bandwidth x {factor}", ["stages", "parallel", "sequential", "ratio"], rows, out)


def hide(options, factor, out):
  """The smallest computation that one controller launches as fast as equal processes would (95%)."""
  rows = []
  for hosts, chips in ((16, 128), (512, 2048)):
    if hosts > max(options.hosts):
      continue
    target = target_of(hosts)
    with simulated(options, target, hosts, f"--bandwidth={factor}") as p:
      # 4 of the 8 chips of each host, as the paper's hosts have.
      every = [hosts, chips // hosts]
      found = None
      for turns in (1 << k for k in range(10, 21)):
        alone, step = p.ask("busy", every, turns)
        if max(alone, options.equal_us * 1e-6) / step >= 0.95:
          found = (turns, alone * 1e3, step * 1e3)
          break
    rows.append([hosts, chips, found[1] if found else "none", {16: 2.3, 512: 35.0}[hosts]])
  table(f"smallest computation that hides dispatch, ms, bandwidth x {factor}", ["hosts", "chips", "here", "paper"], rows, out)


def model(options, factor, out):
  """A decoder of 3B parameters on 128 chips: one mesh, and 4, 8, 16 stages (GPipe). 64B and 136B over one island and two."""
  rows, tokens = [], 2048 * 1024
  with simulated(options, "v5p:4x4x8", 16, f"--bandwidth={factor}") as p:
    for ways, stages, pieces, paper in ((16, 1, 1, 125.7), (4, 1, 1, "-"), (4, 4, 16, 133.7), (4, 8, 32, 132.7), (4, 16, 64, 131.4)):
      took = p.ask("decoder", 64, 2048, 8192, ways, stages, pieces, 2048)
      rows.append([stages, ways, pieces, took * 1e3, tokens / took / 1e3, paper])
  table(f"3B decoder on 128 chips, bandwidth x {factor}",
        ["stages", "tensors over", "microbatches", "ms a step", "k tokens/s", "paper's"], rows, out)
  rows = []
  for name, layers, width, one, two in (("64B", 80, 8192, "v5p:8x8x16", "2*v5p:8x8x8"), ("136B", 75, 12288, "v5p:8x16x16", "2*v5p:8x8x16")):
    took = []
    for target in (one, two):
      hosts = 128 if name == "64B" else 256
      with simulated(options, target, hosts, f"--bandwidth={factor}") as p:
        took.append(p.ask("decoder", layers, width, 4 * width, 16, 1, 1, 2048, 2))
    rows.append([name, took[0] * 1e3, took[1] * 1e3, f"{took[0] / took[1]:.1%}", "97%"])
  table(f"over two islands, bandwidth x {factor}", ["", "one, ms", "two, ms", "of one", "paper"], rows, out)


def plot(results, folder):
  import matplotlib
  matplotlib.use("Agg")
  import matplotlib.pyplot as plt
  folder.mkdir(parents=True, exist_ok=True)
  for title, t in results.items():
    if not t["rows"] or not all(isinstance(x, (int, float)) for r in t["rows"] for x in r):
      continue
    first = 2 if t["head"][1] == "chips" else 1
    figure, axes = plt.subplots(figsize=(7, 4))
    for i in range(first, len(t["head"])):
      axes.loglog([r[first - 1] for r in t["rows"]], [r[i] for r in t["rows"]], "o-", label=t["head"][i], base=2)
    axes.set_xlabel(t["head"][first - 1])
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8)
    figure.tight_layout()
    name = "".join(c if c.isalnum() else "-" for c in title.lower())
    figure.savefig(folder / f"{name}.svg")
    plt.close(figure)


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(), default=TOP / "build" / "release")
  parser.add_argument("--charges", type=pathlib.Path, default=pathlib.Path.home() / ".cache" / "atoll" / "pod-charges.json")
  parser.add_argument("--calibrate", action="store_true")
  parser.add_argument("--compare", action="store_true")
  parser.add_argument("--only", default="dispatch,depth,hide,model")
  parser.add_argument("--hosts", default="2,8,32,128,256,512")
  parser.add_argument("--bandwidth", default="0.5,1,2")
  parser.add_argument("--plot", type=pathlib.Path)
  parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
  options = parser.parse_args()
  if options.worker:
    return worker()
  if options.calibrate:
    calibrate(options)
  if options.compare:
    compare(options)
  if options.calibrate or options.compare:
    return None
  options.hosts = [int(h) for h in options.hosts.split(",")]
  options.equal_us = min(equal_process(options) for _ in range(3)) * 1e6
  print(f"a process of equals takes {options.equal_us:.1f} us to launch a computation on 8 of 16 chips (measured)")
  results = {}
  for factor in options.bandwidth.split(","):
    for name in options.only.split(","):
      {"dispatch": dispatch, "depth": depth, "hide": hide, "model": model}[name](options, factor, results)
  if options.plot:
    plot(results, options.plot)


if __name__ == "__main__":
  main()
