// A thread that polls a wire itself, and the wire's own thread that stands in
// for it: between two processes, over shared memory and TCP.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "pod/wire.h"

enum { kMs = 1000000, kWaitMs = 20000, kTrips = 200, kStuckMs = 1000 };

// What a process hears, and by which thread.
typedef struct ear {
  at_wire *w;
  pthread_t helper;
  _Atomic bool has_helper;
  _Atomic uint32_t heard, by_helper, odd, lost;
} ear;

static void *place(void *arg, uint32_t from, const at_wire_head *head) {
  return malloc(head->bytes);
}

static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  ear *e = arg;
  if (head->tag != atomic_load(&e->heard)) atomic_fetch_add(&e->odd, 1);
  if (atomic_load(&e->has_helper) && pthread_equal(pthread_self(), e->helper))
    atomic_fetch_add(&e->by_helper, 1);
  atomic_fetch_add(&e->heard, 1);
  free(body);
  return true;
}

static void abandon(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  free(body);
}

static void lost(void *arg, uint32_t member, at_status why) {
  at_status_free(why);
  atomic_fetch_add(&((ear *)arg)->lost, 1);
}

static bool open_ear(ear *e, const char *medium, const char *group,
                     const char *addresses, uint32_t me) {
  *e = (ear){.helper = pthread_self()};
  const at_wire_options o = {.count = 2,
                             .me = me,
                             .group = group,
                             .addresses = addresses,
                             .meet_ms = kWaitMs,
                             .beat_ms = 50,
                             .stuck_ms = kStuckMs,
                             .sink = {.arg = e,
                                      .place = place,
                                      .message = message,
                                      .abandon = abandon,
                                      .lost = lost}};
  return !at_code_take(at_wire_open(medium, &o, &e->w));
}

static bool say(ear *e, uint32_t to, uint64_t tag) {
  const uint32_t text[4] = {1, 2, 3, 4};
  const at_bytes part = {(const uint8_t *)text, sizeof text};
  const at_wire_out m = {.kind = 1, .tag = tag, .num_parts = 1, .parts = &part};
  const at_wire_wait wait = {.until_ns = UINT64_MAX};
  return !at_code_take(
      at_wire_send(e->w, to, AT_WIRE_CONTROL, &m, 1, &wait, NULL));
}

// Without polling.
static bool hears(ear *e, uint32_t count) {
  const uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (atomic_load(&e->heard) < count && at_clock_ns() < until) usleep(200);
  return atomic_load(&e->heard) >= count;
}

static bool polls_until(ear *e, uint32_t count) {
  const uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (atomic_load(&e->heard) < count && at_clock_ns() < until)
    at_wire_poll(e->w, until);
  return atomic_load(&e->heard) >= count;
}

static uint64_t sleeps(ear *e) {
  at_wire_counts n;
  at_wire_counts_of(e->w, &n);
  return n.wakeups;
}

// Member 1; the number of what is wrong, or 0.
static int helped(ear *e) {
  atomic_store(&e->has_helper, true);
  uint32_t told = 0;
  for (uint32_t i = 1; i <= kTrips; i++)
    if (!polls_until(e, i) || !say(e, 0, told++)) return 1;
  if (!atomic_load(&e->by_helper)) return 2;
  // Away for longer than others wait for a sign of life.
  const uint32_t here = atomic_load(&e->by_helper);
  usleep(2500 * kStuckMs);
  if (!say(e, 0, told++) || !hears(e, kTrips + 1)) return 3;
  if (atomic_load(&e->by_helper) != here || atomic_load(&e->lost)) return 4;
  // Who has been poked does not sleep; who stands in may, meanwhile.
  bool slept = true;
  for (int i = 0; i < kTrips && slept; i++) {
    const uint64_t before = sleeps(e);
    at_wire_poke(e->w);
    at_wire_poll(e->w, UINT64_MAX);
    slept = sleeps(e) != before;
  }
  if (slept) return 5;
  // A time that is over is not waited for.
  at_wire_poll(e->w, 1);
  at_wire_poll_end(e->w);
  if (!say(e, 0, told++) || !hears(e, kTrips + 2)) return 6;
  if (atomic_load(&e->by_helper) != here) return 7;
  // And again: the end of the other one is heard by who polls.
  if (!say(e, 0, told++)) return 8;
  const uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (!atomic_load(&e->lost) && at_clock_ns() < until)
    at_wire_poll(e->w, until);
  return atomic_load(&e->lost) == 1 && !atomic_load(&e->odd) ? 0 : 9;
}

