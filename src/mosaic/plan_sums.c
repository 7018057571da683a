// Sums that begin with zeros. `if first: sum = 0`, and then `sum = sum +
// product`, needs no zeros in memory: the branch is left out, and the product
// overwrites where `first` holds. Where the sum is only read in other blocks,
// its products may come later than their stores.
#include <math.h>

#include "mosaic/plan_internal.h"

// The block of a branch's side; NULL: it has none.
static const at_mblock *side_of(const at_mop *branch, uint32_t i) {
  const at_mregion *r = i < branch->num_regions ? branch->regions[i] : NULL;
  return r && r->num_blocks == 1 ? r->blocks[0] : NULL;
}

// Without reshapes and broadcasts, which keep zeros zeros.
static const at_mvalue *peel(const at_mvalue *v) {
  while (v->op && (at_mosaic_opcode_of(v->op) == AT_MOSAIC_VECTOR_SHAPE_CAST ||
                   at_mosaic_opcode_of(v->op) == AT_MOSAIC_VECTOR_BROADCAST))
    v = v->op->operands[0];
  return v;
}

// Positive zero in f32, alone or as a splat: a sum that begins with -0 is
// another number.
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

// Either form of a load or store.
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
  int64_t steps[AT_CORE_MAX_RANK];
  uint32_t n;
  if (!at_mosaic_op_ints(op, "strides", steps, AT_CORE_MAX_RANK, &n) && n)
    return false;
  if (n || at_mosaic_op_int(op, "add", 0)) return false;
  for (uint32_t d = 0; d < rank; d++) {
    const at_mop *index = op->operands[first + d]->op;
    if (!index || at_mosaic_opcode_of(index) != AT_MOSAIC_ARITH_CONSTANT ||
        at_mosaic_op_int(index, "value", 1) != 0)
      return false;
    if (t->shape.ptr[d] == AT_MDYN || t->shape.ptr[d] != vector->shape.ptr[d])
      return false;
  }
  return true;
}

// The whole of its memory at once.
static bool stores_all(const at_mop *op) {
  return is_access(op, AT_MOSAIC_VECTOR_STORE, AT_MOSAIC_TPU_VECTOR_STORE) &&
         op->num_operands >= 2 &&
         takes_all(op, op->operands[1], op->operands[0]->type, 2);
}

// The one ref that the branch fills with zeros; it does nothing else.
static const at_mvalue *filled_by(const at_mop *branch) {
  const at_mblock *fill = side_of(branch, 0), *other = side_of(branch, 1);
  const at_mvalue *ref = NULL;
  if (!fill || branch->num_results || (other && other->num_ops > 1))
    return NULL;
  for (uint32_t i = 0; i + 1 < fill->num_ops; i++) {
    const at_mop *op = fill->ops[i];
    if (at_mosaic_is_lazy(at_mosaic_opcode_of(op))) continue;
    if (ref || !stores_all(op) || !is_zero(op->operands[0])) return NULL;
    ref = op->operands[1];
  }
  return ref;
}

static bool used_once(at_mplan_build *b, const at_mvalue *v) {
  return at_mplan_fact_of(b, v)->out.uses == 1;
}

// The operand of a sum, read through reshapes that nobody else needs.
static const at_mop *part_of(at_mplan_build *b, const at_mvalue *v) {
  while (v->op && used_once(b, v) &&
         at_mosaic_opcode_of(v->op) == AT_MOSAIC_VECTOR_SHAPE_CAST)
    v = v->op->operands[0];
  return v->op && used_once(b, v) ? v->op : NULL;
}

static bool is_load_of(const at_mop *op, const at_mvalue *ref) {
  return op &&
         is_access(op, AT_MOSAIC_VECTOR_LOAD, AT_MOSAIC_TPU_VECTOR_LOAD) &&
         op->operands[0] == ref && takes_all(op, ref, op->results[0].type, 1);
}

// A product whose accumulator is zero.
static bool is_product(const at_mop *op) {
  return op && at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL &&
         is_zero(op->operands[2]);
}

// The load of a store that writes ref + a product to ref; NULL: it does not.
static const at_mop *added_to(at_mplan_build *b, const at_mop *store,
                              const at_mvalue *ref) {
  if (!stores_all(store) || store->operands[1] != ref) return NULL;
  const at_mop *sum = part_of(b, store->operands[0]);
  if (!sum || at_mosaic_opcode_of(sum) != AT_MOSAIC_ARITH_ADDF) return NULL;
  const at_mop *x = part_of(b, sum->operands[0]);
  const at_mop *y = part_of(b, sum->operands[1]);
  if (is_load_of(x, ref) && is_product(y)) return x;
  return is_load_of(y, ref) && is_product(x) ? y : NULL;
}

// ---- Products that come later
typedef struct sum {
  const at_mvalue *ref;
  const at_mop *branch, *load, *store;
} sum;

typedef struct sums {
  at_mplan_build *b;
  sum late[4];  // whose products may be missing
  uint32_t num_late;
} sums;

// A load of ref, or a store to it.
static bool is_plain_use(const at_mop *op, const at_mvalue *ref) {
  bool load = is_access(op, AT_MOSAIC_VECTOR_LOAD, AT_MOSAIC_TPU_VECTOR_LOAD);
  bool store =
      is_access(op, AT_MOSAIC_VECTOR_STORE, AT_MOSAIC_TPU_VECTOR_STORE);
  return (load && op->operands[0] == ref) ||
         (store && op->num_operands > 1 && op->operands[1] == ref);
}

// Does op have ref as an operand?
static bool names(const at_mop *op, const at_mvalue *ref) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (op->operands[i] == ref) return true;
  return false;
}

