#!/usr/bin/env python3
"""Plants faults in C files of src, one at a time, and says which of them the unit tests of their room catch.

usage: mutate.py BUILD_DIR [--count=N] [--seed=N] [--rooms=base,hlo] [--seconds=60] [--json=FILE]

A fault is drawn by seed: a comparison swapped, a number or bound off by one, a statement left out, a constant changed, a
condition negated. The changed file is compiled apart and linked in front of its room's library, so neither the tree nor
the build changes. Tests are those of the room that are built and up to date in BUILD_DIR, under ATOLL_VERIFY=1 as in
ctest; what only makes tests (random*.c) is left alone, and so are asserts and functions that only they call.

  caught      a test failed, and an assert stopped it first (AT_ASSERT, AT_VERIFY, or an AT_ENSURE whose message the test
              shows), or a check of the test's own
  survived    all tests passed: a test is missing, or the change means nothing (for a reader to judge)
  hangs       a test took more than --seconds of CPU time, or ten times that by the clock: caught, too
"""
import collections
import json
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^\s*#[^\n]*(?:\\\n[^\n]*)*', re.S | re.M)
COMPARE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


# An assert with another condition is no fault of the code.
ASSERT = re.compile(r"\bAT_(?:ASSERT|ENSURE|VERIFY|VERIFY_OK)\((?:[^();]|\((?:[^();]|\([^();]*\))*\))*\);")


FUNCTION = re.compile(r"^static [\w *]*?\b(\w+)\([^;{}]*\) \{\n(?:[^}].*\n|\n)*\}$", re.M)


def code_of(text: str) -> str:
    """The text with comments, strings, the preprocessor's lines, asserts and what only these call blanked: places stay."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m[0])

    plain = TOKEN.sub(blank, text)
    code = ASSERT.sub(blank, plain)
    # Named more than once before asserts were blanked, and once now: not those whose callers are macros.
    while checks := [m for m in FUNCTION.finditer(code) if len(re.findall(rf"\b{m[1]}\b", code)) == 1
                     and len(re.findall(rf"\b{m[1]}\b", plain)) > 1]:
        for m in checks:
            code = code[:m.start()] + blank(m) + code[m.end():]
    return code


def swapped(code):
    for m in re.finditer(r" (<=|>=|==|!=|<|>) ", code):
        yield m.start(1), m.end(1), COMPARE[m[1]]


def off_by_one(code):
    for m in re.finditer(r" ([+-]) 1\b(?!\.)", code):
        yield m.start(), m.end(), ""
    for m in re.finditer(r"\b(?:u?int\w*|size_t) \w+ = (0);", code):
        yield m.start(1), m.end(1), "1"


def left_out(code):
    """Calls and assignments that are a whole line."""
    for m in re.finditer(r"^ +((?!return\b|break\b|goto\b|else\b|case\b|AT_ASSERT|AT_ENSURE)[a-z_][\w>.\[\]-]*"
                         r"(?:\([^;{}\n]*\)| [-+|&^*]?= [^;{}\n]*|\+\+|--));$", code, re.M):
        yield m.start(1), m.end(1), "(void)0"


def other_constant(code):
    for m in re.finditer(r"(?<![\w.\"'])([2-9]|[1-9]\d{1,3})(?![\w.'\"])", code):
        yield m.start(1), m.end(1), str(int(m[1]) + 1)
    for m in re.finditer(r"\b(true|false)\b", code):
        yield m.start(1), m.end(1), "false" if m[1] == "true" else "true"


def negated(code):
    for m in re.finditer(r"\b(?:if|while) \(([^(){};\n]+(?:\([^(){};\n]*\)[^(){};\n]*)*)\)", code):
        yield m.start(1), m.end(1), f"!({m[1]})"


KINDS = {"comparison swapped": swapped, "off by one": off_by_one, "statement left out": left_out,
         "constant changed": other_constant, "condition negated": negated}


class Build:
    """How files of a build folder are compiled, and its tests linked."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        commands = json.loads((folder / "compile_commands.json").read_text())
        # As for its room: growth tests compile files once more, to count blocks.
        self.compile = {c["file"]: c["command"] for c in commands if "CMakeFiles/at_" in c["command"]}

    def tests(self, room: str) -> list[str]:
        names = sorted(p.stem for p in (TOP / "src" / room).glob("*_test.c"))
        return [n for n in names if (self.folder / n).is_file()]

    def object(self, source: pathlib.Path, like: pathlib.Path, out: pathlib.Path) -> bool:
        words = shlex.split(self.compile[str(like)])
        words[words.index("-o") + 1] = str(out)
        words[words.index("-c") + 1] = str(source)
        words += ["-Wno-error", "-w", "-O1", f"-I{like.parent}"]
        return subprocess.run(words, cwd=self.folder, capture_output=True).returncode == 0

    def link(self, test: str, room: str, extra: pathlib.Path, out: pathlib.Path) -> bool:
        """The test with `extra` before its room's library, whose member of the same name is then not taken."""
        done = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", test], capture_output=True, text=True)
        command = done.stdout.strip().split("\n")[-1]
        words = shlex.split(command.replace(": && ", "", 1).removesuffix(" && :"))
        words[words.index("-o") + 1] = str(out)
        first = next(i for i, w in enumerate(words) if w.endswith(f"libat_{room}.a"))
        words.insert(first, str(extra))
        # Most of a fault's time is linking: lld, in PATH or beside the compiler, takes a tenth of it.
        beside = pathlib.Path(shutil.which(words[0]) or words[0]).resolve().parent / "ld.lld"
        words += ["-fuse-ld=lld"] * bool(shutil.which("ld.lld") or beside.is_file())
        return subprocess.run(words, cwd=self.folder, capture_output=True).returncode == 0


