"""More whole programs, in bench/models.py's table: shapes and idioms that none of the others has."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse

from workloads import Work, below, bytes_of_image, normal, registry, uniform, with_vjp

PROGRAMS = {}
program = registry(PROGRAMS)
KEY = np.array([0, 7], np.uint32)


# ---- Linear algebra
@program("cholesky_solve_batch_24")
def _():
    """Ridge regressions of 256 groups: normal equations, Cholesky, two triangular solves."""
    def f(x, y):
        a = jnp.einsum("gni,gnj->gij", x, x) + 0.1 * jnp.eye(24)
        b = jnp.einsum("gni,gn->gi", x, y)
        return jax.vmap(lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b))(a, b)
    return Work(f, [normal(256, 40, 24), normal(256, 40, seed=1)], tolerance=1e-3)


@program("gram_schmidt_48")
def _():
    """Modified Gram-Schmidt, one column a turn."""
    def f(a):
        def column(i, q):
            v = q[:, i]
            v = v / jnp.linalg.norm(v)
            r = jnp.where(jnp.arange(48) > i, v @ q, 0)
            return (q - v[:, None] * r[None]).at[:, i].set(v)
        return lax.fori_loop(0, 48, column, a)
    return Work(f, [normal(200, 48)], tolerance=1e-3)


@program("eigh_pca_96")
def _():
    def f(x):
        x = x - x.mean(0)
        w, v = jnp.linalg.eigh(x.T @ x / 999)
        return w[::-1][:8], jnp.abs(x @ v[:, ::-1][:, :8])
    return Work(f, [normal(1000, 96) * np.linspace(1, 3, 96, dtype=np.float32)], tolerance=2e-2)


@program("svd_low_rank_160")
def _():
    def f(x):
        u, s, v = jnp.linalg.svd(x, full_matrices=False)
        return (u[:, :16] * s[:16]) @ v[:16], s
    return Work(f, [normal(240, 24) @ normal(24, 160, seed=1) * np.float32(.3) + normal(240, 160, seed=2, scale=.1)], tolerance=2e-2)


@program("bcoo_conjugate_gradient")
def _():
    """30 turns of CG on a 5-point Laplacian of 80 x 80 in BCOO form."""
    n = 80
    i = np.arange(n * n)
    x, y = i % n, i // n
    entries = [(i, i, np.full(n * n, 4.1))] + [(i[m], i[m] + d, np.full(m.sum(), -1.0))
                                                for m, d in ((x > 0, -1), (x < n - 1, 1), (y > 0, -n), (y < n - 1, n))]
    at = np.stack([np.concatenate([e[0] for e in entries]), np.concatenate([e[1] for e in entries])], 1)
    order = np.lexsort((at[:, 1], at[:, 0]))
    data = np.concatenate([e[2] for e in entries]).astype(np.float32)[order]
    at = at[order].astype(np.int32)

    def f(data, at, b):
        a = sparse.BCOO((data, at), shape=(n * n, n * n), indices_sorted=True, unique_indices=True)

        def turn(_, s):
            x, r, p, rr = s
            q = a @ p
            alpha = rr / (p @ q)
            x, r = x + alpha * p, r - alpha * q
            new = r @ r
            return x, r, r + new / rr * p, new
        return lax.fori_loop(0, 30, turn, (jnp.zeros_like(b), b, b, b @ b))[0]
    return Work(f, [data, at, normal(n * n)], tolerance=1e-3)


# ---- Language models and sequences
@program("int8_linear_dynamic")
def _():
    """Activations quantised by row, weights int8, sums int32."""
    def f(x, w, s):
        a = jnp.abs(x).max(-1, keepdims=True) / 127
        q = jnp.round(x / a).astype(jnp.int8)
        y = lax.dot_general(q, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
        return jax.nn.gelu(y.astype(jnp.float32) * a * s)
    return Work(f, [normal(96, 768), (bytes_of_image(768, 2048) // 2).astype(np.int8) - 64, uniform(2048) * np.float32(.01)], flops=2 * 96 * 768 * 2048, tolerance=1e-2)


@program("topk_routing_gather")
def _():
    """A mixture of experts that gathers each expert's tokens by rank and adds what it makes back."""
    def f(x, gate, up, down):
        p = jax.nn.softmax(x @ gate)
        w, at = lax.top_k(p, 2)
        flat = at.reshape(-1)
        order = jnp.argsort(flat, stable=True)
        begin = jnp.searchsorted(flat[order], jnp.arange(8))
        place = begin[:, None] + jnp.arange(80)
        count = jnp.bincount(flat, length=8)
        slot = order[jnp.clip(place, 0, 511)]
        valid = jnp.arange(80) < count[:, None]
        h = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", x[slot // 2], up))
        y = jnp.einsum("ecf,efd->ecd", h, down) * jnp.where(valid, w.reshape(-1)[slot], 0)[..., None]
        return jnp.zeros_like(x).at[slot // 2].add(y)
    return Work(f, [normal(256, 96), normal(96, 8), normal(8, 96, 256, scale=.1), normal(8, 256, 96, scale=.1, seed=1)], tolerance=1e-3)


@program("attention_window_cache_bf16")
def _():
    """One token of 16 sequences over a ring cache of 1,024 places, sliding window, grouped heads, bf16."""
    def f(q, k, v, new_k, new_v, pos):
        at = pos % 1024
        k = jax.vmap(lambda c, n, i: lax.dynamic_update_slice(c, n[None], (i, 0, 0)))(k, new_k, at)
        v = jax.vmap(lambda c, n, i: lax.dynamic_update_slice(c, n[None], (i, 0, 0)))(v, new_v, at)
        s = jnp.einsum("bgqd,btgd->bgqt", q.reshape(16, 2, 4, 64), k, preferred_element_type=jnp.float32) / 8
        age = (pos[:, None] - jnp.arange(1024)) % 1024
        s = jnp.where((age < 512)[:, None, None], s, -1e30)
        a = jax.nn.softmax(s, -1).astype(jnp.bfloat16)
        return jnp.einsum("bgqt,btgd->bgqd", a, v, preferred_element_type=jnp.float32), k, v
    b = jnp.bfloat16
    return Work(f, [normal(16, 8, 64).astype(b), normal(16, 1024, 2, 64, seed=1).astype(b), normal(16, 1024, 2, 64, seed=2).astype(b), normal(16, 2, 64, seed=3).astype(b),
                    normal(16, 2, 64, seed=4).astype(b), below(4000, 16) + 1024], dtype="bf16", tolerance=2e-2)


@program("wavenet_residual_1d")
def _():
    """Six gated layers of dilated causal 1-D convolutions."""
    def f(x, ws, ps):
        skip = 0
        for i, (w, p) in enumerate(zip(ws, ps)):
            d = 2 ** i
            y = lax.conv_general_dilated(x, w, (1,), [(d, 0)], rhs_dilation=(d,), dimension_numbers=("NWC", "WIO", "NWC"))
            a, b = jnp.split(y, 2, -1)
            z = jnp.tanh(a) * jax.nn.sigmoid(b)
            skip, x = skip + z, x + z @ p
        return jax.nn.relu(skip)
    return Work(f, [normal(2, 4000, 32), [normal(2, 32, 64, seed=s, scale=.1) for s in range(6)], [normal(32, 32, seed=s, scale=.1) for s in range(6)]],
                flops=6 * 2 * 2 * 4000 * 32 * (128 + 32), tolerance=1e-3)


@program("resnext_grouped_conv_grad")
def _():
    def conv(x, w, groups=1):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)

    def f(x, a, b, c):
        return x + conv(jax.nn.relu(conv(jax.nn.relu(conv(x, a)), b, 8)), c)
    return Work(with_vjp(f), [normal(2, 28, 28, 128), normal(1, 1, 128, 64, scale=.1), normal(3, 3, 8, 64, scale=.1), normal(1, 1, 64, 128, scale=.1), normal(2, 28, 28, 128, seed=1)],
                tolerance=1e-3)


