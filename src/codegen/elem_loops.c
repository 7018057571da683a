// Elements that take a loop of their own: reductions, windows, contractions.
#include "codegen/groups.h"

#include <llvm-c/Core.h>
#include "codegen/reducer.h"

// Is d one of the dimensions?
static bool listed(at_dims l, int64_t d) {
  for (uint32_t i = 0; i < l.rank; i++)
    if (l.ptr[i] == d) return true;
  return false;
}
// The place of a scalar, under the same lanes.
static const at_pos *no_digits(at_em *e, const at_pos *p) {
  return at_pos_make(e, p->lanes, 0, NULL, NULL);
}

// Remembers every result of a node with several, so that one loop serves all.
static at_val remember(at_em *e, at_value v, const at_pos *p,
                       const at_val *all) {
  for (uint32_t i = 0; i < v.node->num_results; i++) {
    uint64_t key = (uint64_t)i << 16 | e->lanes << 8 | 3;
    if (i != v.index) at_em_memo_put(e, v.node, key, p, all[i]);
  }
  return all[v.index];
}

// The init values of a reduction, the second half of its operands.
static void inits(at_em *e, const at_node *n, const at_pos *p, uint32_t count,
                  at_val *out) {
  for (uint32_t i = 0; i < count; i++)
    out[i] = at_em_elem(e, n->operands[count + i], no_digits(e, p));
}

// Loops over the reduced dimensions in row-major order, as the evaluator does;
// all results of the node come from one loop. Meant for few elements: the
// planner gives long reductions kernels of their own.
at_val at_em_elem_reduce(at_em *e, at_value v, const at_pos *p) {
  const at_node *n = v.node;
  const at_type *t = at_value_type(n->operands[0]);
  at_reducer r = at_reducer_of(n, n->regions[0]);
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  int64_t kept[AT_CG_MAX_RANK], extent[AT_CG_MAX_RANK];
  at_ix ix[AT_CG_MAX_RANK];
  at_loop loops[AT_CG_MAX_RANK];
  uint32_t k = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (!listed(dims, d)) kept[k++] = t->dims[d];
  at_pos_regroup(e, p, k, kept, ix);
  for (uint32_t d = t->rank; d-- > 0;) {
    extent[d] = t->dims[d];
    if (!listed(dims, d)) ix[d] = ix[--k];
  }
  at_val *x = at_new(e->arena, at_val, 2 * r.count + 1), *acc = x + r.count;
  at_accs accs = at_accs_make(e, &r);
  if (!x || !at_em_ok(e)) return at_em_zero(e, n->types[v.index].dtype);
  inits(e, n, p, r.count, acc);
  at_accs_put(e, &accs, acc);
  for (uint32_t d = 0; d < t->rank; d++) {
    if (!listed(dims, d)) continue;
    at_loop_range(e, &loops[d], 0, t->dims[d], 1);
    ix[d] = loops[d].i;
  }
  const at_pos *in = at_pos_make(e, p->lanes, t->rank, extent, ix);
  for (uint32_t i = 0; i < r.count; i++)
    x[i] = at_em_elem(e, n->operands[i], in);
  at_accs_step(e, &accs, &r, x);
  for (uint32_t d = t->rank; d-- > 0;)
    if (listed(dims, d)) at_loop_end(e, &loops[d]);
  at_accs_get(e, &accs, acc);
  at_reducer_finish(e, &r, acc);
  return remember(e, v, p, acc);
}

// ---- windows
static int64_t attr_at(const at_node *n, at_attr_id id, uint32_t i,
                       int64_t absent) {
  at_dims a = at_node_ints(n, id);
  return i < a.rank ? a.ptr[i] : absent;
}

