// How a reduction is walked: along rows with several vectors of accumulators,
// or down columns with one accumulator an output; in fixed blocks when there
// are few outputs. Depends on shapes and the CPU, never on the number of
// threads.
#include "base/cpu.h"
#include "codegen/plan.h"
#include "codegen/reducer.h"

typedef struct at_node_list {
  const at_node *ptr[16];
  uint32_t len;
  bool mixed;  // too many, or of different spaces
} at_node_list;

// Equal dimensions, equal ones reduced: one walk serves both.
static bool same_space(const at_node *a, const at_node *b) {
  return at_dims_eq(at_type_dims(at_value_type(a->operands[0])),
                    at_type_dims(at_value_type(b->operands[0]))) &&
         at_dims_eq(at_node_ints(a, AT_ATTR_DIMENSIONS),
                    at_node_ints(b, AT_ATTR_DIMENSIONS));
}

// A node that is there already is not added; one of another space, or too many,
// spoil the list.
static void list_add(at_node_list *l, const at_node *n) {
  for (uint32_t i = 0; i < l->len; i++)
    if (l->ptr[i] == n) return;
  if (l->len == AT_LEN(l->ptr) || (l->len && !same_space(l->ptr[0], n))) {
    l->mixed = true;
    return;
  }
  l->ptr[l->len++] = n;
}

// The reduce nodes that a result is made of by elementwise steps.
static at_status find_reduces(at_arena *a, const at_node *root,
                              at_node_list *out) {
  at_map seen = at_map_in(a);
  AT_VEC(const at_node *) stack = {0};
  if (!at_vec_push(a, &stack, root)) return AT_NO_MEMORY("fusion analysis");
  while (stack.len && !out->mixed) {
    const at_node *n = stack.ptr[--stack.len];
    void **known = at_map_put_ptr(&seen, n);
    if (!known) return AT_NO_MEMORY("fusion analysis");
    if (*known) continue;
    *known = (void *)n;
    if (n->op == AT_OP_REDUCE) list_add(out, n);
    if (!at_is_linear(n)) continue;
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (!at_vec_push(a, &stack, n->operands[i].node))
        return AT_NO_MEMORY("fusion analysis");
  }
  return AT_OK;
}

// Does n sum along dimension d?
static bool is_reduced(const at_node *n, uint32_t d) {
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  for (uint32_t i = 0; i < dims.rank; i++)
    if (dims.ptr[i] == d) return true;
  return false;
}

// Cuts at the borders of reduced dimensions first: those cannot be given up.
static at_status reduce_digits(at_arena *a, at_job *j) {
  const at_node *n = j->reduces[0];
  const at_type *t = at_value_type(n->operands[0]);
  at_cuts c = {.total = at_type_elements(t)};
  int64_t s = 1;
  bool have = false, last = false;
  for (uint32_t d = t->rank; d-- > 0;) {
    if (t->dims[d] == 1) continue;
    bool r = is_reduced(n, d);
    if (have && r != last) at_cuts_add(&c, s);
    have = true;
    last = r;
    s *= t->dims[d];
  }
  for (uint32_t i = 0; i < j->num_reduces && n != j->node; i++)
    for (uint32_t k = 0; k < j->reduces[i]->num_operands / 2; k++)
      AT_TRY(at_cuts_walk(&c, a, j->reduces[i]->operands[k], j->node));
  j->n = at_cuts_extents(&c, j->extent);
  // A digit is reduced when the dimension that its stride falls into is.
  int64_t stride = 1;
  for (uint32_t k = j->n; k-- > 0;) {
    int64_t below = 1;
    for (uint32_t d = t->rank; d-- > 0;) {
      if (t->dims[d] != 1 && stride >= below && stride < below * t->dims[d])
        j->reduced[k] = is_reduced(n, d);
      below *= t->dims[d];
    }
    stride *= j->extent[k];
  }
  // Only digits of size one: whatever the node says.
  if (c.total == 1)
    j->reduced[0] = t->rank > 0 && at_node_ints(n, AT_ATTR_DIMENSIONS).rank > 0;
  return AT_OK;
}

// The largest power of two that is neither over v nor over `most`; at least 1.
static uint32_t floor_pow2(int64_t v, uint32_t most) {
  uint32_t p = 1;
  while (p < most && (int64_t)p * 2 <= v) p *= 2;
  return p;
}

