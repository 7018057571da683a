// UCX under the wire: what it does to the process that it lives in, who is not
// heard, and groups in which not everybody has it. wire_test.c has the rest.
// Where there is no UCX only that is tested.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "pod/wire_carrier.h"

enum {
  kMembers = 3,
  kBig = 3 << 20,
  kEnds = 20,  // of a group
  kWaitMs = 20000,
  kMs = 1000000
};

// Every test forks its processes of one without UCX.
static int exit_code(pid_t pid) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

// 77: there is no UCX.
static int open_ucx(uint32_t me, at_carrier **out) {
  at_status st = at_ucx_open(2, me, true, true, out);
  if (st.err) fprintf(stderr, "no UCX: %s\n", at_status_message(st));
  return at_code_take(st) ? 77 : 0;
}

static void expect_good(int (*fn)(void)) {
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) exit(fn());
  int code = exit_code(pid);
  if (code == 77) skip();
  assert_int_equal(code, 0);
}

// ---- The process
// What its hooks would patch.
static void *const kPatched[] = {mmap, munmap, mremap, madvise, brk, sbrk};
enum { kCode = 16 };

static void read_code(uint8_t out[AT_LEN(kPatched)][kCode]) {
  for (size_t i = 0; i < AT_LEN(kPatched); i++)
    memcpy(out[i], kPatched[i], kCode);
}

static void read_handlers(struct sigaction out[NSIG]) {
  memset(out, 0, NSIG * sizeof *out);
  for (int i = 1; i < NSIG; i++) (void)sigaction(i, NULL, &out[i]);
}

static void on_signal(int signal) { (void)signal; }

static int leaves_alone(void) {
  static struct sigaction before[NSIG], after[NSIG];
  static uint8_t code[2][AT_LEN(kPatched)][kCode];
  at_carrier *c;
  signal(SIGBUS, on_signal);
  read_handlers(before);
  read_code(code[0]);
  int bad = open_ucx(0, &c);
  if (bad) return bad;
  read_handlers(after);
  read_code(code[1]);
  void *memory = dlopen("libucm.so.0", RTLD_LAZY | RTLD_NOLOAD);
  int (*hook)(int, int, void *, void *) =
      memory ? dlsym(memory, "ucm_set_event_handler") : NULL;
  c->vtable->close(c);
  for (int i = 1; i < NSIG; i++)
    if (before[i].sa_handler != after[i].sa_handler) return 1;
  if (memcmp(code[0], code[1], sizeof code[0])) return 2;
  return !hook || !hook(1, 0, NULL, NULL) ? 3 : 0;
}

static void the_process_is_left_alone(void **state) {
  (void)state;
  expect_good(leaves_alone);
}

// ---- Two carriers of one process
typedef struct pair {
  at_carrier *c[2];
} pair;

static void turn_both(pair *p) {
  for (int i = 0; i < 2; i++) (void)p->c[i]->vtable->turn(p->c[i]);
}

// `wrong`: to the bits of the key that carrier 1 says.
static bool introduce(pair *p, uint8_t wrong) {
  uint8_t card[AT_CARRIER_CARD];
  for (uint32_t i = 0; i < 2; i++) {
    size_t n = p->c[!i]->vtable->card(p->c[!i], i, card);
    if (i) card[0] ^= wrong;
    if (at_code_take(p->c[i]->vtable->call(p->c[i], !i, (at_bytes){card, n})))
      return false;
  }
  return true;
}

static bool hear(pair *p, uint32_t who, uint32_t ms) {
  const uint64_t until_ns = at_clock_ns() + (uint64_t)ms * kMs;
  at_carrier *c = p->c[who];
  while (!c->vtable->heard(c, !who) && at_clock_ns() < until_ns) turn_both(p);
  return c->vtable->heard(c, !who);
}

static bool reads(pair *p, uint32_t ms) {
  const uint64_t until_ns = at_clock_ns() + (uint64_t)ms * kMs;
  while (!p->c[0]->vtable->readable(p->c[0], 1) && at_clock_ns() < until_ns)
    turn_both(p);
  return p->c[0]->vtable->readable(p->c[0], 1);
}

// Carrier 1 says something to carrier 0.
static int talk_in_pair(uint8_t wrong) {
  pair p;
  static const char text[] = "a packet";
  const struct iovec v = {(void *)text, sizeof text};
  char got[sizeof text];
  for (uint32_t i = 0; i < 2; i++) {
    int bad = open_ucx(i, &p.c[i]);
    if (bad) return bad;
  }
  if (!introduce(&p, wrong)) return 1;
  if (!hear(&p, 1, kWaitMs)) return 2;
  if (hear(&p, 0, wrong ? 300 : kWaitMs) == (wrong != 0)) return 3;
  p.c[1]->vtable->write(p.c[1], 0, &v, 1);
  p.c[1]->vtable->push(p.c[1], 0);
  if (reads(&p, wrong ? 300 : kWaitMs) == (wrong != 0)) return 4;
  if (at_code_take(p.c[0]->vtable->check(p.c[0], 1))) return 5;
  if (!wrong &&
      (p.c[0]->vtable->read(p.c[0], 1, got, sizeof got) != sizeof got ||
       memcmp(got, text, sizeof got)))
    return 6;
  for (int i = 0; i < 2; i++) p.c[i]->vtable->close(p.c[i]);
  return 0;
}

static int talk_as_member(void) { return talk_in_pair(0); }
static int talk_as_stranger(void) { return talk_in_pair(1); }

static void who_does_not_know_the_key_is_not_heard(void **state) {
  (void)state;
  expect_good(talk_as_member);
  expect_good(talk_as_stranger);
}

