// COPY, FILL, TRANSPOSE and SCAN against plain
// loops.
#include "kernels/kernels_test_util.h"

// Random bytes, with 16 behind them that nobody may change.
static char *noise(int64_t bytes, uint64_t *seed) {
  char *p = aligned_alloc(64, ((size_t)bytes + 16 + 63) / 64 * 64);
  for (int64_t i = 0; i < bytes + 16; i++) p[i] = (char)tu_rand(seed);
  return p;
}

// Sizes around the blocks, elements of every size.
static void test_copy_and_fill(void **state) {
  uint64_t seed = 41;
  static const int64_t sizes[] = {0, 1, 63, 4097, (1 << 20) + 13, 5 << 20};
  for (size_t s = 0; s < AT_LEN(sizes); s++) {
    char *a = noise(sizes[s], &seed), *b = noise(sizes[s], &seed), guard[16];
    memcpy(guard, b + sizes[s], 16);
    at_k_copy_params p = {sizes[s]};
    void *bufs[] = {a, b};
    assert_int_equal(tu_run(AT_RT_COPY, &p, 2, bufs, 2), AT_OK_CODE);
    assert_memory_equal(a, b, (size_t)sizes[s]);
    assert_memory_equal(b + sizes[s], guard, 16);
    for (int64_t es = 1; es <= 16; es *= 2) {
      at_k_fill_params f = {sizes[s] / es, es, {0}};
      for (int i = 0; i < 16; i++) f.element[i] = (uint8_t)(i * 7 + 1);
      void *one[] = {b};
      assert_int_equal(tu_run(AT_RT_FILL, &f, 1, one, 2), AT_OK_CODE);
      for (int64_t i = 0; i < f.elements * es; i++)
        assert_int_equal((uint8_t)b[i], f.element[i % es]);
      assert_memory_equal(b + sizes[s], guard, 16);
    }
    free(a), free(b);
  }
  at_k_fill_params bad = {1, 3, {0}};
  void *one[] = {&bad};
  assert_int_equal(tu_run(AT_RT_FILL, &bad, 1, one, 1), AT_INVALID_ARGUMENT);
}

// Against a loop over the result; nothing is written behind it. Bit d of
// `back`: the result's dimension d is reversed.
static void run_turned(uint32_t es, uint32_t rank, const int64_t *in_dims,
                       const uint32_t *perm, uint32_t back, uint64_t *seed) {
  at_k_transpose_params p = {.element_bytes = es, .rank = rank};
  int64_t stride[12], n = 1;
  for (uint32_t d = rank; d-- > 0;) stride[d] = n, n *= in_dims[d];
  for (uint32_t d = 0; d < rank; d++)
    p.out_size[d] = in_dims[perm[d]], p.in_stride[d] = stride[perm[d]];
  for (uint32_t d = 0; d < rank; d++)
    if (back >> d & 1)
      p.in_first += (p.out_size[d] - 1) * p.in_stride[d], p.in_stride[d] *= -1;
  char *a = noise(n * es, seed), *b = noise(n * es, seed), guard[16];
  memcpy(guard, b + n * es, 16);
  void *bufs[] = {a, b};
  assert_int_equal(tu_run(AT_RT_TRANSPOSE, &p, 2, bufs, 2), AT_OK_CODE);
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, at = p.in_first;
    for (uint32_t d = rank; d-- > 0;)
      at += rest % p.out_size[d] * p.in_stride[d], rest /= p.out_size[d];
    if (memcmp(b + i * es, a + at * es, es))
      fail_msg("transpose of %u-byte elements, rank %u: element %ld is wrong",
               es, rank, i);
  }
  assert_memory_equal(b + n * es, guard, 16);
  free(a), free(b);
}

static void run_transpose(uint32_t es, uint32_t rank, const int64_t *in_dims,
                          const uint32_t *perm, uint64_t *seed) {
  run_turned(es, rank, in_dims, perm, 0, seed);
}

// Two dimensions of many sizes, five in any order, none at all.
static void test_transpose(void **state) {
  uint64_t seed = 42;
  for (int wide = 0; wide < 2; wide++) {
    at_k_limit_features(wide ? UINT64_MAX : AT_CPU_AVX2);
    for (uint32_t es = 1; es <= 16; es *= 2) {
      static const uint32_t swap[] = {1, 0};
      for (int round = 0; round < 12; round++) {
        int64_t d[2] = {1 + tu_below(&seed, 300), 1 + tu_below(&seed, 300)};
        run_transpose(es, 2, d, swap, &seed);
      }
      run_transpose(es, 2, (int64_t[]){64, 128}, swap, &seed);
      if (es == 4) run_transpose(es, 2, (int64_t[]){1600, 1501}, swap, &seed);
      for (int round = 0; round < 20; round++) {
        uint32_t perm[5] = {0, 1, 2, 3, 4};
        int64_t dims[5];
        for (int i = 4; i > 0; i--) {
          int x = (int)tu_below(&seed, i + 1);
          uint32_t t = perm[i];
          perm[i] = perm[x], perm[x] = t;
        }
        for (int i = 0; i < 5; i++)
          dims[i] = tu_below(&seed, 9) + (round ? 1 : 0);
        run_transpose(es, 5, dims, perm, &seed);
      }
      // Rows of a few elements, as pixels have.
      static const uint32_t turn[] = {1, 0, 2};
      for (int64_t row = 2; row <= 6; row++)
        for (uint32_t back = 0; back < 8; back++)
          run_turned(es, 3, (int64_t[]){31, 17, row}, turn, back, &seed);
      run_transpose(es, 0, NULL, NULL, &seed);
    }
  }
  at_k_limit_features(UINT64_MAX);
}

