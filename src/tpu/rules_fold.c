// What the compiler's first pass takes out of a kernel before any rule looks at
// it: operations on constants, operations that change nothing, and what nobody
// reads then.
#include <string.h>

#include "tpu/rules_internal.h"

// An integer constant, or a dense one whose elements are all the same,
// sign-extended.
static bool splat_of(const at_mattr *a, int64_t *out) {
  if (a->kind == AT_MATTR_INTEGER || a->kind == AT_MATTR_BOOL) {
    *out = a->i;
    return true;
  }
  if (a->kind != AT_MATTR_DENSE || !a->splat || !a->type || !a->type->elem ||
      a->type->elem->kind != AT_MTYPE_INTEGER || a->data.len > 8)
    return false;
  uint64_t bits = 0;
  memcpy(&bits, a->data.ptr, a->data.len);
  uint32_t unused = 64 - 8 * (uint32_t)a->data.len;
  *out = unused < 64 ? (int64_t)(bits << unused) >> unused : 0;
  return true;
}

// What a comparison of a value with itself gives.
static bool of_itself(const at_mop *op, int64_t *out) {
  enum { EQ = 0, SLE = 3, SGE = 5, ULE = 7, UGE = 9 };
  int64_t p;
  if (op->operands[0] != op->operands[1] ||
      !at_mosaic_attr_int(op, "predicate", &p))
    return false;
  *out = p == EQ || p == SLE || p == SGE || p == ULE || p == UGE;
  return true;
}

// The integer that every element of v is.
static bool all_are(const at_mvalue *v, int64_t *out) {
  for (int depth = 0; v->op && depth < 32; depth++) {
    at_mvalue *const *o = v->op->operands;
    switch (at_mosaic_opcode_of(v->op)) {
      case AT_MOSAIC_ARITH_CONSTANT:
        return splat_of(at_mop_attr(v->op, "value"), out);
      case AT_MOSAIC_ARITH_CMPI:
        return of_itself(v->op, out);
      case AT_MOSAIC_ARITH_XORI:
      case AT_MOSAIC_ARITH_SUBI:
        *out = 0;
        return o[0] == o[1];
      case AT_MOSAIC_VECTOR_BROADCAST:
      case AT_MOSAIC_VECTOR_SHAPE_CAST:
      case AT_MOSAIC_ARITH_TRUNCI:
        v = o[0];
        break;
      default:
        return false;
    }
  }
  return false;
}
// Is every element of v the number n?
static bool is_all(const at_mvalue *v, int64_t n) {
  int64_t c;
  return all_are(v, &c) && c == n;
}

static bool is_arithmetic(at_mosaic_opcode c) {
  return c >= AT_MOSAIC_ARITH_CONSTANT && c <= AT_MOSAIC_MATH_CTPOP;
}

// May what it makes of known operands be known before the kernel runs?
static bool keeps_known(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return c == AT_MOSAIC_ARITH_CONSTANT || c == AT_MOSAIC_VECTOR_BROADCAST ||
         c == AT_MOSAIC_VECTOR_SHAPE_CAST ||
         (c >= AT_MOSAIC_ARITH_ADDI && c <= AT_MOSAIC_ARITH_BITCAST);
}

// All of them, as the walk has found before it leaves the operation.
static bool operands_known(const at_walk *w, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (!at_walk_get(w, op->operands[i], 0)->i) return false;
  return true;
}

// Memoised over all questions of one judgement (j->known).
bool at_mosaic_value_known(at_mosaic_judge *j, const at_mvalue *v) {
  at_walk *w = &j->known;
  at_walk_add(w, v, 0);
  for (at_walk_step s; at_walk_next_both(w, &s);) {
    const at_mop *op = ((const at_mvalue *)s.item)->op;
    if (!op || !keeps_known(op)) continue;
    if (s.leaving)
      at_walk_set(w, &s, (at_walk_value){.i = operands_known(w, op)});
    for (uint32_t i = 0; i < op->num_operands && !s.leaving; i++)
      at_walk_add(w, op->operands[i], 0);
  }
  const at_walk_value *known = at_walk_get(w, v, 0);
  return known && known->i;
}

