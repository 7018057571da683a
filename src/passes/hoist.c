// Loop-invariant code motion: what a loop's body computes from values outside
// only moves before the loop.
#include "passes/passes_internal.h"

// Worth a buffer that lives through the loop: not what makes large from small,
// which fusion recomputes in place.
static bool worth_moving(const at_node *n) {
  if (n->op == AT_OP_CONSTANT || n->op == AT_OP_PARAMETER ||
      at_is_control(n->op))
    return false;
  if (n->num_operands == 0) return false;
  size_t in = 0, out = 0;
  for (uint32_t i = 0; i < n->num_operands; i++)
    in = at_add(in, at_type_bytes(at_value_type(n->operands[i])));
  for (uint32_t i = 0; i < n->num_results; i++)
    out = at_add(out, at_type_bytes(&n->types[i]));
  return out <= in || out <= 4096;
}

// Operands and results.
static bool is_static(const at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!at_type_is_static(&n->types[i])) return false;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!at_type_is_static(at_value_type(n->operands[i]))) return false;
  return true;
}

// Does c, or a region in it, read a value of `body`?
static bool captures(const at_comp *c, const at_comp *body) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (n->operands[i].node->parent == body) return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (captures(n->regions[i], body)) return true;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    if (c->results[i].node->parent == body) return true;
  return false;
}

// Copies an invariant constant out with its user.
static at_status outside(at_node *loop, at_comp *body, at_value v,
                         at_value *out) {
  *out = v;
  if (v.node->parent != body) return AT_OK;
  const at_literal *l = at_node_literal(v.node);
  AT_ENSURE(l);
  return at_build_constant(loop->parent, loop, l, out);
}

// One walk in order: what depends on moved nodes alone is invariant, too, as
// those no longer belong to the body. The loop may run no turn; only pure ops
// move, so that nothing is seen of it.
at_status at_simplify_hoist(at_rw *r, at_node *loop) {
  at_comp *body = loop->regions[1];
  for (at_node *n = body->first, *next; n; n = next) {
    next = n->next;
    at_fwd_operands(n);
    if (!at_is_pure(r->m, n) || !is_static(n) || !worth_moving(n)) continue;
    bool invariant = true, variable = false;
    for (uint32_t i = 0; i < n->num_operands && invariant; i++) {
      const at_node *in = n->operands[i].node;
      bool constant = in->op == AT_OP_CONSTANT;
      invariant = in->parent != body || constant;
      variable |= !constant;
    }
    for (uint32_t i = 0; i < n->num_regions && invariant; i++)
      invariant = !captures(n->regions[i], body);
    if (!invariant || !variable)
      continue;  // constants alone: folding's business
    for (uint32_t i = 0; i < n->num_operands; i++)
      AT_TRY(outside(loop, body, n->operands[i], &n->operands[i]));
    at_node_move_before(n, loop);
    r->changed = true;
  }
  return AT_OK;
}
