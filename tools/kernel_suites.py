#!/usr/bin/env python3
"""Other projects' tests of their TPU kernels, on the chips they are for, beside libtpu's verdict.

  tools/kernel_suites.py run SUITE [--library FILE] [--sample 0.05 --salt 1] [--files gmm] [--again]
  tools/kernel_suites.py verdicts SUITE [--limit SECONDS]
  tools/kernel_suites.py manifest SUITE
  tools/kernel_suites.py check SUITE [--library FILE] [--sample 0.05] [--salt 1]

run       runs what has no result yet (--again: what did not pass, too). A test that its first chip skips is
          run on the next of the suite's chips. A test that ends the process is a failure.
verdicts  asks libtpu about every program with a kernel that the tests compiled, those of failed tests first.
          No TPU is needed, but a Python that has the packages jax and libtpu.
manifest  writes test/suites/SUITE.json and docs/kernel_suites.md from the results and the verdicts.
check     for the standing tests: runs a sample by hash of what the manifest says passes.

Every command can be stopped and started again: results are in build/suites/SUITE, a line each. What the
manifest has a result for is not run again without --again: another machine goes on where this one stopped.
The suites' sources are archives in ../shared/conformance (--archives: another folder), each a checkout of the
commit that SUITES names, as `git archive` makes it; without its archive a suite is not run, and the exit status is 77.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import time
import zlib

TOP = pathlib.Path(__file__).resolve().parents[1]
SHARED = TOP.parent / "shared" / "conformance"
SUITES = {
    "tpu-inference": {
        "about": "vLLM's TPU kernels (Apache-2.0, commit b8692ff01)",
        "archive": "tpu-inference-kernel-tests.tar.xz",
        "files": ["tests/kernels/**/*test*.py"],
        "targets": ["7x:2x2x1", "v6e:2x2", "v5p:2x2x1"],
        "for": {"collectives/": ["v6e:2x4"]},  # other targets for some files
        "stubs": "tpu_inference_stubs",
    },
    "tokamax": {
        "about": "Kernels of openxla/tokamax (Apache-2.0, commit 173417d3b)",
        "archive": "tokamax-kernel-tests.tar.xz",
        "files": ["tokamax/_src/ops/**/*tpu*_test.py", "tokamax/_src/ops/experimental/tpu/**/*_test.py",
                  "tokamax/_src/ops/experimental/mla/*_test.py"],
        "targets": ["v6e:1x1", "7x:2x2x1", "v5p:2x2x1"],
        "for": {"sharded": ["v6e:2x4"], "ring_attention": ["v6e:2x4"]},
    },
    "maxtext": {
        "about": "Kernels of AI-Hypercomputer/maxtext (Apache-2.0, commit e591f30cb)",
        "archive": "maxtext-kernel-tests.tar.xz",
        "path": "src",
        "files": ["tests/unit/kernels_test.py", "tests/unit/tokamax_*_test.py", "tests/unit/pallas_mosaic_tpu_*_test.py",
                  "tests/gather_reduce_sc_test.py"],
        "targets": ["v6e:2x2", "7x:2x2x1", "v5p:2x2x1"],
    },
    "sglang-jax": {
        "about": "Kernels of sgl-project/sglang-jax (Apache-2.0, commit cddbf6f1c)",
        "archive": "sglang-jax-kernel-tests.tar.xz",
        "path": "python",
        "files": ["python/sgl_jax/test/kernels/*test*.py", "python/sgl_jax/test/multimodal/test_flash_attention_kernel.py",
                  "python/sgl_jax/test/test_*attention*.py", "python/sgl_jax/test/test_gdn_fused_chunk_parallel_prefill.py",
                  "test/srt/kernels/dsa/test_*.py"],
        "targets": ["v6e:2x2", "7x:2x2x1", "v5p:2x2x1"],
    },
}
TOPOLOGY = {"7x": "tpu7x"}  # libtpu's name of a chip, where it is not ours
SKIPPED = 77


class Suite:
    def __init__(self, name):
        self.name, self.about = name, SUITES[name]
        self.folder = TOP / "build" / "suites" / name
        self.sources = self.folder / "sources"
        self.results = self.folder / "results.jsonl"
        self.verdicts = self.folder / "verdicts.jsonl"
        self.programs = self.folder / "programs"
        self.manifest = TOP / "test" / "suites" / f"{name}.json"

    def unpack(self, archives):
        archive = archives / self.about["archive"]
        if not archive.is_file():
            return False
        if not self.sources.is_dir():
            part = self.sources.with_suffix(".part")
            part.mkdir(parents=True, exist_ok=True)
            with tarfile.open(archive) as t:
                t.extractall(part)
            part.rename(self.sources)
        self.programs.mkdir(exist_ok=True)
        return True

    def files(self):
        found = {p for pattern in self.about["files"] for p in self.sources.glob(pattern)}
        return sorted(str(p.relative_to(self.sources)) for p in found)

    def result_rows(self):
        """{test: {target: last row}}; a test that began and has no end is a crash."""
        rows = collections.defaultdict(dict)
        for test, told in self.told().items():
            if told["result"] != "not run":
                rows[test][told["target"]] = dict(told, test=test, programs=None)
        for row in read_lines(self.results):
            if row["result"] == "stopped":
                rows[row["test"]].pop(row["target"], None)
                continue
            if row["result"] == "started":
                row = dict(row, result="failed", message="the process ended", programs=[])
            if row["target"] in self.targets(row["test"]):
                rows[row["test"]][row["target"]] = row
        return {test: mine for test, mine in rows.items() if mine}

    def told(self):
        """{test: row} of the manifest."""
        return json.loads(self.manifest.read_text())["tests"] if self.manifest.is_file() else {}

    def targets(self, test):
        """The chips that a test, or all tests of a file, are tried on, the first first."""
        named = (t for part, t in self.about.get("for", {}).items() if part in test)
        return next(named, self.about["targets"])

    def best(self, rows):
        """Of a test's results on several chips, the one that counts: the first that is not a skip."""
        order = [rows[t] for t in self.targets(next(iter(rows.values()))["test"]) if t in rows]
        return next((r for r in order if r["result"] != "skipped"), order[0])


