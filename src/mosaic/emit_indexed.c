// Loads and stores of single elements at indices.
#include <stddef.h>

#include "mosaic/emit_memory.h"

typedef struct indexed {
  const at_me_ref *ref;
  at_me_node *index[AT_ME_RANK], *mask, *value;
  const at_me_ref *dense;  // loads: the result
  bool add;
} indexed;

// A position in the ref from one index value per dimension, each clamped into
// it: what a mask leaves out may be any number.
static at_pos *anywhere(at_me *m, const indexed *x, const at_pos *p) {
  at_ix ix[AT_ME_RANK];
  int64_t dim[AT_ME_RANK];
  for (uint32_t d = 0; d < x->ref->rank; d++) {
    dim[d] = x->ref->size[d].c;
    at_val i = at_me_eval(m, x->index[d], p);
    ix[d] = at_ix_from(m->e, x->index[d]->dtype, i, 0, AT_MAX(dim[d], 1) - 1);
  }
  return (at_pos *)at_pos_make(m->e, true, x->ref->rank, dim, ix);
}

// Elements whose mask is off are zero.
static void load_one(at_me *m, const at_pos *p, void *arg) {
  const indexed *x = arg;
  at_val v = at_me_ref_load(m, x->ref, anywhere(m, x, p));
  if (x->mask)
    v.re = at_b_select(m->e, at_me_eval(m, x->mask, p).re, v.re,
                       at_em_zero(m->e, x->ref->dtype).re);
  at_me_ref_store(m, x->dense, p, v);
}

// Elements go one by one, in order: of equal indices the last one wins, and
// additions add up.
static void store_one(at_me *m, const at_pos *p, void *arg) {
  const indexed *x = arg;
  at_branch f;
  at_val v = at_me_eval(m, x->value, p);
  const at_pos *to = anywhere(m, x, p);
  if (x->mask) at_if_begin(m->e, &f, at_me_eval(m, x->mask, p).re);
  if (x->add)
    v = at_em_apply_real(m->e, AT_OP_ADD, x->ref->dtype,
                         at_me_ref_load(m, x->ref, to), v);
  at_me_ref_store(m, x->ref, to, v);
  if (x->mask) at_if_end(m->e, &f);
}

// Operand group `group` holds one index vector per dimension of the ref, the
// next group an optional mask. All are prepared for use in loops.
static at_status indices(at_me *m, const at_mop *op, uint32_t group,
                         indexed *x) {
  uint32_t first, at;
  uint32_t n = at_mosaic_op_segment(op, group, &first);
  if (n != x->ref->rank) return at_me_refuse(m, op, "%u indices", n);
  for (uint32_t d = 0; d < n; d++) {
    x->index[d] = at_me_vector(m, op->operands[first + d]);
    if (x->index[d]) at_me_prepare(m, x->index[d]);
  }
  if (at_mosaic_op_segment(op, group + 1, &at) == 1) {
    x->mask = at_me_vector(m, op->operands[at]);
    if (x->mask) at_me_prepare(m, x->mask);
  }
  return AT_OK;
}

typedef struct widening {
  at_me_node *from;
  const at_me_ref *to;
} widening;

// What 32 bits cannot hold stays outside of every ref.
static void widen_one(at_me *m, const at_pos *p, void *arg) {
  const widening *x = arg;
  at_val v = at_me_eval(m, x->from, p);
  at_ix i = at_ix_from(m->e, x->from->dtype, v, INT32_MIN, INT32_MAX);
  at_me_ref_store(m, x->to, p, at_ix_to(m->e, AT_S32, i));
}

// A prepared index vector in memory, as the core reads it: of s32. The caller
// drops it. NULL: no index, or no memory, which is noted.
static at_me_node *in_memory(at_me *m, const at_mop *op, at_me_node *index) {
  if (!index) return NULL;
  if (index->dtype == AT_S32) return at_me_materialise(m, index);
  at_me_node *b = at_me_buffer(m, op, AT_S32, index->rank, index->dim);
  if (!b) return NULL;
  widening x = {index, b->ref};
  at_me_space s = {.total = at_me_elements(b), .widest = 4};
  at_me_space_tree(m, &s, index);
  at_me_loops(m, &s, widen_one, &x);
  return b;
}

