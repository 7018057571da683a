// Element types: storage <-> registers, rounding to narrow floats, conversions.
#include "codegen/emit.h"

#include <llvm-c/Core.h>
#include <math.h>

#include <stdio.h>

// An overloaded LLVM intrinsic of one or two operands; b NULL: one.
static LLVMValueRef intrinsic(at_em *e, const char *name, LLVMValueRef a,
                              LLVMValueRef b) {
  LLVMValueRef args[2] = {a, b};
  return at_math_intrinsic(&e->math, name, args, b ? 2 : 1);
}
static LLVMTypeRef i32s(at_em *e) { return at_em_widen(e, at_em_int(e, 32)); }
static LLVMTypeRef f32s(at_em *e) {
  return at_em_widen(e, LLVMFloatTypeInContext(e->ctx));
}
static LLVMTypeRef f64s(at_em *e) {
  return at_em_widen(e, LLVMDoubleTypeInContext(e->ctx));
}

// ---- narrow float formats
typedef enum at_special { SP_IEEE, SP_FN, SP_FNUZ, SP_FINITE } at_special;
typedef struct at_format {
  int exponent, mantissa, bias;
  at_special special;
} at_format;

// Of the types of a byte with a sign; others have zeros there.
static const at_format *format_of(at_dtype t) {
  static const at_format table[AT_DTYPE_COUNT] = {
      [AT_F4E2M1FN] = {2, 1, 1, SP_FINITE},
      [AT_F6E2M3FN] = {2, 3, 1, SP_FINITE},
      [AT_F6E3M2FN] = {3, 2, 3, SP_FINITE},
      [AT_F8E3M4] = {3, 4, 3, SP_IEEE},
      [AT_F8E4M3] = {4, 3, 7, SP_IEEE},
      [AT_F8E4M3FN] = {4, 3, 7, SP_FN},
      [AT_F8E4M3B11FNUZ] = {4, 3, 11, SP_FNUZ},
      [AT_F8E4M3FNUZ] = {4, 3, 8, SP_FNUZ},
      [AT_F8E5M2] = {5, 2, 15, SP_IEEE},
      [AT_F8E5M2FNUZ] = {5, 2, 16, SP_FNUZ},
  };
  return &table[t];
}

// Logical shift by a constant.
static LLVMValueRef shr(at_em *e, LLVMValueRef v, int n) {
  return LLVMBuildLShr(e->b, v, at_em_ci(e, LLVMTypeOf(v), n), "");
}
static LLVMValueRef addc(at_em *e, LLVMValueRef v, int64_t c) {
  return LLVMBuildAdd(e->b, v, at_em_ci(e, LLVMTypeOf(v), c), "");
}
// Masks with a constant.
static LLVMValueRef andc(at_em *e, LLVMValueRef v, int64_t c) {
  return LLVMBuildAnd(e->b, v, at_em_ci(e, LLVMTypeOf(v), c), "");
}
// v's bits below `shift` rounded to nearest even, not yet shifted out.
static LLVMValueRef nearest_even(at_em *e, LLVMValueRef v, int shift) {
  LLVMValueRef odd = andc(e, shr(e, v, shift), 1);
  return LLVMBuildAdd(e->b, addc(e, v, (1ll << (shift - 1)) - 1), odd, "");
}

// f8E8M0FNU: the nearest power of two, ties up; NaN for what is not positive
// and finite. Below 2^-126 (u < 0x800000) the codes are 1 from 1.5 * 2^-127 on,
// else 0.
static LLVMValueRef encode_e8m0(at_em *e, LLVMValueRef x) {
  LLVMTypeRef t = i32s(e);
  LLVMValueRef u = at_em_bits(e, x), r = shr(e, addc(e, u, 0x400000), 23);
  LLVMValueRef tiny =
      LLVMBuildICmp(e->b, LLVMIntULT, u, at_em_ci(e, t, 0x600000), "");
  r = LLVMBuildSelect(e->b, tiny, at_em_ci(e, t, 0), r, "");
  // Zero wraps to the top here: one comparison finds zero, negative, inf and
  // NaN.
  LLVMValueRef bad = LLVMBuildICmp(e->b, LLVMIntUGE, addc(e, u, -1),
                                   at_em_ci(e, t, 0x7f7fffff), "");
  return LLVMBuildSelect(e->b, bad, at_em_ci(e, t, 0xff), r, "");
}

