// Elementwise identities, a table of laws. Each but the quotient by a constant
// is exact: the same value for every input, the sign of zero, infinities and
// NaN (but not its payload) included.
#include <math.h>

#include "passes/passes_internal.h"

// v takes the place of n, unless its type differs (a scalar bound, a complex
// part).
static at_status to(at_rw *r, at_node *n, at_value v) {
  if (!at_type_eq(at_value_type(v), &n->types[0])) return AT_OK;
  return at_fwd_set(r, n, 0, v);
}

static bool is_int_like(at_dtype t) { return at_is_int(t) || t == AT_PRED; }

// All bits set, as at_load_int reads it.
static bool is_ones(at_value v) {
  at_dtype t = at_value_type(v)->dtype;
  int64_t x;
  if (!at_splat_int(v, &x)) return false;
  if (t == AT_PRED) return x == 1;
  uint32_t bits = at_dtype_of(t)->bits;
  uint64_t mask = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
  return ((uint64_t)x & mask) == mask;
}

// Never -0 (NaN allowed).
static bool never_negative_zero(at_value v, int depth) {
  const at_node *n = v.node;
  double c;
  if (at_splat_float(v, &c)) return !(c == 0 && signbit(c));
  if (depth > 4) return false;
  switch (n->op) {
    case AT_OP_ABS:
    case AT_OP_EXPONENTIAL:
    case AT_OP_LOGISTIC:
    case AT_OP_IOTA:
      return true;
    case AT_OP_CONVERT:
      return is_int_like(at_value_type(n->operands[0])->dtype);
    case AT_OP_MULTIPLY:
      return at_value_eq(n->operands[0], n->operands[1]);
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_RESHAPE:
    case AT_OP_TRANSPOSE:
    case AT_OP_SLICE:
      return never_negative_zero(n->operands[0], depth + 1);
    case AT_OP_REDUCE:
      return n->num_operands == 2 &&
             at_region_binary(n->regions[0]) == AT_OP_ADD &&
             never_negative_zero(n->operands[1], depth + 1);
    case AT_OP_ADD:  // -0 only from -0 + -0
      return never_negative_zero(n->operands[0], depth + 1) ||
             never_negative_zero(n->operands[1], depth + 1);
    default:
      return false;
  }
}

// Of every type, the splat 0.
static at_status zero(at_rw *r, at_node *n) {
  at_value v;
  AT_TRY(at_mk_splat_int(n, n->types[0], 0, &v));
  return to(r, n, v);
}

// ---- Sums and products

// -0 for floats; integers have one zero.
static at_status add_nothing(at_rw *r, at_node *n) {
  bool ints = is_int_like(n->types[0].dtype);
  for (int i = 0; i < 2; i++) {
    at_value c = n->operands[1 - i];
    if (at_is_splat(c, -0.0) || (ints && at_is_splat(c, 0)))
      return to(r, n, n->operands[i]);
  }
  return AT_OK;
}

static at_status add_zero(at_rw *r, at_node *n) {
  for (int i = 0; i < 2; i++)
    if (at_is_splat(n->operands[1 - i], 0) &&
        never_negative_zero(n->operands[i], 0))
      return to(r, n, n->operands[i]);
  return AT_OK;
}

