// Orders nodes so that fewer bytes are live at once: at each point the ready
// node that frees most (or costs least) goes first, ties in the order found. A
// greedy order can be worse than the program's own, so both are measured and
// the better one stays.
#include "schedule/order.h"

#include "base/verify.h"

// Bytes that a node's results take; none for what is there anyway: constants,
// parameters, views. SIZE_MAX: more than can be counted.
static size_t bytes_of(const at_node *n) {
  size_t sum = 0;
  if (n->op == AT_OP_CONSTANT || n->op == AT_OP_PARAMETER || at_plan_is_view(n))
    return 0;
  for (uint32_t r = 0; r < n->num_results; r++)
    if (at_type_is_static(&n->types[r]))
      sum = at_add(sum, at_type_bytes(&n->types[r]));
  return sum;
}

// Calls fn for every value that `n` reads from `c`, also from inside regions.
static at_status each_input(const at_comp *c, const at_node *n,
                            at_status (*fn)(void *, at_node *), void *arg) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (n->operands[i].node->parent == c) AT_TRY(fn(arg, n->operands[i].node));
  for (uint32_t r = 0; r < n->num_regions; r++) {
    AT_FOR_NODES(k, n->regions[r]) AT_TRY(each_input(c, k, fn, arg));
    for (uint32_t i = 0; i < n->regions[r]->num_results; i++)
      if (n->regions[r]->results[i].node->parent == c)
        AT_TRY(fn(arg, n->regions[r]->results[i].node));
  }
  return AT_OK;
}

// What one item reads, while it is gathered.
typedef struct edge_list {
  at_ordering *o;
  AT_VEC(uint32_t) deps;
  uint32_t *seen;  // per item: the last one that has it among its deps, + 1
  uint32_t item;
} edge_list;

// each_input's fn: adds the item that defines `def`, once.
static at_status add_dep(void *arg, at_node *def) {
  edge_list *e = arg;
  void **at = at_map_find_ptr(&e->o->index, def);
  if (!at) return AT_OK;
  uint32_t d = (uint32_t)(uintptr_t)*at - 1;
  if (e->seen[d] == e->item + 1) return AT_OK;
  e->seen[d] = e->item + 1;
  return at_vec_push(e->o->arena, &e->deps, d) ? AT_OK : AT_NO_MEMORY("order");
}

// Has n, or a node in its regions, one of these traits?
static bool has_trait(const at_node *n, uint32_t traits) {
  if (at_op_is(n->op, traits)) return true;
  for (uint32_t r = 0; r < n->num_regions; r++)
    AT_FOR_NODES(k, n->regions[r]) if (has_trait(k, traits)) return true;
  return false;
}

bool at_schedule_has_effect(const at_node *n) {
  return has_trait(n, AT_EFFECT | AT_OPAQUE);
}

// Must it keep its place among nodes like it?
static bool keeps_order(const at_node *n) {
  return has_trait(n, AT_EFFECT | AT_COLLECTIVE | AT_OPAQUE);
}

// The two views of the graph agree: an item is a user of what it waits for, as
// often as it waits; edges go forward.
static bool edges_agree(const at_ordering *o) {
  uint64_t waits = 0, users = 0;
  for (uint32_t i = 0; i < o->count; i++) {
    const at_order_item *it = &o->items[i];
    waits += it->waits;
    users += it->num_users;
    if (it->waits < it->num_deps || it->waits > it->num_deps + 1) return false;
    for (uint32_t d = 0; d < it->num_deps; d++)
      if (it->deps[d] >= i) return false;
    for (uint32_t u = 0; u < it->num_users; u++)
      if (it->users[u] <= i || it->users[u] >= o->count ||
          (u && it->users[u] <= it->users[u - 1]))
        return false;
  }
  return waits == users;
}