// Index of an element under a window place, and whether it is an element at
// all.
typedef struct at_under {
  at_ix ix;
  LLVMValueRef valid;  // NULL: always
} at_under;
// x counts from the first element of the padded, dilated operand. The index is
// always one of an element, so that loads are safe: lanes without an element
// load some other and are replaced.
static at_under under(at_em *e, at_ix x, int64_t size, int64_t dilation) {
  int64_t span = size > 0 ? (size - 1) * dilation + 1 : 0;
  at_under u = {.valid = at_ix_within(e, x, 0, span)};
  if (dilation <= 1) {  // lanes that are no element are not used
    u.ix = at_ix_among(e, x, 0, AT_MAX(span - 1, 0));
    return u;
  }
  u.ix = at_ix_clamp(e, x, 0, AT_MAX(span - 1, 0));
  if (dilation > 1 && size > 1) {
    LLVMValueRef on = at_ix_within(e, at_ix_modc(e, u.ix, dilation), 0, 1);
    if (on) u.valid = u.valid ? LLVMBuildAnd(e->b, u.valid, on, "") : on;
    u.ix = at_ix_divc(e, u.ix, dilation);
  }
  return u;
}

// Every place of the window is visited; one outside of the operand leaves the
// accumulators as they are.
at_val at_em_elem_window(at_em *e, at_value v, const at_pos *p) {
  const at_node *n = v.node;
  const at_type *t = at_value_type(n->operands[0]);
  at_reducer r = at_reducer_of(n, n->regions[0]);
  at_ix out[AT_CG_MAX_RANK], ix[AT_CG_MAX_RANK];
  at_loop loops[AT_CG_MAX_RANK];
  at_pos_regroup(e, p, t->rank, n->types[0].dims, out);
  at_val *x = at_new(e->arena, at_val, 3 * r.count + 1);
  at_accs accs = at_accs_make(e, &r);
  if (!x || !at_em_ok(e)) return at_em_zero(e, n->types[v.index].dtype);
  at_val *acc = x + r.count, *next = acc + r.count;
  inits(e, n, p, r.count, acc);
  at_accs_put(e, &accs, acc);
  bool empty = at_type_elements(t) == 0;
  LLVMValueRef valid = NULL;
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t size = attr_at(n, AT_ATTR_WINDOW_DIMENSIONS, d, 1);
    at_loop_range(e, &loops[d], 0, size, 1);
    at_ix at = at_ix_mulc(e, out[d], attr_at(n, AT_ATTR_WINDOW_STRIDES, d, 1));
    at_ix w =
        at_ix_mulc(e, loops[d].i, attr_at(n, AT_ATTR_WINDOW_DILATIONS, d, 1));
    at =
        at_ix_addc(at_ix_add(e, at, w), -attr_at(n, AT_ATTR_PADDING, 2 * d, 0));
    at_under u =
        under(e, at, t->dims[d], attr_at(n, AT_ATTR_BASE_DILATIONS, d, 1));
    ix[d] = u.ix;
    if (u.valid)
      valid = valid ? LLVMBuildAnd(e->b, valid, u.valid, "") : u.valid;
  }
  if (!empty) {
    const at_pos *in = at_pos_make(e, p->lanes, t->rank, t->dims, ix);
    for (uint32_t i = 0; i < r.count; i++)
      x[i] = at_em_elem(e, n->operands[i], in);
    at_accs_get(e, &accs, acc);
    memcpy(next, acc, r.count * sizeof *acc);
    at_reducer_step(e, &r, next, x);
    for (uint32_t i = 0; i < r.count && valid && at_em_ok(e); i++) {
      next[i].re = LLVMBuildSelect(e->b, valid, next[i].re, acc[i].re, "");
      if (acc[i].im)
        next[i].im = LLVMBuildSelect(e->b, valid, next[i].im, acc[i].im, "");
    }
    if (at_em_ok(e)) at_accs_put(e, &accs, next);
  }
  for (uint32_t d = t->rank; d-- > 0;) at_loop_end(e, &loops[d]);
  at_accs_get(e, &accs, acc);
  at_reducer_finish(e, &r, acc);
  return remember(e, v, p, acc);
}

