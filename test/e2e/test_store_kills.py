"""Eight programs at a time are killed at random moments: nothing of theirs stays, and named objects do.

AT_POD_KILLS=1000 kills a hundred (and `control_pod_test`, with 900, the rest: small clients in C).
"""

import os
import subprocess
import sys

import pods
from test_store import run

KILLS = max(8, int(os.environ.get("AT_POD_KILLS", 0)) // 10)
LIFE = os.environ.get("AT_POD_LIFE", "6")  # seconds of a program, at most

# JAX is imported once; what uses it is forked.
ZYGOTE = """
import mmap, os, random, signal, sys, time, warnings
import atoll, jax, jax.numpy as jnp, numpy as np
import atoll._program, atoll.checkpoint, atoll.objects
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
warnings.simplefilter("ignore")
kills, folder = int(sys.argv[1]), sys.argv[2]
turns = mmap.mmap(-1, kills)  # of each, for the test to know that they do something

def work(me):
  mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("s", "x"))
  both, rows = NamedSharding(mesh, P(("s", "x"))), NamedSharding(mesh, P("x"))
  step = jax.jit(lambda x: x * 0.5 + x.sum() * 1e-6, donate_argnums=0, out_shardings=both)
  traced = atoll.program(lambda x: step(jax.device_put(step(x + 1), both)))
  calls = jax.jit(lambda x: jax.pure_callback(lambda v: np.asarray(v) + 1, jax.ShapeDtypeStruct((), np.float32), x))
  x = jax.device_put(np.ones((64, 4096), np.float32), both)
  for turn in range(10**6):
    turns[me] = min(turn, 255)
    x = traced(step(x))
    y = jax.device_put(x, rows)
    atoll.objects.put("shared", {"x": x, "me": jnp.full(4, me)}, donate=turn % 2 == 1)
    x = y if turn % 2 else x
    try: atoll.objects.get("shared", take=turn % 3 == 0)
    except KeyError: pass
    calls(np.float32(turn))
    try:
      if turn % 4 == me % 4: atoll.checkpoint.save(f"{folder}/{me % 8}", {"y": y})
    except RuntimeError as e:  # one that is dead has not come to its end
      if "is being saved to" not in str(e): raise
    float(y[0, 0])
    x = jax.device_put(x, both)

def child(me):
  pid = os.fork()
  if pid: return pid
  try: work(me)
  except BaseException as e:
    os.write(2, f"{type(e).__name__}: {e}\\n".encode())
  os._exit(1)

random.seed(11)
alive, began, early = {}, 0, 0
while began < kills or alive:
  while len(alive) < 8 and began < kills:
    alive[child(began)] = time.monotonic() + random.uniform(0.05, float(sys.argv[3]))
    began += 1
  for pid in [p for p, end in alive.items() if end < time.monotonic()]:
    os.kill(pid, signal.SIGKILL)  # it stays until it is waited for
    early += not os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    del alive[pid]
  time.sleep(0.005)
turns = list(turns[:])
print(began, early, sum(turns), sum(n > 0 for n in turns))
"""


def test_killed_programs_leave_nothing(pod, tmp_path):
  run(pod, """
atoll.objects.put("kept", {"x": jax.device_put(np.arange(4096., dtype=np.float32), both), "y": jnp.arange(7)}, label="stays")
""")
  zygote = tmp_path / "zygote.py"
  zygote.write_text(ZYGOTE)
  env = pods.environment(ATOLL_POD=pod.address, JAX_PLATFORMS="tpu,cpu", TPU_LIBRARY_PATH=pods.LIBRARY, PYTHONPATH=pods.PACKAGE)
  p = subprocess.run([sys.executable, str(zygote), str(KILLS), str(tmp_path), LIFE], env=env, capture_output=True, text=True,
                     timeout=1200)
  print(p.stdout, p.stderr)
  began, early, turns, busy = map(int, p.stdout.split())
  assert (began, early) == (KILLS, 0) and busy >= KILLS // 8, p.stdout + p.stderr
  pod.wait_for(lambda s: not s["clients"])
  run(pod, """
import time
kept = atoll.objects.get("kept")
assert (np.asarray(kept["x"]) == np.arange(4096)).all() and (np.asarray(kept["y"]) == range(7)).all()
try:
  last = atoll.objects.get("shared", take=True)  # whoever it was, all of it
  assert np.isfinite(np.asarray(last["x"])).all() and len(set(np.asarray(last["me"]).tolist())) == 1
except KeyError:
  pass
del kept
last = None
atoll.objects.delete("kept")
until = time.monotonic() + 30
while in_use() and time.monotonic() < until:
  time.sleep(0.1)
assert not in_use() and not atoll.objects.list(), (in_use(), atoll.objects.list())
""")
