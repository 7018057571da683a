// The combining operations of reductions: which one an attribute names, and
// what it is in code (emit_reduce_kind.c).
#ifndef ATOLL_MOSAIC_EMIT_REDUCE_KIND_H_
#define ATOLL_MOSAIC_EMIT_REDUCE_KIND_H_

#include "mosaic/emit.h"

// The kinds of vector.multi_reduction and tpu's reductions.
typedef enum at_me_reduce_op {
  AT_ME_R_ADD,
  AT_ME_R_MUL,
  AT_ME_R_MIN,
  AT_ME_R_MAX,
  AT_ME_R_AND,
  AT_ME_R_OR,
  AT_ME_R_XOR,
  AT_ME_R_NONE
} at_me_reduce_op;

bool at_me_reduce_is(at_str kind, const char *text);  // begins with it
// NONE: no kind that is known.
at_me_reduce_op at_me_reduce_op_of(const at_mattr *kind);
// The same as an operation of codegen. NONE, which callers refuse, is a sum.
at_op at_me_reduce_hlo(at_me_reduce_op op);
// What changes nothing: a scalar.
LLVMValueRef at_me_reduce_identity(at_me *m, at_dtype t, at_me_reduce_op op);

#endif
