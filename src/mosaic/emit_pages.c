// Scratch that only copies write and only loads read, as pages of attention
// have it. What comes there from an operand that nobody writes need not be
// copied: a product reads it where it is (device/core_pages.c), any other load
// has it copied first.
#include "mosaic/emit.h"

typedef struct search {
  at_map args;  // at_mvalue * -> 1 + the argument that it is a view of
  bool *pages;  // per argument
} search;

static bool is_view(at_mosaic_opcode c) {
  return c == AT_MOSAIC_TPU_MEMREF_SLICE || c == AT_MOSAIC_TPU_MEMREF_SQUEEZE ||
         c == AT_MOSAIC_TPU_ERASE_MEMREF_LAYOUT;
}

// May operand i of op be such memory?
static bool may_use(const at_mop *op, uint32_t i) {
  uint32_t to;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_TPU_ENQUEUE_DMA:
      return at_me_segment(op, 2, &to) == 1 && to == i;
    case AT_MOSAIC_TPU_WAIT_DMA:
    case AT_MOSAIC_TPU_WAIT_DMA2:
      return true;
    default:
      return at_me_plain_load(op);
  }
}

static at_status scan(search *s, const at_mblock *b) {
  for (uint32_t k = 0; k < b->num_ops; k++) {
    const at_mop *op = b->ops[k];
    for (uint32_t i = 0; i < op->num_operands; i++) {
      void **arg = at_map_find_ptr(&s->args, op->operands[i]);
      if (!arg) continue;
      void *index = *arg;
      if (is_view(at_mosaic_opcode_of(op)) && op->num_results == 1) {
        void **view = at_map_put_ptr(&s->args, &op->results[0]);
        if (!view) return AT_NO_MEMORY("pages");
        *view = index;
      } else if (!may_use(op, i)) {
        s->pages[(intptr_t)index - 1] = false;
      }
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t i = 0; i < op->regions[r]->num_blocks; i++)
        AT_TRY(scan(s, op->regions[r]->blocks[i]));
  }
  return AT_OK;
}

at_status at_me_find_pages(at_me *m, const at_mblock *body) {
  search s = {.args = at_map_in(m->a)};
  if (m->o->check) return AT_OK;
  AT_TRY_ALLOC(s.pages, at_new(m->a, bool, body->num_args + 1));
  for (uint32_t i = at_mosaic_arg_scratch(m->p); i < body->num_args; i++) {
    const at_me_ref *r = at_me_memory(m, &body->args[i]);
    if (!r || r->space != AT_MSPACE_VMEM || r->dtype == AT_INVALID ||
        at_me_is_open(m, r))
      continue;
    void **arg = at_map_put_ptr(&s.args, &body->args[i]);
    if (!arg) return AT_NO_MEMORY("pages");
    *arg = (void *)(intptr_t)(i + 1);
    s.pages[i] = true;
  }
  AT_TRY(scan(&s, body));
  for (uint32_t i = 0; i < body->num_args; i++)
    if (s.pages[i]) at_me_memory(m, &body->args[i])->pages = true;
  return AT_OK;
}

// Is what this operation loads only used as the second operand of a product,
// perhaps in another form?
bool at_me_feeds_product(at_me *m, const at_mop *load) {
  const at_me_slot *s = at_me_slot_of(m, &load->results[0]);
  if (s->uses != 1 || s->many || !s->sink ||
      at_mosaic_opcode_of(s->sink) != AT_MOSAIC_TPU_MATMUL)
    return false;
  const at_mop *op = s->sink->operands[1]->op;
  while (op && op != load) {
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    bool form = c == AT_MOSAIC_ARITH_TRUNCF || c == AT_MOSAIC_TPU_TRUNCF ||
                c == AT_MOSAIC_VECTOR_SHAPE_CAST || c == AT_MOSAIC_TPU_RESHAPE;
    if (!form || at_me_slot_of(m, &op->results[0])->uses != 1) return false;
    op = op->operands[0]->op;
  }
  return op == load;
}

void at_me_pages_fetch(at_me *m, const at_me_ref *r) {
  if (m->share) return;  // done before the loop
  at_me_num bytes = {r->bytes, NULL};
  for (uint32_t d = 0; d < r->rank; d++) {
    at_me_num last = at_me_add(m, r->size[d], (at_me_num){-1, NULL});
    last = at_me_mul(m, last, (at_me_num){r->bytes, NULL});
    bytes = at_me_add(m, bytes, at_me_mul(m, last, r->stride[d]));
  }
  LLVMValueRef args[3] = {m->core, r->base, at_me_num_value(m, bytes)};
  at_b_call(m->e, "at_core_pages_fetch", NULL, args, 3);
}
