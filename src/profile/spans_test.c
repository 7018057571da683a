#include "profile/spans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 200000 };
static at_profile_span got[kMost];

// One span before, one while it is on, one behind.
static void nothing_is_kept_while_it_is_off(void **state) {
  uint64_t dropped;
  at_span_record(&(at_profile_span){.kind = AT_SPAN_RUN}, "before");
  assert_int_equal(at_spans_take(got, kMost, &dropped), 0);
  assert_int_equal(at_code_take(at_spans_start()), AT_OK_CODE);
  at_span_record(&(at_profile_span){.kind = AT_SPAN_RUN, .lane = 7, .flow = 5},
                 "f");
  at_spans_stop();
  at_span_record(&(at_profile_span){.kind = AT_SPAN_RUN}, "behind");
  assert_int_equal(at_spans_take(got, kMost, &dropped), 1);
  assert_int_equal(dropped, 0);
  assert_true(got[0].lane == 7 && got[0].flow == 5 &&
              !strcmp(got[0].name, "f"));
}

// No more than there is room for; the rest stays, in its order.
static void spans_are_taken_bit_by_bit(void **state) {
  uint64_t dropped;
  at_profile_span few[3];
  static const size_t want[] = {2, 2, 1, 0};
  assert_int_equal(at_code_take(at_spans_start()), AT_OK_CODE);
  for (uint64_t i = 1; i <= 5; i++)
    at_span_record(&(at_profile_span){.kind = AT_SPAN_RUN, .flow = i}, "f");
  uint64_t next = 1;
  for (size_t i = 0; i < AT_LEN(want); i++) {
    few[2].flow = 77;
    assert_int_equal(at_spans_take(few, 2, &dropped), want[i]);
    for (size_t k = 0; k < want[i]; k++) assert_int_equal(few[k].flow, next++);
    assert_int_equal(few[2].flow, 77);
  }
  at_spans_stop();
}

// To AT_SPAN_NAME - 1 bytes. The lane of a client's span is the ring's.
static void names_are_cut(void **state) {
  uint64_t dropped;
  char name[300];
  memset(name, 'x', sizeof name);
  name[299] = 0;
  assert_int_equal(at_code_take(at_spans_start()), AT_OK_CODE);
  at_span_record(&(at_profile_span){.kind = AT_SPAN_TAKE, .lane = 99}, name);
  assert_int_equal(at_spans_take(got, kMost, &dropped), 1);
  assert_int_equal(strlen(got[0].name), AT_SPAN_NAME - 1);
  assert_int_not_equal(got[0].lane, 99);  // it is the thread's
  at_spans_stop();
}

// 20,000 spans of one thread, numbered by `flow`.
static void *writes(void *arg) {
  for (uint64_t i = 1; i <= 20000; i++)
    at_span_record(
        &(at_profile_span){
            .kind = AT_SPAN_RUN, .lane = (uint32_t)(uintptr_t)arg, .flow = i},
        "step");
  return NULL;
}

// Spans of a thread come in its order; all are there, or counted.
static void threads_write_while_somebody_reads(void **state) {
  enum { kThreads = 4 };
  pthread_t threads[kThreads];
  uint64_t last[kThreads] = {0}, lost = 0, dropped;
  size_t all = 0;
  assert_int_equal(at_code_take(at_spans_start()), AT_OK_CODE);
  for (uintptr_t i = 0; i < kThreads; i++)
    pthread_create(&threads[i], NULL, writes, (void *)i);
  for (int joined = 0; joined <= kThreads; joined++) {
    if (joined) pthread_join(threads[joined - 1], NULL);
    size_t n = at_spans_take(got, kMost, &dropped);
    lost += dropped;
    all += n;
    for (size_t k = 0; k < n; k++) {
      assert_true(got[k].flow > last[got[k].lane]);
      last[got[k].lane] = got[k].flow;
    }
  }
  at_spans_stop();
  assert_int_equal(all + lost, kThreads * 20000);
  assert_true(all >= 8192);
}

// All threads keep their rings until the test has counted.
static pthread_barrier_t g_all_have_one, g_end;
// Holds its ring until g_end.
static void *writes_once(void *arg) {
  at_span_record(&(at_profile_span){.kind = AT_SPAN_RUN}, "one");
  pthread_barrier_wait(&g_all_have_one);
  pthread_barrier_wait(&g_end);
  return NULL;
}

// 70 threads at once for 64 rings, one of which this thread may have: those
// that find none drop, and that is told once.
static void spans_of_too_many_threads_are_counted(void **state) {
  enum { kThreads = 70 };
  pthread_t t[kThreads];
  uint64_t dropped, again;
  assert_int_equal(at_code_take(at_spans_start()), AT_OK_CODE);
  pthread_barrier_init(&g_all_have_one, NULL, kThreads + 1);
  pthread_barrier_init(&g_end, NULL, kThreads + 1);
  for (int i = 0; i < kThreads; i++)
    assert_int_equal(pthread_create(&t[i], NULL, writes_once, NULL), 0);
  pthread_barrier_wait(&g_all_have_one);
  size_t n = at_spans_take(got, kMost, &dropped);
  assert_int_equal(n + dropped, kThreads);
  assert_in_range(n, 63, 64);
  at_spans_take(got, kMost, &again);
  assert_int_equal(again, 0);
  pthread_barrier_wait(&g_end);
  for (int i = 0; i < kThreads; i++) pthread_join(t[i], NULL);
  at_spans_stop();
  pthread_barrier_destroy(&g_all_have_one);
  pthread_barrier_destroy(&g_end);
}

// Rings of threads that have ended are taken again.
static void many_threads_come_and_go(void **state) {
  uint64_t dropped;
  assert_int_equal(at_code_take(at_spans_start()), AT_OK_CODE);
  for (int i = 0; i < 200; i++) {
    pthread_t t;
    pthread_create(&t, NULL, writes, NULL);
    pthread_join(t, NULL);
    assert_true(at_spans_take(got, kMost, &dropped) >= 8192);
  }
  at_spans_stop();
}

static pthread_key_t g_late;
static void record_late(void *arg) {
  at_span_record(&(at_profile_span){.kind = AT_SPAN_RUN, .flow = 2}, "late");
}
static void *records_at_its_end(void *arg) {
  at_span_record(&(at_profile_span){.kind = AT_SPAN_RUN, .flow = 1}, "early");
  pthread_setspecific(g_late, arg);
  return NULL;
}

// A destructor that runs after the thread has left its ring needs another.
static void destructors_may_record(void **state) {
  uint64_t dropped;
  pthread_t t;
  assert_int_equal(at_code_take(at_spans_start()), AT_OK_CODE);
  pthread_key_create(&g_late, record_late);
  pthread_create(&t, NULL, records_at_its_end, &g_late);
  pthread_join(t, NULL);
  assert_int_equal(at_spans_take(got, kMost, &dropped), 2);
  assert_int_equal(got[0].flow + got[1].flow, 3);
  pthread_key_delete(g_late);
  at_spans_stop();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_kept_while_it_is_off),
      cmocka_unit_test(spans_are_taken_bit_by_bit),
      cmocka_unit_test(names_are_cut),
      cmocka_unit_test(threads_write_while_somebody_reads),
      cmocka_unit_test(spans_of_too_many_threads_are_counted),
      cmocka_unit_test(many_threads_come_and_go),
      cmocka_unit_test(destructors_may_record),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
