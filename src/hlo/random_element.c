// Random elementwise ops, leaves and conversions.
#include "hlo/random_internal.h"

// Complex products are left out: whether they overflow in between depends on
// the formula.
at_op at_gen_exact_binary(at_gen *g, at_dtype t) {
  static const at_op floats[] = {AT_OP_ADD,      AT_OP_SUBTRACT, AT_OP_MULTIPLY,
                                 AT_OP_DIVIDE,   AT_OP_MAXIMUM,  AT_OP_MINIMUM,
                                 AT_OP_REMAINDER};
  static const at_op ints[] = {AT_OP_ADD,
                               AT_OP_SUBTRACT,
                               AT_OP_MULTIPLY,
                               AT_OP_DIVIDE,
                               AT_OP_MAXIMUM,
                               AT_OP_MINIMUM,
                               AT_OP_REMAINDER,
                               AT_OP_AND,
                               AT_OP_OR,
                               AT_OP_XOR,
                               AT_OP_POWER,
                               AT_OP_SHIFT_LEFT,
                               AT_OP_MULHI,
                               AT_OP_SHIFT_RIGHT_ARITHMETIC,
                               AT_OP_SHIFT_RIGHT_LOGICAL};
  static const at_op bools[] = {AT_OP_AND, AT_OP_OR, AT_OP_XOR, AT_OP_MAXIMUM};
  static const at_op complexes[] = {AT_OP_ADD, AT_OP_SUBTRACT};
  if (at_is_float(t)) return AT_GEN_PICK(g, floats);
  if (at_is_complex(t)) return AT_GEN_PICK(g, complexes);
  return t == AT_PRED ? AT_GEN_PICK(g, bools) : AT_GEN_PICK(g, ints);
}

// ---- Leaves

// Also beyond the number at which at_gen_fresh goes over to constants.
at_status at_gen_parameter(at_gen *g, at_op op, at_dtype t) {
  at_type r;
  at_value v;
  (void)op;
  AT_TRY(at_gen_type(g, t, 0, 4, true, &r));
  AT_TRY(at_build_param(g->c, r, NULL, &v));
  return at_gen_keep(g, v);
}

// Up to three dimensions.
at_status at_gen_constant(at_gen *g, at_op op, at_dtype t) {
  at_type r;
  at_value v;
  (void)op;
  AT_TRY(at_gen_type(g, t, 0, 3, true, &r));
  AT_TRY(at_gen_literal(g, r, &v));
  return at_gen_keep(g, v);
}

// The dynamic form has its shape as an operand.
at_status at_gen_iota(at_gen *g, at_op op, at_dtype t) {
  at_type r;
  at_value shape;
  AT_TRY(at_gen_type(g, t, 1, 4, true, &r));
  at_step s = {.op = op, .types = &r, .num_types = 1};
  at_step_int(&s, AT_ATTR_DIMENSION, at_gen_below(g, r.rank));
  if (op == AT_OP_DYNAMIC_IOTA) {
    AT_TRY(at_gen_list(g, r.dims, r.rank, &shape));
    at_step_operand(&s, shape);
  }
  return at_step_build(g, &s);
}

// Replica and partition id: no operands, one type.
at_status at_gen_device_id(at_gen *g, at_op op, at_dtype t) {
  (void)t;
  return at_step_build(g, &(at_step){.op = op});
}

// Tokens are not kept: no other step takes one.
at_status at_gen_token(at_gen *g, at_op op, at_dtype t) {
  at_value v;
  (void)t;
  AT_TRY(at_step_in(g->c, &(at_step){.op = AT_OP_CREATE_TOKEN}, &v));
  if (op == AT_OP_CREATE_TOKEN) return AT_OK;
  at_step s = {.op = op};
  at_step_operand(&s, v);
  return at_step_in(g->c, &s, &v);
}

// ---- Operands of one type

// An op of one operand whose result type follows.
at_status at_gen_unary(at_gen *g, at_op op, at_dtype t) {
  at_value x;
  at_step s = {.op = op};
  AT_TRY(at_gen_value(g, t, &x));
  at_step_operand(&s, x);
  return at_step_build(g, &s);
}

