"""Kernels with block shapes to choose, on which the choice of `atoll tune` is judged.

`FAMILIES` has an `atoll.Tunable` for each: one problem, up to 30 variants of it, bad ones among them. Bodies are those of
tools/pallas_time_made.py, JAX's and, where tpu-inference's kernels can be imported, its own.
`variants()` lists (family, name, function, arguments), as tools/pallas_time_rows.py wants them.
"""
import functools
import importlib
import pathlib
import sys

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOP / "python"), str(TOP / "tools")]
from atoll import Tunable  # noqa: E402
import pallas_time_kernels as kernels  # noqa: E402
import pallas_time_made as made  # noqa: E402

S, F32, BF16, S8, S32 = jax.ShapeDtypeStruct, jnp.float32, jnp.bfloat16, jnp.int8, jnp.int32
MOST = 30


class Chosen:
    """Stands for the random numbers of pallas_time_made: gives what is listed, in that order."""
    def __init__(self, *values):
        self.values = list(values)

    def choice(self, _):
        return self.values.pop(0)

    random = functools.partialmethod(choice, None)


def of_made(make, *order, where=None, **space):
    """A family of pallas_time_made: `order` is what it chooses, in order; strings are parameters."""
    def factory(**params):
        chosen = Chosen(*(params[o] if o in params else o for o in order))
        result = make(chosen) if make in made.OWN else make(chosen, "tuned")
        assert not chosen.values, chosen.values
        return result
    return Tunable(factory, space, where=where)


# ---- Products
def matmul(m, k, n, dtype, finish=lambda v: v):
    def make(bm, bk, bn):
        def f(x, y, b):
            return pl.pallas_call(
                kernels.product(finish), name="tuned", out_shape=S((m, n), dtype), grid=(m // bm, n // bn, k // bk),
                in_specs=[pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)), pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
                          pl.BlockSpec((1, bn), lambda i, j, k: (0, j))],
                out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((bm, bn), F32)],
                compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))(x, y, b)
        return f, (S((m, k), dtype), S((k, n), dtype), S((1, n), F32))
    return make


