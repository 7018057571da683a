// Elementwise operations on registers: scalars, and lanes of vectors.
#include <stddef.h>

#include "mosaic/emit.h"

static LLVMValueRef int_like(at_me *m, LLVMValueRef v, int64_t c) {
  return at_em_ci(m->e, at_b_type_of(v), c);
}
static LLVMTypeRef wide_int(at_me *m, uint32_t bits) {
  return at_em_widen(m->e, at_em_int(m->e, bits));
}

// ---- bits
// Truths become a byte; types of fewer than 8 bits keep only their own.
LLVMValueRef at_me_to_bits(at_me *m, at_dtype t, LLVMValueRef v) {
  if (t == AT_PRED) return at_b_cast(m->e, AT_B_ZEXT, v, wide_int(m, 8));
  LLVMValueRef s = at_em_bits(m->e, at_em_encode(m->e, t, v));
  uint32_t bits = at_dtype_of(t)->bits;
  if (bits < 8)
    s = at_b_bin(m->e, AT_B_AND, s, int_like(m, s, (1 << bits) - 1));
  return s;
}

// Integers are sign- or zero-extended to what their register holds; floats are
// decoded from their storage form.
LLVMValueRef at_me_from_bits(at_me *m, at_dtype t, LLVMValueRef bits) {
  at_em *e = m->e;
  LLVMTypeRef st = at_em_widen(e, at_em_storage_type(e, t));
  uint32_t have = at_em_bits_of(at_b_type_of(bits));
  uint32_t want = 8 * at_dtype_bytes(t);
  LLVMTypeRef it = at_em_widen(e, at_em_int(e, want));
  if (have > want) bits = at_b_cast(e, AT_B_TRUNC, bits, it);
  if (have < want) bits = at_b_cast(e, AT_B_ZEXT, bits, it);
  if (at_is_int(t)) return at_em_normalize(e, t, (at_val){bits, NULL}).re;
  if (it != st && t != AT_PRED) bits = at_b_cast(e, AT_B_BITCAST, bits, st);
  return at_em_decode(e, t, bits);
}

// Mosaic's integers have no sign; operations that need the unsigned reading ask
// for it here. Other types stay.
at_dtype at_me_unsigned_of(at_dtype t) {
  switch (t) {
    case AT_S2:
      return AT_U2;
    case AT_S4:
      return AT_U4;
    case AT_S8:
      return AT_U8;
    case AT_S16:
      return AT_U16;
    case AT_S32:
      return AT_U32;
    case AT_S64:
      return AT_U64;
    default:
      return t;
  }
}

// A signless register as its unsigned type holds it.
static LLVMValueRef as_unsigned(at_me *m, at_dtype t, LLVMValueRef v) {
  uint32_t bits = at_dtype_of(t)->bits;
  if (t == AT_PRED || bits >= 8) return v;
  return at_b_bin(m->e, AT_B_AND, v, int_like(m, v, (1 << bits) - 1));
}
static LLVMValueRef as_signless(at_me *m, at_dtype t, LLVMValueRef v) {
  return at_em_normalize(m->e, t, (at_val){v, NULL}).re;
}

// Signless operands as unsigned ones, the operation, and back to the register
// form of the signed type.
static at_val unsigned_op(at_me *m, at_op op, at_dtype t, at_val a, at_val b) {
  at_val x = {as_unsigned(m, t, a.re), NULL},
         y = {as_unsigned(m, t, b.re), NULL};
  at_val r = at_em_apply_real(m->e, op, at_me_unsigned_of(t), x, y);
  return (at_val){as_signless(m, t, r.re), NULL};
}

// ---- conversions
static at_val trunc_int(at_me *m, at_dtype from, at_dtype to, at_val a) {
  if (to != AT_PRED) return at_em_convert(m->e, from, to, a);
  return (at_val){at_b_cast(m->e, AT_B_TRUNC, a.re, wide_int(m, 1)), NULL};
}

