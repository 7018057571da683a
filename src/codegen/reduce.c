// Kernels of reductions, as planned: rows or columns, whole or in blocks.
#include "codegen/job.h"

#include <llvm-c/Core.h>
#include "codegen/reduce.h"

typedef struct at_walk {
  at_em *e;
  const at_job *j;
  at_rd *rd;
  at_ix ix[AT_CG_MAX_RANK];
  LLVMValueRef part;      // which block of the split digit
  at_ix at;               // columns: the first output of the stripe,
  uint32_t lanes, count;  // its vectors
} at_walk;

// Of reducer i, at e->lanes.
static void seed(at_walk *w, uint32_t i, at_accs *acc, bool identity) {
  at_rd_seed(w->e, &w->rd[i], acc, identity);
}

// One step of every reducer on the accumulators numbered u (tail: UINT32_MAX),
// of the lanes from `first` on.
static void step_all(at_walk *w, uint32_t u, uint32_t first) {
  at_em *e = w->e;
  uint32_t scope = at_em_scope_push(e);
  const at_pos *p = at_pos_make(e, false, w->j->n, w->j->extent, w->ix);
  for (uint32_t i = 0; i < w->j->num_reduces && at_em_ok(e); i++) {
    at_rd *rd = &w->rd[i];
    for (uint32_t k = 0; k < rd->r.count; k++)
      rd->tmp[k] = at_em_elem(e, rd->r.node->operands[k], p);
    at_accs *acc = u == UINT32_MAX ? &rd->tail : &rd->acc[u];
    if (first)
      at_rd_step_from(e, rd, acc, first);
    else
      at_accs_step(e, acc, &rd->r, rd->tmp);
  }
  at_em_scope_pop(e, scope);
}

// Of digit d: all of it, or the task's block where it is split.
static void bounds(at_walk *w, uint32_t d, LLVMValueRef *lo, LLVMValueRef *hi) {
  at_em *e = w->e;
  const at_job *j = w->j;
  *lo = at_em_i64(e, 0);
  *hi = at_em_i64(e, j->extent[d]);
  if (!j->split || j->split_digit != d) return;
  LLVMValueRef s = at_em_i64(e, j->split);
  *lo = LLVMBuildMul(e->b, w->part, s, "");
  *hi = at_em_min(e, LLVMBuildAdd(e->b, *lo, s, ""), *hi);
}

// Saves the code of a loop that never turns.
static bool known_empty(LLVMValueRef lo, LLVMValueRef hi) {
  return LLVMIsConstant(lo) && LLVMIsConstant(hi) &&
         LLVMConstIntGetSExtValue(hi) <= LLVMConstIntGetSExtValue(lo);
}

// ---- rows
// A loop over [lo, hi) of the vector digit in steps of `count` vectors.
static void row_loop(at_walk *w, LLVMValueRef lo, LLVMValueRef hi,
                     uint32_t lanes, uint32_t count) {
  at_em *e = w->e;
  uint32_t d = w->j->vector;
  int64_t step = (int64_t)lanes * count;
  at_loop l;
  if (known_empty(lo, hi)) return;
  at_loop_begin(e, &l, lo, hi, step, 0, AT_MAX(0, w->j->extent[d] - step));
  e->lanes = lanes;
  for (uint32_t u = 0; u < count; u++) {
    w->ix[d] = at_ix_lanes(e, at_ix_addc(l.i, (int64_t)u * lanes));
    step_all(w, lanes == 1 && w->j->lanes > 1 ? UINT32_MAX : u, 0);
  }
  e->lanes = 1;
  at_loop_end(e, &l);
}

// Does the end of a row that fills no vector belong to one that reaches back?
static bool reaches_back(const at_walk *w) {
  const at_job *j = w->j;
  bool split = j->split && j->split_digit == j->vector;
  return j->lanes > 1 && !split && j->extent[j->vector] > j->lanes;
}

