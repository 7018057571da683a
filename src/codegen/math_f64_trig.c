// Vector bodies of the f64 circular functions and their inverses. Coefficients
// are tools/minimax.py's, errors are in docs/math.md.
#include "codegen/math_bodies.h"
#include "codegen/math_ops.h"

// Branches on "any lane": usual vectors pay one test.
void at_math_rare_begin(const at_math *m, at_math_rare *r, V rare) {
  LLVMTypeRef t = LLVMTypeOf(rare);
  V any = rare;
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) {
    V mask = CAST(rare, LLVMIntTypeInContext(m->ctx, LLVMGetVectorSize(t)));
    any = INE(mask, whole(mask, 0));
  }
  r->from = LLVMGetInsertBlock(m->b);
  V fn = LLVMGetBasicBlockParent(r->from);
  LLVMBasicBlockRef slow = LLVMAppendBasicBlockInContext(m->ctx, fn, "rare");
  r->join = LLVMAppendBasicBlockInContext(m->ctx, fn, "");
  LLVMBuildCondBr(m->b, any, slow, r->join);
  LLVMPositionBuilderAtEnd(m->b, slow);
}

// Both ways meet here.
void at_math_rare_end(const at_math *m, at_math_rare *r) {
  r->slow = LLVMGetInsertBlock(m->b);
  LLVMBuildBr(m->b, r->join);
  LLVMPositionBuilderAtEnd(m->b, r->join);
}

// A phi of what the two ways made.
V at_math_rare_value(const at_math *m, const at_math_rare *r, V usual,
                     V other) {
  V phi = LLVMBuildPhi(m->b, LLVMTypeOf(usual), "");
  LLVMAddIncoming(phi, (V[]){usual, other},
                  (LLVMBasicBlockRef[]){r->from, r->slow}, 2);
  return phi;
}

// The call's results are taken in the rare lanes only.
V at_math_patch(const at_math *m, V y, V rare, const char *name, V x, V x2) {
  at_math_rare r;
  at_math_rare_begin(m, &r, rare);
  V patched = SEL(rare, at_math_call(m, name, x, x2), y);
  at_math_rare_end(m, &r);
  return at_math_rare_value(m, &r, y, patched);
}

// ---- sin, cos, tan
static const double kSin64[] = {-0x1.5555555555549p-3,  0x1.111111110f861p-7,
                                -0x1.a01a019c0e4c6p-13, 0x1.71de3574baa43p-19,
                                -0x1.ae5e63cdc4225p-26, 0x1.5d9246e02bebdp-33};
static const double kCos64[] = {0x1.555555555554cp-5,  -0x1.6c16c16c15162p-10,
                                0x1.a01a019caef32p-16, -0x1.27e4f807d5f53p-22,
                                0x1.1ee9ea6ca600ap-29, -0x1.8fadd06293acap-37};
// pi/2 in three parts of 53 bits.
static const double kHalfPi[] = {0x1.921fb54442d18p0, 0x1.1a62633145c07p-54,
                                 -0x1.f1976b7ed8fbcp-110};
static const double kFar = 0x1p30;  // beyond: the library's reduction

typedef struct angle {
  V h, l;  // x - q pi/2 = h + l, |h| <= pi/4 and a little
  V q;     // i64; its two low bits count
} angle;

// Three parts of pi/2, so that h + l is right to about 2^-100 for |x| < kFar.
static angle reduce(const at_math *m, V x) {
  V magic = real(x, 0x1.8p52);
  V t = FMA(x, real(x, 0x1.45f306dc9c883p-1), magic), n = SUB(t, magic);
  // Exact: both terms are multiples of 2^-52 (or of x's last place), the rest
  // is small.
  V r = FMA(n, real(x, -kHalfPi[0]), x);
  V p = MUL(n, real(x, kHalfPi[1])), pl = FMA(n, real(x, kHalfPi[1]), NEG(p));
  V h = SUB(r, p), back = SUB(h, r);
  V lost = SUB(SUB(r, SUB(h, back)), ADD(p, back));
  V l = SUB(lost, FMA(n, real(x, kHalfPi[2]), pl));
  V sum = ADD(h, l);
  return (angle){sum, ADD(SUB(h, sum), l), CAST(t, i64(m, x))};
}

