"""Kernels of many kinds and block shapes, by which the time that Atoll predicts is fitted and judged.

`variants()` lists (family, name, function, arguments); the function's one kernel has that name.
"""
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

S, F32, BF16 = jax.ShapeDtypeStruct, jnp.float32, jnp.bfloat16
TYPES = ((F32, "f32"), (BF16, "bf16"))
ANY = pl.BlockSpec(memory_space=pl.ANY)


def rows_spec(rows, columns):
    return pl.BlockSpec((rows, columns), lambda i: (i, 0))


# ---- Bodies on rows
def softmax(x, o):
    v = x[...].astype(F32)
    e = jnp.exp(v - v.max(1, keepdims=True))
    o[...] = (e / e.sum(1, keepdims=True)).astype(o.dtype)


def rms_norm(x, g, o):
    v = x[...].astype(F32)
    o[...] = (v * lax.rsqrt(jnp.mean(v * v, 1, keepdims=True) + 1e-6) * g[...]).astype(o.dtype)


def layer_norm(x, g, o):
    v = x[...].astype(F32)
    d = v - jnp.mean(v, 1, keepdims=True)
    o[...] = (d * lax.rsqrt(jnp.mean(d * d, 1, keepdims=True) + 1e-6) * g[...]).astype(o.dtype)


def chain(x, y, o):
    v = x[...].astype(F32)
    for _ in range(6):
        v = v * y[...].astype(F32) + 0.5
    o[...] = v.astype(o.dtype)


def add(x, y, o):
    o[...] = x[...] + y[...]


def copy(x, o):
    o[...] = x[...]


def tanh(x, o):
    o[...] = jnp.tanh(x[...].astype(F32)).astype(o.dtype)


def gelu(x, o):
    o[...] = jax.nn.gelu(x[...].astype(F32)).astype(o.dtype)


def row_sum(x, o):
    o[...] = jnp.broadcast_to(jnp.sum(x[...].astype(F32), 1, keepdims=True), o.shape)


def on_rows():
    bodies = {"softmax": (softmax, 1, 1), "rms_norm": (rms_norm, 1, 0), "layer_norm": (layer_norm, 1, 0), "chain": (chain, 2, 1),
              "add": (add, 2, 1), "copy": (copy, 1, 1), "tanh": (tanh, 1, 1), "gelu": (gelu, 1, 1), "row_sum": (row_sum, 1, 2)}
    for family, (body, inputs, kind) in bodies.items():
        for dtype, tag in TYPES:
            for n, columns, rows in ((4096, 1024, 16), (4096, 1024, 64), (4096, 1024, 256), (4096, 1024, 1024),
                                     (8192, 256, 32), (8192, 256, 512), (2048, 2048, 128)):
                name = f"{family}_{tag}_{columns}_{rows}"
                x, g = S((n, columns), dtype), S((1, columns), F32)
                width = 128 if kind == 2 else columns
                def f(*args, body=body, n=n, rows=rows, columns=columns, width=width, kind=kind, name=name, dtype=dtype):
                    specs = [rows_spec(rows, columns) if a.shape[0] > 1 else pl.BlockSpec((1, columns), lambda i: (0, 0)) for a in args]
                    return pl.pallas_call(body, name=name, grid=(n // rows,), in_specs=specs, out_specs=rows_spec(rows, width),
                                          out_shape=S((n, width), F32 if kind == 2 else dtype))(*args)
                yield family, name, f, (x,) * inputs + ((g,) if kind == 0 else ())


# ---- Sums down the columns: an output that stays
def column_sum(x, o):
    @pl.when(pl.program_id(1) == 0)
    def _():
        o[...] = jnp.zeros_like(o)
    o[...] += jnp.sum(x[...].astype(F32).reshape(-1, 8, x.shape[1]), 0)


def column_sums():
    for rows, columns in ((64, 128), (64, 512), (256, 256), (512, 1024), (1024, 512), (128, 2048)):
        for dtype, tag in TYPES:
            name = f"column_sum_{tag}_{rows}_{columns}"
            def f(x, rows=rows, columns=columns, name=name):
                return pl.pallas_call(column_sum, name=name, grid=(2048 // columns, 4096 // rows),
                                      in_specs=[pl.BlockSpec((rows, columns), lambda j, i: (i, j))],
                                      out_specs=pl.BlockSpec((8, columns), lambda j, i: (0, j)), out_shape=S((8, 2048), F32))(x)
            yield "column_sum", name, f, (S((4096, 2048), dtype),)


# ---- Products
def product(finish):
    def kernel(x, y, b, o, acc):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)
        acc[...] += jnp.dot(x[...], y[...], preferred_element_type=F32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o[...] = finish(acc[...] + b[...]).astype(o.dtype)
    return kernel


def products():
    finishes = {"matmul": lambda v: v, "matmul_gelu": jax.nn.gelu, "matmul_relu": lambda v: jnp.maximum(v, 0)}
    shapes = ((128, 128, 128), (128, 512, 256), (256, 256, 256), (512, 128, 512), (512, 512, 512), (256, 1024, 512), (1024, 512, 512),
              (512, 1024, 1024), (128, 1024, 1024), (1024, 256, 256), (256, 2048, 256), (1024, 1024, 512))
    for family, finish in finishes.items():
        for dtype, tag in TYPES:
            for bm, bk, bn in shapes[:: 1 if family == "matmul" else 2]:
                name = f"{family}_{tag}_{bm}_{bk}_{bn}"
                m = k = n = 2048
                def f(x, y, b, bm=bm, bk=bk, bn=bn, m=m, k=k, n=n, name=name, finish=finish, dtype=dtype):
                    return pl.pallas_call(
                        product(finish), name=name, out_shape=S((m, n), dtype), grid=(m // bm, n // bn, k // bk),
                        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)), pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
                                  pl.BlockSpec((1, bn), lambda i, j, k: (0, j))],
                        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((bm, bn), F32)],
                        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))(x, y, b)
                yield family, name, f, (S((m, k), dtype), S((k, n), dtype), S((1, n), F32))


