// The cases of testdata/engine_cases.txt, for the tests of the engine and of
// the evaluator.
#ifndef ATOLL_SPARSECORE_CASES_TEST_UTIL_H_
#define ATOLL_SPARSECORE_CASES_TEST_UTIL_H_

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <string.h>

#include "abi/dtype.h"
#include "abi/sparsecore.h"
#include "sparsecore/engine.h"

// kMaxBufs: an update with minibatches has the most.
enum { kMaxDevices = 4, kMaxBufs = 12 };

// A case as the file has it; bufs in the engine's order, owned by the case.
// `x` with its tail: launches, places and constants fit `space`.
typedef struct sc_case {
  union {
    at_x_sparse x;
    uint8_t space[2048];
  };
  void *bufs[kMaxDevices][kMaxBufs];
  // Results by device: a lookup has one, an update one for each of its two
  // tables.
  void *want[kMaxDevices][2];
  uint32_t num_bufs;
} sc_case;

// False: the file has ended.
// The step of the case without its optimizer.
// *c is overwritten; on true, free_case takes it back.
// Fails the test where a line of the file cannot be read.
bool read_case(FILE *f, sc_case *c);

// A buffer that stands twice must be NULL once.
// Results and what was expected alike.
void free_case(sc_case *c);

// Behind the comment of the first line; the caller closes it.
// AT_SOURCE_DIR is set by ctest; without it the tests run from the top of the
// tree.
// Never NULL: a missing file fails the test.
FILE *open_cases(void);

#endif
