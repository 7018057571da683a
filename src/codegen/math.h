// Transcendental functions as LLVM instructions. Each takes f32 or f64 values,
// scalar or vector of any width, and returns a value of the same type. They
// work elementwise, do not trap, and follow the usual limits (log(-1) is NaN,
// exp(-inf) is 0, NaN in is NaN out). Nothing here knows about hlo types:
// callers widen bf16 and f16 to f32 and round afterwards.
//
// docs/math.md has the largest error of each, measured. They only append to
// the block at hand (at_math_pow and others may use tables, as globals of the
// module), keep nothing, and never fail.
//
// Threads: the one that builds the function.
#ifndef ATOLL_CODEGEN_MATH_H_
#define ATOLL_CODEGEN_MATH_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codegen/handles.h"

// Where code goes.
typedef struct at_math {
  LLVMContextRef ctx;
  LLVMModuleRef module;  // for declarations and constant tables
  LLVMBuilderRef b;      // positioned; code goes here, without new blocks where
                         // that can be helped
  uint64_t cpu_features;  // base/cpu.h
} at_math;

// The form of the functions below, for tables of them.
typedef LLVMValueRef (*at_math_unary_fn)(const at_math *m, LLVMValueRef x);
typedef LLVMValueRef (*at_math_binary_fn)(const at_math *m, LLVMValueRef x,
                                          LLVMValueRef y);

// e^x; overflows to inf, underflows to denormals and 0.
LLVMValueRef at_math_exp(const at_math *m, LLVMValueRef x);
// e^x - 1, exact near 0 too.
LLVMValueRef at_math_expm1(const at_math *m, LLVMValueRef x);
// Natural logarithm: -inf at 0 of either sign, NaN below.
LLVMValueRef at_math_log(const at_math *m, LLVMValueRef x);
// log(1 + x), exact near 0 too: -inf at -1, NaN below.
LLVMValueRef at_math_log1p(const at_math *m, LLVMValueRef x);
// 1 / (1 + e^-x).
LLVMValueRef at_math_logistic(const at_math *m, LLVMValueRef x);
// Cube root, of negative numbers as well.
LLVMValueRef at_math_cbrt(const at_math *m, LLVMValueRef x);
// Correctly rounded; NaN below 0, -0 of -0.
LLVMValueRef at_math_sqrt(const at_math *m, LLVMValueRef x);
// 1 / sqrt(x): inf at 0 with the zero's sign, NaN below.
LLVMValueRef at_math_rsqrt(const at_math *m, LLVMValueRef x);
// Any finite x, in radians: large ones are reduced with all the bits of pi that
// it takes. NaN at infinities, as cos and tan.
LLVMValueRef at_math_sin(const at_math *m, LLVMValueRef x);
// As at_math_sin.
LLVMValueRef at_math_cos(const at_math *m, LLVMValueRef x);
// As at_math_sin.
LLVMValueRef at_math_tan(const at_math *m, LLVMValueRef x);
// Between -1 and 1.
LLVMValueRef at_math_tanh(const at_math *m, LLVMValueRef x);
// NaN beyond -1 and 1.
LLVMValueRef at_math_asin(const at_math *m, LLVMValueRef x);
// NaN beyond -1 and 1.
LLVMValueRef at_math_acos(const at_math *m, LLVMValueRef x);
// Between -pi/2 and pi/2.
LLVMValueRef at_math_atan(const at_math *m, LLVMValueRef x);
// Overflows to an infinity of x's sign.
LLVMValueRef at_math_sinh(const at_math *m, LLVMValueRef x);
// Overflows to inf.
LLVMValueRef at_math_cosh(const at_math *m, LLVMValueRef x);
// Any x; does not overflow before x does.
LLVMValueRef at_math_asinh(const at_math *m, LLVMValueRef x);
// NaN below 1.
LLVMValueRef at_math_acosh(const at_math *m, LLVMValueRef x);
// Infinite at -1 and 1, NaN beyond.
LLVMValueRef at_math_atanh(const at_math *m, LLVMValueRef x);
// The error function, between -1 and 1.
LLVMValueRef at_math_erf(const at_math *m, LLVMValueRef x);
// 1 - erf(x) without its cancellation; underflows for large x.
LLVMValueRef at_math_erfc(const at_math *m, LLVMValueRef x);
// log |gamma(x)|; inf at 0 and the negative integers.
LLVMValueRef at_math_lgamma(const at_math *m, LLVMValueRef x);
// The angle of (x, y) in [-pi, pi], with C's rules for zeros of either sign and
// infinities.
LLVMValueRef at_math_atan2(const at_math *m, LLVMValueRef y, LLVMValueRef x);
// x^y with C's rules: pow(x, 0) is 1 even for NaN, negative x needs a whole y.
LLVMValueRef at_math_pow(const at_math *m, LLVMValueRef x, LLVMValueRef y);
// x - y * trunc(x / y), exact, with the sign of x; NaN where y is 0 or x
// infinite.
LLVMValueRef at_math_fmod(const at_math *m, LLVMValueRef x, LLVMValueRef y);
// Inverse of erf: infinite at -1 and 1, NaN beyond.
LLVMValueRef at_math_erf_inv(const at_math *m, LLVMValueRef x);
// Derivative of log gamma; at the poles as at_digamma (base/special.h).
LLVMValueRef at_math_digamma(const at_math *m, LLVMValueRef x);
// n-th derivative of digamma at x, as at_polygamma (base/special.h).
LLVMValueRef at_math_polygamma(const at_math *m, LLVMValueRef n,
                               LLVMValueRef x);
// Hurwitz's zeta, as at_zeta (base/special.h).
LLVMValueRef at_math_zeta(const at_math *m, LLVMValueRef s, LLVMValueRef q);

// One call of an imported function (abi/imports.def) per lane; `name` is the
// f64 spelling, f32 adds an "f". For functions that are rare or hard to
// vectorise.
LLVMValueRef at_math_call(const at_math *m, const char *name, LLVMValueRef x,
                          LLVMValueRef y /* NULL: one argument */);
// An LLVM intrinsic overloaded on the type of x: "llvm.sqrt", "llvm.fma", ...
LLVMValueRef at_math_intrinsic(const at_math *m, const char *name,
                               LLVMValueRef *args, unsigned n);

#endif
