// Rewrites to a fixed point: algebra that is exact in IEEE arithmetic, data
// movement, control flow, common subexpressions, dead code.
#include "passes/passes_internal.h"

enum { SWEEPS = 24 };  // a bound; programs settle in three to six

bool at_law_is_for(const at_law *law, at_op op) {
  return law->op == op ||
         (law->op == AT_OP_COUNT && at_op_is(op, AT_ELEMENTWISE));
}

at_status at_laws_apply(const at_laws *laws, at_rw *r, at_node *n) {
  for (size_t i = 0; i < laws->num && !at_fwd_has(n); i++)
    if (at_law_is_for(laws->rows + i, n->op)) AT_TRY(laws->rows[i].apply(r, n));
  return AT_OK;
}

// All rules for n, the first that applies wins. Dynamic shapes are for refine.
static at_status rules(at_rw *r, at_node *n) {
  static const at_laws *const tables[] = {&at_laws_algebra, &at_laws_shape,
                                          &at_laws_indexed, &at_laws_dot,
                                          &at_laws_control};
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!at_type_is_static(&n->types[i])) return AT_OK;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!at_type_is_static(at_value_type(n->operands[i]))) return AT_OK;
  for (size_t t = 0; t < AT_LEN(tables) && !at_fwd_has(n); t++)
    AT_TRY(at_laws_apply(tables[t], r, n));
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