// Wrapping integers, and what is bitwise.
static at_status reassociate(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_dtype t = n->types[0].dtype;
  if (!is_int_like(t) || in->op != n->op || !at_splat_of(n->operands[1]) ||
      !at_splat_of(in->operands[1]) || at_splat_of(in->operands[0]))
    return AT_OK;
  if (t == AT_PRED && (n->op == AT_OP_ADD || n->op == AT_OP_MULTIPLY))
    return AT_OK;
  int64_t a, b, c;
  if (!at_splat_int(n->operands[1], &a) || !at_splat_int(in->operands[1], &b))
    return AT_OK;
  switch (n->op) {
    case AT_OP_ADD:
      c = (int64_t)((uint64_t)a + (uint64_t)b);
      break;
    case AT_OP_MULTIPLY:
      c = (int64_t)((uint64_t)a * (uint64_t)b);
      break;
    case AT_OP_AND:
      c = a & b;
      break;
    case AT_OP_OR:
      c = a | b;
      break;
    default:
      AT_ASSERT(n->op == AT_OP_XOR);
      c = a ^ b;
  }
  at_value k, v;
  AT_TRY(at_mk_splat_int(n, n->types[0], c, &k));
  AT_TRY(at_mk2(n, n->op, in->operands[0], k, &v));
  return to(r, n, v);
}

// Keeps -0.
static at_status subtract_zero(at_rw *r, at_node *n) {
  return at_is_splat(n->operands[1], 0) ? to(r, n, n->operands[0]) : AT_OK;
}

// Not of floats: infinities have no difference.
static at_status subtract_same(at_rw *r, at_node *n) {
  bool same = at_value_eq(n->operands[0], n->operands[1]);
  return same && is_int_like(n->types[0].dtype) ? zero(r, n) : AT_OK;
}

static at_status multiply_one(at_rw *r, at_node *n) {
  for (int i = 0; i < 2; i++)
    if (at_is_splat(n->operands[1 - i], 1)) return to(r, n, n->operands[i]);
  return AT_OK;
}

// Not of floats: -0, infinities, NaN.
static at_status multiply_zero(at_rw *r, at_node *n) {
  if (!is_int_like(n->types[0].dtype)) return AT_OK;
  for (int i = 0; i < 2; i++)
    if (at_is_splat(n->operands[i], 0)) return to(r, n, n->operands[i]);
  return AT_OK;
}

// Unsigned types have no -1.
static at_status multiply_minus_one(at_rw *r, at_node *n) {
  at_value v;
  if (at_is_unsigned_int(n->types[0].dtype)) return AT_OK;
  for (int i = 0; i < 2; i++) {
    if (!at_is_splat(n->operands[1 - i], -1)) continue;
    AT_TRY(at_mk1(n, AT_OP_NEGATE, n->operands[i], &v));
    return to(r, n, v);
  }
  return AT_OK;
}

static at_status divide_one(at_rw *r, at_node *n) {
  return at_is_splat(n->operands[1], 1) ? to(r, n, n->operands[0]) : AT_OK;
}

// By a power of two that is exact; by others it is what XLA's simplifier makes
// of f32 and f64 on every backend, the last bit included (schedules divide by
// constants, and users compare them with XLA's values). Narrower types keep the
// quotient: they are computed in f32 and rounded once, as XLA's CPU backend has
// bf16.
static at_status divide_constant(at_rw *r, at_node *n) {
  at_value a = n->operands[0], b = n->operands[1], k, v;
  double c;
  at_dtype t = n->types[0].dtype;
  if ((t != AT_F32 && t != AT_F64 && t != AT_BF16) || !at_splat_float(b, &c))
    return AT_OK;
  int e;
  bool exact = fabs(frexp(c, &e)) == 0.5;
  if (!isfinite(c) || (!exact && (t == AT_BF16 || at_splat_of(a))))
    return AT_OK;
  int limit = t == AT_F64 ? 1000 : 120;  // normal, and so is the reciprocal
  if (e < -limit || e > limit) return AT_OK;
  AT_TRY(at_mk_splat_float(n, *at_value_type(b), 1 / c, &k));
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, a, k, &v));
  return to(r, n, v);
}

static at_status remainder_one(at_rw *r, at_node *n) {
  bool one = is_int_like(n->types[0].dtype) && at_is_splat(n->operands[1], 1);
  return one ? zero(r, n) : AT_OK;
}

