// The functions of math.h: chooses between bodies in f32, bodies in f64 (also
// for f32, rounded) and library calls per lane.
#include "codegen/math_bodies.h"
#include "codegen/math_ops.h"

// Else f64: callers have widened everything narrower.
static bool is_f32(V x) {
  return LLVMGetTypeKind(scalar_of(LLVMTypeOf(x))) == LLVMFloatTypeKind;
}
static V widened(const at_math *m, V x) {
  return LLVMBuildFPExt(m->b, x, f64(m, x), "");
}
static V rounded(const at_math *m, V y, V like) {
  return LLVMBuildFPTrunc(m->b, y, LLVMTypeOf(like), "");
}
// The f64 body, rounded once for f32.
static V by_f64(const at_math *m, at_math_unary_fn f, V x) {
  return is_f32(x) ? rounded(m, f(m, widened(m, x)), x) : f(m, x);
}

#define AT_OWN(fn)                                                      \
  V at_math_##fn(const at_math *m, V x) {                               \
    return is_f32(x) ? at_math_f32_##fn(m, x) : at_math_f64_##fn(m, x); \
  }
#define AT_WIDE(fn)                        \
  V at_math_##fn(const at_math *m, V x) {  \
    return by_f64(m, at_math_f64_##fn, x); \
  }
AT_OWN(exp)
AT_OWN(expm1)
AT_OWN(log)
AT_OWN(log1p)
AT_OWN(logistic)
AT_OWN(tanh)
AT_OWN(erf)
AT_OWN(sin)
AT_OWN(cos)
AT_OWN(tan)
AT_WIDE(cbrt)
AT_WIDE(asin)
AT_WIDE(acos)
AT_WIDE(atan)
AT_WIDE(sinh)
AT_WIDE(cosh)
AT_WIDE(asinh)
AT_WIDE(acosh)
AT_WIDE(atanh)
AT_WIDE(erfc)
AT_WIDE(digamma)

static V lgamma_f64(const at_math *m, V x) {
  return at_math_call(m, "lgamma", x, NULL);
}
V at_math_lgamma(const at_math *m, V x) { return by_f64(m, lgamma_f64, x); }

// A function of two f64 that has no other body than the library's.
static V called(const at_math *m, const char *name, V x, V y) {
  if (!is_f32(x)) return at_math_call(m, name, x, y);
  return rounded(m, at_math_call(m, name, widened(m, x), widened(m, y)), x);
}
V at_math_polygamma(const at_math *m, V n, V x) {
  return called(m, "at_polygamma64", n, x);
}
V at_math_zeta(const at_math *m, V s, V q) {
  return called(m, "at_zeta64", s, q);
}

// f32 needs the first approximation only.
V at_math_erf_inv(const at_math *m, V x) {
  return by_f64(m, is_f32(x) ? at_math_wide_erf_inv : at_math_f64_erf_inv, x);
}
V at_math_sqrt(const at_math *m, V x) {
  return at_math_intrinsic(m, "llvm.sqrt", &x, 1);
}
V at_math_rsqrt(const at_math *m, V x) {
  return DIV(real(x, 1.0), at_math_sqrt(m, x));
}
// For f32 through f64.
V at_math_atan2(const at_math *m, V y, V x) {
  if (!is_f32(x)) return at_math_f64_atan2(m, y, x);
  return rounded(m, at_math_f64_atan2(m, widened(m, y), widened(m, x)), x);
}
V at_math_pow(const at_math *m, V x, V y) {
  return is_f32(x) ? at_math_f32_pow(m, x, y) : at_math_f64_pow(m, x, y);
}

// In lanes where the quotient is not exact, or y is infinite, by the library.
V at_math_fmod(const at_math *m, V x, V y) {
  // Exact while the quotient is: then x - q y needs no more digits than y has.
  // A quotient that rounded up to an integer leaves a remainder of the other
  // sign.
  V a = absolute(m, x), b = absolute(m, y), q = DIV(a, b);
  V whole_q = at_math_intrinsic(m, "llvm.trunc", &q, 1);
  V r = FMA(NEG(whole_q), b, a);
  r = copysign_(m, SEL(LT(r, real(r, 0)), ADD(r, b), r), x);
  V plain = IAND(LT(q, real(q, is_f32(x) ? 0x1p23 : 0x1p52)),
                 LT(b, real(b, __builtin_inf())));
  return at_math_patch(m, r, INOT(plain), "fmod", x, y);
}
