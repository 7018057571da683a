// Random programs. Each step picks a value that exists and builds one op on it
// that is valid by construction; what else it needs is found, converted or
// made.
#include "hlo/random.h"

#include <math.h>

typedef struct gen {
  at_arena *a;
  at_module *m;
  at_comp *c;  // where nodes go
  uint64_t state;
  int64_t max_elements;
  uint32_t families;
  uint64_t dtypes;
  AT_VEC(at_value) values;
} gen;

// splitmix64
static uint64_t next64(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}
static uint32_t below(gen *g, uint32_t n) {
  return (uint32_t)(next64(&g->state) >> 32) % n;
}
static bool chance(gen *g, uint32_t percent) { return below(g, 100) < percent; }
#define PICK(g, list) ((list)[below((g), (uint32_t)AT_LEN(list))])

static const at_type *type_of(at_value v) { return at_value_type(v); }

static at_status keep(gen *g, at_value v) {
  return at_vec_push(g->a, &g->values, v) ? AT_OK : AT_NO_MEMORY("values");
}

// ---- Types and leaves ------------------------------------------------------

static at_dtype random_dtype(gen *g) {
  for (;;) {
    at_dtype t = (at_dtype)below(g, AT_DTYPE_COUNT);
    if (g->dtypes >> t & 1) return t;
  }
}

static const int64_t sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64};

static at_status random_type(gen *g, at_type *out) {
  int64_t *dims, count = 1;
  at_type t = {.dtype = random_dtype(g), .rank = below(g, 5)};
  AT_TRY_ALLOC(dims, at_new(g->a, int64_t, t.rank));
  for (uint32_t i = 0; i < t.rank; i++) {
    do dims[i] = PICK(g, sizes);
    while (count * dims[i] > g->max_elements);
    count *= dims[i];
  }
  if (t.rank && chance(g, 2)) dims[below(g, t.rank)] = 0;
  t.dims = dims;
  *out = t;
  return AT_OK;
}

static double random_float(uint64_t *state, bool special) {
  static const double specials[] = {NAN,   INFINITY, -INFINITY, 0.0,
                                    -0.0,  1e-45,    -1e-40,    5e-324,
                                    65504, 3.4e38,   -1.7e308,  1e-8};
  uint64_t r = next64(state);
  if (special && r % 4 == 0) return specials[(r >> 8) % AT_LEN(specials)];
  if (r % 8 == 1) return (double)((int64_t)(r >> 8) % 9 - 4);
  return (double)(int64_t)(r >> 11) * 0x1p-51 - 2.0;  // [-2, 2)
}

static int64_t random_int(uint64_t *state, bool special) {
  uint64_t r = next64(state);
  if (special && r % 4 == 0) return (int64_t)next64(state);
  return (int64_t)(r >> 8) % 12 - 3;
}

static void random_element(uint64_t *state, at_dtype t, bool special,
                           uint8_t *p) {
  if (at_is_complex(t)) {
    at_dtype real = at_real_of(t);
    at_store_float(real, p, random_float(state, special));
    at_store_float(real, p + at_dtype_bytes(real),
                   random_float(state, special));
  } else if (at_is_float(t)) {
    at_store_float(t, p, random_float(state, special));
  } else if (t == AT_PRED) {
    *p = next64(state) >> 63;
  } else {
    int64_t v = random_int(state, special);
    at_store_int(t, p, at_is_unsigned_int(t) && v < 0 && !special ? -v : v);
  }
}

static at_status random_literal(at_arena *a, uint64_t *state, at_type t,
                                bool special, const at_literal **out) {
  size_t w = at_dtype_bytes(t.dtype);
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(a, at_type_bytes(&t), 16));
  for (int64_t i = 0; i < at_type_elements(&t); i++)
    random_element(state, t.dtype, special, data + (size_t)i * w);
  return at_literal_make(a, t, data, false, true, out);
}

static at_status add_constant(gen *g, at_type t, at_value *out) {
  const at_literal *l;
  AT_TRY(random_literal(g->a, &g->state, t, false, &l));
  return at_build_constant(g->c, NULL, l, out);
}

static at_status int_constant(gen *g, at_comp *c, at_dtype t, int64_t v,
                              at_value *out) {
  uint8_t data[8];
  const at_literal *l;
  at_store_int(t, data, v);
  AT_TRY(at_literal_make(g->a, at_type_scalar(t), data, false, false, &l));
  return at_build_constant(c, NULL, l, out);
}

// ---- Building --------------------------------------------------------------

typedef struct step {
  at_op op;
  at_value operands[8];
  uint32_t num_operands;
  at_attr attrs[8];
  uint32_t num_attrs;
  at_comp *regions[3];
  uint32_t num_regions;
  const at_type *types;
  uint32_t num_types;
} step;

static void with_ints(step *s, at_attr_id id, const int64_t *v, uint32_t n) {
  s->attrs[s->num_attrs++] = (at_attr){.id = id, .ints = {v, n}};
}
static void with_int(step *s, at_attr_id id, int64_t v) {
  s->attrs[s->num_attrs++] = (at_attr){.id = id, .i = v};
}
static void with_operand(step *s, at_value v) {
  s->operands[s->num_operands++] = v;
}

