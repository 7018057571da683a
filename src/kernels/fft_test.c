// Transforms against the plain sum, in long double angles, for lengths of every
// kind.
#include "kernels/kernels_test_util.h"

enum { FFT, IFFT, RFFT, IRFFT };
typedef struct cplx {
  double re, im;
} cplx;

// The sum of the definition along one axis, in place; an inverse is divided by
// n.
static void plain_axis(cplx *x, int64_t n, int64_t lines_outer, int64_t inner,
                       bool inverse) {
  cplx *y = malloc((size_t)n * sizeof *y), *w = malloc((size_t)n * sizeof *w);
  for (int64_t k = 0; k < n; k++) {
    long double a = 2 * M_PIl * (long double)k / (long double)n;
    w[k] = (cplx){(double)cosl(a), (double)(inverse ? sinl(a) : -sinl(a))};
  }
  for (int64_t o = 0; o < lines_outer; o++)
    for (int64_t i = 0; i < inner; i++) {
      cplx *line = x + o * n * inner + i;
      for (int64_t k = 0; k < n; k++) {
        cplx s = {0, 0};
        for (int64_t j = 0; j < n; j++) {
          cplx a = line[j * inner], b = w[j * k % n];
          s.re += a.re * b.re - a.im * b.im;
          s.im += a.re * b.im + a.im * b.re;
        }
        y[k] = inverse ? (cplx){s.re / (double)n, s.im / (double)n} : s;
      }
      for (int64_t k = 0; k < n; k++) line[k * inner] = y[k];
    }
  free(y), free(w);
}

// A batch of transforms over up to three axes.
typedef struct shape {
  int64_t batch;
  uint32_t rank;
  int64_t n[3];
} shape;

