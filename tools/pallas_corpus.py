#!/usr/bin/env python3
"""Runs the kernels of the corpus on random operands: each one as a program of its own, for its own chip.

  tools/pallas_corpus.py [--library build/release/libatoll.so] [--step 1] [--first 0] [--ids SHA,SHA] [-j 2] [--out result.json]

The payloads are ../shared/facts/pallas/corpus.tar.xz. --step 10 takes every tenth. A kernel's verdict:
  ok        it ran to its end
  stopped   it ran and said what went wrong: neither random integers nor ones nor zeros are good as its indices, bounds or counts
  waits     it needs another chip, a semaphore of somebody else, sizes that are not filled in, or gigabytes: compiled only
  refused   no machine code, or the compiler said no
  crashed   the process died, or a kernel took longer than --timeout seconds
Compile times are the processor's, so that others on the machine do not count. Exits with 1 if a kernel was refused or crashed.
"""
import argparse
import base64
import collections
import json
import os
import pathlib
import re
import selectors
import statistics
import subprocess
import sys
import tarfile
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
ARCHIVE = TOP.parent / "shared" / "facts" / "pallas" / "corpus.tar.xz"
TARGETS = {"TPU v5 lite": "v5e", "TPU v6 lite": "v6e", "TPU7x": "7x", "TPU v5": "v5p"}
MOST_BYTES = 3 << 29  # of a kernel's arrays that run here
STOPPED = re.compile(r"OUT_OF_RANGE|DEADLINE_EXCEEDED|ABORTED|FAILED_PRECONDITION|grid dimension|never signalled|waits for|deadlock")


def unpack():
    folder = TOP / "build" / "pallas-corpus"
    if not (folder / "dev" / "index.jsonl").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(ARCHIVE) as t:
            t.extractall(folder)
    return folder / "dev"


def shape_of(text):
    """"float32<smem>[8,128]" -> ("float32", (8, 128)); None: symbolic, or no array."""
    m = re.fullmatch(r"~?(\w+)(?:<\w+>)?\[([\d,]*)\]", text)
    return (m[1], tuple(int(d) for d in m[2].split(",") if d)) if m else None


def random_array(np, rng, x, whole):
    """Normal numbers; integers are 0 and 1, or all `whole`. Large arrays repeat a part."""
    n = min(x.size, 1 << 20)
    if "int" not in str(x.dtype):
        part = rng.standard_normal(n, np.float32)
    else:
        part = rng.integers(0, 2, n) if whole is None else np.full(n, whole)
    return np.resize(part.astype(x.dtype), x.shape)


def run_one(entry, folder, jax, np):
    """verdict, milliseconds of the processor to compile, to run, message"""
    payload = (folder / f"{entry['sha']}.bc").read_bytes()
    config = json.loads(json.dumps(entry["cfg"]))
    config["custom_call_config"]["body"] = base64.b64encode(payload).decode()
    shapes = [shape_of(t) for t in entry["ins"] + entry["outs"]]
    if None in shapes or "semaphore" in json.dumps(entry["ins"] + entry["outs"]):
        return "waits", 0, 0, "semaphores or symbolic sizes among its operands"
    operands, results = ([jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in part]
                         for part in (shapes[:len(entry["ins"])], shapes[len(entry["ins"]):]))
    call = jax.ffi.ffi_call("tpu_custom_call", results, custom_call_api_version=1, has_side_effect=True,
                            legacy_backend_config=json.dumps(config),
                            input_output_aliases={i: o for i, o in entry["aliases"]})
    lowered = jax.jit(lambda *a: call(*a)).lower(*operands)
    start = time.process_time()
    try:
        program = lowered.compile()
    except Exception as e:
        return "refused", 0, 0, f"{type(e).__name__}: {e}"
    compile_ms = 1e3 * (time.process_time() - start)
    if config["custom_call_config"].get("has_communication"):
        return "waits", compile_ms, 0, "it talks to other chips"
    if sum(x.size * x.dtype.itemsize for x in operands + results) > MOST_BYTES:
        return "waits", compile_ms, 0, "its arrays are too large"
    # Integers that are counts or indices are seldom right at random: then all of them are 1, or 0.
    for whole in (None, 1, 0):
        rng = np.random.default_rng(int(entry["sha"], 16))
        arrays = [jax.numpy.asarray(random_array(np, rng, x, whole)) for x in operands]
        begun = time.perf_counter()
        try:
            jax.block_until_ready(program(*arrays))
            break
        except Exception as e:
            error = f"{type(e).__name__}: {e}"
            if not STOPPED.search(error):
                return "refused", compile_ms, 0, error
    else:
        return "stopped", compile_ms, 0, error
    best = time.perf_counter() - begun
    for _ in range(int(os.environ.get("PALLAS_CORPUS_REPEATS", "0"))):
        begun = time.perf_counter()
        jax.block_until_ready(program(*arrays))
        best = min(best, time.perf_counter() - begun)
    return "ok", compile_ms, 1e3 * best, ""