def draw(rng: random.Random, files: list[pathlib.Path]):
    """A file by its size, a kind of fault, a place."""
    file = rng.choices(files, [f.stat().st_size for f in files])[0]
    text = file.read_text()
    kind = rng.choice(list(KINDS))
    places = list(KINDS[kind](code_of(text)))
    if not places:
        return None
    begin, end, to = rng.choice(places)
    line = text.count("\n", 0, begin) + 1
    return file, kind, line, text[:begin] + to + text[end:], text.split("\n")[line - 1].strip()


def limit_cpu(seconds: float):
    """Of the calling process. CPU time, so that a busy machine makes no verdict."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))


def verdict(build: Build, room: str, made: pathlib.Path, folder: pathlib.Path, seconds: float) -> tuple[str, str]:
    """What the room's tests say: (verdict, test that said it)."""
    env = {"AT_SOURCE_DIR": str(TOP), "PATH": "/usr/bin:/bin", "HOME": str(folder), "ATOLL_VERIFY": "1"}
    linked = False
    stem = made.with_suffix("").name
    # Tests named for the file first: most faults end there.
    for test in sorted(build.tests(room), key=lambda t: not t.startswith((stem, f"{room}_{stem}"))):
        program = folder / test
        if not build.link(test, room, made, program):
            continue  # two definitions: the test brings the file in by itself
        linked = True
        try:
            done = subprocess.run([program], cwd=folder, capture_output=True, text=True, errors="replace",
                                  timeout=10 * seconds, env=env, preexec_fn=lambda: limit_cpu(seconds))
        except subprocess.TimeoutExpired:
            return "hangs", test
        if done.returncode == -signal.SIGXCPU:
            return "hangs", test
        program.unlink()
        if done.returncode:
            by_assert = re.search("does not hold: a bug|broken invariant: ", done.stdout + done.stderr)
            return ("caught by an assert" if by_assert else "caught"), test
    return ("survived" if linked else "not linked"), ""


def option(name: str, default: str) -> str:
    return next((a.split("=", 1)[1] for a in sys.argv if a.startswith(f"--{name}=")), default)


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    build = Build(pathlib.Path(sys.argv[1]).resolve())
    rng, count = random.Random(int(option("seed", "1"))), int(option("count", "20"))
    rooms = [r for r in option("rooms", "").split(",") if r]
    rooms = rooms or sorted(p.name for p in (TOP / "src").iterdir() if p.is_dir() and build.tests(p.name))
    files = [f for r in rooms for f in sorted((TOP / "src" / r).glob("*.c"))
             if not re.search(r"_(test|test_util|fuzz|main)\.c$|^random", f.name) and str(f) in build.compile]
    found, rows = collections.Counter(), []
    while sum(found.values()) < count:
        drawn = draw(rng, files)
        if not drawn:
            continue
        file, kind, line, text, was = drawn
        room = file.relative_to(TOP / "src").parts[0]
        with tempfile.TemporaryDirectory() as temp:
            folder = pathlib.Path(temp)
            (folder / file.name).write_text(text)
            made = folder / f"{file.stem}.o"
            if not build.object(folder / file.name, file, made):
                continue  # no C
            what, test = verdict(build, room, made, folder, float(option("seconds", "60")))
        if what == "not linked":
            continue
        found[what] += 1
        rows.append({"file": str(file.relative_to(TOP)), "line": line, "fault": kind, "was": was, "verdict": what,
                     "test": test})
        print(f"{what:20} {rows[-1]['file']}:{line}: {kind}: {was}  {test}", flush=True)
    caught = count - found["survived"]
    print(f"{caught} of {count} caught ({100 * caught / count:.0f} %), {found['caught by an assert']} of them by an assert first")
    if option("json", ""):
        pathlib.Path(option("json", "")).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
