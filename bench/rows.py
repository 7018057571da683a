#!/usr/bin/env python3
"""Rows of published models and scientific code: resizing, narrow convolutions, gathers, windows, scans, random bits.

  bench/rows.py [--filter REGEX] [--rounds N] [--list]

The same JAX function runs on Atoll and XLA:CPU in turns, in one process. Prints the least milliseconds of both and their
ratio (above 1: Atoll is faster), then the geometric mean. Needs TPU_LIBRARY_PATH=.../libatoll.so.
"""
import argparse
import math
import os
import re

os.environ["ATOLL_CACHE"] = "off"
os.environ.pop("JAX_PLATFORMS", None)

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse
from run import Side, agree

ROWS = {}


def row(name, fn, *inputs, flips=0.0, tolerance=1e-3):
    ROWS[name] = (fn, inputs, tolerance, flips)


def normal(*shape, dtype="float32", seed=0):
    return lambda: np.random.default_rng(seed).standard_normal(shape, np.float32).astype(jnp.dtype(dtype))


def uniform(*shape, dtype="float32", seed=0, scale=1.0):
    return lambda: (np.random.default_rng(seed).random(shape, np.float32) * scale).astype(jnp.dtype(dtype))


def below(limit, *shape, dtype="int32", seed=0):
    return lambda: np.random.default_rng(seed).integers(0, limit, shape).astype(jnp.dtype(dtype))


def with_vjp(fn):
    def both(*args):
        y, vjp = jax.vjp(fn, *args[:-1])
        return (y,) + vjp(args[-1])
    return both


def add_resizes():
    for method in ("bilinear", "bicubic"):
        for kind, old, new in (("up", (4, 128, 128, 3), (4, 256, 256, 3)), ("down", (4, 256, 256, 3), (4, 128, 128, 3)),
                               ("wide", (2, 64, 64, 64), (2, 128, 128, 64))):
            row(f"resize_{method}_{kind}", lambda x, n=new, m=method: jax.image.resize(x, n, m), normal(*old))
    row("resize_bilinear_up_bf16", lambda x: jax.image.resize(x, (4, 256, 256, 3), "bilinear"), normal(4, 128, 128, 3, dtype="bfloat16"), tolerance=2e-2)
    row("resize_nearest_up", lambda x: jax.image.resize(x, (4, 256, 256, 32), "nearest"), normal(4, 128, 128, 32))
    row("resize_bilinear_grad", with_vjp(lambda x: jax.image.resize(x, (4, 256, 256, 3), "bilinear")), normal(4, 128, 128, 3), normal(4, 256, 256, 3))


def convolution(spatial, **kw):
    names = "DHW"[-spatial:]
    spec = ("N" + names + "C", names + "IO", "N" + names + "C")
    kw = {"window_strides": (1,) * spatial, "padding": "SAME", **kw}
    return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=spec, **kw)


