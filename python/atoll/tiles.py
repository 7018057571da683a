"""atoll.tiles: memory layout on a machine of tiles without shared memory (an IPU).

Variables live on tiles; views name their elements without copies; compute sets run
vertices on tiles. A program is run for its values, and reported in cycles:

  g = tiles.Graph("mk2")
  a = g.variable("A", (32, 64)).map_linear()
  b = g.variable("B", (32, 64)).map_linear()
  c = tiles.concat([a, b], dim=1)
  y = c.clone("y")                       # where its operand is: nothing moves
  s = g.compute_set("y = 1 - c")
  s.elementwise("subtract_from", c, out=y, param=1)
  report = g.report(s)                   # report["cycles"], report["steps"], ...

`profile(fn, *args)` does the same for a whole JAX function, and `run(fn, *args)` computes its values
as the tiles would.
"""

import ctypes
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from atoll._estimate import Report, program_of, run_command

POLICIES = {"refuse": 0, "duplicate": 1, "replace": 2}
_DTYPES = {"f4": "f32", "f2": "f16", "f8": "f64", "i4": "i32", "i8": "i64", "i2": "i16", "i1": "i8",
           "u4": "ui32", "u8": "ui64", "u2": "ui16", "u1": "ui8"}
NOWHERE = 0xffffffff
_lib = None


class TilesError(ValueError):
  """What the library refused, with its message."""


class _Region(ctypes.Structure):
  _fields_ = [("begin", ctypes.c_int64), ("end", ctypes.c_int64), ("group", ctypes.c_uint32), ("var", ctypes.c_uint32),
              ("at", ctypes.c_int64)]


class _Interval(ctypes.Structure):
  _fields_ = [("begin", ctypes.c_int64), ("end", ctypes.c_int64), ("tile", ctypes.c_uint32)]


def _load():
  global _lib
  if _lib is None:
    import atoll
    _lib = ctypes.CDLL(str(Path(atoll.library_path()).with_name("libatoll_tiles.so")))
    _lib.atoll_tiles_error.restype = ctypes.c_char_p
    _lib.atoll_tiles_num_tiles.restype = ctypes.c_int64
    _lib.atoll_tiles_rank.restype = ctypes.c_uint32
    _lib.atoll_tiles_dims.restype = ctypes.POINTER(ctypes.c_int64)
  return _lib


def _call(name, *args):
  lib = _load()
  if getattr(lib, name)(*args):
    raise TilesError(lib.atoll_tiles_error().decode())


def _made(name, *args):
  out = ctypes.c_void_p()
  _call(name, *args, ctypes.byref(out))
  return out


def _ints(values):
  values = [int(v) for v in values]
  return (ctypes.c_int64 * max(len(values), 1))(*values), ctypes.c_uint32(len(values))


def _handles(views):
  return (ctypes.c_void_p * max(len(views), 1))(*[v._handle for v in views]), ctypes.c_uint32(len(views))


def _taken(ptr, n, entry):
  found = [entry(ptr[i]) for i in range(n.value)]
  _load().atoll_tiles_free(ptr)
  return found


