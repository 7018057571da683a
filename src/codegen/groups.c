// How ops that move data see their result: dimensions that move together are
// one digit. A transpose of 32 dimensions that swaps two blocks has two digits,
// not 32.
#include "codegen/groups.h"

// Ops that give each element from the operands' elements of the same row-major
// number: their index map is the identity.
bool at_is_linear(const at_node *n) {
  if (at_op_is(n->op, AT_ELEMENTWISE)) return true;
  switch (n->op) {
    case AT_OP_RESHAPE:
    case AT_OP_COPY:
    case AT_OP_MAP:
    case AT_OP_OPTIMIZATION_BARRIER:
      return true;
    case AT_OP_BITCAST_CONVERT:
      return at_dtype_of(n->types[0].dtype)->bits ==
             at_dtype_of(at_value_type(n->operands[0])->dtype)->bits;
    default:
      return false;
  }
}

// Are the groups in order, of whole dimensions, and all of t's elements?
static bool covers(const at_groups *g, const at_type *t) {
  int64_t all = 1;
  for (uint32_t i = 0; i < g->n; i++) {
    bool first = i == 0 || g->g[i - 1].last < g->g[i].first;
    if (!first || g->g[i].last < g->g[i].first ||
        g->g[i].extent != t->dims[g->g[i].first] * g->g[i].inner)
      return false;
    all *= g->g[i].extent;
  }
  return all == at_type_elements(t);
}

// The operand dimension behind a result dimension of a broadcast, or -1.
static int64_t broadcast_source(const at_node *n, uint32_t d) {
  at_dims map = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  const at_type *t = at_value_type(n->operands[0]);
  for (uint32_t i = 0; i < map.rank; i++)
    if (map.ptr[i] == d) return t->dims[i] == 1 ? -1 : (int64_t)i;
  return -1;
}

// The next dimension of more than one element; t->rank: none.
static int64_t next_wide(const at_type *t, int64_t d) {
  for (d++; d < (int64_t)t->rank && t->dims[d] == 1;) d++;
  return d;
}

// A dimension that the op passes through whole.
static bool whole(const at_node *n, uint32_t d) {
  const at_type *t = at_value_type(n->operands[0]);
  switch (n->op) {
    case AT_OP_SLICE:
      return n->types[0].dims[d] == t->dims[d] &&
             at_node_ints(n, AT_ATTR_STRIDES).ptr[d] == 1;
    case AT_OP_DYNAMIC_SLICE:
      return n->types[0].dims[d] == t->dims[d];
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return at_value_type(n->operands[1])->dims[d] == t->dims[d];
    case AT_OP_PAD:
      return at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW).ptr[d] == 0 &&
             at_node_ints(n, AT_ATTR_EDGE_PADDING_HIGH).ptr[d] == 0 &&
             (at_node_ints(n, AT_ATTR_INTERIOR_PADDING).ptr[d] == 0 ||
              t->dims[d] <= 1);
    default:
      return false;
  }
}

// The operand's dimension that result dimension d of a gather runs along; -1:
// d is of the indices.
static int64_t gather_source(const at_node *n, int64_t d) {
  at_dims offset = at_node_ints(n, AT_ATTR_OFFSET_DIMS);
  at_dims collapsed = at_node_ints(n, AT_ATTR_COLLAPSED_SLICE_DIMS);
  at_dims batch = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS);
  uint32_t w = 0;
  for (uint32_t k = 0; k < at_value_type(n->operands[0])->rank; k++) {
    if (at_dims_has(collapsed, k) || at_dims_has(batch, k)) continue;
    if (offset.ptr[w++] == d) return k;
  }
  return -1;
}

// Neighbours in the window and in the operand, the minor one whole: one run.
static bool gather_joined(const at_node *n, uint32_t a, uint32_t b) {
  int64_t x = gather_source(n, a), y = gather_source(n, b);
  at_dims size = at_node_ints(n, AT_ATTR_SLICE_SIZES);
  return x >= 0 && y == x + 1 &&
         size.ptr[y] == at_value_type(n->operands[0])->dims[y];
}

