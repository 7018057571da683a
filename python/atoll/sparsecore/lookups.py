"""How the ids of real batches are distributed, for estimates of a step on SparseCores."""

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from atoll.sparsecore.config import up
from atoll.sparsecore.preprocess import leaves


class LookupStats:
  """Counts over batches, by stack: ids, different rows that a SparseCore asks for, and different rows that anybody does.

  `record` takes what `Plan.run` gives, without mini-batches; `data` is what `atoll estimate --lookups=` and
  `atoll.estimate(lookups=...)` take.

  Args:
    features: the stacked feature specs that the plan was made for.
    cores: SparseCores of the job.
    cores_per_device: SparseCores of a device.
  """

  def __init__(self, features: Any, cores: int, cores_per_device: int):
    self.cores, self.cores_per_device = cores, cores_per_device
    self.samples: dict[str, int] = {}
    for f in leaves(features):
      name = f.table_spec.setting_in_stack.stack_name
      self.samples[name] = self.samples.get(name, 0) + f.input_shape[0]
    self._ids = dict.fromkeys(self.samples, 0)
    self._unique = dict.fromkeys(self.samples, 0)
    self._touched = dict.fromkeys(self.samples, 0)
    self.batches = 0

  def record(self, arrays: Any) -> None:
    """Adds a batch; ValueError: its buffers are not those of so many SparseCores."""
    for name in self.samples:
      self._add(name, np.asarray(arrays.lhs_row_pointers[name]), np.asarray(arrays.lhs_embedding_ids[name]))
    self.batches += 1

  def _add(self, name: str, pointers: np.ndarray, ids: np.ndarray) -> None:
    per = max(self.cores, 8)
    if pointers.size != self.cores * per or ids.size % self.cores:
      raise ValueError(f"stack {name!r}: {pointers.size} row pointers and {ids.size} ids are not those of {self.cores} SparseCores "
                       "without mini-batches")
    asked: list[list[np.ndarray]] = [[] for _ in range(self.cores)]
    for ends, own in zip(pointers.reshape(self.cores, per), ids.reshape(self.cores, -1)):
      begin = 0
      for owner in range(self.cores):
        part = own[begin:ends[owner]]
        begin = up(int(ends[owner]), 8)
        self._ids[name] += part.size
        asked[owner].append(np.unique(part))
    self._unique[name] += sum(part.size for parts in asked for part in parts)
    self._touched[name] += sum(np.unique(np.concatenate(parts)).size for parts in asked)

  @property
  def data(self) -> Mapping[str, Mapping[str, float]]:
    """By stack: ids_per_sample, unique, shared."""
    out = {}
    for name, ids in self._ids.items():
      if ids:
        out[name] = {"ids_per_sample": ids / (self.samples[name] * self.batches), "unique": self._unique[name] / ids,
                     "shared": self._touched[name] / self._unique[name]}
    return out

  def save(self, path: str | os.PathLike) -> None:
    """Writes `data` as JSON."""
    with open(path, "w", encoding="utf-8") as f:
      json.dump(self.data, f, indent=1)
      f.write("\n")
