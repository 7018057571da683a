// The body of a reduction as a step on accumulators.
#ifndef ATOLL_CODEGEN_REDUCER_H_
#define ATOLL_CODEGEN_REDUCER_H_

#include "codegen/emit.h"

typedef struct at_reducer {
  const at_node *node;  // REDUCE, REDUCE_WINDOW, SCAN, SELECT_AND_SCATTER
  const at_comp *body;
  uint32_t count;   // values reduced together
  at_op op;         // ADD, MULTIPLY, MAXIMUM, MINIMUM, AND, OR, XOR on one
                    // value; PARAMETER: any other body
  bool free_order;  // lanes and blocks may be combined in another order
  bool by_index;    // but of two the one with the smaller value 1 goes first
} at_reducer;

at_reducer at_reducer_of(const at_node *n, const at_comp *body);
// One value per input. Sums of narrow floats stay in f32 until finish.
void at_reducer_step(at_em *e, const at_reducer *r, at_val *acc,
                     const at_val *x);
// Two accumulators whose elements may interleave, into acc.
void at_reducer_merge(at_em *e, const at_reducer *r, at_val *acc, at_val *x);
// What accumulators of lanes and blocks start from: the operation's identity
// when it is known, else the init values (splat).
void at_reducer_seed(at_em *e, const at_reducer *r, const at_val *init,
                     at_val *out);
void at_reducer_finish(at_em *e, const at_reducer *r, at_val *acc);
at_dtype at_reducer_dtype(const at_reducer *r, uint32_t i);
// The type that keeps an unfinished accumulator: f32 for sums of narrow floats.
at_dtype at_reducer_partial_dtype(const at_reducer *r, uint32_t i);
// Combines the lanes of acc into scalars (e->lanes becomes 1).
void at_reducer_fold_lanes(at_em *e, const at_reducer *r, at_val *acc);

// Accumulators in memory, which become registers.
typedef struct at_accs {
  uint32_t count;
  LLVMTypeRef *type;
  LLVMValueRef *re, *im;
} at_accs;
// Of e->lanes.
at_accs at_accs_make(at_em *e, const at_reducer *r);
at_accs at_accs_of(at_em *e, const at_dtype *types, uint32_t count);
void at_accs_put(at_em *e, const at_accs *a, const at_val *v);
void at_accs_get(at_em *e, const at_accs *a, at_val *v);
void at_accs_step(at_em *e, const at_accs *a, const at_reducer *r,
                  const at_val *x);
void at_accs_merge(at_em *e, const at_accs *a, const at_reducer *r, at_val *x);

#endif
