"""`atoll debug kernel.py`: the prompt of the debugger. python -m atoll._debug_command."""

import argparse
import ast
import builtins
import os
import re
import shlex
import sys
import warnings
from pathlib import Path

import numpy as np

from atoll import _debug_names, debug

HELP = """\
break FILE:LINE [if EXPR]   stop at a line (break LINE: of the file that is shown; break NAME: a kernel or a function)
break grid (I,J) [if EXPR]  stop at a step of the grid; * stands for any number
tbreak ...                  the same, once
watch REF[SLICE]            stop where a ref has changed
delete [N...], disable N, enable N    breakpoints
run                         start the program (again)
continue, c [COUNT]         go on to the next stop
step, s [COUNT]             to the next line; next, n: over functions; finish: to the caller; grid-step, g: next grid step
until FILE:LINE             go on to a line
where, bt                   the line, what called it, loops and the step of the grid
print REF[SLICE], p EXPR    values; EXPR may use refs, grid, core and np
info refs|semaphores|copies|grid|cores|breakpoints
core [N]                    look at another core; step, next and finish then step that one
list, l [LINE]              the source
interrupt with Ctrl-C; help; quit, q"""

_ALIASES = {"b": "break", "c": "continue", "s": "step", "n": "next", "p": "print", "l": "list", "q": "quit", "bt": "where",
            "r": "run", "g": "grid-step", "d": "delete", "h": "help", "i": "info", "fin": "finish", "u": "until",
            "backtrace": "where", "exit": "quit", "tb": "tbreak"}
_INFO = ("refs", "semaphores", "copies", "grid", "cores", "breakpoints")
# Methods of NumPy import modules, through __import__ of the expression that calls them.
_BUILTINS = {n: f for n, f in vars(builtins).items() if n not in ("breakpoint", "exit", "help", "input", "quit")}


class CommandError(Exception):
  """What is wrong with a command."""


class Quit(Exception):
  """The end of a session."""


# ---- Reading commands
def split_command(line: str) -> tuple:
  """A command's full name and the rest of its line; ("", ""): nothing. CommandError: there is no such command."""
  line = line.strip()
  if not line or line.startswith("#"):
    return "", ""
  word, _, rest = line.partition(" ")
  names = [m[3:].replace("_", "-") for m in dir(Prompt) if m.startswith("do_")]
  word = _ALIASES.get(word, word)
  found = [word] if word in names else [n for n in names if n.startswith(word)]
  if len(found) != 1:
    raise CommandError(f"no command '{word}': help lists them" if not found else
                       f"'{word}' may be {', '.join(found)}")
  return found[0], rest.strip()


def read_grid(text: str) -> list:
  """The numbers of "(0, *)" or "0,1": -1 for *."""
  parts = [p.strip() for p in text.strip().removeprefix("(").removesuffix(")").split(",")]
  if parts and not parts[-1]:
    parts.pop()
  if not parts or not all(p == "*" or re.fullmatch(r"\d{1,9}", p) for p in parts):
    raise CommandError(f"'{text}' is no step of a grid: (0, 1), or * for any number")
  return [-1 if p == "*" else int(p) for p in parts]


def read_count(text: str) -> int:
  """A count of at least 1; 1 where there is none."""
  if not text:
    return 1
  if not re.fullmatch(r"\d{1,9}", text) or int(text) < 1:
    raise CommandError(f"'{text}' is no count")
  return int(text)


def compile_expression(text: str):
  """The code of an expression. CommandError: it is none."""
  try:
    with warnings.catch_warnings(action="ignore"):
      return compile(text.strip(), "<expression>", "eval")
  except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as e:
    raise CommandError(f"'{text}' is no expression: {getattr(e, 'msg', None) or e}") from None


def split_condition(text: str) -> tuple:
  """What comes before " if ", and the code of what comes behind; None: there is no such."""
  where, found, condition = text.partition(" if ")
  return where.strip(), compile_expression(condition) if found else None


def read_ref(text: str) -> tuple:
  """The name and the indices of "x_ref[0:2, 1]"; indices as a Python value."""
  match = re.fullmatch(r"\s*(\w+)\s*(\[.*\])?\s*", text, re.S)
  if not match:
    raise CommandError(f"'{text}' is no ref, like x_ref or x_ref[0:2, :]")
  if not match[2]:
    return match[1], Ellipsis
  tree = compile_expression("x" + match[2]) and ast.parse("x" + match[2], mode="eval").body
  if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
    raise CommandError(f"'{text}' is no ref with one pair of brackets")
  return match[1], _index(tree.slice)


