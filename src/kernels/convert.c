// Conversion between element types. Common pairs are plain loops that the
// compiler vectorises; the rest go through double, int64 or a complex pair.
#include <math.h>

#include "kernels/kernels_internal.h"

// Layout of the small float types: bits, mantissa bits, bias, and what the top
// codes mean.
typedef enum minifloat_kind {
  MF_IEEE,  // top exponent: infinities and NaN
  MF_FN,    // only the all-ones code is NaN; no infinity
  MF_FNUZ,  // NaN at sign bit alone; no infinity, no negative zero
  MF_NONE,  // every code is a number
} minifloat_kind;
typedef struct minifloat {
  int bits, mantissa, bias;
  minifloat_kind kind;
} minifloat;

// Fills in the layout of t; false: t is none of the small floats (E8M0 has code
// of its own).
// Constants: sign, exponent and mantissa fill `bits`; a code of exponent 0 is
// denormal.
static bool minifloat_of(uint32_t t, minifloat *m) {
  switch (t) {
    case AT_F4E2M1FN:
      *m = (minifloat){4, 1, 1, MF_NONE};
      return true;
    case AT_F6E2M3FN:
      *m = (minifloat){6, 3, 1, MF_NONE};
      return true;
    case AT_F6E3M2FN:
      *m = (minifloat){6, 2, 3, MF_NONE};
      return true;
    case AT_F8E3M4:
      *m = (minifloat){8, 4, 3, MF_IEEE};
      return true;
    case AT_F8E4M3:
      *m = (minifloat){8, 3, 7, MF_IEEE};
      return true;
    case AT_F8E4M3FN:
      *m = (minifloat){8, 3, 7, MF_FN};
      return true;
    case AT_F8E4M3B11FNUZ:
      *m = (minifloat){8, 3, 11, MF_FNUZ};
      return true;
    case AT_F8E4M3FNUZ:
      *m = (minifloat){8, 3, 8, MF_FNUZ};
      return true;
    case AT_F8E5M2:
      *m = (minifloat){8, 2, 15, MF_IEEE};
      return true;
    case AT_F8E5M2FNUZ:
      *m = (minifloat){8, 2, 16, MF_FNUZ};
      return true;
    default:
      return false;
  }
}

// The value of one code; exact, as every code is a double.
// Codes above `bits` are not looked at.
static double minifloat_decode(const minifloat *m, unsigned code) {
  unsigned mask = (1u << (m->bits - 1)) - 1, mag = code & mask;
  bool neg = (code >> (m->bits - 1)) & 1;
  int exp = (int)(mag >> m->mantissa),
      frac = (int)(mag & ((1u << m->mantissa) - 1));
  int top = (int)(mask >> m->mantissa);
  if (m->kind == MF_FNUZ && neg && mag == 0) return NAN;
  if (m->kind == MF_FN && mag == mask) return neg ? -NAN : NAN;
  if (m->kind == MF_IEEE && exp == top)
    return frac ? (neg ? -NAN : NAN) : (neg ? -INFINITY : INFINITY);
  double v = exp ? ldexp(1.0 + ldexp(frac, -m->mantissa), exp - m->bias)
                 : ldexp(frac, 1 - m->bias - m->mantissa);
  return neg ? -v : v;
}

// Nearest even. Overflow: infinity (IEEE), NaN (FN, FNUZ), largest (MF_NONE).
// NaN keeps its sign where the format has one for it.
static unsigned minifloat_encode(const minifloat *m, double v) {
  unsigned mask = (1u << (m->bits - 1)) - 1, sign = 1u << (m->bits - 1);
  unsigned top = mask >> m->mantissa;
  unsigned neg = signbit(v) ? sign : 0;
  unsigned nan = m->kind == MF_FNUZ ? sign
                 : m->kind == MF_IEEE
                     ? neg | (top << m->mantissa) | (1u << (m->mantissa - 1))
                     : neg | mask;
  if (isnan(v)) return m->kind == MF_NONE ? sign : nan;
  double a = fabs(v);
  if (a == 0) return m->kind == MF_FNUZ ? 0 : neg;
  // The largest finite magnitude, as a code.
  unsigned max_code = m->kind == MF_IEEE ? (top << m->mantissa) - 1
                      : m->kind == MF_FN ? mask - 1
                                         : mask;
  // max_code: the largest finite code; over: what larger values become.
  unsigned over = m->kind == MF_IEEE   ? neg | (top << m->mantissa)
                  : m->kind == MF_NONE ? neg | mask
                                       : nan;
  if (isinf(a)) return over;
  int e;
  frexp(a, &e);  // a = f * 2^e, f in [0.5, 1)
  // The exponent field; below 1 the number is denormal and keeps exponent 1
  // without a hidden bit.
  int exp = e - 1 + m->bias;
  if (exp < 1) exp = 1;
  double q = nearbyint(ldexp(a, m->mantissa + m->bias - exp));  // ties to even
  // q holds the hidden bit when normal; the code is linear across exponents.
  double code = q + (double)((exp - 1) << m->mantissa);
  if (code > (double)max_code) return over;
  unsigned out = (unsigned)code;
  return out == 0 && m->kind == MF_FNUZ ? 0 : neg | out;
}

