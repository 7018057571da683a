// Forwarding, dead code, ordering and splicing.
#include "base/verify.h"
#include "passes/passes_internal.h"

// Depth is bounded by the nesting of regions.
static void clear_comp(at_comp *c) {
  AT_FOR_NODES(n, c) {
    n->aux = NULL;
    n->mark = 0;
    for (uint32_t i = 0; i < n->num_regions; i++) clear_comp(n->regions[i]);
  }
}

void at_aux_clear(at_module *m) {
  for (uint32_t i = 0; i < m->num_funcs; i++) clear_comp(m->funcs[i]);
}

// Where v was forwarded to; NULL: nowhere.
static at_value *forward(at_value v) {
  at_value *next = v.node->aux ? (at_value *)v.node->aux + v.index : NULL;
  return next && next->node ? next : NULL;
}

// Two walks: find the end of the chain, then point all of it there.
at_value at_fwd(at_value v) {
  at_value to = v;
  for (at_value *f; (f = forward(to));) to = *f;
  // The next reader has one step.
  for (at_value *f; (f = forward(v)); *f = to) v = *f;
  return to;
}

// v is followed to its end first, so that chains cannot close a cycle.
at_status at_fwd_set(at_rw *r, at_node *n, uint32_t result, at_value v) {
  AT_ASSERT(result < n->num_results && v.node && v.index < v.node->num_results);
  if (!n->aux)
    AT_TRY_ALLOC(n->aux, at_new(r->m->arena, at_value, n->num_results));
  v = at_fwd(v);
  AT_VERIFY(at_type_eq(at_value_type(v), &n->types[result]) ||
            !at_type_is_static(&n->types[result]));  // refined
  AT_ENSURE(!(v.node == n && v.index == result));
  ((at_value *)n->aux)[result] = v;
  r->changed = true;
  return AT_OK;
}

bool at_fwd_has(const at_node *n) { return n->aux != NULL; }

at_status at_fwd_remove(at_rw *r, at_node *n) {
  if (!n->aux)
    AT_TRY_ALLOC(n->aux,
                 at_new(r->m->arena, at_value, (size_t)n->num_results + 1));
  at_node_remove(n);
  r->changed = true;
  return AT_OK;
}

void at_fwd_operands(at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    n->operands[i] = at_fwd(n->operands[i]);
}

void at_fwd_results(at_comp *c) {
  for (uint32_t i = 0; i < c->num_results; i++)
    c->results[i] = at_fwd(c->results[i]);
}

// Regions of loops have nodes of their own.
static at_status each_node(at_rw *r, at_comp *c,
                           at_status (*fn)(at_rw *r, at_node *n)) {
  AT_FOR_NODES(n, c) {
    at_fwd_operands(n);
    uint32_t first = r->m->next_id;
    AT_TRY(fn(r, n));
    at_mk_stand_for(n, first);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(each_node(r, n->regions[i], fn));
  }
  at_fwd_results(c);
  return AT_OK;
}

at_status at_rw_each(at_module *m, const at_pass_options *o,
                     at_status (*fn)(at_rw *r, at_node *n)) {
  at_aux_clear(m);
  at_rw r = {.m = m, .o = o};
  for (uint32_t i = 0; i < m->num_funcs; i++)
    AT_TRY(each_node(&r, m->funcs[i], fn));
  at_dce(m);
  return AT_OK;
}

// Effects that matter only to who uses the results.
static bool may_drop(const at_node *n) {
  const at_attr *a = n->op == AT_OP_CUSTOM_CALL
                         ? at_node_attr(n, AT_ATTR_FRONTEND_ATTRIBUTES)
                         : NULL;
  for (uint32_t i = 0; a && i < a->dict.n; i++)
    if (at_str_is(a->dict.kv[2 * i], "xla_allow_dce_side_effecting_op"))
      return at_str_is(a->dict.kv[2 * i + 1], "true");
  return false;
}

// ---- Dead code
typedef struct sweeper {
  at_module *m;
  bool count;  // leave the number of uses in mark
  size_t kept;
} sweeper;

// One more use of n in this sweep; marks of earlier sweeps count as 0.
static void use(const sweeper *s, at_node *n) {
  if (n->swept != s->m->sweeps) n->mark = 0;  // an earlier pass's
  n->swept = s->m->sweeps;
  n->mark++;
}

// One walk from the end: users come after what they use, and a region's owner
// comes after the values that the region captures. So a node's uses are known,
// and its marks nobody's any more, when the walk reaches it.
static void dce_comp(sweeper *s, at_comp *c) {
  for (uint32_t i = 0; i < c->num_results; i++) use(s, c->results[i].node);
  for (at_node *n = c->last, *prev; n; n = prev) {
    prev = n->prev;
    bool used = n->swept == s->m->sweeps;
    if (!used && n->op != AT_OP_PARAMETER &&
        (!at_has_effect(s->m, n) || may_drop(n))) {
      at_node_remove(n);
      continue;
    }
    if (!used || !s->count) n->mark = 0;
    n->aux = NULL;
    s->kept++;
    for (uint32_t i = 0; i < n->num_operands; i++) use(s, n->operands[i].node);
    for (uint32_t i = 0; i < n->num_regions; i++) dce_comp(s, n->regions[i]);
  }
}

