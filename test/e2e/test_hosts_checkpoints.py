"""Orbax saves on four processes and restores on two, on other meshes: every bit."""

import os
import subprocess
import sys

import pytest
from test_meeting import ends, free_ports

HEAD = """
import sys
import jax, jax.numpy as jnp, numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
port, count, me, path = sys.argv[1:]
jax.distributed.initialize(f"localhost:{port}", int(count), int(me))
mesh = Mesh(np.array(jax.devices()).reshape(int(count), -1), ("a", "b"))
rng = np.random.default_rng(0)
values = {str(i): (rng.normal(size=shape) * 10).astype(t) for i, (shape, t) in enumerate(
    [((16, 64), np.float32), ((64,), np.float32), ((3,), np.float32), ((8, 6), jnp.bfloat16), ((8,), np.int32), ((), np.float32)])}
"""

SAVE = HEAD + """
cut = [P("a", "b"), P("b"), P(), P(("a", "b")), P("a"), P()]
tree = {k: jax.make_array_from_callback(a.shape, NamedSharding(mesh, cut[int(k)]), lambda i: a[i]) for k, a in values.items()}
with ocp.CheckpointManager(path) as m:
  m.save(1, args=ocp.args.StandardSave(tree))
"""

RESTORE = HEAD + """
cut = [P("b", "a"), P("a"), P(), P(), P("b"), P()]
like = {k: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, cut[int(k)])) for k, a in values.items()}
with ocp.CheckpointManager(path) as m:
  tree = m.restore(1, args=ocp.args.StandardRestore(like))
for k, a in tree.items():
  for s in a.addressable_shards:
    assert np.asarray(s.data).tobytes() == np.ascontiguousarray(values[k][s.index]).tobytes(), k
"""


def run(code, count, path):
  (port,) = free_ports(1)
  for out, errors, status in ends([subprocess.Popen(
      [sys.executable, "-c", code, str(port), str(count), str(i), str(path)], text=True, stdout=subprocess.PIPE,
      stderr=subprocess.PIPE, env={**os.environ, "ATOLL_TARGET": "v6e:2x4", "JAX_PLATFORMS": "tpu,cpu"})
      for i in range(count)]):
    assert status == 0, out + errors


def test_saved_on_four_restored_on_two(tmp_path):
  pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed: its checkpoints are not tested")
  run(SAVE, 4, tmp_path / "checkpoints")
  run(RESTORE, 2, tmp_path / "checkpoints")
