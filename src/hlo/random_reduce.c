// Random reductions, windows, orders and norms.
#include "hlo/random_internal.h"

// Products of floats are left out: they soon overflow.
at_op at_gen_reducer(at_gen *g, at_dtype t) {
  static const at_op numbers[] = {AT_OP_ADD, AT_OP_ADD, AT_OP_MAXIMUM,
                                  AT_OP_MINIMUM};
  static const at_op ints[] = {AT_OP_ADD,     AT_OP_MULTIPLY, AT_OP_MAXIMUM,
                               AT_OP_MINIMUM, AT_OP_AND,      AT_OP_OR,
                               AT_OP_XOR};
  static const at_op bools[] = {AT_OP_AND, AT_OP_OR, AT_OP_XOR, AT_OP_MAXIMUM,
                                AT_OP_ADD};
  if (at_is_complex(t)) return AT_OP_ADD;
  if (at_is_int(t)) return AT_GEN_PICK(g, ints);
  return t == AT_PRED ? AT_GEN_PICK(g, bools) : AT_GEN_PICK(g, numbers);
}

static at_status reducer_region(at_gen *g, at_dtype t, at_comp **out) {
  return at_gen_binary_region(g, at_gen_reducer(g, t), t, out);
}

// Any dimensions in any order, also none.
at_status at_gen_reduce(at_gen *g, at_op op, at_dtype d) {
  at_value x, init;
  int64_t *dims;
  AT_TRY(at_gen_value(g, d, &x));
  const at_type *t = at_value_type(x);
  AT_TRY_ALLOC(dims, at_gen_dims(g, t->rank));
  for (uint32_t i = 0; i < t->rank; i++) dims[i] = i;
  at_gen_shuffle(g, dims, t->rank);
  AT_TRY(at_gen_like(g, at_type_scalar(d), &init));
  at_step s = {.op = op, .num_regions = 1};
  at_step_operand(&s, x);
  at_step_operand(&s, init);
  at_step_ints(&s, AT_ATTR_DIMENSIONS, dims, at_gen_below(g, t->rank + 1));
  AT_TRY(reducer_region(g, d, &s.regions[0]));
  return at_step_build(g, &s);
}

// JAX's body: (v0, i0, v1, i1) -> the larger value, the lower index of equals,
// NaN before all.
static at_status arg_max_region(at_gen *g, at_dtype t, at_comp **out) {
  at_value p[4], gt, nan, pick, eq, lower, r[2];
  at_comp *c;
  AT_TRY(at_region_create(g->m, &c));
  for (int i = 0; i < 4; i++)
    AT_TRY(at_build_param(c, at_type_scalar(i % 2 ? AT_S32 : t), NULL, &p[i]));
  const struct {
    int a, b, direction;
    at_value *to;
  } compares[] = {{0, 2, AT_GT, &gt},
                  {0, 0, AT_NE, &nan},
                  {0, 2, AT_EQ, &eq},
                  {1, 3, AT_LT, &lower}};
  for (size_t i = 0; i < AT_LEN(compares); i++) {
    at_step s = {.op = AT_OP_COMPARE};
    at_step_operand(&s, p[compares[i].a]);
    at_step_operand(&s, p[compares[i].b]);
    at_step_int(&s, AT_ATTR_COMPARISON_DIRECTION, compares[i].direction);
    AT_TRY(at_step_in(c, &s, compares[i].to));
  }
  AT_TRY(at_build_op(c, NULL, AT_OP_OR, (at_value[]){gt, nan}, 2, NULL, &pick));
  AT_TRY(
      at_build_op(c, NULL, AT_OP_AND, (at_value[]){eq, lower}, 2, NULL, &eq));
  AT_TRY(at_build_op(c, NULL, AT_OP_OR, (at_value[]){pick, eq}, 2, NULL, &eq));
  AT_TRY(at_build_op(c, NULL, AT_OP_SELECT, (at_value[]){pick, p[0], p[2]}, 3,
                     NULL, &r[0]));
  AT_TRY(at_build_op(c, NULL, AT_OP_SELECT, (at_value[]){eq, p[1], p[3]}, 3,
                     NULL, &r[1]));
  *out = c;
  return at_comp_return(c, r, 2);
}

// Of integers the least number, of floats -inf.
static at_status lowest(at_gen *g, at_dtype t, at_value *out) {
  if (at_is_float(t))
    return at_gen_float(g, g->c, at_type_scalar(t), -__builtin_inf(), out);
  int bits = at_dtype_of(t)->bits;
  return at_gen_int(g, g->c, t,
                    at_is_signed_int(t) ? (int64_t)(-1ull << (bits - 1)) : 0,
                    out);
}