// A new number of sweeps makes all earlier marks stale at once.
static size_t dce(at_module *m, bool count) {
  sweeper s = {.m = m, .count = count};
  m->sweeps++;
  for (uint32_t i = 0; i < m->num_funcs; i++) dce_comp(&s, m->funcs[i]);
  return s.kept;
}

size_t at_dce(at_module *m) { return dce(m, false); }

void at_dce_count_uses(at_module *m) { dce(m, true); }

// ---- Order
typedef struct frame {
  at_node *node;
  size_t at;  // next dependency to visit
  at_node **deps;
  size_t num_deps;
} frame;
typedef AT_VEC(at_node *) node_vec;
typedef AT_VEC(frame) frame_vec;

// Nodes of c that n reads, directly or from its regions. False: no memory.
static bool deps_of(at_node *n, const at_comp *c, at_arena *a, node_vec *out) {
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_node *d = n->operands[i].node;
    if (d->parent == c && !at_vec_push(a, out, d)) return false;
  }
  for (uint32_t i = 0; i < n->num_regions; i++) {
    at_comp *region = n->regions[i];
    AT_FOR_NODES(k, region) {
      node_vec inner = {0};
      if (!deps_of(k, c, a, &inner)) return false;
      for (size_t j = 0; j < inner.len; j++)
        if (!at_vec_push(a, out, inner.ptr[j])) return false;
    }
    for (uint32_t j = 0; j < region->num_results; j++) {
      at_node *d = region->results[j].node;
      if (d->parent == c && !at_vec_push(a, out, d)) return false;
    }
  }
  return true;
}

// aux of a node with an effect: the effect before it, which stays before it.
static bool all_deps(at_node *n, const at_comp *c, at_arena *a, node_vec *out) {
  if (n->aux && !at_vec_push(a, out, (at_node *)n->aux)) return false;
  return deps_of(n, c, a, out);
}

// Depth-first over dependencies with a stack of its own, from each node in list
// order: what is in order already keeps it. INTERNAL: a cycle.
at_status at_comp_sort(at_comp *c, at_arena *a) {
  enum { WHITE = 0, OPEN = 1, DONE = 2 };
  node_vec order = {0}, sorted = {0};
  frame_vec stack = {0};
  at_node *effect = NULL;
  AT_FOR_NODES(n, c) {
    n->mark = WHITE;
    n->aux = NULL;
    if (at_has_effect(c->module, n)) {
      n->aux = effect;
      effect = n;
    }
    if (!at_vec_push(a, &order, n)) return AT_NO_MEMORY("node order");
  }
  for (size_t i = 0; i < order.len; i++) {
    at_node *root = order.ptr[i];
    if (root->mark == DONE) continue;
    node_vec deps = {0};
    if (!all_deps(root, c, a, &deps) ||
        !at_vec_push(a, &stack, (frame){root, 0, deps.ptr, deps.len}))
      return AT_NO_MEMORY("node order");
    root->mark = OPEN;
    while (stack.len) {
      frame *f = &stack.ptr[stack.len - 1];
      if (f->at == f->num_deps) {
        f->node->mark = DONE;
        if (!at_vec_push(a, &sorted, f->node))
          return AT_NO_MEMORY("node order");
        stack.len--;
        continue;
      }
      at_node *d = f->deps[f->at++];
      if (d->mark == DONE) continue;
      if (d->mark == OPEN)
        return at_fail_at(AT_INTERNAL, d, "node depends on itself");
      node_vec more = {0};
      d->mark = OPEN;
      if (!all_deps(d, c, a, &more) ||
          !at_vec_push(a, &stack, (frame){d, 0, more.ptr, more.len}))
        return AT_NO_MEMORY("node order");
    }
  }
  // Links the list again in the new order.
  for (size_t i = 0; i < sorted.len; i++) {
    at_node *n = sorted.ptr[i];
    n->mark = 0;
    n->aux = NULL;
    n->parent = c;
    n->prev = i ? sorted.ptr[i - 1] : NULL;
    n->next = i + 1 < sorted.len ? sorted.ptr[i + 1] : NULL;
  }
  c->first = sorted.len ? sorted.ptr[0] : NULL;
  c->last = sorted.len ? sorted.ptr[sorted.len - 1] : NULL;
  return AT_OK;
}

// `from` is empty afterwards, but for its parameters.
void at_comp_splice(at_comp *from, const at_value *args, at_node *before,
                    at_value *out) {
  AT_ASSERT(before->parent != from);
  for (uint32_t i = 0; i < from->num_params; i++)
    at_replace_uses(from, (at_value){from->params[i], 0}, args[i]);
  for (uint32_t i = 0; i < from->num_results; i++) out[i] = from->results[i];
  for (at_node *n = from->first, *next; n; n = next) {
    next = n->next;
    if (n->op != AT_OP_PARAMETER) at_node_move_before(n, before);
  }
}
