"""Training steps, solvers and pipelines as users write them, for
memory_programs.py: each takes a random.Random and returns a Program."""
import jax
import jax.numpy as jnp
from jax import lax

from memory_base import BF16, F32, Program, adam, mean_square, shape
from memory_models import norm


def kind_of(r):
    return r.choice([F32, BF16])


def picked(z, y):
    z = z.astype(F32)
    return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[..., None], -1)[..., 0]).mean()


def policies(r):
    """Layers in a scan whose gradient saves what a policy says."""
    b, t, d, n = r.choice([4, 8, 16]), r.choice([512, 1024]), r.choice([512, 1024]), r.choice([4, 6, 12])
    kind = kind_of(r)
    how = r.choice(
        ["dots_saveable", "nothing_saveable", "everything_saveable", "dots_with_no_batch_dims_saveable"]
    )

    def layer(x, w):
        y = norm(x, w["s"])
        y = jax.nn.gelu(y @ w["up"]) * (y @ w["gate"])
        return x + y @ w["down"], None

    def loss(w, x):
        f = jax.checkpoint(layer, policy=getattr(jax.checkpoint_policies, how))
        return mean_square(lax.scan(f, x, w)[0])

    w = {
        "s": shape(n, d),
        "up": shape(n, d, 2 * d, dtype=kind),
        "gate": shape(n, d, 2 * d, dtype=kind),
        "down": shape(n, 2 * d, d, dtype=kind),
    }
    return Program(jax.grad(loss), (w, shape(b, t, d, dtype=kind)))


def accumulated(r):
    """Gradients of microbatches added up in f32, then one step of Adam."""
    m, b, d, f, c = (
        r.choice([2, 4, 8]),
        r.choice([512, 2048]),
        r.choice([512, 1024]),
        r.choice([2048, 4096]),
        r.choice([1000, 4096]),
    )
    given = r.random() < 0.6

    def loss(w, x, y):
        w = jax.tree.map(lambda a: a.astype(BF16), w)
        return picked(jax.nn.silu(x @ w["a"]) @ w["b"] @ w["c"], y)

    def step(w, m1, m2, xs, ys):
        def one(g, xy):
            return jax.tree.map(jnp.add, g, jax.grad(loss)(w, *xy)), None

        g = lax.scan(one, jax.tree.map(jnp.zeros_like, w), (xs, ys))[0]
        out = {k: adam(w[k], m1[k], m2[k], g[k] / m) for k in w}
        return tuple({k: out[k][i] for k in w} for i in range(3))

    w = {"a": shape(d, f), "b": shape(f, d), "c": shape(d, c)}
    return Program(
        step, (w, w, w, shape(m, b, d, dtype=BF16), shape(m, b, dtype=jnp.int32)), (0, 1, 2) if given else ()
    )


def tied(r):
    """A tied embedding, one block of width d, big logits, their loss's gradient."""
    b, t, d, v, kind = (
        r.choice([2, 4, 8]),
        r.choice([256, 512]),
        r.choice([256, 512, 768]),
        r.choice([8192, 32000, 50304]),
        kind_of(r),
    )
    z = r.random() < 0.5

    def loss(w, ids):
        x = w["e"][ids]
        x = x + jax.nn.gelu(norm(x, w["s"]) @ w["a"]) @ w["b"]
        logits = (x @ w["e"].T).astype(F32)
        lse = jax.nn.logsumexp(logits[:, :-1], -1)
        hit = jnp.take_along_axis(logits[:, :-1], ids[:, 1:, None], -1)[..., 0]
        return (lse - hit).mean() + (1e-4 * (lse**2).mean() if z else 0)

    w = {
        "e": shape(v, d, dtype=kind),
        "s": shape(d),
        "a": shape(d, 4 * d, dtype=kind),
        "b": shape(4 * d, d, dtype=kind),
    }
    return Program(jax.value_and_grad(loss), (w, shape(b, t, dtype=jnp.int32)))


