// Dense linear algebra over batches. Many small matrices go to lanes, large
// real ones to panels and products; the rest is one LAPACK call a matrix.
// Matrices are row-major; LAPACK sees them transposed, which most routines
// absorb in their flags. f16 and bf16 are computed in f32. A matrix that fails
// numerically becomes NaN. Matrices follow one another: see g_lapack.
#include <math.h>
#include <pthread.h>

#include "kernels/linalg_blocked.h"
#include "kernels/linalg_lanes.h"

enum { NO_TRANSPOSE = 1, TRANSPOSED = 2, ADJOINT = 3 };  // at_transpose_a

// Complex elements as LAPACK has them.
typedef struct z64 {
  float re, im;
} z64;
typedef struct z128 {
  double re, im;
} z128;

// Fortran symbols of LAPACK and BLAS, with the hidden lengths of the flags.
#define LAPACK_ALL(p, T, R)                                                   \
  void p##potrf_(const char *, const int *, T *, const int *, int *, size_t); \
  void p##trsm_(const char *, const char *, const char *, const char *,       \
                const int *, const int *, const T *, const T *, const int *,  \
                T *, const int *, size_t, size_t, size_t, size_t);            \
  void p##geqrf_(const int *, const int *, T *, const int *, T *, T *,        \
                 const int *, int *);                                         \
  void p##getrf_(const int *, const int *, T *, const int *, int *, int *);
LAPACK_ALL(s, float, float)
LAPACK_ALL(d, double, double)
LAPACK_ALL(c, z64, float)
LAPACK_ALL(z, z128, double)
#define LAPACK_ORGQR(name, T)                                        \
  void name(const int *, const int *, const int *, T *, const int *, \
            const T *, T *, const int *, int *);
LAPACK_ORGQR(sorgqr_, float)
LAPACK_ORGQR(dorgqr_, double)
LAPACK_ORGQR(cungqr_, z64)
LAPACK_ORGQR(zungqr_, z128)
#define LAPACK_SYEVD(name, T)                                               \
  void name(const char *, const char *, const int *, T *, const int *, T *, \
            T *, const int *, int *, const int *, int *, size_t, size_t);
LAPACK_SYEVD(ssyevd_, float)
LAPACK_SYEVD(dsyevd_, double)
#define LAPACK_HEEVD(name, T, R)                                            \
  void name(const char *, const char *, const int *, T *, const int *, R *, \
            T *, const int *, R *, const int *, int *, const int *, int *,  \
            size_t, size_t);
LAPACK_HEEVD(cheevd_, z64, float)
LAPACK_HEEVD(zheevd_, z128, double)

typedef struct linalg linalg;
// One matrix. `mem`: scratch of mem_bytes.
typedef void (*one_fn)(const linalg *r, int64_t batch, char *mem);
struct linalg {
  const at_k_linalg_params *p;
  uint32_t type;  // computed in: F32 F64 C64 C128
  char *const *buf;
  one_fn one;
  size_t mem_bytes;
  char *mem;
  int work, rwork, iwork;  // lengths of LAPACK's work arrays, elements
};

// Bytes of an element in the type of the computation.
static int64_t elem(const linalg *r) {
  return at_dtype_bytes((at_dtype)r->type);
}

// A matrix in the type of the computation: the buffer itself, or a converted
// copy.
static void load(const linalg *r, int buf, int64_t at, int64_t n, void *dst) {
  int64_t es = at_dtype_bytes((at_dtype)r->p->dtype);
  at_k_convert(r->type, dst, r->p->dtype, r->buf[buf] + at * es, n);
}
// n elements of `src` at element `at` of a buffer, converted to its type.
static void store(const linalg *r, int buf, int64_t at, int64_t n,
                  const void *src) {
  int64_t es = at_dtype_bytes((at_dtype)r->p->dtype);
  at_k_convert(r->p->dtype, r->buf[buf] + at * es, r->type, src, n);
}

