// Packing: panels of A and B in the engine's layout, and the way back to C.
#include "kernels/gemm_internal.h"

// dst[k * ld + r] = src[row[r] + k * ks] for four rows of 4-byte elements.
static void transpose4_u32(uint32_t *dst, int64_t ld,
                           const uint32_t *const r[4], int64_t kc) {
  int64_t k = 0;
  for (; k + 4 <= kc; k += 4) {
    __m128i a = _mm_loadu_si128((const void *)(r[0] + k));
    __m128i b = _mm_loadu_si128((const void *)(r[1] + k));
    __m128i c = _mm_loadu_si128((const void *)(r[2] + k));
    __m128i d = _mm_loadu_si128((const void *)(r[3] + k));
    __m128i ab = _mm_unpacklo_epi32(a, b), AB = _mm_unpackhi_epi32(a, b);
    __m128i cd = _mm_unpacklo_epi32(c, d), CD = _mm_unpackhi_epi32(c, d);
    _mm_storeu_si128((void *)(dst + k * ld), _mm_unpacklo_epi64(ab, cd));
    _mm_storeu_si128((void *)(dst + (k + 1) * ld), _mm_unpackhi_epi64(ab, cd));
    _mm_storeu_si128((void *)(dst + (k + 2) * ld), _mm_unpacklo_epi64(AB, CD));
    _mm_storeu_si128((void *)(dst + (k + 3) * ld), _mm_unpackhi_epi64(AB, CD));
  }
  for (; k < kc; k++)
    for (int i = 0; i < 4; i++) dst[k * ld + i] = r[i][k];
}

// The same for eight rows.
static void transpose8_u32(uint32_t *dst, int64_t ld,
                           const uint32_t *const r[8], int64_t kc) {
  int64_t k = 0;
  for (; k + 8 <= kc; k += 8) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i++)
      a[i] = _mm256_loadu_si256((const void *)(r[i] + k));
    for (int i = 0; i < 8; i += 2) {
      b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
      b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    // a[q] and a[q + 4]: k of q and q + 4, of the first and the last four rows.
    for (int i = 0; i < 8; i += 4)
      for (int h = 0; h < 2; h++) {
        a[i + 2 * h] = _mm256_unpacklo_epi64(b[i + h], b[i + 2 + h]);
        a[i + 2 * h + 1] = _mm256_unpackhi_epi64(b[i + h], b[i + 2 + h]);
      }
    for (int q = 0; q < 4; q++) {
      _mm256_storeu_si256((void *)(dst + (k + q) * ld),
                          _mm256_permute2x128_si256(a[q], a[q + 4], 0x20));
      _mm256_storeu_si256((void *)(dst + (k + q + 4) * ld),
                          _mm256_permute2x128_si256(a[q], a[q + 4], 0x31));
    }
  }
  for (; k < kc; k++)
    for (int i = 0; i < 8; i++) dst[k * ld + i] = r[i][k];
}

enum { ROWS_AHEAD = 16, LINES = 16 };

// An element of 16 bytes.
typedef struct b16 {
  uint64_t w[2];
} b16;

