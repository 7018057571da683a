// Vector bodies of the f64 functions around exp and log: straight-line code of
// any width, with FMA. Intermediate sums that would cost accuracy are kept in
// two parts. Coefficients are tools/minimax.py's, errors are in docs/math.md.
#include "codegen/math_bodies.h"

#include "codegen/math_dd.h"

// ---- exp and what is made of it
static const double kLn2Hi = 0x1.62e42fefa38p-1;  // 42 bits: times n is exact
static const double kLn2Lo = 0x1.ef35793c7673p-45;
static const double kExp64[] = {0x1.0000000000005p-1,  0x1.555555555555cp-3,
                                0x1.55555555520ffp-5,  0x1.111111110e6eap-7,
                                0x1.6c16c17f346f9p-10, 0x1.a01a01b5d0314p-13,
                                0x1.a019a68f61becp-16, 0x1.71ddea186a5fcp-19,
                                0x1.28a2a192e8856p-22, 0x1.af768c8192037p-26};

typedef struct power {  // 2^n (1 + h + l), n a 64-bit integer
  V n, h, l;
} power;

// e^(x + low). Adding 1.5 * 2^52 leaves the integer in the low bits: no
// conversion that NaN would make undefined.
static power exp_split(const at_math *m, V x, V low) {
  V magic = real(x, 0x1.8p52);
  V t = FMA(x, real(x, 0x1.71547652b82fep0), magic), n = SUB(t, magic);
  V r0 = FMA(n, real(x, -kLn2Hi), x), c = MUL(n, real(x, kLn2Lo));
  if (low) c = SUB(c, low);
  V r = SUB(r0, c), rest = SUB(SUB(r0, r), c);
  dd q = fast_sum(m, r, MUL(MUL(r, r), POLY(r, kExp64)));
  LLVMTypeRef t64 = i64(m, x);
  return (power){ISUB(CAST(t, t64), CAST(magic, t64)), q.h,
                 ADD(q.l, FMA(rest, q.h, rest))};
}

// 2^i for -1022 <= i <= 1023.
static V power_of_two(const at_math *m, V i) {
  V biased = SHL(IADD(i, whole(i, 1023)), 52);
  return CAST(biased, f64(m, i));
}
// y 2^n in two factors: the first product is normal, so denormal results round
// once.
static V scale(const at_math *m, V y, V n) {
  V half = ISUB(SHR(IADD(n, whole(n, 4096)), 1), whole(n, 2048));
  return MUL(MUL(y, power_of_two(m, half)), power_of_two(m, ISUB(n, half)));
}

// a NULL: 1. Arguments are clamped to where the result is 0 or infinite; the
// low part is dropped there.
V at_math_f64_times_exp(const at_math *m, V a, V x, V low) {
  // Beyond these the result is 0 or inf, whatever a is.
  V t = at_least(m, at_most(m, x, 760), -800);
  if (low) low = SEL(EQ(t, x), low, real(x, 0));
  power p = exp_split(m, t, low);
  V y = ADD(real(x, 1), ADD(p.h, p.l));
  return scale(m, a ? MUL(a, y) : y, p.n);
}

V at_math_f64_exp(const at_math *m, V x) {
  return at_math_f64_times_exp(m, NULL, x, NULL);
}

// Tiny arguments are their own result, -0 too.
V at_math_f64_expm1(const at_math *m, V x) {
  power p = exp_split(m, at_least(m, at_most(m, x, 710), -60), NULL);
  // 2^n q + (2^n - 1), halved so that 2^1024 is not needed.
  V s = power_of_two(m, ISUB(p.n, whole(p.n, 1)));
  V y = FMA(p.l, s, FMA(p.h, s, SUB(s, real(x, 0.5))));
  return SEL(LT(absolute(m, x), real(x, 0x1p-60)), x, ADD(y, y));
}

// By e^-|x|, which does not overflow.
V at_math_f64_logistic(const at_math *m, V x) {
  V e = at_math_f64_exp(m, NEG(absolute(m, x))), one = real(x, 1);
  return DIV(SEL(LT(x, real(x, 0)), e, one), ADD(one, e));
}

// e^a - 1 for 0 <= a <= 40, in two parts.
static dd wide_expm1(const at_math *m, V a) {
  power p = exp_split(m, a, NULL);
  V s = power_of_two(m, p.n);
  dd t = two_sum(m, SUB(s, real(a, 1)), MUL(s, p.h));
  return fast_sum(m, t.h, FMA(s, p.l, t.l));
}