class View:
  """Elements of variables in some order and shape."""

  def __init__(self, graph, handle, dtype):
    self.graph, self._handle, self.dtype = graph, handle, np.dtype(dtype)

  def _view(self, name, *args):
    return View(self.graph, _made(name, self._handle, *args), self.dtype)

  @property
  def shape(self) -> tuple[int, ...]:
    """Elements of each dimension."""
    lib = _load()
    dims = lib.atoll_tiles_dims(self._handle)
    return tuple(dims[i] for i in range(lib.atoll_tiles_rank(self._handle)))

  def slice(self, dim: int, begin: int, end: int) -> "View":
    """Elements begin .. end - 1 of dimension `dim`, without a copy; the rank stays."""
    return self._view("atoll_tiles_slice", ctypes.c_uint32(dim), ctypes.c_int64(begin), ctypes.c_int64(end))

  def __getitem__(self, i: int) -> "View":
    row = self.slice(0, i, i + 1)
    return row.reshape(row.shape[1:])

  def reshape(self, shape: Iterable[int]) -> "View":
    """The same elements in row-major order, in another shape with as many of them; no copy."""
    return self._view("atoll_tiles_reshape", *_ints(shape))

  def flatten(self) -> "View":
    """All elements in row-major order, as one dimension; no copy."""
    return self.reshape((int(np.prod(self.shape, dtype=np.int64)),))

  def dimshuffle(self, order: Iterable[int]) -> "View":
    """Dimensions in another order: dimension order[i] becomes dimension i; no copy."""
    return self._view("atoll_tiles_dimshuffle", *_ints(order))

  def reverse(self, dim: int) -> "View":
    """Dimension `dim` backwards; no copy."""
    return self._view("atoll_tiles_reverse", ctypes.c_uint32(dim))

  def subsample(self, dim: int, step: int) -> "View":
    """Every step-th element of dimension `dim`, from the first on; no copy."""
    return self._view("atoll_tiles_subsample", ctypes.c_uint32(dim), ctypes.c_int64(step))

  def broadcast(self, dim: int, n: int) -> "View":
    """Dimension dim n times after itself."""
    return self._view("atoll_tiles_broadcast", ctypes.c_uint32(dim), ctypes.c_int64(n))

  def clone(self, name: str) -> "View":
    """New variables with this view's structure and mapping."""
    return self._view("atoll_tiles_clone", name.encode())

  def map(self, tile: int) -> "View":
    """Puts all of its elements on one tile; returns the view.

    TilesError names tensor, range and both tiles where an element lives elsewhere already (unless
    the graph's policy is another).
    """
    _call("atoll_tiles_map", self._handle, ctypes.c_uint32(tile))
    return self

  def map_linear(self, grain: int = 0, min_bytes: int = 0) -> "View":
    """Spreads its elements over all tiles evenly, in row-major order; returns the view.

    grain: elements that stay together (0: as many as a vector has). min_bytes: what a tile gets at
    least (0: 128), so a small view is on fewer tiles.
    """
    _call("atoll_tiles_map_linear", self._handle, ctypes.c_int64(grain), ctypes.c_int64(min_bytes))
    return self

  def map_like(self, other: "View") -> "View":
    """Puts each element where `other` has the one of the same position; returns the view."""
    _call("atoll_tiles_map_like", other._handle, self._handle)
    return self

  def mapping(self) -> list[tuple[int, int, int]]:
    """[(begin, end, tile)], positions of this view; NOWHERE where unmapped."""
    return mapping([self])

  def check(self) -> "View":
    """Raises where an element has no home."""
    _call("atoll_tiles_check", self._handle)
    return self

  def regions(self, tile: int, workers: int = 0, grain: int = 1, most: int = 0) -> list[tuple[int, int, int]]:
    """[(begin, end, group)]: what lies on a tile, in its memory's order; a group is one stretch
    there or, with `workers`, what one of them gets: a multiple of `grain` elements, `most` at most."""
    ptr, n = ctypes.POINTER(_Region)(), ctypes.c_size_t()
    _call("atoll_tiles_regions", self._handle, ctypes.c_uint32(tile), ctypes.c_uint32(workers), ctypes.c_int64(grain),
          ctypes.c_int64(most), ctypes.byref(ptr), ctypes.byref(n))
    return _taken(ptr, n, lambda r: (r.begin, r.end, r.group))

  def flag(self, *, input: bool = False, output: bool = False, interleaved: bool = False) -> "View":
    """Of a whole variable: has a value before the program, is read after it, lies in interleaved memory."""
    _call("atoll_tiles_flag", self._handle, ctypes.c_uint32(1 * input | 2 * output | 4 * interleaved))
    return self

  def write(self, array: Any) -> "View":
    """Sets its elements to `array`, broadcast and converted as need be; returns the view."""
    a = np.ascontiguousarray(np.broadcast_to(array, self.shape), dtype=self.dtype)
    _call("atoll_tiles_write", self._handle, a.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(a.nbytes))
    return self

  def read(self) -> np.ndarray:
    """A copy of its elements as a NumPy array of its shape and dtype."""
    a = np.empty(self.shape, self.dtype)
    _call("atoll_tiles_read", self._handle, a.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(a.nbytes))
    return a


def concat(views: Sequence[View], dim: int = 0) -> View:
  """Views of one graph, one after another along dimension `dim`, as one view without a copy."""
  handles, n = _handles(views)
  return View(views[0].graph, _made("atoll_tiles_concat", handles, n, ctypes.c_uint32(dim)), views[0].dtype)


def mapping(views: Sequence[View]) -> list[tuple[int, int, int]]:
  """[(begin, end, tile)] of several views, positions counted through all of them."""
  ptr, n = ctypes.POINTER(_Interval)(), ctypes.c_size_t()
  handles, count = _handles(views)
  _call("atoll_tiles_mapping", handles, count, ctypes.byref(ptr), ctypes.byref(n))
  return _taken(ptr, n, lambda i: (i.begin, i.end, i.tile))


def reorder_to_simplify(views: Sequence[View]) -> list[View]:
  """Flat views of the same elements, all reordered alike, so that what lies together in the first one's
  variables comes together. Only for ops that do not care for order."""
  handles, n = _handles(views)
  out = (ctypes.c_void_p * max(len(views), 1))()
  _call("atoll_tiles_reorder", handles, n, out)
  return [View(v.graph, ctypes.c_void_p(h), v.dtype) for v, h in zip(views, out)]