// One body per element width: dst[x * ldx + y] = src[xo(x) + yo(y)].
#define GATHER(name, T)                                                       \
  static void name(T *dst, int64_t ldx, const T *src, const at_gemm_off *xo,  \
                   int64_t x0, int64_t nx, const at_gemm_off *yo, int64_t y0, \
                   int64_t ny) {                                              \
    if (at_off_dense(yo, y0, ny) && at_off_uniform(xo, x0, nx)) {             \
      /* Rows often lie pages apart: no hardware fetches ahead. */            \
      const T *s = src + at_off(xo, x0) + at_off(yo, y0);                     \
      for (int64_t x = 0; x < nx; x++, s += xo->stride, dst += ldx) {         \
        const char *ahead = (const char *)(s + ROWS_AHEAD * xo->stride);      \
        for (int64_t b = 0; b < ny * (int64_t)sizeof(T); b += 64)             \
          __builtin_prefetch(ahead + b);                                      \
        memcpy(dst, s, (size_t)ny * sizeof(T));                               \
      }                                                                       \
      return;                                                                 \
    }                                                                         \
    if (at_off_dense(yo, y0, ny)) {                                           \
      for (int64_t x = 0; x < nx; x++)                                        \
        memcpy(dst + x * ldx, src + at_off(xo, x0 + x) + at_off(yo, y0),      \
               (size_t)ny * sizeof(T));                                       \
      return;                                                                 \
    }                                                                         \
    if (at_off_uniform(xo, x0, nx)) {                                         \
      int64_t xs = xo->stride;                                                \
      for (int64_t y = 0; y < ny; y++) {                                      \
        const T *restrict s = src + at_off(xo, x0) + at_off(yo, y0 + y);      \
        T *restrict d = dst + y;                                              \
        for (int64_t x = 0; x < nx; x++) d[x * ldx] = s[x * xs];              \
      }                                                                       \
      return;                                                                 \
    }                                                                         \
    /* A few lines at a time, so that their offsets are looked up once. */    \
    for (int64_t y = 0; y < ny; y += LINES) {                                 \
      int64_t off[LINES], n = AT_MIN(LINES, ny - y);                          \
      for (int64_t q = 0; q < n; q++) off[q] = at_off(yo, y0 + y + q);        \
      for (int64_t x = 0; x < nx; x++) {                                      \
        const T *s = src + at_off(xo, x0 + x);                                \
        T *restrict d = dst + x * ldx + y;                                    \
        for (int64_t q = 0; q < n; q++) d[q] = s[off[q]];                     \
      }                                                                       \
    }                                                                         \
  }
GATHER(gather1, uint8_t)
GATHER(gather2, uint16_t)
GATHER(gather4_any, uint32_t)
GATHER(gather8, uint64_t)
GATHER(gather16, b16)

// gather of 4-byte elements. Where k is dense on the source side, squares are
// transposed in registers.
static void gather4(uint32_t *dst, int64_t ldx, const uint32_t *src,
                    const at_gemm_off *xo, int64_t x0, int64_t nx,
                    const at_gemm_off *yo, int64_t y0, int64_t ny) {
  if (at_off_dense(yo, y0, ny) || !at_off_dense(xo, x0, nx)) {
    gather4_any(dst, ldx, src, xo, x0, nx, yo, y0, ny);
    return;
  }
  int64_t y = 0;
  for (; y + 8 <= ny; y += 8) {
    const uint32_t *r[8];
    for (int i = 0; i < 8; i++)
      r[i] = src + at_off(xo, x0) + at_off(yo, y0 + y + i);
    transpose8_u32(dst + y, ldx, r, nx);
  }
  for (; y + 4 <= ny; y += 4) {
    const uint32_t *r[4];
    for (int i = 0; i < 4; i++)
      r[i] = src + at_off(xo, x0) + at_off(yo, y0 + y + i);
    transpose4_u32(dst + y, ldx, r, nx);
  }
  if (y < ny) gather4_any(dst + y, ldx, src, xo, x0, nx, yo, y0 + y, ny - y);
}

// dst[x * ldx + y] = src[xo(x0 + x) + yo(y0 + y)] for elements of `bytes`.
static void gather(uint32_t bytes, void *dst, int64_t ldx, const void *src,
                   const at_gemm_off *xo, int64_t x0, int64_t nx,
                   const at_gemm_off *yo, int64_t y0, int64_t ny) {
  switch (bytes) {
    case 1:
      gather1(dst, ldx, src, xo, x0, nx, yo, y0, ny);
      break;
    case 2:
      gather2(dst, ldx, src, xo, x0, nx, yo, y0, ny);
      break;
    case 4:
      gather4(dst, ldx, src, xo, x0, nx, yo, y0, ny);
      break;
    case 8:
      gather8(dst, ldx, src, xo, x0, nx, yo, y0, ny);
      break;
    default:
      gather16(dst, ldx, src, xo, x0, nx, yo, y0, ny);
      break;
  }
}

