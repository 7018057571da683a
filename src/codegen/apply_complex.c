// Elementwise ops on complex registers.
#include "codegen/emit.h"

#include <llvm-c/Core.h>

static LLVMValueRef add(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFAdd(e->b, a, b, "");
}
static LLVMValueRef sub(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFSub(e->b, a, b, "");
}
static LLVMValueRef mul(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFMul(e->b, a, b, "");
}
static LLVMValueRef divide(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFDiv(e->b, a, b, "");
}
static LLVMValueRef neg(at_em *e, LLVMValueRef a) {
  return LLVMBuildFNeg(e->b, a, "");
}
static LLVMValueRef cf(at_em *e, LLVMValueRef like, double v) {
  return at_em_cf(e, LLVMTypeOf(like), v);
}
static LLVMValueRef sel(at_em *e, LLVMValueRef c, LLVMValueRef a,
                        LLVMValueRef b) {
  return LLVMBuildSelect(e->b, c, a, b, "");
}
static LLVMValueRef fabs_(at_em *e, LLVMValueRef a) {
  return at_math_intrinsic(&e->math, "llvm.fabs", &a, 1);
}
static LLVMValueRef copysign_(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  LLVMValueRef args[2] = {a, b};
  return at_math_intrinsic(&e->math, "llvm.copysign", args, 2);
}
// Compares with a constant; lanes as `a` has them.
static LLVMValueRef fcmp(at_em *e, LLVMRealPredicate p, LLVMValueRef a,
                         double c) {
  return LLVMBuildFCmp(e->b, p, a, cf(e, a, c), "");
}
// Of two numbers that are not NaN; b where one is.
static LLVMValueRef bigger(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  return sel(e, LLVMBuildFCmp(e->b, LLVMRealOGT, a, b, ""), a, b);
}
// The other one of `bigger`.
static LLVMValueRef smaller(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  return sel(e, LLVMBuildFCmp(e->b, LLVMRealOGT, a, b, ""), b, a);
}

// hypot without overflow: m * sqrt(1 + (n/m)^2).
static LLVMValueRef magnitude(at_em *e, at_val a) {
  LLVMValueRef x = fabs_(e, a.re), y = fabs_(e, a.im);
  LLVMValueRef m = bigger(e, x, y), n = smaller(e, x, y);
  LLVMValueRef q = divide(e, n, m);
  LLVMValueRef r =
      mul(e, m, at_math_sqrt(&e->math, add(e, cf(e, m, 1), mul(e, q, q))));
  r = sel(e, fcmp(e, LLVMRealOEQ, m, 0), m, r);
  LLVMValueRef inf = LLVMBuildOr(e->b, fcmp(e, LLVMRealOEQ, x, __builtin_inf()),
                                 fcmp(e, LLVMRealOEQ, y, __builtin_inf()), "");
  LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, y, "");
  r = sel(e, nan, add(e, x, y), r);
  return sel(e, inf, cf(e, m, __builtin_inf()), r);
}

// The plain formula: infinities beside NaN are not recovered, as in the
// evaluator.
static at_val c_mul(at_em *e, at_val a, at_val b) {
  return (at_val){sub(e, mul(e, a.re, b.re), mul(e, a.im, b.im)),
                  add(e, mul(e, a.re, b.im), mul(e, a.im, b.re))};
}

// Both parts times k, a power of two: exact.
static at_val c_scale(at_em *e, at_val a, LLVMValueRef k) {
  return (at_val){mul(e, a.re, k), mul(e, a.im, k)};
}
// What decides about scaling: squares of it may overflow.
static LLVMValueRef largest_part(at_em *e, at_val a) {
  return bigger(e, fabs_(e, a.re), fabs_(e, a.im));
}

