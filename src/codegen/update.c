// Kernels that write into a result that already holds data: updates in place,
// scatter, select_and_scatter; and running reductions.
#include "codegen/job.h"

#include <llvm-c/Core.h>
#include "codegen/reducer.h"

// Is d one of the dimensions?
static bool listed(at_dims l, int64_t d) {
  for (uint32_t i = 0; i < l.rank; i++)
    if (l.ptr[i] == d) return true;
  return false;
}
// Entry i of a list attribute that may be left out.
static int64_t attr_at(const at_node *n, at_attr_id id, uint32_t i,
                       int64_t absent) {
  at_dims a = at_node_ints(n, id);
  return i < a.rank ? a.ptr[i] : absent;
}
// The place of a scalar.
static const at_pos *origin(at_em *e) {
  return at_pos_make(e, false, 0, NULL, NULL);
}

// The scalar element of v at p as an index, clamped to [lo, hi].
static at_ix scalar_index(at_em *e, at_value v, const at_pos *p, int64_t lo,
                          int64_t hi) {
  return at_ix_from(e, at_value_type(v)->dtype, at_em_elem(e, v, p), lo, hi);
}

// ---- dynamic_update_slice
// Where element p of the update (digits: the op's groups) goes in the result.
at_ix at_update_target(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *t = &n->types[0], *u = at_value_type(n->operands[1]);
  at_groups g;
  at_groups_of(n, &g);
  int64_t extent[AT_CG_MAX_RANK], stride = 1;
  at_ix ix[AT_CG_MAX_RANK], sum = at_ix_const(0);
  for (uint32_t i = 0; i < g.n; i++)
    extent[i] = u->dims[g.g[i].first] * g.g[i].inner;
  at_pos_regroup(e, p, g.n, extent, ix);
  uint32_t lanes = e->lanes;
  for (uint32_t i = g.n; i-- > 0;) {
    uint32_t f = g.g[i].first;
    int64_t max = t->dims[f] - u->dims[f];
    at_ix x = ix[i];
    if (max > 0) {
      e->lanes = 1;
      at_ix s = scalar_index(e, n->operands[2 + f], origin(e), 0, max);
      s = at_ix_mulc(e, s, g.g[i].inner);
      e->lanes = lanes;
      x = at_ix_add(e, x, s);
    }
    sum = at_ix_add(e, sum, at_ix_mulc(e, x, stride));
    stride *= t->dims[f] * g.g[i].inner;
  }
  return sum;
}

// ---- scatter
typedef struct at_scatter {
  at_em *e;
  const at_job *j;
  const at_node *n;
  uint32_t inputs;
  const at_type *t, *u;
  at_dims window, inserted, batching;
  at_ix at[AT_CG_MAX_RANK];     // place in the updates
  at_ix start[AT_CG_MAX_RANK];  // first place in the inputs
  at_val *args;
} at_scatter;

// The input dimension that window dimension w (in order) moves along.
static uint32_t window_target(const at_scatter *s, uint32_t w) {
  for (uint32_t k = 0; k < s->t->rank; k++) {
    if (listed(s->inserted, k) || listed(s->batching, k)) continue;
    if (w-- == 0) return k;
  }
  return 0;
}

// The update at s->at into the element that it goes to: load, body, store. All
// inputs are loaded, and the body has run, before the first result is stored.
static void scatter_one(at_scatter *s) {
  at_em *e = s->e;
  uint32_t scope = at_em_scope_push(e);
  at_ix to[AT_CG_MAX_RANK], lin = at_ix_const(0);
  for (uint32_t k = 0; k < s->t->rank; k++) to[k] = s->start[k];
  // The place in the inputs: where the window begins, and how far into it the
  // update is.
  for (uint32_t w = 0; w < s->window.rank; w++) {
    uint32_t k = window_target(s, w);
    to[k] = at_ix_add(e, to[k], s->at[s->window.ptr[w]]);
  }
  int64_t stride = 1;
  for (uint32_t k = s->t->rank; k-- > 0;) {
    lin = at_ix_add(e, lin, at_ix_mulc(e, to[k], stride));
    stride *= s->t->dims[k];
  }
  const at_pos *p = at_pos_make(e, false, s->u->rank, s->u->dims, s->at);
  at_val *out = s->args + 2 * s->inputs;
  for (uint32_t i = 0; i < s->inputs; i++) {
    s->args[i] = at_em_load(e, at_job_result(e, s->j, i), s->n->types[i].dtype,
                            lin, false);
    s->args[s->inputs + i] =
        at_em_elem(e, s->n->operands[s->inputs + 1 + i], p);
  }
  at_em_body(e, s->n->regions[0], s->args, out);
  for (uint32_t i = 0; i < s->inputs && at_em_ok(e); i++)
    at_em_store(e, at_job_result(e, s->j, i), s->n->types[i].dtype, lin,
                out[i]);
  at_em_scope_pop(e, scope);
}

