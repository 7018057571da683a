// Vector bodies of the f32 functions that programs use most: straight-line code
// of any width, without tables but for the reduction of huge angles.
// Coefficients are tools/minimax.py's. Largest errors over all 2^32 inputs:
// docs/math.md.
#include "base/cpu.h"
#include "codegen/math_bodies.h"
#include "codegen/math_ops.h"

#include <llvm-c/Core.h>

static V bits(const at_math *m, V x) { return CAST(x, i32(m, x)); }
static V from_bits(const at_math *m, V i) {
  return CAST(i, shaped(LLVMFloatTypeInContext(m->ctx), i));
}

// ---- exp, expm1, logistic, tanh
static const double kExp[] = {0x1.0p-1, 0x1.55549p-3, 0x1.55545ep-5,
                              0x1.123b46p-7, 0x1.6db416p-10};
static const double kLn2Hi = 0x1.62e430p-1, kLn2Lo = -0x1.05c610p-29;

// x = n ln2 + r: returns e^r - 1, *out_n = n as an integer, *out_real (unless
// NULL) as a float. No conversion that NaN would make undefined: adding 1.5 *
// 2^23 leaves the integer in the low bits.
static V reduced_expm1(const at_math *m, V x, V *out_n, V *out_real) {
  V magic = real(x, 0x1.8p23);
  V t = FMA(x, real(x, 0x1.715476p0), magic), n = SUB(t, magic);
  *out_n = ISUB(bits(m, t), bits(m, magic));
  if (out_real) *out_real = n;
  V r = FMA(n, real(x, -kLn2Hi), x);
  r = FMA(n, real(x, -kLn2Lo), r);
  return FMA(MUL(r, r), POLY(r, kExp), r);
}

// 2^i for -126 <= i <= 127.
static V power_of_two(const at_math *m, V i) {
  V biased = IADD(i, whole(i, 127));
  return from_bits(m, LLVMBuildShl(m->b, biased, whole(i, 23), ""));
}

// Are there 16 lanes for the instructions of AVX-512?
static bool has_wide_lanes(const at_math *m, V x) {
  LLVMTypeRef t = LLVMTypeOf(x);
  return m->cpu_features & AT_CPU_AVX512 &&
         LLVMGetTypeKind(t) == LLVMVectorTypeKind && LLVMGetVectorSize(t) == 16;
}

// y 2^n, rounded once, and 0 in lanes of `none`: they are not computed.
static V scaled_at_once(const at_math *m, V y, V n, V none) {
  LLVMTypeRef i16 = LLVMInt16TypeInContext(m->ctx);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(m->ctx);
  static const char name[] = "llvm.x86.avx512.mask.scalef.ps.512";
  unsigned id = LLVMLookupIntrinsicID(name, sizeof name - 1);
  V some = LLVMBuildBitCast(m->b, LLVMBuildNot(m->b, none, ""), i16, "");
  V args[] = {y, n, real(y, 0), some,
              LLVMConstInt(i32, 4 /* rounding as the thread has it */, false)};
  return LLVMBuildCall2(m->b, LLVMIntrinsicGetType(m->ctx, id, NULL, 0),
                        LLVMGetIntrinsicDeclaration(m->module, id, NULL, 0),
                        args, 5, "");
}

V at_math_f32_exp(const at_math *m, V x) {
  // e^-104 is under half of the least denormal, e^89 over the largest float.
  // What is 0 is not computed: processors take long over results that vanish.
  V none = LT(x, real(x, -104)), in = at_most(m, x, 89), zero = real(x, 0);
  bool wide = has_wide_lanes(m, x);
  if (!wide) in = SEL(none, zero, in);
  V n, real_n, q = reduced_expm1(m, in, &n, &real_n);
  V y = ADD(q, real(x, 1));
  if (wide) return scaled_at_once(m, y, real_n, none);
  // 2^n in two factors: the first product is normal, so denormal results
  // round once.
  V half = LLVMBuildAShr(m->b, n, whole(n, 1), "");
  y = MUL(y, power_of_two(m, half));
  return SEL(none, zero, MUL(y, power_of_two(m, ISUB(n, half))));
}

