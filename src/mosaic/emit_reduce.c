// Reductions: sums, products, extrema and logic over dimensions. Along the last
// dimension with vectors of accumulators, else down columns.
#include <stdio.h>

#include "mosaic/emit_reduce.h"

// With r->nan, NaNs are noted apart, so one comparison and a select do.
// number_wins: the number beats a NaN.
LLVMValueRef at_me_reduce_combine(at_me *m, const at_me_reduction *r,
                                  LLVMValueRef a, LLVMValueRef b) {
  if (r->nan)
    return at_b_select(
        m->e,
        at_b_fcmp(m->e, r->op == AT_OP_MAXIMUM ? AT_B_OGT : AT_B_OLT, a, b), a,
        b);
  at_val x = {a, NULL}, y = {b, NULL};
  at_op op = r->op;
  if (r->type == AT_PRED && op == AT_OP_ADD) op = AT_OP_XOR;
  LLVMValueRef v = at_em_apply_real(m->e, op, r->type, x, y).re;
  if (!r->number_wins) return v;
  v = at_b_select(m->e, at_b_fcmp(m->e, AT_B_UNO, b, b), a, v);
  return at_b_select(m->e, at_b_fcmp(m->e, AT_B_UNO, a, a), b, v);
}

// ---- loops
LLVMTypeRef at_me_reduce_type(at_me *m, const at_me_reduction *r) {
  return at_em_widen(m->e, at_em_reg_type(m->e, r->type));
}

// Sums are kept on the stack, from where LLVM takes them into registers.
static void put(at_me *m, LLVMValueRef v, LLVMValueRef p) {
  at_b_store(m->e, v, p, 1);
}

// One comparison sees the NaNs of two vectors.
static void note_nan(at_me *m, at_me_reduction *r, LLVMValueRef a,
                     LLVMValueRef b) {
  LLVMValueRef seen = at_b_fcmp(m->e, AT_B_UNO, a, b);
  LLVMValueRef old = at_b_load(m->e, at_b_type_of(seen), r->nan, 1);
  put(m, at_b_bin(m->e, AT_B_OR, old, seen), r->nan);
}

// One turn: `unroll` vectors side by side are combined into as many sums, so
// that additions do not wait for each other.
static void step(at_me *m, at_me_reduction *r) {
  at_em *e = m->e;
  at_ix first = r->ix[r->lane_dim];
  LLVMValueRef before = NULL;
  for (uint32_t u = 0; u < r->unroll; u++) {
    uint32_t scope = at_em_scope_push(e);
    r->ix[r->lane_dim] = at_ix_addc(first, (int64_t)u * e->lanes);
    const at_pos *p = at_pos_make(e, false, r->a->rank, r->a->dim, r->ix);
    LLVMValueRef v = at_me_eval(m, r->a, p).re;
    LLVMValueRef old = at_b_load(e, at_me_reduce_type(m, r), r->sum[u], 1);
    put(m, at_me_reduce_combine(m, r, old, v), r->sum[u]);
    if (r->nan && (u % 2 || u + 1 == r->unroll))
      note_nan(m, r, u % 2 ? before : v, v);
    before = v;
    at_em_scope_pop(e, scope);
  }
  r->ix[r->lane_dim] = first;
}

// Over the reduced dimensions from d on; with lanes along the last when
// `along`.
static void reduced_loops(at_me *m, at_me_reduction *r, uint32_t d,
                          bool along) {
  if (d == r->a->rank) {
    step(m, r);
    return;
  }
  if (!r->reduced[d] || (along && d == r->lane_dim)) {
    reduced_loops(m, r, d + 1, along);
    return;
  }
  at_loop l;
  uint32_t lanes = m->e->lanes;
  m->e->lanes = 1;
  at_loop_range(m->e, &l, 0, r->a->dim[d], 1);
  r->ix[d] = l.i;
  m->e->lanes = lanes;
  reduced_loops(m, r, d + 1, along);
  at_loop_end(m->e, &l);
}

// Each sum begins as the identity, in all lanes.
static void begin_sums(at_me *m, at_me_reduction *r) {
  LLVMValueRef id = at_em_splat(m->e, r->identity);
  for (uint32_t u = 0; u < r->unroll; u++) {
    r->sum[u] = at_em_alloca(m->e, at_me_reduce_type(m, r), 1);
    put(m, id, r->sum[u]);
  }
}

