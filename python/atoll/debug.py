"""A debugger of Pallas kernels: stops at lines, at steps of the grid, where a ref changes and where a check fails, and
shows refs as NumPy arrays, semaphores and copies under way, per virtual core. `atoll debug` is a prompt over it.

In the program that runs the kernel:

    import atoll.debug

    def look(stop):
      print(stop.place, stop["o_ref"][0, :4])

    with atoll.debug.session() as s:
      s.break_at("kernel.py:12", look)
      jax.block_until_ready(jax.jit(kernel)(x))

For another process `Debugger` starts it, and returns a `Stop` each time that it stops.
"""

import json
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence

import numpy as np

from atoll import _debug_names

MODES = ("run", "step", "next", "finish", "grid")
CHECKS = "all"
_SPACES = {"hbm": "HBM", "vmem": "VMEM", "smem": "SMEM", "semaphore": "semaphores", "vmem_shared": "shared VMEM",
           "host": "host"}
_PLAIN = {"i1": "bool", "i2": "int8", "i4": "int8", "ui2": "uint8", "ui4": "uint8", "f16": "float16", "f32": "float32",
          "f64": "float64", "complex<f32>": "complex64", "complex<f64>": "complex128", "semaphore": "int64"}


class DebugError(RuntimeError):
  """What a debugger cannot do, and why."""


def _dtype(name):
  """NumPy's type of the elements as they lie in memory: integers of 2 and 4 bits take a byte."""
  if name in _PLAIN:
    return np.dtype(_PLAIN[name])
  if name.startswith(("i", "ui")):
    return np.dtype(name.replace("ui", "uint") if name.startswith("u") else "int" + name[1:])
  import ml_dtypes
  named = "bfloat16" if name == "bf16" else name.replace("f", "float", 1).lower().replace("float8e8m0fnu", "float8_e8m0fnu")
  for prefix in ("float4", "float6", "float8"):
    if named.startswith(prefix + "e"):
      named = prefix + "_" + named[len(prefix):]
  return np.dtype(getattr(ml_dtypes, named))


# ---- What a stop shows
class Place:
  """A place in the source: `file`, `line`, `column`, and `frames`: (file, line, column), the innermost first."""

  def __init__(self, said):
    self.frames = _debug_names.frames(said)
    self.file, self.line, self.column = self.frames[0] if self.frames else ("", 0, 0)

  @property
  def text(self) -> str:
    """The line of the source, or ""."""
    lines = _debug_names.lines(self.file) if self.file else []
    return lines[self.line - 1] if 0 < self.line <= len(lines) else ""

  def __bool__(self):
    return bool(self.frames)

  def __str__(self):
    return f"{self.file}:{self.line}" if self.frames else "?"