// See at_gemm_pack_a_fn. Gathers in whichever order walks A along its dense
// side, then fills up with zeros.
void at_gemm_pack_a_strided(const at_gemm_job *j, int64_t batch, int64_t i,
                            int64_t rows, int64_t width, int64_t k, int64_t kc,
                            int64_t kpad, bool row_major, int64_t ld,
                            void *dst) {
  uint32_t es = at_dtype_bytes((at_dtype)j->a_type);
  int64_t off[3];
  j->batch_off(j, batch, off);
  const char *src = j->a + off[0] * es;
  char *d = dst;
  if (row_major) {
    gather(es, d, ld, src, &j->a_m, i, rows, &j->a_k, k, kc);
    for (int64_t r = 0; r < rows && kc < kpad; r++)
      memset(d + (r * ld + kc) * es, 0, (size_t)((kpad - kc) * es));
    for (int64_t r = rows; r < width; r++)
      memset(d + r * ld * es, 0, (size_t)(kpad * es));
    return;
  }
  // [k][width]: missing rows are holes in every line of k.
  if (rows < width) memset(d, 0, (size_t)(kc * ld * es));
  gather(es, d, ld, src, &j->a_k, k, kc, &j->a_m, i, rows);
  if (kc < kpad) memset(d + kc * ld * es, 0, (size_t)((kpad - kc) * ld * es));
}

// Rows of 2-byte elements, ld apart -> dst[k / 2][nr][2].
static void interleave2(uint16_t *dst, const uint16_t *src, int64_t ld,
                        int64_t kpad, int64_t nr) {
  for (int64_t k = 0; k < kpad; k += 2) {
    const uint16_t *restrict r0 = src + k * ld, *restrict r1 = r0 + ld;
    uint16_t *restrict d = dst + k * nr;
    for (int64_t n = 0; n < nr; n++) d[2 * n] = r0[n], d[2 * n + 1] = r1[n];
  }
}

// 16 values of two rows as pairs of 16 bits.
static void put_pairs(uint16_t *dst, __m256i a, __m256i b) {
  __m256i low = _mm256_unpacklo_epi16(a, b), high = _mm256_unpackhi_epi16(a, b);
  _mm256_storeu_si256((void *)dst, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256((void *)(dst + 16),
                      _mm256_permute2x128_si256(low, high, 0x31));
}
static __m256i load_whole(const char *p) {
  return _mm256_loadu_si256((const void *)p);
}
static __m256i load_s8(const char *p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
}
static __m256i load_u8(const char *p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p));
}

// A panel of 32 dense columns whose rows are ld bytes apart, in the engine's
// type -> dst[kpad / 2][32][2].
enum { PAIR_COLUMNS = 32 };
#define PACK_PAIRS(name, LOAD, BYTES)                                      \
  static void name(uint16_t *dst, const char *src, int64_t ld, int64_t kc, \
                   int64_t kpad) {                                         \
    static const char zeros[PAIR_COLUMNS * 2];                             \
    for (int64_t k = 0; k < kc; k += 2, dst += 2 * PAIR_COLUMNS) {         \
      const char *a = src + k * ld, *b = k + 1 < kc ? a + ld : zeros;      \
      __builtin_prefetch(a + ROWS_AHEAD * ld);                             \
      __builtin_prefetch(b + ROWS_AHEAD * ld);                             \
      put_pairs(dst, LOAD(a), LOAD(b));                                    \
      put_pairs(dst + PAIR_COLUMNS, LOAD(a + 16 * BYTES),                  \
                LOAD(b + 16 * BYTES));                                     \
    }                                                                      \
    int64_t rest = kpad - at_k_round_up(kc, 2);                            \
    memset(dst, 0, (size_t)(rest * PAIR_COLUMNS * 2));                     \
  }