def read_lines(path):
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:  # the last line of a run that was stopped
            pass
    return rows


def environment(options, suite, target, **more):
    env = dict(os.environ, TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
               ATOLL_TARGET=target, ATOLL_NUMERICS="tpu", ATOLL_CACHE="off",
               PYTHONPATH=os.pathsep.join(map(str, [suite.sources / suite.about.get("path", ""), TOP / "tools", TOP / "test" / "suites"])),
               SUITE_STUBS=suite.about.get("stubs", ""), **more)
    env.pop("PJRT_NAMES_AND_LIBRARY_PATHS", None)
    return env


def collect(options, suite, file):
    """The node ids of a file. A file that cannot be imported is one test that fails."""
    known = suite.folder / "collected.json"
    tests = json.loads(known.read_text()) if known.is_file() else {}
    if file not in tests:
        run = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "suite_plugin",
                              "-p", "no:cacheprovider", file],
                             cwd=suite.sources, env=environment(options, suite, suite.targets(file)[0]),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = [line for line in run.stdout.splitlines() if line.startswith(file + "::")]
        missing = re.search(r"ModuleNotFoundError: (.*)", run.stdout)
        tests[file] = {"tests": found, "error": "" if found else missing.group(1) if missing else run.stdout[-300:]}
        known.write_text(json.dumps(tests, indent=1))
    return tests[file]


