// Kernels that compute each element of their results by itself.
#include "codegen/job.h"

#include <llvm-c/Core.h>
#include "codegen/pieces.h"
#include "codegen/stream.h"

// Constants fold here, as LLVM's builder does not fold the intrinsic.
LLVMValueRef at_em_min(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  if (LLVMIsConstant(a) && LLVMIsConstant(b))
    return LLVMConstIntGetSExtValue(a) < LLVMConstIntGetSExtValue(b) ? a : b;
  LLVMValueRef args[2] = {a, b};
  return at_math_intrinsic(&e->math, "llvm.smin", args, 2);
}

// A part of the results that is made in the caches first; NULL: none is.
typedef struct at_part {
  LLVMValueRef memory[AT_STREAM_MOST];  // per streamed result, in their order
  LLVMValueRef base[AT_STREAM_MOST];  // where element 0 of the result would be
} at_part;

// Of an element of the job's result r.
static int64_t bytes_of(const at_job *j, uint32_t r) {
  return (int64_t)at_dtype_bytes(at_value_type(at_job_root(j, r))->dtype);
}

// What one step has made: a value for each result, and where they go.
typedef struct at_made {
  at_val *v;  // NULL: out of memory, and the emitter has failed
  at_ix at;
} at_made;

// Computes all results of one step, and stores none.
static at_made make_step(at_em *e, const at_job *j, const at_ix *ix) {
  at_made m = {.v = at_new(e->arena, at_val, j->num_results)};
  if (!m.v) {
    at_em_fail(e, AT_NO_MEMORY("kernel results"));
    return m;
  }
  uint32_t scope = at_em_scope_push(e);
  const at_pos *p = at_pos_make(e, false, j->n, j->extent, ix);
  // All loads come before the first store: a result may be in an operand's
  // place.
  const at_pos *from = p;
  if (j->kind == AT_JOB_FILL) from = at_pos_make(e, false, 0, NULL, NULL);
  for (uint32_t r = 0; r < j->num_results; r++)
    m.v[r] = at_em_elem(e, at_job_root(j, r), from);
  m.at = j->kind == AT_JOB_UPDATE ? at_update_target(e, j->node, p)
                                  : at_pos_linear(e, p);
  at_em_scope_pop(e, scope);
  return m;
}

// Streamed results go to their part in the caches.
static void store_step(at_em *e, const at_job *j, const at_part *part,
                       const at_made *m) {
  uint32_t k = 0;
  for (uint32_t r = 0; r < j->num_results && at_em_ok(e); r++)
    at_em_store(e,
                part && at_job_streams(j, j->results[r])
                    ? part->base[k++]
                    : at_job_result(e, j, j->results[r]),
                at_value_type(at_job_root(j, r))->dtype, m->at, m->v[r]);
}

// All results of one place or vector of places.
static void one_step(at_em *e, const at_job *j, const at_part *part,
                     const at_ix *ix) {
  at_made m = make_step(e, j, ix);
  store_step(e, j, part, &m);
}

// Elements [first, first + size) of the last digit, in vectors of so many.
typedef struct at_stretch {
  int64_t first, size;
  uint32_t lanes;
} at_stretch;

// Steps of `count` vectors over [lo, hi) of a stretch, both multiples of such a
// step but for where lo is 0.
static void vectors(at_em *e, const at_job *j, const at_part *part, at_ix *ix,
                    const at_stretch *s, LLVMValueRef lo, LLVMValueRef hi,
                    uint32_t count) {
  at_loop l;
  int64_t W = s->lanes, step = W * count;
  e->lanes = s->lanes;
  at_loop_begin(e, &l, lo, hi, step, 0, AT_MAX(0, s->size - step));
  if (!l.single && l.i.base) l.i.mult = step;
  for (uint32_t u = 0; u < count; u++) {
    ix[j->n - 1] = at_ix_lanes(e, at_ix_addc(l.i, s->first + (int64_t)u * W));
    one_step(e, j, part, ix);
  }
  at_loop_end(e, &l);
  e->lanes = 1;
}

// n rounded down to a multiple of step; n >= 0.
static LLVMValueRef whole_steps(at_em *e, LLVMValueRef n, int64_t step) {
  if (LLVMIsConstant(n))
    return at_em_i64(e, LLVMConstIntGetSExtValue(n) / step * step);
  LLVMValueRef rest = LLVMBuildURem(e->b, n, at_em_i64(e, step), "");
  return LLVMBuildSub(e->b, n, rest, "");
}

