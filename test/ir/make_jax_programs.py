#!/usr/bin/env python
"""Writes the programs that JAX sends to a platform named tpu, as portable artifacts.

  make_jax_programs.py OUT_DIR [REGEX]

One OUT_DIR/<name>.mlirbc for each function below. Callbacks need a TPU backend: they are
written only where JAX has one (TPU_LIBRARY_PATH=.../libatoll.so), and left alone elsewhere.
"""
import os, pathlib, re, sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.lib import _jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

# Locations name this file without its folder: the output does not depend on the machine.
jax.config.update('jax_hlo_source_file_canonicalization_regex', '.*/')
VERSION = '1.13.0'
PROGRAMS = {}


def program(*args, **jit):
    def add(f):
        PROGRAMS[f.__name__] = (f, args, jit)
        return f
    return add


def f32(*shape): return jax.ShapeDtypeStruct(shape, jnp.float32)
def bf16(*shape): return jax.ShapeDtypeStruct(shape, jnp.bfloat16)
def i32(*shape): return jax.ShapeDtypeStruct(shape, jnp.int32)
def c64(*shape): return jax.ShapeDtypeStruct(shape, jnp.complex64)


@program(f32(8, 16), f32(16, 4), f32(4,), donate_argnums=(0,))
def dense(x, w, b): return jnp.tanh(x @ w + b)

@program({'w1': f32(16, 32), 'w2': f32(32, 4)}, f32(8, 16), i32(8), donate_argnums=(0,))
def train_step(params, x, y):
    def loss(p):
        h = jax.nn.gelu(x @ p['w1'])
        logits = h @ p['w2']
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(8), y])
    l, g = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, d: p - 1e-2 * d, params, g), l

@program(bf16(2, 8, 4, 16), bf16(2, 8, 4, 16), bf16(2, 8, 4, 16))
def attention(q, k, v): return jax.nn.dot_product_attention(q, k, v, is_causal=True)

@program(f32(8, 32), f32(32), f32(32))
def layer_norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b

@program(f32(1, 8, 8, 3), f32(3, 3, 3, 4))
def conv(x, w): return lax.conv_general_dilated(x, w, (2, 1), 'SAME', rhs_dilation=(1, 2), dimension_numbers=('NHWC', 'HWIO', 'NHWC'))

@program(f32(1, 8, 8, 3), f32(3, 3, 3, 4))
def conv_grad(x, w):
    f = lambda x, w: (lax.conv(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), (2, 2), 'SAME') ** 2).sum()
    return jax.grad(f, (0, 1))(x, w)

@program(f32(1, 8, 8, 3))
def max_pool_grad(x):
    f = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID').sum()
    return jax.grad(f)(x)

@program(f32(4, 9))
def sort(x): return jnp.sort(x, axis=0), jnp.argsort(x), lax.sort((x, -x), num_keys=2)

@program(f32(4, 9))
def top_k(x): return lax.top_k(x, 3)

@program(f32(4, 64))
def approx_top_k(x): return lax.approx_max_k(x, 3)

@program()
def random():
    k = jax.random.key(0)
    a, b = jax.random.split(k)
    return jax.random.normal(a, (4, 5)), jax.random.randint(b, (7,), 0, 10), jax.random.permutation(a, 6)

@program()
def random_rbg():
    return jax.random.uniform(jax.random.key(3, impl='rbg'), (4, 5))

@program(f32(5, 3))
def qr(x): return jnp.linalg.qr(x)

@program(f32(4, 4))
def eigh(x): return jnp.linalg.eigh(x + x.T)

@program(f32(4, 3))
def svd(x): return jnp.linalg.svd(x, full_matrices=False)

@program(f32(4, 4), f32(4, 2))
def lu_solve(a, b): return jnp.linalg.solve(a, b), jnp.linalg.det(a)

@program(f32(4, 4), f32(4, 2))
def cholesky_solve(a, b):
    c = jnp.linalg.cholesky(a)
    return jax.scipy.linalg.cho_solve((c, True), b)

@program(f32(4, 8), c64(4, 8))
def fft(x, y): return jnp.fft.rfft(x), jnp.fft.ifft2(y), jnp.fft.irfft(y)

@program(f32(16, 4), f32(4, 4))
def scan(xs, w):
    def body(c, x):
        c = jnp.tanh(x + c @ w)
        return c, c.sum()
    return lax.scan(body, jnp.zeros(4), xs)

@program(f32(6), i32())
def while_loop(x, n):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 1.5 + x), (0, x))

@program(f32(6), i32())
def switch(x, i): return lax.switch(i, [jnp.sin, lambda v: v * 2, jnp.cumsum], x), lax.cond(i > 0, lambda: x, lambda: -x)

@program(f32(6, 5), i32(3))
def gather(x, i): return x[i], x[:, i % 5], jnp.take_along_axis(x, i[:, None] % 6, 0)

@program(f32(6, 5), i32(3), f32(3, 5))
def scatter(x, i, u): return x.at[i].add(u), x.at[i].max(u), x.at[i, 0].set(1.0)

@program(f32(6, 5), i32(), i32())
def dynamic_slice(x, i, j):
    return lax.dynamic_slice(x, (i, j), (2, 3)), lax.dynamic_update_slice(x, x[:2, :2], (j, i))

@program(f32(9), i32(9))
def segment_sum(x, i): return jax.ops.segment_sum(x, i, 4), jnp.bincount(i, length=4)

@program(f32(32), f32(4, 32))
def cumulative(x, y): return jnp.cumsum(x), jnp.cumprod(y, 1), lax.cummax(y, 1, reverse=True), lax.cumlogsumexp(x)

