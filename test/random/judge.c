#include "judge.h"

#include <complex.h>
#include <math.h>

typedef struct tolerance {
  class_id c;
  at_dtype t;
  double ulp, slack;
} tolerance;
static const tolerance table[] = {
#define AT_TOLERANCE(c, t, ulp, slack) {CLASS_##c, AT_##t, ulp, slack},
#define AT_EXCUSE(...)
#include "tolerance.def"
#undef AT_EXCUSE
#undef AT_TOLERANCE
};

static excuse excuses[] = {
#define AT_TOLERANCE(...)
#define AT_EXCUSE(Id, what, why) {#Id, what, why, 0},
#include "tolerance.def"
#undef AT_EXCUSE
#undef AT_TOLERANCE
};
const excuse *judge_excuse(excuse_id id) { return &excuses[id]; }
static bool excused(excuse_id id) { return excuses[id].times++, true; }

static const tolerance *find(class_id c, at_dtype t) {
  for (size_t i = 0; i < AT_LEN(table); i++)
    if (table[i].c == c && table[i].t == t) return &table[i];
  return NULL;
}

// ---- Classes

// Bodies that pick one of their operands, or work on whole numbers and bits.
static bool picks(const at_comp *c) {
  AT_FOR_NODES(n, c) switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_MAXIMUM:
    case AT_OP_MINIMUM:
    case AT_OP_COMPARE:
    case AT_OP_SELECT:
    case AT_OP_AND:
    case AT_OP_OR:
    case AT_OP_XOR:
      break;
    default:
      if (judge_inexact(n->types[0].dtype)) return false;
  }
  return true;
}

static class_id worst_of(const at_comp *c) {
  class_id worst = CLASS_EXACT;
  AT_FOR_NODES(n, c) {
    class_id k = judge_class(n);
    worst = AT_MAX(worst, k);
  }
  return worst ? CLASS_PROGRAM : CLASS_EXACT;
}

static class_id class_of_call(const at_node *n) {
  at_str name = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  bool picks_only = at_str_is(name, "TopK") || at_str_is(name, "ApproxTopK");
  return picks_only ? CLASS_EXACT : CLASS_LINALG;
}

class_id judge_class(const at_node *n) {
  at_dtype t = n->num_results ? n->types[0].dtype : AT_INVALID;
  bool inexact = judge_inexact(t);
  class_id worst = CLASS_EXACT;
  const at_comp *f;
  switch (n->op) {
    case AT_OP_SCATTER:  // updates in one order, each rounded
    case AT_OP_SELECT_AND_SCATTER:
      for (uint32_t i = 0; i < n->num_regions; i++)
        worst = AT_MAX(worst, worst_of(n->regions[i]));
      return worst;
    case AT_OP_REDUCE:
    case AT_OP_REDUCE_WINDOW:
    case AT_OP_SCAN:
      for (uint32_t i = 0; i < n->num_results; i++)
        inexact |= judge_inexact(n->types[i].dtype);
      return inexact && !picks(n->regions[0]) ? CLASS_SUM : CLASS_EXACT;
    case AT_OP_DOT_GENERAL:
    case AT_OP_RAGGED_DOT:
    case AT_OP_CONVOLUTION:
    case AT_OP_DYNAMIC_CONV:
    case AT_OP_FFT:
      return inexact ? CLASS_SUM : CLASS_EXACT;
    case AT_OP_CHOLESKY:
    case AT_OP_TRIANGULAR_SOLVE:
      return CLASS_LINALG;
    case AT_OP_CUSTOM_CALL:
      return class_of_call(n);
    case AT_OP_BATCH_NORM_TRAINING:
    case AT_OP_BATCH_NORM_INFERENCE:
    case AT_OP_BATCH_NORM_GRAD:
      return CLASS_NORM;
    case AT_OP_RNG:
      return CLASS_RANDOM;
    case AT_OP_IF:
    case AT_OP_CASE:
    case AT_OP_WHILE:
    case AT_OP_MAP:
      for (uint32_t i = 0; i < n->num_regions; i++)
        worst = AT_MAX(worst, worst_of(n->regions[i]));
      return worst;
    case AT_OP_CALL:
    case AT_OP_COMPOSITE:
      f = at_module_find(n->parent->module, at_node_str(n, AT_ATTR_CALLEE));
      return f ? worst_of(f) : CLASS_PROGRAM;
    case AT_OP_DIVIDE:
      if (t == AT_F32 || t == AT_F64) return CLASS_QUOTIENT;
      return at_is_complex(t) ? CLASS_FUNCTION : CLASS_EXACT;
    case AT_OP_MULTIPLY:
    case AT_OP_SIGN:
      return at_is_complex(t) ? CLASS_FUNCTION : CLASS_EXACT;
    case AT_OP_ABS:
      return at_is_complex(at_value_type(n->operands[0])->dtype)
                 ? CLASS_FUNCTION
                 : CLASS_EXACT;
    case AT_OP_POWER:
      if (at_is_complex(t)) return CLASS_POWER;
      break;
    case AT_OP_SQRT:
      return at_is_complex(t) ? CLASS_FUNCTION : CLASS_EXACT;
    default:
      break;
  }
  bool function = at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL;
  return function && inexact ? CLASS_FUNCTION : CLASS_EXACT;
}

