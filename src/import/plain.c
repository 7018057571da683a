// Ops that map one to one, and those that leave no node behind.
#include "import/import_internal.h"

// Attributes that need the operands' types to become canonical.
static at_status attrs_finish(at_imp *x, const at_mop *op, at_op hlo,
                              const at_vals *operands, at_attr_vec *attrs) {
  for (size_t i = 0; i < attrs->len; i++) {
    at_attr *a = &attrs->ptr[i];
    if (hlo == AT_OP_SORT && a->id == AT_ATTR_DIMENSION && a->i < 0 &&
        operands->n)
      a->i += at_value_type(operands->v[0])->rank;
  }
  return AT_OK;
}

// One node for the op, with its operands, regions, declared types and the
// attributes of hlo's row.
AT_IMP_HOW(plain) {
  at_vals operands;
  at_types types;
  AT_TRY(at_imp_operands(x, op, &operands));
  AT_TRY(at_imp_result_types(x, op, &types));
  at_imp_node d = {.op = row->op,
                   .operands = operands.v,
                   .num_operands = operands.n,
                   .types = types.t,
                   .num_types = types.n,
                   .num_regions = op->num_regions,
                   .outer = true};
  AT_TRY(at_imp_attrs(x, op, row->op, &d.attrs));
  AT_TRY(attrs_finish(x, op, row->op, &operands, &d.attrs));
  AT_TRY_ALLOC(d.regions, at_new(x->a, at_comp *, (size_t)op->num_regions + 1));
  for (uint32_t i = 0; i < op->num_regions; i++)
    AT_TRY(at_imp_region(x, op, i, &d.regions[i]));
  at_node *n;
  AT_TRY(at_imp_build(x, op, &d, &n));
  return at_imp_define_node(x, op, n);
}

at_status at_imp_define_node(at_imp *x, const at_mop *op, at_node *n) {
  at_value *v;
  AT_TRY_ALLOC(v, at_new(x->a, at_value, (size_t)n->num_results + 1));
  for (uint32_t i = 0; i < n->num_results; i++) v[i] = (at_value){n, i};
  return at_imp_define_results(x, op, v, n->num_results);
}

// Terminators, functions and modules outside of the place where the walk
// expects them.
AT_IMP_HOW(structure) {
  return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "does not belong here");
}

// Ops that the table names only so that the documentation lists them as
// refused.
AT_IMP_HOW(unsupported) {
  return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED, "is not supported");
}

// Ops that only inform other tools; they may not give values.
AT_IMP_HOW(drop) {
  if (op->num_results)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "gives no results");
  return AT_OK;
}

// The operands' leaves are the results' leaves; no node is built.
AT_IMP_HOW(identity) {
  at_vals v;
  AT_TRY(at_imp_operands(x, op, &v));
  return at_imp_define_results(x, op, v.v, v.n);
}

// A CONSTANT node; its data may be shared with the MLIR module
// (at_imp_literal).
AT_IMP_HOW(constant) {
  const at_mattr *value = at_mop_attr(op, "value");
  if (!value)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "attribute `value` is missing");
  AT_TRY(at_imp_need(x, op, 0, 1));
  const at_literal *l;
  AT_TRY(at_imp_literal(x, op, value, &l));
  at_imp_node d = {.op = AT_OP_CONSTANT, .outer = true};
  AT_TRY(at_imp_attr_put(x, &d.attrs,
                         (at_attr){.id = AT_ATTR_VALUE, .literal = l}));
  at_node *n;
  AT_TRY(at_imp_build(x, op, &d, &n));
  return at_imp_define_node(x, op, n);
}

// A tuple is its leaves: no node is built.
AT_IMP_HOW(tuple) {
  if (op->num_results != 1 || op->results[0].type->kind != AT_MTYPE_TUPLE)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "gives one tuple");
  return at_imp_how_identity(x, op, row);
}