def add_convolutions():
    def conv(name, x, w, spatial=2, dtype="float32", grad=None, **kw):
        fn = convolution(spatial, **kw)
        tol = 3e-2 if dtype == "bfloat16" else 1e-3
        if grad:
            row(name, with_vjp(fn), normal(*x, dtype=dtype), normal(*w, dtype=dtype, seed=1), normal(*grad, dtype=dtype, seed=2), tolerance=tol)
        else:
            row(name, fn, normal(*x, dtype=dtype), normal(*w, dtype=dtype, seed=1), tolerance=tol)
    conv("conv_1to32_28", (128, 28, 28, 1), (3, 3, 1, 32))
    conv("conv_1to6_5x5", (128, 28, 28, 1), (5, 5, 1, 6))
    conv("conv_1to1_blur", (1, 1024, 1024, 1), (5, 5, 1, 1))
    conv("conv_3to64_s2", (8, 112, 112, 3), (7, 7, 3, 64), window_strides=(2, 2))
    conv("conv_3to64_s2_bf16", (8, 112, 112, 3), (7, 7, 3, 64), window_strides=(2, 2), dtype="bfloat16")
    conv("conv_3to16", (8, 128, 128, 3), (3, 3, 3, 16))
    conv("conv_4to8", (8, 128, 128, 4), (3, 3, 4, 8))
    conv("conv_64to3", (4, 128, 128, 64), (3, 3, 64, 3))
    conv("conv_64to1", (4, 128, 128, 64), (3, 3, 64, 1))
    conv("conv_8to8", (8, 64, 64, 8), (3, 3, 8, 8))
    conv("conv_1x1_3to64", (8, 128, 128, 3), (1, 1, 3, 64))
    conv("depthwise_3x3", (8, 56, 56, 96), (3, 3, 1, 96), feature_group_count=96)
    conv("depthwise_7x7", (8, 28, 28, 96), (7, 7, 1, 96), feature_group_count=96)
    conv("depthwise_3x3_bf16", (8, 56, 56, 96), (3, 3, 1, 96), feature_group_count=96, dtype="bfloat16")
    conv("depthwise_1d_causal", (4, 1024, 256), (4, 1, 256), 1, feature_group_count=256, padding=[(3, 0)])
    conv("grouped_4x", (8, 32, 32, 32), (3, 3, 8, 32), feature_group_count=4)
    conv("conv_1d_1to16", (16, 8192, 1), (9, 1, 16), 1)
    conv("conv_1d_32", (16, 1024, 32), (5, 32, 32), 1)
    conv("conv_3d_1to8", (2, 48, 48, 48, 1), (3, 3, 3, 1, 8), 3)
    conv("conv_3d_8", (2, 24, 24, 24, 8), (3, 3, 3, 8, 16), 3)
    conv("conv_transpose_32to16", (8, 32, 32, 32), (4, 4, 32, 16), lhs_dilation=(2, 2), padding=[(2, 2), (2, 2)])
    conv("conv_transpose_16to3", (8, 64, 64, 16), (4, 4, 16, 3), lhs_dilation=(2, 2), padding=[(2, 2), (2, 2)])
    conv("conv_1to32_grad", (64, 28, 28, 1), (3, 3, 1, 32), grad=(64, 28, 28, 32))
    conv("conv_3to16_grad", (8, 64, 64, 3), (3, 3, 3, 16), grad=(8, 64, 64, 16))
    conv("conv_16to32_grad", (32, 14, 14, 16), (3, 3, 16, 32), grad=(32, 14, 14, 32))
    conv("depthwise_grad", (8, 28, 28, 96), (3, 3, 1, 96), feature_group_count=96, grad=(8, 28, 28, 96))
    conv("conv_1d_16_grad", (16, 1024, 16), (5, 16, 16), 1, grad=(16, 1024, 16))
    conv("conv_3d_4_grad", (2, 16, 16, 16, 4), (3, 3, 3, 4, 8), 3, grad=(2, 16, 16, 16, 8))

    def nchw(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME")
    row("conv_nchw_3to16", nchw, normal(8, 3, 128, 128), normal(16, 3, 3, 3, seed=1))
    row("conv_nchw_1to1", nchw, normal(1, 1, 1024, 1024), normal(1, 1, 3, 3, seed=1))

    def lenet(x, w1, w2):
        for w in (w1, w2):
            x = jax.nn.relu(convolution(2)(x, w))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x
    row("lenet", lenet, normal(64, 28, 28, 1), normal(5, 5, 1, 6, seed=1), normal(5, 5, 6, 16, seed=2))
    row("lenet_grad", jax.value_and_grad(lambda w, x: (lenet(x, *w) ** 2).sum()), lambda: (normal(5, 5, 1, 6, seed=1)(), normal(5, 5, 6, 16, seed=2)()), normal(64, 28, 28, 1))
    row("convolve_1d", lambda x, w: jnp.convolve(x, w, mode="same"), normal(1 << 18), normal(31, seed=1))
    row("laplacian_conv", lambda x: jax.scipy.signal.convolve2d(x, jnp.array([[0, 1., 0], [1, -4, 1], [0, 1, 0]]), mode="same"), normal(1024, 1024))


def add_gathers():
    row("take_along_last", lambda x, i: jnp.take_along_axis(x, i, 1), normal(1024, 512), below(512, 1024, 512))
    row("take_along_first", lambda x, i: jnp.take_along_axis(x, i, 0), normal(512, 1024), below(512, 512, 1024))
    row("take_along_one", lambda x, i: jnp.take_along_axis(x, i[:, None], 1), normal(4096, 512), below(512, 4096))
    row("batched_rows", lambda x, i: jax.vmap(lambda a, j: a[j])(x, i), normal(16, 512, 64), below(512, 16, 1024))
    row("rows_bf16", lambda x, i: x[i], normal(8192, 64, dtype="bfloat16"), below(8192, 16384))
    row("rows_narrow", lambda x, i: x[i], normal(65536, 3), below(65536, 200000))
    row("elements", lambda x, i: x[i], normal(65536), below(65536, 500000))
    row("pairs", lambda x, i, j: x[i, j], normal(512, 512), below(512, 500000), below(512, 500000, seed=1))
    row("bytes", lambda x, i: x[i], below(255, 65536, dtype="uint8"), below(65536, 1000000))
    row("vmap_slice", lambda x, i: jax.vmap(lambda a, j: lax.dynamic_slice(a, (j,), (256,)))(x, i), normal(1024, 1024), below(768, 1024))
    row("vmap_slice_2d", lambda x, i: jax.vmap(lambda j: lax.dynamic_slice(x, (j, j), (24, 24)))(i), normal(512, 512), below(480, 1024))
    row("vmap_update", lambda x, u, i: jax.vmap(lambda a, b, j: lax.dynamic_update_slice(a, b, (j,)))(x, u, i), normal(1024, 512), normal(1024, 64), below(448, 1024))
    row("random_crop", lambda x, i: jax.vmap(lambda a, j: lax.dynamic_slice(a, (j, j, 0), (32, 32, 3)))(x, i), normal(256, 40, 40, 3), below(8, 256))
    row("interp", lambda q, xp, fp: jnp.interp(q, xp, fp), uniform(100000), lambda: np.linspace(0, 1, 256, dtype=np.float32), normal(256))
    row("map_coordinates", lambda x, c: jax.scipy.ndimage.map_coordinates(x, [c[0], c[1]], order=1), normal(512, 512), uniform(2, 262144, scale=511))
    row("map_coordinates_grad", with_vjp(lambda x, c: jax.scipy.ndimage.map_coordinates(x, [c[0], c[1]], order=1)), normal(256, 256), uniform(2, 65536, scale=255), normal(65536))

    def grid_sample(x, g):
        h, w = x.shape[0], x.shape[1]
        y, z = g[..., 0] * (h - 1), g[..., 1] * (w - 1)
        y0, z0 = jnp.floor(y).astype(jnp.int32), jnp.floor(z).astype(jnp.int32)
        fy, fz = (y - y0)[..., None], (z - z0)[..., None]
        at = lambda a, b: x[jnp.clip(a, 0, h - 1), jnp.clip(b, 0, w - 1)]
        return (at(y0, z0) * (1 - fy) + at(y0 + 1, z0) * fy) * (1 - fz) + (at(y0, z0 + 1) * (1 - fy) + at(y0 + 1, z0 + 1) * fy) * fz
    row("grid_sample_3", grid_sample, normal(256, 256, 3), uniform(256, 256, 2))
    row("grid_sample_batched", jax.vmap(grid_sample), normal(8, 64, 64, 16), uniform(8, 64, 64, 2))
    row("one_hot", lambda i: jax.nn.one_hot(i, 256), below(256, 4096))
    row("roll_dynamic", lambda x, k: jnp.roll(x, k, 1), normal(1024, 1024), lambda: np.int32(37))


def add_derivatives():
    def mlp(x, w, v):
        return jnp.tanh(w @ jnp.tanh(v @ x)).sum()
    row("hessian_mlp", jax.hessian(mlp), normal(64), normal(32, 48, seed=1), normal(48, 64, seed=2))
    row("hessian_vmap", jax.vmap(jax.hessian(mlp), (0, None, None)), normal(64, 16), normal(32, 32, seed=1), normal(32, 16, seed=2))
    row("jacrev", jax.vmap(jax.jacrev(lambda x, w: jnp.sin(w @ x) * x), (0, None)), normal(256, 32), normal(32, 32, seed=1))
    row("jacfwd", jax.vmap(jax.jacfwd(lambda x, w: jnp.sin(w @ x) * x), (0, None)), normal(256, 32), normal(32, 32, seed=1))

    def rosenbrock(x):
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
    row("hessian_rosenbrock", jax.hessian(rosenbrock), normal(256))
    row("hessian_rosenbrock_vmap", jax.vmap(jax.hessian(rosenbrock)), normal(512, 12))

    def lennard_jones(x):
        d = x[:, None] - x[None]
        r2 = (d ** 2).sum(-1) + jnp.eye(x.shape[0])
        s = 1 / r2 ** 3
        return ((s * s - s) * (1 - jnp.eye(x.shape[0]))).sum()
    row("forces", jax.grad(lennard_jones), normal(384, 3))
    row("hessian_forces", jax.hessian(lennard_jones), normal(24, 3))

    def pinn(p, x):
        for w, b in p[:-1]:
            x = jnp.tanh(w @ x + b)
        return (p[-1][0] @ x + p[-1][1])[0]
    params = lambda: [(normal(32, 2)() * 0.5, normal(32)()), (normal(32, 32, seed=1)() * 0.2, normal(32)()), (normal(1, 32)(), normal(1)())]
    row("pinn_laplacian", lambda p, x: jax.vmap(lambda y: jnp.trace(jax.hessian(pinn, 1)(p, y)))(x), params, normal(1024, 2))


def add_windows():
    def pool(x, init, op, w, s, pad="VALID"):
        return lax.reduce_window(x, np.asarray(init, x.dtype)[()], op, (1, w, w, 1), (1, s, s, 1), pad)
    row("max_pool_2x2", lambda x: pool(x, -np.inf, lax.max, 2, 2), normal(16, 64, 64, 32))
    row("max_pool_3x3_s2", lambda x: pool(x, -np.inf, lax.max, 3, 2, "SAME"), normal(8, 112, 112, 32))
    row("max_pool_3x3_s2_bf16", lambda x: pool(x, -np.inf, lax.max, 3, 2, "SAME"), normal(8, 112, 112, 32, dtype="bfloat16"))
    row("avg_pool_3x3", lambda x: pool(x, 0, lax.add, 3, 1, "SAME") / 9, normal(8, 56, 56, 32))
    row("max_pool_c1", lambda x: pool(x, -np.inf, lax.max, 2, 2), normal(32, 128, 128, 1))
    row("max_pool_c3_u8", lambda x: pool(x, 0, lax.max, 3, 1, "SAME"), below(255, 4, 256, 256, 3, dtype="uint8"))
    row("dilate_u8", lambda x: lax.reduce_window(x, np.uint8(0), lax.max, (3, 3), (1, 1), "SAME"), below(255, 1024, 1024, dtype="uint8"))
    row("box_7x7", lambda x: lax.reduce_window(x, np.float32(0), lax.add, (7, 7), (1, 1), "SAME"), normal(1024, 1024))
    row("max_pool_2x2_grad", with_vjp(lambda x: pool(x, -np.inf, lax.max, 2, 2)), normal(16, 64, 64, 32), normal(16, 32, 32, 32))
    row("max_pool_3x3_grad", with_vjp(lambda x: pool(x, -np.inf, lax.max, 3, 2, "SAME")), normal(8, 56, 56, 32), normal(8, 28, 28, 32))
    row("avg_pool_grad", with_vjp(lambda x: pool(x, 0., lax.add, 2, 2)), normal(16, 64, 64, 32), normal(16, 32, 32, 32))
    row("max_pool_1d", lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 4), (1, 4), "VALID"), normal(256, 8192))
    row("max_pool_nchw", lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"), normal(16, 32, 64, 64))


def add_counts():
    row("histogram", lambda x: jnp.histogram(x, 64, (-4., 4.))[0], normal(200000))
    row("bincount", lambda x: jnp.bincount(x, length=256), below(256, 500000))
    row("bincount_weights", lambda x, w: jnp.bincount(x, w, length=1024), below(1024, 300000), normal(300000))
    row("searchsorted", lambda a, q: jnp.searchsorted(a, q), lambda: np.sort(normal(4096)()), normal(100000, seed=1))
    row("digitize", lambda q, a: jnp.digitize(q, a), normal(200000), lambda: np.linspace(-3, 3, 64, dtype=np.float32))
    row("unique", lambda x: jnp.unique(x, size=1000, fill_value=-1), below(1000, 100000))
    row("nonzero", lambda x: jnp.nonzero(x > 0, size=100000, fill_value=0)[0], normal(200000))
    row("segment_sum", lambda x, s: jax.ops.segment_sum(x, s, 1024), normal(300000), below(1024, 300000))
    row("segment_sum_rows", lambda x, s: jax.ops.segment_sum(x, s, 4096), normal(32768, 32), below(4096, 32768))
    row("segment_sum_sorted", lambda x, s: jax.ops.segment_sum(x, s, 4096, indices_are_sorted=True), normal(32768, 32), lambda: np.sort(below(4096, 32768)()))
    row("segment_max", lambda x, s: jax.ops.segment_max(x, s, 1024), normal(100000), below(1024, 100000))

    def message(x, w, src, dst):
        return jax.nn.relu(jax.ops.segment_sum((x @ w)[src], dst, x.shape[0]))
    row("graph_layer", message, normal(4096, 64), normal(64, 64, seed=1), below(4096, 32768), below(4096, 32768, seed=1))

    def coo(n, m, nse):
        i = np.unique(np.random.default_rng(0).integers(0, n * m, nse))
        ij = np.stack([i // m, i % m], 1).astype(np.int32)
        return lambda: (np.random.default_rng(1).standard_normal(len(ij)).astype(np.float32), ij)

    def bcoo(shape):
        return lambda a, x: sparse.BCOO((a[0], a[1]), shape=shape) @ x
    row("bcoo_matvec", bcoo((8192, 8192)), coo(8192, 8192, 200000), normal(8192))
    row("bcoo_matmul", bcoo((4096, 4096)), coo(4096, 4096, 40000), normal(4096, 32))
    row("bcoo_todense", lambda a: sparse.BCOO((a[0], a[1]), shape=(1024, 1024)).todense(), coo(1024, 1024, 50000))
    row("sort", jnp.sort, normal(300000))
    row("argsort_rows", lambda x: jnp.argsort(x, 1), normal(1024, 256))
    row("top_k", lambda x: lax.top_k(x, 8), normal(1024, 1024))
    row("median", lambda x: jnp.median(x, 1), normal(1024, 256))


def add_automata():
    def neighbours(g, roll=jnp.roll):
        return sum(roll(g, s, (0, 1)) for s in ((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)) if s != (0, 0))

    def life(g):
        n = neighbours(g)
        return ((n == 3) | ((g == 1) & (n == 2))).astype(g.dtype)
    row("life_u8_1024", life, below(2, 1024, 1024, dtype="uint8"))
    row("life_i32_1024", life, below(2, 1024, 1024))
    row("life_steps", lambda g: lax.fori_loop(0, 16, lambda i, x: life(x), g), below(2, 512, 512, dtype="uint8"))

    def life_bool(g):
        n = neighbours(g.astype(jnp.uint8))
        return (n == 3) | (g & (n == 2))
    row("life_bool_1024", life_bool, below(2, 1024, 1024, dtype="bool"))

    def life_conv(g):
        k = jnp.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], jnp.float32)
        n = lax.conv_general_dilated(g[None, None], k[None, None], (1, 1), "SAME")[0, 0]
        return jnp.where((n == 3) | ((g == 1) & (n == 2)), 1.0, 0.0)
    row("life_conv", life_conv, below(2, 1024, 1024, dtype="float32"))
    row("rule110", lambda g: lax.scan(lambda c, _: ((((c | jnp.roll(c, -1)) & ~(jnp.roll(c, 1) & c & jnp.roll(c, -1))),) * 2), g, None, 64)[1], below(2, 16384, dtype="bool"))
    row("ising", lambda s, u: jnp.where(u < jnp.exp(-0.8 * s * (jnp.roll(s, 1, 0) + jnp.roll(s, -1, 0) + jnp.roll(s, 1, 1) + jnp.roll(s, -1, 1))), -s, s), lambda: below(2, 1024, 1024)() .astype(np.int8) * np.int8(2) - np.int8(1), uniform(1024, 1024))
    row("gray_scott", lambda u, v: (u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u) - u * v * v, v + u * v * v - 0.1 * v), normal(1024, 1024), normal(1024, 1024, seed=1))
    row("threshold_u8", lambda x: jnp.where(x > 128, jnp.uint8(255), jnp.uint8(0)), below(255, 8, 1024, 1024, dtype="uint8"))
    row("normalize_u8", lambda x: (x.astype(jnp.float32) / 255 - jnp.array([0.48, 0.45, 0.4])) / jnp.array([0.22, 0.22, 0.23]), below(255, 8, 224, 224, 3, dtype="uint8"))
    row("to_gray_u8", lambda x: (x.astype(jnp.float32) @ jnp.array([0.299, 0.587, 0.114])).astype(jnp.uint8), below(255, 8, 224, 224, 3, dtype="uint8"), flips=0.01)
    row("popcount", lambda x: lax.population_count(x ^ (x >> 1)), below(1 << 30, 1 << 20))
    row("erode_bool", lambda x: x & jnp.roll(x, 1, 0) & jnp.roll(x, -1, 0) & jnp.roll(x, 1, 1) & jnp.roll(x, -1, 1), below(2, 2048, 2048, dtype="bool"))