#define TRANSPOSE_LOOP(T)                                 \
  do {                                                    \
    const T *s = src;                                     \
    T *d = dst;                                           \
    for (int64_t i0 = 0; i0 < m; i0 += 16)                \
      for (int64_t j = 0; j < n; j++)                     \
        for (int64_t i = i0; i < AT_MIN(i0 + 16, m); i++) \
          d[j * m + i] = s[i * n + j];                    \
  } while (0)
// dst (n x m) = transpose of src (m x n), both row-major.
static void transpose(const linalg *r, void *dst, const void *src, int64_t m,
                      int64_t n) {
  switch (elem(r)) {
    case 4:
      TRANSPOSE_LOOP(uint32_t);
      break;
    case 8:
      TRANSPOSE_LOOP(uint64_t);
      break;
    default:
      TRANSPOSE_LOOP(z128);
  }
}

// n elements of the computation's type, or of its real type, become NaN.
static void fill_nan(const linalg *r, void *p, int64_t n, bool real) {
  int64_t parts = n * (!real && at_is_complex((at_dtype)r->type) ? 2 : 1);
  for (int64_t i = 0; i < parts; i++) {
    if (r->type == AT_F32 || r->type == AT_C64)
      ((float *)p)[i] = NAN;
    else
      ((double *)p)[i] = NAN;
  }
}
// False if any part of the n elements is an infinity or NaN.
static bool all_finite(const linalg *r, const void *p, int64_t n) {
  int64_t parts = n * (at_is_complex((at_dtype)r->type) ? 2 : 1);
  for (int64_t i = 0; i < parts; i++) {
    double v = r->type == AT_F32 || r->type == AT_C64
                   ? (double)((const float *)p)[i]
                   : ((const double *)p)[i];
    if (!isfinite(v)) return false;
  }
  return true;
}

// Calls fn for the computation's type: s, d, c or z.
#define BY_TYPE(call_s, call_d, call_c, call_z) \
  switch (r->type) {                            \
    case AT_F32:                                \
      call_s;                                   \
      break;                                    \
    case AT_F64:                                \
      call_d;                                   \
      break;                                    \
    case AT_C64:                                \
      call_c;                                   \
      break;                                    \
    default:                                    \
      call_z;                                   \
  }

// ---- Cholesky
// Lower of a row-major Hermitian matrix is LAPACK's upper of its conjugate: the
// factor comes out in place, transposed as wanted.
// one_fn: zeros the other triangle, as the result has it.
static void cholesky_one(const linalg *r, int64_t b, char *mem) {
  int n = (int)r->p->n, info = 0;
  int64_t nn = r->p->n * r->p->n, es = elem(r);
  const char *uplo = r->p->lower ? "U" : "L";
  load(r, 0, b * nn, nn, mem);
  BY_TYPE(spotrf_(uplo, &n, (void *)mem, &n, &info, 1),
          dpotrf_(uplo, &n, (void *)mem, &n, &info, 1),
          cpotrf_(uplo, &n, (void *)mem, &n, &info, 1),
          zpotrf_(uplo, &n, (void *)mem, &n, &info, 1))
  if (info != 0) {
    fill_nan(r, mem, nn, false);
  } else {
    for (int64_t i = 0; i < n; i++) {
      int64_t from = r->p->lower ? i * n + i + 1 : i * n;
      int64_t count = r->p->lower ? n - 1 - i : i;
      memset(mem + from * es, 0, (size_t)(count * es));
    }
  }
  store(r, 1, b * nn, nn, mem);
}

// ---- Triangular solve
// op(a) x = b, transposed: x' op(a)' = b'. The side and the triangle change,
// the operation stays.
static void solve_one(const linalg *r, int64_t b, char *mem) {
  const at_k_linalg_params *p = r->p;
  int m = (int)p->n, n = (int)p->m, k = p->left_side ? n : m;
  int64_t kk = (int64_t)k * k, mn = p->m * p->n;
  const char *side = p->left_side ? "R" : "L", *uplo = p->lower ? "U" : "L";
  const char *trans = p->transpose_a == ADJOINT      ? "C"
                      : p->transpose_a == TRANSPOSED ? "T"
                                                     : "N";
  const char *diag = p->unit_diagonal ? "U" : "N";
  char *x = mem + kk * elem(r);
  load(r, 0, b * kk, kk, mem);
  load(r, 1, b * mn, mn, x);
#define ONE_s 1
#define ONE_d 1
#define ONE_c {1, 0}
#define ONE_z \
  { 1, 0 }
#define TRSM(p_, T)                                                         \
  do {                                                                      \
    const T one = ONE_##p_;                                                 \
    p_##trsm_(side, uplo, trans, diag, &m, &n, &one, (const void *)mem, &k, \
              (void *)x, &m, 1, 1, 1, 1);                                   \
  } while (0)
  BY_TYPE(TRSM(s, float), TRSM(d, double), TRSM(c, z64), TRSM(z, z128))
  store(r, 2, b * mn, mn, x);
}

