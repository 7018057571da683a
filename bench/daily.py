"""More whole programs, in bench/models.py's table: augmentations, returns, searches, graphs, signals and steps of physics,
each as its users write it and of odd sizes, written before any of them was measured."""
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from methods import KEY, wrap
from workloads import Work, below, bytes_of_image, normal, registry, uniform, with_vjp

DAILY = {}
daily = registry(DAILY)


def conv(x, w, strides=(1, 1), padding="SAME", **kw):
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **kw)


# ---- Images
@daily("color_jitter_hsv_u8")
def _():
    def f(x, hue, sat):
        r, g, b = jnp.moveaxis(x.astype(jnp.float32) / 255, -1, 0)
        hi, lo = jnp.maximum(r, jnp.maximum(g, b)), jnp.minimum(r, jnp.minimum(g, b))
        d = hi - lo
        safe = jnp.where(d == 0, 1., d)
        h = jnp.where(hi == r, (g - b) / safe % 6, jnp.where(hi == g, (b - r) / safe + 2, (r - g) / safe + 4)) / 6
        s = jnp.where(hi == 0, 0., d / jnp.where(hi == 0, 1., hi))
        h, s = (h + hue[:, None, None]) % 1., jnp.clip(s * sat[:, None, None], 0, 1)
        k = (jnp.array([5., 3., 1.]) + h[..., None] * 6) % 6
        y = hi[..., None] * (1 - s[..., None] * jnp.clip(jnp.minimum(k, 4 - k), 0, 1))
        return jnp.round(y * 255).astype(jnp.uint8)
    return Work(f, [bytes_of_image(8, 113, 117, 3), uniform(8), uniform(8, seed=1) + .5], tolerance=1e-2, flips=1e-3)


@daily("perspective_warp_bilinear_u8")
def _():
    def f(x, m):
        def one(x, m):
            i, j = jnp.mgrid[0:96, 0:101].astype(jnp.float32)
            p = jnp.stack([i, j, jnp.ones_like(i)], -1) @ m.T
            y, z = p[..., 0] / p[..., 2], p[..., 1] / p[..., 2]
            y0, z0 = jnp.floor(y), jnp.floor(z)
            out = 0.
            for a in (0, 1):
                for b in (0, 1):
                    u, v = (y0 + a).astype(jnp.int32), (z0 + b).astype(jnp.int32)
                    ok = (u >= 0) & (u < 96) & (v >= 0) & (v < 101)
                    w = (1 - jnp.abs(y - y0 - a)) * (1 - jnp.abs(z - z0 - b)) * ok
                    out += w[..., None] * x[jnp.clip(u, 0, 95), jnp.clip(v, 0, 100)].astype(jnp.float32)
            return out
        return jax.vmap(one)(x, m)
    m = np.eye(3, dtype=np.float32) + normal(6, 3, 3, scale=.001)
    return Work(f, [bytes_of_image(6, 96, 101, 3), m], tolerance=1e-2, flips=1e-3)


@daily("mixup_cutmix_flip_batch")
def _():
    def f(x, y, key):
        k1, k2, k3, k4 = jax.random.split(wrap(key), 4)
        n = x.shape[0]
        x = jnp.where(jax.random.bernoulli(k1, .5, (n, 1, 1, 1)), x[:, :, ::-1], x)
        p = jax.random.permutation(k2, n)
        c = jax.random.randint(k3, (n, 2), 0, 48)
        i = jnp.arange(48)
        r = (jnp.abs(i - c[:, :1]) < 12)[:, :, None] & (jnp.abs(i - c[:, 1:]) < 12)[:, None]
        lam = 1 - r.mean((1, 2))
        mixed = jnp.where(r[..., None], x[p], x)
        l2 = jax.random.beta(k4, .4, .4, (n,))
        mixed = l2[:, None, None, None] * mixed + (1 - l2[:, None, None, None]) * mixed[::-1]
        return mixed, lam[:, None] * y + (1 - lam[:, None]) * y[p]
    return Work(f, [normal(64, 48, 48, 3), uniform(64, 10), KEY], tolerance=1e-2, flips=.02)


@daily("sobel_nms_hysteresis_u8")
def _():
    def f(x):
        p = jnp.pad(x.astype(jnp.float32), 1, mode="edge")
        s = lambda a, b: p[1 + a:1 + a + x.shape[0], 1 + b:1 + b + x.shape[1]]
        gx = s(-1, 1) + 2 * s(0, 1) + s(1, 1) - s(-1, -1) - 2 * s(0, -1) - s(1, -1)
        gy = s(1, -1) + 2 * s(1, 0) + s(1, 1) - s(-1, -1) - 2 * s(-1, 0) - s(-1, 1)
        m = jnp.sqrt(gx * gx + gy * gy)
        q = jnp.round(jnp.arctan2(gy, gx) / (jnp.pi / 4)).astype(jnp.int32) % 4
        pm = jnp.pad(m, 1)
        t = lambda a, b: pm[1 + a:1 + a + x.shape[0], 1 + b:1 + b + x.shape[1]]
        n1 = jnp.select([q == 0, q == 1, q == 2], [t(0, 1), t(1, 1), t(1, 0)], t(1, -1))
        n2 = jnp.select([q == 0, q == 1, q == 2], [t(0, -1), t(-1, -1), t(-1, 0)], t(-1, 1))
        keep = (m >= n1) & (m >= n2)
        strong, weak = keep & (m > 300), keep & (m > 100)

        def grow(_, e):
            return lax.reduce_window(e, False, lax.bitwise_or, (3, 3), (1, 1), "SAME") & weak
        return lax.fori_loop(0, 12, grow, strong)
    return Work(f, [bytes_of_image(201, 203)], tolerance=0, flips=1e-3)


@daily("median_filter_3x3_u8")
def _():
    def f(x):
        p = jnp.pad(x, 1, mode="reflect")
        n = jnp.stack([p[i:i + 180, j:j + 183] for i in range(3) for j in range(3)], -1)
        return jnp.sort(n, -1)[..., 4]
    return Work(f, [bytes_of_image(180, 183)], tolerance=0)


@daily("iou_nms_boxes_300")
def _():
    def f(b, s):
        order = jnp.argsort(-s)
        b = b[order]
        lo, hi = b[:, :2], b[:, :2] + b[:, 2:]
        w = jnp.clip(jnp.minimum(hi[:, None], hi) - jnp.maximum(lo[:, None], lo), 0)
        inter = w[..., 0] * w[..., 1]
        area = b[:, 2] * b[:, 3]
        iou = inter / (area[:, None] + area - inter)

        def step(i, keep):
            return jnp.where(keep[i] & (jnp.arange(300) > i) & (iou[i] > .4), False, keep)
        keep = lax.fori_loop(0, 300, step, jnp.ones(300, bool))
        return keep, jnp.where(keep, s[order], -1.)
    return Work(f, [uniform(300, 4), uniform(300, seed=1)], tolerance=1e-4)


