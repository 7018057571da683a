// What whoever walks over a kernel's operations asks of them, beside mosaic.h.
//
// Memory: what is returned borrows from the tree or lives in the arena that is
// given. Threads: any; nothing is changed.
#ifndef ATOLL_MOSAIC_TREE_H_
#define ATOLL_MOSAIC_TREE_H_

#include "mosaic/mosaic.h"

// ---- Attributes
// The value as an integer; false: absent or not an integer (or bool).
bool at_mosaic_attr_int(const at_mop *op, const char *name, int64_t *out);
// Integers of a dense array (i8 to i64) or of an array of integers. false:
// absent or of another kind; then *out is untouched.
bool at_mosaic_attr_ints(const at_mattr *v, at_arena *a, at_dims *out);
// The text of an enum or other dialect attribute ("parallel"), or of a string.
bool at_mosaic_attr_text(const at_mattr *v, at_str *out);
// Sizes of the operand groups of a row with segments; false: there are none.
bool at_mosaic_segments(const at_mop *op, at_arena *a, at_dims *out);

// ---- Numbers
// The result of an operation on scalars (integers.c) of which those with
// `known` are the numbers x. false: it is not known.
bool at_mosaic_integer_of(const at_mop *op, const bool known[3],
                          const int64_t x[3], int64_t *out);

// -1: dynamic, or more than can be counted.
// Number of elements of a shape.
static inline int64_t at_mosaic_elements(at_dims d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < d.rank; i++)
    if (d.ptr[i] == AT_MDYN || __builtin_mul_overflow(n, d.ptr[i], &n))
      return -1;
  return n;
}

#endif
