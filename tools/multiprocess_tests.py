#!/usr/bin/env python3
"""JAX's own tests of several processes, each file of them run by one job of Atoll processes.

  tools/multiprocess_tests.py [--library FILE] [--target v5e:2x4] [--processes 4] [--files pjit_test,array_test]
                              [--again] [--limit SECONDS]

A test passes if it does in every process. One that ends a process or hangs fails, and the job is started again
with what is left of its file. Results are kept in build/multiprocess, a line each, so that a run which was stopped
goes on where it was; --again runs what failed once more, and --fresh everything.

multiprocess_reasons.json names the tests that fail, or are skipped, for a reason of their own (or whose file JAX does
not run on TPUs), by a pattern. Another failure makes the exit status 1. The tests come from
../shared/conformance/jax-0.10.2-tests.tar.xz and are unpacked into build/jax-tests.
"""
import argparse
import collections
import fnmatch
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

from jax_tests import TOP, unpack

REASONS = TOP / "tools" / "multiprocess_reasons.json"
LIST = """
import importlib, sys, unittest
from absl import flags
from jax._src import test_util as jtu, test_multiprocess
flags.FLAGS([""], known_only=True)
def names(suite):
  for t in suite:
    if isinstance(t, unittest.TestSuite): yield from names(t)
    else: yield f"{type(t).__name__}.{t._testMethodName}"
sys.path.insert(0, ".")
print(*names(jtu.JaxTestLoader().loadTestsFromModule(importlib.import_module(sys.argv[1]))), sep="\\n")
"""
VERDICT = re.compile(r"^\[\s+(RUN|OK|FAILED|SKIPPED)\s+\] (\S+?)(?: .*)?$")
WORDS = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped", "RUN": "begun"}


def environment(options):
    env = dict(os.environ, TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
               ATOLL_TARGET=options.target, JAX_TRACEBACK_FILTERING="off")
    for name in ("TPU_PROCESS_ADDRESSES", "CLOUD_TPU_TASK_ID"):
        env.pop(name, None)
    return env


def free_port():
    with socket.create_server(("localhost", 0)) as s:
        return s.getsockname()[1]


def tests_of(file, folder, options):
    p = subprocess.run([sys.executable, "-c", LIST, file], cwd=folder, capture_output=True, text=True, timeout=120,
                       env=dict(environment(options), ATOLL_TARGET="v5e"))
    if p.returncode:
        raise SystemExit(f"{file}: {p.stderr}")
    return [line for line in p.stdout.split() if "." in line]


def start(file, tests, folder, logs, options):
    """The processes of a job. Each writes what it says to its own file."""
    port, jobs = free_port(), []
    for i in range(options.processes):
        with open(logs / f"{file}.{i}", "w") as log:
            jobs.append(subprocess.Popen(
                [sys.executable, f"{file}.py", *tests, f"--num_processes={options.processes}",
                 f"--multiprocess_test_worker_id={i}", f"--multiprocess_test_controller_address=localhost:{port}",
                 "--heartbeat_timeout=60", "--shutdown_timeout=30", "--initialization_timeout=60", "--barrier_timeout=30",
                 "--logtostderr"], cwd=folder, env=environment(options), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True))
    return jobs


def end(jobs, limit):
    """Waits for all, or for what is left once one of them fell; True if the limit was reached."""
    until = time.monotonic() + limit
    while any(p.poll() is None for p in jobs):
        if any((p.poll() or 0) < 0 for p in jobs):
            until = min(until, time.monotonic() + 20)
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    late = [p for p in jobs if p.poll() is None]
    for p in late:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    return bool(late)


def verdicts(text):
    """{test: (verdict, cause)} of one process."""
    found, causes = {}, {}
    for line in text.splitlines():
        m = VERDICT.match(line)
        if m:
            found[m[2]] = WORDS[m[1]]
    for part in re.split(r"^={70}$", text, flags=re.M)[1:]:
        m = re.match(r"\s*(?:FAIL|ERROR): (\S+) \((?:\S*\.)?(\w+)\.?\w*\)", part)
        body = part.split("-" * 70)
        said = [s for s in (body[1] if len(body) > 1 else "").splitlines() if re.match(r"\w[\w.]*(Error|Exception)\b", s)]
        if m and said:
            causes.setdefault(f"{m[2]}.{m[1]}", said[0][:400])
    skips = dict(re.findall(r"^\[\s+SKIPPED \] (\S+) - (.*)$", text, flags=re.M))
    return {t: (v, causes.get(t, skips.get(t, ""))) for t, v in found.items()}


