// The products of f32: operands are packed into the order of their vectors, and
// rows are added up in f32, as a tile's multiplier does.
#include "tiles/lower_internal.h"

// Dense f32 elements of `l` with the dimensions of `order`, major to minor.
static at_status pack(at_arena *a, const at_literal *l, const uint32_t *order,
                      float **out) {
  uint32_t rank = l->type.rank;
  int64_t stride[kTilesRank], n = at_type_elements(&l->type), each = 1;
  int64_t index[kTilesRank] = {0}, step[kTilesRank], size[kTilesRank];
  AT_TRY_ALLOC(*out, at_new(a, float, (size_t)n + 1));
  for (uint32_t d = rank; d-- > 0; each *= l->type.dims[d]) stride[d] = each;
  for (uint32_t d = 0; d < rank; d++)
    step[d] = l->splat ? 0 : stride[order[d]], size[d] = l->type.dims[order[d]];
  const float *from = l->data;
  int64_t row = rank ? size[rank - 1] : 1, by = rank ? step[rank - 1] : 0;
  for (int64_t done = 0; done < n; done += row) {
    int64_t at = 0;
    for (uint32_t d = 0; d + 1 < rank; d++) at += index[d] * step[d];
    for (int64_t i = 0; i < row; i++) (*out)[done + i] = from[at + i * by];
    for (uint32_t d = rank ? rank - 1 : 0; d-- > 0;) {
      if (++index[d] < size[d]) break;
      index[d] = 0;
    }
  }
  return AT_OK;
}

// to[i] += by * row[i]: one row of products.
static void add_row(float *restrict to, const float *restrict row, float by,
                    int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] += by * row[i];
}

// Is d in the list?
static bool listed(at_dims list, uint32_t d) {
  for (uint32_t i = 0; i < list.rank; i++)
    if (list.ptr[i] == d) return true;
  return false;
}

// ---- dot_general
// The order that pack wants: batch dimensions, then the summed and the free
// ones, or the other way round. *free_size: elements of the free ones.
static void order_of(const at_type *t, at_dims batch, at_dims summed,
                     bool sums_first, uint32_t *order, int64_t *free_size) {
  uint32_t n = 0;
  *free_size = 1;
  for (uint32_t i = 0; i < batch.rank; i++) order[n++] = (uint32_t)batch.ptr[i];
  for (uint32_t i = 0; sums_first && i < summed.rank; i++)
    order[n++] = (uint32_t)summed.ptr[i];
  for (uint32_t d = 0; d < t->rank; d++)
    if (!listed(batch, d) && !listed(summed, d))
      order[n++] = d, *free_size *= t->dims[d];
  for (uint32_t i = 0; !sums_first && i < summed.rank; i++)
    order[n++] = (uint32_t)summed.ptr[i];
}

// out[b, i, j] = sum over k in f32, in the order of k.
static at_status dot(const at_node *n, const at_literal *const *in, at_arena *a,
                     float *out) {
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS),
          rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS),
          lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS),
          rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  uint32_t lo[kTilesRank], ro[kTilesRank];
  int64_t rows, columns, depth = 1, batch = 1;
  float *x, *y;
  order_of(&in[0]->type, lb, lc, false, lo, &rows);
  order_of(&in[1]->type, rb, rc, true, ro, &columns);
  for (uint32_t i = 0; i < lc.rank; i++) depth *= in[0]->type.dims[lc.ptr[i]];
  for (uint32_t i = 0; i < lb.rank; i++) batch *= in[0]->type.dims[lb.ptr[i]];
  AT_TRY(pack(a, in[0], lo, &x));
  AT_TRY(pack(a, in[1], ro, &y));
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t k = 0; k < depth; k++)
        add_row(out + (b * rows + i) * columns, y + (b * depth + k) * columns,
                x[(b * rows + i) * depth + k], columns);
  return AT_OK;
}

// ---- convolution
at_tiles_spatial at_tiles_spatial_of(const at_node *n,
                                     const at_literal *const *in) {
  at_dims i = at_node_ints(n, AT_ATTR_INPUT_SPATIAL_DIMENSIONS),
          k = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS),
          o = at_node_ints(n, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS),
          pad = at_node_ints(n, AT_ATTR_PADDING),
          strides = at_node_ints(n, AT_ATTR_WINDOW_STRIDES),
          holes = at_node_ints(n, AT_ATTR_LHS_DILATION),
          spread = at_node_ints(n, AT_ATTR_RHS_DILATION);
  at_tiles_spatial s = {.rank = o.rank};
  for (uint32_t d = 0; d < o.rank; d++) {
    s.in[d] = in[0]->type.dims[i.ptr[d]];
    s.kernel[d] = in[1]->type.dims[k.ptr[d]];
    s.out[d] = n->types[0].dims[o.ptr[d]];
    s.low[d] = 2 * d < pad.rank ? pad.ptr[2 * d] : 0;
    s.stride[d] = d < strides.rank ? strides.ptr[d] : 1;
    s.holes[d] = d < holes.rank ? holes.ptr[d] : 1;
    s.spread[d] = d < spread.rank ? spread.ptr[d] : 1;
  }
  return s;
}

// The input position that tap k of output o sees; -1: padding or a hole.
static int64_t input_at(const at_tiles_spatial *s, const int64_t *o,
                        const int64_t *k) {
  int64_t at = 0;
  for (uint32_t d = 0; d < s->rank; d++) {
    int64_t p = o[d] * s->stride[d] + k[d] * s->spread[d] - s->low[d];
    if (p < 0 || p % s->holes[d] || p / s->holes[d] >= s->in[d]) return -1;
    at = at * s->in[d] + p / s->holes[d];
  }
  return at;
}

