// Products of a few rows with a matrix that is read where it lies and rounded
// to bf16 on the way, as in the steps of attention over pages: packing B would
// cost as much as the product.
#include "kernels/gemm_pairs.h"

enum {
  ROWS = 4,
  COLS = 4,  // or vectors of columns
  LANES = 16,
  LINE = 64,  // of a cache, in bytes
  MAX_M = 15,
  MAX_DOT_M = 8,  // where columns of B are dense
  MAX_K = 1024,
  STRIPS = 4,  // of COLS vectors, whose sums wait in memory
  MAX_PARTS = AT_PAIRS_BLOCK / 2,
  RUN_BYTES = 32 << 10,
  UNIT_BYTES =
      8 << 10,  // of columns of B that all rows of A are multiplied with
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

// True if n neighbours of m that lie `stride` bytes apart are dense.
static bool is_dense(const at_k_matrix *m, int64_t n, int64_t stride) {
  return n == 1 || stride == (int64_t)at_dtype_bytes((at_dtype)m->type);
}

// Types that can be loaded as pairs of bf16.
static bool is_known(const at_k_matrix *m) {
  return m->type == AT_F32 || m->type == AT_BF16;
}

// The bounds: A is packed on the stack (15 rows of 1,024), and sums that are
// added to C within one block of k keep the bits of packed products.
bool at_k_few_fits(const at_k_matrix *a, const at_k_matrix *b, bool add) {
  bool dots = is_dense(b, b->k, b->k_stride);
  if (dots ? a->outer > MAX_DOT_M : add && b->k > AT_PAIRS_BLOCK) return false;
  return at_k_has(AT_CPU_AVX512_BF16) && is_known(a) && is_known(b) &&
         a->outer <= MAX_M && a->k <= MAX_K && b->outer <= MAX_ELEMENTS &&
         b->outer * b->k <= MAX_ELEMENTS && is_dense(a, a->k, a->k_stride) &&
         (is_dense(b, b->k, b->k_stride) ||
          is_dense(b, b->outer, b->outer_stride));
}

// ---- Columns of B are dense: dot products
// In each quarter of a vector four sums, one of each vector's quarter.
AT_PAIRS AT_INLINE __m512 quarters_of(const __m512 v[COLS]) {
  __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]),
                            _mm512_unpackhi_ps(v[0], v[1]));
  __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]),
                            _mm512_unpackhi_ps(v[2], v[3]));
  return _mm512_add_ps((__m512)_mm512_unpacklo_pd((__m512d)ab, (__m512d)cd),
                       (__m512)_mm512_unpackhi_pd((__m512d)ab, (__m512d)cd));
}

// Adds the four quarters of quarters_of: lane i is the sum of vector i.
AT_PAIRS AT_INLINE __m128 sum_of_quarters(__m512 v) {
  __m256 half =
      _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half),
                    _mm256_extractf128_ps(half, 1));
}

// The same of two vectors: halves of the result, each of two quarters that are
// left to add.
AT_PAIRS AT_INLINE __m512 halves_of(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(1, 0, 1, 0)),
                       _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(3, 2, 3, 2)));
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

