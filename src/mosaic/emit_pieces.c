// Refs as memory holds them, for transfers: bitcast views taken apart until
// both sides are made of the same pieces.
#include "mosaic/emit_memory.h"

// The memory row that a view of packed rows begins with; it must not begin
// inside one.
static at_me_num whole_rows(at_me *m, const at_mop *op, const at_me_ref *r) {
  static const char text[] = "a copy begins inside a packed row";
  at_em *e = m->e;
  if (!r->packing->row.v)
    return (at_me_num){r->packing->row.c / r->packing->split, NULL};
  LLVMValueRef split = at_em_i64(e, r->packing->split), row = r->packing->row.v;
  LLVMValueRef rest = at_b_bin(e, AT_B_UREM, row, split);
  at_branch f;
  at_if_begin(e, &f, at_b_icmp(e, AT_B_NE, rest, at_em_i64(e, 0)));
  LLVMValueRef args[3] = {m->core, at_me_i32(m, at_me_loc(m, op)),
                          at_b_bytes(e, text, sizeof text)};
  at_b_call(e, "at_core_fail", NULL, args, 3);
  at_if_end(e, &f);
  return at_me_num_of(at_b_bin(e, AT_B_UDIV, row, split));
}

// Parts of rows whose dimension has gone: one more dimension, the last.
static at_status add_parts(at_me *m, const at_mop *op, const at_me_ref *r,
                           at_me_ref *out) {
  uint32_t d = r->rank;
  if (d == AT_ME_RANK) return at_me_refuse(m, op, "%u dimensions of parts", d);
  out->rank = d + 1;
  out->size[d] = (at_me_num){r->packing->parts, NULL};
  out->stride[d] = r->packing->part_stride;
  if (!r->valid) return AT_OK;
  at_me_num valid[AT_ME_RANK];
  memcpy(valid, r->valid, sizeof valid);
  valid[d] = out->size[d];
  out->valid = at_me_keep_valid(m, valid);
  return AT_OK;
}

// parts: the packed dimension gets `parts` times as many, with the stride of
// parts. split: it gets as many fewer, which must be whole.
at_status at_me_stored_view(at_me *m, const at_mop *op, const at_me_ref *r,
                            at_me_ref *out) {
  *out = *r;
  uint32_t p = r->packing->packed;
  if (r->packing->parts > 1 && p >= r->rank) {
    AT_TRY(add_parts(m, op, r, out));
  } else if (r->packing->parts > 1) {
    out->size[p] =
        at_me_mul(m, r->size[p], (at_me_num){r->packing->parts, NULL});
    out->stride[p] = r->packing->part_stride;
  } else if (r->packing->split > 1) {
    if (r->size[p].v || r->size[p].c % r->packing->split ||
        r->packing->row.c % r->packing->split)
      return at_me_refuse(m, op, "a part of packed rows");
    out->size[p].c = r->size[p].c / r->packing->split;
    at_me_num at = {r->packing->row.c / r->packing->split, NULL};
    if (r->packing->row.v) at = whole_rows(m, op, r);
    out->base =
        at_me_offset(m, r->base, r->bytes, at_me_mul(m, at, r->stride[p]));
  }
  at_me_packing *own = at_me_repack(m, out);
  own->parts = own->split = 1;
  out->dtype = r->storage;
  return AT_OK;
}

// Are its elements others than those of memory?
static bool is_viewed(const at_me_ref *r) {
  return r->packing->parts > 1 || r->packing->split > 1;
}

// r with each `n` elements along its packed dimension counted as one.
static at_status widen(at_me *m, const at_mop *op, const at_me_ref *r,
                       uint32_t n, uint32_t packed, at_me_ref *out) {
  *out = *r;
  if (n == 1) return AT_OK;
  if (packed >= r->rank || r->size[packed].v || r->size[packed].c % n ||
      (r->valid && (r->valid[packed].v || r->valid[packed].c % n)))
    return at_me_refuse(m, op, "a part of packed rows");
  at_me_num *stride = &out->stride[packed];
  out->size[packed].c /= n;
  if (r->valid) {
    at_me_num valid[AT_ME_RANK];
    memcpy(valid, r->valid, sizeof valid);
    valid[packed].c /= n;
    out->valid = at_me_keep_valid(m, valid);
  }
  at_me_packing *own = at_me_repack(m, out);
  if (r->packing->split > 1) {
    if (r->packing->split != n || (!r->packing->row.v && r->packing->row.c % n))
      return at_me_refuse(m, op, "a part of packed rows");
    out->base = at_me_offset(m, r->base, r->bytes,
                             at_me_mul(m, whole_rows(m, op, r), *stride));
    own->row = (at_me_num){0, NULL};
    own->split = 1;
    return AT_OK;
  }
  if (r->packing->parts == 1) own->part_stride = *stride;
  if (own->part_stride.v || stride->v ||
      stride->c != r->packing->parts * own->part_stride.c)
    return at_me_refuse(m, op, "packed rows that do not follow each other");
  own->parts = r->packing->parts * n;
  *stride = at_me_mul(m, *stride, (at_me_num){n, NULL});
  return AT_OK;
}

