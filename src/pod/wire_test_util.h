// Groups of processes that talk over a wire, for tests of every medium. Members
// are forked; each returns 0 or the number of what failed.
#ifndef ATOLL_POD_WIRE_TEST_UTIL_H_
#define ATOLL_POD_WIRE_TEST_UTIL_H_

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "pod/meet.h"
#include "pod/wire.h"
#include "pod/wire_carrier.h"

// Waits are long, as machines may be busy; what is measured is told apart from
// them.
enum { kMembers = 3, kMeetMs = 30000, kMs = 1000000, kWaitMs = 20000 };

// ---- A group
// Lives in the test's process; members inherit it by fork.
typedef struct group {
  // Borrowed: the caller's buffer and texts. `group` is the name under which
  // members find each other.
  const char *medium, *addresses, *group;
  const at_wire_options *with;  // what differs from the defaults; may be NULL
  // At most kMembers.
  uint32_t count;
  // A page: words 0 and on are counters of `meet`, from word 64 on a time.
  _Atomic uint32_t *shared;  // some words that all members see
} group;

// ---- What a member receives
// A message that has come, in the order in which it did.
typedef struct letter {
  struct letter *next;
  uint32_t from;
  at_wire_head head;
  // malloc'ed by box_place; freed with the letter.
  uint8_t *body;
} letter;

// A member's wire and all that its sink has heard. Under the lock but for what
// is atomic.
typedef struct box {
  at_wire *w;
  pthread_mutex_t lock;
  pthread_cond_t news;
  letter *first, **last;
  // Counted as they happen: messages whole, messages given up by their sender,
  // and calls of `room`.
  _Atomic uint32_t messages, abandoned, rooms;
  bool hold;                 // messages keep their credits
  _Atomic bool no_place;     // memory is out
  _Atomic uint64_t slow_ns;  // that it takes for a message in BULK
  // Why each member was lost, "" while it is not, and when.
  char lost[kMembers][512];
  uint64_t lost_ns[kMembers];
  const group *group;
} box;

// NULL, once no_place is on: the wire must end the connection and say so.
static inline void *box_place(void *arg, uint32_t from,
                              const at_wire_head *head) {
  (void)from;
  return ((box *)arg)->no_place ? NULL : malloc(head->bytes);
}

// The sink's: puts the letter into the box; the credit is kept while `hold` is
// on.
static inline bool box_message(void *arg, uint32_t from,
                               const at_wire_head *head, void *body) {
  box *b = arg;
  letter *m = malloc(sizeof *m);
  // On the poller's thread, before the lock: a slow sink makes its senders
  // wait.
  *m = (letter){NULL, from, *head, body};
  if (b->slow_ns && head->lane == AT_WIRE_BULK)
    usleep((useconds_t)(b->slow_ns / 1000));
  pthread_mutex_lock(&b->lock);
  *b->last = m;
  b->last = &m->next;
  b->messages++;
  bool hold = b->hold;
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
  return !hold;
}

// A message that its sender has given up.
static inline void box_abandon(void *arg, uint32_t from,
                               const at_wire_head *head, void *body) {
  box *b = arg;
  (void)from, (void)head;
  free(body);
  pthread_mutex_lock(&b->lock);
  b->abandoned++;
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
}

// Somebody who was refused may try again.
static inline void box_room(void *arg, uint32_t to, at_wire_lane lane) {
  box *b = arg;
  (void)to, (void)lane;
  pthread_mutex_lock(&b->lock);
  b->rooms++;
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
}

// Keeps the reason and the time. Consumes why.
// Messages of one member may still be in the list: it was lost after they came.
static inline void box_lost(void *arg, uint32_t member, at_status why) {
  box *b = arg;
  pthread_mutex_lock(&b->lock);
  snprintf(b->lost[member], sizeof b->lost[member], "%s",
           at_status_message(why));
  b->lost_ns[member] = at_clock_ns();
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
  at_status_free(why);
}

// By the name of the medium, "sealed": tcp, "sealed ucx": ucx, over connections
// that have been proved; "tls": encrypted, too.
static inline at_status meet_proved(const at_wire_options *o, bool tls,
                                    at_pod_link *links) {
  // Everybody has the same token, so that all are proved.
  static const at_token token = {{7}};
  const at_addresses list = {o->addresses, "addresses"};
  int listener;
  AT_TRY(at_address_bind(&list, o->me, &listener));
  const at_pod_meeting about = {
      .addresses = &list,
      .token = &token,
      .card = {.me = o->me, .count = o->count, .tls = tls},
      .calls = AT_WIRE_LANES,
      .listener = listener,
      .local = true,
      .until_ns = at_clock_ns() + (uint64_t)o->meet_ms * kMs};
  uint64_t strangers;
  at_status st = at_pod_meet(&about, links, &strangers);
  // The links are the caller's, also on failure; the listener has served its
  // purpose.
  close(listener);
  return st;
}

