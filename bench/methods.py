"""More whole programs, in bench/models.py's table: methods that the other files lack, each small, in f32 and bf16."""
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from workloads import Work, below, bytes_of_image, normal, registry, uniform, with_vjp

METHODS = {}
method = registry(METHODS)
KEY = np.array([0, 11], np.uint32)


def wrap(key):
    return jax.random.wrap_key_data(key, impl="threefry2x32")


# ---- Networks
@method("gru_layernorm_grad_40")
def _():
    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def f(xs, w, u):
        def step(h, x):
            a, b = norm(x @ w), norm(h @ u)
            r, z = jax.nn.sigmoid(a[:, :64] + b[:, :64]), jax.nn.sigmoid(a[:, 64:128] + b[:, 64:128])
            h = (1 - z) * jnp.tanh(a[:, 128:] + r * b[:, 128:]) + z * h
            return h, h
        return lax.scan(step, jnp.zeros((16, 64)), xs)[1]
    return Work(with_vjp(f), [normal(40, 16, 32), normal(32, 192, scale=.2), normal(64, 192, scale=.2), normal(40, 16, 64, seed=1)], tolerance=1e-3)


@method("conv_lstm_video_8")
def _():
    def conv(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def f(xs, w, u):
        def step(s, x):
            h, c = s
            i, g, o, q = jnp.split(conv(x, w) + conv(h, u), 4, -1)
            c = jax.nn.sigmoid(g) * c + jax.nn.sigmoid(i) * jnp.tanh(q)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        z = jnp.zeros((2, 32, 32, 16))
        return lax.scan(step, (z, z), xs)[1]
    return Work(f, [normal(8, 2, 32, 32, 3), normal(3, 3, 3, 64, scale=.1), normal(3, 3, 16, 64, scale=.1)], flops=8 * 2 * 2 * 1024 * 9 * 19 * 64, tolerance=1e-3)


@method("multi_head_gat_grad")
def _():
    def f(h, w, a, b, src, dst):
        z = (h @ w).reshape(1500, 4, 16)
        s = jax.nn.leaky_relu((z * a).sum(-1)[src] + (z * b).sum(-1)[dst], .2)
        top = lax.stop_gradient(jax.ops.segment_max(s, dst, 1500))
        e = jnp.exp(s - top[dst])
        p = e / (jax.ops.segment_sum(e, dst, 1500)[dst] + 1e-9)
        return (jax.nn.elu(jax.ops.segment_sum(z[src] * p[..., None], dst, 1500)) ** 2).mean()
    return Work(jax.value_and_grad(f, (0, 1, 2, 3)), [normal(1500, 48), normal(48, 64, scale=.2), normal(4, 16), normal(4, 16, seed=1), below(1500, 12000), below(1500, 12000, seed=1)], tolerance=1e-3)


@method("rotary_cache_update_bf16")
def _():
    """One token of 8 sequences: rotary position, the cache written at each sequence's place, attention, one layer."""
    b = jnp.bfloat16

    def f(x, wqkv, wo, ck, cv, pos):
        q, k, v = jnp.split((x @ wqkv).reshape(8, 24, 64), 3, 1)
        t = pos[:, None, None] / 10000 ** (jnp.arange(32) / 32)
        c, s = jnp.cos(t).astype(b), jnp.sin(t).astype(b)

        def rot(y):
            return jnp.concatenate([y[..., :32] * c - y[..., 32:] * s, y[..., 32:] * c + y[..., :32] * s], -1)
        q, k = rot(q), rot(k)
        i = jnp.arange(8)
        ck, cv = ck.at[i, pos].set(k), cv.at[i, pos].set(v)
        a = jnp.einsum("bhd,bthd->bht", q, ck, preferred_element_type=jnp.float32) / 8
        a = jax.nn.softmax(jnp.where(jnp.arange(512) <= pos[:, None, None], a, -1e30)).astype(b)
        return x + jnp.einsum("bht,bthd->bhd", a, cv).reshape(8, 512) @ wo, ck, cv
    return Work(f, [normal(8, 512).astype(b), normal(512, 1536, scale=.04).astype(b), normal(512, 512, scale=.04).astype(b), normal(8, 512, 8, 64).astype(b), normal(8, 512, 8, 64, seed=1).astype(b), below(500, 8)],
                dtype="bf16", tolerance=3e-2)


@method("moe_top1_capacity_bf16_grad")
def _():
    b = ml_dtypes.bfloat16

    def loss(p, x):
        gate, up, down = p
        g = jax.nn.softmax((x @ gate).astype(jnp.float32))
        e = g.argmax(-1)
        hot = jax.nn.one_hot(e, 8)
        place = ((jnp.cumsum(hot, 0) - 1) * hot).sum(-1)
        d = (hot[:, :, None] * jax.nn.one_hot(place, 48)[:, None]).astype(x.dtype)
        y = jnp.einsum("tec,td->ecd", d, x)
        y = jax.nn.relu(jnp.einsum("ecd,edf->ecf", y, up))
        y = jnp.einsum("ecf,efd->ecd", y, down)
        out = jnp.einsum("tec,ecd->td", d * g.max(-1)[:, None, None].astype(x.dtype), y)
        return (out.astype(jnp.float32) ** 2).mean() + .01 * 8 * (hot.mean(0) * g.mean(0)).sum()
    return Work(jax.value_and_grad(loss), [[normal(128, 8, scale=.1).astype(b), normal(8, 128, 256, scale=.1).astype(b), normal(8, 256, 128, scale=.1).astype(b)], normal(256, 128).astype(b)],
                dtype="bf16", tolerance=5e-2, flips=.02)


@method("embedding_bag_weighted_grad")
def _():
    def loss(t, ids, w, bag, y):
        e = jax.ops.segment_sum(t[ids] * w[:, None], bag, 512)
        return ((e - y) ** 2).mean()
    return Work(jax.value_and_grad(loss), [normal(20000, 32), below(20000, 8192), uniform(8192), np.sort(below(512, 8192)), normal(512, 32, seed=1)], tolerance=1e-3)


@method("int8_attention_dequant")
def _():
    def q8(x):
        s = jnp.abs(x).max(-1, keepdims=True) / 127
        return jnp.round(x / s).astype(jnp.int8), s

    def f(q, k, v):
        (qi, qs), (ki, ks) = q8(q), q8(k)
        s = jnp.einsum("hqd,hkd->hqk", qi, ki, preferred_element_type=jnp.int32).astype(jnp.float32) * qs * ks.transpose(0, 2, 1) / 8
        return jax.nn.softmax(s) @ v
    return Work(f, [normal(8, 256, 64, seed=i) for i in range(3)], flops=4 * 8 * 256 * 256 * 64, tolerance=1e-2)


@method("label_smoothing_50k_bf16_grad")
def _():
    def loss(h, w, y):
        z = (h @ w).astype(jnp.float32)
        lp = jax.nn.log_softmax(z)
        return -(.9 * jnp.take_along_axis(lp, y[:, None], 1)[:, 0] + .1 * lp.mean(-1)).mean()
    return Work(jax.value_and_grad(loss, (0, 1)), [normal(64, 128).astype(ml_dtypes.bfloat16), normal(128, 50000, scale=.1).astype(ml_dtypes.bfloat16), below(50000, 64)], dtype="bf16", tolerance=3e-2)


@method("lamb_many_leaves")
def _():
    shapes = [(256, 768), (256, 256), (256, 1024), (1024, 256), (768,), (256,), (1024,), (256,), (256,), (256,)] * 4

    def f(p, m, v, g, t):
        def one(p, m, v, g):
            m, v = .9 * m + .1 * g, .999 * v + .001 * g * g
            u = m / (1 - .9 ** t) / (jnp.sqrt(v / (1 - .999 ** t)) + 1e-6) + .01 * p
            a, b = jnp.linalg.norm(p), jnp.linalg.norm(u)
            return p - 1e-3 * jnp.where((a > 0) & (b > 0), a / b, 1.) * u, m, v
        return [one(*x) for x in zip(p, m, v, g)]
    p, m, v, g = ([normal(*s, seed=i + k) for i, s in enumerate(shapes)] for k in (0, 50, 100, 150))
    return Work(f, [p, m, [np.abs(x) for x in v], g, np.float32(10)], bytes=28 * sum(x.size for x in p), tolerance=1e-3)


@method("shampoo_step_64")
def _():
    def f(p, l, r, g):
        def root(a):
            w, v = jnp.linalg.eigh(a + 1e-4 * jnp.eye(64))
            return (v * jnp.maximum(w, 1e-6) ** -.25) @ v.T
        l, r = l + g @ g.T, r + g.T @ g
        return p - .1 * root(l) @ g @ root(r), l, r
    return Work(f, [normal(64, 64), np.eye(64, dtype=np.float32), np.eye(64, dtype=np.float32), normal(64, 64, seed=1)], tolerance=1e-2)


@method("muon_newton_schulz_bf16")
def _():
    def f(p, m, g):
        m = .95 * m + g
        x = (g + .95 * m).astype(jnp.bfloat16)
        x = x / (jnp.linalg.norm(x.astype(jnp.float32)) + 1e-7).astype(jnp.bfloat16)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        return p - .02 * x.astype(jnp.float32), m
    return Work(f, [normal(256, 512), normal(256, 512, seed=1), normal(256, 512, seed=2)], dtype="bf16", flops=5 * 256 * 256 * 2 * (512 + 256 + 512), tolerance=5e-2)


@method("unet_groupnorm_skip_nhwc")
def _():
    def conv(x, w, s=1):
        return lax.conv_general_dilated(x, w, (s, s), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def gn(x):
        n, h, w, c = x.shape
        y = x.reshape(n, h * w, 8, c // 8)
        y = (y - y.mean((1, 3), keepdims=True)) * lax.rsqrt(y.var((1, 3), keepdims=True) + 1e-5)
        return jax.nn.silu(y.reshape(x.shape))

    def f(x, a, b, c, d, t):
        h = conv(x, a)
        g = conv(gn(h) + t[:, None, None], b, 2)
        g = jnp.repeat(jnp.repeat(conv(gn(g), c), 2, 1), 2, 2)
        return conv(gn(jnp.concatenate([h, g], -1)), d)
    return Work(f, [normal(2, 32, 32, 4), normal(3, 3, 4, 32, scale=.2), normal(3, 3, 32, 64, scale=.1), normal(3, 3, 64, 64, scale=.1), normal(3, 3, 96, 4, scale=.1), normal(2, 32)],
                flops=2 * 2 * 9 * (1024 * 128 + 256 * (2048 + 4096) + 1024 * 384), tolerance=1e-3)


@method("deformable_conv_sample")
def _():
    def f(x, off, w):
        n, h, wd, c = x.shape
        gy, gx = jnp.meshgrid(jnp.arange(h), jnp.arange(wd), indexing="ij")
        out = 0
        for k in range(9):
            y, z = gy + k // 3 - 1 + off[..., 2 * k], gx + k % 3 - 1 + off[..., 2 * k + 1]
            y0, z0 = jnp.floor(y), jnp.floor(z)
            acc = 0
            for dy in (0, 1):
                for dz in (0, 1):
                    yy, zz = y0 + dy, z0 + dz
                    wt = (1 - jnp.abs(y - yy)) * (1 - jnp.abs(z - zz)) * ((yy >= 0) & (yy < h) & (zz >= 0) & (zz < wd))
                    i, j = jnp.clip(yy, 0, h - 1).astype(jnp.int32), jnp.clip(zz, 0, wd - 1).astype(jnp.int32)
                    acc = acc + wt[..., None] * x[jnp.arange(n)[:, None, None], i, j]
            out = out + acc @ w[k]
        return out
    return Work(f, [normal(2, 24, 24, 32), normal(2, 24, 24, 18), normal(9, 32, 32, scale=.1)], tolerance=1e-3)


@method("conv_transposed_dilated_1d_grad")
def _():
    def f(x, a, b, c):
        y = lax.conv_general_dilated(x, a, (2,), [(3, 3)], dimension_numbers=("NCW", "OIW", "NCW"))
        y = jax.nn.leaky_relu(lax.conv_general_dilated(y, b, (1,), [(9, 9)], rhs_dilation=(3,), dimension_numbers=("NCW", "OIW", "NCW"), feature_group_count=4))
        return lax.conv_general_dilated(y, c, (1,), [(3, 3)], lhs_dilation=(2,), dimension_numbers=("NCW", "OIW", "NCW"))
    return Work(with_vjp(f), [normal(4, 8, 2048), normal(32, 8, 7, scale=.2), normal(32, 8, 7, scale=.2), normal(8, 32, 7, scale=.2), normal(4, 8, 2047)], tolerance=1e-3)


@method("perceiver_cross_attention_bf16")
def _():
    b = ml_dtypes.bfloat16

    def ln(x):
        y = x.astype(jnp.float32)
        return ((y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)).astype(x.dtype)

    def f(z, x, wq, wk, wv, wo, w1, w2):
        q, k, v = ln(z) @ wq, ln(x) @ wk, ln(x) @ wv
        q, k, v = (t.reshape(t.shape[0], 4, 32).transpose(1, 0, 2) for t in (q, k, v))
        a = jax.nn.softmax((q @ k.transpose(0, 2, 1)).astype(jnp.float32) / 32 ** .5).astype(b)
        z = z + (a @ v).transpose(1, 0, 2).reshape(64, 128) @ wo
        return z + jax.nn.gelu(ln(z) @ w1) @ w2
    return Work(f, [normal(64, 128).astype(b), normal(2000, 128).astype(b)] + [normal(128, 128, scale=.1, seed=i).astype(b) for i in range(4)] + [normal(128, 512, scale=.1).astype(b), normal(512, 128, scale=.05).astype(b)],
                dtype="bf16", tolerance=5e-2)


@method("swin_window_attention_shift")
def _():
    def f(x, w, bias):
        y = jnp.roll(x, (-4, -4), (1, 2)).reshape(2, 4, 8, 4, 8, 64).transpose(0, 1, 3, 2, 4, 5).reshape(32, 64, 64)
        q, k, v = (t.reshape(32, 64, 4, 16).transpose(0, 2, 1, 3) for t in jnp.split(y @ w, 3, -1))
        a = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / 4 + bias)
        y = (a @ v).transpose(0, 2, 1, 3).reshape(2, 4, 4, 8, 8, 64).transpose(0, 1, 3, 2, 4, 5).reshape(2, 32, 32, 64)
        return x + jnp.roll(y, (4, 4), (1, 2))
    return Work(f, [normal(2, 32, 32, 64), normal(64, 192, scale=.1), normal(4, 64, 64)], flops=2 * 2048 * 64 * 192 + 4 * 128 * 64 * 64 * 16, tolerance=1e-3)


@method("retention_linear_attention_chunks")
def _():
    def f(q, k, v, g):
        def chunk(s, t):
            q, k, v, g = t
            c = jnp.cumsum(g, -1)
            d = jnp.tril(jnp.exp(c[:, :, None] - c[:, None]))
            y = ((q @ k.transpose(0, 2, 1)) * d) @ v + (q * jnp.exp(c)[..., None]) @ s
            return s * jnp.exp(c[:, -1])[:, None, None] + (k * jnp.exp(c[:, -1:] - c)[..., None]).transpose(0, 2, 1) @ v, y
        return lax.scan(chunk, jnp.zeros((8, 32, 32)), (q, k, v, g))[1]
    return Work(f, [normal(16, 8, 64, 32, seed=i) for i in range(3)] + [-uniform(16, 8, 64) * np.float32(.1)], tolerance=1e-3)


@method("contrastive_predictive_pairs_grad")
def _():
    def loss(w, a, p, n):
        def e(x):
            y = jax.nn.relu(x @ w[0]) @ w[1]
            return y / (jnp.linalg.norm(y, axis=-1, keepdims=True) + 1e-6)
        a, p, n = e(a), e(p), e(n)
        return jax.nn.relu(((a - p) ** 2).sum(-1) - ((a - n) ** 2).sum(-1) + .2).mean()
    return Work(jax.value_and_grad(loss), [[normal(64, 128, scale=.1), normal(128, 32, scale=.1)], normal(512, 64), normal(512, 64, seed=1), normal(512, 64, seed=2)], tolerance=1e-3)


@method("kl_distillation_bf16_grad")
def _():
    def loss(s, t):
        s, t = s.astype(jnp.float32) / 2, t.astype(jnp.float32) / 2
        p, lp = jax.nn.softmax(t), jax.nn.log_softmax(t)
        return (p * (lp - jax.nn.log_softmax(s))).sum(-1).mean()
    return Work(jax.value_and_grad(loss), [normal(128, 8000).astype(ml_dtypes.bfloat16), normal(128, 8000, seed=1).astype(ml_dtypes.bfloat16)], dtype="bf16", tolerance=2e-2)


# ---- Decoders, sequences, ranking
@method("ctc_beamless_greedy_collapse")
def _():
    def f(z):
        a = z.argmax(-1)
        new = (a != jnp.pad(a, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]) & (a != 0)
        at = jnp.cumsum(new, 1) - 1
        out = jnp.zeros((32, 200), jnp.int32)
        return jax.vmap(lambda o, i, a, m: o.at[jnp.where(m, i, 200)].set(a, mode="drop"))(out, at, a, new), new.sum(1)
    return Work(f, [normal(32, 200, 64)], tolerance=0)


@method("rnn_transducer_loss_grad")
def _():
    def loss(lp_blank, lp_label):
        def row(prev, t):
            b, l = t
            up = prev + b

            def cell(left, c):
                u, l = c
                v = jnp.logaddexp(u, left + l)
                return v, v
            rest = lax.scan(cell, up[0], (up[1:], l))[1]
            return jnp.concatenate([up[:1], rest]), None
        first = jnp.concatenate([jnp.zeros(1), jnp.cumsum(lp_label[0])])
        a = lax.scan(row, first, (lp_blank[:-1], lp_label[1:]))[0]
        return -(a[-1] + lp_blank[-1, -1])
    return Work(jax.vmap(jax.value_and_grad(loss, (0, 1))), [-uniform(4, 50, 17) - 1, -uniform(4, 50, 16, seed=1) - 1], tolerance=1e-3)


@method("needleman_wunsch_affine")
def _():
    def f(a, b):
        def row(c, x):
            h, e = c
            s = jnp.where(x == b, 2., -1.)
            e = jnp.maximum(h[1:] - 3, e - 1)

            def cell(s_, t):
                left, g = s_
                d, e, s = t
                g = jnp.maximum(left - 3, g - 1)
                v = jnp.maximum(jnp.maximum(d + s, e), g)
                return (v, g), v
            new = lax.scan(cell, (h[0] - 1, jnp.float32(-1e9)), (h[:-1], e, s))[1]
            return (jnp.concatenate([h[:1] - 1, new]), e), None
        h = -jnp.arange(129.)
        return lax.scan(row, (h, jnp.full(128, -1e9)), a)[0][0][-1]
    return Work(f, [below(4, 200), below(4, 128, seed=1)])


@method("speculative_accept_reject")
def _():
    def f(key, pz, qz, draft):
        p, q = jax.nn.softmax(pz), jax.nn.softmax(qz)
        k1, k2 = jax.random.split(wrap(key))
        pd = jnp.take_along_axis(p[:, :-1], draft[..., None], 2)[..., 0]
        qd = jnp.take_along_axis(q, draft[..., None], 2)[..., 0]
        ok = jax.random.uniform(k1, pd.shape) < pd / qd
        n = jnp.cumprod(ok, 1).sum(1)
        at = jnp.arange(8)
        pn = p[at, n]
        qn = jnp.where((n < 4)[:, None], q[at, jnp.minimum(n, 3)], 0)
        r = jnp.maximum(pn - qn, 0)
        return n, jax.random.categorical(k2, jnp.log(r / r.sum(-1, keepdims=True)))
    return Work(f, [KEY, normal(8, 5, 8000), normal(8, 4, 8000, seed=1), below(8000, 8, 4)], tolerance=0, flips=.1)


@method("min_p_typical_sampling")
def _():
    def f(key, z, count):
        z = z - .3 * count - .2 * (count > 0)
        lp = jax.nn.log_softmax(z)
        p = jnp.exp(lp)
        h = -(p * lp).sum(-1, keepdims=True)
        dist = jnp.abs(-lp - h)
        order = jnp.argsort(dist, -1)
        c = jnp.cumsum(jnp.take_along_axis(p, order, -1), -1)
        last = (c < .95).sum(-1)
        bound = jnp.take_along_axis(jnp.take_along_axis(dist, order, -1), last[:, None], 1)
        keep = (dist <= bound) & (p > .02 * p.max(-1, keepdims=True))
        return jax.random.categorical(wrap(key), jnp.where(keep, z, -jnp.inf))
    return Work(f, [KEY, normal(8, 16000) * 2, below(3, 8, 16000).astype(np.float32)], tolerance=0, flips=.2)


@method("ndcg_sorted_metrics")
def _():
    def f(s, y):
        o = jnp.argsort(-s, -1)
        g = jnp.take_along_axis(y, o, -1)
        d = 1 / jnp.log2(jnp.arange(500) + 2.)
        best = -jnp.sort(-y, -1)
        hits = jnp.cumsum(g > 2, -1)
        ap = (hits / (jnp.arange(500) + 1.) * (g > 2)).sum(-1) / jnp.maximum(hits[:, -1], 1)
        return ((2 ** g - 1) * d).sum(-1) / ((2 ** best - 1) * d).sum(-1), ap
    return Work(f, [normal(64, 500), below(5, 64, 500).astype(np.float32)], tolerance=1e-3, flips=.02)


@method("soft_dtw_batch_grad")
def _():
    def one(x, y):
        d = (x[:, None] - y[None]) ** 2
        n = 64
        skew = jax.vmap(lambda i, r: jnp.roll(jnp.pad(r, (0, n), constant_values=1e4), i))(jnp.arange(n), d).T[:2 * n - 1]

        def step(c, d):
            a, b = c
            up = jnp.concatenate([jnp.array([1e4]), a[:-1]])
            diag = jnp.concatenate([jnp.array([1e4]), b[:-1]])
            v = d - .1 * jax.nn.logsumexp(-jnp.stack([a, up, diag]) / .1, 0)
            return (v, a), v
        first = jnp.full(n, 1e4).at[0].set(d[0, 0])
        return lax.scan(step, (first, jnp.full(n, 1e4)), skew[1:])[1][-1, -1]
    return Work(jax.vmap(jax.value_and_grad(one)), [normal(16, 64), normal(16, 64, seed=1)], tolerance=1e-2)


# ---- Statistics and filters
@method("rauch_smoother_batch_4")
def _():
    def f(a, q, z):
        def fwd(c, z):
            x, p = c
            xp, pp = a @ x, a @ p @ a.T + q
            s = pp[:2, :2] + jnp.eye(2)
            k = jnp.linalg.solve(s, pp[:2]).T
            x, p = xp + k @ (z - xp[:2]), pp - k @ pp[:2]
            return (x, p), (x, p, xp, pp)
        _, (x, p, xp, pp) = lax.scan(fwd, (jnp.zeros(4), jnp.eye(4)), z)

        def bwd(c, t):
            x, p, xp, pp = t
            g = p @ a.T @ jnp.linalg.inv(pp)
            y = x + g @ (c[0] - c[1])
            return (y, xp), y
        return lax.scan(bwd, (x[-1], x[-1]), (x, p, xp, pp), reverse=True)[1]
    a = (np.eye(4) + .1 * np.eye(4, k=2)).astype(np.float32)
    return Work(jax.vmap(f, (None, None, 0)), [a, np.eye(4, dtype=np.float32) * np.float32(.05), normal(16, 100, 2)], tolerance=1e-3)


@method("metropolis_hastings_chains")
def _():
    def f(key, x):
        def logp(x):
            return -.5 * (x[:, 0] ** 2 / 4 + (x[:, 1] - .5 * x[:, 0] ** 2) ** 2) - jnp.log1p((x[:, 2:] ** 2).sum(-1))

        def step(c, k):
            x, l = c
            a, b = jax.random.split(k)
            y = x + .5 * jax.random.normal(a, x.shape)
            m = logp(y)
            ok = jnp.log(jax.random.uniform(b, l.shape)) < m - l
            return (jnp.where(ok[:, None], y, x), jnp.where(ok, m, l)), ok.mean()
        return lax.scan(step, (x, logp(x)), jax.random.split(wrap(key), 100))
    return Work(f, [KEY, normal(256, 6)], tolerance=1e-2, flips=.05)


@method("nuts_like_leapfrog_while")
def _():
    def f(x, p):
        def grad(x):
            return jax.grad(lambda x: .5 * (x ** 2 * jnp.linspace(1, 5, 32)).sum() + .1 * jnp.cos(x).sum())(x)

        def one(x, p):
            def cond(s):
                y, q, n = s
                return ((y - x) @ q >= 0) & (n < 200)

            def body(s):
                y, q, n = s
                q = q - .01 * grad(y)
                y = y + .02 * q
                return y, q - .01 * grad(y), n + 1
            return lax.while_loop(cond, body, (x, p, 0))
        return jax.vmap(one)(x, p)
    return Work(f, [normal(32, 32), normal(32, 32, seed=1)], tolerance=1e-2, flips=.05)


@method("pca_power_deflation")
def _():
    def f(x, v):
        x = x - x.mean(0)
        c = x.T @ x / x.shape[0]

        def comp(c, v):
            v = lax.fori_loop(0, 30, lambda _, v: (lambda y: y / jnp.linalg.norm(y))(c @ v), v)
            l = v @ c @ v
            return c - l * jnp.outer(v, v), (l, jnp.abs(v))
        return lax.scan(comp, c, v)[1]
    return Work(f, [normal(2000, 64) * np.linspace(1, 4, 64, dtype=np.float32), normal(4, 64)], tolerance=2e-2)


@method("particle_filter_stratified_2k")
def _():
    def f(key, obs):
        def step(c, t):
            x = c
            k, z = t
            a, b = jax.random.split(k)
            x = .5 * x + 25 * x / (1 + x * x) + jax.random.normal(a, x.shape)
            w = jax.nn.softmax(-.5 * (z - x * x / 20) ** 2)
            u = (jnp.arange(2000) + jax.random.uniform(b, (2000,))) / 2000
            x = x[jnp.clip(jnp.searchsorted(jnp.cumsum(w), u), 0, 1999)]
            return x, (w * x).sum()
        return lax.scan(step, jnp.zeros(2000), (jax.random.split(wrap(key), 40), obs))[1]
    return Work(f, [KEY, np.abs(normal(40)) * 5], tolerance=None)


@method("gibbs_mixture_sweeps")
def _():
    def f(key, x, mu):
        def sweep(mu, k):
            a, b = jax.random.split(k)
            z = jax.random.categorical(a, -.5 * (x[:, None] - mu) ** 2)
            hot = jax.nn.one_hot(z, 8)
            n, s = hot.sum(0), hot.T @ x
            mu = s / (n + .01) + jax.random.normal(b, (8,)) / jnp.sqrt(n + .01)
            return mu, mu
        return lax.scan(sweep, mu, jax.random.split(wrap(key), 20))[1]
    return Work(f, [KEY, normal(4000) + (np.arange(4000) % 8).astype(np.float32) * 3, np.linspace(0, 21, 8, dtype=np.float32)], tolerance=None)


@method("quantile_bootstrap_histogram")
def _():
    def f(key, x):
        i = jax.random.randint(wrap(key), (64, 2048), 0, 2048)
        s = x[i]
        return jnp.quantile(s, jnp.array([.05, .5, .95]), axis=1), jax.vmap(lambda s: jnp.histogram(s, 32, (-4, 4))[0])(s)
    return Work(f, [KEY, normal(2048)], tolerance=1e-3)


@method("isotonic_pava_minimax")
def _():
    def f(y):
        c = jnp.concatenate([jnp.zeros((16, 1)), jnp.cumsum(y, 1)], 1)
        i = jnp.arange(257)
        n = i[None] - i[:, None]
        m = jnp.where(n > 0, (c[:, None, :] - c[:, :, None]) / jnp.maximum(n, 1), jnp.inf)
        lo = lax.cummin(m, 2, reverse=True)
        lo = jnp.where(jnp.isinf(lo), -jnp.inf, lo)
        return jnp.diagonal(lax.cummax(lo, 1), 1, 1, 2)
    return Work(f, [normal(16, 256) + np.linspace(0, 3, 256, dtype=np.float32)], tolerance=1e-3)


# ---- Solvers and physics
@method("gauss_seidel_red_black_96")
def _():
    def f(b):
        i = jnp.arange(96)
        red = (i[:, None] + i) % 2 == 0

        def half(u, m):
            p = jnp.pad(u, 1)
            return jnp.where(m, (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] + b) / 4, u)

        def cond(s):
            return (s[1] > 1e-4) & (s[2] < 60)

        def body(s):
            u = half(half(s[0], red), ~red)
            return u, jnp.abs(u - s[0]).max(), s[2] + 1
        return lax.while_loop(cond, body, (jnp.zeros_like(b), jnp.float32(1), 0))
    return Work(f, [normal(96, 96)], tolerance=1e-3)


@method("gmres_restart_400")
def _():
    def f(a, b):
        def arnoldi(k, s):
            q, h = s
            v = a @ q[k]
            c = q @ v
            v = v - c @ q
            n = jnp.linalg.norm(v)
            return q.at[k + 1].set(v / (n + 1e-12)), h.at[k].set(c.at[k + 1].set(n))

        def cycle(x, _):
            r = b - a @ x
            n = jnp.linalg.norm(r)
            q = jnp.zeros((17, 400)).at[0].set(r / n)
            q, h = lax.fori_loop(0, 16, arnoldi, (q, jnp.zeros((16, 17))))
            y = jnp.linalg.lstsq(h.T, n * jnp.eye(17)[0])[0]
            return x + y @ q[:16], n
        return lax.scan(cycle, jnp.zeros(400), None, 4)
    return Work(f, [np.eye(400, dtype=np.float32) * 4 + normal(400, 400, scale=.05), normal(400)], tolerance=1e-2)


@method("bicgstab_convection_64")
def _():
    def f(b):
        def a(u):
            p = jnp.pad(u, 1)
            return 4.2 * u - 1.3 * p[2:, 1:-1] - .7 * p[:-2, 1:-1] - 1.2 * p[1:-1, 2:] - .8 * p[1:-1, :-2]

        def dot(x, y):
            return (x * y).sum()

        def turn(_, s):
            x, r, p, v, rho, al, om = s
            new = dot(b, r)
            p = r + new / rho * al / om * (p - om * v)
            v = a(p)
            al = new / dot(b, v)
            s = r - al * v
            t = a(s)
            om = dot(t, s) / dot(t, t)
            return x + al * p + om * s, s - om * t, p, v, new, al, om
        z, one = jnp.zeros_like(b), jnp.float32(1)
        return lax.fori_loop(0, 20, turn, (z, b, z, z, one, one, one))[0]
    return Work(f, [normal(64, 64)], tolerance=1e-2)


@method("verlet_neighbour_list_600")
def _():
    def f(x, v):
        def force(x, nb):
            d = x[:, None] - x[nb]
            d = d - 10 * jnp.round(d / 10)
            r2 = (d * d).sum(-1) + .3
            i6 = 1 / r2 ** 3
            return (jnp.where(r2 < 6.25, 24 * (2 * i6 * i6 - i6) / r2, 0)[..., None] * d).sum(1)

        def block(c, _):
            x, v = c
            d = x[:, None] - x[None]
            d = d - 10 * jnp.round(d / 10)
            nb = lax.top_k(-((d * d).sum(-1) + 1e3 * jnp.eye(600)), 48)[1]

            def step(c, _):
                x, v, f = c
                v = v + .5e-3 * f
                x = (x + 1e-3 * v) % 10
                f = force(x, nb)
                return (x, v + .5e-3 * f, f), (v * v).sum()
            (x, v, _), e = lax.scan(step, (x, v, force(x, nb)), None, 5)
            return (x, v), e
        return lax.scan(block, (x, v), None, 2)
    return Work(f, [uniform(600, 3) * 10, normal(600, 3)], tolerance=1e-2, flips=.02)


@method("lbm_d2q9_obstacle_96")
def _():
    c = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
    w = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
    opp = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])

    def f(g, solid):
        def step(_, g):
            rho = g.sum(0)
            u = jnp.einsum("qd,qxy->dxy", c.astype(np.float32), g) / rho
            cu = jnp.einsum("qd,dxy->qxy", c.astype(np.float32), u)
            eq = w[:, None, None] * rho * (1 + 3 * cu + 4.5 * cu * cu - 1.5 * (u * u).sum(0))
            out = jnp.where(solid, g[opp], g - .8 * (g - eq))
            return jnp.stack([jnp.roll(out[q], tuple(c[q]), (0, 1)) for q in range(9)])
        return lax.fori_loop(0, 15, step, g)
    return Work(f, [(w[:, None, None] * (1 + .05 * uniform(9, 96, 96))).astype(np.float32), uniform(96, 96) < .05], tolerance=1e-3)