@program("bilstm_tagger_crf")
def _():
    """A two-way LSTM over 48 tokens of 8 sentences, emissions, the partition function of a CRF."""
    def f(x, w, u, out, trans):
        def run(xs, w, u):
            def step(s, x):
                h, c = s
                i, g, o, q = jnp.split(x @ w + h @ u, 4, -1)
                c = jax.nn.sigmoid(g) * c + jax.nn.sigmoid(i) * jnp.tanh(q)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h
            zero = jnp.zeros((8, 64))
            return lax.scan(step, (zero, zero), xs)[1]
        h = jnp.concatenate([run(x, w[0], u[0]), run(x[::-1], w[1], u[1])[::-1]], -1)
        e = h @ out

        def forward(a, e):
            return jax.nn.logsumexp(a[:, :, None] + trans, 1) + e, None
        return jax.nn.logsumexp(lax.scan(forward, e[0], e[1:])[0], -1)
    return Work(f, [normal(48, 8, 64), normal(2, 64, 256, scale=.1), normal(2, 64, 256, scale=.1, seed=1), normal(128, 12, scale=.1), normal(12, 12)], tolerance=1e-3)


@program("sampling_top_p_batch")
def _():
    """Nucleus sampling of 16 rows of 8,192 logits with temperature and repetition penalty."""
    def f(key, z, seen):
        z = jnp.where(seen, jnp.where(z > 0, z / 1.3, z * 1.3), z) / 0.8
        order = jnp.argsort(-z, -1)
        p = jax.nn.softmax(jnp.take_along_axis(z, order, -1), -1)
        keep = jnp.cumsum(p, -1) - p < 0.9
        logits = jnp.where(keep, jnp.log(p), -jnp.inf)
        pick = jax.random.categorical(key, logits, -1)
        return jnp.take_along_axis(order, pick[:, None], 1)[:, 0]
    return Work(f, [KEY, normal(16, 8192) * 3, uniform(16, 8192) < .05], tolerance=0, flips=.1)


