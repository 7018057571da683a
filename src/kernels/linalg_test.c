// Linear algebra by its defining equations, in every type, on odd shapes and
// batches.
#include "kernels/kernels_test_util.h"
#include "kernels/linalg_blocked.h"

// References are computed in double, whatever the type.
typedef struct cplx {
  double re, im;
} cplx;
static cplx mul(cplx a, cplx b) {
  return (cplx){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static cplx conj_of(cplx a) { return (cplx){a.re, -a.im}; }
// Element i; real types have no imaginary part.
static cplx get(uint32_t t, const char *p, int64_t i) {
  int64_t es = at_dtype_bytes((at_dtype)t);
  uint32_t r = at_real_of((at_dtype)t);
  if (!at_is_complex((at_dtype)t))
    return (cplx){at_k_load_f64(t, p + i * es), 0};
  return (cplx){at_k_load_f64(r, p + i * es),
                at_k_load_f64(r, p + i * es + es / 2)};
}
// A real type drops the imaginary part.
static void set(uint32_t t, char *p, int64_t i, cplx v) {
  int64_t es = at_dtype_bytes((at_dtype)t);
  uint32_t r = at_real_of((at_dtype)t);
  at_k_store_f64(r, p + i * es, v.re);
  if (at_is_complex((at_dtype)t)) at_k_store_f64(r, p + i * es + es / 2, v.im);
}
// For sums over n elements.
// Rounding grows with the number of terms; narrow types are computed in f32 and
// rounded at the end.
static double tol(uint32_t t, int64_t n) {
  double s = (double)n + 4;
  switch (t) {
    case AT_BF16:
      return 0.03 * s;
    case AT_F16:
      return 0.004 * s;
    case AT_F32:
    case AT_C64:
      return 2e-6 * s;
    default:
      return 1e-14 * s;
  }
}
#define ASSERT_CLOSE(a, b, t, n)                                     \
  do {                                                               \
    cplx a_ = (a), b_ = (b);                                         \
    if (!(fabs(a_.re - b_.re) <= tol(t, n)) ||                       \
        !(fabs(a_.im - b_.im) <= tol(t, n)))                         \
      fail_msg("%s n %ld: %g%+gi is not %g%+gi", at_k_dtype_text(t), \
               (int64_t)(n), a_.re, a_.im, b_.re, b_.im);            \
  } while (0)

static const uint32_t types[] = {AT_F32,  AT_F64, AT_C64,
                                 AT_C128, AT_F16, AT_BF16};
// Empty, single, below and above a vector, and beyond what lanes take.
static const int64_t sides[] = {0, 1, 2, 5, 17, 40, 150};
static int64_t g_batch;  // few matrices, or enough for lanes

// Large matrices take the plain reference long: one batch of the types that go
// their own way.
static bool skips(uint32_t type, int64_t side) {
  return side > 64 && (g_batch > 3 || (type != AT_F32 && type != AT_F64));
}

// Zeroed.
static char *alloc(uint32_t t, int64_t n) {
  return calloc((size_t)n + 1, at_dtype_bytes((at_dtype)t));
}

// A Hermitian matrix with eigenvalues about n: diagonally dominant.
static char *make_hermitian(uint32_t t, int64_t n, uint64_t *seed) {
  char *a = tu_fill(t, g_batch * n * n, seed);
  for (int64_t b = 0; b < g_batch; b++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j <= i; j++) {
        cplx v = get(t, a, (b * n + i) * n + j);
        if (i == j) v = (cplx){(double)n + v.re, 0};
        set(t, a, (b * n + i) * n + j, v);
        set(t, a, (b * n + j) * n + i, conj_of(v));
      }
  return a;
}

// One thread, then two: the same bits.
static void run_both(at_rt_kernel id, const void *p, uint32_t nbufs,
                     // Inputs are bufs[0 .. first_out), results the rest;
                     // out_bytes has an entry for each result.
                     void **bufs, uint32_t first_out, const size_t *out_bytes) {
  assert_int_equal(tu_run(id, p, nbufs, bufs, 1), AT_OK_CODE);
  void *again[8];
  memcpy(again, bufs, nbufs * sizeof *bufs);
  for (uint32_t o = first_out; o < nbufs; o++)
    again[o] = malloc(out_bytes[o - first_out] + 1);
  assert_int_equal(tu_run(id, p, nbufs, again, 2), AT_OK_CODE);
  for (uint32_t o = first_out; o < nbufs; o++) {
    assert_memory_equal(bufs[o], again[o], out_bytes[o - first_out]);
    free(again[o]);
  }
}

// l l^H is a, and the other triangle is zero.
static void test_cholesky(void **state) {
  // The seed is a test's own, so that a failure comes back alone.
  uint64_t seed = 31;
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < AT_LEN(sides); s++)
      for (uint32_t lower = 0; lower < 2; lower++) {
        int64_t n = sides[s];
        if (skips(types[t], n)) continue;
        char *a = make_hermitian(types[t], n, &seed),
             *l = alloc(types[t], g_batch * n * n);
        at_k_linalg_params p = {.dtype = types[t],
                                .lower = lower,
                                .batch = g_batch,
                                .m = n,
                                .n = n};
        void *bufs[] = {a, l};
        // n = 0: nothing to write, which must not be an error.
        size_t bytes[] = {(size_t)(g_batch * n * n) *
                          at_dtype_bytes((at_dtype)types[t])};
        run_both(AT_RT_CHOLESKY, &p, 2, bufs, 1, bytes);
        for (int64_t b = 0; b < g_batch; b++)
          for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
              cplx sum = {0, 0};
              for (int64_t k = 0; k < n; k++) {
                // l l^H, or u^H u
                cplx x = lower ? get(types[t], l, (b * n + i) * n + k)
                               : conj_of(get(types[t], l, (b * n + k) * n + i));
                cplx y = lower ? conj_of(get(types[t], l, (b * n + j) * n + k))
                               : get(types[t], l, (b * n + k) * n + j);
                cplx q = mul(x, y);
                sum.re += q.re, sum.im += q.im;
              }
              ASSERT_CLOSE(sum, get(types[t], a, (b * n + i) * n + j), types[t],
                           n);
              if (lower ? j > i : j < i)
                ASSERT_CLOSE(get(types[t], l, (b * n + i) * n + j),
                             ((cplx){0, 0}), types[t], 0);
            }
        free(a), free(l);
      }
}

