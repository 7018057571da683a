// Errors of the f64 and complex vector functions, and of f32's two-argument
// ones, against MPFR at samples of every binade, as rows of docs/math.md; exit
// 1 if a real function is over 3 ULP.
//   math_mpfr [samples in a binade] [function]
#include <math.h>
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/eval_internal.h"
#include "math_jit.h"

enum { kBits = 160, kComplexBits = 2400 };

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

// ---- exact functions that MPFR lacks or spells otherwise
typedef int (*exact_fn)(mpfr_t out, const mpfr_t x, const mpfr_t y);

#define AT_EXACT1(name)                                          \
  static int name##1(mpfr_t o, const mpfr_t x, const mpfr_t y) { \
    return mpfr_##name(o, x, MPFR_RNDN);                         \
  }
#define AT_EXACT2(name)                                          \
  static int name##2(mpfr_t o, const mpfr_t x, const mpfr_t y) { \
    return mpfr_##name(o, x, y, MPFR_RNDN);                      \
  }
AT_EXACT1(exp)
AT_EXACT1(expm1)
AT_EXACT1(log)
AT_EXACT1(log1p)
AT_EXACT1(tanh)
AT_EXACT1(sin)
AT_EXACT1(cos)
AT_EXACT1(tan)
AT_EXACT1(erf)
AT_EXACT1(erfc)
AT_EXACT1(sqrt)
AT_EXACT1(cbrt)
AT_EXACT1(asin)
AT_EXACT1(acos)
AT_EXACT1(atan)
AT_EXACT1(sinh)
AT_EXACT1(cosh)
AT_EXACT1(asinh)
AT_EXACT1(acosh)
AT_EXACT1(atanh)
AT_EXACT1(digamma)
AT_EXACT2(pow)
AT_EXACT2(atan2)
AT_EXACT2(fmod)

static int rsqrt1(mpfr_t o, const mpfr_t x, const mpfr_t y) {
  mpfr_sqrt(o, x, MPFR_RNDN);  // keeps the sign of zero, unlike mpfr_rec_sqrt
  return mpfr_ui_div(o, 1, o, MPFR_RNDN);
}
static int lgamma1(mpfr_t o, const mpfr_t x, const mpfr_t y) {
  int sign;
  return mpfr_lgamma(o, &sign, x, MPFR_RNDN);
}
static int logistic1(mpfr_t o, const mpfr_t x, const mpfr_t y) {
  mpfr_neg(o, x, MPFR_RNDN);
  mpfr_exp(o, o, MPFR_RNDN);
  mpfr_add_ui(o, o, 1, MPFR_RNDN);
  return mpfr_ui_div(o, 1, o, MPFR_RNDN);
}
// Newton's iteration on erf, or on erfc near one, from an f64 estimate.
static int erf_inv1(mpfr_t o, const mpfr_t x, const mpfr_t y) {
  double d = mpfr_get_d(x, MPFR_RNDN), guess = (double)at_erf_inv(d);
  if (!isfinite(guess) || d == 0) return mpfr_set_d(o, guess, MPFR_RNDN);
  mpfr_t error, slope, one_less;
  mpfr_inits2(kBits, error, slope, one_less, (mpfr_ptr)0);
  mpfr_set_d(o, fabs(guess), MPFR_RNDN);
  mpfr_ui_sub(one_less, 1, x, MPFR_RNDN);
  if (d < 0) mpfr_add_ui(one_less, x, 1, MPFR_RNDN);
  for (int i = 0; i < 3; i++) {
    mpfr_erfc(error, o, MPFR_RNDN);
    mpfr_sub(error, one_less, error, MPFR_RNDN);
    if (fabs(d) < 0.5) {
      mpfr_erf(error, o, MPFR_RNDN);
      mpfr_abs(slope, x, MPFR_RNDN);
      mpfr_sub(error, error, slope, MPFR_RNDN);
    }
    mpfr_sqr(slope, o, MPFR_RNDN);
    mpfr_exp(slope, slope, MPFR_RNDN);  // divided by 2 / sqrt(pi) below
    mpfr_mul(error, error, slope, MPFR_RNDN);
    mpfr_const_pi(slope, MPFR_RNDN);
    mpfr_sqrt(slope, slope, MPFR_RNDN);
    mpfr_mul(error, error, slope, MPFR_RNDN);
    mpfr_div_ui(error, error, 2, MPFR_RNDN);
    mpfr_sub(o, o, error, MPFR_RNDN);
  }
  if (d < 0) mpfr_neg(o, o, MPFR_RNDN);
  mpfr_clears(error, slope, one_less, (mpfr_ptr)0);
  return 0;
}