at_status at_ordering_build(at_ordering *o, at_comp *c,
                            bool (*apart)(const at_node *)) {
  o->index = at_map_in(o->arena);
  AT_FOR_NODES(n, c) {
    void **at;
    AT_TRY_ALLOC(at, at_map_put_ptr(&o->index, n));
    *at = (void *)(uintptr_t)(++o->count);
  }
  AT_TRY_ALLOC(o->items, at_new(o->arena, at_order_item, o->count + 1));
  AT_TRY_ALLOC(o->uses, at_new(o->arena, uint32_t, o->count + 1));
  AT_VEC(uint32_t) * users;
  AT_TRY_ALLOC(
      users, at_arena_alloc(o->arena, at_mul(o->count + 1, sizeof *users), 8));
  uint32_t *seen;
  AT_TRY_ALLOC(seen, at_new(o->arena, uint32_t, o->count + 1));
  uint32_t i = 0, last[2] = {UINT32_MAX, UINT32_MAX};  // effects; apart
  size_t all = 0;  // bytes: sums over some of them do not overflow
  AT_FOR_NODES(n, c) {
    edge_list e = {.o = o, .seen = seen, .item = i};
    AT_TRY(each_input(c, n, add_dep, &e));
    for (size_t d = 0; d < e.deps.len; d++) o->uses[e.deps.ptr[d]]++;
    uint32_t num_data = (uint32_t)e.deps.len;
    bool is_apart = apart && apart(n);
    if (is_apart || keeps_order(n)) {
      if (last[is_apart] != UINT32_MAX)
        AT_TRY(add_dep(&e, o->items[last[is_apart]].node));
      last[is_apart] = i;
    }
    const size_t bytes = bytes_of(n);
    all = at_add(all, bytes);
    if (all > INT64_MAX)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                     "the values of one computation take over 2^63 bytes");
    o->items[i] = (at_order_item){.node = n,
                                  .waits = (uint32_t)e.deps.len,
                                  .deps = e.deps.ptr,
                                  .num_deps = num_data,
                                  .result_bytes = (int64_t)bytes};
    for (size_t d = 0; d < e.deps.len; d++)
      if (!at_vec_push(o->arena, &users[e.deps.ptr[d]], i))
        return AT_NO_MEMORY("order");
    i++;
  }
  for (i = 0; i < o->count; i++) {
    o->items[i].users = users[i].ptr;
    o->items[i].num_users = (uint32_t)users[i].len;
  }
  // Results of the computation are never freed here.
  for (uint32_t r = 0; r < c->num_results; r++) {
    void **at = at_map_find_ptr(&o->index, c->results[r].node);
    if (at) o->uses[(uintptr_t)*at - 1]++;
  }
  AT_VERIFY(edges_agree(o));
  return AT_OK;
}

// Bytes that running `it` next frees; `left` counts the uses that each item
// still has before it, and is lowered when `commit`.
static int64_t freed_by(const at_ordering *o, uint32_t *left,
                        const at_order_item *it, bool commit) {
  int64_t freed = 0;
  for (uint32_t i = 0; i < it->num_deps; i++) {
    uint32_t d = it->deps[i];
    if (left[d] == 1) freed += o->items[d].result_bytes;
    if (commit) left[d]--;
  }
  return freed;
}

// The most bytes that live at once in that order.
static at_status peak_of(at_ordering *o, const uint32_t *order, int64_t *out) {
  uint32_t *left;
  AT_TRY_ALLOC(left, at_arena_copy(o->arena, o->uses, at_mul(o->count, 4), 4));
  int64_t live = 0, peak = 0;
  for (uint32_t i = 0; i < o->count; i++) {
    live += o->items[order[i]].result_bytes;
    peak = AT_MAX(peak, live);
    live -= freed_by(o, left, &o->items[order[i]], true);
    AT_ASSERT(live >= 0);
  }
  *out = peak;
  return AT_OK;
}

// Ready items, the one that frees most on top. An item whose gain has grown
// since it was pushed stands in it once more.
typedef struct heap_item {
  int64_t gain;
  uint32_t item;
} heap_item;
typedef AT_VEC(heap_item) heap;

// Order of the heap: the larger gain; ties in the order found.
static bool goes_first(heap_item a, heap_item b) {
  return a.gain != b.gain ? a.gain > b.gain : a.item < b.item;
}

// False: no memory.
static bool heap_push(at_arena *a, heap *h, heap_item x) {
  if (!at_vec_push(a, h, x)) return false;
  size_t i = h->len - 1;
  for (; i && goes_first(x, h->ptr[(i - 1) / 2]); i = (i - 1) / 2)
    h->ptr[i] = h->ptr[(i - 1) / 2];
  h->ptr[i] = x;
  return true;
}

static heap_item heap_pop(heap *h) {
  heap_item top = h->ptr[0], x = h->ptr[--h->len];
  size_t i = 0;
  for (size_t k; (k = 2 * i + 1) < h->len; i = k) {
    if (k + 1 < h->len && goes_first(h->ptr[k + 1], h->ptr[k])) k++;
    if (!goes_first(h->ptr[k], x)) break;
    h->ptr[i] = h->ptr[k];
  }
  h->ptr[i] = x;
  return top;
}

