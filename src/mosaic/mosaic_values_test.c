// Every operation of ops.def that works element by element, over the types it
// is used with, against the same computed here: on all pairs of a list of
// values, with NaN, infinities and the ends of integers among them.
#include "mosaic/run_test_util.h"

#include <ctype.h>
#include <math.h>

#include "mosaic/mosaic_internal.h"

// ---- Numbers
// An element: f of floats, i of integers, with their sign; both hold the bits.
typedef struct num {
  double f;
  int64_t i;
  uint32_t bits;
} num;

static num F(double v) { return (num){.f = v}; }
static num I(int64_t v) { return (num){.i = v}; }

// As a float of 4 bytes with these bits.
static double float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

static uint32_t bits_of_float(double v) {
  float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

// NaN is the quiet one that has no other bits.
static uint32_t bits_of_bf16(double v) {
  uint32_t bits = 0;
  at_store_float(AT_BF16, &bits, v);
  return isnan(v) ? 0x7fc0 : bits;
}

typedef struct type {
  const char *text;
  at_dtype dtype;
  int bits;
} type;

static const type types[] = {
    {"f32", AT_F32, 32}, {"bf16", AT_BF16, 16}, {"f16", AT_F16, 16},
    {"i32", AT_S32, 32}, {"i16", AT_S16, 16},   {"i8", AT_S8, 8},
    {"i1", AT_PRED, 1},
};

static const type *type_of(const char *text) {
  for (size_t i = 0; i < AT_LEN(types); i++)
    if (!strcmp(types[i].text, text)) return &types[i];
  fail_msg("no type %s", text);
  return NULL;
}

static num load(const type *t, const void *p) {
  num n = {0};
  memcpy(&n.bits, p, (size_t)AT_MAX(t->bits, 8) / 8);
  if (at_is_float(t->dtype))
    n.f = at_load_float(t->dtype, p);
  else
    n.i = at_load_int(t->dtype, p);
  return n;
}

// ---- What they compute. w: bits of an element.
typedef num (*reference)(num x, num y, num z, int w);
#define DEF(name, value) \
  static num name(num x, num y, num z, int w) { return value; }

static uint64_t low(int64_t v, int w) {
  return (uint64_t)v & ((1ull << w) - 1);
}

DEF(add, I(x.i + y.i))
DEF(sub, I(x.i - y.i))
DEF(mul, I(x.i *y.i))
// By zero all bits are set, and the remainder is what was divided.
DEF(divs, I(y.i ? x.i / y.i : -1))
DEF(divu, I(y.i ? (int64_t)(low(x.i, w) / low(y.i, w)) : -1))
DEF(rems, I(y.i ? x.i % y.i : x.i))
DEF(remu, I(y.i ? (int64_t)(low(x.i, w) % low(y.i, w)) : x.i))
DEF(and_, I(x.i &y.i))
DEF(or_, I(x.i | y.i))
DEF(xor_, I(x.i ^ y.i))
// Nothing is left of a number that is shifted by its width or more.
DEF(shl, I(low(y.i, w) < (uint64_t)w ? (int64_t)(low(x.i, w) << y.i) : 0))
DEF(shrs, I(x.i >> AT_MIN(low(y.i, w), 63)))
DEF(shru, I(low(y.i, w) < (uint64_t)w ? (int64_t)(low(x.i, w) >> y.i) : 0))
DEF(maxs, I(AT_MAX(x.i, y.i)))
DEF(mins, I(AT_MIN(x.i, y.i)))
DEF(maxu, low(x.i, w) > low(y.i, w) ? x : y)
DEF(minu, low(x.i, w) < low(y.i, w) ? x : y)
DEF(absi, I(x.i < 0 ? -x.i : x.i))
DEF(ctpop, I(__builtin_popcountll(low(x.i, w))))

static num ctlz(num x, num y, num z, int w) {
  int n = 0;
  while (n < w && !(low(x.i, w) >> (w - 1 - n) & 1)) n++;
  return I(n);
}

DEF(eq, I(x.i == y.i))
DEF(ne, I(x.i != y.i))
DEF(slt, I(x.i < y.i))
DEF(sle, I(x.i <= y.i))
DEF(sgt, I(x.i > y.i))
DEF(sge, I(x.i >= y.i))
DEF(ult, I(low(x.i, w) < low(y.i, w)))
DEF(ule, I(low(x.i, w) <= low(y.i, w)))
DEF(ugt, I(low(x.i, w) > low(y.i, w)))
DEF(uge, I(low(x.i, w) >= low(y.i, w)))

DEF(addf, F(x.f + y.f))
DEF(subf, F(x.f - y.f))
DEF(mulf, F(x.f *y.f))
DEF(divf, F(x.f / y.f))
DEF(remf, F(fmod(x.f, y.f)))
DEF(negf, F(-x.f))
DEF(absf, F(fabs(x.f)))
DEF(ceilf_, F(ceil(x.f)))
DEF(floorf_, F(floor(x.f)))
DEF(roundf_, F(round(x.f)))
DEF(evenf, F(rint(x.f)))
DEF(truncf_, F(trunc(x.f)))
DEF(signf, F(copysign(x.f, y.f)))
DEF(fmaf_, F((double)fmaf((float)x.f, (float)y.f, (float)z.f)))
DEF(reciprocal, F(1 / x.f))
DEF(expf_, F(exp(x.f)))
DEF(exp2f_, F(exp2(x.f)))
DEF(expm1f_, F(expm1(x.f)))
DEF(logf_, F(log(x.f)))
DEF(log2f_, F(log2(x.f)))
DEF(log1pf_, F(log1p(x.f)))
DEF(tanhf_, F(tanh(x.f)))
DEF(powf_, F(pow(x.f, y.f)))
DEF(atan2f_, F(atan2(x.f, y.f)))
DEF(sqrtf_, F(sqrt(x.f)))
DEF(rsqrtf_, F(1 / sqrt(x.f)))
DEF(sinf_, F(sin(x.f)))
DEF(cosf_, F(cos(x.f)))
DEF(tanf_, F(tan(x.f)))
DEF(erff_, F(erf(x.f)))
DEF(logistic, F(1 / (1 + exp(-x.f))))

DEF(maxnum, isnan(x.f) || x.f < y.f ? y : x)
DEF(minnum, isnan(x.f) || y.f < x.f ? y : x)
static num with_nan(num x, num y, num r) {
  return isnan(x.f) || isnan(y.f) ? F((double)NAN) : r;
}
static num number_of(num x, num y, num r) { return isnan(y.f) ? x : r; }
DEF(maximum, with_nan(x, y, maxnum(x, y, z, w)))
DEF(minimum, with_nan(x, y, minnum(x, y, z, w)))
DEF(maxnumf, number_of(x, y, maxnum(x, y, z, w)))
DEF(minnumf, number_of(x, y, minnum(x, y, z, w)))

#define ORDERED (!isnan(x.f) && !isnan(y.f))
DEF(never, I(0))
DEF(oeq, I(ORDERED &&x.f == y.f))
DEF(ogt, I(x.f > y.f))
DEF(oge, I(x.f >= y.f))
DEF(olt, I(x.f < y.f))
DEF(ole, I(x.f <= y.f))
// The chip has one "not equal", true of NaN.
DEF(une, I(x.f != y.f))
DEF(ord, I(ORDERED))
DEF(ueq, I(!ORDERED || x.f == y.f))
DEF(ugtf, I(!(x.f <= y.f)))
DEF(ugef, I(!(x.f < y.f)))
DEF(ultf, I(!(x.f >= y.f)))
DEF(ulef, I(!(x.f > y.f)))
DEF(uno, I(!ORDERED))
DEF(always, I(1))

// ---- Conversions
DEF(same_int, I(x.i))
DEF(same_float, F(x.f))
DEF(zero_extended, I((int64_t)low(x.i, w)))
DEF(int_to_float, F((double)x.i))
DEF(uint_to_float, F((double)low(x.i, w)))
DEF(truth_as_sign, I(-x.i))

// To the nearest that there is; NaN becomes 0.
static num saturated(double v, int64_t lowest, int64_t highest) {
  if (isnan(v)) return I(0);
  if (v <= (double)lowest) return I(lowest);
  return I(v >= (double)highest ? highest : (int64_t)v);
}
DEF(to_i32, saturated(trunc(x.f), INT32_MIN, INT32_MAX))
DEF(to_u32, saturated(trunc(x.f), 0, UINT32_MAX))
DEF(to_i32_even, saturated(rint(x.f), INT32_MIN, INT32_MAX))
DEF(to_u32_even, saturated(rint(x.f), 0, UINT32_MAX))
DEF(to_i8, saturated(trunc(x.f), -128, 127))
DEF(bits_to_float, F(float_of((uint32_t)x.i)))
DEF(float_to_bits, I(x.bits))
DEF(is_weird, I(isnan(x.f) || isinf(x.f)))
DEF(as_bf16, F(at_load_float(AT_BF16, &(uint32_t){bits_of_bf16(x.f)})))

// The random bits are below the mantissa that stays.
static double stochastic(double v, uint32_t random) {
  if (!isfinite(v)) return v;
  return float_of((bits_of_float(v) + (random & 0xffff)) & 0xffff0000u);
}
DEF(stochastic_, F(stochastic(x.f, y.bits)))
DEF(stochastic_bits, I(bits_of_bf16(stochastic(x.f, y.bits))))
DEF(packed, I(bits_of_bf16(x.f) | bits_of_bf16(y.f) << 16))
DEF(unpacked, F(float_of((uint32_t)x.i & 0xffff0000u)))
DEF(unpacked_int, I((int8_t)(x.i >> 16)))
DEF(packed_ints, I((int64_t)(low(x.i, 8) | low(y.i, 8) << 8 |
                             low(z.i, 8) << 16 | low(x.i, 8) << 24)))
DEF(chosen, x.i < y.i ? x : z)
DEF(chosen_float, x.f < y.f ? x : z)

// ---- The table
// `from` and `to` of several types: one after the other for each of a family.
#define FLOATS "f32 bf16 f16"
#define INTS "i32 i16 i8"
// In place of units: exact, but a zero may have any sign.
#define ZEROS (-1)
#define EVEN " {rounding_mode = #tpu.rounding_mode<to_nearest_even>}"
#define ZERO " {rounding_mode = #tpu.rounding_mode<towards_zero>}"
#define PREDICATE(n) " {predicate = " #n " : i64}"

typedef struct row {
  const char *op;
  uint32_t operands;
  const char *attrs, *from, *to;  // to: NULL: as from
  reference f;
  double ulps;  // of the result's type
  const char
      *lines;  // NULL: %v is the operation of %x, %y, %z. @: from's vector
} row;

static const row rows[] = {
    {"arith.addi", 2, "", INTS " i1", NULL, add, 0, NULL},
    {"arith.subi", 2, "", INTS, NULL, sub, 0, NULL},
    {"arith.muli", 2, "", INTS, NULL, mul, 0, NULL},
    {"arith.divsi", 2, "", INTS, NULL, divs, 0, NULL},
    {"arith.divui", 2, "", INTS, NULL, divu, 0, NULL},
    {"arith.remsi", 2, "", INTS, NULL, rems, 0, NULL},
    {"arith.remui", 2, "", INTS, NULL, remu, 0, NULL},
    {"arith.andi", 2, "", INTS " i1", NULL, and_, 0, NULL},
    {"arith.ori", 2, "", INTS " i1", NULL, or_, 0, NULL},
    {"arith.xori", 2, "", INTS " i1", NULL, xor_, 0, NULL},
    {"arith.shli", 2, "", INTS, NULL, shl, 0, NULL},
    {"arith.shrsi", 2, "", INTS, NULL, shrs, 0, NULL},
    {"arith.shrui", 2, "", INTS, NULL, shru, 0, NULL},
    {"arith.maxsi", 2, "", INTS, NULL, maxs, 0, NULL},
    {"arith.maxui", 2, "", INTS, NULL, maxu, 0, NULL},
    {"arith.minsi", 2, "", INTS, NULL, mins, 0, NULL},
    {"arith.minui", 2, "", INTS, NULL, minu, 0, NULL},
    {"math.absi", 1, "", INTS, NULL, absi, 0, NULL},
    {"math.ctlz", 1, "", INTS, NULL, ctlz, 0, NULL},
    {"math.ctpop", 1, "", INTS, NULL, ctpop, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(0), INTS " i1", "i1", eq, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(1), INTS " i1", "i1", ne, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(2), INTS, "i1", slt, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(3), INTS, "i1", sle, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(4), INTS, "i1", sgt, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(5), INTS, "i1", sge, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(6), INTS, "i1", ult, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(7), INTS, "i1", ule, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(8), INTS, "i1", ugt, 0, NULL},
    {"arith.cmpi", 2, PREDICATE(9), INTS, "i1", uge, 0, NULL},
    {"arith.select", 3, "", INTS, NULL, chosen, 0,
     "%m = 'arith.cmpi'(%x, %y) {predicate = 2 : i64} : (@, @) -> #i1\n"
     "%v = 'arith.select'(%m, %x, %z) : (#i1, @, @) -> @\n"},
    {"arith.select", 3, "", FLOATS, NULL, chosen_float, 0,
     "%m = 'arith.cmpf'(%x, %y) {predicate = 4 : i64} : (@, @) -> #i1\n"
     "%v = 'arith.select'(%m, %x, %z) : (#i1, @, @) -> @\n"},
    {"arith.addf", 2, "", FLOATS, NULL, addf, 0, NULL},
    {"arith.subf", 2, "", FLOATS, NULL, subf, 0, NULL},
    {"arith.mulf", 2, "", FLOATS, NULL, mulf, 0, NULL},
    {"arith.divf", 2, "", FLOATS, NULL, divf, 0, NULL},
    {"arith.remf", 2, "", FLOATS, NULL, remf, 0, NULL},
    {"arith.negf", 1, "", FLOATS, NULL, negf, 0, NULL},
    {"arith.maximumf", 2, "", FLOATS, NULL, maximum, ZEROS, NULL},
    {"arith.minimumf", 2, "", FLOATS, NULL, minimum, ZEROS, NULL},
    {"arith.maxnumf", 2, "", FLOATS, NULL, maxnumf, ZEROS, NULL},
    {"arith.minnumf", 2, "", FLOATS, NULL, minnumf, ZEROS, NULL},
    {"math.absf", 1, "", FLOATS, NULL, absf, 0, NULL},
    {"math.ceil", 1, "", FLOATS, NULL, ceilf_, 0, NULL},
    {"math.floor", 1, "", FLOATS, NULL, floorf_, 0, NULL},
    {"math.round", 1, "", FLOATS, NULL, roundf_, 0, NULL},
    {"math.roundeven", 1, "", FLOATS, NULL, evenf, 0, NULL},
    {"math.trunc", 1, "", FLOATS, NULL, truncf_, 0, NULL},
    {"math.copysign", 2, "", FLOATS, NULL, signf, 0, NULL},
    {"math.fma", 3, "", FLOATS, NULL, fmaf_, 0, NULL},
    {"math.sqrt", 1, "", FLOATS, NULL, sqrtf_, 0, NULL},
    {"tpu.reciprocal", 1, "", FLOATS, NULL, reciprocal, 0, NULL},
    {"math.rsqrt", 1, "", FLOATS, NULL, rsqrtf_, 2, NULL},
    {"math.exp", 1, "", FLOATS, NULL, expf_, 4, NULL},
    {"math.exp2", 1, "", FLOATS, NULL, exp2f_, 4, NULL},
    {"math.expm1", 1, "", FLOATS, NULL, expm1f_, 4, NULL},
    {"math.log", 1, "", FLOATS, NULL, logf_, 4, NULL},
    {"math.log2", 1, "", FLOATS, NULL, log2f_, 4, NULL},
    {"math.log1p", 1, "", FLOATS, NULL, log1pf_, 4, NULL},
    {"math.tanh", 1, "", FLOATS, NULL, tanhf_, 8, NULL},
    {"math.powf", 2, "", FLOATS, NULL, powf_, 8, NULL},
    {"math.atan2", 2, "", FLOATS, NULL, atan2f_, 4, NULL},
    {"math.sin", 1, "", FLOATS, NULL, sinf_, 4, NULL},
    {"math.cos", 1, "", FLOATS, NULL, cosf_, 4, NULL},
    {"math.tan", 1, "", FLOATS, NULL, tanf_, 4, NULL},
    {"math.erf", 1, "", FLOATS, NULL, erff_, 8, NULL},
    {"tpu.logistic", 1, "", FLOATS, NULL, logistic, 8, NULL},
    {"arith.cmpf", 2, PREDICATE(0), FLOATS, "i1", never, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(1), FLOATS, "i1", oeq, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(2), FLOATS, "i1", ogt, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(3), FLOATS, "i1", oge, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(4), FLOATS, "i1", olt, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(5), FLOATS, "i1", ole, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(6), FLOATS, "i1", une, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(7), FLOATS, "i1", ord, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(8), FLOATS, "i1", ueq, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(9), FLOATS, "i1", ugtf, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(10), FLOATS, "i1", ugef, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(11), FLOATS, "i1", ultf, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(12), FLOATS, "i1", ulef, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(13), FLOATS, "i1", une, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(14), FLOATS, "i1", uno, 0, NULL},
    {"arith.cmpf", 2, PREDICATE(15), FLOATS, "i1", always, 0, NULL},
    {"tpu.weird", 1, "", FLOATS, "i1", is_weird, 0, NULL},
    {"tpu.mask_cast", 1, "", "i1", NULL, same_int, 0, NULL},
    {"arith.extui", 1, "", "i8 i16", "i32", zero_extended, 0, NULL},
    {"arith.extui", 1, "", "i1", "i32", same_int, 0, NULL},
    {"arith.extsi", 1, "", "i8 i16", "i32", same_int, 0, NULL},
    {"arith.extsi", 1, "", "i1", "i32", truth_as_sign, 0, NULL},
    {"arith.trunci", 1, "", "i32", "i16", same_int, 0, NULL},
    {"arith.trunci", 1, "", "i32 i16", "i8", same_int, 0, NULL},
    {"arith.trunci", 1, "", "i32", "i1", same_int, 0, NULL},
    {"arith.index_cast", 1, "", INTS, "i32", same_int, 0,
     "%i = 'arith.index_cast'(%x) : (@) -> #index\n"
     "%v = 'arith.index_cast'(%i) : (#index) -> #i32\n"},
    {"arith.index_castui", 1, "", INTS, "i32", zero_extended, 0,
     "%i = 'arith.index_castui'(%x) : (@) -> #index\n"
     "%v = 'arith.index_castui'(%i) : (#index) -> #i32\n"},
    {"arith.extf", 1, "", "bf16 f16", "f32", same_float, 0, NULL},
    {"tpu.extf", 1, "", "bf16 f16", "f32", same_float, 0, NULL},
    {"arith.truncf", 1, "", "f32", "bf16", same_float, 0, NULL},
    {"arith.truncf", 1, "", "f32", "f16", same_float, 0, NULL},
    {"tpu.truncf", 1, EVEN, "f32", "bf16", same_float, 0, NULL},
    {"tpu.truncf", 1, EVEN, "f32", "f16", same_float, 0, NULL},
    {"arith.sitofp", 1, "", INTS, "f32", int_to_float, 0, NULL},
    {"arith.sitofp", 1, "", "i16 i8", "bf16", int_to_float, 0, NULL},
    {"arith.uitofp", 1, "", INTS " i1", "f32", uint_to_float, 0, NULL},
    {"tpu.sitofp", 1, EVEN, INTS, "f32", int_to_float, 0, NULL},
    {"tpu.uitofp", 1, EVEN, INTS, "f32", uint_to_float, 0, NULL},
    {"arith.fptosi", 1, "", FLOATS, "i32", to_i32, 0, NULL},
    {"arith.fptosi", 1, "", FLOATS, "i8", to_i8, 0, NULL},
    {"arith.fptoui", 1, "", FLOATS, "i32", to_u32, 0, NULL},
    {"tpu.fptosi", 1, ZERO, FLOATS, "i32", to_i32, 0, NULL},
    {"tpu.fptosi", 1, EVEN, FLOATS, "i32", to_i32_even, 0, NULL},
    {"tpu.fptoui", 1, ZERO, FLOATS, "i32", to_u32, 0, NULL},
    {"tpu.fptoui", 1, EVEN, FLOATS, "i32", to_u32_even, 0, NULL},
    {"arith.bitcast", 1, "", "i32", "f32", bits_to_float, 0, NULL},
    {"arith.bitcast", 1, "", "f32", "i32", float_to_bits, 0, NULL},
    {"arith.bitcast", 1, "", "bf16 f16", "i16", float_to_bits, 0, NULL},
    {"tpu.reduce_precision", 1,
     " {exponent_bits = 8 : i32, mantissa_bits = 7 : i32}", "f32", NULL,
     as_bf16, 0, NULL},
    {"tpu.stochastic_convert", 2, "", "f32", "bf16", stochastic_, 0,
     "%n = 'arith.bitcast'(%y) : (@) -> #i32\n"
     "%v = 'tpu.stochastic_convert'(%x, %n) : (@, #i32) -> #bf16\n"},
    {"tpu.stochastic_convert_elementwise", 2, "", "f32", "i32", stochastic_bits,
     0,
     "%n = 'arith.bitcast'(%y) : (@) -> #i32\n"
     "%v = 'tpu.stochastic_convert_elementwise'(%x, %n) {dst_type = bf16} : "
     "(@, #i32) -> #i32\n"},
    {"tpu.pack_elementwise", 2, " {target_type = bf16}", "f32", "i32", packed,
     0, NULL},
    {"tpu.pack_elementwise", 3, "", "i32", NULL, packed_ints, 0,
     "%v = 'tpu.pack_elementwise'(%x, %y, %z, %x) {target_type = i8} : (@, @, "
     "@, @) -> @\n"},
    {"tpu.unpack_elementwise", 1, " {source_type = bf16, index = 1 : i32}",
     "i32", "f32", unpacked, 0, NULL},
    {"tpu.unpack_elementwise", 1, " {source_type = i8, index = 2 : i32}", "i32",
     NULL, unpacked_int, 0, NULL},
};

// ---- Values
static const double floats[] = {0.0,
                                -0.0,
                                0.5,
                                -0.5,
                                1.0,
                                -1.0,
                                1.5,
                                2.5,
                                -2.5,
                                3.75,
                                -7.25,
                                8.5,
                                11.0,
                                0.0625,
                                -0.015625,
                                100.0,
                                -60,
                                300,
                                -129,
                                1e-3,
                                5e9,
                                -3e30,
                                (double)NAN,
                                (double)INFINITY,
                                -(double)INFINITY,
                                1e-40,
                                3e38};
static const int64_t ints[] = {
    0,      1,         -1,        2,         3,         5,         -7,
    8,      -8,        15,        16,        31,        32,        33,
    63,     100,       -100,      127,       -128,      255,       4660,
    -21555, INT16_MIN, INT16_MAX, INT32_MIN, INT32_MAX, 0x12345678};
enum { V = (int)AT_LEN(ints), N = V * V };
_Static_assert(AT_LEN(floats) == V, "the same shape for every type");

// Element e of operand k: pairs of all values, and a third.
static size_t place_of(int k, int64_t e) {
  return (size_t)(k == 0 ? e % V : k == 1 ? e / V % V : (e + e / V) % V);
}

// Truths are made of integers: is it odd?
static const type *memory_type(const type *t) {
  return t->dtype == AT_PRED ? type_of("i32") : t;
}

static void set(const type *t, void *p, size_t which) {
  if (at_is_float(t->dtype))
    at_store_float(t->dtype, p, floats[which]);
  else
    at_store_int(t->dtype, p, ints[which]);
}

static num operand(const type *t, int k, int64_t e) {
  const type *m = memory_type(t);
  uint32_t space = 0;
  set(m, &space, place_of(k, e));
  num n = load(m, &space);
  if (t->dtype == AT_PRED) n = I(n.i & 1);
  return n;
}

// ---- One kernel for rows of the same types
enum { MAX_BLOCKS = 64 };
static uint32_t g_in[3][N], g_out[MAX_BLOCKS * N];
static const row *g_rows[MAX_BLOCKS];
static uint32_t g_num;
static const type *g_from, *g_to;
static int64_t g_dims[2];  // of a block

static void add_expanded(at_strbuf *b, const char *lines, uint32_t block) {
  for (const char *p = lines; *p; p++) {
    if (*p == '@')
      at_strbuf_addf(b, "!%lldx%lldx%s", (long long)g_dims[0],
                     (long long)g_dims[1], g_from->text);
    else if (*p == '#' && strncmp(p, "#tpu", 4) != 0)
      at_strbuf_addf(b, "!%lldx%lldx", (long long)g_dims[0],
                     (long long)g_dims[1]);
    else
      at_strbuf_addc(b, *p);
    // Names of values, but for what all blocks share: each has its own.
    if (*p == '%' && !(strchr("xyzo", p[1]) && !isalnum(p[2])) && p[1] != 'c')
      at_strbuf_addf(b, "b%u_", block);
  }
}

static void add_row(at_strbuf *b, const row *r, uint32_t block) {
  static const char *const operands[] = {"%x", "%x, %y", "%x, %y, %z"};
  static const char *const of[] = {"@", "@, @", "@, @, @"};
  at_strbuf line = {0};
  if (r->lines)
    at_strbuf_addz(&line, r->lines);
  else
    at_strbuf_addf(&line, "%%v = '%s'(%s)%s : (%s) -> #%s\n", r->op,
                   operands[r->operands - 1], r->attrs, of[r->operands - 1],
                   g_to->text);
  if (g_to->dtype == AT_PRED)
    at_strbuf_addz(&line, "%w = 'arith.extui'(%v) : (#i1) -> #i32\n");
  at_strbuf_addf(
      &line, "%%at = 'arith.constant'() {value = %lld : index} : () -> index\n",
      (long long)(block * g_dims[0]));
  const char *to = memory_type(g_to)->text;
  at_strbuf_addf(&line,
                 "'vector.store'(%%%c, %%o, %%at, %%c0) : (#%s, "
                 "&%lldx%lldx%s, index, index) -> ()\n",
                 g_to->dtype == AT_PRED ? 'w' : 'v', to,
                 (long long)(MAX_BLOCKS * g_dims[0]), (long long)g_dims[1], to);
  add_expanded(b, line.ptr, block);
  at_strbuf_free(&line);
}

static void add_operand(at_strbuf *b, char name) {
  const type *m = memory_type(g_from);
  char text[400];
  snprintf(text, sizeof text,
           "%%%s%c = 'vector.load'(%%in%c, %%c0, %%c0) : (&%lldx%lldx%s, "
           "index, index) -> !%lldx%lldx%s\n",
           m == g_from ? "" : "m", name, name, (long long)g_dims[0],
           (long long)g_dims[1], m->text, (long long)g_dims[0],
           (long long)g_dims[1], m->text);
  at_strbuf_addz(b, text);
  if (m == g_from) return;
  snprintf(text, sizeof text,
           "%%%c = 'arith.trunci'(%%m%c) : (!%lldx%lldxi32) -> "
           "!%lldx%lldxi1\n",
           name, name, (long long)g_dims[0], (long long)g_dims[1],
           (long long)g_dims[0], (long long)g_dims[1]);
  at_strbuf_addz(b, text);
}

// Equal, or so many units of its type away; zeros with their sign, any NaN for
// NaN.
static bool is_close(const type *t, num got, num want, double ulps) {
  if (!at_is_float(t->dtype)) return got.i == want.i;
  if (isnan(want.f)) return isnan(got.f);
  if (got.f == want.f)
    return got.f != 0 || ulps == ZEROS || signbit(got.f) == signbit(want.f);
  int mantissa = t->dtype == AT_BF16 ? 7 : t->dtype == AT_F16 ? 10 : 23;
  double lowest = t->dtype == AT_F16 ? 0x1p-14 : 0x1p-126;
  double unit = ldexp(AT_MAX(fabs(want.f), lowest), -mantissa);
  // Types narrower than f32 are computed in f32: another rounding at most.
  double most = ulps > 0 && mantissa < 23 ? 1 : ulps;
  return fabs(got.f - want.f) <= most * unit;
}

static void judge_block(const row *r, uint32_t block) {
  const type *m = memory_type(g_to);
  int64_t n = g_dims[0] * g_dims[1];
  size_t bytes = (size_t)m->bits / 8;
  for (int64_t e = 0; e < n; e++) {
    num x = operand(g_from, 0, e), y = operand(g_from, 1, e),
        z = operand(g_from, 2, e);
    num exact = r->f(x, y, z, g_from->bits);
    uint32_t space = 0;
    if (at_is_float(m->dtype))
      at_store_float(m->dtype, &space, (double)(float)exact.f);
    else
      at_store_int(m->dtype, &space, g_to->bits == 1 ? exact.i & 1 : exact.i);
    num want = load(m, &space);
    num got = load(m, (char *)g_out + ((size_t)block * n + e) * bytes);
    if (!is_close(m, got, want, r->ulps))
      fail_msg(
          "%s%s of %s (%g, %g, %g or %lld, %lld, %lld) to %s: %.9g, %lld, "
          "want %.9g, %lld",
          r->op, r->attrs, g_from->text, x.f, y.f, z.f, (long long)x.i,
          (long long)y.i, (long long)z.i, g_to->text, got.f, (long long)got.i,
          want.f, (long long)want.i);
  }
}

static void judge(const rt_kernel *k) {
  for (uint32_t i = 0; i < g_num; i++) judge_block(g_rows[i], i);
}

static void run_rows(void) {
  char in[32], out[32];
  const type *m = memory_type(g_from);
  snprintf(in, sizeof in, "%lldx%lldx%s", (long long)g_dims[0],
           (long long)g_dims[1], m->text);
  snprintf(out, sizeof out, "%lldx%lldx%s", (long long)(MAX_BLOCKS * g_dims[0]),
           (long long)g_dims[1], memory_type(g_to)->text);
  at_strbuf b = {0};
  for (int k = 0; k < 3; k++) add_operand(&b, "xyz"[k]);
  for (uint32_t i = 0; i < g_num; i++) add_row(&b, g_rows[i], i);
  for (int k = 0; k < 3; k++)
    for (int64_t e = 0; e < g_dims[0] * g_dims[1]; e++)
      set(m, (char *)g_in[k] + e * (m->bits / 8), place_of(k, e));
  rt_kernel k = {{{"inx", in, g_in[0], false},
                  {"iny", in, g_in[1], false},
                  {"inz", in, g_in[2], false},
                  {"o", out, g_out, false}},
                 b.ptr,
                 NULL,
                 0};
  rt_each(&k, judge);
  at_strbuf_free(&b);
}

// Does the list of types have this one? One that has no other stands for
// itself.
static bool names(const char *list, const char *text) {
  size_t n = strlen(text);
  for (const char *p = list; (p = strstr(p, text)); p += n)
    if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
  return false;
}

static void run_shape(int64_t height, int64_t width) {
  g_dims[0] = height;
  g_dims[1] = width;
  for (size_t f = 0; f < AT_LEN(types); f++)
    for (size_t t = 0; t < AT_LEN(types); t++) {
      g_from = &types[f];
      g_to = &types[t];
      g_num = 0;
      for (size_t i = 0; i < AT_LEN(rows); i++) {
        bool to = rows[i].to ? names(rows[i].to, g_to->text) : f == t;
        if (!to || !names(rows[i].from, g_from->text)) continue;
        assert_true(g_num < MAX_BLOCKS);
        g_rows[g_num++] = &rows[i];
      }
      if (g_num) run_rows();
    }
}

static void all_pairs(void **state) { run_shape(V, V); }
static void one_element(void **state) { run_shape(1, 1); }
static void part_of_a_register(void **state) { run_shape(3, 5); }

// ---- Every row of ops.def
static void every_operation(void **state) {
  static const struct {
    const char *name, *handler;
  } all[] = {
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  {name, #handler},
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
  };
  for (size_t i = 0; i < AT_LEN(all); i++) {
    if (strcmp(all[i].handler, "each") != 0) continue;
    bool any = false;
    for (size_t k = 0; k < AT_LEN(rows); k++)
      any |= !strcmp(rows[k].op, all[i].name);
    if (!any) fail_msg("no row for %s", all[i].name);
  }
}

int main(void) {
  // Products and sums of bf16 are another path on CPUs that have them.
  at_cpu_limit(AT_CPU_AVX2 | AT_CPU_AVX512);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_operation),
      cmocka_unit_test(one_element),
      cmocka_unit_test(part_of_a_register),
      cmocka_unit_test(all_pairs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
