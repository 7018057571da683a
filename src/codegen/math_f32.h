// Vector bodies for f32; math_basic.c chooses between them and library calls.
#ifndef ATOLL_CODEGEN_MATH_F32_H_
#define ATOLL_CODEGEN_MATH_F32_H_

#include "codegen/math.h"

LLVMValueRef at_math_f32_exp(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_expm1(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_logistic(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_tanh(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_log(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_log1p(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_erf(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_sin(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_cos(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_tan(const at_math *m, LLVMValueRef x);
LLVMValueRef at_math_f32_pow(const at_math *m, LLVMValueRef x, LLVMValueRef y);

#endif
