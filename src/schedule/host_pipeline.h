// Which copies between the memories of a device and its host a loop's turns
// share, as the TPU compiler has them: a load whose source every turn finds
// where it is begins a turn ahead, a store that only the host reads ends a turn
// late. Either has a whole turn's work to hide behind.
//
// Errors: RESOURCE_EXHAUSTED, and what the cost model says of the loop.
// Memory: in the arena. Threads: one at a time on an arena.
#ifndef ATOLL_SCHEDULE_HOST_PIPELINE_H_
#define ATOLL_SCHEDULE_HOST_PIPELINE_H_

#include "cost/cost.h"

typedef struct at_host_pipeline {
  at_map copies;  // the COPY nodes
  double turns;   // of the loop; 0: `copies` is empty
} at_host_pipeline;
// Of the computation `c` on the target: none unless it is the body of a loop
// with a known number of turns, two at least.
at_status at_host_pipeline_of(const at_comp *c, const at_target *t, at_arena *a,
                              at_host_pipeline *out);
// Is n a copy that the turns share?
static inline bool at_host_pipeline_has(const at_host_pipeline *p,
                                        const at_node *n) {
  return p->turns > 0 && at_map_find_ptr(&p->copies, n);
}

#endif
