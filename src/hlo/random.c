// Random programs: the table of what can be in them, the walk through it, and
// the program around the steps.
#include <math.h>

#include "hlo/random_internal.h"

// ---- The table

// A row of random.def.
typedef struct row {
  at_op op;
  const char *variant;
  uint32_t family;
  uint64_t types;
  at_status (*generate)(at_gen *g, at_op op, at_dtype t);
} row;

// The names of random.def for sets of element types.
#define BIT(t) (1ull << AT_##t)
#define B BIT(PRED)
#define S (BIT(S2) | BIT(S4) | BIT(S8) | BIT(S16) | BIT(S32) | BIT(S64))
#define U (BIT(U2) | BIT(U4) | BIT(U8) | BIT(U16) | BIT(U32) | BIT(U64))
#define SMALL_F                                                                \
  (BIT(F4E2M1FN) | BIT(F6E2M3FN) | BIT(F6E3M2FN) | BIT(F8E3M4) | BIT(F8E4M3) | \
   BIT(F8E4M3FN) | BIT(F8E4M3B11FNUZ) | BIT(F8E4M3FNUZ) | BIT(F8E5M2) |        \
   BIT(F8E5M2FNUZ) | BIT(F8E8M0FNU))
#define R32 (BIT(F32) | BIT(F64))
#define W (R32 | BIT(BF16) | BIT(F16))
#define F (SMALL_F | W)
#define C (BIT(C64) | BIT(C128))
#define L (W | C)
#define ALL (B | S | U | F | C)
#define T_U32 BIT(U32)
#define T_TOKEN BIT(TOKEN)

