// The timeline of a computation: kernels one after the other, and beside them
// what uses the network or the link to the host, in the scheduler's order.
#include <math.h>

#include "estimate/walk.h"
#include "schedule/overlap.h"

// Starts and ends as the latency-hiding scheduler has them; items that it does
// not know keep theirs.
static at_status place(at_est_walk *w, const at_comp *c, at_est_queue *q,
                       double *seconds) {
  at_map when;
  at_target t = *w->target;
  at_lhs_options o = at_overlap_options(&t);
  t.kernels = &w->times;
  AT_TRY(at_overlap_place(c, &t, &o, w->arena, &when, seconds));
  for (uint32_t i = 0; i < q->count; i++) {
    void **at = at_map_find_ptr(&when, q->items[i].group->root);
    if (!at) continue;
    q->items[i].start = ((at_overlap_when *)*at)->begin;
    q->items[i].end = ((at_overlap_when *)*at)->end;
  }
  return AT_OK;
}

// One after the other if nothing runs beside kernels; else as the scheduler
// places them. exposed: what kernels do not cover.
at_status at_est_run_timeline(at_est_walk *w, const at_comp *c, at_est_queue *q,
                              at_est_span *out) {
  bool beside = false;
  double busy = 0, now = 0;
  for (uint32_t i = 0; i < q->count; i++) {
    at_est_item *it = &q->items[i];
    beside |= it->network;
    it->start = now;
    it->end = now += it->lead + it->seconds;
    if (!it->network) busy += it->lead + it->seconds;
  }
  if (beside) AT_TRY(place(w, c, q, &now));
  for (uint32_t i = 0; i < q->count; i++)
    for (uint32_t o = 0; o < q->items[i].num_ops; o++)
      w->ops.ptr[q->items[i].first_op + o].start +=
          q->items[i].start + q->items[i].lead;
  *out = (at_est_span){now, fmax(0, now - busy)};
  return AT_OK;
}

// Of each op beside the kernels: its time without those kernels that run
// meanwhile, at most all that is exposed.
void at_est_expose(at_est_walk *w, const at_est_queue *q, double exposed,
                   double count) {
  for (uint32_t i = 0; i < q->count; i++) {
    const at_est_item *it = &q->items[i];
    if (!it->network) continue;
    double alone = it->end - it->start;
    for (uint32_t j = 0; j < q->count; j++) {
      const at_est_item *other = &q->items[j];
      if (other->network || other->seconds <= 0) continue;
      alone -=
          fmax(0, fmin(it->end, other->end) - fmax(it->start, other->start));
    }
    w->ops.ptr[it->first_op].exposed = fmax(0, fmin(alone, exposed)) * count;
  }
}