// 2^n (q + 1) - 1 with q = e^r - 1, so that nothing cancels.
V at_math_f32_expm1(const at_math *m, V x) {
  V n, q = reduced_expm1(m, at_least(m, at_most(m, x, 89), -30), &n, NULL);
  // 2^n q + (2^n - 1), halved so that 2^128 is not needed.
  V s = power_of_two(m, ISUB(n, whole(n, 1)));
  V y = MUL(FMA(q, s, SUB(s, real(x, 0.5))), real(x, 2));
  return SEL(LT(absolute(m, x), real(x, 0x1p-60)), x, y);
}

// By e^-|x|, which does not overflow.
V at_math_f32_logistic(const at_math *m, V x) {
  V e = at_math_f32_exp(m, LLVMBuildFNeg(m->b, absolute(m, x), ""));
  V one = real(x, 1);
  return DIV(SEL(LT(x, real(x, 0)), e, one), ADD(one, e));
}

// (e^2a - 1) / (e^2a + 1); above 10 it is 1.
V at_math_f32_tanh(const at_math *m, V x) {
  V a = at_most(m, absolute(m, x), 10);
  V t = at_math_f32_expm1(m, ADD(a, a));
  return copysign_(m, DIV(t, ADD(t, real(x, 2))), x);
}

// ---- log, log1p
static const double kLog[] = {0x1.555554p-2,  -0x1.000226p-2, 0x1.99a008p-3,
                              -0x1.547244p-3, 0x1.22da1cp-3,  -0x1.0d853ep-3,
                              0x1.055b6ap-3,  -0x1.38b58cp-4};

// ln(u) + low for u > 0, where low is small beside u - 1; the special values of
// u are put right here as well.
static V log_plus(const at_math *m, V u, V low) {
  V tiny = LT(u, real(u, 0x1p-126));
  V scaled = SEL(tiny, MUL(u, real(u, 0x1p23)), u);
  V i = bits(m, scaled);
  // e and mantissa in [sqrt(1/2), sqrt(2)).
  V e = LLVMBuildAShr(m->b, ISUB(i, whole(i, 0x3f3504f3)), whole(i, 23), "");
  V mantissa = from_bits(m, ISUB(i, LLVMBuildShl(m->b, e, whole(i, 23), "")));
  e = ISUB(e, SEL(tiny, whole(i, 23), whole(i, 0)));
  V n = LLVMBuildSIToFP(m->b, e, LLVMTypeOf(u), "");
  V f = SUB(mantissa, real(u, 1));
  V s = MUL(MUL(f, f), FMA(f, POLY(f, kLog), real(u, -0.5)));
  s = FMA(n, real(u, kLn2Lo), s);
  if (low) s = ADD(s, low);
  V y = FMA(n, real(u, kLn2Hi), ADD(f, s));
  V zero = real(u, 0), inf = real(u, __builtin_inf());
  y = SEL(EQ(u, inf), inf, y);
  y = SEL(EQ(u, zero), real(u, -__builtin_inf()), y);
  V bad = LLVMBuildFCmp(m->b, LLVMRealULT, u, zero, "");
  return SEL(bad, real(u, __builtin_nan("")), y);
}

V at_math_f32_log(const at_math *m, V x) { return log_plus(m, x, NULL); }

V at_math_f32_log1p(const at_math *m, V x) {
  V one = real(x, 1), u = ADD(x, one);
  // What the addition rounded away, as ln's derivative sees it.
  V lost = SEL(LT(x, one), SUB(x, SUB(u, one)), SUB(one, SUB(u, x)));
  V y = log_plus(m, u, DIV(lost, u));
  return SEL(LT(absolute(m, x), real(x, 0x1p-60)), x, y);
}

// ---- erf
static const double kErfSmall[] = {
    0x1.06eba8p-3, -0x1.81273ep-2,  0x1.ce2d2p-4,  -0x1.b7fbb4p-6,
    0x1.5419f4p-8, -0x1.a485ecp-11, 0x1.4ae4cep-14};
static const double kErfLarge[] = {
    0x1.20e46ap0,    0x1.45a156p-1,  0x1.ab86ap-4,
    -0x1.602794p-6,  0x1.0263180p-9, 0x1.c9efb6p-12,
    -0x1.9ae6c4p-13, 0x1.02b4d2p-15, -0x1.fefc4ap-20};

