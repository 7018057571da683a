// Bodies of map, reduce, scatter and sort that have loops or branches: every
// value is a scalar in a register, nodes run in order.
#include "codegen/job.h"

#include <llvm-c/Core.h>

// Ops whose regions run or not.
static bool is_control(at_op op) {
  return op == AT_OP_WHILE || op == AT_OP_IF || op == AT_OP_CASE;
}

// Only the region's own nodes: control inside a region of another op is that
// op's to emit.
bool at_em_has_control(const at_comp *c) {
  AT_FOR_NODES(n, c) if (is_control(n->op)) return true;
  return false;
}

// The place of a scalar.
static const at_pos *origin(at_em *e) {
  return at_pos_make(e, false, 0, NULL, NULL);
}

// ---- places: scalars that branches and loops write
typedef struct at_place {
  LLVMValueRef re, im;  // slots of a register's parts; NULL: a token
  LLVMTypeRef reg;
} at_place;

// Slots on the stack, which LLVM turns into registers.
static at_place place_make(at_em *e, at_dtype t) {
  at_place p = {0};
  if (t == AT_TOKEN) return p;
  p.reg = at_em_reg_type(e, t);
  p.re = at_em_alloca(e, p.reg, 1);
  if (at_is_complex(t)) p.im = at_em_alloca(e, p.reg, 1);
  return p;
}

// All of `v` into `places`: everything is read before anything is written.
static void places_put(at_em *e, at_place *places, const at_value *v,
                       uint32_t n) {
  at_val *one = at_new(e->arena, at_val, n + 1);
  if (!one) {
    at_em_fail(e, AT_NO_MEMORY("control flow"));
    return;
  }
  for (uint32_t i = 0; i < n; i++)
    if (places[i].re) one[i] = at_em_elem(e, v[i], origin(e));
  for (uint32_t i = 0; i < n && at_em_ok(e); i++) {
    if (places[i].re) LLVMBuildStore(e->b, one[i].re, places[i].re);
    if (places[i].im) LLVMBuildStore(e->b, one[i].im, places[i].im);
  }
}

// What the slots hold now, as the home of a value.
static at_home place_home(at_em *e, const at_place *p) {
  at_home h = {0};
  if (p->re) h.val.re = LLVMBuildLoad2(e->b, p->reg, p->re, "");
  if (p->im) h.val.im = LLVMBuildLoad2(e->b, p->reg, p->im, "");
  return h;
}

static void emit_nodes(at_em *e, const at_comp *c);

// ---- while, if, case
// The region's parameters are what the places hold at this point.
static void bind_params(at_em *e, const at_comp *c, const at_place *p) {
  for (uint32_t i = 0; i < c->num_params; i++)
    at_em_bind(e, (at_value){c->params[i], 0}, place_home(e, &p[i]));
}

// head: condition on the places; do: body, whose results go back to the places.
// Values of a turn are forgotten with its scope. The carried places are read
// into registers before any is written, as a body may permute them.
static void emit_while(at_em *e, const at_node *n, at_place *p) {
  for (uint32_t i = 0; i < n->num_results; i++)
    p[i] = place_make(e, n->types[i].dtype);
  places_put(e, p, n->operands, n->num_operands);
  LLVMBasicBlockRef head = at_em_block(e, "while"), body = at_em_block(e, "do"),
                    done = at_em_block(e, "end");
  LLVMBuildBr(e->b, head);
  LLVMPositionBuilderAtEnd(e->b, head);
  uint32_t scope = at_em_scope_push(e);
  const at_comp *cond = n->regions[0], *step = n->regions[1];
  bind_params(e, cond, p);
  emit_nodes(e, cond);
  at_val go = at_em_elem(e, cond->results[0], origin(e));
  at_em_scope_pop(e, scope);
  if (!at_em_ok(e)) return;
  LLVMBuildCondBr(e->b, go.re, body, done);
  LLVMPositionBuilderAtEnd(e->b, body);
  scope = at_em_scope_push(e);
  bind_params(e, step, p);
  emit_nodes(e, step);
  places_put(e, p, step->results, step->num_results);
  at_em_scope_pop(e, scope);
  if (!at_em_ok(e)) return;
  LLVMBuildBr(e->b, head);
  LLVMPositionBuilderAtEnd(e->b, done);
}

