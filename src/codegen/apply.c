// Elementwise ops on registers: integers and real floats.
#include "codegen/emit.h"

#include <llvm-c/Core.h>

// An overloaded LLVM intrinsic of one or two operands; b NULL: one.
static LLVMValueRef intrinsic(at_em *e, const char *name, LLVMValueRef a,
                              LLVMValueRef b) {
  LLVMValueRef args[2] = {a, b};
  return at_math_intrinsic(&e->math, name, args, b ? 2 : 1);
}
// An integer constant in the type of `like`, in all lanes.
static LLVMValueRef ci(at_em *e, LLVMValueRef like, int64_t v) {
  return at_em_ci(e, LLVMTypeOf(like), v);
}
// A float constant in the type of `like`, in all lanes.
static LLVMValueRef cf(at_em *e, LLVMValueRef like, double v) {
  return at_em_cf(e, LLVMTypeOf(like), v);
}
// Compares with a constant.
static LLVMValueRef icmp(at_em *e, LLVMIntPredicate p, LLVMValueRef a,
                         int64_t c) {
  return LLVMBuildICmp(e->b, p, a, ci(e, a, c), "");
}
// Lane by lane where c is a vector.
static LLVMValueRef sel(at_em *e, LLVMValueRef c, LLVMValueRef a,
                        LLVMValueRef b) {
  return LLVMBuildSelect(e->b, c, a, b, "");
}

// ---- comparison
// Bits as a signed integer that is ordered as IEEE's totalOrder: negative
// numbers have all bits but the sign flipped, so -NaN < -inf < -0 < 0 < inf <
// NaN.
static LLVMValueRef total_order(at_em *e, LLVMValueRef v) {
  LLVMValueRef u = at_em_bits(e, v);
  uint32_t bits = at_em_bits_of(LLVMTypeOf(u));
  LLVMValueRef fill = LLVMBuildAShr(e->b, u, ci(e, u, bits - 1), "");
  fill = LLVMBuildLShr(e->b, fill, ci(e, u, 1), "");
  return LLVMBuildXor(e->b, u, fill, "");
}

// Floats: comparisons with NaN are false, but for NE. pred and unsigned types
// compare as unsigned.
static LLVMValueRef compare_real(at_em *e, at_dtype t, at_direction d,
                                 at_compare_type c, LLVMValueRef a,
                                 LLVMValueRef b) {
  static const LLVMRealPredicate real[] = {
      [AT_EQ] = LLVMRealOEQ, [AT_NE] = LLVMRealUNE, [AT_GE] = LLVMRealOGE,
      [AT_GT] = LLVMRealOGT, [AT_LE] = LLVMRealOLE, [AT_LT] = LLVMRealOLT};
  static const LLVMIntPredicate sign[] = {
      [AT_EQ] = LLVMIntEQ,  [AT_NE] = LLVMIntNE,  [AT_GE] = LLVMIntSGE,
      [AT_GT] = LLVMIntSGT, [AT_LE] = LLVMIntSLE, [AT_LT] = LLVMIntSLT};
  static const LLVMIntPredicate uns[] = {
      [AT_EQ] = LLVMIntEQ,  [AT_NE] = LLVMIntNE,  [AT_GE] = LLVMIntUGE,
      [AT_GT] = LLVMIntUGT, [AT_LE] = LLVMIntULE, [AT_LT] = LLVMIntULT};
  if (at_is_float(t)) {
    if (c != AT_CMP_TOTALORDER) return LLVMBuildFCmp(e->b, real[d], a, b, "");
    return LLVMBuildICmp(e->b, sign[d], total_order(e, a), total_order(e, b),
                         "");
  }
  return LLVMBuildICmp(e->b, at_is_signed_int(t) ? sign[d] : uns[d], a, b, "");
}

