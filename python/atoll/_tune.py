"""atoll.tune and `atoll tune`: block shapes of a Pallas kernel, ranked without a chip.

Each variant is traced and lowered for the target's kind of TPU, as JAX does on one; `atoll dump --mosaic --timing`
then says whether the chip would take it and where its cycles would go. A variant takes tens of milliseconds,
nearly all of them JAX's, so all of them get the true verdict: none is left out by a rule of thumb.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import inspect
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# What JAX asks of a device when it lowers a kernel: its kind and its cores.
DEVICES = {
    "v4": ("TPU v4", 2), "v5e": ("TPU v5 lite", 1), "v5p": ("TPU v5", 2), "v6e": ("TPU v6 lite", 1),
    "7x": ("TPU7x", 1)}
_BATCH = 16  # variants that one `atoll dump` judges while JAX lowers the next ones


@dataclasses.dataclass(frozen=True)
class Tunable:
  """A kernel with parameters.

  Attributes:
    make: takes one value of each parameter, by name; returns the function and its arguments, which may be
      `jax.ShapeDtypeStruct`s. What it raises refuses the variant.
    space: the values of each parameter.
    default: parameters to compare with; those that are missing have the defaults of `make`'s signature.
    where: variants for which it is false are left out.
  """
  make: Callable[..., tuple[Callable, Sequence[Any]]]
  space: Mapping[str, Sequence[Any]]
  default: Mapping[str, Any] | None = None
  where: Callable[..., bool] | None = None


@dataclasses.dataclass
class Variant:
  """One choice of parameters and what the chip would make of it."""
  params: dict
  stage: str = ""  # that refused it: "make", "lowering" (JAX's), "compiler" (the chip's), "timing" (accepted, not timed)
  reason: str = ""  # why
  seconds: float = math.inf  # of all kernels of the function
  bound: str = ""  # what the longest kernel waits for
  kernels: list = dataclasses.field(default_factory=list)  # a dict each: cycles by unit, bytes; of the same keys

  @property
  def accepted(self) -> bool:
    """Whether the chip would take it, and it has a time."""
    return not self.stage

  def share(self, *names: str) -> float:
    """Cycles of these kinds as a share of all."""
    all_cycles = sum(k["cycles"] for k in self.kernels)
    return sum(k[n] for k in self.kernels for n in names) / all_cycles if all_cycles else 0.0

  @property
  def vmem_share(self) -> float:
    """VMEM that is taken, of the limit; of the kernel that takes most."""
    return max((k["vmem_bytes"] / k["vmem_limit_bytes"] for k in self.kernels), default=0.0)

  @property
  def data(self) -> dict:
    """What `--json` prints of it."""
    what = {"params": self.params}
    if not self.accepted:
      return what | {"stage": self.stage, "reason": self.reason}
    return what | {"seconds": self.seconds, "bound": self.bound, "kernels": self.kernels}


@dataclasses.dataclass
class Tuning:
  """What `tune` found: accepted variants, the fastest first, and refused ones with their reasons."""
  target: str
  variants: list
  refused: list
  default: Variant | None  # what `make` takes when nobody chooses
  elapsed: float  # seconds that the sweep took

  @property
  def best(self) -> Variant:
    """The fastest; ValueError: the chip refuses all."""
    if not self.variants:
      first = f": {self.refused[0].reason}" if self.refused else ""
      raise ValueError(f"{self.target} takes no variant{first}")
    return self.variants[0]

  def speed_up(self, variant: Variant) -> float | None:
    """Of a variant over the default; None: there is no time to compare with."""
    if self.default is None or not self.default.accepted or not variant.accepted:
      return None
    return self.default.seconds / variant.seconds if variant.seconds else None

  @property
  def data(self) -> dict:
    """What `--json` prints."""
    return {"target": self.target, "elapsed_seconds": self.elapsed,
            "default": self.default.data if self.default else None,
            "variants": [v.data | {"speed_up": self.speed_up(v)} for v in self.variants],
            "refused": [v.data for v in self.refused]}

  def text(self, top: int = 10, refused: int = 5) -> str:
    """The table for people: so many of each kind (0: all)."""
    lines = [f"{self.target}: {len(self.variants)} variants ranked, {len(self.refused)} refused, "
             f"in {self.elapsed:.1f} s"]
    if self.variants:
      shown = self.variants[:top or None]
      rows = [self._row(str(i + 1), v) for i, v in enumerate(shown)]
      if self.default is not None and self.default.accepted:
        rows.append(self._row("default", self.default))
      names = list(self.variants[0].params)
      head = ["", *names, "time us", "speed-up", "compute", "DMA", "waits", "VMEM", "bound by"]
      lines += ["", *_columns([head, *rows], left={len(head) - 1})]
      if len(shown) < len(self.variants):
        lines.append(f"... and {len(self.variants) - len(shown)} more")
    if self.default is not None and not self.default.accepted:
      lines += ["", f"the default, {_named(self.default.params)}, is refused: {_short(self.default.reason)}"]
    if self.refused:
      shown = self.refused[:refused or None]
      lines += ["", "refused:", *(f"  {_named(v.params)}: {v.stage}: {_short(v.reason)}" for v in shown)]
      if len(shown) < len(self.refused):
        lines.append(f"  ... and {len(self.refused) - len(shown)} more")
    return "\n".join(lines) + "\n"

  def _row(self, rank: str, v: Variant) -> list[str]:
    gain = self.speed_up(v)
    return [rank, *map(str, v.params.values()), f"{v.seconds * 1e6:.1f}", f"{gain:.2f}x" if gain else "",
            f"{v.share('compute_cycles'):.0%}", f"{v.share('dma_cycles'):.0%}",
            f"{v.share('bubble_cycles', 'wait_cycles'):.0%}", f"{v.vmem_share:.0%}", v.bound]

  def __repr__(self):
    return self.text()


def _columns(rows: list[list[str]], left: set) -> list[str]:
  widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
  return ["  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()
          for r in rows]


def _named(params: Mapping) -> str:
  return " ".join(f"{k}={v}" for k, v in params.items())


def _short(reason: str) -> str:
  """The line, or the sentence, of a long message that says most."""
  lines = [line.strip() for line in reason.splitlines() if line.strip()]
  telling = [part for line in lines for part in line.split(". ") if "exceeded" in part]
  best = (telling or [line for line in lines if not line.endswith(":")] or lines or [""])[0]
  return best if len(best) < 160 else best[:157] + "..."


# ---- Lowering
@contextlib.contextmanager
def lowering_for(target: str):
  """Kernels that are traced inside see a TPU of the target's kind, as `pltpu.get_tpu_info` tells it."""
  import jax

  kind, cores = DEVICES[target]
  device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=cores, platform="tpu")
  with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
    yield


