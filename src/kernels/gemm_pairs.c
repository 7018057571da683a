// Products of pairs of 16-bit values with AVX-512, for CPUs without AMX: bf16 x
// bf16 -> f32, and 8-bit integers, widened to 16 bits, -> s32. Operands are
// packed as for AMX: an instruction takes a pair of k of one row, for all
// lanes, and of 16 columns.
#include "kernels/gemm_internal.h"

#define PAIRS_BF16 __attribute__((target(AT_V4_FEATURES ",avx512bf16")))
#define PAIRS_VNNI __attribute__((target(AT_V4_FEATURES ",avx512vnni")))

enum {
  TILE = AT_GEMM_PANEL,
  ROWS = 8,  // whose sums stay in registers
  // Of k, summed apart: those of A and B together fill half of the first cache,
  // and sums of blocks of 128 k have the bits of a longer one.
  BLOCK_GROUPS = AT_PAIRS_BLOCK / AT_GEMM_GROUP
};

// c, of which lanes `low` and `high` of each row are there, becomes a sum or
// has one added. `rows` is a constant at every call.
#define PAIRS_ROWS(name, ATTR, VEC, ELEM, ZERO, ADD, LOAD, STORE, DP)          \
  ATTR AT_INLINE void name(const int rows, int64_t groups, const char *a,      \
                           const char *b, ELEM *c, int64_t ldc, __mmask16 low, \
                           __mmask16 high, bool add) {                         \
    VEC sum[ROWS][2];                                                          \
    _Pragma("clang loop unroll(full)") for (int i = 0; i < rows; i++)          \
        sum[i][0] = sum[i][1] = ZERO();                                        \
    for (int64_t g = 0; g < groups; g++, a += AT_GEMM_GROUP_BYTES)             \
      for (int k = 0; k < AT_GEMM_GROUP / 2; k++, b += 128) {                  \
        __m512i b0 = _mm512_load_si512(b), b1 = _mm512_load_si512(b + 64);     \
        _Pragma("clang loop unroll(full)") for (int i = 0; i < rows; i++) {    \
          __m512i pair = _mm512_set1_epi32(                                    \
              *(const int *)(const void *)(a + i * 64 + k * 4));               \
          sum[i][0] = DP(sum[i][0], pair, b0);                                 \
          sum[i][1] = DP(sum[i][1], pair, b1);                                 \
        }                                                                      \
      }                                                                        \
    _Pragma("clang loop unroll(full)") for (int i = 0; i < rows; i++) {        \
      ELEM *to = c + i * ldc;                                                  \
      if (add) {                                                               \
        sum[i][0] = ADD(LOAD(low, to), sum[i][0]);                             \
        sum[i][1] = ADD(LOAD(high, to + 16), sum[i][1]);                       \
      }                                                                        \
      STORE(to, low, sum[i][0]);                                               \
      STORE(to + 16, high, sum[i][1]);                                         \
    }                                                                          \
  }
#define DP_BF16(sum, x, y) _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(y))
PAIRS_ROWS(bf16_rows, PAIRS_BF16, __m512, float, _mm512_setzero_ps,
           _mm512_add_ps, _mm512_maskz_loadu_ps, _mm512_mask_storeu_ps, DP_BF16)
PAIRS_ROWS(s16_rows, PAIRS_VNNI, __m512i, int32_t, _mm512_setzero_si512,
           _mm512_add_epi32, _mm512_maskz_loadu_epi32, _mm512_mask_storeu_epi32,
           _mm512_dpwssd_epi32)