// The low part enters by the derivative: l cos h, -l sin h.
static void sin_cos(const at_math *m, angle a, V *s, V *c) {
  V z = MUL(a.h, a.h), half = MUL(z, real(z, 0.5)),
    head = SUB(real(z, 1), half);
  V odd = FMA(MUL(a.h, z), POLY(z, kSin64), MUL(a.l, head));
  *s = ADD(a.h, odd);
  // 1 - z/2 rounds; what it lost goes in with the rest of the series.
  V lost = SUB(SUB(real(z, 1), head), half);
  V rest = FMA(MUL(z, z), POLY(z, kCos64), lost);
  *c = ADD(head, FMA(NEG(a.h), a.l, rest));
}

// Sine and cosine change places.
static V is_odd(const at_math *m, V q) {
  return INE(IAND(q, whole(q, 1)), whole(q, 0));
}
// Flips the sign where bit 1 of q is set.
static V turn(const at_math *m, V y, V q) {
  V sign = SHL(IAND(q, whole(q, 2)), 62);
  return CAST(IXOR(CAST(y, i64(m, y)), sign), f64(m, y));
}
// Angles that need more bits of pi than `reduce` has.
static V far(const at_math *m, V x) {  // NaN too
  return INOT(LT(absolute(m, x), real(x, kFar)));
}
// Where the polynomial would only round x.
static V keep_tiny(const at_math *m, V y, V x) {
  return SEL(LT(absolute(m, x), real(x, 0x1p-60)), x, y);
}

V at_math_f64_sin(const at_math *m, V x) {
  V s, c;
  angle a = reduce(m, x);
  sin_cos(m, a, &s, &c);
  V y = keep_tiny(m, turn(m, SEL(is_odd(m, a.q), c, s), a.q), x);
  return at_math_patch(m, y, far(m, x), "sin", x, NULL);
}

// The sign turns a quadrant earlier than the sine's.
V at_math_f64_cos(const at_math *m, V x) {
  V s, c;
  angle a = reduce(m, x);
  sin_cos(m, a, &s, &c);
  V y = turn(m, SEL(is_odd(m, a.q), s, c), IADD(a.q, whole(a.q, 1)));
  return at_math_patch(m, y, far(m, x), "cos", x, NULL);
}

// A quotient of both; by -1 / tan in odd quadrants.
V at_math_f64_tan(const at_math *m, V x) {
  V s, c;
  angle a = reduce(m, x);
  sin_cos(m, a, &s, &c);
  V flip = is_odd(m, a.q);
  V y = DIV(SEL(flip, NEG(c), s), SEL(flip, s, c));
  return at_math_patch(m, keep_tiny(m, y, x), far(m, x), "tan", x, NULL);
}

// ---- asin, acos
static const double kAsin64[] = {
    0x1.5555555555578p-3, 0x1.333333332df7ep-4, 0x1.6db6db7226114p-5,
    0x1.f1c71a8dc1103p-6, 0x1.6e8bdfa6ad505p-6, 0x1.1c49e2b70e786p-6,
    0x1.ca20ce7668a4cp-7, 0x1.757b76d70090cp-7, 0x1.6174050bce731p-7,
    0x1.e2bd932fd5a94p-9, 0x1.6492f8499d13ep-6, -0x1.5954e6f20ac20p-6,
    0x1.0bb081ca6f19ep-5};
static const double kHalfPiLow = 0x1.1a62633145c07p-54;

// asin(s) = s + *rest, where s is |x|, or sqrt((1 - |x|) / 2) from 1/2 on.
static V asin_core(const at_math *m, V a, V small, V *rest) {
  V z = SEL(small, MUL(a, a), MUL(SUB(real(a, 1), a), real(a, 0.5)));
  V s = SEL(small, a, at_math_sqrt(m, z));
  *rest = MUL(MUL(s, z), POLY(z, kAsin64));
  return s;
}

// pi/2 - 2 asin(sqrt((1 - a) / 2)) from 1/2 on.
V at_math_f64_asin(const at_math *m, V x) {
  V a = absolute(m, x), small = LT(a, real(x, 0.5)), rest;
  V s = asin_core(m, a, small, &rest), near = ADD(s, rest);
  V low = SUB(ADD(near, near), real(x, kHalfPiLow));
  return copysign_(m, SEL(small, near, SUB(real(x, kHalfPi[0]), low)), x);
}