// Builds into `c`, first result to *out.
static at_status build_in(at_comp *c, const step *s, at_value *out) {
  at_node_desc d = {.op = s->op,
                    .operands = s->operands,
                    .num_operands = s->num_operands,
                    .attrs = s->attrs,
                    .num_attrs = s->num_attrs,
                    .regions = (at_comp **)s->regions,
                    .num_regions = s->num_regions,
                    .types = s->types,
                    .num_types = s->num_types};
  at_node *n;
  AT_TRY(at_build(c, NULL, &d, &n));
  *out = (at_value){n, 0};
  return AT_OK;
}

static at_status build(gen *g, const step *s) {
  at_value v;
  AT_TRY(build_in(g->c, s, &v));
  for (uint32_t i = 0; i < v.node->num_results; i++)
    AT_TRY(keep(g, (at_value){v.node, i}));
  return AT_OK;
}

static at_value any(gen *g) {
  return g->values.ptr[below(g, (uint32_t)g->values.len)];
}

static bool same_shape(const at_type *a, const at_type *b) {
  return at_dims_eq(at_type_dims(a), at_type_dims(b));
}

// A value of exactly this type: one that exists, a conversion, or a constant.
static at_status like(gen *g, at_type t, at_value *out) {
  for (int i = 0; i < 8; i++) {
    at_value v = any(g);
    if (at_type_eq(type_of(v), &t)) return *out = v, AT_OK;
    if (i > 4 && same_shape(type_of(v), &t) &&
        !at_is_complex(type_of(v)->dtype)) {
      step s = {.op = AT_OP_CONVERT, .types = &t, .num_types = 1};
      with_operand(&s, v);
      return build_in(g->c, &s, out);
    }
  }
  return add_constant(g, t, out);
}

// A region (a, b) -> op(a, b) on scalars.
static at_status binary_region(gen *g, at_op op, at_dtype t, at_comp **out) {
  at_value v[2], r;
  AT_TRY(at_region_create(g->m, out));
  AT_TRY(at_build_param(*out, at_type_scalar(t), NULL, &v[0]));
  AT_TRY(at_build_param(*out, at_type_scalar(t), NULL, &v[1]));
  if (op == AT_OP_COMPARE) {
    step s = {.op = op};
    with_operand(&s, v[0]);
    with_operand(&s, v[1]);
    with_int(&s, AT_ATTR_COMPARISON_DIRECTION, chance(g, 50) ? AT_LT : AT_GT);
    if (at_is_float(t)) with_int(&s, AT_ATTR_COMPARE_TYPE, AT_CMP_TOTALORDER);
    AT_TRY(build_in(*out, &s, &r));
  } else {
    AT_TRY(at_build_op(*out, NULL, op, v, 2, NULL, &r));
  }
  return at_comp_return(*out, &r, 1);
}

// ---- Elementwise -----------------------------------------------------------

static at_op exact_unary(gen *g, at_dtype t) {
  static const at_op floats[] = {AT_OP_ABS,  AT_OP_NEGATE,
                                 AT_OP_CEIL, AT_OP_FLOOR,
                                 AT_OP_SIGN, AT_OP_ROUND_NEAREST_AFZ,
                                 AT_OP_SQRT, AT_OP_ROUND_NEAREST_EVEN,
                                 AT_OP_COPY, AT_OP_IS_FINITE,
                                 AT_OP_REAL, AT_OP_IMAG};
  static const at_op ints[] = {AT_OP_ABS,  AT_OP_NEGATE,
                               AT_OP_SIGN, AT_OP_POPCNT,
                               AT_OP_NOT,  AT_OP_COUNT_LEADING_ZEROS};
  static const at_op complexes[] = {AT_OP_NEGATE, AT_OP_REAL, AT_OP_IMAG};
  if (at_is_float(t)) return PICK(g, floats);
  if (at_is_complex(t)) return PICK(g, complexes);
  return t == AT_PRED ? AT_OP_NOT : PICK(g, ints);
}

static at_op exact_binary(gen *g, at_dtype t) {
  static const at_op floats[] = {AT_OP_ADD,      AT_OP_SUBTRACT, AT_OP_MULTIPLY,
                                 AT_OP_DIVIDE,   AT_OP_MAXIMUM,  AT_OP_MINIMUM,
                                 AT_OP_REMAINDER};
  static const at_op ints[] = {AT_OP_ADD,
                               AT_OP_SUBTRACT,
                               AT_OP_MULTIPLY,
                               AT_OP_DIVIDE,
                               AT_OP_MAXIMUM,
                               AT_OP_MINIMUM,
                               AT_OP_REMAINDER,
                               AT_OP_AND,
                               AT_OP_OR,
                               AT_OP_XOR,
                               AT_OP_POWER,
                               AT_OP_SHIFT_LEFT,
                               AT_OP_MULHI,
                               AT_OP_SHIFT_RIGHT_ARITHMETIC,
                               AT_OP_SHIFT_RIGHT_LOGICAL};
  static const at_op bools[] = {AT_OP_AND, AT_OP_OR, AT_OP_XOR, AT_OP_MAXIMUM};
  static const at_op complexes[] = {AT_OP_ADD, AT_OP_SUBTRACT};
  if (at_is_float(t)) return PICK(g, floats);
  if (at_is_complex(t)) return PICK(g, complexes);
  return t == AT_PRED ? PICK(g, bools) : PICK(g, ints);
}

static at_status gen_compare(gen *g, at_value x) {
  step s = {.op = AT_OP_COMPARE};
  at_value y;
  bool equality = at_is_complex(type_of(x)->dtype);
  AT_TRY(like(g, *type_of(x), &y));
  with_operand(&s, x);
  with_operand(&s, y);
  with_int(&s, AT_ATTR_COMPARISON_DIRECTION, below(g, equality ? 2 : 6));
  if (at_is_float(type_of(x)->dtype) && chance(g, 20))
    with_int(&s, AT_ATTR_COMPARE_TYPE, AT_CMP_TOTALORDER);
  return build(g, &s);
}

