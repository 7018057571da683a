// Random contractions: dots with any dimension numbers, convolutions of any
// kind.
#include "hlo/random_internal.h"

enum { kMostDims = 8 };

// ---- Dots

// An operand of a dot and which of its dimensions are what.
typedef struct side {
  int64_t dims[kMostDims];
  int64_t batch[kMostDims], contract[kMostDims];
  uint32_t rank;
} side;

// Places of batch, contracted and free dimensions, in any order.
static void lay_out(at_gen *g, side *s, const int64_t *batch, uint32_t nb,
                    const int64_t *contract, uint32_t nc, const int64_t *free,
                    uint32_t nf) {
  int64_t place[kMostDims];
  s->rank = nb + nc + nf;
  for (uint32_t i = 0; i < s->rank; i++) place[i] = i;
  if (at_gen_chance(g, 60)) at_gen_shuffle(g, place, s->rank);
  for (uint32_t i = 0; i < nb; i++) {
    s->batch[i] = place[i];
    s->dims[place[i]] = batch[i];
  }
  for (uint32_t i = 0; i < nc; i++) {
    s->contract[i] = place[nb + i];
    s->dims[place[nb + i]] = contract[i];
  }
  for (uint32_t i = 0; i < nf; i++) s->dims[place[nb + nc + i]] = free[i];
}

// A value of the side's shape.
static at_status side_value(at_gen *g, const side *s, at_dtype t,
                            at_value *out) {
  at_type r = {.dtype = t, .rank = s->rank};
  int64_t *dims;
  AT_TRY_ALLOC(dims, at_gen_dims(g, s->rank));
  for (uint32_t i = 0; i < s->rank; i++) dims[i] = s->dims[i];
  r.dims = dims;
  return at_gen_like(g, r, out);
}

// Sizes of the dimensions by their kind.
typedef struct sizes {
  int64_t batch[2], contract[2], left[2], right[2];
  uint32_t nb, nc, nl, nr;
} sizes;

// A dot of two sides laid out at random; element types a, b and c of left side,
// right side and result.
static at_status build_dot(at_gen *g, const sizes *z, at_dtype a, at_dtype b,
                           at_dtype c) {
  side l, r;
  at_value x, y;
  lay_out(g, &l, z->batch, z->nb, z->contract, z->nc, z->left, z->nl);
  lay_out(g, &r, z->batch, z->nb, z->contract, z->nc, z->right, z->nr);
  AT_TRY(side_value(g, &l, a, &x));
  AT_TRY(side_value(g, &r, b, &y));
  int64_t dims[kMostDims];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < z->nb; i++) dims[rank++] = z->batch[i];
  // Free dimensions keep the order that they have in their operand.
  const side *sides[] = {&l, &r};
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; i < sides[k]->rank; i++) {
      bool taken = false;
      for (uint32_t j = 0; j < z->nb; j++) taken |= sides[k]->batch[j] == i;
      for (uint32_t j = 0; j < z->nc; j++) taken |= sides[k]->contract[j] == i;
      if (!taken) dims[rank++] = sides[k]->dims[i];
    }
  at_type t = {.dtype = c, .rank = rank, .dims = dims};
  at_step s = {.op = AT_OP_DOT_GENERAL, .types = &t, .num_types = 1};
  at_step_operand(&s, x);
  at_step_operand(&s, y);
  at_step_ints(&s, AT_ATTR_LHS_BATCHING_DIMENSIONS, l.batch, z->nb);
  at_step_ints(&s, AT_ATTR_RHS_BATCHING_DIMENSIONS, r.batch, z->nb);
  at_step_ints(&s, AT_ATTR_LHS_CONTRACTING_DIMENSIONS, l.contract, z->nc);
  at_step_ints(&s, AT_ATTR_RHS_CONTRACTING_DIMENSIONS, r.contract, z->nc);
  return at_step_build(g, &s);
}

// Up to `most` sizes whose product stays within *left, which shrinks; rarely a
// zero.
static uint32_t some(at_gen *g, int64_t *v, uint32_t most, int64_t *left) {
  uint32_t n = at_gen_below(g, most + 1);
  for (uint32_t i = 0; i < n; i++) {
    v[i] = at_gen_chance(g, 2) ? 0 : at_gen_size(g);
    if (v[i] > *left) v[i] = 1;
    if (v[i]) *left /= v[i];
  }
  return n;
}

