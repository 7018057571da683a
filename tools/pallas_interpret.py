#!/usr/bin/env python3
"""The commonest kernels of JAX's Pallas TPU tests, each compared with JAX's interpret mode.

  tools/pallas_interpret.py [--library build/release/libatoll.so] [--first 0] [--count 300] [--tests NAME,NAME] [--out result.json]

Common are test functions whose kernels stand most often in ../shared/facts/pallas/corpus.tar.xz; one test of each runs, as
the chip that its kernel was lowered for. While it runs, every pallas_call runs in interpret mode too, and the outputs are
compared: integers and booleans bit by bit, floats within 1e-5 of the largest value (f32; 1e-2 for narrower ones), within 1e-2
where the kernel has products. Elements that interpret mode leaves undefined do not count. Tests whose kernels interpret mode
does not know (semaphores as results, packed words, the chip's random bits), and those that call pl.kernel, are named and not
compared. Exits with 1 if something differs.
"""
import argparse
import collections
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]
EXACT = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 1e-2, "float64": 1e-5}
INTERPRETER = "pallas/mosaic/interpret"
PER_TEST = 2  # kernel runs that are compared, then the test ends: those with generated cases have hundreds


# ---- inside pytest: this file is a plugin there
def plug_in(out):
    import jax
    import numpy as np
    import pytest
    from jax._src.pallas import pallas_call
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    spec = importlib.util.spec_from_file_location("atoll_interpret", TOP / "src" / "cli" / "interpret.py")
    mode = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mode)
    state = {"test": "", "runs": 0, "products": False}

    def write(verdict, name, where, text):
        state["runs"] += 1
        with open(out, "a") as f:
            f.write(json.dumps([state["test"], verdict, name, where, text]) + "\n")

    def told(name, where, got, want):
        for i, (g, w) in enumerate(zip(got, want)):
            g, w = np.asarray(g), np.asarray(w)
            share = mode.share_of(w.dtype, mode.SHARE if state["products"] else EXACT)
            bad = mode.differences(g, w, share)
            if "float" in str(w.dtype):
                bad &= ~np.isnan(w.astype(np.float32))
            elif np.issubdtype(w.dtype, np.signedinteger):
                bad &= w != np.iinfo(w.dtype).min
            if bad.any():
                at = tuple(int(d) for d in np.argwhere(bad)[0])
                write("differs", name, where, f"output {i} {w.dtype}{list(w.shape)}: {int(bad.sum())} elements; first at {at}: "
                                              f"{g[at]}, interpreted {w[at]}")
                return
        write("equal", name, where, "")

    def missing(name, where, e):
        write("no interpret mode", name, where, f"{type(e).__name__}: {str(e)[:200]}")

    checked = mode.with_interpreter([True, pltpu.InterpretParams()], told, missing)

    def text_of(run, operands):
        try:
            return str(jax.make_jaxpr(run)(*operands))
        except Exception:  # what is traced once only
            return "dot_general"

    def counted(kernel, *args, **kwargs):
        run, plain = checked(kernel, *args, **kwargs), mode.native(kernel, *args, **kwargs)

        def call(*operands):
            if state["runs"] >= PER_TEST:
                pytest.skip("enough kernel runs were compared")
            text = text_of(plain, operands)
            if "prng_random_bits" in text or "prng_seed" in text:
                write("no interpret mode", getattr(kernel, "__name__", ""), "", "the chip's own random bits")
                return plain(*operands)
            state["products"] |= "dot_general" in text or "matmul" in text
            return run(*operands)
        return call

    pl.pallas_call = pallas_call.pallas_call = counted

    def begin(item):
        state.update(test=item.nodeid.split("/")[-1], runs=0, products=False)
    return begin, write


if os.environ.get("PALLAS_INTERPRET_OUT"):
    begin_test, write_verdict = plug_in(os.environ["PALLAS_INTERPRET_OUT"])


def pytest_runtest_setup(item):
    begin_test(item)


def pytest_runtest_logreport(report):
    text = report.longreprtext if report.failed else ""
    if INTERPRETER in text:  # JAX's TPU interpreter gave up while it ran
        gave_up(text)