// A truth is 0 or 1, with `sign` 0 or -1.
static at_val extend(at_me *m, bool sign, at_dtype from, at_dtype to,
                     at_val a) {
  if (from == AT_PRED) {
    LLVMTypeRef t = at_em_widen(m->e, at_em_reg_type(m->e, to));
    LLVMValueRef v = at_b_cast(m->e, sign ? AT_B_SEXT : AT_B_ZEXT, a.re, t);
    return (at_val){v, NULL};
  }
  if (sign) return at_em_convert(m->e, from, to, a);
  a.re = as_unsigned(m, from, a.re);
  return at_em_convert(m->e, at_me_unsigned_of(from), to, a);
}

// From signed, or with sign false from the same bits read as unsigned.
static at_val to_float(at_me *m, bool sign, at_dtype from, at_dtype to,
                       at_val a) {
  if (from == AT_PRED) return at_em_convert(m->e, from, to, a);
  if (sign) return at_em_convert(m->e, from, to, a);
  a.re = as_unsigned(m, from, a.re);
  return at_em_convert(m->e, at_me_unsigned_of(from), to, a);
}

// For the check: what an integer made of NaN is changes from run to run.
static LLVMValueRef of_nan(at_me *m, LLVMValueRef from, LLVMValueRef to) {
  at_em *e = m->e;
  LLVMTypeRef i32 = at_em_int(e, 32);
  LLVMValueRef p = at_b_gep(e, at_em_int(e, 8), m->core,
                            at_em_i64(e, offsetof(at_core, of_nan)));
  LLVMValueRef v = at_em_splat(e, at_b_load(e, i32, p, 4));
  uint32_t bits = at_em_bits_of(at_b_type_of(to));
  if (bits != 32)
    v = at_b_cast(e, bits < 32 ? AT_B_TRUNC : AT_B_ZEXT, v, at_b_type_of(to));
  return at_b_select(e, at_b_fcmp(e, AT_B_UNO, from, from), v, to);
}

// Rounds to nearest first where the operation says so. With the NaN check on,
// NaN becomes a value that differs from run to run, so that a result that
// depends on it is seen.
static at_val to_int(at_me *m, const at_mop *op, bool sign, at_dtype from,
                     at_dtype to, at_val a) {
  const at_mattr *mode = at_mop_attr(op, "rounding_mode");
  if (mode && mode->str.len >= 10 && strstr(mode->str.ptr, "nearest"))
    a = at_em_apply_real(m->e, AT_OP_ROUND_NEAREST_EVEN, from, a, (at_val){0});
  at_dtype t = sign ? to : at_me_unsigned_of(to);
  at_val r = at_em_convert(m->e, from, t, a);
  if (t != AT_PRED) r.re = as_signless(m, to, r.re);
  if (m->o->check_nan && !m->window) r.re = of_nan(m, a.re, r.re);
  return (at_val){r.re, NULL};
}

// Random bits are added below the mantissa that stays; the rest is cut off.
static at_val stochastic(at_me *m, at_dtype to, at_val a, at_val random) {
  static const struct {
    at_dtype t;
    int mantissa;
  } kinds[] = {{AT_BF16, 7},       {AT_F16, 10},       {AT_F8E5M2, 2},
               {AT_F8E4M3FN, 3},   {AT_F8E4M3, 3},     {AT_F8E4M3B11FNUZ, 3},
               {AT_F8E4M3FNUZ, 3}, {AT_F8E5M2FNUZ, 2}, {AT_F8E3M4, 4}};
  int drop = 0;
  for (size_t i = 0; i < AT_LEN(kinds); i++)
    if (kinds[i].t == to) drop = 23 - kinds[i].mantissa;
  LLVMValueRef u = at_em_bits(m->e, a.re);
  int64_t mask = (1ll << drop) - 1;
  LLVMValueRef low = at_b_bin(m->e, AT_B_AND, random.re, int_like(m, u, mask));
  LLVMValueRef r = at_b_bin(m->e, AT_B_ADD, u, low);
  r = at_b_bin(m->e, AT_B_AND, r, int_like(m, u, ~mask));
  r = at_b_cast(m->e, AT_B_BITCAST, r, at_b_type_of(a.re));
  LLVMValueRef finite =
      at_em_apply_real(m->e, AT_OP_IS_FINITE, AT_F32, a, (at_val){0}).re;
  r = at_b_select(m->e, finite, r, a.re);
  return at_em_convert(m->e, AT_F32, to, (at_val){r, NULL});
}

