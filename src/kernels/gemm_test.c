// Products of every engine against a plain triple loop in double (or complex
// pairs).
#include "kernels/gemm_internal.h"
#include "kernels/kernels_test_util.h"

typedef struct product {
  at_k_gemm_params p;
  int64_t m, n, k, batch, a_elems, b_elems, c_elems;
} product;

static void dim_add(at_k_gemm_dims *d, int64_t size) {
  d->size[d->rank++] = size;
}

// Splits n into at most three factors, so that groups have several dims.
static void group_make(at_k_gemm_dims *d, int64_t n, bool split) {
  *d = (at_k_gemm_dims){0};
  if (split)
    for (int64_t f = 2; f <= 7 && d->rank < 2; f++)
      if (n > f && n % f == 0) dim_add(d, f), n /= f;
  dim_add(d, n);
}

// Dimensions in one or several parts; shuffled: strides in another order.
static product product_make(uint32_t a, uint32_t b, uint32_t acc, uint32_t c,
                            int64_t batch, int64_t m, int64_t n, int64_t k,
                            bool split, bool shuffle, uint64_t *seed) {
  product r = {.m = m, .n = n, .k = k, .batch = batch};
  r.p.a = a, r.p.b = b, r.p.acc = acc, r.p.c = c;
  group_make(&r.p.batch, batch, split);
  group_make(&r.p.m, m, split);
  group_make(&r.p.n, n, split);
  group_make(&r.p.k, k, split);
  tu_slot sa[40], sb[40], sc[40];
  int na = 0, nb = 0, nc = 0;
#define ADD(arr, cnt, g, f)                 \
  for (uint32_t i = 0; i < r.p.g.rank; i++) \
  arr[cnt++] = (tu_slot){r.p.g.size[i], &r.p.g.f[i]}
  ADD(sa, na, batch, stride_x);
  ADD(sa, na, m, stride_x);
  ADD(sa, na, k, stride_x);
  ADD(sb, nb, batch, stride_y);
  ADD(sb, nb, k, stride_y);
  ADD(sb, nb, n, stride_x);
  ADD(sc, nc, batch, stride_z);
  ADD(sc, nc, m, stride_y);
  ADD(sc, nc, n, stride_y);
#undef ADD
  r.a_elems = tu_lay_out(sa, na, shuffle, seed);
  r.b_elems = tu_lay_out(sb, nb, shuffle, seed);
  r.c_elems = tu_lay_out(sc, nc, shuffle, seed);
  return r;
}

// Where index i of a group of dimensions is.
static int64_t offset(const at_k_gemm_dims *d, const int64_t *stride,
                      int64_t i) {
  int64_t o = 0;
  for (uint32_t r = d->rank; r-- > 0;)
    o += i % d->size[r] * stride[r], i /= d->size[r];
  return o;
}

// Element i as a double; h: its imaginary part, 0 for real types.
static double part(uint32_t t, const char *p, int64_t i, int h) {
  int64_t es = at_dtype_bytes((at_dtype)t);
  if (!at_is_complex((at_dtype)t)) return h ? 0 : at_k_load_f64(t, p + i * es);
  return at_k_load_f64(at_real_of((at_dtype)t), p + i * es + h * es / 2);
}

// For sums of k products; integers are exact.
static double tolerance(uint32_t t, int64_t k) {
  double scale = sqrt((double)k) + 1;
  switch (t) {
    case AT_BF16:
      return 0.01 * scale;
    case AT_F16:
      return 0.002 * scale;
    case AT_F32:
    case AT_C64:
      return 2e-6 * scale;
    case AT_F64:
    case AT_C128:
      return 1e-14 * scale;
    default:
      return 0;
  }
}

// One operand as doubles, [batch][rows][k]; im is NULL for real products.
typedef struct plain {
  double *re, *im;
} plain;

