// Shape rules of leaves and elementwise ops. A rule computes the result types
// from operands, attributes and regions and ends in at_infer_set, which checks
// types that were given. Unknown dimensions (AT_DYN) agree with anything.
#include "hlo/hlo_internal.h"

enum {  // element classes an op takes
  B = 1 << AT_CLASS_BOOL,
  S = 1 << AT_CLASS_SINT,
  U = 1 << AT_CLASS_UINT,
  F = 1 << AT_CLASS_FLOAT,
  C = 1 << AT_CLASS_COMPLEX,
  I = S | U,
  ANY = B | I | F | C
};

// Element classes that an op takes, of each operand that check_domain looks at.
// Ops that are not listed take all.
static uint32_t domain_of(at_op op) {
  switch (op) {
    case AT_OP_ABS:
    case AT_OP_SIGN:
    case AT_OP_NEGATE:
      return I | F | C;
    case AT_OP_SUBTRACT:
    case AT_OP_DIVIDE:
    case AT_OP_REMAINDER:
    case AT_OP_POWER:
      return I | F | C;
    case AT_OP_NOT:
    case AT_OP_AND:
    case AT_OP_OR:
    case AT_OP_XOR:
      return B | I;
    case AT_OP_COUNT_LEADING_ZEROS:
    case AT_OP_POPCNT:
    case AT_OP_SHIFT_LEFT:
    case AT_OP_SHIFT_RIGHT_ARITHMETIC:
    case AT_OP_SHIFT_RIGHT_LOGICAL:
    case AT_OP_MULHI:
      return I;
    case AT_OP_CEIL:
    case AT_OP_FLOOR:
    case AT_OP_REDUCE_PRECISION:
    case AT_OP_ROUND_NEAREST_AFZ:
    case AT_OP_ROUND_NEAREST_EVEN:
    case AT_OP_NEXT_AFTER:
    case AT_OP_ERF:
    case AT_OP_ERFC:
    case AT_OP_ERF_INV:
    case AT_OP_LGAMMA:
    case AT_OP_DIGAMMA:
    case AT_OP_POLYGAMMA:
    case AT_OP_ZETA:
    case AT_OP_BATCH_NORM_INFERENCE:
      return F;
    case AT_OP_IS_FINITE:
    case AT_OP_REAL:
    case AT_OP_IMAG:
    case AT_OP_CHOLESKY:
    case AT_OP_CBRT:
    case AT_OP_COSINE:
    case AT_OP_EXPONENTIAL:
    case AT_OP_EXPONENTIAL_MINUS_ONE:
    case AT_OP_LOG:
    case AT_OP_LOG_PLUS_ONE:
    case AT_OP_LOGISTIC:
    case AT_OP_RSQRT:
    case AT_OP_SINE:
    case AT_OP_SQRT:
    case AT_OP_TAN:
    case AT_OP_TANH:
    case AT_OP_ACOS:
    case AT_OP_ACOSH:
    case AT_OP_ASIN:
    case AT_OP_ASINH:
    case AT_OP_ATAN:
    case AT_OP_ATANH:
    case AT_OP_COSH:
    case AT_OP_SINH:
    case AT_OP_ATAN2:
      return F | C;
    default:
      return ANY | 1 << AT_CLASS_OTHER;
  }
}

// The element class of operand i against domain_of.
static at_status check_domain(const at_node *n, uint32_t i) {
  const at_type *t = at_value_type(n->operands[i]);
  if (!(domain_of(n->op) & 1u << at_dtype_of(t->dtype)->dclass))
    return AT_BAD(n, "operand %u has element type %s, which it does not take",
                  i, at_dtype_of(t->dtype)->text);
  return AT_OK;
}

