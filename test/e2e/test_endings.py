"""How processes end: a failed callback, work under way, a signal, a fork; and what
is said when the system gives no more memory, threads, files or stack. Nothing hangs,
nothing crashes, and no message comes after the program's own."""

import os
import signal
import subprocess
import sys

import pytest

START = """
import os, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback
x = np.arange(8, dtype=np.float32)
shape = jax.ShapeDtypeStruct((8,), np.float32)
def fail(v): raise ValueError('boom')
def long(v): return jax.lax.fori_loop(0, 60000000, lambda i, a: jnp.sin(a) + 1.0, v)
def interrupt(after):
  threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
"""
# A compile of some seconds.
LARGE = """
def large(v):
  a = b = v
  for i in range(3000):
    a = (jnp.sin(a + b * (i + 1.0)).reshape(2, 4).T.reshape(4, 2).sum(1)[:1] + b
         if i % 3 == 0 else a * b)
  return a
lowered = jax.jit(large).lower(x)
"""


def run(code):
  return subprocess.run(
      [sys.executable, "-c", START + code], capture_output=True, text=True,
      timeout=120, env={**os.environ, "ATOLL_CACHE": "off"})


def ends(p, code=0, said=""):
  assert p.returncode == code, (p.returncode, p.stdout, p.stderr)
  assert said in p.stdout, (p.stdout, p.stderr)


CALLBACKS = {
    "pure": "jax.pure_callback(fail, shape, v)",
    "io": "io_callback(fail, shape, v)",
    "ordered": "io_callback(fail, shape, v, ordered=True)",
    "debug": "(jax.debug.callback(fail, v), v + 1)[1]",
}


@pytest.mark.parametrize("kind", CALLBACKS)
def test_a_callback_that_raises(kind):
  p = run(f"""
f = jax.jit(lambda v: {CALLBACKS[kind]})
try:
  f(x).block_until_ready(); jax.effects_barrier()
except jax.errors.JaxRuntimeError as e: print('caught', 'boom' in str(e))
print(float(jax.jit(lambda v: v + 1)(x).sum()))
try: y = f(x)  # nobody waits for this one; its token may be the failed one's
except jax.errors.JaxRuntimeError: pass
sys.stderr.write('last\\n')
""")
  ends(p, said="36.0")
  assert "caught True" in p.stdout, p.stdout
  # What follows is JAX's own account of the callback, if anything.
  tail = p.stderr.split("last\n")[-1]
  for word in ("atoll", "Fatal", "terminate", "Segmentation", "Aborted"):
    assert word not in tail, p.stderr


