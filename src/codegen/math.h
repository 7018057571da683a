// Transcendental functions as LLVM instructions. Each takes f32 or f64 values,
// scalar or vector of any width, and returns a value of the same type. They
// work elementwise, do not trap, and follow the usual limits (log(-1) is NaN,
// exp(-inf) is 0, NaN in is NaN out). Nothing here knows about hlo types:
// callers widen bf16 and f16 to f32 and round afterwards.
#ifndef ATOLL_CODEGEN_MATH_H_
#define ATOLL_CODEGEN_MATH_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codegen/handles.h"

typedef struct at_math {
  LLVMContextRef ctx;
  LLVMModuleRef module;  // for declarations and constant tables
  LLVMBuilderRef b;      // positioned; code goes here, without new blocks where
                         // that can be helped
  uint64_t cpu_features;  // base/cpu.h
} at_math;

typedef LLVMValueRef (*at_math_unary_fn)(const at_math *m, LLVMValueRef x);
typedef LLVMValueRef (*at_math_binary_fn)(const at_math *m, LLVMValueRef x,
                                          LLVMValueRef y);

LLVMValueRef at_math_exp(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_expm1(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_log(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_log1p(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_logistic(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_cbrt(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_sqrt(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_rsqrt(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_sin(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_cos(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_tan(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_tanh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_asin(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_acos(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_atan(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_sinh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_cosh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_asinh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_acosh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_atanh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_erf(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_erfc(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_lgamma(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_atan2(const at_math *m, LLVMValueRef y, LLVMValueRef x);
LLVMValueRef at_math_pow(const at_math *m, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef at_math_fmod(const at_math *m, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef at_math_erf_inv(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_digamma(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_polygamma(const at_math *m, LLVMValueRef n,
                               LLVMValueRef x);
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
