// Values, nodes, regions and functions.
#include "hloproto/hloproto_internal.h"

enum { kMostInlined = 1 << 22 };  // instructions of regions, over all uses

// ---- Operands
at_status at_hp_inst_by_id(at_hp *x, const at_hp_comp *c, const at_hp_inst *i,
                           uint32_t k, const at_hp_inst **out) {
  if (k >= i->operands.rank)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "operand %u is missing", k);
  void **slot =
      at_map_find_ptr(&c->by_id, (const void *)(uintptr_t)i->operands.ptr[k]);
  if (!slot)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "operand %u names no instruction: id %lld", k,
                      (long long)i->operands.ptr[k]);
  *out = (const at_hp_inst *)*slot;
  return AT_OK;
}

at_status at_hp_operand_inst(at_hp *x, const at_hp_inst *i, uint32_t k,
                             const at_hp_inst **out) {
  return at_hp_inst_by_id(x, x->scope->comp, i, k, out);
}

// v == NULL marks instructions that were not built yet. XLA writes operands
// before users, so this is malformed input.
at_status at_hp_operand(at_hp *x, const at_hp_inst *i, uint32_t k,
                        at_hp_vals *out) {
  const at_hp_inst *o;
  AT_TRY(at_hp_operand_inst(x, i, k, &o));
  *out = x->scope->values[o->index];
  if (!out->v)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "operand %u is used before its definition", k);
  return AT_OK;
}

// Counts first, so that the list is allocated once. Only operands from `from`
// on.
at_status at_hp_operands(at_hp *x, const at_hp_inst *i, uint32_t from,
                         at_hp_vals *out) {
  uint64_t n = 0;
  at_hp_vals v;
  for (uint32_t k = from; k < i->operands.rank; k++) {
    AT_TRY(at_hp_operand(x, i, k, &v));
    n += v.n;
  }
  if (n > AT_HP_MAX_LEAVES)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "more than %d operands",
                      AT_HP_MAX_LEAVES);
  *out = (at_hp_vals){0};
  AT_TRY_ALLOC(out->v, at_new(x->a, at_value, n + 1));
  for (uint32_t k = from; k < i->operands.rank; k++) {
    AT_TRY(at_hp_operand(x, i, k, &v));
    for (uint32_t j = 0; j < v.n; j++) out->v[out->n++] = v.v[j];
  }
  AT_ASSERT(out->n == n);
  return AT_OK;
}

at_status at_hp_single(at_hp *x, const at_hp_inst *i, uint32_t k,
                       at_value *out) {
  at_hp_vals v;
  AT_TRY(at_hp_operand(x, i, k, &v));
  if (v.n != 1)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "operand %u is a tuple", k);
  *out = v.v[0];
  return AT_OK;
}

at_status at_hp_need(at_hp *x, const at_hp_inst *i, uint32_t operands) {
  if (i->operands.rank != operands)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "has %u operands, takes %u",
                      i->operands.rank, operands);
  return AT_OK;
}

// ---- Definitions
at_status at_hp_define_future(at_hp *x, const at_hp_inst *i, const at_value *v,
                              uint32_t n) {
  AT_ASSERT(i == &x->scope->comp->insts[i->index]);
  at_hp_vals *to = &x->scope->values[i->index];
  AT_TRY_ALLOC(to->v, at_new(x->a, at_value, (size_t)n + 1));
  if (n) memcpy(to->v, v, n * sizeof *v);
  to->n = n;
  to->future = true;
  return AT_OK;
}

at_status at_hp_define(at_hp *x, const at_hp_inst *i, const at_value *v,
                       uint32_t n) {
  if (n != i->shape.num_leaves)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "declares %u arrays, gives %u",
                      i->shape.num_leaves, n);
  for (uint32_t k = 0; k < n; k++) {
    const at_type *want = &i->shape.leaves[k].type;
    if (at_type_eq(at_value_type(v[k]), want)) continue;
    at_strbuf is = {0}, declared = {0};
    at_type_print(&is, at_value_type(v[k]));
    at_type_print(&declared, want);
    at_status s = AT_HP_FAIL(
        x, i, AT_INVALID_ARGUMENT, "declares %.200s, its operands give %.200s",
        declared.ptr ? declared.ptr : "?", is.ptr ? is.ptr : "?");
    at_strbuf_free(&is);
    at_strbuf_free(&declared);
    return s;
  }
  AT_TRY(at_hp_define_future(x, i, v, n));
  x->scope->values[i->index].future = false;
  return AT_OK;
}