// Reads an operand by its strides. Freed by plain_free.
static plain plain_make(uint32_t t, const char *p, bool cplx,
                        const at_k_gemm_dims *batch,
                        const int64_t *batch_stride, int64_t nb,
                        const at_k_gemm_dims *rows, int64_t nr,
                        const at_k_gemm_dims *k, const int64_t *k_stride,
                        int64_t nk) {
  size_t bytes = (size_t)(nb * nr * nk + 1) * sizeof(double);
  plain r = {malloc(bytes), cplx ? malloc(bytes) : NULL};
  int64_t *ko = malloc((size_t)(nk + 1) * sizeof *ko), at = 0;
  for (int64_t x = 0; x < nk; x++) ko[x] = offset(k, k_stride, x);
  for (int64_t x = 0; x < nb; x++)
    for (int64_t i = 0; i < nr; i++) {
      int64_t o =
          offset(batch, batch_stride, x) + offset(rows, rows->stride_x, i);
      for (int64_t q = 0; q < nk; q++, at++) {
        r.re[at] = part(t, p, o + ko[q], 0);
        if (cplx) r.im[at] = part(t, p, o + ko[q], 1);
      }
    }
  free(ko);
  return r;
}
static void plain_free(plain *p) { free(p->re), free(p->im); }

// Eight sums, so that errors are those of pairs.
static double dot(const double *a, const double *b, int64_t n) {
  double s[8] = {0};
  int64_t k = 0;
  for (; k + 8 <= n; k += 8)
    for (int l = 0; l < 8; l++) s[l] += a[k + l] * b[k + l];
  for (; k < n; k++) s[0] += a[k] * b[k];
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

// Large products: the first and last rows and columns, and a sample of the
// rest.
static bool sampled(const product *r, int64_t i, int64_t j) {
  if (r->batch * r->m * r->n * r->k <= 100000) return true;
  if (i == 0 || i == r->m - 1)
    return r->n <= 600 || j % 5 == 0 || j > r->n - 40;
  if (j == 0 || j == r->n - 1)
    return r->m <= 600 || i % 5 == 0 || i > r->m - 40;
  return (i * 7 + j * 13) % 101 == 0;
}

// C against sums in double; of large products a sample.
static void check(const product *r, const char *a, const char *b, const char *c,
                  const char *bias) {
  const at_k_gemm_params *p = &r->p;
  bool cplx = at_is_complex((at_dtype)p->acc);
  plain pa = plain_make(p->a, a, cplx, &p->batch, p->batch.stride_x, r->batch,
                        &p->m, r->m, &p->k, p->k.stride_x, r->k);
  plain pb = plain_make(p->b, b, cplx, &p->batch, p->batch.stride_y, r->batch,
                        &p->n, r->n, &p->k, p->k.stride_y, r->k);
  double tol = tolerance(p->c, r->k);
  for (int64_t x = 0; x < r->batch; x++)
    for (int64_t i = 0; i < r->m; i++)
      for (int64_t j = 0; j < r->n; j++) {
        if (!sampled(r, i, j)) continue;
        int64_t ao = (x * r->m + i) * r->k, bo = (x * r->n + j) * r->k;
        double re = bias ? part(p->acc, bias, j, 0) : 0;
        double im = bias && cplx ? part(p->acc, bias, j, 1) : 0;
        re += dot(pa.re + ao, pb.re + bo, r->k);
        if (cplx) {
          re -= dot(pa.im + ao, pb.im + bo, r->k);
          im += dot(pa.re + ao, pb.im + bo, r->k);
          im += dot(pa.im + ao, pb.re + bo, r->k);
        }
        int64_t co = offset(&p->batch, p->batch.stride_z, x) +
                     offset(&p->m, p->m.stride_y, i) +
                     offset(&p->n, p->n.stride_y, j);
        double gr = part(p->c, c, co, 0), gi = cplx ? part(p->c, c, co, 1) : 0;
        if (p->c == AT_S8) re = (double)(int8_t)(int64_t)re;
        if (!(fabs(gr - re) <= tol) || !(fabs(gi - (cplx ? im : 0)) <= tol))
          fail_msg(
              "%s x %s (%s) -> %s, batch %ld m %ld n %ld k %ld: [%ld,%ld,%ld] "
              "= "
              "%.9g + %.9gi, want %.9g + %.9gi",
              at_k_dtype_text(p->a), at_k_dtype_text(p->b),
              at_k_dtype_text(p->acc), at_k_dtype_text(p->c), r->batch, r->m,
              r->n, r->k, x, i, j, gr, gi, re, im);
      }
  plain_free(&pa), plain_free(&pb);
}

// One thread and two give the same bits; nothing is written behind C.
static void run_product(product r, uint64_t *seed) {
  char *a = tu_fill(r.p.a, r.a_elems, seed),
       *b = tu_fill(r.p.b, r.b_elems, seed);
  char *bias = tu_fill(r.p.acc, r.n, seed);
  size_t bytes = (size_t)r.c_elems * at_dtype_bytes((at_dtype)r.p.c);
  char *c1 = malloc(bytes + 64), *c2 = malloc(bytes + 64);
  memset(c1, 0x5a, bytes + 64);
  memset(c2, 0x5a, bytes + 64);
  bool with = r.p.epilogue == AT_EPI_BIAS_N;
  void *b1[] = {a, b, with ? (void *)bias : c1, c1};
  void *b2[] = {a, b, with ? (void *)bias : c2, c2};
  assert_int_equal(tu_run(AT_RT_GEMM, &r.p, with ? 4 : 3, b1, 1), AT_OK_CODE);
  assert_int_equal(tu_run(AT_RT_GEMM, &r.p, with ? 4 : 3, b2, 2), AT_OK_CODE);
  if (memcmp(c1, c2, bytes + 64))
    fail_msg(
        "%s x %s -> %s, batch %ld m %ld n %ld k %ld: bits depend on the number "
        "of threads",
        at_k_dtype_text(r.p.a), at_k_dtype_text(r.p.b), at_k_dtype_text(r.p.c),
        r.batch, r.m, r.n, r.k);
  for (int i = 0; i < 64; i++)
    assert_int_equal((uint8_t)c1[bytes + (size_t)i], 0x5a);
  check(&r, a, b, c1, with ? bias : NULL);
  free(a), free(b), free(bias), free(c1), free(c2);
}

static const uint32_t types[][4] = {
    {AT_F32, AT_F32, AT_F32, AT_F32},
    {AT_BF16, AT_BF16, AT_F32, AT_BF16},
    {AT_BF16, AT_BF16, AT_F32, AT_F32},
    {AT_F16, AT_F16, AT_F32, AT_F16},
    {AT_F32, AT_BF16, AT_F32, AT_F32},
    {AT_F64, AT_F64, AT_F64, AT_F64},
    {AT_F32, AT_F32, AT_F64, AT_F32},
    {AT_S8, AT_S8, AT_S32, AT_S32},
    {AT_U8, AT_S8, AT_S32, AT_S32},
    {AT_S8, AT_U8, AT_S32, AT_S32},
    {AT_U8, AT_U8, AT_U32, AT_U32},
    {AT_S32, AT_S32, AT_S32, AT_S32},
    {AT_S16, AT_S16, AT_S32, AT_S32},
    {AT_S64, AT_S64, AT_S64, AT_S64},
    {AT_S8, AT_S8, AT_S32, AT_S8},
    {AT_C64, AT_C64, AT_C64, AT_C64},
    {AT_C128, AT_C128, AT_C128, AT_C128},
    {AT_S4, AT_S8, AT_S32, AT_S32},
    {AT_F8E4M3FN, AT_F8E4M3FN, AT_F32, AT_F32},
    {AT_F8E5M2, AT_BF16, AT_F32, AT_BF16},
};

static const int64_t sizes[][4] = {
    // batch, m, n, k
    {1, 1, 1, 1},       {1, 5, 7, 3},       {1, 16, 16, 16},
    {1, 33, 65, 31},    {3, 12, 32, 64},    {1, 1, 100, 77},
    {1, 8, 300, 130},   {2, 3, 70, 9},      {1, 100, 1, 70},
    {1, 90, 6, 200},    {1, 1, 1, 40000},   {5, 64, 64, 64},
    {1, 97, 131, 1},    {1, 130, 200, 600}, {1, 0, 4, 4},
    {1, 4, 0, 4},       {2, 6, 5, 0},       {0, 4, 4, 4},
    {40, 2, 3, 4},      {1, 30, 4200, 20},  {2, 19, 530, 150},
    {1, 32, 1030, 70},  {1, 16, 300, 260},  {1, 64, 200, 300},
    {3, 41, 1100, 130}, {9, 24, 20, 12},    {1, 150, 1, 37},
    {2, 160, 1, 9},     {1, 300, 7, 24},    {1, 600, 16, 90},
    {1, 500, 31, 1100}, {1, 1000, 3, 40},   {1, 700, 12, 150},
};

// Selects feature set f; false if these types ran with the same code already.
static bool features_are_new(size_t f, const uint32_t t[4]) {
  const at_gemm_engine *e = NULL;
  bool wide = false, same = false;
  for (size_t i = 0; i <= f; i++) {
    at_k_limit_features(tu_features[i]);
    const at_gemm_engine *now = at_gemm_engine_of(t[0], t[1], t[2]);
    same = i > 0 && now == e && at_k_has(AT_CPU_AVX512) == wide;
    e = now, wide = at_k_has(AT_CPU_AVX512);
  }
  return !same;
}

// All types by all shapes by three layouts, for every set of instructions that
// has code of its own.
static void test_types_and_shapes(void **state) {
  uint64_t seed = 1;
  for (size_t f = 0; f < AT_LEN(tu_features); f++) {
    for (size_t t = 0; t < AT_LEN(types); t++)
      for (size_t s = 0; s < AT_LEN(sizes) && features_are_new(f, types[t]);
           s++)
        for (int mode = 0; mode < 3; mode++) {
          // 0: plain; 1: groups of several dims, shuffled; 2: transposed at
          // random
          product r =
              product_make(types[t][0], types[t][1], types[t][2], types[t][3],
                           sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3],
                           mode == 1, mode > 0, &seed);
          if (mode == 0 && s % 2) r.p.epilogue = AT_EPI_BIAS_N;
          run_product(r, &seed);
        }
  }
  at_k_limit_features(UINT64_MAX);
}

