// Kernels without bounds checks (disable_bounds_checks). On the chip they reach
// whatever lies behind a buffer; here what is there of a box is read and
// written, the rest is zeros and goes nowhere. A box inside its buffer, the
// usual case, costs one comparison per dimension. In every kernel a number from
// SMEM that `select` may drop is read so: where(i < n, ends[i], 0).
#include <stddef.h>

#include "mosaic/emit_memory.h"

// Only plain views of static shape: packed ones keep their checks, and so do
// semaphores and checked runs.
bool at_me_is_open(const at_me *m, const at_me_ref *r) {
  if (!m->k->config.disable_bounds_checks || m->o->check ||
      r->storage == AT_INVALID || r->packing->parts > 1 ||
      r->packing->split > 1)
    return false;
  for (uint32_t d = 0; d < r->rank; d++)
    if (r->size[d].v) return false;
  return true;
}

at_me_num at_me_valid(const at_me_ref *r, uint32_t d) {
  return r->valid ? r->valid[d] : r->size[d];
}

// All indices must be constants. Used where a loop that threads share must not
// call the core.
bool at_me_stays_inside(at_me *m, const at_mop *op, uint32_t ref,
                        const at_mtype *vector) {
  const at_me_ref *r = at_me_memory(m, op->operands[ref]);
  uint32_t rank = vector->shape.rank;
  if (!r || !at_me_is_open(m, r)) return true;
  if (at_mosaic_has_steps(op) || rank > r->rank) return false;
  for (uint32_t d = 0; d < r->rank; d++) {
    int64_t i,
        n = d + rank < r->rank ? 1 : vector->shape.ptr[d + rank - r->rank];
    at_me_num limit = at_me_valid(r, d);
    if (limit.v ||
        !at_b_const_int(at_me_scalar(m, op->operands[ref + 1 + d]), &i) ||
        i < 0 || i > limit.c - n)
      return false;
  }
  return true;
}

// ---- loads and stores
// One unsigned comparison tells whether the box leaves [0, limit): a negative
// index is a large unsigned one. Where limit is only known at run time, it may
// also be smaller than the box.
void at_me_beyond_dim(at_me *m, at_me_beyond *b, uint32_t d, at_me_num index,
                      int64_t count, int64_t step) {
  at_em *e = m->e;
  int64_t covered = count > 0 ? (count - 1) * step + 1 : 0;
  at_me_num limit = at_me_valid(&b->ref, d);
  b->index[d] = index;
  b->count[d] = count;
  b->step[d] = step;
  if (covered > b->ref.size[d].c) b->always = true;
  if (b->always) return;
  if (!index.v && !limit.v) {
    b->always = index.c < 0 || index.c + covered > limit.c;
    return;
  }
  LLVMValueRef room =
      at_b_bin(e, AT_B_SUB, at_me_num_value(m, limit), at_em_i64(e, covered));
  LLVMValueRef i = at_me_num_value(m, index);
  LLVMValueRef out = at_b_icmp(e, AT_B_UGT, i, room);
  if (limit.v)
    out = at_b_bin(e, AT_B_OR, out,
                   at_b_icmp(e, AT_B_SLT, room, at_em_i64(e, 0)));
  b->outside = b->outside ? at_b_bin(e, AT_B_OR, b->outside, out) : out;
}

#define FIELD(f) offsetof(at_core_beyond, f)
// An at_core_beyond: ref, box and place. Strides are in bytes.
static LLVMValueRef record(at_me *m, const at_mop *op, const at_me_beyond *b,
                           const at_me_ref *box) {
  at_me_record r;
  at_me_num bytes = {b->ref.bytes, NULL};
  at_me_record_begin(&r, sizeof(at_core_beyond));
  at_me_record_value(m, &r, FIELD(ref.base), b->ref.base);
  at_me_record_i32(&r, FIELD(ref.rank), (int32_t)b->ref.rank);
  at_me_record_i32(&r, FIELD(ref.elem_bytes), (int32_t)b->ref.bytes);
  at_me_record_i32(&r, FIELD(loc), at_me_loc(m, op));
  for (uint32_t d = 0; d < b->ref.rank; d++) {
    at_me_record_num(m, &r, FIELD(ref.size) + 8 * d, at_me_valid(&b->ref, d));
    at_me_record_num(m, &r, FIELD(ref.stride) + 8 * d,
                     at_me_mul(m, b->ref.stride[d], bytes));
    at_me_record_num(m, &r, FIELD(index) + 8 * d, b->index[d]);
    at_me_record_num(m, &r, FIELD(stride) + 8 * d,
                     at_me_mul(m, box->stride[d], bytes));
    at_me_record_i32(&r, FIELD(count) + 4 * d, (int32_t)b->count[d]);
    at_me_record_i32(&r, FIELD(step) + 4 * d, (int32_t)b->step[d]);
  }
  return at_me_record_end(m, &r);
}
#undef FIELD

