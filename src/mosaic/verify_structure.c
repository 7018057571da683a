// Type rules of branches, loops, regions and functions.
#include "mosaic/verify_rules.h"

// The block of region i; NULL: it is empty.
static const at_mblock *region(const at_mop *op, uint32_t i) {
  return op->regions[i]->num_blocks ? op->regions[i]->blocks[0] : NULL;
}

// The last operation of a region hands over `n` values of the given types.
static at_status yields(at_mosaic_verifier *v, const at_mop *op,
                        const at_mblock *b, at_mosaic_opcode want,
                        uint32_t skip, const at_mvalue *to, uint32_t n) {
  const at_mop *y = b->ops[b->num_ops - 1];
  NEED(at_mosaic_opcode_of(y) == want && y->num_operands == skip + n,
       "'%s' op region must end in %s of %u values", op->name,
       at_mosaic_op_info_of(want)->name, n);
  for (uint32_t i = 0; i < n; i++)
    NEED(at_mtype_eq(y->operands[skip + i]->type, to[i].type),
         "'%s' op region yields another type as value %u", op->name, i);
  return AT_OK;
}

// Two regions without arguments; else may be empty where nothing is yielded.
at_status at_mosaic_rule_IF(at_mosaic_verifier *v, const at_mop *op) {
  NEED(op->num_regions == 2 && region(op, 0), "'scf.if' op needs two regions");
  NEED(region(op, 1) || !op->num_results, "'scf.if' op needs an else region");
  for (uint32_t i = 0; i < 2; i++)
    if (region(op, i)) {
      NEED(!region(op, i)->num_args, "'scf.if' op region takes no arguments");
      AT_TRY(yields(v, op, region(op, i), AT_MOSAIC_SCF_YIELD, 0, op->results,
                    op->num_results));
    }
  return AT_OK;
}

// Operands lower, upper, step, then what is carried; the block takes the index
// and the carried values.
at_status at_mosaic_rule_FOR(at_mosaic_verifier *v, const at_mop *op) {
  const at_mblock *b = op->num_regions == 1 ? region(op, 0) : NULL;
  NEED(b && b->num_args == op->num_results + 1 &&
           op->num_operands == op->num_results + 3,
       "'scf.for' op carries as many values as it yields");
  for (uint32_t i = 0; i < 3; i++)
    NEED(at_mtype_eq(arg(op, i), b->args[0].type),
         "'scf.for' op bounds, step and index must have one type");
  for (uint32_t i = 0; i < op->num_results; i++)
    NEED(at_mtype_eq(arg(op, i + 3), res(op, i)) &&
             at_mtype_eq(b->args[i + 1].type, res(op, i)),
         "'scf.for' op carried value %u changes its type", i);
  return yields(v, op, b, AT_MOSAIC_SCF_YIELD, 0, op->results, op->num_results);
}

// The first region takes the operands and hands on the results; the second
// takes those and yields new operands.
at_status at_mosaic_rule_WHILE(at_mosaic_verifier *v, const at_mop *op) {
  const at_mblock *b = op->num_regions == 2 ? region(op, 0) : NULL;
  const at_mblock *a = b ? region(op, 1) : NULL;
  NEED(a && b->num_args == op->num_operands && a->num_args == op->num_results,
       "'scf.while' op needs two regions that take its values");
  for (uint32_t i = 0; i < op->num_operands; i++)
    NEED(at_mtype_eq(arg(op, i), b->args[i].type),
         "'scf.while' op value %u changes its type", i);
  for (uint32_t i = 0; i < op->num_results; i++)
    NEED(at_mtype_eq(res(op, i), a->args[i].type),
         "'scf.while' op value %u changes its type", i);
  AT_TRY(yields(v, op, b, AT_MOSAIC_SCF_CONDITION, 1, op->results,
                op->num_results));
  return yields(v, op, a, AT_MOSAIC_SCF_YIELD, 0, b->args, b->num_args);
}

at_status at_mosaic_rule_CONDITION(at_mosaic_verifier *v, const at_mop *op) {
  const at_mop *p =
      op->block && op->block->region ? op->block->region->op : NULL;
  NEED(p && at_mosaic_opcode_of(p) == AT_MOSAIC_SCF_WHILE,
       "'scf.condition' op stands outside scf.while");
  return AT_OK;
}

at_status at_mosaic_rule_REGION(at_mosaic_verifier *v, const at_mop *op) {
  const at_mblock *b = op->num_regions == 1 ? region(op, 0) : NULL;
  NEED(b && !b->num_args, "'%s' op needs a region without arguments", op->name);
  return yields(v, op, b, AT_MOSAIC_TPU_YIELD, 0, op->results, op->num_results);
}

// The body's arguments and the returned values have the function's types.
at_status at_mosaic_rule_FUNC(at_mosaic_verifier *v, const at_mop *op) {
  const at_mtype *t = at_mop_attr(op, "function_type")->type;
  const at_mblock *b = op->num_regions == 1 ? region(op, 0) : NULL;
  NEED(t && t->kind == AT_MTYPE_FUNCTION && b && b->num_args == t->num_types,
       "'func.func' op needs a body that takes the function's arguments");
  for (uint32_t i = 0; i < t->num_types; i++)
    NEED(at_mtype_eq(b->args[i].type, t->types[i]),
         "'func.func' op argument #%u has another type than the function's", i);
  const at_mop *y = b->ops[b->num_ops - 1];
  NEED(at_mosaic_opcode_of(y) == AT_MOSAIC_FUNC_RETURN &&
           y->num_operands == t->num_results,
       "'func.func' op must return %u values", t->num_results);
  for (uint32_t i = 0; i < t->num_results; i++)
    NEED(at_mtype_eq(y->operands[i]->type, t->results[i]),
         "'func.func' op returns another type as value %u", i);
  return AT_OK;
}

at_status at_mosaic_rule_RETURN(at_mosaic_verifier *v, const at_mop *op) {
  const at_mop *p =
      op->block && op->block->region ? op->block->region->op : NULL;
  NEED(p && at_mosaic_opcode_of(p) == AT_MOSAIC_FUNC_FUNC,
       "'func.return' op stands outside a function's block");
  return AT_OK;
}
