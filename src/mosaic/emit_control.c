// Branches and loops. Scalars that control flow carries become
// phis; vectors live in temporary memory, which a loop updates in place where
// the new value allows it.
#include <stddef.h>

#include "mosaic/emit_control.h"
#include "mosaic/emit_memory.h"

at_mblock *at_me_block_of(const at_mop *op, uint32_t region) {
  if (region >= op->num_regions || op->regions[region]->num_blocks == 0)
    return NULL;
  return op->regions[region]->blocks[0];
}

// *last: the terminator, NULL in an empty block; its operands are the caller's
// to use.
at_status at_me_emit_inner(at_me *m, at_mblock *b, at_mop **last) {
  *last = b->num_ops ? b->ops[b->num_ops - 1] : NULL;
  return *last ? at_me_emit_ops(m, b, b->num_ops - 1) : AT_OK;
}

// A new region number, unique in the function: nodes of another region cannot
// be computed in place. Yields the old one.
static uint32_t enter(at_me *m) {
  uint32_t before = m->region;
  m->region = ++m->next_region;
  return before;
}

// A missing terminator yields no values.
at_status at_me_check_yield(at_me *m, const at_mop *op, const at_mop *yield,
                            uint32_t skip) {
  uint32_t n = yield ? yield->num_operands - skip : 0;
  if (n != op->num_results) return at_me_refuse(m, op, "%u values", n);
  return AT_OK;
}

// ---- if
typedef struct result {
  at_me_node *buffer;
  LLVMValueRef value[2];
  at_me_ref ref[2];
  bool has_ref[2];
} result;

static bool is_ref(const at_mvalue *v) {
  return v->type->kind == AT_MTYPE_MEMREF;
}

// The ref that control flow passes on, which must be whole. False: none, after
// an error.
static bool passed_ref(at_me *m, const at_mop *op, const at_mvalue *v,
                       at_me_ref *out) {
  const at_me_ref *r = at_me_memory(m, v);
  if (r) *out = at_me_whole(m, op, r);
  return r != NULL;
}

// One side of an if: writes its operations and puts what it yields into r:
// registers and refs for phis, vectors into the result's buffer. *end: the
// block that jumps behind the if.
static at_status branch(at_me *m, at_mop *op, uint32_t side, result *r,
                        LLVMBasicBlockRef *end) {
  at_mblock *b = at_me_block_of(op, side);
  at_mop *yield = NULL;
  uint32_t outer = enter(m);
  if (b) {
    AT_TRY(at_me_emit_inner(m, b, &yield));
    if (yield) AT_TRY(at_me_check_yield(m, op, yield, 0));
    for (uint32_t i = 0; yield && i < yield->num_operands; i++) {
      at_mvalue *v = yield->operands[i];
      if (is_ref(v))
        r[i].has_ref[side] = passed_ref(m, op, v, &r[i].ref[side]);
      else if (!at_mosaic_is_vector(v))
        r[i].value[side] = at_me_scalar(m, v);
      else if (at_me_vector(m, v) && r[i].buffer)
        at_me_copy_to(m, at_me_vector(m, v), r[i].buffer->ref, NULL,
                      AT_ME_PLAIN);
    }
    at_me_drop_operands(m, yield);
  }
  m->region = outer;
  *end = at_b_here(m->e);
  return AT_OK;
}

// A ref result: phis of the parts in which the two sides differ.
static at_status join_sides(at_me *m, const at_mop *op, const at_mvalue *v,
                            const result *r, const LLVMBasicBlockRef *end) {
  at_me_join j;
  if (!r->has_ref[0] || !r->has_ref[1])
    return at_me_refuse(m, op, "a missing ref");
  at_me_join_begin(m, &r->ref[0], &r->ref[1], &j);
  for (int side = 0; side < 2; side++)
    AT_TRY(at_me_join_add(m, op, &j, &r->ref[side], end[side]));
  at_me_set_ref(m, v, &j.ref);
  return AT_OK;
}