// Smith's method, of quarters next to the largest numbers: no overflow in the
// denominator.
static at_val c_div(at_em *e, at_val a, at_val b) {
  LLVMValueRef most = bigger(e, largest_part(e, a), largest_part(e, b));
  LLVMValueRef k = sel(e, fcmp(e, LLVMRealOGT, most, 1e30), cf(e, a.re, 0.25),
                       cf(e, a.re, 1));
  a = c_scale(e, a, k);
  b = c_scale(e, b, k);
  LLVMValueRef wide =
      LLVMBuildFCmp(e->b, LLVMRealOGE, fabs_(e, b.re), fabs_(e, b.im), "");
  LLVMValueRef p = sel(e, wide, b.re, b.im), q = sel(e, wide, b.im, b.re);
  LLVMValueRef r = divide(e, q, p), d = add(e, p, mul(e, q, r));
  LLVMValueRef x = sel(e, wide, a.re, a.im), y = sel(e, wide, a.im, a.re);
  LLVMValueRef re = divide(e, add(e, x, mul(e, y, r)), d);
  LLVMValueRef t = sub(e, mul(e, x, r), y);
  LLVMValueRef im = divide(e, sel(e, wide, neg(e, t), t), d);
  // x / 0 and finite / inf as C's annex G has them.
  LLVMValueRef zero = LLVMBuildAnd(e->b, fcmp(e, LLVMRealOEQ, b.re, 0),
                                   fcmp(e, LLVMRealOEQ, b.im, 0), "");
  LLVMValueRef inf = copysign_(e, cf(e, a.re, __builtin_inf()), b.re);
  re = sel(e, zero, mul(e, inf, a.re), re);
  im = sel(e, zero, mul(e, inf, a.im), im);
  LLVMValueRef b_inf =
      LLVMBuildOr(e->b, fcmp(e, LLVMRealOEQ, fabs_(e, b.re), __builtin_inf()),
                  fcmp(e, LLVMRealOEQ, fabs_(e, b.im), __builtin_inf()), "");
  LLVMValueRef a_fin =
      LLVMBuildAnd(e->b, fcmp(e, LLVMRealOLT, fabs_(e, a.re), __builtin_inf()),
                   fcmp(e, LLVMRealOLT, fabs_(e, a.im), __builtin_inf()), "");
  LLVMValueRef vanish = LLVMBuildAnd(e->b, b_inf, a_fin, "");
  re = sel(e, vanish, cf(e, re, 0), re);
  im = sel(e, vanish, cf(e, im, 0), im);
  return (at_val){re, im};
}

// f64 parts?
static bool is_wide(LLVMValueRef v) {
  return at_em_bits_of(LLVMTypeOf(v)) == 64;
}

// Where e^x, or the parts of cosh x, overflow but a sine or cosine may bring
// them back: the square root of e^x in *half, and whether x is there.
static LLVMValueRef far_exp(at_em *e, LLVMValueRef x, LLVMValueRef *half) {
  *half = at_math_exp(&e->math, mul(e, x, cf(e, x, 0.5)));
  return fcmp(e, LLVMRealOGT, x, is_wide(x) ? 709 : 88);
}

// e^x (cos y + i sin y). Real numbers stay real, e^-inf is 0 whatever the
// angle, and where e^x alone overflows it is multiplied in as two square roots.
static at_val c_exp(at_em *e, at_val a) {
  LLVMValueRef m = at_math_exp(&e->math, a.re), half;
  LLVMValueRef far = far_exp(e, a.re, &half);
  LLVMValueRef real = fcmp(e, LLVMRealOEQ, a.im, 0);
  LLVMValueRef none = fcmp(e, LLVMRealOEQ, m, 0);
  LLVMValueRef c = at_math_cos(&e->math, a.im), s = at_math_sin(&e->math, a.im);
  LLVMValueRef re = sel(e, far, mul(e, mul(e, c, half), half), mul(e, m, c));
  LLVMValueRef im = sel(e, far, mul(e, mul(e, s, half), half), mul(e, m, s));
  // Else 0 times an infinite angle's NaN would be NaN.
  re = sel(e, real, m, sel(e, none, m, re));
  im = sel(e, real, a.im, sel(e, none, m, im));
  return (at_val){re, im};
}

// Without the cancellation of e^z - 1 near 0.
static at_val c_expm1(at_em *e, at_val a) {
  // e^x cos y - 1 = expm1(x) cos y - 2 sin^2(y/2)
  at_math *m = &e->math;
  LLVMValueRef half = at_math_sin(m, mul(e, a.im, cf(e, a.im, 0.5)));
  LLVMValueRef re = sub(e, mul(e, at_math_expm1(m, a.re), at_math_cos(m, a.im)),
                        mul(e, cf(e, a.re, 2), mul(e, half, half)));
  LLVMValueRef im = mul(e, at_math_exp(m, a.re), at_math_sin(m, a.im));
  LLVMValueRef real = fcmp(e, LLVMRealOEQ, a.im, 0);
  return (at_val){sel(e, real, at_math_expm1(m, a.re), re),
                  sel(e, real, a.im, im)};
}

