// What the wire takes between two processes of this machine, over each medium:
// 8 bytes there and back, messages in a row, and bandwidth by size. Medians of
// 9 runs, and the best. ucx only where it is asked for: it need not be there.
//
//   wire [MEDIUM [MEASURE]]
//
// MEDIUM: shm, tcp (with checksums), sealed (tcp between processes that have
// proved a token) or tls (those, encrypted)
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "pod/meet.h"
#include "pod/wire.h"
#include "wire_bench.h"

enum { kMost = 64 << 20 };

// One end. The controller's thread waits for answers on a count; the other
// process answers from its sink.
typedef struct end {
  at_wire *w;
  uint8_t *block;  // where bodies go
  uint32_t wanted;
  uint32_t had;
  pthread_mutex_t lock;
  pthread_cond_t news;
  _Atomic bool over;
} end;

static void *place(void *arg, uint32_t from, const at_wire_head *head) {
  (void)from, (void)head;
  return ((end *)arg)->block;
}
static void abandon(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  (void)arg, (void)from, (void)head, (void)body;
}
static void lost(void *arg, uint32_t member, at_status why) {
  end *e = arg;
  (void)member;
  at_status_free(why);
  pthread_mutex_lock(&e->lock);
  atomic_store(&e->over, true);
  pthread_cond_signal(&e->news);
  pthread_mutex_unlock(&e->lock);
}

static void send_bytes(end *e, at_wire_lane lane, uint64_t tag, size_t bytes,
                       bool waits) {
  const at_bytes body = {e->block, bytes};
  const at_wire_out m = {.tag = tag, .num_parts = 1, .parts = &body};
  const at_wire_wait wait = {.until_ns = waits ? UINT64_MAX : 0};
  at_status st = at_wire_send(e->w, !e->w->me, lane, &m, 1, &wait, NULL);
  if (st.err) {
    fprintf(stderr, "%s\n", at_status_message(st));
    exit(1);
  }
}

// tag: how many turns are left, where the poller itself goes on; UINT64_MAX: an
// answer is asked for.
enum { kAsk = 1 };
static const uint64_t kTurns = 1ull << 32;

static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  end *e = arg;
  (void)from, (void)body;
  if (head->tag > kTurns) {
    send_bytes(e, AT_WIRE_CONTROL, head->tag - 1, head->bytes, false);
    return true;
  }
  if (e->w->me && head->tag == kAsk)
    send_bytes(e, AT_WIRE_CONTROL, 0, 8, false);
  if (e->w->me) return true;
  pthread_mutex_lock(&e->lock);
  if (++e->had == e->wanted) pthread_cond_signal(&e->news);
  pthread_mutex_unlock(&e->lock);
  return true;
}

static void begin(end *e, uint32_t answers) {
  pthread_mutex_lock(&e->lock);
  e->wanted = answers;
  e->had = 0;
  pthread_mutex_unlock(&e->lock);
}
static void wait_for_answers(end *e) {
  pthread_mutex_lock(&e->lock);
  while (e->had < e->wanted && !atomic_load(&e->over))
    pthread_cond_wait(&e->news, &e->lock);
  pthread_mutex_unlock(&e->lock);
}

// ---- What is measured: microseconds, or GB/s
static double poller_trip(end *e, size_t bytes) {
  enum { kCount = 1000 };
  uint64_t t = at_clock_ns();
  begin(e, 1);
  send_bytes(e, AT_WIRE_CONTROL, kTurns + 2 * kCount - 1, bytes, true);
  wait_for_answers(e);
  return (double)(at_clock_ns() - t) / 1e3 / kCount;
}

static double thread_trip(end *e, size_t bytes) {
  enum { kCount = 300 };
  uint64_t t = at_clock_ns();
  for (int i = 0; i < kCount; i++) {
    begin(e, 1);
    send_bytes(e, AT_WIRE_CONTROL, kAsk, bytes, true);
    wait_for_answers(e);
  }
  return (double)(at_clock_ns() - t) / 1e3 / kCount;
}

static double in_a_row(end *e, size_t bytes) {
  enum { kDeep = 128, kTimes = 20 };
  uint64_t t = at_clock_ns();
  for (int i = 0; i < kTimes; i++) {
    begin(e, kDeep);
    for (int j = 0; j < kDeep; j++)
      send_bytes(e, AT_WIRE_CONTROL, kAsk, bytes, true);
    wait_for_answers(e);
  }
  return (double)(at_clock_ns() - t) / 1e3 / kDeep / kTimes;
}

