// What each SSA value is in the code: a register, a node, a ref.
#include "mosaic/emit.h"
#include "mosaic/emit_laws.h"

typedef enum kind { NONE, SCALAR, VECTOR, MEMORY } kind;

typedef struct slot {
  const at_mplan_value *plan;
  kind kind;
  LLVMValueRef scalar;
  at_me_node *node;
  at_me_ref *ref;
} slot;

struct at_me_symbols {
  at_map slots;  // at_mvalue * -> slot *
};

at_me_symbols *at_me_symbols_new(at_arena *a) {
  at_me_symbols *s = at_new(a, at_me_symbols, 1);
  if (s) s->slots = at_map_in(a);
  return s;
}

// Made when it is first asked for. Without memory it is a spare one that
// remembers nothing, and the error is noted.
static slot *slot_of(at_me *m, const at_mvalue *v) {
  static _Thread_local slot spare;
  void **p = at_map_put_ptr(&m->symbols->slots, v);
  if (p && !*p) {
    slot *s = *p = at_new(m->a, slot, 1);
    if (s) s->plan = at_mplan_value_of(m->plan, v);
  }
  if (p && *p) return *p;
  at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
  spare = (slot){.plan = at_mplan_value_of(m->plan, v)};
  return &spare;
}

// Poison after an error: the caller goes on, and the error ends the function
// later.
LLVMValueRef at_me_scalar(at_me *m, const at_mvalue *v) {
  slot *s = slot_of(m, v);
  if (s->kind == SCALAR) return s->scalar;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a number is used before it is there"));
  at_dtype t = at_mosaic_dtype_of(v->type);
  return at_b_poison(at_em_reg_type(m->e, t == AT_INVALID ? AT_S32 : t));
}
at_me_node *at_me_vector(at_me *m, const at_mvalue *v) {
  slot *s = slot_of(m, v);
  if (s->kind == VECTOR) return s->node;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a vector is used before it is there"));
  return NULL;
}
const at_me_ref *at_me_memory(at_me *m, const at_mvalue *v) {
  slot *s = slot_of(m, v);
  if (s->kind == MEMORY) return s->ref;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a ref is used before it is there"));
  return NULL;
}
// Replaces what was there.
void at_me_set_scalar(at_me *m, const at_mvalue *v, LLVMValueRef x) {
  slot *s = slot_of(m, v);
  s->kind = SCALAR;
  s->scalar = x;
}
// Copied. Without memory the value stays unset, so that nobody follows it.
void at_me_set_ref(at_me *m, const at_mvalue *v, const at_me_ref *r) {
  AT_VERIFY(at_me_ref_holds(r));
  slot *s = slot_of(m, v);
  s->ref = at_arena_copy(m->a, r, sizeof *r, _Alignof(at_me_ref));
  s->kind = s->ref ? MEMORY : NONE;
  if (!s->ref) at_em_fail(m->e, AT_NO_MEMORY("refs of a kernel"));
}

// A value without uses is dropped at once. The plan decides whether it is
// computed here (kept, spread) or where it is used; an expression that grew too
// high is cut.
at_status at_me_set_node(at_me *m, at_mvalue *v, at_me_node *n) {
  if (!n) return AT_NO_MEMORY("values of a kernel");
  AT_VERIFY(at_me_node_holds(n));
  slot *s = slot_of(m, v);
  s->kind = VECTOR;
  s->node = n;
  at_me_expect_uses(n, s->plan->uses);
  if (s->plan->uses == 0) {
    at_me_expect_uses(n, 1);
    at_me_node_drop(m, n);
    return AT_OK;
  }
  bool trivial =
      n->kind == AT_ME_BUFFER || n->kind == AT_ME_SPLAT || n->kind == AT_ME_DOT;
  if (trivial) return AT_OK;
  bool deep = s->plan->deep || at_me_height_of(n) > AT_ME_MAX_HEIGHT;
  if (s->plan->kept || (s->plan->spread && n->kind == AT_ME_APPLY))
    at_me_node_drop(m, at_me_materialise(m, n));
  else if (deep)
    at_me_cut(m, n);
  return AT_OK;
}

// A node is then held by the uses of both values.
void at_me_same_value(at_me *m, const at_mvalue *from, const at_mvalue *to) {
  slot *a = slot_of(m, from), *b = slot_of(m, to);
  b->kind = a->kind;
  b->scalar = a->scalar;
  b->ref = a->ref;
  b->node = a->node;
  if (b->kind == VECTOR) at_me_expect_uses(b->node, b->plan->uses);
}

// The plan's facts stay.
void at_me_forget(at_me *m, const at_mvalue *v) {
  slot *s = slot_of(m, v);
  *s = (slot){.plan = s->plan};
}

// Do several rows of memory lie in one row of the ref?
bool at_me_is_folded(at_me *m, const at_mvalue *v) {
  const slot *s = slot_of(m, v);
  return s->kind == MEMORY && s->ref->packing->folds > 1;
}

// One use less of each vector operand. op may be NULL.
void at_me_drop_operands(at_me *m, const at_mop *op) {
  for (uint32_t i = 0; op && i < op->num_operands; i++) {
    const slot *s = slot_of(m, op->operands[i]);
    if (s->kind == VECTOR) at_me_node_drop(m, s->node);
  }
}
