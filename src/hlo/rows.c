#include "hlo/rows.h"

#include "base/walk.h"

// The reduced dimensions are the minor ones, apart from dimensions of size one,
// and there are at least two columns. Outputs are written in any case.
bool at_rows_of_reduce(const at_node *n, int64_t *rows, int64_t *columns) {
  if (n->op != AT_OP_REDUCE) return false;
  const at_type *t = at_value_type(n->operands[0]);
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  if (!at_type_is_static(t)) return false;
  bool above = false;
  *rows = *columns = 1;
  for (uint32_t d = t->rank; d-- > 0;) {
    if (t->dims[d] == 1) continue;
    bool reduced = at_dims_has(dims, d);
    if (reduced && above) return false;
    above |= !reduced;
    *(reduced ? columns : rows) *= t->dims[d];
  }
  return *columns > 1 && *rows > 0;
}

// Whether the broadcast's operand is its result without the dimensions below
// `columns` (1: is its result), apart from dimensions of size one.
static bool keeps_order(const at_node *n, int64_t columns) {
  at_dims where = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  const at_type *from = at_value_type(n->operands[0]), *to = &n->types[0];
  int64_t below = 1;
  uint32_t k = from->rank;
  for (uint32_t d = to->rank; d-- > 0;) {
    if (to->dims[d] == 1) continue;
    bool major = below >= columns;
    below *= to->dims[d];
    if (!major) continue;
    while (k > 0 && from->dims[k - 1] == 1) k--;
    if (k == 0 || where.ptr[k - 1] != d) return false;
    k--;
  }
  while (k > 0 && from->dims[k - 1] == 1) k--;
  return k == 0;
}

// Is the result of the gather one element of each of the operand's rows, in
// their order?
static bool gathers_in_rows(const at_rows *r, const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  const at_type *it = at_value_type(n->operands[1]);
  at_dims batch = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS);
  at_dims other = at_node_ints(n, AT_ATTR_START_INDICES_BATCHING_DIMS);
  at_dims size = at_node_ints(n, AT_ATTR_SLICE_SIZES);
  int64_t rows = 1, last = -1;
  for (uint32_t d = 0; d < t->rank; d++)
    if (size.ptr[d] != 1) return false;
  for (uint32_t i = 0; i < batch.rank; i++) {
    if (batch.ptr[i] != i || other.ptr[i] <= last) return false;
    last = other.ptr[i];
    rows *= t->dims[i];
  }
  for (uint32_t d = 0; d < it->rank; d++)
    if (d != at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, 0) && it->dims[d] != 1 &&
        !at_dims_has(other, d))
      return false;
  return rows == r->rows;
}

// How a node asks for operand i when it is asked for as `role`; 0: what it is
// asked for does not fit.
static uint32_t reduce_asks(const at_rows *r, const at_node *n, uint32_t i,
                            uint32_t role) {
  int64_t rows, columns;
  if (role != AT_ROW_ONE || !at_rows_of_reduce(n, &rows, &columns) ||
      rows != r->rows || columns != r->columns)
    return 0;
  return i < n->num_operands / 2 ? AT_ROW_ALL : AT_ROW_OTHER;
}

// One value for each row, repeated along it, is asked for once a row.
static uint32_t broadcast_asks(const at_rows *r, const at_node *n,
                               uint32_t role) {
  int64_t size = at_type_elements(at_value_type(n->operands[0]));
  bool in_row = role == AT_ROW_ALL || role == AT_ROW_INSIDE;
  if (size == at_type_elements(&n->types[0]) && keeps_order(n, 1)) return role;
  if (in_row && size == r->rows && keeps_order(n, r->columns))
    return AT_ROW_ONE;
  return AT_ROW_OTHER;
}

// The operand is read anywhere in its row; the indices are one for each row.
static uint32_t gather_asks(const at_rows *r, const at_node *n, uint32_t i,
                            uint32_t role) {
  if (role != AT_ROW_ONE || !gathers_in_rows(r, n)) return AT_ROW_OTHER;
  if (i == 0) return AT_ROW_INSIDE;
  int64_t size = at_type_elements(at_value_type(n->operands[1]));
  return size == r->rows ? AT_ROW_ONE : AT_ROW_OTHER;
}

// Ops that keep the order of elements hand the question on; what is read in
// another order may be asked for anywhere.
uint32_t at_rows_asks(const at_rows *r, const at_node *n, uint32_t i,
                      uint32_t role) {
  if (n->op == AT_OP_REDUCE) return reduce_asks(r, n, i, role);
  if (role == AT_ROW_OTHER) return role;
  if (at_op_is(n->op, AT_ELEMENTWISE) || n->op == AT_OP_RESHAPE ||
      n->op == AT_OP_BITCAST_CONVERT) {
    int64_t size = at_type_elements(at_value_type(n->operands[i]));
    return size == at_type_elements(&n->types[0]) ? role : AT_ROW_OTHER;
  }
  if (n->op == AT_OP_BROADCAST_IN_DIM) return broadcast_asks(r, n, role);
  if (n->op == AT_OP_GATHER) return gather_asks(r, n, i, role);
  return AT_ROW_OTHER;
}

// By the number of elements alone.
uint32_t at_rows_asked(const at_rows *r, at_value result) {
  int64_t size = at_type_elements(at_value_type(result));
  return size == r->rows * r->columns ? AT_ROW_ALL
         : size == r->rows            ? AT_ROW_ONE
                                      : 0;
}

// Starts at the results and follows operands; a node that is asked for in two
// ways is visited once for each.
at_status at_rows_find(at_arena *a, int64_t rows, int64_t columns,
                       const at_value *results, uint32_t num_results,
                       at_rows_inside inside, const void *arg, at_rows *out) {
  *out = (at_rows){
      .rows = rows, .columns = columns, .roles = at_map_in(a), .fits = true};
  at_walk walk = at_walk_in(a);
  for (uint32_t i = 0; i < num_results; i++) {
    uint32_t role = at_rows_asked(out, results[i]);
    if (!role) out->fits = false;
    at_walk_add(&walk, results[i].node, role);
  }
  for (at_walk_step s; out->fits && at_walk_next(&walk, &s);) {
    const at_node *n = s.item;
    void **bits;
    AT_TRY_ALLOC(bits, at_map_put_ptr(&out->roles, n));
    *bits = (void *)((uintptr_t)*bits | s.tag);
    for (uint32_t i = 0; inside(arg, n) && i < n->num_operands; i++) {
      uint32_t role = at_rows_asks(out, n, i, s.tag);
      if (!role) out->fits = false;
      at_walk_add(&walk, n->operands[i].node, role);
    }
  }
  return at_walk_status(&walk);
}

uint32_t at_rows_role(const at_rows *r, const at_node *n) {
  void **bits = at_map_find_ptr(&r->roles, n);
  return bits ? (uint32_t)(uintptr_t)*bits : 0;
}