// Is n a power of a real or integer with the exponent c everywhere?
static bool is_power(const at_node *n, double c) {
  at_dtype t = n->types[0].dtype;
  return (at_is_float(t) || at_is_int(t)) && at_is_splat(n->operands[1], c);
}

static at_status power_one(at_rw *r, at_node *n) {
  return is_power(n, 1) ? to(r, n, n->operands[0]) : AT_OK;
}

static at_status power_zero(at_rw *r, at_node *n) {
  at_value v;
  if (!is_power(n, 0)) return AT_OK;
  AT_TRY(at_mk_splat_int(n, n->types[0], 1, &v));
  return to(r, n, v);
}

static at_status power_two(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  if (!is_power(n, 2)) return AT_OK;
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, x, x, &v));
  return to(r, n, v);
}

// ---- Bits

static at_status bits_same(at_rw *r, at_node *n) {
  if (!at_value_eq(n->operands[0], n->operands[1])) return AT_OK;
  return n->op == AT_OP_XOR ? zero(r, n) : to(r, n, n->operands[0]);
}

static at_status bits_zero(at_rw *r, at_node *n) {
  for (int i = 0; i < 2; i++) {
    at_value x = n->operands[i], c = n->operands[1 - i];
    if (at_is_splat(c, 0)) return to(r, n, n->op == AT_OP_AND ? c : x);
  }
  return AT_OK;
}

static at_status bits_ones(at_rw *r, at_node *n) {
  for (int i = 0; i < 2; i++) {
    at_value x = n->operands[i], c = n->operands[1 - i], v;
    if (!is_ones(c)) continue;
    if (n->op != AT_OP_XOR) return to(r, n, n->op == AT_OP_AND ? x : c);
    AT_TRY(at_mk1(n, AT_OP_NOT, x, &v));
    return to(r, n, v);
  }
  return AT_OK;
}

static at_status shift_none(at_rw *r, at_node *n) {
  int64_t by;
  bool none = at_splat_int(n->operands[1], &by) && by == 0;
  return none ? to(r, n, n->operands[0]) : AT_OK;
}

// Amounts of at least the width; an arithmetic shift would leave the sign.
static at_status shift_all(at_rw *r, at_node *n) {
  int64_t by;
  bool all = at_splat_int(n->operands[1], &by) &&
             (uint64_t)by >= at_dtype_of(n->types[0].dtype)->bits;
  return all ? zero(r, n) : AT_OK;
}

// ---- Choices

static at_status extremum_same(at_rw *r, at_node *n) {
  bool same = at_value_eq(n->operands[0], n->operands[1]);
  return same ? to(r, n, n->operands[0]) : AT_OK;
}

// NaN wins on both sides of the rule.
static at_status extremum_infinity(at_rw *r, at_node *n) {
  if (!at_is_float(n->types[0].dtype)) return AT_OK;
  double none = n->op == AT_OP_MAXIMUM ? -INFINITY : INFINITY;
  for (int i = 0; i < 2; i++)
    if (at_is_splat(n->operands[1 - i], none)) return to(r, n, n->operands[i]);
  return AT_OK;
}

static at_status select_known(at_rw *r, at_node *n) {
  int64_t c;
  if (!at_splat_int(n->operands[0], &c)) return AT_OK;
  return to(r, n, n->operands[c ? 1 : 2]);
}

static at_status select_same(at_rw *r, at_node *n) {
  bool same = at_value_eq(n->operands[1], n->operands[2]);
  return same ? to(r, n, n->operands[1]) : AT_OK;
}

static at_status select_not(at_rw *r, at_node *n) {
  const at_node *p = n->operands[0].node;
  if (p->op != AT_OP_NOT) return AT_OK;
  at_value v[3] = {p->operands[0], n->operands[2], n->operands[1]}, out;
  AT_TRY(at_mk(n, AT_OP_SELECT, v, 3, NULL, 0, NULL, &out));
  return to(r, n, out);
}

