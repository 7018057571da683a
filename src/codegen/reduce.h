// The accumulators of a job's reduce nodes: those that are made along a row are
// several vectors side by side and scalars for what is left.
#ifndef ATOLL_CODEGEN_REDUCE_H_
#define ATOLL_CODEGEN_REDUCE_H_

#include "codegen/job.h"
#include "codegen/reducer.h"

// Accumulators side by side at most; at_job.unroll is no more.
enum { AT_MAX_UNROLL = 8 };

// One reduce node while its kernel is written.
typedef struct at_rd {
  at_reducer r;
  // Its init values, scalars.
  at_val *init;
  // Of vectors, and of single elements behind the last one.
  at_accs acc[AT_MAX_UNROLL], tail;
  // Room for values of a step: 2 * count.
  at_val *tmp;
} at_rd;

// One for each of j->reduces, with their init values loaded. NULL: no memory,
// and `e` has failed.
at_rd *at_rd_make(at_em *e, const at_job *j);
// Fresh accumulators of e->lanes. Known operations start from their identity
// when parts are combined later; in order they start from the init value.
void at_rd_seed(at_em *e, at_rd *rd, at_accs *acc, bool identity);
// A step with rd->tmp of the lanes from `first` on: the others count already.
void at_rd_step_from(at_em *e, at_rd *rd, at_accs *acc, uint32_t first);
// All of `unroll` accumulators, their lanes and the tail as scalars in `acc`;
// e->lanes becomes 1.
void at_rd_join(at_em *e, at_rd *rd, uint32_t unroll, bool tail, at_val *acc);
// The reduce's results of what was joined: with the init value (unless it has
// it) and rounded.
void at_rd_finish(at_em *e, at_rd *rd, at_val *acc, bool has_init);

#endif