// tpu.pack_elementwise: operand i, narrowed to the target type, takes bits [i *
// w, (i + 1) * w) of the word.
static at_val pack_words(at_me *m, const at_mop *op, const at_dtype *types,
                         at_dtype rt, at_val *args, uint32_t n) {
  const at_mattr *t = at_mop_attr(op, "target_type");
  at_dtype to = t && t->type ? at_mosaic_dtype_of(t->type) : AT_INVALID;
  uint32_t bits = to == AT_INVALID ? 32 : at_dtype_of(to)->bits;
  LLVMTypeRef word = wide_int(m, 8 * at_dtype_bytes(rt));
  LLVMValueRef r = at_b_null(word);
  for (uint32_t i = 0; i < n && i * bits < at_dtype_of(rt)->bits; i++) {
    at_val v = at_is_float(types[i])
                   ? at_em_convert(m->e, types[i], to, args[i])
                   : trunc_int(m, types[i], to, args[i]);
    LLVMValueRef x = at_me_to_bits(m, to, v.re);
    if (at_em_bits_of(at_b_type_of(x)) < at_em_bits_of(word))
      x = at_b_cast(m->e, AT_B_ZEXT, x, word);
    x = at_b_bin(m->e, AT_B_SHL, x, at_em_ci(m->e, word, (int64_t)bits * i));
    r = at_b_bin(m->e, AT_B_OR, r, x);
  }
  return at_em_normalize(m->e, rt, (at_val){r, NULL});
}

// tpu.unpack_elementwise: the element at `index` of each word, widened to the
// result's type. An index out of range is the first.
static at_val unpack_word(at_me *m, const at_mop *op, at_dtype word,
                          at_dtype rt, at_val a) {
  const at_mattr *t = at_mop_attr(op, "source_type");
  at_dtype from = t && t->type ? at_mosaic_dtype_of(t->type) : word;
  uint32_t bits = at_dtype_of(from)->bits, all = at_dtype_of(word)->bits;
  int64_t shift = at_mosaic_op_int(op, "index", 0) * bits;
  if (shift < 0 || shift >= all) shift = 0;
  LLVMValueRef v = at_me_to_bits(m, word, a.re);
  v = at_b_bin(m->e, AT_B_LSHR, v, int_like(m, v, shift));
  at_val x = {at_me_from_bits(m, from, v), NULL};
  return at_em_convert(m->e, from, rt, x);
}

// ---- floats
// 2^a in f32: e^p for p = a ln 2, rounded, and what the rounding lost, to first
// order, which grows with a. Where that is not finite e^p stands.
static at_val power_of_two(at_me *m, at_dtype t, at_val a) {
  LLVMTypeRef ty = at_b_type_of(a.re);
  double ln2 = 0.693147180559945309, high = (double)(float)ln2;
  LLVMValueRef c = at_em_cf(m->e, ty, high);
  LLVMValueRef p = at_b_bin(m->e, AT_B_FMUL, a.re, c);
  LLVMValueRef lost[3] = {a.re, c,
                          at_em_apply_real(m->e, AT_OP_NEGATE, AT_F32,
                                           (at_val){p, NULL}, (at_val){0})
                              .re};
  lost[2] = at_b_intrinsic(m->e, "llvm.fma", lost, 3);
  lost[1] = at_em_cf(m->e, ty, ln2 - high);
  LLVMValueRef r = at_em_apply_real(m->e, AT_OP_EXPONENTIAL, AT_F32,
                                    (at_val){p, NULL}, (at_val){0})
                       .re;
  LLVMValueRef all[3] = {r, at_b_intrinsic(m->e, "llvm.fma", lost, 3), r};
  LLVMValueRef whole = at_b_intrinsic(m->e, "llvm.fma", all, 3);
  whole = at_b_select(m->e, at_b_fcmp(m->e, AT_B_ORD, whole, whole), whole, r);
  return at_em_normalize(m->e, t, (at_val){whole, NULL});
}