// That matrix alone: the next one of the batch has its factor.
// A lane of its own: see kernels, law 7.
static void test_cholesky_of_indefinite_is_nan(void **state) {
  float a[2][4] = {{1, 2, 2, 1}, {4, 2, 2, 3}}, l[2][4];
  at_k_linalg_params p = {
      .dtype = AT_F32, .lower = 1, .batch = 2, .m = 2, .n = 2};
  void *bufs[] = {a, l};
  assert_int_equal(tu_run(AT_RT_CHOLESKY, &p, 2, bufs, 1), AT_OK_CODE);
  assert_true(isnan(l[0][0]) && isnan(l[0][2]) && isnan(l[0][3]));
  assert_true(l[1][0] == 2 && l[1][2] == 1);
}

// a x is b, for every side, triangle and transpose.
static void test_triangular_solve(void **state) {
  uint64_t seed = 32;
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < AT_LEN(sides); s++)
      // Three bits, times three kinds of transposes, with seven columns and
      // with one.
      for (uint32_t flags = 0; flags < 48; flags++) {
        uint32_t ty = types[t];
        if (skips(ty, sides[s])) continue;
        at_k_linalg_params p = {.dtype = ty,
                                .lower = flags & 1,
                                .left_side = flags >> 1 & 1,
                                .unit_diagonal = flags >> 2 & 1,
                                .transpose_a = 1 + flags / 8 % 3,
                                .batch = g_batch};
        int64_t k = sides[s], w = flags < 24 ? 7 : 1;
        p.m = p.left_side ? k : w, p.n = p.left_side ? w : k;
        // Small elements off the diagonal: the solution does not grow with the
        // size.
        char *a = tu_fill(ty, g_batch * k * k, &seed);
        for (int64_t i = 0; i < g_batch * k * k; i++) {
          cplx v = get(ty, a, i);
          double shrink = 1.0 / (double)k;
          set(ty, a, i, (cplx){v.re * shrink, v.im * shrink});
        }
        // A diagonal far from zero, with an imaginary part that only complex
        // types have.
        for (int64_t i = 0; i < g_batch * k; i++)
          set(ty, a, i / k * k * k + i % k * (k + 1), (cplx){1.5, 0.25});
        char *b = tu_fill(ty, g_batch * k * w, &seed),
             *x = alloc(ty, g_batch * k * w);
        void *bufs[] = {a, b, x};
        size_t bytes[] = {(size_t)(g_batch * k * w) *
                          at_dtype_bytes((at_dtype)ty)};
        run_both(AT_RT_TRIANGULAR_SOLVE, &p, 3, bufs, 2, bytes);
        for (int64_t q = 0; q < g_batch; q++)
          for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = 0; j < p.n; j++) {
              cplx sum = {0, 0};
              for (int64_t r = 0; r < k; r++) {
                int64_t row = p.left_side ? i : r, col = p.left_side ? r : j;
                // Reading the matrix transposed: rows and columns change
                // places.
                if (p.transpose_a != 1) {
                  int64_t z = row;
                  row = col, col = z;
                }
                // What is not in the triangle counts as zero, whatever stands
                // there.
                bool live = row == col || (p.lower ? row > col : row < col);
                cplx v =
                    live ? get(ty, a, (q * k + row) * k + col) : (cplx){0, 0};
                if (row == col && p.unit_diagonal) v = (cplx){1, 0};
                if (p.transpose_a == 3) v = conj_of(v);
                cplx xv = p.left_side ? get(ty, x, (q * p.m + r) * p.n + j)
                                      : get(ty, x, (q * p.m + i) * p.n + r);
                cplx z = mul(v, xv);
                sum.re += z.re, sum.im += z.im;
              }
              ASSERT_CLOSE(sum, get(ty, b, (q * p.m + i) * p.n + j), ty, 4 * k);
            }
        free(a), free(b), free(x);
      }
}

