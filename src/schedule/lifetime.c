// When each value lives. One walk numbers all values, a second one moves a
// clock over the program in order, and a third extends what loops read from
// around them. What calls, branches and loops hold is on the same clock: a
// loop's body comes once, and its state is made to live over all of it.
#include "schedule/lifetime.h"

#include "base/verify.h"

// The state of the second walk.
typedef struct clock {
  at_arena *arena;
  at_lifetimes *l;
  int64_t now;  // position of the next node
} clock;

uint32_t at_lifetime_of(const at_lifetimes *l, at_value v) {
  void **at = at_map_find_ptr(&l->index, v.node);
  return at ? (uint32_t)(uintptr_t)*at - 1 + v.index : UINT32_MAX;
}

at_span_time at_lifetime_node(const at_lifetimes *l, const at_node *n) {
  void **at = at_map_find_ptr(&l->node_time, n);
  return at ? *(at_span_time *)*at : (at_span_time){0, 0};
}

// A value of unknown size counts as none: it has no place in the plan.
static uint64_t value_bytes(at_value v) {
  const at_type *t = at_value_type(v);
  return at_type_is_static(t) ? at_type_bytes(t) : 0;
}

// Numbers all values in the order of the program, those of regions behind their
// node's own.
static at_status number(clock *k, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    void **at;
    AT_TRY_ALLOC(at, at_map_put_ptr(&k->l->index, n));
    *at = (void *)(uintptr_t)(k->l->count + 1);
    k->l->count += n->num_results;
    if (at_has_steps(n))
      for (uint32_t r = 0; r < n->num_regions; r++)
        AT_TRY(number(k, n->regions[r]));
  }
  return AT_OK;
}

// When a node runs, for at_lifetime_node.
static at_status set_time(clock *k, const at_node *n, at_span_time t) {
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&k->l->node_time, n));
  at_span_time *box;
  AT_TRY_ALLOC(box, at_new(k->arena, at_span_time, 1));
  *box = t;
  *at = box;
  return AT_OK;
}

// The lifetime of a value that `number` has met.
static at_lifetime *known(const at_lifetimes *l, at_value v) {
  uint32_t i = at_lifetime_of(l, v);
  AT_ASSERT(i < l->count);
  return &l->list[i];
}

// v begins to live.
static void define(clock *k, at_value v, int64_t when) {
  at_lifetime *t = known(k->l, v);
  *t = (at_lifetime){v, {when, when}, when, value_bytes(v)};
}

// v's memory must stay as it is up to `when`, though nothing reads it.
static void hold(clock *k, at_value v, int64_t when) {
  at_lifetime *t = known(k->l, v);
  t->span.end = AT_MAX(t->span.end, when);
}

// v is read at `when`.
static void use(clock *k, at_value v, int64_t when) {
  at_lifetime *t = known(k->l, v);
  AT_ASSERT(t->value.node && t->span.begin <= when);  // defined before
  t->read = AT_MAX(t->read, when);
  hold(k, v, when);
}

// Outermost loop around `user` that does not contain the value's definition.
// NULL: there is none.
static const at_node *outer_loop(at_value v, const at_comp *user) {
  const at_node *loop = NULL;
  for (const at_comp *c = user; c && c != v.node->parent;
       c = c->owner ? c->owner->parent : NULL)
    if (c->owner && c->owner->op == AT_OP_WHILE) loop = c->owner;
  return loop;
}

static at_status walk(clock *k, at_comp *c, int64_t params_at);

// Puts a node on the clock: reads its operands, walks its regions, defines its
// results. Control flow takes two positions, its begin and its end.
static at_status walk_node(clock *k, at_node *n) {
  int64_t begin = 2 * k->now++;
  for (uint32_t i = 0; i < n->num_operands; i++)
    use(k, n->operands[i], begin + 1);
  // Others read and write the memory of an asynchronous op until it is done.
  const at_node *start = n->op == AT_OP_ASYNC_DONE ? n->operands[0].node : NULL;
  // A call may write over its operands, so the done's views of its results may
  // be where they were.
  bool in_turn = start && start->op == AT_OP_CUSTOM_CALL;
  for (uint32_t i = 0; start && i < start->num_operands; i++)
    if (in_turn)
      hold(k, start->operands[i], begin - 1);
    else
      use(k, start->operands[i], begin + 1);
  int64_t end = begin;
  if (at_has_steps(n)) {
    // While: cond, then body; branches one after another. Parameters are there
    // from the node's start; region results are read where the region ends.
    for (uint32_t r = 0; r < n->num_regions; r++) {
      AT_TRY(walk(k, n->regions[r], begin));
    }
    end = 2 * k->now++;
    if (n->op == AT_OP_WHILE && n->num_regions == 2)
      for (uint32_t i = 0; i < n->regions[1]->num_results; i++)
        use(k, n->regions[1]->results[i], end);
  }
  for (uint32_t r = 0; r < n->num_results; r++)
    define(k, (at_value){n, r}, end);
  return set_time(k, n, (at_span_time){begin, end});
}

// Goes through a computation in order. Two ticks for each node: reads are at
// odd times, so that a result may take the place of an operand that dies there.
static at_status walk(clock *k, at_comp *c, int64_t params_at) {
  for (uint32_t i = 0; i < c->num_params; i++)
    define(k, (at_value){c->params[i], 0}, params_at);
  AT_FOR_NODES(n, c) {
    if (n->op == AT_OP_PARAMETER) {
      AT_TRY(set_time(k, n, (at_span_time){params_at, params_at}));
      continue;
    }
    AT_TRY(walk_node(k, n));
  }
  int64_t end = 2 * k->now++;
  for (uint32_t i = 0; i < c->num_results; i++) use(k, c->results[i], end + 1);
  // The state must outlive the condition: when that is false, it is the result.
  if (c->owner && c->owner->op == AT_OP_WHILE && c == c->owner->regions[0])
    for (uint32_t i = 0; i < c->num_params; i++)
      use(k, (at_value){c->params[i], 0}, end + 1);
  return AT_OK;
}

