#!/usr/bin/env python3
"""docs/refusals.md from tools/refusals.json, which gives cause and cure of each message by which src/tpu/rules*.c
refuses a kernel.

usage: refusals.py          writes the page
       refusals.py --check  fails where a message has no entry, an entry no message, or the page is old
"""
import json
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]
PAGE = TOP / "docs" / "refusals.md"
CALL = re.compile(r"\b(?:at_mosaic_refuse|AT_FAIL)\s*\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
HEAD = """# When the chip would refuse a kernel

Generated from `tools/refusals.json`. A kernel that the TPU compiler would refuse for `ATOLL_TARGET` is refused by Atoll, in the
same words. This page says why, and what to do. `ATOLL_LENIENT=1` makes a refusal a warning, and the kernel runs here; on the
chip it will not. Messages are shortened to what tells them apart.
"""


def arguments(text, at):
    """What stands in the brackets that open before `at`."""
    depth, i, inside = 1, at, False
    while depth:
        c = text[i]
        if inside:
            i += c == "\\"
            inside = c != '"'
        else:
            inside = c == '"'
            depth += (c == "(") - (c == ")")
        i += 1
    return text[at:i - 1]


def messages(source):
    """Each refusal's place and its words, put together from its string literals, and all literals of the file."""
    text = source.read_text()
    found = []
    for call in CALL.finditer(text):
        words = "".join(STRING.findall(arguments(text, call.end()))).replace('\\"', '"')
        if re.search(r"[a-zA-Z]{3}", words.replace("out of memory", "")):
            found.append((f"{source.name}:{text[:call.start()].count(chr(10)) + 1}", words))
    literals = "".join(STRING.findall(text)).replace('\\"', '"')
    return found, literals


def page(entries):
    out = [HEAD]
    for entry in entries:
        out.append(f"## {entry['title']}\n")
        out += [f"- `{m.strip()}`" for m in entry["messages"]]
        out.append(f"\nCause: {entry['cause']}\n\nCure: {entry['cure']}\n")
    return "\n".join(out)


def findings(entries):
    said, literals = [], ""
    for source in sorted((TOP / "src" / "tpu").glob("rules*.c")):
        found, more = messages(source)
        said, literals = said + found, literals + more
    known = [m for entry in entries for m in entry["messages"]]
    yield from (f"{place}: without cause and cure: {words[:120]}" for place, words in said
                if not any(m in words for m in known))
    yield from (f"tools/refusals.json: no refusal says: {m}" for m in known if m not in literals)
    yield from (f"tools/refusals.json: twice: {m}" for m in known if known.count(m) > 1)
    if len(said) < 50:
        yield "hardly a refusal was found: the pattern is wrong"


def main():
    entries = json.loads((TOP / "tools" / "refusals.json").read_text())
    if "--check" not in sys.argv[1:]:
        return PAGE.write_text(page(entries)) and 0
    found = list(findings(entries))
    if not PAGE.is_file() or PAGE.read_text() != page(entries):
        found.append("run tools/docs.sh: docs/refusals.md is old")
    print("\n".join(found) or f"{len(entries)} kinds of refusals, each with cause and cure")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
