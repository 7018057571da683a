// Sums that begin with zeros. `if first: sum = 0`, and then `sum = sum +
// product`, needs no zeros in memory: the branch is left out, and the product
// overwrites where `first` holds.
#include <math.h>
#include <stddef.h>

#include "mosaic/emit.h"

static const at_mblock *side_of(const at_mop *branch, uint32_t i) {
  const at_mregion *r = i < branch->num_regions ? branch->regions[i] : NULL;
  return r && r->num_blocks == 1 ? r->blocks[0] : NULL;
}

static const at_mvalue *peel(const at_mvalue *v) {
  while (v->op && (at_mosaic_opcode_of(v->op) == AT_MOSAIC_VECTOR_SHAPE_CAST ||
                   at_mosaic_opcode_of(v->op) == AT_MOSAIC_VECTOR_BROADCAST))
    v = v->op->operands[0];
  return v;
}

static bool is_zero(const at_mvalue *v) {
  const at_mop *op = peel(v)->op;
  if (!op || at_mosaic_opcode_of(op) != AT_MOSAIC_ARITH_CONSTANT) return false;
  const at_mattr *t = at_mop_attr(op, "value");
  if (!t || at_mosaic_dtype_of(op->results[0].type) != AT_F32) return false;
  if (t->kind == AT_MATTR_FLOAT) return t->f == 0 && !signbit(t->f);
  static const uint8_t zero[4];
  return t->kind == AT_MATTR_DENSE && t->splat && t->data.len == 4 &&
         !memcmp(t->data.ptr, zero, 4);
}

static bool is_access(const at_mop *op, at_mosaic_opcode plain,
                      at_mosaic_opcode own) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return c == plain || c == own;
}

// Does the op read or write all of a ref, and nothing but that?
static bool takes_all(const at_mop *op, const at_mvalue *ref,
                      const at_mtype *vector, uint32_t first) {
  const at_mtype *t = ref->type;
  uint32_t rank = t->shape.rank;
  if (op->num_operands != first + rank || vector->shape.rank != rank)
    return false;
  int64_t steps[AT_ME_RANK];
  uint32_t n;
  if (!at_me_ints(op, "strides", steps, AT_ME_RANK, &n) && n) return false;
  if (n || at_me_int(op, "add", 0)) return false;
  for (uint32_t d = 0; d < rank; d++) {
    const at_mop *index = op->operands[first + d]->op;
    if (!index || at_mosaic_opcode_of(index) != AT_MOSAIC_ARITH_CONSTANT ||
        at_me_int(index, "value", 1) != 0)
      return false;
    if (t->shape.ptr[d] == AT_MDYN || t->shape.ptr[d] != vector->shape.ptr[d])
      return false;
  }
  return true;
}

static bool stores_all(const at_mop *op) {
  return is_access(op, AT_MOSAIC_VECTOR_STORE, AT_MOSAIC_TPU_VECTOR_STORE) &&
         op->num_operands >= 2 &&
         takes_all(op, op->operands[1], op->operands[0]->type, 2);
}

// The one ref that the branch fills with zeros; it does nothing else.
static const at_mvalue *filled_by(const at_mop *branch) {
  const at_mblock *b = side_of(branch, 0), *other = side_of(branch, 1);
  const at_mvalue *ref = NULL;
  if (!b || branch->num_results || (other && other->num_ops > 1)) return NULL;
  for (uint32_t i = 0; i + 1 < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (at_me_lazy(at_mosaic_opcode_of(op))) continue;
    if (ref || !stores_all(op) || !is_zero(op->operands[0])) return NULL;
    ref = op->operands[1];
  }
  return ref;
}

static bool used_once(at_me *m, const at_mvalue *v) {
  return at_me_slot_of(m, v)->uses == 1;
}

// The operand of a sum, read through reshapes that nobody else needs.
static const at_mop *part_of(at_me *m, const at_mvalue *v) {
  while (v->op && used_once(m, v) &&
         at_mosaic_opcode_of(v->op) == AT_MOSAIC_VECTOR_SHAPE_CAST)
    v = v->op->operands[0];
  return v->op && used_once(m, v) ? v->op : NULL;
}

static bool is_load_of(const at_mop *op, const at_mvalue *ref) {
  return op &&
         is_access(op, AT_MOSAIC_VECTOR_LOAD, AT_MOSAIC_TPU_VECTOR_LOAD) &&
         op->operands[0] == ref && takes_all(op, ref, op->results[0].type, 1);
}

static bool is_product(const at_mop *op) {
  return op && at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL &&
         is_zero(op->operands[2]);
}