// Joins acc, rounds, stores (lanes as set).
void at_me_reduce_finish(at_me *m, at_me_reduction *r, LLVMValueRef v,
                         uint32_t u) {
  at_em *e = m->e;
  at_ix ix[AT_ME_RANK];
  uint32_t k = 0;
  for (uint32_t d = 0; d < r->a->rank; d++) {
    if (r->reduced[d]) continue;
    ix[k] = r->ix[d];
    if (d == r->lane_dim) ix[k] = at_ix_addc(ix[k], (int64_t)u * e->lanes);
    k++;
  }
  const at_pos *p = at_pos_make(e, false, r->out_rank, r->out_dim, ix);
  if (r->acc)
    v = at_me_reduce_combine(m, r, at_me_eval(m, r->acc, p).re, v);
  else if (r->acc_scalar)
    v = at_me_reduce_combine(m, r, r->acc_scalar, v);
  v = at_em_normalize(e, r->a->dtype, (at_val){v, NULL}).re;
  if (!r->out) {
    r->value = v;
    return;
  }
  at_me_ref_store(m, r->out, p, (at_val){v, NULL});
}

// Halves the vector until one lane is left; leaves the lane count at 1.
static LLVMValueRef across(at_me *m, const at_me_reduction *r, LLVMValueRef v) {
  at_em *e = m->e;
  for (uint32_t w = e->lanes / 2; w >= 1; w /= 2) {
    int low[AT_EM_MAX_LANES], high[AT_EM_MAX_LANES];
    for (uint32_t i = 0; i < w; i++) {
      low[i] = (int)i;
      high[i] = (int)(i + w);
    }
    e->lanes = w;
    LLVMValueRef a, b;
    if (w == 1) {
      a = at_b_extract(e, v, 0);
      b = at_b_extract(e, v, 1);
    } else {
      a = at_b_shuffle(e, v, v, low, w);
      b = at_b_shuffle(e, v, v, high, w);
    }
    v = at_me_reduce_combine(m, r, a, b);
  }
  e->lanes = 1;
  return v;
}

// The same by a function of the module, where the kernel is compiled quickly.
static LLVMValueRef across_called(at_me *m, const at_me_reduction *r,
                                  LLVMValueRef v) {
  at_em *e = m->e;
  if (!e->quick) return across(m, r, v);
  LLVMTypeRef type = at_b_type_of(v), scalar = at_em_reg_type(e, r->type);
  char name[64];
  snprintf(name, sizeof name, "at.across.%s.%s.%u.%d.%d", at_op_text(r->op),
           at_dtype_of(r->type)->text, e->lanes, r->nan != NULL,
           r->number_wins);
  at_b_helper h;
  if (at_b_helper_begin(e, &h, name)) {
    LLVMValueRef all = at_b_load(e, type, at_b_param(e, 0), 1);
    at_b_store(e, across(m, r, all), at_b_param(e, 1), 1);
    at_b_helper_end(e, &h);
  }
  e->lanes = 1;
  LLVMValueRef args[2] = {at_em_alloca(e, type, 1), at_em_alloca(e, scalar, 1)};
  at_b_store(e, v, args[0], 1);
  at_b_call(e, name, NULL, args, 2);
  return at_b_load(e, scalar, args[1], 1);
}

// Extrema take one instruction where NaNs are looked for apart.
static void begin_nan(at_me *m, at_me_reduction *r) {
  bool extremum = r->op == AT_OP_MAXIMUM || r->op == AT_OP_MINIMUM;
  if (!extremum || !at_is_float(r->type) || r->number_wins) return;
  LLVMValueRef none = at_b_null(at_em_widen(m->e, at_em_int(m->e, 1)));
  r->nan = at_em_alloca(m->e, at_b_type_of(none), 1);
  put(m, none, r->nan);
}

// NaN if any lane saw one. The test is one comparison of the mask as an
// integer.
static LLVMValueRef end_nan(at_me *m, at_me_reduction *r, LLVMValueRef v,
                            uint32_t lanes) {
  at_em *e = m->e;
  if (!r->nan) return v;
  m->e->lanes = lanes;
  LLVMTypeRef t = at_em_widen(e, at_em_int(e, 1));
  m->e->lanes = 1;
  LLVMTypeRef bits = at_em_int(e, lanes);
  LLVMValueRef seen =
      at_b_cast(e, AT_B_BITCAST, at_b_load(e, t, r->nan, 1), bits);
  r->nan = NULL;
  return at_b_select(e, at_b_icmp(e, AT_B_NE, seen, at_b_null(bits)),
                     at_em_cf(e, at_b_type_of(v), __builtin_nan("")), v);
}