// Where the access goes instead: undefined values for what a choice may drop,
// else memory that the core fills from what is there.
static LLVMValueRef memory_for(at_me *m, const at_mop *op,
                               const at_me_beyond *b, const at_me_ref *box) {
  if (b->chosen) {
    LLVMValueRef loc = at_me_i32(m, at_me_loc(m, op));
    LLVMValueRef args[3] = {m->core, at_me_i32(m, b->ref.storage), loc};
    return at_b_call(m->e, "at_core_undefined", at_b_ptr(m->e), args, 3);
  }
  LLVMValueRef args[2] = {m->core, record(m, op, b, box)};
  return at_b_call(m->e, "at_core_beyond_begin", at_b_ptr(m->e), args, 2);
}

// Where it is only known at run time, the base is a phi of the box's own and of
// the replacement; the box keeps its strides, so the code behind it is the
// same.
void at_me_beyond_begin(at_me *m, const at_mop *op, const at_me_beyond *b,
                        at_me_ref *box) {
  at_em *e = m->e;
  if (b->always) {
    // Larger than its buffer, perhaps: rows of that would overlap.
    at_me_num n = {1, NULL};
    for (uint32_t d = box->rank; d-- > 0;) {
      box->stride[d] = n;
      n.c *= AT_MAX(b->count[d], (int64_t)1);
    }
    box->base = memory_for(m, op, b, box);
    return;
  }
  if (!b->outside) return;
  at_branch f;
  at_if_begin(e, &f, b->outside);
  LLVMValueRef other = memory_for(m, op, b, box);
  LLVMBasicBlockRef cold = at_b_here(e);
  at_if_else(e, &f);
  LLVMBasicBlockRef hot = at_b_here(e);
  at_if_end(e, &f);
  LLVMValueRef phi = at_b_phi(e, at_b_ptr(e));
  at_b_phi_add(phi, other, cold);
  at_b_phi_add(phi, box->base, hot);
  box->base = phi;
}

// Writes back what lies inside the ref; the rest of the replacement is dropped.
void at_me_beyond_end(at_me *m, const at_mop *op, const at_me_beyond *b,
                      const at_me_ref *box) {
  at_branch f;
  if (!b->always && !b->outside) return;
  if (!b->always) at_if_begin(m->e, &f, b->outside);
  LLVMValueRef args[3] = {m->core, record(m, op, b, box), box->base};
  at_b_call(m->e, "at_core_beyond_end", NULL, args, 3);
  if (!b->always) at_if_end(m->e, &f);
}

// ---- slices
// Clamps to [0, size], as the chip's address arithmetic does not fault.
at_me_num at_me_beyond_start(at_me *m, at_me_num index, int64_t size) {
  at_em *e = m->e;
  if (!index.v) return (at_me_num){AT_MIN(AT_MAX(index.c, 0), size), NULL};
  LLVMValueRef i = index.v, zero = at_em_i64(e, 0), end = at_em_i64(e, size);
  i = at_b_select(e, at_b_icmp(e, AT_B_SLT, i, zero), zero, i);
  return at_me_num_of(at_b_select(e, at_b_icmp(e, AT_B_SGT, i, end), end, i));
}

// For uses that cannot take a partly valid ref: at_core_within ends the kernel
// unless size equals what is valid.
at_me_ref at_me_whole(at_me *m, const at_mop *op, const at_me_ref *r) {
  at_me_ref whole = *r;
  whole.valid = NULL;
  for (uint32_t d = 0; r->valid && d < r->rank; d++) {
    at_me_num n = r->valid[d], size = r->size[d];
    if (!n.v && !size.v && n.c == size.c) continue;
    LLVMValueRef args[7] = {m->core,
                            at_me_i32(m, at_me_loc(m, op)),
                            at_me_i32(m, d),
                            at_em_i64(m->e, 0),
                            at_me_num_value(m, size),
                            at_me_num_value(m, n),
                            at_me_i32(m, at_me_ref_number(r))};
    at_b_call(m->e, "at_core_within", NULL, args, 7);
  }
  return whole;
}
