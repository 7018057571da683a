// The laws of a memory plan, checked from the program and the slots alone: how
// the planner came to them is not looked at, so that a mistake of its own
// (classes, coalescing, offsets) is not made twice. Lifetimes are shared with
// it; lifetime.c checks those against the order of the program.
//
// Quadratic in the values: for tests, and where ATOLL_VERIFY is on.
#include "schedule/lifetime.h"
#include "schedule/schedule.h"

typedef struct checker {
  const at_module *m;
  const at_plan *plan;
  at_lifetimes life;
  uint32_t *slot;  // of each value of life
} checker;

#define BROKEN(...) AT_FAIL(AT_INTERNAL, "memory plan: " __VA_ARGS__)

static bool is_token(at_value v) { return at_value_type(v)->dtype == AT_TOKEN; }

// The slot of a value.
static const at_xslot *slot_of(const checker *c, at_value v) {
  return &c->plan->slots[at_plan_slot(c->plan, v)];
}

// ---- Slots one by one
// A temporary lies within the scratch memory, on a multiple of 64.
static at_status check_slot(const checker *c, const at_xslot *s) {
  if (s->kind != AT_SLOT_TEMP) return AT_OK;
  uint64_t all = c->plan->temp_bytes;
  if (s->offset % 64 || s->offset > all || s->bytes > all - s->offset)
    return BROKEN("a temporary at %llu of %llu bytes, in %llu",
                  (unsigned long long)s->offset, (unsigned long long)s->bytes,
                  (unsigned long long)all);
  return AT_OK;
}

// Every value fits into its slot.
static at_status check_sizes(const checker *c) {
  for (uint32_t i = 0; i < c->plan->num_slots; i++)
    AT_TRY(check_slot(c, &c->plan->slots[i]));
  for (uint32_t i = 0; i < c->life.count; i++) {
    const at_lifetime *x = &c->life.list[i];
    if (c->plan->slots[c->slot[i]].bytes < x->bytes)
      return BROKEN("%%%u does not fit into its slot", x->value.node->id);
  }
  return AT_OK;
}

// ---- What the program's form asks for
// INTERNAL unless both are in one slot.
static at_status together(const checker *c, at_value a, at_value b) {
  if (is_token(a) || at_plan_slot(c->plan, a) == at_plan_slot(c->plan, b))
    return AT_OK;
  return BROKEN("%%%u and %%%u must be in one place", a.node->id, b.node->id);
}

// A loop's state is in one place from turn to turn, a branch's results where
// those of the node are.
static at_status check_regions(const checker *c, at_node *n, uint32_t r) {
  at_value v = {n, r};
  for (uint32_t k = 0; k < n->num_regions && n->op != AT_OP_WHILE; k++)
    AT_TRY(together(c, v, n->regions[k]->results[r]));
  if (n->op != AT_OP_WHILE) return AT_OK;
  AT_TRY(together(c, v, n->operands[r]));
  AT_TRY(together(c, v, n->regions[1]->results[r]));
  for (int k = 0; k < 2; k++)
    AT_TRY(together(c, v, (at_value){n->regions[k]->params[r], 0}));
  return AT_OK;
}

// Arguments that the caller keeps, and constants, are never written.
static at_status check_written(const checker *c, at_node *n, uint32_t r) {
  at_value v = {n, r};
  uint32_t kind = slot_of(c, v)->kind;
  bool reads_only = kind == AT_SLOT_INPUT || kind == AT_SLOT_CONST;
  if (!reads_only || is_token(v) || n->op == AT_OP_CONSTANT ||
      n->op == AT_OP_PARAMETER || at_plan_is_view(n))
    return AT_OK;
  return BROKEN("%%%u is written over an argument or a constant", n->id);
}

// What nodes of c and of its control flow ask for.
static at_status check_form(const checker *c, const at_comp *comp) {
  AT_FOR_NODES(n, comp) {
    for (uint32_t r = 0; r < n->num_results; r++) {
      AT_TRY(check_written(c, n, r));
      if (at_plan_is_view(n))
        AT_TRY(together(c, n->operands[r], (at_value){n, r}));
      if (at_has_steps(n)) AT_TRY(check_regions(c, n, r));
    }
    for (uint32_t r = 0; at_has_steps(n) && r < n->num_regions; r++)
      AT_TRY(check_form(c, n->regions[r]));
  }
  return AT_OK;
}