ENDINGS = {
    "in flight": ("y = jax.jit(long)(x); print('out')", 0),
    "callback in flight": (
        "y = jax.jit(lambda v: jax.pure_callback(\n"
        "    lambda a: (time.sleep(0.5), np.asarray(a))[1], shape, v) + 1)(x)\n"
        "print('out')", 0),
    "exception in flight": ("y = jax.jit(long)(x); print('out'); raise SystemExit(6)", 6),
    "os._exit in flight": ("y = jax.jit(long)(x); print('out', flush=True); os._exit(3)", 3),
    "os._exit in a callback": (
        "print('out', flush=True)\n"
        "jax.jit(lambda v: jax.pure_callback(lambda a: os._exit(5), shape, v))(x)"
        ".block_until_ready()", 5),
    "sys.exit in a callback": (
        "try: jax.jit(lambda v: jax.pure_callback(lambda a: sys.exit(5), shape, v))(x)"
        ".block_until_ready()\nexcept jax.errors.JaxRuntimeError: print('out')", 0),
    "signal in flight": (
        "y = jax.jit(long)(x); print('out', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "client cleared": (
        "y = jax.jit(long)(x)\n"
        "import jax.extend.backend as b; b.clear_backends(); print('out')", 0),
    "a thread that raises": (
        "sys.stderr = open(os.devnull, 'w')\n"
        "t = threading.Thread(target=lambda: jax.jit(lambda v: fail(v))(x)); t.start()\n"
        "t.join(); print('out', jax.jit(lambda v: v + 1)(x).sum())", 0),
    "work at the end": (
        "import atexit\n"
        "atexit.register(lambda: print('out', jax.jit(lambda v: v * 3)(x).sum()))", 0),
    "compiling": (LARGE + "threading.Thread(target=lowered.compile, daemon=True).start()\n"
                  "time.sleep(0.3); print('out', flush=True); os._exit(0)", 0),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_ending(name):
  code, status = ENDINGS[name]
  p = run(code)
  ends(p, status, "out")
  for word in ("atoll", "Fatal", "terminate", "Segmentation", "core dumped"):
    assert word not in p.stderr, p.stderr


# Python's handler runs while the compile goes on; the next one is right, and the end
# of the process neither waits for the first nor crashes. jaxlib compiles on threads of
# its own, which may come to the library only when the interpreter is being taken down.
# (Sooner than these moments jaxlib still reads the program, whose memory it frees.)
@pytest.mark.parametrize("after", [0.6, 1.0])
def test_interrupted_compile(after):
  p = run(LARGE + f"""
interrupt({after})
t = time.monotonic()
try: lowered.compile(); print('compiled')
except KeyboardInterrupt: print('interrupted', time.monotonic() - t < 5)
print(float(jax.jit(lambda v: v * 2 + 1)(x).sum()))
""")
  ends(p, said="interrupted True\n64.0")
  assert p.stderr == "", p.stderr


def test_a_handler_that_does_not_raise_changes_nothing():
  p = run(LARGE.replace("3000", "300") + """
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
interrupt(0.3)
print(float(lowered.compile()(x)[0]) == float(lowered.compile()(x)[0]))
time.sleep(0.5); print('seen', len(seen))
""")
  ends(p, said="True\nseen 1")


def test_interrupted_wait():
  p = run("""
y = jax.jit(long)(x)
interrupt(0.3)
try: y.block_until_ready()
except KeyboardInterrupt: print('interrupted')
print(float(jax.jit(lambda v: v * 2 + 1)(x).sum()))
""")
  ends(p, said="64.0")


# What had been compiled says what is wrong in the child; what it has to compile first
# waits for threads of jaxlib, which JAX warns of.
def test_forked_child():
  p = run("""
y = jax.jit(lambda v: v + 1)(x)
pid = os.fork()
if not pid:
  try: np.asarray(y)
  except Exception as e: print('child', 'forked child' in str(e), flush=True)
  os._exit(7)
print('status', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
  ends(p, said="child True")
  assert "status 7" in p.stdout


# Once a client is there: what fits in what is left is right, the rest has a status. The
# program is lowered before the limit, which is JAX's part and imports libraries of its own.
LIMITS = [("AS", 12 << 20), ("AS", 48 << 20), ("AS", 110 << 20),
          ("NPROC", 3), ("NPROC", 8), ("NOFILE", 5)]


@pytest.mark.parametrize("which,more", LIMITS)
def test_limits(which, more):
  if which == "NPROC" and os.getuid():
    pytest.skip("this user's other processes count, too")
  p = run(f"""
import resource
v = np.ones((64, 64), np.float32)
lowered = jax.jit(lambda v: jnp.sort(v @ v.T).sum()).lower(v)
jax.devices()
if '{which}' == 'AS':
  have = int(open('/proc/self/statm').read().split()[0]) * 4096
elif '{which}' == 'NPROC':
  have = len(os.listdir('/proc/self/task'))
else:
  have = 0
resource.setrlimit(resource.RLIMIT_{which}, (have + {more},) * 2)
if '{which}' == 'NPROC': os.setresuid(54321, 54321, 54321)
for _ in range(2):
  try: print('value', float(lowered.compile()(v)))
  except jax.errors.JaxRuntimeError as e: print('status', str(e))
""")
  ends(p)
  for line in p.stdout.splitlines():
    assert line == "value 262144.0" or line.startswith(
        ("status RESOURCE_EXHAUSTED: ", "hint: ", "detail: ")), p.stdout
