#!/usr/bin/env python3
"""How much memory random programs take: the TPU compiler's answer, and ours.

  memory_rows.py ask ROWS.json --seeds 0:40 [--chip v5e:2x2] [--hlo FOLDER]
  memory_rows.py compare ROWS.json [--seeds 0:40] [--all]

`ask` compiles the program of each seed with libtpu, which needs no chip, and
adds one row a program to ROWS.json, saved at once: what is there already is
not asked again. `compare` makes the same programs, asks `atoll estimate`
(ATOLL names the program; else the one on PATH) and prints for each row ours
against libtpu's, then median, 90th percentile and worst relative error of the
temporaries where they are at least a fifth of the peak, and of the peaks.

A program depends on its seed alone. Rows name seed, kind, chip and bytes.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
for key, value in {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}.items():
    os.environ.setdefault(key, value)
os.environ.pop("TPU_LIBRARY_PATH", None)  # libtpu's own, from its package

import jax
import jax.numpy as jnp
from jax import lax

F32, BF16 = jnp.float32, jnp.bfloat16


class Program:
    """A function, the shapes of its arguments, which of them are donated, and
    the axis of each leaf that is split over four devices (None: whole)."""

    def __init__(self, function, args, donated=(), split=None):
        self.function, self.args, self.donated = function, args, donated
        self.split = split


def shape(*dims, dtype=F32):
    return jax.ShapeDtypeStruct(dims, dtype)


def act(r):
    return r.choice([jnp.tanh, jax.nn.relu, jax.nn.gelu, jax.nn.silu])


def width(r):
    """Mostly round, sometimes odd, so that tiles are padded."""
    return r.choice([512, 1024, 2048, 4096, 2048, 1000, 1300, 777])


def rows(r):
    return r.choice([4096, 8192, 16384, 32768, 10000, 20001])


def mean_square(x):
    return (x.astype(F32) ** 2).mean()


def mlp(r):
    layers, d, f = r.randint(2, 5), width(r), width(r)
    dtype, g = r.choice([F32, BF16]), act(r)
    residual = r.random() < 0.5

    def loss(ws, x):
        for a, b in ws:
            y = g(x @ a) @ b
            x = x + y if residual else y
        return mean_square(x)

    ws = [(shape(d, f, dtype=dtype), shape(f, d, dtype=dtype))] * layers
    kind = r.choice([jax.grad, jax.value_and_grad])
    return Program(kind(loss), (ws, shape(rows(r), d, dtype=dtype)))


def attention(r):
    b, t = r.choice([4, 8, 16]), r.choice([512, 1024, 2048, 1000])
    h, dh = r.choice([4, 8, 16]), r.choice([64, 128, 80])
    dtype, causal = r.choice([F32, BF16]), r.random() < 0.5

    def forward(w, o, x):
        q, k, v = (
            a.reshape(b, t, h, dh).transpose(0, 2, 1, 3)
            for a in jnp.split(x @ w, 3, -1)
        )
        s = (q @ k.transpose(0, 1, 3, 2)).astype(F32) / dh**0.5
        if causal:
            s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e30)
        y = jax.nn.softmax(s).astype(dtype) @ v
        return y.transpose(0, 2, 1, 3).reshape(b, t, h * dh) @ o

    d = h * dh
    args = (
        shape(d, 3 * d, dtype=dtype),
        shape(d, d, dtype=dtype),
        shape(b, t, d, dtype=dtype),
    )
    if r.random() < 0.3:
        return Program(forward, args)
    return Program(
        jax.grad(lambda *a: mean_square(forward(*a)), argnums=(0, 1)), args
    )


def convolutions(r):
    b, s = r.choice([16, 32, 64]), r.choice([56, 64, 112])
    c, layers = r.choice([64, 128, 96]), r.randint(2, 4)
    dtype = r.choice([F32, BF16])

    def loss(ws, x):
        for w in ws:
            x = jax.nn.relu(
                lax.conv_general_dilated(
                    x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        return mean_square(x)

    ws = [shape(3, 3, c, c, dtype=dtype)] * layers
    return Program(jax.grad(loss), (ws, shape(b, s, s, c, dtype=dtype)))


def scan_layers(r, remat):
    layers, d, n = r.choice([4, 8, 16, 32]), width(r), rows(r)
    dtype, g, steps = r.choice([F32, BF16]), act(r), r.randint(1, 3)

    def body(x, w):
        y = x
        for _ in range(steps):
            y = g(y @ w)
        return x + y, None

    policy = r.choice([None, jax.checkpoint_policies.dots_saveable])
    if remat:
        body = jax.checkpoint(body, policy=policy)

    def loss(ws, x):
        return mean_square(lax.scan(body, x, ws)[0])

    return Program(
        jax.grad(loss), (shape(layers, d, d, dtype=dtype), shape(n, d, dtype=dtype))
    )


def carry_stack(r):
    """Forward loops whose results are stacked, or whose state is large."""
    n, d, t = rows(r), width(r), r.choice([5, 10, 20])
    dtype, g = r.choice([F32, BF16]), act(r)
    stacked = r.random() < 0.6

    def run(w, x):
        def body(c, _):
            y = g(c @ w)
            return y, (y.astype(BF16) if stacked else y.sum(0))

        c, ys = lax.scan(body, x, None, length=t)
        return c.sum(), jnp.cos(ys)

    return Program(run, (shape(d, d, dtype=dtype), shape(n, d, dtype=dtype)))


def adam(p, m, v, g):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


def train_step(r):
    """Gradients of a scan or a plain stack, then Adam; state donated or not."""
    layers, d, n = r.choice([2, 4, 8]), width(r), rows(r)
    scanned, low, g = r.random() < 0.5, r.random() < 0.6, act(r)

    def loss(ws, x):
        def body(x, w):
            w = w.astype(x.dtype)
            return x + g(x @ w), None

        if scanned:
            x = lax.scan(jax.checkpoint(body) if low else body, x, ws)[0]
        else:
            for i in range(layers):
                x = body(x, ws[i])[0]
        return mean_square(x)

    def step(ws, m, v, x):
        grads = jax.grad(loss)(ws, x)
        return jax.tree.map(adam, ws, m, v, grads) if not scanned else adam(
            ws, m, v, grads
        )

    w = shape(layers, d, d) if scanned else [shape(d, d)] * layers
    x = shape(n, d, dtype=BF16 if low else F32)
    return Program(step, (w, w, w, x), (0, 1, 2) if r.random() < 0.7 else ())


def optimizer(r):
    count, d, f = r.randint(1, 4), width(r), r.choice([8192, 16384, 9000])

    def step(ps, ms, vs, gs):
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gs))
        gs = [g / jnp.maximum(norm, 1) for g in gs]
        return [adam(*a) for a in zip(ps, ms, vs, gs)]

    a = [shape(d, f)] * count
    return Program(step, (a, a, a, a), (0, 1, 2) if r.random() < 0.5 else ())


def cross_entropy(r):
    n, d, v = r.choice([2048, 4096, 8192]), width(r), r.choice([32000, 50257, 16384])
    dtype = r.choice([F32, BF16])

    def loss(w, x, y):
        z = (x @ w).astype(F32)
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]).mean()

    return Program(
        jax.grad(loss, argnums=(0, 1)),
        (shape(d, v, dtype=dtype), shape(n, d, dtype=dtype), shape(n, dtype=jnp.int32)),
    )


def embedding(r):
    n, d, v = r.choice([16384, 32768, 65536]), width(r), r.choice([32000, 100000])
    dtype = r.choice([F32, BF16])

    def loss(e, w, ids):
        return mean_square(jnp.tanh(e[ids] @ w))

    return Program(
        jax.grad(loss, argnums=(0, 1)),
        (shape(v, d, dtype=dtype), shape(d, d, dtype=dtype), shape(n, dtype=jnp.int32)),
    )


def normalized(r):
    """Layer norm and a gated product, forward or backward."""
    n, d, f = rows(r), width(r), width(r)
    dtype, layers = r.choice([F32, BF16]), r.randint(1, 3)

    def forward(ws, x):
        for a, b, c, s in ws:
            y = x.astype(F32)
            y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)
            y = (y * s).astype(dtype)
            x = x + (jax.nn.silu(y @ a) * (y @ b)) @ c
        return x

    ws = [
        (
            shape(d, f, dtype=dtype),
            shape(d, f, dtype=dtype),
            shape(f, d, dtype=dtype),
            shape(d),
        )
    ] * layers
    args = (ws, shape(n, d, dtype=dtype))
    if r.random() < 0.3:
        return Program(forward, args)
    return Program(jax.grad(lambda *a: mean_square(forward(*a))), args)


def moved(r):
    """Sorts, transposes, sums along an axis: values that are moved."""
    n, d = rows(r), width(r)
    which = r.choice(["sort", "transpose", "cumsum", "concatenate", "updates"])

    def run(x, y):
        if which == "sort":
            return jnp.sort(jnp.sin(x), axis=0) + y
        if which == "transpose":
            return jnp.sin(x).T @ y, jnp.exp(x).T.reshape(-1, 2).sum(0)
        if which == "cumsum":
            return jnp.cumsum(x * y, axis=0) + jnp.cumsum(x + y, axis=1)
        if which == "concatenate":
            z = jnp.concatenate([jnp.sin(x), y, jnp.cos(y)], 0)
            return jnp.sort(z, axis=1)[: n // 2], z.sum(0)
        z = x.at[: n // 2].set(jnp.cos(y[: n // 2]))
        return z.at[:, : d // 2].add(1.0), (z * y).sum()

    return Program(run, (shape(n, d), shape(n, d)))


def sharded(r):
    """Weights split over four devices and gathered for use."""
    layers, d, n = r.choice([2, 4, 8]), r.choice([1024, 2048, 4096]), r.choice(
        [8192, 16384, 32768]
    )
    dtype, g, remat = r.choice([F32, BF16]), act(r), r.random() < 0.5

    def body(x, w):
        a, b = w
        return x + g(x @ a) @ b, None

    def loss(ws, x):
        return mean_square(
            lax.scan(jax.checkpoint(body) if remat else body, x, ws)[0]
        )

    ws = (shape(layers, d, 2 * d, dtype=dtype), shape(layers, 2 * d, d, dtype=dtype))
    return Program(
        jax.grad(loss), (ws, shape(n, d, dtype=dtype)), split=((1, 2), 0)
    )


KINDS = {
    "mlp": mlp,
    "attention": attention,
    "convolutions": convolutions,
    "scan": lambda r: scan_layers(r, False),
    "scan remat": lambda r: scan_layers(r, True),
    "carry stack": carry_stack,
    "train step": train_step,
    "optimizer": optimizer,
    "cross entropy": cross_entropy,
    "embedding": embedding,
    "normalized": normalized,
    "moved": moved,
    "sharded": sharded,
}


def make(seed):
    names = list(KINDS)
    kind = names[seed % len(names)]
    return kind, KINDS[kind](random.Random(seed))


def placed(program, devices):
    """The arguments with the shardings they have on these devices."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    if program.split is None:
        one = SingleDeviceSharding(devices[0])
        return jax.tree.map(
            lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=one),
            program.args,
        )
    mesh = Mesh(devices[:4], ("x",))

    def put(s, axis):
        spec = [None] * len(s.shape)
        spec[axis] = "x"
        return jax.ShapeDtypeStruct(
            s.shape, s.dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec))
        )

    return jax.tree.map(put, program.args, program.split)


