// One element of an elementwise op, by class of element: booleans and integers
// in 64 bits with wrap-around on store, floats in double, complex numbers.
#include <fenv.h>
#include <math.h>

#include "hlo/eval_internal.h"

static at_dtype operand_dtype(const at_node *n, uint32_t i) {
  return at_value_type(n->operands[i])->dtype;
}

// The error of an op that is not defined on operand 0's element type.
static at_status lacks(const at_node *n) {
  return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s of %s", at_op_text(n->op),
                 at_dtype_of(operand_dtype(n, 0))->text);
}

// ---- Conversion

// An integer as the double that rounds to the same narrow float as it would
// itself: bits that a double has no room for are folded into its last bit
// (round to odd).
static double int_as_double(int64_t v, bool is_unsigned) {
  bool negative = !is_unsigned && v < 0;
  uint64_t u = negative ? -(uint64_t)v : (uint64_t)v;
  if (u >> 53) {
    int drop = 64 - __builtin_clzll(u) - 53;
    uint64_t lost = u & ((1ull << drop) - 1);
    u = u >> drop << drop;
    if (lost) u |= 1ull << drop;
  }
  return negative ? -(double)u : (double)u;
}

// Truncates towards zero and saturates; NaN gives 0.
static int64_t float_to_int(double v, at_dtype to) {
  unsigned bits = at_dtype_of(to)->bits;
  if (isnan(v)) return 0;
  if (at_is_unsigned_int(to)) {
    if (v <= 0) return 0;
    if (v >= ldexp(1, (int)bits))
      return bits == 64 ? -1 : (int64_t)((1ull << bits) - 1);
    return (int64_t)(uint64_t)v;
  }
  double limit = ldexp(1, (int)bits - 1);
  if (v >= limit) return (int64_t)((1ull << (bits - 1)) - 1);
  if (v <= -limit) return -(int64_t)((1ull << (bits - 1)) - 1) - 1;
  return (int64_t)v;
}

// f64 takes the C conversion, which rounds once. Narrower types get a double
// whose later rounding gives the same as one rounding would.
static double int_to_float(int64_t v, at_dtype from, at_dtype to) {
  bool is_unsigned = at_is_unsigned_int(from);
  if (to == AT_F64) return is_unsigned ? (double)(uint64_t)v : (double)v;
  return int_as_double(v, is_unsigned);
}

// Complex numbers lose their imaginary part on the way to anything real.
void at_eval_convert(at_dtype from, const void *in, at_dtype to, void *out) {
  if (from == to) {
    memcpy(out, in, at_dtype_bytes(to));
    return;
  }
  bool real_in = at_is_float(from), complex_in = at_is_complex(from);
  double complex z = 0;
  int64_t i = 0;
  if (real_in || complex_in)
    z = at_load_complex(from, in);
  else
    i = at_load_int(from, in);
  if (at_is_complex(to)) {
    at_store_complex(to, out,
                     real_in || complex_in
                         ? z
                         : CMPLX(int_to_float(i, from, at_real_of(to)), 0));
  } else if (at_is_float(to)) {
    at_store_float(
        to, out, real_in || complex_in ? creal(z) : int_to_float(i, from, to));
  } else if (real_in || complex_in) {
    at_store_int(to, out,
                 to == AT_PRED ? creal(z) != 0 : float_to_int(creal(z), to));
  } else {
    at_store_int(to, out, i);
  }
}

// ---- Integers

// Division by zero gives all ones; the least number by -1 wraps.
static int64_t int_divide(int64_t a, int64_t b, bool is_unsigned) {
  if (b == 0) return -1;
  if (is_unsigned) return (int64_t)((uint64_t)a / (uint64_t)b);
  return b == -1 ? (int64_t) - (uint64_t)a : a / b;
}

// By zero it is the dividend; by -1 zero, without the division that traps.
static int64_t int_remainder(int64_t a, int64_t b, bool is_unsigned) {
  if (b == 0) return a;
  if (is_unsigned) return (int64_t)((uint64_t)a % (uint64_t)b);
  return b == -1 ? 0 : a % b;
}

