// One suite for every medium of the wire: what wire.h promises, between
// processes. Members are forked; each returns 0 or the number of what failed.
#include "pod/wire.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "base/log.h"
#include "pod/meet.h"
#include "pod/wire_carrier.h"
#include "pod/wire_stream.h"

// Waits are long, as machines may be busy; what is measured is told apart from
// them.
enum { kMembers = 3, kMeetMs = 30000, kMs = 1000000, kWaitMs = 20000 };

// ---- A group
typedef struct group {
  const char *medium, *addresses, *group;
  const at_wire_options *with;  // what differs from the defaults; may be NULL
  uint32_t count;
  _Atomic uint32_t *shared;  // some words that all members see
} group;

// ---- What a member receives
// A message that has come, in the order in which it did.
typedef struct letter {
  struct letter *next;
  uint32_t from;
  at_wire_head head;
  uint8_t *body;
} letter;

// A member's wire and all that its sink has heard. Under the lock but for what
// is atomic.
typedef struct box {
  at_wire *w;
  pthread_mutex_t lock;
  pthread_cond_t news;
  letter *first, **last;
  _Atomic uint32_t messages, abandoned, rooms;
  bool hold;                 // messages keep their credits
  _Atomic bool no_place;     // memory is out
  _Atomic uint64_t slow_ns;  // that it takes for a message in BULK
  char lost[kMembers][512];
  uint64_t lost_ns[kMembers];
  const group *group;
} box;

static void *box_place(void *arg, uint32_t from, const at_wire_head *head) {
  (void)from;
  return ((box *)arg)->no_place ? NULL : malloc(head->bytes);
}