// The larger part m and the smaller n; infinities give inf even beside NaN. The
// imaginary part is the angle.
static at_val c_log(at_em *e, at_val a) {
  // ln |z| = ln m + ln1p((n/m)^2) / 2; near |z| = 1 the small part counts.
  at_math *k = &e->math;
  LLVMValueRef x = fabs_(e, a.re), y = fabs_(e, a.im);
  LLVMValueRef m = bigger(e, x, y), n = smaller(e, x, y);
  LLVMValueRef one = cf(e, m, 1), half = cf(e, m, 0.5);
  LLVMValueRef q = divide(e, n, m);
  LLVMValueRef far =
      add(e, at_math_log(k, m), mul(e, half, at_math_log1p(k, mul(e, q, q))));
  LLVMValueRef d = sub(e, m, one);
  LLVMValueRef near = add(e, mul(e, d, add(e, m, one)), mul(e, n, n));
  near = mul(e, half, at_math_log1p(k, near));
  // There |z|^2 - 1 = (m - 1) (m + 1) + n^2 is exact enough for ln1p.
  LLVMValueRef close = LLVMBuildAnd(e->b, fcmp(e, LLVMRealOGT, m, 0.7),
                                    fcmp(e, LLVMRealOLT, m, 1.5), "");
  LLVMValueRef re = sel(e, close, near, far);
  re = sel(e, fcmp(e, LLVMRealOEQ, m, 0), at_math_log(k, m), re);
  LLVMValueRef inf = LLVMBuildOr(e->b, fcmp(e, LLVMRealOEQ, x, __builtin_inf()),
                                 fcmp(e, LLVMRealOEQ, y, __builtin_inf()), "");
  re = sel(e, inf, cf(e, re, __builtin_inf()), re);
  LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, y, "");
  nan = LLVMBuildAnd(e->b, nan, LLVMBuildNot(e->b, inf, ""), "");
  re = sel(e, nan, add(e, x, y), re);
  return (at_val){re, at_math_atan2(k, a.im, a.re)};
}

// By |1 + z|^2 - 1 where z is small, else by the logarithm of 1 + z.
static at_val c_log1p(at_em *e, at_val a) {
  // |1+z|^2 - 1 = 2x + x^2 + y^2
  LLVMValueRef s =
      add(e, mul(e, a.re, add(e, cf(e, a.re, 2), a.re)), mul(e, a.im, a.im));
  LLVMValueRef re = mul(e, cf(e, s, 0.5), at_math_log1p(&e->math, s));
  at_val one = {add(e, a.re, cf(e, a.re, 1)), a.im};
  at_val far = c_log(e, one);
  LLVMValueRef tiny =
      LLVMBuildAnd(e->b, fcmp(e, LLVMRealOLT, fabs_(e, a.re), 0.5),
                   fcmp(e, LLVMRealOLT, fabs_(e, a.im), 0.5), "");
  return (at_val){sel(e, tiny, re, far.re), far.im};
}

// t = sqrt((|z| + |x|) / 2) is the larger part of the root, |y| / 2t the
// smaller; which one is real follows from x's sign. Large and small numbers are
// scaled by an even power of two first.
static at_val c_sqrt(at_em *e, at_val a) {
  LLVMValueRef x = fabs_(e, a.re), one = cf(e, x, 1);
  LLVMValueRef half = cf(e, x, 0.5), two = cf(e, x, 2);
  LLVMValueRef m = largest_part(e, a);
  LLVMValueRef big = fcmp(e, LLVMRealOGT, m, 1e30);
  LLVMValueRef small = fcmp(e, LLVMRealOLT, m, 1e-30);
  LLVMValueRef s = sel(e, big, cf(e, x, 0.25), one);
  s = sel(e, small, cf(e, x, 0x1p60), s);
  at_val scaled = {mul(e, a.re, s), mul(e, a.im, s)};
  LLVMValueRef r = magnitude(e, scaled);
  LLVMValueRef t =
      at_math_sqrt(&e->math, mul(e, half, add(e, r, mul(e, x, s))));
  t = mul(e, t, sel(e, big, two, sel(e, small, cf(e, x, 0x1p-30), one)));
  LLVMValueRef u = divide(e, fabs_(e, a.im), mul(e, two, t));
  LLVMValueRef right = fcmp(e, LLVMRealOGE, a.re, 0);
  LLVMValueRef zero = fcmp(e, LLVMRealOEQ, t, 0);
  u = sel(e, zero, cf(e, u, 0), u);
  LLVMValueRef re = sel(e, right, t, u), im = sel(e, right, u, t);
  LLVMValueRef inf = fcmp(e, LLVMRealOEQ, fabs_(e, a.im), __builtin_inf());
  re = sel(e, inf, fabs_(e, a.im), re);
  im = sel(e, inf, fabs_(e, a.im), im);
  return (at_val){re, copysign_(e, im, a.im)};
}

