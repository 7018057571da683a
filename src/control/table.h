// A map from numbers that are not 0 to pointers that are not NULL. One thread
// at a time.
#ifndef ATOLL_CONTROL_TABLE_H_
#define ATOLL_CONTROL_TABLE_H_

#include "base/span.h"

typedef struct at_table_slot {
  uint64_t key;  // 0: free
  void *value;
} at_table_slot;
typedef struct at_table {
  at_table_slot *slots;
  size_t capacity, count;  // capacity: 0, or a power of two
} at_table;

void *at_table_find(const at_table *t, uint64_t key);       // NULL: not there
bool at_table_put(at_table *t, uint64_t key, void *value);  // false: no memory
void *at_table_take(at_table *t, uint64_t key);  // removes it; NULL: not there
void at_table_free(at_table *t);
// The next slot in use from *at on, which goes behind it; NULL: no more.
at_table_slot *at_table_next(const at_table *t, size_t *at);

#endif
