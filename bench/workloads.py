"""The workloads that Atoll and its peers are measured on: name -> how to make it."""
from dataclasses import dataclass, field
from typing import Any, Callable

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

WORKLOADS: dict[str, Callable[[], "Work"]] = {}
M = 1 << 20


@dataclass
class Work:
    fn: Callable[..., Any]
    inputs: list = field(default_factory=list)
    flops: float = 0           # multiply and add count as two
    bytes: float = 0           # least memory traffic
    dtype: str = "f32"         # which limit and which mean it counts to
    tolerance: float | None = 1e-4  # None: results are not compared
    flips: float = 0           # share of elements that may differ: a comparison inside may fall either way


def make(name):
    return WORKLOADS[name]()


def registry(table):
    """A decorator that puts what makes a Work into `table` under a name."""
    def named(name):
        def add(make_work):
            table[name] = make_work
            return make_work
        return add
    return named


workload = registry(WORKLOADS)


def normal(*shape, dtype="f32", scale=1.0, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)
    return x.astype(ml_dtypes.bfloat16) if dtype == "bf16" else x


def uniform(*shape, seed=0):
    return np.random.default_rng(seed).random(shape, np.float32)


def below(limit, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, limit, shape).astype(np.int32)


def with_vjp(fn):
    """fn's value and the cotangents of all its arguments; the last input is dy."""
    def both(*args):
        y, vjp = jax.vjp(fn, *args[:-1])
        return (y,) + vjp(args[-1])
    return both


@workload("tiny_dispatch")
def _():
    return Work(lambda x: x + 1, [normal(8)])


@workload("gelu_chain_16M")
def _():
    return Work(lambda x: jax.nn.gelu(x * 1.1 + 0.1) * x, [normal(16 * M)], bytes=8 * 16 * M)


@workload("softmax_8192x2048")
def _():
    return Work(lambda x: jax.nn.softmax(x, axis=-1), [normal(8192, 2048)], bytes=8 * 8192 * 2048)


def layernorm(x, gain, bias):
    y = x.astype(jnp.float32)
    mean = y.mean(-1, keepdims=True)
    var = jnp.square(y - mean).mean(-1, keepdims=True)
    y = (y - mean) * jax.lax.rsqrt(var + 1e-5)
    return (y * gain.astype(jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


@workload("log_softmax_bf16")
def _():
    return Work(lambda x: jax.nn.log_softmax(x, axis=-1), [normal(8192, 2048, dtype="bf16")], bytes=4 * 8192 * 2048, dtype="bf16",
                tolerance=2e-2)


@workload("softmax_masked")
def _():
    def masked(score, mask):
        return jax.nn.softmax(jnp.where(mask, score * 0.125, -1e9), -1)
    inputs = [normal(4, 8, 1024, 512), normal(4, 1, 1024, 512, seed=1) > 0]
    return Work(masked, inputs, bytes=8 * 4 * 8 * 1024 * 512 + 4 * 1024 * 512)


@workload("dropout_softmax")
def _():
    def dropped(key, x):
        keep = jax.random.bernoulli(jax.random.wrap_key_data(key, impl="threefry2x32"), 0.9, x.shape)
        return jnp.where(keep, jax.nn.softmax(x, -1) / 0.9, 0)
    return Work(dropped, [np.array([1, 2], np.uint32), normal(8192, 1024)], bytes=8 * 8192 * 1024)


@workload("standardise")
def _():
    def standard(x):
        return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5)
    return Work(standard, [normal(8192, 1024)], bytes=8 * 8192 * 1024)


@workload("cross_entropy_8192x50k")
def _():
    def loss(logits, labels):
        return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]).mean()
    return Work(loss, [normal(8192, 50000), below(50000, 8192)], bytes=4 * 8192 * 50000, tolerance=1e-3)


@workload("cross_entropy_grad_1024x50k")
def _():
    def loss(logits, labels):
        return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]).mean()
    return Work(jax.value_and_grad(loss), [normal(1024, 50000), below(50000, 1024)], bytes=8 * 1024 * 50000, tolerance=1e-3)


def rms_norm(x, gain):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * gain).astype(x.dtype)


