"""Virtual devices of a pod: as many as are wanted, of a shape, a kind and a place, and what is left when a host goes."""

import subprocess

import pods

HEAD = """
import jax, jax.numpy as jnp, numpy as np, atoll
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
def spread(devices, shape=None):
  return Mesh(np.array(devices).reshape(shape or -1), ("x", "y")[:len(shape or (1,))])
def refused(**wish):
  try: atoll.make_virtual_device_set().add_slice(**wish)
  except ValueError as e: return str(e)
"""


def said(pod, user, code):
  p = pods.python(HEAD + code, ATOLL_POD=pod.address, PYTHONPATH=user, TPU_LIBRARY_PATH=pods.LIBRARY)
  assert not p.returncode, p.stdout + p.stderr
  return p.stdout.split("\n")[:-1]


def test_more_devices_than_chips(pod, user):
  """The package changes nothing that JAX lists; 24 devices on 16 chips give the bits that real ones give."""
  assert said(pod, user, """
assert [d.id for d in jax.devices()] == list(range(16)) and jax.device_count() == jax.local_device_count() == 16
assert [d.id for d in jax.local_devices()] == list(range(16)) and {d.slice_index for d in jax.devices()} == {0, 1}
def step(v):
  w = v @ v.T
  return jnp.tanh(w).sum(0), jnp.roll(v, 3, 0)
def on(mesh):
  x = jax.device_put(jnp.arange(24 * 24.).reshape(24, 24) / 500, NamedSharding(mesh, P("x", "y")))
  return [np.asarray(y) for _ in range(3) for y in jax.jit(step)(x)]
s = atoll.make_virtual_device_set().add_slice(tpu_devices=24, topology=(6, 4))
assert [d.coords for d in s.tpus[5:8]] == [[5, 0, 0], [0, 1, 0], [1, 1, 0]], s.tpus
assert all(d.slice_index == 2 and d.device_kind == "TPU v5 lite" and d.process_index == 0 for d in s.tpus)
assert len(set(s.tpus)) == 24 and not set(s.tpus) & set(jax.devices())
assert sorted(chip for chip, _ in s.chips) == sorted(list(range(8)) * 3)  # one slice of the pod
many, eight = on(spread(s.tpus, (6, 4))), on(spread(jax.devices()[:8], (2, 4)))
assert all(np.allclose(a, b, rtol=1e-6) for a, b in zip(many, eight))
y = jax.device_put(jax.device_put(jnp.arange(48.), NamedSharding(spread(s.tpus), P("x"))), jax.devices()[9])
print(y.sum(), y.devices() == {jax.devices()[9]}, s.tpus[7])
s.close()
try: jnp.ones(3, device=s.tpus[0])
except Exception as e: print(e)
""") == ["1128.0 True TPU_23(process=0,(1,1,0,0),TPU v5 lite on Atoll, virtual)",
        "FAILED_PRECONDITION: device 16 stands for no chip of the pod: its slice is closed"]


def test_wishes(pod, user):
  lines = said(pod, user, """
s = atoll.make_virtual_device_set()
a, b = s.add_slice(tpu_devices=4, location="slice 1"), s.add_slice(tpu_devices=4, location="host 1", kind="v5e")
c = s.add_slice(tpu_devices=8, location=0, topology="2x4")
assert {chip for chip, _ in a.chips} <= set(range(8, 16)) and {host for _, host in b.chips} == {1}
assert [chip for chip, _ in c.chips] == list(range(8))
with s.add_slice(tpu_devices=4, memory=9 << 30, location="host 3", kind="TPU v5 lite") as d:
  print(refused(tpu_devices=1, memory=9 << 30, location="host 3"))
assert s.add_slice(tpu_devices=3, memory=9 << 30, location="host 3", policy="fair").tpus
for wish in (dict(kind="v6e"), dict(location="rack 5"), dict(location="host 4"), dict(location=2), dict(topology="3x3"),
             dict(policy="best"), dict(tpu_devices=0), dict(tpu_devices=300)):
  print(refused(**{"tpu_devices": 4, **wish}))
""")
  wanted = ["1 devices of 9663676416 bytes each have no room on one slice of the pod: a chip has at most 7247757312",
            "no chip of the pod is of kind v6e; it has v5e (TPU v5 lite)",
            "location 'rack 5' is no slice (1, 'slice 1') and no host ('host 2')",
            "host 4 has no such chip; the pod has hosts 0 to 3", "slice 2 has no such chip; the pod has slices 0 to 1",
            "topology 3x3 has not 4 devices", "policy 'best' is none of 'spread', 'fair'",
            "tpu_devices is to be a whole number from 1 on, not 0",
            "a slice of 300 devices, but of this client's spare device numbers for v5e 237 are free",
            "hint: close slices that are no longer needed, or set ATOLL_POD_SPARES (now 256) before JAX makes"]
  assert len(lines) == len(wanted) and all(got.startswith(want) for got, want in zip(lines, wanted)), lines


