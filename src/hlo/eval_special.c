// The inverse error function in long double, which libm lacks.
#include <math.h>

#include "hlo/eval_internal.h"

static const long double kPi = 3.14159265358979323846264338327950288L;

// NaN outside of [-1, 1], infinities at the ends.
long double at_erf_inv(long double x) {
  if (isnan(x) || fabsl(x) > 1) return NAN;
  if (fabsl(x) == 1) return copysignl(INFINITY, x);
  if (x == 0) return x;
  // Winitzki's formula starts within 2e-3; each Newton step squares that.
  long double a = 0.147L, w = logl((1 - x) * (1 + x));
  long double t = 2 / (kPi * a) + w / 2;
  long double y = sqrtl(sqrtl(t * t - w / a) - t);
  long double ax = fabsl(x);
  for (int i = 0; i < 8; i++) {
    // Near 1 the complement keeps the digits.
    long double err = ax > 0.5L ? (1 - ax) - erfcl(y) : erfl(y) - ax;
    long double slope = 2 / sqrtl(kPi) * expl(-y * y);
    if (slope == 0) break;
    long double step = err / slope;
    y -= step / (1 + y * step);  // Halley
    if (fabsl(step) < 1e-20L * fabsl(y)) break;
  }
  return copysignl(y, x);
}
