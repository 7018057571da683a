// Which sweeps over a row a fusion takes, and what is kept between them.
#include "base/cpu.h"
#include "base/walk.h"
#include "codegen/reducer.h"
#include "codegen/rows.h"
#include "codegen/stream.h"

// Costs are in operations on a vector. Reading a buffer is one; writing it is
// one more.
enum { KEEP_ABOVE = 5, MOST_COST = 1 << 20, TASKS = 128 };

typedef struct planner {
  at_arena *arena;
  const at_comp *body;
  at_row_plan *plan;
  at_walk levels, costs;
} planner;

// Computed inside the fusion: parameters are memory.
static bool is_inside(const void *body, const at_node *n) {
  return n->parent == body && n->op != AT_OP_PARAMETER;
}

// What each node of the body is to a row (hlo/rows.h): elements of it, one
// value of it, or neither. INVALID_ARGUMENT: the pass that made the fusion has
// fused what is not made row by row.
static at_status find_roles(at_arena *a, const at_node *n, at_rows *out) {
  const at_comp *body = n->regions[0];
  int64_t rows = 0, columns = 0;
  AT_FOR_NODES(b, body)
  if (at_rows_of_reduce(b, &rows, &columns)) break;
  if (rows)
    AT_TRY(at_rows_find(a, rows, columns, body->results, body->num_results,
                        is_inside, body, out));
  if (rows && out->fits) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "a fusion of rows whose results are not made row by row");
}

// ---- Sweeps
// Before which sweep a value can be made: after as many as the reduces that it
// needs, one behind the other.
static at_status find_level(planner *p, at_value v, uint32_t role,
                            uint32_t *out) {
  const at_rows *r = &p->plan->roles;
  at_walk_add(&p->levels, v.node, role);
  for (at_walk_step s; at_walk_next_both(&p->levels, &s);) {
    const at_node *n = s.item;
    bool known = s.tag == AT_ROW_OTHER || !is_inside(p->body, n);
    int64_t level = 0;
    for (uint32_t i = 0; !known && i < n->num_operands; i++) {
      const at_node *in = n->operands[i].node;
      uint32_t as = at_rows_asks(r, n, i, s.tag);
      if (!s.leaving)
        at_walk_add(&p->levels, in, as);
      else if (at_walk_get(&p->levels, in, as))
        level = AT_MAX(level, at_walk_get(&p->levels, in, as)->i);
    }
    if (s.leaving)
      at_walk_set(
          &p->levels, &s,
          (at_walk_value){.i = level + (n->op == AT_OP_REDUCE && !known)});
  }
  AT_TRY(at_walk_status(&p->levels));
  *out = (uint32_t)at_walk_get(&p->levels, v.node, role)->i;
  return AT_OK;
}

// plan->sweeps: one more than the longest chain of reductions that need each
// other. j->reduces: in the order of the body, with the sweep that makes each.
static at_status find_sweeps(planner *p, at_job *j) {
  at_row_plan *plan = p->plan;
  uint32_t most = 0, count = 0;
  AT_FOR_NODES(n, p->body) count += n->op == AT_OP_REDUCE;
  const at_node **reduces = at_new(p->arena, const at_node *, count + 1);
  plan->reduce_sweep = at_new(p->arena, uint32_t, count + 1);
  if (!reduces || !plan->reduce_sweep) return AT_NO_MEMORY("kernel plan");
  AT_FOR_NODES(n, p->body) {
    if (n->op != AT_OP_REDUCE || !at_rows_role(&plan->roles, n)) continue;
    uint32_t level;
    AT_TRY(find_level(p, (at_value){n, 0}, AT_ROW_ONE, &level));
    plan->reduce_sweep[j->num_reduces] = level - 1;
    reduces[j->num_reduces++] = n;
    most = AT_MAX(most, level - 1);
  }
  j->reduces = reduces;
  for (uint32_t i = 0; i < p->body->num_results; i++) {
    at_value v = p->body->results[i];
    uint32_t level, role = at_rows_asked(&plan->roles, v);
    if (role != AT_ROW_ALL) continue;
    AT_TRY(find_level(p, v, role, &level));
    most = AT_MAX(most, level);
  }
  plan->sweeps = most + 1;
  return AT_OK;
}

