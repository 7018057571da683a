"""Writes eval_*.txt: programs that return (computed, expected) pairs.

Run with a Python that has jax, numpy, scipy and ml_dtypes; the expected values
come from NumPy, SciPy, ml_dtypes and XLA on the CPU. eval_cases_test.c replays
the files.
"""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import ml_dtypes as md
import numpy as np
import scipy.special as sp
from jax import lax

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {
    "bool": "i1", "int2": "i2", "int4": "i4", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint2": "ui2", "uint4": "ui4",
    "uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64",
    "float4_e2m1fn": "f4E2M1FN", "float6_e2m3fn": "f6E2M3FN",
    "float6_e3m2fn": "f6E3M2FN", "float8_e3m4": "f8E3M4",
    "float8_e4m3": "f8E4M3", "float8_e4m3fn": "f8E4M3FN",
    "float8_e4m3b11fnuz": "f8E4M3B11FNUZ", "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2": "f8E5M2", "float8_e5m2fnuz": "f8E5M2FNUZ",
    "float8_e8m0fnu": "f8E8M0FNU", "bfloat16": "bf16", "float16": "f16",
    "float32": "f32", "float64": "f64", "complex64": "complex<f32>",
    "complex128": "complex<f64>",
}
SMALL = [getattr(md, n) for n in NAMES if n.startswith("float") and
         n[5] in "468" and n not in ("float64",)]
out = []


def typ(a):
  a = np.asarray(a)
  return f"{NAMES[a.dtype.name]}[{','.join(map(str, a.shape))}]"


def lit(a):
  a = np.asarray(a, order="C")
  if a.dtype.name in ("int2", "int4"):  # sign-extended here, not there
    return f"{typ(a)} hex {a.astype(np.int8).tobytes().hex()}"
  return f"{typ(a)} hex {a.tobytes().hex()}"


def case(name, op, ins, want, attrs="", regions="", ulp=0, eps=0.0):
  """One op on constants; want: a list of arrays, in result order."""
  want = [np.asarray(w) for w in (want if isinstance(want, (list, tuple))
                                  else [want])]
  lines, names = [], []
  for a in ins:
    names.append(f"%{len(lines)}")
    lines.append(f"%{len(lines)} = constant {{value={lit(a)}}}")
  me = len(lines)
  count = f":{len(want)}" if len(want) != 1 else ""
  attrs = f" {{{attrs}}}" if attrs else ""
  lines.append(f"%{me}{count} = {op} {', '.join(names)}{attrs}{regions} : "
               + ", ".join(map(typ, want)))
  pairs = []
  for i, w in enumerate(want):
    lines.append(f"%{me + 1 + i} = constant {{value={lit(w)}}}")
    pairs += [f"%{me}.{i}" if count else f"%{me}", f"%{me + 1 + i}"]
  head = f"# {name} ulp={ulp} eps={eps:g}"
  types = ", ".join(f"{typ(w)}, {typ(w)}" for w in want)
  body = "\n  ".join(lines)
  out.append(f"{head}\nhlo module \"t\" entry=\"main\" {{\nfunc \"main\" () -> "
             f"({types}) {{\n  {body}\n  return {', '.join(pairs)}\n}}\n}}\n")


def raw(name, text, ulp=0, eps=0.0):
  out.append(f"# {name} ulp={ulp} eps={eps:g}\n{text.strip()}\n")


def save(name):
  with open(os.path.join(HERE, f"eval_{name}.txt"), "w") as f:
    f.write("---\n".join(out))
  out.clear()


def body(op, t, t_out=None, base=900):
  """A region (a, b) -> op(a, b) on scalars."""
  t_out = t_out or t
  return (f"(%{base}: {t}[], %{base+1}: {t}[]) {{ %{base+2} = {op} %{base}, "
          f"%{base+1} : {t_out}[] return %{base+2} }}")


rng = np.random.default_rng(7)
F32 = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3.25, 1e-45, -1e-40,
                1e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 0.1, -0.7,
                0.9999999, 1.0000001, 10, -20, 88.5, -87.5, 1e-8, 123456.7,
                6.2831853, 1e10], np.float32)