// ---- QR, and the product of its reflectors
// one_fn: geqrf of the transposed copy; packed reflectors and taus go back.
static void qr_one(const linalg *r, int64_t b, char *mem) {
  int m = (int)r->p->m, n = (int)r->p->n, info = 0;
  int64_t mn = r->p->m * r->p->n, es = elem(r), k = AT_MIN(r->p->m, r->p->n);
  char *a = mem, *t = a + mn * es, *tau = t + mn * es, *work = tau + k * es;
  load(r, 0, b * mn, mn, t);
  transpose(r, a, t, m, n);
#define GEQRF(p_) \
  p_##geqrf_(&m, &n, (void *)a, &m, (void *)tau, (void *)work, &r->work, &info)
  BY_TYPE(GEQRF(s), GEQRF(d), GEQRF(c), GEQRF(z))
  transpose(r, t, a, n, m);
  store(r, 1, b * mn, mn, t);
  store(r, 2, b * k, k, tau);
}

// one_fn: the first n columns of the product of k reflectors (orgqr).
static void product_one(const linalg *r, int64_t b, char *mem) {
  int m = (int)r->p->m, n = (int)r->p->n, k = (int)r->p->k, info = 0;
  int64_t mn = r->p->m * r->p->n, es = elem(r);
  char *a = mem, *t = a + mn * es, *tau = t + mn * es,
       *work = tau + r->p->k * es;
  load(r, 0, b * mn, mn, t);
  load(r, 1, b * r->p->k, r->p->k, tau);
  transpose(r, a, t, m, n);
#define ORGQR(fn) \
  fn(&m, &n, &k, (void *)a, &m, (void *)tau, (void *)work, &r->work, &info)
  BY_TYPE(ORGQR(sorgqr_), ORGQR(dorgqr_), ORGQR(cungqr_), ORGQR(zungqr_))
  transpose(r, t, a, n, m);
  store(r, 2, b * mn, mn, t);
}

// ---- LU
// one_fn: getrf. Pivots become zero-based, and the permutation is what they do
// to the rows.
static void lu_one(const linalg *r, int64_t b, char *mem) {
  int m = (int)r->p->m, n = (int)r->p->n, info = 0;
  int64_t mn = r->p->m * r->p->n, es = elem(r), k = AT_MIN(m, n);
  char *a = mem, *t = a + mn * es;
  int32_t *piv = (int32_t *)(void *)r->buf[2] + b * k;
  int32_t *perm = (int32_t *)(void *)r->buf[3] + b * m;
  load(r, 0, b * mn, mn, t);
  transpose(r, a, t, m, n);
  BY_TYPE(sgetrf_(&m, &n, (void *)a, &m, piv, &info),
          dgetrf_(&m, &n, (void *)a, &m, piv, &info),
          cgetrf_(&m, &n, (void *)a, &m, piv, &info),
          zgetrf_(&m, &n, (void *)a, &m, piv, &info))
  transpose(r, t, a, n, m);
  store(r, 1, b * mn, mn, t);
  for (int32_t i = 0; i < m; i++) perm[i] = i;
  for (int64_t i = 0; i < k; i++) {
    piv[i] -= 1;
    // NaN in a column may leave LAPACK without a pivot.
    if (piv[i] < 0 || piv[i] >= m) piv[i] = (int32_t)i;
    int32_t x = perm[i];
    perm[i] = perm[piv[i]], perm[piv[i]] = x;
  }
}

