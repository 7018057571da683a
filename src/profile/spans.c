// Rings of one writer and one reader each. A thread owns one from its first
// span to its end, when the ring goes to the next thread that asks. There are
// kRings of them; a thread that finds none drops its spans, which are counted
// as homeless. `head` and `tail` only grow, so that head - tail is how many
// spans wait and a ring is full at kSpans; a span's place is its number modulo
// kSpans. The owner publishes a span by a release store of head, and the reader
// gives its place back by one of tail: neither ever waits for the other.
#include "profile/spans.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

// 50 MB of address space, of which only what is written takes memory.
enum { kRings = 64, kSpans = 8192 };

// Writer's and reader's counters lie in lines of their own.
typedef struct ring {
  _Atomic bool owned;
  _Alignas(64) _Atomic uint64_t head;  // written so far; the owner's
  _Atomic uint64_t dropped;
  _Alignas(64) _Atomic uint64_t tail;  // taken so far; the reader's
  at_profile_span spans[kSpans];
} ring;

_Atomic bool at_spans_are_on;
static _Atomic(ring *) rings;  // mapped once; pages come as they are written
static _Atomic uint64_t homeless;  // dropped, as there was no ring
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t owner;
static _Thread_local ring *mine;

// A destructor of the thread's key: the ring may go to another thread, its
// spans stay.
static void leave(void *r) {
  mine = NULL;  // destructors that run later may record, too
  atomic_store(&((ring *)r)->owned, false);
}

// The first ring that nobody owns; NULL: all are taken.
static ring *claim(void) {
  ring *all = atomic_load(&rings);
  for (uint32_t i = 0; i < kRings; i++) {
    bool free = false;
    if (!atomic_compare_exchange_strong(&all[i].owned, &free, true)) continue;
    if (!pthread_setspecific(owner, &all[i])) return &all[i];
    atomic_store(&all[i].owned, false);
    return NULL;
  }
  return NULL;
}

// The place is written first and published by the store of head.
void at_span_record(const at_profile_span *s, const char *name) {
  if (!at_spans_on()) return;
  ring *r = mine ? mine : (mine = claim());
  if (!r) {
    atomic_fetch_add_explicit(&homeless, 1, memory_order_relaxed);
    return;
  }
  AT_ASSERT(atomic_load_explicit(&r->owned, memory_order_relaxed));
  uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
  if (head - atomic_load_explicit(&r->tail, memory_order_acquire) >= kSpans) {
    atomic_fetch_add_explicit(&r->dropped, 1, memory_order_relaxed);
    return;
  }
  at_profile_span *to = &r->spans[head % kSpans];
  *to = *s;
  AT_ASSERT(s->kind && s->kind < AT_SPAN_KINDS);
  if (s->kind <= AT_SPAN_TAKE)
    to->lane =
        (uint32_t)(r - atomic_load_explicit(&rings, memory_order_relaxed));
  // Zeros behind the name: spans go over the wire byte by byte.
  size_t n = strnlen(name, AT_SPAN_NAME - 1);
  memcpy(to->name, name, n);
  memset(to->name + n, 0, AT_SPAN_NAME - n);
  atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

// Rings are never unmapped: threads may still hold one.
static at_status map_rings(void) {
  if (atomic_load(&rings)) return AT_OK;
  void *p = mmap(NULL, kRings * sizeof(ring), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to record a trace");
  if (pthread_key_create(&owner, leave)) {
    munmap(p, kRings * sizeof(ring));
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no key to record a trace");
  }
  atomic_store(&rings, p);
  return AT_OK;
}

// What is left of the time before does not belong to this one.
static void forget(void) {
  ring *all = atomic_load(&rings);
  for (uint32_t i = 0; i < kRings; i++) {
    atomic_store(&all[i].tail, atomic_load(&all[i].head));
    atomic_store(&all[i].dropped, 0);
  }
  atomic_store(&homeless, 0);
}

// Under the reader's lock, as `forget` moves the tails.
at_status at_spans_start(void) {
  pthread_mutex_lock(&reading);
  at_status st = AT_OK;
  if (!at_spans_on()) {
    st = map_rings();
    if (!st.err) forget();
    if (!st.err) atomic_store(&at_spans_are_on, true);
  }
  pthread_mutex_unlock(&reading);
  return st;
}

void at_spans_stop(void) { atomic_store(&at_spans_are_on, false); }

// At most `most` spans of one ring, oldest first.
static size_t take_from(ring *r, at_profile_span *out, size_t most) {
  uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
  uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);
  size_t n = 0;
  AT_ASSERT(head - tail <= kSpans);
  for (; tail != head && n < most; tail++) out[n++] = r->spans[tail % kSpans];
  atomic_store_explicit(&r->tail, tail, memory_order_release);
  return n;
}

// Ring after ring: spans of one thread are in order, those of several are not.
size_t at_spans_take(at_profile_span *out, size_t most, uint64_t *dropped) {
  size_t n = 0;
  pthread_mutex_lock(&reading);
  ring *all = atomic_load(&rings);
  // Counts start anew with each call.
  *dropped = atomic_exchange(&homeless, 0);
  for (uint32_t i = 0; all && i < kRings; i++) {
    n += take_from(&all[i], out + n, most - n);
    *dropped += atomic_exchange(&all[i].dropped, 0);
  }
  pthread_mutex_unlock(&reading);
  return n;
}
