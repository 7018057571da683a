// What each block of a node's result needs of its operands.
//
// at_rule (passes/shard.h) says which dimensions of operands and results are
// cut together: each is a factor. It leaves dimensions whole whose blocks
// overlap in the operand or are shifted there: those of convolutions, windows,
// slices, paddings, concatenations and reversals. On tiles these are worth
// cutting, too, since neighbours only exchange the overlap. So such a dimension
// of a result gets a factor of its own, and a window (at_tiles_window) says
// which elements of the operand's dimension a block [lo, hi) of it reads:
//   from lo * scale + first  up to  (hi - 1) * scale + first + extent,
// divided by `holes` (rounded up) where the operand has holes between its
// elements, and clipped to the elements that there are.
#include "tiles/lower_internal.h"

// A factor of our own for dimension d of the result, which the rule leaves
// whole. `windows`: how many come with it. False: the dimension has factors or
// is one element, or there is no room; it stays whole then.
static bool own_factor(at_tiles_rule *r, uint32_t result, uint32_t d,
                       uint32_t windows, uint32_t *out) {
  at_rule *x = &r->r;
  if (x->dims[result][d].n || x->num_factors >= kTilesFactors ||
      windows > kTilesFactors - r->num_windows ||
      x->places[result]->whole.dims[d] < 2)
    return false;
  *out = x->num_factors++;
  x->size[*out] = x->places[result]->whole.dims[d];
  x->kind[*out] = AT_FACTOR_PASS;
  x->dims[result][d] = (at_dim_factors){1, {(uint8_t)*out}};
  return true;
}

// Notes a window of a factor that own_factor has found room for.
static void add_window(at_tiles_rule *r, at_tiles_window w) {
  AT_ASSERT(r->num_windows < kTilesFactors && w.factor < r->r.num_factors);
  r->windows[r->num_windows++] = w;
}

// Reversed dimensions are cut from the other end: block [lo, hi) of the result
// reads [n - hi, n - lo).
static void mirrored_windows(at_tiles_rule *r, const at_node *n) {
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  for (uint32_t i = 0; i < dims.rank; i++) {
    uint32_t d = (uint32_t)dims.ptr[i], f;
    if (r->r.dims[1][d].n) r->r.size[r->r.dims[1][d].f[0]] = 1;
    r->r.dims[0][d].n = r->r.dims[1][d].n = 0;
    if (own_factor(r, 1, d, 1, &f))
      add_window(r, (at_tiles_window){f, 0, d, 1, 0, 1, 1, true});
  }
}

// Entry i of a list that may be shorter or absent.
static int64_t at_or(at_dims list, uint32_t i, int64_t absent) {
  return i < list.rank ? list.ptr[i] : absent;
}

// Output i reads `extent` = (k - 1) * rhs_dilation + 1 positions of the dilated
// input, from i * stride - padding on.
static void convolution_windows(at_tiles_rule *r, const at_node *n) {
  at_dims in = at_node_ints(n, AT_ATTR_INPUT_SPATIAL_DIMENSIONS);
  at_dims kernel = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  at_dims outs = at_node_ints(n, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  at_dims pad = at_node_ints(n, AT_ATTR_PADDING),
          strides = at_node_ints(n, AT_ATTR_WINDOW_STRIDES);
  at_dims holes = at_node_ints(n, AT_ATTR_LHS_DILATION),
          spread = at_node_ints(n, AT_ATTR_RHS_DILATION);
  for (uint32_t i = 0; i < outs.rank; i++) {
    uint32_t f;
    if (!own_factor(r, 2, (uint32_t)outs.ptr[i], 1, &f)) continue;
    int64_t k = r->r.places[1]->whole.dims[kernel.ptr[i]];
    add_window(r, (at_tiles_window){f, 0, (uint32_t)in.ptr[i],
                                    at_or(strides, i, 1), -at_or(pad, 2 * i, 0),
                                    (k - 1) * at_or(spread, i, 1) + 1,
                                    at_or(holes, i, 1), false});
  }
}

// As convolutions, for every operand of the reduction; all results are cut
// alike.
static void reduce_windows(at_tiles_rule *r, const at_node *n) {
  at_dims size = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS),
          strides = at_node_ints(n, AT_ATTR_WINDOW_STRIDES);
  at_dims pad = at_node_ints(n, AT_ATTR_PADDING),
          holes = at_node_ints(n, AT_ATTR_BASE_DILATIONS);
  at_dims spread = at_node_ints(n, AT_ATTR_WINDOW_DILATIONS);
  uint32_t k = n->num_results, f;
  for (uint32_t d = 0; d < size.rank; d++) {
    if (!own_factor(r, n->num_operands, d, k, &f)) continue;
    for (uint32_t t = 0; t < k; t++) {
      if (t) r->r.dims[n->num_operands + t][d] = r->r.dims[n->num_operands][d];
      add_window(r, (at_tiles_window){
                        f, t, d, at_or(strides, d, 1), -at_or(pad, 2 * d, 0),
                        (size.ptr[d] - 1) * at_or(spread, d, 1) + 1,
                        at_or(holes, d, 1), false});
    }
  }
}

