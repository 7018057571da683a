// The MXU's own registers: weights that are pushed to a staging register, sums
// that products are added to and that are popped. Loops and branches may stand
// between, so which weights are loaded and which sums hold something is known
// at run time; their shapes are the same wherever the kernel names them.
#include "mosaic/emit.h"

enum { MAX_UNITS = 4, MAX_STAGES = 4, MAX_SUMS = 256 };

typedef struct sum {
  const at_mop *op;  // an operation that adds to it, NULL: unused
  at_me_ref ref;
  LLVMValueRef held;  // i32 *: does it hold anything?
} sum;

typedef struct unit {
  const at_mtype *weights;  // as pushed; NULL: nothing is
  bool transposed;
  LLVMValueRef loaded;              // pointer *: the weights in use
  LLVMValueRef staged[MAX_STAGES];  // pointer *: those of a register
  // A push must not overwrite weights in use: each register has two places.
  LLVMValueRef place[MAX_STAGES][2];
  sum sums[MAX_SUMS];
} unit;

struct at_me_mxu {
  unit *units[MAX_UNITS];  // NULL: not used
  bool used;
};

at_me_mxu *at_me_mxu_new(at_arena *a) { return at_new(a, at_me_mxu, 1); }

// The unit that mxu_index names, made when it is first used.
static at_status find_unit(at_me *m, const at_mop *op, unit **out) {
  int64_t k = at_mosaic_op_int(op, "mxu_index", 0);
  if (k < 0 || k >= MAX_UNITS) return at_me_refuse(m, op, "its unit");
  if (!m->mxu->units[k]) AT_TRY_ALLOC(m->mxu->units[k], at_new(m->a, unit, 1));
  m->mxu->used = true;
  *out = m->mxu->units[k];
  return AT_OK;
}

// A register of at most `max`; *out is -1 where op names none.
static at_status find_register(at_me *m, const at_mop *op, const char *name,
                               int64_t otherwise, int64_t max, int64_t *out) {
  *out = at_mosaic_op_int(op, name, otherwise);
  if (*out < otherwise || *out >= max)
    return at_me_refuse(m, op, "its %s", name);
  return AT_OK;
}

// ---- before the body: what the kernel uses
// A variable on the function's stack with an initial value.
static LLVMValueRef variable(at_me *m, LLVMTypeRef t, LLVMValueRef value) {
  LLVMValueRef p = at_em_alloca(m->e, t, 1);
  at_b_store(m->e, value, p, 4);
  return p;
}

// Temporary memory of two dimensions that is never freed: registers live as
// long as the body.
static LLVMValueRef memory(at_me *m, at_dtype t, const int64_t *dim) {
  int64_t bytes = at_dtype_bytes(t);
  for (int d = 0; d < 2; d++) bytes *= dim[d];
  return at_me_temp_at(m, at_me_temp_alloc(m, bytes));
}

// All pushes of a unit must have one shape and type. Each staging register gets
// two places for its weights.
static at_status see_push(at_me *m, const at_mop *op) {
  unit *u;
  int64_t k;
  AT_TRY(find_unit(m, op, &u));
  AT_TRY(find_register(m, op, "staging_register", 0, MAX_STAGES, &k));
  const at_mtype *t = op->operands[0]->type;
  bool transposed = at_mosaic_op_int(op, "transpose", 0) != 0;
  if (t->shape.rank != 2) return at_me_refuse(m, op, "its shape");
  if (u->weights &&
      (!at_mosaic_same_type(u->weights, t) || u->transposed != transposed))
    return at_me_refuse(m, op, "weights of several shapes or types");
  LLVMTypeRef pointer = at_b_ptr(m->e);
  if (!u->weights) u->loaded = variable(m, pointer, at_b_null(pointer));
  u->weights = t;
  u->transposed = transposed;
  if (u->staged[k]) return AT_OK;
  for (int i = 0; i < 2; i++)
    u->place[k][i] = memory(m, at_mosaic_dtype_of(t), t->shape.ptr);
  u->staged[k] = variable(m, pointer, u->place[k][0]);
  return AT_OK;
}