// Ops that turn a small difference into a small difference.
static bool continuous(const at_node *n) {
  switch (n->op) {
    case AT_OP_ADD:
    case AT_OP_SUBTRACT:
    case AT_OP_NEGATE:
    case AT_OP_ABS:
    case AT_OP_MAXIMUM:
    case AT_OP_MINIMUM:
    case AT_OP_CLAMP:
    case AT_OP_TANH:
    case AT_OP_LOGISTIC:
    case AT_OP_ATAN:
    case AT_OP_COPY:
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_CONCATENATE:
    case AT_OP_PAD:
    case AT_OP_RESHAPE:
    case AT_OP_REVERSE:
    case AT_OP_SLICE:
    case AT_OP_TRANSPOSE:
      return at_is_float(n->types[0].dtype)
                 ? at_dtype_of(n->types[0].dtype)->bits >= 16
                 : at_is_complex(n->types[0].dtype) && n->op != AT_OP_TANH &&
                       n->op != AT_OP_LOGISTIC && n->op != AT_OP_ATAN &&
                       n->op != AT_OP_MAXIMUM && n->op != AT_OP_MINIMUM;
    default:
      return false;
  }
}

static trust worst_input(const at_comp *within, const at_node *n) {
  trust t = TRUST_EXACT;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_node *from = n->operands[i].node;
    if (from->parent == within) t = AT_MAX(t, (trust)from->mark);
  }
  for (uint32_t i = 0; i < n->num_regions; i++) {
    AT_FOR_NODES(k, n->regions[i]) t = AT_MAX(t, worst_input(within, k));
    for (uint32_t r = 0; r < n->regions[i]->num_results; r++) {
      const at_node *from = n->regions[i]->results[r].node;
      if (from->parent == within) t = AT_MAX(t, (trust)from->mark);
    }
  }
  return t;
}

// NaN are ordered by their signs, which are those of whoever made them: does
// the order of something decide that an operation may have made NaN of?
static bool orders_made_values(const at_node *n) {
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  if (n->op != AT_OP_TOP_K && !at_str_is(target, "TopK") &&
      !at_str_is(target, "ApproxTopK"))
    return false;
  at_op made = n->operands[0].node->op;
  return judge_inexact(at_value_type(n->operands[0])->dtype) &&
         made != AT_OP_PARAMETER && made != AT_OP_CONSTANT;
}

// Adding up a tensor in another order may lose every digit when terms cancel,
// so that a sum is close only next to its largest element.
void judge_trust(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    trust t = worst_input(c, n);
    if (t == TRUST_CLOSE && !continuous(n)) t = TRUST_NONE;
    class_id k = judge_class(n);
    // The bits of a NaN are those of whoever made it.
    if (n->op == AT_OP_BITCAST_CONVERT &&
        judge_inexact(at_value_type(n->operands[0])->dtype))
      t = TRUST_NONE;
    if (orders_made_values(n)) t = TRUST_NONE;
    if (t == TRUST_EXACT && k != CLASS_EXACT)
      t = k == CLASS_QUOTIENT || k == CLASS_FUNCTION || k == CLASS_SUM
              ? TRUST_CLOSE
              : TRUST_NONE;
    n->mark = t;
  }
}