static at_val log2_of(at_me *m, at_dtype t, at_val a) {
  a = at_em_apply_real(m->e, AT_OP_LOG, AT_F32, a, (at_val){0});
  LLVMValueRef c = at_em_cf(m->e, at_b_type_of(a.re), 1.44269504088896341);
  a.re = at_b_bin(m->e, AT_B_FMUL, a.re, c);
  return at_em_normalize(m->e, t, a);
}

// Minimum and maximum that return the number where one operand is NaN (maxnumf,
// minnumf).
static at_val number_wins(at_me *m, at_op op, at_dtype t, at_val a, at_val b) {
  at_val r = at_em_apply_real(m->e, op, t, a, b);
  LLVMValueRef na = at_b_fcmp(m->e, AT_B_UNO, a.re, a.re);
  LLVMValueRef nb = at_b_fcmp(m->e, AT_B_UNO, b.re, b.re);
  r.re = at_b_select(m->e, nb, a.re, r.re);
  r.re = at_b_select(m->e, na, b.re, r.re);
  return r;
}

// LLVM's intrinsic on up to three operands, rounded to type t.
static at_val rounded_intrinsic(at_me *m, const char *name, at_dtype t,
                                at_val *args, uint32_t n) {
  LLVMValueRef v[3] = {args[0].re, n > 1 ? args[1].re : NULL,
                       n > 2 ? args[2].re : NULL};
  at_val r = {at_b_intrinsic(m->e, name, v, n), NULL};
  return at_em_normalize(m->e, t, r);
}

