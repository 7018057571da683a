// Random transforms, factorisations and random bits. Factorisations start from
// matrices that are far from singular, or the digits of the results would say
// nothing.
#include "hlo/random_internal.h"

// ---- FFT

// One to three axes of lengths with small factors, primes and powers of two;
// the kinds that t allows.
at_status at_gen_fft(at_gen *g, at_op op, at_dtype t) {
  static const int64_t lengths[] = {1,  2,  3,  4,  5,  6,  7,  8,
                                    12, 15, 16, 17, 30, 32, 37, 64};
  at_value x;
  int64_t *dims, *length;
  uint32_t batch = at_gen_below(g, 2), rank = 1 + at_gen_below(g, 3);
  bool real = at_is_float(t);
  int64_t kind = real                   ? AT_RFFT
                 : at_gen_chance(g, 34) ? AT_IRFFT
                 : at_gen_chance(g, 50) ? AT_IFFT
                                        : AT_FFT;
  AT_TRY_ALLOC(dims, at_gen_dims(g, batch + rank));
  AT_TRY_ALLOC(length, at_gen_dims(g, rank));
  int64_t count = 1;
  if (batch) dims[0] = 1 + at_gen_below(g, 5);
  for (uint32_t i = 0; i < rank; i++) {
    do length[i] = AT_GEN_PICK(g, lengths);
    while (length[i] > 1 && length[i] * count > g->max_elements);
    count *= length[i];
    dims[batch + i] = length[i];
  }
  if (kind == AT_IRFFT) dims[batch + rank - 1] = length[rank - 1] / 2 + 1;
  at_type r = {.dtype = t, .rank = batch + rank, .dims = dims};
  AT_TRY(at_gen_like(g, r, &x));
  at_step s = {.op = op};
  at_step_operand(&s, x);
  at_step_int(&s, AT_ATTR_FFT_TYPE, kind);
  at_step_ints(&s, AT_ATTR_FFT_LENGTH, length, rank);
  return at_step_build(g, &s);
}

// ---- Matrices

// batch x m x n, any entries.
static at_status matrix(at_gen *g, at_dtype t, int64_t m, int64_t n,
                        int64_t batch, at_value *out) {
  int64_t *dims;
  uint32_t rank = 0;
  AT_TRY_ALLOC(dims, at_gen_dims(g, 3));
  if (batch) dims[rank++] = batch;
  dims[rank++] = m;
  dims[rank++] = n;
  return at_gen_like(g, (at_type){.dtype = t, .rank = rank, .dims = dims}, out);
}

// x + scale on the diagonal of square matrices.
static at_status add_diagonal(at_gen *g, at_value x, double scale,
                              at_value *out) {
  const at_type *t = at_value_type(x);
  uint8_t *data;
  const at_literal *l;
  at_value k;
  size_t w = at_dtype_bytes(t->dtype);
  int64_t n = t->dims[t->rank - 1], count = at_type_elements(t);
  AT_TRY_ALLOC(data, at_arena_alloc(g->a, at_type_bytes(t) + 1, 16));
  memset(data, 0, at_type_bytes(t));
  for (int64_t i = 0; i < count; i++)
    if (i % n == i / n % n)
      at_store_float(at_real_of(t->dtype), data + (size_t)i * w, scale);
  AT_TRY(at_literal_make(g->a, *t, data, false, true, &l));
  AT_TRY(at_build_constant(g->c, NULL, l, &k));
  return at_build_op(g->c, NULL, AT_OP_ADD, (at_value[]){x, k}, 2, NULL, out);
}

