"""Kernels that seeds make, by which the time that Atoll predicts is judged on what it was not fitted to.

`made(seed)` is (family, name, function, arguments). Rows of even seeds are left out of every fit; odd ones may be looked
at. Each family has both: the family is that of seed // 2.
"""
import random

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

S, F32, BF16, S8, S32 = jax.ShapeDtypeStruct, jnp.float32, jnp.bfloat16, jnp.int8, jnp.int32
ANY = pl.BlockSpec(memory_space=pl.ANY)
SEEDS = range(600)


def dot(x, y, transposed=False):
    return lax.dot_general(x, y, (((1,), (1 if transposed else 0,)), ((), ())), preferred_element_type=F32)


# ---- JAX's own kernels
def ragged_attention(r):
    from jax.experimental.pallas.ops.tpu import ragged_paged_attention as rpa
    heads, groups, page = r.choice((2, 4, 8)), r.choice((1, 2, 4)), r.choice((16, 32, 64))
    tokens, pages_per_sequence, sequences = r.choice((128, 256, 512)), r.choice((8, 16, 32)), r.choice((4, 16))
    options = dict(num_kv_pages_per_block=r.choice((2, 4, 8)), num_queries_per_block=r.choice((8, 16, 32, 64)),
                   vmem_limit_bytes=64 << 20, sliding_window=r.choice((None, None, 128)))
    shapes = (S((tokens, heads * groups, 128), BF16), S((512, page, 2 * heads, 128), BF16), S((sequences,), S32),
              S((sequences, pages_per_sequence), S32), S((sequences + 1,), S32), S((1,), S32))
    return lambda *a: rpa.ragged_paged_attention(*a, **options), shapes


def paged_attention(r):
    from jax.experimental.pallas.ops.tpu import paged_attention as pa
    heads, groups, page = r.choice((2, 4, 8)), r.choice((4, 8)), r.choice((16, 32, 64))
    sequences, pages = r.choice((4, 8, 16)), r.choice((16, 32))
    x = S((heads, 512, page, 128), BF16)
    options = dict(pages_per_compute_block=r.choice((2, 4, 8)), inline_seq_dim=r.random() < .5)
    return (lambda *a: pa.paged_attention(*a, **options),
            (S((sequences, heads * groups, 128), BF16), x, x, S((sequences,), S32), S((sequences, pages), S32)))


def splash_attention(r):
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as sk, splash_attention_mask as sm
    heads, t = r.choice((2, 4)), r.choice((1024, 2048, 4096))
    mask = r.choice((sm.CausalMask((t, t)), sm.FullMask((t, t)), sm.LocalMask((t, t), (r.choice((256, 512)), 0), 0)))
    keys = r.choice((256, 512, 1024))
    sizes = sk.BlockSizes(block_q=r.choice((128, 256, 512, 1024)), block_kv=keys, block_kv_compute=r.choice((128, 256, keys)))
    x = S((heads, t, 128), BF16)
    masks = sm.MultiHeadMask([mask] * heads)
    return lambda q, k, v: sk.make_splash_mha(masks, block_sizes=sizes, head_shards=1, q_seq_shards=1)(q, k, v), (x,) * 3


def flash_attention(r):
    from jax.experimental.pallas.ops.tpu import flash_attention as fa
    t, major, causal = r.choice((1024, 2048, 4096)), r.choice((128, 256, 512, 1024)), r.random() < .5
    sizes = fa.BlockSizes(block_q=r.choice((128, 256, 512)), block_k_major=major, block_k=r.choice([b for b in (128, 256, 512) if b <= major]),
                          block_b=1)
    x = S((r.choice((1, 2)), r.choice((2, 4)), t, r.choice((64, 128))), r.choice((BF16, F32)))
    return lambda q, k, v: fa.flash_attention(q, k, v, causal=causal, sm_scale=.09, block_sizes=sizes), (x,) * 3


def grouped_matmul(r):
    import importlib
    gmm = importlib.import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")
    tile = r.choice((128, 256, 512)), r.choice((128, 256, 512, 1024)), r.choice((128, 256, 512, 1024))
    m, k, n, groups = r.choice((1024, 2048, 4096)), r.choice((1024, 2048)), r.choice((1024, 2048)), r.choice((4, 8, 16))
    return (lambda x, y, g: gmm.gmm(x, y, g, F32, tile), (S((m, k), BF16), S((groups, k, n), BF16), S((groups,), S32)))


