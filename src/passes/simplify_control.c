// Control flow: branches that are known, loops that never run, carried values
// that nobody needs or that never change.
#include "passes/passes_internal.h"

// Replaces n by its region r, which has no parameters.
static at_status take_region(at_rw *r, at_node *n, at_comp *region) {
  at_value *out;
  AT_TRY_ALLOC(out, at_new(r->m->arena, at_value, (size_t)n->num_results + 1));
  at_comp_splice(region, NULL, n, out);
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(at_fwd_set(r, n, i, out[i]));
  return at_fwd_remove(r, n);
}

// A branch whose index is constant, or the only one, replaces n. CASE clamps to
// its last branch.
static at_status known_branch(at_rw *r, at_node *n) {
  int64_t c = 0;
  bool only = n->num_regions == 1;
  if (!only && !at_splat_int(n->operands[0], &c)) return AT_OK;
  uint32_t which;
  if (only)
    which = 0;
  else if (n->op == AT_OP_IF)
    which = c ? 0 : 1;
  else
    which = c < 0 || c >= n->num_regions ? n->num_regions - 1 : (uint32_t)c;
  return take_region(r, n, n->regions[which]);
}

// ---- Fewer results
// Which results of a node have users; `left` of them are not found yet.
typedef struct uses {
  const at_node *of;
  bool *used;
  uint32_t left;
} uses;

static void mark_use(uses *u, at_value v) {
  if (v.node != u->of || u->used[v.index]) return;
  u->used[v.index] = true;
  u->left--;
}

static void mark_node(uses *u, const at_node *n);

// Until all are found.
static void mark_uses(uses *u, const at_node *first) {
  for (const at_node *k = first; k && u->left; k = k->next) mark_node(u, k);
}

static void mark_results(uses *u, const at_comp *c) {
  for (uint32_t i = 0; i < c->num_results; i++) mark_use(u, c->results[i]);
}

static void mark_node(uses *u, const at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++) mark_use(u, n->operands[i]);
  for (uint32_t i = 0; i < n->num_regions && u->left; i++) {
    mark_results(u, n->regions[i]);
    mark_uses(u, n->regions[i]->first);
  }
}

// Notes which results of n have users, forwarding included: uses stand after n
// in its own computation or in regions there. Looks no further than to the last
// result's first use, and at nothing where a single result is why the sweep's
// first walk left n there.
static void used_results(const at_module *m, const at_node *n, bool *used) {
  if (n->num_results == 1 && !at_has_effect(m, n)) {
    used[0] = true;
    return;
  }
  uses u = {.of = n, .used = used};
  for (uint32_t i = 0; i < n->num_results; i++) u.left += !used[i];
  mark_results(&u, n->parent);
  mark_uses(&u, n->next);
}

// Rebuilds n with the results that `keep` names; operands and regions were cut
// to match by the caller.
static at_status rebuild(at_rw *r, at_node *n, const at_value *operands,
                         uint32_t num_operands, const bool *keep) {
  at_type *types;
  AT_TRY_ALLOC(types, at_new(r->m->arena, at_type, (size_t)n->num_results + 1));
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (keep[i]) types[kept++] = n->types[i];
  for (uint32_t i = 0; i < n->num_regions; i++) n->regions[i]->owner = NULL;
  at_node_desc d = at_node_desc_like(n, operands, n->regions);
  d.num_operands = num_operands;
  d.types = types;
  d.num_types = kept;
  at_node *fresh;
  AT_TRY(at_build(n->parent, n, &d, &fresh));
  uint32_t at = 0;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (keep[i]) AT_TRY(at_fwd_set(r, n, i, (at_value){fresh, at++}));
  n->num_regions = 0;
  return at_fwd_remove(r, n);
}

// Keeps the results that `keep` names, in order.
static void cut_results(at_comp *c, const bool *keep) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < c->num_results; i++)
    if (keep[i]) c->results[kept++] = c->results[i];
  c->num_results = kept;
}

