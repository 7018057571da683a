// What each SSA value is in the code: a register, a node, a ref.
#include "mosaic/emit.h"

struct at_me_symbols {
  at_map slots;  // at_mvalue * -> at_me_slot *
};

at_me_symbols *at_me_symbols_new(at_arena *a) {
  at_me_symbols *s = at_new(a, at_me_symbols, 1);
  if (s) s->slots = at_map_in(a);
  return s;
}

at_me_slot *at_me_slot_of(at_me *m, const at_mvalue *v) {
  static _Thread_local at_me_slot spare;
  void **p = at_map_put_ptr(&m->symbols->slots, v);
  if (p && !*p) {
    at_me_slot *s = *p = at_new(m->a, at_me_slot, 1);
    if (s) s->plan = at_mplan_value_of(m->plan, v);
  }
  if (p && *p) return *p;
  at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
  spare = (at_me_slot){.plan = at_mplan_value_of(m->plan, v)};
  return &spare;
}

LLVMValueRef at_me_scalar(at_me *m, const at_mvalue *v) {
  at_me_slot *s = at_me_slot_of(m, v);
  if (s->kind == AT_ME_SCALAR) return s->scalar;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a number is used before it is there"));
  at_dtype t = at_mosaic_dtype_of(v->type);
  return at_b_poison(at_em_reg_type(m->e, t == AT_INVALID ? AT_S32 : t));
}
at_me_node *at_me_vector(at_me *m, const at_mvalue *v) {
  at_me_slot *s = at_me_slot_of(m, v);
  if (s->kind == AT_ME_VECTOR) return s->node;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a vector is used before it is there"));
  return NULL;
}
at_me_ref *at_me_memory(at_me *m, const at_mvalue *v) {
  at_me_slot *s = at_me_slot_of(m, v);
  if (s->kind == AT_ME_MEMORY) return s->ref;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a ref is used before it is there"));
  return NULL;
}
void at_me_set_scalar(at_me *m, const at_mvalue *v, LLVMValueRef x) {
  at_me_slot *s = at_me_slot_of(m, v);
  s->kind = AT_ME_SCALAR;
  s->scalar = x;
}
void at_me_set_ref(at_me *m, const at_mvalue *v, const at_me_ref *r) {
  at_me_slot *s = at_me_slot_of(m, v);
  s->kind = AT_ME_MEMORY;
  s->ref = at_arena_copy(m->a, r, sizeof *r, _Alignof(at_me_ref));
  if (!s->ref) at_em_fail(m->e, AT_NO_MEMORY("refs of a kernel"));
}

at_status at_me_set_node(at_me *m, at_mvalue *v, at_me_node *n) {
  if (!n) return AT_NO_MEMORY("values of a kernel");
  at_me_slot *s = at_me_slot_of(m, v);
  s->kind = AT_ME_VECTOR;
  s->node = n;
  n->refs += s->plan->uses;
  if (s->plan->uses == 0) {
    n->refs++;
    at_me_node_drop(m, n);
    return AT_OK;
  }
  bool trivial =
      n->kind == AT_ME_BUFFER || n->kind == AT_ME_SPLAT || n->kind == AT_ME_DOT;
  if (trivial) return AT_OK;
  bool deep = s->plan->deep || n->height > AT_ME_MAX_HEIGHT;
  if (s->plan->kept || (s->plan->spread && n->kind == AT_ME_APPLY))
    at_me_node_drop(m, at_me_materialise(m, n));
  else if (deep)
    at_me_cut(m, n);
  return AT_OK;
}

void at_me_same_value(at_me *m, const at_mvalue *from, const at_mvalue *to) {
  at_me_slot *a = at_me_slot_of(m, from), *b = at_me_slot_of(m, to);
  b->kind = a->kind;
  b->scalar = a->scalar;
  b->ref = a->ref;
  b->node = a->node;
  if (b->kind == AT_ME_VECTOR) b->node->refs += b->plan->uses;
}

void at_me_forget(at_me *m, const at_mvalue *v) {
  at_me_slot *s = at_me_slot_of(m, v);
  *s = (at_me_slot){.plan = s->plan};
}
