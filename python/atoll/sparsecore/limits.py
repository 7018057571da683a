"""Limits from data: a running estimate over batches, and the file that holds it."""

import dataclasses
import json
import os
import time
from typing import Any

import numpy as np

from atoll.sparsecore import _native
from atoll.sparsecore.config import up
from atoll.sparsecore.preprocess import leaves

FORMAT = "atoll sparsecore limits 1"


def flags() -> _native.Flags:
  """The SparseCore's flags in LIBTPU_INIT_ARGS; an unknown one is refused."""
  out = _native.Flags()
  import ctypes
  _native.call("flags", os.environ.get("LIBTPU_INIT_ARGS", "").encode(),
               ctypes.byref(out))
  return out


@dataclasses.dataclass
class TableLimits:
  """A stack's maxima over batches: ids and unique ids of a partition, elements of a
  SparseCore's id buffer; and how many batches they are of."""
  max_ids_per_partition: int = 0
  max_unique_ids_per_partition: int = 0
  required_buffer_size_per_sc: int = 0
  batches: int = 0

  def add(self, ids: int, unique: int, required: int, batches: int = 1) -> bool:
    """True when a limit grew."""
    old = (self.max_ids_per_partition, self.max_unique_ids_per_partition,
           self.required_buffer_size_per_sc)
    new = tuple(map(max, old, (ids, unique, required)))
    (self.max_ids_per_partition, self.max_unique_ids_per_partition,
     self.required_buffer_size_per_sc) = new
    self.batches += batches
    return new != old


class LimitsEstimator:
  """The maxima seen so far, by stack (feedback-directed optimisation).

  `path`: the file of xla_sparse_core_max_ids_file; read when it is there, written by
  `save` and, every `save_seconds`, by `record`. A reader ever sees a whole file.
  """

  def __init__(self, path: str | None = None, save_seconds: float = 10.0):
    self.path, self.save_seconds = path, save_seconds
    self.tables: dict[str, TableLimits] = {}
    self._saved_at = 0.0
    if path and os.path.exists(path):
      self.load(path)

  @classmethod
  def from_flags(cls) -> "LimitsEstimator | None":
    """The estimator that LIBTPU_INIT_ARGS asks for; None: neither
    xla_sparse_core_max_ids_file nor xla_sparse_core_estimate_max_ids is set."""
    f = flags()
    path = f.max_ids_file.decode() or None
    return cls(path) if path or f.estimate_max_ids else None

  def record(self, stats: Any) -> bool:
    """Takes a batch's InputStats (or the package's); True when a limit grew."""
    grew = False
    for name, ids in stats.max_ids_per_partition.items():
      grew |= self.tables.setdefault(name, TableLimits()).add(
          int(np.max(ids)), int(np.max(stats.max_unique_ids_per_partition[name])),
          int(np.max(stats.required_buffer_size_per_sc[name])))
    if grew and self.path and time.monotonic() - self._saved_at > (
        self.save_seconds):
      self.save()
    return grew

  def save(self, path: str | None = None) -> None:
    """Writes the limits to `path`, or to the estimator's own file; it is replaced at
    once, never half written. ValueError: there is no path."""
    path = path or self.path
    if not path:
      raise ValueError("limits are saved to no file: give a path")
    body = {"format": FORMAT,
            "tables": {n: dataclasses.asdict(t) for n, t in
                       sorted(self.tables.items())}}
    scratch = f"{path}.{os.getpid()}.new"
    with open(scratch, "w") as f:
      json.dump(body, f, indent=1)
      f.write("\n")
    os.replace(scratch, path)
    self._saved_at = time.monotonic()

  def load(self, path: str) -> None:
    """Takes the maximum with what a file holds."""
    try:
      with open(path) as f:
        body = json.load(f)
    except (OSError, ValueError) as e:
      raise ValueError(f"limits file {path}: {e}") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
      raise ValueError(f"limits file {path}: its format is not {FORMAT!r}")
    tables = body.get("tables")
    if not isinstance(tables, dict):
      raise ValueError(f"limits file {path}: it has no tables")
    for name, t in tables.items():
      wrong = [k for k in dataclasses.asdict(TableLimits())
               if not isinstance(t, dict) or type(t.get(k)) is not int
               or not 0 <= t[k] <= np.iinfo(np.int32).max]
      if wrong:
        raise ValueError(f"limits file {path}: table {name!r} has no {wrong[0]}")
      self.tables.setdefault(name, TableLimits()).add(
          t["max_ids_per_partition"], t["max_unique_ids_per_partition"],
          t["required_buffer_size_per_sc"], t["batches"])

  def apply(self, features: Any, num_sc_per_device: int, headroom: float = 1.0,
            buffers: bool = True) -> bool:
    """Sets the limits of every stack that is known; True when one changed, which
    means a new compilation (`recompiles` counts them)."""
    if not 0 < headroom < float("inf"):
      raise ValueError(f"headroom is {headroom}, not a positive factor")
    done, changed = {}, False
    for f in leaves(features):
      spec = f.table_spec.stacked_table_spec
      t = self.tables.get(spec.stack_name)
      if t is None:
        continue
      if spec.stack_name not in done:
        ids = max(1, int(t.max_ids_per_partition * headroom))
        new = dataclasses.replace(
            spec, max_ids_per_partition=ids,
            max_unique_ids_per_partition=max(
                1, int(t.max_unique_ids_per_partition * headroom)),
            suggested_coo_buffer_size_per_device=max(
                8, up(int(t.required_buffer_size_per_sc * headroom), 8)
            ) * num_sc_per_device if buffers
            else spec.suggested_coo_buffer_size_per_device)
        changed |= new != spec
        done[spec.stack_name] = new
      f.table_spec.stacked_table_spec = done[spec.stack_name]
    return changed