def conversions():
  for t in SMALL:
    bits = md.finfo(t).bits
    a = np.arange(1 << bits, dtype=np.uint8).view(t)
    case(f"decode {t.__name__}", "convert", [a], a.astype(np.float32))
    # Every midpoint between neighbours, and values to both sides.
    v = np.unique(np.abs(a.astype(np.float64)[np.isfinite(a.astype(np.float64))]))
    mid = (v[1:] + v[:-1]) / 2
    top = v[-1]
    # ml_dtypes casts doubles by way of f32: neighbours in f32 avoid that.
    below, above = (np.nextafter(mid.astype(np.float32), np.float32(q)).astype(
        np.float64) for q in (0, np.inf))
    near = np.concatenate([mid, below, above,
                           top * np.array([1.01, 1.03, 1.0625, 1.1, 1.125, 1.2,
                                           1.25, 1.5, 1.75, 1.9, 2, 3, 1e9])
                           if top < 1e30 else np.array([top * 1.4, top * 1.6]),
                           [0.0, 5e-324, 1e-310, 1e-50, 1e300, np.inf, np.nan]])
    near = np.concatenate([near, -near[:-1]])
    if t is md.float8_e8m0fnu:  # below the smallest, ml_dtypes sees f32 denormals
      near = near[(near == 0) | ~(np.abs(near) < 2.0**-126)]
    with np.errstate(all="ignore"):
      want = near.astype(t)
    case(f"encode {t.__name__}", "convert", [near], want)
  edge = np.array([0, 0.4, -0.6, 1.5, 2.5, -1.5, 127.6, 128, -128.9, -129, 255.5,
                   256, 32767.9, 65536, 2147483647.5, 2147483648, -2147483649.0,
                   4294967296, 9.3e18, -9.3e18, 1.9e19, np.inf, -np.inf, np.nan])
  for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32,
            np.int64, np.uint64):
    i = np.iinfo(t)
    want = []
    for x in edge:
      want.append(0 if np.isnan(x) else i.max if x >= i.max else
                  i.min if x <= i.min else int(x))
    case(f"f64 to {t.__name__}", "convert", [edge], np.array(want, t))
    case(f"{t.__name__} to others", "convert",
         [np.array([i.min, i.max, 0, 1, 77], t)],
         np.array([i.min, i.max, 0, 1, 77], t).astype(np.int32))
  case("f64 to bool", "convert", [edge], edge != 0)
  big = np.array([2**53 + 1, 2**24 + 1, 2**63 - 1, -2**63, 2**40 + 2**16 + 1,
                  16777217 * 2**8 + 1, (2**24 + 1) << 20, -(2**54 + 2**30 + 1)])
  case("s64 to f32", "convert", [big], big.astype(np.float32))
  case("s64 to f64", "convert", [big], big.astype(np.float64))
  case("u64 to f32", "convert", [big.astype(np.uint64)],
       big.astype(np.uint64).astype(np.float32))
  case("f64 to f16", "convert", [F32.astype(np.float64)],
       F32.astype(np.float64).astype(np.float16))
  case("f32 to bf16", "convert", [F32], F32.astype(md.bfloat16))
  case("c64 to bool", "convert", [np.array([0, 1j, 2 - 1j, np.nan], np.complex64)],
       np.array([False, False, True, True]))
  case("f64 to c64", "convert", [edge], edge.astype(np.complex64))
  case("c64 to f32", "convert", [np.array([1 + 2j, -3j], np.complex64)],
       np.array([1, 0], np.float32))
  for t in (md.int4, md.uint4, md.int2, md.uint2):
    lo, hi = int(md.iinfo(t).min), int(md.iinfo(t).max)
    a = np.arange(lo, hi + 1).astype(t)
    case(f"{t.__name__} to s32", "convert", [a], a.astype(np.int32))
    b = np.arange(-9, 20)
    m = np.array([(int(x) - lo) % (hi - lo + 1) + lo for x in b]).astype(t)
    case(f"s64 to {t.__name__}", "convert", [b], m)
    case(f"{t.__name__} add", "add", [a, a],
         np.array([(2 * int(x) - lo) % (hi - lo + 1) + lo
                   for x in a.astype(np.int32)]).astype(t))
  save("convert")


def elementwise():
  f = F32.astype(np.float64)
  with np.errstate(all="ignore"):
    unary = {
        "abs": np.abs, "cbrt": np.cbrt, "ceil": np.ceil, "cosine": np.cos,
        "exponential": np.exp, "exponential_minus_one": np.expm1,
        "floor": np.floor, "log": np.log, "log_plus_one": np.log1p,
        "logistic": lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)),
                                       1 / (1 + np.exp(-x))),
        "negate": np.negative,
        "round_nearest_even": np.rint, "rsqrt": lambda x: 1 / np.sqrt(x),
        "sine": np.sin, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
        "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin,
        "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh,
        "cosh": np.cosh, "sinh": np.sinh, "erf": sp.erf, "erfc": sp.erfc,
        "erf_inv": sp.erfinv, "lgamma": sp.gammaln, "digamma": sp.digamma,
        "round_nearest_afz": lambda x: np.copysign(
            np.floor(np.abs(x) + 0.5), x),
        "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    }
    for name, fn in unary.items():
      x = F32
      if name == "logistic":
        x = F32[np.isfinite(F32)]
      if name == "lgamma":
        x = F32[F32 != -np.inf]  # the sources disagree at -inf
      if name == "digamma":
        x = F32[(F32 > -1e3)]
      w = fn(x.astype(np.float64)).astype(np.float32)
      case(f"{name} f32", name, [x], w, ulp=1 if name in (
          "digamma", "erf_inv", "lgamma", "logistic", "cbrt", "log_plus_one",
          "exponential_minus_one") else 0)
      h = np.array([0.3, -0.8, 0.99, 1.7, -2.2, 7], np.float16)
      case(f"{name} f16", name, [h], fn(h.astype(np.float64)).astype(np.float16))
      b = h.astype(md.bfloat16)
      case(f"{name} bf16", name, [b],
           fn(b.astype(np.float64)).astype(np.float32).astype(md.bfloat16), ulp=1)
      d = np.array([0.3, -0.8, 0.99, 1.7, 2.2, 7, -0.1])
      case(f"{name} f64", name, [d], fn(d), ulp=8, eps=1e-15)
    case("is_finite", "is_finite", [F32], np.isfinite(F32))
    g = np.meshgrid(F32, F32)
    a, b = g[0].ravel(), g[1].ravel()
    keep = rng.permutation(a.size)[:200]
    a, b = a[keep], b[keep]
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    mx = np.where(np.isnan(a + 0 * b) | np.isnan(b), np.nan, np.maximum(a, b))
    for name, w in {
        "add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b,
        "remainder": np.fmod(a, b), "power": np.power(a64, b64),
        "atan2": np.arctan2(a64, b64), "maximum": np.maximum(a, b),
        "minimum": np.minimum(a, b), "next_after": np.nextafter(a, b),
    }.items():
      if name in ("maximum", "minimum"):
        ok = ~((a == 0) & (b == 0))
        case(f"{name} f32", name, [a[ok], b[ok]], w[ok])
      else:
        case(f"{name} f32", name, [a, b], w.astype(np.float32))
    z = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    y = np.array([0.0, 0.0, -0.0, -0.0], np.float32)
    case("maximum zeros", "maximum", [z, y], np.array([0, 0, 0, -0.0], np.float32))
    case("minimum zeros", "minimum", [z, y],
         np.array([0, -0.0, -0.0, -0.0], np.float32))
    for d, fn in {"EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal,
                  "GT": np.greater, "LE": np.less_equal, "LT": np.less}.items():
      case(f"compare {d}", "compare", [a, b], fn(a, b),
           f"comparison_direction={d}, compare_type=FLOAT")
      i = rng.integers(0, 3, 20).astype(np.uint8) * 100
      j = rng.integers(0, 3, 20).astype(np.uint8) * 100
      case(f"compare ui8 {d}", "compare", [i, j], fn(i, j),
           f"comparison_direction={d}")
  order = np.array([0xffc00000, 0xff800000, 0xbf800000, 0x80000000, 0, 0x3f800000,
                    0x7f800000, 0x7fc00000], np.uint32).view(np.float32)
  g = np.meshgrid(np.arange(8), np.arange(8))
  case("total order", "compare", [order[g[0].ravel()], order[g[1].ravel()]],
       g[0].ravel() < g[1].ravel(),
       "comparison_direction=LT, compare_type=TOTALORDER")
  case("zeta", "zeta", [np.array([2, 3, 1.5, 4.0, 1.0, 0.5]),
                        np.array([1, 2.5, 0.1, 20, 3.0, 1.0])],
       np.append(sp.zeta(np.array([2, 3, 1.5, 4.0]), np.array([1, 2.5, 0.1, 20])),
                 [np.inf, np.nan]), ulp=8)
  case("polygamma", "polygamma",
       [np.array([0, 1, 2, 3.0, 1.5, -1]), np.array([1.5, 2.5, 0.3, 7, 1, 1])],
       np.append(sp.polygamma(np.array([0, 1, 2, 3]), np.array([1.5, 2.5, 0.3, 7])),
                 [np.nan, np.nan]), ulp=16)
  s = F32[:12]
  case("clamp", "clamp", [np.float32(-1), s, np.float32(2)],
       np.minimum(np.maximum(s, -1), 2).astype(np.float32))
  case("clamp lo > hi", "clamp", [np.int32(5), np.array([1, 6], np.int32),
                                  np.int32(3)], np.array([3, 3], np.int32))
  p = np.arange(12) % 3 == 0
  case("select", "select", [p, s, -s], np.where(p, s, -s))
  case("select scalar", "select", [np.bool_(False), s, -s], -s)
  for e, m in ((5, 10), (8, 7), (4, 3), (5, 2), (8, 23), (11, 52), (2, 0), (1, 5)):
    x = np.concatenate([F32, rng.standard_normal(20).astype(np.float32) * 1e3])
    case(f"reduce_precision {e} {m}", "reduce_precision", [x],
         np.asarray(lax.reduce_precision(x, e, m)),
         f"exponent_bits={e}, mantissa_bits={m}")
  integers()
  complexes()
  save("elementwise")


