#!/usr/bin/env python3
"""Finds functions that call themselves, directly or through others of their file, on operands of a node:
along paths that join such work is exponential, and its depth is the program's. Walks use base/walk.h.

usage: recursion.py SOURCE_DIR

test/lint/recursion.txt lists what may: one line each, "path function: reason".
"""
import pathlib
import re
import sys

# An operand, or the input of a node of a kernel, is passed on.
OPERAND = re.compile(r"(operands|->in|\.in)\[")
FUNCTION = re.compile(r"^(?!(?:typedef|struct|enum|union|#|//))[A-Za-z_][^;{}=]*?\b(\w+)\(([^;{}]*)\)\s*\{\n(.*?)^\}", re.M | re.S)


def calls(body, name):
  """The arguments of each call of `name`."""
  for m in re.finditer(rf"\b{name}\(", body):
    depth, end = 1, m.end()
    while depth and end < len(body):
      depth += {"(": 1, ")": -1}.get(body[end], 0)
      end += 1
    yield body[m.end():end - 1]


def reaches(graph, start, goal):
  seen, todo = set(), [start]
  while todo:
    f = todo.pop()
    if f == goal:
      return True
    if f not in seen:
      seen.add(f)
      todo += graph[f]
  return False


def findings(path):
  text = path.read_text()
  bodies = {m[1]: m[3] for m in FUNCTION.finditer(text)}
  graph = {f: [g for g in bodies if re.search(rf"\b{g}\(", body)] for f, body in bodies.items()}
  for f, body in bodies.items():
    for g in graph[f]:
      if any(OPERAND.search(a) for a in calls(body, g)) and reaches(graph, g, f):
        yield f
        break


def main():
  top = pathlib.Path(sys.argv[1])
  allowed = {}
  for line in (top / "test/lint/recursion.txt").read_text().splitlines():
    if line and not line.startswith("#"):
      place, reason = line.split(": ", 1)
      allowed[place] = reason
  found = {f"{path.relative_to(top)} {f}" for path in sorted((top / "src").rglob("*.c")) for f in findings(path)}
  for place in sorted(found - set(allowed)):
    print(f"{place}: calls itself on operands; walk with base/walk.h, or say in test/lint/recursion.txt why not")
  for place in sorted(set(allowed) - found):
    print(f"{place}: does not, so its line in test/lint/recursion.txt can go")
  print(f"{len(found)} recursive walks, {len(allowed)} allowed")
  return found != set(allowed)


if __name__ == "__main__":
  sys.exit(main())