// Complex numbers: EQ and NE by parts; the others, which only min and max ask
// for, by the real part, then the imaginary one.
LLVMValueRef at_em_compare(at_em *e, at_dtype t, at_direction d,
                           at_compare_type c, at_val a, at_val b) {
  if (!at_is_complex(t)) return compare_real(e, t, d, c, a.re, b.re);
  at_dtype r = at_real_of(t);
  LLVMValueRef x = compare_real(e, r, d, c, a.re, b.re);
  LLVMValueRef y = compare_real(e, r, d, c, a.im, b.im);
  if (d == AT_EQ) return LLVMBuildAnd(e->b, x, y, "");
  if (d == AT_NE) return LLVMBuildOr(e->b, x, y, "");
  // Lexicographic, for min and max.
  LLVMValueRef tie = compare_real(e, r, AT_EQ, c, a.re, b.re);
  at_direction strict = d == AT_GE ? AT_GT : d == AT_LE ? AT_LT : d;
  LLVMValueRef first = compare_real(e, r, strict, c, a.re, b.re);
  return LLVMBuildOr(e->b, first, LLVMBuildAnd(e->b, tie, y, ""), "");
}

// NaN wins from either side: from b, since b is kept where the comparison is
// false.
static LLVMValueRef extremum(at_em *e, at_dtype t, bool max, LLVMValueRef a,
                             LLVMValueRef b) {
  if (t == AT_PRED)
    return max ? LLVMBuildOr(e->b, a, b, "") : LLVMBuildAnd(e->b, a, b, "");
  if (!at_is_float(t))
    return intrinsic(e,
                     at_is_signed_int(t) ? (max ? "llvm.smax" : "llvm.smin")
                                         : (max ? "llvm.umax" : "llvm.umin"),
                     a, b);
  LLVMValueRef wins =
      LLVMBuildFCmp(e->b, max ? LLVMRealOGT : LLVMRealOLT, a, b, "");
  LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, "");
  return sel(e, nan, a, sel(e, wins, a, b));
}

// ---- integers
// Never traps: x / 0 is -1 (all bits set), x % 0 is x, and MIN / -1 wraps to
// MIN with a remainder of 0, as the evaluator has them. The divisor is made
// harmless first.
static LLVMValueRef int_divide(at_em *e, at_dtype t, bool remainder,
                               LLVMValueRef a, LLVMValueRef b) {
  bool sign = at_is_signed_int(t);
  LLVMValueRef zero = icmp(e, LLVMIntEQ, b, 0), safe = zero;
  if (sign) {
    uint32_t bits = at_em_bits_of(LLVMTypeOf(a));
    LLVMValueRef min = icmp(e, LLVMIntEQ, a, (int64_t)(1ull << (bits - 1)));
    LLVMValueRef edge = LLVMBuildAnd(e->b, min, icmp(e, LLVMIntEQ, b, -1), "");
    safe = LLVMBuildOr(e->b, zero, edge, "");
  }
  LLVMValueRef d = sel(e, safe, ci(e, b, 1), b);
  if (remainder) {
    LLVMValueRef r =
        sign ? LLVMBuildSRem(e->b, a, d, "") : LLVMBuildURem(e->b, a, d, "");
    return sel(e, zero, a, r);
  }
  LLVMValueRef q =
      sign ? LLVMBuildSDiv(e->b, a, d, "") : LLVMBuildUDiv(e->b, a, d, "");
  return sel(e, zero, ci(e, a, -1), q);
}

