// What an element of each value costs where it is used, inside out: with all
// that is computed there, but not with what is in memory.
#include "mosaic/plan_internal.h"

// What an operand adds. An element is computed once for all who want it at the
// same place and in the same loops, who share its cost; who moves elements has
// it computed again.
static double cost_of_operand(const at_mplan_fact *f, bool in_place) {
  bool kept = f->many && f->out.cost >= AT_MPLAN_KEEP_COST;
  if (kept || f->out.cost > AT_MPLAN_DEEP_COST) return 1;  // it is memory
  return in_place && !f->many ? f->out.cost / f->shares : f->out.cost;
}

// 1 for what is in memory: results of operations that are not lazy.
static double cost_of(at_mplan_build *b, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  if (!at_mosaic_is_lazy(c)) return 1;
  bool in_place = at_mosaic_is_elementwise(op);
  double cost = at_mosaic_weight_of(c);
  for (uint32_t k = 0; k < op->num_operands; k++)
    if (at_mosaic_is_vector(op->operands[k]))
      cost += cost_of_operand(at_mplan_fact_of(b, op->operands[k]), in_place);
  return cost;
}

static void set(at_mplan_build *b, const at_mvalue *v, double cost,
                uint32_t depth) {
  at_mplan_fact *f = at_mplan_fact_of(b, v);
  f->out.cost = cost;
  f->out.deep = cost > AT_MPLAN_DEEP_COST;
  f->depth = depth;
}

// In order, as operands are defined before; loops raise the depth inside them.
static void visit(at_mplan_build *b, const at_mblock *block, uint32_t depth) {
  for (uint32_t i = 0; i < block->num_args; i++)
    set(b, &block->args[i], 1, depth);
  for (uint32_t i = 0; i < block->num_ops; i++) {
    const at_mop *op = block->ops[i];
    double cost = cost_of(b, op);
    for (uint32_t k = 0; k < op->num_results; k++)
      set(b, &op->results[k], cost, depth);
    uint32_t inside = depth + at_mplan_is_loop(op);
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        visit(b, op->regions[r]->blocks[k], inside);
  }
}

void at_mplan_costs(at_mplan_build *b) {
  for (size_t i = 0; i < b->plan->blocks.len; i++)
    visit(b, b->plan->blocks.ptr[i], 0);
}