def run_some(options, suite, target, file, tests):
    """Runs tests of one file, in as many processes as they end. Results are appended to the suite's as they come."""
    chosen, left = suite.folder / f"chosen-{os.getpid()}", list(tests)
    while left:
        chosen.write_text("\n".join(left))
        before = len(read_lines(suite.results))
        env = environment(options, suite, target, SUITE_TESTS=str(chosen), SUITE_RESULTS=str(suite.results),
                          SUITE_PROGRAMS=str(suite.programs))
        with open(suite.folder / "last.log", "w") as log:
            child = subprocess.Popen([sys.executable, "-m", "pytest", "-q", "-p", "suite_plugin", "-p", "no:cacheprovider",
                                      f"--timeout={options.timeout}", "--tb=short", file],
                                     cwd=suite.sources, env=env, stdout=log, stderr=log)
            try:
                child.wait()
            except BaseException:
                child.kill()
                child.wait()
                forget_started(suite)
                raise
            finally:
                chosen.unlink()
        done = {row["test"] for row in read_lines(suite.results)[before:]}
        if not done:
            sys.exit(f"{file}: no test ran, see {suite.folder / 'last.log'}")
        left = [t for t in left if t not in done]


def forget_started(suite):
    """What we stopped ourselves has no result."""
    rows = read_lines(suite.results)
    if rows and rows[-1]["result"] == "started":
        save(suite.results, dict(rows[-1], result="stopped"))


def in_sample(test, options):
    return zlib.crc32((test + options.salt).encode()) % 10000 < options.sample * 10000


def run(options, suite):
    for file in suite.files():
        if options.files and not re.search(options.files, file):
            continue
        tests = [t for t in collect(options, suite, file)["tests"] if in_sample(t, options)]
        for target in suite.targets(file):
            rows = suite.result_rows()
            wanted = []
            for test in tests:
                mine = rows.get(test, {})
                settled = any(r["result"] == "passed" or (r["result"] == "failed" and not options.again)
                              for r in mine.values())
                stale = options.again and test not in options.tried.get(target, set())
                if not settled and (target not in mine or (stale and mine[target]["result"] == "failed")):
                    wanted.append(test)
            if wanted:
                options.tried.setdefault(target, set()).update(wanted)
                run_some(options, suite, target, file, wanted)
        rows = suite.result_rows()
        counts = collections.Counter(suite.best(rows[t])["result"] for t in tests if t in rows)
        print(f"{file:75} {dict(counts)}", flush=True)
    return 0


# ---- libtpu's word ----------------------------------------------------------


def compiler_of(topology):
    """A function: (program, options, devices) -> verdict, by libtpu's compiler for that topology."""
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    os.environ.pop("TPU_LIBRARY_PATH", None)
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir
    devices = topologies.get_topology_desc(topology, platform="tpu").devices

    def verdict_of(path):
        settings = xla_client.CompileOptions.ParseFromString(path.with_suffix(".options").read_bytes())
        count = settings.num_replicas * settings.num_partitions
        try:
            with mlir.make_ir_context():
                module = ir.Module.parse(path.read_bytes())
                devices[0].client.compile(module, executable_devices=xla_client.DeviceList(tuple(devices[:count])),
                                          compile_options=settings)
            return {"verdict": "ok", "message": ""}
        except Exception as e:
            return {"verdict": "refused", "message": re.sub(r'(?<=")/[^"]*/sources/', "", str(e))[:600]}
    return verdict_of


def ask(options, suite):
    """In a process of its own, since the compiler may end it: a line when a program begins and one when it ends."""
    import importlib.metadata
    version = importlib.metadata.version("libtpu")
    verdict_of = compiler_of(options.ask)
    for key in sys.stdin.read().split():
        print(json.dumps({"program": key, "libtpu": version, "verdict": "crash", "message": "the compiler ended its process"}), flush=True)
        print(json.dumps(dict(verdict_of(suite.programs / f"{key}.mlirbc"), program=key, libtpu=version)), flush=True)
    return 0


