// Questions about nodes: effects, purity, structural equality, constant values.
#include "base/walk.h"
#include "passes/passes_internal.h"

// Their regions read values of the computations around them; those of other ops
// (reductions, sorts, fusions) are closed.
bool at_is_control(at_op op) {
  return op == AT_OP_WHILE || op == AT_OP_IF || op == AT_OP_CASE;
}

// Of n itself, regions aside.
static bool own_effect(const at_node *n) {
  return at_op_is(n->op, AT_EFFECT) ||
         (n->op == AT_OP_CUSTOM_CALL &&
          at_node_bool(n, AT_ATTR_HAS_SIDE_EFFECT));
}

static bool is_call(const at_node *n) {
  return n->op == AT_OP_CALL || n->op == AT_OP_COMPOSITE;
}

// The bodies that a node runs, and those below.
typedef struct below {
  const at_module *m;
  at_walk walk;   // over computations
  bool has_call;  // of a function, which may change without the node's noticing
} below;

// Whether k itself says that there is an effect; else adds its bodies.
static bool says_effect(below *b, const at_node *k) {
  if (own_effect(k) || k->effect == AT_EFFECT_SOME) return true;
  for (uint32_t i = 0; i < k->num_regions && !k->effect; i++)
    at_walk_add(&b->walk, k->regions[i], 0);
  if (!is_call(k)) return false;
  const at_comp *f = at_module_find(b->m, at_node_str(k, AT_ATTR_CALLEE));
  b->has_call = true;
  if (f) at_walk_add(&b->walk, f, 0);
  return !f;
}

// Nothing below n has an effect: walks it once more and notes that on the owner
// of every computation, n included.
static void note_none(below *b, const at_node *n) {
  at_walk_clear(&b->walk);
  says_effect(b, n);
  for (at_walk_step s; at_walk_next(&b->walk, &s);) {
    const at_comp *c = s.item;
    AT_FOR_NODES(k, c) says_effect(b, k);
    c->owner->effect = AT_EFFECT_NONE;
  }
}

// c has an effect, and so has every node around it up to n.
static void note_some(const at_comp *c, const at_node *n) {
  for (at_node *o = c->owner; o; o = o == n ? NULL : o->parent->owner)
    o->effect = AT_EFFECT_SOME;
}

// The first answer costs a walk of everything below n; it is noted in n->effect
// unless a call is involved, as functions may still change. Out of memory
// counts as an effect.
bool at_has_effect(const at_module *m, const at_node *n) {
  if (own_effect(n)) return true;
  if (!n->num_regions && !is_call(n)) return false;
  if (n->effect) return n->effect == AT_EFFECT_SOME;
  below b = {.m = m, .walk = at_walk_in(m->arena)};
  if (says_effect(&b, n)) return true;
  for (at_walk_step s; at_walk_next(&b.walk, &s);) {
    const at_comp *c = s.item;
    AT_FOR_NODES(k, c) {
      if (!says_effect(&b, k)) continue;
      if (!b.has_call) note_some(c, n);
      return true;
    }
  }
  if (b.walk.failed) return true;  // unknown
  if (!b.has_call) note_none(&b, n);
  return false;
}

// Custom calls are never pure: even without a side effect they may be expensive
// or read outside state.
bool at_is_pure(const at_module *m, const at_node *n) {
  switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_CREATE_TOKEN:
    case AT_OP_AFTER_ALL:
    case AT_OP_CUSTOM_CALL:
    case AT_OP_CALL:
    case AT_OP_COMPOSITE:
      return false;
    case AT_OP_COPY:  // a second copy to a memory is one for later
      return !at_node_attr(n, AT_ATTR_MEMORY_SPACE);
    default:
      break;
  }
  if (at_op_is(n->op, AT_COLLECTIVE)) return false;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (n->types[i].dtype == AT_TOKEN) return false;
  return !at_has_effect(m, n);
}

