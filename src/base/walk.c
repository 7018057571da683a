// The walk's stack holds indices of entries. Items that a step adds are pushed
// in order and turned round before the next step, so that the first comes up
// first. A hash table finds an item's entry; its slots carry an epoch, so that
// clearing costs nothing.
#include "base/walk.h"

#include <stdatomic.h>

enum { kFewest = 16 };
static const uint32_t kLeave = 1u
                               << 31;  // beside an entry's index in the stack

// Of an item: to be visited; entered, with items below still to come; done.
typedef enum state { kWaits, kInside, kLeft } state;

// An item that was added, and its result.
struct at_walk_entry {
  const void *item;
  uint32_t tag;
  state state;
  at_walk_value value;
};

// A place of the hash table; of another epoch: empty.
struct at_walk_slot {
  uint32_t epoch, entry;
};

static _Atomic uint64_t all_visits;

uint64_t at_walk_visits(void) {
  return atomic_load_explicit(&all_visits, memory_order_relaxed);
}

// Tags of one item must not collide with neighbouring pointers.
static size_t hash(const void *item, uint32_t tag) {
  uint64_t h = (uint64_t)(uintptr_t)item + tag * 0x9e3779b97f4a7c15ull;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  return (size_t)(h ^ h >> 32);
}

// The slot of an item: its own, or the empty one where it would be.
static struct at_walk_slot *slot_of(const at_walk *w, const void *item,
                                    uint32_t tag) {
  AT_ASSERT(w->num_slots);
  for (size_t i = hash(item, tag);; i++) {
    struct at_walk_slot *s = &w->slots[i & (w->num_slots - 1)];
    if (s->epoch != w->epoch) return s;
    const struct at_walk_entry *e = &w->entries.ptr[s->entry];
    if (e->item == item && e->tag == tag) return s;
  }
}

// Doubles the table; at most half of it is ever taken. Entries keep their
// numbers.
static bool grow(at_walk *w) {
  size_t n = w->num_slots ? w->num_slots * 2 : kFewest;
  if (w->entries.len >= kLeave / 2) return false;
  struct at_walk_slot *slots = at_new(w->arena, struct at_walk_slot, n);
  if (!slots) return false;
  w->slots = slots;
  w->num_slots = n;
  for (size_t i = 0; i < w->entries.len; i++) {
    const struct at_walk_entry *e = &w->entries.ptr[i];
    *slot_of(w, e->item, e->tag) = (struct at_walk_slot){w->epoch, (uint32_t)i};
  }
  return true;
}

// out: the item's entry, made where there was none.
static bool entry_of(at_walk *w, const void *item, uint32_t tag,
                     uint32_t *out) {
  if (w->entries.len >= w->num_slots / 2 && !grow(w)) return false;
  struct at_walk_slot *s = slot_of(w, item, tag);
  if (s->epoch != w->epoch) {
    if (!at_vec_push(w->arena, &w->entries,
                     (struct at_walk_entry){.item = item, .tag = tag}))
      return false;
    *s = (struct at_walk_slot){w->epoch, (uint32_t)w->entries.len - 1};
  }
  *out = s->entry;
  return true;
}

// An item that is in the stack already may be added again: the second one is
// passed over when it comes up.
void at_walk_add(at_walk *w, const void *item, uint32_t tag) {
  uint32_t e;
  if (w->failed) return;
  if (!entry_of(w, item, tag, &e)) {
    w->failed = true;
    return;
  }
  if (w->entries.ptr[e].state != kWaits) return;
  w->failed = !at_vec_push(w->arena, &w->stack, e);
}

// What the last step added stands in the stack so that its first is on top.
static void turn_added(at_walk *w) {
  AT_ASSERT(w->added <= w->stack.len);
  for (size_t a = w->added, b = w->stack.len; a + 1 < b; a++) {
    uint32_t x = w->stack.ptr[a];
    w->stack.ptr[a] = w->stack.ptr[--b];
    w->stack.ptr[b] = x;
  }
}

// With `both`, an item that is entered goes back onto the stack, marked, below
// what it adds: it comes up again when all that has been left.
static bool next(at_walk *w, at_walk_step *s, bool both) {
  turn_added(w);
  while (!w->failed && w->stack.len) {
    uint32_t top = w->stack.ptr[--w->stack.len];
    struct at_walk_entry *e = &w->entries.ptr[top & ~kLeave];
    bool leaving = (top & kLeave) != 0;
    if (!leaving && e->state != kWaits) continue;  // by another path, meanwhile
    e->state = leaving || !both ? kLeft : kInside;
    *s = (at_walk_step){e->item, e->tag, leaving, top & ~kLeave};
    if (!leaving) {
      w->visits++;
      atomic_fetch_add_explicit(&all_visits, 1, memory_order_relaxed);
      if (both) w->stack.ptr[w->stack.len++] = top | kLeave;
    }
    w->added = w->stack.len;
    return true;
  }
  w->added = w->stack.len;
  return false;
}

bool at_walk_next(at_walk *w, at_walk_step *s) { return next(w, s, false); }
bool at_walk_next_both(at_walk *w, at_walk_step *s) { return next(w, s, true); }

// Items that were entered but not left can be visited again.
void at_walk_stop(at_walk *w) {
  for (size_t i = 0; i < w->stack.len; i++) {
    struct at_walk_entry *e = &w->entries.ptr[w->stack.ptr[i] & ~kLeave];
    if (e->state == kInside) e->state = kWaits;
  }
  w->stack.len = w->added = 0;
}

// A new epoch empties the table without touching it.
void at_walk_clear(at_walk *w) {
  w->stack.len = w->added = w->entries.len = 0;
  if (!++w->epoch && w->slots) {  // the numbers have come round
    memset(w->slots, 0, w->num_slots * sizeof *w->slots);
    w->epoch = 1;
  }
}

void at_walk_set(at_walk *w, const at_walk_step *s, at_walk_value v) {
  AT_ASSERT(s->entry < w->entries.len);
  w->entries.ptr[s->entry].value = v;
}

// Only of items that have been left: others have no result yet.
const at_walk_value *at_walk_get(const at_walk *w, const void *item,
                                 uint32_t tag) {
  if (!w->num_slots) return NULL;
  const struct at_walk_slot *s = slot_of(w, item, tag);
  if (s->epoch != w->epoch) return NULL;
  const struct at_walk_entry *e = &w->entries.ptr[s->entry];
  return e->state == kLeft ? &e->value : NULL;
}

at_status at_walk_status(const at_walk *w) {
  return w->failed ? AT_NO_MEMORY("a walk over the program") : AT_OK;
}
