// Compiles and runs random programs.
#ifndef ATOLL_TEST_RANDOM_RUN_H_
#define ATOLL_TEST_RANDOM_RUN_H_

#include "exec/exec.h"
#include "hlo/hlo.h"

at_status run_start(const char *target);  // NULL: one chip
void run_stop(void);
// Owned by the caller: run_drop. `count`: adds the compiled steps to the
// coverage.
at_status run_load(const at_module *m, bool count, at_loaded **out);
void run_drop(at_loaded *l);  // NULL is nothing
// args: one per parameter of c, the entry; out: one per result, in `a`.
at_status run_once(at_arena *a, at_loaded *l, const at_comp *c,
                   const at_literal **args, const at_literal **out);
// The same on several chips; args and out: one list for each.
at_status run_devices(at_arena *a, at_loaded *l, uint32_t devices,
                      uint32_t num_args, const at_literal **const *args,
                      uint32_t num_results, const at_literal **const *out);

#endif