// The common type of operands [first, last); unknown dims are filled from the
// others. `dims` has room for the rank.
static at_status merge(at_module *m, const at_node *n, uint32_t first,
                       uint32_t last, at_type *out) {
  const at_type *a = at_value_type(n->operands[first]);
  int64_t *dims;
  AT_TRY(check_domain(n, first));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, a->rank));
  if (a->rank) memcpy(dims, a->dims, a->rank * sizeof *dims);
  for (uint32_t i = first + 1; i < last; i++) {
    const at_type *b = at_value_type(n->operands[i]);
    at_type have = *a;
    have.dims = dims;
    if (!at_type_compatible(&have, b))
      return AT_BAD(n, "operand %u is %s, operand %u is %s; they must agree",
                    first, at_type_z(a).z, i, at_type_z(b).z);
    for (uint32_t d = 0; d < a->rank; d++)
      if (dims[d] == AT_DYN) dims[d] = b->dims[d];
  }
  *out = *a;
  out->dims = dims;
  return AT_OK;
}

// Dimensions in range, none twice, in any order.
static at_status check_reverse(const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims d = at_node_ints(n, AT_ATTR_DIMENSIONS);
  for (uint32_t i = 0; i < d.rank; i++) {
    if (d.ptr[i] < 0 || d.ptr[i] >= t->rank)
      return AT_BAD(n, "dimensions[%u] = %lld is not in [0, %u)", i,
                    (long long)d.ptr[i], t->rank);
    for (uint32_t j = 0; j < i; j++)
      if (d.ptr[i] == d.ptr[j])
        return AT_BAD(n, "dimensions names %lld twice", (long long)d.ptr[i]);
  }
  return AT_OK;
}

// At least one exponent bit, as StableHLO has it; the upper limits only refuse
// nonsense.
static at_status check_precision(const at_node *n) {
  int64_t e = at_node_int(n, AT_ATTR_EXPONENT_BITS, 0);
  int64_t man = at_node_int(n, AT_ATTR_MANTISSA_BITS, -1);
  if (e < 1 || e > 32 || man < 0 || man > 64)
    return AT_BAD(n,
                  "exponent_bits = %lld, mantissa_bits = %lld: needs "
                  "exponent_bits >= 1 and mantissa_bits >= 0",
                  (long long)e, (long long)man);
  return AT_OK;
}

// The type of operand 0 where the operands do not share one type.
static at_status check_norm_inference(at_module *m, at_node *n) {
  const at_type *x = at_value_type(n->operands[0]);
  int64_t f = at_node_int(n, AT_ATTR_FEATURE_INDEX, -1);
  if (f < 0 || f >= x->rank)
    return AT_BAD(n, "feature_index %lld is not in [0, %u)", (long long)f,
                  x->rank);
  for (uint32_t i = 1; i < n->num_operands; i++) {
    at_type want = {.dtype = x->dtype, .rank = 1, .dims = &x->dims[f]};
    const at_type *t = at_value_type(n->operands[i]);
    if (!at_type_compatible(t, &want))
      return AT_BAD(n, "operand %u is %s, must be %s", i, at_type_z(t).z,
                    at_type_z(&want).z);
  }
  AT_TRY(check_domain(n, 0));
  return at_infer_set(m, n, x, 1);
}

// A size that is not known agrees with any.
static at_status check_cholesky(const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  if (t->rank < 2 ||
      (t->dims[t->rank - 1] != t->dims[t->rank - 2] &&
       t->dims[t->rank - 1] != AT_DYN && t->dims[t->rank - 2] != AT_DYN))
    return AT_BAD(n, "operand %s is not a batch of square matrices",
                  at_type_z(t).z);
  return AT_OK;
}

// The result has the operands' common type.
at_status at_infer_same(at_module *m, at_node *n) {
  at_type t;
  if (n->op == AT_OP_BATCH_NORM_INFERENCE) return check_norm_inference(m, n);
  if (n->op == AT_OP_REVERSE) AT_TRY(check_reverse(n));
  if (n->op == AT_OP_REDUCE_PRECISION) AT_TRY(check_precision(n));
  if (n->op == AT_OP_CHOLESKY) AT_TRY(check_cholesky(n));
  AT_TRY(merge(m, n, 0, n->num_operands, &t));
  return at_infer_set(m, n, &t, 1);
}

// As at_infer_same with another element type; a quantised element type does not
// carry over.
static at_status infer_with(at_module *m, at_node *n, at_dtype d) {
  at_type t;
  AT_TRY(merge(m, n, 0, n->num_operands, &t));
  t.quant = NULL;
  t = at_type_with(t, d);
  return at_infer_set(m, n, &t, 1);
}