def _index(node):
  if isinstance(node, ast.Tuple):
    return tuple(map(_index, node.elts))
  if isinstance(node, ast.Slice):
    return slice(*(None if p is None else _index(p) for p in (node.lower, node.upper, node.step)))
  try:
    value = ast.literal_eval(node)
  except (ValueError, TypeError, MemoryError, RecursionError):
    value = None
  if value is not Ellipsis and not isinstance(value, int):
    raise CommandError("indices are numbers, slices or ...")
  return value


# ---- The prompt
class Prompt:
  """One session: commands in, text out."""

  def __init__(self, debugger: debug.Debugger, command, out=None):
    self.debugger, self.command, self.out = debugger, command, out or sys.stdout
    self.stop: debug.Stop | None = None
    self.core_id = 0  # that is looked at
    self.listed = None  # (file, the next line of `list`)
    self.failed = False  # a command was wrong
    self.found = False  # a check failed

  def say(self, text=""):
    """A line for the user, with the files of the working folder named from there."""
    here = os.getcwd().rstrip("/") + "/"
    print(text.replace(here, "") if len(here) > 1 else text, file=self.out, flush=True)

  def obey(self, line: str):
    """Carries out a line; what is wrong with it is told. Raises Quit."""
    try:
      name, rest = split_command(line)
      if name:
        getattr(self, "do_" + name.replace("-", "_"))(rest)
    except (CommandError, debug.DebugError) as e:
      self.failed = True
      self.say(f"error: {e}")

  # ---- What is looked at
  def core(self) -> debug.Core:
    """The core that commands are about."""
    if self.stop is None:
      raise CommandError("the program does not run: run starts it")
    return self.stop.core_of(self.core_id)

  def values(self, core=None) -> dict:
    """Names of expressions."""
    core = core or self.core()
    return {"__builtins__": _BUILTINS, "np": np, **core.refs, "grid": core.grid, "core": core}

  def evaluate(self, code, core=None):
    """The value of an expression. CommandError: it has none."""
    try:
      return eval(code, self.values(core))  # the user's own, as in any debugger
    except (CommandError, debug.DebugError):
      raise
    except Exception as e:
      raise CommandError(f"{type(e).__name__}: {e}") from None

  # ---- Breakpoints
  def _breakpoint(self, rest, temporary=False):
    where, condition = split_condition(rest)
    d = self.debugger
    if where.startswith("grid"):
      b = d.break_grid(read_grid(where[4:]))
    elif ":" in where:
      b = d.break_at(where)
    elif where.isdigit():
      b = d.break_at(f"{self._file()}:{where}")
    elif re.fullmatch(r"[A-Za-z_]\w*", where):
      line = _debug_names.function_line(self.command[0], where)
      b = d.break_at(f"{self.command[0]}:{line}") if line else d.break_kernel(where)
    else:
      raise CommandError(f"'{where}' is no place: FILE:LINE, LINE, grid (I,J), or a name")
    b.temporary = temporary
    if condition is not None:
      b.condition = lambda stop: bool(np.all(self.evaluate(condition, stop.core)))
    self.say(f"breakpoint {b.number}: {b.text}{' if' + rest.partition(' if')[2] if condition else ''}")
    return b

  def _file(self):
    place = self.stop.place if self.stop else None
    return place.file if place else self.command[0]

  def do_break(self, rest):
    """break FILE:LINE, break LINE, break grid (I,J), break NAME; with "if EXPR"."""
    if not rest:
      raise CommandError("break wants a place: FILE:LINE, LINE, grid (I,J), or a name")
    self._breakpoint(rest)

  def do_tbreak(self, rest):
    """break, once."""
    if not rest:
      raise CommandError("tbreak wants a place")
    self._breakpoint(rest, temporary=True)

  def do_watch(self, rest):
    """watch REF[SLICE]."""
    name, key = read_ref(rest)
    refs = self.core().refs
    if name not in refs:
      raise CommandError(f"no ref {name}: there are {', '.join(refs)}")
    b = self.debugger.watch(refs[name], key)
    b.text = f"watch {rest.strip()}"
    self.say(f"breakpoint {b.number}: {b.text}")

  def _numbers(self, rest):
    if not all(re.fullmatch(r"\d{1,9}", w) for w in rest.split()):
      raise CommandError("breakpoints have numbers: info breakpoints")
    return [int(w) for w in rest.split()]

  def do_delete(self, rest):
    """delete [N...]: all without numbers."""
    for n in self._numbers(rest) or list(self.debugger.breakpoints):
      self.debugger.delete(n)

  def _enable(self, rest, on):
    for n in self._numbers(rest) or list(self.debugger.breakpoints):
      if n not in self.debugger.breakpoints:
        raise CommandError(f"there is no breakpoint {n}")
      self.debugger.breakpoints[n].enabled = on
    self.debugger.changed()

  def do_disable(self, rest):
    """disable [N...]."""
    self._enable(rest, False)

  def do_enable(self, rest):
    """enable [N...]."""
    self._enable(rest, True)

  # ---- Running
  def go(self, mode, count=1):
    """Goes on, and tells where the program stops."""
    if self.stop is None and self.debugger.child is None:
      raise CommandError("the program does not run: run starts it")
    other = self.core_id if self.stop and self.core_id != self.stop.core_id else 0
    for _ in range(count):
      self.stop = self._go(mode, other)
      if self.stop is None or self.stop.why not in ("step", "break") or (mode != "run" and self.stop.breakpoint):
        break
    self.core_id = self.stop.core_id if self.stop else 0
    self._tell_stop()

  def _go(self, mode, core):
    """Ctrl-C stops the program at its next line; a second one ends it."""
    asked = False
    while True:
      try:
        return self.debugger.go(mode, core)
      except KeyboardInterrupt:
        if asked:
          self.debugger.stop_program()
          self.say("the program was ended")
          return None
        asked = True
        self.debugger.interrupt()
        self.say("interrupted: it stops at the next line of a kernel; Ctrl-C again ends it")

  def _tell_stop(self):
    s, self.listed = self.stop, None
    if s is None:
      for b in self.debugger.breakpoints.values():
        if b.enabled and not b.hits:
          self.say(f"breakpoint {b.number} was never reached: {b.text}")
      status = self.debugger.status
      how = f"with status {status}" if status is None or status >= 0 else f"by signal {-status}"
      self.say(f"the program has ended {how}")
      return
    if s.why == "failure":
      self.found = True
      self.say(f"a check failed: {s.message}")
      if not s.core_id:
        self.say("the kernel has ended: to look at it, break where that was found, and run again")
    elif s.why == "change":
      self._tell_change(s.breakpoint)
    elif s.breakpoint:
      self.say(f"breakpoint {s.breakpoint.number}: {s.breakpoint.text}")
    if s.core_id:
      core = s.core
      self.say(f"{core.kernel}, {core.name}, grid {core.grid} of {core.bounds}: {core.place}" if core.bounds else
               f"{core.kernel}, {core.name}: {core.place}")
      self._quote(core.place)

  def _tell_change(self, b):
    self.say(f"breakpoint {b.number}: {b.text} changed")
    try:
      new = np.array(b.ref[b.key])
    except debug.DebugError:
      return
    if new.shape == b.old.shape and new.dtype == b.old.dtype:
      other = np.argwhere(np.atleast_1d(b.old).view(f"u{new.dtype.itemsize}") != np.atleast_1d(new).view(f"u{new.dtype.itemsize}")) \
          if new.dtype.itemsize <= 8 else []
      for at in other[:4]:
        at = tuple(map(int, at))
        self.say(f"  [{', '.join(map(str, at))}]: {np.atleast_1d(b.old)[at]} -> {np.atleast_1d(new)[at]}")
      if len(other) > 4:
        self.say(f"  ... {len(other)} elements in all")
    b.old = new

  def _quote(self, place):
    if place.text:
      self.say(f"{place.line:6}  {place.text}")

  def do_run(self, rest):
    """run: starts the program, from its beginning."""
    if rest:
      raise CommandError("arguments of the program come behind it: atoll debug kernel.py arguments")
    self.stop = None
    self.debugger.start(self.program)
    self.go("run")

  @property
  def program(self):
    """The command line of the program."""
    return self._atoll + ["run", *self.command]

  _atoll = ["atoll"]

  def do_continue(self, rest):
    """continue [COUNT]."""
    self.go("run", read_count(rest))

  def do_step(self, rest):
    """step [COUNT]."""
    self.go("step", read_count(rest))

  def do_next(self, rest):
    """next [COUNT]."""
    self.go("next", read_count(rest))

  def do_finish(self, rest):
    """finish: to the line that called this function."""
    self.go("finish")

  def do_grid_step(self, rest):
    """grid-step [COUNT]: to the next step of the grid."""
    self.go("grid", read_count(rest))

  def do_until(self, rest):
    """until PLACE: goes on to it."""
    b = self._breakpoint(rest, temporary=True)
    self.go("run")
    self.debugger.breakpoints.pop(b.number, None)
    self.debugger.changed()

  # ---- Looking
  def do_where(self, rest):
    """where."""
    core = self.core()
    for i, (file, line, _) in enumerate(core.place.frames):
      lines = _debug_names.lines(file)
      text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
      self.say(f"#{i} {file}:{line}  {text}")
    self.say(f"{core.kernel} on {core.name}, step {core.step + 1} of {core.steps}"
             + (f", grid {core.grid} of {core.bounds}" if core.bounds else ""))
    for place, turn in core.loops:
      self.say(f"  turn {turn} of the loop at {place}")
    if core.waits:
      self.say(f"  waits for {core.waits['name']} ({core.waits['value']}, needs {core.waits['amount']}) at "
               f"{core.waits['place']}")

  def do_print(self, rest):
    """print EXPR."""
    if not rest:
      raise CommandError("print wants a ref or an expression")
    value = self.evaluate(compile_expression(rest))
    if isinstance(value, debug.Ref):
      self.say(value.describe())
      value = np.asarray(value)
    with np.printoptions(threshold=200, edgeitems=4, linewidth=110):
      self.say(str(value))

  def do_info(self, rest):
    """info refs|semaphores|copies|grid|cores|breakpoints."""
    found = [w for w in _INFO if rest and w.startswith(rest)]
    if len(found) != 1:
      raise CommandError(f"info wants one of {', '.join(_INFO)}")
    getattr(self, "_info_" + found[0])()

  def _info_refs(self):
    for ref in self.core().refs.values():
      self.say(ref.describe())

  def _info_semaphores(self):
    all_ = self.core().semaphores
    for s in all_:
      more = "".join(f", last {w} at {s[k]}" for k, w in (("signalled", "signal"), ("waited", "wait")) if s[k])
      self.say(f"{s['name']} = {s['value']}{more}")
    if not all_:
      self.say("no semaphores")

  def _info_copies(self):
    copies = self.core().copies
    for c in copies:
      self.say(str(c))
    if not copies:
      self.say("no copies under way")

  def _info_grid(self):
    core = self.core()
    self.say(f"step {core.step + 1} of {core.steps}: grid {core.grid} of {core.bounds}")
    for ref in core.refs.values():
      if ref.window is not None:
        self.say(f"  {ref.name}: block {ref.window}")

  def _info_cores(self):
    if self.stop is None:
      raise CommandError("the program does not run: run starts it")
    for c in self.stop.cores:
      self.say(f"{'*' if c.id == self.core_id else ' '} {c.describe()}")

  def _info_breakpoints(self):
    for b in self.debugger.breakpoints.values():
      self.say(repr(b))
    if not self.debugger.breakpoints:
      self.say("no breakpoints")

  def do_core(self, rest):
    """core [N]."""
    if rest:
      self.core_id = self.stop.core_of(read_count(rest)).id if self.stop else self.core().id
    core = self.core()
    self.say(core.describe())
    self._quote(core.waits["place"] if core.waits else core.place)

  def do_list(self, rest):
    """list [LINE]: ten lines around it."""
    if rest:
      file, first = self._file(), max(read_count(rest) - 5, 1)
    elif self.listed:
      file, first = self.listed
    else:
      place = self.core().place if self.stop and self.core_id else None
      file, first = (place.file, max(place.line - 5, 1)) if place else (self.command[0], 1)
    lines = _debug_names.lines(file)
    here = self.stop.place.line if self.stop and self.core_id and self.stop.place.file == file else 0
    if first > len(lines):
      raise CommandError(f"{file} has {len(lines)} lines")
    for n in range(first, min(first + 10, len(lines) + 1)):
      self.say(f"{n:6}{' >' if n == here else '  '}{lines[n - 1]}")
    self.listed = (file, first + 10)

  def do_help(self, rest):
    """help."""
    self.say(HELP)

  def do_quit(self, rest):
    """quit."""
    raise Quit

  # ---- Completion
  def complete(self, line: str, word: str) -> list:
    """What the last word of a line may be."""
    head = line[:len(line) - len(word)].strip()
    if not head:
      return sorted(n for n in (m[3:].replace("_", "-") for m in dir(self) if m.startswith("do_")) if n.startswith(word))
    try:
      name, _ = split_command(head)
    except CommandError:
      return []
    if name == "info":
      return [w for w in _INFO if w.startswith(word)]
    if name in ("print", "watch") and self.stop and self.core_id:
      return [n for n in self.core().refs if n.startswith(word)]
    if name in ("break", "tbreak", "until"):
      files = [str(p) for p in Path(".").glob(glob_of(word) + "*") if p.suffix == ".py" or p.is_dir()]
      return [w for w in ["grid", *(f + ("/" if os.path.isdir(f) else ":") for f in sorted(files))] if w.startswith(word)]
    if name in ("delete", "disable", "enable"):
      return [str(n) for n in self.debugger.breakpoints if str(n).startswith(word)]
    return []


