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
