// Numbers that may be known, registers made of them, and refusals.
#include <stdio.h>

#include "mosaic/emit.h"
#include "mosaic/mosaic_internal.h"

LLVMValueRef at_me_i32(at_me *m, int64_t v) {
  return at_em_ci(m->e, at_em_int(m->e, 32), v);
}
// Scalar arithmetic is remembered: equal addresses are then equal registers.
static LLVMValueRef known_bin(at_me *m, at_b_op op, LLVMValueRef a,
                              LLVMValueRef b) {
  uint64_t key = 1u << 20 | op;
  at_val *known = at_em_memo_find(m->e, a, key, b);
  if (known) return known->re;
  LLVMValueRef r = at_b_bin(m->e, op, a, b);
  at_em_memo_put(m->e, a, key, b, (at_val){r, NULL});
  return r;
}
// Sign-extends a register of 32 bits, each only once where the extension is
// still at hand.
LLVMValueRef at_me_i64(at_me *m, LLVMValueRef v) {
  uint64_t key = 1u << 20 | AT_B_OP_COUNT;
  at_val *known = at_em_memo_find(m->e, v, key, NULL);
  if (known) return known->re;
  LLVMValueRef r = at_b_cast(m->e, AT_B_SEXT, v, at_em_int(m->e, 64));
  at_em_memo_put(m->e, v, key, NULL, (at_val){r, NULL});
  return r;
}
// Equal offsets of equal bases are one register, so that accesses to the same
// place can be told to be the same.
LLVMValueRef at_me_offset(at_me *m, LLVMValueRef base, uint32_t bytes,
                          at_me_num n) {
  if (!n.v && n.c == 0) return base;
  uint64_t key = 1u << 21 | bytes;
  LLVMValueRef at = at_me_num_value(m, n);
  at_val *known = at_em_memo_find(m->e, base, key, at);
  if (known) return known->re;
  LLVMValueRef r = at_b_gep(m->e, at_em_int(m->e, 8 * bytes), base, at);
  at_em_memo_put(m->e, base, key, at, (at_val){r, NULL});
  return r;
}

// Alignment 4 is what records promise.
void at_me_put(at_me *m, LLVMValueRef p, size_t at, LLVMValueRef v) {
  LLVMValueRef to =
      at_b_gep(m->e, at_em_int(m->e, 8), p, at_em_i64(m->e, (int64_t)at));
  at_b_store(m->e, v, to, 4);
}

// Constants of LLVM become known numbers.
at_me_num at_me_num_of(LLVMValueRef v) {
  at_me_num n = {0, v};
  if (at_b_const_int(v, &n.c)) n.v = NULL;
  return n;
}
LLVMValueRef at_me_num_value(at_me *m, at_me_num n) {
  return n.v ? n.v : at_em_i64(m->e, n.c);
}
// Folded where both are known; + 0 adds no instruction.
at_me_num at_me_add(at_me *m, at_me_num a, at_me_num b) {
  if (!a.v && !b.v) return (at_me_num){a.c + b.c, NULL};
  if (!a.v && a.c == 0) return b;
  if (!b.v && b.c == 0) return a;
  return at_me_num_of(
      known_bin(m, AT_B_ADD, at_me_num_value(m, a), at_me_num_value(m, b)));
}
// A product with a known 0 is known whatever the other is.
at_me_num at_me_mul(at_me *m, at_me_num a, at_me_num b) {
  if (!a.v && !b.v) return (at_me_num){a.c * b.c, NULL};
  if (!a.v && a.c == 1) return b;
  if (!b.v && b.c == 1) return a;
  if ((!a.v && a.c == 0) || (!b.v && b.c == 0)) return (at_me_num){0, NULL};
  return at_me_num_of(
      known_bin(m, AT_B_MUL, at_me_num_value(m, a), at_me_num_value(m, b)));
}

// The text is cut at 255 bytes.
at_status at_me_refuse(at_me *m, const at_mop *op, const char *fmt, ...) {
  char text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return at_mosaic_fail(m->k, op, AT_UNIMPLEMENTED,
                        "no machine code for this form of %s: %s", op->name,
                        text);
}