def wrap(v, t):
  i = np.iinfo(t)
  return (int(v) - int(i.min)) % (1 << i.bits) + int(i.min)


def integers():
  for t in (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64):
    i = np.iinfo(t)
    v = sorted({int(i.min), int(i.max), 0, 1, 2, 3, 7, int(i.max) // 3,
                wrap(-1, t), wrap(-2, t), wrap(-7, t)})
    a = np.array([x for x in v for _ in v], t)
    b = np.array([y for _ in v for y in v], t)
    bits = i.bits

    def each(fn):
      return np.array([wrap(fn(int(x), int(y)), t) for x, y in zip(a, b)], t)

    def div(x, y):
      if y == 0:
        return -1
      q = abs(x) // abs(y)
      return q if (x < 0) == (y < 0) else -q

    def rem(x, y):
      return x if y == 0 else x - y * div(x, y)

    def power(x, y):
      if y < 0:
        return 1 if x == 1 else (1 if y % 2 == 0 else -1) if x == -1 else 0
      return pow(x, y, 1 << bits)

    low = lambda x: x % (1 << bits)
    ops = {
        "add": lambda x, y: x + y, "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y, "divide": div, "remainder": rem,
        "power": power, "maximum": max, "minimum": min,
        "and": lambda x, y: x & y, "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y, "mulhi": lambda x, y: (x * y) >> bits,
        "shift_left": lambda x, y: 0 if low(y) >= bits else x << low(y),
        "shift_right_logical":
            lambda x, y: 0 if low(y) >= bits else low(x) >> low(y),
        "shift_right_arithmetic": lambda x, y: (
            (low(x) - (1 << bits) if low(x) >> (bits - 1) else low(x))
            >> min(low(y), bits - 1)),
    }
    for name, fn in ops.items():
      case(f"{name} {t.__name__}", name, [a, b], each(fn))
    c = np.array(v, t)
    un = {
        "abs": abs, "negate": lambda x: -x, "not": lambda x: ~x,
        "sign": lambda x: (x > 0) - (x < 0),
        "popcnt": lambda x: bin(low(x)).count("1"),
        "count_leading_zeros": lambda x: bits - low(x).bit_length(),
    }
    for name, fn in un.items():
      case(f"{name} {t.__name__}", name, [c],
           np.array([wrap(fn(int(x)), t) for x in c], t))
  p = np.array([0, 0, 1, 1], bool)
  q = np.array([0, 1, 0, 1], bool)
  for name, w in {"and": p & q, "or": p | q, "xor": p ^ q, "add": p | q,
                  "multiply": p & q, "maximum": p | q, "minimum": p & q}.items():
    case(f"{name} bool", name, [p, q], w)
  case("not bool", "not", [p], ~p)