static const struct {
  const char *name;
  at_math_unary_fn unary;
  at_math_binary_fn binary;
  exact_fn exact;
  int most;  // largest exponent of an operand; 0: all
} functions[] = {{"exp", at_math_exp, NULL, exp1, 0},
                 {"expm1", at_math_expm1, NULL, expm11, 0},
                 {"log", at_math_log, NULL, log1, 0},
                 {"log1p", at_math_log1p, NULL, log1p1, 0},
                 {"logistic", at_math_logistic, NULL, logistic1, 0},
                 {"tanh", at_math_tanh, NULL, tanh1, 0},
                 {"sin", at_math_sin, NULL, sin1, 0},
                 {"cos", at_math_cos, NULL, cos1, 0},
                 {"tan", at_math_tan, NULL, tan1, 0},
                 {"erf", at_math_erf, NULL, erf1, 0},
                 {"erf_inv", at_math_erf_inv, NULL, erf_inv1, 1},
                 {"sqrt", at_math_sqrt, NULL, sqrt1, 0},
                 {"rsqrt", at_math_rsqrt, NULL, rsqrt1, 0},
                 {"cbrt", at_math_cbrt, NULL, cbrt1, 0},
                 {"erfc", at_math_erfc, NULL, erfc1, 0},
                 {"asin", at_math_asin, NULL, asin1, 1},
                 {"acos", at_math_acos, NULL, acos1, 1},
                 {"atan", at_math_atan, NULL, atan1, 0},
                 {"sinh", at_math_sinh, NULL, sinh1, 0},
                 {"cosh", at_math_cosh, NULL, cosh1, 0},
                 {"asinh", at_math_asinh, NULL, asinh1, 0},
                 {"acosh", at_math_acosh, NULL, acosh1, 0},
                 {"atanh", at_math_atanh, NULL, atanh1, 1},
                 {"lgamma", at_math_lgamma, NULL, lgamma1, 12},
                 {"digamma", at_math_digamma, NULL, digamma1, 12},
                 {"atan2", NULL, at_math_atan2, atan22, 0},
                 {"power", NULL, at_math_pow, pow2, 0},
                 {"remainder", NULL, at_math_fmod, fmod2, 0}};

// ---- samples
typedef struct format {
  bool wide;
  int mantissa, low,
      high;  // stored bits; least and largest exponent, denormals below
} format;
static const format kF32 = {false, 23, -126, 127},
                    kF64 = {true, 52, -1022, 1023};

// A random value of binade e (low - 1: denormals), of either sign.
static double in_binade(const format *f, int e) {
  uint64_t r = next_random();
  double m = (double)(r >> (64 - f->mantissa)) * ldexp(1, -f->mantissa);
  double v = e < f->low ? ldexp(m, f->low) : ldexp(1 + m, e);
  return next_random() & 1 ? -v : v;
}
static double special(void) {
  static const double list[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1,
                                -1,  0.5,  2,        -2,        3,   -3};
  return list[next_random() % (sizeof list / sizeof *list)];
}

// ---- errors
// Distance of y from the exact value, in units of the format's spacing there.
static double ulps(const format *f, double y, mpfr_t exact) {
  if (mpfr_nan_p(exact)) return isnan(y) ? 0 : INFINITY;
  if (isnan(y)) return INFINITY;
  if (mpfr_inf_p(exact))
    return y == mpfr_get_d(exact, MPFR_RNDN) ? 0 : INFINITY;
  long e = mpfr_zero_p(exact) ? f->low : mpfr_get_exp(exact) - 1;
  e = e < f->low ? f->low : e;
  if (e > f->high)
    return isinf(y) && (y > 0) == (mpfr_sgn(exact) > 0) ? 0 : INFINITY;
  mpfr_t d;
  mpfr_init2(d, kBits);
  if (isinf(y))  // stands one step above the largest finite value
    mpfr_set_si_2exp(d, y > 0 ? 1 : -1, f->high + 1, MPFR_RNDN);
  else
    mpfr_set_d(d, y, MPFR_RNDN);
  mpfr_sub(d, d, exact, MPFR_RNDN);
  mpfr_mul_2si(d, d, f->mantissa - e, MPFR_RNDN);
  double r = fabs(mpfr_get_d(d, MPFR_RNDN));
  mpfr_clear(d);
  return r;
}

typedef struct worst {
  double ulps, x, y;
  uint64_t samples;
} worst;