// A polynomial up to 1, 1 - e^-P(a) beyond; 1 from 4 on.
V at_math_f32_erf(const at_math *m, V x) {
  V a = absolute(m, x), z = MUL(x, x);
  V small = FMA(x, POLY(z, kErfSmall), x);
  V t = at_most(m, a, 4);
  V tail =
      at_math_f32_exp(m, MUL(LLVMBuildFNeg(m->b, t, ""), POLY(t, kErfLarge)));
  V large = copysign_(m, SUB(real(x, 1), tail), x);
  return SEL(LT(a, real(x, 1)), small, large);
}

// ---- sin, cos, tan
static const double kSin[] = {-0x1.555556p-3, 0x1.111108p-7, -0x1.a00f34p-13,
                              0x1.6cbeeep-19};
static const double kCos[] = {0x1.555556p-5, -0x1.6c16b8p-10, 0x1.a010c6p-16,
                              -0x1.2417f8p-22};

// Above 2^30 the angle is m * 2^e with a 24-bit m: 2^e * 2 / pi mod 4, for e =
// 7 to 104, is looked up in two parts.
enum { kFirstExponent = 7, kExponents = 98 };

// 64 bits of 2/pi from binary place `at` on; places before the point are zero.
static uint64_t two_over_pi_bits(int at) {
  // 2/pi in binary, after the point, 64 bits a word.
  static const uint64_t words[] = {0xa2f9836e4e441529, 0xfc2757d1f534ddc0,
                                   0xdb6295993c439041, 0xfe5163abdebbc561,
                                   0xb7246e3a424dd2e0, 0x06492eea09d1921c};
  if (at < 0) return at > -64 ? words[0] >> -at : 0;
  int w = at / 64, s = at % 64;
  return s ? words[w] << s | words[w + 1] >> (64 - s) : words[w];
}

// The table of 2^e * 2/pi mod 4 as pairs (high: 29 bits, low: 53 bits), so that
// a 24-bit integer times the high part is exact.
static V angle_table(const at_math *m, bool low) {
  const char *name = low ? "at_angle_low" : "at_angle_high";
  V g = LLVMGetNamedGlobal(m->module, name);
  if (g) return g;
  LLVMTypeRef d = LLVMDoubleTypeInContext(m->ctx);
  V list[kExponents];
  for (int i = 0; i < kExponents; i++) {
    // Bits of weight 2^1, 2^0, 2^-1, ... of the scaled fraction.
    int at = i + kFirstExponent - 2;
    uint64_t first = two_over_pi_bits(at), second = two_over_pi_bits(at + 64);
    uint64_t high = first >> 35;
    double h = (double)high * 0x1p-27;
    double l = (double)(first & 0x7ffffffff) * 0x1p-62 +
               (double)(second >> 11) * 0x1p-115;
    list[i] = LLVMConstReal(d, low ? l : h);
  }
  LLVMTypeRef t = LLVMArrayType2(d, kExponents);
  g = LLVMAddGlobal(m->module, t, name);
  LLVMSetInitializer(g, LLVMConstArray2(d, list, kExponents));
  LLVMSetGlobalConstant(g, true);
  LLVMSetLinkage(g, LLVMPrivateLinkage);
  return g;
}

// One load for each lane.
static V look_up(const at_math *m, V table, V index) {
  LLVMTypeRef d = LLVMDoubleTypeInContext(m->ctx), t = LLVMTypeOf(index);
  if (LLVMGetTypeKind(t) != LLVMVectorTypeKind)
    return LLVMBuildLoad2(m->b, d, LLVMBuildGEP2(m->b, d, table, &index, 1, ""),
                          "");
  unsigned n = LLVMGetVectorSize(t);
  V r = LLVMGetPoison(LLVMVectorType(d, n));
  LLVMTypeRef lane_type = LLVMInt32TypeInContext(m->ctx);
  for (unsigned i = 0; i < n; i++) {
    V lane = LLVMConstInt(lane_type, i, false);
    V at = LLVMBuildExtractElement(m->b, index, lane, "");
    V p = LLVMBuildGEP2(m->b, d, table, &at, 1, "");
    r = LLVMBuildInsertElement(m->b, r, LLVMBuildLoad2(m->b, d, p, ""), lane,
                               "");
  }
  return r;
}