static at_status gen_select(gen *g, at_value x) {
  step s = {.op = AT_OP_SELECT};
  at_value p, y;
  at_type pred = chance(g, 20) ? at_type_scalar(AT_PRED)
                               : at_type_with(*type_of(x), AT_PRED);
  AT_TRY(like(g, pred, &p));
  AT_TRY(like(g, *type_of(x), &y));
  with_operand(&s, p);
  with_operand(&s, x);
  with_operand(&s, y);
  return build(g, &s);
}

static at_status gen_clamp(gen *g, at_value x) {
  step s = {.op = AT_OP_CLAMP};
  at_value lo, hi;
  at_type bound =
      chance(g, 50) ? at_type_scalar(type_of(x)->dtype) : *type_of(x);
  if (at_is_complex(bound.dtype)) return AT_OK;
  AT_TRY(like(g, bound, &lo));
  AT_TRY(like(g, bound, &hi));
  with_operand(&s, lo);
  with_operand(&s, x);
  with_operand(&s, hi);
  return build(g, &s);
}

static at_status gen_convert(gen *g, at_value x) {
  at_type t = at_type_with(*type_of(x), random_dtype(g));
  if (at_is_complex(type_of(x)->dtype)) t.dtype = AT_C64;
  step s = {.op = AT_OP_CONVERT, .types = &t, .num_types = 1};
  with_operand(&s, x);
  return build(g, &s);
}

static at_status gen_exact(gen *g, at_value x) {
  at_dtype t = type_of(x)->dtype;
  step s = {0};
  switch (below(g, 10)) {
    case 0:
      return gen_compare(g, x);
    case 1:
      return gen_select(g, x);
    case 2:
      return gen_clamp(g, x);
    case 3:
    case 4:
      return gen_convert(g, x);
    case 5:
    case 6:
      s.op = exact_unary(g, t);
      with_operand(&s, x);
      return build(g, &s);
    default:
      break;
  }
  at_value y;
  s.op = exact_binary(g, t);
  AT_TRY(like(g, *type_of(x), &y));
  with_operand(&s, chance(g, 50) ? x : y);
  with_operand(&s, s.operands[0].node == x.node ? y : x);
  return build(g, &s);
}

static at_status gen_function(gen *g, at_value x) {
  static const at_op ops[] = {
      AT_OP_CBRT,     AT_OP_COSINE,       AT_OP_EXPONENTIAL,
      AT_OP_LOG,      AT_OP_LOG_PLUS_ONE, AT_OP_EXPONENTIAL_MINUS_ONE,
      AT_OP_LOGISTIC, AT_OP_RSQRT,        AT_OP_SINE,
      AT_OP_TAN,      AT_OP_TANH,         AT_OP_ASIN,
      AT_OP_ATAN,     AT_OP_ERF,          AT_OP_ATAN2,
      AT_OP_POWER,    AT_OP_SINH,         AT_OP_COSH};
  if (!at_is_float(type_of(x)->dtype)) {
    at_type t = at_type_with(*type_of(x), AT_F32);
    if (at_is_complex(type_of(x)->dtype)) return AT_OK;
    step s = {.op = AT_OP_CONVERT, .types = &t, .num_types = 1};
    with_operand(&s, x);
    AT_TRY(build_in(g->c, &s, &x));
  }
  step s = {.op = PICK(g, ops)};
  with_operand(&s, x);
  if (at_op_of(s.op)->max_operands == 2) {
    at_value y;
    AT_TRY(like(g, *type_of(x), &y));
    with_operand(&s, y);
  }
  return build(g, &s);
}

// ---- Movement --------------------------------------------------------------

static int64_t *new_dims(gen *g, uint32_t n) {
  return at_new(g->a, int64_t, n);
}

static void shuffle(gen *g, int64_t *v, uint32_t n) {
  for (uint32_t i = n; i > 1; i--) {
    uint32_t k = below(g, i);
    int64_t x = v[i - 1];
    v[i - 1] = v[k];
    v[k] = x;
  }
}

static at_status gen_broadcast(gen *g, at_value x) {
  const at_type *t = type_of(x);
  uint32_t extra = below(g, 3), rank = t->rank + extra, at = 0;
  int64_t *dims = new_dims(g, rank), *map = new_dims(g, rank);
  if (!dims || !map) return AT_NO_MEMORY("dims");
  int64_t count = AT_MAX(at_type_elements(t), 1);
  for (uint32_t i = 0; i < rank; i++) {
    bool fresh = t->rank - at < rank - i && (at == t->rank || chance(g, 50));
    int64_t wanted = PICK(g, sizes);
    if (fresh || t->dims[at] == 1) {
      dims[i] = count * wanted <= g->max_elements ? wanted : 1;
      count *= dims[i];
    } else {
      dims[i] = t->dims[at];
    }
    if (!fresh) map[at++] = i;
  }
  at_type r = {.dtype = t->dtype, .rank = rank, .dims = dims};
  step s = {.op = AT_OP_BROADCAST_IN_DIM, .types = &r, .num_types = 1};
  with_operand(&s, x);
  with_ints(&s, AT_ATTR_BROADCAST_DIMENSIONS, map, t->rank);
  return build(g, &s);
}

