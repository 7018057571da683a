// Processes that talk over the transport: messages find who waits for them in
// any order, agreement, failure, an end, and who does not belong to the job.
#include "pod/hosts.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/free_ports.h"
#include "pod/wire_carrier.h"

enum { kHosts = 3, kTimeout = 30, kBig = 3 << 20 };

static const char *g_medium;  // NULL: what fits
static bool g_tls, g_one_user;

// What the processes of the next job talk over: shm, tcp, net, ucx, or tls,
// which is tcp encrypted.
static void talk_over(const char *medium) {
  g_tls = !strcmp(medium, "tls");
  g_medium = g_tls ? "tcp" : medium;
}

// A job of processes on this machine that know one token.
static at_pod_job job_of(const char *addresses, uint32_t me, const char *job,
                         uint32_t timeout_s) {
  return (at_pod_job){.addresses = {addresses, "TPU_PROCESS_ADDRESSES"},
                      .me = me,
                      .listener = -1,
                      .local = true,
                      .medium = g_medium,
                      .tls = g_tls,
                      .token = {{1, 2, 3}},
                      .job = job,
                      .one_user = g_one_user,
                      .timeout_s = timeout_s};
}

// As process 1 spells them: "localhost" for all but its own.
static bool g_spelled;
// Addresses of one process may be spelled in several ways: what counts is where
// they lead.
static const char *spell(const char *addresses, uint32_t me, char out[256]) {
  uint16_t ports[kHosts];
  if (!g_spelled || me != 1) return addresses;
  for (uint32_t i = 0; i < kHosts; i++) {
    ports[i] = (uint16_t)atoi(strchr(addresses, ':') + 1);
    addresses = strchr(addresses, ',') ? strchr(addresses, ',') + 1 : addresses;
  }
  snprintf(out, 256, "localhost:%u,127.0.0.1:%u,localhost:%u", ports[0],
           ports[1], ports[2]);
  return out;
}

typedef int (*host_fn)(at_pod_hosts *h, uint32_t me);  // 0: good

// Opens, does fn and closes; the exit status: 0, what fn says, or 100.
static int be_host(const char *addresses, uint32_t me, const char *job,
                   host_fn fn) {
  at_pod_hosts *h;
  char spelled[256];
  const at_pod_job j = job_of(spell(addresses, me, spelled), me, job, kTimeout);
  if (at_code_take(at_pod_hosts_open(&j, &h))) return 100;
  int bad = fn(h, me);
  at_pod_hosts_close(h);
  return bad;
}

