// Processes that talk over the transport: messages find who waits for them in
// any order, agreement, failure, an end, and who does not belong to the job.
#include "pod/hosts.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { kHosts = 3, kTimeout = 30, kBig = 3 << 20 };

// Addresses with ports that nobody has at the moment.
static void make_addresses(char *out, size_t n) {
  int fd[kHosts];
  *out = 0;
  for (int i = 0; i < kHosts; i++) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    fd[i] = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(!bind(fd[i], (void *)&at, len) &&
                !getsockname(fd[i], (void *)&at, &len));
    size_t k = strlen(out);
    snprintf(out + k, n - k, "%s127.0.0.1:%u", i ? "," : "",
             ntohs(at.sin_port));
  }
  for (int i = 0; i < kHosts; i++) close(fd[i]);
}

typedef int (*host_fn)(at_pod_hosts *h, uint32_t me);  // 0: good

static int be_host(const char *addresses, uint32_t me, const char *job,
                   host_fn fn) {
  at_pod_hosts *h;
  if (at_code_take(at_pod_hosts_open(addresses, me, job, kTimeout, &h)))
    return 100;
  int bad = fn(h, me);
  at_pod_hosts_close(h);
  return bad;
}

static void run_hosts(host_fn fn) {
  char addresses[256];
  make_addresses(addresses, sizeof addresses);
  pid_t pids[kHosts];
  for (uint32_t i = 0; i < kHosts; i++) {
    pids[i] = fork();
    if (!pids[i]) _exit(be_host(addresses, i, "job", fn));
  }
  for (uint32_t i = 0; i < kHosts; i++) {
    int status;
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
}

// ---- Exchanges
// -----------------------------------------------------------------
// Everybody sends (who, to whom, step) `bytes` times; true: all came so.
static bool swap_step(const at_hosts *h, uint64_t launch, uint32_t step,
                      size_t bytes) {
  at_bytes send[kHosts] = {0}, recv[kHosts] = {0};
  bool good = true;
  for (uint32_t i = 0; i < kHosts; i++) {
    send[i] = (at_bytes){malloc(bytes + 1), bytes};
    memset((void *)send[i].ptr, (int)(h->me * 64 + i * 16 + step), bytes);
  }
  at_hosts_tag tag = {.launch = launch, .program = 5, .step = step};
  good = !at_code_take(h->exchange(h->arg, &tag, send, recv));
  for (uint32_t i = 0; i < kHosts; i++) {
    if (i != h->me && good) {
      good = recv[i].len == bytes && (uintptr_t)recv[i].ptr % 64 == 0;
      for (size_t k = 0; good && k < bytes; k++)
        good = recv[i].ptr[k] == (uint8_t)(i * 64 + h->me * 16 + step);
    }
    free((void *)send[i].ptr);
    free((void *)recv[i].ptr);
  }
  return good;
}

typedef struct job {
  const at_hosts *h;
  uint32_t step;
  bool good;
} job;
static void *swap_on_thread(void *arg) {
  job *j = arg;
  return j->good = swap_step(j->h, 9, j->step, kBig), NULL;
}

static int exchanges(at_pod_hosts *p, uint32_t me) {
  const at_hosts *h = at_pod_hosts_of(p);
  if (h->count != kHosts || h->me != me) return 1;
  if (!swap_step(h, 0, 0, 0) || !swap_step(h, 1, 0, 100)) return 2;
  // Three at once, begun in another order by each.
  job jobs[3];
  pthread_t threads[3];
  for (uint32_t i = 0; i < 3; i++) {
    jobs[i] = (job){h, (i + me) % 3, false};
    pthread_create(&threads[i], NULL, swap_on_thread, &jobs[i]);
  }
  for (uint32_t i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  for (uint32_t i = 0; i < 3; i++)
    if (!jobs[i].good) return 3;
  for (uint32_t i = 0; i < 50; i++) {
    uint64_t bits = 1ull << (me * 20 + i % 16);
    if (at_code_take(at_pod_hosts_agree(p, &bits)) ||
        bits != (1ull | 1ull << 20 | 1ull << 40) << i % 16)
      return 4;
  }
  return 0;
}

static void messages_find_who_waits(void **state) {
  (void)state;
  run_hosts(exchanges);
}

// ---- Failures
// -----------------------------------------------------------------
static bool fails_with(const at_hosts *h, uint64_t launch, uint64_t program,
                       at_code code, const char *text) {
  at_bytes send[kHosts] = {0}, recv[kHosts] = {0};
  at_hosts_tag tag = {.launch = launch, .program = program};
  at_status st = h->exchange(h->arg, &tag, send, recv);
  bool good = st.err && strstr(at_status_message(st), text);
  good = at_code_take(st) == code && good;
  for (uint32_t i = 0; i < kHosts; i++) free((void *)recv[i].ptr);
  return good;
}

static int failures(at_pod_hosts *p, uint32_t me) {
  const at_hosts *h = at_pod_hosts_of(p);
  // One fails before it comes to the exchange; another launch goes on.
  if (me == 1)
    (h->fail)(h->arg, 7, "argument 3 is wrong");
  else if (!fails_with(h, 7, 5, AT_ABORTED,
                       "process 1 failed: argument 3 is wrong"))
    return 1;
  if (me == 1 && !fails_with(h, 7, 5, AT_ABORTED, "on this process")) return 2;
  if (!swap_step(h, 8, 0, 64)) return 3;
  // Two run one program, the third another.
  if (!fails_with(h, 9, me == 2 ? 6 : 5, AT_FAILED_PRECONDITION,
                  "another program"))
    return 4;
  (h->fail)(h->arg, 9, "another program");
  if (!swap_step(h, 10, 0, 64)) return 5;
  if (me == 2) return 0;  // ends; what it has sent still counts
  return fails_with(h, 11, 5, AT_UNAVAILABLE, "process 2 has ended") ? 0 : 6;
}

// Host 2 is gone, but 0 and 1 stay until both have seen it.
static void failures_reach_everybody(void **state) {
  (void)state;
  run_hosts(failures);
}

// ---- Meeting
// -----------------------------------------------------------------
static void strangers_are_refused(void **state) {
  (void)state;
  char addresses[256];
  make_addresses(addresses, sizeof addresses);
  *strrchr(addresses, ',') = 0;  // of two
  at_pod_hosts *h;
  pid_t pid = fork();
  if (!pid) _exit(be_host(addresses, 1, "another target", exchanges));
  at_status st = at_pod_hosts_open(addresses, 0, "job", kTimeout, &h);
  assert_true(st.err && strstr(at_status_message(st), "not of this job"));
  assert_int_equal(at_code_take(st), AT_FAILED_PRECONDITION);
  waitpid(pid, NULL, 0);
  // Nobody comes.
  st = at_pod_hosts_open(addresses, 0, "job", 0, &h);
  assert_true(st.err &&
              strstr(at_status_message(st), "process 1 did not come"));
  assert_int_equal(at_code_take(st), AT_DEADLINE_EXCEEDED);
  assert_int_equal(at_code_take(at_pod_hosts_open(addresses, 1, "job", 0, &h)),
                   AT_DEADLINE_EXCEEDED);
}

static void bad_addresses_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *addresses;
    uint32_t me;
  } cases[] = {{"a:1,b:2", 2},
               {"", 0},
               {"localhost,b:2", 0},
               {"localhost:,b:2", 0},
               {":1,b:2", 0},
               {",", 0},
               {"localhost:70000x,b:2", 0}};
  at_pod_hosts *h;
  for (size_t i = 0; i < AT_LEN(cases); i++)
    assert_int_equal(at_code_take(at_pod_hosts_open(cases[i].addresses,
                                                    cases[i].me, "job", 0, &h)),
                     AT_INVALID_ARGUMENT);
  assert_int_equal(at_pod_hosts_count(""), 0);
  assert_int_equal(at_pod_hosts_count("a:1"), 1);
  assert_int_equal(at_pod_hosts_count("a:1,b:2"), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_find_who_waits),
      cmocka_unit_test(failures_reach_everybody),
      cmocka_unit_test(strangers_are_refused),
      cmocka_unit_test(bad_addresses_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
