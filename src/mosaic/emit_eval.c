// Elements of expressions and of refs at a position.
//
// A position (at_pos) is one index or a vector of neighbouring ones, split into
// digits by some dimensions. at_me_eval goes down an expression: what moves
// elements turns the position into one of its operand and goes on there, what
// computes asks all its operands at the same position, and a load or buffer
// reads memory. Nothing is stored between nodes, so the code of a whole
// expression is one loop body. An index (at_ix) keeps its uniform part, its
// lanes and its range apart: contiguous lanes become one vector load, uniform
// parts leave the loop, and ranges save the division where digits are
// regrouped.
#include "base/cpu.h"
#include "mosaic/emit.h"

static const at_me_home g_own_memory = {.space = AT_MSPACE_VMEM};

// Strides count elements; the last dimension has stride 1.
void at_me_dense(at_me *m, at_me_ref *r, LLVMValueRef base, at_dtype t,
                 uint32_t rank, const int64_t *dim) {
  *r = (at_me_ref){.base = base,
                   .dtype = t,
                   .storage = t,
                   .bytes = at_dtype_bytes(t),
                   .rank = rank,
                   .home = &g_own_memory,
                   .packing = &at_me_plain};
  int64_t step = 1;
  for (uint32_t d = rank; d-- > 0;) {
    r->size[d] = (at_me_num){dim[d], NULL};
    r->stride[d] = (at_me_num){step, NULL};
    step *= dim[d];
  }
}

// ---- refs
static at_ix ix_of_num(at_me *m, at_me_num n) {
  if (!n.v) return at_ix_const(n.c);
  return at_ix_of(n.v, INT32_MIN, INT32_MAX, 1);
}

// x * stride in memory elements. With a stride that only the run knows, lanes
// are multiplied one by one, in 32 bits: the access becomes a gather.
static at_ix scaled(at_me *m, at_ix x, at_me_num stride) {
  at_em *e = m->e;
  if (!stride.v) return at_ix_mulc(e, x, stride.c);
  if (!x.base && !x.vec && !x.lane && x.c == 0) return x;
  if (at_ix_uniform(&x)) {
    LLVMValueRef v = at_b_bin(e, AT_B_MUL, at_ix_value(e, x), stride.v);
    return at_ix_of(v, INT64_MIN, INT64_MAX, 1);
  }
  LLVMValueRef s = at_b_cast(e, AT_B_TRUNC, stride.v, at_em_int(e, 32));
  LLVMValueRef v = at_b_bin(e, AT_B_MUL, at_ix_vector(e, x), at_em_splat(e, s));
  return (at_ix){.vec = v, .lo = INT32_MIN, .hi = INT32_MAX};
}

// The place of an element in units of memory elements, and which part of one.
static at_ix place(at_me *m, const at_me_ref *r, const at_ix *ix, at_ix *part) {
  at_ix lin = at_ix_const(0);
  *part = at_ix_const(0);
  for (uint32_t d = 0; d < r->rank; d++) {
    at_ix x = ix[d];
    if (r->packing->split > 1 && d == r->packing->packed) {
      x = at_ix_add(m->e, x, ix_of_num(m, r->packing->row));
      x.lo = AT_MAX(x.lo, 0);
      *part = at_ix_modc(m->e, x, r->packing->split);
      x = at_ix_divc(m->e, x, r->packing->split);
    }
    lin = at_ix_add(m->e, lin, scaled(m, x, r->stride[d]));
  }
  return lin;
}

// The uniform part goes into the pointer, so that lanes keep small offsets.
static LLVMValueRef rebase(at_me *m, const at_me_ref *r, at_ix *lin,
                           uint32_t bytes) {
  LLVMTypeRef t = at_em_int(m->e, 8 * bytes);
  if (!lin->base) return r->base;
  at_val *known = at_em_memo_find(m->e, r->base, bytes, lin->base);
  if (!known) {
    LLVMValueRef p = at_b_gep(m->e, t, r->base, lin->base);
    at_em_memo_put(m->e, r->base, bytes, lin->base, (at_val){p, NULL});
    lin->base = NULL;
    return p;
  }
  lin->base = NULL;
  return known->re;
}

