// Which kernels a node takes: walks of loops over its elements, and the
// questions that other rooms ask before (can it be generated, may a result lie
// in an operand's place). No LLVM here: a plan is numbers, and follows from
// shapes and the CPU alone.
#include "codegen/plan.h"

#include "base/verify.h"
#include "codegen/pieces.h"
#include "codegen/rows.h"
#include "codegen/stream.h"

enum { AT_PLAN_MAX_JOBS = 64 };

// Jobs of a plan are launched in the order in which they are made here.
// UNIMPLEMENTED over AT_PLAN_MAX_JOBS, RESOURCE_EXHAUSTED.
at_status at_plan_job(at_arena *a, at_job_kind kind, const at_node *n,
                      const int32_t *alias, at_planned *p, at_job **out) {
  if (!p->jobs) {
    p->jobs = at_new(a, at_job *, AT_PLAN_MAX_JOBS);
  }
  at_job *j = at_new(a, at_job, 1);
  if (!j || !p->jobs) return AT_NO_MEMORY("kernel plan");
  if (p->num_jobs == AT_PLAN_MAX_JOBS)
    return AT_FAIL(AT_UNIMPLEMENTED, "%s needs more than %d kernels",
                   at_op_text(n->op), AT_PLAN_MAX_JOBS);
  *j = (at_job){.kind = kind,
                .node = n,
                .alias = alias,
                .lanes = 1,
                .block = 1,
                .tasks = 1,
                .grain = 1};
  p->jobs[p->num_jobs++] = j;
  *out = j;
  return AT_OK;
}

// The largest power of two that is not over v; 64 at most, 1 at least.
static uint32_t floor_pow2(int64_t v) {
  uint32_t p = 1;
  while (p < 64 && (int64_t)p * 2 <= v) p *= 2;
  return p;
}

// So many rows that tasks are made of whole ones; rows in pieces are split at
// known places, so fewer are enough.
enum { WHOLE_ROWS = 64, WHOLE_ROWS_OF_PIECES = 8 };

// Blocks of the last digit: whole if there are enough rows, else so that a
// block takes some microseconds. Depends on shapes only.
static void split_loop(at_job *j, double ns) {
  int64_t size = j->extent[j->n - 1], rows = 1;
  for (uint32_t d = 0; d + 1 < j->n; d++) rows *= j->extent[d];
  int64_t step = 64 * (int64_t)AT_MAX(j->unroll, 1u);
  int64_t block = (int64_t)(5000 / ns) / step * step;
  block = AT_MAX(block, step);
  bool pieces = j->pieces && j->pieces[j->n - 1].cuts;
  int64_t enough = pieces ? WHOLE_ROWS_OF_PIECES : WHOLE_ROWS;
  if (j->n > 1 && rows >= enough && (double)size * ns < 100000) block = size;
  j->block = AT_MIN(block, at_ceil_div(size, step) * step);
  int64_t per_row = at_ceil_div(size, j->block);
  j->tasks = rows * per_row;
  j->grain = at_grain_for((double)AT_MIN(j->block, size) * ns, j->tasks);
}

// A digit along which a transposed operand lies in order: rows of it are walked
// together, over short blocks of the last digit, so that cache lines are used
// whole.
static at_status plan_tile(at_arena *a, at_job *j) {
  int64_t total = 1, stride = 0, below = 1;
  j->tile = j->n;
  for (uint32_t d = 0; d < j->n; d++) total *= j->extent[d];
  for (uint32_t r = 0; r < j->num_results && !stride; r++)
    AT_TRY(at_cuts_tile(a, at_job_root(j, r), total, j->node, &stride));
  if (!stride || total < 4096) return AT_OK;
  for (uint32_t d = j->n; d-- > 0;) {
    if (below == stride && d + 1 < j->n && j->extent[d] >= 8) j->tile = d;
    below *= j->extent[d];
  }
  return AT_OK;
}