// Element i as a double.
static double get(const void *p, bool dbl, int64_t i) {
  return dbl ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static void set(void *p, bool dbl, int64_t i, double v) {
  if (dbl)
    ((double *)p)[i] = v;
  else
    ((float *)p)[i] = (float)v;
}

// Runs one shape and type and compares; long lengths are checked by sampling
// bins.
static void run_case(shape s, uint32_t type, bool dbl, uint64_t *seed) {
  at_k_fft_params p = {
      .type = type, .double_precision = dbl, .rank = s.rank, .batch = s.batch};
  int64_t full = s.batch, half, n = s.n[s.rank - 1];
  for (uint32_t d = 0; d < s.rank; d++) p.length[d] = s.n[d], full *= s.n[d];
  int64_t h = n / 2 + 1;
  half = full / n * h;
  int64_t in_count = type == RFFT ? full : type == IRFFT ? 2 * half : 2 * full;
  int64_t out_count = type == RFFT ? 2 * half : type == IRFFT ? full : 2 * full;
  size_t rb = dbl ? 8 : 4;
  char *in = malloc((size_t)in_count * rb), *out[2];
  for (int64_t i = 0; i < in_count; i++) set(in, dbl, i, tu_unit(seed));
  for (uint32_t t = 0; t < 2; t++) {
    out[t] = malloc((size_t)out_count * rb);
    void *bufs[] = {in, out[t]};
    assert_int_equal(tu_run(AT_RT_FFT, &p, 2, bufs, t + 1), AT_OK_CODE);
  }
  assert_memory_equal(out[0], out[1], (size_t)out_count * rb);
  cplx *x = calloc((size_t)full, sizeof *x);
  for (int64_t i = 0; i < full; i++) {
    if (type == RFFT)
      x[i].re = get(in, dbl, i);
    else if (type != IRFFT)
      x[i] = (cplx){get(in, dbl, 2 * i), get(in, dbl, 2 * i + 1)};
  }
  bool inv = type == IFFT || type == IRFFT;
  if (type == IRFFT) {
    // Other axes first, on the half spectrum; then the line is completed.
    cplx *y = malloc((size_t)half * sizeof *y);
    for (int64_t i = 0; i < half; i++)
      y[i] = (cplx){get(in, dbl, 2 * i), get(in, dbl, 2 * i + 1)};
    int64_t outer = s.batch, inner = half / s.batch;
    for (uint32_t d = 0; d + 1 < s.rank; d++) {
      inner /= s.n[d];
      plain_axis(y, s.n[d], outer, inner, true);
      outer *= s.n[d];
    }
    for (int64_t l = 0; l < full / n; l++)
      for (int64_t k = 0; k < n; k++) {
        cplx v = y[l * h + (k < h ? k : n - k)];
        if (k == 0 || 2 * k == n) v.im = 0;
        x[l * n + k] = k < h ? v : (cplx){v.re, -v.im};
      }
    free(y);
    plain_axis(x, n, full / n, 1, true);
  } else {
    int64_t outer = s.batch, inner = full / s.batch;
    for (uint32_t d = 0; d < s.rank; d++) {
      inner /= s.n[d];
      plain_axis(x, s.n[d], outer, inner, inv);
      outer *= s.n[d];
    }
  }
  double tol = (dbl ? 1e-14 : 3e-6) * sqrt((double)(full / s.batch)) * 4;
  if (inv) tol = dbl ? 1e-14 : 2e-6;
  for (int64_t l = 0; l < full / n; l++)
    for (int64_t k = 0; k < (type == RFFT ? h : n); k++) {
      cplx want = x[l * n + k];
      int64_t at = l * (type == RFFT ? h : n) + k;
      double re =
          type == IRFFT ? get(out[0], dbl, at) : get(out[0], dbl, 2 * at);
      double im = type == IRFFT ? want.im : get(out[0], dbl, 2 * at + 1);
      if (!(fabs(re - want.re) <= tol) || !(fabs(im - want.im) <= tol))
        fail_msg(
            "type %u double %d batch %ld n %ld %ld %ld: line %ld bin %ld is "
            "%g %+gi, want %g %+gi",
            type, dbl, s.batch, s.n[0], s.n[1], s.n[2], l, k, re, im, want.re,
            want.im);
    }
  free(in), free(out[0]), free(out[1]), free(x);
}

// Every kind of plan, alone and in batches that fill vectors or do not, with
// and without AVX-512.
static void test_lengths(void **state) {
  uint64_t seed = 3;
  static const int64_t n[] = {1,   2,   3,   4,    5,    6,    7,   8,
                              9,   11,  13,  16,   17,   19,   30,  32,
                              37,  64,  77,  101,  128,  169,  210, 256,
                              509, 512, 600, 1001, 1024, 1536, 2003};
  for (int wide = 0; wide < 2; wide++) {
    at_k_limit_features(wide ? UINT64_MAX : AT_CPU_AVX2);
    for (size_t i = 0; i < AT_LEN(n); i++)
      for (uint32_t type = 0; type < 4; type++)
        for (int dbl = 0; dbl < 2; dbl++) {
          run_case((shape){1, 1, {n[i]}}, type, dbl, &seed);
          if (n[i] > 256) continue;
          run_case((shape){19, 1, {n[i]}}, type, dbl, &seed);
          run_case((shape){40, 1, {n[i]}}, type, dbl, &seed);
        }
  }
  at_k_limit_features(UINT64_MAX);
}

// Axes of every kind together.
static void test_many_dims(void **state) {
  uint64_t seed = 4;
  static const shape shapes[] = {
      {1, 2, {6, 10}}, {3, 2, {17, 16}}, {2, 3, {4, 5, 6}}, {1, 3, {3, 20, 33}},
      {2, 2, {1, 7}},  {1, 2, {600, 4}}, {1, 2, {5, 640}}};
  for (size_t i = 0; i < AT_LEN(shapes); i++)
    for (uint32_t type = 0; type < 4; type++)
      for (int dbl = 0; dbl < 2; dbl++) run_case(shapes[i], type, dbl, &seed);
}

// Long lines: a sum of a few tones has a known spectrum.
static void test_long_lines(void **state) {
  static const int64_t n[] = {8192, 16384, 1 << 17, 59049, 10007, 3 * 8209};
  for (size_t i = 0; i < AT_LEN(n); i++) {
    int64_t len = n[i];
    double *x = malloc((size_t)len * 16), *y = malloc((size_t)len * 16);
    int64_t tone[2] = {5, len - 77};
    for (int64_t j = 0; j < len; j++) {
      x[2 * j] = x[2 * j + 1] = 0;
      for (int t = 0; t < 2; t++) {
        double a = 2 * M_PI * ((double)(tone[t] * j % len) / (double)len);
        x[2 * j] += (t + 1) * cos(a), x[2 * j + 1] += (t + 1) * sin(a);
      }
    }
    at_k_fft_params p = {.type = FFT,
                         .double_precision = 1,
                         .rank = 1,
                         .batch = 1,
                         .length = {len}};
    void *bufs[] = {x, y};
    assert_int_equal(tu_run(AT_RT_FFT, &p, 2, bufs, 2), AT_OK_CODE);
    for (int64_t k = 0; k < len; k++) {
      double want = k == tone[0]   ? (double)len
                    : k == tone[1] ? 2.0 * (double)len
                                   : 0;
      if (!(fabs(y[2 * k] - want) < 1e-9 * (double)len &&
            fabs(y[2 * k + 1]) < 1e-9 * (double)len))
        fail_msg("n %ld bin %ld: %g %+gi, want %g", len, k, y[2 * k],
                 y[2 * k + 1], want);
    }
    p.type = IFFT;
    void *back[] = {y, y};
    assert_int_equal(tu_run(AT_RT_FFT, &p, 2, back, 2), AT_OK_CODE);
    for (int64_t j = 0; j < 2 * len; j++)
      assert_true(fabs(y[j] - x[j]) < 1e-10);
    free(x), free(y);
  }
}

// Runs a type on `batch` lines of n; out is allocated here.
static void *transform(const void *in, uint32_t type, bool dbl, int64_t batch,
                       int64_t n) {
  void *out = malloc((size_t)(batch * (n + 2)) * 16);
  at_k_fft_params p = {.type = type,
                       .double_precision = dbl,
                       .rank = 1,
                       .batch = batch,
                       .length = {n}};
  void *bufs[] = {(void *)(uintptr_t)in, out};
  assert_int_equal(tu_run(AT_RT_FFT, &p, 2, bufs, 2), AT_OK_CODE);
  return out;
}

// The error of f32 grows with the logarithm of the length, in every kind of
// plan; measured against f64, which the tests above compare with sums.
static void test_accuracy(void **state) {
  static const int64_t n[] = {16,   64,    243,     1000,    1009,   4096,
                              6000, 10007, 1 << 16, 3 << 16, 1 << 18};
  uint64_t seed = 5;
  for (size_t i = 0; i < AT_LEN(n); i++)
    for (uint32_t type = 0; type < 4; type++)
      for (int64_t batch = 1; batch <= (n[i] > 4096 ? 1 : 33); batch += 32) {
        int64_t h = n[i] / 2 + 1, out_line = type == RFFT    ? 2 * h
                                             : type == IRFFT ? n[i]
                                                             : 2 * n[i];
        int64_t in_count = batch * (type == RFFT    ? n[i]
                                    : type == IRFFT ? 2 * h
                                                    : 2 * n[i]);
        double *x = malloc((size_t)in_count * 8), error = 0, size = 0;
        float *y = malloc((size_t)in_count * 4);
        for (int64_t j = 0; j < in_count; j++)
          x[j] = y[j] = (float)tu_unit(&seed);
        double *want = transform(x, type, true, batch, n[i]);
        float *got = transform(y, type, false, batch, n[i]);
        for (int64_t j = 0; j < batch * out_line; j++) {
          double d = (double)got[j] - want[j];
          error += d * d, size += want[j] * want[j];
        }
        double most = 0x1p-24 * (1 + 0.5 * log2((double)n[i]));
        if (n[i] == 1009 || n[i] == 10007)
          most *= 3;  // two transforms and three chirps
        if (!(sqrt(error / size) <= most))
          fail_msg("type %u, %ld lines of %ld: error %.3g of %.3g", type, batch,
                   n[i], sqrt(error / size), most);
        free(x), free(y), free(want), free(got);
      }
}

// A NaN stays in its line.
static void test_nan_stays_in_its_line(void **state) {
  static const int64_t shapes[][2] = {{40, 30}, {40, 64}, {40, 37},
                                      {3, 512}, {3, 9},   {3, 1031}};
  uint64_t seed = 6;
  for (size_t i = 0; i < AT_LEN(shapes); i++)
    for (uint32_t type = 0; type < 4; type++) {
      int64_t batch = shapes[i][0], n = shapes[i][1], h = n / 2 + 1;
      int64_t in_line = type == RFFT ? n : type == IRFFT ? 2 * h : 2 * n;
      int64_t out_line = type == RFFT ? 2 * h : type == IRFFT ? n : 2 * n;
      float *x = malloc((size_t)(batch * in_line) * 4);
      for (int64_t j = 0; j < batch * in_line; j++)
        x[j] = (float)tu_unit(&seed);
      x[in_line + 4] = NAN;
      float *y = transform(x, type, false, batch, n);
      for (int64_t j = 0; j < batch * out_line; j++) {
        if (j / out_line != 1) assert_false(isnan(y[j]));
      }
      assert_true(isnan(y[out_line]) && isnan(y[out_line + out_line / 2 + 2]));
      free(x), free(y);
    }
}

// More lengths than the process keeps plans of.
static void test_many_plans(void **state) {
  for (int64_t n = 1; n < 3000; n++) {
    float x[6000] = {1};
    float *y = transform(x, FFT, false, 1, n);
    for (int64_t k = 0; k < 2 * n; k++)
      if (!(fabsf(y[k] - (k % 2 ? 0.f : 1.f)) < 1e-5f))
        fail_msg("n %ld: %ld is %g", n, k, y[k]);
    free(y);
  }
}

static void test_errors_and_empty(void **state) {
  float x[4] = {0};
  void *bufs[] = {x, x};
  at_k_fft_params p = {.type = 9, .rank = 1, .batch = 1, .length = {2}};
  assert_int_equal(tu_run(AT_RT_FFT, &p, 2, bufs, 1), AT_INVALID_ARGUMENT);
  p.type = FFT, p.rank = 4;
  assert_int_equal(tu_run(AT_RT_FFT, &p, 2, bufs, 1), AT_INVALID_ARGUMENT);
  p.rank = 1, p.batch = 0;
  assert_int_equal(tu_run(AT_RT_FFT, &p, 2, bufs, 1), AT_OK_CODE);
  p.batch = 1, p.length[0] = 0;
  assert_int_equal(tu_run(AT_RT_FFT, &p, 2, bufs, 1), AT_OK_CODE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lengths),
      cmocka_unit_test(test_many_dims),
      cmocka_unit_test(test_long_lines),
      cmocka_unit_test(test_accuracy),
      cmocka_unit_test(test_nan_stays_in_its_line),
      cmocka_unit_test(test_many_plans),
      cmocka_unit_test(test_errors_and_empty)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