@program(f32(8))
def special(x):
    s = jax.scipy.special
    return s.erf(x), s.erfc(x), s.erfinv(x), s.gammaln(x), s.digamma(x), s.zeta(x, x), s.polygamma(1, x), s.i1e(x), s.betainc(x, x, x)

@program(f32(8), c64(8))
def trig(x, z):
    r = [f(x) for f in (jnp.arcsin, jnp.arccos, jnp.arctan, jnp.arcsinh, jnp.arccosh, jnp.arctanh, jnp.sinh, jnp.cosh, jnp.tan, jnp.cbrt)]
    return r, jnp.arcsin(z), jnp.sinh(z), jnp.conj(z) * jnp.abs(z), jnp.square(z)

@program(i32(8), jax.ShapeDtypeStruct((8,), jnp.uint8))
def integers(x, y):
    return lax.population_count(x), lax.clz(y), x // 3, x % 5, x >> 2, lax.shift_right_logical(x, x), x ** 3, ~x, y.astype(jnp.int4)

@program(f32(8), bf16(8))
def floats(x, y):
    return (x.astype(jnp.float8_e4m3fn), lax.nextafter(x, -x), lax.reduce_precision(x, 5, 10), jnp.isinf(x), jnp.isfinite(y), jnp.round(x), jnp.sign(y), lax.bitcast_convert_type(x, jnp.int32))

@program(f32(6, 8), f32(2, 8, 3), i32(2))
def ragged_dot(x, y, g): return lax.ragged_dot(x, y, g)

@program(f32(4, 8), f32(8, 4))
def dot_algorithm(x, y):
    return (lax.dot(x, y, precision='BF16_BF16_F32_X3'), lax.dot(x, y, precision='highest'), jnp.einsum('ij,jk->', x, y))

@program(f32(4, 8))
def remat(x):
    f = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    return jax.grad(lambda x: f(x).sum())(x)

@program(f32(4, 8), f32(8, 8), f32(4, 8))
def custom_vjp(x, w, t):
    @jax.custom_vjp
    def f(x): return jnp.exp(x)
    f.defvjp(lambda x: (f(x), x), lambda r, g: (g * r,))
    return jax.vmap(jax.grad(lambda a, b: (f(a @ w) - b).sum()))(x, t)

@program(f32(2, 3, 4))
def shapes(x):
    return (jnp.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=3), x[::-1, 1:, ::2], jnp.concatenate([x, x], 1), jnp.roll(x, 1), x.transpose(2, 0, 1).reshape(8, 3), jnp.tile(x, 2))

@program(f32(3, 4))
def reductions(x):
    return x.sum(), x.max(0), x.argmax(1), x.prod(), jnp.any(x > 0), jnp.all(x > 0, 0), jnp.var(x), jnp.median(x), jnp.quantile(x, 0.3)

@program(f32(0, 4), f32(3, 0))
def empty(x, y): return x.sum(0), y @ jnp.zeros((0, 2)), jnp.concatenate([x, x])

@program(f32())
def constants(x):
    return (x + jnp.arange(5), jnp.array([True, False, True]), np.arange(6, dtype=np.int16).reshape(2, 3), jnp.array([1 + 2j, 3]), jnp.array([1, -2, 7], jnp.int4), jnp.array([0.5, 2], jnp.float8_e5m2), jnp.full((3, 3), -jnp.inf))

@program(f32(4, 4))
def expm(x): return jax.scipy.linalg.expm(x)

@program(f32(5), f32(5))
def optimise(x, y):
    return jax.jvp(jax.grad(lambda v: (jnp.sin(v) * v).sum()), (x,), (y,)), lax.optimization_barrier((x, y))

_mesh = Mesh(np.array(jax.devices()[:1]), ('x',))
_sharding = NamedSharding(_mesh, P('x'))

@program(f32(4, 8), in_shardings=_sharding, out_shardings=_sharding)
def sharded(x): return jax.lax.with_sharding_constraint(x * 2, NamedSharding(_mesh, P(None, 'x'))) + 1

@program(f32(4, 8))
def shard_map(x):
    def f(v): return (lax.psum(v, 'x'), lax.all_gather(v, 'x'), lax.ppermute(v, 'x', [(0, 0)]), lax.psum_scatter(v, 'x', tiled=True), lax.all_to_all(v, 'x', 0, 1, tiled=True), lax.axis_index('x'))
    return jax.shard_map(f, mesh=_mesh, in_specs=P('x'), out_specs=(P(), P(None, 'x'), P('x'), P('x'), P('x'), P()), check_vma=False)(x)

@program(f32(4))
def callback(x):
    jax.debug.print('x = {}', x)
    return jax.pure_callback(lambda v: np.asarray(v) * 2, f32(4), x)

@program(f32(4))
def io_callback(x):
    from jax.experimental import io_callback as call
    return call(lambda v: np.asarray(v) + 1, f32(4), x, ordered=True)


def main(out, pattern=''):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    on_tpu = jax.default_backend() == 'tpu'
    for name, (f, args, options) in PROGRAMS.items():
        if not re.search(pattern, name) or ('callback' in name and not on_tpu):
            continue
        lowered = jax.jit(f, **options).trace(*args).lower(lowering_platforms=('tpu',))
        data = _jax.mlir.serialize_portable_artifact(lowered.compiler_ir(), VERSION, use_mixed_serialization=True)
        (out / f'{name}.mlirbc').write_bytes(data)
        print(f'{len(data):7d} {name}')


if __name__ == '__main__':
    main(*sys.argv[1:])