// Merges two neighbours, or splits a dimension, or adds one of size 1.
static at_status gen_reshape(gen *g, at_value x) {
  const at_type *t = type_of(x);
  int64_t *dims = new_dims(g, t->rank + 1);
  if (!dims) return AT_NO_MEMORY("dims");
  at_type r = {.dtype = t->dtype, .rank = t->rank, .dims = dims};
  for (uint32_t i = 0; i < t->rank; i++) dims[i] = t->dims[i];
  uint32_t d = t->rank ? below(g, t->rank) : 0;
  if (t->rank >= 2 && chance(g, 50)) {
    d = AT_MIN(d, t->rank - 2);
    dims[d] *= dims[d + 1];
    for (uint32_t i = d + 1; i + 1 < t->rank; i++) dims[i] = dims[i + 1];
    r.rank--;
  } else if (t->rank < 5) {
    int64_t f = t->rank && dims[d] % 2 == 0 ? 2 : 1;
    for (uint32_t i = t->rank; i > d; i--) dims[i] = dims[i - 1];
    dims[d] = f;
    if (t->rank) dims[d + 1] /= f;
    r.rank++;
  }
  step s = {.op = AT_OP_RESHAPE, .types = &r, .num_types = 1};
  with_operand(&s, x);
  return build(g, &s);
}

static at_status gen_slice(gen *g, at_value x) {
  const at_type *t = type_of(x);
  int64_t *v = new_dims(g, 3 * t->rank);
  if (!v) return AT_NO_MEMORY("dims");
  int64_t *limit = v + t->rank, *stride = limit + t->rank;
  for (uint32_t i = 0; i < t->rank; i++) {
    uint32_t n = (uint32_t)t->dims[i];
    v[i] = chance(g, 50) ? 0 : below(g, n + 1);
    limit[i] =
        v[i] + (chance(g, 50) ? n - v[i] : below(g, n - (uint32_t)v[i] + 1));
    stride[i] = chance(g, 70) ? 1 : 1 + below(g, 3);
  }
  step s = {.op = AT_OP_SLICE};
  with_operand(&s, x);
  with_ints(&s, AT_ATTR_START_INDICES, v, t->rank);
  with_ints(&s, AT_ATTR_LIMIT_INDICES, limit, t->rank);
  with_ints(&s, AT_ATTR_STRIDES, stride, t->rank);
  return build(g, &s);
}

static at_status gen_pad(gen *g, at_value x) {
  const at_type *t = type_of(x);
  int64_t *v = new_dims(g, 3 * t->rank);
  at_value fill;
  if (!v) return AT_NO_MEMORY("dims");
  int64_t *high = v + t->rank, *inside = high + t->rank;
  for (uint32_t i = 0; i < t->rank; i++) {
    bool small = at_type_elements(t) * 4 < g->max_elements;
    v[i] = small ? (int64_t)below(g, 4) - 1 : 0;
    high[i] = small ? (int64_t)below(g, 4) - 1 : 0;
    inside[i] = small && chance(g, 20) ? 1 : 0;
    if (t->dims[i] + v[i] + high[i] < 0) v[i] = high[i] = 0;
  }
  AT_TRY(like(g, at_type_scalar(t->dtype), &fill));
  step s = {.op = AT_OP_PAD};
  with_operand(&s, x);
  with_operand(&s, fill);
  with_ints(&s, AT_ATTR_EDGE_PADDING_LOW, v, t->rank);
  with_ints(&s, AT_ATTR_EDGE_PADDING_HIGH, high, t->rank);
  with_ints(&s, AT_ATTR_INTERIOR_PADDING, inside, t->rank);
  return build(g, &s);
}

static at_status gen_dynamic_slice(gen *g, at_value x) {
  const at_type *t = type_of(x);
  int64_t *size = new_dims(g, t->rank);
  bool update = chance(g, 50);
  if (!size) return AT_NO_MEMORY("dims");
  for (uint32_t i = 0; i < t->rank; i++)
    size[i] = below(g, (uint32_t)t->dims[i] + 1);
  step s = {.op = update ? AT_OP_DYNAMIC_UPDATE_SLICE : AT_OP_DYNAMIC_SLICE};
  with_operand(&s, x);
  if (update) {
    at_value u;
    at_type ut = *t;
    ut.dims = size;
    AT_TRY(like(g, ut, &u));
    with_operand(&s, u);
  } else {
    with_ints(&s, AT_ATTR_SLICE_SIZES, size, t->rank);
  }
  if (t->rank + s.num_operands > AT_LEN(s.operands)) return AT_OK;
  for (uint32_t i = 0; i < t->rank; i++) {
    at_value at;
    AT_TRY(like(g, at_type_scalar(AT_S32), &at));
    with_operand(&s, at);
  }
  return build(g, &s);
}

static at_status gen_dims(gen *g, at_value x, bool transpose) {
  const at_type *t = type_of(x);
  int64_t *v = new_dims(g, t->rank);
  if (!v) return AT_NO_MEMORY("dims");
  for (uint32_t i = 0; i < t->rank; i++) v[i] = i;
  shuffle(g, v, t->rank);
  step s = {.op = transpose ? AT_OP_TRANSPOSE : AT_OP_REVERSE};
  with_operand(&s, x);
  with_ints(&s, transpose ? AT_ATTR_PERMUTATION : AT_ATTR_DIMENSIONS, v,
            transpose ? t->rank : below(g, t->rank + 1));
  return build(g, &s);
}

