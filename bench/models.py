#!/usr/bin/env python3
"""Whole programs of published models and scientific code, Atoll and XLA:CPU side by side.

  bench/models.py [--filter REGEX] [--rounds N] [--processes N] [--out results.json]

Prints what bench/run.py prints: decoding with a cache, filters, graphs, physics, sampling, vision, signals, and the
optimizer and loss of large models. Needs TPU_LIBRARY_PATH=.../libatoll.so.
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse

import run
from daily import DAILY
from idioms import IDIOMS
from methods import METHODS
from mixed import MIXED
from programs import PROGRAMS
from workloads import Work, below, normal, registry, uniform, with_vjp

MODELS = {}
model = registry(MODELS)
KEY = np.array([0, 42], np.uint32)


# ---- Language models
@model("gpt2_decode_cache")
def _():
    """Eight tokens of a 4-layer GPT-2 (768 wide, 12 heads), the cache updated in place."""
    d, heads, layers, vocab, length = 768, 12, 4, 8192, 256

    def norm(x, g):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g

    def f(p, emb, cache_k, cache_v, token):
        def step(c, i):
            ks, vs, token = c
            x = emb[token]

            def layer(x, t):
                wq, wo, w1, w2, g, k, v = t
                q, nk, nv = jnp.split(norm(x, g[0]) @ wq, 3)
                k = lax.dynamic_update_slice(k, nk.reshape(1, heads, -1), (i, 0, 0))
                v = lax.dynamic_update_slice(v, nv.reshape(1, heads, -1), (i, 0, 0))
                s = jnp.einsum("hd,thd->ht", q.reshape(heads, -1), k) / 8
                a = jax.nn.softmax(jnp.where(jnp.arange(length) <= i, s, -1e9), -1)
                x = x + jnp.einsum("ht,thd->hd", a, v).reshape(-1) @ wo
                return x + jax.nn.gelu(norm(x, g[1]) @ w1) @ w2, (k, v)
            x, (ks, vs) = lax.scan(layer, x, (*p, ks, vs))
            token = jnp.argmax(x @ emb.T).astype(jnp.int32)
            return (ks, vs, token), token
        return lax.scan(step, (cache_k, cache_v, token), jnp.arange(100, 108))[1]
    p = [normal(layers, d, 3 * d, scale=0.02), normal(layers, d, d, scale=0.02), normal(layers, d, 4 * d, scale=0.02),
         normal(layers, 4 * d, d, scale=0.02), np.ones((layers, 2, d), np.float32)]
    cache = [normal(layers, length, heads, d // heads, seed=s) for s in (1, 2)]
    size = sum(x.size for x in p) * 4 + vocab * d * 4
    return Work(f, [tuple(p), normal(vocab, d, scale=0.1), *cache, np.int32(7)], bytes=8 * size, tolerance=0)


@model("llama_layer_decode_b4")
def _():
    def f(x, wqkv, wo, wg, wu, wd, k, v):
        y = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        q, _, _ = jnp.split(y @ wqkv, 3, -1)
        s = jax.nn.softmax(jnp.einsum("bhd,bthd->bht", q.reshape(4, 16, 64), k) / 8, -1)
        x = x + jnp.einsum("bht,bthd->bhd", s, v).reshape(4, 1024) @ wo
        return x + (jax.nn.silu(x @ wg) * (x @ wu)) @ wd
    w = [normal(1024, 3072, scale=.03), normal(1024, 1024, scale=.03), normal(1024, 2816, scale=.03), normal(1024, 2816, scale=.03, seed=2), normal(2816, 1024, scale=.03)]
    kv = [normal(4, 512, 16, 64, seed=s) for s in (3, 4)]
    return Work(f, [normal(4, 1024), *w, *kv], bytes=4 * sum(x.size for x in w + kv), tolerance=1e-3)


@model("beam_search_4_x_32")
def _():
    def f(emb, w, out):
        def step(c, _):
            scores, tokens, h = c
            h = jnp.tanh(emb[tokens] + h @ w)
            logp = jax.nn.log_softmax(h @ out) + scores[:, None]
            top, at = lax.top_k(logp.reshape(-1), 4)
            beam, tokens = at // 4096, at % 4096
            return (top, tokens, h[beam]), (beam, tokens)
        one = jnp.array([0.0, -1e9, -1e9, -1e9])  # else four beams are one
        return lax.scan(step, (one, jnp.zeros(4, jnp.int32), jnp.zeros((4, 128))), None, length=32)
    return Work(f, [normal(4096, 128), normal(128, 128, scale=.1), normal(128, 4096, scale=.1)], tolerance=1e-3, bytes=32 * 4 * 128 * 4096)


@model("cross_entropy_50k_grad")
def _():
    def loss(x, w, y):
        logits = x @ w
        return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[:, None], 1)[:, 0]).mean()
    return Work(jax.value_and_grad(loss, (0, 1)), [normal(128, 256), normal(256, 50257, scale=.05), below(50257, 128)],
                flops=6 * 128 * 256 * 50257, tolerance=1e-3)


@model("logits_grad_50k")
def _():
    def loss(z, y):
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]).mean()
    return Work(jax.value_and_grad(loss), [normal(256, 50257), below(50257, 256)], bytes=8 * 256 * 50257)


def tree(seed=0, scale=1.0):
    shapes = [(512, 1536), (512, 512), (512, 2048), (2048, 512), (512,), (512,), (1536,), (2048,)] * 4
    return [normal(*s, seed=seed + i, scale=scale) for i, s in enumerate(shapes)]


@model("adamw_clip_12M")
def _():
    def f(p, m, v, g):
        norm = jnp.sqrt(sum((x * x).sum() for x in g))
        scale = jnp.minimum(1.0, 1.0 / norm)

        def one(p, m, v, g):
            g = g * scale
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            return p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p), m, v
        return [one(*t) for t in zip(p, m, v, g)]
    p = tree()
    return Work(f, [p, tree(50), [np.abs(x) for x in tree(90)], tree(130)], bytes=32 * sum(x.size for x in p))


@model("rmsnorm_grad_4096x1024")
def _():
    def f(x, g):
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g
    return Work(with_vjp(f), [normal(4096, 1024), normal(1024), normal(4096, 1024, seed=1)], bytes=16 * 4096 * 1024, tolerance=1e-3)


@model("rotary_attention_grouped")
def _():
    def rotate(x, c, s):
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * c - b * s, b * c + a * s], -1)

    def f(q, k, v, c, s):
        q, k = rotate(q, c, s), rotate(k, c, s)
        k, v = jnp.repeat(k, 4, 1), jnp.repeat(v, 4, 1)
        a = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
        a = jnp.where(jnp.tril(jnp.ones(a.shape[-2:], bool)), a, -1e30)
        return jax.nn.softmax(a, -1) @ v
    angle = np.arange(256)[:, None] / 10000 ** (np.arange(32) / 32)
    return Work(f, [normal(2, 8, 256, 64), normal(2, 2, 256, 64, seed=1), normal(2, 2, 256, 64, seed=2), np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)],
                flops=4 * 16 * 256 * 256 * 64)


@model("moe_dispatch_dense")
def _():
    def f(x, gate, up, down):
        p = jax.nn.softmax(x @ gate)
        w, at = lax.top_k(p, 2)
        one = jax.nn.one_hot(at, 8)
        place = (jnp.cumsum(one.reshape(-1, 8), 0) - 1).reshape(one.shape)
        hot = one[..., None] * jax.nn.one_hot(jnp.where(one > 0, place, -1), 160)
        dispatch, combine = hot.sum(1), jnp.einsum("tk,tkec->tec", w, hot)
        y = jnp.einsum("tec,td->ecd", dispatch, x)
        y = jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", y, up)), down)
        return jnp.einsum("tec,ecd->td", combine, y)
    return Work(f, [normal(512, 128), normal(128, 8), normal(8, 128, 512, scale=.1), normal(8, 512, 128, scale=.1)], flops=4 * 512 * 8 * 160 * 128 + 4 * 8 * 160 * 128 * 512, tolerance=1e-3)


@model("mamba_block_grad")
def _():
    def f(x, a, b, c, dt):
        def step(h, t):
            xt, bt, ct, d = t
            h = jnp.exp(d[:, None] * a) * h + (d * xt)[:, None] * bt
            return h, h @ ct
        return lax.scan(step, jnp.zeros((128, 16)), (x, b, c, dt))[1]
    return Work(with_vjp(f), [normal(256, 128), -np.abs(normal(128, 16)), normal(256, 16), normal(256, 16, seed=1), np.abs(normal(256, 128)) * .1, normal(256, 128, seed=4)], tolerance=1e-3)


@model("lstm_grad_b16_x_64")
def _():
    def f(xs, w, u):
        def step(s, x):
            h, c = s
            i, g, o, q = jnp.split(x @ w + h @ u, 4, -1)
            c = jax.nn.sigmoid(g) * c + jax.nn.sigmoid(i) * jnp.tanh(q)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        return lax.scan(step, (jnp.zeros((16, 128)), jnp.zeros((16, 128))), xs)[1]
    return Work(with_vjp(f), [normal(64, 16, 64), normal(64, 512, scale=.1), normal(128, 512, scale=.1), normal(64, 16, 128)], flops=6 * 64 * 16 * 192 * 512, tolerance=1e-3)


@model("int8_weights_m4")
def _():
    def f(x, w, s):
        return (x @ w.astype(jnp.float32)) * s
    return Work(f, [normal(4, 2048), np.random.default_rng(0).integers(-127, 127, (2048, 4096)).astype(np.int8), uniform(4096)], bytes=2048 * 4096, tolerance=1e-3)


@model("lora_merge_64")
def _():
    return Work(lambda x, w, a, b: x @ w + (x @ a) @ b * 0.5, [normal(64, 1024), normal(1024, 1024, scale=.03), normal(1024, 8), normal(8, 1024)], flops=2 * 64 * 1024 * 1024)


@model("ctc_loss_grad")
def _():
    def loss(logits, labels):
        logp = jax.nn.log_softmax(logits)
        ext = jnp.zeros(41, jnp.int32).at[1::2].set(labels)
        skip = jnp.concatenate([jnp.zeros(2, bool), (ext[2:] != ext[:-2]) & (ext[2:] != 0)])
        start = jnp.full(41, -1e30).at[:2].set(logp[0, ext[:2]])

        def step(a, lp):
            b = jnp.concatenate([jnp.full(1, -1e30), a[:-1]])
            c = jnp.where(skip, jnp.concatenate([jnp.full(2, -1e30), a[:-2]]), -1e30)
            return jnp.logaddexp(jnp.logaddexp(a, b), c) + lp[ext], None
        a = lax.scan(step, start, logp[1:])[0]
        return -jnp.logaddexp(a[-1], a[-2])
    return Work(jax.vmap(jax.value_and_grad(loss)), [normal(8, 120, 32), below(31, 8, 20) + 1], tolerance=1e-3)


# ---- Recommenders, graphs, sparse matrices
@model("dlrm_mlp_interact")
def _():
    def f(x, tables, ids, b1, b2, t1, t2):
        y = jax.nn.relu(jax.nn.relu(x @ b1) @ b2)
        e = jax.vmap(lambda t, i: t[i].sum(1), (0, 1), 1)(tables, ids)
        z = jnp.concatenate([y[:, None], e], 1)
        dots = jnp.einsum("bid,bjd->bij", z, z)
        i, j = np.tril_indices(9, -1)
        return jax.nn.relu(jnp.concatenate([y, dots[:, i, j]], 1) @ t1) @ t2
    return Work(f, [normal(512, 13), normal(8, 20000, 64), below(20000, 512, 8, 5), normal(13, 256), normal(256, 64, scale=.1), normal(100, 256, scale=.1), normal(256, 1)], tolerance=1e-3)


@model("gnn_message_passing_3")
def _():
    def f(x, ws, src, dst, e):
        for w in ws:
            m = jax.nn.relu(x[src] @ w[0] + e @ w[2][:8])
            x = jax.nn.relu(x @ w[1] + jax.ops.segment_sum(m, dst, x.shape[0]))
        return x
    return Work(f, [normal(2000, 32), [normal(3, 32, 32, seed=s, scale=.2) for s in range(3)], below(2000, 16000), below(2000, 16000, seed=1), normal(16000, 8)], tolerance=1e-3)


@model("gat_edge_softmax")
def _():
    def f(h, a, b, src, dst):
        s = jax.nn.leaky_relu((h @ a)[src] + (h @ b)[dst])
        top = jax.ops.segment_max(s, dst, 4000)
        e = jnp.exp(s - top[dst])
        w = e / jax.ops.segment_sum(e, dst, 4000)[dst]
        return jax.ops.segment_sum(h[src] * w[:, None], dst, 4000)
    return Work(f, [normal(4000, 32), normal(32, scale=.2), normal(32, scale=.2, seed=1), below(4000, 40000), below(4000, 40000, seed=1)], tolerance=1e-3)


@model("pagerank_20k_x_20")
def _():
    def f(src, dst, deg):
        def step(_, r):
            return 0.15 / 20000 + 0.85 * jax.ops.segment_sum((r / deg)[src], dst, 20000)
        return lax.fori_loop(0, 20, step, jnp.full(20000, 1 / 20000))
    src = below(20000, 100000)
    return Work(f, [src, below(20000, 100000, seed=1), np.maximum(np.bincount(src, minlength=20000), 1).astype(np.float32)], tolerance=1e-3)


@model("bcoo_power_iteration")
def _():
    at = np.unique(below(4096 * 4096, 60000))
    at = np.stack([at // 4096, at % 4096], 1).astype(np.int32)

    def f(data, at, x):
        a = sparse.BCOO((data, at), shape=(4096, 4096), indices_sorted=True, unique_indices=True)

        def step(_, x):
            y = a @ x
            return y / jnp.linalg.norm(y)
        return lax.fori_loop(0, 10, step, x)
    return Work(f, [np.abs(normal(len(at))), at, uniform(4096)], tolerance=1e-3)


@model("bellman_ford_2k")
def _():
    def f(src, dst, w):
        def step(_, d):
            return jnp.minimum(d, jax.ops.segment_min(d[src] + w, dst, 2000))
        return lax.fori_loop(0, 16, step, jnp.full(2000, 1e9).at[0].set(0.0))
    return Work(f, [below(2000, 20000), below(2000, 20000, seed=1), uniform(20000)])


# ---- Filters, sequences, control
@model("kalman_filter_smoother_8")
def _():
    def f(a, h, q, r, z):
        def step(c, zt):
            x, p = c
            x, p = a @ x, a @ p @ a.T + q
            k = jnp.linalg.solve(h @ p @ h.T + r, h @ p).T
            x, p = x + k @ (zt - h @ x), p - k @ h @ p
            return (x, p), (x, p)
        (x, p), (xs, ps) = lax.scan(step, (jnp.zeros(8), jnp.eye(8)), z)

        def back(c, t):
            xn, pn = c
            x, p = t
            pp = a @ p @ a.T + q
            g = jnp.linalg.solve(pp, a @ p).T
            x, p = x + g @ (xn - a @ x), p + g @ (pn - pp) @ g.T
            return (x, p), x
        return lax.scan(back, (x, p), (xs, ps), reverse=True)[1]
    a = (np.eye(8) + 0.1 * np.eye(8, k=1)).astype(np.float32) * np.float32(0.9)
    return Work(f, [a, np.eye(4, 8, dtype=np.float32), np.eye(8, dtype=np.float32) * np.float32(.1), np.eye(4, dtype=np.float32), normal(500, 4)], tolerance=1e-3)


@model("hmm_forward_backward")
def _():
    def f(t, e, obs):
        def fwd(a, o):
            a = (a @ t) * e[:, o]
            a = a / a.sum()
            return a, a

        def bwd(b, o):
            b = t @ (e[:, o] * b)
            b = b / b.sum()
            return b, b
        _, a = lax.scan(fwd, jnp.ones(24) / 24, obs)
        _, b = lax.scan(bwd, jnp.ones(24) / 24, obs, reverse=True)
        g = a * jnp.roll(b, -1, 0)
        return g / g.sum(1, keepdims=True)
    t, e = uniform(24, 24) + .01, uniform(24, 16, seed=1) + .01
    return Work(f, [t / t.sum(1, keepdims=True), e / e.sum(1, keepdims=True), below(16, 2000)], tolerance=1e-3)


@model("edit_distance_batch_64")
def _():
    def one(a, b):
        def row(prev, x):
            def cell(left, t):
                up, diag, y = t
                v = jnp.minimum(jnp.minimum(left + 1, up + 1), diag + (x != y))
                return v, v
            first = prev[0] + 1
            rest = lax.scan(cell, first, (prev[1:], prev[:-1], b))[1]
            return jnp.concatenate([first[None], rest]), None
        return lax.scan(row, jnp.arange(65), a)[0][-1]
    return Work(jax.vmap(one), [below(4, 64, 64), below(4, 64, 64, seed=1)])


@model("smith_waterman_diag")
def _():
    def f(a, b):
        n = 256
        i = jnp.arange(n)

        def step(c, d):
            h1, h2 = c
            j = d - i
            s = jnp.where((j >= 0) & (j < n) & (a == b[jnp.clip(j, 0, n - 1)]), 2.0, -1.0)
            up, diag = jnp.roll(h1, 1).at[0].set(0), jnp.roll(h2, 1).at[0].set(0)
            h = jnp.maximum(0, jnp.maximum(diag + s, jnp.maximum(up, h1) - 1))
            h = jnp.where((j >= 0) & (j < n), h, 0)
            return (h, h1), h.max()
        return lax.scan(step, (jnp.zeros(n), jnp.zeros(n)), jnp.arange(2 * n - 1))[1].max()
    return Work(f, [below(4, 256), below(4, 256, seed=1)])


@model("pendulum_rollout_mlp")
def _():
    def f(p, s0):
        def step(s, _):
            th, w = s[:, 0], s[:, 1]
            u = 2 * jnp.tanh(jnp.tanh(s @ p[0] + p[1]) @ p[2])[:, 0]
            w = jnp.clip(w + (15 * jnp.sin(th) + 3 * u) * 0.05, -8, 8)
            th = th + w * 0.05
            cost = (jnp.mod(th + jnp.pi, 2 * jnp.pi) - jnp.pi) ** 2 + .1 * w * w + .001 * u * u
            return jnp.stack([th, w], 1), cost
        return lax.scan(step, s0, None, length=200)[1]
    return Work(f, [(normal(2, 32), normal(32), normal(32, 1, scale=.3)), normal(128, 2, scale=.1)], tolerance=None)


@model("mpc_shooting_grad")
def _():
    def cost(u, x):
        def step(x, u):
            x = jnp.stack([x[0] + .05 * x[2], x[1] + .05 * x[3], x[2] + .05 * u[0] - .01 * x[2] ** 3, x[3] + .05 * u[1] - .05 * jnp.sin(x[1])])
            return x, (x * x).sum() + .01 * (u * u).sum()
        return lax.scan(step, x, u)[1].sum()

    def f(u, x):
        return lax.fori_loop(0, 20, lambda _, u: u - .01 * jax.grad(cost)(u, x), u)
    return Work(f, [normal(40, 2, scale=.1), normal(4)], tolerance=1e-3)


# ---- Physics
@model("nbody_512_x_8")
def _():
    def f(x, v, m):
        def acc(x):
            d = x[None] - x[:, None]
            r = (d ** 2).sum(-1) + 1e-2
            return (d * (m[None] * r ** -1.5)[..., None]).sum(1)

        def step(_, s):
            x, v = s
            v = v + .001 * acc(x)
            return x + .001 * v, v
        return lax.fori_loop(0, 8, step, (x, v))
    return Work(f, [normal(512, 3), normal(512, 3, seed=1), uniform(512)], tolerance=1e-3)


@model("ode_pow_rk4_64")
def _():
    def f(y, k):
        def d(y):
            return -k * y ** 1.7 + 0.3 * jnp.roll(y, 1) ** 0.6

        def step(y, _):
            h = .01
            a = d(y)
            b = d(y + h / 2 * a)
            c = d(y + h / 2 * b)
            e = d(y + h * c)
            y = y + h / 6 * (a + 2 * b + 2 * c + e)
            return y, y.sum()
        return lax.scan(step, y, None, length=1000)
    return Work(f, [uniform(64) + .5, uniform(64, seed=1)], tolerance=1e-3)


@model("dopri_adaptive_batch")
def _():
    def one(y0, mu):
        def d(y):
            return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

        def body(s):
            t, h, y = s
            k1 = d(y)
            k2 = d(y + h * k1 / 2)
            k3 = d(y + h * .75 * k2)
            new = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
            k4 = d(new)
            err = jnp.abs(h * (-5 / 72 * k1 + k2 / 12 + k3 / 9 - k4 / 8)).max()
            ok = err < 1e-4
            h2 = jnp.clip(.9 * h * (1e-4 / (err + 1e-12)) ** (1 / 3), h / 5, h * 5)
            return jnp.where(ok, t + h, t), h2, jnp.where(ok, new, y)
        return lax.while_loop(lambda s: s[0] < 5.0, body, (0.0, 0.01, y0))[2]
    return Work(jax.vmap(one), [normal(256, 2), uniform(256) + .5], tolerance=2e-2)


@model("shallow_water_256_x_20")
def _():
    def dx(a):
        return (jnp.roll(a, -1, 1) - jnp.roll(a, 1, 1)) * .5

    def dy(a):
        return (jnp.roll(a, -1, 0) - jnp.roll(a, 1, 0)) * .5

    def f(h, u, v):
        def step(_, s):
            h, u, v = s
            u2 = u - .1 * (u * dx(u) + v * dy(u) + dx(h))
            v2 = v - .1 * (u * dx(v) + v * dy(v) + dy(h))
            return h - .1 * (dx((1 + h) * u) + dy((1 + h) * v)), u2, v2
        return lax.fori_loop(0, 20, step, (h, u, v))
    return Work(f, [normal(256, 256, scale=.01), normal(256, 256, scale=.01, seed=1), normal(256, 256, scale=.01, seed=2)], tolerance=1e-3)


@model("wave_3d_64_x_10")
def _():
    def f(u, w):
        def step(_, s):
            u, w = s
            lap = sum(jnp.roll(u, k, a) for k in (1, -1) for a in (0, 1, 2)) - 6 * u
            return 2 * u - w + .1 * lap, u
        return lax.fori_loop(0, 10, step, (u, w))
    return Work(f, [normal(64, 64, 64), normal(64, 64, 64, seed=1)], tolerance=1e-3)


@model("jacobi_poisson_while")
def _():
    def f(b):
        def body(s):
            u, _, i = s
            p = jnp.pad(u, 1)
            n = .25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - b)
            return n, jnp.abs(n - u).max(), i + 1
        return lax.while_loop(lambda s: (s[1] > 1e-5) & (s[2] < 200), body, (jnp.zeros_like(b), jnp.float32(1), 0))[0]
    return Work(f, [normal(128, 128)], tolerance=1e-3)


@model("lattice_boltzmann_128")
def _():
    c = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)])
    w = np.array([(4 / 9, 1 / 9, 1 / 36)[abs(x) + abs(y)] for x, y in c], np.float32)

    def f(g):
        def step(_, g):
            g = jnp.stack([jnp.roll(g[i], tuple(c[i]), (0, 1)) for i in range(9)])
            rho = g.sum(0)
            u = jnp.einsum("ia,ixy->axy", c.astype(np.float32), g) / rho
            cu = jnp.einsum("ia,axy->ixy", c.astype(np.float32), u)
            eq = rho * w[:, None, None] * (1 + 3 * cu + 4.5 * cu ** 2 - 1.5 * (u ** 2).sum(0))
            return g + 0.6 * (eq - g)
        return lax.fori_loop(0, 10, step, g)
    return Work(f, [uniform(9, 128, 128) * np.float32(.1) + w[:, None, None]], tolerance=1e-3)


@model("molecular_lj_cells")
def _():
    def energy(x):
        d = x[:, None] - x[None]
        d = d - jnp.round(d / 8) * 8
        r2 = (d * d).sum(-1) + jnp.eye(256)
        s = jnp.where(r2 < 9, r2 ** -3, 0) * (1 - jnp.eye(256))
        return 2 * (s * s - s).sum()
    side = np.stack(np.meshgrid(*[np.arange(7)] * 3), -1).reshape(-1, 3)[:256].astype(np.float32) * np.float32(1.14)
    return Work(jax.value_and_grad(energy), [side], tolerance=1e-3)


@model("finite_volume_euler_1d")
def _():
    def f(q):
        def flux(q):
            r, m, e = q
            u = m / r
            p = .4 * (e - .5 * r * u * u)
            return jnp.stack([m, m * u + p, (e + p) * u]), jnp.abs(u) + jnp.sqrt(1.4 * p / r)

        def step(_, q):
            g, s = flux(q)
            qr = jnp.roll(q, -1, 1)
            gr, sr = jnp.roll(g, -1, 1), jnp.roll(s, -1)
            face = .5 * (g + gr) - .5 * jnp.maximum(s, sr) * (qr - q)
            return q - .1 * (face - jnp.roll(face, 1, 1))
        return lax.fori_loop(0, 200, step, q)
    x = np.linspace(0, 1, 1024)
    return Work(f, [np.stack([1 + .2 * np.sin(6.28 * x), 0 * x + .1, 0 * x + 2.5]).astype(np.float32)], tolerance=1e-3)


# ---- Sampling and statistics
@model("hmc_logistic_x_20")
def _():
    def f(key, x, y, q):
        def logp(q):
            return -(jax.nn.softplus(-y * (x @ q))).sum() - .5 * (q * q).sum()
        grad = jax.grad(logp)

        def step(c, k):
            q = c
            k1, k2 = jax.random.split(k)
            p0 = jax.random.normal(k1, q.shape)

            def leap(_, s):
                q, p = s
                p = p + .005 * grad(q)
                q = q + .01 * p
                return q, p + .005 * grad(q)
            q2, p = lax.fori_loop(0, 8, leap, (q, p0))
            ok = jnp.log(jax.random.uniform(k2)) < logp(q2) - logp(q) - .5 * ((p * p).sum() - (p0 * p0).sum())
            q = jnp.where(ok, q2, q)
            return q, q
        return lax.scan(step, q, jax.random.split(key, 20))[1]
    return Work(f, [KEY, normal(500, 8), np.sign(normal(500)), normal(8, seed=1, scale=.1)], tolerance=1e-2)


@model("particle_filter_1k_x_50")
def _():
    def f(key, obs):
        def step(c, t):
            x, k = c
            z, k = t[0], t[1]
            k1, k2 = jax.random.split(k)
            x = .5 * x + 25 * x / (1 + x * x) + jax.random.normal(k1, x.shape)
            w = jax.nn.softmax(-.5 * (z - x * x / 20) ** 2)
            u = (jnp.arange(1000) + jax.random.uniform(k2)) / 1000
            x = x[jnp.clip(jnp.searchsorted(jnp.cumsum(w), u), 0, 999)]
            return (x, c[1]), x.mean()
        return lax.scan(step, (jnp.zeros(1000), key), (obs, jax.random.split(key, 50)))[1]
    return Work(f, [KEY, normal(50) * 5], tolerance=None)


@model("gaussian_process_300")
def _():
    def f(x, y, q):
        def kernel(a, b):
            return jnp.exp(-.5 * ((a[:, None] - b[None]) ** 2).sum(-1))
        l = jnp.linalg.cholesky(kernel(x, x) + .1 * jnp.eye(300))
        alpha = jax.scipy.linalg.cho_solve((l, True), y)
        k = kernel(q, x)
        v = jax.scipy.linalg.solve_triangular(l, k.T, lower=True)
        return k @ alpha, 1 - (v * v).sum(0)
    return Work(f, [normal(300, 4), normal(300), normal(200, 4, seed=1)], tolerance=1e-3)


@model("kmeans_4k_x_10")
def _():
    def f(x, c):
        def step(_, c):
            d = ((x[:, None] - c[None]) ** 2).sum(-1)
            a = d.argmin(1)
            n = jax.ops.segment_sum(jnp.ones(4096), a, 32)
            return jax.ops.segment_sum(x, a, 32) / jnp.maximum(n, 1)[:, None]
        return lax.fori_loop(0, 10, step, c)
    x = normal(4096, 8)
    return Work(f, [x, x[:32]], tolerance=1e-2, flips=.2)


@model("knn_brute_force")
def _():
    def f(x, q):
        d = (q * q).sum(1)[:, None] - 2 * q @ x.T + (x * x).sum(1)[None]
        v, i = lax.top_k(-d, 10)
        return -v, i
    return Work(f, [normal(4096, 32), normal(256, 32, seed=1)], tolerance=1e-3, flips=.01)


@model("tsne_gradient_512")
def _():
    def f(y, p):
        d = y[:, None] - y[None]
        w = 1 / (1 + (d * d).sum(-1)) * (1 - jnp.eye(512))
        return 4 * (((p - w / w.sum()) * w)[..., None] * d).sum(1)
    p = uniform(512, 512)
    return Work(f, [normal(512, 2), p / p.sum()], tolerance=1e-3)


@model("gmm_em_4k")
def _():
    def f(x, mu, var, pi):
        def step(_, s):
            mu, var, pi = s
            logp = -.5 * (((x[:, None] - mu) ** 2 / var).sum(-1) + jnp.log(var).sum(-1)) + jnp.log(pi)
            r = jax.nn.softmax(logp, 1)
            n = r.sum(0) + 1e-6
            mu = r.T @ x / n[:, None]
            var = jnp.einsum("nk,nkd->kd", r, (x[:, None] - mu) ** 2) / n[:, None] + 1e-3
            return mu, var, n / 4096
        return lax.fori_loop(0, 5, step, (mu, var, pi))
    return Work(f, [normal(4096, 4), normal(8, 4, seed=1), np.ones((8, 4), np.float32), np.ones(8, np.float32) / 8], tolerance=1e-3)


@model("bootstrap_means")
def _():
    def f(key, x):
        return jax.vmap(lambda k: x[jax.random.randint(k, (1000,), 0, 1000)].mean())(jax.random.split(key, 500))
    return Work(f, [KEY, normal(1000)], tolerance=1e-3)


@model("option_paths_grad")
def _():
    def f(key, s, v):
        def price(s, v):
            z = jax.random.normal(key, (64, 2048))
            p = s * jnp.exp(jnp.cumsum((-.5 * v * v) / 64 + v * z / 8, 0))
            return jnp.maximum(p.mean(0) - 100, 0).mean()
        return jax.value_and_grad(price, (0, 1))(s, v)
    return Work(f, [KEY, np.float32(100), np.float32(.2)], tolerance=1e-3)


@model("hamming_nearest")
def _():
    def f(a, b):
        d = lax.population_count(a[:, None] ^ b[None]).astype(jnp.int32).sum(-1)
        return d.min(1), d.argmin(1)
    return Work(f, [below(1 << 30, 512, 8).astype(np.uint32), below(1 << 30, 1024, 8, seed=1).astype(np.uint32)])


# ---- Images and signals
@model("unet_block")
def _():
    def conv(x, w, s=1):
        return lax.conv_general_dilated(x, w, (s, s), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def group_norm(x, g):
        y = x.reshape(*x.shape[:-1], 8, -1)
        y = (y - y.mean((1, 2, 4), keepdims=True)) * lax.rsqrt(y.var((1, 2, 4), keepdims=True) + 1e-5)
        return y.reshape(x.shape) * g

    def f(x, w1, w2, wd, wu, wo, g):
        h = x + conv(jax.nn.silu(group_norm(conv(jax.nn.silu(group_norm(x, g)), w1), g)), w2)
        d = jax.nn.silu(conv(h, wd, 2))
        u = jax.image.resize(d, (*x.shape[:3], d.shape[-1]), "nearest")
        return conv(jnp.concatenate([h, conv(u, wu)], -1), wo)
    return Work(f, [normal(2, 32, 32, 32), normal(3, 3, 32, 32, scale=.1), normal(3, 3, 32, 32, scale=.1), normal(3, 3, 32, 64, scale=.1), normal(3, 3, 64, 32, scale=.1),
                    normal(3, 3, 64, 32, scale=.1), np.ones(32, np.float32)], flops=2 * 9 * 2 * 1024 * (2 * 32 * 32 + 32 * 16 + 3 * 64 * 32 - 64 * 32), tolerance=1e-3)


@model("mobilenet_block_grad")
def _():
    def conv(x, w, **kw):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **kw)

    def f(x, w1, wd, w2):
        h = jnp.clip(conv(x, w1), 0, 6)
        h = jnp.clip(conv(h, wd, feature_group_count=96), 0, 6)
        return x + conv(h, w2)
    return Work(with_vjp(f), [normal(4, 28, 28, 24), normal(1, 1, 24, 96, scale=.2), normal(3, 3, 1, 96, scale=.3), normal(1, 1, 96, 24, scale=.1), normal(4, 28, 28, 24, seed=1)], tolerance=1e-3)


@model("vit_patches_attention")
def _():
    def f(img, wp, wqkv, wo):
        x = img.reshape(8, 14, 16, 14, 16, 3).transpose(0, 1, 3, 2, 4, 5).reshape(8, 196, 768) @ wp
        q, k, v = [t.reshape(8, 196, 6, 32).transpose(0, 2, 1, 3) for t in jnp.split(x @ wqkv, 3, -1)]
        a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 6, -1) @ v
        return x + a.transpose(0, 2, 1, 3).reshape(8, 196, 192) @ wo
    return Work(f, [normal(8, 224, 224, 3), normal(768, 192, scale=.04), normal(192, 576, scale=.05), normal(192, 192, scale=.05)], flops=2 * 8 * 196 * (768 * 192 + 192 * 768 + 2 * 196 * 192), tolerance=1e-3)


@model("jpeg_dct_quantise")
def _():
    k = np.arange(8)
    d = (np.cos((2 * k[None] + 1) * k[:, None] * np.pi / 16) * np.where(k[:, None] == 0, np.sqrt(1 / 8), .5)).astype(np.float32)

    def f(img, q):
        b = img.reshape(64, 8, 64, 8).transpose(0, 2, 1, 3) - 128
        c = jnp.round(jnp.einsum("ij,xyjk,lk->xyil", d, b, d) / q) * q
        return jnp.clip(jnp.einsum("ji,xyjk,kl->xyil", d, c, d) + 128, 0, 255).transpose(0, 2, 1, 3).reshape(512, 512)
    return Work(f, [uniform(512, 512) * 255, (1 + np.add.outer(k, k) * 4).astype(np.float32)], tolerance=1e-3, flips=.01)


@model("fft_lowpass_image")
def _():
    def f(x):
        k = jnp.fft.rfft2(x)
        r = jnp.fft.fftfreq(512)[:, None] ** 2 + jnp.fft.rfftfreq(512)[None] ** 2
        return jnp.fft.irfft2(k * jnp.exp(-200 * r), s=(512, 512))
    return Work(f, [normal(512, 512)], tolerance=1e-3)


@model("mel_spectrogram")
def _():
    def f(x, mel):
        at = np.arange(0, 16000 - 400, 160)[:, None] + np.arange(400)[None]
        s = jnp.abs(jnp.fft.rfft(x[:, at] * jnp.hanning(400))) ** 2
        return jnp.log(s @ mel + 1e-6)
    return Work(f, [normal(4, 16000), uniform(201, 40)], tolerance=1e-3)


@model("gaussian_blur_sobel")
def _():
    def f(x):
        g = jnp.exp(-.5 * (jnp.arange(-4, 5) / 1.5) ** 2)
        g = g / g.sum()
        p = jnp.pad(x, 4, mode="edge")
        p = sum(g[i] * p[i:i + 512] for i in range(9))
        p = sum(g[i] * p[:, i:i + 512] for i in range(9))
        gx, gy = jnp.gradient(p)
        return jnp.sqrt(gx * gx + gy * gy), jnp.arctan2(gy, gx)
    return Work(f, [uniform(512, 512)], tolerance=1e-3, flips=.01)


@model("rgb_to_hsv_augment")
def _():
    def f(x):
        r, g, b = x[..., 0], x[..., 1], x[..., 2]
        hi, lo = x.max(-1), x.min(-1)
        d = hi - lo + 1e-6
        h = jnp.where(hi == r, (g - b) / d % 6, jnp.where(hi == g, (b - r) / d + 2, (r - g) / d + 4)) / 6
        h = (h + .1) % 1.0
        s, v = d / (hi + 1e-6) * 1.2, hi
        k = (jnp.array([5., 3., 1.]) + h[..., None] * 6) % 6
        return v[..., None] - (v * s)[..., None] * jnp.clip(jnp.minimum(k, 4 - k), 0, 1)
    return Work(f, [uniform(8, 224, 224, 3)], tolerance=1e-3, flips=.01)


@model("nms_boxes_200")
def _():
    def f(box, score):
        order = jnp.argsort(-score)
        b = box[order]
        lt, rb = jnp.maximum(b[:, None, :2], b[None, :, :2]), jnp.minimum(b[:, None, 2:], b[None, :, 2:])
        inter = jnp.clip(rb - lt, 0).prod(-1)
        area = (b[:, 2:] - b[:, :2]).prod(-1)
        iou = inter / (area[:, None] + area[None] - inter)

        def step(i, keep):
            return jnp.where((iou[i] > .5) & (jnp.arange(200) > i) & keep[i], False, keep)
        return lax.fori_loop(0, 200, step, jnp.ones(200, bool))
    lo = uniform(200, 2) * 10
    return Work(f, [np.concatenate([lo, lo + uniform(200, 2, seed=1) * 3], 1), uniform(200, seed=2)])


@model("nerf_volume_render")
def _():
    def f(o, d, w1, w2):
        t = jnp.linspace(1, 4, 32)
        x = o[:, None] + d[:, None] * t[:, None]
        e = jnp.concatenate([fn(x * 2. ** i) for i in range(4) for fn in (jnp.sin, jnp.cos)], -1)
        y = jax.nn.relu(e @ w1) @ w2
        a = 1 - jnp.exp(-jax.nn.relu(y[..., 3]) * .1)
        w = a * jnp.cumprod(jnp.concatenate([jnp.ones_like(a[:, :1]), 1 - a[:, :-1]], 1), 1)
        return (w[..., None] * jax.nn.sigmoid(y[..., :3])).sum(1)
    return Work(f, [normal(1024, 3), normal(1024, 3, seed=1), normal(24, 64, scale=.2), normal(64, 4, scale=.2)], flops=2 * 32 * 1024 * 64 * 28, tolerance=1e-3)


@model("ray_march_spheres")
def _():
    def f(d, c, r):
        def body(_, t):
            p = d * t[:, None]
            return t + jnp.min(jnp.sqrt(((p[:, None] - c[None]) ** 2).sum(-1)) - r, 1)
        return lax.fori_loop(0, 24, body, jnp.zeros(d.shape[0]))
    d = normal(2048, 3)
    return Work(f, [d / np.linalg.norm(d, axis=1, keepdims=True), normal(8, 3, seed=1) * 4, uniform(8)], tolerance=2e-2, flips=.01)


@model("mlp_jacrev_512")
def _():
    def net(x, w1, w2, w3):
        return jnp.tanh(jnp.tanh(x @ w1) @ w2) @ w3
    return Work(lambda x, *w: jax.vmap(jax.jacrev(net), (0, None, None, None))(x, *w), [normal(512, 16), normal(16, 64, scale=.2), normal(64, 64, scale=.2), normal(64, 8, scale=.2)], tolerance=1e-3)


@model("gauss_newton_x_10")
def _():
    def res(p, t, y):
        return p[0] * jnp.exp(-p[1] * t) + p[2] * jnp.sin(p[3] * t) - y

    def f(p, t, y):
        def step(_, p):
            j, r = jax.jacfwd(res)(p, t, y), res(p, t, y)
            return p - jnp.linalg.solve(j.T @ j + .1 * jnp.eye(4), j.T @ r)
        return lax.fori_loop(0, 10, step, p)
    return Work(f, [np.float32([1, .5, .3, 2]), np.linspace(0, 5, 400).astype(np.float32), normal(400, scale=.1)], tolerance=1e-2)


if __name__ == "__main__":
    sys.exit(run.main(MODELS | PROGRAMS | IDIOMS | METHODS | MIXED | DAILY))
