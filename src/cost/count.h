// What a program asks of a machine, as XLA's cost analysis counts it.
//
// Threads: any, on a program that nobody changes.
#ifndef ATOLL_COST_COUNT_H_
#define ATOLL_COST_COUNT_H_

#include "hlo/hlo.h"

typedef struct at_count {
  double flops;  // multiply and add count as two
  double transcendentals;
  double bytes_accessed;  // operands read and results written, per kernel
} at_count;
// Sums over the entry and what it runs; a loop's body counts once, as in XLA.
at_count at_count_of(const at_module *m);

// Of one node, with all that it runs: all turns of a loop, as often as it says
// that it turns.
at_count at_count_of_node(const at_node *n);

// Turns of a WHILE that says so (trip_count), or counts a number of its state
// up to a limit; 1 with *known false for any other.
double at_count_trips(const at_node *loop, bool *known);

#endif