// By squaring, one turn for each bit of the type, so that all lanes take as
// many. Negative exponents give what 1 / a^n rounds to: 1 for 1, 1 or -1 for
// -1, else 0.
static LLVMValueRef int_power(at_em *e, at_dtype t, LLVMValueRef a,
                              LLVMValueRef b) {
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef one = ci(e, a, 1), zero = ci(e, a, 0);
  LLVMBasicBlockRef pre = LLVMGetInsertBlock(e->b);
  LLVMBasicBlockRef body = at_em_block(e, "power"),
                    done = at_em_block(e, "powered");
  LLVMBuildBr(e->b, body);
  LLVMPositionBuilderAtEnd(e->b, body);
  LLVMValueRef r = LLVMBuildPhi(e->b, type, ""),
               x = LLVMBuildPhi(e->b, type, "");
  LLVMValueRef n = LLVMBuildPhi(e->b, type, "");
  LLVMTypeRef i32 = at_em_int(e, 32);
  LLVMValueRef k = LLVMBuildPhi(e->b, i32, "");
  LLVMValueRef odd =
      LLVMBuildTrunc(e->b, n, at_em_widen(e, at_em_int(e, 1)), "");
  LLVMValueRef r2 = sel(e, odd, LLVMBuildMul(e->b, r, x, ""), r);
  LLVMValueRef x2 = LLVMBuildMul(e->b, x, x, "");
  LLVMValueRef n2 = LLVMBuildLShr(e->b, n, one, "");
  LLVMValueRef k2 = LLVMBuildAdd(e->b, k, LLVMConstInt(i32, 1, false), "");
  LLVMAddIncoming(r, (LLVMValueRef[]){one, r2},
                  (LLVMBasicBlockRef[]){pre, body}, 2);
  LLVMAddIncoming(x, (LLVMValueRef[]){a, x2}, (LLVMBasicBlockRef[]){pre, body},
                  2);
  LLVMAddIncoming(n, (LLVMValueRef[]){b, n2}, (LLVMBasicBlockRef[]){pre, body},
                  2);
  LLVMAddIncoming(k, (LLVMValueRef[]){LLVMConstInt(i32, 0, false), k2},
                  (LLVMBasicBlockRef[]){pre, body}, 2);
  LLVMValueRef more = LLVMBuildICmp(
      e->b, LLVMIntULT, k2, LLVMConstInt(i32, at_em_bits_of(type), false), "");
  LLVMBuildCondBr(e->b, more, body, done);
  LLVMPositionBuilderAtEnd(e->b, done);
  if (!at_is_signed_int(t)) return r2;
  LLVMValueRef even = LLVMBuildNot(
      e->b, LLVMBuildTrunc(e->b, b, at_em_widen(e, at_em_int(e, 1)), ""), "");
  LLVMValueRef flip = sel(e, even, one, ci(e, a, -1));
  LLVMValueRef neg = sel(e, icmp(e, LLVMIntEQ, a, 1), one,
                         sel(e, icmp(e, LLVMIntEQ, a, -1), flip, zero));
  return sel(e, icmp(e, LLVMIntSLT, b, 0), neg, r2);
}

// The value's logical bits, zero-extended (types under 8 bits are kept
// extended).
static LLVMValueRef low_bits(at_em *e, at_dtype t, LLVMValueRef v) {
  uint32_t bits = at_dtype_of(t)->bits;
  if (bits >= 8 || t == AT_PRED || at_is_unsigned_int(t)) return v;
  return LLVMBuildAnd(e->b, v, ci(e, v, (1 << bits) - 1), "");
}

// By the type's width and more: 0, or the sign for an arithmetic shift. LLVM's
// shifts are poison there, so the distance is replaced first.
static LLVMValueRef shift(at_em *e, at_op op, at_dtype t, LLVMValueRef a,
                          LLVMValueRef b) {
  uint32_t bits = at_dtype_of(t)->bits;
  LLVMValueRef far = icmp(e, LLVMIntUGE, b, bits);
  if (op == AT_OP_SHIFT_RIGHT_ARITHMETIC) {
    // An unsigned type's top bit fills too.
    LLVMValueRef s = a;
    uint32_t pad = at_em_bits_of(LLVMTypeOf(a)) - bits;
    if (pad && at_is_unsigned_int(t)) {
      s = LLVMBuildShl(e->b, s, ci(e, s, pad), "");
      s = LLVMBuildAShr(e->b, s, ci(e, s, pad), "");
    }
    return LLVMBuildAShr(e->b, s, sel(e, far, ci(e, b, bits - 1), b), "");
  }
  LLVMValueRef n = sel(e, far, ci(e, b, 0), b);
  LLVMValueRef r = op == AT_OP_SHIFT_LEFT
                       ? LLVMBuildShl(e->b, a, n, "")
                       : LLVMBuildLShr(e->b, low_bits(e, t, a), n, "");
  return sel(e, far, ci(e, a, 0), r);
}