def test_a_lost_host_recompiles_nothing(user):
  """Devices of a lost host stand for other chips: what was on them is lost, the program runs as it did."""
  with pods.Pod("--hosts=2", "--target=v5e:2x2") as pod:
    assert said(pod, user, f"""
import os, signal, time
pid = {pod.host(1)["pid"]}
s = atoll.make_virtual_device_set().add_slice(tpu_devices=4)
mesh = spread(s.tpus)
step = jax.jit(lambda v: (v * 2 + v.sum(), v.mean()))
def run():
  return [np.asarray(y) for y in step(jax.device_put(jnp.arange(8.), NamedSharding(mesh, P("x"))))]
@atoll.program
def traced(v):
  w, _ = step(v)
  return step(w)
x = jnp.arange(8.)
before, kept = run(), jax.device_put(x, s.tpus[0])
want = [np.asarray(traced(jax.device_put(x, NamedSharding(mesh, P("x"))))[0]) for _ in range(2)][1]
gone = jax.device_put(x, s.tpus[3]).block_until_ready()
assert {{host for _, host in s.chips}} == {{0, 1}}
compiled = atoll.compiled().programs
os.kill(pid, signal.SIGKILL)
while {{host for _, host in s.chips}} != {{0}}: time.sleep(0.01)
assert all(np.array_equal(a, b) for a, b in zip(run(), before)) and np.asarray(kept).sum() == 28
print(atoll.compiled().programs - compiled)
try: print(gone + 1)
except Exception as e: print(str(e).partition(":")[0])
compiled = atoll.compiled().programs
for _ in range(3):
  got = traced(jax.device_put(x, NamedSharding(mesh, P("x"))))[0]
  assert np.array_equal(got, want)
print(atoll.compiled().programs - compiled, len(traced.graphs))
""") == ["0", "DATA_LOSS", "0 1"]


def test_the_programs_of_the_paper(pod, user):
  """Figure 2 of the paper on Pathways, with devices that are virtual."""
  assert said(pod, user, """
def get_devices(n):
  return atoll.make_virtual_device_set().add_slice(tpu_devices=n).tpus
a = jax.pmap(lambda x: x * 2., devices=get_devices(2))
b = jax.pmap(lambda x: x + 1., devices=get_devices(2))
c = jax.pmap(lambda x: x / 2., devices=get_devices(2))
@atoll.program
def f(v):
  x = a(v)
  return b(x), a(c(x))
for _ in range(2): y = f(np.array([1., 2.]))
print(y, len(f.graphs), len(jax.devices()))
""") == ["(Array([3., 5.], dtype=float32), Array([2., 4.], dtype=float32)) 1 16"]


