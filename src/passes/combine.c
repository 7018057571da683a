// Collectives of one kind that do not wait for each other become one that
// carries several values: a training step then meets once instead of once for
// each weight. Only small ones: a large one takes longer than a meeting, and
// apart from others it can move while the program works (schedule/overlap).
#include "passes/passes_internal.h"

enum { kMostValues = 256 };
static const size_t kMostBytes = (size_t)256 << 10;

// What is known of a node of the computation, by its place in it.
typedef struct item {
  at_node *node;
  uint32_t level;  // collectives in front of it
  uint32_t moves;  // serial of the set that it has to follow
} item;

typedef struct combiner {
  at_module *m;
  at_comp *comp;
  item *items;
  uint32_t count;
  at_map index;  // node -> its place + 1
  uint32_t serial;
} combiner;

typedef AT_VEC(at_node *) node_list;

// Synchronous reductions by a plain op, and gathers: only these are combined.
static bool fits(const at_node *n) {
  return (n->op == AT_OP_ALL_REDUCE || n->op == AT_OP_ALL_GATHER ||
          n->op == AT_OP_REDUCE_SCATTER) &&
         !at_node_bool(n, AT_ATTR_ASYNC) &&
         (!n->num_regions || at_region_binary(n->regions[0]) != AT_OP_COUNT);
}

// Bytes that a device contributes.
static size_t bytes_of(const at_node *n) {
  size_t sum = 0;
  for (uint32_t i = 0; i < n->num_operands; i++)
    sum += at_type_bytes(at_value_type(n->operands[i]));
  return sum;
}

// ---- Who waits for whom
typedef bool (*visit_fn)(combiner *k, item *def, void *arg);

// Every node of the computation that n reads, also from inside its regions,
// until `visit` says true.
static bool any_input(combiner *k, const at_node *n, visit_fn visit,
                      void *arg) {
  for (uint32_t i = 0; i < n->num_operands; i++) {
    void **at = at_map_find_ptr(&k->index, n->operands[i].node);
    if (at && visit(k, &k->items[(uintptr_t)*at - 1], arg)) return true;
  }
  for (uint32_t r = 0; r < n->num_regions; r++) {
    const at_comp *body = n->regions[r];
    AT_FOR_NODES(x, body) if (any_input(k, x, visit, arg)) return true;
    for (uint32_t i = 0; i < body->num_results; i++) {
      void **at = at_map_find_ptr(&k->index, body->results[i].node);
      if (at && visit(k, &k->items[(uintptr_t)*at - 1], arg)) return true;
    }
  }
  return false;
}

// Visitor: the user's level is above that of each collective it depends on. Two
// of the same level cannot wait for each other.
static bool raise_level(combiner *k, item *def, void *arg) {
  item *user = arg;
  user->level = AT_MAX(user->level, def->level + fits(def->node));
  return false;
}

// Visitor: is an input of a node in the set, or does it follow one?
static bool is_moving(combiner *k, item *def, void *arg) {
  return def->moves == k->serial;
}

// Numbers the nodes of the computation in order and finds their levels.
// Operands come first in the list, so one walk is enough.
static at_status number(combiner *k) {
  k->index = at_map_in(k->m->arena);
  k->count = 0;
  AT_FOR_NODES(n, k->comp) k->count++;
  AT_TRY_ALLOC(k->items, at_new(k->m->arena, item, k->count + 1));
  uint32_t i = 0;
  AT_FOR_NODES(n, k->comp) {
    void **slot;
    AT_TRY_ALLOC(slot, at_map_put_ptr(&k->index, n));
    k->items[i].node = n;
    any_input(k, n, raise_level, &k->items[i]);
    *slot = (void *)(uintptr_t)++i;
  }
  return AT_OK;
}

// ---- One set
// Nodes between the first and the last of the set that read what the set gives
// follow the last. False: an effect would change its place.
static bool mark_followers(combiner *k, const node_list *set) {
  uint32_t in_set = 0;
  bool started = false;
  k->serial++;
  for (uint32_t i = 0; i < k->count && in_set < set->len; i++) {
    item *x = &k->items[i];
    if (x->node == set->ptr[in_set]) {
      in_set++;
      started = true;
      x->moves = k->serial;
    } else if (started && any_input(k, x->node, is_moving, NULL)) {
      if (!at_is_pure(k->m, x->node) && !fits(x->node)) return false;
      x->moves = k->serial;
    }
  }
  return true;
}

