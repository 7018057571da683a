// Loops that threads share. The steps of a grid run on several threads where
// nobody can tell (device/core_split.c); a kernel of one step, or whose steps
// are tied together, has its large values computed by all of them.
#include "mosaic/emit_memory.h"

// Less is done before another thread has come.
enum { MIN_WORK = 512 << 10 };

// Not inside another shared loop or a loop over rows, not with checks (their
// order is told to the core), not on a SparseCore's few lanes.
bool at_me_shares(at_me *m, double work) {
  return work >= MIN_WORK && !m->share && !m->rows->count && !m->o->check &&
         !m->window && !at_me_is_sparse(m);
}

// 1 for the element itself and what the plan says of computing it; buffers are
// read.
double at_me_node_cost(at_me *m, const at_me_node *n) {
  if (!n->op || n->op->num_results != 1 || n->kind == AT_ME_BUFFER) return 1;
  return 1 + at_mplan_value_of(m->plan, &n->op->results[0])->cost;
}

// From here on code is written into a function of its own; records need memory
// on that function's stack.
void at_me_share_begin(at_me *m, at_me_share *s, int64_t size, int64_t step,
                       LLVMValueRef *lo, LLVMValueRef *hi) {
  *s = (at_me_share){.record = at_me_records_move(m, NULL),
                     .turns = size / step};
  m->share = s;
  at_b_task_begin(m->e, &s->task);
  LLVMValueRef by = at_em_i64(m->e, step);
  *lo = at_b_bin(m->e, AT_B_MUL, s->task.begin, by);
  *hi = at_b_bin(m->e, AT_B_MUL, s->task.end, by);
}

// `alone`: the code calls the core, so only the thread that runs it may execute
// it.
void at_me_share_end(at_me *m) {
  at_em *e = m->e;
  at_me_share *s = m->share;
  LLVMValueRef code[2];
  // Who calls the virtual core may fail, and must be on the thread that runs
  // it.
  bool alone = at_b_task_end(e, &s->task, code, m->core);
  LLVMValueRef args[6] = {m->core,
                          code[0],
                          code[1],
                          at_em_i64(e, s->turns),
                          at_em_i64(e, s->turn_bytes),
                          at_me_i32(m, alone)};
  at_b_call(e, "at_core_share", NULL, args, 6);
  at_me_records_move(m, s->record);
  m->share = NULL;
}

// Outside of shared loops it is the constant itself.
LLVMValueRef at_me_handed(at_me *m, LLVMValueRef constant) {
  if (!m->share) return constant;
  at_b_task_outside(m->e, &m->share->task);
  LLVMValueRef v = at_b_unfolded(m->e, constant);
  at_b_task_inside(m->e, &m->share->task);
  return v;
}

// `size` is a multiple of `step`.
void at_me_loop_begin(at_me *m, at_me_share *s, at_loop *l, int64_t size,
                      int64_t step, bool shared) {
  LLVMValueRef lo = at_em_i64(m->e, 0), hi = at_em_i64(m->e, size);
  if (shared) at_me_share_begin(m, s, size, step, &lo, &hi);
  at_loop_begin(m->e, l, lo, hi, step, 0, size - step);
}

// Also ends the shared part, if this loop began it.
void at_me_loop_end(at_me *m, const at_me_share *s, at_loop *l) {
  at_loop_end(m->e, l);
  if (m->share == s) at_me_share_end(m);
}