@daily("conv_stride3_dilated_group_grad")
def _():
    def f(x, w, v):
        y = jax.nn.relu(conv(x, w, (3, 2), "VALID"))
        return conv(y, v, padding=[(2, 2), (4, 4)], rhs_dilation=(1, 2), feature_group_count=3)
    return Work(with_vjp(f), [normal(6, 49, 50, 6), normal(5, 4, 6, 24, scale=.1), normal(5, 5, 8, 27, scale=.1), normal(6, 15, 24, 27)], tolerance=1e-3)


@daily("squeeze_excite_mbconv_nhwc")
def _():
    def f(x, e, d, r, s, p):
        h = jax.nn.silu(conv(x, e))
        h = jax.nn.silu(conv(h, d, (2, 2), feature_group_count=72))
        g = jax.nn.sigmoid(jax.nn.silu(h.mean((1, 2)) @ r) @ s)
        return conv(h * g[:, None, None], p)
    return Work(f, [normal(4, 37, 37, 12), normal(1, 1, 12, 72), normal(5, 5, 1, 72), normal(72, 6), normal(6, 72), normal(1, 1, 72, 20)], tolerance=1e-3)


@daily("pixel_shuffle_psnr_ssim")
def _():
    def f(x, y):
        n, h, w, c = x.shape
        x = x.reshape(n, h, w, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, 3)
        box = lambda a: lax.reduce_window(a, 0., lax.add, (1, 7, 7, 1), (1, 1, 1, 1), "VALID") / 49
        mx, my = box(x), box(y)
        vx, vy, c = box(x * x) - mx * mx, box(y * y) - my * my, box(x * y) - mx * my
        ssim = (2 * mx * my + 1e-4) * (2 * c + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))
        return ssim.mean((1, 2, 3)), -10 * jnp.log10(((x - y) ** 2).mean((1, 2, 3)))
    return Work(f, [uniform(4, 45, 46, 12), uniform(4, 90, 92, 3, seed=1)], tolerance=1e-3)


# ---- Reinforcement learning
@daily("gae_returns_ppo_loss_grad")
def _():
    def loss(v, logp, r, done, old, logits):
        def back(a, t):
            d, m = t
            a = d + .95 * .99 * m * a
            return a, a
        m = 1. - done[:-1]
        d = r + .99 * v[1:] * m - v[:-1]
        adv = lax.stop_gradient(lax.scan(back, jnp.zeros(r.shape[1]), (d, m), reverse=True)[1])
        norm = (adv - adv.mean()) / (adv.std() + 1e-8)
        ratio = jnp.exp(logp - old)
        p = jax.nn.log_softmax(logits)
        return -jnp.minimum(ratio * norm, jnp.clip(ratio, .8, 1.2) * norm).mean() + ((v[:-1] - adv - lax.stop_gradient(v[:-1])) ** 2).mean() + .01 * (p * jnp.exp(p)).sum(-1).mean()
    return Work(jax.value_and_grad(loss, (0, 1, 5)), [normal(129, 48), normal(128, 48, scale=.1), normal(128, 48), (uniform(129, 48) < .02).astype(np.float32), normal(128, 48, scale=.1, seed=1), normal(128, 48, 6)], tolerance=1e-3)


@daily("vtrace_impala_targets")
def _():
    def f(v, r, disc, logr):
        rho = jnp.minimum(jnp.exp(logr), 1.)
        d = rho * (r + disc * v[1:] - v[:-1])

        def back(a, t):
            d, g, c = t
            a = d + g * c * a
            return a, a
        e = lax.scan(back, jnp.zeros_like(r[0]), (d, disc, rho), reverse=True)[1]
        vs = e + v[:-1]
        return vs, rho * (r + disc * jnp.concatenate([vs[1:], v[-1:]]) - v[:-1])
    return Work(f, [normal(81, 37), normal(80, 37), uniform(80, 37), normal(80, 37, seed=1)], tolerance=1e-3)


@daily("cartpole_policy_rollout")
def _():
    def f(s, w1, w2, key):
        def step(c, k):
            s, ret, live = c
            x, v, t, q = s.T
            p = jnp.tanh(s @ w1) @ w2
            a = jax.random.bernoulli(k, jax.nn.sigmoid(p[:, 0]))
            force = jnp.where(a, 10., -10.)
            tmp = (force + .05 * q * q * jnp.sin(t)) / 1.1
            acc = (9.8 * jnp.sin(t) - jnp.cos(t) * tmp) / (.5 * (4 / 3 - .1 * jnp.cos(t) ** 2 / 1.1))
            xa = tmp - .05 * acc * jnp.cos(t) / 1.1
            s = jnp.stack([x + .02 * v, v + .02 * xa, t + .02 * q, q + .02 * acc], 1)
            live = live & (jnp.abs(s[:, 0]) < 2.4) & (jnp.abs(s[:, 2]) < .2)
            return (s, ret + live, live), None
        n = s.shape[0]
        return lax.scan(step, (s, jnp.zeros(n), jnp.ones(n, bool)), jax.random.split(wrap(key), 100))[0]
    return Work(f, [normal(128, 4, scale=.05), normal(4, 16), normal(16, 1), KEY], tolerance=1e-2, flips=.05)


@daily("mcts_ucb_tree_search_64")
def _():
    def f(r):
        def sim(i, c):
            n, q, child = c

            def down(s):
                node, d, _ = s
                u = q[node] / (n[node] + 1e-6) + 1.4 * jnp.sqrt(jnp.log(n[node].sum() + 1.) / (n[node] + 1e-6))
                a = jnp.argmax(u)
                return child[node, a], d + 1, node * 8 + a
            node, d, edge = lax.while_loop(lambda s: (s[0] >= 0) & (s[1] < 10), down, (jnp.int32(0), 0, jnp.int32(0)))
            node, a = edge // 8, edge % 8
            return n.at[node, a].add(1.), q.at[node, a].add(r[i]), child.at[node, a].set(i + 1)
        n, q, _ = lax.fori_loop(0, 64, sim, (jnp.zeros((65, 8)), jnp.zeros((65, 8)), -jnp.ones((65, 8), jnp.int32)))
        return n, q
    return Work(f, [uniform(64)], tolerance=1e-3)