// The float operations that codegen has under the same meaning, by table, then
// those that are made of others. *known false: none of these.
static at_val apply_float(at_me *m, at_mosaic_opcode c, at_dtype t, at_val *a,
                          bool *known) {
  static const struct {
    at_mosaic_opcode code;
    at_op op;
  } table[] = {{AT_MOSAIC_ARITH_ADDF, AT_OP_ADD},
               {AT_MOSAIC_ARITH_SUBF, AT_OP_SUBTRACT},
               {AT_MOSAIC_ARITH_MULF, AT_OP_MULTIPLY},
               {AT_MOSAIC_ARITH_DIVF, AT_OP_DIVIDE},
               {AT_MOSAIC_ARITH_REMF, AT_OP_REMAINDER},
               {AT_MOSAIC_ARITH_NEGF, AT_OP_NEGATE},
               {AT_MOSAIC_ARITH_MAXIMUMF, AT_OP_MAXIMUM},
               {AT_MOSAIC_ARITH_MINIMUMF, AT_OP_MINIMUM},
               {AT_MOSAIC_MATH_EXP, AT_OP_EXPONENTIAL},
               {AT_MOSAIC_MATH_EXPM1, AT_OP_EXPONENTIAL_MINUS_ONE},
               {AT_MOSAIC_MATH_LOG, AT_OP_LOG},
               {AT_MOSAIC_MATH_LOG1P, AT_OP_LOG_PLUS_ONE},
               {AT_MOSAIC_MATH_TANH, AT_OP_TANH},
               {AT_MOSAIC_MATH_POWF, AT_OP_POWER},
               {AT_MOSAIC_MATH_ATAN2, AT_OP_ATAN2},
               {AT_MOSAIC_MATH_SQRT, AT_OP_SQRT},
               {AT_MOSAIC_MATH_RSQRT, AT_OP_RSQRT},
               {AT_MOSAIC_MATH_SIN, AT_OP_SINE},
               {AT_MOSAIC_MATH_COS, AT_OP_COSINE},
               {AT_MOSAIC_MATH_TAN, AT_OP_TAN},
               {AT_MOSAIC_MATH_ERF, AT_OP_ERF},
               {AT_MOSAIC_MATH_ABSF, AT_OP_ABS},
               {AT_MOSAIC_MATH_CEIL, AT_OP_CEIL},
               {AT_MOSAIC_MATH_FLOOR, AT_OP_FLOOR},
               {AT_MOSAIC_MATH_ROUND, AT_OP_ROUND_NEAREST_AFZ},
               {AT_MOSAIC_MATH_ROUNDEVEN, AT_OP_ROUND_NEAREST_EVEN},
               {AT_MOSAIC_TPU_LOGISTIC, AT_OP_LOGISTIC}};
  *known = true;
  for (size_t i = 0; i < AT_LEN(table); i++)
    if (table[i].code == c)
      return at_em_apply_real(m->e, table[i].op, t, a[0], a[1]);
  switch (c) {
    case AT_MOSAIC_ARITH_MAXNUMF:
      return number_wins(m, AT_OP_MAXIMUM, t, a[0], a[1]);
    case AT_MOSAIC_ARITH_MINNUMF:
      return number_wins(m, AT_OP_MINIMUM, t, a[0], a[1]);
    case AT_MOSAIC_MATH_EXP2:
      return power_of_two(m, t, a[0]);
    case AT_MOSAIC_MATH_LOG2:
      return log2_of(m, t, a[0]);
    case AT_MOSAIC_MATH_TRUNC:
      return rounded_intrinsic(m, "llvm.trunc", t, a, 1);
    case AT_MOSAIC_MATH_COPYSIGN:
      return rounded_intrinsic(m, "llvm.copysign", t, a, 2);
    case AT_MOSAIC_MATH_FMA:
      return rounded_intrinsic(m, "llvm.fma", t, a, 3);
    case AT_MOSAIC_TPU_RECIPROCAL: {
      at_val one = {at_em_cf(m->e, at_b_type_of(a[0].re), 1), NULL};
      return at_em_apply_real(m->e, AT_OP_DIVIDE, t, one, a[0]);
    }
    default:
      *known = false;
      return a[0];
  }
}

// Likewise for integers and truths. Addition of truths is exclusive or.
static at_val apply_int(at_me *m, at_mosaic_opcode c, at_dtype t, at_val *a,
                        bool *known) {
  static const struct {
    at_mosaic_opcode code;
    at_op op;
    bool is_unsigned;
  } table[] = {{AT_MOSAIC_ARITH_SUBI, AT_OP_SUBTRACT, false},
               {AT_MOSAIC_ARITH_MULI, AT_OP_MULTIPLY, false},
               {AT_MOSAIC_ARITH_DIVSI, AT_OP_DIVIDE, false},
               {AT_MOSAIC_ARITH_DIVUI, AT_OP_DIVIDE, true},
               {AT_MOSAIC_ARITH_REMSI, AT_OP_REMAINDER, false},
               {AT_MOSAIC_ARITH_REMUI, AT_OP_REMAINDER, true},
               {AT_MOSAIC_ARITH_ANDI, AT_OP_AND, false},
               {AT_MOSAIC_ARITH_ORI, AT_OP_OR, false},
               {AT_MOSAIC_ARITH_XORI, AT_OP_XOR, false},
               {AT_MOSAIC_ARITH_SHLI, AT_OP_SHIFT_LEFT, false},
               {AT_MOSAIC_ARITH_SHRSI, AT_OP_SHIFT_RIGHT_ARITHMETIC, false},
               {AT_MOSAIC_ARITH_SHRUI, AT_OP_SHIFT_RIGHT_LOGICAL, false},
               {AT_MOSAIC_ARITH_MAXSI, AT_OP_MAXIMUM, false},
               {AT_MOSAIC_ARITH_MAXUI, AT_OP_MAXIMUM, true},
               {AT_MOSAIC_ARITH_MINSI, AT_OP_MINIMUM, false},
               {AT_MOSAIC_ARITH_MINUI, AT_OP_MINIMUM, true},
               {AT_MOSAIC_MATH_ABSI, AT_OP_ABS, false},
               {AT_MOSAIC_MATH_CTLZ, AT_OP_COUNT_LEADING_ZEROS, false},
               {AT_MOSAIC_MATH_CTPOP, AT_OP_POPCNT, false}};
  *known = true;
  if (c == AT_MOSAIC_ARITH_ADDI) {
    if (t == AT_PRED)
      return (at_val){at_b_bin(m->e, AT_B_XOR, a[0].re, a[1].re), NULL};
    return at_em_apply_real(m->e, AT_OP_ADD, t, a[0], a[1]);
  }
  for (size_t i = 0; i < AT_LEN(table); i++) {
    if (table[i].code != c) continue;
    // The shift count of a narrow type has its sign extended.
    if (c == AT_MOSAIC_ARITH_SHLI || c == AT_MOSAIC_ARITH_SHRSI ||
        c == AT_MOSAIC_ARITH_SHRUI)
      a[1].re = as_unsigned(m, t, a[1].re);
    return table[i].is_unsigned
               ? unsigned_op(m, table[i].op, t, a[0], a[1])
               : at_em_apply_real(m->e, table[i].op, t, a[0], a[1]);
  }
  *known = false;
  return a[0];
}

