"""Random JAX programs for hlo_corpus.py: families of functions with drawn shapes, types and numbers.

Each family draws (function, arguments) from a numpy generator; FAMILIES gives its weight. Functions of SHARDED
take arguments over a mesh of eight devices and state the shardings of their results.
"""
import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

FLOATS = ["float32", "float32", "float64", "bfloat16", "float16"]
SMALL_FLOATS = ["float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz"]
INTS = ["int32", "int32", "int64", "int16", "int8", "uint8", "uint16", "uint32", "uint64"]
NIBBLES = ["int4", "uint4"]


def dtype(name):
  return np.dtype(getattr(ml_dtypes, name, name))


def shape(r, most=4, size=7, zero=0.05, least=0):
  dims = [int(r.integers(1, size)) for _ in range(int(r.integers(least, most + 1)))]
  if dims and r.random() < zero:
    dims[int(r.integers(len(dims)))] = 0
  return tuple(dims)


def array(r, dims, name, low=None, high=None):
  t = dtype(name)
  if name == "bool":
    return r.integers(0, 2, dims).astype(bool)
  if name.startswith("complex"):
    return (r.normal(size=dims) + 1j * r.normal(size=dims)).astype(t)
  if "int" in name:
    if low is None:
      low, high = (0, 7) if name.startswith("u") else (-7, 7)
    return r.integers(low, high, dims, endpoint=True).astype(t)
  x = r.normal(size=dims)
  if low is not None:
    x = low + (high - low) * r.random(size=dims)
  return np.asarray(x).astype(t)


def pick(r, xs):
  return xs[int(r.integers(len(xs)))]


# ---- Element by element
REAL = [jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.exp, jnp.expm1, jnp.abs, jnp.floor, jnp.ceil, jnp.sign, jnp.cbrt,
        lax.logistic, lambda x: jnp.log(jnp.abs(x) + 1), lambda x: jnp.log1p(jnp.abs(x)), lax.erf, lax.erfc,
        lambda x: lax.erf_inv(jnp.tanh(x) * x.dtype.type(0.9)), lambda x: lax.rsqrt(jnp.abs(x) + 1), lambda x: jnp.sqrt(jnp.abs(x)),
        lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), lambda x: lax.round(x), jnp.square,
        jax.nn.gelu, jax.nn.silu, jax.nn.softplus, jnp.sinh, jnp.cosh, jnp.arctan, lambda x: jnp.arcsin(jnp.tanh(x)),
        lambda x: jnp.arccos(jnp.tanh(x)), jnp.arcsinh, lambda x: jnp.arccosh(jnp.abs(x) + 1),
        lambda x: jnp.arctanh(jnp.tanh(x) * x.dtype.type(0.9)), lambda x: lax.reduce_precision(x, 5, 3), jnp.negative]
INTEGER = [jnp.abs, jnp.negative, jnp.sign, lax.population_count, lax.clz, jnp.invert, lambda x: x * x, lambda x: x + x]
SPECIAL = [lambda x: lax.lgamma(jnp.abs(x) + 1), lambda x: lax.digamma(jnp.abs(x) + 1), lax.bessel_i0e, lax.bessel_i1e,
           lambda x: lax.igamma(jnp.abs(x) + 1, jnp.abs(x)), lambda x: lax.igammac(jnp.abs(x) + 1, jnp.abs(x) + 1),
           lambda x: lax.zeta(jnp.abs(x) + 2, jnp.abs(x) + 1), lambda x: lax.polygamma(jnp.ones_like(x), jnp.abs(x) + 1),
           jax.scipy.special.entr, lambda x: jax.scipy.special.ndtri(lax.logistic(x)), jax.scipy.special.log_ndtr,
           lambda x: jax.scipy.special.betainc(jnp.abs(x) + 1, jnp.abs(x) + 2, lax.logistic(x))]


def unary(r):
  name = pick(r, FLOATS + INTS)
  fs = [pick(r, INTEGER if "int" in name else REAL) for _ in range(int(r.integers(1, 4)))]
  if "int" in name and name.startswith("u"):
    fs = [f for f in fs if f is not jnp.negative] or [jnp.sign]

  def f(x):
    for g in fs:
      x = g(x)
    return x
  return f, [array(r, shape(r), name)]


def special(r):
  f = pick(r, SPECIAL)
  return f, [array(r, shape(r, 2), pick(r, ["float32", "float64"]))]


