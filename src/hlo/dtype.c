// Element conversion: every float format as (exponent bits, mantissa bits,
// bias, what its special patterns mean). Values pass through double, which
// holds each narrower format exactly, so one rounding step serves all of them.
#include <math.h>

#include "hlo/hlo_internal.h"

// What a format makes of its extreme patterns.
typedef enum float_kind {
  KIND_IEEE,    // top exponent: inf and NaN
  KIND_FN,      // all ones: NaN; no inf; overflow gives NaN
  KIND_FNUZ,    // negative zero's pattern: NaN; no inf, no -0
  KIND_FINITE,  // no inf, no NaN; saturates
  KIND_E8M0     // exponent only, unsigned; 0xff: NaN
} float_kind;

// A format of at most 16 bits: sign, exponent, mantissa.
typedef struct float_format {
  uint8_t exponent, mantissa;  // bits
  uint8_t bias;
  float_kind kind;
} float_format;

// The layout of a float type that is not f32 or f64. t must be one of the
// table.
static const float_format *format_of(at_dtype t) {
  static const float_format table[] = {
      [AT_F4E2M1FN] = {2, 1, 1, KIND_FINITE},
      [AT_F6E2M3FN] = {2, 3, 1, KIND_FINITE},
      [AT_F6E3M2FN] = {3, 2, 3, KIND_FINITE},
      [AT_F8E3M4] = {3, 4, 3, KIND_IEEE},
      [AT_F8E4M3] = {4, 3, 7, KIND_IEEE},
      [AT_F8E4M3FN] = {4, 3, 7, KIND_FN},
      [AT_F8E4M3B11FNUZ] = {4, 3, 11, KIND_FNUZ},
      [AT_F8E4M3FNUZ] = {4, 3, 8, KIND_FNUZ},
      [AT_F8E5M2] = {5, 2, 15, KIND_IEEE},
      [AT_F8E5M2FNUZ] = {5, 2, 16, KIND_FNUZ},
      [AT_F8E8M0FNU] = {8, 0, 127, KIND_E8M0},
      [AT_BF16] = {8, 7, 127, KIND_IEEE},
      [AT_F16] = {5, 10, 15, KIND_IEEE},
  };
  return &table[t];
}

// The value of a bit pattern. Exact: double has more exponent and mantissa bits
// than any of these formats.
static double decode(const float_format *f, uint32_t bits) {
  uint32_t ones = (1u << f->exponent) - 1;
  uint32_t mantissa = bits & ((1u << f->mantissa) - 1);
  uint32_t exponent = bits >> f->mantissa & ones;
  bool negative = bits >> (f->exponent + f->mantissa) & 1;
  if (f->kind == KIND_E8M0)
    return bits == 0xff ? NAN : ldexp(1.0, (int)bits - 127);
  if (f->kind == KIND_FNUZ && negative && !exponent && !mantissa) return NAN;
  if (f->kind == KIND_IEEE && exponent == ones)
    return mantissa ? copysign(NAN, negative ? -1 : 1)
                    : (negative ? -INFINITY : INFINITY);
  if (f->kind == KIND_FN && exponent == ones &&
      mantissa == (1u << f->mantissa) - 1)
    return copysign(NAN, negative ? -1 : 1);
  double v = exponent ? ldexp((double)(mantissa | 1u << f->mantissa),
                              (int)exponent - f->bias - f->mantissa)
                      : ldexp(mantissa, 1 - f->bias - f->mantissa);
  return negative ? -v : v;
}

// Largest finite pattern without its sign.
static uint32_t max_finite(const float_format *f) {
  uint32_t all = (1u << (f->exponent + f->mantissa)) - 1;
  if (f->kind == KIND_IEEE) return all - (1u << f->mantissa);
  return f->kind == KIND_FN ? all - 1 : all;
}

// The pattern that stands for NaN. Formats without a NaN give what XLA gives
// for them: the pattern of -0.
static uint32_t nan_bits(const float_format *f, bool negative) {
  uint32_t sign = 1u << (f->exponent + f->mantissa);
  uint32_t all = sign - 1;
  switch (f->kind) {
    case KIND_FNUZ:
      return sign;
    case KIND_FINITE:
      return sign;  // as XLA: -0 stands for NaN
    case KIND_FN:
      return all | (negative ? sign : 0);
    default:  // quiet: the top mantissa bit
      return (all - (1u << f->mantissa) + 1 + (1u << (f->mantissa - 1)) - 1) |
             (1u << (f->mantissa - 1)) | (negative ? sign : 0);
  }
}