// Both parts in another precision.
static at_val c_resize(at_em *e, at_val a, LLVMTypeRef part) {
  return (at_val){LLVMBuildFPCast(e->b, a.re, part, ""),
                  LLVMBuildFPCast(e->b, a.im, part, "")};
}

// Parts in f64.
static at_val c_widen(at_em *e, at_val a) {
  LLVMTypeRef wide = LLVMDoubleTypeInContext(e->ctx), t = LLVMTypeOf(a.re);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind)
    wide = LLVMVectorType(wide, LLVMGetVectorSize(t));
  return c_resize(e, a, wide);
}

// The principal value.
static at_val c_pow(at_em *e, at_val a, at_val b) {
  // exp(b ln a), where an error in b ln a counts as often as it is large: f32
  // goes through f64. 0^0 = 1, 0^b = 0 for Re b > 0.
  at_val x = c_widen(e, a), y = c_widen(e, b);
  at_val r = c_exp(e, c_mul(e, y, c_log(e, x)));
  r = c_resize(e, r, LLVMTypeOf(a.re));
  LLVMValueRef zero = LLVMBuildAnd(e->b, fcmp(e, LLVMRealOEQ, a.re, 0),
                                   fcmp(e, LLVMRealOEQ, a.im, 0), "");
  LLVMValueRef none = LLVMBuildAnd(e->b, fcmp(e, LLVMRealOEQ, b.re, 0),
                                   fcmp(e, LLVMRealOEQ, b.im, 0), "");
  LLVMValueRef rises =
      LLVMBuildAnd(e->b, zero, fcmp(e, LLVMRealOGT, b.re, 0), "");
  r.re = sel(e, rises, cf(e, r.re, 0), r.re);
  r.im = sel(e, rises, cf(e, r.im, 0), r.im);
  r.re = sel(e, none, cf(e, r.re, 1), r.re);
  r.im = sel(e, none, cf(e, r.im, 0), r.im);
  return r;
}

// Zero stays zero next to a factor that overflowed: sin 0 * cosh 1000.
static LLVMValueRef mul0(at_em *e, LLVMValueRef zero, LLVMValueRef big) {
  LLVMValueRef is_zero = fcmp(e, LLVMRealOEQ, zero, 0);
  LLVMValueRef one = copysign_(e, cf(e, zero, 1), big);
  return mul(e, zero, sel(e, is_zero, one, big));
}

static at_val c_tanh(at_em *e, at_val a) {
  // (sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y): nothing cancels, at
  // the poles either. For large |x|: 1 + i 4 sin y cos y e^(-2 |x|).
  at_math *m = &e->math;
  LLVMValueRef x = fabs_(e, a.re), far = fcmp(e, LLVMRealOGT, x, 20);
  LLVMValueRef near = sel(e, far, cf(e, x, 20), x);
  LLVMValueRef sh = at_math_sinh(m, near), ch = at_math_cosh(m, near);
  LLVMValueRef s = at_math_sin(m, a.im), c = at_math_cos(m, a.im);
  LLVMValueRef sc = mul(e, s, c);
  LLVMValueRef d = add(e, mul(e, sh, sh), mul(e, c, c));
  LLVMValueRef re = divide(e, mul(e, sh, ch), d), im = divide(e, sc, d);
  LLVMValueRef tail = at_math_exp(m, mul(e, cf(e, x, -2), x));
  // Ends as in C's annex G: no angle (y infinite or NaN) leaves +-1 at infinite
  // x, +-0 + i NaN at 0 and NaN elsewhere; y = 0 stays what it is beside NaN.
  // Here sin y cos y is NaN where there is no angle.
  LLVMValueRef endless = fcmp(e, LLVMRealOEQ, x, __builtin_inf());
  LLVMValueRef no_angle = LLVMBuildFCmp(e->b, LLVMRealUNO, sc, sc, "");
  LLVMValueRef one = sel(e, endless, cf(e, x, 1),
                         add(e, cf(e, x, 1), mul(e, sc, cf(e, x, 0))));
  re = copysign_(e, sel(e, far, one, re), a.re);
  re = sel(e, fcmp(e, LLVMRealOEQ, x, 0), a.re, re);
  im = sel(e, far, mul(e, mul(e, cf(e, x, 4), sc), tail), im);
  im = sel(e, LLVMBuildAnd(e->b, endless, no_angle, ""), cf(e, x, 0), im);
  im = sel(e, fcmp(e, LLVMRealOEQ, a.im, 0), a.im, im);
  return (at_val){re, im};
}

