"""What holds a run back, ranked, each cause with its figure and its knob."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from atoll.sparsecore import config as cfg
from atoll.sparsecore.preprocess import leaves

# Where a figure begins to be a cause; seconds are shares of a step.
_SOME = 0.02
_GAPS = .1  # between operations there are always some
_UNEVEN = 1.5  # what chance alone does to a partition
_NARROW = cfg.ROW_ELEMENTS


@dataclasses.dataclass
class StackProfile:
  """One stack: what was observed (maxima over the batches), what is set, what it
  is made of."""
  max_ids: int = 0
  max_unique: int = 0
  limit_ids: int = 0
  limit_unique: int = 0
  dropped: int = 0
  required_buffer: int = 0  # elements of a SparseCore
  buffer: int = 0
  imbalance: float = 1.0  # fullest partition over the mean
  tables: int = 1
  width: int = 0  # as asked for
  element_bytes: int = 4
  needs_f32: bool = True
  ids: int = 0  # of a batch


@dataclasses.dataclass
class Profile:
  """One run. Seconds are of one step; `overlap_seconds`: both kinds of core busy."""
  steps: int = 0
  step_seconds: float = 0.0
  host_seconds: float = 0.0  # no program runs: the chip waits for the host
  preprocess_seconds: float = 0.0  # of these, in preprocessing
  sparse_seconds: float = 0.0
  dense_seconds: float = 0.0
  overlap_seconds: float = 0.0
  idle_seconds: float = 0.0
  minibatches: float = 1.0
  recompiles: int = 0
  recompile_seconds: float = 0.0
  hbm_bytes: float = 0.0  # moved by a step
  hbm_bytes_per_second: float = 0.0  # what the machine can do
  prefetch_depth: int = 1
  parallel_iterations: int = 1
  pipelined: bool = False
  stacks: dict[str, StackProfile] = dataclasses.field(default_factory=dict)
  operations: dict[str, dict[str, float]] = dataclasses.field(
      default_factory=dict)  # core -> operation -> seconds

  def record(self, stats: Any, minibatches: int = 1) -> None:
    """Takes a batch's InputStats."""
    self.minibatches = (self.minibatches * self.steps + minibatches) / (
        self.steps + 1)
    self.steps += 1
    for n, ids in stats.max_ids_per_partition.items():
      s = self.stacks.setdefault(n, StackProfile())
      ids = np.asarray(ids)
      s.max_ids = max(s.max_ids, int(ids.max()))
      s.max_unique = max(s.max_unique, int(np.max(
          stats.max_unique_ids_per_partition[n])))
      s.required_buffer = max(s.required_buffer, int(np.max(
          stats.required_buffer_size_per_sc[n])))
      s.dropped += int(stats.id_drop_counters.get(n, 0))
      s.ids = max(s.ids, int(ids.sum()))
      if ids.sum():
        s.imbalance = max(s.imbalance, float(ids.max() / ids.mean()))

  def describe(self, features: Any, num_sc_per_device: int,
               stacked: Mapping[str, Any] | None = None) -> None:
    """Takes limits, widths and stacks from the specs; from `stacked` ({stack: array or
    (array, slots...)}) whether bf16 would hold every value."""
    tables: dict[str, set] = {}
    for f in leaves(features):
      spec = f.table_spec.stacked_table_spec
      s = self.stacks.setdefault(spec.stack_name, StackProfile())
      tables.setdefault(spec.stack_name, set()).add(f.table_spec.name)
      s.tables = len(tables[spec.stack_name])
      s.limit_ids = spec.max_ids_per_partition
      s.limit_unique = spec.max_unique_ids_per_partition
      wanted = spec.suggested_coo_buffer_size_per_device
      s.buffer = (wanted or 0) // num_sc_per_device
      s.width = f.table_spec.embedding_dim
      s.element_bytes = 2 if getattr(f.table_spec, "dtype", "") == "bfloat16" \
          else 4
    for name, arrays in (stacked or {}).items():
      table = np.asarray(arrays[0] if isinstance(arrays, (tuple, list)) else arrays)
      bits = np.ascontiguousarray(table, np.float32).view(np.uint32)
      self.stacks.setdefault(name, StackProfile()).needs_f32 = bool(
          (bits & 0xffff).any())

  def longest(self, core: str, n: int = 5) -> list[tuple[str, float]]:
    """The `n` operations that take longest on a core ("SparseCore", "TensorCore"), as
    (name, seconds), longest first."""
    ops = self.operations.get(core, {})
    return sorted(ops.items(), key=lambda x: (-x[1], x[0]))[:n]

  def save(self, path: str) -> None:
    """Writes the profile to a file, as JSON that `load` reads."""
    with open(path, "w") as f:
      json.dump(dataclasses.asdict(self), f, indent=1)

  @classmethod
  def load(cls, path: str) -> "Profile":
    """The profile that `save` wrote; ValueError: the file holds none."""
    try:
      with open(path) as f:
        d = json.load(f)
      stacks = {n: StackProfile(**s) for n, s in d.pop("stacks").items()}
      return cls(stacks=stacks, **d)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
      raise ValueError(f"{path} is no profile: {e}") from None


