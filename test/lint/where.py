#!/usr/bin/env python3
"""docs/where.md tells the truth: its ten tasks name files that exist, and functions (or tables) that they define.

usage: where.py SOURCE_DIR

`path`: `name`, `name`, ... or `name`s in the same sentence: those behind a path, up to the next path or the end of the
sentence, are defined in it.
"""
import pathlib
import re
import sys

NAME = re.compile(r"`([^`]+)`")
PATH = re.compile(r"(?:src|test|tools|data|docs)/[\w./-]+")


def defines(path: pathlib.Path, name: str) -> bool:
    """Does the file have the function's body, or the table's rows?"""
    text = path.read_text()
    function = rf"^[A-Za-z_][^;{{}}#]*?\b{name}\([^;{{}}]*\)\s*\{{"
    table = rf"^[A-Za-z_][^;{{}}()#]*?\b{name}\[[^;{{}}]*\]\s*=\s*\{{"
    return bool(re.search(function, text, re.M) or re.search(table, text, re.M))


def check(top: pathlib.Path, row: str) -> list[str]:
    """What is wrong with the names of one task."""
    bad, path = [], None
    for part in re.split(r"(?<=[.;|])\s|;\s", row):
        path = None
        for name in NAME.findall(part):
            if PATH.fullmatch(name):
                path = top / name
                if not path.exists():
                    bad.append(f"no {name}")
                    path = None
            elif path and path.suffix == ".c" and re.fullmatch(r"[a-z]\w+", name) and not defines(path, name):
                bad.append(f"{path.relative_to(top)} does not define {name}")
    return bad


def main() -> int:
    top = pathlib.Path(sys.argv[1])
    rows = [line for line in (top / "docs/where.md").read_text().splitlines() if line.startswith("| ")][1:]
    bad = []
    for row in rows:
        found = check(top, row)
        task = row.strip("| ").split(" | ")[0]
        named = [n for n in NAME.findall(row) if re.fullmatch(r"[a-z]\w+", n)]
        if not named:
            found.append("names no function")
        bad += [f"docs/where.md: {task}: {b}" for b in found]
    if len(rows) < 10:
        bad.append(f"docs/where.md: {len(rows)} tasks, 10 are asked for")
    print("\n".join(bad) or f"{len(rows)} tasks, each with files and functions that are there")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