@workload("rms_norm_fwdbwd_bf16")
def _():
    inputs = [normal(8192, 1024, dtype="bf16"), normal(1024, seed=1), normal(8192, 1024, dtype="bf16", seed=2)]
    return Work(with_vjp(rms_norm), inputs, bytes=8 * 8192 * 1024, dtype="bf16", tolerance=2e-2)


@workload("layernorm_fwd")
def _():
    return Work(layernorm, [normal(8192, 1024), normal(1024, seed=1), normal(1024, seed=2)], bytes=8 * 8192 * 1024)


@workload("layernorm_fwdbwd")
def _():
    inputs = [normal(8192, 1024), normal(1024, seed=1), normal(1024, seed=2), normal(8192, 1024, seed=3)]
    return Work(with_vjp(layernorm), inputs, bytes=16 * 8192 * 1024, tolerance=1e-3)


def matmul(dtype, m, k, n):
    size = 2 if dtype == "bf16" else 4
    return lambda: Work(lambda a, b: a @ b, [normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)],
                        flops=2 * m * k * n, bytes=size * (m * k + k * n + m * n), dtype=dtype,
                        tolerance=2e-2 if dtype == "bf16" else 1e-4)


def mlp(dtype):
    def loss(p, x, y):
        hidden = jax.nn.gelu(x @ p[0] + p[1])
        return jnp.mean(jnp.square((hidden @ p[2] + p[3] - y).astype(jnp.float32)))

    def make_work():
        zeros = lambda n: np.zeros(n, normal(1, dtype=dtype).dtype)
        inputs = [normal(1024, 4096, dtype=dtype, scale=.03), zeros(4096), normal(4096, 1024, dtype=dtype, scale=.015),
                  zeros(1024), normal(256, 1024, dtype=dtype, seed=5), normal(256, 1024, dtype=dtype, seed=6)]
        return Work(lambda a, b, c, d, x, y: jax.value_and_grad(loss)((a, b, c, d), x, y), inputs,
                    flops=10 * 256 * 1024 * 4096, bytes=6 * (2 if dtype == "bf16" else 4) * 1024 * 4096, dtype=dtype,
                    tolerance=5e-2 if dtype == "bf16" else 1e-3)
    return make_work


for kind in ("f32", "bf16"):
    for size in (256, 1024, 2048):
        WORKLOADS[f"matmul_{kind}_{size}"] = matmul(kind, size, size, size)
    for rows in (1, 8):
        WORKLOADS[f"matmul_{kind}_m{rows}_4096"] = matmul(kind, rows, 4096, 4096)
    WORKLOADS[f"mlp_fwdbwd_{kind}"] = mlp(kind)


@workload("attention_fwdbwd_f32")
def _():
    def attention(q, k, v):
        score = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(score, -1), v)
    return Work(with_vjp(attention), [normal(4, 8, 512, 64, seed=i) for i in range(4)],
                flops=12 * 32 * 512 * 512 * 64, bytes=32 * 32 * 512 * 64, tolerance=1e-3)


def block(p, x, heads):
    b, s, d = x.shape
    qkv = (layernorm(x, p["g1"], p["b1"]) @ p["wqkv"]).reshape(b, s, 3, heads, d // heads)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    score = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(jnp.float32) * (d // heads) ** -0.5
    score = jnp.where(jnp.tril(jnp.ones((s, s), bool)), score, -1e9)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(score, -1).astype(x.dtype), v)
    x = x + mixed.transpose(0, 2, 1, 3).reshape(b, s, d) @ p["wo"]
    return x + jax.nn.gelu(layernorm(x, p["g2"], p["b2"]) @ p["w1"]) @ p["w2"]


def block_params(d, dtype, seed=10):
    one = normal(1, dtype=dtype).dtype
    return {"b1": np.zeros(d, one), "b2": np.zeros(d, one), "g1": np.ones(d, one), "g2": np.ones(d, one),
            "w1": normal(d, 4 * d, dtype=dtype, scale=.02, seed=seed),
            "w2": normal(4 * d, d, dtype=dtype, scale=.02, seed=seed + 1),
            "wo": normal(d, d, dtype=dtype, scale=.02, seed=seed + 2),
            "wqkv": normal(d, 3 * d, dtype=dtype, scale=.02, seed=seed + 3)}