// ---- sums of products
typedef struct at_sum {
  at_dtype type;  // of the accumulator: f32 for narrow floats
  LLVMTypeRef reg;
  LLVMValueRef re, im;
} at_sum;

// An accumulator on the stack, zero. Narrow floats are summed in f32.
static at_sum sum_make(at_em *e, at_dtype result) {
  at_sum s = {.type = result};
  if (at_is_float(result) && result != AT_F64) s.type = AT_F32;
  s.reg = at_em_widen(e, at_em_reg_type(e, s.type));
  s.re = at_em_alloca(e, s.reg, 1);
  LLVMBuildStore(e->b, LLVMConstNull(s.reg), s.re);
  if (at_is_complex(result)) {
    s.im = at_em_alloca(e, s.reg, 1);
    LLVMBuildStore(e->b, LLVMConstNull(s.reg), s.im);
  }
  return s;
}

// slot += a * b, or -= ; floats are fused: one rounding for each product. pred:
// or of ands.
static void sum_part(at_em *e, const at_sum *s, LLVMValueRef slot,
                     LLVMValueRef a, LLVMValueRef b, bool minus) {
  LLVMValueRef old = LLVMBuildLoad2(e->b, s->reg, slot, ""), r;
  if (s->type == AT_PRED) {
    r = LLVMBuildOr(e->b, old, LLVMBuildAnd(e->b, a, b, ""), "");
  } else if (at_is_float(at_real_of(s->type))) {
    LLVMValueRef args[3] = {minus ? LLVMBuildFNeg(e->b, a, "") : a, b, old};
    r = at_math_intrinsic(&e->math, "llvm.fma", args, 3);
  } else {
    r = LLVMBuildAdd(e->b, old, LLVMBuildMul(e->b, a, b, ""), "");
  }
  LLVMBuildStore(e->b, r, slot);
}

// s += other, of floats.
static void sum_join(at_em *e, const at_sum *s, const at_sum *other) {
  LLVMValueRef to[2] = {s->re, s->im}, from[2] = {other->re, other->im};
  for (unsigned k = 0; k < 2 && to[k]; k++) {
    LLVMValueRef a = LLVMBuildLoad2(e->b, s->reg, to[k], ""),
                 b = LLVMBuildLoad2(e->b, s->reg, from[k], "");
    LLVMBuildStore(e->b, LLVMBuildFAdd(e->b, a, b, ""), to[k]);
  }
}

// sum += a * b, only where `valid` (NULL: everywhere).
static void sum_add(at_em *e, const at_sum *s, at_dtype ta, at_val a,
                    at_dtype tb, at_val b, LLVMValueRef valid) {
  a = at_em_convert(e, ta, s->type, a);
  b = at_em_convert(e, tb, s->type, b);
  if (valid) {
    at_val z = at_em_zero(e, s->type);
    a.re = LLVMBuildSelect(e->b, valid, a.re, z.re, "");
    b.re = LLVMBuildSelect(e->b, valid, b.re, z.re, "");
    if (s->im) {
      a.im = LLVMBuildSelect(e->b, valid, a.im, z.re, "");
      b.im = LLVMBuildSelect(e->b, valid, b.im, z.re, "");
    }
  }
  sum_part(e, s, s->re, a.re, b.re, false);
  if (!s->im) return;
  sum_part(e, s, s->re, a.im, b.im, true);
  sum_part(e, s, s->im, a.re, b.im, false);
  sum_part(e, s, s->im, a.im, b.re, false);
}

// The sum in the result's type, rounded once.
static at_val sum_get(at_em *e, const at_sum *s, at_dtype result) {
  at_val v = {LLVMBuildLoad2(e->b, s->reg, s->re, ""), NULL};
  if (s->im) v.im = LLVMBuildLoad2(e->b, s->reg, s->im, "");
  if (s->type == result) return at_em_normalize(e, result, v);
  return at_em_convert(e, s->type, result, v);
}