// The code of f32 x in a small format, as i32.
static LLVMValueRef encode_small(at_em *e, at_dtype t, LLVMValueRef x) {
  if (t == AT_F8E8M0FNU) return encode_e8m0(e, x);
  const at_format *f = format_of(t);
  LLVMTypeRef it = i32s(e);
  int shift = 23 - f->mantissa, min_exponent = 1 - f->bias;
  LLVMValueRef u = at_em_bits(e, x), a = andc(e, u, 0x7fffffff);
  LLVMValueRef sign = andc(e, shr(e, u, 31 - (f->exponent + f->mantissa)),
                           1 << (f->exponent + f->mantissa));
  LLVMValueRef normal = shr(e, nearest_even(e, a, shift), shift);
  normal = addc(e, normal, -((127 - f->bias) * (1ll << f->mantissa)));
  // Below the smallest normal number the adder rounds for us.
  int magic_exponent = min_exponent + 23 - f->mantissa;
  LLVMValueRef magic = at_em_ci(e, it, (int64_t)(magic_exponent + 127) << 23);
  LLVMValueRef sum =
      LLVMBuildFAdd(e->b, LLVMBuildBitCast(e->b, a, f32s(e), ""),
                    LLVMBuildBitCast(e->b, magic, f32s(e), ""), "");
  LLVMValueRef tiny = LLVMBuildSub(e->b, at_em_bits(e, sum), magic, "");
  LLVMValueRef is_tiny =
      LLVMBuildICmp(e->b, LLVMIntULT, a,
                    at_em_ci(e, it, (int64_t)(min_exponent + 127) << 23), "");
  LLVMValueRef r = LLVMBuildSelect(e->b, is_tiny, tiny, normal, "");
  int64_t all = (1ll << (f->exponent + f->mantissa)) - 1, top, over, nan;
  switch (f->special) {
    case SP_IEEE:
      over = all & ~((1ll << f->mantissa) - 1);
      top = over - 1;
      nan = over | 1ll << (f->mantissa - 1);
      break;
    case SP_FN:
      over = nan = all;
      top = all - 1;
      break;
    case SP_FNUZ:
      over = nan = all + 1;
      top = all;
      break;
    default:
      over = top = all;
      nan = all + 1;  // -0: there is no NaN
      break;
  }
  LLVMValueRef too_big =
      LLVMBuildICmp(e->b, LLVMIntSGT, r, at_em_ci(e, it, top), "");
  LLVMValueRef huge =
      LLVMBuildICmp(e->b, LLVMIntUGE, a, at_em_ci(e, it, 0x7f800000), "");
  too_big = LLVMBuildOr(e->b, too_big, huge, "");
  r = LLVMBuildSelect(e->b, too_big, at_em_ci(e, it, over), r, "");
  LLVMValueRef is_nan =
      LLVMBuildICmp(e->b, LLVMIntUGT, a, at_em_ci(e, it, 0x7f800000), "");
  if (f->special == SP_FNUZ) {
    LLVMValueRef plain = LLVMBuildAnd(
        e->b, LLVMBuildICmp(e->b, LLVMIntNE, r, at_em_ci(e, it, 0), ""),
        LLVMBuildICmp(e->b, LLVMIntNE, r, at_em_ci(e, it, nan), ""), "");
    r = LLVMBuildSelect(e->b, plain, LLVMBuildOr(e->b, r, sign, ""), r, "");
    return LLVMBuildSelect(e->b, is_nan, at_em_ci(e, it, nan), r, "");
  }
  if (f->special == SP_FINITE) {
    r = LLVMBuildOr(e->b, r, sign, "");
    return LLVMBuildSelect(e->b, is_nan, at_em_ci(e, it, nan), r, "");
  }
  r = LLVMBuildSelect(e->b, is_nan, at_em_ci(e, it, nan), r, "");
  return LLVMBuildOr(e->b, r, sign, "");
}

