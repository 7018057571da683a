"""Training steps and layers of models over a mesh, as users write them: attention,
experts, Mamba, UNet, each with rules that say which axes of the mesh cut which of its
dimensions (by name, as MaxText has them), a remat policy, and layers in a scan or not.

`PROGRAMS` maps a name to a `Program`; `build(program, devices)` gives the function to jit
and its arguments as jax.ShapeDtypeStruct with shardings; `values` fills such arguments.
"""
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P


@dataclasses.dataclass(frozen=True)
class Program:
    model: str                # attention, moe, mamba, unet
    mesh: dict                # axis -> size, major first
    rules: dict               # name of a dimension -> axis or axes
    scan: bool = True         # layers in a scan
    remat: str = "none"       # none, full, dots, names
    train: bool = True        # the step; else the forward pass
    layers: int = 3
    batch: int = 16
    seq: int = 64
    width: int = 256
    heads: int = 8
    hidden: int = 1024
    vocab: int = 512
    experts: int = 8
    dtype: str = "float32"    # of the computation; weights are float32
    gated: bool = True
    optimizer: str = "sgd"    # sgd, adam
    attention: str = "full"   # full, chunked (a scan over keys)
    routing: str = "soft"     # soft, top (dispatch with capacity), sorted (indices)


# Names of dimensions: of activations, then of weights.
FSDP = dict(batch="f", embed="f")
TENSOR = dict(heads="t", hidden="t", vocab="t")
DATA = dict(batch="d")


def mesh_of(p, devices):
    n = math.prod(p.mesh.values())
    return Mesh(np.array(devices)[:n].reshape(tuple(p.mesh.values())), tuple(p.mesh),
                axis_types=(AxisType.Auto,) * len(p.mesh))


class Place:
    """Which axes cut a value whose dimensions have these names."""

    def __init__(self, p, mesh):
        self.p, self.mesh = p, mesh

    def spec(self, names):
        used, out = set(), []
        for name in names:
            axes = self.p.rules.get(name, ()) if name else ()
            axes = tuple(a for a in ((axes,) if isinstance(axes, str) else axes)
                         if a in self.p.mesh and a not in used)
            used |= set(axes)
            out.append(axes if len(axes) > 1 else axes[0] if axes else None)
        return NamedSharding(self.mesh, P(*out))

    def pin(self, x, *names):
        return lax.with_sharding_constraint(x, self.spec(names))


# ---- Models: weights of a layer, (size, name) of each dimension, and what it does ----------------------
def norm(x, g):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def attention_weights(p):
    k = p.width // p.heads
    return dict(
        norm1=((p.width, "scale"),),
        q=((p.width, "embed"), (p.heads, "heads"), (k, None)),
        k=((p.width, "embed"), (p.heads, "heads"), (k, None)),
        v=((p.width, "embed"), (p.heads, "heads"), (k, None)),
        o=((p.heads, "heads"), (k, None), (p.width, "embed")))


def mlp_weights(p):
    w = dict(norm2=((p.width, "scale"),), w1=((p.width, "embed"), (p.hidden, "hidden")),
             w2=((p.hidden, "hidden"), (p.width, "embed")))
    if p.gated:
        w["w3"] = w["w1"]
    return w