@method("fdtd_2d_pml_scan")
def _():
    def f(ez, hx, hy, eps):
        i = jnp.arange(120.)
        s = jnp.maximum(jnp.maximum(12 - i, i - 107), 0) / 12
        damp = jnp.exp(-.3 * (s[:, None] ** 2 + s ** 2))

        def step(c, t):
            ez, hx, hy = c
            hx = (hx - .5 * (jnp.roll(ez, -1, 1) - ez)) * damp
            hy = (hy + .5 * (jnp.roll(ez, -1, 0) - ez)) * damp
            ez = (ez + .5 / eps * (hy - jnp.roll(hy, 1, 0) - hx + jnp.roll(hx, 1, 1))) * damp
            ez = ez.at[60, 60].add(jnp.sin(.1 * t))
            return (ez, hx, hy), ez[30, 30]
        return lax.scan(step, (ez, hx, hy), jnp.arange(60.))
    return Work(f, [np.zeros((120, 120), np.float32)] * 3 + [1 + uniform(120, 120)], tolerance=1e-3)


@method("haar_wavelet_denoise_2d")
def _():
    def f(x):
        def fwd(x):
            a, b = (x[..., ::2] + x[..., 1::2]) / 2 ** .5, (x[..., ::2] - x[..., 1::2]) / 2 ** .5
            return a, b

        def inv(a, b):
            return jnp.stack([(a + b) / 2 ** .5, (a - b) / 2 ** .5], -1).reshape(*a.shape[:-1], -1)
        bands = []
        for _ in range(4):
            lo, hi = fwd(x)
            ll, lh = fwd(lo.swapaxes(-1, -2))
            hl, hh = fwd(hi.swapaxes(-1, -2))
            bands.append([jnp.sign(t) * jnp.maximum(jnp.abs(t) - .1, 0) for t in (lh, hl, hh)])
            x = ll.swapaxes(-1, -2)
        for lh, hl, hh in reversed(bands):
            lo, hi = inv(x.swapaxes(-1, -2), lh), inv(hl, hh)
            x = inv(lo.swapaxes(-1, -2), hi.swapaxes(-1, -2))
        return x
    return Work(f, [normal(4, 256, 256)], tolerance=1e-3)


