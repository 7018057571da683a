// An outbox: in order, without waiting, and every letter is told that it is
// over, sent or not.
#include "control/outbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

// Prints the error, and returns its code.
static int report(at_status st) {
  if (st.err) print_message("%s\n", at_status_message(st));
  return at_code_take(st);
}
#define OK(e) assert_int_equal(report(e), 0)

// The other end takes messages when it is told to.
typedef struct end {
  at_wire *wire;
  pthread_mutex_t lock;
  uint64_t heard, bytes;  // messages, in the order of their tags
  bool keeps;             // their credits
  uint64_t owed[20000];
  uint32_t owes;
  bool lost;
} end;

static void *place(void *arg, uint32_t from, const at_wire_head *head) {
  return malloc(head->bytes);
}
// Counts what comes in order with the right bytes; anything else makes `heard`
// absurd.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  end *e = arg;
  pthread_mutex_lock(&e->lock);
  if (head->tag != e->heard++) e->heard = UINT64_MAX / 2;
  e->bytes += head->bytes;
  for (uint64_t i = 0; i < head->bytes; i++)
    if (((const uint8_t *)body)[i] != (uint8_t)head->tag)
      e->heard = UINT64_MAX / 2;
  bool keeps = e->keeps;
  if (keeps) e->owed[e->owes++] = head->bytes;
  pthread_mutex_unlock(&e->lock);
  free(body);
  return !keeps;
}
static void abandon(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  free(body);
}
// Consumes why.
static void lost(void *arg, uint32_t member, at_status why) {
  end *e = arg;
  pthread_mutex_lock(&e->lock);
  e->lost = true;
  pthread_mutex_unlock(&e->lock);
  at_status_free(why);
}

typedef struct opening {
  uint32_t me;
  char group[40];
  end *end;
} opening;

// In a thread, as both ends wait for each other.
static void *open_end(void *arg) {
  opening *o = arg;
  if (report(at_wire_open("shm",
                          &(at_wire_options){.count = 2,
                                             .me = o->me,
                                             .group = o->group,
                                             .meet_ms = 10000,
                                             .window_messages = 64,
                                             .window_bytes = 1 << 20,
                                             .sink = {o->end, place, message,
                                                      abandon, NULL, lost}},
                          &o->end->wire)))
    abort();
  return NULL;
}