@daily("prioritized_replay_sum_tree")
def _():
    def f(tree, u, idx, p):
        def down(v):
            def step(c, _):
                i, v = c
                l = tree[2 * i]
                right = v > l
                return (2 * i + right, jnp.where(right, v - l, v)), None
            return lax.scan(step, (jnp.int32(1), v), None, length=12)[0][0]
        leaf = jax.vmap(down)(u * tree[1])

        def up(t, _):
            return t, None
        t = tree.at[idx + 4096].set(p)
        for k in range(12):
            h = 4096 >> (k + 1)
            t = lax.dynamic_update_slice(t, t[2 * h:4 * h].reshape(-1, 2).sum(1), (h,))
        return leaf, t
    leaves = uniform(4096)
    tree = np.zeros(8192, np.float32)
    tree[4096:] = leaves
    for i in range(4095, 0, -1):
        tree[i] = tree[2 * i] + tree[2 * i + 1]
    return Work(f, [tree, uniform(256, seed=1), below(4096, 200), uniform(200, seed=2)], tolerance=1e-3, flips=.02)


# ---- Language
@daily("beam_search_lm_step_k4")
def _():
    def f(emb, w, seq):
        def step(c, i):
            seq, score, h = c
            h = jnp.tanh(emb[seq[:, :, i]] + h @ w)
            lp = jax.nn.log_softmax(h @ emb.T)
            s, j = lax.top_k((score[..., None] + lp).reshape(3, -1), 4)
            src, tok = j // 501, j % 501
            seq = jnp.take_along_axis(seq, src[..., None], 1).at[:, :, i + 1].set(tok)
            return (seq, s, jnp.take_along_axis(h, src[..., None], 1)), None
        init = (seq, jnp.tile(jnp.float32([0, -1e9, -1e9, -1e9]), (3, 1)), jnp.zeros((3, 4, 48)))
        return lax.scan(step, init, jnp.arange(24))[0][:2]
    return Work(f, [normal(501, 48), normal(48, 48, scale=.2), below(501, 3, 4, 25)], tolerance=1e-3, flips=.05)


@daily("bpe_merge_rounds_bytes")
def _():
    def f(text):
        def merge(c, k):
            t, n = c
            pair = jnp.where(jnp.arange(1999) < n - 1, t[:-1] * 300 + t[1:], 90000)
            count = jnp.zeros(90001, jnp.int32).at[pair].add(1).at[90000].set(0)
            best = jnp.argmax(count)
            hit = pair == best
            hit = hit & ~jnp.pad(hit, (1, 0))[:-1]
            new = jnp.where(jnp.pad(hit, (0, 1)), 256 + k, t)
            keep = ~jnp.pad(hit, (1, 0)) & (jnp.arange(2000) < n)
            at = jnp.where(keep, jnp.cumsum(keep) - 1, 2000)
            return (jnp.zeros(2000, jnp.int32).at[at].set(new, mode="drop"), keep.sum()), best
        return lax.scan(merge, (text, jnp.int32(2000)), jnp.arange(12))
    return Work(f, [below(20, 2000) * below(3, 2000, seed=1)], tolerance=0)


@daily("top_p_top_k_penalty_sample")
def _():
    def f(z, hist, key):
        seen = jnp.zeros(z.shape, bool).at[jnp.arange(6)[:, None], hist].set(True)
        z = jnp.where(seen, jnp.where(z > 0, z / 1.2, z * 1.2), z) / .8
        v, i = lax.top_k(z, 50)
        p = jax.nn.softmax(v)
        keep = jnp.cumsum(p, -1) - p < .9
        c = jax.random.categorical(wrap(key), jnp.where(keep, v, -jnp.inf))
        return jnp.take_along_axis(i, c[:, None], 1)[:, 0], p
    return Work(f, [normal(6, 12001), below(12001, 6, 100), KEY], tolerance=1e-3, flips=.2)


@daily("crf_forward_viterbi_grad")
def _():
    def f(e, tr, mask):
        def step(a, t):
            e, m = t
            n = jax.nn.logsumexp(a[:, :, None] + tr, 1) + e
            return jnp.where(m[:, None], n, a), None
        z = jax.nn.logsumexp(lax.scan(step, e[0], (e[1:], mask[1:]))[0], -1).sum()

        def best(a, t):
            s = a[:, :, None] + tr
            return s.max(1) + t, s.argmax(1)
        last, back = lax.scan(best, e[0], e[1:])
        path = lax.scan(lambda c, b: (jnp.take_along_axis(b, c[:, None], 1)[:, 0],) * 2, last.argmax(-1), back, reverse=True)[1]
        return z, path
    return Work(jax.value_and_grad(f, (0, 1), has_aux=True), [normal(60, 12, 17), normal(17, 17, seed=1), np.arange(60)[:, None] < below(40, 12) + 20], tolerance=1e-3)


@daily("ngram_hash_dedup_minhash")
def _():
    def f(t, a, b):
        h = t[:, :-4].astype(jnp.uint32)
        for k in range(1, 5):
            h = (h * jnp.uint32(16777619)) ^ t[:, k:t.shape[1] - 4 + k].astype(jnp.uint32)
        sig = ((h[:, :, None] * a + b) >> 3).min(1)
        return sig, (sig[:, None] == sig[None]).mean(-1)
    return Work(f, [below(50, 40, 304), below(1 << 30, 32).astype(np.uint32) | 1, below(1 << 30, 32, seed=1).astype(np.uint32)], tolerance=1e-5)


@daily("alibi_packed_attention_bf16")
def _():
    def f(x, w, wo, seg):
        q, k, v = jnp.moveaxis((x @ w).reshape(2, 190, 3, 6, 32), 2, 0)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / 32 ** .5
        i = jnp.arange(190)
        s = s - jnp.abs(i[:, None] - i) * (2. ** -jnp.arange(1, 7))[:, None, None]
        ok = (seg[:, :, None] == seg[:, None]) & (i[:, None] >= i)
        p = jax.nn.softmax(jnp.where(ok[:, None], s, -1e9)).astype(x.dtype)
        return jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(2, 190, 192) @ wo
    b = ml_dtypes.bfloat16
    return Work(f, [normal(2, 190, 192).astype(b), normal(192, 576, scale=.07).astype(b), normal(192, 192, scale=.07).astype(b), np.sort(below(4, 2, 190))], dtype="bf16", tolerance=3e-2)


# ---- Loops of dynamic programming, graphs
@daily("dijkstra_dense_150")
def _():
    def f(w):
        def step(_, c):
            d, done = c
            u = jnp.argmin(jnp.where(done, jnp.inf, d))
            done = done.at[u].set(True)
            return jnp.where(done, d, jnp.minimum(d, d[u] + w[u])), done
        return lax.fori_loop(0, 150, step, (jnp.full(150, jnp.inf).at[0].set(0), jnp.zeros(150, bool)))[0]
    return Work(f, [uniform(150, 150)], tolerance=1e-4)