# ---- Rows that indices choose, transposes, copies by hand
def gathers():
    for rows, columns, taken in ((256, 512, 8), (256, 512, 64), (1024, 128, 256), (1024, 256, 32), (512, 1024, 128)):
        name = f"gather_{rows}_{columns}_{taken}"
        def kernel(at, x, o, taken=taken):
            def turn(i, _):
                o[pl.ds(i, 1), :] = x[pl.ds(at[pl.program_id(0) * taken + i], 1), :]
                return 0
            lax.fori_loop(0, taken, turn, 0)
        def f(at, x, rows=rows, columns=columns, taken=taken, name=name, kernel=kernel):
            grid = pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1, grid=(at.shape[0] // taken,), in_specs=[pl.BlockSpec((rows, columns), lambda i, at: (0, 0))],
                out_specs=pl.BlockSpec((taken, columns), lambda i, at: (i, 0)))
            return pl.pallas_call(kernel, name=name, grid_spec=grid, out_shape=S((at.shape[0], columns), F32))(at, x)
        yield "gather", name, f, (S((2048,), jnp.int32), S((rows, columns), F32))


def transposes():
    def kernel(x, o):
        o[...] = x[...].T
    for rows, columns in ((128, 128), (256, 128), (128, 512), (256, 256), (512, 512), (1024, 256)):
        name = f"transpose_{rows}_{columns}"
        def f(x, rows=rows, columns=columns, name=name):
            return pl.pallas_call(kernel, name=name, grid=(2048 // rows, 1024 // columns),
                                  in_specs=[pl.BlockSpec((rows, columns), lambda i, j: (i, j))],
                                  out_specs=pl.BlockSpec((columns, rows), lambda i, j: (j, i)), out_shape=S((1024, 2048), F32))(x)
        yield "transpose", name, f, (S((2048, 1024), F32),)


def by_hand(turns, rows, finish):
    """Reads by copies of its own, one ahead, and a window for what it makes."""
    def kernel(x, o, buffer, arrived):
        def fetch(i):
            return pltpu.make_async_copy(x.at[pl.ds(i * rows, rows)], buffer.at[i % 2], arrived.at[i % 2])
        fetch(0).start()
        o[...] = jnp.zeros_like(o)

        def turn(i, _):
            @pl.when(i + 1 < turns)
            def _():
                fetch(i + 1).start()
            fetch(i).wait()
            o[...] += finish(buffer[i % 2])
            return 0
        lax.fori_loop(0, turns, turn, 0)
    return kernel


def double_buffers():
    finishes = {"sum": lambda v: v, "tanh": jnp.tanh}
    for kind, finish in finishes.items():
        for rows, columns in ((8, 512), (32, 512), (64, 1024), (256, 1024), (512, 1024)):
            name, n = f"by_hand_{kind}_{rows}_{columns}", 4096
            def f(x, rows=rows, columns=columns, n=n, name=name, finish=finish):
                return pl.pallas_call(by_hand(n // rows, rows, finish), name=name, in_specs=[ANY], out_shape=S((rows, columns), F32),
                                      scratch_shapes=[pltpu.VMEM((2, rows, columns), F32), pltpu.SemaphoreType.DMA((2,))])(x)
            yield "by_hand", name, f, (S((n, columns), F32),)


# ---- Attention: all keys of a head in one step, or block by block
def attend(q, k, v, o):
    s = lax.dot_general(q[0], k[0], (((1,), (1,)), ((), ())), preferred_element_type=F32) * 0.09
    p = jnp.exp(s - s.max(1, keepdims=True))
    o[0] = (jnp.dot(p.astype(BF16), v[0], preferred_element_type=F32) / p.sum(1, keepdims=True)).astype(o.dtype)


def attend_blocks(causal):
    def kernel(q, k, v, o, m, l, acc):
        i, j = pl.program_id(1), pl.program_id(2)

        @pl.when(j == 0)
        def _():
            m[...] = jnp.full_like(m, -1e30)
            l[...] = jnp.zeros_like(l)
            acc[...] = jnp.zeros_like(acc)

        @pl.when((j * k.shape[1] < (i + 1) * q.shape[1]) if causal else j >= 0)
        def _():
            s = lax.dot_general(q[0], k[0], (((1,), (1,)), ((), ())), preferred_element_type=F32) * 0.09
            if causal:
                rows = lax.broadcasted_iota(jnp.int32, s.shape, 0) + i * q.shape[1]
                s = jnp.where(rows >= lax.broadcasted_iota(jnp.int32, s.shape, 1) + j * k.shape[1], s, -1e30)
            top = jnp.maximum(m[...], s.max(1, keepdims=True))
            p, a = jnp.exp(s - top[:, :1]), jnp.exp(m[...] - top)
            l[...] = l[...] * a + p.sum(1, keepdims=True)
            acc[...] = acc[...] * a + jnp.dot(p.astype(BF16), v[0], preferred_element_type=F32)
            m[...] = top

        @pl.when(j == pl.num_programs(2) - 1)
        def _():
            o[0] = (acc[...] / l[...]).astype(o.dtype)
    return kernel


def attentions():
    heads, t, d = 4, 2048, 128
    x = S((heads, t, d), BF16)
    for bq in (64, 128, 256, 512):
        name = f"attend_{bq}"
        block, whole = pl.BlockSpec((1, bq, d), lambda h, i: (h, i, 0)), pl.BlockSpec((1, t, d), lambda h, i: (h, 0, 0))
        yield "attend", name, lambda q, k, v, bq=bq, block=block, whole=whole, name=name: pl.pallas_call(
            attend, name=name, grid=(heads, t // bq), in_specs=[block, whole, whole], out_specs=block, out_shape=x)(q, k, v), (x, x, x)
    for causal in (False, True):
        family = "attend_causal" if causal else "attend_blocks"
        for bq, bk in ((128, 128), (128, 512), (256, 256), (512, 512), (256, 1024), (1024, 512)):
            name = f"{family}_{bq}_{bk}"
            queries, keys = pl.BlockSpec((1, bq, d), lambda h, i, j: (h, i, 0)), pl.BlockSpec((1, bk, d), lambda h, i, j: (h, j, 0))
            yield family, name, lambda q, k, v, bq=bq, bk=bk, a=queries, b=keys, name=name, causal=causal: pl.pallas_call(
                attend_blocks(causal), name=name, grid=(heads, t // bq, t // bk), in_specs=[a, b, b], out_specs=a, out_shape=x,
                scratch_shapes=[pltpu.VMEM((bq, d), F32)] * 3)(q, k, v), (x, x, x)


def variants():
    for family in (on_rows, column_sums, products, gathers, transposes, double_buffers, attentions):
        yield from family()
