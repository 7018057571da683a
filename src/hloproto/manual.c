// Manual computations as Shardy leaves them in HLO: custom calls that take
// values to what one device holds and back, and between them a call.
#include "hloproto/hloproto_internal.h"

// The instruction that operand k comes from, parts of tuples looked through.
static at_status source_of(at_hp *x, const at_hp_comp *c, const at_hp_inst *i,
                           uint32_t k, const at_hp_inst **out) {
  AT_TRY(at_hp_inst_by_id(x, c, i, k, out));
  if ((*out)->row->how == at_hp_how_get_tuple_element)
    return at_hp_inst_by_id(x, c, *out, 0, out);
  return AT_OK;
}

// A custom call of that target.
static bool is_call_of(const at_hp_inst *i, const char *target) {
  return i->row->op == AT_OP_CUSTOM_CALL &&
         at_str_is(at_proto_str(i->body, 28), target);
}

// Marks the call that feeds a LocalToGlobalShape. Runs when all instructions of
// c are known and before any is built.
at_status at_hp_manual_find(at_hp *x, at_hp_comp *c) {
  for (uint32_t k = 0; k < c->num_insts; k++) {
    const at_hp_inst *i = &c->insts[k], *from;
    if (!is_call_of(i, "xla.sdy.LocalToGlobalShape") || !i->operands.rank)
      continue;
    AT_TRY(source_of(x, c, i, 0, &from));
    if (from->row->how == at_hp_how_call) c->insts[from->index].exit = k + 1;
  }
  return AT_OK;
}

// A frontend attribute of the instruction; empty: it has none.
static at_status text_of(at_hp *x, const at_hp_inst *i, const char *key,
                         at_str *out) {
  at_attr front = {.id = AT_ATTR_FRONTEND_ATTRIBUTES};
  AT_TRY(at_hp_text_list(x, at_proto_bytes(i->body, 68), &front));
  *out = AT_STR("");
  for (uint32_t k = 0; k < front.dict.n; k++)
    if (at_str_is(front.dict.kv[2 * k], key)) *out = front.dict.kv[2 * k + 1];
  return AT_OK;
}

// The call's computation becomes the region, in the types of one device; the
// node's types are those of the whole, which the exit declares. The values are
// a future's, as they do not have the call's declared types.
at_status at_hp_manual_build(at_hp *x, const at_hp_inst *i) {
  const at_hp_comp *c = x->scope->comp;
  const at_hp_inst *exit = &c->insts[i->exit - 1], *entry = NULL;
  at_hp_vals v;
  at_comp *body;
  at_node *n;
  at_str in = AT_STR(""), out, axes;
  if (i->operands.rank) AT_TRY(source_of(x, c, i, 0, &entry));
  if (entry && !is_call_of(entry, "xla.sdy.GlobalToLocalShape"))
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "a manual computation has no beginning");
  if (entry) AT_TRY(text_of(x, entry, "xla.sdy.in_shardings", &in));
  AT_TRY(text_of(x, exit, "xla.sdy.out_shardings", &out));
  AT_TRY(text_of(x, exit, "xla.sdy.manual_axes", &axes));
  AT_TRY(at_hp_operands(x, i, 0, &v));
  AT_TRY(at_hp_region(x, i, 0, NULL, &body));
  at_type *types;
  AT_TRY(at_hp_types(x, exit, &types));
  at_hp_node d = {.op = AT_OP_MANUAL_COMPUTATION,
                  .operands = v.v,
                  .num_operands = v.n,
                  .regions = &body,
                  .num_regions = 1,
                  .types = types,
                  .num_types = exit->shape.num_leaves};
  const at_attr attrs[] = {{.id = AT_ATTR_IN_SHARDINGS, .s = in},
                           {.id = AT_ATTR_OUT_SHARDINGS, .s = out},
                           {.id = AT_ATTR_MANUAL_AXES, .s = axes}};
  for (size_t k = 0; k < AT_LEN(attrs); k++)
    AT_TRY(at_hp_attr_put(x, &d.attrs, attrs[k]));
  AT_TRY(at_hp_build(x, i, &d, &n));
  at_value *values;
  AT_TRY_ALLOC(values, at_new(x->a, at_value, (size_t)n->num_results + 1));
  for (uint32_t k = 0; k < n->num_results; k++) values[k] = (at_value){n, k};
  return at_hp_define_future(x, i, values, n->num_results);
}