// The value of a code (i32, with zeros above it) in a small format with a sign.
static LLVMValueRef decode_small(at_em *e, at_dtype t, LLVMValueRef code) {
  const at_format *f = format_of(t);
  LLVMTypeRef it = i32s(e), ft = f32s(e);
  int bits = f->exponent + f->mantissa, up = 23 - f->mantissa;
  int64_t all = (1ll << bits) - 1, one = 1ll << f->mantissa;
  LLVMValueRef a = andc(e, code, all);
  LLVMValueRef sign = LLVMBuildShl(e->b, andc(e, code, all + 1),
                                   at_em_ci(e, it, 31 - bits), "");
  LLVMValueRef normal = LLVMBuildShl(e->b, a, at_em_ci(e, it, up), "");
  normal = addc(e, normal, (int64_t)(127 - f->bias) << 23);
  // Without denormals, which the caller's modes may flush.
  LLVMValueRef tiny =
      LLVMBuildFMul(e->b, LLVMBuildSIToFP(e->b, a, ft, ""),
                    at_em_cf(e, ft, ldexp(1, 1 - f->bias - f->mantissa)), "");
  LLVMValueRef is_tiny =
      LLVMBuildICmp(e->b, LLVMIntULT, a, at_em_ci(e, it, one), "");
  LLVMValueRef r =
      LLVMBuildSelect(e->b, is_tiny, at_em_bits(e, tiny), normal, "");
  LLVMValueRef nan = NULL;
  int64_t infinity = all & ~(one - 1);
  switch (f->special) {
    case SP_IEEE:
      nan = LLVMBuildICmp(e->b, LLVMIntUGT, a, at_em_ci(e, it, infinity), "");
      r = LLVMBuildSelect(
          e->b,
          LLVMBuildICmp(e->b, LLVMIntEQ, a, at_em_ci(e, it, infinity), ""),
          at_em_ci(e, it, 0x7f800000), r, "");
      break;
    case SP_FN:
      nan = LLVMBuildICmp(e->b, LLVMIntEQ, a, at_em_ci(e, it, all), "");
      break;
    case SP_FNUZ:
      nan = LLVMBuildICmp(e->b, LLVMIntEQ, code, at_em_ci(e, it, all + 1), "");
      break;
    default:
      break;
  }
  // The total order looks at a NaN's sign, where it has one.
  LLVMValueRef quiet = at_em_ci(e, it, 0x7fc00000);
  if (nan && f->special != SP_FNUZ)
    r = LLVMBuildSelect(e->b, nan, quiet, r, "");
  r = LLVMBuildOr(e->b, r, sign, "");
  if (nan && f->special == SP_FNUZ)
    r = LLVMBuildSelect(e->b, nan, quiet, r, "");
  return LLVMBuildBitCast(e->b, r, ft, "");
}

// The 256 values of f8E8M0FNU, as a constant array of f32.
static LLVMValueRef small_table(at_em *e, at_dtype t) {
  char name[32];
  snprintf(name, sizeof name, "at.table.%u", (unsigned)t);
  LLVMValueRef g = LLVMGetNamedGlobal(e->module, name);
  if (g) return g;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->ctx);
  LLVMValueRef v[256];
  for (unsigned i = 0; i < 256; i++) {
    uint8_t code = (uint8_t)i;
    v[i] = LLVMConstReal(f32, at_load_float(t, &code));
  }
  LLVMValueRef init = LLVMConstArray2(f32, v, 256);
  g = LLVMAddGlobal(e->module, LLVMTypeOf(init), name);
  LLVMSetInitializer(g, init);
  LLVMSetGlobalConstant(g, true);
  LLVMSetLinkage(g, LLVMPrivateLinkage);
  LLVMSetAlignment(g, 64);
  return g;
}