def attend_blocks(bq, bk, causal=False, heads=4, t=2048, d=128):
    queries, keys = pl.BlockSpec((1, bq, d), lambda h, i, j: (h, i, 0)), pl.BlockSpec((1, bk, d), lambda h, i, j: (h, j, 0))
    x = S((heads, t, d), BF16)
    return lambda q, k, v: pl.pallas_call(
        kernels.attend_blocks(causal), name="tuned", grid=(heads, t // bq, t // bk), in_specs=[queries, keys, keys], out_specs=queries,
        out_shape=x, scratch_shapes=[pltpu.VMEM((bq, d), F32)] * 3)(q, k, v), (x,) * 3


# ---- Sums, transposes
def column_sum(rows, columns):
    return lambda x: pl.pallas_call(
        kernels.column_sum, name="tuned", grid=(4096 // columns, 4096 // rows), in_specs=[pl.BlockSpec((rows, columns), lambda j, i: (i, j))],
        out_specs=pl.BlockSpec((8, columns), lambda j, i: (0, j)), out_shape=S((8, 4096), F32))(x), (S((4096, 4096), F32),)


def transpose(rows, columns):
    def kernel(x, o):
        o[...] = x[...].T
    return lambda x: pl.pallas_call(
        kernel, name="tuned", grid=(2048 // rows, 2048 // columns), in_specs=[pl.BlockSpec((rows, columns), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((columns, rows), lambda i, j: (j, i)), out_shape=S((2048, 2048), F32))(x), (S((2048, 2048), F32),)


def cross_entropy(rows, columns):
    """The log of the sum of exponentials of each row, block by block along it."""
    n, vocabulary = 1024, 8192

    def kernel(x, o, m, s):
        j = pl.program_id(1)

        @pl.when(j == 0)
        def _():
            m[...] = jnp.full_like(m, -1e30)
            s[...] = jnp.zeros_like(s)
        v = x[...].astype(F32)
        top = jnp.maximum(m[...], v.max(1, keepdims=True))
        s[...] = s[...] * jnp.exp(m[...] - top) + jnp.exp(v - top[:, :1]).sum(1, keepdims=True)
        m[...] = top

        @pl.when(j == pl.num_programs(1) - 1)
        def _():
            o[...] = m[...] + jnp.log(s[...])
    return lambda x: pl.pallas_call(
        kernel, name="tuned", grid=(n // rows, vocabulary // columns), in_specs=[pl.BlockSpec((rows, columns), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((rows, 128), lambda i, j: (i, 0)), out_shape=S((n, 128), F32),
        scratch_shapes=[pltpu.VMEM((rows, 128), F32)] * 2)(x), (S((n, vocabulary), BF16),)


# ---- tpu-inference's kernels, where they can be imported
def of_chip(module):
    """The module's kernels see the chip that they are lowered for, instead of the first device."""
    generations = {"v5e": 5, "v5p": 5, "v6e": 6, "7x": 7}
    utils = sys.modules.get("tpu_inference.utils")
    for where in (module, utils):
        if hasattr(where, "get_tpu_version"):
            where.get_tpu_version = lambda: generations.get(pltpu.get_tpu_info().chip_version.value, pltpu.get_tpu_info().generation)
    return module


def ragged_attention_v3(bq, bkv, cq, ckv):
    rpa = of_chip(importlib.import_module("tpu_inference.kernels.ragged_paged_attention.v3.kernel"))
    tokens, heads, kv_heads, d, pages, page, sequences = 512, 16, 4, 128, 256, 32, 8
    cache = rpa.get_kv_cache_shape(pages, page, kv_heads, d, BF16)
    sizes = (bq, bkv, cq, ckv)
    args = (S((tokens, heads, d), BF16), S((tokens, kv_heads, d), BF16), S((tokens, kv_heads, d), BF16), S(cache, BF16), S((sequences,), S32),
            S((sequences * 32,), S32), S((sequences + 1,), S32), S((3,), S32))
    return lambda *a: rpa.ragged_paged_attention(*a, sm_scale=.09, d_block_sizes=sizes, p_block_sizes=sizes, m_block_sizes=sizes,
                                                 vmem_limit_bytes=60 << 20), args


def grouped_matmul_v2(tile_m, tile_k, tile_n):
    gmm = of_chip(importlib.import_module("tpu_inference.kernels.megablox.gmm_v2"))
    sizes = gmm.TileSizes(tile_m, tile_k, tile_n, tile_m)
    return (lambda x, y, g: gmm.gmm_v2(x, y, g, tile_info=sizes, vmem_limit_bytes=60 << 20),
            (S((2048, 1024), BF16), S((8, 1024, 2048), BF16), S((8,), S32)))


def splash_attention(bq, bkv, compute):
    mask = importlib.import_module("jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask")
    return made.splash_attention(Chosen(2, 2048, 256, mask.CausalMask((2048, 2048)), bkv, bq, compute))


BIG = (128, 256, 512, 1024)
FAMILIES = {
    "matmul": Tunable(matmul(2048, 2048, 2048, BF16), {"bm": BIG, "bk": (128, 2048), "bn": (128, 512, 1024)}),
    "matmul_f32": Tunable(matmul(1024, 2048, 1024, F32), {"bm": BIG, "bk": (128, 512), "bn": (128, 256, 512)}),
    "matmul_gelu": Tunable(matmul(1024, 1024, 4096, BF16, jax.nn.gelu), {"bm": BIG, "bk": (256, 1024), "bn": (128, 512, 1024)}),
    "quantised_matmul": of_made(made.quantised_matmul, "w8", 1024, 2048, 2048, "bm", "bk", "bn",
                                bm=(64, 128, 256, 512), bk=(256, 1024), bn=(128, 256, 1024)),
    "quantised_both": of_made(made.quantised_matmul, "w8a8", 1024, 2048, 2048, "bm", "bk", "bn", bm=BIG, bk=(256, 1024), bn=(128, 256, 1024)),
    "batched_matmul": of_made(made.batched_matmul, BF16, False, 8, 1024, 512, 1024, "bm", "bn", bm=(64, *BIG), bn=(128, 256, 512, 1024)),
    "convolution": of_made(made.convolution, 3, 32, "width", 128, 128, "rows", F32, width=(32,), rows=(1, 2, 4, 8, 16, 32)),
    "layer_norm": of_made(made.layer_norm, F32, 8192, 1024, "rows", rows=(8, 16, 24, 32, 64, 128, 256, 512, 1024)),
    "softmax": of_made(made.softmax, "plain", BF16, 8192, 512, "rows", rows=(16, 32, 64, 128, 256, 512, 1024, 2048)),
    "gated": of_made(made.gated, "swiglu", BF16, 8192, 1024, "rows", rows=(16, 32, 64, 128, 256, 512, 1024)),
    "rotary": of_made(made.rotary, F32, 8192, 512, "rows", rows=(8, 16, 32, 64, 128, 256, 512, 1024)),
    "row_search": of_made(made.row_search, 2, 512, "rows", rows=(8, 16, 32, 64, 128, 256, 512)),
    "column_sum": Tunable(column_sum, {"rows": (8, 32, 128, 512, 1024), "columns": (128, 256, 512, 1024, 2048)}),
    "cross_entropy": Tunable(cross_entropy, {"rows": (16, 32, 64, 128, 256), "columns": (128, 256, 512, 2048, 8192)}),
    "transpose": Tunable(transpose, {"rows": (128, 256, 512, 1024), "columns": (128, 256, 512, 1024)}),
    "scan": of_made(made.scan, 2048, 256, "rows", True, "unroll", rows=(8, 16, 32, 64, 128, 256), unroll=(1, 2, 4, 8)),
    "state_space": of_made(made.state_space, 4, 2048, "chunk", "dtype", chunk=(32, 64, 128, 256, 512, 1024), dtype=(F32, BF16)),
    "ring": of_made(made.ring, "depth", "rows", 1024, 4096, "tanh", depth=(2, 3, 4, 8), rows=(8, 16, 32, 64)),
    "inner_pipeline": of_made(made.inner_pipeline, 1024, 1024, 1024, "bm", "bk", "bn", BF16, .1, bm=BIG, bk=(128, 512), bn=(128, 256, 512)),
    "embedding": of_made(made.embedding, "rows", 512, "count", F32, rows=(8, 16, 32, 64, 128, 256), count=(256,)),
    "block_sparse": of_made(made.block_sparse, "bm", "bk", "bn", 8, BF16, .9, bm=BIG, bk=(128, 256), bn=(128, 256, 512)),
    "attend_blocks": Tunable(attend_blocks, {"bq": (64, 128, 256, 512, 1024), "bk": (128, 256, 512, 1024, 2048)}),
    "attend_causal": Tunable(functools.partial(attend_blocks, causal=True), {"bq": (64, 128, 256, 512, 1024), "bk": (128, 256, 512, 1024, 2048)}),
    "flash_attention": of_made(made.flash_attention, 2048, "major", .1, "bq", "bk", 1, 4, 128, BF16,
                               where=lambda major, bq, bk: bk <= major, major=(256, 512, 1024, 2048), bq=(128, 512), bk=(128, 256, 512)),
    "splash_attention": Tunable(splash_attention, {"bq": (128, 256, 1024), "bkv": (256, 512, 1024), "compute": (128, 256, 512)},
                                where=lambda bq, bkv, compute: compute <= bkv),
    "ragged_attention": of_made(made.ragged_attention, 4, 4, 32, 512, 32, 8, "pages", "queries", None,
                                pages=(1, 2, 4, 8, 16), queries=(8, 16, 32, 64, 128)),
    "paged_attention": of_made(made.paged_attention, 4, 8, 32, 8, 32, "pages", "inline", pages=(1, 2, 4, 8, 16, 32), inline=(0, 1)),
    "grouped_matmul": of_made(made.grouped_matmul, "tm", "tk", "tn", 2048, 1024, 2048, 8, tm=(64, 128, 256, 512), tk=(256, 1024), tn=(128, 512, 1024)),
    "ragged_attention_v3": Tunable(ragged_attention_v3, {"bq": (16, 64, 128), "bkv": (128, 256, 512), "cq": (16, 64), "ckv": (128, 256)},
                                   where=lambda bq, bkv, cq, ckv: bq % cq == 0 and bkv % ckv == 0),
    "grouped_matmul_v2": Tunable(grouped_matmul_v2, {"tile_m": (64, 128, 256, 512), "tile_k": (256, 512, 1024), "tile_n": (256, 1024)}),
}


def name_of(family, params):
    return "_".join([family, *(getattr(v, "__name__", str(v)) for v in params.values())])


def variants():
    """Those that cannot be made, as a package is missing, are left out."""
    from atoll import _tune
    for family, t in FAMILIES.items():
        every = _tune.variants_of(t)
        assert len(every) <= MOST, (family, len(every))
        for params in every:
            try:
                fn, args = t.make(**params)
            except ModuleNotFoundError:
                break
            yield family, name_of(family, params), fn, args
