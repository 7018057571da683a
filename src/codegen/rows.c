// Kernels that make their results row by row (rows.h).
#include "codegen/rows.h"

#include <llvm-c/Core.h>
#include "codegen/reduce.h"

typedef struct sweeper {
  at_em *e;
  const at_job *j;
  const at_row_plan *plan;
  at_rd *rd;
  at_ix ix[AT_CG_MAX_RANK];
  const at_pos *row;     // the row at hand
  LLVMValueRef *buffer;  // of each: where element 0 of the array would be
  uint32_t sweep;
} sweeper;

static bool is_last(const sweeper *w) {
  return w->sweep + 1 == w->plan->sweeps;
}

static bool makes(const sweeper *w, uint32_t reduce) {
  return w->plan->reduce_sweep[reduce] == w->sweep;
}

// ---- One vector of a sweep
static void store_results(sweeper *w, const at_pos *p, uint32_t role) {
  at_em *e = w->e;
  const at_job *j = w->j;
  at_ix lin = at_pos_linear(e, p);
  at_val *v = at_new(e->arena, at_val, j->num_results + 1);
  if (!v) {
    at_em_fail(e, AT_NO_MEMORY("kernel results"));
    return;
  }
  // All loads come before the first store: a result may be in an operand's
  // place.
  for (uint32_t r = 0; r < j->num_results; r++)
    if (at_rows_asked(&w->plan->roles, at_job_root(j, r)) == role)
      v[r] = at_em_elem(e, at_job_root(j, r), p);
  for (uint32_t r = 0; r < j->num_results && at_em_ok(e); r++)
    if (at_rows_asked(&w->plan->roles, at_job_root(j, r)) == role)
      at_em_store(e, at_job_result(e, j, j->results[r]),
                  at_value_type(at_job_root(j, r))->dtype, lin, v[r]);
}

// On the accumulators numbered u; UINT32_MAX: the tail's.
static void one_step(sweeper *w, uint32_t u) {
  at_em *e = w->e;
  const at_row_plan *plan = w->plan;
  uint32_t scope = at_em_scope_push(e);
  const at_pos *p = at_pos_make(e, false, w->j->n, w->j->extent, w->ix);
  at_ix lin = at_pos_linear(e, p);
  for (size_t b = 0; b < plan->buffers.len && at_em_ok(e); b++) {
    const at_row_buffer *kept = &plan->buffers.ptr[b];
    if (kept->sweep != w->sweep) continue;
    at_val v = at_em_elem(e, (at_value){(at_node *)kept->node, 0}, p);
    at_em_store(e, w->buffer[b], kept->type, lin, v);
  }
  for (uint32_t i = 0; i < w->j->num_reduces && at_em_ok(e); i++) {
    at_rd *rd = &w->rd[i];
    if (!makes(w, i)) continue;
    for (uint32_t k = 0; k < rd->r.count; k++)
      rd->tmp[k] = at_em_elem(e, rd->r.node->operands[k], p);
    at_accs_step(e, u == UINT32_MAX ? &rd->tail : &rd->acc[u], &rd->r, rd->tmp);
  }
  if (is_last(w) && at_em_ok(e)) store_results(w, p, AT_ROW_ALL);
  at_em_scope_pop(e, scope);
}

// ---- A sweep
static void span(sweeper *w, int64_t lo, int64_t hi, uint32_t lanes,
                 uint32_t count) {
  at_em *e = w->e;
  uint32_t d = w->j->vector;
  int64_t step = (int64_t)lanes * count;
  at_loop l;
  if (lo >= hi) return;
  at_loop_begin(e, &l, at_em_i64(e, lo), at_em_i64(e, hi), step, lo, hi - step);
  if (l.i.base && lo == 0) l.i.mult = step;
  e->lanes = lanes;
  for (uint32_t u = 0; u < count; u++) {
    w->ix[d] = at_ix_lanes(e, at_ix_addc(l.i, (int64_t)u * lanes));
    one_step(w, lanes < w->j->lanes ? UINT32_MAX : u);
  }
  e->lanes = 1;
  at_loop_end(e, &l);
}

static void inner(sweeper *w) {
  const at_job *j = w->j;
  int64_t size = j->extent[j->vector], lanes = j->lanes;
  uint32_t unroll = w->plan->unroll[w->sweep];
  int64_t a = size / (lanes * unroll) * (lanes * unroll);
  int64_t b = size / lanes * lanes;
  span(w, 0, a, j->lanes, unroll);
  span(w, a, b, j->lanes, 1);
  span(w, b, size, 1, 1);
}

static void nest(sweeper *w, uint32_t d) {
  const at_job *j = w->j;
  while (d < j->vector && !j->reduced[d]) d++;
  if (d == j->vector) {
    inner(w);
    return;
  }
  at_loop l;
  at_loop_range(w->e, &l, 0, j->extent[d], 1);
  if (l.i.base) l.i.mult = 1;
  w->ix[d] = l.i;
  nest(w, d + 1);
  at_loop_end(w->e, &l);
}

static void bind_reduce(sweeper *w, uint32_t i, uint32_t unroll, bool tail,
                        bool in_order) {
  at_em *e = w->e;
  at_rd *rd = &w->rd[i];
  at_val *acc = at_new(e->arena, at_val, rd->r.count);
  if (!acc) {
    at_em_fail(e, AT_NO_MEMORY("reduction"));
    return;
  }
  e->lanes = w->j->lanes;
  at_rd_join(e, rd, unroll, tail, acc);
  e->lanes = 1;
  if (!at_em_ok(e)) return;
  at_rd_finish(e, rd, acc, in_order);
  for (uint32_t k = 0; k < rd->r.count; k++)
    at_em_bind(e, (at_value){(at_node *)rd->r.node, k},
               (at_home){.val = acc[k]});
}