def verdicts(options, suite):
    deadline = time.time() + options.limit
    wanted = collections.defaultdict(list)
    known = {row["program"] for row in read_lines(suite.verdicts)}
    tests = [suite.best(rows) for rows in suite.result_rows().values()]
    for row in sorted(tests, key=lambda r: r["result"] != "failed"):
        for key in row["programs"] or []:
            if key not in known:
                known.add(key)
                wanted[row["target"]].append(key)
    for target, keys in wanted.items():
        chip, shape = target.replace(":1x1", ":2x2").split(":")  # the least that libtpu describes
        while keys and time.time() < deadline:
            command = [sys.executable, __file__, "verdicts", suite.name, "--ask", f"{TOPOLOGY.get(chip, chip)}:{shape}"]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            child.stdin.write("\n".join(keys))
            child.stdin.close()
            seen, row = set(), None
            for line in child.stdout:
                last, row = row, json.loads(line)
                if last and last["program"] != row["program"] and last["program"] not in seen:
                    break
                if row["verdict"] != "crash":
                    save(suite.verdicts, row)
                    seen.add(row["program"])
                    print(f"{len(keys) - len(seen):5} left  {row['program']} {row['verdict']} {row['message'][:100]!r}", flush=True)
                if time.time() > deadline:
                    child.kill()
            child.wait()
            if row and row["verdict"] == "crash" and time.time() < deadline:
                save(suite.verdicts, row)
                seen.add(row["program"])
            if not seen:
                sys.exit("libtpu gave no verdict")
            keys = [k for k in keys if k not in seen]
    return 0


def save(path, row):
    with open(path, "a") as out:
        out.write(json.dumps(row) + "\n")


# ---- the manifest and its page ----------------------------------------------


def judged(suite):
    """{test: {target, result, verdict, message}} of all that was collected."""
    said = {row["program"]: row for row in read_lines(suite.verdicts)}
    rows, tests = suite.result_rows(), {}
    for file, found in json.loads((suite.folder / "collected.json").read_text()).items():
        if found["error"]:
            tests[file] = {"target": suite.targets(file)[0], "result": "failed", "verdict": "none", "message": found["error"]}
        for test in found["tests"]:
            if test not in rows:
                tests[test] = {"target": suite.targets(test)[0], "result": "not run", "verdict": "none", "message": ""}
                continue
            row = suite.best(rows[test])
            if row["programs"] is None:  # as the manifest has it
                tests[test] = {k: v for k, v in row.items() if k not in ("test", "programs")}
                continue
            words = [said[k] for k in row["programs"] if k in said]
            bad = next((w for w in words if w["verdict"] != "ok"), None)
            verdict = bad["verdict"] if bad else "ok" if words and len(words) == len(row["programs"]) else "none"
            tests[test] = {"target": row["target"], "result": row["result"], "verdict": verdict,
                           "message": row.get("message", "") if row["result"] != "passed" else "",
                           "libtpu": bad["message"] if bad else ""}
    return tests


def manifest(options, suite):
    tests = judged(suite)
    versions = {row["libtpu"] for row in read_lines(suite.verdicts)}
    if suite.manifest.is_file():
        versions |= set(json.loads(suite.manifest.read_text())["libtpu"])
    rows = {name: {k: v for k, v in t.items() if v} for name, t in tests.items()}
    suite.manifest.write_text("{\n" + f' "suite": {json.dumps(suite.name)},\n "libtpu": {json.dumps(sorted(versions))},\n "tests": {{\n' +
                              ",\n".join(f"  {json.dumps(n)}: {json.dumps(r)}" for n, r in sorted(rows.items())) + "\n }\n}\n")
    page()
    return 0


def counts_of(tests):
    counts = collections.Counter()
    for t in tests:
        refused = t["verdict"] in ("refused", "crash")
        counts["collected"] += 1
        counts["refused"] += refused
        counts["accepted"] += not refused
        counts["passed"] += not refused and t["result"] == "passed"
        counts["skipped"] += not refused and t["result"] == "skipped"
        counts["failed"] += not refused and t["result"] == "failed"
        counts["not run"] += not refused and t["result"] == "not run"
    return counts


def cause(message):
    lines = [l.strip() for l in message.splitlines() if l.strip()]
    return re.sub(r"\d+(\.\d+)?", "N", " ".join(lines[:3]) if lines else "?")[:160].replace("|", "\\|")