// Floats that take a byte in memory.
static bool is_small(at_dtype t) {
  return at_is_float(t) && at_dtype_bytes(t) == 1;
}

// Round to nearest, ties to even; NaN stays NaN (quiet), overflow gives what
// the format has for it: an infinity, NaN, or its largest number.
LLVMValueRef at_em_round(at_em *e, at_dtype t, LLVMValueRef x) {
  if (t == AT_BF16) {
    LLVMValueRef u = at_em_bits(e, x);
    LLVMValueRef r = nearest_even(e, u, 16);
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
    LLVMValueRef quiet =
        LLVMBuildOr(e->b, u, at_em_ci(e, LLVMTypeOf(u), 0x400000), "");
    r = LLVMBuildSelect(e->b, nan, quiet, r, "");
    return LLVMBuildBitCast(e->b, andc(e, r, (int64_t)0xffff0000u),
                            LLVMTypeOf(x), "");
  }
  if (t == AT_F16 || is_small(t))
    return at_em_decode(e, t, at_em_encode(e, t, x));
  return x;
}

enum { kCode = 1u << 23 };  // memo: a value that a code was decoded to

// v is rounded already, so this drops zero bits only (but for the types of a
// byte). A value that was decoded from a code has that code: it is remembered.
LLVMValueRef at_em_encode(at_em *e, at_dtype t, LLVMValueRef v) {
  LLVMTypeRef st = at_em_widen(e, at_em_storage_type(e, t));
  if (t == AT_PRED) return LLVMBuildZExt(e->b, v, st, "");
  if (t == AT_BF16)
    return LLVMBuildTrunc(e->b, shr(e, at_em_bits(e, v), 16), st, "");
  if (t == AT_F16) return LLVMBuildFPTrunc(e->b, v, st, "");
  if (!is_small(t)) return v;
  at_val *known = at_em_memo_find(e, v, kCode + t, st);
  return known ? known->re
               : LLVMBuildTrunc(e->b, encode_small(e, t, v), st, "");
}

// The inverse. f8E8M0FNU by a table, the other types of a byte by arithmetic on
// their bits.
LLVMValueRef at_em_decode(at_em *e, at_dtype t, LLVMValueRef s) {
  if (t == AT_PRED)
    return LLVMBuildICmp(e->b, LLVMIntNE, s, LLVMConstNull(LLVMTypeOf(s)), "");
  if (t == AT_BF16) {
    LLVMValueRef u = LLVMBuildZExt(e->b, s, i32s(e), "");
    u = LLVMBuildShl(e->b, u, at_em_ci(e, i32s(e), 16), "");
    return LLVMBuildBitCast(e->b, u, f32s(e), "");
  }
  if (t == AT_F16) return LLVMBuildFPExt(e->b, s, f32s(e), "");
  if (!is_small(t)) return s;
  LLVMValueRef v;
  if (t == AT_F8E8M0FNU) {
    at_ix i = at_ix_from(e, AT_U8, (at_val){s, NULL}, 0, 255);
    v = at_em_load(e, small_table(e, t), AT_F32, i, true).re;
  } else {
    v = decode_small(e, t, LLVMBuildZExt(e->b, s, i32s(e), ""));
  }
  at_em_memo_put(e, v, kCode + t, LLVMTypeOf(s), (at_val){s, NULL});
  return v;
}