def attend(p, place, q, k, v):
    scale = (p.width // p.heads) ** -0.5
    if p.attention == "full":
        s = jnp.einsum("bqhk,bshk->bhqs", q, k) * scale
        mask = jnp.tril(jnp.ones(s.shape[-2:], bool))
        a = jax.nn.softmax(jnp.where(mask, s.astype(jnp.float32), -1e9), -1).astype(q.dtype)
        return jnp.einsum("bhqs,bshk->bqhk", a, v)
    chunk = p.seq // 4
    ks, vs = (jnp.moveaxis(t.reshape(p.batch, 4, chunk, p.heads, -1), 1, 0) for t in (k, v))

    def body(carry, kv):
        m, z, o = carry
        kc, vc = kv
        s = jnp.einsum("bqhk,bshk->bhqs", q, kc) * scale
        new = jnp.maximum(m, s.max(-1))
        e = jnp.exp(s - new[..., None])
        old = jnp.exp(m - new)
        return (new, z * old + e.sum(-1), o * old[..., None] + jnp.einsum("bhqs,bshk->bhqk", e, vc)), None
    shape = (p.batch, p.heads, p.seq)
    start = (jnp.full(shape, -1e9, q.dtype), jnp.zeros(shape, q.dtype), jnp.zeros(shape + (q.shape[-1],), q.dtype))
    (_, z, o), _ = lax.scan(body, start, (ks, vs))
    return jnp.moveaxis(o / z[..., None], 1, 2)


def attention_part(p, place, w, x):
    h = norm(x, w["norm1"])
    q, k, v = (place.pin(jnp.einsum("bsd,dhk->bshk", h, w[n]), "batch", "length", "heads", None) for n in "qkv")
    o = attend(p, place, q, k, v)
    o = checkpoint_name(place.pin(o, "batch", "length", "heads", None), "context")
    return place.pin(x + jnp.einsum("bqhk,hkd->bqd", o, w["o"]), "batch", "norm_length", None)


def mlp_part(p, place, w, x):
    h = norm(x, w["norm2"])
    y = jax.nn.silu(h @ w["w1"]) * (h @ w["w3"]) if p.gated else jax.nn.gelu(h @ w["w1"])
    y = checkpoint_name(place.pin(y, "batch", "length", "hidden"), "hidden")
    return place.pin(x + y @ w["w2"], "batch", "norm_length", None)


def moe_weights(p):
    return dict(norm2=((p.width, "scale"),), router=((p.width, None), (p.experts, None)),
                w1=((p.experts, "expert"), (p.width, "embed"), (p.hidden, "hidden")),
                w2=((p.experts, "expert"), (p.hidden, "hidden"), (p.width, "embed")))


def moe_part(p, place, w, x):
    h = norm(x, w["norm2"])
    gate = jax.nn.softmax((h @ w["router"]).astype(jnp.float32), -1).astype(x.dtype)
    if p.routing == "soft":
        y = place.pin(jnp.einsum("bsd,edf->ebsf", h, w["w1"]), "expert", "batch", None, "hidden")
        y = jnp.einsum("ebsf,efd->ebsd", jax.nn.gelu(y), w["w2"])
        return place.pin(x + jnp.einsum("ebsd,bse->bsd", y, gate), "batch", "norm_length", None)
    capacity = 2 * p.seq // p.experts * 2
    top, at = lax.top_k(gate, 2)
    hot = jax.nn.one_hot(at, p.experts, dtype=x.dtype)              # b s k e
    rank = jnp.cumsum(hot.reshape(p.batch, -1, p.experts), 1).reshape(hot.shape) * hot
    slot = jax.nn.one_hot((rank.sum(-1) - 1).astype(jnp.int32), capacity, dtype=x.dtype)  # b s k c
    combine = jnp.einsum("bsk,bske,bskc->bsec", top, hot, slot)
    dispatch = (combine > 0).astype(x.dtype)
    y = place.pin(jnp.einsum("bsec,bsd->ebcd", dispatch, h), "expert", "batch", None, None)
    y = place.pin(jnp.einsum("ebcd,edf->ebcf", y, w["w1"]), "expert", "batch", None, "hidden")
    y = place.pin(jnp.einsum("ebcf,efd->ebcd", jax.nn.gelu(y), w["w2"]), "expert", "batch", None, None)
    return place.pin(x + jnp.einsum("ebcd,bsec->bsd", y, combine), "batch", "norm_length", None)


STATE, CONV = 8, 4


def mamba_weights(p):
    inner = 2 * p.width
    return dict(norm1=((p.width, "scale"),), inp=((p.width, "embed"), (2, None), (inner, "hidden")),
                conv=((CONV, None), (inner, "hidden")), proj=((inner, "hidden"), (2 * STATE + 1, None)),
                dt=((inner, "hidden"),), a=((inner, "hidden"), (STATE, None)), skip=((inner, "hidden"),),
                out=((inner, "hidden"), (p.width, "embed")))


def mamba_part(p, place, w, x):
    h = norm(x, w["norm1"])
    u = jnp.einsum("bsd,dzi->zbsi", h, w["inp"])
    u, z = place.pin(u[0], "batch", "length", "hidden"), place.pin(u[1], "batch", "length", "hidden")
    padded = jnp.pad(u, ((0, 0), (CONV - 1, 0), (0, 0)))
    u = jax.nn.silu(sum(padded[:, i:i + p.seq] * w["conv"][i] for i in range(CONV)))
    d, b, c = jnp.split(u @ w["proj"], (1, 1 + STATE), -1)
    d = jax.nn.softplus(d + w["dt"])                                # b s i
    decay = jnp.exp(-d[..., None] * jnp.exp(w["a"]))                # b s i n
    drive = (d * u)[..., None] * b[:, :, None, :]
    if p.attention == "chunked":                                    # step by step
        def body(s, xs):
            s = xs[0] * s + xs[1]
            return s, jnp.einsum("bin,bn->bi", s, xs[2])
        xs = tuple(jnp.moveaxis(t, 1, 0) for t in (decay, drive, c))
        y = jnp.moveaxis(lax.scan(body, jnp.zeros_like(decay[:, 0]), xs)[1], 0, 1)
    else:
        join = lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1])
        y = jnp.einsum("bsin,bsn->bsi", lax.associative_scan(join, (decay, drive), axis=1)[1], c)
    y = checkpoint_name((y + u * w["skip"]) * jax.nn.silu(z), "hidden")
    return place.pin(x + place.pin(y, "batch", "length", "hidden") @ w["out"], "batch", "norm_length", None)


