"""Clients and hosts of a pod that end, fork or are stopped in the middle of what they do."""

import os
import re
import signal
import socket
import subprocess
import time

import pytest

from pods import PACKAGE
from test_pod import ATOLL, PLAIN, TWO_SLICES, Pod, ended, until, up

WORK = """
import os, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
N = len(devices)
mesh = Mesh(np.array(devices), ("x",))
cut = NamedSharding(mesh, P("x"))
over = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
zeros = lambda *shape: jax.device_put(np.zeros(shape, np.float32), cut)
def say(what): print(what, flush=True)
def error_of(f):
  begin = time.monotonic()
  try: jax.block_until_ready(f())
  except Exception as e: what = str(e)
  else: what = "no error"
  assert time.monotonic() - begin < 10, what
  return what
"""


@pytest.fixture(scope="module")
def pod():
  with up(TWO_SLICES) as p:
    yield p


def works(pod):
  """Collectives over all chips run, and nothing of others is left."""
  pod.run(WORK + """
end = time.monotonic() + 20
while any(d.memory_stats()["bytes_in_use"] for d in devices): assert time.monotonic() < end; time.sleep(0.05)
f = over(lambda v: jax.lax.psum(v, "x") / N + 1)
x = zeros(N, 4)
for _ in range(50): x = f(x)
assert (np.asarray(x) == 50).all()
""")


def begun(p):
  assert p.stdout.readline() == "ready\n", p.stderr.read()
  return p


def test_a_client_is_killed_in_a_program_of_many_launches(pod):
  """What hosts have begun of it ends on all of them, or on none."""
  for delay in (0, 0.003, 0.02, 0.1):
    p = begun(pod.start(WORK + """
import atoll
f = over(lambda v: jax.lax.psum(v, "x") / N + 1)
@atoll.program
def many(v):
  for _ in range(50): v = f(v)
  return v
x = many(zeros(N, 1024)).block_until_ready()
say("ready")
while True: x = many(x)
""", PYTHONPATH=PACKAGE))
    time.sleep(delay)
    p.kill()
    p.communicate()
  until(lambda: pod.status()["clients"] == [])
  works(pod)


def test_two_clients_in_opposite_orders(pod):
  jobs = [begun(pod.start(WORK + f"""
f = over(lambda v: jax.lax.psum(v, "x") / N + 1)
g = over(lambda v: jax.lax.pmax(v, "x") + 1)
first, second = (f, g)[::{way}]
x, y = first(zeros(N, 8)), second(zeros(N, 8))
jax.block_until_ready((x, y))
say("ready")
sys.stdin.readline()
for i in range(200): x, y = first(x), second(y)
assert (np.asarray(x) == 201).all() and (np.asarray(y) == 201).all()
""")) for way in (1, -1)]
  for p in jobs:
    p.stdin.write("\n")
    p.stdin.flush()
  for p in jobs:
    ended(p)


def test_a_client_that_forks(pod):
  """The child's calls are errors at once, and its end is no concern of the parent's."""
  out = pod.run(WORK + """
f = over(lambda v: v + 1)
x, one = f(zeros(N, 8)), jax.device_put(np.ones(4, np.float32), devices[9])
x.block_until_ready()
pid = os.fork()
if not pid:
  say(error_of(lambda: f(x)))
  say(error_of(lambda: jax.device_put(np.ones(4, np.float32), devices[3])))
  say(error_of(lambda: np.asarray(one)))
  os._exit(7)
end, how = time.monotonic() + 30, (0, 0)
while how[0] != pid and time.monotonic() < end:
  how = os.waitpid(pid, os.WNOHANG)
  time.sleep(0.01)
if how[0] != pid: os.kill(pid, signal.SIGABRT); assert False, "the child hangs"
assert os.waitstatus_to_exitcode(how[1]) == 7, how
for _ in range(20): x = f(x)
assert (np.asarray(x) == 21).all() and (np.asarray(one) == 1).all()
""")
  assert len(out.splitlines()) >= 3 and "no error" not in out, out
  works(pod)


def test_arrays_outlive_their_client(pod):
  """They are errors, or what had been fetched; nothing hangs or crashes, and a new client works."""
  pod.run(WORK + """
from jax.extend import backend
f = jax.jit(lambda v: v * 2)
a = jax.device_put(np.arange(8, dtype=np.float32), devices[9])
b, late = f(a), f(f(a))
assert (np.asarray(b) == 2 * np.arange(8)).all()
jax.clear_caches()
backend.clear_backends()
assert (np.asarray(b) == 2 * np.arange(8)).all()
for x in (a, late):
  what = error_of(lambda: np.asarray(x))
  say(what)
del a, b, late, x
assert (np.asarray(jax.jit(lambda v: v + 1)(jax.device_put(np.ones(3, np.float32), jax.devices()[5]))) == 2).all()
""")
  until(lambda: pod.status()["clients"] == [])
  works(pod)


