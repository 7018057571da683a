// Which memory each ref is of, and what each operation may write: roots, as
// plan.h has them. A value that a loop carries as a vector has a root, too.
#include "mosaic/plan_internal.h"

typedef struct memory {
  at_mplan_build *b;
  uint32_t next;   // root
  bool transfers;  // some copy or signal may write at any time
  uint32_t calls;  // seen so far: what functions allocate is not followed
} memory;

// What an operation writes, while it is put together.
typedef struct written {
  uint64_t low;   // roots below 63
  uint32_t high;  // the first root from 63 on; AT_MPLAN_ANY_ROOT: none
  bool any;       // everything
} written;

static const written nothing = {.high = AT_MPLAN_ANY_ROOT};
static const written anything = {.high = AT_MPLAN_ANY_ROOT, .any = true};

static written join(written a, written b) {
  return (written){a.low | b.low, AT_MIN(a.high, b.high), a.any || b.any};
}

// What is written if it is just this root: a bit for the first 63, a number for
// later ones.
static written only(uint32_t root) {
  if (root == AT_MPLAN_ANY_ROOT) return anything;
  if (root >= 63) return (written){.high = root};
  return (written){.low = 1ull << root, .high = AT_MPLAN_ANY_ROOT};
}

// Without memory that begins at `first` or later.
static uint64_t bits_before(written w, uint32_t first) {
  if (w.any) return ~0ull;
  uint64_t low = first < 63 ? w.low & ((1ull << first) - 1) : w.low;
  return low | (w.high < first ? 1ull << 63 : 0);
}

// ---- what refs are of
// like: the ref that it is a view of; NULL: memory of its own with its type's
// elements.
static void set_ref(memory *m, const at_mvalue *v, const at_mplan_fact *like,
                    uint32_t root) {
  at_mplan_fact *f = at_mplan_fact_of(m->b, v);
  f->out.root = root;
  f->packed = like && like->packed;
  f->storage = like ? like->storage : at_mosaic_dtype_of(v->type);
}

static bool is_ref(const at_mvalue *v) {
  return v->type->kind == AT_MTYPE_MEMREF;
}

// Views are of the same root.
static void same_ref(memory *m, const at_mvalue *from, const at_mvalue *to) {
  const at_mplan_fact *f = at_mplan_fact_of(m->b, from);
  set_ref(m, to, f, f->out.root);
}

// Elements of another width than those of the memory make a packed view.
static void set_bitcast(memory *m, const at_mop *op) {
  const at_mvalue *in = op->operands[0], *out = &op->results[0];
  const at_mplan_fact *from = at_mplan_fact_of(m->b, in);
  uint32_t have = at_dtype_of(from->storage)->bits;
  uint32_t want = at_dtype_of(at_mosaic_dtype_of(out->type))->bits;
  uint32_t seen = at_dtype_of(at_mosaic_dtype_of(in->type))->bits;
  set_ref(m, out, from, from->out.root);
  if (from->packed && want == seen) return;
  at_mplan_fact *f = at_mplan_fact_of(m->b, out);
  f->packed = want != have;
  if (want == have) f->storage = at_mosaic_dtype_of(out->type);
}

// Allocations begin a root. Views have their operand's; anything else that
// yields a ref is root 0, which nothing writes.
static void set_result(memory *m, const at_mop *op) {
  const at_mvalue *r = &op->results[0];
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_MEMREF_ALLOCA:
    case AT_MOSAIC_TPU_SEM_ALLOC:
      set_ref(m, r, NULL, m->next++);
      break;
    case AT_MOSAIC_TPU_MEMREF_BITCAST:
      set_bitcast(m, op);
      break;
    case AT_MOSAIC_TPU_REINTERPRET_CAST:
      set_ref(m, r, NULL, at_mplan_fact_of(m->b, op->operands[0])->out.root);
      break;
    default:
      if (op->num_operands && is_ref(op->operands[0]))
        same_ref(m, op->operands[0], r);
      else
        set_ref(m, r, NULL, 0);
      break;
  }
}

// ---- what is written
// The value that a view comes from.
static const at_mvalue *source_of(const at_mvalue *v) {
  while (v->op && v->op->num_operands > 0 && is_ref(v->op->operands[0]))
    v = v->op->operands[0];
  return v;
}

// What a write through this ref touches. A ref that control flow chose, or that
// came as a function's or loop's argument, may be anything.
static written at(memory *m, const at_mvalue *ref) {
  const at_mvalue *v = source_of(ref);
  if (v->op && v->op->num_regions) return anything;  // a loop or branch chose
  if (!v->op && v->block && v->block->region && v->block->region->op &&
      at_mosaic_opcode_of(v->block->region->op) != AT_MOSAIC_FUNC_FUNC)
    return anything;
  return only(at_mplan_fact_of(m->b, v)->out.root);
}

