// Products under construction: emit_dot.c calls for whole ones, emit_dot_rows.c
// for a few rows at a time.
#ifndef ATOLL_MOSAIC_EMIT_DOT_H_
#define ATOLL_MOSAIC_EMIT_DOT_H_

#include "mosaic/emit.h"
#include "mosaic/matmul.h"

// A dimension of the whole product: its size and its strides, in elements.
typedef struct at_me_axis {
  int64_t size;
  at_me_num a, b, c;
} at_me_axis;
// The dimensions of one kind (batch, rows, columns, summed), outermost first,
// already merged where memory allows.
typedef struct at_me_axes {
  uint32_t n;
  at_me_axis x[AT_ME_RANK];
} at_me_axes;

// A product c (+)= a b under construction. Only the innermost axis of each kind
// goes into the call; the others are loops around it. Lives in the function's
// arena.
typedef struct at_me_product {
  const at_mop *op;
  at_me_ref a, b, c;
  at_me_axes batch, m, n, k;
  bool accumulate, round;
  bool later;          // than now: see at_core_dot_finish
  LLVMValueRef first;  // where it holds, c is overwritten; NULL: never
} at_me_product;

// Adds a dimension inside the last one; merges the two where memory allows.
void at_me_add_axis(at_me_axes *s, at_me_axis x);
// p + i * stride elements of so many bytes.
LLVMValueRef at_me_moved(at_me *m, LLVMValueRef p, uint32_t bytes, at_ix i,
                         at_me_num stride);
// An at_core_dot of the innermost axes of each kind.
LLVMValueRef at_me_dot_record(at_me *m, const at_me_product *p,
                              bool accumulate);
// The dimension numbers of op for operands of these shapes; false: they do not
// fit.
bool at_me_numbers_of(const at_mop *op, const at_me_node *a,
                      const at_me_node *b, at_mproduct_numbers *x);
// A widened bf16 is rounded to itself: the product may read it directly.
// Yields n or its operand, borrowed.
at_me_node *at_me_narrow_source(at_me_node *n);
// The rows of this turn.
// One turn of a loop over rows computes m->rows->step rows of c, from operands
// that at_me_dot_rows_pack packed or from a's rows of this turn. Changes *p.
void at_me_dot_call_rows(at_me *m, at_me_product *p, bool accumulate);

#endif
