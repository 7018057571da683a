// AMX engines: bf16 x bf16 -> f32, and 8-bit integers -> s32. A microtile is 32
// x 32: four accumulator tiles, two of A, two of B.
#include "kernels/gemm_internal.h"

#define AMX_TARGET(...) __attribute__((target("amx-tile," __VA_ARGS__)))

// What LDTILECFG reads, as the architecture defines it: bytes of a row and
// number of rows of each tile register.
typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;

// All eight tiles as 16 rows of 64 bytes: four accumulators (0 to 3), two of A
// (4, 5), two of B (6, 7). The thread owns the tile state until end().
AMX_TARGET("amx-bf16") static void begin(void) {
  tile_config cfg = {.palette = 1};
  for (int i = 0; i < 8; i++) cfg.row_bytes[i] = 64, cfg.rows[i] = 16;
  _tile_loadconfig(&cfg);
}
AMX_TARGET("amx-bf16") static void end(void) { _tile_release(); }

// 64 bytes of k per step. A lies in dense tiles of 16 rows, two for a step; B
// is [k / kr][32][kr], so a tile row of 16 columns is 64 bytes and rows are 128
// bytes apart. The panel of B serves panel after panel of A: it stays in the
// first cache, which A passes by.
#define AMX_MICRO(name, feature, dp, ELEM)                               \
  AMX_TARGET(feature)                                                    \
  static void name(int64_t kc, const void *av, const void *bv, void *cv, \
                   int64_t ldc, int mr, int nr, bool add) {              \
    const int64_t kb = kc * (int64_t)sizeof(ELEM);                       \
    const char *a = av, *b = bv;                                         \
    int32_t edge[32 * 32];                                               \
    bool whole = mr == 32 && nr == 32;                                   \
    int32_t *c = whole ? cv : edge;                                      \
    int64_t ld = whole ? ldc : 32;                                       \
    if (add && whole) {                                                  \
      _tile_loadd(0, c, ld * 4);                                         \
      _tile_loadd(1, c + 16, ld * 4);                                    \
      _tile_loadd(2, c + 16 * ld, ld * 4);                               \
      _tile_loadd(3, c + 16 * ld + 16, ld * 4);                          \
    } else {                                                             \
      _tile_zero(0);                                                     \
      _tile_zero(1);                                                     \
      _tile_zero(2);                                                     \
      _tile_zero(3);                                                     \
    }                                                                    \
    if (mr > 16) {                                                       \
      for (int64_t k = 0; k < kb; k += 64, a += 2048, b += 2048) {       \
        _tile_loadd(6, b, 128);                                          \
        _tile_stream_loadd(4, a, 64);                                    \
        _tile_loadd(7, b + 64, 128);                                     \
        _tile_stream_loadd(5, a + 1024, 64);                             \
        dp(0, 4, 6);                                                     \
        dp(1, 4, 7);                                                     \
        dp(2, 5, 6);                                                     \
        dp(3, 5, 7);                                                     \
      }                                                                  \
    } else {                                                             \
      for (int64_t k = 0; k < kb; k += 64, a += 2048, b += 2048) {       \
        _tile_stream_loadd(4, a, 64);                                    \
        _tile_loadd(6, b, 128);                                          \
        _tile_loadd(7, b + 64, 128);                                     \
        dp(0, 4, 6);                                                     \
        dp(1, 4, 7);                                                     \
      }                                                                  \
    }                                                                    \
    _tile_stored(0, c, ld * 4);                                          \
    _tile_stored(1, c + 16, ld * 4);                                     \
    if (mr > 16) {                                                       \
      _tile_stored(2, c + 16 * ld, ld * 4);                              \
      _tile_stored(3, c + 16 * ld + 16, ld * 4);                         \
    }                                                                    \
    if (!whole) amx_edge(cv, ldc, edge, mr, nr, add);                    \
  }

