// TOP_K: the k largest (or smallest) of each row, in order, ties by lower
// index. By the total order of the bits: -NaN < -inf < -0 < 0 < inf < NaN.
//
// A pass keeps candidates above a threshold; when their buffer is full the best
// k stay and the k-th becomes the threshold, so that almost every element costs
// one compare.
#include "base/verify.h"
#include "kernels/kernels_internal.h"

enum { STRIP = 1024, CHUNK = 1 << 16, FEW = 64 };

// Key (larger is better, biased to unsigned), then the complement of the index.
typedef unsigned __int128 cand;

typedef struct top_k {
  const at_k_top_k_params *p;
  const char *in;
  char *values;
  int32_t *indices;
  int64_t es, chunk, chunks, keep, cap;
  bool wide;       // 64-bit keys
  cand *found;     // [rows][chunks][keep]
  int64_t *count;  // [rows][chunks]
  cand *space;     // per worker: cap
} top_k;

// Bits of a float to a signed integer of the same order, and back.
static inline int32_t order32(int32_t x) { return x ^ ((x >> 31) & INT32_MAX); }
static inline int64_t order64(int64_t x) { return x ^ ((x >> 63) & INT64_MAX); }

#define KEYS(T, expr)                                        \
  do {                                                       \
    const T *restrict s = (const T *)(const void *)src;      \
    for (int64_t i = 0; i < n; i++) keys[i] = (expr) ^ flip; \
  } while (0)

// Signed keys of n elements of at most 32 bits; flip inverts the order.
static void keys32(uint32_t t, const char *src, int64_t n, int32_t flip,
                   int32_t *restrict keys) {
  switch (t) {
    case AT_F32:
      KEYS(int32_t, order32(s[i]));
      break;
    case AT_S32:
      KEYS(int32_t, s[i]);
      break;
    case AT_U32:
      KEYS(uint32_t, (int32_t)(s[i] ^ 0x80000000));
      break;
    case AT_BF16:
      KEYS(uint16_t, order32((int32_t)((uint32_t)s[i] << 16)));
      break;
    case AT_F16:
      KEYS(uint16_t, order32((int32_t)((uint32_t)s[i] << 16)));
      break;
    case AT_S16:
      KEYS(int16_t, s[i]);
      break;
    case AT_U16:
      KEYS(uint16_t, s[i]);
      break;
    case AT_S8:
    case AT_S4:
    case AT_S2:
      KEYS(int8_t, s[i]);
      break;
    case AT_U8:
    case AT_U4:
    case AT_U2:
    case AT_PRED:
      KEYS(uint8_t, s[i]);
      break;
    default:
      for (int64_t i = 0; i < n; i++) {
        float f = (float)at_k_load_f64(t, src + i);
        int32_t x;
        memcpy(&x, &f, 4);
        keys[i] = order32(x) ^ flip;
      }
  }
}
// The same for 8-byte types.
static void keys64(uint32_t t, const char *src, int64_t n, int64_t flip,
                   int64_t *restrict keys) {
  switch (t) {
    case AT_F64:
      KEYS(int64_t, order64(s[i]));
      break;
    case AT_S64:
      KEYS(int64_t, s[i]);
      break;
    default:
      KEYS(uint64_t, (int64_t)(s[i] ^ 1ull << 63));
  }
}

// A candidate from signed key and index; ties are larger for lower indices.
static inline cand cand_of(int64_t key, int64_t index) {
  return (cand)((uint64_t)key ^ 1ull << 63) << 64 | (uint64_t)~index;
}
static inline int64_t cand_key(cand c) {
  return (int64_t)((uint64_t)(c >> 64) ^ 1ull << 63);
}
static inline int64_t cand_index(cand c) { return (int64_t) ~(uint64_t)c; }