// (e^2a - 1) / (e^2a + 1) with both in two parts.
V at_math_f64_tanh(const at_math *m, V x) {
  V a = at_most(m, absolute(m, x), 20);
  dd t = wide_expm1(m, ADD(a, a));
  dd below = two_sum(m, t.h, real(x, 2));
  below.l = ADD(below.l, t.l);
  dd q = quotient(m, t, below);
  return copysign_(m, ADD(q.h, q.l), x);
}

// e^a / 2 without overflow before the result's own; a >= 0.
static V half_exp(const at_math *m, V a) {
  power p = exp_split(m, at_most(m, a, 760), NULL);
  V y = ADD(real(a, 1), ADD(p.h, p.l));
  return scale(m, y, ISUB(p.n, whole(p.n, 1)));
}

// From 40 on e^-a is lost beside e^a.
V at_math_f64_sinh(const at_math *m, V x) {
  // With t = e^a - 1: (t + t / (1 + t)) / 2.
  V a = absolute(m, x);
  dd t = wide_expm1(m, at_most(m, a, 40));
  dd above = two_sum(m, t.h, real(x, 1));
  above.l = ADD(above.l, t.l);
  dd q = quotient(m, t, above), sum = fast_sum(m, t.h, q.h);
  V y = ADD(sum.h, ADD(sum.l, ADD(t.l, q.l)));
  y = SEL(GT(a, real(a, 40)), half_exp(m, a), MUL(y, real(x, 0.5)));
  return copysign_(m, SEL(LT(a, real(a, 0x1p-60)), a, y), x);
}

// e^a / 2 + 1 / (4 e^a / 2).
V at_math_f64_cosh(const at_math *m, V x) {
  V a = absolute(m, x), e = half_exp(m, a);
  return ADD(e, DIV(real(x, 0.25), e));
}

// ---- log and what is made of it
static const double kLog64[] = {0x1.5555555555593p-1, 0x1.999999997fb31p-2,
                                0x1.2492494217a61p-2, 0x1.c71c51e7f4c26p-3,
                                0x1.7466462ce27f7p-3, 0x1.39a0f4fdff286p-3,
                                0x1.2f0d8ea0093a0p-3};

// u = 2^n (1 + f) for u > 0, 1 + f in [sqrt(1/2), sqrt(2)); n as f64.
static void log_split(const at_math *m, V u, V *n, V *f) {
  V tiny = LT(u, real(u, 0x1p-1022));
  V i = CAST(SEL(tiny, MUL(u, real(u, 0x1p54)), u), i64(m, u));
  V biased =
      SHR(IADD(i, whole(i, 0x3ff0000000000000 - 0x3fe6a09e667f3bcd)), 52);
  V mantissa = ISUB(i, SHL(ISUB(biased, whole(i, 1023)), 52));
  *f = SUB(CAST(mantissa, f64(m, u)), real(u, 1));
  V e = CAST(IOR(biased, whole(i, 0x4330000000000000)), f64(m, u));
  *n = SUB(e, SEL(tiny, real(u, 0x1p52 + 1023 + 54), real(u, 0x1p52 + 1023)));
}

// ln(u) + low + extra ln(2) for u > 0, where low is small beside u - 1 (both
// may be NULL); the special values of u are put right here as well.
static V log_plus(const at_math *m, V u, V low, V extra) {
  V n, f;
  log_split(m, u, &n, &f);
  if (extra) n = ADD(n, extra);
  V s = DIV(f, ADD(f, real(f, 2))), z = MUL(s, s);
  V half = MUL(MUL(f, real(f, 0.5)), f);
  V c = MUL(n, real(n, kLn2Lo));
  if (low) c = ADD(c, low);
  V t = FMA(s, FMA(z, POLY(z, kLog64), half), c);
  V y = FMA(n, real(n, kLn2Hi), SUB(f, SUB(half, t)));
  V zero = real(u, 0), inf = real(u, __builtin_inf());
  y = SEL(EQ(u, inf), inf, y);
  y = SEL(EQ(u, zero), real(u, -__builtin_inf()), y);
  V bad = LLVMBuildFCmp(m->b, LLVMRealULT, u, zero, "");
  return SEL(bad, real(u, __builtin_nan("")), y);
}

