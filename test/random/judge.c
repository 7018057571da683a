#include "judge.h"

#include <math.h>

typedef struct tolerance {
  class_id c;
  at_dtype t;
  double ulp, slack;
} tolerance;
static const tolerance table[] = {
#define AT_TOLERANCE(c, t, ulp, slack) {CLASS_##c, AT_##t, ulp, slack},
#include "tolerance.def"
#undef AT_TOLERANCE
};

static const tolerance *find(class_id c, at_dtype t) {
  for (size_t i = 0; i < AT_LEN(table); i++)
    if (table[i].c == c && table[i].t == t) return &table[i];
  return NULL;
}

// ---- Classes ----------------------------------------------------------------

static bool inexact_type(at_dtype t) {
  return at_is_float(t) || at_is_complex(t);
}

static bool adds(const at_comp *c) {
  AT_FOR_NODES(n, c)
  if (n->op != AT_OP_MAXIMUM && n->op != AT_OP_MINIMUM &&
      n->op != AT_OP_PARAMETER && n->op != AT_OP_AND && n->op != AT_OP_OR)
    return true;
  return false;
}

static class_id worst_of(const at_comp *c) {
  class_id worst = CLASS_EXACT;
  AT_FOR_NODES(n, c) {
    class_id k = judge_class(n);
    worst = AT_MAX(worst, k);
  }
  return worst ? CLASS_PROGRAM : CLASS_EXACT;
}

class_id judge_class(const at_node *n) {
  at_dtype t = n->num_results ? n->types[0].dtype : AT_INVALID;
  class_id worst = CLASS_EXACT;
  switch (n->op) {
    case AT_OP_REDUCE:
    case AT_OP_REDUCE_WINDOW:
    case AT_OP_SCAN:
    case AT_OP_SCATTER:
    case AT_OP_SELECT_AND_SCATTER:
      return inexact_type(t) && adds(n->regions[0]) ? CLASS_SUM : CLASS_EXACT;
    case AT_OP_DOT_GENERAL:
    case AT_OP_CONVOLUTION:
    case AT_OP_FFT:
    case AT_OP_CHOLESKY:
    case AT_OP_TRIANGULAR_SOLVE:
      return inexact_type(t) ? CLASS_SUM : CLASS_EXACT;
    case AT_OP_IF:
    case AT_OP_CASE:
    case AT_OP_WHILE:
      for (uint32_t i = 0; i < n->num_regions; i++)
        worst = AT_MAX(worst, worst_of(n->regions[i]));
      return worst;
    case AT_OP_POWER:
      return inexact_type(t) ? CLASS_FUNCTION : CLASS_EXACT;
    default:
      break;
  }
  bool function = at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL;
  return function && inexact_type(t) && n->op != AT_OP_SQRT &&
                 n->op != AT_OP_DIVIDE && n->op != AT_OP_REMAINDER
             ? CLASS_FUNCTION
             : CLASS_EXACT;
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
      return inexact_type(n->types[0].dtype);
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

// Adding up a tensor in another order may lose every digit when terms cancel,
// so that a sum is close only next to its largest element.
void judge_trust(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    trust t = worst_input(c, n);
    if (n->op == AT_OP_CALL) t = TRUST_NONE;
    if (t == TRUST_CLOSE && !continuous(n)) t = TRUST_NONE;
    class_id k = judge_class(n);
    if (t == TRUST_EXACT && k != CLASS_EXACT)
      t = k == CLASS_PROGRAM ? TRUST_NONE : TRUST_CLOSE;
    n->mark = t;
  }
}

bool judge_sees_nan(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (n->op == AT_OP_TOP_K || n->op == AT_OP_BITCAST_CONVERT ||
        n->op == AT_OP_SORT)
      return true;
    if (at_node_int(n, AT_ATTR_COMPARE_TYPE, 0) == AT_CMP_TOTALORDER)
      return true;
    // No integer is right for NaN or for what does not fit.
    if (n->op == AT_OP_CONVERT && !inexact_type(n->types[0].dtype) &&
        n->types[0].dtype != AT_PRED &&
        at_is_float(at_value_type(n->operands[0])->dtype))
      return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (judge_sees_nan(n->regions[i])) return true;
  }
  return false;
}

