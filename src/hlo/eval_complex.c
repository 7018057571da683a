// Complex functions. C99's functions define the branch cuts and the limits at
// infinities and NaNs; what C lacks is written out.
#include <math.h>

#include "hlo/eval_internal.h"

typedef long double complex wide_complex;

// A real element reads as a complex number with imaginary part 0.
double complex at_load_complex(at_dtype t, const void *p) {
  at_dtype real = at_real_of(t);
  if (!at_is_complex(t)) return CMPLX(at_load_float(t, p), 0);
  return CMPLX(at_load_float(real, p),
               at_load_float(real, (const uint8_t *)p + at_dtype_bytes(real)));
}

// t must be complex: real part first, then the imaginary part.
void at_store_complex(at_dtype t, void *p, double complex v) {
  at_dtype real = at_real_of(t);
  at_store_float(real, p, creal(v));
  at_store_float(real, (uint8_t *)p + at_dtype_bytes(real), cimag(v));
}

// e^z - 1 without cancellation near 0: the real part is
// expm1(x) cos y - 2 sin(y/2)^2.
static wide_complex expm1_c(wide_complex z) {
  long double x = creall(z), y = cimagl(z);
  if (y == 0) return CMPLXL(expm1l(x), y);
  if (!isfinite(x) || !isfinite(y)) return cexpl(z) - 1;
  long double s = sinl(y / 2);
  return CMPLXL(expm1l(x) * cosl(y) - 2 * s * s, expl(x) * sinl(y));
}

// ln(1 + z): |1 + z|^2 - 1 = x (2 + x) + y^2.
static wide_complex log1p_c(wide_complex z) {
  long double x = creall(z), y = cimagl(z);
  if (!isfinite(x) || !isfinite(y) || fabsl(x) > 1e6L || fabsl(y) > 1e6L)
    return clogl(CMPLXL(1 + x, y));
  long double real = fabsl(x) < 0.5L && fabsl(y) < 0.5L
                         ? log1pl(x * (2 + x) + y * y) / 2
                         : logl(hypotl(1 + x, y));
  return CMPLXL(real, atan2l(y, 1 + x));
}

// z / |z|; 0 for 0, NaN in both parts where either part is NaN.
static wide_complex sign_c(wide_complex z) {
  long double r = cabsl(z);
  if (isnan(r) || isnan(creall(z)) || isnan(cimagl(z))) return CMPLXL(NAN, NAN);
  return r == 0 ? CMPLXL(0, 0) : CMPLXL(creall(z) / r, cimagl(z) / r);
}

// Zero gives (inf, NaN); infinities give a zero whose imaginary part has the
// sign of -y.
static wide_complex rsqrt_c(wide_complex z) {
  if (creall(z) == 0 && cimagl(z) == 0) return CMPLXL(INFINITY, NAN);
  if (isinf(creall(z)) || isinf(cimagl(z)))
    return CMPLXL(0, copysignl(0, -cimagl(z)));
  return 1 / csqrtl(z);
}

// The principal root, e^(ln(z) / 3).
static wide_complex cbrt_c(wide_complex z) {
  if (z == 0) return z;
  return cexpl(clogl(z) / 3);
}

// Both complex types go through long double: their callers round once.
at_status at_eval_complex(const at_node *n, double complex x,
                          double complex *out) {
  wide_complex z = CMPLXL(creal(x), cimag(x)), r;
  switch (n->op) {
    case AT_OP_NEGATE:
      r = CMPLXL(-creall(z), -cimagl(z));
      break;
    case AT_OP_SIGN:
      r = sign_c(z);
      break;
    case AT_OP_SQRT:
      r = csqrtl(z);
      break;
    case AT_OP_RSQRT:
      r = rsqrt_c(z);
      break;
    case AT_OP_CBRT:
      r = cbrt_c(z);
      break;
    case AT_OP_EXPONENTIAL:
      r = cexpl(z);
      break;
    case AT_OP_EXPONENTIAL_MINUS_ONE:
      r = expm1_c(z);
      break;
    case AT_OP_LOG:
      r = clogl(z);
      break;
    case AT_OP_LOG_PLUS_ONE:
      r = log1p_c(z);
      break;
    case AT_OP_LOGISTIC:
      r = 1 / (1 + cexpl(-z));
      break;
    case AT_OP_COSINE:
      r = ccosl(z);
      break;
    case AT_OP_SINE:
      r = csinl(z);
      break;
    case AT_OP_TAN:
      r = ctanl(z);
      break;
    case AT_OP_TANH:
      r = ctanhl(z);
      break;
    case AT_OP_COSH:
      r = ccoshl(z);
      break;
    case AT_OP_SINH:
      r = csinhl(z);
      break;
    case AT_OP_ACOS:
      r = cacosl(z);
      break;
    case AT_OP_ACOSH:
      r = cacoshl(z);
      break;
    case AT_OP_ASIN:
      r = casinl(z);
      break;
    case AT_OP_ASINH:
      r = casinhl(z);
      break;
    case AT_OP_ATAN:
      r = catanl(z);
      break;
    case AT_OP_ATANH:
      r = catanhl(z);
      break;
    default:
      return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s of complex numbers",
                     at_op_text(n->op));
  }
  *out = CMPLX((double)creall(r), (double)cimagl(r));
  return AT_OK;
}