// One real right side is solved for in place, whichever side the triangle is
// on.
static void test_vector_solve_fits(void **state) {
  at_k_linalg_params p = {
      .dtype = AT_F32, .left_side = 1, .m = 90, .n = 1, .batch = 1};
  assert_true(at_vector_solve_fits(&p));
  p.m = 1, p.n = 90;
  assert_false(at_vector_solve_fits(&p));
  p.left_side = 0, p.dtype = AT_F64;
  assert_true(at_vector_solve_fits(&p));
  p.dtype = AT_C64;
  assert_false(at_vector_solve_fits(&p));
  p.dtype = AT_F32, p.n = 1025;
  assert_false(at_vector_solve_fits(&p));
}

// Tall, wide, square, empty, and so large that they go by panels.
static const int64_t rects[][2] = {{1, 1},    {5, 3},    {3, 5}, {20, 20},
                                   {33, 12},  {0, 3},    {4, 0}, {150, 90},
                                   {90, 200}, {150, 150}};

// q r is a, and q^H q is one. tau is not looked at: q shows it.
static void test_qr_and_product(void **state) {
  uint64_t seed = 33;
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < AT_LEN(rects); s++) {
      uint32_t ty = types[t];
      int64_t m = rects[s][0], n = rects[s][1], k = AT_MIN(m, n);
      if (skips(ty, m)) continue;
      size_t es = at_dtype_bytes((at_dtype)ty);
      char *a = tu_fill(ty, g_batch * m * n, &seed),
           *r = alloc(ty, g_batch * m * n);
      char *tau = alloc(ty, g_batch * k), *in = alloc(ty, g_batch * m * k);
      char *q = alloc(ty, g_batch * m * k);
      at_k_linalg_params p = {
          .dtype = ty, .batch = g_batch, .m = m, .n = n, .k = k};
      void *bufs[] = {a, r, tau};
      size_t bytes[] = {(size_t)(g_batch * m * n) * es,
                        (size_t)(g_batch * k) * es};
      run_both(AT_RT_QR, &p, 3, bufs, 1, bytes);
      // The product wants m x k: the reflectors are the left part of the packed
      // matrix.
      for (int64_t b = 0; b < g_batch * m; b++)
        for (int64_t j = 0; j < k; j++)
          set(ty, in, b * k + j, get(ty, r, b * n + j));
      p.n = k;
      void *qbufs[] = {in, tau, q};
      size_t qbytes[] = {(size_t)(g_batch * m * k) * es};
      run_both(AT_RT_HOUSEHOLDER_PRODUCT, &p, 3, qbufs, 2, qbytes);
      for (int64_t b = 0; b < g_batch; b++) {
        for (int64_t i = 0; i < m; i++)
          for (int64_t j = 0; j < n; j++) {
            cplx sum = {0, 0};
            for (int64_t x = 0; x < k && x <= j; x++) {
              cplx z = mul(get(ty, q, (b * m + i) * k + x),
                           get(ty, r, (b * m + x) * n + j));
              sum.re += z.re, sum.im += z.im;
            }
            ASSERT_CLOSE(sum, get(ty, a, (b * m + i) * n + j), ty, 2 * m);
          }
        for (int64_t i = 0; i < k; i++)
          for (int64_t j = 0; j < k; j++) {
            cplx sum = {0, 0};
            for (int64_t x = 0; x < m; x++) {
              cplx z = mul(conj_of(get(ty, q, (b * m + x) * k + i)),
                           get(ty, q, (b * m + x) * k + j));
              sum.re += z.re, sum.im += z.im;
            }
            ASSERT_CLOSE(sum, ((cplx){i == j, 0}), ty, 2 * m);
          }
      }
      free(a), free(r), free(tau), free(in), free(q);
    }
}

