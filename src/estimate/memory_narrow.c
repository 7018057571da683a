// Which values a TPU stores as bf16.
//
// Products at default precision round f32 operands: what only they read is
// rounded when it is written, also on its way through loops. A value is wide if
// any reader needs all of it, or hands it on to a value that is wide; so what
// readers say is passed back, from wide values to what they are made of, until
// nothing changes. Each value is marked once.
#include "cost/tpu.h"
#include "estimate/memory_internal.h"

// Does n round operands to bf16?
static bool rounds(const at_node *n) {
  if (n->op != AT_OP_DOT_GENERAL && n->op != AT_OP_CONVOLUTION) return false;
  at_dims p = at_node_ints(n, AT_ATTR_PRECISION);
  bool lowest = !at_tpu_is_sum_of_products(n);
  for (uint32_t i = 0; i < p.rank; i++) lowest &= !p.ptr[i];
  return lowest;
}

// Is operand `o` of n as narrow as what n makes of it?
static bool hands_on(const at_node *n, uint32_t o) {
  switch (n->op) {
    case AT_OP_WHILE:
    case AT_OP_OPTIMIZATION_BARRIER:
      return true;
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return o <= 1;
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_RESHAPE:
    case AT_OP_TRANSPOSE:
    case AT_OP_SLICE:
    case AT_OP_BROADCAST_IN_DIM:
      return o == 0;
    default:
      return false;
  }
}

static bool is_loop(const at_node *n) { return n && n->op == AT_OP_WHILE; }

// Marks v once; what hands it on follows.
static at_status set_wide(uses *u, at_value v) {
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&u->wide, at_est_key(v)));
  if (*place) return AT_OK;
  *place = v.node;
  return at_vec_push(u->arena, &u->open, v) ? AT_OK : AT_NO_MEMORY("uses");
}

// Something reads v; wide: and needs all of it.
static at_status note(uses *u, at_value v, bool wide) {
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&u->read, at_est_key(v)));
  *place = v.node;
  return wide ? set_wide(u, v) : AT_OK;
}

// Of c and of the computations inside.
static at_status note_readers(uses *u, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t o = 0; o < n->num_operands; o++)
      AT_TRY(note(u, n->operands[o], !rounds(n) && !hands_on(n, o)));
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(note_readers(u, n->regions[r]));
  }
  // The next turn reads what a body returns, as the loop's result is read.
  bool body = is_loop(c->owner) && c == c->owner->regions[1];
  for (uint32_t r = 0; r < c->num_results; r++)
    AT_TRY(note(u, c->results[r], !body));
  return AT_OK;
}

// State `i` of a loop is wide inside or behind it: so is what it starts from,
// and what a turn leaves.
static at_status widen_state(uses *u, const at_node *loop, uint32_t i) {
  AT_ASSERT(i < loop->num_operands && i < loop->regions[1]->num_results);
  AT_TRY(set_wide(u, loop->operands[i]));
  return set_wide(u, loop->regions[1]->results[i]);
}

// v is wide: so is what it hands on.
static at_status widen(uses *u, at_value v) {
  const at_node *n = v.node, *loop = n->parent->owner;
  if (is_loop(n)) return widen_state(u, n, v.index);
  if (n->op == AT_OP_OPTIMIZATION_BARRIER)
    return set_wide(u, n->operands[v.index]);
  for (uint32_t i = 0;
       is_loop(loop) && n->op == AT_OP_PARAMETER && i < n->parent->num_params;
       i++)
    if (n->parent->params[i] == n) return widen_state(u, loop, i);
  for (uint32_t o = 0; o < n->num_operands; o++)
    if (hands_on(n, o)) AT_TRY(set_wide(u, n->operands[o]));
  return AT_OK;
}

at_status at_est_note_uses(uses *u, const at_comp *c) {
  AT_TRY(note_readers(u, c));
  while (u->open.len) AT_TRY(widen(u, u->open.ptr[--u->open.len]));
  return AT_OK;
}

bool at_est_only_products(const uses *u, at_value v) {
  return !at_map_find_ptr(&u->wide, at_est_key(v));
}
