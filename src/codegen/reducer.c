// What a reduction's body allows: whether lanes and blocks may be added up
// apart, what they start from, and how two of them become one.
#include "codegen/reducer.h"

#include <llvm-c/Core.h>

// Associative up to rounding, with an identity.
static bool is_monoid(at_op op) {
  switch (op) {
    case AT_OP_ADD:
    case AT_OP_MULTIPLY:
    case AT_OP_MAXIMUM:
    case AT_OP_MINIMUM:
    case AT_OP_AND:
    case AT_OP_OR:
    case AT_OP_XOR:
      return true;
    default:
      return false;
  }
}

// Whether a node compares value k of one side with value k of the other; with
// k = UINT32_MAX, whether one compares a value with itself: a test for NaN.
static bool compares(const at_comp *c, uint32_t k) {
  AT_FOR_NODES(n, c) {
    if (n->op != AT_OP_COMPARE) continue;
    const at_node *x = n->operands[0].node, *y = n->operands[1].node;
    if (k == UINT32_MAX
            ? x == y
            : (x == c->params[k] && y == c->params[c->num_results + k]) ||
                  (y == c->params[k] && x == c->params[c->num_results + k]))
      return true;
  }
  return false;
}

// Bodies that only compare and choose (argmax and the like) do not mind order
// when they pick an extreme of a total preorder and break ties by another
// value.
static bool only_chooses(const at_comp *c) {
  if (c->num_results < 2 || c->num_params != 2 * c->num_results) return false;
  bool selects = false, breaks_ties = false;
  for (uint32_t k = 1; k < c->num_results; k++)
    breaks_ties = breaks_ties || compares(c, k);
  AT_FOR_NODES(n, c) {
    switch (n->op) {
      case AT_OP_PARAMETER:
      case AT_OP_CONSTANT:
      case AT_OP_COMPARE:
      case AT_OP_AND:
      case AT_OP_OR:
      case AT_OP_NOT:
      case AT_OP_XOR:
      case AT_OP_MINIMUM:
      case AT_OP_MAXIMUM:
        break;
      case AT_OP_SELECT:
        selects = true;
        break;
      default:
        return false;
    }
  }
  return !selects || breaks_ties;
}

// One op on both parameters is known by its op. Other bodies are run as they
// are; order is free only for those that choose.
at_reducer at_reducer_of(const at_node *n, const at_comp *body) {
  at_reducer r = {.node = n,
                  .body = body,
                  .count = body->num_results,
                  .op = AT_OP_PARAMETER};
  AT_ASSERT(r.count > 0 && body->num_params == 2 * r.count);
  if (r.count == 1 && body->num_params == 2) {
    const at_node *b = body->results[0].node;
    const at_node *p = body->params[0], *q = body->params[1];
    if (is_monoid(b->op) && b->num_operands == 2 &&
        ((b->operands[0].node == p && b->operands[1].node == q) ||
         (b->operands[0].node == q && b->operands[1].node == p))) {
      r.op = b->op;
      r.free_order = true;
      return r;
    }
  }
  r.free_order = only_chooses(body);
  // Of two NaN such a body keeps the first, whatever their indices.
  r.by_index = r.free_order && r.count == 2 &&
               at_is_int(at_reducer_dtype(&r, 1)) && compares(body, UINT32_MAX);
  return r;
}

at_dtype at_reducer_dtype(const at_reducer *r, uint32_t i) {
  return at_value_type(r->body->results[i])->dtype;
}

// Sums and products of floats that f32 holds: rounding each step would lose
// bits.
static bool narrow_sum(const at_reducer *r) {
  at_dtype t = at_reducer_dtype(r, 0);
  return (r->op == AT_OP_ADD || r->op == AT_OP_MULTIPLY) && at_is_float(t) &&
         t != AT_F32 && t != AT_F64;
}

// acc = body(acc, x), in this order of arguments.
void at_reducer_step(at_em *e, const at_reducer *r, at_val *acc,
                     const at_val *x) {
  if (narrow_sum(r)) {
    acc[0].re = r->op == AT_OP_ADD
                    ? LLVMBuildFAdd(e->b, acc[0].re, x[0].re, "")
                    : LLVMBuildFMul(e->b, acc[0].re, x[0].re, "");
    return;
  }
  if (r->op != AT_OP_PARAMETER) {
    at_val args[2] = {acc[0], x[0]};
    acc[0] = at_em_apply(e, r->body->results[0].node, args);
    return;
  }
  at_val *args = at_new(e->arena, at_val, 3 * r->count);
  if (!args) {
    at_em_fail(e, AT_NO_MEMORY("reduction"));
    return;
  }
  for (uint32_t i = 0; i < r->count; i++) {
    args[i] = acc[i];
    args[r->count + i] = x[i];
  }
  at_em_body(e, r->body, args, args + 2 * r->count);
  for (uint32_t i = 0; i < r->count; i++) acc[i] = args[2 * r->count + i];
}

