// Plain bodies of the functions in math.h.
#include "codegen/math.h"

#define AT_LIBM1(fn, name)                                    \
  LLVMValueRef at_math_##fn(const at_math *m, LLVMValueRef x) { \
    return at_math_call(m, name, x, NULL);                    \
  }
AT_LIBM1(exp, "exp")
AT_LIBM1(expm1, "expm1")
AT_LIBM1(log, "log")
AT_LIBM1(log1p, "log1p")
AT_LIBM1(cbrt, "cbrt")
AT_LIBM1(sin, "sin")
AT_LIBM1(cos, "cos")
AT_LIBM1(tan, "tan")
AT_LIBM1(tanh, "tanh")
AT_LIBM1(asin, "asin")
AT_LIBM1(acos, "acos")
AT_LIBM1(atan, "atan")
AT_LIBM1(sinh, "sinh")
AT_LIBM1(cosh, "cosh")
AT_LIBM1(asinh, "asinh")
AT_LIBM1(acosh, "acosh")
AT_LIBM1(atanh, "atanh")
AT_LIBM1(erf, "erf")
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
  LLVMValueRef one = splat(LLVMTypeOf(x), 1.0);
  LLVMValueRef e = at_math_exp(m, LLVMBuildFNeg(m->b, x, ""));
  return LLVMBuildFDiv(m->b, one, LLVMBuildFAdd(m->b, one, e, ""), "");
}
LLVMValueRef at_math_atan2(const at_math *m, LLVMValueRef y, LLVMValueRef x) {
  return at_math_call(m, "atan2", y, x);
}
LLVMValueRef at_math_pow(const at_math *m, LLVMValueRef x, LLVMValueRef y) {
  return at_math_call(m, "pow", x, y);
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
