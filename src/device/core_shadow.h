// The checks' picture of a core's memories.
#ifndef ATOLL_DEVICE_CORE_SHADOW_H_
#define ATOLL_DEVICE_CORE_SHADOW_H_

#include "device/core_internal.h"

enum { kVisited = 1, kWritten = 2 };
enum {
  kMaxActors = 64,
  kFetched = 2,
  kFetchedStored = 3,
  kPadding = 4,
  kStoresKept = 64,
  kFetchesKept = 64,
  kSentKept = 256,
  kMistakenKept = 16
};
#define kAdded (1u << 31)  // in `written`: by a copy that adds

// What an access does to memory. Copies that add do not disturb each other.
typedef enum { ACCESS_READS, ACCESS_WRITES, ACCESS_ADDS } access_kind;

// Who touched a granule last, in vector-clock terms: actor + 1 above 24 bits of
// that actor's clock; 0: nobody.
typedef struct cell {
  uint32_t written, read;
  int32_t wrote_at, read_at;  // `loc` of that actor
} cell;
static inline uint32_t epoch_actor(uint32_t epoch) {
  return ((epoch & ~kAdded) >> 24) - 1;
}

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
  int32_t *left_at;   // kNumNotes: 2 + `loc`, 0: nobody; shared as `filled` is
  size_t granule;     // bytes
  size_t count;
  bool borrowed;  // another core's shade of the same memory
} shade;

// A box of memory.
typedef struct area {
  uint8_t *base;
  uint32_t rank, elem_bytes;
  int64_t size[AT_CORE_MAX_RANK], stride[AT_CORE_MAX_RANK];
} area;

// A store not long ago: the bytes from its first to its last.
typedef struct stored {
  const uint8_t *begin, *end;
  int32_t loc;
} stored;

// A copy between its start and the wait for it, seen from one side.
typedef struct flight {
  area box;
  bool writes, adds;
  size_t sem;  // index among the core's semaphores; SIZE_MAX: nobody can wait
  int64_t bytes;  // that the semaphore counts
  int32_t loc;
  uint32_t id;     // among those that `by` sent to other cores; 0: to itself
  core_state *by;  // whose program `loc` is of
} flight;

// A copy to another core. Who knows that it was waited for there may write what
// it read, whether its sender has waited or not.
typedef struct sent {
  area box;  // that it reads
  int32_t loc;
  uint32_t id;
  uint32_t actor, clock;  // who waited for it, and when; clock 0: nobody yet
} sent;

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

struct shadow {
  area expected;  // of the wait that comes next; elem_bytes 0: not known
  int32_t expected_at;
  mistaken mistaken[kMistakenKept];  // in turn
  uint32_t num_mistaken;
  stored stores[kStoresKept];  // in turn
  uint32_t num_stores;
  area fetches[kFetchesKept];  // a pipeline's blocks, the last of each buffer
  uint32_t num_fetches;
  shade *shades;  // per region
  flight *flights;
  uint32_t num_flights, cap_flights;
  sent sent[kSentKept];  // in turn
  uint32_t num_sent;
  uint32_t actor;
  uint32_t clock[kMaxActors];
  uint32_t (*sem_clock)[kMaxActors];  // per semaphore; NULL: one core alone
  visits *visits;                     // per ref
  // Per semaphore: bytes waited for, of copies that are still listed.
  int64_t *waited;
};

// Of a region of c's; NULL: semaphores.
shade *core_shade_of(core_state *c, const region *r);
// `filled` of the box's elements from dimension d on, which begin at `at`.
void shade_mark(const shade *s, const region *r, const area *b, uint32_t d,
                const uint8_t *at, int what);

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

// ---- core_touch.c
typedef struct touch {
  core_state *c;      // who touches
  core_state *owner;  // whose memory it is
  const region *region;
  shade *shade;
  const area *box;
  bool writes, must_be_filled;
  bool adds;               // writes what it adds to what is there
  bool may_be_dropped;     // what is read, by a choice
  bool stores;             // writes by a store
  bool strays;             // and to what does not go back to an array
  bool *fetched;           // only asks whether a pipeline fetched any of it
  bool *written;           // only asks whether any of it was written
  const core_state *over;  // whose copy it was, which ends now
  int32_t loc;
} touch;
// `region` and `shade` are found here.
void touch_box(touch *t);
// "scratch 0 (argument 2), element (3)"
void touch_name_place(const touch *t, size_t granule, char *out, size_t n);
_Noreturn void report_lost_in_pipeline(core_state *c, const shade *s,
                                       const char *when);
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
void blocks_forget(core_state *c, const uint8_t *p, size_t bytes);
// What lies behind the source's array is padding where it comes to.
void blocks_pad(core_state *to, const at_core_dma *d, const area *dst);

// First byte that both boxes hold; NULL: none.
uint8_t *area_overlap(const area *a, const area *b);
area area_of_view(const at_core_view *v);

// A copy that nobody has waited for and that the box meets: one that writes it,
// or, if the box is written, any.
bool flights_find(core_state *c, const area *box, access_kind kind,
                  flight *out);
// Fails if there is one.
void flights_check(core_state *c, const area *box, access_kind kind,
                   int32_t loc, const char *what);
// The same for copies that other cores wait for, or that they started.
void flights_check_others(core_state *c, const area *box, access_kind kind,
                          int32_t loc, const char *what);
// Fails if a block of an output still goes back to memory of the box.
void departures_check(core_state *c, const area *box, int32_t loc,
                      const char *what);
// The latest copy that c sent with this id, or from this place out of memory
// that meets the box; NULL: not known any more.
const sent *sent_find(const core_state *c, uint32_t id);
const sent *sent_from(const core_state *c, int32_t loc, const area *box);
// Does c know that it arrived?
bool sent_arrived(const core_state *c, const sent *x);
// A copy that `f->by` started, seen by the core that owns the memory. sem: an
// address of the starter, NULL: nobody can wait.
void flights_add(core_state *owner, const flight *f, const void *sem);
// Under the group's lock.
void flights_waited(core_state *c, const sem *s, int64_t amount);
// Bytes from the first to behind the last.
int64_t area_extent(const area *a);
// The oldest copy that the waits for its semaphore do not cover; NULL: none.
const flight *flights_left(const core_state *c, size_t sem_index);
// c is about to wait for a copy to (or, of what it sent, from) this box.
void flights_expect(core_state *c, const area *box, int32_t loc);
// "", or a hint: a wait for this byte took what another copy signalled.
void flights_hint(const core_state *c, const uint8_t *at, char *out, size_t n);
void flights_forget(core_state *c, const uint8_t *p, size_t bytes);
// c waited for the copy: that is when it touched its memory, for other cores.
// Under the group's lock.
void core_shadow_over(core_state *c, const flight *f);
// A copy out of this memory is over, and with it the block's use.
void core_shadow_retire(core_state *c, const area *box);
// Is it in a part of emit_pipeline that fetches blocks, or takes them back?
bool core_shadow_fetches(const core_state *c);
bool core_shadow_retires(const core_state *c);

#endif
