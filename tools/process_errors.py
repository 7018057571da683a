"""What processes of process_faults.py do with devices of a process that is lost, and what mistakes of users they make."""
import re

from process_jobs import World

# A user's mistake that says one of these would pass for the loss of a process.
LOSSES = re.compile(r"DATA_LOSS|DEADLINE_EXCEEDED|NOT_FOUND|INTERNAL")


# ---- After a loss
def use_what_is_lost(say, hear, lost):
  w = World()
  jax, np = w.jax, w.np
  jnp, spec = jax.numpy, jax.sharding.PartitionSpec
  n = len(w.devices)
  ones = w.put(np.ones(n, np.float32), w.split)

  def known_program(v):
    return jax.lax.psum(v, "x")
  known = w.over(known_program, spec("x"), spec())
  w.mine(known(ones))
  theirs = [d for d in w.devices if d.process_index == lost]
  mine = [d for d in w.devices if d.process_index == w.me]
  there = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(theirs), ("x",)), spec("x"))
  here = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(mine), ("x",)), spec("x"))
  say("ready")
  hear()

  def carries(what, call, *names):
    """The call succeeds, and its result says who is lost, and of what."""
    try:
      out = call()
    except Exception as e:  # noqa: BLE001  (whatever it is, the call has failed)
      return say("wrong", what=what, call=f"{type(e).__name__}: {e}"[:500])
    try:
      w.mine(out)
      say("wrong", what=what, result="is there")
    except jax.errors.JaxRuntimeError as e:
      for name in ("DATA_LOSS", f"process {lost} is lost", *names):
        if name not in str(e):
          say("wrong", what=what, misses=name, text=str(e)[:500])

  def new_program(v):
    return jax.lax.psum(v * 3, "x") + v

  def put():
    """Of what this process has of it, nothing is lost."""
    a = w.put(np.arange(n, dtype=np.float32), w.split)
    if w.mine(a)[0] != np.arange(n)[a.addressable_shards[0].index][0]:
      say("wrong", what="an array that was put")
    return a
  for turn in range(3):  # as soon as it is killed, and later
    carries("a program of before", lambda: known(ones), "known_program")
    new = w.over(lambda v: new_program(v) * (turn + 2), spec("x"), spec("x"))
    compiled = new.lower(ones).compile()
    carries("a new program", lambda: compiled(put()), "lambda")
    chained = known(new(ones))
    carries("a program on what carries an error", lambda: chained)
    alone = jax.jit(lambda v: v + 1)(jax.device_put(np.ones(len(mine), np.float32), here))
    if w.mine(alone)[0] != 2:
      say("wrong", what="a program of this process alone")
    try:
      sent = jax.device_put(alone, there)
      jax.block_until_ready(sent)
    except jax.errors.JaxRuntimeError as e:
      if "DATA_LOSS" not in str(e):
        say("wrong", what="an array sent to who is lost", text=str(e)[:500])
    carries("an array of who is lost", lambda: jax.device_put(
        jax.make_array_from_single_device_arrays((len(theirs),), there, [], dtype=jnp.float32), here))
  say("end")


# ---- Mistakes
def too_large(w):
  w.jax.numpy.zeros((1 << 40,), w.np.float32).block_until_ready()


def too_large_a_program(w):
  f = w.jax.jit(lambda v: (w.jax.numpy.outer(v, v) @ w.jax.numpy.outer(v, v)).sum())
  f(w.jax.numpy.ones(1 << 20)).block_until_ready()


def too_large_to_put(w):
  w.jax.device_put(w.np.broadcast_to(w.np.float32(1), (1 << 36,))).block_until_ready()


def a_call_of_nothing(w):
  w.jax.jit(lambda v: w.jax.ffi.ffi_call("no_such_target", w.jax.ShapeDtypeStruct(v.shape, v.dtype))(v))(
      w.np.ones(4, w.np.float32)).block_until_ready()


def compile_text(w, text):
  from jax._src.lib import xla_client
  device = w.jax.local_devices()[0]
  options = xla_client.CompileOptions()
  return device.client.compile_and_load(text, xla_client.DeviceList((device,)), options)


def no_program(w):
  compile_text(w, "this is no program")