// r in pieces of `unit` bytes, an element made of outer * inner of them.
// `group` elements of memory make one piece.
static void cut(at_me *m, const at_me_ref *r, uint32_t at, uint32_t outer,
                uint32_t inner, uint32_t unit, uint32_t group, at_me_ref *out) {
  uint32_t k = r->bytes / unit;  // pieces of a memory element
  bool wide = r->packing->parts == outer && k == inner;
  at_me_num part =
      at_me_mul(m, r->packing->part_stride, (at_me_num){k * group, NULL});
  at_me_num step[2] = {part, wide ? (at_me_num){1, NULL} : part};
  if (!wide) step[0] = at_me_mul(m, part, (at_me_num){inner, NULL});
  const uint32_t count[2] = {outer, inner};
  at_me_num valid[AT_ME_RANK] = {{0}};
  *out = *r;
  out->rank = 0;
  for (uint32_t d = 0; d <= r->rank; d++) {
    for (uint32_t i = 0; i < 2 && d == at; i++) {
      if (count[i] == 1) continue;
      out->size[out->rank] = (at_me_num){count[i], NULL};
      valid[out->rank] = out->size[out->rank];
      out->stride[out->rank++] = step[i];
    }
    if (d == r->rank) break;
    out->size[out->rank] = r->size[d];
    if (r->valid) valid[out->rank] = r->valid[d];
    out->stride[out->rank++] = at_me_mul(m, r->stride[d], (at_me_num){k, NULL});
  }
  out->bytes = unit;
  if (r->valid) out->valid = at_me_keep_valid(m, valid);
  at_me_packing *own = at_me_repack(m, out);
  own->parts = own->split = 1;
}

// Both sides hold elements of a width as their views have it: of `narrow`,
// several make one of `wide`.
static at_status cut_both(at_me *m, const at_mop *op, const at_me_ref *wide,
                          const at_me_ref *narrow, uint32_t packed,
                          at_me_pieces *p, at_me_ref *w, at_me_ref *n) {
  uint32_t bits = at_dtype_of(narrow->storage)->bits;
  uint32_t wide_bits = at_dtype_of(wide->storage)->bits;
  bool sub = bits < 8 && wide_bits >= 8;
  if (wide->packing->parts * wide_bits != narrow->packing->parts * bits ||
      (bits < 8 && wide_bits < 8 && bits != wide_bits))
    return at_me_refuse(m, op, "memory of different elements");
  uint32_t outer = wide->packing->parts, unit = narrow->bytes;
  uint32_t inner = wide->bytes / unit, group = sub ? 8 / bits : 1;
  uint32_t rank = wide->rank + (outer > 1) + (inner > 1);
  if (rank + sub > AT_ME_RANK)
    return at_me_refuse(m, op, "%u dimensions", wide->rank);
  uint32_t at = AT_MIN(packed < wide->rank ? packed + 1 : 1, wide->rank);
  cut(m, wide, at, outer, inner, unit, 1, w);
  cut(m, narrow, at, outer, inner, unit, group, n);
  if (!sub) return AT_OK;
  p->packed_bits = (int32_t)bits;
  p->packed_signed = at_is_signed_int(narrow->storage);
  p->packed_step = at_me_mul(m, narrow->packing->part_stride,
                             (at_me_num){narrow->bytes, NULL});
  return AT_OK;
}

// Both views are widened until neither splits memory elements, then cut into
// pieces of the narrower one's size.
at_status at_me_pieces_of(at_me *m, const at_mop *op, const at_me_ref *from,
                          const at_me_ref *to, at_me_pieces *out) {
  *out = (at_me_pieces){.packed_step = {0, NULL}};
  if (from->rank != to->rank)
    return at_me_refuse(m, op, "memory of different dimensions");
  bool seen = is_viewed(from) || is_viewed(to);
  if (!seen && from->bytes == to->bytes) {
    out->src = *from;
    out->dst = *to;
    return AT_OK;
  }
  uint32_t n = AT_MAX(from->packing->split, to->packing->split);
  uint32_t packed =
      is_viewed(from) ? from->packing->packed : to->packing->packed;
  if (n > 1 && is_viewed(from) && is_viewed(to) &&
      from->packing->packed != to->packing->packed)
    return at_me_refuse(m, op, "views packed along different dimensions");
  at_me_ref a, b;
  AT_TRY(widen(m, op, from, n, packed, &a));
  AT_TRY(widen(m, op, to, n, packed, &b));
  out->unpack = at_dtype_of(a.storage)->bits > at_dtype_of(b.storage)->bits;
  if (out->unpack)
    return cut_both(m, op, &a, &b, packed, out, &out->src, &out->dst);
  return cut_both(m, op, &b, &a, packed, out, &out->dst, &out->src);
}