// kHosts processes of one job, each of which must end with 0.
static void run_hosts(host_fn fn) {
  char addresses[256];
  assert_true(at_free_addresses(kHosts, addresses, sizeof addresses));
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
// Everybody sends (who, to whom, step) `bytes` times; true: all came so.
static bool swap_step(const at_hosts *h, uint64_t launch, uint32_t step,
                      size_t bytes) {
  at_bytes send[kHosts][2];
  at_hosts_into into[kHosts][3];
  at_hosts_mail mails[kHosts] = {0};
  uint32_t n = 0;
  for (uint32_t i = 0; i < h->count; i++) {
    if (i == h->me) continue;
    uint8_t *out = malloc(bytes + 1), *in = calloc(1, bytes + 1);
    memset(out, (int)(h->me * 64 + i * 16 + step), bytes);
    send[i][0] = (at_bytes){out, bytes / 3};
    send[i][1] = (at_bytes){out + bytes / 3, bytes - bytes / 3};
    into[i][0] = (at_hosts_into){in, bytes / 2};
    into[i][1] = (at_hosts_into){in, 0};
    into[i][2] = (at_hosts_into){in + bytes / 2, bytes - bytes / 2};
    mails[n++] = (at_hosts_mail){.host = i,
                                 .num_out = 2,
                                 .num_in = step ? 3 : 0,
                                 .out = send[i],
                                 .in = step ? into[i] : NULL};
  }
  at_hosts_tag tag = {.launch = launch, .program = 5, .step = step};
  bool good = !at_code_take(h->exchange(h->arg, &tag, mails, n));
  for (uint32_t m = 0; m < n; m++) {
    uint32_t i = mails[m].host;
    at_bytes got = step ? (at_bytes){into[i][0].ptr, bytes} : mails[m].block;
    if (good) good = got.len == bytes && (step || (uintptr_t)got.ptr % 64 == 0);
    for (size_t k = 0; good && k < bytes; k++)
      good = got.ptr[k] == (uint8_t)(i * 64 + h->me * 16 + step);
    free((void *)send[i][0].ptr);
    free(into[i][0].ptr);
    free((void *)mails[m].block.ptr);
  }
  return good;
}

// An exchange in a thread of its own.
typedef struct job {
  const at_hosts *h;
  uint32_t step;
  bool good;
} job;
static void *swap_on_thread(void *arg) {
  job *j = arg;
  return j->good = swap_step(j->h, 9, j->step, kBig), NULL;
}

// Empty, small and large messages; three exchanges at once from three threads;
// agreements, which or the bits of all.
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

// Consumes `why`.
static void fail_all(const at_hosts *h, const at_hosts_tag *tag,
                     at_status why) {
  uint32_t all[kHosts];
  for (uint32_t i = 0; i < kHosts; i++) all[i] = i;
  (h->fail)(h->arg, tag, all, kHosts, why);
  at_status_free(why);
}

// Two of three talk; the third knows nothing of it, and a failure of theirs is
// none of its own.
static int pairs(at_pod_hosts *p, uint32_t me) {
  const at_hosts *h = at_pod_hosts_of(p);
  uint8_t mine = (uint8_t)me, theirs = 9;
  at_bytes out = {&mine, 1};
  at_hosts_into in = {&theirs, 1};
  for (uint32_t with = 0; with < kHosts; with++) {
    if (with == me) continue;
    at_hosts_mail mail = {with, 1, 1, &out, &in, {0}};
    at_hosts_tag tag = {.group = 1u << me | 1u << with};
    if (at_code_take(h->exchange(h->arg, &tag, &mail, 1)) || theirs != with)
      return 1;
    // The same launch, another round; then a failure of it.
    tag.round = 1;
    mail.num_in = 0;
    at_status st = h->exchange(h->arg, &tag, &mail, 1);
    bool told = st.err && strstr(at_status_message(st), "sent 1 bytes");
    if (at_code_take(st) != AT_INTERNAL || !told) return 2;
    fail_all(h, &tag, AT_FAIL(AT_INTERNAL, "too long"));
  }
  return swap_step(h, 0, 1, 10) ? 0 : 3;
}

static void some_talk_without_the_others(void **state) {
  talk_over(*state);
  run_hosts(pairs);
}

static void messages_find_who_waits(void **state) {
  talk_over(*state);
  run_hosts(exchanges);
}

// See spell.
static void addresses_are_spelled_differently(void **state) {
  talk_over(*state);
  g_spelled = true;
  run_hosts(pairs);
  g_spelled = false;
}

// ---- Failures
static bool fails_with(const at_hosts *h, uint64_t launch, uint64_t program,
                       at_code code, const char *text) {
  at_hosts_mail mails[kHosts] = {0};
  uint32_t n = 0;
  for (uint32_t i = 0; i < h->count; i++)
    if (i != h->me) mails[n++].host = i;
  at_hosts_tag tag = {.launch = launch, .program = program};
  at_status st = h->exchange(h->arg, &tag, mails, n);
  bool good = st.err && strstr(at_status_message(st), text);
  good = at_code_take(st) == code && good;
  for (uint32_t i = 0; i < n; i++) free((void *)mails[i].block.ptr);
  return good;
}

// Consumes why.
static void fail_launch(const at_hosts *h, uint64_t launch, at_status why) {
  fail_all(h, &(at_hosts_tag){.launch = launch, .program = 5}, why);
}

// What each process hears of a failure: the one that fails its own error, the
// others who failed and why, and a loss by its own code. Launches that have
// nothing to do with it go on.
static int failures(at_pod_hosts *p, uint32_t me) {
  const at_hosts *h = at_pod_hosts_of(p);
  // One fails before it comes to the exchange; another launch goes on.
  if (me == 1)
    fail_launch(h, 7, AT_FAIL(AT_INVALID_ARGUMENT, "argument 3 is wrong"));
  else if (!fails_with(h, 7, 5, AT_ABORTED,
                       "process 1 failed: argument 3 is wrong"))
    return 1;
  if (me == 1 &&
      !fails_with(h, 7, 5, AT_INVALID_ARGUMENT, "argument 3 is wrong"))
    return 2;
  // The loss of a process keeps its code, whoever tells of it.
  if (me == 1)
    fail_launch(h, 6, AT_FAIL(AT_DATA_LOSS, "process 9 is lost"));
  else if (!fails_with(h, 6, 5, AT_DATA_LOSS,
                       "process 1 failed: process 9 is lost"))
    return 7;
  if (!swap_step(h, 8, 0, 64)) return 3;
  // One does not come to a launch that the others wait for.
  if (me < 2 &&
      !fails_with(h, 9, 5, AT_DEADLINE_EXCEEDED, "did not come to launch 9"))
    return 4;
  if (me == 2) usleep(1500000);  // until they have given up
  if (!swap_step(h, 10, 0, 64)) return 5;
  if (me == 2) return 0;  // ends; what it has sent still counts
  if (!fails_with(h, 11, 5, AT_DATA_LOSS, "process 2 is lost: it has left"))
    return 6;
  // So it does where one that is there is waited for first, and does not come.
  if (!me && !fails_with(h, 12, 5, AT_DATA_LOSS, "process 2 is lost")) return 8;
  at_hosts_into none = {0};
  at_hosts_mail mail = {.host = 1 - me, .num_in = 1, .in = &none};
  const at_hosts_tag both = {.group = 1, .launch = 13};
  return at_code_take(h->exchange(h->arg, &both, &mail, 1)) ? 9 : 0;
}

// Host 2 is gone, but 0 and 1 stay until both have seen it.
static void failures_reach_everybody(void **state) {
  talk_over(*state);
  setenv("ATOLL_POD_DEADLINE", "1", 1);
  run_hosts(failures);
  unsetenv("ATOLL_POD_DEADLINE");
}

// One user hears what went wrong, and not which process told of it; the first
// failure is the cause, also of those behind it.
static int causes(at_pod_hosts *p, uint32_t me) {
  static const uint32_t all[] = {0, 1, 2};
  const at_hosts *h = at_pod_hosts_of(p);
  const at_hosts_tag tag = {.launch = 7, .program = 5}, other = {.launch = 8};
  if (me == 1)
    fail_launch(h, 7, AT_FAIL(AT_INVALID_ARGUMENT, "argument 3 is wrong"));
  else if (!fails_with(h, 7, 5, AT_INVALID_ARGUMENT, "argument 3 is wrong"))
    return 1;
  at_status st = h->cause(h->arg, &tag, all, kHosts);
  const bool good =
      !st.err == (me == 1) &&
      (me == 1 || !strcmp(at_status_message(st), "argument 3 is wrong"));
  if (at_code_take(st) != (me == 1 ? AT_OK_CODE : AT_INVALID_ARGUMENT) || !good)
    return 2;
  if (at_code_take(h->cause(h->arg, &other, all, kHosts))) return 3;
  return swap_step(h, 9, 0, 64) ? 0 : 4;
}

// See causes.
static void one_user_hears_the_cause(void **state) {
  talk_over(*state);
  g_one_user = true;
  run_hosts(causes);
  g_one_user = false;
}

// More failures than a window has messages, of launches that only one host
// knows; the last ones are found, and all else goes on.
static int forgotten(at_pod_hosts *p, uint32_t me) {
  enum { kFailed = 40000 };
  static const uint32_t others[] = {0, 2};
  const at_hosts *h = at_pod_hosts_of(p);
  at_status why = AT_FAIL(AT_NOT_FOUND, "no such rows");
  at_status other = AT_FAIL(AT_NOT_FOUND, "no such columns");
  for (uint64_t i = 0; me == 1 && i < kFailed; i++) {
    const at_hosts_tag tag = {.launch = 100 + i * (i % 3 ? 1 : 7),
                              .program = 6 + i % 5};
    (h->fail)(h->arg, &tag, others, 2, i % 20 ? why : other);
  }
  const at_hosts_tag last = {.launch = 7, .program = 9};
  if (me == 1) (h->fail)(h->arg, &last, others, 2, why);
  at_status_free(why);
  at_status_free(other);
  if (!swap_step(h, 0, 0, 100)) return 1;
  at_hosts_into none = {0};
  at_hosts_mail mail = {.host = me == 1 ? 0 : 1, .num_in = 1, .in = &none};
  at_code code = at_code_take(h->exchange(h->arg, &last, &mail, 1));
  if (code != (me == 1 ? AT_NOT_FOUND : AT_ABORTED)) return 2;
  return swap_step(h, 1, 1, 1000) ? 0 : 3;
}

// See forgotten: failures are kept for those who ask later, but not without
// bound.
static void failures_that_nobody_asks_for_take_no_room(void **state) {
  talk_over(*state);
  unsetenv("ATOLL_POD_DEADLINE");
  run_hosts(forgotten);
}

// ---- In between
// Somebody between process 1 and process 0, who forwards everything, but once
// he is told to changes, repeats or leaves out what process 1 sends next.
typedef enum forgery { CHANGE, AGAIN, LEAVE_OUT, FORGERIES } forgery;

typedef struct between {
  int listener;
  struct sockaddr_in to;
  forgery forgery;
  _Atomic bool armed;
} between;

// From a process to the other, until one of them closes.
typedef struct pipe_of {
  between *b;  // NULL: nothing is forged
  int from, to;
} pipe_of;

// One direction of a connection. Once it is armed the next bytes are forged as
// the test says.
static void *forward(void *arg) {
  pipe_of p = *(pipe_of *)arg;
  uint8_t b[4096];
  free(arg);
  for (ssize_t n; (n = recv(p.from, b, sizeof b, 0)) > 0;) {
    const bool forge = p.b && atomic_exchange(&p.b->armed, false);
    if (forge && p.b->forgery == CHANGE) b[n - 1] ^= 1;
    if (forge && p.b->forgery == LEAVE_OUT) continue;
    (void)send(p.to, b, (size_t)n, MSG_NOSIGNAL);
    if (forge && p.b->forgery == AGAIN)
      (void)send(p.to, b, (size_t)n, MSG_NOSIGNAL);
  }
  shutdown(p.to, SHUT_RDWR);
  return NULL;
}

// The thread owns the pipe_of.
static pthread_t start_forward(between *b, int from, int to) {
  pthread_t t;
  pipe_of *p = malloc(sizeof *p);
  *p = (pipe_of){b, from, to};
  pthread_create(&t, NULL, forward, p);
  return t;
}

// Whoever is too slow to prove itself calls again.
static void *come_between(void *arg) {
  enum { kCalls = 64 };
  between *b = arg;
  int fds[kCalls][2], n = 0;
  pthread_t threads[kCalls][2];
  while (n < kCalls && (fds[n][0] = accept(b->listener, NULL, NULL)) >= 0) {
    fds[n][1] = socket(AF_INET, SOCK_STREAM, 0);
    while (connect(fds[n][1], (const void *)&b->to, sizeof b->to)) usleep(1000);
    threads[n][0] = start_forward(b, fds[n][0], fds[n][1]);
    threads[n][1] = start_forward(NULL, fds[n][1], fds[n][0]);
    n++;
  }
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < 2; k++) pthread_join(threads[i][k], NULL);
    close(fds[i][0]), close(fds[i][1]);
  }
  return NULL;
}

