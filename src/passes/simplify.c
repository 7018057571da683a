// Rewrites to a fixed point: algebra that is exact in IEEE arithmetic, data
// movement, control flow, common subexpressions, dead code.
#include "passes/passes_internal.h"

enum { SWEEPS = 24 };  // a bound; programs settle in three to six

// All rules for n, the first that applies wins. Dynamic shapes are for refine.
static at_status rules(at_rw *r, at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!at_type_is_static(&n->types[i])) return AT_OK;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!at_type_is_static(at_value_type(n->operands[i]))) return AT_OK;
  if (at_op_is(n->op, AT_ELEMENTWISE)) AT_TRY(at_simplify_algebra(r, n));
  if (!at_fwd_has(n)) AT_TRY(at_simplify_shape(r, n));
  if (!at_fwd_has(n)) AT_TRY(at_simplify_indexed(r, n));
  if (!at_fwd_has(n)) AT_TRY(at_simplify_dot(r, n));
  if (!at_fwd_has(n) && at_is_control(n->op)) AT_TRY(at_simplify_control(r, n));
  return AT_OK;
}

// Operands of n have been visited; what rules insert before n is visited in the
// next sweep.
static at_status sweep(at_rw *r, at_comp *c) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;  // rules insert before n and may remove n
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(sweep(r, n->regions[i]));
    if (n->op != AT_OP_PARAMETER && n->op != AT_OP_CONSTANT)
      AT_TRY(rules(r, n));
  }
  at_fwd_results(c);
  return AT_OK;
}

// Each sweep counts uses, applies the rules once to each node and shares equal
// nodes; the last only tells that nothing changes.
at_status at_pass_simplify(at_module *m, const at_pass_options *o) {
  at_rw r = {.m = m, .o = o, .changed = true};
  for (int i = 0; i < SWEEPS && r.changed; i++) {
    r.changed = false;
    at_dce_count_uses(m);  // rules read mark as the number of uses
    for (uint32_t f = 0; f < m->num_funcs; f++) AT_TRY(sweep(&r, m->funcs[f]));
    AT_TRY(at_cse(&r, at_dce(m)));
  }
  at_dce(m);
  return AT_OK;
}