// Sums over three dimensions that one operand has in order and the other in
// another one; rows or columns in segments.
static void test_one_side_in_order(void **state) {
  uint64_t seed = 21;
  static const int64_t shapes[][2] = {{50, 12}, {12, 50}, {3, 7}, {70, 100}};
  for (size_t t = 0; t < AT_LEN(types); t++)
    for (size_t s = 0; s < 2 * AT_LEN(shapes); s++) {
      product r = product_make(
          types[t][0], types[t][1], types[t][2], types[t][3], 1,
          shapes[s / 2][0], shapes[s / 2][1], 2 * 3 * 55, true, false, &seed);
      assert_int_equal(r.p.k.rank, 3);
      // k as 55, 2, 3 in memory. In B columns stand behind all of k; in A they
      // are before it.
      int64_t *k = s % 2 ? r.p.k.stride_y : r.p.k.stride_x;
      int64_t unit = k[2];
      k[2] = 6 * unit, k[0] = 3 * unit, k[1] = unit;
      run_product(r, &seed);
    }
}

// Several chunks of k, m and n; direct and converted outputs.
static void test_large(void **state) {
  uint64_t seed = 9;
  static const int64_t big[][3] = {
      {50, 70, 9000},
      {2000, 40, 100},
      {40, 2200, 50},
      {300, 310, 320},
      {2, 2061, 1030}};  // streams: a multiple of no vector, k in odd chunks
  for (size_t f = 0; f < AT_LEN(tu_features); f++) {
    for (size_t s = 0; s < AT_LEN(big); s++)
      for (size_t t = 0; t < 4; t++) {
        if (!features_are_new(f, types[t])) continue;
        run_product(
            product_make(types[t][0], types[t][1], types[t][2], types[t][3], 1,
                         big[s][0], big[s][1], big[s][2], false, s == 3, &seed),
            &seed);
      }
  }
  at_k_limit_features(UINT64_MAX);
}

