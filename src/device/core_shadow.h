// The checks' picture of a core's memories.
#ifndef ATOLL_DEVICE_CORE_SHADOW_H_
#define ATOLL_DEVICE_CORE_SHADOW_H_

#include "device/core_internal.h"

// Bits of `visits`, values of shade.filled.
enum { kVisited = 1, kWritten = 2 };
enum { kFetched = 2, kFetchedStored = 3, kPadding = 4, kActorsOfPage = 64 };

// What an access does to memory. Copies that add do not disturb each other.
typedef enum { ACCESS_READS, ACCESS_WRITES, ACCESS_ADDS } access_kind;

// A vector clock: per actor its time when it was last heard of, 0: never.
typedef struct clock_page {
  uint64_t time[kActorsOfPage];
} clock_page;
typedef struct actor_clock {
  clock_page **pages;  // NULL: nobody of them was heard of
  uint32_t num_pages;
} actor_clock;

// Who touched granules, when and where.
// An entry of the table of marks; a list hangs together by `next`, 0 ends it.
struct mark {
  uint64_t time;  // of `actor`
  uint32_t actor;
  uint32_t by;  // the actor whose program `loc` is of
  int32_t loc;
  uint32_t sent;  // by this copy to another core, 0: by no such
  uint32_t next;  // another, neither of whom knows of the other; 0: none
  uint32_t uses;  // by granules and marks
  bool adds;      // by a copy that adds
  bool underway;  // by a copy that nobody has waited for
};

// A copy to another core. Who knows that it was waited for there may write what
// it read, whether its sender has waited or not.
struct sent {
  uint64_t time;   // when it was waited for, 0: not yet
  uint32_t actor;  // by whom
  uint32_t uses;   // by marks and flights; 0: the next field counts
  uint32_t next_free;
};

// Who touched a granule: lists of marks, 0: nobody.
typedef struct cell {
  uint32_t written, read;
} cell;

// Who may have left elements of an output unwritten: the last copy into it, and
// the last store to what such a copy brought incomplete.
typedef enum note { kCopied, kIncomplete, kNumNotes } note;

// What is known of a region, per granule.
typedef struct shade {
  // 1: holds a value, kFetched: of a pipeline's block, kFetchedStored: stored
  // over it and not read yet, kPadding: of a window, beyond its array's edge.
  uint8_t *filled;
  int32_t stored_at;  // 2 + `loc` of the last such store, 0: none so far
  cell *cells;        // NULL: one core alone
  int32_t *strays;    // of an input's block: 2 + `loc` of a store whose value
                      // nobody has read yet, else 0; NULL: no such store so far
  int32_t left_at[kNumNotes];  // 2 + `loc`, 0: nobody
  int32_t *stores;  // 2 + `loc` of the last store to it, else 0; NULL: none
                    // so far
  // Of scratch, where steps of parallel indices are held apart: not 0 for what
  // one of an earlier index left. NULL: nothing so far.
  uint8_t *carried;
  size_t granule;  // bytes
  size_t count;
  bool changed;  // since that was done last
  bool foreign;  // other cores copy to it
} shade;

// A box of memory.
// Strides are in bytes.
typedef struct area {
  uint8_t *base;
  uint32_t rank, elem_bytes;
  int64_t size[AT_CORE_MAX_RANK], stride[AT_CORE_MAX_RANK];
} area;

// A copy between its start and the wait for it, seen from one side.
typedef struct flight {
  area box;
  bool writes, adds;
  size_t sem;  // index among the core's semaphores; SIZE_MAX: nobody can wait
  int64_t bytes;  // that the semaphore counts
  int32_t loc;
  uint32_t id;     // of its `sent`, of which it has a use; 0: to its own core
  core_state *by;  // whose program `loc` is of
  // The receiver's time that the starter knew of when it started the copy.
  uint64_t knows;
} flight;

// What another core's copy brought, since it was waited for and until the
// memory is accessed.
typedef struct landing {
  area box;
  size_t sem;  // that the wait was for
  int32_t loc;
  core_state *by;  // whose program `loc` is of
} landing;

// Waits for copies of other cores, by one semaphore.
typedef struct arrivals {
  uint64_t waited_at;  // the core's time at the last wait; 0: none
  // That time when the core last accessed what such a copy had brought, and
  // where it did; 0: never.
  uint64_t relied_at;
  int32_t relied_loc;
  landing relied_on;
} arrivals;

// A wait for a copy to `box` that the copy of `f` satisfied.
typedef struct mistaken {
  area box;
  int32_t loc;
  flight f;
} mistaken;

// What was done with the blocks of an output: kVisited, kWritten.
typedef struct visits {
  uint8_t *blocks;  // NULL: none came yet
  uint8_t before;   // of the block in the buffer, when it came
} visits;

