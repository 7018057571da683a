"""Random programs whose memory is compared with the TPU compiler's.

A program depends on its seed alone: which family, which sizes, what is
scanned, rematerialized, donated, split over devices or kept by the host.
"""
import random

import jax
import jax.numpy as jnp
from jax import lax

import memory_models as models
import memory_users
from memory_base import BF16, F32, Program, act, adam, mean_square, rows, shape, width


def mlp(r):
    layers, d, f = r.randint(2, 5), width(r), width(r)
    dtype, g = r.choice([F32, BF16]), act(r)
    residual = r.random() < 0.5

    def loss(ws, x):
        for a, b in ws:
            y = g(x @ a) @ b
            x = x + y if residual else y
        return mean_square(x)

    ws = [(shape(d, f, dtype=dtype), shape(f, d, dtype=dtype))] * layers
    kind = r.choice([jax.grad, jax.value_and_grad])
    return Program(kind(loss), (ws, shape(rows(r), d, dtype=dtype)))


def attention(r):
    b, t = r.choice([4, 8, 16]), r.choice([512, 1024, 2048, 1000])
    h, dh = r.choice([4, 8, 16]), r.choice([64, 128, 80])
    dtype, causal = r.choice([F32, BF16]), r.random() < 0.5

    def forward(w, o, x):
        q, k, v = (
            a.reshape(b, t, h, dh).transpose(0, 2, 1, 3)
            for a in jnp.split(x @ w, 3, -1)
        )
        s = (q @ k.transpose(0, 1, 3, 2)).astype(F32) / dh**0.5
        if causal:
            s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e30)
        y = jax.nn.softmax(s).astype(dtype) @ v
        return y.transpose(0, 2, 1, 3).reshape(b, t, h * dh) @ o

    d = h * dh
    args = (
        shape(d, 3 * d, dtype=dtype),
        shape(d, d, dtype=dtype),
        shape(b, t, d, dtype=dtype),
    )
    if r.random() < 0.3:
        return Program(forward, args)
    return Program(
        jax.grad(lambda *a: mean_square(forward(*a)), argnums=(0, 1)), args
    )


def convolutions(r):
    b, s = r.choice([16, 32, 64]), r.choice([56, 64, 112])
    c, layers = r.choice([64, 128, 96]), r.randint(2, 4)
    dtype = r.choice([F32, BF16])

    def loss(ws, x):
        for w in ws:
            x = jax.nn.relu(
                lax.conv_general_dilated(
                    x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        return mean_square(x)

    ws = [shape(3, 3, c, c, dtype=dtype)] * layers
    return Program(jax.grad(loss), (ws, shape(b, s, s, c, dtype=dtype)))


def scan_layers(r, remat):
    layers, d, n = r.choice([4, 8, 16, 32]), width(r), rows(r)
    dtype, g, steps = r.choice([F32, BF16]), act(r), r.randint(1, 3)

    def body(x, w):
        y = x
        for _ in range(steps):
            y = g(y @ w)
        return x + y, None

    policy = r.choice([None, jax.checkpoint_policies.dots_saveable])
    if remat:
        body = jax.checkpoint(body, policy=policy)

    def loss(ws, x):
        return mean_square(lax.scan(body, x, ws)[0])

    return Program(
        jax.grad(loss), (shape(layers, d, d, dtype=dtype), shape(n, d, dtype=dtype))
    )


def carry_stack(r):
    """Forward loops whose results are stacked, or whose state is large."""
    n, d, t = rows(r), width(r), r.choice([5, 10, 20])
    dtype, g = r.choice([F32, BF16]), act(r)
    stacked = r.random() < 0.6

    def run(w, x):
        def body(c, _):
            y = g(c @ w)
            return y, (y.astype(BF16) if stacked else y.sum(0))

        c, ys = lax.scan(body, x, None, length=t)
        return c.sum(), jnp.cos(ys)

    return Program(run, (shape(d, d, dtype=dtype), shape(n, d, dtype=dtype)))


def train_step(r):
    """Gradients of a scan or a plain stack, then Adam; state donated or not."""
    layers, d, n = r.choice([2, 4, 8]), width(r), rows(r)
    scanned, low, g = r.random() < 0.5, r.random() < 0.6, act(r)

    def loss(ws, x):
        def body(x, w):
            w = w.astype(x.dtype)
            return x + g(x @ w), None

        if scanned:
            x = lax.scan(jax.checkpoint(body) if low else body, x, ws)[0]
        else:
            for i in range(layers):
                x = body(x, ws[i])[0]
        return mean_square(x)

    def step(ws, m, v, x):
        grads = jax.grad(loss)(ws, x)
        return jax.tree.map(adam, ws, m, v, grads) if not scanned else adam(
            ws, m, v, grads
        )

    w = shape(layers, d, d) if scanned else [shape(d, d)] * layers
    x = shape(n, d, dtype=BF16 if low else F32)
    return Program(step, (w, w, w, x), (0, 1, 2) if r.random() < 0.7 else ())


def optimizer(r):
    count, d, f = r.randint(1, 4), width(r), r.choice([8192, 16384, 9000])

    def step(ps, ms, vs, gs):
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gs))
        gs = [g / jnp.maximum(norm, 1) for g in gs]
        return [adam(*a) for a in zip(ps, ms, vs, gs)]

    a = [shape(d, f)] * count
    return Program(step, (a, a, a, a), (0, 1, 2) if r.random() < 0.5 else ())


