"""Hosts of a pod that stop for a moment, and that are killed, while they compile, copy, reshard, donate and call back:
a result is right or says DATA_LOSS, within five seconds, what is lost is told and nothing else, and nothing stays."""

import pytest

from pods import LIBRARY, PACKAGE, Pod, python

PROGRAM = """
import gc, json, os, random, signal, subprocess, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

what, victim, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
devices, rng = jax.devices(), random.Random(seed)
mesh = Mesh(np.array(devices), ("x",))
rows, columns, whole = (NamedSharding(mesh, P(*p)) for p in (("x",), (None, "x"), ()))
square = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
line = np.arange(1 << 18, dtype=np.float32)

def transfers():
  y = jax.device_put(line, devices[seed % 8])
  for i in range(12): y = jax.device_put(y, devices[(seed + i * 3) % 8])
  assert (np.asarray(y) == line).all(), "wrong"

def reshards():
  y = jax.device_put(square, rows)
  for to in (columns, rows, whole, columns): y = jax.device_put(y, to)
  assert (np.asarray(y) == square).all(), "wrong"

step = jax.jit(lambda v, w: (v + w, w), donate_argnums=(0, 1), in_shardings=(rows, columns), out_shardings=(rows, columns))
def donations():
  v, w = jax.device_put(square, rows), jax.device_put(np.ones_like(square), columns)
  for _ in range(8): v, w = step(v, w)
  assert (np.asarray(v) == square + 8).all(), "wrong"

call = jax.jit(jax.shard_map(
    lambda v: jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct(v.shape, v.dtype), v) + jax.lax.psum(v[:1], "x"),
    mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
few = np.arange(16, dtype=np.float32)
def callbacks():
  y = call(jax.device_put(few, rows))
  assert (np.asarray(y) == few * 2 + few[::2].sum()).all(), "wrong"

turn = 0
def compiles():
  global turn
  turn += 1
  f = jax.jit(lambda v: jnp.roll(v, turn) * 2 + v.sum())
  assert (np.asarray(f(jax.device_put(few, rows))) == np.roll(few, turn) * 2 + few.sum()).all(), "wrong"

def status():
  return json.loads(subprocess.run([os.environ["ATOLL"], "pod", "status", "--json"], capture_output=True, text=True, check=True).stdout)

def pid():
  return next(h["pid"] for h in status()["hosts"] if h["host"] == victim)

run = globals()[what]
run()
# It stops for a moment, shorter than what is taken for a loss.
there, stopped = pid(), 0
def pause():
  global stopped
  time.sleep(rng.random() * 0.2)
  stopped = time.monotonic()
  # Another process, since who waits for the host may hold Python's lock meanwhile.
  subprocess.run(["sh", "-c", f"kill -STOP {there}; sleep 0.3; kill -CONT {there}"], check=True)
t = threading.Thread(target=pause)
t.start()
while t.is_alive():
  try: run()
  except jax.errors.JaxRuntimeError as e:  # the machine kept it from running for longer
    assert "DATA_LOSS" in str(e) and time.monotonic() - stopped > 1.5, e
t.join()
while pid() == there:  # that or another one is there
  try: run(); break
  except jax.errors.JaxRuntimeError: time.sleep(0.1)
there = pid()
# It is killed.
killed = 0
def kill():
  global killed
  time.sleep(rng.random() * 0.3)
  os.kill(there, signal.SIGKILL)
  killed = time.monotonic()
t = threading.Thread(target=kill)
t.start()
seen, began = None, 0
while not seen and (not killed or time.monotonic() - killed < 10):
  began = time.monotonic()
  try: run()
  except jax.errors.JaxRuntimeError as e: seen = str(e)
took = time.monotonic() - max(began, killed)
t.join()
assert seen and "DATA_LOSS" in seen and "lost" in seen, seen
assert took < 5, took
# It is back.
end = time.monotonic() + 60
while True:
  try:
    run()
    break
  except jax.errors.JaxRuntimeError as e:
    assert "DATA_LOSS" in str(e) or "ABORTED" in str(e), e
    assert time.monotonic() < end, e
    time.sleep(0.1)
gc.collect()
end, left = time.monotonic() + 20, [1]
while any(left):
  left = [d.memory_stats()["bytes_in_use"] for d in devices]
  assert time.monotonic() < end, (left, [(a.shape, str(a.sharding)) for a in jax.live_arrays()])
  time.sleep(0.05)
print("done")
"""


@pytest.fixture(scope="module")
def pod():
  with Pod("--hosts=4", "--target=v5e:2x4") as p:
    yield p


@pytest.mark.parametrize("victim, what", list(enumerate(["transfers", "reshards", "donations", "callbacks", "compiles"])))
def test_a_host_stops_and_dies(pod, victim, what):
  code = f"import sys; sys.argv[1:] = [{what!r}, '{victim % 4}', '{victim + 1}']\n" + PROGRAM
  p = python(code, ATOLL_POD=pod.address, TPU_LIBRARY_PATH=LIBRARY, PYTHONPATH=PACKAGE)
  assert p.returncode == 0 and p.stdout.endswith("done\n"), (p.stdout, p.stderr[-4000:], pod.errors)
