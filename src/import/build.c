// Building nodes with their op's location and attributes; the small graphs that
// rewrites are made of.
#include "import/import_internal.h"

// The only way a node enters the module from here. Types that the caller gives
// are compared with inference by at_build. While a copy of an op is imported
// (custom calls and composites that stand for an op), the location is that of
// the original.
at_status at_imp_build(at_imp *x, const at_mop *op, const at_imp_node *d,
                       at_node **out) {
  at_attr_vec attrs = d->attrs;
  if (d->outer) AT_TRY(at_imp_attrs_common(x, op, &attrs));
  at_node_desc desc = {.op = d->op,
                       .operands = d->operands,
                       .num_operands = d->num_operands,
                       .attrs = attrs.ptr,
                       .num_attrs = (uint32_t)attrs.len,
                       .regions = d->regions,
                       .num_regions = d->num_regions,
                       .types = d->types,
                       .num_types = d->num_types};
  AT_TRY(at_imp_loc(x, op->loc, x->original ? x->original : op, &desc.loc));
  at_status s = at_build(x->scope->comp, NULL, &desc, out);
  // The builder names hlo's op and the place; the program's own spelling goes
  // first.
  return at_ok(s) ? s : at_status_prefix(s, "%s", op->name);
}

// For the inner nodes of a rewrite: no attributes, no sharding; the last node
// of a rewrite carries those (`outer`).
at_status at_imp_build_op(at_imp *x, const at_mop *op, at_op hlo,
                          const at_value *operands, uint32_t n, at_value *out) {
  at_imp_node d = {.op = hlo, .operands = operands, .num_operands = n};
  at_node *node;
  AT_TRY(at_imp_build(x, op, &d, &node));
  *out = (at_value){node, 0};
  return AT_OK;
}

// One operand, at most one attribute, one result whose type is given or
// inferred (t NULL).
static at_status build_one(at_imp *x, const at_mop *op, at_op hlo, at_value v,
                           const at_attr *attr, const at_type *t,
                           at_value *out) {
  at_imp_node d = {.op = hlo, .operands = &v, .num_operands = 1};
  if (t) d.types = t, d.num_types = 1;
  if (attr) AT_TRY(at_imp_attr_put(x, &d.attrs, *attr));
  at_node *node;
  AT_TRY(at_imp_build(x, op, &d, &node));
  *out = (at_value){node, 0};
  return AT_OK;
}

at_status at_imp_reshape(at_imp *x, const at_mop *op, at_value v, at_type t,
                         at_value *out) {
  return build_one(x, op, AT_OP_RESHAPE, v, NULL, &t, out);
}

at_status at_imp_broadcast(at_imp *x, const at_mop *op, at_value v, at_dims map,
                           at_type t, at_value *out) {
  at_attr a = {.id = AT_ATTR_BROADCAST_DIMENSIONS, .ints = map};
  return build_one(x, op, AT_OP_BROADCAST_IN_DIM, v, &a, &t, out);
}

at_status at_imp_transpose(at_imp *x, const at_mop *op, at_value v,
                           at_dims perm, at_value *out) {
  at_attr a = {.id = AT_ATTR_PERMUTATION, .ints = perm};
  return build_one(x, op, AT_OP_TRANSPOSE, v, &a, NULL, out);
}

at_status at_imp_convert(at_imp *x, const at_mop *op, at_value v, at_dtype t,
                         at_value *out) {
  if (at_value_type(v)->dtype == t) return *out = v, AT_OK;
  at_type to = at_type_with(*at_value_type(v), t);
  return build_one(x, op, AT_OP_CONVERT, v, NULL, &to, out);
}

// The callers pass 0 and infinities, which every float type here has. For
// complex types v is the real part.
at_status at_imp_scalar(at_imp *x, const at_mop *op, at_dtype t, double v,
                        at_value *out) {
  uint8_t data[16] = {0};
  if (at_is_float(t))
    at_store_float(t, data, v);
  else if (at_is_complex(t))
    at_store_float(at_real_of(t), data, v);
  else if (t == AT_TOKEN || t == AT_INVALID)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "needs numbers");
  else
    at_store_int(t, data, (int64_t)v);
  const at_literal *l;
  AT_TRY(at_literal_make(x->a, at_type_scalar(t), data, false, false, &l));
  at_imp_node d = {.op = AT_OP_CONSTANT};
  AT_TRY(at_imp_attr_put(x, &d.attrs,
                         (at_attr){.id = AT_ATTR_VALUE, .literal = l}));
  at_node *node;
  AT_TRY(at_imp_build(x, op, &d, &node));
  *out = (at_value){node, 0};
  return AT_OK;
}

// The combiner that sums use. Each caller gets a region of its own: a region
// has one owner.
at_status at_imp_add_region(at_imp *x, const at_mop *op, at_dtype t,
                            at_comp **out) {
  at_comp *c;
  at_value v[2], sum;
  const at_loc *loc;
  AT_TRY(at_imp_loc(x, op->loc, x->original ? x->original : op, &loc));
  AT_TRY(at_region_create(x->m, &c));
  for (int i = 0; i < 2; i++)
    AT_TRY(at_build_param(c, at_type_scalar(t), loc, &v[i]));
  AT_TRY(at_build_op(c, NULL, AT_OP_ADD, v, 2, loc, &sum));
  AT_TRY(at_comp_return(c, &sum, 1));
  *out = c;
  return AT_OK;
}

// REDUCE with zero as its initial value. No dimensions: v itself, without a
// node.
at_status at_imp_reduce_sum(at_imp *x, const at_mop *op, at_value v,
                            at_dims dims, at_value *out) {
  if (dims.rank == 0) return *out = v, AT_OK;
  at_dtype t = at_value_type(v)->dtype;
  at_value operands[2] = {v};
  AT_TRY(at_imp_scalar(x, op, t, 0, &operands[1]));
  at_comp *body;
  AT_TRY(at_imp_add_region(x, op, t, &body));
  at_imp_node d = {.op = AT_OP_REDUCE,
                   .operands = operands,
                   .num_operands = 2,
                   .regions = &body,
                   .num_regions = 1};
  AT_TRY(at_imp_attr_put(x, &d.attrs,
                         (at_attr){.id = AT_ATTR_DIMENSIONS, .ints = dims}));
  at_node *node;
  AT_TRY(at_imp_build(x, op, &d, &node));
  *out = (at_value){node, 0};
  return AT_OK;
}
