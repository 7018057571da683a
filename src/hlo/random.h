// Random programs for differential tests: every seed gives the same verified
// module and the same arguments on every machine. A test compiles the module,
// runs it, and compares with at_eval.
//
// random.def lists what there is, one row per op and form of it, with the
// element types that the form takes. A row with one of its types is a pair.
// Programs walk through all pairs in a random order and start again, so that n
// steps meet each of p pairs at least n / p times, rounded down.
//
// Memory: modules and arguments live in the arena that is given; texts of the
// table are static.
// Threads: any; pure functions of the seed.
//
// Errors: what a line says, and RESOURCE_EXHAUSTED.
#ifndef ATOLL_HLO_RANDOM_H_
#define ATOLL_HLO_RANDOM_H_

#include "hlo/hlo.h"

// Families may be joined by |.
enum {  // families of ops; 0 in the options stands for all
  AT_RANDOM_EXACT =
      1 << 0,  // elementwise ops that IEEE or integers define exactly
  AT_RANDOM_FUNCTIONS =
      1 << 1,                 // exp, log, tanh, ...: compare within a tolerance
  AT_RANDOM_MOVE = 1 << 2,    // broadcast, slice, pad, dynamic slices, ...
  AT_RANDOM_REDUCE = 1 << 3,  // reduce, reduce_window, scan, sort, norms
  AT_RANDOM_DOT = 1 << 4,     // dot_general, convolution
  AT_RANDOM_INDEX = 1 << 5,   // gather, scatter
  AT_RANDOM_CONTROL =
      1 << 6,                // while, if, case, call, one device's collectives
  AT_RANDOM_LINALG = 1 << 7  // fft, factorisations, random bits
};

// What is in a program. All zero but the seed: everything.
typedef struct at_random_options {
  uint64_t seed;
  uint64_t first;        // first step in the walk; 0: seed * nodes
  uint32_t nodes;        // steps; 0: 20. Fewer give a prefix of the program
  int64_t max_elements;  // of any value, about; 0: 2000
  uint32_t families;     // AT_RANDOM_*; 0: all
  // Bit 1 << at_dtype for each element type of the pairs; 0: all. Others may
  // appear as operands (predicates, indices).
  uint64_t dtypes;
  const char *only;  // NULL, or the name of the op that every step has
} at_random_options;

// A verified module whose entry takes a few parameters and returns up to 8
// values, among them every value that nothing else uses. Shapes have ranks 0 to
// 5, with odd and (rarely) zero sizes. Errors: RESOURCE_EXHAUSTED;
// INVALID_ARGUMENT: no pair is left by the options; INTERNAL: a bug here.
at_status at_random_module(at_arena *a, const at_random_options *o,
                           at_module **out);

// One literal per parameter of c. Small integers and moderate floats, so that
// results stay finite; with `special` also NaN, infinities, denormals,
// extremes.
at_status at_random_args(at_arena *a, const at_comp *c, uint64_t seed,
                         bool special, const at_literal ***out);

// ---- The table
typedef struct at_random_pair {
  uint32_t row;  // of random.def
  at_dtype dtype;
} at_random_pair;
// Rows of random.def; they are numbered from 0.
uint32_t at_random_num_rows(void);
// The op that a row makes.
at_op at_random_row_op(uint32_t row);
// Which form of the op the row makes.
const char *at_random_row_variant(uint32_t row);  // "" for most
// The element types of the row,
uint64_t at_random_row_types(uint32_t row);  // bit 1 << at_dtype
// Why random programs never have this op; NULL when they do, or when random.def
// says nothing.
const char *at_random_reason(at_op op);
// Pairs that the options leave, of all seeds.
uint32_t at_random_num_pairs(const at_random_options *o);
// Step number k of the walk.
at_random_pair at_random_nth(const at_random_options *o, uint64_t k);
// The element type by which a node is counted: of its first result, or of the
// operand that decides where that one says little (compare, select, ...).
at_dtype at_random_dtype_of(const at_node *n);

#endif
