// The timeline of a computation: one core, one network and the ways of the link
// to the host; any op starts when its operands are there.
#include <math.h>

#include "estimate/walk.h"

static double ready_at(const at_est_queue *q, const at_est_item *it) {
  double at = 0;
  for (size_t i = 0; i < it->needs.len; i++) {
    const at_est_item *n = &q->items[it->needs.ptr[i]];
    if (!n->done) return INFINITY;
    at = fmax(at, n->end);
  }
  return at;
}

// The next item: what can start first; at the same time the one that comes
// first. A window bounds how far ahead of program order an item may run.
enum { kWindow = 256 };
static uint32_t pick(const at_est_queue *q, uint32_t from,
                     const double *free_at) {
  uint32_t best = UINT32_MAX;
  double earliest = INFINITY;
  for (uint32_t i = from, seen = 0; i < q->count && seen < kWindow; i++) {
    const at_est_item *it = &q->items[i];
    if (it->done) continue;
    seen++;
    double at = ready_at(q, it);
    if (at == INFINITY) continue;
    if (!it->free || it->seconds > 0) at = fmax(at, free_at[it->lane]);
    if (at < earliest) earliest = at, best = i;
  }
  return best;
}

at_est_span at_est_run_timeline(at_est_walk *w, at_est_queue *q) {
  double free_at[AT_EST_LANES] = {0}, busy = 0, end = 0;
  uint32_t from = 0;
  for (uint32_t done = 0; done < q->count; done++) {
    while (from < q->count && q->items[from].done) from++;
    uint32_t i = pick(q, from, free_at);
    if (i == UINT32_MAX) i = from;  // never, in a graph without cycles
    at_est_item *it = &q->items[i];
    double at = ready_at(q, it);
    if (at == INFINITY) at = free_at[AT_EST_CORE_LANE];
    if (it->seconds > 0) at = fmax(at, free_at[it->lane]);
    it->start = at;
    it->end = at + it->seconds;
    it->done = true;
    if (it->network || it->seconds > 0) free_at[it->lane] = it->end;
    if (!it->network && it->seconds > 0) busy += it->seconds;
    end = fmax(end, it->end);
    for (uint32_t o = 0; o < it->num_ops; o++)
      w->ops.ptr[it->first_op + o].start += it->start;
  }
  return (at_est_span){end, end - busy};
}

// Shares the time in which only the network works among its ops.
void at_est_expose(at_est_walk *w, const at_est_queue *q, double exposed,
                   double count) {
  double network = 0;
  for (uint32_t i = 0; i < q->count; i++)
    if (q->items[i].network) network += q->items[i].seconds;
  if (network <= 0) return;
  for (uint32_t i = 0; i < q->count; i++) {
    const at_est_item *it = &q->items[i];
    if (!it->network) continue;
    double alone = it->seconds;
    for (uint32_t j = 0; j < q->count; j++) {
      const at_est_item *other = &q->items[j];
      if (other->network || other->seconds <= 0) continue;
      alone -=
          fmax(0, fmin(it->end, other->end) - fmax(it->start, other->start));
    }
    w->ops.ptr[it->first_op].exposed = fmax(0, fmin(alone, exposed)) * count;
  }
}

typedef struct linking {
  at_est_walk *w;
  const at_est_groups *groups;
  const at_map *index;  // group -> item + 1
  at_est_item *it;
  uint32_t i;  // of it
} linking;

static at_status need(linking *l, at_value v) {
  void **g = at_map_find_ptr(&l->groups->of, at_est_behind(v).node);
  void **at = g ? at_map_find_ptr(l->index, *g) : NULL;
  uint32_t needed = at ? (uint32_t)(uintptr_t)*at - 1 : l->i;
  if (needed == l->i) return AT_OK;
  return at_vec_push(l->w->arena, &l->it->needs, needed)
             ? AT_OK
             : AT_NO_MEMORY("needs");
}

// A region uses values of the computation around it as they are.
static at_status need_inside(linking *l, const at_node *n) {
  for (uint32_t r = 0; r < n->num_regions; r++) {
    const at_comp *c = n->regions[r];
    AT_FOR_NODES(inner, c) {
      for (uint32_t o = 0; o < inner->num_operands; o++)
        AT_TRY(need(l, inner->operands[o]));
      AT_TRY(need_inside(l, inner));
    }
    for (uint32_t o = 0; o < c->num_results; o++)
      AT_TRY(need(l, c->results[o]));
  }
  return AT_OK;
}

at_status at_est_link(at_est_walk *w, const at_est_groups *groups,
                      at_est_queue *q, uint32_t i, const at_map *index) {
  linking l = {w, groups, index, &q->items[i], i};
  const at_est_group *g = l.it->group;
  for (size_t r = 0; r < g->reads.len; r++)
    AT_TRY(need(&l, g->reads.ptr[r].value));
  return at_op_is(g->root->op, AT_CONTROL) ? need_inside(&l, g->root) : AT_OK;
}