static at_status gen_concatenate(gen *g, at_value x) {
  const at_type *t = type_of(x);
  step s = {.op = AT_OP_CONCATENATE};
  if (!t->rank || at_type_elements(t) * 3 > g->max_elements) return AT_OK;
  uint32_t d = below(g, t->rank), more = below(g, 3);
  with_operand(&s, x);
  for (uint32_t k = 0; k < more; k++) {
    int64_t *dims = new_dims(g, t->rank);
    at_value y;
    if (!dims) return AT_NO_MEMORY("dims");
    for (uint32_t i = 0; i < t->rank; i++)
      dims[i] = i == d ? below(g, (uint32_t)t->dims[d] + 1) : t->dims[i];
    at_type u = {.dtype = t->dtype, .rank = t->rank, .dims = dims};
    AT_TRY(like(g, u, &y));
    with_operand(&s, y);
  }
  with_int(&s, AT_ATTR_DIMENSION, d);
  return build(g, &s);
}

static at_status gen_iota(gen *g) {
  at_type t;
  AT_TRY(random_type(g, &t));
  if (!t.rank || t.dtype == AT_PRED) return AT_OK;
  step s = {.op = AT_OP_IOTA, .types = &t, .num_types = 1};
  with_int(&s, AT_ATTR_DIMENSION, below(g, t.rank));
  return build(g, &s);
}

static at_status gen_move(gen *g, at_value x) {
  switch (below(g, 9)) {
    case 0:
      return gen_reshape(g, x);
    case 1:
      return gen_slice(g, x);
    case 2:
      return gen_pad(g, x);
    case 3:
      return gen_dynamic_slice(g, x);
    case 4:
      return gen_dims(g, x, true);
    case 5:
      return gen_dims(g, x, false);
    case 6:
      return gen_concatenate(g, x);
    case 7:
      return gen_iota(g);
    default:
      return gen_broadcast(g, x);
  }
}

// ---- Reductions ------------------------------------------------------------

static at_op random_reducer(gen *g, at_dtype t) {
  static const at_op numbers[] = {AT_OP_ADD, AT_OP_MAXIMUM, AT_OP_MINIMUM};
  static const at_op bools[] = {AT_OP_AND, AT_OP_OR};
  if (at_is_complex(t)) return AT_OP_ADD;
  return t == AT_PRED ? PICK(g, bools) : PICK(g, numbers);
}

static at_status gen_reduce(gen *g, at_value x) {
  const at_type *t = type_of(x);
  int64_t *dims = new_dims(g, t->rank);
  at_value init;
  if (!dims) return AT_NO_MEMORY("dims");
  for (uint32_t i = 0; i < t->rank; i++) dims[i] = i;
  shuffle(g, dims, t->rank);
  step s = {.op = AT_OP_REDUCE, .num_regions = 1};
  AT_TRY(like(g, at_type_scalar(t->dtype), &init));
  with_operand(&s, x);
  with_operand(&s, init);
  with_ints(&s, AT_ATTR_DIMENSIONS, dims, below(g, t->rank + 1));
  AT_TRY(
      binary_region(g, random_reducer(g, t->dtype), t->dtype, &s.regions[0]));
  return build(g, &s);
}

static at_status gen_scan(gen *g, at_value x) {
  const at_type *t = type_of(x);
  at_value init;
  if (!t->rank) return AT_OK;
  step s = {.op = AT_OP_SCAN, .num_regions = 1};
  AT_TRY(like(g, at_type_scalar(t->dtype), &init));
  with_operand(&s, x);
  with_operand(&s, init);
  with_int(&s, AT_ATTR_DIMENSION, below(g, t->rank));
  with_int(&s, AT_ATTR_REVERSE, below(g, 2));
  AT_TRY(
      binary_region(g, random_reducer(g, t->dtype), t->dtype, &s.regions[0]));
  return build(g, &s);
}

static at_status gen_window(gen *g, at_value x) {
  const at_type *t = type_of(x);
  uint32_t r = t->rank;
  int64_t *v = new_dims(g, 4 * r);
  at_value init;
  if (!v) return AT_NO_MEMORY("dims");
  int64_t *stride = v + r, *pad = stride + r;
  for (uint32_t i = 0; i < r; i++) {
    v[i] = 1 + below(g, 3);
    stride[i] = 1 + below(g, 2);
    pad[2 * i] = below(g, 2);
    pad[2 * i + 1] = below(g, 2);
  }
  step s = {.op = AT_OP_REDUCE_WINDOW, .num_regions = 1};
  AT_TRY(like(g, at_type_scalar(t->dtype), &init));
  with_operand(&s, x);
  with_operand(&s, init);
  with_ints(&s, AT_ATTR_WINDOW_DIMENSIONS, v, r);
  with_ints(&s, AT_ATTR_WINDOW_STRIDES, stride, r);
  with_ints(&s, AT_ATTR_PADDING, pad, 2 * r);
  AT_TRY(
      binary_region(g, random_reducer(g, t->dtype), t->dtype, &s.regions[0]));
  return build(g, &s);
}

static at_status gen_sort(gen *g, at_value x) {
  const at_type *t = type_of(x);
  if (!t->rank || at_is_complex(t->dtype)) return AT_OK;
  step s = {.op = AT_OP_SORT, .num_regions = 1};
  with_operand(&s, x);
  with_int(&s, AT_ATTR_DIMENSION, below(g, t->rank));
  with_int(&s, AT_ATTR_IS_STABLE, 1);
  AT_TRY(binary_region(g, AT_OP_COMPARE, t->dtype, &s.regions[0]));
  return build(g, &s);
}