class ComputeSet:
  """Vertices that run at once."""

  def __init__(self, graph, handle):
    self.graph, self._handle = graph, handle

  def vertex(self, codelet: str, tile: int, fields: Sequence[View], param: float = 0.0) -> None:
    """Adds one vertex.

    Args:
      codelet: by name, such as "add" (src/tiles/codelets.def has those that there are).
      tile: its number; what of `fields` lives on other tiles is sent there.
      fields: the views that the codelet works on: its operands, then its result.
      param: the codelet's number, where it has one.
    """
    handles, n = _handles(fields)
    _call("atoll_tiles_vertex", self._handle, codelet.encode(), ctypes.c_uint32(tile), handles, n, ctypes.c_double(param))

  def elementwise(self, codelet: str, *operands: View, out: View | None = None, name: str | None = None,
                  param: float = 0.0) -> View:
    """Adds vertices wherever `out` lives; without `out` the planner makes one, `name`d. Returns it.

    operands: views of as many elements as `out`. param: the codelet's number, where it has one.
    """
    handles, n = _handles(operands)
    made = ctypes.c_void_p(out._handle.value if out else None)
    _call("atoll_tiles_elementwise", self._handle, codelet.encode(), handles, n, ctypes.c_double(param),
          (name or codelet).encode(), ctypes.byref(made))
    return out or View(self.graph, made, operands[0].dtype)


class Graph:
  """Variables, compute sets and programs on one machine. One thread uses a graph at a time.

  Args:
    machine: "mk2", "mk1", or the path of a machine's description.
    policy: when an element that has a home is mapped to another tile: "refuse" raises TilesError,
      "duplicate" keeps a copy there too, "replace" moves its home.
  """

  def __init__(self, machine: str = "mk2", policy: str = "refuse"):
    self._handle = None
    self._handle = _made("atoll_tiles_open", machine.encode())
    _load().atoll_tiles_policy(self._handle, POLICIES[policy])

  def __del__(self):
    if getattr(self, "_handle", None) and _lib:  # not at the end of the interpreter
      _lib.atoll_tiles_close(self._handle)

  @property
  def num_tiles(self) -> int:
    """Tiles of the machine."""
    return _load().atoll_tiles_num_tiles(self._handle)

  def variable(self, name: str, shape: Iterable[int], dtype: Any = np.float32) -> View:
    """A new variable, as a view of all of it; mapping the view or parts of it says where it lives.

    name: for reports and messages. dtype: NumPy's; TilesError where there is no such element type.
    """
    d = np.dtype(dtype)
    if d.str[1:] not in _DTYPES:
      raise TilesError(f"no element type for {d}")
    return View(self, _made("atoll_tiles_variable", self._handle, name.encode(), _DTYPES[d.str[1:]].encode(), *_ints(shape)), d)

  def layout(self, name: str, form: str, shape: Iterable[int], dtype: Any = np.float32) -> tuple[View, View]:
    """A variable in the in-tile layout "NC4HW4" or "NHC4W4", channels padded: its logical [N,H,W,C] view, and all of it."""
    d, form = np.dtype(dtype), ["NC4HW4", "NHC4W4"].index(form)
    dims, _ = _ints(shape)
    out, padded = ctypes.c_void_p(), ctypes.c_void_p()
    _call("atoll_tiles_layout", self._handle, name.encode(), _DTYPES[d.str[1:]].encode(), form, dims, ctypes.byref(out),
          ctypes.byref(padded))
    return View(self, out, d), View(self, padded, d)

  def compute_set(self, name: str) -> ComputeSet:
    """A new, empty compute set; the name is for reports."""
    return ComputeSet(self, _made("atoll_tiles_set", self._handle, name.encode()))

  def tile_bytes(self) -> np.ndarray:
    """Bytes of variables on each tile, copies included: int64[num_tiles]."""
    out = np.zeros(self.num_tiles, np.int64)
    _load().atoll_tiles_tile_bytes(self._handle, out.ctypes.data_as(ctypes.c_void_p))
    return out

  def execute(self, compute_set: ComputeSet) -> Any:
    """A program that runs the vertices of a compute set."""
    return _made("atoll_tiles_execute", compute_set._handle)

  def copy(self, src: View, dst: View) -> Any:
    """A program that copies the elements of view `src` to those of `dst`, from tile to tile."""
    return _made("atoll_tiles_copy", src._handle, dst._handle)

  def repeat(self, times: int, program: Any) -> Any:
    """A program that runs `program` (or a compute set) `times` times."""
    return _made("atoll_tiles_repeat", ctypes.c_int64(times), self._program(program))

  def sequence(self, *programs: Any) -> Any:
    """A program that runs programs (or compute sets) one after another."""
    out = _made("atoll_tiles_sequence", self._handle)
    for p in programs:
      _call("atoll_tiles_add", out, self._program(p))
    return out

  def branch(self, pred: View, yes: Any, no: Any = None) -> Any:
    """`yes` where the one element of `pred` is not zero, else `no`."""
    return _made("atoll_tiles_branch", pred._handle, self._program(yes), self._program(no) if no else None)

  def exchange(self, program: Any) -> str:
    """Which tile sends which elements to whom, and when: a message a line."""
    text = ctypes.c_void_p()
    _call("atoll_tiles_exchange", self._program(program), ctypes.byref(text))
    out = ctypes.string_at(text).decode()
    _load().atoll_tiles_free(text)
    return out

  def _program(self, p):
    return self.execute(p) if isinstance(p, ComputeSet) else p

  def run(self, program: Any) -> int:
    """Computes the values of a program or compute set, for `View.read`; returns the cycles."""
    cycles = ctypes.c_int64()
    _call("atoll_tiles_run", self._handle, self._program(program), ctypes.byref(cycles))
    return cycles.value

  def _report(self, program, form, lenient, title):
    text = ctypes.c_void_p()
    _call("atoll_tiles_report", self._handle, self._program(program), ctypes.c_bool(lenient), form, title.encode(),
          ctypes.byref(text))
    out = ctypes.string_at(text).decode()
    _load().atoll_tiles_free(text)
    return out

  def report(self, program: Any, lenient: bool = False) -> dict:
    """Compiles a program, without running it: a dict of cycles, steps, memory, tensors, advice, ...

    TilesError where it does not fit the tiles' memory; with `lenient` that is reported, too.
    """
    return json.loads(self._report(program, 1, lenient, ""))

  def text(self, program: Any, lenient: bool = False) -> str:
    """What `report` says, as text for people."""
    return self._report(program, 0, lenient, "")

  def html(self, program: Any, path: str | os.PathLike | None = None, title: str = "Tiles", lenient: bool = False) -> str:
    """What `report` says, as an HTML page with that title; also written to `path`."""
    page = self._report(program, 2, lenient, title)
    if path:
      Path(path).write_text(page)
    return page


