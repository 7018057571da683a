// Custom calls that XLA's clients know by name and that are ops, or small
// graphs of them: StableHLO's stand-ins for MHLO's ops, and image resizing.
// This comes before partitioning, which knows how to cut those.
#include "abi/attrdict.h"
#include "passes/passes_internal.h"

static const struct {
  const char *target;
  at_op op;
} elementwise[] = {{"mhlo.acos", AT_OP_ACOS},   {"mhlo.acosh", AT_OP_ACOSH},
                   {"mhlo.asin", AT_OP_ASIN},   {"mhlo.asinh", AT_OP_ASINH},
                   {"mhlo.atanh", AT_OP_ATANH}, {"mhlo.cosh", AT_OP_COSH},
                   {"mhlo.erf", AT_OP_ERF},     {"mhlo.erf_inv", AT_OP_ERF_INV},
                   {"mhlo.sinh", AT_OP_SINH},   {"mhlo.tan", AT_OP_TAN}};

static at_status one_op(at_rw *r, at_node *n, at_op op) {
  at_value v;
  if (!at_type_eq(at_value_type(n->operands[0]), &n->types[0]))
    return at_fail_at(AT_INVALID_ARGUMENT, n,
                      "the result is not of the operand's type");
  AT_TRY(at_mk1(n, op, n->operands[0], &v));
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

static at_status named_node(at_rw *r, at_node *n) {
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  if (n->num_operands != 1 || n->num_results == 0) return AT_OK;
  if (at_str_is(target, "mhlo.topk")) return top_k(r, n);
  if (n->num_results != 1) return AT_OK;
  for (size_t i = 0; i < AT_LEN(elementwise); i++)
    if (at_str_is(target, elementwise[i].target))
      return one_op(r, n, elementwise[i].op);
  return at_expand_resize(r, n);
}

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
