// What may come before what in a computation; shared by the passes that
// reorder.
#ifndef ATOLL_SCHEDULE_ORDER_H_
#define ATOLL_SCHEDULE_ORDER_H_

#include "schedule/schedule.h"

// A node with its edges. Numbers are places in at_ordering.items.
typedef struct at_order_item {
  at_node *node;
  uint32_t waits;        // operands and effects not yet placed
  const uint32_t *deps;  // items whose results it reads, each once
  uint32_t num_deps;
  uint32_t *users;  // items that wait for this one
  uint32_t num_users;
  int64_t result_bytes;
} at_order_item;

typedef struct at_ordering {
  at_arena *arena;
  at_order_item *items;  // in the order of the computation
  uint32_t count;
  at_map index;    // node -> item + 1
  uint32_t *uses;  // per item: users that still need its results
} at_ordering;

// Fills in all but the arena. Effects and collectives keep their order; so do
// nodes that are `apart` (NULL: none), among themselves only.
// RESOURCE_EXHAUSTED, too: the values take more bytes than int64 counts.
at_status at_ordering_build(at_ordering *o, at_comp *c,
                            bool (*apart)(const at_node *));

#endif