// Two ends of a wire with a window of 64 messages, opened from two threads as
// each waits for the other.
static void open_pair(end e[2]) {
  static int number;
  pthread_t threads[2];
  opening o[2];
  number++;
  for (uint32_t i = 0; i < 2; i++) {
    e[i] = (end){0};
    pthread_mutex_init(&e[i].lock, NULL);
    o[i] = (opening){.me = i, .end = &e[i]};
    snprintf(o[i].group, sizeof o[i].group, "outbox-%d-%d", getpid(), number);
    pthread_create(&threads[i], NULL, open_end, &o[i]);
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

// How many have come in order; absurd after a wrong one.
static uint64_t heard(end *e) {
  pthread_mutex_lock(&e->lock);
  uint64_t n = e->heard;
  pthread_mutex_unlock(&e->lock);
  return n;
}

// Within 20 s, and no more than that.
static void expect_heard(end *e, uint64_t n) {
  uint64_t until = at_clock_ns() + 20000000000ull;
  while (heard(e) != n && at_clock_ns() < until) usleep(500);
  assert_int_equal(heard(e), n);
}

// The credits that were kept: more may come.
static void give_back(end *e) {
  pthread_mutex_lock(&e->lock);
  e->keeps = false;
  uint32_t n = e->owes;
  e->owes = 0;
  pthread_mutex_unlock(&e->lock);
  for (uint32_t i = 0; i < n; i++)
    at_wire_release(e->wire, 0, AT_WIRE_BULK, e->owed[i]);
}

static void count_one(void *arg) {
  atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

static uint8_t bytes[1 << 16];

// Of two parts; `over` NULL: copied, else lent until it is counted there.
static bool send_one(at_outbox *o, uint64_t tag, size_t n,
                     _Atomic uint32_t *over) {
  uint8_t few[512];
  uint8_t *p = over ? bytes : few;  // borrowed, or copied
  if (!over) memset(few, (uint8_t)tag, sizeof few);
  const at_bytes parts[] = {{p, n / 2}, {p + n / 2, n - n / 2}};
  return at_outbox_send(o, &(at_outbox_post){.lane = AT_WIRE_BULK,
                                             .message = {7, tag, 2, parts},
                                             .sent = over ? count_one : NULL,
                                             .arg = over});
}

// The answer to a question of `atoll pod status` has five parts. One that has
// to wait arrives as one that goes at once does.
static void all_parts_wait(void **state) {
  end e[2];
  at_outbox *o;
  open_pair(e);
  OK(at_outbox_create(&o));
  for (uint64_t i = 0; i < 2; i++) {
    uint8_t byte = (uint8_t)i;
    at_bytes parts[5];
    for (int k = 0; k < 5; k++) parts[k] = (at_bytes){&byte, 1};
    assert_true(at_outbox_send(
        o,
        &(at_outbox_post){.lane = AT_WIRE_BULK, .message = {7, i, 5, parts}}));
    if (!i) at_outbox_open(o, e[0].wire, 1);
  }
  expect_heard(&e[1], 2);
  assert_int_equal(e[1].bytes, 10);
  at_outbox_free(o);
  at_wire_close(e[0].wire);
  at_wire_close(e[1].wire);
}

// Posted before the wire is open, while it is full, and after: never waits,
// never overtakes.
static void letters_keep_their_order(void **state) {
  enum { kLetters = 5000 };
  end e[2];
  at_outbox *o;
  open_pair(e);
  OK(at_outbox_create(&o));
  e[1].keeps = true;  // 64 messages, then it is full
  for (uint64_t i = 0; i < kLetters; i++) {
    if (i == 100) at_outbox_open(o, e[0].wire, 1);
    assert_true(send_one(o, i, i % 512, NULL));  // never waits
  }
  expect_heard(&e[1], 64);
  usleep(20000);
  expect_heard(&e[1], 64);
  give_back(&e[1]);
  expect_heard(&e[1], kLetters);
  for (uint64_t i = 0; i < 100; i++)
    assert_true(send_one(o, kLetters + i, 10, NULL));
  expect_heard(&e[1], kLetters + 100);
  at_outbox_free(o);
  at_wire_close(e[0].wire);
  at_wire_close(e[1].wire);
}

// A message that is larger than the window waits; those behind it, too.
static void large_ones_go_with_waiting(void **state) {
  end e[2];
  at_outbox *o;
  open_pair(e);
  OK(at_outbox_create(&o));
  at_outbox_open(o, e[0].wire, 1);
  uint8_t *large = calloc(1, 3 << 20);
  _Atomic uint32_t over = 0;
  const at_bytes part = {large, 3 << 20};
  assert_true(at_outbox_send(o, &(at_outbox_post){.lane = AT_WIRE_BULK,
                                                  .message = {7, 0, 1, &part},
                                                  .sent = count_one,
                                                  .arg = &over}));
  for (uint64_t i = 1; i < 50; i++) assert_true(send_one(o, i, 100, NULL));
  expect_heard(&e[1], 50);
  assert_int_equal(over, 1);
  assert_int_equal(e[1].bytes, (3 << 20) + 49 * 100);
  free(large);
  at_outbox_free(o);
  at_wire_close(e[0].wire);
  at_wire_close(e[1].wire);
}

// Whoever lends memory gets it back, once, whatever happens.
static void stopping_tells_every_letter(void **state) {
  for (int how = 0; how < 4; how++) {
    end e[2];
    at_outbox *o;
    _Atomic uint32_t over = 0;
    open_pair(e);
    OK(at_outbox_create(&o));
    e[1].keeps = true;
    if (how != 0) at_outbox_open(o, e[0].wire, 1);
    for (uint64_t i = 0; i < 300; i++) send_one(o, i, 0, &over);
    if (how == 2) {
      at_wire_close(e[1].wire);  // the peer is lost: they are dropped
      uint64_t until = at_clock_ns() + 20000000000ull;
      while (over < 300 && at_clock_ns() < until) usleep(500);
      assert_int_equal(over, 300);
      assert_false(send_one(o, 300, 0, &over));
      assert_int_equal(over, 301);
    }
    if (how == 3) at_outbox_stop(o);
    if (how == 3) assert_int_equal(over, 300);
    if (how == 3) assert_false(send_one(o, 300, 0, &over));
    at_outbox_free(o);
    assert_int_equal(over, how > 1 ? 301 : 300);
    at_wire_close(e[0].wire);
    if (how != 2) at_wire_close(e[1].wire);
  }
  at_outbox_free(NULL);
}

// ---- Many threads, and an end at any time
typedef struct hurry {
  at_outbox *outbox;
  _Atomic uint32_t over, posted;
  _Atomic bool stop;
} hurry;

// Posts until it is told to stop, and counts.
static void *post_many(void *arg) {
  hurry *h = arg;
  while (!atomic_load(&h->stop)) {
    atomic_fetch_add(&h->posted, 1);
    at_outbox_send(h->outbox, &(at_outbox_post){.lane = AT_WIRE_BULK,
                                                .message = {.kind = 9},
                                                .sent = count_one,
                                                .arg = &h->over});
    if (h->posted % 64 == 0) usleep(100);
  }
  return NULL;
}

// Every post is told that it is over, whether it came before or after the stop.
static void it_stops_while_others_post(void **state) {
  for (int turn = 0; turn < 12; turn++) {
    end e[2];
    hurry h = {0};
    pthread_t threads[3];
    open_pair(e);
    OK(at_outbox_create(&h.outbox));
    for (int i = 0; i < 3; i++)
      pthread_create(&threads[i], NULL, post_many, &h);
    usleep(300 * (useconds_t)turn);
    at_outbox_open(h.outbox, e[0].wire, 1);
    usleep(500 * (useconds_t)turn);
    if (turn % 3 == 0) at_wire_close(e[1].wire);
    at_outbox_stop(h.outbox);
    at_wire_close(e[0].wire);
    atomic_store(&h.stop, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    at_outbox_free(h.outbox);
    assert_int_equal(h.over, h.posted);
    if (turn % 3) at_wire_close(e[1].wire);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_parts_wait),
      cmocka_unit_test(letters_keep_their_order),
      cmocka_unit_test(large_ones_go_with_waiting),
      cmocka_unit_test(stopping_tells_every_letter),
      cmocka_unit_test(it_stops_while_others_post),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