// A result that every branch takes from the same place outside is that value.
static at_status same_in_all(at_rw *r, at_node *n, bool *used) {
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_value v = n->regions[0]->results[i];
    bool same = used[i] && v.node->parent != n->regions[0];
    for (uint32_t k = 1; k < n->num_regions; k++)
      same &= at_value_eq(v, n->regions[k]->results[i]);
    if (!same) continue;
    AT_TRY(at_fwd_set(r, n, i, v));
    used[i] = false;
  }
  return AT_OK;
}

// Drops results that nobody uses or that all branches take from the same place.
static at_status branch_results(at_rw *r, at_node *n) {
  bool *used, all = true;
  if (!n->num_results) return AT_OK;
  AT_TRY_ALLOC(used, at_new(r->m->arena, bool, (size_t)n->num_results + 1));
  used_results(r->m, n, used);
  AT_TRY(same_in_all(r, n, used));
  for (uint32_t i = 0; i < n->num_results; i++) all &= used[i];
  if (all) return AT_OK;
  for (uint32_t i = 0; i < n->num_regions; i++)
    cut_results(n->regions[i], used);
  return rebuild(r, n, n->operands, n->num_operands, used);
}

// ---- Loops
// Parameters of a region that the values reached from `roots` (marked with 2 by
// the caller) or effects depend on. Walks backwards once; mark 2 = needed.
static void need_walk(const at_module *m, at_comp *c) {
  for (at_node *n = c->last; n; n = n->prev) {
    if (n->op == AT_OP_PARAMETER) continue;
    if (n->mark != 2 && !at_has_effect(m, n)) continue;
    for (uint32_t i = 0; i < n->num_operands; i++)
      n->operands[i].node->mark = 2;
    for (uint32_t k = 0; k < n->num_regions; k++) {
      at_comp *g = n->regions[k];
      for (uint32_t i = 0; i < g->num_results; i++)
        g->results[i].node->mark = 2;
      // Everything a live region reads may matter.
      AT_FOR_NODES(j, g) j->mark = 2;
      need_walk(m, g);
    }
  }
}

// For this file's own use of `mark`; the use counts of these nodes are lost
// until the next sweep.
static void clear_marks(at_comp *c) {
  AT_FOR_NODES(n, c) {
    n->mark = 0;
    for (uint32_t i = 0; i < n->num_regions; i++) clear_marks(n->regions[i]);
  }
}

// *need grows by the carried values that the condition or an effect depends on,
// and by those that needed ones are computed from: a fixed point over the
// loop's back edge.
static void needed_state(const at_module *m, at_node *n, bool *need) {
  at_comp *cond = n->regions[0], *body = n->regions[1];
  clear_marks(cond);
  clear_marks(body);
  for (uint32_t i = 0; i < cond->num_results; i++)
    cond->results[i].node->mark = 2;
  need_walk(m, cond);
  for (uint32_t i = 0; i < n->num_results; i++)
    need[i] |= cond->params[i]->mark == 2;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < n->num_results; i++)
      if (need[i]) body->results[i].node->mark = 2;
    need_walk(m, body);
    for (uint32_t i = 0; i < n->num_results; i++) {
      if (need[i] || body->params[i]->mark != 2) continue;
      need[i] = changed = true;
    }
  }
  clear_marks(cond);
  clear_marks(body);
}

// Removes parameters and numbers the others anew; the removed ones have no
// uses.
static at_status cut_params(at_comp *c, const bool *keep) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < c->num_params; i++) {
    at_node *p = c->params[i];
    if (!keep[i]) {
      at_node_remove(p);
      continue;
    }
    AT_TRY(at_node_set_attr(p, at_attr_int(AT_ATTR_INDEX, kept)));
    c->params[kept++] = p;
  }
  c->num_params = kept;
  return AT_OK;
}