// A task is a tile of AT_TILE_ROWS of the tiled digit by a block of the last
// one, for one value of each other digit.
static void split_tiles(at_job *j, double ns) {
  int64_t size = j->extent[j->n - 1];
  j->block = AT_MIN(AT_TILE_COLUMNS, at_ceil_div(size, 64) * 64);
  j->tasks = at_ceil_div(size, j->block);
  for (uint32_t d = 0; d + 1 < j->n; d++)
    j->tasks *=
        d == j->tile ? at_ceil_div(j->extent[d], AT_TILE_ROWS) : j->extent[d];
  j->grain = at_grain_for(AT_TILE_ROWS * (double)AT_MIN(j->block, size) * ns,
                          j->tasks);
}

// Those of the node's streamed results that this job writes.
static uint64_t streams_of_job(const at_job *j, size_t bytes) {
  uint64_t all = at_streams_of(j->node, bytes), own = 0;
  for (uint32_t r = 0; r < j->num_results; r++)
    if (j->results[r] < 64) own |= all & 1ull << j->results[r];
  return own;
}

// So many vectors that their elements are whole rows of the innermost cuts:
// where an element is in its row is known for every lane then.
static uint32_t vectors_of_rows(const at_cuts *c, uint32_t lanes) {
  enum { MOST = 8 };
  int64_t step = lanes;
  for (uint32_t i = 0; i < c->n; i++) {
    int64_t a = step, b = c->at[i];
    // a becomes the greatest common divisor.
    while (b) {
      int64_t rest = a % b;
      a = b, b = rest;
    }
    if (step / a * c->at[i] > MOST * (int64_t)lanes) break;
    step = step / a * c->at[i];
  }
  return (uint32_t)(step / lanes);
}

// Rows too short for vectors, or that leave much of the last one empty: walks
// elements whatever row they are in.
static void plan_flat(at_job *j, const at_cuts *c, uint32_t full,
                      const at_cg_cost *cost) {
  enum { MOST_OPS = 400 };  // of one turn
  j->unroll = 1;
  int64_t row = j->extent[j->n - 1];
  if (j->n == 1 || full < 4 || c->total < 64 || c->total >= 1 << 28) return;
  uint32_t lanes = AT_MIN(full, 16), count = vectors_of_rows(c, lanes);
  bool whole = c->n && (int64_t)lanes * count % c->at[0] == 0 &&
               cost->ops * count <= MOST_OPS &&
               c->total >= (int64_t)lanes * count;
  bool wasted = row < 2 * (int64_t)full && row % j->lanes &&
                2 * lanes * at_ceil_div(row, j->lanes) > 3 * row;
  if (j->lanes >= 4 && !(wasted && whole && !cost->shifts)) return;
  // Outer digits stay the same for a whole row where it is long enough for what
  // is left at its end not to matter; of whole rows in a task the end's place
  // is known, too.
  int64_t step = (int64_t)lanes * (whole ? count : 1), enough;
  do {
    j->n--;
    j->extent[j->n - 1] *= j->extent[j->n];
    row = j->extent[j->n - 1];
    bool by_rows =
        whole && (c->total / row >= WHOLE_ROWS || at_pieces_may(j->node));
    enough = row % step == 0 ? step : by_rows ? 2 * step : 32 * step;
  } while (j->n > 1 && row < enough);
  j->lanes = lanes;
  if (whole) j->unroll = count;
}

