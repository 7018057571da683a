#!/usr/bin/env python3
"""Writes docs/coverage.md (to standard output): what Atoll does not do, and what was seen failing.

  tools/coverage.py LIBRARY [--suite result.json] [--jax salt1.json salt2.json ...] [--chips chips.json]

Runs the StableHLO corpus of ../shared/conformance on eight chips, a tenth of JAX's own tests with
three salts and those of several devices on eight chips (tools/jax_tests.py), unless results are
given. The list of PJRT functions that
answer UNIMPLEMENTED comes from src/pjrt/README.md; reasons for what fails stand in
tools/coverage_reasons.json, by a prefix of the program's or test's name.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
SUITE = TOP.parent / "shared" / "conformance"


def suite_results(library):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([sys.executable, SUITE / "run_suite.py", library, "--name", "atoll", "--out", out.name],
                       env=dict(os.environ, ATOLL_CACHE="off", ATOLL_TARGET="v6e:2x4"), stdout=subprocess.DEVNULL, check=True)
        return json.load(open(out.name))


def jax_result(library, *options):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([sys.executable, TOP / "tools" / "jax_tests.py", "--library", library, *options, "--out", out.name],
                       stdout=subprocess.DEVNULL, check=True)
        return json.load(open(out.name))


def jax_section(results, reasons):
    print("\n## JAX's own tests\n")
    print("A sample of jax 0.10.2's tests on one chip (tools/jax_tests.py), of what JAX does not skip itself.\n")
    print("| salt | sample | passed | failed | skipped | passed of what ran |\n|---|---|---|---|---|---|")
    failed = {}
    for r in results:
        total = {k: sum(c.get(k, 0) for c in r["counts"].values()) for k in ("passed", "failed", "skipped")}
        ran = total["passed"] + total["failed"]
        print(f"| {r['salt']} | {r['sample']:.0%} | {total['passed']} | {total['failed']} | {total['skipped']} | {total['passed'] / max(ran, 1):.2%} |")
        failed.update({f"{f['file']}::{f['name']}": ran for f in r["failures"]})
    failures(failed, reasons)


def failures(failed, reasons):
    print("\nWhat fails, and whether only the hardware or its own compiler could answer it:\n")
    print("| test | only hardware | why |\n|---|---|---|")
    for name in sorted(failed):
        entry = reason_of(name, reasons["jax"])
        why, hardware = (entry["why"], entry["hardware"]) if isinstance(entry, dict) else (entry, False)
        print(f"| {name} | {'yes' if hardware else 'no'} | {why} |")


def chips_section(result, reasons):
    print("\n### On eight chips\n")
    print("All tests of the files about several devices (tools/jax_tests.py --chips), of what JAX does not skip itself.\n")
    print("| file | passed | failed | skipped | passed of what ran |\n|---|---|---|---|---|")
    for file, counts in sorted(result["counts"].items()):
        passed, failed, skipped = (counts.get(k, 0) for k in ("passed", "failed", "skipped"))
        if passed + failed:
            print(f"| {file} | {passed} | {failed} | {skipped} | {passed / (passed + failed):.2%} |")
    failures([f"{f['file']}::{f['name']}" for f in result["failures"]], reasons)


def reason_of(name, reasons):
    match = max((p for p in reasons if name.startswith(p)), key=len, default=None)
    return reasons[match] if match else "not explained yet"


def pjrt_gaps():
    text = (TOP / "src" / "pjrt" / "README.md").read_text()
    section = text.split("What is not there", 1)[1]
    return [" ".join(line.split()) for line in re.findall(r"^- (.+?)(?=^- |\Z)", section, re.M | re.S)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--suite", help="result.json of run_suite.py --out")
    parser.add_argument("--jax", nargs="+", help="result files of jax_tests.py --out")
    parser.add_argument("--chips", help="result file of jax_tests.py --chips --out")
    args = parser.parse_args()
    results = json.load(open(args.suite)) if args.suite else suite_results(args.library)
    reasons = json.load(open(TOP / "tools" / "coverage_reasons.json"))
    jax = [json.load(open(f)) for f in args.jax] if args.jax else [
        jax_result(args.library, "--salt", salt) for salt in ("1", "2", "3")]
    chips = json.load(open(args.chips)) if args.chips else jax_result(args.library, "--chips")
    strict = sum(r["strict"] for r in results.values())
    relaxed = sum(r["relaxed"] for r in results.values())
    print("# Coverage\n\nWritten by tools/coverage.py (`tools/docs.sh coverage`); do not edit.\n")
    print("## StableHLO's own test programs\n")
    print(f"{strict} of {len(results)} programs, those for several devices among them, pass with the tolerance that the "
          f"upstream test states (often 3 ULP or equality); {relaxed} pass with the tolerance of JAX's tests.\n")
    print("| program | strict | relaxed | what was seen | why |\n|---|---|---|---|---|")
    for name, r in sorted(results.items()):
        if r["strict"]:
            continue
        seen = r["msg"].replace("|", "/")[:120]
        print(f"| {name} | no | {'yes' if r['relaxed'] else 'no'} | {seen} | {reason_of(name, reasons)} |")
    jax_section(jax, reasons)
    chips_section(chips, reasons)
    print("\n## The PJRT edge\n")
    for line in pjrt_gaps():
        print(f"- {line}")
    print("\n## Refused by name\n")
    for line in reasons["refused"]:
        print(f"- {line}")


if __name__ == "__main__":
    main()