// Stores write their ref. Waits and signals may let transfers write, to any
// memory, if there are transfers at all. Calls write anything.
static written by_op(memory *m, const at_mop *op) {
  written any_time = m->transfers ? anything : nothing;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_VECTOR_STORE:
    case AT_MOSAIC_TPU_VECTOR_STORE:
    case AT_MOSAIC_TPU_STRIDED_STORE:
    case AT_MOSAIC_TPU_STORE:
    case AT_MOSAIC_TPU_SHUFFLED_STORE:
    case AT_MOSAIC_TPU_VECTOR_STORE_IDX:
    case AT_MOSAIC_MEMREF_STORE:
      return at(m, op->operands[1]);
    case AT_MOSAIC_TPU_ENQUEUE_DMA: {
      uint32_t first;
      if (at_mosaic_op_segment(op, 2, &first) != 1) return anything;
      return join(at(m, op->operands[first]), any_time);
    }
    case AT_MOSAIC_TPU_ENQUEUE_INDIRECT_DMA:
      return join(at(m, op->operands[1]), any_time);
    case AT_MOSAIC_TPU_WAIT_DMA2:
    case AT_MOSAIC_TPU_WAIT_DMA:
    case AT_MOSAIC_TPU_WAIT_INDIRECT_DMA:
    case AT_MOSAIC_TPU_SEM_SIGNAL:
    case AT_MOSAIC_TPU_SEM_WAIT:
    case AT_MOSAIC_TPU_SEM_READ:
    case AT_MOSAIC_TPU_BARRIER:
      return any_time;
    case AT_MOSAIC_TPU_FETCH_AND_ADD_SYNC:
      return at(m, op->operands[0]);
    case AT_MOSAIC_FUNC_CALL:
      return anything;
    default:
      return nothing;
  }
}

// Operations after which other memory may change by itself.
static bool starts_transfer(const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_TPU_ENQUEUE_DMA:
    case AT_MOSAIC_TPU_ENQUEUE_INDIRECT_DMA:
    case AT_MOSAIC_FUNC_CALL:
    case AT_MOSAIC_TPU_SEM_SIGNAL:
    case AT_MOSAIC_TPU_SEM_WAIT:
    case AT_MOSAIC_TPU_BARRIER:
      return true;
    default:
      return false;
  }
}

// Calls count: what a function starts is not followed.
static bool has_transfers(const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (starts_transfer(op)) return true;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        if (has_transfers(op->regions[r]->blocks[k])) return true;
  }
  return false;
}

// ---- the walk, in the order in which code is written
static written visit(memory *m, const at_mblock *b);

static const at_mblock *block_of(const at_mop *op, uint32_t region) {
  if (region >= op->num_regions || op->regions[region]->num_blocks == 0)
    return NULL;
  return op->regions[region]->blocks[0];
}

static const at_mop *last_of(const at_mblock *b) {
  return b && b->num_ops ? b->ops[b->num_ops - 1] : NULL;
}

// Operand i of the block's last operation; NULL: it has none.
static const at_mvalue *passed(const at_mblock *b, uint32_t i) {
  const at_mop *last = last_of(b);
  return last && i < last->num_operands ? last->operands[i] : NULL;
}

// A ref result is of one root only if both sides yield the same.
static written visit_if(memory *m, const at_mop *op) {
  written w = nothing;
  for (uint32_t r = 0; r < op->num_regions; r++)
    if (block_of(op, r)) w = join(w, visit(m, block_of(op, r)));
  for (uint32_t i = 0; i < op->num_results; i++) {
    const at_mvalue *a = passed(block_of(op, 0), i);
    const at_mvalue *b = passed(block_of(op, 1), i);
    if (!is_ref(&op->results[i]) || !a || !b) continue;
    const at_mplan_fact *f = at_mplan_fact_of(m->b, a);
    bool one = f->out.root == at_mplan_fact_of(m->b, b)->out.root;
    set_ref(m, &op->results[i], f, one ? f->out.root : AT_MPLAN_ANY_ROOT);
  }
  return w;
}

// The argument by which a loop carries `init`: a vector is in memory of its
// own, a ref may be any that comes round.
static void carry(memory *m, const at_mvalue *init, const at_mvalue *arg) {
  if (at_mosaic_is_vector(init))
    at_mplan_fact_of(m->b, arg)->out.root = m->next++;
  else if (is_ref(init))
    set_ref(m, arg, at_mplan_fact_of(m->b, init), AT_MPLAN_ANY_ROOT);
}

// Results are the loop's arguments; what the loop carries as a vector has a
// root, so that updates in place are seen as writes.
static written visit_for(memory *m, const at_mop *op) {
  const at_mblock *b = block_of(op, 0);
  uint32_t n = op->num_results;
  if (!b || op->num_operands != n + 3 || b->num_args != n + 1) return nothing;
  for (uint32_t i = 0; i < n; i++)
    carry(m, op->operands[3 + i], &b->args[1 + i]);
  written w = visit(m, b);
  for (uint32_t i = 0; i < n; i++)
    if (is_ref(&op->results[i])) same_ref(m, &b->args[1 + i], &op->results[i]);
  return w;
}

