#!/usr/bin/env python3
"""Polynomial coefficients of codegen/math_f32.c, by Remez exchange in 60 digits.

Needs mpmath and numpy. Prints one C array per row of FITS: lowest degree first, rounded to f32.
"""
import sys

from mpmath import cos, erf, erfc, exp, expm1, lu_solve, log, log1p, matrix, mp, mpf, pi, sin, sqrt, taylor
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
}

for name, (f, weight, lo, hi, powers) in FITS.items():
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    powers = list(powers)
    c, error = remez(f, weight, lo, hi, powers)
    print(f"// largest weighted error {float(error):.2e}")
    print(f"static const double {name}[] = {{" + ", ".join(float(np.float32(float(k))).hex() for k in c) + "};")