// ---- Groups
typedef struct count {
  _Atomic uint64_t bytes, wrong;
} count;

static uint8_t byte_of(uint64_t i) { return (uint8_t)(i * 7 + (i >> 13)); }

static void *place(void *arg, uint32_t from, const at_wire_head *head) {
  (void)arg, (void)from;
  return malloc(head->bytes);
}
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  count *c = arg;
  uint64_t wrong = 0;
  (void)from;
  for (uint64_t i = 0; i < head->bytes; i++)
    wrong += ((uint8_t *)body)[i] != byte_of(i);
  atomic_fetch_add(&c->wrong, wrong);
  atomic_fetch_add(&c->bytes, head->bytes);
  free(body);
  return true;
}
static void abandon(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  (void)arg, (void)from, (void)head;
  free(body);
}
static void lost(void *arg, uint32_t member, at_status why) {
  (void)arg, (void)member;
  at_status_free(why);
}

typedef struct group {
  const char *medium;
  const char *transports[kMembers];  // UCX_TLS of each
  const char *over[kMembers];        // what each says it is; NULL: fails
  bool leaves_open;                  // they end without closing the wire
  char name[64], addresses[96];
  _Atomic uint32_t *done;
} group;

// Everybody sends data to everybody.
static bool talk(at_wire *w, const count *c) {
  uint8_t *p = malloc(kBig);
  bool good = true;
  for (size_t i = 0; i < kBig; i++) p[i] = byte_of(i);
  const at_bytes body = {p, kBig};
  const at_wire_out out = {.num_parts = 1, .parts = &body};
  const at_wire_wait wait = {.until_ns = UINT64_MAX};
  for (uint32_t to = 0; to < kMembers; to++)
    if (to != w->me)
      good &= !at_code_take(
          at_wire_send(w, to, AT_WIRE_BULK, &out, 1, &wait, NULL));
  free(p);
  const uint64_t until_ns = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  const uint64_t all = (uint64_t)(kMembers - 1) * kBig;
  while (atomic_load(&c->bytes) < all && at_clock_ns() < until_ns) usleep(1000);
  return good && atomic_load(&c->bytes) == all && !atomic_load(&c->wrong);
}

static int be_member(const group *g, uint32_t me) {
  static count c;
  at_wire *w;
  setenv("UCX_TLS", g->transports[me], 1);
  const at_wire_options o = {.count = kMembers,
                             .me = me,
                             .group = g->name,
                             .addresses = g->addresses,
                             .meet_ms = kWaitMs,
                             .any_ucx = true,
                             .sink = {&c, place, message, abandon, NULL, lost}};
  at_status st = at_wire_open(g->medium, &o, &w);
  const bool says = st.err && strstr(at_status_message(st),
                                     "do not reach each other over UCX");
  if (st.err) fprintf(stderr, "process %u: %s\n", me, at_status_message(st));
  if (at_code_take(st)) return g->over[me] || !says;
  if (!g->over[me] || strcmp(w->medium, g->over[me])) return 2;
  bool good = talk(w, &c);
  atomic_fetch_add(g->done, 1);
  while (atomic_load(g->done) < kMembers) usleep(1000);
  if (!g->leaves_open) at_wire_close(w);
  return good ? 0 : 3;
}

static void run(group g) {
  static int number;
  pid_t pids[kMembers];
  int bad = 0;
  snprintf(g.name, sizeof g.name, "ucx test %d %d", getpid(), number++);
  assert_true(at_free_addresses(kMembers, g.addresses, sizeof g.addresses));
  g.done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
  fflush(NULL);
  for (uint32_t i = 0; i < kMembers; i++) {
    pids[i] = fork();
    if (!pids[i]) exit(be_member(&g, i));
  }
  for (uint32_t i = 0; i < kMembers; i++) {
    int code = exit_code(pids[i]);
    if (code) print_message("process %u: %d\n", i, code);
    bad |= code;
  }
  munmap((void *)g.done, 4096);
  assert_int_equal(bad, 0);
}

static int is_there(void) {
  at_carrier *c;
  int bad = open_ucx(0, &c);
  if (!bad) c->vtable->close(c);
  return bad;
}

// "absent" finds nothing, "self" nobody else.
static void who_has_no_ucx_gets_data_over_tcp(void **state) {
  (void)state;
  run((group){.medium = "net",
              .transports = {"absent", "absent", "absent"},
              .over = {"tcp", "tcp", "tcp"}});
  expect_good(is_there);
  run((group){.medium = "net",
              .transports = {"tcp", "absent", "tcp"},
              .over = {"ucx", "tcp", "ucx"}});
  run((group){.medium = "net",
              .transports = {"tcp", "tcp", "self"},
              .over = {"ucx", "ucx", "tcp"}});
}

static void who_wants_ucx_is_told_where_it_fails(void **state) {
  (void)state;
  expect_good(is_there);
  run((group){.medium = "ucx", .transports = {"tcp", "self", "tcp"}});
}

// While its poller is still at work.
static void a_process_may_end_with_its_wire_open(void **state) {
  (void)state;
  expect_good(is_there);
  for (int i = 0; i < kEnds; i++)
    run((group){.medium = "ucx",
                .transports = {"tcp", "tcp", "tcp"},
                .over = {"ucx", "ucx", "ucx"},
                .leaves_open = true});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_process_is_left_alone),
      cmocka_unit_test(who_does_not_know_the_key_is_not_heard),
      cmocka_unit_test(who_has_no_ucx_gets_data_over_tcp),
      cmocka_unit_test(who_wants_ucx_is_told_where_it_fails),
      cmocka_unit_test(a_process_may_end_with_its_wire_open),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
