"""More whole programs, in bench/models.py's table: one of each kind, written before any of them was measured."""
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from methods import KEY, wrap
from workloads import Work, below, bytes_of_image, normal, registry, uniform, with_vjp

MIXED = {}
method = registry(MIXED)


@method("soap_precondition_step_96")
def _():
    def f(w, g, l, r, m, v):
        l, r = .95 * l + .05 * g @ g.T, .95 * r + .05 * g.T @ g
        ql, qr = jnp.linalg.qr(l @ jnp.eye(96))[0], jnp.linalg.qr(r @ jnp.eye(160))[0]
        p = ql.T @ g @ qr
        m, v = .9 * m + .1 * p, .99 * v + .01 * p * p
        return w - .01 * ql @ (m / (jnp.sqrt(v) + 1e-8)) @ qr.T, l, r, m, v
    a = normal(96, 96)
    b = normal(160, 160)
    return Work(f, [normal(96, 160), normal(96, 160, seed=1), a @ a.T, b @ b.T, normal(96, 160, seed=2) * .1, np.abs(normal(96, 160, seed=3))], tolerance=None)


@method("lion_cautious_bf16_moments")
def _():
    b = ml_dtypes.bfloat16

    def f(p, m, g):
        u = jnp.sign(.9 * m.astype(jnp.float32) + .1 * g)
        keep = (u * g > 0).astype(jnp.float32)
        u = u * keep * (keep.size / (keep.sum() + 1))
        return p - 3e-4 * (u + .1 * p), (.99 * m.astype(jnp.float32) + .01 * g).astype(jnp.bfloat16)
    return Work(f, [normal(3000, 701), normal(3000, 701, seed=1).astype(b), normal(3000, 701, seed=2)], bytes=3000 * 701 * 16, tolerance=2e-2)


@method("adafactor_factored_rms_clip")
def _():
    def f(p, g, r, c, t):
        b = 1 - t ** -.8
        s = g * g + 1e-30
        r, c = b * r + (1 - b) * s.mean(-1), b * c + (1 - b) * s.mean(-2)
        u = g * lax.rsqrt(r / r.mean())[:, None] * lax.rsqrt(c)[None]
        u = u / jnp.maximum(1., jnp.sqrt((u * u).mean()))
        return p - 1e-2 * jnp.maximum(1e-3, jnp.sqrt((p * p).mean())) * u, r, c
    return Work(f, [normal(1000, 1536), normal(1000, 1536, seed=1), uniform(1000) + .1, uniform(1536) + .1, np.float32(7)], bytes=1000 * 1536 * 12, tolerance=1e-3)


@method("ce_z_loss_label_grad_8k")
def _():
    def loss(z, y):
        lse = jax.nn.logsumexp(z, -1)
        ok = y >= 0
        nll = lse - jnp.take_along_axis(z, jnp.maximum(y, 0)[:, None], 1)[:, 0]
        return jnp.where(ok, nll + 1e-4 * lse ** 2, 0.).sum() / ok.sum()
    return Work(jax.value_and_grad(loss), [normal(300, 8191), below(8191, 300) - 1], bytes=300 * 8191 * 12, tolerance=1e-3)


@method("weight_norm_rmsnorm_gated_grad")
def _():
    def f(x, v, g, s):
        w = v * (g / jnp.linalg.norm(v, axis=0))
        h = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * s
        a, b = jnp.split(h @ w, 2, -1)
        return jax.nn.silu(a) * b
    return Work(with_vjp(f), [normal(500, 192), normal(192, 384), normal(384), normal(192, seed=1), normal(500, 192, seed=2)], tolerance=1e-3)


@method("instance_norm_relu_nchw_grad")
def _():
    def f(x, g, b):
        m, v = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
        return jax.nn.relu((x - m) * lax.rsqrt(v + 1e-5) * g[:, None, None] + b[:, None, None])
    return Work(with_vjp(f), [normal(4, 24, 57, 57), normal(24), normal(24, seed=1), normal(4, 24, 57, 57, seed=2)], tolerance=1e-3)


@method("cumsum_cumprod_cummax_mixed")
def _():
    def f(x):
        return jnp.cumsum(x, 1) + lax.cummax(x, 1) * lax.cumlogsumexp(x * .1, 1), jnp.cumprod(1 + .01 * x, 0), lax.cummin(x, 0, reverse=True)
    return Work(f, [normal(257, 1023)], tolerance=1e-3)