// Everything lazy that the sides may overwrite is computed first. Vectors that
// the if yields get one buffer, written by both sides.
at_status at_me_op_if(at_me *m, at_mop *op) {
  at_em *e = m->e;
  result *r = at_new(m->a, result, op->num_results + 1);
  LLVMBasicBlockRef end[2];
  at_branch f;
  if (!r) return AT_NO_MEMORY("results of a branch");
  if (at_mplan_op_of(m->plan, op)->left_out) return AT_OK;
  LLVMValueRef cond = at_me_scalar(m, op->operands[0]);
  at_me_settle_all(m, op);
  for (uint32_t i = 0; i < op->num_results; i++) {
    const at_mtype *t = op->results[i].type;
    if (t->kind == AT_MTYPE_VECTOR)
      r[i].buffer = at_me_buffer(m, op, at_mosaic_dtype_of(t), t->shape.rank,
                                 t->shape.ptr);
  }
  at_if_begin(e, &f, cond);
  AT_TRY(branch(m, op, 0, r, &end[0]));
  at_if_else(e, &f);
  AT_TRY(branch(m, op, 1, r, &end[1]));
  at_if_end(e, &f);
  // at_if_end of an if with both sides jumps from the second side's end.
  for (uint32_t i = 0; i < op->num_results; i++) {
    if (r[i].buffer) {
      AT_TRY(at_me_set_node(m, &op->results[i], r[i].buffer));
      continue;
    }
    if (is_ref(&op->results[i])) {
      AT_TRY(join_sides(m, op, &op->results[i], &r[i], end));
      continue;
    }
    if (!r[i].value[0] || !r[i].value[1])
      return at_me_refuse(m, op, "a missing value");
    LLVMValueRef phi = at_b_phi(e, at_b_type_of(r[i].value[0]));
    at_b_phi_add(phi, r[i].value[0], end[0]);
    at_b_phi_add(phi, r[i].value[1], end[1]);
    at_me_set_scalar(m, &op->results[i], phi);
  }
  return AT_OK;
}

// ---- loops
// One unit of the kernel's budget.
static void spend(at_me *m, const at_mop *op) {
  at_em *e = m->e;
  LLVMTypeRef i64 = at_em_int(e, 64);
  LLVMValueRef p = at_b_gep(e, at_em_int(e, 8), m->core,
                            at_em_i64(e, offsetof(at_core, budget)));
  LLVMValueRef left = at_b_load(e, i64, p, 8);
  left = at_b_bin(e, AT_B_SUB, left, at_em_i64(e, 1));
  at_b_store(e, left, p, 8);
  LLVMBasicBlockRef cold = at_em_block(e, "spent");
  LLVMBasicBlockRef on = at_em_block(e, "turn");
  at_b_cond_br(e, at_b_icmp(e, AT_B_SLT, left, at_em_i64(e, 0)), cold, on);
  at_b_at_end(e, cold);
  LLVMValueRef args[2] = {m->core, at_me_i32(m, at_me_loc(m, op))};
  at_b_call(e, "at_core_budget", NULL, args, 2);
  at_b_br(e, on);
  at_b_at_end(e, on);
}

// A value that a loop carries: a phi, memory, or a ref.
typedef struct carried {
  LLVMValueRef phi;
  at_me_node *buffer;
  uint32_t root;
  bool is_ref;
  at_me_ref init;
  at_me_join join;
} carried;

// arg: the block's argument that the value becomes.
static at_status carry_start(at_me *m, const at_mop *op, at_mvalue *init,
                             const at_mvalue *arg, carried *c) {
  c->is_ref = is_ref(init) && passed_ref(m, op, init, &c->init);
  if (!at_mosaic_is_vector(init)) return AT_OK;
  at_me_node *n = at_me_vector(m, init);
  if (!n) return AT_OK;
  const at_mtype *t = init->type;
  c->buffer =
      at_me_buffer(m, op, at_mosaic_dtype_of(t), t->shape.rank, t->shape.ptr);
  if (!c->buffer) return AT_OK;
  c->root = at_mplan_value_of(m->plan, arg)->root;
  at_me_rehome(m, at_me_node_ref(m, c->buffer))->root = c->root;
  at_me_copy_to(m, n, c->buffer->ref, NULL, AT_ME_PLAIN);
  return AT_OK;
}

