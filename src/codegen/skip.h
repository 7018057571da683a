// What a node skips of its operands: where nothing but slices reads an operand,
// the elements before the first that any of them reads. The address of that
// element can be passed instead, so that one kernel serves all nodes that
// differ in where their slices begin.
#ifndef ATOLL_CODEGEN_SKIP_H_
#define ATOLL_CODEGEN_SKIP_H_

#include "hlo/hlo.h"

// Made for one node, in an arena; constant then.
typedef struct at_skips {
  at_map of;  // operand, or the fusion's parameter for it -> int64_t[rank]
  // Per operand of the node: elements before the first that is read, in row-
  // major order; 0: none.
  int64_t *elements;
} at_skips;

// alias: as in at_cg_node, or NULL. An operand that is written is never skipped
// into. RESOURCE_EXHAUSTED alone.
at_status at_skips_find(at_arena *a, const at_node *n, const int32_t *alias,
                        at_skips *out);
// Indices by which slices of `source` begin earlier; NULL: none.
const int64_t *at_skips_of(const at_skips *s, const at_node *source);

#endif