# ---- Recurrences, control, sampling
@program("hmm_log_forward_batch")
def _():
    """32 sequences of 200 observations, 16 states, in logarithms."""
    def f(trans, emit, obs):
        def one(o):
            def step(a, x):
                return jax.nn.logsumexp(a[:, None] + trans, 0) + emit[:, x], None
            return jax.nn.logsumexp(lax.scan(step, emit[:, o[0]], o[1:])[0])
        return jax.vmap(one)(obs)
    return Work(f, [np.log(uniform(16, 16) + .1), np.log(uniform(16, 20, seed=1) + .1), below(20, 32, 200)], tolerance=1e-3)


@program("tridiagonal_thomas_batch")
def _():
    """Implicit heat steps: the Thomas algorithm down 256 rows of 128 systems, ten times."""
    def f(u):
        a = jnp.full(256, -0.4)

        def solve(d):
            def down(s, t):
                c, y = s
                k = 1 / (1.8 + 0.4 * c)
                c, y = -0.4 * k, (t + 0.4 * y) * k
                return (c, y), (c, y)
            _, (c, y) = lax.scan(down, (jnp.zeros(128), jnp.zeros(128)), d)

            def up(x, t):
                x = t[1] - t[0] * x
                return x, x
            return lax.scan(up, jnp.zeros(128), (c, y), reverse=True)[1]
        return lax.fori_loop(0, 10, lambda _, u: solve(u) + 0.01 * a[:, None], u)
    return Work(f, [normal(256, 128)], tolerance=1e-3)


@program("mcmc_ising_64")
def _():
    """Checkerboard Metropolis of a 64 x 64 lattice, 60 sweeps."""
    def f(key, s):
        mask = (jnp.arange(64)[:, None] + jnp.arange(64)) % 2 == 0

        def sweep(s, k):
            for side, k in zip((mask, ~mask), jax.random.split(k)):
                near = jnp.roll(s, 1, 0) + jnp.roll(s, -1, 0) + jnp.roll(s, 1, 1) + jnp.roll(s, -1, 1)
                flip = jax.random.uniform(k, s.shape) < jnp.exp(-0.88 * s * near)
                s = jnp.where(side & flip, -s, s)
            return s, s.mean()
        return lax.scan(sweep, s, jax.random.split(key, 60))
    return Work(f, [KEY, np.sign(normal(64, 64))], tolerance=1e-3, flips=.02)


