// The memory plan: COPY nodes where memory must be separate, then as many of
// them made free as lifetimes allow, then offsets.
//
// A class is a set of values that live in one place. It starts with what must
// share (loop state, branch results, views) and grows by coalescing: the
// operand of a copy with its result, an operand with the result that may
// overwrite it. Two classes may merge when none of their live intervals
// overlap, save where a node hands a dying operand's memory to its result.
#include <stdlib.h>

#include "base/verify.h"
#include "schedule/lifetime.h"
#include "schedule/place.h"
#include "schedule/schedule.h"

typedef enum pin_kind { PIN_NONE, PIN_INPUT, PIN_OUTPUT, PIN_CONST } pin_kind;

typedef struct live_span {
  at_span_time time;
  int64_t
      last;  // the greatest end of this and the spans before it in its class
  uint32_t value;  // number of the value in the lifetimes
} live_span;

typedef struct klass {
  uint32_t parent;  // union-find; == own number for a root
  pin_kind pin;
  uint32_t pin_index;
  uint64_t bytes;
  AT_VEC(live_span) spans;  // by begin
  uint32_t slot;
  uint64_t offset;
  at_span_time hull;
} klass;

struct at_plan_values {
  at_lifetimes life;
  const at_plan_hooks *hooks;  // while planning
  klass *classes;              // one per value
  bool *passed;  // per result of the entry: it is an argument that stays
  at_arena *arena;
};

typedef struct at_plan_values planner;

bool at_plan_is_view(const at_node *n) {
  switch (n->op) {
    case AT_OP_RESHAPE:
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_ASYNC_DONE:
      return true;
    case AT_OP_BITCAST_CONVERT:
      // Same bytes in memory form; types under a byte are not packed there.
      return at_dtype_of(n->types[0].dtype)->bits >= 8 &&
             at_dtype_of(at_value_type(n->operands[0])->dtype)->bits >= 8 &&
             at_type_bytes(&n->types[0]) ==
                 at_type_bytes(at_value_type(n->operands[0]));
    default:
      return false;
  }
}

// ---- Copies
static bool is_token(at_value v) { return at_value_type(v)->dtype == AT_TOKEN; }

static at_value view_root(at_value v) {
  while (at_plan_is_view(v.node)) v = v.node->operands[v.index];
  return v;
}

// A COPY of v before `before`; NULL: at the end of c.
static at_status copy_of(at_comp *c, at_node *before, at_value v,
                         at_value *out) {
  return at_build_op(c, before, AT_OP_COPY, &v, 1, v.node->loc, out);
}

// The first wait for a call that runs beside the rest: work that can be done
// before it costs no time. NULL: there is none.
static at_node *first_wait(const at_comp *c) {
  AT_FOR_NODES(n, c)
  if (n->op == AT_OP_ASYNC_DONE && n->operands[0].node->op == AT_OP_CUSTOM_CALL)
    return n;
  return NULL;
}

// Gives every region or program result a copy at the end of `c`. own[i]: the
// parameter that already is where result i must be, or NULL. A result that is a
// parameter whose memory another result takes is first saved into a temporary:
// the copies then cannot overwrite what a later one reads.
static at_status copy_results(at_comp *c, at_node *const *own, at_arena *a) {
  at_value *v;
  AT_TRY_ALLOC(v, at_new(a, at_value, c->num_results + 1));
  for (uint32_t i = 0; i < c->num_results; i++) {
    v[i] = c->results[i];
    at_value root = view_root(v[i]);
    bool param = root.node->op == AT_OP_PARAMETER && root.node->parent == c;
    if (is_token(v[i]) || !param || (own[i] == root.node)) continue;
    bool view = v[i].node != root.node;  // of the parameter, somewhere in `c`
    AT_TRY(copy_of(c, own[i] || view ? NULL : first_wait(c), v[i], &v[i]));
  }
  for (uint32_t i = 0; i < c->num_results; i++) {
    if (is_token(v[i])) continue;
    if (own[i] && at_value_eq(v[i], (at_value){own[i], 0})) continue;
    AT_TRY(copy_of(c, NULL, v[i], &v[i]));
  }
  return at_comp_return(c, v, c->num_results);
}