// The sink's: puts the letter into the box; the credit is kept while `hold` is
// on.
static bool box_message(void *arg, uint32_t from, const at_wire_head *head,
                        void *body) {
  box *b = arg;
  letter *m = malloc(sizeof *m);
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
static void box_abandon(void *arg, uint32_t from, const at_wire_head *head,
                        void *body) {
  box *b = arg;
  (void)from, (void)head;
  free(body);
  pthread_mutex_lock(&b->lock);
  b->abandoned++;
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
}

// Somebody who was refused may try again.
static void box_room(void *arg, uint32_t to, at_wire_lane lane) {
  box *b = arg;
  (void)to, (void)lane;
  pthread_mutex_lock(&b->lock);
  b->rooms++;
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
}

// Keeps the reason and the time. Consumes why.
static void box_lost(void *arg, uint32_t member, at_status why) {
  box *b = arg;
  pthread_mutex_lock(&b->lock);
  snprintf(b->lost[member], sizeof b->lost[member], "%s",
           at_status_message(why));
  b->lost_ns[member] = at_clock_ns();
  pthread_cond_broadcast(&b->news);
  pthread_mutex_unlock(&b->lock);
  at_status_free(why);
}

// "sealed": tcp, "sealed ucx": ucx, over connections that have been proved;
// "tls": encrypted, too.
static at_status meet_proved(const at_wire_options *o, bool tls,
                             at_pod_link *links) {
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
  close(listener);
  return st;
}

// Opens the wire of that medium, proved first where its name says so.
static at_status open_box(box *b, const group *g, uint32_t me) {
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
static bool box_wait(box *b, box_fn done, uint64_t n, uint32_t ms) {
  uint64_t until = at_clock_ns() + (uint64_t)ms * kMs;
  const struct timespec t = at_clock_timespec(until);
  pthread_mutex_lock(&b->lock);
  bool good = done(b, n);
  while (!good && at_clock_ns() < until) {
    pthread_cond_timedwait(&b->news, &b->lock, &t);
    good = done(b, n);
  }
  pthread_mutex_unlock(&b->lock);
  return good;
}
static bool has_messages(box *b, uint64_t n) { return b->messages >= n; }
static bool has_letter(box *b, uint64_t n) { return (void)n, b->first; }
static bool has_abandoned(box *b, uint64_t n) { return b->abandoned >= n; }
static bool has_rooms(box *b, uint64_t n) { return b->rooms >= n; }
static bool has_lost(box *b, uint64_t n) { return *b->lost[n]; }

// The oldest letter, the caller's from here on; NULL: none came in time.
static letter *take(box *b) {
  if (!box_wait(b, has_letter, 0, kWaitMs)) return NULL;
  pthread_mutex_lock(&b->lock);
  letter *m = b->first;
  b->first = m->next;
  if (!b->first) b->last = &b->first;
  pthread_mutex_unlock(&b->lock);
  return m;
}

static void free_letter(letter *m) {
  if (m) free(m->body);
  free(m);
}

// Letters that nobody took go with it.
static void close_box(box *b) {
  at_wire_close(b->w);
  while (b->first) free_letter(take(b));
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->news);
}

// ---- Members
typedef int (*member_fn)(box *b, uint32_t me);

// The exit status: 100, or what fn returns.
static int be_member(const group *g, uint32_t me, member_fn fn) {
  box b = {0};
  at_status st = open_box(&b, g, me);
  if (st.err) fprintf(stderr, "process %u: %s\n", me, at_status_message(st));
  if (at_code_take(st)) return 100;
  int bad = fn(&b, me);
  close_box(&b);
  return bad;
}

// Names, ports and a page of memory that all members see.
static group make_group(const char *medium, char addresses[256],
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
static void start(const group *g, member_fn fn, pid_t pids[]) {
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
static void finish(const group *g, const pid_t pids[], uint32_t killed) {
  for (uint32_t i = 0; i < g->count; i++) {
    int status;
    assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    if (i == killed) continue;
    if (status) print_message("process %u: status %x\n", i, status);
    assert_int_equal(status, 0);
  }
  munmap((void *)g->shared, 4096);
}

static void run(const char *medium, const at_wire_options *with, uint32_t count,
                member_fn fn) {
  char addresses[256];
  pid_t pids[kMembers];
  group g = make_group(medium, addresses, with, count);
  start(&g, fn, pids);
  finish(&g, pids, UINT32_MAX);
}

// All members have come here.
static void meet(box *b, uint32_t word) {
  atomic_fetch_add(&b->group->shared[word], 1);
  while (atomic_load(&b->group->shared[word]) < b->w->count) usleep(500);
}

static const at_wire_wait kWait = {.until_ns = UINT64_MAX};

// A message of one part. until_ns 0: at once or not at all.
static at_code send_one(box *b, uint32_t to, at_wire_lane lane, uint64_t tag,
                        const void *p, size_t n, uint64_t until_ns) {
  const at_bytes body = {p, n};
  const at_wire_out m = {.kind = 7, .tag = tag, .num_parts = 1, .parts = &body};
  const at_wire_wait wait = {.until_ns = until_ns};
  return at_code_take(at_wire_send(b->w, to, lane, &m, 1, &wait, NULL));
}

// ---- Messages
static uint8_t byte_of(uint32_t from, uint64_t tag, size_t i) {
  return (uint8_t)(from * 91 + tag * 31 + i * 7 + (i >> 12));
}

// Bytes that say by whom and in which message they were sent.
static uint8_t *make_body(uint32_t from, uint64_t tag, size_t n) {
  uint8_t *p = malloc(n + 1);
  for (size_t i = 0; i < n; i++) p[i] = byte_of(from, tag, i);
  return p;
}

static const size_t kSizes[] = {0,         1,
                                48,        1000,
                                1025,      4096,
                                32 << 10,  (64 << 10) + 1,
                                300000,    (1 << 20) + 3,
                                9 << 20,   0,
                                8,         128 << 10,
                                65536 - 48};

static bool fits_lane(at_wire_lane lane, size_t n) {
  return lane == AT_WIRE_BULK || n <= AT_WIRE_CONTROL_BYTES;
}

typedef struct talker {
  box *b;
  uint32_t to;
  at_wire_lane lane;
  bool good;
} talker;

// All sizes, in two large parts, or in many small ones.
static void *talk(void *arg) {
  talker *t = arg;
  t->good = true;
  for (size_t i = 0; i < AT_LEN(kSizes) && t->good; i++) {
    const size_t n = kSizes[i], cut = i % 3 ? n / 3 : 0;
    if (!fits_lane(t->lane, n)) continue;
    uint8_t *p = make_body(t->b->w->me, i, n);
    at_bytes parts[9] = {{p, cut}};
    for (size_t k = 0, at = cut; k < 8; k++) {
      size_t len = k == 7 ? n - at : i % 2 ? 0 : (n - cut) / 8;
      parts[1 + k] = (at_bytes){p + at, len};
      at += len;
    }
    const at_wire_out m = {.kind = 7, .tag = i, .num_parts = 9, .parts = parts};
    t->good = !at_code_take(
        at_wire_send(t->b->w, t->to, t->lane, &m, 1, &kWait, NULL));
    free(p);
  }
  return NULL;
}

// Everybody sends all sizes to everybody in both lanes; each arrives whole and
// in its lane's order.
static int exchange(box *b, uint32_t me) {
  talker talkers[kMembers][AT_WIRE_LANES];
  pthread_t threads[kMembers][AT_WIRE_LANES];
  size_t next[kMembers][AT_WIRE_LANES] = {0}, expected = 0;
  for (uint32_t m = 0; m < kMembers; m++) {
    for (at_wire_lane k = 0; k < AT_WIRE_LANES && m != me; k++) {
      talkers[m][k] = (talker){b, m, k, false};
      pthread_create(&threads[m][k], NULL, talk, &talkers[m][k]);
      for (size_t i = 0; i < AT_LEN(kSizes); i++)
        expected += fits_lane(k, kSizes[i]);
    }
  }
  int bad = 0;
  for (; expected && !bad; expected--) {
    letter *m = take(b);
    if (!m) return 1;
    size_t *i = &next[m->from][m->head.lane];
    while (!fits_lane(m->head.lane, kSizes[*i])) ++*i;
    bad = m->head.tag != *i || m->head.bytes != kSizes[*i] || m->head.kind != 7;
    for (size_t j = 0; j < m->head.bytes && !bad; j++)
      bad = m->body[j] != byte_of(m->from, *i, j);
    ++*i;
    free_letter(m);
  }
  for (uint32_t m = 0; m < kMembers; m++)
    for (at_wire_lane k = 0; k < AT_WIRE_LANES && m != me; k++) {
      pthread_join(threads[m][k], NULL);
      bad |= !talkers[m][k].good;
    }
  meet(b, 0);
  return bad;
}

static void messages_arrive_whole_and_in_order(void **state) {
  run(*state, NULL, kMembers, exchange);
}

// One call sends many messages: all arrive in order, the counts say so, and a
// doorbell is not rung for each.
static int batches(box *b, uint32_t me) {
  enum { kMany = 1000 };
  at_wire_out out[kMany];
  at_wire_counts c;
  const at_bytes part = {(void *)out, 64};
  for (uint64_t i = 0; i < kMany; i++)
    out[i] = (at_wire_out){.tag = i, .num_parts = 1, .parts = &part};
  uint32_t sent = 0;
  if (!me && (at_code_take(at_wire_send(b->w, 1, AT_WIRE_CONTROL, out, kMany,
                                        &kWait, &sent)) ||
              sent != kMany))
    return 1;
  for (uint64_t i = 0; me && i < kMany; i++) {
    letter *m = take(b);
    if (!m || m->head.tag != i) return 2;
    free_letter(m);
  }
  at_wire_counts_of(b->w, &c);
  meet(b, 0);
  if (me) return c.received_messages != kMany || c.received_bytes != kMany * 64;
  if (c.sent_messages != kMany || c.sent_bytes != kMany * 64 ||
      c.sent_frames < kMany)
    return 3;
  // One doorbell does for many.
  return !strcmp(b->w->medium, "shm") && c.bells > kMany / 4 ? 4 : 0;
}

static void batches_wake_the_receiver_once(void **state) {
  run(*state, NULL, 2, batches);
}

// Replies from the sink leave together.
static bool echo_message(void *arg, uint32_t from, const at_wire_head *head,
                         void *body) {
  box *b = arg;
  send_one(b, from, head->lane, head->tag, body, head->bytes, 0);
  return box_message(arg, from, head, body);
}

// Process 1 answers from inside its sink, where waiting is not allowed.
static int echo(box *b, uint32_t me) {
  enum { kDeep = 100, kTurns = 50 };
  if (me) {
    at_wire_close(b->w);
    *b->lost[0] = 0;  // the first wire may have heard process 0 hang up
    at_wire_options o = {
        .count = 2,
        .me = 1,
        .group = b->group->group,
        .addresses = b->group->addresses,
        .meet_ms = kMeetMs,
        .sink = {b, box_place, echo_message, box_abandon, box_room, box_lost}};
    if (at_code_take(at_wire_open(b->group->medium, &o, &b->w))) return 1;
    return box_wait(b, has_lost, 0, kWaitMs) ? 0 : 2;
  }
  box e = {0};
  const group g = *b->group;
  if (!box_wait(b, has_lost, 1, kWaitMs)) return 3;
  if (at_code_take(open_box(&e, &g, 0))) return 4;
  for (uint32_t t = 0; t < kTurns; t++) {
    for (uint64_t i = 0; i < kDeep; i++)
      if (send_one(&e, 1, AT_WIRE_CONTROL, i, "12345678", 8, UINT64_MAX))
        return 5;
    for (uint64_t i = 0; i < kDeep; i++) {
      letter *m = take(&e);
      if (!m || m->head.tag != i || memcmp(m->body, "12345678", 8)) return 6;
      free_letter(m);
    }
  }
  close_box(&e);
  return 0;
}

static void the_sink_may_answer(void **state) { run(*state, NULL, 2, echo); }

// ---- Credits
// The receiver keeps what comes; a window's worth goes, then no more.
static int credits(box *b, uint32_t me) {
  enum { kWindow = 32 };
  if (me) {
    pthread_mutex_lock(&b->lock);
    b->hold = true;
    pthread_mutex_unlock(&b->lock);
    meet(b, 0);
    if (!box_wait(b, has_messages, kWindow, kWaitMs)) return 1;
    meet(b, 1);
    usleep(100000);
    if (b->messages != kWindow) return 2;
    at_wire_release(b->w, 0, AT_WIRE_CONTROL, 8);  // for who waits
    if (!box_wait(b, has_messages, kWindow + 1, kWaitMs)) return 3;
    meet(b, 2);
    meet(b, 3);
    for (int i = 0; i < kWindow; i++)
      at_wire_release(b->w, 0, AT_WIRE_CONTROL, 8);
    meet(b, 4);
    return 0;
  }
  meet(b, 0);
  for (int i = 0; i < kWindow; i++)
    if (send_one(b, 1, AT_WIRE_CONTROL, 0, "12345678", 8, 0)) return 11;
  const unsigned long warnings = at_log_warnings();
  if (send_one(b, 1, AT_WIRE_CONTROL, 0, "1", 1, at_clock_ns() + 200 * kMs) !=
      AT_DEADLINE_EXCEEDED)
    return 20;
  // Said once, after tell_ms.
  if (at_log_warnings() - warnings != 1) return 21;
  meet(b, 1);
  if (send_one(b, 1, AT_WIRE_CONTROL, 0, "12345678", 8, 0) !=
      AT_RESOURCE_EXHAUSTED)
    return 12;
  uint64_t begin = at_clock_ns();
  at_code code = send_one(b, 1, AT_WIRE_CONTROL, 0, "1", 1, begin + 20 * kMs);
  if (code != AT_DEADLINE_EXCEEDED && code != AT_OK_CODE) return 13;
  if (code && at_clock_ns() - begin < 20 * (uint64_t)kMs) return 14;
  if (code && send_one(b, 1, AT_WIRE_CONTROL, 0, "12345678", 8, UINT64_MAX))
    return 15;
  meet(b, 2);
  uint32_t rooms = b->rooms;
  if (send_one(b, 1, AT_WIRE_CONTROL, 0, "12345678", 8, 0) !=
      AT_RESOURCE_EXHAUSTED)
    return 16;
  meet(b, 3);
  if (!box_wait(b, has_rooms, rooms + 1, kWaitMs)) return 17;
  if (send_one(b, 1, AT_WIRE_CONTROL, 0, "12345678", 8, 0)) return 18;
  at_wire_counts c;
  at_wire_counts_of(b->w, &c);
  meet(b, 4);
  return c.refused < 2 || c.waits < 1 ? 19 : 0;
}

static void who_is_out_of_credits_waits_or_is_refused(void **state) {
  const at_wire_options with = {.window_messages = 32, .tell_ms = 10};
  run(*state, &with, 2, credits);
}

typedef struct canceller {
  at_wire *w;
  _Atomic bool flag;
} canceller;

// Gives up after 50 ms from another thread.
static void *cancel_soon(void *arg) {
  canceller *c = arg;
  usleep(50000);
  atomic_store(&c->flag, true);
  at_wire_wake(c->w);
  return NULL;
}

// A message that is given up half-way, and others in line behind it.
static int cancels(box *b, uint32_t me) {
  enum { kBig = 32 << 20 };
  if (me) {
    pthread_mutex_lock(&b->lock);
    b->hold = true;
    b->slow_ns = 700 * (uint64_t)kMs;
    pthread_mutex_unlock(&b->lock);
    meet(b, 0);
    bool good = box_wait(b, has_abandoned, 1, kWaitMs);
    b->slow_ns = 0;
    letter *first = take(b), *last = take(b);
    if (!good || !first || !last) return 1;
    if (first->head.tag != 1 || last->head.tag != 3 || last->head.bytes != 5)
      return 2;
    free_letter(first);
    free_letter(last);
    meet(b, 1);
    return 0;
  }
  meet(b, 0);
  uint8_t *big = calloc(1, kBig);
  canceller c = {.w = b->w};
  pthread_t thread;
  if (send_one(b, 1, AT_WIRE_BULK, 1, big, 100, UINT64_MAX)) return 11;
  usleep(50000);  // its receiver is busy with it
  pthread_create(&thread, NULL, cancel_soon, &c);
  const at_bytes body = {big, kBig};
  const at_wire_out m = {.tag = 2, .num_parts = 1, .parts = &body};
  const at_wire_wait wait = {.until_ns = UINT64_MAX, .cancel = &c.flag};
  uint64_t begin = at_clock_ns();
  at_code code =
      at_code_take(at_wire_send(b->w, 1, AT_WIRE_BULK, &m, 1, &wait, NULL));
  pthread_join(thread, NULL);
  if (code != AT_CANCELLED) return 12;
  if (at_clock_ns() - begin > 500 * (uint64_t)kMs) return 13;
  if (send_one(b, 1, AT_WIRE_BULK, 3, "last", 5, UINT64_MAX)) return 14;
  free(big);
  meet(b, 1);
  return 0;
}

static void sends_are_cancelled_half_way(void **state) {
  run(*state, NULL, 2, cancels);
}

// ---- Lanes
static void *send_bulk(void *arg) {
  box *b = arg;
  enum { kBig = 4 << 20, kCount = 24 };
  uint8_t *p = calloc(1, kBig);
  for (uint64_t i = 0; i < kCount; i++)
    if (send_one(b, 1, AT_WIRE_BULK, i, p, kBig, UINT64_MAX)) break;
  free(p);
  return NULL;
}

// The small message overtakes what has been sent before it: while it is under
// way, the receiver, which takes 50 ms for a piece, takes but a few more of
// them.
static int lanes(box *b, uint32_t me) {
  _Atomic uint32_t *taken = &b->group->shared[2], *at_send = taken + 1;
  if (me) {
    b->slow_ns = 50 * (uint64_t)kMs;
    meet(b, 0);
    for (bool data = true; data;) {
      letter *m = take(b);
      if (!m) return 1;
      data = m->head.lane == AT_WIRE_BULK;
      if (data) atomic_fetch_add(taken, 1);
      free_letter(m);
    }
    uint32_t more = atomic_load(taken) - atomic_load(at_send);
    b->slow_ns = 0;
    meet(b, 1);
    return more < 6 ? 0 : 2;
  }
  pthread_t thread;
  meet(b, 0);
  pthread_create(&thread, NULL, send_bulk, b);
  while (atomic_load(taken) < 2) usleep(500);
  atomic_store(at_send, atomic_load(taken));
  if (send_one(b, 1, AT_WIRE_CONTROL, 0, "now", 4, UINT64_MAX)) return 11;
  pthread_join(thread, NULL);
  meet(b, 1);
  return 0;
}

static void small_messages_pass_data(void **state) {
  run(*state, NULL, 2, lanes);
}

// ---- Threads
enum { kThreads = 4, kEach = 200 };
typedef struct crowd {
  box *b;
  uint32_t number;
} crowd;
// Each thread its own tags, which count up.
static void *send_many(void *arg) {
  crowd *c = arg;
  static uint8_t bytes[70000];
  for (uint64_t i = 0; i < kEach; i++)
    if (send_one(c->b, 1, AT_WIRE_BULK, c->number * 1000 + i, bytes,
                 i % 7 * 10000 + 1, UINT64_MAX))
      return arg;
  return NULL;
}

// What one thread sends stays in order, whatever the others do.
static int threads_send(box *b, uint32_t me) {
  crowd c[kThreads];
  pthread_t t[kThreads];
  uint64_t next[kThreads] = {0};
  for (uint32_t i = 0; i < kThreads && !me; i++) {
    c[i] = (crowd){b, i};
    pthread_create(&t[i], NULL, send_many, &c[i]);
  }
  int bad = 0;
  for (uint32_t i = 0; i < kThreads && !me; i++) {
    void *failed;
    pthread_join(t[i], &failed);
    bad |= failed != NULL;
  }
  for (int i = 0; i < kThreads * kEach && me && !bad; i++) {
    letter *m = take(b);
    if (!m) return 2;
    uint64_t at = m->head.tag % 1000;
    bad = m->head.tag / 1000 >= kThreads || at != next[m->head.tag / 1000]++ ||
          m->head.bytes != at % 7 * 10000 + 1;
    free_letter(m);
  }
  meet(b, 0);
  return bad;
}

static void many_threads_share_a_lane(void **state) {
  run(*state, NULL, 2, threads_send);
}

// ---- Ends
// What was sent before a member leaves arrives before its end is told.
static int leaves(box *b, uint32_t me) {
  enum { kBig = 3 << 20 };
  if (me == 2) {
    uint8_t *p = make_body(2, 0, kBig);
    meet(b, 0);
    for (uint32_t to = 0; to < 2; to++)
      if (send_one(b, to, AT_WIRE_BULK, 0, p, kBig, UINT64_MAX) ||
          send_one(b, to, AT_WIRE_CONTROL, 1, p, 10, UINT64_MAX))
        return 1;
    free(p);
    return 0;
  }
  meet(b, 0);
  if (!box_wait(b, has_lost, 2, kWaitMs)) return 2;
  if (b->messages != 2 || !strstr(b->lost[2], "process 2 is lost: it has left"))
    return 3;
  at_status st = at_wire_member(b->w, 2);
  bool named = st.err && strstr(at_status_message(st), "process 2");
  if (at_code_take(st) != AT_UNAVAILABLE || !named) return 4;
  if (send_one(b, 2, AT_WIRE_CONTROL, 0, "1", 1, UINT64_MAX) != AT_UNAVAILABLE)
    return 5;
  // Others go on.
  atomic_fetch_add(&b->group->shared[2], 1);
  while (atomic_load(&b->group->shared[2]) < 2) usleep(500);
  if (send_one(b, !me, AT_WIRE_BULK, 2, "1", 1, UINT64_MAX)) return 6;
  if (!box_wait(b, has_messages, 3, kWaitMs)) return 7;
  if (at_code_take(at_wire_member(b->w, !me))) return 8;
  atomic_fetch_add(&b->group->shared[1], 1);
  while (atomic_load(&b->group->shared[1]) < 2) usleep(500);
  return 0;
}

static void who_leaves_is_heard_to_the_end(void **state) {
  run(*state, NULL, kMembers, leaves);
}

// Member 2 is killed or stopped by the test, while a sender waits for it.
static _Atomic uint64_t *killed_at(box *b) {
  return (_Atomic uint64_t *)&b->group->shared[64];
}

// Sends until it fails, which is what ends it.
static void *send_to_end(void *arg) {
  box *b = arg;
  uint8_t *p = calloc(1, 1 << 20);
  while (!send_one(b, 2, AT_WIRE_BULK, 0, p, 1 << 20, UINT64_MAX)) {
  }
  free(p);
  return NULL;
}

// Members 0 and 1 hear of the end of member 2 in time and with a reason, and go
// on without it. A gigabyte of memory makes its end take a while.
static int outlives(box *b, uint32_t me, uint64_t within_ms, const char *why) {
  if (me == 2) {
    pthread_mutex_lock(&b->lock);
    b->hold = true;  // credits run out: its senders wait
    pthread_mutex_unlock(&b->lock);
    size_t much = 1ull << 30;
    uint8_t *p = mmap(NULL, much, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < much; i += 4096) p[i] = 1;
    meet(b, 0);
    for (;;) pause();
  }
  meet(b, 0);
  pthread_t thread;
  pthread_create(&thread, NULL, send_to_end, b);
  atomic_fetch_add(&b->group->shared[1], 1);
  if (!box_wait(b, has_lost, 2, kWaitMs)) return 1;
  pthread_join(thread, NULL);
  uint64_t took = (b->lost_ns[2] - atomic_load(killed_at(b))) / kMs;
  fprintf(stderr, "%s: process %u heard after %llu ms: %s\n", b->w->medium, me,
          (unsigned long long)took, b->lost[2]);
  if (!strstr(b->lost[2], why)) return 2;
  if (send_one(b, !me, AT_WIRE_BULK, 2, "1", 1, UINT64_MAX)) return 3;
  if (!box_wait(b, has_messages, 1, kWaitMs)) return 4;
  atomic_fetch_add(&b->group->shared[2], 1);
  while (atomic_load(&b->group->shared[2]) < 2) usleep(500);
  return took > within_ms ? 5 : 0;
}

static int outlives_kill(box *b, uint32_t me) {
  bool shm = !strcmp(b->w->medium, "shm");
  return outlives(b, me, shm ? 50 : 2000, shm ? "it was killed" : "process 2");
}
static int outlives_stop(box *b, uint32_t me) {
  return outlives(b, me, 2000, "no sign of life for 1500 ms");
}

// Sends it to member 2 when the others wait for it.
static void signal_member(const char *medium, int signal, member_fn fn) {
  char addresses[256];
  pid_t pids[kMembers];
  group g = make_group(medium, addresses, NULL, kMembers);
  start(&g, fn, pids);
  while (atomic_load(&g.shared[1]) < 2) usleep(500);
  usleep(200000);
  atomic_store((_Atomic uint64_t *)&g.shared[64], at_clock_ns());
  kill(pids[2], signal);
  if (signal == SIGSTOP) {
    while (atomic_load(&g.shared[2]) < 2) usleep(500);
    kill(pids[2], SIGKILL);
  }
  finish(&g, pids, 2);
}

static void a_killed_member_is_noticed(void **state) {
  signal_member(*state, SIGKILL, outlives_kill);
}
static void a_stopped_member_is_noticed(void **state) {
  signal_member(*state, SIGSTOP, outlives_stop);
}

// Once given up, a member that goes on is told so and reaches nobody.
static int stops(box *b, uint32_t me) {
  meet(b, 0);
  if (!me) {
    if (!box_wait(b, has_lost, 1, kWaitMs)) return 1;
    atomic_store(&b->group->shared[1], 1);
    while (!atomic_load(&b->group->shared[2])) usleep(500);
    return b->messages ? 2 : 0;
  }
  raise(SIGSTOP);
  send_one(b, 0, AT_WIRE_CONTROL, 0, "late", 5, UINT64_MAX);
  bool told = box_wait(b, has_lost, 0, kWaitMs);
  fprintf(stderr, "%s: the stopped one hears: %s\n", b->w->medium, b->lost[0]);
  atomic_store(&b->group->shared[2], 1);
  return told ? 0 : 3;
}

static void who_was_given_up_reaches_nobody(void **state) {
  const at_wire_options with = {.beat_ms = 50, .stuck_ms = 300};
  char addresses[256];
  pid_t pids[kMembers];
  group g = make_group(*state, addresses, &with, 2);
  start(&g, stops, pids);
  while (!atomic_load(&g.shared[1])) usleep(500);
  kill(pids[1], SIGCONT);
  finish(&g, pids, UINT32_MAX);
}

// ---- Nonsense
static int garbles(box *b, uint32_t me) {
  meet(b, 0);
  if (me == 2) {
    // Past the framing, into the stream.
    at_stream *s = (at_stream *)b->w;
    uint8_t bytes[200];
    memset(bytes, 0xa5, sizeof bytes);
    const struct iovec v = {bytes, sizeof bytes};
    pthread_mutex_lock(&s->members[0].lanes[AT_WIRE_BULK].lock);
    s->medium->write(s, 0, AT_WIRE_BULK, &v, 1);
    s->medium->push(s, 0, AT_WIRE_BULK);
    pthread_mutex_unlock(&s->members[0].lanes[AT_WIRE_BULK].lock);
    return box_wait(b, has_lost, 0, kWaitMs) ? 0 : 1;
  }
  if (me == 0 && (!box_wait(b, has_lost, 2, kWaitMs) ||
                  (!strstr(b->lost[2], "process 2 is lost: malformed frame") &&
                   !strstr(b->lost[2], "was changed, repeated or injected"))))
    return 2;
  if (send_one(b, !me, AT_WIRE_BULK, 0, "on", 3, UINT64_MAX)) return 3;
  if (!box_wait(b, has_messages, 1, kWaitMs)) return 4;
  atomic_fetch_add(&b->group->shared[1], 1);
  while (atomic_load(&b->group->shared[1]) < 2) usleep(500);
  return 0;
}

static void who_sends_nonsense_is_dropped(void **state) {
  run(*state, NULL, kMembers, garbles);
}

// A receiver without memory ends the connection, and both ends hear why.
static int no_memory(box *b, uint32_t me) {
  if (me) b->no_place = true;
  meet(b, 0);
  if (!me && send_one(b, 1, AT_WIRE_BULK, 0, "1", 1, UINT64_MAX)) return 1;
  if (!box_wait(b, has_lost, !me, kWaitMs)) return 2;
  return me && !strstr(b->lost[0], "no memory for a message of 1 bytes") ? 3
                                                                         : 0;
}

static void who_has_no_memory_says_so(void **state) {
  run(*state, NULL, 2, no_memory);
}

// Sends that can never go: to oneself, to nobody, too large for the lane, for
// the window, for a message.
static int refuses(box *b, uint32_t me) {
  static uint8_t bytes[200000];
  if (send_one(b, me, AT_WIRE_BULK, 0, bytes, 1, 0) != AT_INVALID_ARGUMENT ||
      send_one(b, 2, AT_WIRE_BULK, 0, bytes, 1, 0) != AT_INVALID_ARGUMENT)
    return 1;
  if (send_one(b, !me, AT_WIRE_CONTROL, 0, bytes, AT_WIRE_CONTROL_BYTES + 1,
               UINT64_MAX) != AT_INVALID_ARGUMENT)
    return 2;
  if (send_one(b, !me, AT_WIRE_BULK, 0, bytes, sizeof bytes, 0) !=
          AT_INVALID_ARGUMENT ||
      send_one(b, !me, AT_WIRE_BULK, 0, bytes, 150001, UINT64_MAX) !=
          AT_INVALID_ARGUMENT)
    return 3;
  if (at_code_take(at_wire_member(b->w, 2)) != AT_INVALID_ARGUMENT) return 4;
  if (at_code_take(at_wire_member(b->w, me))) return 5;
  meet(b, 0);
  return 0;
}

static void sends_that_cannot_be_are_refused(void **state) {
  const at_wire_options with = {.max_bytes = 150000};
  run(*state, &with, 2, refuses);
}

// ---- Meeting
// Opens as `me` with `with`, in this process.
static at_code opens(const group *g, uint32_t me, const at_wire_options *with,
                     const char *text) {
  group other = *g;
  other.with = with;
  box b = {0};
  at_status st = open_box(&b, &other, me);
  at_code code = at_status_code(st);
  if (st.err && text && !strstr(at_status_message(st), text)) {
    print_message("not '%s': %s\n", text, at_status_message(st));
    code = AT_UNKNOWN;
  }
  at_status_free(st);
  if (!code) at_wire_close(b.w);
  return code;
}

// Whoever has other settings or another epoch is told so, at both ends.
static void others_are_refused(void **state) {
  char addresses[256];
  group g = make_group(*state, addresses, NULL, 2);
  const at_wire_options late = {.meet_ms = 50}, settings = {.max_bytes = 12345},
                        epoch = {.epoch = 4, .meet_ms = 2000};
  assert_int_equal(opens(&g, 0, &late, "process 1 did not come"),
                   AT_DEADLINE_EXCEEDED);
  assert_int_equal(opens(&g, 1, &late, "process 0 did not come"),
                   AT_DEADLINE_EXCEEDED);
  int status;
  pid_t pid = fork();
  if (!pid)
    exit(opens(&g, 1, &settings, "another setting") != AT_FAILED_PRECONDITION);
  assert_int_equal(opens(&g, 0, NULL, "another setting"),
                   AT_FAILED_PRECONDITION);
  waitpid(pid, &status, 0);
  assert_int_equal(status, 0);
  // One of an earlier epoch is told so; the others go on without it.
  pid = fork();
  if (!pid) {
    int bad = opens(&g, 1, NULL, "another epoch") != AT_FAILED_PRECONDITION;
    exit(bad || opens(&g, 1, &epoch, NULL) != AT_OK_CODE);
  }
  const at_wire_options patient = {.epoch = 4};
  assert_int_equal(opens(&g, 0, &patient, NULL), AT_OK_CODE);
  waitpid(pid, &status, 0);
  assert_int_equal(status, 0);
  munmap((void *)g.shared, 4096);
}

// Before anybody is waited for.
static void bad_options_are_refused(void **state) {
  char addresses[256];
  group g = make_group(*state, addresses, NULL, 2);
  const at_wire_options nameless = {.group = ""},
                        hasty = {.beat_ms = 100, .stuck_ms = 100};
  assert_int_equal(opens(&g, 2, NULL, "process 2 of 2"), AT_INVALID_ARGUMENT);
  assert_int_equal(opens(&g, 0, &nameless, "name"), AT_INVALID_ARGUMENT);
  assert_int_equal(opens(&g, 0, &hasty, "100 ms"), AT_INVALID_ARGUMENT);
  g.medium = "pigeon";
  assert_int_equal(opens(&g, 0, NULL, "pigeon"), AT_INVALID_ARGUMENT);
  if (!strcmp(*state, "tcp")) {
    g.medium = "tcp";
    g.addresses = "127.0.0.1:1";
    assert_int_equal(opens(&g, 0, NULL, "there are 1"), AT_INVALID_ARGUMENT);
    g.addresses = "127.0.0.1,b:1";
    assert_int_equal(opens(&g, 0, NULL, "not host:port"), AT_INVALID_ARGUMENT);
  }
  munmap((void *)g.shared, 4096);
}

// What does not depend on how members meet.
#define TALK(medium)                                                       \
  cmocka_unit_test_prestate(messages_arrive_whole_and_in_order, medium),   \
      cmocka_unit_test_prestate(batches_wake_the_receiver_once, medium),   \
      cmocka_unit_test_prestate(who_is_out_of_credits_waits_or_is_refused, \
                                medium),                                   \
      cmocka_unit_test_prestate(sends_are_cancelled_half_way, medium),     \
      cmocka_unit_test_prestate(small_messages_pass_data, medium),         \
      cmocka_unit_test_prestate(many_threads_share_a_lane, medium),        \
      cmocka_unit_test_prestate(who_leaves_is_heard_to_the_end, medium),   \
      cmocka_unit_test_prestate(a_killed_member_is_noticed, medium),       \
      cmocka_unit_test_prestate(a_stopped_member_is_noticed, medium),      \
      cmocka_unit_test_prestate(who_was_given_up_reaches_nobody, medium),  \
      cmocka_unit_test_prestate(who_sends_nonsense_is_dropped, medium),    \
      cmocka_unit_test_prestate(who_has_no_memory_says_so, medium),        \
      cmocka_unit_test_prestate(sends_that_cannot_be_are_refused, medium)
#define SUITE(medium)                                                   \
  TALK(medium), cmocka_unit_test_prestate(the_sink_may_answer, medium), \
      cmocka_unit_test_prestate(others_are_refused, medium),            \
      cmocka_unit_test_prestate(bad_options_are_refused, medium)

// In a process of its own: members are forked of one without UCX.
static bool has_ucx(void) {
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

// wire_test [MEDIUM [TESTS]], TESTS with * and ?
int main(int argc, char **argv) {
  const char *only = argc > 1 ? argv[1] : NULL;
  if (argc > 2) cmocka_set_test_filter(argv[2]);
  const struct CMUnitTest shm[] = {SUITE("shm")}, tcp[] = {SUITE("tcp")},
                          proved[] = {TALK("sealed"), TALK("tls")},
                          ucx[] = {TALK("sealed ucx"), SUITE("ucx")};
  int bad = 0;
  if (!only || !strcmp(only, "shm"))
    bad += cmocka_run_group_tests(shm, NULL, NULL);
  if (!only || !strcmp(only, "tcp")) {
    bad += cmocka_run_group_tests(tcp, NULL, NULL);
    bad += cmocka_run_group_tests(proved, NULL, NULL);
  }
  if ((!only || !strcmp(only, "ucx")) && has_ucx())
    bad += cmocka_run_group_tests(ucx, NULL, NULL);
  return bad;
}
