"""A profile from a recorded run: jax.profiler's XSpace, taken apart into the host, the
SparseCores and the TensorCore of every chip."""

import dataclasses
import glob
import json
import os
import re
import statistics

from atoll.sparsecore.advise import Profile

# What the TensorCore does not do itself: the lines of the SparseCores tell.
SPARSE_OPS = ("SparseDenseMatmul", "async_done")
OUTSIDE = ("host", "recompile")  # of any chip
PREPROCESS = "preprocess_sparse_dense_matmul"


@dataclasses.dataclass(frozen=True)
class Event:
  """What took time in a recorded run: a program, an operation, preprocessing."""
  core: str  # "host", "module", "SparseCore", "TensorCore", "recompile"
  chip: int
  name: str
  start: float  # seconds
  seconds: float
  lane: int = 0  # which SparseCore of the chip

  @property
  def end(self) -> float:
    """Seconds, on the clock of `start`."""
    return self.start + self.seconds


def _core_of(plane: str, line: str, name: str) -> tuple[str, int] | None:
  if plane.startswith("/device:TPU:"):
    if line == "XLA Modules":
      return "module", 0
    if line == "XLA Ops" and not any(s in name for s in SPARSE_OPS):
      return "TensorCore", 0
    if line == "SparseCore recompiles":
      return "recompile", 0
    if line.startswith("SparseCore "):
      return "SparseCore", int(line.split()[1])
  elif plane.startswith("/host:") and PREPROCESS in name:
    return "host", 0
  return None


def events_of(path: str) -> list[Event]:
  """Events of an .xplane.pb, or of the newest one under a folder that
  jax.profiler.trace wrote."""
  import jax

  if os.path.isdir(path):
    found = sorted(glob.glob(os.path.join(path, "**", "*.xplane.pb"),
                             recursive=True), key=os.path.getmtime)
    if not found:
      raise FileNotFoundError(f"no .xplane.pb under {path}")
    path = found[-1]
  out = []
  for plane in jax.profiler.ProfileData.from_file(path).planes:
    chip = int((re.findall(r"\d+$", plane.name) or [0])[0])
    for line in plane.lines:
      for e in line.events:
        core = _core_of(plane.name, line.name, e.name)
        if core:
          out.append(Event(core[0], chip, e.name, e.start_ns * 1e-9,
                           e.duration_ns * 1e-9, core[1]))
  return sorted(out, key=lambda e: (e.start, e.chip))


def _union(events) -> list[tuple[float, float]]:
  spans: list[list[float]] = []
  for e in sorted(events, key=lambda e: e.start):
    if spans and e.start <= spans[-1][1]:
      spans[-1][1] = max(spans[-1][1], e.end)
    else:
      spans.append([e.start, e.end])
  return [tuple(s) for s in spans]


def _length(spans) -> float:
  return sum(b - a for a, b in spans)


def _both(x, y) -> float:
  total, i, j = 0.0, 0, 0
  while i < len(x) and j < len(y):
    total += max(0.0, min(x[i][1], y[j][1]) - max(x[i][0], y[j][0]))
    if x[i][1] < y[j][1]:
      i += 1
    else:
      j += 1
  return total


def profile_of_events(events: list[Event], chip: int = 0,
                      module: str | None = None) -> Profile:
  """The figures of one chip, per step; a step is a run of `module` (None: the one
  that takes the most time)."""
  mine = [e for e in events if e.chip == chip and e.core not in OUTSIDE]
  modules: dict[str, list[Event]] = {}
  for e in mine:
    if e.core == "module":
      modules.setdefault(e.name, []).append(e)
  if not modules:
    raise ValueError(f"no program ran on chip {chip}")
  name = module or max(modules, key=lambda n: sum(
      e.seconds for e in modules[n]))
  steps = modules[name]
  starts = [e.start for e in steps]
  whole = steps[-1].end - steps[0].start
  n = len(steps)
  inside = [e for e in mine if starts[0] <= e.start <= steps[-1].end]
  sparse = _union(e for e in inside if e.core == "SparseCore")
  dense = _union(e for e in inside if e.core == "TensorCore")
  busy = _union(e for e in inside if e.core != "module")
  p = Profile(steps=n)
  p.step_seconds = (statistics.median(b - a for a, b in zip(starts, starts[1:]))
                    if n > 1 else whole)
  p.sparse_seconds, p.dense_seconds = _length(sparse) / n, _length(dense) / n
  p.overlap_seconds = _both(sparse, dense) / n
  p.idle_seconds = max(0.0, whole - _length(busy)) / n
  # While no program runs, the chip waits for the host: for input, mostly.
  runs = _union(e for e in inside if e.core == "module")
  gaps = [(a[1], b[0]) for a, b in zip(runs, runs[1:])]
  host = _union(e for e in events if e.core == "host")
  p.host_seconds = _length(gaps) / n
  p.preprocess_seconds = _both(gaps, host) / n
  again = [e.seconds for e in events if e.core == "recompile"]
  p.recompiles, p.recompile_seconds = len(again), sum(again)
  lanes = 1 + max((e.lane for e in inside), default=0)
  for e in inside:
    if e.core != "module":  # seconds of one SparseCore
      ops = p.operations.setdefault(e.core, {})
      share = lanes if e.core == "SparseCore" else 1
      ops[e.name] = ops.get(e.name, 0.0) + e.seconds / share
  return p


def profile(path: str, chip: int = 0, module: str | None = None) -> Profile:
  """The figures of one chip in a recorded run, as `profile_of_events` has them.

  Args:
    path: an .xplane.pb, or a folder that jax.profiler.trace wrote.
    chip: its number in the recording.
    module: the program whose runs are the steps; None: the one that takes most time.

  Raises FileNotFoundError where there is no recording, ValueError where no program ran on
  the chip.
  """
  return profile_of_events(events_of(path), chip, module)


def write_timeline(events: list[Event], path: str) -> None:
  """A Chrome trace with a lane for the host and, for every chip, its programs, its
  TensorCore and each of its SparseCores."""
  first = {"module": 0, "TensorCore": 1, "SparseCore": 2, "host": 0,
           "recompile": 1}
  names = {"module": "programs", "recompile": "recompiles"}
  pid = lambda e: 0 if e.core in OUTSIDE else e.chip + 1
  tid = lambda e: first[e.core] + e.lane
  out = []
  for process, thread, core, lane in sorted(
      {(pid(e), tid(e), e.core, e.lane) for e in events}):
    label = f"SparseCore {lane}" if core == "SparseCore" else names.get(core, core)
    out.append({"ph": "M", "pid": process, "tid": thread, "name": "thread_name",
                "args": {"name": label}})
    out.append({"ph": "M", "pid": process, "name": "process_name",
                "args": {"name": f"TPU:{process - 1}" if process else "host"}})
  out += [{"ph": "X", "pid": pid(e), "tid": tid(e), "name": e.name,
           "ts": e.start * 1e6, "dur": e.seconds * 1e6} for e in events]
  with open(path, "w") as f:
    json.dump({"traceEvents": out}, f)