// Is ref, apart from the sum, only loaded and stored, behind it and in other
// blocks?
static bool waits(at_mplan_build *b, const sum *u) {
  bool passed = false;  // the store of the sum, in the order of the text
  for (const at_mplan_use *x = at_mplan_fact_of(b, u->ref)->first_use; x;
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

// Of the kernel itself: nobody else sees it.
static bool is_scratch(const at_mplan_build *b, const at_mvalue *ref) {
  const at_mosaic_program *p = b->in->program;
  for (uint32_t i = at_mosaic_arg_scratch(p); i < p->body->num_args; i++)
    if (&p->body->args[i] == ref) return true;
  return false;
}

// Memory of the kernel's own, or an output's.
static bool may_wait(const at_mplan_build *b, const at_mvalue *ref) {
  const at_mosaic_program *p = b->in->program;
  if (is_scratch(b, ref)) return true;
  for (uint32_t i = p->num_inputs; i < p->num_windows; i++)
    if (&p->body->args[p->windows[i].arg] == ref)
      return p->windows[i].alias < 0;
  return false;
}

// Products of the sum may be missing from here on.
static bool comes_late(sums *s, const sum *u) {
  if (s->num_late == AT_LEN(s->late) ||
      s->b->in->body != s->b->in->program->body || !may_wait(s->b, u->ref) ||
      !waits(s->b, u))
    return false;
  s->late[s->num_late++] = *u;
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
static bool takes_sum(at_mplan_build *b, const at_mop *store,
                      const at_mvalue *ref) {
  uint32_t i, k;
  if (!stores_all(store) || store->operands[1] == ref) return false;
  const at_mop *op = part_of(b, store->operands[0]);
  if (op && at_mosaic_opcode_of(op) == AT_MOSAIC_ARITH_TRUNCF)
    op = part_of(b, op->operands[0]);
  if (!is_load_of(op, ref) || op->block != store->block) return false;
  const at_mtype *from = ref->type, *to = store->operands[0]->type;
  at_dtype t = at_mosaic_dtype_of(to);
  if (!is_matrix(from, &i) || !is_matrix(to, &k)) return false;
  return at_mosaic_dtype_of(from) == AT_F32 && (t == AT_F32 || t == AT_BF16) &&
         from->shape.ptr[i] == to->shape.ptr[k] &&
         from->shape.ptr[i + 1] == to->shape.ptr[k + 1];
}

// The store of a block that does nothing but take ref; NULL: it does more.
static const at_mop *taker_of(at_mplan_build *b, const at_mblock *block,
                              const at_mvalue *ref) {
  const at_mop *store = NULL;
  for (uint32_t i = 0; i + 1 < block->num_ops; i++) {
    const at_mop *op = block->ops[i];
    if (at_mosaic_is_lazy(at_mosaic_opcode_of(op))) continue;
    if (store || !takes_sum(b, op, ref)) return NULL;
    store = op;
  }
  return is_scratch(b, ref) ? store : NULL;
}

// ---- The walk
// Sums whose products may be missing where the block begins, and which it uses:
// its one store takes such a sum, or they are finished first.
static void enter(sums *s, const at_mblock *block) {
  for (uint32_t k = 0; k < s->num_late; k++) {
    const sum *u = &s->late[k];
    bool used = false;
    for (uint32_t i = 0; i < block->num_ops; i++) {
      const at_mop *op = block->ops[i];
      used |= op != u->load && op != u->store && names(op, u->ref);
    }
    if (!used) continue;
    const at_mop *taker = taker_of(s->b, block, u->ref);
    void **finish = NULL;
    if (taker)
      at_mplan_facts_of_op(s->b, taker)->takes = u->ref;
    else if ((finish = at_map_put_ptr(&s->b->plan->finishes, block)))
      *finish = s;
    else
      s->b->failed = true;
  }
}

// Is the branch at `at` left out? Only what computes nothing stands between it
// and the store of the sum.
static bool leave_out(sums *s, const at_mblock *block, uint32_t at) {
  const at_mop *branch = block->ops[at];
  if (s->b->in->options->check ||
      at_mosaic_opcode_of(branch) != AT_MOSAIC_SCF_IF)
    return false;
  const at_mvalue *ref = filled_by(branch);
  if (!ref) return false;
  uint32_t i = at + 1;
  for (; i < block->num_ops; i++) {
    at_mosaic_opcode c = at_mosaic_opcode_of(block->ops[i]);
    if (!at_mosaic_is_lazy(c) && c != AT_MOSAIC_TPU_MATMUL) break;
  }
  if (i >= block->num_ops) return false;
  const at_mop *load = added_to(s->b, block->ops[i], ref);
  if (!load) return false;
  sum u = {ref, branch, load, block->ops[i]};
  at_mplan_op *store = at_mplan_facts_of_op(s->b, u.store);
  store->start = branch;
  store->may_wait = comes_late(s, &u);
  at_mplan_facts_of_op(s->b, branch)->left_out = true;
  return true;
}

// Blocks in the order of the text: a sum is late only for blocks behind it.
static void visit(sums *s, const at_mblock *block) {
  enter(s, block);
  for (uint32_t i = 0; i < block->num_ops; i++) {
    const at_mop *op = block->ops[i];
    if (leave_out(s, block, i)) continue;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        visit(s, op->regions[r]->blocks[k]);
  }
}

void at_mplan_sums(at_mplan_build *b) {
  sums s = {.b = b};
  for (size_t i = 0; i < b->plan->blocks.len; i++)
    visit(&s, b->plan->blocks.ptr[i]);
}
