#!/usr/bin/env python3
"""Polynomial coefficients of codegen/math_*.c, by Remez exchange in 50 digits.

Needs mpmath and numpy. Prints one C array per row of FITS: lowest degree first, rounded to f32, or
to f64 where the name ends in 64.
"""
import functools
import sys

from mpmath import asin, atan, cbrt, cos, erf, erfc, erfinv, exp, lu_solve, log, log1p, matrix, mp, mpf, pi, psi, sin, sqrt, tan, zeta
import numpy as np

mp.dps = 50
LN2 = log(2)


def remez(f, weight, lo, hi, powers, rounds=12):
    """Coefficients c minimising max |weight(x) (sum c_i x^powers_i - f(x))| on [lo, hi]."""
    n = len(powers)
    lo, hi = mpf(lo), mpf(hi)
    xs = [(lo + hi) / 2 - (hi - lo) / 2 * cos(pi * (i + mpf(1) / 2) / (n + 1)) for i in range(n + 1)]
    grid = [lo + (hi - lo) * (1 - cos(pi * i / 1200)) / 2 for i in range(1201)]
    values = [(x, f(x), weight(x)) for x in grid]
    for _ in range(rounds):
        rows = [[x**p for p in powers] + [(-1) ** i / weight(x)] for i, x in enumerate(xs)]
        solution = lu_solve(matrix(rows), matrix([f(x) for x in xs]))
        c = [solution[i] for i in range(n)]
        errors = [(w * (sum(k * x**p for k, p in zip(c, powers)) - y), x) for x, y, w in values]
        peaks, run = [], [errors[0]]
        for e in errors[1:]:
            if (e[0] > 0) == (run[-1][0] > 0):
                run.append(e)
            else:
                peaks.append(max(run, key=lambda t: abs(t[0])))
                run = [e]
        peaks.append(max(run, key=lambda t: abs(t[0])))
        while len(peaks) > n + 1:
            peaks.pop(0 if abs(peaks[0][0]) < abs(peaks[-1][0]) else -1)
        if len(peaks) < n + 1:
            break
        xs = [x for _, x in peaks]
    return c, max(abs(e) for e, _ in errors)


def nonzero(f, limit):
    """f with its limit at 0."""
    return lambda x: f(x) if abs(x) > mpf(10) ** -20 else limit


HALF, TINY = mpf(1) / 2, mpf(10) ** -15
LOG_END = ((sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1)) ** 2 * mpf('1.001')


def atanh2(z):
    """log((1 + s) / (1 - s)) / s for z = s^2."""
    s = sqrt(z)
    return log((1 + s) / (1 - s)) / s


def scaled_erfc(x):
    return (1 + 2 * x) * exp(x * x) * erfc(x)


@functools.cache
def inverse_of(w):
    x = sqrt(1 - exp(-w))
    return erfinv(x) / x


def digamma_tail(z):
    y = 1 / sqrt(z)
    return (log(y) - 1 / (2 * y) - psi(0, y)) / z


def cotangent_rest(z):
    f = sqrt(z)
    return (pi / tan(pi * f) - 1 / f + pi**2 / 3 * f) / (f * z)