// Are n's arms the constants yes and !yes, and its predicate as large?
static bool selects(const at_node *n, bool yes) {
  return n->types[0].dtype == AT_PRED &&
         at_type_eq(at_value_type(n->operands[0]), &n->types[0]) &&
         at_is_splat(n->operands[1], yes) && at_is_splat(n->operands[2], !yes);
}

static at_status select_true(at_rw *r, at_node *n) {
  return selects(n, true) ? to(r, n, n->operands[0]) : AT_OK;
}

static at_status select_false(at_rw *r, at_node *n) {
  at_value v;
  if (!selects(n, false)) return AT_OK;
  AT_TRY(at_mk1(n, AT_OP_NOT, n->operands[0], &v));
  return to(r, n, v);
}

static int64_t direction_of(const at_node *n) {
  return at_node_int(n, AT_ATTR_COMPARISON_DIRECTION, 0);
}

// Not of floats: x == x is false for NaN.
static at_status compare_same(at_rw *r, at_node *n) {
  at_value v;
  int64_t d = direction_of(n);
  if (!is_int_like(at_value_type(n->operands[0])->dtype) ||
      !at_value_eq(n->operands[0], n->operands[1]))
    return AT_OK;
  AT_TRY(at_mk_splat_int(n, n->types[0], d == AT_EQ || d == AT_GE || d == AT_LE,
                         &v));
  return to(r, n, v);
}

static at_status compare_unsigned(at_rw *r, at_node *n) {
  at_dtype t = at_value_type(n->operands[0])->dtype;
  int64_t d = direction_of(n);
  at_value v;
  if (!at_is_splat(n->operands[1], 0) || (d != AT_GE && d != AT_LT) ||
      (!at_is_unsigned_int(t) && t != AT_PRED))
    return AT_OK;
  AT_TRY(at_mk_splat_int(n, n->types[0], d == AT_GE, &v));
  return to(r, n, v);
}

static at_status compare_boolean(at_rw *r, at_node *n) {
  at_value a = n->operands[0], v;
  int64_t c, d = direction_of(n);
  if (at_value_type(a)->dtype != AT_PRED || (d != AT_EQ && d != AT_NE) ||
      !at_splat_int(n->operands[1], &c))
    return AT_OK;
  if ((d == AT_EQ) == (c == 1)) return to(r, n, a);
  AT_TRY(at_mk1(n, AT_OP_NOT, a, &v));
  return to(r, n, v);
}

// ---- Conversions

// Digits with the hidden bit; 0: a type whose range is too small to reason
// about.
static int mantissa_bits(at_dtype t) {
  return t == AT_F64    ? 53
         : t == AT_F32  ? 24
         : t == AT_F16  ? 11
         : t == AT_BF16 ? 8
                        : 0;
}

// Every value of `from` is a value of `mid`.
static bool lossless(at_dtype from, at_dtype mid) {
  uint32_t fb = at_dtype_of(from)->bits, mb = at_dtype_of(mid)->bits;
  if (from == mid) return true;
  if (mid == AT_F8E8M0FNU) return false;  // has no zero
  if (from == AT_PRED) return mid != AT_PRED && !at_is_complex(mid) && mb >= 8;
  if (at_is_int(from) && at_is_int(mid))
    return at_is_signed_int(from) == at_is_signed_int(mid)
               ? mb >= fb
               : at_is_unsigned_int(from) && mb > fb;
  if (at_is_int(from) && at_is_float(mid)) {
    int digits = (int)fb - (at_is_signed_int(from) ? 1 : 0);
    return digits <= mantissa_bits(mid) && fb <= 32;
  }
  if (at_is_float(from) && mid == AT_F64) return true;
  if (at_is_float(from) && mid == AT_F32) return from != AT_F64;
  return false;
}

static at_status convert_same(at_rw *r, at_node *n) {
  return to(r, n, n->operands[0]);
}

