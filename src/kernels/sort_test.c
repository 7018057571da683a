// SORT and TOP_K against insertion into order by a plain comparison.
#include "kernels/kernels_test_util.h"

// -1, 0, 1 in the documented order.
static int compare_elem(uint32_t t, const void *a, const void *b) {
  if (t == AT_S64) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
  }
  if (t == AT_U64) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
  }
  int parts = at_is_complex((at_dtype)t) ? 2 : 1;
  uint32_t r = at_real_of((at_dtype)t);
  for (int h = 0; h < parts; h++) {
    double x =
        at_k_load_f64(r, (const char *)a + h * at_dtype_bytes((at_dtype)r));
    double y =
        at_k_load_f64(r, (const char *)b + h * at_dtype_bytes((at_dtype)r));
    if (isnan(x) && isnan(y)) continue;
    if (isnan(x)) return 1;
    if (isnan(y)) return -1;
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

// The row that compare_index sorts.
typedef struct want {
  const at_k_sort_params *p;
  char *const *in;
  int64_t row;
} want;
static want cmp_ctx;

// Positions of a row by its keys, ties by position.
static int compare_index(const void *pa, const void *pb) {
  int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;
  const at_k_sort_params *p = cmp_ctx.p;
  int64_t base =
      cmp_ctx.row / p->inner * p->size * p->inner + cmp_ctx.row % p->inner;
  for (uint32_t k = 0; k < p->num_keys; k++) {
    int64_t es = p->element_bytes[k];
    int c =
        compare_elem(p->dtype[k], cmp_ctx.in[k] + (base + a * p->inner) * es,
                     cmp_ctx.in[k] + (base + b * p->inner) * es);
    if (p->order == AT_ORDER_DESC) c = -c;
    if (c) return c;
  }
  return (a > b) - (a < b);
}

// The comparator kernel of the CUSTOM runs: f32 operand 0, descending.
static bool descending_f32(const void *const *ptrs) {
  return *(const float *)ptrs[0] > *(const float *)ptrs[1];
}

// Against qsort of positions, on one thread and two.
static void check_sort(at_k_sort_params p, char *const *in) {
  int64_t n = p.outer * p.size * p.inner;
  char *out[2][AT_K_SORT_OPERANDS];
  for (uint32_t t = 0; t < 2; t++) {
    void *bufs[2 * AT_K_SORT_OPERANDS];
    for (uint32_t o = 0; o < p.num_operands; o++) {
      out[t][o] = malloc((size_t)(n * p.element_bytes[o]) + 1);
      bufs[o] = in[o], bufs[p.num_operands + o] = out[t][o];
    }
    assert_int_equal(
        tu_run_cmp(AT_RT_SORT, &p, 2 * p.num_operands, bufs, t + 1,
                   p.order == AT_ORDER_CUSTOM ? descending_f32 : NULL),
        AT_OK_CODE);
  }
  if (p.order == AT_ORDER_CUSTOM) p.order = AT_ORDER_DESC, p.num_keys = 1;
  int64_t *order = malloc((size_t)p.size * sizeof *order);
  for (int64_t row = 0; row < p.outer * p.inner; row++) {
    for (int64_t i = 0; i < p.size; i++) order[i] = i;
    cmp_ctx = (want){&p, in, row};
    qsort(order, (size_t)p.size, sizeof *order, compare_index);
    int64_t base = row / p.inner * p.size * p.inner + row % p.inner;
    for (uint32_t o = 0; o < p.num_operands; o++) {
      int64_t es = p.element_bytes[o];
      for (int64_t i = 0; i < p.size; i++) {
        const char *w = in[o] + (base + order[i] * p.inner) * es;
        for (int t = 0; t < 2; t++)
          if (memcmp(out[t][o] + (base + i * p.inner) * es, w, (size_t)es))
            fail_msg(
                "%s, order %u, outer %ld size %ld inner %ld, operand %u, "
                "threads "
                "%d: row %ld position %ld is wrong",
                at_k_dtype_text(p.dtype[0]), p.order, p.outer, p.size, p.inner,
                o, t + 1, row, i);
      }
    }
  }
  free(order);
  for (uint32_t t = 0; t < 2; t++)
    for (uint32_t o = 0; o < p.num_operands; o++) free(out[t][o]);
}

// Values with many ties, both zeros, infinities and NaN of both signs.
static char *make_keys(uint32_t t, int64_t n, uint64_t *seed, bool odd) {
  char *p = tu_fill(t, n, seed);
  uint32_t r = at_real_of((at_dtype)t);
  int64_t es = at_dtype_bytes((at_dtype)r),
          parts = n * at_dtype_bytes((at_dtype)t) / es;
  bool f = at_is_float((at_dtype)r);
  static const double special[] = {0.0, -0.0, INFINITY, -INFINITY,
                                   NAN, -NAN, 1,        -1};
  for (int64_t i = 0; i < parts; i++) {
    int64_t pick = tu_below(seed, 12);
    if (f && odd && pick < 8)
      at_k_store_f64(r, p + i * es, special[pick]);
    else if (!f) {
      uint64_t v = tu_rand(seed) >> tu_below(seed, 64);
      if (t == AT_S2 || t == AT_S4)
        at_k_store_f64(t, p + i, (double)(v % 4) - 2);
      else if (t == AT_PRED || t == AT_U2 || t == AT_U4)
        p[i] = (char)(v & 1);
      else
        memcpy(p + i * es, &v, (size_t)es);
    }
  }
  return p;
}

// Both orders, alone and with a companion.
static void test_keys_of_every_type(void **state) {
  uint64_t seed = 5;
  static const uint32_t types[] = {
      AT_F32,  AT_F64, AT_F16, AT_BF16, AT_S8,      AT_S16,
      AT_S32,  AT_S64, AT_U8,  AT_U16,  AT_U32,     AT_U64,
      AT_PRED, AT_S4,  AT_C64, AT_C128, AT_F8E4M3FN};
  static const int64_t shapes[][3] = {{1, 1, 1},   {1, 17, 1},   {3, 100, 1},
                                      {2, 300, 3}, {1, 2000, 1}, {4, 0, 2},
                                      {7, 2, 5}};
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < AT_LEN(shapes); s++)
      for (uint32_t order = 0; order < 2; order++) {
        int64_t n = shapes[s][0] * shapes[s][1] * shapes[s][2];
        at_k_sort_params p = {.num_operands = 2,
                              .stable = 1,
                              .order = order,
                              .num_keys = 1,
                              .outer = shapes[s][0],
                              .size = shapes[s][1],
                              .inner = shapes[s][2],
                              .dtype = {types[t], AT_S32}};
        p.element_bytes[0] = at_dtype_bytes((at_dtype)types[t]),
        p.element_bytes[1] = 4;
        int32_t *index = malloc((size_t)n * 4 + 1);
        for (int64_t i = 0; i < n; i++) index[i] = (int32_t)i;
        char *in[] = {make_keys(types[t], n, &seed, true), (char *)index};
        check_sort(p, in);
        p.num_operands = 1;
        check_sort(p, in);
        free(in[0]), free(in[1]);
      }
}