bool judge_sees_nan(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (n->op == AT_OP_TOP_K || n->op == AT_OP_BITCAST_CONVERT ||
        n->op == AT_OP_SORT || n->op == AT_OP_CUSTOM_CALL)
      return true;
    if (at_node_int(n, AT_ATTR_COMPARE_TYPE, 0) == AT_CMP_TOTALORDER)
      return true;
    // No integer is right for NaN or for what does not fit.
    if (n->op == AT_OP_CONVERT && !judge_inexact(n->types[0].dtype) &&
        n->types[0].dtype != AT_PRED &&
        at_is_float(at_value_type(n->operands[0])->dtype))
      return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (judge_sees_nan(n->regions[i])) return true;
  }
  return false;
}

// ---- Numbers

typedef struct extent {
  double ulp, largest;  // the step above 1; finite
  double least_normal;  // but for f8E8M0FNU, where it is about the least
} extent;

// From the conversions themselves. By type; filled at first use.
static extent measure(at_dtype t) {
  static extent all[AT_DTYPE_COUNT];
  at_dtype r = at_real_of(t);
  if (!all[r].ulp) {
    uint8_t b[8];
    double step = 1, big = 1, small = 1;
    for (;; step /= 2) {
      at_store_float(r, b, 1 + step / 2);
      if (at_load_float(r, b) <= 1) break;
    }
    for (uint32_t bits = 0; bits < 1u << 16 && at_dtype_bytes(r) < 4; bits++) {
      uint8_t raw[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
      if (at_dtype_of(r)->bits < 16 && bits >> at_dtype_of(r)->bits) break;
      double v = at_load_float(r, raw);
      if (isfinite(v) && v > big) big = v;
      if (v > 0 && v < small) small = v;
    }
    all[r] = (extent){step, big, small / step};
    if (r == AT_F32) all[r] = (extent){step, 0x1.fffffep127, 0x1p-126};
    if (r == AT_F64) all[r] = (extent){step, 0x1.fffffffffffffp1023, 0x1p-1022};
  }
  return all[r];
}

double judge_ulp(at_dtype t) { return measure(t).ulp; }
double judge_largest(at_dtype t) { return measure(t).largest; }
double judge_least_normal(at_dtype t) { return measure(t).least_normal; }

double judge_part(const at_literal *l, int64_t i, int k) {
  at_dtype t = at_real_of(l->type.dtype);
  return at_load_float(
      t, (const uint8_t *)at_literal_at(l, i) + k * at_dtype_bytes(t));
}

static int parts_of(at_dtype t) { return 1 + at_is_complex(t); }

bool judge_finite(const at_literal *l) {
  if (!judge_inexact(l->type.dtype)) return true;
  for (int64_t i = 0; i < at_type_elements(&l->type); i++)
    for (int k = 0; k < parts_of(l->type.dtype); k++)
      if (!isfinite(judge_part(l, i, k))) return false;
  return true;
}

double judge_size(const at_literal *l) {
  double most = 0;
  if (!judge_inexact(l->type.dtype)) return 1;
  for (int64_t i = 0; i < at_type_elements(&l->type); i++)
    for (int k = 0; k < parts_of(l->type.dtype); k++) {
      double v = fabs(judge_part(l, i, k));
      if (v > most && isfinite(v)) most = v;
    }
  return most;
}

// ---- Comparison

typedef struct measure_of {
  class_id c;
  at_op op;
  double scale;                 // every element's, at least
  const double *terms, *sums;   // judge_terms; or NULL
  const at_literal *const *in;  // complex functions: what they were given
  uint32_t num_in;
  // What is not finite has no defined place, as this excuse says; COUNT: it
  // has.
  excuse_id only_finite;
  bool mixed;          // complex operands of which some are not finite
  int64_t skip_above;  // CHOLESKY: 1 the upper triangle, -1 the lower; 0 none
} measure_of;

// Notes the first element that differs, and how far the farthest is off.
static bool differ(judgement *j, int64_t i, double want, double got,
                   double off) {
  if (j->element < 0) {
    j->element = i;
    at_strbuf_addf(&j->why, "element %lld: expected %.17g, got %.17g",
                   (long long)i, want, got);
  }
  j->worst = fmax(j->worst, isnan(off) ? INFINITY : off);
  return false;
}

static bool equal_ints(const at_literal *want, const at_literal *got,
                       judgement *j) {
  bool good = true;
  for (int64_t i = 0; i < at_type_elements(&want->type); i++) {
    int64_t x = at_literal_int(want, i), y = at_literal_int(got, i);
    double off = fabs((double)x - (double)y);
    if (x != y) good = differ(j, i, (double)x, (double)y, fmax(off, 1));
  }
  return good;
}

static bool nan_element(const at_literal *l, int64_t i) {
  return isnan(judge_part(l, i, 0)) || isnan(judge_part(l, i, 1));
}

static bool skipped(const at_type *t, int64_t i, int64_t above) {
  if (!above) return false;
  int64_t n = t->dims[t->rank - 1], row = i / n % n, column = i % n;
  return above > 0 ? column > row : column < row;
}

static bool given_infinity(const measure_of *m, int64_t i) {
  for (uint32_t k = 0; k < m->num_in; k++) {
    const at_literal *l = m->in[k];
    for (int p = 0; p < parts_of(l->type.dtype); p++)
      if (!isfinite(judge_part(l, i, p))) return true;
  }
  return false;
}

static double complex complex_of(const at_literal *l, int64_t i) {
  return judge_part(l, i, 0) + I * judge_part(l, i, 1);
}

// How far from 1 the units of an element are.
static double stretch(const measure_of *m, int64_t i) {
  if (m->c != CLASS_POWER) return 1;
  double complex a = complex_of(m->in[0], i), b = complex_of(m->in[1], i);
  double p = cabs(b) * cabs(clog(a));  // infinite: none of its digits is known
  return isnan(p) || given_infinity(m, i) ? 1 : 1 + p;
}

// A complex angle that is off by half a turn or a whole one, when rounding
// decides on the side of a cut: of the root of a^2 + b^2, or of the logarithm.
static bool beside_cut(const measure_of *m, int64_t i, double ulp, double x,
                       double y) {
  double turns = (x - y) / M_PI;
  if (fabs(turns - nearbyint(turns)) > 64 * ulp || fabs(turns) < 0.5)
    return false;
  long double complex a = complex_of(m->in[0], i), b = complex_of(m->in[1], i);
  long double complex w = a / b, q = b * csqrtl(1 + w * w);
  return fabsl(creall(q)) <= 64 * ulp * cabsl(q) ||
         fabs(fabs(x) - M_PI) < 64 * ulp;
}

static double rounded(at_dtype t, double v) {
  uint8_t b[8];
  at_store_float(t, b, v);
  return at_load_float(t, b);
}

// The product with the reciprocal of a divisor that is the same everywhere.
// In f64 either product is rounded by the processor itself.
static bool by_reciprocal(const measure_of *m, at_dtype d, int64_t i,
                          double y) {
  double c = judge_part(m->in[1], 0, 0);
  for (int64_t k = 1; k < at_type_elements(&m->in[1]->type); k++)
    if (judge_part(m->in[1], k, 0) != c) return false;
  return y == rounded(d, judge_part(m->in[0], i, 0) * rounded(d, 1 / c));
}

// A narrow result of a sum that f32 may hold before it is rounded.
static bool narrow_sum(const measure_of *m, at_dtype d, int64_t i, double y) {
  const tolerance *t = find(CLASS_SUM, AT_F32);
  double s = m->sums[i], size = fmax(fabs(s), m->terms[i]);
  double off = t->ulp * judge_ulp(AT_F32) * size + t->slack;
  double lo = rounded(d, s - off), hi = rounded(d, s + off);
  if (isnan(y)) return isnan(lo) || isnan(hi);
  return !(y < lo) && !(y > hi);
}

// Do the terms of a complex product add up to what overflows?
static bool product_overflows(const measure_of *m, at_dtype d, int64_t i) {
  if (m->op != AT_OP_MULTIPLY || !m->in || !at_is_complex(d)) return false;
  double size[2];
  for (int k = 0; k < 2; k++)
    size[k] = fmax(fabs(judge_part(m->in[k], i, 0)),
                   fabs(judge_part(m->in[k], i, 1)));
  return size[0] * 4 * size[1] >= judge_largest(d);
}

// What no tolerance covers: x and y differ and one may not be finite.
static bool not_finite(const measure_of *m, at_dtype d, int64_t i, bool both) {
  double terms = m->terms ? m->terms[i] : 0;
  if (m->mixed && both) return excused(EXCUSE_COMPLEX_NOT_FINITE);
  if (given_infinity(m, i)) return excused(EXCUSE_COMPLEX_NOT_FINITE);
  return (terms * 2 >= judge_largest(d) || product_overflows(m, d, i)) &&
         excused(EXCUSE_OVERFLOW_BY_ORDER);
}

// What one unit of the class is. *least: no less than for the least normal
// number.
static double unit_of(const measure_of *m, at_dtype d, int64_t i, double scale,
                      double *least) {
  double each = judge_ulp(d) * stretch(m, i);
  *least = each * fmax(scale, judge_least_normal(d));
  return each * scale;
}

static bool part_equal(const measure_of *m, at_dtype d, int64_t i, double scale,
                       double x, double y, double *worst) {
  const tolerance *t = find(m->c, d);
  if (x == y || (isnan(x) && isnan(y))) return true;
  if (m->only_finite < EXCUSE_COUNT && !(isfinite(x) && isfinite(y)))
    return excused(m->only_finite);
  if (m->c == CLASS_QUOTIENT)
    return m->in && by_reciprocal(m, d, i, y) && excused(EXCUSE_RECIPROCAL);
  // The ends of f8E8M0FNU are f32's denormal numbers.
  if (d == AT_F8E8M0FNU && x < 0x1p-125) return excused(EXCUSE_E8M0_ENDS);
  if (m->sums && (m->only_finite == EXCUSE_F32_RANGE ||
                  m->terms[i] * 2 >= judge_largest(AT_F32)))
    return excused(EXCUSE_F32_RANGE);
  if (m->sums && isfinite(m->sums[i]) && narrow_sum(m, d, i, y)) return true;
  if (m->only_finite == EXCUSE_BF16_DENORMAL) return excused(m->only_finite);
  if (m->sums && isfinite(m->sums[i])) return false;
  if (m->c == CLASS_POWER && t && t->ulp * judge_ulp(d) * stretch(m, i) >= 1)
    return excused(EXCUSE_POWER_RANGE);
  if (!isfinite(x) || !isfinite(y))
    return not_finite(m, d, i, !isfinite(x) && !isfinite(y));
  double least, off = fabs(x - y), unit = unit_of(m, d, i, scale, &least);
  if (t && off <= t->ulp * unit + t->slack) {
    if (off > t->slack && unit > 0) *worst = fmax(*worst, off / unit);
    return true;
  }
  bool gamma = m->op == AT_OP_DIGAMMA || m->op == AT_OP_LGAMMA;
  if (t && gamma && off <= t->ulp * judge_ulp(d))
    return excused(EXCUSE_NEAR_ZERO);
  return m->op == AT_OP_ATAN2 && m->num_in &&
         beside_cut(m, i, judge_ulp(d), x, y) && excused(EXCUSE_ATAN2_CUT);
}

static bool equal(const measure_of *m, const at_literal *want,
                  const at_literal *got, judgement *j) {
  at_dtype d = want->type.dtype;
  bool good = true;
  if (!at_type_eq(&want->type, &got->type)) {
    at_strbuf_addf(&j->why, "the type differs");
    return false;
  }
  if (d == AT_TOKEN) return true;
  if (!judge_inexact(d)) return equal_ints(want, got, j);
  bool extremum = m->op == AT_OP_MAXIMUM || m->op == AT_OP_MINIMUM;
  for (int64_t i = 0; i < at_type_elements(&want->type); i++) {
    if (skipped(&want->type, i, m->skip_above)) continue;
    if (extremum && at_is_complex(d) && nan_element(want, i) &&
        nan_element(got, i) && excused(EXCUSE_NAN_PART))
      continue;
    double size = fabs(judge_part(want, i, 0));
    if (at_is_complex(d)) size = hypot(size, judge_part(want, i, 1));
    // Next to an infinite part the other has digits of its own.
    double scale = fmax(isfinite(size) ? size : 0, m->scale);
    if (m->terms) scale = fmax(scale, m->terms[i]);
    for (int k = 0; k < parts_of(d); k++) {
      double x = judge_part(want, i, k), y = judge_part(got, i, k);
      double own = isinf(size) && isfinite(x) ? fmax(scale, fabs(x)) : scale;
      if (part_equal(m, d, i, own, x, y, &j->worst)) continue;
      double least;
      unit_of(m, d, i, fmax(own, fabs(x)), &least);
      good = differ(j, i, x, y, fabs(x - y) / least);
    }
  }
  return good;
}

bool judge_program(bool exact, const at_literal *want, const at_literal *got,
                   judgement *j) {
  *j = judge_nothing();
  measure_of m = {
      .c = exact ? CLASS_EXACT : CLASS_PROGRAM,
      .scale = exact ? 0 : judge_size(want),
      .only_finite = exact ? EXCUSE_COUNT : EXCUSE_OVERFLOW_BY_ORDER};
  return equal(&m, want, got, j);
}

// ---- Nodes

static bool finite_operands(const at_node *n, const at_literal *const *in) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!judge_finite(in[i])) return false;
  return true;
}

