// The index of an extremum along a dimension. Along the last one a vector has
// neighbours, each lane keeps the best that it saw, and the lanes meet at the
// end; else the lanes are different results.
#include "mosaic/emit_memory.h"

typedef struct indexing {
  at_me_node *a;
  uint32_t axis, lanes;  // lanes: along the axis; 1: of the results
  bool max;
  const at_me_ref *out;
  int64_t out_dim[AT_ME_RANK];
  uint32_t out_rank;
} indexing;

typedef struct found {
  LLVMValueRef best, place;
} found;

// Whether b, at a later place, wins over a: NaN first, then the extremum.
static LLVMValueRef wins(at_me *m, const indexing *x, LLVMValueRef a,
                         LLVMValueRef b) {
  at_em *e = m->e;
  if (!at_is_float(x->a->dtype))
    return at_b_icmp(e, x->max ? AT_B_SGT : AT_B_SLT, b, a);
  LLVMValueRef w = at_b_fcmp(e, x->max ? AT_B_UGT_F : AT_B_ULT_F, b, a);
  return at_b_bin(e, AT_B_AND, w, at_b_fcmp(e, AT_B_ORD, a, a));
}

// Element ix of the operand as a register.
static LLVMValueRef element(at_me *m, const indexing *x, const at_ix *ix) {
  return at_me_eval(m, x->a,
                    at_pos_make(m->e, false, x->a->rank, x->a->dim, ix))
      .re;
}

// Looks at places lo .. hi - 1, e->lanes at a time. ix: of the results; first:
// what is known, in memory.
static void look(at_me *m, const indexing *x, at_ix *ix, int64_t lo, int64_t hi,
                 found in) {
  at_em *e = m->e;
  at_loop l;
  uint32_t lanes = e->lanes, by = x->lanes > 1 ? lanes : 1;
  if (hi <= lo) return;
  e->lanes = by;
  at_loop_range(e, &l, lo, hi, by);
  if (!l.single && l.i.base) l.i.hi = hi - by;
  e->lanes = lanes;
  ix[x->axis] = by > 1 ? at_ix_lanes(e, l.i) : l.i;
  LLVMValueRef v = element(m, x, ix);
  LLVMValueRef old = at_b_load(e, at_b_type_of(v), in.best, 1);
  LLVMValueRef now = at_ix_to(e, AT_S32, ix[x->axis]).re;
  LLVMValueRef at = at_b_load(e, at_b_type_of(now), in.place, 1);
  LLVMValueRef w = wins(m, x, old, v);
  at_b_store(e, at_b_select(e, w, v, old), in.best, 1);
  at_b_store(e, at_b_select(e, w, now, at), in.place, 1);
  e->lanes = by;
  at_loop_end(e, &l);
  e->lanes = lanes;
}

// Takes what is at `first` as the best so far.
static found begin(at_me *m, const indexing *x, at_ix *ix, at_ix first) {
  at_em *e = m->e;
  ix[x->axis] = first;
  LLVMValueRef v = element(m, x, ix), at = at_ix_to(e, AT_S32, first).re;
  found f = {at_em_alloca(e, at_b_type_of(v), 1),
             at_em_alloca(e, at_b_type_of(at), 1)};
  at_b_store(e, v, f.best, 1);
  at_b_store(e, at, f.place, 1);
  return f;
}

// What they hold at the end.
static found held(at_me *m, const indexing *x, found in) {
  at_em *e = m->e;
  LLVMTypeRef t = at_em_widen(e, at_em_reg_type(e, x->a->dtype));
  return (found){at_b_load(e, t, in.best, 1),
                 at_b_load(e, at_em_widen(e, at_em_int(e, 32)), in.place, 1)};
}

// Lanes first .. first + w - 1 of v; one lane is a scalar.
static LLVMValueRef half(at_em *e, LLVMValueRef v, uint32_t w, uint32_t first) {
  int lane[AT_EM_MAX_LANES];
  if (w == 1) return at_b_extract(e, v, first);
  for (uint32_t i = 0; i < w; i++) lane[i] = (int)(first + i);
  return at_b_shuffle(e, v, v, lane, w);
}

