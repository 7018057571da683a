// What it takes to run the cases: scratch memory and an optimizer.
#ifndef ATOLL_SPARSECORE_RUN_TEST_UTIL_H_
#define ATOLL_SPARSECORE_RUN_TEST_UTIL_H_

#include "base/arena.h"
#include "base/parallel.h"
#include "sparsecore/cases_test_util.h"

// No step asks for more.
enum { kScratchBlocks = 64 };

// Memory of one run.
// Zero: none.
typedef struct scratch {
  void *blocks[kScratchBlocks];
  int count;
} scratch;
// An at_par's scratch function; NULL once kScratchBlocks are out.
// owner: the scratch. Blocks are 64-byte aligned and not cleared.
void *take(void *owner, size_t bytes);

// slot += gradient; table -= rate x slot.
// The optimizer as a kernel over columns.
// bufs: gradient, table, slot, rate, as set_optimizer says.
void momentum(void *const *bufs, int64_t begin, int64_t end);

// read_case with the optimizer of updates.
// False: the file has ended.
// On true the case is the caller's, to be freed by free_case.
bool next_case(FILE *f, sc_case *c);

// The step has ended; what it was given is gone.
void free_scratch(scratch *s);

#endif
