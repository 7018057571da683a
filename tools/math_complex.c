// Errors of the complex vector functions against MPFR at random points, as rows
// of docs/math.md: of the whole number (|error| in units of the spacing at
// |exact|) and of its worse part.
//   math_complex [samples]
#include <math.h>
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>

#include "math_jit.h"

enum {
  kBits = 700
};  // sums that cancel lose up to twice the mantissa, and twice 80

typedef struct number {
  mpfr_t re, im;
} number;
static mpfr_t t0, t1, t2, t3;
static number n0, n1, n2;

static void init(number *z) { mpfr_inits2(kBits, z->re, z->im, (mpfr_ptr)0); }
static void copy(number *o, const number *a) {
  mpfr_set(o->re, a->re, MPFR_RNDN);
  mpfr_set(o->im, a->im, MPFR_RNDN);
}
static void add_real(number *o, const number *a, long v) {
  mpfr_add_si(o->re, a->re, v, MPFR_RNDN);
  mpfr_set(o->im, a->im, MPFR_RNDN);
}
static void mul(number *o, const number *a, const number *b) {
  mpfr_fmms(t0, a->re, b->re, a->im, b->im, MPFR_RNDN);
  mpfr_fmma(o->im, a->re, b->im, a->im, b->re, MPFR_RNDN);
  mpfr_set(o->re, t0, MPFR_RNDN);
}
static void divide(number *o, const number *a, const number *b) {
  mpfr_fmma(t2, b->re, b->re, b->im, b->im, MPFR_RNDN);
  mpfr_fmma(t0, a->re, b->re, a->im, b->im, MPFR_RNDN);
  mpfr_fmms(t1, a->im, b->re, a->re, b->im, MPFR_RNDN);
  mpfr_div(o->re, t0, t2, MPFR_RNDN);
  mpfr_div(o->im, t1, t2, MPFR_RNDN);
}
static void one_over(number *o, const number *a) {
  mpfr_fmma(t2, a->re, a->re, a->im, a->im, MPFR_RNDN);
  mpfr_div(o->re, a->re, t2, MPFR_RNDN);
  mpfr_neg(t0, a->im, MPFR_RNDN);
  mpfr_div(o->im, t0, t2, MPFR_RNDN);
}
static void exponential(number *o, const number *a) {
  mpfr_exp(t0, a->re, MPFR_RNDN);
  mpfr_sin_cos(t1, t2, a->im, MPFR_RNDN);
  mpfr_mul(o->re, t0, t2, MPFR_RNDN);
  mpfr_mul(o->im, t0, t1, MPFR_RNDN);
}
static void logarithm(number *o, const number *a) {
  mpfr_atan2(t3, a->im, a->re, MPFR_RNDN);
  mpfr_fmma(t0, a->re, a->re, a->im, a->im, MPFR_RNDN);
  mpfr_log(t0, t0, MPFR_RNDN);
  mpfr_div_2ui(o->re, t0, 1, MPFR_RNDN);
  mpfr_set(o->im, t3, MPFR_RNDN);
}
static void root(number *o, const number *a) {
  mpfr_hypot(t0, a->re, a->im, MPFR_RNDN);
  mpfr_abs(t1, a->re, MPFR_RNDN);
  mpfr_add(t0, t0, t1, MPFR_RNDN);
  mpfr_div_2ui(t0, t0, 1, MPFR_RNDN);
  mpfr_sqrt(t0, t0, MPFR_RNDN);
  mpfr_div(t1, a->im, t0, MPFR_RNDN);
  mpfr_div_2ui(t1, t1, 1, MPFR_RNDN);
  bool left = mpfr_sgn(a->re) < 0, below = mpfr_sgn(a->im) < 0;
  if (left) {
    mpfr_abs(o->re, t1, MPFR_RNDN);
    mpfr_set(o->im, t0, MPFR_RNDN);
    if (below) mpfr_neg(o->im, o->im, MPFR_RNDN);
  } else {
    mpfr_set(o->re, t0, MPFR_RNDN);
    mpfr_set(o->im, t1, MPFR_RNDN);
  }
}
static void times_i(number *o, const number *a) {
  mpfr_neg(t0, a->im, MPFR_RNDN);
  mpfr_set(o->im, a->re, MPFR_RNDN);
  mpfr_set(o->re, t0, MPFR_RNDN);
}
static void over_i(number *o, const number *a) {
  mpfr_neg(t0, a->re, MPFR_RNDN);
  mpfr_set(o->re, a->im, MPFR_RNDN);
  mpfr_set(o->im, t0, MPFR_RNDN);
}
static void sine(number *o, const number *a) {
  mpfr_sin_cos(t0, t1, a->re, MPFR_RNDN);
  mpfr_sinh_cosh(t2, t3, a->im, MPFR_RNDN);
  mpfr_mul(o->re, t0, t3, MPFR_RNDN);
  mpfr_mul(o->im, t1, t2, MPFR_RNDN);
}
static void cosine(number *o, const number *a) {
  mpfr_sin_cos(t0, t1, a->re, MPFR_RNDN);
  mpfr_sinh_cosh(t2, t3, a->im, MPFR_RNDN);
  mpfr_mul(o->re, t1, t3, MPFR_RNDN);
  mpfr_mul(o->im, t0, t2, MPFR_RNDN);
  mpfr_neg(o->im, o->im, MPFR_RNDN);
}
static void power(number *o, const number *a, const number *b) {
  logarithm(&n2, a);
  mul(&n2, &n2, b);
  exponential(o, &n2);
}
static void angle(number *o, const number *a, const number *b) {
  // -i ln((b + i a) / sqrt(a^2 + b^2))
  mul(&n0, a, a);
  mul(&n1, b, b);
  mpfr_add(n0.re, n0.re, n1.re, MPFR_RNDN);
  mpfr_add(n0.im, n0.im, n1.im, MPFR_RNDN);
  root(&n1, &n0);
  times_i(&n0, a);
  mpfr_add(n0.re, n0.re, b->re, MPFR_RNDN);
  mpfr_add(n0.im, n0.im, b->im, MPFR_RNDN);
  divide(&n0, &n0, &n1);
  logarithm(&n0, &n0);
  over_i(o, &n0);
}