static double bandwidth(end *e, size_t bytes) {
  const int count = bench_count(bytes);
  uint64_t t = at_clock_ns();
  begin(e, 1);
  for (int i = 0; i < count; i++)
    send_bytes(e, AT_WIRE_BULK, i + 1 == count ? kAsk : 0, bytes, true);
  wait_for_answers(e);
  return (double)bytes * count / (double)(at_clock_ns() - t);
}

static const char *only;  // measure

static void report(const char *medium, const char *what, size_t bytes, end *e,
                   double (*fn)(end *e, size_t bytes), bool rate) {
  double runs[kRuns];
  if (only && strcmp(only, what)) return;
  fn(e, bytes);
  for (int i = 0; i < kRuns; i++) runs[i] = fn(e, bytes);
  bench_print(medium, what, bytes, runs, rate);
}

static void be_controller(const char *medium, end *e) {
  report(medium, "trip", 8, e, poller_trip, false);
  report(medium, "trip, thread", 8, e, thread_trip, false);
  report(medium, "trip", 256, e, poller_trip, false);
  report(medium, "in a row", 8, e, in_a_row, false);
  report(medium, "in a row", 256, e, in_a_row, false);
  for (size_t bytes = 64 << 10; bytes <= kMost; bytes *= 4)
    report(medium, "bandwidth", bytes, e, bandwidth, true);
  at_wire_counts c;
  at_wire_counts_of(e->w, &c);
  printf(
      "# %s: %llu messages sent, %llu received, %llu system calls, %llu "
      "wakeups, %llu bells, %llu waits\n",
      medium, (unsigned long long)c.sent_messages,
      (unsigned long long)c.received_messages, (unsigned long long)c.syscalls,
      (unsigned long long)c.wakeups, (unsigned long long)c.bells,
      (unsigned long long)c.waits);
  fflush(stdout);
}

// ---- Two processes
static at_status meet_proved(const char *addresses, uint32_t me, bool tls,
                             at_pod_link *links) {
  static const at_token token = {{1}};
  const at_addresses list = {addresses, "addresses"};
  uint64_t strangers;
  int listener;
  AT_TRY(at_address_bind(&list, me, &listener));
  const at_pod_meeting about = {.addresses = &list,
                                .token = &token,
                                .card = {.me = me, .count = 2, .tls = tls},
                                .calls = AT_WIRE_LANES,
                                .listener = listener,
                                .local = true,
                                .until_ns = at_clock_ns() + 30000000000ull};
  at_status st = at_pod_meet(&about, links, &strangers);
  close(listener);
  return st;
}

static at_status open_wire(const char *medium, at_wire_options *o,
                           at_wire **out) {
  const bool tls = !strcmp(medium, "tls");
  at_pod_link links[2 * AT_WIRE_LANES];
  if (!tls && strcmp(medium, "sealed")) return at_wire_open(medium, o, out);
  AT_TRY(meet_proved(o->addresses, o->me, tls, links));
  o->links = links;
  return at_wire_open("tcp", o, out);
}

static int be_end(const char *medium, const char *addresses, const char *group,
                  uint32_t me) {
  end e = {.block = malloc(kMost)};
  memset(e.block, 1, kMost);
  pthread_mutex_init(&e.lock, NULL);
  pthread_cond_init(&e.news, NULL);
  at_wire_options o = {.count = 2,
                       .me = me,
                       .group = group,
                       .addresses = addresses,
                       .meet_ms = 30000,
                       .sink = {&e, place, message, abandon, NULL, lost}};
  at_status st = open_wire(medium, &o, &e.w);
  if (st.err) fprintf(stderr, "%s\n", at_status_message(st));
  if (at_code_take(st)) return 1;
  if (!me) {
    be_controller(medium, &e);
  } else {
    begin(&e, 1);
    wait_for_answers(&e);  // until the other leaves
  }
  at_wire_close(e.w);
  free(e.block);
  return 0;
}

int main(int argc, char **argv) {
  static const char *const media[] = {"shm", "tcp", "sealed", "tls", "ucx"};
  only = argc > 2 ? argv[2] : NULL;
  bench_header();
  for (size_t i = 0; i < sizeof media / sizeof *media; i++) {
    char addresses[64], group[64];
    int status;
    if (argc > 1 ? strcmp(argv[1], media[i]) : !strcmp(media[i], "ucx"))
      continue;
    if (!at_free_addresses(2, addresses, sizeof addresses)) return 1;
    snprintf(group, sizeof group, "bench %d %zu", getpid(), i);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) exit(be_end(media[i], addresses, group, 1));
    if (be_end(media[i], addresses, group, 0)) return 1;
    waitpid(pid, &status, 0);
  }
  return 0;
}
