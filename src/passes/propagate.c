// Sharding propagation, as Shardy defines it: shardings that the program states
// spread over operands and results through each op's factors, in rounds (by
// priority; simple ops before others; conflicts last), until nothing changes. A
// closed dimension never changes, an axis cuts a value once.
#include <stdlib.h>

#include "passes/shard.h"

// Rounds within one priority.
enum { ROUND_PLAIN, ROUND_ALL, ROUND_AGGRESSIVE, ROUND_COUNT };

typedef struct walk {
  at_cut *c;
  int round;
  bool changed;
  at_map rules;  // node -> at_rule
} walk;

// n's rule, made once: sweeps come by many times.
static at_status rule_of(walk *w, const at_node *n, const at_rule **out) {
  void **slot = at_map_put_ptr(&w->rules, n);
  if (!slot) return AT_NO_MEMORY("propagation");
  if (!*slot) {
    at_rule *r;
    AT_TRY_ALLOC(r, at_new(w->c->m->arena, at_rule, 1));
    AT_TRY(at_rule_make(w->c->m->arena, n, r));
    *slot = r;
  }
  *out = (const at_rule *)*slot;
  return AT_OK;
}

static double bytes_of(const at_place *p) {
  return p ? (double)at_type_bytes(&p->whole) : 0;
}

// ---- One op
// The axes on which the tensors that have factor f agree, and the largest of
// those tensors. Tensors that disagree share their common prefix, or, in the
// last round, what the largest says.
static at_axes merge(const walk *w, const at_rule *r, uint32_t f,
                     const at_axes *all, double *weight) {
  at_axes best = {0};
  double size = 0;
  for (uint32_t t = 0; t < r->num_tensors; t++) {
    const at_axes *x = &all[t * r->num_factors + f];
    if (!r->places[t] || !x->n) continue;
    double bytes = bytes_of(r->places[t]);
    uint32_t common = at_axes_common(&best, x);
    if (common == best.n) {
      best = *x;
    } else if (common < x->n) {
      if (w->round < ROUND_AGGRESSIVE)
        best.n = (uint8_t)common;
      else if (bytes > size)
        best = *x;
    }
    size = AT_MAX(size, bytes);
  }
  *weight = size;
  return best;
}

// Grows dimension d of p to `want`, as far as it is open and there is something
// to cut.
static void grow_to(walk *w, at_place *p, uint32_t d, at_axes want) {
  if (!(p->open >> d & 1)) return;
  at_axes *have = &p->dims[d];
  if (p->even) at_axes_keep_whole(w->c, p->mesh, p->whole.dims[d], &want);
  if (want.n <= have->n || at_axes_common(&want, have) != have->n) return;
  uint32_t used = p->banned;
  for (uint32_t i = 0; i < p->whole.rank; i++)
    if (i != d) used |= at_axes_bits(&p->dims[i]);
  int64_t left = at_axes_part(w->c, have, p->whole.dims[d]);
  for (uint32_t i = have->n; i < want.n; i++) {
    int64_t size = w->c->size[want.a[i]];
    if (used >> want.a[i] & 1 || left <= 1) break;
    left = (left + size - 1) / size;
    have->a[have->n++] = want.a[i];
    w->changed = true;
  }
}

// Grows dimension d of tensor t to what its factors say.
static void grow(walk *w, const at_rule *r, uint32_t t, uint32_t d,
                 const at_axes *factors) {
  grow_to(w, r->places[t], d, at_rule_dim(w->c, r, t, d, factors));
}

// Axes that spread are of the mesh that they come from.
static void spread_mesh(const at_rule *r) {
  const at_mesh *mesh = NULL;
  for (uint32_t t = 0; !mesh && t < r->num_tensors; t++) {
    const at_place *p = r->places[t];
    if (p && at_dims_bits(p->dims, p->whole.rank)) mesh = p->mesh;
  }
  for (uint32_t t = 0; t < r->num_tensors; t++)
    if (r->places[t] && !r->places[t]->mesh) r->places[t]->mesh = mesh;
}