PACK_PAIRS(pack_pairs_whole, load_whole, 2)
PACK_PAIRS(pack_pairs_s8, load_s8, 1)
PACK_PAIRS(pack_pairs_u8, load_u8, 1)

// 8-bit floats: two rows at a time are converted to bf16 on the stack and
// interleaved.
static void pack_pairs_f8(uint32_t type, uint16_t *dst, const char *src,
                          int64_t ld, int64_t kc, int64_t kpad) {
  for (int64_t k = 0; k < kpad; k += 2, dst += 2 * PAIR_COLUMNS) {
    uint16_t rows[2][PAIR_COLUMNS] = {{0}};
    for (int i = 0; i < 2 && k + i < kc; i++) {
      __builtin_prefetch(src + (k + i + ROWS_AHEAD) * ld);
      at_k_convert(AT_BF16, rows[i], type, src + (k + i) * ld, PAIR_COLUMNS);
    }
    pack_pairs_whole(dst, (const char *)rows, sizeof rows[0], 2, 2);
  }
}

// False: none of these.
static bool pack_pairs(const at_gemm_job *j, const char *src, int64_t ld,
                       int64_t kc, int64_t kpad, void *dst) {
  bool s16 = j->e->pack_type == AT_S16;
  if (j->b_type == j->e->pack_type)
    pack_pairs_whole(dst, src, ld, kc, kpad);
  else if (s16 && at_is_signed_int((at_dtype)j->b_type))
    pack_pairs_s8(dst, src, ld, kc, kpad);
  else if (s16)
    pack_pairs_u8(dst, src, ld, kc, kpad);
  else if (j->b_type == AT_F8E4M3FN || j->b_type == AT_F8E5M2)
    pack_pairs_f8(j->b_type, dst, src, ld, kc, kpad);
  else
    return false;
  return true;
}
// Rows of bytes, nr apart -> dst[k / 4][nr][4].
static void interleave4(uint8_t *dst, const uint8_t *raw, int64_t kpad,
                        int64_t nr) {
  for (int64_t k = 0; k < kpad; k += 4)
    for (int64_t n = 0; n < nr; n++)
      for (int64_t q = 0; q < 4; q++)
        dst[k * nr + 4 * n + q] = raw[(k + q) * nr + n];
}

// Panels of B whose k is contiguous: groups of kr values move as one word.
static void pack_b_words(const at_gemm_job *j, const char *src, int64_t n0,
                         int64_t cols, int64_t k0, int64_t kc, void *dst) {
  int64_t nr = j->e->nr;
  const uint32_t *r[4];
  uint32_t es = at_dtype_bytes((at_dtype)j->b_type);
  int64_t words = kc / j->e->kr;
  for (int64_t n = 0; n < cols; n += 4) {
    // Columns behind the last repeat it; they are never stored.
    int live = (int)AT_MIN(4, cols - n);
    for (int i = 0; i < 4; i++)
      r[i] =
          (const void *)(src + (at_off(&j->b_n, n0 + n + AT_MIN(i, live - 1)) +
                                at_off(&j->b_k, k0)) *
                                   es);
    transpose4_u32((uint32_t *)dst + n, nr, r, words);
  }
}
// The same, of another type or of any size; kr is 2.
static void pack_b_converted(const at_gemm_job *j, const char *src, int64_t n0,
                             int64_t cols, int64_t k0, int64_t kc, int64_t kpad,
                             char *rows, void *dst) {
  uint32_t es = at_dtype_bytes((at_dtype)j->b_type);
  int64_t nr = j->e->nr;
  for (int64_t n = 0; n < nr; n++) {
    char *to = rows + n * kpad * 2;
    int64_t there = n < cols ? kc : 0;
    if (there)
      at_k_convert(j->e->pack_type, to, j->b_type,
                   src + (at_off(&j->b_n, n0 + n) + at_off(&j->b_k, k0)) * es,
                   there);
    memset(to + there * 2, 0, (size_t)((kpad - there) * 2));
  }
  for (int64_t n = 0; n < nr; n += 4) {
    const uint32_t *r[4];
    for (int i = 0; i < 4; i++)
      r[i] = (const void *)(rows + (n + i) * kpad * 2);
    transpose4_u32((uint32_t *)dst + n, nr, r, kpad / 2);
  }
}

