#!/usr/bin/env python3
"""Times of unseen programs: `atoll estimate` against the TPU compiler.

    tools/time_rows.py collect [--chip=v5e] [--seeds=0-7] [--class=NAME,...]
    tools/time_rows.py compare BUILD_DIR [--seeds=4-7] [--class=...] [--worst=N] [--kernels]

`collect` draws programs of every class by seed (shapes, dtypes, axes), compiles them with
libtpu, which needs no chip (JAX, libtpu and optax must be there), and appends one row each
to data/tpu/time_rows.jsonl; rows that are there already are kept, so it can be stopped and
started. A row holds the program, and of each compiled kernel [opcode, cycles, turns, result];
"unknown" names ops that the compiler gives no estimate for. Nothing else needs libtpu.
`compare` runs `atoll estimate` on the rows. Odd seeds and those under 12 were learnt from; even
seeds from 14 on judge: of them only errors by class were seen.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS = os.path.join(ROOT, "data", "tpu", "time_rows.jsonl")
KINDS = {"v5e": "v5litepod-8", "v6e": "v6e-8", "v5p": "v5p-8"}


# ---- Programs: class -> maker(random, jax) -> (function, [(shape, dtype), ...])

def pick(r, *of):
    return of[r.integers(len(of))]


def transpose(r, jax, rank):
    dims = {2: (256, 512, 1000, 2048), 3: (8, 64, 128, 384), 4: (4, 16, 64, 128)}[rank]
    shape = tuple(int(r.choice(dims)) for _ in range(rank))
    axes = tuple(int(x) for x in r.permutation(rank))
    while axes == tuple(range(rank)):
        axes = tuple(int(x) for x in r.permutation(rank))
    return lambda x: jax.numpy.transpose(x, axes), [(shape, pick(r, "float32", "bfloat16"))]


def patch_conv(r, jax):
    p, c, f = pick(r, 8, 14, 16), pick(r, 3, 4), pick(r, 192, 384, 768)
    n, s, t = pick(r, 4, 8, 16), pick(r, 14, 16), pick(r, "float32", "bfloat16")
    def f_(x, w):
        return jax.lax.conv_general_dilated(x, w, (p, p), "VALID",
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return f_, [((n, p * s, p * s, c), t), ((p, p, c, f), t)]


def stem_conv(r, jax):
    k, c, f, n = pick(r, 3, 5, 7), 3, pick(r, 32, 64, 96), pick(r, 4, 8, 16)
    side, t = pick(r, 112, 160, 224), pick(r, "float32", "bfloat16")
    def f_(x, w):
        return jax.lax.conv_general_dilated(x, w, (2, 2), "SAME",
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return f_, [((n, side, side, c), t), ((k, k, c, f), t)]


def conv(r, jax, depthwise=False):
    k, c, n = pick(r, 1, 3, 5), pick(r, 64, 128, 256), pick(r, 2, 4, 8)
    if depthwise:
        k = pick(r, 3, 5, 7)
    f, side, t = pick(r, 64, 128, 256), pick(r, 14, 28, 56), pick(r, "float32", "bfloat16")
    def f_(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                            feature_group_count=c if depthwise else 1)
    w = (k, k, 1, c) if depthwise else (k, k, c, f)
    return f_, [((n, side, side, c), t), (w, t)]


def pixel_shuffle(r, jax):
    s, c, n, side = pick(r, 2, 3, 4), pick(r, 3, 16, 32), pick(r, 2, 4, 8), pick(r, 32, 48, 64)
    def f_(x):
        y = x.reshape(n, side, side, s, s, c).transpose(0, 1, 3, 2, 4, 5)
        return y.reshape(n, side * s, side * s, c)
    return f_, [((n, side, side, s * s * c), pick(r, "float32", "bfloat16"))]


def softmax(r, jax):
    shape = pick(r, (8, 12, 512, 512), (4, 16, 256, 1024), (64, 128, 256), (8, 8, 384, 384),
                 (2048, 1000), (4096, 4096), (32, 197, 197))
    axis = pick(r, -1, -1, -1, -2)
    return lambda x: jax.nn.softmax(x, axis), [(shape, pick(r, "bfloat16", "bfloat16", "float32"))]


def layer_norm(r, jax):
    jnp = jax.numpy
    def f_(x, g, b):
        v = x.astype(jnp.float32)
        m = v.mean(-1, keepdims=True)
        d = v - m
        y = d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5)
        return (y * g + b).astype(x.dtype)
    w = pick(r, 384, 768, 1024, 4096)
    return f_, [((pick(r, 8, 16), pick(r, 128, 197, 512), w), pick(r, "bfloat16", "float32")),
                ((w,), "float32"), ((w,), "float32")]


def sort(r, jax):
    shape = pick(r, (65536,), (64, 1024), (1024, 100), (512, 1000))
    return lambda x: jax.numpy.sort(x, -1), [(shape, pick(r, "float32", "int32", "bfloat16"))]


def top_k(r, jax):
    k, shape = pick(r, 1, 8, 40), pick(r, (8, 32000), (64, 4096), (512, 1000), (128, 128))
    return lambda x: jax.lax.top_k(x, k), [(shape, pick(r, "float32", "bfloat16"))]


def highest(r, jax):
    p = pick(r, "highest", "high", "highest")
    m, k, n = (pick(r, 256, 512, 1024, 2048) for _ in range(3))
    return lambda x, y: jax.numpy.matmul(x, y, precision=p), \
        [((m, k), "float32"), ((k, n), "float32")]


def product(r, jax):
    t = pick(r, "float32", "bfloat16", "bfloat16", "int8")
    b, (m, k, n) = pick(r, 1, 1, 8, 32), (pick(r, 64, 128, 512, 1000) for _ in range(3))
    def f_(x, y):
        return jax.lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))),
                                   preferred_element_type="int32" if t == "int8" else t)
    return f_, [((b, m, k), t), ((b, k, n), t)]


def mlp(r, jax):
    rows, w, t = pick(r, 512, 2048, 4096), pick(r, 512, 768, 1024), pick(r, "float32", "bfloat16")
    def f_(x, a, b):
        return x + jax.nn.gelu(x @ a) @ b
    return f_, [((rows, w), t), ((w, 4 * w), t), ((4 * w, w), t)]


def mixer(r, jax):
    n, p, c, t = pick(r, 8, 16), pick(r, 64, 196), pick(r, 256, 512), pick(r, "float32", "bfloat16")
    h = pick(r, 128, 256, 384)
    def f_(x, a, b, d, e):
        y = jax.numpy.swapaxes(x, 1, 2)
        y = jax.nn.gelu(y @ a) @ b
        x = x + jax.numpy.swapaxes(y, 1, 2)
        return x + jax.nn.gelu(x @ d) @ e
    return f_, [((n, p, c), t), ((p, h), t), ((h, p), t), ((c, 4 * c), t), ((4 * c, c), t)]


def threefry(r, jax):
    n, kind = pick(r, 1 << 16, 1 << 18, 1 << 20), pick(r, "uniform", "bits", "normal")
    shape = pick(r, (n,), (n // 256, 256))
    def f_(key):
        return getattr(jax.random, kind)(jax.random.wrap_key_data(key, impl="threefry2x32"), shape)
    return f_, [((2,), "uint32")]


def attention(r, jax):
    b, h, s, d = pick(r, 2, 4), pick(r, 4, 8, 12), pick(r, 256, 512, 1024), pick(r, 64, 128)
    causal, t, jnp = pick(r, False, True), pick(r, "float32", "bfloat16"), jax.numpy
    def f_(q, k, v):
        a = jnp.einsum("bqhd,bkhd->bhqk", q, k) * d ** -.5
        if causal:
            a = jnp.where(jnp.tril(jnp.ones((s, s), bool)), a, -1e9)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(a, -1).astype(q.dtype), v)
    return f_, [((b, s, h, d), t)] * 3


def adamw(r, jax):
    shape, jnp = pick(r, (512, 1000), (1024, 4096), (768, 768), (4, 512, 512)), jax.numpy
    t = pick(r, "float32", "float32", "bfloat16")
    def f_(p, g, m, v, step):
        g = g.astype(jnp.float32)
        m, v = .9 * m + .1 * g, .999 * v + .001 * g * g
        a, b = m / (1 - .9 ** step), v / (1 - .999 ** step)
        new = p - 1e-3 * (a / (jnp.sqrt(b) + 1e-8) + .01 * p)
        return new.astype(p.dtype), m, v
    return f_, [(shape, t), (shape, t), (shape, "float32"), (shape, "float32"), ((), "float32")]


def elementwise(r, jax):
    shape = pick(r, (4096, 1024), (512, 512), (8, 197, 768), (32, 56, 56, 64), (1 << 20,))
    n, t = pick(r, 1, 3, 8), pick(r, "float32", "bfloat16", "int32")
    def f_(x, y):
        for i in range(n):
            x = x * y + i if t == "int32" or i % 2 else jax.numpy.tanh(x) - y
        return x
    return f_, [(shape, t)] * 2


def reduction(r, jax):
    shape = pick(r, (4096, 1024), (8, 197, 768), (32, 56, 56, 64), (128, 1000))
    axes, t = pick(r, (0,), (-1,), (1,), tuple(range(len(shape)))), pick(r, "float32", "bfloat16")
    return lambda x: getattr(jax.numpy, pick(r, "sum", "max"))(x, axes), [(shape, t)]


def gather(r, jax):
    rows, w, n = pick(r, 1000, 32000), pick(r, 64, 128, 768), pick(r, 128, 2048)
    return lambda x, i: x[i], [((rows, w), pick(r, "float32", "bfloat16")), ((n,), "int32")]


def cumsum(r, jax):
    shape = pick(r, (65536,), (512, 1024), (64, 4096))
    return lambda x: jax.numpy.cumsum(x, -1), [(shape, "float32")]


def loop(r, jax):
    n, w, b = pick(r, 4, 12, 32), pick(r, 256, 512, 1024), pick(r, 8, 128, 1024)
    def f_(x, w):
        return jax.lax.scan(lambda c, a: (jax.numpy.tanh(c @ a), None), x, w)[0]
    t = pick(r, "float32", "bfloat16")
    return f_, [((b, w), t), ((n, w, w), t)]


def moves(r, jax):
    jnp, t = jax.numpy, pick(r, "float32", "bfloat16")
    kind, shape = pick(r, "pad", "concat", "slice", "reverse", "roll"), \
        pick(r, (512, 1024), (8, 56, 56, 128), (16, 200, 300))
    f_ = {"pad": lambda x: jnp.pad(x, 1), "concat": lambda x: jnp.concatenate([x, x * 2], -1),
          "slice": lambda x: x[..., 3:-5, 2:], "reverse": lambda x: x[..., ::-1],
          "roll": lambda x: jnp.roll(x, 5, -1)}[kind]
    return f_, [(shape, t)]


def strided_conv(r, jax):
    k, c, f = pick(r, 1, 3), pick(r, 64, 128, 256), pick(r, 64, 128, 512)
    n, side, t = pick(r, 4, 8, 16), pick(r, 28, 56), pick(r, "float32", "bfloat16")
    def f_(x, w):
        return jax.lax.conv_general_dilated(x, w, (2, 2), "SAME",
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return f_, [((n, side, side, c), t), ((k, k, c, f), t)]


def narrow_product(r, jax):
    t = pick(r, "float8_e4m3fn", "float8_e5m2", "int8", "int4")
    m, k, n = (pick(r, 256, 512, 1024, 2048) for _ in range(3))
    def f_(x, y):
        return jax.numpy.matmul(x, y, preferred_element_type="int32" if t[0] == "i" else "float32")
    return f_, [((m, k), t), ((k, n), t)]


def scatter_add(r, jax):
    rows, w, n = pick(r, 1000, 32000), pick(r, 64, 128, 768), pick(r, 128, 2048)
    return lambda x, i, u: x.at[i].add(u), \
        [((rows, w), "float32"), ((n,), "int32"), ((n, w), "float32")]


def optimizer(r, jax):
    jnp, kind = jax.numpy, pick(r, "momentum", "lion", "rmsprop", "adafactor")
    shape, t = pick(r, (512, 1000), (1024, 4096), (768, 3072)), pick(r, "float32", "bfloat16")
    def f_(p, g, m):
        g, q = g.astype(jnp.float32), p.astype(jnp.float32)
        if kind == "momentum":
            m = .9 * m + g
            q = q - .1 * m
        elif kind == "lion":
            q, m = q - 1e-3 * (jnp.sign(.9 * m + .1 * g) + .1 * q), .99 * m + .01 * g
        elif kind == "rmsprop":
            m = .9 * m + .1 * g * g
            q = q - 1e-3 * g * jax.lax.rsqrt(m + 1e-8)
        else:
            row, col = (g * g).mean(-1, keepdims=True), (g * g).mean(0, keepdims=True)
            u = g * jax.lax.rsqrt(row * col / row.mean() + 1e-30)
            u = u / jnp.maximum(1., jnp.sqrt((u * u).mean()))
            q = q - 1e-2 * u
        return q.astype(p.dtype), m
    return f_, [(shape, t), (shape, t), (shape, "float32")]


def cross_entropy(r, jax):
    jnp = jax.numpy
    n, v, t = pick(r, 256, 1024, 4096), pick(r, 1000, 8192, 32000), pick(r, "float32", "bfloat16")
    def f_(x, y):
        x = x.astype(jnp.float32)
        at = jnp.take_along_axis(x, y[:, None], -1)[:, 0]
        return (jax.nn.logsumexp(x, -1) - at).mean()
    return f_, [((n, v), t), ((n,), "int32")]


def norm(jax, x, g):
    v = x.astype("float32")
    return (v * jax.lax.rsqrt((v * v).mean(-1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def layer(jax, x, w, heads, causal):
    """One block of a transformer; w: its four products and two scales."""
    jnp = jax.numpy
    n, s, d = x.shape
    qkv = (norm(jax, x, w[4]) @ w[0]).reshape(n, s, 3, heads, d // heads)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    a = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // heads) ** -.5
    if causal:
        a = jnp.where(jnp.tril(jnp.ones((s, s), bool)), a, -1e9)
    a = jax.nn.softmax(a.astype(jnp.float32), -1).astype(x.dtype)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(n, s, d) @ w[1]
    return x + jax.nn.gelu(norm(jax, x, w[5]) @ w[2]) @ w[3]


def stack(r):
    n, s, d = pick(r, 2, 4, 8), pick(r, 128, 256, 512), pick(r, 256, 512, 768)
    layers, t, heads = pick(r, 2, 4, 6), pick(r, "float32", "bfloat16", "bfloat16"), d // 64
    return heads, [((n, s, d), t), ((layers, d, 3 * d), t), ((layers, d, d), t),
                   ((layers, d, 4 * d), t), ((layers, 4 * d, d), t), ((layers, d), "float32"),
                   ((layers, d), "float32")]


def layers_scan(r, jax):
    (heads, args), causal = stack(r), pick(r, False, True)
    def f_(x, *w):
        return jax.lax.scan(lambda c, w: (layer(jax, c, w, heads, causal), None), x, w)[0]
    return f_, args


def train_scan(r, jax):
    heads, args = stack(r)
    def loss(w, x):
        y = jax.lax.scan(lambda c, w: (layer(jax, c, w, heads, True), None), x, w)[0]
        return (y.astype("float32") ** 2).mean()
    def f_(x, *w):
        grads = jax.grad(loss)(w, x)
        return [(p - 1e-3 * g).astype(p.dtype) for p, g in zip(w, grads)]
    return f_, args


def train_mlp(r, jax):
    rows, w, t = pick(r, 256, 1024), pick(r, 256, 512, 784), pick(r, "float32", "bfloat16")
    def loss(p, x, y):
        z = jax.nn.relu(x @ p[0] + p[1]) @ p[2]
        return -(jax.nn.log_softmax(z.astype("float32")) * y).sum(-1).mean()
    def f_(a, b, c, x, y):
        p = (a, b, c)
        return [(q - .1 * g).astype(q.dtype) for q, g in zip(p, jax.grad(loss)(p, x, y))]
    return f_, [((w, 2 * w), t), ((2 * w,), t), ((2 * w, 128), t), ((rows, w), t),
                ((rows, 128), "float32")]


def block_step(r, jax):
    """A residual block of convolutions, forward."""
    n, c, side, t = pick(r, 4, 8, 16), pick(r, 64, 128), pick(r, 14, 28), \
        pick(r, "float32", "bfloat16")
    def f_(x, a, b, s):
        def conv_(x, w):
            return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                                dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = jax.nn.relu(conv_(x, a) * s)
        return jax.nn.relu(x + conv_(y, b) * s)
    return f_, [((n, side, side, c), t), ((3, 3, c, c), t), ((3, 3, c, c), t), ((c,), t)]


CLASSES = dict(
    transpose2=lambda r, j: transpose(r, j, 2), transpose3=lambda r, j: transpose(r, j, 3),
    transpose4=lambda r, j: transpose(r, j, 4), patch_conv=patch_conv, stem_conv=stem_conv,
    conv=conv, depthwise=lambda r, j: conv(r, j, True), pixel_shuffle=pixel_shuffle,
    softmax=softmax, layer_norm=layer_norm, sort=sort, top_k=top_k, highest=highest,
    product=product, mlp=mlp, mixer=mixer, threefry=threefry, attention=attention,
    adamw=adamw, elementwise=elementwise, reduction=reduction, gather=gather, cumsum=cumsum,
    loop=loop, moves=moves, strided_conv=strided_conv, narrow_product=narrow_product,
    scatter_add=scatter_add, optimizer=optimizer, cross_entropy=cross_entropy,
    layers_scan=layers_scan, train_scan=train_scan, train_mlp=train_mlp, block_step=block_step)
# Their loops turn as often as their second argument has slices.
LOOPS = ("loop", "layers_scan", "train_scan")
# Whole steps; at most a quarter of what is judged.
STEPS = ("mixer", "layers_scan", "train_scan", "train_mlp", "block_step")


# ---- The compiler's estimates

# Ops that are no kernels: they move no data, or others do their work.
FREE = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "copy-start",
        "copy-done", "while", "conditional", "call", "slice-start", "slice-done", "async-start",
        "async-done", "after-all", "partition-id", "replica-id"}
# Custom calls that only name memory.
PLACES = {"AllocateBuffer", "ConcatBitcast", "BitcastConvert"}
# An op without an estimate whose result is this small does not keep a row from being judged.
SMALL = 1024


def elements(result):
    """Of the largest array in a result's type, as "(f32[8,128]{1,0}, s32[8]{0})"."""
    sizes = [1]
    for dims in re.findall(r"\w+\[([\d,]*)\]", result):
        n = 1
        for d in dims.split(","):
            n *= int(d or 1)
        sizes.append(n)
    return max(sizes)


