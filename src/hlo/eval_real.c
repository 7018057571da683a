// Real functions. Types up to f32 are computed in double and rounded once by
// the caller; f64 is computed in long double and rounded here. Operations that
// IEEE defines exactly stay in double for both.
#include <math.h>

#include "hlo/eval_internal.h"

static long double sign_of(long double x) {
  return isnan(x) || x == 0 ? x : copysignl(1, x);
}

static double logistic(double x) { return 1 / (1 + exp(-x)); }
static long double logistic_l(long double x) { return 1 / (1 + expl(-x)); }

// ln |gamma(x)|, by the reentrant form: lgamma writes a global sign.
static double lgamma_abs(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
static long double lgamma_abs_l(long double x) {
  int sign;
  return lgammal_r(x, &sign);
}

// x is the element as a double, exactly. erf_inv and digamma always go through
// long double.
at_status at_eval_real(const at_node *n, double x, bool wide, double *out) {
// Two functions for one op: f in double, fl in long double for f64. Each ends
// its case.
#define WIDE(f, fl)                                \
  *out = wide ? (double)fl((long double)x) : f(x); \
  return AT_OK
#define BOTH(f) WIDE(f, f##l)
#define EXACT(expr) \
  *out = (expr);    \
  return AT_OK
  switch (n->op) {
    case AT_OP_ABS:
      EXACT(fabs(x));
    case AT_OP_NEGATE:
      EXACT(-x);
    case AT_OP_CEIL:
      EXACT(ceil(x));
    case AT_OP_FLOOR:
      EXACT(floor(x));
    case AT_OP_ROUND_NEAREST_AFZ:
      EXACT(round(x));
    case AT_OP_ROUND_NEAREST_EVEN:
      EXACT(nearbyint(x));
    case AT_OP_SIGN:
      EXACT((double)sign_of(x));
    case AT_OP_SQRT:
      EXACT(sqrt(x));
    case AT_OP_REAL:
      EXACT(x);
    case AT_OP_IMAG:
      EXACT(0);
    case AT_OP_RSQRT:
      EXACT(wide ? (double)(1 / sqrtl(x)) : 1 / sqrt(x));
    case AT_OP_CBRT:
      BOTH(cbrt);
    case AT_OP_COSINE:
      BOTH(cos);
    case AT_OP_SINE:
      BOTH(sin);
    case AT_OP_TAN:
      BOTH(tan);
    case AT_OP_TANH:
      BOTH(tanh);
    case AT_OP_EXPONENTIAL:
      BOTH(exp);
    case AT_OP_EXPONENTIAL_MINUS_ONE:
      BOTH(expm1);
    case AT_OP_LOG:
      BOTH(log);
    case AT_OP_LOG_PLUS_ONE:
      BOTH(log1p);
    case AT_OP_LOGISTIC:
      WIDE(logistic, logistic_l);
    case AT_OP_ACOS:
      BOTH(acos);
    case AT_OP_ACOSH:
      BOTH(acosh);
    case AT_OP_ASIN:
      BOTH(asin);
    case AT_OP_ASINH:
      BOTH(asinh);
    case AT_OP_ATAN:
      BOTH(atan);
    case AT_OP_ATANH:
      BOTH(atanh);
    case AT_OP_COSH:
      BOTH(cosh);
    case AT_OP_SINH:
      BOTH(sinh);
    case AT_OP_ERF:
      BOTH(erf);
    case AT_OP_ERFC:
      BOTH(erfc);
    case AT_OP_LGAMMA:
      WIDE(lgamma_abs, lgamma_abs_l);
    case AT_OP_ERF_INV:
      EXACT((double)at_erf_inv(x));
    case AT_OP_DIGAMMA:
      EXACT((double)at_digamma(x));
    default:
      return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s of %s", at_op_text(n->op),
                     at_dtype_of(at_value_type(n->operands[0])->dtype)->text);
  }
#undef WIDE
#undef BOTH
#undef EXACT
}
