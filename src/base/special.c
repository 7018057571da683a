// Textbook methods: recurrence to a large argument, then the asymptotic series;
// Euler and Maclaurin.
#include "base/special.h"

#include <math.h>
#include <stddef.h>

#include "base/span.h"

static const long double kPi = 3.14159265358979323846264338327950288L;

// B(2k), k = 1..12.
static const long double bernoulli[] = {
    1.0L / 6,       -1.0L / 30,       1.0L / 42,       -1.0L / 30,
    5.0L / 66,      -691.0L / 2730,   7.0L / 6,        -3617.0L / 510,
    43867.0L / 798, -174611.0L / 330, 854513.0L / 138, -236364091.0L / 2730};

// Reflection for negative x; from 20 on the series has its full precision.
long double at_digamma(long double x) {
  if (isnan(x) || x == -INFINITY) return NAN;
  if (x == INFINITY) return x;
  if (x == 0) return -copysignl(INFINITY, x);
  if (x < 0) {
    if (x == floorl(x)) return NAN;
    // psi(x) = psi(1 - x) - pi / tan(pi x), with the fraction reduced first.
    long double f = x - roundl(x);
    return at_digamma(1 - x) - kPi / tanl(kPi * f);
  }
  long double sum = 0;
  for (; x < 20; x++) sum -= 1 / x;
  long double series = 0, p = 1 / (x * x), term = p;
  for (size_t k = 0; k < AT_LEN(bernoulli); k++, term *= p)
    series += bernoulli[k] * term / (2 * (long double)(k + 1));
  return sum + logl(x) - 1 / (2 * x) - series;
}

// sum over k >= 0 of (q + k)^-s, by Euler and Maclaurin.
long double at_zeta(long double s, long double q) {
  if (isnan(s) || isnan(q)) return NAN;
  if (s == 1) return INFINITY;
  if (s < 1) return NAN;
  if (q <= 0) {
    if (q == floorl(q)) return fmodl(s, 2) == 0 ? INFINITY : NAN;
    if (s != floorl(s)) return NAN;
  }
  if (s == INFINITY) return q > 1 ? 0 : q == 1 ? 1 : INFINITY;
  if (q == INFINITY) return 0;
  if (q < 0) {
    // The terms below 0 are those of fraction .. -q, with s's sign: no loop of
    // -q turns.
    long double fraction = -q - floorl(-q), sign = fmodl(s, 2) == 0 ? 1 : -1;
    return at_zeta(s, 1 - fraction) +
           sign * (at_zeta(s, fraction) - at_zeta(s, 1 - q));
  }
  long double sum = 0;
  for (int k = 0; k < 20 || q < 20; k++, q++) {
    long double t = powl(q, -s);
    sum += t;
    if (q > 1 && fabsl(t) < 1e-22L * fabsl(sum)) return sum;
  }
  long double tail = powl(q, -s);
  sum += q * tail / (s - 1) + tail / 2;
  long double factor = s, power = tail / q, factorial = 2;
  for (size_t k = 0; k < AT_LEN(bernoulli); k++) {
    sum += bernoulli[k] * factor * power / factorial;
    long double j = 2 * (long double)(k + 1);
    factor *= (s + j - 1) * (s + j);
    power /= q * q;
    factorial *= (j + 1) * (j + 2);
  }
  return sum;
}

// By Hurwitz's zeta function: (-1)^(n+1) n! zeta(n + 1, x).
long double at_polygamma(long double n, long double x) {
  if (n == 0) return at_digamma(x);
  if (isnan(n) || n < 0 || n != floorl(n)) return NAN;
  int sign;
  long double scale = expl(lgammal_r(n + 1, &sign));
  return (fmodl(n, 2) == 0 ? -1 : 1) * scale * at_zeta(n + 1, x);
}