@daily("pagerank_segment_power_30")
def _():
    def f(src, dst):
        deg = jax.ops.segment_sum(jnp.ones(9000), src, 1200)

        def step(p, _):
            flow = jax.ops.segment_sum((p / jnp.maximum(deg, 1))[src], dst, 1200)
            n = .15 / 1200 + .85 * (flow + jnp.where(deg == 0, p, 0).sum() / 1200)
            return n, jnp.abs(n - p).sum()
        return lax.scan(step, jnp.full(1200, 1 / 1200), None, length=30)
    return Work(f, [below(1200, 9000), below(1200, 9000, seed=1)], tolerance=1e-3)


@daily("label_propagation_mode_600")
def _():
    def f(src, dst):
        def step(_, l):
            c = jnp.zeros((600, 64), jnp.int32).at[dst, l[src]].add(1)
            return jnp.argmax(c, -1).astype(jnp.int32)
        return lax.fori_loop(0, 10, step, jnp.arange(600, dtype=jnp.int32) % 64)
    return Work(f, [below(600, 5000), below(600, 5000, seed=1)], tolerance=0)


@daily("edge_conv_knn_points_grad")
def _():
    def f(x, w, v):
        d = ((x[:, None] - x[None]) ** 2).sum(-1)
        nb = lax.top_k(-d, 9)[1]
        e = jnp.concatenate([jnp.broadcast_to(x[:, None], (333, 9, 3)), x[nb] - x[:, None]], -1)
        return (jax.nn.relu(e @ w).max(1) @ v).sum()
    return Work(jax.value_and_grad(f, (0, 1, 2)), [normal(333, 3), normal(6, 40), normal(40, 5)], tolerance=1e-3)


@daily("dtw_antidiagonal_batch")
def _():
    def f(a, b):
        d = jnp.abs(a[:, :, None] - b[:, None])
        n = 70

        def skew(d):
            return jax.vmap(lambda r, k: jnp.roll(jnp.pad(r, (0, n - 1), constant_values=1e9), k))(d, jnp.arange(n)).T
        s = jax.vmap(skew)(d)

        def step(c, row):
            p, q = c
            m = jnp.minimum(jnp.minimum(p, jnp.pad(p, ((0, 0), (1, 0)), constant_values=1e9)[:, :-1]), jnp.pad(q, ((0, 0), (1, 0)), constant_values=1e9)[:, :-1])
            m = row + jnp.where(m >= 1e8, jnp.where((jnp.arange(n) == 0) & (p.min() > 1e8), 0., m), m)
            return (m, p), None
        big = jnp.full((10, n), 1e9)
        return lax.scan(step, (big, big), s.transpose(1, 0, 2))[0][0][:, -1]
    return Work(f, [normal(10, 70), normal(10, 70, seed=1)], tolerance=1e-3)


@daily("coin_change_rod_cutting_dp")
def _():
    def f(coins, price):
        def coin(w, c):
            def at(i, w):
                return w.at[i].add(jnp.where(i >= c, w[jnp.maximum(i - c, 0)], 0))
            return lax.fori_loop(1, 401, at, w), None
        ways = lax.scan(coin, jnp.zeros(401, jnp.int32).at[0].set(1), coins)[0]

        def rod(i, r):
            j = jnp.arange(200)
            return r.at[i].set(jnp.where(j < i, price + r[jnp.maximum(i - 1 - j, 0)], -1.).max())
        return ways, lax.fori_loop(1, 201, rod, jnp.zeros(201))
    return Work(f, [below(50, 9) + 1, uniform(200)], tolerance=1e-4)


# ---- Signals
@daily("stft_griffin_lim_6")
def _():
    def f(mag, key):
        win = jnp.hanning(128)
        i = jnp.arange(60)[:, None] * 32 + jnp.arange(128)

        def istft(s):
            y = jnp.fft.irfft(s, 128) * win
            return jnp.zeros(59 * 32 + 128).at[i].add(y) / (jnp.zeros(59 * 32 + 128).at[i].add(win * win + jnp.zeros((60, 1))) + 1e-6)

        def step(_, ph):
            s = jnp.fft.rfft(istft(mag * ph)[i] * win)
            return s / (jnp.abs(s) + 1e-6)
        ph = jnp.exp(2j * jnp.pi * jax.random.uniform(wrap(key), (60, 65)))
        return istft(mag * lax.fori_loop(0, 6, step, ph))
    return Work(f, [uniform(60, 65), KEY], tolerance=3e-2, flips=.01)


@daily("biquad_cascade_filter_bank")
def _():
    def f(x, b, a):
        def step(s, v):
            outs, y = [], v
            for k in range(3):
                z1, z2 = s[k]
                w = b[k, 0] * y + z1
                outs.append((b[k, 1] * y - a[k, 0] * w + z2, b[k, 2] * y - a[k, 1] * w))
                y = w
            return outs, y
        z = jnp.zeros(20)
        return lax.scan(step, [(z, z)] * 3, x.T)[1].T
    return Work(f, [normal(20, 900), uniform(3, 3), uniform(3, 2, seed=1) * .4], tolerance=1e-3)


