// One suite for every medium of the wire: what wire.h promises of messages,
// between processes. wire_ends_test.c has how members meet and end.
#include "pod/wire_test_util.h"

#include "base/log.h"

// ---- Messages
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

#define TALK(medium)                                                       \
  cmocka_unit_test_prestate(messages_arrive_whole_and_in_order, medium),   \
      cmocka_unit_test_prestate(batches_wake_the_receiver_once, medium),   \
      cmocka_unit_test_prestate(who_is_out_of_credits_waits_or_is_refused, \
                                medium),                                   \
      cmocka_unit_test_prestate(sends_are_cancelled_half_way, medium),     \
      cmocka_unit_test_prestate(small_messages_pass_data, medium),         \
      cmocka_unit_test_prestate(many_threads_share_a_lane, medium)
// Over a wire of its own.
#define SUITE(medium) \
  TALK(medium), cmocka_unit_test_prestate(the_sink_may_answer, medium)

WIRE_TEST_MAIN()
