#!/usr/bin/env python3
"""Lookups and updates of 26 embedding tables (10 M rows, 2.1 GB, batch 4096, 1.65 M ids with Zipf popularity), beside
other engines on the same machine.

  bench/sparsecore.py [--library build/release/libatoll.so] [--peer-python PYTHON] [--engines atoll,fbgemm,torch,xla]
                      [--rounds 3] [--tables 26] [--target v5p] [--out result.json]

Each engine lives in a process of its own. Atoll stays; the others come one after the other, so that at most two hold
their tables at a time (the whole workload in less than 12 GiB), and each takes turns with Atoll, one measurement at a
time: minima of the same rounds are compared. PYTHON has fbgemm-gpu-cpu and torch (without it, or when it lacks them,
those rows are missing). `random reads` is what the machine gives to threads that do nothing but read the same rows in
the same order with prefetching. Atoll's input is sorted and grouped beforehand, as the preprocessing of a SparseCore
leaves it; the others take ids as they come.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np

TOP = pathlib.Path(__file__).resolve().parents[1]
BATCH = 4096
STEPS = ("forward", "sgd", "adagrad")


def workload(count):
    """[(rows, width, ids, offsets)]: bags of 1 to 30 ids, popularity falling as rank^-1.05, spread over the rows."""
    rng = np.random.default_rng(0)
    rows = (np.exp(rng.uniform(np.log(1e5), np.log(1e6), 26)).astype(np.int64) + 255) // 256 * 256
    widths = np.array([16, 32, 64, 128])[rng.permutation(np.arange(26) % 4)]
    result = []
    for r, w in zip(rows, widths):
        lengths = rng.integers(1, 31, size=BATCH)
        u, power = rng.random(int(lengths.sum())), -0.05
        rank = ((u * (float(r) ** power - 1) + 1) ** (1 / power)).astype(np.int64) - 1
        ids = np.clip(rank, 0, r - 1) * 2654435761 % r
        result.append((int(r), int(w), ids, np.concatenate([[0], np.cumsum(lengths)])))
    return result[:count]


def best(call, times=3):
    call()
    result = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()
        result = min(result, time.perf_counter() - start)
    return result


# ---- Engines: a function that gives {step: call}
def wrapped(rows, ids, offsets, scs, batch=BATCH):
    """The buffers of one chip: ids of each SparseCore by owner, sorted, one entry for an id of a sample."""
    sample = np.repeat(np.arange(batch), np.diff(offsets))
    key, gain = np.unique(sample * rows + ids, return_counts=True)
    sample, ids = key // rows, key % rows
    part = batch // scs
    order = np.lexsort((sample, ids // scs, ids % scs, sample // part))
    sample, ids, gain = sample[order], ids[order], gain[order]
    per, blocks = max(scs, 8), []
    pointers = np.zeros((scs, per), np.int32)
    for k in range(scs):
        out = []
        for g in range(scs):
            m = (sample // part == k) & (ids % scs == g)
            out += [(0, 0, 0)] * (-len(out) % 8)
            out += list(zip(ids[m] // scs, sample[m] % part, gain[m]))
            pointers[k, g:] = len(out)
        blocks.append(out)
    room = (max(map(len, blocks)) + 7) // 8 * 8
    buffers = [np.full(scs * room, 2**31 - 1, np.int32), np.full(scs * room, 2**31 - 1, np.int32),
               np.full(scs * room, np.nan, np.float32)]
    for k, out in enumerate(blocks):
        for b, column in zip(buffers, np.array(out).T):
            b[k * room:k * room + len(out)] = column
    return [pointers.reshape(-1), *buffers]


def limits_of(buffers, scs):
    """The most ids, and different ids, that a SparseCore sends to one other: what the chip needs."""
    pointers, ids, _, _ = buffers
    room, most = len(ids) // scs, [8, 8]
    for k, row in enumerate(pointers.reshape(scs, -1)):
        begin = 0
        for end in row[:scs]:
            part = ids[k * room + begin:k * room + end]
            most = [max(most[0], len(part)), max(most[1], len(np.unique(part)))]
            begin = -(-int(end) // 8) * 8
    return [-(-m // 8) * 8 for m in most]


def atoll(tables):
    import functools
    import jax
    import jax.numpy as jnp
    from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_csr as csr
    from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_grad_with_adagrad as adagrad
    from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_grad_with_sgd as sgd
    from jax_tpu_embedding.sparsecore.utils import utils
    scs = utils.num_sparsecores_per_device()
    buffers = [wrapped(r, ids, off, scs) for r, w, ids, off in tables]
    limits = [dict(zip(("max_ids_per_partition", "max_unique_ids_per_partition"), limits_of(b, scs))) for b in buffers]
    inputs = [[jnp.asarray(b) for b in table] + [jnp.int32(1)] for table in buffers]
    weights = [jnp.full((r, w), 0.01, jnp.float32) for r, w, _, _ in tables]
    sums = [jnp.full((r, w), 0.1, jnp.float32) for r, w, _, _ in tables]
    grads = [jnp.ones((BATCH, w), jnp.float32) for _, w, _, _ in tables]

    def forward(weights, inputs):
        return [csr.tpu_sparse_dense_matmul_csr_primitive.bind(*x, t, device_batch_size=BATCH, **l)
                for t, x, l in zip(weights, inputs, limits)]

    def sgd_step(weights, inputs, grads):
        out = forward(weights, inputs)
        new = [sgd.tpu_sparse_dense_matmul_grad_with_sgd_primitive.bind(
            *x, t, g, jnp.float32(0.01), computation_name=f"sgd{i}", **limits[i])
            for i, (t, x, g) in enumerate(zip(weights, inputs, grads))]
        return out, new

    def adagrad_step(weights, sums, inputs, grads):
        out = forward(weights, inputs)
        new = [adagrad.tpu_sparse_dense_matmul_grad_with_adagrad_primitive.bind(
            *x, t, a, g, jnp.float32(0.01), computation_name=f"adagrad{i}", **limits[i])
            for i, (t, a, x, g) in enumerate(zip(weights, sums, inputs, grads))]
        return out, [n[0] for n in new], [n[1] for n in new]

    f, s = jax.jit(forward), jax.jit(sgd_step, donate_argnums=0)
    a, state = jax.jit(adagrad_step, donate_argnums=(0, 1)), [weights, sums]

    def run_sgd():
        out, state[0] = s(state[0], inputs, grads)
        jax.block_until_ready((out, state[0]))

    def run_adagrad():
        out, state[0], state[1] = a(state[0], state[1], inputs, grads)
        jax.block_until_ready((out, state))
    return {"forward": lambda: jax.block_until_ready(f(state[0], inputs)), "sgd": run_sgd, "adagrad": run_adagrad}


def xla(tables):
    import functools
    import jax
    import jax.numpy as jnp
    weights = [jnp.full((r, w), 0.01, jnp.float32) for r, w, _, _ in tables]
    ids = [jnp.asarray(i.astype(np.int32)) for _, _, i, _ in tables]
    bag = [jnp.asarray(np.repeat(np.arange(BATCH), np.diff(o)).astype(np.int32)) for _, _, _, o in tables]

    @jax.jit
    def forward(weights, ids, bag):
        return [jax.ops.segment_sum(jnp.take(t, i, axis=0), s, BATCH, indices_are_sorted=True)
                for t, i, s in zip(weights, ids, bag)]

    @functools.partial(jax.jit, donate_argnums=0)
    def sgd(weights, ids, bag, grads):
        return [t.at[i].add(-0.01 * g[s]) for t, i, s, g in zip(weights, ids, bag, grads)]
    grads, state = [jnp.ones((BATCH, w), jnp.float32) for _, w, _, _ in tables], [weights]

    def run_sgd():
        out = forward(state[0], ids, bag)
        state[0] = sgd(state[0], ids, bag, grads)
        jax.block_until_ready((out, state[0]))
    return {"forward": lambda: jax.block_until_ready(forward(state[0], ids, bag)), "sgd": run_sgd}


def fbgemm(tables):
    import torch
    import fbgemm_gpu  # noqa: F401  (registers its operators)
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice, EmbeddingLocation, SplitTableBatchedEmbeddingBagsCodegen)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    ids = torch.from_numpy(np.concatenate([t[2] for t in tables]))
    starts = np.cumsum([0] + [len(t[2]) for t in tables])
    offsets = torch.from_numpy(np.concatenate([[0]] + [t[3][1:] + s for t, s in zip(tables, starts)]))
    grad = torch.ones(BATCH, sum(t[1] for t in tables))
    spec = [(r, w, EmbeddingLocation.HOST, ComputeDevice.CPU) for r, w, _, _ in tables]
    models = {}

    def model(kind):  # one at a time: each holds all the tables
        if kind not in models:
            models.clear()
            m = models[kind] = SplitTableBatchedEmbeddingBagsCodegen(
                spec, learning_rate=0.01, eps=1e-8,
                optimizer=EmbOptimType.EXACT_SGD if kind == "sgd" else EmbOptimType.EXACT_ADAGRAD)
            for w in m.split_embedding_weights():
                w.data.fill_(0.01)
        return models[kind]

    def forward():
        with torch.no_grad():
            model("sgd")(ids, offsets)
    return {"forward": forward, "sgd": lambda: model("sgd")(ids, offsets).backward(grad),
            "adagrad": lambda: model("adagrad")(ids, offsets).backward(grad)}


def torch_bags(tables):
    import torch
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    bags = [torch.nn.EmbeddingBag(r, w, mode="sum", sparse=True, include_last_offset=True) for r, w, _, _ in tables]
    ids = [torch.from_numpy(t[2]) for t in tables]
    offsets = [torch.from_numpy(t[3]) for t in tables]

    def forward():
        with torch.no_grad():
            for b, i, o in zip(bags, ids, offsets):
                b(i, o)
    return {"forward": forward}


ENGINES = {"atoll": atoll, "xla": xla, "fbgemm": fbgemm, "torch": torch_bags}


def worker(name, count):
    """Answers each line of its input, a step, with the seconds that it took."""
    out, sys.stdout = sys.stdout, sys.stderr  # libraries print
    try:
        calls = ENGINES[name](workload(count))
    except ImportError as e:
        print(json.dumps({"missing": str(e)}), file=out, flush=True)
        return
    print(json.dumps(sorted(calls)), file=out, flush=True)
    for line in sys.stdin:
        step = line.strip()
        print(peak_rss() if step == "memory" else best(calls[step]), file=out, flush=True)


def peak_rss():
    """GiB that this process had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def start(options, name):
    env = dict(os.environ)

    python = options.peer_python if name in ("fbgemm", "torch") else sys.executable
    if not python:
        return None
    if name == "atoll":
        env.update(TPU_LIBRARY_PATH=str(pathlib.Path(options.library).resolve()), JAX_PLATFORMS="tpu,cpu",
                   ATOLL_TARGET=options.target)
    elif name == "xla":
        env.update(JAX_PLATFORMS="cpu")
    p = subprocess.Popen([python, __file__, "--worker", name, "--tables", str(options.tables)], env=env, text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    steps = json.loads(p.stdout.readline() or '{"missing": "the process ended"}')
    if isinstance(steps, dict):
        print(f"{name}: left out: {steps['missing']}")
        return None
    return p, steps


def ask(worker, step):
    p, _ = worker
    p.stdin.write(step + "\n")
    p.stdin.flush()
    return float(p.stdout.readline())


def stop(worker):
    gib = ask(worker, "memory")
    worker[0].stdin.close()
    worker[0].wait()
    return gib


def side_by_side(workers, rounds):
    """{step: {engine: seconds}}, minima over rounds in which engines take turns."""
    times = {}
    for _ in range(rounds):
        for step in STEPS:
            for name, w in workers.items():
                if step in w[1] and all(step in other[1] for other in workers.values()):
                    row = times.setdefault(step, {})
                    row[name] = min(ask(w, step), row.get(name, 9e9))
    return times


def random_reads(options):
    """Seconds for reading the rows of all ids, by bench/random_read."""
    program = pathlib.Path(options.library).resolve().parent / "random_read"
    if not program.exists():
        return None
    tables = workload(options.tables)
    lines = "".join(f"{r} {w * 4} {len(i)}\n" + " ".join(map(str, i)) + "\n" for r, w, i, _ in tables)
    p = subprocess.run([program, str(len(os.sched_getaffinity(0)))], input=lines, capture_output=True, text=True)
    return float(p.stdout) if p.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=TOP / "build" / "release" / "libatoll.so")
    parser.add_argument("--peer-python")
    parser.add_argument("--engines", default="atoll,fbgemm,torch,xla")
    parser.add_argument("--target", default="v5p")
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker")
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker, options.tables)
    tables = workload(options.tables)
    ids = sum(len(t[2]) for t in tables)
    bytes_read = sum(len(t[2]) * t[1] * 4 for t in tables)
    print(f"{len(tables)} tables, {sum(t[0] for t in tables) / 1e6:.1f} M rows, {ids / 1e6:.2f} M ids, "
          f"{bytes_read / 1e9:.2f} GB of rows")
    limit = min((random_reads(options) or 9e9 for _ in range(options.rounds)), default=9e9)
    names = options.engines.split(",")
    own = start(options, "atoll") if "atoll" in names else None
    peers, memory, times = [n for n in names if n != "atoll"], {}, {}
    beside = {"atoll": own} if own else {}
    for name in peers:
        peer = start(options, name)
        if peer:
            times[name] = side_by_side({**beside, name: peer}, options.rounds)
            memory[name] = stop(peer)
    if own:
        if not times:
            times["alone"] = side_by_side(beside, options.rounds)
        memory["atoll"] = stop(own)
    for name, steps in times.items():
        for step, row in steps.items():
            for engine, seconds in row.items():
                note = ""
                if engine != "atoll" and "atoll" in row:
                    note = f"  {seconds / row['atoll']:.2f} x atoll's time"
                elif step == "forward" and limit < 9e9:
                    note = f"  {limit / seconds:.0%} of the random-read limit"
                print(f"{step:14s}{engine:10s}{seconds * 1e3:9.1f} ms {ids / seconds / 1e6:8.2f} M ids/s "
                      f"{bytes_read / seconds / 1e9:7.2f} GB/s{note}")
    if limit < 9e9:
        print(f"{'random reads':14s}{'limit':10s}{limit * 1e3:9.1f} ms {ids / limit / 1e6:8.2f} M ids/s "
              f"{bytes_read / limit / 1e9:7.2f} GB/s")
    most = memory.get("atoll", 0) + max((g for n, g in memory.items() if n != "atoll"), default=0)
    print("memory: " + ", ".join(f"{n} {g:.1f} GiB" for n, g in memory.items()) + f"; together at most {most:.1f} GiB")
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({"ids": ids, "bytes": bytes_read, "seconds": times, "limit": limit,
                                                         "gib": memory}, indent=1))


if __name__ == "__main__":
    main()
