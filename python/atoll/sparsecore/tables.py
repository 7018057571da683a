"""Tables as a user knows them, in stacks as the SparseCores have them: taking apart,
rows, checkpoints, files.

`stacked` maps a stack to its array, or to a tuple (or a tuple of tuples) of arrays: the
table and its optimizer's slots, as jax-tpu-embedding's EmbeddingVariables has them.
`cores` is the number of SparseCores of all devices.
"""

import importlib.util
import os
import pathlib
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np

from atoll.sparsecore import config as cfg

_CHUNK_ROWS = 1 << 16  # that are in memory at a time


def _flat(variables) -> list:
  if isinstance(variables, (tuple, list)):
    return [x for v in variables for x in _flat(v)]
  return [variables]


def _arrays_of(stacked, spec) -> list:
  """A stack's arrays, checked."""
  if spec.stack_name not in stacked:
    raise ValueError(f"stack {spec.stack_name!r} is missing")
  arrays = _flat(stacked[spec.stack_name])
  for a in arrays:
    if a.ndim == 0 or a.shape[0] != spec.stack_vocab_size or (
        a.ndim > 1 and a.shape[1] < 1):
      raise ValueError(f"stack {spec.stack_name!r} has {spec.stack_vocab_size} rows of "
                       f"{spec.stack_embedding_dim}, not {tuple(a.shape)}")
  return arrays


def _table(features, name: str):
  tables = cfg.tables_of(features)
  if name not in tables:
    raise ValueError(f"no feature uses table {name!r}; there are {sorted(tables)}")
  return tables[name]


def _ids(table, ids) -> np.ndarray:
  ids = np.asarray(ids)
  if ids.dtype.kind not in "iu":
    raise ValueError(f"ids of table {table.name!r} are {ids.dtype}, not integers")
  bad = (ids < 0) | (ids >= table.vocabulary_size)
  if bad.any():
    raise ValueError(f"id {ids[bad].flat[0]} of table {table.name!r} is out of range: "
                     f"its vocabulary is {table.vocabulary_size}")
  return ids.astype(np.int64)


def _take(table, array, rows) -> np.ndarray:
  taken = np.asarray(array[rows])
  return taken[..., :table.embedding_dim] if array.ndim > 1 else taken


def read_rows(features: Any, stacked: Mapping[str, Any], name: str, ids: Any,
              cores: int) -> list[np.ndarray]:
  """Rows of a table and of its slots, [*ids.shape, width] each, for debugging. Only
  these are copied from the device."""
  table = _table(features, name)
  rows = cfg.row_of(table, _ids(table, ids), cores)
  return [_take(table, a, rows)
          for a in _arrays_of(stacked, table.stacked_table_spec)]


def write_rows(features: Any, stacked: MutableMapping[str, Any], name: str, ids: Any,
               values: Any, cores: int) -> None:
  """Sets rows of a table (not of its slots). A NumPy array is written where it is; a
  JAX array is replaced in `stacked`."""
  table = _table(features, name)
  rows = cfg.row_of(table, _ids(table, ids), cores)
  stack = table.stacked_table_spec.stack_name
  array = _arrays_of(stacked, table.stacked_table_spec)[0]
  values = np.asarray(values)
  want = (*rows.shape, table.embedding_dim)
  if values.shape != want and values.shape != want[-1:]:
    raise ValueError(f"rows of table {name!r} are {want}, not {values.shape}")
  if isinstance(array, np.ndarray):
    array[rows, :table.embedding_dim] = values
  else:
    _replace(stacked, stack, array.at[rows, :table.embedding_dim].set(values))


def _replace(stacked, stack, array) -> None:
  def first(v):
    if not isinstance(v, (tuple, list)):
      return array
    new = [first(v[0]), *v[1:]]
    return type(v)(*new) if hasattr(v, "_fields") else type(v)(new)
  stacked[stack] = first(stacked[stack])


def unstack_tables(features: Any, stacked: Mapping[str, Any],
                   cores: int) -> dict[str, list[np.ndarray]]:
  """{table: [values, slots...]}, [vocabulary, width] each, without padding."""
  return {n: _unstack(t, stacked, cores) for n, t in cfg.tables_of(features).items()}


def _unstack(table, stacked, cores: int) -> list[np.ndarray]:
  rows = cfg.row_of(table, np.arange(table.vocabulary_size), cores)
  return [_take(table, np.asarray(a), rows)
          for a in _arrays_of(stacked, table.stacked_table_spec)]


def stack_values(features: Any, tables: Mapping[str, Any],
                 cores: int) -> dict[str, tuple[np.ndarray, ...]]:
  """The inverse: {stack: (values, slots...)}, padding zero. Tables may come from another
  stacking, or another number of SparseCores."""
  out: dict[str, tuple[np.ndarray, ...]] = {}
  for name, t in cfg.tables_of(features).items():
    if name not in tables:
      raise ValueError(f"table {name!r} is missing; there are {sorted(tables)}")
    spec, arrays = t.stacked_table_spec, _flat(tables[name])
    shape = (spec.stack_vocab_size, spec.stack_embedding_dim)
    made = out.setdefault(spec.stack_name, tuple(
        np.zeros(shape[:np.ndim(a)], np.asarray(a).dtype) for a in arrays))
    if len(made) != len(arrays):
      raise ValueError(f"table {name!r} has {len(arrays) - 1} slots, others of stack "
                       f"{spec.stack_name!r} {len(made) - 1}")
    rows = cfg.row_of(t, np.arange(t.vocabulary_size), cores)
    for to, a in zip(made, arrays):
      want = (t.vocabulary_size, t.embedding_dim)[:np.ndim(a)]
      if np.shape(a) != want:
        raise ValueError(f"table {name!r} is {np.shape(a)}, not {want}")
      if a.ndim > 1:
        to[rows, :t.embedding_dim] = a
      else:
        to[rows] = a
  return out


