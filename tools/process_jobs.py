"""Jobs of several processes on this machine, for process_faults.py.

Every process is a fork of one that has imported JAX and has no client yet, so a job starts in a
fraction of a second. It reports through a pipe, a line of JSON each time; what it prints goes to
a file. `Job` is the side that starts, stops and listens; what processes do is below.
"""
import atexit
import collections
import ctypes
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback

TARGET = "v6e:2x2"
CHIPS = 4
CLONE_NEWNET = 0x40000000


# ---- The side that starts them
def free_ports(count):
  listeners = [socket.create_server(("localhost", 0)) for _ in range(count)]
  ports = [s.getsockname()[1] for s in listeners]
  for s in listeners:
    s.close()
  return ports


class Process:
  """One process: what it has said so far, and how it ended."""

  def __init__(self, pid, pipe, commands, errors):
    self.pid, self.pipe, self.commands, self.errors = pid, pipe, commands, errors
    self.said, self.rest, self.status = [], b"", None
    self.killed = False

  def signal(self, number):
    self.killed |= number == signal.SIGKILL
    os.kill(self.pid, number)
    return time.monotonic()

  def find(self, event):
    return next((s for s in self.said if s["event"] == event), None)

  def tell(self, line):
    try:
      os.write(self.commands, line.encode() + b"\n")
    except BrokenPipeError:
      pass  # it has ended, which its status says

  def hear(self):
    """Reads what is there; false at the end of it."""
    data = os.read(self.pipe, 1 << 16)
    *lines, self.rest = (self.rest + data).split(b"\n")
    self.said += [json.loads(line) for line in lines]
    return bool(data)

  def wrong_end(self):
    """How it ended where it should not have, or None."""
    if self.killed:
      return None
    if self.status is None:
      return "does not end"
    if self.status < 0:
      return f"ended by {signal.Signals(-self.status).name}"
    return f"ended with {self.status}" if self.status else None

  def printed(self):
    return os.pread(self.errors.fileno(), 1 << 16, 0).decode(errors="replace")


class Job:
  """Processes that run `body(say, hear, **what)`; environments: one for each."""

  def __init__(self, body, environments, what=None, places=None):
    self.processes = []
    self.open = set()
    self.body, self.what = body, what or {}
    for i, env in enumerate(environments):
      self.add(env, places[i] if places else None)

  def add(self, env, place=None):
    reports, commands = os.pipe(), os.pipe()
    errors = tempfile.TemporaryFile()
    pid = os.fork()
    if not pid:
      os.close(reports[0])
      os.close(commands[1])
      for p in self.processes:  # else nobody's pipe would end
        os.close(p.commands)
      become(self.body, self.what, env, place, reports[1], commands[0], errors)
    os.close(reports[1])
    os.close(commands[0])
    self.processes.append(Process(pid, reports[0], commands[1], errors))
    self.open.add(self.processes[-1])
    return self.processes[-1]

  def until(self, done, seconds):
    """Listens until done() or so many seconds are over; the last done()."""
    end = time.monotonic() + seconds
    while not done():
      left = end - time.monotonic()
      if left <= 0 or not self.open:
        return done()
      ready, _, _ = select.select([p.pipe for p in self.open], [], [], min(left, 0.25))
      for p in [p for p in self.open if p.pipe in ready]:
        if not p.hear():
          self.open.remove(p)
    return True

  def all_said(self, event, seconds, but=()):
    return self.until(lambda: all(p.find(event) for p in self.processes if p not in but), seconds)

  def end(self, seconds):
    """Waits for the ends of all; who does not end is killed, and has no status. The first process is the last to end
    where it is JAX's coordinator: the others would take its end for a failure."""
    end = time.monotonic() + seconds
    self.until(lambda: not self.open - {self.processes[0]}, seconds)
    self.processes[0].tell("")
    self.until(lambda: not self.open, max(1, end - time.monotonic()))
    end = time.monotonic() + 1
    for p in self.processes:
      pid = 0
      while not pid and time.monotonic() < end:
        pid, status = os.waitpid(p.pid, os.WNOHANG)
        if not pid:
          time.sleep(0.005)
      if pid:
        p.status = os.waitstatus_to_exitcode(status)
      else:
        os.kill(p.pid, signal.SIGKILL)
        os.waitpid(p.pid, 0)
      os.close(p.pipe)
      os.close(p.commands)
    return [f"process {i} {p.wrong_end()}, having said {[s['event'] for s in p.said]}: {p.printed()[-400:]}"
            for i, p in enumerate(self.processes) if p.wrong_end()]


