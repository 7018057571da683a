"""Batches of ids into the buffers of a SparseCore lookup, done in C.

The functions take what jax-tpu-embedding's functions of the same name take and give
the same bytes. Feature specs are read by attribute, so that package need not be
installed.
"""

import ctypes
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from atoll.sparsecore import _blocks
from atoll.sparsecore import _native


class SparseDenseMatmulInput(NamedTuple):
  """Per stack: what a lookup reads."""
  lhs_row_pointers: Mapping[str, np.ndarray]
  lhs_embedding_ids: Mapping[str, np.ndarray]
  lhs_sample_ids: Mapping[str, np.ndarray]
  lhs_gains: Mapping[str, np.ndarray]


@dataclasses.dataclass
class InputStats:
  """Per stack: what was observed in a batch (see jax-tpu-embedding's
  SparseDenseMatmulInputStats)."""
  max_ids_per_partition: dict[str, np.ndarray]
  max_unique_ids_per_partition: dict[str, np.ndarray]
  required_buffer_size_per_sc: dict[str, np.ndarray]
  id_drop_counters: dict[str, int]


class PreprocessedInput(NamedTuple):
  """A batch for a lookup. `num_minibatches`: the same s32 for each local device.

  JAX takes it apart as it does jax-tpu-embedding's class of this name, whose lookups
  and updates read it.
  """
  sparse_dense_matmul_input: SparseDenseMatmulInput
  num_minibatches: np.ndarray

  @property
  def lhs_row_pointers(self) -> Mapping[str, np.ndarray]:
    """Per stack: where each partition's ids end in the buffers below."""
    return self.sparse_dense_matmul_input.lhs_row_pointers

  @property
  def lhs_embedding_ids(self) -> Mapping[str, np.ndarray]:
    """Per stack: rows of the table on their partition."""
    return self.sparse_dense_matmul_input.lhs_embedding_ids

  @property
  def lhs_sample_ids(self) -> Mapping[str, np.ndarray]:
    """Per stack: the sample that each id belongs to."""
    return self.sparse_dense_matmul_input.lhs_sample_ids

  @property
  def lhs_gains(self) -> Mapping[str, np.ndarray]:
    """Per stack: the weight of each id."""
    return self.sparse_dense_matmul_input.lhs_gains


def leaves(tree) -> list:
  """Leaves of dicts, lists and tuples, in jax.tree.leaves' order."""
  if isinstance(tree, Mapping):
    return [x for k in sorted(tree) for x in leaves(tree[k])]
  if isinstance(tree, (list, tuple)):
    return [x for v in tree for x in leaves(v)]
  return [] if tree is None else [tree]


@dataclasses.dataclass(frozen=True)
class Coo:
  """A batch as raw coordinates: ids[i] belongs to sample row_ids[i]."""
  row_ids: Any
  col_ids: Any
  values: Any = None  # gains; absent: 1.0 each
  batch_size: int = 0


@dataclasses.dataclass(frozen=True)
class Ragged:
  """A batch as one array of ids and where each sample's begin."""
  ids: Any
  row_splits: Any
  weights: Any = None


@dataclasses.dataclass(frozen=True)
class SparseTensor:
  """A batch as tf.SparseTensor has it: [batch, max_len]."""
  indices: Any
  values: Any
  dense_shape: Any


def _array(x) -> np.ndarray:
  if isinstance(x, np.ma.MaskedArray):
    raise TypeError("a masked array: give what is not masked as Ragged or Coo")
  return np.asarray(x)


def _ids(x) -> np.ndarray:
  x = _array(x)
  if x.dtype not in (np.int32, np.int64):
    if x.dtype.kind not in "iu" and x.size:
      raise TypeError(f"ids must be integers, not {x.dtype}")
    if x.dtype == np.uint64 and x.size and x.max() > np.iinfo(np.int64).max:
      raise ValueError(f"id {x.max()} does not fit 63 bits")
    wide = x.dtype.itemsize > 4 or x.dtype == np.uint32
    x = x.astype(np.int64 if wide or x.dtype.kind == "u" else np.int32)
  return np.ascontiguousarray(x)