// One element as a double; exact but for 64-bit integers. Complex: the real
// part. Types without data: 0.
// An unknown type gives 0, not an error: callers have checked types.
double at_k_load_f64(uint32_t t, const void *p) {
  switch (t) {
    case AT_PRED:
    case AT_U2:
    case AT_U4:
    case AT_U8:
      return *(const uint8_t *)p;
    case AT_S2:
    case AT_S4:
    case AT_S8:
      return *(const int8_t *)p;
    case AT_S16:
      return *(const int16_t *)p;
    case AT_U16:
      return *(const uint16_t *)p;
    case AT_S32:
      return *(const int32_t *)p;
    case AT_U32:
      return *(const uint32_t *)p;
    case AT_S64:
      return (double)*(const int64_t *)p;
    case AT_U64:
      return (double)*(const uint64_t *)p;
    case AT_BF16:
      return at_bf16_to_f32(*(const uint16_t *)p);
    case AT_F16:
      return at_f16_to_f32(*(const uint16_t *)p);
    case AT_F32:
    case AT_C64:
      return *(const float *)p;
    case AT_F64:
    case AT_C128:
      return *(const double *)p;
    // An exponent alone: powers of two, 255 is NaN.
    case AT_F8E8M0FNU: {
      unsigned c = *(const uint8_t *)p;
      return c == 255 ? NAN : ldexp(1.0, (int)c - 127);
    }
    default: {
      minifloat m;
      return minifloat_of(t, &m) ? minifloat_decode(&m, *(const uint8_t *)p)
                                 : 0;
    }
  }
}

// v cut off at [lo, hi] and towards zero; NaN is 0.
// hi may be 2^63, which no int64_t is.
static int64_t saturate(double v, double lo, double hi) {
  if (isnan(v)) return 0;
  if (v <= lo) return (int64_t)lo;
  if (v >= hi) return hi >= 9.2e18 ? INT64_MAX : (int64_t)hi;
  return (int64_t)v;
}

