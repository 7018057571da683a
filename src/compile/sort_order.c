// Recognises the comparators that JAX writes, so that sorting needs no calls.
//
// JAX compares keys in IEEE total order after making every NaN the same and -0
// equal to 0 (canonical keys), and lexicographically over several keys:
//   lt(x0, y0) | (eq(x0, y0) & (lt(x1, y1) | ...))
#include "compile/runtime_ops.h"

typedef struct matcher {
  const at_comp *c;
  uint32_t num_operands;
  int order;  // at_k_order of what was matched; -1: none yet
} matcher;

static bool is_splat_zero(at_value v) {
  const at_literal *l = at_node_literal(v.node);
  return l && at_type_elements(&l->type) == 1 && at_is_float(l->type.dtype) &&
         at_literal_float(l, 0) == 0;
}
static bool is_nan(at_value v) {
  const at_literal *l = at_node_literal(v.node);
  if (!l || at_type_elements(&l->type) != 1 || !at_is_float(l->type.dtype))
    return false;
  double x = at_literal_float(l, 0);
  return x != x;
}

// select(x == 0, 0, x) and select(x != x, nan, x), in any nesting, where x is
// the key or a form of it that the other select made. *seen collects which were
// there.
static at_value strip_canonical(at_value v, unsigned *seen) {
  at_value chain[4];
  int n = 0;
  for (chain[0] = v; n < 3 && chain[n].node->op == AT_OP_SELECT; n++)
    chain[n + 1] = chain[n].node->operands[2];
  for (int i = 0; i < n; i++) {
    at_value p = chain[i].node->operands[0], then = chain[i].node->operands[1];
    if (p.node->op != AT_OP_COMPARE) return v;
    int64_t dir = at_node_int(p.node, AT_ATTR_COMPARISON_DIRECTION, AT_EQ);
    at_value a = p.node->operands[0], b = p.node->operands[1];
    bool own = false;
    for (int k = i + 1; k <= n; k++) own |= at_value_eq(a, chain[k]);
    if (own && dir == AT_EQ && is_splat_zero(then) && is_splat_zero(b))
      *seen |= 1;
    else if (own && dir == AT_NE && is_nan(then) && at_value_eq(a, b))
      *seen |= 2;
    else
      return v;
  }
  return chain[n];
}

// The parameter number behind a key, or -1. Float keys must be canonical, or
// the order of zeros and NaN is not the kernel's.
static int64_t key_param(const matcher *m, at_value v, bool total_order) {
  unsigned seen = 0;
  at_dtype t = at_value_type(v)->dtype;
  v = strip_canonical(v, &seen);
  if (v.node->op != AT_OP_PARAMETER || v.node->parent != m->c) return -1;
  if (at_is_float(t) && (seen != 3 || !total_order)) return -1;
  if (!at_is_float(t) && !at_is_int(t) && t != AT_PRED) return -1;
  return at_node_int(v.node, AT_ATTR_INDEX, -1);
}

// compare(x_k, y_k) with the wanted direction: 0 LT/GT (an order), 1 EQ.
static bool match_compare(matcher *m, at_value v, uint32_t key, bool equal) {
  if (v.node->op != AT_OP_COMPARE) return false;
  int64_t dir = at_node_int(v.node, AT_ATTR_COMPARISON_DIRECTION, AT_EQ);
  bool total =
      at_node_int(v.node, AT_ATTR_COMPARE_TYPE, 0) == AT_CMP_TOTALORDER;
  int64_t x = key_param(m, v.node->operands[0], total);
  int64_t y = key_param(m, v.node->operands[1], total);
  if (x < 0 || y < 0 || x / 2 != key || y / 2 != key || x == y) return false;
  if (equal) return dir == AT_EQ;
  if (dir != AT_LT && dir != AT_GT) return false;
  bool less = (dir == AT_LT) == (x < y);
  int order = less ? AT_ORDER_ASC : AT_ORDER_DESC;
  if (m->order >= 0 && m->order != order) return false;
  m->order = order;
  return true;
}

// Number of keys of a lexicographic comparison that starts at `key`; 0: no
// match.
static uint32_t match_keys(matcher *m, at_value v, uint32_t key) {
  if (key >= m->num_operands) return 0;
  if (match_compare(m, v, key, false)) return 1;
  if (v.node->op != AT_OP_OR) return 0;
  for (int s = 0; s < 2; s++) {
    at_value first = v.node->operands[s], rest = v.node->operands[1 - s];
    if (rest.node->op != AT_OP_AND) continue;
    for (int t = 0; t < 2; t++) {
      matcher save = *m;
      if (match_compare(m, first, key, false) &&
          match_compare(m, rest.node->operands[t], key, true)) {
        uint32_t more = match_keys(m, rest.node->operands[1 - t], key + 1);
        if (more) return more + 1;
      }
      *m = save;
    }
  }
  return 0;
}

// Only for `lt` comparators that are a chain over keys 0, 1, ...; anything else
// is called element by element.
bool at_sort_order(const at_comp *region, uint32_t num_operands,
                   uint32_t *out_order, uint32_t *out_num_keys) {
  if (region->num_results != 1) return false;
  matcher m = {region, num_operands, -1};
  uint32_t keys = match_keys(&m, region->results[0], 0);
  if (!keys) return false;
  *out_order = (uint32_t)m.order;
  *out_num_keys = keys;
  return true;
}