// Narrow floats are rounded, integers under 8 bits wrapped to their width and
// extended; other types are as they are.
at_val at_em_normalize(at_em *e, at_dtype t, at_val v) {
  at_dtype_info const *d = at_dtype_of(t);
  if (at_is_float(t)) {
    if (t != AT_F32 && t != AT_F64) v.re = at_em_round(e, t, v.re);
  } else if (d->bits < 8 && at_is_int(t)) {
    LLVMValueRef k = at_em_ci(e, LLVMTypeOf(v.re), 8 - d->bits);
    LLVMValueRef up = LLVMBuildShl(e->b, v.re, k, "");
    v.re = at_is_signed_int(t) ? LLVMBuildAShr(e->b, up, k, "")
                               : LLVMBuildLShr(e->b, up, k, "");
  }
  return v;
}

// ---- conversion
// f64 to f32, inexact results made odd: a second rounding then equals one.
static LLVMValueRef truncate_odd(at_em *e, LLVMValueRef d) {
  LLVMValueRef f = LLVMBuildFPTrunc(e->b, d, f32s(e), "");
  LLVMValueRef back = LLVMBuildFPExt(e->b, f, f64s(e), "");
  LLVMValueRef inexact = LLVMBuildFCmp(e->b, LLVMRealONE, back, d, "");
  LLVMValueRef over =
      LLVMBuildFCmp(e->b, LLVMRealOGT, intrinsic(e, "llvm.fabs", back, NULL),
                    intrinsic(e, "llvm.fabs", d, NULL), "");
  LLVMValueRef u = at_em_bits(e, f);
  u = LLVMBuildSub(e->b, u, LLVMBuildZExt(e->b, over, i32s(e), ""), "");
  u = LLVMBuildOr(e->b, u, LLVMBuildZExt(e->b, inexact, i32s(e), ""), "");
  return LLVMBuildBitCast(e->b, u, f32s(e), "");
}

// Rounds once: f64 becomes odd in f32 before it is rounded to a narrower type.
static LLVMValueRef float_to_float(at_em *e, at_dtype from, at_dtype to,
                                   LLVMValueRef v) {
  if (to == from) return v;
  if (to == AT_F64) return LLVMBuildFPExt(e->b, v, f64s(e), "");
  if (to == AT_F32)
    return from == AT_F64 ? LLVMBuildFPTrunc(e->b, v, f32s(e), "") : v;
  if (from == AT_F64) v = truncate_odd(e, v);
  if (from == AT_BF16 && to == AT_F32) return v;
  return at_em_round(e, to, v);
}

// Integers of 32 bits and more go through f64 to narrow types, which holds up
// to 53 bits exactly; what it rounds is far from a narrow type's ties.
static LLVMValueRef int_to_float(at_em *e, at_dtype from, at_dtype to,
                                 LLVMValueRef v) {
  bool sign = at_is_signed_int(from);
  bool via64 = to == AT_F64 || (to != AT_F32 && at_dtype_bytes(from) >= 4);
  LLVMTypeRef t = via64 ? f64s(e) : f32s(e);
  LLVMValueRef f =
      sign ? LLVMBuildSIToFP(e->b, v, t, "") : LLVMBuildUIToFP(e->b, v, t, "");
  return via64 ? float_to_float(e, AT_F64, to, f)
               : float_to_float(e, AT_F32, to, f);
}