// Digits from what the results' producers need, lanes from the widest type,
// then one of three walks: flat, tiled, or by blocks of the last digit. Only
// the last may store past the caches.
static at_status plan_loop(const at_cg_target *t, at_arena *a, at_job *j,
                           const at_cg_cost *cost) {
  const at_node *n = j->node;
  at_cuts cuts = {.total = at_type_elements(&n->types[j->results[0]])};
  for (uint32_t r = 0; r < j->num_results; r++)
    AT_TRY(at_cuts_walk(&cuts, a, at_job_root(j, r), n));
  j->n = at_cuts_extents(&cuts, j->extent);
  uint32_t full = at_lanes_for(t->cpu_features, cost);
  j->lanes = AT_MIN(full, floor_pow2(j->extent[j->n - 1]));
  plan_flat(j, &cuts, full, cost);
  j->wide_index = cost->elements >= 1 << 28;
  double ns = at_cg_cost_ns(t, cost, j->lanes);
  AT_TRY(plan_tile(a, j));
  AT_TRY(at_pieces_plan(a, j, cost->ops));
  if (j->tile < j->n) {
    split_tiles(j, ns);
    j->ns = ns * (double)cuts.total;
    return AT_OK;
  }
  split_loop(j, ns);
  j->ns = ns * (double)cuts.total;
  // Rows of a few lines would be streamed in pieces of lines.
  if (j->n == 1 || j->extent[j->n - 1] >= AT_STREAM_PART)
    j->streams = streams_of_job(j, t->stream_bytes);
  return AT_OK;
}

// For jobs that move elements and compute nothing: the cost is that of a copy.
at_status at_plan_cuts(const at_cg_target *t, at_job *j, const at_cuts *c,
                       at_dtype d) {
  at_cg_cost cost = {.ops = 1,
                     .bytes = 2.0 * at_dtype_bytes(d),
                     .touched = 2.0 * at_dtype_bytes(d) * (double)c->total,
                     .vector = true,
                     .widest = AT_MAX(1, at_dtype_bytes(at_real_of(d))),
                     .elements = at_type_elements(&j->node->types[0])};
  if (at_is_float(d)) cost.widest = AT_MAX(4, cost.widest);
  j->n = j->tile = at_cuts_extents(c, j->extent);
  j->lanes = AT_MIN(at_lanes_for(t->cpu_features, &cost),
                    floor_pow2(j->extent[j->n - 1]));
  j->wide_index = cost.elements >= 1 << 28;
  double ns = at_cg_cost_ns(t, &cost, j->lanes);
  split_loop(j, ns);
  j->ns = ns * (double)c->total;
  return AT_OK;
}

// One digit: elements in a row, whatever the shape.
at_status at_plan_linear(const at_cg_target *t, at_job *j, int64_t count,
                         at_dtype d) {
  at_cuts c = {.total = count};
  return at_plan_cuts(t, j, &c, d);
}

// Results with the same number of elements share a kernel.
static at_status plan_loops(const at_cg_target *t, at_arena *a,
                            const at_node *n, const int32_t *alias, bool *done,
                            at_planned *p) {
  at_cg_cost cost;
  AT_TRY(at_cg_cost_of(a, n, &cost));
  for (uint32_t r = 0; r < n->num_results; r++) {
    int64_t count = at_type_elements(&n->types[r]);
    if (done[r] || count == 0 || n->types[r].dtype == AT_TOKEN) continue;
    at_job *j;
    AT_TRY(at_plan_job(a, AT_JOB_LOOP, n, alias, p, &j));
    uint32_t *list = at_new(a, uint32_t, n->num_results);
    if (!list) return AT_NO_MEMORY("kernel plan");
    j->results = list;
    for (uint32_t s = r; s < n->num_results; s++) {
      if (done[s] || at_type_elements(&n->types[s]) != count) continue;
      done[s] = true;
      list[j->num_results++] = s;
    }
    AT_TRY(plan_loop(t, a, j, &cost));
  }
  return AT_OK;
}

// A FUSION of that kind; fusions without the attribute are LOOP.
static bool is_fusion(const at_node *n, at_fusion_kind kind) {
  return n->op == AT_OP_FUSION && at_node_int(n, AT_ATTR_KIND, 0) == kind;
}