@daily("hilbert_envelope_phase")
def _():
    def f(x):
        n = x.shape[-1]
        h = jnp.zeros(n).at[0].set(1).at[1:(n + 1) // 2].set(2)
        z = jnp.fft.ifft(jnp.fft.fft(x) * h)
        return jnp.abs(z), jnp.unwrap(jnp.angle(z), axis=-1)
    return Work(f, [normal(24, 975)], tolerance=1e-2, flips=.01)


@daily("savgol_detrend_peaks_1d")
def _():
    def f(x):
        t = jnp.linspace(-1, 1, x.shape[1])
        v = jnp.stack([t ** k for k in range(4)], 1)
        x = x - (x @ v) @ jnp.linalg.inv(v.T @ v) @ v.T
        c = jnp.array([-3., 12, 17, 12, -3]) / 35
        y = jax.vmap(lambda r: jnp.convolve(r, c, mode="same"))(x)
        peak = (y[:, 1:-1] > y[:, :-2]) & (y[:, 1:-1] > y[:, 2:]) & (y[:, 1:-1] > .5)
        return jnp.cumsum(peak, 1), jnp.where(peak, y[:, 1:-1], -jnp.inf).max(1)
    return Work(f, [normal(40, 1501)], tolerance=1e-2, flips=.01)


@daily("polyphase_upfirdn_3_2")
def _():
    def f(x, h):
        up = jnp.zeros((16, 3000)).at[:, ::3].set(x)
        y = lax.conv_general_dilated(up[:, None], h[None, None], (2,), [(30, 30)])
        return y[:, 0], jnp.mean(y ** 2, (1, 2))
    return Work(f, [normal(16, 1000), normal(61)], tolerance=1e-3)


# ---- Physics
@daily("burgers_weno_rk3_1d")
def _():
    def f(u):
        def weno(a, b, c, d, e):
            s0, s1, s2 = 13 / 12 * (a - 2 * b + c) ** 2 + (a - 4 * b + 3 * c) ** 2 / 4, 13 / 12 * (b - 2 * c + d) ** 2 + (b - d) ** 2 / 4, 13 / 12 * (c - 2 * d + e) ** 2 + (3 * c - 4 * d + e) ** 2 / 4
            w0, w1, w2 = .1 / (1e-6 + s0) ** 2, .6 / (1e-6 + s1) ** 2, .3 / (1e-6 + s2) ** 2
            return (w0 * (2 * a - 7 * b + 11 * c) + w1 * (-b + 5 * c + 2 * d) + w2 * (2 * c + 5 * d - e)) / (6 * (w0 + w1 + w2))

        def rhs(u):
            m = jnp.abs(u).max()
            p, q = (u * u / 2 + m * u) / 2, (u * u / 2 - m * u) / 2
            r = lambda x, k: jnp.roll(x, k)
            fp = weno(r(p, 2), r(p, 1), p, r(p, -1), r(p, -2))
            fm = weno(r(q, -3), r(q, -2), r(q, -1), q, r(q, 1))
            h = fp + fm
            return -(h - r(h, 1)) * 300

        def step(_, u):
            a = u + 5e-4 * rhs(u)
            b = .75 * u + .25 * (a + 5e-4 * rhs(a))
            return u / 3 + 2 / 3 * (b + 5e-4 * rhs(b))
        return lax.fori_loop(0, 40, step, u)
    return Work(f, [np.sin(np.linspace(0, 2 * np.pi, 300, endpoint=False)).astype(np.float32)], tolerance=1e-2)


@daily("pbd_cloth_constraints_24")
def _():
    def f(x, v):
        def fix(a, b, l):
            d = b - a
            n = jnp.sqrt((d * d).sum(-1, keepdims=True)) + 1e-9
            c = .25 * (n - l) / n * d
            return c

        def step(c, _):
            x, v = c
            p = x + .01 * (v + jnp.array([0, 0, -.0981]))

            def relax(_, p):
                h = fix(p[:, :-1], p[:, 1:], .1)
                p = p.at[:, :-1].add(h).at[:, 1:].add(-h)
                w = fix(p[:-1], p[1:], .1)
                p = p.at[:-1].add(w).at[1:].add(-w)
                return p.at[0, 0].set(x[0, 0]).at[0, -1].set(x[0, -1])
            p = lax.fori_loop(0, 6, relax, p)
            return (p, (p - x) * 100), None
        return lax.scan(step, (x, v), None, length=20)[0]
    g = np.stack([*np.mgrid[0:24, 0:24] * .1, np.zeros((24, 24))], -1).astype(np.float32)
    return Work(f, [g, normal(24, 24, 3, scale=.1)], tolerance=1e-2)


@daily("ising_checkerboard_sweeps")
def _():
    def f(s, key):
        i = jnp.arange(96)
        even = (i[:, None] + i) % 2 == 0

        def sweep(s, k):
            for mask, k in zip((even, ~even), jax.random.split(k)):
                h = jnp.roll(s, 1, 0) + jnp.roll(s, -1, 0) + jnp.roll(s, 1, 1) + jnp.roll(s, -1, 1)
                flip = jax.random.uniform(k, s.shape) < jnp.exp(-.88 * (s * h).astype(jnp.float32))
                s = jnp.where(mask & flip, -s, s)
            return s, s.sum()
        return lax.scan(sweep, s, jax.random.split(wrap(key), 20))
    return Work(f, [(below(2, 96, 96) * 2 - 1).astype(np.int32), KEY], tolerance=0, flips=.2)


@daily("pic_deposit_push_1d")
def _():
    def f(x, v):
        def step(c, _):
            x, v = c
            g = x * 128
            i = jnp.floor(g).astype(jnp.int32)
            w = g - i
            rho = jnp.zeros(128).at[i % 128].add(1 - w).at[(i + 1) % 128].add(w) / 40 - 1
            e = -jnp.cumsum(rho) / 128
            e = e - e.mean()
            v = v - .05 * ((1 - w) * e[i % 128] + w * e[(i + 1) % 128])
            return ((x + .05 * v) % 1, v), (e * e).sum()
        return lax.scan(step, (x, v), None, length=30)
    return Work(f, [uniform(5120), normal(5120, scale=.1)], tolerance=1e-2, flips=.05)


@daily("quantum_circuit_gates_10q")
def _():
    def f(theta):
        s = jnp.zeros(1024, jnp.complex64).at[0].set(1)
        for l in range(3):
            for q in range(10):
                c, d = jnp.cos(theta[l, q] / 2), jnp.sin(theta[l, q] / 2)
                m = jnp.array([[c, -1j * d], [-1j * d, c]])
                s = jnp.einsum("ab,xbz->xaz", m, s.reshape(1 << q, 2, -1)).reshape(-1)
            for q in range(9):
                t = s.reshape(1 << q, 2, 2, -1)
                s = jnp.concatenate([t[:, :1], t[:, 1:, ::-1]], 1).reshape(-1)
        return jnp.abs(s) ** 2
    return Work(f, [uniform(3, 10) * 6], tolerance=1e-3)


# ---- Optimisers, small linear algebra
@daily("lbfgs_two_loop_rosenbrock")
def _():
    def f(x):
        fun = lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        g = jax.grad(fun)

        def step(c, _):
            x, gx, s, y, rho = c
            q, al = gx, []
            for i in range(5):
                a = rho[i] * jnp.vdot(s[i], q)
                q = q - a * y[i]
                al.append(a)
            q = q * (jnp.vdot(s[0], y[0]) + 1e-6) / (jnp.vdot(y[0], y[0]) + 1e-6)
            for i in reversed(range(5)):
                q = q + s[i] * (al[i] - rho[i] * jnp.vdot(y[i], q))
            n = x - 1e-3 * q / (1 + jnp.linalg.norm(q))
            gn = g(n)
            ds, dy = n - x, gn - gx
            return (n, gn, jnp.roll(s, 1, 0).at[0].set(ds), jnp.roll(y, 1, 0).at[0].set(dy), jnp.roll(rho, 1).at[0].set(1 / (jnp.vdot(ds, dy) + 1e-6))), fun(n)
        z = jnp.zeros((5, 120))
        return lax.scan(step, (x, g(x), z, z, jnp.zeros(5)), None, length=40)[1]
    return Work(f, [normal(120, scale=.3)], tolerance=1e-2)


@daily("cma_es_generations_12")
def _():
    def f(m, key):
        def gen(c, k):
            m, C, sig = c
            L = jnp.linalg.cholesky(C + 1e-6 * jnp.eye(12))
            z = jax.random.normal(k, (24, 12)) @ L.T
            x = m + sig * z
            o = jnp.argsort(((x - 1) ** 2).sum(1))[:12]
            w = jnp.log(12.5) - jnp.log(jnp.arange(1, 13))
            w = w / w.sum()
            zs = z[o]
            return (m + sig * w @ zs, .8 * C + .2 * jnp.einsum("k,ki,kj->ij", w, zs, zs), sig * .97), None
        return lax.scan(gen, (m, jnp.eye(12), 1.), jax.random.split(wrap(key), 20))[0]
    return Work(f, [normal(12), KEY], tolerance=1e-2)


@daily("admm_lasso_cholesky_solve")
def _():
    def f(a, b):
        l = jnp.linalg.cholesky(a.T @ a + jnp.eye(90))
        atb = a.T @ b

        def step(_, c):
            z, u = c
            x = jax.scipy.linalg.cho_solve((l, True), atb + z - u)
            n = jnp.sign(x + u) * jnp.maximum(jnp.abs(x + u) - .1, 0)
            return n, u + x - n
        return lax.fori_loop(0, 40, step, (jnp.zeros(90), jnp.zeros(90)))
    return Work(f, [normal(200, 90), normal(200)], tolerance=1e-3)


@daily("ukf_sigma_points_batch_5")
def _():
    def f(m, P, ys):
        def one(m, P, y):
            def step(c, y):
                m, P = c
                L = jnp.linalg.cholesky(3 * P + 1e-5 * jnp.eye(5))
                X = jnp.concatenate([m[None], m + L.T, m - L.T])
                X = X + .1 * jnp.stack([X[:, 1], jnp.sin(X[:, 2]), X[:, 3], -X[:, 0], X[:, 4] * .9], 1)
                w = jnp.full(11, 1 / 11.)
                m = w @ X
                D = X - m
                P = (w[:, None] * D).T @ D + .01 * jnp.eye(5)
                Z = jnp.hypot(X[:, 0], X[:, 3])
                z = w @ Z
                S = w @ (Z - z) ** 2 + .1
                K = (w * (Z - z)) @ D / S
                return (m + K * (y - z), P - jnp.outer(K, K) * S), m
            return lax.scan(step, (m, P), y)[1]
        return jax.vmap(one)(m, P, ys)
    return Work(f, [normal(40, 5), np.tile(np.eye(5, dtype=np.float32), (40, 1, 1)), uniform(40, 30)], tolerance=2e-2)


@daily("kabsch_align_batch_svd")
def _():
    def f(p, q):
        p, q = p - p.mean(1, keepdims=True), q - q.mean(1, keepdims=True)
        u, s, vt = jnp.linalg.svd(jnp.einsum("bni,bnj->bij", p, q))
        d = jnp.sign(jnp.linalg.det(u @ vt))
        r = (u * jnp.stack([jnp.ones_like(d), jnp.ones_like(d), d], -1)[:, None]) @ vt
        return jnp.sqrt(((jnp.einsum("bni,bij->bnj", p, r) - q) ** 2).sum(-1).mean(-1))
    return Work(f, [normal(100, 57, 3), normal(100, 57, 3, seed=1)], tolerance=1e-3)


@daily("gp_matern_posterior_120")
def _():
    def f(x, y, xs):
        def k(a, b):
            r = jnp.sqrt(jnp.maximum(((a[:, None] - b) ** 2).sum(-1), 1e-12)) * 5 ** .5
            return (1 + r + r * r / 3) * jnp.exp(-r)
        l = jnp.linalg.cholesky(k(x, x) + .1 * jnp.eye(120))
        ks = k(x, xs)
        v = jax.scipy.linalg.solve_triangular(l, ks, lower=True)
        return ks.T @ jax.scipy.linalg.cho_solve((l, True), y), 1 - (v * v).sum(0)
    return Work(f, [normal(120, 4), normal(120), normal(150, 4, seed=1)], tolerance=1e-2)


# ---- Shapes, orders, bits
@daily("einsum_tensor_train_contract")
def _():
    def f(a, b, c, x):
        return jnp.einsum("irj,jsk,ktl,brst->bil", a, b, c, x)
    return Work(f, [normal(3, 11, 7), normal(7, 9, 5), normal(5, 10, 4), normal(50, 11, 9, 10)], tolerance=1e-3)


@daily("cumulative_axes_f16_logsumexp")
def _():
    def f(x):
        return jnp.cumsum(x, 0), jnp.cumsum(x, 1), jnp.cumsum(x[..., ::-1], 2)[..., ::-1], lax.cumlogsumexp(x, 1), lax.cummax(x, 0)
    return Work(f, [normal(37, 45, 51)], tolerance=1e-3)


@daily("popcount_hamming_bitpack_u32")
def _():
    def f(x, y):
        pack = lambda b: (b.reshape(b.shape[0], -1, 32).astype(jnp.uint32) << jnp.arange(32, dtype=jnp.uint32)).sum(-1, dtype=jnp.uint32)
        a, b = pack(x > 0), pack(y > 0)
        d = lax.population_count(a[:, None] ^ b).sum(-1)
        return d, jnp.argmin(d, 1)
    return Work(f, [normal(150, 256), normal(170, 256, seed=1)], tolerance=0)


@daily("argsort_rank_spearman_rows")
def _():
    def f(x, y):
        rank = lambda a: jnp.argsort(jnp.argsort(a, -1), -1).astype(jnp.float32)
        a, b = rank(x), rank(y)
        a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
        return (a * b).sum(-1) / jnp.sqrt((a * a).sum(-1) * (b * b).sum(-1)), jnp.argmax(x, 0), jnp.argmin(y, 1)
    return Work(f, [normal(80, 300), normal(80, 300, seed=1)], tolerance=1e-3)


@daily("roll_flip_pad_reflect_tiles")
def _():
    def f(x, k):
        y = jnp.pad(x, ((0, 0), (5, 6), (7, 4), (0, 0)), mode="reflect")
        y = jnp.roll(y, k, (1, 2))[:, ::-1]
        y = y[:, :70, :70].reshape(6, 7, 10, 7, 10, 5).transpose(0, 1, 3, 2, 4, 5)
        return jnp.rot90(y, 1, (3, 4)), y.max((3, 4))
    return Work(f, [normal(6, 61, 60, 5), np.int32([3, -9])], tolerance=1e-5)


@daily("mandelbrot_smooth_complex")
def _():
    def f(c):
        def step(_, s):
            z, n = s
            z = jnp.where(jnp.abs(z) < 4, z * z + c, z)
            return z, n + (jnp.abs(z) < 4)
        z, n = lax.fori_loop(0, 40, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))
        return n + 1 - jnp.log2(jnp.maximum(jnp.log(jnp.maximum(jnp.abs(z), 1.01)), 1e-3))
    y, x = np.mgrid[-1.2:1.2:121j, -2:.8:141j].astype(np.float32)
    return Work(f, [(x + 1j * y).astype(np.complex64)], tolerance=1e-2, flips=.02)