// A slice of the operand's leaves: those before it are skipped by the counts of
// their types.
AT_IMP_HOW(get_tuple_element) {
  AT_TRY(at_imp_need(x, op, 1, 1));
  const at_mtype *t = op->operands[0]->type;
  int64_t index;
  AT_TRY(at_imp_int(x, op, "index", -1, &index));
  if (t->kind != AT_MTYPE_TUPLE || index < 0 || index >= t->num_types)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "index %lld is outside of the operand", (long long)index);
  at_vals v;
  AT_TRY(at_imp_operand(x, op, 0, &v));
  uint32_t at = 0;
  for (int64_t i = 0; i < index; i++) at += at_imp_leaves(x, t->types[i]);
  return at_imp_define_results(x, op, v.v + at,
                               at_imp_leaves(x, t->types[index]));
}

// ---- Bodies in place
// The body's ops go into the current computation, its arguments are the
// operands, and what it returns are op's results. Depth is counted as for
// regions, since bodies nest as well.
at_status at_imp_inline(at_imp *x, const at_mop *op) {
  if (op->num_regions != 1 || op->regions[0]->num_blocks != 1 ||
      op->regions[0]->blocks[0]->num_args != op->num_operands)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "takes one body with an argument for each operand");
  if (x->depth >= AT_MOST_NESTED)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "regions are nested over %d deep", AT_MOST_NESTED);
  const at_mblock *b = op->regions[0]->blocks[0];
  for (uint32_t i = 0; i < op->num_operands; i++) {
    at_vals v;
    if (!at_mtype_eq(b->args[i].type, op->operands[i]->type))
      return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                        "argument %u of the body differs from the operand", i);
    AT_TRY(at_imp_operand(x, op, i, &v));
    AT_TRY(at_imp_define(x, &b->args[i], v));
  }
  at_vals results;
  x->depth++;
  AT_TRY(at_imp_block(x, op, b, &results));
  x->depth--;
  return at_imp_define_results(x, op, results.v, results.n);
}

// A future is what its op gives: when that begins and who waits for it is for
// the scheduler to say.
AT_IMP_HOW(async_start) {
  if (op->num_results != 1 || !at_imp_is_future(op->results[0].type))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "gives one future");
  return at_imp_inline(x, op);
}

// Gives the future's leaves back as results.
AT_IMP_HOW(async_done) {
  if (op->num_operands != 1 || !at_imp_is_future(op->operands[0]->type))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "takes one future");
  return at_imp_how_identity(x, op, row);
}

// ---- Calls

// Compares MLIR types, before tuples are flattened: a call may not regroup
// leaves.
static at_status signature_agrees(at_imp *x, const at_mop *op,
                                  const at_mop *func) {
  const at_mattr *t = at_mop_attr(func, "function_type");
  bool ok = t && t->kind == AT_MATTR_TYPE && t->type &&
            t->type->kind == AT_MTYPE_FUNCTION &&
            t->type->num_types == op->num_operands &&
            t->type->num_results == op->num_results;
  for (uint32_t i = 0; ok && i < op->num_operands; i++)
    ok = at_mtype_eq(t->type->types[i], op->operands[i]->type);
  for (uint32_t i = 0; ok && i < op->num_results; i++)
    ok = at_mtype_eq(t->type->results[i], op->results[i].type);
  if (!ok)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "operands or results differ from the function's type");
  return AT_OK;
}

// The callee's body may not be imported yet: its declared type is what the call
// is checked against.
at_status at_imp_call(at_imp *x, const at_mop *op, at_imp_node *d,
                      const char *callee_attr) {
  at_str callee;
  at_vals operands;
  at_types types;
  at_imp_func *f;
  AT_TRY(at_imp_str(x, op, callee_attr, &callee));
  AT_TRY(at_imp_callee(x, op, callee, &f));
  AT_TRY(signature_agrees(x, op, f->op));
  AT_TRY(at_imp_operands(x, op, &operands));
  AT_TRY(at_imp_result_types(x, op, &types));
  AT_TRY(at_imp_attr_put(x, &d->attrs,
                         (at_attr){.id = AT_ATTR_CALLEE, .s = callee}));
  d->operands = operands.v;
  d->num_operands = operands.n;
  d->types = types.t;
  d->num_types = types.n;
  d->outer = true;
  at_node *n;
  AT_TRY(at_imp_build(x, op, d, &n));
  return at_imp_define_node(x, op, n);
}

// Stays a call; inlining is for a pass to decide.
AT_IMP_HOW(call) {
  at_imp_node d = {.op = AT_OP_CALL};
  return at_imp_call(x, op, &d, "callee");
}
