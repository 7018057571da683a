// Transfers, and waits for them. Calls of abi/core.h.
#include <stddef.h>

#include "mosaic/emit_memory.h"

// Elements times their size; not what strides span.
static at_me_num bytes_of(at_me *m, const at_me_ref *r) {
  at_me_num n = {r->bytes, NULL};
  for (uint32_t d = 0; d < r->rank; d++) n = at_me_mul(m, n, r->size[d]);
  return n;
}

#define FIELD(f) offsetof(at_core_dma, f)
// Base and byte strides of one side at the given offsets of the record.
static void fill_side(at_me *m, at_me_record *d, const at_me_ref *r,
                      size_t base, size_t strides) {
  at_me_record_value(m, d, base, r->base);
  for (uint32_t k = 0; k < r->rank; k++)
    at_me_record_num(m, d, strides + 8 * k,
                     at_me_mul(m, r->stride[k], (at_me_num){r->bytes, NULL}));
}

// The minimum of two numbers, folded where both are known.
static at_me_num smaller(at_me *m, at_me_num a, at_me_num b) {
  if (!a.v && !b.v) return a.c < b.c ? a : b;
  LLVMValueRef x = at_me_num_value(m, a), y = at_me_num_value(m, b);
  return at_me_num_of(at_b_select(m->e, at_b_icmp(m->e, AT_B_SLT, x, y), x, y));
}

// Where a side reaches into the room behind its array,
// only what is there of both sides is moved; the semaphores count all of it.
static void fill_sizes(at_me *m, at_me_record *d, const at_me_ref *src,
                       const at_me_ref *dst) {
  at_me_num moved = {dst->bytes, NULL}, all = moved;
  for (uint32_t k = 0; k < dst->rank; k++) {
    at_me_num n = dst->size[k];
    if (src->valid) n = smaller(m, n, src->valid[k]);
    if (dst->valid) n = smaller(m, n, dst->valid[k]);
    at_me_record_num(m, d, FIELD(size) + 8 * k, n);
    if (src->valid) at_me_record_num(m, d, FIELD(asked) + 8 * k, dst->size[k]);
    moved = at_me_mul(m, moved, n);
    all = at_me_mul(m, all, dst->size[k]);
  }
  if (!src->valid && !dst->valid) return;
  at_me_num padding =
      moved.v || all.v
          ? at_me_num_of(at_b_bin(m->e, AT_B_SUB, at_me_num_value(m, all),
                                  at_me_num_value(m, moved)))
          : (at_me_num){all.c - moved.c, NULL};
  at_me_record_num(m, d, FIELD(padding), padding);
}

// What all transfers share: both sides, rank and element size of `shape`, the
// place. Device, core and subcore begin as "this one".
static void fill_dma(at_me *m, at_me_record *d, const at_mop *op,
                     const at_me_ref *src, const at_me_ref *dst,
                     const at_me_ref *shape) {
  fill_side(m, d, src, FIELD(src), FIELD(src_stride));
  fill_side(m, d, dst, FIELD(dst), FIELD(dst_stride));
  at_me_record_i32(d, FIELD(rank), (int32_t)shape->rank);
  at_me_record_i32(d, FIELD(elem_bytes), (int32_t)shape->bytes);
  // Stored, so that copies that differ by it alone share the rest.
  at_me_record_value(m, d, FIELD(loc), at_me_loc_value(m, op));
  at_me_record_i32(d, FIELD(device), AT_CORE_SELF);
  at_me_record_i32(d, FIELD(core), AT_CORE_SELF);
  at_me_record_i32(d, FIELD(subcore), AT_CORE_SELF);
}

// Elements of fewer than 8 bits that one side keeps in a byte each.
static void fill_packed(at_me *m, at_me_record *d, const at_me_pieces *p) {
  at_me_record_i32(d, FIELD(packed_bits), p->packed_bits);
  at_me_record_i32(d, FIELD(unpack), p->unpack);
  at_me_record_i32(d, FIELD(packed_signed), p->packed_signed);
  at_me_record_num(m, d, FIELD(packed_step), p->packed_step);
}