// Rows that all threads sort; odd: with NaN and both zeros.
static void test_long_rows(void **state) {
  uint64_t seed = 6;
  static const uint32_t types[] = {AT_F32, AT_S32, AT_U32, AT_F64, AT_BF16};
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (int odd = 0; odd < 2; odd++)
      for (uint32_t order = 0; order < 2; order++) {
        int64_t n = 50001;
        at_k_sort_params p = {.stable = 1,
                              .order = order,
                              .num_keys = 1,
                              .outer = 1,
                              .size = n,
                              .inner = 1,
                              .dtype = {types[t], AT_S32}};
        p.element_bytes[0] = at_dtype_bytes((at_dtype)types[t]),
        p.element_bytes[1] = 4;
        char *in[] = {make_keys(types[t], n, &seed, odd),
                      tu_fill(AT_S32, n, &seed)};
        for (p.num_operands = 1; p.num_operands <= 2; p.num_operands++)
          check_sort(p, in);
        free(in[0]), free(in[1]);
      }
}

// Three keys of different widths, on both sides of the length that is shared.
static void test_several_keys(void **state) {
  uint64_t seed = 7;
  for (int64_t n = 50; n < 50000; n = n * 30 + 7) {
    at_k_sort_params p = {.num_operands = 4,
                          .stable = 1,
                          .num_keys = 3,
                          .outer = 1,
                          .size = n,
                          .inner = 1,
                          .dtype = {AT_S8, AT_F64, AT_U16, AT_C128},
                          .element_bytes = {1, 8, 2, 16}};
    char *in[4];
    for (int o = 0; o < 4; o++) in[o] = make_keys(p.dtype[o], n, &seed, true);
    check_sort(p, in);
    for (int o = 0; o < 4; o++) free(in[o]);
  }
}

