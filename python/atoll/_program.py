"""Programs of several computations, as one message to the pod: `@atoll.program`.

The first call of a traced function runs it, and keeps what it asks of the pod (its
computations, copies between devices) as a graph. A later call with arguments of the
same shapes, types and places runs the graph: the client sends one message, and hosts
do its steps back to back. Where there is no pod, or where a function does what no graph
can keep (it looks at values, or has host callbacks), it is called as it is. Functions of
the client (`atoll.host_function`) are nodes of it.
"""

import collections
import concurrent.futures
import ctypes
import functools
import os
import re
import sys
import threading
import weakref
import zlib
from collections.abc import Callable
from typing import Any, overload

from atoll import _host, _own

_VOID = ctypes.c_void_p
_PLACES = ctypes.POINTER(_VOID)
_U32S = ctypes.POINTER(ctypes.c_uint32)
_I64S = ctypes.POINTER(ctypes.c_int64)
_WHY = 2048
_BEFORE = -2**63


class _Bytes(ctypes.Structure):
  _fields_ = [("ptr", _VOID), ("len", ctypes.c_size_t)]


class Calls(ctypes.Structure):
  """at_pjrt_graph_calls."""
  _fields_ = [
      ("trace_begin", ctypes.CFUNCTYPE(ctypes.c_int, _PLACES, _U32S, ctypes.c_uint32, ctypes.POINTER(_Bytes),
                                       ctypes.c_uint32, ctypes.POINTER(_VOID), ctypes.c_char_p, ctypes.c_size_t)),
      ("trace_pause", ctypes.CFUNCTYPE(None, _VOID, ctypes.c_bool)),
      ("trace_find", ctypes.CFUNCTYPE(ctypes.c_int, _VOID, _PLACES, _U32S, ctypes.c_uint32, _I64S, ctypes.c_char_p,
                                      ctypes.c_size_t)),
      ("trace_host", ctypes.CFUNCTYPE(ctypes.c_int, _VOID, ctypes.c_char_p, ctypes.c_uint32, _PLACES, _U32S,
                                      ctypes.c_uint32, _U32S, ctypes.c_char_p, ctypes.c_size_t)),
      ("trace_end", ctypes.CFUNCTYPE(ctypes.c_int, _VOID, _PLACES, _U32S, ctypes.c_uint32, ctypes.c_bool, _I64S,
                                     ctypes.POINTER(_VOID), ctypes.c_char_p, ctypes.c_size_t)),
      ("trace_abandon", ctypes.CFUNCTYPE(None, _VOID)),
      ("graph_run", ctypes.CFUNCTYPE(ctypes.c_int, _VOID, _PLACES, _U32S, ctypes.c_uint32, ctypes.POINTER(_Bytes),
                                     ctypes.POINTER(_VOID), ctypes.c_char_p, ctypes.c_size_t)),
      ("graph_relower", ctypes.CFUNCTYPE(ctypes.c_int, _VOID, ctypes.c_char_p, ctypes.c_size_t)),
      ("graph_adopt", ctypes.CFUNCTYPE(None, _VOID, _U32S, ctypes.c_uint32)),
      ("graph_print", ctypes.CFUNCTYPE(ctypes.c_size_t, _VOID, ctypes.c_char_p, ctypes.c_size_t)),
      ("graph_free", ctypes.CFUNCTYPE(None, _VOID)),
      ("late_define", ctypes.CFUNCTYPE(ctypes.c_int, _VOID, ctypes.c_uint32, ctypes.POINTER(_Bytes), ctypes.c_char_p,
                                       ctypes.c_size_t)),
      ("late_fail", ctypes.CFUNCTYPE(None, _VOID, ctypes.c_uint32, ctypes.c_int, ctypes.c_char_p)),
      ("late_free", ctypes.CFUNCTYPE(None, _VOID)),
      ("plan_make", ctypes.CFUNCTYPE(ctypes.c_int, _PLACES, ctypes.c_uint32, _I64S, _VOID, ctypes.c_uint32,
                                     ctypes.POINTER(_VOID), ctypes.c_char_p, ctypes.c_size_t)),
      ("plan_run", ctypes.CFUNCTYPE(ctypes.c_int, _VOID, _PLACES, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)),
      ("plan_wire_bytes", ctypes.CFUNCTYPE(ctypes.c_uint64, _VOID)),
      ("identify", ctypes.CFUNCTYPE(None, ctypes.c_bool)),
  ]


class _Refused(Exception):
  """Says why something cannot be traced; the code is at_code's."""

  def __init__(self, code, text):
    super().__init__(text)
    self.code = code


@functools.cache
def _calls() -> Calls:
  return ctypes.cast(_own.extension().graphs, ctypes.POINTER(Calls)).contents