// Sums of the lanes of each vector, of `rows` rows and COLS columns.
AT_PAIRS AT_INLINE void put_dots(const int rows, const few *x, int64_t i,
                                 int64_t j, __m512 sum[ROWS][COLS]) {
  __m512 v[ROWS];
  for (int r = 0; r < rows; r++) v[r] = quarters_of(sum[r]);
  if (rows < ROWS) {
    for (int r = 0; r < rows; r++) put_sums(x, i + r, j, sum_of_quarters(v[r]));
    return;
  }
  __m512 ab = halves_of(v[0], v[1]), cd = halves_of(v[2], v[3]);
  __m512 all =
      _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                    _mm512_shuffle_f32x4(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
  put_sums(x, i, j, _mm512_castps512_ps128(all));
  put_sums(x, i + 1, j, _mm512_extractf32x4_ps(all, 1));
  put_sums(x, i + 2, j, _mm512_extractf32x4_ps(all, 2));
  put_sums(x, i + 3, j, _mm512_extractf32x4_ps(all, 3));
}

// Adds n (at most 32) products of k to the sums of `rows` rows and COLS
// columns. b: where the columns begin; a: rows of packed A.
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

// A page is read once: it stays in no cache.
AT_INLINE void fetch(const uint8_t *p) { __builtin_prefetch(p, 0, 0); }

// Pages lie anywhere: the processor does not foresee the next. `p`, `bytes`: of
// this one.
AT_INLINE void fetch_next(const few *x, const uint8_t *p, int64_t bytes) {
  if (!x->next) return;
  const uint8_t *to = x->next + (p - (const uint8_t *)x->b->p);
  for (int64_t i = 0; i < bytes; i += LINE) fetch(to + i);
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
        // Columns behind the last one read it again; put_sums leaves their sums
        // out.
        (const uint8_t *)m->p + AT_MIN(j + q, m->outer - 1) * m->outer_stride;
  for (int r = 0; r < rows; r++)
    for (int q = 0; q < COLS; q++) sum[r][q] = _mm512_setzero_ps();
  if (i == 0) fetch_next(x, b[0], COLS * m->outer_stride);
  int64_t k = 0;
  for (; k + 32 <= m->k; k += 32) dots_step(rows, type, x, a, b, k, 32, sum);
  if (k < m->k) dots_step(rows, type, x, a, b, k, m->k - k, sum);
  put_dots(rows, x, i, j, sum);
}

// The same for a k of 128, all columns of B.
enum { NEAR_K = 128, NEAR_STEPS = NEAR_K / 32 };
// k and its steps are constants: the loop over k has no end to treat, and
// fetches what follows in step with what it reads.
AT_PAIRS AT_INLINE void dots_near(const int rows, uint32_t type, const few *x,
                                  int64_t i) {
  const at_k_matrix *m = x->b;
  const uint16_t *a = x->a + i * x->lda;
  const int64_t step = 32 * (type == AT_F32 ? 4 : 2);
  const uint8_t *p = m->p, *next = x->next && i == 0 ? x->next : p;
  int64_t j = 0;
  for (; j + COLS <= m->outer; j += COLS) {
    __m512 sum[ROWS][COLS];
    for (int r = 0; r < rows; r++)
      for (int q = 0; q < COLS; q++) sum[r][q] = _mm512_setzero_ps();
        // Unrolled, the compiler would go row by row: few sums at a time.
#pragma clang loop unroll(disable)
    for (int k = 0; k < NEAR_STEPS; k++) {
      const uint8_t *b[COLS];
      for (int q = 0; q < COLS; q++)
        b[q] = p + (j + q) * m->outer_stride + k * step;
      const uint8_t *ahead = next + j * m->outer_stride + k * COLS * step;
      for (int64_t l = 0; l < COLS * step; l += LINE) fetch(ahead + l);
      dots_step(rows, type, x, a + 32 * k, b, 0, 32, sum);
    }
    put_dots(rows, x, i, j, sum);
  }
  if (j < m->outer) dots(rows, type, x, i, j);
}

// ---- Rows of B are dense
// Columns from `j` on: `strips` of COLS vectors, or of one, of which all but
// those of the last are there, `n` in all.
typedef struct span {
  int64_t j, n;
  int strips, vectors;
} span;

// Rows of B that lie one after the other, the first of which is row `at`; next:
// where the rows after them lie.
typedef struct part {
  const uint8_t *b, *next;
  int64_t at, k;
} part;

// Parts that stay near while strip after strip is multiplied. Of a block of k
// they are the first or the last, or neither.
typedef struct run {
  part parts[MAX_PARTS];
  int num_parts;
  bool first, last;
  bool add;                       // the block's sum to c
  __m512 (*sums)[STRIPS * COLS];  // of the block so far, per row of A
} run;

// One strip of a run: column `j` is its first, its vectors have `n` columns and
// are numbers `v` and following of the span's.
typedef struct strip {
  const run *run;
  int64_t j, n;
  int v;
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

// Block by block of k, as packed products add them up.
AT_PAIRS AT_INLINE void put_vector(const few *x, const strip *s, int64_t i,
                                   int v, __m512 sum) {
  float *c = x->c + i * x->ldc + s->j + v * LANES;
  if (s->n >= LANES) {
    if (s->run->add) sum = _mm512_add_ps(_mm512_loadu_ps(c), sum);
    _mm512_storeu_ps(c, sum);
    return;
  }
  __mmask16 there = (__mmask16)((1u << s->n) - 1);
  if (s->run->add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there, c), sum);
  _mm512_mask_storeu_ps(c, there, sum);
}

// Adds one pair of rows of B, times the pair of each row of A, to the sums.
// second: the odd row is there.
AT_PAIRS AT_INLINE void across_pair(const int rows, const int vectors,
                                    uint32_t type, const few *x,
                                    const uint16_t *a, const uint8_t *b,
                                    int64_t n, bool second,
                                    __m512 sum[ROWS][COLS]) {
  at_pairs pairs[COLS];
  pairs_of(vectors, type, b, x->b->k_stride, n, second, pairs);
  for (int r = 0; r < rows; r++) {
    int pair;
    memcpy(&pair, a + r * x->lda, sizeof pair);
    for (int v = 0; v < vectors; v++)
      sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)_mm512_set1_epi32(pair),
                                   (__m512bh)pairs[v]);
  }
}