// Which kind of kernel a node gets: rows first, then writes in place, then
// reductions; results that none of those has taken become loops. Nothing is
// emitted. UNIMPLEMENTED: an op without a form, or a body that uses values from
// outside.
static at_status plan_node(const at_cg_target *t, at_arena *a, const at_node *n,
                           const int32_t *alias, at_planned *out) {
  for (uint32_t i = 0; i < n->num_regions; i++) {
    at_value v = at_body_capture(n->regions[i]);
    if (v.node) return at_body_refuse(at_op_text(n->op), v);
  }
  if (!at_cg_supports(n))
    return AT_FAIL(AT_UNIMPLEMENTED, "code generation of %s",
                   at_op_text(n->op));
  if (is_fusion(n, AT_FUSION_ROWS)) return at_plan_rows(t, a, n, alias, out);
  at_status st;
  if (at_plan_updates(t, a, n, alias, out, &st)) return st;
  bool *done = at_new(a, bool, n->num_results + 1);
  if (!done) return AT_NO_MEMORY("kernel plan");
  AT_TRY(at_plan_reduces(t, a, n, alias, done, out));
  return plan_loops(t, a, n, alias, done, out);
}

at_status at_plan_node(const at_cg_target *t, at_arena *a, const at_node *n,
                       const int32_t *alias, at_planned *out) {
  AT_TRY(plan_node(t, a, n, alias, out));
  AT_VERIFY_OK(at_plan_kernels_verify(n, out));
  return AT_OK;
}

// ---- what can be generated
// Types that registers and dense storage have a form for.
static bool plain_type(const at_type *t) {
  return at_type_is_static(t) && t->rank <= AT_CG_MAX_RANK && !t->quant &&
         t->dtype != AT_INVALID && t->dtype != AT_TOKEN;
}

// Ops that at_em_elem, at_em_apply or a job of its own knows.
static bool has_handler(at_op op) {
  if (at_op_is(op, AT_ELEMENTWISE)) return true;
  switch (op) {
    case AT_OP_PARAMETER:
    case AT_OP_CONSTANT:
    case AT_OP_IOTA:
    case AT_OP_BITCAST_CONVERT:
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_CONCATENATE:
    case AT_OP_PAD:
    case AT_OP_RESHAPE:
    case AT_OP_REVERSE:
    case AT_OP_SLICE:
    case AT_OP_TRANSPOSE:
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_DYNAMIC_UPDATE_SLICE:
    case AT_OP_GATHER:
    case AT_OP_COPY:
    case AT_OP_DOT_GENERAL:
    case AT_OP_CONVOLUTION:
    case AT_OP_REDUCE:
    case AT_OP_REDUCE_WINDOW:
    case AT_OP_MAP:
    case AT_OP_WHILE:
    case AT_OP_IF:
    case AT_OP_CASE:
    case AT_OP_SCATTER:
    case AT_OP_SELECT_AND_SCATTER:
    case AT_OP_SCAN:
    case AT_OP_RAGGED_DOT:
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_FUSION:
      return true;
    default:
      return false;
  }
}

// ---- captures: constants are written into the code, others have no way in
static bool is_inside(const at_comp *c, const at_comp *root) {
  while (c && c != root) c = c->owner ? c->owner->parent : NULL;
  return c == root;
}

// The first value that c or a region in it uses and root does not contain; node
// NULL: none. Parameters of root are inside of it.
static at_value find_capture(const at_comp *c, const at_comp *root) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++) {
      at_value v = n->operands[i];
      if (v.node->op != AT_OP_CONSTANT && !is_inside(v.node->parent, root))
        return v;
    }
    for (uint32_t i = 0; i < n->num_regions; i++) {
      at_value v = find_capture(n->regions[i], root);
      if (v.node) return v;
    }
  }
  for (uint32_t i = 0; i < c->num_results; i++) {
    at_value v = c->results[i];
    if (v.node->op != AT_OP_CONSTANT && !is_inside(v.node->parent, root))
      return v;
  }
  return (at_value){0};
}

// Bodies become code of their own, which has no way to other values of the
// program.
at_value at_body_capture(const at_comp *body) {
  return find_capture(body, body);
}