static void exact(at_op op, number *o, const number *a, const number *b) {
  switch (op) {
    case AT_OP_MULTIPLY:
      mul(o, a, b);
      break;
    case AT_OP_DIVIDE:
      divide(o, a, b);
      break;
    case AT_OP_ABS:
      mpfr_hypot(o->re, a->re, a->im, MPFR_RNDN);
      mpfr_set_ui(o->im, 0, MPFR_RNDN);
      break;
    case AT_OP_SIGN:
      mpfr_hypot(t0, a->re, a->im, MPFR_RNDN);
      mpfr_div(o->re, a->re, t0, MPFR_RNDN);
      mpfr_div(o->im, a->im, t0, MPFR_RNDN);
      break;
    case AT_OP_EXPONENTIAL:
      exponential(o, a);
      break;
    case AT_OP_EXPONENTIAL_MINUS_ONE:
      exponential(o, a);
      add_real(o, o, -1);
      break;
    case AT_OP_LOG:
      logarithm(o, a);
      break;
    case AT_OP_LOG_PLUS_ONE:
      add_real(&n0, a, 1);
      logarithm(o, &n0);
      break;
    case AT_OP_SQRT:
      root(o, a);
      break;
    case AT_OP_RSQRT:
      root(&n0, a);
      one_over(o, &n0);
      break;
    case AT_OP_CBRT:
      mpfr_set_ui(n1.re, 1, MPFR_RNDN);
      mpfr_div_ui(n1.re, n1.re, 3, MPFR_RNDN);
      mpfr_set_ui(n1.im, 0, MPFR_RNDN);
      power(o, a, &n1);
      break;
    case AT_OP_POWER:
      power(o, a, b);
      break;
    case AT_OP_LOGISTIC:
      mpfr_neg(n0.re, a->re, MPFR_RNDN);
      mpfr_neg(n0.im, a->im, MPFR_RNDN);
      exponential(&n0, &n0);
      add_real(&n0, &n0, 1);
      one_over(o, &n0);
      break;
    case AT_OP_SINE:
      sine(o, a);
      break;
    case AT_OP_COSINE:
      cosine(o, a);
      break;
    case AT_OP_TAN:
      sine(&n0, a);
      cosine(&n1, a);
      divide(o, &n0, &n1);
      break;
    case AT_OP_TANH:  // -i tan(i z)
      times_i(&n2, a);
      sine(&n0, &n2);
      cosine(&n1, &n2);
      divide(&n0, &n0, &n1);
      over_i(o, &n0);
      break;
    case AT_OP_SINH:  // -i sin(i z)
      times_i(&n2, a);
      sine(&n0, &n2);
      over_i(o, &n0);
      break;
    case AT_OP_COSH:
      times_i(&n2, a);
      cosine(o, &n2);
      break;
    case AT_OP_ATAN2:
      angle(o, a, b);
      break;
    default:
      copy(o, a);
  }
}

static const struct {
  const char *name;
  at_op op;
  int operands;
  int most;  // largest exponent of a part
} functions[] = {
    {"multiply", AT_OP_MULTIPLY, 2, 40},
    {"divide", AT_OP_DIVIDE, 2, 40},
    {"abs", AT_OP_ABS, 1, 40},
    {"sign", AT_OP_SIGN, 1, 40},
    {"exp", AT_OP_EXPONENTIAL, 1, 5},
    {"expm1", AT_OP_EXPONENTIAL_MINUS_ONE, 1, 5},
    {"log", AT_OP_LOG, 1, 40},
    {"log1p", AT_OP_LOG_PLUS_ONE, 1, 40},
    {"logistic", AT_OP_LOGISTIC, 1, 5},
    {"sqrt", AT_OP_SQRT, 1, 40},
    {"rsqrt", AT_OP_RSQRT, 1, 40},
    {"cbrt", AT_OP_CBRT, 1, 40},
    {"power", AT_OP_POWER, 2, 1},
    {"sin", AT_OP_SINE, 1, 5},
    {"cos", AT_OP_COSINE, 1, 5},
    {"tan", AT_OP_TAN, 1, 5},
    {"sinh", AT_OP_SINH, 1, 5},
    {"cosh", AT_OP_COSH, 1, 5},
    {"tanh", AT_OP_TANH, 1, 5},
    {"atan2", AT_OP_ATAN2, 2, 1},
};

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

