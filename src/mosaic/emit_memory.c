// Loads and stores of vectors and numbers.
#include "mosaic/emit_memory.h"

// ---- loads
int32_t at_me_load_kind(at_me *m, const at_mop *op) {
  bool counts = at_mplan_value_of(m->plan, &op->results[0])->counts;
  return AT_CORE_LOAD | (counts ? 0 : AT_CORE_CHOSEN);
}

static void announce_load(at_me *m, const at_mop *op, const at_me_ref *box) {
  at_me_access(m, box, at_me_load_kind(m, op), at_me_loc(m, op));
}

// Loads of which v is made and that a choice might have dropped.
static void announce_taken(at_me *m, const at_mvalue *value) {
  at_walk_clear(at_me_walk(m));
  at_walk_add(at_me_walk(m), value, 0);
  for (at_walk_step s; at_walk_next(at_me_walk(m), &s);) {
    const at_mvalue *v = s.item;
    const at_mop *op = v->op;
    if (!op || !at_mosaic_is_vector(v) || at_mplan_value_of(m->plan, v)->counts)
      continue;
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    if (c == AT_MOSAIC_VECTOR_LOAD || c == AT_MOSAIC_TPU_VECTOR_LOAD ||
        c == AT_MOSAIC_TPU_STRIDED_LOAD) {
      const at_me_node *n = at_me_vector(m, v);
      if (n && n->kind == AT_ME_LOAD)
        at_me_access(m, n->ref, AT_CORE_LOAD, at_me_loc(m, op));
      continue;
    }
    if (!at_mosaic_computes(c) || c == AT_MOSAIC_ARITH_SELECT) continue;
    for (uint32_t i = 0; i < op->num_operands; i++)
      at_walk_add(at_me_walk(m), op->operands[i], 0);
  }
}

// With checks on, loads that were announced as "may be dropped" are announced
// again on the side that the select takes.
void at_me_announce_choice(at_me *m, const at_mop *op) {
  if (!m->o->check || m->window || at_mosaic_is_vector(op->operands[0]) ||
      !at_mplan_value_of(m->plan, &op->results[0])->counts)
    return;
  LLVMValueRef first = at_me_scalar(m, op->operands[0]);
  for (uint32_t i = 1; i < 3; i++) {
    at_branch f;
    at_if_begin(m->e, &f, i == 1 ? first : at_b_not(m->e, first));
    announce_taken(m, op->operands[i]);
    at_if_end(m->e, &f);
  }
}

// A load becomes a node that reads where it is used. Masked loads of
// SparseCores are computed here. Scratch with waiting copies is fetched unless
// only a product reads it.
at_status at_me_op_load(at_me *m, at_mop *op) {
  const at_me_ref *ref = at_me_memory(m, op->operands[0]);
  at_me_node *n = at_me_node_new(m, AT_ME_LOAD, op, op->results[0].type);
  if (!ref || !n) return AT_OK;
  if (n->dtype != ref->dtype && !(n->dtype == AT_PRED))
    return at_me_refuse(m, op, "a vector of other elements");
  at_me_beyond beyond;
  uint32_t at;
  bool packed = at_me_is_sparse(m) && at_mosaic_op_segment(op, 2, &at) == 1;
  at_me_node *mask = packed ? at_me_vector(m, op->operands[at]) : NULL;
  AT_TRY(
      at_me_vector_box(m, op, ref, 1, n, mask, at_me_node_ref(m, n), &beyond));
  if (packed)
    return mask ? at_me_load_expanded(m, op, n->ref, mask,
                                      at_me_load_kind(m, op))
                : AT_OK;
  if (n->ref->home->pages &&
      !at_mplan_value_of(m->plan, &op->results[0])->feeds_product) {
    at_me_pages_fetch(m, n->ref);
    at_me_rehome(m, at_me_node_ref(m, n))->pages = false;
  }
  announce_load(m, op, n->ref);
  at_me_node_reads(m, n, at_mplan_root_bit(ref->home->root));
  return at_me_set_node(m, &op->results[0], n);
}

