// Masked loads and stores of SparseCore subcores: memory holds only the
// elements whose mask is set, one after another.
#include "mosaic/emit_memory.h"

bool at_me_is_sparse(const at_me *m) {
  return m->p->core == AT_MCORE_SC_VECTOR || m->p->core == AT_MCORE_SC_SCALAR;
}

// Counts at run time, element by element; the mask becomes bytes in memory.
at_me_num at_me_kept(at_me *m, at_me_node *mask) {
  at_em *e = m->e;
  LLVMTypeRef i64 = at_em_int(e, 64);
  at_me_node *b = at_me_materialise(m, mask);
  if (!b) return (at_me_num){0, NULL};
  LLVMValueRef count = at_em_alloca(e, i64, 1);
  at_b_store(e, at_em_i64(e, 0), count, 8);
  at_loop l;
  at_loop_range(e, &l, 0, at_me_elements(b), 1);
  LLVMValueRef on = at_em_load(e, b->ref->base, AT_PRED, l.i, false).re;
  LLVMValueRef sum = at_b_bin(e, AT_B_ADD, at_b_load(e, i64, count, 8),
                              at_b_cast(e, AT_B_ZEXT, on, i64));
  at_b_store(e, sum, count, 8);
  at_loop_end(e, &l);
  at_me_node_drop(m, b);
  return at_me_num_of(at_b_load(e, i64, count, 8));
}

typedef struct compress {
  at_me_ref box;
  at_me_node *mask;      // buffer
  at_me_node *out, *in;  // one of them: the load's result, the store's value
  LLVMValueRef count;    // elements so far, on the stack
  bool add;
} compress;

// A position in the box: the n-th element of its last dimension.
static const at_pos *place(at_me *m, const compress *x, at_ix n) {
  at_ix ix[AT_ME_RANK];
  int64_t dim[AT_ME_RANK];
  for (uint32_t d = 0; d < x->box.rank; d++) {
    dim[d] = x->box.size[d].c;
    ix[d] = d + 1 == x->box.rank ? n : at_ix_const(0);
  }
  return at_pos_make(m->e, false, x->box.rank, dim, ix);
}

// Element i of the vector: where its mask is set, the next element of memory is
// read into it, or written from it. Others of a load are zero.
static void one(at_me *m, const compress *x, at_ix i, int64_t total) {
  at_em *e = m->e;
  LLVMTypeRef i64 = at_em_int(e, 64);
  LLVMValueRef on = at_em_load(e, x->mask->ref->base, AT_PRED, i, false).re;
  LLVMValueRef c = at_b_load(e, i64, x->count, 8);
  const at_pos *p = place(m, x, at_ix_of(c, 0, total - 1, 1));
  if (x->out)
    at_em_store(e, x->out->ref->base, x->out->dtype, i,
                at_em_zero(e, x->box.dtype));
  at_branch f;
  at_if_begin(e, &f, on);  // memory may end behind what the mask keeps
  if (x->out) {
    at_val v = at_me_ref_load(m, &x->box, p);
    at_em_store(e, x->out->ref->base, x->out->dtype, i, v);
  } else {
    at_val v = at_em_load(e, x->in->ref->base, x->in->dtype, i, false);
    if (x->add)
      v = at_em_apply_real(e, AT_OP_ADD, x->box.dtype,
                           at_me_ref_load(m, &x->box, p), v);
    at_me_ref_store(m, &x->box, p, v);
  }
  at_if_end(e, &f);
  LLVMValueRef more = at_b_cast(e, AT_B_ZEXT, on, i64);
  at_b_store(e, at_b_bin(e, AT_B_ADD, c, more), x->count, 8);
}

// The loop over the vector, behind the announcement of the access. Refuses more
// than one row.
static at_status run(at_me *m, const at_mop *op, compress *x,
                     const at_me_node *v, at_me_node *mask, int32_t kind) {
  at_em *e = m->e;
  int64_t total = at_me_elements(v);
  if (v->rank == 0 || total != v->dim[v->rank - 1])
    return at_me_refuse(m, op, "a mask over several rows");
  x->mask = at_me_materialise(m, mask);
  if (!x->mask || total == 0) return AT_OK;
  if (x->add)
    at_me_access_packed(m, &x->box, x->mask, AT_CORE_LOAD, at_me_loc(m, op));
  at_me_access_packed(m, &x->box, x->mask, kind, at_me_loc(m, op));
  x->count = at_em_alloca(e, at_em_int(e, 64), 1);
  at_b_store(e, at_em_i64(e, 0), x->count, 8);
  at_loop l;
  at_loop_range(e, &l, 0, total, 1);
  one(m, x, l.i, total);
  at_loop_end(e, &l);
  at_me_node_drop(m, x->mask);
  return AT_OK;
}

// The result is a buffer, computed here and not where it is used: what memory
// ends behind depends on the mask.
at_status at_me_load_expanded(at_me *m, at_mop *op, const at_me_ref *box,
                              at_me_node *mask, int32_t kind) {
  const at_mtype *t = op->results[0].type;
  compress x = {.box = *box,
                .out = at_me_buffer(m, op, at_mosaic_dtype_of(t), t->shape.rank,
                                    t->shape.ptr)};
  if (!x.out) return AT_OK;
  AT_TRY(run(m, op, &x, x.out, mask, kind));
  return at_me_set_node(m, &op->results[0], x.out);
}

// add: into what memory holds, element by element.
at_status at_me_store_compressed(at_me *m, at_mop *op, const at_me_ref *box,
                                 at_me_node *value, at_me_node *mask,
                                 bool add) {
  compress x = {.box = *box, .in = at_me_materialise(m, value), .add = add};
  if (!x.in) return AT_OK;
  AT_TRY(run(m, op, &x, x.in, mask, AT_CORE_STORE));
  at_me_node_drop(m, x.in);
  return AT_OK;
}