at_status at_infer_abs(at_module *m, at_node *n) {
  return infer_with(m, n, at_real_of(at_value_type(n->operands[0])->dtype));
}
at_status at_infer_real_of(at_module *m, at_node *n) {
  return at_infer_abs(m, n);
}
// A comparison without direction has no meaning, and no default.
at_status at_infer_pred_of(at_module *m, at_node *n) {
  if (n->op == AT_OP_COMPARE && !at_node_attr(n, AT_ATTR_COMPARISON_DIRECTION))
    return AT_BAD(n, "lacks the attribute \"comparison_direction\"");
  return infer_with(m, n, AT_PRED);
}
// Real and imaginary part in, a complex number out.
at_status at_infer_complex_of(at_module *m, at_node *n) {
  at_dtype t = at_value_type(n->operands[0])->dtype;
  if (t != AT_F32 && t != AT_F64)
    return AT_BAD(n, "operands must be f32 or f64");
  return infer_with(m, n, t == AT_F32 ? AT_C64 : AT_C128);
}

// The shape follows from the operands, the element type from the declaration
// (convert).
at_status at_infer_given_dtype(at_module *m, at_node *n) {
  if (!n->types) return AT_BAD(n, "needs its result type");
  return infer_with(m, n, n->types[0].dtype);
}

// (min, x, max): both bounds have x's type or are scalars of its element type.
at_status at_infer_clamp(at_module *m, at_node *n) {
  const at_type *x = at_value_type(n->operands[1]);
  for (uint32_t i = 0; i < 3; i += 2) {
    const at_type *t = at_value_type(n->operands[i]);
    at_type scalar = at_type_scalar(x->dtype);
    if (!at_type_compatible(t, x) && !at_type_compatible(t, &scalar))
      return AT_BAD(n, "bound %u is %s, must be %s or a scalar of its type", i,
                    at_type_z(t).z, at_type_z(x).z);
  }
  return at_infer_set(m, n, x, 1);
}

// (predicate, true, false): the predicate has the result's shape or is a
// scalar.
at_status at_infer_select(at_module *m, at_node *n) {
  const at_type *p = at_value_type(n->operands[0]);
  at_type t;
  AT_TRY(merge(m, n, 1, 3, &t));
  at_type want = at_type_with(t, AT_PRED), scalar = at_type_scalar(AT_PRED);
  if (!at_type_compatible(p, &want) && !at_type_compatible(p, &scalar))
    return AT_BAD(n, "predicate is %s, must be %s or i1[]", at_type_z(p).z,
                  at_type_z(&want).z);
  return at_infer_set(m, n, &t, 1);
}

// Result i has operand i's type.
at_status at_infer_operands(at_module *m, at_node *n) {
  at_type *t;
  AT_TRY_ALLOC(t, at_new(m->arena, at_type, n->num_operands));
  for (uint32_t i = 0; i < n->num_operands; i++)
    t[i] = *at_value_type(n->operands[i]);
  return at_infer_set(m, n, t, n->num_operands);
}

// ---- Leaves and given types

static at_status infer_scalar(at_module *m, at_node *n, at_dtype d) {
  at_type t = at_type_scalar(d);
  return at_infer_set(m, n, &t, 1);
}
at_status at_infer_scalar_u32(at_module *m, at_node *n) {
  return infer_scalar(m, n, AT_U32);
}
at_status at_infer_token(at_module *m, at_node *n) {
  return infer_scalar(m, n, AT_TOKEN);
}
// The size of one dimension, which the attribute names.
at_status at_infer_scalar_s32(at_module *m, at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, -1);
  if (d < 0 || d >= t->rank)
    return AT_BAD(n, "dimension %lld is not in [0, %u)", (long long)d, t->rank);
  return infer_scalar(m, n, AT_S32);
}

// The literal's type.
at_status at_infer_constant(at_module *m, at_node *n) {
  const at_literal *l = at_node_literal(n);
  if (!l) return AT_BAD(n, "lacks the attribute \"value\"");
  return at_infer_set(m, n, &l->type, 1);
}
