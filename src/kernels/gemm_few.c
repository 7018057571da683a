// Products of a few rows with a matrix that is read where it lies and rounded to
// bf16 on the way, as in the steps of attention over pages: packing B would cost
// as much as the product.
#include "kernels/gemm_pairs.h"

enum {
  ROWS = 4,
  COLS = 4,  // or vectors of columns
  LANES = 16,
  MAX_M = 15,
  MAX_DOT_M = 8,  // where columns of B are dense
  MAX_K = 1024,
  MAX_ELEMENTS = 1 << 17  // of B; more is for several threads
};

typedef struct few {
  const at_k_matrix *b;
  const at_k_pages *pages;  // of k; never NULL
  const uint16_t *a;  // rows of `lda`, bf16, zeros behind k
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
         b->outer <= MAX_ELEMENTS / AT_MAX(b->k, 1) && is_dense(a, a->k, a->k_stride) &&
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
  __m512 all = _mm512_add_ps(
      (__m512)_mm512_unpacklo_pd((__m512d)ab, (__m512d)cd),
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

// `rows` rows of A, from row `i` on, by COLS columns from column `j` on.
AT_PAIRS AT_INLINE void dots(const int rows, uint32_t type, const few *x,
                             int64_t i, int64_t j) {
  const at_k_matrix *m = x->b;
  const uint16_t *a = x->a + i * x->lda;
  const uint8_t *b[COLS];
  __m512 sum[ROWS][COLS];
  for (int q = 0; q < COLS; q++)
    b[q] = (const uint8_t *)m->p +
           AT_MIN(j + q, m->outer - 1) * m->outer_stride;
  for (int r = 0; r < rows; r++)
    for (int q = 0; q < COLS; q++) sum[r][q] = _mm512_setzero_ps();
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
      a[r][k] =
          (__m512bh)_mm512_load_si512(x->a + (i + r) * x->lda + 32 * k);
  for (int64_t j = 0; j < m->outer; j += COLS) {
    __m512 two[ROWS][2];
    for (int h = 0; h < 2; h++) {
      __m512 sum[ROWS][2];
      for (int q = 0; q < 2; q++) {
        const uint8_t *b = (const uint8_t *)m->p +
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
// Vectors of columns, of which `n` columns are there.
AT_PAIRS AT_INLINE void rows_step(const int rows, const int vectors,
                                  uint32_t type, const few *x,
                                  const uint16_t *a, const uint8_t *b,
                                  int64_t n, bool second,
                                  __m512 sum[ROWS][COLS]) {
  int64_t bytes = type == AT_F32 ? 4 : 2;
  for (int v = 0; v < vectors; v++) {
    __m512bh pairs = (__m512bh)at_pairs_across_k(
        type, b + v * LANES * bytes, x->b->k_stride, n, second);
    for (int i = 0; i < rows; i++) {
      int pair;
      memcpy(&pair, a + i * x->lda, sizeof pair);
      sum[i][v] = _mm512_dpbf16_ps(
          sum[i][v], (__m512bh)_mm512_set1_epi32(pair), pairs);
    }
  }
}

// Block by block of k, as packed products add them up.
AT_PAIRS AT_INLINE void rows_put(const int rows, const int vectors,
                                 const few *x, int64_t i, int64_t j, int64_t n,
                                 bool add, __m512 sum[ROWS][COLS]) {
  __mmask16 there = (__mmask16)(n >= LANES ? 0xffff : (1u << n) - 1);
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) {
      float *c = x->c + (i + r) * x->ldc + j + v * LANES;
      __m512 s = sum[r][v];
      if (add) s = _mm512_add_ps(_mm512_maskz_loadu_ps(there, c), s);
      _mm512_mask_storeu_ps(c, there, s);
      sum[r][v] = _mm512_setzero_ps();
    }
}

AT_PAIRS AT_INLINE void across(const int rows, const int vectors, uint32_t type,
                               const few *x, int64_t i, int64_t j, int64_t n) {
  const at_k_matrix *m = x->b;
  const uint16_t *a = x->a + i * x->lda;
  __m512 sum[ROWS][COLS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_setzero_ps();
  int64_t done = 0;
  bool add = x->add;
  for (int64_t p = 0; p < x->pages->count; p++) {
    const uint8_t *b = (const uint8_t *)x->pages->page[p] + j * m->outer_stride;
    int64_t all = done + x->pages->rows;
    while (done < all) {
      int64_t end = AT_MIN(all, at_k_round_up(done + 1, AT_PAIRS_BLOCK));
      for (; done + 2 <= end; done += 2, b += 2 * m->k_stride)
        rows_step(rows, vectors, type, x, a + done, b, n, true, sum);
      if (done < end)
        rows_step(rows, vectors, type, x, a + done++, b, n, false, sum);
      if (done % AT_PAIRS_BLOCK || done == m->k) continue;
      rows_put(rows, vectors, x, i, j, n, add, sum);
      add = true;
    }
  }
  rows_put(rows, vectors, x, i, j, n, add, sum);
}

// ---- All of it
// --------------------------------------------------------------
AT_PAIRS AT_INLINE void multiply_rows(const int rows, uint32_t type, bool along,
                                      const few *x, int64_t i, int64_t j) {
  int64_t n = x->b->outer - j;
  if (along && x->b->k == NEAR_K)
    dots_near(rows, type, x, i);
  else if (along)
    dots(rows, type, x, i, j);
  else if (n >= COLS * LANES)
    across(rows, COLS, type, x, i, j, LANES);
  else
    for (int64_t v = 0; v < n; v += LANES)
      across(rows, 1, type, x, i, j + v, AT_MIN(n - v, (int64_t)LANES));
}

AT_PAIRS AT_INLINE void multiply(uint32_t type, bool along, const few *x,
                                 int64_t m) {
  int64_t step = !along ? COLS * LANES : x->b->k == NEAR_K ? x->b->outer : COLS;
  for (int64_t j = 0; j < x->b->outer; j += step)
    for (int64_t i = 0; i < m; i += ROWS)
      switch (AT_MIN(m - i, (int64_t)ROWS)) {
        case 1:
          multiply_rows(1, type, along, x, i, j);
          break;
        case 2:
          multiply_rows(2, type, along, x, i, j);
          break;
        case 3:
          multiply_rows(3, type, along, x, i, j);
          break;
        default:
          multiply_rows(4, type, along, x, i, j);
      }
}

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

AT_PAIRS static void multiply_as(const few *x, bool along, int64_t m) {
  uint32_t type = x->b->type;
  if (type == AT_F32 && along)
    multiply(AT_F32, true, x, m);
  else if (type == AT_F32)
    multiply(AT_F32, false, x, m);
  else if (along)
    multiply(AT_BF16, true, x, m);
  else
    multiply(AT_BF16, false, x, m);
}

AT_PAIRS void at_k_few(const at_k_matrix *a, const at_k_matrix *b,
                       const at_k_pages *pages, float *c, int64_t ldc,
                       bool add) {
  _Alignas(64) uint16_t packed[MAX_M * MAX_K];
  bool along = is_dense(b, b->k, b->k_stride);
  at_k_pages whole = {&b->p, 1, along ? b->outer : b->k};
  if (!pages) pages = &whole;
  few x = {b, pages, packed, at_k_round_up(a->k, 32), c, ldc, add};
  pack_rows(a, packed, x.lda);
  if (!along) {
    multiply_as(&x, false, a->outer);
    return;
  }
  at_k_matrix part = *b;
  part.outer = pages->rows;
  x.b = &part;
  for (int64_t p = 0; p < pages->count; p++, x.c += pages->rows) {
    part.p = pages->page[p];
    multiply_as(&x, true, a->outer);
  }
}