// Copies for c and what it holds: state of loops on its way in and from turn to
// turn, results of branches.
static at_status insert_copies(at_comp *c, at_arena *a) {
  AT_FOR_NODES(n, c) {
    if (!at_has_steps(n)) continue;
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(insert_copies(n->regions[r], a));
    if (n->op == AT_OP_WHILE) {
      for (uint32_t i = 0; i < n->num_operands; i++)
        if (!is_token(n->operands[i]))
          AT_TRY(copy_of(c, n, n->operands[i], &n->operands[i]));
      AT_TRY(copy_results(n->regions[1], n->regions[1]->params, a));
      continue;
    }
    at_node **none;
    AT_TRY_ALLOC(none, at_new(a, at_node *, n->num_results + 1));
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(copy_results(n->regions[r], none, a));
  }
  return AT_OK;
}

// A program that computes nothing is a wish for copies: jnp.copy is one.
static bool only_copies(const at_comp *c) {
  AT_FOR_NODES(n, c)
  if (n->op != AT_OP_PARAMETER && n->op != AT_OP_CONSTANT &&
      n->op != AT_OP_COPY)
    return false;
  return true;
}

// Which results are arguments that the caller keeps, and no other's memory?
// Each is then one buffer with its argument.
static at_status find_passed(planner *p, const at_module *m) {
  const at_comp *c = m->entry;
  AT_TRY_ALLOC(p->passed, at_new(p->arena, bool, c->num_results + 1));
  if (only_copies(c)) return AT_OK;
  at_map given = at_map_in(p->arena);  // parameters whose memory a result takes
  for (uint32_t r = 0; r < c->num_results; r++) {
    const at_node *n = c->results[r].node;
    p->passed[r] = n->op == AT_OP_PARAMETER && n->parent == c;
  }
  for (uint32_t i = 0; m->params && i < c->num_params; i++) {
    int32_t r = m->params[i].alias;
    if (r < 0) continue;
    if ((uint32_t)r < c->num_results) p->passed[r] = false;
    if (!at_map_put_ptr(&given, c->params[i]))
      return AT_NO_MEMORY("memory plan");
  }
  for (uint32_t r = 0; r < c->num_results; r++)
    p->passed[r] &= !at_map_find_ptr(&given, c->results[r].node);
  return AT_OK;
}

// Copies for the program's results, but for those that already are where they
// must be.
static at_status copy_entry_results(planner *p, at_module *m) {
  at_comp *c = m->entry;
  at_node **own;
  AT_TRY_ALLOC(own, at_new(p->arena, at_node *, c->num_results + 1));
  for (uint32_t i = 0; i < c->num_params; i++) {
    int32_t r = m->params ? m->params[i].alias : -1;
    if (r >= 0 && (uint32_t)r < c->num_results) own[r] = c->params[i];
  }
  for (uint32_t r = 0; r < c->num_results; r++)
    if (p->passed[r]) own[r] = c->results[r].node;
  return copy_results(c, own, p->arena);
}

// ---- Classes
// The root of a value's class: union-find with path halving, which changes
// `parent` only, so that a const planner may.
static uint32_t find(const planner *p, uint32_t v) {
  AT_ASSERT(v < p->life.count);
  while (p->classes[v].parent != v) {
    p->classes[v].parent = p->classes[p->classes[v].parent].parent;
    v = p->classes[v].parent;
  }
  return v;
}

// The class of values that share v's memory.
static uint32_t class_of(const planner *p, at_value v) {
  return find(p, at_lifetime_of(&p->life, v));
}

