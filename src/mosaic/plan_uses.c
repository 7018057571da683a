// Who names which value.
#include "mosaic/plan_internal.h"

// Uses by one operation count once in the list; it is in the order of the text.
static void add_use(at_mplan_build *b, at_mplan_fact *f, const at_mop *op) {
  if (f->last_use && f->last_use->op == op) return;
  at_mplan_use *u = at_new(b->a, at_mplan_use, 1);
  if (!u) {
    b->failed = true;
    return;
  }
  u->op = op;
  if (f->last_use)
    f->last_use->next = u;
  else
    f->first_use = u;
  f->last_use = u;
}

// Counts every operand; `shares` those by elementwise operations, which
// evaluate at the same position.
static void visit(at_mplan_build *b, const at_mblock *block) {
  for (uint32_t i = 0; i < block->num_ops; i++) {
    const at_mop *op = block->ops[i];
    bool in_place = at_mosaic_is_elementwise(op);
    bool product = at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL;
    for (uint32_t k = 0; k < op->num_operands; k++) {
      at_mplan_fact *f = at_mplan_fact_of(b, op->operands[k]);
      if (op->operands[k]->type->kind == AT_MTYPE_MEMREF) add_use(b, f, op);
      f->out.uses++;
      f->shares += in_place;
      f->products += product;
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        visit(b, op->regions[r]->blocks[k]);
  }
}

void at_mplan_uses(at_mplan_build *b) {
  for (size_t i = 0; i < b->plan->blocks.len; i++)
    visit(b, b->plan->blocks.ptr[i]);
}