static bool in_range(const at_node *n, const at_literal *const *in,
                     const at_literal *got, judgement *j) {
  at_dtype t = got->type.dtype;
  bool normal = at_node_int(n, AT_ATTR_RNG_DISTRIBUTION, 0) == AT_RNG_NORMAL;
  for (int64_t i = 0; i < at_type_elements(&got->type); i++) {
    bool real = at_is_float(t);
    double v = real ? at_literal_float(got, i) : (double)at_literal_int(got, i);
    double lo =
        real ? at_literal_float(in[0], 0) : (double)at_literal_int(in[0], 0);
    double hi =
        real ? at_literal_float(in[1], 0) : (double)at_literal_int(in[1], 0);
    if (normal ? !isfinite(v) : !(v >= lo && (v < hi || lo >= hi)))
      return differ(j, i, lo, v, fmax(lo - v, v - hi));
  }
  return true;
}

// Squares of the operands may overflow.
static bool large_operands(const at_node *n, const at_literal *const *in) {
  for (uint32_t i = 0; i < n->num_operands; i++) {
    double most = judge_size(in[i]);
    if (judge_inexact(in[i]->type.dtype) &&
        most * 4096 > sqrt(judge_largest(in[i]->type.dtype)))
      return true;
  }
  return false;
}

// Operands that f32, in which narrow sums are kept, does not hold.
static bool beyond_f32(const at_node *n, const at_literal *const *in) {
  at_dtype t = n->types[0].dtype;
  if (t == AT_F64 || t == AT_C128) return false;
  for (uint32_t k = 0; k < n->num_operands; k++) {
    at_dtype from = in[k]->type.dtype;
    if (from != AT_F64 && from != AT_C128) continue;
    for (int64_t i = 0; i < at_type_elements(&in[k]->type); i++)
      for (int p = 0; p < parts_of(from); p++) {
        double v = fabs(judge_part(in[k], i, p));
        bool held = v == 0 || (v >= 0x1p-126 && v <= 0x1.fffffep127);
        if (isfinite(v) && !held) return true;
      }
  }
  return false;
}