@method("clahe_tiles_histogram")
def _():
    def f(img):
        t = img.reshape(8, 32, 8, 32).transpose(0, 2, 1, 3).reshape(64, 1024)
        h = jax.vmap(lambda x: jnp.bincount(x, length=256))(t)
        over = jnp.maximum(h - 16, 0)
        h = jnp.minimum(h, 16) + over.sum(1, keepdims=True) // 256
        lut = jnp.cumsum(h, 1) * 255 // 1024
        y = jnp.take_along_axis(lut, t.astype(jnp.int32), 1)
        return jnp.clip(y, 0, 255).astype(jnp.uint8).reshape(8, 8, 32, 32).transpose(0, 2, 1, 3).reshape(256, 256)
    return Work(f, [bytes_of_image(256, 256)], tolerance=0)


@method("mfcc_dct_cepstrum")
def _():
    mel = np.maximum(0, 1 - np.abs(np.arange(257)[None] / 257 * 42 - np.arange(1, 41)[:, None])).astype(np.float32)
    dct = np.cos(np.pi / 40 * (np.arange(40) + .5) * np.arange(13)[:, None]).astype(np.float32)

    def f(x):
        x = jnp.concatenate([x[:, :1], x[:, 1:] - .97 * x[:, :-1]], 1)
        at = np.arange(98)[:, None] * 160 + np.arange(400)
        s = jnp.abs(jnp.fft.rfft(jnp.pad(x[:, at] * jnp.hamming(400), ((0, 0), (0, 0), (0, 112))))) ** 2 / 512
        c = jnp.log(s @ mel.T + 1e-6) @ dct.T
        d = (jnp.roll(c, -1, 1) - jnp.roll(c, 1, 1)) / 2
        y = jnp.concatenate([c, d], -1)
        return (y - y.mean(1, keepdims=True)) / (y.std(1, keepdims=True) + 1e-5)
    return Work(f, [normal(4, 16000)], tolerance=1e-2)