// ---- What sweeps read that is one element a row
// Broadcasts of one value a row: that value is loaded or computed once before
// the sweep, not in each of its vectors.
static at_status find_ones(planner *p) {
  at_row_plan *plan = p->plan;
  AT_FOR_NODES(n, p->body) {
    if (n->op == AT_OP_REDUCE || n->op == AT_OP_PARAMETER) continue;
    uint32_t role = at_rows_role(&plan->roles, n);
    if (!(role & AT_ROW_ALL) || n->op != AT_OP_BROADCAST_IN_DIM) continue;
    at_value v = n->operands[0];
    if (at_rows_asks(&plan->roles, n, 0, AT_ROW_ALL) != AT_ROW_ONE) continue;
    // A value that is read in other places as well is not one element; its
    // broadcast is, unless that is read elsewhere, too.
    at_row_one one = {.value = v, .as = v};
    if (at_rows_role(&plan->roles, v.node) != AT_ROW_ONE) {
      if (role & AT_ROW_OTHER) continue;
      one.as = (at_value){n, 0};
    }
    AT_TRY(find_level(p, v, AT_ROW_ONE, &one.sweep));
    if (!at_vec_push(p->arena, &plan->ones, one))
      return AT_NO_MEMORY("kernel plan");
  }
  return AT_OK;
}

// ---- What is kept
// Of one op on one vector: see KEEP_ABOVE.
static int64_t cost_here(const at_node *n) {
  if (n->op == AT_OP_PARAMETER) return 1;
  if (n->op == AT_OP_CONSTANT || n->op == AT_OP_BROADCAST_IN_DIM ||
      n->op == AT_OP_RESHAPE || n->op == AT_OP_IOTA)
    return 0;
  at_dtype t = n->types[0].dtype;
  int64_t narrow = at_is_float(t) && t != AT_F32 && t != AT_F64 ? 4 : 0;
  if (at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL) return 14 + narrow;
  if (n->op == AT_OP_DIVIDE || n->op == AT_OP_REMAINDER) return 8 + narrow;
  return (at_op_is(n->op, AT_ELEMENTWISE) ? 1 : 8) + narrow;
}

// What it takes to make n's element from operands of the kernel.
static at_status find_cost(planner *p, const at_node *root, int64_t *out) {
  const at_rows *r = &p->plan->roles;
  at_walk_add(&p->costs, root, AT_ROW_ALL);
  for (at_walk_step s; at_walk_next_both(&p->costs, &s);) {
    const at_node *n = s.item;
    int64_t cost = cost_here(n);
    for (uint32_t i = 0; is_inside(p->body, n) && i < n->num_operands; i++) {
      const at_node *in = n->operands[i].node;
      if (at_rows_asks(r, n, i, AT_ROW_ALL) != AT_ROW_ALL) continue;
      if (!s.leaving)
        at_walk_add(&p->costs, in, AT_ROW_ALL);
      else if (at_walk_get(&p->costs, in, AT_ROW_ALL))
        cost += at_walk_get(&p->costs, in, AT_ROW_ALL)->i;
    }
    if (s.leaving)
      at_walk_set(&p->costs, &s, (at_walk_value){.i = AT_MIN(cost, MOST_COST)});
  }
  AT_TRY(at_walk_status(&p->costs));
  *out = at_walk_get(&p->costs, root, AT_ROW_ALL)->i;
  return AT_OK;
}

// Buffers keep values as registers have them, so that nothing is rounded or
// converted twice.
static at_dtype in_registers(at_dtype t) {
  return at_is_float(t) && t != AT_F64 ? AT_F32 : t;
}

// Nodes that sweep k asks for element by element: those that an earlier sweep
// has made, and that are worth it, are kept from there.
static at_status keep_for(planner *p, const at_job *j, uint32_t k,
                          at_map *first, at_map *kept) {
  const at_row_plan *plan = p->plan;
  at_walk walk = at_walk_in(p->arena);
  for (uint32_t i = 0; i < j->num_reduces; i++)
    for (uint32_t o = 0; o < j->reduces[i]->num_operands / 2; o++)
      if (plan->reduce_sweep[i] == k)
        at_walk_add(&walk, j->reduces[i]->operands[o].node, AT_ROW_ALL);
  for (uint32_t i = 0; k + 1 == plan->sweeps && i < p->body->num_results; i++)
    if (at_rows_asked(&plan->roles, p->body->results[i]) == AT_ROW_ALL)
      at_walk_add(&walk, p->body->results[i].node, AT_ROW_ALL);
  for (at_walk_step s; at_walk_next(&walk, &s);) {
    const at_node *n = s.item;
    if (!is_inside(p->body, n)) continue;
    void **made;
    AT_TRY_ALLOC(made, at_map_put_ptr(first, n));
    if (!*made) *made = (void *)(uintptr_t)(k + 1);
    bool earlier = (uintptr_t)*made <= k;
    bool alone = !(at_rows_role(&plan->roles, n) & AT_ROW_OTHER);
    if (earlier && alone) {
      int64_t cost;
      AT_TRY(find_cost(p, n, &cost));
      if (cost > KEEP_ABOVE) {
        void **at;
        AT_TRY_ALLOC(at, at_map_put_ptr(kept, n));
        *at = (void *)(uintptr_t)1;
        continue;
      }
    }
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (at_rows_asks(&plan->roles, n, i, AT_ROW_ALL) == AT_ROW_ALL)
        at_walk_add(&walk, n->operands[i].node, AT_ROW_ALL);
  }
  return at_walk_status(&walk);
}