// Moves the k largest of a[n] to the front, in no order.
static void select_top(cand *a, int64_t n, int64_t k) {
  int64_t lo = 0, hi = n - 1;
  while (lo < hi) {
    cand x = a[lo], y = a[lo + (hi - lo) / 2], z = a[hi];
    cand pivot = x > y ? (y > z   ? y
                          : x > z ? z
                                  : x)
                       : (x > z   ? x
                          : y > z ? z
                                  : y);
    int64_t i = lo, j = hi;
    while (i <= j) {
      while (a[i] > pivot) i++;
      while (a[j] < pivot) j--;
      if (i <= j) {
        cand t = a[i];
        a[i++] = a[j], a[j--] = t;
      }
    }
    if (k - 1 <= j)
      hi = j;
    else if (k - 1 >= i)
      lo = i;
    else
      return;
  }
}

// Restores the min-heap a[0 .. n) below i.
static void sift(cand *a, int64_t i, int64_t n) {
  cand x = a[i];
  for (int64_t c; (c = 2 * i + 1) < n; i = c) {
    if (c + 1 < n && a[c + 1] < a[c]) c++;
    if (a[c] >= x) break;
    a[i] = a[c];
  }
  a[i] = x;
}
// Descending, in place.
static void sort_down(cand *a, int64_t n) {
  for (int64_t i = n / 2; i-- > 0;) sift(a, i, n);
  for (int64_t m = n; m-- > 1;) {
    cand t = a[0];
    a[0] = a[m], a[m] = t;
    sift(a, 0, m);
  }
}

// Strictly: candidates differ in their index.
static bool is_descending(const cand *a, int64_t n) {
  for (int64_t i = 1; i < n; i++)
    if (a[i] >= a[i - 1]) return false;
  return true;
}

// True if any of 16 keys is above the threshold.
static inline bool any_above(const int32_t *k, __m256i th) {
  __m256i a = _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)k), th);
  __m256i b =
      _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)(k + 8)), th);
  return !_mm256_testz_si256(_mm256_or_si256(a, b), _mm256_or_si256(a, b));
}

// Candidates of one chunk: buf holds n of at most cap; keep of them survive
// when it is full.
typedef struct gather {
  cand *buf;
  int64_t n, keep, cap, threshold;
  bool full;  // the threshold holds
} gather;

// Adds a candidate unless it is below the threshold. Later elements lose ties,
// so an equal key is too.
static inline void push(gather *g, int64_t key, int64_t index) {
  if (g->full && key <= g->threshold) return;
  AT_ASSERT(g->n < g->cap);
  g->buf[g->n++] = cand_of(key, index);
  if (g->n < g->cap) return;
  select_top(g->buf, g->n, g->keep);
  cand least = g->buf[0];
  for (int64_t i = 1; i < g->keep; i++)
    if (g->buf[i] < least) least = g->buf[i];
  g->n = g->keep, g->threshold = cand_key(least), g->full = true;
}

// 16 f32 at a time straight from memory; the others through a strip of keys.
static int64_t scan_f32(gather *g, const int32_t *src, int64_t n, int32_t flip,
                        int64_t at) {
  int64_t i = 0;
  const __m256i max = _mm256_set1_epi32(INT32_MAX),
                fl = _mm256_set1_epi32(flip);
  for (; i + 32 <= n; i += 32) {
    if (g->full) {
      __m256i th = _mm256_set1_epi32((int32_t)g->threshold),
              any = _mm256_setzero_si256();
      for (int q = 0; q < 4; q++) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(src + i + 8 * q));
        x = _mm256_xor_si256(x,
                             _mm256_and_si256(_mm256_srai_epi32(x, 31), max));
        any = _mm256_or_si256(any,
                              _mm256_cmpgt_epi32(_mm256_xor_si256(x, fl), th));
      }
      if (_mm256_testz_si256(any, any)) continue;
    }
    for (int q = 0; q < 32; q++)
      push(g, order32(src[i + q]) ^ flip, at + i + q);
  }
  return i;
}

