// A float that is widened and narrowed back is itself: kernels that compute in
// f32 whatever they are given say so of operands that products read as bf16.
// The chip's compiler folds it as well, before it looks at anything else.
#include "mosaic/mosaic_internal.h"

// The operation that makes v, if it is this one-operand cast.
static const at_mop *cast_of(const at_mvalue *v, at_mosaic_opcode code) {
  const at_mop *op = v->op;
  bool is = op && at_mosaic_opcode_of(op) == code && op->num_operands == 1 &&
            op->num_results == 1;
  return is ? op : NULL;
}

// Every float of 16 bits or fewer is one of f32.
static at_mvalue *folded(at_mvalue *v) {
  const at_mop *narrow = cast_of(v, AT_MOSAIC_ARITH_TRUNCF);
  const at_mop *wide =
      narrow ? cast_of(narrow->operands[0], AT_MOSAIC_ARITH_EXTF) : NULL;
  if (!wide || at_mosaic_dtype_of(wide->results[0].type) != AT_F32) return v;
  at_mvalue *from = wide->operands[0];
  const at_mtype *a = from->type, *b = v->type;  // not verified yet
  bool known = a->kind == b->kind && at_mosaic_dtype_of(a) != AT_INVALID;
  return a == b || (known && at_mosaic_same_type(a, b)) ? from : v;
}

// Operands are replaced in place; casts without users stay in the tree.
static void fold_op(at_mop *op) {
  at_mvalue **operands = (at_mvalue **)op->operands;
  for (uint32_t i = 0; i < op->num_operands; i++)
    operands[i] = folded(operands[i]);
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t b = 0; b < op->regions[r]->num_blocks; b++)
      for (uint32_t i = 0; i < op->regions[r]->blocks[b]->num_ops; i++)
        fold_op(op->regions[r]->blocks[b]->ops[i]);
}

void at_mosaic_fold(at_mosaic_kernel *k) { fold_op(k->module->op); }