// In a loop's first block: phis, and the block arguments that read memory.
static at_status carry_bind(at_me *m, const at_mop *op, at_mvalue *arg,
                            carried *c, LLVMValueRef init,
                            LLVMBasicBlockRef pre) {
  if (c->is_ref) {
    at_me_join_begin(m, &c->init, NULL, &c->join);
    at_me_set_ref(m, arg, &c->join.ref);
    return at_me_join_add(m, op, &c->join, &c->init, pre);
  }
  if (!c->buffer) {
    if (!init) return AT_OK;
    c->phi = at_b_phi(m->e, at_b_type_of(init));
    at_b_phi_add(c->phi, init, pre);
    at_me_set_scalar(m, arg, c->phi);
  }
  return AT_OK;
}
// The block argument of a carried vector is a load of its buffer.
static at_status carry_read(at_me *m, at_mvalue *arg, const carried *c) {
  if (!c->buffer) return AT_OK;
  at_me_node *n = at_me_node_new(m, AT_ME_LOAD, NULL, arg->type);
  if (!n) return AT_OK;
  n->ref = c->buffer->ref;
  at_me_node_reads(m, n, at_mplan_root_bit(c->root));
  return at_me_set_node(m, arg, n);
}

// Does it read memory of these roots elsewhere than at its own place in what it
// is to be written to (root `own`)?
static bool reads_moved(at_me *m, const at_me_node *tree, uint64_t bits,
                        uint32_t own) {
  enum { MOVED, AGREES };  // its place, with that of the value
  at_walk_clear(at_me_walk(m));
  at_walk_add(at_me_walk(m), tree, AGREES);
  for (at_walk_step s; at_walk_next(at_me_walk(m), &s);) {
    const at_me_node *n = s.item;
    if (!(n->reads & bits)) continue;
    if (n->kind == AT_ME_LOAD) {
      if (s.tag == MOVED || n->ref->home->root != own) return true;
      continue;
    }
    bool keeps = n->kind == AT_ME_APPLY || n->kind == AT_ME_RESHAPE;
    for (uint32_t i = 0; i < n->num_in; i++)
      at_walk_add(at_me_walk(m), n->in[i], keeps ? s.tag : MOVED);
  }
  return false;
}

// New values into the carried memory: first what reads carried values elsewhere
// than at its own place, into memory of its own; then all.
static void carry_write(at_me *m, at_mvalue *const *v, carried *c, uint32_t n) {
  uint64_t bits = 0;
  for (uint32_t i = 0; i < n; i++)
    if (c[i].buffer) bits |= at_mplan_root_bit(c[i].root);
  at_me_node **own = at_new(m->a, at_me_node *, n + 1);
  if (!own) {
    at_em_fail(m->e, AT_NO_MEMORY("values of a loop"));
    return;
  }
  for (uint32_t i = 0; i < n; i++) {
    if (!c[i].buffer) continue;
    at_me_node *x = at_me_vector(m, v[i]);
    if (!x) return;
    at_me_prepare(m, x);
    if (reads_moved(m, x, bits, c[i].root)) own[i] = at_me_materialise(m, x);
  }
  for (uint32_t i = 0; i < n; i++) {
    if (!c[i].buffer) continue;
    at_me_node *x = own[i] ? own[i] : at_me_vector(m, v[i]);
    bool same =
        x && x->kind == AT_ME_LOAD && x->ref->base == c[i].buffer->ref->base;
    if (x && !same) at_me_copy_to(m, x, c[i].buffer->ref, NULL, AT_ME_PLAIN);
    at_me_node_drop(m, own[i]);
  }
}

