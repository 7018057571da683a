// The laws of a node's kernels, checked from the plan alone: tasks cover their
// space once, blocks of split sums add up, every result is written by one
// kernel, scratch is large enough. What breaks them is a bug of the planner
// that made them; without this it would be a wrong element somewhere.
#include "codegen/plan.h"
#include "codegen/reducer.h"
#include "codegen/rows.h"

#define BROKEN(...) AT_FAIL(AT_INTERNAL, "plan: " __VA_ARGS__)

// Elements of the job's digits that are reduced, or of those that are not.
static int64_t product(const at_job *j, bool reduced) {
  int64_t p = 1;
  for (uint32_t d = 0; d < j->n; d++)
    if (j->reduced[d] == reduced) p *= j->extent[d];
  return p;
}

// `size` elements in tasks of `each`: all of them, and none without elements.
static bool deals_out(int64_t size, int64_t each, int64_t tasks) {
  return each > 0 && tasks > 0 && tasks == at_ceil_div(size, each);
}

static at_status check_shared(const at_node *n, const at_job *j) {
  if (j->node != n || j->tasks < 1 || j->grain < 1 || !(j->ns >= 0))
    return BROKEN("a kernel of no tasks, or of another node");
  if (!j->lanes || j->lanes > AT_EM_MAX_LANES || j->lanes & (j->lanes - 1))
    return BROKEN("%u lanes", j->lanes);
  if (j->n > AT_CG_MAX_RANK) return BROKEN("%u digits", j->n);
  for (uint32_t d = 0; d < j->n; d++)
    if (j->extent[d] < 1) return BROKEN("digit %u has nothing", d);
  uint64_t own = 0;
  for (uint32_t i = 0; i < j->num_results; i++) {
    uint32_t r = j->results[i];
    if (r >= n->num_results || (i && r <= j->results[i - 1]))
      return BROKEN("result %u is out of order", r);
    if (r < 64) own |= 1ull << r;
  }
  return j->streams & ~own ? BROKEN("streams what it does not write") : AT_OK;
}

// A task is a block of the last digit, or a tile of that and another one, under
// one value of each other digit.
static at_status check_loop(const at_job *j) {
  const at_value root = at_job_root(j, 0);
  const at_type *t = j->kind == AT_JOB_FILL ? &j->node->types[j->results[0]]
                                            : at_value_type(root);
  int64_t all = product(j, false) * product(j, true), outer = 1;
  if (all != at_type_elements(t)) return BROKEN("a loop over another space");
  for (uint32_t d = 0; d + 1 < j->n; d++)
    outer *=
        d == j->tile ? at_ceil_div(j->extent[d], AT_TILE_ROWS) : j->extent[d];
  if (j->tasks % outer ||
      !deals_out(j->extent[j->n - 1], j->block, j->tasks / outer))
    return BROKEN("tasks of a loop leave elements out");
  return AT_OK;
}

static bool all_free(const at_job *j) {
  for (uint32_t i = 0; i < j->num_reduces; i++)
    if (!at_reducer_of(j->reduces[i], j->reduces[i]->regions[0]).free_order)
      return false;
  return true;
}

static at_status check_reduce(const at_job *j) {
  const at_node *r = j->num_reduces ? j->reduces[0] : NULL;
  if (!r || j->vector >= j->n || !j->unroll || j->unroll > 8)
    return BROKEN("a reduction without a digit for lanes");
  int64_t out = at_type_elements(&r->types[0]), units = product(j, false);
  if (units != out || units * product(j, true) !=
                          at_type_elements(at_value_type(r->operands[0])))
    return BROKEN("a reduction over another space");
  bool rows = j->reduced[j->vector];
  if (((rows && j->lanes > 1) || j->split) && !all_free(j))
    return BROKEN("a reduction out of order");
  if (!rows) {
    if (j->block < 1) return BROKEN("a reduction in empty blocks");
    int64_t size = j->extent[j->vector];
    units = units / size * at_ceil_div(size, j->block);
  }
  if (!j->split)
    return j->tasks == units ? AT_OK : BROKEN("a reduction leaves sums out");
  if (!j->reduced[j->split_digit] || j->tasks != units * j->parts ||
      !deals_out(j->extent[j->split_digit], j->split, j->parts))
    return BROKEN("blocks of a sum do not add up");
  return j->scratch ? AT_OK : BROKEN("parts of a sum without memory");
}