// Loops over window dimensions from w on; the last one is the job's vector
// digit.
static void scatter_window(at_scatter *s, uint32_t w, LLVMValueRef lo,
                           LLVMValueRef hi) {
  at_em *e = s->e;
  at_loop l;
  if (s->window.rank == 0) {
    scatter_one(s);
    return;
  }
  int64_t d = s->window.ptr[w], size = s->u->dims[d];
  if (w + 1 < s->window.rank) {
    at_loop_range(e, &l, 0, size, 1);
    s->at[d] = l.i;
    scatter_window(s, w + 1, lo, hi);
    at_loop_end(e, &l);
    return;
  }
  int64_t W = s->j->lanes;
  LLVMValueRef mid = lo;
  if (W > 1) {
    mid = size % W ? LLVMBuildAnd(e->b, hi, at_em_i64(e, -W), "") : hi;
    at_loop_begin(e, &l, lo, mid, W, 0, AT_MAX(0, size - W));
    e->lanes = (uint32_t)W;
    s->at[d] = at_ix_lanes(e, l.i);
    scatter_one(s);
    e->lanes = 1;
    at_loop_end(e, &l);
    if (size % W == 0) return;
  }
  at_loop_begin(e, &l, mid, hi, 1, 0, size - 1);
  s->at[d] = l.i;
  scatter_one(s);
  at_loop_end(e, &l);
}

// The first place of the window that the scatter dimensions choose; returns
// whether all of the window is inside (NULL: always).
static LLVMValueRef scatter_start(at_scatter *s) {
  at_em *e = s->e;
  const at_node *n = s->n;
  at_value indices = n->operands[s->inputs];
  const at_type *it = at_value_type(indices);
  at_dims map = at_node_ints(n, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS);
  at_dims from = at_node_ints(n, AT_ATTR_SCATTER_INDICES_BATCHING_DIMS);
  int64_t vec = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, it->rank);
  at_ix ix[AT_CG_MAX_RANK];
  uint32_t b = 0;
  for (uint32_t i = 0; i < it->rank; i++) {
    if (i == vec) continue;
    while (listed(s->window, b)) b++;
    ix[i] = s->at[b++];
  }
  for (uint32_t k = 0; k < s->t->rank; k++) s->start[k] = at_ix_const(0);
  for (uint32_t m = 0; m < map.rank; m++) {
    if (vec < it->rank) ix[vec] = at_ix_const(m);
    const at_pos *p = at_pos_make(e, false, it->rank, it->dims, ix);
    s->start[map.ptr[m]] = scalar_index(e, indices, p, -(1ll << 40), 1ll << 40);
  }
  for (uint32_t m = 0; m < s->batching.rank; m++)
    s->start[s->batching.ptr[m]] = ix[from.ptr[m]];
  LLVMValueRef ok = NULL;
  uint32_t w = 0;
  for (uint32_t k = 0; k < s->t->rank; k++) {
    bool alone = listed(s->inserted, k) || listed(s->batching, k);
    int64_t size = alone ? 1 : s->u->dims[s->window.ptr[w++]];
    int64_t last = s->t->dims[k] - size;
    LLVMValueRef in = at_ix_within(e, s->start[k], 0, last + 1);
    if (in) ok = ok ? LLVMBuildAnd(e->b, ok, in, "") : in;
    s->start[k].lo = AT_MAX(s->start[k].lo, 0);
    s->start[k].hi = AT_MIN(s->start[k].hi, last);
  }
  return ok;
}

