// Refs: views, loads, stores, allocation.
#include <stddef.h>

#include "mosaic/emit.h"
#include "mosaic/mosaic_internal.h"

void at_me_ref_trim(at_me_ref *r, uint32_t rank) {
  if (r->rank <= rank) return;
  uint32_t cut = r->rank - rank;
  memmove(r->size, r->size + cut, rank * sizeof r->size[0]);
  memmove(r->stride, r->stride + cut, rank * sizeof r->stride[0]);
  r->packed = r->packed >= cut ? r->packed - cut : AT_ME_RANK;
  r->rank = rank;
}

// ---- checks
enum {
  kInside = 1u << 22,  // memo: an index and the room that it was held to
  // Tests that are branches. Kernels with more of them have unrolled loops,
  // whose branches would keep LLVM busy for seconds.
  kMaxBranches = 128
};

// 0 <= index and index + size <= limit, else the kernel ends there.
// A box of a size that is only known now may be empty: then it is nowhere.
static void guard(at_me *m, const at_mop *op, const at_me_ref *ref,
                  uint32_t dim, at_me_num index, at_me_num size,
                  at_me_num limit) {
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

static void fill_dim(at_me *m, at_me_record *v, uint32_t d, at_me_num size,
                     at_me_num stride) {
  at_me_record_num(m, v, offsetof(at_core_view, size) + 8 * d, size);
  at_me_record_num(m, v, offsetof(at_core_view, stride) + 8 * d, stride);
}

// Does the first part of a packed row lie behind the last of the one before it,
// or is there no room to say more?
static bool follow_each_other(const at_me_ref *r) {
  at_me_num row = r->stride[r->packed], part = r->part_stride;
  return r->rank == AT_CORE_MAX_RANK || r->size[r->packed].c == 1 ||
         (!row.v && !part.v && row.c == part.c * r->parts);
}

// The box as the virtual core is told of it, an at_core_view at the record's
// begin.
static void fill_view(at_me *m, const at_me_ref *r, at_me_record *v) {
  const at_me_num es = {r->bytes, NULL}, parts = {r->parts, NULL};
  uint32_t k = 0;
  at_me_record_value(m, v, offsetof(at_core_view, base), r->base);
  at_me_record_i32(v, offsetof(at_core_view, elem_bytes), (int32_t)r->bytes);
  for (uint32_t d = 0; d < r->rank; d++, k++) {
    at_me_num size = r->size[d], stride = r->stride[d];
    // In elements of memory: a packed row is several, or a part of one.
    if (r->parts > 1 && d == r->packed) {
      if (follow_each_other(r)) {
        size = at_me_mul(m, size, parts);
      } else {
        fill_dim(m, v, k++, size, at_me_mul(m, stride, es));
        size = parts;
      }
      stride = r->part_stride;
    } else if (r->split > 1 && d == r->packed && !size.v) {
      size.c = at_ceil_div(size.c, r->split);
    }
    fill_dim(m, v, k, size, at_me_mul(m, stride, es));
  }
  at_me_record_i32(v, offsetof(at_core_view, rank), (int32_t)k);
}

static LLVMValueRef view_of(at_me *m, const at_me_ref *r) {
  at_me_record v;
  at_me_record_begin(&v, sizeof(at_core_view));
  fill_view(m, r, &v);
  return at_me_record_end(m, &v);
}

void at_me_access(at_me *m, const at_me_ref *r, int32_t kind, int32_t loc) {
  if (!m->o->check || m->window) return;
  LLVMValueRef args[4] = {m->core, view_of(m, r), at_me_i32(m, kind),
                          at_me_i32(m, loc)};
  at_b_call(m->e, "at_core_access", NULL, args, 4);
}

void at_me_access_packed(at_me *m, const at_me_ref *r, const at_me_node *mask,
                         int32_t kind, int32_t loc) {
  if (!m->o->check || m->window) return;
  LLVMValueRef args[6] = {m->core,
                          view_of(m, r),
                          mask->ref.base,
                          at_em_i64(m->e, at_me_elements(mask)),
                          at_me_i32(m, kind),
                          at_me_i32(m, loc)};
  at_b_call(m->e, "at_core_access_packed", NULL, args, 6);
}

void at_me_expect(at_me *m, const at_me_ref *r, int32_t loc) {
  if (!m->o->check || m->window) return;
  LLVMValueRef args[3] = {m->core, view_of(m, r), at_me_i32(m, loc)};
  at_b_call(m->e, "at_core_expect", NULL, args, 3);
}

// A store where the mask says so; it is not known for packed rows.
static void announce_store(at_me *m, const at_mop *op, const at_me_ref *box,
                           at_me_node *mask) {
  int32_t loc = at_me_loc(m, op);
  bool each = mask && m->o->check && box->parts <= 1 && box->split <= 1;
  at_me_node *b = each ? at_me_materialise(m, mask) : NULL;
  if (!b) {
    at_me_access(m, box, AT_CORE_STORE | (mask ? AT_CORE_MASKED : 0), loc);
    return;
  }
  LLVMValueRef args[4] = {m->core, view_of(m, box), b->ref.base,
                          at_me_i32(m, loc)};
  at_b_call(m->e, "at_core_access_masked", NULL, args, 4);
  at_me_node_drop(m, b);
}

// ---- boxes
static at_me_num index_of(at_me *m, const at_mvalue *v) {
  return at_me_num_of(at_me_i64(m, at_me_scalar(m, v)));
}

// Where row i of a folded ref begins, in elements of memory.
static at_me_num folded_row(at_me *m, const at_me_ref *r, at_me_num i) {
  at_me_num row = {i.c / r->folds, NULL}, fold = {i.c % r->folds, NULL};
  if (i.v) {
    LLVMValueRef n = at_em_i64(m->e, r->folds);
    LLVMValueRef v = at_me_num_value(m, i);
    row = at_me_num_of(at_b_bin(m->e, AT_B_UDIV, v, n));
    fold = at_me_num_of(at_b_bin(m->e, AT_B_UREM, v, n));
  }
  return at_me_add(m, at_me_mul(m, row, r->stride[r->packed]),
                   at_me_mul(m, fold, r->fold_stride));
}

// b: NULL where leaving the ref ends the kernel. kept: NULL, or how many
// elements of the last dimension are touched.
static at_status make_box(at_me *m, const at_mop *op, const at_me_ref *ref,
                          uint32_t first, uint32_t rank, const int64_t *size,
                          const int64_t *step, const at_me_num *kept,
                          at_me_ref *out, at_me_beyond *b) {
  if (rank > ref->rank)
    return at_me_refuse(m, op, "more dimensions than memory");
  *out = *ref;
  out->padded = false;
  at_me_num at = {0, NULL};
  uint32_t lead = ref->rank - rank;
  for (uint32_t d = 0; d < ref->rank; d++) {
    int64_t n = d < lead ? 1 : size[d - lead], k = step ? step[d] : 1;
    if (first + d >= op->num_operands)
      return at_me_refuse(m, op, "its indices");
    at_me_num i = index_of(m, op->operands[first + d]);
    at_me_num covered = {n > 0 ? (n - 1) * k + 1 : 0, NULL};
    if (kept && d + 1 == ref->rank && k == 1) covered = *kept;
    if (b)
      at_me_beyond_dim(m, b, d, i, n, k);
    else
      guard(m, op, ref, d, i, covered, at_me_valid(ref, d));
    out->size[d] = (at_me_num){n, NULL};
    if (ref->split > 1 && d == ref->packed) {
      if (k != 1) return at_me_refuse(m, op, "strides over packed rows");
      out->row = at_me_add(m, out->row, i);
      continue;
    }
    if (ref->folds > 1 && d == ref->packed) {
      if (n > 1 && k % ref->folds)
        return at_me_refuse(m, op, "steps that are not whole rows");
      at = at_me_add(m, at, folded_row(m, ref, i));
      k /= ref->folds;
    } else {
      at = at_me_add(m, at, at_me_mul(m, i, ref->stride[d]));
    }
    out->stride[d] = at_me_mul(m, ref->stride[d], (at_me_num){k, NULL});
  }
  out->folds = 1;
  out->base = at_me_offset(m, ref->base, ref->bytes, at);
  return AT_OK;
}

at_status at_me_box(at_me *m, const at_mop *op, const at_me_ref *ref,
                    uint32_t first, uint32_t rank, const int64_t *size,
                    const int64_t *step, at_me_ref *out) {
  if (m->share) at_b_task_outside(m->e, &m->share->task);
  at_status st = make_box(m, op, ref, first, rank, size, step, NULL, out, NULL);
  if (m->share) at_b_task_inside(m->e, &m->share->task);
  return st;
}

at_status at_me_box_beyond(at_me *m, const at_mop *op, const at_me_ref *ref,
                           uint32_t first, uint32_t rank, const int64_t *size,
                           const int64_t *step, at_me_ref *out,
                           at_me_beyond *b) {
  *b = (at_me_beyond){.ref = *ref};
  if (!at_me_is_open(m, ref))
    return at_me_box(m, op, ref, first, rank, size, step, out);
  if (m->share) at_b_task_outside(m->e, &m->share->task);
  at_status st = make_box(m, op, ref, first, rank, size, step, NULL, out, b);
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
static at_status vector_box(at_me *m, const at_mop *op, const at_me_ref *ref,
                            uint32_t first, const at_me_node *v,
                            at_me_node *mask, at_me_ref *out, at_me_beyond *b) {
  int64_t buf[AT_ME_RANK];
  const int64_t *step = steps_of(op, buf);
  if (!mask || !at_me_is_sparse(m) || at_me_is_open(m, ref))
    return at_me_box_beyond(m, op, ref, first, v->rank, v->dim, step, out, b);
  *b = (at_me_beyond){.ref = *ref};
  at_me_num kept = at_me_kept(m, mask);
  return make_box(m, op, ref, first, v->rank, v->dim, step, &kept, out, NULL);
}

// ---- loads
static int32_t load_kind(at_me *m, const at_mop *op) {
  bool counts = at_mplan_value_of(m->plan, &op->results[0])->counts;
  return AT_CORE_LOAD | (counts ? 0 : AT_CORE_CHOSEN);
}

static void announce_load(at_me *m, const at_mop *op, const at_me_ref *box) {
  at_me_access(m, box, load_kind(m, op), at_me_loc(m, op));
}

// Loads of which v is made and that a choice might have dropped.
static void announce_taken(at_me *m, const at_mvalue *value) {
  at_walk_clear(&m->walk);
  at_walk_add(&m->walk, value, 0);
  for (at_walk_step s; at_walk_next(&m->walk, &s);) {
    const at_mvalue *v = s.item;
    const at_mop *op = v->op;
    if (!op || !at_mosaic_is_vector(v) || at_mplan_value_of(m->plan, v)->counts)
      continue;
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    if (c == AT_MOSAIC_VECTOR_LOAD || c == AT_MOSAIC_TPU_VECTOR_LOAD ||
        c == AT_MOSAIC_TPU_STRIDED_LOAD) {
      const at_me_node *n = at_me_vector(m, v);
      if (n && n->kind == AT_ME_LOAD)
        at_me_access(m, &n->ref, AT_CORE_LOAD, at_me_loc(m, op));
      continue;
    }
    if (!at_mosaic_computes(c) || c == AT_MOSAIC_ARITH_SELECT) continue;
    for (uint32_t i = 0; i < op->num_operands; i++)
      at_walk_add(&m->walk, op->operands[i], 0);
  }
}

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

at_status at_me_op_load(at_me *m, at_mop *op) {
  at_me_ref *ref = at_me_memory(m, op->operands[0]);
  at_me_node *n = at_me_node_new(m, AT_ME_LOAD, op, op->results[0].type);
  if (!ref || !n) return AT_OK;
  if (n->dtype != ref->dtype && !(n->dtype == AT_PRED))
    return at_me_refuse(m, op, "a vector of other elements");
  at_me_beyond beyond;
  uint32_t at;
  bool packed = at_me_is_sparse(m) && at_mosaic_op_segment(op, 2, &at) == 1;
  at_me_node *mask = packed ? at_me_vector(m, op->operands[at]) : NULL;
  AT_TRY(vector_box(m, op, ref, 1, n, mask, &n->ref, &beyond));
  if (packed)
    return mask ? at_me_load_expanded(m, op, &n->ref, mask, load_kind(m, op))
                : AT_OK;
  if (n->ref.pages &&
      !at_mplan_value_of(m->plan, &op->results[0])->feeds_product) {
    at_me_pages_fetch(m, &n->ref);
    n->ref.pages = false;
  }
  announce_load(m, op, &n->ref);
  at_me_node_reads(m, n, at_mplan_root_bit(ref->root));
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
  AT_TRY(make_box(m, op, ref, 1, ref->rank, ones, NULL, NULL, box, &beyond));
  at_me_beyond_begin(m, op, &beyond, box);
  return AT_OK;
}

at_status at_me_op_scalar_load(at_me *m, at_mop *op) {
  at_me_ref *ref = at_me_memory(m, op->operands[0]), box;
  at_me_beyond beyond;
  const at_pos *p = at_pos_make(m->e, false, 0, NULL, NULL);
  if (!ref) return AT_OK;
  if (ref->space == AT_MSPACE_SMEM && !at_me_is_open(m, ref) && !m->share &&
      !m->window && !at_mplan_value_of(m->plan, &op->results[0])->counts)
    AT_TRY(chosen_element(m, op, ref, &box));
  else
    AT_TRY(element(m, op, ref, 1, &box, &beyond, &p));
  announce_load(m, op, &box);
  at_val v = at_me_ref_load(m, &box, p);
  at_me_set_scalar(m, &op->results[0], v.re);
  return AT_OK;
}

at_status at_me_op_scalar_store(at_me *m, at_mop *op) {
  at_me_ref *ref = at_me_memory(m, op->operands[1]), box;
  at_me_beyond beyond;
  const at_pos *p;
  if (!ref) return AT_OK;
  AT_TRY(element(m, op, ref, 2, &box, &beyond, &p));
  at_me_settle(m, at_mplan_root_bit(ref->root), NULL);
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
static bool same_num(at_me_num a, at_me_num b) {
  return a.v == b.v && a.c == b.c;
}

// The same elements in the same order?
static bool same_box(const at_me_ref *a, const at_me_ref *b) {
  uint32_t i = 0, j = 0;
  if (a->base != b->base || a->bytes != b->bytes || a->parts != b->parts ||
      a->split != b->split || a->parts > 1 || a->split > 1)
    return false;
  for (;;) {
    while (i < a->rank && !a->size[i].v && a->size[i].c == 1) i++;
    while (j < b->rank && !b->size[j].v && b->size[j].c == 1) j++;
    if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
    if (!same_num(a->size[i], b->size[j]) ||
        !same_num(a->stride[i], b->stride[j]))
      return false;
    i++;
    j++;
  }
}

// Does computing n while `box` is being written read what was written before?
static bool conflicts(at_me *m, const at_me_node *tree, const at_me_ref *box) {
  enum { MOVED, AGREES };  // its place, with that of the value
  uint64_t bit = at_mplan_root_bit(box->root);
  at_walk_clear(&m->walk);
  at_walk_add(&m->walk, tree, AGREES);
  for (at_walk_step s; at_walk_next(&m->walk, &s);) {
    const at_me_node *n = s.item;
    // A product is computed before.
    if (!(n->reads & bit) || n->kind == AT_ME_DOT) continue;
    if (n->kind == AT_ME_LOAD) {
      if ((at_mplan_root_bit(n->ref.root) & bit) &&
          (s.tag == MOVED || !same_box(&n->ref, box)))
        return true;
      continue;
    }
    bool keeps = n->kind == AT_ME_APPLY || n->kind == AT_ME_RESHAPE;
    for (uint32_t i = 0; i < n->num_in; i++)
      at_walk_add(&m->walk, n->in[i], keeps ? s.tag : MOVED);
  }
  return false;
}

// Bytes, one per element; NULL at run time: there is no mask.
static LLVMValueRef mask_bytes(at_me *m, const at_me_node *mask) {
  return mask ? mask->ref.base : at_b_null(at_b_ptr(m->e));
}

void at_me_check_nan(at_me *m, const at_mop *op, at_me_node *v,
                     at_me_node *where, at_core_nan_use use) {
  if (!m->o->check_nan || m->window || !at_is_float(v->dtype)) return;
  at_me_node *b = at_me_materialise(m, v);
  at_me_node *mask = where ? at_me_materialise(m, where) : NULL;
  if (!b || (where && !mask)) return;
  LLVMValueRef args[7] = {m->core,
                          b->ref.base,
                          mask_bytes(m, mask),
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
  announce_store(m, op, box, mask);
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

static at_status store(at_me *m, at_mop *op, uint32_t first, at_me_node *mask,
                       bool add) {
  at_me_node *v = at_me_vector(m, op->operands[0]);
  at_me_ref *ref = at_me_memory(m, op->operands[1]), box;
  at_me_beyond beyond;
  if (!v || !ref) return AT_OK;
  AT_TRY(vector_box(m, op, ref, first, v, mask, &box, &beyond));
  at_me_settle(m, at_mplan_root_bit(ref->root), v);
  at_me_check_nan(m, op, v, mask, AT_CORE_NAN_STORED);
  AT_TRY(store_into(m, op, &box, v, mask, add));
  at_me_beyond_end(m, op, &beyond, &box);
  return AT_OK;
}

at_status at_me_op_store(at_me *m, at_mop *op) {
  return store(m, op, 2, NULL, false);
}

at_status at_me_op_masked_store(at_me *m, at_mop *op) {
  uint32_t first, at;
  at_me_node *mask = NULL;
  at_mosaic_op_segment(op, 2, &first);
  if (at_mosaic_op_segment(op, 3, &at) == 1)
    mask = at_me_vector(m, op->operands[at]);
  return store(m, op, first, mask, at_mosaic_op_int(op, "add", 0) != 0);
}

// ---- indexed
typedef struct indexed {
  const at_me_ref *ref;
  at_me_node *index[AT_ME_RANK], *mask, *value;
  at_me_ref *dense;  // loads: the result
  bool add;
} indexed;

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

static void load_one(at_me *m, const at_pos *p, void *arg) {
  const indexed *x = arg;
  at_val v = at_me_ref_load(m, x->ref, anywhere(m, x, p));
  if (x->mask)
    v.re = at_b_select(m->e, at_me_eval(m, x->mask, p).re, v.re,
                       at_em_zero(m->e, x->ref->dtype).re);
  at_me_ref_store(m, x->dense, p, v);
}

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

// The indices that the mask lets through, dimension by dimension.
static void check_indices(at_me *m, const at_mop *op, const indexed *x) {
  if (!m->o->check || m->window) return;
  at_me_node *mask = x->mask ? at_me_materialise(m, x->mask) : NULL;
  for (uint32_t d = 0; d < x->ref->rank; d++) {
    at_me_node *i = at_me_materialise(m, x->index[d]);
    if (!i || i->dtype != AT_S32 || (x->mask && !mask)) continue;
    LLVMValueRef args[8] = {m->core,
                            i->ref.base,
                            mask_bytes(m, mask),
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
  bool known = x->ref->parts <= 1 && x->ref->split <= 1;
  at_me_record_begin(&v, sizeof(at_core_places));
  fill_view(m, x->ref, &v);
  for (uint32_t d = 0; d < x->ref->rank && known; d++) {
    at_me_node *i = held[num++] = at_me_materialise(m, x->index[d]);
    known = i && i->dtype == AT_S32;
    if (!known) break;
    at_me_record_value(m, &v, offsetof(at_core_places, index) + 8 * d,
                       i->ref.base);
    at_me_record_num(m, &v, offsetof(at_core_places, n),
                     (at_me_num){at_me_elements(i), NULL});
  }
  at_me_node *mask = NULL;
  if (known && x->mask) {
    mask = held[num++] = at_me_materialise(m, x->mask);
    known = mask != NULL;
  }
  if (mask)
    at_me_record_value(m, &v, offsetof(at_core_places, mask), mask->ref.base);
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

at_status at_me_op_load_idx(at_me *m, at_mop *op) {
  at_me_ref *ref = at_me_memory(m, op->operands[0]), whole;
  indexed x = {.ref = &whole};
  const at_mtype *t = op->results[0].type;
  if (!ref) return AT_OK;
  whole = at_me_whole(m, op, ref);
  AT_TRY(indices(m, op, 1, &x));
  at_me_node *b =
      at_me_buffer(m, op, at_mosaic_dtype_of(t), t->shape.rank, t->shape.ptr);
  if (!b) return AT_OK;
  check_indices(m, op, &x);
  announce_places(m, op, &x, load_kind(m, op));
  x.dense = &b->ref;
  at_me_space s = {.total = at_me_elements(b), .widest = 4};
  for (uint32_t d = 0; d < x.ref->rank; d++)
    at_me_space_tree(m, &s, x.index[d]);
  at_me_loops(m, &s, load_one, &x);
  return at_me_set_node(m, &op->results[0], b);
}

at_status at_me_op_store_idx(at_me *m, at_mop *op) {
  at_me_ref *ref = at_me_memory(m, op->operands[1]), whole;
  indexed x = {.ref = &whole,
               .value = at_me_vector(m, op->operands[0]),
               .add = at_mosaic_op_int(op, "add", 0) != 0};
  if (!ref || !x.value) return AT_OK;
  whole = at_me_whole(m, op, ref);
  AT_TRY(indices(m, op, 2, &x));
  at_me_settle(m, at_mplan_root_bit(x.ref->root), NULL);
  at_me_prepare(m, x.value);
  check_indices(m, op, &x);
  if (x.add) announce_places(m, op, &x, AT_CORE_LOAD);
  announce_places(m, op, &x, AT_CORE_STORE);
  at_me_space s = {.total = at_me_elements(x.value), .scalar = true};
  at_me_loops(m, &s, store_one, &x);
  return AT_OK;
}

// ---- views
static at_status shape_of(at_me *m, const at_mop *op, at_me_ref *r,
                          uint32_t dynamic_first, uint32_t num_dynamic) {
  const at_mtype *t = op->results[0].type;
  uint32_t used = 0;
  if (t->shape.rank > AT_ME_RANK)
    return at_me_refuse(m, op, "%u dimensions", t->shape.rank);
  r->rank = t->shape.rank;
  for (uint32_t d = 0; d < r->rank; d++) {
    r->size[d] = (at_me_num){t->shape.ptr[d], NULL};
    if (t->shape.ptr[d] != AT_MDYN) continue;
    if (used == num_dynamic) return at_me_refuse(m, op, "its dynamic sizes");
    r->size[d] = index_of(m, op->operands[dynamic_first + used++]);
  }
  return AT_OK;
}

// Up to where slices of dimension d may reach.
static at_me_num room_of(const at_me_ref *r, uint32_t d) {
  at_me_num n = r->size[d];
  bool hbm = r->space == AT_MSPACE_ANY || r->space == AT_MSPACE_HBM;
  if (!hbm || n.v || d + 2 < r->rank || r->storage == AT_INVALID) return n;
  uint32_t packing = 32 / AT_MAX(at_dtype_of(r->storage)->bits, 1u);
  int64_t tile = d + 1 == r->rank ? 128 : 8 * (int64_t)AT_MAX(packing, 1u);
  n.c = at_ceil_div(n.c, tile) * tile;
  return n;
}

// How much of `size` elements from index i lies within `valid`.
static at_me_num clip(at_me *m, at_me_num i, at_me_num size, at_me_num valid) {
  at_em *e = m->e;
  if (!i.v && !size.v && !valid.v)
    return (at_me_num){AT_MAX(AT_MIN(size.c, valid.c - i.c), 0), NULL};
  LLVMValueRef s = at_me_num_value(m, size), zero = at_em_i64(e, 0);
  LLVMValueRef left =
      at_b_bin(e, AT_B_SUB, at_me_num_value(m, valid), at_me_num_value(m, i));
  left = at_b_select(e, at_b_icmp(e, AT_B_SLT, left, zero), zero, left);
  return at_me_num_of(at_b_select(e, at_b_icmp(e, AT_B_SLT, left, s), left, s));
}

at_status at_me_op_ref_slice(at_me *m, at_mop *op) {
  at_me_ref *in = at_me_memory(m, op->operands[0]);
  uint32_t first, dynamic;
  if (!in) return AT_OK;
  uint32_t n = at_mosaic_op_segment(op, 1, &first);
  uint32_t num = at_mosaic_op_segment(op, 2, &dynamic);
  at_me_ref r = *in;
  AT_TRY(shape_of(m, op, &r, dynamic, num));
  if (n != in->rank || r.rank != in->rank)
    return at_me_refuse(m, op, "%u indices", n);
  at_me_num at = {0, NULL};
  bool open = at_me_is_open(m, in);
  for (uint32_t d = 0; d < r.rank; d++) {
    at_me_num i = index_of(m, op->operands[first + d]);
    at_me_num room = room_of(in, d);
    if (open)
      i = at_me_beyond_start(m, i, in->size[d].c);
    else if (at_mplan_value_of(m->plan, &op->results[0])->counts)
      guard(m, op, in, d, i, r.size[d], room);
    r.valid[d] = r.size[d];
    if (open || in->padded || room.c != in->size[d].c) {
      r.valid[d] = clip(m, i, r.size[d], at_me_valid(in, d));
      r.padded |= !same_num(r.valid[d], r.size[d]);
    }
    if (r.split > 1 && d == r.packed)
      r.row = at_me_add(m, r.row, i);
    else
      at = at_me_add(m, at, at_me_mul(m, i, in->stride[d]));
  }
  r.base = at_me_offset(m, in->base, in->bytes, at);
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

at_status at_me_op_ref_squeeze(at_me *m, at_mop *op) {
  at_me_ref *in = at_me_memory(m, op->operands[0]);
  const at_mtype *t = op->results[0].type;
  if (!in) return AT_OK;
  at_me_ref r = *in;
  uint32_t j = t->shape.rank;
  if (j == 0) r = at_me_whole(m, op, in);
  r.rank = j;
  r.packed = AT_ME_RANK;
  at_me_num gone = {1, NULL};  // 0: nothing is there of a dimension that goes
  for (uint32_t i = in->rank; i-- > 0;) {
    bool one = !in->size[i].v && in->size[i].c == 1;
    // Of equal sizes the later dimension stays; only ones may go.
    bool keep = j > 0 && (!one || t->shape.ptr[j - 1] == 1 || i + 1 == j);
    if (!keep) {
      if (!one) return at_me_refuse(m, op, "a dimension that is not 1");
      gone = at_me_mul(m, gone, at_me_valid(in, i));
      continue;
    }
    j--;
    r.size[j] = in->size[i];
    r.stride[j] = in->stride[i];
    r.valid[j] = in->valid[i];
    if (i == in->packed) r.packed = j;
  }
  if (r.padded && r.rank) r.valid[0] = at_me_mul(m, r.valid[0], gone);
  if (j != 0 || (r.split > 1 && r.packed == AT_ME_RANK))
    return at_me_refuse(m, op, "these dimensions");
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// Rows of parts that become several shorter ones each: the whole rows are
// reshaped, then folded.
static uint32_t fold_rows(const at_me_ref *in, at_me_ref *r) {
  if (in->parts <= 1 || in->rank < 2 || r->rank < 2) return 1;
  int64_t have = in->size[in->rank - 1].c, want = r->size[r->rank - 1].c;
  int64_t folds = want > 0 && have % want == 0 ? have / want : 1;
  if (folds == 1 || r->size[r->rank - 2].c % folds) return 1;
  r->size[r->rank - 2].c /= folds;
  r->size[r->rank - 1].c = have;
  return (uint32_t)folds;
}

static void fold(at_me *m, at_me_ref *r, uint32_t folds) {
  uint32_t last = r->rank - 1;
  if (folds == 1) return;
  r->size[last].c /= folds;
  r->size[last - 1].c *= folds;
  r->folds = folds;
  r->fold_stride = at_me_mul(m, r->stride[last], r->size[last]);
}

at_status at_me_op_ref_reshape(at_me *m, at_mop *op) {
  at_me_ref *in = at_me_memory(m, op->operands[0]);
  if (!in) return AT_OK;
  at_me_ref r = at_me_whole(m, op, in);
  AT_TRY(shape_of(m, op, &r, 0, 0));
  for (uint32_t d = 0; d < in->rank; d++)
    if (in->size[d].v) return at_me_refuse(m, op, "a dynamic shape");
  uint32_t folds = fold_rows(in, &r);
  // Packed rows stay the second-last dimension; memory is reshaped with them
  // counted as it holds them.
  at_me_ref from = *in;
  uint32_t a = in->rank, b = r.rank, p = b - 2;
  int64_t rows = 0;
  if (in->parts > 1 || in->split > 1) {
    if (a < 2 || b < 2 || in->packed != a - 2 ||
        r.size[b - 1].c != in->size[a - 1].c || in->row.v ||
        in->row.c % in->split || r.size[p].c % in->split ||
        in->size[a - 2].c % in->split)
      return at_me_refuse(m, op, "a view with packed rows");
    r.packed = p;
    rows = r.size[p].c;
    from.size[a - 2].c /= in->split;
    r.size[p].c /= in->split;
  }
  if (!at_me_reshape_view(m, &from, &r))
    return at_me_refuse(m, op, "memory that does not run on");
  if (rows) r.size[p].c = rows;
  fold(m, &r, folds);
  // A single row of parts still needs its place.
  if (in->split > 1 && in->row.c) {
    at_me_num at = {in->row.c / in->split, NULL};
    r.base = at_me_offset(m, in->base, in->bytes,
                          at_me_mul(m, at, in->stride[a - 2]));
    r.row = (at_me_num){0, NULL};
  }
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

at_status at_me_op_ref_bitcast(at_me *m, at_mop *op) {
  at_me_ref *in = at_me_memory(m, op->operands[0]);
  at_mosaic_ref t;
  AT_TRY(at_mosaic_ref_of(op->results[0].type, &t));
  if (!in) return AT_OK;
  at_me_ref r = at_me_whole(m, op, in);
  uint32_t have = at_dtype_of(in->storage)->bits;
  uint32_t want = at_dtype_of(t.dtype)->bits;
  if (!have || !want) return at_me_refuse(m, op, "semaphores");
  uint32_t packed = r.rank >= 2 ? r.rank - 2 : 0;
  r.dtype = t.dtype;
  if ((in->parts > 1 || in->split > 1) &&
      want == at_dtype_of(in->dtype)->bits) {
    at_me_set_ref(m, &op->results[0], &r);
    return AT_OK;
  }
  if (in->parts > 1 || in->split > 1) {
    if (want != have) return at_me_refuse(m, op, "a view of a view");
    if (in->parts > 1) r.stride[in->packed] = in->part_stride;
    if (in->split > 1) {
      if (in->row.v || in->row.c % in->split)
        return at_me_refuse(m, op, "a slice of a view");
      at_me_num at = {in->row.c / in->split, NULL};
      r.base = at_me_offset(m, in->base, in->bytes,
                            at_me_mul(m, at, in->stride[in->packed]));
      r.row = (at_me_num){0, NULL};
    }
    r.parts = r.split = 1;
  }
  if (want == have) {
    r.storage = t.dtype;
  } else if (want > have) {
    r.parts = want / have;
    r.packed = packed;
    r.part_stride = r.stride[packed];
    r.stride[packed] =
        at_me_mul(m, r.stride[packed], (at_me_num){r.parts, NULL});
  } else {
    r.split = have / want;
    r.packed = packed;
    r.row = (at_me_num){0, NULL};
  }
  for (uint32_t d = 0; d < r.rank && d < t.shape.rank; d++)
    if (t.shape.ptr[d] != AT_MDYN)
      r.size[d] = (at_me_num){t.shape.ptr[d], NULL};
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

at_status at_me_op_same_ref(at_me *m, at_mop *op) {
  at_me_ref *r = at_me_memory(m, op->operands[0]);
  if (r) at_me_set_ref(m, &op->results[0], r);
  return AT_OK;
}

at_status at_me_op_ref_cast(at_me *m, at_mop *op) {
  at_me_ref *in = at_me_memory(m, op->operands[0]);
  at_mosaic_ref t;
  AT_TRY(at_mosaic_ref_of(op->results[0].type, &t));
  if (!in) return AT_OK;
  at_me_ref r = at_me_whole(m, op, in);
  uint32_t at, dynamic, strides;
  uint32_t offset = at_mosaic_op_segment(op, 1, &at);
  uint32_t num = at_mosaic_op_segment(op, 2, &dynamic);
  if (at_mosaic_op_segment(op, 3, &strides))
    return at_me_refuse(m, op, "strides");
  AT_TRY(shape_of(m, op, &r, dynamic, num));
  if (t.dtype != AT_INVALID &&
      at_dtype_of(t.dtype)->bits != at_dtype_of(in->storage)->bits)
    return at_me_refuse(m, op, "elements of another width");
  r.dtype = r.storage = t.dtype;
  r.parts = r.split = 1;
  at_me_num step = {1, NULL};
  for (uint32_t d = r.rank; d-- > 0;) {
    r.stride[d] = step;
    step = at_me_mul(m, step, r.size[d]);
  }
  if (offset == 1)
    r.base = at_me_offset(m, r.base, r.bytes, index_of(m, op->operands[at]));
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// ---- allocation
at_core_space at_mosaic_core_space(at_mosaic_space s) {
  switch (s) {
    case AT_MSPACE_ANY:
    case AT_MSPACE_HBM:
      return AT_CORE_HBM;
    case AT_MSPACE_SMEM:
      return AT_CORE_SMEM;
    case AT_MSPACE_SEMAPHORE:
      return AT_CORE_SEM;
    case AT_MSPACE_VMEM_SHARED:
      return AT_CORE_VMEM_SHARED;
    case AT_MSPACE_HOST:
      return AT_CORE_HOST;
    default:
      return AT_CORE_VMEM;
  }
}

LLVMValueRef at_me_alloc(at_me *m, const at_mop *op, at_core_space s,
                         int64_t bytes) {
  LLVMValueRef args[4] = {m->core, at_me_i32(m, s), at_em_i64(m->e, bytes),
                          at_me_i32(m, at_me_loc(m, op))};
  return at_b_call(m->e, "at_core_alloc", at_b_ptr(m->e), args, 4);
}

at_status at_me_op_alloca(at_me *m, at_mop *op) {
  at_mosaic_ref t;
  AT_TRY(at_mosaic_ref_of(op->results[0].type, &t));
  int64_t bytes;
  if (t.shape.rank > AT_ME_RANK)
    return at_me_refuse(m, op, "%u dimensions", t.shape.rank);
  at_me_ref r;
  int64_t dim[AT_ME_RANK];
  for (uint32_t d = 0; d < t.shape.rank; d++) dim[d] = t.shape.ptr[d];
  if (!at_mosaic_alloca_bytes(&t, &bytes))
    return at_me_refuse(m, op, "a dynamic size");
  LLVMValueRef p = at_me_alloc(m, op, at_mosaic_core_space(t.space), bytes);
  at_me_dense(m, &r, p, t.dtype, t.shape.rank, dim);
  if (t.semaphore != AT_MSEM_NONE) r.bytes = AT_CORE_SEM_BYTES;
  r.space = t.space;
  r.root = at_mplan_value_of(m->plan, &op->results[0])->root;
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}
