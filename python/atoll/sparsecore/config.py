"""Tables, features, and how they are stacked and limited."""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from atoll.sparsecore import _native
from atoll.sparsecore.preprocess import leaves

ROW_ELEMENTS = 8  # a row is padded to, and a core's rows
MOST_IN_STACK, FEWEST_IN_STACK = 100, 5
ACTIVATION_BYTES = 2 << 20  # of a stack's samples on one SparseCore


@dataclasses.dataclass(frozen=True)
class SparsecoreConfig:
  """How a model uses the SparseCores.

  Attributes:
    disable_table_stacking: every table is looked up by itself.
    max_ids_per_chip_per_sample: ids of one sample, over all tables; checked before
      anything else.
    max_ids_per_table: ids of a table in a batch of one SparseCore, over all its
      partitions, duplicates included, by table name; None: derived.
    max_unique_ids_per_table: the same for unique ids.
    allow_id_dropping: ids over the limits are dropped; False: they are an error.
    initialize_tables_on_host: tables are made in host memory and copied.
    enable_fast_table_initialization: tables are made on the device in the layout that
      they have there.
    max_ids_per_partition_per_sample: ids of a sample that go to one partition; with
      the batch it gives the limits of tables without others.
    max_unique_ids_per_partition_per_sample: the same for unique ids.
  """
  disable_table_stacking: bool = False
  max_ids_per_chip_per_sample: int = 64
  max_ids_per_table: dict[str, int] | None = None
  max_unique_ids_per_table: dict[str, int] | None = None
  allow_id_dropping: bool = False
  initialize_tables_on_host: bool = True
  enable_fast_table_initialization: bool = False
  max_ids_per_partition_per_sample: float | None = None
  max_unique_ids_per_partition_per_sample: float | None = None


@dataclasses.dataclass(frozen=True)
class QuantizationConfig:
  """Simulated quantisation: `num_buckets` levels from `min_value` to `max_value`."""
  min_value: float
  max_value: float
  num_buckets: int

  def __post_init__(self):
    if self.num_buckets < 2 or self.num_buckets != int(self.num_buckets):
      raise ValueError(f"num_buckets is {self.num_buckets}; an integer, 2 at least")
    if not (self.min_value < self.max_value and math.isfinite(self.min_value)
            and math.isfinite(self.max_value)):
      raise ValueError(f"quantisation from {self.min_value} to {self.max_value}")


@dataclasses.dataclass
class StackedTableSpec:
  """A stack: what is looked up at once."""
  stack_name: str
  stack_vocab_size: int
  stack_embedding_dim: int
  optimizer: Any
  combiner: str
  total_sample_count: int
  max_ids_per_partition: int
  max_unique_ids_per_partition: int
  suggested_coo_buffer_size_per_device: int | None = None
  quantization_config: QuantizationConfig | None = None
  total_cores: int = 0  # SparseCores that rows are laid out for; 0: not known


@dataclasses.dataclass(frozen=True)
class TableSettingInStack:
  """Where a table lies in its stack.

  Attributes:
    padded_vocab_size, padded_embedding_dim: its rows and their width, padding included.
    row_offset_in_shard: rows of the tables before it, on each SparseCore.
    shard_rotation: id 0 is on this SparseCore, id 1 on the next.
  """
  stack_name: str
  padded_vocab_size: int
  padded_embedding_dim: int
  row_offset_in_shard: int = 0
  shard_rotation: int = 0


@dataclasses.dataclass(frozen=True)
class FeatureIdTransformation:
  """What turns samples and ids of a feature into those of its stack.

  Attributes:
    row_offset: samples of the features before it, over all devices.
    col_offset: rows of the tables before its own, over all SparseCores.
    col_shift: SparseCores that its table is rotated by.
  """
  row_offset: int = 0
  col_offset: int = 0
  col_shift: int = 0


