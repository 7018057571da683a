// Operands of reductions lie so that vectors read them. A vector's lanes run
// along the last dimension that is kept (along the last of all where that is
// kept); an array that has it further out, and is read many times over, as the
// points are whose distances to other points are summed, is transposed once
// instead of gathered at every use.
#include "passes/passes_internal.h"

enum {
  MAX_RANK = 12,
  FEW = 8,        // reduced elements side by side that lanes do not run along
  MIN_LANES = 8,  // elements along which they do
  MIN_APART = 4,  // elements between lanes that vectors and shuffles reach
  MIN_ELEMENTS = 64
};

// A broadcast of t that reads each element at least MIN_USES times, in a space
// large enough to pay for a transpose.
static bool is_read_often(const at_type *t, const at_node *user) {
  // A small body of a loop stays one function.
  enum { MIN_USES = 8, MIN_SPACE = 1 << 12, MIN_IN_LOOP = 1 << 16 };
  if (user->op != AT_OP_BROADCAST_IN_DIM) return false;  // some have no results
  int64_t space = at_type_elements(&user->types[0]);
  return space >= (user->parent->owner ? MIN_IN_LOOP : MIN_SPACE) &&
         space / MIN_USES >= at_type_elements(t);
}

bool at_transpose_pays(const at_node *transpose, const at_node *user) {
  return is_read_often(&transpose->types[0], user);
}

// The dimension that lanes run along; t->rank: another than this pass turns
// operands for.
static uint32_t lanes_of(const at_node *reduce) {
  const at_type *t = at_value_type(reduce->operands[0]);
  at_dims dims = at_node_ints(reduce, AT_ATTR_DIMENSIONS);
  int64_t inner = 1;
  for (uint32_t d = t->rank; d-- > 0;) {
    bool reduced = false;
    for (uint32_t i = 0; i < dims.rank; i++) reduced |= dims.ptr[i] == d;
    if (t->dims[d] == 1) continue;
    if (!reduced) return t->dims[d] >= MIN_LANES ? d : t->rank;
    inner *= t->dims[d];
    if (inner > FEW) break;
  }
  return t->rank;
}

// A broadcast whose operand is worth it: with one that has the dimension that
// becomes `lanes` last.
static at_status turn(at_rw *r, at_node *n, uint32_t lanes) {
  const at_type *from = at_value_type(n->operands[0]);
  at_dims where = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  if (from->rank < 2 || from->rank > MAX_RANK || !is_read_often(from, n) ||
      at_type_elements(from) < MIN_ELEMENTS)
    return AT_OK;
  uint32_t along = 0;
  while (along < where.rank && where.ptr[along] != lanes) along++;
  if (along == where.rank || from->dims[along] == 1) return AT_OK;
  int64_t apart = 1, perm[MAX_RANK], to[MAX_RANK];
  for (uint32_t d = along + 1; d < from->rank; d++) apart *= from->dims[d];
  if (apart < MIN_APART) return AT_OK;
  for (uint32_t d = 0; d < from->rank; d++) {
    perm[d] = d < along ? d : d + 1 < from->rank ? d + 1 : along;
    to[d] = where.ptr[perm[d]];
  }
  at_value v, out;
  AT_TRY(at_mk_transpose(n, n->operands[0], perm, &v));
  AT_TRY(at_mk_broadcast(n, v, at_type_dims(&n->types[0]), to, &out));
  return at_fwd_set(r, n, 0, out);
}

// Marks what the reduction's operands are computed by, element for element, and
// the broadcasts there, with the dimension of its lanes, + 1. What has a mark
// keeps it: every node is looked at once.
static at_status mark_operands(at_rw *r, const at_node *reduce) {
  uint32_t lanes = lanes_of(reduce);
  if (lanes == at_value_type(reduce->operands[0])->rank) return AT_OK;
  AT_VEC(at_node *) stack = {0};
  for (uint32_t i = 0; i < reduce->num_operands / 2; i++)
    if (!at_vec_push(r->m->arena, &stack, reduce->operands[i].node))
      return AT_NO_MEMORY("turn");
  while (stack.len) {
    at_node *n = stack.ptr[--stack.len];
    bool plain = at_op_is(n->op, AT_ELEMENTWISE);
    if (n->mark || n->parent != reduce->parent ||
        (!plain && n->op != AT_OP_BROADCAST_IN_DIM))
      continue;
    n->mark = lanes + 1;
    for (uint32_t i = 0; plain && i < n->num_operands; i++)
      if (!at_vec_push(r->m->arena, &stack, n->operands[i].node))
        return AT_NO_MEMORY("turn");
  }
  return AT_OK;
}

// Computations of control flow have reductions of their own.
static at_status mark(at_rw *r, at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (n->op == AT_OP_REDUCE && at_type_is_static(&n->types[0]))
      AT_TRY(mark_operands(r, n));
    for (uint32_t i = 0; at_is_control(n->op) && i < n->num_regions; i++)
      AT_TRY(mark(r, n->regions[i]));
  }
  return AT_OK;
}

// Replaces marked broadcasts in order.
static at_status walk(at_rw *r, at_comp *c) {
  AT_FOR_NODES(n, c) {
    at_fwd_operands(n);
    if (n->op == AT_OP_BROADCAST_IN_DIM && n->mark)
      AT_TRY(turn(r, n, n->mark - 1));
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(walk(r, n->regions[i]));
  }
  at_fwd_results(c);
  return AT_OK;
}

// Marks first, as a broadcast stands before the reduction that reads it.
at_status at_pass_turn(at_module *m, const at_pass_options *o) {
  if (!o->small_products) return AT_OK;
  at_aux_clear(m);
  at_rw r = {.m = m, .o = o};
  for (uint32_t i = 0; i < m->num_funcs; i++) {
    AT_TRY(mark(&r, m->funcs[i]));
    AT_TRY(walk(&r, m->funcs[i]));
  }
  at_dce(m);
  return AT_OK;
}