def binary(r):
  name = pick(r, FLOATS + INTS + ["complex64", "complex128", "bool"])
  dims = shape(r)
  if name == "bool":
    fs = [jnp.logical_and, jnp.logical_or, jnp.logical_xor]
  elif "int" in name:
    fs = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.bitwise_and, jnp.bitwise_or,
          lambda x, y: lax.shift_left(x, jnp.abs(y)), lambda x, y: lax.shift_right_logical(x, jnp.abs(y)),
          lambda x, y: lax.shift_right_arithmetic(x, jnp.abs(y)), lambda x, y: x // jnp.where(y == 0, 1, y).astype(x.dtype),
          lambda x, y: x % jnp.where(y == 0, 1, y).astype(x.dtype), jnp.equal, jnp.less]
  elif "complex" in name:
    fs = [jnp.add, jnp.multiply, jnp.subtract, lambda x, y: x / (y + 3), lambda x, y: jnp.exp(x) * jnp.conj(y),
          lambda x, y: jnp.abs(x) + jnp.imag(y), lambda x, y: lax.complex(jnp.real(x), jnp.real(y)), jnp.equal,
          lambda x, y: jnp.tanh(x) + jnp.sqrt(y), lambda x, y: jnp.log(x) - jnp.sin(y)]
  else:
    fs = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, lambda x, y: x / (jnp.abs(y) + 1), jnp.arctan2,
          lambda x, y: jnp.power(jnp.abs(x) + 1, y), lambda x, y: jnp.remainder(x, jnp.abs(y) + 1), jnp.hypot,
          lambda x, y: jnp.where(x > y, x, -y), lambda x, y: lax.clamp(x - 1, y, x + 1), lax.nextafter, jnp.less_equal,
          lambda x, y: lax.select(jnp.isfinite(x), x, y), jnp.copysign, jnp.logaddexp]
  f, g = pick(r, fs), pick(r, fs)

  def h(x, y):
    z = f(x, y)
    return (z, g(y, x)) if z.dtype != x.dtype or r.random() < .3 else (g(z, y),)
  return h, [array(r, dims, name), array(r, dims, name)]


def narrow(r):
  name, to = pick(r, SMALL_FLOATS + NIBBLES), pick(r, ["float32", "bfloat16", "int32"])
  dims = shape(r, 3, least=1)
  wide = array(r, dims, "float32", -2, 2)
  if r.random() < .3:
    held = array(r, dims, name) if name in NIBBLES else wide.astype(dtype(name))
    # Beside a value of its own type the constant stays what it is.
    return (lambda x: jnp.where(x > 0, held, x.astype(dtype(name))).astype("float32")), [wide]

  def f(x, y):
    z = x.astype(to)
    return (z * 2 + 1).astype(dtype(name)).astype(to), y.astype(dtype(name)).astype("float32"), lax.slice(x, [0] * x.ndim, x.shape)
  if name in NIBBLES:
    wide = array(r, dims, "int32", 0, 7)
  return f, [wide.astype(dtype(name)) if r.random() < .7 else array(r, dims, name), wide]


def casts(r):
  names = ["float32", "float64", "bfloat16", "float16", "int32", "int8", "uint32", "bool", "int64"]
  a, b, c = (pick(r, names) for _ in range(3))
  return (lambda x: (x.astype(b), x.astype(b).astype(c))), [array(r, shape(r), a)]


def bits(r):
  a, b = pick(r, [("float32", "int32"), ("int32", "float32"), ("float64", "uint32"), ("uint8", "uint32"), ("bfloat16", "uint16"),
                  ("uint32", "uint8"), ("float32", "uint16"), ("int16", "uint64")])
  wider = dtype(b).itemsize // dtype(a).itemsize
  dims = shape(r, 2) + ((wider,) if wider > 1 else ())
  x = np.abs(array(r, dims, a))
  return (lambda x: lax.bitcast_convert_type(x, dtype(b)).astype("float32" if "float" in b else b)), [x]


# ---- Sums
def reduction(r):
  name = pick(r, FLOATS + ["int32", "int8", "bool", "complex64"])
  dims = shape(r, 4, least=1, zero=.02)
  axes = tuple(int(d) for d in r.permutation(len(dims))[:int(r.integers(1, len(dims) + 1))])
  fs = [jnp.sum, jnp.prod] if "complex" in name else [jnp.any, jnp.all] if name == "bool" else [jnp.sum, jnp.prod, jnp.max, jnp.min, jnp.mean]
  if "float" in name:
    fs = fs + [jnp.var, jax.scipy.special.logsumexp]
  f = pick(r, fs)
  if 0 in dims:
    f = jnp.all if name == "bool" else jnp.sum
  keep = bool(r.integers(2))
  return (lambda x: f(x, axis=axes, keepdims=keep)), [array(r, dims, name)]


