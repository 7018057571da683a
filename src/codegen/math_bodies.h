// Vector bodies for f32 and f64; math_basic.c chooses between them and library
// calls. f32 functions without a body of their own are f64's, rounded.
#ifndef ATOLL_CODEGEN_MATH_BODIES_H_
#define ATOLL_CODEGEN_MATH_BODIES_H_

#include "codegen/math.h"

// Declares a function of one argument: at_math_f64_NAME, scalar or vector of
// f64.
#define AT_MATH_F64(name) \
  LLVMValueRef at_math_f64_##name(const at_math *m, LLVMValueRef x)
#define AT_MATH_BOTH(name)                                           \
  LLVMValueRef at_math_f32_##name(const at_math *m, LLVMValueRef x); \
  AT_MATH_F64(name)

// These have bodies in both precisions. Limits and special values are those of
// math.h; largest errors are in docs/math.md.
AT_MATH_BOTH(exp);
AT_MATH_BOTH(expm1);
AT_MATH_BOTH(logistic);
AT_MATH_BOTH(tanh);
AT_MATH_BOTH(log);
AT_MATH_BOTH(log1p);
AT_MATH_BOTH(sin);
AT_MATH_BOTH(cos);
AT_MATH_BOTH(tan);
AT_MATH_BOTH(erf);

// f32 goes through these and is rounded.
AT_MATH_F64(sinh);
AT_MATH_F64(cosh);
AT_MATH_F64(asinh);
AT_MATH_F64(acosh);
AT_MATH_F64(atanh);
AT_MATH_F64(cbrt);
AT_MATH_F64(asin);
AT_MATH_F64(acos);
AT_MATH_F64(atan);
AT_MATH_F64(erfc);
// Two steps: an approximation, and Halley's correction.
AT_MATH_F64(erf_inv);
AT_MATH_F64(digamma);

#undef AT_MATH_BOTH
#undef AT_MATH_F64

// x^y with C's rules for signs and special values.
LLVMValueRef at_math_f32_pow(const at_math *m, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef at_math_f64_pow(const at_math *m, LLVMValueRef x, LLVMValueRef y);
// The angle of (x, y) with C's rules; f32 is widened to it.
LLVMValueRef at_math_f64_atan2(const at_math *m, LLVMValueRef y,
                               LLVMValueRef x);
// erf_inv in f64 to 2^-26 only: what f32 needs.
LLVMValueRef at_math_wide_erf_inv(const at_math *m, LLVMValueRef x);
// a e^(x + low) for a in [2^-60, 2^60] and a low under 2^-50: rounded once even
// where the result is denormal. x may be anything.
LLVMValueRef at_math_f64_times_exp(const at_math *m, LLVMValueRef a,
                                   LLVMValueRef x, LLVMValueRef low);
// The rules of C's pow for signs and special values, given |x|^y; f32 or f64.
LLVMValueRef at_math_pow_rules(const at_math *m, LLVMValueRef x, LLVMValueRef y,
                               LLVMValueRef r);
// Code that runs only where a lane of `rare` is set, and what it made of
// values: begin, the code, end, then at_math_rare_value for each.
typedef struct at_math_rare {
  LLVMBasicBlockRef from, slow, join;
} at_math_rare;
// rare: i1, or lanes of i1. Code goes into the block that is entered when any
// lane is set.
void at_math_rare_begin(const at_math *m, at_math_rare *r, LLVMValueRef rare);
// Code goes on behind it, for all lanes.
void at_math_rare_end(const at_math *m, at_math_rare *r);
// What a value is behind the end: `usual`, made before begin, where no lane was
// rare; else `other`, made between begin and end for all lanes.
LLVMValueRef at_math_rare_value(const at_math *m, const at_math_rare *r,
                                LLVMValueRef usual, LLVMValueRef other);
// y, but in the lanes where `rare` is set the library's name(x) or name(x, x2).
// The calls stand in a block of their own, entered when any lane asks.
LLVMValueRef at_math_patch(const at_math *m, LLVMValueRef y, LLVMValueRef rare,
                           const char *name, LLVMValueRef x, LLVMValueRef x2);

#endif