@method("segment_softmax_mean_max_9k")
def _():
    def f(x, s):
        top = jax.ops.segment_max(x, s, 700, indices_are_sorted=True)
        e = jnp.exp(x - top[s])
        n = jax.ops.segment_sum(jnp.ones(9001), s, 700, indices_are_sorted=True)
        return e / jax.ops.segment_sum(e, s, 700, indices_are_sorted=True)[s], jax.ops.segment_sum(x, s, 700, indices_are_sorted=True) / jnp.maximum(n, 1)[:, None]
    return Work(f, [normal(9001, 12), np.sort(below(700, 9001))], tolerance=1e-3)


@method("knapsack_dp_bounded_2k")
def _():
    def f(w, v):
        def item(best, wv):
            w, v = wv
            i = jnp.arange(2001)
            take = jnp.where(i >= w, best[jnp.maximum(i - w, 0)] + v, -1e9)
            return jnp.maximum(best, take), take > best
        return lax.scan(item, jnp.zeros(2001), (w, v))
    return Work(f, [below(90, 120) + 1, uniform(120)], tolerance=1e-3)


@method("longest_common_subsequence_b32")
def _():
    def f(a, b):
        def row(prev, x):
            hit = jnp.where(b == x[:, None], prev[:, :-1] + 1, 0)
            cur = lax.cummax(jnp.maximum(hit, prev[:, 1:]), 1)
            return jnp.pad(cur, ((0, 0), (1, 0))), cur[:, -1]
        return lax.scan(row, jnp.zeros((32, 151), jnp.int32), a.T)
    return Work(f, [below(8, 32, 140), below(8, 32, 150, seed=1)], tolerance=0)


@method("optimal_matrix_chain_dp_40")
def _():
    def f(d):
        i = jnp.arange(40)

        def length(l, c):
            k = i[None, None]
            a, b = i[:, None], i[:, None] + l
            e = jnp.minimum(b, 39)
            cost = c[:, :, None].transpose(0, 2, 1) + c[jnp.minimum(k[0, 0] + 1, 39)][:, e[:, 0]].T[:, None]
            cost = cost + (d[a] * d[jnp.minimum(i + 1, 40)][None] * d[e + 1])[:, None]
            cost = jnp.where((k >= a[:, None]) & (k < b[:, None]), cost, jnp.inf)
            best = cost.min(-1)[:, 0]
            return c.at[i, e[:, 0]].set(jnp.where(b[:, 0] < 40, best, c[i, e[:, 0]]))
        return lax.fori_loop(1, 40, length, jnp.where(i[:, None] == i, 0., 1e9))
    return Work(f, [uniform(41) * 30 + 1], tolerance=1e-3)


@method("catmull_rom_bicubic_zoom")
def _():
    def f(x):
        t = jnp.arange(300) * (97 / 300)
        k = jnp.floor(t).astype(jnp.int32)
        u = t - k
        w = jnp.stack([((2 - u) * u - 1) * u, (3 * u - 5) * u * u + 2, ((4 - 3 * u) * u + 1) * u, (u - 1) * u * u]) / 2
        j = jnp.clip(k + jnp.arange(-1, 3)[:, None], 0, 96)
        y = (x[:, j] * w[None, :, :, None]).sum(1)
        return (y[:, :, j] * w[None, None]).sum(2)
    return Work(f, [normal(3, 97, 97)], tolerance=1e-3)


@method("pchip_interp_batch_grad")
def _():
    def f(y, q):
        d = y[:, 1:] - y[:, :-1]
        a, b = d[:, :-1], d[:, 1:]
        m = jnp.where(a * b > 0, 2 * a * b / jnp.where(a + b == 0, 1, a + b), 0.)
        m = jnp.concatenate([d[:, :1], m, d[:, -1:]], 1)
        k = jnp.clip(jnp.floor(q).astype(jnp.int32), 0, 62)
        t = q - k
        g = lambda z, k: jnp.take_along_axis(z, k, 1)
        h = t * t * (3 - 2 * t)
        return g(y, k) * (1 - h) + g(y, k + 1) * h + g(m, k) * t * (1 - t) ** 2 - g(m, k + 1) * t * t * (1 - t)
    return Work(with_vjp(f), [normal(64, 64), uniform(64, 500) * 63, normal(64, 500)], tolerance=1e-3)