// Loops over the scatter dimensions, in row-major order; in each turn the
// window's place is computed once, and windows that are not all inside are
// skipped, as the op has it.
void at_job_emit_scatter(at_em *e, const at_job *j, LLVMValueRef begin,
                         LLVMValueRef end) {
  const at_node *n = j->node;
  at_scatter *s = at_new(e->arena, at_scatter, 1);
  uint32_t inputs = n->num_operands / 2;
  at_val *args = at_new(e->arena, at_val, 3 * inputs);
  if (!s || !args) {
    at_em_fail(e, AT_NO_MEMORY("scatter"));
    return;
  }
  *s = (at_scatter){.e = e,
                    .j = j,
                    .n = n,
                    .inputs = inputs,
                    .args = args,
                    .t = &n->types[0],
                    .u = at_value_type(n->operands[inputs + 1]),
                    .window = at_node_ints(n, AT_ATTR_UPDATE_WINDOW_DIMS),
                    .inserted = at_node_ints(n, AT_ATTR_INSERTED_WINDOW_DIMS),
                    .batching = at_node_ints(n, AT_ATTR_INPUT_BATCHING_DIMS)};
  int64_t size = j->extent[0];
  LLVMValueRef b = at_em_i64(e, j->block);
  LLVMValueRef lo = LLVMBuildMul(e->b, begin, b, "");
  LLVMValueRef hi =
      at_em_min(e, LLVMBuildMul(e->b, end, b, ""), at_em_i64(e, size));
  at_loop loops[AT_CG_MAX_RANK];
  for (uint32_t d = 0; d < s->u->rank; d++) {
    if (listed(s->window, d)) continue;
    at_loop_range(e, &loops[d], 0, s->u->dims[d], 1);
    s->at[d] = loops[d].i;
  }
  LLVMValueRef ok = scatter_start(s);
  at_branch f;
  if (ok) at_if_begin(e, &f, ok);
  scatter_window(s, 0, lo, hi);
  if (ok) at_if_end(e, &f);
  for (uint32_t d = s->u->rank; d-- > 0;)
    if (!listed(s->window, d)) at_loop_end(e, &loops[d]);
}

// ---- select_and_scatter
typedef struct at_pick {
  LLVMTypeRef index_type;
  LLVMValueRef best;  // slot: place in the operand, -1: none yet
  at_accs value;
} at_pick;

// One place of the window at `out`: takes it when it is the first or wins.
static void pick_step(at_em *e, const at_node *n, const at_pick *k,
                      const at_ix *out, const at_loop *loops) {
  const at_type *t = at_value_type(n->operands[0]);
  at_ix ix[AT_CG_MAX_RANK];
  LLVMValueRef ok = NULL;
  // Where in the operand this place of the window is; padding is outside, and
  // never taken.
  for (uint32_t d = 0; d < t->rank; d++) {
    at_ix x = at_ix_mulc(e, out[d], attr_at(n, AT_ATTR_WINDOW_STRIDES, d, 1));
    x = at_ix_addc(at_ix_add(e, x, loops[d].i),
                   -attr_at(n, AT_ATTR_PADDING, 2 * d, 0));
    LLVMValueRef in = at_ix_within(e, x, 0, t->dims[d]);
    if (in) ok = ok ? LLVMBuildAnd(e->b, ok, in, "") : in;
    ix[d] = at_ix_clamp(e, x, 0, t->dims[d] - 1);
  }
  const at_pos *p = at_pos_make(e, false, t->rank, t->dims, ix);
  at_val args[2], keep = {0};
  args[1] = at_em_elem(e, n->operands[0], p);
  at_accs_get(e, &k->value, &args[0]);
  at_em_body(e, n->regions[0], args, &keep);
  if (!at_em_ok(e)) return;
  LLVMValueRef old = LLVMBuildLoad2(e->b, k->index_type, k->best, "");
  LLVMValueRef none =
      LLVMBuildICmp(e->b, LLVMIntSLT, old, LLVMConstNull(k->index_type), "");
  // The body says whether the held value stays.
  LLVMValueRef take =
      LLVMBuildOr(e->b, none, LLVMBuildNot(e->b, keep.re, ""), "");
  if (ok) take = LLVMBuildAnd(e->b, take, ok, "");
  LLVMValueRef here = at_ix_vector(e, at_pos_linear(e, p));
  LLVMBuildStore(e->b, LLVMBuildSelect(e->b, take, here, old, ""), k->best);
  at_val v = {LLVMBuildSelect(e->b, take, args[1].re, args[0].re, ""), NULL};
  if (args[0].im)
    v.im = LLVMBuildSelect(e->b, take, args[1].im, args[0].im, "");
  at_accs_put(e, &k->value, &v);
}