def complexes():
  v = np.array([0, 0.5, -2.25, 1e-6, 30.0])
  z = np.array([complex(x, y) for x in v for y in v])
  z = np.append(z, [1 + 1e-9j, -1 + 1e-9j, 3 - 4j])
  with np.errstate(all="ignore"):
    fns = {
        "exponential": np.exp, "log": np.log, "sqrt": np.sqrt, "sine": np.sin,
        "cosine": np.cos, "tan": np.tan, "tanh": np.tanh, "sinh": np.sinh,
        "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos,
        "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
        "atanh": np.arctanh, "exponential_minus_one": np.expm1,
        "log_plus_one": np.log1p, "negate": np.negative,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "logistic": lambda x: 1 / (1 + np.exp(-x)),
        "sign": lambda x: np.where(x == 0, 0, x / np.abs(x)),
    }
    for name, fn in fns.items():
      x = z
      if name in ("log", "rsqrt", "sign"):
        x = z[z != 0]
      if name in ("atan", "atanh"):
        x = z[(np.abs(z) > 1.5) | (np.abs(z) < 0.9)]
      case(f"{name} c128", name, [x], fn(x), eps=1e-14)
      x = x.astype(np.complex64)
      case(f"{name} c64", name, [x],
           fn(x.astype(np.complex128)).astype(np.complex64), eps=1e-6)
    case("abs c64", "abs", [z.astype(np.complex64)],
         np.abs(z.astype(np.complex64).astype(np.complex128)).astype(np.float32))
    w = rng.permutation(z)
    case("add c128", "add", [z, w], z + w)
    case("subtract c128", "subtract", [z, w], z - w)
    case("multiply c128", "multiply", [z, w], z * w, eps=1e-15)
    ok = w != 0
    case("divide c128", "divide", [z[ok], w[ok]], z[ok] / w[ok], eps=1e-14)
    case("power c128", "power", [z[ok], w[ok]], np.power(z[ok], w[ok]), eps=1e-12)
  case("power of zero", "power", [np.array([0, 0, 0j]), np.array([0, 2, 0.5 + 0j])],
       np.array([1, 0, 0j]))
  case("real", "real", [z], z.real.copy())
  case("imag", "imag", [z], z.imag.copy())
  case("complex", "complex", [z.real.copy(), z.imag.copy()], z)
  case("compare c128", "compare", [z, w], z == w, "comparison_direction=EQ")
  inf = np.inf
  case("exp of infinities", "exponential",
       [np.array([complex(-inf, inf), complex(inf, 0), complex(-inf, 3)],
                 np.complex64)],
       np.array([0, complex(inf, 0), complex(-0.0, 0.0)], np.complex64))


