"""More whole programs, in bench/models.py's table: training steps, optimizers, losses and norms with their gradients,
and what users of simulators, audio, graphs and images write."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workloads import Work, below, normal, registry, uniform, with_vjp

IDIOMS = {}
idiom = registry(IDIOMS)
KEY = np.array([0, 11], np.uint32)
tree_map = jax.tree_util.tree_map


def odd_leaves(seed, scale=1.0):
    """37 parameters, as a small residual network has them: no size a power of two."""
    shapes = [(3, 3, 3, 31), (31,), (31,)]
    for a, b in ((31, 61), (61, 61), (61, 123), (123, 123), (123, 247)):
        shapes += [(3, 3, a, b), (b,), (b,), (1, 1, a, b), (b,), (b,)]
    shapes += [(247, 1001), (1001,), (777, 129), (5,)]
    return [normal(*s, seed=seed + i, scale=scale) for i, s in enumerate(shapes)]


def count(tree):
    return sum(x.size for x in jax.tree_util.tree_leaves(tree))


# ---- Optimizers: every parameter, gradient and moment once
@idiom("adamw_ema_odd_leaves")
def _():
    def f(p, m, v, ema, g, step):
        c1, c2 = 1 - 0.9 ** step, 1 - 0.999 ** step
        m = tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        p = tree_map(lambda p, m, v: p - 1e-3 * (m / c1 / (jnp.sqrt(v / c2) + 1e-8) + 0.01 * p), p, m, v)
        return p, m, v, tree_map(lambda e, p: 0.999 * e + 0.001 * p, ema, p)
    p = odd_leaves(0)
    return Work(f, [p, odd_leaves(100), tree_map(np.abs, odd_leaves(200)), odd_leaves(300), odd_leaves(400), np.float32(7)], bytes=36 * count(p))


@idiom("lion_clip_8M")
def _():
    def f(p, m, g):
        norm = jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree_util.tree_leaves(g)))
        g = tree_map(lambda x: x * jnp.minimum(1, 1 / norm), g)
        p = tree_map(lambda p, m, g: p - 1e-4 * (jnp.sign(0.9 * m + 0.1 * g) + 0.1 * p), p, m, g)
        return p, tree_map(lambda m, g: 0.99 * m + 0.01 * g, m, g)
    trees = [{k: normal(1024, 1024, seed=10 * s + k) for k in range(8)} for s in range(3)]
    return Work(f, trees, bytes=24 * count(trees[0]), flips=1e-4)


@idiom("adafactor_4M")
def _():
    def one(p, row, col, g):
        u = g * g + 1e-30
        row, col = 0.9 * row + 0.1 * u.mean(1), 0.9 * col + 0.1 * u.mean(0)
        y = g * lax.rsqrt(row / row.mean())[:, None] * lax.rsqrt(col)[None]
        y = y / jnp.maximum(1, jnp.sqrt((y * y).mean()))
        return p - 1e-2 * jnp.maximum(1e-3, jnp.sqrt((p * p).mean())) * y, row, col

    def f(*trees):
        return [one(*t) for t in zip(*trees)]
    shapes = [(1024, 1024), (768, 2048), (2048, 768)]
    p, g = ([normal(*s, seed=i + k) for i, s in enumerate(shapes)] for k in (0, 9))
    return Work(f, [p, [uniform(s[0]) for s in shapes], [uniform(s[1]) for s in shapes], g], bytes=12 * count(p), tolerance=1e-3)


@idiom("sgd_nesterov_accumulate")
def _():
    """Four micro-batches' gradients averaged, then a step with momentum."""
    def f(p, m, gs):
        g = tree_map(lambda x: x.mean(0), gs)
        m = tree_map(lambda m, g, p: 0.9 * m + g + 1e-4 * p, m, g, p)
        return tree_map(lambda p, m, g: p - 0.1 * (0.9 * m + g), p, m, g), m
    p, m = ([normal(1000, 777, seed=i + k) for i in range(4)] for k in (0, 9))
    return Work(f, [p, m, [normal(4, 1000, 777, seed=30 + i) for i in range(4)]], bytes=32 * count(p))


# ---- Norms and losses with their gradients
@idiom("layernorm_grad_4096x768")
def _():
    def f(x, g, b):
        m = x.mean(-1, keepdims=True)
        v = ((x - m) ** 2).mean(-1, keepdims=True)
        return (x - m) * lax.rsqrt(v + 1e-5) * g + b
    return Work(with_vjp(f), [normal(4096, 768), normal(768), normal(768, seed=1), normal(4096, 768, seed=2)], bytes=16 * 4096 * 768, tolerance=1e-3)


@idiom("batchnorm_grad_nhwc")
def _():
    def f(x, g, b):
        m, v = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return jax.nn.relu((x - m) * lax.rsqrt(v + 1e-5) * g + b)
    return Work(with_vjp(f), [normal(32, 28, 28, 64), normal(64), normal(64, seed=1), normal(32, 28, 28, 64, seed=2)], bytes=24 * 32 * 784 * 64, tolerance=1e-3)