// The semaphore of an optional operand group, if it is given.
static void fill_semaphore(at_me *m, at_me_record *d, const at_mop *op,
                           uint32_t group, size_t field) {
  uint32_t at;
  if (at_mosaic_op_segment(op, group, &at) != 1) return;
  const at_me_ref *s = at_me_memory(m, op->operands[at]);
  if (s) at_me_record_value(m, d, field, s->base);
}

// A scalar of an optional operand group over the default.
static void fill_optional(at_me *m, at_me_record *d, const at_mop *op,
                          uint32_t group, size_t field) {
  uint32_t at;
  if (at_mosaic_op_segment(op, group, &at) == 1)
    at_me_record_value(m, d, field, at_me_scalar(m, op->operands[at]));
}

// Bytes of a ref whose elements are known to lie side by side; 0: they do not.
static int64_t run_of(const at_me_ref *r) {
  int64_t n = 1;
  for (uint32_t d = r->rank; d-- > 0;) {
    if (r->size[d].v || r->stride[d].v || r->valid) return 0;
    if (r->size[d].c != 1 && r->stride[d].c != n) return 0;
    n *= r->size[d].c;
  }
  return n * r->bytes;
}

// To scratch where copies may wait, whole and on this core: a shorter call.
static bool page_dma(at_me *m, const at_mop *op, const at_me_ref *src,
                     const at_me_ref *dst) {
  uint32_t sem, at;
  int64_t bytes = run_of(dst);
  if (!dst->home->pages || !bytes || run_of(src) != bytes ||
      at_mosaic_op_segment(op, 1, &at) ||
      at_mosaic_op_segment(op, 3, &sem) != 1)
    return false;
  for (uint32_t group = 4; group <= 6; group++)
    if (at_mosaic_op_segment(op, group, &at)) return false;
  const at_me_ref *s = at_me_memory(m, op->operands[sem]);
  if (!s) return false;
  LLVMValueRef args[6] = {m->core,   dst->base,
                          src->base, at_em_i64(m->e, bytes),
                          s->base,   at_me_loc_value(m, op)};
  at_b_call(m->e, "at_core_page_start", NULL, args, 6);
  return true;
}

// Operand groups: source, its semaphore, target, its semaphore, device, core,
// subcore. Both sides are cut into equal pieces first.
at_status at_me_op_dma(at_me *m, at_mop *op) {
  uint32_t s, t;
  if (at_mosaic_op_segment(op, 0, &s) != 1 ||
      at_mosaic_op_segment(op, 2, &t) != 1)
    return at_me_refuse(m, op, "its operands");
  const at_me_ref *from = at_me_memory(m, op->operands[s]);
  const at_me_ref *to = at_me_memory(m, op->operands[t]);
  at_me_pieces p;
  if (!from || !to) return AT_OK;
  AT_TRY(at_me_pieces_of(m, op, from, to, &p));
  const at_me_ref src = p.src, dst = p.dst;
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  if (!p.packed_bits && page_dma(m, op, &src, &dst)) return AT_OK;
  at_me_record d;
  at_me_record_begin(&d, sizeof(at_core_dma));
  fill_dma(m, &d, op, &src, &dst, &dst);
  fill_packed(m, &d, &p);
  fill_sizes(m, &d, &src, &dst);
  fill_semaphore(m, &d, op, 1, FIELD(src_sem));
  fill_semaphore(m, &d, op, 3, FIELD(dst_sem));
  fill_optional(m, &d, op, 4, FIELD(device));
  fill_optional(m, &d, op, 5, FIELD(core));
  fill_optional(m, &d, op, 6, FIELD(subcore));
  at_me_record_i32(&d, FIELD(lazy), dst.home->pages);
  LLVMValueRef args[2] = {m->core, at_me_record_end(m, &d)};
  at_b_call(m->e, "at_core_dma_start", NULL, args, 2);
  return AT_OK;
}
#undef FIELD

