// One element (or a vector of them) of an hlo value at a position: the
// recursion through producers that makes a fusion one loop.
#include "codegen/emit.h"

#include <llvm-c/Core.h>
#include "codegen/groups.h"
#include "codegen/job.h"

// Bindings are memo entries under the address of this: they go with their scope
// as all others do.
static const char home_tag;

// The latest binding of a value wins, until its scope is popped.
void at_em_bind(at_em *e, at_value v, at_home h) {
  at_home *p = at_new(e->arena, at_home, 1);
  if (!p) {
    at_em_fail(e, AT_NO_MEMORY("codegen bindings"));
    return;
  }
  *p = h;
  at_em_memo_put(e, v.node, v.index, &home_tag,
                 (at_val){(LLVMValueRef)p, NULL});
}

// NULL: the value has to be computed.
const at_home *at_em_home(at_em *e, at_value v) {
  at_val *p = at_em_memo_find(e, v.node, v.index, &home_tag);
  return p ? (const at_home *)p->re : NULL;
}

// Elements of a body's results for given parameters. Control flow inside needs
// the order of the program; without it, producers are emitted as they are asked
// for.
void at_em_body(at_em *e, const at_comp *c, const at_val *args, at_val *out) {
  if (at_em_has_control(c)) {
    at_em_body_in_order(e, c, args, out);
    return;
  }
  uint32_t scope = at_em_scope_push(e);
  for (uint32_t i = 0; i < c->num_params; i++)
    at_em_bind(e, (at_value){c->params[i], 0}, (at_home){.val = args[i]});
  const at_pos *p = at_pos_make(e, true, 0, NULL, NULL);
  for (uint32_t i = 0; i < c->num_results; i++)
    out[i] = at_em_elem(e, c->results[i], p);
  at_em_scope_pop(e, scope);
}

// The position of operand i of an elementwise node: scalars have no digits.
static const at_pos *operand_pos(at_em *e, const at_node *n, uint32_t i,
                                 const at_pos *p) {
  const at_type *t = at_value_type(n->operands[i]);
  if (t->rank || n->types[0].rank == 0) return p;
  return at_pos_make(e, p->lanes, 0, NULL, NULL);
}

// An operand's element at the same place; a scalar operand has one.
static at_val elementwise(at_em *e, const at_node *n, const at_pos *p) {
  at_val args[3] = {0};
  for (uint32_t i = 0; i < n->num_operands && i < 3; i++)
    args[i] = at_em_elem(e, n->operands[i], operand_pos(e, n, i, p));
  if (!at_em_ok(e)) return at_em_zero(e, n->types[0].dtype);
  return at_em_apply(e, n, args);
}

// A splat is an immediate; an element at a place that is known, too. Else the
// literal becomes a global array of the module.
static at_val constant(at_em *e, const at_node *n, const at_pos *p) {
  const at_literal *l = at_node_literal(n);
  if (l->splat || at_type_elements(&l->type) == 1)
    return at_em_literal(e, l, 0);
  at_ix lin = at_pos_linear(e, p);
  if (!lin.base && at_ix_uniform(&lin)) return at_em_literal(e, l, lin.c);
  return at_em_load(e, at_em_literal_global(e, l), l->type.dtype, lin, true);
}

// MAP's region on the operands' elements at the same place.
static at_val map_body(at_em *e, const at_node *n, const at_pos *p) {
  at_val *args = at_new(e->arena, at_val, n->num_operands + 1), out = {0};
  if (!args) {
    at_em_fail(e, AT_NO_MEMORY("map"));
    return at_em_zero(e, n->types[0].dtype);
  }
  for (uint32_t i = 0; i < n->num_operands; i++)
    args[i] = at_em_elem(e, n->operands[i], p);
  at_em_body(e, n->regions[0], args, &out);
  return out;
}

// Parameters of the fusion stand for its operands: nothing is computed for the
// call itself.
static at_val fusion(at_em *e, at_value v, const at_pos *p) {
  const at_node *n = v.node;
  const at_comp *c = n->regions[0];
  for (uint32_t i = 0; i < c->num_params; i++)
    at_em_bind(e, (at_value){c->params[i], 0},
               (at_home){.alias = &n->operands[i]});
  return at_em_elem(e, c->results[v.index], p);
}

// UNIMPLEMENTED in e->st.
static at_val no_handler(at_em *e, const at_node *n) {
  at_em_fail(
      e, AT_FAIL(AT_UNIMPLEMENTED, "code generation of %s", at_op_text(n->op)));
  return (at_val){0};
}

// Computes the element from n's operands, by the kind of op: in place, by
// moving the index, or by a loop of its own.
static at_val dispatch(at_em *e, at_value v, const at_pos *p) {
  const at_node *n = v.node;
  if (at_op_is(n->op, AT_ELEMENTWISE)) return elementwise(e, n, p);
  switch (n->op) {
    case AT_OP_CONSTANT:
      return constant(e, n, p);
    case AT_OP_RESHAPE:
    case AT_OP_COPY:
      return at_em_elem(e, n->operands[0], p);
    case AT_OP_OPTIMIZATION_BARRIER:
      return at_em_elem(e, n->operands[v.index], p);
    case AT_OP_IOTA:
    case AT_OP_BITCAST_CONVERT:
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_CONCATENATE:
    case AT_OP_PAD:
    case AT_OP_REVERSE:
    case AT_OP_SLICE:
    case AT_OP_TRANSPOSE:
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_DYNAMIC_UPDATE_SLICE:
    case AT_OP_GATHER:
      return at_em_elem_move(e, n, p);
    case AT_OP_REDUCE:
      return at_em_elem_reduce(e, v, p);
    case AT_OP_REDUCE_WINDOW:
      return at_em_elem_window(e, v, p);
    case AT_OP_DOT_GENERAL:
    case AT_OP_RAGGED_DOT:
    case AT_OP_CONVOLUTION:
      return at_em_elem_contract(e, n, p);
    case AT_OP_MAP:
      return map_body(e, n, p);
    case AT_OP_FUSION:
      return fusion(e, v, p);
    default:
      return no_handler(e, n);
  }
}