// ---- Eigh
// n complex elements become their conjugates; real ones stay.
static void conjugate(const linalg *r, void *p, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (r->type == AT_C64)
      ((float *)p)[2 * i + 1] = -((float *)p)[2 * i + 1];
    else if (r->type == AT_C128)
      ((double *)p)[2 * i + 1] = -((double *)p)[2 * i + 1];
  }
}

// True if all parts of the n elements are zero, of either sign.
static bool all_zero(const linalg *r, const void *p, int64_t n) {
  int64_t parts = n * (at_is_complex((at_dtype)r->type) ? 2 : 1);
  for (int64_t i = 0; i < parts; i++) {
    double v = r->type == AT_F32 || r->type == AT_C64
                   ? (double)((const float *)p)[i]
                   : ((const double *)p)[i];
    if (v != 0) return false;
  }
  return true;
}

// How many rows and columns at the end of the n x n matrix a are zero.
static int64_t zero_tail(const linalg *r, const char *a, int64_t n) {
  int64_t es = elem(r), tail = 0;
  for (; tail < n; tail++) {
    int64_t at = n - 1 - tail;
    if (!all_zero(r, a + at * n * es, n)) return tail;
    for (int64_t i = 0; i < n; i++)
      if (!all_zero(r, a + (i * n + at) * es, 1)) return tail;
  }
  return tail;
}

// Vectors and values of what zero_tail found: ones and zeros at their places.
static void put_zero_tail(const linalg *r, char *a, char *w, int64_t n,
                          int64_t tail) {
  bool single = r->type == AT_F32 || r->type == AT_C64;
  int64_t re = single ? 4 : 8;
  memset(w + (n - tail) * re, 0, (size_t)(tail * re));
  for (int64_t j = n - tail; j < n; j++) {
    char *one = a + (j * n + j) * elem(r);
    if (single)
      *(float *)(void *)one = 1;
    else
      *(double *)(void *)one = 1;
  }
}

// one_fn: syevd or heevd, whose eigenvectors come out as columns of the
// transposed matrix.
static void eigh_one(const linalg *r, int64_t b, char *mem) {
  int n = (int)r->p->n, info = 0;
  int64_t nn = r->p->n * r->p->n, es = elem(r);
  uint32_t real = at_real_of((at_dtype)r->type);
  uint32_t real_out = at_real_of((at_dtype)r->p->dtype);
  // OpenBLAS 0.3.21's ssymv for AVX-512 multiplies what an earlier call left in
  // its buffer by zero if it is given the lower triangle: real matrices come
  // with the upper one.
  bool turned = !r->p->lower && !at_is_complex((at_dtype)r->type);
  const char *uplo = r->p->lower || turned ? "U" : "L";
  char *a = mem, *t = a + nn * es, *w = t + nn * es, *work = w + n * es;
  char *rwork = work + r->work * es;
  int *iwork = (int *)(void *)(rwork + (int64_t)r->rwork * es);
  load(r, 0, b * nn, nn, turned ? t : a);
  if (turned) transpose(r, a, t, n, n);
  bool ok = all_finite(r, a, nn);
  // Who pads a matrix with zeros and wants no order finds the padding's vectors
  // behind the others.
  int64_t tail = r->p->sort_eigenvalues ? 0 : zero_tail(r, a, n);
  int head = n - (int)tail;
#define SYEVD(fn)                                                        \
  fn("V", uplo, &head, (void *)a, &n, (void *)w, (void *)work, &r->work, \
     iwork, &r->iwork, &info, 1, 1)
#define HEEVD(fn)                                                        \
  fn("V", uplo, &head, (void *)a, &n, (void *)w, (void *)work, &r->work, \
     (void *)rwork, &r->rwork, iwork, &r->iwork, &info, 1, 1)
  if (ok) {
    BY_TYPE(SYEVD(ssyevd_), SYEVD(dsyevd_), HEEVD(cheevd_), HEEVD(zheevd_))
  }
  if (!ok || info != 0) {
    fill_nan(r, t, nn, false);
    fill_nan(r, w, n, true);
  } else {
    put_zero_tail(r, a, w, n, tail);
    transpose(r, t, a, n, n);
    conjugate(r, t, nn);  // LAPACK saw the conjugate
  }
  store(r, 1, b * nn, nn, t);
  at_k_convert(real_out, r->buf[2] + b * n * at_dtype_bytes((at_dtype)real_out),
               real, w, n);
}