// The position's indices along dimensions `dim`, whatever dimensions it was
// made with.
static void digits(at_me *m, const at_pos *p, uint32_t rank, const int64_t *dim,
                   at_ix *ix) {
  at_pos_regroup(m->e, p, rank, dim, ix);
}

// Likewise for a ref's sizes, which are known.
static void ref_digits(at_me *m, const at_pos *p, const at_me_ref *r,
                       at_ix *ix) {
  int64_t dim[AT_ME_RANK];
  for (uint32_t d = 0; d < r->rank; d++) dim[d] = r->size[d].c;
  digits(m, p, r->rank, dim, ix);
}

// v shifted by the bits of `by` elements of `bits` bits: how a part of a wider
// element is taken out or put in.
static LLVMValueRef shifted(at_me *m, LLVMValueRef v, at_b_op op, at_ix by,
                            uint32_t bits) {
  at_em *e = m->e;
  at_ix n = at_ix_mulc(e, by, bits);
  LLVMTypeRef t = at_b_type_of(v);
  if (!n.base && !n.vec && !n.lane)
    return n.c ? at_b_bin(e, op, v, at_em_ci(e, t, n.c)) : v;
  at_val k = at_ix_to(e, AT_S32, n);
  uint32_t have = at_em_bits_of(t);
  if (have < 32) k.re = at_b_cast(e, AT_B_TRUNC, k.re, t);
  if (have > 32) k.re = at_b_cast(e, AT_B_ZEXT, k.re, t);
  return at_b_bin(e, op, v, k.re);
}

// Three cases: an element of the view is one of memory; it is a part of one
// (split: shifted down); it is made of several (parts: shifted up and joined,
// the first in the low bits).
at_val at_me_ref_load(at_me *m, const at_me_ref *r, const at_pos *p) {
  at_em *e = m->e;
  at_ix ix[AT_ME_RANK], part;
  ref_digits(m, p, r, ix);
  at_ix lin = place(m, r, ix, &part);
  LLVMValueRef base = rebase(m, r, &lin, r->bytes);
  if (r->packing->parts == 1 && r->packing->split == 1)
    return at_em_load(e, base, r->storage, lin, false);
  if (r->packing->split > 1) {
    at_val v = at_em_load(e, base, r->storage, lin, false);
    LLVMValueRef b = at_me_to_bits(m, r->storage, v.re);
    b = shifted(m, b, AT_B_LSHR, part, at_dtype_of(r->dtype)->bits);
    return (at_val){at_me_from_bits(m, r->dtype, b), NULL};
  }
  uint32_t bits = at_dtype_of(r->storage)->bits;
  LLVMTypeRef wide = at_em_widen(e, at_em_int(e, 8 * at_dtype_bytes(r->dtype)));
  LLVMValueRef all = NULL;
  for (uint32_t k = 0; k < r->packing->parts; k++) {
    at_ix at =
        at_ix_add(e, lin, scaled(m, at_ix_const(k), r->packing->part_stride));
    at_ix rest = at;
    LLVMValueRef from = base;
    if (rest.base) {
      from = at_b_gep(e, at_em_int(e, 8 * r->bytes), base, rest.base);
      rest.base = NULL;
    }
    LLVMValueRef b = at_me_to_bits(
        m, r->storage, at_em_load(e, from, r->storage, rest, false).re);
    if (at_em_bits_of(at_b_type_of(b)) < at_em_bits_of(wide))
      b = at_b_cast(e, AT_B_ZEXT, b, wide);
    b = shifted(m, b, AT_B_SHL, at_ix_const(k), bits);
    all = all ? at_b_bin(e, AT_B_OR, all, b) : b;
  }
  return (at_val){at_me_from_bits(m, r->dtype, all), NULL};
}

// An unsigned integer type of so many bytes, for parts of elements.
static at_dtype raw_type(uint32_t bytes) {
  return bytes == 1   ? AT_U8
         : bytes == 2 ? AT_U16
         : bytes == 4 ? AT_U32
                      : AT_U64;
}