// l u is a with its rows permuted; pivots lie below the diagonal.
// perm says which row of a stands where.
static void test_lu(void **state) {
  uint64_t seed = 34;
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < AT_LEN(rects); s++) {
      uint32_t ty = types[t];
      int64_t m = rects[s][0], n = rects[s][1], k = AT_MIN(m, n);
      if (skips(ty, m)) continue;
      size_t es = at_dtype_bytes((at_dtype)ty);
      char *a = tu_fill(ty, g_batch * m * n, &seed),
           *lu = alloc(ty, g_batch * m * n);
      int32_t *piv = calloc((size_t)(g_batch * k) + 1, 4),
              *perm = calloc((size_t)(g_batch * m) + 1, 4);
      at_k_linalg_params p = {.dtype = ty, .batch = g_batch, .m = m, .n = n};
      void *bufs[] = {a, lu, piv, perm};
      size_t bytes[] = {(size_t)(g_batch * m * n) * es,
                        (size_t)(g_batch * k) * 4, (size_t)(g_batch * m) * 4};
      run_both(AT_RT_LU, &p, 4, bufs, 1, bytes);
      for (int64_t b = 0; b < g_batch; b++)
        for (int64_t i = 0; i < m; i++)
          for (int64_t j = 0; j < n; j++) {
            cplx sum = {0, 0};
            for (int64_t x = 0; x < k && x <= i && x <= j; x++) {
              cplx l = x == i ? (cplx){1, 0} : get(ty, lu, (b * m + i) * n + x);
              cplx z = mul(l, get(ty, lu, (b * m + x) * n + j));
              sum.re += z.re, sum.im += z.im;
            }
            ASSERT_CLOSE(sum, get(ty, a, (b * m + perm[b * m + i]) * n + j), ty,
                         2 * m);
          }
      // Partial pivoting looks down only.
      for (int64_t i = 0; i < g_batch * k; i++)
        assert_true(piv[i] >= i % k && piv[i] < m);
      free(a), free(lu), free(piv), free(perm);
    }
}