@idiom("groupnorm_silu_grad_nchw")
def _():
    def f(x, g, b):
        y = x.reshape(16, 8, -1)
        y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
        return jax.nn.silu(y.reshape(x.shape) * g[:, None, None] + b[:, None, None])
    return Work(with_vjp(f), [normal(16, 64, 32, 32), normal(64), normal(64, seed=1), normal(16, 64, 32, 32, seed=2)], bytes=20 * 16 * 64 * 1024, tolerance=1e-3)


@idiom("smoothed_ce_one_hot_grad")
def _():
    def loss(z, y):
        target = jax.nn.one_hot(y, 1000) * 0.9 + 1e-4
        return -(target * jax.nn.log_softmax(z)).sum(-1).mean()
    return Work(jax.value_and_grad(loss), [normal(2048, 1000), below(1000, 2048)], bytes=8 * 2048 * 1000, tolerance=1e-3)


@idiom("info_nce_grad_1024")
def _():
    def loss(a, b, t):
        a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
        b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
        s = a @ b.T * jnp.exp(t)
        d = jnp.diagonal(s)
        return (jax.nn.logsumexp(s, 0) - d).mean() + (jax.nn.logsumexp(s, 1) - d).mean()
    return Work(jax.value_and_grad(loss, (0, 1, 2)), [normal(1024, 128), normal(1024, 128, seed=1), np.float32(1)], flops=6 * 1024 * 1024 * 128, tolerance=1e-3)


@idiom("focal_dice_segmentation_grad")
def _():
    def loss(z, y):
        p = jax.nn.sigmoid(z)
        pt = jnp.where(y > 0, p, 1 - p)
        focal = -((1 - pt) ** 2 * jnp.log(pt + 1e-6)).mean()
        inter = (p * y).sum((1, 2))
        return focal + (1 - (2 * inter + 1) / (p.sum((1, 2)) + y.sum((1, 2)) + 1)).mean()
    return Work(jax.value_and_grad(loss), [normal(16, 256, 256), below(2, 16, 256, 256).astype(np.float32)], bytes=12 * 16 * 65536, tolerance=1e-3)


@idiom("lambda_rank_grad")
def _():
    def loss(s, rel):
        d = s[:, :, None] - s[:, None]
        g = (rel[:, :, None] > rel[:, None]).astype(jnp.float32)
        rank = (d < 0).sum(-1)
        w = jnp.abs(2. ** rel[:, :, None] - 2. ** rel[:, None]) / jnp.log2(2. + rank)[:, :, None]
        return (g * lax.stop_gradient(w) * jax.nn.softplus(-d)).sum() / 32
    return Work(jax.value_and_grad(loss), [normal(32, 120), below(5, 32, 120).astype(np.float32)], tolerance=1e-3)


# ---- Training steps
@idiom("mlp_train_scan_20")
def _():
    """Twenty SGD steps of a 784-128-10 network, one minibatch a turn."""
    def loss(p, x, y):
        h = jax.nn.relu(x @ p[0] + p[1])
        return -jnp.take_along_axis(jax.nn.log_softmax(h @ p[2] + p[3]), y[:, None], 1).mean()

    def f(p, xs, ys):
        def step(p, t):
            l, g = jax.value_and_grad(loss)(p, *t)
            return tree_map(lambda p, g: p - 0.1 * g, p, g), l
        return lax.scan(step, p, (xs, ys))
    p = (normal(784, 128, scale=.03), np.zeros(128, np.float32), normal(128, 10, scale=.1), np.zeros(10, np.float32))
    return Work(f, [p, normal(20, 64, 784), below(10, 20, 64)], flops=20 * 4 * 64 * 784 * 128, tolerance=1e-2)


@idiom("transformer_train_step_small")
def _():
    d, heads, layers, t, b, vocab = 128, 4, 2, 64, 8, 512

    def norm(x, g):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g

    def loss(p, tokens):
        x = p["emb"][tokens[:, :-1]] + p["pos"]
        for l in p["layers"]:
            q, k, v = jnp.split(norm(x, l["g1"]) @ l["qkv"], 3, -1)
            q, k, v = (a.reshape(b, t, heads, -1).transpose(0, 2, 1, 3) for a in (q, k, v))
            s = q @ k.swapaxes(-1, -2) / np.sqrt(d / heads)
            s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e9)
            x = x + (jax.nn.softmax(s) @ v).transpose(0, 2, 1, 3).reshape(b, t, d) @ l["o"]
            x = x + jax.nn.gelu(norm(x, l["g2"]) @ l["w1"] + l["b1"]) @ l["w2"]
        z = norm(x, p["g"]) @ p["emb"].T
        return -jnp.take_along_axis(jax.nn.log_softmax(z), tokens[:, 1:, None], -1).mean()

    def f(p, m, v, tokens):
        l, g = jax.value_and_grad(loss)(p, tokens)
        m = tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        return l, tree_map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-4), p, m, v), m, v

    def layer(i):
        return {"qkv": normal(d, 3 * d, scale=.08, seed=i), "o": normal(d, d, scale=.08, seed=i + 1), "w1": normal(d, 4 * d, scale=.08, seed=i + 2),
                "w2": normal(4 * d, d, scale=.04, seed=i + 3), "b1": np.zeros(4 * d, np.float32), "g1": np.ones(d, np.float32), "g2": np.ones(d, np.float32)}
    p = {"emb": normal(vocab, d, scale=.1), "pos": normal(t, d, scale=.1), "g": np.ones(d, np.float32), "layers": [layer(10 * i) for i in range(layers)]}
    zero = tree_map(np.zeros_like, p)
    return Work(f, [p, zero, zero, below(vocab, b, t + 1)], flops=6 * b * t * (layers * 12 * d * d + vocab * d), tolerance=1e-2, flips=1e-3)


