"""What the source says of a kernel: names of its refs, and which lines a breakpoint may stand for."""

import ast
import functools
import os
import re

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@functools.lru_cache(maxsize=64)
def _read(path, stamp):
  del stamp  # another text has another
  with open(path, "rb") as f:
    text = f.read()
  try:
    return text.decode("utf-8", "replace").splitlines(), ast.parse(text)
  except (SyntaxError, ValueError):
    return text.decode("utf-8", "replace").splitlines(), None


def _source(path):
  """Lines and tree of a file; ([], None): there is none."""
  try:
    return _read(path, os.stat(path).st_mtime_ns)
  except OSError:
    return [], None


def lines(path: str) -> list:
  """The lines of a file, without their ends; []: it cannot be read."""
  return _source(path)[0]


def functions_around(path: str, line: int) -> list:
  """The functions whose text holds a line, the outermost first."""
  tree = _source(path)[1]
  found = [n for n in ast.walk(tree) if isinstance(n, _FUNCTION)
           and _first_line(n) <= line <= n.end_lineno] if tree else []
  return sorted(found, key=lambda n: (_first_line(n), -n.end_lineno))


def _first_line(node):
  return min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])])


def function_range(path: str, line: int) -> tuple:
  """The first and the last line of the outermost function around a line; the line itself outside of all."""
  around = functions_around(path, line)
  return (_first_line(around[0]), around[0].end_lineno) if around else (line, line)


def find_file(name: str) -> str:
  """The file that a breakpoint's FILE names, where that can be read from here; else as it is."""
  return os.path.abspath(name) if os.path.isfile(name) else name


def lines_of_break(path: str, line: int) -> tuple:
  """The lines that a breakpoint may stand for: from its own to the end of the innermost function around it, as
  not every line has code of the kernel."""
  around = functions_around(path, line)
  return line, around[-1].end_lineno if around else line


def function_line(path: str, name: str) -> int | None:
  """The first line of the body of a function."""
  tree = _source(path)[1]
  for node in ast.walk(tree) if tree else ():
    if isinstance(node, _FUNCTION[:2]) and node.name == name:
      return node.body[0].lineno
  return None


# ---- Refs
def _parameters(node, count):
  """Names of the last `count` positional parameters, or None. What has a default is no ref, if there are enough
  without; those before are bound by functools.partial."""
  a = node.args
  names = [p.arg for p in a.posonlyargs + a.args]
  if names[:1] == ["self"]:
    names = names[1:]
  if a.vararg:
    more = count - len(names)
    return names + [f"{a.vararg.arg}{i}" for i in range(more)] if more >= 0 else None
  without = len(names) - len(a.defaults)
  names = names[:without] if without >= count else names
  return names[len(names) - count:] if len(names) >= count else None


def argument_names(path: str, line: int, kernel: str, count: int) -> list | None:
  """Names of a kernel's arguments: of the function around `line` that has its name, of the only one of the file that
  has it (a pipeline's body is outside of the kernel that runs it), or of one around that has enough parameters."""
  around = functions_around(path, line)
  named = [n for n in around if getattr(n, "name", "") == kernel]
  if not named and around:
    named = [n for n in ast.walk(_source(path)[1]) if getattr(n, "name", "") == kernel and isinstance(n, _FUNCTION)]
    named = named if len(named) == 1 else []
  for node in named + around[::-1]:
    names = _parameters(node, count)
    if names:
      return names
  return None


def _is_scope(call):
  return isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) == "run_scoped"


def _scope_at(path, line):
  """The call of run_scoped on a line and the function that it calls."""
  tree = _source(path)[1]
  best = None
  for node in ast.walk(tree) if tree else ():
    if _is_scope(node) and node.lineno <= line <= node.end_lineno:
      best = (node, node.args[0] if node.args else None)
    for d in getattr(node, "decorator_list", ()):
      bound = isinstance(d, ast.Call) and any("run_scoped" in ast.unparse(a) for a in d.args)
      if bound and d.lineno <= line <= node.end_lineno and best is None:
        best = (d, node)
  if best and isinstance(best[1], ast.Name):
    defined = [n for n in ast.walk(tree) if isinstance(n, _FUNCTION[:2]) and n.name == best[1].id]
    best = best[0], next((n for n in reversed(defined) if n.lineno <= line), None)
  return best if best and isinstance(best[1], _FUNCTION) else (None, None)


def scope_names(path: str, line: int, count: int) -> list | None:
  """Names of what `pl.run_scoped` on a line allocates: positional parameters, then keywords in their order."""
  call, function = _scope_at(path, line)
  if call is None:
    return None
  keywords = sorted(k.arg for k in call.keywords if k.arg and k.arg != "collective_axes")
  own = [p.arg for p in function.args.posonlyargs + function.args.args if p.arg not in keywords]
  names = own[:max(count - len(keywords), 0)] + keywords
  return names if len(names) == count else None


# ---- Places
_CALL = re.compile(r", called at (.*?):(\d+):(\d+)(?=, called at |$)")


def frames(place: dict) -> list:
  """(file, line, column) of a place and of what called it, the innermost first."""
  if not place:
    return []
  calls = [(f, int(n), int(c)) for f, n, c in _CALL.findall(place.get("op", ""))]
  return [(place["file"], place["line"], place["column"])] + calls