// Counts index up, the last dimension fastest; false after the last one.
static bool next_index(const int64_t *size, uint32_t rank, int64_t *index) {
  for (uint32_t d = rank; d-- > 0;) {
    if (++index[d] < size[d]) return true;
    index[d] = 0;
  }
  return false;
}

// 1 for no numbers. Sizes of blocks, so it fits.
static int64_t product_of(const int64_t *v, uint32_t n) {
  int64_t p = 1;
  for (uint32_t i = 0; i < n; i++) p *= v[i];
  return p;
}

// out[n, o, f] += in[n, i, c] * kernel[k, c, f].
static void convolve(const at_tiles_spatial *s, const float *x, const float *w,
                     int64_t batch, int64_t channels, int64_t features,
                     float *out) {
  int64_t ins = product_of(s->in, s->rank), o[kTilesRank] = {0}, at = 0;
  if (!product_of(s->out, s->rank) || !product_of(s->kernel, s->rank)) return;
  do {
    int64_t k[kTilesRank] = {0}, tap = 0;
    do {
      int64_t i = input_at(s, o, k);
      for (int64_t b = 0; i >= 0 && b < batch; b++)
        for (int64_t c = 0; c < channels; c++)
          add_row(out + (at * batch + b) * features,
                  w + (tap * channels + c) * features,
                  x[(b * ins + i) * channels + c], features);
      tap++;
    } while (next_index(s->kernel, s->rank, k));
    at++;
  } while (next_index(s->out, s->rank, o));
}

// Packs operands as [batch, spatial, channel] and [taps, channel, feature],
// convolves, and puts the result in its own order.
static at_status convolution(const at_node *n, const at_literal *const *in,
                             at_arena *a, float *out) {
  at_dims si = at_node_ints(n, AT_ATTR_INPUT_SPATIAL_DIMENSIONS),
          sk = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS),
          so = at_node_ints(n, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  uint32_t ib = (uint32_t)at_node_int(n, AT_ATTR_INPUT_BATCH_DIMENSION, 0),
           jf = (uint32_t)at_node_int(n, AT_ATTR_INPUT_FEATURE_DIMENSION, 0),
           ki = (uint32_t)at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION,
                                      0),
           ko = (uint32_t)at_node_int(
               n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0),
           ob = (uint32_t)at_node_int(n, AT_ATTR_OUTPUT_BATCH_DIMENSION, 0),
           of = (uint32_t)at_node_int(n, AT_ATTR_OUTPUT_FEATURE_DIMENSION, 0);
  at_tiles_spatial s = at_tiles_spatial_of(n, in);
  uint32_t xi[kTilesRank] = {ib}, wi[kTilesRank];
  for (uint32_t d = 0; d < s.rank; d++)
    xi[d + 1] = (uint32_t)si.ptr[d], wi[d] = (uint32_t)sk.ptr[d];
  xi[s.rank + 1] = jf;
  wi[s.rank] = ki, wi[s.rank + 1] = ko;
  int64_t batch = in[0]->type.dims[ib], features = in[1]->type.dims[ko],
          all = at_type_elements(&n->types[0]);
  float *x, *w, *made;
  AT_TRY(pack(a, in[0], xi, &x));
  AT_TRY(pack(a, in[1], wi, &w));
  AT_TRY_ALLOC(made, at_new(a, float, (size_t)all + 1));
  convolve(&s, x, w, batch, in[0]->type.dims[jf], features, made);
  // From [o, n, f] to the result's order.
  int64_t stride[kTilesRank], each = 1, o[kTilesRank] = {0}, at = 0;
  for (uint32_t d = n->types[0].rank; d-- > 0; each *= n->types[0].dims[d])
    stride[d] = each;
  if (!all) return AT_OK;
  do {
    int64_t base = 0;
    for (uint32_t d = 0; d < s.rank; d++) base += o[d] * stride[so.ptr[d]];
    for (int64_t b = 0; b < batch; b++)
      for (int64_t f = 0; f < features; f++)
        out[base + b * stride[ob] + f * stride[of]] =
            made[(at * batch + b) * features + f];
    at++;
  } while (next_index(s.out, s.rank, o));
  return AT_OK;
}

// No groups and no reversed windows.
static bool plain_convolution(const at_node *n) {
  at_dims turned = at_node_ints(n, AT_ATTR_WINDOW_REVERSAL);
  for (uint32_t i = 0; i < turned.rank; i++)
    if (turned.ptr[i]) return false;
  return at_node_int(n, AT_ATTR_FEATURE_GROUP_COUNT, 1) == 1 &&
         at_node_int(n, AT_ATTR_BATCH_GROUP_COUNT, 1) == 1;
}

// Only f32 throughout, as the multiplier adds up in f32.
at_status at_tiles_product(const at_node *n, const at_literal *const *in,
                           at_arena *a, const at_literal **out, bool *done) {
  bool is_dot = n->op == AT_OP_DOT_GENERAL;
  *done = is_dot || (n->op == AT_OP_CONVOLUTION && plain_convolution(n));
  *done = *done && n->types[0].dtype == AT_F32 && in[0]->type.dtype == AT_F32 &&
          in[1]->type.dtype == AT_F32;
  if (!*done) return AT_OK;
  float *sum;
  AT_TRY_ALLOC(sum,
               at_new(a, float, (size_t)at_type_elements(&n->types[0]) + 1));
  AT_TRY(is_dot ? dot(n, in, a, sum) : convolution(n, in, a, sum));
  return at_literal_make(a, n->types[0], sum, false, true, out);
}
