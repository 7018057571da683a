// Loops on a TPU: weights that only products read are converted to bf16 before
// the loop, and state stays in VMEM from turn to turn where it fits.
#include <math.h>

#include "estimate/walk.h"

// Does a region of n read it, at any depth?
static bool inside_reads(const at_node *n, const at_node *from) {
  for (uint32_t r = 0; r < n->num_regions; r++) {
    const at_comp *c = n->regions[r];
    AT_FOR_NODES(inner, c) {
      for (uint32_t o = 0; o < inner->num_operands; o++)
        if (inner->operands[o].node == from) return true;
      if (inside_reads(inner, from)) return true;
    }
    for (uint32_t o = 0; o < c->num_results; o++)
      if (c->results[o].node == from) return true;
  }
  return false;
}

// A product that rounds its operands to bf16 and runs on the matrix unit.
static bool is_product(const at_node *n) {
  return (n->op == AT_OP_DOT_GENERAL || n->op == AT_OP_CONVOLUTION) &&
         at_est_products(n) == 1 && !at_tpu_is_sum_of_products(n);
}

// Is `from` read by products in bf16 alone, as it is or in slices?
static bool feeds_products(const at_comp *c, const at_node *from) {
  bool read = false;
  AT_FOR_NODES(n, c) {
    if (inside_reads(n, from)) return false;
    if (at_est_is_renaming(n)) continue;
    for (uint32_t o = 0; o < n->num_operands; o++) {
      if (at_est_behind(n->operands[o]).node != from) continue;
      read = true;
      bool slice = n->op == AT_OP_DYNAMIC_SLICE && o == 0;
      if (slice ? !feeds_products(c, n) : !is_product(n)) return false;
    }
  }
  for (uint32_t i = 0; read && i < c->num_results; i++)
    if (from->op != AT_OP_PARAMETER &&
        at_est_behind(c->results[i]).node == from)
      return false;
  return read;
}

// Is state i the same after a turn?
static bool is_kept(const at_comp *body, uint32_t i) {
  return at_est_behind(body->results[i]).node == body->params[i];
}

// What a loop's turns read and none of them writes: state that is passed on,
// and values of the computations around it.
static bool is_invariant(const at_comp *body, const at_node *n) {
  if (n->parent != body) return n->op != AT_OP_CONSTANT;
  for (uint32_t i = 0; i < body->num_results && i < body->num_params; i++)
    if (body->params[i] == n) return is_kept(body, i);
  return false;
}

// Is v, an f32 matrix that no turn changes, converted to bf16 before the loop?
static bool is_converted(const at_comp *body, at_value v) {
  const at_type *t = at_value_type(v);
  return t->dtype == AT_F32 && t->rank >= 2 && is_invariant(body, v.node) &&
         v.node->num_results == 1 && feeds_products(body, v.node);
}

// One kernel, which reads f32 from HBM and writes bf16.
static at_status convert(at_est_walk *w, at_est_item *it, at_value v, bool vmem,
                         double count, uint32_t level) {
  double bytes = at_est_tiled(v), tiles = bytes / at_tpu_tile_bytes(AT_F32);
  at_tpu_kernel k = {.kind = AT_TPU_LOOP,
                     .operand_bytes = 4,
                     .repeat = 1,
                     .ops = 1,
                     .tiles = tiles,
                     .narrow_tiles = tiles,
                     .in_tiles = tiles,
                     .out_tiles = tiles,
                     .hbm_out_narrow = vmem ? 0 : tiles,
                     .vmem_out_narrow = vmem ? tiles : 0,
                     .hbm_in = bytes,
                     .hbm_out = vmem ? 0 : bytes / 2};
  at_tpu_kernel_grid(&k, &w->chip, false);
  return at_est_push_kernel(w, &k, "convert", at_value_type(v), it->group,
                            count, level, it);
}