// L U = A with its rows permuted: pivots may tie. got: LU, pivots, permutation.
static bool factors(const at_literal *a, const at_literal *const *got,
                    judgement *out) {
  const at_type *t = &a->type;
  const tolerance *tol = find(CLASS_LINALG, t->dtype);
  int64_t n = t->dims[t->rank - 1], m = t->dims[t->rank - 2], batches = 1;
  for (uint32_t i = 0; i + 2 < t->rank; i++) batches *= t->dims[i];
  bool z = at_is_complex(t->dtype);
  double unit = judge_ulp(t->dtype) * (double)AT_MAX(m, n) *
                fmax(judge_size(a), judge_size(got[0]));
  if (!tol) return differ(out, 0, 0, 1, INFINITY);
#define AT_(l, r, c, k) \
  (k && !z ? 0 : judge_part(l, (b * m + (r)) * n + (c), k))
  for (int64_t b = 0; b < batches; b++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        int64_t from = at_literal_int(got[2], b * m + i);
        if (from < 0 || from >= m)
          return differ(out, i, 0, (double)from, INFINITY);
        double re = -AT_(a, from, j, 0), im = -AT_(a, from, j, 1);
        for (int64_t k = 0; k <= AT_MIN(i, j); k++) {
          double lr = i == k ? 1 : AT_(got[0], i, k, 0);
          double li = i == k ? 0 : AT_(got[0], i, k, 1);
          double ur = AT_(got[0], k, j, 0), ui = AT_(got[0], k, j, 1);
          re += lr * ur - li * ui;
          im += lr * ui + li * ur;
        }
        double off = hypot(re, im);
        if (!(off <= tol->ulp * unit + tol->slack))
          return differ(out, i * n + j, 0, off, off / unit);
        if (unit > 0) out->worst = fmax(out->worst, off / unit);
      }
#undef AT_
  return true;
}

