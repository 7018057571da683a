"""Programs of jax-tpu-embedding 0.2.0, which needs a newer Python, as tools/sparsecore_record.py wrote them down: clipped
tables, custom optimizers as StableHLO, minibatches of both. Results were NumPy's to the last bit when they were recorded."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lib import _jax, xla_client

RECORDS = np.load(pathlib.Path(__file__).resolve().parents[1] / "programs" / "jax_tpu_embedding_0.2.0.npz")
NAMES = sorted({k.split("/")[0] for k in RECORDS.files if "/" in k})


def arrays(name, kind):
  found = []
  while f"{name}/{kind}{len(found)}" in RECORDS.files:
    found.append(RECORDS[f"{name}/{kind}{len(found)}"])
  return found


def test_the_records_are_there():
  assert RECORDS["version"] == "0.2.0" and len(NAMES) >= 34


@pytest.mark.parametrize("name", NAMES)
def test_program(name):
  device = jax.devices()[0]
  options = xla_client.CompileOptions()
  text = RECORDS[f"{name}/text"].tobytes()
  program = device.client.compile_and_load(text, _jax.DeviceList((device,)), options)
  args = [jnp.asarray(a) for a in arrays(name, "in")]
  kept = [a for a, used in zip(args, used_arguments(text.decode(), len(args)), strict=True) if used]
  got = [np.asarray(a[0]) for a in program.execute_sharded(kept).disassemble_into_single_device_arrays()]
  wanted = arrays(name, "out")
  assert len(got) == len(wanted)
  for have, want in zip(got, wanted):
    np.testing.assert_array_equal(have.reshape(want.shape).view(np.int32), want.view(np.int32))


def used_arguments(text, count):
  """JAX drops arguments that the program does not read: the step of an optimizer without schedule."""
  main = text[text.index("func.func public @main"):]
  given = main[:main.index("->")].count("tensor<")
  assert given in (count, count - 1)
  return [True] * given + [False] * (count - given)
