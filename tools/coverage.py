#!/usr/bin/env python3
"""Writes docs/coverage.md (to standard output): what Atoll does not do, and what was seen failing.

  tools/coverage.py LIBRARY [--suite result.json]

Runs the StableHLO corpus of ../shared/conformance unless a result is given. The list of PJRT
functions that answer UNIMPLEMENTED comes from src/pjrt/README.md; reasons for the
programs below stand in tools/coverage_reasons.json, by a prefix of the program's name.
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
                       env=dict(os.environ, ATOLL_CACHE="off"), stdout=subprocess.DEVNULL, check=True)
        return json.load(open(out.name))


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
    args = parser.parse_args()
    results = json.load(open(args.suite)) if args.suite else suite_results(args.library)
    reasons = json.load(open(TOP / "tools" / "coverage_reasons.json"))
    single = {n: r for n, r in results.items() if r["status"] != "skip"}
    strict = sum(r["strict"] for r in single.values())
    relaxed = sum(r["relaxed"] for r in single.values())
    print("# Coverage\n\nWritten by tools/coverage.py (`tools/docs.sh coverage`); do not edit.\n")
    print("## StableHLO's own test programs\n")
    print(f"{strict} of {len(single)} programs for one device pass with the tolerance that the upstream test states "
          f"(often 3 ULP or equality); {relaxed} pass with the tolerance of JAX's tests. "
          f"{len(results) - len(single)} programs need several devices and are refused.\n")
    print("| program | strict | relaxed | what was seen | why |\n|---|---|---|---|---|")
    for name, r in sorted(single.items()):
        if r["strict"]:
            continue
        seen = r["msg"].replace("|", "/")[:120]
        print(f"| {name} | no | {'yes' if r['relaxed'] else 'no'} | {seen} | {reason_of(name, reasons)} |")
    print("\n## The PJRT edge\n")
    for line in pjrt_gaps():
        print(f"- {line}")
    print("\n## Refused by name\n")
    for line in reasons["refused"]:
        print(f"- {line}")


if __name__ == "__main__":
    main()