// What 1 + v rounded to u lost, as ln's derivative sees it.
static V log1p_rest(const at_math *m, V v, V u) {
  V one = real(v, 1);
  return DIV(SEL(LT(v, one), SUB(v, SUB(u, one)), SUB(one, SUB(u, v))), u);
}

V at_math_f64_log(const at_math *m, V x) { return log_plus(m, x, NULL, NULL); }

// ln(u) for u = 1 + x, and what the addition lost.
V at_math_f64_log1p(const at_math *m, V x) {
  V u = ADD(x, real(x, 1));
  V y = log_plus(m, u, log1p_rest(m, x, u), NULL);
  return SEL(LT(absolute(m, x), real(x, 0x1p-60)), x, y);
}

// ln(1 + v), or ln(2 a) where a is large and v useless.
static V log1p_or_double(const at_math *m, V v, V a) {
  V big = GT(a, real(a, 0x1p28)), u = ADD(v, real(v, 1)), zero = real(v, 0);
  V low = SEL(big, zero, log1p_rest(m, v, u));
  return log_plus(m, SEL(big, a, u), low, SEL(big, real(v, 1), zero));
}

// ln(1 + a + a^2 / (1 + sqrt(a^2 + 1))).
V at_math_f64_asinh(const at_math *m, V x) {
  V a = absolute(m, x), one = real(x, 1), square = MUL(a, a);
  V root = at_math_sqrt(m, ADD(square, one));
  V v = ADD(a, DIV(square, ADD(one, root)));
  return copysign_(m, log1p_or_double(m, v, a), x);
}

// ln(1 + t + sqrt(t (t + 2))), t = x - 1.
V at_math_f64_acosh(const at_math *m, V x) {
  V t = SUB(x, real(x, 1));
  V v = ADD(t, at_math_sqrt(m, MUL(t, ADD(t, real(x, 2)))));
  V y = log1p_or_double(m, v, x);
  return SEL(LT(x, real(x, 1)), real(x, __builtin_nan("")), y);
}

// ln(1 + 2 a / (1 - a)) / 2.
V at_math_f64_atanh(const at_math *m, V x) {
  V a = absolute(m, x);
  V v = DIV(ADD(a, a), SUB(real(x, 1), a)), u = ADD(v, real(v, 1));
  V y = MUL(log_plus(m, u, log1p_rest(m, v, u), NULL), real(x, 0.5));
  return copysign_(m, y, x);
}

// ---- cube root
static const double kCbrt64[] = {0x1.0392cd6ba95f6p-1, 0x1.6fb1de4fd03d7p-1,
                                 -0x1.33d3817784d38p-2, 0x1.60a14c7f40ee0p-4,
                                 -0x1.5b77e6b237de1p-7};

// A polynomial for the mantissa, Halley's step, then Newton's with an exact
// residual; the exponent is divided by three. 0, inf and NaN stay.
V at_math_f64_cbrt(const at_math *m, V x) {
  V a = absolute(m, x), tiny = LT(a, real(x, 0x1p-1022)), one = real(x, 1);
  V i = CAST(SEL(tiny, MUL(a, real(x, 0x1p54)), a), i64(m, x));
  // The biased exponent is 3 q + j: x = 2^(3 (q - 341)) * mantissa * 2^j.
  V e = CAST(IOR(SHR(i, 52), whole(i, 0x4330000000000000)), f64(m, x));
  e = SUB(e, real(x, 0x1p52));
  V third = FMA(e, real(x, 1.0 / 3), real(x, 0.1));
  V q = at_math_intrinsic(m, "llvm.floor", &third, 1);
  V j = FMA(q, real(x, -3), e), two = GT(j, real(x, 1.5)),
    any = GT(j, real(x, 0.5));
  V mantissa =
      IOR(IAND(i, whole(i, 0xfffffffffffff)), whole(i, 0x3ff0000000000000));
  V w = CAST(mantissa, f64(m, x));
  V y = MUL(POLY(w, kCbrt64), SEL(two, real(x, 0x1.965fea53d6e3dp0),
                                  SEL(any, real(x, 0x1.428a2f98d728bp0), one)));
  w = MUL(w, SEL(two, real(x, 4), SEL(any, real(x, 2), one)));
  // Halley's step: 2^-17 becomes 2^-50; then Newton's with the residual exact.
  V cube = MUL(MUL(y, y), y);
  y = MUL(y, DIV(FMA(w, real(x, 2), cube), FMA(cube, real(x, 2), w)));
  V h = MUL(y, y), l = FMA(y, y, NEG(h));
  V residual = FMA(l, y, FMA(h, y, NEG(w)));
  y = SUB(y, DIV(residual, MUL(h, real(x, 3))));
  V s = ADD(q, SEL(tiny, real(x, 0x1p52 + 682 - 18), real(x, 0x1p52 + 682)));
  y = copysign_(m, MUL(y, CAST(SHL(CAST(s, i64(m, x)), 52), f64(m, x))), x);
  V plain = IAND(GT(a, real(x, 0)), LT(a, real(x, __builtin_inf())));
  return SEL(plain, y, x);
}