def windowed(r):
    """Grouped attention with a window, capped scores and rotations; gradient."""
    b, t, g, k, e, kind = (
        r.choice([1, 2]),
        r.choice([512, 1024, 2048]),
        r.choice([2, 4]),
        r.choice([2, 4]),
        r.choice([64, 128]),
        kind_of(r),
    )
    d = g * k * e

    def rotate(x):
        a = jnp.arange(t)[:, None] / 10000 ** (jnp.arange(e // 2) / (e // 2))
        c, s = jnp.cos(a)[:, None], jnp.sin(a)[:, None]
        p, q = jnp.split(x.astype(F32), 2, -1)
        return jnp.concatenate([p * c - q * s, p * s + q * c], -1).astype(x.dtype)

    def forward(w, x):
        q = rotate((x @ w["q"]).reshape(b, t, g * k, e)).reshape(b, t, g, k, e)
        h, v = rotate((x @ w["k"]).reshape(b, t, g, e)), (x @ w["v"]).reshape(b, t, g, e)
        s = jnp.einsum("btgke,bsge->bgkts", q, h).astype(F32) * e**-0.5
        s = 50 * jnp.tanh(s / 50)
        i = jnp.arange(t)
        s = jnp.where((i[:, None] >= i) & (i[:, None] - i < 256), s, -1e30)
        p = jax.nn.softmax(s, -1).astype(x.dtype)
        return jnp.einsum("bgkts,bsge->btgke", p, v).reshape(b, t, d) @ w["o"]

    w = {
        "q": shape(d, d, dtype=kind),
        "k": shape(d, g * e, dtype=kind),
        "v": shape(d, g * e, dtype=kind),
        "o": shape(d, d, dtype=kind),
    }
    f = forward if r.random() < 0.4 else jax.grad(lambda *a: mean_square(forward(*a)))
    return Program(f, (w, shape(b, t, d, dtype=kind)))


def conv2(x, w, stride=1):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def segments(r):
    """A small U-net with strided convolutions, resized back; its gradient."""
    b, s, c, kind = r.choice([2, 8, 16]), r.choice([32, 64, 128]), r.choice([16, 32, 64]), kind_of(r)

    def forward(w, x):
        a = jax.nn.relu(conv2(x, w[0]))
        y = jax.nn.relu(conv2(a, w[1], 2))
        z = jax.nn.relu(conv2(y, w[2], 2))
        z = jax.image.resize(z, (b, s // 2, s // 2, 4 * c), "nearest")
        z = jax.nn.relu(conv2(jnp.concatenate([z, y], -1), w[3]))
        z = jax.image.resize(z, (b, s, s, 2 * c), "nearest")
        return conv2(jnp.concatenate([z, a], -1), w[4])

    w = [
        shape(3, 3, i, o, dtype=kind)
        for i, o in ((3, c), (c, 2 * c), (2 * c, 4 * c), (6 * c, 2 * c), (3 * c, 4))
    ]
    f = forward if r.random() < 0.4 else jax.grad(lambda *a: mean_square(forward(*a)))
    return Program(f, (w, shape(b, s, s, 3, dtype=kind)))


def tables(r):
    """Rows sorted by key, ranked, and added up by group."""
    n, d = r.choice([1 << 14, 1 << 16, 1 << 18]), r.choice([8, 64, 128])
    which = r.choice(["grouped", "ranked", "topped"])

    def run(keys, x):
        if which == "grouped":
            at = jnp.argsort(keys)
            return jax.ops.segment_sum(x[at] * 2, keys[at] % 1024, num_segments=1024), x[at].cumsum(0)[-1]
        if which == "ranked":
            k, i = lax.sort_key_val(keys, jnp.arange(n))
            rank = jnp.zeros(n, jnp.int32).at[i].set(jnp.arange(n))
            return x * rank[:, None], k
        s = jnp.sort(x, 0)
        best, at = lax.top_k(x.T, 16)
        return s[n // 2], best, at

    return Program(run, (shape(n, dtype=jnp.int32), shape(n, d)))


def spectra(r):
    """Images filtered in the frequency domain; a spectral convolution."""
    b, s, c = r.choice([1, 4, 16]), r.choice([64, 128, 256]), r.choice([1, 8])
    m = r.choice([8, 16])

    def filtered(x, h):
        return jnp.fft.irfft2(
            jnp.fft.rfft2(x, axes=(1, 2)) * (h[..., 0] + 1j * h[..., 1])[None, :, :, None],
            axes=(1, 2),
            s=(s, s),
        )

    def spectral(x, h):
        f = jnp.fft.rfft2(x, axes=(1, 2))[:, :m, :m]
        y = jnp.einsum("bxyc,xycd->bxyd", f, h[..., 0] + 1j * h[..., 1])
        out = jnp.zeros((b, s, s // 2 + 1, c), jnp.complex64).at[:, :m, :m].set(y)
        return x + jnp.fft.irfft2(out, axes=(1, 2), s=(s, s))

    if r.random() < 0.5:
        return Program(filtered, (shape(b, s, s, c), shape(s, s // 2 + 1, 2)))
    return Program(spectral, (shape(b, s, s, c), shape(m, m, c, c, 2)))


def stencils(r):
    """Fields stepped in time: heat, waves, or a small fluid; large carries."""
    n, steps = r.choice([512, 1024, 2048, 4096]), r.choice([10, 50])
    which = r.choice(["heat", "wave", "fluid"])

    def lap(u):
        return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u

    def run(u, v):
        if which == "heat":
            return lax.fori_loop(0, steps, lambda _, u: u + 0.1 * lap(u), u)
        if which == "wave":

            def body(s, _):
                a, b = s
                return (2 * a - b + 0.2 * lap(a), a), a.mean()

            return lax.scan(body, (u, v), None, length=steps)

        def body(_, s):
            u, v = s
            dx = lambda f: (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) / 2
            dy = lambda f: (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) / 2
            a = u - 0.1 * (u * dx(u) + v * dy(u)) + 0.01 * lap(u)
            b = v - 0.1 * (u * dx(v) + v * dy(v)) + 0.01 * lap(v)
            p = lax.fori_loop(0, 10, lambda _, p: (lap(p) + 4 * p - dx(a) - dy(b)) / 4, jnp.zeros_like(a))
            return a - dx(p), b - dy(p)

        return lax.fori_loop(0, steps, body, (u, v))

    return Program(run, (shape(n, n), shape(n, n)), (0, 1) if r.random() < 0.4 else ())


def routed(r):
    """The best two of e experts by sorting tokens; forward or gradient."""
    n, d, f, e, kind = (
        r.choice([1024, 4096, 8192]),
        r.choice([256, 512, 1024]),
        r.choice([512, 1024]),
        r.choice([8, 16]),
        kind_of(r),
    )
    c = n * 2 // e * 5 // 4

    def forward(w, x):
        p, at = lax.top_k(jax.nn.softmax((x @ w["r"]).astype(F32)), 2)
        flat = at.reshape(-1)
        order = jnp.argsort(flat)
        expert = flat[order]
        place = jnp.arange(2 * n) - jnp.searchsorted(expert, expert)
        slot = jnp.where(place < c, expert * c + place, e * c)
        y = jnp.zeros((e * c + 1, d), x.dtype).at[slot].set(x[order // 2])[:-1].reshape(e, c, d)
        y = jnp.einsum("ecf,efd->ecd", jax.nn.silu(jnp.einsum("ecd,edf->ecf", y, w["a"])), w["b"])
        y = jnp.concatenate([y.reshape(e * c, d), jnp.zeros((1, d), x.dtype)])[slot]
        y = y * p.reshape(-1)[order][:, None].astype(x.dtype)
        return jnp.zeros_like(x).at[order // 2].add(y)

    w = {"r": shape(d, e, dtype=kind), "a": shape(e, d, f, dtype=kind), "b": shape(e, f, d, dtype=kind)}
    f_ = forward if r.random() < 0.4 else jax.grad(lambda *a: mean_square(forward(*a)))
    return Program(f_, (w, shape(n, d, dtype=kind)))


def chunked(r):
    """The loss of big logits, part after part in a checkpointed scan."""
    n, d, v, parts, kind = (
        r.choice([4096, 8192, 16384]),
        r.choice([512, 1024, 2048]),
        r.choice([32000, 50304]),
        r.choice([4, 8, 16]),
        kind_of(r),
    )

    def loss(w, x, y):
        @jax.checkpoint
        def one(s, xy):
            return s + picked(xy[0] @ w, xy[1]), None

        return lax.scan(one, jnp.float32(0), (x.reshape(parts, -1, d), y.reshape(parts, -1)))[0] / parts

    return Program(
        jax.value_and_grad(loss, argnums=(0, 1)),
        (shape(d, v, dtype=kind), shape(n, d, dtype=kind), shape(n, dtype=jnp.int32)),
    )


def solved(r):
    """Batches of small linear systems: by conjugate gradients, Jacobi, Newton."""
    b, n = r.choice([64, 256, 1024]), r.choice([32, 64, 128])
    which = r.choice(["gradients", "jacobi", "newton"])

    def gradients(a, y):
        a = a @ a.T + n * jnp.eye(n)

        def body(_, s):
            x, p, q = s
            ap = a @ p
            k = q @ q / (p @ ap)
            z = q - k * ap
            return x + k * p, z + (z @ z) / (q @ q) * p, z

        return lax.fori_loop(0, 16, body, (jnp.zeros(n), y, y))[0]

    def jacobi(a, y):
        d = jnp.diagonal(a) + n
        return lax.fori_loop(0, 20, lambda _, x: (y - a @ x) / d, y)

    def newton(a, y):
        f = lambda x: jnp.tanh(a @ x) + x - y

        def body(_, x):
            j = jax.jacfwd(f)(x)
            return x - j.T @ f(x) / n

        return lax.fori_loop(0, 4, body, y)

    return Program(
        jax.vmap(dict(gradients=gradients, jacobi=jacobi, newton=newton)[which]),
        (shape(b, n, n), shape(b, n)),
    )


def scaled(r):
    """Mixed precision: f32 masters, a bf16 network, a scaled loss, clipped."""
    b, d, layers, given = (
        r.choice([1024, 4096, 16384]),
        r.choice([512, 1024, 2048]),
        r.randint(2, 6),
        r.random() < 0.5,
    )

    def loss(w, x, y, s):
        for a in w:
            x = jax.nn.relu(x @ a["w"].astype(BF16) + a["b"].astype(BF16))
        return ((x.astype(F32) - y) ** 2).mean() * s

    def step(w, m, x, y, s):
        g = jax.tree.map(lambda a: a / s, jax.grad(loss)(w, x, y, s))
        size = jnp.sqrt(sum((a**2).sum() for a in jax.tree.leaves(g)))
        g = jax.tree.map(lambda a: a * jnp.minimum(1, 1 / size), g)
        m = jax.tree.map(lambda a, b: 0.9 * a + b, m, g)
        ok = jnp.isfinite(size)
        return jax.tree.map(lambda a, b: jnp.where(ok, a - 0.01 * b, a), w, m), m, jnp.where(ok, s, s / 2)

    w = [{"w": shape(d, d), "b": shape(d)}] * layers
    return Program(step, (w, w, shape(b, d, dtype=BF16), shape(b, d), shape()), (0, 1) if given else ())


def recurrent(r):
    """An LSTM over a batch of sequences, its gradient through time."""
    b, t, d, h, kind = (
        r.choice([16, 64, 256]),
        r.choice([50, 128]),
        r.choice([128, 256]),
        r.choice([256, 512]),
        kind_of(r),
    )

    def loss(w, xs):
        def cell(s, x):
            c, y = s
            i, f, g, o = jnp.split(x @ w[0] + y @ w[1] + w[2], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            y = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (c, y), y

        zero = jnp.zeros((b, h), kind)
        return mean_square(lax.scan(cell, (zero, zero), xs)[1])

    w = [shape(d, 4 * h, dtype=kind), shape(h, 4 * h, dtype=kind), shape(4 * h, dtype=kind)]
    return Program(jax.grad(loss), (w, shape(t, b, d, dtype=kind)))


def states(r):
    """A state space layer by an associative scan; forward or gradient."""
    b, t, d, n = (
        r.choice([1, 4, 8]),
        r.choice([256, 1024, 2048]),
        r.choice([128, 256, 512]),
        r.choice([4, 16]),
    )

    def forward(w, x):
        dt = jax.nn.softplus(x @ w["dt"])
        a = jnp.exp(dt[..., None] * -jnp.exp(w["a"]))
        u = (dt * x)[..., None] * (x @ w["b"])[:, :, None]

        def merge(p, q):
            return p[0] * q[0], q[0] * p[1] + q[1]

        h = lax.associative_scan(merge, (a, u), axis=1)[1]
        return (h * (x @ w["c"])[:, :, None]).sum(-1) * jax.nn.silu(x)

    w = {"dt": shape(d, d), "a": shape(d, n), "b": shape(d, n), "c": shape(d, n)}
    f = forward if r.random() < 0.5 else jax.grad(lambda *a: mean_square(forward(*a)))
    return Program(f, (w, shape(b, t, d)))


def decoded(r):
    """Tokens decoded one after the other with caches, in a loop."""
    b, t, h, e, layers, kind = (
        r.choice([1, 8, 32]),
        r.choice([512, 1024, 2048]),
        r.choice([4, 8]),
        128,
        r.choice([2, 4]),
        kind_of(r),
    )
    d = h * e

    def run(w, k, v, x):
        def layer(s, l):
            x, at = s
            w, k, v = l
            q, a, c = ((x @ w[n]).reshape(b, 1, h, e) for n in "qkv")
            k, v = lax.dynamic_update_slice(k, a, (0, at, 0, 0)), lax.dynamic_update_slice(
                v, c, (0, at, 0, 0)
            )
            p = jnp.einsum("bqhe,bkhe->bhqk", q, k).astype(F32)
            p = jax.nn.softmax(jnp.where(jnp.arange(t) <= at, p, -1e9), -1).astype(x.dtype)
            x = x + jnp.einsum("bhqk,bkhe->bqhe", p, v).reshape(b, d) @ w["o"]
            return (x + jax.nn.silu(x @ w["u"]) @ w["d"], at), (k, v)

        def token(i, s):
            x, k, v = s
            (x, _), (k, v) = lax.scan(layer, (x, i), (w, k, v))
            return x, k, v

        return lax.fori_loop(0, 16, token, (x, k, v))

    w = {n: shape(layers, d, d, dtype=kind) for n in "qkvo"} | {
        "u": shape(layers, d, 4 * d, dtype=kind),
        "d": shape(layers, 4 * d, d, dtype=kind),
    }
    cache = shape(layers, b, t, h, e, dtype=kind)
    return Program(run, (w, cache, cache, shape(b, d, dtype=kind)), (1, 2) if r.random() < 0.6 else ())


def adapters(r):
    """Low-rank adapters of frozen layers: only they have gradients."""
    n, d, k, layers, kind = (
        r.choice([2048, 8192]),
        r.choice([512, 1024, 2048]),
        r.choice([8, 16, 64]),
        r.randint(2, 6),
        kind_of(r),
    )

    def loss(a, w, x):
        for (p, q), z in zip(a, w):
            x = jax.nn.gelu(x @ z + (x @ p.astype(x.dtype)) @ q.astype(x.dtype))
        return mean_square(x)

    def step(a, m, w, x):
        g = jax.grad(loss)(a, w, x)
        m = jax.tree.map(lambda u, v: 0.9 * u + v, m, g)
        return jax.tree.map(lambda u, v: u - 0.01 * v, a, m), m

    a = [(shape(d, k), shape(k, d))] * layers
    return Program(step, (a, a, [shape(d, d, dtype=kind)] * layers, shape(n, d, dtype=kind)), (0, 1))


def graphs(r):
    """Messages along edges, added up at nodes, a few rounds; gradient."""
    n, m, d, rounds = (
        r.choice([4096, 16384, 65536]),
        r.choice([4, 8]),
        r.choice([64, 128, 256]),
        r.randint(1, 3),
    )

    def forward(w, x, a, b):
        for i in range(rounds):
            e = jax.nn.relu(jnp.concatenate([x[a], x[b]], -1) @ w["e"])
            x = x + jax.ops.segment_sum(e, b, num_segments=n) @ w["n"]
        return x

    w = {"e": shape(2 * d, d), "n": shape(d, d)}
    f = forward if r.random() < 0.5 else jax.grad(lambda *z: mean_square(forward(*z)))
    return Program(f, (w, shape(n, d), shape(n * m, dtype=jnp.int32), shape(n * m, dtype=jnp.int32)))


def sounds(r):
    """Strided convolutions over sound, gated and dilated; forward or gradient."""
    b, t, c, kind = r.choice([2, 8, 16]), r.choice([8000, 16384, 32000]), r.choice([32, 64, 128]), kind_of(r)

    def one(x, w, stride=1, dilated=1):
        return lax.conv_general_dilated(
            x, w, (stride,), "SAME", rhs_dilation=(dilated,), dimension_numbers=("NWC", "WIO", "NWC")
        )

    def forward(w, x):
        x = jax.nn.gelu(one(x, w[0], 4))
        for i, (p, q) in enumerate(w[1]):
            a, g = jnp.split(one(x, p, 1, 2**i), 2, -1)
            x = x + one(jnp.tanh(a) * jax.nn.sigmoid(g), q)
        return x.mean(1)

    w = (
        shape(16, 1, c, dtype=kind),
        [(shape(3, c, 2 * c, dtype=kind), shape(1, c, c, dtype=kind))] * r.randint(2, 4),
    )
    f = forward if r.random() < 0.4 else jax.grad(lambda *a: mean_square(forward(*a)))
    return Program(f, (w, shape(b, t, 1, dtype=kind)))


def ensembles(r):
    """Many small networks at once, each with its gradient and step."""
    k, n, d, h = (
        r.choice([8, 32, 128]),
        r.choice([64, 256, 1024]),
        r.choice([16, 64, 128]),
        r.choice([64, 256]),
    )

    def loss(w, x, y):
        for a, b in w[:-1]:
            x = jnp.tanh(x @ a + b)
        return ((x @ w[-1][0] + w[-1][1] - y) ** 2).mean()

    def step(w, x, y):
        l, g = jax.vmap(jax.value_and_grad(loss), (0, None, None))(w, x, y)
        return jax.tree.map(lambda a, b: a - 0.1 * b, w, g), l

    sizes = [d, h, h, 1]
    w = [(shape(k, a, b), shape(k, b)) for a, b in zip(sizes, sizes[1:])]
    return Program(step, (w, shape(n, d), shape(n, 1)), (0,) if r.random() < 0.5 else ())


def residuals(r):
    """A network's Laplacian at many points, squared; its gradient."""
    n, h, depth = r.choice([1024, 8192, 32768]), r.choice([64, 128, 256]), r.randint(2, 4)

    def value(w, x):
        for a in w[:-1]:
            x = jnp.tanh(x @ a)
        return (x @ w[-1])[0]

    def loss(w, xs):
        def lap(x):
            eye = jnp.eye(2)
            g = lambda y: jax.grad(value, 1)(w, y)
            return sum(jax.jvp(g, (x,), (eye[i],))[1][i] for i in range(2))

        return (jax.vmap(lap)(xs) ** 2).mean()

    w = [shape(2, h)] + [shape(h, h)] * depth + [shape(h, 1)]
    return Program(jax.grad(loss), (w, shape(n, 2)))


def orthogonal(r):
    """Momentum made orthogonal by Newton and Schulz, for a stack of matrices."""
    layers, d, f = r.choice([4, 8, 16]), r.choice([512, 1024]), r.choice([1, 2])
    kind = kind_of(r)

    def step(w, m, g):
        m = 0.95 * m + g.astype(F32)

        def turn(x):
            x = x.astype(BF16)
            x = x / (jnp.linalg.norm(x.astype(F32)) + 1e-7).astype(BF16)

            def body(x, _):
                a = x @ x.T
                return 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x, None

            return lax.scan(body, x, None, length=5)[0]

        return (w - 0.02 * jax.vmap(turn)(m)).astype(w.dtype), m

    return Program(
        step,
        (shape(layers, d, f * d, dtype=kind), shape(layers, d, f * d), shape(layers, d, f * d, dtype=kind)),
        (0, 1) if r.random() < 0.5 else (),
    )


def quantised(r):
    """Layers whose weights are bytes with scales; several turns of a scan."""
    n, d, layers, kind = r.choice([256, 2048, 8192]), r.choice([1024, 2048]), r.choice([4, 8]), kind_of(r)
    given = r.random() < 0.5

    def run(w, s, x):
        def layer(x, l):
            q, z = l
            return jax.nn.relu(x @ (q.astype(x.dtype) * z.astype(x.dtype))), None

        if given:
            return lax.scan(layer, x, (w, s))[0]
        for i in range(layers):
            x, _ = layer(x, (w[i], s[i]))
        return x

    return Program(run, (shape(layers, d, d, dtype=jnp.int8), shape(layers, 1, d), shape(n, d, dtype=kind)))


def pairs(r):
    """Triangular updates of a pair representation; forward or gradient."""
    n, c, kind = r.choice([64, 128, 256]), r.choice([32, 64, 128]), kind_of(r)

    def forward(w, z):
        y = norm(z, w["s"])
        a = jax.nn.sigmoid(y @ w["ga"]) * (y @ w["a"])
        b = jax.nn.sigmoid(y @ w["gb"]) * (y @ w["b"])
        t = jnp.einsum("ikc,jkc->ijc", a, b)
        z = z + jax.nn.sigmoid(y @ w["g"]) * (norm(t, w["s"]) @ w["o"])
        q, k, v = (y @ w[i] for i in "qkv")
        p = jax.nn.softmax(
            jnp.einsum("iqc,ikc->iqk", q, k).astype(F32) * c**-0.5 + (y @ w["bias"])[..., 0].astype(F32), -1
        )
        return z + jnp.einsum("iqk,ikc->iqc", p.astype(z.dtype), v) @ w["o"]

    w = {k: shape(c, c, dtype=kind) for k in ("a", "b", "ga", "gb", "g", "o", "q", "k", "v")} | {
        "s": shape(c),
        "bias": shape(c, 1, dtype=kind),
    }
    f = forward if r.random() < 0.4 else jax.grad(lambda *a: mean_square(forward(*a)))
    return Program(f, (w, shape(n, n, c, dtype=kind)))


USERS = {
    f"user {f.__name__}": f
    for f in (
        policies,
        accumulated,
        tied,
        windowed,
        segments,
        tables,
        spectra,
        stencils,
        routed,
        chunked,
        solved,
        scaled,
        recurrent,
        states,
        decoded,
        adapters,
        graphs,
        sounds,
        ensembles,
        residuals,
        orthogonal,
        quantised,
        pairs,
    )
}