// ---- SCAN
static double apply(uint32_t op, uint32_t t, double a, double b) {
  bool flt = at_is_float((at_dtype)t);
  if (flt && (isnan(a) || isnan(b)) && op >= AT_REDUCE_MIN) return NAN;
  switch (op) {
    case AT_REDUCE_ADD:
      return a + b;
    case AT_REDUCE_MUL:
      return a * b;
    case AT_REDUCE_MIN:
      return a < b ? a : b;
    case AT_REDUCE_MAX:
      return a > b ? a : b;
    case AT_REDUCE_AND:
      return (double)((int64_t)a & (int64_t)b);
    case AT_REDUCE_OR:
      return (double)((int64_t)a | (int64_t)b);
    default:
      return (double)((int64_t)a ^ (int64_t)b);
  }
}
// v as the type holds it: integers wrap.
static double wrap(uint32_t t, double v) {
  if (at_is_float((at_dtype)t)) return v;
  int64_t i = (int64_t)v;
  uint64_t w = 0;
  at_k_convert(t, &w, AT_S64, &i, 1);
  return at_k_load_f64(t, &w);
}

// All codes of the types of one byte, in runs of many lengths, as floats and as
// bf16, which hold them exactly.
static void test_convert_bytes(void **state) {
  uint8_t codes[600];
  for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)(i * 37);
  for (uint32_t t = 0; t < AT_DTYPE_COUNT; t++) {
    if (!at_is_float((at_dtype)t) || at_dtype_bytes((at_dtype)t) != 1) continue;
    for (int64_t n = 0; n <= (int64_t)sizeof codes; n += n < 20 ? 1 : 29) {
      float f[601], h[601];
      uint16_t b[601];
      f[n] = 5, b[n] = 5;
      at_k_convert(AT_F32, f, t, codes, n);
      at_k_convert(AT_BF16, b, t, codes, n);
      assert_true(f[n] == 5 && b[n] == 5);
      at_k_convert(AT_F32, h, AT_BF16, b, n);
      for (int64_t i = 0; i < n; i++) {
        double want = at_k_load_f64(t, codes + i);
        assert_int_equal(isnan(want), isnan(f[i]));
        assert_int_equal(isnan(want), isnan(h[i]));
        assert_true(isnan(want) || (f[i] == want && h[i] == want));
        assert_int_equal(signbit(want), signbit(f[i]));
      }
    }
  }
}

// One thread and two give the same bits, near a loop in double. odd: with a
// NaN.
static void run_scan(at_k_scan_params p, bool odd, uint64_t *seed) {
  int64_t n = p.outer * p.size * p.inner,
          es = at_dtype_bytes((at_dtype)p.dtype);
  bool flt = at_is_float((at_dtype)p.dtype);
  char *x = tu_fill(p.dtype, n, seed), *y[2];
  for (int64_t i = 0; i < n; i++) {
    double v = at_k_load_f64(p.dtype, x + i * es);
    if (p.op == AT_REDUCE_MUL) v = flt ? 1 + v / 64 : v == 0 ? 1 : v;
    if (!flt && p.op != AT_REDUCE_ADD && p.op != AT_REDUCE_MUL)
      v = (double)tu_below(seed, 100);
    if (p.dtype == AT_PRED) v = (double)tu_below(seed, 2);
    if (!flt && p.op == AT_REDUCE_MUL && at_dtype_bytes((at_dtype)p.dtype) > 2)
      v = i % p.size < 20 ? v : 1;  // the reference counts in doubles
    at_k_store_f64(p.dtype, x + i * es, v);
  }
  if (odd && flt && n) at_k_store_f64(p.dtype, x + n / 2 * es, NAN);
  for (uint32_t t = 0; t < 2; t++) {
    y[t] = malloc((size_t)(n * es) + 1);
    void *bufs[] = {x, y[t]};
    assert_int_equal(tu_run(AT_RT_SCAN, &p, 2, bufs, t + 1), AT_OK_CODE);
  }
  assert_memory_equal(y[0], y[1], (size_t)(n * es));
  double rel = p.dtype == AT_BF16  ? 0.02
               : p.dtype == AT_F16 ? 0.003
               : p.dtype == AT_F32 ? 1e-5
                                   : 1e-12;
  for (int64_t o = 0; o < p.outer; o++)
    for (int64_t c = 0; c < p.inner; c++) {
      double v = 0;
      for (int64_t i = 0; i < p.size; i++) {
        int64_t at =
            (o * p.size + (p.reverse ? p.size - 1 - i : i)) * p.inner + c;
        double e = at_k_load_f64(p.dtype, x + at * es);
        v = i ? wrap(p.dtype, apply(p.op, p.dtype, v, e)) : e;
        if (p.dtype == AT_PRED) v = v != 0;
        double got = at_k_load_f64(p.dtype, y[0] + at * es);
        double tol = flt ? rel * (fabs(v) + sqrt((double)i + 1)) : 0;
        bool same = isnan(v) ? isnan(got) : fabs(got - v) <= tol;
        if (!same)
          fail_msg(
              "scan %u of %s [%ld,%ld,%ld] reverse %u: row %ld step %ld col "
              "%ld is "
              "%g, want %g",
              p.op, at_k_dtype_text(p.dtype), p.outer, p.size, p.inner,
              p.reverse, o, i, c, got, v);
      }
    }
  free(x), free(y[0]), free(y[1]);
}

