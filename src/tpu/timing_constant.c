// Numbers that a kernel reads of operands that are constants: which blocks a
// mask leaves out, and where the next one is.
#include "tpu/timing_internal.h"

// Which prefetched array the ref is; -1: none.
int64_t at_ms_prefetched(const at_mosaic_program *p, const at_mvalue *ref) {
  const at_mblock *b = ref->block;
  uint32_t first = at_mosaic_arg_prefetch(p);
  for (uint32_t i = 0; b && i < p->num_prefetch && first + i < b->num_args; i++)
    if (ref == &b->args[first + i]) return i;
  return -1;
}

// NULL: no prefetched operand, or its contents are not known.
static const at_literal *contents(const at_mosaic_program *p,
                                  const at_mosaic_given *given,
                                  const at_mvalue *ref) {
  int64_t i = given ? at_ms_prefetched(p, ref) : -1;
  if (i < 0 || p->num_dynamic + i >= given->num_constants) return NULL;
  return given->constants[p->num_dynamic + i];
}

// The element at known indices; false out of range.
bool at_ms_constant(at_ms_values *v, const at_mop *op, int64_t *out) {
  const at_mvalue *ref = op->operands[0];
  const at_literal *l = contents(v->program, v->given, ref);
  at_dims shape = ref->type->shape;
  int64_t at = 0, n = 1;
  if (!l || op->num_operands != 1 + shape.rank) return false;
  for (uint32_t d = 0; d < shape.rank; d++) {
    int64_t i;
    if (!at_ms_value(v, op->operands[1 + d], &i)) return false;
    if (i < 0 || i >= shape.ptr[d]) return false;
    at = at * shape.ptr[d] + i;
    n *= shape.ptr[d];
  }
  if (n != at_type_elements(&l->type)) return false;
  *out = at_literal_int(l, at);
  return true;
}

// ---- On which grid ids it depends

typedef struct reach {
  const at_mosaic_program *p;
  const at_mosaic_given *given;
  at_map of;  // at_mvalue * -> bits of the ids that it depends on
  uint32_t found;
} reach;

// Bits of the grid ids; 0 for a value that depends on none, or was not seen.
static uint32_t ids_of(const reach *r, const at_mvalue *x) {
  void **at = at_map_find_ptr(&r->of, x);
  return at ? (uint32_t)(uintptr_t)*at : 0;
}

// Replaces what was noted: a block may be looked at again with other arguments.
static at_status set_ids(reach *r, const at_mvalue *x, uint32_t ids) {
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&r->of, x));
  *at = (void *)(uintptr_t)ids;
  return AT_OK;
}

// Data flow only: what an operation makes depends on the ids of its operands,
// regions on those of the operation.
static at_status look(reach *r, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    uint32_t ids = 0;
    for (uint32_t o = 0; o < op->num_operands; o++)
      ids |= ids_of(r, op->operands[o]);
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_MEMREF_LOAD &&
        contents(r->p, r->given, op->operands[0]))
      r->found |= ids;
    for (uint32_t o = 0; o < op->num_results; o++)
      AT_TRY(set_ids(r, &op->results[o], ids));
    for (uint32_t g = 0; g < op->num_regions; g++)
      for (uint32_t k = 0; k < op->regions[g]->num_blocks; k++) {
        const at_mblock *inner = op->regions[g]->blocks[k];
        for (uint32_t x = 0; x < inner->num_args; x++)
          AT_TRY(set_ids(r, &inner->args[x], ids));
        AT_TRY(look(r, inner));
      }
  }
  return AT_OK;
}

// Loads of constants whose place depends on an id make steps differ along it.
at_status at_ms_constant_ids(const at_mosaic_program *p,
                             const at_mosaic_given *given, at_arena *a,
                             uint32_t *out) {
  reach r = {.p = p, .given = given, .of = at_map_in(a)};
  *out = 0;
  if (!given || !given->num_constants) return AT_OK;
  for (uint32_t d = 0; d < p->grid_rank; d++)
    AT_TRY(set_ids(&r, &p->body->args[d], 1u << d));
  AT_TRY(look(&r, p->body));
  *out = r.found;
  return AT_OK;
}
