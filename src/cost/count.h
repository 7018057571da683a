// What a program asks of a machine: the one count of FLOPs, transcendentals and
// bytes, for cost_analysis(), for profiles and for estimates.
//
// FLOPs are those of values, however a machine cuts the program into kernels:
// each node counts once, also where several kernels compute it again.
//   products, convolutions   2 for each product that is summed
//   reductions, scans        1 for each element of the first operand
//   elementwise ops          1 for each element of the result; what is no
//                            polynomial counts as transcendental instead
//   Pallas kernels           what their cost_estimate says, else the products
//                            of their body
//   everything else          nothing
// What a loop's condition does with single elements is control, and counts
// nothing. Bytes are those of operands and results of each kernel as the
// program holds them, without padding.
//
// Errors: RESOURCE_EXHAUSTED alone. Threads: any, on a program that nobody
// changes.
#ifndef ATOLL_COST_COUNT_H_
#define ATOLL_COST_COUNT_H_

#include "base/map.h"
#include "hlo/hlo.h"

// What a node or a program asks for, in one run. Doubles: sums of large
// programs do not overflow.
typedef struct at_count {
  double flops;  // multiply and add count as two
  double transcendentals;
  double bytes_accessed;  // operands read and results written, per kernel
} at_count;

// Counts nodes of one computation, one after the other. Zeroed but for the
// arena, which must live longer, and what looks into Pallas kernels.
typedef struct at_counter {
  at_arena *arena;
  // FLOPs of a Pallas kernel that says nothing itself; NULL: none.
  // RESOURCE_EXHAUSTED alone.
  at_status (*products)(const void *user, const at_node *kernel, at_arena *a,
                        double *out);
  const void *user;
  at_map seen;  // what is counted, as it was before fusion
} at_counter;

// What a Pallas kernel says of itself (cost_estimate), which stands for all
// that it does. False: n is none, or says nothing.
bool at_count_said(const at_node *n, at_count *out);

// FLOPs and transcendentals of n alone; no bytes, and nothing for what holds
// other nodes (fusions, loops, branches).
at_count at_count_arithmetic(const at_node *n);

// Adds what kernel n of the counter's computation asks for, with all that it
// runs, to *sum: a loop for each of its turns, as often as it says that it
// turns. Nodes of it that were counted before ask for their bytes alone.
at_status at_count_kernel(at_counter *c, const at_node *n, at_count *sum);

// Sums over the entry, whose counter c is, and what it runs; a loop's body
// counts once, as in XLA.
at_status at_count_of(const at_module *m, at_counter *c, at_count *out);

// Turns of a WHILE that says so (trip_count), or counts a number of its state
// up to a limit; 1 with *known false for any other.
double at_count_trips(const at_node *loop, bool *known);

#endif
