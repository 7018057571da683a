// Regions, traces, calls of functions: each call writes the function anew.
#include <stddef.h>

#include "mosaic/emit_control.h"
#include "mosaic/mosaic_internal.h"

// Of calls inside of each other, and of all calls that are written.
enum { MAX_CALLS = 32, MAX_WRITTEN = 1 << 14 };

// A register: both fills of the core's stack, see at_core_mark.
LLVMValueRef at_me_mark(at_me *m) {
  LLVMValueRef core = m->core;
  return at_b_call(m->e, "at_core_mark", at_em_int(m->e, 64), &core, 1);
}
// op NULL: no place for the checks' messages.
void at_me_release_to(at_me *m, const at_mop *op, LLVMValueRef mark) {
  LLVMValueRef args[3] = {m->core, mark,
                          at_me_i32(m, op ? at_me_loc(m, op) : -1)};
  at_b_call(m->e, "at_core_release", NULL, args, 3);
}

// The values of the region's terminator become op's results.
static at_status pass_on(at_me *m, at_mop *op, const at_mop *last) {
  AT_TRY(at_me_check_yield(m, op, last, 0));
  for (uint32_t i = 0; i < op->num_results; i++) {
    at_me_same_value(m, last->operands[i], &op->results[i]);
  }
  at_me_drop_operands(m, last);
  return AT_OK;
}

// tpu.region gives back what was allocated in it: lazy values that read such
// memory are computed before. tpu.trace is only a name.
at_status at_me_op_region(at_me *m, at_mop *op) {
  at_mblock *b = at_me_block_of(op, 0);
  if (!b) return AT_OK;
  bool plain = at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_TRACE;
  LLVMValueRef mark = plain ? NULL : at_me_mark(m);
  at_mop *last;
  AT_TRY(at_me_emit_inner(m, b, &last));
  if (mark) {
    at_me_settle(m, at_mplan_op_of(m->plan, op)->allocates, NULL);
    at_me_release_to(m, op, mark);
  }
  return pass_on(m, op, last);
}

// What the function's values were in another call.
static void forget(at_me *m, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_args; i++) at_me_forget(m, &b->args[i]);
  for (uint32_t i = 0; i < b->num_ops; i++) {
    for (uint32_t k = 0; k < b->ops[i]->num_results; k++)
      at_me_forget(m, &b->ops[i]->results[k]);
    for (uint32_t r = 0; r < b->ops[i]->num_regions; r++)
      for (uint32_t k = 0; k < b->ops[i]->regions[r]->num_blocks; k++)
        forget(m, b->ops[i]->regions[r]->blocks[k]);
  }
}

// Inlines the function: arguments are the operands' values, results those of
// its return. Nesting is bounded, since functions may call themselves.
at_status at_me_op_call(at_me *m, at_mop *op) {
  at_mblock *b = at_mosaic_callee(m->k, op);
  if (!b || b->num_args != op->num_operands)
    return at_me_refuse(m, op, "its function");
  if (m->calls == MAX_CALLS) return at_me_refuse(m, op, "calls without end");
  // Functions that each call the next one twice double with every level.
  if (m->written_calls++ == MAX_WRITTEN)
    return at_me_refuse(m, op, "more than %d calls", MAX_WRITTEN);
  forget(m, b);
  for (uint32_t i = 0; i < b->num_args; i++) {
    at_me_same_value(m, op->operands[i], &b->args[i]);
  }
  m->calls++;
  at_mop *last;
  AT_TRY(at_me_emit_inner(m, b, &last));
  m->calls--;
  return pass_on(m, op, last);
}

// The message ends the kernel as at_core_fail does; without one a fixed text.
at_status at_me_op_assert(at_me *m, at_mop *op) {
  at_em *e = m->e;
  const at_mattr *t = at_mop_attr(op, "msg");
  const char *text = t ? at_arena_str(m->a, t->str) : "an assertion failed";
  if (!text) return AT_NO_MEMORY("text");
  at_branch f;
  at_if_begin(e, &f, at_b_not(e, at_me_scalar(m, op->operands[0])));
  LLVMValueRef args[3] = {m->core, at_me_i32(m, at_me_loc(m, op)),
                          at_b_bytes(e, text, strlen(text) + 1)};
  at_b_call(e, "at_core_fail", NULL, args, 3);
  at_if_end(e, &f);
  return AT_OK;
}

// What ends a block is the business of the operation around it.
at_status at_me_op_end(at_me *m, at_mop *op) {
  (void)m;
  (void)op;
  return AT_OK;
}