// r = |x| - n pi/2 for |x| <= 2^30, by f64 with a two-part pi/2; *out_q = n.
static V reduce_small(const at_math *m, V a, V *out_q) {
  V magic = real(a, 0x1.8p52);
  V t = FMA(a, real(a, 0x1.45f306dc9c883p-1), magic), n = SUB(t, magic);
  V low = CAST(t, i64(m, t));
  *out_q = LLVMBuildTrunc(m->b, low, i32(m, a), "");
  V r = FMA(n, real(a, -0x1.921fb54442d18p0), a);
  return FMA(n, real(a, -0x1.1a62633145c07p-54), r);
}

// The mantissa times the looked-up 2^e * 2/pi mod 4: its nearest integer is the
// quadrant, the rest times pi/2 the angle.
static V reduce_huge(const at_math *m, V x, V *out_q) {
  V i = IAND(bits(m, x), whole(bits(m, x), 0x7fffffff));
  V e = ISUB(LLVMBuildLShr(m->b, i, whole(i, 23), ""),
             whole(i, 150 + kFirstExponent));
  // Lanes that are not huge look anywhere in the table.
  V out = LLVMBuildICmp(m->b, LLVMIntUGE, e, whole(i, kExponents), "");
  V at = SEL(out, whole(i, 0), e);
  V mantissa = IOR(IAND(i, whole(i, 0x7fffff)), whole(i, 0x800000));
  V d = LLVMBuildSIToFP(m->b, mantissa, f64(m, i), "");
  V high = MUL(d, look_up(m, angle_table(m, false), at));
  V low = look_up(m, angle_table(m, true), at);
  V magic = real(d, 0x1.8p52), t = ADD(FMA(d, low, high), magic),
    n = SUB(t, magic);
  V fraction = FMA(d, low, SUB(high, n));
  *out_q = LLVMBuildTrunc(m->b, CAST(t, i64(m, t)), i32(m, i), "");
  return MUL(fraction, real(d, 0x1.921fb54442d18p0));
}

// |x| less the nearest multiple *out_q of pi/2, in f64; NaN for inf and NaN.
static V reduce(const at_math *m, V x, V *out_q) {
  V a = LLVMBuildFPExt(m->b, absolute(m, x), f64(m, x), "");
  V q, q_huge, small = reduce_small(m, a, &q),
               is_usual = LE(a, real(a, 0x1p30));
  at_math_rare rare;
  at_math_rare_begin(m, &rare, LLVMBuildNot(m->b, is_usual, ""));
  V huge = reduce_huge(m, x, &q_huge), finite = LT(a, real(a, __builtin_inf()));
  huge = SEL(finite, huge, real(a, __builtin_nan("")));
  huge = SEL(is_usual, small, huge);
  q_huge = SEL(is_usual, q, q_huge);
  at_math_rare_end(m, &rare);
  *out_q = at_math_rare_value(m, &rare, q, q_huge);
  return at_math_rare_value(m, &rare, small, huge);
}

// sin(r) and cos(r) for |r| <= pi/4, in r's type.
static void sin_cos(const at_math *m, V r, V *s, V *c) {
  V z = MUL(r, r);
  *s = FMA(MUL(r, z), POLY(z, kSin), r);
  // 1 - z/2 rounds; what it lost goes in with the rest of the series.
  V half = MUL(z, real(z, 0.5)), head = SUB(real(z, 1), half);
  V lost = SUB(SUB(real(z, 1), head), half);
  *c = ADD(head, FMA(MUL(z, z), POLY(z, kCos), lost));
}

// Back to the type of the argument.
static V narrow(const at_math *m, V wide, V like) {
  return LLVMBuildFPTrunc(m->b, wide, LLVMTypeOf(like), "");
}

// Is the quadrant odd? Then sine and cosine change places.
static V odd(const at_math *m, V q) {
  return INE(IAND(q, whole(q, 1)), whole(q, 0));
}
// Flips the sign where bit 1 of q is set.
static V turn(const at_math *m, V y, V q) {
  V sign = LLVMBuildShl(m->b, IAND(q, whole(q, 2)), whole(q, 30), "");
  return from_bits(m, IXOR(bits(m, y), sign));
}

// y with the sign of x multiplied in; x itself where it is too small to change.
static V odd_function(const at_math *m, V y, V x) {
  V i = bits(m, x), sign = IAND(i, whole(i, (int32_t)0x80000000));
  y = from_bits(m, IXOR(bits(m, y), sign));
  return SEL(LT(absolute(m, x), real(x, 0x1p-60)), x, y);
}

