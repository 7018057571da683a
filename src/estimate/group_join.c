// Kernels that join others: reductions the kernel that writes what they reduce,
// the parts of a softmax its quotient, chains and siblings each other.
#include "estimate/group_internal.h"
#include "tpu/tpu.h"

// ---- Reductions join the kernel that writes what they reduce

// Does it sum over the last dimension?
static bool reduces_rows(const at_node *n) {
  at_dims d = at_node_ints(n, AT_ATTR_DIMENSIONS);
  uint32_t rank = at_value_type(n->operands[0])->rank;
  for (uint32_t i = 0; i < d.rank; i++)
    if (d.ptr[i] == (int64_t)rank - 1) return true;
  return false;
}

// Scores whose heads lie outside of the sequence have rows along the lanes; the
// others are laid out for the products around them, and a sum over their rows
// is a kernel of its own.
static bool has_rows(const at_node *product) {
  at_dims b = at_node_ints(product, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  for (uint32_t i = 0; i < b.rank; i++)
    if (b.ptr[i] != (int64_t)i) return false;
  return true;
}

// May group `g` (whose root comes earlier) also compute the kept node `n`?
static bool can_join(cutter *k, const at_est_group *from,
                     const at_est_group *g) {
  for (size_t i = 0; i < from->reads.len; i++) {
    at_node *n = from->reads.ptr[i].value.node;
    info *j = at_cut_info_of(k, n);
    if (!j || at_cut_is_given(n) || j->group == g) continue;
    if (!j->group || j->group->order >= g->order) return false;
    if (j->order >= g->order) return false;
  }
  return true;
}

// Does `from` need what `g` has reduced? That is known when all is reduced.
static bool needs_reduced(cutter *k, const at_est_group *from,
                          const at_est_group *g) {
  for (size_t i = 0; i < from->reads.len; i++) {
    const at_node *n = from->reads.ptr[i].value.node;
    const info *j = at_cut_info_of(k, n);
    if (j && j->group == g && at_cut_is_reduce(n)) return true;
  }
  return false;
}

// The kernel that writes what `from` reduces or follows; NULL: none that may.
static at_est_group *writer_to_join(cutter *k, const at_est_group *from) {
  at_node *reduce = at_cut_reduction(k, from->root);
  int64_t size =
      at_cut_elements(reduce ? reduce->operands[0].node : from->root);
  at_est_group *best = NULL;
  for (size_t i = 0; i < from->reads.len; i++) {
    at_node *n = from->reads.ptr[i].value.node;
    info *j = at_cut_info_of(k, n);
    at_est_group *g = j ? j->group : NULL;
    if (!g || g == from || at_cut_elements(n) != size) continue;
    bool fits = g->product || at_cut_is_elementwise(g->root);
    if (fits && can_join(k, from, g) && !needs_reduced(k, from, g)) best = g;
  }
  return best;
}

// ---- Groups that become part of a later one

// Everybody who reads what `from` writes is one of `together`, or comes with or
// after the last of them.
static bool can_wait(cutter *k, const at_est_group *from,
                     at_est_group *const *together, uint32_t count) {
  for (size_t n = 0; n < from->own.len; n++) {
    info *i = at_cut_info_of(k, from->own.ptr[n]);
    for (size_t u = 0; u < i->users.len; u++) {
      k->visits++;
      info *j = at_cut_info_of(k, i->users.ptr[u]);
      if (!j->kept && j->sink) j = at_cut_info_of(k, j->sink);
      if (!j->group) return false;
      bool ok = j->group->order >= together[count - 1]->order;
      for (uint32_t t = 0; t < count; t++) ok |= j->group == together[t];
      if (!ok) return false;
    }
  }
  return true;
}

// `to` computes what `from` did, which is empty then.
static at_status give(cutter *k, at_est_group *from, at_est_group *to) {
  for (size_t n = 0; n < from->own.len; n++)
    AT_TRY(at_cut_own(k, to, from->own.ptr[n]));
  from->own.len = 0;
  from->root = NULL;
  return AT_OK;
}

// A constant, or a broadcast of one?
static bool is_constant(at_value v) {
  at_node *n = at_est_behind(v).node;
  while (n->op == AT_OP_BROADCAST_IN_DIM)
    n = at_est_behind(n->operands[0]).node;
  return n->op == AT_OP_CONSTANT;
}

// Behind conversions, broadcasts and a maximum with a constant.
static at_node *behind_small(at_value v) {
  for (;;) {
    at_node *n = at_est_behind(v).node;
    if (n->op == AT_OP_MAXIMUM && is_constant(n->operands[0]))
      v = n->operands[1];
    else if (n->op == AT_OP_CONVERT || n->op == AT_OP_BROADCAST_IN_DIM)
      v = n->operands[0];
    else
      return n;
  }
}

// exp(x - max(x)) / sum(exp(x - max(x))): the nodes whose groups join that of
// the quotient, which the compiler makes one kernel.
static bool is_softmax(const at_node *n, at_node *parts[3]) {
  while (n->op == AT_OP_CONVERT) n = at_est_behind(n->operands[0]).node;
  if (n->op != AT_OP_DIVIDE) return false;
  at_node *e = behind_small(n->operands[0]);
  at_node *sum = behind_small(n->operands[1]);
  if (e->op != AT_OP_EXPONENTIAL || sum->op != AT_OP_REDUCE) return false;
  if (behind_small(sum->operands[0]) != e) return false;
  at_node *d = behind_small(e->operands[0]);
  if (d->op != AT_OP_SUBTRACT) return false;
  at_node *most = behind_small(d->operands[1]);
  if (most->op != AT_OP_REDUCE) return false;
  if (behind_small(most->operands[0]) != behind_small(d->operands[0]))
    return false;
  parts[0] = e, parts[1] = sum, parts[2] = most;
  return true;
}

// The maximum, the exponentials and their sum join the quotient, if nobody else
// needs them before.
static at_status join_softmax(cutter *k, at_est_group *g) {
  at_node *parts[3];
  if (!g->root || g->product || !is_softmax(g->root, parts)) return AT_OK;
  if (!at_cut_holds_rows(parts[1])) return AT_OK;
  at_est_group *together[4];
  uint32_t count = 0;
  for (int p = 0; p < 3; p++) {
    info *i = at_cut_info_of(k, parts[p]);
    if (!i || (i->group && i->group->product)) return AT_OK;
    if (i->group && i->group != g) together[count++] = i->group;
  }
  together[count++] = g;
  for (uint32_t t = 0; t + 1 < count; t++)
    if (together[t]->order > g->order ||
        !can_wait(k, together[t], together, count))
      return AT_OK;
  for (uint32_t t = 0; t + 1 < count; t++)
    if (together[t]->root) AT_TRY(give(k, together[t], g));
  g->softmax = true;
  return at_cut_read_group(k, g);
}

// Elements that an elementwise kernel works on; an update in place works on
// what it writes. 0: another kind of kernel.
static int64_t worked_on(const at_est_group *g) {
  if (!g->root || g->product || g->reduces > 0) return 0;
  if (g->root->op == AT_OP_DYNAMIC_UPDATE_SLICE)
    return at_cut_elements(g->root->operands[1].node);
  return at_cut_is_elementwise(g->root) ? at_cut_elements(g->root) : 0;
}

// What an elementwise kernel computes and another of the same size reads is
// written by that kernel, where nobody needs it before.
static at_status join_producers(cutter *k, at_est_group *g) {
  for (size_t r = 0; worked_on(g) && r < g->reads.len; r++) {
    at_node *n = g->reads.ptr[r].value.node;
    info *i = at_cut_info_of(k, n);
    at_est_group *from = i ? i->group : NULL;
    if (!from || from == g || from->root != n) continue;
    if (!k->timed && !at_cut_is_result(k, n)) continue;
    if (!at_cut_is_elementwise(n) || worked_on(from) != worked_on(g) ||
        (!k->timed && !at_cut_is_elementwise(g->root)) ||
        !can_wait(k, from, (at_est_group *[]){from, g}, 2))
      continue;
    AT_TRY(give(k, from, g));
    AT_TRY(at_cut_read_group(k, g));
    r = SIZE_MAX;  // its reads are others now
  }
  return AT_OK;
}

// Elementwise kernels of one size that read the same array are one kernel.
static at_status join_siblings(cutter *k, at_est_group *g) {
  for (size_t r = 0; worked_on(g) && r < g->reads.len; r++) {
    at_node *n = g->reads.ptr[r].value.node;
    info *i = at_cut_info_of(k, n);
    if (!i || at_cut_elements(n) != worked_on(g)) continue;
    for (size_t u = 0; u < i->users.len; u++) {
      info *j = at_cut_info_of(k, i->users.ptr[u]);
      if (!j->kept && j->sink) j = at_cut_info_of(k, j->sink);
      at_est_group *from = j->group;
      if (!from || from == g || from->order > g->order ||
          worked_on(from) != worked_on(g) ||
          !can_wait(k, from, (at_est_group *[]){from, g}, 2))
        continue;
      AT_TRY(give(k, from, g));
      AT_TRY(at_cut_read_group(k, g));
      r = SIZE_MAX;  // its reads are others now
      break;
    }
  }
  return AT_OK;
}

// What a product computes and puts into a larger array is put there by its
// kernel.
static at_status join_put(cutter *k, at_node *n) {
  info *i = at_cut_info_of(k, n);
  at_est_group *from = i->group;
  if (!from || from->root != n || n->op != AT_OP_DYNAMIC_UPDATE_SLICE)
    return AT_OK;
  int64_t size = at_cut_elements(n->operands[1].node);
  for (size_t r = 0; r < from->reads.len; r++) {
    at_node *p = from->reads.ptr[r].value.node;
    info *j = at_cut_info_of(k, p);
    at_est_group *g = j ? j->group : NULL;
    if (!g || g == from || !g->product || at_cut_elements(p) != size ||
        !can_join(k, from, g))
      continue;
    AT_TRY(give(k, from, g));
    return at_cut_read_group(k, g);
  }
  return AT_OK;
}

// Softmaxes, chains and siblings first; then values that are put into larger
// ones, and reductions that join their producer.
at_status at_cut_join(cutter *k) {
  for (size_t x = 0; x < k->groups.len; x++)
    AT_TRY(at_cut_read_group(k, k->groups.ptr[x]));
  for (size_t x = 0; x < k->groups.len; x++) {
    AT_TRY(join_softmax(k, k->groups.ptr[x]));
    AT_TRY(join_producers(k, k->groups.ptr[x]));
    if (k->timed) AT_TRY(join_siblings(k, k->groups.ptr[x]));
  }
  for (size_t n = 0; n < k->nodes.len; n++)
    AT_TRY(join_put(k, k->nodes.ptr[n]));
  for (size_t n = 0; n < k->nodes.len; n++) {
    at_node *p = k->nodes.ptr[n];
    info *i = at_cut_info_of(k, p);
    at_est_group *from = i->group;
    if (!from || from->root != p || from->product) continue;
    bool reduce = at_cut_reduction(k, p) != NULL;
    bool follows =
        at_cut_is_elementwise(p) && i->costly;  // softmax after its scores
    if (!reduce && !follows) continue;
    at_est_group *g = writer_to_join(k, from);
    if (!g || (follows && !g->by_rows)) continue;
    if (reduce && g->product && reduces_rows(at_cut_reduction(k, p)) &&
        has_rows(g->product))
      g->by_rows = true;
    AT_TRY(give(k, from, g));
    AT_TRY(at_cut_read_group(k, g));
  }
  return AT_OK;
}