// The forms for few rows, with B in either order: sides that fill no panel,
// group or vector, tasks of several widths, batches.
static void test_few_rows(void **state) {
  uint64_t seed = 31;
  static const int64_t rows[] = {2, 3, 5, 9, 15, 16, 17, 33, 64};
  static const int64_t shapes[][3] = {
      // batch, n, k
      {1, 64, 64},    {1, 95, 101}, {1, 1056, 520},  {1, 2090, 190},
      {3, 600, 1000}, {1, 512, 33}, {1, 1300, 1055}, {2, 64, 900}};
  for (size_t f = 0; f < AT_LEN(tu_features); f++) {
    if (!features_are_new(f, types[1])) continue;
    for (size_t m = 0; m < AT_LEN(rows); m++)
      for (size_t s = 0; s < 2 * AT_LEN(shapes); s++) {
        const int64_t *of = shapes[s / 2];
        const uint32_t *t = types[(m + s / 2) % 3];
        product r = product_make(t[0], t[1], t[2], t[3], of[0], rows[m], of[1],
                                 of[2], false, false, &seed);
        if (s % 2) r.p.n.stride_x[0] = of[2], r.p.k.stride_y[0] = 1;
        run_product(r, &seed);
      }
  }
  at_k_limit_features(UINT64_MAX);
}