static double complex entry(const at_literal *l, int64_t i) {
  double im = at_is_complex(l->type.dtype) ? judge_part(l, i, 1) : 0;
  return __builtin_complex(judge_part(l, i, 0), im);
}

// x := H x for x[m, n], where H = 1 - tau v v^H; false unless H is unitary.
static bool reflect(double complex *x, int64_t m, int64_t n,
                    const double complex *v, double complex tau, double most,
                    double *off) {
  double square = 0;
  for (int64_t i = 0; i < m; i++) square += creal(v[i] * conj(v[i]));
  *off = fabs(creal(tau * conj(tau)) * square - 2 * creal(tau));
  for (int64_t j = 0; j < n; j++) {
    double complex dot = 0;
    for (int64_t i = 0; i < m; i++) dot += conj(v[i]) * x[i * n + j];
    for (int64_t i = 0; i < m; i++) x[i * n + j] -= tau * v[i] * dot;
  }
  return *off <= most;
}

// H(0) H(1) ... R = A: the parts are not unique where columns of A depend on
// each other. got: R with the v below it, and the taus.
static bool reflects(at_arena *arena, const at_literal *a,
                     const at_literal *const *got, judgement *out) {
  const at_type *t = &a->type;
  const tolerance *tol = find(CLASS_LINALG, t->dtype);
  int64_t n = t->dims[t->rank - 1], m = t->dims[t->rank - 2];
  int64_t taus = AT_MIN(m, n), batches = 1;
  for (uint32_t i = 0; i + 2 < t->rank; i++) batches *= t->dims[i];
  double step = judge_ulp(t->dtype) * (double)AT_MAX(m, n), off;
  double unit = step * fmax(judge_size(a), judge_size(got[0]));
  double complex *x = at_new(arena, double complex, (size_t)(m * n + 1));
  double complex *v = at_new(arena, double complex, (size_t)(m + 1));
  if (!tol || !x || !v) return differ(out, 0, 0, 1, INFINITY);
  for (int64_t b = 0; b < batches; b++) {
    const int64_t at = b * m * n;
    for (int64_t i = 0; i < m * n; i++)
      x[i] = i / n <= i % n ? entry(got[0], at + i) : 0;
    for (int64_t k = taus - 1; k >= 0; k--) {
      for (int64_t i = k; i < m; i++)
        v[i] = i == k ? 1 : entry(got[0], at + i * n + k);
      if (!reflect(x + k * n, m - k, n, v + k, entry(got[1], b * taus + k),
                   tol->ulp * step, &off))
        return differ(out, k, 0, off, off / step);
    }
    for (int64_t i = 0; i < m * n; i++) {
      off = cabs(x[i] - entry(a, at + i));
      if (!(off <= tol->ulp * unit + tol->slack))
        return differ(out, at + i, 0, off, off / unit);
      if (unit > 0) out->worst = fmax(out->worst, off / unit);
    }
  }
  return true;
}