// Lane by lane; NULL (no imaginary part) stays.
static void swap_where(at_em *e, LLVMValueRef c, LLVMValueRef *a,
                       LLVMValueRef *b) {
  LLVMValueRef x = *a, y = *b;
  if (!x) return;
  *a = LLVMBuildSelect(e->b, c, y, x, "");
  *b = LLVMBuildSelect(e->b, c, x, y, "");
}

// by_index: the side with the smaller index goes first, so that ties and NaN
// come out as in order.
void at_reducer_merge(at_em *e, const at_reducer *r, at_val *acc, at_val *x) {
  if (r->by_index) {
    bool sign = at_is_signed_int(at_reducer_dtype(r, 1));
    LLVMValueRef later = LLVMBuildICmp(e->b, sign ? LLVMIntSGT : LLVMIntUGT,
                                       acc[1].re, x[1].re, "");
    for (uint32_t i = 0; i < r->count; i++) {
      swap_where(e, later, &acc[i].re, &x[i].re);
      swap_where(e, later, &acc[i].im, &x[i].im);
    }
  }
  at_reducer_step(e, r, acc, x);
}

// The smallest or largest value of t.
static LLVMValueRef extreme(at_em *e, at_dtype t, bool low) {
  LLVMTypeRef type = at_em_widen(e, at_em_reg_type(e, t));
  if (t == AT_PRED) return at_em_ci(e, type, low ? 0 : 1);
  if (at_is_float(t))
    return at_em_cf(e, type, low ? -__builtin_inf() : __builtin_inf());
  uint32_t bits = at_dtype_of(t)->bits;
  if (at_is_unsigned_int(t))
    return at_em_ci(e, type, low ? 0 : (int64_t)(~0ull >> (64 - bits)));
  int64_t max = (int64_t)(~0ull >> (65 - bits));
  return at_em_ci(e, type, low ? -max - 1 : max);
}

// -0 for sums: 0 would make -0 + -0 positive. Other bodies repeat the init
// value, which is allowed as they only choose.
void at_reducer_seed(at_em *e, const at_reducer *r, const at_val *init,
                     at_val *out) {
  at_dtype t = at_reducer_dtype(r, 0);
  LLVMTypeRef type = at_em_widen(e, at_em_reg_type(e, t));
  bool f = at_is_float(at_real_of(t)), c = at_is_complex(t), b = t == AT_PRED;
  out[0] = at_em_zero(e, t);
  switch (r->op) {
    case AT_OP_ADD:
      if (f) out[0].re = at_em_cf(e, type, -0.0);
      if (c) out[0].im = out[0].re;
      return;
    case AT_OP_MULTIPLY:
      out[0].re = f ? at_em_cf(e, type, 1) : at_em_ci(e, type, 1);
      return;
    case AT_OP_OR:
    case AT_OP_XOR:
      return;
    case AT_OP_AND:
      out[0].re = at_em_ci(e, type, b ? 1 : -1);
      return;
    case AT_OP_MAXIMUM:
    case AT_OP_MINIMUM:
      if (c) break;
      out[0].re = extreme(e, t, r->op == AT_OP_MAXIMUM);
      return;
    default:
      break;
  }
  for (uint32_t i = 0; i < r->count; i++) {
    bool vec = LLVMGetTypeKind(LLVMTypeOf(init[i].re)) == LLVMVectorTypeKind;
    out[i] = vec || e->lanes == 1 ? init[i] : at_em_splat_val(e, init[i]);
  }
}

at_dtype at_reducer_partial_dtype(const at_reducer *r, uint32_t i) {
  return narrow_sum(r) ? AT_F32 : at_reducer_dtype(r, i);
}

