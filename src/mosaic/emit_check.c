// What is tested and told of an access: bounds, and, where accesses are
// checked, each box to the virtual core.
#include <stddef.h>

#include "mosaic/emit_memory.h"

enum {
  kInside = 1u << 22,  // memo: an index and the room that it was held to
  // Tests that are branches. Kernels with more of them have unrolled loops,
  // whose branches would keep LLVM busy for seconds.
  kMaxBranches = 128
};

// 0 <= index and index + size <= limit, else the kernel ends there.
// A box of a size that is only known now may be empty: then it is nowhere.
void at_me_guard(at_me *m, const at_mop *op, const at_me_ref *ref, uint32_t dim,
                 at_me_num index, at_me_num size, at_me_num limit) {
  at_em *e = m->e;
  if (!index.v && !size.v && !limit.v && index.c >= 0 &&
      index.c + size.c <= limit.c)
    return;
  LLVMValueRef i = at_me_num_value(m, index), s = at_me_num_value(m, size);
  LLVMValueRef l = at_me_num_value(m, limit);
  bool fixed = !size.v && !limit.v && limit.c >= size.c;
  LLVMValueRef room =
      fixed ? at_em_i64(e, limit.c - size.c) : at_b_bin(e, AT_B_SUB, l, s);
  // Slices of a buffer and of its semaphores are often at the same index.
  if (fixed && at_em_memo_find(e, i, kInside, room)) return;
  if (fixed) at_em_memo_put(e, i, kInside, room, (at_val){room, NULL});
  LLVMValueRef whose = at_me_i32(m, at_me_ref_number(ref));
  LLVMValueRef args[7] = {
      m->core, at_me_i32(m, at_me_loc(m, op)), at_me_i32(m, dim), i, s, l,
      whose};
  if (m->guards++ >= kMaxBranches) {
    at_b_call(e, "at_core_within", NULL, args, 7);
    return;
  }
  LLVMValueRef bad = at_b_icmp(e, AT_B_UGT, i, room);
  if (!fixed)
    bad = at_b_bin(e, AT_B_OR, bad,
                   at_b_icmp(e, AT_B_SLT, room, at_em_i64(e, 0)));
  if (size.v)
    bad = at_b_bin(e, AT_B_AND, bad, at_b_icmp(e, AT_B_NE, s, at_em_i64(e, 0)));
  LLVMBasicBlockRef cold = at_em_block(e, "outside");
  LLVMBasicBlockRef on = at_em_block(e, "inside");
  at_b_cond_br(e, bad, cold, on);
  at_b_at_end(e, cold);
  at_b_call(e, "at_core_out_of_bounds", NULL, args, 7);
  at_b_br(e, on);
  at_b_at_end(e, on);
}

// Dimension d of an at_core_view.
static void fill_dim(at_me *m, at_me_record *v, uint32_t d, at_me_num size,
                     at_me_num stride) {
  at_me_record_num(m, v, offsetof(at_core_view, size) + 8 * d, size);
  at_me_record_num(m, v, offsetof(at_core_view, stride) + 8 * d, stride);
}

// Does the first part of a packed row lie behind the last of the one before it,
// or is there no room to say more?
static bool follow_each_other(const at_me_ref *r) {
  at_me_num row = r->stride[r->packing->packed], part = r->packing->part_stride;
  return r->rank == AT_CORE_MAX_RANK || r->size[r->packing->packed].c == 1 ||
         (!row.v && !part.v && row.c == part.c * r->packing->parts);
}

