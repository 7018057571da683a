// Where the slices of an operand begin at the earliest, so that the launch can
// pass that address and equal nodes of an unrolled loop share a kernel.
#include "codegen/skip.h"

#include "codegen/job.h"

// NULL: nothing of the source may be skipped.
static int64_t *find(const at_skips *s, const at_node *source) {
  void **at = at_map_find_ptr(&s->of, source);
  return at ? *at : NULL;
}

// As `find`, for who only reads.
const int64_t *at_skips_of(const at_skips *s, const at_node *source) {
  return find(s, source);
}

// Its memory is a result: the whole of it counts.
static bool is_written(const at_node *n, const int32_t *alias,
                       uint32_t operand) {
  for (uint32_t r = 0; r < n->num_results; r++)
    if (alias && alias[r] == (int32_t)operand) return true;
  return false;
}

// All of the source is read.
static void forget(at_skips *s, const at_node *source) {
  void **at = at_map_find_ptr(&s->of, source);
  if (at) *at = NULL;
}

// A slice reads from its start on, anything else from the first element.
static void read_by(at_skips *s, const at_node *n, bool nested) {
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_node *source = n->operands[i].node;
    int64_t *first = find(s, source);
    if (!first) continue;
    if (n->op != AT_OP_SLICE || nested) {
      forget(s, source);
      continue;
    }
    at_dims start = at_node_ints(n, AT_ATTR_START_INDICES);
    for (uint32_t d = 0; d < start.rank; d++)
      first[d] = AT_MIN(first[d], start.ptr[d]);
  }
}

// Inside nested regions a slice may not run at all, so it does not count as
// one.
static void read_inside(at_skips *s, const at_comp *c, bool nested) {
  AT_FOR_NODES(n, c) {
    read_by(s, n, nested);
    for (uint32_t r = 0; r < n->num_regions; r++)
      read_inside(s, n->regions[r], true);
  }
  for (uint32_t r = 0; r < c->num_results; r++) forget(s, c->results[r].node);
}

// What the node's code calls its operand.
static const at_node *source_of(const at_node *n, uint32_t operand) {
  return n->op == AT_OP_FUSION ? n->regions[0]->params[operand]
                               : n->operands[operand].node;
}

// Indices behind the last, which slices lower.
static at_status begin(at_arena *a, const at_node *n, const int32_t *alias,
                       at_skips *s) {
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    if (is_written(n, alias, i) || at_job_is_immediate(n, i)) continue;
    int64_t *first;
    AT_TRY_ALLOC(first, at_new(a, int64_t, t->rank + 1));
    for (uint32_t d = 0; d < t->rank; d++) first[d] = t->dims[d];
    void **at;
    AT_TRY_ALLOC(at, at_map_put_ptr(&s->of, source_of(n, i)));
    *at = first;
  }
  return AT_OK;
}

// Indices become elements in row-major order. A source that no slice reads is
// not skipped into.
static void count(const at_node *n, at_skips *s) {
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const int64_t *first = at_skips_of(s, source_of(n, i));
    const at_type *t = at_value_type(n->operands[i]);
    bool read = first != NULL;
    int64_t sum = 0;
    for (uint32_t d = 0; first && d < t->rank; d++) {
      sum = sum * t->dims[d] + first[d];
      read &= first[d] < t->dims[d];
    }
    AT_ASSERT(!read || (sum >= 0 && sum < at_type_elements(t)));
    if (read)
      s->elements[i] = sum;
    else
      forget(s, source_of(n, i));
  }
}

// Only fusions and slices have slices to look at.
at_status at_skips_find(at_arena *a, const at_node *n, const int32_t *alias,
                        at_skips *out) {
  *out = (at_skips){.of = at_map_in(a)};
  AT_TRY_ALLOC(out->elements, at_new(a, int64_t, n->num_operands + 1));
  if (n->op != AT_OP_FUSION && n->op != AT_OP_SLICE) return AT_OK;
  AT_TRY(begin(a, n, alias, out));
  if (n->op == AT_OP_FUSION)
    read_inside(out, n->regions[0], false);
  else
    read_by(out, n, false);
  count(n, out);
  return AT_OK;
}
