// Products over groups against a plain loop in double that asks, for each
// position, which group has it.
#include "kernels/kernels_test_util.h"

// One kind of product: sizes of its dimensions, and how the groups divide it.
typedef struct shape {
  uint32_t kind;
  int64_t batch, outer, m, k, n;  // outer: a dimension of A before m
  bool rows;                      // of sizes: one for each batch (and outer)
} shape;

static const shape shapes[] = {
    {AT_RAGGED_ROWS, 1, 1, 40, 24, 33, false},
    {AT_RAGGED_ROWS, 1, 1, 300, 70, 130, false},
    {AT_RAGGED_ROWS, 3, 1, 37, 16, 20, false},
    {AT_RAGGED_ROWS, 3, 1, 37, 16, 20, true},
    {AT_RAGGED_ROWS, 2, 3, 19, 8, 9, true},
    {AT_RAGGED_ROWS, 2, 3, 19, 8, 9, false},
    {AT_RAGGED_ROWS, 1, 1, 64, 0, 8, false},
    {AT_RAGGED_ROWS, 1, 1, 0, 5, 8, false},
    {AT_RAGGED_K, 1, 1, 21, 90, 40, false},
    {AT_RAGGED_K, 2, 1, 40, 65, 33, true},
    {AT_RAGGED_K, 2, 1, 5, 12, 7, false},
    {AT_RAGGED_BATCH, 9, 1, 6, 5, 7, false},
    {AT_RAGGED_BATCH, 12, 1, 40, 33, 40, false},
};

typedef struct kinds {
  uint32_t in, acc, out;
} kinds;
static const kinds types[] = {{AT_F32, AT_F32, AT_F32},
                              {AT_BF16, AT_F32, AT_BF16},
                              {AT_BF16, AT_F32, AT_F32},
                              {AT_F64, AT_F64, AT_F64},
                              {AT_S8, AT_S32, AT_S32}};

enum { GROUPS = 5 };

// Two sizes without strides.
static at_k_gemm_dims dims(uint32_t rank, int64_t n0, int64_t n1) {
  return (at_k_gemm_dims){.rank = rank, .size = {n0, n1}};
}

// A[batch][outer][m][k], B[batch][k][n] with groups outside of it for ROWS,
// C[batch][outer][m][n] with groups outside of it for K.
static at_k_ragged_params make(const shape *s, kinds t, uint32_t sizes_type) {
  at_k_ragged_params r = {.kind = s->kind,
                          .sizes_type = sizes_type,
                          .groups = GROUPS,
                          .dim = s->kind == AT_RAGGED_ROWS};
  r.batch_dims = s->rows;
  r.m_dims = s->rows && s->kind == AT_RAGGED_ROWS;
  at_k_gemm_params *p = &r.product;
  p->a = p->b = t.in, p->acc = t.acc, p->c = t.out;
  p->batch = dims(1, s->batch, 0);
  p->batch.stride_x[0] = s->outer * s->m * s->k;
  p->batch.stride_y[0] = s->k * s->n;
  p->batch.stride_z[0] = s->outer * s->m * s->n;
  p->m = dims(2, s->outer, s->m);
  p->m.stride_x[0] = s->m * s->k, p->m.stride_x[1] = s->k;
  p->m.stride_y[0] = s->m * s->n, p->m.stride_y[1] = s->n;
  p->n = dims(1, s->n, 0);
  p->n.stride_x[0] = p->n.stride_y[0] = 1;
  p->k = dims(1, s->k, 0);
  p->k.stride_x[0] = 1, p->k.stride_y[0] = s->n;
  r.group_stride = s->kind == AT_RAGGED_ROWS
                       ? s->batch * s->k * s->n
                       : s->batch * s->outer * s->m * s->n;
  return r;
}