// A contraction at one element of its result.
typedef struct at_dot {
  const at_node *n;
  const at_pos *p;
  at_dims lc, rc;
  at_ix x[AT_CG_MAX_RANK], y[AT_CG_MAX_RANK];  // digits of the operands
} at_dot;

// The product at the contracted digits, which are set, added to s.
static void dot_step(at_em *e, const at_dot *d, const at_sum *s) {
  const at_type *a = at_value_type(d->n->operands[0]),
                *b = at_value_type(d->n->operands[1]);
  at_val l = at_em_elem(e, d->n->operands[0],
                        at_pos_make(e, d->p->lanes, a->rank, a->dims, d->x));
  at_val r = at_em_elem(e, d->n->operands[1],
                        at_pos_make(e, d->p->lanes, b->rank, b->dims, d->y));
  if (at_em_ok(e)) sum_add(e, s, a->dtype, l, b->dtype, r, NULL);
}

// Sums side by side in a long contraction: one addition need not wait for the
// one before it.
enum { DOT_SUMS = 4, DOT_LONG = 4 * DOT_SUMS };

// Products [from, to) of contracted dimension i, the last one, in steps of
// `count` sums.
static void dot_range(at_em *e, at_dot *d, uint32_t i, int64_t from, int64_t to,
                      const at_sum *s, uint32_t count) {
  if (from >= to) return;
  at_loop l;
  at_loop_range(e, &l, from, to, count);
  for (uint32_t k = 0; k < count; k++) {
    d->x[d->lc.ptr[i]] = d->y[d->rc.ptr[i]] = at_ix_addc(l.i, k);
    dot_step(e, d, &s[k]);
  }
  at_loop_end(e, &l);
}

// Loops over the contracted dimensions in order. Result digits: batch
// dimensions, then what is left of the left, then of the right operand.
static at_val dot(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *a = at_value_type(n->operands[0]),
                *b = at_value_type(n->operands[1]);
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  at_dims rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS);
  at_dot d = {.n = n,
              .p = p,
              .lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS),
              .rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS)};
  at_ix out[AT_CG_MAX_RANK];
  at_loop loops[AT_CG_MAX_RANK];
  uint32_t o = 0;
  at_pos_regroup(e, p, n->types[0].rank, n->types[0].dims, out);
  for (uint32_t i = 0; i < lb.rank; i++)
    d.x[lb.ptr[i]] = d.y[rb.ptr[i]] = out[o++];
  for (uint32_t k = 0; k < a->rank; k++)
    if (!listed(lb, k) && !listed(d.lc, k)) d.x[k] = out[o++];
  for (uint32_t k = 0; k < b->rank; k++)
    if (!listed(rb, k) && !listed(d.rc, k)) d.y[k] = out[o++];
  at_dtype t = n->types[0].dtype;
  uint32_t last = d.lc.rank ? d.lc.rank - 1 : 0;
  int64_t size = d.lc.rank ? a->dims[d.lc.ptr[last]] : 1;
  uint32_t count =
      size >= DOT_LONG && at_is_float(at_real_of(t)) ? DOT_SUMS : 1;
  at_sum s[DOT_SUMS];
  for (uint32_t k = 0; k < count; k++) s[k] = sum_make(e, t);
  for (uint32_t i = 0; i < last; i++) {
    at_loop_range(e, &loops[i], 0, a->dims[d.lc.ptr[i]], 1);
    d.x[d.lc.ptr[i]] = d.y[d.rc.ptr[i]] = loops[i].i;
  }
  if (d.lc.rank) {
    int64_t whole = size / count * count;
    dot_range(e, &d, last, 0, whole, s, count);
    dot_range(e, &d, last, whole, size, s, 1);
  } else {
    dot_step(e, &d, s);
  }
  for (uint32_t i = last; i-- > 0;) at_loop_end(e, &loops[i]);
  for (uint32_t half = count / 2; half; half /= 2)
    for (uint32_t k = 0; k < half; k++) sum_join(e, &s[k], &s[k + half]);
  return sum_get(e, &s[0], t);
}