static at_status gen_top_k(gen *g, at_value x) {
  const at_type *t = type_of(x);
  if (!t->rank || at_is_complex(t->dtype) || t->dtype == AT_PRED) return AT_OK;
  step s = {.op = AT_OP_TOP_K};
  with_operand(&s, x);
  with_int(&s, AT_ATTR_K, below(g, (uint32_t)t->dims[t->rank - 1] + 1));
  with_int(&s, AT_ATTR_LARGEST, 1);
  return build(g, &s);
}

static at_status gen_reductions(gen *g, at_value x) {
  switch (below(g, 6)) {
    case 0:
      return gen_scan(g, x);
    case 1:
      return gen_window(g, x);
    case 2:
      return gen_sort(g, x);
    case 3:
      return gen_top_k(g, x);
    default:
      return gen_reduce(g, x);
  }
}

// ---- Contractions ----------------------------------------------------------

// Contracts the last dimension of x, with the first as a batch when there are
// three.
static at_status gen_dot(gen *g, at_value x) {
  const at_type *t = type_of(x);
  static const int64_t zero[] = {0};
  if (t->rank < 1 || t->rank > 3 || t->dtype == AT_PRED) return AT_OK;
  bool batch = t->rank == 3 && t->dims[0] <= 16;
  int64_t *dims = new_dims(g, 3), *contract = new_dims(g, 2);
  if (!dims || !contract) return AT_NO_MEMORY("dims");
  at_type r = {.dtype = t->dtype, .dims = dims};
  if (batch) dims[r.rank++] = t->dims[0];
  contract[0] = t->rank - 1;
  bool turned = chance(g, 50);  // the contracted dimension last or first
  int64_t n = PICK(g, sizes);
  if (at_type_elements(t) * n > 8 * g->max_elements) n = 1;
  if (turned) dims[r.rank++] = n;
  contract[1] = r.rank;
  dims[r.rank++] = t->dims[t->rank - 1];
  if (!turned) dims[r.rank++] = n;
  at_value y;
  AT_TRY(like(g, r, &y));
  step s = {.op = AT_OP_DOT_GENERAL};
  with_operand(&s, x);
  with_operand(&s, y);
  with_ints(&s, AT_ATTR_LHS_BATCHING_DIMENSIONS, zero, batch);
  with_ints(&s, AT_ATTR_RHS_BATCHING_DIMENSIONS, zero, batch);
  with_ints(&s, AT_ATTR_LHS_CONTRACTING_DIMENSIONS, &contract[0], 1);
  with_ints(&s, AT_ATTR_RHS_CONTRACTING_DIMENSIONS, &contract[1], 1);
  return build(g, &s);
}

// NHWC with HWIO.
static at_status gen_conv(gen *g) {
  static const int64_t image[] = {1, 2}, kernel[] = {0, 1};
  static const at_dtype types[] = {AT_F32, AT_F64, AT_BF16, AT_F16};
  at_dtype t = PICK(g, types);
  if (!(g->dtypes >> t & 1)) return AT_OK;
  int64_t *v = new_dims(g, 16), groups = 1 + below(g, 2);
  if (!v) return AT_NO_MEMORY("dims");
  int64_t *kd = v + 4, *stride = v + 8, *dilation = v + 10, *pad = v + 12;
  int64_t features = 1 + below(g, 3);
  v[0] = 1 + below(g, 3);
  v[3] = groups * features;
  kd[2] = features;
  kd[3] = groups * (1 + below(g, 3));
  for (uint32_t i = 0; i < 2; i++) {
    v[1 + i] = 1 + below(g, 8);
    kd[i] = 1 + below(g, 3);
    stride[i] = 1 + below(g, 2);
    dilation[i] = 1 + below(g, 2);
    pad[2 * i] = below(g, 3);
    pad[2 * i + 1] = below(g, 3);
  }
  at_value x, k;
  AT_TRY(like(g, (at_type){.dtype = t, .rank = 4, .dims = v}, &x));
  AT_TRY(like(g, (at_type){.dtype = t, .rank = 4, .dims = kd}, &k));
  const at_attr attrs[] = {
      {.id = AT_ATTR_WINDOW_STRIDES, .ints = {stride, 2}},
      {.id = AT_ATTR_RHS_DILATION, .ints = {dilation, 2}},
      {.id = AT_ATTR_PADDING, .ints = {pad, 4}},
      {.id = AT_ATTR_INPUT_BATCH_DIMENSION, .i = 0},
      {.id = AT_ATTR_INPUT_FEATURE_DIMENSION, .i = 3},
      {.id = AT_ATTR_INPUT_SPATIAL_DIMENSIONS, .ints = {image, 2}},
      {.id = AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, .i = 2},
      {.id = AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, .i = 3},
      {.id = AT_ATTR_KERNEL_SPATIAL_DIMENSIONS, .ints = {kernel, 2}},
      {.id = AT_ATTR_OUTPUT_BATCH_DIMENSION, .i = 0},
      {.id = AT_ATTR_OUTPUT_FEATURE_DIMENSION, .i = 3},
      {.id = AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, .ints = {image, 2}},
      {.id = AT_ATTR_FEATURE_GROUP_COUNT, .i = groups}};
  at_value operands[] = {x, k};
  at_node_desc d = {.op = AT_OP_CONVOLUTION,
                    .operands = operands,
                    .num_operands = 2,
                    .attrs = attrs,
                    .num_attrs = AT_LEN(attrs)};
  at_node *n;
  AT_TRY(at_build(g->c, NULL, &d, &n));
  return keep(g, (at_value){n, 0});
}

