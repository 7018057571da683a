// One suite for every medium of the wire: how members meet, end, are lost, and
// what a wire refuses. wire_test.c has messages.
#include "pod/wire_test_util.h"

#include "pod/wire_stream.h"

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

// The two that take part meet without the third one, which is lost for them
// from the beginning, and talk.
static int goes_without(box *b, uint32_t me) {
  const uint32_t other = 2 - me;
  if (!box_wait(b, has_lost, 1, kWaitMs)) return 1;
  if (!strstr(b->lost[1], "process 1 is lost: it takes no part")) return 2;
  if (at_code_take(at_wire_member(b->w, 1)) != AT_UNAVAILABLE) return 3;
  if (send_one(b, 1, AT_WIRE_CONTROL, 0, "1", 1, UINT64_MAX) != AT_UNAVAILABLE)
    return 4;
  at_wire_drop(b->w, 1);
  at_wire_wake(b->w);
  uint8_t *p = make_body(me, 0, 1 << 20);
  bool sent = !send_one(b, other, AT_WIRE_BULK, 0, p, 1 << 20, UINT64_MAX) &&
              !send_one(b, other, AT_WIRE_CONTROL, 1, p, 10, UINT64_MAX);
  free(p);
  if (!sent || !box_wait(b, has_messages, 2, kWaitMs)) return 5;
  usleep(300000);  // the poller looks after those who are there meanwhile
  pthread_mutex_lock(&b->lock);
  bool lost = *b->lost[other];
  pthread_mutex_unlock(&b->lock);
  if (lost) return 6;
  atomic_fetch_add(&b->group->shared[1], 1);
  while (atomic_load(&b->group->shared[1]) < 2) usleep(500);
  return 0;
}

static void who_takes_no_part_is_lost(void **state) {
  static const bool absent[kMembers] = {false, true, false};
  run(*state, &(at_wire_options){.absent = absent}, kMembers, goes_without);
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

#define TALK(medium)                                                      \
  cmocka_unit_test_prestate(who_leaves_is_heard_to_the_end, medium),      \
      cmocka_unit_test_prestate(who_takes_no_part_is_lost, medium),       \
      cmocka_unit_test_prestate(a_killed_member_is_noticed, medium),      \
      cmocka_unit_test_prestate(a_stopped_member_is_noticed, medium),     \
      cmocka_unit_test_prestate(who_was_given_up_reaches_nobody, medium), \
      cmocka_unit_test_prestate(who_sends_nonsense_is_dropped, medium),   \
      cmocka_unit_test_prestate(who_has_no_memory_says_so, medium),       \
      cmocka_unit_test_prestate(sends_that_cannot_be_are_refused, medium)
#define SUITE(medium)                                                  \
  TALK(medium), cmocka_unit_test_prestate(others_are_refused, medium), \
      cmocka_unit_test_prestate(bad_options_are_refused, medium)

WIRE_TEST_MAIN()