// The group that has a position, -1: none.
static int64_t group_of(const int64_t *sizes, int64_t position) {
  int64_t end = 0;
  for (int64_t g = 0; g < GROUPS; g++) {
    if (__builtin_add_overflow(end, sizes[g], &end)) end = INT64_MAX;
    if (position < end) return g;
  }
  return -1;
}

// One run: operands, result and sizes.
typedef struct data {
  const shape *s;
  kinds t;
  const char *a, *b, *c;
  const int64_t *sizes;
} data;

// One element of C by the definition: 0 for what no group has.
static double element(const data *d, int64_t g, int64_t x, int64_t o, int64_t i,
                      int64_t j) {
  const shape *s = d->s;
  int64_t es = at_dtype_bytes((at_dtype)d->t.in), outer = x * s->outer + o;
  const int64_t *sizes = d->sizes + (s->rows ? outer * GROUPS : 0);
  double sum = 0;
  int64_t b = x;
  if (s->kind == AT_RAGGED_ROWS) b += (g = group_of(sizes, i)) * s->batch;
  if (s->kind == AT_RAGGED_BATCH) g = group_of(sizes, x);
  if (g < 0) return 0;
  for (int64_t q = 0; q < s->k; q++) {
    if (s->kind == AT_RAGGED_K && group_of(sizes, q) != g) continue;
    double l =
        at_k_load_f64(d->t.in, d->a + ((outer * s->m + i) * s->k + q) * es);
    double r = at_k_load_f64(d->t.in, d->b + ((b * s->k + q) * s->n + j) * es);
    sum += l * r;
  }
  return sum;
}

// Every element of C, within a tolerance of its type.
static void compare(const data *d) {
  const shape *s = d->s;
  int64_t es = at_dtype_bytes((at_dtype)d->t.out);
  double tolerance = d->t.out == AT_BF16  ? 0.01
                     : d->t.out == AT_F32 ? 2e-6
                     : d->t.out == AT_F64 ? 1e-14
                                          : 0;
  tolerance *= sqrt((double)s->k) + 1;
  const char *c = d->c;
  for (int64_t g = 0; g < (s->kind == AT_RAGGED_K ? GROUPS : 1); g++)
    for (int64_t x = 0; x < s->batch; x++)
      for (int64_t o = 0; o < s->outer; o++)
        for (int64_t i = 0; i < s->m; i++)
          for (int64_t j = 0; j < s->n; j++, c += es) {
            double want = element(d, g, x, o, i, j);
            double got = at_k_load_f64(d->t.out, c);
            if (!(fabs(got - want) <= tolerance))
              fail_msg("kind %u %s: [%ld,%ld,%ld,%ld,%ld] is %.9g, want %.9g",
                       s->kind, at_k_dtype_text(d->t.in), g, x, o, i, j, got,
                       want);
          }
}

// One thread and two give the same bits, and nothing is written behind C.
static void run(const shape *s, kinds t, uint32_t sizes_type,
                const int64_t *sizes, uint64_t *seed) {
  at_k_ragged_params p = make(s, t, sizes_type);
  int64_t rows = s->rows ? s->batch * s->outer : 1;
  int64_t extra_b = s->kind == AT_RAGGED_ROWS ? GROUPS : 1;
  int64_t extra_c = s->kind == AT_RAGGED_K ? GROUPS : 1;
  int64_t c_elems = extra_c * s->batch * s->outer * s->m * s->n;
  size_t bytes = (size_t)(c_elems * at_dtype_bytes((at_dtype)t.out));
  char *a = tu_fill(t.in, s->batch * s->outer * s->m * s->k, seed);
  char *b = tu_fill(t.in, extra_b * s->batch * s->k * s->n, seed);
  char *given = malloc((size_t)(rows * GROUPS) * 8);
  at_k_convert(sizes_type, given, AT_S64, sizes, rows * GROUPS);
  char *c[2];
  for (int i = 0; i < 2; i++) {
    c[i] = malloc(bytes + 64);
    memset(c[i], 0x5a, bytes + 64);
    void *bufs[] = {a, b, given, c[i]};
    assert_int_equal(tu_run(AT_RT_RAGGED_DOT, &p, 4, bufs, (uint32_t)i + 1),
                     AT_OK_CODE);
  }
  if (memcmp(c[0], c[1], bytes + 64))
    fail_msg("bits depend on the number of threads");
  for (int i = 0; i < 64; i++)
    assert_int_equal((uint8_t)c[0][bytes + (size_t)i], 0x5a);
  compare(&(data){s, t, a, b, c[0], sizes});
  free(a), free(b), free(given), free(c[0]), free(c[1]);
}

