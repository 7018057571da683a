// Drops optimization barriers. Rewrites that would undo what a barrier protects
// (sharing recomputed values) run before this; fusion, which runs after, may
// look through.
#include "passes/passes_internal.h"

// Forwards each barrier's results to its operands, region by region.
static at_status drop(at_rw *r, at_comp *c) {
  AT_FOR_NODES(n, c) {
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(drop(r, n->regions[i]));
    if (n->op != AT_OP_OPTIMIZATION_BARRIER) continue;
    for (uint32_t i = 0; i < n->num_results; i++)
      AT_TRY(at_fwd_set(r, n, i, n->operands[i]));
  }
  at_fwd_results(c);
  return AT_OK;
}

at_status at_pass_barriers(at_module *m, const at_pass_options *o) {
  if (o->keep_barriers) return AT_OK;
  at_rw r = {.m = m, .o = o};
  for (uint32_t i = 0; i < m->num_funcs; i++) AT_TRY(drop(&r, m->funcs[i]));
  if (r.changed) at_dce(m);
  return AT_OK;
}