// One vector at the row's end, of which only the lanes that no other vector had
// count.
static void row_end(at_walk *w, int64_t size) {
  at_em *e = w->e;
  int64_t lanes = w->j->lanes;
  e->lanes = w->j->lanes;
  w->ix[w->j->vector] = at_ix_lanes(e, at_ix_const(size - lanes));
  step_all(w, 0, (uint32_t)(lanes - size % lanes));
  e->lanes = 1;
}

// [lo, a) by `unroll` vectors, [a, b) by one, then what is left.
static void row_inner(at_walk *w) {
  at_em *e = w->e;
  const at_job *j = w->j;
  LLVMValueRef lo, hi;
  bounds(w, j->vector, &lo, &hi);
  int64_t wide = (int64_t)j->lanes * j->unroll, size = j->extent[j->vector];
  LLVMValueRef len = LLVMBuildSub(e->b, hi, lo, "");
  LLVMValueRef a = LLVMBuildAdd(
      e->b, lo, LLVMBuildAnd(e->b, len, at_em_i64(e, -wide), ""), "");
  LLVMValueRef b = LLVMBuildAdd(
      e->b, lo, LLVMBuildAnd(e->b, len, at_em_i64(e, -(int64_t)j->lanes), ""),
      "");
  row_loop(w, lo, a, j->lanes, j->unroll);
  if (size % wide && j->unroll > 1) row_loop(w, a, b, j->lanes, 1);
  if (size % j->lanes == 0) return;
  if (reaches_back(w))
    row_end(w, size);
  else
    row_loop(w, b, hi, 1, 1);
}

// Loops over the other reduced digits, in order, `inner` inside.
static void nest(at_walk *w, uint32_t d, void (*inner)(at_walk *)) {
  const at_job *j = w->j;
  while (d < j->n && (!j->reduced[d] || d == j->vector)) d++;
  if (d == j->n) {
    inner(w);
    return;
  }
  at_loop l;
  LLVMValueRef lo, hi;
  bounds(w, d, &lo, &hi);
  at_loop_begin(w->e, &l, lo, hi, 1, 0, j->extent[d] - 1);
  if (l.i.base) l.i.mult = 1;
  w->ix[d] = l.i;
  nest(w, d + 1, inner);
  at_loop_end(w->e, &l);
}

// ---- results
// Where the output is among the outputs: the digits that are kept.
static const at_pos *kept_pos(at_walk *w) {
  int64_t extent[AT_CG_MAX_RANK];
  at_ix ix[AT_CG_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t d = 0; d < w->j->n; d++) {
    if (w->j->reduced[d]) continue;
    extent[n] = w->j->extent[d];
    ix[n++] = w->ix[d];
  }
  return at_pos_make(w->e, false, n, extent, ix);
}

// How many sums the kernel makes.
static int64_t outputs_of(const at_job *j) {
  int64_t p = 1;
  for (uint32_t d = 0; d < j->n; d++)
    if (!j->reduced[d]) p *= j->extent[d];
  return p;
}

// Base of the unfinished values of reducer i, result k, in scratch.
static LLVMValueRef partial_base(at_em *e, const at_job *j, const at_rd *rd,
                                 uint32_t i, uint32_t k) {
  uint32_t slot = k;
  for (uint32_t x = 0; x < i; x++) slot += rd[x].r.count;
  int64_t bytes =
      (int64_t)at_align_up((size_t)(outputs_of(j) * j->parts) * 16, 64) * slot;
  LLVMValueRef at = at_em_i64(e, bytes);
  return LLVMBuildGEP2(e->b, at_em_int(e, 8), at_job_scratch(e, j), &at, 1, "");
}