// Values and their positions along one dimension, reduced together.
at_status at_gen_arg_max(at_gen *g, at_op op, at_dtype d) {
  at_value x, index, init[2];
  int64_t *dim;
  AT_TRY(at_gen_ranked(g, d, 1, 4, &x));
  const at_type *t = at_value_type(x);
  AT_TRY_ALLOC(dim, at_gen_dims(g, 1));
  dim[0] = at_gen_below(g, t->rank);
  at_type it = at_type_with(*t, AT_S32);
  at_step iota = {.op = AT_OP_IOTA, .types = &it, .num_types = 1};
  at_step_int(&iota, AT_ATTR_DIMENSION, dim[0]);
  AT_TRY(at_step_in(g->c, &iota, &index));
  AT_TRY(lowest(g, d, &init[0]));
  AT_TRY(at_gen_int(g, g->c, AT_S32, 0, &init[1]));
  at_step s = {.op = op, .num_regions = 1};
  at_step_operand(&s, x);
  at_step_operand(&s, index);
  at_step_operand(&s, init[0]);
  at_step_operand(&s, init[1]);
  at_step_ints(&s, AT_ATTR_DIMENSIONS, dim, 1);
  AT_TRY(arg_max_region(g, d, &s.regions[0]));
  return at_step_build(g, &s);
}

// What leaves `op` unchanged: a pass and a kernel look for it.
static at_status identity(at_gen *g, at_op op, at_dtype t, at_value *out) {
  at_type s = at_type_scalar(t);
  if (op == AT_OP_MAXIMUM && t != AT_PRED) return lowest(g, t, out);
  if (op == AT_OP_MINIMUM && at_is_float(t))
    return at_gen_float(g, g->c, s, __builtin_inf(), out);
  if (op == AT_OP_MINIMUM && at_is_int(t))
    return at_gen_int(
        g, g->c, t,
        (int64_t)((1ull << (at_dtype_of(t)->bits - at_is_signed_int(t)) % 64) -
                  1),
        out);
  int64_t v = op == AT_OP_MULTIPLY ? 1 : op == AT_OP_AND ? -1 : 0;
  if (at_is_float(t) || at_is_complex(t))
    return at_gen_float(g, g->c, s, (double)v, out);
  return at_gen_int(g, g->c, t, t == AT_PRED ? v != 0 : v, out);
}

// Initial values that change nothing, or any.
at_status at_gen_scan(at_gen *g, at_op op, at_dtype d) {
  at_value x, init;
  at_op body = at_gen_reducer(g, d);
  AT_TRY(at_gen_ranked(g, d, 1, 5, &x));
  if (at_gen_chance(g, 60))
    AT_TRY(identity(g, body, d, &init));
  else
    AT_TRY(at_gen_like(g, at_type_scalar(d), &init));
  at_step s = {.op = op, .num_regions = 1};
  at_step_operand(&s, x);
  at_step_operand(&s, init);
  at_step_int(&s, AT_ATTR_DIMENSION, at_gen_below(g, at_value_type(x)->rank));
  at_step_int(&s, AT_ATTR_REVERSE, at_gen_below(g, 2));
  AT_TRY(at_gen_binary_region(g, body, d, &s.regions[0]));
  return at_step_build(g, &s);
}

// Strides, dilations and padding, also negative.
at_status at_gen_window(at_gen *g, at_op op, at_dtype d) {
  at_value x, init;
  int64_t *v;
  AT_TRY(at_gen_value(g, d, &x));
  uint32_t r = at_value_type(x)->rank;
  AT_TRY_ALLOC(v, at_gen_dims(g, 6 * r));
  int64_t *stride = v + r, *pad = stride + r, *base = pad + 2 * r,
          *dilation = base + r;
  for (uint32_t i = 0; i < r; i++) {
    v[i] = 1 + at_gen_below(g, 3);
    stride[i] = 1 + at_gen_below(g, 2);
    pad[2 * i] = (int64_t)at_gen_below(g, 4) - 1;
    pad[2 * i + 1] = (int64_t)at_gen_below(g, 4) - 1;
    base[i] = 1 + at_gen_chance(g, 15);
    dilation[i] = 1 + at_gen_chance(g, 15);
  }
  at_op body = at_gen_reducer(g, d);
  if (at_gen_chance(g, 50))
    AT_TRY(identity(g, body, d, &init));
  else
    AT_TRY(at_gen_like(g, at_type_scalar(d), &init));
  at_step s = {.op = op, .num_regions = 1};
  at_step_operand(&s, x);
  at_step_operand(&s, init);
  at_step_ints(&s, AT_ATTR_WINDOW_DIMENSIONS, v, r);
  at_step_ints(&s, AT_ATTR_WINDOW_STRIDES, stride, r);
  at_step_ints(&s, AT_ATTR_BASE_DILATIONS, base, r);
  at_step_ints(&s, AT_ATTR_WINDOW_DILATIONS, dilation, r);
  at_step_ints(&s, AT_ATTR_PADDING, pad, 2 * r);
  AT_TRY(at_gen_binary_region(g, body, d, &s.regions[0]));
  return at_step_build(g, &s);
}

