// Custom calls that select the k largest or smallest become TOP_K.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

// A TOP_K of x along its last dimension: *values and *indices (s32).
static at_status mk_top_k(at_node *n, at_value x, int64_t k, bool largest,
                          at_value *values, at_value *indices) {
  at_attr attrs[2] = {at_attr_int(AT_ATTR_K, k),
                      at_attr_int(AT_ATTR_LARGEST, largest)};
  at_node_desc d = {.op = AT_OP_TOP_K,
                    .operands = &x,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = 2,
                    .loc = n->loc};
  at_node *fresh;
  AT_TRY(at_build(n->parent, n, &d, &fresh));
  *values = (at_value){fresh, 0};
  *indices = (at_value){fresh, 1};
  return AT_OK;
}

// Both results of n, if their types are what the call declares.
static at_status give(at_rw *r, at_node *n, at_value values, at_value indices) {
  // A foreign call's result types are its caller's word.
  if (!at_type_eq(at_value_type(values), &n->types[0]) ||
      !at_type_eq(at_value_type(indices), &n->types[1]))
    return at_fail_at(AT_INVALID_ARGUMENT, n,
                      "the results are not what its operands give");
  AT_TRY(at_fwd_set(r, n, 0, values));
  return at_fwd_set(r, n, 1, indices);
}

// (x) -> (values, indices) along the minor dimension.
static at_status exact(at_rw *r, at_node *n) {
  if (n->num_operands != 1 || n->num_results != 2) return AT_OK;
  const at_type *x = at_value_type(n->operands[0]), *y = &n->types[0];
  if (x->rank == 0 || y->rank != x->rank || n->types[1].dtype != AT_S32)
    return AT_OK;
  at_value v, i;
  AT_TRY(mk_top_k(n, n->operands[0], y->dims[y->rank - 1], true, &v, &i));
  return give(r, n, v, i);
}

// The dimension that is reduced: the one whose size changes, else the iota's.
static int64_t reduced_dim(const at_node *n) {
  const at_type *x = at_value_type(n->operands[0]), *y = &n->types[0];
  for (uint32_t i = 0; i < x->rank; i++)
    if (x->dims[i] != y->dims[i]) return i;
  const at_node *iota = n->operands[1].node;
  if (iota->op == AT_OP_IOTA) return at_node_int(iota, AT_ATTR_DIMENSION, 0);
  // A constant: the iota of a dimension of size 1.
  for (uint32_t i = 0; i < x->rank; i++)
    if (x->dims[i] == 1) return i;
  return -1;
}

// (x, iota, init value, init index) -> (values, indices): any set that holds
// the k best with the asked recall; the exact one does. Without aggregation
// more than k are returned, which the best of that number are too.
static at_status approximate(at_rw *r, at_node *n) {
  if (n->num_operands != 4 || n->num_results != 2) return AT_OK;
  at_value x = n->operands[0], v, i;
  const at_type *t = at_value_type(x);
  int64_t dim = reduced_dim(n);
  double init;
  if (dim < 0 || t->rank == 0 || t->rank > MAX_RANK ||
      n->types[0].rank != t->rank || n->types[1].dtype != AT_S32 ||
      !at_splat_float(n->operands[2], &init))
    return AT_OK;
  int64_t perm[MAX_RANK], last = t->rank - 1;
  for (uint32_t d = 0; d < t->rank; d++) perm[d] = d;
  perm[dim] = last;
  perm[last] = dim;  // swapping is its own inverse
  AT_TRY(at_mk_transpose(n, x, perm, &x));
  AT_TRY(mk_top_k(n, x, n->types[0].dims[dim], init < 0, &v, &i));
  AT_TRY(at_mk_transpose(n, v, perm, &v));
  AT_TRY(at_mk_transpose(n, i, perm, &i));
  return give(r, n, v, i);
}

// By the target's name; other calls stay.
at_status at_expand_top_k(at_rw *r, at_node *n) {
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  if (at_str_is(target, "TopK")) return exact(r, n);
  if (at_str_is(target, "ApproxTopK") || at_str_is(target, "PartialReduce"))
    return approximate(r, n);
  return AT_OK;
}
