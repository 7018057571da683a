// Type rules of what works element by element.
#include "mosaic/verify_rules.h"

at_status at_mosaic_rule_NONE(at_mosaic_verifier *v, const at_mop *op) {
  return AT_OK;
}

// One type for everything.
at_status at_mosaic_rule_SAME(at_mosaic_verifier *v, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    NEED(at_mtype_eq(arg(op, i), res(op, 0)),
         "'%s' op requires the same type for all operands and results",
         op->name);
  return AT_OK;
}

// Bits that exist; codegen rounds to that format.
at_status at_mosaic_rule_PRECISION(at_mosaic_verifier *v, const at_mop *op) {
  int64_t exponent = 0, mantissa = -1;
  at_mosaic_attr_int(op, "exponent_bits", &exponent);
  at_mosaic_attr_int(op, "mantissa_bits", &mantissa);
  NEED(exponent >= 1 && mantissa >= 0,
       "'%s' op needs exponent_bits >= 1 and mantissa_bits >= 0", op->name);
  return at_mosaic_rule_SAME(v, op);
}

// Operands of one type; a result of their shape; a predicate that exists.
at_status at_mosaic_rule_COMPARE(at_mosaic_verifier *v, const at_mop *op) {
  int64_t p = 0;
  for (uint32_t i = 1; i < op->num_operands; i++)
    NEED(at_mtype_eq(arg(op, i), arg(op, 0)),
         "'%s' op operands must have one type", op->name);
  NEED(same_shape(arg(op, 0), res(op, 0)),
       "'%s' op result must have the operands' shape", op->name);
  at_mosaic_attr_int(op, "predicate", &p);
  NEED(p >= 0 && p <= (op->tag == AT_MOSAIC_ARITH_CMPI ? 9 : 15),
       "'%s' op has no predicate %lld", op->name, (long long)p);
  return AT_OK;
}

// A condition of one bool chooses whole vectors.
at_status at_mosaic_rule_SELECT(at_mosaic_verifier *v, const at_mop *op) {
  NEED(at_mtype_eq(arg(op, 1), res(op, 0)) &&
           at_mtype_eq(arg(op, 2), res(op, 0)),
       "'arith.select' op values and result must have one type");
  NEED(
      arg(op, 0)->kind != AT_MTYPE_VECTOR || same_shape(arg(op, 0), res(op, 0)),
      "'arith.select' op condition must be one bool or have the values' shape");
  return AT_OK;
}

// One shape; elements may differ.
at_status at_mosaic_rule_SHAPE(at_mosaic_verifier *v, const at_mop *op) {
  for (uint32_t r = 0; r < op->num_results; r++)
    for (uint32_t i = 0; i < op->num_operands; i++)
      NEED(same_shape(arg(op, i), res(op, r)),
           "'%s' op operands and results must have one shape", op->name);
  return AT_OK;
}

// Casts that gain bits, and below casts that lose some.
at_status at_mosaic_rule_WIDEN(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_shape(arg(op, 0), res(op, 0)) &&
           bits_of(arg(op, 0)) < bits_of(res(op, 0)),
       "'%s' op result must be wider than the operand, in the same shape",
       op->name);
  return AT_OK;
}

at_status at_mosaic_rule_NARROW(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_shape(arg(op, 0), res(op, 0)) &&
           bits_of(arg(op, 0)) > bits_of(res(op, 0)),
       "'%s' op result must be narrower than the operand, in the same shape",
       op->name);
  return AT_OK;
}

// The attribute's type is the result's.
at_status at_mosaic_rule_CONSTANT(at_mosaic_verifier *v, const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "value");
  const at_mtype *t = res(op, 0);
  bool fits = t->kind == AT_MTYPE_VECTOR
                  ? a->kind == AT_MATTR_DENSE
                  : a->kind == AT_MATTR_INTEGER || a->kind == AT_MATTR_BOOL ||
                        a->kind == AT_MATTR_FLOAT;
  NEED(fits && a->type && at_mtype_eq(a->type, t),
       "'arith.constant' op value and result must have one type");
  return AT_OK;
}

