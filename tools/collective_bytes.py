#!/usr/bin/env python3
"""Collective bytes of sharded programs: Atoll's partitioner beside XLA's, on 8 devices.

  tools/collective_bytes.py [--atoll build/release/atoll] [--only NAME] [--markdown] [--verbose]

A small transformer's train step (two layers, attention, MLP or experts, SGD) under each
sharding of the table is lowered once; XLA:CPU compiles it for 8 virtual devices, Atoll
partitions the same text. Bytes are what one device receives: of an all-reduce 2(g-1)/g
of its size, of an all-gather (g-1)/g of its result, of a reduce-scatter and an
all-to-all (g-1)/g of their operand, of a permutation its operand. Collectives inside a
loop count once, on both sides.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

TOP = pathlib.Path(__file__).resolve().parents[1]
LAYERS, BATCH, SEQ, WIDTH, HEADS, HIDDEN, VOCAB, EXPERTS = 2, 16, 64, 128, 8, 512, 256, 8


def params_of(hidden):
    f = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    layer = dict(wq=f(WIDTH, HEADS, WIDTH // HEADS), wk=f(WIDTH, HEADS, WIDTH // HEADS),
                 wv=f(WIDTH, HEADS, WIDTH // HEADS), wo=f(HEADS, WIDTH // HEADS, WIDTH),
                 w1=f(WIDTH, hidden), w2=f(hidden, WIDTH), g1=f(WIDTH), g2=f(WIDTH))
    return dict(embed=f(VOCAB, WIDTH), layers=[dict(layer) for _ in range(LAYERS)])


def norm(x, g):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def forward(p, tokens, constrain):
    x = constrain("act", p["embed"][tokens])
    for w in p["layers"]:
        h = norm(x, w["g1"])
        q, k, v = (constrain("heads", jnp.einsum("bsd,dhk->bshk", h, w[n])) for n in ("wq", "wk", "wv"))
        s = jnp.einsum("bqhk,bshk->bhqs", q, k) / (WIDTH // HEADS) ** 0.5
        mask = jnp.tril(jnp.ones(s.shape[-2:], bool))
        a = jax.nn.softmax(jnp.where(mask, s, -1e9), -1)
        o = jnp.einsum("bhqs,bshk->bqhk", a, v)
        x = constrain("act", x + jnp.einsum("bqhk,hkd->bqd", o, w["wo"]))
        h = norm(x, w["g2"])
        if "router" in w:
            gate = jax.nn.softmax(h @ w["router"], -1)
            y = constrain("experts", jnp.einsum("bsd,edf->ebsf", h, w["w1"]))
            y = jnp.einsum("ebsf,efd->ebsd", jax.nn.gelu(y), w["w2"])
            x = constrain("act", x + jnp.einsum("ebsd,bse->bsd", y, gate))
        else:
            y = constrain("hidden", jax.nn.gelu(h @ w["w1"]))
            x = constrain("act", x + y @ w["w2"])
    return x @ p["embed"].T


def step(p, tokens, targets, constrain):
    def loss(p):
        z = forward(p, tokens, constrain)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(z) * jax.nn.one_hot(targets, VOCAB), -1))
    value, grad = jax.value_and_grad(loss)(p)
    return jax.tree.map(lambda w, g: w - 0.1 * g, p, grad), value


def scheme(name):
    """Mesh, sharding of each weight by name, of tokens, and of activations."""
    none = collections.defaultdict(P)
    if name == "data":
        return (8,), ("d",), none, P("d"), {"act": P("d")}
    if name == "fsdp":
        w = collections.defaultdict(P, embed=P("d"), wq=P("d"), wk=P("d"), wv=P("d"), wo=P(None, None, "d"),
                                    w1=P("d"), w2=P(None, "d"))
        return (8,), ("d",), w, P("d"), {"act": P("d")}
    tensor = dict(wq=P(None, "t"), wk=P(None, "t"), wv=P(None, "t"), wo=P("t"), w1=P(None, "t"), w2=P("t"))
    if name == "data x tensor":
        return (2, 4), ("d", "t"), collections.defaultdict(P, tensor), P("d"), {
            "act": P("d"), "heads": P("d", None, "t"), "hidden": P("d", None, "t")}
    if name == "sequence":
        return (2, 4), ("d", "t"), collections.defaultdict(P, tensor), P("d"), {
            "act": P("d", "t"), "heads": P("d", None, "t"), "hidden": P("d", None, "t")}
    if name == "uneven":  # 63 positions and 510 features in four parts
        return (2, 4), ("d", "t"), none, P("d"), {"act": P("d", "t"), "hidden": P("d", None, "t")}
    if name == "expert":
        w = collections.defaultdict(P, w1=P("e"), w2=P("e"))
        return (2, 4), ("d", "e"), w, P("d"), {"act": P("d"), "experts": P("e", "d")}
    raise SystemExit(f"no scheme {name}")


SCHEMES = ["data", "data x tensor", "fsdp", "sequence", "expert", "uneven"]


def lowered(name):
    shape, axes, weights, batch, acts = scheme(name)
    mesh = jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,) * len(axes))
    constrain = lambda kind, x: (jax.lax.with_sharding_constraint(x, NamedSharding(mesh, acts[kind]))
                                 if kind in acts else x)
    p = params_of(HIDDEN - 2 if name == "uneven" else HIDDEN)
    if name == "expert":
        for w in p["layers"]:
            w.update(w1=jax.ShapeDtypeStruct((EXPERTS, WIDTH, HIDDEN), jnp.float32),
                     w2=jax.ShapeDtypeStruct((EXPERTS, HIDDEN, WIDTH), jnp.float32),
                     router=jax.ShapeDtypeStruct((WIDTH, EXPERTS), jnp.float32))
    place = lambda path, x: NamedSharding(mesh, weights[[k.key for k in path if hasattr(k, "key")][-1]])
    ps = jax.tree_util.tree_map_with_path(place, p)
    ts = NamedSharding(mesh, batch)
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ - 1 if name == "uneven" else SEQ), jnp.int32)
    f = jax.jit(lambda p, a, b: step(p, a, b, constrain), in_shardings=(ps, ts, ts),
                out_shardings=(ps, NamedSharding(mesh, P())))
    return f.lower(p, tokens, tokens)


def bytes_of(kind, operand, result, group):
    g = group
    if kind == "all-reduce":
        return 2 * (g - 1) / g * result
    if kind == "all-gather":
        return (g - 1) / g * result
    if kind in ("reduce-scatter", "all-to-all"):
        return (g - 1) / g * operand
    return operand


SIZES = {"pred": 1, "i1": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}


def shape_bytes(text):
    total = 0
    for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", text):
        n = SIZES.get(dtype, 4)
        for d in filter(None, dims.split(",")):
            n *= int(d)
        total += n
    return total


def group_size(line):
    m = re.search(r"replica_groups=\[(\d+),(\d+)\]<=", line)
    if m:
        return int(m.group(2))
    m = re.search(r"replica_groups=[\[{]+([\d,]+)[\]}]", line)
    return len(m.group(1).split(",")) if m else 8


def count(text, dialect):
    """Bytes and number by kind. XLA's text: `%x = f32[..] all-reduce(...)`; ours:
    `%3 = all_reduce %2 {...} ... : f32[...]`, the result type after the region."""
    out = collections.defaultdict(lambda: [0, 0.0])
    lines = text.splitlines()
    kinds = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
    for i, line in enumerate(lines):
        for kind in kinds:
            if dialect == "xla":
                m = re.search(r"= (.*?) " + kind + r"(-start)?\(", line)
                if not m:
                    continue
                result = shape_bytes(m.group(1))
                if m.group(2) and kind != "all-reduce":
                    result /= 2
            else:
                if f"= {kind.replace('-', '_')} " not in line:
                    continue
                tail = line
                if line.rstrip().endswith("{"):
                    tail = next(l for l in lines[i + 1:] if l.strip().startswith("})"))
                result = shape_bytes(tail.rsplit(" : ", 1)[1])
            g = group_size(line) if kind != "collective-permute" else 8
            operand = result * g if kind == "reduce-scatter" else result
            out[kind][0] += 1
            out[kind][1] += bytes_of(kind, operand, result, g)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atoll", default=TOP / "build" / "release" / "atoll")
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    o = parser.parse_args()
    print("| sharding | XLA KiB | Atoll KiB | ratio | XLA ops | Atoll ops |\n|---|---|---|---|---|---|")
    worst = 0
    for name in SCHEMES:
        if o.only and name != o.only:
            continue
        low = lowered(name)
        xla = count(low.compile().as_text(), "xla")
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as f:
            f.write(low.as_text())
            f.flush()
            text = subprocess.run([o.atoll, "dump", "--stage=optimized", f.name], capture_output=True, text=True)
        if text.returncode:
            sys.exit(text.stderr)
        ours = count(text.stdout, "atoll")
        show = lambda c: ", ".join(f"{k} {n}" for k, (n, _) in sorted(c.items()))
        a, b = (sum(v for _, v in c.values()) for c in (xla, ours))
        worst = max(worst, b / a)
        print(f"| {name} | {a / 1024:.0f} | {b / 1024:.0f} | {b / a:.2f} | {show(xla)} | {show(ours)} |")
        if o.verbose:
            print({k: round(v / 1024) for k, (_, v) in xla.items()}, {k: round(v / 1024) for k, (_, v) in ours.items()})
            print(text.stdout)
    return worst > 1.0


if __name__ == "__main__":
    sys.exit(main())