def read(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return json.load(f)


def save(path, all_rows):
    with open(path + ".new", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in all_rows) + "\n]\n")
    os.replace(path + ".new", path)


def ask(o):
    from jax.experimental import topologies

    devices = topologies.get_topology_desc(o.chip, platform="tpu").devices
    for seed in o.seeds:
        known = read(o.rows)
        if any(r["seed"] == seed and r["chip"] == o.chip for r in known):
            continue
        kind, p = make(seed)
        row = {"seed": seed, "kind": kind, "chip": o.chip}
        try:
            lowered = jax.jit(p.function, donate_argnums=p.donated).lower(
                *placed(p, devices)
            )
            compiled = lowered.compile()
            m = compiled.memory_analysis()
            row["arguments"] = m.argument_size_in_bytes
            row["results"] = m.output_size_in_bytes
            row["shared"] = m.alias_size_in_bytes
            row["temporaries"] = m.temp_size_in_bytes
            row["peak"] = m.peak_memory_in_bytes
            if o.hlo:
                with open(f"{o.hlo}/{seed}.hlo", "w") as f:
                    f.write(compiled.as_text())
        except jax.errors.JaxRuntimeError as e:
            if "RESOURCE_EXHAUSTED" not in str(e):
                raise
            row["refused"] = str(e).split("\n")[0][:200]
        save(o.rows, known + [row])
        print(row, flush=True)