// May two classes be one? Not when both have a place that somebody else
// decides, and it is not the same.
static bool pins_agree(const klass *a, const klass *b) {
  return a->pin == PIN_NONE || b->pin == PIN_NONE ||
         (a->pin == b->pin && a->pin_index == b->pin_index);
}

// Keeps `last`, the latest end of all spans up to each, from index `from` on:
// overlap() can then stop early.
static void set_last(klass *k, size_t from) {
  for (size_t i = from; i < k->spans.len; i++) {
    int64_t before = i ? k->spans.ptr[i - 1].last : INT64_MIN;
    k->spans.ptr[i].last = AT_MAX(before, k->spans.ptr[i].time.end);
  }
}

// Adds y's spans to x's, the fewer to the more: what stands before the first of
// the fewer stays where it is.
static at_status merge_spans(planner *p, klass *x, const klass *y) {
  klass more = *x, fewer = *y;
  if (more.spans.len < fewer.spans.len) more = *y, fewer = *x;
  size_t i = more.spans.len, j = fewer.spans.len;
  if (!at_vec_reserve(p->arena, &more.spans, i + j))
    return AT_NO_MEMORY("memory plan");
  more.spans.len = i + j;
  live_span *s = more.spans.ptr;
  const live_span *f = fewer.spans.ptr;
  while (j) {
    bool from_more = i && s[i - 1].time.begin > f[j - 1].time.begin;
    s[i + j - 1] = from_more ? s[i - 1] : f[j - 1];
    if (from_more)
      i--;
    else
      j--;
  }
  AT_ASSERT(more.spans.len == x->spans.len + y->spans.len);
  set_last(&more, i);
  x->spans.ptr = more.spans.ptr;
  x->spans.len = more.spans.len;
  x->spans.cap = more.spans.cap;
  return AT_OK;
}

// Makes two classes one, at root a. That they do not overlap is the caller's to
// know.
static at_status merge(planner *p, uint32_t a, uint32_t b) {
  if (a == b) return AT_OK;
  klass *x = &p->classes[a], *y = &p->classes[b];
  AT_ASSERT(x->parent == a && y->parent == b && pins_agree(x, y));
  AT_TRY(merge_spans(p, x, y));
  x->hull.begin = AT_MIN(x->hull.begin, y->hull.begin);
  x->hull.end = AT_MAX(x->hull.end, y->hull.end);
  x->bytes = AT_MAX(x->bytes, y->bytes);
  if (x->pin == PIN_NONE) x->pin = y->pin, x->pin_index = y->pin_index;
  y->parent = a;
  return AT_OK;
}

// For values that have to live in one place: the state of a loop, views,
// results of branches. A contradiction is a bug of insert_copies.
static at_status must_merge(planner *p, at_value a, at_value b) {
  if (is_token(a)) return AT_OK;
  uint32_t x = class_of(p, a), y = class_of(p, b);
  AT_ENSURE(pins_agree(&p->classes[x], &p->classes[y]));
  return merge(p, x, y);
}

// May node n write result r over operand o? Copies always may: that is what
// saves them.
static bool may_alias(const at_plan_hooks *h, const at_node *n, uint32_t r,
                      uint32_t o) {
  if (n->op == AT_OP_COPY) return true;
  return h && h->can_alias && h->can_alias(h->user, n, r, o);
}

// `from` dies at the very node that makes `to`, which may write over it. For an
// asynchronous call, calls before it may still read `from`: they are done
// first.
static bool hands_over(const planner *p, const live_span *from,
                       const live_span *to) {
  at_value v = p->life.list[from->value].value,
           w = p->life.list[to->value].value;
  bool in_turn =
      w.node->op == AT_OP_CUSTOM_CALL && at_node_bool(w.node, AT_ATTR_ASYNC);
  int64_t end = in_turn ? p->life.list[from->value].read : from->time.end;
  if (end != to->time.begin + 1) return false;
  if (at_has_steps(w.node)) return false;
  bool is_operand = false;
  for (uint32_t o = 0; o < w.node->num_operands; o++) {
    if (!at_value_eq(w.node->operands[o], v)) continue;
    if (!may_alias(p->hooks, w.node, w.index, o)) return false;
    is_operand = true;
  }
  return is_operand;
}

