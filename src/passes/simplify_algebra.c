// Elementwise identities. Each but the quotient by a constant is exact: the
// same value for every input, the sign of zero, infinities and NaN (but not its
// payload) included.
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

// (x op c1) op c2 -> x op (c1 op c2), wrapping integers.
static at_status reassociate(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_dtype t = n->types[0].dtype;
  if (!is_int_like(t) || in->op != n->op || !at_splat_of(n->operands[1]) ||
      !at_splat_of(in->operands[1]) || at_splat_of(in->operands[0]))
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
    case AT_OP_XOR:
      c = a ^ b;
      break;
    default:
      return AT_OK;
  }
  if (t == AT_PRED && (n->op == AT_OP_ADD || n->op == AT_OP_MULTIPLY))
    return AT_OK;
  at_value k, v;
  AT_TRY(at_mk_splat_int(n, n->types[0], c, &k));
  AT_TRY(at_mk2(n, n->op, in->operands[0], k, &v));
  return to(r, n, v);
}

// x + -0 and x - +0 are x for every x; x + +0 is x where x is never -0; x - x
// is 0 for integers only (infinities).
static at_status add_sub(at_rw *r, at_node *n) {
  at_value a = n->operands[0], b = n->operands[1];
  bool ints = is_int_like(n->types[0].dtype);
  if (n->op == AT_OP_ADD) {
    for (int i = 0; i < 2; i++) {
      at_value x = n->operands[i], c = n->operands[1 - i];
      if (at_is_splat(c, -0.0) || (ints && at_is_splat(c, 0)))
        return to(r, n, x);
      if (at_is_splat(c, 0) && never_negative_zero(x, 0)) return to(r, n, x);
    }
    return reassociate(r, n);
  }
  if (at_is_splat(b, 0)) return to(r, n, a);  // x - +0 keeps -0
  if (ints && at_value_eq(a, b)) return zero(r, n);
  return AT_OK;
}

// x * 0 is 0 for integers only. x * -1 is exact; unsigned types have no -1.
static at_status multiply(at_rw *r, at_node *n) {
  bool ints = is_int_like(n->types[0].dtype);
  for (int i = 0; i < 2; i++) {
    at_value x = n->operands[i], c = n->operands[1 - i];
    if (at_is_splat(c, 1)) return to(r, n, x);
    if (ints && at_is_splat(c, 0)) return to(r, n, c);
    if (at_is_splat(c, -1) && !at_is_unsigned_int(n->types[0].dtype)) {
      at_value v;
      AT_TRY(at_mk1(n, AT_OP_NEGATE, x, &v));
      return to(r, n, v);
    }
  }
  return reassociate(r, n);
}