// x^T (of real parts conjugate when complex).
static at_status adjoint(at_gen *g, at_value x, at_value *out) {
  const at_type *t = at_value_type(x);
  int64_t *perm;
  at_value re, im;
  AT_TRY_ALLOC(perm, at_gen_dims(g, t->rank));
  for (uint32_t i = 0; i < t->rank; i++) perm[i] = i;
  perm[t->rank - 1] = t->rank - 2;
  perm[t->rank - 2] = t->rank - 1;
  at_step s = {.op = AT_OP_TRANSPOSE};
  at_step_operand(&s, x);
  at_step_ints(&s, AT_ATTR_PERMUTATION, perm, t->rank);
  AT_TRY(at_step_in(g->c, &s, &x));
  *out = x;
  if (!at_is_complex(t->dtype)) return AT_OK;
  AT_TRY(at_build_op(g->c, NULL, AT_OP_REAL, &x, 1, NULL, &re));
  AT_TRY(at_build_op(g->c, NULL, AT_OP_IMAG, &x, 1, NULL, &im));
  AT_TRY(at_build_op(g->c, NULL, AT_OP_NEGATE, &im, 1, NULL, &im));
  return at_build_op(g->c, NULL, AT_OP_COMPLEX, (at_value[]){re, im}, 2, NULL,
                     out);
}

// x + x^H, with `scale` on the diagonal.
static at_status hermitian(at_gen *g, at_dtype t, int64_t n, int64_t batch,
                           double scale, at_value *out) {
  at_value x, y;
  AT_TRY(matrix(g, t, n, n, batch, &x));
  AT_TRY(adjoint(g, x, &y));
  AT_TRY(at_build_op(g->c, NULL, AT_OP_ADD, (at_value[]){x, y}, 2, NULL, &x));
  return add_diagonal(g, x, scale, out);
}

// Sizes around the blocks of the kernels.
static int64_t side(at_gen *g) {
  static const int64_t sides[] = {1, 2, 3, 4, 5, 8, 13, 17};
  return AT_GEN_PICK(g, sides);
}

// Either triangle.
at_status at_gen_cholesky(at_gen *g, at_op op, at_dtype t) {
  at_value x;
  int64_t n = side(g);
  // |x + x^H| < 8: diagonally dominant.
  AT_TRY(hermitian(g, t, n, at_gen_below(g, 3), 8.0 * (double)n + 8, &x));
  at_step s = {.op = op};
  at_step_operand(&s, x);
  at_step_int(&s, AT_ATTR_LOWER, at_gen_below(g, 2));
  return at_step_build(g, &s);
}

// The diagonal outweighs its row, so that no solution grows.
at_status at_gen_triangular_solve(at_gen *g, at_op op, at_dtype t) {
  at_value a, b;
  int64_t n = side(g), other = side(g), batch = at_gen_below(g, 3);
  bool left = at_gen_chance(g, 50);
  AT_TRY(matrix(g, t, n, n, batch, &a));
  AT_TRY(add_diagonal(g, a, 4.0 * (double)n + 4, &a));
  AT_TRY(matrix(g, t, left ? n : other, left ? other : n, batch, &b));
  at_step s = {.op = op};
  at_step_operand(&s, a);
  at_step_operand(&s, b);
  at_step_int(&s, AT_ATTR_LEFT_SIDE, left);
  at_step_int(&s, AT_ATTR_LOWER, at_gen_below(g, 2));
  // Entries beside a diagonal of ones grow without bound: small matrices only.
  at_step_int(&s, AT_ATTR_UNIT_DIAGONAL, n <= 3 && at_gen_chance(g, 40));
  at_step_int(&s, AT_ATTR_TRANSPOSE_A, AT_NO_TRANSPOSE + at_gen_below(g, 3));
  return at_step_build(g, &s);
}

// A custom call to be built.
typedef struct call {
  const char *target;
  at_value operands[4];
  uint32_t num_operands;
  at_type types[3];
  uint32_t num_types;
  const char *config;
} call;

// A custom call; all its results are kept.
static at_status build_call(at_gen *g, const call *c, at_value *out) {
  at_step s = {
      .op = AT_OP_CUSTOM_CALL, .types = c->types, .num_types = c->num_types};
  for (uint32_t i = 0; i < c->num_operands; i++)
    at_step_operand(&s, c->operands[i]);
  at_step_str(&s, AT_ATTR_CALL_TARGET_NAME, c->target);
  if (c->config) at_step_str(&s, AT_ATTR_BACKEND_CONFIG, c->config);
  AT_TRY(at_step_in(g->c, &s, out));
  for (uint32_t i = 0; i < c->num_types; i++)
    AT_TRY(at_gen_keep(g, (at_value){out->node, i}));
  return AT_OK;
}