// Saturates; NaN is 0. By hand, since LLVM takes llvm.fptosi.sat of vectors to
// single elements.
static LLVMValueRef float_to_int(at_em *e, at_dtype to, LLVMValueRef v) {
  bool sign = at_is_signed_int(to);
  int bits = (int)at_dtype_of(to)->bits, digits = bits - sign;
  LLVMTypeRef t = LLVMTypeOf(v);
  LLVMTypeRef wide =
      at_em_widen(e, at_em_int(e, bits < 32 ? 32 : (unsigned)bits));
  int mantissa = at_em_bits_of(t) == 64 ? 53 : 24;
  double beyond = ldexp(1, digits);
  // The largest value that is an integer of the type.
  double last = beyond - (digits <= mantissa ? 1 : ldexp(1, digits - mantissa));
  LLVMValueRef lo = at_em_cf(e, t, sign ? -beyond : 0);
  LLVMValueRef hi = at_em_cf(e, t, last);
  LLVMValueRef more = LLVMBuildFCmp(e->b, LLVMRealOGT, v, lo, "");
  LLVMValueRef c = LLVMBuildSelect(e->b, more, v, lo, "");
  LLVMValueRef less = LLVMBuildFCmp(e->b, LLVMRealOLT, c, hi, "");
  c = LLVMBuildSelect(e->b, less, c, hi, "");
  LLVMValueRef r = sign ? LLVMBuildFPToSI(e->b, c, wide, "")
                        : LLVMBuildFPToUI(e->b, c, wide, "");
  if (digits > mantissa) {
    LLVMValueRef over =
        LLVMBuildFCmp(e->b, LLVMRealOGE, v, at_em_cf(e, t, beyond), "");
    LLVMValueRef max = at_em_ci(e, wide, sign ? INT64_MAX >> (64 - bits) : -1);
    r = LLVMBuildSelect(e->b, over, max, r, "");
  }
  if (sign) {  // else it is clamped to 0
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, v, v, "");
    r = LLVMBuildSelect(e->b, nan, LLVMConstNull(wide), r, "");
  }
  return bits < 32 ? LLVMBuildTrunc(e->b, r,
                                    at_em_widen(e, at_em_reg_type(e, to)), "")
                   : r;
}

// pred is "not zero"; integers are cut or extended and wrapped; floats to
// integers saturate.
static LLVMValueRef convert_real(at_em *e, at_dtype from, at_dtype to,
                                 LLVMValueRef v) {
  LLVMTypeRef rt = at_em_widen(e, at_em_reg_type(e, to));
  if (from == to) return v;
  if (to == AT_PRED)
    return at_is_float(from) ? LLVMBuildFCmp(e->b, LLVMRealUNE, v,
                                             LLVMConstNull(LLVMTypeOf(v)), "")
                             : LLVMBuildICmp(e->b, LLVMIntNE, v,
                                             LLVMConstNull(LLVMTypeOf(v)), "");
  if (at_is_float(from))
    return at_is_float(to) ? float_to_float(e, from, to, v)
                           : float_to_int(e, to, v);
  if (at_is_float(to)) {
    if (from == AT_PRED) {  // 0 and 1 are exact but where there is no 0
      LLVMValueRef f = LLVMBuildUIToFP(e->b, v, rt, "");
      return to == AT_F8E8M0FNU ? at_em_round(e, to, f) : f;
    }
    return int_to_float(e, from, to, v);
  }
  // Between integers, and from pred.
  uint32_t a = at_em_bits_of(LLVMTypeOf(v)), b = at_em_bits_of(rt);
  if (a > b)
    v = LLVMBuildTrunc(e->b, v, rt, "");
  else if (a < b)
    v = at_is_signed_int(from) ? LLVMBuildSExt(e->b, v, rt, "")
                               : LLVMBuildZExt(e->b, v, rt, "");
  return at_em_normalize(e, to, (at_val){v, NULL}).re;
}

// Complex to real takes the real part; to pred: is any part not zero? Real to
// complex has an imaginary part of zero.
at_val at_em_convert(at_em *e, at_dtype from, at_dtype to, at_val v) {
  at_dtype rf = at_real_of(from), rt = at_real_of(to);
  if (to == AT_PRED && at_is_complex(from)) {
    LLVMValueRef a = convert_real(e, rf, AT_PRED, v.re);
    LLVMValueRef b = convert_real(e, rf, AT_PRED, v.im);
    return (at_val){LLVMBuildOr(e->b, a, b, ""), NULL};
  }
  at_val r = {convert_real(e, rf, rt, v.re), NULL};
  if (at_is_complex(to))
    r.im = at_is_complex(from)
               ? convert_real(e, rf, rt, v.im)
               : LLVMConstNull(at_em_widen(e, at_em_reg_type(e, to)));
  return r;
}
