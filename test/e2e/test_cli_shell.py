"""What the command is to people and shells: completion, manual pages, colours, the version, whose Python it runs."""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

import pytest

COMMAND = str(pathlib.Path(os.environ["ATOLL_LIBRARY"]).parent / "atoll")


def atoll(*args, **more):
    return subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True, env={**os.environ, **more})


def commands():
    return re.findall(r"^  (\w+) ", atoll("--help").stdout, re.M)


def completed(*words):
    """What bash offers behind these words, the last of which is being typed."""
    script = atoll("completion", "bash").stdout + """
compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); last=${COMP_WORDS[COMP_CWORD]}
[[ $last == = ]] && last=
_atoll atoll "$last" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
    assert not done.stderr, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_and_words():
    assert completed("atoll", "est") == ["estimate"]
    assert set(commands()) <= set(completed("atoll", ""))
    assert completed("atoll", "dump", "--st") == ["--stage="]
    assert completed("atoll", "dump", "--stage", "=", "op") == ["optimized"]
    assert set(completed("atoll", "estimate", "--interp", "=")) == {"seed", "xla", "atoll"}
    assert completed("atoll", "pod", "tra") == ["trace"]
    assert completed("atoll", "completion", "z") == ["zsh"]


def test_bash_completes_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.mlir").write_text("")
    assert completed("atoll", "run", "prog") == ["program.mlir"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_every_option(shell):
    done = atoll("completion", shell)
    assert done.returncode == 0 and not done.stderr
    for name in commands():
        assert name in done.stdout
        for option in re.findall(r"--([a-z-]+)", atoll(name, "--help").stdout):
            assert option in done.stdout, (name, option)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(tmp_path):
    script = tmp_path / "atoll.fish"
    script.write_text(atoll("completion", "fish").stdout)

    def offered(line):
        done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], capture_output=True,
                              text=True, check=True, env={**os.environ, "HOME": str(tmp_path)}, cwd=tmp_path)
        assert not done.stderr, done.stderr
        return dict(line.partition("\t")[::2] for line in done.stdout.splitlines())
    summaries = dict(re.findall(r"^  (\w+) +(.*)$", atoll("--help").stdout, re.M))
    assert offered("atoll comp") == {"completion": summaries["completion"]}
    assert set(commands()) <= set(offered("atoll "))
    assert set(offered("atoll estimate --interp=")) == {f"--interp={w}" for w in ("seed", "xla", "atoll")}
    assert "trace" in offered("atoll pod tra")


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(tmp_path):
    """Keys on a terminal: Tab behind what was typed."""
    (tmp_path / "_atoll").write_text(atoll("completion", "zsh").stdout)
    ours, theirs = pty.openpty()
    child = subprocess.Popen(["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path,
                             env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb", "PS1": "ready> "})
    os.close(theirs)

    def until(text, keys):
        os.write(ours, keys.encode())
        said = ""
        while text not in said:
            said += os.read(ours, 4096).decode(errors="replace")
        return said
    until("sourced", "unsetopt beep; autoload -U compinit; compinit -u -D; source ./_atoll; show() { print -r \"<$BUFFER>\" }; "
                     "zle -N show; bindkey '^X' show; echo sour''ced\n")
    for typed, line in (("atoll est", "atoll estimate "), ("atoll estimate --int", "atoll estimate --interp="),
                        ("atoll estimate --interp=se", "atoll estimate --interp=seed "), ("atoll pod tra", "atoll pod trace ")):
        until(f"<{line}>", f"\x15{typed}\t\x18")
    os.close(ours)
    child.kill()
    child.wait()


def test_an_unknown_shell_is_refused():
    for arguments in ((), ("tcsh",), ("bash", "zsh")):
        done = atoll("completion", *arguments)
        assert done.returncode == 2 and "bash, zsh or fish" in done.stderr


def test_manual_pages_are_the_help(tmp_path):
    assert atoll("man", f"--out={tmp_path}").returncode == 0
    assert {p.name for p in tmp_path.iterdir()} == {"atoll.1"} | {f"atoll-{c}.1" for c in commands()}
    assert "ATOLL_TARGET" in (tmp_path / "atoll.1").read_text()
    for page in tmp_path.iterdir():
        name = page.stem.removeprefix("atoll").lstrip("-")
        assert atoll("man", *([name] if name else [])).stdout == page.read_text()
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-c", page], capture_output=True, text=True)
            assert done.returncode == 0 and not done.stderr, done.stderr
            for line in atoll(name, "--help").stdout.splitlines() if name else []:
                assert line.strip() in done.stdout, (page.name, line)
    assert atoll("man", "nothing").returncode == 1
    for name in ("check", "debug"):  # which say their own
        assert atoll("man", name).stdout.lower().count("exit status") == 1
    assert ".SH EXIT STATUS" in atoll("man", "dump").stdout


def test_the_version_says_what_a_report_needs():
    done = atoll("--version", ATOLL_TARGET="v5p:2x2x1", ATOLL_CPU="x86-64-v3")
    assert re.match(r"atoll \d+\.\d+\.\d+\n", done.stdout) and "ATOLL_CPU=x86-64-v3" in done.stdout
    said = json.loads(atoll("--version", "--json", ATOLL_TARGET="v5p:2x2x1", ATOLL_CPU="x86-64-v3").stdout)
    assert said["target"] == said["knobs"]["ATOLL_TARGET"] == "v5p:2x2x1" and said["cpu"] == "x86-64-v3"
    assert "ATOLL_THREADS" not in said["knobs"]
    assert atoll("--version", ATOLL_THREADS="many").returncode == 0
    assert atoll("config", ATOLL_THREADS="many").returncode == 2


def on_terminal(*args, **more):
    """What the command writes where stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([COMMAND, *args], stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", **more})
    os.close(theirs)
    out = b""
    while True:
        try:
            more_bytes = os.read(ours, 65536)
        except OSError:
            break
        if not more_bytes:
            break
        out += more_bytes
    child.wait()
    os.close(ours)
    return out


def test_colours_on_a_terminal_alone():
    for arguments in (["--help"], ["run"]):
        assert b"\033[" in on_terminal(*arguments, NO_COLOR="")
        assert b"\033[" not in on_terminal(*arguments, NO_COLOR="1")
        assert b"\033[" not in on_terminal(*arguments, NO_COLOR="", TERM="dumb")
        done = atoll(*arguments, NO_COLOR="", TERM="xterm")
        assert "\033[" not in done.stdout + done.stderr


def test_what_was_meant():
    assert "did you mean doctor?" in atoll("docter").stderr
    assert "did you mean --json?" in atoll("doctor", "--jsn").stderr
    assert "ATOLL_TARGET" in atoll("doctor", ATOLL_TARGTE="v6e").stderr


def test_run_takes_the_callers_python(tmp_path):
    program = tmp_path / "who.py"
    program.write_text("import sys; print(sys.executable)")
    active = tmp_path / "env"
    (active / "bin").mkdir(parents=True)
    (active / "bin" / "python").symlink_to(sys.executable)
    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX")}

    def ran(**more):
        return subprocess.run([COMMAND, "run", program], capture_output=True, text=True, check=True,
                              env={**plain, **more}).stdout.strip()

    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        assert ran(**{name: str(active)}) == str(active / "bin" / "python")
    assert ran(PYTHON=sys.executable, VIRTUAL_ENV=str(active)) == sys.executable
    assert ran(VIRTUAL_ENV=str(tmp_path / "gone")) != ""