def work():
    """A worker: shas in, one JSON line each out."""
    sys.path.insert(0, str(TOP / "tools"))
    import jax
    import numpy as np
    folder = unpack()
    index = {e["sha"]: e for e in map(json.loads, open(folder / "index.jsonl"))}
    print("ready", flush=True)
    for line in sys.stdin:
        sha = line.strip()
        verdict, compile_ms, run_ms, message = run_one(index[sha], folder, jax, np)
        jax.clear_caches()
        print(json.dumps([sha, verdict, compile_ms, run_ms, message]), flush=True)


class Worker:
    def __init__(self, library, target):
        env = dict(os.environ, TPU_LIBRARY_PATH=str(library), JAX_PLATFORMS="tpu", ATOLL_TARGET=target, ATOLL_CACHE="off",
                   ATOLL_KERNEL_TURNS="2000000", ATOLL_LENIENT="1")
        self.target, self.sha = target, None
        self.child = subprocess.Popen([sys.executable, __file__, "--work"], env=env, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1)
        while self.child.stdout.readline().strip() not in ("ready", ""):
            pass

    def give(self, sha):
        self.sha, self.since = sha, time.monotonic()
        try:
            self.child.stdin.write(sha + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass

    def end(self):
        self.child.kill()
        self.child.wait()


def run_all(entries, library, jobs, timeout):
    """sha -> [verdict, compile ms, run ms, message], target by target"""
    found = {}
    for kind, target in TARGETS.items():
        todo = collections.deque(e["sha"] for e in entries if e["kind"] == kind)
        workers = [Worker(library, target) for _ in range(min(jobs, len(todo)))]
        for w in workers:
            w.give(todo.popleft())
        while workers:
            with selectors.DefaultSelector() as s:
                for w in workers:
                    s.register(w.child.stdout, selectors.EVENT_READ, w)
                ready = {key.data for key, _ in s.select(1)}
            for w in list(workers):
                late = time.monotonic() - w.since > timeout
                if w not in ready and not late:
                    continue
                line = w.child.stdout.readline() if w in ready else ""
                workers.remove(w)
                if line.startswith("["):
                    sha, *rest = json.loads(line)
                    found[sha] = rest
                elif line:  # something else was printed
                    workers.append(w)
                    continue
                else:
                    found[w.sha] = ["crashed", 0, 0, "no answer in time" if late else "the process ended"]
                    w.end()
                    w = Worker(library, target) if todo else None
                if w and todo:
                    w.give(todo.popleft())
                    workers.append(w)
                elif w:
                    w.end()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--ids", default="")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--out")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work()
    if not ARCHIVE.is_file():
        print(f"{ARCHIVE} is not here: skipped")
        return 77
    entries = [json.loads(line) for line in open(unpack() / "index.jsonl")]
    wanted = set(options.ids.split(",")) if options.ids else None
    entries = [e for i, e in enumerate(entries)
               if (e["sha"] in wanted if wanted else i % options.step == options.first % options.step)]
    found = run_all(entries, pathlib.Path(options.library).resolve(), options.jobs, options.timeout)
    tests = {e["sha"]: e["test"] for e in entries}
    groups = collections.defaultdict(list)
    for sha, (verdict, _, _, message) in found.items():
        if verdict not in ("ok", "waits"):
            groups[verdict, re.sub(r"0x[0-9a-f]+|\d+", "N", message)[:200]].append(sha)
    for (verdict, why), shas in sorted(groups.items(), key=lambda g: -len(g[1])):
        print(f"{len(shas):5} {verdict}: {why}\n        {shas[0]} {tests[shas[0]]}")
    counts = collections.Counter(v[0] for v in found.values())
    times = sorted(v[1] for v in found.values() if v[1])
    print(f"{len(found)} kernels: {dict(counts)}; compile {statistics.median(times or [0]):.1f} ms median, {max(times or [0]):.0f} ms largest")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(found, indent=0))
    return 1 if counts["refused"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