// Limits the multiplications, not the elements.
static void random_sizes(at_gen *g, sizes *z) {
  int64_t left = 4 * g->max_elements;  // multiplications
  *z = (sizes){0};
  z->nc = some(g, z->contract, 2, &left);
  z->nl = some(g, z->left, 2, &left);
  z->nr = some(g, z->right, 2, &left);
  z->nb = some(g, z->batch, 1, &left);
}

// Few and small dimensions in any order.
at_status at_gen_dot(at_gen *g, at_op op, at_dtype t) {
  sizes z;
  (void)op;
  random_sizes(g, &z);
  return build_dot(g, &z, t, t, t);
}

// Large enough for packed products, their edges, and products with few rows.
at_status at_gen_dot_matrices(at_gen *g, at_op op, at_dtype t) {
  static const int64_t many[] = {24, 33, 48, 64, 65, 96, 100, 128};
  sizes z = {.nc = 1, .nl = 1, .nr = 1};
  (void)op;
  z.contract[0] = AT_GEN_PICK(g, many);
  z.left[0] =
      at_gen_chance(g, 30) ? 1 + at_gen_below(g, 12) : AT_GEN_PICK(g, many);
  z.right[0] =
      at_gen_chance(g, 20) ? 1 + at_gen_below(g, 12) : AT_GEN_PICK(g, many);
  if (at_gen_chance(g, 15)) z.batch[z.nb++] = 2;
  return build_dot(g, &z, t, t, t);
}

// Operands narrower than the result, of one class.
at_status at_gen_dot_mixed(at_gen *g, at_op op, at_dtype t) {
  static const at_dtype floats[] = {AT_F32, AT_F64, AT_F32, AT_BF16, AT_F16};
  static const at_dtype ints[] = {AT_S32, AT_S64, AT_U32, AT_S16, AT_U64};
  at_dtype b = at_is_float(t) ? AT_GEN_PICK(g, floats) : AT_GEN_PICK(g, ints);
  at_dtype c = at_is_float(t) ? AT_GEN_PICK(g, floats) : AT_GEN_PICK(g, ints);
  sizes z;
  (void)op;
  random_sizes(g, &z);
  // The node is counted by its result.
  return at_gen_chance(g, 50) ? build_dot(g, &z, t, b, t)
                              : build_dot(g, &z, c, t, t);
}

// The three forms: the ragged dimension is free, contracted, or a batch.
at_status at_gen_ragged_dot(at_gen *g, at_op op, at_dtype t) {
  static const int64_t zero[] = {0}, one[] = {1};
  int64_t m = 1 + at_gen_below(g, 20), k = 1 + at_gen_below(g, 9);
  int64_t n = 1 + at_gen_below(g, 9), groups = 1 + at_gen_below(g, 4);
  int64_t b = 1 + at_gen_below(g, 3), count[4], left = m;
  uint32_t mode = at_gen_below(g, 3);
  for (int64_t i = 0; i < groups; i++) {
    count[i] = at_gen_below(g, (uint32_t)left + 1);
    left -= count[i];
  }
  const int64_t a_free[] = {m, k}, w_free[] = {groups, k, n};
  const int64_t a_in[] = {k, m}, w_in[] = {m, n};
  const int64_t a_batch[] = {b, m, k}, w_batch[] = {b, k, n};
  int64_t *dims;
  AT_TRY_ALLOC(dims, at_gen_dims(g, 8));
  const int64_t *from[2] = {mode == 0   ? a_free
                            : mode == 1 ? a_in
                                        : a_batch,
                            mode == 0   ? w_free
                            : mode == 1 ? w_in
                                        : w_batch};
  uint32_t rank[2] = {mode == 2 ? 3 : 2, mode == 1 ? 2 : 3};
  for (int i = 0; i < 2; i++)
    for (uint32_t d = 0; d < rank[i]; d++) dims[4 * i + d] = from[i][d];
  at_value x, w, sizes;
  AT_TRY(
      at_gen_like(g, (at_type){.dtype = t, .rank = rank[0], .dims = dims}, &x));
  AT_TRY(at_gen_like(
      g, (at_type){.dtype = t, .rank = rank[1], .dims = dims + 4}, &w));
  if (mode == 2) {  // sizes along the batch: they add up to at most b
    left = b;
    for (int64_t i = 0; i < groups; i++) {
      count[i] = at_gen_below(g, (uint32_t)left + 1);
      left -= count[i];
    }
  }
  AT_TRY(at_gen_list(g, count, (uint32_t)groups, &sizes));
  at_step s = {.op = op};
  at_step_operand(&s, x);
  at_step_operand(&s, w);
  at_step_operand(&s, sizes);
  const int64_t contract_a[] = {mode == 2 ? 2 : 1};
  const int64_t contract_w[] = {mode == 1 ? 0 : 1};
  at_step_ints(&s, AT_ATTR_LHS_BATCHING_DIMENSIONS, zero, mode == 2);
  at_step_ints(&s, AT_ATTR_RHS_BATCHING_DIMENSIONS, zero, mode == 2);
  at_step_ints(&s, AT_ATTR_LHS_CONTRACTING_DIMENSIONS, contract_a, 1);
  at_step_ints(&s, AT_ATTR_RHS_CONTRACTING_DIMENSIONS, contract_w, 1);
  at_step_ints(&s, AT_ATTR_LHS_RAGGED_DIMENSIONS, mode == 1 ? one : zero, 1);
  at_step_ints(&s, AT_ATTR_RHS_GROUP_DIMENSIONS, zero, mode == 0);
  return at_step_build(g, &s);
}

