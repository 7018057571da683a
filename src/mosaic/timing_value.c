// Numbers inside a kernel that are known without running it: they come from
// grid ids and constants.
#include "mosaic/timing_internal.h"

typedef struct number {
  bool known;
  int64_t value;
} number;

bool at_ms_value(at_ms_values *v, const at_mvalue *x, int64_t *out) {
  void **at = at_map_find_ptr(&v->known, x);
  const number *n = at ? *at : NULL;
  if (!n || !n->known) return false;
  *out = n->value;
  return true;
}

at_status at_ms_value_set(at_ms_values *v, const at_mvalue *x, bool known,
                          int64_t value) {
  void **at = at_map_put_ptr(&v->known, x);
  if (at && !*at) *at = at_new(v->arena, number, 1);
  if (!at || !*at) return AT_NO_MEMORY("numbers of a kernel");
  *(number *)*at = (number){known, value};
  return AT_OK;
}

static bool compare(int64_t predicate, int64_t a, int64_t b) {
  uint64_t ua = (uint32_t)a, ub = (uint32_t)b;
  switch (predicate) {
    case 0:
      return a == b;
    case 1:
      return a != b;
    case 2:
      return a < b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    case 5:
      return a >= b;
    case 6:
      return ua < ub;
    case 7:
      return ua <= ub;
    case 8:
      return ua > ub;
    default:
      return ua >= ub;
  }
}

static bool shift_fits(int64_t n) { return n >= 0 && n < 32; }

// Of two numbers, as 32-bit integers; false: not defined.
static bool combine(at_mosaic_opcode op, int64_t a, int64_t b, int64_t *out) {
  uint32_t ua = (uint32_t)a, ub = (uint32_t)b;
  bool divides = b != 0 && !(a == INT32_MIN && b == -1);
  switch (op) {
    case AT_MOSAIC_ARITH_ADDI:
      return *out = (int32_t)(ua + ub), true;
    case AT_MOSAIC_ARITH_SUBI:
      return *out = (int32_t)(ua - ub), true;
    case AT_MOSAIC_ARITH_MULI:
      return *out = (int32_t)(ua * ub), true;
    case AT_MOSAIC_ARITH_DIVSI:
      return divides ? *out = a / b, true : false;
    case AT_MOSAIC_ARITH_REMSI:
      return divides ? *out = a % b, true : false;
    case AT_MOSAIC_ARITH_DIVUI:
      return ub ? *out = (int32_t)(ua / ub), true : false;
    case AT_MOSAIC_ARITH_REMUI:
      return ub ? *out = (int32_t)(ua % ub), true : false;
    case AT_MOSAIC_ARITH_MINSI:
      return *out = AT_MIN(a, b), true;
    case AT_MOSAIC_ARITH_MAXSI:
      return *out = AT_MAX(a, b), true;
    case AT_MOSAIC_ARITH_ANDI:
      return *out = a & b, true;
    case AT_MOSAIC_ARITH_ORI:
      return *out = a | b, true;
    case AT_MOSAIC_ARITH_XORI:
      return *out = a ^ b, true;
    case AT_MOSAIC_ARITH_SHLI:
      return shift_fits(b) ? *out = (int32_t)(ua << b), true : false;
    case AT_MOSAIC_ARITH_SHRSI:
      return shift_fits(b) ? *out = (int32_t)a >> b, true : false;
    case AT_MOSAIC_ARITH_SHRUI:
      return shift_fits(b) ? *out = (int32_t)(ua >> b), true : false;
    default:
      return false;
  }
}

static bool constant(const at_mop *op, int64_t *out) {
  const at_mattr *a = at_mop_attr(op, "value");
  if (!a || (a->kind != AT_MATTR_INTEGER && a->kind != AT_MATTR_BOOL))
    return false;
  *out = a->i;
  return true;
}

static bool evaluate(at_ms_values *v, const at_mop *op, int64_t *out) {
  int64_t x[3] = {0}, p = 0;
  at_mosaic_opcode code = at_mosaic_opcode_of(op);
  if (code == AT_MOSAIC_ARITH_CONSTANT) return constant(op, out);
  if (code == AT_MOSAIC_TPU_ITERATION_BOUND) {
    if (!at_mosaic_attr_int(op, "dim", &p) || p < 0 ||
        p >= v->program->grid_rank)
      return false;
    return *out = v->bounds[p], true;
  }
  if (op->num_operands < 1 || op->num_operands > 3) return false;
  bool known[3] = {false};
  for (uint32_t i = 0; i < op->num_operands; i++)
    known[i] = at_ms_value(v, op->operands[i], &x[i]);
  switch (code) {
    case AT_MOSAIC_ARITH_INDEX_CAST:
    case AT_MOSAIC_ARITH_INDEX_CASTUI:
    case AT_MOSAIC_ARITH_EXTSI:
    case AT_MOSAIC_ARITH_EXTUI:
    case AT_MOSAIC_ARITH_TRUNCI:
    case AT_MOSAIC_TPU_ASSUME_MULTIPLE:
      *out = x[0];
      return known[0];
    case AT_MOSAIC_ARITH_CMPI:
      if (!known[0] || !known[1] || !at_mosaic_attr_int(op, "predicate", &p))
        return false;
      return *out = compare(p, x[0], x[1]), true;
    case AT_MOSAIC_ARITH_SELECT:
      if (!known[0]) return false;
      *out = x[0] ? x[1] : x[2];
      return known[x[0] ? 1 : 2];
    default:
      return op->num_operands == 2 && known[0] && known[1] &&
             combine(code, x[0], x[1], out);
  }
}

at_status at_ms_value_op(at_ms_values *v, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_results; i++) {
    int64_t number = 0;
    at_mtype_kind kind = op->results[i].type->kind;
    if (kind != AT_MTYPE_INTEGER && kind != AT_MTYPE_INDEX) continue;
    bool known = op->num_results == 1 && evaluate(v, op, &number);
    AT_TRY(at_ms_value_set(v, &op->results[i], known, number));
  }
  return AT_OK;
}

at_status at_ms_window_at(at_ms_values *v, const at_mosaic_window *w,
                          const int64_t *ids, int64_t *out, bool *known) {
  *known = true;
  for (uint32_t d = 0; d < w->bounds.rank; d++) out[d] = 0;
  if (!w->transform) return AT_OK;
  const at_mblock *b = w->transform->regions[0]->blocks[0];
  for (uint32_t i = 0; i < b->num_args; i++) {
    bool is_id = i < v->program->grid_rank;
    AT_TRY(at_ms_value_set(v, &b->args[i], is_id, is_id ? ids[i] : 0));
  }
  for (uint32_t i = 0; i + 1 < b->num_ops; i++)
    AT_TRY(at_ms_value_op(v, b->ops[i]));
  const at_mop *ret = b->num_ops ? b->ops[b->num_ops - 1] : NULL;
  for (uint32_t d = 0; ret && d < ret->num_operands && d < w->bounds.rank; d++)
    *known &= at_ms_value(v, ret->operands[d], &out[d]);
  return AT_OK;
}