def _check(code, why):
  if code:
    raise _Refused(code, why.value.decode(errors="replace"))


def _buffers(arrays):
  """The library's own buffers of arrays, and how many each array has; RuntimeError: one is gone."""
  calls, places, counts = _calls(), [], []
  calls.identify(True)
  try:
    for array in arrays:
      parts = getattr(array, "_base_array", array)._arrays  # a typed key has its data below it
      if parts is None:
        raise RuntimeError(f"an array of shape {array.shape} has been deleted or donated")
      counts.append(len(parts))
      places.extend(part.unsafe_buffer_pointer() for part in parts)
  finally:
    calls.identify(False)
  return (_VOID * max(len(places), 1))(*places), (ctypes.c_uint32 * max(len(counts), 1))(*counts)


def _is_foreign(array):
  return array.sharding._device_assignment[0].platform not in ("tpu", "atoll", "proxy")


def _host_bytes(hosts):
  return (_Bytes * max(len(hosts), 1))(*[_Bytes(h.ctypes.data, h.nbytes) for h in hosts])


# The library looks at a thread's last graph once more when the next one runs: it stays until then.
_last = threading.local()


class _Graph:
  """A kept program for arguments of one kind."""

  def __init__(self, handle, tree, results, shells, nodes, watched):
    self.handle, self.tree, self.results, self.shells = handle, tree, results, shells
    self.nodes, self.watched = nodes, watched
    weakref.finalize(self, _calls().graph_free, handle).atexit = False

  def __str__(self):
    n = _calls().graph_print(self.handle, None, 0)
    text = ctypes.create_string_buffer(n + 1)
    _calls().graph_print(self.handle, text, n + 1)
    return text.value.decode()

  def relower(self):
    why = ctypes.create_string_buffer(_WHY)
    _check(_calls().graph_relower(self.handle, why, _WHY), why)

  def run(self, arrays, hosts):
    import jax

    calls, why = _calls(), ctypes.create_string_buffer(_WHY)
    places, counts = _buffers(arrays)
    late = _VOID()
    _check(calls.graph_run(self.handle, places, counts, len(arrays), _host_bytes(hosts), ctypes.byref(late), why, _WHY),
           why)
    _last.graph = self
    made = {}
    for shell, numbers, wanted in self.shells:
      calls.graph_adopt(self.handle, numbers, len(numbers))
      for number, array in zip(wanted, shell()):
        made[number] = array
    def found(kinds):
      return [made[r] if kind == "made" else arrays[r] if kind == "argument" else r for kind, r in kinds]

    leaves = found(self.results)
    if self.nodes:
      _host.start(calls, late, self.nodes, found(self.watched), hosts)
    return jax.tree.unflatten(self.tree, leaves)


def _key_zeros(shape, impl):
  import jax

  return jax.random.wrap_key_data(jax.numpy.zeros((*shape, *impl.key_shape), "uint32"), impl=impl)


def _shells(arrays, what):
  """Computations whose results the library hands out in the place of their own: one for
  each set of devices, as JAX makes arrays of a computation's devices only."""
  import jax
  import jax.numpy as jnp

  groups = collections.OrderedDict()
  for array, number in zip(arrays, what):
    if number >= 0:
      devices = tuple(array.sharding._device_assignment)
      groups.setdefault((devices, array.sharding.memory_kind), {})[number] = array
  shells = []
  for members in groups.values():
    numbers, kinds = list(members), [(a.shape, a.dtype, a.sharding) for a in members.values()]

    def zeros(kinds=kinds):
      return tuple(_key_zeros(shape, dtype._impl) if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
                   else jnp.zeros(shape, dtype) for shape, dtype, _ in kinds)

    shell = jax.jit(zeros, out_shardings=tuple(s for *_, s in kinds))
    jax.block_until_ready(shell())
    shells.append((shell, (ctypes.c_uint32 * len(numbers))(*numbers), numbers))
  return shells


def _split(leaves):
  """Arrays of devices, arrays of the host, and what decides whether a graph fits."""
  import jax
  import numpy as np

  arrays, hosts, key, leaves = [], [], [], list(leaves)
  for i, leaf in enumerate(leaves):
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
      arrays.append(leaf)
      key.append((leaf.shape, leaf.dtype, leaf.sharding, leaf.aval.weak_type))
    elif isinstance(leaf, np.ndarray):
      # As JAX will have it, so that it sends these bytes and no copy of them.
      leaf = leaves[i] = np.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype), order="C")
      hosts.append(leaf)
      key.append((leaf.shape, leaf.dtype))
    else:
      key.append(leaf)
  return arrays, hosts, tuple(key), leaves


