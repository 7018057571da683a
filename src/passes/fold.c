// Constant folding by the reference evaluator, within a budget of element
// operations; results are small or splats.
#include "passes/passes_internal.h"

enum { FOLD_MAX_BYTES = 64 << 10, FOLD_NODE_OPS = 1 << 20 };

// Can the evaluator run n now: constant operands, static results, pure, closed
// regions without regions of their own?
static bool foldable(const at_module *m, const at_node *n) {
  if (n->op == AT_OP_CONSTANT || n->op == AT_OP_PARAMETER ||
      n->num_operands == 0 || n->num_results == 0)
    return false;
  if (at_is_control(n->op) || n->op == AT_OP_FUSION || !at_is_pure(m, n))
    return false;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!at_const_of(n->operands[i])) return false;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!at_type_is_static(&n->types[i]) || n->types[i].dtype == AT_TOKEN ||
        n->types[i].quant)
      return false;
  // Regions must be closed.
  for (uint32_t i = 0; i < n->num_regions; i++) AT_FOR_NODES(k, n->regions[i]) {
      if (k->num_regions) return false;
      for (uint32_t j = 0; j < k->num_operands; j++)
        if (k->operands[j].node->parent != n->regions[i]) return false;
    }
  return true;
}

// Elementwise on splats: one element stands for all.
static at_status fold_splat(at_rw *r, at_node *n, at_value *out, bool *did) {
  *did = false;
  at_value v[3], one;
  if (!at_op_is(n->op, AT_ELEMENTWISE) || n->num_operands > 3) return AT_OK;
  if (at_type_elements(&n->types[0]) == 0) return AT_OK;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_literal *l = at_const_of(n->operands[i]);
    const void *element = at_splat_of(n->operands[i]);
    if (!element) return AT_OK;
    AT_TRY(at_mk_splat(n, at_type_scalar(l->type.dtype), element, &v[i]));
  }
  at_type scalar = at_type_scalar(n->types[0].dtype);
  AT_TRY(at_mk(n, n->op, v, n->num_operands, n->attrs, n->num_attrs, &scalar,
               &one));
  const at_literal *args[3], *result;
  for (uint32_t i = 0; i < n->num_operands; i++) args[i] = at_const_of(v[i]);
  // The evaluator computes the one element; what it refuses stays.
  at_eval_options opt = {.max_ops = FOLD_NODE_OPS};
  at_status st = at_eval_node(one.node, args, &opt, r->m->arena, &result);
  if (!at_ok(st)) {
    at_status_free(st);
    return AT_OK;
  }
  AT_TRY(at_mk_splat(n, n->types[0], at_literal_at(result, 0), out));
  *did = true;
  return AT_OK;
}

// Element operations that evaluating n takes: elements read (a splat counts as
// none where no region walks it) and written.
static int64_t work_of(const at_node *n) {
  int64_t ops = 0;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_literal *l = at_const_of(n->operands[i]);
    if (!l->splat || n->num_regions) ops += at_type_elements(&l->type);
  }
  for (uint32_t i = 0; i < n->num_results; i++)
    ops += at_type_elements(&n->types[i]);
  return ops;
}

// One repeated element is stored once.
static at_status as_splat(at_arena *a, const at_literal **l) {
  size_t size = at_dtype_bytes((*l)->type.dtype);
  const uint8_t *p = (*l)->data;
  if ((*l)->splat || (*l)->bytes <= size || size == 0) return AT_OK;
  if (memcmp(p, p + size, (*l)->bytes - size) != 0) return AT_OK;
  return at_literal_make(a, (*l)->type, p, true, false, l);
}

// Splats first, as they cost one element whatever their size. Else results of
// at most FOLD_MAX_BYTES, within what is left of *budget.
at_status at_fold_node(at_rw *r, at_node *n, int64_t *budget, bool *did) {
  *did = false;
  if (!foldable(r->m, n)) return AT_OK;
  at_value v;
  AT_TRY(fold_splat(r, n, &v, did));
  if (*did) return at_fwd_set(r, n, 0, v);
  size_t bytes = 0;
  for (uint32_t i = 0; i < n->num_results; i++)
    bytes = at_add(bytes, at_type_bytes(&n->types[i]));
  int64_t work = bytes > FOLD_MAX_BYTES ? INT64_MAX : work_of(n);
  if (work > *budget || work > FOLD_NODE_OPS) return AT_OK;
  const at_literal **args, **results;
  AT_TRY_ALLOC(args, at_new(r->m->arena, const at_literal *, n->num_operands));
  AT_TRY_ALLOC(results,
               at_new(r->m->arena, const at_literal *, n->num_results));
  for (uint32_t i = 0; i < n->num_operands; i++)
    args[i] = at_const_of(n->operands[i]);
  at_eval_options opt = {.max_ops = FOLD_NODE_OPS * 4};
  at_status st = at_eval_node(n, args, &opt, r->m->arena, results);
  *budget -= work;
  if (!at_ok(st)) {  // not folded: the program decides at run time
    at_status_free(st);
    return AT_OK;
  }
  for (uint32_t i = 0; i < n->num_results; i++) {
    AT_TRY(as_splat(r->m->arena, &results[i]));
    AT_TRY(at_build_constant(n->parent, n, results[i], &v));
    v.node->loc = n->loc;
    AT_TRY(at_fwd_set(r, n, i, v));
  }
  *did = true;
  return AT_OK;
}

// Operands come first in the list, so one walk folds whole chains.
static at_status fold_comp(at_rw *r, at_comp *c, int64_t *budget) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(fold_comp(r, n->regions[i], budget));
    bool did;
    AT_TRY(at_fold_node(r, n, budget, &did));
  }
  at_fwd_results(c);
  return AT_OK;
}

// The budget is shared by all functions.
at_status at_pass_fold(at_module *m, const at_pass_options *o) {
  at_rw r = {.m = m, .o = o};
  int64_t budget = o->fold_budget;
  for (uint32_t i = 0; i < m->num_funcs; i++)
    AT_TRY(fold_comp(&r, m->funcs[i], &budget));
  at_dce(m);
  return AT_OK;
}
