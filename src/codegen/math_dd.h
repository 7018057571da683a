// Sums of two f64 parts, for intermediate results that one part would spoil.
#ifndef ATOLL_CODEGEN_MATH_DD_H_
#define ATOLL_CODEGEN_MATH_DD_H_

#include "codegen/math_ops.h"

// The sum h + l, where h is the sum rounded to f64 and l what that lost: about
// 106 bits.
//
// The exact sums and products of two floats in two (Dekker, Knuth): they need
// that nothing is reordered, which holds as no fast-math is used.
typedef struct dd {
  V h, l;
} dd;

// a + b, exactly, for |a| >= |b| or a = 0.
static inline dd fast_sum(const at_math *m, V a, V b) {
  V h = ADD(a, b);
  return (dd){h, SUB(b, SUB(h, a))};
}
// a + b, exactly, whichever is larger.
static inline dd two_sum(const at_math *m, V a, V b) {
  V h = ADD(a, b), bb = SUB(h, a);
  return (dd){h, ADD(SUB(a, SUB(h, bb)), SUB(b, bb))};
}
// a + b to about 2^-100 of the larger.
static inline dd sum(const at_math *m, dd a, dd b) {
  dd s = two_sum(m, a.h, b.h);
  return (dd){s.h, ADD(s.l, ADD(a.l, b.l))};
}
// a b to about 2^-100 of itself.
static inline dd product(const at_math *m, dd a, dd b) {
  V h = MUL(a.h, b.h), l = FMA(a.h, b.h, NEG(h));
  return (dd){h, FMA(a.l, b.h, FMA(a.h, b.l, l))};
}
// a / b to about 2^-100.
static inline dd quotient(const at_math *m, dd a, dd b) {
  V inverse = DIV(real(b.h, 1), b.h), q = MUL(a.h, inverse);
  V rest = ADD(FMA(NEG(q), b.h, a.h), FMA(NEG(q), b.l, a.l));
  return (dd){q, MUL(rest, inverse)};
}

// ln(a) for a > 0 to about 2^-65 of itself; 0, inf and NaN as ln has them.
dd at_math_f64_wide_log(const at_math *m, V a);

#endif
