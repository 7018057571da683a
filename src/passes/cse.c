// Common subexpressions: one walk with a scoped table of structural hashes.
#include "passes/passes_internal.h"

typedef struct entry {
  struct entry *chain;  // same bucket
  struct entry *below;  // inserted before this one
  at_node *node;
  uint64_t hash;
  uint32_t floor;  // isolation depth at insertion
} entry;

typedef struct table {
  entry **buckets;
  uint64_t mask;
  entry *top;
  uint32_t serial;  // numbers the regions that may not capture
} table;

// Hashes the address of p: equality of operands is identity of nodes here.
static uint64_t mix(uint64_t h, const void *p) {
  uint64_t v = (uint64_t)(uintptr_t)p;
  return at_hash(h, &v, sizeof v);
}

// Ops that cost nothing where they are: not worth a capture from a region.
static bool is_free(at_op op) {
  return op == AT_OP_CONSTANT || op == AT_OP_IOTA ||
         op == AT_OP_BROADCAST_IN_DIM || op == AT_OP_RESHAPE ||
         op == AT_OP_CONVERT;
}

// Of structure and operands: equal for nodes that are the same.
static uint64_t hash_of(const at_node *n) {
  uint64_t h = at_node_hash(n);
  for (uint32_t i = 0; i < n->num_operands; i++) {
    h = mix(h, n->operands[i].node);
    h = at_hash(h, &n->operands[i].index, sizeof n->operands[i].index);
  }
  return h;
}

// Operands of a commutative op in the order of their nodes' ids.
static void order_operands(at_node *n) {
  if (!at_op_is(n->op, AT_COMMUTES) || n->num_operands != 2) return;
  at_value a = n->operands[0], b = n->operands[1];
  bool a_const = at_const_of(a) != NULL, b_const = at_const_of(b) != NULL;
  bool swap = a_const != b_const ? a_const
                                 : a.node->id > b.node->id ||
                                       (a.node == b.node && a.index > b.index);
  if (!swap) return;
  n->operands[0] = b;
  n->operands[1] = a;
}

// Visits c in order. A node that equals an earlier one is forwarded to it.
// Entries of c leave the table at its end, as regions beside it must not see
// its nodes. `floor`: entries made under another one are out of reach, because
// the region between may not capture.
static at_status walk(at_rw *r, table *t, at_comp *c, uint32_t floor) {
  entry *base = t->top;
  AT_FOR_NODES(n, c) {
    at_fwd_operands(n);
    // Regions of control flow may capture from around them; others start blind.
    bool open = at_is_control(n->op);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(walk(r, t, n->regions[i], open ? floor : ++t->serial));
    if (!n->num_results || !at_is_pure(r->m, n)) continue;
    order_operands(n);
    uint64_t h = hash_of(n);
    entry **bucket = &t->buckets[h & t->mask];
    at_node *found = NULL;
    for (entry *e = *bucket; e && !found; e = e->chain) {
      if (e->hash != h || e->floor != floor) continue;
      // A region repeats what is free instead of capturing it.
      if (e->node->parent != c && is_free(n->op)) continue;
      if (at_node_same(r->m, e->node, n)) found = e->node;
    }
    if (found) {
      for (uint32_t i = 0; i < n->num_results; i++)
        AT_TRY(at_fwd_set(r, n, i, (at_value){found, i}));
      continue;
    }
    entry *e;
    AT_TRY_ALLOC(e, at_new(r->m->arena, entry, 1));
    *e = (entry){*bucket, t->top, n, h, floor};
    *bucket = t->top = e;
  }
  at_fwd_results(c);
  // Leaving the scope: undo in the reverse order of insertion.
  for (; t->top != base; t->top = t->top->below)
    t->buckets[t->top->hash & t->mask] = t->top->chain;
  return AT_OK;
}

// The table has about as many buckets as nodes, so that chains stay short.
at_status at_cse(at_rw *r, size_t num_nodes) {
  table t = {.mask = 63};
  while (t.mask < num_nodes) t.mask = 2 * t.mask + 1;
  AT_TRY_ALLOC(t.buckets, at_new(r->m->arena, entry *, t.mask + 1));
  for (uint32_t f = 0; f < r->m->num_funcs; f++)
    AT_TRY(walk(r, &t, r->m->funcs[f], 0));
  return AT_OK;
}
