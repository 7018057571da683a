#!/usr/bin/env python3
"""What pipelining hides: one step of examples/dlrm.py beside its SparseCore part alone and its dense part alone.

  bench/pipelining.py [--threads 2] [--rounds 5] [--steps 5] [--batch 2048] [--hidden 256] [--bag 10] ...

Three processes take turns: the pipelined step with all threads; update and lookup alone with the threads that
SparseCores have beside other work (half); the dense part alone with the rest. Minima are compared: the step should take
at most 1.15 times the longer part. The same program with tf_xla_disable_full_embedding_pipelining=true is shown beside.
TPU_LIBRARY_PATH names the library.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "examples"))


def calls_of(which, options):
    import jax
    import dlrm
    model = dlrm.Dlrm(dlrm.Options(**options))
    batch, carry = model.batch(0), model.carry()
    wrapped, dense, labels = batch
    activations = jax.jit(model.lookup)(wrapped, carry[1])
    if which == "sparse":
        state = [carry[1]]

        def both(grads, old, tables, new):
            tables = model.update(grads, old, tables)
            return tables, model.lookup(new, tables)
        f = jax.jit(both, donate_argnums=2)

        def run():
            state[0], out = f(activations, wrapped, state[0], wrapped)
            jax.block_until_ready((state[0], out))
    elif which == "dense":
        f = jax.jit(model.dense_part)

        def run():
            jax.block_until_ready(f(carry[0], activations, dense, labels))
    else:
        step, first = dlrm.pipelined(model.train_step)
        state = [first, carry]
        for _ in range(3):  # the prologue
            state[0], (state[1], _) = step(state[0], state[1], *batch)

        def run():
            state[0], (state[1], loss) = step(state[0], state[1], *batch)
            jax.block_until_ready((state[1], loss))
    return run


def worker(which, options, steps):
    out, sys.stdout = sys.stdout, sys.stderr
    run = calls_of(which, options)
    run()
    print("ready", file=out, flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        print(min(times), file=out, flush=True)


def main():
    import dlrm
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=5, help="steps of a round")
    parser.add_argument("--worker")
    defaults = dict(batch=2048, hidden=256, bag=6, width=64, rows=50000)
    for f in dataclasses.fields(dlrm.Options):
        if f.type is int:
            parser.add_argument(f"--{f.name}", type=int, default=defaults.get(f.name, f.default))
    args = vars(parser.parse_args())
    which, threads, rounds, calls = (args.pop(k) for k in ("worker", "threads", "rounds", "calls"))
    if which:
        return worker(which, args, calls)
    sparse = (threads + 1) // 2
    rows = {"pipelined": (threads, ""), "sparse": (sparse, ""), "dense": (max(1, threads - sparse), ""),
            "one after the other": (threads, "--tf_xla_disable_full_embedding_pipelining=true")}
    workers, times = {}, {}
    options = [x for k, v in args.items() for x in (f"--{k}", str(v))]
    for name, (n, flags) in rows.items():
        env = dict(os.environ, ATOLL_THREADS=str(n), JAX_PLATFORMS="tpu,cpu", LIBTPU_INIT_ARGS=flags)
        p = subprocess.Popen([sys.executable, __file__, "--worker", name, "--calls", str(calls), *options], env=env,
                             text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if p.stdout.readline().strip() != "ready":
            sys.exit(f"{name}: the process ended")
        workers[name] = p
    for _ in range(rounds):
        for name, p in workers.items():
            p.stdin.write("\n")
            p.stdin.flush()
            times[name] = min(times.get(name, 9e9), float(p.stdout.readline()))
    for p in workers.values():
        p.stdin.close()
        p.wait()
    for name, seconds in times.items():
        print(f"{name:20s} {rows[name][0]} threads {seconds * 1e3:9.2f} ms")
    longer, shorter = sorted((times["sparse"], times["dense"]), reverse=True)
    print(f"the parts are within {longer / shorter - 1:.0%} of each other; the step takes "
          f"{times['pipelined'] / longer:.2f} x the longer one")
    print(json.dumps(times))


if __name__ == "__main__":
    main()