@dataclasses.dataclass
class TableSpec:
  """An embedding table: [vocabulary_size, embedding_dim].

  Attributes:
    optimizer: a name or an object; tables are stacked with those of an equal repr.
    combiner: of the ids of a sample: "sum", "mean" or "sqrtn".
    max_ids_per_partition, max_unique_ids_per_partition: limits of a partition: the ids
      that the samples of one SparseCore have among the rows of one.
    suggested_coo_buffer_size_per_device: elements of the id buffers; None: from the limits.
    stacked_table_spec, setting_in_stack: set by `stack_tables`.
  """
  name: str
  vocabulary_size: int
  embedding_dim: int
  optimizer: Any = "sgd"
  combiner: str = "sum"
  max_ids_per_partition: int = 256
  max_unique_ids_per_partition: int = 256
  suggested_coo_buffer_size_per_device: int | None = None
  quantization_config: QuantizationConfig | None = None
  dtype: str = "float32"
  stacked_table_spec: StackedTableSpec | None = None
  setting_in_stack: TableSettingInStack | None = None


@dataclasses.dataclass
class FeatureSpec:
  """A feature: [samples of all devices, ids of a sample]."""
  name: str
  table_spec: TableSpec
  input_shape: tuple[int, ...]
  id_transformation: FeatureIdTransformation | None = None


