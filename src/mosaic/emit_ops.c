// Operations one after the other, each by the handler that ops.def names: a
// name without a function does not link.
#include "mosaic/emit.h"

// Operations that know how to go over folded rows.
static bool takes_folds(at_mosaic_opcode c) {
  return c == AT_MOSAIC_VECTOR_LOAD || c == AT_MOSAIC_TPU_VECTOR_LOAD ||
         c == AT_MOSAIC_TPU_STRIDED_LOAD || c == AT_MOSAIC_VECTOR_STORE ||
         c == AT_MOSAIC_TPU_VECTOR_STORE || c == AT_MOSAIC_TPU_STRIDED_STORE ||
         c == AT_MOSAIC_TPU_ERASE_MEMREF_LAYOUT;
}

// Any other operation would read a folded ref as if its rows were whole.
static at_status refuse_folds(at_me *m, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (at_me_is_folded(m, op->operands[i]) &&
        !takes_folds(at_mosaic_opcode_of(op)))
      return at_me_refuse(m, op, "a view of folded rows");
  return AT_OK;
}

// The handler of operations that are read and verified but have no code.
at_status at_me_op_none(at_me *m, at_mop *op) {
  return at_mosaic_fail(m->k, op, AT_UNIMPLEMENTED, "no machine code for %s",
                        op->name);
}

typedef at_status (*handler)(at_me *m, at_mop *op);
static const handler handlers[AT_MOSAIC_OP_COUNT] = {
    [AT_MOSAIC_NO_OP] = at_me_op_none,
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  [AT_MOSAIC_##Id] = at_me_op_##handler,
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
};

// The handler, then errors that it noted inside expressions, then one use less
// of each operand.
at_status at_me_emit_op(at_me *m, at_mop *op) {
  AT_TRY(refuse_folds(m, op));
  const at_mloc *outer = at_me_place_enter(m, op);
  AT_TRY(handlers[at_mosaic_opcode_of(op)](m, op));
  at_me_place_leave(m, outer);
  if (!at_em_ok(m->e)) {
    at_status st = m->e->st;
    m->e->st = AT_OK;
    return at_status_prefix(st, "%s", op->name);
  }
  at_me_drop_operands(m, op);
  return AT_OK;
}

// A run of operations that work row by row is written as one loop, and skipped.
at_status at_me_emit_ops(at_me *m, at_mblock *b, uint32_t count) {
  const at_mloc *line = NULL;  // where the debugger was told to be
  at_me_late_finish(m, b);
  at_me_debug_block(m, b);
  for (uint32_t i = 0; i < count;) {
    const at_mplan_run *run = at_mplan_op_of(m->plan, b->ops[i])->run;
    if (run) {
      AT_TRY(at_me_emit_rows(m, run));
      i = run->end;
      continue;
    }
    at_me_debug_line(m, b->ops[i], &line);
    AT_TRY(at_me_emit_op(m, b->ops[i]));
    at_me_debug_made(m, b->ops[i++]);
  }
  return AT_OK;
}

at_status at_me_emit_block(at_me *m, at_mblock *b) {
  return at_me_emit_ops(m, b, b->num_ops);
}