// What the checks know of a core. Of its thread, but for flights and marks,
// which are under the group's lock.
struct shadow {
  area expected;  // of the wait that comes next; elem_bytes 0: not known
  int32_t expected_at;
  mistaken *mistaken;
  uint32_t num_mistaken, cap_mistaken;
  bool apart;      // steps of different parallel indices are held apart
  int64_t index;   // of this step
  bool new_index;  // the step before had another
  uint64_t num_stores;
  uint64_t *last_store;  // per 2 + `loc`: the number of the last there
  area *fetches;         // a pipeline's blocks, the last of each buffer
  uint32_t num_fetches, cap_fetches;
  shade **shades;  // per region; NULL: not yet, or semaphores
  shade *own;      // those that are no other core's, which has the same memory
  flight *flights;
  uint32_t num_flights, cap_flights;
  marks own_marks;         // of a core that runs alone
  uint64_t now;            // its own time: 1 and more
  actor_clock known;       // of other actors
  actor_clock *sem_clock;  // per semaphore; NULL: one core alone
  arrivals *arrivals;      // per semaphore; NULL: no copy was waited for yet
  landing *landings;       // by address
  uint32_t num_landings, cap_landings;
  int64_t most_landed;  // bytes from the first to behind the last of any
  visits *visits;       // per ref
  // Per semaphore: bytes waited for, of copies that are still listed.
  int64_t *waited;
};

// Of a region of c's; NULL: semaphores.
shade *core_shade_of(core_state *c, const region *r);
// `filled` of the box's elements from dimension d on, which begin at `at`.
void shade_mark(const shade *s, const region *r, const area *b, uint32_t d,
                const uint8_t *at, int what);

// Does the launch look for any of these?
static inline bool core_checks(const core_state *c, uint32_t what) {
  return c->launch->checks & what;
}
// Zeroed memory; the caller frees. Stops the kernel if there is none.
void *core_shadow_take(core_state *c, size_t n, size_t bytes);
// Room for one more than n elements; the list, which may have moved. Stops the
// kernel if there is none: then the list is as it was.
void *core_shadow_grow(core_state *c, void *list, uint32_t n, uint32_t *cap,
                       size_t bytes);
// Does the region hold values before the kernel begins?
bool shade_starts_filled(const core_state *c, const region *r);

// ---- core_clock.c
// 0: never heard of it.
uint64_t clock_of(const actor_clock *k, uint32_t actor);
// Both stop c if there is no memory.
void clock_raise(core_state *c, actor_clock *k, uint32_t actor, uint64_t time);
// `into` knows afterwards what either knew. Stops c without memory.
void clock_join(core_state *c, actor_clock *into, const actor_clock *from);
// An empty clock is allowed.
void clock_free(actor_clock *k);

// ---- core_marks.c: all under the group's lock; they stop c if there is no
// memory
marks *core_marks(core_state *c);
// A list of one more; takes the caller's use of `rest`, gives one of the list.
uint32_t marks_put(core_state *c, mark new, uint32_t rest);
// Uses are counted; the last one frees the mark and lets go of the rest. List 0
// has none.
void marks_hold(marks *m, uint32_t list, uint32_t uses);
// Takes off as many uses, which must be there.
void marks_drop(marks *m, uint32_t list, uint32_t uses);
// The list with the mark `own`, which is of c now, and without those that it
// makes superfluous; the caller has a use of it.
uint32_t marks_with(core_state *c, uint32_t own, uint32_t list);
// The list after c has waited for the copy, which is when the copy touched its
// memory for other cores; the caller has a use of it.
uint32_t marks_dated(core_state *c, const flight *f, uint32_t list);
// Does c know that it is over? Never of another core's copy that nobody has
// waited for.
bool mark_is_before(const core_state *c, const mark *k);
// A copy to another core begins; the caller has a use of its number.
uint32_t sent_new(core_state *c);
// One use more, one less; 0 is no copy.
void sent_hold(marks *m, uint32_t sent);
void sent_drop(marks *m, uint32_t sent);
// Does c know that it arrived?
bool sent_arrived(core_state *c, uint32_t sent);

// ---- core_parallel.c
// Do its steps stand for those of several cores, as a parallel dimension may be
// shared?
bool parallel_apart(const core_state *c);
// Is the region one that such cores share and may write?
bool parallel_shares(const core_state *c, const region *r);
// The block of an output's window is that of the step before: fails if that
// step was of another index.
void parallel_window_stays(core_state *c, uint32_t ref);
// "dimension 0 of the grid, which is declared parallel"
void parallel_text(const core_state *c, char *out, size_t n);

