#!/usr/bin/env python3
"""Links in Markdown files and notebooks lead somewhere: to a file that is there, and to a heading that it has. Paths
that CONTRIBUTING.md and SECURITY.md name exist, and every page of docs is in docs/README.md.

usage: links.py SOURCE_DIR
"""
import json
import pathlib
import re
import sys

LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:src|tools|test|docs|data|bench|examples|python|cmake)/[\w./*-]+)")


def text_of(path):
    """The Markdown of a page, or of a notebook's cells of text."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        text = "\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(path):
    """What GitHub calls the page's headings."""
    found = re.findall(r"^#+ +(.*)", text_of(path), re.M)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h).lower() for h in found)
    names = {re.sub(r"[^\w\- ]", "", h).strip().replace(" ", "-") for h in plain}
    return names | set(re.findall(r'<a (?:name|id)="([^"]+)"', path.read_text()))


def findings(top):
    pages = [p for folder, pattern in ((top, "*.md"), (top / "docs", "**/*.md"), (top / "docs", "**/*.ipynb"),
                                       (top / "src", "*/README.md"), (top / "python", "README.md"))
             for p in sorted(folder.glob(pattern))]
    linked = 0
    for page in pages:
        for target in LINK.findall(text_of(page)):
            if re.match(r"[a-z]+:", target):
                continue
            linked += 1
            name, _, anchor = target.partition("#")
            there = (page.parent / name).resolve() if name else page
            if not there.exists():
                yield f"{page.relative_to(top)}: no file {target}"
            elif anchor and there.suffix in (".md", ".ipynb") and anchor not in anchors(there):
                yield f"{page.relative_to(top)}: no heading {target}"
    for name in ("CONTRIBUTING.md", "SECURITY.md"):
        for path in PATH.findall((top / name).read_text()):
            if not list(top.glob(path.rstrip("/."))):
                yield f"{name}: no {path}"
    index = (top / "docs" / "README.md").read_text()
    for page in [*sorted((top / "docs").glob("*.md")), *sorted((top / "docs" / "notebooks").glob("*.ipynb"))]:
        if page.name != "README.md" and f"({page.relative_to(top / 'docs')})" not in index:
            yield f"docs/README.md: without {page.name}"
    if not linked:
        yield "no link was found: the pattern is wrong"


def main():
    found = list(findings(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "every link leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