// Copies the mr x nr corner of a whole 32 x 32 microtile to C, or adds it. The
// tile holds floats.
static void bf16_edge(float *c, int64_t ldc, const int32_t *edge, int mr,
                      int nr, bool add) {
  const float *e = (const float *)(const void *)edge;
  for (int i = 0; i < mr; i++)
    for (int j = 0; j < nr; j++)
      c[i * ldc + j] = add ? c[i * ldc + j] + e[i * 32 + j] : e[i * 32 + j];
}
// The same of integers, whose sums wrap.
static void s32_edge(uint32_t *c, int64_t ldc, const int32_t *e, int mr, int nr,
                     bool add) {
  for (int i = 0; i < mr; i++)
    for (int j = 0; j < nr; j++)
      c[i * ldc + j] = (add ? c[i * ldc + j] : 0) + (uint32_t)e[i * 32 + j];
}

#define amx_edge bf16_edge
AMX_MICRO(bf16_micro, "amx-bf16", _tile_dpbf16ps, uint16_t)
#undef amx_edge
#define amx_edge s32_edge
AMX_MICRO(ss_micro, "amx-int8", _tile_dpbssd, int8_t)
AMX_MICRO(su_micro, "amx-int8", _tile_dpbsud, int8_t)
AMX_MICRO(us_micro, "amx-int8", _tile_dpbusd, int8_t)
AMX_MICRO(uu_micro, "amx-int8", _tile_dpbuud, int8_t)
#undef amx_edge

// ---- Packed blocks
#define PUT_FEATURES AT_V4_FEATURES ",avx512bf16"

// The instruction takes denormals for zeros.
__attribute__((target(PUT_FEATURES))) AT_INLINE __m512i narrow(__m512 low,
                                                               __m512 high) {
  enum { DENORMAL = 0x20 };
  __mmask16 small = _mm512_fpclass_ps_mask(low, DENORMAL) |
                    _mm512_fpclass_ps_mask(high, DENORMAL);
  __m512i v = (__m512i)_mm512_cvtne2ps_pbh(high, low);
  if (__builtin_expect(small == 0, true)) return v;
  _Alignas(64) float from[32];
  _Alignas(64) uint16_t to[32];
  _mm512_store_ps(from, low);
  _mm512_store_ps(from + 16, high);
  for (int i = 0; i < 32; i++) to[i] = at_f32_to_bf16(from[i]);
  return _mm512_load_si512(to);
}

// Rows [begin, end) of a finished tile: adds `old`, converts and stores under
// the masks of x->columns.
__attribute__((target(PUT_FEATURES))) AT_INLINE void put_rows(
    const at_gemm_put *x, int begin, int end) {
  __mmask16 first = (__mmask16)x->columns;
  __mmask16 second = (__mmask16)(x->columns >> 16);
  for (int i = begin; i < end; i++) {
    __m512 low = _mm512_load_ps(x->from + i * 32);
    __m512 high = _mm512_load_ps(x->from + i * 32 + 16);
    if (x->old) {
      const char *old = x->old + i * x->old_stride;
      low = _mm512_add_ps(_mm512_maskz_loadu_ps(first, old), low);
      high = _mm512_add_ps(_mm512_maskz_loadu_ps(second, old + 64), high);
    }
    char *to = x->to + i * x->stride;
    if (x->narrow) {
      _mm512_mask_storeu_epi16(to, x->columns, narrow(low, high));
    } else {
      _mm512_mask_storeu_ps(to, first, low);
      _mm512_mask_storeu_ps(to + 64, second, high);
    }
  }
}

__attribute__((target(PUT_FEATURES))) void at_gemm_put_rows(
    const at_gemm_put *x, int begin, int end) {
  put_rows(x, begin, end);
}

// Fetches so many lines into the second cache and returns the address behind
// them.
AT_INLINE const char *fetch(const char *p, int lines) {
  for (int i = 0; i < lines; i++) __builtin_prefetch(p + 64 * i, 0, 2);
  return p + 64 * lines;
}