// Result dimensions a < b, neighbours: do they move as one?
static bool joined(const at_node *n, uint32_t a, uint32_t b) {
  switch (n->op) {
    case AT_OP_BROADCAST_IN_DIM: {
      int64_t x = broadcast_source(n, a), y = broadcast_source(n, b);
      if (x < 0 || y < 0) return x == y;
      return next_wide(at_value_type(n->operands[0]), x) == y;
    }
    case AT_OP_TRANSPOSE: {
      at_dims p = at_node_ints(n, AT_ATTR_PERMUTATION);
      return next_wide(at_value_type(n->operands[0]), p.ptr[a]) == p.ptr[b];
    }
    case AT_OP_SLICE:
      return whole(n, b) && at_node_ints(n, AT_ATTR_STRIDES).ptr[a] == 1;
    case AT_OP_PAD:
      return whole(n, b) &&
             (at_node_ints(n, AT_ATTR_INTERIOR_PADDING).ptr[a] == 0);
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return whole(n, b);
    case AT_OP_CONCATENATE:
      return b != at_node_int(n, AT_ATTR_DIMENSION, 0);
    case AT_OP_GATHER:
      return gather_joined(n, a, b);
    case AT_OP_REVERSE: {
      at_dims r = at_node_ints(n, AT_ATTR_DIMENSIONS);
      return at_dims_has(r, a) == at_dims_has(r, b);
    }
    case AT_OP_IOTA: {
      int64_t d = at_node_int(n, AT_ATTR_DIMENSION, 0);
      return a != d && b != d;
    }
    default:
      return at_is_linear(n);
  }
}

// Dimensions of size one that carry nothing may be left out.
static bool idle(const at_node *n, uint32_t d) {
  if (n->types[0].dims[d] != 1) return false;
  switch (n->op) {
    case AT_OP_SLICE:
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_DYNAMIC_UPDATE_SLICE:
    case AT_OP_PAD:
      return whole(n, d);
    case AT_OP_CONCATENATE:
      return d != at_node_int(n, AT_ATTR_DIMENSION, 0);
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_TRANSPOSE:
    case AT_OP_REVERSE:
      return true;
    default:
      return false;
  }
}

// From the major dimension on: each joins the group before it if the op moves
// both as one.
void at_groups_of(const at_node *n, at_groups *out) {
  const at_type *t = &n->types[0];
  out->n = 0;
  for (uint32_t d = 0; d < t->rank && d < AT_CG_MAX_RANK; d++) {
    if (idle(n, d)) continue;
    if (out->n && joined(n, out->g[out->n - 1].last, d)) {
      out->g[out->n - 1].last = d;
      out->g[out->n - 1].extent *= t->dims[d];
      out->g[out->n - 1].inner *= t->dims[d];
      continue;
    }
    out->g[out->n].first = out->g[out->n].last = d;
    out->g[out->n].extent = t->dims[d];
    out->g[out->n++].inner = 1;
  }
  AT_ASSERT(t->rank > AT_CG_MAX_RANK || covers(out, t));
}

// Is `suffix` the product of some of the minor digits?
static bool is_boundary(const int64_t *extent, uint32_t digits,
                        int64_t suffix) {
  int64_t s = 1;
  for (uint32_t i = digits; i-- > 0 && s < suffix;) s *= extent[i];
  return s == suffix;
}

// A group is cut before a dimension where the place has a cut, too: merging
// digits that are known apart and dividing them again would cost code.
void at_groups_split(at_groups *g, const at_type *t, const int64_t *extent,
                     uint32_t digits) {
  at_groups out = {0};
  int64_t suffix = 1;
  // From the minor dimension on; turned around at the end.
  for (uint32_t i = g->n; i-- > 0;) {
    uint32_t last = g->g[i].last;
    int64_t size = 1;
    for (uint32_t d = last + 1; d-- > g->g[i].first;) {
      size *= t->dims[d];
      bool first = d == g->g[i].first;
      if (!first && (size == 1 || !is_boundary(extent, digits, suffix * size)))
        continue;
      out.g[out.n].first = d;
      out.g[out.n].last = last;
      out.g[out.n].extent = size;
      out.g[out.n++].inner = size / AT_MAX(1, t->dims[d]);
      suffix *= size;
      size = 1;
      last = d - 1;
    }
  }
  g->n = out.n;
  for (uint32_t i = 0; i < out.n; i++) g->g[i] = out.g[out.n - 1 - i];
  AT_ASSERT(covers(g, t));
}