def addresses(ports, wire="auto", host="localhost", **env):
  """The environments of a job by addresses."""
  text = ",".join(f"{host}:{p}" for p in ports)
  return [{"TPU_PROCESS_ADDRESSES": text, "CLOUD_TPU_TASK_ID": str(i), "ATOLL_POD_WIRE": wire, **env}
          for i in range(len(ports))]


def through_jax(count, **env):
  """The environments of a job that jax.distributed.initialize makes, which survives the loss of a process."""
  (port,) = free_ports(1)
  return [{"COORDINATOR": f"localhost:{port}", "COUNT": str(count), "PROCESS": str(i), **env} for i in range(count)]


# ---- A process
def become(body, what, env, place, reports, commands, errors):
  """The forked process, to its end."""
  code = 1
  try:
    os.dup2(errors.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    os.environ.update(env)
    if place:
      enter(place)
    if "COORDINATOR" in env:
      initialize()
    lines = os.fdopen(commands)
    body(lambda event, **more: os.write(reports, json.dumps({"event": event, "at": time.monotonic(), **more}).encode() + b"\n"),
         lambda: lines.readline().strip(), **what)
    code = 0
    if env.get("PROCESS") == "0":
      lines.readline()
  except BaseException:
    traceback.print_exc()
  atexit._run_exitfuncs()  # as at the end of a program: clients go
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def enter(place):
  """Into a network namespace."""
  fd = os.open(f"/var/run/netns/{place}", os.O_RDONLY)
  if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
    raise OSError(ctypes.get_errno(), f"setns {place}")
  os.close(fd)


def initialize():
  import jax
  jax.config.update("jax_enable_recoverability", True)
  jax.distributed.initialize(os.environ["COORDINATOR"], int(os.environ["COUNT"]), int(os.environ["PROCESS"]),
                             heartbeat_timeout_seconds=10, shutdown_timeout_seconds=5)


class World:
  """What a process has at hand once all have met."""

  def __init__(self, devices=None):
    import jax
    import numpy as np
    self.jax, self.np = jax, np
    self.devices = devices or jax.devices()
    self.me = jax.process_index()
    self.mesh = jax.sharding.Mesh(np.array(self.devices), ("x",))
    self.split = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec("x"))
    self.whole = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())

  def put(self, a, sharding):
    return self.jax.make_array_from_callback(a.shape, sharding, lambda i: a[i], dtype=a.dtype)

  def over(self, f, ins, outs):
    return self.jax.jit(self.jax.shard_map(f, mesh=self.mesh, in_specs=ins, out_specs=outs, check_vma=False))

  def mine(self, a):
    return self.np.asarray(a.addressable_shards[0].data)

  def sum_of_ones(self):
    spec = self.jax.sharding.PartitionSpec
    add = self.over(lambda v: self.jax.lax.psum(v, "x"), spec("x"), spec())
    return float(self.mine(add(self.put(self.np.ones(len(self.devices), self.np.float32), self.split)))[0])


def training(w, width):
  """A step, its first state and its inputs; the sums of the gradients are two all-reduces."""
  jax, np = w.jax, w.np
  jnp, spec = jax.numpy, jax.sharding.PartitionSpec
  draw = np.random.default_rng(width)
  first = [w.put(draw.normal(size=s).astype(np.float32) / 8, w.whole) for s in ((32, width), (width, 8))]
  x, y = (w.put(draw.normal(size=(16 * len(w.devices), n)).astype(np.float32), w.split) for n in (32, 8))

  def step(a, b, x, y):
    def loss(a, b):
      return ((jnp.tanh(x @ a) @ b - y) ** 2).mean()
    here, (da, db) = jax.value_and_grad(loss, (0, 1))(a, b)
    n = len(w.devices)
    return (a - jax.lax.psum(da, "x") * 0.05 / n, b - jax.lax.psum(db, "x") * 0.05 / n, jax.lax.psum(here, "x") / n)
  return w.over(step, (spec(), spec(), spec("x"), spec("x")), (spec(), spec(), spec())), first, (x, y)