def add_random():
    key = lambda: np.array([1, 2], np.uint32)
    row("random_normal", lambda k: jax.random.normal(k, (1 << 19,)), key, tolerance=None)
    row("random_normal_bf16", lambda k: jax.random.normal(k, (1 << 19,), jnp.bfloat16), key, tolerance=None)
    row("random_uniform", lambda k: jax.random.uniform(k, (1 << 20,)), key, tolerance=None)
    row("random_bernoulli", lambda k: jax.random.bernoulli(k, 0.1, (1 << 20,)), key, tolerance=None)
    row("random_bits_u8", lambda k: jax.random.bits(k, (1 << 20,), jnp.uint8), key, tolerance=None)
    row("random_randint", lambda k: jax.random.randint(k, (1 << 19,), 0, 100), key, tolerance=None)
    row("random_categorical", lambda k, x: jax.random.categorical(k, x), key, normal(1024, 512), tolerance=None)
    row("random_gumbel", lambda k: jax.random.gumbel(k, (1 << 18,)), key, tolerance=None)
    row("random_permutation", lambda k: jax.random.permutation(k, 1 << 16), key, tolerance=None)
    row("dropout", lambda k, x: jnp.where(jax.random.bernoulli(k, 0.9, x.shape), x / 0.9, 0), key, normal(1024, 1024), tolerance=None)
    row("random_exponential", lambda k: jax.random.exponential(k, (1 << 19,)), key, tolerance=None)
    row("random_gamma", lambda k: jax.random.gamma(k, 2.0, (8192,)), key, tolerance=None)
    row("vmap_normal", lambda k: jax.vmap(lambda q: jax.random.normal(q, (64,)))(jax.random.split(k, 2048)), key, tolerance=None)