// The one element at the indices `first`..
static at_status element(at_me *m, const at_mop *op, const at_me_ref *ref,
                         uint32_t first, at_me_ref *box, at_me_beyond *beyond,
                         const at_pos **p) {
  int64_t ones[AT_ME_RANK];
  for (uint32_t d = 0; d < ref->rank; d++) ones[d] = 1;
  AT_TRY(
      at_me_box_beyond(m, op, ref, first, ref->rank, ones, NULL, box, beyond));
  *p = at_pos_make(m->e, false, 0, NULL, NULL);
  return AT_OK;
}

// A number from SMEM that a choice may drop: the chip reads what lies beyond
// the array, and it may be anything.
static at_status chosen_element(at_me *m, const at_mop *op,
                                const at_me_ref *ref, at_me_ref *box) {
  at_me_beyond beyond = {.ref = *ref, .chosen = true};
  int64_t ones[AT_ME_RANK];
  for (uint32_t d = 0; d < ref->rank; d++) ones[d] = 1;
  AT_TRY(
      at_me_box_of(m, op, ref, 1, ref->rank, ones, NULL, NULL, box, &beyond));
  at_me_beyond_begin(m, op, &beyond, box);
  return AT_OK;
}

// Scalars are read at once. The bounds test is left out for a number from SMEM
// that only a select may use.
at_status at_me_op_scalar_load(at_me *m, at_mop *op) {
  const at_me_ref *ref = at_me_memory(m, op->operands[0]);
  at_me_ref box;
  at_me_beyond beyond;
  const at_pos *p = at_pos_make(m->e, false, 0, NULL, NULL);
  if (!ref) return AT_OK;
  if (ref->home->space == AT_MSPACE_SMEM && !at_me_is_open(m, ref) &&
      !m->share && !m->window &&
      !at_mplan_value_of(m->plan, &op->results[0])->counts)
    AT_TRY(chosen_element(m, op, ref, &box));
  else
    AT_TRY(element(m, op, ref, 1, &box, &beyond, &p));
  announce_load(m, op, &box);
  at_val v = at_me_ref_load(m, &box, p);
  at_me_set_scalar(m, &op->results[0], v.re);
  return AT_OK;
}

// Lazy values that read this memory are computed before it changes.
at_status at_me_op_scalar_store(at_me *m, at_mop *op) {
  const at_me_ref *ref = at_me_memory(m, op->operands[1]);
  at_me_ref box;
  at_me_beyond beyond;
  const at_pos *p;
  if (!ref) return AT_OK;
  AT_TRY(element(m, op, ref, 2, &box, &beyond, &p));
  at_me_settle(m, at_mplan_root_bit(ref->home->root), NULL);
  LLVMValueRef v = at_me_scalar(m, op->operands[0]);
  if (m->o->check_nan)
    at_me_check_nan(m, op, at_me_splat(m, ref->dtype, v), NULL,
                    AT_CORE_NAN_STORED);
  at_me_access(m, &box, AT_CORE_STORE, at_me_loc(m, op));
  at_me_ref_store(m, &box, p, (at_val){v, NULL});
  at_me_beyond_end(m, op, &beyond, &box);
  return AT_OK;
}

// ---- stores
// The same elements in the same order?
static bool same_box(const at_me_ref *a, const at_me_ref *b) {
  uint32_t i = 0, j = 0;
  if (a->base != b->base || a->bytes != b->bytes ||
      a->packing->parts != b->packing->parts ||
      a->packing->split != b->packing->split || a->packing->parts > 1 ||
      a->packing->split > 1)
    return false;
  for (;;) {
    while (i < a->rank && !a->size[i].v && a->size[i].c == 1) i++;
    while (j < b->rank && !b->size[j].v && b->size[j].c == 1) j++;
    if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
    if (!at_me_same_num(a->size[i], b->size[j]) ||
        !at_me_same_num(a->stride[i], b->stride[j]))
      return false;
    i++;
    j++;
  }
}