@daily("hist2d_digitize_entropy")
def _():
    def f(x, y):
        e = jnp.linspace(-3, 3, 33)
        i, j = jnp.digitize(x, e), jnp.digitize(y, e)
        h = jnp.zeros((34, 34)).at[i, j].add(1.)
        p = h / h.sum()
        q = p.sum(1, keepdims=True) * p.sum(0, keepdims=True)
        return (p * jnp.log((p + 1e-9) / (q + 1e-9))).sum(), h
    return Work(f, [normal(20000), normal(20000, seed=1)], tolerance=1e-3)


@daily("sparse_csr_spmm_gather_grad")
def _():
    def f(v, x, row, col):
        y = jax.ops.segment_sum(v[:, None] * x[col], row, 500, indices_are_sorted=True)
        return (jax.nn.relu(y) ** 2).sum()
    return Work(jax.value_and_grad(f, (0, 1)), [normal(7000), normal(400, 24), np.sort(below(500, 7000)), below(400, 7000, seed=1)], tolerance=1e-3)


@daily("lstm_peephole_masked_grad")
def _():
    def f(xs, w, u, p, n):
        def step(s, t):
            h, c = s
            x, k = t
            i, g, o, q = jnp.split(x @ w + h @ u, 4, -1)
            i, g = jax.nn.sigmoid(i + p[0] * c), jax.nn.sigmoid(g + p[1] * c)
            d = g * c + i * jnp.tanh(q)
            h2 = jax.nn.sigmoid(o + p[2] * d) * jnp.tanh(d)
            m = (k < n)[:, None]
            return (jnp.where(m, h2, h), jnp.where(m, d, c)), h2
        z = jnp.zeros((13, 45))
        s, y = lax.scan(step, (z, z), (xs, jnp.arange(35)))
        return (s[0] ** 2).sum() + (y ** 2).mean()
    return Work(jax.value_and_grad(f, (0, 1, 2, 3)), [normal(35, 13, 21), normal(21, 180, scale=.2), normal(45, 180, scale=.2), normal(3, 45), below(35, 13) + 1], tolerance=1e-3)