// Opens the wire of that medium, proved first where its name says so.
static inline at_status open_box(box *b, const group *g, uint32_t me) {
  // What the test does not set has defaults: beats, windows and limits are the
  // wire's own.
  at_wire_options o = g->with ? *g->with : (at_wire_options){0};
  *b = (box){.group = g};
  b->last = &b->first;
  pthread_mutex_init(&b->lock, NULL);
  at_clock_cond_init(&b->news);
  o.count = g->count;
  o.me = me;
  o.group = o.group ? o.group : g->group;
  o.addresses = g->addresses;
  o.meet_ms = o.meet_ms ? o.meet_ms : kMeetMs;
  o.sink = (at_wire_sink){b,           box_place, box_message,
                          box_abandon, box_room,  box_lost};
  // Other media find each other by name or address and have no proof.
  const bool tls = !strcmp(g->medium, "tls");
  if (!tls && strncmp(g->medium, "sealed", 6))
    return at_wire_open(g->medium, &o, &b->w);
  at_pod_link links[kMembers * AT_WIRE_LANES];
  AT_TRY(meet_proved(&o, tls, links));
  o.links = links;
  o.addresses = NULL;
  return at_wire_open(strstr(g->medium, "ucx") ? "ucx" : "tcp", &o, &b->w);
}

// Waits, under the lock, until `done`; false: too late.
typedef bool (*box_fn)(box *b, uint64_t n);
static inline bool box_wait(box *b, box_fn done, uint64_t n, uint32_t ms) {
  uint64_t until = at_clock_ns() + (uint64_t)ms * kMs;
  const struct timespec t = at_clock_timespec(until);
  pthread_mutex_lock(&b->lock);
  // Spurious wake-ups do no harm: `done` is asked again. ms: from now on.
  bool good = done(b, n);
  while (!good && at_clock_ns() < until) {
    pthread_cond_timedwait(&b->news, &b->lock, &t);
    good = done(b, n);
  }
  pthread_mutex_unlock(&b->lock);
  return good;
}
// What is waited for, by box_wait, under the lock.
static inline bool has_messages(box *b, uint64_t n) { return b->messages >= n; }
static inline bool has_letter(box *b, uint64_t n) { return (void)n, b->first; }
static inline bool has_abandoned(box *b, uint64_t n) {
  return b->abandoned >= n;
}
static inline bool has_rooms(box *b, uint64_t n) { return b->rooms >= n; }
// n: the member.
static inline bool has_lost(box *b, uint64_t n) { return *b->lost[n]; }

// The oldest letter, the caller's from here on; NULL: none came in time.
static inline letter *take(box *b) {
  if (!box_wait(b, has_letter, 0, kWaitMs)) return NULL;
  pthread_mutex_lock(&b->lock);
  letter *m = b->first;
  b->first = m->next;
  if (!b->first) b->last = &b->first;
  pthread_mutex_unlock(&b->lock);
  return m;
}

// NULL is allowed.
static inline void free_letter(letter *m) {
  if (m) free(m->body);
  free(m);
}

// Letters that nobody took go with it.
// Nothing is heard any more once the wire is closed, so the list needs no lock.
static inline void close_box(box *b) {
  at_wire_close(b->w);
  while (b->first) free_letter(take(b));
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->news);
}

// ---- Members
// What a member does; 0, or the number of the check that failed.
typedef int (*member_fn)(box *b, uint32_t me);

// The exit status: 100, or what fn returns.
static inline int be_member(const group *g, uint32_t me, member_fn fn) {
  box b = {0};
  at_status st = open_box(&b, g, me);
  if (st.err) fprintf(stderr, "process %u: %s\n", me, at_status_message(st));
  if (at_code_take(st)) return 100;
  int bad = fn(&b, me);
  close_box(&b);
  return bad;
}

// Names, ports and a page of memory that all members see.
// addresses: filled in, and borrowed by the group. The page is unmapped by
// `finish`.
static inline group make_group(const char *medium, char addresses[256],
                               const at_wire_options *with, uint32_t count) {
  static uint32_t number;
  static char name[64];
  snprintf(name, sizeof name, "test %d %u", getpid(), number++);
  assert_true(at_free_addresses(count, addresses, 256));
  void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  return (group){medium, addresses, name, with, count, shared};
}

