// Loops over the rows of several values at once (plan_rows.c says which): what
// there was before is computed as far as the loop would overwrite it, then each
// turn takes all operations with a few rows.
#include "mosaic/emit_life.h"
#include "mosaic/emit_memory.h"

const at_me_rows at_me_whole_rows;

// ---- what was there before
// Is a row of n made of the same row of what it reads, as far as n says?
static bool keeps_rows(const at_mplan_run *run, const at_me_node *n) {
  int at = at_mosaic_row_dim(n->rank, n->dim, run->rows);
  if (at < 0) return false;
  switch (n->kind) {
    case AT_ME_LOAD:
      return n->op && at_mosaic_is_plain_load(n->op) &&
             at_mplan_loads_agree(run, n->op,
                                  at_mplan_root_bit(n->ref->home->root));
    case AT_ME_APPLY:
    case AT_ME_RESHAPE:
      return true;
    case AT_ME_BROADCAST:
      return at_mosaic_row_dim(n->in[0]->rank, n->in[0]->dim, run->rows) +
                 (int)(n->rank - n->in[0]->rank) ==
             at;
    default:
      return false;
  }
}

// The walk holds what is known to be in rows; m->walk is not cleared between.
static bool in_rows(at_me *m, const at_mplan_run *run, const at_me_node *tree) {
  at_walk *w = at_me_walk(m);
  at_walk_add(w, tree, 0);
  for (at_walk_step s; at_walk_next(w, &s);) {
    const at_me_node *n = s.item;
    if (n->kind != AT_ME_DOT && !(n->reads & run->written)) continue;
    if (n->kind == AT_ME_DOT || !keeps_rows(run, n)) {
      at_walk_clear(w);
      return false;
    }
    for (uint32_t i = 0; i < n->num_in; i++) at_walk_add(w, n->in[i], 0);
  }
  return true;
}

// Are the elements of n one row after the other, whatever it is made of? Loops
// over a reshape of other dimensions are also divided where those are.
static bool divides_at_rows(at_me *m, const at_mplan_run *run, at_me_node *n) {
  at_me_space s = {.total = at_me_elements(n)};
  at_me_space_tree(m, &s, n);
  for (uint32_t i = 0; i < s.n; i++)
    if (s.total / run->rows % s.cut[i]) return false;
  return true;
}

// Products are not computed in rows, nor is what has other dimensions.
static void settle_free(at_me *m, const at_mplan_run *run, const at_mvalue *v) {
  at_me_node *n = at_me_vector(m, v);
  if (n && at_mosaic_row_dim(n->rank, n->dim, run->rows) >= 0 &&
      !divides_at_rows(m, run, n))
    at_me_node_drop(m, at_me_materialise(m, n));
  else
    at_me_prepare(m, n);
}

// Values of this region that read what the run writes, and not row by row, are
// computed now. The walk keeps what is known to be in rows from node to node.
static void settle_list(at_me *m, const at_mplan_run *run, uint32_t list) {
  at_me_cursor c;
  at_walk_clear(at_me_walk(m));
  for (at_me_node *n = at_me_list_begin(m, list, &c); n && at_em_ok(m->e);
       n = at_me_list_next(&c)) {
    if (n->life->region != m->region || n->kind == AT_ME_BUFFER) continue;
    if (!(n->reads & run->written) || in_rows(m, run, n)) continue;
    at_me_node_drop(m, at_me_materialise(m, n));
    at_walk_clear(at_me_walk(m));
  }
  at_me_list_end(m, &c);
}

// First what reads memory that the run overwrites, then what its operations
// read that was defined before.
static void settle_before(at_me *m, const at_mplan_run *run) {
  for (uint32_t l = at_me_list_of(run->written, 0); l != AT_ME_LIST_DOTS;
       l = at_me_list_of(run->written, l + 1))
    settle_list(m, run, l);
  for (uint32_t i = run->begin; i < run->end; i++) {
    const at_mop *op = run->block->ops[i];
    for (uint32_t k = 0; k < op->num_operands; k++) {
      const at_mvalue *v = op->operands[k];
      if (at_mosaic_is_vector(v) &&
          at_mplan_place_of(run, v) == AT_MPLAN_BEFORE)
        settle_free(m, run, v);
    }
  }
}

// Second operands of products, and first ones that do not depend on the row.
static void pack_before(at_me *m, const at_mplan_run *run) {
  for (uint32_t i = run->begin; i < run->end; i++) {
    const at_mop *op = run->block->ops[i];
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL)
      at_me_dot_rows_pack(
          m, op, at_mplan_place_of(run, op->operands[0]) == AT_MPLAN_BEFORE);
  }
}

