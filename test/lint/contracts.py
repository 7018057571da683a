#!/usr/bin/env python3
"""Fails where headers say less than they did: public functions without a contract, and how much of each room is comment.

usage: contracts.py SOURCE_DIR [--list [ROOM] | --write | --draw N SEED]

A header is public if a file of another room includes it, directly or through a header that does; base and abi are
public as a whole. A contract is a comment above a prototype or behind it. A comment above several prototypes that follow
each other without a blank line is a contract of the first, and of each other that it names, whole or by what
follows the last underscore. A function that returns a status also has to say how it fails, one that returns a pointer
whose that is: in its contract, or for all of a header in a line of its head that begins with "Errors:" or "Memory:".
The head of a public header says which threads may call ("Threads:", or the word thread).

The share of comment is lines that hold some, of all lines that are not blank: of headers, and of C files, to which code
counts that is included (*_template.h) and what only tests include (*_test_util.h, *_test.h).
test/lint/contracts.txt has a floor for each room: prototypes and heads that may lack theirs, and the least shares. --write
moves floors to where the tree is; it never lowers one. --list names what lacks a contract. --draw prints N public
prototypes with their comments, drawn by SEED, for a reader to judge.
"""
import pathlib
import random
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
PUBLIC_ROOMS = {"abi", "base"}
# Statements at file scope that are no prototypes.
OTHER = re.compile(r"\s*(typedef|enum|static|_Static_assert)\b|(struct|union)\s+\w+\s*;")


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def split_comments(text: str) -> tuple[list[str], list[str]]:
    """The lines of a C file twice: code with comments blanked, and the comments with code blanked."""
    code, notes, at = [], [], 0
    for m in TOKEN.finditer(text):
        if m[0][0] == "/":
            code += [text[at:m.start()], re.sub(r"[^\n]", " ", m[0])]
            notes += [re.sub(r"[^\n]", " ", text[at:m.start()]), m[0]]
            at = m.end()
    code.append(text[at:])
    notes.append(re.sub(r"[^\n]", " ", text[at:]))
    return "".join(code).split("\n"), "".join(notes).split("\n")


def blank_macros(code: list[str]) -> list[str]:
    """Preprocessor lines, with what they continue on, are no code here."""
    out, goes_on = [], False
    for line in code:
        macro = goes_on or line.lstrip().startswith("#")
        goes_on = macro and line.rstrip().endswith("\\")
        out.append("" if macro else line)
    return out


ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)\s*")
# A return type, perhaps behind a macro that exports; a name; parameters.
FUNCTION = re.compile(r"(?!return\b)[\w\s*]*?[\s*](\w+)\s*\((?!\*)")


def prototypes(code: list[str]):
    """(name, first line, last line) of each function that a header declares without a body."""
    depth, start, text = 0, None, ""
    for number, line in enumerate(blank_macros(code)):
        if re.match(r'\s*extern\s+"C"\s*\{', line):
            continue
        for c in line:
            if start is None and not c.isspace():
                start, text = number, ""
            if start is not None:
                text += c
            depth += {"{": 1, "}": -1}.get(c, 0)
            if depth < 0:  # the end of extern "C"
                depth, start = 0, None
            elif depth == 0 and c in ";}":
                if c == "}" and re.match(r"\s*(typedef|struct|enum|union)\b", text):
                    continue  # its declarators follow
                flat = ATTRIBUTE.sub("", re.sub(r"\s+", " ", text)).strip()
                flat = re.sub(r"_Atomic\s*\(([^()]*)\)", r"\1", flat)
                m = FUNCTION.match(flat)
                if c == ";" and m and "{" not in flat and not OTHER.match(flat):
                    yield m[1], start, number
                start = None
        if start is not None:
            text += " "


STATUS = re.compile(r"\bat_status\s+\w+\s*\(")
POINTER = re.compile(r"^[\w\s]*\*\s*\w+\s*\(")
CODES = ("CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
         "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
         "UNAUTHENTICATED").replace(" ", "|")