def glob_of(word: str) -> str:
  """The word, for itself, in a pattern of files."""
  return re.sub(r"([*?\[])", r"[\1]", word.lstrip("/"))


# ---- Lines of commands
def interactive(prompt: Prompt):
  """Commands from a terminal, with completion and a history."""
  import readline
  history = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "atoll" / "debug_history"
  try:
    readline.read_history_file(history)
  except OSError:
    pass
  readline.set_completer_delims(" ")
  readline.parse_and_bind("tab: complete")

  def completion(text, state):
    line = readline.get_line_buffer()
    found = prompt.complete(line, text)
    if len(found) == 1 and line.strip() == text:  # a command, whose arguments follow
      found = [found[0] + " "]
    return (found + [None])[state]

  readline.set_completer(completion)
  last = ""
  try:
    while True:
      try:
        line = input("(atoll) ")
      except KeyboardInterrupt:
        print()
        continue
      last = line or last  # an empty line does the same again
      prompt.obey(last)
      if last.split(" ")[0] in ("r", "run"):
        last = ""
  finally:
    try:
      history.parent.mkdir(parents=True, exist_ok=True)
      readline.set_history_length(1000)
      readline.write_history_file(history)
    except OSError:
      pass


def batch(prompt: Prompt, lines):
  """Commands from elsewhere, each shown before what it says."""
  for line in lines:
    line = line.rstrip("\n")
    if line.strip():
      prompt.say(f"(atoll) {line}")
      prompt.obey(line)


