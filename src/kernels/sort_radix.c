// Keys, and least-significant-digit radix passes over 8-bit digits. The
// parallel passes cut the items into a fixed number of blocks: count, prefix,
// scatter.
#include <math.h>

#include "kernels/sort_internal.h"

// Types of at most 32 bits have one limb: narrow floats go through f32.
int at_sort_limbs(uint32_t t) {
  switch (t) {
    case AT_S64:
    case AT_U64:
    case AT_F64:
    case AT_C64:
      return 2;
    case AT_C128:
      return 4;
    default:
      return at_dtype_bytes((at_dtype)t) ? 1 : 0;
  }
}

// Bits of a float as an unsigned key: negative numbers are inverted, positive
// ones get the top bit.
static inline uint32_t f32_key(uint32_t u) {
  if ((u & 0x7fffffff) > 0x7f800000) return UINT32_MAX;
  if (u == 0x80000000) u = 0;
  return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000);
}
// Bits that order as unsigned numbers: -0 is +0, every NaN is above infinity.
static inline uint64_t f64_key(uint64_t u) {
  if ((u & INT64_MAX) > 0x7ff0000000000000) return UINT64_MAX;
  if (u == 1ull << 63) u = 0;
  return u ^ ((uint64_t)((int64_t)u >> 63) | 1ull << 63);
}
// For callers that hold a float.
static inline uint32_t f32_key_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return f32_key(u);
}

// Complex numbers compare by real part, then imaginary part, which is the minor
// limb.
uint32_t at_sort_limb(uint32_t t, int limb, const void *p) {
  uint64_t w;
  switch (t) {
    case AT_F32:
      return f32_key(*(const uint32_t *)p);
    case AT_C64:
      return f32_key(((const uint32_t *)p)[1 - limb]);
    case AT_F64:
      w = f64_key(*(const uint64_t *)p);
      break;
    case AT_C128:
      w = f64_key(((const uint64_t *)p)[1 - limb / 2]);
      break;
    case AT_S64:
      w = *(const uint64_t *)p ^ 1ull << 63;
      break;
    case AT_U64:
      w = *(const uint64_t *)p;
      break;
    case AT_S32:
      return *(const uint32_t *)p ^ 0x80000000;
    case AT_U32:
      return *(const uint32_t *)p;
    case AT_S16:
      return *(const uint16_t *)p ^ 0x8000u;
    case AT_U16:
      return *(const uint16_t *)p;
    case AT_S8:
    case AT_S4:
    case AT_S2:
      return *(const uint8_t *)p ^ 0x80u;
    case AT_U8:
    case AT_U4:
    case AT_U2:
    case AT_PRED:
      return *(const uint8_t *)p;
    case AT_BF16:
      return f32_key((uint32_t) * (const uint16_t *)p << 16);
    case AT_F16:
      return f32_key_of(at_f16_to_f32(*(const uint16_t *)p));
    default:
      return f32_key_of((float)at_k_load_f64(t, p));
  }
  return (uint32_t)(limb % 2 ? w >> 32 : w);
}

// See sort_internal.h. Positions count from 0 in the order of perm, not of
// memory.
void at_sort_items(uint32_t t, int limb, bool flip, const char *base,
                   int64_t stride, const uint32_t *perm, int64_t begin,
                   int64_t end, uint64_t *items) {
  uint32_t mask = flip ? UINT32_MAX : 0;
  // The common case without a call per element.
  if (t == AT_F32 && stride == 4 && !perm) {
    const uint32_t *restrict u = (const uint32_t *)(const void *)base;
    for (int64_t i = begin; i < end; i++)
      items[i] = (uint64_t)(f32_key(u[i]) ^ mask) << 32 | (uint64_t)i;
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    const char *p = base + (perm ? perm[i] : i) * stride;
    items[i] = (uint64_t)(at_sort_limb(t, limb, p) ^ mask) << 32 | (uint64_t)i;
  }
}

// ---- Comparison sort of small arrays
enum { RUN = 16 };

// Insertion sort, ascending.
static void insertion(uint64_t *a, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    uint64_t x = a[i];
    int64_t j = i;
    for (; j > 0 && a[j - 1] > x; j--) a[j] = a[j - 1];
    a[j] = x;
  }
}

// Merges a and b without branches; equal items do not occur, as positions
// differ.
static void merge(const uint64_t *a, int64_t na, const uint64_t *b, int64_t nb,
                  uint64_t *out) {
  while (na > 0 && nb > 0) {
    bool right = *b < *a;
    *out++ = right ? *b : *a;
    a += !right, na -= !right;
    b += right, nb -= right;
  }
  AT_ASSERT(na >= 0 && nb >= 0);
  memcpy(out, a, (size_t)na * 8);
  memcpy(out + na, b, (size_t)nb * 8);
}

// Runs of RUN by insertion, then merging between the two arrays.
uint64_t *at_sort_merge(uint64_t *items, uint64_t *tmp, int64_t n) {
  for (int64_t i = 0; i < n; i += RUN) insertion(items + i, AT_MIN(RUN, n - i));
  for (int64_t w = RUN; w < n; w *= 2) {
    for (int64_t i = 0; i < n; i += 2 * w) {
      int64_t na = AT_MIN(w, n - i), nb = AT_MIN(w, n - i - na);
      merge(items + i, na, items + i + na, nb, tmp + i);
    }
    uint64_t *t = items;
    items = tmp, tmp = t;
  }
  return items;
}

