"""How evenly ids are spread over the SparseCores, and what makes them more even."""

import ctypes
import dataclasses
import math
from typing import Any

import numpy as np

from atoll.sparsecore import _native
from atoll.sparsecore.preprocess import fill_batch, leaves


@dataclasses.dataclass
class FeatureSkew:
  """How the ids of one feature are spread over the SparseCores' partitions."""
  feature: str
  table: str
  histogram: np.ndarray  # ids per partition
  hottest: list[tuple[int, int]]  # (id, how often)

  @property
  def imbalance(self) -> float:
    """The fullest partition over the mean; 1.0 is even."""
    mean = self.histogram.mean()
    return float(self.histogram.max() / mean) if mean else 1.0


@dataclasses.dataclass
class SkewReport:
  """How a batch's ids are spread over the SparseCores' partitions; `print` draws it."""
  features: list[FeatureSkew]
  stacks: dict[str, np.ndarray]  # ids per partition, all features of a stack

  @property
  def hottest_tables(self) -> list[tuple[str, int]]:
    """(table, ids of the batch), most ids first."""
    n: dict[str, int] = {}
    for f in self.features:
      n[f.table] = n.get(f.table, 0) + int(f.histogram.sum())
    return sorted(n.items(), key=lambda x: (-x[1], x[0]))

  def imbalance(self, stack: str) -> float:
    """The fullest partition of a stack over the mean; 1.0 is even."""
    h = self.stacks[stack]
    return float(h.max() / h.mean()) if h.sum() else 1.0

  def __str__(self) -> str:
    lines = []
    for name, h in self.stacks.items():
      lines.append(f"stack {name}: fullest partition {int(h.argmax())} has "
                   f"{int(h.max())} ids, {self.imbalance(name):.2f} x the mean")
      most = max(int(h.max()), 1)
      lines += [f"  {g:4d} {int(n):10d} {'#' * math.ceil(40 * n / most)}"
                for g, n in enumerate(h)]
    for f in self.features:
      hot = ", ".join(f"{i} ({n}x)" for i, n in f.hottest)
      lines.append(f"feature {f.feature} of table {f.table}: "
                   f"{f.imbalance:.2f} x the mean; hottest ids {hot}")
    lines.append("tables by ids: " + ", ".join(
        f"{t} ({n})" for t, n in self.hottest_tables))
    return "\n".join(lines)


def skew_report(features: Any, specs: Any, *, global_device_count: int,
                num_sc_per_device: int, hottest: int = 8) -> SkewReport:
  """Counts a batch's ids by the partition (SparseCore) that they go to.

  Args:
    features: the batch, as `Plan.run` takes it.
    specs: feature specs that `stack_tables` has stacked, in the batch's structure.
    hottest: how many of the most frequent ids of each feature are named.
  """
  options = _native.Options(
      local_devices=1, global_devices=global_device_count,
      cores_per_device=num_sc_per_device)
  cores = global_device_count * num_sc_per_device
  found, stacks = [], {}
  for f, x in zip(leaves(specs), leaves(features), strict=True):
    batch, keep = _native.Batch(), []
    fill_batch(batch, x, None, keep)
    t = f.id_transformation
    c = _native.Feature(
        name=f.name.encode(), table=f.table_spec.name.encode(),
        vocabulary=f.table_spec.vocabulary_size, row_offset=t.row_offset,
        col_offset=t.col_offset, col_shift=t.col_shift)
    histogram, n = np.zeros(cores, np.int64), ctypes.c_int32()
    hot = (_native.Hot * hottest)()
    _native.call("skew", ctypes.byref(options), ctypes.byref(c),
                 ctypes.byref(batch),
                 ctypes.c_void_p(_native.address(histogram)), hot, hottest,
                 ctypes.byref(n))
    found.append(FeatureSkew(f.name, f.table_spec.name, histogram,
                             [(h.id, h.count) for h in hot[:n.value]]))
    stack = f.table_spec.setting_in_stack.stack_name
    stacks[stack] = stacks.get(stack, 0) + histogram
  return SkewReport(found, stacks)


class IdShuffle:
  """A fixed bijection of 0 .. vocabulary-1 that spreads runs, strides and hot
  neighbours over the SparseCores. Rounds of multiplication and shift on the next
  power of two, walked until the result is inside."""

  def __init__(self, vocabulary: int, seed: int = 0):
    if vocabulary < 1:
      raise ValueError(f"a vocabulary of {vocabulary} ids")
    self.vocabulary = vocabulary
    self._bits = max(1, (vocabulary - 1).bit_length())
    rng = np.random.default_rng(seed)
    self._factors = [int(x) | 1 for x in rng.integers(1 << 30, 1 << 31, 3)]

  def _round(self, x):
    mask = np.uint64((1 << self._bits) - 1)
    shift = np.uint64(self._bits // 2 + 1)
    for f in self._factors:
      x = (x * np.uint64(f)) & mask
      x ^= x >> shift
    return x

  def __call__(self, ids: Any) -> np.ndarray:
    """What ids become, in their shape and type; ValueError: one is outside the vocabulary."""
    ids = np.asarray(ids)
    if ids.size and not 0 <= ids.min() <= ids.max() < self.vocabulary:
      raise ValueError(f"ids outside 0..{self.vocabulary - 1}")
    x = self._round(ids.astype(np.uint64))
    while (out := x >= self.vocabulary).any():
      x[out] = self._round(x[out])
    return x.astype(ids.dtype)
