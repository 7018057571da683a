// How often a loop turns, where its program says so.
#include <math.h>

#include "cost/count.h"

// The value under renamings.
static at_value behind(at_value v) {
  while (v.node->num_operands && (v.node->op == AT_OP_RESHAPE ||
                                  v.node->op == AT_OP_OPTIMIZATION_BARRIER))
    v = v.node->operands[v.node->op == AT_OP_RESHAPE ? 0 : v.index];
  return v;
}

// The state that a value of the condition or the body is, or -1.
static int64_t state_of(const at_comp *c, at_value v) {
  uint32_t i = at_param_index(c, behind(v).node);
  return i < c->num_params ? (int64_t)i : -1;
}

// The integer that v is, under renamings; false: none that is known.
static bool constant(at_value v, int64_t *out) {
  v = behind(v);
  const at_literal *l = at_node_literal(v.node);
  if (!l || !at_is_int(l->type.dtype) || at_type_elements(&l->type) != 1)
    return false;
  *out = at_literal_int(l, 0);
  return true;
}

// i = first; while (i < last) i += step
double at_count_trips(const at_node *loop, bool *known) {
  int64_t said = at_node_int(loop, AT_ATTR_TRIP_COUNT, -1);
  *known = said >= 0;
  if (*known) return (double)said;
  const at_comp *cond = loop->regions[0], *body = loop->regions[1];
  const at_node *test =
      cond->num_results ? behind(cond->results[0]).node : NULL;
  if (!test || test->op != AT_OP_COMPARE) return 1;
  int64_t i = state_of(cond, test->operands[0]), last, first, step;
  int64_t d = at_node_int(test, AT_ATTR_COMPARISON_DIRECTION, -1);
  at_value bound = test->operands[1];
  if (i < 0 || (d != AT_LT && d != AT_LE)) return 1;
  if (!constant(bound, &last)) {
    int64_t b = state_of(cond, bound);
    // The body must leave the bound as it is.
    if (b < 0 || state_of(body, body->results[b]) != b ||
        !constant(loop->operands[b], &last))
      return 1;
  }
  if (!constant(loop->operands[i], &first)) return 1;
  const at_node *next = behind(body->results[i]).node;
  if (next->op != AT_OP_ADD) return 1;
  bool left = state_of(body, next->operands[0]) == i;
  bool right = state_of(body, next->operands[1]) == i;
  if (left == right || !constant(next->operands[left ? 1 : 0], &step) ||
      step <= 0)
    return 1;
  *known = true;
  double trips = ((double)last - (double)first) / (double)step;
  return fmax(0, d == AT_LT ? ceil(trips) : floor(trips) + 1);
}