@idiom("cnn_cifar_train_step")
def _():
    def conv(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(p, x, y):
        for w in p[:3]:
            x = jax.nn.relu(conv(x, w))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        z = x.reshape(x.shape[0], -1) @ p[3]
        return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1).mean()

    def f(p, m, x, y):
        l, g = jax.value_and_grad(loss)(p, x, y)
        m = tree_map(lambda m, g: 0.9 * m + g, m, g)
        return l, tree_map(lambda p, m: p - 0.01 * m, p, m), m
    p = [normal(3, 3, 3, 32, scale=.2), normal(3, 3, 32, 64, scale=.06), normal(3, 3, 64, 64, scale=.04), normal(1024, 10, scale=.03)]
    return Work(f, [p, [np.zeros_like(x) for x in p], normal(32, 32, 32, 3), below(10, 32)], flops=6 * 32 * 9 * (1024 * 96 + 256 * 2048 + 64 * 4096), tolerance=1e-2)


@idiom("dqn_update_soft_target")
def _():
    def net(p, x):
        for w, b in p[:-1]:
            x = jax.nn.relu(x @ w + b)
        return x @ p[-1][0] + p[-1][1]

    def f(p, target, m, s, a, r, s2, done):
        def loss(p):
            best = net(p, s2).argmax(-1)
            q2 = jnp.take_along_axis(net(target, s2), best[:, None], 1)[:, 0]
            y = lax.stop_gradient(r + 0.99 * (1 - done) * q2)
            e = net(p, s)[jnp.arange(256), a] - y
            return jnp.where(jnp.abs(e) < 1, .5 * e * e, jnp.abs(e) - .5).mean()
        l, g = jax.value_and_grad(loss)(p)
        m = tree_map(lambda m, g: .9 * m + .1 * g, m, g)
        p = tree_map(lambda p, m: p - 1e-3 * m, p, m)
        return l, p, m, tree_map(lambda t, p: .995 * t + .005 * p, target, p)
    sizes = (16, 128, 128, 6)
    p = [(normal(a, b, scale=.15, seed=a), np.zeros(b, np.float32)) for a, b in zip(sizes, sizes[1:])]
    return Work(f, [p, p, tree_map(np.zeros_like, p), normal(256, 16), below(6, 256), normal(256), normal(256, 16, seed=1), below(2, 256).astype(np.float32)],
                flops=2 * 256 * (2048 + 16384 + 768) * 6, tolerance=1e-3)


@idiom("gae_returns_256_x_512")
def _():
    def f(r, v, done):
        nxt = jnp.concatenate([v[1:], v[-1:]])
        delta = r + .99 * nxt * (1 - done) - v

        def back(a, t):
            d, n = t
            a = d + .99 * .95 * (1 - n) * a
            return a, a
        adv = lax.scan(back, jnp.zeros(512), (delta, done), reverse=True)[1]
        return (adv - adv.mean()) / (adv.std() + 1e-8), adv + v
    return Work(f, [normal(256, 512), normal(256, 512, seed=1), (uniform(256, 512) < .02).astype(np.float32)], bytes=20 * 256 * 512, tolerance=1e-3)


@idiom("ddim_denoise_mlp_x_20")
def _():
    def f(x, w0, wt, w1, w2, alpha):
        freq = 2. ** jnp.arange(8)

        def step(x, t):
            i, a, b = t
            e = jnp.concatenate([jnp.sin(i * freq), jnp.cos(i * freq)])
            h = jax.nn.silu(x @ w0 + e @ wt)
            eps = jax.nn.silu(h @ w1) @ w2
            x0 = jnp.clip((x - jnp.sqrt(1 - a) * eps) / jnp.sqrt(a), -1, 1)
            return jnp.sqrt(b) * x0 + jnp.sqrt(1 - b) * eps, None
        return lax.scan(step, x, (jnp.arange(20) / 20., alpha[1:][::-1], alpha[:-1][::-1]))[0]
    return Work(f, [normal(256, 64), normal(64, 256, scale=.1), normal(16, 256, scale=.1), normal(256, 256, scale=.06), normal(256, 64, scale=.06), np.linspace(.99, .05, 21, dtype=np.float32)],
                flops=20 * 2 * 256 * (64 * 256 * 2 + 256 * 256), tolerance=1e-2)