def gave_up(text):
    errors = [line for line in text.splitlines() if re.search(r"Error\b", line)]
    write_verdict("no interpret mode", "", "", errors[-1][:200] if errors else "")


def pytest_runtest_teardown(item):
    import jax
    from jax._src import dispatch
    from jax.experimental.pallas import tpu as pltpu
    try:
        jax.effects_barrier()
    except Exception as e:  # else the next test would meet it again
        dispatch.runtime_tokens.clear()
        pltpu.reset_tpu_interpret_mode_state()
        if INTERPRETER not in str(e):
            raise
        gave_up(str(e))


# ---- outside
def commonest(entries, first, count, tests):
    """[(target, test id)], most frequent first; without the test that reads memory which nobody wrote, and one whose 6 GiB
    interpret mode copies several times: where memory runs out, the tests after it are lost"""
    import pallas_corpus
    groups = collections.defaultdict(list)
    for e in entries:
        if "::" in e["test"] and not e["test"].endswith(("test_poison_buffers", "test_large_array_indexing")) and not e["cfg"]["custom_call_config"].get("has_communication"):
            groups[re.sub(r"\d+$", "", e["test"])].append(e)
    ranked = sorted(groups.values(), key=lambda g: -len(g))
    chosen = [(pallas_corpus.TARGETS[g[0]["kind"]], g[0]["test"]) for g in ranked]
    return [c for c in chosen if c[1].split("::")[-1] in tests] if tests else chosen[first:first + count]


def run(options, folder, target, file, ids, out):
    env = dict(os.environ, TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
               ATOLL_TARGET=target, ATOLL_NUMERICS="tpu", JAX_SKIP_SLOW_TESTS="1", JAX_TESTLIB=str(folder / "testlib"),
               PALLAS_INTERPRET_OUT=str(out), PYTHONPATH=os.pathsep.join([str(TOP.parent / "shared" / "conformance"), str(TOP / "tools")]))
    env.pop("PJRT_NAMES_AND_LIBRARY_PATHS", None)
    log = folder / f"interpret-{target}-{file}.log"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "jaxtestlib", "-p", "pallas_interpret", "-p", "no:cacheprovider",
               f"--timeout={options.timeout}", "--tb=line", "-rN"]
    with open(log, "w") as f:
        try:
            subprocess.run(command + [f"tests/pallas/{file}::{i}" for i in ids], cwd=folder, env=env, stdout=f, stderr=f,
                           timeout=options.timeout * len(ids) + 60)
        except subprocess.TimeoutExpired:
            print(f"{file} on {target}: out of time, {log}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--tests", default="")
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("--out")
    options = parser.parse_args()
    import jax_tests
    import pallas_corpus
    if not pallas_corpus.ARCHIVE.is_file():
        print(f"{pallas_corpus.ARCHIVE} is not here: skipped")
        return 77
    folder = jax_tests.unpack()
    entries = [json.loads(line) for line in open(pallas_corpus.unpack() / "index.jsonl")]
    chosen = commonest(entries, options.first, options.count, set(options.tests.split(",")) - {""})
    out = folder / f"interpret-{os.getpid()}.jsonl"
    out.write_text("")
    groups = collections.defaultdict(list)
    for target, test in chosen:
        file, rest = test.split("::", 1)
        groups[target, file].append(rest)
    for (target, file), ids in groups.items():
        run(options, folder, target, file, ids, out)
        print(f"{file:45} {target:4} {len(ids)} tests", flush=True)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    out.unlink()
    seen = collections.defaultdict(list)
    for test, *rest in found:
        seen[test].append(rest)
    worst = {t: next((k for k in ("differs", "no interpret mode") if any(r[0] == k for r in rs)), "equal") for t, rs in seen.items()}
    for test, rs in seen.items():
        for verdict, name, where, text in rs:
            if verdict != "equal":
                print(f"{verdict}: {test}: {name} at {where}\n    {text}")
    rest = [t for _, t in chosen if t not in seen]
    for test in rest:
        print(f"ran no kernel: {test}")
    counts = collections.Counter(worst.values())
    print(f"{len(chosen)} tests, {len(found)} kernel runs: {dict(counts)}; {len(rest)} without a kernel run")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(found, indent=0))
    return 1 if counts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