// Slices read i * stride + start, paddings (i - low) / (1 + interior), and of a
// concatenation each operand what lies behind those before it.
static void moving_windows(at_tiles_rule *r, const at_node *n) {
  at_dims starts = at_node_ints(n, AT_ATTR_START_INDICES),
          strides = at_node_ints(n, AT_ATTR_STRIDES);
  at_dims low = at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW),
          inside = at_node_ints(n, AT_ATTR_INTERIOR_PADDING);
  int64_t along = at_node_int(n, AT_ATTR_DIMENSION, -1);
  uint32_t f, rank = r->r.places[n->num_operands]->whole.rank;
  uint32_t windows = n->op == AT_OP_CONCATENATE ? n->num_operands : 1;
  for (uint32_t d = 0; d < rank; d++) {
    if (n->op == AT_OP_CONCATENATE && d != (uint64_t)along) continue;
    if (!own_factor(r, n->num_operands, d, windows, &f)) continue;
    int64_t at = 0;
    if (n->op == AT_OP_SLICE)
      add_window(r, (at_tiles_window){f, 0, d, at_or(strides, d, 1),
                                      at_or(starts, d, 0), 1, 1, false});
    if (n->op == AT_OP_PAD)
      add_window(r, (at_tiles_window){f, 0, d, 1, -at_or(low, d, 0), 1,
                                      1 + at_or(inside, d, 0), false});
    for (uint32_t t = 0; n->op == AT_OP_CONCATENATE && t < n->num_operands;
         t++) {
      add_window(r, (at_tiles_window){f, t, d, 1, -at, 1, 1, false});
      at += r->r.places[t]->whole.dims[d];
    }
  }
}

// See lower_internal.h.
at_status at_tiles_rule_make(at_arena *a, const at_node *n,
                             at_tiles_rule *out) {
  *out = (at_tiles_rule){0};
  AT_TRY(at_rule_make(a, n, &out->r));
  if (out->r.num_factors > kTilesFactors)
    return AT_FAIL(AT_UNIMPLEMENTED, "%s with %u factors on tiles",
                   at_op_text(n->op), out->r.num_factors);
  for (uint32_t t = 0; t < out->r.num_tensors; t++)
    if (out->r.places[t] && out->r.places[t]->whole.rank > kTilesRank)
      return AT_FAIL(AT_UNIMPLEMENTED, "%s of rank %u on tiles",
                     at_op_text(n->op), out->r.places[t]->whole.rank);
  if (n->op == AT_OP_CONVOLUTION) convolution_windows(out, n);
  if (n->op == AT_OP_REDUCE_WINDOW) reduce_windows(out, n);
  if (n->op == AT_OP_REVERSE) mirrored_windows(out, n);
  if (n->op == AT_OP_SLICE || n->op == AT_OP_PAD || n->op == AT_OP_CONCATENATE)
    moving_windows(out, n);
  return AT_OK;
}

// The window of dimension d of tensor t, or NULL.
static const at_tiles_window *window_of(const at_tiles_rule *r, uint32_t t,
                                        uint32_t d) {
  for (uint32_t i = 0; i < r->num_windows; i++)
    if (r->windows[i].tensor == t && r->windows[i].dim == d)
      return &r->windows[i];
  return NULL;
}