// A quotient by a constant is the product with its reciprocal. By a power of
// two that is exact; by others it is what XLA's simplifier makes of f32 and f64
// on every backend, the last bit included (schedules divide by constants, and
// users compare them with XLA's values). Narrower types keep the quotient:
// they are computed in f32 and rounded once, as XLA's CPU backend has bf16.
static at_status divide(at_rw *r, at_node *n) {
  at_value a = n->operands[0], b = n->operands[1], k, v;
  double c;
  if (at_is_splat(b, 1)) return to(r, n, a);
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

// x & x, x | x, x ^ x; 0 and all ones on either side.
static at_status bitwise(at_rw *r, at_node *n) {
  at_value a = n->operands[0], b = n->operands[1];
  bool is_and = n->op == AT_OP_AND, is_or = n->op == AT_OP_OR;
  if (at_value_eq(a, b)) return n->op == AT_OP_XOR ? zero(r, n) : to(r, n, a);
  for (int i = 0; i < 2; i++) {
    at_value x = n->operands[i], c = n->operands[1 - i];
    if (at_is_splat(c, 0)) return to(r, n, is_and ? c : x);
    if (is_ones(c)) {
      if (is_and) return to(r, n, x);
      if (is_or) return to(r, n, c);
      at_value v;
      AT_TRY(at_mk1(n, AT_OP_NOT, x, &v));
      return to(r, n, v);
    }
  }
  return reassociate(r, n);
}

// Amounts of at least the width give 0, but for arithmetic shifts.
static at_status shift(at_rw *r, at_node *n) {
  int64_t by;
  if (!at_splat_int(n->operands[1], &by)) return AT_OK;
  if (by == 0) return to(r, n, n->operands[0]);
  bool all = (uint64_t)by >= at_dtype_of(n->types[0].dtype)->bits;
  return all && n->op != AT_OP_SHIFT_RIGHT_ARITHMETIC ? zero(r, n) : AT_OK;
}

// max(x, -inf) and min(x, inf) are x, NaN included.
static at_status extremum(at_rw *r, at_node *n) {
  if (at_value_eq(n->operands[0], n->operands[1]))
    return to(r, n, n->operands[0]);
  if (!at_is_float(n->types[0].dtype)) return AT_OK;
  double none = n->op == AT_OP_MAXIMUM ? -INFINITY : INFINITY;
  for (int i = 0; i < 2; i++)  // NaN wins on both sides of the rule
    if (at_is_splat(n->operands[1 - i], none)) return to(r, n, n->operands[i]);
  return AT_OK;
}

// Of a known predicate, equal arms, a negated predicate, or the constants true
// and false.
static at_status select(at_rw *r, at_node *n) {
  at_value p = n->operands[0], a = n->operands[1], b = n->operands[2];
  int64_t c;
  if (at_splat_int(p, &c)) return to(r, n, c ? a : b);
  if (at_value_eq(a, b)) return to(r, n, a);
  if (p.node->op == AT_OP_NOT) {
    at_value v[3] = {p.node->operands[0], b, a}, out;
    AT_TRY(at_mk(n, AT_OP_SELECT, v, 3, NULL, 0, NULL, &out));
    return to(r, n, out);
  }
  if (n->types[0].dtype == AT_PRED &&
      at_type_eq(at_value_type(p), &n->types[0])) {
    if (at_is_splat(a, 1) && at_is_splat(b, 0)) return to(r, n, p);
    if (at_is_splat(a, 0) && at_is_splat(b, 1)) {
      at_value v;
      AT_TRY(at_mk1(n, AT_OP_NOT, p, &v));
      return to(r, n, v);
    }
  }
  return AT_OK;
}

// Integers and booleans only: x == x is false for NaN.
static at_status compare(at_rw *r, at_node *n) {
  at_value a = n->operands[0], b = n->operands[1], v;
  at_dtype t = at_value_type(a)->dtype;
  int64_t d = at_node_int(n, AT_ATTR_COMPARISON_DIRECTION, 0);
  if (!is_int_like(t)) return AT_OK;
  if (at_value_eq(a, b)) {
    AT_TRY(at_mk_splat_int(n, n->types[0],
                           d == AT_EQ || d == AT_GE || d == AT_LE, &v));
    return to(r, n, v);
  }
  if (at_is_splat(b, 0) && (at_is_unsigned_int(t) || t == AT_PRED) &&
      (d == AT_GE || d == AT_LT)) {
    AT_TRY(at_mk_splat_int(n, n->types[0], d == AT_GE, &v));
    return to(r, n, v);
  }
  if (t != AT_PRED) return AT_OK;
  int64_t c;
  if (!at_splat_int(b, &c) || (d != AT_EQ && d != AT_NE)) return AT_OK;
  if ((d == AT_EQ) == (c == 1)) return to(r, n, a);
  AT_TRY(at_mk1(n, AT_OP_NOT, a, &v));
  return to(r, n, v);
}

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

// convert(convert(x)) is one convert where the first loses nothing.
static at_status convert(at_rw *r, at_node *n) {
  at_value x = n->operands[0];
  at_dtype from = at_value_type(x)->dtype, out = n->types[0].dtype;
  if (from == out) return to(r, n, x);
  const at_node *in = x.node;
  if (in->op != AT_OP_CONVERT) return AT_OK;
  at_dtype first = at_value_type(in->operands[0])->dtype;
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

// Exponents 0, 1 and 2.
static at_status power(at_rw *r, at_node *n) {
  at_value x = n->operands[0], y = n->operands[1], v;
  at_dtype t = n->types[0].dtype;
  if (!at_is_float(t) && !at_is_int(t)) return AT_OK;
  if (at_is_splat(y, 1)) return to(r, n, x);
  if (at_is_splat(y, 0)) {
    AT_TRY(at_mk_splat_int(n, n->types[0], 1, &v));
    return to(r, n, v);
  }
  if (at_is_splat(y, 2)) {
    AT_TRY(at_mk2(n, AT_OP_MULTIPLY, x, x, &v));
    return to(r, n, v);
  }
  return AT_OK;
}

// Involutions, idempotent ops, parts of complex numbers, roundings that change
// nothing.
static at_status unary(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  const at_node *in = x.node;
  switch (n->op) {
    case AT_OP_NEGATE:
    case AT_OP_NOT:
      return in->op == n->op ? to(r, n, in->operands[0]) : AT_OK;
    case AT_OP_ABS:
      if (in->op == AT_OP_ABS || at_is_unsigned_int(n->types[0].dtype))
        return to(r, n, x);
      if (in->op == AT_OP_NEGATE && !at_is_complex(at_value_type(x)->dtype)) {
        AT_TRY(at_mk1(n, AT_OP_ABS, in->operands[0], &v));
        return to(r, n, v);
      }
      return AT_OK;
    case AT_OP_FLOOR:
    case AT_OP_CEIL:
    case AT_OP_ROUND_NEAREST_EVEN:
    case AT_OP_ROUND_NEAREST_AFZ:
      return in->op == n->op ? to(r, n, x) : AT_OK;
    case AT_OP_REAL:
    case AT_OP_IMAG:
      if (in->op == AT_OP_COMPLEX)
        return to(r, n, in->operands[n->op == AT_OP_IMAG]);
      return n->op == AT_OP_REAL ? to(r, n, x) : AT_OK;
    case AT_OP_REDUCE_PRECISION:
      if (n->types[0].dtype == AT_F32 &&
          at_node_int(n, AT_ATTR_EXPONENT_BITS, 0) == 8 &&
          at_node_int(n, AT_ATTR_MANTISSA_BITS, 0) == 23)
        return to(r, n, x);
      return AT_OK;
    default:
      return AT_OK;
  }
}

// complex(real(z), imag(z)) is z.
static at_status complex(at_rw *r, at_node *n) {
  const at_node *a = n->operands[0].node, *b = n->operands[1].node;
  if (a->op == AT_OP_REAL && b->op == AT_OP_IMAG &&
      at_value_eq(a->operands[0], b->operands[0]))
    return to(r, n, a->operands[0]);
  return AT_OK;
}

// Elementwise ops by kind; the operands are what stands for them now.
at_status at_simplify_algebra(at_rw *r, at_node *n) {
  switch (n->op) {
    case AT_OP_ADD:
    case AT_OP_SUBTRACT:
      return add_sub(r, n);
    case AT_OP_MULTIPLY:
      return multiply(r, n);
    case AT_OP_DIVIDE:
      return divide(r, n);
    case AT_OP_AND:
    case AT_OP_OR:
    case AT_OP_XOR:
      return bitwise(r, n);
    case AT_OP_MAXIMUM:
    case AT_OP_MINIMUM:
      return extremum(r, n);
    case AT_OP_SHIFT_LEFT:
    case AT_OP_SHIFT_RIGHT_ARITHMETIC:
    case AT_OP_SHIFT_RIGHT_LOGICAL:
      return shift(r, n);
    case AT_OP_REMAINDER:
      return is_int_like(n->types[0].dtype) && at_is_splat(n->operands[1], 1)
                 ? zero(r, n)
                 : AT_OK;
    case AT_OP_SELECT:
      return select(r, n);
    case AT_OP_COMPARE:
      return compare(r, n);
    case AT_OP_CONVERT:
      return convert(r, n);
    case AT_OP_POWER:
      return power(r, n);
    case AT_OP_COMPLEX:
      return complex(r, n);
    default:
      return n->num_operands == 1 ? unary(r, n) : AT_OK;
  }
}
