// Where the operands of a TPU's kernels are: what earlier kernels left in VMEM,
// and what was prefetched while they ran.
#include <math.h>

#include "estimate/walk.h"

// Is v in the set?
static bool is_in(const at_map *m, at_value v) {
  return at_map_find_ptr(m, at_est_key(v)) != NULL;
}

// False when it was there already, or there is no memory for it.
static bool put_in(at_est_residency *r, at_map *m, at_value v) {
  void **place = at_map_put_ptr(m, at_est_key(v));
  r->failed |= !place;
  if (!place || *place) return false;
  *place = v.node;
  return true;
}

// See walk.h; the caller counts its bytes.
bool at_est_keep(at_est_residency *r, at_value v) {
  return put_in(r, &r->kept, v);
}

// See walk.h: whole tiles of the compact layout.
double at_est_tiled(at_value v) {
  const at_type *t = at_value_type(v);
  if (!at_type_is_static(t)) return 0;
  return at_tpu_compact_tiles(at_type_dims(t), NULL) *
         at_tpu_tile_bytes(t->dtype);
}

// A value in HBM is prefetched while earlier kernels run, where there was time
// and room.
static bool prefetch(at_est_residency *r, at_value v) {
  if (is_in(&r->prefetched, v)) return true;
  double bytes = at_est_tiled(v);
  double takes = bytes / r->w->chip.hbm_rate / r->w->chip.clock;
  if (bytes > r->capacity - r->used || r->fetched + takes > r->now)
    return false;
  r->fetched += takes;
  if (put_in(r, &r->prefetched, v)) r->used += bytes;
  return true;
}

// Two cores leave their results in HBM. Did a kernel run since this was made,
// and does it fit into one of the two memories?
static bool waits_in_hbm(const at_est_residency *r, at_value v) {
  double cores = r->w->chip.cores;
  if (cores < 2 || !r->previous || at_est_tiled(v) > r->capacity / cores)
    return false;
  for (size_t i = 0; i < r->previous->writes.len; i++)
    if (at_value_eq(r->previous->writes.ptr[i], v)) return false;
  return true;
}

// In this order: pinned, left there, prefetched. Loops read slices in HBM.
bool at_est_in_vmem(void *user, at_value v) {
  at_est_residency *r = user;
  if (v.node == r->pinned || is_in(&r->kept, v)) return true;
  if (r->comp->owner) return false;  // turns read slices where they are
  if (v.node->op == AT_OP_PARAMETER || v.node->op == AT_OP_CONSTANT)
    return prefetch(r, v);
  return waits_in_hbm(r, v) && prefetch(r, v);
}

bool at_est_is_result(const at_est_residency *r, at_value v) {
  for (uint32_t i = 0; i < r->comp->num_results; i++)
    if (at_value_eq(at_est_behind(r->comp->results[i]), v)) return true;
  return false;
}

// Results of the program go to HBM.
bool at_est_out_vmem(void *user, at_value v) {
  at_est_residency *r = user;
  if (!r->leaves || (!r->comp->owner && at_est_is_result(r, v))) return false;
  return at_est_tiled(v) <= r->capacity - r->used;
}

// The operand that the compiler brings in ahead of the program's first
// contraction or reduction: the largest that fits.
void at_est_pin_first(at_est_residency *r, const at_est_group *g) {
  r->pinned = NULL;
  if (r->comp->owner || r->now > 0 || !(g->product || g->reduces > 0)) return;
  double best = 0;
  for (size_t i = 0; i < g->reads.len; i++) {
    at_value v = g->reads.ptr[i].value;
    if (v.node->op != AT_OP_PARAMETER || at_est_tiled(v) > r->capacity ||
        (g->product && at_est_image_is_turned(g->product, v)))
      continue;
    if (at_est_tiled(v) > best) best = at_est_tiled(v), r->pinned = v.node;
  }
  double takes = best / r->w->chip.hbm_rate / r->w->chip.clock;
  r->fetched += takes;
  r->w->e->prefetch += takes;
}

// Its results may stay; operands that nobody reads after it free their room.
void at_est_settle(at_est_residency *r, const at_est_group *g, uint32_t index,
                   const uint32_t *last_use) {
  r->previous = g;
  for (size_t i = 0; i < g->writes.len; i++) {
    at_value v = g->writes.ptr[i];
    if (at_est_out_vmem(r, v) && put_in(r, &r->kept, v))
      r->used += at_est_tiled(v);
  }
  for (size_t i = 0; i < g->reads.len; i++) {
    at_value v = g->reads.ptr[i].value;
    bool here = is_in(&r->kept, v) || is_in(&r->prefetched, v);
    AT_ASSERT(last_use[i] >= index);
    if (here && last_use[i] == index)
      r->used = fmax(0, r->used - at_est_tiled(v));
  }
}

// For each operand of each kernel: the last kernel that reads it.
at_status at_est_last_uses(at_est_walk *w, const at_est_groups *g,
                           uint32_t ***out) {
  at_map last = at_map_in(w->arena);
  AT_TRY_ALLOC(*out, at_new(w->arena, uint32_t *, g->count + 1));
  for (uint32_t i = 0; i < g->count; i++)
    for (size_t r = 0; r < g->list[i]->reads.len; r++) {
      void **place;
      AT_TRY_ALLOC(
          place,
          at_map_put_ptr(&last, at_est_key(g->list[i]->reads.ptr[r].value)));
      *place = (void *)(uintptr_t)i;
    }
  for (uint32_t i = 0; i < g->count; i++) {
    AT_TRY_ALLOC((*out)[i],
                 at_new(w->arena, uint32_t, g->list[i]->reads.len + 1));
    for (size_t r = 0; r < g->list[i]->reads.len; r++)
      (*out)[i][r] = (uint32_t)(uintptr_t)*at_map_find_ptr(
          &last, at_est_key(g->list[i]->reads.ptr[r].value));
  }
  return AT_OK;
}