// By squaring, modulo 2^64. Negative exponents give the truncated reciprocal: 0
// but for bases 1 and -1.
static int64_t int_power(int64_t a, int64_t b, bool is_unsigned) {
  if (!is_unsigned && b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  uint64_t r = 1, x = (uint64_t)a;
  for (uint64_t e = (uint64_t)b; e; e >>= 1, x *= x)
    if (e & 1) r *= x;
  return (int64_t)r;
}

// The upper `bits` bits of the double-width product.
static int64_t int_mulhi(int64_t a, int64_t b, unsigned bits,
                         bool is_unsigned) {
  if (is_unsigned)
    return (int64_t)((unsigned __int128)(uint64_t)a * (uint64_t)b >> bits);
  return (int64_t)((__int128)a * b >> bits);
}

// v as an unsigned number of `bits` bits.
static uint64_t low_bits(int64_t v, unsigned bits) {
  return bits == 64 ? (uint64_t)v : (uint64_t)v & ((1ull << bits) - 1);
}

// Shifts by the width or more give 0, or the sign for arithmetic ones. The
// amount counts as unsigned.
static int64_t int_shift(at_op op, int64_t a, int64_t b, unsigned bits) {
  uint64_t by = low_bits(b, bits);
  bool over = by >= bits;
  if (op == AT_OP_SHIFT_LEFT) return over ? 0 : (int64_t)((uint64_t)a << by);
  if (op == AT_OP_SHIFT_RIGHT_LOGICAL)
    return over ? 0 : (int64_t)(low_bits(a, bits) >> by);
  // The sign of the type's width, also for unsigned types.
  int64_t s = (int64_t)((uint64_t)a << (64 - bits)) >> (64 - bits);
  return s >> (over ? 63 : by);
}

// a is the element extended to 64 bits; *out is stored with wrap-around by the
// caller.
static at_status eval_int_unary(const at_node *n, at_dtype t, int64_t a,
                                int64_t *out) {
  unsigned bits = at_dtype_of(t)->bits;
  bool is_signed = at_is_signed_int(t);
  switch (n->op) {
    case AT_OP_ABS:
      *out = is_signed && a < 0 ? (int64_t) - (uint64_t)a : a;
      return AT_OK;
    case AT_OP_NEGATE:
      *out = (int64_t) - (uint64_t)a;
      return AT_OK;
    case AT_OP_SIGN:
      *out = is_signed && a < 0 ? -1 : a != 0;
      return AT_OK;
    case AT_OP_NOT:
      *out = t == AT_PRED ? !a : ~a;
      return AT_OK;
    case AT_OP_POPCNT:
      *out = __builtin_popcountll(low_bits(a, bits));
      return AT_OK;
    case AT_OP_COUNT_LEADING_ZEROS: {
      uint64_t u = low_bits(a, bits);
      *out = u ? __builtin_clzll(u) - (64 - (int)bits) : (int)bits;
      return AT_OK;
    }
    default:
      return lacks(n);
  }
}

// As eval_int_unary. Booleans add as `or`, since their sum saturates at 1.
static at_status eval_int_binary(const at_node *n, at_dtype t, int64_t a,
                                 int64_t b, int64_t *out) {
  unsigned bits = at_dtype_of(t)->bits;
  bool is_unsigned = !at_is_signed_int(t);
  bool less = is_unsigned ? (uint64_t)a < (uint64_t)b : a < b;
  switch (n->op) {
    case AT_OP_ADD:
      *out = t == AT_PRED ? a | b : (int64_t)((uint64_t)a + (uint64_t)b);
      return AT_OK;
    case AT_OP_SUBTRACT:
      *out = (int64_t)((uint64_t)a - (uint64_t)b);
      return AT_OK;
    case AT_OP_MULTIPLY:
      *out = (int64_t)((uint64_t)a * (uint64_t)b);
      return AT_OK;
    case AT_OP_AND:
      *out = a & b;
      return AT_OK;
    case AT_OP_OR:
      *out = a | b;
      return AT_OK;
    case AT_OP_XOR:
      *out = a ^ b;
      return AT_OK;
    case AT_OP_MAXIMUM:
      *out = less ? b : a;
      return AT_OK;
    case AT_OP_MINIMUM:
      *out = less ? a : b;
      return AT_OK;
    case AT_OP_DIVIDE:
      *out = int_divide(a, b, is_unsigned);
      return AT_OK;
    case AT_OP_REMAINDER:
      *out = int_remainder(a, b, is_unsigned);
      return AT_OK;
    case AT_OP_POWER:
      *out = int_power(a, b, is_unsigned);
      return AT_OK;
    case AT_OP_MULHI:
      *out = int_mulhi(a, b, bits, is_unsigned);
      return AT_OK;
    case AT_OP_SHIFT_LEFT:
    case AT_OP_SHIFT_RIGHT_LOGICAL:
    case AT_OP_SHIFT_RIGHT_ARITHMETIC:
      *out = int_shift(n->op, a, b, bits);
      return AT_OK;
    default:
      return lacks(n);
  }
}

// ---- Floats

// From 16 bits on the pattern itself is the key: negative floats have theirs
// flipped. Narrower floats are compared as doubles, so that payloads of their
// NaN do not count.
int64_t at_eval_order(at_dtype t, const void *p) {
  uint64_t u;
  if (at_is_int(t) || t == AT_PRED) {
    int64_t v = at_load_int(t, p);
    return t == AT_U64 ? (int64_t)((uint64_t)v ^ 1ull << 63) : v;
  }
  unsigned bits = at_dtype_of(t)->bits;
  if (bits >= 16) {  // by their bits: NaN have payloads
    u = 0;
    memcpy(&u, p, at_dtype_bytes(t));
    u <<= 64 - bits;
  } else {
    double v = at_load_float(t, p);
    memcpy(&u, &v, sizeof u);
  }
  return (int64_t)u < 0 ? (int64_t)(u ^ INT64_MAX) : (int64_t)u;
}

// Steps the bit pattern, which orders like the value apart from the sign. Zero
// steps to the smallest number of the wanted sign; equal operands give the
// second.
static void next_after(at_dtype t, const void *pa, const void *pb, void *out) {
  double a = at_load_float(t, pa), b = at_load_float(t, pb);
  unsigned bytes = at_dtype_bytes(t);
  if (isnan(a) || isnan(b) || a == b) {
    at_store_float(t, out, isnan(a) ? a : b);
    return;
  }
  uint64_t u = 0, sign = 1ull << (at_dtype_of(t)->bits - 1);
  memcpy(&u, pa, bytes);
  if (a == 0)
    u = 1 | (b < 0 ? sign : 0);
  else
    u += (a < b) == (a > 0) ? 1 : (uint64_t)-1;
  memcpy(out, &u, bytes);
  // From the smallest negative number up, where -0 is not a number.
  if (a < 0 && a < b && isnan(at_load_float(t, out))) at_store_float(t, out, 0);
}

// Bits of exponent and mantissa.
typedef struct ieee_layout {
  int exponent, mantissa;
} ieee_layout;

// Rounds to `mantissa_bits` and limits the exponent as a format with
// `exponent_bits` would; what falls below its normal range becomes zero.
static uint64_t reduce_bits(uint64_t x, ieee_layout f, int e, int m) {
  uint64_t sign = 1ull << (f.exponent + f.mantissa);
  uint64_t magnitude = x & (sign - 1);
  uint64_t inf = ((1ull << f.exponent) - 1) << f.mantissa;
  if (magnitude > inf) return x;  // NaN stays
  if (m < f.mantissa) {
    uint64_t last = 1ull << (f.mantissa - m);
    x += (last >> 1) - 1 + ((x & last) != 0);
    x &= ~(last - 1);
  }
  if (e < f.exponent) {
    uint64_t bias = (1ull << (f.exponent - 1)) - 1;
    uint64_t narrow = (1ull << (e - 1)) - 1;
    uint64_t exponent = x & inf;
    if (exponent > (bias + narrow) << f.mantissa) return (x & sign) | inf;
    if (exponent <= (bias - narrow) << f.mantissa) return x & sign;
  }
  return x;
}

// The attributes may name more bits than the type has; then that part changes
// nothing.
static void reduce_precision(const at_node *n, at_dtype t, const void *in,
                             void *out) {
  int e = (int)AT_MIN(at_node_int(n, AT_ATTR_EXPONENT_BITS, 8), 11);
  int m = (int)AT_MIN(at_node_int(n, AT_ATTR_MANTISSA_BITS, 23), 52);
  ieee_layout f = t == AT_F64    ? (ieee_layout){11, 52}
                  : t == AT_F16  ? (ieee_layout){5, 10}
                  : t == AT_BF16 ? (ieee_layout){8, 7}
                                 : (ieee_layout){8, 23};
  uint64_t x = 0;
  if (at_dtype_bytes(t) > 1) {
    memcpy(&x, in, at_dtype_bytes(t));
    x = reduce_bits(x, f, e, m);
    memcpy(out, &x, at_dtype_bytes(t));
    return;
  }
  uint8_t single[4];  // narrower types go through f32
  at_store_float(AT_F32, single, at_load_float(t, in));
  memcpy(&x, single, 4);
  x = reduce_bits(x, f, e, m);
  memcpy(single, &x, 4);
  at_store_float(t, out, at_load_float(AT_F32, single));
}

// NaN wins, and +0 is larger than -0.
static double float_max(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) ? a : b;
  if (a == b) return signbit(a) ? b : a;
  return a > b ? a : b;
}
// NaN wins, and -0 is smaller than +0.
static double float_min(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) ? a : b;
  if (a == b) return signbit(a) ? a : b;
  return a < b ? a : b;
}

