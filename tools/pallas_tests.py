#!/usr/bin/env python3
"""JAX's own Pallas TPU tests on Atoll: a sample of them, with counts by file and every failure.

  tools/pallas_tests.py [--library build/release/libatoll.so] [--target v6e] [--sample 0.02] [--salt 1]
                        [--files tpu_ops_test,ops_test] [-k expression] [-j 2] [--out result.json]

The tests come from ../shared/conformance/jax-0.10.2-tests.tar.xz, unpacked into build/jax-tests.
A test counts as passed, failed or skipped by its own verdict. Failures are grouped by their message.
Products outside kernels round as on the chip (ATOLL_NUMERICS=tpu): tests compare them with kernels.
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
import xml.etree.ElementTree as ElementTree

import jax_tests

TOP = jax_tests.TOP
FILES = """einshape_test indexing_test ops_test pallas_error_handling_test pallas_lowering_determinism_test pallas_shape_poly_test
pallas_test tpu_all_gather_test tpu_fusible_matmul_test tpu_fusible_matmul_with_stateful_fusions_test tpu_gmm_test tpu_info_test
tpu_ops_test tpu_paged_attention_kernel_test tpu_pallas_async_test tpu_pallas_call_print_test tpu_pallas_distributed_test
tpu_pallas_memory_space_test tpu_pallas_mpmd_test tpu_pallas_pipeline_test tpu_pallas_random_test tpu_pallas_state_test
tpu_pallas_test tpu_ragged_paged_attention_test tpu_side_effects_test tpu_sparsecore_pallas_debug_check_test
tpu_sparsecore_pallas_distributed_test tpu_sparsecore_pallas_test tpu_splash_attention_kernel_sharded_test
tpu_splash_attention_kernel_test tpu_trace_value_test""".split()


def from_log(log):
    """What a run that was cut short has said so far, as test cases of a report."""
    cases = []
    for verdict, path, name in re.findall(r"(PASSED|FAILED|SKIPPED) (\S+?)\.py::(\S+)", log.read_text(errors="replace")):
        case = ElementTree.Element("testcase", {"classname": path.replace("/", ".") + "." + name.split("::")[0],
                                                "name": name.split("::")[-1]})
        if verdict != "PASSED":
            ElementTree.SubElement(case, verdict.lower().replace("failed", "failure"))
        cases.append(case)
    return cases


def run(options, folder, name):
    """The test cases of one file; each file has processes of its own, so that memory stays bounded."""
    report = folder / f"pallas-{os.getpid()}.xml"
    env = dict(os.environ, TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
               ATOLL_TARGET=options.target, ATOLL_NUMERICS="tpu", JAX_SKIP_SLOW_TESTS="1", JAX_SAMPLE=str(options.sample),
               JAX_SAMPLE_SALT=options.salt, JAX_TESTLIB=str(folder / "testlib"),
               PYTHONPATH=os.pathsep.join(filter(None, [str(jax_tests.SHARED), os.environ.get("PYTHONPATH")])))
    env.pop("PJRT_NAMES_AND_LIBRARY_PATHS", None)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "jaxtestlib", "-p", "jaxsample", "-p", "no:cacheprovider",
               "-n", str(options.jobs), f"--timeout={options.timeout}", f"--junitxml={report}", "--tb=short"]
    if options.k:
        command += ["-k", options.k]
    log = folder / f"pallas-{name}.log"
    with open(log, "w") as out:
        child = subprocess.Popen(command + [f"tests/pallas/{name}.py"], cwd=folder, env=env, stdout=out, stderr=out)
        try:
            child.wait(options.file_timeout)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)  # pytest still reports what is done
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
    if not report.is_file():
        return from_log(log)
    cases = list(ElementTree.parse(report).iter("testcase"))
    report.unlink()
    return cases


def reason(message):
    """The part of a failure that others may share: Atoll's own words if there are any, without numbers and names."""
    lines = [l.strip().removeprefix("E ").strip() for l in message.splitlines()]
    said = [l for l in lines if re.search(r"UNIMPLEMENTED|INVALID_ARGUMENT|INTERNAL|FAILED_PRECONDITION|OUT_OF_RANGE|EXHAUSTED", l)]
    errors = [l for l in lines if re.match(r"[\w.]*(Error|Exception|Failed|Mismatch)\b", l)]
    line = (said or errors or [l for l in lines if l] or ["?"])[0]
    return re.sub(r"0x[0-9a-f]+|\d+", "N", line)[:220]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--target", default="v6e")
    parser.add_argument("--sample", type=float, default=0.02)
    parser.add_argument("--salt", default="1")
    parser.add_argument("--files", default="")
    parser.add_argument("-k", default="")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=120)
    parser.add_argument("--file-timeout", type=int, default=1200, help="seconds for one file")
    parser.add_argument("--out")
    options = parser.parse_args()
    folder = jax_tests.unpack()
    whole = options.sample >= 1 and not options.k
    counts, failures = collections.defaultdict(collections.Counter), []
    for module in options.files.split(",") if options.files else FILES:
        for case in run(options, folder, module):
            bad = next((c for c in case if c.tag in ("failure", "error")), None)
            verdict = "failed" if bad is not None else "skipped" if case.find("skipped") is not None else "passed"
            if not case.get("classname"):
                continue
            counts[module][verdict] += 1
            if bad is not None:
                failures.append({"file": module, "name": f"{case.get('classname').split('.')[-1]}.{case.get('name')}",
                                 "message": (bad.get("message") or "") + "\n" + (bad.text or "")})
        print(f"{module:45} {dict(counts[module])}", flush=True)
        if options.out:
            pathlib.Path(options.out).write_text(json.dumps(
                {"target": options.target, "sample": 1.0 if whole else options.sample, "counts": counts, "failures": failures}, indent=1))
    groups = collections.defaultdict(list)
    for f in failures:
        groups[reason(f["message"])].append(f"{f['file']}::{f['name']}")
    for why, names in sorted(groups.items(), key=lambda g: -len(g[1])):
        print(f"{len(names):4} {why}\n       {names[0]}")
    total = collections.Counter()
    for module in sorted(counts):
        total += counts[module]
    ran = total["passed"] + total["failed"]
    print(f"{total['passed']} of {ran} passed ({100 * total['passed'] / max(ran, 1):.1f}%), {total['skipped']} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