// Adds the rows of B to the sums of `rows` rows of A, from row `i` on.
AT_PAIRS AT_INLINE void across(const int rows, const int vectors, uint32_t type,
                               const few *x, int64_t i, const strip *s) {
  const run *run = s->run;
  int64_t step = x->b->k_stride, from = s->v * LANES * (type == AT_F32 ? 4 : 2);
  const int width = vectors * LANES * (type == AT_F32 ? 4 : 2);
  __m512(*sums)[STRIPS * COLS] = run->sums + i;
  __m512 sum[ROWS][COLS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++)
      sum[r][v] = run->first ? _mm512_setzero_ps() : sums[r][s->v + v];
  for (const part *p = run->parts; p < run->parts + run->num_parts; p++) {
    const uint16_t *a = x->a + i * x->lda + p->at;
    const uint8_t *b = p->b + from, *end = b + (p->k & ~1) * step;
    const uint8_t *next = p->next && i == 0 ? p->next + from : b;
    for (; b < end; a += 2, b += 2 * step, next += 2 * step) {
      for (int l = 0; l < width; l += LINE) {
        fetch(next + l);
        fetch(next + step + l);
      }
      across_pair(rows, vectors, type, x, a, b, s->n, true, sum);
    }
    if (p->k & 1) across_pair(rows, vectors, type, x, a, b, s->n, false, sum);
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) {
      if (run->last)
        put_vector(x, s, i + r, v, sum[r][v]);
      else
        sums[r][s->v + v] = sum[r][v];
    }
}

// ---- A few rows at a time
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

// All m rows of A, ROWS at a time: few_rows has a body for each count, so that
// sums stay in registers.
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
// Every strip of the span by the rows of B in the run, which lie in the first
// cache meanwhile.
AT_PAIRS AT_INLINE void run_strips(const int vectors, uint32_t type,
                                   const few *x, const span *s, int64_t m,
                                   const run *run) {
  for (int q = 0; q < s->strips; q++) {
    int64_t j = q * vectors * LANES;
    strip here = {run, s->j + j,
                  vectors > 1 ? LANES : AT_MIN(s->n - j, (int64_t)LANES),
                  q * vectors};
    all_rows(vectors, type, x, m, &here);
  }
}

// run_strips with type and width as constants.
AT_PAIRS static void run_multiply(const few *x, const span *s, int64_t m,
                                  const run *run) {
  if (x->b->type == AT_F32 && s->vectors > 1)
    run_strips(COLS, AT_F32, x, s, m, run);
  else if (x->b->type == AT_F32)
    run_strips(1, AT_F32, x, s, m, run);
  else if (s->vectors > 1)
    run_strips(COLS, AT_BF16, x, s, m, run);
  else
    run_strips(1, AT_BF16, x, s, m, run);
}

