// Places of the program that code names by number.
#include "mosaic/emit.h"

struct at_me_places {
  const at_mloc **locs;  // `max` each
  const char **ops;
  uint32_t num, max;
  at_map placed;  // at_mop * -> 1 + its number
  const at_mloc
      *around;  // of the innermost op around this one that has a place
};

// The tables are the caller's: they outlive the function.
at_me_places *at_me_places_new(at_arena *a, const at_mloc **locs,
                               const char **ops, uint32_t max) {
  at_me_places *p = at_new(a, at_me_places, 1);
  if (p)
    *p = (at_me_places){
        .locs = locs, .ops = ops, .max = max, .placed = at_map_in(a)};
  return p;
}

uint32_t at_me_places_num(const at_me *m) { return m->places->num; }

// Yields what at_me_place_leave puts back.
const at_mloc *at_me_place_enter(at_me *m, const at_mop *op) {
  const at_mloc *outer = m->places->around;
  if (op->num_regions && *at_mosaic_place_of(op->loc).file)
    m->places->around = op->loc;
  return outer;
}

void at_me_place_leave(at_me *m, const at_mloc *outer) {
  m->places->around = outer;
}

// An operation gets one number, the first time that it is asked for. A full
// table yields its last entry.
int32_t at_me_loc(at_me *m, const at_mop *op) {
  at_me_places *p = m->places;
  if (m->window) return -1;
  // Steps inside a scope that JAX made itself stand where the scope does.
  const at_mloc *loc = *at_mosaic_place_of(op->loc).file ? op->loc : p->around;
  void **at = at_map_put_ptr(&p->placed, op);
  if (at && *at) return (int32_t)((uintptr_t)*at - 1);
  if (p->num == p->max) return (int32_t)p->num - 1;
  p->locs[p->num] = loc;
  p->ops[p->num] = op->name;
  if (at) *at = (void *)(uintptr_t)(p->num + 1);
  return (int32_t)p->num++;
}

LLVMValueRef at_me_loc_value(at_me *m, const at_mop *op) {
  return at_me_i32(m, at_me_loc(m, op));
}