def running(r):
  name = pick(r, ["float32", "float64", "int32", "bfloat16"])
  dims = shape(r, 3, 20, zero=0, least=1)
  axis = int(r.integers(len(dims)))
  f = pick(r, [lax.cumsum, lax.cummax, lax.cummin] + ([lax.cumprod, lax.cumlogsumexp] if "float" in name else []))
  reverse = bool(r.integers(2))
  return (lambda x: f(x, axis, reverse)), [array(r, dims, name)]


def argument(r):
  dims = shape(r, 3, least=1, zero=0)
  axis = int(r.integers(len(dims)))
  f = pick(r, [jnp.argmax, jnp.argmin])
  return (lambda x: (f(x, axis), f(x))), [array(r, dims, pick(r, FLOATS + ["int32"]))]


def windows(r):
  dims = (int(r.integers(1, 3)), int(r.integers(4, 9)), int(r.integers(4, 9)), int(r.integers(1, 4)))
  w, s, pad = (1, int(r.integers(1, 4)), int(r.integers(1, 4)), 1), (1, int(r.integers(1, 3)), int(r.integers(1, 3)), 1), pick(r, ["SAME", "VALID"])
  name = pick(r, ["float32", "float32", "bfloat16", "float64"])
  add = bool(r.integers(2))

  def pool(x):
    if add:
      return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, w, s, pad)
    return lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, w, s, pad)
  if r.random() < .5:
    return jax.grad(lambda x: jnp.sum(pool(x).astype("float32") ** 2)), [array(r, dims, name)]
  return pool, [array(r, dims, name)]


# ---- Products
def product(r):
  batch, m, n, k = (int(r.integers(1, 5)) for _ in range(4))
  a, out = pick(r, [("float32", None), ("float32", None), ("float64", None), ("bfloat16", "float32"), ("bfloat16", None), ("int8", "int32"),
                    ("complex64", None), ("float16", "float32"), ("int32", None), ("uint8", "uint32")])
  spec = pick(r, ["bmk,bkn->bmn", "mk,kn->mn", "km,nk->mn", "bmk,nk->bmn", "mkb,kbn->bmn", "mk,k->m", "k,k->", "bkm,bnk->nbm", "bmn,bmn->b"])
  sizes = {"b": batch, "m": m, "n": n, "k": k}
  x, y = ([sizes[c] for c in part] for part in spec.split("->")[0].split(","))
  precision = pick(r, [None, "highest"])
  return (lambda p, q: jnp.einsum(spec, p, q, preferred_element_type=out, precision=precision)), [array(r, x, a), array(r, y, a)]


def convolution(r):
  spatial = int(r.integers(1, 4))
  groups = int(r.integers(1, 3))
  batch = groups * int(r.integers(1, 3)) if (by_batch := r.random() < .2) else int(r.integers(1, 3))
  cin, cout = int(r.integers(1, 4)), groups * int(r.integers(1, 4))
  size, kernel = [int(r.integers(3, 8)) for _ in range(spatial)], [int(r.integers(1, 4)) for _ in range(spatial)]
  letters = "DHW"[-spatial:]
  ins, ker, outs = pick(r, [("NC" + letters, "OI" + letters, "NC" + letters), ("N" + letters + "C", letters + "IO", "N" + letters + "C")])
  name = pick(r, ["float32", "float32", "bfloat16", "float64", "float16"])

  def lay(spec, a, b):
    order = {spec[0] if spec[0] not in letters else "": 0}
    del order
    first, second = ("N", "C") if "N" in spec else ("O", "I")
    dims = {first: a, second: b, **dict(zip(letters, size if "N" in spec else kernel))}
    return [dims[c] for c in spec]
  feature = 1 if by_batch else groups
  x, w = array(r, lay(ins, batch, cin * feature), name), array(r, lay(ker, cout, cin), name)
  kw = dict(window_strides=[int(r.integers(1, 3)) for _ in size], padding=pick(r, ["SAME", "VALID", [(1, 2)] * spatial]) ,
            rhs_dilation=[int(r.integers(1, 3)) for _ in size], dimension_numbers=(ins, ker, outs),
            feature_group_count=feature, batch_group_count=groups if by_batch else 1)
  if kw["padding"] == "VALID":
    kw["rhs_dilation"] = [1] * spatial
  if r.random() < .2 and isinstance(kw["padding"], list):
    kw["lhs_dilation"] = [2] * spatial

  def f(p, q):
    return lax.conv_general_dilated(p, q, **kw)
  if r.random() < .25:
    return jax.grad(lambda p, q: jnp.sum(f(p, q).astype("float32") ** 2), argnums=(0, 1)), [x, w]
  return f, [x, w]