def lower(fn: Callable, args: Sequence[Any]) -> bytes:
  """The program of `fn(*args)` for a TPU, as bytecode; within `lowering_for`."""
  import jax
  from jax._src.interpreters import mlir

  jitted = fn if hasattr(fn, "trace") else jax.jit(fn)
  lowered = jitted.trace(*args).lower(lowering_platforms=("tpu",))
  program = mlir.module_to_bytecode(lowered.compiler_ir("stablehlo"))
  if b"tpu_custom_call" not in program:
    raise ValueError("the function calls no Pallas kernel")
  return program


def _made(make, v: Variant) -> bytes | None:
  """The variant's program; None: it is refused, and `v` says why."""
  stage = "make"
  try:
    made = make(**v.params)
    if not (isinstance(made, tuple) and len(made) == 2):
      raise TypeError(f"(function, arguments) is wanted, not {type(made).__name__}")
    stage = "lowering"
    return lower(*made)
  except Exception as e:  # whatever the user's code or JAX raises is the variant's verdict
    v.stage, v.reason = stage, f"{type(e).__name__}: {e}"
    return None


# ---- Verdicts and times
def _judge(command: str, target: str, batch: list[tuple[Variant, str]]) -> None:
  """Fills in the variants whose programs lie in these files."""
  done = subprocess.run([command, "dump", "--mosaic", "--timing", "--json", f"--target={target}",
                         *(path for _, path in batch)], capture_output=True, text=True)
  if done.returncode:
    raise RuntimeError(done.stderr.strip() or f"atoll dump ended with {done.returncode}")
  calls: dict[str, list] = {}
  for line in done.stdout.splitlines():
    call = json.loads(line)
    calls.setdefault(call["file"], []).append(call)
  for v, path in batch:
    _fill(v, calls[path])
    os.unlink(path)


