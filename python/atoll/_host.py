"""Functions of the client in programs: `@atoll.host_function`.

An input pipeline, a metric, whatever is plain Python over NumPy arrays. In a program
(`atoll.program`) a call of one is a node: every run of the program calls it again, in a
thread, while hosts do what does not need its results. They are announced with the run's
one message and written when they are there; its error is theirs.
"""

import concurrent.futures
import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any, overload

_UNKNOWN = 2  # at_code
_BEFORE = -2**63
_recording = threading.local()


def recording():
  """The program that this thread traces, or None."""
  return getattr(_recording, "now", None)


class HostFunction:
  """A function of the client that programs may call: see host_function."""

  def __init__(self, function, results):
    functools.update_wrapper(self, function)
    self._function, self.results = function, results
    # Its calls come in order, beside those of others.
    self.thread = concurrent.futures.ThreadPoolExecutor(1, "atoll-host-" + self.__name__)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    import jax

    now = recording()
    if now:
      return now.call(self, args, kwargs)
    leaves, tree = jax.tree.flatten((args, kwargs))
    return _place(self, self.evaluate(tree, leaves), leaves)

  def evaluate(self, tree, leaves):
    """Its results as NumPy arrays, of the shapes that it has said."""
    import jax
    import numpy as np

    leaves = [np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    args, kwargs = jax.tree.unflatten(tree, leaves)
    out = self._function(*args, **kwargs)
    if self.results is None:
      return jax.tree.map(np.asarray, out)
    if jax.tree.structure(out) != jax.tree.structure(self.results):
      raise TypeError(f"{self.__name__} returns {jax.tree.structure(out)}, not {jax.tree.structure(self.results)}")

    def check(value, kind):
      value = np.asarray(value)
      if value.shape != tuple(kind.shape):
        raise TypeError(f"{self.__name__} returns an array of shape {value.shape}, not {tuple(kind.shape)}")
      return np.asarray(value, kind.dtype)

    return jax.tree.map(check, out, self.results)

  def zeros(self):
    """Zeros in the place of its results, as NumPy arrays: `result_shape_dtypes` has to be known."""
    import jax
    import numpy as np

    return jax.tree.map(lambda kind: np.zeros(kind.shape, kind.dtype), self.results)


@overload
def host_function(result_shape_dtypes: Callable) -> HostFunction: ...
@overload
def host_function(result_shape_dtypes: Any = None) -> Callable[[Callable], HostFunction]: ...
def host_function(result_shape_dtypes=None):
  """Makes a function over NumPy arrays one that programs may call.

  result_shape_dtypes: what it returns, a tree of jax.ShapeDtypeStruct as jax.pure_callback
  takes it. With a `sharding` there it goes to those devices, else to where its first array is,
  or to the default device. Without result_shape_dtypes shapes may differ from call to call.
  Of arguments of the program it is called first, and the rest is a graph for the shapes that it
  returns; where it takes what the program makes, all is done one after another.
  """
  if callable(result_shape_dtypes):
    return HostFunction(result_shape_dtypes, None)
  return lambda function: HostFunction(function, result_shape_dtypes)


def _beside(leaves):
  """Where results go that do not say."""
  import jax

  for leaf in leaves:
    if isinstance(leaf, jax.Array):
      s = leaf.sharding
      return jax.sharding.NamedSharding(s.mesh, jax.sharding.PartitionSpec()) if isinstance(
          s, jax.sharding.NamedSharding) else s
  return None


def _place(function, out, leaves):
  import jax

  beside = _beside(leaves)
  if function.results is None:
    return jax.tree.map(lambda v: jax.device_put(v, beside), out)
  return jax.tree.map(lambda v, kind: jax.device_put(v, kind.sharding or beside), out, function.results)


class Node:
  """A call in a program: where its arguments come from, and what it makes."""

  def __init__(self, function, tree, leaves, shardings):
    self.function, self.tree, self.leaves, self.shardings = function, tree, leaves, shardings


class Ahead(Exception):
  """A trace has met a function whose results have shapes of their own: it begins once more, with these."""

  def __init__(self, node, values):
    super().__init__()
    self.node, self.values = node, values


class Early:
  """A program that calls such functions: they run before its graph, of which there is one for their shapes."""

  def __init__(self, nodes):
    self.nodes, self.graphs = nodes, {}

  def evaluate(self, arrays, hosts):
    """A tree of arrays for each, and what chooses the graph."""
    import jax

    found = {"argument": arrays, "host": hosts}
    ahead = [node.function.evaluate(node.tree, [found[kind][at] if kind in found else at for kind, at in node.leaves])
             for node in self.nodes]
    ahead = jax.tree.map(_settled, ahead)
    return ahead, shapes(ahead)


def shapes(ahead):
  """Structure, shapes and dtypes of what early functions have returned: they choose a graph."""
  import jax

  leaves, tree = jax.tree.flatten(ahead)
  return tree, tuple((v.shape, v.dtype) for v in leaves)


def _settled(value):
  """As JAX will have it, so that it sends these bytes and no copy of them."""
  import jax
  import numpy as np

  value = np.asarray(value)
  return np.asarray(value, jax.dtypes.canonicalize_dtype(value.dtype), order="C")


class Recording:
  """The calls of one trace."""

  def __init__(self, calls, trace, arrays, hosts, lowers, ahead):
    self._calls, self._trace, self._arrays, self._hosts, self._lowers = calls, trace, arrays, hosts, lowers
    self._num_arrays, self._ahead = len(arrays), list(ahead)
    self.nodes, self.watched, self.late, self.refused = [], [], {}, None

  def __enter__(self):
    _recording.now = self
    return self

  def __exit__(self, *exception):
    _recording.now = None

  def find(self, arrays):
    """trace_find's numbers."""
    from atoll import _program

    places, counts = _program._buffers(arrays)
    what, why = (ctypes.c_int64 * max(len(arrays), 1))(), ctypes.create_string_buffer(_program._WHY)
    _program._check(self._calls.trace_find(self._trace, places, counts, len(arrays), what, why, _program._WHY), why)
    return list(what)[:len(arrays)]

  def own(self, array):
    """The array, or a copy of what has no place after a run: bytes of the host, results of host functions."""
    import jax.numpy as jnp

    number, = self.find([array])
    return jnp.copy(array) if _BEFORE < number < -self._num_arrays else array

  def call(self, function, args, kwargs):
    """The results of a call of `function` while a program is traced: a node of its graph.

    The function is called now, outside the trace (when lowering, zeros stand for results of known
    shapes). Raises Ahead where its results have shapes of their own and its arguments are the
    program's: the trace begins once more.
    """
    import jax

    leaves, tree = jax.tree.flatten((args, kwargs))
    if function.results is None and not self.refused:
      if self._ahead:  # the bytes are the trace's
        return _place(function, self._ahead.pop(0), leaves)
      sources = None if self._lowers else self._before_it_runs(leaves)
      if any(array.is_deleted() for array in self._arrays):
        sources = None  # it cannot begin once more
      if sources is None:
        self.refused = f"{function.__name__} makes results of shapes that are not known before"
      else:
        with self.paused():
          raise Ahead(Node(function, tree, sources, None), jax.tree.map(_settled, function.evaluate(tree, leaves)))
    with self.paused():
      known = self._lowers and function.results is not None
      placed = _place(function, function.zeros() if known else function.evaluate(tree, leaves), leaves)
    if not self.refused:
      self._note(function, tree, leaves, jax.tree.leaves(placed))
    return placed

  @contextlib.contextmanager
  def paused(self):
    """While it lasts, what this thread launches is no part of the trace."""
    self._calls.trace_pause(self._trace, True)
    _recording.now = None
    try:
      yield
    finally:
      _recording.now = self
      self._calls.trace_pause(self._trace, False)

  def _before_it_runs(self, leaves):
    """Where these are before anything of the program has run; None: something is not."""
    import jax
    import numpy as np

    from atoll import _program

    out = []
    for leaf in leaves:
      kind, at = "constant", leaf
      if isinstance(leaf, jax.Array):
        if _program._is_foreign(leaf):
          return None
        number, = self.find([leaf])
        kind, at = "argument", -1 - number
        if not 0 <= at < self._num_arrays:
          return None
      elif isinstance(leaf, np.ndarray):
        kind, at = next((("host", i) for i, host in enumerate(self._hosts) if leaf is host), (kind, at))
        if kind == "constant" and any(np.may_share_memory(leaf, host) for host in self._hosts):
          return None
      out.append((kind, at))
    return out

  def _source(self, leaf):
    """Where a run finds what `leaf` is now."""
    import jax
    import numpy as np

    from atoll import _program

    if isinstance(leaf, jax.Array) and not _program._is_foreign(leaf):
      number, = self.find([leaf])
      if -1 - number not in self.late:
        leaf = self.own(leaf)
      self.watched.append(leaf)
      return "watched", len(self.watched) - 1
    if isinstance(leaf, np.ndarray):
      for i, host in enumerate(self._hosts):
        if leaf is host:
          return "host", i
        if np.may_share_memory(leaf, host):
          self.refused = "a host function takes a part of an argument of the host"
    return "constant", leaf

  def _note(self, function, tree, leaves, placed):
    from atoll import _program

    before = len(self.watched)
    sources = [self._source(leaf) for leaf in leaves]
    places, counts = _program._buffers(placed)
    first, why = ctypes.c_uint32(), ctypes.create_string_buffer(_program._WHY)
    _program._check(self._calls.trace_host(self._trace, function.__name__.encode(), len(self.watched) - before, places,
                                           counts, len(placed), ctypes.byref(first), why, _program._WHY), why)
    for i in range(len(placed)):
      self.late[first.value + i] = len(self.nodes), i
    self.nodes.append(Node(function, tree, sources, [p.sharding for p in placed]))


class _Late:
  """Arrays of one run that so many calls are still to write."""

  def __init__(self, calls, handle, left):
    self.calls, self.handle, self._left, self._lock = calls, handle, left, threading.Lock()

  def done(self):
    with self._lock:
      self._left -= 1
      if self._left:
        return
    self.calls.late_free(self.handle)


def _write(late, number, value, sharding):
  import numpy as np

  from atoll import _program

  places = sharding.devices_indices_map(value.shape)
  parts = [np.ascontiguousarray(value[places[d]]) for d in sharding._device_assignment]
  why = ctypes.create_string_buffer(_program._WHY)
  _program._check(late.calls.late_define(late.handle, number, _program._host_bytes(parts), why, _program._WHY), why)


def _work(node, late, first, leaves):
  import jax

  try:
    leaves = [leaf.get() if isinstance(leaf, _Later) else leaf for leaf in leaves]
    values = jax.tree.leaves(node.function.evaluate(node.tree, leaves))
  except BaseException as e:
    text = str(e) if isinstance(e, _Failed) else f"{node.function.__name__}: {type(e).__name__}: {e}"
    for i in range(len(node.shardings)):
      late.calls.late_fail(late.handle, first + i, _UNKNOWN, text.encode())
    late.done()
    raise _Failed(text) from e
  for i, (value, sharding) in enumerate(zip(values, node.shardings)):
    _write(late, first + i, value, sharding)
  late.done()
  return values


class _Later:
  """A result of another call."""

  def __init__(self, call, number):
    self._call, self._number = call, number

  def get(self):
    return self._call.result()[self._number]


class _Failed(RuntimeError):
  """What a host function takes comes of one that has failed."""


def start(calls, handle, nodes, watched, hosts):
  """Calls the functions of a run; watched: an array, or (node, result), for each that is read."""
  late, begun, first = _Late(calls, handle, len(nodes)), [], 0
  for node in nodes:
    leaves = []
    for kind, at in node.leaves:
      value = at if kind == "constant" else hosts[at] if kind == "host" else watched[at]
      if isinstance(value, tuple) and kind == "watched":
        other, i = value
        value = _Later(begun[other], i)
      leaves.append(value)
    begun.append(node.function.thread.submit(_work, node, late, first, leaves))
    first += len(node.shardings)