# ---- Moves
def moves(r):
  name = pick(r, FLOATS + INTS + ["bool", "complex64"])
  dims = shape(r, 4, least=1, zero=.1)
  steps = [int(s) for s in r.integers(0, 9, int(r.integers(1, 5)))]
  seed = int(r.integers(1 << 30))

  def f(x):
    q = np.random.default_rng(seed)
    for s in steps:
      n = x.ndim
      if s == 0:
        x = x.transpose([int(d) for d in q.permutation(n)])
      elif s == 1:
        x = x.reshape(-1) if q.random() < .5 else x[None]
      elif s == 2:
        x = jnp.concatenate([x, x[::-1] if n else x[None]], 0) if n else x[None]
      elif s == 3 and n:
        x = lax.pad(x, np.zeros((), x.dtype), [(int(q.integers(-1, 3)), int(q.integers(0, 3)), int(q.integers(0, 2))) if d > 1 else (0, 1, 0) for d in x.shape])
      elif s == 4 and n:
        x = lax.rev(x, [int(q.integers(n))])
      elif s == 5:
        x = jnp.broadcast_to(x[..., None], x.shape + (int(q.integers(1, 4)),))
      elif s == 6 and n:
        x = x[tuple(slice(0, max(1, d - 1), 1 + int(q.integers(2))) for d in x.shape)]
      elif s == 7 and n:
        x = jnp.roll(x, 1, 0)
      elif s == 8 and n > 1:
        x = jnp.swapaxes(x, 0, n - 1).reshape(x.shape[-1], -1)
    return x
  return f, [array(r, dims, name)]


def indexing(r):
  name = pick(r, FLOATS + ["int32", "int8", "bool", "complex64"])
  dims = shape(r, 3, least=1, zero=0)
  i = array(r, shape(r, 2), "int32", -2, 7)
  x = array(r, dims, name)
  kind = int(r.integers(7))
  u = array(r, i.shape + dims[1:], name)
  mode = pick(r, ["clip", "drop", "fill"])
  if kind == 0:
    return (lambda x, i: jnp.take(x, i, axis=0, mode="clip" if mode == "drop" else mode)), [x, i]
  if kind == 1:
    return (lambda x, i, u: x.at[i].set(u[0] if u.ndim and False else u, mode="drop" if mode == "fill" else mode, unique_indices=False)), [x, i.reshape(-1)[:1], u.reshape((-1,) + dims[1:])[:1]] if i.size else [x, np.zeros(1, "int32"), array(r, (1,) + dims[1:], name)]
  if kind == 2 and name not in ("bool",):
    return (lambda x, i, u: x.at[i].add(u, mode="drop")), [x, i, u]
  if kind == 3 and name not in ("bool", "complex64"):
    return (lambda x, i, u: x.at[i].max(u, mode="drop")), [x, i, u]
  if kind == 4:
    return (lambda x, i: lax.dynamic_slice(x, [i] + [0] * (x.ndim - 1), [1] + list(x.shape[1:]))), [x, np.int32(r.integers(-2, 9))]
  if kind == 5:
    return (lambda x, i: lax.dynamic_update_slice(x, x[:1] if x.dtype == bool else x[:1] + x[:1], [i] + [0] * (x.ndim - 1))), [x, np.int32(r.integers(-2, 9))]
  return (lambda x, i: jnp.take_along_axis(x, jnp.argsort(jnp.real(x).astype("float32"), 0), 0)[i % x.shape[0]]), [x, i]


