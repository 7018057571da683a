#include "piece.h"

#include "replay.h"

bool piece_uses(const at_comp *c, const at_node *n) {
  AT_FOR_NODES(k, c) {
    for (uint32_t i = 0; i < k->num_operands; i++)
      if (k->operands[i].node == n) return true;
    for (uint32_t i = 0; i < k->num_regions; i++)
      if (piece_uses(k->regions[i], n)) return true;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    if (c->results[i].node == n) return true;
  return false;
}

at_status piece_return_all(at_module *m) {
  AT_VEC(at_value) all = {0};
  AT_FOR_NODES(n, m->entry) {
    n->mark = (uint32_t)all.len;  // where its first result is
    if (n->op == AT_OP_CONSTANT || n->op == AT_OP_PARAMETER) continue;
    for (uint32_t i = 0; i < n->num_results; i++)
      if (!at_vec_push(m->arena, &all, ((at_value){n, i})))
        return AT_NO_MEMORY("results");
  }
  at_io_info *infos = at_new(m->arena, at_io_info, all.len + 1);
  if (!infos) return AT_NO_MEMORY("results");
  for (size_t i = 0; i < all.len; i++) infos[i].alias = -1;
  m->results = infos;
  return at_comp_return(m->entry, all.ptr, (uint32_t)all.len);
}

// ---- Runs

static const at_literal *lookup(void *user, at_value v) {
  const piece_run *p = user;
  const at_node *from = v.node;
  if (from->op == AT_OP_CONSTANT) return at_node_literal(from);
  if (from->op == AT_OP_PARAMETER)
    return p->args[at_node_int(from, AT_ATTR_INDEX, 0)];
  return p->got[from->mark + v.index];
}

at_status piece_judge(at_arena *a, const at_node *n, piece_run *p,
                      judgement *out) {
  const at_literal **in, **want;
  AT_TRY_ALLOC(in, at_new(a, const at_literal *, n->num_operands + 1));
  AT_TRY_ALLOC(want, at_new(a, const at_literal *, n->num_results + 1));
  for (uint32_t i = 0; i < n->num_operands; i++)
    in[i] = lookup(p, n->operands[i]);
  AT_TRY(replay_node(a, n, lookup, p, in, want));
  AT_TRY(judge_node(a, n, in, want, p->got + n->mark, out));
  if (out->bad_result != UINT32_MAX && out->element >= 0)
    out->cause = judge_cause(n, in, want[out->bad_result],
                             p->got[n->mark + out->bad_result], out->element);
  return AT_OK;
}

// ---- Cuts

typedef AT_VEC(piece_source) source_list;

static bool uses_value(const at_comp *c, at_value v) {
  AT_FOR_NODES(k, c) {
    for (uint32_t i = 0; i < k->num_operands; i++)
      if (at_value_eq(k->operands[i], v)) return true;
    for (uint32_t i = 0; i < k->num_regions; i++)
      if (uses_value(k->regions[i], v)) return true;
  }
  for (uint32_t i = 0; c->owner && i < c->num_results; i++)
    if (at_value_eq(c->results[i], v)) return true;
  return false;
}

static at_status give(at_arena *a, at_comp *c, at_node *n, source_list *list) {
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_value old = {n, i}, fresh;
    if (!uses_value(c, old)) continue;
    AT_TRY(at_build_param(c, n->types[i], NULL, &fresh));
    at_replace_uses(c, old, fresh);
    if (!at_vec_push(a, list, ((piece_source){true, n->mark + i})))
      return AT_NO_MEMORY("piece");
  }
  at_node_remove(n);
  return AT_OK;
}

// Constants and parameters that nothing uses any more leave, too.
static void drop_unused(at_comp *c, source_list *list) {
  uint32_t kept = 0;
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    if (n->op == AT_OP_CONSTANT && !piece_uses(c, n)) at_node_remove(n);
  }
  for (uint32_t i = 0; i < c->num_params; i++) {
    at_node *n = c->params[i];
    if (!piece_uses(c, n)) {
      at_node_remove(n);
      continue;
    }
    for (uint32_t k = 0; k < n->num_attrs; k++)
      if (n->attrs[k].id == AT_ATTR_INDEX) n->attrs[k].i = kept;
    list->ptr[kept] = list->ptr[i];
    c->params[kept++] = n;
  }
  c->num_params = kept;
}

at_status piece_cut(at_arena *a, at_module *m, piece_keeps keeps, void *user,
                    piece_source **sources) {
  at_comp *c = m->entry;
  source_list list = {0};
  uint32_t ordinal = 0;
  for (uint32_t i = 0; i < c->num_params; i++)
    if (!at_vec_push(a, &list, ((piece_source){false, i})))
      return AT_NO_MEMORY("piece");
  c->num_results = 0;
  AT_FOR_NODES(n, c) ordinal++;
  for (at_node *n = c->last, *prev; n; n = prev) {
    prev = n->prev;
    ordinal--;
    if (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT) continue;
    bool token = n->num_results && n->types[0].dtype == AT_TOKEN;
    if (token || !keeps(user, n, ordinal)) AT_TRY(give(a, c, n, &list));
  }
  drop_unused(c, &list);
  AT_TRY_ALLOC(m->params, at_new(m->arena, at_io_info, c->num_params + 1));
  for (uint32_t i = 0; i < c->num_params; i++)
    m->params[i] = (at_io_info){.alias = -1};
  *sources = list.ptr;
  return AT_OK;
}