// As many as there may be, with 1, 86 and more keys; one more is refused.
static void test_many_operands(void **state) {
  enum { N = 300 };
  uint64_t seed = 9;
  at_k_sort_params p = {.num_operands = AT_K_SORT_OPERANDS,
                        .stable = 1,
                        .outer = 1,
                        .size = N,
                        .inner = 1};
  char *in[AT_K_SORT_OPERANDS];
  for (uint32_t o = 0; o < AT_K_SORT_OPERANDS; o++) {
    p.dtype[o] = o % 2 ? AT_S32 : AT_F32;
    p.element_bytes[o] = 4;
    in[o] = malloc(N * 4);
    for (int64_t i = 0; i < N; i++)
      at_k_store_f64(p.dtype[o], in[o] + 4 * i, (double)tu_below(&seed, 2));
  }
  for (p.num_keys = 1; p.num_keys <= AT_K_SORT_OPERANDS; p.num_keys += 85)
    check_sort(p, in);
  p.order = AT_ORDER_CUSTOM;
  check_sort(p, in);
  p.num_operands++;
  void *bufs[2 * AT_K_SORT_OPERANDS + 2] = {NULL};
  assert_int_equal(tu_run(AT_RT_SORT, &p, 2 * p.num_operands, bufs, 1),
                   AT_INVALID_ARGUMENT);
  for (uint32_t o = 0; o < AT_K_SORT_OPERANDS; o++) free(in[o]);
}

// A comparator's order is stable.
static void test_comparator(void **state) {
  uint64_t seed = 8;
  static const int64_t shapes[][3] = {
      {2, 33, 3}, {1, 40000, 1}, {1, 1, 1}, {5, 9, 1}};
  for (size_t s = 0; s < AT_LEN(shapes); s++) {
    int64_t n = shapes[s][0] * shapes[s][1] * shapes[s][2];
    at_k_sort_params p = {.num_operands = 2,
                          .stable = 1,
                          .order = AT_ORDER_CUSTOM,
                          .outer = shapes[s][0],
                          .size = shapes[s][1],
                          .inner = shapes[s][2],
                          .dtype = {AT_F32, AT_S32},
                          .element_bytes = {4, 4}};
    float *x = malloc((size_t)n * 4);
    int32_t *index = malloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
      x[i] = (float)tu_below(&seed, 50), index[i] = (int32_t)i;
    char *in[] = {(char *)x, (char *)index};
    check_sort(p, in);
    free(x), free(index);
  }
}

// Buffers, keys and sizes of elements that do not fit.
static void test_sort_errors(void **state) {
  float x[4] = {0};
  void *bufs[] = {x, x};
  at_k_sort_params p = {.num_operands = 1,
                        .num_keys = 1,
                        .outer = 1,
                        .size = 4,
                        .inner = 1,
                        .dtype = {AT_F32},
                        .element_bytes = {4}};
  assert_int_equal(tu_run(AT_RT_SORT, &p, 1, bufs, 1), AT_INVALID_ARGUMENT);
  p.num_keys = 0;
  assert_int_equal(tu_run(AT_RT_SORT, &p, 2, bufs, 1), AT_INVALID_ARGUMENT);
  p.num_keys = 1, p.order = AT_ORDER_CUSTOM;
  assert_int_equal(tu_run(AT_RT_SORT, &p, 2, bufs, 1), AT_INVALID_ARGUMENT);
  p.order = 0, p.element_bytes[0] = 3;
  assert_int_equal(tu_run(AT_RT_SORT, &p, 2, bufs, 1), AT_INVALID_ARGUMENT);
}

// ---- TOP_K
// Order of the bits: sign-aware, so that -NaN < -inf < -0 < 0 < inf < NaN.
static double total_rank(uint32_t t, const char *p, double *minor) {
  double v = at_k_load_f64(t, p);
  *minor = 0;
  if (!at_is_float((at_dtype)t)) return v;
  if (isnan(v)) return signbit(v) ? -1e300 * 1e10 - 1 : 1e300;
  *minor = v == 0 ? (signbit(v) ? -1 : 0) : 0;
  return isinf(v) ? (v > 0 ? 1e299 : -1e299) : v;
}
static const char *topk_base;
static uint32_t topk_type;
static bool topk_largest;
// The documented order, ties by position.
static int compare_topk(const void *pa, const void *pb) {
  int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;
  int64_t es = at_dtype_bytes((at_dtype)topk_type);
  double ma, mb;
  double x = total_rank(topk_type, topk_base + a * es, &ma);
  double y = total_rank(topk_type, topk_base + b * es, &mb);
  int c = x != y ? (x < y ? -1 : 1) : ma != mb ? (ma < mb ? -1 : 1) : 0;
  if (c) return topk_largest ? -c : c;
  return (a > b) - (a < b);
}