// Sizes of the groups: minor dimension of operand 2; `row` picks among batches.
static at_ix group_size(at_em *e, const at_node *n, at_ix row, at_ix g) {
  at_value v = n->operands[2];
  const at_type *t = at_value_type(v);
  int64_t groups = t->dims[t->rank - 1];
  int64_t extent[2] = {at_type_elements(t) / AT_MAX(1, groups), groups};
  at_ix ix[2] = {row, g};
  at_val s = at_em_elem(e, v, at_pos_make(e, false, 2, extent, ix));
  return at_ix_from(e, t->dtype, s, 0, 1ll << 40);
}

// Scalars: the group that holds `place` (-1: none), or with `place` NULL where
// group `want` begins and ends.
static void find_group(at_em *e, const at_node *n, at_ix row,
                       const at_ix *place, const at_ix *want, LLVMValueRef *a,
                       LLVMValueRef *b) {
  const at_type *t = at_value_type(n->operands[2]);
  LLVMTypeRef i64 = at_em_int(e, 64);
  LLVMValueRef end = at_em_alloca(e, i64, 1), first = at_em_alloca(e, i64, 1),
               last = at_em_alloca(e, i64, 1);
  LLVMBuildStore(e->b, at_em_i64(e, 0), end);
  LLVMBuildStore(e->b, at_em_i64(e, place ? -1 : 0), first);
  LLVMBuildStore(e->b, at_em_i64(e, 0), last);
  at_loop l;
  at_loop_range(e, &l, 0, t->dims[t->rank - 1], 1);
  LLVMValueRef old = LLVMBuildLoad2(e->b, i64, end, "");
  LLVMValueRef size = at_ix_value(e, group_size(e, n, row, l.i));
  LLVMValueRef now = LLVMBuildAdd(e->b, old, size, "");
  LLVMBuildStore(e->b, now, end);
  LLVMValueRef g = at_ix_value(e, l.i),
               f = LLVMBuildLoad2(e->b, i64, first, "");
  if (place) {
    LLVMValueRef in =
        LLVMBuildICmp(e->b, LLVMIntSLT, at_ix_value(e, *place), now, "");
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntSLT, f, at_em_i64(e, 0), "");
    in = LLVMBuildAnd(e->b, in, none, "");
    LLVMBuildStore(e->b, LLVMBuildSelect(e->b, in, g, f, ""), first);
  } else {
    LLVMValueRef is =
        LLVMBuildICmp(e->b, LLVMIntEQ, g, at_ix_value(e, *want), "");
    LLVMValueRef z = LLVMBuildLoad2(e->b, i64, last, "");
    LLVMBuildStore(e->b, LLVMBuildSelect(e->b, is, old, f, ""), first);
    LLVMBuildStore(e->b, LLVMBuildSelect(e->b, is, now, z, ""), last);
  }
  at_loop_end(e, &l);
  *a = LLVMBuildLoad2(e->b, i64, first, "");
  if (b) *b = LLVMBuildLoad2(e->b, i64, last, "");
}

typedef struct at_ragged {
  int64_t dim;  // the lhs dimension that is cut into groups
  bool contracting;
  at_dims lb, rb, lc, rc, group;
  at_ix x[AT_CG_MAX_RANK], y[AT_CG_MAX_RANK], row, which;
} at_ragged;