def unknown_of(kernels):
    """Ops whose time the compiler does not say: custom calls, and what is not small.

    A copy that brings the state of a loop into VMEM is a transfer, no kernel."""
    return sorted({k[0] for k in kernels if k[1] is None and
                   (elements(k[3]) > SMALL or k[0].startswith("custom-call")) and
                   not (k[0] == "copy" and "S(1)" in k[3])})


def kernels_of(text, loop_turns):
    """[[opcode, cycles or None, turns, result], ...] of a compiled module's text.

    loop_turns: of loops whose turns the text does not say."""
    bodies, name, entry = {}, None, None
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            name, bodies[head[2]] = head[2], []
            entry = head[2] if head[1] else entry
        elif name and " = " in line:
            bodies[name].append(line)
    out = []

    def walk(body, turns):
        for line in bodies.get(body, []):
            m = re.match(r"\s+(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z][\w\-]*)\(", line)
            if not m:
                continue
            called = re.search(r"(?:body|to_apply)=%?([\w.\-]+)", line)
            if m[2] in ("while", "call"):
                known = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
                walk(called[1], turns * (int(known[1]) if known else
                                         loop_turns if m[2] == "while" else 1))
                continue
            cycles = re.search(r'"estimated_cycles":"(-?\d+)"', line)
            target = re.search(r'custom_call_target="([^"]*)"', line)
            if m[2] in FREE or target and target[1] in PLACES:
                continue
            op = m[2] + (":" + target[1] if target else "")
            out.append([op, int(cycles[1]) if cycles else None, turns, m[1][:100]])
    walk(entry, 1)
    return out


