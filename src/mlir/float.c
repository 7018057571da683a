// The float formats that MLIR names, to and from double. A pattern is held as a
// double, which is exact for all of them, and encoded again when it is printed
// or written: decode and encode are inverses, but for the payloads of NaN in
// formats that have only one.
#include <math.h>

#include "mlir/mlir_internal.h"

// name, bits, exponent bits, mantissa bits, bias, special
static const at_mfloat formats[] = {
    {"f32", 32, 8, 23, 127, 0},        {"f64", 64, 11, 52, 1023, 0},
    {"bf16", 16, 8, 7, 127, 0},        {"f16", 16, 5, 10, 15, 0},
    {"tf32", 19, 8, 10, 127, 0},       {"f8E5M2", 8, 5, 2, 15, 0},
    {"f8E4M3", 8, 4, 3, 7, 0},         {"f8E4M3FN", 8, 4, 3, 7, 1},
    {"f8E5M2FNUZ", 8, 5, 2, 16, 2},    {"f8E4M3FNUZ", 8, 4, 3, 8, 2},
    {"f8E4M3B11FNUZ", 8, 4, 3, 11, 2}, {"f8E3M4", 8, 3, 4, 3, 0},
    {"f4E2M1FN", 4, 2, 1, 1, 3},       {"f6E2M3FN", 6, 2, 3, 1, 3},
    {"f6E3M2FN", 6, 3, 2, 3, 3},       {"f8E8M0FNU", 8, 8, 0, 127, 4},
};

// f80 and f128 are no formats here: double does not hold them.
const at_mfloat *at_mfloat_find(at_str name) {
  for (size_t i = 0; i < AT_LEN(formats); i++)
    if (at_str_is(name, formats[i].name)) return &formats[i];
  return NULL;
}

// The lowest n bits set.
static uint64_t ones(uint32_t n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }

// Values are exact: double has more exponent and mantissa bits than any of the
// formats.
double at_mfloat_decode(const at_mfloat *f, uint64_t bits) {
  if (f->special == 4)
    return bits == 255 ? (double)NAN : ldexp(1.0, (int)bits - f->bias);
  uint64_t mant = bits & ones(f->mantissa);
  uint64_t expo = bits >> f->mantissa & ones(f->exponent);
  bool neg = bits >> (f->bits - 1) & 1;
  if (f->special == 0 && expo == ones(f->exponent)) {
    if (!mant) return neg ? -(double)INFINITY : (double)INFINITY;
    // The payload survives, left-aligned as every wider format has it.
    uint64_t u =
        (uint64_t)neg << 63 | 0x7ffull << 52 | mant << (52 - f->mantissa);
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
  }
  if (f->special == 1 && (bits & ones(f->bits - 1)) == ones(f->bits - 1))
    return neg ? -(double)NAN : (double)NAN;
  if (f->special == 2 && neg && !mant && !expo) return (double)NAN;
  double m = (double)mant + (expo ? (double)(1ull << f->mantissa) : 0.0);
  double v = ldexp(m, (int)(expo ? expo : 1) - f->bias - f->mantissa);
  return neg ? -v : v;
}

// The pattern of the largest finite magnitude, without sign.
static uint64_t max_finite(const at_mfloat *f) {
  uint64_t all = ones(f->bits - 1);
  if (f->special == 0) return all - ones(f->mantissa) - 1;
  return f->special == 1 ? all - 1 : all;
}

// The payload's upper bits stay; a payload that would vanish becomes the quiet
// bit, so that NaN stays NaN.
static uint64_t encode_nan(const at_mfloat *f, double v) {
  uint64_t sign = (uint64_t)(signbit(v) != 0) << (f->bits - 1);
  if (f->special == 0) {
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    uint64_t payload = (u & ones(52)) >> (52 - f->mantissa);
    if (!payload) payload = 1ull << (f->mantissa - 1);
    return sign | ones(f->exponent) << f->mantissa | payload;
  }
  if (f->special == 1) return sign | ones(f->bits - 1);
  if (f->special == 2) return 1ull << (f->bits - 1);
  return 0;
}

// Overflow gives infinity, NaN or the largest finite value, as the format has
// it.
uint64_t at_mfloat_encode(const at_mfloat *f, double v) {
  // Powers of two: rounded to the nearest exponent.
  if (f->special == 4) {
    if (isnan(v) || v < 0) return 255;
    if (v == 0) return 0;
    if (isinf(v)) return 254;
    int e;
    double m = frexp(v, &e);  // v = m * 2^e, m in [0.5, 1)
    int64_t k = (int64_t)e - 1 + (m > 0.75) + f->bias;
    return k < 0 ? 0 : k > 254 ? 254 : (uint64_t)k;
  }
  if (isnan(v)) return encode_nan(f, v);
  uint64_t sign = (uint64_t)(signbit(v) != 0) << (f->bits - 1), mag;
  double x = fabs(v);
  uint64_t top = max_finite(f);
  if (isinf(v)) {
    mag = top + 1;
  } else if (x == 0) {
    mag = 0;
  } else {
    int e;
    frexp(x, &e);  // x = m * 2^e, m in [0.5, 1)
    int expo = e - 1 + f->bias;
    if (expo < 1) expo = 1;  // denormal: fixed exponent
    // rint rounds to nearest even; exact, since only bits below the last go.
    double scaled = rint(ldexp(x, f->bias + f->mantissa - expo));
    uint64_t m = (uint64_t)scaled;
    // A carry out of the mantissa moves into the exponent by itself.
    mag = m + ((uint64_t)(expo - 1) << f->mantissa);
    if (mag > top) mag = top + 1;
  }
  // Overflow, and a zero without a sign.
  if (mag > top && f->special == 1) return sign | ones(f->bits - 1);
  if (mag > top && f->special == 2) return 1ull << (f->bits - 1);
  if (mag > top && f->special == 3) mag = top;
  if (f->special == 2 && mag == 0) return 0;
  return sign | mag;
}