// May all of the job's reductions be added up in any order? If one may not,
// none gets blocks or several accumulators.
static bool all_free(const at_job *j) {
  for (uint32_t i = 0; i < j->num_reduces; i++)
    if (!at_reducer_of(j->reduces[i], j->reduces[i]->regions[0]).free_order)
      return false;
  return true;
}

// Elements of the digits that are reduced, or of those that are kept: how long
// a sum is, or how many sums there are.
static int64_t product_of(const at_job *j, bool reduced) {
  int64_t p = 1;
  for (uint32_t d = 0; d < j->n; d++)
    if (j->reduced[d] == reduced) p *= j->extent[d];
  return p;
}

// Along the row where the last digit is reduced: lanes are partial sums of one
// output, joined at the end, with up to four vectors side by side to hide the
// latency of an addition. Down columns where it is kept, or where rows are
// short: lanes are different outputs, each in the order of the evaluator.
static void choose_vector(at_job *j, uint32_t full, const at_cg_cost *cost) {
  bool free_order = all_free(j);
  uint32_t last = j->n - 1, kept = j->n;
  for (uint32_t d = 0; d < j->n; d++)
    if (!j->reduced[d]) kept = d;
  j->vector = last;
  j->unroll = 1;
  if (j->reduced[last]) {
    int64_t inner = j->extent[last];
    // What is done with a row's result has a vector of them then: worth
    // elements that lie apart where the rows are short and it takes long, or to
    // join the lanes does.
    bool long_ends = cost->heavy || j->reduces[0]->num_results > 1;
    bool few = inner <= 8 || (long_ends && inner <= 2 * (int64_t)full);
    // Reductions that must keep their order have vectors only this way.
    bool columns = kept < j->n && j->extent[kept] >= 8 && (few || !free_order);
    if (!columns) {
      j->lanes = free_order ? floor_pow2(inner, full) : 1;
      if (!cost->heavy && j->lanes == full)
        j->unroll = inner >= 8 * (int64_t)full   ? 4
                    : inner >= 2 * (int64_t)full ? 2
                                                 : 1;
      return;
    }
    j->vector = kept;
  }
  int64_t size = j->extent[j->vector];
  j->lanes = floor_pow2(size, full);
  if (j->lanes == full && !cost->heavy)
    // Neighbouring columns share cache lines.
    for (uint32_t v = 8; v > 1 && j->unroll == 1; v /= 2)
      if (size % (v * full) == 0 || size >= 4 * v * full) j->unroll = v;
}

// Cuts the longest reduced digit so that some 64 tasks exist.
static void choose_split(at_job *j, int64_t units) {
  int64_t total = product_of(j, true) * product_of(j, false);
  if (units >= 32 || total < 1 << 17 || !all_free(j)) return;
  uint32_t best = j->n;
  for (uint32_t d = 0; d < j->n; d++)
    if (j->reduced[d] && (best == j->n || j->extent[d] > j->extent[best]))
      best = d;
  if (best == j->n) return;
  int64_t want = AT_MIN(at_ceil_div(64, units), total / 32768);
  int64_t align = best == j->vector ? (int64_t)j->lanes * j->unroll : 1;
  int64_t split =
      at_ceil_div(at_ceil_div(j->extent[best], AT_MAX(want, 1)), align) * align;
  if (split >= j->extent[best]) return;
  j->split_digit = best;
  j->split = split;
  j->parts = at_ceil_div(j->extent[best], split);
}

// The kernel behind a split one: adds up the `parts` partial results of each
// output, which lie in scratch, and finishes them. Always in the order of the
// parts.
static at_status plan_combine(at_arena *a, const at_job *r, const uint32_t full,
                              const int32_t *alias, at_planned *p) {
  at_job *j;
  AT_TRY(at_plan_job(a, AT_JOB_COMBINE, r->node, alias, p, &j));
  j->results = r->results;
  j->num_results = r->num_results;
  j->reduces = r->reduces;
  j->num_reduces = r->num_reduces;
  j->parts = r->parts;
  j->scratch = true;
  j->n = 1;
  j->extent[0] = product_of(r, false);
  j->lanes = floor_pow2(j->extent[0], full);
  j->block = AT_MAX(64, 65536 / AT_MAX(1, j->parts) / 64 * 64);
  j->tasks = at_ceil_div(j->extent[0], j->block);
  j->ns = (double)j->extent[0] * (double)j->parts;
  return AT_OK;
}