// Digits of the operands from those of the result.
static void ragged_digits(at_em *e, const at_node *n, const at_pos *p,
                          at_ragged *g) {
  const at_type *a = at_value_type(n->operands[0]),
                *b = at_value_type(n->operands[1]);
  const at_type *s = at_value_type(n->operands[2]);
  at_ix out[AT_CG_MAX_RANK];
  uint32_t o = 0;
  at_pos_regroup(e, p, n->types[0].rank, n->types[0].dims, out);
  if (g->contracting) g->which = out[o++];
  g->row = at_ix_const(0);
  for (uint32_t i = 0; i < g->lb.rank; i++) {
    if (s->rank > 1)
      g->row =
          at_ix_add(e, at_ix_mulc(e, g->row, a->dims[g->lb.ptr[i]]), out[o]);
    g->x[g->lb.ptr[i]] = g->y[g->rb.ptr[i]] = out[o++];
  }
  for (uint32_t d = 0; d < a->rank; d++)
    if (!listed(g->lb, d) && !listed(g->lc, d)) g->x[d] = out[o++];
  for (uint32_t d = 0; d < b->rank; d++)
    if (!listed(g->rb, d) && !listed(g->rc, d) && !listed(g->group, d))
      g->y[d] = out[o++];
}

// Scalars only (the plan gives this op no lanes).
static at_val ragged(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *a = at_value_type(n->operands[0]),
                *b = at_value_type(n->operands[1]);
  at_dtype t = n->types[0].dtype;
  at_loop loops[AT_CG_MAX_RANK];
  at_ragged *g = at_new(e->arena, at_ragged, 1);
  if (!g) {
    at_em_fail(e, AT_NO_MEMORY("ragged_dot"));
    return at_em_zero(e, t);
  }
  g->lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  g->rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS);
  g->lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  g->rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  g->group = at_node_ints(n, AT_ATTR_RHS_GROUP_DIMENSIONS);
  g->dim = at_node_ints(n, AT_ATTR_LHS_RAGGED_DIMENSIONS).ptr[0];
  g->contracting = listed(g->lc, g->dim);
  ragged_digits(e, n, p, g);
  at_sum s = sum_make(e, t);
  LLVMValueRef first = NULL, last = NULL, in = NULL;
  find_group(e, n, g->row, g->contracting ? NULL : &g->x[g->dim],
             g->contracting ? &g->which : NULL, &first, &last);
  if (!g->contracting) {
    in = LLVMBuildICmp(e->b, LLVMIntSGE, first, at_em_i64(e, 0), "");
    if (g->group.rank) {
      int64_t groups = b->dims[g->group.ptr[0]];
      g->y[g->group.ptr[0]] =
          at_ix_clamp(e, at_ix_of(first, -1, groups - 1, 1), 0, groups - 1);
    }
  }
  for (uint32_t i = 0; i < g->lc.rank; i++) {
    int64_t size = a->dims[g->lc.ptr[i]];
    if (g->lc.ptr[i] == g->dim)
      at_loop_begin(e, &loops[i], first, at_em_min(e, last, at_em_i64(e, size)),
                    1, 0, AT_MAX(0, size - 1));
    else
      at_loop_range(e, &loops[i], 0, size, 1);
    g->x[g->lc.ptr[i]] = g->y[g->rc.ptr[i]] = loops[i].i;
  }
  at_val l = at_em_elem(e, n->operands[0],
                        at_pos_make(e, p->lanes, a->rank, a->dims, g->x));
  at_val r = at_em_elem(e, n->operands[1],
                        at_pos_make(e, p->lanes, b->rank, b->dims, g->y));
  if (at_em_ok(e)) sum_add(e, &s, a->dtype, l, b->dtype, r, in);
  for (uint32_t i = g->lc.rank; i-- > 0;) at_loop_end(e, &loops[i]);
  return sum_get(e, &s, t);
}