static at_status check_combine(const at_job *j) {
  if (j->parts < 2 || !j->scratch ||
      !deals_out(j->extent[0], j->block, j->tasks))
    return BROKEN("parts of a sum are not added up");
  return AT_OK;
}

// Sweeps, and a task's part of the scratch memory: buffers lie side by side.
static at_status check_rows(const at_job *j, size_t scratch) {
  const at_row_plan *p = j->rows;
  int64_t at = 0;
  if (!deals_out(p->roles.rows, p->per_task, j->tasks) ||
      product(j, false) != p->roles.rows ||
      product(j, true) != p->roles.columns || j->vector + 1 != j->n)
    return BROKEN("rows are left out");
  for (uint32_t i = 0; i < j->num_reduces; i++)
    if (p->reduce_sweep[i] >= p->sweeps) return BROKEN("a sweep too many");
  for (size_t i = 0; i < p->ones.len; i++)
    if (p->ones.ptr[i].sweep >= p->sweeps) return BROKEN("a sweep too many");
  for (size_t i = 0; i < p->buffers.len; i++) {
    const at_row_buffer *b = &p->buffers.ptr[i];
    if (b->sweep + 1 >= p->sweeps || b->offset < at || b->offset % 64)
      return BROKEN("a row is kept where another one is");
    at = b->offset + p->roles.columns * (int64_t)at_dtype_bytes(b->type);
  }
  if (at > p->bytes || (size_t)(p->bytes * j->tasks) > scratch ||
      j->scratch != (p->bytes > 0))
    return BROKEN("rows are kept outside of the scratch memory");
  return AT_OK;
}

static at_status check_job(const at_node *n, const at_job *j, size_t scratch) {
  AT_TRY(check_shared(n, j));
  switch (j->kind) {
    case AT_JOB_LOOP:
    case AT_JOB_COPY:
    case AT_JOB_FILL:
    case AT_JOB_UPDATE:
      return check_loop(j);
    case AT_JOB_REDUCE:
      return check_reduce(j);
    case AT_JOB_COMBINE:
      return check_combine(j);
    case AT_JOB_ROWS:
      return check_rows(j, scratch);
    case AT_JOB_SCATTER:
      return deals_out(j->extent[0], j->block, j->tasks)
                 ? AT_OK
                 : BROKEN("a scatter leaves columns out");
    case AT_JOB_SCAN:
      return j->tasks % j->extent[0] == 0 &&
                     deals_out(j->extent[2], j->block, j->tasks / j->extent[0])
                 ? AT_OK
                 : BROKEN("a scan leaves columns out");
    default:
      return AT_OK;
  }
}

// Does the job leave finished elements of its results, computed from nothing
// that they held before?
static bool finishes(const at_job *j) {
  return j->kind == AT_JOB_LOOP || j->kind == AT_JOB_COMBINE ||
         j->kind == AT_JOB_ROWS || (j->kind == AT_JOB_REDUCE && !j->split);
}

at_status at_plan_kernels_verify(const at_node *n, const at_planned *p) {
  bool updates = false;
  for (uint32_t i = 0; i < p->num_jobs; i++) {
    AT_TRY(check_job(n, p->jobs[i], p->scratch_bytes));
    updates |= !finishes(p->jobs[i]) && p->jobs[i]->kind != AT_JOB_REDUCE;
  }
  // Updates in place leave what they do not write as it was.
  if (updates || n->op == AT_OP_DYNAMIC_UPDATE_SLICE || n->op == AT_OP_SCATTER)
    return AT_OK;
  for (uint32_t r = 0; r < n->num_results; r++) {
    const at_type *t = &n->types[r];
    uint32_t writers = 0;
    for (uint32_t i = 0; i < p->num_jobs; i++)
      for (uint32_t k = 0; k < p->jobs[i]->num_results; k++)
        writers += finishes(p->jobs[i]) && p->jobs[i]->results[k] == r;
    bool empty = t->dtype == AT_TOKEN || at_type_elements(t) == 0;
    if (writers != !empty)
      return BROKEN("result %u is written by %u kernels", r, writers);
  }
  return AT_OK;
}
