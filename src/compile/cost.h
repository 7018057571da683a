// What a program asks of a machine, as XLA's cost analysis counts it.
#ifndef ATOLL_COMPILE_COST_H_
#define ATOLL_COMPILE_COST_H_

#include "hlo/hlo.h"

typedef struct at_cost {
  double flops;            // multiply and add count as two
  double transcendentals;
  double bytes_accessed;   // operands read and results written, per kernel
} at_cost;
// Sums over the entry and what it runs; a loop's body counts once, as in XLA.
at_cost at_cost_of(const at_module *m);

#endif