// ---- Comparison -------------------------------------------------------------

static double ulp_of(at_dtype t) {
  switch (at_real_of(t)) {
    case AT_F64:
      return 0x1p-52;
    case AT_F32:
      return 0x1p-23;
    case AT_F16:
      return 0x1p-10;
    case AT_BF16:
      return 0x1p-7;
    default:
      return 0.25;
  }
}

static double largest_of(at_dtype t) {
  switch (at_real_of(t)) {
    case AT_F64:
      return 0x1.fffffffffffffp1023;
    case AT_F16:
      return 65504;
    default:
      return 0x1.fep127;  // f32 and bf16; others are not summed
  }
}

static double part(const at_literal *l, int64_t i, int k) {
  at_dtype t = at_real_of(l->type.dtype);
  return at_load_float(
      t, (const uint8_t *)at_literal_at(l, i) + k * at_dtype_bytes(t));
}

static bool finite_element(const at_literal *l, int64_t i) {
  return isfinite(part(l, i, 0)) && isfinite(part(l, i, 1));
}

double judge_largest(const at_literal *l) {
  double most = 0;
  if (!inexact_type(l->type.dtype)) return 1;
  for (int64_t i = 0; i < at_type_elements(&l->type); i++)
    for (int k = 0; k < 1 + at_is_complex(l->type.dtype); k++) {
      double v = fabs(part(l, i, k));
      if (v > most && isfinite(v)) most = v;
    }
  return most;
}

double judge_scale(const at_node *n, const at_literal *const *operands) {
  if (judge_class(n) != CLASS_SUM) return 0;
  double scale = 0, terms = 1;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    if (!inexact_type(operands[i]->type.dtype)) continue;
    double most = judge_largest(operands[i]);
    if (n->op == AT_OP_DOT_GENERAL || n->op == AT_OP_CONVOLUTION)
      scale = i ? scale * most : most;
    else
      scale = fmax(scale, most);
    terms = fmax(terms, (double)at_type_elements(&operands[i]->type));
  }
  return scale * terms;
}

static bool close(double want, double got, const tolerance *t, at_dtype d,
                  double scale) {
  if (want == got || (isnan(want) && isnan(got))) return true;
  if (!t) return false;
  return fabs(want - got) <=
         t->ulp * ulp_of(d) * fmax(fabs(want), scale) + t->slack;
}

static bool differ(at_strbuf *why, int64_t i, double want, double got) {
  at_strbuf_addf(why, "element %lld: expected %.17g, got %.17g", (long long)i,
                 want, got);
  return false;
}

bool judge_equal(class_id c, double scale, const at_literal *want,
                 const at_literal *got, at_strbuf *why) {
  at_dtype d = want->type.dtype;
  const tolerance *t = find(c, d);
  if (!at_type_eq(&want->type, &got->type)) {
    at_strbuf_addf(why, "the type differs");
    return false;
  }
  for (int64_t i = 0; i < at_type_elements(&want->type); i++) {
    if (!inexact_type(d)) {
      int64_t x = at_literal_int(want, i), y = at_literal_int(got, i);
      if (x != y) return differ(why, i, (double)x, (double)y);
      continue;
    }
    // Which parts of a sum of complex products overflow depends on how they are
    // multiplied.
    if (c != CLASS_EXACT && at_is_complex(d) && !finite_element(want, i))
      continue;
    for (int k = 0; k < 1 + at_is_complex(d); k++) {
      double x = part(want, i, k), y = part(got, i, k);
      // A sum that could overflow may do so in one order and not in another.
      // Of a whole program the terms are not known.
      bool may = scale >= largest_of(d) || c == CLASS_PROGRAM;
      if (may && !(isfinite(x) && isfinite(y))) continue;
      if (!close(x, y, t, d, scale)) return differ(why, i, x, y);
    }
  }
  return true;
}