class Profile(Report):
  """A JAX function on tiles: `data` is what `atoll profile --tiles --json` says."""

  def __init__(self, program, target, mapping, extra):
    self._args = (program, target, mapping, extra)
    super().__init__(json.loads(_profile(*self._args, ["--json"])))

  def __repr__(self):
    return _profile(*self._args, [])

  def html(self, path: str | os.PathLike | None = None) -> str:
    """The page for people; also written to `path`."""
    with tempfile.TemporaryDirectory() as folder:
      out = Path(path) if path else Path(folder) / "page.html"
      _profile(*self._args, [f"--html={out}"])
      return out.read_text()


def _profile(program, target, mapping, extra, more):
  return run_command(["profile", "--tiles", f"--target={target}", f"--mapping={mapping}", *extra, *more], program,
                     error=TilesError)


def profile(fn: Any, *args: Any, target: str = "mk2", mapping: str = "planned", lenient: bool = False,
            **kwargs: Any) -> Profile:
  """What `fn(*args, **kwargs)` takes on a machine of tiles; nothing runs.

  Args:
    fn: a jitted or plain function, a lowered one, or the path of a program.
    *args: arrays or `jax.ShapeDtypeStruct`s.
    target: the machine.
    mapping: "planned", or "linear" for the baseline.
    lenient: report a program that does not fit, too.
  """
  return Profile(program_of(fn, args, kwargs), target, mapping, ["--lenient"] if lenient else [])


def run(fn: Any, *args: Any, target: str = "mk2", mapping: str = "planned", **kwargs: Any) -> tuple[Any, Profile]:
  """(values, profile): `fn(*args, **kwargs)` computed by the tile program, vertex by vertex, from what each tile has
  or receives. Values come as NumPy arrays in fn's structure."""
  import jax
  program = program_of(jax.jit(fn, keep_unused=True), args, kwargs)
  shape = jax.eval_shape(fn, *args, **kwargs)
  leaves, tree = jax.tree.flatten(shape)
  with tempfile.TemporaryDirectory() as folder:
    given, made = Path(folder) / "in.npz", Path(folder) / "out.npz"
    np.savez(given, **{f"a{i:05}": np.asarray(x) for i, x in enumerate(jax.tree.leaves((args, kwargs)))})
    extra = [f"--run={given}", f"--out={made}"]
    p = Profile(program, target, mapping, extra)
    with np.load(made) as z:
      values = [z[k].view(x.dtype).reshape(x.shape) for k, x in zip(z.files, leaves)]
  p._args = (program, target, mapping, [])
  return jax.tree.unflatten(tree, values), p
