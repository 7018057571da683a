// Locations that come beside a kernel instead of in it (JAX 0.12): a module
// whose attribute tpu.locs lists them in the order of a walk, an operation
// first, then of each of its blocks the arguments and the operations.
#include "mosaic/mosaic_internal.h"

typedef struct places {
  const at_mattr *list;
  uint32_t next;
  bool put;  // false: only counts
} places;

// The next place of the list, in the order of the walk; counts alone where
// nothing is put.
static void put(places *p, const at_mloc **at) {
  if (p->put && p->list->elems[p->next]->loc)
    *at = p->list->elems[p->next]->loc;
  p->next++;
}

// Preorder: the operation, then arguments and operations of each block.
static void put_all(places *p, at_mop *op) {
  put(p, &op->loc);
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t i = 0; i < op->regions[r]->num_blocks; i++) {
      at_mblock *b = op->regions[r]->blocks[i];
      for (uint32_t n = 0; n < b->num_args; n++) put(p, &b->args[n].loc);
      for (uint32_t n = 0; n < b->num_ops; n++) put_all(p, b->ops[n]);
    }
}

// Counts first, so that a list of another length changes nothing.
at_status at_mosaic_put_locations(at_mosaic_kernel *k) {
  at_mmodule *m;
  if (!k->config.locations.len) return AT_OK;
  at_status s = at_mlir_read(k->config.locations, false, k->arena, &m);
  if (!at_ok(s))
    return at_status_prefix(s, "custom_call_config.debug_locations");
  places p = {.list = at_mop_attr(m->op, "tpu.locs")};
  if (!p.list || p.list->kind != AT_MATTR_ARRAY)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "custom_call_config.debug_locations: no list tpu.locs");
  put_all(&p, k->module->op);
  if (p.next != p.list->num_elems)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "custom_call_config.debug_locations: %u locations for %u "
                   "operations and arguments",
                   p.list->num_elems, p.next);
  p.next = 0;
  p.put = true;
  put_all(&p, k->module->op);
  return AT_OK;
}