// Pushes elements [from, to) of a row; blocks of 16 without a key above the
// threshold are skipped.
static void scan_chunk(const top_k *t, gather *g, const char *row, int64_t from,
                       int64_t to) {
  int32_t flip = t->p->largest ? 0 : -1;
  int32_t k32[STRIP];
  int64_t k64[STRIP];
  int64_t i = from;
  if (t->p->dtype == AT_F32)
    i += scan_f32(g, (const int32_t *)(const void *)(row + from * 4), to - from,
                  flip, from);
  for (; i < to; i += STRIP) {
    int64_t n = AT_MIN(STRIP, to - i);
    if (t->wide) {
      keys64(t->p->dtype, row + i * t->es, n, flip, k64);
      for (int64_t q = 0; q < n; q++) push(g, k64[q], i + q);
      continue;
    }
    keys32(t->p->dtype, row + i * t->es, n, flip, k32);
    for (int64_t q = 0; q < n;) {
      bool skip = g->full && q + 16 <= n &&
                  !any_above(k32 + q, _mm256_set1_epi32((int32_t)g->threshold));
      int64_t stop = AT_MIN(n, q + 16);
      for (; !skip && q < stop; q++) push(g, k32[q], i + q);
      q = stop;
    }
  }
}

// Chunks [begin, end) of all rows: the best `keep` of each, in no order.
static void chunk_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const top_k *t = arg;
  for (int64_t x = begin; x < end; x++) {
    int64_t row = x / t->chunks, from = x % t->chunks * t->chunk;
    gather g = {.buf = t->space + (int64_t)worker * t->cap,
                .keep = t->keep,
                .cap = t->cap};
    scan_chunk(t, &g, t->in + row * t->p->size * t->es, from,
               AT_MIN(from + t->chunk, t->p->size));
    if (g.n > t->keep) select_top(g.buf, g.n, t->keep), g.n = t->keep;
    AT_ASSERT(g.n <= t->keep && row < t->p->rows);
    memcpy(t->found + x * t->keep, g.buf, (size_t)g.n * sizeof(cand));
    t->count[x] = g.n;
  }
}

// Rows [begin, end): joins the chunks' candidates, selects and sorts k, stores
// values and indices.
static void finish_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const top_k *t = arg;
  int64_t k = t->p->k;
  for (int64_t row = begin; row < end; row++) {
    cand *f = t->found + row * t->chunks * t->keep;
    int64_t n = 0;
    for (int64_t c = 0; c < t->chunks; c++) {
      int64_t m = t->count[row * t->chunks + c];
      memmove(f + n, f + c * t->keep, (size_t)m * sizeof(cand));
      n += m;
    }
    if (n > k) select_top(f, n, k);
    AT_ASSERT(n >= k);
    sort_down(f, k);
    AT_VERIFY(is_descending(f, k));
    const char *src = t->in + row * t->p->size * t->es;
    for (int64_t i = 0; i < k; i++) {
      int64_t index = cand_index(f[i]);
      AT_ASSERT(index >= 0 && index < t->p->size);
      t->indices[row * k + i] = (int32_t)index;
      memcpy(t->values + (row * k + i) * t->es, src + index * t->es,
             (size_t)t->es);
    }
  }
}

// ---- A few of each row: they stay sorted as elements come by
// Key (larger is better, biased to unsigned), then the complement of the index.
typedef struct few {
  uint64_t best[FEW];  // descending
  int64_t k;
  int32_t threshold;  // key of the last
} few;

// Inserts a key into the descending list of `have`, dropping the last one if it
// holds k already.
static inline void few_put(few *f, int64_t have, int32_t key, int64_t index) {
  uint64_t x = (uint64_t)((uint32_t)key ^ 0x80000000) << 32 | (uint32_t)~index;
  int64_t i = have;
  for (; i > 0 && f->best[i - 1] < x; i--) f->best[i] = f->best[i - 1];
  f->best[i] = x;
  f->threshold = (int32_t)((uint32_t)(f->best[f->k - 1] >> 32) ^ 0x80000000);
}

// A bit for each of eight keys above the threshold.
static inline uint32_t bits_above(const int32_t *k, __m256i th) {
  __m256i x = _mm256_loadu_si256((const __m256i *)k);
  return (uint32_t)_mm256_movemask_ps((__m256)_mm256_cmpgt_epi32(x, th));
}