// The indices that the mask lets through, dimension by dimension.
static void check_indices(at_me *m, const at_mop *op, const indexed *x) {
  if (!m->o->check || m->window) return;
  at_me_node *mask = x->mask ? at_me_materialise(m, x->mask) : NULL;
  for (uint32_t d = 0; d < x->ref->rank; d++) {
    at_me_node *i = in_memory(m, op, x->index[d]);
    if (!i || (x->mask && !mask)) {
      at_me_node_drop(m, i);
      continue;
    }
    LLVMValueRef args[8] = {m->core,
                            i->ref->base,
                            at_me_mask_bytes(m, mask),
                            at_em_i64(m->e, at_me_elements(i)),
                            at_me_num_value(m, x->ref->size[d]),
                            at_me_i32(m, d),
                            at_me_i32(m, at_me_loc(m, op)),
                            at_me_i32(m, at_me_ref_number(x->ref))};
    at_b_call(m->e, "at_core_check_indices", NULL, args, 8);
    at_me_node_drop(m, i);
  }
  at_me_node_drop(m, mask);
}

// A load or store of the elements at the indices.
static void announce_places(at_me *m, const at_mop *op, const indexed *x,
                            int32_t kind) {
  if (!m->o->check || m->window) return;
  at_me_record v;
  at_me_node *held[AT_ME_RANK + 1] = {NULL};
  uint32_t num = 0;
  bool known = x->ref->packing->parts <= 1 && x->ref->packing->split <= 1;
  at_me_record_begin(&v, sizeof(at_core_places));
  at_me_fill_view(m, x->ref, &v);
  for (uint32_t d = 0; d < x->ref->rank && known; d++) {
    at_me_node *i = held[num++] = in_memory(m, op, x->index[d]);
    known = i != NULL;
    if (!known) break;
    at_me_record_value(m, &v, offsetof(at_core_places, index) + 8 * d,
                       i->ref->base);
    at_me_record_num(m, &v, offsetof(at_core_places, n),
                     (at_me_num){at_me_elements(i), NULL});
  }
  at_me_node *mask = NULL;
  if (known && x->mask) {
    mask = held[num++] = at_me_materialise(m, x->mask);
    known = mask != NULL;
  }
  if (mask)
    at_me_record_value(m, &v, offsetof(at_core_places, mask), mask->ref->base);
  at_me_record_i32(&v, offsetof(at_core_places, kind), kind);
  at_me_record_i32(&v, offsetof(at_core_places, loc), at_me_loc(m, op));
  if (known) {
    LLVMValueRef args[2] = {m->core, at_me_record_end(m, &v)};
    at_b_call(m->e, "at_core_access_places", NULL, args, 2);
  } else {
    at_me_access(m, x->ref, kind | AT_CORE_MASKED, at_me_loc(m, op));
  }
  while (num-- > 0) at_me_node_drop(m, held[num]);
}

// Computed at once into a buffer, since the ref may change before the result is
// used.
at_status at_me_op_load_idx(at_me *m, at_mop *op) {
  const at_me_ref *ref = at_me_memory(m, op->operands[0]);
  at_me_ref whole;
  indexed x = {.ref = &whole};
  const at_mtype *t = op->results[0].type;
  if (!ref) return AT_OK;
  whole = at_me_whole(m, op, ref);
  AT_TRY(indices(m, op, 1, &x));
  at_me_node *b =
      at_me_buffer(m, op, at_mosaic_dtype_of(t), t->shape.rank, t->shape.ptr);
  if (!b) return AT_OK;
  check_indices(m, op, &x);
  announce_places(m, op, &x, at_me_load_kind(m, op));
  x.dense = b->ref;
  at_me_space s = {.total = at_me_elements(b), .widest = 4};
  for (uint32_t d = 0; d < x.ref->rank; d++)
    at_me_space_tree(m, &s, x.index[d]);
  at_me_loops(m, &s, load_one, &x);
  return at_me_set_node(m, &op->results[0], b);
}

// Scalar loops: two lanes of one vector might go to the same element.
at_status at_me_op_store_idx(at_me *m, at_mop *op) {
  const at_me_ref *ref = at_me_memory(m, op->operands[1]);
  at_me_ref whole;
  indexed x = {.ref = &whole,
               .value = at_me_vector(m, op->operands[0]),
               .add = at_mosaic_op_int(op, "add", 0) != 0};
  if (!ref || !x.value) return AT_OK;
  whole = at_me_whole(m, op, ref);
  AT_TRY(indices(m, op, 2, &x));
  at_me_settle(m, at_mplan_root_bit(x.ref->home->root), NULL);
  at_me_prepare(m, x.value);
  check_indices(m, op, &x);
  if (x.add) announce_places(m, op, &x, AT_CORE_LOAD);
  announce_places(m, op, &x, AT_CORE_STORE);
  at_me_space s = {.total = at_me_elements(x.value), .scalar = true};
  at_me_loops(m, &s, store_one, &x);
  return AT_OK;
}
