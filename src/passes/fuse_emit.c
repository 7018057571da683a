// Builds FUSION nodes from clusters. Nodes and parameters are numbered by a
// walk from the outputs, so that equal clusters give equal fusions.
#include <stdlib.h>

#include "passes/fuse_internal.h"

typedef struct emitter {
  fuser *f;
  fuse_cluster *cl;
  at_comp *body;
  at_map clones;  // at_node * -> at_node *
  at_value_list operands;
} emitter;

// A copy of n, regions included, at the end of the fusion's body. `origin`
// remembers the node that counts in FLOPs and messages.
static at_status emit_clone(emitter *e, const at_node *n, at_value *operands,
                            at_node **out) {
  at_comp **regions = NULL;
  if (n->num_regions) {
    AT_TRY_ALLOC(regions, at_new(e->f->arena, at_comp *, n->num_regions));
    for (uint32_t i = 0; i < n->num_regions; i++) {
      at_map map = at_map_in(e->f->arena);
      AT_TRY(at_comp_clone(e->f->m, n->regions[i], &map, &regions[i]));
    }
  }
  at_node_desc d = at_node_desc_like(n, operands, regions);
  AT_TRY(at_build(e->body, NULL, &d, out));
  (*out)->origin = n->origin ? n->origin : n;
  return AT_OK;
}

// Depth is bounded by the size of a cluster.
static at_status emit_value(emitter *e, at_value v, at_value *out) {
  const fuse_node *fn = fuse_of(e->f, v.node);
  bool inside = fn && fuse_member_of(e->cl, fn);
  if (!inside && !fuse_is_inline_const(v.node))
    return at_region_param(e->f->arena, e->body, &e->operands, v, out);
  void **known = at_map_find_ptr(&e->clones, v.node);
  if (known) {
    *out = (at_value){(at_node *)*known, v.index};
    return AT_OK;
  }
  at_value *operands;
  AT_TRY_ALLOC(operands,
               at_new(e->f->arena, at_value, (size_t)v.node->num_operands + 1));
  for (uint32_t i = 0; i < v.node->num_operands; i++)
    AT_TRY(emit_value(e, v.node->operands[i], &operands[i]));
  at_node *clone;
  AT_TRY(emit_clone(e, v.node, operands, &clone));
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put_ptr(&e->clones, v.node));
  *slot = clone;
  *out = (at_value){clone, v.index};
  return AT_OK;
}

// For qsort: outputs in the order of the program.
static int by_position(const void *a, const void *b) {
  const fuse_node *x = *(fuse_node *const *)a, *y = *(fuse_node *const *)b;
  return x->pos < y->pos ? -1 : x->pos > y->pos;
}

// A cluster of one node gains something only if constants become part of it.
static bool worth_it(const fuse_cluster *cl) {
  if (cl->members.len > 1) return true;
  const at_node *n = cl->members.ptr[0].node->n;
  if (n->op == AT_OP_REDUCE) return false;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (fuse_is_inline_const(n->operands[i].node)) return true;
  return false;
}

// Builds the FUSION before the last output and points every output's aux at its
// result; forward_all rewrites the users.
static at_status emit_cluster(fuser *f, fuse_cluster *cl) {
  if (!worth_it(cl)) return AT_OK;
  emitter e = {.f = f, .cl = cl};
  e.clones = at_map_in(f->arena);
  AT_TRY(at_region_create(f->m, &e.body));
  qsort(cl->outputs.ptr, cl->outputs.len, sizeof *cl->outputs.ptr, by_position);
  AT_VEC(at_value) results = {0}, old = {0};
  AT_VEC(at_type) types = {0};
  for (size_t o = 0; o < cl->outputs.len; o++) {
    at_node *n = cl->outputs.ptr[o]->n;
    for (uint32_t i = 0; i < n->num_results; i++) {
      at_value v = {n, i}, r;
      AT_TRY(emit_value(&e, v, &r));
      if (!at_vec_push(f->arena, &results, r) ||
          !at_vec_push(f->arena, &old, v) ||
          !at_vec_push(f->arena, &types, n->types[i]))
        return AT_NO_MEMORY("fusion");
    }
  }
  AT_TRY(at_comp_return(e.body, results.ptr, (uint32_t)results.len));
  // Rows before reduce: a cluster of rows holds reduces, too.
  at_attr kind = at_attr_int(AT_ATTR_KIND, cl->rows     ? AT_FUSION_ROWS
                                           : cl->reduce ? AT_FUSION_REDUCE
                                                        : AT_FUSION_LOOP);
  at_node *last = cl->outputs.ptr[cl->outputs.len - 1]->n, *fusion;
  at_node_desc d = {.op = AT_OP_FUSION,
                    .operands = e.operands.ptr,
                    .num_operands = (uint32_t)e.operands.len,
                    .attrs = &kind,
                    .num_attrs = 1,
                    .regions = &e.body,
                    .num_regions = 1,
                    .types = types.ptr,
                    .num_types = (uint32_t)types.len,
                    .loc = last->loc};
  AT_TRY(at_build(f->c, last, &d, &fusion));
  for (uint32_t i = 0; i < old.len; i++) {
    at_node *n = old.ptr[i].node;
    if (!n->aux)
      AT_TRY_ALLOC(n->aux, at_new(f->m->arena, at_value, n->num_results));
    ((at_value *)n->aux)[old.ptr[i].index] = (at_value){fusion, i};
  }
  return AT_OK;
}

// Reads every operand through aux once all clusters are emitted.
static void forward_all(at_comp *c) {
  AT_FOR_NODES(n, c) {
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++) forward_all(n->regions[i]);
  }
  at_fwd_results(c);
}

// Clusters that were merged into others have no fusion of their own.
at_status fuse_emit(fuser *f) {
  for (size_t i = 0; i < f->clusters.len; i++) {
    fuse_cluster *cl = f->clusters.ptr[i];
    if (!cl->into && cl->outputs.len) AT_TRY(emit_cluster(f, cl));
  }
  forward_all(f->c);
  return AT_OK;
}