static at_val c_logistic(at_em *e, at_val a) {
  // With E = e^-|x|: |1 + E e^iy|^2 = (1 - E)^2 + 4 E cos^2(y / 2), and the
  // same for its real part, so that nothing cancels beside the poles.
  at_math *m = &e->math;
  LLVMValueRef x = neg(e, fabs_(e, a.re)), two = cf(e, x, 2);
  LLVMValueRef E = at_math_exp(m, x), gap = neg(e, at_math_expm1(m, x));
  LLVMValueRef c = at_math_cos(m, mul(e, a.im, cf(e, x, 0.5)));
  LLVMValueRef cc = mul(e, c, c), part = mul(e, mul(e, two, E), cc);
  LLVMValueRef d = add(e, mul(e, gap, gap), mul(e, two, part));
  // x >= 0: (1 + E cos y + i E sin y) / d; else E (E + cos y + i sin y) / d.
  LLVMValueRef right = add(e, gap, part);
  LLVMValueRef left = mul(e, E, sub(e, mul(e, two, cc), gap));
  LLVMValueRef negative = fcmp(e, LLVMRealOLT, a.re, 0);
  LLVMValueRef im = mul(e, E, at_math_sin(m, a.im));
  LLVMValueRef re = divide(e, sel(e, negative, left, right), d);
  im = divide(e, im, d);
  // What e^-|x| times sin or cos of infinity would spoil.
  LLVMValueRef none = fcmp(e, LLVMRealOEQ, E, 0);
  re = sel(e, none, sel(e, negative, cf(e, x, 0), cf(e, x, 1)), re);
  im = sel(e, none, cf(e, x, 0), im);
  return (at_val){re, sel(e, fcmp(e, LLVMRealOEQ, a.im, 0), a.im, im)};
}

// The principal root: a third of the angle.
static at_val c_cbrt(at_em *e, at_val a) {
  at_math *m = &e->math;
  // So that the magnitude neither overflows nor is denormal.
  LLVMValueRef most = largest_part(e, a), one = cf(e, a.re, 1);
  LLVMValueRef big = fcmp(e, LLVMRealOGT, most, 1e30);
  LLVMValueRef small = fcmp(e, LLVMRealOLT, most, 1e-30);
  LLVMValueRef up = sel(e, small, cf(e, a.re, 0x1p60), one);
  LLVMValueRef back = sel(e, small, cf(e, a.re, 0x1p-20), one);
  at_val near = c_scale(e, a, sel(e, big, cf(e, a.re, 0.125), up));
  LLVMValueRef r = at_math_cbrt(m, magnitude(e, near));
  r = mul(e, r, sel(e, big, cf(e, r, 2), back));
  LLVMValueRef third = mul(e, at_math_atan2(m, a.im, a.re), cf(e, r, 1.0 / 3));
  return (at_val){mul(e, r, at_math_cos(m, third)),
                  mul(e, r, at_math_sin(m, third))};
}

// Exact; with times_minus_i it turns hyperbolic functions into circular ones.
static at_val times_i(at_em *e, at_val a) {
  return (at_val){neg(e, a.im), a.re};
}

// Exact.
static at_val times_minus_i(at_em *e, at_val a) {
  return (at_val){a.im, neg(e, a.re)};
}

// sin z = sin x cosh y + i cos x sinh y; cos z = cos x cosh y - i sin x sinh y.
static at_val c_trig(at_em *e, at_op op, at_val a) {
  at_math *m = &e->math;
  LLVMValueRef s = at_math_sin(m, a.re), c = at_math_cos(m, a.re);
  LLVMValueRef sh = at_math_sinh(m, a.im), ch = at_math_cosh(m, a.im), half;
  LLVMValueRef far = far_exp(e, fabs_(e, a.im), &half);
  // Beyond, both are the square of `half`, halved.
  LLVMValueRef one = cf(e, s, 1), again = sel(e, far, half, one);
  ch = sel(e, far, mul(e, half, cf(e, s, 0.5)), ch);
  sh = sel(e, far, copysign_(e, ch, a.im), sh);
  at_val r = op == AT_OP_SINE ? (at_val){mul0(e, s, ch), mul0(e, sh, c)}
                              : (at_val){mul(e, c, ch), neg(e, mul0(e, s, sh))};
  // A zero stays one.
  return (at_val){mul0(e, r.re, again), mul0(e, r.im, again)};
}