def _floats(x) -> np.ndarray:
  x = _array(x)
  if np.iscomplexobj(x):
    raise TypeError("weights must be real numbers, not complex ones")
  return np.ascontiguousarray(x, dtype=np.float32)


def _index(x) -> np.ndarray:
  x = _array(x)
  if x.dtype.kind not in "iu" and x.size:
    raise TypeError(f"indices must be integers, not {x.dtype}")
  return np.ascontiguousarray(x, dtype=np.int64)


def _flat(rows, convert) -> tuple[np.ndarray, np.ndarray]:
  parts = [convert(np.atleast_1d(r)) for r in rows]
  splits = np.zeros(len(parts) + 1, np.int64)
  np.cumsum([len(p) for p in parts], out=splits[1:])
  return (np.concatenate(parts) if parts else convert([])), splits


def _set(b, keep, **arrays) -> None:
  for name, x in arrays.items():
    if x is not None:
      keep.append(x)
      setattr(b, name, _native.address(x))


def _ragged(b, keep, ids, splits, weights) -> None:
  if ids.ndim != 1 or splits.ndim != 1 or not len(splits):
    raise ValueError(f"ragged ids {ids.shape} with row splits {splits.shape}")
  if weights is not None and len(weights) != len(ids):
    raise ValueError(f"{len(ids)} ids but {len(weights)} weights")
  b.form, b.id_bytes, b.nnz = _native.RAGGED, ids.itemsize, len(ids)
  b.samples = len(splits) - 1
  _set(b, keep, ids=ids, index=splits, weights=weights)


def fill_batch(b: _native.Batch, x, weights, keep: list) -> None:
  """Describes one feature's batch to the library; `keep` collects what must live
  as long as the description."""
  if isinstance(x, SparseTensor):
    ids, index, shape = _ids(x.values), _index(x.indices), _index(x.dense_shape)
    if weights is not None:
      raise ValueError("weights of a sparse tensor: use Coo or Ragged")
    if index.ndim != 2 or index.shape != (len(ids), 2) or shape.shape != (2,):
      raise ValueError(f"a sparse tensor with indices {index.shape}, values "
                       f"{ids.shape}, dense shape {shape.shape}")
    b.form, b.id_bytes, b.nnz = _native.SPARSE, ids.itemsize, len(ids)
    b.samples, b.width = int(shape[0]), int(shape[1])
    _set(b, keep, ids=ids, index=index)
  elif isinstance(x, Coo):
    ids, rows = _ids(x.col_ids), _index(x.row_ids)
    gains = x.values if x.values is not None else weights
    gains = None if gains is None else _floats(gains)
    if ids.shape != rows.shape or ids.ndim != 1 or (
        gains is not None and gains.shape != ids.shape):
      values = "no" if gains is None else gains.shape
      raise ValueError(f"raw COO with {rows.shape} rows, {ids.shape} columns, "
                       f"{values} values")
    b.form, b.id_bytes, b.nnz = _native.COO, ids.itemsize, len(ids)
    b.samples = x.batch_size
    _set(b, keep, ids=ids, index=rows, weights=gains)
  elif isinstance(x, Ragged):
    gains = x.weights if x.weights is not None else weights
    _ragged(b, keep, _ids(x.ids), _index(x.row_splits),
            None if gains is None else _floats(gains))
  else:
    _fill_arrays(b, x, weights, keep)


