// Bounds of a grid that come as operands, where shapes say what they are at
// most: a grid id that an index map looks up in a prefetched array stays within
// that array.
#include "tpu/timing.h"

#include "mosaic/tree.h"
#include "tpu/timing_internal.h"

// The value before index casts.
static const at_mvalue *behind_casts(const at_mvalue *v) {
  while (v->op && v->op->num_operands == 1 &&
         at_mosaic_opcode_of(v->op) == AT_MOSAIC_ARITH_INDEX_CAST)
    v = v->op->operands[0];
  return v;
}

// Elements of the array that `op` looks grid id `dim` up in; -1: it does not.
static int64_t looked_up(const at_mosaic_program *p, const at_mblock *b,
                         const at_mop *op, uint32_t dim) {
  if (at_mosaic_opcode_of(op) != AT_MOSAIC_MEMREF_LOAD ||
      op->num_operands != 2 || behind_casts(op->operands[1]) != &b->args[dim])
    return -1;
  const at_mvalue *array = op->operands[0];
  bool found = at_ms_prefetched(p, array) >= 0;
  return found && array->type->shape.rank == 1 ? array->type->shape.ptr[0] : -1;
}

// Of one dimension; -1: no index map tells.
static int64_t most_steps(const at_mosaic_program *p, uint32_t dim) {
  int64_t most = -1;
  for (uint32_t i = 0; i < p->num_windows; i++) {
    const at_mop *map = p->windows[i].transform;
    if (!map) continue;
    const at_mblock *b = map->regions[0]->blocks[0];
    for (uint32_t k = 0; k < b->num_ops && dim < b->num_args; k++) {
      int64_t n = looked_up(p, b, b->ops[k], dim);
      if (n >= 0 && (most < 0 || n < most)) most = n;
    }
  }
  return most;
}

// Changes given->bounds, in `a`.
at_status at_mosaic_bounds_at_most(const at_mosaic_program *p,
                                   at_mosaic_given *given, at_arena *a,
                                   uint32_t *out_found) {
  int64_t *bounds;
  *out_found = 0;
  if (!p->num_dynamic) return AT_OK;
  uint32_t n = AT_MAX(given->num_bounds, p->num_dynamic);
  AT_TRY_ALLOC(bounds, at_new(a, int64_t, n));
  for (uint32_t i = 0; i < n; i++)
    bounds[i] = i < given->num_bounds ? given->bounds[i] : -1;
  for (uint32_t d = 0; d < p->grid_rank; d++) {
    const at_mosaic_axis *x = &p->grid[d];
    if (!x->dynamic || x->operand >= n || bounds[x->operand] >= 0) continue;
    bounds[x->operand] = most_steps(p, d);
    *out_found += bounds[x->operand] >= 0;
  }
  given->bounds = bounds;
  given->num_bounds = n;
  return AT_OK;
}