// Member 0.
static int other(ear *e) {
  for (uint32_t i = 0; i < kTrips; i++)
    if (!say(e, 1, i) || !hears(e, i + 1)) return 11;
  // It has been away, and lives.
  if (!hears(e, kTrips + 1) || !say(e, 1, kTrips)) return 12;
  if (!hears(e, kTrips + 2) || !say(e, 1, kTrips + 1)) return 13;
  if (!hears(e, kTrips + 3)) return 14;
  return atomic_load(&e->lost) || atomic_load(&e->odd) ? 15 : 0;
}

// ---- Looks
static bool looks_until(ear *e, uint32_t count) {
  const uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (atomic_load(&e->heard) < count && at_clock_ns() < until)
    (void)at_wire_look(e->w);
  return atomic_load(&e->heard) >= count;
}

// Member 1: who looks hears most by itself; who does not is not needed.
static int looks(ear *e) {
  atomic_store(&e->has_helper, true);
  uint32_t told = 0;
  for (uint32_t i = 1; i <= kTrips; i++)
    if (!looks_until(e, i) || !say(e, 0, told++)) return 1;
  if (atomic_load(&e->by_helper) < kTrips / 2) return 2;
  // Away, without a word: the wire's thread comes back by itself.
  const uint32_t here = atomic_load(&e->by_helper);
  usleep(2500 * kStuckMs);
  if (!say(e, 0, told++) || !hears(e, kTrips + 1)) return 3;
  if (atomic_load(&e->by_helper) != here || atomic_load(&e->lost)) return 4;
  // Away, and said so.
  (void)at_wire_look(e->w);
  at_wire_look_end(e->w);
  if (!say(e, 0, told++) || !hears(e, kTrips + 2)) return 5;
  // A look finds the end of the other one.
  if (!say(e, 0, told++)) return 6;
  const uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (!atomic_load(&e->lost) && at_clock_ns() < until)
    (void)at_wire_look(e->w);
  return atomic_load(&e->lost) == 1 && !atomic_load(&e->odd) ? 0 : 7;
}

// ---- All of it
typedef int (*part_fn)(ear *e);

static void run_two(const char *medium, part_fn second) {
  char addresses[256], group[64];
  snprintf(group, sizeof group, "help %s %d", medium, getpid());
  assert_true(at_free_addresses(2, addresses, sizeof addresses));
  fflush(NULL);
  pid_t pid[2];
  for (uint32_t me = 0; me < 2; me++) {
    pid[me] = fork();
    assert_true(pid[me] >= 0);
    if (pid[me]) continue;
    ear e;
    if (!open_ear(&e, medium, group, addresses, me)) _exit(20);
    int bad = me ? second(&e) : other(&e);
    at_wire_close(e.w);
    _exit(bad);
  }
  int how[2];
  for (uint32_t me = 0; me < 2; me++)
    assert_int_equal(waitpid(pid[me], &how[me], 0), pid[me]);
  for (uint32_t me = 2; me-- > 0;) assert_int_equal(how[me], 0);
}

static void a_thread_polls_and_is_stood_in_for(void **state) {
  run_two(*state, helped);
}

static void who_waits_may_look(void **state) { run_two(*state, looks); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(a_thread_polls_and_is_stood_in_for, "shm"),
      cmocka_unit_test_prestate(a_thread_polls_and_is_stood_in_for, "tcp"),
      cmocka_unit_test_prestate(who_waits_may_look, "shm"),
      cmocka_unit_test_prestate(who_waits_may_look, "tcp"),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
