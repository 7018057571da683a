// A sum over all of an array goes row by row, then over the rows' sums, where
// its elements are made from reductions of the same rows: the rows fuse, and
// the array is not stored.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };
// Shorter rows gain nothing.
enum { SHORTEST = 16 };

// Does n reduce an array along its last dimension only?
static bool along_rows(const at_node *n) {
  if (n->op != AT_OP_REDUCE || n->num_operands != 2) return false;
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  return dims.rank == 1 &&
         dims.ptr[0] + 1 == at_value_type(n->operands[0])->rank;
}

// Does n reduce all dimensions of an array of rows by an op that may be taken
// apart without rounding in between?
static bool over_all(const at_node *n) {
  if (n->op != AT_OP_REDUCE || n->num_operands != 2) return false;
  const at_type *t = at_value_type(n->operands[0]);
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  at_op op = at_region_binary(n->regions[0]);
  bool narrow = at_is_float(t->dtype) && at_dtype_bytes(t->dtype) < 4;
  return at_type_is_static(t) && t->rank >= 2 && t->rank <= MAX_RANK &&
         dims.rank == t->rank && t->dims[t->rank - 1] >= SHORTEST &&
         t->dtype == n->types[0].dtype && !narrow &&
         (op == AT_OP_ADD || op == AT_OP_MAXIMUM || op == AT_OP_MINIMUM) &&
         at_is_identity(op, n->operands[1]);
}

// Is x, of rows like those of t, made elementwise from a reduction of such
// rows? Looks at a bounded number of nodes.
static bool made_from_rows(const at_node *x, const at_type *t) {
  enum { MOST = 64 };
  const at_node *seen[MOST];
  uint32_t num = 1;
  seen[0] = x;
  for (uint32_t i = 0; i < num; i++) {
    const at_node *n = seen[i];
    if (along_rows(n) && at_dims_eq(at_type_dims(at_value_type(n->operands[0])),
                                    at_type_dims(t)))
      return true;
    if (!at_op_is(n->op, AT_ELEMENTWISE) && n->op != AT_OP_BROADCAST_IN_DIM &&
        n->op != AT_OP_RESHAPE)
      continue;
    for (uint32_t k = 0; k < n->num_operands; k++) {
      const at_node *o = n->operands[k].node;
      uint32_t s = 0;
      while (s < num && seen[s] != o) s++;
      if (s == num && num < MOST) seen[num++] = o;
    }
  }
  return false;
}

static at_status by_rows(at_rw *r, at_node *n) {
  if (!over_all(n)) return AT_OK;
  at_value x = n->operands[0], v;
  const at_type *t = at_value_type(x);
  if (!made_from_rows(x.node, t)) return AT_OK;
  at_op op = at_region_binary(n->regions[0]);
  int64_t dims[MAX_RANK];
  uint32_t last = t->rank - 1;
  for (uint32_t d = 0; d < last; d++) dims[d] = d;
  int64_t row = last;
  AT_TRY(at_mk_reduce(n, op, x, n->operands[1], (at_dims){&row, 1}, &v));
  AT_TRY(at_mk_reduce(n, op, v, n->operands[1], (at_dims){dims, last}, &v));
  return at_fwd_set(r, n, 0, v);
}

at_status at_pass_sums(at_module *m, const at_pass_options *o) {
  return o->small_products ? at_rw_each(m, o, by_rows) : AT_OK;
}
