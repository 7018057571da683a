#!/usr/bin/env python3
"""JAX's own tests on Atoll: a sample of them, with counts by file and every failure.

  tools/jax_tests.py [--library build/release/libatoll.so] [--sample 0.1] [--salt 1]
                     [--files lax_test,nn_test] [-j 2] [--out result.json]
  tools/jax_tests.py --chips      all tests of programs over several devices, on eight chips

The tests come from ../shared/conformance/jax-0.10.2-tests.tar.xz, unpacked into
build/jax-tests. A test counts as passed, failed or skipped by its own verdict.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree

TOP = pathlib.Path(__file__).resolve().parents[1]
SHARED = TOP.parent / "shared" / "conformance"
FILES = """lax_test lax_numpy_test lax_numpy_einsum_test lax_numpy_indexing_test lax_numpy_operators_test
lax_numpy_reducers_test lax_numpy_ufuncs_test lax_numpy_vectorize_test lax_control_flow_test lax_scipy_test
lax_scipy_sparse_test lax_scipy_special_functions_test nn_test random_lax_test linalg_test fft_test api_test
lax_autodiff_test lax_vmap_test lax_vmap_op_test array_test image_test ode_test memories_test python_callback_test
debugging_primitives_test export_test compilation_cache_test dtypes_test""".split()
CHIPS = """pjit_test shard_map_test pmap_test array_test layout_test multi_device_test shard_alike_test export_test
ragged_collective_test linalg_sharding_test mesh_utils_test""".split()

# Not run, and counted as failures, where the machine has less memory (GiB).
LARGE = {"multi_device_test::MultiDeviceTest.test_lax_full_like_efficient": 64}


def too_large():
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    return {name: need for name, need in LARGE.items() if need > memory}


def unpack():
    target = TOP / "build" / "jax-tests"
    if not (target / "tests").is_dir():
        target.mkdir(parents=True, exist_ok=True)
        with tarfile.open(SHARED / "jax-0.10.2-tests.tar.xz") as t:
            t.extractall(target)
    return target


def run(options, folder, files):
    report = folder / f"report-{os.getpid()}.xml"
    env = dict(os.environ, PJRT_NAMES_AND_LIBRARY_PATHS=f"atoll:{pathlib.Path(options.library).resolve()}",
               JAX_PLATFORMS="atoll,cpu", JAX_NUM_GENERATED_CASES="1", JAX_SKIP_SLOW_TESTS="1",
               JAX_SAMPLE=str(options.sample), JAX_SAMPLE_SALT=options.salt, ATOLL_CACHE="off",
               PYTHONPATH=os.pathsep.join(filter(None, [str(SHARED), os.environ.get("PYTHONPATH")])))
    env.pop("TPU_LIBRARY_PATH", None)
    if options.chips:  # by the name under which some of these tests look for it
        env.pop("PJRT_NAMES_AND_LIBRARY_PATHS")
        env.update(TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu")
        env.setdefault("ATOLL_TARGET", "v6e:2x4")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "jaxsample", "-p", "no:cacheprovider", "-n", str(options.jobs),
                    "--timeout=300", f"--junitxml={report}", "--tb=short", "-x" if options.first else "-q",
                    *[f"--deselect=tests/{name.replace('::', '.py::').replace('.test_', '::test_')}" for name in too_large()],
                    *[f"tests/{f}.py" for f in files]], cwd=folder, env=env, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    tree = ElementTree.parse(report)
    report.unlink()
    return tree


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--sample", type=float, help="share of the tests; 0.1, all with --chips")
    parser.add_argument("--salt", default="1")
    parser.add_argument("--files", default="")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--chips", action="store_true", help="the tests of several devices, all of them, on eight chips")
    parser.add_argument("--first", action="store_true", help="stop at the first failure")
    parser.add_argument("--out")
    options = parser.parse_args()
    options.sample = options.sample or (1.0 if options.chips else 0.1)
    folder = unpack()
    files = options.files.split(",") if options.files else CHIPS if options.chips else FILES
    present = [f for f in files if (folder / "tests" / f"{f}.py").is_file()]
    counts, failures = collections.defaultdict(collections.Counter), []
    for case in run(options, folder, present).iter("testcase"):
        bad = next((c for c in case if c.tag in ("failure", "error")), None)
        verdict = "failed" if bad is not None else "skipped" if case.find("skipped") is not None else "passed"
        module = case.get("classname", "?").split(".")[1]
        counts[module][verdict] += 1
        if bad is not None:
            failures.append({"file": module, "name": f"{case.get('classname').split('.')[-1]}.{case.get('name')}",
                             "message": (bad.get("message") or "") + "\n" + (bad.text or "")})
    for name, need in too_large().items() if options.sample == 1 else ():
        module, test = name.split("::")
        if module in present:
            counts[module]["failed"] += 1
            failures.append({"file": module, "name": test, "message": f"not run: needs {need} GiB of memory"})
    for f in failures:
        line = f["message"].splitlines()[0][:300] if f["message"].strip() else ""
        print(f"FAILED {f['file']}::{f['name']}: {line}")
    total = collections.Counter()
    for module in sorted(counts):
        total += counts[module]
        print(f"{module:34s} " + ", ".join(f"{counts[module][k]} {k}" for k in ("passed", "failed", "skipped")))
    ran = total["passed"] + total["failed"]
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    print(f"{total['passed'] / max(ran, 1):.2%} of what is not skipped pass (sample {options.sample}, salt {options.salt})")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"sample": options.sample, "salt": options.salt, "counts": counts, "failures": failures}, indent=1))


if __name__ == "__main__":
    main()