// acc (of e->lanes) is complete up to the init value: store it, or what the
// epilogue makes of it, or leave it for the combining kernel.
static void deliver(at_walk *w, at_val **acc, bool has_init) {
  at_em *e = w->e;
  const at_job *j = w->j;
  const at_pos *p = kept_pos(w);
  at_ix lin = at_pos_linear(e, p);
  if (w->part) {
    at_ix base = at_ix_of(w->part, 0, j->parts - 1, 1);
    at_ix at = at_ix_add(e, at_ix_mulc(e, base, outputs_of(j)), lin);
    for (uint32_t i = 0; i < j->num_reduces; i++)
      for (uint32_t k = 0; k < w->rd[i].r.count && at_em_ok(e); k++)
        at_em_store(e, partial_base(e, j, w->rd, i, k),
                    at_reducer_partial_dtype(&w->rd[i].r, k), at, acc[i][k]);
    return;
  }
  for (uint32_t i = 0; i < j->num_reduces && at_em_ok(e); i++) {
    at_rd *rd = &w->rd[i];
    at_rd_finish(e, rd, acc[i], has_init);
    for (uint32_t k = 0; k < rd->r.count; k++) {
      uint64_t key = (uint64_t)k << 16 | e->lanes << 8 | 3;
      at_em_memo_put(e, rd->r.node, key, p, acc[i][k]);
    }
  }
  at_val *v = at_new(e->arena, at_val, j->num_results);
  if (!v) return;
  for (uint32_t r = 0; r < j->num_results; r++)
    v[r] = at_em_elem(e, at_job_root(j, r), p);
  for (uint32_t r = 0; r < j->num_results && at_em_ok(e); r++)
    at_em_store(e, at_job_result(e, j, j->results[r]),
                at_value_type(at_job_root(j, r))->dtype, lin, v[r]);
}

// One list of values for each reducer. NULL: e has failed.
static at_val **acc_table(at_walk *w) {
  at_val **t = at_new(w->e->arena, at_val *, w->j->num_reduces);
  for (uint32_t i = 0; t && i < w->j->num_reduces; i++)
    if (!(t[i] = at_new(w->e->arena, at_val, w->rd[i].r.count))) return NULL;
  if (!t) at_em_fail(w->e, AT_NO_MEMORY("reduction"));
  return t;
}

// One output: seed, sweep, join the lanes, deliver.
static void emit_row(at_walk *w) {
  at_em *e = w->e;
  const at_job *j = w->j;
  at_val **acc = acc_table(w);
  if (!acc) return;
  bool in_order = j->lanes == 1 && !w->part;
  bool tail =
      j->lanes > 1 && j->extent[j->vector] % j->lanes && !reaches_back(w);
  e->lanes = j->lanes;
  for (uint32_t i = 0; i < j->num_reduces; i++)
    for (uint32_t u = 0; u < j->unroll; u++)
      seed(w, i, &w->rd[i].acc[u], !in_order);
  e->lanes = 1;
  for (uint32_t i = 0; tail && i < j->num_reduces; i++)
    seed(w, i, &w->rd[i].tail, true);
  if (!at_em_ok(e)) return;
  nest(w, 0, row_inner);
  for (uint32_t i = 0; i < j->num_reduces && at_em_ok(e); i++) {
    at_rd *rd = &w->rd[i];
    e->lanes = j->lanes;
    at_rd_join(e, rd, j->unroll, tail, acc[i]);
  }
  e->lanes = 1;
  if (at_em_ok(e)) deliver(w, acc, in_order);
}

// ---- columns
// One element of each of the stripe's columns.
static void column_inner(at_walk *w) {
  at_em *e = w->e;
  e->lanes = w->lanes;
  for (uint32_t u = 0; u < w->count; u++) {
    w->ix[w->j->vector] =
        at_ix_lanes(e, at_ix_addc(w->at, (int64_t)u * w->lanes));
    step_all(w, u, 0);
  }
  e->lanes = 1;
}