// One double to an element: floats round to nearest even (through f32 where
// they are narrower), integers saturate and NaN becomes 0.
void at_k_store_f64(uint32_t t, void *p, double v) {
  switch (t) {
    case AT_PRED:
      *(uint8_t *)p = v != 0;
      break;
    case AT_U2:
      *(uint8_t *)p = (uint8_t)saturate(v, 0, 3);
      break;
    case AT_U4:
      *(uint8_t *)p = (uint8_t)saturate(v, 0, 15);
      break;
    case AT_U8:
      *(uint8_t *)p = (uint8_t)saturate(v, 0, 255);
      break;
    case AT_S2:
      *(int8_t *)p = (int8_t)saturate(v, -2, 1);
      break;
    case AT_S4:
      *(int8_t *)p = (int8_t)saturate(v, -8, 7);
      break;
    case AT_S8:
      *(int8_t *)p = (int8_t)saturate(v, -128, 127);
      break;
    case AT_S16:
      *(int16_t *)p = (int16_t)saturate(v, -32768, 32767);
      break;
    case AT_U16:
      *(uint16_t *)p = (uint16_t)saturate(v, 0, 65535);
      break;
    case AT_S32:
      *(int32_t *)p = (int32_t)saturate(v, -0x1p31, 0x1p31 - 1);
      break;
    case AT_U32:
      *(uint32_t *)p = (uint32_t)saturate(v, 0, 0x1p32 - 1);
      break;
    case AT_S64:
      *(int64_t *)p = saturate(v, -0x1p63, 0x1p63);
      break;
    case AT_U64:
      *(uint64_t *)p = !(v > 0) ? 0 : v >= 0x1p64 ? UINT64_MAX : (uint64_t)v;
      break;
    case AT_BF16:
      *(uint16_t *)p = at_f32_to_bf16((float)v);
      break;
    case AT_F16:
      *(uint16_t *)p = at_f32_to_f16((float)v);
      break;
    case AT_F32:
      *(float *)p = (float)v;
      break;
    case AT_F64:
      *(double *)p = v;
      break;
    case AT_C64:
      ((float *)p)[0] = (float)v, ((float *)p)[1] = 0;
      break;
    case AT_C128:
      ((double *)p)[0] = v, ((double *)p)[1] = 0;
      break;
    case AT_F8E8M0FNU: {
      int e;
      // No sign, no zero: negative numbers, zeros and infinities have no code.
      if (!(v > 0) || isinf(v)) {
        *(uint8_t *)p = 255;
        break;
      }
      double f = frexp(v, &e);  // v = f * 2^e
      // Nearest power of two; the tie, 0.75, goes up.
      e += f >= 0.75 ? 0 : -1;
      *(uint8_t *)p = (uint8_t)(e + 127 < 0     ? 0
                                : e + 127 > 255 ? 255
                                                : e + 127);
      break;
    }
    default: {
      minifloat m;
      if (minifloat_of(t, &m)) *(uint8_t *)p = (uint8_t)minifloat_encode(&m, v);
    }
  }
}

// One integer, extended to 64 bits by its own sign.
static int64_t load_i64(uint32_t t, const void *p) {
  switch (t) {
    case AT_S64:
    case AT_U64:
      return *(const int64_t *)p;
    default:
      return (int64_t)at_k_load_f64(t, p);
  }
}
// One integer, wrapped to the width of t; types below a byte keep their low
// bits, extended to the byte.
static void store_i64(uint32_t t, void *p, int64_t v) {
  switch (t) {
    case AT_PRED:
      *(uint8_t *)p = v != 0;
      break;
    case AT_U2:
      *(uint8_t *)p = (uint8_t)(v & 3);
      break;
    case AT_U4:
      *(uint8_t *)p = (uint8_t)(v & 15);
      break;
    case AT_S2:
      *(int8_t *)p = (int8_t)((int8_t)((uint8_t)v << 6) >> 6);
      break;
    case AT_S4:
      *(int8_t *)p = (int8_t)((int8_t)((uint8_t)v << 4) >> 4);
      break;
    case AT_U8:
    case AT_S8:
      *(uint8_t *)p = (uint8_t)v;
      break;
    case AT_U16:
    case AT_S16:
      *(uint16_t *)p = (uint16_t)v;
      break;
    case AT_U32:
    case AT_S32:
      *(uint32_t *)p = (uint32_t)v;
      break;
    default:
      *(uint64_t *)p = (uint64_t)v;
      break;
  }
}

// True for integers and PRED, which convert among each other without a float
// between them.
static bool is_integral(uint32_t t) {
  return t == AT_PRED || at_is_int((at_dtype)t);
}

// at_k_convert for every pair of types, one element at a time.
// Integers do not pass through double, which would lose the low bits of 64-bit
// ones.
static void convert_any(uint32_t dt, char *d, uint32_t st, const char *s,
                        int64_t n) {
  int64_t db = at_dtype_bytes((at_dtype)dt), sb = at_dtype_bytes((at_dtype)st);
  bool ints = is_integral(dt) && is_integral(st);
  bool dc = at_is_complex((at_dtype)dt), sc = at_is_complex((at_dtype)st);
  for (int64_t i = 0; i < n; i++, d += db, s += sb) {
    if (ints) {
      store_i64(dt, d, load_i64(st, s));
      continue;
    }
    at_k_store_f64(dt, d, at_k_load_f64(st, s));
    // A complex number to a real type gives its real part; a real one has no
    // imaginary part.
    if (dc && sc) {
      double im = st == AT_C64 ? ((const float *)s)[1] : ((const double *)s)[1];
      if (dt == AT_C64)
        ((float *)d)[1] = (float)im;
      else
        ((double *)d)[1] = im;
    }
  }
}

