// Boxes: the part of a ref that a load or store touches.
#include "mosaic/emit_memory.h"

at_me_num at_me_index_of(at_me *m, const at_mvalue *v) {
  return at_me_num_of(at_me_i64(m, at_me_scalar(m, v)));
}

// Where row i of a folded ref begins, in elements of memory.
static at_me_num folded_row(at_me *m, const at_me_ref *r, at_me_num i) {
  at_me_num row = {i.c / r->packing->folds, NULL},
            fold = {i.c % r->packing->folds, NULL};
  if (i.v) {
    LLVMValueRef n = at_em_i64(m->e, r->packing->folds);
    LLVMValueRef v = at_me_num_value(m, i);
    row = at_me_num_of(at_b_bin(m->e, AT_B_UDIV, v, n));
    fold = at_me_num_of(at_b_bin(m->e, AT_B_UREM, v, n));
  }
  return at_me_add(m, at_me_mul(m, row, r->stride[r->packing->packed]),
                   at_me_mul(m, fold, r->packing->fold_stride));
}

// b: NULL where leaving the ref ends the kernel. kept: NULL, or how many
// elements of the last dimension are touched.
at_status at_me_box_of(at_me *m, const at_mop *op, const at_me_ref *ref,
                       uint32_t first, uint32_t rank, const int64_t *size,
                       const int64_t *step, const at_me_num *kept,
                       at_me_ref *out, at_me_beyond *b) {
  if (rank > ref->rank)
    return at_me_refuse(m, op, "more dimensions than memory");
  *out = *ref;
  out->valid = NULL;
  at_me_num at = {0, NULL};
  uint32_t lead = ref->rank - rank;
  for (uint32_t d = 0; d < ref->rank; d++) {
    int64_t n = d < lead ? 1 : size[d - lead], k = step ? step[d] : 1;
    if (first + d >= op->num_operands)
      return at_me_refuse(m, op, "its indices");
    at_me_num i = at_me_index_of(m, op->operands[first + d]);
    at_me_num covered = {n > 0 ? (n - 1) * k + 1 : 0, NULL};
    if (kept && d + 1 == ref->rank && k == 1) covered = *kept;
    if (b)
      at_me_beyond_dim(m, b, d, i, n, k);
    else
      at_me_guard(m, op, ref, d, i, covered, at_me_valid(ref, d));
    out->size[d] = (at_me_num){n, NULL};
    if (ref->packing->split > 1 && d == ref->packing->packed) {
      if (k != 1) return at_me_refuse(m, op, "strides over packed rows");
      at_me_repack(m, out)->row = at_me_add(m, ref->packing->row, i);
      continue;
    }
    if (ref->packing->folds > 1 && d == ref->packing->packed) {
      if (n > 1 && k % ref->packing->folds)
        return at_me_refuse(m, op, "steps that are not whole rows");
      at = at_me_add(m, at, folded_row(m, ref, i));
      k /= ref->packing->folds;
    } else {
      at = at_me_add(m, at, at_me_mul(m, i, ref->stride[d]));
    }
    out->stride[d] = at_me_mul(m, ref->stride[d], (at_me_num){k, NULL});
  }
  if (out->packing->folds > 1) at_me_repack(m, out)->folds = 1;
  out->base = at_me_offset(m, ref->base, ref->bytes, at);
  return AT_OK;
}

// Bounds tests may end the kernel, so in a shared loop they are written in the
// function around it.
at_status at_me_box(at_me *m, const at_mop *op, const at_me_ref *ref,
                    uint32_t first, uint32_t rank, const int64_t *size,
                    const int64_t *step, at_me_ref *out) {
  if (m->share) at_b_task_outside(m->e, &m->share->task);
  at_status st =
      at_me_box_of(m, op, ref, first, rank, size, step, NULL, out, NULL);
  if (m->share) at_b_task_inside(m->e, &m->share->task);
  return st;
}

// As at_me_box where the ref is not open; then *b holds nothing and begin and
// end of beyond do nothing.
at_status at_me_box_beyond(at_me *m, const at_mop *op, const at_me_ref *ref,
                           uint32_t first, uint32_t rank, const int64_t *size,
                           const int64_t *step, at_me_ref *out,
                           at_me_beyond *b) {
  *b = (at_me_beyond){.ref = *ref};
  if (!at_me_is_open(m, ref))
    return at_me_box(m, op, ref, first, rank, size, step, out);
  if (m->share) at_b_task_outside(m->e, &m->share->task);
  at_status st =
      at_me_box_of(m, op, ref, first, rank, size, step, NULL, out, b);
  if (m->share) at_b_task_inside(m->e, &m->share->task);
  AT_TRY(st);
  at_me_beyond_begin(m, op, b, out);
  return AT_OK;
}

// Strides of memory operations: absent or empty means ones.
static const int64_t *steps_of(const at_mop *op, int64_t *buf) {
  uint32_t n;
  if (!at_mosaic_op_ints(op, "strides", buf, AT_ME_RANK, &n) || n == 0)
    return NULL;
  return buf;
}

// The box of a load or store of a whole vector. Of a packed one, behind which
// the ref may end, only the elements that its mask keeps are there.
at_status at_me_vector_box(at_me *m, const at_mop *op, const at_me_ref *ref,
                           uint32_t first, const at_me_node *v,
                           at_me_node *mask, at_me_ref *out, at_me_beyond *b) {
  int64_t buf[AT_ME_RANK];
  const int64_t *step = steps_of(op, buf);
  if (!mask || !at_me_is_sparse(m) || at_me_is_open(m, ref))
    return at_me_box_beyond(m, op, ref, first, v->rank, v->dim, step, out, b);
  *b = (at_me_beyond){.ref = *ref};
  at_me_num kept = at_me_kept(m, mask);
  return at_me_box_of(m, op, ref, first, v->rank, v->dim, step, &kept, out,
                      NULL);
}