// The best of all lanes; of equal ones the first.
static found across(at_me *m, const indexing *x, found f) {
  at_em *e = m->e;
  for (uint32_t w = e->lanes / 2; w >= 1; w /= 2) {
    found a = {half(e, f.best, w, 0), half(e, f.place, w, 0)};
    found b = {half(e, f.best, w, w), half(e, f.place, w, w)};
    e->lanes = w;
    LLVMValueRef one = wins(m, x, a.best, b.best);
    LLVMValueRef other = wins(m, x, b.best, a.best);
    LLVMValueRef first = at_b_icmp(e, AT_B_SLT, b.place, a.place);
    first = at_b_bin(e, AT_B_AND, first, at_b_not(e, other));
    one = at_b_bin(e, AT_B_OR, one, first);
    f.best = at_b_select(e, one, b.best, a.best);
    f.place = at_b_select(e, one, b.place, a.place);
  }
  return f;
}

// p: a position of the result.
static void index_one(at_me *m, const at_pos *p, void *arg) {
  const indexing *x = arg;
  at_em *e = m->e;
  at_ix kept[AT_ME_RANK], ix[AT_ME_RANK];
  int64_t size = x->a->dim[x->axis], done = 1;
  at_pos_regroup(e, p, x->out_rank, x->out_dim, kept);
  for (uint32_t d = 0, k = 0; d < x->a->rank; d++)
    ix[d] = d == x->axis ? at_ix_const(0) : kept[k++];
  found f;
  if (x->lanes > 1) {
    e->lanes = x->lanes;
    done = size / x->lanes * x->lanes;
    f = begin(m, x, ix, at_ix_lanes(e, at_ix_const(0)));
    look(m, x, ix, x->lanes, done, f);
    found best = across(m, x, held(m, x, f));
    e->lanes = 1;
    f = (found){at_em_alloca(e, at_b_type_of(best.best), 1),
                at_em_alloca(e, at_b_type_of(best.place), 1)};
    at_b_store(e, best.best, f.best, 1);
    at_b_store(e, best.place, f.place, 1);
  } else {
    f = begin(m, x, ix, at_ix_const(0));
  }
  indexing rest = *x;
  rest.lanes = 1;
  look(m, &rest, ix, done, size, f);
  at_me_ref_store(m, x->out, p, (at_val){held(m, x, f).place, NULL});
}

// tpu.reduce_index (arg_max, arg_min): of equal extrema the first place, NaN
// before everything. The result is a buffer of S32.
at_status at_me_op_reduce_index(at_me *m, at_mop *op) {
  at_me_node *a = at_me_vector(m, op->operands[0]);
  int64_t d = at_mosaic_op_int(op, "axis", 0);
  const at_mattr *kind = at_mop_attr(op, "kind");
  if (!a || d < 0 || d >= a->rank || !kind || kind->str.len < 7 ||
      memcmp(kind->str.ptr, "arg_", 4))
    return at_me_refuse(m, op, "its axis or kind");
  if (at_mplan_value_of(m->plan, &op->results[0])->counts)
    at_me_check_nan(m, op, a, NULL, AT_CORE_NAN_CONVERTED);
  indexing x = {.a = a,
                .axis = (uint32_t)d,
                .lanes = 1,
                .max = !memcmp(kind->str.ptr, "arg_max", 7)};
  for (uint32_t k = 0; k < a->rank; k++)
    if (k != d) x.out_dim[x.out_rank++] = a->dim[k];
  at_me_node *b = at_me_buffer(m, op, AT_S32, x.out_rank, x.out_dim);
  if (!b) return AT_OK;
  x.out = b->ref;
  if (a->dim[d] > 0) {
    // Its operand is read again and again: for each lane, or each turn.
    at_me_node *src = at_me_readable(m, a);
    x.a = src ? src : a;
    at_me_space s = {.total = at_me_elements(b), .widest = 4};
    at_me_space_dims(&s, x.out_rank, x.out_dim);
    if (d + 1 == a->rank) x.lanes = at_me_lanes(m, &s, a->dim[d]);
    s.scalar = x.lanes > 1;
    s.work = 2.0 * (double)at_me_elements(a);
    at_me_loops(m, &s, index_one, &x);
    at_me_node_drop(m, src);
  }
  return at_me_set_node(m, &op->results[0], b);
}