// ---- core_touch.c
// An access on its way through the granules of a box. Zero fields mean "no":
// callers fill in what applies.
typedef struct touch {
  core_state *c;      // who touches
  core_state *owner;  // whose memory it is
  const region *region;
  shade *shade;
  const area *box;
  bool writes, must_be_filled;
  bool adds;            // writes what it adds to what is there
  bool may_be_dropped;  // what is read, by a choice
  bool stores;          // writes by a store
  bool strays;          // and to what does not go back to an array
  bool *fetched;        // only asks whether a pipeline fetched any of it
  bool *written;        // only asks whether any of it was written
  int32_t *stored;      // only asks where it was last stored to: 2 + `loc`
  const flight *over;   // the copy that touched it, which ends now
  int32_t loc;
  bool underway;  // by a copy that starts now
  uint32_t sent;  // to another core; 0: not
  // Marks of this touch, each with a use: its own, and what the granules that
  // were seen last became. 0: none yet.
  uint32_t own;
  cell from, to;
} touch;
// `region` and `shade` are found here.
void touch_box(touch *t);
// "scratch 0 (argument 2), element (3)"
void touch_name_place(const touch *t, size_t granule, char *out, size_t n);
// `loc` of the last store to the box, -2: nobody knows.
int32_t touch_last_store(core_state *c, const area *box);
// A store to a block that emit_pipeline fetched, which nobody read; `when` ends
// the sentence.
_Noreturn void report_lost_in_pipeline(core_state *c, const shade *s,
                                       const char *when);
// A run of bytes, and what a view of generated code covers.
area area_of_bytes(uint8_t *p, size_t bytes);

// ---- core_access.c
// A copy may move bytes that nobody has written: they stay so. True: some are.
bool copy_filled(core_state *c, core_state *to, const at_core_dma *d,
                 void *dst);

// ---- core_visit.c
// A store to a block of an output.
void visits_stored(core_state *c, const region *r, int32_t loc);
// copied: the last copy to it, where that is known.
_Noreturn void report_poison(core_state *c, uint32_t i, int32_t copied);

// ---- core_end.c
// Fails if a store to an input's block was not read.
void no_strays(core_state *c, const region *r, const char *when);

// ---- core_blocks.c
// A block comes into a buffer: what is left there of the one before it is
// padding, if the new one is smaller.
void blocks_note_fetch(core_state *c, const area *box);
// Fetches into memory that is given back.
void blocks_forget(core_state *c, const uint8_t *p, size_t bytes);
// What lies behind the source's array is padding where it comes to.
void blocks_pad(core_state *to, const at_core_dma *d, const area *dst);

// First byte that both boxes hold; NULL: none.
uint8_t *area_overlap(const area *a, const area *b);
// Borrows nothing.
area area_of_view(const at_core_view *v);

// A copy that nobody has waited for and that the box meets: one that writes it,
// or, if the box is written, any.
bool flights_find(core_state *c, const area *box, access_kind kind,
                  flight *out);
// Fails if there is one.
void flights_check(core_state *c, const area *box, access_kind kind,
                   int32_t loc, const char *what);
// The same for copies that other cores wait for, or that they started; the box
// is of the memories of `owner`'s device.
void flights_check_others(core_state *c, core_state *owner, const area *box,
                          access_kind kind, int32_t loc, const char *what);
// Fails if a block of an output still goes back to memory of the box.
void departures_check(core_state *c, const area *box, int32_t loc,
                      const char *what);
// A copy that `f->by` started, seen by the core that owns the memory. sem: an
// address of the starter, NULL: nobody can wait.
void flights_add(core_state *owner, const flight *f, const void *sem);
// Under the group's lock.
void flights_waited(core_state *c, const sem *s, int64_t amount);
// ---- core_arrival.c: all under the group's lock
// c's wait for a semaphore was satisfied.
void arrivals_waited(core_state *c, size_t sem);
// With it the copy of `f` is over: what it brought is there.
void arrivals_landed(core_state *c, size_t sem, const flight *f);
// c accesses the box, at `loc`: fails if a wait that the access relies on may
// have been satisfied by another copy that is on its way.
void arrivals_access(core_state *c, const area *box, int32_t loc);
// A copy of another core to c's memory begins: fails if nothing orders it after
// a wait that c relied on and that it could have satisfied.
void arrivals_begin(core_state *c, const flight *f);
void arrivals_forget(core_state *c, const uint8_t *p, size_t bytes);

// Bytes from the first to behind the last.
int64_t area_extent(const area *a);
// The oldest copy that the waits for its semaphore do not cover; NULL: none.
const flight *flights_left(const core_state *c, size_t sem_index);
// c is about to wait for a copy to (or, of what it sent, from) this box.
void flights_expect(core_state *c, const area *box, int32_t loc);
// A wait for a copy to memory that has the byte `at`, which another copy
// satisfied; NULL: none.
const mistaken *flights_mistaken(const core_state *c, const uint8_t *at);
// "", or a hint: a wait for this byte took what another copy signalled.
void flights_hint(const core_state *c, const uint8_t *at, char *out, size_t n);
// Drops hints about copies to memory that is given back.
void flights_forget(core_state *c, const uint8_t *p, size_t bytes);
// c waited for the copy: that is when it touched its memory, for other cores.
// Under the group's lock.
void core_shadow_over(core_state *c, const flight *f);
// A copy out of this memory is over, and with it the block's use.
void core_shadow_retire(core_state *c, const area *box);
// Is it in a part of emit_pipeline that fetches blocks, or takes them back?
bool core_shadow_fetches(const core_state *c);
// Does emit_pipeline wait for a copy out just now? The block may not be read
// after that.
bool core_shadow_retires(const core_state *c);

#endif