class Ref:
  """A ref of a core, as it is now: `ref[0, 2:4]` is read when it is asked for, as a NumPy array. Of an operand with
  blocks it is the block that is there; `ref.array` is the whole operand."""

  def __init__(self, link, core, index, said, name, array=False):
    self._link, self._core, self._index, self._said, self._array = link, core, index, said, array
    self.name, self.role = name, said["role"]
    self.space, self.dtype_name = said["space"], said["dtype"]
    self.shape = tuple(said["array"] if array else said["shape"])
    self.there = said["there"]  # False: no block has come yet
    self.window = tuple(said["window"]) if "window" in said else None  # what the index map said

  @property
  def dtype(self) -> np.dtype:
    """The type of its elements; integers of less than a byte are bytes."""
    return _dtype(self.dtype_name)

  @property
  def array(self) -> "Ref":
    """The whole operand, where this is a block of one."""
    return self if "array" not in self._said else Ref(self._link, self._core, self._index, self._said, self.name, True)

  def _box(self, key):
    key = key if isinstance(key, tuple) else (key,)
    dots = [i for i, k in enumerate(key) if k is Ellipsis]
    if dots:
      fill = (slice(None),) * (len(self.shape) - len(key) + 1)
      key = key[:dots[0]] + fill + key[dots[0] + 1:]
    if len(key) > len(self.shape) or any(k is Ellipsis for k in key):
      raise DebugError(f"{self.name} has {len(self.shape)} dimensions")
    box, squeezed = {"start": [], "count": [], "step": []}, []
    for d, n in enumerate(self.shape):
      k = key[d] if d < len(key) else slice(None)
      if isinstance(k, slice):
        try:
          start, stop, step = k.indices(n)
        except (TypeError, ValueError) as e:
          raise DebugError(str(e)) from None
        count = len(range(start, stop, step))
      else:
        try:
          at = k.__index__()
        except AttributeError:
          raise DebugError(f"an index of {self.name} is no integer and no slice") from None
        if not -n <= at < n:
          raise DebugError(f"index {at} is out of bounds: dimension {d} of {self.name} has {n} elements")
        start, count, step = at % n, 1, 1
        squeezed.append(d)
      for name, value in (("start", max(start, 0)), ("count", count), ("step", step)):
        box[name].append(value)
    return box, tuple(squeezed)

  def __getitem__(self, key):
    box, squeezed = self._box(key)
    head, data = self._link.ask({"do": "read", "core": self._core, "ref": self._index, "array": self._array, **box})
    out = np.frombuffer(data, self.dtype).reshape(head["shape"])
    return out.squeeze(squeezed) if squeezed else out

  def __array__(self, dtype=None, copy=None):
    out = self[...] if self.shape else self[()]
    return out if dtype is None else out.astype(dtype)

  def __len__(self):
    return self.shape[0]

  def describe(self) -> str:
    """Like "o_ref: f32[8,128] in VMEM, output, block (0, 1) of [16,128]"."""
    shape = ",".join(map(str, self.shape))
    kind = {"prefetch": "prefetched scalars", "in": "input", "out": "output"}.get(self.role, self.role)
    text = f"{self.name}: {self.dtype_name}[{shape}] in {_SPACES.get(self.space, self.space)}, {kind}"
    if "array" in self._said and not self._array:
      at = f"block {self.window}" if self.window is not None else "a block"
      text += f", {at} of [{','.join(map(str, self._said['array']))}]"
    return text if self.there else text + ", not there now"

  def __repr__(self):
    return self.describe()

  def _watched(self, key):
    return {"core": self._core, "ref": self._index, "array": self._array, **self._box(key)[0]}


class Copy:
  """A copy under way: `src` and `dst` ("x_ref[0:8, 0:128]", "?" unknown), `started` (a Place), `by` (a core), `bytes`,
  `semaphore`."""

  def __init__(self, said):
    self.src = self.dst = "?"
    self.started, self.by = Place(said.get("started")), said["by"]
    self.bytes, self.semaphore = said["bytes"], said.get("semaphore", "none")

  def __str__(self):
    return f"{self.src} -> {self.dst}, {self.bytes} bytes, started by {self.by} at {self.started}"