// Two formats are an f16 but for its lowest bits, and the bias of one: eight at
// a time, denormals and all. `name` takes eight bytes to eight floats.
AT_INLINE __m256 f8e5m2_floats(__m128i bytes) {
  return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes));
}
// E4M3FN: exponent and mantissa shifted into an f16, whose bias is 8 more; all
// ones is NaN.
AT_INLINE __m256 f8e4m3fn_floats(__m128i bytes) {
  __m128i x = _mm_cvtepi8_epi16(bytes);  // the sign is at the top already
  __m128i size = _mm_and_si128(x, _mm_set1_epi16(0x7f));
  __m128i nan = _mm_cmpeq_epi16(size, _mm_set1_epi16(0x7f));
  __m128i half = _mm_or_si128(_mm_and_si128(x, _mm_set1_epi16(-0x8000)),
                              _mm_slli_epi16(size, 7));
  half = _mm_or_si128(half, _mm_and_si128(nan, _mm_set1_epi16(0x7e00)));
  return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(0x1p8f));
}
static void put_floats(float *d, __m256 v) { _mm256_storeu_ps(d, v); }
static void put_bf16(uint16_t *d, __m256 v) {  // exact: the lowest bits are 0
  __m256i u = _mm256_srli_epi32(_mm256_castps_si256(v), 16);
  u = _mm256_permute4x64_epi64(_mm256_packus_epi32(u, u), 0x08);
  _mm_storeu_si128((__m128i *)d, _mm256_castsi256_si128(u));
}

// The next eight bytes, or n of them and zeros.
static __m128i eight_bytes(const uint8_t *s, int64_t n) {
  uint64_t bytes = 0;
  if (n >= 8)
    memcpy(&bytes, s, 8);
  else
    memcpy(&bytes, s, (size_t)n);
  return _mm_cvtsi64_si128((int64_t)bytes);
}

// Every other 1-byte type: its 256 values in one table per call.
#define FROM_BYTES(name, T, PUT, ROUND)                                       \
  AT_INLINE void name##_by(T *d, __m256 (*floats)(__m128i), const uint8_t *s, \
                           int64_t n) {                                       \
    int64_t i = 0;                                                            \
    for (; i + 8 <= n; i += 8) PUT(d + i, floats(eight_bytes(s + i, 8)));     \
    if (i == n) return;                                                       \
    T last[8];                                                                \
    PUT(last, floats(eight_bytes(s + i, n - i)));                             \
    memcpy(d + i, last, (size_t)(n - i) * sizeof(T));                         \
  }                                                                           \
  static void name(T *d, uint32_t st, const uint8_t *s, int64_t n) {          \
    if (st == AT_F8E4M3FN) {                                                  \
      name##_by(d, f8e4m3fn_floats, s, n);                                    \
      return;                                                                 \
    }                                                                         \
    if (st == AT_F8E5M2) {                                                    \
      name##_by(d, f8e5m2_floats, s, n);                                      \
      return;                                                                 \
    }                                                                         \
    T table[256];                                                             \
    for (int i = 0; i < 256; i++) {                                           \
      uint8_t b = (uint8_t)i;                                                 \
      table[i] = ROUND((float)at_k_load_f64(st, &b));                         \
    }                                                                         \
    for (int64_t i = 0; i < n; i++) d[i] = table[s[i]];                       \
  }
FROM_BYTES(bytes_to_f32, float, put_floats, )
FROM_BYTES(bytes_to_bf16, uint16_t, put_bf16, at_f32_to_bf16)

#define LOOP(DT, ST, expr)                         \
  do {                                             \
    DT *restrict d = dst;                          \
    const ST *restrict s = src;                    \
    for (int64_t i = 0; i < n; i++) d[i] = (expr); \
    return;                                        \
  } while (0)