// A tile lies dense: 16 rows of 64 bytes, the second half of A or 64 bytes on
// in B. Panels of B change from call to call: they pass the first cache by.
#define AMX_BLOCK(name, feature, dp)                                        \
  AMX_TARGET(feature "," PUT_FEATURES)                                      \
  AT_INLINE void name##_of(const at_gemm_block *x, const bool half) {       \
    const char *a = x->a, *b = x->b, *next_a = x->next_a;                   \
    const char *next_b = x->next_b, *next_c = (const char *)x->next_c;      \
    float *c = x->c;                                                        \
    const int64_t ld = x->ldc;                                              \
    const at_gemm_put *put = x->put;                                        \
    const int rows = put->rows, groups = (int)x->groups;                    \
    int row = 0, step = rows ? (rows + groups - 1) / groups : 0;            \
    if (x->go_on) {                                                         \
      _tile_loadd(0, c, ld * 4);                                            \
      _tile_loadd(1, c + 16, ld * 4);                                       \
      if (!half) _tile_loadd(2, c + 16 * ld, ld * 4);                       \
      if (!half) _tile_loadd(3, c + 16 * ld + 16, ld * 4);                  \
    } else {                                                                \
      _tile_zero(0);                                                        \
      _tile_zero(1);                                                        \
      _tile_zero(2);                                                        \
      _tile_zero(3);                                                        \
    }                                                                       \
    for (int g = 0; g < groups; g++, a += 2048, b += 2048) {                \
      if (next_a) next_a = fetch(next_a, x->lines_a);                       \
      if (next_b) next_b = fetch(next_b, x->lines_b);                       \
      if (next_c) {                                                         \
        for (int i = 0; i < 4; i++) __builtin_prefetch(next_c + 64 * i, 1); \
        next_c += 256;                                                      \
      }                                                                     \
      _tile_stream_loadd(6, b, 128);                                        \
      _tile_loadd(4, a, 64);                                                \
      _tile_stream_loadd(7, b + 64, 128);                                   \
      if (!half) _tile_loadd(5, a + 1024, 64);                              \
      dp(0, 4, 6);                                                          \
      dp(1, 4, 7);                                                          \
      if (!half) dp(2, 5, 6);                                               \
      if (!half) dp(3, 5, 7);                                               \
      if (row < rows) {                                                     \
        put_rows(put, row, AT_MIN(row + step, rows));                       \
        row += step;                                                        \
      }                                                                     \
    }                                                                       \
    _tile_stored(0, c, ld * 4);                                             \
    _tile_stored(1, c + 16, ld * 4);                                        \
    if (!half) _tile_stored(2, c + 16 * ld, ld * 4);                        \
    if (!half) _tile_stored(3, c + 16 * ld + 16, ld * 4);                   \
  }                                                                         \
  AMX_TARGET(feature "," PUT_FEATURES)                                      \
  static void name(const at_gemm_block *x) {                                \
    if (x->half)                                                            \
      name##_of(x, true);                                                   \
    else                                                                    \
      name##_of(x, false);                                                  \
  }
AMX_BLOCK(bf16_block, "amx-bf16", _tile_dpbf16ps)
AMX_BLOCK(ss_block, "amx-int8", _tile_dpbssd)
AMX_BLOCK(su_block, "amx-int8", _tile_dpbsud)
AMX_BLOCK(us_block, "amx-int8", _tile_dpbusd)
AMX_BLOCK(uu_block, "amx-int8", _tile_dpbuud)

// ---- Products of few rows

