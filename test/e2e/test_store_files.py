"""Checkpoints that hosts write and read: whole, on other hosts and shardings, and what is wrong is named."""

import pytest

import pods
from test_store import BEGIN, run

VALUES = """
x = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
big = np.arange(3 << 20, dtype=np.int32).reshape(1024, -1)
def spec(value, sharding):
  return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)
def fails(f):
  try: f()
  except Exception as e: return f"{type(e).__name__}: {e}"
  assert False
"""

SAVE = VALUES + """
a, c = jax.device_put(x, both), jax.device_put(jnp.ones(3, jnp.bfloat16), jax.devices()[1])
b = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P("x", "s")))(a)
large = jax.jit(lambda: jnp.arange(3 << 20, dtype=jnp.int32).reshape(1024, -1), out_shardings=NamedSharding(mesh, P("s")))()
tree = {"a": a, "b/.": [b, (c, None)], "key": jax.random.key(7), "n": 3, "big": large, "none": jnp.zeros((0, 4))}
"""


@pytest.fixture(scope="module")
def small():
  with pods.Pod("--hosts=2", "--target=v5e:2x2") as p:
    yield p


def test_saved_by_four_hosts_and_restored_by_two(pod, small, tmp_path):
  path = tmp_path / "a" / "b"
  for _ in range(2):  # the second takes the place of the first
    run(pod, SAVE + f"""
under_way = atoll.checkpoint.save({str(path)!r}, tree, wait=False)
step = jax.jit(lambda x: x + 1, donate_argnums=0)
step(a), step(large)  # it is saved as it was
under_way.result()
w = atoll.checkpoint.restore({str(path)!r})
assert (np.asarray(w["a"]) == x).all() and (np.asarray(w["b/."][0]) == 2 * x).all() and (np.asarray(w["big"]) == big).all()
assert w["a"].sharding == both and w["b/."][1][0].devices() == {{jax.devices()[1]}} and w["b/."][1][1] is None
assert w["n"] == 3 and w["none"].shape == (0, 4) and (jax.random.key_data(w["key"]) == jax.random.key_data(jax.random.key(7))).all()
""")
  folder, = (p for p in path.iterdir() if p.is_dir())
  assert len(list((folder / "big").iterdir())) == 1 + 2  # copies are written once
  run(small, VALUES + f"""
like = {{"big": spec(big, NamedSharding(mesh, P(None, "x"))), "a": spec(x, NamedSharding(mesh, P(("x", "s")))),
        "b/.": [spec(x, NamedSharding(mesh, P(None, ("x", "s"))))], "key": jax.random.key(0)}}
w = atoll.checkpoint.restore({str(path)!r}, like)
assert (np.asarray(w["a"]) == x).all() and (np.asarray(w["b/."][0]) == 2 * x).all() and (np.asarray(w["big"]) == big).all()
assert w["a"].sharding == like["a"].sharding and (jax.random.key_data(w["key"]) == jax.random.key_data(jax.random.key(7))).all()
assert "device 4, which the pod does not have" in fails(lambda: atoll.checkpoint.restore({str(path)!r}))
""")
  tensorstore = pytest.importorskip("tensorstore", reason="tensorstore is not installed: that it reads the files is not tested")
  z = tensorstore.open({"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/big/"}}).result()
  assert (z.read().result().reshape(-1)[:1000] == range(1000)).all()