// *out, before `before`: the collective of all operands of the set, with the
// attributes of the first. Its results are in the order of the set.
static at_status build_one(combiner *k, const node_list *set, at_node *before,
                           at_node **out) {
  const at_node *first = set->ptr[0];
  uint32_t n = 0;
  for (size_t i = 0; i < set->len; i++) n += set->ptr[i]->num_operands;
  at_value *operands;
  at_type *types;
  AT_TRY_ALLOC(operands, at_new(k->m->arena, at_value, n));
  AT_TRY_ALLOC(types, at_new(k->m->arena, at_type, n));
  n = 0;
  for (size_t i = 0; i < set->len; i++)
    for (uint32_t v = 0; v < set->ptr[i]->num_operands; v++) {
      operands[n] = set->ptr[i]->operands[v];
      types[n++] = set->ptr[i]->types[v];
    }
  at_comp *body = NULL;
  if (first->num_regions)
    AT_TRY(
        at_mk_binary_region(k->m, at_region_binary(first->regions[0]),
                            at_value_type(first->regions[0]->results[0])->dtype,
                            first->loc, &body));
  at_node_desc d = {.op = first->op,
                    .operands = operands,
                    .num_operands = n,
                    .attrs = first->attrs,
                    .num_attrs = first->num_attrs,
                    .regions = &body,
                    .num_regions = first->num_regions,
                    .types = types,
                    .num_types = n,
                    .loc = first->loc};
  return at_build(k->comp, before, &d, out);
}

// Replaces the set by one collective where its last member stands. *merged
// false: nothing was changed.
static at_status merge(combiner *k, const node_list *set, bool *merged) {
  at_node *last = set->ptr[set->len - 1], *one;
  *merged = mark_followers(k, set);
  if (!*merged) return AT_OK;
  AT_TRY(build_one(k, set, last->next, &one));
  // The followers, in their order, behind the one.
  at_node *place = one->next;
  for (uint32_t i = 0; i < k->count; i++)
    if (k->items[i].moves == k->serial && k->items[i].node->parent == k->comp)
      at_node_move_before(k->items[i].node, place);
  uint32_t v = 0;
  for (size_t i = 0; i < set->len; i++) {
    for (uint32_t r = 0; r < set->ptr[i]->num_results; r++)
      at_replace_uses(k->comp, (at_value){set->ptr[i], r},
                      (at_value){one, v++});
    at_node_remove(set->ptr[i]);
  }
  return AT_OK;
}

// ---- The pass
// The next set: what is like the first that is not in `done`, as much as one
// may carry.
static at_status next_set(combiner *k, uint32_t *from, node_list *set) {
  set->len = 0;
  for (; *from < k->count && !set->len; ++*from) {
    item *first = &k->items[*from];
    if (!first->node || !fits(first->node)) continue;
    size_t bytes = 0, values = 0;
    for (uint32_t i = *from; i < k->count; i++) {
      item *x = &k->items[i];
      if (!x->node || !fits(x->node) || x->level != first->level ||
          !at_collective_alike(k->m, first->node, x->node))
        continue;
      size_t b = bytes_of(x->node);
      if (set->len && (bytes + b > kMostBytes ||
                       values + x->node->num_operands > kMostValues))
        continue;
      bytes += b;
      values += x->node->num_operands;
      if (!at_vec_push(k->m->arena, set, x->node))
        return AT_NO_MEMORY("combine");
    }
    if (set->len < 2) set->len = 0;
  }
  return AT_OK;
}

// Combines in one computation, innermost regions first. Each merge changes
// places, so numbering starts again; every merge removes nodes, so that it
// ends.
static at_status combine(at_module *m, at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; at_is_control(n->op) && i < n->num_regions; i++)
      AT_TRY(combine(m, n->regions[i]));
  }
  combiner k = {.m = m, .comp = c};
  node_list set = {0};
  uint32_t from = 0;
  AT_TRY(number(&k));
  for (;;) {
    AT_TRY(next_set(&k, &from, &set));
    if (!set.len) return AT_OK;
    bool merged;
    AT_TRY(merge(&k, &set, &merged));
    if (!merged) continue;
    AT_TRY(number(&k));  // places have changed
    from = 0;
  }
}

at_status at_pass_combine(at_module *m, const at_pass_options *o) {
  (void)o;
  if (m->num_partitions * m->num_replicas <= 1) return AT_OK;
  return combine(m, m->entry);
}