// ---- Shared entry
// Debian's serial OpenBLAS keeps its buffers in globals without a lock, so only
// one thread of the process may be inside it at a time: two give wrong numbers.
static pthread_mutex_t g_lapack = PTHREAD_MUTEX_INITIALIZER;

enum { MAX_SIDE = 46340 };  // n * n fits LAPACK's int

// Checks buffers, sizes and type and fills in *r; `what` names the call in
// errors. UNIMPLEMENTED for types that have no LAPACK.
static at_status linalg_prepare(const at_k_call *c, const char *what,
                                uint32_t bufs, one_fn one, linalg *r) {
  const at_k_linalg_params *p = c->params;
  *r = (linalg){.p = p, .buf = (char *const *)c->bufs, .one = one};
  AT_K_CHECK(c->num_bufs == bufs, "%s: needs %u buffers, got %u", what, bufs,
             c->num_bufs);
  AT_K_CHECK(p->batch >= 0 && p->m >= 0 && p->n >= 0 && p->k >= 0 &&
                 p->m <= MAX_SIDE && p->n <= MAX_SIDE,
             "%s: bad size: batch %ld, %ld x %ld, k %ld", what, p->batch, p->m,
             p->n, p->k);
  switch (p->dtype) {
    case AT_F32:
    case AT_F64:
    case AT_C64:
    case AT_C128:
      r->type = p->dtype;
      break;
    case AT_F16:
    case AT_BF16:
      r->type = AT_F32;
      break;
    default:
      return AT_FAIL(AT_UNIMPLEMENTED, "%s of %s", what,
                     at_k_dtype_text(p->dtype));
  }
  return AT_OK;
}

// Runs r->one for every matrix, one after the other under the lock of LAPACK,
// with mem_elems elements and mem_ints integers of scratch memory.
static at_status linalg_run(const at_k_call *c, linalg *r, int64_t mem_elems,
                            int64_t mem_ints) {
  if (r->p->batch == 0) return AT_OK;
  r->mem_bytes =
      (size_t)at_k_round_up(mem_elems * elem(r) + mem_ints * 4 + 64, 64);
  AT_K_SCRATCH(r->mem, c, r->mem_bytes);
  pthread_mutex_lock(&g_lapack);
  for (int64_t b = 0; b < r->p->batch; b++) r->one(r, b, r->mem);
  pthread_mutex_unlock(&g_lapack);
  return AT_OK;
}

// CHOLESKY: lanes for many small matrices, blocks for large real ones, else
// LAPACK; the others choose alike.
at_status at_k_cholesky(const at_k_call *c) {
  linalg r;
  AT_TRY(linalg_prepare(c, "cholesky", 2, cholesky_one, &r));
  if (r.p->n == 0) return AT_OK;
  if (at_lanes_fit(AT_LANES_CHOLESKY, r.p))
    return at_lanes_run(c, AT_LANES_CHOLESKY);
  if (at_blocked_fits(r.p, r.p->n)) return at_blocked_cholesky(c);
  return linalg_run(c, &r, r.p->n * r.p->n, 0);
}

// TRIANGULAR_SOLVE: op(a) x = b, or x op(a) = b where a is on the right.
at_status at_k_triangular_solve(const at_k_call *c) {
  linalg r;
  AT_TRY(linalg_prepare(c, "triangular_solve", 3, solve_one, &r));
  AT_K_CHECK(r.p->transpose_a >= NO_TRANSPOSE && r.p->transpose_a <= ADJOINT,
             "triangular_solve: unknown transpose_a %u", r.p->transpose_a);
  if (r.p->m == 0 || r.p->n == 0) return AT_OK;
  if (at_lanes_fit(AT_LANES_SOLVE, r.p)) return at_lanes_run(c, AT_LANES_SOLVE);
  if (at_vector_solve_fits(r.p)) {
    at_vector_solve(c);
    return AT_OK;
  }
  if (at_blocked_fits(r.p, r.p->left_side ? r.p->m : r.p->n))
    return at_blocked_solve(c);
  int64_t k = r.p->left_side ? r.p->m : r.p->n;
  return linalg_run(c, &r, k * k + r.p->m * r.p->n, 0);
}

