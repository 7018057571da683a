// Which values a TPU stores as bf16.
//
// Products at default precision round f32 operands: what only they read is
// rounded when it is written, also on its way through loops.
#include "cost/tpu.h"
#include "estimate/memory_internal.h"

// Adds to the uses of v.
static at_status note_use(uses *u, at_value v, use how) {
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&u->of, at_est_key(v)));
  if (!*place) AT_TRY_ALLOC(*place, at_new(u->arena, use_list, 1));
  use_list *list = *place;
  return at_vec_push(u->arena, list, how) ? AT_OK : AT_NO_MEMORY("uses");
}

// Of c and all computations inside.
at_status at_est_note_uses(uses *u, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t o = 0; o < n->num_operands; o++)
      AT_TRY(note_use(u, n->operands[o], (use){n, c, o}));
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(at_est_note_uses(u, n->regions[r]));
  }
  for (uint32_t r = 0; r < c->num_results; r++)
    AT_TRY(note_use(u, c->results[r], (use){NULL, c, r}));
  return AT_OK;
}

// Is this use a product that rounds, or does it hand v on to values that only
// those read? Loop state must be narrow inside and behind the loop.
static at_status use_is_narrow(uses *u, use how, bool *out) {
  const at_node *n = how.user;
  const at_node *loop = n ? n : how.of->owner;
  *out = false;
  if (!n && !(loop && loop->op == AT_OP_WHILE && how.of == loop->regions[1]))
    return AT_OK;
  switch (loop->op) {
    case AT_OP_DOT_GENERAL:
    case AT_OP_CONVOLUTION: {
      at_dims p = at_node_ints(n, AT_ATTR_PRECISION);
      *out = !at_tpu_is_sum_of_products(n);
      for (uint32_t i = 0; i < p.rank; i++) *out &= !p.ptr[i];
      return AT_OK;
    }
    case AT_OP_WHILE:
      AT_TRY(
          at_est_only_products(u, (at_value){(at_node *)loop, how.index}, out));
      for (uint32_t r = 0; r < 2 && *out; r++)
        AT_TRY(at_est_only_products(
            u, (at_value){loop->regions[r]->params[how.index], 0}, out));
      return AT_OK;
    case AT_OP_DYNAMIC_UPDATE_SLICE:
    case AT_OP_DYNAMIC_SLICE:
      if (how.index > (loop->op == AT_OP_DYNAMIC_UPDATE_SLICE)) return AT_OK;
      return at_est_only_products(u, (at_value){(at_node *)n, 0}, out);
    case AT_OP_RESHAPE:
    case AT_OP_TRANSPOSE:
    case AT_OP_SLICE:
    case AT_OP_BROADCAST_IN_DIM:
      return at_est_only_products(u, (at_value){(at_node *)n, 0}, out);
    default:
      return AT_OK;
  }
}

// What is being asked already counts as narrow: a value that goes round a loop
// depends on itself.
at_status at_est_only_products(uses *u, at_value v, bool *out) {
  void **place, **known;
  AT_TRY_ALLOC(place, at_map_put_ptr(&u->narrow, at_est_key(v)));
  *out = (uintptr_t)*place != WIDE;
  if (*place) return AT_OK;
  *place = (void *)(uintptr_t)ASKED;
  known = at_map_find_ptr(&u->of, at_est_key(v));
  const use_list *list = known ? *known : NULL;
  for (size_t i = 0; list && i < list->len && *out; i++)
    AT_TRY(use_is_narrow(u, list->ptr[i], out));
  AT_TRY_ALLOC(place, at_map_put_ptr(&u->narrow, at_est_key(v)));
  *place = (void *)(uintptr_t)(*out ? NARROW : WIDE);
  return AT_OK;
}