FAILS = re.compile(rf"\b({CODES})\b|[Ff]ail|[Ee]rror|\b[Aa]s `?(at|atoll)_\w+")
OWNER = re.compile(r"own(s|ed|er)?\b|borrow|static|\bfree|NULL|arena|`a`|reference|\blives?\b|life|valid (as|un)", re.I)


class Prototype:
    """A function that a header declares, with the text of its contract ("" where it has none)."""

    def __init__(self, path: str, name: str, line: int, text: str, contract: str):
        self.path, self.name, self.line, self.text, self.contract = path, name, line, text, contract


def names(comment: str, name: str) -> bool:
    """Does the comment speak of this function: by its name, or by `_rest` as the end of it?"""
    if re.search(rf"\b{name}\b", comment):
        return True
    return any(name.endswith(end) for end in re.findall(r"(?<![\w])(_[a-z]\w*)\b", comment))


def words(comment: str) -> str:
    """A comment's text; a line of the form "---- Title" divides a file and says nothing of what follows."""
    lines = [re.sub(r"^\s*(//|/\*|\*/|\*)+\s?|\*/\s*$", "", line).strip() for line in comment.split("\n")]
    return "\n".join(line for line in lines if line and not line.startswith("--"))


def head_of(code: list[str], notes: list[str]) -> str:
    """The comment at the beginning of a header."""
    end = 0
    while end < len(code) and notes[end].strip() and not code[end].strip():
        end += 1
    return words("\n".join(notes[:end]))


def is_complete(text: str, contract: str, head: str) -> bool:
    """Does a contract say what its function's type asks for?"""
    flat = ATTRIBUTE.sub("", re.sub(r"\s+", " ", text)).strip()
    if STATUS.search(flat) and not (FAILS.search(contract) or "Errors:" in head):
        return False
    return not POINTER.match(flat) or bool(OWNER.search(contract)) or "Memory:" in head


def read_header(path: str, text: str) -> list[Prototype]:
    code, notes = split_comments(text)
    head = head_of(code, notes)
    out, group, last_end = [], "", -2
    for name, first, last in prototypes(code):
        behind = words("\n".join(line.strip() for line in notes[first:last + 1]))
        top = first
        while top and not code[top - 1].strip() and notes[top - 1].strip():
            top -= 1
        above = words("\n".join(line.strip() for line in notes[top:first]))
        if above:
            group = above
        elif top != last_end + 1:
            group = ""
        own = above or (group if names(group, name) else "")
        contract, declared = "\n".join(filter(None, (own, behind))), "\n".join(code[first:last + 1])
        if not is_complete(declared, contract, head):
            contract = ""
        out.append(Prototype(path, name, first + 1, "\n".join(text.split("\n")[first:last + 1]), contract))
        last_end = last
    return out


def public_headers(src: pathlib.Path) -> list[str]:
    includes = {}
    for path in src.rglob("*.[ch]"):
        found = INCLUDE.findall(path.read_text(errors="replace"))
        room = path.relative_to(src).parts[0]
        includes[str(path.relative_to(src))] = [i if "/" in i else f"{room}/{i}" for i in found]
    todo = [i for path, found in includes.items() for i in found if i.split("/")[0] != path.split("/")[0]]
    todo += [p for p in includes if p.split("/")[0] in PUBLIC_ROOMS]
    public = set()
    while todo:
        path = todo.pop()
        if path not in public and path.endswith(".h") and path in includes:
            public.add(path)
            todo += includes[path]
    return sorted(public)


def shares(src: pathlib.Path, room: str) -> tuple[float, float]:
    """Of each hundred lines of the room's headers, and of its C files, how many hold comment."""
    held, lines = {".h": 0, ".c": 0}, {".h": 0, ".c": 0}
    for path in sorted((src / room).rglob("*.[ch]")):
        kind = ".c" if re.search(r"_(template|test|test_util)\.h$", path.name) else path.suffix
        text = path.read_text(errors="replace")
        held[kind] += sum(bool(line.strip()) for line in split_comments(text)[1])
        lines[kind] += sum(bool(line.strip()) for line in text.split("\n"))
    return tuple(100 * held[kind] / lines[kind] if lines[kind] else 0.0 for kind in (".h", ".c"))