// A full-length window along one dimension: what JAX sends for cumsum.
at_status at_gen_window_running(at_gen *g, at_op op, at_dtype d) {
  at_value x, init;
  int64_t *v;
  AT_TRY(at_gen_ranked(g, d, 1, 4, &x));
  const at_type *t = at_value_type(x);
  uint32_t r = t->rank, along = at_gen_below(g, r);
  AT_TRY_ALLOC(v, at_gen_dims(g, 3 * r));
  int64_t *pad = v + r;
  for (uint32_t i = 0; i < r; i++) v[i] = 1;
  v[along] = t->dims[along];
  pad[2 * along + at_gen_below(g, 2)] = t->dims[along] - 1;
  at_op body = at_gen_reducer(g, d);
  AT_TRY(identity(g, body, d, &init));
  at_step s = {.op = op, .num_regions = 1};
  at_step_operand(&s, x);
  at_step_operand(&s, init);
  at_step_ints(&s, AT_ATTR_WINDOW_DIMENSIONS, v, r);
  at_step_ints(&s, AT_ATTR_PADDING, pad, 2 * r);
  AT_TRY(at_gen_binary_region(g, body, d, &s.regions[0]));
  return at_step_build(g, &s);
}

// A body of up to three exact ops.
at_status at_gen_map(at_gen *g, at_op op, at_dtype d) {
  at_value x, y, v[2];
  int64_t *dims;
  at_comp *c;
  AT_TRY(at_gen_value(g, d, &x));
  const at_type *t = at_value_type(x);
  AT_TRY(at_gen_like(g, *t, &y));
  AT_TRY_ALLOC(dims, at_gen_dims(g, t->rank));
  for (uint32_t i = 0; i < t->rank; i++) dims[i] = i;
  at_step s = {.op = op, .num_regions = 1};
  at_step_operand(&s, x);
  at_step_operand(&s, y);
  at_step_ints(&s, AT_ATTR_DIMENSIONS, dims, t->rank);
  AT_TRY(at_region_create(g->m, &c));
  AT_TRY(at_build_param(c, at_type_scalar(d), NULL, &v[0]));
  AT_TRY(at_build_param(c, at_type_scalar(d), NULL, &v[1]));
  for (uint32_t i = 0, n = 1 + at_gen_below(g, 3); i < n; i++)
    AT_TRY(
        at_build_op(c, NULL, at_gen_exact_binary(g, d), v, 2, NULL, &v[i % 2]));
  AT_TRY(at_comp_return(c, &v[at_gen_below(g, 2)], 1));
  s.regions[0] = c;
  return at_step_build(g, &s);
}

// ---- Orders

// All operands by one order; stable, so that the result is defined.
static at_status sort(at_gen *g, at_value *v, uint32_t n, at_comp *order) {
  uint32_t rank = at_value_type(v[0])->rank;
  at_step s = {.op = AT_OP_SORT, .num_regions = 1, .regions = {order}};
  for (uint32_t i = 0; i < n; i++) at_step_operand(&s, v[i]);
  at_step_int(&s, AT_ATTR_DIMENSION, at_gen_below(g, rank));
  at_step_int(&s, AT_ATTR_IS_STABLE, 1);
  return at_step_build(g, &s);
}

// One operand, up or down.
at_status at_gen_sort(at_gen *g, at_op op, at_dtype t) {
  at_value x;
  at_comp *order;
  (void)op;
  AT_TRY(at_gen_ranked(g, t, 1, 5, &x));
  AT_TRY(at_gen_binary_region(g, AT_OP_COMPARE, t, &order));
  return sort(g, &x, 1, order);
}