// The sum's shape follows from the operand and the unit's weights; every
// operation that adds to it must agree.
static at_status see_sum(at_me *m, const at_mop *op) {
  unit *u;
  int64_t k, load;
  AT_TRY(find_unit(m, op, &u));
  AT_TRY(find_register(m, op, "acc", 0, MAX_SUMS, &k));
  AT_TRY(find_register(m, op, "load_staged_rhs", -1, MAX_STAGES, &load));
  const at_mtype *t = op->operands[0]->type;
  if (!u->weights || (load >= 0 && !u->staged[load]) || t->shape.rank != 2)
    return at_me_refuse(m, op, "weights that nobody pushes");
  int64_t dim[2] = {t->shape.ptr[0], u->weights->shape.ptr[!u->transposed]};
  if (t->shape.ptr[1] != u->weights->shape.ptr[u->transposed])
    return at_me_refuse(m, op, "weights of another shape");
  at_dtype type = at_is_float(at_mosaic_dtype_of(t)) ? AT_F32 : AT_S32;
  sum *s = &u->sums[k];
  if (!s->op) {
    at_me_dense(m, &s->ref, memory(m, type, dim), type, 2, dim);
    s->held = variable(m, at_em_int(m->e, 32), at_me_i32(m, 0));
    s->op = op;
  }
  if (s->ref.size[0].c != dim[0] || s->ref.size[1].c != dim[1] ||
      s->ref.dtype != type)
    return at_me_refuse(m, op, "a sum of another shape");
  return AT_OK;
}

// First all pushes, then all sums: weights may be pushed behind the text that
// uses them, in a loop.
static at_status see_block(at_me *m, const at_mblock *b, bool pushes) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    if (pushes && c == AT_MOSAIC_TPU_MATMUL_PUSH_RHS) AT_TRY(see_push(m, op));
    if (!pushes && c == AT_MOSAIC_TPU_MATMUL_ACC_LHS) AT_TRY(see_sum(m, op));
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        AT_TRY(see_block(m, op->regions[r]->blocks[k], pushes));
  }
  return AT_OK;
}

// Only the body is searched: an operation inside a called function has no
// registers and is refused.
at_status at_me_mxu_begin(at_me *m, const at_mblock *body) {
  AT_TRY(see_block(m, body, true));
  return see_block(m, body, false);
}

// i1: was something added since the sum was popped last?
static LLVMValueRef is_held(at_me *m, const sum *s) {
  LLVMValueRef held = at_b_load(m->e, at_em_int(m->e, 32), s->held, 4);
  return at_b_icmp(m->e, AT_B_NE, held, at_me_i32(m, 0));
}

// A sum that is left at the end of a grid step would be lost: the kernel ends
// with a message.
void at_me_mxu_end(at_me *m) {
  static const char text[] =
      "a sum is left in the MXU where a grid step ends: pop it before";
  for (uint32_t i = 0; i < MAX_UNITS; i++)
    for (uint32_t k = 0; m->mxu->units[i] && k < MAX_SUMS; k++) {
      const sum *s = &m->mxu->units[i]->sums[k];
      if (!s->op) continue;
      at_branch f;
      at_if_begin(m->e, &f, is_held(m, s));
      LLVMValueRef args[3] = {m->core, at_me_i32(m, at_me_loc(m, s->op)),
                              at_b_bytes(m->e, text, sizeof text)};
      at_b_call(m->e, "at_core_fail", NULL, args, 3);
      at_if_end(m->e, &f);
    }
}

// ---- operations
// Writes into the place that is not in use, then makes the register point at
// it.
at_status at_me_op_mxu_push(at_me *m, at_mop *op) {
  at_em *e = m->e;
  unit *u;
  at_me_ref to;
  int64_t k;
  AT_TRY(find_unit(m, op, &u));
  AT_TRY(find_register(m, op, "staging_register", 0, MAX_STAGES, &k));
  at_me_node *b = at_me_vector(m, op->operands[0]);
  if (!b) return AT_OK;
  if (!u->staged[k]) return at_me_refuse(m, op, "a function of its own");
  at_me_prepare(m, b);
  LLVMValueRef used = at_b_load(e, at_b_ptr(e), u->loaded, 8);
  LLVMValueRef first = at_b_icmp(e, AT_B_NE, used, u->place[k][0]);
  LLVMValueRef p = at_b_select(e, first, u->place[k][0], u->place[k][1]);
  at_me_dense(m, &to, p, at_mosaic_dtype_of(u->weights), 2,
              u->weights->shape.ptr);
  at_me_copy_to(m, b, &to, NULL, AT_ME_PLAIN);
  at_b_store(e, p, u->staged[k], 8);
  return AT_OK;
}