// Whole tiles go without masks, which are slow.
#define PAIRS_TILE(name, ROWS_OF, ATTR, ELEM)                                 \
  ATTR static void name##_whole(int64_t groups, const char *a, const char *b, \
                                ELEM *c, int64_t ldc, bool add) {             \
    for (int i = 0; i < TILE; i += ROWS, a += ROWS * 64, c += ROWS * ldc)     \
      ROWS_OF(ROWS, groups, a, b, c, ldc, 0xffff, 0xffff, add);               \
  }                                                                           \
  ATTR static void name##_block(int64_t groups, const char *a, const char *b, \
                                ELEM *c, int64_t ldc, int mr, int nr,         \
                                bool add) {                                   \
    if (mr == TILE && nr == TILE) {                                           \
      name##_whole(groups, a, b, c, ldc, add);                                \
      return;                                                                 \
    }                                                                         \
    uint32_t lanes = nr == TILE ? ~0u : (1u << nr) - 1;                       \
    __mmask16 low = (__mmask16)lanes, high = (__mmask16)(lanes >> 16);        \
    for (int i = 0; i < mr; i += ROWS, a += ROWS * 64, c += ROWS * ldc)       \
      switch (AT_MIN(ROWS, mr - i)) {                                         \
        PAIRS_CASE(ROWS_OF, 1)                                                \
        PAIRS_CASE(ROWS_OF, 2)                                                \
        PAIRS_CASE(ROWS_OF, 3)                                                \
        PAIRS_CASE(ROWS_OF, 4)                                                \
        PAIRS_CASE(ROWS_OF, 5)                                                \
        PAIRS_CASE(ROWS_OF, 6)                                                \
        PAIRS_CASE(ROWS_OF, 7)                                                \
        PAIRS_CASE(ROWS_OF, 8)                                                \
      }                                                                       \
  }                                                                           \
  static void name(int64_t groups, const char *a, const char *b, ELEM *c,     \
                   int64_t ldc, int mr, int nr, bool add) {                   \
    for (int64_t g = 0; g < groups; g += BLOCK_GROUPS, add = true)            \
      name##_block(AT_MIN((int64_t)BLOCK_GROUPS, groups - g),                 \
                   a + g * AT_GEMM_GROUP_BYTES, b + g * AT_GEMM_GROUP_BYTES,  \
                   c, ldc, mr, nr, add);                                      \
  }                                                                           \
  static void name##_micro(int64_t kc, const void *a, const void *b, void *c, \
                           int64_t ldc, int mr, int nr, bool add) {           \
    name(kc / AT_GEMM_GROUP, a, b, c, ldc, mr, nr, add);                      \
  }
#define PAIRS_CASE(f, rows)                        \
  case rows:                                       \
    f(rows, groups, a, b, c, ldc, low, high, add); \
    break;
PAIRS_TILE(bf16_tile, bf16_rows, PAIRS_BF16, float)
PAIRS_TILE(s16_tile, s16_rows, PAIRS_VNNI, int32_t)

// ---- Packed blocks
// at_gemm_blocks.multiply without AMX: stores what was put off first, as no
// unit would do it beside the product.
static void block(const at_gemm_block *x) {
  at_gemm_put_rows(x->put, 0, x->put->rows);
  bf16_tile(x->groups, x->a, x->b, x->c, x->ldc, TILE, TILE, x->go_on);
}
// begin and end: AVX-512 has no state to set up.
static void nothing(void) {}
static const at_gemm_blocks bf16_blocks = {block, nothing, nothing,
                                           BLOCK_GROUPS};

const at_gemm_blocks *at_gemm_pairs_blocks(void) {
  return at_k_has(AT_CPU_AVX512_BF16) ? &bf16_blocks : NULL;
}

// ---- Engines
// A panel of B takes half of the first cache.
static const at_gemm_engine bf16_engine = {.name = "bf16 avx512",
                                           .pack_type = AT_BF16,
                                           .acc_type = AT_F32,
                                           .mr = TILE,
                                           .nr = TILE,
                                           .kr = 2,
                                           .kstep = AT_GEMM_GROUP,
                                           .kc = 256,
                                           .a_tiles = true,
                                           .micro = bf16_tile_micro};
static const at_gemm_engine s16_engine = {.name = "s16 avx512",
                                          .pack_type = AT_S16,
                                          .acc_type = AT_S32,
                                          .mr = TILE,
                                          .nr = TILE,
                                          .kr = 2,
                                          .kstep = AT_GEMM_GROUP,
                                          .kc = 256,
                                          .a_tiles = true,
                                          .micro = s16_tile_micro};

// Integers of at most eight bits, and s16: what fits into 16 bits with a sign.
static bool fits_s16(uint32_t t) {
  return at_is_int((at_dtype)t) &&
         (at_dtype_bytes((at_dtype)t) == 1 || t == AT_S16);
}

// NULL where the CPU lacks the instruction or the types do not fit.
const at_gemm_engine *at_gemm_pairs_engine(uint32_t a, uint32_t b,
                                           uint32_t acc) {
  if (acc == AT_F32 && a == AT_BF16 && b == AT_BF16)
    return at_k_has(AT_CPU_AVX512_BF16) ? &bf16_engine : NULL;
  if ((acc == AT_S32 || acc == AT_U32) && fits_s16(a) && fits_s16(b))
    return at_k_has(AT_CPU_AVX512_VNNI) ? &s16_engine : NULL;
  return NULL;
}
