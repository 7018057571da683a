// The body of a reduction as a step on accumulators.
#ifndef ATOLL_CODEGEN_REDUCER_H_
#define ATOLL_CODEGEN_REDUCER_H_

#include "codegen/emit.h"

// Made on the stack by at_reducer_of; borrows node and body.
typedef struct at_reducer {
  // A REDUCE, REDUCE_WINDOW, SCAN or SELECT_AND_SCATTER.
  const at_node *node;
  const at_comp *body;
  // Values that are reduced together: results of the body.
  uint32_t count;
  // ADD, MULTIPLY, MAXIMUM, MINIMUM, AND, OR or XOR on one value; PARAMETER:
  // any other body.
  at_op op;
  // Lanes and blocks may be combined in another order than the evaluator's.
  bool free_order;
  // But of two accumulators the one with the smaller value 1 (an index) goes
  // first.
  bool by_index;
} at_reducer;

// Looks at the body: what it allows. body: one of n's regions.
at_reducer at_reducer_of(const at_node *n, const at_comp *body);
// acc = body(acc, x): one value per input, of e->lanes. Sums of narrow floats
// stay in f32 until finish.
void at_reducer_step(at_em *e, const at_reducer *r, at_val *acc,
                     const at_val *x);
// Two accumulators whose elements may interleave, into acc; x is spoiled. Only
// where the order is free.
void at_reducer_merge(at_em *e, const at_reducer *r, at_val *acc, at_val *x);
// What accumulators of lanes and blocks start from: the operation's identity
// when it is known, else the init values (splat). out: count values of
// e->lanes.
void at_reducer_seed(at_em *e, const at_reducer *r, const at_val *init,
                     at_val *out);
// Rounds the accumulators to the types of the results.
void at_reducer_finish(at_em *e, const at_reducer *r, at_val *acc);
// The type of value i, as the body has it.
at_dtype at_reducer_dtype(const at_reducer *r, uint32_t i);
// The type that keeps an unfinished accumulator in memory: f32 for sums of
// narrow floats.
at_dtype at_reducer_partial_dtype(const at_reducer *r, uint32_t i);
// Combines the lanes of acc into scalars (e->lanes becomes 1), by halves: the
// order is fixed by the number of lanes.
void at_reducer_fold_lanes(at_em *e, const at_reducer *r, at_val *acc);

// Accumulators in memory of the function's stack, which become registers. im[i]
// NULL: real.
typedef struct at_accs {
  uint32_t count;
  LLVMTypeRef *type;
  LLVMValueRef *re, *im;
} at_accs;
// For a reducer's values, of e->lanes, not yet written. On failure count is 0
// and e has failed.
at_accs at_accs_make(at_em *e, const at_reducer *r);
// The same for any types.
at_accs at_accs_of(at_em *e, const at_dtype *types, uint32_t count);
// Stores and loads all of them: v has `count` values.
void at_accs_put(at_em *e, const at_accs *a, const at_val *v);
void at_accs_get(at_em *e, const at_accs *a, at_val *v);
// A step, or a merge, on what they hold.
void at_accs_step(at_em *e, const at_accs *a, const at_reducer *r,
                  const at_val *x);
void at_accs_merge(at_em *e, const at_accs *a, const at_reducer *r, at_val *x);

#endif
