// Latency-hiding order: asynchronous work (collectives, copies) starts early
// and is waited for late, so that other work lies between.
//
// Works on a plain graph, so that it serves programs of any target. An
// asynchronous op is two instructions: a start, whose result only its done
// uses, and the done.
//
// Errors: INVALID_ARGUMENT: a cycle, or numbers that name no instruction;
// RESOURCE_EXHAUSTED.
// Memory: results live in the arena that is given, the graph is borrowed.
// Threads: any; pure functions.
#ifndef ATOLL_SCHEDULE_LHS_H_
#define ATOLL_SCHEDULE_LHS_H_

#include "base/arena.h"
#include "base/status.h"

typedef enum at_lhs_kind {
  AT_LHS_COMPUTE,
  AT_LHS_NOP,  // takes no time; placed at once
  AT_LHS_START,
  AT_LHS_DONE
} at_lhs_kind;

enum { AT_LHS_RESOURCES = 16 };

typedef struct at_lhs_node {
  at_lhs_kind kind;
  double cost;         // seconds on the compute stream
  double latency;      // START: seconds from its end until the done can end
  uint32_t partner;    // START: its done; DONE: its start
  uint32_t resource;   // START and DONE: < AT_LHS_RESOURCES
  int64_t bytes;       // of the results, live from here to the last reader;
                       // those of a DONE are its START's, which says the same
  bool output;         // the results live to the end
  int32_t force;       // 1: as early as possible; -1: as late as possible
  int32_t preference;  // among equals, larger first from the end
  const uint32_t *reads;  // instructions whose results it reads, each once
  uint32_t num_reads;
  const uint32_t *after;  // instructions that must come before it, no data
  uint32_t num_after;
} at_lhs_node;

typedef struct at_lhs_options {
  uint32_t limits[AT_LHS_RESOURCES];  // in flight at once; 0: 1
  // Resources of one number are one link: of k such ops in flight each gets on
  // at a k-th. Below AT_LHS_RESOURCES; 0: none, each gets on as if alone.
  uint8_t link[AT_LHS_RESOURCES];
  bool in_turn[AT_LHS_RESOURCES];  // one transfer at a time: those in flight
                                   // wait in the order of their starts
  int64_t memory_limit;            // bytes; 0: none
  double growth;    // the limit is also so many times the given order's peak,
                    // or 64 MiB where that is more; 0: it is not
  uint32_t reruns;  // with 0.9 of the limit each, while the peak is over it
} at_lhs_options;

typedef struct at_lhs_stats {
  double seconds;  // of the whole order
  double exposed;  // of them, waiting for asynchronous work
  int64_t peak;    // bytes live at once
  uint32_t pairs;  // asynchronous ops with other work between start and done
} at_lhs_stats;

// `nodes` stand in an order that respects every edge (each `reads` and `after`
// is smaller than the reader); INVALID_ARGUMENT names the first that does not.
// *order lists all of them, first to run first, in `a`. The order found is kept
// only where it is faster than the one given (and within the memory limit where
// that one is).
at_status at_lhs_run(const at_lhs_node *nodes, uint32_t n,
                     const at_lhs_options *o, at_arena *a, uint32_t **order,
                     at_lhs_stats *stats);
// What an order takes. `order` NULL: as given.
at_status at_lhs_simulate(const at_lhs_node *nodes, uint32_t n,
                          const at_lhs_options *o, const uint32_t *order,
                          at_arena *a, at_lhs_stats *stats);
// When each instruction begins and ends in that order; of a START, its
// transfer.
at_status at_lhs_times(const at_lhs_node *nodes, uint32_t n,
                       const at_lhs_options *o, const uint32_t *order,
                       at_arena *a, double **begin, double **end);

#endif