// The shape of x without its last `drop` dimensions, and `n` after it.
static at_status vector_of(at_gen *g, const at_type *x, at_dtype t, int64_t n,
                           at_type *out) {
  int64_t *dims;
  AT_TRY_ALLOC(dims, at_gen_dims(g, x->rank));
  for (uint32_t i = 0; i + 2 < x->rank; i++) dims[i] = x->dims[i];
  dims[x->rank - 2] = n;
  *out = (at_type){.dtype = t, .rank = x->rank - 1, .dims = dims};
  return AT_OK;
}

// Results: factors and tau.
static at_status qr(at_gen *g, at_dtype t, at_value *out) {
  at_value x;
  int64_t m = side(g), n = side(g);
  AT_TRY(matrix(g, t, m, n, at_gen_below(g, 3), &x));
  call c = {.target = "Qr", .operands = {x}, .num_operands = 1, .num_types = 2};
  c.types[0] = *at_value_type(x);
  AT_TRY(vector_of(g, &c.types[0], t, AT_MIN(m, n), &c.types[1]));
  return build_call(g, &c, out);
}

// Matrices of any shape.
at_status at_gen_qr(at_gen *g, at_op op, at_dtype t) {
  at_value v;
  (void)op;
  return qr(g, t, &v);
}

// Needs factors with at least as many rows as columns; draws until they are.
at_status at_gen_householder(at_gen *g, at_op op, at_dtype t) {
  at_value v;
  (void)op;
  do {
    AT_TRY(qr(g, t, &v));
    const at_type *r = &v.node->types[0];
    if (r->dims[r->rank - 2] >= r->dims[r->rank - 1]) break;
  } while (true);
  call c = {.target = "ProductOfElementaryHouseholderReflectors",
            .operands = {v, {v.node, 1}},
            .num_operands = 2,
            .types = {v.node->types[0]},
            .num_types = 1};
  return build_call(g, &c, &v);
}

// Results: factors, pivots, permutation.
at_status at_gen_lu(at_gen *g, at_op op, at_dtype t) {
  at_value x;
  int64_t m = side(g), n = side(g);
  (void)op;
  AT_TRY(matrix(g, t, m, n, at_gen_below(g, 3), &x));
  call c = {.target = "LuDecomposition",
            .operands = {x},
            .num_operands = 1,
            .num_types = 3};
  c.types[0] = *at_value_type(x);
  AT_TRY(vector_of(g, &c.types[0], AT_S32, AT_MIN(m, n), &c.types[1]));
  AT_TRY(vector_of(g, &c.types[0], AT_S32, m, &c.types[2]));
  return build_call(g, &c, &x);
}

// Either triangle, sorted.
at_status at_gen_eigh(at_gen *g, at_op op, at_dtype t) {
  static const char *const configs[] = {"1,1,100,1e-6", "0,1,100,1e-6"};
  at_value x;
  int64_t n = side(g);
  (void)op;
  AT_TRY(hermitian(g, t, n, at_gen_below(g, 3), 0, &x));
  call c = {.target = "Eigh",
            .operands = {x},
            .num_operands = 1,
            .num_types = 2,
            .config = AT_GEN_PICK(g, configs)};
  c.types[0] = *at_value_type(x);
  AT_TRY(vector_of(g, &c.types[0], at_real_of(t), n, &c.types[1]));
  return build_call(g, &c, &x);
}

// ---- The k largest

// Values and indices with 1 to all of dimension d.
static at_status best_types(at_gen *g, const at_type *x, uint32_t d,
                            at_type *t) {
  int64_t *dims;
  AT_TRY_ALLOC(dims, at_gen_dims(g, x->rank));
  for (uint32_t i = 0; i < x->rank; i++) dims[i] = x->dims[i];
  dims[d] = 1 + at_gen_below(g, (uint32_t)x->dims[d]);
  t[0] = (at_type){.dtype = x->dtype, .rank = x->rank, .dims = dims};
  t[1] = at_type_with(t[0], AT_S32);
  return AT_OK;
}