def _fill(v: Variant, calls: list[dict]) -> None:
  for call in calls:
    if call["verdict"] != "ok":
      v.stage, v.reason = "compiler", call["message"]
      return
    if "untimed" in call:
      v.stage, v.reason = "timing", call["untimed"]
      return
    # Programs of one kernel run side by side, on cores of their own.
    v.kernels.append(max(call["timings"], key=lambda t: t["seconds"]) | {"kernel": call["kernel"]})
  v.seconds = sum(k["seconds"] for k in v.kernels)
  v.bound = max(v.kernels, key=lambda k: k["seconds"])["bound"]


# ---- The sweep
def default_of(t: Tunable) -> dict | None:
  """The parameters that the user's own choice has; None: there is no full one."""
  signature = inspect.signature(t.make).parameters
  own = {n: p.default for n, p in signature.items() if p.default is not p.empty}
  chosen = {**own, **(t.default or {})}
  return {n: chosen[n] for n in t.space} if all(n in chosen for n in t.space) else None


def variants_of(t: Tunable) -> list[dict]:
  """All parameters to try."""
  if not t.space or not all(len(values) for values in t.space.values()):
    raise ValueError("every parameter needs a value at least")
  signature = inspect.signature(t.make).parameters
  takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.values())
  unknown = [] if takes_all else [n for n in t.space if n not in signature]
  if unknown:
    raise ValueError(f"the kernel's factory has no parameter {unknown[0]}; it has {', '.join(signature)}")
  all_params = [dict(zip(t.space, values)) for values in itertools.product(*t.space.values())]
  return [p for p in all_params if t.where is None or t.where(**p)]


def tune(make: Callable | Tunable, space: Mapping[str, Sequence[Any]] | None = None, *, target: str = "v5e",
         default: Mapping[str, Any] | None = None, where: Callable[..., bool] | None = None,
         progress: Callable[[int, int, Variant | None], None] | None = None, command: str | None = None) -> Tuning:
  """Ranks the variants of a Pallas kernel on a chip that need not be there.

  Args:
    make: a `Tunable`, or its `make`; then `space`, `default` and `where` are a Tunable's.
    target: "v4", "v5e", "v5p", "v6e" or "7x".
    progress: is called with how many variants are done, of how many, and the best so far.
    command: the `atoll` to ask; by default the one beside the library.

  Returns:
    A `Tuning`: what the chip would refuse is among `refused`, never among `variants`.
  """
  from atoll._estimate import command_path

  t = make if isinstance(make, Tunable) else Tunable(make, space or {}, default, where)
  if target not in DEVICES:
    raise ValueError(f"no target '{target}'\nhint: {', '.join(DEVICES)}")
  begin = time.monotonic()
  all_params, own = variants_of(t), default_of(t)
  every = [Variant(p) for p in all_params]
  if own is not None and own not in all_params:
    every.append(Variant(own))
  _sweep(t.make, every, target, command or command_path(), progress)
  mine = next((v for v in every if v.params == own), None)
  ranked = every[:len(all_params)]
  return Tuning(target, sorted((v for v in ranked if v.accepted), key=lambda v: v.seconds),
                [v for v in ranked if not v.accepted], mine, time.monotonic() - begin)


def _sweep(make, every, target, command, progress) -> None:
  with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(1) as judge, \
       lowering_for(target):
    waiting, batch = [], []
    for i, v in enumerate(every):
      program = _made(make, v)
      if program is not None:
        path = Path(folder) / f"{i}.mlirbc"
        path.write_bytes(program)
        batch.append((v, str(path)))
      if len(batch) == _BATCH:
        waiting.append(judge.submit(_judge, command, target, batch))
        batch = []
      if progress:
        timed = [x for x in every[:i] if x.seconds < math.inf]
        progress(i + 1, len(every), min(timed, key=lambda x: x.seconds) if timed else None)
    if batch:
      waiting.append(judge.submit(_judge, command, target, batch))
    for w in waiting:
      w.result()


