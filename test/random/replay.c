#include "replay.h"

#include "base/map.h"

typedef struct captures {
  at_arena *a;
  const at_comp *within;
  AT_VEC(at_node *) nodes;
} captures;

static at_status add(captures *s, at_value v) {
  if (v.node->parent != s->within) return AT_OK;
  for (size_t i = 0; i < s->nodes.len; i++)
    if (s->nodes.ptr[i] == v.node) return AT_OK;
  return at_vec_push(s->a, &s->nodes, v.node) ? AT_OK : AT_NO_MEMORY("replay");
}

static at_status find(captures *s, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      AT_TRY(add(s, n->operands[i]));
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(find(s, n->regions[i]));
  }
  for (uint32_t i = 0; i < c->num_results; i++) AT_TRY(add(s, c->results[i]));
  return AT_OK;
}

typedef struct copy {
  at_arena *a;
  at_module *m;
  at_comp *c;
  at_map map;  // node of the program -> node here with the same results
  AT_VEC(const at_literal *) args;
} copy;

static at_status param(copy *p, const at_literal *l, at_value *out) {
  AT_TRY(at_build_param(p->c, l->type, NULL, out));
  return at_vec_push(p->a, &p->args, l) ? AT_OK : AT_NO_MEMORY("replay");
}

// A node that has the results of n: a constant, or a barrier after parameters.
static at_status stand_in(copy *p, at_node *n, replay_lookup lookup,
                          void *user) {
  at_value *v;
  at_node *fresh;
  void **place;
  AT_TRY_ALLOC(v, at_new(p->a, at_value, n->num_results));
  if (n->op == AT_OP_CONSTANT) {
    AT_TRY(at_build_constant(p->c, NULL, at_node_literal(n), &v[0]));
    fresh = v[0].node;
  } else {
    for (uint32_t i = 0; i < n->num_results; i++)
      AT_TRY(param(p, lookup(user, (at_value){n, i}), &v[i]));
    at_node_desc d = {.op = AT_OP_OPTIMIZATION_BARRIER,
                      .operands = v,
                      .num_operands = n->num_results};
    AT_TRY(at_build(p->c, NULL, &d, &fresh));
  }
  AT_TRY_ALLOC(place, at_map_put_ptr(&p->map, n));
  *place = fresh;
  return AT_OK;
}

at_status replay_node(at_arena *a, const at_node *n, replay_lookup lookup,
                      void *user, const at_literal *const *in,
                      const at_literal **want) {
  captures s = {.a = a, .within = n->parent};
  for (uint32_t i = 0; i < n->num_regions; i++) AT_TRY(find(&s, n->regions[i]));
  if (!s.nodes.len)
    return at_eval_node(
        n, in, &(at_eval_options){.custom = at_eval_linalg_custom}, a, want);
  copy p = {.a = a, .map = at_map_in(a)};
  at_value *operands, *results;
  at_comp **regions;
  at_node *node;
  AT_TRY_ALLOC(operands, at_new(a, at_value, n->num_operands));
  AT_TRY_ALLOC(results, at_new(a, at_value, n->num_results));
  AT_TRY_ALLOC(regions, at_new(a, at_comp *, n->num_regions));
  AT_TRY(at_module_create(a, AT_STR("replay"), &p.m));
  AT_TRY(at_comp_create(p.m, AT_STR("main"), NULL, &p.c));
  p.m->entry = p.c;
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(param(&p, in[i], &operands[i]));
  for (size_t i = 0; i < s.nodes.len; i++)
    AT_TRY(stand_in(&p, s.nodes.ptr[i], lookup, user));
  for (uint32_t i = 0; i < n->num_regions; i++)
    AT_TRY(at_comp_clone(p.m, n->regions[i], &p.map, &regions[i]));
  at_node_desc d = at_node_desc_like(n, operands, regions);
  AT_TRY(at_build(p.c, NULL, &d, &node));
  for (uint32_t i = 0; i < n->num_results; i++)
    results[i] = (at_value){node, i};
  AT_TRY(at_comp_return(p.c, results, n->num_results));
  return at_eval(p.c, p.args.ptr,
                 &(at_eval_options){.custom = at_eval_linalg_custom}, a, want);
}
