#!/usr/bin/env python3
"""Thirty sharded programs: what latency hiding is predicted to gain, and what it gains.

  bench/sharded.py --predict [--target v5p:2x2x2] [--trace DIR]   exposed communication, as given and scheduled
  bench/sharded.py --measure [--rounds 15]                        real steps on eight chips of this host, off and on

Needs TPU_LIBRARY_PATH=.../libatoll.so; `atoll` is looked for beside it.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

N = 8
os.environ.setdefault("ATOLL_TARGET", "v5p:2x2x2")
os.environ["ATOLL_CACHE"] = "off"
os.environ.pop("JAX_PLATFORMS", None)

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

PROGRAMS = {}


def program(name, out, *specs):
    """A function of what one device holds; specs: (shape of the whole for width d and t rows, sharding)."""
    def add(body):
        PROGRAMS[name] = (body, out, specs)
        return body
    return add


def gather(w):
    return lax.all_gather(w, "x", axis=0, tiled=True)


ROWS, CUT, WHOLE = (lambda d, t: (N * t, d)), P("x"), P()


def square(layers):
    return (lambda d, t: (layers, d, d)), P(None, "x")


# ---- FSDP: weights are cut; each layer gathers its own, its gradient is scattered back
def fsdp_forward(x, ws):
    for w in ws:
        x = jnp.tanh(x @ gather(w))
    return x


def fsdp_scan(x, ws):
    return lax.scan(lambda x, w: (jnp.tanh(x @ gather(w)), None), x, ws)[0]


def fsdp_mlp(x, ws):
    for a, b in zip(ws[::2], ws[1::2]):
        x = x + jax.nn.gelu(x @ gather(a)) @ gather(b)
    return x


def fsdp_mlp_scan(x, ws):
    def layer(x, ab):
        return x + jax.nn.gelu(x @ gather(ab[0])) @ gather(ab[1]), None
    return lax.scan(layer, x, ws.reshape(-1, 2, *ws.shape[1:]))[0]


def train(f):
    def step(x, ws):
        loss, grad = jax.value_and_grad(lambda ws: jnp.sum(jnp.square(f(x, ws).astype(jnp.float32))))(ws)
        return lax.psum(loss, "x"), ws - (.01 * grad).astype(ws.dtype)
    return step


for layers in (4, 8):
    program(f"fsdp_forward_{layers}", CUT, (ROWS, CUT), square(layers))(fsdp_forward)
    program(f"fsdp_forward_{layers}_loop", CUT, (ROWS, CUT), square(layers))(fsdp_scan)
    program(f"fsdp_train_{layers}", (P(), P(None, "x")), (ROWS, CUT), square(layers))(train(fsdp_forward))
program("fsdp_train_8_loop", (P(), P(None, "x")), (ROWS, CUT), square(8))(train(fsdp_scan))
program("fsdp_mlp_8", CUT, (ROWS, CUT), square(8))(fsdp_mlp)
program("fsdp_mlp_8_loop", CUT, (ROWS, CUT), square(8))(fsdp_mlp_scan)
program("fsdp_mlp_train_8", (P(), P(None, "x")), (ROWS, CUT), square(8))(train(fsdp_mlp))


# ---- Tensor parallel: two halves of a batch, so that one's sums move beside the other's products
def tp_layer(x, a, b):
    return lax.psum(jax.nn.gelu(x @ a) @ b, "x")


def tp_halves(x, a, b):
    halves = jnp.split(x, 2)
    for i in range(a.shape[0]):
        halves = [h + tp_layer(h, a[i], b[i]) for h in halves]
    return jnp.concatenate(halves)


def tp_loop(x, a, b):
    def layer(halves, ab):
        return tuple(h + tp_layer(h, *ab) for h in halves), None
    return jnp.concatenate(lax.scan(layer, tuple(jnp.split(x, 2)), (a, b))[0])


def tp_sequence(x, a, b):
    """Sequence parallel: rows are cut between layers."""
    halves = jnp.split(x, 2)
    for i in range(a.shape[0]):
        halves = [h + lax.psum_scatter(jax.nn.gelu(gather(h) @ a[i]) @ b[i], "x", tiled=True) for h in halves]
    return jnp.concatenate(halves)


def tp_sequence_loop(x, a, b):
    def layer(halves, ab):
        return tuple(h + lax.psum_scatter(jax.nn.gelu(gather(h) @ ab[0]) @ ab[1], "x", tiled=True) for h in halves), None
    return jnp.concatenate(lax.scan(layer, tuple(jnp.split(x, 2)), (a, b))[0])


def tp_train(x, a, b):
    """Gradients of weights need no sum: they lie beside the sums of the layers below."""
    def loss(ab):
        return jnp.sum(jnp.square(tp_halves(x, *ab).astype(jnp.float32)))
    grads = jax.grad(loss)((a, b))
    return tuple(w - (.01 * g).astype(w.dtype) for w, g in zip((a, b), grads))


TALL, WIDE_A, WIDE_B = (lambda d, t: (2 * t, d)), P(None, None, "x"), P(None, "x")


def wide(layers):
    return ((lambda d, t: (layers, d, 4 * d)), WIDE_A), ((lambda d, t: (layers, 4 * d, d)), WIDE_B)


program("tp_halves_4", WHOLE, (TALL, WHOLE), *wide(4))(tp_halves)
program("tp_halves_8", WHOLE, (TALL, WHOLE), *wide(8))(tp_halves)
program("tp_halves_8_loop", WHOLE, (TALL, WHOLE), *wide(8))(tp_loop)
program("tp_sequence_4", CUT, (TALL, CUT), *wide(4))(tp_sequence)
program("tp_sequence_8", CUT, (TALL, CUT), *wide(8))(tp_sequence)
program("tp_sequence_8_loop", CUT, (TALL, CUT), *wide(8))(tp_sequence_loop)
program("tp_train_4", (WIDE_A, WIDE_B), (TALL, WHOLE), *wide(4))(tp_train)


# ---- Data parallel: gradients are summed as the layers below are still at work
def dp_train(x, ws):
    def f(ws):
        h = x
        for w in ws:
            h = jnp.tanh(h @ w)
        return jnp.sum(jnp.square(h.astype(jnp.float32)))
    return tuple(w - (.01 * lax.psum(g, "x")).astype(w.dtype) for w, g in zip(ws, jax.grad(f)(tuple(ws))))


program("dp_train_6", (WHOLE,) * 6, (ROWS, CUT), ((lambda d, t: (6, d, d)), WHOLE))(dp_train)
program("dp_train_12", (WHOLE,) * 12, (ROWS, CUT), ((lambda d, t: (12, d, d)), WHOLE))(dp_train)

# ---- Pipeline: each device is a stage; what a stage made is sent while the next piece is worked on
RING = [(i, (i + 1) % N) for i in range(N)]


def stage(w, x):
    for k in range(w.shape[0]):
        x = jnp.tanh(x @ w[k])
    return x


def pipeline(x, w):
    coming, made, out = jnp.zeros_like(x[0]), jnp.zeros_like(x[0]), []
    first = lax.axis_index("x") == 0
    for i in range(x.shape[0] + 4):
        sent = lax.ppermute(made, "x", RING)
        made = stage(w, jnp.where(first, x[min(i, x.shape[0] - 1)], coming))
        coming = sent
        out.append(made)
    return jnp.stack(out[-x.shape[0]:])


def pipeline_loop(x, w):
    first = lax.axis_index("x") == 0
    pieces = jnp.concatenate([x, x[-4:]])

    def turn(state, piece):
        coming, made = state
        sent = lax.ppermute(made, "x", RING)
        made = stage(w, jnp.where(first, piece, coming))
        return (sent, made), made
    zero = lax.pcast(jnp.zeros_like(x[0]), "x", to="varying")
    return lax.scan(turn, (zero, zero), pieces)[1][4:]


def pipeline_train(x, w):
    return w - (.01 * jax.grad(lambda w: jnp.sum(jnp.square(pipeline(x, w).astype(jnp.float32))))(w)).astype(w.dtype)


def pipeline_train_loop(x, w):
    return w - (.01 * jax.grad(lambda w: jnp.sum(jnp.square(pipeline_loop(x, w).astype(jnp.float32))))(w)).astype(w.dtype)


PIECES, STAGES = ((lambda d, t: (8, t, d)), WHOLE), ((lambda d, t: (2 * N, d, d)), CUT)
program("pipeline_8", P(None, "x"), PIECES, STAGES)(pipeline)
program("pipeline_8_loop", P(None, "x"), PIECES, STAGES)(pipeline_loop)
program("pipeline_train_8", CUT, PIECES, STAGES)(pipeline_train)
program("pipeline_train_8_loop", CUT, PIECES, STAGES)(pipeline_train_loop)


# ---- Mixture of experts: tokens go to experts and back while other work is done
def experts(x, a, b):
    there = lax.all_to_all(x, "x", 0, 0, tiled=True)
    return lax.all_to_all(jax.nn.gelu(there @ a) @ b, "x", 0, 0, tiled=True)


def moe_shared(x, a, b, s):
    """An expert that all share works beside the exchange."""
    for i in range(a.shape[0]):
        x = x + experts(x, a[i, 0], b[i, 0]) + jax.nn.gelu(x @ s[i]) @ s[i].T
    return x


def moe_shared_loop(x, a, b, s):
    def layer(x, w):
        return x + experts(x, w[0][0], w[1][0]) + jax.nn.gelu(x @ w[2]) @ w[2].T, None
    return lax.scan(layer, x, (a, b, s))[0]


def moe_halves(x, a, b, s):
    halves = jnp.split(x, 2)
    for i in range(a.shape[0]):
        halves = [h + experts(h, a[i, 0], b[i, 0]) for h in halves]
    return jnp.concatenate(halves)


def moe_halves_loop(x, a, b, s):
    def layer(halves, w):
        return tuple(h + experts(h, w[0][0], w[1][0]) for h in halves), None
    return jnp.concatenate(lax.scan(layer, tuple(jnp.split(x, 2)), (a, b))[0])


def moe_train(x, a, b, s):
    def loss(w):
        return jnp.sum(jnp.square(moe_shared(x, *w).astype(jnp.float32)))
    grads = jax.grad(loss)((a, b, s))
    return tuple(w - (.01 * g).astype(w.dtype) for w, g in zip((a, b, s), (grads[0], grads[1], lax.psum(grads[2], "x"))))


EXPERT = P(None, "x")


def moe(layers):
    return (ROWS, CUT), ((lambda d, t: (layers, N, d, 2 * d)), EXPERT), ((lambda d, t: (layers, N, 2 * d, d)), EXPERT), \
        ((lambda d, t: (layers, d, 4 * d)), WHOLE)


program("moe_shared_2", CUT, *moe(2))(moe_shared)
program("moe_shared_4", CUT, *moe(4))(moe_shared)
program("moe_shared_4_loop", CUT, *moe(4))(moe_shared_loop)
program("moe_halves_2", CUT, *moe(2))(moe_halves)
program("moe_halves_4", CUT, *moe(4))(moe_halves)
program("moe_halves_4_loop", CUT, *moe(4))(moe_halves_loop)
program("moe_train_2", (EXPERT, EXPERT, WHOLE), *moe(2))(moe_train)


def build(name, mesh, width, rows, dtype):
    body, out, specs = PROGRAMS[name]
    placed = jax.tree.map(lambda s: NamedSharding(mesh, s), out)
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=tuple(s for _, s in specs), out_specs=out, check_vma=False),
                out_shardings=placed)
    args = [jax.ShapeDtypeStruct(shape(width, rows), dtype, sharding=NamedSharding(mesh, s)) for shape, s in specs]
    return f, args


def predict(names, mesh, target, traces):
    tool = pathlib.Path(os.environ["TPU_LIBRARY_PATH"]).parent / "atoll"
    print(f"{'program':26} {'exposed us':>11} {'scheduled':>10} {'share':>6} {'peak MiB':>9} {'scheduled':>10} {'pairs':>6}")
    shares = []
    for name in names:
        f, args = build(name, mesh, 4096, 4096, jnp.bfloat16)
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(str(f.lower(*args).compiler_ir("stablehlo")))
            file.flush()
            trace = [f"--trace={traces}/{name}.json"] if traces else []
            run = subprocess.run([tool, "cost", "schedule", f"--target={target}", *trace, file.name],
                                 capture_output=True, text=True)
        if run.returncode:
            print(f"{name:26} {run.stderr.strip()}")
            shares.append(1)
            continue
        rows = [re.split(r"\s{2,}", line.strip()) for line in run.stdout.splitlines()[3:5]]
        (_, _, before, peak, _), (_, _, after, new_peak, pairs) = rows
        shares.append(float(after) / float(before) if float(before) else 0)
        print(f"{name:26} {before:>11} {after:>10} {shares[-1]:6.2f} {peak:>9} {new_peak:>10} {pairs:>6}", flush=True)
    print(f"{len(shares)} programs: {sum(s <= .5 for s in shares)} with at most half exposed, median share "
          f"{statistics.median(shares):.2f}, largest {max(shares):.2f}")


def measure(names, mesh, rounds):
    print(f"{'program':26} {'off ms':>9} {'on ms':>9} {'off/on':>7}  (least of {rounds} rounds, in turns)")
    ratios = []
    rng = np.random.default_rng(0)
    for name in names:
        calls, compiled = [], []
        for hide in ("off", "on"):
            os.environ["ATOLL_LATENCY_HIDING"] = hide
            f, specs = build(name, mesh, 256, 64, jnp.float32)
            compiled.append(f.lower(*specs).compile())
        args = [jax.device_put((rng.standard_normal(s.shape, np.float32) * .05), s.sharding) for s in specs]
        calls = [lambda c=c: jax.block_until_ready(c(*args)) for c in compiled]
        same = all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in
                   zip(jax.tree.leaves(calls[0]()), jax.tree.leaves(calls[1]())))
        best = [float("inf")] * 2
        for _ in range(rounds):
            for i, call in enumerate(calls):
                start = time.perf_counter()
                call()
                best[i] = min(best[i], time.perf_counter() - start)
        ratios.append(best[0] / best[1])
        print(f"{name:26} {best[0] * 1e3:9.2f} {best[1] * 1e3:9.2f} {ratios[-1]:7.2f}{'' if same else '  RESULTS DIFFER'}", flush=True)
    print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--target", default="v5p:2x2x2")
    parser.add_argument("--trace")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--filter", default="")
    options = parser.parse_args()
    mesh = Mesh(np.array(jax.devices("tpu")[:N]), ("x",))
    names = [n for n in PROGRAMS if re.search(options.filter, n)]
    if options.predict:
        predict(names, mesh, options.target, options.trace)
    if options.measure:
        measure(names, mesh, options.rounds)


if __name__ == "__main__":
    sys.exit(main())
