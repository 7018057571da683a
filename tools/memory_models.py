"""Families of whole models and of single idioms for memory_programs.py: each
takes a random.Random and returns a Program."""
import jax
import jax.numpy as jnp
from jax import lax

from memory_base import BF16, F32, Program, act, adam, mean_square, rows, shape, width


def norm(x, s):
    y = x.astype(F32)
    y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)
    return (y * s).astype(x.dtype)


def heads_of(x, h):
    b, t, d = x.shape
    return x.reshape(b, t, h, d // h)


def attend(q, k, v, causal=True, window=None):
    """[batch, time, heads, each]; keys may have fewer heads."""
    b, t, h, e = q.shape
    g = k.shape[2]
    q = q.reshape(b, t, g, h // g, e)
    s = jnp.einsum("btgne,bsge->bgnts", q, k).astype(F32) / e**0.5
    if causal:
        at, to = jnp.arange(t)[:, None], jnp.arange(k.shape[1])[None]
        seen = at >= to
        if window:
            seen &= at - to < window
        s = jnp.where(seen, s, -1e30)
    p = jax.nn.softmax(s, -1).astype(q.dtype)
    return jnp.einsum("bgnts,bsge->btgne", p, v).reshape(b, t, h * e)


def rope(x):
    t, e = x.shape[1], x.shape[-1]
    angle = jnp.arange(t)[:, None] / 1e4 ** (jnp.arange(e // 2) * 2 / e)
    c, s = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1).astype(x.dtype)


def checkpointed(r, body):
    p = jax.checkpoint_policies
    policy = r.choice(
        [None, None, p.dots_saveable, p.dots_with_no_batch_dims_saveable]
    )
    return jax.checkpoint(body, policy=policy) if r.random() < 0.6 else body


def transformer(r, mesh=None, scale=1):
    """A language model's loss, gradient or training step."""
    layers, d = r.choice([2, 3, 4, 6]), r.choice([256, 512, 768, 1024])
    h, f = d // r.choice([64, 128]), r.choice([2, 4]) * d
    g = h // r.choice([1, 2]) if h % 2 == 0 else h
    b, t = r.choice([2, 4, 8]) * scale, r.choice([512, 1024, 2048])
    vocab, dtype = r.choice([8192, 16384, 32000]), r.choice([F32, BF16])
    gated, turned, scanned = (r.random() < 0.5 for _ in range(3))
    act_of = act(r)
    e = d // h

    def block(x, w):
        y = norm(x, w["n1"])
        q, k, v = (heads_of(y @ w[n].astype(x.dtype), n_) for n, n_ in
                   (("q", h), ("k", g), ("v", g)))
        if turned:
            q, k = rope(q), rope(k)
        x = x + attend(q, k, v) @ w["o"].astype(x.dtype)
        y = norm(x, w["n2"])
        z = act_of(y @ w["up"].astype(x.dtype))
        if gated:
            z = z * (y @ w["gate"].astype(x.dtype))
        return x + z @ w["down"].astype(x.dtype), None

    body = checkpointed(r, block)

    def loss(w, ids):
        x = w["embed"].astype(dtype)[ids[:, :-1]]
        if scanned:
            x = lax.scan(body, x, w["layers"])[0]
        else:
            for i in range(layers):
                x = body(x, jax.tree.map(lambda a: a[i], w["layers"]))[0]
        z = (x @ w["embed"].astype(dtype).T).astype(F32)
        picked = jnp.take_along_axis(z, ids[:, 1:, None], -1)[..., 0]
        return (jax.nn.logsumexp(z, -1) - picked).mean()

    kept = F32 if r.random() < 0.7 else dtype
    each = {"q": (d, d), "k": (d, g * e), "v": (d, g * e), "o": (d, d), "up": (d, f),
            "down": (f, d), "n1": (d,), "n2": (d,)}
    if gated:
        each["gate"] = (d, f)
    w = {"layers": {k: shape(layers, *v, dtype=kept) for k, v in each.items()},
         "embed": shape(vocab, d, dtype=kept)}
    ids = shape(b, t + 1, dtype=jnp.int32)
    which = r.choice(["grad", "adam", "adam", "loss"])

    def step(w, m, v, ids):
        value, grads = jax.value_and_grad(loss)(w, ids)
        new = jax.tree.map(adam, w, m, v, grads)
        return tuple(jax.tree.map(lambda x: x[i], new, is_leaf=lambda x: isinstance(x, tuple))
                     for i in range(3)), value

    parts = None
    if mesh:
        tensor = {"q": "--y", "k": "--y", "v": "--y", "o": "-y-", "up": "--y", "gate": "--y", "down": "-y-"}
        whole = {"q": "-x-", "k": "-x-", "v": "-x-", "o": "-x-", "up": "-x-", "gate": "-x-", "down": "-x-"}
        kind = (tensor if len(mesh) > 1 else whole) if r.random() < 0.8 else {}
        parts = {"layers": {k: kind.get(k, "") for k in each}, "embed": "-x" if kind is whole else ""}
    if which == "adam":
        return Program(step, (w, w, w, ids), (0, 1, 2) if r.random() < 0.7 else (),
                       parts and (parts, parts, parts, "x-"), mesh)
    f_ = loss if which == "loss" else jax.grad(loss)
    return Program(f_, (w, ids), (), parts and (parts, "x-"), mesh)


def conv(x, w, stride=1, padding="SAME"):
    return lax.conv_general_dilated(x, w, (stride, stride), padding,
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def batch_norm(x, s):
    y = x.astype(F32)
    m = y.mean((0, 1, 2))
    v = (y * y).mean((0, 1, 2)) - m * m
    return ((y - m) * lax.rsqrt(v + 1e-5) * s).astype(x.dtype)


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def resnet(r, mesh=None, scale=1):
    b, s, c = r.choice([8, 16, 32]) * scale, r.choice([56, 64, 112]), r.choice([32, 64, 96])
    dtype, depth = r.choice([F32, BF16]), r.randint(1, 3)
    stem, pooled = r.random() < 0.5, r.random() < 0.5

    def loss(w, x):
        x = conv(x, w["stem"], 2 if stem else 1)
        if pooled:
            x = pool(x)
        for a, b_, s1, s2 in w["blocks"]:
            y = jax.nn.relu(batch_norm(conv(x, a), s1))
            x = jax.nn.relu(x + batch_norm(conv(y, b_), s2))
        return mean_square(x.mean((1, 2)))

    k = shape(3, 3, c, c, dtype=dtype)
    w = {"stem": shape(3, 3, 3, c, dtype=dtype), "blocks": [(k, k, shape(c), shape(c))] * depth}
    x = shape(b, s, s, 3, dtype=dtype)
    split = (jax.tree.map(lambda _: "", w), "x---") if mesh else None
    return Program(r.choice([jax.grad(loss), jax.value_and_grad(loss), loss]), (w, x), (), split, mesh)


def unet(r):
    b, s, c = r.choice([4, 8, 16]), r.choice([64, 96, 128]), r.choice([32, 64])
    dtype, levels = r.choice([F32, BF16]), r.randint(1, 3)

    def up(x):
        n, h, w, c_ = x.shape
        return jax.image.resize(x, (n, 2 * h, 2 * w, c_), "nearest")

    def forward(w, x):
        x, saved = conv(x, w["in"]), []
        for a, down in w["down"]:
            x = jax.nn.silu(conv(x, a))
            saved.append(x)
            x = conv(x, down, 2)
        for a in w["up"]:
            x = jax.nn.silu(conv(jnp.concatenate([up(x), saved.pop()], -1), a))
        return conv(x, w["out"])

    at, down, up_ = c, [], []
    for _ in range(levels):
        down.append((shape(3, 3, at, at, dtype=dtype), shape(3, 3, at, 2 * at, dtype=dtype)))
        up_.insert(0, shape(3, 3, 3 * at, at, dtype=dtype))
        at *= 2
    w = {"in": shape(3, 3, 3, c, dtype=dtype), "down": down, "up": up_, "out": shape(3, 3, c, 3, dtype=dtype)}
    x = shape(b, s, s, 3, dtype=dtype)
    if r.random() < 0.3:
        return Program(forward, (w, x))
    return Program(jax.grad(lambda w, x: mean_square(forward(w, x) - x)), (w, x))


def experts(r, mesh=None):
    """A layer of experts, tokens dispatched by products with masks."""
    n, d, f = r.choice([1024, 2048, 4096]), r.choice([256, 512, 1024]), r.choice([512, 1024, 2048])
    e, dtype = r.choice([4, 8, 16]), r.choice([F32, BF16])
    size = n * 2 // e

    def loss(w, x):
        p = jax.nn.softmax((x @ w["route"]).astype(F32))
        value, which = lax.top_k(p, 2)
        chosen = jax.nn.one_hot(which, e)
        place = jnp.cumsum(chosen.reshape(n * 2, e), 0).reshape(n, 2, e) * chosen - 1
        slot = jax.nn.one_hot(place, size, dtype=dtype)
        gates = jnp.einsum("nk,nkes->nes", value.astype(dtype), slot)
        y = jnp.einsum("nes,nd->esd", (gates > 0).astype(dtype), x)
        y = jax.nn.silu(jnp.einsum("esd,edf->esf", y, w["up"]))
        y = jnp.einsum("esf,efd->esd", y, w["down"])
        return mean_square(jnp.einsum("nes,esd->nd", gates, y))

    w = {"route": shape(d, e, dtype=dtype), "up": shape(e, d, f, dtype=dtype), "down": shape(e, f, d, dtype=dtype)}
    split = ({"route": "", "up": "x--", "down": "x--"}, "x-") if mesh else None
    f_ = r.choice([jax.grad(loss), jax.grad(loss), loss])
    return Program(f_, (w, shape(n, d, dtype=dtype)), (), split, mesh)


def state_space(r):
    """A selective scan, step by step or as an associative scan."""
    b, t, d, n = r.choice([2, 4, 8]), r.choice([512, 1024, 2048]), r.choice([256, 512, 1024]), r.choice([8, 16])
    dtype, steps = r.choice([F32, BF16]), r.random() < 0.5

    def loss(w, x):
        a = jax.nn.sigmoid(x @ w["a"])[..., None] ** jnp.arange(1, n + 1)
        u = (x @ w["u"])[..., None] * (x @ w["b"])[:, :, None, :]
        if steps:
            def body(h, at):
                h = (at[0] * h + at[1]).astype(h.dtype)
                return h, (h * at[2][:, None, :]).sum(-1)
            first = lambda z: jnp.moveaxis(z, 1, 0)
            _, y = lax.scan(body, jnp.zeros((b, d, n), dtype), (first(a), first(u), first(x @ w["c"])))
        else:
            _, h = lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]),
                                        (a.astype(dtype), u.astype(dtype)), axis=1)
            y = (h * (x @ w["c"])[:, :, None, :]).sum(-1)
        return mean_square(y)

    w = {"a": shape(d, d, dtype=dtype), "u": shape(d, d, dtype=dtype), "b": shape(d, n, dtype=dtype),
         "c": shape(d, n, dtype=dtype)}
    return Program(r.choice([jax.grad(loss), loss]), (w, shape(b, t, d, dtype=dtype)))


def recurrent(r):
    b, t, d = r.choice([32, 64, 256]), r.choice([64, 128, 256]), r.choice([256, 512, 1000])
    dtype = r.choice([F32, BF16])

    def loss(w, x):
        def body(s, x):
            h, c = s
            i, f, g, o = jnp.split(x @ w[0] + h @ w[1], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        zero = jnp.zeros((b, d), dtype)
        return mean_square(lax.scan(body, (zero, zero), x)[1])

    return Program(r.choice([jax.grad(loss), loss]),
                   ([shape(d, 4 * d, dtype=dtype)] * 2, shape(t, b, d, dtype=dtype)))


def optimizers(r):
    count, d, f = r.randint(2, 6), width(r), r.choice([4096, 8192, 5000])
    which, low = r.choice(["momentum", "lion", "factored", "clipped"]), r.random() < 0.5

    def one(p, m, g):
        if which == "lion":
            return p - 1e-4 * jnp.sign(0.9 * m + 0.1 * g), (0.99 * m + 0.01 * g).astype(m.dtype)
        if which == "factored":
            g2 = g.astype(F32) ** 2
            v = g2.mean(1, keepdims=True) * g2.mean(0, keepdims=True) / g2.mean()
            u = g * lax.rsqrt(v + 1e-30)
            u = u / jnp.maximum(1, jnp.sqrt((u * u).mean()))
            return (p - 1e-3 * u).astype(p.dtype), (0.9 * m + u).astype(m.dtype)
        m = (0.9 * m + g).astype(m.dtype)
        return (p - 1e-3 * m).astype(p.dtype), m

    def step(ps, ms, gs):
        if which == "clipped":
            n = jnp.sqrt(sum((g.astype(F32) ** 2).sum() for g in gs))
            gs = [g * jnp.minimum(1, 1 / n).astype(g.dtype) for g in gs]
        return [one(*a) for a in zip(ps, ms, gs)]

    p = [shape(d, f)] * count
    g = [shape(d, f, dtype=BF16 if low else F32)] * count
    return Program(step, (p, p, g), (0, 1) if r.random() < 0.5 else ())


def ordered(r):
    """Sorts, their permutations, and the largest of each row."""
    n, d = rows(r), r.choice([128, 256, 1000, 1024])
    which = r.choice(["sort", "argsort", "pairs", "top", "long", "unique"])
    dtype = r.choice([F32, BF16, jnp.int32])

    def run(x, y):
        z = x * 3 + y
        if which == "sort":
            return jnp.sort(z, axis=r_axis)
        if which == "argsort":
            return jnp.take_along_axis(x, jnp.argsort(z, axis=-1), -1)
        if which == "pairs":
            return lax.sort((z, x, y), dimension=r_axis, num_keys=1)
        if which == "top":
            v, i = lax.top_k(z, 16)
            return v, i, jnp.take_along_axis(y, i, -1)
        if which == "long":
            return jnp.sort(z.reshape(-1)) + y.reshape(-1)
        s = jnp.sort(z.reshape(-1))
        return (s[1:] != s[:-1]).sum(), s[::2]

    r_axis = r.choice([0, 1])
    return Program(run, (shape(n, d, dtype=dtype), shape(n, d, dtype=dtype)))


def running(r):
    """Running sums, products and extremes along an axis."""
    n, d = r.choice([4096, 8192, 10000]), width(r)
    which, axis = r.choice(["sum", "product", "max", "logsumexp"]), r.choice([0, 1])
    dtype = r.choice([F32, BF16])

    def run(x, y):
        z = jnp.sin(x) * y
        f = {"sum": jnp.cumsum, "product": jnp.cumprod, "max": lambda z, axis: lax.cummax(z, axis),
             "logsumexp": lambda z, axis: lax.cumlogsumexp(z, axis)}[which]
        return f(z, axis=axis) * y

    if r.random() < 0.4:
        return Program(jax.grad(lambda x, y: mean_square(run(x, y))), (shape(n, d, dtype=dtype),) * 2)
    return Program(run, (shape(n, d, dtype=dtype),) * 2)


def picked(r):
    """Rows gathered, added to, and summed by segment."""
    n, d, v = r.choice([8192, 16384, 32768]), r.choice([64, 128, 512, 1000]), r.choice([10000, 50000, 65536])
    which, dtype = r.choice(["gather", "add", "segment", "message"]), r.choice([F32, BF16])

    def run(e, ids, x):
        if which == "gather":
            return jnp.tanh(e[ids]) + x
        if which == "add":
            return e.at[ids].add(jnp.sin(x)), (e * 2).sum(0)
        if which == "segment":
            return jax.ops.segment_sum(jnp.exp(x), ids, v) * e
        sent = jax.nn.relu(e[ids] + x)
        return jax.ops.segment_max(sent, jnp.roll(ids, 1), v)

    args = (shape(v, d, dtype=dtype), shape(n, dtype=jnp.int32), shape(n, d, dtype=dtype))
    if r.random() < 0.4:
        return Program(jax.grad(lambda *a: sum(map(mean_square, jax.tree.leaves(run(*a))))), args)
    return Program(run, args, (0,) if which == "add" and r.random() < 0.5 else ())


def signal(r):
    """Frames, filters and polynomials of long signals."""
    b, n = r.choice([8, 16, 64]), r.choice([65536, 131072, 160000])
    which, k = r.choice(["frames", "filter", "polynomial", "levels"]), r.choice([256, 512])

    def run(x, w):
        if which == "frames":
            at = jnp.arange(0, n - k, k // 2)[:, None] + jnp.arange(k)
            return (x[:, at] * jnp.hanning(k)) @ w
        if which == "filter":
            return lax.conv_general_dilated(x[:, :, None], w[:64, None, :16], (1,), "SAME",
                                            dimension_numbers=("NWC", "WIO", "NWC"))
        if which == "polynomial":
            y = jnp.zeros_like(x)
            for i in range(12):
                y = y * x + w[0, i]
            return y, jnp.diff(jnp.tanh(y), axis=1)
        out = []
        for _ in range(4):
            x, h = (x[:, ::2] + x[:, 1::2]) / 2, (x[:, ::2] - x[:, 1::2]) / 2
            out.append(jnp.abs(h).mean(1))
        return x, out

    return Program(run, (shape(b, n), shape(k, 256)))


def chunked_attention(r):
    """Softmax over chunks of the keys, its state in a loop."""
    b, h, t, e = r.choice([1, 2, 4]), r.choice([4, 8]), r.choice([2048, 4096]), r.choice([64, 128])
    dtype, chunk = r.choice([F32, BF16]), r.choice([256, 512, 1024])

    def forward(q, k, v):
        parts = lambda x: jnp.moveaxis(x.reshape(b, h, t // chunk, chunk, e), 2, 0)
        def body(s, kv):
            m, l, o = s
            z = jnp.einsum("bhte,bhse->bhts", q, kv[0]).astype(F32) / e**0.5
            top = jnp.maximum(m, z.max(-1))
            p, keep = jnp.exp(z - top[..., None]), jnp.exp(m - top)
            o = o * keep[..., None] + jnp.einsum("bhts,bhse->bhte", p.astype(dtype), kv[1]).astype(F32)
            return (top, l * keep + p.sum(-1), o), None
        s = jnp.full((b, h, t), -1e30), jnp.zeros((b, h, t)), jnp.zeros((b, h, t, e))
        (_, l, o), _ = lax.scan(jax.checkpoint(body) if remat else body, s, (parts(k), parts(v)))
        return (o / l[..., None]).astype(dtype)

    remat = r.random() < 0.5
    x = shape(b, h, t, e, dtype=dtype)
    if r.random() < 0.5:
        return Program(forward, (x, x, x))
    return Program(jax.grad(lambda *a: mean_square(forward(*a)), argnums=(0, 1, 2)), (x, x, x))


def attention_kinds(r):
    """Grouped, sliding, crossed or biased; forward or backward."""
    b, t, h, e = r.choice([2, 4, 8]), r.choice([512, 1024, 2048]), r.choice([4, 8]), r.choice([64, 128])
    dtype, g = r.choice([F32, BF16]), r.choice([1, 2, 4])
    which = r.choice(["grouped", "sliding", "crossed"])
    other = t // 2 if which == "crossed" else t

    def forward(q, k, v):
        return attend(q, k, v, which != "crossed", 256 if which == "sliding" else None)

    k = shape(b, other, g, e, dtype=dtype)
    args = (shape(b, t, h, e, dtype=dtype), k, k)
    if r.random() < 0.4:
        return Program(forward, args)
    return Program(jax.grad(lambda *a: mean_square(forward(*a)), argnums=(0, 1, 2)), args)


def decode(r):
    """A token through layers whose keys and values are kept."""
    b, t, layers = r.choice([8, 16, 32]), r.choice([1024, 2048, 4096]), r.choice([2, 4, 8])
    h, e, dtype, scanned = r.choice([4, 8]), 128, r.choice([F32, BF16]), r.random() < 0.5
    d = h * e

    def layer(x, w, kept, at):
        q, k, v = (y.reshape(b, 1, h, e) for y in jnp.split(x @ w[0], 3, -1))
        ks = lax.dynamic_update_slice(kept[0], k, (0, at, 0, 0))
        vs = lax.dynamic_update_slice(kept[1], v, (0, at, 0, 0))
        s = jnp.einsum("bqhe,bshe->bhqs", q, ks).astype(F32)
        p = jax.nn.softmax(jnp.where(jnp.arange(t) <= at, s, -1e30)).astype(dtype)
        return x + jnp.einsum("bhqs,bshe->bqhe", p, vs).reshape(b, d) @ w[1], (ks, vs)

    def step(ws, kept, x, at):
        if scanned:
            return lax.scan(lambda x, a: layer(x, a[0], a[1], at), x, (ws, kept))
        out = []
        for i in range(layers):
            x, k = layer(x, jax.tree.map(lambda a: a[i], ws), kept[i], at)
            out.append(k)
        return x, out

    pair = (shape(b, t, h, e, dtype=dtype),) * 2
    kept = (shape(layers, b, t, h, e, dtype=dtype),) * 2 if scanned else [pair] * layers
    ws = (shape(layers, d, 3 * d, dtype=dtype), shape(layers, d, d, dtype=dtype))
    return Program(step, (ws, kept, shape(b, d, dtype=dtype), shape(dtype=jnp.int32)),
                   (1,) if r.random() < 0.7 else ())


def grid_steps(r):
    """A stencil over a grid, step after step."""
    n, t, kept = r.choice([2048, 4096, 3000]), r.choice([10, 50]), r.random() < 0.5

    def run(u, v):
        def body(s, _):
            u, v = s
            lap = (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)
            v = v + 0.1 * lap
            return (u + 0.1 * v, v), (u[::4, ::4] if kept else u.sum())
        return lax.scan(body, (u, v), None, length=t)

    donated = (0, 1) if r.random() < 0.5 else ()
    if not kept and r.random() < 0.4:
        return Program(jax.grad(lambda u, v: mean_square(run(u, v)[0][0])), (shape(n // 2, n // 2),) * 2)
    return Program(run, (shape(n, n), shape(n, n)), donated)


def offloaded(r):
    """Optimizer state or weights that the host keeps."""
    count, d, f = r.randint(2, 5), r.choice([1024, 2048]), r.choice([4096, 8192])
    which, n = r.choice(["state", "weights"]), r.choice([4096, 8192])
    w = [shape(d, f)] * count

    def state(ps, ms, gs):
        out = []
        for p, m, g in zip(ps, ms, gs):
            m = 0.9 * jax.device_put(m, jax.memory.Space.Device) + g
            out.append((p - 1e-3 * m, jax.device_put(m, jax.memory.Space.Host)))
        return out

    def weights(ws, x):
        for a in ws:
            a = jax.device_put(a, jax.memory.Space.Device)
            x = x + jnp.tanh(x @ a) @ a.T
        return x

    host = ["@"] * count
    if which == "state":
        return Program(state, (w, w, w), (), ([""] * count, host, [""] * count), (1,))
    return Program(weights, (w, shape(n, d)), (), (host, ""), (1,))


def collectives(r):
    """Layers split over devices: gathered, summed, scattered, exchanged."""
    mesh = r.choice([(4,), (8,), (2, 4)])
    n, d, f = r.choice([4096, 8192, 16384]), r.choice([1024, 2048]), r.choice([4096, 8192])
    dtype, layers = r.choice([F32, BF16]), r.randint(1, 4)
    y = "y" if len(mesh) > 1 else "x"
    batch = "x" if len(mesh) > 1 else "-"
    whole = r.random() < 0.5

    def loss(ws, x):
        for a, b in ws:
            x = x + jax.nn.gelu(x @ a) @ b
        return mean_square(x)

    ws = [(shape(d, f, dtype=dtype), shape(f, d, dtype=dtype))] * layers
    split = ([("-" + y, y + "-")] * layers, batch + "-")
    if whole:
        split = ([("x-", "-x")] * layers, "x-")
    return Program(r.choice([jax.grad(loss), loss]), (ws, shape(n, d, dtype=dtype)), (), split, mesh)