// The upper half of the product of twice the width.
static LLVMValueRef mulhi(at_em *e, at_dtype t, LLVMValueRef a,
                          LLVMValueRef b) {
  uint32_t bits = at_dtype_of(t)->bits;
  LLVMTypeRef wide =
      at_em_widen(e, at_em_int(e, 2 * at_em_bits_of(LLVMTypeOf(a))));
  bool sign = at_is_signed_int(t);
  LLVMValueRef x = sign ? LLVMBuildSExt(e->b, a, wide, "")
                        : LLVMBuildZExt(e->b, a, wide, "");
  LLVMValueRef y = sign ? LLVMBuildSExt(e->b, b, wide, "")
                        : LLVMBuildZExt(e->b, b, wide, "");
  LLVMValueRef p = LLVMBuildMul(e->b, x, y, "");
  p = LLVMBuildLShr(e->b, p, at_em_ci(e, wide, bits), "");
  return LLVMBuildTrunc(e->b, p, LLVMTypeOf(a), "");
}

// Leading zeros are counted in the logical width: what the storage has more is
// taken off.
static LLVMValueRef bit_count(at_em *e, at_op op, at_dtype t, LLVMValueRef a) {
  LLVMValueRef v = low_bits(e, t, a);
  if (op == AT_OP_POPCNT) return intrinsic(e, "llvm.ctpop", v, NULL);
  LLVMValueRef args[2] = {v, LLVMConstInt(at_em_int(e, 1), 0, false)};
  LLVMTypeRef type = LLVMTypeOf(v);
  unsigned id = LLVMLookupIntrinsicID("llvm.ctlz", 9);
  LLVMValueRef r = LLVMBuildCall2(
      e->b, LLVMIntrinsicGetType(e->ctx, id, &type, 1),
      LLVMGetIntrinsicDeclaration(e->module, id, &type, 1), args, 2, "");
  uint32_t pad = at_em_bits_of(type) - at_dtype_of(t)->bits;
  return pad ? LLVMBuildSub(e->b, r, ci(e, r, pad), "") : r;
}

// NULL: the op has no form for integers. pred is one bit: sums are or, products
// and. Results may leave the range of types under 8 bits; the caller brings
// them back.
static LLVMValueRef apply_int(at_em *e, at_op op, at_dtype t, LLVMValueRef a,
                              LLVMValueRef b) {
  bool pred = t == AT_PRED, sign = at_is_signed_int(t);
  LLVMBuilderRef B = e->b;
  switch (op) {
    case AT_OP_ADD:
      return pred ? LLVMBuildOr(B, a, b, "") : LLVMBuildAdd(B, a, b, "");
    case AT_OP_SUBTRACT:
      // Of pred, one bit wraps as xor does.
      return LLVMBuildSub(B, a, b, "");
    case AT_OP_MULTIPLY:
      return pred ? LLVMBuildAnd(B, a, b, "") : LLVMBuildMul(B, a, b, "");
    case AT_OP_DIVIDE:
      return int_divide(e, t, false, a, b);
    case AT_OP_REMAINDER:
      return int_divide(e, t, true, a, b);
    case AT_OP_POWER:
      return int_power(e, t, a, b);
    case AT_OP_AND:
      return LLVMBuildAnd(B, a, b, "");
    case AT_OP_OR:
      return LLVMBuildOr(B, a, b, "");
    case AT_OP_XOR:
      return LLVMBuildXor(B, a, b, "");
    case AT_OP_NOT:
      return LLVMBuildNot(B, a, "");
    case AT_OP_NEGATE:
      return pred ? a : LLVMBuildNeg(B, a, "");
    case AT_OP_ABS:
      return sign ? sel(e, icmp(e, LLVMIntSLT, a, 0), LLVMBuildNeg(B, a, ""), a)
                  : a;
    case AT_OP_SIGN: {
      LLVMValueRef pos =
          sel(e, icmp(e, LLVMIntNE, a, 0), ci(e, a, 1), ci(e, a, 0));
      return sign ? sel(e, icmp(e, LLVMIntSLT, a, 0), ci(e, a, -1), pos) : pos;
    }
    case AT_OP_SHIFT_LEFT:
    case AT_OP_SHIFT_RIGHT_ARITHMETIC:
    case AT_OP_SHIFT_RIGHT_LOGICAL:
      return shift(e, op, t, a, b);
    case AT_OP_MULHI:
      return mulhi(e, t, a, b);
    case AT_OP_POPCNT:
    case AT_OP_COUNT_LEADING_ZEROS:
      return bit_count(e, op, t, a);
    case AT_OP_IS_FINITE:
      return LLVMConstAllOnes(at_em_widen(e, at_em_int(e, 1)));
    case AT_OP_IMAG:
      return LLVMConstNull(LLVMTypeOf(a));
    case AT_OP_REAL:
      return a;
    default:
      return NULL;
  }
}