// In the order of the file: pairs are numbered by it.
static const row rows[] = {
#define AT_RANDOM(Op, variant, family, types, generator) \
  {AT_OP_##Op, variant, AT_RANDOM_##family, types, at_gen_##generator},
#define AT_RANDOM_WITHOUT(Op, reason)
#include "hlo/random.def"
#undef AT_RANDOM
#undef AT_RANDOM_WITHOUT
};

// By op; NULL where the table has rows.
static const char *const reasons[AT_OP_COUNT] = {
#define AT_RANDOM(Op, variant, family, types, generator)
#define AT_RANDOM_WITHOUT(Op, reason) [AT_OP_##Op] = reason,
#include "hlo/random.def"
#undef AT_RANDOM
#undef AT_RANDOM_WITHOUT
};

uint32_t at_random_num_rows(void) { return (uint32_t)AT_LEN(rows); }
at_op at_random_row_op(uint32_t r) { return rows[r].op; }
const char *at_random_row_variant(uint32_t r) { return rows[r].variant; }
uint64_t at_random_row_types(uint32_t r) { return rows[r].types; }
const char *at_random_reason(at_op op) { return reasons[op]; }

// Comparisons and the like are counted by what they compare, loops by their
// second state value (the first is the counter).
at_dtype at_random_dtype_of(const at_node *n) {
  switch (n->op) {
    case AT_OP_COMPARE:
    case AT_OP_IS_FINITE:
    case AT_OP_COMPLEX:
    case AT_OP_ABS:
    case AT_OP_REAL:
    case AT_OP_IMAG:
    case AT_OP_FFT:
    case AT_OP_GET_DIMENSION_SIZE:
      return at_value_type(n->operands[0])->dtype;
    case AT_OP_WHILE:
    case AT_OP_RNG_BIT_GENERATOR:
      return n->num_results > 1 ? n->types[1].dtype : AT_INVALID;
    default:
      return n->num_results ? n->types[0].dtype : AT_INVALID;
  }
}

// ---- The walk

// The types of a row that the options leave; none where the family or the op is
// not asked for.
static uint64_t row_types(const at_random_options *o, const row *r) {
  uint32_t families = o->families ? o->families : ~0u;
  if (!(families & r->family)) return 0;
  if (o->only && strcmp(o->only, at_op_text(r->op))) return 0;
  return r->types & (o->dtypes ? o->dtypes : ~0ull);
}

// One pair for each bit that is left.
uint32_t at_random_num_pairs(const at_random_options *o) {
  uint32_t n = 0;
  for (size_t i = 0; i < AT_LEN(rows); i++)
    n += (uint32_t)__builtin_popcountll(row_types(o, &rows[i]));
  return n;
}

// The k-th pair in the order of the table; AT_INVALID beyond the last.
static at_random_pair pair_at(const at_random_options *o, uint64_t k) {
  for (uint32_t i = 0; i < AT_LEN(rows); i++) {
    uint64_t types = row_types(o, &rows[i]);
    uint32_t n = (uint32_t)__builtin_popcountll(types);
    if (k >= n) {
      k -= n;
      continue;
    }
    while (k--) types &= types - 1;
    return (at_random_pair){i, (at_dtype)__builtin_ctzll(types)};
  }
  return (at_random_pair){0, AT_INVALID};
}

// splitmix64
static uint64_t next64(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

// Euclid's algorithm.
static uint64_t gcd(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

// Each round visits all pairs in an order of its own: k -> a * k + b.
at_random_pair at_random_nth(const at_random_options *o, uint64_t k) {
  uint64_t n = at_random_num_pairs(o);
  if (!n) return (at_random_pair){0, AT_INVALID};
  uint64_t round = k / n, a, b = next64(&round);
  do a = next64(&round) % n;
  while (gcd(a, n) != 1);
  return pair_at(o, (a * (k % n) + b) % n);
}

// ---- Chance

uint32_t at_gen_below(at_gen *g, uint32_t n) {
  return (uint32_t)(next64(&g->state) >> 32) % n;
}
bool at_gen_chance(at_gen *g, uint32_t percent) {
  return at_gen_below(g, 100) < percent;
}
// Fisher and Yates' shuffle.
void at_gen_shuffle(at_gen *g, int64_t *v, uint32_t n) {
  for (uint32_t i = n; i > 1; i--) {
    uint32_t k = at_gen_below(g, i);
    int64_t x = v[i - 1];
    v[i - 1] = v[k];
    v[k] = x;
  }
}
int64_t *at_gen_dims(at_gen *g, uint32_t n) { return at_new(g->a, int64_t, n); }

// Sizes around powers of two, where vector code has its edges; small ones more
// often.
int64_t at_gen_size(at_gen *g) {
  static const int64_t sizes[] = {1, 1, 2,  3,  4,  5,  7,
                                  8, 9, 16, 17, 31, 33, 64};
  return AT_GEN_PICK(g, sizes);
}

// Sizes are drawn again until the value has at most max_elements. `empty` makes
// one dimension in fifty cases zero.
at_status at_gen_type(at_gen *g, at_dtype d, uint32_t lo, uint32_t hi,
                      bool empty, at_type *out) {
  int64_t *dims, count = 1;
  at_type t = {.dtype = d, .rank = lo + at_gen_below(g, hi - lo + 1)};
  AT_TRY_ALLOC(dims, at_gen_dims(g, t.rank));
  for (uint32_t i = 0; i < t.rank; i++) {
    do dims[i] = at_gen_size(g);
    while (count * dims[i] > g->max_elements);
    count *= dims[i];
  }
  if (empty && t.rank && at_gen_chance(g, 2)) dims[at_gen_below(g, t.rank)] = 0;
  t.dims = dims;
  *out = t;
  return AT_OK;
}

// ---- Data

// Most values are in [-2, 2), some are small integers, so that equal values
// meet. `special` adds infinities, NaN, zeros, denormals and extremes.
static double random_float(uint64_t *state, bool special) {
  static const double specials[] = {NAN,   INFINITY, -INFINITY, 0.0,
                                    -0.0,  1e-45,    -1e-40,    5e-324,
                                    65504, 3.4e38,   -1.7e308,  1e-8};
  uint64_t r = next64(state);
  if (special && r % 4 == 0) return specials[(r >> 8) % AT_LEN(specials)];
  if (r % 8 == 1) return (double)((int64_t)(r >> 8) % 9 - 4);
  return (double)(int64_t)(r >> 11) * 0x1p-51 - 2.0;  // [-2, 2)
}

// -3 to 8, so that products stay small; with `special` also any 64 bits.
static int64_t random_int(uint64_t *state, bool special) {
  uint64_t r = next64(state);
  if (special && r % 4 == 0) return (int64_t)next64(state);
  return (int64_t)(r >> 8) % 12 - 3;
}

// One element in t's storage form. Unsigned types get no wrapped negative
// numbers unless `special`.
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

// Dense data in `a`, element after element from the stream.
static at_status random_literal(at_arena *a, uint64_t *state, at_type t,
                                bool special, const at_literal **out) {
  size_t w = at_dtype_bytes(t.dtype);
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(a, at_type_bytes(&t), 16));
  for (int64_t i = 0; i < at_type_elements(&t); i++)
    random_element(state, t.dtype, special, data + (size_t)i * w);
  return at_literal_make(a, t, data, false, true, out);
}

// ---- Values

at_status at_gen_keep(at_gen *g, at_value v) {
  return at_vec_push(g->a, &g->values, v) ? AT_OK : AT_NO_MEMORY("values");
}

// In the computation at hand; not kept for later steps.
at_status at_gen_literal(at_gen *g, at_type t, at_value *out) {
  const at_literal *l;
  AT_TRY(random_literal(g->a, &g->state, t, false, &l));
  return at_build_constant(g->c, NULL, l, out);
}

enum { kMostParams = 12 };

// Parameters exist only in functions: inside a region it is always a constant.
at_status at_gen_fresh(at_gen *g, at_type t, at_value *out) {
  if (g->c->num_params < kMostParams && !g->c->owner) {
    AT_TRY(at_build_param(g->c, t, NULL, out));
    return at_gen_keep(g, *out);
  }
  return at_gen_literal(g, t, out);
}

// Rank within bounds, and elements unless `empty`.
static bool fits(const at_type *t, uint32_t lo, uint32_t hi, bool empty) {
  if (t->rank < lo || t->rank > hi) return false;
  return empty || at_type_elements(t) > 0;
}

static bool converts(at_dtype from, at_dtype to) {
  return from != AT_TOKEN && (!at_is_complex(from) || at_is_complex(to));
}

// A convert node of v; the caller keeps the result or not.
static at_status convert(at_gen *g, at_value v, at_dtype t, at_value *out) {
  at_type r = at_type_with(*at_value_type(v), t);
  at_step s = {.op = AT_OP_CONVERT, .types = &r, .num_types = 1};
  at_step_operand(&s, v);
  return at_step_in(g->c, &s, out);
}

// Twelve tries among the values so far, the last four of which may convert one;
// then a new value.
static at_status find(at_gen *g, at_dtype t, uint32_t lo, uint32_t hi,
                      bool empty, at_value *out) {
  uint32_t n = (uint32_t)g->values.len, tries = n ? 12 : 0;
  for (uint32_t i = 0; i < tries; i++) {
    at_value v = g->values.ptr[at_gen_below(g, n)];
    const at_type *vt = at_value_type(v);
    if (!fits(vt, lo, hi, empty) || at_type_elements(vt) > 2 * g->max_elements)
      continue;
    if (vt->dtype == t) return *out = v, AT_OK;
    if (i >= 8 && converts(vt->dtype, t)) {
      AT_TRY(convert(g, v, t, out));
      return at_gen_keep(g, *out);
    }
  }
  at_type fresh;
  AT_TRY(at_gen_type(g, t, lo, AT_MIN(hi, AT_MAX(4, lo)), empty, &fresh));
  return at_gen_fresh(g, fresh, out);
}

at_status at_gen_value(at_gen *g, at_dtype t, at_value *out) {
  return find(g, t, 0, 5, true, out);
}
// Unlike at_gen_value, never one without elements.
at_status at_gen_ranked(at_gen *g, at_dtype t, uint32_t lo, uint32_t hi,
                        at_value *out) {
  return find(g, t, lo, hi, false, out);
}

// As find, for one exact type; a conversion made here is not kept.
at_status at_gen_like(at_gen *g, at_type t, at_value *out) {
  uint32_t n = (uint32_t)g->values.len, tries = n ? 16 : 0;
  for (uint32_t i = 0; i < tries; i++) {
    at_value v = g->values.ptr[at_gen_below(g, n)];
    const at_type *vt = at_value_type(v);
    if (at_type_eq(vt, &t)) return *out = v, AT_OK;
    at_type same = at_type_with(*vt, t.dtype);
    if (i >= 10 && at_type_eq(&same, &t) && converts(vt->dtype, t.dtype))
      return convert(g, v, t.dtype, out);
  }
  return at_gen_fresh(g, t, out);
}

// A scalar constant in computation c.
at_status at_gen_int(at_gen *g, at_comp *c, at_dtype t, int64_t v,
                     at_value *out) {
  uint8_t data[8];
  const at_literal *l;
  at_store_int(t, data, v);
  AT_TRY(at_literal_make(g->a, at_type_scalar(t), data, false, false, &l));
  return at_build_constant(c, NULL, l, out);
}

// A splat; the imaginary part of complex types is zero.
at_status at_gen_float(at_gen *g, at_comp *c, at_type t, double v,
                       at_value *out) {
  uint8_t data[16] = {0};
  const at_literal *l;
  at_store_float(at_real_of(t.dtype), data, v);
  AT_TRY(at_literal_make(g->a, t, data, true, false, &l));
  return at_build_constant(c, NULL, l, out);
}

// What the dynamic ops take as shape.
at_status at_gen_list(at_gen *g, const int64_t *v, uint32_t n, at_value *out) {
  int64_t *dims;
  const at_literal *l;
  AT_TRY_ALLOC(dims, at_gen_dims(g, 1));
  dims[0] = n;
  at_type t = {.dtype = AT_S64, .rank = 1, .dims = dims};
  AT_TRY(at_literal_make(g->a, t, v, false, false, &l));
  return at_build_constant(g->c, NULL, l, out);
}

// ---- Nodes

void at_step_ints(at_step *s, at_attr_id id, const int64_t *v, uint32_t n) {
  s->attrs[s->num_attrs++] = (at_attr){.id = id, .ints = {v, n}};
}
void at_step_int(at_step *s, at_attr_id id, int64_t v) {
  s->attrs[s->num_attrs++] = (at_attr){.id = id, .i = v};
}
void at_step_str(at_step *s, at_attr_id id, const char *text) {
  s->attrs[s->num_attrs++] = (at_attr){.id = id, .s = at_str_of(text)};
}
void at_step_operand(at_step *s, at_value v) {
  s->operands[s->num_operands++] = v;
}

// Arrays of the step are read now: they may be on the stack, but for lists that
// attributes point to, which at_build copies.
at_status at_step_in(at_comp *c, const at_step *s, at_value *out) {
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

// Every result goes into the list of values.
at_status at_step_build(at_gen *g, const at_step *s) {
  at_value v;
  AT_TRY(at_step_in(g->c, s, &v));
  for (uint32_t i = 0; i < v.node->num_results; i++)
    AT_TRY(at_gen_keep(g, (at_value){v.node, i}));
  return AT_OK;
}

// Comparisons of floats use the total order: a sort by `less` has no defined
// result with NaN.
at_status at_gen_binary_region(at_gen *g, at_op op, at_dtype t, at_comp **out) {
  at_value v[2], r;
  AT_TRY(at_region_create(g->m, out));
  AT_TRY(at_build_param(*out, at_type_scalar(t), NULL, &v[0]));
  AT_TRY(at_build_param(*out, at_type_scalar(t), NULL, &v[1]));
  at_step s = {.op = op};
  at_step_operand(&s, v[0]);
  at_step_operand(&s, v[1]);
  if (op == AT_OP_COMPARE) {
    at_step_int(&s, AT_ATTR_COMPARISON_DIRECTION,
                at_gen_chance(g, 50) ? AT_LT : AT_GT);
    if (at_is_float(t))
      at_step_int(&s, AT_ATTR_COMPARE_TYPE, AT_CMP_TOTALORDER);
  }
  AT_TRY(at_step_in(*out, &s, &r));
  return at_comp_return(*out, &r, 1);
}

// ---- Modules

// A region's results count as uses, a function's do not: those are what is to
// be decided.
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

// Returns unused values and verifies: what does not verify is a bug of a
// generator.
static at_status finish(at_gen *g) {
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

// Step i makes pair first + i of the walk. The default start gives each seed
// pairs of its own.
static at_status generate(at_gen *g, const at_random_options *o) {
  AT_TRY(at_module_create(g->a, AT_STR("random"), &g->m));
  AT_TRY(at_comp_create(g->m, AT_STR("main"), NULL, &g->c));
  g->m->entry = g->c;
  uint32_t nodes = o->nodes ? o->nodes : 20;
  uint64_t first = o->first ? o->first : o->seed * nodes;
  for (uint32_t i = 0; i < nodes; i++) {
    at_random_pair p = at_random_nth(o, first + i);
    AT_TRY(rows[p.row].generate(g, rows[p.row].op, p.dtype));
  }
  return finish(g);
}

// INVALID_ARGUMENT of a builder means that a generator made a bad node: it
// becomes INTERNAL, with the seed.
at_status at_random_module(at_arena *a, const at_random_options *o,
                           at_module **out) {
  if (!at_random_num_pairs(o))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "random program: no op of these families takes these types");
  uint64_t start = o->seed;  // mixed, or neighbours would share a stream
  at_gen g = {.a = a,
              .state = next64(&start),
              .max_elements = o->max_elements > 0 ? o->max_elements : 2000};
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

// The stream depends on the seed alone, not on the module's.
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
