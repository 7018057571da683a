// Kernels that compute each element of their results by itself.
#include "codegen/job.h"

#include <llvm-c/Core.h>
#include "codegen/stream.h"

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

static int64_t bytes_of(const at_job *j, uint32_t r) {
  return (int64_t)at_dtype_bytes(at_value_type(at_job_root(j, r))->dtype);
}

static void one_step(at_em *e, const at_job *j, const at_part *part,
                     const at_ix *ix) {
  uint32_t scope = at_em_scope_push(e);
  const at_pos *p = at_pos_make(e, false, j->n, j->extent, ix);
  at_val *v = at_new(e->arena, at_val, j->num_results);
  if (!v) {
    at_em_fail(e, AT_NO_MEMORY("kernel results"));
    return;
  }
  // All loads come before the first store: a result may be in an operand's
  // place.
  const at_pos *from = p;
  if (j->kind == AT_JOB_FILL) from = at_pos_make(e, false, 0, NULL, NULL);
  for (uint32_t r = 0; r < j->num_results; r++)
    v[r] = at_em_elem(e, at_job_root(j, r), from);
  at_ix lin = j->kind == AT_JOB_UPDATE ? at_update_target(e, j->node, p)
                                       : at_pos_linear(e, p);
  uint32_t k = 0;
  for (uint32_t r = 0; r < j->num_results && at_em_ok(e); r++)
    at_em_store(e,
                part && at_job_streams(j, j->results[r])
                    ? part->base[k++]
                    : at_job_result(e, j, j->results[r]),
                at_value_type(at_job_root(j, r))->dtype, lin, v[r]);
  at_em_scope_pop(e, scope);
}

// The innermost loop over [lo, hi): whole vectors, then single elements.
static void inner(at_em *e, const at_job *j, const at_part *part, at_ix *ix,
                  LLVMValueRef lo, LLVMValueRef hi) {
  at_loop l;
  int64_t size = j->extent[j->n - 1], W = j->lanes;
  LLVMValueRef main = hi;
  if (W > 1) {
    if (LLVMIsConstant(hi)) {
      main = at_em_i64(e, LLVMConstIntGetSExtValue(hi) / W * W);
    } else if (size % W) {
      main = LLVMBuildAnd(e->b, hi, at_em_i64(e, -W), "");
    }
    e->lanes = (uint32_t)W;
    at_loop_begin(e, &l, lo, main, W, 0, AT_MAX(0, size - W));
    if (!l.single && l.i.base) l.i.mult = W;
    ix[j->n - 1] = at_ix_lanes(e, l.i);
    one_step(e, j, part, ix);
    at_loop_end(e, &l);
    e->lanes = 1;
    if (size % W == 0) return;
  } else {
    main = lo;
  }
  at_loop_begin(e, &l, main, hi, 1, 0, size - 1);
  if (l.i.base) l.i.mult = 1;
  ix[j->n - 1] = l.i;
  one_step(e, j, part, ix);
  at_loop_end(e, &l);
}

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
  uint32_t k = 0;
  for (uint32_t r = 0; r < j->num_results; r++)
    if (at_job_streams(j, j->results[r]))
      part.memory[k++] =
          at_em_alloca(e, at_em_int(e, 8), AT_STREAM_PART * bytes_of(j, r));
  at_loop_begin(e, &l, lo, hi, AT_STREAM_PART, 0, size - 1);
  if (l.i.base) l.i.mult = 1;
  LLVMValueRef first = at_ix_value(e, l.i);
  LLVMValueRef end = at_em_min(
      e, LLVMBuildAdd(e->b, first, at_em_i64(e, AT_STREAM_PART), ""), hi);
  ix[j->n - 1] = l.i;
  LLVMValueRef at = at_ix_value(
      e, at_pos_linear(e, at_pos_make(e, false, j->n, j->extent, ix)));
  k = 0;
  for (uint32_t r = 0; r < j->num_results; r++) {
    if (!at_job_streams(j, j->results[r])) continue;
    part.base[k] =
        moved(e, part.memory[k], LLVMBuildNeg(e->b, at, ""), bytes_of(j, r));
    k++;
  }
  inner(e, j, &part, ix, first, end);
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

static void span(at_em *e, const at_job *j, at_ix *ix, LLVMValueRef lo,
                 LLVMValueRef hi) {
  if (j->streams)
    inner_streaming(e, j, ix, lo, hi);
  else
    inner(e, j, NULL, ix, lo, hi);
}

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
    span(e, j, ix, lo, hi);
    at_loop_end(e, &l);
  } else {
    span(e, j, ix, lo, hi);
  }
  at_loop_end(e, &rows);
}