// ---- floats
// The neighbour's code is one more or one less. Unsigned f8E8M0FNU has no zero
// and no negative numbers.
static LLVMValueRef next_after(at_em *e, at_dtype t, LLVMValueRef a,
                               LLVMValueRef b) {
  LLVMValueRef x = at_em_bits(e, at_em_encode(e, t, a));
  LLVMValueRef y = at_em_bits(e, at_em_encode(e, t, b));
  int64_t top = (int64_t)(1ull << (at_dtype_of(t)->bits - 1));
  LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, a, b, "");
  LLVMValueRef same = LLVMBuildFCmp(e->b, LLVMRealOEQ, a, b, "");
  LLVMValueRef zero = LLVMBuildFCmp(e->b, LLVMRealOEQ, a, cf(e, a, 0), "");
  LLVMValueRef up = LLVMBuildFCmp(e->b, LLVMRealOLT, a, b, "");
  LLVMValueRef negative = LLVMBuildFCmp(e->b, LLVMRealOLT, a, cf(e, a, 0), "");
  LLVMValueRef away = LLVMBuildXor(e->b, up, negative, "");
  LLVMValueRef r =
      LLVMBuildAdd(e->b, x, sel(e, away, ci(e, x, 1), ci(e, x, -1)), "");
  LLVMValueRef first = sel(e, up, ci(e, x, 1), ci(e, x, top | 1));
  r = sel(e, same, y, sel(e, zero, first, r));
  LLVMTypeRef st = at_em_widen(e, at_em_storage_type(e, t));
  r = at_em_decode(e, t, LLVMBuildBitCast(e->b, r, st, ""));
  // From the smallest negative number up, where -0 is not a number.
  LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealUNO, r, r, "");
  r = sel(e, LLVMBuildAnd(e->b, none, negative, ""), cf(e, r, 0), r);
  return sel(e, nan, LLVMBuildFAdd(e->b, a, b, ""), r);
}