// A greedy order under way.
typedef struct greedy_order {
  at_ordering *o;
  uint32_t *left;  // uses of each item's results that are still to come
  bool *done;
  heap ready;
} greedy_order;

// Pushes item i with what it would gain now: bytes freed less bytes of its
// results.
static at_status make_ready(greedy_order *g, uint32_t i) {
  const at_order_item *it = &g->o->items[i];
  int64_t gain = freed_by(g->o, g->left, it, false) - it->result_bytes;
  return heap_push(g->o->arena, &g->ready, (heap_item){gain, i})
             ? AT_OK
             : AT_NO_MEMORY("order");
}

// What item i alone still reads: its reader frees it.
static at_status last_reader(greedy_order *g, uint32_t i) {
  const at_order_item *it = &g->o->items[i];
  for (uint32_t u = 0; u < it->num_users; u++) {
    uint32_t user = it->users[u];
    if (!g->done[user] && !g->o->items[user].waits) AT_TRY(make_ready(g, user));
  }
  return AT_OK;
}

// The greedy order. Gains only grow, when a reader becomes the last one; such
// items are pushed again, and the stale entry is skipped.
static at_status greedy(at_ordering *o, uint32_t *order) {
  greedy_order g = {.o = o};
  AT_TRY_ALLOC(g.left,
               at_arena_copy(o->arena, o->uses, at_mul(o->count, 4), 4));
  AT_TRY_ALLOC(g.done, at_new(o->arena, bool, o->count + 1));
  for (uint32_t i = 0; i < o->count; i++)
    if (!o->items[i].waits) AT_TRY(make_ready(&g, i));
  for (uint32_t n = 0; n < o->count;) {
    AT_ENSURE(g.ready.len);
    uint32_t pick = heap_pop(&g.ready).item;
    if (g.done[pick]) continue;  // it stood here twice
    const at_order_item *it = &o->items[pick];
    order[n++] = pick;
    g.done[pick] = true;
    freed_by(o, g.left, it, true);
    for (uint32_t d = 0; d < it->num_deps; d++)
      if (g.left[it->deps[d]] == 1) AT_TRY(last_reader(&g, it->deps[d]));
    for (uint32_t u = 0; u < it->num_users; u++)
      if (--o->items[it->users[u]].waits == 0)
        AT_TRY(make_ready(&g, it->users[u]));
  }
  return AT_OK;
}

// Is each item there once, behind all that it reads and waits for?
static bool is_order(const at_ordering *o, const uint32_t *order) {
  uint32_t *place = at_new(o->arena, uint32_t, o->count + 1);
  if (!place) return true;  // no memory to look
  for (uint32_t k = 0; k < o->count; k++) {
    if (order[k] >= o->count || place[order[k]]) return false;
    place[order[k]] = k + 1;
  }
  for (uint32_t i = 0; i < o->count; i++)
    for (uint32_t u = 0; u < o->items[i].num_users; u++)
      if (place[o->items[i].users[u]] <= place[i]) return false;
  return true;
}

// Regions first; then c takes the greedy order if its peak is lower.
static at_status order_comp(at_comp *c, at_arena *a) {
  AT_FOR_NODES(n, c)
  if (at_has_steps(n))
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(order_comp(n->regions[r], a));
  at_ordering o = {.arena = a};
  AT_TRY(at_ordering_build(&o, c, NULL));
  uint32_t *found, *better;
  AT_TRY_ALLOC(found, at_new(a, uint32_t, o.count + 1));
  AT_TRY_ALLOC(better, at_new(a, uint32_t, o.count + 1));
  for (uint32_t i = 0; i < o.count; i++) found[i] = i;
  AT_TRY(greedy(&o, better));
  AT_VERIFY(is_order(&o, better));
  int64_t old_peak, new_peak;
  AT_TRY(peak_of(&o, found, &old_peak));
  AT_TRY(peak_of(&o, better, &new_peak));
  if (new_peak >= old_peak) return AT_OK;
  for (uint32_t i = 0; i < o.count; i++)
    at_node_move_before(o.items[better[i]].node, NULL);
  return AT_OK;
}

at_status at_schedule_order(at_module *m) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("schedule");
  at_status st = order_comp(m->entry, a);
  at_arena_destroy(a);
  return st;
}