// Along the last dimension.
at_status at_gen_call_top_k(at_gen *g, at_op op, at_dtype t) {
  at_value x;
  (void)op;
  AT_TRY(at_gen_ranked(g, t, 1, 3, &x));
  const at_type *r = at_value_type(x);
  call c = {
      .target = "TopK", .operands = {x}, .num_operands = 1, .num_types = 2};
  AT_TRY(best_types(g, r, r->rank - 1, c.types));
  return build_call(g, &c, &x);
}

// As JAX calls it: values, their positions, and what every element beats.
at_status at_gen_approx_top_k(at_gen *g, at_op op, at_dtype t) {
  at_value x, iota, worst, none;
  (void)op;
  AT_TRY(at_gen_ranked(g, t, 1, 3, &x));
  const at_type *r = at_value_type(x);
  uint32_t d = at_gen_below(g, r->rank);
  at_type it = at_type_with(*r, AT_S32);
  at_step s = {.op = AT_OP_IOTA, .types = &it, .num_types = 1};
  at_step_int(&s, AT_ATTR_DIMENSION, d);
  AT_TRY(at_step_in(g->c, &s, &iota));
  bool smallest = at_gen_chance(g, 40);
  AT_TRY(at_gen_float(g, g->c, at_type_scalar(t),
                      smallest ? __builtin_inf() : -__builtin_inf(), &worst));
  AT_TRY(at_gen_int(g, g->c, AT_S32, -1, &none));
  char *config;
  AT_TRY_ALLOC(config, at_arena_printf(g->a, "{reduction_dim = %u : i64}", d));
  call c = {.target = "ApproxTopK",
            .operands = {x, iota, worst, none},
            .num_operands = 4,
            .num_types = 2,
            .config = config};
  AT_TRY(best_types(g, r, d, c.types));
  return build_call(g, &c, &x);
}

// ---- Random numbers

// Threefry takes a state of two words, the others of two or three.
at_status at_gen_rng_bits(at_gen *g, at_op op, at_dtype t) {
  static const int64_t words[] = {2, 3};
  at_value state;
  at_type types[2];
  int64_t algorithm = at_gen_below(g, 3), *dims;
  AT_TRY_ALLOC(dims, at_gen_dims(g, 1));
  dims[0] = algorithm == AT_RNG_THREE_FRY ? 2 : AT_GEN_PICK(g, words);
  types[0] = (at_type){.dtype = AT_U64, .rank = 1, .dims = dims};
  AT_TRY(at_gen_type(g, t, 0, 3, true, &types[1]));
  AT_TRY(at_gen_like(g, types[0], &state));
  at_step s = {.op = op, .types = types, .num_types = 2};
  at_step_operand(&s, state);
  at_step_int(&s, AT_ATTR_RNG_ALGORITHM, algorithm);
  return at_step_build(g, &s);
}

// Integer ranges hold one value, so that no stream needs to be agreed upon for
// them.
at_status at_gen_rng(at_gen *g, at_op op, at_dtype t) {
  at_value a, b, shape;
  at_type r, scalar = at_type_scalar(t);
  // Some samples are negative.
  bool normal = at_is_float(t) && t != AT_F8E8M0FNU && at_gen_chance(g, 50);
  AT_TRY(at_gen_type(g, t, 0, 3, true, &r));
  if (at_is_float(t)) {
    AT_TRY(at_gen_float(g, g->c, scalar, normal ? 1 : 0.5, &a));
    AT_TRY(at_gen_float(g, g->c, scalar, 2, &b));
  } else {
    AT_TRY(at_gen_int(g, g->c, t, 0, &a));
    AT_TRY(at_gen_int(g, g->c, t, 1, &b));
  }
  AT_TRY(at_gen_list(g, r.dims, r.rank, &shape));
  at_step s = {.op = op, .types = &r, .num_types = 1};
  at_step_operand(&s, a);
  at_step_operand(&s, b);
  at_step_operand(&s, shape);
  at_step_int(&s, AT_ATTR_RNG_DISTRIBUTION,
              normal ? AT_RNG_NORMAL : AT_RNG_UNIFORM);
  return at_step_build(g, &s);
}
