// A reduction under construction.
#ifndef ATOLL_MOSAIC_EMIT_REDUCE_H_
#define ATOLL_MOSAIC_EMIT_REDUCE_H_

#include "mosaic/emit_reduce_kind.h"

// Independent sums of one result, so that additions do not wait for each other.
// Their number is part of the order of the sum.
enum { AT_ME_REDUCE_UNROLL = 4 };

typedef struct at_me_reduction {
  // What is reduced.
  at_me_node *a;
  at_dtype type;  // of accumulators
  at_op op;
  // Minimum and maximum: beside a number a NaN loses.
  bool number_wins;
  // By dimension of a: those that the result has no more.
  bool reduced[AT_ME_RANK];
  LLVMValueRef identity;  // a scalar
  at_me_node *acc;        // joins in at the end, or NULL
  LLVMValueRef acc_scalar;
  const at_me_ref *out;  // NULL: a scalar, in `value`
  int64_t out_dim[AT_ME_RANK];
  // Rank and sizes of the result, for out.
  uint32_t out_rank;
  LLVMValueRef value;
  uint32_t lane_dim;  // has the lanes
  uint32_t lanes, unroll;
  double work;  // inside the loops that are open
  // Where the loops stand: an index for each dimension of a.
  at_ix ix[AT_ME_RANK];
  LLVMValueRef sum[AT_ME_REDUCE_UNROLL];  // on the stack
  LLVMValueRef nan;  // on the stack: lanes that saw a NaN; NULL: sums have it
} at_me_reduction;

// ---- Steps
// Both registers are of r->type, scalars or lanes; lanes are combined each by
// itself.
LLVMValueRef at_me_reduce_combine(at_me *m, const at_me_reduction *r,
                                  LLVMValueRef a, LLVMValueRef b);
// Of lanes > 1 a vector type.
LLVMTypeRef at_me_reduce_type(at_me *m, const at_me_reduction *r);  // of a sum
// Sum v, the u-th that is unrolled, is what the result has at r->ix.
void at_me_reduce_finish(at_me *m, at_me_reduction *r, LLVMValueRef v,
                         uint32_t u);
// All loops over r->a, whose parts that need loops of their own are computed.
void at_me_reduce_compute(at_me *m, at_me_reduction *r);
// The same by a function that is there once (emit_reduce_call.c). False: the
// reduction is none of these, and nothing is done.
bool at_me_reduce_called(at_me *m, const at_me_reduction *r);
// Columns of many rows (emit_reduce_strips.c), up to the one that is returned.
int64_t at_me_reduce_strips(at_me *m, at_me_reduction *r);

#endif