// The box as the virtual core is told of it, an at_core_view at the record's
// begin.
void at_me_fill_view(at_me *m, const at_me_ref *r, at_me_record *v) {
  const at_me_num es = {r->bytes, NULL}, parts = {r->packing->parts, NULL};
  uint32_t k = 0;
  at_me_record_value(m, v, offsetof(at_core_view, base), r->base);
  at_me_record_i32(v, offsetof(at_core_view, elem_bytes), (int32_t)r->bytes);
  for (uint32_t d = 0; d < r->rank; d++, k++) {
    at_me_num size = r->size[d], stride = r->stride[d];
    // In elements of memory: a packed row is several, or a part of one.
    if (r->packing->parts > 1 && d == r->packing->packed) {
      if (follow_each_other(r)) {
        size = at_me_mul(m, size, parts);
      } else {
        fill_dim(m, v, k++, size, at_me_mul(m, stride, es));
        size = parts;
      }
      stride = r->packing->part_stride;
    } else if (r->packing->split > 1 && d == r->packing->packed && !size.v) {
      size.c = at_ceil_div(size.c, r->packing->split);
    }
    fill_dim(m, v, k, size, at_me_mul(m, stride, es));
  }
  // The dimension of packed rows may have gone, as it was 1.
  if (r->packing->parts > 1 && r->packing->packed >= r->rank &&
      k < AT_CORE_MAX_RANK) {
    fill_dim(m, v, k, parts, at_me_mul(m, r->packing->part_stride, es));
    k++;
  }
  at_me_record_i32(v, offsetof(at_core_view, rank), (int32_t)k);
}

// A pointer to the at_core_view.
static LLVMValueRef view_of(at_me *m, const at_me_ref *r) {
  at_me_record v;
  at_me_record_begin(&v, sizeof(at_core_view));
  at_me_fill_view(m, r, &v);
  return at_me_record_end(m, &v);
}

// Index maps announce nothing: they read prefetched scalars only.
void at_me_access(at_me *m, const at_me_ref *r, int32_t kind, int32_t loc) {
  if (!m->o->check || m->window) return;
  LLVMValueRef args[4] = {m->core, view_of(m, r), at_me_i32(m, kind),
                          at_me_i32(m, loc)};
  at_b_call(m->e, "at_core_access", NULL, args, 4);
}

// An access to the elements that a mask keeps, which lie one after another from
// the box's first.
void at_me_access_packed(at_me *m, const at_me_ref *r, const at_me_node *mask,
                         int32_t kind, int32_t loc) {
  if (!m->o->check || m->window) return;
  LLVMValueRef args[6] = {m->core,
                          view_of(m, r),
                          mask->ref->base,
                          at_em_i64(m->e, at_me_elements(mask)),
                          at_me_i32(m, kind),
                          at_me_i32(m, loc)};
  at_b_call(m->e, "at_core_access_packed", NULL, args, 6);
}

// Before a wait: the memory whose copy it waits for, so that the checks know.
void at_me_expect(at_me *m, const at_me_ref *r, int32_t loc) {
  if (!m->o->check || m->window) return;
  LLVMValueRef args[3] = {m->core, view_of(m, r), at_me_i32(m, loc)};
  at_b_call(m->e, "at_core_expect", NULL, args, 3);
}

// A store where the mask says so; it is not known for packed rows.
void at_me_announce_store(at_me *m, const at_mop *op, const at_me_ref *box,
                          at_me_node *mask) {
  int32_t loc = at_me_loc(m, op);
  bool each = mask && m->o->check && box->packing->parts <= 1 &&
              box->packing->split <= 1;
  at_me_node *b = each ? at_me_materialise(m, mask) : NULL;
  if (!b) {
    at_me_access(m, box, AT_CORE_STORE | (mask ? AT_CORE_MASKED : 0), loc);
    return;
  }
  LLVMValueRef args[4] = {m->core, view_of(m, box), b->ref->base,
                          at_me_i32(m, loc)};
  at_b_call(m->e, "at_core_access_masked", NULL, args, 4);
  at_me_node_drop(m, b);
}

// Bytes, one per element; NULL at run time: there is no mask.
LLVMValueRef at_me_mask_bytes(at_me *m, const at_me_node *mask) {
  return mask ? mask->ref->base : at_b_null(at_b_ptr(m->e));
}