at_status at_hp_define_node(at_hp *x, const at_hp_inst *i, at_node *n) {
  at_value *v;
  AT_TRY_ALLOC(v, at_new(x->a, at_value, (size_t)n->num_results + 1));
  for (uint32_t k = 0; k < n->num_results; k++) v[k] = (at_value){n, k};
  return at_hp_define(x, i, v, n->num_results);
}

// ---- Nodes
at_status at_hp_types(at_hp *x, const at_hp_inst *i, at_type **out) {
  AT_TRY_ALLOC(*out, at_new(x->a, at_type, (size_t)i->shape.num_leaves + 1));
  for (uint32_t k = 0; k < i->shape.num_leaves; k++)
    (*out)[k] = i->shape.leaves[k].type;
  return AT_OK;
}

// Adds the place, and puts the opcode and name in front of the builder's error.
static at_status build(at_hp *x, const at_hp_inst *i, at_node_desc *d,
                       at_node **out) {
  AT_TRY(at_hp_loc(x, i, &d->loc));
  at_status s = at_build(x->scope->into, NULL, d, out);
  // The builder names hlo's op; the program's own names go first.
  return at_ok(s) ? s
                  : at_status_prefix(
                        s, "%.*s %%%.*s", (int)AT_MIN(i->opcode.len, 60u),
                        i->opcode.ptr, (int)AT_MIN(i->name.len, 100u),
                        i->name.ptr ? i->name.ptr : "");
}

// The node carries the instruction's sharding and frontend attributes.
at_status at_hp_build(at_hp *x, const at_hp_inst *i, const at_hp_node *n,
                      at_node **out) {
  at_hp_attrs attrs = n->attrs;
  at_type *types = NULL;
  AT_TRY(at_hp_attrs_common(x, i, &attrs));
  if (!n->types) AT_TRY(at_hp_types(x, i, &types));
  at_node_desc d = {.op = n->op,
                    .operands = n->operands,
                    .num_operands = n->num_operands,
                    .attrs = attrs.ptr,
                    .num_attrs = (uint32_t)attrs.len,
                    .regions = n->regions,
                    .num_regions = n->num_regions,
                    .types = n->types ? n->types : types,
                    .num_types = n->types ? n->num_types : i->shape.num_leaves};
  return build(x, i, &d, out);
}

// For inner nodes of a rewrite: neither sharding nor frontend attributes, which
// belong to the node that gives the instruction's value.
at_status at_hp_build_one(at_hp *x, const at_hp_inst *i, at_op op,
                          const at_value *operands, uint32_t n,
                          const at_attr *attrs, uint32_t num_attrs,
                          const at_type *t, at_value *out) {
  at_node_desc d = {.op = op,
                    .operands = operands,
                    .num_operands = n,
                    .attrs = attrs,
                    .num_attrs = num_attrs,
                    .types = t,
                    .num_types = t != NULL};
  at_node *node;
  AT_TRY(build(x, i, &d, &node));
  *out = (at_value){node, 0};
  return AT_OK;
}

// ---- Computations
at_status at_hp_callee(at_hp *x, const at_hp_inst *i, uint32_t k,
                       at_hp_comp **out) {
  if (k >= i->called.rank)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "called computation %u is missing", k);
  at_hp_comp *c = (at_hp_comp *)at_hp_comp_by_id(x, i->called.ptr[k]);
  if (!c)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "calls computation %lld, which is not there",
                      (long long)i->called.ptr[k]);
  // Callees come first: no computation can reach itself.
  if (c->index >= x->scope->comp->index)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "calls computation `%.*s`, which does not stand before "
                      "its own",
                      (int)AT_MIN(c->name.len, 200u), c->name.ptr);
  *out = c;
  return AT_OK;
}

// A parameter of `into` for each leaf of each parameter, in the order of
// parameter numbers.
static at_status params_build(at_hp *x, const at_hp_comp *c, at_hp_scope *s) {
  for (uint32_t p = 0; p < c->num_params; p++) {
    const at_hp_inst *i = &c->insts[c->params[p]];
    at_hp_vals *v = &s->values[i->index];
    const at_loc *loc;
    AT_TRY(at_hp_loc(x, i, &loc));
    AT_TRY_ALLOC(v->v, at_new(x->a, at_value, (size_t)i->shape.num_leaves + 1));
    for (; v->n < i->shape.num_leaves; v->n++)
      AT_TRY(at_build_param(s->into, i->shape.leaves[v->n].type, loc,
                            &v->v[v->n]));
  }
  return AT_OK;
}