class Core:
  """A virtual core. `state`: "stopped" (it is the one that runs), "ready" (stands at its line), "waits", "ended".
  `refs`: by name; `semaphores`: a dict each, with name, value, signalled and waited; `loops`: (Place, turn) of each
  loop around the line; `waits`: a dict with name, value, amount and place, or None."""

  def __init__(self, said, link):
    self._said, self._link, self.others = said, link, []
    self.id, self.name, self.kernel = said["id"], said["name"], said["kernel"]
    self.device, self.core, self.subcore = said["device"], said["core"], said["subcore"]
    self.type, self.state = said["type"], said["state"]
    self.grid, self.bounds = tuple(said["grid"]), tuple(said["bounds"])
    self.step, self.steps = said["step"], said["steps"]
    self.place = Place(said["place"])
    self.loops = [(Place(x["place"]), x["turn"]) for x in said["loops"]]
    self.refs = self._refs()
    by_index = list(self.refs.values())
    self.semaphores = [self._semaphore(s, by_index) for s in said["semaphores"]]
    self.waits = self._semaphore(said["waits"], by_index) if "waits" in said else None

  def _names(self):
    refs = self._said["refs"]
    taken, names = {}, []
    for r in refs:
      n = taken[r["role"]] = taken.get(r["role"], -1) + 1
      names.append(f"{r['role']}{n}")
    count = sum(r["role"] != "scoped" for r in refs)
    frames = self.place.frames
    known = _debug_names.argument_names(frames[-1][0], frames[-1][1], self.kernel, count) if frames else None
    names[:count] = known or names[:count]
    scopes = {}
    for i in range(count, len(refs)):
      place = _debug_names.frames(refs[i]["place"])
      scopes.setdefault(tuple(place), []).append(i)
    for place, of in scopes.items():
      known = _debug_names.scope_names(place[0][0], place[0][1], len(of)) if place else None
      for k, i in enumerate(of):
        if known and known[k] not in names:
          names[i] = known[k]
    return names

  def _refs(self):
    out = {}
    for i, (name, said) in enumerate(zip(self._names(), self._said["refs"])):
      name = name if name not in out else f"{name}_{i}"
      out[name] = Ref(self._link, self.id, i, said, name)
    return out

  def _semaphore(self, said, refs):
    name = said["name"]
    if "ref" in said:
      ref = refs[said["ref"]]
      at = np.unravel_index(said["index"], ref.shape) if ref.shape else ()
      name = ref.name + (f"[{', '.join(map(str, at))}]" if at else "")
    out = dict(said, name=name)
    for key in ("signalled", "waited", "place"):
      out[key] = Place(said.get(key))
    return out

  def _side(self, said):
    if "ref" not in said:
      return said.get("space", "?")
    ref = list(self.refs.values())[said["ref"]]
    whole = ref.array if said["space"] == "hbm" and ref.space != "hbm" else ref
    if not whole.shape:
      return ref.name
    item = said["elem_bytes"]
    # A side that packs several elements into one is in bytes.
    if item != whole.dtype.itemsize or said["offset"] % item:
      return f"{ref.name} (from byte {said['offset']})"
    first = said["offset"] // item
    if first >= np.prod(whole.shape):
      return ref.name
    start, size = np.unravel_index(first, whole.shape), said["size"]
    size = [1] * (len(start) - len(size)) + size
    if len(size) != len(start):
      return f"{ref.name}{list(map(int, start))}..."
    return ref.name + "[" + ", ".join(f"{a}:{a + n}" for a, n in zip(start, size)) + "]"

  @property
  def copies(self) -> list:
    """Copies that touch this core's memory and that nobody has waited for, the oldest first."""
    out = []
    for said in self._said["copies"]:
      # A copy that stays on this core is seen from both sides, one behind the other.
      if out and said["writes"] and out[-1][0] == (said["started"], said["by"]) and out[-1][1].dst == "?":
        copy = out[-1][1]
      else:
        copy = Copy(said)
        out.append(((said["started"], said["by"]), copy))
      setattr(copy, "dst" if said["writes"] else "src", self._side(said))
      copy.bytes = max(copy.bytes, said["bytes"])
    apart = [(key, copy) for key, copy in out if "?" in (copy.src, copy.dst)]
    for i, (key, copy) in enumerate(apart):
      self._other_side(copy, key, sum(k == key for k, _ in apart[:i]))
    return [c for _, c in out]

  def _other_side(self, copy, key, turn):
    """The end of a copy that another core has: its turn-th of those that one place started."""
    side = "dst" if copy.dst == "?" else "src"
    for other in self.others:
      there = [s for s in other._said["copies"] if (s["started"], s["by"]) == key and s["writes"] == (side == "dst")]
      if other is not self and turn < len(there):
        # A core that has not begun does not know the names of its refs.
        named = other if other.place or other.kernel != self.kernel else self
        setattr(copy, side, f"{named._side(there[turn])} of {other.name}")
        return

  def describe(self) -> str:
    """One line: who it is, where, and what it does."""
    grid = f", grid {self.grid} of {self.bounds}" if self.bounds else ""
    doing = f"waits for {self.waits['name']} ({self.waits['value']}, needs {self.waits['amount']})" if self.waits else self.state
    return f"{self.id}: {self.name}, {self.kernel}{grid}: {doing} at {self.waits['place'] if self.waits else self.place}"