// a v is v w, v is unitary, eigenvalues ascend.
static void test_eigh(void **state) {
  uint64_t seed = 35;
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < AT_LEN(sides); s++)
      for (uint32_t lower = 0; lower < 2; lower++) {
        uint32_t ty = types[t], re = at_real_of((at_dtype)ty);
        int64_t n = sides[s];
        if (skips(types[t], n)) continue;
        char *a = make_hermitian(ty, n, &seed), *v = alloc(ty, g_batch * n * n);
        char *w = alloc(re, g_batch * n), *half = alloc(ty, g_batch * n * n);
        // Only one triangle may be read.
        // The other triangle holds numbers that would show.
        for (int64_t i = 0; i < g_batch * n * n; i++) {
          int64_t row = i / n % n, col = i % n;
          bool live = lower ? col <= row : col >= row;
          set(ty, half, i, live ? get(ty, a, i) : (cplx){7, 7});
        }
        at_k_linalg_params p = {.dtype = ty,
                                .lower = lower,
                                .sort_eigenvalues = 1,
                                .batch = g_batch,
                                .m = n,
                                .n = n};
        void *bufs[] = {half, v, w};
        size_t bytes[] = {
            (size_t)(g_batch * n * n) * at_dtype_bytes((at_dtype)ty),
            (size_t)(g_batch * n) * at_dtype_bytes((at_dtype)re)};
        run_both(AT_RT_EIGH, &p, 3, bufs, 1, bytes);
        for (int64_t b = 0; b < g_batch; b++)
          for (int64_t j = 0; j < n; j++) {
            double lambda = get(re, w, b * n + j).re;
            if (j) assert_true(lambda >= get(re, w, b * n + j - 1).re);
            for (int64_t i = 0; i < n; i++) {
              cplx sum = {0, 0}, x = get(ty, v, (b * n + i) * n + j);
              for (int64_t k = 0; k < n; k++) {
                cplx z = mul(get(ty, a, (b * n + i) * n + k),
                             get(ty, v, (b * n + k) * n + j));
                sum.re += z.re, sum.im += z.im;
              }
              ASSERT_CLOSE(sum, ((cplx){x.re * lambda, x.im * lambda}), ty,
                           8 * n);
            }
          }
        free(a), free(v), free(w), free(half);
      }
}

// JAX pads matrices with zeros, asks for no order, and takes what it needs from
// the corner.
static void test_eigh_keeps_padding_last(void **state) {
  uint64_t seed = 38;
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (int64_t n = 1; n <= 40; n += 13)
      for (int64_t live = 0; live <= n; live += AT_MAX(1, n / 3)) {
        uint32_t ty = types[t], re = at_real_of((at_dtype)ty);
        char *a = make_hermitian(ty, n, &seed), *v = alloc(ty, g_batch * n * n);
        char *w = alloc(re, g_batch * n);
        for (int64_t i = 0; i < g_batch * n * n; i++)
          if (i / n % n >= live || i % n >= live) set(ty, a, i, (cplx){0, 0});
        at_k_linalg_params p = {
            .dtype = ty, .lower = 1, .batch = g_batch, .m = n, .n = n};
        void *bufs[] = {a, v, w};
        assert_int_equal(tu_run(AT_RT_EIGH, &p, 3, bufs, 1), AT_OK_CODE);
        for (int64_t i = 0; i < g_batch * n * n; i++) {
          int64_t row = i / n % n, col = i % n;
          cplx x = get(ty, v, i);
          if (row < live && col < live) continue;
          assert_true(x.re == (row == col) && x.im == 0);
        }
        for (int64_t i = 0; i < g_batch * n; i++)
          if (i % n >= live) assert_true(get(re, w, i).re == 0);
        free(a), free(v), free(w);
      }
}

static void test_eigh_of_nan_is_nan(void **state) {
  double a[4] = {1, NAN, NAN, 2}, v[4] = {0}, w[2] = {0};
  at_k_linalg_params p = {
      .dtype = AT_F64, .lower = 1, .batch = 1, .m = 2, .n = 2};
  void *bufs[] = {a, v, w};
  assert_int_equal(tu_run(AT_RT_EIGH, &p, 3, bufs, 1), AT_OK_CODE);
  assert_true(isnan(v[0]) && isnan(w[0]) && isnan(w[1]));
}