// At the end of a turn, behind carry_write: the way back into the loop's first
// block.
static at_status carry_back(at_me *m, const at_mop *op, const at_mop *yield,
                            carried *c, uint32_t n) {
  at_me_ref r;
  for (uint32_t i = 0; i < n; i++) {
    at_mvalue *v = yield->operands[i];
    if (c[i].is_ref && passed_ref(m, op, v, &r))
      AT_TRY(at_me_join_add(m, op, &c[i].join, &r, at_b_here(m->e)));
    if (c[i].phi) at_b_phi_add(c[i].phi, at_me_scalar(m, v), at_b_here(m->e));
  }
  return AT_OK;
}

// Results behind the loop: the ref, the phi, or the buffer, which belongs to no
// root any more.
static at_status carry_end(at_me *m, at_mvalue *res, const carried *c) {
  if (c->is_ref) {
    at_me_set_ref(m, res, &c->join.ref);
    return AT_OK;
  }
  if (!c->buffer) {
    at_me_set_scalar(m, res, c->phi);
    return AT_OK;
  }
  at_me_rehome(m, at_me_node_ref(m, c->buffer))->root = 0;
  return at_me_set_node(m, res, c->buffer);
}

// Header with phis and the test `i < upper` (signed), body with one unit of
// budget per turn, then the update of what is carried.
at_status at_me_op_for(at_me *m, at_mop *op) {
  at_em *e = m->e;
  at_mblock *b = at_me_block_of(op, 0);
  uint32_t n = op->num_results;
  if (!b || op->num_operands != n + 3 || b->num_args != n + 1)
    return at_me_refuse(m, op, "its operands");
  carried *c = at_new(m->a, carried, n + 1);
  if (!c) return AT_NO_MEMORY("values of a loop");
  at_me_settle_all(m, op);
  LLVMValueRef lo = at_me_scalar(m, op->operands[0]);
  LLVMValueRef hi = at_me_scalar(m, op->operands[1]);
  LLVMValueRef step = at_me_scalar(m, op->operands[2]);
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(carry_start(m, op, op->operands[3 + i], &b->args[1 + i], &c[i]));
  uint32_t outer = enter(m), scope = at_em_scope_push(e);
  m->depth++;
  LLVMBasicBlockRef pre = at_b_here(e), head = at_em_block(e, "for");
  LLVMBasicBlockRef body = at_em_block(e, "do");
  LLVMBasicBlockRef exit = at_em_block(e, "end");
  at_b_br(e, head);
  at_b_at_end(e, head);
  LLVMValueRef i = at_b_phi(e, at_b_type_of(lo));
  at_b_phi_add(i, lo, pre);
  for (uint32_t k = 0; k < n; k++) {
    at_mvalue *init = op->operands[3 + k];
    bool scalar = !c[k].buffer && !is_ref(init);
    LLVMValueRef v = scalar ? at_me_scalar(m, init) : NULL;
    AT_TRY(carry_bind(m, op, &b->args[1 + k], &c[k], v, pre));
  }
  at_b_cond_br(e, at_b_icmp(e, AT_B_SLT, i, hi), body, exit);
  at_b_at_end(e, body);
  at_me_set_scalar(m, &b->args[0], i);
  for (uint32_t k = 0; k < n; k++)
    AT_TRY(carry_read(m, &b->args[1 + k], &c[k]));
  spend(m, op);
  at_mop *yield;
  AT_TRY(at_me_emit_inner(m, b, &yield));
  AT_TRY(at_me_check_yield(m, op, yield, 0));
  carry_write(m, yield ? yield->operands : NULL, c, n);
  LLVMValueRef next = at_b_bin(e, AT_B_ADD, i, step);
  at_b_phi_add(i, next, at_b_here(e));
  if (yield) AT_TRY(carry_back(m, op, yield, c, n));
  at_me_drop_operands(m, yield);
  at_b_br(e, head);
  at_em_scope_pop(e, scope);
  at_b_at_end(e, exit);
  m->depth--;
  m->region = outer;
  at_me_leave_loop(m);
  for (uint32_t k = 0; k < n; k++) AT_TRY(carry_end(m, &op->results[k], &c[k]));
  return AT_OK;
}