// The three cases of at_me_ref_load. A part of a wider element is stored by
// itself, so both widths must be whole bytes.
void at_me_ref_store(at_me *m, const at_me_ref *r, const at_pos *p, at_val v) {
  at_em *e = m->e;
  at_ix ix[AT_ME_RANK], part;
  ref_digits(m, p, r, ix);
  at_ix lin = place(m, r, ix, &part);
  if (r->packing->parts == 1 && r->packing->split == 1) {
    LLVMValueRef base = rebase(m, r, &lin, r->bytes);
    at_em_store(e, base, r->storage, lin, v);
    return;
  }
  LLVMValueRef b = at_me_to_bits(m, r->dtype, v.re);
  uint32_t bits = at_dtype_of(r->dtype)->bits;
  if (r->packing->split > 1) {
    if (bits < 8 || at_dtype_of(r->storage)->bits < 8) {
      at_em_fail(
          e,
          AT_FAIL(AT_UNIMPLEMENTED, "stores of %s through a view of %s",
                  at_dtype_of(r->dtype)->text, at_dtype_of(r->storage)->text));
      return;
    }
    lin = at_ix_add(e, at_ix_mulc(e, lin, r->packing->split), part);
    LLVMValueRef base = rebase(m, r, &lin, bits / 8);
    at_em_store(e, base, raw_type(bits / 8), lin, (at_val){b, NULL});
    return;
  }
  LLVMValueRef base = rebase(m, r, &lin, r->bytes);
  uint32_t narrow = at_dtype_of(r->storage)->bits;
  LLVMTypeRef nt = at_em_widen(e, at_em_int(e, 8 * r->bytes));
  for (uint32_t k = 0; k < r->packing->parts; k++) {
    LLVMValueRef x = shifted(m, b, AT_B_LSHR, at_ix_const(k), narrow);
    if (at_em_bits_of(at_b_type_of(x)) > 8 * r->bytes)
      x = at_b_cast(e, AT_B_TRUNC, x, nt);
    x = at_me_from_bits(m, r->storage, x);
    at_ix at =
        at_ix_add(e, lin, scaled(m, at_ix_const(k), r->packing->part_stride));
    LLVMValueRef to = base;
    if (at.base) {
      to = at_b_gep(e, at_em_int(e, 8 * r->bytes), base, at.base);
      at.base = NULL;
    }
    at_em_store(e, to, r->storage, at, (at_val){x, NULL});
  }
}

// ---- expressions
// One dimension: its index. Several: the row-major number among them. ints[RANK
// - 1] says how many.
static at_val eval_iota(at_me *m, at_me_node *n, const at_pos *p) {
  at_ix ix[AT_ME_RANK], r = at_ix_const(0);
  digits(m, p, n->rank, n->dim, ix);
  uint32_t k = (uint32_t)n->ints[AT_ME_RANK - 1];
  if (k == 0) return at_ix_to(m->e, n->dtype, ix[0]);
  for (uint32_t i = 0; i < k; i++) {
    int64_t d = n->ints[i];
    if (d < 0 || d >= n->rank) continue;
    r = at_ix_add(m->e, at_ix_mulc(m->e, r, n->dim[d]), ix[d]);
  }
  return at_ix_to(m->e, n->dtype, r);
}

// All operands at the same position, then the operation.
static at_val eval_apply(at_me *m, at_me_node *n, const at_pos *p) {
  at_val args[AT_ME_MAX_IN] = {{0}};
  at_dtype types[AT_ME_MAX_IN] = {0};
  for (uint32_t i = 0; i < n->num_in; i++) {
    args[i] = at_me_eval(m, n->in[i], p);
    types[i] = n->in[i]->dtype;
  }
  return at_me_apply(m, n->op, n->code, types, n->dtype, args);
}

static at_val eval_at(at_me *m, at_me_node *in, const at_ix *ix) {
  return at_me_eval(m, in, at_pos_make(m->e, false, in->rank, in->dim, ix));
}

// Dimensions of 1 are at index 0; missing leading ones are dropped.
static at_val eval_broadcast(at_me *m, at_me_node *n, const at_pos *p) {
  at_ix ix[AT_ME_RANK], to[AT_ME_RANK];
  at_me_node *in = n->in[0];
  digits(m, p, n->rank, n->dim, ix);
  for (uint32_t d = 0; d < in->rank; d++)
    to[d] = in->dim[d] == 1 ? at_ix_const(0) : ix[n->rank - in->rank + d];
  return eval_at(m, in, to);
}