// Mantissa: add half of the last kept bit, less one, plus that bit, then cut
// off, which rounds to nearest even and carries into the exponent. Then what is
// over the new range becomes an infinity, and what is under its normal numbers
// a zero. NaN stays as it is.
LLVMValueRef at_em_reduce_precision(at_em *e, at_dtype t, int64_t want_e,
                                    int64_t want_m, LLVMValueRef a) {
  LLVMValueRef u = at_em_bits(e, a), r = u;
  uint32_t bits = at_em_bits_of(LLVMTypeOf(u));
  int mant = bits == 64 ? 52 : 23, expo = bits == 64 ? 11 : 8;
  int own_expo = t == AT_F16 ? 5 : expo;
  int64_t exp_mask = ((1ll << expo) - 1) << mant;
  int64_t sign_mask = (int64_t)(1ull << (bits - 1));
  LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, "");
  if (want_m < mant) {
    int64_t drop = mant - want_m;
    LLVMValueRef odd = LLVMBuildLShr(e->b, r, ci(e, r, drop), "");
    odd = LLVMBuildAnd(e->b, odd, ci(e, r, 1), "");
    r = LLVMBuildAdd(e->b, r, ci(e, r, (1ll << (drop - 1)) - 1), "");
    r = LLVMBuildAdd(e->b, r, odd, "");
    r = LLVMBuildAnd(e->b, r, ci(e, r, ~((1ll << drop) - 1)), "");
  }
  if (want_e < own_expo) {
    int64_t bias = (1ll << (expo - 1)) - 1, small = (1ll << (want_e - 1)) - 1;
    LLVMValueRef ex = LLVMBuildAnd(e->b, r, ci(e, r, exp_mask), "");
    LLVMValueRef s = LLVMBuildAnd(e->b, u, ci(e, u, sign_mask), "");
    LLVMValueRef over = LLVMBuildICmp(e->b, LLVMIntUGT, ex,
                                      ci(e, r, (bias + small) << mant), "");
    LLVMValueRef under = LLVMBuildICmp(e->b, LLVMIntULE, ex,
                                       ci(e, r, (bias - small) << mant), "");
    r = sel(e, over, LLVMBuildOr(e->b, s, ci(e, s, exp_mask), ""), r);
    r = sel(e, under, s, r);
  }
  return sel(e, nan, a, LLVMBuildBitCast(e->b, r, LLVMTypeOf(a), ""));
}

// NULL: not such a function.
static LLVMValueRef apply_math(at_em *e, at_op op, LLVMValueRef a,
                               LLVMValueRef b) {
  at_math *m = &e->math;
  // The builder may have been replaced since (task.c).
  m->b = e->b;
  switch (op) {
    case AT_OP_CBRT:
      return at_math_cbrt(m, a);
    case AT_OP_COSINE:
      return at_math_cos(m, a);
    case AT_OP_EXPONENTIAL:
      return at_math_exp(m, a);
    case AT_OP_EXPONENTIAL_MINUS_ONE:
      return at_math_expm1(m, a);
    case AT_OP_LOG:
      return at_math_log(m, a);
    case AT_OP_LOG_PLUS_ONE:
      return at_math_log1p(m, a);
    case AT_OP_LOGISTIC:
      return at_math_logistic(m, a);
    case AT_OP_RSQRT:
      return at_math_rsqrt(m, a);
    case AT_OP_SINE:
      return at_math_sin(m, a);
    case AT_OP_SQRT:
      return at_math_sqrt(m, a);
    case AT_OP_TAN:
      return at_math_tan(m, a);
    case AT_OP_TANH:
      return at_math_tanh(m, a);
    case AT_OP_ACOS:
      return at_math_acos(m, a);
    case AT_OP_ACOSH:
      return at_math_acosh(m, a);
    case AT_OP_ASIN:
      return at_math_asin(m, a);
    case AT_OP_ASINH:
      return at_math_asinh(m, a);
    case AT_OP_ATAN:
      return at_math_atan(m, a);
    case AT_OP_ATANH:
      return at_math_atanh(m, a);
    case AT_OP_COSH:
      return at_math_cosh(m, a);
    case AT_OP_SINH:
      return at_math_sinh(m, a);
    case AT_OP_ERF:
      return at_math_erf(m, a);
    case AT_OP_ERFC:
      return at_math_erfc(m, a);
    case AT_OP_ERF_INV:
      return at_math_erf_inv(m, a);
    case AT_OP_LGAMMA:
      return at_math_lgamma(m, a);
    case AT_OP_DIGAMMA:
      return at_math_digamma(m, a);
    case AT_OP_ATAN2:
      return at_math_atan2(m, a, b);
    case AT_OP_POWER:
      return at_math_pow(m, a, b);
    case AT_OP_REMAINDER:
      return at_math_fmod(m, a, b);
    case AT_OP_POLYGAMMA:
      return at_math_polygamma(m, a, b);
    case AT_OP_ZETA:
      return at_math_zeta(m, a, b);
    default:
      return NULL;
  }
}

