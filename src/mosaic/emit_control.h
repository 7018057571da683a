// What branches, loops, regions and calls have in common.
#ifndef ATOLL_MOSAIC_EMIT_CONTROL_H_
#define ATOLL_MOSAIC_EMIT_CONTROL_H_

#include "mosaic/emit.h"

// The one block of the region; NULL: it has none.
// Borrowed from the tree.
at_mblock *at_me_block_of(const at_mop *op, uint32_t region);
// All operations but the last, which the caller deals with (*last NULL: the
// block is empty).
at_status at_me_emit_inner(at_me *m, at_mblock *b, at_mop **last);
// Does `yield` pass on as many values as op has results, behind the first
// `skip`?
// UNIMPLEMENTED with op's place if not: such input passed the verifier and has
// no code.
at_status at_me_check_yield(at_me *m, const at_mop *op, const at_mop *yield,
                            uint32_t skip);

#endif
