// Plans of the kernels in update.c.
#include "codegen/plan.h"

// Is d one of the dimensions?
static bool listed(at_dims l, int64_t d) {
  for (uint32_t i = 0; i < l.rank; i++)
    if (l.ptr[i] == d) return true;
  return false;
}

// The largest power of two that is neither over v nor over `most`; at least 1.
static uint32_t floor_pow2(int64_t v, uint32_t most) {
  uint32_t p = 1;
  while (p < most && (int64_t)p * 2 <= v) p *= 2;
  return p;
}

// The job writes result r alone.
static at_status one_result(at_arena *a, at_job *j, uint32_t r) {
  uint32_t *list = at_new(a, uint32_t, 1);
  if (!list) return AT_NO_MEMORY("kernel plan");
  list[0] = r;
  j->results = list;
  j->num_results = 1;
  return AT_OK;
}

// Operand r into result r, unless they share memory.
static at_status plan_copy(const at_cg_target *t, at_arena *a, const at_node *n,
                           const int32_t *alias, uint32_t r, at_planned *p) {
  if (alias[r] == (int32_t)r || at_type_elements(&n->types[r]) == 0)
    return AT_OK;
  at_job *j;
  AT_TRY(at_plan_job(a, AT_JOB_COPY, n, alias, p, &j));
  AT_TRY(one_result(a, j, r));
  return at_plan_linear(t, j, at_type_elements(&n->types[r]),
                        n->types[r].dtype);
}

// A copy of the operand where it does not lie in the result already, then the
// window. Digits are the update's, cut where the op's groups are.
static at_status plan_update(const at_cg_target *t, at_arena *a,
                             const at_node *n, const int32_t *alias,
                             at_planned *p) {
  const at_type *u = at_value_type(n->operands[1]);
  AT_TRY(plan_copy(t, a, n, alias, 0, p));
  if (at_type_elements(u) == 0) return AT_OK;
  at_job *j;
  AT_TRY(at_plan_job(a, AT_JOB_UPDATE, n, alias, p, &j));
  AT_TRY(one_result(a, j, 0));
  at_groups g;
  at_groups_of(n, &g);
  at_cuts c = {.total = at_type_elements(u)};
  int64_t s = 1;
  for (uint32_t i = g.n; i-- > 1;)
    at_cuts_add(&c, s *= u->dims[g.g[i].first] * g.g[i].inner);
  return at_plan_cuts(t, j, &c, u->dtype);
}

// The operands into the results, unless they share memory: those of a type by
// one kernel, so that work does not grow with the square of their number.
static at_status plan_copies(const at_cg_target *t, at_arena *a,
                             const at_node *n, const int32_t *alias,
                             at_planned *p) {
  bool *done = at_new(a, bool, n->num_results);
  if (!done) return AT_NO_MEMORY("kernel plan");
  for (uint32_t r = 0; r < n->num_results; r++) {
    const at_type *type = &n->types[r];
    if (done[r] || alias[r] == (int32_t)r || !at_type_elements(type)) continue;
    at_job *j;
    uint32_t *list = at_new(a, uint32_t, n->num_results);
    if (!list) return AT_NO_MEMORY("kernel plan");
    AT_TRY(at_plan_job(a, AT_JOB_COPY, n, alias, p, &j));
    j->results = list;
    for (uint32_t k = r; k < n->num_results; k++) {
      if (alias[k] == (int32_t)k || !at_type_eq(&n->types[k], type)) continue;
      done[k] = true;
      list[j->num_results++] = k;
    }
    AT_TRY(at_plan_linear(t, j, at_type_elements(type), type->dtype));
  }
  return AT_OK;
}

// Updates are applied one after another in the order of the indices, since they
// may meet in one element. Threads and lanes only share the window's minor
// dimension: no two of them touch one element there.
static at_status plan_scatter(const at_cg_target *t, at_arena *a,
                              const at_node *n, const int32_t *alias,
                              at_planned *p) {
  uint32_t inputs = n->num_operands / 2;
  const at_type *u = at_value_type(n->operands[inputs + 1]);
  AT_TRY(plan_copies(t, a, n, alias, p));
  if (at_type_elements(u) == 0 || at_type_elements(&n->types[0]) == 0)
    return AT_OK;
  at_job *j;
  at_cg_cost cost;
  AT_TRY(at_plan_job(a, AT_JOB_SCATTER, n, alias, p, &j));
  AT_TRY(at_cg_cost_of(a, n, &cost));
  at_dims window = at_node_ints(n, AT_ATTR_UPDATE_WINDOW_DIMS);
  at_dims map = at_node_ints(n, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS);
  j->n = 1;
  j->extent[0] = window.rank ? u->dims[window.ptr[window.rank - 1]] : 1;
  // The minor window dimension, when no index moves it, has vectors and tasks.
  at_dims inserted = at_node_ints(n, AT_ATTR_INSERTED_WINDOW_DIMS);
  at_dims batching = at_node_ints(n, AT_ATTR_INPUT_BATCHING_DIMS);
  uint32_t last = n->types[0].rank - 1;
  bool fixed = window.rank && !listed(map, last) && !listed(inserted, last) &&
               !listed(batching, last) &&
               window.ptr[window.rank - 1] == (int64_t)u->rank - 1;
  if (fixed && at_reducer_vectorizes(n->regions[0]))
    j->lanes = floor_pow2(j->extent[0], at_lanes_for(t->cpu_features, &cost));
  j->wide_index = cost.elements >= 1 << 28;
  j->ns = (double)at_type_elements(u) * (j->lanes > 1 ? 0.3 : 2.0);
  j->block = at_ceil_div(j->extent[0], 64) * 64;
  if (j->lanes > 1 && j->ns > 40000)
    j->block = AT_MAX(64, at_ceil_div(at_ceil_div(j->extent[0], 16), 64) * 64);
  j->tasks = at_ceil_div(j->extent[0], j->block);
  j->grain = at_grain_for(j->ns / (double)j->tasks, j->tasks);
  return AT_OK;
}