// atan w for |w| < 1, also where it is small.
static at_val c_atan(at_em *e, at_val w) {
  at_math *m = &e->math;
  LLVMValueRef one = cf(e, w.re, 1), v = sub(e, one, w.im);
  LLVMValueRef uu = mul(e, w.re, w.re), vv = mul(e, w.im, w.im);
  LLVMValueRef re = at_math_atan2(m, mul(e, w.re, cf(e, w.re, 2)),
                                  sub(e, sub(e, one, uu), vv));
  LLVMValueRef d = add(e, uu, mul(e, v, v));
  LLVMValueRef im =
      at_math_log1p(m, divide(e, mul(e, cf(e, w.re, 4), w.im), d));
  return (at_val){mul(e, re, cf(e, w.re, 0.5)), mul(e, im, cf(e, w.re, 0.25))};
}

// A power of two that makes the squares of numbers up to m harmless.
static LLVMValueRef square_scale(at_em *e, LLVMValueRef m) {
  bool wide = is_wide(m);
  LLVMValueRef down = cf(e, m, wide ? 0x1p-520 : 0x1p-70);
  LLVMValueRef up = cf(e, m, wide ? 0x1p600 : 0x1p90);
  LLVMValueRef big = fcmp(e, LLVMRealOGT, m, wide ? 0x1p500 : 0x1p60);
  LLVMValueRef tiny = fcmp(e, LLVMRealOLT, m, wide ? 0x1p-500 : 0x1p-60);
  return sel(e, big, down, sel(e, tiny, up, cf(e, m, 1)));
}

// -i ln((b + i a) / sqrt(a^2 + b^2)).
static at_val c_atan2(at_em *e, at_val a, at_val b) {
  LLVMValueRef k =
      square_scale(e, bigger(e, largest_part(e, a), largest_part(e, b)));
  at_val sa = c_scale(e, a, k), sb = c_scale(e, b, k), ia = times_i(e, sa);
  at_val sum = {add(e, sb.re, ia.re), add(e, sb.im, ia.im)};
  at_val aa = c_mul(e, sa, sa), bb = c_mul(e, sb, sb);
  at_val root = c_sqrt(e, (at_val){add(e, aa.re, bb.re), add(e, aa.im, bb.im)});
  at_val l = c_log(e, c_div(e, sum, root));
  // Where a is small beside b the quotient is near 1 or -1 and its logarithm
  // would cancel: atan(a / b) then, and half a turn where the root is not b's
  // side.
  at_val w = c_div(e, a, b), ww = c_mul(e, w, w), t = c_atan(e, w);
  at_val q =
      c_mul(e, b, c_sqrt(e, (at_val){add(e, ww.re, cf(e, w.re, 1)), ww.im}));
  LLVMValueRef pi = cf(e, w.re, 3.14159265358979323846);
  // To the side that even a zero's sign tells: +0 is an angle above 0.
  LLVMValueRef turned = sub(e, t.re, copysign_(e, pi, t.re));
  t.re = sel(e, fcmp(e, LLVMRealOLT, q.re, 0), turned, t.re);
  LLVMValueRef size = bigger(e, fabs_(e, w.re), fabs_(e, w.im));
  LLVMValueRef small = fcmp(e, LLVMRealOLT, size, 0.5);
  return (at_val){sel(e, small, t.re, l.im), sel(e, small, t.im, neg(e, l.re))};
}

// ---- Inverse functions, for parts of 0 or more and in f64
typedef struct arcs {
  LLVMValueRef sine, cosine;  // real parts of asin and acos
  LLVMValueRef log;           // imaginary part of asin
} arcs;