// The load of a store that writes ref + a product to ref; NULL: it does not.
static const at_mop *added_to(at_me *m, const at_mop *store,
                              const at_mvalue *ref) {
  if (!stores_all(store) || store->operands[1] != ref) return NULL;
  const at_mop *sum = part_of(m, store->operands[0]);
  if (!sum || at_mosaic_opcode_of(sum) != AT_MOSAIC_ARITH_ADDF) return NULL;
  const at_mop *x = part_of(m, sum->operands[0]);
  const at_mop *y = part_of(m, sum->operands[1]);
  if (is_load_of(x, ref) && is_product(y)) return x;
  return is_load_of(y, ref) && is_product(x) ? y : NULL;
}

// ---- Products that come later
typedef struct sum {
  const at_mvalue *ref;
  const at_mop *branch, *load, *store;
} sum;

static bool is_plain_use(const at_mop *op, const at_mvalue *ref) {
  bool load = is_access(op, AT_MOSAIC_VECTOR_LOAD, AT_MOSAIC_TPU_VECTOR_LOAD);
  bool store =
      is_access(op, AT_MOSAIC_VECTOR_STORE, AT_MOSAIC_TPU_VECTOR_STORE);
  return (load && op->operands[0] == ref) ||
         (store && op->num_operands > 1 && op->operands[1] == ref);
}

static bool names(const at_mop *op, const at_mvalue *ref) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (op->operands[i] == ref) return true;
  return false;
}

// Is ref, apart from the sum, only loaded and stored, behind it and in other
// blocks?
static bool waits(at_me *m, const sum *u) {
  bool passed = false;  // the store of the sum, in the order of the text
  for (const at_me_use *x = at_me_slot_of(m, u->ref)->first_use; x;
       x = x->next) {
    const at_mop *op = x->op;
    if (op == u->store) passed = true;
    if (op == u->load || op == u->store || op->block->region->op == u->branch)
      continue;
    bool later = passed && op->block != u->store->block;
    if (!later || !is_plain_use(op, u->ref)) return false;
  }
  return true;
}

static bool is_scratch(const at_me *m, const at_mvalue *ref) {
  const at_mosaic_program *p = m->p;
  for (uint32_t i = at_mosaic_arg_scratch(p); i < p->body->num_args; i++)
    if (&p->body->args[i] == ref) return true;
  return false;
}

// Memory of the kernel's own, or an output's.
static bool may_wait(const at_me *m, const at_mvalue *ref) {
  const at_mosaic_program *p = m->p;
  if (is_scratch(m, ref)) return true;
  for (uint32_t i = p->num_inputs; i < p->num_windows; i++)
    if (&p->body->args[p->windows[i].arg] == ref)
      return p->windows[i].alias < 0;
  return false;
}

static bool comes_late(at_me *m, const sum *u) {
  if (m->num_late == AT_ME_LATE || m->window || !may_wait(m, u->ref) ||
      !waits(m, u))
    return false;
  m->late[m->num_late].ref = u->ref;
  m->late[m->num_late].load = u->load;
  m->late[m->num_late++].store = u->store;
  return true;
}

// ---- Sums that are stored
static bool is_matrix(const at_mtype *t, uint32_t *lead) {
  *lead = t->shape.rank - 2;
  for (uint32_t d = 0; t->shape.rank >= 2 && d < *lead; d++)
    if (t->shape.ptr[d] != 1) return false;
  return t->shape.rank >= 2;
}

// Does the store take all of ref as it is, or rounded to bf16?
static bool takes_sum(at_me *m, const at_mop *store, const at_mvalue *ref) {
  uint32_t i, k;
  if (!stores_all(store) || store->operands[1] == ref) return false;
  const at_mop *op = part_of(m, store->operands[0]);
  if (op && at_mosaic_opcode_of(op) == AT_MOSAIC_ARITH_TRUNCF)
    op = part_of(m, op->operands[0]);
  if (!is_load_of(op, ref) || op->block != store->block) return false;
  const at_mtype *from = ref->type, *to = store->operands[0]->type;
  at_dtype t = at_mosaic_dtype_of(to);
  if (!is_matrix(from, &i) || !is_matrix(to, &k)) return false;
  return at_mosaic_dtype_of(from) == AT_F32 && (t == AT_F32 || t == AT_BF16) &&
         from->shape.ptr[i] == to->shape.ptr[k] &&
         from->shape.ptr[i + 1] == to->shape.ptr[k + 1];
}