def add_scans():
    row("cumsum", jnp.cumsum, normal(1 << 20))
    row("cumsum_rows", lambda x: jnp.cumsum(x, 1), normal(2048, 512))
    row("cumsum_columns", lambda x: jnp.cumsum(x, 0), normal(512, 2048))
    row("cumsum_bf16", lambda x: jnp.cumsum(x, 1), normal(1024, 512, dtype="bfloat16"), tolerance=0.1)
    row("cumsum_i32", jnp.cumsum, below(100, 1 << 20))
    row("cumprod", lambda x: jnp.cumprod(x, 1), lambda: 1 + 0.01 * normal(1024, 512)())
    row("cummax", lambda x: lax.cummax(x, 1), normal(1024, 1024))
    row("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 1), normal(256, 512))
    row("associative_linear", lambda a, b: lax.associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), (a, b))[1], uniform(1024, 256), normal(1024, 256))
    row("associative_rows", lambda a, b: lax.associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), (a, b), axis=1)[1], uniform(256, 1024), normal(256, 1024))
    row("associative_1d", lambda x: lax.associative_scan(jnp.add, x), normal(1 << 18))
    row("ssm_scan", lambda a, b, c: jnp.einsum("blds,bls->bld", lax.associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), (a, b), axis=1)[1], c), uniform(2, 128, 64, 16), normal(2, 128, 64, 16), normal(2, 128, 16))
    row("integral_image", lambda x: jnp.cumsum(jnp.cumsum(x, 0), 1), normal(1024, 1024))