def moves():
  a = rng.standard_normal((3, 4)).astype(np.float32)
  i = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
  case("broadcast", "broadcast_in_dim", [a[:, :1]],
       np.broadcast_to(a[:, :1], (2, 3, 5)), "broadcast_dimensions=[1,2]")
  case("broadcast transposed", "broadcast_in_dim", [a],
       np.ascontiguousarray(a.T), "broadcast_dimensions=[1,0]")
  case("broadcast empty", "broadcast_in_dim", [np.float32(3)],
       np.zeros((0, 4), np.float32))
  case("concatenate", "concatenate", [i, i[:, :1], i[:, :0]],
       np.concatenate([i, i[:, :1]], 1), "dimension=1")
  case("pad", "pad", [a, np.float32(7)],
       lax.pad(a, np.float32(7), [(1, 2, 1), (-1, 0, 2)]),
       "edge_padding_low=[1,-1], edge_padding_high=[2,0], interior_padding=[1,2]")
  case("pad crop", "pad", [a, np.float32(7)], a[1:2, 0:0],
       "edge_padding_low=[-1,-2], edge_padding_high=[-1,-2], interior_padding=[0,0]")
  case("reshape", "reshape", [i], i.reshape(4, 6))
  case("reverse", "reverse", [i], i[::-1, :, ::-1].copy(), "dimensions=[0,2]")
  case("slice", "slice", [i], i[1:2, 0:3:2, 1:4:2],
       "start_indices=[1,0,1], limit_indices=[2,3,4], strides=[1,2,2]")
  case("transpose", "transpose", [i], i.transpose(2, 0, 1), "permutation=[2,0,1]")
  case("copy", "copy", [i], i)
  case("iota", "iota", [], np.broadcast_to(np.arange(3.0)[:, None], (3, 2)),
       "dimension=0")
  case("iota f8", "iota", [], np.arange(40).astype(md.float8_e4m3fn), "dimension=0")
  case("bitcast", "bitcast_convert", [a], a.view(np.int32))
  case("bitcast narrow", "bitcast_convert", [a], a.view(np.uint8).reshape(3, 4, 4))
  case("bitcast wide", "bitcast_convert", [a.view(np.uint16).reshape(3, 4, 2)], a)
  z = np.array([1 + 2j, -3.5j])
  case("bitcast complex", "bitcast_convert", [z], z.view(np.complex64).reshape(2, 2))
  u8 = np.array([0x21, 0xf0, 0x7f], np.uint8)
  case("bitcast to s4", "bitcast_convert", [u8],
       np.array([[1, 2], [0, -1], [-1, 7]], md.int4))
  case("bitcast from s4", "bitcast_convert",
       [np.array([[1, 2], [0, -1], [-1, 7]], md.int4)], u8)
  case("bitcast s4 to u4", "bitcast_convert", [np.array([-1, 3, -8], md.int4)],
       np.array([15, 3, 8], md.uint4))
  s = lambda *v: [np.int32(x) for x in v]
  case("dynamic_slice", "dynamic_slice", [i] + s(1, 2, -5),
       lax.dynamic_slice(i, s(1, 2, -5), (1, 2, 3)), "slice_sizes=[1,2,3]")
  case("dynamic_update_slice", "dynamic_update_slice", [i, -i[:1, :2, :2]] + s(7, 1, 1),
       lax.dynamic_update_slice(i, -i[:1, :2, :2], s(7, 1, 1)))
  case("dynamic_slice u64 max", "dynamic_slice",
       [np.arange(5), np.uint64(2**64 - 1)], np.array([3, 4]), "slice_sizes=[2]")
  idx = np.array([[0, 2], [9, -3], [1, 1]], np.int32)
  dn = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0, 1),
                                  start_index_map=(0, 1))
  case("gather", "gather", [i, idx],
       lax.gather(i, idx, dn, (1, 1, 3), mode="clip"),
       "offset_dims=[1], collapsed_slice_dims=[0,1], start_index_map=[0,1], "
       "index_vector_dim=1, slice_sizes=[1,1,3]")
  dn = lax.GatherDimensionNumbers(offset_dims=(0, 2), collapsed_slice_dims=(1,),
                                  start_index_map=(2, 1))
  case("gather window", "gather", [i, idx], lax.gather(i, idx, dn, (2, 1, 2),
                                                       mode="clip"),
       "offset_dims=[0,2], collapsed_slice_dims=[1], start_index_map=[2,1], "
       "index_vector_dim=1, slice_sizes=[2,1,2]")
  bi = rng.integers(0, 4, (3, 2, 1)).astype(np.int32)
  dn = lax.GatherDimensionNumbers(offset_dims=(2,), collapsed_slice_dims=(2,),
                                  start_index_map=(2,), operand_batching_dims=(1,),
                                  start_indices_batching_dims=(0,))
  case("gather batched", "gather", [i, bi], lax.gather(i, bi, dn, (2, 1, 1),
                                                       mode="clip"),
       "offset_dims=[2], collapsed_slice_dims=[2], operand_batching_dims=[1], "
       "start_indices_batching_dims=[0], start_index_map=[2], "
       "index_vector_dim=2, slice_sizes=[2,1,1]")
  upd = rng.integers(0, 99, (3, 4)).astype(np.int32)
  dn = lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0, 1),
                                   scatter_dims_to_operand_dims=(0, 1))
  idx = np.array([[0, 2], [1, -3], [0, 2]], np.int32)
  attrs = ("update_window_dims=[1], inserted_window_dims=[0,1], "
           "scatter_dims_to_operand_dims=[0,1], index_vector_dim=1")
  case("scatter add", "scatter", [i, idx, upd],
       lax.scatter_add(i, idx, upd, dn, mode="drop"), attrs,
       f" ({body('add', 'i32')})")
  case("scatter set", "scatter", [i, idx[:2], upd[:2]],
       lax.scatter(i, idx[:2], upd[:2], dn, mode="drop"), attrs,
       " ((%900: i32[], %901: i32[]) { return %901 })")
  # Windows that reach outside are dropped whole.
  row, idx = np.arange(6, dtype=np.int32), np.array([[-1], [3], [4], [9]], np.int32)
  upd = np.arange(10, 22, dtype=np.int32).reshape(4, 3)
  dn = lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(),
                                   scatter_dims_to_operand_dims=(0,))
  case("scatter windows at the edges", "scatter", [row, idx, upd],
       lax.scatter_add(row, idx, upd, dn, mode="drop"),
       "update_window_dims=[1], scatter_dims_to_operand_dims=[0], index_vector_dim=1",
       f" ({body('add', 'i32')})")
  x = np.array([[1, 9, 3, 4], [5, 6, 7, 2], [0, 3, 8, 1]], np.float32)
  src = np.array([[10, 20], [30, 40]], np.float32)
  want = np.full_like(x, 1)
  for r in range(2):
    for c in range(2):
      w = x[r:r + 2, 2 * c:2 * c + 2]
      k = np.unravel_index(np.argmax(w), w.shape)
      want[r + k[0], 2 * c + k[1]] += src[r, c]
  ge = body("compare", "f32", "i1").replace(
      ", %901 :", ", %901 {comparison_direction=GE} :")
  case("select_and_scatter", "select_and_scatter", [x, src, np.float32(1)], want,
       "window_dimensions=[2,2], window_strides=[1,2], padding=[0,0,0,0]",
       f" ({ge}, {body('add', 'f32', base=910)})")
  shape = lambda *v: np.array(v, np.int64)
  case("dynamic_broadcast_in_dim", "dynamic_broadcast_in_dim",
       [a[:, :1], shape(2, 3, 5)], np.broadcast_to(a[:, :1], (2, 3, 5)),
       "broadcast_dimensions=[1,2]")
  case("dynamic_reshape", "dynamic_reshape", [i, shape(4, 6)], i.reshape(4, 6))
  case("dynamic_iota", "dynamic_iota", [shape(3, 2)],
       np.broadcast_to(np.arange(2.0), (3, 2)), "dimension=1")
  case("dynamic_pad", "dynamic_pad",
       [a, np.float32(7), shape(1, -1), shape(2, 0), shape(1, 2)],
       lax.pad(a, np.float32(7), [(1, 2, 1), (-1, 0, 2)]))
  case("real_dynamic_slice", "real_dynamic_slice",
       [i, shape(1, 0, 1), shape(2, 3, 4), shape(1, 2, 2)], i[1:2, 0:3:2, 1:4:2])
  g = np.array([[0, 2], [1, 1]], np.int32)
  dn = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0, 1),
                                  start_index_map=(0, 1))
  case("dynamic_gather", "dynamic_gather", [i, g, shape(1, 1, 3)],
       lax.gather(i, g, dn, (1, 1, 3), mode="clip"),
       "offset_dims=[1], collapsed_slice_dims=[0,1], start_index_map=[0,1], "
       "index_vector_dim=1")
  case("get_dimension_size", "get_dimension_size", [i], np.int32(3), "dimension=1")
  save("move")


