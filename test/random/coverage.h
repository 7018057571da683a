// Counts what the random programs reached.
#ifndef ATOLL_TEST_RANDOM_COVERAGE_H_
#define ATOLL_TEST_RANDOM_COVERAGE_H_

#include "exec/exec.h"
#include "hlo/random.h"

// A node whose results were judged, and how far they were off at most, in units
// of its class.
void coverage_judged(const at_node *n, double worst);
// A step, all of it judged on `sets` sets of arguments.
void coverage_pair(at_random_pair p, uint32_t sets);
void coverage_count_steps(const at_loaded *l);  // what they were compiled to
void coverage_print(void);
void coverage_table(void);  // tab-separated, all counts

#endif