// Projects every tensor's cut onto the factors, merges per factor, settles
// conflicts between factors, and grows the tensors' dimensions to the result.
static at_status visit_rule(walk *w, const at_rule *r) {
  uint32_t nf = r->num_factors;
  if (!nf) return AT_OK;
  spread_mesh(r);
  at_axes *all, *best;
  double *weight;
  // One block: cuts of every tensor's factors, the merged ones, their weights.
  // Freed here, as sweeps would fill the arena.
  size_t cells = (size_t)nf * r->num_tensors;
  AT_TRY_ALLOC(all, malloc((cells + nf) * sizeof *all + nf * sizeof *weight));
  best = all + cells;
  weight = (double *)(void *)(best + nf);
  for (uint32_t t = 0; t < r->num_tensors; t++) {
    for (uint32_t f = 0; f < nf; f++) all[(size_t)t * nf + f].n = 0;
    if (r->places[t])
      at_rule_project(w->c, r, t, r->places[t]->dims, all + (size_t)t * nf);
  }
  for (uint32_t f = 0; f < nf; f++) best[f] = merge(w, r, f, all, &weight[f]);
  // An axis serves one factor: the one of the largest tensor.
  for (uint32_t f = 0; f < nf; f++)
    for (uint32_t i = 0; i < best[f].n; i++)
      for (uint32_t g = 0; g < nf; g++) {
        bool beats = weight[g] > weight[f] || (weight[g] == weight[f] && g < f);
        if (g != f && beats && at_axes_bits(&best[g]) >> best[f].a[i] & 1)
          best[f].n = (uint8_t)i;
      }
  for (uint32_t t = 0; t < r->num_tensors; t++)
    for (uint32_t d = 0; r->places[t] && d < r->places[t]->whole.rank; d++)
      grow(w, r, t, d, best);
  free(all);
  return AT_OK;
}

// Two values that are one: what a loop carries, what a branch returns, what
// passes a barrier.
static at_status visit_pair(walk *w, at_value a, at_value b) {
  at_place *places[2] = {at_place_of(a), at_place_of(b)};
  if (!places[0] || !places[1] || places[0] == places[1]) return AT_OK;
  at_rule r = {.num_tensors = 2, .places = places};
  at_dim_factors da[64] = {0}, db[64] = {0}, *dims[2] = {da, db};
  uint32_t rank = places[0]->whole.rank;
  if (rank != places[1]->whole.rank || rank > 64) return AT_OK;
  r.dims = dims;
  for (uint32_t d = 0; d < rank; d++) {
    r.size[d] = places[0]->whole.dims[d];
    da[d] = db[d] = (at_dim_factors){1, {(uint8_t)d}};
  }
  r.num_factors = rank;
  return visit_rule(w, &r);
}

// What a region returns is the op's result; a loop's operands are its results,
// too.
static at_status visit_control(walk *w, at_node *n) {
  for (uint32_t k = 0; k < n->num_regions; k++) {
    const at_comp *body = n->regions[k];
    if (n->op == AT_OP_WHILE && k == 0)
      continue;  // the condition's result is a scalar
    for (uint32_t i = 0; i < body->num_results && i < n->num_results; i++)
      AT_TRY(visit_pair(w, body->results[i], (at_value){n, i}));
  }
  if (n->op == AT_OP_WHILE)
    for (uint32_t i = 0; i < n->num_operands; i++)
      AT_TRY(visit_pair(w, n->operands[i], (at_value){n, i}));
  return AT_OK;
}

// A value outside a manual computation, cut by `manual` axes first, and what
// its body sees of it: the other axes are shared.
static void visit_boundary(walk *w, at_place *outside, at_place *inside,
                           const at_axes *declared, uint32_t manual) {
  if (!outside || !inside) return;
  for (uint32_t d = 0; d < inside->whole.rank; d++) {
    at_axes own = at_axes_within(&declared[d], manual), all = own;
    const at_axes *out = &outside->dims[d], *in = &inside->dims[d];
    if (at_axes_common(out, &own) == own.n) {
      at_axes rest = {0};
      for (uint32_t k = own.n; k < out->n; k++) rest.a[rest.n++] = out->a[k];
      grow_to(w, inside, d, rest);
    }
    for (uint32_t k = 0; k < in->n && all.n < AT_MAX_ATOMS; k++)
      all.a[all.n++] = in->a[k];
    grow_to(w, outside, d, all);
  }
}

// Both edges of a manual computation.
static at_status visit_manual(walk *w, at_node *n) {
  uint32_t manual;
  const at_comp *body = n->regions[0];
  AT_TRY(at_axes_mask(w->c, at_node_str(n, AT_ATTR_MANUAL_AXES), &manual));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_place *p = at_place_of((at_value){body->params[i], 0});
    visit_boundary(w, at_place_of(n->operands[i]), p, p->outer->dims, manual);
  }
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_place *p = at_place_of((at_value){n, i});
    visit_boundary(w, p, at_place_of(body->results[i]), p->dims, manual);
  }
  return AT_OK;
}