// OpenBLAS keeps its buffers between calls: what one has left there must not
// reach the next. Weak: other libraries do not have these.
void *blas_memory_alloc(int where) __attribute__((weak));
void blas_memory_free(void *p) __attribute__((weak));

static void test_eigh_of_stale_buffer(void **state) {
  if (!blas_memory_alloc || !blas_memory_free) skip();
  uint64_t seed = 37;
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (int64_t n = 2; n <= 40; n++)
      for (uint32_t lower = 0; lower < 2; lower++) {
        uint32_t ty = types[t], re = at_real_of((at_dtype)ty);
        void *buffer = blas_memory_alloc(1);
        memset(buffer, 0xff, 1 << 20);  // NaN
        blas_memory_free(buffer);
        char *a = make_hermitian(ty, n, &seed), *v = alloc(ty, n * n);
        char *w = alloc(re, n);
        at_k_linalg_params p = {
            .dtype = ty, .lower = lower, .batch = 1, .m = n, .n = n};
        void *bufs[] = {a, v, w};
        assert_int_equal(tu_run(AT_RT_EIGH, &p, 3, bufs, 1), AT_OK_CODE);
        for (int64_t i = 0; i < n; i++) assert_true(isfinite(get(re, w, i).re));
        for (int64_t i = 0; i < n * n; i++)
          assert_true(isfinite(get(ty, v, i).re));
        free(a), free(v), free(w);
      }
}

// What is wrong with one matrix stays with it, and all of it shows, whichever
// way it goes.
// Each kernel with both types of lanes.
static void test_nan_stays_in_its_matrix(void **state) {
  enum { N = 6 };
  static const at_rt_kernel ids[] = {AT_RT_CHOLESKY, AT_RT_QR, AT_RT_LU,
                                     AT_RT_EIGH, AT_RT_TRIANGULAR_SOLVE};
  uint64_t seed = 36;
  for (size_t k = 0; k < AT_LEN(ids); k++)
    for (int dbl = 0; dbl < 2; dbl++) {
      uint32_t ty = dbl ? AT_F64 : AT_F32;
      int64_t count = g_batch * N * N;
      char *a = make_hermitian(ty, N, &seed), *b = tu_fill(ty, count, &seed);
      char *out[3] = {alloc(AT_F64, count), alloc(AT_F64, count),
                      alloc(AT_F64, count)};
      // One element of the second matrix.
      set(ty, a, N * N + 3 * N + 2, (cplx){NAN, 0});
      at_k_linalg_params p = {.dtype = ty,
                              .lower = 1,
                              .left_side = 1,
                              .transpose_a = 1,
                              .batch = g_batch,
                              .m = N,
                              .n = N};
      bool solve = ids[k] == AT_RT_TRIANGULAR_SOLVE;
      void *bufs[] = {a, solve ? b : out[0], solve ? out[0] : out[1], out[2]};
      uint32_t nbufs = ids[k] == AT_RT_CHOLESKY ? 2
                       : ids[k] == AT_RT_LU     ? 4
                                                : 3;
      assert_int_equal(tu_run(ids[k], &p, nbufs, bufs, 2), AT_OK_CODE);
      int64_t nans = 0;
      for (int64_t i = 0; i < count; i++) {
        bool nan = isnan(get(ty, out[0], i).re);
        if (nan) assert_int_equal(i / (N * N), 1);
        nans += nan;
      }
      assert_true(nans > 0);
      free(a), free(b);
      for (int i = 0; i < 3; i++) free(out[i]);
    }
}