@idiom("coupling_flow_grad")
def _():
    def nll(p, x):
        logdet = 0
        for w1, w2 in p:
            a, b = jnp.split(x, 2, -1)
            s, t = jnp.split(jnp.tanh(a @ w1) @ w2, 2, -1)
            s = jnp.tanh(s)
            x, logdet = jnp.concatenate([b * jnp.exp(s) + t, a], -1), logdet + s.sum(-1)
        return (.5 * (x * x).sum(-1) - logdet).mean()
    return Work(jax.value_and_grad(nll), [[(normal(16, 64, scale=.2, seed=i), normal(64, 32, scale=.1, seed=i + 9)) for i in range(6)], normal(1024, 32)], tolerance=1e-3)


@idiom("vae_gumbel_elbo_grad")
def _():
    def loss(p, x, key):
        z = (jnp.tanh(x @ p[0]) @ p[1]).reshape(-1, 20, 10)
        g = jax.random.gumbel(jax.random.wrap_key_data(key, impl="threefry2x32"), z.shape)
        q = jax.nn.softmax((z + g) / .7)
        y = jnp.tanh(q.reshape(-1, 200) @ p[2]) @ p[3]
        lp = jax.nn.log_softmax(z)
        bce = (jnp.maximum(y, 0) - y * x + jnp.log1p(jnp.exp(-jnp.abs(y)))).sum(-1)
        return (bce + (jnp.exp(lp) * (lp + np.log(10))).sum((1, 2))).mean()
    p = [normal(784, 256, scale=.04), normal(256, 200, scale=.06), normal(200, 256, scale=.06), normal(256, 784, scale=.06)]
    return Work(jax.value_and_grad(loss), [p, uniform(128, 784), KEY], flops=6 * 128 * 2 * (784 * 256 + 256 * 200), tolerance=1e-3)


@idiom("vq_codebook_ema")
def _():
    def f(z, c, n, s):
        d = (z * z).sum(1, keepdims=True) - 2 * z @ c.T + (c * c).sum(1)
        at = d.argmin(1)
        hot = jax.nn.one_hot(at, 512)
        n, s = .99 * n + .01 * hot.sum(0), .99 * s + .01 * hot.T @ z
        return z + lax.stop_gradient(c[at] - z), ((c[at] - z) ** 2).mean(), s / (n[:, None] + 1e-5), n, s
    return Work(f, [normal(4096, 64), normal(512, 64, seed=1), uniform(512) + 1, normal(512, 64, seed=2)], flops=4 * 4096 * 512 * 64, tolerance=1e-3, flips=2e-3)


@idiom("embedding_bag_sgd_50k")
def _():
    def f(table, w, ids, y):
        def loss(table, w):
            z = table[ids].mean(1) @ w
            return (jnp.maximum(z, 0) - z * y + jnp.log1p(jnp.exp(-jnp.abs(z)))).mean()
        l, (gt, gw) = jax.value_and_grad(loss, (0, 1))(table, w)
        return l, table - .1 * gt, w - .1 * gw
    return Work(f, [normal(50000, 32), normal(32), below(50000, 1024, 20), below(2, 1024).astype(np.float32)], bytes=8 * 50000 * 32, tolerance=1e-3)


@idiom("gru_encoder_attention_decode")
def _():
    def gru(h, x, w, u):
        z, r, n = jnp.split(x @ w, 3, -1)
        uz, ur, un = jnp.split(h @ u, 3, -1)
        z = jax.nn.sigmoid(z + uz)
        return (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + ur) * un) + z * h

    def f(xs, we, ue, wd, ud, out, emb):
        def enc(h, x):
            h = gru(h, x, we, ue)
            return h, h
        h, keys = lax.scan(enc, jnp.zeros((8, 96)), xs)

        def dec(c, _):
            h, token = c
            a = jax.nn.softmax(jnp.einsum("bd,tbd->bt", h, keys) / 10, -1)
            ctx = jnp.einsum("bt,tbd->bd", a, keys)
            h = gru(h, jnp.concatenate([emb[token], ctx], -1), wd, ud)
            token = (h @ out).argmax(-1)
            return (h, token), token
        return lax.scan(dec, (h, jnp.zeros(8, jnp.int32)), None, 30)[1]
    return Work(f, [normal(40, 8, 48), normal(48, 288, scale=.1), normal(96, 288, scale=.1), normal(128, 288, scale=.1), normal(96, 288, scale=.1, seed=2), normal(96, 1000), normal(1000, 32)], tolerance=0, flips=.2)