// The store of a block that does nothing but take ref; NULL: it does more.
static const at_mop *taker_of(at_me *m, const at_mblock *b,
                              const at_mvalue *ref) {
  const at_mop *store = NULL;
  for (uint32_t i = 0; i + 1 < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (at_me_lazy(at_mosaic_opcode_of(op))) continue;
    if (store || !takes_sum(m, op, ref)) return NULL;
    store = op;
  }
  return is_scratch(m, ref) ? store : NULL;
}

void at_me_late_finish(at_me *m, const at_mblock *b) {
  bool any = false;
  for (uint32_t k = 0; k < m->num_late; k++) {
    const at_mvalue *ref = m->late[k].ref;
    bool used = false;
    for (uint32_t i = 0; i < b->num_ops; i++)
      used |= b->ops[i] != m->late[k].load && b->ops[i] != m->late[k].store &&
              names(b->ops[i], ref);
    m->late[k].taker = used ? taker_of(m, b, ref) : NULL;
    any |= used && !m->late[k].taker;
  }
  if (any) at_b_call(m->e, "at_core_dot_finish", NULL, &m->core, 1);
}

#define FIELD(f) offsetof(at_core_dot_taken, f)
static void call_take(at_me *m, const at_mop *store, const at_me_ref *c,
                      const at_me_ref *box) {
  uint32_t i = c->rank - 2, k = box->rank - 2;
  at_me_record r;
  at_me_record_begin(&r, sizeof(at_core_dot_taken));
  at_me_record_value(m, &r, FIELD(c), c->base);
  at_me_record_value(m, &r, FIELD(out), box->base);
  at_me_record_i32(&r, FIELD(out_type), (int32_t)box->dtype);
  at_me_record_i32(&r, FIELD(loc), at_me_loc(m, store));
  at_me_record_num(m, &r, FIELD(m), c->size[i]);
  at_me_record_num(m, &r, FIELD(n), c->size[i + 1]);
  at_me_record_num(m, &r, FIELD(c_m),
                   at_me_mul(m, c->stride[i], (at_me_num){c->bytes, NULL}));
  at_me_record_num(m, &r, FIELD(out_m),
                   at_me_mul(m, box->stride[k], (at_me_num){box->bytes, NULL}));
  LLVMValueRef args[2] = {m->core, at_me_record_end(m, &r)};
  at_b_call(m->e, "at_core_dot_take", NULL, args, 2);
}
#undef FIELD

static bool has_dense_rows(const at_me_ref *r) {
  at_me_num step = r->stride[r->rank - 1];
  return r->parts <= 1 && r->split <= 1 && r->dtype == r->storage && !step.v &&
         step.c == 1;
}

bool at_me_late_take(at_me *m, const at_mop *store, const at_me_ref *box) {
  uint32_t k = 0;
  while (k < m->num_late && m->late[k].taker != store) k++;
  if (k == m->num_late) return false;
  const at_me_ref *c = at_me_memory(m, m->late[k].ref);
  if (c && has_dense_rows(c) && has_dense_rows(box)) {
    call_take(m, store, c, box);
    return true;
  }
  at_b_call(m->e, "at_core_dot_finish", NULL, &m->core, 1);
  return false;
}

// ---- The branch
bool at_me_start_later(at_me *m, const at_mop *branch) {
  const at_mvalue *ref = m->o->check ? NULL : filled_by(branch);
  const at_mblock *b = branch->block;
  if (!ref || !b || m->start) return false;
  uint32_t i = m->position;
  AT_ASSERT(i < b->num_ops && b->ops[i] == branch);
  // Only what computes nothing stands between the two.
  for (i++; i < b->num_ops; i++) {
    at_mosaic_opcode c = at_mosaic_opcode_of(b->ops[i]);
    if (!at_me_lazy(c) && c != AT_MOSAIC_TPU_MATMUL) break;
  }
  if (i >= b->num_ops) return false;
  const at_mop *load = added_to(m, b->ops[i], ref);
  if (!load) return false;
  sum u = {ref, branch, load, b->ops[i]};
  m->start = at_me_scalar(m, branch->operands[0]);
  m->start_late = comes_late(m, &u);
  return true;
}

LLVMValueRef at_me_start_take(at_me *m) {
  LLVMValueRef first = m->start;
  m->start = NULL;
  return first;
}

void at_me_start_now(at_me *m, LLVMValueRef first, const at_me_ref *sum) {
  at_branch f;
  if (!first) return;
  at_me_node *zero =
      at_me_splat(m, AT_F32, at_b_null(at_em_reg_type(m->e, AT_F32)));
  if (!zero) return;
  at_if_begin(m->e, &f, first);
  at_me_copy_to(m, zero, sum, NULL, AT_ME_PLAIN);
  at_if_end(m->e, &f);
}
