// Products of a few rows with a matrix that is read where it lies and rounded
// to bf16 on the way, as in the steps of attention over pages: packing B would
// cost as much as the product.
#include "kernels/gemm_pairs.h"

enum {
  ROWS = 4,
  COLS = 4,  // or vectors of columns
  LANES = 16,
  MAX_M = 15,
  MAX_DOT_M = 8,  // where columns of B are dense
  MAX_K = 1024,
  STRIPS = 4,  // of COLS vectors, whose sums wait in memory
  BLOCK = 16,  // columns of B that a thread takes, where it has no pages
  MAX_ELEMENTS = 1 << 20  // of B
};

typedef struct few {
  const at_k_matrix *b;     // or some of its columns
  const at_k_pages *pages;  // of k; never NULL
  const uint8_t *next;      // what will be read after b->p; NULL: nobody knows
  const uint16_t *a;        // rows of `lda`, bf16, zeros behind k
  int64_t lda;
  float *c;
  int64_t ldc;
  bool add;
} few;

static bool is_dense(const at_k_matrix *m, int64_t n, int64_t stride) {
  return n == 1 || stride == (int64_t)at_dtype_bytes((at_dtype)m->type);
}

static bool is_known(const at_k_matrix *m) {
  return m->type == AT_F32 || m->type == AT_BF16;
}

bool at_k_few_fits(const at_k_matrix *a, const at_k_matrix *b, bool add) {
  bool dots = is_dense(b, b->k, b->k_stride);
  if (dots ? a->outer > MAX_DOT_M : add && b->k > AT_PAIRS_BLOCK) return false;
  return at_k_has(AT_CPU_AVX512_BF16) && is_known(a) && is_known(b) &&
         a->outer <= MAX_M && a->k <= MAX_K &&
         b->outer <= MAX_ELEMENTS / AT_MAX(b->k, 1) &&
         is_dense(a, a->k, a->k_stride) &&
         (is_dense(b, b->k, b->k_stride) ||
          is_dense(b, b->outer, b->outer_stride));
}

// ---- Columns of B are dense: dot products
// --------------------------------------------------------------
// Sums of the lanes of four vectors: first those of two, in part.
AT_PAIRS AT_INLINE __m512 sums_of_two(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

AT_PAIRS AT_INLINE __m128 sums_of(__m512 ab, __m512 cd) {
  __m512 all =
      _mm512_add_ps((__m512)_mm512_unpacklo_pd((__m512d)ab, (__m512d)cd),
                    (__m512)_mm512_unpackhi_pd((__m512d)ab, (__m512d)cd));
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all),
                              _mm512_extractf32x8_ps(all, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half),
                    _mm256_extractf128_ps(half, 1));
}

// Stores without masks where they can be: this CPU's others are slow.
AT_PAIRS AT_INLINE void put_sums(const few *x, int64_t i, int64_t j,
                                 __m128 sums) {
  int64_t n = x->b->outer - j;
  float *c = x->c + i * x->ldc + j;
  if (n >= COLS) {
    if (x->add) sums = _mm_add_ps(_mm_loadu_ps(c), sums);
    _mm_storeu_ps(c, sums);
    return;
  }
  __mmask8 there = (__mmask8)((1u << n) - 1);
  if (x->add) sums = _mm_add_ps(_mm_maskz_loadu_ps(there, c), sums);
  _mm_mask_storeu_ps(c, there, sums);
}

AT_PAIRS AT_INLINE void dots_step(const int rows, uint32_t type, const few *x,
                                  const uint16_t *a, const uint8_t *const b[],
                                  int64_t k, int64_t n,
                                  __m512 sum[ROWS][COLS]) {
  int64_t at = k * (type == AT_F32 ? 4 : 2);
  at_pairs v[COLS];
  for (int j = 0; j < COLS; j++) v[j] = at_pairs_along_k(type, b[j] + at, n);
  for (int i = 0; i < rows; i++) {
    __m512bh row = (__m512bh)_mm512_load_si512(a + i * x->lda + k);
    for (int j = 0; j < COLS; j++)
      sum[i][j] = _mm512_dpbf16_ps(sum[i][j], row, (__m512bh)v[j]);
  }
}

// Pages lie anywhere: the processor does not foresee the next. `p`, `bytes`: of
// this one.
AT_INLINE void fetch_next(const few *x, const uint8_t *p, int64_t bytes) {
  if (!x->next) return;
  const uint8_t *to = x->next + (p - (const uint8_t *)x->b->p);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(to + i);
}