// NULL: the op has no form for floats. f32 or f64 registers; narrow types are
// rounded by the caller.
static LLVMValueRef apply_float(at_em *e, at_op op, at_dtype t, LLVMValueRef a,
                                LLVMValueRef b) {
  LLVMBuilderRef B = e->b;
  switch (op) {
    case AT_OP_ADD:
      return LLVMBuildFAdd(B, a, b, "");
    case AT_OP_SUBTRACT:
      return LLVMBuildFSub(B, a, b, "");
    case AT_OP_MULTIPLY:
      return LLVMBuildFMul(B, a, b, "");
    case AT_OP_DIVIDE:
      return LLVMBuildFDiv(B, a, b, "");
    case AT_OP_NEGATE:
      return LLVMBuildFNeg(B, a, "");
    case AT_OP_ABS:
      return intrinsic(e, "llvm.fabs", a, NULL);
    case AT_OP_FLOOR:
      return intrinsic(e, "llvm.floor", a, NULL);
    case AT_OP_CEIL:
      return intrinsic(e, "llvm.ceil", a, NULL);
    case AT_OP_ROUND_NEAREST_EVEN:
      return intrinsic(e, "llvm.roundeven", a, NULL);
    case AT_OP_ROUND_NEAREST_AFZ:
      return intrinsic(e, "llvm.round", a, NULL);
    case AT_OP_IS_FINITE:
      return LLVMBuildFCmp(B, LLVMRealONE, intrinsic(e, "llvm.fabs", a, NULL),
                           cf(e, a, __builtin_inf()), "");
    case AT_OP_SIGN: {
      LLVMValueRef keep = LLVMBuildFCmp(B, LLVMRealUEQ, a, cf(e, a, 0), "");
      return sel(e, keep, a, intrinsic(e, "llvm.copysign", cf(e, a, 1), a));
    }
    case AT_OP_IMAG:
      return LLVMConstNull(LLVMTypeOf(a));
    case AT_OP_REAL:
      return a;
    case AT_OP_NEXT_AFTER:
      return next_after(e, t, a, b);
    default:
      return apply_math(e, op, a, b);
  }
}

// Ops whose results need no rounding. Some types of a byte lack negative
// numbers, -0, or NaN, so that theirs always do.
static bool is_exact(at_op op, at_dtype t) {
  if (at_dtype_bytes(t) == 1) return false;
  switch (op) {
    case AT_OP_NEGATE:
    case AT_OP_ABS:
    case AT_OP_FLOOR:
    case AT_OP_CEIL:
    case AT_OP_SIGN:
    case AT_OP_REAL:
    case AT_OP_IMAG:
    case AT_OP_NEXT_AFTER:
    case AT_OP_IS_FINITE:
    case AT_OP_ROUND_NEAREST_EVEN:
    case AT_OP_ROUND_NEAREST_AFZ:
      return true;
    default:
      return false;
  }
}

// Both parts of a complex value.
static at_val select_val(at_em *e, LLVMValueRef c, at_val a, at_val b) {
  return (at_val){sel(e, c, a.re, b.re), a.im ? sel(e, c, a.im, b.im) : NULL};
}

// Complex numbers: a NaN in either part wins.
static at_val extremum_val(at_em *e, at_dtype t, bool max, at_val a, at_val b) {
  if (!at_is_complex(t)) return (at_val){extremum(e, t, max, a.re, b.re), NULL};
  LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, a.re, a.im, "");
  LLVMValueRef nan_b = LLVMBuildFCmp(e->b, LLVMRealUNO, b.re, b.im, "");
  LLVMValueRef wins =
      at_em_compare(e, t, max ? AT_GE : AT_LE, AT_CMP_FLOAT, a, b);
  return select_val(e, nan, a,
                    select_val(e, nan_b, b, select_val(e, wins, a, b)));
}

