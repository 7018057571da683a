// Random programs for differential tests: every seed gives the same verified
// module and the same arguments on every machine. A test compiles the module,
// runs it, and compares with at_eval.
#ifndef ATOLL_HLO_RANDOM_H_
#define ATOLL_HLO_RANDOM_H_

#include "hlo/hlo.h"

enum {  // families of ops; 0 in the options stands for all
  AT_RANDOM_EXACT =
      1 << 0,  // elementwise ops that IEEE or integers define exactly
  AT_RANDOM_FUNCTIONS =
      1 << 1,                 // exp, log, tanh, ...: compare within a tolerance
  AT_RANDOM_MOVE = 1 << 2,    // broadcast, slice, pad, dynamic slices, ...
  AT_RANDOM_REDUCE = 1 << 3,  // reduce, reduce_window, scan, sort, top_k
  AT_RANDOM_DOT = 1 << 4,     // dot_general, convolution
  AT_RANDOM_INDEX = 1 << 5,   // gather, scatter
  AT_RANDOM_CONTROL = 1 << 6  // while, if, case, call
};

typedef struct at_random_options {
  uint64_t seed;
  uint32_t nodes;        // about how many; 0: 20
  int64_t max_elements;  // of any value; 0: 2000
  uint32_t families;     // AT_RANDOM_*; 0: all
  // Bit 1 << at_dtype for each element type to use; 0: bool, 8 to 64 bit
  // integers, bf16, f16, f32, f64, complex<f32>. i1 and i32 appear anyway
  // (predicates, indices).
  uint64_t dtypes;
} at_random_options;

// A verified module whose entry takes a few parameters and returns up to 8
// values, among them every value that nothing else uses. Shapes have ranks 0 to
// 4, with odd and (rarely) zero sizes. Errors: RESOURCE_EXHAUSTED; INTERNAL
// means a bug here.
at_status at_random_module(at_arena *a, const at_random_options *o,
                           at_module **out);

// One literal per parameter of c. Small integers and moderate floats, so that
// results stay finite; with `special` also NaN, infinities, denormals,
// extremes.
at_status at_random_args(at_arena *a, const at_comp *c, uint64_t seed,
                         bool special, const at_literal ***out);

#endif