def gpt_block(dtype):
    def make_work():
        b, s, d, heads = 4, 512, 768, 12
        params = block_params(d, dtype)

        def fn(x, dy, *flat):
            y, vjp = jax.vjp(lambda p, x: block(p, x, heads), dict(zip(params, flat)), x)
            return (y,) + tuple(jax.tree.leaves(vjp(dy)))
        inputs = [normal(b, s, d, dtype=dtype, seed=1), normal(b, s, d, dtype=dtype, seed=2), *params.values()]
        return Work(fn, inputs, flops=3 * (24 * b * s * d * d + 4 * b * s * s * d),
                    bytes=36 * (2 if dtype == "bf16" else 4) * d * d, dtype=dtype,
                    tolerance=1e-1 if dtype == "bf16" else 1e-3)
    return make_work


WORKLOADS["gpt_block_fwdbwd_f32"] = gpt_block("f32")
WORKLOADS["gpt_block_fwdbwd_bf16"] = gpt_block("bf16")


@workload("conv3x3_fwdbwd_f32")
def _():
    def conv(x, w):
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu(y)
    return Work(with_vjp(conv), [normal(8, 56, 56, 64), normal(3, 3, 64, 64, scale=.05, seed=1), normal(8, 56, 56, 64, seed=2)],
                flops=6 * 8 * 56 * 56 * 64 * 64 * 9, bytes=20 * 8 * 56 * 56 * 64,
                # outputs near 0 may fall on either side of the relu, and each moves 1.6 % of the weights' gradients
                tolerance=1e-3, flips=.05)


@workload("sort_4M_f32")
def _():
    return Work(jnp.sort, [normal(4 * M)], bytes=32 * M, tolerance=0.0)


@workload("sort_64K_f32")
def _():
    return Work(jnp.sort, [normal(65536)], bytes=8 * 65536, tolerance=0.0)


@workload("argsort_4M_f32")
def _():
    return Work(jnp.argsort, [normal(4 * M)], bytes=32 * M, tolerance=0.0)


@workload("topk64_of_4M")
def _():
    return Work(lambda x: jax.lax.top_k(x, 64), [normal(4 * M)], bytes=16 * M, tolerance=0.0)


@workload("topk8_256x50k")
def _():
    return Work(lambda x: jax.lax.top_k(x, 8), [normal(256, 50000)], bytes=4 * 256 * 50000, tolerance=0.0)


@workload("gather_1Mrows_1Mx64")
def _():
    return Work(lambda t, i: t[i], [normal(M, 64), below(M, M)], bytes=8 * 64 * M + 4 * M, tolerance=0.0)


@workload("segment_sum_1Mrows_1Mx64")
def _():
    return Work(lambda d, i: jax.ops.segment_sum(d, i, num_segments=M), [normal(M, 64), below(M, M)],
                bytes=12 * 64 * M + 4 * M)


@workload("cumsum_16M")
def _():
    return Work(jnp.cumsum, [normal(16 * M)], bytes=8 * 16 * M, tolerance=1e-3)


@workload("reduce_rows_8192sq")
def _():
    return Work(lambda x: x.sum(1), [normal(8192, 8192)], bytes=4 * 8192 * 8192, tolerance=1e-3)


@workload("reduce_cols_8192sq")
def _():
    return Work(lambda x: x.sum(0), [normal(8192, 8192)], bytes=4 * 8192 * 8192, tolerance=1e-3)


@workload("transpose_8192sq")
def _():
    return Work(lambda x: x.T.copy(), [normal(8192, 8192)], bytes=8 * 8192 * 8192, tolerance=0.0)


@workload("while_100k_scalar")
def _():
    def fn(x):
        return jax.lax.while_loop(lambda c: c[0] < 100000, lambda c: (c[0] + 1, c[1] * 0.999 + 0.5), (0, x))
    return Work(fn, [np.float32(1)])