// carried: into `before`; passed: from `before` to `after` and out.
at_status at_me_op_while(at_me *m, at_mop *op) {
  at_em *e = m->e;
  at_mblock *before = at_me_block_of(op, 0), *after = at_me_block_of(op, 1);
  uint32_t n = op->num_operands, r = op->num_results;
  if (!before || !after || before->num_args != n || after->num_args != r)
    return at_me_refuse(m, op, "its operands");
  carried *c = at_new(m->a, carried, n + 1), *d = at_new(m->a, carried, r + 1);
  if (!c || !d) return AT_NO_MEMORY("values of a loop");
  at_me_settle_all(m, op);
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(carry_start(m, op, op->operands[i], &before->args[i], &c[i]));
  for (uint32_t i = 0; i < r; i++) {
    const at_mtype *t = op->results[i].type;
    if (t->kind != AT_MTYPE_VECTOR) continue;
    d[i].buffer =
        at_me_buffer(m, op, at_mosaic_dtype_of(t), t->shape.rank, t->shape.ptr);
    if (!d[i].buffer) return AT_OK;
    d[i].root = at_mplan_value_of(m->plan, &after->args[i])->root;
    at_me_rehome(m, at_me_node_ref(m, d[i].buffer))->root = d[i].root;
  }
  uint32_t outer = enter(m), scope = at_em_scope_push(e);
  m->depth++;
  LLVMBasicBlockRef pre = at_b_here(e), head = at_em_block(e, "while");
  LLVMBasicBlockRef body = at_em_block(e, "do");
  LLVMBasicBlockRef exit = at_em_block(e, "end");
  at_b_br(e, head);
  at_b_at_end(e, head);
  for (uint32_t i = 0; i < n; i++) {
    bool scalar = !c[i].buffer && !is_ref(op->operands[i]);
    LLVMValueRef v = scalar ? at_me_scalar(m, op->operands[i]) : NULL;
    AT_TRY(carry_bind(m, op, &before->args[i], &c[i], v, pre));
  }
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(carry_read(m, &before->args[i], &c[i]));
  spend(m, op);
  at_mop *cond, *yield;
  AT_TRY(at_me_emit_inner(m, before, &cond));
  if (!cond || cond->num_operands != r + 1)
    return at_me_refuse(m, op, "its condition");
  carry_write(m, cond->operands + 1, d, r);
  for (uint32_t i = 0; i < r; i++) {
    if (d[i].buffer) continue;
    if (is_ref(cond->operands[1 + i])) {
      d[i].is_ref = passed_ref(m, op, cond->operands[1 + i], &d[i].join.ref);
      if (d[i].is_ref) at_me_set_ref(m, &after->args[i], &d[i].join.ref);
      continue;
    }
    d[i].phi = at_me_scalar(m, cond->operands[1 + i]);
    at_me_set_scalar(m, &after->args[i], d[i].phi);
  }
  LLVMValueRef go = at_me_scalar(m, cond->operands[0]);
  at_me_drop_operands(m, cond);
  at_b_cond_br(e, go, body, exit);
  at_b_at_end(e, body);
  uint32_t inner = enter(m);
  for (uint32_t i = 0; i < r; i++)
    AT_TRY(carry_read(m, &after->args[i], &d[i]));
  AT_TRY(at_me_emit_inner(m, after, &yield));
  if (!yield || yield->num_operands != n)
    return at_me_refuse(m, op, "its values");
  carry_write(m, yield->operands, c, n);
  AT_TRY(carry_back(m, op, yield, c, n));
  at_me_drop_operands(m, yield);
  at_b_br(e, head);
  m->region = inner;
  at_em_scope_pop(e, scope);
  at_b_at_end(e, exit);
  m->depth--;
  m->region = outer;
  at_me_leave_loop(m);
  for (uint32_t i = 0; i < n; i++)
    if (c[i].buffer) {
      at_me_expect_uses(c[i].buffer, 1);
      at_me_node_drop(m, c[i].buffer);
    }
  for (uint32_t i = 0; i < r; i++) AT_TRY(carry_end(m, &op->results[i], &d[i]));
  return AT_OK;
}