# ---- The command
def load(spec: str, space: Mapping[str, Sequence[Any]]) -> Tunable:
  """The Tunable that FILE.py:NAME names; `space` replaces or adds values of parameters."""
  path, _, name = spec.partition(".py:")
  path, name = (path + ".py", name) if name else (spec, "tune")
  module_spec = importlib.util.spec_from_file_location(Path(path).stem, path)
  if not Path(path).is_file() or module_spec is None:
    raise ValueError(f"no Python file {path}")
  module = importlib.util.module_from_spec(module_spec)
  sys.modules[module_spec.name] = module
  sys.path.insert(0, str(Path(path).resolve().parent))
  module_spec.loader.exec_module(module)
  found = getattr(module, name, None)
  if found is None:
    raise ValueError(f"{path} has no {name}\nhint: name the factory as {path}:NAME")
  if not isinstance(found, Tunable) and not inspect.signature(found).parameters:
    found = found()  # a function that returns a Tunable
    if not isinstance(found, Tunable):
      raise ValueError(f"{path}: {name}() returns no atoll.Tunable")
  if isinstance(found, Tunable):
    return dataclasses.replace(found, space={**found.space, **space})
  if not space:
    raise ValueError(f"{path}: {name} is a factory: which values?\nhint: --param=NAME=VALUE,VALUE,...")
  return Tunable(found, space)


def _values(text: str) -> tuple[str, list]:
  name, equals, values = text.partition("=")
  if not (name.isidentifier() and equals and values):
    raise argparse.ArgumentTypeError(f"{text}: NAME=VALUE,VALUE,... is wanted")

  def value(word: str):
    try:
      return json.loads(word)
    except ValueError:
      return {"True": True, "False": False, "None": None}.get(word, word)
  return name, [value(w) for w in values.split(",")]


class _Progress:
  """A line on stderr: redrawn on a terminal, else a new one every ten seconds."""

  def __init__(self):
    self.terminal = sys.stderr.isatty()
    self.last = time.monotonic()

  def __call__(self, done: int, total: int, best: Variant | None) -> None:
    now = time.monotonic()
    if now - self.last < (0.2 if self.terminal else 10) and done < total:
      return
    if done == total and not self.terminal:
      return
    self.last = now
    so_far = f", best {best.seconds * 1e6:.1f} us: {_named(best.params)}" if best else ""
    start, end = ("\r\x1b[K", "\n" if done == total else "") if self.terminal else ("", "\n")
    print(f"{start}{done} of {total} variants{so_far}", end=end, file=sys.stderr, flush=True)


def main() -> int:
  """`atoll tune`, with this process's arguments; returns its exit status."""
  parser = argparse.ArgumentParser(prog="atoll tune")
  parser.add_argument("--atoll", required=True, help=argparse.SUPPRESS)
  parser.add_argument("kernel", metavar="FILE.py[:NAME]")
  parser.add_argument("--target", default="v5e", choices=list(DEVICES))
  parser.add_argument("--param", action="append", default=[], type=_values, metavar="NAME=V1,V2,...")
  parser.add_argument("--top", type=int, default=10)
  parser.add_argument("--refused", type=int, default=5)
  parser.add_argument("--json", action="store_true")
  parser.add_argument("--quiet", action="store_true")
  a = parser.parse_args()
  os.environ["JAX_PLATFORMS"] = "cpu"  # nothing runs, and a chip that is there is left alone
  try:
    with lowering_for(a.target):
      tunable = load(a.kernel, dict(a.param))
    found = tune(tunable, target=a.target, progress=None if a.quiet else _Progress(), command=a.atoll)
  except ValueError as e:
    print(f"atoll tune: {e}", file=sys.stderr)
    return 2
  print(json.dumps(found.data) if a.json else found.text(a.top, a.refused), end="\n" if a.json else "")
  return 0 if found.variants else 1


if __name__ == "__main__":
  # One module for the command and for `import atoll` in the user's file.
  from atoll import _tune
  sys.exit(_tune.main())
