// The functions of math.h: our own vector code for f32 where it matters, library
// calls per lane for f64 and for what is rare.
#include "codegen/math_f32.h"

#include <llvm-c/Core.h>

static bool is_f32(LLVMValueRef x) {
  LLVMTypeRef t = LLVMTypeOf(x);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  return LLVMGetTypeKind(t) == LLVMFloatTypeKind;
}

#define AT_BOTH1(fn, name)                                       \
  LLVMValueRef at_math_##fn(const at_math *m, LLVMValueRef x) {  \
    return is_f32(x) ? at_math_f32_##fn(m, x)                    \
                     : at_math_call(m, name, x, NULL);           \
  }

#define AT_LIBM1(fn, name)                                    \
  LLVMValueRef at_math_##fn(const at_math *m, LLVMValueRef x) { \
    return at_math_call(m, name, x, NULL);                    \
  }
AT_BOTH1(exp, "exp")
AT_BOTH1(expm1, "expm1")
AT_BOTH1(log, "log")
AT_BOTH1(log1p, "log1p")
AT_LIBM1(cbrt, "cbrt")
AT_BOTH1(sin, "sin")
AT_BOTH1(cos, "cos")
AT_BOTH1(tan, "tan")
AT_BOTH1(tanh, "tanh")
AT_LIBM1(asin, "asin")
AT_LIBM1(acos, "acos")
AT_LIBM1(atan, "atan")
AT_LIBM1(sinh, "sinh")
AT_LIBM1(cosh, "cosh")
AT_LIBM1(asinh, "asinh")
AT_LIBM1(acosh, "acosh")
AT_LIBM1(atanh, "atanh")
AT_BOTH1(erf, "erf")
AT_LIBM1(erfc, "erfc")
AT_LIBM1(lgamma, "lgamma")

static LLVMValueRef splat(LLVMTypeRef t, double v) {
  if (LLVMGetTypeKind(t) != LLVMVectorTypeKind) return LLVMConstReal(t, v);
  LLVMValueRef e[64];
  unsigned n = LLVMGetVectorSize(t);
  for (unsigned i = 0; i < n && i < 64; i++)
    e[i] = LLVMConstReal(LLVMGetElementType(t), v);
  return LLVMConstVector(e, n);
}

LLVMValueRef at_math_sqrt(const at_math *m, LLVMValueRef x) {
  return at_math_intrinsic(m, "llvm.sqrt", &x, 1);
}
LLVMValueRef at_math_rsqrt(const at_math *m, LLVMValueRef x) {
  return LLVMBuildFDiv(m->b, splat(LLVMTypeOf(x), 1.0), at_math_sqrt(m, x), "");
}
LLVMValueRef at_math_logistic(const at_math *m, LLVMValueRef x) {
  if (is_f32(x)) return at_math_f32_logistic(m, x);
  LLVMValueRef one = splat(LLVMTypeOf(x), 1.0);
  LLVMValueRef e = at_math_exp(m, LLVMBuildFNeg(m->b, x, ""));
  return LLVMBuildFDiv(m->b, one, LLVMBuildFAdd(m->b, one, e, ""), "");
}
LLVMValueRef at_math_atan2(const at_math *m, LLVMValueRef y, LLVMValueRef x) {
  return at_math_call(m, "atan2", y, x);
}
LLVMValueRef at_math_pow(const at_math *m, LLVMValueRef x, LLVMValueRef y) {
  return is_f32(x) ? at_math_f32_pow(m, x, y) : at_math_call(m, "pow", x, y);
}
LLVMValueRef at_math_fmod(const at_math *m, LLVMValueRef x, LLVMValueRef y) {
  return at_math_call(m, "fmod", x, y);
}
LLVMValueRef at_math_erf_inv(const at_math *m, LLVMValueRef x) { return NULL; }
LLVMValueRef at_math_digamma(const at_math *m, LLVMValueRef x) { return NULL; }
LLVMValueRef at_math_polygamma(const at_math *m, LLVMValueRef n, LLVMValueRef x) {
  return NULL;
}
LLVMValueRef at_math_zeta(const at_math *m, LLVMValueRef x, LLVMValueRef q) {
  return NULL;
}
bool at_math_has_special(void) { return false; }