// One panel of `cols` columns and kc values of k, padded to nr and kpad. Five
// ways, from the special to the general: whole words along k, converted words
// along k, pairs of dense rows, a gather in place, a gather through `raw` with
// conversion and interleaving.
static void pack_b_panel(const at_gemm_job *j, const char *src, int64_t n0,
                         int64_t cols, int64_t k0, int64_t kc, int64_t kpad,
                         void *raw, void *dst) {
  const at_gemm_engine *e = j->e;
  uint32_t es = at_dtype_bytes((at_dtype)j->b_type);
  uint32_t pack_es = at_dtype_bytes((at_dtype)e->pack_type);
  bool same = j->b_type == e->pack_type || pack_es == 1;
  int64_t nr = e->nr;
  if (e->kr > 1 && same && kc % e->kr == 0 && kc == kpad && cols == nr &&
      at_off_dense(&j->b_k, k0, kc)) {
    pack_b_words(j, src, n0, cols, k0, kc, dst);
    return;
  }
  if (e->kr == 2 && at_off_dense(&j->b_k, k0, kc)) {
    pack_b_converted(j, src, n0, cols, k0, kc, kpad, raw, dst);
    return;
  }
  if (e->kr == 2 && cols == PAIR_COLUMNS && nr == PAIR_COLUMNS &&
      at_off_dense(&j->b_n, n0, cols) && at_off_uniform(&j->b_k, k0, kc)) {
    int64_t at = at_off(&j->b_n, n0) + at_off(&j->b_k, k0);
    if (pack_pairs(j, src + at * es, j->b_k.stride * es, kc, kpad, dst)) return;
  }
  // The general way: gather, convert, interleave, each only where it is needed.
  char *first = same && e->kr == 1 ? dst : raw;
  if (cols < nr || kc < kpad) memset(first, 0, (size_t)(kpad * nr * es));
  gather(es, first, nr, src, &j->b_k, k0, kc, &j->b_n, n0, cols);
  char *rows = e->kr == 1 ? dst : (char *)raw + (same ? 0 : kpad * nr * es);
  if (!same) at_k_convert(e->pack_type, rows, j->b_type, raw, kpad * nr);
  if (e->kr == 2)
    interleave2(dst, (const uint16_t *)(const void *)rows, nr, kpad, nr);
  else if (e->kr == 4)
    interleave4(dst, (const uint8_t *)rows, kpad, nr);
}

// See gemm_internal.h; at_gemm_job.batch_off gives B of this batch.
void at_gemm_pack_b(const at_gemm_job *j, int64_t batch, int64_t n0,
                    int64_t cols, int64_t k0, int64_t kc, int64_t kpad,
                    int64_t panel, void *raw, void *dst) {
  uint32_t es = at_dtype_bytes((at_dtype)j->b_type);
  uint32_t pack_es = at_dtype_bytes((at_dtype)j->e->pack_type);
  int64_t off[3];
  j->batch_off(j, batch, off);
  const char *src = j->b + off[1] * es;
  for (int64_t p = 0; p * j->e->nr < cols; p++)
    pack_b_panel(j, src, n0 + p * j->e->nr,
                 AT_MIN(j->e->nr, cols - p * j->e->nr), k0, kc, kpad, raw,
                 (char *)dst + p * panel * pack_es);
}