// IF: region 0 where the value is true. CASE: out-of-range values take the last
// region, negative ones included. What the branches compute goes to the places;
// behind them it is read from there.
static void emit_branches(at_em *e, const at_node *n, at_place *p) {
  for (uint32_t i = 0; i < n->num_results; i++)
    p[i] = place_make(e, n->types[i].dtype);
  at_val pick = at_em_elem(e, n->operands[0], origin(e));
  if (!at_em_ok(e)) return;
  LLVMBasicBlockRef done = at_em_block(e, "end");
  uint32_t last = n->num_regions - 1;
  LLVMBasicBlockRef *block =
      at_new(e->arena, LLVMBasicBlockRef, n->num_regions);
  if (!block) {
    at_em_fail(e, AT_NO_MEMORY("branches"));
    return;
  }
  for (uint32_t k = 0; k <= last; k++) block[k] = at_em_block(e, "branch");
  if (n->op == AT_OP_IF) {
    LLVMBuildCondBr(e->b, pick.re, block[0], block[1]);
  } else {
    LLVMValueRef sw = LLVMBuildSwitch(e->b, pick.re, block[last], last);
    for (uint32_t k = 0; k < last; k++)
      LLVMAddCase(sw, at_em_ci(e, LLVMTypeOf(pick.re), k), block[k]);
  }
  for (uint32_t k = 0; k <= last && at_em_ok(e); k++) {
    LLVMPositionBuilderAtEnd(e->b, block[k]);
    uint32_t scope = at_em_scope_push(e);
    emit_nodes(e, n->regions[k]);
    places_put(e, p, n->regions[k]->results, n->num_results);
    at_em_scope_pop(e, scope);
    if (at_em_ok(e)) LLVMBuildBr(e->b, done);
  }
  LLVMPositionBuilderAtEnd(e->b, done);
}

// Afterwards the results have homes in registers. UNIMPLEMENTED: state that is
// an array.
static void emit_control(at_em *e, at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++)
    if (n->types[i].rank && at_type_elements(&n->types[i]) != 1) {
      at_em_fail(e, AT_FAIL(AT_UNIMPLEMENTED,
                            "code generation of %s on arrays in a body",
                            at_op_text(n->op)));
      return;
    }
  at_place *p = at_new(e->arena, at_place, n->num_results + 1);
  if (!p) {
    at_em_fail(e, AT_NO_MEMORY("control flow"));
    return;
  }
  if (n->op == AT_OP_WHILE)
    emit_while(e, n, p);
  else
    emit_branches(e, n, p);
  for (uint32_t i = 0; i < n->num_results && at_em_ok(e); i++)
    if (p[i].re) at_em_bind(e, (at_value){n, i}, place_home(e, &p[i]));
}

// ---- nodes in order
// Computes all scalar results and gives them homes, so that later nodes take
// them from registers and effects of control flow stand where the node does.
static void emit_node(at_em *e, at_node *n) {
  if (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT ||
      n->op == AT_OP_IOTA)
    return;
  if (is_control(n->op)) {
    emit_control(e, n);
    return;
  }
  for (uint32_t i = 0; i < n->num_results && at_em_ok(e); i++) {
    at_value v = {n, i};
    // A small array on the way is computed where an element of it is asked for.
    if (n->types[i].dtype == AT_TOKEN || at_type_elements(&n->types[i]) != 1)
      continue;
    at_val one = at_em_elem(e, v, origin(e));
    at_em_bind(e, v, (at_home){.val = one});
  }
}

// In program order; stops at the first failure.
static void emit_nodes(at_em *e, const at_comp *c) {
  for (at_node *n = c->first; n && at_em_ok(e); n = n->next) emit_node(e, n);
}

// One scalar for each parameter and each result.
void at_em_body_in_order(at_em *e, const at_comp *c, const at_val *args,
                         at_val *out) {
  uint32_t scope = at_em_scope_push(e);
  for (uint32_t i = 0; i < c->num_params; i++)
    at_em_bind(e, (at_value){c->params[i], 0}, (at_home){.val = args[i]});
  emit_nodes(e, c);
  for (uint32_t i = 0; i < c->num_results; i++)
    out[i] = at_em_elem(e, c->results[i], origin(e));
  at_em_scope_pop(e, scope);
}

// ptrs[2i], ptrs[2i+1]: left and right element of operand i, parameters 2i,
// 2i+1.
void at_job_emit_comparator(at_em *e, const at_job *j) {
  const at_comp *c = j->region;
  at_val *args = at_new(e->arena, at_val, c->num_params + 1), less = {0};
  if (!args) {
    at_em_fail(e, AT_NO_MEMORY("comparator"));
    return;
  }
  for (uint32_t i = 0; i < c->num_params; i++)
    args[i] = at_em_load(e, at_job_buffer(e, i), c->params[i]->types[0].dtype,
                         at_ix_const(0), true);
  at_em_body(e, c, args, &less);
  if (at_em_ok(e)) LLVMBuildRet(e->b, less.re);
}