// One buffer of a row's length for each node that some sweep wants kept, at 64
// bytes, in the task's scratch.
static at_status find_buffers(planner *p, const at_job *j) {
  at_row_plan *plan = p->plan;
  at_map first = at_map_in(p->arena), kept = at_map_in(p->arena);
  for (uint32_t k = 0; k < plan->sweeps; k++)
    AT_TRY(keep_for(p, j, k, &first, &kept));
  AT_FOR_NODES(n, p->body) {
    if (!at_map_find_ptr(&kept, n)) continue;
    at_row_buffer b = {
        .node = n,
        .type = in_registers(n->types[0].dtype),
        .sweep = (uint32_t)(uintptr_t)*at_map_find_ptr(&first, n) - 1,
        .offset = plan->bytes};
    size_t bytes = (size_t)plan->roles.columns * at_dtype_bytes(b.type);
    plan->bytes += (int64_t)at_align_up(bytes, 64);
    if (!at_vec_push(p->arena, &plan->buffers, b))
      return AT_NO_MEMORY("kernel plan");
  }
  return AT_OK;
}

// ---- The loops
static uint32_t floor_pow2(int64_t v, uint32_t most) {
  uint32_t p = 1;
  while (p < most && (int64_t)p * 2 <= v) p *= 2;
  return p;
}

// Digits of rows (not `reduced`) and of columns (`reduced`): the cut between
// the two is always there.
static at_status find_digits(planner *p, at_job *j) {
  const at_rows *r = &p->plan->roles;
  at_cuts c = {.total = r->rows * r->columns};
  at_cuts_add(&c, r->columns);
  for (uint32_t i = 0; i < j->num_reduces; i++)
    for (uint32_t k = 0; k < j->reduces[i]->num_operands / 2; k++)
      AT_TRY(at_cuts_walk(&c, p->arena, j->reduces[i]->operands[k], j->node));
  for (uint32_t i = 0; i < p->body->num_results; i++)
    if (at_rows_asked(r, p->body->results[i]) == AT_ROW_ALL)
      AT_TRY(at_cuts_walk(&c, p->arena, p->body->results[i], j->node));
  j->n = at_cuts_extents(&c, j->extent);
  int64_t above = 1;
  for (uint32_t d = 0; d < j->n; d++) {
    j->reduced[d] = above >= r->rows;
    above *= j->extent[d];
  }
  return AT_OK;
}

// Whole vectors along the last digit; along the row where that is short.
static void choose_lanes(planner *p, at_job *j, uint32_t full) {
  int64_t columns = p->plan->roles.columns;
  for (uint32_t i = 0; i < j->num_reduces; i++)
    if (!at_reducer_of(j->reduces[i], j->reduces[i]->regions[0]).free_order)
      full = 1;
  while (j->reduced[j->n - 1] && j->extent[j->n - 1] < columns &&
         j->extent[j->n - 1] < full) {
    j->n--;
    j->extent[j->n - 1] *= j->extent[j->n];
  }
  j->vector = j->n - 1;
  j->lanes = floor_pow2(j->extent[j->vector], full);
}

// Sweeps that only add up light values would wait for the additions: they get
// two or four accumulators. The last sweep stores, so it gets one.
static at_status choose_unroll(planner *p, at_job *j, uint32_t full) {
  at_row_plan *plan = p->plan;
  AT_TRY_ALLOC(plan->unroll, at_new(p->arena, uint32_t, plan->sweeps));
  for (uint32_t k = 0; k < plan->sweeps; k++) {
    bool last = k + 1 == plan->sweeps;
    int64_t cost = 0, one;
    for (uint32_t i = 0; i < j->num_reduces; i++) {
      if (plan->reduce_sweep[i] != k) continue;
      for (uint32_t o = 0; o < j->reduces[i]->num_operands / 2; o++) {
        AT_TRY(find_cost(p, j->reduces[i]->operands[o].node, &one));
        cost += one;
      }
    }
    bool light = cost && cost < 8 && !last && j->lanes == full;
    int64_t vectors = j->extent[j->vector] / j->lanes;
    plan->unroll[k] = light && vectors >= 8 ? 4 : light && vectors >= 4 ? 2 : 1;
  }
  return AT_OK;
}