// Forks all members.
// pids: g->count of them. Members leave by exit, so sanitizers report their
// leaks.
static inline void start(const group *g, member_fn fn, pid_t pids[]) {
  fflush(NULL);
  for (uint32_t i = 0; i < g->count; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    signal(SIGSEGV, SIG_DFL);  // cmocka's would go on with the next test
    exit(be_member(g, i, fn));
  }
}

// All must end with 0, but for the one that the test has killed (UINT32_MAX:
// none).
// Members that hang are ended by the test's own time limit.
static inline void finish(const group *g, const pid_t pids[], uint32_t killed) {
  for (uint32_t i = 0; i < g->count; i++) {
    int status;
    assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    if (i == killed) continue;
    if (status) print_message("process %u: status %x\n", i, status);
    assert_int_equal(status, 0);
  }
  munmap((void *)g->shared, 4096);
}

// The usual course of a test: all members run fn, and all must end with 0.
static inline void run(const char *medium, const at_wire_options *with,
                       uint32_t count, member_fn fn) {
  char addresses[256];
  pid_t pids[kMembers];
  group g = make_group(medium, addresses, with, count);
  start(&g, fn, pids);
  finish(&g, pids, UINT32_MAX);
}

// All members have come here.
// word: one per place of meeting, as the count is never set back. Not for a
// member that may be killed before.
static inline void meet(box *b, uint32_t word) {
  atomic_fetch_add(&b->group->shared[word], 1);
  while (atomic_load(&b->group->shared[word]) < b->w->count) usleep(500);
}

// For as long as it takes.
static const at_wire_wait kWait = {.until_ns = UINT64_MAX};

// A message of one part. until_ns 0: at once or not at all.
// kind is 7 in all tests; the code is the wire's.
static inline at_code send_one(box *b, uint32_t to, at_wire_lane lane,
                               uint64_t tag, const void *p, size_t n,
                               uint64_t until_ns) {
  const at_bytes body = {p, n};
  const at_wire_out m = {.kind = 7, .tag = tag, .num_parts = 1, .parts = &body};
  const at_wire_wait wait = {.until_ns = until_ns};
  return at_code_take(at_wire_send(b->w, to, lane, &m, 1, &wait, NULL));
}

// ---- Bodies
// Differs from byte to byte, from message to message and from sender to sender,
// so a mix-up shows.
static inline uint8_t byte_of(uint32_t from, uint64_t tag, size_t i) {
  return (uint8_t)(from * 91 + tag * 31 + i * 7 + (i >> 12));
}

// Bytes that say by whom and in which message they were sent.
static inline uint8_t *make_body(uint32_t from, uint64_t tag, size_t n) {
  uint8_t *p = malloc(n + 1);
  for (size_t i = 0; i < n; i++) p[i] = byte_of(from, tag, i);
  return p;
}
// ---- Media
// In a process of its own: members are forked of one without UCX.
static inline bool has_ucx(void) {
  int status;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    at_carrier *c;
    at_status st = at_ucx_open(2, 0, true, true, &c);
    if (st.err) print_message("no UCX: %s\n", at_status_message(st));
    if (at_code_take(st)) exit(1);
    c->vtable->close(c);
    exit(0);
  }
  return waitpid(pid, &status, 0) == pid && !status;
}
// TEST [MEDIUM [TESTS]], TESTS with * and ?. The file defines TALK(medium), its
// tests that do not depend on how members meet, and SUITE(medium), all of them.
#define WIRE_TEST_MAIN()                                                    \
  int main(int argc, char **argv) {                                         \
    const char *only = argc > 1 ? argv[1] : NULL;                           \
    if (argc > 2) cmocka_set_test_filter(argv[2]);                          \
    const struct CMUnitTest shm[] = {SUITE("shm")}, tcp[] = {SUITE("tcp")}, \
                            proved[] = {TALK("sealed"), TALK("tls")},       \
                            ucx[] = {TALK("sealed ucx"), SUITE("ucx")};     \
    int bad = 0;                                                            \
    if (!only || !strcmp(only, "shm"))                                      \
      bad += cmocka_run_group_tests(shm, NULL, NULL);                       \
    if (!only || !strcmp(only, "tcp")) {                                    \
      bad += cmocka_run_group_tests(tcp, NULL, NULL);                       \
      bad += cmocka_run_group_tests(proved, NULL, NULL);                    \
    }                                                                       \
    if ((!only || !strcmp(only, "ucx")) && has_ucx())                       \
      bad += cmocka_run_group_tests(ucx, NULL, NULL);                       \
    return bad;                                                             \
  }

#endif
