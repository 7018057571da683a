// What plans must say for code to be written from them, for AT_VERIFY.
#include "mosaic/plan_internal.h"

static bool is_inside(const at_mplan_run *r, const at_mop *op) {
  for (uint32_t i = r->begin; i < r->end; i++)
    if (r->block->ops[i] == op) return true;
  return false;
}

// Of operation `at` of the block: it begins there, and whole turns make its
// rows.
static bool run_holds(const at_mplan_run *r, const at_mblock *b, uint32_t at) {
  bool holds = r->block == b && r->begin == at && at < r->end &&
               r->end <= b->num_ops && r->rows > 0 && r->step > 0 &&
               r->rows % r->step == 0 &&
               r->num_products <= AT_MPLAN_ROW_PRODUCTS &&
               r->num_stores <= AT_MPLAN_MAX_STORES;
  for (uint32_t i = 0; holds && i < r->num_stores; i++)
    holds = is_inside(r, r->stores[i]) && !(r->roots[i] & ~r->written);
  return holds;
}

// Runs of a block do not overlap. Its regions join the walk.
static bool block_holds(at_walk *w, const at_mplan *p, const at_mblock *b) {
  uint32_t end = 0;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    const at_mplan_run *run = at_mplan_op_of(p, op)->run;
    if (run && (i < end || !run_holds(run, b, i))) return false;
    if (run) end = run->end;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        at_walk_add(w, op->regions[r]->blocks[k], 0);
  }
  return true;
}

bool at_mplan_holds(const at_mplan *p, at_arena *a) {
  at_walk w = at_walk_in(a);
  bool holds = true;
  for (size_t i = 0; i < p->blocks.len; i++)
    at_walk_add(&w, p->blocks.ptr[i], 0);
  for (at_walk_step s; holds && at_walk_next(&w, &s);)
    holds = block_holds(&w, p, s.item);
  return holds;
}