def parser() -> argparse.ArgumentParser:
  """The command's arguments."""
  p = argparse.ArgumentParser(prog="atoll debug", description="runs a program and stops in its Pallas kernels (docs/debug.md)")
  p.add_argument("--atoll", default="atoll", help=argparse.SUPPRESS)
  p.add_argument("--eval", action="append", default=[], help="a command to begin with; several in their order")
  p.add_argument("--command", action="append", default=[], help="a file of commands; -: standard input")
  p.add_argument("--check", default=debug.CHECKS, help="checks whose failures stop the program (ATOLL_CHECK; %(default)s)")
  p.add_argument("--batch", action="store_true", help="end behind these commands")
  p.add_argument("program", help="kernel.py")
  p.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
  return p


def work(prompt: Prompt, options):
  """All commands; the end of input ends the session."""
  try:
    batch(prompt, options.eval)
    for name in options.command:
      if name == "-":
        batch(prompt, sys.stdin)
      else:
        with open(name, encoding="utf-8", errors="replace") as f:
          batch(prompt, f)
    if options.batch or "-" in options.command:
      return
    if sys.stdin.isatty():
      interactive(prompt)
    else:
      batch(prompt, sys.stdin)
  except (EOFError, Quit):
    pass


def main(argv=None) -> int:
  """The command; its exit status: 0, 1 (a check failed, or the program did), 2 (wrong usage), 3 (a command was wrong)."""
  options = parser().parse_args(argv)
  for name in [options.program, *(s for s in options.command if s != "-")]:
    if not os.path.isfile(name):
      print(f"atoll debug: cannot read {shlex.quote(name)}", file=sys.stderr)
      return 2
  d = debug.Debugger(options.check)
  prompt = Prompt(d, [options.program, *options.arguments])
  prompt._atoll = [options.atoll]
  try:
    work(prompt, options)
    ended = d.status if d.child is None else None
  finally:
    d.close()
  return 1 if prompt.found or ended else 3 if prompt.failed else 0


if __name__ == "__main__":
  sys.exit(main())