// Messages go on until one is found out: those before it are good.
static bool ends_with(const at_hosts *h, const char *why) {
  for (uint64_t launch = 2; launch < 1000; launch++)
    if (fails_with(h, launch, 5, AT_DATA_LOSS, why)) return true;
  return false;
}

static _Atomic bool *g_armed;  // both processes see it

// What process 1 does: what it sends second is forged, so that process 0
// leaves.
static int be_forged(at_pod_hosts *p, uint32_t me) {
  const at_hosts *h = at_pod_hosts_of(p);
  if (!swap_step(h, 1, 0, 64)) return 1;
  while (!atomic_load(g_armed)) usleep(500);
  return ends_with(h, "process 0 is lost") ? 0 : 2;
}

// The i-th address of a list.
static struct sockaddr_in place_of(const char *addresses, int i) {
  for (; i; i--) addresses = strchr(addresses, ',') + 1;
  return (struct sockaddr_in){
      .sin_family = AF_INET,
      .sin_port = htons((uint16_t)atoi(strchr(addresses, ':') + 1)),
      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

// For each kind of forgery: what was sent before arrives, what was forged ends
// the connection with a reason, in clear by the seals and over TLS by TLS.
static void forged_messages_end_the_connection(void **state) {
  talk_over(*state);
  const char *why = g_tls ? "process 1 is lost: TLS: what came cannot be read"
                          : "process 1 is lost: message";
  g_armed = mmap(NULL, sizeof *g_armed, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(g_armed != MAP_FAILED);
  for (forgery f = 0; f < FORGERIES; f++) {
    atomic_store(g_armed, false);
    char all[256], direct[256], around[256];
    assert_true(at_free_addresses(kHosts, all, sizeof all));
    const char *second = strchr(all, ',') + 1, *third = strrchr(all, ',') + 1;
    snprintf(direct, sizeof direct, "%.*s", (int)(third - 1 - all), all);
    snprintf(around, sizeof around, "%s,%.*s", third, (int)(third - 1 - second),
             second);
    struct sockaddr_in mine = place_of(all, 2);
    between b = {socket(AF_INET, SOCK_STREAM, 0), place_of(all, 0), f, false};
    assert_false(bind(b.listener, (void *)&mine, sizeof mine) ||
                 listen(b.listener, kHosts));
    pid_t pid = fork();
    if (!pid) _exit(be_host(around, 1, "job", be_forged));
    pthread_t thread;
    pthread_create(&thread, NULL, come_between, &b);
    at_pod_hosts *p;
    const at_pod_job j = job_of(direct, 0, "job", kTimeout);
    assert_int_equal(at_code_take(at_pod_hosts_open(&j, &p)), 0);
    const at_hosts *h = at_pod_hosts_of(p);
    assert_true(swap_step(h, 1, 0, 64));
    atomic_store(&b.armed, true);
    atomic_store(g_armed, true);
    assert_true(ends_with(h, why));
    at_pod_hosts_close(p);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    shutdown(b.listener, SHUT_RDWR);  // no more calls
    pthread_join(thread, NULL);
    close(b.listener);
  }
}

// ---- Meeting
static void other_jobs_are_refused(void **state) {
  talk_over(*state);
  char addresses[256];
  assert_true(at_free_addresses(kHosts, addresses, sizeof addresses));
  *strrchr(addresses, ',') = 0;  // of two
  at_pod_hosts *h;
  pid_t pid = fork();
  if (!pid) _exit(be_host(addresses, 1, "another target", exchanges));
  at_pod_job j = job_of(addresses, 0, "job", kTimeout);
  at_status st = at_pod_hosts_open(&j, &h);
  assert_true(st.err && strstr(at_status_message(st), "not of this job"));
  assert_int_equal(at_code_take(st), AT_FAILED_PRECONDITION);
  waitpid(pid, NULL, 0);
  // Nobody comes.
  j.timeout_s = 0;
  st = at_pod_hosts_open(&j, &h);
  assert_true(st.err &&
              strstr(at_status_message(st), "process 1 did not come"));
  assert_int_equal(at_code_take(st), AT_DEADLINE_EXCEEDED);
  j = job_of(addresses, 1, "job", 0);
  assert_int_equal(at_code_take(at_pod_hosts_open(&j, &h)),
                   AT_DEADLINE_EXCEEDED);
}

// Before anybody is waited for.
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
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    const at_pod_job j = job_of(cases[i].addresses, cases[i].me, "job", 0);
    assert_int_equal(at_code_take(at_pod_hosts_open(&j, &h)),
                     AT_INVALID_ARGUMENT);
  }
  assert_int_equal(at_address_count(""), 0);
  assert_int_equal(at_address_count("a:1"), 1);
  assert_int_equal(at_address_count("a:1,b:2"), 2);
}

#define OVER(medium)                                                        \
  cmocka_unit_test_prestate(messages_find_who_waits, medium),               \
      cmocka_unit_test_prestate(some_talk_without_the_others, medium),      \
      cmocka_unit_test_prestate(addresses_are_spelled_differently, medium), \
      cmocka_unit_test_prestate(failures_reach_everybody, medium),          \
      cmocka_unit_test_prestate(one_user_hears_the_cause, medium),          \
      cmocka_unit_test_prestate(failures_that_nobody_asks_for_take_no_room, \
                                medium),                                    \
      cmocka_unit_test_prestate(other_jobs_are_refused, medium)

// In a process of its own: processes are forked of one without UCX.
static bool has_ucx(void) {
  int status;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    at_carrier *c;
    if (at_code_take(at_ucx_open(2, 0, true, true, &c))) exit(1);
    c->vtable->close(c);
    exit(0);
  }
  return waitpid(pid, &status, 0) == pid && !status;
}

int main(void) {
  const struct CMUnitTest ucx[] = {OVER("ucx")};
  const struct CMUnitTest tests[] = {
      OVER("shm"),
      OVER("tcp"),
      OVER("tls"),
      OVER("net"),
      cmocka_unit_test_prestate(forged_messages_end_the_connection, "tcp"),
      cmocka_unit_test_prestate(forged_messages_end_the_connection, "tls"),
      cmocka_unit_test(bad_addresses_are_refused),
  };
  int bad = has_ucx() ? cmocka_run_group_tests(ucx, NULL, NULL) : 0;
  return bad + cmocka_run_group_tests(tests, NULL, NULL);
}
