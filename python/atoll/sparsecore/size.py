"""What the TPU compiler would make of a configuration: see spinput/size.h."""

import ctypes
import dataclasses
from typing import Any

from atoll.sparsecore import _native
from atoll.sparsecore.config import stacks_of, tables_of

_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "uint8": 1}
_REPORT_BYTES = 1 << 16


@dataclasses.dataclass
class SizeReport:
  """Bytes of one device. `tables`: per stack. `text`: for people."""
  stack_bytes: int
  forward_bytes: int
  backward_bytes: int
  shared_bytes: int
  table_bytes: int
  waste_bytes: int
  heap_bytes: int
  peak_bytes: int
  tables: dict[str, dict]
  text: str

  def __str__(self):
    return self.text


def _optimizer_name(optimizer) -> str:
  if optimizer is None:
    return "lookup"
  if isinstance(optimizer, str):
    return optimizer
  short = getattr(optimizer, "short_name", None)
  return short() if callable(short) else type(optimizer).__name__


def size_report(features: Any, target: str, devices: int, *, training: bool = True,
                serialized_tables: int = 0, stage_gather_operands: bool = True,
                dense_bytes: int = 0, constant_bytes: int = 0,
                prefetch_bytes: int = 0) -> SizeReport:
  """Sizes stacked features for `target`; raises SparseCoreError with what the
  compiler would say.

  Args:
    features: feature specs that `stack_tables` has stacked.
    target: chip and topology, as for `atoll.estimate`: "v6e", "v5p:2x2x1".
    devices: how many the program runs on.
    training: False: a lookup without the optimizers' updates.
    serialized_tables: xla_sc_num_serialized_tables_to_optimize_hbm.
    stage_gather_operands: False: they must fit TileSpmem.
    dense_bytes, constant_bytes, prefetch_bytes: the HBM heap of a device.
  """
  if devices < 1:
    raise ValueError(f"sizes of a program on {devices} devices")
  stacks = stacks_of(features)
  widths: dict[str, int] = {}  # as asked for: the padding is told as waste
  for t in tables_of(features).values():
    n = t.setting_in_stack.stack_name
    widths[n] = max(widths.get(n, 0), int(t.embedding_dim))
  name = _native.library().atoll_input_optimizer
  tables = (_native.SizeTable * len(stacks))(*[
      _native.SizeTable(
          name=n.encode(), rows=int(s.stack_vocab_size),
          width=widths[n],
          max_ids=int(s.max_ids_per_partition),
          max_unique=int(s.max_unique_ids_per_partition),
          coo_per_device=int(s.suggested_coo_buffer_size_per_device or 0),
          samples=int(s.total_sample_count) // devices, element_bytes=4,
          optimizer=name(_optimizer_name(
              s.optimizer if training else None).encode()), slots=-1)
      for n, s in stacks.items()])
  p = _native.SizeProgram(
      devices=devices, tables=tables, table_count=len(tables),
      serialized=serialized_tables, unstaged=not stage_gather_operands,
      dense_bytes=dense_bytes, constant_bytes=constant_bytes,
      prefetch_bytes=prefetch_bytes)
  sizes, total = (_native.TableSize * len(tables))(), _native.Size()
  text = ctypes.create_string_buffer(_REPORT_BYTES)
  _native.call("size", target.encode(), ctypes.byref(p), sizes,
               ctypes.byref(total), text, ctypes.c_size_t(_REPORT_BYTES))
  fields = lambda s: {f[0]: getattr(s, f[0]) for f in s._fields_}
  return SizeReport(**fields(total),
                    tables={n: fields(t) for n, t in zip(stacks, sizes)},
                    text=text.value.decode())