// Entry i of a list attribute that may be left out.
static int64_t attr_at(const at_node *n, at_attr_id id, uint32_t i,
                       int64_t absent) {
  at_dims v = at_node_ints(n, id);
  return i < v.rank ? v.ptr[i] : absent;
}

// Every window along dimension d holds at least one element.
static bool never_empty(const at_node *n, uint32_t d) {
  int64_t size = at_value_type(n->operands[0])->dims[d];
  int64_t count = at_value_type(n->operands[1])->dims[d];
  int64_t window = attr_at(n, AT_ATTR_WINDOW_DIMENSIONS, d, 1);
  int64_t stride = attr_at(n, AT_ATTR_WINDOW_STRIDES, d, 1);
  int64_t low = attr_at(n, AT_ATTR_PADDING, 2 * d, 0);
  return window - 1 - low >= 0 && (count - 1) * stride - low < size;
}

// First the init value everywhere, then the windows. Along dimensions where
// windows overlap one task walks all, so that no two threads write one element;
// the others are tasks.
static at_status plan_select_scatter(const at_cg_target *t, at_arena *a,
                                     const at_node *n, const int32_t *alias,
                                     at_planned *p) {
  const at_type *s = at_value_type(n->operands[1]);
  at_job *j;
  AT_TRY(at_plan_job(a, AT_JOB_FILL, n, alias, p, &j));
  AT_TRY(one_result(a, j, 0));
  AT_TRY(
      at_plan_linear(t, j, at_type_elements(&n->types[0]), n->types[0].dtype));
  if (at_type_elements(s) == 0) return AT_OK;
  at_cg_cost cost;
  AT_TRY(at_cg_cost_of(a, n, &cost));
  AT_TRY(at_plan_job(a, AT_JOB_SELECT_SCATTER, n, alias, p, &j));
  j->wide_index = cost.elements >= 1 << 28;
  j->n = AT_MAX(1, s->rank);
  j->extent[0] = 1;
  bool full = true;
  for (uint32_t d = 0; d < s->rank; d++) {
    j->extent[d] = s->dims[d];
    j->reduced[d] = attr_at(n, AT_ATTR_WINDOW_DIMENSIONS, d, 1) > 1 ||
                    attr_at(n, AT_ATTR_PADDING, 2 * d, 0) != 0;
    full = full && never_empty(n, d);
    if (d + 1 < s->rank && !j->reduced[d]) j->tasks *= s->dims[d];
  }
  uint32_t last = j->n - 1;
  // Vectors have no branch for windows without an element.
  if (full && !j->reduced[last] && at_reducer_vectorizes(n->regions[0]) &&
      at_reducer_vectorizes(n->regions[1]))
    j->lanes = AT_MIN(
        16, floor_pow2(j->extent[last], at_lanes_for(t->cpu_features, &cost)));
  int64_t window = 1;
  for (uint32_t d = 0; d < s->rank; d++)
    window *= attr_at(n, AT_ATTR_WINDOW_DIMENSIONS, d, 1);
  j->ns = (double)at_type_elements(s) * (2 + (double)window / j->lanes);
  j->grain = at_grain_for(j->ns / (double)j->tasks, j->tasks);
  return AT_OK;
}

// Three digits: before, along, behind the scanned dimension. Scans run in order
// along it; lanes and tasks are columns of the last digit.
static at_status plan_scan(const at_cg_target *t, at_arena *a, const at_node *n,
                           const int32_t *alias, at_planned *p) {
  const at_type *s = at_value_type(n->operands[0]);
  int64_t dim = at_node_int(n, AT_ATTR_DIMENSION, 0);
  if (at_type_elements(s) == 0) return AT_OK;
  at_job *j;
  at_cg_cost cost;
  AT_TRY(at_plan_job(a, AT_JOB_SCAN, n, alias, p, &j));
  AT_TRY(at_cg_cost_of(a, n, &cost));
  j->wide_index = cost.elements >= 1 << 28;
  j->n = 3;
  j->extent[0] = j->extent[1] = j->extent[2] = 1;
  for (uint32_t d = 0; d < s->rank; d++)
    j->extent[d < dim ? 0 : d == dim ? 1 : 2] *= s->dims[d];
  j->lanes = floor_pow2(j->extent[2], at_lanes_for(t->cpu_features, &cost));
  j->block = AT_MIN(AT_MAX(64, 8192 / j->extent[1] / 64 * 64),
                    at_ceil_div(j->extent[2], 64) * 64);
  j->tasks = j->extent[0] * at_ceil_div(j->extent[2], j->block);
  j->ns = (double)at_type_elements(s) * 2 / j->lanes;
  j->grain = at_grain_for(j->ns / (double)j->tasks, j->tasks);
  return AT_OK;
}

// Nodes whose results hold data before their kernel begins.
bool at_plan_updates(const at_cg_target *t, at_arena *a, const at_node *n,
                     const int32_t *alias, at_planned *p, at_status *st) {
  switch (n->op) {
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      *st = plan_update(t, a, n, alias, p);
      return true;
    case AT_OP_SCATTER:
      *st = plan_scatter(t, a, n, alias, p);
      return true;
    case AT_OP_SELECT_AND_SCATTER:
      *st = plan_select_scatter(t, a, n, alias, p);
      return true;
    case AT_OP_SCAN:
      *st = plan_scan(t, a, n, alias, p);
      return true;
    default:
      return false;
  }
}