def half_a_program(w):
  text = w.jax.jit(lambda v: v + 1).lower(w.np.ones(4, w.np.float32)).as_text()
  compile_text(w, text[:len(text) // 2])


def a_program_of_wrong_types(w):
  text = w.jax.jit(lambda v: v + v).lower(w.np.ones(4, w.np.float32)).as_text()
  compile_text(w, text.replace("%arg0, %arg0 : tensor<4xf32>", "%arg0, %arg0 : tensor<5xf32>"))


def an_unknown_operation(w):
  text = w.jax.jit(lambda v: v + v).lower(w.np.ones(4, w.np.float32)).as_text()
  compile_text(w, text.replace("stablehlo.add", "stablehlo.no_such_thing"))


def execute(w, *arguments):
  compiled = w.jax.jit(lambda v: v * 2, device=None).lower(w.np.ones((4, 4), w.np.float32)).compile()
  out = compiled.runtime_executable().execute_sharded([w.jax.device_put(a) for a in arguments])
  [a.block_until_ready() for group in out.disassemble_into_single_device_arrays() for a in group]


def a_wrong_shape(w):
  execute(w, w.np.ones((5, 4), w.np.float32))


def a_wrong_type(w):
  execute(w, w.np.ones((4, 4), w.np.int32))


def too_many_arguments(w):
  execute(w, *[w.np.ones((4, 4), w.np.float32)] * 3)


def no_arguments(w):
  execute(w)


def what_was_donated(w):
  f = w.jax.jit(lambda v: v + 1, donate_argnums=0)
  a = w.jax.device_put(w.np.ones(4, w.np.float32))
  f(a)
  f(a).block_until_ready()


def donated_twice(w):
  a = w.jax.device_put(w.np.ones(4, w.np.float32))
  w.jax.jit(lambda v, u: (v + 1, u + 2), donate_argnums=(0, 1))(a, a)[0].block_until_ready()


def a_refused_kernel(w):
  from jax.experimental import pallas as pl

  def kernel(x, out):
    out[...] = w.jax.numpy.sort(x[...], axis=0)
  pl.pallas_call(kernel, out_shape=w.jax.ShapeDtypeStruct((8, 128), w.np.float32))(
      w.np.ones((8, 128), w.np.float32)).block_until_ready()


def a_kernel_out_of_its_block(w):
  from jax.experimental import pallas as pl
  from jax.experimental.pallas import tpu as pltpu

  def kernel(at, x, out):
    out[...] = x[pl.ds(at[0], 8), :]
  pl.pallas_call(kernel, out_shape=w.jax.ShapeDtypeStruct((8, 128), w.np.float32),
                 in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pltpu.VMEM)])(
                     w.np.array([10 ** 6], w.np.int32), w.np.ones((64, 128), w.np.float32)).block_until_ready()


def a_callback_that_raises(w):
  def fail(v):
    raise ValueError("boom")
  w.jax.jit(lambda v: w.jax.pure_callback(fail, w.jax.ShapeDtypeStruct(v.shape, v.dtype), v))(
      w.np.ones(4, w.np.float32)).block_until_ready()


def rows_that_do_not_fit(w):
  """Sent by all devices of the job: every process has to get its error."""
  jnp, spec, n = w.jax.numpy, w.jax.sharding.PartitionSpec, len(w.devices)

  def send(v):
    def each(of):
      return jnp.full((n,), of, jnp.int32)
    return w.jax.lax.ragged_all_to_all(v, jnp.zeros(2 * n, v.dtype), each(0), each(100), each(0), each(100), axis_name="x")
  out = w.over(send, spec("x"), spec("x"))(w.put(w.np.ones(2 * n * n, w.np.float32), w.split))
  w.mine(out)


def an_unknown_option(w):
  w.jax.jit(lambda v: v + 1, compiler_options={"xla_no_such_option": "1"})(w.np.ones(4, w.np.float32)).block_until_ready()


def a_damaged_program(w):
  client = w.jax.local_devices()[0].client
  compiled = w.jax.jit(lambda v: v + 1).lower(w.np.ones(4, w.np.float32)).compile()
  data = bytearray(client.serialize_executable(compiled.runtime_executable()))
  data[len(data) // 2] ^= 1
  from jax._src.lib import xla_client
  client.deserialize_executable(bytes(data), xla_client.DeviceList((w.jax.local_devices()[0],)), None)


MISTAKES = [too_large, too_large_a_program, too_large_to_put, a_call_of_nothing, no_program, half_a_program,
            a_program_of_wrong_types, an_unknown_operation, a_wrong_shape, a_wrong_type, too_many_arguments, no_arguments,
            what_was_donated, donated_twice, a_refused_kernel, a_kernel_out_of_its_block, a_callback_that_raises,
            rows_that_do_not_fit, an_unknown_option, a_damaged_program]
# Those in which all processes have a part.
COMMON = {rows_that_do_not_fit}


def make_mistakes(say, hear):
  w = World()
  for mistake in MISTAKES:
    name = mistake.__name__
    try:
      mistake(w)
      say("mistake", what=name, text="")
      continue
    except Exception as e:  # noqa: BLE001  (what it is, is the question)
      text, kind = str(e), type(e).__name__
    say("mistake", what=name, kind=kind, text=text[:600])
    if LOSSES.search(text):
      say("wrong", what=name, kind=kind, text=text[:600])
    if w.sum_of_ones() != len(w.devices):
      say("wrong", what=name, after="a sum over all")
  say("end")
