// Kernels of one operation each, with what they leave in memory: the table of
// mosaic_ops_test.c.
#ifndef ATOLL_MOSAIC_OPS_SAMPLES_TEST_UTIL_H_
#define ATOLL_MOSAIC_OPS_SAMPLES_TEST_UTIL_H_

#include <stdint.h>

// The input's rows and columns, which fill no register.
enum { SAMPLE_ROWS = 5, SAMPLE_LANES = 37 };
// The function of the row and column that the input holds: small enough for
// every type.
int64_t sample_input(int64_t row, int64_t lane);

// Elements that nobody stores to are made of this byte, and are expected as
// this number.
enum { SAMPLE_UNTOUCHED = 0x77 };
#define SAMPLE_UNTOUCHED_ELEMENT INT64_MIN

// It runs to its end; it ends early; compiling it is refused, since there is no
// code; or since it is no valid program.
typedef enum sample_outcome { RUNS, ENDS, REFUSED, INVALID } sample_outcome;

typedef struct sample {
  const char *op;     // that it is a sample of
  const char *types;  // of elements, with spaces between
  int rows, lanes;    // of the output; rows 0: it has lanes alone
  int64_t (*want)(int row, int lane);  // RUNS only
  // Make %v of %x, the input (%in in memory), which is stored to %o; or store
  // to %o themselves. There are eight integers in %s (SMEM), four rows in %idx.
  // @ stands for the element type.
  const char *lines;
  sample_outcome outcome;
  // ENDS: why; REFUSED and INVALID: the message has it.
  const char *text;
  const char *told;  // to the core, at last; NULL: not looked at
} sample;

extern const sample samples[];
extern const uint32_t num_samples;

#endif