static bool bits_equal(at_dtype a, at_dtype b) {
  return at_dtype_of(a)->bits == at_dtype_of(b)->bits;
}

// For the check: a NaN that arises here carries the number of this place, which
// arithmetic hands on (core_misc.c reads it). The numbers stay integers: LLVM
// finds a NaN among its constants by a hash that is the same for all of them.
static at_val tag_nan(at_me *m, const at_mop *op, const at_val *args,
                      at_val r) {
  at_em *e = m->e;
  int32_t loc = at_me_loc(m, op);
  if (loc < 0 || loc >= AT_CORE_NAN_PLACES) return r;
  LLVMValueRef arises = at_b_fcmp(e, AT_B_UNO, r.re, r.re);
  for (uint32_t i = 0; i < AT_ME_MAX_IN && args[i].re; i++)
    arises = at_b_bin(e, AT_B_AND, arises,
                      at_b_fcmp(e, AT_B_ORD, args[i].re, args[i].re));
  LLVMValueRef bits = at_me_to_bits(m, AT_F32, r.re);
  LLVMValueRef tag = int_like(m, bits, AT_CORE_NAN | (uint32_t)(loc + 1));
  bits = at_b_select(e, arises, tag, bits);
  return (at_val){at_me_from_bits(m, AT_F32, bits), NULL};
}