// moved: as large as what the copy moves. The semaphore counts bytes of dst,
// whose elements may be kept in more of them than those of moved.
static at_status wait_for(at_me *m, const at_mop *op, const at_me_ref *sem,
                          const at_me_ref *moved, const at_me_ref *dst) {
  at_me_ref v;
  if (!sem || !moved || !dst) return AT_OK;
  AT_TRY(at_me_stored_view(m, op, moved, &v));
  at_me_num bytes = bytes_of(m, &v);
  // Bits of memory for an element of the view.
  int64_t each =
      8 * moved->bytes * moved->packing->parts / moved->packing->split;
  int64_t stored = 8 * dst->bytes * dst->packing->parts / dst->packing->split;
  if (stored > each) {
    bytes = at_me_mul(m, bytes, (at_me_num){stored / each, NULL});
  } else if (bytes.v) {
    bytes.v =
        at_b_bin(m->e, AT_B_UDIV, bytes.v, at_em_i64(m->e, each / stored));
  } else {
    bytes.c /= each / stored;
  }
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  at_me_expect(m, &v, at_me_loc(m, op));
  LLVMValueRef args[4] = {m->core, sem->base, at_me_num_value(m, bytes),
                          at_me_loc_value(m, op)};
  at_b_call(m->e, "at_core_dma_wait", NULL, args, 4);
  return AT_OK;
}

// The destination says how many bytes to wait for.
at_status at_me_op_wait_dma2(at_me *m, at_mop *op) {
  const at_me_ref *dst = at_me_memory(m, op->operands[2]);
  return wait_for(m, op, at_me_memory(m, op->operands[0]), dst, dst);
}

// Until the target is complete, or (wait_target = false) until the source may
// change.
at_status at_me_op_wait_dma(at_me *m, at_mop *op) {
  bool target = at_mosaic_op_int(op, "wait_target", 1) != 0;
  uint32_t ref, sem;
  if (at_mosaic_op_segment(op, target ? 2 : 0, &ref) != 1 ||
      ((!target || at_mosaic_op_segment(op, 3, &sem) != 1) &&
       at_mosaic_op_segment(op, 1, &sem) != 1))
    return at_me_refuse(m, op, "its operands");
  const at_me_ref *moved = at_me_memory(m, op->operands[ref]);
  return wait_for(m, op, at_me_memory(m, op->operands[sem]), moved, moved);
}

// ---- rows by index
// Memory that indices may address; the other side is the core's own.
static bool is_table(const at_me_ref *r) {
  return r->home->space == AT_MSPACE_ANY || r->home->space == AT_MSPACE_HBM ||
         r->home->space == AT_MSPACE_VMEM_SHARED;
}

// The indices, one beside the other or in a strided ref; those of a vector are
// in memory until *held is dropped.
static at_status indices_of(at_me *m, const at_mop *op, at_mvalue *o,
                            const at_me_ref *dense, at_me_ref *out,
                            at_me_node **held) {
  *held = NULL;
  if (at_mosaic_is_vector(o)) {
    at_me_node *v = at_me_vector(m, o);
    if (!v) return AT_OK;
    *held = at_me_materialise(m, v);
    if (*held) *out = *(*held)->ref;
    return AT_OK;
  }
  const at_me_ref *r = at_me_memory(m, o);
  if (!r) return AT_OK;
  *out = at_me_whole(m, op, r);
  if (out->rank != 1 || out->bytes != 4 || out->packing->parts > 1 ||
      out->packing->split > 1)
    return at_me_refuse(m, op, "indices that are not a row of 32-bit words");
  if (!out->size[0].v && !dense->size[0].v &&
      out->size[0].c != dense->size[0].c)
    return at_me_refuse(m, op, "%lld indices for %lld rows",
                        (long long)out->size[0].c, (long long)dense->size[0].c);
  return AT_OK;
}

