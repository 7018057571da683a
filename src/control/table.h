// A map from numbers that are not 0 to pointers that are not NULL. One thread
// at a time.
#ifndef ATOLL_CONTROL_TABLE_H_
#define ATOLL_CONTROL_TABLE_H_

#include "base/span.h"

// A key and what it stands for.
typedef struct at_table_slot {
  uint64_t key;  // 0: free
  void *value;
} at_table_slot;
// Open addressing; all zero is an empty table. It owns its slots, not the
// values.
typedef struct at_table {
  at_table_slot *slots;
  size_t capacity, count;  // capacity: 0, or a power of two
} at_table;

// Key 0 is never there.
void *at_table_find(const at_table *t, uint64_t key);  // NULL: not there
// Replaces what the key had. On failure t is unchanged.
bool at_table_put(at_table *t, uint64_t key, void *value);  // false: no memory
void *at_table_take(at_table *t, uint64_t key);  // removes it; NULL: not there
// t is empty afterwards, and may be used again.
void at_table_free(at_table *t);
// The next slot in use from *at on, which goes behind it; NULL: no more.
// *at begins at 0. Order means nothing, and a put or take in between ends the
// walk.
at_table_slot *at_table_next(const at_table *t, size_t *at);

#endif
