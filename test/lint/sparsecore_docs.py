#!/usr/bin/env python3
"""Fails when a row of docs/sparsecore.md's last table names no test, or one that is not
there.

usage: sparsecore_docs.py SOURCE_DIR

A test is `path::name`: a Python function test_..., or a test of a C file's table. That
they pass is what the suite itself says.
"""
import pathlib, re, sys

HEADING = "## Everything that the SparseCore documentation names"
TEST = re.compile(r"`([\w./-]+)::(\w+)`")


def exists(top: pathlib.Path, path: str, name: str) -> bool:
    file = top / path
    if not file.is_file():
        return False
    text = file.read_text()
    if path.endswith(".py"):
        return re.search(rf"^def {name}\(", text, re.M) is not None
    return re.search(rf"cmocka_unit_test(_prestate)?\({name}\b", text) is not None


def rows_of(text: str) -> list[str]:
    _, _, section = text.partition(HEADING)
    rows = [line for line in section.split("\n") if line.startswith("|")]
    return rows[2:]  # after the head and its rule


def main() -> int:
    top = pathlib.Path(sys.argv[1])
    rows, bad = rows_of((top / "docs/sparsecore.md").read_text()), []
    for row in rows:
        cells = [c.strip() for c in row.strip("|").split(" | ")]
        tests = TEST.findall(cells[-1]) if len(cells) == 3 else []
        if not tests:
            bad.append(f"no test: {row}")
        bad += [f"no test {p}::{n}, named by '{cells[0]}'" for p, n in tests if not exists(top, p, n)]
    if len(rows) < 40:
        bad.append(f"only {len(rows)} rows under '{HEADING}'")
    print("\n".join(bad) if bad else f"{len(rows)} rows, each with its tests")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
