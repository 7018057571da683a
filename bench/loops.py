#!/usr/bin/env python3
"""Loops with small bodies, Atoll and XLA:CPU side by side: integrators, filters, automata, recurrences.

  bench/loops.py [--filter REGEX] [--rounds N] [--processes N] [--out results.json]

Prints what bench/run.py prints. These loops have no limit of the machine to be held to: the limit is how
fast one turn follows another. Needs TPU_LIBRARY_PATH=.../libatoll.so.
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np

import run
from workloads import Work, normal, registry

LOOPS = {}
loop = registry(LOOPS)


def fori(n, body, init):
    return jax.lax.fori_loop(0, n, body, init)


@loop("nested_scan_64x512")
def _():
    def f(x):
        def inner(c, u):
            c = c * 0.99 + u
            return c, c * 2

        def outer(c, row):
            return jax.lax.scan(inner, c, row)
        return jax.lax.scan(outer, jnp.float32(0), x)
    return Work(f, [normal(64, 512)])


@loop("logistic_map_100k")
def _():
    def f(x):
        def step(c, _):
            c = 3.7 * c * (1 - c)
            return c, c
        return jax.lax.scan(step, x, None, length=100000)
    return Work(f, [np.float32(0.3)], tolerance=None)  # chaotic


@loop("lorenz_rk4_10k")
def _():
    def deriv(s):
        x, y, z = s
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def f(s):
        def step(s, _):
            h = 0.001
            k1 = deriv(s)
            k2 = deriv(s + h / 2 * k1)
            k3 = deriv(s + h / 2 * k2)
            k4 = deriv(s + h * k3)
            s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return s, s
        return jax.lax.scan(step, s, None, length=10000)
    return Work(f, [np.float32([1, 1, 1])], tolerance=1e-2)


@loop("leapfrog_8_bodies_2k")
def _():
    def f(x, v):
        def accel(x):
            d = x[None] - x[:, None]
            r2 = (d * d).sum(-1) + 0.01
            return (d * (r2 ** -1.5)[..., None]).sum(1)

        def step(_, c):
            x, v = c
            v = v + 0.0005 * accel(x)
            x = x + 0.001 * v
            v = v + 0.0005 * accel(x)
            return x, v
        return fori(2000, step, (x, v))
    return Work(f, [normal(8, 3), normal(8, 3, seed=1)], tolerance=1e-2)


@loop("hamiltonian_2d_50k")
def _():
    def f(q, p):
        def grad(q):
            return q + 0.1 * q ** 3

        def step(c, _):
            q, p = c
            p = p - 0.005 * grad(q)
            q = q + 0.01 * p
            p = p - 0.005 * grad(q)
            return (q, p), None
        return jax.lax.scan(step, (q, p), None, length=50000)[0]
    return Work(f, [normal(2), normal(2, seed=1)], tolerance=1e-2)


@loop("rule110_1024_x_1k")
def _():
    def f(x):
        def step(c, _):
            left, right = jnp.roll(c, 1), jnp.roll(c, -1)
            n = left * 4 + c * 2 + right
            new = ((jnp.uint8(110) >> n) & 1).astype(jnp.uint8)
            return new, new
        return jax.lax.scan(step, x, None, length=1000)
    return Work(f, [np.random.default_rng(0).integers(0, 2, 1024).astype(np.uint8)])


@loop("life_64x64_500")
def _():
    def f(x):
        def step(_, c):
            n = sum(jnp.roll(c, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
            return ((n == 3) | ((n == 2) & (c == 1))).astype(jnp.uint8)
        return fori(500, step, x)
    return Work(f, [np.random.default_rng(0).integers(0, 2, (64, 64)).astype(np.uint8)])


@loop("heat_1d_1024_2k")
def _():
    def f(u):
        def step(_, u):
            return u.at[1:-1].add(0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]))
        return fori(2000, step, u)
    return Work(f, [normal(1024)])


@loop("heat_2d_64_1k")
def _():
    def f(u):
        def step(_, u):
            p = jnp.pad(u, 1)
            return u + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)
        return fori(1000, step, u)
    return Work(f, [normal(64, 64)])


@loop("kalman_4_2_5k")
def _():
    def f(z, a, h):
        q, r = 0.01 * jnp.eye(4), 0.1 * jnp.eye(2)

        def step(c, zt):
            x, p = c
            x, p = a @ x, a @ p @ a.T + q
            s = h @ p @ h.T + r
            det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
            si = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / det
            k = p @ h.T @ si
            x = x + k @ (zt - h @ x)
            p = p - k @ h @ p
            return (x, p), x
        return jax.lax.scan(step, (jnp.zeros(4), jnp.eye(4)), z)
    a = np.eye(4, dtype=np.float32) + np.eye(4, k=2, dtype=np.float32) * 0.1
    return Work(f, [normal(5000, 2), a, np.eye(2, 4, dtype=np.float32)], tolerance=1e-3)


@loop("hmm_forward_16_x_4k")
def _():
    def f(t, e, obs):
        def step(alpha, o):
            a = (alpha[:, None] * t).sum(0) * e[:, o]
            s = a.sum()
            return a / s, jnp.log(s)
        return jax.lax.scan(step, jnp.ones(16) / 16, obs)
    t = np.abs(normal(16, 16))
    return Work(f, [t / t.sum(1, keepdims=True), np.abs(normal(16, 32, seed=1)),
                    np.random.default_rng(0).integers(0, 32, 4096).astype(np.int32)])


@loop("viterbi_32_x_2k")
def _():
    def f(t, e):
        def step(c, et):
            s = c[:, None] + t
            return s.max(0) + et, s.argmax(0)
        return jax.lax.scan(step, jnp.zeros(32), e)
    return Work(f, [normal(32, 32), normal(2048, 32, seed=1)])


@loop("edit_distance_256")
def _():
    def f(a, b):
        n = b.shape[0]

        def row(prev, x):
            def cell(left, j):
                v = jnp.minimum(jnp.minimum(left + 1, prev[j + 1] + 1), prev[j] + (x != b[j]))
                return v, v
            first = prev[0] + 1
            _, rest = jax.lax.scan(cell, first, jnp.arange(n))
            return jnp.concatenate([first[None], rest]), None
        return jax.lax.scan(row, jnp.arange(n + 1), a)[0][-1]
    rng = np.random.default_rng(0)
    return Work(f, [rng.integers(0, 4, 256).astype(np.int32), rng.integers(0, 4, 256).astype(np.int32)])


@loop("gru_cell_32_x_2k")
def _():
    def f(xs, w, u):
        def step(h, x):
            g = x @ w + h @ u
            z, r, n = jnp.split(g, 3)
            z, r = jax.nn.sigmoid(z), jax.nn.sigmoid(r)
            h = (1 - z) * jnp.tanh(n * r) + z * h
            return h, h
        return jax.lax.scan(step, jnp.zeros(32), xs)
    return Work(f, [normal(2000, 32), normal(32, 96, scale=0.1), normal(32, 96, scale=0.1, seed=1)])


@loop("mamba_scan_256x16_1k")
def _():
    def f(a, bx, c):
        def step(h, t):
            at, bt, ct = t
            h = at * h + bt
            return h, (h * ct).sum(-1)
        return jax.lax.scan(step, jnp.zeros((256, 16)), (a, bx, c))
    return Work(f, [np.abs(normal(1024, 256, 16)) * 0.3, normal(1024, 256, 16), normal(1024, 1, 16, seed=2)])


@loop("ema_64_x_20k")
def _():
    def f(xs):
        def step(c, x):
            c = 0.9 * c + 0.1 * x
            return c, c
        return jax.lax.scan(step, jnp.zeros(64), xs)
    return Work(f, [normal(20000, 64)])


@loop("newton_sqrt_while")
def _():
    def f(x):
        def one(a):
            return jax.lax.while_loop(lambda c: jnp.abs(c * c - a) > 1e-4 * a, lambda c: 0.5 * (c + a / c), a)
        return jax.lax.map(one, x)
    return Work(f, [np.abs(normal(20000)) + 0.5])


@loop("mandelbrot_vmap_64x64")
def _():
    def f(c):
        def one(c):
            def body(s):
                z, i = s
                return z * z + c, i + 1
            return jax.lax.while_loop(lambda s: (s[1] < 100) & (jnp.abs(s[0]) < 2), body, (0j * c, 0))[1]
        return jax.vmap(one)(c)
    g = np.linspace(-2, 2, 64)
    return Work(f, [(g[:, None] + 1j * g[None]).astype(np.complex64).ravel()], flips=0.01)


@loop("bisection_32_steps_4k")
def _():
    def f(a):
        def step(_, c):
            lo, hi = c
            mid = 0.5 * (lo + hi)
            up = mid * mid * mid < a
            return jnp.where(up, mid, lo), jnp.where(up, hi, mid)
        return fori(32, step, (jnp.zeros_like(a), a + 1))
    return Work(f, [np.abs(normal(4096))])


@loop("random_walk_10k")
def _():
    def f(key):
        def step(c, k):
            key, x = c
            key, sub = jax.random.split(key)
            x = x + jax.random.normal(sub, (4,))
            return (key, x), x
        return jax.lax.scan(step, (key, jnp.zeros(4)), None, length=10000)
    return Work(f, [np.uint32([0, 42])], tolerance=1e-3)


@loop("metropolis_cond_20k")
def _():
    def f(key, x):
        def step(c, _):
            key, x = c
            key, a, b = jax.random.split(key, 3)
            y = x + jax.random.uniform(a) - 0.5
            x = jax.lax.cond(jax.random.uniform(b) < jnp.exp(x * x - y * y), lambda: y, lambda: x)
            return (key, x), x
        return jax.lax.scan(step, (key, x), None, length=20000)
    return Work(f, [np.uint32([0, 42]), np.float32(0)], tolerance=1e-3, flips=0.01)


@loop("cumulative_max_drawdown_50k")
def _():
    def f(x):
        def step(c, p):
            peak, worst = c
            peak = jnp.maximum(peak, p)
            worst = jnp.maximum(worst, (peak - p) / peak)
            return (peak, worst), worst
        return jax.lax.scan(step, (x[0], jnp.float32(0)), x)
    return Work(f, [np.exp(np.cumsum(normal(50000) * 0.01)).astype(np.float32)])


@loop("bubble_passes_64")
def _():
    def f(x):
        def one(_, x):
            def swap(i, x):
                a, b = x[i], x[i + 1]
                return x.at[i].set(jnp.minimum(a, b)).at[i + 1].set(jnp.maximum(a, b))
            return fori(63, swap, x)
        return fori(64, one, x)
    return Work(f, [normal(64)])


@loop("sieve_4096")
def _():
    def f(x):
        def step(i, s):
            k = jnp.arange(4096)
            return jnp.where((k % (i + 2) == 0) & (k > i + 2), 0, s)
        return fori(62, step, x)
    return Work(f, [np.ones(4096, np.int32)])


@loop("collatz_while_5k")
def _():
    def f(x):
        def one(n):
            return jax.lax.while_loop(lambda c: c[0] != 1,
                                      lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (n, 0))[1]
        return jax.lax.map(one, x)
    return Work(f, [np.arange(1, 5001, dtype=np.int32)])


@loop("cg_solve_64_100")
def _():
    def f(a, b):
        def step(_, c):
            x, r, p, rs = c
            ap = a @ p
            alpha = rs / (p @ ap)
            x, r = x + alpha * p, r - alpha * ap
            new = r @ r
            return x, r, r + new / rs * p, new
        return fori(50, step, (jnp.zeros(64), b, b, b @ b))[0]
    m = normal(64, 64)
    return Work(f, [m @ m.T / 64 + np.eye(64, dtype=np.float32), normal(64, seed=1)], tolerance=1e-2)


@loop("sgd_linear_16_x_5k")
def _():
    def f(w, xs, ys):
        def step(w, t):
            x, y = t
            g = jax.grad(lambda w: (w @ x - y) ** 2)(w)
            return w - 0.01 * g, None
        return jax.lax.scan(step, w, (xs, ys))[0]
    return Work(f, [normal(16), normal(5000, 16, seed=1), normal(5000, seed=2)])


@loop("td_returns_gae_8k")
def _():
    def f(r, v, d):
        def step(adv, t):
            r, v, nv, d = t
            delta = r + 0.99 * nv * (1 - d) - v
            adv = delta + 0.99 * 0.95 * (1 - d) * adv
            return adv, adv
        nv = jnp.concatenate([v[1:], v[:1]])
        return jax.lax.scan(step, jnp.zeros(16), (r, v, nv, d), reverse=True)
    return Work(f, [normal(8192, 16), normal(8192, 16, seed=1), (normal(8192, 16, seed=2) > 1.5).astype(np.float32)])


@loop("biquad_cascade_4_x_10k")
def _():
    def f(x, b, a):
        def step(s, xt):
            y, out = xt, []
            for i in range(4):
                w = y - a[i, 0] * s[i, 0] - a[i, 1] * s[i, 1]
                y = b[i, 0] * w + b[i, 1] * s[i, 0] + b[i, 2] * s[i, 1]
                out.append(jnp.stack([w, s[i, 0]]))
            return jnp.stack(out), y
        return jax.lax.scan(step, jnp.zeros((4, 2)), x)
    return Work(f, [normal(10000), normal(4, 3, scale=0.3), normal(4, 2, scale=0.1, seed=1)])


@loop("cartpole_rollout_64_x_500")
def _():
    def f(s, w):
        def step(s, _):
            x, xd, t, td = s.T
            force = jnp.where(s @ w > 0, 10.0, -10.0)
            c, sn = jnp.cos(t), jnp.sin(t)
            temp = (force + 0.05 * td ** 2 * sn) / 1.1
            ta = (9.8 * sn - c * temp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
            xa = temp - 0.05 * ta * c / 1.1
            s = jnp.stack([x + 0.02 * xd, xd + 0.02 * xa, t + 0.02 * td, td + 0.02 * ta], 1)
            return s, s[:, 2]
        return jax.lax.scan(step, s, None, length=500)
    return Work(f, [normal(64, 4, scale=0.05), normal(4, seed=1)], tolerance=None)


if __name__ == "__main__":
    sys.exit(run.main(LOOPS))
