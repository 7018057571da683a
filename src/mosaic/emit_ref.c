// Views of refs, and memory that the body allocates.
#include <string.h>

#include "mosaic/emit_memory.h"
#include "mosaic/mosaic_internal.h"

const at_me_packing at_me_plain = {.parts = 1, .split = 1};

// A copy that may be written. Without memory the kernel fails, and it is
// `spare`.
static void *own_copy(at_me *m, const void *from, size_t size, void *spare) {
  void *own = at_arena_copy(m->a, from, size, 8);
  if (own) return own;
  at_em_fail(m->e, AT_NO_MEMORY("refs of a kernel"));
  return memcpy(spare, from, size);
}

// The ref's own copy, for a change that other refs of the home must not see.
// Never NULL.
at_me_home *at_me_rehome(at_me *m, at_me_ref *r) {
  static _Thread_local at_me_home spare;
  at_me_home *own = own_copy(m, r->home, sizeof *own, &spare);
  r->home = own;
  return own;
}

// The same for how elements lie.
at_me_packing *at_me_repack(at_me *m, at_me_ref *r) {
  static _Thread_local at_me_packing spare;
  at_me_packing *own = own_copy(m, r->packing, sizeof *own, &spare);
  r->packing = own;
  return own;
}

// A copy as long as the function. Never NULL.
const at_me_num *at_me_keep_valid(at_me *m, const at_me_num valid[AT_ME_RANK]) {
  static const at_me_num none[AT_ME_RANK];
  at_me_num *own = at_arena_copy(m->a, valid, sizeof none, 8);
  if (!own) at_em_fail(m->e, AT_NO_MEMORY("refs of a kernel"));
  return own ? own : none;
}

// Dropped dimensions must have size 1; a packed one among them leaves no packed
// dimension.
void at_me_ref_trim(at_me *m, at_me_ref *r, uint32_t rank) {
  if (r->rank <= rank) return;
  uint32_t cut = r->rank - rank;
  memmove(r->size, r->size + cut, rank * sizeof r->size[0]);
  memmove(r->stride, r->stride + cut, rank * sizeof r->stride[0]);
  uint32_t packed = r->packing->packed;
  packed = packed >= cut ? packed - cut : AT_ME_RANK;
  at_me_repack(m, r)->packed = packed;
  r->rank = rank;
}

bool at_me_same_num(at_me_num a, at_me_num b) {
  return a.v == b.v && a.c == b.c;
}

// ---- views
// Sizes of the result's type; dynamic ones are operands from `dynamic_first`
// on.
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
    r->size[d] = at_me_index_of(m, op->operands[dynamic_first + used++]);
  }
  return AT_OK;
}