// The condition's region passes its values on to the body and to the results.
static written visit_while(memory *m, const at_mop *op) {
  const at_mblock *before = block_of(op, 0), *after = block_of(op, 1);
  if (!before || !after || before->num_args != op->num_operands ||
      after->num_args != op->num_results)
    return nothing;
  for (uint32_t i = 0; i < op->num_operands; i++)
    carry(m, op->operands[i], &before->args[i]);
  for (uint32_t i = 0; i < op->num_results; i++)
    if (at_mosaic_is_vector(&op->results[i]))
      at_mplan_fact_of(m->b, &after->args[i])->out.root = m->next++;
  written w = visit(m, before);
  for (uint32_t i = 0; i < op->num_results; i++) {
    const at_mvalue *from = passed(before, 1 + i);
    if (!from || !is_ref(from)) continue;
    same_ref(m, from, &after->args[i]);
    same_ref(m, from, &op->results[i]);
  }
  return join(w, visit(m, after));
}

// Any other region: results are what its terminator passes on.
static written visit_inside(memory *m, const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_SCF_IF:
      return visit_if(m, op);
    case AT_MOSAIC_SCF_FOR:
      return visit_for(m, op);
    case AT_MOSAIC_SCF_WHILE:
      return visit_while(m, op);
    default:
      break;
  }
  const at_mblock *b = block_of(op, 0);
  written w = b ? visit(m, b) : nothing;
  for (uint32_t i = 0; i < op->num_results; i++)
    if (is_ref(&op->results[i]) && passed(b, i))
      same_ref(m, passed(b, i), &op->results[i]);
  return w;
}

// Roots first .. end - 1 as bits.
static uint64_t roots_from(uint32_t first, uint32_t end) {
  uint64_t bits = 0;
  for (uint32_t k = first; k < AT_MIN(end, first + 64); k++)
    bits |= at_mplan_root_bit(k);
  return bits;
}

// Fills in the operation's writes, without roots that begin inside it, and the
// roots that do.
static written visit_op(memory *m, const at_mop *op) {
  uint32_t first = m->next, calls = m->calls;
  written w = by_op(m, op);
  if (op->num_regions)
    w = join(w, visit_inside(m, op));
  else if (at_mosaic_opcode_of(op) == AT_MOSAIC_FUNC_CALL)
    m->calls++;
  else if (op->num_results == 1 && is_ref(&op->results[0]))
    set_result(m, op);
  uint64_t bits = bits_before(w, op->num_regions ? first : m->next);
  if (!bits && first == m->next && calls == m->calls) return w;
  at_mplan_op *f = at_mplan_facts_of_op(m->b, op);
  f->writes = bits;
  f->allocates = calls < m->calls ? ~0ull : roots_from(first, m->next);
  return w;
}

static written visit(memory *m, const at_mblock *b) {
  written w = nothing;
  for (uint32_t i = 0; i < b->num_ops; i++) w = join(w, visit_op(m, b->ops[i]));
  return w;
}

// Roots 1.. in order of the arguments behind the grid ids.
static void number_arguments(memory *m) {
  const at_mblock *body = m->b->in->body;
  const at_mosaic_program *p = m->b->in->program;
  for (uint32_t i = p->grid_rank; i < body->num_args; i++)
    set_ref(m, &body->args[i], NULL, m->next++);
  if (body != p->body) return;
  // Aliased windows may be the same memory.
  for (uint32_t w = 0; w < p->num_windows; w++) {
    const at_mosaic_window *x = &p->windows[w];
    if (x->is_output || x->alias < 0) continue;
    for (uint32_t o = p->num_inputs; o < p->num_windows; o++)
      if (p->windows[o].index == (uint32_t)x->alias)
        at_mplan_fact_of(m->b, &body->args[p->windows[o].arg])->out.root =
            at_mplan_fact_of(m->b, &body->args[x->arg])->out.root;
  }
}

// What a function is given may be any memory.
static void number_parameters(memory *m, const at_mblock *function) {
  for (uint32_t i = 0; i < function->num_args; i++) {
    const at_mvalue *v = &function->args[i];
    if (!is_ref(v)) continue;
    set_ref(m, v, NULL, AT_MPLAN_ANY_ROOT);
    at_mplan_fact_of(m->b, v)->packed = true;
  }
}

// Root 0 is no memory; arguments begin with 1. Functions follow the body, each
// with parameters of any root.
void at_mplan_memory(at_mplan_build *b) {
  memory m = {.b = b, .next = 1, .transfers = has_transfers(b->in->body)};
  number_arguments(&m);
  (void)visit(&m, b->in->body);
  for (size_t i = 1; i < b->plan->blocks.len; i++) {
    number_parameters(&m, b->plan->blocks.ptr[i]);
    (void)visit(&m, b->plan->blocks.ptr[i]);
  }
}