// Digits, lanes, blocks and tasks of one job. All of it follows from shapes and
// the CPU, so that results do not depend on the number of threads.
static at_status plan_reduce(const at_cg_target *t, at_arena *a, at_job *j,
                             const int32_t *alias, at_planned *p) {
  at_cg_cost cost;
  AT_TRY(at_cg_cost_of(a, j->node, &cost));
  AT_TRY(reduce_digits(a, j));
  uint32_t full = at_lanes_for(t->cpu_features, &cost);
  j->wide_index = cost.elements >= 1 << 28;
  choose_vector(j, full, &cost);
  enum { BLOCK = 12000 };  // elements that a task of columns adds up
  int64_t total = product_of(j, true) * product_of(j, false);
  int64_t units = product_of(j, false);
  j->block = 0;
  if (!j->reduced[j->vector]) {  // columns: a task is a block of them
    int64_t width = (int64_t)j->lanes * j->unroll, size = j->extent[j->vector];
    int64_t many = BLOCK / AT_MAX(1, product_of(j, true));
    j->block = AT_MIN(AT_MAX(many / width * width, width),
                      at_ceil_div(size, width) * width);
    units = units / size * at_ceil_div(size, j->block);
  }
  choose_split(j, units);
  j->tasks = units * (j->split ? j->parts : 1);
  // Sums wait for each other, and each row has an end.
  double waits = 0.4 / (j->lanes * AT_MAX(j->unroll, 1u));
  if (j->reduced[j->vector]) waits += 4.0 / (double)j->extent[j->vector];
  j->ns = at_cg_cost_ns(t, &cost, j->lanes) * (double)product_of(j, false) +
          waits * (double)total;
  j->grain = at_grain_for(j->ns / (double)AT_MAX(1, j->tasks), j->tasks);
  if (!j->split) return AT_OK;
  j->scratch = true;
  size_t bytes = 0;
  for (uint32_t i = 0; i < j->num_reduces; i++)
    for (uint32_t k = 0; k < j->reduces[i]->num_results; k++)
      // 16 bytes hold an accumulator of any type.
      bytes += at_align_up((size_t)(product_of(j, false) * j->parts) * 16, 64);
  p->scratch_bytes = AT_MAX(p->scratch_bytes, bytes);
  return plan_combine(a, j, full, alias, p);
}

// Results whose reduce nodes agree share a kernel. taken[r]: has one.
at_status at_plan_reduces(const at_cg_target *t, at_arena *a, const at_node *n,
                          const int32_t *alias, bool *taken, at_planned *p) {
  if (n->op != AT_OP_REDUCE && n->op != AT_OP_FUSION) return AT_OK;
  at_node_list *found = at_new(a, at_node_list, n->num_results + 1);
  if (!found) return AT_NO_MEMORY("kernel plan");
  for (uint32_t r = 0; r < n->num_results; r++)
    AT_TRY(find_reduces(a, at_node_root(n, r).node, &found[r]));
  for (uint32_t r = 0; r < n->num_results; r++) {
    at_node_list *f = &found[r];
    if (taken[r] || f->len == 0 || f->mixed) continue;
    int64_t outputs = at_type_elements(&f->ptr[0]->types[0]);
    if (at_type_elements(&n->types[r]) != outputs || outputs == 0 ||
        at_type_elements(at_value_type(f->ptr[0]->operands[0])) == 0)
      continue;
    at_job *j;
    AT_TRY(at_plan_job(a, AT_JOB_REDUCE, n, alias, p, &j));
    uint32_t *list = at_new(a, uint32_t, n->num_results);
    at_node_list *all = at_new(a, at_node_list, 1);
    if (!list || !all) return AT_NO_MEMORY("kernel plan");
    j->results = list;
    *all = *f;
    for (uint32_t s = r; s < n->num_results; s++) {
      at_node_list *g = &found[s], both = *all;
      if (taken[s] || !g->len || g->mixed ||
          !same_space(f->ptr[0], g->ptr[0]) ||
          at_type_elements(&n->types[s]) != outputs)
        continue;
      // Results join this job as long as all their reductions are of one space.
      for (uint32_t i = 0; i < g->len; i++) list_add(&both, g->ptr[i]);
      if (both.mixed) continue;
      *all = both;
      taken[s] = true;
      list[j->num_results++] = s;
    }
    j->reduces = all->ptr;
    j->num_reduces = all->len;
    AT_TRY(plan_reduce(t, a, j, alias, p));
  }
  return AT_OK;
}
