"""Named objects of a pod outlive the programs that made them."""

import json
import os
import signal
import time

import pytest

import pods

BEGIN = """
import os, signal
import atoll, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("s", "x"))
both, rows, whole = (NamedSharding(mesh, P(*p)) for p in [(("s", "x"),), ("x", None), ()])
def in_use():
  return sum(d.memory_stats()["bytes_in_use"] for d in jax.devices())
"""


def run(pod, code, status=0, begin=BEGIN, **env):
  p = pods.python(begin + code, ATOLL_POD=pod.address, TPU_LIBRARY_PATH=pods.LIBRARY, PYTHONPATH=pods.PACKAGE,
                  **{"JAX_PLATFORMS": "tpu,cpu", **env})
  assert p.returncode == status, p.stdout + p.stderr
  return p.stdout


def objects(pod):
  return {o["name"]: o for o in pod.status()["objects"]}


def test_objects_outlive_a_program_that_is_killed(pod):
  run(pod, """
a = jax.device_put(np.arange(1024, dtype=np.float32).reshape(64, 16), both)
b = jax.jit(lambda x: x * 2, out_shardings=rows)(a)
tree = {"a": a, "b": [b, (jax.device_put(jnp.ones(3, jnp.bfloat16), jax.devices()[5]), None)], "key": jax.random.key(7),
        "host": jax.device_put(a, both.with_memory_kind("pinned_host")), "n": 3}
atoll.objects.put("weights", tree, label="run 7")
jax.jit(lambda x: x + 1, donate_argnums=0)(a)
os.kill(os.getpid(), signal.SIGKILL)
""", -signal.SIGKILL)
  pod.wait_for(lambda s: not s["clients"])
  is_there = objects(pod)["weights"]
  assert (is_there["label"], is_there["arrays"], is_there["hosts"], is_there["state"]) == ("run 7", 6, 4, "there")
  assert "python" in is_there["owner"] and is_there["bytes"] == 2 * 4096 + 2 * 4096 + 8 + 6 + 4
  assert "run 7" in pods.atoll("pod", "objects", ATOLL_POD=pod.address).stdout
  run(pod, """
w = atoll.objects.get("weights")
x = np.arange(1024, dtype=np.float32).reshape(64, 16)
assert w["a"].sharding == both and w["b"][0].sharding == rows and w["b"][1][0].devices() == {jax.devices()[5]}
assert w["host"].sharding.memory_kind == "pinned_host" and w["b"][1][1] is None and w["n"] == 3
assert (np.asarray(w["a"]) == x).all() and (np.asarray(w["b"][0]) == 2 * x).all() and (np.asarray(w["host"]) == x).all()
assert (jax.random.key_data(w["key"]) == jax.random.key_data(jax.random.key(7))).all()
# They are arrays like others, and the object is not changed by what happens to them.
y = jax.jit(lambda x: x + 1, donate_argnums=0)(w["a"])
assert w["a"].is_deleted() and float(y.sum()) == float((x + 1).sum())
assert (np.asarray(atoll.objects.get("weights")["a"]) == x).all()
try: atoll.objects.get("nothing")
except KeyError as e: assert "has no object nothing" in str(e)
try: atoll.objects.put("bad\\n", y)
except ValueError as e: assert "without control characters" in str(e)
try: atoll.objects.put("cpu", jax.device_put(np.ones(3), jax.devices("cpu")[0]))
except ValueError as e: assert "is not on the pod" in str(e)
try: atoll.objects.put("odd", {"a": y, 3: y})
except TypeError as e: assert "strings" in str(e)
assert list(atoll.objects.list()) == ["weights"]
""")
  assert not pods.atoll("pod", "objects", "--delete=weights", ATOLL_POD=pod.address).returncode
  p = pods.atoll("pod", "objects", "--delete=weights", ATOLL_POD=pod.address)
  assert p.returncode and "the pod has no object weights" in p.stderr
  run(pod, "assert not in_use(), in_use()")