// Keys of n elements from index `at` on; the first k of a row have been put.
static void few_scan(few *f, const int32_t *keys, int64_t n, int64_t at) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m256i th = _mm256_set1_epi32(f->threshold);
    uint32_t hits = bits_above(keys + i, th) | bits_above(keys + i + 8, th)
                                                   << 8;
    for (; hits; hits &= hits - 1) {
      int q = __builtin_ctz(hits);
      if (keys[i + q] > f->threshold)
        few_put(f, f->k - 1, keys[i + q], at + i + q);
    }
  }
  for (; i < n; i++)
    if (keys[i] > f->threshold) few_put(f, f->k - 1, keys[i], at + i);
}

// Rows [begin, end), k at most FEW.
static void few_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const top_k *t = arg;
  const at_k_top_k_params *p = t->p;
  int32_t flip = p->largest ? 0 : -1, keys[STRIP];
  for (int64_t r = begin; r < end; r++) {
    const char *src = t->in + r * p->size * t->es;
    few f = {.best = {0}, .k = p->k};
    for (int64_t at = 0; at < p->size; at += STRIP) {
      int64_t n = AT_MIN(STRIP, p->size - at), first = at ? 0 : p->k;
      keys32(p->dtype, src + at * t->es, n, flip, keys);
      for (int64_t i = 0; i < first; i++) few_put(&f, i, keys[i], i);
      few_scan(&f, keys + first, n - first, at + first);
    }
    for (int64_t i = 0; i < p->k; i++) {
      uint32_t index = ~(uint32_t)f.best[i];
      AT_ASSERT(index < p->size && (!i || f.best[i] < f.best[i - 1]));
      t->indices[r * p->k + i] = (int32_t)index;
      memcpy(t->values + (r * p->k + i) * t->es, src + index * t->es,
             (size_t)t->es);
    }
  }
}

// TOP_K: values in bufs[1], int32 indices in bufs[2]. A few rows of great
// length are cut into chunks by shape.
at_status at_k_top_k(const at_k_call *c) {
  const at_k_top_k_params *p = c->params;
  AT_K_BUFS(c, 3);
  at_dtype dt = (at_dtype)p->dtype;
  if (!at_is_float(dt) && !at_is_int(dt) && dt != AT_PRED)
    return AT_FAIL(AT_UNIMPLEMENTED, "top_k of %s", at_k_dtype_text(p->dtype));
  AT_K_CHECK(
      p->rows >= 0 && p->k >= 0 && p->k <= p->size && p->size <= INT32_MAX,
      "top_k: %ld of rows of %ld", p->k, p->size);
  if (p->rows == 0 || p->k == 0) return AT_OK;
  top_k t = {.p = p,
             .in = c->bufs[0],
             .values = c->bufs[1],
             .indices = c->bufs[2],
             .es = at_dtype_bytes(dt)};
  t.wide = t.es == 8;
  bool cut = p->rows < 16 && p->size >= 2 * CHUNK && p->k <= p->size / 16;
  if (p->k <= FEW && !t.wide && !cut) {
    at_par_for(c->par, p->rows, CHUNK / 8 / p->size + 1, few_range, &t);
    return AT_OK;
  }
  t.chunk = cut ? AT_MAX(CHUNK, 8 * p->k) : p->size;
  t.chunks = at_k_ceil_div(p->size, t.chunk);
  t.keep = AT_MIN(p->k, t.chunk);
  t.cap = AT_MIN(2 * t.keep + 64, t.chunk + 1);
  uint32_t threads = at_par_threads(c->par);
  AT_K_SCRATCH(t.found, c,
               at_mul((size_t)(p->rows * t.chunks * t.keep), sizeof(cand)));
  AT_K_SCRATCH(t.count, c,
               at_mul((size_t)(p->rows * t.chunks), sizeof *t.count));
  AT_K_SCRATCH(t.space, c, at_mul((size_t)t.cap * threads, sizeof(cand)));
  int64_t grain = CHUNK / t.chunk + 1;
  at_par_for(c->par, p->rows * t.chunks, grain, chunk_range, &t);
  at_par_for(c->par, p->rows, 4096 / p->k + 1, finish_range, &t);
  return AT_OK;
}