def _fill_arrays(b, x, weights, keep) -> None:
  x = _array(x)
  w = None if weights is None else _array(weights)
  if x.ndim not in (1, 2) or (w is not None and w.ndim != x.ndim):
    raise ValueError(f"ids of rank {x.ndim}"
                     + ("" if w is None else f", weights of rank {w.ndim}"))
  if w is not None and len(w) != len(x):
    raise ValueError(f"{len(x)} samples of ids but {len(w)} of weights")
  b.samples = len(x)
  if x.ndim == 2 and x.dtype != object:
    x = _ids(x)
    if w is not None:
      w = _floats(w)
      if w.shape != x.shape:
        raise ValueError(f"ids {x.shape} but weights {w.shape}")
    b.form, b.id_bytes, b.width = _native.DENSE, x.itemsize, x.shape[1]
    _set(b, keep, ids=x, weights=w)
    return
  rows = weight_rows = None
  if x.dtype == object and x.ndim == 1:
    rows = _native.rows_of(x, (np.int32, np.int64))
    if w is not None and w.dtype == object:
      weight_rows = _native.rows_of(w, (np.float32,))
  if rows is not None and (w is None or weight_rows is not None):
    b.form, b.id_bytes = _native.ROWS, rows[1]
    keep.extend((x, w))
    _set(b, keep, rows=rows[0],
         weight_rows=None if w is None else weight_rows[0])
    return
  ids, splits = _flat(x, _ids)
  gains = None
  if w is not None:
    gains, weight_splits = _flat(w, _floats)
    wrong = np.nonzero(np.diff(splits) != np.diff(weight_splits))[0]
    if len(wrong):
      raise ValueError(f"sample {wrong[0]}: other numbers of ids and weights")
  _ragged(b, keep, ids, splits, gains)