// The length that the groups divide.
static int64_t divided(const shape *s) {
  return s->kind == AT_RAGGED_ROWS ? s->m
         : s->kind == AT_RAGGED_K  ? s->k
                                   : s->batch;
}

enum { EXACT, SHORT, EMPTY, LONG, BACKWARD, HUGE_SIZES, EVEN, WAYS };
// Sizes that add up to n, to less, to nothing, to more; a negative one; sums
// that overflow; equal ones, which threads take whole.
static void fill_sizes(int64_t *sizes, int64_t rows, int64_t n, int way,
                       uint64_t *seed) {
  for (int64_t r = 0; r < rows; r++, sizes += GROUPS) {
    int64_t left = way == SHORT ? n / 2 : n;
    for (int g = 0; g < GROUPS; g++) {
      sizes[g] = tu_below(seed, left + 1);
      if (g == GROUPS - 1 && way == EXACT) sizes[g] = left;
      left -= sizes[g];
      if (way == EMPTY) sizes[g] = 0;
    }
    if (way == LONG) sizes[2] += n + 3;
    for (int g = 0; g < GROUPS && way == EVEN; g++) sizes[g] = n / GROUPS;
    if (way == BACKWARD) sizes[1] = -sizes[1], sizes[3] += n;
    if (way == HUGE_SIZES) sizes[1] = INT64_MAX - 1, sizes[2] = INT64_MAX;
  }
}

// Every kind and type, however the sizes add up.
static void test_shapes(void **state) {
  uint64_t seed = 11;
  int64_t sizes[6 * GROUPS];
  for (size_t f = 0; f < AT_LEN(tu_features); f++) {
    at_k_limit_features(tu_features[f]);
    for (size_t s = 0; s < AT_LEN(shapes); s++)
      for (size_t t = 0; t < AT_LEN(types); t++)
        for (int way = 0; way < WAYS; way++) {
          fill_sizes(sizes, 6, divided(&shapes[s]), way, &seed);
          run(&shapes[s], types[t], way == HUGE_SIZES ? AT_S64 : AT_S32, sizes,
              &seed);
        }
  }
  at_k_limit_features(UINT64_MAX);
}

// Sizes of every integer type.
static void test_types_of_sizes(void **state) {
  static const uint32_t of[] = {AT_S8,  AT_U8,  AT_S16, AT_U16,
                                AT_S32, AT_U32, AT_S64, AT_U64};
  static const int64_t sizes[GROUPS] = {7, 0, 21, 3, 5};
  uint64_t seed = 3;
  for (size_t i = 0; i < AT_LEN(of); i++)
    run(&shapes[0], types[0], of[i], sizes, &seed);
}

// What a group has does not reach the others, and what no group has is zero.
static void test_nan_stays_in_its_group(void **state) {
  const shape s = {AT_RAGGED_ROWS, 1, 1, 20, 8, 16, false};
  at_k_ragged_params p = make(&s, types[0], AT_S32);
  float a[20 * 8], b[GROUPS * 8 * 16], c[20 * 16];
  int32_t sizes[GROUPS] = {4, 4, 0, 4, 4};
  for (int i = 0; i < 20 * 8; i++) a[i] = i / 8 >= 16 ? NAN : 1;
  for (int i = 0; i < GROUPS * 8 * 16; i++)
    b[i] = i / (8 * 16) == 2 ? INFINITY : 1;
  a[5 * 8] = NAN;
  void *bufs[] = {a, b, sizes, c};
  assert_int_equal(tu_run(AT_RT_RAGGED_DOT, &p, 4, bufs, 2), AT_OK_CODE);
  for (int i = 0; i < 20; i++)
    for (int j = 0; j < 16; j++) {
      float got = c[i * 16 + j];
      assert_true(i == 5 ? isnan(got) : got == (i < 16 ? 8.0f : 0.0f));
    }
}