static void emit_sweep(sweeper *w) {
  at_em *e = w->e;
  const at_job *j = w->j;
  uint32_t unroll = w->plan->unroll[w->sweep];
  bool in_order = j->lanes == 1, tail = j->extent[j->vector] % j->lanes != 0;
  for (uint32_t i = 0; i < j->num_reduces && at_em_ok(e); i++) {
    if (!makes(w, i)) continue;
    e->lanes = j->lanes;
    for (uint32_t u = 0; u < unroll; u++)
      at_rd_seed(e, &w->rd[i], &w->rd[i].acc[u], !in_order);
    e->lanes = 1;
    if (tail) at_rd_seed(e, &w->rd[i], &w->rd[i].tail, true);
  }
  if (at_em_ok(e)) nest(w, 0);
  for (uint32_t i = 0; i < j->num_reduces && at_em_ok(e); i++)
    if (makes(w, i)) bind_reduce(w, i, unroll, tail, in_order);
}

// ---- A row
static void bind_ones(sweeper *w) {
  at_em *e = w->e;
  for (size_t i = 0; i < w->plan->ones.len && at_em_ok(e); i++) {
    const at_row_one *one = &w->plan->ones.ptr[i];
    if (one->sweep != w->sweep) continue;
    at_val v = at_em_elem(e, one->value, w->row);
    at_em_bind(e, one->value, (at_home){.val = v});
  }
}

static void bind_buffers(sweeper *w) {
  for (size_t b = 0; b < w->plan->buffers.len; b++) {
    const at_row_buffer *kept = &w->plan->buffers.ptr[b];
    if (kept->sweep != w->sweep) continue;
    at_em_bind(w->e, (at_value){(at_node *)kept->node, 0},
               (at_home){.ptr = w->buffer[b], .stored = kept->type});
  }
}

static void emit_row(sweeper *w, at_ix row) {
  at_em *e = w->e;
  const at_job *j = w->j;
  int64_t extent[AT_CG_MAX_RANK];
  at_ix kept[AT_CG_MAX_RANK], t = row;
  uint32_t n = 0;
  for (uint32_t d = j->n; d-- > 0;) {
    if (j->reduced[d]) continue;
    w->ix[d] = d ? at_ix_modc(e, t, j->extent[d]) : t;
    if (d) t = at_ix_divc(e, t, j->extent[d]);
  }
  for (uint32_t d = 0; d < j->n; d++) {
    if (j->reduced[d]) continue;
    extent[n] = j->extent[d];
    kept[n++] = w->ix[d];
  }
  w->row = at_pos_make(e, false, n, extent, kept);
  for (w->sweep = 0; w->sweep < w->plan->sweeps && at_em_ok(e); w->sweep++) {
    bind_ones(w);
    emit_sweep(w);
    bind_buffers(w);
  }
  if (at_em_ok(e)) store_results(w, w->row, AT_ROW_ONE);
}

// Addresses that elements of the whole array would have if the task's buffers
// held row `row`.
static void place_buffers(sweeper *w, LLVMValueRef task, LLVMValueRef row) {
  at_em *e = w->e;
  const at_row_plan *plan = w->plan;
  LLVMTypeRef i8 = at_em_int(e, 8);
  for (size_t b = 0; b < plan->buffers.len; b++) {
    const at_row_buffer *kept = &plan->buffers.ptr[b];
    int64_t bytes = plan->roles.columns * (int64_t)at_dtype_bytes(kept->type);
    LLVMValueRef at =
        LLVMBuildMul(e->b, task, at_em_i64(e, plan->bytes), "");
    at = LLVMBuildAdd(e->b, at, at_em_i64(e, kept->offset), "");
    at = LLVMBuildSub(e->b, at,
                      LLVMBuildMul(e->b, row, at_em_i64(e, bytes), ""), "");
    w->buffer[b] = LLVMBuildGEP2(e->b, i8, at_job_scratch(e, w->j), &at, 1, "");
  }
}

void at_job_emit_rows(at_em *e, const at_job *j, LLVMValueRef begin,
                      LLVMValueRef end) {
  const at_row_plan *plan = j->rows;
  sweeper *w = at_new(e->arena, sweeper, 1);
  LLVMValueRef *buffer = at_new(e->arena, LLVMValueRef, plan->buffers.len + 1);
  if (!w || !buffer) {
    at_em_fail(e, AT_NO_MEMORY("kernel of rows"));
    return;
  }
  *w = (sweeper){.e = e,
                 .j = j,
                 .plan = plan,
                 .rd = at_rd_make(e, j),
                 .buffer = buffer};
  if (!w->rd) return;
  at_loop tasks, rows;
  at_loop_begin(e, &tasks, begin, end, 1, 0, j->tasks - 1);
  LLVMValueRef task = at_ix_value(e, tasks.i);
  LLVMValueRef per = at_em_i64(e, plan->per_task);
  LLVMValueRef lo = LLVMBuildMul(e->b, task, per, "");
  LLVMValueRef hi = at_em_min(e, LLVMBuildAdd(e->b, lo, per, ""),
                              at_em_i64(e, plan->roles.rows));
  at_loop_begin(e, &rows, lo, hi, 1, 0, plan->roles.rows - 1);
  if (rows.i.base) rows.i.mult = 1;
  place_buffers(w, task, at_ix_value(e, rows.i));
  emit_row(w, rows.i);
  at_loop_end(e, &rows);
  at_loop_end(e, &tasks);
}
