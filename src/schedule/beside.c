// Calls that run beside the rest of a program: begun early, waited for late.
#include <math.h>

#include "cost/count.h"
#include "schedule/order.h"
#include "schedule/overlap.h"

// One run of the pass over a module.
typedef struct walk {
  const at_target *target;
  const at_beside *b;
  at_arena *arena;
  uint32_t calls;
} walk;

// What the pass knows of an item beside its place in the graph.
typedef struct state {
  bool call, started, done;
  bool feeds;        // a call waits for it
  uint32_t pending;  // results of calls that it reads and that are not there
  double seconds;
} state;

typedef struct place {
  uint32_t item;
  bool done;  // the item's async_done, not the item
} place;

// One computation: a list schedule from the front. Items' `waits` and states'
// `pending` count down to 0.
typedef struct search {
  const walk *w;
  at_ordering o;
  state *states;
  uint32_t *ready, num_ready;
  uint32_t *calls, num_calls;  // in their order
  uint32_t next_call, next_done;
  place *order;
  uint32_t placed;
} search;

// What a node takes, with its regions as often as they run. Of a branch all
// regions are added: an upper bound.
static at_status seconds_of(const walk *w, const at_node *n, double *out) {
  at_cost_time time;
  *out = 0;
  if (n->op == AT_OP_PARAMETER) return AT_OK;
  if (w->b->is_call(n)) return *out = w->b->seconds(n), AT_OK;
  AT_TRY(at_cost_node(w->target, n, &time));
  *out = time.seconds;
  if (!at_has_steps(n)) return AT_OK;
  bool known;
  double inside = 0,
         turns = n->op == AT_OP_WHILE ? at_count_trips(n, &known) : 1;
  for (uint32_t r = 0; r < n->num_regions; r++) AT_FOR_NODES(k, n->regions[r]) {
      double s;
      AT_TRY(seconds_of(w, k, &s));
      inside += s;
    }
  *out += inside * turns;
  return AT_OK;
}

// Items come after what they read, so one walk from the end finds all that
// some call waits for.
static void find_feeders(search *s) {
  for (uint32_t i = s->o.count; i-- > 0;) {
    const at_order_item *it = &s->o.items[i];
    if (!s->states[i].call && !s->states[i].feeds) continue;
    for (uint32_t d = 0; d < it->num_deps; d++)
      s->states[it->deps[d]].feeds = true;
  }
}

// A call reads earlier calls' results directly, so it waits only for their
// starts; anything else waits for their dones.
static bool is_ready(const search *s, uint32_t i) {
  return !s->o.items[i].waits && (s->states[i].call || !s->states[i].pending);
}

// Puts i among what can be placed next. Calls are not: they keep their own
// order.
static void add_ready(search *s, uint32_t i) {
  if (!s->states[i].call && is_ready(s, i)) s->ready[s->num_ready++] = i;
}

// Builds the graph of c; `pending` counts, for each item, the calls among what
// it reads.
static at_status search_start(search *s, at_comp *c) {
  s->o = (at_ordering){.arena = s->w->arena};
  AT_TRY(at_ordering_build(&s->o, c, s->w->b->is_call));
  uint32_t n = s->o.count;
  AT_TRY_ALLOC(s->states, at_new(s->w->arena, state, n + 1));
  AT_TRY_ALLOC(s->ready, at_new(s->w->arena, uint32_t, n + 1));
  AT_TRY_ALLOC(s->calls, at_new(s->w->arena, uint32_t, n + 1));
  AT_TRY_ALLOC(s->order, at_new(s->w->arena, place, 2 * (size_t)n + 1));
  for (uint32_t i = 0; i < n; i++) {
    const at_order_item *it = &s->o.items[i];
    state *x = &s->states[i];
    AT_TRY(seconds_of(s->w, it->node, &x->seconds));
    x->call = s->w->b->is_call(it->node);
    if (x->call) s->calls[s->num_calls++] = i;
    for (uint32_t d = 0; d < it->num_deps; d++)
      x->pending += s->states[it->deps[d]].call;
  }
  find_feeders(s);
  for (uint32_t i = 0; i < n; i++) add_ready(s, i);
  return AT_OK;
}

// Places item i; its users wait for one thing less.
static void put(search *s, uint32_t i) {
  const at_order_item *it = &s->o.items[i];
  AT_ASSERT(!s->states[i].started && is_ready(s, i));
  s->order[s->placed++] = (place){.item = i};
  s->states[i].started = true;
  for (uint32_t u = 0; u < it->num_users; u++) {
    AT_ASSERT(s->o.items[it->users[u]].waits > 0);
    s->o.items[it->users[u]].waits--;
    add_ready(s, it->users[u]);
  }
}

// Places the done of a call; who reads its results may follow.
static void put_done(search *s, uint32_t call) {
  const at_order_item *it = &s->o.items[call];
  AT_ASSERT(s->states[call].started && !s->states[call].done);
  s->order[s->placed++] = (place){call, true};
  s->states[call].done = true;
  for (uint32_t u = 0; u < it->num_users; u++) {
    if (s->states[it->users[u]].call) continue;
    AT_ASSERT(s->states[it->users[u]].pending > 0);
    s->states[it->users[u]].pending--;
    add_ready(s, it->users[u]);
  }
}