// UNIMPLEMENTED, with the captured value.
at_status at_body_refuse(const char *what, at_value v) {
  return AT_FAIL(AT_UNIMPLEMENTED,
                 "code generation of %s whose body uses %s %%%u from outside "
                 "(only constants may be)",
                 what, at_op_text(v.node->op), v.node->id);
}

// Ops that are kernels of their own, never part of one.
static bool stands_alone(at_op op) {
  return op == AT_OP_SCATTER || op == AT_OP_SELECT_AND_SCATTER ||
         op == AT_OP_SCAN;
}

// n, its types and all that its regions hold have a form. nested: n is part of
// a kernel.
static bool supported(const at_node *n, bool nested) {
  if (!has_handler(n->op) || (nested && stands_alone(n->op))) return false;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!plain_type(&n->types[i])) return false;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!plain_type(at_value_type(n->operands[i]))) return false;
  for (uint32_t i = 0; i < n->num_regions; i++) AT_FOR_NODES(b, n->regions[i])
  if (!supported(b, true)) return false;
  return true;
}

// Asked before fusion and before planning: what it denies is a runtime kernel's
// or control flow.
bool at_cg_supports(const at_node *n) {
  switch (n->op) {  // others run those
    case AT_OP_PARAMETER:
    case AT_OP_CONSTANT:
    case AT_OP_WHILE:
    case AT_OP_IF:
    case AT_OP_CASE:
      return false;
    default:
      break;
  }
  for (uint32_t i = 0; i < n->num_regions; i++)
    if (at_body_capture(n->regions[i]).node) return false;
  return supported(n, false);
}

// Every value computed from `source` inside the region is read only at the
// element being written: all steps are linear and keep the number of elements.
static bool flows_in_place(at_arena *a, const at_node *n, at_value source) {
  at_map seen = at_map_in(a);
  int64_t count = at_type_elements(at_value_type(source));
  for (uint32_t r = 0; r < n->num_results; r++)
    if (at_type_elements(&n->types[r]) != count) return false;
  if (!at_map_put_ptr(&seen, source.node)) return false;
  AT_FOR_NODES(b, n->regions[0]) {
    bool derived = false;
    for (uint32_t i = 0; i < b->num_operands && !derived; i++)
      derived = at_map_find_ptr(&seen, b->operands[i].node) != NULL;
    if (!derived) continue;
    if (!at_is_linear(b)) return false;
    for (uint32_t k = 0; k < b->num_results; k++)
      if (at_type_elements(&b->types[k]) != count) return false;
    if (!at_map_put_ptr(&seen, b)) return false;
  }
  return true;
}

// Elements of the operand may be read after elements of the result were
// written, but for the same index. Fusions are looked through; for other ops
// their linearity says it.
bool at_cg_can_alias(const at_node *n, uint32_t result, uint32_t operand) {
  if (result >= n->num_results || operand >= n->num_operands) return false;
  const at_type *o = at_value_type(n->operands[operand]),
                *r = &n->types[result];
  if (at_type_bytes(o) != at_type_bytes(r) ||
      at_type_elements(o) != at_type_elements(r))
    return false;
  if (n->op == AT_OP_FUSION) {
    if (is_fusion(n, AT_FUSION_ROWS))
      return at_rows_can_alias(n, result, operand);
    if (!is_fusion(n, AT_FUSION_LOOP)) return false;
    at_arena *a = at_arena_create();
    bool ok = a && flows_in_place(
                       a, n, (at_value){n->regions[0]->params[operand], 0});
    if (a) at_arena_destroy(a);
    return ok;
  }
  // Updates in place: the operand that is updated, nothing else.
  if (n->op == AT_OP_DYNAMIC_UPDATE_SLICE) return operand == 0;
  if (n->op == AT_OP_SCATTER) return operand == result;
  if (!at_is_linear(n)) return false;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (at_type_elements(&n->types[i]) != at_type_elements(r)) return false;
  return n->num_results == 1 || n->op == AT_OP_OPTIMIZATION_BARRIER;
}