// The low part of pi/2 goes in last.
V at_math_f64_acos(const at_math *m, V x) {
  V a = absolute(m, x), small = LT(a, real(x, 0.5)), rest;
  V s = asin_core(m, a, small, &rest);
  V low = real(x, kHalfPiLow), half_pi = real(x, kHalfPi[0]);
  // pi/2 - asin(x) in the middle, 2 asin(s) on the right, pi - 2 asin(s) on the
  // left.
  V middle = SUB(half_pi, SUB(x, SUB(low, copysign_(m, rest, x))));
  V right = MUL(ADD(s, rest), real(x, 2));
  V left = SUB(real(x, 2 * kHalfPi[0]), SUB(right, ADD(low, low)));
  V y = SEL(LT(x, real(x, 0)), left, right);
  return SEL(small, middle, y);
}

// ---- atan, atan2
static const double kAtan64[] = {
    -0x1.5555555555554p-2, 0x1.9999999999652p-3,  -0x1.249249247598dp-3,
    0x1.c71c71b75b392p-4,  -0x1.745d14bba231bp-4, 0x1.3b136e503e051p-4,
    -0x1.110c74611eb3dp-4, 0x1.e17217eaa78dfp-5,  -0x1.ab7df39bb220ap-5,
    0x1.70ee93f7fcacap-5,  -0x1.1239ac816d8d5p-5, 0x1.f1ec9dd13144dp-7};
static const double kTanEighth = 0.41421356237309503;  // tan(pi / 8)

// k pi/4 + s atan(num / den) for |num / den| <= tan(pi/8), s the sign that
// `flip` says.
static V atan_sum(const at_math *m, V num, V den, V k, V flip) {
  V t = DIV(num, den), z = MUL(t, t);
  if (flip) t = SEL(flip, NEG(t), t);
  V h = MUL(k, real(k, kHalfPi[0] / 2));
  V l =
      FMA(k, real(k, kHalfPi[1] / 2), FMA(k, real(k, kHalfPi[0] / 2), NEG(h)));
  V rest = FMA(MUL(t, z), POLY(z, kAtan64), l);
  return ADD(h, ADD(t, rest));
}

// Three ranges: a, (a - 1) / (a + 1) and -1 / a, each at most tan(pi/8).
V at_math_f64_atan(const at_math *m, V x) {
  V a = absolute(m, x), one = real(x, 1), zero = real(x, 0);
  V middle = GT(a, real(x, kTanEighth)), big = GT(a, real(x, 1 / kTanEighth));
  V num = SEL(big, real(x, -1), SEL(middle, SUB(a, one), a));
  V den = SEL(big, a, SEL(middle, ADD(a, one), one));
  V k = SEL(big, real(x, 2), SEL(middle, one, zero));
  return copysign_(m, atan_sum(m, num, den, k, NULL), x);
}

// The smaller by the larger of the two, scaled so that neither is denormal nor
// overflows; the octant adds multiples of pi/4. NaN where one is.
V at_math_f64_atan2(const at_math *m, V y, V x) {
  V ax = absolute(m, x), ay = absolute(m, y), zero = real(x, 0),
    one = real(x, 1);
  V swap = GT(ay, ax), hi = SEL(swap, ay, ax), lo = SEL(swap, ax, ay);
  // Both infinite, both zero: the angle of (1, 1), of (0, 1).
  V inf = real(x, __builtin_inf()), both = EQ(lo, inf);
  hi = SEL(both, one, SEL(EQ(hi, zero), one, hi));
  lo = SEL(both, one, lo);
  V factor = SEL(GT(hi, real(x, 0x1p1000)), real(x, 0x1p-100), one);
  factor = SEL(LT(hi, real(x, 0x1p-800)), real(x, 0x1p200), factor);
  hi = MUL(hi, factor);
  lo = MUL(lo, factor);
  V middle = GT(lo, MUL(hi, real(x, kTanEighth)));
  V num = SEL(middle, SUB(lo, hi), lo), den = SEL(middle, ADD(lo, hi), hi);
  V k = SEL(middle, one, zero), left = LT(copysign_(m, one, x), zero);
  k = SEL(swap, SUB(real(x, 2), k), k);
  k = SEL(left, SUB(real(x, 4), k), k);
  V r = copysign_(m, atan_sum(m, num, den, k, IXOR(swap, left)), y);
  return SEL(LLVMBuildFCmp(m->b, LLVMRealUNO, x, y, ""), ADD(x, y), r);
}