def contractions():
  a = rng.standard_normal((2, 3, 4)).astype(np.float32)
  b = rng.standard_normal((4, 2, 5)).astype(np.float32)
  case("dot batched", "dot_general", [a, b],
       np.einsum("bij,jbk->bik", a.astype(np.float64), b.astype(np.float64)
                 ).astype(np.float32),
       "lhs_batching_dimensions=[0], rhs_batching_dimensions=[1], "
       "lhs_contracting_dimensions=[2], rhs_contracting_dimensions=[0]", ulp=1)
  case("dot two dims", "dot_general", [a, b[:, :, :3].transpose(1, 2, 0).copy()],
       np.float32(np.sum(a.astype(np.float64) *
                         b[:, :, :3].transpose(1, 2, 0).astype(np.float64))),
       "lhs_contracting_dimensions=[0,1,2], rhs_contracting_dimensions=[0,1,2]",
       ulp=1)
  case("outer", "dot_general", [a[0, 0], a[1, 2]], np.outer(a[0, 0], a[1, 2]))
  e = np.zeros((3, 0), np.float32)
  case("empty contraction", "dot_general", [e, e.T.copy()],
       np.zeros((3, 3), np.float32),
       "lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]")
  mm = "lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]"
  x, y = rng.integers(-128, 128, (2, 3, 3)).astype(np.int8)
  case("dot s8 s32", "dot_general", [x, y], x.astype(np.int32) @ y.astype(np.int32), mm)
  case("dot s8 wraps", "dot_general", [x, y],
       (x.astype(np.int32) @ y.astype(np.int32)).astype(np.int8), mm)
  h = rng.standard_normal((3, 3)).astype(md.bfloat16)
  w = h.astype(np.float64)
  case("dot bf16 f32", "dot_general", [h, h], (w @ w).astype(np.float32), mm)
  case("dot bf16", "dot_general", [h, h],
       (w @ w).astype(np.float32).astype(md.bfloat16), mm)
  z = rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3))
  case("dot c128", "dot_general", [z, z], z @ z, mm, eps=1e-15)
  p = rng.integers(0, 2, (3, 3)).astype(bool)
  case("dot bool", "dot_general", [p, p], p @ p, mm)
  l = rng.standard_normal((7, 4)).astype(np.float32)
  r = rng.standard_normal((3, 4, 2)).astype(np.float32)
  gs = np.array([2, 0, 4], np.int32)
  case("ragged_dot", "ragged_dot", [l, r, gs], lax.ragged_dot(l, r, gs),
       "lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[1], "
       "lhs_ragged_dimensions=[0], rhs_group_dimensions=[0]", ulp=8)
  case("ragged_dot empty", "ragged_dot", [l[:, :0].copy(), r[:, :0].copy(), gs],
       np.zeros((7, 2), np.float32),
       "lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[1], "
       "lhs_ragged_dimensions=[0], rhs_group_dimensions=[0]")
  r2 = rng.standard_normal((7, 2)).astype(np.float32)
  want = np.stack([l[0:2].T.astype(np.float64) @ r2[0:2], np.zeros((4, 2)),
                   l[2:6].T.astype(np.float64) @ r2[2:6]]).astype(np.float32)
  case("ragged_dot contracting", "ragged_dot", [l, r2, gs], want,
       "lhs_contracting_dimensions=[0], rhs_contracting_dimensions=[0], "
       "lhs_ragged_dimensions=[0]", ulp=2)

  def conv(name, x, k, strides, pads, ld, rd, dn, fg=1, bg=1, rev=None):
    n = lax.conv_dimension_numbers(x.shape, k.shape, dn)
    d = len(strides)
    kk = k
    if rev:
      kk = np.flip(k, [n.rhs_spec[2 + i] for i in range(d) if rev[i]])
    want = lax.conv_general_dilated(
        x.astype(np.float64), kk.astype(np.float64), strides, pads, ld, rd, dn, fg, bg)
    want = np.asarray(want).astype(x.dtype)
    attrs = (f"window_strides={list(strides)}, padding={[q for p in pads for q in p]},"
             f" lhs_dilation={list(ld)}, rhs_dilation={list(rd)}, "
             f"window_reversal={[int(v) for v in (rev or [0] * d)]}, "
             f"input_batch_dimension={n.lhs_spec[0]}, "
             f"input_feature_dimension={n.lhs_spec[1]}, "
             f"input_spatial_dimensions={list(n.lhs_spec[2:])}, "
             f"kernel_input_feature_dimension={n.rhs_spec[1]}, "
             f"kernel_output_feature_dimension={n.rhs_spec[0]}, "
             f"kernel_spatial_dimensions={list(n.rhs_spec[2:])}, "
             f"output_batch_dimension={n.out_spec[0]}, "
             f"output_feature_dimension={n.out_spec[1]}, "
             f"output_spatial_dimensions={list(n.out_spec[2:])}, "
             f"feature_group_count={fg}, batch_group_count={bg}").replace(" [", "[")
    case(name, "convolution", [x, k], want, attrs, eps=1e-6)

  def f(*s):
    return rng.standard_normal(s).astype(np.float32)

  nhwc = ("NHWC", "HWIO", "NHWC")
  conv("conv", f(2, 5, 6, 3), f(2, 3, 3, 4), (1, 1), [(0, 1), (1, 1)], (1, 1), (1, 1), nhwc)
  conv("conv strided dilated", f(1, 6, 5, 2), f(2, 2, 2, 3), (2, 1), [(1, 0), (-1, 2)],
       (2, 1), (1, 2), nhwc)
  conv("conv reversed", f(1, 4, 4, 2), f(2, 2, 2, 3), (1, 1), [(0, 0), (0, 0)], (1, 1),
       (1, 1), nhwc, rev=[True, False])
  conv("conv groups", f(2, 4, 4, 6), f(2, 2, 2, 6), (1, 1), [(0, 0), (1, 1)], (1, 1),
       (1, 1), nhwc, fg=3)
  conv("conv batch groups", f(4, 4, 4, 3), f(2, 2, 3, 6), (1, 1), [(0, 0), (0, 0)], (1, 1),
       (1, 1), nhwc, bg=2)
  conv("conv nchw", f(2, 3, 4, 4), f(5, 3, 2, 2), (1, 2), [(0, 0), (1, 1)], (1, 1),
       (1, 1), ("NCHW", "OIHW", "NCHW"))
  conv("conv 1d f64", rng.standard_normal((2, 3, 7)), rng.standard_normal((4, 3, 3)),
       (2,), [(1, 1)], (1,), (1,), ("NCH", "OIH", "NCH"))
  case("dynamic_conv", "dynamic_conv",
       [np.arange(6.0).reshape(1, 6, 1), np.array([1.0, 2.0]).reshape(2, 1, 1),
        np.array([[1, 0]], np.int32)],
       np.array([0, 2, 5, 8, 11, 14.0]).reshape(1, 6, 1),
       "window_strides=[1], lhs_dilation=[1], rhs_dilation=[1], input_batch_dimension=0,"
       " input_feature_dimension=2, input_spatial_dimensions=[1], "
       "kernel_input_feature_dimension=1, kernel_output_feature_dimension=2, "
       "kernel_spatial_dimensions=[0], output_batch_dimension=0, "
       "output_feature_dimension=2, output_spatial_dimensions=[1]")
  save("dot")


