// Products of blocks that come again and again, as in the steps of a grid: bf16
// on AMX or AVX-512 with each operand packed on its own, so that a packed block
// serves every product that it takes part in. f32 operands are rounded to bf16
// as they are packed.
#include "kernels/gemm_pairs.h"

enum {
  PANEL = AT_GEMM_PANEL,
  GROUP = AT_GEMM_GROUP,
  GROUP_BYTES = AT_GEMM_GROUP_BYTES
};
// Bounds of a block, and the multiplications that are worth a thread.
enum { MIN_SIDE = 16, MAX_ELEMENTS = 4 << 20, MIN_WORK = 1 << 20 };

// True if n neighbours of m that lie `stride` bytes apart are dense.
static bool is_dense(const at_k_matrix *m, int64_t n, int64_t stride) {
  return n == 1 || stride == (int64_t)at_dtype_bytes((at_dtype)m->type);
}

// Packing pays off from a side of 16 on; the upper bound keeps a packed block
// within a cache and its size within an int64_t. One side must be dense.
static bool fits(const at_k_matrix *m) {
  if (m->type != AT_F32 && m->type != AT_BF16) return false;
  if (m->outer < MIN_SIDE || m->k < MIN_SIDE) return false;
  if (m->k > MAX_ELEMENTS / m->outer) return false;
  return is_dense(m, m->k, m->k_stride) ||
         is_dense(m, m->outer, m->outer_stride);
}

// AMX where the CPU has it, else AVX512-BF16.
const at_gemm_blocks *at_gemm_blocks_of(void) {
  const at_gemm_blocks *amx = at_gemm_amx_blocks();
  return amx ? amx : at_gemm_pairs_blocks();
}

bool at_k_block_fits(const at_k_matrix *a, const at_k_matrix *b) {
  return at_gemm_blocks_of() && fits(a) && fits(b);
}

// Whole panels of whole groups: what is not there is zeros.
size_t at_k_block_bytes(const at_k_matrix *m) {
  return (size_t)(at_k_ceil_div(m->outer, PANEL) * at_gemm_groups(m->k)) *
         GROUP_BYTES;
}

// ---- Packing
// Word i of vector j becomes word j of vector i.
AT_PAIRS AT_INLINE void transpose(at_pairs v[16]) {
  at_pairs t[16];
#define LOW4(a, b)                                                            \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, \
                          28, 13, 29)
#define HIGH4(a, b)                                                         \
  __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, \
                          14, 30, 15, 31)
#define LOW8(a, b)                                                            \
  __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, \
                          13, 28, 29)
#define HIGH8(a, b)                                                         \
  __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, \
                          14, 15, 30, 31)
#define EVEN(a, b)                                                            \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, \
                          25, 26, 27)
#define ODD(a, b)                                                           \
  __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, \
                          28, 29, 30, 31)
  for (int i = 0; i < 16; i += 2)
    t[i] = LOW4(v[i], v[i + 1]), t[i + 1] = HIGH4(v[i], v[i + 1]);
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      v[i + 2 * j] = LOW8(t[i + j], t[i + j + 2]);
      v[i + 2 * j + 1] = HIGH8(t[i + j], t[i + j + 2]);
    }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; j++) {
      t[i + j] = EVEN(v[i + j], v[i + j + 4]);
      t[i + j + 4] = ODD(v[i + j], v[i + j + 4]);
    }
  for (int j = 0; j < 8; j++) {
    v[j] = EVEN(t[j], t[j + 8]);
    v[j + 8] = ODD(t[j], t[j + 8]);
  }
#undef LOW4
#undef HIGH4
#undef LOW8
#undef HIGH8
#undef EVEN
#undef ODD
}

typedef struct packing {
  const at_k_matrix *m;
  uint8_t *to;
  bool columns;  // B: a row of a tile holds one pair of k
} packing;

// Where the words of 16 rows or columns begin, and how far vectors of them are
// apart.
AT_INLINE uint8_t *place(const packing *p, int64_t outer, int64_t group) {
  int64_t panel = outer / PANEL, in = outer % PANEL;
  uint8_t *tile =
      p->to + (panel * at_gemm_groups(p->m->k) + group) * GROUP_BYTES;
  return tile + in * (p->columns ? 4 : GROUP * 2);
}

// One group of k of 16 rows or columns; those that are not there are zeros.
AT_PAIRS AT_INLINE void pack_square(const packing *p, uint32_t type, bool along,
                                    int64_t o, int64_t group, int64_t outer,
                                    int64_t inner) {
  const at_k_matrix *m = p->m;
  const uint8_t *from =
      (const uint8_t *)m->p + o * m->outer_stride + group * GROUP * m->k_stride;
  at_pairs v[16];
  for (int i = 0; i < 16; i++) {
    bool there = along ? i < outer : outer > 0 && 2 * i < inner;
    v[i] = !there  ? (at_pairs){0}
           : along ? at_pairs_along_k(type, from + i * m->outer_stride, inner)
                   : at_pairs_across_k(type, from + 2 * i * m->k_stride,
                                       m->k_stride, outer, 2 * i + 1 < inner);
  }
  if (along == p->columns) transpose(v);
  uint8_t *to = place(p, o, group);
  int64_t step = p->columns ? PANEL * 4 : GROUP * 2;
  for (int i = 0; i < 16; i++) _mm512_store_si512(to + i * step, (__m512i)v[i]);
}