// Does computing n while `box` is being written read what was written before?
static bool conflicts(at_me *m, const at_me_node *tree, const at_me_ref *box) {
  enum { MOVED, AGREES };  // its place, with that of the value
  uint64_t bit = at_mplan_root_bit(box->home->root);
  at_walk_clear(at_me_walk(m));
  at_walk_add(at_me_walk(m), tree, AGREES);
  for (at_walk_step s; at_walk_next(at_me_walk(m), &s);) {
    const at_me_node *n = s.item;
    // A product is computed before.
    if (!(n->reads & bit) || n->kind == AT_ME_DOT) continue;
    if (n->kind == AT_ME_LOAD) {
      if ((at_mplan_root_bit(n->ref->home->root) & bit) &&
          (s.tag == MOVED || !same_box(n->ref, box)))
        return true;
      continue;
    }
    bool keeps = n->kind == AT_ME_APPLY || n->kind == AT_ME_RESHAPE;
    for (uint32_t i = 0; i < n->num_in; i++)
      at_walk_add(at_me_walk(m), n->in[i], keeps ? s.tag : MOVED);
  }
  return false;
}

// Puts v into memory and has the core look at it. where: only these elements;
// `use` is what the message says of them.
void at_me_check_nan(at_me *m, const at_mop *op, at_me_node *v,
                     at_me_node *where, at_core_nan_use use) {
  if (!m->o->check_nan || m->window || !at_is_float(v->dtype)) return;
  at_me_node *b = at_me_materialise(m, v);
  at_me_node *mask = where ? at_me_materialise(m, where) : NULL;
  if (!b || (where && !mask)) return;
  LLVMValueRef args[7] = {m->core,
                          b->ref->base,
                          at_me_mask_bytes(m, mask),
                          at_me_i32(m, b->dtype),
                          at_em_i64(m->e, at_me_elements(b)),
                          at_me_i32(m, use),
                          at_me_i32(m, at_me_loc(m, op))};
  at_b_call(m->e, "at_core_check_nan", NULL, args, 7);
  at_me_node_drop(m, mask);
  at_me_node_drop(m, b);
}

// v into the box, where mask says so.
static at_status store_into(at_me *m, at_mop *op, const at_me_ref *box,
                            at_me_node *v, at_me_node *mask, bool add) {
  if (mask && at_me_is_sparse(m))
    return at_me_store_compressed(m, op, box, v, mask, add);
  at_me_announce_store(m, op, box, mask);
  at_me_start start = at_me_start_of(m, op);
  if (!mask && !add &&
      (at_me_late_take(m, op, box) || at_me_dot_into(m, v, box, start)))
    return AT_OK;
  at_me_start_now(m, start.first, box);
  at_me_prepare(m, v);
  at_me_node *own = NULL;
  if (conflicts(m, v, box)) v = own = at_me_materialise(m, v);
  at_me_node *own_mask = NULL;
  if (mask && conflicts(m, mask, box))
    mask = own_mask = at_me_materialise(m, mask);
  if (v) at_me_copy_to(m, v, box, mask, add ? AT_ME_ADD : AT_ME_PLAIN);
  at_me_node_drop(m, own);
  at_me_node_drop(m, own_mask);
  return AT_OK;
}

// Box, lazy readers, NaN check, store, write-back of a box that leaves its ref:
// in this order.
static at_status store(at_me *m, at_mop *op, uint32_t first, at_me_node *mask,
                       bool add) {
  at_me_node *v = at_me_vector(m, op->operands[0]);
  const at_me_ref *ref = at_me_memory(m, op->operands[1]);
  at_me_ref box;
  at_me_beyond beyond;
  if (!v || !ref) return AT_OK;
  AT_TRY(at_me_vector_box(m, op, ref, first, v, mask, &box, &beyond));
  at_me_settle(m, at_mplan_root_bit(ref->home->root), v);
  at_me_check_nan(m, op, v, mask, AT_CORE_NAN_STORED);
  AT_TRY(store_into(m, op, &box, v, mask, add));
  at_me_beyond_end(m, op, &beyond, &box);
  return AT_OK;
}

at_status at_me_op_store(at_me *m, at_mop *op) {
  return store(m, op, 2, NULL, false);
}

// tpu.vector_store: operand groups value, ref, indices, mask.
at_status at_me_op_masked_store(at_me *m, at_mop *op) {
  uint32_t first, at;
  at_me_node *mask = NULL;
  at_mosaic_op_segment(op, 2, &first);
  if (at_mosaic_op_segment(op, 3, &at) == 1)
    mask = at_me_vector(m, op->operands[at]);
  return store(m, op, first, mask, at_mosaic_op_int(op, "add", 0) != 0);
}
