// Counts what the random programs reached.
#ifndef ATOLL_TEST_RANDOM_COVERAGE_H_
#define ATOLL_TEST_RANDOM_COVERAGE_H_

#include "exec/exec.h"
#include "hlo/hlo.h"

void coverage_count(const at_module *m);        // ops by dtype, as written
void coverage_count_steps(const at_loaded *l);  // what they were compiled to
void coverage_print(void);

#endif