// Where the first loses nothing.
static at_status convert_twice(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  if (in->op != AT_OP_CONVERT) return AT_OK;
  at_dtype first = at_value_type(in->operands[0])->dtype;
  at_dtype from = in->types[0].dtype, out = n->types[0].dtype;
  if (!lossless(first, from)) return AT_OK;
  // The value alone decides the result, except that floats saturate into
  // integers where integers wrap.
  if (at_is_float(from) && at_is_int(out) && !lossless(first, out) &&
      !at_is_float(first))
    return AT_OK;
  at_value v;
  AT_TRY(at_mk_convert(n, in->operands[0], out, &v));
  return to(r, n, v);
}

static at_status reduce_precision_f32(at_rw *r, at_node *n) {
  bool all = n->types[0].dtype == AT_F32 &&
             at_node_int(n, AT_ATTR_EXPONENT_BITS, 0) == 8 &&
             at_node_int(n, AT_ATTR_MANTISSA_BITS, 0) == 23;
  return all ? to(r, n, n->operands[0]) : AT_OK;
}

// ---- One operand

// Of NEGATE and NOT.
static at_status twice_is_none(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  return in->op == n->op ? to(r, n, in->operands[0]) : AT_OK;
}

// Of ABS and of rounding to integers.
static at_status twice_is_once(at_rw *r, at_node *n) {
  return n->operands[0].node->op == n->op ? to(r, n, n->operands[0]) : AT_OK;
}

static at_status abs_unsigned(at_rw *r, at_node *n) {
  bool none = at_is_unsigned_int(n->types[0].dtype);
  return none ? to(r, n, n->operands[0]) : AT_OK;
}

static at_status abs_negate(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_value v;
  if (in->op != AT_OP_NEGATE || at_is_complex(in->types[0].dtype)) return AT_OK;
  AT_TRY(at_mk1(n, AT_OP_ABS, in->operands[0], &v));
  return to(r, n, v);
}

static at_status part_of_complex(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  if (in->op != AT_OP_COMPLEX) return AT_OK;
  return to(r, n, in->operands[n->op == AT_OP_IMAG]);
}

// A complex x is of another type.
static at_status real_of_real(at_rw *r, at_node *n) {
  return to(r, n, n->operands[0]);
}

static at_status complex_of_parts(at_rw *r, at_node *n) {
  const at_node *a = n->operands[0].node, *b = n->operands[1].node;
  if (a->op == AT_OP_REAL && b->op == AT_OP_IMAG &&
      at_value_eq(a->operands[0], b->operands[0]))
    return to(r, n, a->operands[0]);
  return AT_OK;
}

