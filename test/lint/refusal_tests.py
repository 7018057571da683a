#!/usr/bin/env python3
"""Each message by which the chip's rules refuse a kernel (tools/refusals.json) is what some test expects.

usage: refusal_tests.py SOURCE_DIR

A test expects a message where one of its string literals has it, or where one of at least 16 letters is a part of the whole
text in which src/tpu/rules*.c says it.
"""
import ast
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import refusals  # noqa: E402

STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def literals(path: pathlib.Path) -> list[str]:
    """The strings of a test; adjacent ones, and the constant parts of f-strings, joined."""
    text = path.read_text()
    if path.suffix == ".c":
        return ["".join(m) for m in (STRING.findall(block) for block in re.findall(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+', text))]
    return [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def main() -> int:
    top = pathlib.Path(sys.argv[1])
    entries = json.loads((top / "tools" / "refusals.json").read_text())
    known = [m.strip() for entry in entries for m in entry["messages"]]
    tests = [p for folder, kind in (("test/e2e", "test_*.py"), ("test/pallas", "*.py"), ("src/tpu", "*_test.c"), ("src/mosaic", "*_test.c"))
             for p in sorted((top / folder).glob(kind))]
    said = [s for p in tests for s in literals(p)]
    whole = "\n".join(said)
    parts = [s for s in said if len(s) >= 16]
    texts = [words for source in sorted((top / "src/tpu").glob("rules*.c")) for _, words in refusals.messages(source)[0]]
    bad = []
    for m in known:
        # Texts with what the message has around it, cut where a number or a name is put in.
        around = [piece for words in texts if m in words for piece in re.split(r"%[\d.*]*(?:ll)?[a-z]", words)]
        around = [piece for piece in around if len(piece) >= 16]
        if m not in whole and not any(s in words for words in texts if m in words for s in parts) \
                and not any(piece in whole for piece in around):
            bad.append(m)
    for m in bad:
        print(f"tools/refusals.json: no test expects: {m}")
    print(f"{len(known)} messages of the chip's rules, {len(bad)} of them without a test")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
