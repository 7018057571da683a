// A node on blocks of its operands: the same op on smaller tensors, with the
// attributes that speak of whole dimensions put right.
#include "tiles/lower_internal.h"

// A node that stands for n on blocks: same op, own types and attributes,
// operands that are leaves.
typedef struct part {
  at_arena *arena;
  at_node node;
  const at_literal *const *in;
  int64_t (*lo)[kTilesRank];
  const int64_t *out_lo;
} part;

// Puts a list attribute in place of n's own, or adds it; attributes stay sorted
// by id.
static at_status set_ints(part *p, at_attr_id id, const int64_t *v,
                          uint32_t n) {
  at_attr x = {.id = id, .ints = {v, n}};
  AT_TRY_ALLOC(x.ints.ptr, at_arena_copy(p->arena, v, n * sizeof *v, 8));
  uint32_t k = 0;
  while (k < p->node.num_attrs && p->node.attrs[k].id < id) k++;
  if (k == p->node.num_attrs || p->node.attrs[k].id != id) {
    for (uint32_t i = p->node.num_attrs++; i > k; i--)
      p->node.attrs[i] = p->node.attrs[i - 1];
  }
  p->node.attrs[k] = x;
  return AT_OK;
}

// Entry i of a list that may be shorter or absent.
static int64_t or_else(at_dims list, uint32_t i, int64_t absent) {
  return i < list.rank ? list.ptr[i] : absent;
}

// The padding before and after a block of n elements from `lo` on, with holes
// between them, of which results [out, out + count) see `extent` from their
// first on, `stride` apart.
static void edges(int64_t lo, int64_t n, int64_t holes, int64_t out,
                  int64_t count, int64_t stride, int64_t pad, int64_t extent,
                  int64_t *low, int64_t *high) {
  int64_t from = out * stride - pad, total = (count - 1) * stride + extent,
          spread = n ? (n - 1) * holes + 1 : 0;
  *low = n ? lo * holes - from : 0;
  *high = total - *low - spread;
}

// Dimension in[i] of the operand and out[i] of the result see each other
// through a window.
static at_status fit_windows(part *p, const at_tiles_spatial *s,
                             const int64_t *in, const int64_t *out) {
  int64_t made[2 * kTilesRank];
  for (uint32_t i = 0; i < s->rank; i++)
    edges(p->lo[0][in[i]], p->in[0]->type.dims[in[i]], s->holes[i],
          p->out_lo[out[i]], p->node.types[0].dims[out[i]], s->stride[i],
          s->low[i], (s->kernel[i] - 1) * s->spread[i] + 1, &made[2 * i],
          &made[2 * i + 1]);
  return set_ints(p, AT_ATTR_PADDING, made, 2 * s->rank);
}

// Windows of the spatial dimensions are cut to what the block's results need.
static at_status fit_convolution(part *p) {
  const at_node *n = &p->node;
  at_tiles_spatial s = at_tiles_spatial_of(n, p->in);
  return fit_windows(p, &s,
                     at_node_ints(n, AT_ATTR_INPUT_SPATIAL_DIMENSIONS).ptr,
                     at_node_ints(n, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS).ptr);
}

// A reduce-window is fitted as a convolution whose windows go along every
// dimension.
static at_status fit_reduce_window(part *p) {
  const at_node *n = &p->node;
  at_dims size = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
  at_tiles_spatial s = {.rank = size.rank};
  int64_t same[kTilesRank];
  for (uint32_t d = 0; d < size.rank; d++) {
    same[d] = d;
    s.kernel[d] = size.ptr[d];
    s.low[d] = or_else(at_node_ints(n, AT_ATTR_PADDING), 2 * d, 0);
    s.stride[d] = or_else(at_node_ints(n, AT_ATTR_WINDOW_STRIDES), d, 1);
    s.holes[d] = or_else(at_node_ints(n, AT_ATTR_BASE_DILATIONS), d, 1);
    s.spread[d] = or_else(at_node_ints(n, AT_ATTR_WINDOW_DILATIONS), d, 1);
  }
  return fit_windows(p, &s, same, same);
}