// Columns whose squares overflow or vanish, zeros, and equal eigenvalues.
// Squares of 1e30 are no floats: scaling must come before.
static void test_extremes(void **state) {
  static const double sizes[] = {1e-30, 0, 1, 1e30};
  for (size_t s = 0; s < AT_LEN(sizes); s++) {
    enum { N = 5 };
    uint64_t seed = 37;
    char *a = tu_fill(AT_F32, g_batch * N * N, &seed),
         *r = alloc(AT_F32, g_batch * N * N);
    char *tau = alloc(AT_F32, g_batch * N), *v = alloc(AT_F32, g_batch * N * N);
    for (int64_t i = 0; i < g_batch * N * N; i++)
      set(AT_F32, a, i, (cplx){get(AT_F32, a, i).re * sizes[s], 0});
    at_k_linalg_params p = {
        .dtype = AT_F32, .lower = 1, .batch = g_batch, .m = N, .n = N, .k = N};
    void *bufs[] = {a, r, tau};
    assert_int_equal(tu_run(AT_RT_QR, &p, 3, bufs, 1), AT_OK_CODE);
    // The corner of r is the length of the first column, up to its sign.
    for (int64_t b = 0; b < g_batch; b++) {
      double want = 0;
      for (int64_t i = 0; i < N; i++) {
        double x = get(AT_F32, a, (b * N + i) * N).re;
        want += x * x;
      }
      double corner = get(AT_F32, r, b * N * N).re;
      assert_true(fabs(fabs(corner) - sqrt(want)) <= 1e-5 * sqrt(want));
    }
    // Multiples of one: all eigenvalues are that number, zero included.
    for (int64_t i = 0; i < g_batch * N * N; i++)
      set(AT_F32, a, i, (cplx){i / N % N == i % N ? sizes[s] : 0, 0});
    void *ebufs[] = {a, v, tau};
    assert_int_equal(tu_run(AT_RT_EIGH, &p, 3, ebufs, 1), AT_OK_CODE);
    for (int64_t i = 0; i < g_batch * N; i++)
      assert_true(fabs(get(AT_F32, tau, i).re - sizes[s]) <= 1e-6 * sizes[s]);
    free(a), free(r), free(tau), free(v);
  }
}

// Types, numbers of buffers and sizes that cannot be.
// Nothing is written before parameters are checked, so one buffer serves for
// all.
static void test_errors(void **state) {
  float x[4] = {0};
  void *bufs[] = {x, x, x, x};
  at_k_linalg_params p = {.dtype = AT_S32, .batch = 1, .m = 2, .n = 2};
  assert_int_equal(tu_run(AT_RT_CHOLESKY, &p, 2, bufs, 1), AT_UNIMPLEMENTED);
  p.dtype = AT_F32;
  assert_int_equal(tu_run(AT_RT_CHOLESKY, &p, 3, bufs, 1), AT_INVALID_ARGUMENT);
  assert_int_equal(tu_run(AT_RT_TRIANGULAR_SOLVE, &p, 3, bufs, 1),
                   AT_INVALID_ARGUMENT);
  p.k = 3;
  assert_int_equal(tu_run(AT_RT_HOUSEHOLDER_PRODUCT, &p, 3, bufs, 1),
                   AT_INVALID_ARGUMENT);
  p.n = -1;
  assert_int_equal(tu_run(AT_RT_LU, &p, 4, bufs, 1), AT_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cholesky),
      cmocka_unit_test(test_cholesky_of_indefinite_is_nan),
      cmocka_unit_test(test_triangular_solve),
      cmocka_unit_test(test_vector_solve_fits),
      cmocka_unit_test(test_qr_and_product),
      cmocka_unit_test(test_lu),
      cmocka_unit_test(test_eigh),
      cmocka_unit_test(test_eigh_keeps_padding_last),
      cmocka_unit_test(test_eigh_of_nan_is_nan),
      cmocka_unit_test(test_eigh_of_stale_buffer),
      cmocka_unit_test(test_nan_stays_in_its_matrix),
      cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_errors)};
  int failed = 0;
  // With and without AVX-512, for few matrices and for many: every way that
  // kernels choose by shape.
  for (int wide = 0; wide < 2; wide++) {
    at_k_limit_features(wide ? UINT64_MAX : AT_CPU_AVX2);
    for (g_batch = 3; g_batch < 20; g_batch += 16)
      failed += cmocka_run_group_tests(tests, NULL, NULL);
  }
  return failed;
}