// In the order of what is cheapest: what the value is another name of, memory
// that has it, a register, and at last its computation.
static at_val fresh(at_em *e, at_value v, const at_pos *p) {
  const at_home *h = at_em_home(e, v);
  if (!h) return dispatch(e, v, p);
  if (h->alias) return at_em_elem(e, *h->alias, p);
  LLVMValueRef ptr =
      h->table ? at_job_load_buffer(e, h->table, h->index) : h->ptr;
  if (ptr)
    return at_em_load(e, ptr, h->stored ? h->stored : at_value_type(v)->dtype,
                      at_ix_addc(at_pos_linear(e, p), -h->skip), h->invariant);
  LLVMTypeRef t = LLVMTypeOf(h->val.re);
  bool vec = LLVMGetTypeKind(t) == LLVMVectorTypeKind;
  return vec ? h->val : at_em_splat_val(e, h->val);
}

// Is v in the register type of t, as wide as the emitter works just here?
static bool is_register(at_em *e, at_dtype t, at_val v) {
  LLVMTypeRef type = at_em_widen(e, at_em_reg_type(e, t));
  return LLVMTypeOf(v.re) == type && !v.im == !at_is_complex(t) &&
         (!v.im || LLVMTypeOf(v.im) == type);
}

// Each (value, place, lanes) is emitted once in a scope: without the memo a
// chain of nodes that use their operand twice would double at every step. Where
// all lanes are at one place it is computed as a scalar and spread.
at_val at_em_elem(at_em *e, at_value v, const at_pos *p) {
  at_dtype t = at_value_type(v)->dtype;
  if (!at_em_ok(e)) return at_em_zero(e, t);
  uint64_t key = (uint64_t)v.index << 16 | e->lanes << 8 | 3;
  at_val *known = at_em_memo_find(e, v.node, key, p);
  if (known) return *known;
  at_val r;
  // All lanes want the same element.
  if (e->lanes > 1 && at_pos_uniform(p)) {
    uint32_t lanes = e->lanes;
    e->lanes = 1;
    r = at_em_elem(e, v, p);
    e->lanes = lanes;
    r = at_em_splat_val(e, r);
  } else {
    r = fresh(e, v, p);
  }
  if (!r.re) r = at_em_zero(e, t);
  AT_ASSERT(!at_em_ok(e) || is_register(e, t, r));
  at_em_memo_put(e, v.node, key, p, r);
  return r;
}

// For what has no vector form: a loop over the lanes, through memory on the
// stack. The place is taken apart lane by lane.
at_val at_em_by_lane(at_em *e, at_value v, const at_pos *p) {
  at_dtype t = at_value_type(v)->dtype;
  uint32_t lanes = e->lanes;
  LLVMTypeRef elem = at_em_reg_type(e, t);
  LLVMValueRef re = at_em_alloca(e, at_em_widen(e, elem), 1), im = NULL;
  if (at_is_complex(t)) im = at_em_alloca(e, at_em_widen(e, elem), 1);
  // i1 lanes have no addresses: they travel as bytes.
  LLVMTypeRef mem = t == AT_PRED ? at_em_int(e, 8) : elem;
  if (t == AT_PRED) re = at_em_alloca(e, at_em_widen(e, mem), 1);
  LLVMValueRef *vecs = at_new(e->arena, LLVMValueRef, p->n + 1);
  at_ix *ix = at_new(e->arena, at_ix, p->n + 1);
  if (!vecs || !ix) {
    at_em_fail(e, AT_NO_MEMORY("lanes"));
    return at_em_zero(e, t);
  }
  for (uint32_t d = 0; d < p->n; d++)
    vecs[d] = at_ix_uniform(&p->ix[d]) ? NULL : at_ix_vector(e, p->ix[d]);
  at_loop l;
  e->lanes = 1;
  at_loop_range(e, &l, 0, lanes, 1);
  for (uint32_t d = 0; d < p->n; d++) {
    ix[d] = p->ix[d];
    if (!vecs[d]) continue;
    LLVMValueRef s = LLVMBuildExtractElement(e->b, vecs[d], l.phi, "");
    s = LLVMBuildSExt(e->b, s, at_em_int(e, 64), "");
    ix[d] = at_ix_of(s, p->ix[d].lo, p->ix[d].hi, 1);
  }
  at_val one = at_em_elem(e, v, at_pos_make(e, false, p->n, p->extent, ix));
  if (t == AT_PRED) one.re = LLVMBuildZExt(e->b, one.re, mem, "");
  LLVMBuildStore(e->b, one.re, LLVMBuildGEP2(e->b, mem, re, &l.phi, 1, ""));
  if (im)
    LLVMBuildStore(e->b, one.im, LLVMBuildGEP2(e->b, mem, im, &l.phi, 1, ""));
  at_loop_end(e, &l);
  e->lanes = lanes;
  at_val r = {LLVMBuildLoad2(e->b, at_em_widen(e, mem), re, ""), NULL};
  if (im) r.im = LLVMBuildLoad2(e->b, at_em_widen(e, mem), im, "");
  if (t == AT_PRED) r.re = at_em_decode(e, AT_PRED, r.re);
  return r;
}
