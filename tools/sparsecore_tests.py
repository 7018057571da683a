#!/usr/bin/env python3
"""jax-tpu-embedding's own tests on Atoll, with counts by file and every failure.

  tools/sparsecore_tests.py --source DIR [--target v5p:2x2x1] [--library build/release/libatoll.so]
                            [--files embedding_test,...] [-j 2] [--timeout 300] [--out result.json]

DIR is a checkout of github.com/jax-ml/jax-tpu-embedding at the tag of the installed wheel (v0.1.0): wheels carry the
compiled preprocessing, the checkout the tests; both are laid over each other in build/sparsecore-tests. The tests also
want the packages chex, clu and portpicker. A test that the file's process did not live to finish counts as failed.
"""
import argparse
import collections
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

TOP = pathlib.Path(__file__).resolve().parents[1]
NAME = "jax_tpu_embedding"
# The newest clu (0.0.12) calls jnp.clip with arguments that JAX 0.10 no longer has.
CLIP = """import jax.numpy
def clip(a, a_min=None, a_max=None, _clip=jax.numpy.clip, **more):
  return _clip(a, more.pop("min", a_min), more.pop("max", a_max), **more)
jax.numpy.clip = clip
"""
LINE = re.compile(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+?\.\S+)")


def lay_out(source):
    """The installed package, and what only the checkout has."""
    target = TOP / "build" / "sparsecore-tests"
    spec = importlib.util.find_spec(NAME)
    if not spec or not spec.submodule_search_locations:
        sys.exit("the package jax_tpu_embedding is not installed: pip install jax_tpu_embedding==0.1.0")
    if not (source / NAME / "sparsecore").is_dir():
        sys.exit(f"{source} is not a checkout of jax-tpu-embedding")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / NAME, target / NAME)
    shutil.copytree(spec.submodule_search_locations[0], target / NAME, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))
    (target / "clu_clip").mkdir()
    (target / "clu_clip" / "sitecustomize.py").write_text(CLIP)
    return target


def read_log(text):
    """Verdicts by test, from what absl's runner prints; a test that only began failed."""
    verdicts = {}
    for line in text.splitlines():
        m = LINE.match(line)
        if m:
            word = {"RUN": "failed", "OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[m[1]]
            verdicts[m[2]] = word if m[1] != "RUN" else verdicts.get(m[2], word)
    return {k: (v, "") for k, v in verdicts.items()}


def read_report(path):
    verdicts = {}
    for case in ElementTree.parse(path).iter("testcase"):
        bad = [c for c in case if c.tag in ("failure", "error")]
        skipped = case.find("skipped") is not None or case.get("status") == "notrun" or case.get("result") == "suppressed"
        name = f"{case.get('classname', '?').split('.')[-1]}.{case.get('name')}"
        if name in verdicts:  # subtests of one test
            name_bad = verdicts[name][0] == "failed"
            bad = bad or ([None] if name_bad else [])
        message = bad[0].get("message") or bad[0].text or "" if bad and bad[0] is not None else ""
        verdicts[name] = ("failed" if bad else "skipped" if skipped else "passed", message)
    return verdicts


def run_file(options, folder, path):
    work = folder / "results"
    stem = str(path.relative_to(folder / NAME / "sparsecore").with_suffix("")).replace("/", ".")
    report, log = work / f"{stem}.xml", work / f"{stem}.log"
    env = dict(os.environ, TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
               ATOLL_TARGET=options.target, PYTHONPATH=str(folder))
    if "from clu" in path.read_text():
        env["PYTHONPATH"] += os.pathsep + str(folder / "clu_clip")
    start = time.monotonic()
    with open(log, "w") as out:
        try:
            code = subprocess.run([sys.executable, path, f"--xml_output_file={report}"], cwd=folder, env=env, stdout=out,
                                  stderr=subprocess.STDOUT, timeout=options.timeout, stdin=subprocess.DEVNULL).returncode
        except subprocess.TimeoutExpired:
            code = "timeout"
    text = log.read_text(errors="replace")
    verdicts = read_log(text)
    if report.is_file() and report.stat().st_size:  # empty: the process did not end
        messages = read_report(report)
        for name, (verdict, message) in messages.items():
            found = [k for k in verdicts if k == name or k.startswith(name.split(" ")[0])] or [name]
            for k in found[:1]:
                if verdicts.get(k, (verdict,))[0] == verdict:
                    verdicts[k] = (verdict, message)
    if not verdicts:
        last = [line for line in text.splitlines() if line.strip()]
        verdicts = {"(the file)": ("failed", last[-1] if last else "")}
    return stem, verdicts, code, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--target", default="v5p:2x2x1")
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--files", default="", help="stems of test files, separated by commas; all unless given")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one file")
    parser.add_argument("--out")
    options = parser.parse_args()
    folder = lay_out(options.source)
    (folder / "results").mkdir()
    wanted = set(filter(None, options.files.split(",")))
    files = sorted(p for p in (folder / NAME).rglob("*.py") if re.search(r"_tests?\.py$", p.name))
    files = [p for p in files if not wanted or p.stem in wanted]
    total, failures, result = collections.Counter(), [], {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for stem, verdicts, code, seconds in pool.map(lambda p: run_file(options, folder, p), files):
            counts = collections.Counter(v for v, _ in verdicts.values())
            total += counts
            result[stem] = {"seconds": round(seconds, 1), "exit": code, **counts}
            print(f"{stem:75s} " + ", ".join(f"{counts[k]} {k}" for k in ("passed", "failed", "skipped")) +
                  f"  {seconds:.0f} s" + (f", exit {code}" if code not in (0, 1) else ""), flush=True)
            failures += [{"file": stem, "name": n, "message": m} for n, (v, m) in verdicts.items() if v == "failed"]
    for f in failures:
        line = next((x for x in f["message"].splitlines() if x.strip()), "")
        print(f"FAILED {f['file']}::{f['name']}: {line[:200]}")
    ran = total["passed"] + total["failed"]
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped on {options.target}: "
          f"{total['passed'] / max(ran, 1):.2%} of what is not skipped pass")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(
            {"target": options.target, "total": total, "files": result, "failures": failures}, indent=1))


if __name__ == "__main__":
    main()