// One output element: vectors run along the reduced last dimension.
static void reduce_row(at_me *m, at_me_reduction *r) {
  at_em *e = m->e;
  int64_t size = r->a->dim[r->lane_dim];
  uint32_t w = r->lanes;
  int64_t main = size / w * w;
  LLVMValueRef total = NULL;
  if (w > 1) {
    uint32_t unroll = AT_ME_REDUCE_UNROLL;
    while (unroll > 1 && main % ((int64_t)unroll * w)) unroll /= 2;
    r->unroll = unroll;
    e->lanes = w;
    begin_sums(m, r);
    begin_nan(m, r);
    at_loop l;
    at_loop_range(e, &l, 0, main, (int64_t)w * unroll);
    if (!l.single && l.i.base) l.i.hi = main - (int64_t)w * unroll;
    r->ix[r->lane_dim] = at_ix_lanes(e, l.i);
    reduced_loops(m, r, 0, true);
    at_loop_end(e, &l);
    total = at_b_load(e, at_me_reduce_type(m, r), r->sum[0], 1);
    for (uint32_t u = 1; u < unroll; u++)
      total = at_me_reduce_combine(
          m, r, total, at_b_load(e, at_me_reduce_type(m, r), r->sum[u], 1));
    total = end_nan(m, r, across_called(m, r, total), w);
  }
  r->unroll = 1;
  e->lanes = 1;
  if (w == 1 || main < size) {
    begin_sums(m, r);
    at_loop l;
    at_loop_range(e, &l, w == 1 ? 0 : main, size, 1);
    r->ix[r->lane_dim] = l.i;
    reduced_loops(m, r, 0, true);
    at_loop_end(e, &l);
    LLVMValueRef rest = at_b_load(e, at_me_reduce_type(m, r), r->sum[0], 1);
    total = total ? at_me_reduce_combine(m, r, total, rest) : rest;
  }
  r->ix[r->lane_dim] = at_ix_const(0);
  at_me_reduce_finish(m, r, total, 0);
}

// Columns [lo, hi) in steps of lanes * unroll.
static void reduce_columns(at_me *m, at_me_reduction *r, int64_t lo, int64_t hi,
                           uint32_t lanes, uint32_t unroll) {
  at_em *e = m->e;
  int64_t by = (int64_t)lanes * unroll;
  if (hi <= lo) return;
  at_loop l;
  e->lanes = lanes;
  r->unroll = unroll;
  at_loop_range(e, &l, lo, hi, by);
  if (!l.single && l.i.base) l.i.hi = hi - by;
  r->ix[r->lane_dim] = at_ix_lanes(e, l.i);
  begin_sums(m, r);
  reduced_loops(m, r, 0, false);
  for (uint32_t u = 0; u < unroll; u++)
    at_me_reduce_finish(m, r,
                        at_b_load(e, at_me_reduce_type(m, r), r->sum[u], 1), u);
  at_loop_end(e, &l);
  e->lanes = 1;
}

// Everything for one index of the dimensions that are kept, but for the lanes'
// one: along it, or columns in strips, then unrolled, then vectors, then one by
// one.
static void reduce_kept(at_me *m, at_me_reduction *r) {
  if (r->reduced[r->lane_dim]) {
    reduce_row(m, r);
    return;
  }
  int64_t size = r->a->dim[r->lane_dim], w = r->lanes;
  int64_t done = at_me_reduce_strips(m, r), by = w * AT_ME_REDUCE_UNROLL;
  int64_t wide = w == 1 ? done : done + (size - done) / by * by;
  int64_t whole = done + (size - done) / w * w;
  reduce_columns(m, r, done, wide, (uint32_t)w, AT_ME_REDUCE_UNROLL);
  reduce_columns(m, r, wide, whole, (uint32_t)w, 1);
  reduce_columns(m, r, whole, size, 1, 1);
}