// See gemm_internal.h. half: 16 rows; narrow: 16 columns.
AMX_TARGET("amx-bf16")
AT_INLINE void strip_of(const at_gemm_strip *x, const bool half,
                        const bool narrow) {
  const char *a = x->a, *below = a + 16 * x->a_stride, *b = x->b;
  float *c = x->c;
  if (x->go_on) {
    _tile_loadd(0, c, 128);
    if (!narrow) _tile_loadd(1, c + 16, 128);
    if (!half) _tile_loadd(2, c + 512, 128);
    if (!half && !narrow) _tile_loadd(3, c + 528, 128);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t g = 0; g < x->groups; g++) {
    _tile_loadd(4, a, x->a_stride);
    _tile_loadd(6, b, 128);
    if (!half) _tile_loadd(5, below, x->a_stride);
    if (!narrow) _tile_loadd(7, b + 64, 128);
    _tile_dpbf16ps(0, 4, 6);
    if (!half) _tile_dpbf16ps(2, 5, 6);
    if (!narrow) _tile_dpbf16ps(1, 4, 7);
    if (!half && !narrow) _tile_dpbf16ps(3, 5, 7);
    a += x->a_step, below += x->a_step, b += AT_GEMM_GROUP_BYTES;
  }
  _tile_stored(0, c, 128);
  if (!narrow) _tile_stored(1, c + 16, 128);
  if (!half) _tile_stored(2, c + 512, 128);
  if (!half && !narrow) _tile_stored(3, c + 528, 128);
}

AMX_TARGET("amx-bf16") void at_gemm_amx_strip(const at_gemm_strip *x) {
  switch ((x->rows <= 16) * 2 + (x->cols <= 16)) {
    case 0:
      strip_of(x, false, false);
      break;
    case 1:
      strip_of(x, false, true);
      break;
    case 2:
      strip_of(x, true, false);
      break;
    default:
      strip_of(x, true, true);
  }
}

static const at_gemm_blocks bf16_blocks = {bf16_block, begin, end, 0};
static const at_gemm_blocks int8_blocks[2][2] = {
    {{ss_block, begin, end, 0}, {su_block, begin, end, 0}},
    {{us_block, begin, end, 0}, {uu_block, begin, end, 0}}};

// Storing bf16 tiles takes AVX512-BF16 as well, which every CPU with AMX-BF16
// has.
const at_gemm_blocks *at_gemm_amx_blocks(void) {
  return at_k_has(AT_CPU_AMX_BF16 | AT_CPU_AVX512_BF16) ? &bf16_blocks : NULL;
}

static const at_gemm_engine bf16_engine = {
    "bf16 amx", AT_BF16, AT_F32,     32, 32,    2,   32,
    512,        true,    bf16_micro, 0,  begin, end, &bf16_blocks};
#define INT8_ENGINE(a, b, fn, blocks)                                        \
  {                                                                          \
    "int8 amx", AT_S8, AT_S32, 32, 32, 4, 64, 1024, true, fn, 0, begin, end, \
        blocks                                                               \
  }
static const at_gemm_engine int8_engines[2][2] = {
    {INT8_ENGINE(s, s, ss_micro, &int8_blocks[0][0]),
     INT8_ENGINE(s, u, su_micro, &int8_blocks[0][1])},
    {INT8_ENGINE(u, s, us_micro, &int8_blocks[1][0]),
     INT8_ENGINE(u, u, uu_micro, &int8_blocks[1][1])}};

// 0 for signed, 1 for unsigned integers of at most eight bits (narrower ones
// are stored extended to a byte), -1 for others.
static int int8_kind(uint32_t t) {
  switch (t) {
    case AT_S2:
    case AT_S4:
    case AT_S8:
      return 0;
    case AT_U2:
    case AT_U4:
    case AT_U8:
      return 1;
    default:
      return -1;
  }
}

// bf16 products add up in f32; 8-bit ones in s32, of which u32 has the same
// bits.
const at_gemm_engine *at_gemm_amx_engine(uint32_t a, uint32_t b, uint32_t acc) {
  if (acc == AT_F32 && a == AT_BF16 && b == AT_BF16)
    return at_k_has(AT_CPU_AMX_BF16) ? &bf16_engine : NULL;
  int ka = int8_kind(a), kb = int8_kind(b);
  if ((acc == AT_S32 || acc == AT_U32) && ka >= 0 && kb >= 0)
    return at_k_has(AT_CPU_AMX_INT8) ? &int8_engines[ka][kb] : NULL;
  return NULL;
}
