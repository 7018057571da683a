"""Whom an error of the engine is about: it knows stacks of tables and SparseCores; which
feature and table that is, the configuration knows."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from atoll.sparsecore.config import leaves, stacks_of

_WHERE = {k: re.compile(rf"\b{k} (-?\d+)") for k in ("device", "SparseCore", "sample")}


def _stack_of(text: str, stacks) -> str | None:
  named = [n for n in stacks
           if re.search(rf"(?<![\w]){re.escape(n)}(?![\w])", text)]
  return max(named, key=len) if named else next(iter(stacks)) if len(
      stacks) == 1 else None


def explain(error: BaseException | str, features: Any, *, global_device_count: int,
            num_sc_per_device: int) -> str | None:
  """One line that names feature, table, sample of the whole batch, and row of the
  table; None when the error is not about an id or a sample of these features.

  Args:
    error: what a SparseCore step raised, or its text.
    features: stacked feature specs, ours or jax-tpu-embedding's.
  """
  text, found = str(error), {}
  for key, pattern in _WHERE.items():
    match = pattern.findall(text)
    if not match:
      return None
    found[key] = int(match[-1])
  stack = _stack_of(text, stacks_of(features))
  if stack is None:
    return None
  cores = global_device_count * num_sc_per_device
  mine = [f for f in leaves(features)
          if f.table_spec.setting_in_stack.stack_name == stack]
  mine.sort(key=lambda f: f.id_transformation.row_offset)
  at = found["sample"]
  for f in mine:  # in a SparseCore's samples, feature stands behind feature
    share = int(f.input_shape[0]) // cores
    if 0 <= at < share:
      core = found["device"] * num_sc_per_device + found["SparseCore"]
      line = (f"feature '{f.name}', table '{f.table_spec.name}', sample "
              f"{core * share + at} of the batch")
      return line + _row(text, f, cores)
    at -= share
  return f"stack '{stack}': sample {found['sample']} belongs to no feature"


def _row(text: str, feature, cores: int) -> str:
  whole = re.findall(r"row (-?\d+) of the whole table", text) or re.findall(
      r"\(id (\d+)\)", text)
  if not whole:
    return ""
  owner, local = int(whole[-1]) % cores, int(whole[-1]) // cores
  setting = feature.table_spec.setting_in_stack
  local -= setting.row_offset_in_shard
  row = local * cores + (owner - setting.shard_rotation) % cores
  rows = feature.table_spec.vocabulary_size
  return f", id {row} (the table has {rows})"


@contextlib.contextmanager
def explained(features: Any, *, global_device_count: int,
              num_sc_per_device: int) -> Iterator[None]:
  """Adds what `explain` says to errors that pass."""
  try:
    yield
  except Exception as e:
    line = explain(e, features, global_device_count=global_device_count,
                   num_sc_per_device=num_sc_per_device)
    if line:
      e.add_note(line)
    raise