// For branches: hlo's regions see values from around them, so the branch's one
// parameter is the operand itself.
static at_status params_bind(at_hp *x, const at_hp_comp *c,
                             const at_hp_vals *args) {
  if (c->num_params != 1)
    return AT_HP_FAIL(x, &c->insts[c->root], AT_INVALID_ARGUMENT,
                      "a branch has %u parameters, takes 1", c->num_params);
  return at_hp_define(x, &c->insts[c->params[0]], args->v, args->n);
}

// Fills `into` with c's instructions; its parameters are there.
static at_status body_fill(at_hp *x, const at_hp_comp *c) {
  for (uint32_t k = 0; k < c->num_insts; k++) {
    const at_hp_inst *i = &c->insts[k];
    if (i->row->op != AT_OP_PARAMETER) AT_TRY(i->row->how(x, i));
  }
  const at_hp_vals *root = &x->scope->values[c->root];
  AT_ASSERT(root->v);  // every instruction defines its values
  return at_comp_return(x->scope->into, root->v, root->n);
}

// Builds c's body into `into`, in a scope of its own. x->scope is restored also
// on failure.
static at_status comp_fill(at_hp *x, const at_hp_comp *c, at_comp *into,
                           const at_hp_vals *args) {
  at_hp_scope scope = {.comp = c, .into = into}, *outer = x->scope;
  AT_TRY_ALLOC(scope.values,
               at_new(x->a, at_hp_vals, (size_t)c->num_insts + 1));
  x->scope = &scope;
  at_status s = args ? params_bind(x, c, args) : params_build(x, c, &scope);
  if (at_ok(s)) s = body_fill(x, c);
  x->scope = outer;
  return s;
}

// Builds the computation anew for each use, as a region has one owner.
// `inlined` bounds the sum over all uses, since nested calls can multiply.
at_status at_hp_region(at_hp *x, const at_hp_inst *i, uint32_t k,
                       const at_hp_vals *args, at_comp **out) {
  at_hp_comp *c;
  AT_TRY(at_hp_callee(x, i, k, &c));
  x->inlined += c->num_insts + 1u;
  if (x->inlined > kMostInlined)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "called computations have over %d instructions",
                      kMostInlined);
  if (x->depth >= AT_MOST_NESTED)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "computations are nested over %d deep", AT_MOST_NESTED);
  at_comp *r;
  AT_TRY(at_region_create(x->m, &r));
  x->depth++;
  AT_TRY(comp_fill(x, c, r, args));
  x->depth--;
  *out = r;
  return AT_OK;
}

// A name that no function has.
static at_status func_name(at_hp *x, const at_hp_comp *c, at_str *out) {
  at_str name = c == x->entry ? AT_STR("main") : c->name;
  char *z;
  bool taken = name.len == 0 || memchr(name.ptr, 0, name.len) ||
               (c != x->entry && at_str_is(name, "main")) ||
               at_module_find(x->m, name);
  if (!taken)
    z = at_arena_str(x->a, name);
  else
    z = at_arena_printf(x->a, "computation.%u", c->index);
  if (!z) return AT_NO_MEMORY("names");
  *out = at_str_of(z);
  if (taken && at_module_find(x->m, *out))
    return AT_FAIL(AT_INVALID_ARGUMENT, "two computations are called `%s`", z);
  return AT_OK;
}

// Made on the first call and queued; at_hp_funcs_fill builds bodies from the
// queue, so call chains need no stack.
at_status at_hp_func(at_hp *x, at_hp_comp *c) {
  at_str name;
  if (c->func) return AT_OK;
  AT_TRY(func_name(x, c, &name));
  AT_TRY(at_comp_create(x->m, name, NULL, &c->func));
  if (!at_vec_push(x->a, &x->pending, c)) return AT_NO_MEMORY("functions");
  return AT_OK;
}

// The queue grows while it is walked.
at_status at_hp_funcs_fill(at_hp *x) {
  for (size_t k = 0; k < x->pending.len; k++)
    AT_TRY(comp_fill(x, x->pending.ptr[k], x->pending.ptr[k]->func, NULL));
  AT_ASSERT(!x->scope && x->depth == 0);
  return AT_OK;
}