def up(n: int, to: int) -> int:
  """`n`, rounded up to a multiple of `to`."""
  return -(-n // to) * to


def padded_width(table) -> int:
  """Elements of a row in its stack: embedding_dim, up to a multiple of 8."""
  return up(table.embedding_dim, ROW_ELEMENTS)


def tables_of(features: Any) -> dict[str, TableSpec]:
  """The features' tables, by name; ValueError: two have one name."""
  tables = {}
  for f in leaves(features):
    t = tables.setdefault(f.table_spec.name, f.table_spec)
    if t is not f.table_spec:
      raise ValueError(f"two tables are named {t.name!r}")
  return tables


def _samples(features, tables) -> dict[str, int]:
  n = dict.fromkeys(tables, 0)
  for f in leaves(features):
    n[f.table_spec.name] += int(f.input_shape[0])
  return n


def groups_of(features, cores: int, *,
              activation_mem_bytes_limit: int = ACTIVATION_BYTES,
              most: int = MOST_IN_STACK) -> list[list[str]]:
  """Which tables belong together: the same padded width, optimizer, combiner and
  quantisation, as many as their activations leave room for."""
  tables = tables_of(features)
  samples = _samples(features, tables)
  alike: dict[Any, list[str]] = {}
  for name, t in tables.items():
    key = (padded_width(t), repr(t.optimizer), t.combiner,
           repr(t.quantization_config), t.dtype)
    alike.setdefault(key, []).append(name)
  groups = []
  for names in alike.values():
    open_groups: list[tuple[list[str], int]] = []
    for name in names:
      size = padded_width(tables[name]) * (samples[name] // cores) * 4
      for i, (group, used) in enumerate(open_groups):
        if used + size <= activation_mem_bytes_limit and len(group) < most:
          group.append(name)
          open_groups[i] = (group, used + size)
          break
      else:
        open_groups.append(([name], size))
    groups.extend(g for g, _ in open_groups)
  return groups


def stack_name(names: list[str]) -> str:
  """The name of a stack of these tables: theirs, joined; where that is long, the first 50
  characters and a hash."""
  name = "_".join(names)
  if len(name) <= 50:
    return name
  return f"{name[:50]}...{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _check_table(t) -> None:
  for what in ("vocabulary_size", "embedding_dim"):
    if getattr(t, what) < 1:
      raise ValueError(f"table {t.name!r}: {what} is {getattr(t, what)}")
  if t.combiner not in _native.COMBINERS:
    raise ValueError(f"table {t.name!r}: combiner {t.combiner!r} is none of "
                     f"{', '.join(_native.COMBINERS)}")
  room = t.suggested_coo_buffer_size_per_device
  if room is not None and room < 1:
    raise ValueError(f"table {t.name!r}: suggested_coo_buffer_size_per_device is "
                     f"{room}")


def _verify(names, tables) -> None:
  if len(set(names)) != len(names):
    raise ValueError(f"a table is twice in the stack {names}")
  missing = [n for n in names if n not in tables]
  if missing:
    raise ValueError(f"no feature uses table {missing[0]!r}")
  first = tables[names[0]]
  for n in names:
    t = tables[n]
    for what, a, b in (("width", padded_width(t), padded_width(first)),
                       ("optimizer", repr(t.optimizer), repr(first.optimizer)),
                       ("combiner", t.combiner, first.combiner),
                       ("quantisation", t.quantization_config,
                        first.quantization_config),
                       ("dtype", t.dtype, first.dtype)):
      if a != b:
        raise ValueError(f"tables {first.name!r} and {n!r} cannot be stacked: "
                         f"{what} {b} and {a}")


def _limit(group, config, per_table, per_sample, own, samples, cores) -> int:
  named = getattr(config, per_table) or {}
  given = [named[t.name] for t in group if t.name in named]
  if len(given) == len(group):  # over all partitions
    return max(1, math.ceil(sum(given) / cores))
  rate = getattr(config, per_sample)
  if rate is not None:
    return max(1, math.ceil(rate * samples / cores))
  return sum(getattr(t, own) for t in group)


def stack_tables(features: Any, *, global_device_count: int, num_sc_per_device: int,
                 groups: list[list[str]] | None = None,
                 rotation: int | None = None,
                 config: SparsecoreConfig = SparsecoreConfig(),
                 activation_mem_bytes_limit: int = ACTIVATION_BYTES) -> None:
  """Stacks tables in place: automatically, or by `groups` of table names.

  Tables of a stack lie one behind the other on every SparseCore; each is rotated by
  `rotation` SparseCores (None: those of one device) against the one before it. The
  limits of a stack are the sums of its tables' unless `config` says otherwise.
  """
  cores = global_device_count * num_sc_per_device
  if global_device_count < 1 or num_sc_per_device < 1:
    raise ValueError(f"{global_device_count} devices of {num_sc_per_device} "
                     "SparseCores")
  tables = tables_of(features)
  for t in tables.values():
    _check_table(t)
  if config.disable_table_stacking:
    if groups:
      raise ValueError("groups of tables are given, but stacking is disabled")
    groups = [[n] for n in tables]
  elif groups is None:
    groups = groups_of(features, cores,
                       activation_mem_bytes_limit=activation_mem_bytes_limit)
  taken = [n for g in groups for n in g]
  if len(set(taken)) != len(taken):
    raise ValueError("a table is in two stacks")
  groups = [*groups, *([n] for n in tables if n not in taken)]
  step = num_sc_per_device if rotation is None else rotation
  for names in groups:
    _verify(names, tables)
    _stack(features, [tables[n] for n in names], cores, step, config)


def _stack(features, group, cores, step, config) -> None:
  name = stack_name([t.name for t in group])
  mine = [f for f in leaves(features) if f.table_spec in group]
  offset, settings = 0, {}
  for i, t in enumerate(group):
    rows = up(t.vocabulary_size, ROW_ELEMENTS * cores)
    settings[t.name] = TableSettingInStack(
        name, rows, padded_width(t), offset, step * i % cores)
    offset += rows // cores
  samples = 0
  for f in mine:
    s = settings[f.table_spec.name]
    f.id_transformation = FeatureIdTransformation(
        samples, s.row_offset_in_shard * cores, s.shard_rotation)
    samples += int(f.input_shape[0])
  limits = [_limit(group, config, f"max_{u}ids_per_table",
                   f"max_{u}ids_per_partition_per_sample",
                   f"max_{u}ids_per_partition", samples, cores)
            for u in ("", "unique_")]
  wanted = [t.suggested_coo_buffer_size_per_device for t in group]
  spec = StackedTableSpec(
      name, offset * cores, padded_width(group[0]), group[0].optimizer,
      group[0].combiner, samples, *limits,
      suggested_coo_buffer_size_per_device=sum(wanted) if all(wanted) else None,
      quantization_config=group[0].quantization_config, total_cores=cores)
  for t in group:
    t.setting_in_stack, t.stacked_table_spec = settings[t.name], spec


def stacks_of(features: Any) -> dict[str, StackedTableSpec]:
  """The stacks of features that `stack_tables` has stacked, by name."""
  return {f.table_spec.stacked_table_spec.stack_name:
          f.table_spec.stacked_table_spec for f in leaves(features)}


def row_of(table: Any, ids: Any, cores: int) -> np.ndarray:
  """Rows of the stacked array (SparseCore after SparseCore) that ids live in.

  cores: SparseCores of all devices; ValueError: the stack was made for others.
  """
  s, spec = table.setting_in_stack, table.stacked_table_spec
  made_for = getattr(spec, "total_cores", None) or cores
  if cores < 1 or spec.stack_vocab_size % cores or made_for != cores or (
      table.vocabulary_size - 1) // cores + s.row_offset_in_shard >= (
          spec.stack_vocab_size // cores):
    raise ValueError(f"stack {spec.stack_name!r} of {spec.stack_vocab_size} rows was "
                     f"not made for {cores} SparseCores"
                     + (f" but for {made_for}" if made_for != cores else ""))
  ids = np.asarray(ids, np.int64)
  owner = (ids + s.shard_rotation) % cores
  return owner * (spec.stack_vocab_size // cores) + (
      ids // cores + s.row_offset_in_shard)


def initialize_tables(features: Any, cores: int, initializer: Callable, seed: int = 0,
                      config: SparsecoreConfig = SparsecoreConfig()) -> dict:
  """The stacked arrays by stack, f32[rows, width], padding zero, for `cores` SparseCores in all.

  On the host `initializer(rng, shape)` fills table by table from a NumPy generator;
  with `initialize_tables_on_host=False` it gets a jax key and runs on the device. With
  `enable_fast_table_initialization` one call fills each stack where it lies, padding
  and all, without taking it apart into tables.
  """
  fast = config.enable_fast_table_initialization
  if fast or not config.initialize_tables_on_host:
    return _initialize_on_device(features, cores, initializer, seed, fast)
  rng = np.random.default_rng(seed)
  out = {n: np.zeros((s.stack_vocab_size, s.stack_embedding_dim), np.float32)
         for n, s in stacks_of(features).items()}
  for t in tables_of(features).values():
    rows = row_of(t, np.arange(t.vocabulary_size), cores)
    out[t.setting_in_stack.stack_name][rows, :t.embedding_dim] = initializer(
        rng, (t.vocabulary_size, t.embedding_dim))
  return out


def _initialize_on_device(features, cores, initializer, seed, fast) -> dict:
  import jax
  import jax.numpy as jnp

  key, out = jax.random.key(seed), {}
  for i, (n, s) in enumerate(stacks_of(features).items()):
    shape = (s.stack_vocab_size, s.stack_embedding_dim)
    if fast:
      out[n] = jax.jit(lambda k, shape=shape: initializer(k, shape))(
          jax.random.fold_in(key, i))
    else:
      out[n] = jnp.zeros(shape, jnp.float32)
  if fast:
    return out
  for i, t in enumerate(tables_of(features).values()):
    rows = row_of(t, np.arange(t.vocabulary_size), cores)
    n = t.setting_in_stack.stack_name
    values = initializer(jax.random.fold_in(key, i),
                         (t.vocabulary_size, t.embedding_dim))
    out[n] = out[n].at[rows, :t.embedding_dim].set(values)
  return out
