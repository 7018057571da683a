// Operations under names that this room does not use: what older versions had,
// and what newer ones have for loads and stores of registers and for remarks.
#include "mosaic/mosaic_internal.h"

typedef at_status (*change)(at_mosaic_kernel *k, at_mop *op);

static at_status malformed(at_mosaic_kernel *k, const at_mop *op,
                           const char *what) {
  return at_mosaic_fail(k, op, AT_INVALID_ARGUMENT, "%s", what);
}

// `first` operands, then indices, then a mask along the last dimension (which
// `dimension` names where an attribute does).
static at_status masked(at_mosaic_kernel *k, at_mop *op, uint32_t first,
                        const at_mtype *t, const char *dimension) {
  int64_t d;
  if (op->num_operands < first + 1)
    return malformed(k, op, "an operand is missing");
  if (at_mosaic_attr_int(op, dimension, &d) && d + 1 != t->shape.rank)
    return at_mosaic_fail(k, op, AT_UNIMPLEMENTED,
                          "a mask along another dimension than the last");
  AT_TRY(at_mosaic_attr_set(k->arena, op, dimension, NULL));
  int32_t sizes[4] = {1, 1, 1, 1};
  sizes[first] = (int32_t)(op->num_operands - first - 1);
  const at_mattr *segments, *none;
  AT_TRY(at_mosaic_attr_new_i32s(k->arena, sizes, first + 2, &segments));
  AT_TRY(at_mosaic_attr_new_i32s(k->arena, sizes, 0, &none));
  AT_TRY(at_mosaic_attr_set(k->arena, op, "strides", none));
  return at_mosaic_attr_set(k->arena, op, "operandSegmentSizes", segments);
}

// Ref, indices, mask.
static at_status expand(at_mosaic_kernel *k, at_mop *op) {
  if (op->num_results != 1) return malformed(k, op, "one result is expected");
  return masked(k, op, 1, op->results[0].type, "expand_dim");
}

// Value, ref, indices, mask.
static at_status compress(at_mosaic_kernel *k, at_mop *op) {
  if (op->num_operands < 2) return malformed(k, op, "an operand is missing");
  return masked(k, op, 2, op->operands[0]->type, "compress_dim");
}

// What the kernel says of accesses through a memref changes none of them.
static at_status annotate(at_mosaic_kernel *k, at_mop *op) {
  static const char *const remarks[] = {"no_store", "no_bank_conflict",
                                        "no_hazard", "no_hazard_no_deps"};
  for (size_t i = 0; i < AT_LEN(remarks); i++)
    AT_TRY(at_mosaic_attr_set(k->arena, op, remarks[i], NULL));
  return AT_OK;
}

// tpu.memref_memory_space_is is known when it is read: it becomes a constant.
static at_status space_is(at_mosaic_kernel *k, at_mop *op) {
  at_str have = {0}, want = {0};
  if (op->num_operands != 1) return malformed(k, op, "one operand is expected");
  const at_mattr *space = op->operands[0]->type->space, *v;
  if (space) at_mosaic_attr_text(space, &have);
  if (!at_mosaic_attr_text(at_mop_attr(op, "memory_space"), &want))
    return malformed(k, op, "memory_space is missing or of another kind");
  AT_TRY(at_mosaic_attr_new_bool(k->arena, at_str_eq(have, want), &v));
  AT_TRY(at_mosaic_attr_set(k->arena, op, "memory_space", NULL));
  op->num_operands = 0;
  return at_mosaic_attr_set(k->arena, op, "value", v);
}

// Whether one register is accessed as it lies in memory.
static bool is_whole(const at_mop *op) {
  int64_t stride = 1;
  const at_mattr *mask = at_mop_attr(op, "sublane_mask");
  if (!mask || mask->kind != AT_MATTR_DENSE_ARRAY) return false;
  for (size_t i = 0; i < mask->data.len; i++)
    if (!mask->data.ptr[i]) return false;
  at_mosaic_attr_int(op, "sublane_stride", &stride);
  return stride == 1;
}

// tpu.vector_load has strides instead of sublane masks: none.
static at_status no_strides(at_mosaic_kernel *k, at_mop *op) {
  const at_mattr *none;
  AT_TRY(at_mosaic_attr_set(k->arena, op, "sublane_mask", NULL));
  AT_TRY(at_mosaic_attr_set(k->arena, op, "sublane_stride", NULL));
  AT_TRY(at_mosaic_attr_new_i32s(k->arena, NULL, 0, &none));
  return at_mosaic_attr_set(k->arena, op, "strides", none);
}

// One register's load as a vector load: ref, indices, no mask.
static at_status load(at_mosaic_kernel *k, at_mop *op) {
  const at_mattr *segments;
  if (op->num_operands < 1) return malformed(k, op, "an operand is missing");
  int32_t sizes[3] = {1, (int32_t)(op->num_operands - 1), 0};
  AT_TRY(at_mosaic_attr_new_i32s(k->arena, sizes, 3, &segments));
  AT_TRY(at_mosaic_attr_set(k->arena, op, "operandSegmentSizes", segments));
  return no_strides(k, op);
}

// tpu.load and tpu.store of whole registers become vector loads and stores;
// others keep their names.
at_status at_mosaic_rename(at_mosaic_kernel *k, at_mop *op) {
  static const struct {
    const char *name;
    at_mosaic_opcode now;
    change change;
  } names[] = {
      {"tpu.rotate", AT_MOSAIC_TPU_DYNAMIC_ROTATE, NULL},
      {"tpu.expand_load_vreg", AT_MOSAIC_TPU_VECTOR_LOAD, expand},
      {"tpu.vector_expand_load", AT_MOSAIC_TPU_VECTOR_LOAD, expand},
      {"tpu.compress_store_vreg", AT_MOSAIC_TPU_VECTOR_STORE, compress},
      {"tpu.vector_compress_store", AT_MOSAIC_TPU_VECTOR_STORE, compress},
      {"tpu.annotate", AT_MOSAIC_TPU_ERASE_MEMREF_LAYOUT, annotate},
      {"tpu.memref_memory_space_is", AT_MOSAIC_ARITH_CONSTANT, space_is},
      {"tpu.load", AT_MOSAIC_TPU_VECTOR_LOAD, load},
      {"tpu.store", AT_MOSAIC_TPU_VECTOR_STORE, no_strides},
  };
  bool known = op->tag != AT_MOSAIC_NO_OP;
  if (known &&
      ((op->tag != AT_MOSAIC_TPU_LOAD && op->tag != AT_MOSAIC_TPU_STORE) ||
       !is_whole(op)))
    return AT_OK;
  for (size_t i = 0; i < AT_LEN(names); i++) {
    if (strcmp(op->name, names[i].name)) continue;
    op->name = at_mosaic_op_info_of(names[i].now)->name;
    op->tag = names[i].now;
    return names[i].change ? names[i].change(k, op) : AT_OK;
  }
  return AT_OK;
}