// Places the next call if it can start.
static bool put_next_call(search *s) {
  if (s->next_call == s->num_calls || !is_ready(s, s->calls[s->next_call]))
    return false;
  put(s, s->calls[s->next_call++]);
  return true;
}

// What calls wait for first, else in the order found.
static bool put_work(search *s) {
  uint32_t best = UINT32_MAX;
  for (uint32_t k = 0; k < s->num_ready; k++) {
    uint32_t i = s->ready[k];
    bool feeds = s->states[i].feeds;
    if (best != UINT32_MAX) {
      bool best_feeds = s->states[s->ready[best]].feeds;
      if (feeds != best_feeds ? best_feeds : i > s->ready[best]) continue;
    }
    best = k;
  }
  if (best == UINT32_MAX) return false;
  uint32_t pick = s->ready[best];
  s->ready[best] = s->ready[--s->num_ready];
  put(s, pick);
  return true;
}

// The oldest call under way for which somebody waits; with `any`, the oldest.
static bool put_next_done(search *s, bool any) {
  for (uint32_t k = s->next_done; k < s->next_call; k++) {
    uint32_t call = s->calls[k];
    const at_order_item *it = &s->o.items[call];
    bool wanted = any && !s->states[call].done;
    for (uint32_t u = 0; u < it->num_users && !s->states[call].done; u++)
      wanted |=
          !s->states[it->users[u]].call && !s->o.items[it->users[u]].waits;
    if (!wanted) continue;
    put_done(s, call);
    while (s->next_done < s->next_call &&
           s->states[s->calls[s->next_done]].done)
      s->next_done++;
    return true;
  }
  return false;
}

// Seconds of the order when calls run beside the rest; `alone`: when nothing
// does.
static at_status makespan(const search *s, at_arena *a, double *alone,
                          double *out) {
  double now = 0, busy = 0, *end;
  *alone = 0;
  AT_TRY_ALLOC(end, at_new(a, double, s->o.count + 1));
  for (uint32_t k = 0; k < s->placed; k++) {
    uint32_t i = s->order[k].item;
    if (s->order[k].done) {
      now = fmax(now, end[i]);
      continue;
    }
    *alone += s->states[i].seconds;
    if (s->states[i].call)
      end[i] = busy = fmax(busy, now) + s->states[i].seconds;
    else
      now += s->states[i].seconds;
  }
  AT_ASSERT(!(fmax(now, busy) > *alone * (1 + 1e-9)));
  *out = fmax(now, busy);
  return AT_OK;
}

// A call reads what an earlier one makes where that makes it.
static void read_directly(at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_node *from = n->operands[i].node;
    if (from->op == AT_OP_ASYNC_DONE &&
        from->operands[0].node->op == AT_OP_CUSTOM_CALL)
      n->operands[i] = from->operands[n->operands[i].index];
  }
}

// Makes every call asynchronous and moves all nodes into the order found.
// Parameters stay in front.
static at_status take_order(search *s, at_comp *c) {
  at_node **dones;
  AT_TRY_ALLOC(dones, at_new(s->w->arena, at_node *, s->o.count + 1));
  for (uint32_t k = 0; k < s->num_calls; k++)
    AT_TRY(
        at_overlap_split(c, s->o.items[s->calls[k]].node, &dones[s->calls[k]]));
  for (uint32_t k = 0; k < s->num_calls; k++)
    read_directly(s->o.items[s->calls[k]].node);
  for (uint32_t k = 0; k < s->placed; k++) {
    place p = s->order[k];
    at_node *n = p.done ? dones[p.item] : s->o.items[p.item].node;
    if (n->op != AT_OP_PARAMETER) at_node_move_before(n, NULL);
  }
  return AT_OK;
}

// Above this many nodes the choice among those that are ready, quadratic here,
// costs more compile time than an order is worth.
enum { kMostNodes = 4000 };

// Regions first, since a loop's own cost holds what happens in it. The order is
// taken if it gains more than least_seconds.
static at_status computation(walk *w, at_comp *c) {
  uint32_t nodes = 0, calls = 0;
  AT_FOR_NODES(n, c) {
    nodes++;
    calls += w->b->is_call(n);
    for (uint32_t r = 0; r < n->num_regions && at_has_steps(n); r++)
      AT_TRY(computation(w, n->regions[r]));
  }
  if (!calls || nodes > kMostNodes) return AT_OK;
  search s = {.w = w};
  AT_TRY(search_start(&s, c));
  while (put_next_call(&s) || put_work(&s) || put_next_done(&s, false))
    continue;
  while (put_next_done(&s, true)) continue;
  AT_ENSURE(s.placed == s.o.count + s.num_calls);
  double alone, together;
  AT_TRY(makespan(&s, w->arena, &alone, &together));
  if (alone - together <= w->b->least_seconds) return AT_OK;
  w->calls += calls;
  return take_order(&s, c);
}

at_status at_overlap_beside(at_module *m, const at_target *t,
                            const at_beside *b, at_arena *a,
                            uint32_t *out_calls) {
  walk w = {.target = t, .b = b, .arena = a};
  AT_TRY(computation(&w, m->entry));
  *out_calls = w.calls;
  return AT_OK;
}