def sorting(r):
  name = pick(r, ["float32", "int32", "bfloat16", "uint8", "float64", "int64"])
  dims = shape(r, 3, 12, least=1, zero=0)
  axis = int(r.integers(len(dims)))
  x = array(r, dims, name)
  kind = int(r.integers(6))
  if kind == 0:
    return (lambda x: jnp.sort(x, axis, descending=True)), [x]
  if kind == 1:
    return (lambda x: jnp.argsort(x, axis)), [x]
  if kind == 2:
    return (lambda x, y: lax.sort((x, y, y), dimension=axis, num_keys=2)), [x, array(r, dims, "float32")]
  if kind == 3:
    return (lambda x: lax.top_k(x, max(1, x.shape[-1] // 2))), [x]
  if kind == 4 and "float" in name:
    return (lambda x: jnp.median(x, axis)), [x]
  return (lambda x: (jnp.searchsorted(jnp.sort(x.reshape(-1)), x), jnp.sort(x, axis))), [x]


# ---- Control flow
def loops(r):
  n, dims = int(r.integers(1, 9)), shape(r, 2, least=1, zero=0)
  name = pick(r, ["float32", "float64", "bfloat16", "int32"])
  x = array(r, dims, name)
  kind = int(r.integers(7))
  half = (lambda t: t // 2) if name == "int32" else (lambda t: t * t.dtype.type(.5))
  if kind == 0:
    return (lambda x: lax.fori_loop(0, n, lambda i, t: half(t) + i.astype(t.dtype), x)), [x]
  if kind == 1:
    return (lambda x, k: lax.while_loop(lambda s: s[0] < k, lambda s: (s[0] + 1, half(s[1]) + 1), (0, x))), [x, np.int64(n)]
  if kind == 2:
    return (lambda x, y: lax.scan(lambda c, t: (half(c) + t, c), x, y)), [x, array(r, (n,) + dims, name)]
  if kind == 3:
    return (lambda x, p: lax.cond(p > 0, lambda t: t + 1, half, x)), [x, np.float32(r.normal())]
  if kind == 4:
    return (lambda x, i: lax.switch(i, [lambda t: t, half, lambda t: -t, lambda t: t * t], x)), [x, np.int32(r.integers(-1, 6))]
  if kind == 5:
    return (lambda x: lax.fori_loop(0, n, lambda i, t: lax.cond(i % 2 == 0, half, lambda u: lax.fori_loop(0, 2, lambda j, v: v + 1, u), t), x)), [x]
  if name == "int32":
    name = "float32"
  w = (array(r, (dims[-1], dims[-1]), name) * .3).astype(dtype(name))  # far from where tanh is flat
  return jax.grad(lambda w, x: jnp.sum(lax.scan(lambda c, t: (jnp.tanh(c @ w + t), None), x, (jnp.arange(n) * .1).astype(w.dtype))[0].astype("float32"))), [w, array(r, dims, name)]


def mapped(r):
  n, k = int(r.integers(2, 5)), int(r.integers(2, 6))
  f = pick(r, [lambda x, y: jnp.dot(x, y), lambda x, y: jnp.convolve(x, y, mode="same"), lambda x, y: jnp.interp(x, jnp.sort(y), x),
               lambda x, y: jnp.where(x > y, x, y).sum(), lambda x, y: jnp.outer(x, y), lambda x, y: x[jnp.argsort(y)],
               lambda x, y: lax.while_loop(lambda s: jnp.sum(s) < 10, lambda s: s + 1, jnp.abs(x + y)), lambda x, y: jnp.polyval(x, y)])
  return jax.vmap(f), [array(r, (n, k), "float32"), array(r, (n, k), "float32")]


# ---- Layers
def layers(r):
  b, t, d, h = 2, int(r.integers(2, 6)), int(r.integers(1, 3)) * 4, 2
  name = pick(r, ["float32", "float32", "bfloat16"])
  x = array(r, (b, t, d), name)
  w = [(array(r, (d, d), name) * .5).astype(dtype(name)) for _ in range(4)]

  def norm(x):
    y = x.astype("float32")
    return ((y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)).astype(x.dtype)

  def attention(w, x):
    q, k, v = ((norm(x) @ m).reshape(b, t, h, d // h) for m in w[:3])
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(d // h).astype(x.dtype)
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, jnp.array(-1e9, s.dtype))
    return x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v).reshape(b, t, d) @ w[3]

  def mlp(w, x):
    return x + jax.nn.gelu(norm(x) @ w[0]) @ w[1]

  def conv(w, x):
    k = jnp.stack([w[0], w[1], w[2]])
    return jax.nn.relu(lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")))

  def table(w, x):
    i = jnp.clip(jnp.abs(x[..., 0].astype("float32") * 3).astype("int32"), 0, d - 1)
    return w[0][i] + jax.nn.one_hot(i, d, dtype=x.dtype)
  f = pick(r, [attention, mlp, conv, table])
  if r.random() < .3:
    f = jax.checkpoint(f)
  if r.random() < .5:
    return f, [w, x]

  def loss(w, x):
    return jnp.mean(f(w, x).astype("float32") ** 2)
  if r.random() < .5:
    return jax.value_and_grad(loss), [w, x]
  return (lambda w, x: jax.tree.map(lambda p, g: p - (0.1 * g).astype(p.dtype), w, jax.grad(loss)(w, x))), [w, x]


def transforms(r):
  n = int(r.integers(4, 9))
  kind = int(r.integers(6))
  z = array(r, (2, n), "complex64")
  x = array(r, (2, n), pick(r, ["float32", "float64"]))
  return [(jnp.fft.fft, [z]), (jnp.fft.ifft, [z]), (jnp.fft.rfft, [x]), (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), [x]),
          (jnp.fft.fft2, [z]), (jnp.fft.fftn, [array(r, (2, 3, n), "complex128")])][kind]


def randoms(r):
  k = np.array([int(r.integers(1 << 30)), 7], "uint32")
  dims = shape(r, 2, zero=0)
  fs = [lambda k: jax.random.uniform(k, dims), lambda k: jax.random.normal(k, dims), lambda k: jax.random.bits(k, dims),
        lambda k: jax.random.randint(k, dims, 0, 17), lambda k: jax.random.permutation(k, 9), lambda k: jax.random.bernoulli(k, .3, dims),
        lambda k: jax.random.split(k, 3), lambda k: jax.random.gumbel(k, dims), lambda k: jax.random.truncated_normal(k, -1., 1., dims),
        lambda k: jax.random.categorical(k, jnp.arange(5.)), lambda k: jax.random.exponential(k, dims)]
  return pick(r, fs), [k]


def algebra(r):
  """What hlo has ops for; the rest of linear algebra is LAPACK's on this backend."""
  n = int(r.integers(2, 5))
  a = array(r, (2, n, n), "float32") + 3 * np.eye(n, dtype="float32")
  fs = [lambda a: jnp.linalg.matrix_power(a, 3), lambda a: jnp.trace(a, axis1=1, axis2=2), jnp.triu, lambda a: jnp.kron(a[0], a[1]),
        lambda a: jax.scipy.linalg.expm(a[0]) if n < 2 else jnp.cross(a[..., :3] if n > 2 else jnp.pad(a, ((0, 0), (0, 0), (0, 1))), a[..., :3] if n > 2 else jnp.pad(a, ((0, 0), (0, 0), (0, 1)))),
        lambda a: jnp.linalg.norm(a, axis=(1, 2)), lambda a: jnp.diagonal(a, axis1=1, axis2=2)]
  return pick(r, fs), [a]


def lapack(r):
  n = int(r.integers(2, 5))
  a = array(r, (n, n), "float32") + 3 * np.eye(n, dtype="float32")
  return pick(r, [jnp.linalg.inv, lambda a: jnp.linalg.qr(a), lambda a: jnp.linalg.cholesky(a @ a.T)]), [a]


def others(r):
  x = array(r, (6, 6), "float32")
  i = array(r, (6,), "int32", 0, 5)
  fs = [(lambda x: jax.image.resize(x, (9, 4), "bilinear"), [x]), (lambda x: jax.image.resize(x, (3, 12), "nearest"), [x]),
        (lambda x, i: jax.ops.segment_sum(x, i, 6), [x, i]), (lambda x, i: jnp.bincount(i, length=8), [x, i]),
        (lambda x: lax.optimization_barrier((x, x + 1)), [x]), (lambda x: jnp.histogram(x, 5)[0], [x]),
        (lambda x: jax.lax.associative_scan(jnp.add, x), [x]), (lambda x: (x, jnp.zeros((0, 3)), 3.0), [x]),
        (lambda x: jnp.nan_to_num(jnp.log(x)), [x]), (lambda x: jnp.unique(jnp.round(x), size=5), [x]),
        (lambda x: lax.map(lambda t: t @ t, x), [x]), (lambda x: jnp.einsum("ij,jk,kl->il", x, x, x), [x]),
        (lambda x: jax.jvp(jnp.tanh, (x,), (x,)), [x]), (lambda x: jax.hessian(lambda t: jnp.sum(t[0] ** 3))(x[:2]), [x]),
        (lambda x: jax.lax.custom_root(lambda y: y * y - jnp.abs(x) - 1, x, lambda f, y: lax.fori_loop(0, 9, lambda _, t: t - f(t) / (2 * t + 1), jnp.ones_like(y)), lambda g, y: y / g(jnp.ones_like(y))), [x]),
        (lambda x: lax.approx_max_k(x, 3)[0], [x]), (lambda x: jax.nn.standardize(x), [x]), (lambda x, i: jnp.select([x > 0, x < -1], [x, -x], 0.) + i, [x, i])]
  return pick(r, fs)


# ---- Over eight devices
def mesh():
  return jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))


def place(m, x, *spec):
  return jax.device_put(x, jax.sharding.NamedSharding(m, jax.sharding.PartitionSpec(*spec)))


def sharded(r):
  from jax.sharding import NamedSharding, PartitionSpec as P
  m = mesh()
  specs = [P("x", "y"), P("y", "x"), P(("x", "y")), P(None, "x"), P("y"), P()]
  a, b = array(r, (8, 16), "float32"), array(r, (16, 8), pick(r, ["float32", "bfloat16"]))
  sa, sb, so = (pick(r, specs) for _ in range(3))
  inner = pick(r, specs)
  fs = [lambda a, b: a @ b.astype("float32"), lambda a, b: lax.with_sharding_constraint(a + 1, NamedSharding(m, inner)) @ b.astype("float32"),
        lambda a, b: jax.nn.softmax(a, -1) @ jnp.tanh(b.astype("float32")), lambda a, b: (a.T * b.astype("float32")).T[:8, :8],
        lambda a, b: jnp.concatenate([a, b.astype("float32").T], 1)[:, 8:16], lambda a, b: jnp.sort(a, 0)[:, :8] + b.sum().astype("float32"),
        lambda a, b: jax.grad(lambda t: jnp.sum((t @ b.astype("float32")) ** 2))(a)[:, :8],
        lambda a, b: lax.fori_loop(0, 3, lambda i, t: jnp.tanh(t @ b.astype("float32") @ b.astype("float32").T), a)[:, :8]]
  f = jax.jit(pick(r, fs), out_shardings=NamedSharding(m, so))
  return f, [place(m, a, *sa), place(m, b, *sb)]


def manual(r):
  from jax.sharding import PartitionSpec as P
  m = mesh()
  a = array(r, (8, 16), pick(r, ["float32", "int32", "bfloat16"]))
  axis = pick(r, ["x", "y", ("x", "y")])
  size = {"x": 4, "y": 2}.get(axis, 8)
  one = axis if isinstance(axis, str) else "x"
  n = {"x": 4, "y": 2}[one]
  fs = [lambda t: lax.psum(t, axis), lambda t: lax.pmax(t, one), lambda t: lax.all_gather(t, one).sum(0), lambda t: lax.psum_scatter(t, one, scatter_dimension=1, tiled=True),
        lambda t: lax.ppermute(t, one, [(i, (i + 1) % n) for i in range(n)]), lambda t: lax.all_to_all(t, one, 1, 1, tiled=True),
        lambda t: t + lax.axis_index(one).astype(t.dtype), lambda t: lax.all_gather(t, one, axis=1, tiled=True), lambda t: lax.pmean(t.astype("float32"), axis)]
  f = pick(r, fs)
  del size
  g = jax.jit(jax.shard_map(f, mesh=m, in_specs=P("x", None), out_specs=P("x", None), check_vma=False))
  return g, [place(m, a, "x", None)]


FAMILIES = {unary: 8, special: 4, binary: 8, narrow: 6, casts: 5, bits: 4, reduction: 8, running: 4, argument: 3, windows: 5, product: 8,
            convolution: 7, moves: 10, indexing: 9, sorting: 6, loops: 9, mapped: 4, layers: 8, transforms: 4, randoms: 5, algebra: 3,
            lapack: 2, others: 9}
SHARDED = {sharded: 8, manual: 8}


def draw(r):
  """A family, its function and arguments; whether it is over eight devices."""
  both = {**FAMILIES, **SHARDED}
  weights = np.array(list(both.values()), float)
  family = list(both)[int(r.choice(len(both), p=weights / weights.sum()))]
  f, args = family(r)
  return family.__name__, f, args, family in SHARDED