// Powers of two only, rounded to nearest with ties up. Zero, negative numbers,
// infinities and NaN all become 0xff, which is NaN; what is too small becomes
// 2^-127.
static uint32_t encode_e8m0(double v) {
  if (!(v > 0) || isinf(v)) return 0xff;  // there is no zero either
  int e;
  double m = frexp(v, &e);  // [0.5, 1): v = 2m * 2^(e-1)
  int exponent = e - 1 + 127;
  if (m >= 0.75) exponent++;  // ties go up
  if (exponent > 254) return 0xff;
  return exponent < 0 ? 0 : (uint32_t)exponent;
}

// Rounds v to nearest even once. Overflow gives infinity, NaN or the largest
// finite number, as the format has it.
static uint32_t encode(const float_format *f, double v) {
  if (f->kind == KIND_E8M0) return encode_e8m0(v);
  bool negative = signbit(v);
  uint32_t sign = negative ? 1u << (f->exponent + f->mantissa) : 0;
  uint32_t most = max_finite(f);
  if (isnan(v)) return nan_bits(f, negative);
  uint32_t over = f->kind == KIND_IEEE     ? sign | (most + 1)
                  : f->kind == KIND_FINITE ? sign | most
                                           : nan_bits(f, negative);
  if (isinf(v)) return over;
  if (v == 0)
    return f->kind == KIND_FNUZ ? 0 : sign;  // frexp(0) is no exponent
  int e;
  frexp(v, &e);
  int lowest = 1 - f->bias;  // exponent of the smallest normal
  int at = e - 1 < lowest ? lowest : e - 1;
  // The exponent at which the last place is counted: subnormal numbers share
  // that of the smallest normal one.
  // Scaled so that one unit is the last place; rint rounds half to even.
  double q = rint(ldexp(fabs(v), f->mantissa - at));
  // A carry into the next binade falls out of this sum by itself.
  int64_t bits = ((int64_t)(at + f->bias - 1) << f->mantissa) + (int64_t)q;
  if (bits > most) return over;
  if (!bits && f->kind == KIND_FNUZ) return 0;
  return sign | (uint32_t)bits;
}

// bf16 is the upper half of an f32, so that no table is needed.
double at_load_float(at_dtype t, const void *p) {
  switch (t) {
    case AT_F32: {
      float v;
      return memcpy(&v, p, sizeof v), v;
    }
    case AT_F64: {
      double v;
      return memcpy(&v, p, sizeof v), v;
    }
    case AT_BF16: {
      uint16_t h;
      memcpy(&h, p, sizeof h);
      uint32_t bits = (uint32_t)h << 16;
      float v;
      return memcpy(&v, &bits, sizeof v), v;
    }
    case AT_F16: {
      uint16_t h;
      return memcpy(&h, p, sizeof h), decode(format_of(t), h);
    }
    default:
      return decode(format_of(t), *(const uint8_t *)p);
  }
}

// A C conversion rounds double to f32 to nearest even, as encode does for the
// narrower formats.
void at_store_float(at_dtype t, void *p, double v) {
  switch (t) {
    case AT_F32: {
      float f = (float)v;
      memcpy(p, &f, sizeof f);
      return;
    }
    case AT_F64:
      memcpy(p, &v, sizeof v);
      return;
    case AT_BF16:
    case AT_F16: {
      uint16_t h = (uint16_t)encode(format_of(t), v);
      memcpy(p, &h, sizeof h);
      return;
    }
    default:
      *(uint8_t *)p = (uint8_t)encode(format_of(t), v);
  }
}

// Types under 8 bits keep their bits at the low end of a byte: the shift up and
// back down drops what lies above them and extends the sign.
int64_t at_load_int(at_dtype t, const void *p) {
  uint64_t v = 0;
  memcpy(&v, p, at_dtype_bytes(t));  // little-endian hosts only
  if (t == AT_PRED) return v != 0;
  unsigned unused = 64 - at_dtype_of(t)->bits;
  v <<= unused;
  return at_is_signed_int(t) ? (int64_t)v >> unused : (int64_t)(v >> unused);
}

// Wraps to the width of the type. Bits above it are the sign's copies for
// signed types and zero for unsigned ones: the storage form.
void at_store_int(at_dtype t, void *p, int64_t v) {
  if (t == AT_PRED) {
    *(uint8_t *)p = v != 0;
    return;
  }
  unsigned unused = 64 - at_dtype_of(t)->bits;
  uint64_t u = (uint64_t)v << unused;
  u = at_is_signed_int(t) ? (uint64_t)((int64_t)u >> unused) : u >> unused;
  memcpy(p, &u, at_dtype_bytes(t));
}