def measure(devices, name, rounds):
    fn, makers, tolerance, flips = ROWS[name]
    inputs = [m() for m in makers]

    def flat_call(fn, tree):
        return lambda *leaves: fn(*jax.tree.unflatten(tree, leaves))
    leaves, tree = jax.tree.flatten(tuple(inputs))
    sides = {k: Side(d, flat_call(fn, tree), leaves) for k, d in devices.items()}
    same = tolerance is None or agree(sides["atoll"].result, sides["xla"].result, tolerance, flips)
    times = {k: [] for k in sides}
    repeat = max(1, math.ceil(1e-3 / max(1e-7, min(s.run(2) for s in sides.values()))))
    for _ in range(rounds):
        for k, side in sides.items():
            times[k].append(side.run(repeat))
    return {k: min(v) * 1e3 for k, v in times.items()}, same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    for add in (add_resizes, add_convolutions, add_gathers, add_derivatives, add_windows, add_counts, add_automata, add_random, add_scans):
        add()
    names = [n for n in ROWS if re.search(args.filter, n)]
    if args.list:
        print("\n".join(names))
        return
    devices = {"atoll": jax.devices()[0], "xla": jax.devices("cpu")[0]}
    ratios = []
    for name in names:
        try:
            ms, same = measure(devices, name, args.rounds)
        except Exception as e:  # one failing row must not hide the others
            print(f"{name:28s} failed: {str(e).splitlines()[0][:120]}", flush=True)
            continue
        ratios.append(ms["xla"] / ms["atoll"])
        print(f"{name:28s} {ms['atoll']:9.3f} {ms['xla']:9.3f} {ratios[-1]:7.2f}  {'' if same else 'DIFFERENT'}", flush=True)
    if ratios:
        print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} over {len(ratios)} rows, lowest {min(ratios):.2f}")


if __name__ == "__main__":
    main()
