"""atoll.estimate: what a jitted function would take on a machine.

The work is done by the `atoll` command beside the library; this lowers the function
for a TPU, hands the program over and wraps the answer.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def command_path() -> str:
  """The `atoll` command: beside the library, or on the path."""
  import atoll

  try:
    beside = Path(atoll.library_path()).with_name("atoll")
    if beside.is_file() and os.access(beside, os.X_OK):
      return str(beside)
  except FileNotFoundError:
    pass
  found = shutil.which("atoll")
  if found:
    return found
  raise FileNotFoundError(
      "no `atoll` command beside the library or on the path\n"
      "hint: build the target `atoll`, or install the wheel")


class Report:
  """What a command says of a program: the members of `data` are attributes, and
  notebooks show the page."""

  def __init__(self, data: dict):
    self.data = data

  def __getattr__(self, name):
    try:
      return self.__dict__["data"][name]
    except KeyError:
      raise AttributeError(name) from None

  def _repr_html_(self):
    import html
    page = html.escape(self.html(), quote=True)
    return f'<iframe srcdoc="{page}" width="100%" height="700"></iframe>'


class Estimate(Report):
  """One estimate. `data` is everything that `atoll estimate --json` says; its
  members are attributes too: `seconds`, `mfu`, `peak_bytes`, `ops`, ..."""

  def __init__(self, program: bytes, target: str, data: dict, extra: list):
    super().__init__(data)
    self._program, self._target, self._extra = program, target, extra

  def __repr__(self):
    return _run(self._program, self._target, self._extra)

  def text(self, rows: int = 30) -> str:
    """The report for people, which lists `rows` kernels (0: all)."""
    return _run(self._program, self._target, self._extra + [f"--rows={rows}"])

  def compare(self, target: str, rows: int = 30) -> str:
    """This program on another machine, side by side."""
    return _run(self._program, self._target,
                self._extra + [f"--compare={target}", f"--rows={rows}"])

  def html(self, path: str | os.PathLike | None = None, compare: str | None = None) -> str:
    """The page for people; also written to `path`."""
    extra = self._extra + ([f"--compare={compare}"] if compare else [])
    return self._file("--html=", path, extra).decode()

  def trace(self, path: str | os.PathLike | None = None) -> bytes:
    """The timeline for Perfetto."""
    return self._file("--trace=", path, self._extra)

  def xplane(self, path: str | os.PathLike | None = None) -> bytes:
    """The timeline for XProf."""
    return self._file("--xplane=", path, self._extra)

  def _file(self, option, path, extra) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
      out = Path(path) if path else Path(folder) / "out"
      _run(self._program, self._target, extra + [f"{option}{out}"])
      return out.read_bytes()


def run_command(arguments, program: bytes, error=ValueError) -> str:
  """What `atoll ARGUMENTS program` prints; raises `error` with what it complains of."""
  with tempfile.NamedTemporaryFile(suffix=".mlirbc") as f:
    f.write(program)
    f.flush()
    done = subprocess.run([command_path(), *arguments, f.name], capture_output=True, text=True)
  if done.returncode:
    raise error(done.stderr.strip() or f"atoll {arguments[0]} failed")
  return done.stdout


def _run(program: bytes, target: str, extra) -> str:
  return run_command(["estimate", f"--target={target}", *extra], program)


def program_of(fn, args=(), kwargs=None) -> bytes:
  """A function's program for TPUs, as bytecode. A function that is lowered already needs no arguments."""
  import jax
  from jax._src.interpreters import mlir

  if isinstance(fn, (str, os.PathLike)):
    return Path(fn).read_bytes()
  if hasattr(fn, "compiler_ir"):  # lowered already
    lowered = fn
  else:
    jitted = fn if hasattr(fn, "trace") else jax.jit(fn)
    lowered = jitted.trace(*args, **(kwargs or {})).lower(lowering_platforms=("tpu",))
  return mlir.module_to_bytecode(lowered.compiler_ir("stablehlo"))


def estimate(fn: Any, *args: Any, target: str = "v6e", interp: str = "atoll",
             partitions: int | None = None, lookups: Any = None, counts: bool = False, **kwargs: Any) -> Estimate:
  """What `fn(*args, **kwargs)` would take on `target`.

  Args:
    fn: a jitted or plain function, a lowered one, or the path of a program.
    *args: arrays or `jax.ShapeDtypeStruct`s; nothing runs.
    target: chip and topology: "v6e", "v5p:2x2x4", "2*v5e:4x4", "H100:8", "host".
    interp: between measured points: "seed", "xla" or "atoll".
    partitions: devices that the program is cut for, where it does not say.
    lookups: how ids of embedding lookups are distributed (docs/embeddings.md): "16,zipf=1.05", a path, or
      by stack {"ids_per_sample": 16, "unique": 0.4}, as `atoll.sparsecore.LookupStats.data` is.
    counts: also `cost_analysis` and `profile_ops`: the program as it runs here, as profiles have it.

  Returns:
    An `Estimate`: times in seconds, sizes in bytes.
  """
  program = program_of(fn, args, kwargs)
  extra = [f"--interp={interp}"]
  if partitions:
    extra.append(f"--partitions={partitions}")
  if lookups is not None:
    extra.append(f"--lookups={json.dumps(lookups) if isinstance(lookups, Mapping) else lookups}")
  if counts:
    extra.append("--counts")
  data = json.loads(_run(program, target, extra + ["--json"]))
  return Estimate(program, target, data, extra)