// Operands change places, so that the older value is not always the left one.
at_status at_gen_binary(at_gen *g, at_op op, at_dtype t) {
  at_value x, y;
  at_step s = {.op = op};
  AT_TRY(at_gen_value(g, t, &x));
  AT_TRY(at_gen_like(g, *at_value_type(x), &y));
  bool turned = at_gen_chance(g, 50);
  at_step_operand(&s, turned ? y : x);
  at_step_operand(&s, turned ? x : y);
  return at_step_build(g, &s);
}

// Also more bits than the type has.
at_status at_gen_reduce_precision(at_gen *g, at_op op, at_dtype t) {
  at_value x;
  at_step s = {.op = op};
  AT_TRY(at_gen_value(g, t, &x));
  at_step_operand(&s, x);
  at_step_int(&s, AT_ATTR_EXPONENT_BITS, 1 + at_gen_below(g, 11));
  at_step_int(&s, AT_ATTR_MANTISSA_BITS, at_gen_below(g, 30));
  return at_step_build(g, &s);
}

// Complex numbers are compared for equality only.
static at_status compare(at_gen *g, at_dtype t, bool total) {
  at_value x, y;
  at_step s = {.op = AT_OP_COMPARE};
  AT_TRY(at_gen_value(g, t, &x));
  AT_TRY(at_gen_like(g, *at_value_type(x), &y));
  at_step_operand(&s, x);
  at_step_operand(&s, y);
  at_step_int(&s, AT_ATTR_COMPARISON_DIRECTION,
              at_gen_below(g, at_is_complex(t) ? 2 : 6));
  if (total) at_step_int(&s, AT_ATTR_COMPARE_TYPE, AT_CMP_TOTALORDER);
  return at_step_build(g, &s);
}
at_status at_gen_compare(at_gen *g, at_op op, at_dtype t) {
  (void)op;
  return compare(g, t, false);
}
at_status at_gen_compare_total(at_gen *g, at_op op, at_dtype t) {
  (void)op;
  return compare(g, t, true);
}

// A predicate of the same shape, or a scalar.
at_status at_gen_select(at_gen *g, at_op op, at_dtype t) {
  at_value p, x, y;
  at_step s = {.op = op};
  AT_TRY(at_gen_value(g, t, &x));
  const at_type *r = at_value_type(x);
  at_type pred = at_gen_chance(g, 20) ? at_type_scalar(AT_PRED)
                                      : at_type_with(*r, AT_PRED);
  AT_TRY(at_gen_like(g, pred, &p));
  AT_TRY(at_gen_like(g, *r, &y));
  at_step_operand(&s, p);
  at_step_operand(&s, x);
  at_step_operand(&s, y);
  return at_step_build(g, &s);
}

// Bounds in no particular order: min(max(x, lo), hi) is defined for any.
at_status at_gen_clamp(at_gen *g, at_op op, at_dtype t) {
  at_value lo, x, hi;
  at_step s = {.op = op};
  AT_TRY(at_gen_value(g, t, &x));
  at_type bound = at_gen_chance(g, 50) ? at_type_scalar(t) : *at_value_type(x);
  AT_TRY(at_gen_like(g, bound, &lo));
  AT_TRY(at_gen_like(g, bound, &hi));
  at_step_operand(&s, lo);
  at_step_operand(&s, x);
  at_step_operand(&s, hi);
  return at_step_build(g, &s);
}

// From any type but complex numbers to real ones, which StableHLO does not
// define.
at_status at_gen_convert(at_gen *g, at_op op, at_dtype t) {
  at_dtype from;
  at_value x;
  do from = (at_dtype)(1 + at_gen_below(g, AT_TOKEN - 1));
  while (at_is_complex(from) && !at_is_complex(t));
  AT_TRY(at_gen_value(g, from, &x));
  at_type r = at_type_with(*at_value_type(x), t);
  at_step s = {.op = op, .types = &r, .num_types = 1};
  at_step_operand(&s, x);
  return at_step_build(g, &s);
}