@idiom("moe_ragged_sorted")
def _():
    def f(x, gate, up, down):
        w, at = lax.top_k(jax.nn.softmax(x @ gate), 2)
        flat = at.reshape(-1)
        order = jnp.argsort(flat)
        rows = x[order // 2]
        sizes = jnp.bincount(flat, length=8).astype(jnp.int32)
        y = lax.ragged_dot(jax.nn.silu(lax.ragged_dot(rows, up, sizes)), down, sizes)
        y = jnp.zeros_like(y).at[order].set(y)
        return (y.reshape(-1, 2, x.shape[1]) * w[..., None]).sum(1)
    return Work(f, [normal(1024, 256), normal(256, 8), normal(8, 256, 512, scale=.06), normal(8, 512, 256, scale=.05)], flops=8 * 1024 * 256 * 512, tolerance=1e-3)


@idiom("int8_mlp_requantised")
def _():
    def f(x, w1, w2, s1, s2):
        h = lax.dot_general(x, w1, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
        h = jnp.clip(jnp.round(jax.nn.relu(h * s1)), -127, 127).astype(jnp.int8)
        return lax.dot_general(h, w2, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32) * s2
    def q(*shape, seed=0):
        return np.random.default_rng(seed).integers(-127, 127, shape).astype(np.int8)
    return Work(f, [q(256, 768), q(768, 3072, seed=1), q(3072, 768, seed=2), uniform(3072) * np.float32(1e-4), uniform(768)], flops=4 * 256 * 768 * 3072, tolerance=1e-2, flips=1e-3)


@idiom("top_k_sampling_50k")
def _():
    def f(key, z, t):
        v, at = lax.top_k(z / t, 50)
        pick = jax.random.categorical(jax.random.wrap_key_data(key, impl="threefry2x32"), v)
        return at[jnp.arange(16), pick], jax.nn.log_softmax(v)
    return Work(f, [KEY, normal(16, 50257), np.float32(.8)], bytes=4 * 16 * 50257, tolerance=1e-3)


@idiom("alibi_attention_grad")
def _():
    def f(q, k, v):
        i = jnp.arange(256)
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8 - (2. ** -jnp.arange(1, 9))[:, None, None] * jnp.abs(i[:, None] - i[None])
        s = jnp.where(i[:, None] >= i[None], s, -jnp.inf)
        return jax.nn.softmax(s) @ v
    return Work(with_vjp(f), [normal(2, 8, 256, 64, seed=s) for s in range(4)], flops=12 * 16 * 256 * 256 * 64, tolerance=1e-3)


# ---- Graphs and points
@idiom("gcn_grad_cora")
def _():
    def loss(ws, x, src, dst, deg, y):
        for i, w in enumerate(ws):
            h = (x @ w) * deg[:, None]
            x = jax.ops.segment_sum(h[src], dst, 2708) * deg[:, None]
            x = jax.nn.relu(x) if i == 0 else x
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()
    src, dst = below(2708, 10556), below(2708, 10556, seed=1)
    deg = (1 / np.sqrt(np.bincount(dst, minlength=2708) + 1)).astype(np.float32)
    return Work(jax.value_and_grad(loss), [[normal(500, 16, scale=.05), normal(16, 7, scale=.3)], normal(2708, 500), src, dst, deg, below(7, 2708)], flops=4 * 2708 * 500 * 16, tolerance=1e-3)


@idiom("pointnet_group_max")
def _():
    def f(x, c, w1, w2):
        d = ((c[:, :, None] - x[:, None]) ** 2).sum(-1)
        _, at = lax.top_k(-d, 16)
        g = jax.vmap(lambda x, i: x[i])(x, at) - c[:, :, None]
        return (jax.nn.relu(jax.nn.relu(g @ w1) @ w2)).max(2)
    x = normal(8, 512, 3)
    return Work(f, [x, x[:, :64], normal(3, 32), normal(32, 64, scale=.2)], flops=2 * 8 * 64 * 16 * 32 * 67, tolerance=1e-3)


@idiom("label_propagation_10")
def _():
    def f(src, dst, w, y, known):
        def step(_, p):
            q = jax.ops.segment_sum(p[src] * w[:, None], dst, 3000)
            q = q / (q.sum(1, keepdims=True) + 1e-9)
            return jnp.where(known[:, None], y, q)
        return lax.fori_loop(0, 10, step, y)
    y = np.eye(8, dtype=np.float32)[below(8, 3000)]
    return Work(f, [below(3000, 30000), below(3000, 30000, seed=1), uniform(30000), y, uniform(3000) < .1], tolerance=1e-3)


# ---- Filters, sequences, statistics
@idiom("viterbi_backtrace_batch")
def _():
    def one(t, e):
        def fwd(s, x):
            z = s[:, None] + t
            return z.max(0) + x, z.argmax(0)
        s, back = lax.scan(fwd, e[0], e[1:])
        last = s.argmax()
        path = lax.scan(lambda k, b: (b[k], b[k]), last, back, reverse=True)[1]
        return jnp.append(path, last), s.max()
    return Work(lambda t, e: jax.vmap(one, (None, 0))(t, e), [normal(20, 20), normal(16, 200, 20, seed=1)], tolerance=1e-3, flips=.01)


@idiom("biquad_cascade_audio")
def _():
    def f(x, b, a):
        def section(x, c):
            b, a = c

            def tick(s, x):
                y = b[0] * x + s[0]
                return (b[1] * x - a[0] * y + s[1], b[2] * x - a[1] * y), y
            return lax.scan(tick, (jnp.zeros(8), jnp.zeros(8)), x)[1], None
        return lax.scan(section, x, (b, a))[0]
    return Work(f, [normal(4000, 8), np.float32([[.2, .4, .2]] * 4), np.float32([[-.5, .25]] * 4)], tolerance=1e-3)


@idiom("ekf_range_bearing")
def _():
    def f(z, u):
        q, r = jnp.eye(3) * .01, jnp.eye(2) * .1

        def move(x, u):
            return x + jnp.array([u[0] * jnp.cos(x[2]), u[0] * jnp.sin(x[2]), u[1]])

        def see(x):
            d = jnp.array([5., 3.]) - x[:2]
            return jnp.array([jnp.sqrt(d @ d), jnp.arctan2(d[1], d[0]) - x[2]])

        def step(c, t):
            x, p = c
            z, u = t
            g = jax.jacfwd(move)(x, u)
            x, p = move(x, u), g @ p @ g.T + q
            h = jax.jacfwd(see)(x)
            k = p @ h.T @ jnp.linalg.inv(h @ p @ h.T + r)
            return (x + k @ (z - see(x)), (jnp.eye(3) - k @ h) @ p), x
        return lax.scan(step, (jnp.zeros(3), jnp.eye(3)), (z, u))[1]
    return Work(f, [normal(300, 2) * np.float32(.1) + np.float32([4, .5]), normal(300, 2, scale=.05)], tolerance=1e-2)


@idiom("drawdown_rolling_returns")
def _():
    def f(r):
        w = jnp.exp(jnp.cumsum(r, 0))
        peak = lax.cummax(w, 0)
        c = jnp.pad(jnp.cumsum(r, 0), ((1, 0), (0, 0)))
        c2 = jnp.pad(jnp.cumsum(r * r, 0), ((1, 0), (0, 0)))
        mean, sq = (c[21:] - c[:-21]) / 21, (c2[21:] - c2[:-21]) / 21
        return (1 - w / peak).max(0), mean / jnp.sqrt(jnp.maximum(sq - mean * mean, 1e-12))
    return Work(f, [normal(2520, 256, scale=.01)], bytes=8 * 2520 * 256, tolerance=1e-2)


@idiom("natural_spline_eval")
def _():
    def f(x, y, q):
        h = jnp.diff(x)
        a = jnp.diag(jnp.r_[1, 2 * (h[1:] + h[:-1]), 1]) + jnp.diag(jnp.r_[0, h[1:]], 1) + jnp.diag(jnp.r_[h[:-1], 0], -1)
        m = jnp.linalg.solve(a, jnp.r_[0, 6 * jnp.diff(jnp.diff(y) / h), 0])
        i = jnp.clip(jnp.searchsorted(x, q) - 1, 0, len(h) - 1)
        l, r = x[i + 1] - q, q - x[i]
        return (m[i] * l ** 3 + m[i + 1] * r ** 3) / (6 * h[i]) + (y[i] / h[i] - m[i] * h[i] / 6) * l + (y[i + 1] / h[i] - m[i + 1] * h[i] / 6) * r
    return Work(f, [np.linspace(0, 1, 64, dtype=np.float32), normal(64), uniform(100000)], tolerance=1e-2)


@idiom("kmeans_plus_plus_init")
def _():
    def f(key, x):
        def pick(c, k):
            d, = c
            i = jax.random.categorical(jax.random.wrap_key_data(k, impl="threefry2x32"), jnp.log(d))
            return (jnp.minimum(d, ((x - x[i]) ** 2).sum(1) + 1e-9),), x[i]
        keys = jax.random.key_data(jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"), 16))
        return lax.scan(pick, (jnp.full(4096, 1.),), keys)[1]
    return Work(f, [KEY, normal(4096, 8)], tolerance=None)


@idiom("lbfgs_logistic_x_20")
def _():
    def f(x, y, w):
        def fun(w):
            return jax.nn.softplus(-y * (x @ w)).mean() + 1e-3 * (w * w).sum()
        grad = jax.grad(fun)

        def turn(c, _):
            w, g, s, t, rho = c
            def down(q, e):
                s, t, r = e
                a = r * (s @ q)
                return q - a * t, a
            q, al = lax.scan(down, g, (s, t, rho), reverse=True)
            def up(r, e):
                s, t, p, a = e
                return r + s * (a - p * (t @ r)), None
            d = lax.scan(up, q, (s, t, rho, al))[0]
            w2 = w - d
            g2 = grad(w2)
            ds, dg = w2 - w, g2 - g
            r = 1 / (ds @ dg + 1e-6)
            return (w2, g2, jnp.roll(s, -1, 0).at[-1].set(ds), jnp.roll(t, -1, 0).at[-1].set(dg), jnp.roll(rho, -1).at[-1].set(r)), fun(w2)
        z = jnp.zeros((6, 50))
        return lax.scan(turn, (w, grad(w), z, z, jnp.zeros(6)), None, 20)[1]
    return Work(f, [normal(1000, 50), np.sign(normal(1000)), np.zeros(50, np.float32)], tolerance=1e-2)


@idiom("gp_marginal_likelihood_grad")
def _():
    def nll(p, x, y):
        d = ((x[:, None] - x[None]) ** 2 * jnp.exp(-p[0])).sum(-1)
        k = jnp.exp(p[1] - .5 * d) + (jnp.exp(p[2]) + 1e-3) * jnp.eye(192)
        l = jnp.linalg.cholesky(k)
        a = jax.scipy.linalg.solve_triangular(l, y, lower=True)
        return .5 * (a @ a) + jnp.log(jnp.diagonal(l)).sum()
    return Work(jax.value_and_grad(nll), [np.zeros(3, np.float32), normal(192, 3), normal(192)], tolerance=1e-2)


# ---- Physics
@idiom("quantum_circuit_14_qubits")
def _():
    def f(angles):
        n = 14
        s = jnp.zeros(1 << n, jnp.complex64).at[0].set(1)

        def gate(s, u, k):
            return jnp.einsum("ab,xby->xay", u, s.reshape(1 << k, 2, -1)).reshape(-1)
        for layer in range(3):
            for k in range(n):
                c, z = jnp.cos(angles[layer, k]), jnp.sin(angles[layer, k])
                s = gate(s, jnp.array([[c, -1j * z], [-1j * z, c]]), k)
            i = jnp.arange(1 << n)
            s = s * jnp.where(((i & (i >> 1)).astype(jnp.uint32) & 1) == 1, -1, 1)
        p = jnp.abs(s) ** 2
        return p.reshape(2, -1).sum(1), p
    return Work(f, [normal(3, 14)], tolerance=1e-3)


@idiom("particle_mesh_gravity")
def _():
    def f(x, v):
        k = jnp.fft.fftfreq(64)[:, None] ** 2 + jnp.fft.rfftfreq(64)[None] ** 2

        def step(_, c):
            x, v = c
            i = jnp.floor(x).astype(jnp.int32)
            d = x - i
            rho = jnp.zeros((64, 64))
            for a in (0, 1):
                for b in (0, 1):
                    w = jnp.abs(1 - a - d[:, 0]) * jnp.abs(1 - b - d[:, 1])
                    rho = rho.at[(i[:, 0] + a) % 64, (i[:, 1] + b) % 64].add(w)
            phi = jnp.fft.irfft2(jnp.fft.rfft2(rho) / (k + 1e-3), s=(64, 64))
            g = jnp.stack([jnp.roll(phi, -1, 0) - jnp.roll(phi, 1, 0), jnp.roll(phi, -1, 1) - jnp.roll(phi, 1, 1)], -1)
            v = v - 1e-4 * g[i[:, 0] % 64, i[:, 1] % 64]
            return (x + .1 * v) % 64, v
        return lax.fori_loop(0, 5, step, (x, v))
    return Work(f, [uniform(8192, 2) * 63, normal(8192, 2)], tolerance=1e-2, flips=1e-3)


@idiom("neural_ode_rk4_grad")
def _():
    def f(x, w1, w2):
        def d(x):
            return jnp.tanh(x @ w1) @ w2

        def step(x, _):
            k1 = d(x)
            k2 = d(x + .05 * k1)
            k3 = d(x + .05 * k2)
            return x + .1 / 6 * (k1 + 2 * k2 + 2 * k3 + d(x + .1 * k3)), None
        return lax.scan(step, x, None, 16)[0]
    return Work(with_vjp(f), [normal(128, 8), normal(8, 64, scale=.3), normal(64, 8, scale=.3), normal(128, 8, seed=1)], tolerance=1e-3)


# ---- Images and signals
@idiom("separable_conv_stack")
def _():
    def conv(x, w, s=1, g=1):
        return lax.conv_general_dilated(x, w, (s, s), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=g)

    def f(x, ws, gs):
        for (d, p), g in zip(ws, gs):
            x = jnp.clip(conv(x, d, 1, x.shape[-1]) * g[0] + g[1], 0, 6)
            x = jnp.clip(conv(x, p) * g[2][:, None].T + .1, 0, 6)
        return x.mean((1, 2))
    c = [32, 64, 64, 128]
    ws = [(normal(3, 3, 1, a, scale=.3, seed=a), normal(1, 1, a, b, scale=.15, seed=b)) for a, b in zip(c, c[1:])]
    gs = [(uniform(a), uniform(a, seed=1), uniform(b, seed=2)) for a, b in zip(c, c[1:])]
    return Work(f, [normal(4, 56, 56, 32), ws, gs], flops=2 * 4 * 3136 * (32 * 64 + 64 * 64 + 64 * 128), tolerance=1e-3)


@idiom("aspp_dilated_conv")
def _():
    def f(x, w1, ws, wo):
        def conv(x, w, r=1):
            return lax.conv_general_dilated(x, w, (1, 1), "SAME", rhs_dilation=(r, r), dimension_numbers=("NHWC", "HWIO", "NHWC"))
        parts = [conv(x, w1)] + [conv(x, w, r) for w, r in zip(ws, (2, 4, 6))]
        parts.append(jnp.broadcast_to(x.mean((1, 2), keepdims=True), x.shape))
        return jax.nn.relu(conv(jax.nn.relu(jnp.concatenate(parts, -1)), wo))
    return Work(f, [normal(2, 32, 32, 64), normal(1, 1, 64, 32, scale=.1), [normal(3, 3, 64, 32, scale=.05, seed=i) for i in range(3)], normal(1, 1, 192, 64, scale=.1)],
                flops=2 * 2048 * 64 * (32 * 28 + 192), tolerance=1e-3)


@idiom("pixel_shuffle_upscale")
def _():
    def f(x, w1, w2):
        def conv(x, w):
            return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = conv(jax.nn.relu(conv(x, w1)), w2)
        n, h, w, _ = y.shape
        y = y.reshape(n, h, w, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, 3)
        return jnp.clip(y + jax.image.resize(x, y.shape, "bilinear"), 0, 1)
    return Work(f, [uniform(2, 96, 96, 3), normal(3, 3, 3, 32, scale=.2), normal(3, 3, 32, 12, scale=.05)], flops=2 * 2 * 9216 * 9 * (96 + 384), tolerance=1e-3)


@idiom("bilateral_filter_5x5")
def _():
    def f(x):
        p = jnp.pad(x, 2, mode="reflect")
        num, den = 0, 0
        for i in range(5):
            for j in range(5):
                y = p[i:i + 256, j:j + 256]
                w = jnp.exp(-((i - 2) ** 2 + (j - 2) ** 2) / 8 - (y - x) ** 2 * 50)
                num, den = num + w * y, den + w
        return num / den
    return Work(f, [uniform(256, 256)], tolerance=1e-3)


@idiom("mixup_cutout_normalise")
def _():
    def f(key, img, lam):
        x = img.astype(jnp.float32) / 255
        x = lam * x + (1 - lam) * x[::-1]
        c = jax.random.randint(jax.random.wrap_key_data(key, impl="threefry2x32"), (64, 2), 0, 64)
        i = jnp.arange(64)
        hole = (jnp.abs(i[None, :, None] - c[:, :1, None]) < 8) & (jnp.abs(i[None, None] - c[:, 1:, None]) < 8)
        x = jnp.where(hole[..., None], 0, x)
        return (x - jnp.array([.48, .45, .4])) / jnp.array([.22, .22, .23])
    return Work(f, [KEY, below(255, 64, 64, 64, 3).astype(np.uint8), np.float32(.3)], bytes=5 * 64 * 4096 * 3)


@idiom("harris_corners_nms")
def _():
    def f(x):
        gy, gx = jnp.gradient(x)
        def box(a):
            return lax.reduce_window(a, 0., lax.add, (5, 5), (1, 1), "SAME")
        a, b, c = box(gx * gx), box(gy * gy), box(gx * gy)
        r = a * b - c * c - .04 * (a + b) ** 2
        top = lax.reduce_window(r, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME")
        return lax.top_k(jnp.where(r == top, r, 0).reshape(-1), 100)
    return Work(f, [uniform(384, 384)], tolerance=1e-3, flips=.05)


@idiom("hash_grid_lookup")
def _():
    """An instant-NGP encoding: eight corners of four levels, hashed, mixed, into a small network."""
    def f(x, tables, w1, w2):
        feats = []
        for l in range(4):
            y = x * (16 << l)
            i = jnp.floor(y).astype(jnp.uint32)
            d = y - jnp.floor(y)
            out = 0
            for k in range(8):
                bit = np.array([(k >> j) & 1 for j in range(3)])
                c = i + bit.astype(np.uint32)
                h = (c[:, 0] ^ (c[:, 1] * np.uint32(2654435761)) ^ (c[:, 2] * np.uint32(805459861))) % 4096
                out = out + tables[l, h] * jnp.prod(jnp.where(bit, d, 1 - d), -1)[:, None]
            feats.append(out)
        return jax.nn.relu(jnp.concatenate(feats, -1) @ w1) @ w2
    return Work(f, [uniform(8192, 3), normal(4, 4096, 2), normal(8, 64), normal(64, 4, scale=.1)], tolerance=1e-3)
