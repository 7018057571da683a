// What an operation says of itself: whether it becomes an expression, what it
// costs, its attributes.
#include "mosaic/forms.h"

#include <string.h>

bool at_mosaic_is_vector(const at_mvalue *v) {
  return v->type->kind == AT_MTYPE_VECTOR;
}

// ---- attributes
int64_t at_mosaic_op_int(const at_mop *op, const char *name,
                         int64_t otherwise) {
  const at_mattr *t = at_mop_attr(op, name);
  return t && (t->kind == AT_MATTR_INTEGER || t->kind == AT_MATTR_BOOL)
             ? t->i
             : otherwise;
}

// The i-th integer of a dense array, or of an array of integers.
static int64_t int_of(const at_mattr *t, uint32_t i) {
  if (t->kind == AT_MATTR_ARRAY) return t->elems[i]->i;
  uint32_t width = t->type && t->type->elem ? t->type->elem->width
                   : t->type                ? t->type->width
                                            : 64;
  size_t n = width > 32 ? 8 : width > 16 ? 4 : width > 8 ? 2 : 1;
  size_t at = t->splat ? 0 : i * n;
  int64_t v = 0;
  if (at + n > t->data.len) return 0;
  if (n == 8) {
    memcpy(&v, t->data.ptr + at, 8);
  } else if (n == 4) {
    int32_t x;
    memcpy(&x, t->data.ptr + at, 4);
    v = x;
  } else if (n == 2) {
    int16_t x;
    memcpy(&x, t->data.ptr + at, 2);
    v = x;
  } else {
    v = (int8_t)t->data.ptr[at];
  }
  return v;
}
// By the element width; 0 for attributes of other kinds.
static uint32_t int_count(const at_mattr *t) {
  if (t->kind == AT_MATTR_ARRAY) return t->num_elems;
  if (t->kind != AT_MATTR_DENSE_ARRAY && t->kind != AT_MATTR_DENSE) return 0;
  uint32_t width = t->type && t->type->elem ? t->type->elem->width
                   : t->type                ? t->type->width
                                            : 64;
  size_t n = width > 32 ? 8 : width > 16 ? 4 : width > 8 ? 2 : 1;
  return (uint32_t)(t->data.len / n);
}
// Dense arrays and vectors of any width, and arrays of integers.
bool at_mosaic_op_ints(const at_mop *op, const char *name, int64_t *out,
                       uint32_t max, uint32_t *n) {
  const at_mattr *t = at_mop_attr(op, name);
  *n = t ? int_count(t) : 0;
  if (!t || *n > max) return false;
  for (uint32_t i = 0; i < *n; i++) out[i] = int_of(t, i);
  return true;
}

// Operands of group i, by operandSegmentSizes.
uint32_t at_mosaic_op_segment(const at_mop *op, uint32_t i, uint32_t *first) {
  const at_mattr *t = at_mop_attr(op, "operandSegmentSizes");
  *first = 0;
  if (!t || i >= int_count(t)) return 0;
  for (uint32_t k = 0; k < i; k++) *first += (uint32_t)int_of(t, k);
  uint32_t n = (uint32_t)int_of(t, i);
  return *first + n <= op->num_operands ? n : 0;
}

// ---- kinds of operations
double at_mosaic_weight_of(at_mosaic_opcode c) {
  return at_mosaic_op_info_of(c)->weight;
}

// Loads, lazy and elementwise forms.
bool at_mosaic_is_lazy(at_mosaic_opcode c) {
  return at_mosaic_op_info_of(c)->form >= AT_MOSAIC_FORM_LOAD;
}

// Results that depend on the operands' values alone.
bool at_mosaic_computes(at_mosaic_opcode c) {
  at_mosaic_form form = at_mosaic_op_info_of(c)->form;
  return form != AT_MOSAIC_FORM_EFFECT && form != AT_MOSAIC_FORM_LOAD;
}

// As ops.def says.
bool at_mosaic_is_elementwise(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return at_mosaic_op_info_of(c)->form == AT_MOSAIC_FORM_EACH;
}

// ---- loads and stores
bool at_mosaic_is_plain_load(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return (c == AT_MOSAIC_VECTOR_LOAD || c == AT_MOSAIC_TPU_VECTOR_LOAD) &&
         op->num_operands == 1 + op->operands[0]->type->shape.rank;
}

bool at_mosaic_is_plain_store(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return (c == AT_MOSAIC_VECTOR_STORE || c == AT_MOSAIC_TPU_VECTOR_STORE) &&
         op->num_operands == 2 + op->operands[1]->type->shape.rank &&
         !at_mosaic_op_int(op, "add", 0);
}

bool at_mosaic_has_steps(const at_mop *op) {
  int64_t steps[AT_CORE_MAX_RANK];
  uint32_t n;
  (void)at_mosaic_op_ints(op, "strides", steps, AT_CORE_MAX_RANK, &n);
  return n > 0;
}

// ---- rows
int at_mosaic_row_dim(uint32_t rank, const int64_t *dim, int64_t rows) {
  uint32_t d = 0;
  while (d < rank && dim[d] == 1) d++;
  return d < rank && dim[d] == rows ? (int)d : -1;
}