// Whole squares need no masks, which are slow on some.
AT_PAIRS AT_INLINE void pack_one(const packing *p, uint32_t type, bool along,
                                 int64_t o, int64_t group) {
  int64_t outer = AT_MIN(16, p->m->outer - o);
  int64_t inner = AT_MIN(GROUP, p->m->k - group * GROUP);
  if (outer == 16 && inner == GROUP)
    pack_square(p, type, along, o, group, 16, GROUP);
  else
    pack_square(p, type, along, o, group, outer, inner);
}

// Lines of the next rows, which lie far apart.
AT_INLINE void fetch_next(const packing *p, uint32_t type, int64_t o,
                          int64_t group) {
  const at_k_matrix *m = p->m;
  int64_t bytes = GROUP * (type == AT_F32 ? 4 : 2);
  const uint8_t *next =
      (const uint8_t *)m->p + (o + 16) * m->outer_stride + group * bytes;
  for (int64_t i = 0; i < AT_MIN(16, m->outer - o - 16); i++)
    for (int64_t b = 0; b < bytes; b += 64)
      __builtin_prefetch(next + i * m->outer_stride + b);
}

// Squares in the order of memory. CPUs with AMX gain when the next are fetched
// ahead, and those without lose.
AT_PAIRS AT_INLINE void pack_along_k(const packing *p, uint32_t type,
                                     int64_t begin, int64_t end) {
  bool ahead = at_k_has(AT_CPU_AMX_BF16);
  for (int64_t o = begin * PANEL; o < end * PANEL; o += 16)
    for (int64_t g = 0; g < at_gemm_groups(p->m->k); g++) {
      if (ahead) fetch_next(p, type, o, g);
      pack_one(p, type, true, o, g);
    }
}

// A whole group of a whole panel of B: GROUP rows of bf16, `step` bytes apart.
AT_PAIRS AT_INLINE void pack_group(const uint8_t *from, int64_t step,
                                   uint8_t *to) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11,
                                       42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int k = 0; k < GROUP; k += 2, from += 2 * step, to += 4 * PANEL) {
    __m512i even = _mm512_loadu_si512(from);
    __m512i odd = _mm512_loadu_si512(from + step);
    _mm512_store_si512(to, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_store_si512(to + 64, _mm512_permutex2var_epi16(even, high, odd));
  }
}

// Rows of k are dense: panel by panel of a group of k, group by group, in the
// order of memory.
AT_PAIRS AT_INLINE void pack_across_k(const packing *p, uint32_t type,
                                      int64_t begin, int64_t end) {
  const at_k_matrix *m = p->m;
  for (int64_t g = 0; g < at_gemm_groups(m->k); g++)
    for (int64_t o = begin * PANEL; o < end * PANEL; o += PANEL) {
      if (type == AT_BF16 && p->columns && m->outer - o >= PANEL &&
          m->k - g * GROUP >= GROUP) {
        const uint8_t *from = (const uint8_t *)m->p + o * 2;
        pack_group(from + g * GROUP * m->k_stride, m->k_stride, place(p, o, g));
        continue;
      }
      pack_one(p, type, false, o, g);
      pack_one(p, type, false, o + PANEL / 2, g);
    }
}

// Packs panels [begin, end) of PANEL rows or columns. The type is a constant in
// each of the four calls.
AT_PAIRS static void pack_range(void *arg, int64_t begin, int64_t end,
                                uint32_t worker) {
  const packing *p = arg;
  bool along = is_dense(p->m, p->m->k, p->m->k_stride);
  bool wide = p->m->type == AT_F32;
  if (wide && along)
    pack_along_k(p, AT_F32, begin, end);
  else if (wide)
    pack_across_k(p, AT_F32, begin, end);
  else if (along)
    pack_along_k(p, AT_BF16, begin, end);
  else
    pack_across_k(p, AT_BF16, begin, end);
}

// Shares of about a quarter of MIN_WORK elements for each thread.
void at_k_block_pack(const at_par *par, const at_k_matrix *m, bool columns,
                     void *to) {
  packing p = {m, to, columns};
  int64_t grain = MIN_WORK / 4 / (PANEL * m->k) + 1;
  at_par_for(par, at_k_ceil_div(m->outer, PANEL), grain, pack_range, &p);
}

// All panels, one after the other.
void at_gemm_block_pack(const at_k_matrix *m, bool columns, void *to) {
  packing p = {m, to, columns};
  pack_range(&p, 0, at_k_ceil_div(m->outer, PANEL), 0);
}

// Whole squares of rows that were just computed, and so lie in a near cache.
AT_PAIRS static void pack_near(const packing *p) {
  const at_k_matrix *m = p->m;
  int64_t groups = at_gemm_groups(m->k);
  for (int64_t o = 0; o < m->outer; o++) {
    const uint8_t *from = (const uint8_t *)m->p + o * m->outer_stride;
    uint8_t *to = place(p, o, 0);
    for (int64_t g = 0; g < groups; g++, to += GROUP_BYTES) {
      __m512i v;
      if (m->type == AT_F32) {
        __m512 low = _mm512_loadu_ps(from);
        __m512 high = _mm512_loadu_ps(from + 64);
        v = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        from += 128;
      } else {
        v = _mm512_loadu_si512(from);
        from += 64;
      }
      _mm512_store_si512(to, v);
    }
  }
}

// Whole rows in a near cache are copied; else as at_k_block_pack, without other
// threads.
void at_k_block_rows_pack(const at_k_matrix *a, void *to) {
  packing p = {a, to, false};
  if (a->outer % PANEL || a->k % GROUP || !is_dense(a, a->k, a->k_stride))
    pack_range(&p, 0, at_k_ceil_div(a->outer, PANEL), 0);
  else
    pack_near(&p);
}