// By the distances r and s from -1 and 1: with a = (r + s) / 2, x / a is the
// sine and a + sqrt(a^2 - 1) the logarithm's argument. a - x and a - 1 are made
// of terms that do not cancel; where y is small beside them, y comes out of the
// root.
static arcs c_arcs(at_em *e, LLVMValueRef x, LLVMValueRef y) {
  at_math *m = &e->math;
  LLVMValueRef one = cf(e, x, 1), half = cf(e, x, 0.5);
  LLVMValueRef xp = add(e, x, one), xm = sub(e, x, one), yy = mul(e, y, y);
  LLVMValueRef r = magnitude(e, (at_val){xp, y});
  LLVMValueRef s = magnitude(e, (at_val){xm, y});
  LLVMValueRef a = mul(e, half, add(e, r, s));
  LLVMValueRef rp = add(e, r, xp), sp = add(e, s, fabs_(e, xm));
  LLVMValueRef plain = mul(e, half, add(e, divide(e, yy, rp), sp));
  LLVMValueRef slope =
      mul(e, half, add(e, divide(e, one, rp), divide(e, one, sp)));
  LLVMValueRef ax = add(e, a, x), a1 = add(e, a, one);
  LLVMValueRef q =
      sel(e, fcmp(e, LLVMRealOLE, x, 1), at_math_sqrt(m, mul(e, plain, ax)),
          mul(e, y, at_math_sqrt(m, mul(e, slope, ax))));
  LLVMValueRef inside = fcmp(e, LLVMRealOLT, x, 1);
  LLVMValueRef t = sel(e, inside, mul(e, y, at_math_sqrt(m, mul(e, slope, a1))),
                       at_math_sqrt(m, mul(e, plain, a1)));
  LLVMValueRef log =
      at_math_log1p(m, add(e, sel(e, inside, mul(e, yy, slope), plain), t));
  LLVMValueRef far = fcmp(e, LLVMRealOGT, bigger(e, x, y), 0x1p500);
  LLVMValueRef ln2 = cf(e, x, 0.69314718055994530942);
  q = sel(e, far, y, q);
  return (arcs){at_math_atan2(m, x, q), at_math_atan2(m, q, x),
                sel(e, far, add(e, c_log(e, (at_val){x, y}).re, ln2), log)};
}

// From the quadrant of positive parts, with the signs put back; f32 goes
// through f64.
static at_val c_asin(at_em *e, at_val a) {
  at_val w = c_widen(e, a);
  arcs k = c_arcs(e, fabs_(e, w.re), fabs_(e, w.im));
  at_val r = {copysign_(e, k.sine, w.re), copysign_(e, k.log, w.im)};
  return c_resize(e, r, LLVMTypeOf(a.re));
}

// acos, or i times it on the side where that is acosh.
static at_val c_acos(at_em *e, at_val a, bool hyperbolic) {
  at_val w = c_widen(e, a), r;
  arcs k = c_arcs(e, fabs_(e, w.re), fabs_(e, w.im));
  LLVMValueRef pi = cf(e, w.re, 3.14159265358979323846);
  LLVMValueRef left = fcmp(e, LLVMRealOLT, w.re, 0);
  LLVMValueRef turn = sel(e, left, sub(e, pi, k.cosine), k.cosine);
  if (hyperbolic)
    r = (at_val){k.log, copysign_(e, turn, w.im)};
  else
    r = (at_val){turn, neg(e, copysign_(e, k.log, w.im))};
  return c_resize(e, r, LLVMTypeOf(a.re));
}

// ln1p(4 x / ((1 - x)^2 + y^2)) / 4 and half the angle of (1 - x) (1 + x) - y^2
// and 2 y.
static at_val c_atanh(at_em *e, at_val a) {
  at_math *m = &e->math;
  at_val w = c_widen(e, a);
  LLVMValueRef x = fabs_(e, w.re), y = fabs_(e, w.im), two = cf(e, x, 2);
  LLVMValueRef down = sub(e, cf(e, x, 1), x), up = add(e, cf(e, x, 1), x);
  LLVMValueRef yy = mul(e, y, y), half = cf(e, x, 0.5);
  LLVMValueRef d = add(e, mul(e, down, down), yy);
  LLVMValueRef re = at_math_log1p(m, divide(e, mul(e, cf(e, x, 4), x), d));
  re = mul(e, re, cf(e, x, 0.25));
  LLVMValueRef pole = mul(e, half, at_math_log(m, divide(e, two, y)));
  re = sel(e, fcmp(e, LLVMRealOEQ, d, 0), pole, re);
  LLVMValueRef im =
      at_math_atan2(m, mul(e, two, y), sub(e, mul(e, down, up), yy));
  im = mul(e, im, half);
  LLVMValueRef size = magnitude(e, (at_val){x, y});
  LLVMValueRef far = fcmp(e, LLVMRealOGT, size, 0x1p500);
  LLVMValueRef inf = fcmp(e, LLVMRealOEQ, size, __builtin_inf());
  LLVMValueRef small = divide(e, divide(e, x, size), size);
  re = sel(e, far, sel(e, inf, cf(e, x, 0), small), re);
  im = sel(e, far, cf(e, x, 1.57079632679489661923), im);
  at_val r = {copysign_(e, re, w.re), copysign_(e, im, w.im)};
  return c_resize(e, r, LLVMTypeOf(a.re));
}