// The source element at `out` (with e->lanes): finds its place, applies the
// body.
static void select_scatter_one(at_em *e, const at_job *j, const at_ix *out) {
  const at_node *n = j->node;
  const at_type *t = at_value_type(n->operands[0]),
                *s = at_value_type(n->operands[1]);
  at_dtype out_type = n->types[0].dtype;
  uint32_t scope = at_em_scope_push(e);
  at_pick k = {
      .index_type = at_em_widen(e, at_em_int(e, e->wide_index ? 64 : 32)),
      .value = at_accs_of(e, &t->dtype, 1)};
  if (!at_em_ok(e)) return;
  k.best = at_em_alloca(e, k.index_type, 1);
  LLVMBuildStore(e->b, LLVMConstAllOnes(k.index_type), k.best);
  at_val zero = at_em_zero(e, t->dtype);
  at_accs_put(e, &k.value, &zero);
  at_loop loops[AT_CG_MAX_RANK];
  for (uint32_t d = 0; d < t->rank; d++)
    at_loop_range(e, &loops[d], 0, attr_at(n, AT_ATTR_WINDOW_DIMENSIONS, d, 1),
                  1);
  pick_step(e, n, &k, out, loops);
  for (uint32_t d = t->rank; d-- > 0;) at_loop_end(e, &loops[d]);
  LLVMValueRef best = LLVMBuildLoad2(e->b, k.index_type, k.best, "");
  at_branch f;
  bool branch = e->lanes == 1;  // planned vectors always find a place
  if (branch)
    at_if_begin(
        e, &f,
        LLVMBuildICmp(e->b, LLVMIntSGE, best, LLVMConstNull(k.index_type), ""));
  at_ix to = {.vec = best, .lo = 0, .hi = AT_MAX(0, at_type_elements(t) - 1)};
  if (branch)
    to = at_ix_of(
        e->wide_index ? best : LLVMBuildSExt(e->b, best, at_em_int(e, 64), ""),
        0, to.hi, 1);
  at_val args[2], sum = {0};
  args[0] = at_em_load(e, at_job_result(e, j, 0), out_type, to, false);
  args[1] = at_em_elem(e, n->operands[1],
                       at_pos_make(e, false, s->rank, s->dims, out));
  at_em_body(e, n->regions[1], args, &sum);
  if (at_em_ok(e)) at_em_store(e, at_job_result(e, j, 0), out_type, to, sum);
  if (branch) at_if_end(e, &f);
  at_em_scope_pop(e, scope);
}

// Digits of the job: the source's dimensions. Reduced ones overlap, so one task
// walks them; tasks are the others (except the vector digit).
void at_job_emit_select_scatter(at_em *e, const at_job *j, LLVMValueRef begin,
                                LLVMValueRef end) {
  at_ix ix[AT_CG_MAX_RANK];
  at_loop loops[AT_CG_MAX_RANK], tasks, l;
  int64_t W = j->lanes;
  uint32_t last = j->n - 1;
  at_loop_begin(e, &tasks, begin, end, 1, 0, j->tasks - 1);
  at_ix t = tasks.i;
  for (uint32_t d = last; d-- > 0;) {
    if (j->reduced[d]) continue;
    ix[d] = at_ix_modc(e, t, j->extent[d]);
    t = at_ix_divc(e, t, j->extent[d]);
  }
  for (uint32_t d = 0; d < last; d++) {
    if (!j->reduced[d]) continue;
    at_loop_range(e, &loops[d], 0, j->extent[d], 1);
    ix[d] = loops[d].i;
  }
  int64_t mid = W > 1 ? j->extent[last] / W * W : 0;
  if (mid) {
    at_loop_range(e, &l, 0, mid, W);
    e->lanes = (uint32_t)W;
    ix[last] = at_ix_lanes(e, l.i);
    select_scatter_one(e, j, ix);
    e->lanes = 1;
    at_loop_end(e, &l);
  }
  if (mid < j->extent[last]) {
    at_loop_range(e, &l, mid, j->extent[last], 1);
    ix[last] = l.i;
    select_scatter_one(e, j, ix);
    at_loop_end(e, &l);
  }
  for (uint32_t d = last; d-- > 0;)
    if (j->reduced[d]) at_loop_end(e, &loops[d]);
  at_loop_end(e, &tasks);
}