// types: of args; rt: of the result.
at_val at_me_apply(at_me *m, const at_mop *op, at_mosaic_opcode code,
                   const at_dtype *types, at_dtype rt, at_val *args) {
  at_em *e = m->e;
  at_dtype t = types[0];
  bool known = false;
  switch (code) {
    case AT_MOSAIC_ARITH_CMPI:
      return (at_val){
          at_b_icmp(e, (at_b_ipred)(at_mosaic_op_int(op, "predicate", 0) % 10),
                    args[0].re, args[1].re),
          NULL};
    case AT_MOSAIC_ARITH_CMPF: {
      at_b_fpred p = (at_b_fpred)(at_mosaic_op_int(op, "predicate", 0) & 15);
      // The chip has one "not equal", true for NaN; JAX writes it as `one`.
      if (p == AT_B_ONE) p = AT_B_UNE;
      return (at_val){at_b_fcmp(e, p, args[0].re, args[1].re), NULL};
    }
    case AT_MOSAIC_ARITH_SELECT:
      return (at_val){at_b_select(e, args[0].re, args[1].re, args[2].re), NULL};
    case AT_MOSAIC_ARITH_EXTUI:
      return extend(m, false, t, rt, args[0]);
    case AT_MOSAIC_ARITH_EXTSI:
      return extend(m, true, t, rt, args[0]);
    case AT_MOSAIC_ARITH_TRUNCI:
      return trunc_int(m, t, rt, args[0]);
    case AT_MOSAIC_ARITH_INDEX_CAST:
      return extend(m, true, t, rt, args[0]);
    case AT_MOSAIC_ARITH_INDEX_CASTUI:
      return extend(m, false, t, rt, args[0]);
    case AT_MOSAIC_ARITH_EXTF:
    case AT_MOSAIC_ARITH_TRUNCF:
    case AT_MOSAIC_TPU_EXTF:
    case AT_MOSAIC_TPU_TRUNCF:
      return at_em_convert(e, t, rt, args[0]);
    case AT_MOSAIC_ARITH_SITOFP:
    case AT_MOSAIC_TPU_SITOFP:
      return to_float(m, true, t, rt, args[0]);
    case AT_MOSAIC_ARITH_UITOFP:
    case AT_MOSAIC_TPU_UITOFP:
      return to_float(m, false, t, rt, args[0]);
    case AT_MOSAIC_ARITH_FPTOSI:
    case AT_MOSAIC_TPU_FPTOSI:
      return to_int(m, op, true, t, rt, args[0]);
    case AT_MOSAIC_ARITH_FPTOUI:
    case AT_MOSAIC_TPU_FPTOUI:
      return to_int(m, op, false, t, rt, args[0]);
    case AT_MOSAIC_ARITH_BITCAST:
    case AT_MOSAIC_TPU_BITCAST:
    case AT_MOSAIC_VECTOR_BITCAST:
      if (!bits_equal(t, rt)) break;
      return (at_val){at_me_from_bits(m, rt, at_me_to_bits(m, t, args[0].re)),
                      NULL};
    case AT_MOSAIC_TPU_WEIRD: {
      at_val f = at_em_apply_real(e, AT_OP_IS_FINITE, t, args[0], (at_val){0});
      return (at_val){at_b_not(e, f.re), NULL};
    }
    case AT_MOSAIC_TPU_ASSUME_LAYOUT:
    case AT_MOSAIC_TPU_MASK_CAST:
    case AT_MOSAIC_TPU_ASSUME_MULTIPLE:
      return args[0];
    case AT_MOSAIC_TPU_REDUCE_PRECISION: {
      LLVMValueRef v = at_em_reduce_precision(
          e, t, at_mosaic_op_int(op, "exponent_bits", 8),
          at_mosaic_op_int(op, "mantissa_bits", 23), args[0].re);
      return at_em_normalize(e, rt, (at_val){v, NULL});
    }
    case AT_MOSAIC_TPU_STOCHASTIC_CONVERT:
      return stochastic(m, rt, args[0], args[1]);
    case AT_MOSAIC_TPU_STOCHASTIC_CONVERT_ELEMENTWISE: {
      const at_mattr *d = at_mop_attr(op, "dst_type");
      at_dtype to = d && d->type ? at_mosaic_dtype_of(d->type) : AT_BF16;
      at_val v = stochastic(m, to, args[0], args[1]);
      LLVMValueRef b = at_me_to_bits(m, to, v.re);
      return (at_val){at_b_cast(e, AT_B_ZEXT, b, wide_int(m, 32)), NULL};
    }
    case AT_MOSAIC_TPU_PACK_ELEMENTWISE:
      return pack_words(m, op, types, rt, args, op->num_operands);
    case AT_MOSAIC_TPU_UNPACK_ELEMENTWISE:
      return unpack_word(m, op, t, rt, args[0]);
    default:
      break;
  }
  at_val r = at_is_float(t) ? apply_float(m, code, t, args, &known)
                            : apply_int(m, code, t, args, &known);
  if (!known)
    at_em_fail(e, at_me_refuse(m, op, "element type %s to %s",
                               at_dtype_of(t)->text, at_dtype_of(rt)->text));
  else if (m->o->check_nan && t == AT_F32 && rt == AT_F32)
    return tag_nan(m, op, args, r);
  return r;
}
