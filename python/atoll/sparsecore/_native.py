"""libatoll_input.so: its structs and calls, and errors as Python exceptions."""

import ctypes
import os
from pathlib import Path

import numpy as np

RAGGED, DENSE, ROWS, SPARSE, COO = range(5)
COMBINERS = {"sum": 0, "mean": 1, "sqrtn": 2}
SPLITS = {"vocabulary": 0, "sample": 1}
BUCKETS = 64
PADDING = np.iinfo(np.int32).max

_I, _L, _P = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


class Batch(ctypes.Structure):
  """at_spinput_batch."""
  _fields_ = [("form", _I), ("id_bytes", _I), ("samples", _L), ("width", _L),
              ("nnz", _L), ("ids", _P), ("weights", _P), ("index", _P),
              ("rows", _P), ("weight_rows", _P)]


class Feature(ctypes.Structure):
  """at_spinput_feature."""
  _fields_ = [("name", ctypes.c_char_p), ("table", ctypes.c_char_p),
              ("vocabulary", _L), ("input", _I), ("row_offset", _I),
              ("col_offset", _I), ("col_shift", _I)]


class Stack(ctypes.Structure):
  """at_spinput_stack."""
  _fields_ = [("name", ctypes.c_char_p), ("features", ctypes.POINTER(Feature)),
              ("feature_count", _I), ("combiner", _I), ("max_ids", _I),
              ("max_unique", _I), ("coo_per_device", _I), ("reserved", _I)]


class Options(ctypes.Structure):
  """at_spinput_options."""
  _fields_ = [("local_devices", _I), ("global_devices", _I),
              ("cores_per_device", _I), ("allow_dropping", _I),
              ("minibatching", _I), ("split", _I), ("max_ids_per_sample", _I),
              ("reserved", _I), ("agree", _P), ("agree_arg", _P)]


class Out(ctypes.Structure):
  """at_spinput_out."""
  _fields_ = [("row_pointers", _P), ("embedding_ids", _P), ("sample_ids", _P),
              ("gains", _P), ("rows_per_device", _L), ("coo_per_device", _L),
              ("max_ids", _P), ("max_unique", _P), ("required", _P),
              ("dropped", _L)]


class Sizes(ctypes.Structure):
  """at_spinput_sizes."""
  _fields_ = [("rows_per_device", _L), ("coo_per_device", _L),
              ("coo_limit", _L)]


class Coo(ctypes.Structure):
  """at_spinput_coo."""
  _fields_ = [("row_pointers", _P), ("embedding_ids", _P), ("sample_ids", _P),
              ("gains", _P), ("rows", _L), ("coo", _L), ("cores", _I),
              ("cores_per_device", _I), ("minibatches", _I),
              ("minibatching", ctypes.c_bool), ("samples_per_core", _L),
              ("rows_per_core", _L)]


class Hot(ctypes.Structure):
  """at_spinput_hot."""
  _fields_ = [("id", _I), ("count", _L)]


class Layout(ctypes.Structure):
  """at_spinput_layout."""
  _fields_ = [("type", _P), ("element", _P * 2), ("element_bytes", _I * 2),
              ("type_at", _I), ("data_at", _I), ("rank_at", _I),
              ("dims_at", _I), ("strides_at", _I), ("element_at", _I)]


class Flags(ctypes.Structure):
  """at_spinput_flags."""
  _fields_ = [("id_bound_check", ctypes.c_bool),
              ("detect_nan", ctypes.c_bool),
              ("verify_launch_id", ctypes.c_bool),
              ("estimate_max_ids", ctypes.c_bool),
              ("disable_pipelining", ctypes.c_bool),
              ("assert_level", ctypes.c_bool),
              ("force_aligned_buffers", ctypes.c_bool),
              ("sanitizer", ctypes.c_uint32),
              ("serialized_tables", ctypes.c_uint32),
              ("minibatch_path", ctypes.c_char * 256),
              ("max_ids_file", ctypes.c_char * 256)]


class Chip(ctypes.Structure):
  """at_spinput_chip."""
  _fields_ = [("name", ctypes.c_char * 16), ("cores", _I), ("tiles", _I),
              ("lanes_32bit", _I), ("lanes_16bit", _I), ("tile_bytes", _L),
              ("shared_bytes", _L), ("hbm_bytes", _L)]


class SizeTable(ctypes.Structure):
  """at_spinput_table."""
  _fields_ = [("name", ctypes.c_char_p), ("rows", _L), ("width", _L),
              ("max_ids", _L), ("max_unique", _L), ("coo_per_device", _L),
              ("samples", _L), ("element_bytes", _I), ("optimizer", _I),
              ("slots", _I)]


