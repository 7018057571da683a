"""Launches: donation, errors, asynchrony, threads, forks, ahead-of-time use."""

import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def test_add():
  f = jax.jit(lambda x, y: x + y)
  assert float(f(1.0, 2.0)) == 3.0


def test_no_arguments_and_no_outputs():
  assert (np.asarray(jax.jit(lambda: jnp.arange(3))()) == [0, 1, 2]).all()
  assert jax.jit(lambda x: ())(1.0) == ()


def test_many_arguments_and_outputs():
  xs = [jnp.full((2,), i, jnp.float32) for i in range(100)]
  ys = jax.jit(lambda v: [x + 1 for x in v])(xs)
  assert [float(y[0]) for y in ys] == [i + 1 for i in range(100)]


def test_donation():
  f = jax.jit(lambda x: x + 1, donate_argnums=0)
  x = jnp.arange(8, dtype=jnp.float32)
  y = f(x)
  assert x.is_deleted() and not y.is_deleted()
  assert (np.asarray(y) == np.arange(8) + 1).all()
  with pytest.raises((RuntimeError, ValueError), match="deleted|donated"):
    f(x)


def test_donated_and_used_in_one_call():
  f = jax.jit(lambda x, y: (x + 1, y + 2), donate_argnums=(0,))
  x = jnp.arange(8, dtype=jnp.float32)
  with pytest.raises(Exception, match="donate"):
    f(x, x)


def test_donation_reuses_memory():
  f = jax.jit(lambda x: x * 2, donate_argnums=0)
  x = jax.jit(lambda: jnp.ones((256, 256)))()  # not a view of host memory
  x.block_until_ready()
  p = x.unsafe_buffer_pointer()
  assert f(x).unsafe_buffer_pointer() == p


def test_what_passes_through_stays_where_it_is():
  make = jax.jit(lambda: (jnp.arange(4096.0), jnp.ones(4096), jnp.full(4096, 2.0)))
  places = lambda v: [x.unsafe_buffer_pointer() for x in v]
  # Donated, and another result's by JAX's order: results and memory change partners.
  v = make()
  a, b, c = places(v)
  turned = jax.jit(lambda x, y, z: (z, x, y + 1), donate_argnums=(0, 1, 2))(*v)
  assert places(turned) == [c, a, b] and [float(x[1]) for x in turned] == [2, 1, 2]
  # Kept: the same memory, until somebody gives one of them up.
  v = make()
  x, y, again = jax.jit(lambda x, y: (x, y + 1, x))(*v[:2])
  assert places([x, again]) == places([v[0]] * 2)
  changed = jax.jit(lambda x: x.at[1].set(-1.0), donate_argnums=0)(v[0])
  assert v[0].is_deleted() and float(changed[1]) == -1
  assert float(x[1]) == float(again[1]) == 1
  # What only returns its arguments makes copies.
  assert places([jnp.copy(x)]) != places([x])


def test_asynchronous_errors_travel():
  """An error of one launch reaches whoever uses its results."""
  def fail(x):
    raise ValueError("on purpose")
  f = jax.jit(lambda x: jax.pure_callback(
      fail, jax.ShapeDtypeStruct((), jnp.float32), x))
  with pytest.raises(Exception, match="on purpose"):
    (f(1.0) + 1).block_until_ready()
  with pytest.raises(Exception, match="on purpose"):
    jax.effects_barrier()
  jax._src.dispatch.runtime_tokens.clear()


def test_threads():
  f = jax.jit(lambda x: (x @ x.T).sum())
  x = jnp.ones((64, 64))
  want = float(f(x))
  bad = []

  def work():
    for _ in range(50):
      if float(f(x)) != want:
        bad.append(1)
  ts = [threading.Thread(target=work) for _ in range(8)]
  [t.start() for t in ts]
  [t.join() for t in ts]
  assert not bad


def test_threads_compile():
  def work(i):
    f = jax.jit(lambda x: x * i + 1)
    assert float(f(2.0)) == 2.0 * i + 1
  ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]
  [t.start() for t in ts]
  [t.join() for t in ts]


@pytest.mark.filterwarnings("ignore")
def test_fork(python):
  """A forked child that does not use the device exits cleanly; one that does is
  told."""
  p = python("""
import os, warnings
warnings.simplefilter("ignore")
import jax, jax.numpy as jnp
x = jnp.ones((512, 512)); (x @ x).block_until_ready()
pid = os.fork()
if pid == 0:
  os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
(x @ x).block_until_ready()
print("ok")
""", timeout=120)
  assert p.stdout.strip() == "ok", p.stderr


def test_serialize_executable():
  from jax.experimental import serialize_executable as se
  f = jax.jit(lambda x: jnp.sin(x) + 1)
  x = jnp.arange(5, dtype=jnp.float32)
  compiled = f.lower(x).compile()
  blob, in_tree, out_tree = se.serialize(compiled)
  again = se.deserialize_and_load(blob, in_tree, out_tree)
  assert (np.asarray(again(x)) == np.asarray(compiled(x))).all()


def test_compiled_says_what_it_is():
  c = jax.jit(lambda x: jnp.tanh(x @ x.T)).lower(jnp.ones((8, 16))).compile()
  m = c.memory_analysis()
  assert m.argument_size_in_bytes >= 8 * 16 * 4
  assert m.output_size_in_bytes >= 8 * 8 * 4
  assert c.cost_analysis()["flops"] >= 2 * 8 * 8 * 16
  assert "dot" in c.as_text()
  assert c.output_shardings is not None


def test_ahead_of_time_for_an_absent_chip():
  from jax.experimental import topologies
  t = topologies.get_topology_desc("v5e:1x1", "tpu")
  s = jax.sharding.SingleDeviceSharding(t.devices[0])
  x = jax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=s)
  c = jax.jit(lambda x: x + 1).lower(x).compile()
  assert c.memory_analysis().output_size_in_bytes >= 64


def test_export():
  f = jax.jit(lambda x: jnp.cos(x) * 2)
  e = jax.export.export(f, platforms=["tpu"])(
      jax.ShapeDtypeStruct((3,), jnp.float32))
  x = jnp.arange(3.0)
  assert (np.asarray(e.call(x)) == np.asarray(f(x))).all()


def test_pickle():
  x = jnp.arange(10)
  assert (np.asarray(pickle.loads(pickle.dumps(x))) == np.arange(10)).all()


def test_profiler(tmp_path):
  with jax.profiler.trace(str(tmp_path)):
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
  (space,) = tmp_path.rglob("*.xplane.pb")
  assert b"/device:TPU:0" in space.read_bytes()


def test_compiler_options():
  f = jax.jit(lambda x: x + 1)
  low = f.lower(1.0)
  assert float(low.compile({"xla_embed_ir_in_executable": True})(1.0)) == 2
  assert float(low.compile({"optimization_level": 1})(1.0)) == 2
  with pytest.raises(Exception, match="No such compile option: 'nonsense'"):
    low.compile({"nonsense": 1})
  with pytest.raises(Exception, match="not a valid bool value"):
    low.compile({"xla_embed_ir_in_executable": "maybe"})


def test_what_the_client_says_of_an_op_is_in_the_optimised_program():
  from jax.experimental.xla_metadata import set_xla_metadata

  def f(x):
    with set_xla_metadata(colour="red", number=3):
      return x @ x
  text = jax.jit(f).lower(jnp.ones((8, 8))).compile().as_text()
  assert 'frontend_attributes={colour="red",number="3"}' in text