class Plan:
  """What does not change between batches: stacks, limits, devices.

  Args:
    feature_specs: jax-tpu-embedding's FeatureSpecs or atoll.sparsecore's,
      stacked (see `stack_tables`); any nesting.
    local_device_count, global_device_count: devices of this process, and of all.
    num_sc_per_device: SparseCores of a device.
    allow_id_dropping: ids over the limits are dropped; False: they are an error.
    enable_minibatching: a batch over the limits is cut into mini-batches first.
    max_ids_per_chip_per_sample: ids of one sample over all features; 0: any.
    split: what mini-batches cut: "vocabulary" or "sample".
    agree: for several hosts: ors an unsigned int of 64 bits over all of them.
  """

  def __init__(self, feature_specs: Any, local_device_count: int,
               global_device_count: int, num_sc_per_device: int, *,
               allow_id_dropping: bool = False,
               enable_minibatching: bool = False, split: str = "vocabulary",
               max_ids_per_chip_per_sample: int = 0,
               agree: Callable[[int], int] | None = None):
    specs = leaves(feature_specs)
    if split not in _native.SPLITS:
      raise ValueError(f"split {split!r}: one of {', '.join(_native.SPLITS)}")
    if max_ids_per_chip_per_sample < 0:
      raise ValueError(f"max_ids_per_chip_per_sample is "
                       f"{max_ids_per_chip_per_sample}; 0 is no limit")
    for f in specs:
      if f.table_spec.setting_in_stack is None or f.id_transformation is None:
        raise ValueError(f"feature {f.name!r} of table {f.table_spec.name!r} is in no "
                         "stack: call stack_tables first")
    self._keys = set(feature_specs) if isinstance(feature_specs, Mapping) else None
    self._agree = None if agree is None else _Agreement(agree)
    self.options = _native.Options(
        local_devices=local_device_count, global_devices=global_device_count,
        cores_per_device=num_sc_per_device, allow_dropping=allow_id_dropping,
        minibatching=enable_minibatching, split=_native.SPLITS[split],
        max_ids_per_sample=max_ids_per_chip_per_sample,
        agree=ctypes.cast(self._agree.pointer, ctypes.c_void_p)
        if self._agree else None)
    groups: dict[str, list[tuple[int, Any]]] = {}
    for i, f in enumerate(specs):
      groups.setdefault(f.table_spec.setting_in_stack.stack_name,
                        []).append((i, f))
    self.names = list(groups)
    self._keep = []
    self.stacks = (_native.Stack * len(groups))(
        *[self._stack(n, groups[n]) for n in self.names])
    self.sizes = []
    for k in self.stacks:
      size = _native.Sizes()
      _native.call("sizes", ctypes.byref(self.options), ctypes.byref(k),
                   ctypes.byref(size))
      self.sizes.append((size.rows_per_device, size.coo_per_device))
    for n, group in groups.items():  # a plan that is possible, but for others
      made_for = getattr(group[0][1].table_spec.stacked_table_spec, "total_cores", 0)
      if made_for and made_for != global_device_count * num_sc_per_device:
        raise ValueError(f"stack {n!r} was made for {made_for} SparseCores, not for "
                         f"{global_device_count} devices of {num_sc_per_device}: call "
                         "stack_tables again")
    self.feature_names = [f.name for f in specs]

  def _stack(self, name, features) -> _native.Stack:
    features.sort(key=lambda x: x[1].id_transformation.row_offset)
    array = (_native.Feature * len(features))(*[
        _native.Feature(
            name=f.name.encode(), table=f.table_spec.name.encode(),
            vocabulary=f.table_spec.vocabulary_size, input=i,
            row_offset=int(f.id_transformation.row_offset),
            col_offset=int(f.id_transformation.col_offset),
            col_shift=int(f.id_transformation.col_shift))
        for i, f in features])
    self._keep.append(array)
    s = features[0][1].table_spec.stacked_table_spec
    if s.combiner not in _native.COMBINERS:
      raise ValueError(f"stack {name!r}: combiner {s.combiner!r} is none of "
                       f"{', '.join(_native.COMBINERS)}")
    for limit in ("max_ids_per_partition", "max_unique_ids_per_partition",
                  "suggested_coo_buffer_size_per_device"):
      if int(getattr(s, limit) or 0) > np.iinfo(np.int32).max:
        raise ValueError(f"stack {name!r}: {limit} is {getattr(s, limit)}; "
                         f"at most {np.iinfo(np.int32).max}")
    return _native.Stack(
        name=name.encode(), features=array, feature_count=len(features),
        combiner=_native.COMBINERS[s.combiner],
        max_ids=int(s.max_ids_per_partition),
        max_unique=int(s.max_unique_ids_per_partition),
        coo_per_device=int(s.suggested_coo_buffer_size_per_device or 0))

  def run(self, features: Any, weights: Any = None, leading_dimension: bool = False
          ) -> tuple[SparseDenseMatmulInput, int, InputStats]:
    """One batch. Returns (SparseDenseMatmulInput, mini-batches, InputStats).

    Args:
      features: ids of this process's samples, in the specs' structure: arrays (dense, or
        of rows), Ragged, Coo or SparseTensor.
      weights: likewise; None: 1.0 each.
      leading_dimension: buffers are [local devices, elements] instead of flat.

    Raises ValueError or TypeError for a batch that does not fit the specs,
    SparseCoreError for ids out of range or over the limits.
    """
    for what, given in (("", features), ("weights of ", weights)):
      if self._keys is not None and isinstance(given, Mapping) and (
          odd := self._keys ^ set(given)):
        name = sorted(odd)[0]
        raise ValueError(f"{what}feature {name!r} is " + (
            "specified but not given" if name in self._keys else
            f"given but not specified; there are {sorted(self._keys)}"))
    xs = leaves(features)
    ws = leaves(weights) if weights is not None else [None] * len(xs)
    if len(xs) != len(self.feature_names) or len(ws) != len(xs):
      raise ValueError(f"{len(self.feature_names)} features are specified, "
                       f"{len(xs)} given, with {len(ws)} weights")
    keep, batches = [], (_native.Batch * len(xs))()
    for b, x, w, name in zip(batches, xs, ws, self.feature_names):
      try:
        fill_batch(b, x, w, keep)
      except (TypeError, ValueError) as e:
        raise type(e)(f"feature '{name}': {e}") from None
    o = self.options
    devices, s = o.local_devices, o.cores_per_device
    n = o.global_devices * s
    outs = (_native.Out * len(self.names))()
    shapes = [x for rows, coo in self.sizes for x in (
        (devices * rows, np.int32), (devices * coo, np.int32),
        (devices * coo, np.int32), (devices * coo, np.float32))]
    flat = _blocks.arrays(shapes, sparse=bool(o.minibatching))
    arrays = [tuple(flat[i:i + 4]) for i in range(0, len(flat), 4)]
    stats = [(np.empty(devices * n, np.int32), np.empty(devices * n, np.int32),
              np.empty(devices * s, np.int32)) for _ in self.names]
    for out, size, a, t in zip(outs, self.sizes, arrays, stats):
      out.rows_per_device, out.coo_per_device = size
      (out.row_pointers, out.embedding_ids, out.sample_ids, out.gains,
       out.max_ids, out.max_unique, out.required) = map(
           _native.address, a + t)
    count = ctypes.c_int32()
    _native.call("run", ctypes.byref(o), self.stacks, len(self.names), batches,
                 len(xs), outs, ctypes.byref(count))
    if self._agree:
      self._agree.check()
    if leading_dimension:
      arrays = [tuple(x.reshape(devices, -1) for x in a) for a in arrays]
    put = lambda part: {k: a[part] for k, a in zip(self.names, arrays)}
    seen = lambda part: {k: t[part] for k, t in zip(self.names, stats)}
    return (SparseDenseMatmulInput(put(0), put(1), put(2), put(3)), count.value,
            InputStats(seen(0), seen(1), seen(2),
                       {k: o.dropped for k, o in zip(self.names, outs)}))