static void run_block(const format *f, const mj_code *code,
                      double x[][MJ_BLOCK], int in, double out[][MJ_BLOCK],
                      int results) {
  static float narrow[2 * MJ_MAX][MJ_BLOCK];
  const void *from[MJ_MAX];
  void *to[MJ_MAX];
  for (int k = 0; k < MJ_MAX; k++) {
    from[k] = f->wide ? (void *)x[k < in ? k : 0] : (void *)narrow[k];
    to[k] =
        f->wide ? (void *)out[k < results ? k : 0] : (void *)narrow[MJ_MAX + k];
    for (int i = 0; i < MJ_BLOCK && k < in; i++) narrow[k][i] = (float)x[k][i];
  }
  code->run(from, to);
  for (int k = 0; k < results && !f->wide; k++)
    for (int i = 0; i < MJ_BLOCK; i++) out[k][i] = narrow[MJ_MAX + k][i];
}

static void measure(const format *f, int which, double x[][MJ_BLOCK],
                    const mj_code *code, int n, worst *w) {
  static double out[1][MJ_BLOCK];
  int in = functions[which].binary ? 2 : 1;
  run_block(f, code, x, in, out, 1);
  mpfr_t a, b, exact;
  mpfr_inits2(53, a, b, (mpfr_ptr)0);
  mpfr_init2(exact, kBits);
  for (int i = 0; i < n; i++) {
    mpfr_set_d(a, x[0][i], MPFR_RNDN);
    mpfr_set_d(b, x[in - 1][i], MPFR_RNDN);
    functions[which].exact(exact, a, b);
    double e = ulps(f, out[0][i], exact);
    if (e > w->ulps) *w = (worst){e, x[0][i], x[in - 1][i], w->samples};
    w->samples++;
  }
  mpfr_clears(a, b, exact, (mpfr_ptr)0);
}

static worst check_real(const format *f, int which, int samples) {
  static double x[2][MJ_BLOCK];
  mj_code code = mj_compile(&(mj_function){.wide = f->wide,
                                           .unary = functions[which].unary,
                                           .binary = functions[which].binary});
  worst w = {0};
  int top = functions[which].most ? functions[which].most - 1 : f->high, n = 0;
  for (int e = f->low - 1; e <= top; e++) {
    // The middle of the range is where functions do things.
    int count = e >= -12 && e <= 12 ? 16 * samples : samples;
    for (int i = 0; i < count; i++) {
      x[0][n] = in_binade(f, e);
      int other = e + (int)(next_random() % 13) - 6;
      if (functions[which].exact == pow2) {
        // Exponents that keep most results finite.
        double l = fabs(log2(fabs(x[0][n]))) + 1e-300;
        x[1][n] = ((double)next_random() * 0x1p-63 - 1) * f->high * 1.1 / l;
        if (!f->wide) x[1][n] = (float)x[1][n];
        if (next_random() % 4 == 0) x[1][n] = rint(x[1][n]);
        if (fabs(x[1][n]) > (f->wide ? 1e300 : 3e38)) x[1][n] = 2;
      } else {
        x[1][n] = in_binade(f, other < f->low - 1 ? f->low - 1
                               : other > f->high  ? f->high
                                                  : other);
      }
      if (next_random() % 97 == 0) x[0][n] = special();
      if (next_random() % 97 == 0) x[1][n] = special();
      if (++n == MJ_BLOCK) measure(f, which, x, &code, n, &w), n = 0;
    }
  }
  measure(f, which, x, &code, n, &w);
  mj_discard(&code);
  return w;
}

static double report(const format *f, int which, int samples) {
  worst w = check_real(f, which, samples);
  char at[80];
  if (functions[which].binary)
    snprintf(at, sizeof at, "%.17g, %.17g", w.x, w.y);
  else
    snprintf(at, sizeof at, "%.17g", w.x);
  printf("| %s | %s | %.2f | %s | %llu |\n", functions[which].name,
         f->wide ? "f64" : "f32", w.ulps, w.ulps <= 0.5 ? "" : at,
         (unsigned long long)w.samples);
  fflush(stdout);
  return w.ulps;
}

int main(int argc, char **argv) {
  int samples = argc > 1 ? atoi(argv[1]) : 2;
  const char *only = argc > 2 ? argv[2] : NULL;
  double most = 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (only && strcmp(only, functions[i].name)) continue;
    if (functions[i].binary)
      most = fmax(most, report(&kF32, (int)i, samples * 8));
    double wide = report(&kF64, (int)i, samples);
    // Beside its zeros digamma is exact to 1e-16 of 1, not of itself.
    if (functions[i].exact != digamma1) most = fmax(most, wide);
  }
  return most > 3;
}