LAYERS = {
    "attention": (lambda p: {**attention_weights(p), **mlp_weights(p)},
                  lambda p, place, w, x: mlp_part(p, place, w, attention_part(p, place, w, x))),
    "moe": (lambda p: {**attention_weights(p), **moe_weights(p)},
            lambda p, place, w, x: moe_part(p, place, w, attention_part(p, place, w, x))),
    "mamba": (mamba_weights, mamba_part),
}


def policy(p, f):
    if p.remat == "none":
        return f
    kinds = jax.checkpoint_policies
    return jax.checkpoint(f, policy={"full": None, "dots": kinds.dots_with_no_batch_dims_saveable,
                                     "names": kinds.save_only_these_names("context", "hidden")}[p.remat])


def cast(p, w):
    return jax.tree.map(lambda v: v.astype(p.dtype), w)


def language_weights(p):
    layer = LAYERS[p.model][0](p)
    if p.scan:
        layers = {k: ((p.layers, None),) + v for k, v in layer.items()}
    else:
        layers = [dict(layer) for _ in range(p.layers)]
    return dict(embed=((p.vocab, "vocab"), (p.width, "embed")), layers=layers, norm=((p.width, "scale"),),
                head=((p.width, "embed"), (p.vocab, "vocab")))


def language(p, place, w, tokens):
    step = policy(p, lambda x, layer: LAYERS[p.model][1](p, place, cast(p, layer), x))
    x = place.pin(w["embed"].astype(p.dtype)[tokens], "batch", "norm_length", None)
    if p.scan:
        x, _ = lax.scan(lambda x, layer: (step(x, layer), None), x, w["layers"])
    else:
        for layer in w["layers"]:
            x = step(x, layer)
    return place.pin(norm(x, w["norm"]) @ w["head"].astype(p.dtype), "batch", "length", "vocab")


def language_loss(p, place, w, tokens):
    z = language(p, place, w, tokens).astype(jnp.float32)
    target = jnp.roll(tokens, -1, 1)
    picked = jnp.sum(jax.nn.one_hot(target, p.vocab) * z, -1)
    return jnp.mean(jax.nn.logsumexp(z, -1) - picked)


# ---- UNet ---------------------------------------------------------------------------
IMAGE, ROWS, TIMES = 4, 16, 64  # channels and rows of an image, numbers that tell the time


def conv_weights(a, b, k=3):
    return ((k, None), (k, None), (a, "embed" if a > IMAGE else None), (b, "hidden" if b > IMAGE else None))


def unet_weights(p):
    c = p.width // 4
    block = lambda a, b: dict(c1=conv_weights(a, b), g1=((a, None),), c2=conv_weights(b, b), g2=((b, None),),
                              skip=conv_weights(a, b, 1), time=((TIMES, None), (b, None)))
    return dict(first=conv_weights(IMAGE, c), down=[block(c, c)], mid=block(c, 2 * c),
                up=[block(3 * c, c)], last=conv_weights(c, IMAGE))


def conv(x, w, stride=1):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def group_norm(x, g, groups=8):
    y = x.reshape(*x.shape[:3], groups, -1)
    y = (y - y.mean((1, 2, 4), keepdims=True)) * lax.rsqrt(y.var((1, 2, 4), keepdims=True) + 1e-5)
    return y.reshape(x.shape) * g