class _Agreement:
  """`agree` as the library calls it. It cannot take an exception, so one waits here
  until the call is over; the bits then stay this host's own."""

  def __init__(self, agree):
    self.failure = None

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p,
                      ctypes.POINTER(ctypes.c_uint64))
    def call(_, bits):
      try:
        bits[0] = agree(bits[0])
      except BaseException as e:  # pylint: disable=broad-except
        self.failure = e
      return None  # success, as an at_status

    self.pointer = call

  def check(self) -> None:
    failure, self.failure = self.failure, None
    if failure is not None:
      raise failure


def _finish(plan, result, leading):
  arrays, count, stats = result
  counts = np.full(plan.options.local_devices, count, np.int32)
  if leading:
    counts = counts.reshape(-1, 1)
  return PreprocessedInput(arrays, counts), stats


def preprocess_sparse_dense_matmul_input(
    features: Any, features_weights: Any, feature_specs: Any, local_device_count: int,
    global_device_count: int, *, num_sc_per_device: int, sharding_strategy: str = "MOD",
    has_leading_dimension: bool = False, allow_id_dropping: bool = False,
    batch_number: int = 0, enable_minibatching: bool = False, split: str = "vocabulary",
    max_ids_per_chip_per_sample: int = 0, agree: Callable[[int], int] | None = None
) -> tuple[PreprocessedInput, InputStats]:
  """One batch of dense or ragged arrays, or of Ragged, Coo, SparseTensor.

  Arguments and results are those of jax-tpu-embedding's function of this name;
  `split`, `max_ids_per_chip_per_sample` and `agree` are `Plan`'s. A caller with many
  batches makes a `Plan` once instead.
  """
  del batch_number  # it only thins out log lines there
  if sharding_strategy != "MOD":
    raise ValueError(f"sharding strategy {sharding_strategy!r}: only MOD")
  if enable_minibatching and agree is None and (local_device_count
                                                < global_device_count):
    raise ValueError("mini-batching over several hosts needs `agree`")
  plan = Plan(feature_specs, local_device_count, global_device_count,
              num_sc_per_device, allow_id_dropping=allow_id_dropping,
              enable_minibatching=enable_minibatching, split=split,
              max_ids_per_chip_per_sample=max_ids_per_chip_per_sample,
              agree=agree)
  return _finish(plan, plan.run(features, features_weights,
                                has_leading_dimension), has_leading_dimension)


def preprocess_sparse_dense_matmul_input_from_sparse_tensor(
    indices: Any, values: Any, dense_shapes: Any, feature_specs: Any,
    local_device_count: int, global_device_count: int, **kwargs: Any
) -> tuple[PreprocessedInput, InputStats]:
  """The same for tensors in tf.SparseTensor's three parts."""
  parts = zip(leaves(indices), leaves(values), leaves(dense_shapes),
              strict=True)
  return preprocess_sparse_dense_matmul_input(
      [SparseTensor(*p) for p in parts], None, leaves(feature_specs),
      local_device_count, global_device_count, **kwargs)
