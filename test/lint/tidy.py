#!/usr/bin/env python3
"""clang-tidy over C files of src, with the checks of .clang-tidy.

usage: tidy.py SOURCE_DIR BUILD_DIR [--all] [--files=N] [FILE...]

Without --all or names: the files that the last commit or the working tree changed, then files that include a header that
was changed, then others, N in all (default 24): another part with each commit, the same for one commit. A file that was found clean is not asked again while it, the
headers that it includes, the checks and the way it is compiled stay the same (BUILD_DIR/tidy remembers).
Tests are not read: cmocka's macros jump, which the analyzer does not see. Files that test/lint/tidy_unread.txt names have
not been made clean yet: only --all reads them. A name goes when its file is clean, none is added.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "14"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
FINDING = re.compile(r"^(\S+?:\d+:\d+: (?:warning|error): .*)$", re.M)


def tool() -> str | None:
    """A clang-tidy of the version that the tree is clean with: others have other checks."""
    for name in (f"clang-tidy-{VERSION}", "clang-tidy"):
        path = shutil.which(name)
        if path and f"version {VERSION}." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def git(top: pathlib.Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", top, *words], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


class Tree:
    """The files that are compiled, and what each depends on."""

    def __init__(self, top: pathlib.Path, build: pathlib.Path):
        self.top, self.build = top, build
        self.commands = {}
        for c in json.loads((build / "compile_commands.json").read_text()):
            name = os.path.relpath(c["file"], top)
            if name.startswith("src/") and not re.search(r"_(test|test_util|fuzz)\.c$", name):
                self.commands[name] = c["command"]
        self.texts, self.version = {}, ""

    def text(self, name: str) -> str:
        if name not in self.texts:
            path = self.top / "src" / name
            self.texts[name] = path.read_text(errors="replace") if path.is_file() else ""
        return self.texts[name]

    def state(self, name: str) -> str:
        """A digest of all that a verdict on the file depends on."""
        h = hashlib.sha256((self.version + self.commands[name]).encode())
        h.update((self.top / ".clang-tidy").read_bytes())
        for path in sorted(self.read_by(name)):
            h.update(path.encode() + b"\0" + self.text(path).encode())
        return h.hexdigest()

    def read_by(self, name: str) -> set[str]:
        """The file and all of src that it includes, without "src/"."""
        seen, todo = set(), [name.removeprefix("src/")]
        while todo:
            path = todo.pop()
            if path in seen:
                continue
            seen.add(path)
            todo += [i if "/" in i else f"{os.path.dirname(path)}/{i}" for i in INCLUDE.findall(self.text(path))]
        return seen

    def stamp(self, name: str) -> pathlib.Path:
        return self.build / "tidy" / (name.replace("/", ".") + ".clean")


def unread(top: pathlib.Path) -> set[str]:
    path = top / "test/lint/tidy_unread.txt"
    return {n for n in path.read_text().split("\n") if n and n[0] != "#"} if path.exists() else set()


def chosen(tree: Tree, most: int) -> list[str]:
    """Changed files first, then who includes a changed header, then others; by a hash that each commit changes."""
    commit = git(tree.top, "rev-parse", "HEAD").strip()
    changed = set(git(tree.top, "diff", "--name-only", "HEAD").split())
    changed |= set(git(tree.top, "diff", "--name-only", "HEAD~1", "HEAD").split())
    headers = {n.removeprefix("src/") for n in changed if n.endswith((".h", ".def"))}
    read = set(tree.commands) - unread(tree.top)
    touched = {n for n in read if headers and headers & tree.read_by(n)}

    def rank(name):
        return name not in changed, name not in touched, hashlib.sha256((commit + name).encode()).digest()
    return sorted(read, key=rank)[:most]


def run(path: str, tree: Tree, name: str) -> str:
    """Findings on a file; "" and a stamp where there are none."""
    state, stamp = tree.state(name), tree.stamp(name)
    if stamp.exists() and stamp.read_text() == state:
        return ""
    done = subprocess.run([path, "-p", tree.build, "--quiet", "--extra-arg=-Wno-error",
                           tree.top / name], capture_output=True, text=True)
    found = sorted(set(FINDING.findall(done.stdout)))
    if not found and done.returncode:
        found = [f"{name}: clang-tidy ended with {done.returncode}: {done.stderr.strip()[-500:]}"]
    if not found:
        stamp.write_text(state)
    return "\n".join(found)


def main() -> int:
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    top, build = (pathlib.Path(n).resolve() for n in names[:2])
    path = tool()
    if not path:
        print(f"clang-tidy {VERSION} is not installed; tools/setup.sh test installs it")
        return 1
    tree = Tree(top, build)
    tree.version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    most = next((int(a[8:]) for a in sys.argv if a.startswith("--files=")), 24)
    todo = names[2:] or (sorted(tree.commands) if "--all" in sys.argv else chosen(tree, most))
    (build / "tidy").mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [f for f in pool.map(lambda n: run(path, tree, n), todo) if f]
    gone = sorted(unread(top) - set(tree.commands))
    found += [f"test/lint/tidy_unread.txt: no file {n}" for n in gone]
    print("\n".join(found))
    print(f"{len(todo)} of {len(tree.commands)} files, {len(found)} with findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
