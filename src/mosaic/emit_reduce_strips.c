// Reductions of columns of many rows. Down single columns, each row is another
// page: memory cannot look ahead. So a strip of columns goes down together, a
// few rows at a time.
#include "mosaic/emit_reduce.h"

enum {
  STRIP = 256,    // columns whose sums are in memory while rows go by
  STRIP_ROWS = 8  // of a turn: so many rows are read side by side
};

typedef struct strip {
  uint32_t dim;  // the reduced one
  LLVMValueRef sums;
  at_ix first;  // column
} strip;

// The only reduced dimension that is not 1, where it has many rows.
static bool has_strips(const at_me_reduction *r, uint32_t *dim) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < r->a->rank; d++) {
    if (!r->reduced[d] || r->a->dim[d] == 1) continue;
    *dim = d;
    n++;
  }
  return n == 1 && r->type != AT_PRED && r->lanes > 1 &&
         STRIP % r->lanes == 0 && r->a->dim[*dim] >= 2 * STRIP_ROWS &&
         r->a->dim[r->lane_dim] >= STRIP;
}

// A loop over the strip's columns, a vector at a time. *sum: the address of its
// sums.
static LLVMTypeRef begin_vectors(at_me *m, at_me_reduction *r, const strip *s,
                                 at_loop *l, LLVMValueRef *sum) {
  at_em *e = m->e;
  e->lanes = r->lanes;
  at_loop_range(e, l, 0, STRIP, r->lanes);
  if (!l->single) l->i.hi = STRIP - r->lanes;
  r->ix[r->lane_dim] = at_ix_lanes(e, at_ix_add(e, s->first, l->i));
  *sum = at_b_gep(e, at_em_reg_type(e, r->type), s->sums, at_ix_value(e, l->i));
  return at_me_reduce_type(m, r);
}
static void end_vectors(at_me *m, at_loop *l) {
  at_loop_end(m->e, l);
  m->e->lanes = 1;
}

// Adds `rows` rows from `row` on to the sums.
static void strip_rows(at_me *m, at_me_reduction *r, const strip *s, at_ix row,
                       int64_t rows) {
  at_em *e = m->e;
  at_loop l;
  LLVMValueRef sum;
  LLVMTypeRef t = begin_vectors(m, r, s, &l, &sum);
  LLVMValueRef v = at_b_load(e, t, sum, 4);
  for (int64_t u = 0; u < rows; u++) {
    uint32_t scope = at_em_scope_push(e);
    r->ix[s->dim] = at_ix_addc(row, u);
    const at_pos *p = at_pos_make(e, false, r->a->rank, r->a->dim, r->ix);
    v = at_me_reduce_combine(m, r, v, at_me_eval(m, r->a, p).re);
    at_em_scope_pop(e, scope);
  }
  at_b_store(e, v, sum, 4);
  end_vectors(m, &l);
}

// Sums of a strip: set to the identity, rows added STRIP_ROWS at a time, then
// the rest, then stored.
static void reduce_strip(at_me *m, at_me_reduction *r, strip *s) {
  at_em *e = m->e;
  at_loop l;
  LLVMValueRef sum;
  begin_vectors(m, r, s, &l, &sum);
  at_b_store(e, at_em_splat(e, r->identity), sum, 4);
  end_vectors(m, &l);
  int64_t rows = r->a->dim[s->dim], main = rows / STRIP_ROWS * STRIP_ROWS;
  at_loop_range(e, &l, 0, main, STRIP_ROWS);
  if (!l.single) l.i.hi = main - STRIP_ROWS;
  strip_rows(m, r, s, l.i, STRIP_ROWS);
  at_loop_end(e, &l);
  if (main < rows) strip_rows(m, r, s, at_ix_const(main), rows - main);
  r->ix[s->dim] = at_ix_const(0);
  LLVMTypeRef t = begin_vectors(m, r, s, &l, &sum);
  at_me_reduce_finish(m, r, at_b_load(e, t, sum, 4), 0);
  end_vectors(m, &l);
}

// Returns how many columns are done; 0 where strips do not pay. Strips may be
// shared by threads.
int64_t at_me_reduce_strips(at_me *m, at_me_reduction *r) {
  strip s;
  at_loop l;
  at_me_share share;
  if (!has_strips(r, &s.dim)) return 0;
  int64_t strips = r->a->dim[r->lane_dim] / STRIP;
  bool shared = strips > 1 && at_me_shares(m, r->work);
  at_me_loop_begin(m, &share, &l, strips, 1, shared);
  s.sums = at_em_alloca(m->e, at_em_reg_type(m->e, r->type), STRIP);
  s.first = at_ix_mulc(m->e, l.i, STRIP);
  reduce_strip(m, r, &s);
  at_me_loop_end(m, &share, &l);
  return strips * STRIP;
}