def _stand_in(leaf):
  """What is traced in the place of an argument whose values do not matter: it may be donated."""
  import jax
  import numpy as np

  if isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is None:
    return np.zeros(leaf.shape, leaf.dtype)
  if not isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
    return leaf

  def zeros():
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      return _key_zeros(leaf.shape, leaf.dtype._impl)
    return jax.lax.full(leaf.shape, 0, leaf.dtype)

  return jax.jit(zeros, out_shardings=leaf.sharding)()


class Lowered:
  """A program for arguments of one kind, ready to run."""

  def __init__(self, text):
    self._text = text

  def as_text(self) -> str:
    """Its graph: a node for each argument, computation, and for what is returned."""
    return self._text


_compiling = concurrent.futures.ThreadPoolExecutor(2, "atoll-compile")


class Program:
  """A traced function; `graphs` are those that it has kept, to be printed."""

  def __init__(self, function: Callable, passes: bool = True):
    functools.update_wrapper(self, function)
    self._function, self._passes, self._graphs, self._told = function, passes, {}, False
    self._lock = threading.RLock()

  @property
  def graphs(self) -> list:
    """The graphs kept so far, one for each kind of arguments; `str(graph)` is one for people."""
    return [x for g in list(self._graphs.values()) if g
            for x in (g.graphs.values() if isinstance(g, _host.Early) else [g])]

  def __get__(self, instance, owner=None):
    return self if instance is None else functools.partial(self, instance)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    import jax

    leaves, tree = jax.tree.flatten((args, kwargs))
    if _host.recording() or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):  # a part of that
      return self._function(*args, **kwargs)
    arrays, hosts, key, leaves = _split(leaves)
    try:
      graph = self._graphs.get((tree, key))
    except TypeError:  # an argument that cannot be compared
      return self._function(*args, **kwargs)
    if graph is None:  # also while another thread compiles it
      return self._trace((tree, key), arrays, hosts, leaves)
    return self._run((tree, key), graph, arrays, hosts, leaves)

  def lower(self, *args: Any, **kwargs: Any) -> Lowered:
    """The program for arguments like these, which may be jax.ShapeDtypeStruct; everything of it is compiled.

    None of them is read or donated: the function is called once with zeros in their place.
    """
    import jax

    leaves, tree = jax.tree.flatten((args, kwargs))
    if not all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
      graph = self._graphs.get((tree, _split(leaves)[2]))
      if graph:
        return self._lowered(graph)
    arrays, hosts, key, leaves = _split([_stand_in(leaf) for leaf in leaves])
    with self._lock:
      if not self._graphs.get((tree, key)):
        self._trace((tree, key), arrays, hosts, leaves, lowers=True)
      graph = self._graphs[tree, key]
    if not graph:
      raise ValueError(f"{self.__name__} cannot be lowered: {self._told or 'there is no pod (ATOLL_POD)'}")
    return self._lowered(graph)

  def _lowered(self, graph):
    if isinstance(graph, _host.Early):
      raise ValueError(f"{self.__name__} cannot be lowered: it has a graph for each shape of what its functions return\n"
                       "hint: `graphs` are those that there are")
    return Lowered(str(graph))

  def compile_in_background(self, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Lowered]:
    """Starts `lower`; a future of its result. A call meanwhile waits for it."""
    return _compiling.submit(self.lower, *args, **kwargs)

  def _run(self, key, graph, arrays, hosts, leaves):
    if isinstance(graph, _host.Early):
      ahead, shapes = graph.evaluate(arrays, hosts)
      early, graph = graph, graph.graphs.get(shapes)
      if graph is None:
        return self._trace(key, arrays, hosts, leaves, ahead=ahead, early=early)
      hosts = hosts + _leaves(ahead)
    for last in (False, True):
      if not graph:
        break
      try:
        return graph.run(arrays, hosts)
      except _Refused as e:
        if e.code != 9 or last:
          raise RuntimeError(str(e)) from None
      with self._lock:  # hosts were replaced
        try:
          graph.relower()
        except _Refused:  # it has constants, which were lost
          self._graphs.pop(key, None)
          return self._trace(key, arrays, hosts, leaves)
    args, kwargs = _arguments(key, leaves)
    return self._function(*args, **kwargs)

  def _trace(self, key, arrays, hosts, leaves, lowers=False, ahead=(), early=None):
    """ahead: what functions of unknown shapes have returned (early.nodes; more may be met)."""
    with self._lock:
      graph = self._graphs.get(key)
      if graph is not None and graph is not early:
        return self._run(key, graph, arrays, hosts, leaves)
      args, kwargs = _arguments(key, leaves)
      ahead, nodes = list(ahead), list(early.nodes) if early else []
      while True:
        given = hosts + _leaves(ahead)
        try:
          trace = self._begin(arrays, given)
        except _Refused as e:
          return self._call(key, e, args, kwargs)
        try:
          with _host.Recording(_calls(), trace, arrays, given, lowers, ahead) as recording:
            out = _mine(recording, self._function(*args, **kwargs))
          break
        except _host.Ahead as e:
          _calls().trace_abandon(trace)
          ahead.append(e.values)
          nodes.append(e.node)
        except BaseException:
          _calls().trace_abandon(trace)
          raise
      try:
        graph = self._end(trace, recording, out)
      except _Refused as e:
        self._note(key, e)
        return out
      if not nodes:
        self._graphs[key] = graph
      else:
        if not early or len(nodes) > len(early.nodes):
          early = self._graphs[key] = _host.Early(nodes)
        early.graphs[_host.shapes(ahead)] = graph
      return out

  def _begin(self, arrays, hosts):
    if any(map(_is_foreign, arrays)):
      raise _Refused(9, "an argument is on another platform")
    trace, why = _VOID(), ctypes.create_string_buffer(_WHY)
    places, counts = _buffers(arrays)
    _check(_calls().trace_begin(places, counts, len(arrays), _host_bytes(hosts), len(hosts), ctypes.byref(trace), why,
                                _WHY), why)
    return trace

  def _end(self, trace, recording, out):
    import jax

    leaves, tree = jax.tree.flatten(out)
    if any(array.is_deleted() for array in recording.watched):
      recording.refused = "a host function takes an array that is donated later"
    if any(isinstance(leaf, jax.Array) and _is_foreign(leaf) for leaf in leaves):
      recording.refused = "a result is on another platform"
    if recording.refused:
      _calls().trace_abandon(trace)
      raise _Refused(9, recording.refused)
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    results = recording.watched + [leaves[i] for i in at]
    places, counts = _buffers(results)
    handle, why = _VOID(), ctypes.create_string_buffer(_WHY)
    what = (ctypes.c_int64 * max(len(results), 1))()
    _check(_calls().trace_end(trace, places, counts, len(results), self._passes, what, ctypes.byref(handle), why, _WHY),
           why)

    def kind_of(array, number):
      if number >= 0:
        return "made", number
      if number == _BEFORE:
        return "before", array
      late = recording.late.get(-1 - number)
      return ("before", late) if late else ("argument", -1 - number)

    kinds, taken = [kind_of(*r) for r in zip(results, what)], len(recording.watched)
    returned = [("before", leaf) for leaf in leaves]
    for i, kind in zip(at, kinds[taken:]):
      returned[i] = kind
    graph = _Graph(handle, tree, returned, _shells(results, what), recording.nodes, kinds[:taken])
    _dump(self.__name__, graph)
    return graph

  def _note(self, key, refused):
    self._graphs[key] = False
    if refused.code != 12 and not self._told:  # without a pod there is nothing to say
      self._told = str(refused)
      print(f"atoll warning: {self.__name__} is not traced: {refused}", file=sys.stderr)

  def _call(self, key, refused, args, kwargs):
    self._note(key, refused)
    return self._function(*args, **kwargs)


