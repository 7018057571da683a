// Compiles and runs random programs.
#ifndef ATOLL_TEST_RANDOM_RUN_H_
#define ATOLL_TEST_RANDOM_RUN_H_

#include "exec/exec.h"
#include "hlo/hlo.h"

at_status run_start(void);
void run_stop(void);
// Owned by the caller: run_drop. `count`: adds the compiled steps to the
// coverage.
at_status run_load(const at_module *m, bool count, at_loaded **out);
void run_drop(at_loaded *l);  // NULL is nothing
// args: one per parameter of c, the entry; out: one per result, in `a`.
at_status run_once(at_arena *a, at_loaded *l, const at_comp *c,
                   const at_literal **args, const at_literal **out);

#endif