def wanted(options):
    first, last = (options.seeds.split("-") + [options.seeds])[:2]
    names = options.classes.split(",") if options.classes else list(CLASSES)
    return [(s, c) for s in range(int(first), int(last) + 1) for c in names]


def read_rows():
    if not os.path.exists(ROWS):
        return []
    with open(ROWS) as rows:
        return [json.loads(line) for line in rows]


def collect(options):
    os.environ.pop("TPU_LIBRARY_PATH", None)    # libtpu is asked, not this project
    os.environ.update(TPU_SKIP_MDS_QUERY="1", JAX_PLATFORMS="cpu", TPU_WORKER_ID="0",
                      ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_WORKER_HOSTNAMES="localhost",
                      TPU_ACCELERATOR_TYPE=KINDS[options.chip])
    import jax
    import numpy as np
    from jax.experimental import topologies
    device = topologies.get_topology_desc(options.chip + ":2x2", platform="tpu").devices[0]
    where = jax.sharding.SingleDeviceSharding(device)
    have = {(r["chip"], r["seed"], r["class"]) for r in read_rows()}
    for seed, name in wanted(options):
        if (options.chip, seed, name) in have:
            continue
        f, args = CLASSES[name](np.random.default_rng([seed, list(CLASSES).index(name)]), jax)
        specs = [jax.ShapeDtypeStruct(s, t, sharding=where) for s, t in args]
        lowered = jax.jit(f).lower(*specs)
        try:
            kernels = kernels_of(lowered.compile().as_text(), args[1][0][0] if name in LOOPS else 1)
        except jax.errors.JaxRuntimeError as e:
            print(options.chip, seed, name, str(e)[:200], flush=True)
            continue
        row = dict(chip=options.chip, seed=seed, sum=sum((k[1] or 0) * k[2] for k in kernels),
                   unknown=unknown_of(kernels),
                   kernels=kernels, program=lowered.as_text())
        row["class"] = name
        with open(ROWS, "a") as rows:
            rows.write(json.dumps(row, separators=(",", ":")) + "\n")
        print(options.chip, seed, name, row["sum"], row["unknown"], flush=True)


