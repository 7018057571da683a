// A walk over a graph whose paths may join: every item is visited once, however
// many paths lead to it, and nothing recurses, so that the work grows with the
// graph and depth costs no C stack. An item is a pointer and a tag: the tag is
// what else its result depends on (a flag carried down, the index of a result).
//
// Each item once, depth first, in the order in which the items were added:
//   at_walk w = at_walk_in(arena);
//   at_walk_add(&w, root, 0);
//   for (at_walk_step s; at_walk_next(&w, &s);)
//     for (each operand o of s.item) at_walk_add(&w, o, 0);
//   AT_TRY(at_walk_status(&w));
//
// With a result for each item, made from those of the items below it:
//   for (at_walk_step s; at_walk_next_both(&w, &s);)
//     if (!s.leaving)
//       for (each operand o) at_walk_add(&w, o, 0);
//     else
//       at_walk_set(&w, &s, (at_walk_value){.i = ...at_walk_get(&w, o, 0)...});
//
// The walk may go on: later roots reuse what earlier ones left, as long as the
// graph below is the same. Otherwise at_walk_clear. Single-threaded; memory is
// the arena's.
#ifndef ATOLL_BASE_WALK_H_
#define ATOLL_BASE_WALK_H_

#include "base/arena.h"
#include "base/status.h"

// The result of an item: a number or a pointer, as the caller likes.
typedef union at_walk_value {
  int64_t i;
  const void *p;
} at_walk_value;

// Where the walk is.
typedef struct at_walk_step {
  const void *item;
  uint32_t tag;
  bool leaving;    // everything that was added on the way in has been left
  uint32_t entry;  // for at_walk_set
} at_walk_step;

struct at_walk_entry;  // walk.c
struct at_walk_slot;
typedef struct at_walk {
  at_arena *arena;
  AT_VEC(struct at_walk_entry)
  entries;  // in the order of their first at_walk_add
  AT_VEC(uint32_t) stack;
  struct at_walk_slot *slots;
  size_t num_slots;
  size_t added;     // the stack's part that the last step has added
  uint32_t epoch;   // slots of others are empty
  bool failed;      // the arena refused
  uint64_t visits;  // steps on the way in, since at_walk_in
} at_walk;

// A walk that has visited nothing. Its memory is a's.
static inline at_walk at_walk_in(at_arena *a) {
  return (at_walk){.arena = a, .epoch = 1};
}
// To be visited unless it was. Items that one step adds are visited in this
// order, before what earlier steps added. An item that the walk is still inside
// of (a cycle) is not entered again.
void at_walk_add(at_walk *w, const void *item, uint32_t tag);
// The next item on its way in; false: none is left, or the arena refused. Stop
// early with at_walk_stop when the walk is to go on with other roots.
bool at_walk_next(at_walk *w, at_walk_step *s);
// The same, and every item a second time when all below it has been left. One
// walk uses one of the two.
bool at_walk_next_both(at_walk *w, at_walk_step *s);
// Forgets what is still to be visited; what was left stays. Items that the walk
// was inside of count as never added.
void at_walk_stop(at_walk *w);
// Forgets everything but the memory; costs nothing.
void at_walk_clear(at_walk *w);

// The result of an item, in the step that leaves it (at_walk_next: that visits
// it), for at_walk_get by those above. `s` is the step as the walk gave it.
void at_walk_set(at_walk *w, const at_walk_step *s, at_walk_value v);
// The result of an item that has been left (at_walk_next: that was visited),
// zero unless at_walk_set; NULL: it has not. Valid until the next at_walk_add.
const at_walk_value *at_walk_get(const at_walk *w, const void *item,
                                 uint32_t tag);

// RESOURCE_EXHAUSTED when the arena refused: the walk is then incomplete.
at_status at_walk_status(const at_walk *w);

// Visits of all walks of this process so far. Any thread; for tests of how work
// grows with the program.
uint64_t at_walk_visits(void);

#endif