// ---- the loop
// The operations before the loop, or those in it. m->within tells new nodes
// whether anything behind the loop needs them.
static at_status emit_part(at_me *m, const at_mplan_run *run, bool in_loop) {
  for (uint32_t i = run->begin; i < run->end; i++) {
    uint8_t flags = run->flags[i - run->begin];
    if (!(flags & AT_MPLAN_IN_LOOP) == in_loop) continue;
    m->within = flags & AT_MPLAN_WITHIN;
    AT_TRY(at_me_emit_op(m, run->block->ops[i]));
  }
  m->within = false;
  return AT_OK;
}

// Is n made of what only this turn of the loop has?
static bool needs_turn(at_me *m, const at_me_node *tree) {
  at_walk_clear(at_me_walk(m));
  at_walk_add(at_me_walk(m), tree, 0);
  for (at_walk_step s; at_walk_next(at_me_walk(m), &s);) {
    const at_me_node *n = s.item;
    if (at_me_is_of_turn(n) || n->kind == AT_ME_DOT) return true;
    for (uint32_t i = 0; i < n->num_in; i++)
      at_walk_add(at_me_walk(m), n->in[i], 0);
  }
  return false;
}

// What is needed behind the loop and cannot be computed there.
static void leave_turn(at_me *m, const at_mplan_run *run) {
  for (uint32_t i = run->begin; i < run->end; i++) {
    const at_mop *op = run->block->ops[i];
    uint8_t flags = run->flags[i - run->begin];
    if (!op->num_results || !(flags & AT_MPLAN_IN_LOOP) ||
        (flags & AT_MPLAN_WITHIN))
      continue;
    at_me_node *n = at_me_vector(m, &op->results[0]);
    if (!n || n->kind == AT_ME_BUFFER) continue;
    bool feeds = n->kind == AT_ME_APPLY && (flags & AT_MPLAN_FEEDS);
    if (needs_turn(m, n) || feeds) at_me_node_drop(m, at_me_materialise(m, n));
  }
}

// ---- threads
// May threads share the turns? What a turn loads must be there before.
static bool is_shared(at_me *m, const at_mplan_run *run) {
  for (uint32_t i = run->begin; i < run->end; i++) {
    const at_mop *op = run->block->ops[i];
    bool load = at_mosaic_is_plain_load(op),
         store = at_mosaic_is_plain_store(op);
    if (load && !at_me_stays_inside(m, op, 0, op->results[0].type))
      return false;
    if (store && !at_me_stays_inside(m, op, 1, op->operands[0]->type))
      return false;
  }
  return at_me_shares(m, run->work);
}

// Inside a task nothing may call the core, so waiting copies are completed
// here.
static void fetch_before(at_me *m, const at_mplan_run *run) {
  for (uint32_t i = run->begin; i < run->end; i++) {
    const at_mop *op = run->block->ops[i];
    const at_me_ref *ref =
        at_mosaic_is_plain_load(op) ? at_me_memory(m, op->operands[0]) : NULL;
    if (ref && ref->home->pages) at_me_pages_fetch(m, ref);
  }
}

// The rows' loop, by all threads or not.
static at_status emit_loop(at_me *m, const at_mplan_run *run, bool shared) {
  at_me_share share;
  at_loop l;
  LLVMValueRef lo = at_em_i64(m->e, 0), hi = at_em_i64(m->e, run->rows);
  if (shared) {
    fetch_before(m, run);
    at_me_share_begin(m, &share, run->rows, run->step, &lo, &hi);
  }
  at_me_dot_rows_begin(m);
  at_loop_begin(m->e, &l, lo, hi, run->step, 0, run->rows - run->step);
  m->depth++;
  const at_me_rows rows = {run->rows, run->step, l.i};
  m->rows = &rows;
  at_status st = emit_part(m, run, true);
  if (!st.err) leave_turn(m, run);
  m->rows = &at_me_whole_rows;
  at_me_turns_end(m);
  m->depth--;
  at_loop_end(m->e, &l);
  at_me_dot_rows_end(m);
  if (shared) at_me_share_end(m);
  return st;
}

// Operations before the loop, values and operands that must be ready, then the
// loop, whose buffers are freed behind it.
at_status at_me_emit_rows(at_me *m, const at_mplan_run *run) {
  AT_TRY(emit_part(m, run, false));
  settle_before(m, run);
  pack_before(m, run);
  at_status st = emit_loop(m, run, is_shared(m, run));
  at_me_leave_loop(m);
  at_me_dot_rows_free(m);
  return st;
}

// An extent other than the run's rows would read elements of other turns: an
// internal error.
void at_me_rows_begin(at_me *m, at_loop *l, int64_t extent, bool outermost,
                      at_ix *ix) {
  bool part = outermost && m->rows->count;
  if (part && extent != m->rows->count)
    at_em_fail(m->e,
               AT_FAIL(AT_INTERNAL, "a value without rows in their loop"));
  at_loop_range(m->e, l, 0, part ? m->rows->step : extent, 1);
  *ix = part ? at_ix_add(m->e, m->rows->first, l->i) : l->i;
}