// ---- Structural equality
static uint64_t hash_type(uint64_t h, const at_type *t) {
  h = at_hash(h, &t->dtype, sizeof t->dtype);
  return at_hash(h, t->dims, t->rank * sizeof *t->dims);
}

// Kinds without a case (types, dicts, groups) hash by their id alone;
// at_attr_same compares them.
static uint64_t hash_attr(uint64_t h, const at_attr *a) {
  h = at_hash(h, &a->id, sizeof a->id);
  switch (at_attr_kind_of(a->id)) {
    case AT_KIND_INT:
    case AT_KIND_BOOL:
    case AT_KIND_ENUM:
      return at_hash(h, &a->i, sizeof a->i);
    case AT_KIND_FLOAT:
      return at_hash(h, &a->f, sizeof a->f);
    case AT_KIND_STR:
    case AT_KIND_BYTES:
      return at_hash(h, a->s.ptr, a->s.len);
    case AT_KIND_INTS:
      return at_hash(h, a->ints.ptr, a->ints.rank * sizeof *a->ints.ptr);
    case AT_KIND_LITERAL:
      h = hash_type(h, &a->literal->type);
      // A prefix: equality compares the rest.
      return at_hash(h, a->literal->data, AT_MIN(a->literal->bytes, 256));
    default:
      return h;
  }
}

// By kind. Pointers are followed: lists, literals, types and dicts are compared
// by contents, dicts in order.
bool at_attr_same(const at_attr *a, const at_attr *b) {
  if (a->id != b->id) return false;
  switch (at_attr_kind_of(a->id)) {
    case AT_KIND_INT:
    case AT_KIND_BOOL:
    case AT_KIND_ENUM:
      return a->i == b->i;
    case AT_KIND_FLOAT:
      return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case AT_KIND_STR:
    case AT_KIND_BYTES:
      return at_str_eq(a->s, b->s);
    case AT_KIND_INTS:
      return at_dims_eq(a->ints, b->ints);
    case AT_KIND_LITERAL:
      return at_type_eq(&a->literal->type, &b->literal->type) &&
             a->literal->splat == b->literal->splat &&
             a->literal->bytes == b->literal->bytes &&
             (a->literal->bytes == 0 ||
              memcmp(a->literal->data, b->literal->data, a->literal->bytes) ==
                  0);
    case AT_KIND_TYPE:
      return at_type_eq(a->type, b->type);
    case AT_KIND_DICT:
      if (a->dict.n != b->dict.n) return false;
      for (uint32_t i = 0; i < 2 * a->dict.n; i++)
        if (!at_str_eq(a->dict.kv[i], b->dict.kv[i])) return false;
      return true;
    case AT_KIND_GROUPS:
      if (a->groups.n != b->groups.n) return false;
      for (uint32_t i = 0; i < a->groups.n; i++)
        if (!at_dims_eq(a->groups.list[i], b->groups.list[i])) return false;
      return true;
  }
  return false;
}

// A node of a region, as far as equal ones surely agree: what it takes from
// around the region is the same value in both.
static uint64_t hash_inner(uint64_t h, const at_comp *c, const at_node *k) {
  h = at_hash(h, &k->op, sizeof k->op);
  for (uint32_t i = 0; i < k->num_attrs; i++) h = hash_attr(h, &k->attrs[i]);
  for (uint32_t i = 0; i < k->num_operands; i++) {
    at_value v = k->operands[i];
    if (v.node->parent == c) continue;
    h = at_hash(h, &v.node->id, sizeof v.node->id);
    h = at_hash(h, &v.index, sizeof v.index);
  }
  return h;
}

// Regions take part, one level deep: inner nodes by op, attributes and what
// they capture.
uint64_t at_node_hash(const at_node *n) {
  uint64_t h = at_hash(AT_HASH_SEED, &n->op, sizeof n->op);
  h = at_hash(h, &n->num_operands, sizeof n->num_operands);
  for (uint32_t i = 0; i < n->num_results; i++) h = hash_type(h, &n->types[i]);
  for (uint32_t i = 0; i < n->num_attrs; i++) h = hash_attr(h, &n->attrs[i]);
  for (uint32_t i = 0; i < n->num_regions; i++)
    AT_FOR_NODES(k, n->regions[i]) h = hash_inner(h, n->regions[i], k);
  return h;
}