@method("optical_flow_horn_schunck")
def _():
    def f(a, b):
        ix, iy, it = (jnp.roll(a, -1, 1) - jnp.roll(a, 1, 1)) / 2, (jnp.roll(a, -1, 0) - jnp.roll(a, 1, 0)) / 2, b - a

        def avg(u):
            return (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)) / 4

        def turn(_, s):
            u, v = avg(s[0]), avg(s[1])
            t = (ix * u + iy * v + it) / (.1 + ix * ix + iy * iy)
            return u - ix * t, v - iy * t
        return lax.fori_loop(0, 40, turn, (jnp.zeros_like(a), jnp.zeros_like(a)))
    return Work(f, [uniform(128, 128), uniform(128, 128, seed=1)], tolerance=1e-3)


@method("sph_density_pressure_1k")
def _():
    def f(x, v):
        d = x[:, None] - x[None]
        r = jnp.sqrt((d * d).sum(-1) + 1e-8)
        q = jnp.maximum(0, 1 - r / .3)
        rho = (q ** 3).sum(1)
        p = 3 * jnp.maximum(rho - 1.5, 0)
        a = -((p / rho ** 2)[:, None] + (p / rho ** 2)[None])[..., None] * (q ** 2 / r)[..., None] * d
        visc = .1 * (v[None] - v[:, None]) * q[..., None]
        v = v + .01 * (a.sum(1) + visc.sum(1))
        return x + .01 * v, v, rho
    return Work(f, [uniform(1000, 3), normal(1000, 3)], tolerance=1e-3)


