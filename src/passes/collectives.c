// Fewer collectives, where several say what one can: values that are sent
// twice, sums of sums.
#include "passes/passes_internal.h"

typedef struct sent {
  at_node *node;
  struct sent *next;  // of the same first operand
} sent;

// Synchronous collectives of one operand whose body, if there is one, is a
// plain binary op. Only these are compared, summed or narrowed here.
static bool may_join(const at_node *n) {
  switch (n->op) {
    case AT_OP_ALL_REDUCE:
    case AT_OP_REDUCE_SCATTER:
    case AT_OP_ALL_GATHER:
    case AT_OP_ALL_TO_ALL:
    case AT_OP_COLLECTIVE_PERMUTE:
      return n->num_operands == 1 && !at_node_bool(n, AT_ATTR_ASYNC) &&
             (!n->num_regions ||
              at_region_binary(n->regions[0]) != AT_OP_COUNT);
    default:
      return false;
  }
}

// What was sent of v as n would send it.
static at_node *sent_as(at_rw *r, at_map *seen, at_value v, const at_node *n) {
  void **slot = at_map_find_ptr(seen, v.node);
  for (const sent *x = slot ? *slot : NULL; x; x = x->next)
    if (at_value_eq(x->node->operands[0], v) &&
        at_type_eq(at_value_type(v), at_value_type(n->operands[0])) &&
        at_collective_alike(r->m, x->node, n))
      return x->node;
  return NULL;
}

// Whether v is the reversal of what it reads along dimensions that n, a gather,
// does not join.
static bool reversed_apart(at_value v, const at_node *n) {
  if (n->op != AT_OP_ALL_GATHER || v.node->op != AT_OP_REVERSE) return false;
  at_dims d = at_node_ints(v.node, AT_ATTR_DIMENSIONS);
  for (uint32_t i = 0; i < d.rank; i++)
    if (d.ptr[i] == at_node_int(n, AT_ATTR_ALL_GATHER_DIM, 0)) return false;
  return true;
}

// The same value to the same devices: once is enough, also if reversed since,
// as kernels of convolutions are in their gradients.
static at_status send_once(at_rw *r, at_map *seen, at_node *n) {
  sent **slot, *x;
  at_value v = n->operands[0], turned;
  at_node *before = sent_as(r, seen, v, n);
  if (before) {
    before->mark += n->mark;
    return at_fwd_set(r, n, 0, (at_value){before, 0});
  }
  if (reversed_apart(v, n))
    before = sent_as(r, seen, at_fwd(v.node->operands[0]), n);
  if (before) {
    at_value whole = {before, 0};
    before->mark++;
    AT_TRY(at_mk(n, AT_OP_REVERSE, &whole, 1, v.node->attrs, v.node->num_attrs,
                 &n->types[0], &turned));
    turned.node->mark = n->mark;
    return at_fwd_set(r, n, 0, turned);
  }
  AT_TRY_ALLOC(slot, (sent **)at_map_put_ptr(seen, v.node));
  AT_TRY_ALLOC(x, at_new(r->m->arena, sent, 1));
  *x = (sent){n, *slot};
  *slot = x;
  return AT_OK;
}

// The collective `like` of v, a value of its operand's shape whose element type
// the result and the combination take over; before `at`.
static at_status collective_of(at_rw *r, const at_node *like, at_value v,
                               at_node *at, at_node **out) {
  at_type type = at_type_with(like->types[0], at_value_type(v)->dtype);
  at_comp *body = NULL;
  if (like->num_regions)
    AT_TRY(at_mk_binary_region(r->m, at_region_binary(like->regions[0]),
                               type.dtype, at->loc, &body));
  at_node_desc d = {.op = like->op,
                    .operands = &v,
                    .num_operands = 1,
                    .attrs = like->attrs,
                    .num_attrs = like->num_attrs,
                    .regions = &body,
                    .num_regions = like->num_regions,
                    .types = &type,
                    .num_types = 1,
                    .loc = at->loc};
  return at_build(at->parent, at, &d, out);
}

// An all-reduce or reduce-scatter that adds up what only n reads.
static bool sums_for(const at_node *n, at_value v) {
  const at_node *s = v.node;
  return (s->op == AT_OP_ALL_REDUCE || s->op == AT_OP_REDUCE_SCATTER) &&
         may_join(s) && s->parent == n->parent && s->mark == 1 &&
         at_region_binary(s->regions[0]) == AT_OP_ADD;
}