@dataclasses.dataclass(frozen=True)
class Advice:
  """A cause, how much it may cost, the figure that shows it, and what to change."""
  cause: str
  weight: float  # share of a step that it may cost, by which advice is ranked
  figure: str
  knob: str

  def __str__(self):
    return f"{self.cause} ({100 * self.weight:.0f}% of a step): " \
           f"{self.figure}\n  {self.knob}"


def _time_causes(p: Profile):
  t = p.step_seconds
  if not t:
    return
  yield Advice(
      "host-bound", p.host_seconds / t,
      f"{p.host_seconds * 1e3:.2f} ms of a step wait for the input, "
      f"{p.preprocess_seconds * 1e3:.2f} of them for preprocessing; prefetch "
      f"depth {p.prefetch_depth}, maximum_parallel_iterations "
      f"{p.parallel_iterations}",
      "raise the prefetch depth or maximum_parallel_iterations, preprocess on "
      "more threads")
  inner = (p.idle_seconds - p.host_seconds) / t
  yield Advice(
      "idle gaps", inner if inner > _GAPS else 0.0,
      f"both kinds of core are idle for {inner * t * 1e3:.2f} ms inside a step",
      "look at the timeline (write_timeline) for host callbacks and transfers "
      "inside the step, and move them out")
  both = min(p.sparse_seconds, p.dense_seconds)
  yield Advice(
      "no overlap", max(0.0, both - p.overlap_seconds) / t,
      f"SparseCore {p.sparse_seconds * 1e3:.2f} ms and TensorCore "
      f"{p.dense_seconds * 1e3:.2f} ms overlap for "
      f"{p.overlap_seconds * 1e3:.2f} ms",
      "pipeline the step (auto_pipelining), without "
      "tf_xla_disable_full_embedding_pipelining")
  yield Advice(
      "recompiles", p.recompile_seconds / (t * max(p.steps, 1)),
      f"{p.recompiles} recompiles of changed limits took "
      f"{p.recompile_seconds:.1f} s",
      "give limits headroom (LimitsEstimator.apply(headroom=1.2)) or keep them "
      "in xla_sparse_core_max_ids_file")
  if p.hbm_bytes_per_second:
    used = p.hbm_bytes / p.hbm_bytes_per_second / t
    yield Advice(
        "HBM bandwidth", used * used if used > .6 else 0.0,
        f"{p.hbm_bytes / t / 1e9:.1f} GB/s of "
        f"{p.hbm_bytes_per_second / 1e9:.1f}",
        "use more chips, narrower tables or bf16")


def _minibatch_cause(p: Profile, sparse: float):
  low = [n for n, s in p.stacks.items() if s.limit_ids and (
      s.max_ids > s.limit_ids or s.max_unique > s.limit_unique)]
  if p.minibatches > 1 or any(s.dropped for s in p.stacks.values()):
    dropped = sum(s.dropped for s in p.stacks.values())
    names = low or list(p.stacks)
    s = p.stacks[names[0]] if names else StackProfile()
    lost = dropped / max(1, sum(x.ids for x in p.stacks.values())
                         * max(p.steps, 1))
    yield Advice(
        "limits too low", max(sparse * (1 - 1 / p.minibatches), min(1, lost)),
        f"{p.minibatches:.1f} mini-batches a step, {dropped} ids dropped; stack "
        f"{names[0] if names else '?'} saw {s.max_ids} ids and {s.max_unique} "
        f"unique ids in a partition, limits {s.limit_ids} and {s.limit_unique}",
        "raise max_ids_per_partition and max_unique_ids_per_partition to what "
        "was seen")


