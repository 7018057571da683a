"""Whole programs of many fields for `hlo_corpus.py --fields`: what people write, by hand, where hlo_programs.py draws ops.

Each function of PROGRAMS takes a generator of numbers and gives (function, arguments).
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PROGRAMS = []


def program(f):
  PROGRAMS.append(f)
  return f


def floats(r, *dims, dtype=np.float32):
  return r.standard_normal(dims).astype(dtype)


# ---- Linear algebra
@program
def power_iteration(r):
  def f(a, v):
    def turn(_, v):
      w = a @ v
      return w / jnp.linalg.norm(w)
    v = lax.fori_loop(0, 30, turn, v)
    return v, v @ a @ v
  a = floats(r, 12, 12)
  return f, (a @ a.T + 3 * np.eye(12, dtype=np.float32), np.ones(12, np.float32))


@program
def conjugate_gradient(r):
  def f(a, b):
    def more(s):
      return (s[3] > 1e-6) & (s[4] < 40)

    def turn(s):
      x, res, p, rs, n = s
      ap = a @ p
      alpha = rs / (p @ ap)
      res = res - alpha * ap
      new = res @ res
      return x + alpha * p, res, res + new / rs * p, new, n + 1
    return lax.while_loop(more, turn, (jnp.zeros_like(b), b, b, b @ b, 0))[0]
  a = floats(r, 10, 10)
  return f, (a @ a.T / 10 + np.eye(10, dtype=np.float32), floats(r, 10))


@program
def gram_schmidt(r):
  def f(a):
    def turn(i, q):
      v = a[:, i] - q @ (q.T @ a[:, i])
      return q.at[:, i].set(v / jnp.linalg.norm(v))
    return lax.fori_loop(0, a.shape[1], turn, jnp.zeros_like(a))
  return f, (floats(r, 9, 6),)


@program
def tridiagonal_thomas(r):
  def f(lower, diagonal, upper, b):
    def down(c, x):
      cp, dp = c
      l, d, u, y = x
      m = 1 / (d - l * cp)
      return (u * m, (y - l * dp) * m), (u * m, (y - l * dp) * m)
    _, (cs, ds) = lax.scan(down, (0., 0.), (lower, diagonal, upper, b))

    def up(x, cd):
      x = cd[1] - cd[0] * x
      return x, x
    return lax.scan(up, 0., (cs, ds), reverse=True)[1]
  return f, (floats(r, 20), 5 + np.abs(floats(r, 20)), floats(r, 20), floats(r, 20))


@program
def expm_taylor_scaling(r):
  def f(a):
    a = a / 16
    def turn(c, k):
      term, total = c
      term = term @ a / k
      return (term, total + term), None
    eye = jnp.eye(a.shape[0], dtype=a.dtype)
    (_, e), _ = lax.scan(turn, (eye, eye), jnp.arange(1, 10, dtype=a.dtype))
    return lax.fori_loop(0, 4, lambda _, m: m @ m, e)
  return f, (floats(r, 6, 6),)


@program
def kron_einsum_trace(r):
  return (lambda a, b: (jnp.kron(a, b), jnp.einsum("ij,kl,jk->il", a, b.T, a.T @ b.T), jnp.trace(a @ a.T))), (
      floats(r, 4, 5), floats(r, 4, 4))


# ---- Sparse
@program
def csr_times_vector(r):
  def f(data, columns, rows, x):
    return jax.ops.segment_sum(data * x[columns], rows, num_segments=12)
  return f, (floats(r, 40), r.integers(0, 15, 40).astype(np.int32), np.sort(r.integers(0, 12, 40)).astype(np.int32), floats(r, 15))


@program
def bcoo_dot_general(r):
  from jax.experimental import sparse

  def f(data, indices, dense):
    return sparse.BCOO((data, indices), shape=(8, 9)) @ dense
  return f, (floats(r, 17), np.stack([r.integers(0, 8, 17), r.integers(0, 9, 17)], 1).astype(np.int32), floats(r, 9, 4))


@program
def page_rank(r):
  def f(source, target):
    degree = jnp.zeros(16).at[source].add(1.)
    def turn(_, p):
      return .15 / 16 + .85 * jnp.zeros(16).at[target].add(p[source] / degree[source])
    return lax.fori_loop(0, 25, turn, jnp.full(16, 1 / 16))
  return f, (r.integers(0, 16, 60).astype(np.int32), r.integers(0, 16, 60).astype(np.int32))


@program
def floyd_warshall(r):
  def f(d):
    return lax.fori_loop(0, d.shape[0], lambda k, d: jnp.minimum(d, d[:, k, None] + d[None, k, :]), d)
  d = r.integers(1, 40, (11, 11)).astype(np.int32)
  return f, (np.where(r.random((11, 11)) < .5, d, 10000).astype(np.int32),)


# ---- Signal
@program
def stft_magnitude(r):
  def f(x):
    frames = x[jnp.arange(0, 112, 16)[:, None] + jnp.arange(32)[None]] * jnp.hanning(32).astype(x.dtype)
    return jnp.abs(jnp.fft.rfft(frames, axis=-1))
  return f, (floats(r, 160),)


@program
def iir_biquad(r):
  def f(x, b, a):
    def turn(s, v):
      y = b[0] * v + s[0]
      return (b[1] * v - a[0] * y + s[1], b[2] * v - a[1] * y), y
    return lax.scan(turn, (0., 0.), x)[1]
  return f, (floats(r, 64), floats(r, 3), np.array([-.6, .2], np.float32))


@program
def fft_convolution_2d(r):
  def f(x, k):
    return jnp.fft.irfft2(jnp.fft.rfft2(x, (24, 24)) * jnp.fft.rfft2(k, (24, 24)), (24, 24))[:20, :20]
  return f, (floats(r, 20, 20), floats(r, 5, 5))


@program
def dct_by_product_and_haar(r):
  def f(x):
    n = x.shape[-1]
    k = jnp.arange(n, dtype=x.dtype)
    dct = x @ jnp.cos(jnp.pi / n * (k[:, None] + .5) * k[None])
    low, high = (dct[..., ::2] + dct[..., 1::2]) / 2, (dct[..., ::2] - dct[..., 1::2]) / 2
    return jnp.concatenate([low, high], -1)
  return f, (floats(r, 3, 16),)


@program
def autocorrelation_median(r):
  def f(x):
    full = jnp.correlate(x, x, mode="full")
    windows = jnp.stack([jnp.roll(x, s) for s in range(-2, 3)])
    return full, jnp.median(windows, axis=0)
  return f, (floats(r, 33),)


# ---- Recurrent networks
def lstm_cell(w, u, b, h, c, x):
  i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=-1)
  c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
  return jax.nn.sigmoid(o) * jnp.tanh(c), c


@program
def lstm_gradient(r):
  def loss(p, xs):
    def turn(s, x):
      h, c = lstm_cell(*p, *s, x)
      return (h, c), h
    return (lax.scan(turn, (jnp.zeros((3, 8)), jnp.zeros((3, 8))), xs)[1] ** 2).sum()
  p = (floats(r, 5, 32) / 3, floats(r, 8, 32) / 3, floats(r, 32) / 3)
  return jax.grad(loss), (p, floats(r, 7, 3, 5))


@program
def bidirectional_gru_masked(r):
  def f(w, u, xs, lengths):
    def turn(h, tx):
      t, x = tx
      z, n = jnp.split(x @ w + h @ u, 2, axis=-1)
      new = (1 - jax.nn.sigmoid(z)) * jnp.tanh(n) + jax.nn.sigmoid(z) * h
      h = jnp.where((t < lengths)[:, None], new, h)
      return h, h
    time = jnp.arange(xs.shape[0])
    ahead = lax.scan(turn, jnp.zeros((4, 6)), (time, xs))[1]
    back = lax.scan(turn, jnp.zeros((4, 6)), (time, xs), reverse=True)[1]
    return jnp.concatenate([ahead, back], -1)
  return f, (floats(r, 5, 12), floats(r, 6, 12), floats(r, 9, 4, 5), np.array([9, 1, 4, 0], np.int32))


@program
def scan_in_scan_in_while(r):
  def f(x):
    def inner(c, v):
      return c * .9 + v, c
    def outer(c, row):
      end, seen = lax.scan(inner, c, row)
      return end, seen.sum()
    def turn(s):
      n, x = s
      return n + 1, x + lax.scan(outer, x[0, 0], x)[1][:, None] * .01
    return lax.while_loop(lambda s: s[0] < 4, turn, (0, x))
  return f, (floats(r, 5, 6),)


@program
def linear_recurrence_associative(r):
  def f(a, b):
    def join(x, y):
      return x[0] * y[0], y[0] * x[1] + y[1]
    return lax.associative_scan(join, (a, b), axis=1)
  return f, (r.random((3, 13)).astype(np.float32), floats(r, 3, 13))


# ---- Searching
@program
def beam_search(r):
  def f(table, start):
    def turn(s, _):
      scores, last, paths = s
      total = scores[:, None] + jax.nn.log_softmax(table[last])
      best, at = lax.top_k(total.reshape(-1), 3)
      beam, token = at // table.shape[0], at % table.shape[0]
      paths = jnp.concatenate([paths[beam, 1:], token[:, None]], 1)
      return (best, token, paths), at
    s = (jnp.array([0., -1e9, -1e9]), jnp.full(3, start), jnp.zeros((3, 6), start.dtype))
    return lax.scan(turn, s, None, length=6)
  return f, (floats(r, 9, 9), np.int32(2))


@program
def viterbi(r):
  def f(start, move, emit):
    def turn(best, e):
      all = best[:, None] + move
      return all.max(0) + e, all.argmax(0)
    best, back = lax.scan(turn, start + emit[0], emit[1:])
    def follow(s, b):
      return b[s], b[s]
    return best.max(), lax.scan(follow, best.argmax(), back, reverse=True)[1]
  return f, (floats(r, 6), floats(r, 6, 6), floats(r, 11, 6))


@program
def binary_search_many(r):
  def f(edges, x):
    return jnp.searchsorted(edges, x, side="right"), jnp.digitize(x, edges), jnp.histogram(x, edges)[0]
  return f, (np.sort(floats(r, 12)), floats(r, 50))


@program
def edit_distance(r):
  def f(a, b):
    def row(previous, x):
      i, c = x
      def cell(left, y):
        up, corner, same = y
        v = jnp.minimum(jnp.minimum(left, up) + 1, corner + jnp.where(same, 0, 1))
        return v, v
      _, new = lax.scan(cell, i + 1, (previous[1:], previous[:-1], b == c))
      return jnp.concatenate([(i + 1)[None], new]), None
    return lax.scan(row, jnp.arange(b.shape[0] + 1), (jnp.arange(a.shape[0]), a))[0][-1]
  return f, (r.integers(0, 4, 9).astype(np.int8), r.integers(0, 4, 12).astype(np.int8))


@program
def game_of_life_with_roll(r):
  def f(x):
    def turn(x, _):
      n = sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
      return ((n == 3) | ((n == 2) & (x == 1))).astype(x.dtype), n.sum(dtype=jnp.int32)
    return lax.scan(turn, x, None, length=8)
  return f, (r.integers(0, 2, (12, 14)).astype(np.uint8),)


# ---- Images
@program
def bilinear_and_cubic_resize(r):
  return (lambda x: (jax.image.resize(x, (2, 13, 9, 3), "bilinear"), jax.image.resize(x, (2, 5, 6, 3), "cubic"),
                     jax.image.resize(x, (2, 16, 14, 3), "nearest"))), (floats(r, 2, 8, 7, 3),)


@program
def affine_sampling(r):
  from jax.scipy.ndimage import map_coordinates

  def f(image, m):
    y, x = jnp.meshgrid(jnp.arange(9.), jnp.arange(11.), indexing="ij")
    at = m @ jnp.stack([y.ravel(), x.ravel(), jnp.ones(99)])
    return map_coordinates(image, list(at.reshape(2, 9, 11)), order=1, mode="reflect")
  return f, (floats(r, 9, 11), np.array([[.9, .2, .3], [-.1, 1.1, -.7]], np.float32))


@program
def sobel_suppression_threshold(r):
  def f(x):
    k = jnp.array([[1., 0, -1], [2, 0, -2], [1, 0, -1]])
    both = jnp.stack([k, k.T])[:, None]
    g = lax.conv_general_dilated(x[None, None], both, (1, 1), "SAME")[0]
    m = jnp.hypot(*g)
    top = lax.reduce_window(m, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME")
    return jnp.where(m >= top, m, 0), (m > m.mean()).sum()
  return f, (floats(r, 12, 13),)


@program
def pooling_gradients(r):
  def f(x):
    y = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")
    z = lax.reduce_window(x, 0., lax.add, (1, 2, 2, 1), (1, 1, 2, 1), "VALID") / 4
    return (y ** 2).sum() + (z ** 3).sum()
  return jax.value_and_grad(f), (floats(r, 2, 7, 8, 3),)


@program
def depthwise_transposed_convolution(r):
  def f(x, d, t):
    y = lax.conv_general_dilated(x, d, (1, 2), "SAME", rhs_dilation=(2, 1), dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                 feature_group_count=4)
    return lax.conv_transpose(jax.nn.gelu(y), t, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
  return f, (floats(r, 2, 6, 8, 4), floats(r, 3, 3, 1, 8), floats(r, 3, 2, 8, 5))


# ---- Quantised
@program
def int8_product_rescaled(r):
  def f(x, w, scale):
    big = jnp.max(jnp.abs(x), axis=1, keepdims=True) / 127
    q = jnp.clip(jnp.round(x / big), -128, 127).astype(jnp.int8)
    return lax.dot_general(q, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32).astype(jnp.float32) * big * scale
  return f, (floats(r, 5, 16), r.integers(-128, 128, (16, 7)).astype(np.int8), r.random(7).astype(np.float32))


@program
def int4_weights_unpacked(r):
  def f(packed, x):
    low, high = (packed << 4) >> 4, packed >> 4
    w = jnp.stack([low, high], 1).reshape(-1, packed.shape[1]).astype(jnp.bfloat16)
    return x @ w
  return f, (r.integers(-128, 128, (8, 6)).astype(np.int8), floats(r, 3, 16).astype(jnp.bfloat16))


@program
def float8_blocks(r):
  def f(x):
    blocks = x.reshape(4, 8, 4)
    scale = jnp.exp2(jnp.floor(jnp.log2(jnp.abs(blocks).max(-1, keepdims=True) + 1e-6)))
    q = (blocks / scale).astype(jnp.float8_e4m3fn)
    return q.astype(jnp.float32) * scale, lax.bitcast_convert_type(q, jnp.uint8)
  return f, (floats(r, 8, 16),)


@program
def stochastic_rounding_bits(r):
  def f(x, noise):
    bits = lax.bitcast_convert_type(x, jnp.uint32) + (noise & 0xFFFF)
    return lax.bitcast_convert_type((bits >> 16).astype(jnp.uint16), jnp.bfloat16), lax.population_count(bits), lax.clz(bits)
  return f, (floats(r, 40), r.integers(0, 1 << 32, 40, dtype=np.uint32))


# ---- Complex
@program
def mandelbrot(r):
  def f(c):
    def turn(s, _):
      z, n = s
      inside = jnp.abs(z) <= 2
      return (jnp.where(inside, z * z + c, z), n + inside), None
    return lax.scan(turn, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)), None, length=12)[0][1]
  return f, ((floats(r, 6, 7) + 1j * floats(r, 6, 7)).astype(np.complex64),)


@program
def quantum_circuit(r):
  def f(angles, state):
    for k in range(3):
      c, s = jnp.cos(angles[k]), jnp.sin(angles[k])
      gate = jnp.array([[c, -1j * s], [-1j * s, c]])
      state = jnp.moveaxis(jnp.tensordot(gate, state, ((1,), (k,))), 0, k)
    state = state * jnp.exp(1j * angles.sum())
    return state, jnp.abs(state) ** 2
  return f, (floats(r, 3), (np.ones((2, 2, 2)) / np.sqrt(8)).astype(np.complex64))


@program
def complex_gradient_and_roots(r):
  def f(z):
    return jnp.real(jnp.sum(jnp.exp(z) * jnp.conj(z) / (1 + z * z))) + jnp.imag(jnp.prod(jnp.sqrt(z)))
  return (lambda z: (jax.grad(f, holomorphic=False)(z), jnp.angle(z), jnp.log(z))), (
      (floats(r, 7) + 1j * floats(r, 7)).astype(np.complex64),)


# ---- Sorting
@program
def lexicographic_sort_and_rank(r):
  def f(a, b, c):
    x = lax.sort((a, b, c), num_keys=2, is_stable=True)
    order = jnp.lexsort((b, a))
    return *x, order, jnp.argsort(order)
  return f, (r.integers(0, 4, 30).astype(np.int32), floats(r, 30).round(), np.arange(30, dtype=np.int16))


@program
def unique_padded_and_mode(r):
  def f(x):
    values, counts = jnp.unique(x, return_counts=True, size=12, fill_value=-1)
    return values, counts, values[counts.argmax()], jnp.bincount(x, length=9)
  return f, (r.integers(0, 9, 40).astype(np.int32),)


@program
def quantiles_descending_nan(r):
  def f(x):
    return jnp.nanquantile(x, jnp.array([.1, .5, .93]), axis=1), -jnp.sort(-x, axis=0), jnp.partition(x, 3, axis=1)[:, 3]
  x = floats(r, 5, 21)
  x[1, 4] = x[3, 7] = np.nan
  return f, (x,)


@program
def top_k_bf16_rows(r):
  return (lambda x: lax.top_k(x, 5)), (floats(r, 4, 6, 33).astype(jnp.bfloat16),)


# ---- Slicing and indices
@program
def ring_buffer(r):
  def f(buffer, xs):
    def turn(s, x):
      b, at = s
      b = lax.dynamic_update_slice(b, x[None], (at % 4, 0))
      return (b, at + 3), lax.dynamic_slice(b, ((at + 1) % 4 - 1, 1), (2, 2))
    return lax.scan(turn, (buffer, jnp.int32(-1)), xs)
  return f, (floats(r, 4, 3), floats(r, 9, 3))


@program
def kv_cache_step(r):
  def f(cache, q, k, position):
    cache = jax.vmap(lambda c, x, p: lax.dynamic_update_slice(c, x[None], (p, 0)))(cache, k, position)
    scores = jnp.einsum("bd,bsd->bs", q, cache)
    scores = jnp.where(jnp.arange(8)[None] <= position[:, None], scores, -jnp.inf)
    return cache, jnp.einsum("bs,bsd->bd", jax.nn.softmax(scores), cache)
  return f, (floats(r, 3, 8, 4), floats(r, 3, 4), floats(r, 3, 4), np.array([0, 5, 9], np.int32))


@program
def scatter_kinds(r):
  def f(x, i, v):
    return (x.at[i].max(v), x.at[i].multiply(v, mode="drop"), x.at[i].min(v[:, :1]),
            jnp.take(x, i, axis=0, mode="wrap"), jnp.take_along_axis(x, i[:, None] % 4, axis=1))
  return f, (floats(r, 7, 4), np.array([1, 3, 9, -2, 1, 0, 6], np.int32), floats(r, 7, 4))


@program
def ragged_segments(r):
  def f(x, starts):
    owner = jnp.cumsum(jnp.zeros(24, jnp.int32).at[starts[1:]].add(1))
    top = jax.ops.segment_max(x, owner, num_segments=5)
    e = jnp.exp(x - top[owner])
    return e / jax.ops.segment_sum(e, owner, num_segments=5)[owner], jax.ops.segment_prod(x, owner, num_segments=5)
  return f, (floats(r, 24), np.array([0, 3, 4, 15, 20], np.int32))


# ---- Derivatives by hand
@program
def custom_vjp_straight_through(r):
  @jax.custom_vjp
  def rounded(x, limit):
    return jnp.clip(jnp.round(x), -limit, limit)
  rounded.defvjp(lambda x, limit: (rounded(x, limit), (x, limit)),
                 lambda kept, g: (jnp.where(jnp.abs(kept[0]) <= kept[1], g, 0), None))
  return jax.value_and_grad(lambda x, w: (rounded(x * w, 3.) ** 2 @ w).sum(), argnums=(0, 1)), (floats(r, 4, 6), floats(r, 6))


@program
def custom_jvp_hessian(r):
  @jax.custom_jvp
  def softplus(x):
    return jnp.logaddexp(x, 0.)
  softplus.defjvp(lambda p, t: (softplus(*p), jax.nn.sigmoid(p[0]) * t[0]))
  return jax.hessian(lambda x: (softplus(x) * jnp.roll(softplus(2 * x), 1)).sum()), (floats(r, 6),)


@program
def implicit_root_custom_vjp(r):
  def root(a):
    return lax.custom_root(lambda x: x ** 3 + a * x - 2, jnp.ones_like(a),
                           lambda g, x: lax.fori_loop(0, 12, lambda _, x: x - g(x) / jax.grad(lambda y: g(y).sum())(x), x),
                           lambda g, y: y / g(jnp.ones_like(y)))
  return jax.value_and_grad(lambda a: root(a).sum()), (1 + r.random(5).astype(np.float32),)


@program
def checkpointed_attention_gradient(r):
  @jax.checkpoint
  def block(x, w):
    q, k, v = jnp.split(x @ w, 3, -1)
    s = q @ k.swapaxes(-1, -2) / 3
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -1e30)
    return x + jax.nn.softmax(s) @ v
  def loss(ws, x):
    return (lax.scan(lambda x, w: (block(x, w), None), x, ws)[0] ** 2).mean()
  return jax.grad(loss), (floats(r, 3, 8, 24) / 4, floats(r, 2, 7, 8))


# ---- Others
@program
def switch_over_branches(r):
  def f(kinds, x):
    steps = [jnp.sin, lambda v: v * v, lambda v: jnp.cumsum(v), lambda v: v[::-1]]
    return lax.scan(lambda v, k: (lax.switch(k, steps, v), v.sum()), x, kinds)
  return f, (np.array([2, 0, 9, 1, -4, 3], np.int32), floats(r, 5))


@program
def runge_kutta_adaptive(r):
  def f(y):
    def slope(y):
      return jnp.array([y[1], (1 - y[0] ** 2) * y[1] - y[0]])
    def turn(s):
      t, h, y, n = s
      k1 = slope(y)
      k2 = slope(y + h * k1)
      low, high = y + h * k1, y + h / 2 * (k1 + k2)
      wrong = jnp.abs(high - low).max()
      good = wrong < .01
      return jnp.where(good, t + h, t), jnp.clip(jnp.where(good, h * 1.25, h * .5), .01, .25), jnp.where(good, high, y), n + 1
    return lax.while_loop(lambda s: (s[0] < 1.) & (s[3] < 60), turn, (0., .125, y, 0))
  return f, (np.array([2., 0.], np.float32),)


@program
def kalman_filter(r):
  def f(a, h, q, noise, zs):
    def turn(s, z):
      x, p = s
      x, p = a @ x, a @ p @ a.T + q
      g = p @ h.T / (h @ p @ h.T + noise)
      x = x + (g @ (z - h @ x))
      return (x, p - g @ h @ p), x
    return lax.scan(turn, (jnp.zeros(2), jnp.eye(2)), zs)
  return f, (np.array([[1, .1], [0, 1]], np.float32), np.array([[1, 0]], np.float32), np.eye(2, dtype=np.float32) * .1, np.float32(.5),
             floats(r, 12, 1))


@program
def polynomial_and_special(r):
  def f(x):
    return jnp.polyval(jnp.array([1., -2, .5, 3]), x), jax.scipy.special.i0e(x), jax.scipy.special.gammaln(jnp.abs(x) + .5), \
        jax.scipy.special.erfinv(jnp.tanh(x) * .9), jnp.heaviside(x, .5), jnp.nextafter(x, x + 1), jnp.frexp(x)[0]
  return f, (floats(r, 19),)


@program
def crc32_words(r):
  def f(words):
    def bit(c, _):
      return jnp.where(c & 1, (c >> 1) ^ jnp.uint32(0xEDB88320), c >> 1), None
    def word(c, w):
      return lax.scan(bit, c ^ w, None, length=8)[0], c
    return ~lax.scan(word, jnp.uint32(0xFFFFFFFF), words)[0]
  return f, (r.integers(0, 256, 40).astype(np.uint32),)


@program
def prng_shuffle_and_choice(r):
  def f(key):
    a, b, c = jax.random.split(jax.random.wrap_key_data(key), 3)
    return jax.random.permutation(a, 20), jax.random.choice(b, 9, (6,), replace=False), jax.random.gamma(c, 2., (5,)), \
        jax.random.truncated_normal(a, -1., 1., (8,))
  return f, (np.array([3, 77], np.uint32),)
