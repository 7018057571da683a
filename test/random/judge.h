// How exact the results of ops must be, and comparison within that.
#ifndef ATOLL_TEST_RANDOM_JUDGE_H_
#define ATOLL_TEST_RANDOM_JUDGE_H_

#include "hlo/hlo.h"

typedef enum class_id {
  CLASS_EXACT,     // one right answer
  CLASS_FUNCTION,  // exp, log, ...: a few units in the last place
  CLASS_SUM,       // the order of additions is free
  CLASS_PROGRAM    // an inexact value, carried on
} class_id;

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
// `scale`: of the terms that were added; 0 for CLASS_EXACT and CLASS_FUNCTION.
// Prints where they differ first.
bool judge_equal(class_id c, double scale, const at_literal *want,
                 const at_literal *got, at_strbuf *why);
// The largest sum of magnitudes that n can form from these operands.
double judge_scale(const at_node *n, const at_literal *const *operands);
double judge_largest(const at_literal *l);

#endif
