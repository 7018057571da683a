// What the allocations of a program's body take at the same time. Scopes
// (`tpu.region`) give back what was allocated in them; what stands outside of
// one stays until the step ends.
#include "mosaic/code.h"
#include "mosaic/mosaic_internal.h"

enum {
  MOST_BYTES = 1 << 30,  // of one allocation: more than any core has
  MOST_NESTED = 32       // calls inside of calls, as emit_call.c writes them
};

typedef struct need {
  at_mosaic_stack left, most;  // when the block has ended; ever inside of it
  bool unknown;  // grows with each turn of a loop, or with calls without end
  bool open;     // is being counted
} need;

typedef struct counter {
  const at_mosaic_kernel *k;
  at_arena *a;
  at_map functions;  // entry block -> need *
  uint32_t nested;   // calls around the block that is counted
} counter;

// Elements times bytes; false also on overflow.
bool at_mosaic_alloca_bytes(const at_mosaic_ref *t, int64_t *out) {
  bool sem = t->semaphore != AT_MSEM_NONE;
  *out = sem ? AT_CORE_SEM_BYTES : at_dtype_bytes(t->dtype);
  for (uint32_t d = 0; d < t->shape.rank; d++)
    if (t->shape.ptr[d] == AT_MDYN ||
        __builtin_mul_overflow(*out, t->shape.ptr[d], out))
      return false;
  return true;
}

// By symbol, among the module's functions; the entry block.
at_mblock *at_mosaic_callee(const at_mosaic_kernel *k, const at_mop *op) {
  const at_mattr *t = at_mop_attr(op, "callee");
  const at_mop *module = k->module->op;
  if (!t || module->num_regions == 0) return NULL;
  const at_mblock *top = module->regions[0]->blocks[0];
  for (uint32_t i = 0; i < top->num_ops; i++) {
    const at_mop *f = top->ops[i];
    const at_mattr *name = at_mop_attr(f, "sym_name");
    if (name && name->str.len == t->str.len &&
        !memcmp(name->str.ptr, t->str.ptr, t->str.len))
      return f->num_regions && f->regions[0]->num_blocks
                 ? f->regions[0]->blocks[0]
                 : NULL;
  }
  return NULL;
}

static void raise_to(at_mosaic_stack *most, int64_t bytes, int64_t sems) {
  most->bytes = AT_MAX(most->bytes, bytes);
  most->sems = AT_MAX(most->sems, sems);
}

// What `inner` takes comes on top of what is there.
static void add_inner(need *n, const need *inner, bool stays) {
  raise_to(&n->most, n->left.bytes + inner->most.bytes,
           n->left.sems + inner->most.sems);
  n->unknown |= inner->unknown;
  if (!stays) return;
  n->left.bytes += inner->left.bytes;
  n->left.sems += inner->left.sems;
  // Calls of calls multiply: what no memory holds is as good as unknown.
  if (n->left.bytes <= MOST_BYTES && n->left.sems <= MOST_BYTES) return;
  n->left = (at_mosaic_stack){0};
  n->unknown = true;
}

// Memory is rounded up to AT_CORE_ALLOC_ALIGN, as at_core_alloc does.
static at_status add_allocation(const at_mop *op, need *n) {
  int64_t bytes;
  at_mosaic_ref t;
  AT_TRY(at_mosaic_ref_of(op->results[0].type, &t));
  if (!at_mosaic_alloca_bytes(&t, &bytes) || bytes > MOST_BYTES)
    n->unknown = true;  // refused where it is emitted, or where it runs
  else if (at_mosaic_core_space(t.space) == AT_CORE_SEM)
    n->left.sems += bytes / AT_CORE_SEM_BYTES;
  else
    n->left.bytes += at_align_up((size_t)bytes, AT_CORE_ALLOC_ALIGN);
  raise_to(&n->most, n->left.bytes, n->left.sems);
  return AT_OK;
}

static at_status count_block(counter *c, const at_mblock *b, need *n);

// A function is counted once. One that is still being counted calls itself, and
// its need is unknown.
static at_status add_call(counter *c, const at_mop *op, need *n) {
  const at_mblock *b = at_mosaic_callee(c->k, op);
  if (!b) return AT_OK;  // refused where it is emitted
  if (c->nested == MOST_NESTED) {
    n->unknown = true;  // likewise
    return AT_OK;
  }
  void **at = at_map_put_ptr(&c->functions, b);
  if (!at) return AT_NO_MEMORY("a kernel's functions");
  need *inner = *at;
  if (!inner) {
    AT_TRY_ALLOC(inner, at_new(c->a, need, 1));
    *inner = (need){.open = true};
    *at = inner;
    c->nested++;
    AT_TRY(count_block(c, b, inner));
    c->nested--;
    inner->open = false;
  }
  n->unknown |= inner->open;
  add_inner(n, inner, true);
  return AT_OK;
}

// A region of a loop that leaves allocations grows with every turn; branches
// count both sides.
static at_status add_regions(counter *c, const at_mop *op,
                             at_mosaic_opcode code, need *n) {
  bool once = code == AT_MOSAIC_TPU_TRACE || code == AT_MOSAIC_SCF_IF;
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++) {
      need inner = {0};
      AT_TRY(count_block(c, op->regions[r]->blocks[k], &inner));
      bool grows = inner.left.bytes || inner.left.sems;
      if (code != AT_MOSAIC_TPU_REGION && !once) n->unknown |= grows;
      add_inner(n, &inner, code != AT_MOSAIC_TPU_REGION);
    }
  return AT_OK;
}

// Recursion follows regions and, once each, functions.
static at_status count_block(counter *c, const at_mblock *b, need *n) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    at_mosaic_opcode code = at_mosaic_opcode_of(op);
    if (code == AT_MOSAIC_MEMREF_ALLOCA || code == AT_MOSAIC_TPU_SEM_ALLOC)
      AT_TRY(add_allocation(op, n));
    else if (code == AT_MOSAIC_FUNC_CALL)
      AT_TRY(add_call(c, op, n));
    else
      AT_TRY(add_regions(c, op, code, n));
  }
  return AT_OK;
}

// -1 for both numbers where anything is unknown.
at_status at_mosaic_stack_of(const at_mosaic_kernel *k,
                             const at_mosaic_program *p, at_arena *a,
                             at_mosaic_stack *out) {
  counter c = {.k = k, .a = a, .functions = at_map_in(a)};
  need n = {0};
  AT_TRY(count_block(&c, p->body, &n));
  *out = n.most;
  if (n.unknown) *out = (at_mosaic_stack){-1, -1};
  return AT_OK;
}
