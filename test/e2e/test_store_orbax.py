"""Orbax's checkpointers, with arrays that the hosts of a pod write and read."""

import importlib.util

import pytest

import pods
from test_store import run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("orbax") is None,
                                reason="no orbax-checkpoint (tools/requirements-test.txt)")

HEAD = """
import json, subprocess
import orbax.checkpoint as ocp
x = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
def same(tree, back):
  for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(back), strict=True):
    assert a.dtype == b.dtype and (a == b).all(), (a, b)
def sent():
  s = json.loads(subprocess.run([ATOLL, "pod", "status", "--json"], capture_output=True, check=True).stdout)
  me, = (c for c in s["clients"] if c["pid"] == os.getpid())
  return me["bytes"]
tree = {"a": jax.device_put(x, both), "b": {"c": jax.jit(lambda x: x.astype(jnp.bfloat16), out_shardings=rows)(x),
        "n": jax.device_put(jnp.int32(7), whole)}, "big": jax.jit(lambda: jnp.ones((1024, 1024)), out_shardings=both)()}
""".replace("ATOLL", repr(pods.ATOLL))


def test_checkpointers_save_and_restore(pod, tmp_path):
  run(pod, HEAD + f"""
atoll.orbax.register()
path = {str(tmp_path)!r}
before = sent()
with ocp.StandardCheckpointer() as c:
  c.save(path + "/step", tree)
  jax.jit(lambda x: x + 1, donate_argnums=0)(tree.pop("big"))  # it is saved as it was
  c.wait_until_finished()
  tree["big"] = jax.device_put(np.ones((1024, 1024), np.float32), both)
  back = c.restore(path + "/step", tree)
  same(tree, back)
  assert all(a.sharding == b.sharding for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(back)))
  columns = NamedSharding(mesh, P(None, "x"))
  like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=columns if a.ndim else whole), tree)
  back = c.restore(path + "/step", like)
  same(tree, back)
  assert back["a"].sharding == columns
  half = c.restore(path + "/step", {{**like, "a": jax.ShapeDtypeStruct((64, 16), jnp.bfloat16, sharding=both)}})
  assert half["a"].dtype == jnp.bfloat16 and (np.asarray(half["a"], np.float32) == x.astype(jnp.bfloat16)).all()
  same(tree, c.restore(path + "/step"))  # as it was
assert os.path.exists(path + "/step/atoll.json") and os.path.exists(path + "/step/big/15.0")
# With keys, numbers and arrays of NumPy, which this process writes.
mixed = {{**tree, "key": jax.device_put(jax.random.key(3), whole), "np": x, "f": 2.5}}
with ocp.PyTreeCheckpointer() as c:
  c.save(path + "/mixed", mixed)
  args = ocp.checkpoint_utils.construct_restore_args(mixed)
  back = c.restore(path + "/mixed", restore_args=args)
  key = back.pop("key")
  same({{k: v for k, v in mixed.items() if k not in ("key", "f")}}, {{k: v for k, v in back.items() if k != "f"}})
  assert (jax.random.key_data(key) == jax.random.key_data(jax.random.key(3))).all() and back["f"] == 2.5
# Orbax alone reads what was saved without OCDBT.
with ocp.PyTreeCheckpointer(use_ocdbt=False) as c:
  c.save(path + "/zarr", tree)
with ocp.CheckpointManager(path + "/many", options=ocp.CheckpointManagerOptions(max_to_keep=1)) as m:
  for step in range(2):
    m.save(step, args=ocp.args.StandardSave(tree))
    m.wait_until_finished()
  same(tree, m.restore(1, args=ocp.args.StandardRestore(tree)))
  assert m.all_steps() == [1]
""")
  p = pods.python(f"""
import jax, numpy as np, orbax.checkpoint as ocp
like = {{"a": np.zeros((64, 16), np.float32), "b": {{"c": np.zeros((64, 16), jax.numpy.bfloat16), "n": np.zeros((), np.int32)}},
        "big": np.zeros((1024, 1024), np.float32)}}
like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])), like)
with ocp.StandardCheckpointer() as c:
  back = c.restore({str(tmp_path / "zarr")!r}, like)
assert (back["a"] == np.arange(1024.).reshape(64, 16)).all() and (back["big"] == 1).all() and back["b"]["n"] == 7
""", JAX_PLATFORMS="cpu")
  assert not p.returncode, p.stderr


def test_what_others_have_written_is_read_by_orbax(pod, tmp_path):
  run(pod, HEAD + f"""
with ocp.StandardCheckpointer() as c:
  c.save({str(tmp_path / "theirs")!r}, tree)
atoll.orbax.register()
with ocp.StandardCheckpointer() as c:
  same(tree, c.restore({str(tmp_path / "theirs")!r}, tree))
  c.save({str(tmp_path / "ours")!r}, tree)
  c.wait_until_finished()
  with open({str(tmp_path / "ours" / "a" / "3.0")!r}, "r+b") as f:
    f.write(b"!")
  try: c.restore({str(tmp_path / "ours")!r}, tree)
  except RuntimeError as e: assert "ours/a/3.0 is damaged" in str(e), e
  else: assert False
""")


def test_without_a_pod_it_is_said_what_is_needed():
  p = pods.python("import atoll.orbax\ntry: atoll.orbax.register()\nexcept RuntimeError as e: print(e)",
                  TPU_LIBRARY_PATH=pods.LIBRARY, PYTHONPATH=pods.PACKAGE)
  assert "there is no pod\nhint: `atoll pod up` makes one" in p.stdout, p.stderr