# ---- Checkpoints
def _installed(module: str) -> bool:
  try:
    return importlib.util.find_spec(module) is not None
  except ModuleNotFoundError:
    return False


def _keys(tables) -> dict[str, np.ndarray]:
  return {f"{n}/{i}": np.ascontiguousarray(a)
          for n, arrays in tables.items() for i, a in enumerate(arrays)}


# NumPy's files know NumPy's types only: bf16 goes as the integers of its bits, and
# the name says so.
def _plain(key: str, a: np.ndarray) -> tuple[str, np.ndarray]:
  if a.dtype.kind != "V":
    return key, a
  return f"{key}@{a.dtype.name}", a.view(f"u{a.dtype.itemsize}")


def _typed(key: str, a: np.ndarray) -> tuple[str, np.ndarray]:
  name, at, dtype = key.rpartition("@")
  if not at or "/" in dtype:
    return key, a
  import ml_dtypes  # registers its types with NumPy
  return name, a.view(getattr(ml_dtypes, dtype))


def save_tables(path: str | os.PathLike, features: Any, stacked: Mapping[str, Any],
                cores: int) -> None:
  """Writes every table and its slots, unstacked. `.npz` and `.safetensors` are files;
  anything else is a folder, Orbax's where that is installed, else with such a file."""
  path, tables = pathlib.Path(path), unstack_tables(features, stacked, cores)
  if path.suffix == ".npz":
    np.savez(path, **dict(_plain(*item) for item in _keys(tables).items()))
  elif path.suffix == ".safetensors":
    from safetensors.numpy import save_file
    save_file(_keys(tables), str(path))
  elif _installed("orbax.checkpoint"):
    import orbax.checkpoint as ocp
    with ocp.PyTreeCheckpointer() as saver:
      saver.save(path.absolute(), _keys(tables), force=True)
  else:
    path.mkdir(parents=True, exist_ok=True)
    kind = "safetensors" if _installed("safetensors") else "npz"
    save_tables(path / f"tables.{kind}", features, stacked, cores)


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
  for name in ("tables.safetensors", "tables.npz"):
    if (path / name).is_file():
      return _read(path / name)
  if path.suffix == ".npz":
    with np.load(path, allow_pickle=False) as f:
      return dict(_typed(*item) for item in f.items())
  if path.suffix == ".safetensors":
    from safetensors.numpy import load_file
    return load_file(str(path))
  import orbax.checkpoint as ocp
  with ocp.PyTreeCheckpointer() as reader:
    return {k: np.asarray(v) for k, v in reader.restore(path.absolute()).items()}


def load_tables(path: str | os.PathLike, features: Any,
                cores: int) -> dict[str, tuple[np.ndarray, ...]]:
  """What save_tables wrote, stacked as `features` are now."""
  path, tables = pathlib.Path(path), {}
  if not path.exists():
    raise FileNotFoundError(f"{path} is no checkpoint")
  try:
    arrays = _read(path)
  except Exception as e:  # of whatever package reads it
    raise ValueError(f"checkpoint {path}: {e}") from None
  for key, array in arrays.items():
    name, _, i = key.rpartition("/")
    if not name or not i.isdecimal():
      raise ValueError(f"checkpoint {path}: {key!r} is no table's")
    tables.setdefault(name, {})[int(i)] = array
  for name, t in tables.items():
    if sorted(t) != list(range(len(t))):
      raise ValueError(f"checkpoint {path}: table {name!r} has arrays {sorted(t)}")
  return stack_values(features, {n: [t[i] for i in range(len(t))]
                                 for n, t in tables.items()}, cores)


# ---- Files
def map_tables(folder: str | os.PathLike, features: Any, cores: int,
               initializer: Callable | None = None, seed: int = 0,
               dtype: Any = np.float32) -> dict[str, np.ndarray]:
  """Stacks as files in `folder`, mapped into memory: they may be larger than it. Files
  that are there are opened, others made: zero, or filled chunk by chunk by
  `initializer(rng, shape)`. Arrays of the device live in files with ATOLL_SPILL_DIR."""
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  out = {}
  for i, (name, spec) in enumerate(cfg.stacks_of(features).items()):
    path = folder / (name.replace(os.sep, "_") + ".npy")
    shape = (spec.stack_vocab_size, spec.stack_embedding_dim)
    if path.exists():
      out[name] = np.load(path, mmap_mode="r+")
      if out[name].shape != shape or out[name].dtype != dtype:
        raise ValueError(f"{path} has {out[name].dtype}{list(out[name].shape)}, stack "
                         f"{name!r} is {np.dtype(dtype)}{list(shape)}")
      continue
    # Under its name only when it is whole.
    scratch = path.with_suffix(f".{os.getpid()}.new")
    try:
      out[name] = np.lib.format.open_memmap(scratch, "w+", dtype, shape)
      if initializer:
        _fill(out[name], initializer, np.random.default_rng([seed, i]), name)
      os.replace(scratch, path)
    finally:
      scratch.unlink(missing_ok=True)
  return out


def _fill(array, initializer, rng, name: str) -> None:
  for begin in range(0, len(array), _CHUNK_ROWS):
    rows = array[begin:begin + _CHUNK_ROWS]
    values = np.asarray(initializer(rng, rows.shape))
    if values.shape != rows.shape:
      raise ValueError(f"the initializer of stack {name!r} made {values.shape}, not "
                       f"{rows.shape}")
    rows[:] = values