// Lanes [first, first + n) of v; NULL stays NULL.
static LLVMValueRef lanes_of(at_em *e, LLVMValueRef v, uint32_t first,
                             uint32_t n) {
  LLVMTypeRef i32 = at_em_int(e, 32);
  LLVMValueRef lane[AT_EM_MAX_LANES];
  if (!v) return NULL;
  if (n == 1)
    return LLVMBuildExtractElement(e->b, v, LLVMConstInt(i32, first, false),
                                   "");
  for (uint32_t i = 0; i < n; i++)
    lane[i] = LLVMConstInt(i32, first + i, false);
  return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)),
                                LLVMConstVector(lane, n), "");
}

// Halves: lanes i and i + h are combined. Lanes are a power of two.
void at_reducer_fold_lanes(at_em *e, const at_reducer *r, at_val *acc) {
  at_val *high = at_new(e->arena, at_val, r->count);
  if (!high) {
    at_em_fail(e, AT_NO_MEMORY("reduction"));
    return;
  }
  AT_ASSERT(!(e->lanes & (e->lanes - 1)));
  while (e->lanes > 1 && at_em_ok(e)) {
    uint32_t h = e->lanes / 2;
    for (uint32_t i = 0; i < r->count; i++) {
      high[i] =
          (at_val){lanes_of(e, acc[i].re, h, h), lanes_of(e, acc[i].im, h, h)};
      acc[i] =
          (at_val){lanes_of(e, acc[i].re, 0, h), lanes_of(e, acc[i].im, 0, h)};
    }
    e->lanes = h;
    at_reducer_merge(e, r, acc, high);
  }
  e->lanes = 1;
}

// Rounds a narrow sum to its type.
void at_reducer_finish(at_em *e, const at_reducer *r, at_val *acc) {
  if (narrow_sum(r))
    acc[0] = at_em_normalize(e, at_reducer_dtype(r, 0), acc[0]);
}

// ---- accumulators
at_accs at_accs_of(at_em *e, const at_dtype *types, uint32_t count) {
  at_accs a = {.count = count};
  a.type = at_new(e->arena, LLVMTypeRef, count);
  a.re = at_new(e->arena, LLVMValueRef, count);
  a.im = at_new(e->arena, LLVMValueRef, count);
  if (!a.type || !a.re || !a.im) {
    at_em_fail(e, AT_NO_MEMORY("accumulators"));
    a.count = 0;
    return a;
  }
  for (uint32_t i = 0; i < a.count; i++) {
    a.type[i] = at_em_widen(e, at_em_reg_type(e, types[i]));
    a.re[i] = at_em_alloca(e, a.type[i], 1);
    a.im[i] = at_is_complex(types[i]) ? at_em_alloca(e, a.type[i], 1) : NULL;
  }
  return a;
}

// On the stack, as wide as e->lanes; LLVM makes registers of them.
at_accs at_accs_make(at_em *e, const at_reducer *r) {
  at_dtype *types = at_new(e->arena, at_dtype, r->count);
  if (!types) {
    at_em_fail(e, AT_NO_MEMORY("accumulators"));
    return (at_accs){0};
  }
  for (uint32_t i = 0; i < r->count; i++) types[i] = at_reducer_dtype(r, i);
  return at_accs_of(e, types, r->count);
}
void at_accs_put(at_em *e, const at_accs *a, const at_val *v) {
  for (uint32_t i = 0; i < a->count; i++) {
    LLVMBuildStore(e->b, v[i].re, a->re[i]);
    if (a->im[i]) LLVMBuildStore(e->b, v[i].im, a->im[i]);
  }
}
void at_accs_get(at_em *e, const at_accs *a, at_val *v) {
  for (uint32_t i = 0; i < a->count; i++) {
    v[i].re = LLVMBuildLoad2(e->b, a->type[i], a->re[i], "");
    v[i].im = a->im[i] ? LLVMBuildLoad2(e->b, a->type[i], a->im[i], "") : NULL;
  }
}
// Load, step, store.
static void combine(at_em *e, const at_accs *a, const at_reducer *r, at_val *x,
                    bool interleave) {
  at_val *acc = at_new(e->arena, at_val, a->count + 1);
  if (!acc || !at_em_ok(e)) return;
  at_accs_get(e, a, acc);
  if (interleave)
    at_reducer_merge(e, r, acc, x);
  else
    at_reducer_step(e, r, acc, x);
  if (at_em_ok(e)) at_accs_put(e, a, acc);
}
void at_accs_step(at_em *e, const at_accs *a, const at_reducer *r,
                  const at_val *x) {
  combine(e, a, r, (at_val *)x, false);
}
void at_accs_merge(at_em *e, const at_accs *a, const at_reducer *r, at_val *x) {
  combine(e, a, r, x, true);
}
