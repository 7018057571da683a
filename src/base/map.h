// A hash map from 64-bit keys or byte strings to pointers, in an arena. Open
// addressing; insertion order is kept for iteration, so output is
// deterministic.
//
// Errors: none but NULL for want of memory, which the arena remembers
// (at_arena_status).
// Threads: one at a time while it changes; lookups may go on side by side.
#ifndef ATOLL_BASE_MAP_H_
#define ATOLL_BASE_MAP_H_

#include "base/arena.h"

// An entry, in the order of insertion: for (i < m.len) m.entries[i].
typedef struct at_map_entry {
  uint64_t hash;
  at_str key;  // borrowed: must outlive the map (copy it into the arena first)
  void *value;
} at_map_entry;

// Zeroed but for the arena it is an empty map. Copies share what is there and
// must not both grow.
typedef struct at_map {
  at_arena *arena;
  at_map_entry *entries;  // len entries, in insertion order
  uint32_t *slots;        // cap slots, index + 1; 0 = empty
  size_t len, cap;
} at_map;

// An empty map; no memory is taken before the first insertion.
static inline at_map at_map_in(at_arena *a) { return (at_map){.arena = a}; }
// The value's place, or NULL. The place stays valid until the next insertion.
void **at_map_find(const at_map *m, at_str key);
// The value's place, inserted as NULL when absent; NULL: the arena refused.
void **at_map_put(at_map *m, at_str key);
// Pointer keys: the pointer's own bits.
// Such keys never equal string keys, and both may be in one map.
void **at_map_find_ptr(const at_map *m, const void *key);
// The value's place, inserted as NULL when absent; NULL: the arena refused.
void **at_map_put_ptr(at_map *m, const void *key);

#endif