class SizeProgram(ctypes.Structure):
  """at_spinput_program."""
  _fields_ = [("chip", Chip), ("devices", _I),
              ("tables", ctypes.POINTER(SizeTable)),
              ("table_count", ctypes.c_size_t), ("serialized", _I),
              ("unstaged", ctypes.c_bool), ("dense_bytes", _L),
              ("constant_bytes", _L), ("prefetch_bytes", _L)]


class TableSize(ctypes.Structure):
  """at_spinput_table_size."""
  _fields_ = [(n, _L) for n in ("replicas", "padded_width", "padded_rows",
                                "rows_per_core", "rows_per_tile",
                                "gather_bytes")] + [
      ("gather_in_tile", ctypes.c_bool)] + [(n, _L) for n in (
          "forward_bytes", "backward_bytes", "spmem_bytes", "hbm_bytes",
          "waste_bytes")] + [("serialized", ctypes.c_bool)]


class Size(ctypes.Structure):
  """at_spinput_size."""
  _fields_ = [(n, _L) for n in ("forward_bytes", "backward_bytes",
                                "shared_bytes", "stack_bytes", "table_bytes",
                                "waste_bytes", "heap_bytes", "peak_bytes")]


class SparseCoreError(ValueError):
  """What the library refused; `code` is the name of its status code."""

  def __init__(self, code: str, message: str):
    super().__init__(message)
    self.code = code


_CODES = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 8: "RESOURCE_EXHAUSTED",
          9: "FAILED_PRECONDITION", 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED",
          13: "INTERNAL", 10: "ABORTED", 14: "UNAVAILABLE"}
_MESSAGE_BYTES = 4096
_library = None


def library() -> ctypes.CDLL:
  """libatoll_input.so, loaded once; FileNotFoundError: it is not beside libatoll.so."""
  global _library
  if _library is None:
    import atoll

    beside = Path(atoll.library_path()).with_name("libatoll_input.so")
    if not beside.is_file():
      raise FileNotFoundError(
          f"no {beside.name} beside {beside.parent}/libatoll.so\n"
          "hint: build the target `atoll_input`, or install the wheel")
    _library = ctypes.CDLL(os.fspath(beside))
    _library.atoll_input_rows.restype = ctypes.c_int64
  return _library


def call(name: str, *args) -> None:
  """Calls atoll_input_<name>; raises what it refuses."""
  message = ctypes.create_string_buffer(_MESSAGE_BYTES)
  code = getattr(library(), f"atoll_input_{name}")(
      *args, message, ctypes.c_size_t(_MESSAGE_BYTES))
  if code:
    raise error(code, message)


def error(code: int, message: ctypes.Array) -> SparseCoreError:
  """The exception for a code of the library and what it has written to `message`."""
  return SparseCoreError(_CODES.get(code, str(code)),
                         message.value.decode(errors="replace"))


def address(array: np.ndarray) -> int:
  """Where the array's first element is; the caller keeps the array alive."""
  return array.__array_interface__["data"][0]


def _word(at: int) -> int:
  return ctypes.c_uint64.from_address(at).value


def _layout(dtypes) -> Layout | None:
  """Where this NumPy keeps the parts of an array; None when it looks unlike the
  layout that every NumPy has had, and rows are then copied instead."""
  probe, at = np.arange(3, dtype=np.int32), None
  at = id(probe)
  if (_word(at + 8) != id(np.ndarray) or _word(at + 16) != address(probe) or
      ctypes.c_int32.from_address(at + 24).value != 1 or
      _word(at + 56) != id(probe.dtype) or _word(_word(at + 32)) != 3 or
      _word(_word(at + 40)) != 4):
    return None
  kinds = [np.dtype(d) for d in dtypes] + [None] * (2 - len(dtypes))
  return Layout(
      type=id(np.ndarray),
      element=(_P * 2)(*[id(k) if k else None for k in kinds]),
      element_bytes=(_I * 2)(*[k.itemsize if k else 0 for k in kinds]),
      type_at=8, data_at=16, rank_at=24, dims_at=32, strides_at=40,
      element_at=56)


_layouts = {}


def rows_of(objects: np.ndarray, dtypes) -> tuple[np.ndarray, int] | None:
  """(address, length) of every sample of an object array and the bytes of an
  element; None when some sample cannot be read in place."""
  if dtypes not in _layouts:
    _layouts[dtypes] = _layout(dtypes)
  layout = _layouts[dtypes]
  if layout is None or not objects.flags.c_contiguous:
    return None
  rows, size = np.empty((len(objects), 2), np.int64), _I()
  bad = library().atoll_input_rows(
      ctypes.byref(layout), _P(address(objects)), _L(len(objects)),
      _P(address(rows)), ctypes.byref(size))
  return (rows, size.value) if bad < 0 else None