@daily("fake_quant_int4_group_grad")
def _():
    def f(w, x):
        g = w.reshape(12, 16, 96)
        s = jnp.abs(g).max(1, keepdims=True) / 7
        q = g + lax.stop_gradient(jnp.clip(jnp.round(g / s), -8, 7) * s - g)
        return ((x @ q.reshape(192, 96)) ** 2).mean()
    return Work(jax.value_and_grad(f), [normal(192, 96), normal(130, 192)], tolerance=1e-3)


@daily("listnet_triplet_hard_mining_grad")
def _():
    def f(e, y):
        e = e / jnp.linalg.norm(e, axis=1, keepdims=True)
        d = 2 - 2 * e @ e.T
        same = y[:, None] == y
        hp = jnp.where(same, d, -jnp.inf).max(1)
        hn = jnp.where(same, jnp.inf, d).min(1)
        return jax.nn.relu(hp - hn + .2).mean() + jax.nn.logsumexp(jnp.where(same, -jnp.inf, -d), 1).mean()
    return Work(jax.value_and_grad(f), [normal(180, 40), below(12, 180)], tolerance=1e-3)


@daily("mdn_mixture_nll_grad")
def _():
    def f(x, y, w, v):
        h = jnp.tanh(x @ w) @ v
        lo, mu, ls = jnp.split(h.reshape(400, 8, 5), [1, 3], -1)
        z = (y[:, None] - mu) * jnp.exp(-ls)
        return -jax.nn.logsumexp(jax.nn.log_softmax(lo[..., 0]) - .5 * (z * z).sum(-1) - ls.sum(-1), -1).mean()
    return Work(jax.value_and_grad(f, (2, 3)), [normal(400, 10), normal(400, 2), normal(10, 50), normal(50, 40)], tolerance=1e-3)


@daily("neural_ode_dopri_adaptive")
def _():
    def f(y, w1, w2):
        g = lambda y: jnp.tanh(y @ w1) @ w2

        def step(c):
            t, h, y = c
            k1 = g(y)
            k2 = g(y + h * k1 / 2)
            k3 = g(y + .75 * h * k2)
            n = y + h * (2 / 9 * k1 + k2 / 3 + 4 / 9 * k3)
            k4 = g(n)
            e = jnp.sqrt(jnp.mean((h * (-5 / 72 * k1 + k2 / 12 + k3 / 9 - k4 / 8)) ** 2)) / 1e-4
            ok = e < 1
            return jnp.where(ok, t + h, t), jnp.minimum(h * jnp.clip(.9 * (e + 1e-9) ** (-1 / 3), .2, 5), 1 - jnp.where(ok, t + h, t) + 1e-6), jnp.where(ok, n, y)
        return lax.while_loop(lambda c: c[0] < 1, step, (0., .05, y))[2]
    return Work(f, [normal(30, 6), normal(6, 24), normal(24, 6)], tolerance=1e-2)


# ---- Images moved as they are
@daily("rot90_pixels_u8_batch")
def _():
    return Work(lambda x: jnp.rot90(x, 1, (1, 2)), [bytes_of_image(8, 123, 131, 3)], tolerance=0)


@daily("pad_wrap_pixels_u8")
def _():
    return Work(lambda x: jnp.pad(x, ((0, 0), (7, 9), (11, 5), (0, 0)), mode="wrap"), [bytes_of_image(8, 125, 117, 3)], tolerance=0)


