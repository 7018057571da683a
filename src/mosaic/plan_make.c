// The passes over a body, and what they leave.
#include "mosaic/plan.h"

#include "base/verify.h"
#include "mosaic/plan_internal.h"

static const struct {
  const char *name;
  void (*run)(at_mplan_build *b);
} passes[] = {
    {"uses", at_mplan_uses},
    {"costs", at_mplan_costs},
    {"sinks", at_mplan_sinks},
    // Sinks that are not the same do not share a value's cost.
    {"costs", at_mplan_costs},
    {"sinks", at_mplan_sinks},
    {"choices", at_mplan_choices},
    {"memory", at_mplan_memory},
    {"pages", at_mplan_pages},
    {"sums", at_mplan_sums},
    {"rows", at_mplan_rows},
};

// Roots from 63 on share a bit.
uint64_t at_mplan_root_bit(uint32_t root) {
  if (root == AT_MPLAN_ANY_ROOT) return ~0ull;
  return 1ull << AT_MIN(root, 63u);
}

// ---- facts under construction
at_mplan_fact *at_mplan_fact_of(at_mplan_build *b, const at_mvalue *v) {
  static _Thread_local at_mplan_fact spare;
  void **p = at_map_put_ptr(&b->plan->values, v);
  if (p && !*p) *p = at_new(b->a, at_mplan_fact, 1);
  if (p && *p) return *p;
  b->failed = true;
  spare = (at_mplan_fact){0};
  return &spare;
}

// As at_mplan_fact_of: made on first use.
at_mplan_op *at_mplan_facts_of_op(at_mplan_build *b, const at_mop *op) {
  static _Thread_local at_mplan_op spare;
  void **p = at_map_put_ptr(&b->plan->ops, op);
  if (p && !*p) *p = at_new(b->a, at_mplan_op, 1);
  if (p && *p) return *p;
  b->failed = true;
  spare = (at_mplan_op){0};
  return &spare;
}

// ---- the plan as it is read
// Values that no pass has touched have zeros: not used, not kept, root 0.
const at_mplan_value *at_mplan_value_of(const at_mplan *p, const at_mvalue *v) {
  static const at_mplan_fact none;
  void **x = at_map_find_ptr(&p->values, v);
  return x ? &((const at_mplan_fact *)*x)->out : &none.out;
}

const at_mplan_op *at_mplan_op_of(const at_mplan *p, const at_mop *op) {
  static const at_mplan_op none;
  void **x = at_map_find_ptr(&p->ops, op);
  return x ? *x : &none;
}

bool at_mplan_finishes(const at_mplan *p, const at_mblock *b) {
  return at_map_find_ptr(&p->finishes, b) != NULL;
}

// ---- making one
static at_status add_block(at_mplan_build *b, const at_mblock *block) {
  if (!at_vec_push(b->a, &b->plan->blocks, block))
    return AT_NO_MEMORY("functions of a kernel");
  return AT_OK;
}

// Functions that the block calls.
static at_status find_calls(at_mplan_build *b, at_map *seen,
                            const at_mblock *block) {
  for (uint32_t i = 0; i < block->num_ops; i++) {
    const at_mop *op = block->ops[i];
    const at_mblock *callee = at_mosaic_opcode_of(op) == AT_MOSAIC_FUNC_CALL
                                  ? at_mosaic_callee(b->in->kernel, op)
                                  : NULL;
    if (callee) {
      void **n;
      AT_TRY_ALLOC(n, at_map_put_ptr(seen, callee));
      if (!*n) AT_TRY(add_block(b, callee));
      *n = b;
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        AT_TRY(find_calls(b, seen, op->regions[r]->blocks[k]));
  }
  return AT_OK;
}

// `blocks` grows while it is searched: functions that functions call are found
// too.
at_status at_mplan_make(const at_mplan_input *in, at_arena *a,
                        const at_mplan **out) {
  at_mplan *p;
  AT_TRY_ALLOC(p, at_new(a, at_mplan, 1));
  AT_TRY_ALLOC(p->in,
               at_arena_copy(a, in, sizeof *in, _Alignof(at_mplan_input)));
  p->values = at_map_in(a);
  p->ops = at_map_in(a);
  p->finishes = at_map_in(a);
  at_mplan_build b = {.plan = p, .in = p->in, .a = a, .walk = at_walk_in(a)};
  at_map seen = at_map_in(a);
  AT_TRY(add_block(&b, in->body));
  for (size_t i = 0; i < p->blocks.len; i++)
    AT_TRY(find_calls(&b, &seen, p->blocks.ptr[i]));
  for (size_t i = 0; i < AT_LEN(passes); i++) {
    passes[i].run(&b);
    if (b.failed || b.walk.failed) return AT_NO_MEMORY("the plan of a kernel");
  }
  AT_VERIFY(at_mplan_holds(p, a));
  *out = p;
  return AT_OK;
}