def cross_entropy(r):
    n, d, v = r.choice([2048, 4096, 8192]), width(r), r.choice([32000, 50257, 16384])
    dtype = r.choice([F32, BF16])

    def loss(w, x, y):
        z = (x @ w).astype(F32)
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]).mean()

    return Program(
        jax.grad(loss, argnums=(0, 1)),
        (shape(d, v, dtype=dtype), shape(n, d, dtype=dtype), shape(n, dtype=jnp.int32)),
    )


def embedding(r):
    n, d, v = r.choice([16384, 32768, 65536]), width(r), r.choice([32000, 100000])
    dtype = r.choice([F32, BF16])

    def loss(e, w, ids):
        return mean_square(jnp.tanh(e[ids] @ w))

    return Program(
        jax.grad(loss, argnums=(0, 1)),
        (shape(v, d, dtype=dtype), shape(d, d, dtype=dtype), shape(n, dtype=jnp.int32)),
    )


def normalized(r):
    """Layer norm and a gated product, forward or backward."""
    n, d, f = rows(r), width(r), width(r)
    dtype, layers = r.choice([F32, BF16]), r.randint(1, 3)

    def forward(ws, x):
        for a, b, c, s in ws:
            y = x.astype(F32)
            y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)
            y = (y * s).astype(dtype)
            x = x + (jax.nn.silu(y @ a) * (y @ b)) @ c
        return x

    ws = [
        (
            shape(d, f, dtype=dtype),
            shape(d, f, dtype=dtype),
            shape(f, d, dtype=dtype),
            shape(d),
        )
    ] * layers
    args = (ws, shape(n, d, dtype=dtype))
    if r.random() < 0.3:
        return Program(forward, args)
    return Program(jax.grad(lambda *a: mean_square(forward(*a))), args)


def moved(r):
    """Sorts, transposes, sums along an axis: values that are moved."""
    n, d = rows(r), width(r)
    which = r.choice(["sort", "transpose", "cumsum", "concatenate", "updates"])

    def run(x, y):
        if which == "sort":
            return jnp.sort(jnp.sin(x), axis=0) + y
        if which == "transpose":
            return jnp.sin(x).T @ y, jnp.exp(x).T.reshape(-1, 2).sum(0)
        if which == "cumsum":
            return jnp.cumsum(x * y, axis=0) + jnp.cumsum(x + y, axis=1)
        if which == "concatenate":
            z = jnp.concatenate([jnp.sin(x), y, jnp.cos(y)], 0)
            return jnp.sort(z, axis=1)[: n // 2], z.sum(0)
        z = x.at[: n // 2].set(jnp.cos(y[: n // 2]))
        return z.at[:, : d // 2].add(1.0), (z * y).sum()

    return Program(run, (shape(n, d), shape(n, d)))


def sharded(r):
    """Weights split over four devices and gathered for use."""
    layers, d, n = r.choice([2, 4, 8]), r.choice([1024, 2048, 4096]), r.choice(
        [8192, 16384, 32768]
    )
    dtype, g, remat = r.choice([F32, BF16]), act(r), r.random() < 0.5

    def body(x, w):
        a, b = w
        return x + g(x @ a) @ b, None

    def loss(ws, x):
        return mean_square(
            lax.scan(jax.checkpoint(body) if remat else body, x, ws)[0]
        )

    ws = (shape(layers, d, 2 * d, dtype=dtype), shape(layers, 2 * d, d, dtype=dtype))
    return Program(
        jax.grad(loss), (ws, shape(n, d, dtype=dtype)), split=(("-x-", "--x"), "x-"), mesh=(4,)
    )

def several(r, family):
    return family(r, r.choice([(4,), (8,), (2, 4)] if family is not models.resnet else [(4,), (8,)]))


KINDS = {
    "mlp": mlp,
    "attention": attention,
    "convolutions": convolutions,
    "scan": lambda r: scan_layers(r, False),
    "scan remat": lambda r: scan_layers(r, True),
    "carry stack": carry_stack,
    "train step": train_step,
    "optimizer": optimizer,
    "cross entropy": cross_entropy,
    "embedding": embedding,
    "normalized": normalized,
    "moved": moved,
    "sharded": sharded,
    "transformer": models.transformer,
    "transformer, split": lambda r: several(r, models.transformer),
    "resnet": models.resnet,
    "resnet, split": lambda r: several(r, models.resnet),
    "unet": models.unet,
    "experts": models.experts,
    "experts, split": lambda r: models.experts(r, (4,)),
    "state space": models.state_space,
    "recurrent": models.recurrent,
    "optimizers": models.optimizers,
    "ordered": models.ordered,
    "running": models.running,
    "picked": models.picked,
    "signal": models.signal,
    "chunked attention": models.chunked_attention,
    "attention kinds": models.attention_kinds,
    "decode": models.decode,
    "grid steps": models.grid_steps,
    "offloaded": models.offloaded,
    "collectives": models.collectives,
    **memory_users.USERS,
}


LARGE = ["mlp", "convolutions", "scan", "scan remat", "carry stack", "train step", "normalized"]


def make_large(seed, batch=None):
    """A program whose last argument has so many rows; None: as many as its
    family draws."""
    r = random.Random(seed)
    kind = LARGE[seed % len(LARGE)]
    p = KINDS[kind](r)
    *others, x = p.args
    if batch is not None:
        x = jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype)
    return kind, Program(p.function, (*others, x), p.donated), x.shape[0]


def make(seed, kind=None):
    """The family's name and the program. kind: of a row that is there already,
    which may be from when there were fewer families."""
    names = list(KINDS)
    kind = kind or names[seed % len(names)]
    return kind, KINDS[kind](random.Random(seed))