FITS = {
    # exp(r) = 1 + r + r^2 * P(r)
    "kExp": (nonzero(lambda r: (exp(r) - 1 - r) / r**2, mpf(1) / 2), lambda r: r**2 + mpf(10)**-12, -LN2 / 2, LN2 / 2, range(5)),
    # log(1 + f) = f - f^2 / 2 + f^3 * P(f)
    "kLog": (nonzero(lambda f: (log1p(f) - f + f**2 / 2) / f**3, mpf(1) / 3),
             nonzero(lambda f: abs(f**3 / log1p(f)) + mpf(10)**-9, mpf(10)**-9), sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, range(8)),
    # sin(r) = r + r^3 * P(r^2), in z = r^2
    "kSin": (nonzero(lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z, -mpf(1) / 6), lambda z: z + mpf(10)**-9, 0, (pi / 4) ** 2 * mpf('1.02'), range(4)),
    # cos(r) = 1 - z / 2 + z^2 * P(z)
    "kCos": (nonzero(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24), lambda z: z**2 + mpf(10)**-9, 0, (pi / 4) ** 2 * mpf('1.02'), range(4)),
    # erf(x) = x + x * P(x^2) for |x| < 1, in z = x^2
    "kErfSmall": (nonzero(lambda z: erf(sqrt(z)) / sqrt(z) - 1, 2 / sqrt(pi) - 1), lambda z: mpf(1), 0, 1, range(7)),
    # -log(erfc(x)) = x * P(x) for x in [1, 4]
    "kErfLarge": (lambda x: -log(erfc(x)) / x, lambda x: x * erfc(x), mpf('0.99'), mpf('4.0'), range(9)),
    # exp(r) = 1 + r + r^2 * P(r)
    "kExp64": (nonzero(lambda r: (exp(r) - 1 - r) / r**2, HALF), lambda r: abs(r) + TINY, -LN2 * HALF, LN2 * HALF, range(10)),
    # log((1 + s) / (1 - s)) = s * (2 + z * P(z)), z = s^2
    "kLog64": (nonzero(lambda z: (atanh2(z) - 2) / z, mpf(2) / 3), lambda z: z + TINY, 0, LOG_END, range(7)),
    # log((1 + s) / (1 - s)) = s * (2 + 2/3 z + z^2 * P(z)), z = s^2
    "kPowLog64": (nonzero(lambda z: (atanh2(z) - 2 - 2 * z / 3) / z**2, mpf(2) / 5), lambda z: z**2 + TINY, 0, LOG_END, range(8)),
    # sin(r) = r + r z P(z), cos(r) = 1 - z / 2 + z^2 P(z), z = r^2
    "kSin64": (nonzero(lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z, -mpf(1) / 6), lambda z: z + TINY, 0, (pi / 4) ** 2 * mpf('1.001'), range(6)),
    "kCos64": (nonzero(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24), lambda z: z**2 + TINY, 0, (pi / 4) ** 2 * mpf('1.001'), range(6)),
    # atan(t) = t + t z P(z), z = t^2, t <= tan(pi/8)
    "kAtan64": (nonzero(lambda z: (atan(sqrt(z)) / sqrt(z) - 1) / z, -mpf(1) / 3), lambda z: z + TINY, 0, (sqrt(mpf(2)) - 1) ** 2 * mpf('1.001'), range(12)),
    # asin(x) = x + x z P(z), z = x^2, x <= 1/2
    "kAsin64": (nonzero(lambda z: (asin(sqrt(z)) / sqrt(z) - 1) / z, mpf(1) / 6), lambda z: z + TINY, 0, mpf(1) / 4, range(13)),
    # cbrt(x) for x in [1, 2]
    "kCbrt64": (cbrt, lambda x: 1 / cbrt(x), 1, 2, range(5)),
    # erf(x) = x + x P(z), z = x^2 <= 1
    "kErf64": (nonzero(lambda z: erf(sqrt(z)) / sqrt(z) - 1, 2 / sqrt(pi) - 1), lambda z: mpf(1), 0, 1, range(13)),
    # erfc(x) = exp(-x^2) / (1 + 2 x) P((x - 4) / (x + 4)), x in [1/2, 28]
    "kErfc64": (lambda q: scaled_erfc(4 * (1 + q) / (1 - q)), lambda q: mpf(1), -mpf(7) / 9, mpf(3) / 4, range(23)),
    # erf_inv(x) = x P(w), w = -log(1 - x^2) < 5; = x P(sqrt(w)) beyond; 2^-30
    "kErfInvSmall64": (lambda w: inverse_of(w), lambda w: 1 / inverse_of(w), mpf(10) ** -12, mpf('5.01'), range(11)),
    "kErfInvLarge64": (lambda s: inverse_of(s * s), lambda s: 1 / inverse_of(s * s), mpf('2.23'), mpf('6.2'), range(15)),
    # psi(y) = log(y) - 1 / (2 y) - z P(z), z = 1 / y^2, y >= 8
    "kDigamma64": (nonzero(digamma_tail, mpf(1) / 12), lambda z: z + TINY, 0, mpf(1) / 64, range(7)),
    # pi / tan(pi f) = 1 / f - pi^2 / 3 f + f z P(z), z = f^2, f <= 1/2
    "kCot64": (nonzero(cotangent_rest, -2 * zeta(4)), lambda z: z * sqrt(z) + TINY, 0, mpf(1) / 4, range(16)),
}

for name, (f, weight, lo, hi, powers) in FITS.items():
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    powers = list(powers)
    c, error = remez(f, weight, lo, hi, powers)
    print(f"// largest weighted error {float(error):.2e}")
    rounded = [float(k) if name.endswith("64") else float(np.float32(float(k))) for k in c]
    print(f"static const double {name}[] = {{" + ", ".join(k.hex() for k in rounded) + "};")
