// Cycles of one vertex of a lowered node.
#include <math.h>

#include "tiles/lower_internal.h"

// The kernel's elements for one output feature, for a convolution.
double at_tiles_depth(const at_node *n) {
  double depth = 1;
  if (n->op == AT_OP_DOT_GENERAL) {
    at_dims c = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
    for (uint32_t i = 0; i < c.rank; i++)
      depth *= (double)at_value_type(n->operands[0])->dims[c.ptr[i]];
    return depth;
  }
  if (n->op != AT_OP_CONVOLUTION) return 0;
  const at_type *k = at_value_type(n->operands[1]);
  int64_t out = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
  for (uint32_t d = 0; d < k->rank; d++)
    if (d != out) depth *= (double)k->dims[d];
  // Holes of a dilated operand are not multiplied.
  at_dims holes = at_node_ints(n, AT_ATTR_LHS_DILATION);
  for (uint32_t i = 0; i < holes.rank; i++)
    depth /= (double)AT_MAX(holes.ptr[i], 1);
  return depth;
}

// Elements of a vector of an operand or result.
static int64_t width(const at_tiles_machine *m, const at_type *t) {
  return AT_MAX(m->vector_bytes / (int64_t)AT_MAX(at_dtype_bytes(t->dtype), 1u),
                1);
}

// A scalar constant, also broadcast: it stays in a register and is not loaded.
static bool is_small(at_value v) {
  const at_node *n = v.node;
  while (n->op == AT_OP_BROADCAST_IN_DIM) n = n->operands[0].node;
  return n->op == AT_OP_CONSTANT && at_type_elements(&n->types[0]) == 1;
}

// Cycles of one vector: a load for each operand, a store, and what the op
// itself takes for each element.
static int64_t elementwise_loop(const at_tiles_machine *m, const at_node *n) {
  int64_t tensors = 0;
  for (uint32_t i = 0; i < n->num_operands; i++)
    tensors += !is_small(n->operands[i]);
  int64_t loop = 1 + AT_MAX(tensors, 1), each = 0;
  if (at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL) each = 4;
  if (n->op == AT_OP_DIVIDE || n->op == AT_OP_REMAINDER) each = 3;
  return loop + each * width(m, &n->types[0]);
}

// By kind of op: products by multiply-adds, elementwise by vectors, copies by
// bytes, reductions by what they read, windows by their size, sorts by
// comparisons of a bitonic network.
int64_t at_tiles_node_cycles(const at_tiles_machine *m, const at_node *n,
                             int64_t out, int64_t in, double depth) {
  if (!out && !in) return 0;
  const at_type *t = &n->types[0];
  int64_t vectors = at_ceil_div(out, width(m, t));
  const at_op_info *info = at_op_of(n->op);
  if (depth > 0) {
    const at_type *x = at_value_type(n->operands[0]);
    double rate = at_dtype_bytes(x->dtype) == 2 ? m->f16_macs : m->f32_macs;
    double macs = (double)out * depth * (at_is_complex(t->dtype) ? 4 : 1);
    return (int64_t)ceil(macs / rate) +
           at_tiles_shared_cycles(m, vectors, 1, 2);
  }
  if (info->traits & AT_ELEMENTWISE)
    return at_tiles_shared_cycles(m, vectors, 1, elementwise_loop(m, n));
  if (info->traits & AT_INDEXING)  // a copy into order
    return at_tiles_copy_cycles(m, out * at_dtype_bytes(t->dtype), false);
  int64_t read = at_ceil_div(
      in, n->num_operands ? width(m, at_value_type(n->operands[0])) : 1);
  if (n->op == AT_OP_REDUCE)
    return at_tiles_shared_cycles(m, read, 1, 1 + (n->num_results > 1));
  if (n->op == AT_OP_REDUCE_WINDOW || n->op == AT_OP_SELECT_AND_SCATTER) {
    at_dims w = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
    int64_t window = 1;
    for (uint32_t i = 0; i < w.rank; i++) window *= w.ptr[i];
    return at_tiles_shared_cycles(m, vectors, 1, 2 * window);
  }
  if (n->op == AT_OP_SORT || n->op == AT_OP_TOP_K) {
    double levels = log2((double)AT_MAX(in, 2));
    return at_tiles_shared_cycles(
        m, (int64_t)((double)in * levels * levels / 4), 1, 6);
  }
  return at_tiles_shared_cycles(m, AT_MAX(vectors, read), 1, 8);
}