V at_math_f32_sin(const at_math *m, V x) {
  V s, c, q, r = narrow(m, reduce(m, x, &q), x);
  sin_cos(m, r, &s, &c);
  return odd_function(m, turn(m, SEL(odd(m, q), c, s), q), x);
}

// The sign turns a quadrant earlier than the sine's.
V at_math_f32_cos(const at_math *m, V x) {
  V s, c, q, r = narrow(m, reduce(m, x, &q), x);
  sin_cos(m, r, &s, &c);
  return turn(m, SEL(odd(m, q), s, c), IADD(q, whole(q, 1)));
}

// In f64 up to the division, since beside its poles errors grow.
V at_math_f32_tan(const at_math *m, V x) {
  V s, c, q, r = reduce(m, x, &q);
  sin_cos(m, r, &s, &c);
  V flip = odd(m, q);
  V y = DIV(SEL(flip, LLVMBuildFNeg(m->b, c, ""), s), SEL(flip, s, c));
  return odd_function(m, narrow(m, y, x), x);
}

// ---- pow
// ln(a) and e^t in f64, to about 2^-42: what an f32 power needs after y *
// ln(x).
static V wide_log(const at_math *m, V a) {
  LLVMTypeRef t64 = shaped(LLVMInt64TypeInContext(m->ctx), a);
  V i = LLVMBuildBitCast(m->b, a, t64, "");
  V e = LLVMBuildAShr(m->b, ISUB(i, whole(i, 0x3fe6a09e667f3bcd)), whole(i, 52),
                      "");
  V mantissa =
      LLVMBuildBitCast(m->b, ISUB(i, LLVMBuildShl(m->b, e, whole(i, 52), "")),
                       LLVMTypeOf(a), "");
  // ln(m) = 2 atanh((m - 1) / (m + 1)).
  V one = real(a, 1), s = DIV(SUB(mantissa, one), ADD(mantissa, one)),
    z = MUL(s, s);
  static const double odd_parts[] = {2.0,      2.0 / 3,  2.0 / 5,
                                     2.0 / 7,  2.0 / 9,  2.0 / 11,
                                     2.0 / 13, 2.0 / 15, 2.0 / 17};
  V n = LLVMBuildSIToFP(m->b, e, LLVMTypeOf(a), "");
  V y = FMA(n, real(a, 0.6931471805599453), MUL(s, POLY(z, odd_parts)));
  y = SEL(EQ(a, real(a, 0)), real(a, -__builtin_inf()), y);
  V finite = LT(a, real(a, __builtin_inf()));
  return SEL(finite, y, a);  // inf and NaN stay
}

// By a series of degree 10 on [-ln2/2, ln2/2].
static V wide_exp(const at_math *m, V t) {
  // Beyond these an f32 is 0 or inf.
  t = at_least(m, at_most(m, t, 200), -200);
  V magic = real(t, 0x1.8p52);
  V k = FMA(t, real(t, 1.4426950408889634), magic), n = SUB(k, magic);
  V r = FMA(n, real(t, -0.6931471805599453), t);
  static const double series[] = {
      1.0,       1.0,        1.0 / 2,     1.0 / 6,      1.0 / 24,     1.0 / 120,
      1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800};
  LLVMTypeRef t64 = shaped(LLVMInt64TypeInContext(m->ctx), t);
  V i = ISUB(LLVMBuildBitCast(m->b, k, t64, ""),
             LLVMBuildBitCast(m->b, magic, t64, ""));
  V scale = LLVMBuildShl(m->b, IADD(i, whole(i, 1023)), whole(i, 52), "");
  return MUL(POLY(r, series), LLVMBuildBitCast(m->b, scale, LLVMTypeOf(t), ""));
}

// e^(y ln |x|) in f64, then C's rules for signs and special values.
V at_math_f32_pow(const at_math *m, V x, V y) {
  V a = LLVMBuildFPExt(m->b, absolute(m, x), f64(m, x), "");
  V b = LLVMBuildFPExt(m->b, y, f64(m, y), "");
  V r = LLVMBuildFPTrunc(m->b, wide_exp(m, MUL(b, wide_log(m, a))),
                         LLVMTypeOf(x), "");
  return at_math_pow_rules(m, x, y, r);
}