// ---- power
static const double kPowLog64[] = {0x1.9999999999996p-2, 0x1.2492492493049p-2,
                                   0x1.c71c71c57e001p-3, 0x1.745d18337a5d1p-3,
                                   0x1.3b13626735800p-3, 0x1.1120c17c76719p-3,
                                   0x1.de318f0663386p-4, 0x1.eb20cfed2d325p-4};

// The series in s = f / (2 + f), with s, s^3 and the sums in two parts.
dd at_math_f64_wide_log(const at_math *m, V a) {
  V n, f, zero = real(a, 0);
  log_split(m, a, &n, &f);
  dd below = fast_sum(m, real(a, 2), f);
  dd s = quotient(m, (dd){f, zero}, below);
  // ln(1 + f) = 2 s + s^3 (2/3 + z Q(z)), z = s^2.
  V z = MUL(s.h, s.h), zl = FMA(ADD(s.h, s.h), s.l, FMA(s.h, s.h, NEG(z)));
  V c3 = MUL(z, s.h);
  V c3l = FMA(z, s.l, FMA(zl, s.h, FMA(z, s.h, NEG(c3))));
  dd k = fast_sum(m, real(a, 2.0 / 3), MUL(z, POLY(z, kPowLog64)));
  k.l = ADD(k.l, real(a, 0x1.5555555555555p-55));  // 2/3 less its f64
  V p = MUL(c3, k.h);
  V pl = FMA(c3, k.l, FMA(c3l, k.h, FMA(c3, k.h, NEG(p))));
  dd one = fast_sum(m, MUL(n, real(n, kLn2Hi)), ADD(s.h, s.h));
  dd two = fast_sum(m, one.h, p);
  V low = FMA(n, real(n, kLn2Lo), ADD(ADD(s.l, s.l), pl));
  dd y = fast_sum(m, two.h, ADD(ADD(one.l, two.l), low));
  V finite = LT(a, real(a, __builtin_inf())), is_zero = EQ(a, zero);
  y.h = SEL(is_zero, real(a, -__builtin_inf()), SEL(finite, y.h, a));
  y.l = SEL(IAND(finite, INOT(is_zero)), y.l, zero);
  return y;
}

// r = |x|^y. Negative x needs a whole y, whose parity gives the sign; 1^y, x^0
// and (-1)^+-inf are 1.
V at_math_pow_rules(const at_math *m, V x, V y, V r) {
  V zero = real(x, 0), one = real(x, 1), inf = real(x, __builtin_inf());
  V half = MUL(y, real(y, 0.5)), ax = absolute(m, x);
  V is_int = EQ(at_math_intrinsic(m, "llvm.rint", &y, 1), y);
  V is_even = EQ(at_math_intrinsic(m, "llvm.rint", &half, 1), half);
  V is_odd = IAND(is_int, INOT(is_even));
  V negative = LT(copysign_(m, one, x), zero);
  V no_root = IAND(IAND(LT(x, zero), INOT(is_int)), LT(ax, inf));
  r = SEL(IAND(negative, is_odd), NEG(r), r);
  r = SEL(no_root, real(x, __builtin_nan("")), r);
  V unit = IAND(EQ(ax, one), EQ(absolute(m, y), inf));
  V is_one = IOR(EQ(x, one), EQ(y, zero));
  return SEL(IOR(is_one, unit), one, r);
}

// y ln|x| in two parts: its error times the result's size would show.
V at_math_f64_pow(const at_math *m, V x, V y) {
  dd log = at_math_f64_wide_log(m, absolute(m, x));
  V t = MUL(y, log.h);
  V low = FMA(y, log.l, FMA(y, log.h, NEG(t)));
  return at_math_pow_rules(m, x, y, at_math_f64_times_exp(m, NULL, t, low));
}