@method("double_pendulum_rk4_ensemble")
def _():
    def f(y):
        def d(y):
            a, b, p, q = y
            c = jnp.cos(a - b)
            k = 16 - 9 * c * c
            da, db = 6 * (2 * p - 3 * c * q) / k, 6 * (8 * q - 3 * c * p) / k
            s = da * db * jnp.sin(a - b)
            return jnp.stack([da, db, -.5 * (s + 3 * 9.8 * jnp.sin(a)), -.5 * (-s + 9.8 * jnp.sin(b))])

        def step(y, _):
            k1 = d(y)
            k2 = d(y + .0005 * k1)
            k3 = d(y + .0005 * k2)
            return y + .001 / 6 * (k1 + 2 * k2 + 2 * k3 + d(y + .001 * k3)), y[:, 0]
        return lax.scan(step, y, None, 200)
    return Work(f, [normal(4, 512)], tolerance=1e-2)


@method("simplex_projection_batch")
def _():
    def f(x):
        u = -jnp.sort(-x, -1)
        c = jnp.cumsum(u, -1) - 1
        i = jnp.arange(1, 129)
        k = (u - c / i > 0).sum(-1)
        t = jnp.take_along_axis(c, k[:, None] - 1, 1) / k[:, None]
        return jnp.maximum(x - t, 0)
    return Work(f, [normal(2048, 128)], tolerance=1e-3)


@method("floyd_warshall_128")
def _():
    def f(d):
        return lax.fori_loop(0, 128, lambda k, d: jnp.minimum(d, d[:, k, None] + d[None, k]), d)
    return Work(f, [uniform(128, 128) * 10], tolerance=1e-3)


@method("hungarian_auction_rounds")
def _():
    def f(v):
        def rnd(c, _):
            price, owner = c
            free = ~(owner[None] == jnp.arange(64)[:, None]).any(1)
            net = v - price
            top, at = lax.top_k(net, 2)
            bid = jnp.where(free, top[:, 0] - top[:, 1] + .01, -1.)
            m = jnp.where(at[:, 0][:, None] == jnp.arange(64), bid[:, None], -1.)
            best, who = m.max(0), m.argmax(0)
            return (jnp.where(best > 0, price + best, price), jnp.where(best > 0, who, owner)), free.sum()
        return lax.scan(rnd, (jnp.zeros(64), jnp.full(64, -1)), None, 100)
    return Work(f, [uniform(64, 64)], tolerance=1e-3, flips=.05)