// Adds the bias to one row of accumulators of type t: bias[j0 + n] to column n,
// or bias[i] to all of them where it is per row.
static void add_bias(const at_gemm_job *j, uint32_t t, void *row, int64_t i,
                     int64_t j0, int64_t cols) {
  int64_t step = j->bias_rows ? 0 : 1, at = j->bias_rows ? i : j0;
#define ADD(T)                       \
  for (int64_t n = 0; n < cols; n++) \
  ((T *)row)[n] = ((T *)row)[n] + ((const T *)j->bias)[at + n * step]
  switch (t) {
    case AT_F32:
      ADD(float);
      break;
    case AT_F64:
      ADD(double);
      break;
    case AT_S32:
      ADD(uint32_t);
      break;
    case AT_S64:
      ADD(uint64_t);
      break;
    case AT_C64:
      for (int64_t n = 0; n < 2 * cols; n++)
        ((float *)row)[n] +=
            ((const float *)j->bias)[2 * (at + n / 2 * step) + n % 2];
      break;
    default:
      for (int64_t n = 0; n < 2 * cols; n++)
        ((double *)row)[n] +=
            ((const double *)j->bias)[2 * (at + n / 2 * step) + n % 2];
  }
#undef ADD
}

// Stores `cols` elements of es bytes at the offsets o of columns j0 and
// following.
static void scatter_row(uint32_t es, char *c, const at_gemm_off *o, int64_t j0,
                        int64_t cols, const char *row) {
  for (int64_t n = 0; n < cols; n++)
    memcpy(c + at_off(o, j0 + n) * es, row + n * es, es);
}

// Rows of accumulators, ld apart, get their bias (in place), are converted and
// stored. Columns of C that are not dense go through a buffer of 256.
void at_gemm_store(const at_gemm_job *j, int64_t c_off, int64_t i0,
                   int64_t rows, int64_t j0, int64_t cols, void *acc,
                   int64_t ld) {
  uint32_t t = j->e->acc_type, es = at_dtype_bytes((at_dtype)j->c_type);
  uint32_t acc_es = at_dtype_bytes((at_dtype)t);
  bool dense = at_off_dense(&j->c_n, j0, cols);
  char tmp[256 * 16];
  for (int64_t i = 0; i < rows; i++) {
    char *row = (char *)acc + i * ld * acc_es;
    char *c = j->c + (c_off + at_off(&j->c_m, i0 + i)) * es;
    if (j->bias) add_bias(j, t, row, i0 + i, j0, cols);
    if (dense) {
      at_k_convert(j->c_type, c + at_off(&j->c_n, j0) * es, t, row, cols);
      continue;
    }
    for (int64_t n = 0; n < cols; n += 256) {
      int64_t w = AT_MIN(256, cols - n);
      at_k_convert(j->c_type, tmp, t, row + n * acc_es, w);
      scatter_row(es, c, &j->c_n, j0 + n, w, tmp);
    }
  }
}

// F32 and bf16 results with dense columns become a `put`, which the next
// product stores on its way.
void at_gemm_finish_tile(const at_gemm_job *j, int64_t c_off, int64_t i0,
                         int rows, int64_t j0, int cols, float *tile,
                         at_gemm_put *put) {
  bool plain = j->e->acc_type == AT_F32 && !j->bias &&
               (j->c_type == AT_F32 || j->c_type == AT_BF16) &&
               at_off_dense(&j->c_n, j0, cols) &&
               at_off_uniform(&j->c_m, i0, rows);
  if (!plain) {
    at_gemm_store(j, c_off, i0, rows, j0, cols, tile, AT_GEMM_PANEL);
    return;
  }
  int64_t es = at_dtype_bytes((at_dtype)j->c_type);
  int64_t at = c_off + at_off(&j->c_m, i0) + at_off(&j->c_n, j0);
  *put =
      (at_gemm_put){.from = tile,
                    .to = j->c + at * es,
                    .stride = j->c_m.stride * es,
                    .rows = rows,
                    .columns = cols == AT_GEMM_PANEL ? ~0u : (1u << cols) - 1,
                    .narrow = j->c_type == AT_BF16};
}