def train(say, hear, width, steps, losses=None, ahead=0, hold=0, laps=None, lost=None):
  """Trains again and again, each loss against the known one, until an error or the last lap; then goes on with who is
  left. losses None: tells them. lost: the process that will be. hold: so many bytes of arrays it has besides."""
  w = World()
  np = w.np
  held = w.jax.jit(lambda: w.jax.numpy.ones(hold // 4, np.float32))() if hold and w.me == lost else None
  step, first, inputs = training(w, width)
  pending, seen = collections.deque(), []

  def check(most):
    while len(pending) > most:
      k, loss = pending.popleft()
      got = w.mine(loss).tobytes().hex()
      seen.append(got) if losses is None else None
      if losses and got != losses[k]:
        say("wrong", step=k, got=got, want=losses[k])

  lap, last = 0, time.monotonic()
  try:
    w.mine(step(*first, *inputs)[2])
    w.jax.block_until_ready(held)
    say("ready")
    while laps is None or lap < laps:
      a, b = first
      for k in range(steps):
        a, b, loss = step(a, b, *inputs)
        pending.append((k, loss))
        check(ahead)
        last = time.monotonic()
      lap += 1
    check(0)
  except w.jax.errors.JaxRuntimeError as e:
    say("error", text=str(e), after=time.monotonic() - last)
    go_on(w, say, lost)
  say("end", losses=seen)


def go_on(w, say, lost):
  """After an error: this process alone, then with all that are left."""
  alone = float(w.jax.jit(lambda a: (a * 2).sum())(w.np.arange(10, dtype=w.np.float32)))
  if alone != 90:
    say("wrong", alone=alone)
  left = [d for d in w.jax.devices() if d.process_index != lost]
  if lost in (None, w.me) or len({d.process_index for d in left}) < 2:
    return
  try:
    got = World(left).sum_of_ones()
  except w.jax.errors.JaxRuntimeError as e:
    return say("stuck", text=str(e))
  if got != len(left):
    say("wrong", left=got)


def come_back(say, hear, lost, idle):
  """Sums until a process is lost, and after errors again, until 20 in a row are right; who has come back (BACK) from
  the beginning. idle: a process that does nothing from the first sum until it is told to."""
  w = World()
  n, back = len(w.devices), "BACK" in os.environ
  x = w.put(w.np.arange(n * 1000, dtype=w.np.float32).reshape(n, 1000), w.split)
  spec = w.jax.sharding.PartitionSpec
  add = w.over(lambda v: w.jax.lax.psum(v, "x"), spec("x"), spec())
  want = w.np.arange(n * 1000, dtype=w.np.float32).reshape(n, 1000).sum(0)
  errors, row, until = 0, 0, time.monotonic() + 90
  if back:
    say("back")
  while row < 20 and time.monotonic() < until:
    try:
      if not w.np.array_equal(w.mine(add(x))[0], want):
        say("wrong", row=row)
      if row == 0 and not errors and not back:
        say("ready")
        if w.me == idle:
          hear()
      row += bool(back or errors)
      time.sleep(0 if back or errors else 0.01)
    except w.jax.errors.JaxRuntimeError as e:
      if not errors:
        say("error", text=str(e), after=0)
      errors, row = errors + 1, 0
      time.sleep(0.05)
  if row < 20:
    say("stuck", row=row, errors=errors)
  say("end", errors=errors)


def add_large(say, hear, bytes, ahead):
  """All-reduces of so many bytes, every result against the known one; after an error, and whenever it is told to, all
  that are still held once more."""
  w = World()
  np, spec = w.np, w.jax.sharding.PartitionSpec
  count = bytes // 4
  rows = np.arange(count, dtype=np.float32) % 1021
  x = w.jax.make_array_from_callback((len(w.devices), count), w.split,
                                     lambda i: (rows + (i[0].start or 0)).reshape(1, count), dtype=np.float32)
  add = w.over(lambda v, k: w.jax.lax.psum(v[0] + k[0], "x"), (spec("x"), spec()), spec())
  n = len(w.devices)
  want = rows * n + sum(range(n))
  held = collections.deque()

  def look(k, y):
    try:
      parts = [np.asarray(s.data) for s in y.addressable_shards]
    except w.jax.errors.JaxRuntimeError as e:
      return str(e)
    for p in parts:
      if not np.array_equal(p, want + np.float32(n * k)):
        say("wrong", launch=k, places=int((p != want + np.float32(n * k)).sum()))
    return None

  def look_at_all():
    texts = [t for t in (look(k, y) for k, y in held) if t]
    for s in x.addressable_shards:
      if not np.array_equal(np.asarray(s.data)[0], rows + s.index[0].start):
        say("wrong", operand=True)
    return texts

  numbers = [w.put(np.array([k % 64], np.float32), w.whole) for k in range(64)]
  error, k = look(0, add(x, numbers[0])), 0
  say("ready")
  while not error:
    k += 1
    try:
      held.append((k % 64, add(x, numbers[k % 64])))
    except w.jax.errors.JaxRuntimeError as e:
      error = str(e)
    if len(held) > ahead + 4:
      held.popleft()
    if not error and len(held) > ahead:
      error = look(*held[-1 - ahead])
  say("error", text=error, launches=k)
  look_at_all()
  while hear():
    say("looked", errors=len(look_at_all()), held=len(held))
  say("end")