@program("ppo_loss_grad")
def _():
    """Advantages by a reversed scan, then the clipped objective of a small policy and its gradient."""
    def net(p, x):
        h = jnp.tanh(jnp.tanh(x @ p[0] + p[1]) @ p[2] + p[3])
        y = h @ p[4]
        return jax.nn.log_softmax(y[..., :6]), y[..., 6]

    def loss(p, x, a, r, done, old):
        logp, v = net(p, x)
        v = lax.stop_gradient(v)

        def back(c, t):
            r, d, v, nv = t
            c = r + .99 * nv * (1 - d) - v + .95 * .99 * (1 - d) * c
            return c, c
        adv = lax.scan(back, jnp.zeros(32), (r, done, v, jnp.roll(v, -1, 0)), reverse=True)[1]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        lp = jnp.take_along_axis(logp, a[..., None], -1)[..., 0]
        ratio = jnp.exp(lp - old)
        return -jnp.minimum(ratio * adv, jnp.clip(ratio, .8, 1.2) * adv).mean() - .01 * -(jnp.exp(logp) * logp).sum(-1).mean()
    p = [normal(8, 64, scale=.3), np.zeros(64, np.float32), normal(64, 64, scale=.1), np.zeros(64, np.float32), normal(64, 7, scale=.1)]
    return Work(jax.value_and_grad(loss), [p, normal(128, 32, 8), below(6, 128, 32), normal(128, 32, seed=1), (uniform(128, 32) < .02).astype(np.float32),
                                           normal(128, 32, scale=.1, seed=2) - 1.8], tolerance=1e-3)


@program("systematic_resampling_8k")
def _():
    def f(key, w, x):
        c = jnp.cumsum(w / w.sum())
        u = (jnp.arange(8192) + jax.random.uniform(key)) / 8192
        at = jnp.searchsorted(c, u)
        return x[jnp.clip(at, 0, 8191)], jnp.diff(jnp.searchsorted(at, jnp.arange(8193)))
    return Work(f, [KEY, uniform(8192), normal(8192, 4)], tolerance=1e-3, flips=.02)


@program("sinkhorn_500_x_20")
def _():
    def f(x, y):
        c = ((x[:, None] - y[None]) ** 2).sum(-1)

        def turn(_, s):
            f, g = s
            f = -.05 * jax.nn.logsumexp((g[None] - c) / .05, 1)
            g = -.05 * jax.nn.logsumexp((f[:, None] - c) / .05, 0)
            return f, g
        f, g = lax.fori_loop(0, 20, turn, (jnp.zeros(500), jnp.zeros(400)))
        return (jnp.exp((f[:, None] + g[None] - c) / .05) * c).sum(), f
    return Work(f, [uniform(500, 3), uniform(400, 3, seed=1)], tolerance=1e-3)


@program("bitonic_sort_pairs_4k")
def _():
    """A sorting network of keys with payloads, written with reshapes."""
    def f(x, v):
        n = 4096
        for k in range(1, 13):
            for j in reversed(range(k)):
                a, b = (t.reshape(-1, 2, 1 << j) for t in (x, v))
                up = ((jnp.arange(n) >> k) & 1).reshape(-1, 2, 1 << j)[:, 0] == 0
                swap = (a[:, 0] > a[:, 1]) == up
                x = jnp.stack([jnp.where(swap, a[:, 1], a[:, 0]), jnp.where(swap, a[:, 0], a[:, 1])], 1).reshape(n)
                v = jnp.stack([jnp.where(swap, b[:, 1], b[:, 0]), jnp.where(swap, b[:, 0], b[:, 1])], 1).reshape(n)
        return x, v
    return Work(f, [normal(4096), below(4096, 4096)], tolerance=0)


