#!/usr/bin/env python3
"""Fails on text that does not belong in the project: paths of a machine, registry
hosts, words of unfinished work, and on programs that hide a module of Python's own; warns about files over 1,000 lines.

usage: text.py SOURCE_DIR
"""
import pathlib, re, subprocess, sys

BAD = [
    (re.compile(r"(^|[^A-Za-z0-9_.])/(work|root|home|farm)/"), "an absolute path of a machine"),
    (re.compile(r"https?://[a-z0-9.-]*(pypi|debian)\."), "a registry host"),
    (re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"), "unfinished work"),
]
SUFFIXES = {".c", ".h", ".def", ".py", ".md", ".sh", ".txt", ".cmake", ".json", ".toml", ""}


def main() -> int:
    top = pathlib.Path(sys.argv[1])
    try:
        names = subprocess.run(["git", "-C", top, "ls-files"], capture_output=True, text=True,
                               check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        # Unpacked from an archive: what was generated since lies in these folders.
        paths = (p.relative_to(top) for p in top.rglob("*"))
        names = [str(p) for p in paths
                 if not (p.parts[0].startswith(".venv") or p.parts[0] in {"build", "demo-out", "build.log"}
                         or "__pycache__" in p.parts)]
    bad = 0
    for name in filter(None, names):
        path = top / name
        if path.suffix not in SUFFIXES or "corpora" in name or name == "LICENSE" or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            for pattern, what in BAD:
                if pattern.search(line):
                    print(f"{name}:{number}: {what}: {line.strip()[:100]}")
                    bad += 1
        if path.suffix == ".py" and path.stem in sys.stdlib_module_names and not (path.parent / "__init__.py").exists():
            print(f"{name}: programs in this folder get it where they import Python's own {path.stem}")
            bad += 1
        if len(lines) > 1000 and path.suffix in {".c", ".h", ".py"}:
            print(f"warning: {name}: {len(lines)} lines; would a reader rather have two files?")
    print(f"{len(names)} files checked, {bad} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
