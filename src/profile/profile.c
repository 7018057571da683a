// The recorder: one lock, one arena per session; texts are stored once.
#include "profile/profile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/map.h"
#include "profile/profile_internal.h"
#include "profile/spans.h"

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
// NULL: none runs. Changed under g_lock when it ends.
static _Atomic(at_profile *) g_session;

// Relaxed: a recorder that misses the begin of a session loses an event.
static bool is_session(void) {
  return atomic_load_explicit(&g_session, memory_order_relaxed) != NULL;
}

bool at_profile_on(void) { return is_session() || at_spans_on(); }

// Asked once, at the start of a session: the clocks may drift apart in a long
// one.
static int64_t unix_offset_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - (int64_t)at_clock_ns();
}

// An empty profile of no session.
static at_status create(at_profile **out) {
  at_profile *p = calloc(1, sizeof *p);
  at_arena *a = at_arena_create();
  if (!p || !a) {
    free(p);
    at_arena_destroy(a);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a profile");
  }
  p->arena = a;
  p->texts = at_map_in(a);
  *out = p;
  return AT_OK;
}

// The new session is published by one exchange, so two that start at a time
// cannot both succeed.
at_status at_profile_start(size_t max_events) {
  at_profile *p;
  AT_TRY(create(&p));
  p->limit = max_events ? max_events : AT_PROFILE_MAX_EVENTS;
  p->unix_offset_ns = unix_offset_ns();
  at_profile *none = NULL;
  if (atomic_compare_exchange_strong(&g_session, &none, p)) return AT_OK;
  at_profile_destroy(p);
  return AT_FAIL(AT_FAILED_PRECONDITION, "a profiling session runs already");
}

// The stored copy of a text; "" when there is none; NULL: no memory.
static const char *keep(at_profile *p, const char *z) {
  if (!z || !*z) return "";
  at_str s = at_str_of(z);
  void **place = at_map_find(&p->texts, s);
  if (place) return *place;
  char *copy = at_arena_str(p->arena, s);
  place = copy ? at_map_put(&p->texts, (at_str){copy, s.len}) : NULL;
  if (!place) return NULL;
  return *place = copy;
}

// Under the lock, or of a profile that nobody else sees. Drops what has no
// room.
static void add(at_profile *p, const at_profile_event *e) {
  AT_ASSERT(e->kind < AT_PROFILE_KINDS);
  at_profile_event copy = *e;
  // Texts first, so that a full profile still knows them by address.
  copy.name = keep(p, e->name);
  copy.detail = keep(p, e->detail);
  copy.source = keep(p, e->source);
  bool whole = copy.name && copy.detail && copy.source;
  if (p->events.len >= p->limit || !whole ||
      !at_vec_push(p->arena, &p->events, copy))
    p->dropped++;
  AT_ASSERT(p->events.len <= p->limit);
}

// The session is looked up again under the lock: it may have ended since.
void at_profile_record(const at_profile_event *e) {
  if (!is_session()) return;
  pthread_mutex_lock(&g_lock);
  at_profile *p = atomic_load(&g_session);
  if (p) add(p, e);
  pthread_mutex_unlock(&g_lock);
}

// No clock offset: times are Unix times already.
at_status at_profile_of(const at_profile_event *events, size_t count,
                        at_profile **out) {
  AT_TRY(create(out));
  (*out)->limit = count;
  for (size_t i = 0; i < count; i++) add(*out, &events[i]);
  return at_arena_status((*out)->arena);
}

// The caller owns the profile: nobody else has it any more.
at_status at_profile_stop(at_profile **out) {
  pthread_mutex_lock(&g_lock);  // nobody records meanwhile
  at_profile *p = atomic_exchange(&g_session, NULL);
  pthread_mutex_unlock(&g_lock);
  if (!p) return AT_FAIL(AT_FAILED_PRECONDITION, "no profiling session runs");
  *out = p;
  return AT_OK;
}

// Events and texts are the arena's.
void at_profile_destroy(at_profile *p) {
  if (!p) return;
  at_arena_destroy(p->arena);
  free(p);
}

// No order but that of recording; xspace.c sorts.
const at_profile_event *at_profile_events(const at_profile *p,
                                          size_t *out_count) {
  *out_count = p->events.len;
  return p->events.ptr;
}

size_t at_profile_dropped(const at_profile *p) { return p->dropped; }

int64_t at_profile_unix_offset_ns(const at_profile *p) {
  return p->unix_offset_ns;
}