// a and b are exact doubles of any float type. Sums, products and quotients of
// types up to f32 are rounded twice (to double, then by the caller); double has
// more than twice their precision, so the result is as if rounded once.
static at_status eval_float_binary(const at_node *n, double a, double b,
                                   bool wide, double *out) {
  switch (n->op) {
    case AT_OP_ADD:
      *out = a + b;
      return AT_OK;
    case AT_OP_SUBTRACT:
      *out = a - b;
      return AT_OK;
    case AT_OP_MULTIPLY:
      *out = a * b;
      return AT_OK;
    case AT_OP_DIVIDE:
      *out = a / b;
      return AT_OK;
    case AT_OP_REMAINDER:
      *out = fmod(a, b);
      return AT_OK;
    case AT_OP_MAXIMUM:
      *out = float_max(a, b);
      return AT_OK;
    case AT_OP_MINIMUM:
      *out = float_min(a, b);
      return AT_OK;
    case AT_OP_POWER:
      *out = wide ? (double)powl(a, b) : pow(a, b);
      return AT_OK;
    case AT_OP_ATAN2:
      *out = wide ? (double)atan2l(a, b) : atan2(a, b);
      return AT_OK;
    case AT_OP_POLYGAMMA:
      *out = (double)at_polygamma(a, b);
      return AT_OK;
    case AT_OP_ZETA:
      *out = (double)at_zeta(a, b);
      return AT_OK;
    default:
      return lacks(n);
  }
}