// ---- Convolutions

typedef struct layout {  // where batch or input, features, and space lie
  int64_t first, second, spatial[3];
} layout;

// A permutation of all dimensions.
static layout random_layout(at_gen *g, uint32_t spatial) {
  int64_t v[5] = {0, 1, 2, 3, 4};
  at_gen_shuffle(g, v, spatial + 2);
  layout l = {v[0], v[1], {0}};
  for (uint32_t i = 0; i < spatial; i++) l.spatial[i] = v[2 + i];
  return l;
}

// A convolution's numbers; lists have an entry for each spatial dimension, pad
// two.
typedef struct conv {
  uint32_t spatial;
  int64_t batch, in, out, groups, batch_groups;
  int64_t size[3], window[3], stride[3], ldil[3], rdil[3], reversed[3], pad[6],
      result[3];
} conv;

// Groups of features or of the batch, strides, dilations, reversal and negative
// padding; result sizes as at_window_count gives them.
static void random_conv(at_gen *g, bool large, conv *c) {
  *c = (conv){.spatial = large ? 2 : at_gen_below(g, 4), .groups = 1};
  c->batch_groups = 1;
  uint32_t kind = at_gen_below(g, 10);
  if (kind < 3) c->groups = 2 + at_gen_below(g, 3);
  if (kind == 9) c->batch_groups = 2;
  int64_t features = large ? 8 + at_gen_below(g, 24) : 1 + at_gen_below(g, 4);
  c->in = c->groups * features;
  c->out = c->groups * c->batch_groups *
           (large ? 4 + at_gen_below(g, 28) : 1 + at_gen_below(g, 4));
  c->batch = c->batch_groups * (1 + at_gen_below(g, 2));
  bool plain = at_gen_chance(g, 40);
  for (uint32_t i = 0; i < c->spatial; i++) {
    c->size[i] = 1 + at_gen_below(g, large ? 14 : 7);
    c->window[i] = 1 + at_gen_below(g, 3);
    c->stride[i] = plain ? 1 : 1 + at_gen_below(g, 2);
    c->ldil[i] = plain ? 1 : 1 + at_gen_chance(g, 25);
    c->rdil[i] = plain ? 1 : 1 + at_gen_chance(g, 25);
    c->reversed[i] = plain ? 0 : at_gen_chance(g, 25);
    c->pad[2 * i] = (int64_t)at_gen_below(g, 4) - !plain;
    c->pad[2 * i + 1] = (int64_t)at_gen_below(g, 4) - !plain;
    int64_t padded =
        (c->size[i] - 1) * c->ldil[i] + 1 + c->pad[2 * i] + c->pad[2 * i + 1];
    int64_t span = (c->window[i] - 1) * c->rdil[i] + 1;
    c->result[i] =
        padded < span || padded <= 0 ? 0 : (padded - span) / c->stride[i] + 1;
  }
}

