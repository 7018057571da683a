// Sums that begin with a product, and those whose products come later
// (plan_sums.c says which).
#include <stddef.h>

#include "mosaic/emit.h"

#define FIELD(f) offsetof(at_core_dot_taken, f)
// at_core_dot_take: adds the missing product to c and stores the sum into the
// box in one go, in the box's type. Both are matrices of the same size in their
// last two dimensions.
static void call_take(at_me *m, const at_mop *store, const at_me_ref *c,
                      const at_me_ref *box) {
  uint32_t i = c->rank - 2, k = box->rank - 2;
  at_me_record r;
  at_me_record_begin(&r, sizeof(at_core_dot_taken));
  at_me_record_value(m, &r, FIELD(c), c->base);
  at_me_record_value(m, &r, FIELD(out), box->base);
  at_me_record_i32(&r, FIELD(out_type), (int32_t)box->dtype);
  at_me_record_i32(&r, FIELD(loc), at_me_loc(m, store));
  at_me_record_num(m, &r, FIELD(m), c->size[i]);
  at_me_record_num(m, &r, FIELD(n), c->size[i + 1]);
  at_me_record_num(m, &r, FIELD(c_m),
                   at_me_mul(m, c->stride[i], (at_me_num){c->bytes, NULL}));
  at_me_record_num(m, &r, FIELD(out_m),
                   at_me_mul(m, box->stride[k], (at_me_num){box->bytes, NULL}));
  LLVMValueRef args[2] = {m->core, at_me_record_end(m, &r)};
  at_b_call(m->e, "at_core_dot_take", NULL, args, 2);
}
#undef FIELD

// Plain elements with stride 1 in the last dimension.
static bool has_dense_rows(const at_me_ref *r) {
  at_me_num step = r->stride[r->rank - 1];
  return r->packing->parts <= 1 && r->packing->split <= 1 &&
         r->dtype == r->storage && !step.v && step.c == 1;
}

// Computes all products that wait.
static void finish(at_me *m) {
  LLVMValueRef core = m->core;
  at_b_call(m->e, "at_core_dot_finish", NULL, &core, 1);
}

// Where the layouts do not fit, products are finished first and the store goes
// on as usual.
bool at_me_late_take(at_me *m, const at_mop *store, const at_me_ref *box) {
  const at_mvalue *sum = at_mplan_op_of(m->plan, store)->takes;
  if (!sum) return false;
  const at_me_ref *c = at_me_memory(m, sum);
  if (c && has_dense_rows(c) && has_dense_rows(box)) {
    call_take(m, store, c, box);
    return true;
  }
  finish(m);
  return false;
}

void at_me_late_finish(at_me *m, const at_mblock *b) {
  if (at_mplan_finishes(m->plan, b)) finish(m);
}

// `first` is the condition of the branch that was left out.
at_me_start at_me_start_of(at_me *m, const at_mop *store) {
  const at_mplan_op *plan = at_mplan_op_of(m->plan, store);
  if (!plan->start) return (at_me_start){NULL, false};
  return (at_me_start){at_me_scalar(m, plan->start->operands[0]),
                       plan->may_wait};
}

// What the branch that was left out would have done.
void at_me_start_now(at_me *m, LLVMValueRef first, const at_me_ref *sum) {
  at_branch f;
  if (!first) return;
  at_me_node *zero =
      at_me_splat(m, AT_F32, at_b_null(at_em_reg_type(m->e, AT_F32)));
  if (!zero) return;
  at_if_begin(m->e, &f, first);
  at_me_copy_to(m, zero, sum, NULL, AT_ME_PLAIN);
  at_if_end(m->e, &f);
}