// One loop for each spatial dimension of the kernel and one for input features.
// Groups of features or of batches only shift where those begin.
static at_val convolution(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *a = at_value_type(n->operands[0]),
                *b = at_value_type(n->operands[1]);
  const at_type *t = &n->types[0];
  at_dims is = at_node_ints(n, AT_ATTR_INPUT_SPATIAL_DIMENSIONS);
  at_dims ks = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  at_dims os = at_node_ints(n, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  int64_t ib = at_node_int(n, AT_ATTR_INPUT_BATCH_DIMENSION, 0);
  int64_t jf = at_node_int(n, AT_ATTR_INPUT_FEATURE_DIMENSION, 1);
  int64_t ki = at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 0);
  int64_t ko = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 1);
  int64_t ob = at_node_int(n, AT_ATTR_OUTPUT_BATCH_DIMENSION, 0);
  int64_t of = at_node_int(n, AT_ATTR_OUTPUT_FEATURE_DIMENSION, 1);
  int64_t groups = at_node_int(n, AT_ATTR_FEATURE_GROUP_COUNT, 1);
  int64_t batches = at_node_int(n, AT_ATTR_BATCH_GROUP_COUNT, 1);
  at_ix out[AT_CG_MAX_RANK], x[AT_CG_MAX_RANK], y[AT_CG_MAX_RANK];
  at_loop loops[AT_CG_MAX_RANK], feature;
  at_pos_regroup(e, p, t->rank, t->dims, out);
  at_sum s = sum_make(e, t->dtype);
  if (at_type_elements(a) == 0 || at_type_elements(b) == 0)
    return sum_get(e, &s, t->dtype);
  LLVMValueRef valid = NULL;
  for (uint32_t i = 0; i < is.rank; i++) {
    int64_t size = b->dims[ks.ptr[i]],
            dilate = attr_at(n, AT_ATTR_LHS_DILATION, i, 1);
    at_loop_range(e, &loops[i], 0, size, 1);
    at_ix k = loops[i].i;
    y[ks.ptr[i]] = attr_at(n, AT_ATTR_WINDOW_REVERSAL, i, 0)
                       ? at_ix_addc(at_ix_mulc(e, k, -1), size - 1)
                       : k;
    at_ix at =
        at_ix_mulc(e, out[os.ptr[i]], attr_at(n, AT_ATTR_WINDOW_STRIDES, i, 1));
    at = at_ix_add(e, at,
                   at_ix_mulc(e, k, attr_at(n, AT_ATTR_RHS_DILATION, i, 1)));
    at = at_ix_addc(at, -attr_at(n, AT_ATTR_PADDING, 2 * i, 0));
    at_under u = under(e, at, a->dims[is.ptr[i]], dilate);
    x[is.ptr[i]] = u.ix;
    if (u.valid)
      valid = valid ? LLVMBuildAnd(e->b, valid, u.valid, "") : u.valid;
  }
  // Input features that one output sees.
  int64_t per = b->dims[ki], out_per = AT_MAX(1, t->dims[of] / groups);
  at_loop_range(e, &feature, 0, per, 1);
  y[ki] = feature.i;
  y[ko] = out[of];
  x[jf] = feature.i;
  if (groups > 1)
    x[jf] = at_ix_add(e, feature.i,
                      at_ix_mulc(e, at_ix_divc(e, out[of], out_per), per));
  x[ib] = out[ob];
  if (batches > 1) {
    int64_t each = a->dims[ib] / batches;
    at_ix g = at_ix_divc(e, out[of], AT_MAX(1, t->dims[of] / batches));
    x[ib] = at_ix_add(e, out[ob], at_ix_mulc(e, g, each));
  }
  at_val l = at_em_elem(e, n->operands[0],
                        at_pos_make(e, p->lanes, a->rank, a->dims, x));
  at_val r = at_em_elem(e, n->operands[1],
                        at_pos_make(e, p->lanes, b->rank, b->dims, y));
  if (at_em_ok(e)) sum_add(e, &s, a->dtype, l, b->dtype, r, valid);
  at_loop_end(e, &feature);
  for (uint32_t i = is.rank; i-- > 0;) at_loop_end(e, &loops[i]);
  return sum_get(e, &s, t->dtype);
}

// For products too small for the library's kernels, or inside fusions.
at_val at_em_elem_contract(at_em *e, const at_node *n, const at_pos *p) {
  if (n->op == AT_OP_DOT_GENERAL) return dot(e, n, p);
  if (n->op == AT_OP_RAGGED_DOT) return ragged(e, n, p);
  return convolution(e, n, p);
}