// One of the two arrays, its dimensions where the layout has them.
static at_status conv_operand(at_gen *g, at_dtype t, const layout *l,
                              uint32_t spatial, int64_t first, int64_t second,
                              const int64_t *size, at_value *out) {
  int64_t *dims;
  AT_TRY_ALLOC(dims, at_gen_dims(g, spatial + 2));
  dims[l->first] = first;
  dims[l->second] = second;
  for (uint32_t i = 0; i < spatial; i++) dims[l->spatial[i]] = size[i];
  return at_gen_like(
      g, (at_type){.dtype = t, .rank = spatial + 2, .dims = dims}, out);
}

// The dynamic form takes the padding as an operand and declares its result.
at_status at_gen_convolution(at_gen *g, at_op op, at_dtype t) {
  conv c;
  random_conv(g, at_gen_chance(g, 25), &c);
  layout in = random_layout(g, c.spatial), kernel = random_layout(g, c.spatial),
         out = random_layout(g, c.spatial);
  at_value x, k, pad;
  AT_TRY(conv_operand(g, t, &in, c.spatial, c.batch, c.in, c.size, &x));
  AT_TRY(conv_operand(g, t, &kernel, c.spatial, c.in / c.groups, c.out,
                      c.window, &k));
  at_step s = {.op = op};
  int64_t dims[5];
  at_type r = {.dtype = t, .rank = c.spatial + 2, .dims = dims};
  at_step_operand(&s, x);
  at_step_operand(&s, k);
  if (op == AT_OP_DYNAMIC_CONV) {
    int64_t *shape;
    const at_literal *l;
    AT_TRY_ALLOC(shape, at_gen_dims(g, 2));
    shape[0] = c.spatial;
    shape[1] = 2;
    at_type pt = {.dtype = AT_S64, .rank = 2, .dims = shape};
    AT_TRY(at_literal_make(g->a, pt, c.pad, false, false, &l));
    AT_TRY(at_build_constant(g->c, NULL, l, &pad));
    at_step_operand(&s, pad);
    dims[out.first] = c.batch / c.batch_groups;
    dims[out.second] = c.out;
    for (uint32_t i = 0; i < c.spatial; i++) dims[out.spatial[i]] = c.result[i];
    s.types = &r;
    s.num_types = 1;
  } else {
    at_step_ints(&s, AT_ATTR_PADDING, c.pad, 2 * c.spatial);
  }
  at_step_ints(&s, AT_ATTR_WINDOW_STRIDES, c.stride, c.spatial);
  at_step_ints(&s, AT_ATTR_LHS_DILATION, c.ldil, c.spatial);
  at_step_ints(&s, AT_ATTR_RHS_DILATION, c.rdil, c.spatial);
  at_step_ints(&s, AT_ATTR_WINDOW_REVERSAL, c.reversed, c.spatial);
  at_step_int(&s, AT_ATTR_INPUT_BATCH_DIMENSION, in.first);
  at_step_int(&s, AT_ATTR_INPUT_FEATURE_DIMENSION, in.second);
  at_step_ints(&s, AT_ATTR_INPUT_SPATIAL_DIMENSIONS, in.spatial, c.spatial);
  at_step_int(&s, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, kernel.first);
  at_step_int(&s, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, kernel.second);
  at_step_ints(&s, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS, kernel.spatial,
               c.spatial);
  at_step_int(&s, AT_ATTR_OUTPUT_BATCH_DIMENSION, out.first);
  at_step_int(&s, AT_ATTR_OUTPUT_FEATURE_DIMENSION, out.second);
  at_step_ints(&s, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, out.spatial, c.spatial);
  at_step_int(&s, AT_ATTR_FEATURE_GROUP_COUNT, c.groups);
  at_step_int(&s, AT_ATTR_BATCH_GROUP_COUNT, c.batch_groups);
  return at_step_build(g, &s);
}
