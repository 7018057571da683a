// Reductions of a kernel that is compiled quickly: those of one kind, shape and
// layout are one function of the module, which is called.
#include <stdio.h>

#include "mosaic/emit_reduce.h"

enum { NAME = 256 };

// Only 32-bit words, with a result in memory and at most one number to join:
// what a function of two pointers can do.
static bool is_called(at_me *m, const at_me_reduction *r) {
  bool words = r->a->dtype == AT_F32 || r->a->dtype == AT_S32;
  bool first =
      !r->acc || (r->acc->kind == AT_ME_SPLAT && r->acc->dtype == r->a->dtype);
  double work = (double)at_me_elements(r->a) * at_me_node_cost(m, r->a);
  return m->e->quick && r->out && words && first && !m->rows->count &&
         !at_me_shares(m, work);
}

// Do the strides, which the function's code has, fit into the name?
static bool name_it(const at_me_reduction *r, const at_me_ref *v, char *name) {
  int n = snprintf(name, NAME, "at.reduce.%s.%s.%s.%d.%d", at_op_text(r->op),
                   at_dtype_of(r->type)->text, at_dtype_of(r->a->dtype)->text,
                   r->number_wins, r->acc != NULL);
  for (uint32_t d = 0; d < v->rank && n < NAME; d++) {
    if (v->stride[d].v) return false;
    n += snprintf(name + n, (size_t)(NAME - n), ".%lld%c%lld",
                  (long long)r->a->dim[d], r->reduced[d] ? 'r' : 'x',
                  (long long)v->stride[d].c);
  }
  return n < NAME;
}

// Of parameter 0 into parameter 1, where the number is that joins the results.
static void write_function(at_me *m, const at_me_reduction *r,
                           const at_me_ref *view) {
  at_me_ref in = *view;
  at_me_node from = {
      .kind = AT_ME_LOAD, .dtype = r->a->dtype, .rank = r->a->rank, .ref = &in};
  at_me_ref to = *r->out;
  at_me_reduction own = *r;
  memcpy(from.dim, r->a->dim, sizeof from.dim);
  in.base = at_b_param(m->e, 0);
  to.base = at_b_param(m->e, 1);
  own.a = &from;
  own.out = &to;
  if (r->acc) {
    LLVMTypeRef t = at_em_reg_type(m->e, from.dtype);
    own.acc = at_me_splat(m, from.dtype, at_b_load(m->e, t, to.base, 4));
  }
  at_me_reduce_compute(m, &own);
}

// The name has everything that the code depends on; the function is written
// when the name is first used.
bool at_me_reduce_called(at_me *m, const at_me_reduction *r) {
  at_me_ref view;
  char name[NAME];
  if (!is_called(m, r)) return false;
  at_me_node *from = at_me_view(m, r->a, &view);
  bool good = from && view.storage == r->a->dtype && view.packing->parts == 1 &&
              view.packing->split == 1 && name_it(r, &view, name);
  if (good) {
    at_b_helper h;
    if (at_b_helper_begin(m->e, &h, name)) {
      write_function(m, r, &view);
      at_b_helper_end(m->e, &h);
    }
    if (r->acc) at_b_store(m->e, r->acc->scalar, r->out->base, 4);
    LLVMValueRef args[2] = {view.base, r->out->base};
    at_b_call(m->e, name, NULL, args, 2);
  }
  at_me_node_drop(m, from);
  return good;
}