// ---- Complex

static bool complex_less(double complex a, double complex b) {
  return creal(a) < creal(b) || (creal(a) == creal(b) && cimag(a) < cimag(b));
}

static bool complex_nan(double complex z) {
  return isnan(creal(z)) || isnan(cimag(z));
}

// By cpowl, with XLA's results where the base is zero.
static long double complex complex_power(long double complex a,
                                         long double complex b) {
  if (b == 0) return 1;
  if (a == 0 && creall(b) < 0) return CMPLXL(NAN, NAN);  // as XLA's formula
  if (a == 0) return creall(b) > 0 && cimagl(b) == 0 ? 0 : cpowl(a, b);
  return cpowl(a, b);
}

// The angle t with e^(it) = (x + iy) / sqrt(x^2 + y^2): atan(y / x), and half a
// turn more where the root is not on x's side.
static long double complex complex_atan2(long double complex y,
                                         long double complex x) {
  long double complex w = y / x;
  if (!isfinite(creall(w)) || !isfinite(cimagl(w)))
    return -I * clogl((x + I * y) / csqrtl(x * x + y * y));
  long double complex t = catanl(w);
  if (creall(x * csqrtl(1 + w * w)) >= 0) return t;
  long double half = acosl(-1);
  return CMPLXL(creall(t) - copysignl(half, creall(t)), cimagl(t));
}

