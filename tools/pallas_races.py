#!/usr/bin/env python3
"""JAX's own tests of its TPU interpreter that look for races, with Atoll's checks in the interpreter's place.

  tools/pallas_races.py [--library build/release/libatoll.so]

Every test that reads `races.races_found` runs its kernels natively under ATOLL_CHECK=races,deadlock. A test that
expects a race must end in Atoll's finding, any other must pass.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import types
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent
# What only an interpreter takes: JAX's TPU lowering refuses these kernels.
JAX_REFUSES = ["lowering.py"]
FILES = ["tpu_pallas_interpret_test", "tpu_pallas_interpret_distributed_test"]


def inside(options):
    """In a process of its own, whose working folder has JAX's tests."""
    from jax._src import test_util as jtu
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call as interpreter
    from jax.experimental.pallas import tpu as pltpu
    jtu.test_device_matches = lambda kinds: True
    pltpu.InterpretParams = lambda *args, **kwargs: False
    interpreter.races = types.SimpleNamespace(races_found=False)
    counts = {"agree": 0, "differ": 0, "skipped": 0, "not for TPU": 0}
    for case in unittest.defaultTestLoader.loadTestsFromName(f"tests.pallas.{options.inside}"):
        for test in case:
            name = test._testMethodName
            base = max((n for n in ORIGINAL if name.startswith(n)), key=len, default=None)
            if base is None:
                continue
            wanted = "race" if "assertTrue(mosaic_interpret.races.races_found)" in ORIGINAL[base] else ""
            result = unittest.TestResult()
            test.run(result)
            told = "".join(text for _, text in result.errors + result.failures)
            found = "race" if "race:" in told else told
            verdict = "skipped" if result.skipped else "agree" if found == wanted else "differ"
            if any(text in told for text in JAX_REFUSES):
                verdict = "not for TPU"
            counts[verdict] += 1
            if verdict not in ("agree", "skipped"):
                print(f"{name}: {verdict}: wanted {wanted or 'no finding'}, got {found[-300:] or 'no finding'}")
    print(options.inside, counts)


def originals(module):
    """Test functions by the name that they have in the source, where that mentions races."""
    text, out, name = pathlib.Path(f"tests/pallas/{module}.py").read_text().split("\n"), {}, None
    for line in text:
        if line.startswith("  def "):
            name = line.split("def ")[1].split("(")[0]
        if name and line.startswith("  "):
            out[name] = out.get(name, "") + line + "\n"
    return {n: s for n, s in out.items() if n.startswith("test") and "races_found" in s}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        ORIGINAL.update(originals(options.inside))
        return inside(options)
    import jax_tests
    folder = jax_tests.unpack()
    env = dict(os.environ, TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
               ATOLL_CACHE="off", ATOLL_CHECK="races,deadlock", ATOLL_LENIENT="1", JAX_TESTLIB=str(folder / "testlib"),
               PYTHONPATH=os.pathsep.join([str(folder), str(folder / "testlib"), str(jax_tests.SHARED)]))
    for name in FILES:
        env["ATOLL_TARGET"] = "v5p:2x2x1" if "distributed" in name else "v5p"
        subprocess.run([sys.executable, str(pathlib.Path(__file__).resolve()), "--inside", name], cwd=folder, env=env, check=True)


ORIGINAL = {}
if __name__ == "__main__":
    main()
