// Dimensions of a data movement taken together where nothing tells them apart:
// the digits that its index map needs. Used to choose loops and to emit the
// map.
#ifndef ATOLL_CODEGEN_GROUPS_H_
#define ATOLL_CODEGEN_GROUPS_H_

#include "hlo/hlo.h"

// Dimensions of a value, and digits of a space, at most; at_cg_supports refuses
// more.
enum { AT_CG_MAX_RANK = 32 };

// Major to minor. Dimensions of size 1 that say nothing are in no group.
typedef struct at_groups {
  uint32_t n;
  struct {
    uint32_t first, last;  // result dimensions, inclusive
    int64_t extent;        // product of their sizes
    int64_t inner;         // product of all but the first's
  } g[AT_CG_MAX_RANK];
} at_groups;

// Of the result of n: any op; one group per dimension when nothing is known.
void at_groups_of(const at_node *n, at_groups *out);
// Cuts groups of a result of type t where a place's digits (major to minor)
// are cut: what was known apart stays apart. t has no dimension of size 0.
void at_groups_split(at_groups *g, const at_type *t, const int64_t *extent,
                     uint32_t digits);
// Whether result element i is operand element i, in row-major order
// (elementwise, reshape, copy, ...), for operands with the result's element
// count.
bool at_is_linear(const at_node *n);

#endif