// Sums are exact by parts; the rest goes through long double. Maximum and
// minimum compare lexicographically, and a NaN operand wins.
static at_status eval_complex_binary(const at_node *n, double complex a,
                                     double complex b, double complex *out) {
  long double complex x = CMPLXL(creal(a), cimag(a));
  long double complex y = CMPLXL(creal(b), cimag(b)), r;
  switch (n->op) {
    case AT_OP_ADD:
      *out = CMPLX(creal(a) + creal(b), cimag(a) + cimag(b));
      return AT_OK;
    case AT_OP_SUBTRACT:
      *out = CMPLX(creal(a) - creal(b), cimag(a) - cimag(b));
      return AT_OK;
    case AT_OP_MULTIPLY:  // by the formula: inf times complex may give NaN
      r = CMPLXL(creall(x) * creall(y) - cimagl(x) * cimagl(y),
                 creall(x) * cimagl(y) + cimagl(x) * creall(y));
      break;
    case AT_OP_DIVIDE:
      r = x / y;
      break;
    case AT_OP_POWER:
      r = complex_power(x, y);
      break;
    case AT_OP_ATAN2:
      r = complex_atan2(x, y);
      break;
    case AT_OP_MAXIMUM:
      *out = complex_nan(a) ? a : complex_nan(b) || complex_less(a, b) ? b : a;
      return AT_OK;
    case AT_OP_MINIMUM:
      *out = complex_nan(a) ? a : complex_nan(b) || complex_less(b, a) ? b : a;
      return AT_OK;
    default:
      return lacks(n);
  }
  *out = CMPLX((double)creall(r), (double)cimagl(r));
  return AT_OK;
}

// ---- Dispatch

// Applies a comparison direction to the sign of a - b. Unordered operands (NaN)
// satisfy NE only.
static bool ordered(int64_t direction, int order, bool unordered) {
  switch (direction) {
    case AT_EQ:
      return !unordered && order == 0;
    case AT_NE:
      return unordered || order != 0;
    case AT_GE:
      return !unordered && order >= 0;
    case AT_GT:
      return !unordered && order > 0;
    case AT_LE:
      return !unordered && order <= 0;
    default:
      return !unordered && order < 0;
  }
}

// Complex numbers compare lexicographically, floats by value or in IEEE's total
// order, integers by their type's sign.
static bool compare(const at_node *n, at_dtype t, const void *pa,
                    const void *pb) {
  int64_t direction = at_node_int(n, AT_ATTR_COMPARISON_DIRECTION, AT_EQ);
  int64_t type = at_node_int(n, AT_ATTR_COMPARE_TYPE, AT_CMP_NOTYPE);
  if (at_is_complex(t)) {
    double complex a = at_load_complex(t, pa), b = at_load_complex(t, pb);
    int order = complex_less(a, b) ? -1 : complex_less(b, a) ? 1 : 0;
    return ordered(direction, order, complex_nan(a) || complex_nan(b));
  }
  if (at_is_float(t)) {
    if (type == AT_CMP_TOTALORDER) {
      int64_t a = at_eval_order(t, pa), b = at_eval_order(t, pb);
      return ordered(direction, (a > b) - (a < b), false);
    }
    double a = at_load_float(t, pa), b = at_load_float(t, pb);
    return ordered(direction, (a > b) - (a < b), isnan(a) || isnan(b));
  }
  int64_t a = at_load_int(t, pa), b = at_load_int(t, pb);
  if (at_is_unsigned_int(t)) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    return ordered(direction, (x > y) - (x < y), false);
  }
  return ordered(direction, (a > b) - (a < b), false);
}

// Loads both operands by their class, computes, and stores with the rounding or
// wrapping of the type.
static at_status eval_binary(const at_node *n, at_dtype t,
                             const void *const *in, void *out) {
  if (t == AT_PRED || at_is_int(t)) {
    int64_t r = 0;
    AT_TRY(eval_int_binary(n, t, at_load_int(t, in[0]), at_load_int(t, in[1]),
                           &r));
    at_store_int(t, out, r);
  } else if (at_is_float(t)) {
    double r = 0;
    if (n->op == AT_OP_NEXT_AFTER) {
      next_after(t, in[0], in[1], out);
      return AT_OK;
    }
    AT_TRY(eval_float_binary(n, at_load_float(t, in[0]),
                             at_load_float(t, in[1]), t == AT_F64, &r));
    at_store_float(t, out, r);
  } else if (at_is_complex(t)) {
    double complex r = 0;
    AT_TRY(eval_complex_binary(n, at_load_complex(t, in[0]),
                               at_load_complex(t, in[1]), &r));
    at_store_complex(t, out, r);
  } else {
    return lacks(n);
  }
  return AT_OK;
}

