// A Pallas kernel as a node of the program.
#include "mosaic/mosaic.h"

bool at_mosaic_is_call(const at_node *n) {
  return n->op == AT_OP_CUSTOM_CALL &&
         at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), "tpu_custom_call");
}

// XLA's pairs are {result, operand}; ours name the operand first.
static at_status aliases(const at_node *n, at_arena *a, at_mosaic_call *out) {
  const at_attr *x = at_node_attr(n, AT_ATTR_OUTPUT_OPERAND_ALIASES);
  if (!x) return AT_OK;
  at_mosaic_alias *list;
  AT_TRY_ALLOC(list, at_new(a, at_mosaic_alias, x->groups.n + 1));
  for (uint32_t i = 0; i < x->groups.n; i++)
    list[i] = (at_mosaic_alias){(uint32_t)x->groups.list[i].ptr[1],
                                (uint32_t)x->groups.list[i].ptr[0]};
  out->aliases = list;
  out->num_aliases = x->groups.n;
  return AT_OK;
}

// The types are copied as they stand in the graph. `values` holds operands that
// are scalar S32 literals: symbolic sizes and grid bounds follow from them.
at_status at_mosaic_call_of(const at_node *n, at_arena *a,
                            at_mosaic_call *out) {
  at_type *operands;
  int64_t *values;
  AT_TRY_ALLOC(operands, at_new(a, at_type, n->num_operands + 1));
  AT_TRY_ALLOC(values, at_new(a, int64_t, n->num_operands + 1));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    operands[i] = *at_value_type(n->operands[i]);
    const at_literal *l = at_node_literal(n->operands[i].node);
    bool count = l && !operands[i].rank && operands[i].dtype == AT_S32;
    values[i] = count ? at_literal_int(l, 0) : AT_MDYN;
  }
  *out = (at_mosaic_call){
      .config = at_node_str(n, AT_ATTR_BACKEND_CONFIG),
      .name = at_node_str(n, AT_ATTR_KERNEL_NAME),
      .operands = operands,
      .num_operands = n->num_operands,
      .values = values,
      .results = n->types,
      .num_results = n->num_results,
      .has_side_effect = at_node_bool(n, AT_ATTR_HAS_SIDE_EFFECT)};
  return aliases(n, a, out);
}