// A loop over [lo, hi) of the vector digit: `count` vectors of outputs a time.
static void column_loop(at_walk *w, LLVMValueRef lo, LLVMValueRef hi,
                        uint32_t lanes, uint32_t count) {
  at_em *e = w->e;
  const at_job *j = w->j;
  int64_t step = (int64_t)lanes * count;
  at_loop l;
  if (known_empty(lo, hi)) return;
  at_loop_begin(e, &l, lo, hi, step, 0, AT_MAX(0, j->extent[j->vector] - step));
  w->at = l.i;
  w->lanes = lanes;
  w->count = count;
  bool identity = w->part != NULL;
  e->lanes = lanes;
  for (uint32_t i = 0; i < j->num_reduces; i++)
    for (uint32_t u = 0; u < count; u++) seed(w, i, &w->rd[i].acc[u], identity);
  e->lanes = 1;
  if (at_em_ok(e)) nest(w, 0, column_inner);
  at_val **acc = acc_table(w);
  for (uint32_t u = 0; acc && u < count && at_em_ok(e); u++) {
    e->lanes = lanes;
    for (uint32_t i = 0; i < j->num_reduces; i++)
      at_accs_get(e, &w->rd[i].acc[u], acc[i]);
    w->ix[j->vector] = at_ix_lanes(e, at_ix_addc(l.i, (int64_t)u * lanes));
    deliver(w, acc, !identity);
  }
  e->lanes = 1;
  at_loop_end(e, &l);
}

// May outputs be made twice? Not where one is in the place of an operand.
static bool may_repeat(const at_job *j) {
  for (uint32_t r = 0; j->alias && r < j->num_results; r++)
    if (j->alias[j->results[r]] >= 0) return false;
  return true;
}

// Stripes of outputs; the last one may reach back over outputs that were made
// before, and makes the same again.
static void emit_columns(at_walk *w, LLVMValueRef lo, LLVMValueRef hi) {
  at_em *e = w->e;
  const at_job *j = w->j;
  int64_t size = j->extent[j->vector], wide = (int64_t)j->lanes * j->unroll;
  LLVMValueRef len = LLVMBuildSub(e->b, hi, lo, "");
  LLVMValueRef a = LLVMBuildAdd(
      e->b, lo, LLVMBuildAnd(e->b, len, at_em_i64(e, -wide), ""), "");
  LLVMValueRef b = LLVMBuildAdd(
      e->b, lo, LLVMBuildAnd(e->b, len, at_em_i64(e, -(int64_t)j->lanes), ""),
      "");
  if (size >= wide) column_loop(w, lo, a, j->lanes, j->unroll);
  if (size % wide && j->unroll > 1) column_loop(w, a, b, j->lanes, 1);
  if (size % j->lanes == 0) return;
  bool all = LLVMIsConstant(lo) && LLVMIsConstant(hi);
  if (j->lanes > 1 && size > j->lanes && all && may_repeat(j))
    column_loop(w, at_em_i64(e, size - j->lanes), hi, j->lanes, 1);
  else
    column_loop(w, b, hi, 1, 1);
}

// ---- the kernels
// NULL: out of memory, and `e` has failed.
static at_walk *walk_begin(at_em *e, const at_job *j) {
  at_walk *w = at_new(e->arena, at_walk, 1);
  if (w) *w = (at_walk){.e = e, .j = j, .rd = at_rd_make(e, j)};
  if (!w) at_em_fail(e, AT_NO_MEMORY("reduction"));
  return w && w->rd ? w : NULL;
}

