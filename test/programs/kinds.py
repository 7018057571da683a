"""Programs of many kinds, for tests of what happens to compiled programs.

  kinds.py [--salt=N] [KIND...]   runs them, in that order; a line each: name,
                                  digest of the results

A salt makes other programs of the same kinds: other constants and sizes. Needs four chips
(ATOLL_TARGET=v5p:2x2x1 has them, and SparseCores).
"""
import argparse
import hashlib
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu, tpu_sc as plsc
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

SALT = 0


def size(n):
  return n + SALT % 7


def numbers(*shape):
  return np.cos(np.arange(np.prod(shape), dtype=np.float32) + SALT).reshape(shape)


def plain():
  w = numbers(size(64), size(64))
  return jax.jit(lambda x: jnp.tanh(x @ w) + jnp.sin(x) * (3.25 + SALT))(w)


def constant():  # whose entry takes a while to write
  w = numbers(1024, 1024)
  return jax.jit(lambda x: (x * w).sum(0) + SALT)(np.ones((1024, 1024), np.float32))


def loops():
  def f(x):
    c, s = lax.scan(lambda c, _: (jnp.sin(c) + SALT, c.sum()), x, None, length=size(5))
    return lax.while_loop(lambda t: t[0] < size(3), lambda t: (t[0] + 1, t[1] * 1.5), (0, c))[1] + s[0]
  return jax.jit(f)(numbers(33))


def branches():
  return jax.jit(lambda x: lax.cond(x.sum() > SALT, lambda v: v * 2, lambda v: v - 1, x))(numbers(9))


def sorts():
  return jax.jit(lambda x: (jnp.sort(x) + jnp.cumsum(x), lax.top_k(x, 3)))(numbers(size(100)))


def solves():
  a = numbers(8, 8)
  return jax.jit(lambda x: jnp.linalg.cholesky(x @ x.T + (9 + SALT) * jnp.eye(8)))(a)


def donates():
  return jax.jit(lambda x, y: (x + SALT, y * 2), donate_argnums=0)(jnp.ones((size(8), 128)), jnp.ones((8, 128)))


def bits():
  return jax.jit(lambda k: jax.random.normal(k, (size(33),)))(jax.random.key(3))


def calls_back():
  def host(x):
    return np.asarray(x) * 2 + SALT
  shape = jax.ShapeDtypeStruct((4, size(4)), np.float32)
  return jax.jit(lambda x: jax.pure_callback(host, shape, x) + 1)(numbers(4, size(4)))


def prints():
  seen = []
  y = jax.jit(lambda x: (jax.debug.callback(seen.append, x.sum()), x * 3)[1])(np.full((4, size(4)), 1.0))
  jax.effects_barrier()
  return y, np.array(seen)


def kernel():
  def body(x, o):
    o[...] = jnp.exp(x[...]) * (2 + SALT) + pl.program_id(0)
  spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
  f = pl.pallas_call(body, grid=(4,), in_specs=[spec], out_specs=spec,
                     out_shape=jax.ShapeDtypeStruct((32, 128), jnp.float32))
  return jax.jit(f)(numbers(32, 128))


def kernel_copies():
  def body(x, o, buf, sem):
    copy = pltpu.make_async_copy(x, buf, sem)
    copy.start()
    copy.wait()
    o[...] = buf[...] * (3 + SALT)
  f = pl.pallas_call(body, in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
                     out_shape=jax.ShapeDtypeStruct((16, 128), jnp.float32),
                     scratch_shapes=[pltpu.VMEM((16, 128), jnp.float32), pltpu.SemaphoreType.DMA])
  return jax.jit(f)(numbers(16, 128))


def sparsecore():
  mesh = plsc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s")

  @pl.kernel(out_type=jax.ShapeDtypeStruct((16, 128), jnp.int32), mesh=mesh,
             scratch_types=[pltpu.VMEM((16,), jnp.int32), pltpu.VMEM((16, 128), jnp.int32),
                            pltpu.SemaphoreType.DMA])
  def gather(table, index, o, iv, v, sem):
    @pl.when((lax.axis_index("c") == 0) & (lax.axis_index("s") == 0))
    def _():
      pltpu.sync_copy(index, iv)
      pltpu.async_copy(table.at[iv], v, sem).wait()
      pltpu.sync_copy(v, o)
  table = np.arange(64 * 128, dtype=np.int32).reshape(64, 128) + SALT
  return jax.jit(lambda t, i: gather(t, i) + SALT)(table, np.arange(16, dtype=np.int32) * 3)