// GSPMD's way into a manual computation, or out of it.
static void visit_mark(walk *w, at_node *n) {
  at_place *from = at_place_of(n->operands[0]);
  at_place *to = at_place_of((at_value){n, 0});
  at_place *outside = at_is_manual_entry(n) ? from : to;
  visit_boundary(w, outside, outside == from ? to : from, outside->dims,
                 at_boundary_axes(n));
}

// Values that the program wants to be cut alike.
static at_status visit_groups(walk *w) {
  at_node **list = w->c->groups.ptr;
  for (size_t i = 1; i < w->c->groups.len; i++) {
    at_str id = at_node_str(list[i], AT_ATTR_BACKEND_CONFIG);
    size_t k = i;
    while (k-- > 0)
      if (at_str_eq(at_node_str(list[k], AT_ATTR_BACKEND_CONFIG), id)) break;
    if (k < i)
      AT_TRY(visit_pair(w, list[k]->operands[0], list[i]->operands[0]));
  }
  return AT_OK;
}

// ---- The whole program
static at_status visit_comp(walk *w, at_comp *c, bool backward);

// Control flow is visited before and after its regions, so that a sweep carries
// cuts in and out at once.
static at_status visit_node(walk *w, at_node *n, bool backward) {
  if (!n->aux) return AT_OK;
  const at_rule *r;
  switch (n->op) {
    case AT_OP_WHILE:
    case AT_OP_IF:
    case AT_OP_CASE:
      AT_TRY(visit_control(w, n));
      for (uint32_t k = 0; k < n->num_regions; k++)
        AT_TRY(visit_comp(w, n->regions[k], backward));
      return visit_control(w, n);
    case AT_OP_OPTIMIZATION_BARRIER:
      for (uint32_t i = 0; i < n->num_results; i++)
        AT_TRY(visit_pair(w, n->operands[i], (at_value){n, i}));
      return AT_OK;
    case AT_OP_MANUAL_COMPUTATION:
      AT_TRY(visit_manual(w, n));
      AT_TRY(visit_comp(w, n->regions[0], backward));
      return visit_manual(w, n);
    default:
      if (at_is_manual_entry(n) || at_is_manual_exit(n))
        return visit_mark(w, n), AT_OK;
      AT_TRY(rule_of(w, n, &r));
      return r->known && (r->plain || w->round > ROUND_PLAIN) ? visit_rule(w, r)
                                                              : AT_OK;
  }
}

// All nodes in order, or from the last to the first.
static at_status visit_comp(walk *w, at_comp *c, bool backward) {
  for (at_node *n = backward ? c->last : c->first; n;
       n = backward ? n->prev : n->next)
    AT_TRY(visit_node(w, n, backward));
  return AT_OK;
}

// Shardings of this priority join. *more: some are still to come.
static void join(walk *w, at_comp *c, int8_t level, bool *more) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; n->aux && i < n->num_results; i++) {
      at_place *p = at_place_of((at_value){n, i});
      for (uint32_t d = 0; p && p->later && d < p->whole.rank; d++) {
        if (!p->later[d].n || p->priority[d] > level) {
          *more |= p->later[d].n > 0;
          continue;
        }
        uint32_t used = p->banned;
        for (uint32_t k = 0; k < p->whole.rank; k++)
          used |= at_axes_bits(&p->dims[k]);
        if (!p->dims[d].n && !(used & at_axes_bits(&p->later[d]))) {
          p->dims[d] = p->later[d];
          w->changed = true;
        }
        p->later[d].n = 0;
      }
    }
    for (uint32_t k = 0; n->aux && k < n->num_regions; k++)
      join(w, n->regions[k], level, more);
  }
}

// Rounds in order of caution; each is repeated until a sweep changes nothing.
// Cuts only grow.
static at_status rounds(walk *w) {
  // Each sweep adds an axis somewhere; the bound is for programs of hostile
  // depth.
  for (w->round = 0; w->round < ROUND_COUNT; w->round++)
    for (int sweep = 0; sweep < 200; sweep++) {
      w->changed = false;
      AT_TRY(visit_comp(w, w->c->m->entry, false));
      AT_TRY(visit_comp(w, w->c->m->entry, true));
      AT_TRY(visit_groups(w));
      if (!w->changed) break;
    }
  return AT_OK;
}

// Priorities 0 to 100, as long as some sharding waits for a later one.
at_status at_propagate(at_cut *c) {
  walk w = {.c = c, .rules = at_map_in(c->m->arena)};
  bool more = true;
  for (int level = 0; more && level <= 100; level++) {
    more = false;
    w.changed = level == 0;
    join(&w, c->m->entry, (int8_t)level, &more);
    if (w.changed) AT_TRY(rounds(&w));
  }
  return AT_OK;
}
