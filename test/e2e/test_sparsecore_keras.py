"""keras-rs' DistributedEmbedding, unmodified, with its tables on SparseCores."""

import importlib.util

import pytest

MISSING = [m for m in ("keras_rs", "jax_tpu_embedding") if not importlib.util.find_spec(m)]

TRAIN = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import jax, keras, numpy as np
from keras_rs.layers import DistributedEmbedding, FeatureConfig, TableConfig

keras.distribution.set_distribution(keras.distribution.DataParallel(devices=jax.devices()))
B, sizes = 16 * len(jax.devices()), {"a": (100, 4), "b": (333, 3)}

class Model(keras.Model):
  def __init__(self, placement):
    super().__init__()
    self.embed = DistributedEmbedding({
        n: FeatureConfig(n, TableConfig(name=f"t_{n}", vocabulary_size=v, embedding_dim=16, combiner="mean",
                                        optimizer=keras.optimizers.SGD(0.1), placement=placement), (B, k), (B, 16))
        for n, (v, k) in sizes.items()})
    self.dense = keras.layers.Dense(1)
  def call(self, x):
    y = self.embed(x)
    return self.dense(keras.ops.concatenate([y["a"], y["b"]], -1))

rng = np.random.default_rng(0)
def batch():
  x = {n: rng.integers(0, v, (B, k)).astype(np.int32) for n, (v, k) in sizes.items()}
  return x, (x["a"].sum(1, keepdims=True) % 7 / 7).astype(np.float32)
batches = [batch() for _ in range(12)]

losses, tables, dense, outs = [], None, None, []
for placement in ("sparsecore", "default_device"):
  m = Model(placement)
  m.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
  m(m.embed.preprocess(batches[0][0]))
  if tables is None:
    tables = {k: np.asarray(v) for k, v in m.embed.get_embedding_tables().items()}
    dense = m.dense.get_weights()
  else:
    m.embed.set_embedding_tables(tables)
    m.dense.set_weights(dense)
  losses.append([float(m.train_on_batch(m.embed.preprocess(x, training=True), y)) for x, y in batches])
  outs.append(np.asarray(m(m.embed.preprocess(batches[0][0]))))
np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
np.testing.assert_allclose(outs[0], outs[1], rtol=1e-3, atol=1e-5)
assert losses[0][-1] < losses[0][0]
"""


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")
@pytest.mark.parametrize("target", ["v5p:2x2x1", "v6e:2x2"])
def test_training_equals_tables_on_the_tensorcore(python, target):
  p = python(TRAIN, env={"ATOLL_TARGET": target, "JAX_PLATFORMS": "tpu,cpu"}, timeout=300)
  assert p.returncode == 0, p.stdout + p.stderr


OPTIMIZERS = """
import os, random
os.environ["KERAS_BACKEND"] = "jax"
import jax, keras, numpy as np
from keras_rs.layers import DistributedEmbedding, FeatureConfig, TableConfig
keras.distribution.set_distribution(keras.distribution.DataParallel(devices=jax.devices()))
O, B, sizes = keras.optimizers, 16 * len(jax.devices()), {"a": (24, 4), "b": (40, 3), "c": (9, 2)}

class PublishedAdam(O.Adam):
  # Keras adds epsilon to the root of the raw second moment; SparseCore's Adam, as it is published, to that of the corrected one.
  def update_step(self, gradient, variable, learning_rate):
    plain, t = self.epsilon, keras.ops.cast(self.iterations + 1, "float32")
    self.epsilon = plain * keras.ops.sqrt(1 - keras.ops.power(self.beta_2, t))
    super().update_step(gradient, variable, learning_rate)
    self.epsilon = plain

def trained(placement, table_optimizer, optimizer, combiner, start, steps=5):
  rng = np.random.default_rng(0)
  features = {n: FeatureConfig(n, TableConfig(name=f"t_{n}", vocabulary_size=v, embedding_dim=16, combiner=combiner,
                                              optimizer=table_optimizer, placement=placement), (B, k), (B, 16))
              for n, (v, k) in sizes.items()}
  embed, dense = DistributedEmbedding(features), keras.layers.Dense(1)
  class Model(keras.Model):
    def __init__(self):
      super().__init__()
      self.embed, self.dense = embed, dense
    def call(self, x):
      y = embed(x)  # once: what comes back for a table is its new value, and two would be added
      return dense(keras.ops.concatenate([y[n] for n in sizes], -1))
  def batch():  # every id: Keras moves rows that nobody looks up, too
    x = {n: rng.integers(0, v, (B, k)).astype(np.int32) for n, (v, k) in sizes.items()}
    for n, (v, _) in sizes.items():
      x[n].reshape(-1)[:v] = rng.permutation(v)
    return x, (x["a"].sum(1, keepdims=True) % 7 / 7).astype(np.float32)
  m = Model()
  m.compile(optimizer=optimizer, loss="mse")
  first = batch()
  m(embed.preprocess(first[0]))
  if start:
    embed.set_embedding_tables(start[0])
    dense.set_weights(start[1])
  start = {k: np.asarray(v) for k, v in embed.get_embedding_tables().items()}, dense.get_weights()
  for x, y in (first, *(batch() for _ in range(steps - 1))):
    m.train_on_batch(embed.preprocess(x, training=True), y)
  return {k: np.asarray(v) for k, v in embed.get_embedding_tables().items()}, start

def difference(make, published=None, combiner="mean"):
  other = published or make
  here, start = trained("sparsecore", make(), other(), combiner, None)
  there, _ = trained("default_device", make(), other(), combiner, start)
  assert max(np.abs(here[k] - start[0][k]).max() for k in here) > 1e-4  # it moved
  return max(np.abs(here[k] - there[k]).max() for k in here)
"""

AGREE = """
r = random.Random(5)
some = lambda *v: r.choice(v)
for _ in range(2):
  combiner, rate = some("sum", "mean", "sqrtn"), some(0.1, 0.03, O.schedules.ExponentialDecay(0.1, 3, 0.5))
  ftrl = dict(initial_accumulator_value=some(0.1, 0.5), l1_regularization_strength=some(0.0, 1e-3), beta=some(0.0, 0.1),
              l2_regularization_strength=some(0.0, 1e-2), learning_rate_power=some(-0.5, -0.6))
  adam = dict(beta_1=some(0.9, 0.8), beta_2=some(0.999, 0.95), epsilon=some(1e-7, 1e-4))
  start = some(0.1, 0.5)
  for name, make, published in (
      ("SGD", lambda: O.SGD(rate), None), ("Adagrad", lambda: O.Adagrad(rate, initial_accumulator_value=start), None),
      ("Ftrl", lambda: O.Ftrl(rate, **ftrl), None), ("Adam", lambda: O.Adam(rate, **adam), lambda: PublishedAdam(rate, **adam))):
    d = difference(make, published, combiner)
    assert d < 3e-5, (name, combiner, rate, ftrl, adam, start, d)
"""

DIFFER = """
eps = dict(learning_rate=0.01, epsilon=1e-3)
assert difference(lambda: O.Adam(**eps)) > 1e-3
assert difference(lambda: O.Adam(**eps), lambda: PublishedAdam(**eps)) < 3e-5
"""


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")
@pytest.mark.parametrize("code", [AGREE, DIFFER], ids=["agree", "adam_as_published"])
def test_optimizers_equal_those_of_keras(python, code):
  p = python(OPTIMIZERS + code, env={"ATOLL_TARGET": "v6e", "JAX_PLATFORMS": "tpu,cpu"}, timeout=300)
  assert p.returncode == 0, p.stdout + p.stderr