def _leaves(tree):
  import jax

  return jax.tree.leaves(tree)


def _mine(recording, out):
  """The results, with copies of those that a run could not hand out."""
  import jax

  return jax.tree.map(
      lambda leaf: recording.own(leaf) if isinstance(leaf, jax.Array) and not _is_foreign(leaf) else leaf, out)


def _arguments(key, leaves):
  import jax

  return jax.tree.unflatten(key[0], leaves)


def _dump(name, graph):
  """Beside what the compiler writes there."""
  folder = os.environ.get("ATOLL_DUMP")
  if not folder:
    return
  text = str(graph)
  name = re.sub(r"[^\w.-]", "_", name)[:48]
  try:
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name}.{zlib.crc32(text.encode()):08x}.program.txt", "w") as out:
      out.write(text)
  except OSError as e:  # a dump that fails must not fail what it explains
    print(f"atoll warning: {e}", file=sys.stderr)


@overload
def program(function: Callable, *, passes: bool = True) -> Program: ...
@overload
def program(function: None = None, *, passes: bool = True) -> Callable[[Callable], Program]: ...
def program(function=None, *, passes=True):
  """Makes of a function a Program, whose calls go to the pod as one message; also a decorator.

  The first call with arguments of some shapes, types and places calls `function`, and keeps what it
  asks of the pod as a graph; later calls with such arguments run the graph without calling it. Where
  there is no pod, or it does what no graph can keep, it is called each time as it is; in the second
  case a warning says why.

  Args:
    function: it takes and returns trees of arrays. Arguments that are no arrays are compared by
      value: there is a graph for each.
    passes: False: nothing is left out of the graph, for comparison.
  """
  return functools.partial(Program, passes=passes) if function is None else Program(function, passes)