// re NULL: the op has no form for complex numbers. Parts are f32 or f64.
at_val at_em_apply_complex(at_em *e, const at_node *n, const at_val *args) {
  at_val a = args[0], none = {0};
  at_val b = n->num_operands > 1 ? args[1] : none;
  switch (n->op) {
    case AT_OP_ADD:
      return (at_val){add(e, a.re, b.re), add(e, a.im, b.im)};
    case AT_OP_SUBTRACT:
      return (at_val){sub(e, a.re, b.re), sub(e, a.im, b.im)};
    case AT_OP_MULTIPLY:
      return c_mul(e, a, b);
    case AT_OP_DIVIDE:
      return c_div(e, a, b);
    case AT_OP_NEGATE:
      return (at_val){neg(e, a.re), neg(e, a.im)};
    case AT_OP_REAL:
      return (at_val){a.re, NULL};
    case AT_OP_IMAG:
      return (at_val){a.im, NULL};
    case AT_OP_ABS:
      return (at_val){magnitude(e, a), NULL};
    case AT_OP_IS_FINITE: {
      LLVMValueRef x = fcmp(e, LLVMRealOLT, fabs_(e, a.re), __builtin_inf());
      LLVMValueRef y = fcmp(e, LLVMRealOLT, fabs_(e, a.im), __builtin_inf());
      return (at_val){LLVMBuildAnd(e->b, x, y, ""), NULL};
    }
    case AT_OP_SIGN: {
      // Scaled, so that the magnitude neither overflows nor is subnormal.
      LLVMValueRef most = largest_part(e, a);
      LLVMValueRef big = fcmp(e, LLVMRealOGT, most, 1e30);
      LLVMValueRef tiny = fcmp(e, LLVMRealOLT, most, 1e-30);
      LLVMValueRef k = sel(e, tiny, cf(e, a.re, 0x1p64), cf(e, a.re, 1));
      a = c_scale(e, a, sel(e, big, cf(e, a.re, 0.25), k));
      LLVMValueRef r = magnitude(e, a), zero = fcmp(e, LLVMRealOEQ, r, 0);
      return (at_val){sel(e, zero, a.re, divide(e, a.re, r)),
                      sel(e, zero, a.im, divide(e, a.im, r))};
    }
    case AT_OP_EXPONENTIAL:
      return c_exp(e, a);
    case AT_OP_EXPONENTIAL_MINUS_ONE:
      return c_expm1(e, a);
    case AT_OP_LOG:
      return c_log(e, a);
    case AT_OP_LOG_PLUS_ONE:
      return c_log1p(e, a);
    case AT_OP_SQRT:
      return c_sqrt(e, a);
    case AT_OP_RSQRT: {
      at_val one = {cf(e, a.re, 1), cf(e, a.re, 0)};
      return c_div(e, one, c_sqrt(e, a));
    }
    case AT_OP_CBRT:
      return c_cbrt(e, a);
    case AT_OP_POWER:
      return c_pow(e, a, b);
    case AT_OP_LOGISTIC:
      return c_logistic(e, a);
    case AT_OP_SINE:
    case AT_OP_COSINE:
      return c_trig(e, n->op, a);
    case AT_OP_TANH:
      return c_tanh(e, a);
    case AT_OP_TAN:  // tan z = -i tanh(iz)
      return times_minus_i(e, c_tanh(e, times_i(e, a)));
    case AT_OP_SINH:  // sinh z = -i sin(iz)
      return times_minus_i(e, c_trig(e, AT_OP_SINE, times_i(e, a)));
    case AT_OP_COSH:
      return c_trig(e, AT_OP_COSINE, times_i(e, a));
    case AT_OP_ATAN2:
      return c_atan2(e, a, b);
    case AT_OP_ASIN:
      return c_asin(e, a);
    case AT_OP_ACOS:
    case AT_OP_ACOSH:
      return c_acos(e, a, n->op == AT_OP_ACOSH);
    case AT_OP_ATANH:
      return c_atanh(e, a);
    case AT_OP_ASINH:  // asinh z = -i asin(iz)
      return times_minus_i(e, c_asin(e, times_i(e, a)));
    case AT_OP_ATAN:  // atan z = -i atanh(iz)
      return times_minus_i(e, c_atanh(e, times_i(e, a)));
    default:
      return none;
  }
}