def test_arrays_are_handed_on_without_a_copy(pod):
  run(pod, """
a = jax.block_until_ready(jax.device_put(np.ones((16, 4096), np.float32), both))
used = in_use()
atoll.objects.put("a", a)
assert in_use() == 2 * used
atoll.objects.delete("a")
atoll.objects.put("a", a, donate=True)
assert a.is_deleted() and in_use() == used
b = atoll.objects.get("a", take=True)
assert in_use() == used and not atoll.objects.list() and float(b.sum()) == 65536
# A failure leaves what was there before.
atoll.objects.put("b", b)
def fails(x):
  raise ValueError("no")
bad = jax.jit(lambda x: jax.pure_callback(fails, jax.ShapeDtypeStruct((), np.float32), x))(np.float32(1))
try: atoll.objects.put("b", bad)
except Exception as e: print(type(e).__name__)
else: assert False
assert float(atoll.objects.get("b").sum()) == 65536
atoll.objects.delete("b")
""")


def test_what_is_gone_or_only_traced_is_told(pod, tmp_path):
  run(pod, f"""
gone = jax.device_put(np.ones(4, np.float32), jax.devices()[1])
key = jax.random.key(1)
gone.delete(), key.delete()
def told(error, words, f):
  try: f()
  except error as e: assert words in str(e), e
  else: assert False, words
for x in (gone, key):
  told(RuntimeError, "has been deleted or donated", lambda: atoll.objects.put("x", {{"x": x}}))
  told(RuntimeError, "has been deleted or donated", lambda: atoll.checkpoint.save({str(tmp_path / "c")!r}, [x]))
told(RuntimeError, "has been deleted or donated", lambda: atoll.program(lambda x: x + 1)(gone))
for f in (lambda x: atoll.objects.put("x", x), lambda x: atoll.checkpoint.save({str(tmp_path / "c")!r}, [x])):
  told(TypeError, "only traced", lambda: jax.jit(f)(np.ones(4)))
assert not atoll.objects.list()
atoll.checkpoint.save({os.fsencode(tmp_path / "c")!r}, [jnp.ones(4)])
assert float(atoll.checkpoint.restore({str(tmp_path / "c")!r})[0].sum()) == 4
""")


def test_virtual_devices_are_told_from_chips(pod, tmp_path):
  run(pod, f"""
with atoll.make_virtual_device_set().add_slice(tpu_devices=2) as s:
  there = jax.sharding.SingleDeviceSharding(s.tpus[1])
  x = jax.device_put(np.ones(4, np.float32), there)
  y = jax.device_put(x, jax.devices()[3])
  for f in (lambda: atoll.objects.put("x", x), lambda: atoll.checkpoint.save({str(tmp_path / "c")!r}, {{"x": x}})):
    try: f()
    except ValueError as e: assert "is a virtual device" in str(e), e
    else: assert False
  atoll.checkpoint.save({str(tmp_path / "c")!r}, {{"x": y}})
  try: atoll.checkpoint.restore({str(tmp_path / "c")!r}, {{"x": jax.ShapeDtypeStruct((4,), np.float32, sharding=there)}})
  except ValueError as e: assert "is a virtual device" in str(e), e
  else: assert False
  assert (np.asarray(atoll.checkpoint.restore({str(tmp_path / "c")!r})["x"]) == 1).all()
""")


def test_a_lost_host_takes_its_part_along():
  with pods.Pod("--hosts=2", "--target=v5e:2x2") as pod:
    run(pod, """
atoll.objects.put("all", jax.device_put(np.ones(4), NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x"))))
atoll.objects.put("first", jax.device_put(np.ones(4), jax.devices()[0]))
""")
    pid = pod.host(1)["pid"]
    os.kill(pid, signal.SIGKILL)
    pod.wait_until_back(1, pid)
    assert {n: o["state"] for n, o in objects(pod).items()} == {"all": "lost", "first": "there"}
    run(pod, """
assert (np.asarray(atoll.objects.get("first")) == 1).all()
try: atoll.objects.get("all")
except RuntimeError as e: assert "host 1 is lost, and with it a part of the object all" in str(e), e
else: assert False
atoll.objects.delete("all")
assert list(atoll.objects.list()) == ["first"]
""")


def test_without_a_pod_it_is_said_what_is_needed():
  p = pods.python("import atoll\ntry: atoll.objects.get('x')\nexcept RuntimeError as e: print(e)",
                  TPU_LIBRARY_PATH=pods.LIBRARY, PYTHONPATH=pods.PACKAGE)
  assert "there is no pod\nhint: `atoll pod up` makes one" in p.stdout, p.stderr