// (a0, a1, b0, b1) -> order by the first operand's elements.
static at_status pair_order(at_gen *g, const at_dtype *t, bool custom,
                            at_comp **out) {
  at_value v[4], k[2], r;
  at_comp *c;
  AT_TRY(at_region_create(g->m, &c));
  for (int i = 0; i < 4; i++)
    AT_TRY(at_build_param(c, at_type_scalar(t[i / 2]), NULL, &v[i]));
  for (int i = 0; i < 2; i++) {
    k[i] = v[i];
    // By size alone, or of complex numbers the imaginary part.
    if (custom && at_is_complex(t[0]))
      AT_TRY(at_build_op(c, NULL, AT_OP_IMAG, &v[i], 1, NULL, &k[i]));
    else if (custom && !at_is_unsigned_int(t[0]) && t[0] != AT_PRED)
      AT_TRY(at_build_op(c, NULL, AT_OP_ABS, &v[i], 1, NULL, &k[i]));
    else if (custom)
      AT_TRY(at_build_op(c, NULL, AT_OP_NOT, &v[i], 1, NULL, &k[i]));
  }
  at_dtype kt = at_value_type(k[0])->dtype;
  at_step s = {.op = AT_OP_COMPARE};
  at_step_operand(&s, k[0]);
  at_step_operand(&s, k[1]);
  at_step_int(&s, AT_ATTR_COMPARISON_DIRECTION,
              at_gen_chance(g, 50) ? AT_LT : AT_GT);
  if (at_is_float(kt)) at_step_int(&s, AT_ATTR_COMPARE_TYPE, AT_CMP_TOTALORDER);
  AT_TRY(at_step_in(c, &s, &r));
  *out = c;
  return at_comp_return(c, &r, 1);
}

// Keys of type t and values of another type.
static at_status pairs(at_gen *g, at_dtype t, bool custom) {
  static const at_dtype others[] = {AT_S32, AT_F32, AT_U8, AT_F64, AT_C64};
  at_dtype types[2] = {t, AT_GEN_PICK(g, others)};
  at_value v[2];
  at_comp *order;
  AT_TRY(at_gen_ranked(g, t, 1, 4, &v[0]));
  AT_TRY(at_gen_like(g, at_type_with(*at_value_type(v[0]), types[1]), &v[1]));
  AT_TRY(pair_order(g, types, custom, &order));
  return sort(g, v, 2, order);
}
at_status at_gen_sort_pairs(at_gen *g, at_op op, at_dtype t) {
  (void)op;
  return pairs(g, t, false);
}
at_status at_gen_sort_custom(at_gen *g, at_op op, at_dtype t) {
  (void)op;
  return pairs(g, t, true);
}

// Largest or smallest, also none.
at_status at_gen_top_k(at_gen *g, at_op op, at_dtype t) {
  at_value x;
  AT_TRY(at_gen_ranked(g, t, 1, 4, &x));
  const at_type *r = at_value_type(x);
  at_step s = {.op = op};
  at_step_operand(&s, x);
  at_step_int(&s, AT_ATTR_K,
              at_gen_below(g, (uint32_t)r->dims[r->rank - 1] + 1));
  at_step_int(&s, AT_ATTR_LARGEST, at_gen_chance(g, 70));
  return at_step_build(g, &s);
}

// ---- Norms

// |v| + 1/4: a variance.
static at_status variance(at_gen *g, at_value v, at_value *out) {
  at_value k;
  AT_TRY(at_build_op(g->c, NULL, AT_OP_ABS, &v, 1, NULL, &v));
  AT_TRY(at_gen_float(g, g->c, *at_value_type(v), 0.25, &k));
  return at_build_op(g->c, NULL, AT_OP_ADD, (at_value[]){v, k}, 2, NULL, out);
}

// Variances are positive.
at_status at_gen_batch_norm(at_gen *g, at_op op, at_dtype d) {
  at_value x, v;
  int64_t *size;
  AT_TRY(at_gen_ranked(g, d, 1, 4, &x));
  const at_type *t = at_value_type(x);
  int64_t f = at_gen_below(g, t->rank);
  AT_TRY_ALLOC(size, at_gen_dims(g, 1));
  size[0] = t->dims[f];
  at_type feature = {.dtype = d, .rank = 1, .dims = size};
  uint32_t n = op == AT_OP_BATCH_NORM_TRAINING ? 3 : 5;
  at_step s = {.op = op};
  at_step_operand(&s, x);
  for (uint32_t i = 1; i < n; i++) {
    bool like_x = op == AT_OP_BATCH_NORM_GRAD && i == 4;
    bool is_variance = i == (op == AT_OP_BATCH_NORM_GRAD ? 3 : 4) && !like_x;
    AT_TRY(at_gen_like(g, like_x ? *t : feature, &v));
    if (is_variance) AT_TRY(variance(g, v, &v));
    at_step_operand(&s, v);
  }
  // An f32, as StableHLO has it.
  s.attrs[s.num_attrs++] = (at_attr){.id = AT_ATTR_EPSILON, .f = 0.001f};
  at_step_int(&s, AT_ATTR_FEATURE_INDEX, f);
  return at_step_build(g, &s);
}