def test_what_is_wrong_with_files_is_named(small, tmp_path):
  run(small, SAVE + f"""
import shutil, glob
path = {str(tmp_path)!r} + "/c"
like = {{"a": spec(x, whole), "big": spec(big, rows)}}
atoll.checkpoint.save(path, {{"a": a, "big": large}})
def broken(change, name="a/1.0", what="w"):
  shutil.rmtree(path + what, ignore_errors=True)
  shutil.copytree(path, path + what)
  file, = glob.glob(path + what + "/" + name) or glob.glob(path + what + "/data-*/" + name)
  change(file)
  return fails(lambda: atoll.checkpoint.restore(path + what, like)), file
def damage(file):
  with open(file, "r+b") as f:
    f.seek(9)
    byte = f.read(1)
    f.seek(9)
    f.write(bytes([byte[0] ^ 1]))
e, f = broken(damage)
assert f"{{f}} is damaged between byte 0 and" in e, e
e, f = broken(damage, "big/1.0")
assert f"{{f}} is damaged between byte 0 and 4194304" in e, e
e, f = broken(lambda f: os.truncate(f, 100))
assert f"{{f}} has 100 bytes instead of" in e, e
e, f = broken(os.remove)
assert e.startswith("FileNotFoundError") and f in e, e
def link(f):
  os.rename(f, f + "x"), os.symlink(f + "x", f)
e, f = broken(link)
assert f"opening {{f}}: it is a link" in e, e
if not os.getuid():
  e, f = broken(lambda f: os.chown(f, 12345, 12345))
  assert e.startswith("PermissionError") and f"{{f}} belongs to user 12345" in e, e
e, f = broken(lambda f: os.truncate(f, 50), "atoll.json")
assert f"{{f}}: the manifest is damaged" in e, e
e, f = broken(os.remove, "atoll.json")
assert e.startswith("FileNotFoundError") and f in e, e
# What cannot be asked for.
e = fails(lambda: atoll.checkpoint.restore(path, {{"a": spec(x[:32], whole)}}))
assert "array a of the checkpoint in " in e and "is f32[64,16], not f32[32,16]" in e, e
assert "has no array b" in fails(lambda: atoll.checkpoint.restore(path, {{"b": spec(x, whole)}}))
assert "says no sharding" in fails(lambda: atoll.checkpoint.restore(path, {{"a": jax.ShapeDtypeStruct((1,), x.dtype)}}))
assert "is not absolute" in fails(lambda: atoll.checkpoint.save("c", a))
assert "Not a directory" in fails(lambda: atoll.checkpoint.save("/dev/null/c", a))
# A failure leaves the old one, and nothing of the new one.
def no(x):
  raise ValueError("no")
bad = jax.jit(lambda x: jax.pure_callback(no, jax.ShapeDtypeStruct((), np.float32), x))(np.float32(1))
assert "no" in fails(lambda: atoll.checkpoint.save(path, {{"a": a, "bad": bad}}))
assert (np.asarray(atoll.checkpoint.restore(path, like)["a"]) == x).all() and len(glob.glob(path + "/*")) == 2
""")


def test_a_save_is_one_message_however_many_shards_there_are(pod, tmp_path):
  counted = run(pod, f"""
import gc, json, subprocess
kept = []
def sent():
  s = json.loads(subprocess.run([{pods.ATOLL!r}, "pod", "status", "--json"], capture_output=True, check=True).stdout)
  me, = (c for c in s["clients"] if c["pid"] == os.getpid())
  return np.array([me["messages"], me["bytes"]])
for n in (1, 16):
  over = NamedSharding(Mesh(np.array(jax.devices()[:n]), "x"), P("x"))
  a = jax.block_until_ready(jax.jit(lambda: jnp.zeros((16, 4)), out_shardings=over)())
  path, like = f"{tmp_path}/{{n:02}}", {{"a": jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=over)}}
  atoll.checkpoint.restore(path, like) if os.path.exists(path) else atoll.checkpoint.save(path, {{"a": a}})
  kept.append(atoll.checkpoint.restore(path, like))  # compiles what hands them out
  gc.collect()
  kept.append(jax.block_until_ready(jax.device_put(np.zeros(1))))  # drops go with the next message
  before = sent()
  atoll.checkpoint.save(path, {{"a": a}})
  saved = sent()
  kept.append(atoll.checkpoint.restore(path, like))
  print(*(saved - before), *(sent() - saved))
""")
  one, sixteen = (list(map(int, line.split())) for line in counted.splitlines())
  assert one == sixteen and one[0] == one[2] == 1, counted


def test_the_end_of_a_pod_in_the_middle_leaves_a_checkpoint(tmp_path):
  path = str(tmp_path / "c")
  code = """
import json, subprocess, time
def values(k):
  return jax.jit(lambda: jnp.full((64, 1 << 17), k, jnp.float32), out_shardings=both)()
"""
  with pods.Pod("--hosts=2", "--target=v5e:2x2") as p:
    run(p, code + f"atoll.checkpoint.save({path!r}, values(1))")
    run(p, code + f"""
v = jax.block_until_ready(values(2))
s = json.loads(subprocess.run([{pods.ATOLL!r}, "pod", "status", "--json"], capture_output=True, check=True).stdout)
under_way = atoll.checkpoint.save({path!r}, v, wait=False)
time.sleep(0.02)
for pid in [h["pid"] for h in s["hosts"]]: os.kill(pid, signal.SIGKILL)
try: under_way.result()
except Exception: pass
""")
  with pods.Pod("--hosts=1", "--target=v5e:1x1") as p:
    run(p, f"""
like = jax.ShapeDtypeStruct((64, 1 << 17), np.float32, sharding=NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x")))
a = np.asarray(atoll.checkpoint.restore({path!r}, like))
assert a[0, 0] in (1, 2) and (a == a[0, 0]).all(), a
atoll.checkpoint.save({path!r}, jax.device_put(a * 0 + 3, like.sharding))
assert len([n for n in os.listdir({path!r}) if n.startswith("data-")]) == 1  # what was left over is gone
""", begin=BEGIN.partition("mesh =")[0])