def reductions():
  a = rng.integers(-9, 9, (3, 4, 5)).astype(np.float32)
  case("reduce sum", "reduce", [a, np.float32(10)], a.sum((0, 2)) + 10,
       "dimensions=[0,2]", f" ({body('add', 'f32')})")
  case("reduce max", "reduce", [a, np.float32(-np.inf)], a.max(1), "dimensions=[1]",
       f" ({body('maximum', 'f32')})")
  case("reduce nothing", "reduce", [a[:0], np.float32(2)], np.full((4, 5), 2, np.float32),
       "dimensions=[0]", f" ({body('add', 'f32')})")
  case("reduce no dims", "reduce", [a, np.float32(2)], a + 2, "dimensions=[]",
       f" ({body('add', 'f32')})")
  big = np.full(100001, 0.1, np.float32)
  raw("reduce long", f'''hlo module "t" entry="main" {{
func "main" () -> (f32[], f32[]) {{
  %0 = constant {{value=f32[100001] splat 0x3dcccccd}}
  %1 = constant {{value=f32[] 0.0}}
  %2 = reduce %0, %1 {{dimensions=[0]}} ({body('add', 'f32')}) : f32[]
  %3 = constant {{value={lit(np.float32(np.float64(np.float32(0.1)) * 100001))}}}
  return %2, %3
}}
}}''', ulp=4)
  ix = np.broadcast_to(np.arange(5, dtype=np.int32), (3, 4, 5)).copy()
  arg = (" ((%900: f32[], %901: i32[], %902: f32[], %903: i32[]) {\n"
         "%904 = compare %900, %902 {comparison_direction=GE} : i1[]\n"
         "%905 = select %904, %900, %902 : f32[]\n"
         "%906 = select %904, %901, %903 : i32[] return %905, %906 })")
  case("reduce argmax", "reduce", [a, ix, np.float32(-np.inf), np.int32(0)],
       [a.max(2), a.argmax(2).astype(np.int32)], "dimensions=[2]", arg)
  win = "window_dimensions=[1,2,3], window_strides=[1,1,2], padding=[0,0,1,0,1,1]"
  case("reduce_window", "reduce_window", [a, np.float32(0)],
       lax.reduce_window(a, np.float32(0), lax.add, (1, 2, 3), (1, 1, 2),
                         [(0, 0), (1, 0), (1, 1)]), win, f" ({body('add', 'f32')})")
  v = np.arange(6, dtype=np.int32)
  case("reduce_window dilated", "reduce_window", [v, np.int32(1)],
       lax.reduce_window(v, np.int32(1), lax.add, (2,), (2,), [(1, 2)], (2,), (3,)),
       "window_dimensions=[2], window_strides=[2], base_dilations=[2], "
       "window_dilations=[3], padding=[1,2]", f" ({body('add', 'i32')})")
  case("cumsum window", "reduce_window", [v, np.int32(0)], np.cumsum(v).astype(np.int32),
       "window_dimensions=[6], window_strides=[1], padding=[5,0]",
       f" ({body('add', 'i32')})")
  case("scan", "scan", [a, np.float32(1)], np.cumsum(a, 1) + 1, "dimension=1, reverse=false",
       f" ({body('add', 'f32')})")
  case("scan reverse", "scan", [a, np.float32(-np.inf)],
       np.maximum.accumulate(a[:, :, ::-1], 2)[:, :, ::-1].copy(),
       "dimension=2, reverse=true", f" ({body('maximum', 'f32')})")
  case("map", "map", [a, a], a * a - a, "dimensions=[0,1,2]",
       " ((%900: f32[], %901: f32[]) { %902 = multiply %900, %901 : f32[] "
       "%903 = subtract %902, %901 : f32[] return %903 })")
  k = rng.integers(0, 4, (5, 3)).astype(np.int32)
  d = np.arange(15, dtype=np.float32).reshape(5, 3)
  order = np.argsort(k, 0, kind="stable")
  lt = (" ((%900: i32[], %901: i32[], %902: f32[], %903: f32[]) { "
        "%904 = compare %900, %901 {comparison_direction=LT} : i1[] return %904 })")
  case("sort pairs", "sort", [k, d],
       [np.take_along_axis(k, order, 0), np.take_along_axis(d, order, 0)],
       "dimension=0, is_stable=true", lt)
  case("sort empty", "sort", [k[:, :0], d[:, :0]], [k[:, :0], d[:, :0]],
       "dimension=1, is_stable=true", lt)
  t = np.array([[3, 1, 4, 1, 5, np.nan, 9], [2, 2, 2, 0, -1, 7, 7]], np.float32)
  case("top_k", "top_k", [t], [np.array([[np.nan, 9, 5], [7, 7, 2]], np.float32),
                               np.array([[5, 6, 4], [5, 6, 0]], np.int32)],
       "k=3, largest=true")
  n = np.array([1, -np.nan, np.inf, np.nan], np.float32)
  case("top_k nan", "top_k", [n], [n[[3, 2, 0]], np.array([3, 2, 0], np.int32)],
       "k=3, largest=true")
  case("top_k least nan", "top_k", [n], [n[[1, 0, 2]], np.array([1, 0, 2], np.int32)],
       "k=3, largest=false")
  case("top_k least", "top_k", [t], [np.array([[1, 1], [-1, 0]], np.float32),
                                     np.array([[1, 3], [4, 3]], np.int32)],
       "k=2, largest=false")
  x = rng.standard_normal((2, 3, 4)).astype(np.float32)
  sc, of = rng.standard_normal((2, 3)).astype(np.float32)
  m, va = x.astype(np.float64).mean((0, 2)), x.astype(np.float64).var((0, 2))
  c = lambda q: q[None, :, None]
  y = (x - c(m)) / np.sqrt(c(va) + 1e-3) * c(sc) + c(of)
  f = lambda q: q.astype(np.float32)
  case("batch_norm_training", "batch_norm_training", [x, sc, of], [f(y), f(m), f(va)],
       "epsilon=0.001, feature_index=1", eps=1e-6)
  case("batch_norm_inference", "batch_norm_inference", [x, sc, of, f(m), f(va)], f(y),
       "epsilon=0.001, feature_index=1", eps=1e-6)
  dy = rng.standard_normal((2, 3, 4))
  def norm(x, s, o):
    mm = x.mean((0, 2), keepdims=True)
    vv = ((x - mm)**2).mean((0, 2), keepdims=True)
    return (x - mm) / jnp.sqrt(vv + 1e-3) * s[None, :, None] + o[None, :, None]
  _, vjp = jax.vjp(norm, x.astype(np.float64), sc.astype(np.float64),
                   of.astype(np.float64))
  case("batch_norm_grad", "batch_norm_grad", [x, sc, f(m), f(va), f(dy)],
       [f(np.asarray(q)) for q in vjp(jnp.asarray(f(dy), jnp.float64))],
       "epsilon=0.001, feature_index=1", eps=2e-5)
  save("reduce")


