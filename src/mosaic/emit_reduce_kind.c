// What a reduction combines by.
#include "mosaic/emit_reduce_kind.h"

// A prefix is enough: text may follow.
bool at_me_reduce_is(at_str s, const char *text) {
  size_t n = strlen(text);
  return s.len >= n && !memcmp(s.ptr, text, n);
}

// Kinds by the beginning of their name: "maxsi", "maximumf" and "maxnumf" are
// all MAX.
at_me_reduce_op at_me_reduce_op_of(const at_mattr *kind) {
  at_str s = kind ? kind->str : (at_str){0};
  if (at_me_reduce_is(s, "add") || at_me_reduce_is(s, "sum"))
    return AT_ME_R_ADD;
  if (at_me_reduce_is(s, "mul")) return AT_ME_R_MUL;
  if (at_me_reduce_is(s, "min")) return AT_ME_R_MIN;
  if (at_me_reduce_is(s, "max")) return AT_ME_R_MAX;
  if (at_me_reduce_is(s, "and")) return AT_ME_R_AND;
  if (at_me_reduce_is(s, "or")) return AT_ME_R_OR;
  if (at_me_reduce_is(s, "xor")) return AT_ME_R_XOR;
  return AT_ME_R_NONE;
}

// NONE is refused by callers.
at_op at_me_reduce_hlo(at_me_reduce_op op) {
  static const at_op table[] = {
      [AT_ME_R_ADD] = AT_OP_ADD,     [AT_ME_R_MUL] = AT_OP_MULTIPLY,
      [AT_ME_R_MIN] = AT_OP_MINIMUM, [AT_ME_R_MAX] = AT_OP_MAXIMUM,
      [AT_ME_R_AND] = AT_OP_AND,     [AT_ME_R_OR] = AT_OP_OR,
      [AT_ME_R_XOR] = AT_OP_XOR,     [AT_ME_R_NONE] = AT_OP_ADD};
  return table[op];
}

// For floats the extrema begin with infinities; for integers with the type's
// bounds, signed or not.
LLVMValueRef at_me_reduce_identity(at_me *m, at_dtype t, at_me_reduce_op op) {
  at_em *e = m->e;
  LLVMTypeRef type = at_em_reg_type(e, t);
  bool max = op == AT_ME_R_MAX;
  if (at_is_float(t)) {
    double inf = __builtin_inf();
    return at_em_cf(e, type,
                    op == AT_ME_R_MUL ? 1
                    : op == AT_ME_R_MIN || op == AT_ME_R_MAX
                        ? (max ? -inf : inf)
                        : 0);
  }
  if (t == AT_PRED)
    return at_em_ci(
        e, type, op == AT_ME_R_AND || op == AT_ME_R_MIN || op == AT_ME_R_MUL);
  uint32_t bits = at_dtype_of(t)->bits;
  int64_t low = at_is_signed_int(t) ? -(1ll << (bits - 1)) : 0;
  int64_t high = at_is_signed_int(t) ? (1ll << (bits - 1)) - 1
                                     : (int64_t)((1ull << bits) - 1);
  switch (op) {
    case AT_ME_R_MUL:
      return at_em_ci(e, type, 1);
    case AT_ME_R_MIN:
      return at_em_ci(e, type, high);
    case AT_ME_R_MAX:
      return at_em_ci(e, type, low);
    case AT_ME_R_AND:
      return at_em_ci(e, type, -1);
    default:
      return at_em_ci(e, type, 0);
  }
}
