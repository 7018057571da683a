// Processes that are killed and come back: the pod forms anew in its next
// epoch, when nobody has work under way, with all or not at all.
#include "pod/again.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"

enum { kHosts = 3, kSeconds = 30, kLookUs = 2000 };

// What all processes of a test see.
typedef struct board {
  _Atomic uint32_t epoch[kHosts];  // in which each is, from 1 on; 0: in none
  _Atomic uint32_t busy[kHosts];   // has work under way
  _Atomic uint32_t asked[kHosts];  // how often each was asked to rest
  _Atomic uint32_t drops[kHosts];  // 1 + whom each is to give up; 0: nobody
  _Atomic uint32_t go;             // 1: swap in the epoch that there is; 2: end
  _Atomic uint32_t bad;            // number of a check
} board;
static board *g_board;
static const char *g_medium;
static bool g_tls;
static char g_addresses[256];

// Who is told of a new epoch in one process, and all pods that it has had.
// Under the test's hands only between rest and go.
typedef struct user {
  at_pod_hosts *pods[4];
  _Atomic uint32_t count;
  bool resting;
  uint32_t me;
  _Atomic uint32_t dropping;  // the process gives somebody up at this moment
} user;

// Keeps the number of the first check that fails, in any process; the test
// reads it.
static void check(bool holds, uint32_t number) {
  uint32_t none = 0;
  if (!holds) atomic_compare_exchange_strong(&g_board->bad, &none, number);
}

// at_pod_again_user.rest: agrees unless the test says that there is work under
// way. It must not be asked while it rests.
static bool rest(void *arg) {
  user *u = arg;
  check(!u->resting, 1);
  atomic_fetch_add(&g_board->asked[u->me], 1);
  return u->resting = !atomic_load(&g_board->busy[u->me]);
}

// The new pod takes the place of the old one, which is left but not closed. The
// board tells the test.
static at_status move(void *arg, at_pod_hosts *now) {
  user *u = arg;
  check(u->resting && u->count < AT_LEN(u->pods), 2);
  while (atomic_load(&u->dropping)) usleep(kLookUs);
  at_pod_hosts_leave(u->pods[u->count - 1]);
  u->pods[u->count] = now;
  atomic_fetch_add(&u->count, 1);
  atomic_store(&g_board->epoch[u->me], at_pod_hosts_job(now)->epoch + 1);
  return AT_OK;
}

// Only after a rest, with or without a move between.
static void go(void *arg) {
  user *u = arg;
  check(u->resting, 3);
  u->resting = false;
}

// Everybody sends everybody its number and epoch; true: all of them were of
// this epoch and in their places.
static bool swap(at_pod_hosts *p, uint64_t launch) {
  const at_hosts *h = at_pod_hosts_of(p);
  uint32_t words[kHosts], mine = 100 * at_pod_hosts_job(p)->epoch + h->me,
                          n = 0;
  at_hosts_into into[kHosts];
  at_hosts_mail mails[kHosts];
  const at_bytes out = {(const uint8_t *)&mine, sizeof mine};
  for (uint32_t i = 0; i < h->count; i++) {
    if (i == h->me) continue;
    into[n] = (at_hosts_into){(uint8_t *)&words[i], sizeof words[i]};
    mails[n] = (at_hosts_mail){
        .host = i, .num_out = 1, .num_in = 1, .out = &out, .in = &into[n]};
    n++;
  }
  const at_hosts_tag tag = {.group = 1, .program = 2, .launch = launch};
  bool good = !at_code_take(h->exchange(h->arg, &tag, mails, n));
  for (uint32_t i = 0; good && i < h->count; i++)
    good = i == h->me || words[i] == mine - h->me + i;
  return good;
}

// A process of the job: joins, then swaps once in each epoch when the test says
// so, until the test ends it. Exit status 0 or what failed.
static void be_process(uint32_t me, uint32_t timeout_s) {
  user u = {.me = me};
  at_pod_again *g;
  const at_pod_job job = {.addresses = {g_addresses, "TPU_PROCESS_ADDRESSES"},
                          .me = me,
                          .listener = -1,
                          .local = true,
                          .medium = g_medium,
                          .share = !g_medium,
                          .tls = g_tls,
                          .token = {{1, 2, 3}},
                          .job = "job",
                          .returns = true,
                          .timeout_s = timeout_s};
  if (at_code_take(at_pod_hosts_open(&job, &u.pods[0]))) _exit(10);
  u.count = 1;
  const at_pod_again_user face = {&u, rest, move, go};
  if (at_code_take(at_pod_again_begin(u.pods[0], &face, &g))) _exit(11);
  uint32_t epoch = at_pod_hosts_job(u.pods[0])->epoch, swapped = UINT32_MAX;
  atomic_store(&g_board->epoch[me], epoch + 1);
  while (atomic_load(&g_board->go) != 2) {
    usleep(kLookUs);
    at_pod_hosts *now = u.pods[atomic_load(&u.count) - 1];
    epoch = at_pod_hosts_job(now)->epoch;
    const uint32_t drop = atomic_exchange(&g_board->drops[me], 0);
    atomic_fetch_add(&u.dropping, 1);
    if (drop) at_pod_hosts_drop(now, drop - 1);
    atomic_fetch_sub(&u.dropping, 1);
    if (atomic_load(&g_board->go) != 1 || swapped == epoch) continue;
    // The first launch of every epoch has the same number: none is mistaken for
    // one of another epoch.
    check(swap(now, 0), 4);
    swapped = epoch;
    atomic_store(&g_board->epoch[me], 1000 + epoch);
  }
  at_pod_again_end(g);
  for (uint32_t i = u.count; i-- > 0;) at_pod_hosts_close(u.pods[i]);
  _exit(0);
}