// Second walk: uses inside loops of values from outside last to the loop's end.
static void extend(const at_lifetimes *l, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++) {
      const at_node *loop = outer_loop(n->operands[i], c);
      if (!loop) continue;
      at_lifetime *t = known(l, n->operands[i]);
      t->span.end = AT_MAX(t->span.end, at_lifetime_node(l, loop).end + 1);
      t->read = t->span.end;
    }
    if (at_has_steps(n))
      for (uint32_t r = 0; r < n->num_regions; r++) extend(l, n->regions[r]);
  }
  for (uint32_t i = 0; i < c->num_results; i++) {
    const at_node *loop = outer_loop(c->results[i], c);
    if (!loop) continue;
    at_lifetime *t = known(l, c->results[i]);
    t->span.end = AT_MAX(t->span.end, at_lifetime_node(l, loop).end + 1);
    t->read = t->span.end;
  }
}

// ---- The laws, from the order of the program
// Is v there when it is read at `when`, in computation c or a region of it? In
// a loop that v was made outside of, it has to be there in the next turn, too.
static bool lives_at(const at_lifetimes *l, at_value v, const at_comp *c,
                     int64_t when) {
  uint32_t i = at_lifetime_of(l, v);
  if (i >= l->count || !at_value_eq(l->list[i].value, v)) return false;
  const at_lifetime *t = &l->list[i];
  const at_node *loop = outer_loop(v, c);
  if (loop) when = AT_MAX(when, at_lifetime_node(l, loop).end + 1);
  return t->span.begin <= when && when <= t->span.end &&
         t->read <= t->span.end && t->span.end < l->last;
}

// Are all n values there when they are read at `when` in c?
static bool all_live_at(const at_lifetimes *l, const at_value *v, uint32_t n,
                        const at_comp *c, int64_t when) {
  for (uint32_t i = 0; i < n; i++)
    if (!lives_at(l, v[i], c, when)) return false;
  return true;
}

static bool holds(const at_lifetimes *l, const at_comp *c, int64_t params_at,
                  int64_t *now);

// What an asynchronous op reads and writes is there until its done.
static bool holds_until_done(const at_lifetimes *l, const at_node *n,
                             int64_t begin) {
  if (n->op != AT_OP_ASYNC_DONE) return true;
  const at_node *start = n->operands[0].node;
  bool in_turn = start->op == AT_OP_CUSTOM_CALL;
  return all_live_at(l, start->operands, start->num_operands, n->parent,
                     in_turn ? begin - 1 : begin + 1);
}

// Does the node begin two ticks behind the last one, with its operands alive,
// and end where its results begin? *now: its end.
static bool node_holds(const at_lifetimes *l, at_node *n, int64_t *now) {
  at_span_time t = at_lifetime_node(l, n);
  bool good =
      t.begin == *now + 2 &&
      all_live_at(l, n->operands, n->num_operands, n->parent, t.begin + 1) &&
      holds_until_done(l, n, t.begin);
  *now = t.begin;
  for (uint32_t r = 0; good && at_has_steps(n) && r < n->num_regions; r++)
    good = holds(l, n->regions[r], t.begin, now);
  if (at_has_steps(n)) *now += 2;
  if (n->op == AT_OP_WHILE)
    good = good && all_live_at(l, n->regions[1]->results,
                               n->regions[1]->num_results, n->regions[1], *now);
  for (uint32_t r = 0; good && r < n->num_results; r++) {
    at_value v = {n, r};
    good = lives_at(l, v, n->parent, *now) && known(l, v)->span.begin == *now;
  }
  return good && t.end == *now;
}

// Do the nodes of c follow each other, two ticks apart, with what they read
// alive? *now: of the last node before, then of the end of c.
static bool holds(const at_lifetimes *l, const at_comp *c, int64_t params_at,
                  int64_t *now) {
  AT_FOR_NODES(n, c) {
    if (n->op != AT_OP_PARAMETER) {
      if (!node_holds(l, n, now)) return false;
    } else if (known(l, (at_value){n, 0})->span.begin != params_at) {
      return false;
    }
  }
  *now += 2;
  const at_node *o = c->owner;
  bool is_condition = o && o->op == AT_OP_WHILE && c == o->regions[0];
  for (uint32_t i = 0; i < c->num_params; i++)
    if (!lives_at(l, (at_value){c->params[i], 0}, c,
                  is_condition ? *now + 1 : params_at))
      return false;
  return all_live_at(l, c->results, c->num_results, c, *now + 1);
}

// The law for at_lifetimes_compute, from the program's order alone.
static bool all_holds(const at_lifetimes *l, const at_module *m) {
  int64_t now = 0;
  return holds(l, m->entry, 0, &now) && l->last == now + 2;
}

// See lifetime.h.
at_status at_lifetimes_compute(const at_module *m, at_arena *a,
                               at_lifetimes *out) {
  at_lifetimes l = {.index = at_map_in(a), .node_time = at_map_in(a)};
  clock k = {a, &l, 1};
  AT_TRY(number(&k, m->entry));
  AT_TRY_ALLOC(l.list, at_new(a, at_lifetime, l.count + 1));
  AT_TRY(walk(&k, m->entry, 0));
  extend(&l, m->entry);
  l.last = 2 * k.now;
  AT_VERIFY(all_holds(&l, m));
  *out = l;
  return AT_OK;
}
