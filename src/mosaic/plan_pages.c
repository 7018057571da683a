// Scratch that only copies write and only loads read, as pages of attention
// have it. What comes there from an operand that nobody writes need not be
// copied: a product reads it where it is (device/core_pages.c), any other load
// has it copied first.
#include "mosaic/plan_internal.h"

typedef struct search {
  at_map args;  // at_mvalue * -> 1 + the argument that it is a view of
  bool *pages;  // per argument
  bool failed;
} search;

// Operations whose result lies in their operand's memory.
static bool is_view(at_mosaic_opcode c) {
  return c == AT_MOSAIC_TPU_MEMREF_SLICE || c == AT_MOSAIC_TPU_MEMREF_SQUEEZE ||
         c == AT_MOSAIC_TPU_ERASE_MEMREF_LAYOUT;
}

// May operand i of op be such memory?
static bool may_use(const at_mop *op, uint32_t i) {
  uint32_t to;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_TPU_ENQUEUE_DMA:
      return at_mosaic_op_segment(op, 2, &to) == 1 && to == i;
    case AT_MOSAIC_TPU_WAIT_DMA:
    case AT_MOSAIC_TPU_WAIT_DMA2:
      return true;
    default:
      return at_mosaic_is_plain_load(op);
  }
}

// Follows views of scratch; any use that is not a copy into it, a wait or a
// load disqualifies the argument.
static void scan(search *s, const at_mblock *b) {
  for (uint32_t k = 0; k < b->num_ops; k++) {
    const at_mop *op = b->ops[k];
    for (uint32_t i = 0; i < op->num_operands; i++) {
      void **arg = at_map_find_ptr(&s->args, op->operands[i]);
      if (!arg) continue;
      void *index = *arg;
      if (is_view(at_mosaic_opcode_of(op)) && op->num_results == 1) {
        void **view = at_map_put_ptr(&s->args, &op->results[0]);
        if (view)
          *view = index;
        else
          s->failed = true;
      } else if (!may_use(op, i)) {
        s->pages[(intptr_t)index - 1] = false;
      }
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t i = 0; i < op->regions[r]->num_blocks; i++)
        scan(s, op->regions[r]->blocks[i]);
  }
}

// May it be left by accesses that nobody checks?
static bool is_open(const at_mplan_build *b) {
  return b->in->kernel->config.disable_bounds_checks;
}

// Candidates: scratch in VMEM of kernels with bounds checks.
static void find_pages(at_mplan_build *b) {
  const at_mblock *body = b->in->body;
  search s = {.args = at_map_in(b->a)};
  s.pages = at_new(b->a, bool, body->num_args + 1);
  for (uint32_t i = at_mosaic_arg_scratch(b->in->program);
       s.pages && i < body->num_args; i++) {
    at_mosaic_ref t;
    at_status st = at_mosaic_ref_of(body->args[i].type, &t);
    bool fits = at_ok(st) && t.space == AT_MSPACE_VMEM &&
                t.semaphore == AT_MSEM_NONE && !is_open(b);
    at_status_free(st);
    if (!fits) continue;
    void **arg = at_map_put_ptr(&s.args, &body->args[i]);
    s.failed |= !arg;
    if (arg) *arg = (void *)(intptr_t)(i + 1);
    s.pages[i] = true;
  }
  if (s.pages) scan(&s, body);
  b->failed |= !s.pages || s.failed;
  for (uint32_t i = 0; !b->failed && i < body->num_args; i++)
    if (s.pages[i]) at_mplan_fact_of(b, &body->args[i])->out.pages = true;
}

// Is what this operation loads only used as the second operand of a product,
// perhaps in another form?
static bool feeds_product(at_mplan_build *b, const at_mop *load) {
  const at_mplan_fact *f = at_mplan_fact_of(b, &load->results[0]);
  if (f->out.uses != 1 || f->many || !f->sink ||
      at_mosaic_opcode_of(f->sink) != AT_MOSAIC_TPU_MATMUL)
    return false;
  const at_mop *op = f->sink->operands[1]->op;
  while (op && op != load) {
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    bool form = c == AT_MOSAIC_ARITH_TRUNCF || c == AT_MOSAIC_TPU_TRUNCF ||
                c == AT_MOSAIC_VECTOR_SHAPE_CAST || c == AT_MOSAIC_TPU_RESHAPE;
    if (!form || at_mplan_fact_of(b, &op->results[0])->out.uses != 1)
      return false;
    op = op->operands[0]->op;
  }
  return op == load;
}

// Such loads need not be fetched: the product reads where the copy would read.
static void find_feeding(at_mplan_build *b, const at_mblock *block) {
  for (uint32_t i = 0; i < block->num_ops; i++) {
    const at_mop *op = block->ops[i];
    if (at_mosaic_is_plain_load(op) && feeds_product(b, op))
      at_mplan_fact_of(b, &op->results[0])->out.feeds_product = true;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        find_feeding(b, op->regions[r]->blocks[k]);
  }
}

// Not where accesses are checked: every copy must be made then.
void at_mplan_pages(at_mplan_build *b) {
  if (b->in->options->check || b->in->body != b->in->program->body) return;
  find_pages(b);
  for (size_t i = 0; i < b->plan->blocks.len; i++)
    find_feeding(b, b->plan->blocks.ptr[i]);
}
