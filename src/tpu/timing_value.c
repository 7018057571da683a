// Numbers inside a kernel that are known without running it: they come from
// grid ids and constants.
#include "tpu/timing_internal.h"

typedef struct number {
  bool known;
  int64_t value;
} number;

// The number that v is known to be; false: it is not.
bool at_ms_value(at_ms_values *v, const at_mvalue *x, int64_t *out) {
  void **at = at_map_find_ptr(&v->known, x);
  const number *n = at ? *at : NULL;
  if (!n || !n->known) return false;
  *out = n->value;
  return true;
}

// Forgets v where it is not known.
at_status at_ms_value_set(at_ms_values *v, const at_mvalue *x, bool known,
                          int64_t value) {
  void **at = at_map_put_ptr(&v->known, x);
  if (at && !*at) *at = at_new(v->arena, number, 1);
  if (!at || !*at) return AT_NO_MEMORY("numbers of a kernel");
  *(number *)*at = (number){known, value};
  return AT_OK;
}

static bool is_integer(const at_mvalue *x) {
  return x->type->kind == AT_MTYPE_INTEGER || x->type->kind == AT_MTYPE_INDEX;
}

// Only integers are followed.
at_status at_ms_value_copy(at_ms_values *v, const at_mvalue *dst,
                           const at_mvalue *src) {
  int64_t number = 0;
  if (!is_integer(dst)) return AT_OK;
  bool known = at_ms_value(v, src, &number);
  return at_ms_value_set(v, dst, known, number);
}

// The result of one operation on known numbers, iteration bounds and constant
// prefetched arrays included.
static bool evaluate(at_ms_values *v, const at_mop *op, int64_t *out) {
  int64_t x[3] = {0}, dim;
  if (at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_ITERATION_BOUND) {
    if (!at_mosaic_attr_int(op, "dim", &dim) || dim < 0 ||
        dim >= v->program->grid_rank)
      return false;
    return *out = v->bounds[dim], true;
  }
  if (at_mosaic_opcode_of(op) == AT_MOSAIC_MEMREF_LOAD)
    return at_ms_constant(v, op, out);
  if (op->num_operands > 3) return false;
  bool known[3] = {false};
  for (uint32_t i = 0; i < op->num_operands; i++)
    known[i] = at_ms_value(v, op->operands[i], &x[i]);
  return at_mosaic_integer_of(op, known, x, out);
}

// With `zeros`, what is not known is 0.
at_status at_ms_value_op(at_ms_values *v, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_results; i++) {
    int64_t number = 0;
    if (!is_integer(&op->results[i])) continue;
    bool known = op->num_results == 1 && evaluate(v, op, &number);
    AT_TRY(at_ms_value_set(v, &op->results[i], known || v->zeros,
                           known ? number : 0));
  }
  return AT_OK;
}

// Runs the map's operations; *known is false if any index depends on data.
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