// Columns [s->j, s->j + s->n) over all of k. Rows of B are taken in runs that
// end at a page, at RUN_BYTES or at a block of AT_PAIRS_BLOCK k; sums of a
// block go to C when it is complete, so bits are those of packed products.
AT_PAIRS static void span_multiply(const few *x, const span *s, int64_t m) {
  const at_k_matrix *b = x->b;
  const at_k_pages *pages = x->pages;
  __m512 sums[MAX_M][STRIPS * COLS];
  run run;  // its parts are as they come
  run.sums = sums;
  run.num_parts = 0;
  run.first = true;
  run.add = x->add;
  int64_t most = RUN_BYTES / (s->n * (b->type == AT_F32 ? 4 : 2)) & ~1,
          rows = 0;
  int64_t skip = s->j * b->outer_stride;  // of a page
  int64_t page = 0, in = 0, done = 0;
  do {
    int64_t left = AT_PAIRS_BLOCK - done % AT_PAIRS_BLOCK;
    AT_ASSERT(run.num_parts < MAX_PARTS && (page < pages->count || !b->k));
    part *p = &run.parts[run.num_parts++];
    p->b = (const uint8_t *)pages->page[page] + in * b->k_stride + skip;
    p->at = done;
    p->k = AT_MIN(AT_MIN(pages->rows - in, left), most - rows);
    AT_ASSERT(p->k > 0 || !b->k);
    done += p->k, rows += p->k, in += p->k;
    p->next = p->b + p->k * b->k_stride;
    if (in == pages->rows) {
      in = 0;
      const void *next =
          ++page < pages->count ? pages->page[page] : pages->next;
      p->next = next ? (const uint8_t *)next + skip : NULL;
    }
    // The run ends here; the sums go to C if a block of k ends with it.
    run.last = p->k == left || done == b->k;
    if (!run.last && rows < most) continue;
    run_multiply(x, s, m, &run);
    run.num_parts = 0, rows = 0;
    run.first = run.last;
    run.add |= run.last;
  } while (done < b->k);
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
  int64_t unit;      // columns of B that are taken at once
  int64_t per_page;  // units, where their k are dense
} job;

// The columns of units [begin, end) where their k are dense.
AT_PAIRS AT_INLINE void along_type(uint32_t type, const job *w, int64_t begin,
                                   int64_t end) {
  const at_k_pages *pages = w->x->pages;
  at_k_matrix b = *w->x->b;
  few x = *w->x;
  x.b = &b;
  int64_t page = begin / w->per_page, in = begin % w->per_page * w->unit;
  for (; begin < end; begin++) {
    x.c = w->x->c + page * pages->rows + in;
    b.p = (const uint8_t *)pages->page[page] + in * b.outer_stride;
    b.outer = AT_MIN(w->unit, pages->rows - in);
    in += w->unit;
    x.next = (const uint8_t *)b.p + w->unit * b.outer_stride;
    if (in >= pages->rows) {
      in = 0;
      x.next = ++page < pages->count ? pages->page[page] : pages->next;
    }
    all_rows(0, type, &x, w->m, NULL);
  }
}

// Units [begin, end) of columns of B: at_range_fn of at_k_few.
AT_PAIRS static void units_multiply(void *arg, int64_t begin, int64_t end,
                                    uint32_t worker) {
  const job *w = arg;
  if (!w->along)
    columns_multiply(w->x, w->m, begin * w->unit,
                     AT_MIN(end * w->unit, w->x->b->outer));
  else if (w->x->b->type == AT_F32)
    along_type(AT_F32, w, begin, end);
  else
    along_type(AT_BF16, w, begin, end);
}

// See kernels.h. Threads share columns of B in units that depend on the shape
// alone; a column is added up by one of them.
AT_PAIRS void at_k_few(const at_par *par, const at_k_matrix *a,
                       const at_k_matrix *b, const at_k_pages *pages, float *c,
                       int64_t ldc, bool add) {
  _Alignas(64) uint16_t packed[MAX_M * MAX_K];
  bool along = is_dense(b, b->k, b->k_stride);
  at_k_pages whole = {&b->p, 1, along ? b->outer : b->k, NULL};
  if (!pages) pages = &whole;
  few x = {b, pages, NULL, packed, at_k_round_up(a->k, 32), c, ldc, add};
  pack_rows(a, packed, x.lda);
  job w = {.x = &x, .m = a->outer, .along = along};
  int64_t fits = UNIT_BYTES / AT_MAX(b->outer_stride, (int64_t)1);
  w.unit = along ? AT_MAX(fits / COLS * COLS, (int64_t)COLS) : COLS * LANES;
  w.per_page = at_k_ceil_div(pages->rows, w.unit);
  int64_t units =
      along ? pages->count * w.per_page : at_k_ceil_div(b->outer, w.unit);
  if (!par) {
    units_multiply(&w, 0, units, 0);
    return;
  }
  int64_t grain = at_k_ceil_div(units, at_par_threads(par));
  at_par_for(par, units, grain, units_multiply, &w);
}