// sum += a * weights, after loading the staged weights if the operation says
// so. A sum that holds nothing is overwritten.
at_status at_me_op_mxu_accumulate(at_me *m, at_mop *op) {
  at_em *e = m->e;
  unit *u;
  int64_t acc, load;
  AT_TRY(find_unit(m, op, &u));
  AT_TRY(find_register(m, op, "acc", 0, MAX_SUMS, &acc));
  AT_TRY(find_register(m, op, "load_staged_rhs", -1, MAX_STAGES, &load));
  sum *s = &u->sums[acc];
  at_me_node *a = at_me_vector(m, op->operands[0]);
  if (!a) return AT_OK;
  if (!s->op) return at_me_refuse(m, op, "a function of its own");
  LLVMValueRef p =
      at_b_load(e, at_b_ptr(e), load >= 0 ? u->staged[load] : u->loaded, 8);
  if (load >= 0) {
    at_b_store(e, p, u->loaded, 8);
  } else {
    static const char text[] = "no weights are loaded into the MXU";
    at_branch f;
    at_if_begin(e, &f, at_b_icmp(e, AT_B_EQ, p, at_b_null(at_b_ptr(e))));
    LLVMValueRef args[3] = {m->core, at_me_i32(m, at_me_loc(m, op)),
                            at_b_bytes(e, text, sizeof text)};
    at_b_call(e, "at_core_fail", NULL, args, 3);
    at_if_end(e, &f);
  }
  at_me_node *w = at_me_node_new(m, AT_ME_LOAD, op, u->weights);
  if (!w) return AT_OK;
  at_me_dense(m, at_me_node_ref(m, w), p, w->dtype, w->rank, w->dim);
  LLVMValueRef fresh = at_b_not(e, is_held(m, s));
  AT_TRY(at_me_dot_add(m, op, a, w, u->transposed, &s->ref, fresh));
  at_b_store(e, at_me_i32(m, 1), s->held, 4);
  return AT_OK;
}

// The sum, or zeros where nothing was added since it was popped last.
at_status at_me_op_mxu_pop(at_me *m, at_mop *op) {
  unit *u;
  int64_t k;
  AT_TRY(find_unit(m, op, &u));
  AT_TRY(find_register(m, op, "acc", 0, MAX_SUMS, &k));
  sum *s = &u->sums[k];
  const at_mtype *t = op->results[0].type;
  if (!s->op || t->shape.rank != 2 || t->shape.ptr[0] != s->ref.size[0].c ||
      t->shape.ptr[1] != s->ref.size[1].c)
    return at_me_refuse(m, op, "a sum of another shape");
  at_dtype type = s->ref.dtype;
  at_me_node *from = at_me_node_new(m, AT_ME_LOAD, op, t);
  at_me_node *zero =
      at_me_splat(m, type, at_b_null(at_em_reg_type(m->e, type)));
  at_me_node *to = at_me_buffer(m, op, type, 2, t->shape.ptr);
  if (!from || !zero || !to) return AT_OK;
  from->dtype = type;
  *at_me_node_ref(m, from) = s->ref;
  at_branch f;
  at_if_begin(m->e, &f, is_held(m, s));
  at_me_copy_to(m, from, to->ref, NULL, AT_ME_PLAIN);
  at_if_else(m->e, &f);
  at_me_copy_to(m, zero, to->ref, NULL, AT_ME_PLAIN);
  at_if_end(m->e, &f);
  at_b_store(m->e, at_me_i32(m, 0), s->held, 4);
  if (at_mosaic_dtype_of(t) != type) {
    at_me_node *c = at_me_node_new(m, AT_ME_APPLY, op, t);
    if (!c) return AT_OK;
    c->code = AT_MOSAIC_ARITH_TRUNCF;
    at_me_node_hold(m, c, to);
    to = c;
  }
  return at_me_set_node(m, &op->results[0], to);
}
