"""Every optimizer to the last bit: its hyperparameters against XLA's CPU backend, its update against NumPy, which evaluates
the computation that the library writes into the program, one rounding for each operation."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("jax_tpu_embedding", reason="jax_tpu_embedding is not installed: its optimizers are not tested")
from jax_tpu_embedding.sparsecore.lib.nn import embedding, embedding_spec as es  # noqa: E402
from jax_tpu_embedding.sparsecore.utils import utils  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402

OPTIMIZERS = {k: v for k, v in vars(es).items() if isinstance(v, type) and k.endswith("OptimizerSpec")
              and k not in ("OptimizerSpec", "CustomOptimizerSpec")}
RATES = {"constant": 0.01, "divided": lambda step: 0.01 / step, "decayed": lambda step: 0.3 * 0.97**step,
         "inverse": lambda step: 0.3 / (1 + 0.1 * step)}
F32 = np.float32
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
          "minimum": np.minimum}
COMPARE = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}


def constant(op):
  value = ir.DenseElementsAttr(op.attributes["value"])
  shape = ir.RankedTensorType(op.result.type).shape
  return np.full(shape, value.get_splat_value().value, F32) if value.is_splat else np.array(value).astype(F32)


def apply(op, x):
  name = op.operation.name.removeprefix("stablehlo.")
  if name in BINARY:
    return BINARY[name](*x)
  wide = [v.astype(np.float64) for v in x]
  return {
      "sqrt": lambda: np.sqrt(x[0]), "negate": lambda: -x[0], "abs": lambda: np.abs(x[0]), "sign": lambda: np.sign(x[0]),
      "rsqrt": lambda: (1 / np.sqrt(wide[0])).astype(F32), "power": lambda: np.power(*wide).astype(F32),
      "compare": lambda: COMPARE[re.search("EQ|NE|LT|LE|GT|GE", str(op.attributes["comparison_direction"]))[0]](*x),
      "select": lambda: np.where(*x), "clamp": lambda: np.minimum(np.maximum(x[1], x[0]), x[2]),
      "constant": lambda: constant(op), "convert": lambda: x[0], "tuple": lambda: tuple(x),
      "broadcast_in_dim": lambda: np.broadcast_to(x[0], ir.RankedTensorType(op.result.type).shape),
  }[name]()


def evaluate(func, args):
  block = func.regions[0].blocks[0]
  env = dict(zip(block.arguments, args))
  for op in block.operations:
    x = [env[v] for v in op.operands]
    if "return" in op.operation.name:
      return x[0] if isinstance(x[0], tuple) else x
    env[op.results[0]] = apply(op, x)


def hyperparameters(optimizer, device):
  f = jax.jit(lambda step: tuple(jnp.asarray(h, jnp.float32) for h in optimizer.get_hyperparameters(step)))
  return lambda step: [np.asarray(h) for h in f(jax.device_put(jnp.int32(step), device))]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_hyperparameters(name, rate):
  optimizer = OPTIMIZERS[name](learning_rate=RATES[rate])
  here, there = (hyperparameters(optimizer, d) for d in (jax.devices()[0], jax.devices("cpu")[0]))
  for step in (1, 2, 3, 5, 7, 10, 100, 999):
    np.testing.assert_array_equal(here(step), there(step), f"step {step}")


class Step:
  """One table of one optimizer, every sample with an id of its own."""

  def __init__(self, optimizer, width, batch, limits=None, minibatching=False):
    self.device = jax.devices()[0]
    self.cores = utils.num_sparsecores_per_device(self.device)
    table = es.TableSpec(vocabulary_size=batch + 32, embedding_dim=width, initializer=jax.nn.initializers.zeros, name="t",
                         combiner="sum", optimizer=optimizer, max_ids_per_partition=64, max_unique_ids_per_partition=64)
    self.features = {"f": es.FeatureSpec(table_spec=table, input_shape=(batch, 1), output_shape=(batch, width), name="f")}
    embedding.prepare_feature_specs_for_training(self.features, global_device_count=1, num_sc_per_device=self.cores)
    self.spec = next(iter(embedding.get_stacked_table_specs(self.features).values()))
    self.minibatching = minibatching
    more = {"embedding_var_limits": {self.spec.stack_name: limits}} if limits else {}
    mesh, x, one = jax.sharding.Mesh(np.array([self.device]), ("x",)), jax.P("x"), jax.P()

    def update(g, ids, tables, step):
      return embedding.tpu_sparse_dense_matmul_grad({"f": g}, ids, tables, step=step, feature_specs=self.features,
                                                    global_device_count=1, num_sc_per_device=self.cores,
                                                    enable_minibatching=minibatching, **more)
    self.update = jax.jit(jax.shard_map(update, mesh=mesh, in_specs=(x, x, x, one), out_specs=x, check_vma=False))

  def run(self, ids, gradient, tables, step):
    pre, _ = embedding.preprocess_sparse_dense_matmul_input({"f": ids[:, None]}, None, self.features, 1, 1,
                                                            num_sc_per_device=self.cores, batch_number=1,
                                                            enable_minibatching=self.minibatching)
    kind = self.spec.optimizer.slot_variables_initializers()
    first, *rest = map(jnp.asarray, tables)
    slots = type(kind)(*rest) if hasattr(kind, "_fields") else tuple(rest)
    args = gradient, pre, {self.spec.stack_name: embedding.EmbeddingVariables(first, slots)}, jnp.int32(step)
    new = self.update(*args)[self.spec.stack_name]
    return [np.asarray(a) for a in (new.table, *jax.tree.leaves(new.slot))], args, self.update.lower(*args)

  def rows(self, ids):
    return ids % self.cores * (self.spec.stack_vocab_size // self.cores) + ids // self.cores


def body_of(module):
  """The optimizer: what gives a tuple, or what the call names."""
  funcs = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations}
  named = re.search(r"called_computations = \[@\"?([^\"\]]+)\"?\]", str(module))
  return funcs[named[1]]


def compare(step, optimizer, count, rng):
  """Wanted tables and slots, and what the update made of them; its arguments and program."""
  shape = step.spec.stack_vocab_size, step.spec.stack_embedding_dim
  slots = len(step.spec.optimizer.slot_variables_initializers())
  tables = [np.abs(rng.normal(size=shape)).astype(F32) + F32(0.5) for _ in range(1 + slots)]
  batch = step.features["f"].input_shape[0]
  ids = rng.permutation(step.features["f"].table_spec.vocabulary_size)[:batch].astype(np.int32)
  gradient = rng.normal(size=(batch, shape[1])).astype(F32)
  got, args, lowered = step.run(ids, gradient, tables, count)
  module = lowered.compiler_ir("stablehlo")
  body = body_of(module)
  kinds = [str(v.type) for v in body.regions[0].blocks[0].arguments]
  hypers = hyperparameters(optimizer, jax.devices("cpu")[0])(count)
  repeated = [np.full((1, shape[1]), h, F32) for h in hypers]
  want = [t.copy() for t in tables]
  for row, g in zip(step.rows(ids), gradient):
    row_of = [g[None], *(t[row:row + 1] for t in tables), *repeated]
    row_of = [a != 0 if "i1" in k else a for a, k in zip(row_of, kinds, strict=True)]
    for t, new in zip(want, evaluate(body, row_of), strict=True):
      t[row] = new
  return want, got, jax.tree.leaves(args), lowered.as_text()


@pytest.mark.parametrize("rate", ["constant", "divided"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates(name, rate):
  rng = np.random.default_rng(3)
  optimizer = OPTIMIZERS[name](learning_rate=RATES[rate])
  step = Step(optimizer, 16, 64)
  for count in (1, 5, 7):
    want, got, _, _ = compare(step, optimizer, count, rng)
    for have, w in zip(got, want, strict=True):
      np.testing.assert_array_equal(have.view(np.int32), w.view(np.int32), f"step {count}")
