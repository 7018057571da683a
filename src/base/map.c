// Open addressing with linear probing over slots of 32-bit indices; the entries
// themselves stand in a list, in the order in which they came. Nothing is ever
// removed. Growth leaves the old arrays in the arena.
#include "base/map.h"

// Spreads a hash over all bits: slots are chosen by the lowest.
static uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  return h ^ (h >> 32);
}

// FNV-1a, then mixed.
static uint64_t hash_str(at_str key) {
  return mix(at_hash(AT_HASH_SEED, key.ptr, key.len));
}

// Pointer keys carry len SIZE_MAX, which no string has.
static at_str ptr_key(const void *p) {
  return (at_str){(const char *)p, SIZE_MAX};
}
// The pointer's bits, mixed: alignment leaves its lowest at zero.
static uint64_t hash_ptr(const void *p) { return mix((uint64_t)(uintptr_t)p); }

// Keys of pointers carry a length that no text has.
static bool same(at_str a, at_str b) {
  if (a.len != b.len) return false;
  if (a.len == SIZE_MAX) return a.ptr == b.ptr;
  return a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0;
}

// Linear probing: an empty slot ends the search, and there is always one.
static void **find(const at_map *m, uint64_t hash, at_str key) {
  if (!m->cap) return NULL;
  for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
    uint32_t at = m->slots[i];
    if (!at) return NULL;
    at_map_entry *e = &m->entries[at - 1];
    if (e->hash == hash && same(e->key, key)) return &e->value;
  }
}

// Doubles the table; at most half of the slots are ever taken, so a search
// ends.
static bool grow(at_map *m) {
  size_t cap = m->cap ? m->cap * 2 : 16;
  uint32_t *slots = at_new(m->arena, uint32_t, cap);
  at_map_entry *entries = at_new(m->arena, at_map_entry, cap / 2);
  if (!slots || !entries || cap > UINT32_MAX) return false;
  if (m->len) memcpy(entries, m->entries, m->len * sizeof *entries);
  for (size_t e = 0; e < m->len; e++) {
    size_t i = entries[e].hash & (cap - 1);
    while (slots[i]) i = (i + 1) & (cap - 1);
    slots[i] = (uint32_t)e + 1;
  }
  m->slots = slots;
  m->entries = entries;
  m->cap = cap;
  return true;
}

// The entry goes to the end of the list, so that the order of insertion is that
// of iteration.
static void **put(at_map *m, uint64_t hash, at_str key) {
  void **have = find(m, hash, key);
  if (have) return have;
  if (m->len >= m->cap / 2 && !grow(m)) return NULL;
  size_t i = hash & (m->cap - 1);
  while (m->slots[i]) i = (i + 1) & (m->cap - 1);
  AT_ASSERT(m->len < m->cap / 2);
  m->entries[m->len] = (at_map_entry){hash, key, NULL};
  m->slots[i] = (uint32_t)++m->len;
  return &m->entries[m->len - 1].value;
}

void **at_map_find(const at_map *m, at_str key) {
  return find(m, hash_str(key), key);
}
void **at_map_put(at_map *m, at_str key) { return put(m, hash_str(key), key); }
void **at_map_find_ptr(const at_map *m, const void *key) {
  return find(m, hash_ptr(key), ptr_key(key));
}
void **at_map_put_ptr(at_map *m, const void *key) {
  return put(m, hash_ptr(key), ptr_key(key));
}