static int64_t clamp(int64_t x, int64_t n) { return x < 0 ? 0 : x > n ? n : x; }
// a / b rounded down, for b > 0.
static int64_t floor_div(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

// The cuts of an operand's dimension of n elements: what each block of factor
// `g` reads there. They may overlap, which the caller's lay has to bear.
static at_status window_dim(at_arena *a, const at_tiles_window *w,
                            const at_tiles_dim *g, int64_t n,
                            at_tiles_dim *out) {
  int64_t *b;
  AT_TRY_ALLOC(b, at_new(a, int64_t, 2 * (size_t)g->cuts));
  for (int64_t k = 0; w->mirrored && k < g->cuts; k++)
    b[k] = n - g->end[k], b[g->cuts + k] = n - g->bound[k];
  for (int64_t k = 0; !w->mirrored && k < g->cuts; k++) {
    int64_t lo = g->bound[k] * w->scale + w->first,
            hi = (g->end[k] - 1) * w->scale + w->first + w->extent;
    b[k] = clamp(floor_div(lo + w->holes - 1, w->holes), n);
    b[g->cuts + k] =
        AT_MAX(clamp(floor_div(hi + w->holes - 1, w->holes), n), b[k]);
    if (g->end[k] <= g->bound[k]) b[g->cuts + k] = b[k];
    AT_ASSERT(b[k] >= 0 && b[g->cuts + k] <= n);
  }
  *out = (at_tiles_dim){g->cuts, b, b + g->cuts, g->off};
  return AT_OK;
}

// Factor f is the first of a dimension of n elements.
static at_status scaled_dim(at_arena *a, const at_tiles_dim *g, int64_t size,
                            int64_t n, at_tiles_dim *out) {
  if (size == n) return *out = *g, AT_OK;
  int64_t *b, inner = size ? n / size : 0;
  AT_ASSERT(!size || n % size == 0);
  AT_TRY_ALLOC(b, at_new(a, int64_t, (size_t)g->cuts + 1));
  for (int64_t k = 0; k < g->cuts; k++) b[k] = g->bound[k] * inner;
  b[g->cuts] = n;
  *out = (at_tiles_dim){g->cuts, b, b + 1, g->off};
  return AT_OK;
}

// For qsort: ascending.
static int by_tile(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

// Tensor t's cuts under grid g, and the tiles that have the same block of it:
// one for each way to choose a cut of the factors that t does not have.
at_status at_tiles_grid_lay(at_arena *a, const at_tiles_rule *rule,
                            const at_tiles_grid *g, uint32_t t,
                            at_tiles_lay *out, uint32_t **group,
                            uint32_t *num_group) {
  const at_rule *r = &rule->r;
  const at_place *p = r->places[t];
  out->rank = p ? p->whole.rank : 0;
  uint32_t used = 0;
  for (uint32_t d = 0; d < out->rank; d++) {
    const at_dim_factors *x = &r->dims[t][d];
    const at_tiles_window *w = x->n ? NULL : window_of(rule, t, d);
    int64_t n = p->whole.dims[d];
    if (w) {
      used |= 1u << w->factor;
      AT_TRY(window_dim(a, w, &g->dim[w->factor], n, &out->dim[d]));
    } else if (x->n) {
      used |= 1u << x->f[0];
      AT_TRY(
          scaled_dim(a, &g->dim[x->f[0]], r->size[x->f[0]], n, &out->dim[d]));
    } else {
      AT_TRY(at_tiles_dim_whole(a, n, &out->dim[d]));
    }
  }
  int64_t n = 1;
  for (uint32_t f = 0; f < g->num; f++)
    if (!(used >> f & 1)) n *= g->dim[f].cuts;
  uint32_t *list, len = 1;
  AT_TRY_ALLOC(list, at_new(a, uint32_t, (size_t)n));
  for (uint32_t f = 0; f < g->num; f++) {
    const at_tiles_dim *d = &g->dim[f];
    if (used >> f & 1) continue;
    uint32_t before = len;
    for (int64_t c = d->cuts; c-- > 0;)
      for (uint32_t i = 0; i < before; i++)
        list[(size_t)c * before + i] = list[i] + d->off[c];
    len = before * (uint32_t)d->cuts;
  }
  AT_ASSERT(len == n);
  qsort(list, len, sizeof *list, by_tile);
  *group = list;
  *num_group = len;
  return AT_OK;
}