// A task's number: the part of a split sum first, then the block of columns,
// then the kept digits.
void at_job_emit_reduce(at_em *e, const at_job *j, LLVMValueRef begin,
                        LLVMValueRef end) {
  at_walk *w = walk_begin(e, j);
  if (!w) return;
  at_loop tasks;
  at_loop_begin(e, &tasks, begin, end, 1, 0, j->tasks - 1);
  at_ix t = tasks.i;
  bool columns = !j->reduced[j->vector];
  LLVMValueRef lo = NULL, hi = NULL;
  if (j->split) {
    w->part = at_ix_value(e, at_ix_modc(e, t, j->parts));
    t = at_ix_divc(e, t, j->parts);
  }
  if (columns) {
    int64_t size = j->extent[j->vector], blocks = at_ceil_div(size, j->block);
    LLVMValueRef b = at_em_i64(e, j->block);
    lo = LLVMBuildMul(e->b, at_ix_value(e, at_ix_modc(e, t, blocks)), b, "");
    hi = at_em_min(e, LLVMBuildAdd(e->b, lo, b, ""), at_em_i64(e, size));
    if (blocks == 1) hi = at_em_i64(e, size);
    t = at_ix_divc(e, t, blocks);
  }
  for (uint32_t d = j->n; d-- > 0;) {
    if (j->reduced[d] || d == j->vector) continue;
    w->ix[d] = at_ix_modc(e, t, j->extent[d]);
    t = at_ix_divc(e, t, j->extent[d]);
  }
  if (columns)
    emit_columns(w, lo, hi);
  else
    emit_row(w);
  at_loop_end(e, &tasks);
}

// Adds up the blocks of outputs [lo, hi), `lanes` at a time.
static void combine_loop(at_walk *w, LLVMValueRef lo, LLVMValueRef hi,
                         uint32_t lanes) {
  at_em *e = w->e;
  const at_job *j = w->j;
  at_loop l, parts;
  at_loop_begin(e, &l, lo, hi, lanes, 0,
                AT_MAX(0, j->extent[0] - (int64_t)lanes));
  e->lanes = lanes;
  w->ix[0] = at_ix_lanes(e, l.i);
  for (uint32_t i = 0; i < j->num_reduces; i++)
    seed(w, i, &w->rd[i].acc[0], true);
  at_loop_range(e, &parts, 0, j->parts, 1);
  at_ix at = at_ix_add(e, at_ix_mulc(e, parts.i, j->extent[0]), w->ix[0]);
  for (uint32_t i = 0; i < j->num_reduces && at_em_ok(e); i++) {
    at_rd *rd = &w->rd[i];
    for (uint32_t k = 0; k < rd->r.count; k++)
      rd->tmp[k] = at_em_load(e, partial_base(e, j, w->rd, i, k),
                              at_reducer_partial_dtype(&rd->r, k), at, false);
    at_accs_merge(e, &rd->acc[0], &rd->r, rd->tmp);
  }
  at_loop_end(e, &parts);
  at_val **acc = acc_table(w);
  for (uint32_t i = 0; acc && i < j->num_reduces && at_em_ok(e); i++)
    at_accs_get(e, &w->rd[i].acc[0], acc[i]);
  if (acc && at_em_ok(e)) deliver(w, acc, false);
  e->lanes = 1;
  at_loop_end(e, &l);
}

// Whole vectors of outputs, then single ones.
void at_job_emit_combine(at_em *e, const at_job *j, LLVMValueRef begin,
                         LLVMValueRef end) {
  at_walk *w = walk_begin(e, j);
  if (!w) return;
  LLVMValueRef b = at_em_i64(e, j->block), size = at_em_i64(e, j->extent[0]);
  LLVMValueRef lo = LLVMBuildMul(e->b, begin, b, "");
  LLVMValueRef hi = at_em_min(e, LLVMBuildMul(e->b, end, b, ""), size);
  LLVMValueRef mid = hi;
  if (j->extent[0] % j->lanes)
    mid = LLVMBuildAnd(e->b, hi, at_em_i64(e, -(int64_t)j->lanes), "");
  if (j->lanes > 1) combine_loop(w, lo, mid, j->lanes);
  if (j->lanes == 1 || j->extent[0] % j->lanes)
    combine_loop(w, j->lanes == 1 ? lo : mid, hi, 1);
}
