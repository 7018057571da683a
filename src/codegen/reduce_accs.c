// Accumulators of the reductions that a kernel makes together.
#include "codegen/reduce.h"

#include <llvm-c/Core.h>

// Init values are loaded once for the kernel.
at_rd *at_rd_make(at_em *e, const at_job *j) {
  at_rd *rd = at_new(e->arena, at_rd, j->num_reduces + 1);
  const at_pos *none = at_pos_make(e, false, 0, NULL, NULL);
  for (uint32_t i = 0; rd && i < j->num_reduces; i++) {
    const at_node *n = j->reduces[i];
    rd[i].r = at_reducer_of(n, n->regions[0]);
    uint32_t count = rd[i].r.count;
    rd[i].init = at_new(e->arena, at_val, count);
    rd[i].tmp = at_new(e->arena, at_val, 2 * count);
    if (!rd[i].init || !rd[i].tmp) {
      rd = NULL;
      break;
    }
    for (uint32_t k = 0; k < count; k++)
      rd[i].init[k] = at_em_elem(e, n->operands[count + k], none);
  }
  if (!rd) at_em_fail(e, AT_NO_MEMORY("reduction"));
  return rd;
}

// In order, the first summand is the init value; otherwise the identity, and
// at_rd_finish adds the init value once.
void at_rd_seed(at_em *e, at_rd *rd, at_accs *acc, bool identity) {
  *acc = at_accs_make(e, &rd->r);
  if (!at_em_ok(e)) return;
  if (identity)
    at_reducer_seed(e, &rd->r, rd->init, rd->tmp);
  else
    for (uint32_t k = 0; k < rd->r.count; k++)
      rd->tmp[k] = at_em_splat_val(e, rd->init[k]);
  at_accs_put(e, acc, rd->tmp);
}

// All lanes step; the old values come back where the lane does not count.
void at_rd_step_from(at_em *e, at_rd *rd, at_accs *acc, uint32_t first) {
  uint32_t count = rd->r.count;
  at_val *old = at_new(e->arena, at_val, 2 * count), *now = old + count;
  LLVMTypeRef bit = at_em_int(e, 1);
  LLVMValueRef lane[AT_EM_MAX_LANES];
  if (!old) {
    at_em_fail(e, AT_NO_MEMORY("reduction"));
    return;
  }
  for (uint32_t i = 0; i < e->lanes; i++)
    lane[i] = LLVMConstInt(bit, i >= first, false);
  LLVMValueRef counts = LLVMConstVector(lane, e->lanes);
  at_accs_get(e, acc, old);
  memcpy(now, old, count * sizeof *now);
  at_reducer_step(e, &rd->r, now, rd->tmp);
  if (!at_em_ok(e)) return;
  for (uint32_t k = 0; k < count; k++) {
    now[k].re = LLVMBuildSelect(e->b, counts, now[k].re, old[k].re, "");
    if (now[k].im)
      now[k].im = LLVMBuildSelect(e->b, counts, now[k].im, old[k].im, "");
  }
  at_accs_put(e, acc, now);
}

// Accumulators into the first, then halves of its lanes, then the tail: always
// in this order.
void at_rd_join(at_em *e, at_rd *rd, uint32_t unroll, bool tail, at_val *acc) {
  at_accs_get(e, &rd->acc[0], acc);
  for (uint32_t u = 1; u < unroll; u++) {
    at_accs_get(e, &rd->acc[u], rd->tmp);
    at_reducer_merge(e, &rd->r, acc, rd->tmp);
  }
  at_reducer_fold_lanes(e, &rd->r, acc);
  if (!tail) return;
  at_accs_get(e, &rd->tail, rd->tmp);
  at_reducer_merge(e, &rd->r, acc, rd->tmp);
}

// The init value is the left operand.
void at_rd_finish(at_em *e, at_rd *rd, at_val *acc, bool has_init) {
  if (!has_init && rd->r.op != AT_OP_PARAMETER) {
    at_val v = at_em_splat_val(e, rd->init[0]);
    at_reducer_step(e, &rd->r, &v, acc);
    acc[0] = v;
  }
  at_reducer_finish(e, &rd->r, acc);
}