// Loops over dimensions that are kept. The outermost with enough turns may be
// shared by threads.
static void kept_loops(at_me *m, at_me_reduction *r, uint32_t d) {
  if (d == r->a->rank) {
    reduce_kept(m, r);
    return;
  }
  if (r->reduced[d] || d == r->lane_dim) {
    kept_loops(m, r, d + 1);
    return;
  }
  at_loop l;
  bool outermost = true;
  int64_t size = r->a->dim[d];
  for (uint32_t k = 0; k < d; k++) outermost &= r->a->dim[k] == 1;
  outermost &= size != 1;
  if (size >= 8 && at_me_shares(m, r->work)) {
    at_me_share share;
    at_me_loop_begin(m, &share, &l, size, 1, true);
    r->ix[d] = l.i;
    kept_loops(m, r, d + 1);
    at_me_loop_end(m, &share, &l);
    return;
  }
  r->work /= (double)size;
  at_me_rows_begin(m, &l, size, outermost, &r->ix[d]);
  kept_loops(m, r, d + 1);
  at_loop_end(m->e, &l);
}

// Lanes go along the last dimension that is not 1. A result that is a packed
// view is not shared: two threads could write one word.
void at_me_reduce_compute(at_me *m, at_me_reduction *r) {
  r->lane_dim = r->a->rank ? r->a->rank - 1 : 0;
  while (r->lane_dim > 0 && r->a->dim[r->lane_dim] == 1) r->lane_dim--;
  at_me_space s = {.total = at_me_elements(r->a), .widest = 1};
  at_me_space_tree(m, &s, r->a);
  uint32_t own = at_is_float(r->type) ? 4 : at_dtype_bytes(r->type);
  s.widest = AT_MAX(s.widest, own);
  for (uint32_t d = 0; d < r->a->rank; d++) r->ix[d] = at_ix_const(0);
  r->lanes = at_me_lanes(m, &s, r->a->dim[r->lane_dim]);
  bool whole =
      !r->out || (r->out->packing->parts == 1 && r->out->packing->split == 1);
  r->work = whole ? (double)s.total * at_me_node_cost(m, r->a) : 0;
  kept_loops(m, r, 0);
}

// The shared function if there is one, else loops written here.
static void run(at_me *m, at_me_reduction *r) {
  at_me_prepare(m, r->a);
  if (r->acc) at_me_prepare(m, r->acc);
  if (!at_me_reduce_called(m, r)) at_me_reduce_compute(m, r);
}

// Kind, accumulator type and identity of a reduction of a. Narrow floats are
// summed in f32; "ui" in the kind's name makes integers unsigned.
static at_status make(at_me *m, const at_mop *op, at_me_node *a,
                      const at_mattr *kind, at_me_reduction *r) {
  at_me_reduce_op k = at_me_reduce_op_of(kind);
  if (k == AT_ME_R_NONE || a->rank == 0) return at_me_refuse(m, op, "its kind");
  *r = (at_me_reduction){.a = a, .type = a->dtype, .op = at_me_reduce_hlo(k)};
  if (at_is_float(a->dtype) && a->dtype != AT_F64) r->type = AT_F32;
  at_str s = kind->str;
  if (s.len >= 5 && s.ptr[3] == 'u' && s.ptr[4] == 'i')
    r->type = a->dtype == AT_S32   ? AT_U32
              : a->dtype == AT_S16 ? AT_U16
              : a->dtype == AT_S8  ? AT_U8
                                   : a->dtype;
  r->number_wins = at_me_reduce_is(s, "minnum") || at_me_reduce_is(s, "maxnum");
  r->identity = at_me_reduce_identity(m, r->type, k);
  return AT_OK;
}

