#!/usr/bin/env python3
"""Tests of several versions of JAX on Atoll, each with its own tests, and the table in docs/jax_versions.md.

  tools/jax_versions.py --python 0.9.2=venvs/0.9.2/bin/python [--python 0.12.0=... --tests 0.12.0=0.11.0]
                        [--chips 1,8] [--sample 0.03] [--salts 1,2,3] [-j 2] [--files array_test,pallas/ops_test]
  tools/jax_versions.py --again --python ...    only what failed before, for want of a name too
  tools/jax_versions.py --table                 docs/jax_versions.md from the results so far

A version's tests are ../shared/conformance/jax-VERSION-tests.tar.xz (--tests names another version's). Results go to
build/jax-versions/VERSION-CHIPS-SALT.json; the table sums them up over the salts, each test once. "--salts 1+2+3" takes
the three samples in one run: the files are imported once. Rows of the table without results stay as they are. A test that
fails on Atoll runs again on XLA:CPU; if it fails there too, it does not count. A file that cannot be imported is one failed test. Tests of GPUs and of the source tree are left out. Where a
version runs another one's tests, those that fail for a name that this JAX does not have are counted apart.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import tarfile
import xml.etree.ElementTree as ElementTree

TOP = pathlib.Path(__file__).resolve().parents[1]
SHARED = TOP.parent / "shared" / "conformance"
RESULTS = TOP / "build" / "jax-versions"
DOC = TOP / "docs" / "jax_versions.md"
TARGETS = {"1": "v6e:1x1", "8": "v6e:2x4"}
# Of other hardware, of the source tree, or of several machines.
LEFT_OUT = re.compile(r"^(m?gpu_|mgpu|mosaic_gpu|triton_|mock_gpu|multiprocess|magma_|cudnn_|lax_metal|array_api|"
                      r"package_structure|version_test|gpu_memory|pytorch_|fused_attention|scaled_matmul|pgle_)")


def unpack(version):
    target = RESULTS / "tests" / version
    if not (target / "tests").is_dir():
        target.mkdir(parents=True, exist_ok=True)
        with tarfile.open(SHARED / f"jax-{version}-tests.tar.xz") as t:
            t.extractall(target)
    return target


def environment(options, folder, chips):
    """chips None: XLA:CPU with eight devices."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ATOLL_", "JAX_", "XLA_", "PJRT_"))}
    env.pop("TPU_LIBRARY_PATH", None)
    env.update(JAX_NUM_GENERATED_CASES="1", JAX_SKIP_SLOW_TESTS="1", JAX_TESTLIB=str(folder / "testlib"),
               JAX_SAMPLE=str(options.sample), JAX_SAMPLE_SALT=options.salt, PYTHONPATH=str(TOP / "tools"),
               PATH=os.pathsep.join([str(pathlib.Path(options.executable).parent), os.environ["PATH"]]))
    if chips:
        env.update(TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
                   ATOLL_TARGET=TARGETS[chips], ATOLL_CACHE="off")
    else:
        env.update(JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=8")
    return env


def run(options, folder, env, files, name):
    """{node id: (verdict, message)} of the files' tests."""
    report = RESULTS / f"report-{name}.xml"
    report.unlink(missing_ok=True)
    with open(RESULTS / f"log-{name}.txt", "w") as log:
        # JAX's tests of what kernels print want the process's own stderr: no capture.
        subprocess.run([options.executable, "-m", "pytest", "-q", "-s", "-p", "jax_versions_plugin", "-p", "no:cacheprovider",
                        "-n", str(options.jobs), "--continue-on-collection-errors", f"--timeout={options.timeout}",
                        f"--junitxml={report}", "--tb=short", *files], cwd=folder, env=env, stdout=log, stderr=log)
    verdicts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = next((c for c in case if c.tag in ("failure", "error")), None)
        verdict = "failed" if bad is not None else "skipped" if case.find("skipped") is not None else "passed"
        parts = case.get("classname", "").split(".")
        if parts == [""]:  # a file that was not imported
            verdict, node = "not imported", case.get("name").replace(".", "/") + ".py"
        else:
            at = next(i for i, p in enumerate(parts) if p.endswith("_test")) + 1
            node = "::".join(["/".join(parts[:at]) + ".py", *parts[at:], case.get("name")])
        message = ((bad.get("message") or "") + "\n" + (bad.text or "")) if bad is not None else ""
        verdicts[node] = (verdict, message)
    return verdicts


def wants_other_names(verdict, message):
    """Whether a test of another version of JAX fails before it comes to a platform."""
    first = (message.strip().splitlines() or [""])[0]
    return verdict == "not imported" or re.match(
        r"AttributeError: module 'jax|TypeError: .*(unexpected|missing) .*argument", first) is not None


def files_of(options, folder):
    wanted = options.files.split(",") if options.files else None
    found = sorted(p.relative_to(folder / "tests") for p in (folder / "tests").glob("*_test.py"))
    found += sorted(p.relative_to(folder / "tests") for p in (folder / "tests" / "pallas").glob("*_test.py"))
    return [f"tests/{p}" for p in found if not LEFT_OUT.match(p.name) and (not wanted or str(p)[:-3] in wanted)]


def about(executable):
    code = "import jax, jaxlib, platform; print(jax.__version__, jaxlib.__version__, platform.python_version())"
    return subprocess.run([executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def run_all(options, folder, files, name, chips, only=None):
    """{node id: (verdict, message)}; of the nodes in `only` if that is given."""
    env = environment(options, folder, chips)
    if only:
        listed = RESULTS / f"only-{name}.txt"
        listed.write_text("\n".join(only))
        env["JAX_ONLY"] = str(listed)
        files = sorted({n.split("::")[0] for n in only})
    kernels = [f for f in files if f.startswith("tests/pallas/")]
    plain = [f for f in files if f not in kernels]
    verdicts = run(options, folder, env, plain, name) if plain else {}
    if kernels:  # they compare kernels with products outside of them
        verdicts |= run(options, folder, dict(env, ATOLL_NUMERICS="tpu"), kernels, name + "-pallas")
    return verdicts


def test_version(options, version, chips):
    options.executable = os.path.abspath(options.pythons[version])
    folder = unpack(options.tests.get(version, version))
    name = f"{version}-{chips}-{options.salt}"
    jax, jaxlib, python = about(options.executable)
    out = {"jax": jax, "jaxlib": jaxlib, "python": python, "tests": options.tests.get(version, version), "chips": chips,
           "sample": options.sample, "verdicts": {}, "failures": []}
    only = None
    if options.again:
        out = json.loads((RESULTS / f"{name}.json").read_text())
        only = [n for n, v in out["verdicts"].items() if "::" in n and v in ("failed", "other names")]
        out["failures"] = [f for f in out["failures"] if f["test"] not in only]
    if only != []:
        verdicts = run_all(options, folder, files_of(options, folder), name, chips, only)
        failed = sorted(n for n, v in verdicts.items() if v[0] == "failed")
        on_cpu = run_all(options, folder, [], name + "-cpu", None, failed) if failed else {}
        for node, (verdict, message) in sorted(verdicts.items()):
            other = on_cpu.get(node, ("", ""))[0]
            if verdict == "failed" and other == "failed":
                verdict = "failed on CPU too"
            elif out["tests"] != version and verdict in ("failed", "not imported") and wants_other_names(verdict, message):
                verdict = "other names"
            out["verdicts"][node] = verdict
            if verdict not in ("passed", "skipped"):
                out["failures"].append({"test": node, "verdict": verdict, "cpu": other, "message": message[-3000:]})
        (RESULTS / f"{name}.json").write_text(json.dumps(out, indent=1))
    print(f"{name}: {describe(out)}", flush=True)


def sums(result):
    """Counts by verdict, how many ran, how many of those failed, how many were of Pallas, the share that passed."""
    total = collections.Counter(result["verdicts"].values())
    bad = total["failed"] + total["not imported"]
    ran = total["passed"] + bad
    pallas = sum(n.startswith("tests/pallas/") and v in ("passed", "failed") for n, v in result["verdicts"].items())
    return total, ran, bad, pallas, total["passed"] / max(ran, 1)


def describe(result):
    total, ran, bad, pallas, share = sums(result)
    return (f"{total['passed']} passed, {bad} failed, {total['failed on CPU too']} failed on XLA:CPU too, "
            f"{total['skipped']} skipped: {share:.1%} of {ran} ({pallas} of Pallas)")


def order(row):
    return [int(x) for x in re.findall(r"\d+", row[0])] + [int(row[3])]


def table():
    """A row for each version and number of chips that has results; rows of others stay as they are."""
    results, samples = {}, collections.Counter()
    for path in sorted(RESULTS.glob("*-[0-9]-*.json")):
        r = json.loads(path.read_text())
        name, _, salts = path.stem.rpartition("-")
        results.setdefault(name, r)["verdicts"].update(r["verdicts"])
        samples[name] += len(salts.split("+"))
    text = DOC.read_text()
    begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
    before, rest = text.split(begin)
    old, after = rest.split(end)
    head = ["JAX", "Python", "tests of", "chips", "samples", "run", "of Pallas", "pass", "fail", "fail on XLA:CPU too",
            "want other names", "skip", "share"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in old.splitlines()[2:]]
    rows = {(row[0], row[3]): row for row in rows}
    for name, r in results.items():
        total, ran, bad, pallas, share = sums(r)
        rows[r["jax"], r["chips"]] = [
            r["jax"], r["python"], r["tests"], r["chips"], samples[name], ran, pallas, total["passed"], bad,
            total["failed on CPU too"], total["other names"], total["skipped"], f"{share:.1%}"]
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head] + sorted(rows.values(), key=order)]
    lines.insert(1, "|---" * len(head) + "|")
    DOC.write_text(before + begin + "\n".join(lines) + "\n" + end + after)


def pairs(texts):
    return dict(t.split("=", 1) for t in texts or [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="VERSION=PATH of a Python that has this JAX and pytest")
    parser.add_argument("--tests", action="append", help="VERSION=VERSION: whose tests it runs, if not its own")
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--chips", default="1,8")
    parser.add_argument("--sample", type=float, default=0.03)
    parser.add_argument("--salts", default="1,2,3")
    parser.add_argument("--files", default="")
    parser.add_argument("--timeout", type=int, default=180, help="seconds a test may take")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    options.pythons, options.tests = pairs(options.python), pairs(options.tests)
    for options.salt in options.salts.split(","):
        for chips in options.chips.split(","):
            for version in options.pythons:
                test_version(options, version, chips)
    if options.table:
        table()


if __name__ == "__main__":
    main()