// Eight floats as bf16 in the low halves of words; as at_f32_to_bf16.
static __m256i bf16_words(__m256i u) {
  __m256i high = _mm256_srli_epi32(u, 16);
  __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  __m256i up = _mm256_add_epi32(u, _mm256_set1_epi32(0x7fff));
  __m256i near = _mm256_srli_epi32(_mm256_add_epi32(up, odd), 16);
  __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  __m256i size = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
  __m256i is_nan = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7f800000));
  return _mm256_blendv_epi8(near, nan, is_nan);
}
// As at_f32_to_bf16, 16 at a time.
static void f32_to_bf16(uint16_t *d, const float *s, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m256i a = bf16_words(_mm256_loadu_si256((const __m256i *)(s + i)));
    __m256i b = bf16_words(_mm256_loadu_si256((const __m256i *)(s + i + 8)));
    __m256i ab = _mm256_packus_epi32(a, b);  // a and b alternate by halves
    _mm256_storeu_si256((__m256i *)(d + i), _mm256_permute4x64_epi64(ab, 0xd8));
  }
  for (; i < n; i++) d[i] = at_f32_to_bf16(s[i]);
}
// Nearest even, as F16C rounds with its immediate 0.
static void f32_to_f16(uint16_t *d, const float *s, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((__m128i *)(d + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(s + i), 0));
  for (; i < n; i++) d[i] = at_f32_to_f16(s[i]);
}
// As at_f16_to_f32, eight at a time.
static void f16_to_f32(float *d, const uint16_t *s, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(
        d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + i))));
  for (; i < n; i++) d[i] = at_f16_to_f32(s[i]);
}

// See kernels.h: the common pairs first, then single bytes by table, then
// everything.
void at_k_convert(uint32_t dt, void *dst, uint32_t st, const void *src,
                  int64_t n) {
  if (n <= 0) return;
  if (dt == st) {
    memcpy(dst, src, (size_t)n * at_dtype_bytes((at_dtype)dt));
    return;
  }
#define PAIR(a, b) ((a)*64u + (b))
  switch (PAIR(dt, st)) {
    case PAIR(AT_F32, AT_BF16):
      LOOP(float, uint16_t, at_bf16_to_f32(s[i]));
    case PAIR(AT_BF16, AT_F32):
      f32_to_bf16(dst, src, n);
      return;
    case PAIR(AT_F32, AT_F16):
      f16_to_f32(dst, src, n);
      return;
    case PAIR(AT_F16, AT_F32):
      f32_to_f16(dst, src, n);
      return;
    case PAIR(AT_F64, AT_F32):
      LOOP(double, float, s[i]);
    case PAIR(AT_F32, AT_F64):
      LOOP(float, double, (float)s[i]);
    case PAIR(AT_S32, AT_S8):
      LOOP(int32_t, int8_t, s[i]);
    case PAIR(AT_S32, AT_U8):
      LOOP(int32_t, uint8_t, s[i]);
    case PAIR(AT_S16, AT_S8):
    case PAIR(AT_S16, AT_S4):
      LOOP(int16_t, int8_t, s[i]);
    case PAIR(AT_S16, AT_U8):
    case PAIR(AT_S16, AT_U4):
      LOOP(int16_t, uint8_t, s[i]);
    case PAIR(AT_S32, AT_S16):
      LOOP(int32_t, int16_t, s[i]);
    case PAIR(AT_S32, AT_U16):
      LOOP(int32_t, uint16_t, s[i]);
    case PAIR(AT_S32, AT_U32):
    case PAIR(AT_U32, AT_S32):
      memcpy(dst, src, (size_t)n * 4);
      return;
    case PAIR(AT_S64, AT_U64):
    case PAIR(AT_U64, AT_S64):
      memcpy(dst, src, (size_t)n * 8);
      return;
    case PAIR(AT_S64, AT_S32):
      LOOP(int64_t, int32_t, s[i]);
    case PAIR(AT_F32, AT_S32):
      LOOP(float, int32_t, (float)s[i]);
    default:
      break;
  }
#undef PAIR
  bool byte = at_dtype_bytes((at_dtype)st) == 1;
  // A table of 256 values is worth 256 elements; two formats have vectors.
  bool fast = byte && (n >= 256 || st == AT_F8E4M3FN || st == AT_F8E5M2);
  if (fast && dt == AT_F32)
    bytes_to_f32(dst, st, src, n);
  else if (fast && dt == AT_BF16)
    bytes_to_bf16(dst, st, src, n);
  else
    convert_any(dt, dst, st, src, n);
}
