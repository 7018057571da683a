// Lines between processes: messages in order, before and after a step begins;
// how a line ends, and what ends it before.
#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pod/hosts.h"

#include <cmocka.h>

#include "base/free_ports.h"

enum { kHosts = 3, kTimeout = 30, kMessages = 200, kBig = 300 << 10 };

static const char *g_medium;

// ---- Processes
typedef int (*host_fn)(at_pod_hosts *p, uint32_t me);  // 0: good

// Opens, does fn and closes; the exit status.
static int be_host(const char *addresses, uint32_t me, host_fn fn) {
  const at_pod_job job = {.addresses = {addresses, "TPU_PROCESS_ADDRESSES"},
                          .me = me,
                          .listener = -1,
                          .local = true,
                          .medium = g_medium,
                          .token = {{1, 2, 3}},
                          .job = "job",
                          .timeout_s = kTimeout};
  at_pod_hosts *p;
  if (at_code_take(at_pod_hosts_open(&job, &p))) return 100;
  int bad = fn(p, me);
  at_pod_hosts_close(p);
  return bad;
}

// kHosts processes of one job, each of which must end with 0.
static void run_hosts(host_fn fn) {
  char addresses[256];
  assert_true(at_free_addresses(kHosts, addresses, sizeof addresses));
  pid_t pids[kHosts];
  for (uint32_t i = 0; i < kHosts; i++) {
    pids[i] = fork();
    if (!pids[i]) _exit(be_host(addresses, i, fn));
  }
  for (uint32_t i = 0; i < kHosts; i++) {
    int status;
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
}

// ---- One end of a line
typedef struct end {
  const at_hosts *h;
  at_hosts_line *line;
  uint32_t others[kHosts], num_others;
  _Atomic uint32_t next[kHosts];  // message, by sender
  _Atomic bool waits;
  _Atomic bool bad;
  _Atomic uint32_t left, failed;  // failed: the code
  char why[256];
} end;

// What a message begins with; so many bytes follow.
typedef struct text {
  uint32_t from, number, bytes, pad;
} text;

// at_hosts_line_calls.heard: from each sender the numbers must come one by one,
// with the right bytes behind them.
static void heard(void *arg, at_bytes m) {
  end *e = arg;
  text t;
  memcpy(&t, m.ptr, sizeof t);
  bool good = t.from < kHosts && m.len == sizeof t + t.bytes &&
              t.number == atomic_fetch_add(&e->next[t.from], 1);
  for (uint32_t i = 0; good && i < t.bytes; i += 97)
    good = m.ptr[sizeof t + i] == (uint8_t)(t.from + t.number + i);
  if (!good) atomic_store(&e->bad, true);
  if (atomic_load(&e->waits)) e->h->lines->waits(e->line, true);
}
static void left(void *arg) { atomic_fetch_add(&((end *)arg)->left, 1); }
// Keeps the code and the text for the test. Consumes why.
static void failed(void *arg, at_status why) {
  end *e = arg;
  snprintf(e->why, sizeof e->why, "%s", at_status_message(why));
  atomic_store(&e->failed, (uint32_t)at_code_take(why));
}
static void print(void *arg, at_strbuf *out) {
  (void)arg;
  at_strbuf_addz(out, "the test waits");
}

static at_hosts_tag tag_of(uint64_t launch, uint32_t step) {
  return (at_hosts_tag){.launch = launch, .program = 5, .step = step};
}

// A line of all processes for that step of that launch.
static bool open_end(end *e, at_pod_hosts *p, uint64_t launch, uint32_t step) {
  *e = (end){.h = at_pod_hosts_of(p)};
  for (uint32_t i = 0; i < kHosts; i++)
    if (i != e->h->me) e->others[e->num_others++] = i;
  const at_hosts_tag tag = tag_of(launch, step);
  const at_hosts_line_calls calls = {e, heard, left, failed, print};
  return !at_code_take(e->h->lines->open(e->h->lines->arg, &tag, e->others,
                                         e->num_others, &calls, &e->line));
}

// To all others, in three parts. `last`: this end says that it sends no more.
static bool send_one(end *e, uint32_t number, uint32_t bytes, bool last) {
  static uint8_t body[kBig];
  const text t = {e->h->me, number, bytes, 0};
  for (uint32_t i = 0; i < bytes; i++) body[i] = (uint8_t)(t.from + number + i);
  const at_bytes parts[] = {{(const uint8_t *)&t, sizeof t},
                            {body, bytes / 2},
                            {body + bytes / 2, bytes - bytes / 2}};
  bool good = true;
  for (uint32_t i = 0; i < e->num_others; i++)
    good &= !at_code_take(
        e->h->lines->send(e->line, e->others[i], parts, AT_LEN(parts), last));
  return good;
}

// Within 10 s.
static bool comes(const _Atomic uint32_t *value, uint32_t want) {
  for (int i = 0; i < 10000 && atomic_load(value) < want; i++) usleep(1000);
  return atomic_load(value) >= want;
}

static void close_end(end *e) { e->h->lines->close(e->h->lines->arg, e->line); }

// An exchange with all, so that nobody goes on before the others have come.
static bool meet(at_pod_hosts *p, uint64_t launch) {
  const at_hosts *h = at_pod_hosts_of(p);
  const at_hosts_tag tag = {.launch = launch, .program = 6};
  at_hosts_mail mails[kHosts] = {0};
  uint32_t n = 0;
  for (uint32_t i = 0; i < kHosts; i++)
    if (i != h->me) mails[n++].host = i;
  bool good = !at_code_take(h->exchange(h->arg, &tag, mails, n));
  for (uint32_t i = 0; i < n; i++) free((void *)mails[i].block.ptr);
  return good;
}

// ---- Tests
// Each begins at another time; two steps of one launch, one behind the other.
static int talk(at_pod_hosts *p, uint32_t me) {
  for (uint32_t step = 0; step < 2; step++) {
    end e;
    usleep(100000 * ((me + step) % kHosts));
    if (!open_end(&e, p, 7, step)) return 1;
    for (uint32_t k = 0; k < kMessages; k++)
      if (!send_one(&e, k, k % 50 == 7 ? kBig : k, k + 1 == kMessages))
        return 2;
    if (!comes(&e.left, kHosts - 1) || atomic_load(&e.bad)) return 3;
    for (uint32_t i = 0; i < kHosts; i++)
      if (atomic_load(&e.next[i]) != (i == me ? 0 : kMessages)) return 4;
    if (atomic_load(&e.failed)) return 5;
    close_end(&e);
  }
  return 0;
}

static void messages_come_in_order(void **state) {
  g_medium = *state;
  run_hosts(talk);
}

// Tells all others that the launch has failed here.
static void fail_launch(at_pod_hosts *p, uint64_t launch) {
  const at_hosts *h = at_pod_hosts_of(p);
  const at_hosts_tag tag = tag_of(launch, 0);
  uint32_t others[kHosts], n = 0;
  for (uint32_t i = 0; i < kHosts; i++)
    if (i != h->me) others[n++] = i;
  at_status why = AT_FAIL(AT_INVALID_ARGUMENT, "argument 3 is wrong");
  (h->fail)(h->arg, &tag, others, n, why);
  at_status_free(why);
}

// The line of that launch ends with that code and text.
static bool fails(at_pod_hosts *p, uint64_t launch, at_code code,
                  const char *why) {
  end e;
  if (!open_end(&e, p, launch, 0)) return false;
  bool good = comes(&e.failed, 1) && atomic_load(&e.failed) == code &&
              strstr(e.why, why);
  if (!good) fprintf(stderr, "launch %d: %s\n", (int)launch, e.why);
  close_end(&e);
  return good;
}

// The four ends of a line that is not finished: a failure, one that stands
// still, one that has left in order, one that is lost.
static int end_badly(at_pod_hosts *p, uint32_t me) {
  // One fails; the others see it before they open the line, and while it is.
  for (uint64_t launch = 1; launch < 3; launch++) {
    if (me == 1) usleep(launch == 1 ? 0 : 200000), fail_launch(p, launch);
    if (me != 1 && launch == 1) usleep(200000);
    const bool here = me == 1;
    if (!fails(p, launch, here ? AT_INVALID_ARGUMENT : AT_ABORTED,
               here ? "argument 3 is wrong"
                    : "process 1 failed: argument 3 is wrong"))
      return (int)launch;
  }
  // One comes, but says nothing.
  end e;
  if (!open_end(&e, p, 3, 0)) return 3;
  e.h->lines->waits(e.line, me != 2);
  if (me == 2) usleep(1700000);
  if (me != 2 &&
      (!comes(&e.failed, 1) || atomic_load(&e.failed) != AT_DEADLINE_EXCEEDED ||
       !strstr(e.why, "the test waits")))
    return 4;
  close_end(&e);
  // One leaves the line and ends: it is missed by nobody; and then by all.
  if (!open_end(&e, p, 4, 0) || !send_one(&e, 0, 9, true)) return 5;
  if (!comes(&e.left, kHosts - 1)) return 6;
  if (me == 2) return close_end(&e), 0;
  bool lost = fails(p, 5, AT_DATA_LOSS, "process 2 is lost");
  bool whole = !atomic_load(&e.failed);
  close_end(&e);
  usleep(500000);  // the other has seen it, too
  return lost && whole ? 0 : 7;
}

static void wait_for_others(end *e) {
  atomic_store(&e->waits, true);
  e->h->lines->waits(e->line, true);
}

// All have sent something; one that has left is not waited for, others wait.
static int wait_for_each_other(at_pod_hosts *p, uint32_t me) {
  for (uint64_t launch = 1; launch < 4; launch++) {
    end e;
    const bool leaves = launch == 2 && me == 1, works = launch == 3 && !me;
    if (!open_end(&e, p, launch, 0)) return 1;
    for (uint32_t k = 0; k < 20; k++)
      if (!send_one(&e, k, 100 * k, leaves && k == 19)) return 2;
    usleep(200000);
    if (!leaves && !works) wait_for_others(&e);
    if (works) {  // until it waits, too, nobody is stuck
      usleep(2500000);
      if (!send_one(&e, 20, 9, false)) return 3;
      wait_for_others(&e);
    }
    if (!leaves && (!comes(&e.failed, 1) ||
                    atomic_load(&e.failed) != AT_FAILED_PRECONDITION ||
                    !strstr(e.why, "wait for each other")))
      return 4;
    if (atomic_load(&e.next[me == 0]) < 20u + (launch == 3 && me)) return 5;
    close_end(&e);
    if (!meet(p, launch)) return 6;  // the others have found it, too
  }
  return 0;
}

static void deadlocks_are_found(void **state) {
  g_medium = *state;
  run_hosts(wait_for_each_other);
}

// With a deadline of a second.
static void lines_end_with_what_they_need(void **state) {
  g_medium = *state;
  setenv("ATOLL_POD_DEADLINE", "1", 1);
  run_hosts(end_badly);
  unsetenv("ATOLL_POD_DEADLINE");
}

#define OVER(medium)                                          \
  cmocka_unit_test_prestate(messages_come_in_order, medium),  \
      cmocka_unit_test_prestate(deadlocks_are_found, medium), \
      cmocka_unit_test_prestate(lines_end_with_what_they_need, medium)

int main(void) {
  const struct CMUnitTest tests[] = {OVER("shm"), OVER("tcp")};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