@workload("lstm_scan256_h512_b16")
def _():
    def fn(xs, wx, wh, bias):
        def step(carry, x):
            h, c = carry
            i, g, f, o = jnp.split(x @ wx + h @ wh + bias, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        zero = jnp.zeros((xs.shape[1], 512), jnp.float32)
        return jax.lax.scan(step, (zero, zero), xs)[1]
    return Work(fn, [normal(256, 16, 512), normal(512, 2048, scale=.04), normal(512, 2048, scale=.04, seed=1),
                     np.zeros(2048, np.float32)], flops=256 * 2 * 16 * 1024 * 2048, bytes=8 * 512 * 2048)


@workload("threefry_bits_16M")
def _():
    def fn(key):
        return jax.random.bits(jax.random.wrap_key_data(key, impl="threefry2x32"), (16 * M,), "uint32")
    return Work(fn, [below(1 << 31, 2).astype(np.uint32)], bytes=4 * 16 * M, tolerance=0.0)


@workload("fft_2e20_c64")
def _():
    def fn(re, im):
        z = jnp.fft.fft(re + 1j * im)
        return z.real, z.imag
    return Work(fn, [normal(M), normal(M, seed=1)], flops=5 * M * 20, bytes=16 * M, tolerance=1e-3)


@workload("fft_convolution_b16_16384_f32")
def _():
    def fn(x, h):
        return jnp.fft.irfft(jnp.fft.rfft(x, 16384) * jnp.fft.rfft(h, 16384), 16384)
    return Work(fn, [normal(16, 16384 - 256), normal(257, scale=.1, seed=1)], flops=16 * 2 * 2.5 * 16384 * 14,
                bytes=16 * 16384 * 8, tolerance=1e-4)


@workload("spectrogram_b4_65536_w512_f32")
def _():
    def fn(x):
        return jnp.abs(jax.scipy.signal.stft(x, nperseg=512)[2]) ** 2
    return Work(fn, [normal(4, 65536)], flops=4 * 257 * 2.5 * 512 * 9, bytes=4 * 65536 * 12, tolerance=1e-4)


@workload("solve_b2048_16x16_f32")
def _():
    a = normal(2048, 16, 16) + 8 * np.eye(16, dtype=np.float32)
    return Work(jnp.linalg.solve, [a, normal(2048, 16, 1, seed=1)], flops=2048 * 2 / 3 * 16 ** 3, bytes=2048 * 4 * 300,
                tolerance=1e-3)


@workload("expm_256_f32")
def _():
    return Work(jax.scipy.linalg.expm, [normal(256, 256, scale=1 / 16)], flops=16 * 256 ** 3, bytes=8 * 256 ** 2,
                tolerance=1e-3)


@workload("svd_256_f32")
def _():
    def fn(x):
        return jnp.linalg.svd(x, compute_uv=False)
    return Work(fn, [normal(256, 256)], flops=8 / 3 * 256 ** 3, bytes=4 * 256 ** 2, tolerance=1e-3)


def gpt_train_step(dtype):
    """Six layers, width 384, context 256, batch 8, vocabulary 50,000; Adam in plain JAX."""
    compute = jnp.bfloat16 if dtype == "bf16" else jnp.float32

    def make_work():
        d, layers, s, b, vocab = 384, 6, 256, 8, 50000
        params = {"emb": normal(vocab, d, scale=.02, seed=1), "pos": normal(s, d, scale=.02, seed=2),
                  "layers": [block_params(d, "f32", 100 + 10 * i) for i in range(layers)]}
        leaves, tree = jax.tree.flatten(params)
        n = len(leaves)

        def loss(p, tokens):
            p = jax.tree.map(lambda a: a.astype(compute), p)
            x = p["emb"][tokens[:, :-1]] + p["pos"]
            for layer in p["layers"]:
                x = block(layer, x, 6)
            score = jax.nn.log_softmax((x @ p["emb"].T).astype(jnp.float32), -1)
            return -jnp.take_along_axis(score, tokens[:, 1:, None], -1).mean()

        def fn(tokens, t, *state):
            p, m, v = (jax.tree.unflatten(tree, state[i * n:(i + 1) * n]) for i in range(3))
            value, g = jax.value_and_grad(loss)(p, tokens)
            m = jax.tree.map(lambda a, b: .9 * a + .1 * b, m, g)
            v = jax.tree.map(lambda a, b: .999 * a + .001 * b * b, v, g)
            c1, c2 = 1 - .9 ** t, 1 - .999 ** t
            p = jax.tree.map(lambda a, b, c: a - 1e-3 * (b / c1) / (jnp.sqrt(c / c2) + 1e-8), p, m, v)
            return value, p, m, v
        zeros = [np.zeros_like(x) for x in leaves]
        tokens = b * s
        return Work(fn, [below(vocab, b, s + 1), np.float32(1), *leaves, *zeros, *zeros],
                    flops=6 * tokens * (layers * 12 * d * d + vocab * d) + 12 * layers * b * s * s * d,
                    bytes=28 * (vocab * d + layers * 12 * d * d), dtype=dtype,
                    tolerance=None)
    return make_work


WORKLOADS["gpt_train_step_f32"] = gpt_train_step("f32")
WORKLOADS["gpt_train_step_bf16"] = gpt_train_step("bf16")


def experts(dtype, groups=8, rows=2048, d=512, hidden=1024):
    """A mixture of experts after routing: rows sorted by expert, two products, and the gradients of all."""
    def make_work():
        def layer(x, up, down, sizes):
            h = jax.nn.silu(jax.lax.ragged_dot(x, up, sizes))
            return jax.lax.ragged_dot(h, down, sizes)

        def fn(x, up, down, sizes, dy):
            y, vjp = jax.vjp(lambda *a: layer(*a, sizes), x, up, down)
            return (y,) + vjp(dy)
        sizes = np.bincount(below(groups * groups, rows) % (groups + 1) % groups, minlength=groups).astype(np.int32)
        inputs = [normal(rows, d, dtype=dtype), normal(groups, d, hidden, dtype=dtype, scale=d ** -.5, seed=1),
                  normal(groups, hidden, d, dtype=dtype, scale=hidden ** -.5, seed=2), sizes,
                  normal(rows, d, dtype=dtype, seed=3)]
        return Work(fn, inputs, flops=12 * rows * d * hidden, dtype=dtype,
                    tolerance=5e-2 if dtype == "bf16" else 1e-3)
    return make_work


WORKLOADS["experts_vjp_f32"] = experts("f32")
WORKLOADS["experts_vjp_bf16"] = experts("bf16")


# Programs such as users write: images and their augmentation, small matrices, loops around products, states of
# simulations. Nearly all are of rows too short for a vector.
def bytes_of_image(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def image_resize(before, after, method):
    return lambda: Work(lambda x: jax.image.resize(x, (4, after, after, 3), method), [normal(4, before, before, 3)],
                        bytes=4 * 12 * (before ** 2 + after ** 2))


for method in ("nearest", "bilinear", "cubic"):
    WORKLOADS[f"resize_{method}_up"] = image_resize(128, 224, method)
    WORKLOADS[f"resize_{method}_down"] = image_resize(224, 96, method)


@workload("image_gray")
def _():
    def gray(x):
        return (x.astype(jnp.float32) @ jnp.array([.299, .587, .114], jnp.float32)).astype(jnp.uint8)
    return Work(gray, [bytes_of_image(8, 256, 256, 3)], bytes=8 * 256 ** 2 * 4, tolerance=1e-2)


@workload("image_normalise")
def _():
    def scaled(x):
        return (x.astype(jnp.float32) / 255 - jnp.array([.485, .456, .406])) / jnp.array([.229, .224, .225])
    return Work(scaled, [bytes_of_image(16, 224, 224, 3)], bytes=16 * 224 ** 2 * 15)


@workload("image_flip_crop")
def _():
    return Work(lambda x: x[:, 16:240, 16:240][:, :, ::-1].astype(jnp.float32) / 127.5 - 1,
                [bytes_of_image(16, 256, 256, 3)], bytes=16 * 224 ** 2 * 15)


@workload("image_channels_first")
def _():
    return Work(lambda x: x.transpose(0, 3, 1, 2).astype(jnp.float32) / 255, [bytes_of_image(16, 224, 224, 3)],
                bytes=16 * 224 ** 2 * 15)


@workload("mean_pool_grad")
def _():
    def loss(x):
        pooled = jax.lax.reduce_window(x, 0., jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        return jnp.sum(pooled * pooled)
    return Work(jax.grad(loss), [normal(8, 64, 64, 32)], bytes=8 * 8 * 64 * 64 * 32)


@workload("rotate_by_quaternions")
def _():
    def rotate(q, v):
        q = q / jnp.linalg.norm(q, axis=-1, keepdims=True)
        axis, angle = q[:, :3], q[:, 3:]
        return v + 2 * jnp.cross(axis, jnp.cross(axis, v) + angle * v)
    return Work(rotate, [normal(50000, 4), normal(50000, 3, seed=1)], bytes=40 * 50000)


@workload("small_jacobians")
def _():
    def polar(x):
        return jnp.stack([x[0] * jnp.cos(x[1]), x[0] * jnp.sin(x[1]) * x[2], x[2] ** 2 + x[0]])
    return Work(jax.vmap(jax.jacfwd(polar)), [normal(10000, 3)], bytes=48 * 10000)


@workload("small_hessians")
def _():
    def rosenbrock(p):
        return jnp.sum((1 - p[:-1]) ** 2 + 100 * (p[1:] - p[:-1] ** 2) ** 2)
    return Work(jax.vmap(jax.hessian(rosenbrock)), [normal(1024, 10)], bytes=440 * 1024)


@workload("small_transposes")
def _():
    return Work(lambda x: jnp.swapaxes(x, 1, 2), [normal(4096, 4, 4)], bytes=128 * 4096, tolerance=0.0)


@workload("hamming_distances")
def _():
    words = [np.random.default_rng(seed).integers(0, 2 ** 32, (n, 8), dtype=np.uint32) for seed, n in ((0, 256), (1, 512))]
    return Work(lambda a, b: jax.lax.population_count(a[:, None] ^ b[None]).sum(-1), words, bytes=4 * 256 * 512,
                tolerance=0.0)


@workload("confusion_matrix")
def _():
    def matrix(score, label):
        return jnp.zeros((21, 21), jnp.int32).at[label.reshape(-1), score.argmax(-1).reshape(-1)].add(1)
    return Work(matrix, [normal(2, 128, 128, 21), below(21, 2, 128, 128)], bytes=2 * 128 ** 2 * 88, tolerance=0.0)


@workload("power_iteration_500")
def _():
    def rank(a):
        p = a / a.sum(0)
        return jax.lax.fori_loop(0, 50, lambda i, r: .85 * p @ r + .15 / 500, jnp.ones(500) / 500)
    return Work(rank, [np.abs(normal(500, 500))], flops=50 * 2 * 500 ** 2, bytes=4 * 500 ** 2)


@workload("conjugate_gradients_200")
def _():
    a = normal(200, 200)
    a = (a @ a.T / 200 + np.eye(200)).astype(np.float32)
    return Work(lambda a, b: jax.scipy.sparse.linalg.cg(lambda x: a @ x, b, maxiter=20)[0], [a, normal(200, seed=1)],
                flops=20 * 2 * 200 ** 2)


@workload("hamiltonian_steps")
def _():
    def steps(x, p, rows, label):
        def energy(w):
            z = rows @ w
            return -(label * jax.nn.log_sigmoid(z) + (1 - label) * jax.nn.log_sigmoid(-z)).sum() + .5 * w @ w

        def step(_, state):
            x, p = state
            p = p - .005 * jax.grad(energy)(x)
            x = x + .01 * p
            return x, p - .005 * jax.grad(energy)(x)
        return jax.lax.fori_loop(0, 20, step, (x, p))
    return Work(steps, [normal(20), normal(20, seed=1), normal(500, 20, seed=2), (normal(500, seed=3) > 0).astype(np.float32)],
                flops=20 * 8 * 500 * 20, tolerance=1e-3)


@workload("lorenz_b256")
def _():
    def slope(s):
        x, y, z = s[..., 0], s[..., 1], s[..., 2]
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)

    def step(s, _):
        a = slope(s)
        b = slope(s + .005 * a)
        c = slope(s + .005 * b)
        s = s + .01 / 6 * (a + 2 * b + 2 * c + slope(s + .01 * c))
        return s, s
    return Work(lambda s: jax.lax.scan(step, s, None, length=100)[1], [normal(256, 3)], bytes=100 * 256 * 12, tolerance=1e-2)


@workload("eigh_256_f32")
def _():
    a = normal(256, 256)
    return Work(jnp.linalg.eigvalsh, [a + a.T], flops=4 / 3 * 256 ** 3, bytes=4 * 256 ** 2, tolerance=1e-3)
