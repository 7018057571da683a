// Why an element may differ: what is special about it and its operands.
#include <math.h>

#include "judge.h"

typedef struct seen {  // among the operands
  bool nan, infinite, denormal;
} seen;

static void look(seen *s, const at_literal *l, int64_t i) {
  at_dtype t = l->type.dtype;
  for (int k = 0; k < 1 + at_is_complex(t); k++) {
    double v = judge_part(l, i, k);
    s->nan |= isnan(v);
    s->infinite |= isinf(v);
    // Narrower numbers are normal in the formats that they are computed in.
    s->denormal |= at_dtype_of(at_real_of(t))->bits >= 16 && v &&
                   fabs(v) < judge_least_normal(t);
  }
}

// What the operands hold: of an elementwise op at element i, else anywhere.
static seen look_all(const at_node *n, const at_literal *const *in, int64_t i) {
  seen s = {0};
  bool own = at_op_is(n->op, AT_ELEMENTWISE);
  for (uint32_t k = 0; k < n->num_operands; k++) {
    if (!judge_inexact(in[k]->type.dtype)) continue;
    int64_t count = at_type_elements(&in[k]->type);
    if (own && count > 1)
      look(&s, in[k], i);
    else
      for (int64_t e = 0; e < count; e++) look(&s, in[k], e);
  }
  return s;
}

static const char *cause_of_int(const at_node *n, const at_literal *const *in,
                                int64_t i, seen s) {
  at_dtype from = n->num_operands ? in[0]->type.dtype : AT_INVALID;
  int64_t b = 0;
  bool two = n->num_operands == 2 && !judge_inexact(in[1]->type.dtype) &&
             at_type_elements(&in[1]->type) > i;
  if (two) b = at_literal_int(in[1], i);
  if (n->op == AT_OP_CONVERT && judge_inexact(from))
    return s.nan ? "conversion of NaN" : "conversion of what does not fit";
  if ((n->op == AT_OP_DIVIDE || n->op == AT_OP_REMAINDER) && two)
    return b ? "quotient that overflows" : "division by zero";
  if (s.nan) return "NaN operand";
  if (s.denormal) return "denormal operand";
  return s.infinite ? "infinite operand" : "another integer";
}

static bool reduces_nothing(const at_node *n) {
  if (n->op == AT_OP_REDUCE) return !at_node_ints(n, AT_ATTR_DIMENSIONS).rank;
  at_dims window = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
  for (uint32_t d = 0; d < window.rank; d++)
    if (window.ptr[d] != 1) return false;
  return n->op == AT_OP_REDUCE_WINDOW;
}

// What the op itself leaves open or defines in a corner; NULL: nothing.
static const char *cause_of_op(const at_node *n, at_dtype t) {
  if (reduces_nothing(n))
    return "initial value left out where nothing is reduced";
  switch (n->op) {
    case AT_OP_RNG_BIT_GENERATOR:
      return "another generator";
    case AT_OP_SELECT_AND_SCATTER:
      return "windows that reach into the padding";
    case AT_OP_MINIMUM:
    case AT_OP_MAXIMUM:
      return at_is_complex(t) ? "order of complex numbers" : NULL;
    case AT_OP_POWER:
      return judge_inexact(t) ? NULL : "large or negative integer exponent";
    default:
      return judge_inexact(t) && at_dtype_of(t)->bits < 16 &&
                     judge_class(n) == CLASS_SUM
                 ? "sum rounded at every step"
                 : NULL;
  }
}

const char *judge_cause(const at_node *n, const at_literal *const *in,
                        const at_literal *want, const at_literal *got,
                        int64_t i) {
  at_dtype t = want->type.dtype;
  seen s = look_all(n, in, i), x = {0}, y = {0};
  const char *known = cause_of_op(n, t);
  if (known) return known;
  if (!judge_inexact(t)) return cause_of_int(n, in, i, s);
  look(&x, want, i);
  look(&y, got, i);
  if (s.denormal && at_op_is(n->op, AT_ELEMENTWISE)) return "denormal numbers";
  if (x.nan && !y.nan) return "NaN lost";
  if (x.nan != y.nan) return s.nan ? "NaN passed on" : "NaN made";
  if (x.infinite != y.infinite) return "overflow";
  if (s.infinite || s.nan) return "operands not finite";
  if (s.denormal || x.denormal || y.denormal) return "denormal numbers";
  double off = 0, size = 0;
  for (int k = 0; k < 1 + at_is_complex(t); k++) {
    off = fmax(off, fabs(judge_part(want, i, k) - judge_part(got, i, k)));
    size = fmax(size, fabs(judge_part(want, i, k)));
  }
  double ulps = off / (judge_ulp(t) * size);
  bool narrow = at_dtype_of(t)->bits < 16;
  return ulps <= 1               ? "rounding"
         : !narrow && ulps <= 64 ? "digits"
                                 : "another value";
}
