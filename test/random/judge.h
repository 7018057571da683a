// How exact the results of ops must be, and comparison within that.
#ifndef ATOLL_TEST_RANDOM_JUDGE_H_
#define ATOLL_TEST_RANDOM_JUDGE_H_

#include "hlo/hlo.h"

typedef enum class_id {
  CLASS_EXACT,     // one right answer
  CLASS_QUOTIENT,  // of f32 and f64: rounded once, or, by one divisor for all,
                   // the product with its rounded reciprocal
  CLASS_FUNCTION,  // exp, log, ..., complex products: some units in the last
                   // place of the element (of its magnitude when complex)
  CLASS_SUM,       // the order of additions is free: units of the sum of the
                   // magnitudes of an element's own terms
  CLASS_LINALG,    // units of the largest element of the result
  CLASS_NORM,      // batch norms: likewise, or of the largest operand
  CLASS_POWER,     // complex powers
  CLASS_RANDOM,    // rng: only the range is known
  CLASS_PROGRAM    // an inexact value, carried on
} class_id;

typedef enum excuse_id {
#define AT_TOLERANCE(...)
#define AT_EXCUSE(Id, what, why) EXCUSE_##Id,
#include "tolerance.def"
#undef AT_EXCUSE
#undef AT_TOLERANCE
  EXCUSE_COUNT
} excuse_id;
// What tolerance.def says, and how many elements it served so far.
typedef struct excuse {
  const char *name, *what, *why;
  uint64_t times;
} excuse;
const excuse *judge_excuse(excuse_id id);

typedef enum trust {
  TRUST_EXACT,
  TRUST_CLOSE,  // differs a little
  TRUST_NONE    // a small difference earlier may have changed everything
} trust;

class_id judge_class(const at_node *n);
// Sets every node's mark to its trust. Constants are exact.
void judge_trust(const at_comp *c);
// Whether the order or the bits of NaN matter to a program.
bool judge_sees_nan(const at_comp *c);

typedef struct judgement {
  uint32_t bad_result;  // UINT32_MAX: all are within the tolerance
  int64_t element;      // of bad_result, the first that is not; -1: none
  // The largest difference, in units of the tolerance's class (of integers: 1;
  // of exact floats: in the last place). Infinite where one is and the other is
  // not, or NaN.
  double worst;
  const char *cause;  // NULL, or what judge_cause says of that element
  at_strbuf why;      // the caller frees it
} judgement;
static inline judgement judge_nothing(void) {
  return (judgement){.bad_result = UINT32_MAX, .element = -1};
}

// The results that a compiled program gave for n, against what the evaluator
// made of the same operands.
at_status judge_node(at_arena *a, const at_node *n, const at_literal *const *in,
                     const at_literal *const *want,
                     const at_literal *const *got, judgement *out);
// What is special where element i of a result differs, in a few words.
const char *judge_cause(const at_node *n, const at_literal *const *in,
                        const at_literal *want, const at_literal *got,
                        int64_t i);
// One result of a whole program; false when it is beyond the tolerance.
bool judge_program(bool exact, const at_literal *want, const at_literal *got,
                   judgement *out);

// For judge.c: sum of the magnitudes of the finite terms of each element of
// result 0; NULL when n does not add. *sums: the sum itself in f64, for real
// types narrower than f32 (NULL for others).
at_status judge_terms(at_arena *a, const at_node *n,
                      const at_literal *const *in, const double **terms,
                      const double **sums);

// ---- Numbers
double judge_ulp(at_dtype t);           // of numbers in [1, 2)
double judge_largest(at_dtype t);       // finite number
double judge_least_normal(at_dtype t);  // number
static inline bool judge_inexact(at_dtype t) {
  return at_is_float(t) || at_is_complex(t);
}
// Real (0) or imaginary (1) part of element i; a real number's only part.
double judge_part(const at_literal *l, int64_t i, int k);
bool judge_finite(const at_literal *l);  // every element
bool judge_has_denormal(const at_literal *l);
double judge_size(
    const at_literal *l);  // of its largest finite element; integers: 1

#endif