def unet(p, place, w, x, t):
    pin = lambda v: place.pin(v, "batch", "rows", None, "channels")

    def block(x, time, w):
        h = pin(conv(jax.nn.silu(group_norm(x, w["g1"])), w["c1"]))
        h = h + (time @ w["time"])[:, None, None, :]
        h = pin(conv(jax.nn.silu(group_norm(h, w["g2"])), w["c2"]))
        return pin(conv(x, w["skip"]) + h)
    block = policy(p, block)
    time = jnp.sin(t[:, None] * jnp.exp(-jnp.arange(TIMES) / 8.0))
    x = pin(conv(x, w["first"]))
    kept = []
    for layer in w["down"]:
        x = block(x, time, layer)
        kept.append(x)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") if p.gated \
            else x.reshape(x.shape[0], x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).mean((2, 4))
    x = block(x, time, w["mid"])
    for layer in w["up"]:
        x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
        x = block(jnp.concatenate((x, kept.pop()), -1), time, layer)
    return conv(x, w["last"])


def unet_loss(p, place, w, x, t, noise):
    return jnp.mean((unet(p, place, w, x + noise, t) - noise) ** 2)


# ---- Programs -----------------------------------------------------------------------
def is_dims(x):
    return isinstance(x, tuple)


def arguments(p, place):
    weights = (unet_weights if p.model == "unet" else language_weights)(p)
    struct = lambda d, dtype=jnp.float32: jax.ShapeDtypeStruct(
        tuple(n for n, _ in d), dtype, sharding=place.spec([n for _, n in d]))
    w = jax.tree.map(struct, weights, is_leaf=is_dims)
    if p.model == "unet":
        image = ((p.batch, "batch"), (ROWS, "rows"), (ROWS, None), (IMAGE, None))
        data = struct(image), struct(((p.batch, "batch"),)), struct(image)
    else:
        data = struct(((p.batch, "batch"), (p.seq, "length")), jnp.int32),
    return w, data


RATE = 10.0  # large: a wrong gradient shows in the weights


def sgd(w, g):
    return jax.tree.map(lambda w, g: w - RATE * g, w, g)


def adam(w, m, v, g):
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    return jax.tree.map(lambda w, m, v: w - RATE * m * lax.rsqrt(v + 1.0), w, m, v), m, v


def build(p, devices):
    mesh = mesh_of(p, devices)
    place = Place(p, mesh)
    w, data = arguments(p, place)
    whole = NamedSharding(mesh, P())
    out_of = lambda t: jax.tree.map(lambda x: x.sharding, t)
    if not p.train:
        f = functools.partial(unet if p.model == "unet" else language, p, place)
        return jax.jit(f), (w, *(data[:2] if p.model == "unet" else data))
    loss = functools.partial(unet_loss if p.model == "unet" else language_loss, p, place)
    if p.optimizer == "sgd":
        def step(w, *data):
            value, g = jax.value_and_grad(loss)(w, *data)
            return sgd(w, g), value
        return jax.jit(step, out_shardings=(out_of(w), whole)), (w, *data)

    def step(w, m, v, *data):
        value, g = jax.value_and_grad(loss)(w, *data)
        return *adam(w, m, v, g), value
    return jax.jit(step, out_shardings=(out_of(w),) * 3 + (whole,)), (w, w, w, *data)


def values(p, args, seed=0):
    """Arrays for such arguments; the optimizer's state is zero."""
    rng = np.random.default_rng(seed)

    def one(x):
        if x.dtype == jnp.int32:
            v = rng.integers(0, 256, x.shape, np.int32)
        else:
            fan = math.prod(x.shape[:-1]) if x.ndim > 1 else 1
            v = (rng.standard_normal(x.shape) * min(0.5, fan ** -0.5)).astype(np.float32)
        return v
    filled = list(jax.tree.map(one, args))
    if p.train and p.optimizer == "adam":
        filled[1:3] = jax.tree.map(np.zeros_like, filled[1:3])
    return jax.tree.map(lambda v, x: jax.device_put(v, x.sharding), tuple(filled), args)


def also(*rules, **more):
    return {k: v for r in (*rules, more) for k, v in r.items()}


D8, F8 = dict(d=8), dict(f=8)
D2T4, F2T4, F4T2, D2F4 = dict(d=2, t=4), dict(f=2, t=4), dict(f=4, t=2), dict(d=2, f=4)
D2F2T2 = dict(d=2, f=2, t=2)
FT = also(FSDP, TENSOR)
DT = also(DATA, TENSOR)
DF = dict(batch=("d", "f"), embed="f")
DFT = also(DF, TENSOR)
SEQ = dict(norm_length="t")
CONTEXT = dict(batch="d", length="s", norm_length="s")
EXPERT = dict(batch="d", expert="e")
BOTH = dict(batch=("d", "e"), expert="e")