@daily("pad_reflect_edge_planes")
def _():
    def f(x, y):
        return jnp.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="reflect"), jnp.pad(y, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    return Work(f, [normal(8, 113, 119, 3), normal(8, 16, 63, 65, dtype="bf16")], tolerance=1e-2)


@daily("mosaic_mirrored_flip_roll_u8")
def _():
    def f(a, b, k):
        y = jnp.concatenate([jnp.concatenate([a, b[:, :, ::-1]], 2), jnp.concatenate([b[:, ::-1], a], 2)], 1)
        return jnp.roll(y[:, ::-1], k, (1, 2))[:, 5:100, 3:97]
    return Work(f, [bytes_of_image(4, 65, 63, 3), bytes_of_image(4, 65, 63, 3)[::-1].copy(), np.int32([4, -7])], tolerance=0)


@daily("demosaic_bilinear_bayer")
def _():
    def f(x):
        h, w = x.shape
        x = x.astype(jnp.float32)
        p = jnp.pad(x, 1, mode="reflect")
        s = lambda a, b: p[1 + a:1 + a + h, 1 + b:1 + b + w]
        cross, diag = (s(-1, 0) + s(1, 0) + s(0, -1) + s(0, 1)) / 4, (s(-1, -1) + s(1, 1) + s(-1, 1) + s(1, -1)) / 4
        side, above = (s(0, -1) + s(0, 1)) / 2, (s(-1, 0) + s(1, 0)) / 2
        i, j = jnp.arange(h)[:, None] % 2, jnp.arange(w) % 2
        pick = lambda a, b: jnp.where((i == a) & (j == b), x, jnp.where(i == a, side, jnp.where(j == b, above, diag)))
        g = jnp.where((i + j) % 2 == 1, x, cross)
        return jnp.clip(jnp.stack([pick(0, 0), g, pick(1, 1)], -1), 0, 255).astype(jnp.uint8)
    return Work(f, [bytes_of_image(301, 299)], tolerance=1, flips=1e-2)


# ---- Loops over small states
@daily("gridworld_value_iteration_walls")
def _():
    def f(r, wall):
        def step(_, v):
            p = jnp.pad(v, 1, mode="edge")
            q = jnp.stack([p[:-2, 1:-1], p[2:, 1:-1], p[1:-1, :-2], p[1:-1, 2:]])
            return jnp.where(wall, -9., r + .97 * q.max(0))
        return lax.fori_loop(0, 60, step, jnp.zeros_like(r))
    return Work(f, [normal(61, 67), uniform(61, 67) < .15], tolerance=1e-3)


@daily("floyd_warshall_next_90")
def _():
    def f(d):
        def step(k, c):
            d, n = c
            t = d[:, k, None] + d[k][None]
            return jnp.minimum(t, d), jnp.where(t < d, n[:, k, None], n)
        return lax.fori_loop(0, 90, step, (d, jnp.broadcast_to(jnp.arange(90), (90, 90))))
    return Work(f, [uniform(90, 90) * 10], tolerance=1e-4, flips=.02)


@daily("elastic_wave_staggered_2d")
def _():
    def f(v):
        def step(c, _):
            vx, vy, s = c
            s = s.at[1:, 1:].add(-.3 * (jnp.diff(vx, axis=0)[:, 1:] + jnp.diff(vy, axis=1)[1:]))
            return (vx.at[:-1].add(-.3 * jnp.diff(s, axis=0)), vy.at[:, :-1].add(-.3 * jnp.diff(s, axis=1)), s), s[40, 40]
        z = jnp.zeros_like(v)
        return lax.scan(step, (v, z, z), None, length=40)
    return Work(f, [normal(101, 97, scale=.1)], tolerance=1e-2)


@daily("order_book_match_scan")
def _():
    def f(side, px, qty):
        def step(book, o):
            s, p, q = o
            i = jnp.arange(100)
            avail = jnp.where(s == 0, jnp.where(i <= p, book[1], 0), jnp.where(i >= p, book[0], 0))
            order = jnp.where(s == 0, jnp.cumsum(avail), jnp.cumsum(avail[::-1])[::-1])
            take = jnp.clip(q - (order - avail), 0, avail)
            return book.at[1 - s].add(-take).at[s, p].add(q - take.sum()), take.sum()
        return lax.scan(step, jnp.zeros((2, 100)), (side, px, qty))
    return Work(f, [below(2, 1500), 30 + below(40, 1500), np.floor(uniform(1500) * 10)])


# ---- Gradients
@daily("stacked_layers_scan_grad")
def _():
    def f(w, b, x):
        return (lax.scan(lambda h, p: (jnp.tanh(h @ p[0] + p[1]), None), x, (w, b))[0] ** 2).mean()
    return Work(jax.value_and_grad(f, (0, 1)), [normal(10, 70, 70, scale=.15), normal(10, 70), normal(33, 70)], tolerance=1e-3)


@daily("depthwise_dilated_tcn_grad")
def _():
    def f(w, x):
        for i in range(3):
            d = 2 ** i
            p = jnp.pad(x, ((0, 0), (2 * d, 0), (0, 0)))
            x = x + jax.nn.relu(sum(p[:, k * d:k * d + x.shape[1]] * w[i, k] for k in range(3)))
        return (x ** 2).mean()
    return Work(jax.value_and_grad(f, (0, 1)), [normal(3, 3, 20), normal(8, 150, 20)], tolerance=1e-3)


@daily("bspline_surface_fit_grad")
def _():
    def f(c, u, target):
        def basis(t):
            i = jnp.floor(t).astype(jnp.int32)
            x = t - i
            return i, jnp.stack([(1 - x) ** 3, 3 * x ** 3 - 6 * x * x + 4, -3 * x ** 3 + 3 * x * x + 3 * x + 1, x ** 3], -1) / 6
        (i, wu), (j, wv) = basis(u[:, 0]), basis(u[:, 1])
        p = c[i[:, None, None] + jnp.arange(4)[:, None], j[:, None, None] + jnp.arange(4)]
        return ((jnp.einsum("nabk,na,nb->nk", p, wu, wv) - target) ** 2).mean()
    return Work(jax.value_and_grad(f), [normal(20, 22, 3), uniform(700, 2) * 15, normal(700, 3)], tolerance=1e-3)


@daily("two_tower_sampled_softmax_grad")
def _():
    def f(u, v, ui, vi, logq):
        z = jnp.tanh(u[ui]) @ jnp.tanh(v[vi]).T / .1 - logq
        n = jnp.arange(180)
        z = jnp.where((vi[:, None] == vi) & (n[:, None] != n), -1e9, z)
        return -jax.nn.log_softmax(z)[n, n].mean()
    return Work(jax.value_and_grad(f, (0, 1)), [normal(3000, 24), normal(2000, 24), below(3000, 180), below(2000, 180), uniform(180)], tolerance=1e-3)