def test_chips_of_two_kinds(user):
  """Programs are compiled for the kind of their devices; arrays move between them; one program has one kind."""
  with pods.Pod("--hosts=2", "--target=v5e:2x2,2*v6e:1x2") as pod:
    assert pod.status()["target"] == "v5e:2x2,2*v6e:1x2"
    lines = said(pod, user, """
d = jax.devices()
assert [x.device_kind for x in d] == ["TPU v5 lite"] * 4 + ["TPU v6 lite"] * 4
assert [(x.slice_index, *x.coords) for x in d[3:]] == [(0, 1, 1, 0), (1, 0, 0, 0), (1, 0, 1, 0), (2, 0, 0, 0), (2, 0, 1, 0)]
five, six = spread(d[:4]), spread(d[4:])
f = jax.jit(lambda v: v * 2 + v.sum())
y = f(jax.device_put(jnp.arange(8.), NamedSharding(five, P("x"))))
z = f(jax.device_put(y, NamedSharding(six, P("x"))))
assert np.array_equal(z, f(np.asarray(f(np.arange(8., dtype=np.float32))))), z
assert np.array_equal(jax.device_put(z, d[1]), z)
def fits(device):  # 20 GiB: on one of them only
  big = jax.ShapeDtypeStruct((5 << 30,), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(device))
  try: return bool(jax.jit(lambda v: v[0] + 1).lower(big).compile())
  except Exception as e: return str(e)[:18]
print(fits(d[0]), fits(d[7]))
try: f(jax.device_put(jnp.arange(8.), NamedSharding(spread(d), P("x"))))
except Exception as e: print(str(e).partition("\\n")[0])
s = atoll.make_virtual_device_set()
a, b = s.add_slice(tpu_devices=4, kind="v6e"), s.add_slice(tpu_devices=2, kind="v5e")
assert {x.device_kind for x in a.tpus} == {"TPU v6 lite"} and {chip for chip, _ in b.chips} <= set(range(4))
w = f(jax.device_put(np.arange(8.), NamedSharding(spread(a.tpus), P("x"))))
print(w.sum(), jax.device_put(w, b.tpus[0]).sum(), refused(tpu_devices=2, kind="v4"))
""")
  assert lines == ["RESOURCE_EXHAUSTED True",
                   "INVALID_ARGUMENT: a program over devices of two kinds: device 0 is a TPU v5 lite, device 4 a TPU v6 lite",
                   "280.0 280.0 no chip of the pod is of kind v4; it has v5e (TPU v5 lite), v6e (TPU v6 lite)"], lines


def test_only_a_pod_has_two_kinds(python):
  p = python("import jax; jax.devices('tpu')", env={"ATOLL_TARGET": "v5e:2x2,v6e:2x2"})
  assert p.returncode and "hint: atoll pod up --target=v5e:2x2,v6e:2x2" in p.stderr


def test_a_host_comes_later(user):
  """A running client uses its chips by a slice, the next one lists them; nothing that runs is disturbed."""
  with pods.Pod("--hosts=1", "--max-hosts=2", "--target=2*v5e:2x2") as pod:
    client = subprocess.Popen([pods.sys.executable, "-c", HEAD + """
import time
assert len(jax.devices()) == 4
x = jax.device_put(jnp.arange(8.), NamedSharding(spread(jax.devices()), P("x")))
f = jax.jit(lambda v: v * 2 + v.sum())
print(refused(tpu_devices=4, location="slice 1"), flush=True)
while refused(tpu_devices=4, location="slice 1"): time.sleep(0.02)
s = atoll.make_virtual_device_set().add_slice(tpu_devices=4, location="slice 1")
assert s.chips == [(i, 1) for i in range(4, 8)] and len(jax.devices()) == 4
y = f(jax.device_put(f(x), NamedSharding(spread(s.tpus), P("x"))))
both = spread([*jax.devices()[:2], *s.tpus[:2]])
z = f(jax.device_put(x, NamedSharding(both, P("x"))))
print(float(y.sum()), float(z.sum()), float(x.sum()))
"""], env=pods.environment(ATOLL_POD=pod.address, PYTHONPATH=user, TPU_LIBRARY_PATH=pods.LIBRARY),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "the hosts of all 4 such chips are lost, or have not come\n"
    late = subprocess.Popen([pods.ATOLL, "host", f"--controller={pod.address}"], env=pods.environment(),
                            stderr=subprocess.PIPE, text=True)
    try:
      out, err = client.communicate(timeout=60)
      assert out == "2800.0 280.0 28.0\n", out + err
      assert said(pod, user, """
assert [(d.id, d.slice_index) for d in jax.devices()] == [(i, i // 4) for i in range(8)]
print(jax.jit(jnp.sum)(jax.device_put(jnp.arange(16.), NamedSharding(spread(jax.devices()), P("x")))))
""") == ["120.0"]
      status = pod.status()
      assert [h["state"] for h in status["hosts"]] == ["up"] * 2 and status["max_hosts"] == 2
    finally:
      late.terminate()
      late.communicate(timeout=20)