def page():
    lines = ["# Tests of other projects' TPU kernels", "",
             "Generated by `tools/kernel_suites.py manifest` from `test/suites/*.json`. *refused*: libtpu's compiler refuses",
             "a program of the test (or ends its process on it), so that the chip could not run it either; these do not count.",
             "Everything else is *accepted*: it has to pass, and a test that is skipped counts as a failure. *not run*: no result yet.", ""]
    for name in SUITES:
        path = Suite(name).manifest
        if not path.is_file():
            continue
        told = json.loads(path.read_text())
        files = collections.defaultdict(list)
        for test, row in told["tests"].items():
            files[test.split("::")[0]].append(row)
        lines += [f"## {name}", "", f"{SUITES[name]['about']}; libtpu {', '.join(told['libtpu'])}.", "",
                  "| file | collected | refused | accepted | passed | failed | skipped | not run |", "|---|---|---|---|---|---|---|---|"]
        row_of = lambda c: " | ".join(str(c[k]) for k in ("collected", "refused", "accepted", "passed", "failed", "skipped", "not run"))
        lines += [f"| {file} | {row_of(counts_of(rows))} |" for file, rows in sorted(files.items())]
        total = counts_of(told["tests"].values())
        lines += [f"| **all** | {row_of(total)} |", "",
                  f"{total['passed']} of the {total['accepted'] - total['not run']} accepted tests that have been run pass.", ""]
        groups = collections.defaultdict(list)
        for test, row in told["tests"].items():
            if row["result"] in ("failed", "skipped") and row["verdict"] not in ("refused", "crash"):
                groups[(row["result"], cause(row.get("message", "")))].append(test)
        if groups:
            lines += ["| result | tests | what is said | one of them |", "|---|---|---|---|"]
            lines += [f"| {result} | {len(names)} | {why} | {names[0].split('::', 1)[-1]} |"
                      for (result, why), names in sorted(groups.items(), key=lambda g: -len(g[1]))] + [""]
    (TOP / "docs" / "kernel_suites.md").write_text("\n".join(lines))


def check(options, suite):
    told = suite.told()
    wanted = collections.defaultdict(list)
    for test, row in told.items():
        if row["result"] == "passed" and in_sample(test, options):
            wanted[test.split("::")[0], row["target"]].append(test)
    suite.results = suite.folder / f"check-{os.getpid()}.jsonl"
    suite.told = dict  # only what runs now counts
    failed = total = 0
    try:
        for (file, target), tests in sorted(wanted.items()):
            run_some(options, suite, target, file, tests)
        for test, rows in suite.result_rows().items():
            row = suite.best(rows)
            total += 1
            if row["result"] != "passed":
                failed += 1
                print(f"{row['result']}: {test} on {row['target']}\n{row['message']}", flush=True)
    finally:
        suite.results.unlink(missing_ok=True)
    print(f"{suite.name}: {total - failed} of {total} passed")
    return 1 if failed or not total else 0


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that tests are stopped, too
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "verdicts", "manifest", "check"])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--archives", type=pathlib.Path, default=SHARED)
    parser.add_argument("--sample", type=float, default=1)
    parser.add_argument("--salt", default="1")
    parser.add_argument("--files", default="", help="regular expression: only these files")
    parser.add_argument("--again", action="store_true", help="run: also what failed before")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one test")
    parser.add_argument("--limit", type=float, default=float("inf"), help="verdicts: stop after so many seconds")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.tried = {}
    suite = Suite(options.suite)
    if options.command not in ("verdicts", "manifest") and not suite.unpack(options.archives):
        print(f"{options.archives / suite.about['archive']} is not there")
        return SKIPPED
    if options.ask:
        return ask(options, suite)
    return {"run": run, "verdicts": verdicts, "manifest": manifest, "check": check}[options.command](options, suite)


if __name__ == "__main__":
    sys.exit(main())