// Few and many, short rows and rows in chunks; one thread and two give the same
// bits.
static void test_top_k(void **state) {
  uint64_t seed = 11;
  static const uint32_t types[] = {AT_F32, AT_BF16, AT_F16, AT_F64, AT_S32,
                                   AT_U32, AT_S8,   AT_S64, AT_U8};
  static const int64_t shapes[][3] = {
      // rows, size, k
      {1, 1, 1},       {3, 50, 7},       {4, 1000, 1}, {2, 3000, 3000},
      {1, 200000, 64}, {2, 150000, 300}, {5, 10, 0},   {20, 777, 16},
      {3, 2000, 40},   {7, 64, 64},      {30, 8, 2}};
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < AT_LEN(shapes); s++)
      for (uint32_t largest = 0; largest < 2; largest++) {
        at_k_top_k_params p = {types[t], largest, shapes[s][0], shapes[s][1],
                               shapes[s][2]};
        int64_t n = p.rows * p.size, es = at_dtype_bytes((at_dtype)types[t]);
        char *x = tu_fill(types[t], n, &seed);
        if (at_is_float((at_dtype)types[t]))
          for (int64_t i = 0; i < n; i += 37) {
            static const double special[] = {0.0, -0.0, INFINITY, -INFINITY,
                                             NAN};
            at_k_store_f64(types[t], x + i * es, special[tu_below(&seed, 5)]);
          }
        char *v[2];
        int32_t *ix[2];
        for (uint32_t th = 0; th < 2; th++) {
          v[th] = malloc((size_t)(p.rows * p.k * es) + 1);
          ix[th] = malloc((size_t)(p.rows * p.k * 4) + 1);
          void *bufs[] = {x, v[th], ix[th]};
          assert_int_equal(tu_run(AT_RT_TOP_K, &p, 3, bufs, th + 1),
                           AT_OK_CODE);
        }
        assert_memory_equal(v[0], v[1], (size_t)(p.rows * p.k * es));
        assert_memory_equal(ix[0], ix[1], (size_t)(p.rows * p.k * 4));
        int32_t *order = malloc((size_t)p.size * 4);
        for (int64_t r = 0; r < p.rows; r++) {
          for (int64_t i = 0; i < p.size; i++) order[i] = (int32_t)i;
          topk_base = x + r * p.size * es, topk_type = types[t],
          topk_largest = largest;
          qsort(order, (size_t)p.size, 4, compare_topk);
          for (int64_t i = 0; i < p.k; i++) {
            if (ix[0][r * p.k + i] != order[i])
              fail_msg(
                  "%s largest %u rows %ld size %ld k %ld: row %ld rank %ld is "
                  "%d, "
                  "want %d",
                  at_k_dtype_text(types[t]), largest, p.rows, p.size, p.k, r, i,
                  ix[0][r * p.k + i], order[i]);
            assert_memory_equal(v[0] + (r * p.k + i) * es,
                                topk_base + order[i] * es, (size_t)es);
          }
        }
        free(order), free(x);
        for (int th = 0; th < 2; th++) free(v[th]), free(ix[th]);
      }
}

// More than there are, and complex numbers.
static void test_top_k_errors(void **state) {
  float x[4] = {0};
  void *bufs[] = {x, x, x};
  at_k_top_k_params p = {AT_F32, 1, 1, 2, 3};
  assert_int_equal(tu_run(AT_RT_TOP_K, &p, 3, bufs, 1), AT_INVALID_ARGUMENT);
  p.k = 1, p.dtype = AT_C64;
  assert_int_equal(tu_run(AT_RT_TOP_K, &p, 3, bufs, 1), AT_UNIMPLEMENTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys_of_every_type),
                                     cmocka_unit_test(test_long_rows),
                                     cmocka_unit_test(test_several_keys),
                                     cmocka_unit_test(test_many_operands),
                                     cmocka_unit_test(test_comparator),
                                     cmocka_unit_test(test_sort_errors),
                                     cmocka_unit_test(test_top_k),
                                     cmocka_unit_test(test_top_k_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
