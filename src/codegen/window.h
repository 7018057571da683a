// Lanes that lie at known distances near each other in memory: every third
// element, three by three the same one, the channels of pixels in another
// order.
#ifndef ATOLL_CODEGEN_WINDOW_H_
#define ATOLL_CODEGEN_WINDOW_H_

#include "codegen/emit.h"

// Vectors that a window has at most: each is a load and a shuffle.
enum { AT_WINDOW_VECTORS = 4 };

// What each lane adds to the base and c of a; false: it is data, or some lanes
// are not used. out: room for e->lanes of them.
bool at_ix_offsets(at_em *e, const at_ix *a, int64_t *out);
// a with an index of known lanes in the form that says the most: steps of one
// size are no vector.
at_ix at_ix_settle(at_em *e, at_ix a);
// The index of lane l is a's base and c plus at[l], which is not negative.
LLVMValueRef at_ix_const_lanes(at_em *e, const int64_t *at);

// Loads lanes of type elem by whole vectors and shuffles. NULL: they lie too
// far apart, or nobody knows how far. Touches nothing outside of the lowest
// and the highest lane; with a mask, no lane that is not used.
LLVMValueRef at_em_load_window(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem,
                               at_ix lin, bool invariant);

// The elements at `lin`, which has no mask; lane i's lies right behind that of
// lane i - 1 if bit i of `follows` is set: one load for each run of lanes.
// invariant: as at_em_load's.
LLVMValueRef at_em_load_runs(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem,
                             at_ix lin, uint64_t follows, bool invariant);

#endif