# ---- Products
def accumulate(step, grid_axis=2):
    """A body that zeroes `acc` in the first step of the axis, adds what `step` makes, and stores it in the last."""
    def kernel(*refs):
        o, acc = refs[-2:]

        @pl.when(pl.program_id(grid_axis) == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)
        acc[...] += step(*(x[...] for x in refs[:-2])).astype(acc.dtype)

        @pl.when(pl.program_id(grid_axis) == pl.num_programs(grid_axis) - 1)
        def _():
            o[...] = acc[...].astype(o.dtype)
    return kernel


def quantised_matmul(r, name):
    kind = r.choice(("w8a8", "w8", "w8_scaled", "w4"))
    m, k, n = r.choice((256, 1024, 2048)), r.choice((1024, 2048, 4096)), r.choice((1024, 2048))
    bm, bk, bn = r.choice((128, 256)), r.choice((256, 512, 1024)), r.choice((128, 256, 512))
    x, y = S((m, k), S8 if kind == "w8a8" else BF16), S((k, n), jnp.int4 if kind == "w4" else S8)
    acc = S32 if kind == "w8a8" else F32

    def step(x, y, s):
        if kind == "w8a8":
            return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=S32)
        if kind == "w8_scaled":
            return dot(x, (y.astype(F32) * s).astype(BF16))
        return dot(x, y.astype(BF16))
    return lambda *a: pl.pallas_call(
        accumulate(step), name=name, grid=(m // bm, n // bn, k // bk), out_shape=S((m, n), BF16),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)), pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
                  pl.BlockSpec((1, bn), lambda i, j, k: (0, j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((bm, bn), acc)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))(*a), (x, y, S((1, n), F32))


def batched_matmul(r, name):
    dtype, transposed = r.choice((F32, BF16)), r.random() < .5
    b, m, k, n = r.choice((4, 8)), r.choice((512, 1024)), r.choice((256, 512, 1024)), r.choice((512, 1024))
    bm, bn = r.choice((128, 256, 512)), r.choice((128, 256, 512))

    def kernel(x, y, o):
        o[0] = dot(x[0], y[0], transposed).astype(o.dtype)
    y = S((b, n, k) if transposed else (b, k, n), dtype)
    spec = pl.BlockSpec((1, bn, k), lambda b, i, j: (b, j, 0)) if transposed else pl.BlockSpec((1, k, bn), lambda b, i, j: (b, 0, j))
    return lambda *a: pl.pallas_call(
        kernel, name=name, grid=(b, m // bm, n // bn), in_specs=[pl.BlockSpec((1, bm, k), lambda b, i, j: (b, i, 0)), spec],
        out_specs=pl.BlockSpec((1, bm, bn), lambda b, i, j: (b, i, j)), out_shape=S((b, m, n), dtype))(*a), (S((b, m, k), dtype), y)


def convolution(r, name):
    """Taps of a filter over rows, each a product."""
    taps, height, width = r.choice((3, 5)), r.choice((16, 32)), r.choice((16, 32, 64))
    c, n, rows = r.choice((128, 256)), r.choice((128, 256)), r.choice((4, 8))
    dtype = r.choice((F32, BF16))

    def kernel(x, w, o):
        i = pl.program_id(1)
        acc = jnp.zeros((rows * width, n), F32)
        for dy in range(taps):
            for dx in range(taps):
                v = x[0, pl.ds(i * rows + dy, rows), pl.ds(dx, width), :].reshape(rows * width, c)
                acc += dot(v, w[dy, dx])
        o[0] = acc.reshape(rows, width, n).astype(o.dtype)
    x = S((4, height + taps - 1, width + 16, c), dtype)
    return lambda *a: pl.pallas_call(
        kernel, name=name, grid=(4, height // rows), out_shape=S((4, height, width, n), dtype),
        in_specs=[pl.BlockSpec((1, *x.shape[1:]), lambda b, i: (b, 0, 0, 0)), pl.BlockSpec((taps, taps, c, n), lambda b, i: (0, 0, 0, 0))],
        out_specs=pl.BlockSpec((1, rows, width, n), lambda b, i: (b, i, 0, 0)))(*a), (x, S((taps, taps, c, n), dtype))


# ---- Rows
def row_kernel(r, name, body, extra=()):
    dtype, n = r.choice((F32, BF16)), r.choice((2048, 4096, 8192))
    columns, rows = r.choice((384, 512, 768, 1024, 1536, 2048, 4096)), r.choice((8, 16, 32, 64, 128, 256))
    x = S((n, columns), dtype)
    spec = pl.BlockSpec((rows, columns), lambda i: (i, 0))
    args = tuple(x if e == "x" else S((1, columns), F32) for e in ("x", *extra))
    specs = [spec if a.shape[0] > 1 else pl.BlockSpec((1, columns), lambda i: (0, 0)) for a in args]
    return lambda *a: pl.pallas_call(body, name=name, grid=(n // rows,), in_specs=specs, out_specs=spec, out_shape=x)(*a), args


def layer_norm(r, name):
    def body(x, g, b, o):
        v = x[...].astype(F32)
        m = jnp.mean(v, 1, keepdims=True)
        s = jnp.mean(v * v, 1, keepdims=True) - m * m
        o[...] = ((v - m) * lax.rsqrt(s + 1e-5) * g[...] + b[...]).astype(o.dtype)
    return row_kernel(r, name, body, ("g", "g"))


def softmax(r, name):
    kind = r.choice(("plain", "log", "masked"))

    def body(x, o):
        v = x[...].astype(F32) * .125
        if kind == "masked":
            v = jnp.where(lax.broadcasted_iota(S32, v.shape, 1) <= pl.program_id(0) * 8, v, -1e30)
        d = v - v.max(1, keepdims=True)
        e = jnp.exp(d)
        total = e.sum(1, keepdims=True)
        o[...] = (d - jnp.log(total) if kind == "log" else e / total).astype(o.dtype)
    return row_kernel(r, name, body)


def gated(r, name):
    kind = r.choice(("swiglu", "geglu", "residual", "sine"))

    def body(x, y, o):
        v, w = x[...].astype(F32), y[...].astype(F32)
        out = {"swiglu": lambda: v * jax.nn.sigmoid(v) * w, "geglu": lambda: jax.nn.gelu(v) * w, "residual": lambda: v * .5 + w,
               "sine": lambda: jnp.sin(v) * w}[kind]()
        o[...] = out.astype(o.dtype)
    return row_kernel(r, name, body, ("x",))


def rotary(r, name):
    def body(x, c, s, o):
        v = x[...].astype(F32)
        o[...] = (v * c[...] + pltpu.roll(v, v.shape[1] // 2, 1) * s[...]).astype(o.dtype)
    return row_kernel(r, name, body, ("g", "g"))


def row_search(r, name):
    """Where the largest element of each row is, and some of the next ones."""
    turns, n, columns, rows = r.choice((1, 2, 4)), 2048, r.choice((128, 512, 1024)), r.choice((8, 32, 64, 128))

    def body(x, o):
        v = x[...]
        column = lax.broadcasted_iota(S32, v.shape, 1)
        out = jnp.zeros(o.shape, S32)
        for i in range(turns):
            best = jnp.argmax(v, 1)[:, None].astype(S32)
            out = jnp.where(lax.broadcasted_iota(S32, o.shape, 1) == i, best, out)
            v = jnp.where(column == best, -jnp.inf, v)
        o[...] = out
    return lambda x: pl.pallas_call(
        body, name=name, grid=(n // rows,), in_specs=[pl.BlockSpec((rows, columns), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((rows, 128), lambda i: (i, 0)), out_shape=S((n, 128), S32))(x), (S((n, columns), F32),)


# ---- State that goes from step to step
def scan(r, name):
    """h = a h + x, row by row within a block, block by block within the grid."""
    steps, columns, rows = r.choice((1024, 2048)), r.choice((128, 256, 512, 1024)), r.choice((8, 32, 64, 128))
    wide, unroll = r.choice((False, True)), r.choice((1, 4))

    def kernel(x, a, o, h):
        @pl.when(pl.program_id(1) == 0)
        def _():
            h[...] = jnp.zeros_like(h)

        def turn(i, s):
            s = a[i] * s + x[i]
            o[i] = s
            return s
        h[...] = lax.fori_loop(0, rows, turn, h[...], unroll=unroll)
    part = 8 if wide else 1
    x = S((steps, part * 2, columns), F32)
    spec = pl.BlockSpec((rows, part, columns), lambda j, i: (i, j, 0))
    if part == 1:
        x, spec = S((2, steps, 1, columns), F32), pl.BlockSpec((None, rows, 1, columns), lambda j, i: (j, i, 0, 0))
    return lambda x, a: pl.pallas_call(kernel, name=name, grid=(2, steps // rows), in_specs=[spec, spec], out_specs=spec, out_shape=S(x.shape, F32),
                                       scratch_shapes=[pltpu.VMEM((part, columns), F32)])(x, a), (x, x)


def state_space(r, name):
    """Linear attention by chunks: products within a chunk, and with a state that goes on."""
    heads, t, d, chunk, dtype = r.choice((2, 4)), r.choice((1024, 2048)), 128, r.choice((64, 128, 256)), r.choice((F32, BF16))

    def kernel(q, k, v, o, s):
        @pl.when(pl.program_id(1) == 0)
        def _():
            s[...] = jnp.zeros_like(s)
        a = dot(q[0], k[0], True)
        row, column = lax.broadcasted_iota(S32, a.shape, 0), lax.broadcasted_iota(S32, a.shape, 1)
        a = jnp.where(row >= column, a, 0.)
        o[0] = (dot(a.astype(dtype), v[0]) + dot(q[0], s[...].astype(dtype))).astype(dtype)
        s[...] = s[...] * .9 + dot(k[0].astype(F32).T.astype(dtype), v[0])
    x, spec = S((heads, t, d), dtype), pl.BlockSpec((1, chunk, d), lambda h, i: (h, i, 0))
    return lambda *a: pl.pallas_call(kernel, name=name, grid=(heads, t // chunk), in_specs=[spec] * 3, out_specs=spec, out_shape=x,
                                     scratch_shapes=[pltpu.VMEM((d, d), F32)])(*a), (x,) * 3


# ---- Copies
def ring(r, name):
    """A pipeline of copies by hand, in and out, with as many buffers as one likes."""
    depth, rows, columns = r.choice((2, 3, 4)), r.choice((8, 32, 64, 256)), r.choice((256, 512, 1024))
    n, work = r.choice((2048, 4096)), r.choice(("copy", "tanh", "gelu"))
    if rows * columns * depth > 1 << 19:
        rows = 64
    turns = n // rows

    def kernel(x, o, buffer, out, arrived, left):
        def fetch(i):
            return pltpu.make_async_copy(x.at[pl.ds(i * rows, rows)], buffer.at[i % depth], arrived.at[i % depth])

        def put(i):
            return pltpu.make_async_copy(out.at[i % 2], o.at[pl.ds(i * rows, rows)], left.at[i % 2])
        for i in range(depth - 1):
            fetch(i).start()

        def turn(i, _):
            @pl.when(i + depth - 1 < turns)
            def _():
                fetch(i + depth - 1).start()
            fetch(i).wait()

            @pl.when(i >= 2)
            def _():
                put(i - 2).wait()
            v = buffer[i % depth]
            out[i % 2] = {"copy": lambda v: v, "tanh": jnp.tanh, "gelu": jax.nn.gelu}[work](v)
            put(i).start()
            return 0
        lax.fori_loop(0, turns, turn, 0)
        put(turns - 2).wait()
        put(turns - 1).wait()
    x = S((n, columns), F32)
    return lambda x: pl.pallas_call(
        kernel, name=name, in_specs=[ANY], out_specs=ANY, out_shape=x,
        scratch_shapes=[pltpu.VMEM((depth, rows, columns), F32), pltpu.VMEM((2, rows, columns), F32),
                        pltpu.SemaphoreType.DMA((depth,)), pltpu.SemaphoreType.DMA((2,))])(x), (x,)


def inner_pipeline(r, name):
    """emit_pipeline: a grid within a step."""
    m, k, n = r.choice((512, 1024)), r.choice((512, 1024, 2048)), r.choice((512, 1024))
    bm, bk, bn, dtype, product = r.choice((128, 256)), r.choice((128, 256, 512)), r.choice((128, 256)), r.choice((F32, BF16)), r.random() < .6

    def kernel(x, y, o):
        if product:
            def body(x, y, o):
                @pl.when(pl.program_id(2) == 0)
                def _():
                    o[...] = jnp.zeros_like(o)
                o[...] += dot(x[...], y[...])
            pltpu.emit_pipeline(body, grid=(m // bm, n // bn, k // bk),
                                in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)), pl.BlockSpec((bk, bn), lambda i, j, k: (k, j))],
                                out_specs=[pl.BlockSpec((bm, bn), lambda i, j, k: (i, j))])(x, y, o)
        else:
            def body(x, o):
                o[...] = jnp.exp(x[...].astype(F32))
            pltpu.emit_pipeline(body, grid=(m // bm, k // bk), in_specs=[pl.BlockSpec((bm, bk), lambda i, j: (i, j))],
                                out_specs=[pl.BlockSpec((bm, bk), lambda i, j: (i, j))])(x, o)
    return (lambda *a: pl.pallas_call(kernel, name=name, in_specs=[ANY, ANY], out_specs=ANY, out_shape=S((m, n if product else k), F32))(*a),
            (S((m, k), dtype), S((k, n), dtype)))


# ---- Indices in SMEM
def embedding(r, name):
    """Blocks of rows that a prefetched array names, scaled and added."""
    rows, columns, n, dtype = r.choice((8, 16, 64)), r.choice((256, 512, 1024, 2048)), r.choice((128, 256, 512)), r.choice((F32, BF16))
    if dtype == BF16 and rows == 8:
        rows = 16

    def kernel(at, x, w, o):
        o[...] = (x[...].astype(F32) * w[...]).astype(o.dtype)
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(n,), in_specs=[pl.BlockSpec((rows, columns), lambda i, at: (at[i], 0)),
                                                    pl.BlockSpec((1, columns), lambda i, at: (0, 0))],
        out_specs=pl.BlockSpec((rows, columns), lambda i, at: (i, 0)))
    return (lambda *a: pl.pallas_call(kernel, name=name, grid_spec=grid, out_shape=S((n * rows, columns), dtype))(*a),
            (S((n,), S32), S((64 * rows, columns), dtype), S((1, columns), F32)))


def block_sparse(r, name):
    """Products of the blocks that prefetched arrays name; a flag leaves steps out."""
    bm, bk, bn, steps, dtype = r.choice((128, 256)), r.choice((128, 256, 512)), r.choice((128, 256, 512)), r.choice((4, 8, 16)), r.choice((F32, BF16))
    m, k, n, skip = 1024, 2048, 1024, r.random() < .5

    def kernel(at, on, x, y, o, acc):
        i, s = pl.program_id(0), pl.program_id(2)

        @pl.when(s == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)

        @pl.when(on[i * steps + s] != 0 if skip else s >= 0)
        def _():
            acc[...] += dot(x[...], y[...])

        @pl.when(s == steps - 1)
        def _():
            o[...] = acc[...].astype(o.dtype)
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2, grid=(m // bm, n // bn, steps),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, s, at, on: (i, at[i * steps + s])),
                  pl.BlockSpec((bk, bn), lambda i, j, s, at, on: (at[i * steps + s], j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, s, at, on: (i, j)), scratch_shapes=[pltpu.VMEM((bm, bn), F32)])
    index = S((m // bm * steps,), S32)
    return (lambda *a: pl.pallas_call(kernel, name=name, grid_spec=grid, out_shape=S((m, n), dtype))(*a),
            (index, index, S((m, k), dtype), S((k, n), dtype)))


OWN = (ragged_attention, paged_attention, splash_attention, flash_attention, grouped_matmul)
FAMILIES = OWN + (quantised_matmul, batched_matmul, convolution, layer_norm, softmax, gated, rotary, row_search, scan, state_space, ring,
                  inner_pipeline, embedding, block_sparse)


def made(seed):
    make = FAMILIES[seed // 2 % len(FAMILIES)]
    name = f"{make.__name__}_{seed}"
    r = random.Random(seed)
    fn, args = make(r) if make in OWN else make(r, name)
    return make.__name__, name, fn, args


def variants():
    for seed in SEEDS:
        yield made(seed)