// ---- Gather and scatter ----------------------------------------------------

// Rows of x by index, or rows added to x.
static at_status gen_index(gen *g, at_value x) {
  const at_type *t = type_of(x);
  static const int64_t zero[] = {0};
  int64_t *v = new_dims(g, 3 * t->rank + 4);
  if (!v) return AT_NO_MEMORY("dims");
  if (!t->rank || t->dims[0] == 0) return AT_OK;
  int64_t *rest = v + 2, *slice = rest + t->rank, *rows = slice + t->rank;
  v[0] = 1 + below(g, 5);
  if (at_type_elements(t) / t->dims[0] * v[0] > g->max_elements) v[0] = 1;
  v[1] = 1;
  rows[0] = v[0];
  for (uint32_t i = 1; i < t->rank; i++) {
    rest[i - 1] = i;
    rows[i] = slice[i] = t->dims[i];
  }
  slice[0] = 1;
  at_value index, update;
  at_type it = {.dtype = AT_S32, .rank = 2, .dims = v};
  AT_TRY(like(g, it, &index));
  bool scatter = chance(g, 50);
  step s = {.op = scatter ? AT_OP_SCATTER : AT_OP_GATHER};
  with_operand(&s, x);
  with_operand(&s, index);
  with_int(&s, AT_ATTR_INDEX_VECTOR_DIM, 1);
  if (!scatter) {
    with_ints(&s, AT_ATTR_OFFSET_DIMS, rest, t->rank - 1);
    with_ints(&s, AT_ATTR_COLLAPSED_SLICE_DIMS, zero, 1);
    with_ints(&s, AT_ATTR_START_INDEX_MAP, zero, 1);
    with_ints(&s, AT_ATTR_SLICE_SIZES, slice, t->rank);
    return build(g, &s);
  }
  at_type ut = {.dtype = t->dtype, .rank = t->rank, .dims = rows};
  AT_TRY(like(g, ut, &update));
  with_operand(&s, update);
  with_ints(&s, AT_ATTR_UPDATE_WINDOW_DIMS, rest, t->rank - 1);
  with_ints(&s, AT_ATTR_INSERTED_WINDOW_DIMS, zero, 1);
  with_ints(&s, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, zero, 1);
  s.num_regions = 1;
  AT_TRY(
      binary_region(g, random_reducer(g, t->dtype), t->dtype, &s.regions[0]));
  return build(g, &s);
}

// ---- Control flow ----------------------------------------------------------

// op(x, x) for a body.
static at_status twice(gen *g, at_comp *c, at_value x, at_value *out) {
  return at_build_op(c, NULL, exact_binary(g, type_of(x)->dtype),
                     (at_value[]){x, x}, 2, NULL, out);
}

static at_status gen_while(gen *g, at_value x) {
  step s = {.op = AT_OP_WHILE, .num_regions = 2};
  at_value zero, p[2], limit, one, r[2];
  AT_TRY(int_constant(g, g->c, AT_S32, 0, &zero));
  with_operand(&s, zero);
  with_operand(&s, x);
  for (int i = 0; i < 2; i++) {
    at_comp *c;
    AT_TRY(at_region_create(g->m, &c));
    s.regions[i] = c;
    AT_TRY(at_build_param(c, at_type_scalar(AT_S32), NULL, &p[0]));
    AT_TRY(at_build_param(c, *type_of(x), NULL, &p[1]));
    if (i == 0) {
      step less = {.op = AT_OP_COMPARE};
      AT_TRY(int_constant(g, c, AT_S32, below(g, 4), &limit));
      with_operand(&less, p[0]);
      with_operand(&less, limit);
      with_int(&less, AT_ATTR_COMPARISON_DIRECTION, AT_LT);
      AT_TRY(build_in(c, &less, &r[0]));
      AT_TRY(at_comp_return(c, r, 1));
    } else {
      AT_TRY(int_constant(g, c, AT_S32, 1, &one));
      AT_TRY(at_build_op(c, NULL, AT_OP_ADD, (at_value[]){p[0], one}, 2, NULL,
                         &r[0]));
      AT_TRY(twice(g, c, p[1], &r[1]));
      AT_TRY(at_comp_return(c, r, 2));
    }
  }
  return build(g, &s);
}

// Branches capture x.
static at_status gen_branch(gen *g, at_value x) {
  bool is_if = chance(g, 50);
  step s = {.op = is_if ? AT_OP_IF : AT_OP_CASE,
            .num_regions = is_if ? 2 : 1 + below(g, 3)};
  at_value selector;
  AT_TRY(like(g, at_type_scalar(is_if ? AT_PRED : AT_S32), &selector));
  with_operand(&s, selector);
  for (uint32_t i = 0; i < s.num_regions; i++) {
    at_value r = x;
    AT_TRY(at_region_create(g->m, &s.regions[i]));
    if (chance(g, 70)) AT_TRY(twice(g, s.regions[i], x, &r));
    AT_TRY(at_comp_return(s.regions[i], &r, 1));
  }
  return build(g, &s);
}

