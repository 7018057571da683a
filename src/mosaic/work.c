// How much a kernel's own code does in a call, and how long it takes to
// compile: which kernels of a large program LLVM compiles with all steps
// depends on them (codegen.h).
#include <math.h>

#include "mosaic/mosaic_internal.h"

// LLVM's work on an operation, in ordinary ones: about a fourth of the
// instructions that it becomes.
static uint32_t effort_of(const at_mop *op) {
  switch (at_mosaic_op_info_of(at_mosaic_opcode_of(op))->cost) {
    case AT_MOSAIC_COST_MEMORY:
      return 4;
    case AT_MOSAIC_COST_MEDIUM:
    case AT_MOSAIC_COST_MXU:
      return 8;
    case AT_MOSAIC_COST_EXPENSIVE:
    case AT_MOSAIC_COST_REDUCE:
      return 32;
    default:
      return 1;
  }
}

// Loops count once: their code is written once.
uint32_t at_mosaic_effort_of(const at_mblock *b) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    n += effort_of(op);
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        n += at_mosaic_effort_of(op->regions[r]->blocks[k]);
  }
  return n;
}

// An integer constant.
static bool constant_of(const at_mvalue *v, int64_t *out) {
  return v->op && at_mosaic_opcode_of(v->op) == AT_MOSAIC_ARITH_CONSTANT &&
         at_mosaic_attr_int(v->op, "value", out);
}

// How often regions of op run for each time that it does; infinite: nobody
// knows.
static double turns_of(const at_mop *op) {
  int64_t from, to, by;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_SCF_WHILE:
      return INFINITY;
    case AT_MOSAIC_SCF_FOR:
      if (!constant_of(op->operands[0], &from) ||
          !constant_of(op->operands[1], &to) ||
          !constant_of(op->operands[2], &by) || by <= 0)
        return INFINITY;
      return fmax(0, ceil(((double)to - (double)from) / (double)by));
    default:
      return 1;
  }
}

// Of a vector; a scalar is one.
static double elements_of(const at_mvalue *v) {
  if (v->type->kind != AT_MTYPE_VECTOR) return 1;
  return (double)AT_MAX(1, at_mosaic_elements(v->type->shape));
}

// Each result's elements, times the turns of the loops around it.
static double work_of(const at_mblock *b) {
  double sum = 0;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    double turns = turns_of(op);
    for (uint32_t k = 0; k < op->num_results; k++)
      sum += elements_of(&op->results[k]);
    for (uint32_t r = 0; r < op->num_regions && turns > 0; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++) {
        double inner = work_of(op->regions[r]->blocks[k]);
        if (inner > 0) sum += turns * inner;
      }
  }
  return sum;
}

// Steps of the grid times the body's work.
double at_mosaic_work_of(const at_mosaic_program *p) {
  double steps = 1;
  for (uint32_t d = 0; d < p->grid_rank; d++)
    steps *= p->grid[d].dynamic ? INFINITY : (double)p->grid[d].bound;
  double body = work_of(p->body);
  return steps > 0 && body > 0 ? steps * body : 0;
}