// See walk.h. Converted weights go to VMEM while they fit, and are noted in
// walk.narrow.
at_status at_est_enter_loop(at_est_walk *w, at_est_item *it,
                            const at_est_residency *r, double count,
                            uint32_t level) {
  const at_comp *body = it->group->root->regions[1];
  double used = r->used;
  AT_FOR_NODES(n, body) {
    at_value v = {0};
    if (n->op == AT_OP_DYNAMIC_SLICE) v = at_est_behind(n->operands[0]);
    if (!v.node || at_map_find_ptr(&w->narrow, at_est_key(v)) ||
        !is_converted(body, v))
      continue;
    double bytes = at_est_tiled(v) / 2;
    bool vmem = w->chip.cores < 2 && bytes <= r->capacity - used;
    if (vmem) used += bytes;
    void **place;
    AT_TRY_ALLOC(place, at_map_put_ptr(&w->narrow, at_est_key(v)));
    *place = (void *)(uintptr_t)(vmem ? AT_EST_IN_VMEM : AT_EST_IN_HBM);
    AT_TRY(convert(w, it, v, vmem, count, level));
  }
  return AT_OK;
}

// Does state i stay in VMEM? It must change, must not be updated in place, and
// may take half of VMEM with what is there.
static bool stays(const at_est_residency *r, uint32_t i) {
  const at_comp *body = r->comp;
  at_value v = {body->params[i], 0};
  if (is_kept(body, i) || r->w->chip.cores > 1) return false;
  if (at_est_updates(at_est_behind(body->results[i]).node)) return false;
  return at_est_tiled(v) <= r->capacity / 2 - r->used;
}

static bool is_body(const at_comp *c) {
  return c->owner && c->owner->op == AT_OP_WHILE && c == c->owner->regions[1];
}

// What was converted before this loop.
static void find_narrow(at_est_residency *r, at_est_read *read) {
  at_value v = read->value;
  void **place = at_map_find_ptr(&r->w->narrow, at_est_key(v));
  read->narrow = place && is_invariant(r->comp, v.node);
  if (!read->narrow || (uintptr_t)*place != AT_EST_IN_VMEM) return;
  if (at_est_keep(r, v)) r->used += at_est_tiled(v) / 2;
}

// State that stays, and weights that were converted.
void at_est_start_turn(at_est_residency *r, const at_est_groups *groups) {
  const at_comp *c = r->comp;
  if (!r->w->is_tpu || !is_body(c)) return;
  for (uint32_t i = 0; i < c->num_params && i < c->num_results; i++) {
    at_value v = {c->params[i], 0};
    if (stays(r, i) && at_est_keep(r, v)) r->used += at_est_tiled(v);
  }
  for (uint32_t g = 0; g < groups->count; g++)
    for (size_t i = 0; i < groups->list[g]->reads.len; i++)
      find_narrow(r, &groups->list[g]->reads.ptr[i]);
}

// A product with windows in HBM cannot write the state that it still reads.
at_status at_est_copy_state(at_est_walk *w, at_est_group *g,
                            const at_est_residency *r, double count,
                            uint32_t level, at_est_item *it) {
  const at_comp *c = r->comp;
  if (!g->product || !is_body(c) || g->kernel.hbm_in + g->kernel.hbm_out == 0)
    return AT_OK;
  for (uint32_t i = 0; i < c->num_results && i < c->num_params; i++) {
    bool writes = false, reads = false;
    if (at_est_updates(at_est_behind(c->results[i]).node)) continue;
    for (size_t x = 0; x < g->writes.len; x++)
      writes |= at_value_eq(g->writes.ptr[x], at_est_behind(c->results[i]));
    for (size_t x = 0; x < g->reads.len; x++)
      reads |= g->reads.ptr[x].value.node == c->params[i];
    if (writes && reads)
      AT_TRY(at_est_push_state(w, (at_value){c->params[i], 0},
                               w->chip.cores < 2, g, count, level, it));
  }
  return AT_OK;
}