def embedding():
  if importlib.util.find_spec("jax_tpu_embedding") is None:
    return ()
  from jax_tpu_embedding.sparsecore.lib.nn import embedding as lib, embedding_spec as es
  from jax_tpu_embedding.sparsecore.utils import utils
  n, sc = jax.device_count(), utils.num_sparsecores_per_device(jax.devices()[0])
  batch, mesh = 16 * n * sc, Mesh(np.array(jax.devices()), ("x",))
  table = es.TableSpec(vocabulary_size=96 + 32 * (SALT % 3), embedding_dim=8, name="t", combiner="sum",
                       initializer=jax.nn.initializers.normal(), optimizer=es.SGDOptimizerSpec(learning_rate=0.1),
                       max_ids_per_partition=256, max_unique_ids_per_partition=256)
  fs = {"f": es.FeatureSpec(table_spec=table, input_shape=(batch, 2), output_shape=(batch, 8), name="f")}
  lib.prepare_feature_specs_for_training(fs, global_device_count=n, num_sc_per_device=sc)
  shard = NamedSharding(mesh, P("x"))
  rows = {"f": (np.arange(batch * 2).reshape(batch, 2) % 96).astype(np.int32)}
  pre, _ = lib.preprocess_sparse_dense_matmul_input(rows, None, fs, n, n, num_sc_per_device=sc,
                                                    enable_minibatching=False, batch_number=1)
  pre = jax.tree.map(lambda a: jax.device_put(a, shard), pre)
  s = next(iter(lib.get_stacked_table_specs(fs).values()))
  whole = numbers(s.stack_vocab_size, s.stack_embedding_dim)
  tables = {s.stack_name: lib.EmbeddingVariables(jax.device_put(whole, shard), ())}
  look_up = jax.shard_map(
      lambda pre, t: lib.tpu_sparse_dense_matmul(pre, t, feature_specs=fs, global_device_count=n,
                                                 num_sc_per_device=sc, enable_minibatching=False),
      mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P("x"), check_vma=False)
  return jax.jit(look_up)(pre, tables)


def sharded():
  mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
  x = jax.device_put(numbers(8, 8), NamedSharding(mesh, P("a", "b")))
  def f(x):
    y = lax.with_sharding_constraint(x * (2 + SALT), NamedSharding(mesh, P("b")))
    return (x @ x.T).sum(0) + y[0]
  return jax.jit(f)(x)


def manual():
  mesh = Mesh(np.array(jax.devices()[:4]), ("a",))
  f = jax.shard_map(lambda x: lax.psum(x, "a") + lax.axis_index("a") + SALT, mesh=mesh,
                    in_specs=P("a"), out_specs=P("a"))
  return jax.jit(f)(numbers(16))


def optioned():
  options = {"xla_tpu_enable_latency_hiding_scheduler": True}
  return jax.jit(lambda x: x * (5 + SALT), compiler_options=options)(numbers(size(9)))


KINDS = [plain, constant, loops, branches, sorts, solves, donates, bits, calls_back, prints, kernel,
         kernel_copies, sparsecore, embedding, sharded, manual, optioned]


def digest(kind):
  h = hashlib.sha256()
  for x in jax.tree.leaves(kind()):
    h.update(np.asarray(x).tobytes())
  return h.hexdigest()[:16]


def main():
  global SALT
  parser = argparse.ArgumentParser()
  parser.add_argument("--salt", type=int, default=0)
  parser.add_argument("kinds", nargs="*")
  args = parser.parse_args()
  SALT = args.salt
  for name in args.kinds or [kind.__name__ for kind in KINDS]:
    print(name, digest(globals()[name]), flush=True)


if __name__ == "__main__":
  main()
