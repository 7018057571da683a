// What latency hiding does for a program on a target: its collectives as
// asynchronous pairs, scheduled, beside the order in which the program has
// them.
#ifndef ATOLL_SCHEDULE_OVERLAP_H_
#define ATOLL_SCHEDULE_OVERLAP_H_

#include "base/strbuf.h"
#include "cost/cost.h"
#include "schedule/lhs.h"

typedef struct at_overlap {
  uint32_t collectives;
  at_lhs_stats before;  // each done right after its start
  at_lhs_stats after;
} at_overlap;
// Sums over the entry and the bodies of its loops and branches, each scheduled
// by itself and counted as often as it runs (a loop of unknown turns: once);
// peaks are the largest. Collectives of one kind
// are in flight one at a time unless `options` says more (resources are
// at_collective_op). frontend_attributes force_early and force_delay ("true")
// are obeyed.
at_status at_overlap_of(const at_module *m, const at_target *t,
                        const at_lhs_options *options, at_arena *a,
                        at_overlap *out);
// Timeline of the scheduled program as Perfetto's JSON: one lane of work, one for
// each kind of collective. Loops are shown with their first turn inside.
at_status at_overlap_trace(const at_module *m, const at_target *t,
                           const at_lhs_options *options, at_arena *a,
                           at_strbuf *out);
// The same, and gives the program the order found: collectives with work to hide
// behind become asynchronous ops with an async_done.
at_status at_overlap_apply(at_module *m, const at_target *t,
                           const at_lhs_options *options, at_arena *a,
                           at_overlap *out);

#endif
