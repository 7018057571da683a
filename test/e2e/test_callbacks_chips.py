"""Host callbacks of programs over several devices: once, on the device that JAX names, in one process and in four."""

from test_hosts import same_as_one_process

PROGRAMS = """
from jax.experimental import io_callback
from jax.sharding import SingleDeviceSharding
calls = []
def times5(v):
  calls.append(v.shape)
  return v * 5
two = NamedSharding(Mesh(np.array(devices).reshape(4, -1), ("p", "l")), P("p", "l"))
x = put(np.arange(24, dtype=np.float32).reshape(4, 2, 3), two)
def check(name, f, device=0, count=1):
  calls.clear()
  keep(name, jax.block_until_ready(jax.jit(f, out_shardings=two)(x)))
  jax.effects_barrier()
  assert calls == [x.shape] * (count if devices[device].process_index == me else 0), (name, calls)
io = lambda v, **k: io_callback(times5, v, v, **k)
check("io", io)
check("pure", lambda x: jax.pure_callback(times5, x, x) + x)
check("last", lambda x: io(x, sharding=SingleDeviceSharding(devices[N - 1])), device=N - 1)
check("loop", lambda x: jax.lax.fori_loop(0, 3, lambda i, v: io(v) / 4 + i, x), count=3)
check("branch", lambda x: jax.lax.cond(x.sum() > 0, io, lambda v: v, x))
check("debug", lambda x: (jax.debug.callback(times5, x), x)[1])
"""


def test_a_callback_runs_on_one_device(tmp_path):
  one = same_as_one_process(PROGRAMS + """
for t in (np.bool_, np.int8, jnp.bfloat16, np.complex64, np.uint32):
  a = put((np.arange(24) % 2).astype(t).reshape(8, 3))
  keep(np.dtype(t).name, jax.jit(lambda v: jax.pure_callback(lambda u: u, v, v))(a).astype(np.complex64))
empty = put(np.zeros((8, 0), np.float32))
jax.jit(lambda v: jax.pure_callback(lambda u: u, v, v))(empty).block_until_ready()
calls.clear()
each = jax.jit(jax.shard_map(io, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
keep("each", each(put(np.ones((N, 2), np.float32))))  # a manual computation: every device calls
assert calls == [(1, 2)] * L
def fails(v): raise ValueError("no such value")
try:
  jax.block_until_ready(jax.jit(lambda v: io_callback(fails, v, v))(x))
  assert False
except jax.errors.JaxRuntimeError as e:
  assert "no such value" in str(e) or me and "process 0 failed" in str(e), e
check("after", io)
""", "v6e:2x4", tmp_path, counts=(4,))
  assert (one["last.0.3_1_0.7"] == [[[105, 110, 115]]]).all()


def test_gspmds_marks_name_the_device_too(tmp_path):
  same_as_one_process("jax.config.update('jax_use_shardy_partitioner', False)\n" + PROGRAMS, "v6e:2x4", tmp_path, counts=(2,))