// Dimension d of the result is dimension ints[d] of the operand.
static at_val eval_transpose(at_me *m, at_me_node *n, const at_pos *p) {
  at_ix ix[AT_ME_RANK], to[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  for (uint32_t d = 0; d < n->rank; d++) to[n->ints[d]] = ix[d];
  return eval_at(m, n->in[0], to);
}

// Index i of the result is offset + i * step of the operand.
static at_val eval_slice(at_me *m, at_me_node *n, const at_pos *p) {
  at_ix ix[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  for (uint32_t d = 0; d < n->rank; d++)
    ix[d] = at_ix_addc(at_ix_mulc(m->e, ix[d], n->step[d]), n->ints[d]);
  return eval_at(m, n->in[0], ix);
}

// A vector of a row that was turned along the lanes lies in one piece, or at
// the end and at the beginning of the row. x: where it begins, perhaps past the
// end.
static bool load_around(at_me *m, const at_me_node *in, at_ix *ix, uint32_t d,
                        at_ix x, at_val *out) {
  at_em *e = m->e;
  const at_me_ref *r = in->ref;
  bool memory = in->kind == AT_ME_LOAD || in->kind == AT_ME_BUFFER;
  if (!memory || e->lanes == 1 || x.lane != 1 || x.vec || r->home->pages ||
      r->packing->parts > 1 || r->packing->split > 1 ||
      r->storage != in->dtype || r->stride[r->rank - 1].v ||
      r->stride[r->rank - 1].c != 1 || d + 1 != in->rank ||
      in->dim[d] < e->lanes || (r->bytes < 4 && !(e->cpu & AT_CPU_AVX512)))
    return false;
  for (uint32_t k = 0; k < d; k++)
    if (!at_ix_uniform(&ix[k])) return false;
  at_ix at[AT_ME_RANK], part;
  uint32_t lead = r->rank - in->rank;
  for (uint32_t k = 0; k < r->rank; k++)
    at[k] = k < lead ? at_ix_const(0) : ix[k - lead];
  x.lane = 0;
  x = at_ix_modc(e, x, in->dim[d]);
  at[r->rank - 1] = x;
  LLVMTypeRef elem = at_em_storage_type(e, r->storage), i32 = at_em_int(e, 32);
  LLVMValueRef first = at_ix_value(e, place(m, r, at, &part));
  LLVMValueRef left =
      at_b_bin(e, AT_B_SUB, at_em_i64(e, in->dim[d]), at_ix_value(e, x));
  LLVMValueRef here = at_ix_vector(e, at_ix_lanes(e, at_ix_const(0)));
  here = at_b_icmp(e, AT_B_ULT, here,
                   at_em_splat(e, at_b_cast(e, AT_B_TRUNC, left, i32)));
  LLVMValueRef p = at_b_gep(e, elem, r->base, first);
  LLVMValueRef q = at_b_gep(e, elem, p, at_em_i64(e, -in->dim[d]));
  LLVMValueRef v = at_b_null(at_em_widen(e, elem));
  v = at_b_load_some(e, p, r->bytes, here, v);
  v = at_b_load_some(e, q, r->bytes, at_b_not(e, here), v);
  *out = (at_val){at_em_decode(e, r->storage, v), NULL};
  return true;
}

// Element i comes from (i - amount) mod size; with a stride the amount grows by
// it per index of the stride dimension.
static at_val eval_rotate(at_me *m, at_me_node *n, const at_pos *p) {
  at_em *e = m->e;
  at_ix ix[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  int64_t d = n->ints[0], size = n->dim[d];
  LLVMValueRef back = at_b_bin(e, AT_B_SUB, at_me_i32(m, size), n->scalar);
  at_ix x = at_ix_add(e, ix[d], at_ix_of(at_me_i64(m, back), 1, size, 1));
  if (n->ints[1] && n->ints[2] >= 0 && n->ints[2] < n->rank) {
    int64_t step = ((-n->ints[1]) % size + size) % size;
    x = at_ix_add(e, x, at_ix_mulc(e, ix[n->ints[2]], step));
  }
  at_val v;
  at_ix turned = at_ix_modc(e, x, size);
  bool apart = turned.vec || turned.lane != 1;
  if (apart && load_around(m, n->in[0], ix, (uint32_t)d, x, &v)) return v;
  ix[d] = turned;
  return eval_at(m, n->in[0], ix);
}

// An index of any size, modulo n: of the sign of n, not of i.
static at_val wrapped(at_me *m, at_dtype t, at_val i, int64_t n) {
  at_em *e = m->e;
  AT_ASSERT(n > 0);
  if (t != AT_S64) i = at_em_convert(e, t, AT_S32, i), t = AT_S32;
  LLVMValueRef size = at_em_ci(e, at_b_type_of(i.re), n);
  if ((n & (n - 1)) == 0) {
    LLVMValueRef low = at_em_ci(e, at_b_type_of(i.re), n - 1);
    return (at_val){at_b_bin(e, AT_B_AND, i.re, low), NULL};
  }
  at_val r = at_em_apply_real(e, AT_OP_REMAINDER, t, i, (at_val){size, NULL});
  LLVMValueRef zero = at_b_null(at_b_type_of(r.re));
  LLVMValueRef up = at_b_bin(e, AT_B_ADD, r.re, size);
  r.re = at_b_select(e, at_b_icmp(e, AT_B_SLT, r.re, zero), up, r.re);
  return r;
}

// The index is a value at the same position, modulo the operand's size.
static at_val eval_take(at_me *m, at_me_node *n, const at_pos *p) {
  at_ix ix[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  at_me_node *table = n->in[0], *index = n->in[1];
  int64_t d = n->ints[0], size = table->dim[d];
  at_val i = wrapped(m, index->dtype, at_me_eval(m, index, p), size);
  at_dtype t = index->dtype == AT_S64 ? AT_S64 : AT_S32;
  ix[d] = at_ix_from(m->e, t, i, 0, size - 1);
  return eval_at(m, table, ix);
}

// The index is read from a constant table.
static at_val eval_pick(at_me *m, at_me_node *n, const at_pos *p) {
  at_ix ix[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  int64_t d = n->ints[0];
  at_val i = at_em_load(m->e, n->ref->base, AT_S32, ix[d], false);
  ix[d] = at_ix_from(m->e, AT_S32, i, 0, n->in[0]->dim[d] - 1);
  return eval_at(m, n->in[0], ix);
}

// Copies one after another: the index modulo the operand's size.
static at_val eval_repeat(at_me *m, at_me_node *n, const at_pos *p) {
  at_ix ix[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  int64_t d = n->ints[0];
  ix[d] = at_ix_modc(m->e, ix[d], n->in[0]->dim[d]);
  return eval_at(m, n->in[0], ix);
}

// An element is made of `parts` narrower ones along dimension ints[0], the
// first in the low bits.
static at_val eval_join(at_me *m, at_me_node *n, const at_pos *p) {
  at_em *e = m->e;
  at_ix ix[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  at_me_node *in = n->in[0];
  uint32_t bits = at_dtype_of(in->dtype)->bits;
  uint32_t parts = at_dtype_of(n->dtype)->bits / bits;
  LLVMTypeRef wide = at_em_widen(e, at_em_int(e, 8 * at_dtype_bytes(n->dtype)));
  LLVMValueRef all = NULL;
  int64_t d = n->ints[0];
  at_ix first = at_ix_mulc(e, ix[d], parts);
  for (uint32_t k = 0; k < parts; k++) {
    ix[d] = at_ix_addc(first, k);
    LLVMValueRef b = at_me_to_bits(m, in->dtype, eval_at(m, in, ix).re);
    if (at_em_bits_of(at_b_type_of(b)) < at_em_bits_of(wide))
      b = at_b_cast(e, AT_B_ZEXT, b, wide);
    b = shifted(m, b, AT_B_SHL, at_ix_const(k), bits);
    all = all ? at_b_bin(e, AT_B_OR, all, b) : b;
  }
  return (at_val){at_me_from_bits(m, n->dtype, all), NULL};
}

// The part is taken out of the wider element by a shift.
static at_val eval_split(at_me *m, at_me_node *n, const at_pos *p) {
  at_ix ix[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  at_me_node *in = n->in[0];
  uint32_t bits = at_dtype_of(n->dtype)->bits;
  uint32_t parts = at_dtype_of(in->dtype)->bits / bits;
  int64_t d = n->ints[0];
  at_ix part = at_ix_modc(m->e, ix[d], parts);
  ix[d] = at_ix_divc(m->e, ix[d], parts);
  LLVMValueRef b = at_me_to_bits(m, in->dtype, eval_at(m, in, ix).re);
  b = shifted(m, b, AT_B_LSHR, part, bits);
  return (at_val){at_me_from_bits(m, n->dtype, b), NULL};
}

// True where low <= index < high in every dimension, as signed 32-bit numbers.
static at_val eval_mask(at_me *m, at_me_node *n, const at_pos *p) {
  at_em *e = m->e;
  at_ix ix[AT_ME_RANK];
  digits(m, p, n->rank, n->dim, ix);
  LLVMValueRef all = at_em_ci(e, at_em_widen(e, at_em_int(e, 1)), 1);
  LLVMTypeRef i32 = at_em_int(e, 32);
  for (uint32_t d = 0; d < n->rank; d++) {
    LLVMValueRef x = at_ix_to(e, AT_S32, ix[d]).re;
    for (int side = 0; side < 2; side++) {
      LLVMValueRef b =
          at_me_num_value(m, side ? n->ref->stride[d] : n->ref->size[d]);
      b = at_em_splat(e, at_b_cast(e, AT_B_TRUNC, b, i32));
      LLVMValueRef in = at_b_icmp(e, side ? AT_B_SLT : AT_B_SGE, x, b);
      all = at_b_bin(e, AT_B_AND, all, in);
    }
  }
  return (at_val){all, NULL};
}

// By kind of node; a product must have been computed before.
static at_val compute(at_me *m, at_me_node *n, const at_pos *p) {
  switch (n->kind) {
    case AT_ME_SPLAT:
      return (at_val){at_em_splat(m->e, n->scalar), NULL};
    case AT_ME_IOTA:
      return eval_iota(m, n, p);
    case AT_ME_LOAD:
      return at_me_ref_load(m, n->ref, p);
    case AT_ME_BUFFER: {
      at_ix lin = at_pos_linear(m->e, p);
      LLVMValueRef base = rebase(m, n->ref, &lin, n->ref->bytes);
      return at_em_load(m->e, base, n->dtype, lin, false);
    }
    case AT_ME_APPLY:
      return eval_apply(m, n, p);
    case AT_ME_RESHAPE:
      return at_me_eval(m, n->in[0], p);
    case AT_ME_BROADCAST:
      return eval_broadcast(m, n, p);
    case AT_ME_TRANSPOSE:
      return eval_transpose(m, n, p);
    case AT_ME_SLICE:
      return eval_slice(m, n, p);
    case AT_ME_ROTATE:
      return eval_rotate(m, n, p);
    case AT_ME_TAKE:
      return eval_take(m, n, p);
    case AT_ME_PICK:
      return eval_pick(m, n, p);
    case AT_ME_REPEAT:
      return eval_repeat(m, n, p);
    case AT_ME_JOIN:
      return eval_join(m, n, p);
    case AT_ME_SPLIT:
      return eval_split(m, n, p);
    case AT_ME_MASK:
      return eval_mask(m, n, p);
    case AT_ME_DOT:
      break;
  }
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a product inside a loop nest"));
  return at_em_zero(m->e, n->dtype);
}

// SPLAT nodes and others of rank 0 stand at any position.
at_val at_me_eval(at_me *m, at_me_node *n, const at_pos *p) {
  if (!n) return at_em_zero(m->e, AT_S32);
  uint64_t key = 16 + m->e->lanes;
  at_val *known = at_em_memo_find(m->e, n, key, p);
  if (known) return *known;
  at_val v = compute(m, n, p);
  at_em_memo_put(m->e, n, key, p, v);
  return v;
}