// vector.multi_reduction: the accumulator joins at the end. An empty operand
// leaves the accumulator.
at_status at_me_op_reduce(at_me *m, at_mop *op) {
  at_me_node *a = at_me_vector(m, op->operands[0]);
  at_mvalue *res = &op->results[0];
  at_me_reduction r;
  int64_t dims[AT_ME_RANK];
  uint32_t n;
  if (!a) return AT_OK;
  AT_TRY(make(m, op, a, at_mop_attr(op, "kind"), &r));
  if (!at_mosaic_op_ints(op, "reduction_dims", dims, AT_ME_RANK, &n))
    return at_me_refuse(m, op, "its dimensions");
  for (uint32_t i = 0; i < n; i++)
    if (dims[i] >= 0 && dims[i] < a->rank) r.reduced[dims[i]] = true;
  for (uint32_t d = 0; d < a->rank; d++)
    if (!r.reduced[d]) r.out_dim[r.out_rank++] = a->dim[d];
  bool vector = at_mosaic_is_vector(res);
  at_me_node *b = NULL;
  if (vector) {
    r.acc = at_me_vector(m, op->operands[1]);
    b = at_me_buffer(m, op, a->dtype, r.out_rank, r.out_dim);
    if (!b || !r.acc) return AT_OK;
    r.out = b->ref;
  } else {
    r.acc_scalar = at_me_scalar(m, op->operands[1]);
    if (r.out_rank) return at_me_refuse(m, op, "a scalar result");
  }
  if (at_me_elements(a) == 0) {  // nothing joins acc
    if (!vector) {
      at_me_set_scalar(m, res, r.acc_scalar);
      return AT_OK;
    }
    at_me_copy_to(m, r.acc, r.out, NULL, AT_ME_PLAIN);
    return at_me_set_node(m, res, b);
  }
  run(m, &r);
  if (vector) return at_me_set_node(m, res, b);
  at_me_set_scalar(m, res, r.value);
  return AT_OK;
}

// ---- reduce, then repeat along the dimension
// A node of `kind` and type t over `in`.
static at_me_node *over(at_me *m, const at_mop *op, at_me_kind kind,
                        const at_mtype *t, at_me_node *in) {
  at_me_node *n = at_me_node_new(m, kind, op, t);
  at_me_node_hold(m, n, in);
  return n;
}

// The first place along the dimension whose mask is set, else its size: the
// smallest of these.
static at_me_node *places_set(at_me *m, const at_mop *op, const at_mtype *t,
                              at_me_node *mask, int64_t d) {
  at_me_node *i = at_me_node_new(m, AT_ME_IOTA, op, t);
  at_me_node *n = at_me_node_new(m, AT_ME_APPLY, op, t);
  if (!i || !n) return NULL;
  i->ints[0] = d;
  i->ints[AT_ME_RANK - 1] = 1;
  n->code = AT_MOSAIC_ARITH_SELECT;
  at_me_node_hold(m, n, mask);
  at_me_node_hold(m, n, i);
  at_me_node_hold(m, n, at_me_splat(m, n->dtype, at_me_i32(m, mask->dim[d])));
  return n;
}

// tpu.all_reduce: the reduction is broadcast back along its dimension. Masks
// are counted as integers; find_first_set is a minimum over places.
at_status at_me_op_all_reduce(at_me *m, at_mop *op) {
  at_me_node *a = at_me_vector(m, op->operands[0]);
  at_mvalue *res = &op->results[0];
  int64_t d = at_mosaic_op_int(op, "dim", 0);
  at_me_reduction r;
  if (!a || d < 0 || d >= a->rank) return at_me_refuse(m, op, "its dimension");
  at_dtype rt = at_mosaic_dtype_of(res->type);
  const at_mattr *kind = at_mop_attr(op, "kind");
  if (kind && at_me_reduce_is(kind->str, "find_first_set")) {
    static const at_mattr min = {.str = {"minsi", 5}};
    a = places_set(m, op, res->type, a, d);
    if (!a) return AT_OK;
    kind = &min;
  } else if (a->dtype != rt) {  // masks are counted
    at_me_node *w = over(m, op, AT_ME_APPLY, res->type, a);
    if (!w) return AT_OK;
    w->code = AT_MOSAIC_ARITH_EXTUI;
    a = w;
  }
  AT_TRY(make(m, op, a, kind, &r));
  r.reduced[d] = true;
  int64_t kept[AT_ME_RANK];
  for (uint32_t k = 0; k < a->rank; k++) {
    kept[k] = k == d ? 1 : a->dim[k];
    if (k != d) r.out_dim[r.out_rank++] = a->dim[k];
  }
  at_me_node *b = at_me_buffer(m, op, rt, a->rank, kept);
  if (!b) return AT_OK;
  at_me_ref out;
  at_me_dense(m, &out, b->ref->base, rt, r.out_rank, r.out_dim);
  r.out = &out;
  run(m, &r);
  return at_me_set_node(m, res, over(m, op, AT_ME_BROADCAST, res->type, b));
}