// `rows` rows of A, from row `i` on, by COLS columns from column `j` on.
AT_PAIRS AT_INLINE void dots(const int rows, uint32_t type, const few *x,
                             int64_t i, int64_t j) {
  const at_k_matrix *m = x->b;
  const uint16_t *a = x->a + i * x->lda;
  const uint8_t *b[COLS];
  __m512 sum[ROWS][COLS];
  for (int q = 0; q < COLS; q++)
    b[q] =
        (const uint8_t *)m->p + AT_MIN(j + q, m->outer - 1) * m->outer_stride;
  for (int r = 0; r < rows; r++)
    for (int q = 0; q < COLS; q++) sum[r][q] = _mm512_setzero_ps();
  if (i == 0) fetch_next(x, b[0], COLS * m->outer_stride);
  int64_t k = 0;
  for (; k + 32 <= m->k; k += 32) dots_step(rows, type, x, a, b, k, 32, sum);
  if (k < m->k) dots_step(rows, type, x, a, b, k, m->k - k, sum);
  for (int r = 0; r < rows; r++)
    put_sums(x, i + r, j,
             sums_of(sums_of_two(sum[r][0], sum[r][1]),
                     sums_of_two(sum[r][2], sum[r][3])));
}

// The same for a k of 128, all columns of B: A stays in registers, and each
// column is read from its first element to its last.
enum { NEAR_K = 128, NEAR_STEPS = NEAR_K / 32 };
AT_PAIRS AT_INLINE void dots_near(const int rows, uint32_t type, const few *x,
                                  int64_t i) {
  const at_k_matrix *m = x->b;
  __m512bh a[ROWS][NEAR_STEPS];
  for (int r = 0; r < rows; r++)
    for (int k = 0; k < NEAR_STEPS; k++)
      a[r][k] = (__m512bh)_mm512_load_si512(x->a + (i + r) * x->lda + 32 * k);
  for (int64_t j = 0; j < m->outer; j += COLS) {
    __m512 two[ROWS][2];
    if (i == 0)
      fetch_next(x, (const uint8_t *)m->p + j * m->outer_stride,
                 COLS * m->outer_stride);
    for (int h = 0; h < 2; h++) {
      __m512 sum[ROWS][2];
      for (int q = 0; q < 2; q++) {
        const uint8_t *b =
            (const uint8_t *)m->p +
            AT_MIN(j + 2 * h + q, m->outer - 1) * m->outer_stride;
        for (int r = 0; r < rows; r++) sum[r][q] = _mm512_setzero_ps();
        for (int k = 0; k < NEAR_STEPS; k++) {
          at_pairs v =
              at_pairs_along_k(type, b + k * (type == AT_F32 ? 128 : 64), 32);
          for (int r = 0; r < rows; r++)
            sum[r][q] = _mm512_dpbf16_ps(sum[r][q], a[r][k], (__m512bh)v);
        }
      }
      for (int r = 0; r < rows; r++)
        two[r][h] = sums_of_two(sum[r][0], sum[r][1]);
    }
    for (int r = 0; r < rows; r++)
      put_sums(x, i + r, j, sums_of(two[r][0], two[r][1]));
  }
}

// ---- Rows of B are dense
// --------------------------------------------------------------
// Columns from `j` on: `strips` of COLS vectors, or of one, of which all but
// those of the last are there, `n` in all.
typedef struct span {
  int64_t j, n;
  int strips, vectors;
} span;

// `k` rows of B from b on, the first of which is row `at`; n: columns of a
// vector; sums: per row of A, what they are added to.
typedef struct strip {
  const uint8_t *b;
  int64_t at, n, k;
  __m512 (*sums)[STRIPS * COLS];
} strip;

// Pairs of rows b and b + step of `vectors` times 16 columns, of which `n` are
// there.
AT_PAIRS AT_INLINE void pairs_of(const int vectors, uint32_t type,
                                 const uint8_t *b, int64_t step, int64_t n,
                                 bool second, at_pairs to[COLS]) {
  if (type == AT_F32 || vectors % 2) {
    int64_t bytes = LANES * (type == AT_F32 ? 4 : 2);
    for (int v = 0; v < vectors; v++)
      to[v] = at_pairs_across_k(type, b + v * bytes, step, n, second);
    return;
  }
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11,
                                       42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(LANES));
  for (int v = 0; v < vectors; v += 2, b += 64) {
    __m512i even = _mm512_loadu_si512(b);
    __m512i odd =
        second ? _mm512_loadu_si512(b + step) : _mm512_setzero_si512();
    to[v] = (at_pairs)_mm512_permutex2var_epi16(even, low, odd);
    to[v + 1] = (at_pairs)_mm512_permutex2var_epi16(even, high, odd);
  }
}