class Stop:
  """Where a program stopped. `why`: "break", "step", "change", "failure", "interrupt"; `breakpoint`: which, or None;
  `message`: what failed; `stop["x_ref"]` is a ref of the core that stopped."""

  def __init__(self, link, event, breakpoint_):
    self._link, self._cores = link, None
    self.why, self.kernel, self.message = event["why"], event["kernel"], event["message"]
    self.breakpoint = breakpoint_
    self.core_id = event["core"]

  @property
  def cores(self) -> list:
    """Every core of the kernels that run now."""
    if self._cores is None:
      said, _ = self._link.ask({"do": "state"})
      self._cores = [Core(c, self._link) for c in said["cores"]]
      for c in self._cores:
        c.others = self._cores
    return self._cores

  def core_of(self, number: int) -> Core:
    """The core with an id. DebugError: there is none."""
    for c in self.cores:
      if c.id == number:
        return c
    raise DebugError(f"there is no core {number}" if number else "no core is stopped: the kernel has ended")

  @property
  def core(self) -> Core:
    """The core that stopped. DebugError: none did, as the kernel has ended."""
    return self.core_of(self.core_id)

  @property
  def place(self) -> Place:
    """Where it stands."""
    return self.core.place if self.core_id else Place(None)

  @property
  def refs(self) -> dict:
    """Refs of the core that stopped, by name."""
    return self.core.refs

  def __getitem__(self, name):
    refs = self.core.refs
    if name not in refs:
      raise KeyError(f"no ref {name}: there are {', '.join(refs)}")
    return refs[name]


# ---- Breakpoints
class Breakpoint:
  """Where a program is to stop. `enabled` and `callback` may be changed; `hits` counts."""

  def __init__(self, number, kind, text, **said):
    self.number, self.kind, self.text = number, kind, text
    self.said = said
    self.enabled, self.temporary = True, False
    self.condition: Callable | None = None  # of a Stop: false: goes on
    self.callback: Callable | None = None  # of a Stop: returns how to go on (one of MODES)
    self.hits = 0

  def request(self) -> dict:
    """As the runtime reads it."""
    return {"id": self.number, "kind": self.kind, **self.said}

  def __repr__(self):
    return f"{self.number}: {self.text}{'' if self.enabled else ' (off)'}, hit {self.hits} times"


class _Link:
  """The connection with one process."""

  def __init__(self, sock):
    self.socket, self.buffer, self.version = sock, b"", None

  def _more(self):
    got = self.socket.recv(1 << 20)
    if not got:
      raise EOFError
    self.buffer += got

  def line(self):
    while b"\n" not in self.buffer:
      self._more()
    line, _, self.buffer = self.buffer.partition(b"\n")
    return json.loads(line)

  def send(self, request):
    self.socket.sendall(json.dumps(request).encode() + b"\n")

  def ask(self, request):
    """The answer and the bytes behind it."""
    try:
      self.send(request)
      head = self.line()
      parts, missing = [], head.get("bytes", 0)
      while missing:
        if not self.buffer:
          self._more()
        parts.append(self.buffer[:missing])
        self.buffer = self.buffer[missing:]
        missing -= len(parts[-1])
    except (OSError, EOFError):
      raise DebugError("the program has ended") from None
    if "error" in head:
      raise DebugError(head["error"])
    return head, b"".join(parts)