// Rebuilds the loop with the carried values in `keep`.
static at_status drop_state(at_rw *r, at_node *n, const bool *keep) {
  at_comp *body = n->regions[1];
  at_value *operands;
  AT_TRY_ALLOC(operands,
               at_new(r->m->arena, at_value, (size_t)n->num_operands + 1));
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (keep[i]) operands[kept++] = n->operands[i];
  cut_results(body, keep);
  // What computed a dropped result may still read a dropped parameter.
  clear_marks(body);
  for (uint32_t i = 0; i < body->num_results; i++)
    body->results[i].node->mark = 2;
  need_walk(r->m, body);
  for (at_node *k = body->last, *prev; k; k = prev) {
    prev = k->prev;
    if (k->op != AT_OP_PARAMETER && k->mark != 2 && !at_has_effect(r->m, k))
      at_node_remove(k);
  }
  clear_marks(body);
  AT_TRY(cut_params(n->regions[0], keep));
  AT_TRY(cut_params(body, keep));
  return rebuild(r, n, operands, kept, keep);
}

// The verifier lets no other pass.
static bool is_loop(const at_node *n) {
  const at_comp *cond = n->regions[0], *body = n->regions[1];
  return cond->num_results == 1 && cond->num_params == n->num_results &&
         body->num_results == n->num_results &&
         body->num_params == n->num_results &&
         n->num_operands == n->num_results;
}

static at_status never_runs(at_rw *r, at_node *n) {
  int64_t c;
  AT_ASSERT(is_loop(n));
  if (!at_splat_int(n->regions[0]->results[0], &c) || c) return AT_OK;
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(at_fwd_set(r, n, i, n->operands[i]));
  return at_fwd_remove(r, n);
}

// *keep: n's results, all false.
static at_status new_keep(at_rw *r, const at_node *n, bool **keep) {
  AT_TRY_ALLOC(*keep, at_new(r->m->arena, bool, (size_t)n->num_results + 1));
  return AT_OK;
}

// A carried value that the body returns as it came is the initial one.
static at_status unchanged_state(at_rw *r, at_node *n) {
  at_comp *cond = n->regions[0], *body = n->regions[1];
  bool *keep, dropped = false;
  AT_ASSERT(is_loop(n));
  AT_TRY(new_keep(r, n, &keep));
  for (uint32_t i = 0; i < n->num_results; i++) {
    bool same = body->results[i].node == body->params[i];
    keep[i] = !same || n->types[i].dtype == AT_TOKEN;
    if (keep[i]) continue;
    dropped = true;
    at_replace_uses(body, (at_value){body->params[i], 0}, n->operands[i]);
    at_replace_uses(cond, (at_value){cond->params[i], 0}, n->operands[i]);
    AT_TRY(at_fwd_set(r, n, i, n->operands[i]));
  }
  return dropped ? drop_state(r, n, keep) : AT_OK;
}

static at_status unneeded_state(at_rw *r, at_node *n) {
  bool *keep, dropped = false;
  AT_ASSERT(is_loop(n));
  AT_TRY(new_keep(r, n, &keep));
  for (uint32_t i = 0; i < n->num_results; i++)
    keep[i] = n->types[i].dtype == AT_TOKEN;
  used_results(r->m, n, keep);
  needed_state(r->m, n, keep);
  for (uint32_t i = 0; i < n->num_results; i++) dropped |= !keep[i];
  return dropped ? drop_state(r, n, keep) : AT_OK;
}

// `call` ops are gone by now.
static const at_law rules[] = {
    {"if of a known condition = that branch", AT_OP_IF, known_branch},
    {"case of a known index = that branch", AT_OP_CASE, known_branch},
    {"results of if that agree or are unused go", AT_OP_IF, branch_results},
    {"results of case that agree or are unused go", AT_OP_CASE, branch_results},
    {"loop that never runs = its operands", AT_OP_WHILE, never_runs},
    {"state that no turn changes is captured", AT_OP_WHILE, unchanged_state},
    {"state that nobody needs goes", AT_OP_WHILE, unneeded_state},
    {"invariant code leaves the loop", AT_OP_WHILE, at_simplify_hoist},
};
const at_laws at_laws_control = {rules, AT_LEN(rules)};