// Up to where slices of dimension d may reach.
static at_me_num room_of(const at_me_ref *r, uint32_t d) {
  at_me_num n = r->size[d];
  bool hbm = r->home->space == AT_MSPACE_ANY || r->home->space == AT_MSPACE_HBM;
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

// Moves the base by the indices. In HBM a slice may reach into the padding of
// the last tiles: then `valid` says what is really there.
at_status at_me_op_ref_slice(at_me *m, at_mop *op) {
  const at_me_ref *in = at_me_memory(m, op->operands[0]);
  uint32_t first, dynamic;
  if (!in) return AT_OK;
  uint32_t n = at_mosaic_op_segment(op, 1, &first);
  uint32_t num = at_mosaic_op_segment(op, 2, &dynamic);
  at_me_ref r = *in;
  AT_TRY(shape_of(m, op, &r, dynamic, num));
  if (n != in->rank || r.rank != in->rank)
    return at_me_refuse(m, op, "%u indices", n);
  at_me_num at = {0, NULL}, valid[AT_ME_RANK] = {{0}};
  bool open = at_me_is_open(m, in), padded = in->valid != NULL;
  for (uint32_t d = 0; d < r.rank; d++) {
    at_me_num i = at_me_index_of(m, op->operands[first + d]);
    at_me_num room = room_of(in, d);
    if (open)
      i = at_me_beyond_start(m, i, in->size[d].c);
    else if (at_mplan_value_of(m->plan, &op->results[0])->counts)
      at_me_guard(m, op, in, d, i, r.size[d], room);
    valid[d] = r.size[d];
    if (open || in->valid || room.c != in->size[d].c) {
      valid[d] = clip(m, i, r.size[d], at_me_valid(in, d));
      padded |= !at_me_same_num(valid[d], r.size[d]);
    }
    if (r.packing->split > 1 && d == r.packing->packed)
      at_me_repack(m, &r)->row = at_me_add(m, in->packing->row, i);
    else
      at = at_me_add(m, at, at_me_mul(m, i, in->stride[d]));
  }
  r.valid = padded ? at_me_keep_valid(m, valid) : NULL;
  r.base = at_me_offset(m, in->base, in->bytes, at);
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// Shared memory lies in the subcores' own, a part of each row in each; the
// parts follow each other in the order of the subcores.
at_status at_me_op_ref_stripe(at_me *m, at_mop *op) {
  const at_me_ref *in = at_me_memory(m, op->operands[0]);
  const at_mtype *t = op->results[0].type;
  if (!in) return AT_OK;
  at_me_ref r = *in;
  uint32_t d = in->rank - 1;
  if (in->valid || t->shape.rank != in->rank)
    return at_me_refuse(m, op, "a view that its memory does not fill");
  at_me_num n = {t->shape.ptr[d], NULL};
  at_me_num me = at_me_num_of(
      at_me_i64(m, at_me_core_field(m, offsetof(at_core, subcore_index))));
  at_me_num i = at_me_mul(m, me, n);
  at_me_guard(m, op, in, d, i, n, in->size[d]);
  r.size[d] = n;
  at_me_rehome(m, &r)->space = AT_MSPACE_VMEM;
  r.base = at_me_offset(m, in->base, in->bytes, at_me_mul(m, i, in->stride[d]));
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// Dimensions of 1 go; which ones is decided from the last backwards.
at_status at_me_op_ref_squeeze(at_me *m, at_mop *op) {
  const at_me_ref *in = at_me_memory(m, op->operands[0]);
  const at_mtype *t = op->results[0].type;
  if (!in) return AT_OK;
  at_me_ref r = *in;
  uint32_t j = t->shape.rank;
  if (j == 0) r = at_me_whole(m, op, in);
  r.rank = j;
  uint32_t packed = AT_ME_RANK;
  at_me_num valid[AT_ME_RANK] = {{0}};
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
    if (in->valid) valid[j] = in->valid[i];
    if (i == in->packing->packed) packed = j;
  }
  if (r.valid && r.rank) valid[0] = at_me_mul(m, valid[0], gone);
  if (r.valid) r.valid = at_me_keep_valid(m, valid);
  at_me_repack(m, &r)->packed = packed;
  if (j != 0 || (r.packing->split > 1 && packed == AT_ME_RANK))
    return at_me_refuse(m, op, "these dimensions");
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// Rows of parts that become several shorter ones each: the whole rows are
// reshaped, then folded.
static uint32_t fold_rows(const at_me_ref *in, at_me_ref *r) {
  if (in->packing->parts <= 1 || in->rank < 2 || r->rank < 2) return 1;
  int64_t have = in->size[in->rank - 1].c, want = r->size[r->rank - 1].c;
  int64_t folds = want > 0 && have % want == 0 ? have / want : 1;
  if (folds == 1 || r->size[r->rank - 2].c % folds) return 1;
  r->size[r->rank - 2].c /= folds;
  r->size[r->rank - 1].c = have;
  return (uint32_t)folds;
}

// Undoes the detour of fold_rows: each row of parts is `folds` shorter ones.
static void fold(at_me *m, at_me_ref *r, uint32_t folds) {
  uint32_t last = r->rank - 1;
  if (folds == 1) return;
  r->size[last].c /= folds;
  r->size[last - 1].c *= folds;
  at_me_packing *own = at_me_repack(m, r);
  own->folds = folds;
  own->fold_stride = at_me_mul(m, r->stride[last], r->size[last]);
}

// Only where the memory runs on; packed rows must stay whole and second-last.
at_status at_me_op_ref_reshape(at_me *m, at_mop *op) {
  const at_me_ref *in = at_me_memory(m, op->operands[0]);
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
  if (in->packing->parts > 1 || in->packing->split > 1) {
    if (a < 2 || b < 2 || in->packing->packed != a - 2 ||
        r.size[b - 1].c != in->size[a - 1].c || in->packing->row.v ||
        in->packing->row.c % in->packing->split ||
        r.size[p].c % in->packing->split ||
        in->size[a - 2].c % in->packing->split)
      return at_me_refuse(m, op, "a view with packed rows");
    at_me_repack(m, &r)->packed = p;
    rows = r.size[p].c;
    from.size[a - 2].c /= in->packing->split;
    r.size[p].c /= in->packing->split;
  }
  if (!at_me_reshape_view(m, &from, &r))
    return at_me_refuse(m, op, "memory that does not run on");
  if (rows) r.size[p].c = rows;
  fold(m, &r, folds);
  // A single row of parts still needs its place.
  if (in->packing->split > 1 && in->packing->row.c) {
    at_me_num at = {in->packing->row.c / in->packing->split, NULL};
    r.base = at_me_offset(m, in->base, in->bytes,
                          at_me_mul(m, at, in->stride[a - 2]));
    at_me_repack(m, &r)->row = (at_me_num){0, NULL};
  }
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// Wider elements: `parts` of memory's make one, along the second-last
// dimension. Narrower: memory's are split. Of a view only the way back is
// known.
at_status at_me_op_ref_bitcast(at_me *m, at_mop *op) {
  const at_me_ref *in = at_me_memory(m, op->operands[0]);
  at_mosaic_ref t;
  AT_TRY(at_mosaic_ref_of(op->results[0].type, &t));
  if (!in) return AT_OK;
  at_me_ref r = at_me_whole(m, op, in);
  uint32_t have = at_dtype_of(in->storage)->bits;
  uint32_t want = at_dtype_of(t.dtype)->bits;
  if (!have || !want) return at_me_refuse(m, op, "semaphores");
  uint32_t packed = r.rank >= 2 ? r.rank - 2 : 0;
  r.dtype = t.dtype;
  if ((in->packing->parts > 1 || in->packing->split > 1) &&
      want == at_dtype_of(in->dtype)->bits) {
    at_me_set_ref(m, &op->results[0], &r);
    return AT_OK;
  }
  if (in->packing->parts > 1 || in->packing->split > 1) {
    if (want != have) return at_me_refuse(m, op, "a view of a view");
    if (in->packing->parts > 1 && in->packing->packed >= r.rank)
      return at_me_refuse(m, op, "a part of packed rows");
    if (in->packing->parts > 1)
      r.stride[in->packing->packed] = in->packing->part_stride;
    if (in->packing->split > 1) {
      if (in->packing->row.v || in->packing->row.c % in->packing->split)
        return at_me_refuse(m, op, "a slice of a view");
      at_me_num at = {in->packing->row.c / in->packing->split, NULL};
      r.base = at_me_offset(m, in->base, in->bytes,
                            at_me_mul(m, at, in->stride[in->packing->packed]));
      at_me_repack(m, &r)->row = (at_me_num){0, NULL};
    }
    at_me_packing *own = at_me_repack(m, &r);
    own->parts = own->split = 1;
  }
  if (want == have) {
    r.storage = t.dtype;
  } else if (want > have) {
    at_me_packing *own = at_me_repack(m, &r);
    own->parts = want / have;
    own->packed = packed;
    own->part_stride = r.stride[packed];
    r.stride[packed] =
        at_me_mul(m, r.stride[packed], (at_me_num){own->parts, NULL});
  } else {
    at_me_packing *own = at_me_repack(m, &r);
    own->split = have / want;
    own->packed = packed;
    own->row = (at_me_num){0, NULL};
  }
  for (uint32_t d = 0; d < r.rank && d < t.shape.rank; d++)
    if (t.shape.ptr[d] != AT_MDYN)
      r.size[d] = (at_me_num){t.shape.ptr[d], NULL};
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// Operations that change only what the type says of a ref.
at_status at_me_op_same_ref(at_me *m, at_mop *op) {
  const at_me_ref *r = at_me_memory(m, op->operands[0]);
  if (r) at_me_set_ref(m, &op->results[0], r);
  return AT_OK;
}

// tpu.reinterpret_cast: dense memory of another shape and type of the same
// width, perhaps from an offset.
at_status at_me_op_ref_cast(at_me *m, at_mop *op) {
  const at_me_ref *in = at_me_memory(m, op->operands[0]);
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
  at_me_packing *own = at_me_repack(m, &r);
  own->parts = own->split = 1;
  at_me_num step = {1, NULL};
  for (uint32_t d = r.rank; d-- > 0;) {
    r.stride[d] = step;
    step = at_me_mul(m, step, r.size[d]);
  }
  if (offset == 1)
    r.base =
        at_me_offset(m, r.base, r.bytes, at_me_index_of(m, op->operands[at]));
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}

// ---- allocation
// CMEM has no memory of its own here.
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

// Address of stack memory of the core; semaphores for that space.
LLVMValueRef at_me_alloc(at_me *m, const at_mop *op, at_core_space s,
                         int64_t bytes) {
  LLVMValueRef args[4] = {m->core, at_me_i32(m, s), at_em_i64(m->e, bytes),
                          at_me_i32(m, at_me_loc(m, op))};
  return at_b_call(m->e, "at_core_alloc", at_b_ptr(m->e), args, 4);
}

// Static sizes only. The memory belongs to the root that the plan numbered.
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
  at_me_home *home = at_me_rehome(m, &r);
  home->space = t.space;
  home->root = at_mplan_value_of(m->plan, &op->results[0])->root;
  at_me_set_ref(m, &op->results[0], &r);
  return AT_OK;
}
