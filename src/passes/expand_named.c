// Custom calls that XLA's clients know by name and that are ops, or small
// graphs of them: StableHLO's stand-ins for MHLO's ops, and image resizing.
// This comes before partitioning, which knows how to cut those.
#include "abi/attrdict.h"
#include "passes/passes_internal.h"

// The op of a target such as "mhlo.erf" or "chlo.lgamma"; COUNT: it is none.
static at_op op_of(const at_node *n, at_str target) {
  at_op op;
  if (!at_str_starts(target, "mhlo.") && !at_str_starts(target, "chlo."))
    return AT_OP_COUNT;
  at_str text = {target.ptr + 5, target.len - 5};
  if (!at_op_parse(text, &op) || !at_op_is(op, AT_ELEMENTWISE))
    return AT_OP_COUNT;
  // Elements of one type, and nothing else to say.
  const at_op_info *info = at_op_of(op);
  bool plain =
      info->attr_count == 0 ||
      (info->attr_count == 1 && info->attrs[0] == AT_ATTR_RESULT_ACCURACY);
  return plain && (int32_t)n->num_operands == info->min_operands ? op
                                                                 : AT_OP_COUNT;
}

// n becomes the op itself, with its operands and result type.
static at_status one_op(at_rw *r, at_node *n, at_op op) {
  at_value v;
  AT_TRY(at_mk(n, op, n->operands, n->num_operands, NULL, 0, &n->types[0], &v));
  return at_fwd_set(r, n, 0, v);
}

// (x) -> (values, indices) along the minor dimension, as many as the result
// has.
static at_status top_k(at_rw *r, at_node *n) {
  const at_type *x = at_value_type(n->operands[0]), *y = &n->types[0];
  at_str config = at_node_str(n, AT_ATTR_BACKEND_CONFIG_DICT);
  at_dict_value largest;
  if (n->num_results != 2 || x->rank == 0 || y->rank != x->rank) return AT_OK;
  bool smallest =
      at_dict_find(config.ptr, config.len, "largest", &largest) && !largest.i;
  at_attr attrs[2] = {at_attr_int(AT_ATTR_K, y->dims[y->rank - 1]),
                      at_attr_int(AT_ATTR_LARGEST, !smallest)};
  at_node_desc d = {.op = AT_OP_TOP_K,
                    .operands = n->operands,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = 2,
                    .loc = n->loc};
  at_node *fresh;
  AT_TRY(at_build(n->parent, n, &d, &fresh));
  for (uint32_t i = 0; i < 2; i++) {
    if (!at_type_eq(&fresh->types[i], &n->types[i]))
      return at_fail_at(AT_INVALID_ARGUMENT, n,
                        "the results are not what its operand gives");
    AT_TRY(at_fwd_set(r, n, i, (at_value){fresh, i}));
  }
  return AT_OK;
}

// Recognises n by its target's name; unknown calls stay.
static at_status named_node(at_rw *r, at_node *n) {
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  if (n->num_results == 0 || n->num_operands == 0) return AT_OK;
  at_op op = op_of(n, target);
  if (op != AT_OP_COUNT && n->num_results == 1) return one_op(r, n, op);
  if (n->num_operands != 1) return AT_OK;
  if (at_str_is(target, "mhlo.topk")) return top_k(r, n);
  if (n->num_results != 1) return AT_OK;
  return at_expand_resize(r, n);
}

// Walks c and its regions; only custom calls are looked at.
static at_status named_comp(at_rw *r, at_comp *c) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(named_comp(r, n->regions[i]));
    if (n->op == AT_OP_CUSTOM_CALL) AT_TRY(named_node(r, n));
  }
  at_fwd_results(c);
  return AT_OK;
}

at_status at_pass_named(at_module *m, const at_pass_options *o) {
  at_rw r = {.m = m, .o = o};
  for (uint32_t i = 0; i < m->num_funcs; i++)
    AT_TRY(named_comp(&r, m->funcs[i]));
  at_dce(m);
  return AT_OK;
}