// A small C with a long sum, read in place: sides that fill no panel, sums that
// fill no block or chunk, A in either order, rows of B that are all the same.
static void test_long_sums(void **state) {
  uint64_t seed = 41;
  static const int64_t shapes[][3] = {// m, n, k
                                      {12, 32, 4096},
                                      {13, 47, 4097},
                                      {48, 48, 9000},
                                      {128, 33, 4224}};
  static const uint32_t of[][4] = {{AT_F32, AT_F32, AT_F32, AT_F32},
                                   {AT_F32, AT_F32, AT_F32, AT_BF16},
                                   {AT_F64, AT_F64, AT_F64, AT_F64}};
  for (size_t f = 0; f < AT_LEN(tu_features); f++) {
    if (!features_are_new(f, of[0])) continue;
    for (size_t s = 0; s < 4 * AT_LEN(shapes); s++) {
      const int64_t *x = shapes[s / 4];
      const uint32_t *t = of[s / 4 % AT_LEN(of)];
      product r = product_make(t[0], t[1], t[2], t[3], 1, x[0], x[1], x[2],
                               false, false, &seed);
      if (s % 2) r.p.m.stride_x[0] = 1, r.p.k.stride_x[0] = x[0];
      if (s / 2 % 2) r.p.k.stride_y[0] = 0, r.b_elems = x[1];
      if (s / 4 == 1) r.p.epilogue = AT_EPI_BIAS_N;
      run_product(r, &seed);
    }
  }
  at_k_limit_features(UINT64_MAX);
}

// False: the product is left to others.
static bool gemm_add(const at_k_gemm_params *p, void *const *bufs) {
  tu_owner o = {.count = 0};
  at_par par = {tu_pool(2), tu_scratch, &o};
  at_k_call c = {&par, p, bufs, 3, NULL};
  at_status st = AT_OK;
  bool done = at_k_gemm_add(&c, &st);
  assert_true(at_ok(st));
  tu_release(&o);
  return done;
}

// C + A B in place has the bits of the product added afterwards; what is too
// small is left alone.
static void test_add(void **state) {
  uint64_t seed = 5;
  static const int64_t shapes[][4] = {// batch, m, n, k
                                      {1, 128, 128, 128}, {1, 70, 90, 33},
                                      {2, 64, 96, 200},   {1, 256, 512, 256},
                                      {1, 4, 8, 16},      {1, 64, 64, 0}};
  static const size_t kinds[] = {0, 1, 2, 5, 7};  // f32, bf16 twice, f64, s8
  for (size_t f = 0; f < AT_LEN(tu_features); f++)
    for (size_t k = 0; k < AT_LEN(kinds); k++)
      for (size_t s = 0; s < AT_LEN(shapes); s++) {
        const uint32_t *t = types[kinds[k]];
        const int64_t *z = shapes[s];
        if (!features_are_new(f, t)) continue;
        product r = product_make(t[0], t[1], t[2], t[3], z[0], z[1], z[2], z[3],
                                 false, false, &seed);
        size_t bytes = (size_t)r.c_elems * at_dtype_bytes((at_dtype)t[3]);
        char *a = tu_fill(t[0], r.a_elems, &seed);
        char *b = tu_fill(t[1], r.b_elems, &seed);
        char *before = tu_fill(t[3], r.c_elems, &seed);
        char *c = malloc(bytes), *alone = malloc(bytes);
        memcpy(c, before, bytes);
        void *own[] = {a, b, alone}, *bufs[] = {a, b, c};
        assert_int_equal(tu_run(AT_RT_GEMM, &r.p, 3, own, 1), AT_OK_CODE);
        bool done = gemm_add(&r.p, bufs);
        bool can = t[2] == t[3] && t[2] != AT_F64;
        assert_int_equal(done, can && z[1] >= 64 && z[3] > 0);
        for (int64_t i = 0; i < r.c_elems; i++) {
          double want = part(t[3], before, i, 0), got = part(t[3], c, i, 0);
          if (done) want += part(t[3], alone, i, 0);
          if (t[3] == AT_F32) want = (float)want;
          if (got != want)
            fail_msg("%s: [%ld] is %.9g, want %.9g", at_k_dtype_text(t[3]), i,
                     got, want);
        }
        free(a), free(b), free(before), free(c), free(alone);
      }
  at_k_limit_features(UINT64_MAX);
}