# ---- Physics
@program("multigrid_v_cycle_129")
def _():
    def smooth(u, b, n):
        def turn(_, u):
            p = jnp.pad(u, 1)
            return u * .2 + .2 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] + b)
        return lax.fori_loop(0, n, turn, u)

    def cycle(u, b):
        u = smooth(u, b, 3)
        if u.shape[0] > 16:
            p = jnp.pad(u, 1)
            r = b - (4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2])
            r = r.reshape(r.shape[0] // 2, 2, r.shape[1] // 2, 2).sum((1, 3))
            e = cycle(jnp.zeros_like(r), r)
            u = u + jax.image.resize(e, u.shape, "bilinear")
        return smooth(u, b, 3)

    def f(b):
        return lax.fori_loop(0, 4, lambda _, u: cycle(u, b), jnp.zeros_like(b))
    return Work(f, [normal(128, 128)], tolerance=1e-3)


@program("fdtd_maxwell_3d_48")
def _():
    def d(a, axis, shift):
        return (jnp.roll(a, -1, axis) - a) if shift else (a - jnp.roll(a, 1, axis))

    def f(e, h):
        def step(_, s):
            (ex, ey, ez), (hx, hy, hz) = s
            hx, hy, hz = (hx + .3 * (d(ey, 2, 1) - d(ez, 1, 1)), hy + .3 * (d(ez, 0, 1) - d(ex, 2, 1)), hz + .3 * (d(ex, 1, 1) - d(ey, 0, 1)))
            ex, ey, ez = (ex + .3 * (d(hz, 1, 0) - d(hy, 2, 0)), ey + .3 * (d(hx, 2, 0) - d(hz, 0, 0)), ez + .3 * (d(hy, 0, 0) - d(hx, 1, 0)))
            return (ex, ey, ez), (hx, hy, hz)
        return lax.fori_loop(0, 10, step, (tuple(e), tuple(h)))
    return Work(f, [normal(3, 48, 48, 48), normal(3, 48, 48, 48, seed=1)], tolerance=1e-3)


@program("rk45_adaptive_brusselator")
def _():
    """Bogacki and Shampine's pair with adaptive steps for a reaction and diffusion on 128 cells."""
    def f(y):
        def d(y):
            u, v = y
            lap = lambda a: jnp.roll(a, 1) + jnp.roll(a, -1) - 2 * a
            return jnp.stack([1 + u * u * v - 4 * u + 2 * lap(u), 3 * u - u * u * v + 2 * lap(v)])

        def body(s):
            t, h, y, n = s
            k1 = d(y)
            k2 = d(y + h * k1 / 2)
            k3 = d(y + h * .75 * k2)
            new = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
            k4 = d(new)
            err = jnp.sqrt(jnp.mean(jnp.square(h * (-5 / 72 * k1 + k2 / 12 + k3 / 9 - k4 / 8) / (1e-4 + 1e-3 * jnp.abs(new)))))
            ok = err < 1
            h2 = h * jnp.clip(.9 * (err + 1e-12) ** (-1 / 3), .2, 5)
            return jnp.where(ok, t + h, t), jnp.minimum(h2, 4 - t), jnp.where(ok, new, y), n + 1
        return lax.while_loop(lambda s: (s[0] < 3.9) & (s[3] < 3000), body, (0.0, 0.001, y, 0))[2]
    return Work(f, [np.stack([1 + .1 * np.sin(np.arange(128) * .1), 3 + 0 * np.arange(128)]).astype(np.float32)], tolerance=2e-2)


@program("graph_edge_conv_knn")
def _():
    """DGCNN's edge convolution: neighbours by distance, features of pairs, a maximum over neighbours."""
    def f(x, w1, w2):
        d = ((x[:, None] - x[None]) ** 2).sum(-1)
        at = lax.top_k(-d, 12)[1]
        pair = jnp.concatenate([jnp.broadcast_to(x[:, None], (512, 12, 16)), x[at] - x[:, None]], -1)
        return (jax.nn.leaky_relu(pair @ w1, .2) @ w2).max(1)
    return Work(f, [normal(512, 16), normal(32, 64, scale=.2), normal(64, 32, scale=.2)], tolerance=1e-3, flips=.01)


@program("schnet_segment_grad")
def _():
    """Forces of a continuous-filter network: radial basis, filters, segment sums, the gradient by positions."""
    def energy(x, z, src, dst, emb, w1, w2, out):
        d = jnp.sqrt(((x[src] - x[dst]) ** 2).sum(-1) + 1e-6)
        rbf = jnp.exp(-4 * (d[:, None] - jnp.linspace(0, 5, 20)) ** 2)
        h = emb[z]
        for a, b in zip(w1, w2):
            filt = jax.nn.softplus(rbf @ a)
            h = h + jnp.tanh(jax.ops.segment_sum(h[src] * filt, dst, 600) @ b)
        return (h @ out).sum()
    return Work(jax.value_and_grad(energy), [normal(600, 3) * 2, below(5, 600), below(600, 8000), below(600, 8000, seed=1), normal(5, 32), normal(2, 20, 32, scale=.2),
                                             normal(2, 32, 32, scale=.2), normal(32)], tolerance=1e-3)


# ---- Images and signals
@program("augment_crop_flip_jitter_u8")
def _():
    """Random crops, flips, brightness and normalisation of 32 images of bytes."""
    def f(key, img):
        def one(k, x):
            a, b, c = jax.random.split(k, 3)
            at = jax.random.randint(a, (2,), 0, 33)
            x = lax.dynamic_slice(x, (at[0], at[1], 0), (128, 128, 3))
            x = jnp.where(jax.random.bernoulli(b), x[:, ::-1], x)
            y = x.astype(jnp.float32) / 255 * (0.8 + .4 * jax.random.uniform(c))
            return (y - jnp.array([.485, .456, .406])) / jnp.array([.229, .224, .225])
        return jax.vmap(one)(jax.random.split(key, 32), img)
    return Work(f, [KEY, bytes_of_image(32, 160, 160, 3)], tolerance=1e-3)


@program("gray_equalise_u8")
def _():
    """Gray values of 8 photographs in bytes, histograms, equalisation by their cumulative sums."""
    def f(img):
        gray = ((img.astype(jnp.int32) * jnp.array([77, 150, 29])).sum(-1) >> 8).astype(jnp.uint8)

        def one(g):
            h = jnp.zeros(256, jnp.int32).at[g.reshape(-1)].add(1)
            c = jnp.cumsum(h)
            return (c * 255 // g.size).astype(jnp.uint8)[g]
        return jax.vmap(one)(gray)
    return Work(f, [bytes_of_image(8, 200, 200, 3) // 2], tolerance=0)


@program("affine_warp_bilinear")
def _():
    """Rotated images: places of all pixels, four gathers of three channels, blended."""
    def f(img, angle):
        def one(x, t):
            yy, xx = jnp.meshgrid(jnp.arange(112.) - 56, jnp.arange(112.) - 56, indexing="ij")
            v, u = jnp.cos(t) * yy - jnp.sin(t) * xx + 56, jnp.sin(t) * yy + jnp.cos(t) * xx + 56
            y0, x0 = jnp.floor(v), jnp.floor(u)
            fy, fx = (v - y0)[..., None], (u - x0)[..., None]
            y0, x0 = y0.astype(jnp.int32), x0.astype(jnp.int32)

            def at(dy, dx):
                return x[jnp.clip(y0 + dy, 0, 111), jnp.clip(x0 + dx, 0, 111)]
            return (at(0, 0) * (1 - fy) * (1 - fx) + at(0, 1) * (1 - fy) * fx + at(1, 0) * fy * (1 - fx) + at(1, 1) * fy * fx)
        return jax.vmap(one)(img, angle)
    return Work(f, [uniform(8, 112, 112, 3), normal(8)], tolerance=1e-3, flips=.001)


@program("stft_wiener_istft")
def _():
    """Frames, a window, real transforms, a gain from the power, back by overlapping additions."""
    def f(x, noise):
        n, hop, frames = 512, 128, 121
        at = np.arange(frames)[:, None] * hop + np.arange(n)
        w = jnp.hanning(n)
        s = jnp.fft.rfft(x[:, at] * w)
        p = jnp.abs(s) ** 2
        y = jnp.fft.irfft(s * (p / (p + noise)), n) * w
        return jnp.zeros_like(x).at[:, at.reshape(-1)].add(y.reshape(x.shape[0], -1)) / 1.5
    return Work(f, [normal(2, 120 * 128 + 512), uniform(257) * 20], tolerance=1e-3)


@program("conv_autoencoder_u8_grad")
def _():
    """Two strided convolutions down, two transposed ones up, squared error from bytes, gradients of all weights."""
    def conv(x, w, s):
        return lax.conv_general_dilated(x, w, (s, s), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def up(x, w):
        return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(p, img):
        x = img.astype(jnp.float32) / 255
        h = jax.nn.relu(conv(jax.nn.relu(conv(x, p[0], 2)), p[1], 2))
        return ((jax.nn.sigmoid(up(jax.nn.relu(up(h, p[2])), p[3])) - x) ** 2).mean()
    return Work(jax.value_and_grad(loss), [[normal(3, 3, 3, 16, scale=.2), normal(3, 3, 16, 32, scale=.1), normal(3, 3, 32, 16, scale=.1), normal(3, 3, 16, 3, scale=.1)],
                                           bytes_of_image(8, 64, 64, 3)], tolerance=1e-3)
