// Vector bodies of the error functions and digamma in f64. Coefficients are
// tools/minimax.py's, errors are in docs/math.md.
#include "codegen/math_bodies.h"
#include "codegen/math_dd.h"

// ---- erf, erfc
static const double kErf64[] = {
    0x1.06eba8214db69p-3,   -0x1.812746b0379e6p-2,  0x1.ce2f21a042b34p-4,
    -0x1.b82ce31284f37p-6,  0x1.565bcd0dbd8fcp-8,   -0x1.c02db3db49229p-11,
    0x1.f9a321e4b11dap-14,  -0x1.f4d1e434598edp-17, 0x1.b9df305983abbp-20,
    -0x1.5f1f40ed7a0acp-23, 0x1.f7b99d6b9a9eep-27,  -0x1.38ac23bc03208p-30,
    0x1.0627603d92bb0p-34};
static const double kErfc64[] = {
    0x1.3ba5916e9fd7fp+0,   -0x1.1df1ad154a28ep-3,  0x1.f7f5df66fd756p-7,
    0x1.16ecefcfa52cbp-4,   -0x1.9ddb23c3e8d3bp-4,  0x1.7fee004e148e1p-4,
    -0x1.0fb06dfe4fa01p-4,  0x1.3079edf625e8ep-5,   -0x1.09623883a70bep-6,
    0x1.49c672a7c281fp-8,   -0x1.8d4a9b5e624d0p-11, -0x1.a1df4325e526ap-13,
    0x1.3be05af944f0cp-13,  -0x1.99550cca73218p-16, -0x1.788a9f188810bp-17,
    0x1.7ef69c5b28a22p-18,  0x1.3b119471f12b7p-22,  -0x1.b80c9a3b52b78p-21,
    0x1.422ec370b0c03p-24,  0x1.bbfc6316bc35bp-24,  -0x1.374255e031dd4p-26,
    -0x1.4d038c9cdb698p-27, 0x1.024c523ca2b2cp-29};

// By an odd polynomial.
static V erf_small(const at_math *m, V x) {  // |x| <= 1
  return FMA(x, POLY(MUL(x, x), kErf64), x);
}

// e^(-a^2) P((a - 4) / (a + 4)) / (1 + 2 a), the square in two parts.
static V erfc_large(const at_math *m, V a) {  // a >= 1/2
  a = at_most(m, a, 28);
  V one = real(a, 1), four = real(a, 4);
  V p = POLY(DIV(SUB(a, four), ADD(a, four)), kErfc64);
  V factor = DIV(p, FMA(a, real(a, 2), one));
  V square = MUL(a, a), low = FMA(a, a, NEG(square));
  return at_math_f64_times_exp(m, factor, NEG(square), NEG(low));
}

// From 1 on by the complement.
V at_math_f64_erf(const at_math *m, V x) {
  V a = absolute(m, x);
  V large = copysign_(m, SUB(real(x, 1), erfc_large(m, a)), x);
  return SEL(LT(a, real(x, 1)), erf_small(m, x), large);
}

// Below 1/2 by erf, where nothing cancels.
V at_math_f64_erfc(const at_math *m, V x) {
  V a = absolute(m, x), tail = erfc_large(m, a);
  V large = SEL(LT(x, real(x, 0)), SUB(real(x, 2), tail), tail);
  return SEL(LT(a, real(x, 0.5)), SUB(real(x, 1), erf_small(m, x)), large);
}

// ---- erf_inv
static const double kErfInvSmall64[] = {
    0x1.c5bf892cb514cp-1,   0x1.db29ec2d6b497p-3,   0x1.7a7b53026eb13p-7,
    -0x1.328574e123234p-9,  -0x1.ff846c8378c2ep-14, 0x1.5349e6bcf63ecp-15,
    0x1.8903600e8f98cp-18,  -0x1.50221033d5561p-19, 0x1.4df4621f6ed6bp-22,
    -0x1.28ff524e683f5p-26, 0x1.76f926ba213dcp-32};
static const double kErfInvLarge64[] = {
    -0x1.c3085bccb5235p+2,  0x1.b06008e1ee404p+4,   -0x1.455a2340ebde0p+5,
    0x1.218c039632419p+5,   -0x1.4b9df3f5b2de3p+4,  0x1.015e718e0b80bp+3,
    -0x1.10d3beeab7043p+1,  0x1.77acddbaa6390p-2,   -0x1.03e7fc1b08395p-5,
    -0x1.e3ec28b02b884p-10, 0x1.035ecba6465dbp-10,  -0x1.331cad65a4b2ep-13,
    0x1.8ffd5b0437f9bp-17,  -0x1.207bbca1c210cp-21, 0x1.6aaa161c4b6b1p-27};

// For 0 <= a < 1, to 2^-26 of the value; NaN above 1.
static V erf_inv_near(const at_math *m, V a) {
  V one = real(a, 1);
  V w = NEG(at_math_f64_log(m, MUL(SUB(one, a), ADD(one, a))));
  V large = POLY(at_math_sqrt(m, w), kErfInvLarge64);
  return MUL(a, SEL(LT(w, real(a, 5)), POLY(w, kErfInvSmall64), large));
}

// Infinite at 1; the sign is x's.
static V erf_inv_ends(const at_math *m, V y, V x) {
  V a = absolute(m, x);
  y = SEL(EQ(a, real(x, 1)), real(x, __builtin_inf()), y);
  return copysign_(m, y, x);
}

// Without the correcting step.
V at_math_wide_erf_inv(const at_math *m, V x) {
  return erf_inv_ends(m, erf_inv_near(m, absolute(m, x)), x);
}