def together(test, processes, late, codes):
    """The verdict on a test from those of all processes; None: nobody came to it."""
    rows = [p.get(test, ("", "")) for p in processes]
    words = [w for w, _ in rows]
    if not any(words):
        return None
    for i, (word, cause) in enumerate(rows):
        if word == "failed":
            return "failed", f"process {i}: {cause or 'no cause'}"
    for i, (word, _) in enumerate(rows):
        if word not in ("passed", "skipped"):
            fallen = [f"process {k}: {c}" for k, c in enumerate(codes) if c not in (0, -signal.SIGKILL)]
            return "failed", "; ".join(fallen) or (f"process {i} hangs" if late else f"process {i} ended")
    if "passed" in words:
        return "passed", ""
    return "skipped", rows[0][1]


def run_file(file, tests, folder, logs, options):
    """Yields (test, verdict, cause)."""
    left = list(tests)
    while left:
        jobs = start(file, left, folder, logs, options)
        late = end(jobs, options.limit)
        processes = [verdicts((logs / f"{file}.{i}").read_text(errors="replace")) for i in range(len(jobs))]
        told = [(t, together(t, processes, late, [p.returncode for p in jobs])) for t in left]
        done = [(t, *v) for t, v in told if v]
        # Where a process stays behind, the others cannot go on.
        stuck = [i for i, d in enumerate(done) if {p.get(d[0], ("",))[0] for p in processes} & {"", "begun"}]
        done = done[:stuck[0] + 1] if stuck else done
        if not done:
            tail = (logs / f"{file}.0").read_text(errors="replace").strip().splitlines()[-1:]
            done = [(left[0], "failed", f"no test was run: {' '.join(tail)[:300]}")]
        yield from done
        left = [t for t in left if t not in {d[0] for d in done}]


def reason(name, reasons):
    return next((why for pattern, why in reasons.items() if fnmatch.fnmatchcase(name, pattern)), None)


def table(rows, reasons):
    """Prints counts by file; returns whether every failure has a reason."""
    counts, bad = collections.defaultdict(collections.Counter), []
    for name, row in sorted(rows.items()):
        why = reason(name, reasons)
        word = row["verdict"] if row["verdict"] == "passed" or not why else "not applicable"
        counts[name.split("::")[0]][word] += 1
        if word == "failed" or word == "skipped":
            bad.append(f"{word.upper()} {name}: {row['cause']}")
    print("\n".join(bad))
    words, total = ("passed", "failed", "skipped", "not applicable"), collections.Counter()
    for file, mine in sorted(counts.items()):
        total += mine
        print(f"{file:28s} " + ", ".join(f"{mine[w]:3d} {w}" for w in words))
    print(f"{'all':28s} " + ", ".join(f"{total[w]:3d} {w}" for w in words))
    return not total["failed"]


def read(results):
    rows = {}
    if results.is_file():
        for line in results.read_text().splitlines():
            row = json.loads(line)
            rows[row["test"]] = row
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--target", default="v5e:2x4")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--files", default="")
    parser.add_argument("--again", action="store_true", help="run what failed once more")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a job")
    options = parser.parse_args()
    folder = unpack() / "tests" / "multiprocess"
    logs = TOP / "build" / "multiprocess" / f"{options.target.replace(':', '-')}-{options.processes}"
    logs.mkdir(parents=True, exist_ok=True)
    results = logs / "results.jsonl"
    if options.fresh:
        results.unlink(missing_ok=True)
    files = options.files.split(",") if options.files else sorted(p.stem for p in folder.glob("*_test.py"))
    rows = read(results)
    for file in files:
        names = tests_of(file, folder, options)
        has = lambda t: (r := rows.get(f"{file}::{t}")) and not (options.again and r["verdict"] == "failed")
        for test, verdict, cause in run_file(file, [t for t in names if not has(t)], folder, logs, options):
            rows[f"{file}::{test}"] = row = {"test": f"{file}::{test}", "verdict": verdict, "cause": cause}
            with open(results, "a") as out:
                out.write(json.dumps(row) + "\n")
    good = table({n: r for n, r in rows.items() if n.split("::")[0] in files},
                 json.loads(REASONS.read_text()) if REASONS.is_file() else {})
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
