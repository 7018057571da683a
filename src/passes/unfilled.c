// Results that a loop stacks turn by turn begin as an array of zeros that
// nobody reads: every turn writes its own part, and together they write all of
// it. Such an array begins as memory with no contents (AllocateBuffer) instead,
// which is not filled first.
#include "cost/count.h"
#include "passes/passes_internal.h"

enum { MIN_BYTES = 256, MOST_STEPS = 16 };

typedef struct unfilled {
  at_module *m;
  at_map uses;  // at_node * -> how often its results are read
} unfilled;

// The count is kept in the map's slot itself.
static at_status count_use(unfilled *u, at_value v) {
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&u->uses, v.node));
  *at = (void *)((uintptr_t)*at + 1);
  return AT_OK;
}

// Operands and results of c and its regions.
static at_status count_uses(unfilled *u, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      AT_TRY(count_use(u, n->operands[i]));
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(count_uses(u, n->regions[r]));
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    AT_TRY(count_use(u, c->results[i]));
  return AT_OK;
}

static uint64_t uses_of(const unfilled *u, const at_node *n) {
  void **at = at_map_find_ptr(&u->uses, n);
  return at ? (uintptr_t)*at : 0;
}

// A scalar integer constant.
static bool whole_number(at_value v, int64_t *out) {
  const at_literal *l = at_node_literal(v.node);
  if (!l || l->type.rank || !at_is_int(l->type.dtype)) return false;
  *out = at_literal_int(l, 0);
  return true;
}

// v is scale * the loop's state number `state` + offset, scale 1 or -1.
typedef struct linear {
  uint32_t state;
  int64_t scale, offset;
} linear;

// c, or less c, on top of what comes behind; false: no integer holds it.
static bool add(linear *l, int64_t c, bool minus) {
  return minus == (l->scale > 0)
             ? !__builtin_sub_overflow(l->offset, c, &l->offset)
             : !__builtin_add_overflow(l->offset, c, &l->offset);
}

// Follows additions and subtractions of constants from v back to a parameter of
// the body, at most MOST_STEPS of them.
static bool is_linear(const at_comp *body, at_value v, linear *out) {
  linear r = {.scale = 1};
  for (int step = 0; step < MOST_STEPS; step++) {
    const at_node *n = v.node;
    int64_t c;
    if (n->op == AT_OP_PARAMETER && n->parent == body) {
      r.state = (uint32_t)at_node_int(n, AT_ATTR_INDEX, 0);
      return *out = r, true;
    }
    if (n->op != AT_OP_ADD && n->op != AT_OP_SUBTRACT) return false;
    bool minus = n->op == AT_OP_SUBTRACT;
    if (whole_number(n->operands[1], &c)) {
      if (!add(&r, c, minus)) return false;
      v = n->operands[0];
    } else if (whole_number(n->operands[0], &c)) {
      if (!add(&r, c, false)) return false;
      if (minus) r.scale = -r.scale;
      v = n->operands[1];
    } else {
      return false;
    }
  }
  return false;
}

// Are 0 to size - 1 numbers of type t? Where they are not, an index wraps.
static bool has_all(at_dtype t, int64_t size) {
  uint32_t bits = at_dtype_of(t)->bits - at_is_signed_int(t);
  return bits > 62 || size <= (int64_t)1 << bits;
}

// Is v, in turns 0, 1, ..., one of 0 to `size` - 1 each, either way round?
static bool counts_all(const at_node *loop, at_value v, int64_t size) {
  const at_comp *body = loop->regions[1];
  linear index, next;
  int64_t begin;
  if (!is_linear(body, v, &index)) return false;
  uint32_t s = index.state;
  if (!is_linear(body, body->results[s], &next) || next.state != s ||
      next.scale != 1 || next.offset != 1 ||
      !whole_number(loop->operands[s], &begin))
    return false;
  return add(&index, begin, false) && has_all(at_value_type(v)->dtype, size) &&
         index.offset == (index.scale > 0 ? 0 : size - 1);
}

// Does the update write, of the dimension in which it is smaller, one index?
static bool writes_all(const at_node *loop, const at_node *update) {
  const at_type *t = &update->types[0], *u = at_value_type(update->operands[1]);
  uint32_t along = t->rank;
  for (uint32_t d = 0; d < t->rank; d++) {
    if (t->dims[d] == u->dims[d]) continue;
    if (along < t->rank || u->dims[d] != 1) return false;
    along = d;
  }
  bool known;
  double turns = at_count_trips(loop, &known);
  return along < t->rank && known && turns == (double)t->dims[along] &&
         counts_all(loop, update->operands[2 + along], t->dims[along]);
}

// Is operand i of the loop a splat whose contents no turn reads: the condition
// does not, and the body only updates it once, in all its places?
static bool is_unread(const unfilled *u, const at_node *loop, uint32_t i) {
  const at_literal *l = at_node_literal(loop->operands[i].node);
  const at_comp *body = loop->regions[1];
  const at_node *in = body->params[i], *out = body->results[i].node;
  return l && l->splat && at_type_bytes(&l->type) >= MIN_BYTES &&
         uses_of(u, loop->regions[0]->params[i]) == 0 &&
         out->op == AT_OP_DYNAMIC_UPDATE_SLICE && out->parent == body &&
         out->operands[0].node == in && uses_of(u, in) == 1 &&
         uses_of(u, out) == 1 && writes_all(loop, out);
}

// A call that stands for memory of type t with undefined contents.
static at_status without_contents(at_node *at, const at_type *t,
                                  at_value *out) {
  at_attr attrs[] = {
      {.id = AT_ATTR_CALL_TARGET_NAME, .s = AT_STR("AllocateBuffer")},
      {.id = AT_ATTR_HAS_SIDE_EFFECT},
      {.id = AT_ATTR_BACKEND_CONFIG, .s = AT_STR("")}};
  return at_mk(at, AT_OP_CUSTOM_CALL, NULL, 0, attrs, AT_LEN(attrs), t, out);
}

// Inner loops first.
static at_status walk(unfilled *u, at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(walk(u, n->regions[r]));
    if (n->op != AT_OP_WHILE) continue;
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (is_unread(u, n, i))
        AT_TRY(without_contents(n, at_value_type(n->operands[i]),
                                &n->operands[i]));
  }
  return AT_OK;
}

// Uses are counted before anything changes.
at_status at_pass_unfilled(at_module *m, const at_pass_options *o) {
  if (!o->small_products) return AT_OK;
  unfilled u = {.m = m, .uses = at_map_in(m->arena)};
  for (uint32_t i = 0; i < m->num_funcs; i++) {
    AT_TRY(count_uses(&u, m->funcs[i]));
    AT_TRY(walk(&u, m->funcs[i]));
  }
  at_dce(m);
  return AT_OK;
}