// Dimensions equal but for `at`, counted from the end, which takes the ratio of
// widths: the bits stay.
static bool same_bits(const at_mtype *a, const at_mtype *b, uint32_t at) {
  at_dims x = shape_of(a), y = shape_of(b);
  if (x.rank != y.rank) return false;
  uint32_t p = bits_of(a), q = bits_of(b);
  if (p == q) return at_dims_eq(x, y);
  if (x.rank < at) return false;
  for (uint32_t i = 0; i < x.rank; i++) {
    if (i == x.rank - at) {
      if (x.ptr[i] * p != y.ptr[i] * q) return false;
    } else if (x.ptr[i] != y.ptr[i]) {
      return false;
    }
  }
  return true;
}

// The result's last dimension makes up for the width of elements.
at_status at_mosaic_rule_BITS(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_bits(arg(op, 0), res(op, 0), 1),
       "'%s' op operand and result must have the same bits", op->name);
  return AT_OK;
}

// Here it may be the last but one, where narrow elements are packed in a
// register.
at_status at_mosaic_rule_VECTOR_BITS(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_bits(arg(op, 0), res(op, 0), 2) ||
           same_bits(arg(op, 0), res(op, 0), 1),
       "Expected input and output shapes are the same after multiplying the "
       "second-minor dimension by the ratio of bitwidths");
  return AT_OK;
}

// Dimensions of the result, each at most once.
at_status at_mosaic_rule_IOTA(at_mosaic_verifier *v, const at_mop *op) {
  at_dims d, s = shape_of(res(op, 0));
  AT_TRY(ints(v, op, "dimensions", &d));
  NEED(d.rank, "dimensions must not be empty");
  uint32_t seen = 0;
  for (uint32_t i = 0; i < d.rank; i++) {
    NEED(d.ptr[i] >= 0 && d.ptr[i] < s.rank,
         "dimensions must be in range [0, %u), but got %lld", s.rank,
         (long long)d.ptr[i]);
    NEED(!(seen >> d.ptr[i] & 1), "dimensions must not have repeats");
    seen |= 1u << d.ptr[i];
  }
  return AT_OK;
}

// As many sources as narrow elements fit into a word.
at_status at_mosaic_rule_PACK_ELEMENTWISE(at_mosaic_verifier *v,
                                          const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "target_type");
  at_dtype t = a->type ? at_mosaic_dtype_of(a->type) : AT_INVALID;
  NEED(op->num_operands && t != AT_INVALID, "'%s' op has no sources or no type",
       op->name);
  for (uint32_t i = 0; i < op->num_operands; i++)
    NEED(at_mtype_eq(arg(op, i), arg(op, 0)) &&
             same_shape(arg(op, i), res(op, 0)),
         "'%s' op sources must have one type and the result's shape", op->name);
  NEED(at_dtype_of(t)->bits * op->num_operands == bits_of(arg(op, 0)) &&
           bits_of(res(op, 0)) == bits_of(arg(op, 0)),
       "Number of sources must match packing factor");
  return AT_OK;
}

// A position per source, within the packing factor.
at_status at_mosaic_rule_PACK(at_mosaic_verifier *v, const at_mop *op) {
  at_dims p;
  NEED(op->num_operands, "'%s' op has no sources", op->name);
  AT_TRY(ints(v, op, "positions", &p));
  NEED(p.rank == op->num_operands, "Size of sources and positions must match");
  uint32_t factor =
      bits_of(res(op, 0)) ? bits_of(arg(op, 0)) / bits_of(res(op, 0)) : 0;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    NEED(at_mtype_eq(arg(op, i), arg(op, 0)), "sources must have one type");
    NEED(p.ptr[i] >= 0 && p.ptr[i] < factor,
         "Positions must be between 0 and the packing factor");
  }
  return AT_OK;
}

// index is one of the parts.
at_status at_mosaic_rule_UNPACK(at_mosaic_verifier *v, const at_mop *op) {
  int64_t i = 0;
  at_mosaic_attr_int(op, "index", &i);
  uint32_t a = bits_of(arg(op, 0)), r = bits_of(res(op, 0));
  NEED(a && r > a && r % a == 0 && i >= 0 && i < r / a,
       "Index must be between 0 and the packing factor");
  return AT_OK;
}

at_status at_mosaic_rule_CREATE_MASK(at_mosaic_verifier *v, const at_mop *op) {
  NEED(op->num_operands == 2 * shape_of(res(op, 0)).rank,
       "'%s' op needs two bounds per dimension", op->name);
  return AT_OK;
}
