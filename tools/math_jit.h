// Vector functions compiled as loops over arrays, for the tools that measure
// them.
#ifndef ATOLL_TOOLS_MATH_JIT_H_
#define ATOLL_TOOLS_MATH_JIT_H_

#include "codegen/emit.h"

enum { MJ_BLOCK = 4096, MJ_MAX = 4 };

// What to compile: one of `unary`, `binary`, or `op` on complex numbers (real
// and imaginary parts are arrays of their own).
typedef struct mj_function {
  bool wide;  // f64, else f32
  at_math_unary_fn unary;
  at_math_binary_fn binary;
  at_op op;
  int operands;  // of op
} mj_function;

typedef struct mj_code {
  LLVMContextRef ctx;
  void *engine;
  // MJ_BLOCK elements: in[0], in[1], ... to out[0], out[1].
  void (*run)(const void *const *in, void *const *out);
} mj_code;

mj_code mj_compile(const mj_function *f);  // exits on failure
void mj_discard(mj_code *c);

#endif
