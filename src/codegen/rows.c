// Kernels that make their results row by row (rows.h).
#include "codegen/rows.h"

#include <llvm-c/Core.h>
#include "codegen/reduce.h"
#include "codegen/stream.h"

typedef struct sweeper {
  at_em *e;
  const at_job *j;
  const at_row_plan *plan;
  at_rd *rd;
  at_ix ix[AT_CG_MAX_RANK];
  const at_pos *row;  // the row at hand
  // Of each buffer and of each result: where element 0 of the array would be.
  LLVMValueRef *buffer, *result;
  uint32_t sweep;
} sweeper;

// The sweep that stores the results.
static bool is_last(const sweeper *w) {
  return w->sweep + 1 == w->plan->sweeps;
}

// Is this reduction's sweep at hand?
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
      at_em_store(e, w->result[r], at_value_type(at_job_root(j, r))->dtype, lin,
                  v[r]);
}

// What the next row will read comes into the core's cache while this one is
// computed. Addresses behind an array's end are no fault.
static void prefetch_next(sweeper *w, at_ix lin) {
  at_em *e = w->e;
  const at_node *n = w->j->node;
  const at_rows *roles = &w->plan->roles;
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->ctx, 0);
  LLVMTypeRef i32 = at_em_int(e, 32);
  unsigned id = LLVMLookupIntrinsicID("llvm.prefetch", 13);
  lin.lane = 0;
  LLVMValueRef next = at_ix_value(e, at_ix_addc(lin, roles->columns));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value v = {n->regions[0]->params[i], 0};
    const at_home *h = at_em_home(e, v);
    if (at_rows_role(roles, v.node) != AT_ROW_ALL || !h || !h->ptr || h->skip)
      continue;
    LLVMValueRef at = LLVMBuildMul(
        e->b, next,
        at_em_i64(e, (int64_t)at_dtype_bytes(at_value_type(v)->dtype)), "");
    LLVMValueRef args[4] = {
        LLVMBuildGEP2(e->b, at_em_int(e, 8), h->ptr, &at, 1, ""),
        LLVMConstInt(i32, 0, false), LLVMConstInt(i32, 2, false),
        LLVMConstInt(i32, 1, false)};
    LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, &ptr, 1),
                   LLVMGetIntrinsicDeclaration(e->module, id, &ptr, 1), args, 4,
                   "");
  }
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
  if (is_last(w) && w->sweep && at_em_ok(e) && e->lanes > 1)
    prefetch_next(w, lin);
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

// Vectors side by side, single vectors, then single elements: all bounds are
// constants.
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

// Loops over the row's outer digits, if it has more than one.
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

// From here to the row's end the reduction is a value in registers.
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

// Seeds the sweep's accumulators, walks the row once, and joins them.
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
    at_em_bind(e, one->as, (at_home){.val = v});
  }
}

// Later sweeps load the node from its buffer.
static void bind_buffers(sweeper *w) {
  for (size_t b = 0; b < w->plan->buffers.len; b++) {
    const at_row_buffer *kept = &w->plan->buffers.ptr[b];
    if (kept->sweep != w->sweep) continue;
    at_em_bind(w->e, (at_value){(at_node *)kept->node, 0},
               (at_home){.ptr = w->buffer[b], .stored = kept->type});
  }
}

// The row's digits from its number, then sweep after sweep; results of one
// element a row are stored last, when all of the row has been read.
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

// Byte `offset` of the task's part of the scratch memory.
static LLVMValueRef in_scratch(const sweeper *w, LLVMValueRef task,
                               int64_t offset) {
  at_em *e = w->e;
  LLVMValueRef at = LLVMBuildMul(e->b, task, at_em_i64(e, w->plan->bytes), "");
  at = LLVMBuildAdd(e->b, at, at_em_i64(e, offset), "");
  return LLVMBuildGEP2(e->b, at_em_int(e, 8), at_job_scratch(e, w->j), &at, 1,
                       "");
}

// Of a row of elements of type t.
static LLVMValueRef row_bytes(const sweeper *w, at_dtype t) {
  int64_t one = (int64_t)at_dtype_bytes(t);
  return at_em_i64(w->e, w->plan->roles.columns * one);
}

// The address that element 0 of an array would have of which `p` holds a row.
static LLVMValueRef as_array(const sweeper *w, LLVMValueRef p, at_dtype t,
                             LLVMValueRef row) {
  at_em *e = w->e;
  LLVMValueRef at = LLVMBuildMul(e->b, row, row_bytes(w, t), "");
  at = LLVMBuildNeg(e->b, at, "");
  return LLVMBuildGEP2(e->b, at_em_int(e, 8), p, &at, 1, "");
}

// Addresses are such that the places of the whole array index them: one form
// for memory and buffers.
static void place_buffers(sweeper *w, LLVMValueRef task, LLVMValueRef row) {
  at_em *e = w->e;
  const at_row_plan *plan = w->plan;
  const at_job *j = w->j;
  for (size_t b = 0; b < plan->buffers.len; b++) {
    const at_row_buffer *kept = &plan->buffers.ptr[b];
    w->buffer[b] =
        as_array(w, in_scratch(w, task, kept->offset), kept->type, row);
  }
  for (uint32_t r = 0; r < j->num_results; r++) {
    w->result[r] = at_job_result(e, j, r);
    if (at_job_streams(j, r))
      w->result[r] = as_array(w, in_scratch(w, task, plan->streamed[r]),
                              at_value_type(at_job_root(j, r))->dtype, row);
  }
}

// The row in the task's memory goes past the caches.
static void stream_results(const sweeper *w, LLVMValueRef task,
                           LLVMValueRef row) {
  at_em *e = w->e;
  const at_job *j = w->j;
  for (uint32_t r = 0; r < j->num_results && at_em_ok(e); r++) {
    if (!at_job_streams(j, r)) continue;
    LLVMValueRef bytes = row_bytes(w, at_value_type(at_job_root(j, r))->dtype);
    LLVMValueRef at = LLVMBuildMul(e->b, row, bytes, "");
    LLVMValueRef to = LLVMBuildGEP2(e->b, at_em_int(e, 8),
                                    at_job_result(e, j, r), &at, 1, "");
    at_em_stream(e, to, in_scratch(w, task, w->plan->streamed[r]), bytes);
  }
}

// A task is per_task rows. What is bound for a row is forgotten with the loop's
// turn.
void at_job_emit_rows(at_em *e, const at_job *j, LLVMValueRef begin,
                      LLVMValueRef end) {
  const at_row_plan *plan = j->rows;
  sweeper *w = at_new(e->arena, sweeper, 1);
  LLVMValueRef *places =
      at_new(e->arena, LLVMValueRef, plan->buffers.len + j->num_results + 1);
  if (!w || !places) {
    at_em_fail(e, AT_NO_MEMORY("kernel of rows"));
    return;
  }
  *w = (sweeper){.e = e,
                 .j = j,
                 .plan = plan,
                 .rd = at_rd_make(e, j),
                 .buffer = places,
                 .result = places + plan->buffers.len};
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
  LLVMValueRef row = at_ix_value(e, rows.i);
  place_buffers(w, task, row);
  emit_row(w, rows.i);
  stream_results(w, task, row);
  at_loop_end(e, &rows);
  at_loop_end(e, &tasks);
}