// They reach the sums that they are in.
static void test_nan_and_inf_travel(void **state) {
  float a[2 * 3] = {1, NAN, 2, 1, 1, INFINITY}, b[3 * 2] = {1, 2, 3, 4, 5, 6},
              c[4];
  uint64_t seed = 0;
  product r = product_make(AT_F32, AT_F32, AT_F32, AT_F32, 1, 2, 2, 3, false,
                           false, &seed);
  void *bufs[] = {a, b, c};
  assert_int_equal(tu_run(AT_RT_GEMM, &r.p, 3, bufs, 1), AT_OK_CODE);
  assert_true(isnan(c[0]) && isnan(c[1]) && isinf(c[2]) && isinf(c[3]));
}

// The end of k is multiplied by whole vectors that reach back: what was counted
// already is no factor again, were it infinite.
static void test_infinity_before_the_last_vector(void **state) {
  enum { M = 60, K = 19, AT = 5 };
  float a[M * K], x[K], c[M];
  uint64_t seed = 0;
  for (size_t f = 0; f < AT_LEN(tu_features); f++)
    for (int in_vector = 0; in_vector < 2; in_vector++) {
      at_k_limit_features(tu_features[f]);
      for (int i = 0; i < M * K; i++) a[i] = 1;
      for (int i = 0; i < K; i++) x[i] = 1;
      if (in_vector)
        x[AT] = INFINITY;
      else
        for (int i = 0; i < M; i++) a[i * K + AT] = INFINITY;
      product r = product_make(AT_F32, AT_F32, AT_F32, AT_F32, 1, M, 1, K,
                               false, false, &seed);
      void *bufs[] = {a, x, c};
      assert_int_equal(tu_run(AT_RT_GEMM, &r.p, 3, bufs, 1), AT_OK_CODE);
      for (int i = 0; i < M; i++) assert_true(isinf(c[i]));
    }
  at_k_limit_features(UINT64_MAX);
}

// A buffer that is missing, types that cannot be, bad sizes.
static void test_errors(void **state) {
  float x[16] = {0};
  uint64_t seed = 0;
  product r = product_make(AT_F32, AT_F32, AT_F32, AT_F32, 1, 2, 2, 2, false,
                           false, &seed);
  void *bufs[] = {x, x, x, x};
  assert_int_equal(tu_run(AT_RT_GEMM, &r.p, 2, bufs, 1), AT_INVALID_ARGUMENT);
  r.p.acc = AT_BF16;
  assert_int_equal(tu_run(AT_RT_GEMM, &r.p, 3, bufs, 1), AT_INVALID_ARGUMENT);
  r.p.acc = AT_F32;
  r.p.a = AT_TOKEN;
  assert_int_equal(tu_run(AT_RT_GEMM, &r.p, 3, bufs, 1), AT_INVALID_ARGUMENT);
  r.p.a = AT_F32;
  r.p.m.size[0] = -1;
  assert_int_equal(tu_run(AT_RT_GEMM, &r.p, 3, bufs, 1), AT_INVALID_ARGUMENT);
  r.p.m.rank = 99;
  assert_int_equal(tu_run(AT_RT_GEMM, &r.p, 3, bufs, 1), AT_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nan_and_inf_travel),
      cmocka_unit_test(test_infinity_before_the_last_vector),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_types_and_shapes),
      cmocka_unit_test(test_add),
      cmocka_unit_test(test_few_rows),
      cmocka_unit_test(test_long_sums),
      cmocka_unit_test(test_one_side_in_order),
      cmocka_unit_test(test_large)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
