#!/usr/bin/env python3
"""Fails on C files that differ from what clang-format makes of them by the tree's .clang-format.

usage: format.py SOURCE_DIR [--fix]

Another version than 14, which Debian 12 has, formats some lines differently: it is not asked.
"""
import pathlib, re, shutil, subprocess, sys

VERSION = "14"


def files(top: pathlib.Path) -> list[str]:
    """The tree's own C files; recorded inputs of tests stay as they came."""
    try:
        names = subprocess.run(["git", "-C", top, "ls-files", "*.c", "*.h"], capture_output=True,
                               text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        folders = ("src", "bench", "tools", "test", "examples")
        names = [str(p.relative_to(top)) for f in folders for p in (top / f).rglob("*.[ch]")]
    return sorted(n for n in names if n and "corpora" not in n)


def formatter() -> str | None:
    """A clang-format of the version that the tree is formatted with."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path:
            text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {VERSION}\.", text):
                return path
    return None


def main() -> int:
    top = pathlib.Path(sys.argv[1])
    tool = formatter()
    if not tool:
        print(f"clang-format {VERSION} is not installed; tools/setup.sh test installs it")
        return 1
    names = files(top)
    how = ["-i"] if "--fix" in sys.argv[2:] else ["--dry-run", "-Werror"]
    done = subprocess.run([tool, "--style=file", *how, *names], cwd=top, capture_output=True,
                          text=True)
    bad = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", done.stderr, re.M)))
    for name in bad:
        print(f"{name}: not formatted; test/lint/format.py . --fix")
    print(f"{len(names)} files, {len(bad)} not formatted")
    return 1 if bad or done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