def test_a_client_that_is_stopped(pod):
  """Others need not wait for it. It has no part in the pod any more when it goes on, and is told so."""
  p = begun(pod.start(WORK + """
f = over(lambda v: jax.lax.psum(v, "x") / N + 1)
x = f(zeros(N, 1 << 16)).block_until_ready()
say("ready")
def go():
  global x
  while True:
    for _ in range(20): x = f(x)
    np.asarray(x)
say(error_of(go) if sys.stdin.readline() else "")
say(error_of(lambda: f(x)))
""".replace("assert time.monotonic() - begin < 10, what", "")))
  p.stdin.write("\n")
  p.stdin.flush()
  time.sleep(0.3)
  p.send_signal(signal.SIGSTOP)
  works_beside = WORK + """
f = over(lambda v: jax.lax.psum(v, "x") / N + 1)
x = zeros(N, 4)
for _ in range(200): x = f(x)
assert (np.asarray(x) == 200).all()
"""
  pod.run(works_beside)
  until(lambda: pod.status()["clients"] == [])
  p.send_signal(signal.SIGCONT)
  first, second = ended(p).splitlines()
  assert first != "no error" and second != "no error", (first, second)
  works(pod)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_host_ends_in_the_middle_of_copies(how):
  """Of arrays of all sizes: each has its value or DATA_LOSS. The same place works when it is back."""
  with up("v6e:2x2") as pod:
    victim = pod.status()["hosts"][1]["pid"]
    p = begun(pod.start(WORK + """
sizes = [256, 1 << 18, 1 << 24]
xs = [jax.device_put(np.full(n, 3, np.float32), devices[0]) for n in sizes]
back = [jax.device_put(jax.device_put(x, devices[1]), devices[2]) for x in xs]
jax.block_until_ready(back)
say("ready")
end, lost = time.monotonic() + 20, False
while not lost and time.monotonic() < end:
  ys = [jax.device_put(jax.device_put(x, devices[1]), devices[2]) for x in xs]
  for n, y in zip(sizes, ys):
    try: assert (np.asarray(y) == 3).all()
    except jax.errors.JaxRuntimeError as e:
      assert str(e).startswith("DATA_LOSS"), e
      lost = True
assert lost
assert all((np.asarray(x) == 3).all() for x in xs)
say("lost")
sys.stdin.readline()
end = time.monotonic() + 40
while True:
  try:
    assert all((np.asarray(jax.device_put(jax.device_put(x, devices[1]), devices[2])) == 3).all() for x in xs)
    break
  except jax.errors.JaxRuntimeError as e:
    assert str(e).startswith("DATA_LOSS") and time.monotonic() < end, e
    time.sleep(0.1)
"""))
    time.sleep(0.05)
    os.kill(victim, how)
    assert p.stdout.readline() == "lost\n", p.stderr.read()
    p.stdin.write("\n")
    p.stdin.flush()
    ended(p)
    assert pod.status()["hosts"][1]["pid"] != victim


def test_a_host_comes_back_at_its_address():
  """Killed and started again at the same ports at once, three times, under a client that goes on."""
  sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
  ports = [s.getsockname()[1] for s in sockets]
  for s in sockets:
    s.close()
  up_process = subprocess.Popen([ATOLL, "pod", "up", "--wait-hosts=2", "--target=v6e:2x2"], env=PLAIN, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
  address = re.search(r"[\d.]+:\d+", up_process.stdout.readline()).group()
  def host(place, *more):
    return subprocess.Popen([ATOLL, "host", f"--controller={address}", f"--place={place}", *more], env=PLAIN)
  fixed = [f"--listen=127.0.0.1:{ports[0]}", f"--pod=127.0.0.1:{ports[1]}"]
  hosts = [host(0), host(1, *fixed)]
  pod = Pod.__new__(Pod)
  pod.process, pod.address, pod.env = up_process, address, {**PLAIN, "ATOLL_POD": address}
  try:
    p = begun(pod.start(WORK + """
f = over(lambda v: jax.lax.psum(v, "x") / N + 1)
g, near = jax.jit(lambda v: v + 1), jax.device_put(np.zeros(4, np.float32), devices[0])
def step(): return (np.asarray(f(zeros(N, 4))) == 1).all() and int(jax.device_get(g(jax.device_put(near, devices[3])))[0]) == 1
assert step()
say("ready")
for _ in range(3):
  sys.stdin.readline()
  end, seen = time.monotonic() + 40, False
  while True:
    try:
      assert step()
      if seen: break
    except jax.errors.JaxRuntimeError as e:
      assert str(e).startswith("DATA_LOSS"), e
      seen = True
    assert time.monotonic() < end
    time.sleep(0.02)
  assert (np.asarray(near) == 0).all()
  say("back")
"""))
    for _ in range(3):
      hosts[1].kill()
      hosts[1].wait()
      p.stdin.write("\n")
      p.stdin.flush()
      time.sleep(0.1)
      hosts[1] = host(1, *fixed)
      assert p.stdout.readline() == "back\n", p.stderr.read()
    ended(p)
  finally:
    pod.down()
    for h in hosts:
      assert h.wait(20) == 0