V at_math_f64_erf_inv(const at_math *m, V x) {
  // One step of Halley's, on the complement where it keeps the digits.
  V a = absolute(m, x), y = erf_inv_near(m, a);
  V error = SEL(LT(a, real(x, 0.53)), SUB(erf_small(m, y), a),
                SUB(SUB(real(x, 1), a), erfc_large(m, y)));
  V slope = at_math_f64_times_exp(m, real(x, 1.1283791670955126),
                                  NEG(MUL(y, y)), NULL);
  V step = DIV(error, slope);
  y = SUB(y, DIV(step, FMA(y, step, real(x, 1))));
  return erf_inv_ends(m, y, x);
}

// ---- digamma
// Its terms cancel beside its zeros, so that they are kept in two parts.

static const double kDigamma64[] = {0x1.5555555555549p-4, -0x1.11111110e7e9ep-7,
                                    0x1.0410404fe711fp-8, -0x1.11105560ce81dp-8,
                                    0x1.f012c377ec455p-8, -0x1.51548bbf6e4f3p-6,
                                    0x1.f81d251df79a0p-5};

// For x > 0: psi(x) = psi(x + 8) - sum 1 / (x + k), the sum as one fraction,
// then ln(y) - 1 / (2 y) - z P(z), z = 1 / y^2.
static dd digamma_right(const at_math *m, dd x) {
  V zero = real(x.h, 0), one = real(x.h, 1);
  V near = LT(x.h, real(x.h, 8));
  dd t = {SEL(near, x.h, one), SEL(near, x.l, zero)};
  dd p = t, dp = {one, zero};
  for (int k = 1; k < 8; k++) {
    dd f = two_sum(m, t.h, real(x.h, k));
    f.l = ADD(f.l, t.l);
    dp = sum(m, product(m, dp, f), p);
    p = product(m, p, f);
  }
  dd shift = quotient(m, dp, p);
  // Next to 0 the parts of 1 / x under- and overflow; the first is enough.
  shift.l = SEL(LT(t.h, real(x.h, 0x1p-900)), zero, shift.l);
  dd y = two_sum(m, x.h, SEL(near, real(x.h, 8), zero));
  y.l = ADD(y.l, x.l);
  V r = DIV(one, y.h), z = MUL(r, r);
  dd log = at_math_f64_wide_log(m, y.h);
  log.l = FMA(y.l, r, log.l);
  log.l = ADD(log.l, FMA(NEG(z), POLY(z, kDigamma64), MUL(r, real(x.h, -0.5))));
  dd less = {SEL(near, NEG(shift.h), zero), SEL(near, NEG(shift.l), zero)};
  return sum(m, log, less);
}

// pi / tan(pi f) = 1/f - pi^2/3 f + f^3 P(f^2) for |f| <= 1/2.
static const double kCot64[] = {
    -0x1.151322ac7d846p+1, -0x1.0470984c09558p+1, -0x1.010b36af6cbe8p+1,
    -0x1.00412e3aac213p+1, -0x1.00101f74934f7p+1, -0x1.0004261c05050p+1,
    -0x1.fffc857c99890p+0, -0x1.00288b242e2bcp+1, -0x1.fc963971f0c43p+0,
    -0x1.0dc8a901d0daep+1, -0x1.5a1d64d0501e4p+0, -0x1.383cd4f1585f2p+2,
    0x1.cee885dce5373p+2,  -0x1.676fd1c1e2f8cp+4, 0x1.ab869ee11048ap+4,
    -0x1.6924d91effd85p+4};

// Of a fraction of a turn's half; the pole at 0 in two parts.
static dd cotangent(const at_math *m, V f) {
  V zero = real(f, 0);
  dd inverse = quotient(m, (dd){real(f, 1), zero}, (dd){f, zero});
  V tiny = LT(absolute(m, f), real(f, 0x1p-900));
  inverse.l = SEL(tiny, zero, inverse.l);
  dd slope = {real(f, -0x1.a51a6625307d3p+1), real(f, -0x1.1873d8912200cp-54)};
  dd line = product(m, slope, (dd){f, zero});
  V z = MUL(f, f);
  line.l = FMA(MUL(z, f), POLY(z, kCot64), line.l);
  return sum(m, inverse, line);
}

// On the left by reflection. Poles are NaN, but at 0, which is infinite with
// the other sign.
V at_math_f64_digamma(const at_math *m, V x) {
  // psi(x) = psi(1 - x) - pi / tan(pi x), with the fraction reduced first.
  V zero = real(x, 0), left = LT(x, zero), inf = real(x, __builtin_inf());
  dd mirror = two_sum(m, real(x, 1), NEG(x));
  dd right =
      digamma_right(m, (dd){SEL(left, mirror.h, x), SEL(left, mirror.l, zero)});
  V f = SUB(x, at_math_intrinsic(m, "llvm.rint", &x, 1));
  dd cot = cotangent(m, SEL(left, f, real(x, 0.25)));
  dd both = sum(m, right, (dd){NEG(cot.h), NEG(cot.l)});
  V y = SEL(left, both.h, right.h), low = SEL(left, both.l, right.l);
  y = SEL(LT(absolute(m, y), inf), ADD(y, low), y);
  V pole = IAND(left, EQ(f, zero)), nan = real(x, __builtin_nan(""));
  y = SEL(IOR(pole, EQ(x, NEG(inf))), nan, y);
  y = SEL(EQ(x, inf), inf, y);
  return SEL(EQ(x, zero), copysign_(m, inf, NEG(x)), y);
}