// The operand that the operation gives back unchanged, or NULL.
static const at_mvalue *unchanged(const at_mop *op) {
  at_mvalue *const *o = op->operands;
  int64_t c;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_ARITH_ADDI:
    case AT_MOSAIC_ARITH_ORI:
    case AT_MOSAIC_ARITH_XORI:
    case AT_MOSAIC_ARITH_MAXUI:
      if (is_all(o[0], 0)) return o[1];
      return is_all(o[1], 0) ? o[0] : NULL;
    case AT_MOSAIC_ARITH_SUBI:
    case AT_MOSAIC_ARITH_SHLI:
    case AT_MOSAIC_ARITH_SHRSI:
    case AT_MOSAIC_ARITH_SHRUI:
      return is_all(o[1], 0) ? o[0] : NULL;
    case AT_MOSAIC_ARITH_MULI:
      if (is_all(o[0], 1)) return o[1];
      return is_all(o[1], 1) ? o[0] : NULL;
    case AT_MOSAIC_ARITH_DIVSI:
    case AT_MOSAIC_ARITH_DIVUI:
      return is_all(o[1], 1) ? o[0] : NULL;
    case AT_MOSAIC_ARITH_SELECT:
      if (o[1] == o[2]) return o[1];
      return all_are(o[0], &c) ? o[c ? 1 : 2] : NULL;
    default:
      return NULL;
  }
}

// Follows at most 32 operations that hand on an operand.
const at_mvalue *at_mosaic_value_folded(const at_mvalue *v) {
  for (int depth = 0; v->op && depth < 32; depth++) {
    const at_mvalue *to = unchanged(v->op);
    if (!to) break;
    v = to;
  }
  return v;
}

// A branch on a constant, or a loop from a constant up to one that is not
// larger.
bool at_mosaic_region_runs(const at_mop *op, uint32_t region) {
  int64_t first, last;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_SCF_IF:
      return !all_are(at_mosaic_value_folded(op->operands[0]), &first) ||
             (first != 0) == (region == 0);
    case AT_MOSAIC_SCF_FOR: {
      const at_mvalue *from = at_mosaic_value_folded(op->operands[0]);
      const at_mvalue *to = at_mosaic_value_folded(op->operands[1]);
      if (from == to) return false;
      return !all_are(from, &first) || !all_are(to, &last) || first < last;
    }
    default:
      return true;
  }
}

// ---- What remains
// Operations without effects: the compiler drops them if nobody reads their
// results.
static bool goes_unread(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  if (op->num_regions || op->num_results == 0) return false;
  if (is_arithmetic(c)) return true;
  switch (c) {
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_VECTOR_BROADCAST:
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
    case AT_MOSAIC_VECTOR_EXTRACT:
    case AT_MOSAIC_VECTOR_EXTRACT_STRIDED_SLICE:
    case AT_MOSAIC_VECTOR_MULTI_REDUCTION:
    case AT_MOSAIC_TPU_IOTA:
    case AT_MOSAIC_TPU_CONCATENATE:
    case AT_MOSAIC_TPU_TRANSPOSE:
    case AT_MOSAIC_TPU_BITCAST:
      return true;
    default:
      return false;
  }
}

// Backwards, so that users are seen first. Known values and those that fold
// away do not keep their operations alive.
static at_status mark(at_mosaic_judge *j, const at_mblock *b) {
  for (uint32_t i = b->num_ops; i-- > 0;) {
    const at_mop *op = b->ops[i];
    if (goes_unread(op) && !at_map_find_ptr(&j->live, op)) continue;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t n = 0; n < op->regions[r]->num_blocks; n++)
        AT_TRY(mark(j, op->regions[r]->blocks[n]));
    for (uint32_t n = 0; n < op->num_operands; n++) {
      const at_mvalue *v = at_mosaic_value_folded(op->operands[n]);
      if (!v->op || !goes_unread(v->op) || at_mosaic_value_known(j, v))
        continue;
      void **slot;
      AT_TRY_ALLOC(slot, at_map_put_ptr(&j->live, v->op));
    }
  }
  return AT_OK;
}

// Once for each program, before its operations are judged.
at_status at_mosaic_rules_mark(at_mosaic_judge *j) {
  j->live = at_map_in(j->scratch);
  j->known = at_walk_in(j->scratch);
  AT_TRY(mark(j, j->p->body));
  return at_walk_status(&j->known);
}

bool at_mosaic_remains(const at_mosaic_judge *j, const at_mop *op) {
  return !goes_unread(op) || at_map_find_ptr(&j->live, op) != NULL;
}