class Debugger:
  """Listens for processes whose ATOLL_DEBUG is `folder`, and lets them run from stop to stop."""

  def __init__(self, checks: str = CHECKS):
    self.folder = tempfile.mkdtemp(prefix="atoll-debug-")
    self.checks = checks
    self.breakpoints: dict = {}
    self.child: subprocess.Popen | None = None
    self.status: int | None = None  # of a program that has ended
    self._next, self._version = 1, 0
    self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    self._listener.bind(os.path.join(self.folder, "socket"))
    self._listener.listen()
    self._links: list = []
    self._stopped: _Link | None = None
    self._wake = os.pipe()

  # ---- Beginning and end
  def environment(self) -> dict:
    """What a process needs in its environment."""
    return {"ATOLL_DEBUG": self.folder, "ATOLL_CHECK": self.checks}

  def start(self, command: Sequence[str]):
    """Starts a program, which stops at nothing until `go`. In a session of its own, so that Ctrl-C is the debugger's."""
    self.stop_program()
    self.status = None
    try:
      self.child = subprocess.Popen(list(command), env={**os.environ, **self.environment()}, stdin=subprocess.DEVNULL,
                                    start_new_session=True)
    except OSError as e:
      raise DebugError(f"cannot start {command[0]}: {e.strerror}") from None

  def stop_program(self):
    """Ends the program, if there is one."""
    if self.child is not None:
      self.child.kill()
      self.status = self.child.wait()
      self.child = None
    for link in self._links:
      link.socket.close()
    self._links, self._stopped = [], None

  def close(self):
    """Ends everything."""
    self.stop_program()
    if self._listener is not None:
      self._listener.close()
      self._listener = None
      os.close(self._wake[0])
      os.close(self._wake[1])
      shutil.rmtree(self.folder, ignore_errors=True)

  # ---- Breakpoints
  def _add(self, kind, text, callback=None, **said):
    b = Breakpoint(self._next, kind, text, **said)
    b.callback = callback
    self._next += 1
    self.breakpoints[b.number] = b
    self.changed()
    return b

  def changed(self):
    """Breakpoints are not as they were: programs learn of it at their next stop, this one at once."""
    self._version += 1
    if self._stopped is not None:
      self._tell_breaks(self._stopped)

  def break_at(self, where: str, callback: Callable | None = None, kernel: str = "") -> Breakpoint:
    """At "FILE:LINE"; where that line has no code of a kernel, at the next one of its function that has."""
    file, colon, line = where.rpartition(":")
    if not colon or not file or not line.isdigit() or not 0 < int(line) < 1 << 31:
      raise DebugError(f"'{where}' is not FILE:LINE")
    path = _debug_names.find_file(file)
    count = len(_debug_names.lines(path))
    if 0 < count < int(line):
      raise DebugError(f"{file} has {count} lines")
    first, last = _debug_names.lines_of_break(path, int(line))
    return self._add("line", f"{file}:{line}", callback, file=path, line=first, last=last, kernel=kernel)

  def break_grid(self, at: Sequence, callback: Callable | None = None, kernel: str = "") -> Breakpoint:
    """At a step of the grid; None or -1 in a dimension: any."""
    grid = [-1 if i is None else int(i) for i in at]
    if len(grid) > 8 or any(i < -1 for i in grid):
      raise DebugError("a step of the grid has up to 8 numbers from 0")
    text = ", ".join("*" if i < 0 else str(i) for i in grid)
    return self._add("grid", f"grid ({text})" + (f" of {kernel}" if kernel else ""), callback, grid=grid, kernel=kernel)

  def break_kernel(self, name: str = "", callback: Callable | None = None) -> Breakpoint:
    """Where each core begins a kernel; "": any."""
    return self._add("kernel", f"kernel {name or 'any'}", callback, kernel=name)

  def watch(self, ref: Ref, key=Ellipsis, callback: Callable | None = None) -> Breakpoint:
    """Where a ref, or a part of it, has changed. It lasts as long as the kernel runs."""
    b = self._add("change", f"watch {ref.name}", callback, **ref._watched(key))
    b.ref, b.key, b.old = ref, key, np.array(ref[key])
    return b

  def delete(self, number: int):
    """Removes a breakpoint. DebugError: there is none."""
    if self.breakpoints.pop(number, None) is None:
      raise DebugError(f"there is no breakpoint {number}")
    self.changed()

  def _tell_breaks(self, link):
    on = [b.request() for b in self.breakpoints.values() if b.enabled]
    link.ask({"do": "breaks", "breaks": on})
    link.version = self._version

  # ---- Running
  def go(self, mode: str = "run", core: int = 0) -> Stop | None:
    """Lets the program go on until it stops; None: it has ended. mode: one of MODES; core: the id of the one that is
    stepped, 0: that which stopped."""
    if mode not in MODES:
      raise DebugError(f"'{mode}' is none of {', '.join(MODES)}")
    while True:
      link, self._stopped = self._stopped, None
      if link is not None:
        self._let_go(link, mode, core)
      link, event = self._wait()
      if link is None:
        return None
      self._stopped = link
      if link.version != self._version:
        self._tell_breaks(link)
      if event["event"] == "hello":
        continue
      b = self.breakpoints.get(event["id"]) if event["why"] in ("break", "change") else None
      stop = Stop(link, event, b)
      if b is not None and b.condition is not None and not b.condition(stop):
        continue
      if b is not None:
        b.hits += 1
        if b.temporary:
          self.delete(b.number)
      return stop

  def _let_go(self, link, mode, core):
    request = {"do": "go", "mode": mode, "core": core}
    try:
      if mode == "next":
        request |= self._function_of(link, core)
      link.send(request)
    except (OSError, DebugError):
      pass  # it has ended, which is seen next

  def _function_of(self, link, core):
    """The text that `next` does not step over: functions inside the kernel's are none that it calls."""
    if not self._event_core and not core:
      return {}
    said, _ = link.ask({"do": "state"})
    for c in said["cores"]:
      frames = _debug_names.frames(c["place"])
      if c["id"] == (core or self._event_core) and frames:
        first, last = _debug_names.function_range(frames[0][0], frames[0][1])
        return {"file": frames[0][0], "first": first, "last": last}
    return {}

  _event_core = 0

  def _wait(self):
    """The next event and its link; (None, None): the program has ended."""
    with selectors.DefaultSelector() as s:
      s.register(self._listener, selectors.EVENT_READ)
      s.register(self._wake[0], selectors.EVENT_READ)
      for link in self._links:
        s.register(link.socket, selectors.EVENT_READ, link)
      end = os.pidfd_open(self.child.pid) if self.child is not None else -1
      if end >= 0:
        s.register(end, selectors.EVENT_READ)
      try:
        return self._wait_with(s, end)
      finally:
        if end >= 0:
          os.close(end)

  def _wait_with(self, s, end):
    while True:
      ready = [k for k, _ in s.select()]
      for k in ready:
        if k.data is None:
          continue
        try:
          event = k.data.line()
        except (OSError, EOFError, ValueError):
          s.unregister(k.data.socket)
          k.data.socket.close()
          self._links.remove(k.data)
          continue
        self._event_core = event["core"]
        return k.data, event
      files = [k.fileobj for k in ready]
      if self._listener in files:
        link = _Link(self._listener.accept()[0])
        self._links.append(link)
        s.register(link.socket, selectors.EVENT_READ, link)
      elif end in files:
        self.status = self.child.wait()
        self.child = None
        return None, None
      elif self._wake[0] in files:
        return None, None

  def interrupt(self):
    """Asks programs that run to stop at their next line."""
    for link in self._links:
      if link is not self._stopped:
        try:
          link.send({"do": "interrupt"})
        except OSError:
          pass