// The operand's memory is the result's: the same bits.
static void test_scan_in_place(void **state) {
  uint64_t seed = 47;
  static const int64_t shapes[][3] = {
      {2, 33, 7}, {1, 9, 600}, {1, 200001, 1}, {1, 9000, 20}};
  for (size_t s = 0; s < AT_LEN(shapes); s++)
    for (uint32_t reverse = 0; reverse < 2; reverse++) {
      at_k_scan_params p = {AT_F32,       AT_REDUCE_ADD, reverse,     0,
                            shapes[s][0], shapes[s][1],  shapes[s][2]};
      size_t bytes = (size_t)(p.outer * p.size * p.inner) * 4;
      char *x = tu_fill(p.dtype, p.outer * p.size * p.inner, &seed);
      char *y = malloc(bytes);
      void *apart[] = {x, y}, *same[] = {x, x};
      assert_non_null(y);
      assert_int_equal(tu_run(AT_RT_SCAN, &p, 2, apart, 1), AT_OK_CODE);
      assert_int_equal(tu_run(AT_RT_SCAN, &p, 2, same, 1), AT_OK_CODE);
      assert_memory_equal(x, y, bytes);
      free(x), free(y);
    }
}

// Rows and columns, short and cut into blocks, every operation of every type.
static void test_scan(void **state) {
  uint64_t seed = 43;
  static const uint32_t types[] = {AT_F32, AT_F64, AT_BF16, AT_F16,
                                   AT_S8,  AT_S16, AT_S32,  AT_S64,
                                   AT_U8,  AT_U16, AT_U32,  AT_PRED};
  static const int64_t shapes[][3] = {{1, 1, 1},      {3, 40, 1},   {2, 33, 7},
                                      {1, 9, 600},    {0, 4, 4},    {2, 0, 3},
                                      {1, 200001, 1}, {1, 9000, 20}};
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < AT_LEN(shapes); s++)
      for (uint32_t op = 0; op <= AT_REDUCE_XOR; op++)
        for (uint32_t reverse = 0; reverse < 2; reverse++) {
          if (at_is_float((at_dtype)types[t]) && op > AT_REDUCE_MAX) continue;
          if (types[t] == AT_PRED && op == AT_REDUCE_XOR) continue;
          run_scan((at_k_scan_params){types[t], op, reverse, 0, shapes[s][0],
                                      shapes[s][1], shapes[s][2]},
                   s < 4, &seed);
        }
}

// By hand; what has no kernel, and a negative size.
static void test_scan_complex_and_errors(void **state) {
  float x[6] = {1, 1, 0, 2, 3, 0}, y[6];
  at_k_scan_params p = {AT_C64, AT_REDUCE_MUL, 0, 0, 1, 3, 1};
  void *bufs[] = {x, y};
  assert_int_equal(tu_run(AT_RT_SCAN, &p, 2, bufs, 1), AT_OK_CODE);
  static const float want[] = {1, 1, -2, 2, -6, 6};
  for (int i = 0; i < 6; i++) assert_true(y[i] == want[i]);
  p.op = AT_REDUCE_ADD, p.reverse = 1;
  assert_int_equal(tu_run(AT_RT_SCAN, &p, 2, bufs, 1), AT_OK_CODE);
  static const float sums[] = {4, 3, 3, 2, 3, 0};
  for (int i = 0; i < 6; i++) assert_true(y[i] == sums[i]);
  p.op = AT_REDUCE_MAX;
  assert_int_equal(tu_run(AT_RT_SCAN, &p, 2, bufs, 1), AT_UNIMPLEMENTED);
  p.dtype = AT_S4, p.op = AT_REDUCE_ADD;
  assert_int_equal(tu_run(AT_RT_SCAN, &p, 2, bufs, 1), AT_UNIMPLEMENTED);
  p.dtype = AT_F32, p.size = -1;
  assert_int_equal(tu_run(AT_RT_SCAN, &p, 2, bufs, 1), AT_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_copy_and_fill),
      cmocka_unit_test(test_transpose),
      cmocka_unit_test(test_convert_bytes),
      cmocka_unit_test(test_scan),
      cmocka_unit_test(test_scan_in_place),
      cmocka_unit_test(test_scan_complex_and_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
