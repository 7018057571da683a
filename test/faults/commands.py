"""The `atoll` command while calls for memory fail.

    commands.py ATOLL LIBFAULTS IR [--samples=N] [--only=NAME]

Each command runs once as it is, then with the k-th allocation failing, and with
all from the k-th on: it ends with an error that says so and an exit status
other than 0, or prints what it prints without failures. --samples=0 tries every
k. A failed case is shown with what makes it happen again.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def commands(ir):
    kernel = str(HERE / "programs/kernel.mlir")
    step = str(HERE / "programs/step@4.mlir")
    dense = str(ir / "jax/dense.mlirbc")
    return {
        "estimate": ["estimate", kernel],
        "estimate-json": ["estimate", "--json", "--target=v5e:2x2", step],
        "estimate-compare": ["estimate", "--compare=v5p", dense],
        "html": ["estimate", "--html=OUT", dense],
        "trace": ["estimate", "--trace=OUT", dense],
        "xplane": ["estimate", "--xplane=OUT", dense],
        "mlir": ["dump", "--stage=mlir", kernel],
        "hlo": ["dump", "--stage=hlo", step],
        "optimized": ["dump", "--stage=optimized", dense],
        "steps": ["dump", "--stage=steps", step],
        "mosaic": ["dump", "--mosaic", kernel],
        "tiles": ["profile", "--tiles", str(ir / "jax/reductions.mlirbc")],
        "tiles-json": ["profile", "--tiles", "--json", dense],
        "run": ["run", str(ir / "jax/optimise.mlirbc")],
        "machines": ["cost", "machines", "v5p"],
    }


def run(atoll, library, command, first, count, folder, also=()):
    out = pathlib.Path(folder) / f"{first}-{count}"
    env = dict(os.environ, ATOLL_CACHE="off", ATOLL_THREADS="1", ATOLL_LOG="error")
    env.update(also)
    if first is not None:
        env.update(LD_PRELOAD=library, FAULTS_FIRST=str(first), FAULTS_COUNT=str(count))
    args = [c.replace("OUT", str(out)) for c in command]
    try:
        p = subprocess.run([atoll, *args], capture_output=True, env=env, timeout=60)
    except subprocess.TimeoutExpired:
        return None, b"", b"it hangs"
    text = p.stdout
    if out.exists():
        text += out.read_bytes()
        out.unlink()
    return p.returncode, text, p.stderr


def calls(atoll, library, command, folder):
    """How many allocations the command makes."""
    error = run(atoll, library, command, 2**60, 0, folder, {"FAULTS_TALLY": "1"})[2]
    return int(re.search(rb"faults: (\d+) calls", error)[1])


def broken(clean, got):
    code, text, error = got
    if code is None:
        return "hangs"
    if code < 0 or code > 120:
        return f"ends with signal {code}"
    if code and not error.strip():
        return "not a word of what was missing"
    if code == 0 and text != clean[1]:
        return "another answer"
    return None


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("atoll")
    p.add_argument("library")
    p.add_argument("ir", type=pathlib.Path)
    p.add_argument("--samples", type=int, default=6)
    p.add_argument("--only")
    a = p.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, command in commands(a.ir).items():
            if a.only and name != a.only:
                continue
            clean = run(a.atoll, a.library, command, None, 0, folder)
            if clean[0] or not clean[1]:
                print(f"{name}: fails by itself: {clean[2].decode()}")
                bad += 1
                continue
            total = calls(a.atoll, a.library, command, folder)
            n = min(a.samples or total, total)
            tries = [(s * total // n, 1) for s in range(n)]
            tries += [(s * total // n, 2**60) for s in range(n)]
            go = lambda t: run(a.atoll, a.library, command, *t, folder)
            refused = 0
            for (first, count), got in zip(tries, pool.map(go, tries)):
                why = broken(clean, got)
                refused += got[0] != 0
                if why:
                    bad += 1
                    print(f"{name}: {why}: FAULTS_FIRST={first} FAULTS_COUNT={count} "
                          f"atoll {' '.join(command)}\n  {got[2].decode()[-200:]}")
            print(f"{name:18} {total:7} allocations, {len(tries)} failures, "
                  f"{refused} statuses, {bad} broken", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