static_assert(sizeof(at_core_indirect) <= AT_ME_RECORD_BYTES, "a record");
#define FIELD(f) offsetof(at_core_indirect, f)
// Rows of a table by index: a gather if the source is the table, a scatter if
// the target is. The other side is dense, one row per index; an index that
// equals the filter moves nothing.
at_status at_me_op_indirect_dma(at_me *m, at_mop *op) {
  const at_me_ref *from = at_me_memory(m, op->operands[0]);
  const at_me_ref *to = at_me_memory(m, op->operands[1]);
  const at_me_ref *sem = at_me_memory(m, op->operands[3]);
  at_me_ref offsets = {0};
  at_me_pieces p;
  at_me_node *held;
  if (!from || !to || !sem) return AT_OK;
  if (from->rank == 0 ||
      (from->packing->split > 1 && from->packing->packed == 0) ||
      (to->packing->split > 1 && to->packing->packed == 0))
    return at_me_refuse(m, op, "rows that share their words");
  bool scatter = is_table(to) && !is_table(from);
  AT_TRY(at_me_pieces_of(m, op, from, to, &p));
  const at_me_ref *table = scatter ? &p.dst : &p.src;
  const at_me_ref *dense = scatter ? &p.src : &p.dst;
  AT_TRY(indices_of(m, op, op->operands[2], dense, &offsets, &held));
  if (!offsets.base) return AT_OK;
  at_me_ref limit =
      *table;  // a row of the table, as often as there are indices
  limit.size[0] = dense->size[0];
  if (limit.valid) {
    at_me_num valid[AT_ME_RANK];
    memcpy(valid, limit.valid, sizeof valid);
    valid[0] = at_me_valid(dense, 0);
    limit.valid = at_me_keep_valid(m, valid);
  }
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  at_me_record d;
  at_me_record_begin(&d, sizeof(at_core_indirect));
  fill_dma(m, &d, op, &p.src, &p.dst, dense);
  fill_packed(m, &d, &p);
  fill_sizes(m, &d, &limit, dense);
  at_me_record_value(m, &d, FIELD(rows) + offsetof(at_core_dma, dst_sem),
                     sem->base);
  if (at_mosaic_op_int(op, "add", 0))
    at_me_record_i32(&d, FIELD(rows) + offsetof(at_core_dma, add),
                     (int32_t)to->dtype);
  at_me_record_value(m, &d, FIELD(offsets), offsets.base);
  at_me_record_num(m, &d, FIELD(offset_step),
                   at_me_mul(m, offsets.stride[0], (at_me_num){4, NULL}));
  at_me_record_num(m, &d, FIELD(table_rows), at_me_valid(table, 0));
  at_me_record_i32(&d, FIELD(scatter), scatter);
  bool filter = op->num_operands > 4;
  at_me_record_i32(&d, FIELD(has_filter), filter);
  if (filter)
    at_me_record_value(m, &d, FIELD(filter), at_me_scalar(m, op->operands[4]));
  LLVMValueRef args[2] = {m->core, at_me_record_end(m, &d)};
  at_b_call(m->e, "at_core_indirect_start", NULL, args, 2);
  at_me_node_drop(m, held);
  return AT_OK;
}
#undef FIELD

// Waits for the bytes of the dense side, as the number of moved rows is that of
// the indices.
at_status at_me_op_wait_indirect_dma(at_me *m, at_mop *op) {
  const at_me_ref *src = at_me_memory(m, op->operands[1]);
  const at_me_ref *dst = at_me_memory(m, op->operands[2]);
  if (!src || !dst) return AT_OK;
  bool scatter = is_table(dst) && !is_table(src);
  return wait_for(m, op, at_me_memory(m, op->operands[0]), scatter ? src : dst,
                  dst);
}
