#!/usr/bin/env bash
# Writes docs/math.md: the errors of the vector functions, f32 over all 2^32 inputs (an hour of
# CPU time on an AVX-512 machine), the rest at samples against MPFR. A run that was cut off goes
# on where it stopped: rows are kept in $BUILD/math until the page is written.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
rows=$build/math
mkdir -p "$rows"
f32=(exp expm1 log log1p logistic tanh sin cos tan erf erf_inv sqrt rsqrt cbrt erfc asin acos atan
  sinh cosh asinh acosh atanh lgamma digamma)

one() {  # one NAME COMMAND...: the command's rows, unless they are there
  [ -s "$rows/$1" ] || { "${@:2}" >"$rows/$1.new" || true; mv "$rows/$1.new" "$rows/$1"; }
}
export -f one
export rows build
printf '%s\n' "${f32[@]}" | xargs -P "$(nproc)" -I{} bash -c 'one {} "$build/tools/math_ulp" 1 {}'
one f64 "$build/tools/math_mpfr" "${SAMPLES:-40}"
one complex "$build/tools/math_complex" "${POINTS:-200000}"

{
  cat <<'EOF'
# Accuracy of the vector functions

Written by `tools/math.sh`. Errors are in units of the spacing of the result's type at the exact value
(ULP): 0.50 is correct rounding. Denormals, infinities and NaN count like any other input. Measured
with AVX-512; AVX2 code is the same instructions on narrower vectors. A sample of every function's
inputs is measured with the tests.

## f32, one argument: all 2^32 inputs

References: the C library in f64, or our own f64 function where the f32 body shares nothing with it.
Functions without an f32 body of their own are the f64 bodies, rounded. `lgamma` is the C library's in
f64, rounded.

| function | largest error, ULP | at | reference |
|---|---|---|---|
EOF
  for f in "${f32[@]}"; do cat "$rows/$f"; done
  cat <<'EOF'

`ceil`, `floor`, `round_nearest_even`, `round_nearest_afz`, `abs`, `sign` and `negate` are single
instructions (or two), exact, and compared with the evaluator by the tests of codegen.

## f64, and two arguments: samples of every binade, denormals and special values, against MPFR

Sixteen times as many samples between 2^-12 and 2^12 as elsewhere. f64 `sin`, `cos` and `tan` are the
C library's from 2^30 on, `lgamma` everywhere. `digamma` in f64 is exact to 1e-16 of 1 beside its zeros,
which is not 3 ULP of itself there.

| function | type | largest error, ULP | at | samples |
|---|---|---|---|---|
EOF
  cat "$rows/f64"
  cat <<'EOF'

## Complex, random points against MPFR

Parts between 2^-40 and 2^40 (2^6 where the exponential of a part is taken; 2 for `power` and `atan2`),
half of the points near one in size. "Whole" is |error| in units of the spacing at |exact|; "part" is
the larger error of real and imaginary part in units of their own spacing, which no formula in one
precision keeps small where a part cancels. `power` in c128 loses what b ln a has of size.

| function | type | whole, ULP | worse part, ULP | at |
|---|---|---|---|---|
EOF
  cat "$rows/complex"
} >docs/math.md.new
mv docs/math.md.new docs/math.md
rm -rf "$rows"