def linalg():
  for n in (1, 2, 6, 7, 30, 31):
    z = rng.standard_normal((2, n)) + 1j * rng.standard_normal((2, n))
    case(f"fft {n}", "fft", [z], np.fft.fft(z), f"fft_type=FFT, fft_length=[{n}]", eps=1e-13)
    case(f"ifft {n}", "fft", [z], np.fft.ifft(z), f"fft_type=IFFT, fft_length=[{n}]", eps=1e-13)
    case(f"rfft {n}", "fft", [z.real.copy()], np.fft.rfft(z.real),
         f"fft_type=RFFT, fft_length=[{n}]", eps=1e-13)
    case(f"irfft {n}", "fft", [z[:, :n // 2 + 1].copy()], np.fft.irfft(z[:, :n // 2 + 1], n),
         f"fft_type=IRFFT, fft_length=[{n}]", eps=1e-13)
  z = (rng.standard_normal((3, 4, 5)) + 1j * rng.standard_normal((3, 4, 5)))
  case("fft3", "fft", [z.astype(np.complex64)], np.fft.fftn(z).astype(np.complex64),
       "fft_type=FFT, fft_length=[3,4,5]", eps=1e-5)
  case("rfft2", "fft", [z.real.copy()], np.fft.rfft2(z.real),
       "fft_type=RFFT, fft_length=[4,5]", eps=1e-13)
  case("irfft2", "fft", [z[:, :, :3].copy()], np.fft.irfft2(z[:, :, :3], (4, 5)),
       "fft_type=IRFFT, fft_length=[4,5]", eps=1e-13)
  m = rng.standard_normal((2, 4, 4)) + 1j * rng.standard_normal((2, 4, 4))
  spd = m @ m.conj().transpose(0, 2, 1) + np.eye(4)
  l = np.linalg.cholesky(spd)
  case("cholesky lower", "cholesky", [np.tril(spd)], l, "lower=true", eps=1e-13)
  case("cholesky upper", "cholesky", [np.triu(spd)], l.conj().transpose(0, 2, 1).copy(),
       "lower=false", eps=1e-13)
  case("cholesky indefinite", "cholesky", [-np.eye(2)], np.full((2, 2), np.nan), "lower=true")
  b = rng.standard_normal((2, 4, 3)) + 0j
  for lower in (True, False):
    for unit in (True, False):
      for tr, name in ((lambda q: q, "NO_TRANSPOSE"),
                       (lambda q: q.transpose(0, 2, 1), "TRANSPOSE"),
                       (lambda q: q.conj().transpose(0, 2, 1), "ADJOINT")):
        t = np.tril(spd) if lower else np.triu(spd)
        if unit:
          t = t - t * np.eye(4) + np.eye(4)
        at = (f"lower={str(lower).lower()}, unit_diagonal={str(unit).lower()}, "
              f"transpose_a={name}")
        case(f"solve left {at}", "triangular_solve", [spd, b], np.linalg.solve(tr(t), b),
             "left_side=true, " + at, eps=1e-9)
        br = b.transpose(0, 2, 1).copy()
        want = np.linalg.solve(tr(t).transpose(0, 2, 1), b).transpose(0, 2, 1).copy()
        case(f"solve right {at}", "triangular_solve", [spd, br], want,
             "left_side=false, " + at, eps=1e-9)
  save("linalg")


def random_bits():
  from jax._src.lax import lax as impl
  for alg, name in ((lax.RandomAlgorithm.RNG_THREE_FRY, "THREE_FRY"),
                    (lax.RandomAlgorithm.RNG_PHILOX, "PHILOX")):
    for shape in ((), (1,), (5,), (3, 5), (3, 4), (2, 3, 1), (7, 3, 5), (0, 3)):
      for t in (np.uint8, np.uint16, np.uint32, np.uint64):
        s = np.array([0x123456789abcdef0, 0xfffffffffffffffd], np.uint64)
        ns, bits = lax.rng_bit_generator(s, shape, t, algorithm=alg)
        case(f"{name} {t.__name__} {shape}", "rng_bit_generator", [s],
             [np.asarray(ns), np.asarray(bits)], f"rng_algorithm={name}")
  save("rng")


with np.errstate(all="ignore"):
  conversions()
  elementwise()
  moves()
  contractions()
  reductions()
  linalg()
  random_bits()