// How many of k's spans begin by `when`.
static size_t begin_by(const klass *k, int64_t when) {
  size_t low = 0, high = k->spans.len;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (k->spans.ptr[mid].time.begin <= when)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

// Do two classes live at once? Spans of the class with fewer are looked up in
// the other's, sorted by begin.
static bool overlap(const planner *p, const klass *x, const klass *y) {
  if (x->hull.begin > y->hull.end || y->hull.begin > x->hull.end) return false;
  if (x->spans.len > y->spans.len) {
    const klass *more = x;
    x = y;
    y = more;
  }
  for (size_t i = 0; i < x->spans.len; i++) {
    const live_span *s = &x->spans.ptr[i];
    for (size_t j = begin_by(y, s->time.end);
         j-- > 0 && y->spans.ptr[j].last >= s->time.begin;) {
      const live_span *t = &y->spans.ptr[j];
      if (s->time.begin <= t->time.end && !hands_over(p, s, t) &&
          !hands_over(p, t, s))
        return true;
    }
  }
  return false;
}

// One class for each value to begin with; constants are pinned.
static at_status seed_classes(planner *p) {
  AT_TRY_ALLOC(p->classes, at_new(p->arena, klass, p->life.count + 1));
  for (uint32_t i = 0; i < p->life.count; i++) {
    const at_lifetime *t = &p->life.list[i];
    klass *k = &p->classes[i];
    *k = (klass){
        .parent = i, .bytes = t->bytes, .hull = t->span, .slot = UINT32_MAX};
    AT_TRY_ALLOC(k->spans.ptr, at_new(p->arena, live_span, 1));
    *k->spans.ptr = (live_span){t->span, t->span.end, i};
    k->spans.len = k->spans.cap = 1;
    if (t->value.node && t->value.node->op == AT_OP_CONSTANT)
      k->pin = PIN_CONST, k->pin_index = i;
  }
  return AT_OK;
}

// Says where a class lives, once and for all: input, output or constant number
// `index`.
static void pin(planner *p, at_value v, pin_kind kind, uint32_t index) {
  klass *k = &p->classes[class_of(p, v)];
  k->pin = kind;
  k->pin_index = index;
}

// Classes that the program's form makes one: views with what they look into, a
// loop's state with its body's parameters and results, a branch's results with
// those of its regions.
static at_status merge_fixed(planner *p, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (at_plan_is_view(n))
      for (uint32_t r = 0; r < n->num_results; r++)
        AT_TRY(must_merge(p, n->operands[r], (at_value){n, r}));
    if (!at_has_steps(n)) continue;
    for (uint32_t r = 0; r < n->num_results; r++) {
      at_value v = {n, r};
      if (n->op == AT_OP_WHILE) {
        AT_TRY(must_merge(p, v, n->operands[r]));
        AT_TRY(must_merge(p, v, (at_value){n->regions[0]->params[r], 0}));
        AT_TRY(must_merge(p, v, (at_value){n->regions[1]->params[r], 0}));
        AT_TRY(must_merge(p, v, n->regions[1]->results[r]));
      } else {
        for (uint32_t b = 0; b < n->num_regions; b++)
          AT_TRY(must_merge(p, v, n->regions[b]->results[r]));
      }
    }
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(merge_fixed(p, n->regions[r]));
  }
  return AT_OK;
}