// Arguments are in inputs, or in the outputs that they were given to; results
// in outputs, or in the inputs that they are.
static at_status check_entry(const checker *c) {
  const at_comp *e = c->m->entry;
  for (uint32_t i = 0; i < e->num_params; i++) {
    int32_t r = c->m->params ? c->m->params[i].alias : -1;
    bool given = r >= 0 && (uint32_t)r < e->num_results;
    const at_xslot *s = slot_of(c, (at_value){e->params[i], 0});
    if (s->kind != (given ? AT_SLOT_OUTPUT : AT_SLOT_INPUT) ||
        s->index != (given ? (uint32_t)r : i))
      if (!is_token((at_value){e->params[i], 0}))
        return BROKEN("argument %u is not where the caller puts it", i);
  }
  for (uint32_t r = 0; r < e->num_results; r++) {
    const at_xslot *s = slot_of(c, e->results[r]);
    const at_node *n = e->results[r].node;
    bool passed = s->kind == AT_SLOT_INPUT && n->op == AT_OP_PARAMETER;
    bool own = s->kind == AT_SLOT_OUTPUT && s->index == r;
    if (!own && !passed && !is_token(e->results[r]))
      return BROKEN("result %u is not where the caller looks", r);
  }
  return AT_OK;
}

// ---- Who lives when
// Do two slots have a byte in common?
static bool share_bytes(const at_xslot *a, const at_xslot *b) {
  if (a->kind != b->kind || a->kind == AT_SLOT_NULL) return false;
  if (a->kind != AT_SLOT_TEMP) return a->index == b->index;
  return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

// `from` dies where `to` is made of it: to may be written over it.
static bool hands_over(const at_lifetime *from, const at_lifetime *to) {
  if (from->span.end > to->span.begin + 1 && from->read > to->span.begin + 1)
    return false;
  const at_node *n = to->value.node;
  for (uint32_t o = 0; o < n->num_operands; o++)
    if (at_value_eq(n->operands[o], from->value)) return true;
  return false;
}

// Two values of one computation that live at once in one slot hold the same
// data, or one of them has died where the other is made.
static bool may_be_one(const at_lifetime *x, const at_lifetime *y) {
  const at_node *a = x->value.node, *b = y->value.node;
  return a->parent != b->parent || at_plan_is_view(a) || at_plan_is_view(b) ||
         hands_over(x, y) || hands_over(y, x);
}

// INTERNAL if values i and j live at once in the same bytes and do not hold the
// same data.
static at_status check_pair(const checker *c, uint32_t i, uint32_t j) {
  const at_lifetime *x = &c->life.list[i], *y = &c->life.list[j];
  const at_xslot *a = &c->plan->slots[c->slot[i]],
                 *b = &c->plan->slots[c->slot[j]];
  bool apart = x->span.begin > y->span.end || y->span.begin > x->span.end ||
               (a == b ? !x->bytes || may_be_one(x, y) : !share_bytes(a, b));
  return apart ? AT_OK
               : BROKEN("%%%u and %%%u live at once in the same bytes",
                        x->value.node->id, y->value.node->id);
}

static at_status check_lives(const checker *c) {
  for (uint32_t i = 0; i < c->life.count; i++)
    for (uint32_t j = 0; j < i; j++) AT_TRY(check_pair(c, i, j));
  return AT_OK;
}

// All laws; slots of values are looked up once.
static at_status check(checker *c, at_arena *a) {
  AT_TRY(at_lifetimes_compute(c->m, a, &c->life));
  AT_TRY_ALLOC(c->slot, at_new(a, uint32_t, c->life.count + 1));
  for (uint32_t i = 0; i < c->life.count; i++)
    c->slot[i] = at_plan_slot(c->plan, c->life.list[i].value);
  AT_TRY(check_sizes(c));
  AT_TRY(check_form(c, c->m->entry));
  AT_TRY(check_entry(c));
  return check_lives(c);
}

at_status at_plan_verify(const at_module *m, const at_plan *plan) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("plan check");
  checker c = {.m = m, .plan = plan};
  at_status st = check(&c, a);
  at_arena_destroy(a);
  return st;
}