// c and d are constants, ~0 has all bits set. Of which types a law holds is for
// its function to say.
static const at_law rules[] = {
    {"x + -0 = x", AT_OP_ADD, add_nothing},
    {"x + 0 = x, x never -0", AT_OP_ADD, add_zero},
    {"(x + c) + d = x + (c + d)", AT_OP_ADD, reassociate},
    {"x - 0 = x", AT_OP_SUBTRACT, subtract_zero},
    {"x - x = 0", AT_OP_SUBTRACT, subtract_same},
    {"x * 1 = x", AT_OP_MULTIPLY, multiply_one},
    {"x * 0 = 0", AT_OP_MULTIPLY, multiply_zero},
    {"x * -1 = -x", AT_OP_MULTIPLY, multiply_minus_one},
    {"(x * c) * d = x * (c * d)", AT_OP_MULTIPLY, reassociate},
    {"x / 1 = x", AT_OP_DIVIDE, divide_one},
    {"x / c = x * (1 / c)", AT_OP_DIVIDE, divide_constant},
    {"x % 1 = 0", AT_OP_REMAINDER, remainder_one},
    {"x ^ 1 = x", AT_OP_POWER, power_one},
    {"x ^ 0 = 1", AT_OP_POWER, power_zero},
    {"x ^ 2 = x * x", AT_OP_POWER, power_two},
    {"x and x = x", AT_OP_AND, bits_same},
    {"x and 0 = 0", AT_OP_AND, bits_zero},
    {"x and ~0 = x", AT_OP_AND, bits_ones},
    {"(x and c) and d = x and (c and d)", AT_OP_AND, reassociate},
    {"x or x = x", AT_OP_OR, bits_same},
    {"x or 0 = x", AT_OP_OR, bits_zero},
    {"x or ~0 = ~0", AT_OP_OR, bits_ones},
    {"(x or c) or d = x or (c or d)", AT_OP_OR, reassociate},
    {"x xor x = 0", AT_OP_XOR, bits_same},
    {"x xor 0 = x", AT_OP_XOR, bits_zero},
    {"x xor ~0 = ~x", AT_OP_XOR, bits_ones},
    {"(x xor c) xor d = x xor (c xor d)", AT_OP_XOR, reassociate},
    {"x << 0 = x", AT_OP_SHIFT_LEFT, shift_none},
    {"x << width = 0", AT_OP_SHIFT_LEFT, shift_all},
    {"x >> 0 = x, arithmetic", AT_OP_SHIFT_RIGHT_ARITHMETIC, shift_none},
    {"x >> 0 = x, logical", AT_OP_SHIFT_RIGHT_LOGICAL, shift_none},
    {"x >> width = 0, logical", AT_OP_SHIFT_RIGHT_LOGICAL, shift_all},
    {"max(x, x) = x", AT_OP_MAXIMUM, extremum_same},
    {"max(x, -inf) = x", AT_OP_MAXIMUM, extremum_infinity},
    {"min(x, x) = x", AT_OP_MINIMUM, extremum_same},
    {"min(x, inf) = x", AT_OP_MINIMUM, extremum_infinity},
    {"c ? x : y = x or y", AT_OP_SELECT, select_known},
    {"p ? x : x = x", AT_OP_SELECT, select_same},
    {"~p ? x : y = p ? y : x", AT_OP_SELECT, select_not},
    {"p ? true : false = p", AT_OP_SELECT, select_true},
    {"p ? false : true = ~p", AT_OP_SELECT, select_false},
    {"x < x is known", AT_OP_COMPARE, compare_same},
    {"x >= 0, x unsigned", AT_OP_COMPARE, compare_unsigned},
    {"(p == c) = p or ~p", AT_OP_COMPARE, compare_boolean},
    {"convert to the same type = x", AT_OP_CONVERT, convert_same},
    {"convert twice = once", AT_OP_CONVERT, convert_twice},
    {"reduce_precision to f32 = x", AT_OP_REDUCE_PRECISION,
     reduce_precision_f32},
    {"--x = x", AT_OP_NEGATE, twice_is_none},
    {"~~x = x", AT_OP_NOT, twice_is_none},
    {"||x|| = |x|", AT_OP_ABS, twice_is_once},
    {"|x| = x, x unsigned", AT_OP_ABS, abs_unsigned},
    {"|-x| = |x|", AT_OP_ABS, abs_negate},
    {"floor floor x = floor x", AT_OP_FLOOR, twice_is_once},
    {"ceil ceil x = ceil x", AT_OP_CEIL, twice_is_once},
    {"round round x = round x, to even", AT_OP_ROUND_NEAREST_EVEN,
     twice_is_once},
    {"round round x = round x, away from 0", AT_OP_ROUND_NEAREST_AFZ,
     twice_is_once},
    {"real(x + iy) = x", AT_OP_REAL, part_of_complex},
    {"real(x) = x, x real", AT_OP_REAL, real_of_real},
    {"imag(x + iy) = y", AT_OP_IMAG, part_of_complex},
    {"real(z) + i imag(z) = z", AT_OP_COMPLEX, complex_of_parts},
};

const at_laws at_laws_algebra = {rules, AT_LEN(rules)};