// Complex operands of real, imag and abs give a result of the real type.
static at_status eval_unary(const at_node *n, at_dtype t, const void *in,
                            void *out) {
  if (t == AT_PRED || at_is_int(t)) {
    int64_t r = 0;
    AT_TRY(eval_int_unary(n, t, at_load_int(t, in), &r));
    at_store_int(t, out, r);
  } else if (at_is_float(t)) {
    double r = 0;
    if (n->op == AT_OP_REDUCE_PRECISION) {
      reduce_precision(n, t, in, out);
      return AT_OK;
    }
    AT_TRY(at_eval_real(n, at_load_float(t, in), t == AT_F64, &r));
    at_store_float(t, out, r);
  } else if (at_is_complex(t)) {
    double complex z = at_load_complex(t, in), r = 0;
    at_dtype real = at_real_of(t);
    switch (n->op) {
      case AT_OP_REAL:
        at_store_float(real, out, creal(z));
        return AT_OK;
      case AT_OP_IMAG:
        at_store_float(real, out, cimag(z));
        return AT_OK;
      case AT_OP_ABS:
        at_store_float(
            real, out,
            (double)hypotl((long double)creal(z), (long double)cimag(z)));
        return AT_OK;
      default:
        break;
    }
    AT_TRY(at_eval_complex(n, z, &r));
    at_store_complex(t, out, r);
  } else {
    return lacks(n);
  }
  return AT_OK;
}

// min(max(x, lo), hi), built from the ops themselves.
static at_status eval_clamp(const at_node *n, at_dtype t, const void *const *in,
                            void *out) {
  uint8_t low[16];
  at_node step = *n;
  step.op = AT_OP_MAXIMUM;
  AT_TRY(eval_binary(&step, t, (const void *[]){in[1], in[0]}, low));
  step.op = AT_OP_MINIMUM;
  return eval_binary(&step, t, (const void *[]){low, in[2]}, out);
}

// Real elements read as complex ones with imaginary part 0.
static bool is_finite(at_dtype t, const void *p) {
  double complex z = at_load_complex(t, p);
  return isfinite(creal(z)) && isfinite(cimag(z));
}

// Ops whose operands differ in type come first; all others take operands of one
// type.
at_status at_eval_element(const at_node *n, const void *const *in, void *out) {
  at_dtype t = operand_dtype(n, 0);
  switch (n->op) {
    case AT_OP_CONVERT:
      at_eval_convert(t, in[0], n->types[0].dtype, out);
      return AT_OK;
    case AT_OP_COMPARE:
      *(uint8_t *)out = compare(n, t, in[0], in[1]);
      return AT_OK;
    case AT_OP_IS_FINITE:
      *(uint8_t *)out = is_finite(t, in[0]);
      return AT_OK;
    case AT_OP_SELECT:
      memcpy(out, at_load_int(AT_PRED, in[0]) ? in[1] : in[2],
             at_dtype_bytes(n->types[0].dtype));
      return AT_OK;
    case AT_OP_CLAMP:
      return eval_clamp(n, operand_dtype(n, 1), in, out);
    case AT_OP_COMPLEX:
      memcpy(out, in[0], at_dtype_bytes(t));
      memcpy((uint8_t *)out + at_dtype_bytes(t), in[1], at_dtype_bytes(t));
      return AT_OK;
    case AT_OP_REAL:
    case AT_OP_COPY:
      if (at_is_complex(t) && n->op == AT_OP_REAL) break;
      memcpy(out, in[0], at_dtype_bytes(t));
      return AT_OK;
    default:
      break;
  }
  return n->num_operands == 1 ? eval_unary(n, t, in[0], out)
                              : eval_binary(n, t, in, out);
}