def _stack_causes(p: Profile, sparse: float):
  ids = max(1, sum(s.ids for s in p.stacks.values()))
  share = lambda s: sparse * (s.ids / ids if any(
      x.ids for x in p.stacks.values()) else 1 / len(p.stacks))
  for n, s in p.stacks.items():
    if s.limit_ids and s.max_ids and not s.dropped and p.minibatches <= 1:
      use = max(s.max_ids / s.limit_ids, s.max_unique / max(1, s.limit_unique))
      yield Advice(
          "limits too high", share(s) * max(0.0, 1 - 2 * use),
          f"stack {n} saw {s.max_ids} ids and {s.max_unique} unique ids in a "
          f"partition, limits {s.limit_ids} and {s.limit_unique}",
          "lower them to what was seen: less Spmem and HBM stack")
    over = max(0.0, s.imbalance - _UNEVEN)
    yield Advice(
        "skew", share(s) * over / (1 + over),
        f"the fullest partition of stack {n} has {s.imbalance:.2f} times the "
        "mean",
        "rotate its tables (stack_tables(rotation=...)) or shuffle its ids "
        "(IdShuffle)")
    pad = cfg.up(max(s.width, 1), _NARROW)
    yield Advice(
        "narrow rows", share(s) * (1 - s.width / pad) if s.width else 0.0,
        f"rows of stack {n} have {s.width} elements in the room of {pad}",
        "make the table wider, or join narrow features in one table")
    yield Advice(
        "needless f32",
        share(s) * .25 if s.element_bytes == 4 and not s.needs_f32 else 0.0,
        f"stack {n} holds f32 rows, its values need fewer bits",
        "keep the table in bf16, or quantise it")
    yield Advice(
        "stack too large",
        share(s) * .3 if s.tables > cfg.MOST_IN_STACK else 0.0,
        f"stack {n} has {s.tables} tables", "at most 100 tables to a stack")
  few = [n for n, s in p.stacks.items() if s.tables < cfg.FEWEST_IN_STACK]
  if len(few) >= cfg.FEWEST_IN_STACK:
    yield Advice(
        "stacks too small", sparse * .4 * len(few) / len(p.stacks),
        f"{len(few)} of {len(p.stacks)} stacks have fewer than "
        f"{cfg.FEWEST_IN_STACK} tables",
        "let tables be stacked (disable_table_stacking=False, or groups of 5 to "
        "100 tables)")


def advise(p: Profile) -> list[Advice]:
  """Causes by weight, heaviest first; none when nothing stands out."""
  sparse = p.sparse_seconds / p.step_seconds if p.step_seconds else 1.0
  found = [*_time_causes(p), *_minibatch_cause(p, sparse),
           *_stack_causes(p, sparse)]
  best: dict[str, Advice] = {}
  for a in found:
    if a.weight >= _SOME and a.weight > best.get(
        a.cause, Advice("", 0.0, "", "")).weight:
      best[a.cause] = a
  return sorted(best.values(), key=lambda a: (-a.weight, a.cause))


def compare(a: Profile, b: Profile) -> str:
  """Two runs, side by side, with the advice that went and the advice that came."""
  lines = [f"{'':24s} {'before':>14s} {'after':>14s} {'change':>8s}"]
  for f in dataclasses.fields(Profile):
    x, y = getattr(a, f.name), getattr(b, f.name)
    if isinstance(x, bool) or not isinstance(x, (int, float)):
      continue
    change = f"{100 * (y / x - 1):+.0f}%" if x else ""
    lines.append(f"{f.name:24s} {x:14.6g} {y:14.6g} {change:>8s}")
  before = {x.cause for x in advise(a)}
  after = {x.cause for x in advise(b)}
  for title, causes in (("gone", before - after), ("new", after - before),
                        ("still", before & after)):
    if causes:
      lines.append(f"{title}: {', '.join(sorted(causes))}")
  return "\n".join(lines)