// The innermost loop over [lo, hi) of a stretch: whole vectors, then what is
// left: one more vector, which reaches back, or single elements. That vector is
// made first, while nothing that it reads is overwritten.
static void inner(at_em *e, const at_job *j, const at_part *part, at_ix *ix,
                  const at_stretch *s, LLVMValueRef lo, LLVMValueRef hi) {
  at_loop l;
  int64_t size = s->size, W = s->lanes;
  LLVMValueRef main = W > 1 ? lo : hi, end = hi;
  if (W > 1) end = size % W ? whole_steps(e, hi, W) : hi;
  bool all = LLVMIsConstant(lo) && LLVMIsConstant(hi);
  bool overlap = W > 1 && size % W && size > W && all;
  at_made tail = {0};
  if (overlap) {
    e->lanes = s->lanes;
    ix[j->n - 1] = at_ix_lanes(e, at_ix_const(s->first + size - W));
    tail = make_step(e, j, ix);
    e->lanes = 1;
  }
  if (W > 1) {
    uint32_t count = j->kind == AT_JOB_LOOP ? AT_MAX(j->unroll, 1u) : 1;
    if (count > 1 && size >= W * count) {
      main = whole_steps(e, hi, W * count);
      vectors(e, j, part, ix, s, lo, main, count);
    }
    if (all && count > 1) {  // the place of each is known
      int64_t last = LLVMConstIntGetSExtValue(end);
      for (int64_t at = LLVMConstIntGetSExtValue(main); at < last; at += W)
        vectors(e, j, part, ix, s, at_em_i64(e, at), at_em_i64(e, at + W), 1);
    } else if (count == 1 || size % (W * count)) {
      vectors(e, j, part, ix, s, main, end, 1);
    }
  }
  if (overlap) {
    e->lanes = s->lanes;
    store_step(e, j, part, &tail);
    e->lanes = 1;
    return;
  }
  if (W > 1 && size % W == 0) return;
  at_loop_begin(e, &l, W > 1 ? end : lo, hi, 1, 0, size - 1);
  if (l.i.base) l.i.mult = 1;
  ix[j->n - 1] = at_ix_addc(l.i, s->first);
  one_step(e, j, part, ix);
  at_loop_end(e, &l);
}

// p + elements * bytes.
static LLVMValueRef moved(at_em *e, LLVMValueRef p, LLVMValueRef elements,
                          int64_t bytes) {
  LLVMValueRef at = LLVMBuildMul(e->b, elements, at_em_i64(e, bytes), "");
  return LLVMBuildGEP2(e->b, at_em_int(e, 8), p, &at, 1, "");
}

// The same in parts that go past the caches.
static void inner_streaming(at_em *e, const at_job *j, at_ix *ix,
                            LLVMValueRef lo, LLVMValueRef hi) {
  at_part part;
  at_loop l;
  int64_t size = j->extent[j->n - 1];
  // Parts begin at multiples of the tasks' own steps.
  const int64_t step = 64 * (int64_t)AT_MAX(j->unroll, 1u),
                most = AT_STREAM_PART / step * step;
  uint32_t k = 0;
  for (uint32_t r = 0; r < j->num_results; r++)
    if (at_job_streams(j, j->results[r]))
      part.memory[k++] =
          at_em_alloca(e, at_em_int(e, 8), most * bytes_of(j, r));
  at_loop_begin(e, &l, lo, hi, most, 0, size - 1);
  if (l.i.base) l.i.mult = 1;
  LLVMValueRef first = at_ix_value(e, l.i);
  LLVMValueRef end =
      at_em_min(e, LLVMBuildAdd(e->b, first, at_em_i64(e, most), ""), hi);
  ix[j->n - 1] = l.i;
  LLVMValueRef at = at_ix_value(
      e, at_pos_linear(e, at_pos_make(e, false, j->n, j->extent, ix)));
  k = 0;
  for (uint32_t r = 0; r < j->num_results; r++) {
    if (!at_job_streams(j, j->results[r])) continue;
    // Element `at` of the result is at the begin of the part.
    part.base[k] =
        moved(e, part.memory[k], LLVMBuildNeg(e->b, at, ""), bytes_of(j, r));
    k++;
  }
  const at_stretch row = {0, size, j->lanes};
  inner(e, j, &part, ix, &row, first, end);
  LLVMValueRef count = LLVMBuildSub(e->b, end, first, "");
  k = 0;
  for (uint32_t r = 0; r < j->num_results && at_em_ok(e); r++) {
    if (!at_job_streams(j, j->results[r])) continue;
    int64_t bytes = bytes_of(j, r);
    at_em_stream(e, moved(e, at_job_result(e, j, j->results[r]), at, bytes),
                 part.memory[k++],
                 LLVMBuildMul(e->b, count, at_em_i64(e, bytes), ""));
  }
  at_loop_end(e, &l);
}

// A whole row whose last digit is cut: each piece in vectors that it fills.
static void in_pieces(at_em *e, const at_job *j, at_ix *ix) {
  const at_pieces *p = &j->pieces[j->n - 1];
  for (uint32_t k = 0; k <= p->cuts; k++) {
    int64_t first = k ? p->at[k - 1] : 0;
    int64_t end = k < p->cuts ? p->at[k] : j->extent[j->n - 1];
    at_stretch s = {first, end - first, j->lanes};
    while (s.lanes > s.size) s.lanes /= 2;
    inner(e, j, NULL, ix, &s, at_em_i64(e, 0), at_em_i64(e, s.size));
  }
}

