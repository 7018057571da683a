#!/usr/bin/env python3
"""Launches over many chips: thousands in flight, opposite orders, a step that is held; values and threads.

  bench/gang.py [--library build/release/libatoll.so] [--steps 10000] [--only NAME]

Each check runs in a process of its own, in which a deadlock would be a time-out. `chain` is the
loop of psum steps that nobody waits for, on 2, 8 and 64 chips. In `opposite` two threads launch two
programs with collectives, one the other way round; `unordered` is the same without the gang
scheduler and must deadlock, and say so. In `held` a callback keeps the first step for a second.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[1]

HEAD = """
import os, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices, steps = jax.devices("tpu"), int(sys.argv[1])
n = len(devices)
mesh = Mesh(np.array(devices), ("x",))
cut = NamedSharding(mesh, P("x"))
def mapped(f):
  return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
def threads():
  # Those that Atoll started, and those of numpy, jaxlib and Python.
  names = []
  for t in os.listdir("/proc/self/task"):
    try: names.append(open(f"/proc/self/task/{t}/comm").read())
    except OSError: pass
  own = sum(n.startswith("atoll-") for n in names)
  return own, len(names) - own
"""

# The first column is s * 0.1 + 1 as 32-bit floats have it, which 64 chips make infinite; the second counts.
CHAIN = """
step = mapped(lambda v: lax.psum(v, "x") * jnp.array([0.1, 1 / n], jnp.float32) + 1.)
x = y = jax.device_put(jnp.ones((n, 2), jnp.float32), cut)
jax.block_until_ready(step(x))
begin = time.perf_counter()
for _ in range(steps): y = step(y)
own, others = threads()
got = np.asarray(y)
total = time.perf_counter() - begin
want = np.float32(1)
with np.errstate(over="ignore"):
  for _ in range(steps): want = np.float32(np.float32(want * n) * np.float32(0.1)) + np.float32(1)
assert (got == got[0]).all() and got[0, 1] == steps + 1, got
np.testing.assert_allclose(got[0, 0], want, rtol=1e-5)
cores = len(os.sched_getaffinity(0))
assert 0 < own <= cores + 8, (own, cores)
print(f"{n} chips, {steps} steps: {total / steps * 1e6:.1f} us a step, {own} threads of Atoll's on {cores} cores "
      f"({others} of JAX's), values {got[0, 0]:.6g} and {got[0, 1]:.0f}")
"""

OPPOSITE = """
def program(scale):
  return mapped(lambda v: lax.fori_loop(0, 2, lambda i, u: lax.psum(u, "x") * (scale / n), v))
f, g = program(1.0), program(2.0)
x = jax.device_put(jnp.ones((n,)), cut)
jax.block_until_ready((f(x), g(x)))
errors = []
def work(first, second):
  try:
    for i in range(steps):
      if errors: return  # the other thread's launches have met a deadlock
      a, b = first(x), second(x)
      if i % 200 == 199: jax.block_until_ready((a, b))
    assert sorted([float(a[0]), float(b[0])]) == [1.0, 4.0]
  except Exception as e:
    errors.append(str(e))
both = [threading.Thread(target=work, args=p) for p in ((f, g), (g, f))]
begin = time.perf_counter()
for t in both: t.start()
for t in both: t.join()
took = time.perf_counter() - begin
"""

IN_ORDER = OPPOSITE + """
assert not errors, errors[0]
print(f"{n} chips, two threads with {steps} pairs each: {took:.2f} s, no deadlock")
"""

UNORDERED = OPPOSITE + """
assert errors and "deadlock" in errors[0] and "waits in all_reduce" in errors[0] and "of launch" in errors[0], errors
print(f"{n} chips, no common order: {errors[0].splitlines()[0][:200]}")
"""

HELD = """
def hold(v):
  time.sleep(1)
  return v
pieces = [jax.device_put(np.ones((1,), np.float32), d) for d in devices]
step = mapped(lambda v: lax.psum(v, "x") / n + 1.)
whole = lambda p: jax.make_array_from_single_device_arrays((n,), cut, p)
jax.block_until_ready(step(whole(pieces)))
slow = jax.jit(lambda v: jax.pure_callback(hold, jax.ShapeDtypeStruct((), np.float32), v[0])[None])
jax.block_until_ready(slow(pieces[0]))
begin = time.perf_counter()
y = whole([slow(pieces[0])] + pieces[1:])
in_time = 0
for _ in range(steps):
  y = step(y)
  in_time += time.perf_counter() - begin < 0.9
assert np.all(np.asarray(y) == steps + 1), y
total = time.perf_counter() - begin
assert in_time >= min(steps, 1000) and total > 0.9, (in_time, total)
print(f"{n} chips, the first step held for 1 s: {in_time} of {steps} later steps accepted within 0.9 s")
"""

CHECKS = {
    "chain-2": ("v5e:1x2", CHAIN, {}),
    "chain-8": ("v5e:2x4", CHAIN, {}),
    "chain-64": ("v5e:8x8", CHAIN, {}),
    "opposite": ("v5e:2x4", IN_ORDER, {}),
    "unordered": ("v5e:2x4", UNORDERED, {"ATOLL_GANG": "off"}),
    "held": ("v5e:2x4", HELD, {"JAX_PLATFORMS": "tpu,cpu"}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=str(TOP / "build" / "release" / "libatoll.so"))
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--only", choices=CHECKS)
    options = parser.parse_args()
    failed = 0
    for name in [options.only] if options.only else CHECKS:
        target, code, more = CHECKS[name]
        env = {**os.environ, "TPU_LIBRARY_PATH": options.library, "JAX_PLATFORMS": "tpu", "ATOLL_TARGET": target, **more}
        begin = time.monotonic()
        try:
            p = subprocess.run([sys.executable, "-c", HEAD + code, str(options.steps)], env=env, capture_output=True, text=True,
                               timeout=120 + options.steps / 50)
            said, bad = (p.stdout if p.returncode == 0 else p.stdout + p.stderr), p.returncode != 0
        except subprocess.TimeoutExpired:
            said, bad = "has not ended: a deadlock", True
        failed += bad
        print(f"{name:10s} {'FAILED ' if bad else ''}{said.strip()} ({time.monotonic() - begin:.1f} s)", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
