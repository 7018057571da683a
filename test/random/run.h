// Compiles and runs random programs.
#ifndef ATOLL_TEST_RANDOM_RUN_H_
#define ATOLL_TEST_RANDOM_RUN_H_

#include "hlo/hlo.h"

at_status run_start(void);
void run_stop(void);
// args: one per parameter of m's entry; out: one per result, in `a`. `count`:
// adds the compiled steps to the coverage.
at_status run_module(at_arena *a, const at_module *m, const at_literal **args,
                     bool count, const at_literal **out);

#endif