def estimate(seed, chip):
    """Our answer for the program of the seed, as a dictionary."""
    _, p = make(seed)
    text = (
        jax.jit(p.function, donate_argnums=p.donated)
        .trace(*placed(p, jax.devices()))
        .lower(lowering_platforms=("tpu",))
        .as_text(debug_info=True)
    )
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as f:
        f.write(text)
        f.flush()
        out = subprocess.run(
            [os.environ.get("ATOLL", "atoll"), "estimate", f.name]
            + ["--target", chip if p.split else chip.split(":")[0], "--json"],
            capture_output=True,
            text=True,
        )
    if out.returncode:
        raise RuntimeError(out.stderr)
    return json.loads(out.stdout)


def quantiles(name, errors):
    if not errors:
        return
    e = sorted(abs(x) for x in errors)
    at = lambda q: e[min(len(e) - 1, int(q * len(e)))]
    print(
        f"{name}: {len(e)} programs, median {at(.5):.1%}, p90 {at(.9):.1%}, worst {e[-1]:.1%}"
    )


def compare(o):
    temporaries, peaks, wrong = [], [], []
    for row in sorted(read(o.rows), key=lambda r: r["seed"]):
        if o.seeds and row["seed"] not in o.seeds:
            continue
        e = estimate(row["seed"], row["chip"])
        name = f"{row['seed']:4} {row['kind']:14}"
        if "refused" in row:
            fits = e["peak_bytes"] <= e["memory_bytes"]
            wrong += [row["seed"]] if fits else []
            print(f"{name} libtpu refuses; ours {'fits' if fits else 'refuses'}")
            continue
        whole = row["arguments"] + row["results"] - row["shared"] + row["temporaries"]
        ours, theirs = e["temp_bytes"], row["temporaries"]
        counts = theirs >= 0.2 * whole
        if counts:
            temporaries.append(ours / theirs - 1)
        peaks.append(e["peak_bytes"] / whole - 1)
        print(
            f"{name} arguments {e['argument_bytes'] / max(1, row['arguments']) - 1:+6.1%}"
            f"  temporaries {theirs / 2**20:9.1f} ours {ours / 2**20:9.1f} MiB"
            f" {ours / max(1, theirs) - 1:+7.1%}{' ' if counts else '-'}"
            f"  peak {whole / 2**20:9.1f} {peaks[-1]:+7.1%}",
            flush=True,
        )
    quantiles("temporaries", temporaries)
    quantiles("peaks", peaks)
    print("said to fit where libtpu refuses:", wrong or "none")
    sys.exit(1 if wrong else 0)


def seeds(text):
    a, b = text.split(":")
    return range(int(a), int(b))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("mode", choices=["ask", "compare"])
    p.add_argument("rows")
    p.add_argument("--seeds", type=seeds, default=None)
    p.add_argument("--chip", default="v5e:2x2")
    p.add_argument("--hlo")
    o = p.parse_args()
    if o.mode == "ask" and o.seeds is None:
        sys.exit("ask needs --seeds FROM:TO")
    (ask if o.mode == "ask" else compare)(o)


if __name__ == "__main__":
    main()