// ---- scan
// Digits: before, along, after the dimension; columns [lo, hi) of the last.
static void scan_columns(at_em *e, const at_job *j, at_ix outer,
                         LLVMValueRef lo, LLVMValueRef hi, uint32_t lanes) {
  const at_node *n = j->node;
  at_reducer r = at_reducer_of(n, n->regions[0]);
  at_val *x = at_new(e->arena, at_val, 2 * r.count);
  at_loop l, s;
  if (!x) {
    at_em_fail(e, AT_NO_MEMORY("scan"));
    return;
  }
  at_loop_begin(e, &l, lo, hi, lanes, 0,
                AT_MAX(0, j->extent[2] - (int64_t)lanes));
  e->lanes = lanes;
  at_accs acc = at_accs_make(e, &r);
  for (uint32_t k = 0; k < r.count; k++)
    x[k] = at_em_elem(e, n->operands[r.count + k], origin(e));
  if (at_em_ok(e)) at_accs_put(e, &acc, x);
  at_loop_range(e, &s, 0, j->extent[1], 1);
  at_ix ix[3] = {outer, s.i, at_ix_lanes(e, l.i)};
  // From the end; the results lie where their last summand does.
  if (at_node_bool(n, AT_ATTR_REVERSE))
    ix[1] = at_ix_addc(at_ix_mulc(e, s.i, -1), j->extent[1] - 1);
  const at_pos *p = at_pos_make(e, false, 3, j->extent, ix);
  for (uint32_t k = 0; k < r.count; k++)
    x[k] = at_em_elem(e, n->operands[k], p);
  at_accs_step(e, &acc, &r, x);
  if (at_em_ok(e)) at_accs_get(e, &acc, x);
  at_reducer_finish(e, &r, x);
  at_ix lin = at_pos_linear(e, p);
  for (uint32_t k = 0; k < r.count && at_em_ok(e); k++)
    at_em_store(e, at_job_result(e, j, k), n->types[k].dtype, lin, x[k]);
  at_loop_end(e, &s);
  e->lanes = 1;
  at_loop_end(e, &l);
}

// A task is a block of columns under one value of the outer digit: whole
// vectors first, then what is left one by one.
void at_job_emit_scan(at_em *e, const at_job *j, LLVMValueRef begin,
                      LLVMValueRef end) {
  at_loop tasks;
  int64_t size = j->extent[2], blocks = at_ceil_div(size, j->block),
          W = j->lanes;
  at_loop_begin(e, &tasks, begin, end, 1, 0, j->tasks - 1);
  LLVMValueRef b = at_em_i64(e, j->block);
  LLVMValueRef lo =
      LLVMBuildMul(e->b, at_ix_value(e, at_ix_modc(e, tasks.i, blocks)), b, "");
  LLVMValueRef hi =
      at_em_min(e, LLVMBuildAdd(e->b, lo, b, ""), at_em_i64(e, size));
  at_ix outer = at_ix_divc(e, tasks.i, blocks);
  LLVMValueRef mid = lo;
  if (W > 1) {
    mid = size % W ? LLVMBuildAnd(e->b, hi, at_em_i64(e, -W), "") : hi;
    scan_columns(e, j, outer, lo, mid, (uint32_t)W);
  }
  if (W == 1 || size % W) scan_columns(e, j, outer, mid, hi, 1);
  at_loop_end(e, &tasks);
}