PROGRAMS = {
    # Attention and a gated MLP.
    "attention data": Program("attention", D8, DATA),
    "attention data unrolled adam": Program("attention", D8, DATA, scan=False, optimizer="adam"),
    "attention fsdp": Program("attention", F8, FSDP),
    "attention fsdp remat": Program("attention", F8, FSDP, remat="full"),
    "attention fsdp dots adam": Program("attention", F8, FSDP, remat="dots", optimizer="adam"),
    "attention fsdp names bf16": Program("attention", F8, FSDP, remat="names", dtype="bfloat16"),
    "attention fsdp unrolled": Program("attention", F8, FSDP, scan=False, layers=2),
    "attention fsdp unrolled remat bf16": Program("attention", F8, FSDP, scan=False, remat="full", layers=2,
                                                  dtype="bfloat16"),
    "attention fsdp forward": Program("attention", F8, FSDP, train=False),
    "attention tensor": Program("attention", D2T4, DT),
    "attention tensor remat": Program("attention", D2T4, DT, remat="full"),
    "attention tensor unrolled bf16": Program("attention", D2T4, DT, scan=False, layers=2, dtype="bfloat16"),
    "attention tensor forward": Program("attention", D2T4, DT, train=False),
    "attention sequence": Program("attention", D2T4, also(DT, SEQ)),
    "attention sequence remat unrolled": Program("attention", D2T4, also(DT, SEQ), remat="full", scan=False, layers=2),
    "attention context": Program("attention", dict(d=2, s=4), CONTEXT, remat="full"),
    "attention fsdp x tensor": Program("attention", F4T2, FT),
    "attention fsdp x tensor remat": Program("attention", F2T4, FT, remat="full"),
    "attention fsdp x tensor x sequence dots": Program("attention", F2T4, also(FT, SEQ), remat="dots"),
    "attention data x fsdp remat": Program("attention", D2F4, DF, remat="full"),
    "attention data x fsdp x tensor": Program("attention", D2F2T2, DFT, remat="full", dtype="bfloat16"),
    "attention chunked fsdp x tensor": Program("attention", F4T2, FT, attention="chunked", remat="full"),
    "attention plain mlp fsdp remat": Program("attention", F8, FSDP, remat="full", gated=False),
    "attention uneven sequence": Program("attention", D2T4, also(DT, SEQ), seq=63, layers=2),
    # Experts.
    "moe soft expert": Program("moe", dict(d=2, e=4), EXPERT, layers=2),
    "moe soft expert remat unrolled": Program("moe", dict(d=2, e=4), EXPERT, remat="full", scan=False, layers=2),
    "moe top expert": Program("moe", dict(d=2, e=4), EXPERT, routing="top", layers=2),
    "moe top expert with batch": Program("moe", dict(d=2, e=4), BOTH, routing="top", layers=2, remat="full"),
    "moe top fsdp": Program("moe", F8, FSDP, routing="top", layers=2, remat="full"),
    "moe soft expert x tensor forward": Program("moe", dict(e=4, t=2), also(TENSOR, batch="e", expert="e"), layers=2,
                                                train=False),
    # Mamba.
    "mamba data": Program("mamba", D8, DATA, layers=2),
    "mamba fsdp remat": Program("mamba", F8, FSDP, remat="full", layers=2),
    "mamba tensor": Program("mamba", D2T4, DT, layers=2, attention="chunked"),
    "mamba fsdp x tensor remat": Program("mamba", F4T2, FT, remat="full", layers=2),
    "mamba tensor unrolled forward": Program("mamba", D2T4, DT, scan=False, layers=2, train=False),
    # UNet.
    "unet data": Program("unet", D8, DATA),
    "unet data remat pooled": Program("unet", D8, DATA, remat="full", gated=False),
    "unet fsdp": Program("unet", F8, FSDP, gated=False),
    "unet fsdp x tensor": Program("unet", F4T2, also(FSDP, hidden="t", channels="t"), gated=False, remat="full"),
    "unet tensor forward": Program("unet", D2T4, also(DATA, hidden="t", channels="t"), train=False),
    "unet data x fsdp": Program("unet", D2F4, DF, gated=False, optimizer="adam"),
}