static at_status gen_call(gen *g, at_value x) {
  char *name;
  at_comp *f;
  at_value p, r;
  AT_TRY_ALLOC(name, at_arena_printf(g->a, "f%u", g->m->num_funcs));
  AT_TRY(at_comp_create(g->m, at_str_of(name), NULL, &f));
  AT_TRY(at_build_param(f, *type_of(x), NULL, &p));
  AT_TRY(twice(g, f, p, &r));
  AT_TRY(at_comp_return(f, &r, 1));
  step s = {.op = AT_OP_CALL};
  with_operand(&s, x);
  s.attrs[s.num_attrs++] =
      (at_attr){.id = AT_ATTR_CALLEE, .s = at_str_of(name)};
  return build(g, &s);
}

// ---- Modules ---------------------------------------------------------------

static at_status gen_step(gen *g) {
  at_value x = any(g);
  if (at_type_elements(type_of(x)) > 2 * g->max_elements)
    return gen_slice(g, x);
  uint32_t family;
  do family = below(g, 7);
  while (!(g->families >> family & 1));
  switch (1u << family) {
    case AT_RANDOM_EXACT:
      return gen_exact(g, x);
    case AT_RANDOM_FUNCTIONS:
      return gen_function(g, x);
    case AT_RANDOM_MOVE:
      return gen_move(g, x);
    case AT_RANDOM_REDUCE:
      return gen_reductions(g, x);
    case AT_RANDOM_DOT:
      return chance(g, 30) ? gen_conv(g) : gen_dot(g, x);
    case AT_RANDOM_INDEX:
      return gen_index(g, x);
    default:
      break;
  }
  switch (below(g, 3)) {
    case 0:
      return gen_while(g, x);
    case 1:
      return gen_branch(g, x);
    default:
      return gen_call(g, x);
  }
}

static bool is_used(const at_comp *c, at_value v) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (at_value_eq(n->operands[i], v)) return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (is_used(n->regions[i], v)) return true;
  }
  for (uint32_t i = 0; c->owner && i < c->num_results; i++)
    if (at_value_eq(c->results[i], v)) return true;
  return false;
}

enum { kMostResults = 8 };

static at_status finish(gen *g) {
  at_value results[kMostResults];
  uint32_t n = 0;
  // Later values first: they depend on the most.
  for (size_t i = g->values.len; i-- > 0 && n < kMostResults;)
    if (!is_used(g->c, g->values.ptr[i])) results[n++] = g->values.ptr[i];
  AT_TRY(at_comp_return(g->c, results, n));
  at_io_info none = {.alias = -1};
  AT_TRY_ALLOC(g->m->params, at_new(g->a, at_io_info, g->c->num_params));
  AT_TRY_ALLOC(g->m->results, at_new(g->a, at_io_info, n));
  for (uint32_t i = 0; i < g->c->num_params; i++) g->m->params[i] = none;
  for (uint32_t i = 0; i < n; i++) g->m->results[i] = none;
  return at_verify(g->m, "random");
}

static at_status generate(gen *g, const at_random_options *o) {
  AT_TRY(at_module_create(g->a, AT_STR("random"), &g->m));
  AT_TRY(at_comp_create(g->m, AT_STR("main"), NULL, &g->c));
  g->m->entry = g->c;
  uint32_t params = 1 + below(g, 4), nodes = o->nodes ? o->nodes : 20;
  for (uint32_t i = 0; i < params; i++) {
    at_type t;
    at_value v;
    AT_TRY(random_type(g, &t));
    AT_TRY(at_build_param(g->c, t, NULL, &v));
    AT_TRY(keep(g, v));
  }
  for (uint32_t i = 0; i < nodes; i++) AT_TRY(gen_step(g));
  return finish(g);
}

at_status at_random_module(at_arena *a, const at_random_options *o,
                           at_module **out) {
  const uint64_t common = 1ull << AT_PRED | 1ull << AT_S8 | 1ull << AT_S16 |
                          1ull << AT_S32 | 1ull << AT_S64 | 1ull << AT_U8 |
                          1ull << AT_U16 | 1ull << AT_U32 | 1ull << AT_U64 |
                          1ull << AT_BF16 | 1ull << AT_F16 | 1ull << AT_F32 |
                          1ull << AT_F64 | 1ull << AT_C64;
  const uint64_t known = (1ull << AT_TOKEN) - 2;  // every type with data
  uint64_t start = o->seed;  // mixed, or neighbours would share a stream
  gen g = {.a = a,
           .state = next64(&start),
           .max_elements = o->max_elements > 0 ? o->max_elements : 2000,
           .families = o->families & 127 ? o->families : 127,
           .dtypes = o->dtypes & known ? o->dtypes & known : common};
  at_status s = generate(&g, o);
  if (at_status_code(s) == AT_INVALID_ARGUMENT) {
    at_status bug = AT_FAIL(AT_INTERNAL, "random program of seed %llu: %s",
                            (unsigned long long)o->seed, at_status_message(s));
    at_status_free(s);
    return bug;
  }
  if (at_ok(s)) *out = g.m;
  return s;
}

at_status at_random_args(at_arena *a, const at_comp *c, uint64_t seed,
                         bool special, const at_literal ***out) {
  uint64_t state = seed ^ 0x5851f42d4c957f2dull;
  const at_literal **args;
  AT_TRY_ALLOC(args, at_new(a, const at_literal *, c->num_params));
  for (uint32_t i = 0; i < c->num_params; i++)
    AT_TRY(
        random_literal(a, &state, c->params[i]->types[0], special, &args[i]));
  *out = args;
  return AT_OK;
}
