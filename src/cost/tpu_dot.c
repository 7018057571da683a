// Which products the TPU compiler makes a multiplication and a sum, in the
// vector unit and without rounding. Read off products compiled one by one.
#include "cost/tpu.h"

// A product with shorter sides than this would leave the matrix unit idle.
enum { kShort = 64 };

// One operand of a dot_general, dimensions of size one left out.
typedef struct side {
  uint32_t batches, sums, free;  // dimensions; free: neither of the two
  int64_t longest_sum, longest_free;
  bool degenerate;  // has a free dimension of size one
} side;

// Counts the dimensions of one operand by their role.
static side side_of(const at_type *t, at_dims batch, at_dims sum) {
  side s = {0};
  for (uint32_t d = 0; d < t->rank; d++) {
    bool more = t->dims[d] != 1;
    if (at_dims_has(batch, d)) {
      s.batches += more;
    } else if (at_dims_has(sum, d)) {
      s.sums += more;
      s.longest_sum = AT_MAX(s.longest_sum, t->dims[d]);
    } else {
      s.free += more;
      s.longest_free = AT_MAX(s.longest_free, t->dims[d]);
      s.degenerate |= !more;
    }
  }
  return s;
}

bool at_tpu_is_sum_of_products(const at_node *n) {
  if (n->op != AT_OP_DOT_GENERAL) return false;
  const at_type *l = at_value_type(n->operands[0]);
  const at_type *r = at_value_type(n->operands[1]);
  if (!at_type_is_static(l) || !at_type_is_static(r)) return false;
  side a = side_of(l, at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS),
                   at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS));
  side b = side_of(r, at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS),
                   at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS));
  if (!a.sums || (!a.free && !b.free)) return true;
  if (a.free && b.free) return false;
  // A matrix and a vector. A vector that is written as a matrix of one row, and
  // one matrix with one sum: always. Others only where a side is short.
  const side *vector = a.free ? &b : &a, *matrix = a.free ? &a : &b;
  if (vector->degenerate || (!a.batches && a.sums == 1)) return true;
  return matrix->longest_free < kShort || matrix->longest_sum < kShort;
}