@method("minimal_gated_unit_ragged")
def _():
    def f(xs, n, w, u):
        def step(h, tx):
            t, x = tx
            g = jax.nn.sigmoid(x @ w[:, :40] + h @ u[:, :40])
            c = jnp.tanh(x @ w[:, 40:] + (g * h) @ u[:, 40:])
            h = jnp.where((t < n)[:, None], (1 - g) * h + g * c, h)
            return h, h
        return lax.scan(step, jnp.zeros((6, 40)), (jnp.arange(90), xs))
    return Work(f, [normal(90, 6, 20), below(90, 6), normal(20, 80, scale=.2), normal(40, 80, scale=.2)], tolerance=1e-3)


@method("independent_rnn_stack_grad")
def _():
    def f(xs, w, u):
        for i in range(3):
            z = jnp.einsum("tbi,ij->tbj", xs, w[i])
            xs = lax.scan(lambda h, z: (jax.nn.relu(z + u[i] * h),) * 2, jnp.zeros((8, 48)), z)[1]
        return xs
    return Work(with_vjp(f), [normal(60, 8, 48), normal(3, 48, 48, scale=.15), uniform(3, 48) * .8, normal(60, 8, 48, seed=1)], tolerance=1e-3)


@method("batched_lu_solve_12")
def _():
    return Work(lambda a, b: (jnp.linalg.solve(a, b), jnp.linalg.slogdet(a)), [normal(300, 12, 12) + 4 * np.eye(12, dtype=np.float32), normal(300, 12, 3)], tolerance=1e-2)


@method("batched_inverse_3x3_polar")
def _():
    def f(a):
        def turn(q, _):
            c = jnp.cross(q[:, (1, 2, 0)], q[:, (2, 0, 1)])
            return .5 * (q + c / (q[:, 0] * c[:, 0]).sum(-1)[:, None, None]), None
        return lax.scan(turn, a, None, 6)[0]
    return Work(f, [normal(4000, 3, 3) * .2 + np.eye(3, dtype=np.float32)], tolerance=1e-2)


@method("block_tridiagonal_cyclic")
def _():
    def f(d, l, u, b):
        def down(c, x):
            s, y = c
            d, l, u, b = x
            i = jnp.linalg.inv(d - l @ s)
            s, y = i @ u, i @ (b - l @ y)
            return (s, y), (s, y)
        _, (s, y) = lax.scan(down, (jnp.zeros((4, 4)), jnp.zeros(4)), (d, l, u, b))
        return lax.scan(lambda x, sy: ((sy[1] - sy[0] @ x),) * 2, jnp.zeros(4), (s, y), reverse=True)[1]
    return Work(f, [normal(64, 4, 4) + 8 * np.eye(4, dtype=np.float32), normal(64, 4, 4, seed=1), normal(64, 4, 4, seed=2), normal(64, 4)], tolerance=1e-2)


@method("decode_step_swiglu_window_f32")
def _():
    def f(x, wq, wk, wv, wo, wg, wu, wd, ck, cv, pos):
        for i in range(4):
            h = x * lax.rsqrt((x * x).mean() + 1e-6)
            q, k, v = (h @ wq[i]).reshape(8, 48), (h @ wk[i]).reshape(2, 48), (h @ wv[i]).reshape(2, 48)
            at = pos % 256
            ck, cv = ck.at[i, :, at].set(k), cv.at[i, :, at].set(v)
            s = jnp.einsum("hgd,htd->hgt", q.reshape(2, 4, 48), ck[i]) / 7
            p = jax.nn.softmax(jnp.where(jnp.arange(256) <= pos, s, -1e30))
            x = x + jnp.einsum("hgt,htd->hgd", p, cv[i]).reshape(384) @ wo[i]
            h = x * lax.rsqrt((x * x).mean() + 1e-6)
            x = x + (jax.nn.silu(h @ wg[i]) * (h @ wu[i])) @ wd[i]
        return x, ck, cv
    s = .05
    return Work(f, [normal(384), normal(4, 384, 384, scale=s), normal(4, 384, 96, scale=s), normal(4, 384, 96, scale=s), normal(4, 384, 384, scale=s), normal(4, 384, 1024, scale=s), normal(4, 384, 1024, scale=s),
                    normal(4, 1024, 384, scale=s), normal(4, 2, 256, 48), normal(4, 2, 256, 48), np.int32(200)], bytes=4 * 4 * 384 * (768 + 192 + 3072), tolerance=1e-3)