class Session(Debugger):
  """A debugger of this process: callbacks of breakpoints are called while the core stands. See `session`."""

  def __init__(self, checks: str = CHECKS, on_failure: Callable | None = None):
    super().__init__(checks)
    self.on_failure = on_failure
    self.error: BaseException | None = None  # what a callback raised
    self._saved: dict = {}
    self._thread: threading.Thread | None = None

  def _serve(self):
    mode = "run"
    while True:
      stop = self.go(mode)
      if stop is None:
        return
      callback = stop.breakpoint.callback if stop.breakpoint else self._default
      if stop.why == "failure":
        callback = self.on_failure
      mode = "run"
      try:
        mode = (callback(stop) if callback else None) or "run"
        if mode not in MODES:
          raise DebugError(f"a callback returned {mode!r}, which is none of {', '.join(MODES)}")
      except BaseException as e:  # told by the thread that runs the program
        self.error, self.breakpoints, mode = self.error or e, {}, "run"
        self.changed()
      else:
        self._default = callback  # of the steps that follow

  _default: Callable | None = None

  def changed(self):
    """As of any debugger; only the thread that talks to the runtime may tell it at once."""
    if threading.current_thread() is self._thread:
      super().changed()
    else:
      self._version += 1

  def __enter__(self):
    import sys
    if "jax" in sys.modules:  # what is compiled without the debugger does not stop
      sys.modules["jax"].clear_caches()
    self._saved = {k: os.environ.get(k) for k in self.environment()}
    os.environ.update(self.environment())
    self._thread = threading.Thread(target=self._serve, name="atoll.debug", daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *exc):
    for k, v in self._saved.items():
      if v is None:
        os.environ.pop(k, None)
      else:
        os.environ[k] = v
    os.write(self._wake[1], b"x")
    self._thread.join()
    self.close()
    import sys
    if "jax" in sys.modules:
      sys.modules["jax"].clear_caches()
    if self.error is not None and exc[0] is None:
      raise self.error


def session(checks: str = CHECKS, on_failure: Callable | None = None) -> Session:
  """A debugger of this process's kernels, for a `with`. Kernels stop for callbacks: of breakpoints, and on_failure where
  a check fails. A callback takes a Stop and returns how to go on: "step", "next", "finish", "grid", or None to run; what
  it raises is raised at the end of the `with`. The kernels must be waited for inside it.

  Args:
    checks: words of ATOLL_CHECK (docs/config.md).
    on_failure: takes the Stop of a kernel that fails; it fails afterwards all the same.
  """
  return Session(checks, on_failure)
