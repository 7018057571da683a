// Vector bodies for f64; math_basic.c chooses between them and library calls.
// f32 functions without a body of their own are these, rounded.
#ifndef ATOLL_CODEGEN_MATH_F64_H_
#define ATOLL_CODEGEN_MATH_F64_H_

#include "codegen/math.h"

LLVMValueRef at_math_f64_exp(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_expm1(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_logistic(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_tanh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_sinh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_cosh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_log(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_log1p(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_asinh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_acosh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_atanh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_cbrt(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_pow(const at_math *m, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef at_math_f64_sin(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_cos(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_tan(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_asin(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_acos(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_atan(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_atan2(const at_math *m, LLVMValueRef y,
                               LLVMValueRef x);
LLVMValueRef at_math_f64_erf(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_erfc(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_erf_inv(const at_math *m, LLVMValueRef x);
// The same to 2^-26 only: what f32 needs.
LLVMValueRef at_math_wide_erf_inv(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f64_digamma(const at_math *m, LLVMValueRef x);

// a e^(x + low) for a in [2^-60, 2^60] and a low under 2^-50: rounded once even
// where the result is denormal. x may be anything.
LLVMValueRef at_math_f64_times_exp(const at_math *m, LLVMValueRef a,
                                   LLVMValueRef x, LLVMValueRef low);
// The rules of C's pow for signs and special values, given |x|^y; f32 or f64.
LLVMValueRef at_math_pow_rules(const at_math *m, LLVMValueRef x, LLVMValueRef y,
                               LLVMValueRef r);
// y, but in the lanes where `rare` is set the library's name(x) or name(x, x2).
// The calls stand in a block of their own, entered when any lane asks.
LLVMValueRef at_math_patch(const at_math *m, LLVMValueRef y, LLVMValueRef rare,
                           const char *name, LLVMValueRef x, LLVMValueRef x2);

#endif
