// Which operation makes somebody compute each value, outside in: a store, a
// reduction, a product, or a value that is itself kept. What several need and
// is worth it is kept.
#include "mosaic/plan_internal.h"

// The pass runs twice: facts of the first time go.
static void forget(at_mplan_build *b, const at_mblock *block) {
  for (uint32_t i = 0; i < block->num_ops; i++) {
    const at_mop *op = block->ops[i];
    for (uint32_t k = 0; k < op->num_operands; k++) {
      at_mplan_fact *f = at_mplan_fact_of(b, op->operands[k]);
      f->sink = NULL;
      f->many = f->out.kept = f->out.spread = false;
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        forget(b, op->regions[r]->blocks[k]);
  }
}

// sink NULL: each use computes it anew.
static void need(at_mplan_build *b, const at_mvalue *v, const at_mop *sink,
                 uint32_t depth) {
  if (!at_mosaic_is_vector(v)) return;
  at_mplan_fact *f = at_mplan_fact_of(b, v);
  if (!sink || depth > f->depth || (f->sink && f->sink != sink)) f->many = true;
  f->sink = sink;
  f->out.kept = f->many && f->out.cost >= AT_MPLAN_KEEP_COST;
}

// A column that goes over many lanes, each of which would compute it again.
static void find_spread(at_mplan_build *b, const at_mop *op) {
  const at_mvalue *in = op->operands[0];
  const at_mtype *t = op->results[0].type;
  if (!at_mosaic_is_vector(in) || !in->type->shape.rank) return;
  int64_t last = in->type->shape.ptr[in->type->shape.rank - 1];
  if (last == 1 && t->shape.ptr[t->shape.rank - 1] > 1)
    at_mplan_fact_of(b, in)->out.spread = true;
}

// Backwards; a lazy value's sink is handed on to its operands, so that each
// value knows who finally computes it.
static void visit(at_mplan_build *b, const at_mblock *block, uint32_t depth) {
  for (uint32_t i = block->num_ops; i-- > 0;) {
    const at_mop *op = block->ops[i];
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    uint32_t inside = depth + at_mplan_is_loop(op);
    for (uint32_t r = op->num_regions; r-- > 0;)
      for (uint32_t k = op->regions[r]->num_blocks; k-- > 0;)
        visit(b, op->regions[r]->blocks[k], inside);
    const at_mop *sink = op;
    if (at_mosaic_is_lazy(c) && op->num_results == 1 &&
        at_mosaic_is_vector(&op->results[0])) {
      const at_mplan_fact *f = at_mplan_fact_of(b, &op->results[0]);
      if (f->out.uses == 0) continue;
      if (!f->many)
        sink = f->sink;
      else if (!f->out.kept)
        sink = NULL;
    }
    if (c == AT_MOSAIC_VECTOR_BROADCAST) find_spread(b, op);
    for (uint32_t k = 0; k < op->num_operands; k++)
      need(b, op->operands[k], sink, depth);
  }
}

void at_mplan_sinks(at_mplan_build *b) {
  for (size_t i = 0; i < b->plan->blocks.len; i++) {
    forget(b, b->plan->blocks.ptr[i]);
    visit(b, b->plan->blocks.ptr[i], 0);
  }
}