// Adds the rows of B to the sums of `rows` rows of A, from row `i` on.
AT_PAIRS AT_INLINE void across(const int rows, const int vectors, uint32_t type,
                               const few *x, int64_t i, const strip *s) {
  int64_t step = x->b->k_stride;
  const uint16_t *a = x->a + i * x->lda + s->at;
  const uint8_t *b = s->b;
  __m512(*sums)[STRIPS * COLS] = s->sums + i;
  __m512 sum[ROWS][COLS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) sum[r][v] = sums[r][v];
  for (int64_t done = 0; done < s->k; done += 2, b += 2 * step) {
    at_pairs pairs[COLS];
    if (done + 1 < s->k)
      pairs_of(vectors, type, b, step, s->n, true, pairs);
    else
      pairs_of(vectors, type, b, step, s->n, false, pairs);
    for (int r = 0; r < rows; r++) {
      int pair;
      memcpy(&pair, a + r * x->lda + done, sizeof pair);
      for (int v = 0; v < vectors; v++)
        sum[r][v] = _mm512_dpbf16_ps(
            sum[r][v], (__m512bh)_mm512_set1_epi32(pair), (__m512bh)pairs[v]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) sums[r][v] = sum[r][v];
}

// ---- A few rows at a time
// --------------------------------------------------------------
// vectors: of a strip; 0: columns of B are dense, all of them.
AT_PAIRS AT_INLINE void few_rows(const int rows, const int vectors,
                                 uint32_t type, const few *x, int64_t i,
                                 const strip *s) {
  if (vectors)
    across(rows, vectors, type, x, i, s);
  else if (x->b->k == NEAR_K)
    dots_near(rows, type, x, i);
  else
    for (int64_t j = 0; j < x->b->outer; j += COLS) dots(rows, type, x, i, j);
}

AT_PAIRS AT_INLINE void all_rows(const int vectors, uint32_t type, const few *x,
                                 int64_t m, const strip *s) {
  for (int64_t i = 0; i < m; i += ROWS) switch (AT_MIN(m - i, (int64_t)ROWS)) {
      case 1:
        few_rows(1, vectors, type, x, i, s);
        break;
      case 2:
        few_rows(2, vectors, type, x, i, s);
        break;
      case 3:
        few_rows(3, vectors, type, x, i, s);
        break;
      default:
        few_rows(4, vectors, type, x, i, s);
    }
}

// ---- Strips
// --------------------------------------------------------------
// Lines of the next page, as far as they stand for these rows of b.
AT_INLINE void fetch_rows(const few *x, const uint8_t *b, int64_t k,
                          int64_t bytes) {
  for (int64_t i = 0; x->next && i < k; i++)
    fetch_next(x, b + i * x->b->k_stride, bytes);
}

AT_PAIRS AT_INLINE void across_rows(const int vectors, uint32_t type,
                                    const few *x, const span *s, int64_t m,
                                    int64_t at, const uint8_t *b, int64_t k,
                                    __m512 sums[][STRIPS * COLS]) {
  int64_t size = type == AT_F32 ? 4 : 2, width = vectors * LANES;
  fetch_rows(x, b, k, s->n * size);
  for (int q = 0; q < s->strips; q++) {
    int64_t n = AT_MIN(s->n - q * width, (int64_t)LANES);
    strip here = {b + q * width * size, at, vectors > 1 ? LANES : n, k,
                  (__m512(*)[STRIPS * COLS])(void *)(sums[0] + q * vectors)};
    all_rows(vectors, type, x, m, &here);
  }
}

// Block by block of k, as packed products add them up.
AT_PAIRS static void put_block(const few *x, const span *s, int64_t m, bool add,
                               __m512 sums[][STRIPS * COLS]) {
  for (int64_t r = 0; r < m; r++)
    for (int64_t v = 0; v * LANES < s->n; v++) {
      int64_t n = AT_MIN(s->n - v * LANES, (int64_t)LANES);
      __mmask16 there = (__mmask16)(n >= LANES ? 0xffff : (1u << n) - 1);
      float *c = x->c + r * x->ldc + s->j + v * LANES;
      __m512 sum = sums[r][v];
      if (add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there, c), sum);
      if (n >= LANES)
        _mm512_storeu_ps(c, sum);
      else
        _mm512_mask_storeu_ps(c, there, sum);
      sums[r][v] = _mm512_setzero_ps();
    }
}

AT_PAIRS static void span_multiply(const few *x, const span *s, int64_t m) {
  const at_k_matrix *b = x->b;
  const at_k_pages *pages = x->pages;
  __m512 sums[MAX_M][STRIPS * COLS];
  for (int64_t r = 0; r < m; r++)
    for (int v = 0; v < STRIPS * COLS; v++) sums[r][v] = _mm512_setzero_ps();
  bool add = x->add;
  few at = *x;
  at_k_matrix here = *b;
  at.b = &here;
  int64_t done = 0;
  for (int64_t p = 0; p < pages->count; p++) {
    here.p = pages->page[p];
    at.next = p + 1 < pages->count ? pages->page[p + 1] : NULL;
    const uint8_t *from = (const uint8_t *)here.p + s->j * b->outer_stride;
    int64_t all = done + pages->rows;
    while (done < all) {
      int64_t end = AT_MIN(all, at_k_round_up(done + 1, AT_PAIRS_BLOCK));
      int64_t k = end - done;
      if (b->type == AT_F32 && s->vectors > 1)
        across_rows(COLS, AT_F32, &at, s, m, done, from, k, sums);
      else if (b->type == AT_F32)
        across_rows(1, AT_F32, &at, s, m, done, from, k, sums);
      else if (s->vectors > 1)
        across_rows(COLS, AT_BF16, &at, s, m, done, from, k, sums);
      else
        across_rows(1, AT_BF16, &at, s, m, done, from, k, sums);
      from += k * b->k_stride;
      done = end;
      if (done % AT_PAIRS_BLOCK || done == b->k) continue;
      put_block(x, s, m, add, sums);
      add = true;
    }
  }
  put_block(x, s, m, add, sums);
}

// Columns from j to `end`.
AT_PAIRS static void columns_multiply(const few *x, int64_t m, int64_t j,
                                      int64_t end) {
  while (j < end) {
    span s = {.j = j, .vectors = end - j >= COLS * LANES ? COLS : 1};
    int64_t width = s.vectors * LANES;
    int64_t there = (s.vectors > 1 ? end - j : end - j + width - 1) / width;
    s.strips = (int)AT_MIN(there, (int64_t)STRIPS);
    s.n = AT_MIN(s.strips * width, end - j);
    span_multiply(x, &s, m);
    j += s.n;
  }
}

// ---- All of it
// --------------------------------------------------------------
AT_PAIRS static void pack_rows(const at_k_matrix *a, uint16_t *to,
                               int64_t lda) {
  for (int64_t i = 0; i < a->outer; i++) {
    const uint8_t *from = (const uint8_t *)a->p + i * a->outer_stride;
    for (int64_t k = 0; k < a->k; k += 32) {
      at_pairs v = a->type == AT_F32
                       ? at_pairs_along_k(AT_F32, from + 4 * k, a->k - k)
                       : at_pairs_along_k(AT_BF16, from + 2 * k, a->k - k);
      _mm512_store_si512(to + i * lda + k, (__m512i)v);
    }
  }
}

typedef struct job {
  const few *x;
  int64_t m;
  bool along;
  int64_t unit;  // columns of B that are taken at once
} job;

// The columns of one unit where their k are dense.
AT_PAIRS static void unit_multiply(const job *w, int64_t u, bool last) {
  const at_k_pages *pages = w->x->pages;
  int64_t j = u * w->unit, page = j / pages->rows, in = j % pages->rows;
  at_k_matrix part = *w->x->b;
  few x = *w->x;
  x.b = &part;
  x.c += j;
  part.p = (const uint8_t *)pages->page[page] + in * part.outer_stride;
  part.outer = AT_MIN(w->unit, pages->rows - in);
  x.next = !last && pages->count > 1 ? pages->page[page + 1] : NULL;
  if (part.type == AT_F32)
    all_rows(0, AT_F32, &x, w->m, NULL);
  else
    all_rows(0, AT_BF16, &x, w->m, NULL);
}

static void units_multiply(void *arg, int64_t begin, int64_t end,
                           uint32_t worker) {
  const job *w = arg;
  if (!w->along) {
    columns_multiply(w->x, w->m, begin * w->unit,
                     AT_MIN(end * w->unit, w->x->b->outer));
    return;
  }
  for (int64_t u = begin; u < end; u++) unit_multiply(w, u, u + 1 == end);
}

AT_PAIRS void at_k_few(const at_par *par, const at_k_matrix *a,
                       const at_k_matrix *b, const at_k_pages *pages, float *c,
                       int64_t ldc, bool add) {
  _Alignas(64) uint16_t packed[MAX_M * MAX_K];
  bool along = is_dense(b, b->k, b->k_stride);
  at_k_pages whole = {&b->p, 1, along ? b->outer : b->k};
  if (!pages) pages = &whole;
  few x = {b, pages, NULL, packed, at_k_round_up(a->k, 32), c, ldc, add};
  pack_rows(a, packed, x.lda);
  job w = {.x = &x, .m = a->outer, .along = along};
  w.unit = !along             ? COLS * LANES
           : pages->count > 1 ? pages->rows
                              : (int64_t)BLOCK;
  int64_t units = along && pages->count > 1 ? pages->count
                                            : at_k_ceil_div(b->outer, w.unit);
  if (!par) {
    units_multiply(&w, 0, units, 0);
    return;
  }
  int64_t grain = at_k_ceil_div(units, at_par_threads(par));
  at_par_for(par, units, grain, units_multiply, &w);
}
