// What the type rules that rows of ops.def name have in common. Each rule is a
// function at_mosaic_rule_NAME of one of verify_*.c: a name without one does
// not link.
#ifndef ATOLL_MOSAIC_VERIFY_RULES_H_
#define ATOLL_MOSAIC_VERIFY_RULES_H_

#include "mosaic/mosaic_internal.h"

// One prototype per row, so that a rule without a function fails to link and
// one without a row is found unused.
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  at_status at_mosaic_rule_##rule(at_mosaic_verifier *v, const at_mop *op);
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP

// INVALID_ARGUMENT about op; NEED returns it unless cond holds.
// Both need v and op in scope.
#define FAIL(v, op, ...) \
  at_mosaic_fail((v)->k, (op), AT_INVALID_ARGUMENT, __VA_ARGS__)
#define NEED(cond, ...)                           \
  do {                                            \
    if (!(cond)) return FAIL(v, op, __VA_ARGS__); \
  } while (0)

// Type of an operand, or of a result. i must be in range, which the kinds of
// operands that the row names guarantee.
static inline const at_mtype *arg(const at_mop *op, uint32_t i) {
  return op->operands[i]->type;
}
// The type of result i, which must exist.
static inline const at_mtype *res(const at_mop *op, uint32_t i) {
  return op->results[i].type;
}
// Shape of a vector or memref; scalars have rank 0.
// Dynamic sizes are AT_MDYN.
static inline at_dims shape_of(const at_mtype *t) {
  return t->kind == AT_MTYPE_VECTOR || t->kind == AT_MTYPE_MEMREF
             ? t->shape
             : (at_dims){0};
}
// Element type of a vector or memref; a scalar is its own.
static inline const at_mtype *elem_of(const at_mtype *t) {
  return t->kind == AT_MTYPE_VECTOR || t->kind == AT_MTYPE_MEMREF ? t->elem : t;
}
// Width of an element; index is 32 bits, as on the chip.
// A semaphore has 0.
static inline uint32_t bits_of(const at_mtype *t) {
  const at_mtype *e = elem_of(t);
  if (e->kind == AT_MTYPE_INDEX) return 32;
  if (e->kind == AT_MTYPE_INTEGER) return e->width;
  return at_dtype_of(at_mosaic_dtype_of(e))->bits;
}
// Element types alone, whatever the shapes.
// Signedness counts: i32 and ui32 differ.
static inline bool same_elem(const at_mtype *a, const at_mtype *b) {
  return at_mtype_eq(elem_of(a), elem_of(b));
}
// Shapes alone, whatever the elements.
static inline bool same_shape(const at_mtype *a, const at_mtype *b) {
  return at_dims_eq(shape_of(a), shape_of(b));
}
// A required attribute that is a list of integers, in the verifier's scratch
// arena.
// Dense arrays and lists of integers are both read.
static inline at_status ints(at_mosaic_verifier *v, const at_mop *op,
                             const char *name, at_dims *out) {
  NEED(at_mosaic_attr_ints(at_mop_attr(op, name), v->scratch, out),
       "'%s' op requires attribute '%s'", op->name, name);
  return AT_OK;
}

#endif