// Padding of a block is what the result's block has beyond the operand's; it
// may be negative.
static at_status fit_pad(part *p) {
  const at_node *n = &p->node;
  at_dims low = at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW),
          inside = at_node_ints(n, AT_ATTR_INTERIOR_PADDING);
  int64_t lows[kTilesRank], highs[kTilesRank];
  uint32_t rank = n->types[0].rank;
  for (uint32_t d = 0; d < rank; d++)
    edges(p->lo[0][d], p->in[0]->type.dims[d], 1 + or_else(inside, d, 0),
          p->out_lo[d], n->types[0].dims[d], 1, or_else(low, d, 0), 1, &lows[d],
          &highs[d]);
  AT_TRY(set_ints(p, AT_ATTR_EDGE_PADDING_LOW, lows, rank));
  return set_ints(p, AT_ATTR_EDGE_PADDING_HIGH, highs, rank);
}

// Indices counted from the operand's block.
static at_status fit_slice(part *p) {
  const at_node *n = &p->node;
  at_dims starts = at_node_ints(n, AT_ATTR_START_INDICES),
          strides = at_node_ints(n, AT_ATTR_STRIDES);
  int64_t from[kTilesRank], to[kTilesRank];
  uint32_t rank = n->types[0].rank;
  for (uint32_t d = 0; d < rank; d++) {
    int64_t stride = or_else(strides, d, 1);
    from[d] = or_else(starts, d, 0) + p->out_lo[d] * stride - p->lo[0][d];
    to[d] = from[d] + (n->types[0].dims[d] - 1) * stride + 1;
  }
  AT_TRY(set_ints(p, AT_ATTR_START_INDICES, from, rank));
  return set_ints(p, AT_ATTR_LIMIT_INDICES, to, rank);
}

// A dimension that is taken whole is cut with its block.
static at_status fit_gather(part *p, const at_node *whole) {
  at_dims sizes = at_node_ints(whole, AT_ATTR_SLICE_SIZES);
  const at_type *t = at_value_type(whole->operands[0]);
  int64_t made[kTilesRank];
  for (uint32_t d = 0; d < sizes.rank; d++)
    made[d] =
        sizes.ptr[d] == t->dims[d] ? p->in[0]->type.dims[d] : sizes.ptr[d];
  return set_ints(p, AT_ATTR_SLICE_SIZES, made, sizes.rank);
}

// Attributes that speak of whole dimensions, by op; other ops need none.
static at_status fit(part *p, const at_node *whole) {
  switch (whole->op) {
    case AT_OP_CONVOLUTION:
      return fit_convolution(p);
    case AT_OP_REDUCE_WINDOW:
      return fit_reduce_window(p);
    case AT_OP_PAD:
      return fit_pad(p);
    case AT_OP_SLICE:
      return fit_slice(p);
    case AT_OP_GATHER:
      return fit_gather(p, whole);
    case AT_OP_DYNAMIC_SLICE:
      return set_ints(p, AT_ATTR_SLICE_SIZES, p->node.types[0].dims,
                      p->node.types[0].rank);
    default:
      return AT_OK;
  }
}

// Products by product.c, anything else by the evaluator.
at_status at_tiles_part_eval(const at_node *n, const at_literal *const *in,
                             int64_t (*lo)[kTilesRank], const at_type *types,
                             const int64_t *out_lo, at_arena *a,
                             const at_literal **out) {
  part p = {a, *n, in, lo, out_lo};
  at_node *leaves;
  at_type *own;
  AT_TRY_ALLOC(leaves, at_new(a, at_node, n->num_operands + 1));
  AT_TRY_ALLOC(own, at_new(a, at_type, n->num_operands + 1));
  AT_TRY_ALLOC(p.node.operands, at_new(a, at_value, n->num_operands + 1));
  AT_TRY_ALLOC(p.node.attrs, at_new(a, at_attr, n->num_attrs + 4));
  for (uint32_t i = 0; i < n->num_attrs; i++) p.node.attrs[i] = n->attrs[i];
  AT_TRY_ALLOC(p.node.types,
               at_arena_copy(a, types, n->num_results * sizeof *types, 8));
  for (uint32_t t = 0; t < n->num_operands; t++) {
    own[t] = in[t]->type;
    leaves[t] =
        (at_node){.op = AT_OP_PARAMETER, .num_results = 1, .types = &own[t]};
    p.node.operands[t] = (at_value){&leaves[t], 0};
  }
  AT_TRY(fit(&p, n));
  bool done = false;
  AT_TRY(at_tiles_product(&p.node, in, a, out, &done));
  return done ? AT_OK : at_eval_node(&p.node, in, NULL, a, out);
}
