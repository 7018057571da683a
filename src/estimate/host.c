// How many bytes a program on the host touches between two uses of a value:
// what decides which cache still holds it.
#include <math.h>

#include "estimate/estimate_internal.h"

// Bytes touched since v was last used, with this use's own; what this run has
// not touched was used in the run before. Advances the clock by `bytes`.
double at_est_distance(void *user, at_value v, double bytes, bool write) {
  at_est_reuse *r = user;
  v = at_est_behind(v);
  const void *key = &at_value_type(v)->dtype;
  uint64_t address;
  // A step in place writes what it has just read.
  if (r->address && r->address(r->address_user, v, &address))
    key = (const void *)(uintptr_t)(address + 1);
  void **place = at_map_put_ptr(&r->last, key);
  bool seen = place && *place;
  double *at = seen ? *place : at_new(r->arena, double, 1);
  r->failed |= !place || !at;
  double far = seen ? fmin(r->now - *at, r->footprint) : r->footprint;
  bool result = false;
  for (uint32_t i = 0; i < r->comp->num_results; i++)
    result |= at_value_eq(at_est_behind(r->comp->results[i]), v);
  // Memory of a value that died is given out again.
  if (write && !seen && !result) far = r->temps;
  r->now += bytes;
  if (at) *at = r->now;
  if (place) *place = at;
  // What is in use now has passed through the caches as well.
  return far + bytes;
}

// Of what lies nowhere, nothing is said: updates are in place.
static bool same_place(void *user, at_value a, at_value b) {
  const at_est_reuse *r = user;
  uint64_t x, y;
  return !r->address || !r->address(r->address_user, at_est_behind(a), &x) ||
         !r->address(r->address_user, at_est_behind(b), &y) || x == y;
}

// Borrows *r.
at_host_memory at_est_host_memory(at_est_reuse *r) {
  return (at_host_memory){at_est_distance, same_place, r};
}

// Adds up what a run touches; the distance that it returns is not used.
static double sum_touched(void *user, at_value v, double bytes, bool write) {
  *(double *)user += bytes;
  return 0;
}

// A run of the program comes after another; a turn of a loop after another.
at_status at_est_reuse_start(const at_target *t, const at_estimate_options *o,
                             const at_estimate *e, const at_comp *c,
                             at_arena *a, at_est_reuse *out) {
  *out = (at_est_reuse){.arena = a,
                        .comp = c,
                        .last = at_map_in(a),
                        .address = o->address,
                        .address_user = o->address_user};
  double touched = 0;
  at_host_memory sum = {sum_touched, NULL, &touched};
  AT_FOR_NODES(n, c) {
    at_host_time time;
    if (at_op_is(n->op, AT_CONTROL) || at_op_is(n->op, AT_COLLECTIVE) ||
        at_op_of(n->op)->cost == AT_COST_NONE)
      continue;
    AT_TRY(at_host_node(t, n, &sum, &time));
  }
  out->footprint = fmin(touched, (double)e->peak_bytes);
  out->temps = fmin(touched, (double)e->temp_bytes);
  return AT_OK;
}
