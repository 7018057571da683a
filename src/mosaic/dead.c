// `ref[...] = v` arrives as a load of the old value, which nobody uses, and a
// store: a swap. Such loads would read memory that was never written, so they
// go before anything looks at the program.
#include "mosaic/mosaic_internal.h"

static at_status count_uses(at_map *uses, const at_mop *op);

// Uses of all values in the block, regions included.
static at_status count_block(at_map *uses, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) AT_TRY(count_uses(uses, b->ops[i]));
  return AT_OK;
}

// Loads that a store may follow; each has one result.
static bool is_load(const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
    case AT_MOSAIC_TPU_STRIDED_LOAD:
    case AT_MOSAIC_MEMREF_LOAD:
      return op->num_results == 1;
    default:
      return false;
  }
}

// Only loads and what may be computed from them alone (a form of the old
// value) can be dead here, so only their results are counted.
static bool is_pure(const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
    case AT_MOSAIC_VECTOR_EXTRACT:
    case AT_MOSAIC_ARITH_EXTF:
    case AT_MOSAIC_ARITH_TRUNCF:
    case AT_MOSAIC_ARITH_TRUNCI:
    case AT_MOSAIC_ARITH_CMPI:
      return op->num_results == 1;
    default:
      return is_load(op);
  }
}

// A value's uses, in the map, by operations anywhere in the module.
static at_status count_uses(at_map *uses, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mvalue *v = op->operands[i];
    if (!v->op || !is_pure(v->op)) continue;
    void **n;
    AT_TRY_ALLOC(n, at_map_put_ptr(uses, v));
    *n = (void *)((uintptr_t)*n + 1);
  }
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t i = 0; i < op->regions[r]->num_blocks; i++)
      AT_TRY(count_block(uses, op->regions[r]->blocks[i]));
  return AT_OK;
}

// Removes operations without uses from the block and from those inside it, and
// takes the uses away that they had. True: something went.
static bool drop_block(at_map *uses, at_mblock *b) {
  bool dropped = false;
  at_mop **ops = (at_mop **)b->ops;
  // Backwards: what computes from a load goes before the load itself.
  for (uint32_t i = b->num_ops; i-- > 0;) {
    at_mop *op = ops[i];
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t n = 0; n < op->regions[r]->num_blocks; n++)
        dropped |= drop_block(uses, op->regions[r]->blocks[n]);
    if (!is_pure(op)) continue;
    void **n = at_map_find_ptr(uses, op->results);
    if (n && *n) continue;
    for (uint32_t k = 0; k < op->num_operands; k++) {
      void **u = at_map_find_ptr(uses, op->operands[k]);
      if (u && *u) *u = (void *)((uintptr_t)*u - 1);
    }
    ops[i] = NULL;
    dropped = true;
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < b->num_ops; i++)
    if (ops[i]) ops[kept++] = ops[i];
  b->num_ops = kept;
  return dropped;
}

// Uses are counted once over the whole module; each removal updates them, so
// that chains from a load to its forms go in one round.
at_status at_mosaic_drop_dead_loads(at_mosaic_kernel *k) {
  const at_mop *m = k->module->op;
  at_map uses = at_map_in(k->arena);
  AT_TRY(count_uses(&uses, m));
  for (uint32_t r = 0; r < m->num_regions; r++)
    for (uint32_t i = 0; i < m->regions[r]->num_blocks; i++)
      // One round is enough but for input that uses values before they are
      // defined; the verifier refuses what a few rounds leave of that.
      for (int round = 0; round < 16; round++)
        if (!drop_block(&uses, m->regions[r]->blocks[i])) break;
  return AT_OK;
}
