// Loops and branches on a few scalars become one kernel, so that an iteration
// costs instructions, not launches.
#include "passes/passes_internal.h"

enum {
  SCALAR_MAX_ELEMENTS = 64,
  SCALAR_MAX_NODES = 400,
  SCALAR_MAX_OPERANDS = 24
};

static bool small(const at_type *t) {
  return t->dtype != AT_TOKEN && at_type_is_static(t) &&
         at_type_elements(t) <= SCALAR_MAX_ELEMENTS;
}

typedef struct probe {
  uint32_t nodes;
  int64_t elements;  // of results and captured values
  at_arena *arena;
  AT_VEC(at_value) captured;  // distinct values from outside the node
} probe;

// Notes a value that is made outside the probed node; false if it is too large.
static bool capture(probe *p, at_value v, const at_node *root) {
  for (const at_comp *c = v.node->parent; c;
       c = c->owner ? c->owner->parent : NULL)
    if (c->owner == root) return true;  // made inside
  if (!small(at_value_type(v))) return false;
  for (size_t i = 0; i < p->captured.len; i++)
    if (at_value_eq(p->captured.ptr[i], v)) return true;
  p->elements += at_type_elements(at_value_type(v));
  return p->captured.len < SCALAR_MAX_OPERANDS &&
         p->elements <= SCALAR_MAX_ELEMENTS &&
         at_vec_push(p->arena, &p->captured, v);
}

static bool scalar_op(const at_node *n) {
  if (at_op_is(n->op, AT_ELEMENTWISE) || at_is_control(n->op)) return true;
  switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_CONSTANT:
    case AT_OP_IOTA:
    case AT_OP_RESHAPE:
    case AT_OP_SLICE:
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_CONCATENATE:
      return true;
    default:
      return false;
  }
}

static bool eligible(probe *p, const at_node *n, const at_node *root) {
  if (++p->nodes > SCALAR_MAX_NODES || !scalar_op(n)) return false;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!small(&n->types[i])) return false;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!capture(p, n->operands[i], root)) return false;
  for (uint32_t k = 0; k < n->num_regions; k++) {
    at_comp *c = n->regions[k];
    AT_FOR_NODES(j, c) if (!eligible(p, j, root)) return false;
    for (uint32_t i = 0; i < c->num_results; i++)
      if (!capture(p, c->results[i], root)) return false;
  }
  return true;
}

static at_status fuse_one(at_module *m, at_node *n, const probe *p) {
  at_comp *body;
  AT_TRY(at_region_create(m, &body));
  uint32_t count = (uint32_t)p->captured.len;
  at_map map = at_map_in(m->arena);
  at_value *args;
  AT_TRY_ALLOC(args, at_new(m->arena, at_value, (size_t)count + 1));
  for (uint32_t i = 0; i < count; i++)
    AT_TRY(at_build_param(body, *at_value_type(p->captured.ptr[i]), n->loc,
                          &args[i]));
  // The node itself moves; what it reads from outside becomes parameters.
  at_value *operands;
  AT_TRY_ALLOC(operands,
               at_new(m->arena, at_value, (size_t)n->num_operands + 1));
  memcpy(operands, n->operands, n->num_operands * sizeof *operands);
  at_comp **regions;
  AT_TRY_ALLOC(regions,
               at_new(m->arena, at_comp *, (size_t)n->num_regions + 1));
  for (uint32_t k = 0; k < n->num_regions; k++) {
    AT_TRY(at_comp_clone(m, n->regions[k], &map, &regions[k]));
    for (uint32_t i = 0; i < count; i++)
      at_replace_uses(regions[k], p->captured.ptr[i], args[i]);
  }
  for (uint32_t j = 0; j < n->num_operands; j++)
    for (uint32_t i = 0; i < count; i++)
      if (at_value_eq(n->operands[j], p->captured.ptr[i]))
        operands[j] = args[i];
  at_node_desc d = at_node_desc_like(n, operands, regions);
  at_node *inner, *fusion;
  AT_TRY(at_build(body, NULL, &d, &inner));
  at_value *results;
  AT_TRY_ALLOC(results, at_new(m->arena, at_value, n->num_results));
  for (uint32_t i = 0; i < n->num_results; i++)
    results[i] = (at_value){inner, i};
  AT_TRY(at_comp_return(body, results, n->num_results));
  at_attr kind = at_attr_int(AT_ATTR_KIND, AT_FUSION_SCALAR);
  at_node_desc f = {.op = AT_OP_FUSION,
                    .operands = p->captured.ptr,
                    .num_operands = count,
                    .attrs = &kind,
                    .num_attrs = 1,
                    .regions = &body,
                    .num_regions = 1,
                    .types = n->types,
                    .num_types = n->num_results,
                    .loc = n->loc};
  AT_TRY(at_build(n->parent, n, &f, &fusion));
  for (uint32_t i = 0; i < n->num_results; i++)
    at_replace_uses(n->parent, (at_value){n, i}, (at_value){fusion, i});
  at_node_remove(n);
  return AT_OK;
}

at_status at_fuse_scalar(at_module *m, at_comp *c) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    if (!at_is_control(n->op)) continue;
    probe p = {.arena = m->arena};
    for (uint32_t i = 0; i < n->num_results; i++)
      if (small(&n->types[i])) p.elements += at_type_elements(&n->types[i]);
    if (n->num_results && !at_has_effect(m, n) && eligible(&p, n, n)) {
      AT_TRY(fuse_one(m, n, &p));
      continue;
    }
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(at_fuse_scalar(m, n->regions[i]));
  }
  return AT_OK;
}