// A v = v l and v^H v = 1 for every matrix: eigenvectors are not unique.
static bool eigenvectors(const at_literal *a, const at_literal *v,
                         const at_literal *l, judgement *out) {
  const at_type *t = &v->type;
  int64_t n = t->dims[t->rank - 1], batches = 1;
  for (uint32_t i = 0; i + 2 < t->rank; i++) batches *= t->dims[i];
  const tolerance *tol = find(CLASS_LINALG, t->dtype);
  bool complex_type = at_is_complex(t->dtype);
  double unit = judge_ulp(t->dtype) * (double)n * fmax(judge_size(a), 1);
  if (!tol) return differ(out, 0, 0, 1, INFINITY);
#define RE(m, r, c) judge_part(m, (b * n + (r)) * n + (c), 0)
#define IM(m, r, c) \
  (complex_type ? judge_part(m, (b * n + (r)) * n + (c), 1) : 0)
  for (int64_t b = 0; b < batches; b++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) {
        double e = judge_part(l, b * n + j, 0), re = -RE(v, i, j) * e;
        double im = -IM(v, i, j) * e, ure = i == j ? -1 : 0, uim = 0;
        for (int64_t k = 0; k < n; k++) {
          re += RE(a, i, k) * RE(v, k, j) - IM(a, i, k) * IM(v, k, j);
          im += RE(a, i, k) * IM(v, k, j) + IM(a, i, k) * RE(v, k, j);
          ure += RE(v, k, i) * RE(v, k, j) + IM(v, k, i) * IM(v, k, j);
          uim += RE(v, k, i) * IM(v, k, j) - IM(v, k, i) * RE(v, k, j);
        }
        double off = fmax(hypot(re, im), hypot(ure, uim));
        if (!(off <= tol->ulp * unit + tol->slack))
          return differ(out, i * n + j, 0, off, off / unit);
        out->worst = fmax(out->worst, off / unit);
      }
#undef RE
#undef IM
  return true;
}