// a, of one graph, stands for b of the other: by the map where a's node is
// inside, else they are the same value.
static bool value_same(at_map *map, at_value a, at_value b) {
  if (a.index != b.index) return false;
  void **to = at_map_find_ptr(map, a.node);
  return to ? *to == b.node : a.node == b.node;
}

static bool comp_same(at_map *map, const at_comp *a, const at_comp *b);

// Operands aside.
static bool node_body_same(at_map *map, const at_node *a, const at_node *b) {
  if (a->op != b->op || a->num_operands != b->num_operands ||
      a->num_results != b->num_results || a->num_attrs != b->num_attrs ||
      a->num_regions != b->num_regions)
    return false;
  for (uint32_t i = 0; i < a->num_results; i++)
    if (!at_type_eq(&a->types[i], &b->types[i])) return false;
  for (uint32_t i = 0; i < a->num_attrs; i++)
    if (!at_attr_same(&a->attrs[i], &b->attrs[i])) return false;
  for (uint32_t i = 0; i < a->num_regions; i++)
    if (!comp_same(map, a->regions[i], b->regions[i])) return false;
  return true;
}

// Walks both in step, in list order: graphs that differ in order only count as
// different. `map` takes a's nodes to b's.
static bool comp_same(at_map *map, const at_comp *a, const at_comp *b) {
  if (a->num_params != b->num_params || a->num_results != b->num_results)
    return false;
  const at_node *x = a->first, *y = b->first;
  for (; x && y; x = x->next, y = y->next) {
    void **slot = at_map_put_ptr(map, x);
    if (!slot) return false;
    *slot = (void *)(uintptr_t)y;
    if (!node_body_same(map, x, y)) return false;
    for (uint32_t i = 0; i < x->num_operands; i++)
      if (!value_same(map, x->operands[i], y->operands[i])) return false;
  }
  if (x || y) return false;
  for (uint32_t i = 0; i < a->num_results; i++)
    if (!value_same(map, a->results[i], b->results[i])) return false;
  return true;
}

// The map lives in the module's arena.
bool at_comp_same(const at_module *m, const at_comp *a, const at_comp *b) {
  at_map map = at_map_in(m->arena);
  return comp_same(&map, a, b);
}

// Operands must be identical values, regions alike.
bool at_node_same(const at_module *m, const at_node *a, const at_node *b) {
  at_map map = at_map_in(m->arena);
  if (a->num_operands != b->num_operands) return false;
  for (uint32_t i = 0; i < a->num_operands; i++)
    if (!at_value_eq(a->operands[i], b->operands[i])) return false;
  return node_body_same(&map, a, b);
}

// Channel numbers differ between collectives that are otherwise equal; only
// whether there is one must agree.
bool at_collective_alike(const at_module *m, const at_node *a,
                         const at_node *b) {
  if (a->op != b->op || a->num_attrs != b->num_attrs ||
      a->num_regions != b->num_regions ||
      a->types[0].dtype != b->types[0].dtype)
    return false;
  for (uint32_t i = 0; i < a->num_attrs; i++) {
    const at_attr *x = &a->attrs[i], *y = at_node_attr(b, x->id);
    if (!y || (x->id == AT_ATTR_CHANNEL_ID ? (x->i > 0) != (y->i > 0)
                                           : !at_attr_same(x, y)))
      return false;
  }
  return !a->num_regions || at_comp_same(m, a->regions[0], b->regions[0]);
}