// ---- Radix passes
enum { DIGITS = 256, BLOCKS = 16 };

// Four passes of eight bits over the upper half, counted in one go. A pass
// whose items all have one digit is left out.
uint64_t *at_sort_radix(uint64_t *items, uint64_t *tmp, int64_t n) {
  uint32_t count[4][DIGITS] = {{0}};
  for (int64_t i = 0; i < n; i++) {
    uint32_t k = (uint32_t)(items[i] >> 32);
    count[0][k & 255]++, count[1][k >> 8 & 255]++;
    count[2][k >> 16 & 255]++, count[3][k >> 24]++;
  }
  for (int pass = 0; pass < 4; pass++) {
    int shift = 32 + 8 * pass;
    uint32_t *c = count[pass], at = 0;
    if (c[items[0] >> shift & 255] == n) continue;  // one digit: nothing moves
    for (int d = 0; d < DIGITS; d++) {
      uint32_t x = c[d];
      c[d] = at, at += x;
    }
    AT_ASSERT(at == n);
    for (int64_t i = 0; i < n; i++)
      tmp[c[items[i] >> shift & 255]++] = items[i];
    uint64_t *t = items;
    items = tmp, tmp = t;
  }
  return items;
}

// The parallel passes, for items of 8 bytes (key in the upper half) and of 4.
#define RADIX_PARALLEL(T, name, shift0)                                        \
  typedef struct name##_pass {                                                 \
    const T *in;                                                               \
    T *out;                                                                    \
    int64_t n, block;                                                          \
    int shift;                                                                 \
    uint32_t (*count)[DIGITS];                                                 \
  } name##_pass;                                                               \
  static void name##_count(void *arg, int64_t begin, int64_t end,              \
                           uint32_t w) {                                       \
    const name##_pass *p = arg;                                                \
    for (int64_t b = begin; b < end; b++) {                                    \
      int64_t from = b * p->block, to = AT_MIN(from + p->block, p->n);         \
      uint32_t c[4][DIGITS] = {{0}};                                           \
      int64_t i = from;                                                        \
      for (; i + 4 <= to; i += 4) {                                            \
        c[0][p->in[i] >> p->shift & 255]++;                                    \
        c[1][p->in[i + 1] >> p->shift & 255]++;                                \
        c[2][p->in[i + 2] >> p->shift & 255]++;                                \
        c[3][p->in[i + 3] >> p->shift & 255]++;                                \
      }                                                                        \
      for (; i < to; i++) c[0][p->in[i] >> p->shift & 255]++;                  \
      for (int d = 0; d < DIGITS; d++)                                         \
        p->count[b][d] = c[0][d] + c[1][d] + c[2][d] + c[3][d];                \
    }                                                                          \
  }                                                                            \
  static void name##_move(void *arg, int64_t begin, int64_t end, uint32_t w) { \
    const name##_pass *p = arg;                                                \
    for (int64_t b = begin; b < end; b++) {                                    \
      int64_t from = b * p->block, to = AT_MIN(from + p->block, p->n);         \
      uint32_t *c = p->count[b];                                               \
      T *restrict out = p->out;                                                \
      for (int64_t i = from; i < to; i++)                                      \
        out[c[p->in[i] >> p->shift & 255]++] = p->in[i];                       \
    }                                                                          \
  }                                                                            \
  T *name(const at_par *par, T *items, T *tmp, int64_t n, at_status *st) {     \
    uint32_t(*count)[DIGITS] = at_par_scratch(par, BLOCKS * sizeof *count);    \
    *st = AT_OK;                                                               \
    if (!count) {                                                              \
      *st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "sort: no scratch memory");         \
      return items;                                                            \
    }                                                                          \
    for (int pass = 0; pass < 4; pass++) {                                     \
      name##_pass p = {items,                                                  \
                       tmp,                                                    \
                       n,                                                      \
                       at_k_ceil_div(n, BLOCKS),                               \
                       (shift0) + 8 * pass,                                    \
                       count};                                                 \
      int64_t blocks = at_k_ceil_div(n, p.block);                              \
      at_par_for(par, blocks, 1, name##_count, &p);                            \
      uint32_t at = 0, most = 0;                                               \
      for (int d = 0; d < DIGITS; d++) {                                       \
        uint32_t first = at;                                                   \
        for (int64_t b = 0; b < blocks; b++) {                                 \
          uint32_t x = count[b][d];                                            \
          count[b][d] = at, at += x;                                           \
        }                                                                      \
        most = AT_MAX(most, at - first);                                       \
      }                                                                        \
      AT_ASSERT(at == n);                                                      \
      if (most == n) continue;                                                 \
      at_par_for(par, blocks, 1, name##_move, &p);                             \
      T *t = items;                                                            \
      items = tmp, tmp = t;                                                    \
    }                                                                          \
    return items;                                                              \
  }
RADIX_PARALLEL(uint64_t, at_sort_radix_parallel, 32)
RADIX_PARALLEL(uint32_t, at_sort_radix32_parallel, 0)