enum { WORK_BLOCK = 64 };  // columns of LAPACK's blocked work arrays

// QR: packed reflectors in bufs[1], taus in bufs[2].
at_status at_k_qr(const at_k_call *c) {
  linalg r;
  AT_TRY(linalg_prepare(c, "qr", 3, qr_one, &r));
  if (r.p->m == 0 || r.p->n == 0) return AT_OK;
  if (at_lanes_fit(AT_LANES_QR, r.p)) return at_lanes_run(c, AT_LANES_QR);
  if (at_blocked_fits(r.p, AT_MIN(r.p->m, r.p->n))) return at_blocked_qr(c);
  r.work = (int)AT_MAX(1, r.p->n) * WORK_BLOCK;
  return linalg_run(c, &r,
                    2 * r.p->m * r.p->n + AT_MIN(r.p->m, r.p->n) + r.work, 0);
}

// HOUSEHOLDER_PRODUCT: Q from packed reflectors and taus.
at_status at_k_householder_product(const at_k_call *c) {
  linalg r;
  AT_TRY(linalg_prepare(c, "householder_product", 3, product_one, &r));
  AT_K_CHECK(r.p->k <= r.p->n && r.p->n <= r.p->m,
             "householder_product: needs k <= n <= m, got m %ld, n %ld, k %ld",
             r.p->m, r.p->n, r.p->k);
  if (r.p->m == 0 || r.p->n == 0) return AT_OK;
  if (at_lanes_fit(AT_LANES_PRODUCT, r.p))
    return at_lanes_run(c, AT_LANES_PRODUCT);
  if (at_blocked_fits(r.p, r.p->k)) return at_blocked_product(c);
  r.work = (int)AT_MAX(1, r.p->n) * WORK_BLOCK;
  return linalg_run(c, &r, 2 * r.p->m * r.p->n + r.p->k + r.work, 0);
}

// LU with partial pivoting: factors, pivots, permutation in bufs[1], [2], [3].
at_status at_k_lu(const at_k_call *c) {
  linalg r;
  AT_TRY(linalg_prepare(c, "lu", 4, lu_one, &r));
  if (r.p->m == 0 || r.p->n == 0) {
    int32_t *perm = c->bufs[3];
    for (int64_t i = 0; i < r.p->batch * r.p->m; i++)
      perm[i] = (int32_t)(i % r.p->m);
    return AT_OK;
  }
  if (at_lanes_fit(AT_LANES_LU, r.p)) return at_lanes_run(c, AT_LANES_LU);
  if (at_blocked_fits(r.p, AT_MIN(r.p->m, r.p->n))) return at_blocked_lu(c);
  return linalg_run(c, &r, 2 * r.p->m * r.p->n, 0);
}

// EIGH: eigenvectors in the columns of bufs[1], eigenvalues in bufs[2].
at_status at_k_eigh(const at_k_call *c) {
  linalg r;
  AT_TRY(linalg_prepare(c, "eigh", 3, eigh_one, &r));
  int64_t n = r.p->n;
  if (n == 0) return AT_OK;
  if (at_lanes_fit(AT_LANES_EIGH, r.p)) return at_lanes_run(c, AT_LANES_EIGH);
  AT_K_CHECK(n <= 20000, "eigh: side %ld is over 20000", n);
  bool cplx = at_is_complex((at_dtype)r.type);
  // The sizes that LAPACK's documentation asks for, with room for blocking.
  r.work = (int)(cplx ? 2 * n + n * n + WORK_BLOCK * n
                      : 1 + (6 + WORK_BLOCK) * n + 2 * n * n);
  r.rwork = cplx ? (int)(1 + 5 * n + 2 * n * n) : 0;
  r.iwork = (int)(3 + 5 * n);
  return linalg_run(c, &r, 2 * n * n + n + r.work + r.rwork, r.iwork);
}