// Parameters live in the input, or in the output that they are donated to;
// results in the output. After this a result's class lives to the end of the
// program.
static at_status pin_entry(planner *p, const at_module *m) {
  const at_comp *c = m->entry;
  for (uint32_t i = 0; i < c->num_params; i++) {
    int32_t r = m->params ? m->params[i].alias : -1;
    at_value v = {c->params[i], 0};
    if (r >= 0 && (uint32_t)r < c->num_results)
      pin(p, v, PIN_OUTPUT, (uint32_t)r);
    else
      pin(p, v, PIN_INPUT, i);
  }
  for (uint32_t r = 0; r < c->num_results; r++) {
    if (is_token(c->results[r]) || p->passed[r]) continue;
    klass *k = &p->classes[class_of(p, c->results[r])];
    AT_ENSURE(k->pin == PIN_NONE ||
              (k->pin == PIN_OUTPUT && k->pin_index == r));
    k->pin = PIN_OUTPUT;
    k->pin_index = r;
    // What the caller gets must not be written again.
    k->hull.end = p->life.last;
    for (size_t s = 0; s < k->spans.len; s++)
      if (at_value_eq(p->life.list[k->spans.ptr[s].value].value, c->results[r]))
        k->spans.ptr[s].time.end = p->life.last;
    set_last(k, 0);
  }
  for (uint32_t i = 0; i < c->num_params; i++)
    if (m->params && m->params[i].alias >= 0) {
      int32_t r = m->params[i].alias;
      if ((uint32_t)r < c->num_results && !is_token(c->results[r]))
        AT_TRY(must_merge(p, (at_value){c->params[i], 0}, c->results[r]));
    }
  return AT_OK;
}

// ---- Coalescing
typedef struct candidate {
  at_node *node;
  uint32_t result, operand;
  int rank;  // lower first: in-place updates, copies, the rest
  uint64_t bytes;
  uint32_t order;
} candidate;
typedef AT_VEC(candidate) candidates;

// Order of trying: in-place updates first, for a copy there costs the most,
// then explicit copies, then the rest; larger ones first. `order` makes it
// total, so plans do not depend on qsort.
static int compare_candidates(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->rank != y->rank) return x->rank - y->rank;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

// See compare_candidates.
static int rank_of(const at_node *n) {
  if (n->op == AT_OP_DYNAMIC_UPDATE_SLICE || n->op == AT_OP_SCATTER) return 0;
  return n->op == AT_OP_COPY ? 1 : 2;
}

// Every (result, operand) that may share memory: equal bytes, and the code that
// computes the node can do it.
static at_status collect(planner *p, const at_comp *c, const at_plan_hooks *h,
                         candidates *out) {
  AT_FOR_NODES(n, c) {
    if (at_has_steps(n)) {
      for (uint32_t r = 0; r < n->num_regions; r++)
        AT_TRY(collect(p, n->regions[r], h, out));
      continue;
    }
    if (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT ||
        at_plan_is_view(n))
      continue;
    for (uint32_t r = 0; r < n->num_results; r++)
      for (uint32_t o = 0; o < n->num_operands; o++) {
        uint64_t bytes = at_type_bytes(&n->types[r]);
        if (is_token((at_value){n, r}) || is_token(n->operands[o]) ||
            bytes != at_type_bytes(at_value_type(n->operands[o])) ||
            !may_alias(h, n, r, o))
          continue;
        candidate k = {n, r, o, rank_of(n), bytes, (uint32_t)out->len};
        if (!at_vec_push(p->arena, out, k)) return AT_NO_MEMORY("memory plan");
      }
  }
  return AT_OK;
}

// Takes the copies away: tries candidates in order and merges where neither pin
// nor lifetime forbids. A candidate that fails costs a copy at run time, never
// correctness.
static at_status coalesce(planner *p, const at_comp *entry,
                          const at_plan_hooks *h) {
  candidates list = {0};
  AT_TRY(collect(p, entry, h, &list));
  if (list.len) qsort(list.ptr, list.len, sizeof *list.ptr, compare_candidates);
  for (size_t i = 0; i < list.len; i++) {
    const candidate *k = &list.ptr[i];
    uint32_t x = class_of(p, k->node->operands[k->operand]);
    uint32_t y = class_of(p, (at_value){k->node, k->result});
    const klass *a = &p->classes[x], *b = &p->classes[y];
    if (x == y || a->bytes != b->bytes || !pins_agree(a, b)) continue;
    // Inputs that the caller keeps, and constants, are read only.
    if (a->pin == PIN_INPUT || a->pin == PIN_CONST || b->pin == PIN_INPUT ||
        b->pin == PIN_CONST)
      continue;
    if (!overlap(p, a, b)) AT_TRY(merge(p, x, y));
  }
  return AT_OK;
}