// sum(a) + sum(b) = sum(a + b), but for the order of additions.
static at_status add_before(at_rw *r, at_node *n) {
  if (n->op != AT_OP_ADD || !sums_for(n, n->operands[0]) ||
      !sums_for(n, n->operands[1]))
    return AT_OK;
  at_node *a = n->operands[0].node, *b = n->operands[1].node, *one;
  if (a == b || !at_collective_alike(r->m, a, b) ||
      !at_type_eq(at_value_type(a->operands[0]), at_value_type(b->operands[0])))
    return AT_OK;
  at_value part;
  AT_TRY(at_mk2(n, AT_OP_ADD, a->operands[0], b->operands[0], &part));
  AT_TRY(collective_of(r, a, part, n, &one));
  part.node->mark = 1;
  one->mark = n->mark;
  a->mark = b->mark = 0;
  r->changed = true;
  return at_fwd_set(r, n, 0, (at_value){one, 0});
}

// ---- What is rounded behind travels rounded
// Ops that only move elements of their first operand.
static bool moves(const at_node *n) {
  switch (n->op) {
    case AT_OP_SLICE:
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_RESHAPE:
    case AT_OP_TRANSPOSE:
    case AT_OP_REVERSE:
      return true;
    default:
      return false;
  }
}

// Whether n may carry rounded elements: the chip also adds up such.
static bool may_carry(const at_rw *r, const at_node *n) {
  return may_join(n) && n->mark == 1 && (!n->num_regions || r->o->bf16_dots);
}

// *out: the collective `old` of its operand converted to t. `old` is left
// without uses and goes with the next at_dce.
static at_status narrowed(at_rw *r, at_node *old, at_dtype t, at_node **out) {
  at_value v;
  AT_TRY(at_mk_convert(old, old->operands[0], t, &v));
  AT_TRY(collective_of(r, old, v, old, out));
  v.node->mark = (*out)->mark = 1;
  old->mark = 0;
  return AT_OK;
}

// convert(move(collective(x))) = move(collective(convert(x))) if nobody else
// reads what is between.
static at_status round_before(at_rw *r, at_node *n) {
  if (n->op != AT_OP_CONVERT) return AT_OK;
  at_value v = n->operands[0];
  at_dtype t = n->types[0].dtype;
  if (t != AT_BF16 || at_value_type(v)->dtype != AT_F32) return AT_OK;
  at_node *reader = n;
  while (moves(v.node) && v.node->mark == 1 && v.node->parent == n->parent) {
    reader = v.node;
    v = v.node->operands[0];
  }
  at_node *one;
  if (v.node->parent != n->parent || !may_carry(r, v.node)) return AT_OK;
  AT_TRY(narrowed(r, v.node, t, &one));
  r->changed = true;
  if (reader == n) return at_fwd_set(r, n, 0, (at_value){one, 0});
  for (at_node *k = n->operands[0].node; k != v.node; k = k->operands[0].node)
    k->types[0].dtype = t;
  // The moves in between now carry the narrow type.
  reader->operands[0] = (at_value){one, 0};
  return at_fwd_set(r, n, 0, n->operands[0]);
}

// One walk in order. Reads `mark` as the number of uses and keeps it up to
// date, so that later rules still know who is the only reader.
static at_status sweep(at_rw *r, at_comp *c) {
  // Per computation: what a region sends is not seen around it.
  at_map seen = at_map_in(r->m->arena);
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(sweep(r, n->regions[i]));
    if (may_join(n)) AT_TRY(send_once(r, &seen, n));
    AT_TRY(add_before(r, n));
    AT_TRY(round_before(r, n));
  }
  at_fwd_results(c);
  return AT_OK;
}

// Wants no marks of earlier passes: counts the uses itself.
at_status at_pass_collectives(at_module *m, const at_pass_options *o) {
  at_rw r = {.m = m, .o = o};
  if (m->num_partitions * m->num_replicas <= 1) return AT_OK;
  at_dce_count_uses(m);
  AT_TRY(sweep(&r, m->entry));
  at_dce(m);
  return AT_OK;
}
