"""An embedding table on SparseCores from torch_tpu: lookups, and training with SGD and Adagrad.

  pip install "torch==2.15.0" "torch_tpu==0.2.0"     # and numpy; docs/pytorch.md says what else there is to know
  TPU_ACCELERATOR_TYPE=v6e-1 TORCH_DEVICE_BACKEND_AUTOLOAD=0 TPU_LIBRARY_PATH=/path/to/libatoll.so PYTHONPATH=python \\
    python examples/torch_tpu_embedding.py

Samples have several ids of one table, whose rows are summed. `atoll.sparsecore` sorts the ids as the cores want them.
Ten steps pull the sums towards a target; beside it PyTorch does the same on the CPU with `nn.EmbeddingBag`. Exit
status 1: the tables differ.
"""
import sys

import numpy as np
import torch
from torch_tpu import _loader

from atoll import sparsecore as sp

ROWS, WIDTH, BATCH, IDS, CORES, LIMIT, STEPS, RATE = 100, 8, 32, 4, 2, 64, 10, 0.1


def features():
  spec = sp.TableSpec("table", ROWS, WIDTH, max_ids_per_partition=LIMIT, max_unique_ids_per_partition=LIMIT)
  chosen = [sp.FeatureSpec("ids", spec, (BATCH, IDS))]
  sp.stack_tables(chosen, global_device_count=1, num_sc_per_device=CORES)
  return chosen


def on_the_cpu(table, ids, target, optimizer):
  bag = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum", _weight=table.clone())
  step = optimizer(bag.parameters())
  for batch in ids:
    step.zero_grad()
    (0.5 * (bag(batch) - target).square().sum()).backward()
    step.step()
  return bag.weight.detach()


def on_the_cores(device, table, ids, target, update):
  """update(sparse input, table, gradient) -> table."""
  chosen = features()
  where = torch.from_numpy(np.asarray(sp.row_of(chosen[0].table_spec, np.arange(ROWS), CORES)))
  stacked = torch.zeros(int(chosen[0].table_spec.stacked_table_spec.stack_vocab_size), WIDTH)
  stacked[where] = table
  stacked, target = stacked.to(device), target.to(device)
  for batch in ids:
    split, _ = sp.preprocess_sparse_dense_matmul_input([batch.numpy()], None, chosen, 1, 1, num_sc_per_device=CORES)
    sparse = [torch.from_numpy(np.array(part["table"])).to(device) for part in split.sparse_dense_matmul_input]
    sums = torch.tpu.ops.sparse_dense_matmul(*sparse, stacked, BATCH, LIMIT, LIMIT)
    stacked = update(sparse, stacked, sums - target)
  return stacked.cpu()[where]


def main():
  device = _loader._init_device("tpu")  # without a PCI device the package does not start by itself
  torch.manual_seed(0)
  table, target = torch.randn(ROWS, WIDTH), torch.randn(BATCH, WIDTH)
  ids = [torch.randint(ROWS, (BATCH, IDS), dtype=torch.int32) for _ in range(STEPS)]
  rate, ops = torch.tensor(RATE).to(device), torch.tpu.ops
  accumulator = [torch.full((int(features()[0].table_spec.stacked_table_spec.stack_vocab_size), WIDTH), 0.1).to(device)]

  def sgd(sparse, stacked, gradient):
    return ops.sparse_dense_matmul_grad_with_sgd(*sparse, stacked, gradient, rate, BATCH, LIMIT, LIMIT, "sgd")

  def adagrad(sparse, stacked, gradient):
    epsilon = torch.tensor(1e-8).to(device)
    stacked, accumulator[0] = ops.sparse_dense_matmul_grad_with_adagrad(
        *sparse, stacked, accumulator[0], gradient, rate, epsilon, BATCH, LIMIT, LIMIT, "adagrad")
    return stacked

  worst = 0.0
  for name, update, optimizer in (
      ("SGD", sgd, lambda p: torch.optim.SGD(p, RATE)),
      ("Adagrad", adagrad, lambda p: torch.optim.Adagrad(p, RATE, initial_accumulator_value=0.1, eps=1e-8))):
    wanted = on_the_cpu(table, ids, target, optimizer)
    got = on_the_cores(device, table, ids, target, update)
    worst = max(worst, float((got - wanted).abs().max()))
    print(f"{name}: largest difference of the tables {float((got - wanted).abs().max()):.2e}, "
          f"they moved by {float((wanted - table).abs().max()):.2f}")
  return int(not worst < 1e-4)


if __name__ == "__main__":
  sys.exit(main())