typedef struct worst {
  double whole, part;
  double at[4];
} worst;

// |d| in units of the spacing of numbers with `mantissa` stored bits at `size`.
static double in_ulps(mpfr_t d, mpfr_t size, int mantissa) {
  long least = mantissa == 52 ? -1021 : -125;
  long e = mpfr_zero_p(size) ? least : mpfr_get_exp(size);
  mpfr_mul_2si(d, d, mantissa + 1 - (e < least ? least : e), MPFR_RNDN);
  return fabs(mpfr_get_d(d, MPFR_RNDN));
}

static void compare(int f, int mantissa, const double x[4], double re,
                    double im, worst *w) {
  static number a, b, y;
  static bool ready;
  if (!ready) init(&a), init(&b), init(&y);
  ready = true;
  mpfr_set_d(a.re, x[0], MPFR_RNDN);
  mpfr_set_d(a.im, x[1], MPFR_RNDN);
  mpfr_set_d(b.re, x[2], MPFR_RNDN);
  mpfr_set_d(b.im, x[3], MPFR_RNDN);
  exact(functions[f].op, &y, &a, &b);
  bool real = functions[f].op == AT_OP_ABS;
  if (mpfr_get_exp(y.re) > (mantissa == 52 ? 1023 : 127) || isinf(re) ||
      isinf(im))
    return;
  mpfr_d_sub(t0, re, y.re, MPFR_RNDN);
  mpfr_d_sub(t1, real ? 0 : im, y.im, MPFR_RNDN);
  mpfr_hypot(t2, t0, t1, MPFR_RNDN);
  mpfr_hypot(t3, y.re, y.im, MPFR_RNDN);
  double whole = in_ulps(t2, t3, mantissa);
  double part =
      fmax(in_ulps(t0, y.re, mantissa), real ? 0 : in_ulps(t1, y.im, mantissa));
  if (isnan(re) || isnan(im)) whole = part = INFINITY;
  w->part = fmax(w->part, part);
  if (whole <= w->whole) return;
  w->whole = whole;
  memcpy(w->at, x, sizeof w->at);
}

static void report(int f, bool wide, int samples) {
  static double x[4][MJ_BLOCK], y[2][MJ_BLOCK];
  static float nx[4][MJ_BLOCK], ny[2][MJ_BLOCK];
  mj_code code = mj_compile(&(mj_function){
      .wide = wide, .op = functions[f].op, .operands = functions[f].operands});
  worst w = {0};
  int low = -40, span = functions[f].most - low + 1;
  for (int done = 0; done < samples; done += MJ_BLOCK) {
    for (int i = 0; i < 4 * MJ_BLOCK; i++) {
      double m = 1 + (double)(next_random() >> 12) * 0x1p-52;
      // Half of the points near one in size, where functions do things.
      int e = next_random() & 1 ? low + (int)(next_random() % (uint64_t)span)
                                : (int)(next_random() % 7) - 5;
      float v = (float)ldexp(next_random() & 1 ? -m : m, e);
      x[i / MJ_BLOCK][i % MJ_BLOCK] = wide ? ldexp(v < 0 ? -m : m, e) : v;
      nx[i / MJ_BLOCK][i % MJ_BLOCK] = v;
    }
    if (wide)
      code.run((const void *const[]){x[0], x[1], x[2], x[3]},
               (void *const[]){y[0], y[1]});
    else
      code.run((const void *const[]){nx[0], nx[1], nx[2], nx[3]},
               (void *const[]){ny[0], ny[1]});
    for (int i = 0; i < MJ_BLOCK && done + i < samples; i++)
      compare(f, wide ? 52 : 23, (double[]){x[0][i], x[1][i], x[2][i], x[3][i]},
              wide ? y[0][i] : (double)ny[0][i],
              wide ? y[1][i] : (double)ny[1][i], &w);
  }
  mj_discard(&code);
  char at[160];
  int n = snprintf(at, sizeof at, "%.9g, %.9g", w.at[0], w.at[1]);
  if (functions[f].operands == 2)
    snprintf(at + n, sizeof at - (size_t)n, "; %.9g, %.9g", w.at[2], w.at[3]);
  printf("| %s | %s | %.2f | %.3g | %s |\n", functions[f].name,
         wide ? "c128" : "c64", w.whole, w.part, at);
  fflush(stdout);
}

int main(int argc, char **argv) {
  int samples = argc > 1 ? atoi(argv[1]) : MJ_BLOCK;
  mpfr_inits2(kBits, t0, t1, t2, t3, (mpfr_ptr)0);
  init(&n0), init(&n1), init(&n2);
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
    report((int)f, false, samples);
    report((int)f, true, samples);
  }
  return 0;
}
