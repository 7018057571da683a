// Operations on numbers that are known before a kernel runs: integers of 32
// bits, indices, truths.
#include "mosaic/mosaic_internal.h"

// arith.cmpi's predicates by number: eq, ne, slt, sle, sgt, sge, ult, ule, ugt,
// uge.
static bool compare(int64_t predicate, int64_t a, int64_t b) {
  uint64_t ua = (uint32_t)a, ub = (uint32_t)b;
  switch (predicate) {
    case 0:
      return a == b;
    case 1:
      return a != b;
    case 2:
      return a < b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    case 5:
      return a >= b;
    case 6:
      return ua < ub;
    case 7:
      return ua <= ub;
    case 8:
      return ua > ub;
    default:
      return ua >= ub;
  }
}

static bool shift_fits(int64_t n) { return n >= 0 && n < 32; }

// Of two numbers, as 32-bit integers; false: not defined.
static bool combine(at_mosaic_opcode op, int64_t a, int64_t b, int64_t *out) {
  uint32_t ua = (uint32_t)a, ub = (uint32_t)b;
  bool divides = b != 0 && !(a == INT32_MIN && b == -1);
  switch (op) {
    case AT_MOSAIC_ARITH_ADDI:
      return *out = (int32_t)(ua + ub), true;
    case AT_MOSAIC_ARITH_SUBI:
      return *out = (int32_t)(ua - ub), true;
    case AT_MOSAIC_ARITH_MULI:
      return *out = (int32_t)(ua * ub), true;
    case AT_MOSAIC_ARITH_DIVSI:
      return divides ? *out = a / b, true : false;
    case AT_MOSAIC_ARITH_REMSI:
      return divides ? *out = a % b, true : false;
    case AT_MOSAIC_ARITH_DIVUI:
      return ub ? *out = (int32_t)(ua / ub), true : false;
    case AT_MOSAIC_ARITH_REMUI:
      return ub ? *out = (int32_t)(ua % ub), true : false;
    case AT_MOSAIC_ARITH_MINSI:
      return *out = AT_MIN(a, b), true;
    case AT_MOSAIC_ARITH_MAXSI:
      return *out = AT_MAX(a, b), true;
    case AT_MOSAIC_ARITH_ANDI:
      return *out = a & b, true;
    case AT_MOSAIC_ARITH_ORI:
      return *out = a | b, true;
    case AT_MOSAIC_ARITH_XORI:
      return *out = a ^ b, true;
    case AT_MOSAIC_ARITH_SHLI:
      return shift_fits(b) ? *out = (int32_t)(ua << b), true : false;
    case AT_MOSAIC_ARITH_SHRSI:
      return shift_fits(b) ? *out = (int32_t)a >> b, true : false;
    case AT_MOSAIC_ARITH_SHRUI:
      return shift_fits(b) ? *out = (int32_t)(ua >> b), true : false;
    default:
      return false;
  }
}

static bool is_truth(const at_mtype *t) {
  return t->kind == AT_MTYPE_INTEGER && t->width == 1;
}

// The value as a number of type t; those of i1 are 0 and 1.
static int64_t wrapped(const at_mtype *t, int64_t v) {
  if (is_truth(t)) return v & 1;
  return t->kind == AT_MTYPE_INTEGER && t->width > 32 ? v : (int32_t)v;
}

// What `combine` does with 32 bits is right of the lowest one, too.
static bool is_of_each_bit(at_mosaic_opcode op) {
  return op == AT_MOSAIC_ARITH_ADDI || op == AT_MOSAIC_ARITH_SUBI ||
         op == AT_MOSAIC_ARITH_MULI || op == AT_MOSAIC_ARITH_ANDI ||
         op == AT_MOSAIC_ARITH_ORI || op == AT_MOSAIC_ARITH_XORI;
}

// `combine` in the type of the result; wider ones than 32 bits are not known.
static bool combine_as(const at_mtype *t, at_mosaic_opcode op, int64_t a,
                       int64_t b, int64_t *out) {
  if (t->kind == AT_MTYPE_INTEGER && t->width > 32) return false;
  if (is_truth(t) && !is_of_each_bit(op)) return false;
  if (!combine(op, a, b, out)) return false;
  *out = wrapped(t, *out);
  return true;
}

// A scalar integer or bool constant; i1 is 0 or 1.
static bool constant(const at_mop *op, int64_t *out) {
  const at_mattr *a = at_mop_attr(op, "value");
  if (!a || (a->kind != AT_MATTR_INTEGER && a->kind != AT_MATTR_BOOL))
    return false;
  *out = is_truth(op->results[0].type) ? a->i & 1 : a->i;
  return true;
}

// Others wrap where these do not.
static bool is_number(const at_mtype *t) {
  return t->kind == AT_MTYPE_INDEX ||
         (t->kind == AT_MTYPE_INTEGER && (t->width == 1 || t->width >= 32));
}

// A select is known as soon as its condition and the arm that it takes are.
bool at_mosaic_integer_of(const at_mop *op, const bool known[3],
                          const int64_t x[3], int64_t *out) {
  int64_t predicate;
  if (op->num_results != 1 || !is_number(op->results[0].type)) return false;
  at_mosaic_opcode code = at_mosaic_opcode_of(op);
  switch (code) {
    case AT_MOSAIC_ARITH_CONSTANT:
      return constant(op, out);
    case AT_MOSAIC_ARITH_INDEX_CAST:
    case AT_MOSAIC_ARITH_INDEX_CASTUI:
    case AT_MOSAIC_ARITH_EXTUI:
    case AT_MOSAIC_TPU_ASSUME_MULTIPLE:
      *out = x[0];
      return known[0];
    case AT_MOSAIC_ARITH_TRUNCI:
      *out = wrapped(op->results[0].type, x[0]);
      return known[0];
    case AT_MOSAIC_ARITH_EXTSI:
      *out = is_truth(op->operands[0]->type) ? -x[0] : x[0];
      return known[0];
    case AT_MOSAIC_ARITH_CMPI:
      if (!known[0] || !known[1] ||
          !at_mosaic_attr_int(op, "predicate", &predicate))
        return false;
      return *out = compare(predicate, x[0], x[1]), true;
    case AT_MOSAIC_ARITH_SELECT:
      if (!known[0]) return false;
      *out = x[0] ? x[1] : x[2];
      return known[x[0] ? 1 : 2];
    default:
      return op->num_operands == 2 && known[0] && known[1] &&
             combine_as(op->results[0].type, code, x[0], x[1], out);
  }
}