// Rows of large results are made in the task's memory and go past the caches.
static at_status find_streams(planner *p, const at_cg_target *t, at_job *j) {
  at_row_plan *plan = p->plan;
  AT_TRY_ALLOC(plan->streamed,
               at_new(p->arena, int64_t, (size_t)j->num_results + 1));
  uint64_t wanted = at_streams_of(j->node, t->stream_bytes);
  for (uint32_t r = 0; r < j->num_results && r < 64; r++) {
    at_value v = p->body->results[r];
    if (!(wanted >> r & 1) || at_rows_asked(&plan->roles, v) != AT_ROW_ALL)
      continue;
    j->streams |= 1ull << r;
    plan->streamed[r] = plan->bytes;
    size_t one = at_dtype_bytes(at_value_type(v)->dtype);
    plan->bytes += (int64_t)at_align_up((size_t)plan->roles.columns * one, 64);
  }
  return AT_OK;
}

// About TASKS tasks of whole rows. Cost is counted over the body's elements of
// rows, as several sweeps do not read memory again.
static void choose_tasks(const at_cg_target *t, planner *p, at_job *j,
                         at_cg_cost *cost) {
  at_row_plan *plan = p->plan;
  double elements = (double)plan->roles.columns;
  double bytes = 0;
  for (uint32_t i = 0; i < j->node->num_results; i++)
    bytes += (double)at_type_bytes(&j->node->types[i]);
  for (uint32_t i = 0; i < j->node->num_operands; i++)
    bytes += (double)at_type_bytes(at_value_type(j->node->operands[i]));
  cost->touched = bytes;
  cost->bytes = bytes / ((double)plan->roles.rows * elements);
  cost->ops = 0;
  AT_FOR_NODES(n, p->body)
  if (at_rows_role(&plan->roles, n) & AT_ROW_ALL)
    cost->ops += (double)cost_here(n);
  double ns = at_cg_cost_ns(t, cost, j->lanes) * elements + 10;
  plan->per_task = at_ceil_div(plan->roles.rows, TASKS);
  j->tasks = at_ceil_div(plan->roles.rows, plan->per_task);
  j->ns = ns * (double)plan->roles.rows;
  j->grain = at_grain_for(ns * (double)plan->per_task, j->tasks);
}

// One job for all results of the fusion. The order of the steps matters: sweeps
// before ones and buffers, lanes after digits.
at_status at_plan_rows(const at_cg_target *t, at_arena *a, const at_node *n,
                       const int32_t *alias, at_planned *out) {
  at_job *j;
  AT_TRY(at_plan_job(a, AT_JOB_ROWS, n, alias, out, &j));
  at_row_plan *plan = at_new(a, at_row_plan, 1);
  uint32_t *all = at_new(a, uint32_t, n->num_results);
  if (!plan || !all) return AT_NO_MEMORY("kernel plan");
  planner p = {.arena = a,
               .body = n->regions[0],
               .plan = plan,
               .levels = at_walk_in(a),
               .costs = at_walk_in(a)};
  j->rows = plan;
  j->results = all;
  j->num_results = n->num_results;
  for (uint32_t r = 0; r < n->num_results; r++) all[r] = r;
  AT_TRY(find_roles(a, n, &plan->roles));
  AT_TRY(find_sweeps(&p, j));
  AT_TRY(find_ones(&p));
  AT_TRY(find_buffers(&p, j));
  AT_TRY(find_streams(&p, t, j));
  AT_TRY(find_digits(&p, j));
  at_cg_cost cost;
  AT_TRY(at_cg_cost_of(a, n, &cost));
  j->wide_index = cost.elements >= 1 << 28;
  uint32_t full = at_lanes_for(t->cpu_features, &cost);
  choose_lanes(&p, j, full);
  AT_TRY(choose_unroll(&p, j, full));
  choose_tasks(t, &p, j, &cost);
  j->scratch = plan->bytes > 0;
  out->scratch_bytes =
      AT_MAX(out->scratch_bytes, (size_t)(plan->bytes * j->tasks));
  return AT_OK;
}

// A row of the result is stored only when all of that row of the operand has
// been read: so an operand that is read by rows, in the same role as the
// result, may lie there.
bool at_rows_can_alias(const at_node *n, uint32_t result, uint32_t operand) {
  at_arena *a = at_arena_create();
  if (!a) return false;
  at_rows r;
  at_status st = find_roles(a, n, &r);
  bool ok = at_ok(st);
  at_status_free(st);
  // Results are stored when all of a row has been read, by element in the last
  // sweep; what is read elsewhere is not where it was then.
  uint32_t role = ok ? at_rows_role(&r, n->regions[0]->params[operand]) : 0;
  ok = ok && (role == AT_ROW_ALL || role == AT_ROW_ONE || role == 0) &&
       (!role || role == at_rows_asked(&r, n->regions[0]->results[result]));
  at_arena_destroy(a);
  return ok;
}
