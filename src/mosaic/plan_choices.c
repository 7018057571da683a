// Values that only go where a choice may drop them, perhaps after arithmetic:
// JAX's where(first, x, acc[...] + x), where(i < n, ends[i] - starts[i], 0), or
// scores of keys that a mask drops behind the product, or numbers that a bound
// drops: i < n and ends[i] == 0. They do not count as read; the run tells what
// was dropped. Nor does a slice count that only says
// how many bytes to wait for.
#include "mosaic/plan_internal.h"

// What `select` may drop, of operand k; of a wait the memory whose size it is;
// of two truths either, as the other alone may decide.
static bool drops(const at_mop *op, at_mosaic_opcode c, uint32_t k) {
  bool truths = (c == AT_MOSAIC_ARITH_ANDI || c == AT_MOSAIC_ARITH_ORI) &&
                op->results[0].type->kind == AT_MTYPE_INTEGER &&
                op->results[0].type->width == 1;
  return truths || (k > 0 && (c == AT_MOSAIC_ARITH_SELECT ||
                              c == AT_MOSAIC_TPU_WAIT_DMA2));
}

// Operands count unless op may drop them, or passes them on to a result that
// does not count. Indices of a slice always count.
static void see(at_mplan_build *b, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  bool slice = c == AT_MOSAIC_TPU_MEMREF_SLICE;
  bool form =
      slice || c == AT_MOSAIC_TPU_MEMREF_SQUEEZE || at_mosaic_computes(c);
  bool dropped = form && op->num_results == 1 &&
                 !at_mplan_fact_of(b, &op->results[0])->out.counts;
  for (uint32_t k = 0; k < op->num_operands; k++) {
    bool index = slice && k;
    if (!drops(op, c, k) && (!dropped || index))
      at_mplan_fact_of(b, op->operands[k])->out.counts = true;
  }
}

// Is it an expression that nobody uses, so that its operands are not used
// either?
static bool is_unused(at_mplan_build *b, const at_mop *op) {
  return at_mosaic_is_lazy(at_mosaic_opcode_of(op)) && op->num_results == 1 &&
         at_mosaic_is_vector(&op->results[0]) &&
         at_mplan_fact_of(b, &op->results[0])->out.uses == 0;
}

// Backwards, so that a value's uses are seen before its definition.
static void visit(at_mplan_build *b, const at_mblock *block) {
  for (uint32_t i = block->num_ops; i-- > 0;) {
    const at_mop *op = block->ops[i];
    for (uint32_t r = op->num_regions; r-- > 0;)
      for (uint32_t k = op->regions[r]->num_blocks; k-- > 0;)
        visit(b, op->regions[r]->blocks[k]);
    if (!is_unused(b, op)) see(b, op);
  }
}

void at_mplan_choices(at_mplan_build *b) {
  for (size_t i = 0; i < b->plan->blocks.len; i++)
    visit(b, b->plan->blocks.ptr[i]);
}