// Forks the process; a later one of the same number comes back in its place.
static pid_t start(uint32_t me) {
  pid_t pid = fork();
  if (!pid) be_process(me, kSeconds);
  return pid;
}

// Until all processes but one are in that epoch, or have swapped in it (1000
// and more). Fails with the check that failed.
static void wait_all(uint32_t epoch, uint32_t but) {
  const uint64_t until = at_clock_ns() + kSeconds * 1000000000ull;
  for (uint32_t i = 0; i < kHosts; i++)
    while (i != but && atomic_load(&g_board->epoch[i]) != epoch) {
      if (atomic_load(&g_board->bad) || at_clock_ns() > until)
        fail_msg("process %u is in %u, not %u; check %u", i, g_board->epoch[i],
                 epoch, g_board->bad);
      usleep(kLookUs);
    }
}

// All of them must find each other in that epoch.
static void swap_all(uint32_t epoch) {
  atomic_store(&g_board->go, 1);
  wait_all(1000 + epoch, UINT32_MAX);
  atomic_store(&g_board->go, 0);
}

// SIGKILL, and waits for the end.
static void kill_one(pid_t pid) {
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

// A fresh job in epoch 0, which has swapped once.
static void begin(pid_t pids[kHosts]) {
  memset(g_board, 0, sizeof *g_board);
  assert_true(at_free_addresses(kHosts, g_addresses, sizeof g_addresses));
  for (uint32_t i = 0; i < kHosts; i++) pids[i] = start(i);
  wait_all(1, UINT32_MAX);
  swap_all(0);
}

// All processes must end well by themselves.
static void end(const pid_t pids[kHosts]) {
  atomic_store(&g_board->go, 2);
  for (uint32_t i = 0; i < kHosts; i++) {
    int status;
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
  assert_int_equal(g_board->bad, 0);
}

// Each process is killed and started again; the others go on with the new one
// in the next epoch.
static void come_back(void) {
  pid_t pids[kHosts];
  begin(pids);
  // Each of them once, the first too; every time an epoch.
  for (uint32_t i = 0; i < kHosts; i++) {
    kill_one(pids[i]);
    atomic_store(&g_board->epoch[i], 0);
    pids[i] = start(i);
    wait_all(i + 2, UINT32_MAX);
    swap_all(i + 1);
  }
  end(pids);
}

static void one_after_another(void **state) {
  g_medium = NULL, g_tls = false;
  come_back();
}

static void over_tcp(void **state) {
  g_medium = "tcp", g_tls = false;
  come_back();
}

// The pod forms when all are there, not for one of two that were lost, and not
// before those that are left have nothing under way.
static void two_at_once(void **state) {
  pid_t pids[kHosts];
  g_medium = NULL, g_tls = false;
  begin(pids);
  atomic_store(&g_board->busy[0], 1);
  kill_one(pids[1]);
  kill_one(pids[2]);
  atomic_store(&g_board->epoch[1], 0);
  atomic_store(&g_board->epoch[2], 0);
  pids[2] = start(2);
  usleep(700000);
  assert_int_equal(g_board->asked[0], 0);
  pids[1] = start(1);
  while (atomic_load(&g_board->asked[0]) < 3) usleep(kLookUs);
  assert_int_equal(g_board->epoch[0], 1000);
  assert_int_equal(g_board->epoch[1] + g_board->epoch[2], 0);
  atomic_store(&g_board->busy[0], 0);
  wait_all(2, UINT32_MAX);
  swap_all(1);
  end(pids);
}

// A process that was stopped, and so given up, and goes on.
static void after_a_stop(void **state) {
  pid_t pids[kHosts];
  g_medium = NULL, g_tls = false;
  begin(pids);
  kill(pids[1], SIGSTOP);
  sleep(3);
  kill(pids[1], SIGCONT);
  wait_all(2, UINT32_MAX);
  swap_all(1);
  end(pids);
}

// Two that have lost each other, and a third one that has lost nobody: all find
// each other in a new epoch.
static void lose_each_other(void) {
  for (uint32_t i = 0; i < kHosts; i++) {
    pid_t pids[kHosts];
    begin(pids);
    atomic_store(&g_board->drops[i], 1 + (i + 1) % kHosts);
    const uint64_t until = at_clock_ns() + kSeconds * 1000000000ull;
    uint32_t epoch = 0;  // the latest that all are in
    while (epoch < 2 && at_clock_ns() < until) {
      usleep(kLookUs);
      epoch = UINT32_MAX;
      for (uint32_t k = 0; k < kHosts; k++)
        epoch = AT_MIN(epoch,
                       g_board->epoch[k] % 1000 + (g_board->epoch[k] >= 1000));
    }
    assert_true(epoch >= 2);
    wait_all(epoch, UINT32_MAX);
    swap_all(epoch - 1);
    end(pids);
  }
}

static void views_that_differ_in_shared_memory(void **state) {
  g_medium = NULL, g_tls = false;
  lose_each_other();
}

static void views_that_differ_over_tcp(void **state) {
  g_medium = "tcp", g_tls = false;
  lose_each_other();
}

int main(void) {
  g_board = mmap(NULL, sizeof *g_board, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_after_another),
      cmocka_unit_test(over_tcp),
      cmocka_unit_test(two_at_once),
      cmocka_unit_test(after_a_stop),
      cmocka_unit_test(views_that_differ_in_shared_memory),
      cmocka_unit_test(views_that_differ_over_tcp),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