// UNIMPLEMENTED in e->st for an op that the type does not have; the value is
// zero then.
at_val at_em_apply_real_here(at_em *e, at_op op, at_dtype t, at_val a,
                             at_val b) {
  at_val r = {0};
  e->math.b = e->b;
  switch (op) {
    case AT_OP_MAXIMUM:
      return extremum_val(e, t, true, a, b);
    case AT_OP_MINIMUM:
      return extremum_val(e, t, false, a, b);
    default:
      break;
  }
  r.re = at_is_float(t) ? apply_float(e, op, t, a.re, b.re)
                        : apply_int(e, op, t, a.re, b.re);
  if (!r.re) {
    at_em_fail(e, AT_FAIL(AT_UNIMPLEMENTED,
                          "code generation of %s for element type %s",
                          at_op_text(op), at_dtype_of(t)->text));
    return at_em_zero(e, t);
  }
  if (op == AT_OP_IS_FINITE || (at_is_float(t) && is_exact(op, t))) return r;
  return at_em_normalize(e, t, r);
}

// Ops that take many instructions may be functions of the module (outline.c).
at_val at_em_apply_real(at_em *e, at_op op, at_dtype t, at_val a, at_val b) {
  at_val r;
  return at_em_apply_real_outlined(e, op, t, a, b, &r)
             ? r
             : at_em_apply_real_here(e, op, t, a, b);
}

// Ops that take many instructions may be functions of the module (outline.c).
at_val at_em_apply(at_em *e, const at_node *n, const at_val *args) {
  at_val r;
  if (!at_em_apply_outlined(e, n, args, &r)) r = at_em_apply_here(e, n, args);
  AT_ASSERT(!at_em_ok(e) ||
            LLVMTypeOf(r.re) ==
                at_em_widen(e, at_em_reg_type(e, n->types[0].dtype)));
  return r;
}

// Ops that look at attributes, or whose operands differ in type, are here; the
// rest goes by type to at_em_apply_real_here or at_em_apply_complex.
at_val at_em_apply_here(at_em *e, const at_node *n, const at_val *args) {
  at_dtype t = at_value_type(n->operands[0])->dtype, rt = n->types[0].dtype;
  at_val r = {0};
  e->math.b = e->b;
  switch (n->op) {
    case AT_OP_CONVERT:
      return at_em_convert(e, t, rt, args[0]);
    case AT_OP_SELECT:
      return select_val(e, args[0].re, args[1], args[2]);
    case AT_OP_COMPLEX:
      return (at_val){args[0].re, args[1].re};
    case AT_OP_COMPARE:
      r.re = at_em_compare(
          e, t, (at_direction)at_node_int(n, AT_ATTR_COMPARISON_DIRECTION, 0),
          (at_compare_type)at_node_int(n, AT_ATTR_COMPARE_TYPE, 0), args[0],
          args[1]);
      return r;
    case AT_OP_MAXIMUM:
      return extremum_val(e, t, true, args[0], args[1]);
    case AT_OP_MINIMUM:
      return extremum_val(e, t, false, args[0], args[1]);
    case AT_OP_CLAMP:
      // Clamp: min(max(x, low), high).
      return extremum_val(e, rt, false,
                          extremum_val(e, rt, true, args[1], args[0]), args[2]);
    default:
      break;
  }
  if (!at_is_complex(t) && n->op != AT_OP_REDUCE_PRECISION) {
    at_val b = n->num_operands > 1 ? args[1] : (at_val){0};
    return at_em_apply_real_here(e, n->op, t, args[0], b);
  }
  if (at_is_complex(t)) {
    r = at_em_apply_complex(e, n, args);
  } else {
    LLVMValueRef v = at_em_reduce_precision(
        e, t, at_node_int(n, AT_ATTR_EXPONENT_BITS, 0),
        at_node_int(n, AT_ATTR_MANTISSA_BITS, 0), args[0].re);
    r = at_em_normalize(e, rt, (at_val){v, NULL});
  }
  if (!r.re) {
    at_em_fail(e, AT_FAIL(AT_UNIMPLEMENTED,
                          "code generation of %s for element type %s",
                          at_op_text(n->op), at_dtype_of(t)->text));
    return at_em_zero(e, rt);
  }
  return r;
}
