// What latency hiding does for a program on a target: its collectives as
// asynchronous pairs, scheduled, beside the order in which the program has
// them.
//
// Errors: what the cost model says of an op or a target, at_lhs_run's, and
// RESOURCE_EXHAUSTED.
// Memory: in `a`, and nodes in the module's arena.
// Threads: one at a time on a module that is changed.
#ifndef ATOLL_SCHEDULE_OVERLAP_H_
#define ATOLL_SCHEDULE_OVERLAP_H_

#include "base/strbuf.h"
#include "cost/cost.h"
#include "schedule/lhs.h"

typedef struct at_overlap {
  uint32_t collectives;
  uint32_t host_copies;  // between the memories of a device and its host
  at_lhs_stats before;   // each done right after its start
  at_lhs_stats after;
} at_overlap;
// Sums over the entry and the bodies of its loops and branches, each scheduled
// by itself and counted as often as it runs (a loop of unknown turns: once);
// peaks are the largest. Collectives of one kind
// are in flight one at a time unless `options` says more (resources are
// at_collective_op); so are copies to the host, and copies from it.
// frontend_attributes force_early and force_delay ("true") are obeyed.
at_status at_overlap_of(const at_module *m, const at_target *t,
                        const at_lhs_options *options, at_arena *a,
                        at_overlap *out);
// What at_overlap_of is asked for a program that only runs on the target: four
// fifths of a device's memory.
at_lhs_options at_overlap_options(const at_target *t);

// When what happens for a node begins and ends, from its computation's begin
// on; of a collective or copy, its transfer.
typedef struct at_overlap_when {
  double begin, end;
} at_overlap_when;
// Of one computation in the order found: *of, node -> at_overlap_when in `a`,
// and what it takes in all.
at_status at_overlap_place(const at_comp *c, const at_target *t,
                           const at_lhs_options *options, at_arena *a,
                           at_map *of, double *seconds);

// Timeline of the scheduled program as Perfetto's JSON: one lane of work, one
// for each kind of collective. Loops are shown with their first turn inside.
at_status at_overlap_trace(const at_module *m, const at_target *t,
                           const at_lhs_options *options, at_arena *a,
                           at_strbuf *out);
// The same, and gives the program the order found: collectives with work to
// hide behind become asynchronous ops with an async_done.
at_status at_overlap_apply(at_module *m, const at_target *t,
                           const at_lhs_options *options, at_arena *a,
                           at_overlap *out);

// Makes the op asynchronous: an async_done at the end of `c` has all its
// results, for all who used them.
at_status at_overlap_split(at_comp *c, at_node *n, at_node **out_done);

// Calls that another processor runs, one after the other, beside the rest.
typedef struct at_beside {
  bool (*is_call)(const at_node *n);
  double (*seconds)(const at_node *n);
  double least_seconds;  // to be gained, or an order stays as it was
} at_beside;
// Orders the entry and the bodies of its loops and branches so that calls begin
// as early as their operands are there, and who reads their results comes as
// late as there is other work; then they are asynchronous. A call that reads an
// earlier one's results reads them directly, and who is not a call those of its
// async_done. Where that gains too little the order stays. `*out_calls`: how
// many became asynchronous.
at_status at_overlap_beside(at_module *m, const at_target *t,
                            const at_beside *b, at_arena *a,
                            uint32_t *out_calls);

#endif