def without_threads(src: pathlib.Path) -> list[str]:
    """Public headers with functions whose head does not say which threads may call them."""
    out = []
    for path in public_headers(src):
        code, notes = split_comments((src / path).read_text())
        if any(prototypes(code)) and "thread" not in head_of(code, notes).lower():
            out.append(path)
    return out


class Room:
    """What is measured of a room."""

    def __init__(self, functions: int, bare: int, header: float, code: float):
        self.functions, self.bare, self.header, self.code = functions, bare, header, code


def measure(top: pathlib.Path) -> tuple[dict[str, Room], list[Prototype]]:
    src = top / "src"
    found = [p for path in public_headers(src) for p in read_header(path, (src / path).read_text())]
    out, silent = {}, [path.split("/")[0] for path in without_threads(src)]
    for folder in sorted(p for p in src.iterdir() if p.is_dir()):
        own = [p for p in found if p.path.split("/")[0] == folder.name]
        out[folder.name] = Room(len(own), sum(not p.contract for p in own) + silent.count(folder.name), *shares(src, folder.name))
    return out, found


def read_floors(path: pathlib.Path) -> dict[str, tuple[int, float, float]]:
    floors = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line and not line.startswith("#"):
            room, bare, header, code = line.split()
            floors[room] = int(bare), float(header), float(code)
    return floors


def write_floors(path: pathlib.Path, rooms: dict[str, Room], floors: dict) -> None:
    lines = ["# Floors of test/lint/contracts.py, which writes them (--write) and never lowers one.",
             "# room, public functions without a contract (at most), % of comment in headers, in C files (at least)"]
    for room, m in rooms.items():
        bare, header, code = floors.get(room, (m.bare, 0.0, 0.0))
        # Rounded down, and a little less: a line of code more must not fail.
        lines.append(f"{room:12} {min(bare, m.bare):4} {max(header, int(m.header) - 1.0):5.1f}"
                     f" {max(code, int(2 * m.code) / 2 - .5):5.1f}")
    path.write_text("\n".join(lines) + "\n")


def main() -> int:
    top = pathlib.Path(sys.argv[1])
    rooms, found = measure(top)
    floor_file = top / "test/lint/contracts.txt"
    floors, how = read_floors(floor_file), sys.argv[2:]
    if how[:1] == ["--list"]:
        for p in found:
            if not p.contract and (len(how) < 2 or p.path.startswith(how[1])):
                print(f"src/{p.path}:{p.line}: {p.name}")
        for path in without_threads(top / "src"):
            if len(how) < 2 or path.startswith(how[1]):
                print(f"src/{path}: its head does not say which threads may call")
        return 0
    if how[:1] == ["--draw"]:
        for p in random.Random(int(how[2])).sample(found, int(how[1])):
            print(f"src/{p.path}:{p.line}\n{p.contract}\n    {p.text}\n")
        return 0
    if how == ["--write"]:
        write_floors(floor_file, rooms, floors)
        return 0
    bad = []
    for room, m in rooms.items():
        if room not in floors:
            bad.append(f"{room}: no floor in test/lint/contracts.txt; test/lint/contracts.py . --write")
            continue
        bare, header, code = floors[room]
        if m.bare > bare:
            bad.append(f"{room}: {m.bare} public functions without a contract, {bare} had none; --list {room} names them")
        if m.header < header:
            bad.append(f"{room}: {m.header:.1f} % of its headers is comment, it was at least {header} %")
        if m.code < code:
            bad.append(f"{room}: {m.code:.1f} % of its C files is comment, it was at least {code} %")
    print(f"{'room':12} public bare  .h %  .c %")
    for room, m in rooms.items():
        print(f"{room:12} {m.functions:6} {m.bare:4} {m.header:5.1f} {m.code:5.1f}")
    total, bare = len(found), sum(not p.contract for p in found)
    print(f"{total} public functions, {total - bare} with a contract ({100 * (total - bare) / max(total, 1):.1f} %)")
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