@method("decode_cross_attention_bf16_b1")
def _():
    b = ml_dtypes.bfloat16

    def f(x, wq, wo, w1, w2, k, v):
        q = (x @ wq).reshape(8, 64)
        a = jax.nn.softmax(jnp.einsum("hd,htd->ht", q, k, preferred_element_type=jnp.float32) / 8).astype(jnp.bfloat16)
        x = x + jnp.einsum("ht,htd->hd", a, v).reshape(512) @ wo
        return x + jax.nn.gelu(x @ w1) @ w2
    return Work(f, [normal(512).astype(b)] + [normal(*s, scale=.04).astype(b) for s in ((512, 512), (512, 512), (512, 2048), (2048, 512))] + [normal(8, 300, 64).astype(b), normal(8, 300, 64, seed=1).astype(b)],
                dtype="bf16", bytes=2 * 512 * 5120, tolerance=3e-2)


@method("approx_ndcg_pairwise_sigmoid_grad")
def _():
    def loss(s, g):
        d = jax.nn.sigmoid((s[:, None] - s[:, :, None]) * 4)
        rank = d.sum(-1) + .5
        gain = 2 ** g - 1
        ideal = (-jnp.sort(-gain, -1) / jnp.log2(jnp.arange(2, 66))).sum(-1)
        return -((gain / jnp.log2(1 + rank)).sum(-1) / (ideal + 1e-6)).mean()
    return Work(jax.value_and_grad(loss), [normal(48, 64), below(4, 48, 64).astype(np.float32)], tolerance=1e-3)


@method("plackett_luce_listwise_grad")
def _():
    def loss(s, order):
        z = jnp.take_along_axis(s, order, 1)
        return (lax.cumlogsumexp(z, 1, reverse=True) - z).sum() / 200
    return Work(jax.value_and_grad(loss), [normal(200, 60), np.argsort(uniform(200, 60), 1).astype(np.int32)], tolerance=1e-3)


@method("connected_components_grid_u8")
def _():
    def f(img):
        big = jnp.int32(1 << 20)
        l = jnp.where(img > 120, jnp.arange(64 * 64).reshape(64, 64), big)

        def step(_, l):
            p = jnp.pad(l, 1, constant_values=1 << 20)
            m = jnp.minimum(jnp.minimum(p[:-2, 1:-1], p[2:, 1:-1]), jnp.minimum(p[1:-1, :-2], p[1:-1, 2:]))
            return jnp.where(img > 120, jnp.minimum(l, m), big)
        l = lax.fori_loop(0, 60, step, l)
        return l, jnp.zeros(64 * 64 + 1, jnp.int32).at[jnp.minimum(l, 64 * 64)].add(1)
    return Work(f, [bytes_of_image(64, 64)], tolerance=0)


@method("goertzel_bank_and_autocorr")
def _():
    def f(x, w):
        c = 2 * jnp.cos(w)

        def step(s, v):
            a, b = s
            return (v + c * a - b, a), None
        (a, b), _ = lax.scan(step, (jnp.zeros((32, 24)), jnp.zeros((32, 24))), x.T[:, :, None])
        r = jnp.stack([(x[:, :400 - k] * x[:, k:]).sum(-1) for k in range(12)], 1)
        return a * a + b * b - c * a * b, r / r[:, :1]
    return Work(f, [normal(32, 400), uniform(24) * 3], tolerance=1e-2)


@method("variational_dropout_elbo_grad")
def _():
    def loss(p, x, y, key):
        k1, k2 = jax.random.split(wrap(key))
        m, r = p
        s = jax.nn.softplus(r)
        w = m + s * jax.random.normal(k1, m.shape)
        drop = jax.random.bernoulli(k2, .9, x.shape)
        z = jnp.where(drop, x / .9, 0.) @ w
        return ((z - y) ** 2).mean() + (s ** 2 + m ** 2 - 1 - 2 * jnp.log(s)).mean() / 2
    return Work(jax.value_and_grad(loss), [[normal(120, 90), normal(120, 90, seed=1)], normal(400, 120), normal(400, 90), KEY], tolerance=1e-3)
