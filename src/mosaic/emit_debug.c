// Code for a debugger: a call where a line of the source begins, one where a
// turn of a loop does, and one for each ref that the kernel allocates. Only
// where the options ask for it; the code is the same as without otherwise.
#include <stddef.h>

#include "mosaic/emit.h"

static bool is_on(const at_me *m) { return m->o->debug && !m->window; }

// ---- Lines
// The same line of the same call?
static bool same_line(const at_mloc *a, const at_mloc *b) {
  enum { kFrames = 8 };
  for (int i = 0; i < kFrames && a && b; i++) {
    at_mosaic_place p = at_mosaic_place_of(a), q = at_mosaic_place_of(b);
    if (p.line != q.line || strcmp(p.file, q.file)) return false;
    a = p.caller;
    b = q.caller;
  }
  return !a == !b;
}

// Loops around a block that count their turns.
static uint32_t loops_around(const at_mblock *b) {
  uint32_t n = 0;
  for (; b && b->region && b->region->op; b = b->region->op->block)
    n += at_mosaic_opcode_of(b->region->op) == AT_MOSAIC_SCF_FOR;
  return n;
}

// A new line gets a call with its place and how deep in counting loops it is.
void at_me_debug_line(at_me *m, const at_mop *op, const at_mloc **line) {
  if (!is_on(m) || !*at_mosaic_place_of(op->loc).file ||
      (*line && same_line(*line, op->loc)))
    return;
  *line = op->loc;
  LLVMValueRef args[3] = {m->core, at_me_i32(m, at_me_loc(m, op)),
                          at_me_i32(m, loops_around(op->block))};
  at_b_call(m->e, "at_core_debug_line", NULL, args, 3);
}

// ---- Loops
// Only scf.for counts turns; the induction variable is told as 32 bits.
void at_me_debug_block(at_me *m, const at_mblock *b) {
  const at_mop *loop = b->region ? b->region->op : NULL;
  if (!is_on(m) || !loop || at_mosaic_opcode_of(loop) != AT_MOSAIC_SCF_FOR)
    return;
  LLVMValueRef turn = at_me_scalar(m, &b->args[0]);
  if (at_em_bits_of(at_b_type_of(turn)) != 32)
    turn = at_b_cast(m->e, AT_B_TRUNC, turn, at_em_int(m->e, 32));
  LLVMValueRef args[4] = {m->core, at_me_i32(m, at_me_loc(m, loop)),
                          at_me_i32(m, loops_around(b) - 1), turn};
  at_b_call(m->e, "at_core_debug_turn", NULL, args, 4);
}

// ---- Refs
// The ref as the debugger shows it: base, shape and strides in bytes, element
// type and memory.
void at_me_debug_made(at_me *m, const at_mop *op) {
  at_mosaic_opcode code = at_mosaic_opcode_of(op);
  if (!is_on(m) ||
      (code != AT_MOSAIC_MEMREF_ALLOCA && code != AT_MOSAIC_TPU_SEM_ALLOC))
    return;
  const at_me_ref *r = at_me_memory(m, &op->results[0]);
  if (!r) return;
  at_me_record v;
  at_me_record_begin(&v, sizeof(at_core_view));
  at_me_record_value(m, &v, offsetof(at_core_view, base), r->base);
  at_me_record_i32(&v, offsetof(at_core_view, rank), (int32_t)r->rank);
  at_me_record_i32(&v, offsetof(at_core_view, elem_bytes), (int32_t)r->bytes);
  for (uint32_t d = 0; d < r->rank; d++) {
    at_me_num bytes = {r->bytes, NULL};
    at_me_record_num(m, &v, offsetof(at_core_view, size) + 8 * d, r->size[d]);
    at_me_record_num(m, &v, offsetof(at_core_view, stride) + 8 * d,
                     at_me_mul(m, r->stride[d], bytes));
  }
  at_core_space space = at_mosaic_core_space(r->home->space);
  LLVMValueRef args[5] = {m->core, at_me_record_end(m, &v),
                          at_me_i32(m, r->dtype), at_me_i32(m, space),
                          at_me_i32(m, at_me_loc(m, op))};
  at_b_call(m->e, "at_core_debug_made", NULL, args, 5);
}