// Elements [lo, hi) of the last digit, at the other digits in ix.
static void span(at_em *e, const at_job *j, at_ix *ix, LLVMValueRef lo,
                 LLVMValueRef hi) {
  const at_stretch row = {0, j->extent[j->n - 1], j->lanes};
  bool whole = LLVMIsConstant(lo) && LLVMIsConstant(hi);
  if (j->streams)
    inner_streaming(e, j, ix, lo, hi);
  else if (whole && j->pieces && j->pieces[j->n - 1].cuts)
    in_pieces(e, j, ix);
  else
    inner(e, j, NULL, ix, &row, lo, hi);
}

// The same where digits from d on may be cut: code for each piece, which knows
// the bounds of its digit.
static void span_of_pieces(at_em *e, const at_job *j, uint32_t d, at_ix *ix,
                           LLVMValueRef lo, LLVMValueRef hi) {
  while (j->pieces && d + 1 < j->n && !j->pieces[d].cuts) d++;
  if (!j->pieces || d + 1 >= j->n) {
    span(e, j, ix, lo, hi);
    return;
  }
  const at_pieces *p = &j->pieces[d];
  const at_ix all = ix[d];
  at_branch f[AT_PIECES_CUTS];
  for (uint32_t k = 0; k <= p->cuts; k++) {
    if (k < p->cuts)
      at_if_begin(e, &f[k],
                  LLVMBuildICmp(e->b, LLVMIntSLT, at_ix_value(e, all),
                                at_em_i64(e, p->at[k]), ""));
    ix[d].lo = k ? p->at[k - 1] : 0;
    ix[d].hi = (k < p->cuts ? p->at[k] : j->extent[d]) - 1;
    span_of_pieces(e, j, d + 1, ix, lo, hi);
    if (k < p->cuts) at_if_else(e, &f[k]);
  }
  for (uint32_t k = p->cuts; k-- > 0;) at_if_end(e, &f[k]);
  ix[d] = all;
}

// One digit: a task range is a range of elements. Else a task's number is taken
// apart, the block of the last digit first, then the outer digits from the
// minor one up; rows of a tile are a loop inside of the task.
void at_job_emit_loop(at_em *e, const at_job *j, LLVMValueRef begin,
                      LLVMValueRef end) {
  at_ix ix[AT_CG_MAX_RANK];
  int64_t size = j->extent[j->n - 1], blocks = at_ceil_div(size, j->block);
  LLVMTypeRef i64 = at_em_int(e, 64);
  if (j->n == 1) {  // the task range is one contiguous range
    LLVMValueRef b = at_em_i64(e, j->block), n = at_em_i64(e, size);
    LLVMValueRef lo = LLVMBuildMul(e->b, begin, b, "");
    LLVMValueRef hi = at_em_min(e, LLVMBuildMul(e->b, end, b, ""), n);
    if (j->tasks == 1) {
      lo = LLVMConstNull(i64);
      hi = n;
    }
    span(e, j, ix, lo, hi);
    return;
  }
  at_loop rows;
  at_loop_begin(e, &rows, begin, end, 1, 0, j->tasks - 1);
  at_ix t = rows.i;
  LLVMValueRef lo = LLVMConstNull(i64), hi = at_em_i64(e, size);
  if (blocks > 1) {
    LLVMValueRef b = at_em_i64(e, j->block);
    lo = LLVMBuildMul(e->b, at_ix_value(e, at_ix_modc(e, t, blocks)), b, "");
    hi = at_em_min(e, LLVMBuildAdd(e->b, lo, b, ""), hi);
    t = at_ix_divc(e, t, blocks);
  }
  at_ix tile = at_ix_const(0);
  for (uint32_t d = j->n - 1; d-- > 0;) {
    int64_t count = j->extent[d];
    if (d == j->tile) count = at_ceil_div(count, AT_TILE_ROWS);
    at_ix x = d ? at_ix_modc(e, t, count) : t;
    if (d) t = at_ix_divc(e, t, count);
    if (d == j->tile)
      tile = x;
    else
      ix[d] = x;
  }
  if (j->tile < j->n) {
    at_loop l;
    LLVMValueRef first = LLVMBuildMul(e->b, at_ix_value(e, tile),
                                      at_em_i64(e, AT_TILE_ROWS), "");
    LLVMValueRef last =
        at_em_min(e, LLVMBuildAdd(e->b, first, at_em_i64(e, AT_TILE_ROWS), ""),
                  at_em_i64(e, j->extent[j->tile]));
    at_loop_begin(e, &l, first, last, 1, 0, j->extent[j->tile] - 1);
    ix[j->tile] = l.i;
    span_of_pieces(e, j, 0, ix, lo, hi);
    at_loop_end(e, &l);
  } else {
    span_of_pieces(e, j, 0, ix, lo, hi);
  }
  at_loop_end(e, &rows);
}