// ---- Slots
// Classes become slots: pinned ones take their place, the others are packed
// into one block of temporaries (at_blocks_place). Slot 0 is NULL, for values
// without bytes.
static at_status assign_slots(planner *p, at_plan *out) {
  uint32_t n = p->life.count, temps = 0, slots = 1;  // slot 0: NULL
  at_block *list;
  AT_TRY_ALLOC(list, at_new(p->arena, at_block, n + 1));
  for (uint32_t i = 0; i < n; i++) {
    klass *k = &p->classes[i];
    if (find(p, i) != i) continue;
    if (k->bytes == 0 && k->pin != PIN_INPUT && k->pin != PIN_OUTPUT) {
      k->slot = 0;
      continue;
    }
    k->slot = slots++;
    if (k->pin == PIN_NONE)
      list[temps++] =
          (at_block){.time = k->hull, .bytes = k->bytes, .owner = i};
  }
  AT_TRY(at_blocks_place(list, temps, p->arena, &out->temp_bytes));
  for (uint32_t i = 0; i < temps; i++) {
    AT_ASSERT(list[i].offset + list[i].bytes <= out->temp_bytes);
    p->classes[list[i].owner].offset = list[i].offset;
  }
  at_xslot *s;
  AT_TRY_ALLOC(s, at_new(p->arena, at_xslot, slots));
  s[0] = (at_xslot){.kind = AT_SLOT_NULL, .type = UINT32_MAX};
  static const uint32_t kinds[] = {AT_SLOT_TEMP, AT_SLOT_INPUT, AT_SLOT_OUTPUT,
                                   AT_SLOT_CONST};
  uint32_t constants = 0;
  for (uint32_t i = 0; i < n; i++) {
    const klass *k = &p->classes[i];
    if (k->parent != i || k->slot == 0) continue;
    uint32_t index = k->pin == PIN_CONST ? constants++ : k->pin_index;
    s[k->slot] = (at_xslot){kinds[k->pin], k->pin == PIN_NONE ? 0 : index,
                            k->offset,     k->bytes,
                            UINT32_MAX,    0};
  }
  out->slots = s;
  out->num_slots = slots;
  return AT_OK;
}

// Copies, lifetimes, classes, coalescing, slots. COPY nodes stay in the module
// also on an error.
at_status at_plan_memory(at_module *m, const at_plan_hooks *h, at_arena *a,
                         at_plan *out) {
  planner *p;
  AT_TRY_ALLOC(p, at_new(a, planner, 1));
  p->arena = a;
  p->hooks = h;
  AT_TRY(insert_copies(m->entry, a));
  AT_TRY(find_passed(p, m));
  AT_TRY(copy_entry_results(p, m));
  AT_TRY(at_lifetimes_compute(m, a, &p->life));
  AT_TRY(seed_classes(p));
  AT_TRY(merge_fixed(p, m->entry));
  AT_TRY(pin_entry(p, m));
  AT_TRY(coalesce(p, m->entry, h));
  p->hooks = NULL;
  at_plan plan = {.values = p};
  AT_TRY(assign_slots(p, &plan));
  AT_VERIFY_OK(at_plan_verify(m, &plan));
  *out = plan;
  return AT_OK;
}

// See schedule.h.
uint32_t at_plan_slot(const at_plan *plan, at_value v) {
  if (is_token(v)) return 0;
  uint32_t slot = plan->values->classes[class_of(plan->values, v)].slot;
  AT_ASSERT(slot < plan->num_slots);
  return slot;
}
