#include "base/work.h"

#include "base/arena.h"
#include "base/walk.h"

// The compiler's counters, one for each part of the code that runs as a whole.
// The linker names the ends of their section; there is none unless code was
// built so.
extern const uint64_t __start___llvm_prf_cnts[]
    __attribute__((weak, visibility("hidden")));
extern const uint64_t __stop___llvm_prf_cnts[]
    __attribute__((weak, visibility("hidden")));

// Sums the counters of code that was built with AT_COUNT_BLOCKS.
static uint64_t blocks_run(void) {
  uint64_t sum = 0;
  if (!__start___llvm_prf_cnts) return 0;
  for (const uint64_t *c = __start___llvm_prf_cnts; c < __stop___llvm_prf_cnts;
       c++)
    sum += *c;
  return sum;
}

at_work at_work_done(void) {
  return (at_work){at_walk_visits(), at_arena_bytes_ever(), blocks_run()};
}