bool judge_has_denormal(const at_literal *l) {
  at_dtype t = at_real_of(l->type.dtype);
  double least = judge_least_normal(t);
  for (int64_t i = 0; i < at_type_elements(&l->type); i++)
    for (int k = 0; k < parts_of(l->type.dtype); k++) {
      double v = fabs(judge_part(l, i, k));
      if (v > 0 && v < least) return true;
    }
  return false;
}

static bool denormal_bf16(const at_literal *a, const at_literal *b) {
  return a->type.dtype == AT_BF16 && b->type.dtype == AT_BF16 &&
         (judge_has_denormal(a) || judge_has_denormal(b));
}

// Ops whose infinities and NaN have no agreed place.
static excuse_id excuse_of(const at_node *n, const at_literal *const *in,
                           class_id c, bool finite) {
  bool conv = n->op == AT_OP_CONVOLUTION || n->op == AT_OP_DYNAMIC_CONV;
  if (n->op == AT_OP_FFT && !finite) return EXCUSE_FFT_NOT_FINITE;
  if (c == CLASS_NORM && (!finite || large_operands(n, in)))
    return EXCUSE_NORM_RANGE;
  if (c == CLASS_SUM && n->num_operands > 1 && denormal_bf16(in[0], in[1]))
    return EXCUSE_BF16_DENORMAL;
  if (conv && !judge_finite(in[1])) return EXCUSE_KERNEL_NOT_FINITE;
  if (c == CLASS_SUM && beyond_f32(n, in)) return EXCUSE_F32_RANGE;
  return EXCUSE_COUNT;
}

static bool result_equal(measure_of *m, const at_node *n,
                         const at_literal *const *in, const at_literal *want,
                         const at_literal *got, judgement *j) {
  if (m->c == CLASS_RANDOM)
    return excused(EXCUSE_RNG_VALUES) && in_range(n, in, got, j);
  if (m->c == CLASS_LINALG || m->c == CLASS_NORM) m->scale = judge_size(want);
  for (uint32_t k = 0; m->c == CLASS_NORM && k < n->num_operands; k++)
    m->scale = fmax(m->scale, judge_size(in[k]));
  return equal(m, want, got, j);
}

at_status judge_node(at_arena *a, const at_node *n, const at_literal *const *in,
                     const at_literal *const *want,
                     const at_literal *const *got, judgement *j) {
  bool finite = finite_operands(n, in);
  measure_of m = {.c = judge_class(n), .op = n->op};
  m.only_finite = excuse_of(n, in, m.c, finite);
  m.mixed = m.c == CLASS_SUM && !finite && at_is_complex(n->types[0].dtype);
  if (m.c == CLASS_SUM) AT_TRY(judge_terms(a, n, in, &m.terms, &m.sums));
  *j = judge_nothing();
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  bool lu = at_str_is(target, "LuDecomposition");
  if (m.c == CLASS_LINALG &&
      (!finite || large_operands(n, in) || (lu && judge_has_denormal(in[0]))))
    return excused(EXCUSE_LINALG_RANGE), AT_OK;
  if (n->op == AT_OP_BITCAST_CONVERT && !finite &&
      at_dtype_bytes(in[0]->type.dtype) == 1)
    return excused(EXCUSE_NAN_BITS), AT_OK;
  if (n->op == AT_OP_CHOLESKY)
    m.skip_above = at_node_bool(n, AT_ATTR_LOWER) ? 1 : -1;
  if ((m.c == CLASS_FUNCTION || m.c == CLASS_POWER) && n->num_operands &&
      at_is_complex(in[0]->type.dtype))
    m.in = in, m.num_in = n->num_operands;
  if (m.c == CLASS_QUOTIENT) m.in = in;
  if (lu) {
    if (!factors(in[0], got, j)) j->bad_result = 0;
    return AT_OK;
  }
  if (at_str_is(target, "Qr")) {
    if (!reflects(a, in[0], got, j)) j->bad_result = 0;
    return AT_OK;
  }
  bool eigh = at_str_is(target, "Eigh");
  for (uint32_t i = 0; i < n->num_results; i++) {
    bool good = eigh && i == 0 ? eigenvectors(in[0], got[0], got[1], j)
                               : result_equal(&m, n, in, want[i], got[i], j);
    if (good) continue;
    j->bad_result = i;
    return AT_OK;
  }
  return AT_OK;
}
