// Special functions that the C library lacks. Never fail: NaN is NaN.
//
// Threads: any; pure functions.
#ifndef ATOLL_BASE_SPECIAL_H_
#define ATOLL_BASE_SPECIAL_H_

// The derivative of log gamma. At 0 it is infinite with the sign opposite to
// the zero's; at the poles -1, -2, ... NaN.
long double at_digamma(long double x);
// Hurwitz's sum over k >= 0 of (q + k)^-s; NaN for s < 1.
long double at_zeta(long double s, long double q);
// The n-th derivative of digamma at x; NaN unless n is a whole number >= 0.
long double at_polygamma(long double n, long double x);

#endif
