#include "control/table.h"

#include <stdlib.h>

#include "base/verify.h"

enum { kFirst = 16, kLooked = 256 };

// Fibonacci hashing: keys are mostly consecutive numbers.
static size_t home_of(const at_table *t, uint64_t key) {
  return (size_t)(key * 0x9e3779b97f4a7c15ull >> 32) & (t->capacity - 1);
}

// Linear probing; there is always a free slot (at_table_put grows at three
// quarters).
static size_t slot_of(const at_table *t, uint64_t key) {
  size_t i = home_of(t, key);
  while (t->slots[i].key && t->slots[i].key != key)
    i = (i + 1) & (t->capacity - 1);
  return i;
}

void *at_table_find(const at_table *t, uint64_t key) {
  return t->count && key ? t->slots[slot_of(t, key)].value : NULL;
}

// The law of the table: as many keys as it counts, at least one free slot, and
// every key where a search from its home finds it. Only of small tables, as it
// takes as long as they are large.
static bool is_table(const at_table *t) {
  size_t n = 0;
  if (t->capacity > kLooked) return true;
  for (size_t i = 0; i < t->capacity; i++) {
    if (!t->slots[i].key) continue;
    n++;
    if (!t->slots[i].value || slot_of(t, t->slots[i].key) != i) return false;
  }
  return n == t->count && (!t->capacity || n < t->capacity);
}

// Doubles it and enters everything anew. False: no memory, and t is as it was.
static bool grow(at_table *t) {
  at_table bigger = {.capacity = t->capacity ? 2 * t->capacity : kFirst};
  bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
  if (!bigger.slots) return false;
  for (size_t i = 0; i < t->capacity; i++)
    if (t->slots[i].key)
      bigger.slots[slot_of(&bigger, t->slots[i].key)] = t->slots[i];
  bigger.count = t->count;
  free(t->slots);
  *t = bigger;
  return true;
}

// A key that is there gets the new value.
bool at_table_put(at_table *t, uint64_t key, void *value) {
  AT_ASSERT(key && value);
  if (t->count * 4 >= t->capacity * 3 && !grow(t)) return false;
  at_table_slot *s = &t->slots[slot_of(t, key)];
  t->count += !s->key;
  *s = (at_table_slot){key, value};
  AT_ASSERT(t->count < t->capacity);
  AT_VERIFY(is_table(t));
  return true;
}

// Removes without tombstones, so that probing stays short: later members of the
// cluster close the gap.
void *at_table_take(at_table *t, uint64_t key) {
  if (!t->count || !key) return NULL;
  size_t mask = t->capacity - 1, hole = slot_of(t, key);
  void *value = t->slots[hole].value;
  if (!value) return NULL;
  // Those behind it move up, where they may lie that far from their home.
  for (size_t i = (hole + 1) & mask; t->slots[i].key; i = (i + 1) & mask) {
    size_t home = home_of(t, t->slots[i].key);
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    t->slots[hole] = t->slots[i];
    hole = i;
  }
  t->slots[hole] = (at_table_slot){0};
  t->count--;
  AT_VERIFY(is_table(t));
  return value;
}

// Slots in the order in which they lie.
at_table_slot *at_table_next(const at_table *t, size_t *at) {
  while (*at < t->capacity)
    if (t->slots[(*at)++].key) return &t->slots[*at - 1];
  return NULL;
}

void at_table_free(at_table *t) {
  free(t->slots);
  *t = (at_table){0};
}