// Also with the parameters exchanged if the op commutes. Conversions around the
// op (a body that computes in another type) make it another body.
at_op at_region_binary(const at_comp *c) {
  if (c->num_params != 2 || c->num_results != 1) return AT_OP_COUNT;
  const at_node *n = c->results[0].node;
  if (n->parent != c || n->num_operands != 2 || n->num_attrs ||
      !at_op_is(n->op, AT_ELEMENTWISE))
    return AT_OP_COUNT;
  const at_node *a = n->operands[0].node, *b = n->operands[1].node;
  bool straight = a == c->params[0] && b == c->params[1];
  bool swapped = a == c->params[1] && b == c->params[0];
  if (straight || (swapped && at_op_is(n->op, AT_COMMUTES))) return n->op;
  return AT_OP_COUNT;
}

// ---- Constants
const at_literal *at_const_of(at_value v) {
  return v.node->op == AT_OP_CONSTANT ? at_node_literal(v.node) : NULL;
}

// Looks through at most 8 movements; simplify shortens longer chains.
const void *at_splat_of(at_value v) {
  for (int depth = 0; depth < 8; depth++) {
    const at_node *n = v.node;
    if (n->op == AT_OP_BROADCAST_IN_DIM || n->op == AT_OP_RESHAPE ||
        n->op == AT_OP_TRANSPOSE) {
      v = n->operands[0];
      continue;
    }
    const at_literal *l = at_const_of(v);
    if (!l) return NULL;
    if (l->splat) return l->data;
    if (at_type_is_static(&l->type) && at_type_elements(&l->type) == 1)
      return l->data;
    return NULL;
  }
  return NULL;
}

// *out: the element as a double, exact for every float type. False: no float,
// or not a splat.
bool at_splat_float(at_value v, double *out) {
  at_dtype t = at_value_type(v)->dtype;
  if (!at_is_float(t)) return false;
  const void *p = at_splat_of(v);
  if (!p) return false;
  *out = at_load_float(t, p);
  return true;
}

// Sign-extended for signed types, zero-extended for others; 64-bit unsigned
// ones wrap. False: no integer, or not a splat.
bool at_splat_int(at_value v, int64_t *out) {
  at_dtype t = at_value_type(v)->dtype;
  if (!at_is_int(t) && t != AT_PRED) return false;
  const void *p = at_splat_of(v);
  if (!p) return false;
  *out = at_load_int(t, p);
  return true;
}

// Floats are compared by their bits, which tells 0 from -0.
bool at_is_splat(at_value v, double x) {
  double f;
  int64_t i;
  if (at_splat_float(v, &f)) return memcmp(&f, &x, sizeof x) == 0;
  if (at_splat_int(v, &i)) return i == (int64_t)x && (double)i == x;
  return false;
}

// By the element type: the least value for maximum, the greatest for minimum.
// Unsigned minimum and bitwise AND of integers are not recognised.
bool at_is_identity(at_op op, at_value init) {
  double f;
  int64_t i;
  at_dtype t = at_value_type(init)->dtype;
  if (at_splat_float(init, &f)) {
    switch (op) {
      case AT_OP_ADD:
        return f == 0;
      case AT_OP_MULTIPLY:
        return f == 1;
      case AT_OP_MAXIMUM:
        return f == -__builtin_inf();
      case AT_OP_MINIMUM:
        return f == __builtin_inf();
      default:
        return false;
    }
  }
  if (!at_splat_int(init, &i)) return false;
  uint32_t bits = at_dtype_of(t)->bits;
  bool is_signed = at_is_signed_int(t);
  int64_t low = is_signed ? (int64_t)(UINT64_MAX << (bits - 1)) : 0;
  switch (op) {
    case AT_OP_ADD:
    case AT_OP_OR:
    case AT_OP_XOR:
      return i == 0;
    case AT_OP_MULTIPLY:
      return i == 1;
    case AT_OP_AND:
      return t == AT_PRED && i == 1;
    case AT_OP_MAXIMUM:
      return i == low;
    case AT_OP_MINIMUM:
      return is_signed && i == ~low;
    default:
      return false;
  }
}
