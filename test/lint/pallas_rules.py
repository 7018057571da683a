#!/usr/bin/env python3
"""Every rule in docs/pallas.md names tests, and they exist.

  pallas_rules.py SOURCE_DIR
"""
import pathlib
import re
import sys


def main():
    top = pathlib.Path(sys.argv[1])
    text = (top / "docs" / "pallas.md").read_text()
    table = text[text.index("| rule | where | tests |"):].split("\n\n")[0].splitlines()[2:]
    defects = "".join(f.read_text() for f in sorted((top / "test" / "pallas").glob("*defects.py")))
    verdicts = top.parent / "shared" / "facts" / "pallas" / "verdicts_dev.json"
    names = re.findall(r'"(\w+)/', verdicts.read_text()) if verdicts.is_file() else None
    sources = {p.stem: p for p in (top / "src").rglob("*_test.c")}
    findings = []
    for row in table:
        rule, _, tests = [c.strip() for c in row.strip("|").split("|")]
        found = re.findall(r"`([^`]+)`", tests)
        if not found:
            findings.append(f"{rule}: no test")
        for test in found:
            file, function = (re.split(r"::|: ", test) + [""])[:2]
            if file == "verdicts":
                good = names is None or any(n.startswith(function) for n in names)
            elif file == "defects":
                good = f"\ndef {function}(" in defects
            elif file.endswith(".py"):
                path = top / "test" / "e2e" / file
                good = path.is_file() and f"\ndef {function}(" in path.read_text()
            else:
                good = file in sources and f"static void {function}(" in sources[file].read_text()
            if not good:
                findings.append(f"{rule}: no test {test}")
    print("\n".join(findings) or f"{len(table)} rules, each with its tests")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