# ---- Ours beside them

def estimate(build, row, folder):
    path = os.path.join(folder, "p.mlir")
    with open(path, "w") as out:
        out.write(row["program"])
    done = subprocess.run([os.path.join(build, "atoll"), "estimate", "--json",
                           "--target=" + row["chip"], path], capture_output=True, text=True)
    return json.loads(done.stdout) if not done.returncode else dict(error=done.stderr)


def line(title, pairs):
    import numpy as np
    from scipy import stats
    given, got = np.array(pairs, float).T
    e = abs(got / given - 1)
    rank = stats.spearmanr(given, got)[0] if len(pairs) > 2 else float("nan")
    print(f"{title:14s} {len(pairs):4d} median {np.median(e):7.1%} p90 {np.quantile(e, .9):7.1%} "
          f"worst {e.max():7.1%} (mean sign {np.mean(np.sign(got - given)):+.2f}) rank {rank:.3f}")


def compare(options):
    from fit_tpu import Chip
    chips, seen, all_pairs, worst = {}, {}, [], []
    asked = set(wanted(options))
    with tempfile.TemporaryDirectory() as folder:
        for row in read_rows():
            if (row["seed"], row["class"]) not in asked or row["chip"] != options.chip:
                continue
            e = estimate(options.build, row, folder)
            if "error" in e:
                print(row["class"], row["seed"], e["error"].strip()[:200])
                continue
            chip = chips.setdefault(row["chip"], Chip(row["chip"]))
            got = e["kernel_seconds"] * chip.clock
            if row["unknown"] or row["sum"] < 1000:
                note = ",".join(row["unknown"]) or "under 1,000 cycles"
                if options.worst:
                    print(f"not judged: {row['class']} {row['seed']} ({note}): "
                          f"{row['sum']}, here {got:.0f}")
                continue
            seen.setdefault(row["class"], []).append((row["sum"], got))
            all_pairs.append((row["sum"], got))
            worst.append((got / row["sum"], row, e, chip.clock))
    for name, pairs in seen.items():
        line(name, pairs)
    line("all", all_pairs)
    worst.sort(key=lambda w: -max(w[0], 1 / max(w[0], 1e-9)))
    for ratio, row, e, clock in worst[:options.worst]:
        print(f"{ratio:6.2f} {row['chip']} {row['class']} {row['seed']}: {row['sum']}")
        if options.kernels:
            for k in row["kernels"]:
                print("      compiler", k)
            for o in e["ops"]:
                print(f"      here {o['name']} {o['seconds'] * clock:.0f} x {o['runs']:g} "
                      f"{o['shapes'][:150]}")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mode", choices=["collect", "compare"])
    p.add_argument("build", nargs="?", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--chip", default="v5e", choices=list(KINDS))
    p.add_argument("--seeds", default="0-7")
    p.add_argument("--class", dest="classes", default="")
    p.add_argument("--worst", type=int, default=0)
    p.add_argument("--kernels", action="store_true")
    options = p.parse_args()
    (collect if options.mode == "collect" else compare)(options)


if __name__ == "__main__":
    sys.exit(main())
