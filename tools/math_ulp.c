// Errors of the f32 vector functions over every STEP-th of all 2^32 inputs, one
// row of docs/math.md a function; exit 1 over 3 ULP.
//   math_ulp [step] [function]
// References: the C library in f64, or our own f64 function where the f32 body
// shares nothing with it (math_mpfr checks those against MPFR).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/eval_internal.h"
#include "math_jit.h"

static double exact_rsqrt(double x) { return 1 / sqrt(x); }
static double exact_digamma(double x) {
  // The series at 0 and at infinity, where the evaluator's sum takes its time.
  if (x != 0 && fabs(x) < 0x1p-30) return -1 / x - 0.57721566490153286;
  if (x > 0x1p14) return log(x) - 0.5 / x * (1 + 1 / (6 * x));
  return (double)at_digamma(x);
}

static const struct {
  const char *name;
  at_math_unary_fn emit;
  double (*library)(double);  // NULL: our own in f64
} functions[] = {{"exp", at_math_exp, NULL},
                 {"expm1", at_math_expm1, NULL},
                 {"log", at_math_log, NULL},
                 {"log1p", at_math_log1p, NULL},
                 {"logistic", at_math_logistic, NULL},
                 {"tanh", at_math_tanh, NULL},
                 {"sin", at_math_sin, NULL},
                 {"cos", at_math_cos, NULL},
                 {"tan", at_math_tan, NULL},
                 {"erf", at_math_erf, NULL},
                 {"erf_inv", at_math_erf_inv, NULL},
                 {"sqrt", at_math_sqrt, sqrt},
                 {"rsqrt", at_math_rsqrt, exact_rsqrt},
                 {"cbrt", at_math_cbrt, cbrt},
                 {"erfc", at_math_erfc, erfc},
                 {"asin", at_math_asin, asin},
                 {"acos", at_math_acos, acos},
                 {"atan", at_math_atan, atan},
                 {"sinh", at_math_sinh, sinh},
                 {"cosh", at_math_cosh, cosh},
                 {"asinh", at_math_asinh, asinh},
                 {"acosh", at_math_acosh, acosh},
                 {"atanh", at_math_atanh, atanh},
                 {"lgamma", at_math_lgamma, lgamma},
                 {"digamma", at_math_digamma, exact_digamma}};

// Distance of y from the exact value, in units of the f32 spacing there.
static inline double ulps(float y, double exact) {
  if (y == (float)exact && !isinf(y))
    return fabs((double)y - exact) == 0 ? 0 : 0.5;
  if (isnan(exact)) return isnan(y) ? 0 : INFINITY;
  if (isinf(exact)) return y == exact ? 0 : INFINITY;
  uint64_t bits;
  memcpy(&bits, &exact, 8);
  int64_t e = (int64_t)(bits >> 52 & 2047) - 1023;
  e = e < -126 ? -126 : e > 127 ? 127 : e;
  bits = (uint64_t)(e - 23 + 1023) << 52;
  double spacing;
  memcpy(&spacing, &bits, 8);
  // Infinity stands one step above the largest f32.
  double got = isinf(y) ? copysign(0x1p128, y) : y;
  if (isinf(y) && isinf((float)exact)) return (float)exact == y ? 0 : INFINITY;
  return fabs(got - exact) / spacing;
}

static double check(int which, uint64_t step) {
  static float x[MJ_BLOCK], y[MJ_BLOCK];
  static double wide_x[MJ_BLOCK], exact[MJ_BLOCK];
  mj_code narrow = mj_compile(&(mj_function){.unary = functions[which].emit});
  mj_code wide =
      mj_compile(&(mj_function){.wide = true, .unary = functions[which].emit});
  double worst = 0;
  float where = 0;
  for (uint64_t at = 0; at < (uint64_t)1 << 32; at += step * MJ_BLOCK) {
    for (int i = 0; i < MJ_BLOCK; i++) {
      uint32_t bits = (uint32_t)(at + (uint64_t)i * step);
      memcpy(&x[i], &bits, 4);
      wide_x[i] = x[i];
    }
    narrow.run((const void *const[]){x}, (void *const[]){y});
    if (functions[which].library) {
      for (int i = 0; i < MJ_BLOCK; i++)
        exact[i] = functions[which].library(wide_x[i]);
    } else {
      wide.run((const void *const[]){wide_x}, (void *const[]){exact});
    }
    for (int i = 0; i < MJ_BLOCK; i++) {
      double e = ulps(y[i], exact[i]);
      if (e > worst) worst = e, where = x[i];
    }
  }
  mj_discard(&narrow);
  mj_discard(&wide);
  const char *reference = functions[which].library ? "C library" : "own f64";
  if (worst <= 0.5)
    printf("| %s | 0.50 | | %s |\n", functions[which].name, reference);
  else
    printf("| %s | %.2f | %.9g | %s |\n", functions[which].name, worst,
           (double)where, reference);
  fflush(stdout);
  return worst;
}

int main(int argc, char **argv) {
  uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 997;
  double worst = 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (argc <= 2 || !strcmp(argv[2], functions[i].name))
      worst = fmax(worst, check((int)i, step ? step : 1));
  return worst > 3;
}
