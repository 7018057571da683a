#!/usr/bin/env python3
"""Every module of python/atoll, its public functions and classes, and their public methods have a docstring.

usage: docstrings.py SOURCE_DIR

Modules of every name count: atoll hands out names of its private ones (_x.py).
"""
import ast
import pathlib
import sys

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
SHARES = ("overload", "setter", "deleter")  # decorators


def definitions(body):
  """The functions and classes of `body`, also those under if, try and the like."""
  for node in body:
    if isinstance(node, FUNCTION + (ast.ClassDef,)):
      yield node
    else:
      for part in ("body", "handlers", "orelse", "finalbody"):
        yield from definitions(getattr(node, part, []))


def public(body, owner=""):
  """(name, node) of each public function and class, and of what is public in the latter. Overloads and
  setters share the docstring of another definition."""
  for node in definitions(body):
    shares = any(getattr(d, "attr", getattr(d, "id", "")) in SHARES for d in node.decorator_list)
    if not node.name.startswith("_") and not shares:
      yield owner + node.name, node
      if isinstance(node, ast.ClassDef):
        yield from public(node.body, f"{owner}{node.name}.")


def main():
  top = pathlib.Path(sys.argv[1])
  count, missing = 0, []
  for path in sorted((top / "python" / "atoll").rglob("*.py")):
    module = ast.parse(path.read_text(), str(path))
    for name, node in [(path.stem, module), *public(module.body)]:
      count += 1
      if not (ast.get_docstring(node) or "").strip():
        missing.append(f"{path.relative_to(top)}:{getattr(node, 'lineno', 1)}: {name}")
  print("\n".join(missing) or f"{count} public names of atoll, each with a docstring")
  return 1 if missing or not count else 0


if __name__ == "__main__":
  sys.exit(main())