// Scratch memory of which only some takes succeed.
typedef struct scarce {
  tu_owner owner;
  int left;
} scarce;
static void *take_scarce(void *owner, size_t bytes) {
  scarce *s = owner;
  return s->left-- > 0 ? tu_scratch(&s->owner, bytes) : NULL;
}

// However little scratch memory there is: the right result or a status, also
// where several threads fail.
static void test_scarce_memory(void **state) {
  const shape s = {AT_RAGGED_ROWS, 1, 1, 100, 70, 130, false};
  at_k_ragged_params p = make(&s, types[0], AT_S32);
  int32_t sizes[GROUPS] = {20, 20, 20, 20, 20};
  uint64_t seed = 5;
  char *a = tu_fill(AT_F32, s.m * s.k, &seed);
  char *b = tu_fill(AT_F32, GROUPS * s.k * s.n, &seed);
  size_t bytes = (size_t)(s.m * s.n) * 4;
  char *c = malloc(bytes), *want = malloc(bytes);
  void *bufs[] = {a, b, sizes, want};
  assert_int_equal(tu_run(AT_RT_RAGGED_DOT, &p, 4, bufs, 1), AT_OK_CODE);
  bufs[3] = c;
  bool refused = false, done = false;
  for (int left = 0; left < 64 && !done; left++) {
    scarce memory = {.left = left};
    at_par par = {tu_pool(2), take_scarce, &memory};
    at_k_call call = {&par, &p, bufs, 4, NULL};
    at_code code = at_code_take(at_k_of(AT_RT_RAGGED_DOT)->run(&call));
    tu_release(&memory.owner);
    done = code == AT_OK_CODE;
    if (done)
      assert_memory_equal(c, want, bytes);
    else
      assert_int_equal(code, AT_RESOURCE_EXHAUSTED);
    refused |= !done;
  }
  assert_true(refused && done);
  free(a), free(b), free(c), free(want);
}

static void test_errors(void **state) {
  float x[64] = {0};
  const shape s = {AT_RAGGED_ROWS, 1, 1, 4, 2, 2, false};
  const at_k_ragged_params good = make(&s, types[0], AT_S32);
  int32_t sizes[GROUPS] = {1, 1, 1, 1, 0};
  void *bufs[] = {x, x, sizes, x + 32};
#define REFUSED(change)                                        \
  do {                                                         \
    at_k_ragged_params p = good;                               \
    change;                                                    \
    assert_int_equal(tu_run(AT_RT_RAGGED_DOT, &p, 4, bufs, 1), \
                     AT_INVALID_ARGUMENT);                     \
  } while (0)
  REFUSED(p.kind = 3);
  REFUSED(p.dim = 2);
  REFUSED(p.groups = -1);
  REFUSED(p.sizes_type = AT_F32);
  REFUSED(p.batch_dims = 2);
  REFUSED(p.m_dims = 2);
  REFUSED(p.product.m.rank = 99);
  REFUSED(p.product.n.size[0] = -1);
  REFUSED(p.product.epilogue = AT_EPI_BIAS_N);
  assert_int_equal(tu_run(AT_RT_RAGGED_DOT, &good, 3, bufs, 1),
                   AT_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes), cmocka_unit_test(test_types_of_sizes),
      cmocka_unit_test(test_nan_stays_in_its_group),
      cmocka_unit_test(test_scarce_memory), cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
