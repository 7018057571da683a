// Sessions over shared memory, TCP and TLS: who gets in, who does not and what
// they are told, strangers of every kind, callers that die and listeners that
// close. No test leaves a descriptor behind.
#include "control/session.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "control/session_internal.h"

enum { kMs = 1000000, kPeers = 64, kSeconds = 60, kStuckMs = 20000 };
static const at_token kToken = {{42}}, kOther = {{43}};

// Fails after kSeconds.
static void wait_until(bool (*holds)(const void *), const void *arg) {
  const uint64_t until_ns = at_clock_ns() + kSeconds * 1000ull * kMs;
  while (!holds(arg)) {
    if (at_clock_ns() > until_ns) fail_msg("it takes too long");
    usleep(1000);
  }
}

// ---- One end of a session
typedef struct end {
  _Atomic uint32_t messages[AT_WIRE_LANES], lost, bad;
  at_wire *w;
} end;

// What byte i of message `tag` has to be.
static uint8_t byte_of(uint64_t tag, uint64_t i) {
  return (uint8_t)(tag * 31 + i * 7 + (i >> 13));
}

static void *end_place(void *arg, uint32_t from, const at_wire_head *h) {
  return malloc(h->bytes);
}

// Messages of a lane have the tags 0, 1, 2, ...
static bool end_message(void *arg, uint32_t from, const at_wire_head *h,
                        void *body) {
  end *e = arg;
  bool good = h->tag == e->messages[h->lane];
  for (uint64_t i = 0; i < h->bytes; i += i < 64 ? 1 : 997)
    good &= ((uint8_t *)body)[i] == byte_of(h->tag, i);
  free(body);
  e->bad += !good;
  e->messages[h->lane]++;
  return true;
}

static void end_abandon(void *arg, uint32_t from, const at_wire_head *h,
                        void *body) {
  free(body);
}

static void end_lost(void *arg, uint32_t member, at_status why) {
  at_status_free(why);
  ((end *)arg)->lost++;
}

static at_wire_sink sink_of(end *e) {
  return (at_wire_sink){e, end_place, end_message, end_abandon, NULL, end_lost};
}

// Waits for room.
static void send_one(end *e, at_wire_lane lane, uint64_t tag, size_t bytes) {
  uint8_t *body = malloc(bytes);
  for (size_t i = 0; i < bytes; i++) body[i] = byte_of(tag, i);
  const at_bytes part = {body, bytes};
  const at_wire_out m = {1, tag, 1, &part};
  const at_wire_wait wait = {at_clock_ns() + kSeconds * 1000ull * kMs, NULL,
                             false};
  at_status st = at_wire_send(e->w, !e->w->me, lane, &m, 1, &wait, NULL);
  if (st.err) fail_msg("%s", at_status_message(st));
  free(body);
}

static bool is_lost(const void *e) { return ((const end *)e)->lost; }

// ---- Who listens
typedef struct house {
  at_listener *l;
  end ends[kPeers];
  at_session_hello hellos[kPeers];
  _Atomic uint32_t asked, opened, broken;
  _Atomic bool open;  // calls may come
  _Atomic uint32_t late;
  at_code refuse;    // AT_OK_CODE: lets in
  uint32_t slow_ms;  // of `ask`
} house;

// Lets in, unless it is told to refuse or to take its time.
static at_status house_ask(void *arg, const at_session_hello *hello,
                           at_wire_sink *sink, void **peer) {
  house *h = arg;
  const uint32_t i = atomic_fetch_add(&h->asked, 1) % kPeers;
  h->late += !h->open;
  h->hellos[i] = *hello;
  if (h->slow_ms) usleep(h->slow_ms * 1000);
  if (h->refuse)
    return AT_FAIL(h->refuse, "no room for %s\nhint: \x1b another day",
                   hello->name);
  *sink = sink_of(&h->ends[i]);
  *peer = &h->ends[i];
  return AT_OK;
}

static void house_opened(void *arg, void *peer, at_wire *w) {
  house *h = arg;
  h->late += !h->open;
  ((end *)peer)->w = w;
  h->opened++;
}

static void house_broken(void *arg, void *peer, at_status why) {
  house *h = arg;
  h->late += !h->open;
  at_status_free(why);
  h->broken++;
}

// Of a listener that keeps what it hears.
static at_listener_options house_options(house *h, const char *address) {
  return (at_listener_options){
      .address = address,
      .source = "the test",
      .token = kToken,
      .stuck_ms = kStuckMs,
      .calls = {h, house_ask, house_opened, house_broken}};
}

// Must open; close_house ends it.
static house *open_house(const char *address) {
  house *h = calloc(1, sizeof *h);
  const at_listener_options o = house_options(h, address);
  h->open = true;
  at_status st = at_listener_open(&o, &h->l);
  if (st.err) fail_msg("%s", at_status_message(st));
  return h;
}

// No call has come after the listener was closed, and every message was right.
static void close_house(house *h) {
  at_listener_close(h->l);
  h->open = false;
  assert_true(h->asked >= h->opened + h->broken);
  for (int i = 0; i < kPeers; i++) {
    at_wire_close(h->ends[i].w);
    assert_int_equal(h->ends[i].bad, 0);
  }
  assert_int_equal(h->late, 0);
  free(h);
}

static uint16_t port_of(const house *h) {
  return (uint16_t)atoi(strrchr(at_listener_address(h->l), ':') + 1);
}

static bool is_opened(const void *h) { return ((const house *)h)->opened; }
static bool is_broken(const void *h) { return ((const house *)h)->broken; }

// ---- Who calls
static at_session_options call_options(const char *address, end *e) {
  return (at_session_options){
      .address = address,
      .source = "the test",
      .token = kToken,
      .hello = {.kind = AT_SESSION_CLIENT, .name = "caller"},
      .timeout_ms = kSeconds * 1000,
      .stuck_ms = kStuckMs,
      .sink = sink_of(e)};
}

// With the options that house_options gives the listener.
static at_status call(const char *address, end *e) {
  const at_session_options o = call_options(address, e);
  return at_session_open(&o, &e->w);
}

// The session must open.
static void must_call(const char *address, end *e) {
  *e = (end){0};
  at_status st = call(address, e);
  if (st.err) fail_msg("%s", at_status_message(st));
}

// With that code and text.
static void assert_refused(at_status st, at_code code, const char *why) {
  if (!st.err || !strstr(at_status_message(st), why))
    fail_msg("not `%s`: %s", why, st.err ? at_status_message(st) : "let in");
  assert_int_equal(at_code_take(st), code);
}

// ---- By hand
static int connect_to(uint16_t port) { return at_connect_here(port, 10); }

static bool readable(const void *p) {
  struct pollfd about = {.fd = ((const at_party *)p)->fd, .events = POLLIN};
  return poll(&about, 1, 0) > 0;
}

// The proof alone, so that what follows can be said wrongly.
static at_proof_state prove_by_hand(at_party *p, uint16_t port, at_card card) {
  static const uint8_t nonces[8][AT_PROOF_NONCE] = {{1}, {2}, {3}, {4}};
  static _Atomic uint32_t next;
  uint8_t nonce[AT_PROOF_NONCE];
  memcpy(nonce, nonces[next++ % 8], sizeof nonce);
  at_status_free(at_random(nonce + 8, sizeof nonce - 8));
  *p = (at_party){.fd = connect_to(port)};
  at_proof_call(&p->proof, &kToken, &card, 0, nonce, at_session_clock_ns());
  assert_true(at_party_say(p));
  at_proof_state state = AT_PROOF_READS;
  while (state == AT_PROOF_READS) {
    wait_until(readable, p);
    state = at_party_hear(p);
  }
  return state;
}

// One that a listener accepts, but for its place.
static at_session_request a_request(void) {
  return (at_session_request){.hello = {.version = AT_SESSION_VERSION,
                                        .kind = AT_SESSION_TOOL,
                                        .id = 77,
                                        .build = at_pod_build(),
                                        .name = "by hand"},
                              .stuck_ms = kStuckMs};
}

// The answer as it came.
static at_session_answer ask_by_hand(at_party *p, const at_session_request *r) {
  at_session_inbox in = {0};
  at_session_answer out = {0};
  at_bytes body;
  assert_true(at_session_say(p, (at_bytes){(const uint8_t *)r, sizeof *r}));
  at_session_news news = AT_SESSION_WAITS;
  while (news == AT_SESSION_WAITS) {
    wait_until(readable, p);
    news = at_session_hear(p, &in, &body);
  }
  assert_int_equal(news, AT_SESSION_CAME);
  assert_int_equal(body.len, sizeof out);
  memcpy(&out, body.ptr, sizeof out);
  return out;
}

// ---- Without a library for TLS
// Returns 0, or which step was wrong.
static int without_tls(void) {
  house h = {.open = true};
  end e = {0};
  at_tls_library = "libnothing.so.0";
  at_listener_options o = house_options(&h, "0.0.0.0:0");
  at_status st = at_listener_open(&o, &h.l);
  if (!st.err || !strstr(at_status_message(st), "is not of this machine"))
    return 1;
  if (at_code_take(st) != AT_FAILED_PRECONDITION) return 2;
  setenv("ATOLL_POD_NETWORK", "trusted", 1);
  st = at_listener_open(&o, &h.l);
  if (st.err) return 3;
  char address[64];
  snprintf(address, sizeof address, "127.0.0.1:%s",
           strrchr(at_listener_address(h.l), ':') + 1);
  st = call(address, &e);
  if (st.err) return 4;
  at_wire_close(e.w);
  setenv("ATOLL_POD_NETWORK", "tls", 1);
  st = call(address, &e);
  if (at_code_take(st) != AT_FAILED_PRECONDITION) return 5;
  at_listener_close(h.l);
  for (int i = 0; i < kPeers; i++) at_wire_close(h.ends[i].w);
  return 0;
}

// In a process of its own, and first: the library is loaded once.
static void networks_are_private_or_trusted(void **state) {
  int status;
  pid_t pid = fork();
  if (!pid) _exit(without_tls());
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

// ---- Who gets in
static bool has_all(const void *arg) {
  const end *e = arg;
  return e->messages[0] == 200 && e->messages[1] == 5;
}

// In both lanes, of several sizes.
static void say_everything(end *e) {
  for (uint64_t i = 0; i < 200; i++)
    send_one(e, AT_WIRE_CONTROL, i, 1 + (size_t)(i * 161 % 30000));
  for (uint64_t i = 0; i < 5; i++)
    send_one(e, AT_WIRE_BULK, i, (size_t)(1 << 20) * (i + 1) * 2);
}

static void messages_go_both_ways(const char *medium) {
  house *h = open_house("127.0.0.1:0");
  end e;
  must_call(at_listener_address(h->l), &e);
  wait_until(is_opened, h);
  end *other = &h->ends[0];
  assert_string_equal(e.w->medium, medium);
  assert_string_equal(other->w->medium, medium);
  assert_true(e.w->me == 1 && other->w->me == 0);
  assert_string_equal(h->hellos[0].name, "caller");
  assert_int_equal(h->hellos[0].pid, getpid());
  assert_true(h->hellos[0].id && h->hellos[0].kind == AT_SESSION_CLIENT);
  say_everything(&e);
  say_everything(other);
  wait_until(has_all, &e);
  wait_until(has_all, other);
  assert_int_equal(e.bad, 0);
  at_wire_close(e.w);
  wait_until(is_lost, other);
  assert_int_equal(at_listener_strangers(h->l), 0);
  close_house(h);
}

static void over_shared_memory(void **state) { messages_go_both_ways("shm"); }

static void over_tcp(void **state) {
  setenv("ATOLL_POD_WIRE", "tcp", 1);
  messages_go_both_ways("tcp");
}

static void over_tls(void **state) {
  setenv("ATOLL_POD_NETWORK", "tls", 1);
  messages_go_both_ways("shm");
  setenv("ATOLL_POD_WIRE", "tcp", 1);
  messages_go_both_ways("tcp");
}

typedef struct caller {
  const char *address;
  end e;
  at_status st;
  pthread_t thread;
} caller;

static void *be_caller(void *arg) {
  caller *c = arg;
  c->st = call(c->address, &c->e);
  return NULL;
}

// Many at the same time.
static void start_callers(caller *c, int n, const char *address) {
  for (int i = 0; i < n; i++) {
    c[i] = (caller){.address = address};
    assert_false(pthread_create(&c[i].thread, NULL, be_caller, &c[i]));
  }
}

// All get in, over either medium.
static void twenty_come_at_once(void **state) {
  enum { kCallers = 20 };
  static caller c[kCallers];
  for (int tcp = 0; tcp < 2; tcp++) {
    if (tcp) setenv("ATOLL_POD_WIRE", "tcp", 1);
    house *h = open_house("127.0.0.1:0");
    start_callers(c, kCallers, at_listener_address(h->l));
    for (int i = 0; i < kCallers; i++) {
      pthread_join(c[i].thread, NULL);
      if (c[i].st.err) fail_msg("%s", at_status_message(c[i].st));
      send_one(&c[i].e, AT_WIRE_BULK, 0, 100000);
    }
    for (int i = 0; i < kCallers; i++) at_wire_close(c[i].e.w);
    for (int i = 0; i < kCallers; i++) {
      wait_until(is_lost, &h->ends[i]);
      assert_int_equal(h->ends[i].messages[AT_WIRE_BULK], 1);
    }
    assert_int_equal(h->opened, kCallers);
    close_house(h);
  }
}

// The caller is first, and goes on calling.
static void listeners_may_be_late(void **state) {
  char address[64];
  static caller c;
  assert_true(at_free_addresses(1, address, sizeof address));
  start_callers(&c, 1, address);
  usleep(300000);
  house *h = open_house(address);
  pthread_join(c.thread, NULL);
  if (c.st.err) fail_msg("%s", at_status_message(c.st));
  assert_string_equal(at_listener_address(h->l), address);
  at_wire_close(c.e.w);
  close_house(h);
}

// Any address of the machine: named as it was given.
static void wildcards_keep_their_name(void **state) {
  house *h = open_house("0.0.0.0:0");
  char address[64];
  end e;
  assert_true(!strncmp(at_listener_address(h->l), "0.0.0.0:", 8));
  assert_true(port_of(h));
  snprintf(address, sizeof address, "localhost:%u", port_of(h));
  must_call(address, &e);
  at_wire_close(e.w);
  close_house(h);
}

// In the address that callers are told.
static void numbers_of_ipv6_have_brackets(void **state) {
  house h = {.open = true};
  end e;
  const at_listener_options o = house_options(&h, "[::1]:0");
  at_status st = at_listener_open(&o, &h.l);
  if (st.err) {  // a machine without
    assert_int_equal(at_code_take(st), AT_UNAVAILABLE);
    skip();
  }
  assert_true(!strncmp(at_listener_address(h.l), "[::1]:", 6));
  must_call(at_listener_address(h.l), &e);
  at_wire_close(e.w);
  at_listener_close(h.l);
  at_wire_close(h.ends[0].w);
}

// ---- Who does not
// The listener's owner never hears of it.
static void another_token_is_a_stranger(void **state) {
  house *h = open_house("127.0.0.1:0");
  end e = {0};
  at_session_options o = call_options(at_listener_address(h->l), &e);
  o.token = kOther;
  o.timeout_ms = 300;
  assert_refused(at_session_open(&o, &e.w), AT_PERMISSION_DENIED,
                 "but has not proved that they know the token");
  assert_null(e.w);
  assert_true(at_listener_strangers(h->l) > 0);
  assert_int_equal(h->asked, 0);
  close_house(h);
}

static bool at_once(void) { return true; }

// Told apart from an interruption and from an address that is none.
static void nobody_listens(void **state) {
  char address[64];
  end e = {0};
  assert_true(at_free_addresses(1, address, sizeof address));
  at_session_options o = call_options(address, &e);
  o.timeout_ms = 200;
  assert_refused(at_session_open(&o, &e.w), AT_UNAVAILABLE,
                 "nobody listens at 127.0.0.1:");
  o.interrupted = at_once;
  assert_refused(at_session_open(&o, &e.w), AT_CANCELLED, "interrupted");
  o.address = "nothing";
  assert_refused(at_session_open(&o, &e.w), AT_INVALID_ARGUMENT,
                 "the test: nothing is not host:port");
}

// What at_listener_open refuses.
static void addresses_are_of_one_listener(void **state) {
  static const struct {
    const char *address;
    at_code code;
    const char *why;
  } cases[] = {
      {"nothing", AT_INVALID_ARGUMENT, "is not host:port"},
      {"127.0.0.1:1,127.0.0.1:2", AT_INVALID_ARGUMENT, "is not one host:port"},
      {"192.0.2.1:0", AT_UNAVAILABLE, "cannot listen"}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    house h = {0};
    const at_listener_options o = house_options(&h, cases[i].address);
    assert_refused(at_listener_open(&o, &h.l), cases[i].code, cases[i].why);
  }
}

// Code and text of `ask` reach the caller, without control characters.
static void refusals_travel(void **state) {
  house *h = open_house("127.0.0.1:0");
  end e = {0};
  h->refuse = AT_ALREADY_EXISTS;
  assert_refused(call(at_listener_address(h->l), &e), AT_ALREADY_EXISTS,
                 "no room for caller\nhint: ? another day");
  assert_int_equal(h->asked, 1);
  assert_int_equal(h->opened + h->broken, 0);
  close_house(h);
}

// Both ends must lay out the wire alike.
static void other_options_are_refused(void **state) {
  house *h = open_house("127.0.0.1:0");
  end e = {0};
  at_session_options o = call_options(at_listener_address(h->l), &e);
  o.max_bytes = 1000;
  assert_refused(at_session_open(&o, &e.w), AT_FAILED_PRECONDITION,
                 "max_bytes is 1000 for who calls, 0 for who listens");
  o.max_bytes = 0;
  o.hello.kind = 99;
  assert_refused(at_session_open(&o, &e.w), AT_FAILED_PRECONDITION,
                 "no such kind of process");
  assert_int_equal(h->asked, 0);
  close_house(h);
}

// Another version, another build, and a process of a job.
static void other_versions_are_told(void **state) {
  house *h = open_house("127.0.0.1:0");
  at_session_request r = a_request();
  at_party p;
  r.hello.version = 2;
  const at_card card = at_session_card(1, 0, false);
  assert_int_equal(prove_by_hand(&p, port_of(h), card), AT_PROOF_MET);
  at_session_answer a = ask_by_hand(&p, &r);
  assert_int_equal(a.code, AT_FAILED_PRECONDITION);
  assert_non_null(strstr(a.text, "other versions of Atoll: 2 there, 1 here"));
  at_party_drop(&p);
  r = a_request();
  r.hello.build++;
  assert_int_equal(prove_by_hand(&p, port_of(h), card), AT_PROOF_MET);
  a = ask_by_hand(&p, &r);
  assert_int_equal(a.code, AT_FAILED_PRECONDITION);
  assert_non_null(strstr(a.text, "(by hand) has another build of Atoll"));
  at_party_drop(&p);
  // Whoever else knows the token is no caller.
  const at_card process = {.me = 1, .count = 3};
  assert_int_equal(prove_by_hand(&p, port_of(h), process), AT_PROOF_REFUSED);
  at_party_drop(&p);
  assert_int_equal(h->asked, 0);
  close_house(h);
}

// ---- Strangers
// What a kind says; 0: it hangs up, 1: nothing, 2 and on: bytes.
static size_t words_of(int kind, uint8_t out[4096]) {
  static const char kHttp[] = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
  at_status_free(at_random(out, 4096));
  memcpy(out, "atollpo2", kind >= 4 ? 8 : 0);
  if (kind == 2) memcpy(out, kHttp, sizeof kHttp);
  static const size_t sizes[] = {0, 0, sizeof kHttp, 4096, 60, AT_PROOF_HELLO};
  return sizes[kind];
}

typedef struct crowd {
  uint16_t port;
  _Atomic uint32_t came;
  _Atomic uint64_t heard;  // bytes that any of them got
  _Atomic bool stop;
} crowd;

// Hundreds of connections that are slow, silent or talk nonsense, again and
// again.
static void *be_strangers(void *arg) {
  enum { kOpen = 300, kKinds = 6 };
  static int fds[kOpen];
  crowd *c = arg;
  uint8_t words[4096];
  memset(fds, -1, sizeof fds);
  for (uint32_t i = 0; !c->stop; i++) {
    int *fd = &fds[i % kOpen];
    if (*fd >= 0 && recv(*fd, words, sizeof words, MSG_DONTWAIT) > 0)
      c->heard++;
    if (*fd >= 0) close(*fd);
    *fd = connect_to(c->port);
    c->came++;
    size_t n = words_of((int)(i % kKinds), words);
    if (n) (void)send(*fd, words, n, MSG_NOSIGNAL);
    if (i % kKinds || *fd < 0) continue;
    close(*fd);
    *fd = -1;
  }
  for (int i = 0; i < kOpen; i++)
    if (fds[i] >= 0) close(fds[i]);
  return NULL;
}

static bool has_come(const void *c) { return ((const crowd *)c)->came > 1500; }

// Callers get in beside them, within seconds, and strangers get no byte.
static void strangers_change_nothing(void **state) {
  house *h = open_house("127.0.0.1:0");
  crowd c = {.port = port_of(h)};
  pthread_t thread;
  assert_false(pthread_create(&thread, NULL, be_strangers, &c));
  wait_until(has_come, &c);
  for (int tcp = 0; tcp < 2; tcp++) {
    const uint64_t before_ns = at_clock_ns();
    end e;
    if (tcp) setenv("ATOLL_POD_WIRE", "tcp", 1);
    must_call(at_listener_address(h->l), &e);
    assert_true(at_clock_ns() - before_ns < 10000ull * kMs);
    at_wire_close(e.w);
  }
  c.stop = true;
  pthread_join(thread, NULL);
  assert_int_equal(c.heard, 0);
  assert_true(at_listener_strangers(h->l) > 500);
  close_house(h);
}

// The first message of a proof works once, and only while it is fresh.
static void repeated_words_get_nothing(void **state) {
  house *h = open_house("127.0.0.1:0");
  at_party p = {.fd = connect_to(port_of(h))};
  const at_card card = at_session_card(1, 0, false);
  uint8_t nonce[AT_PROOF_NONCE] = {9}, words[AT_PROOF_HELLO], more[256];
  at_proof_call(&p.proof, &kToken, &card, 0, nonce, at_session_clock_ns());
  at_bytes first = at_proof_take(&p.proof);
  assert_int_equal(first.len, sizeof words);
  memcpy(words, first.ptr, sizeof words);
  for (int again = 0; again < 3; again++) {
    assert_int_equal(send(p.fd, words, sizeof words, 0), sizeof words);
    ssize_t n = recv(p.fd, more, sizeof more, 0);
    assert_int_equal(AT_MAX(n, 0), again ? 0 : AT_PROOF_HELLO);
    close(p.fd);
    p.fd = connect_to(port_of(h));
  }
  // Nor is one answered that is minutes old.
  nonce[0]++;
  at_proof_call(&p.proof, &kToken, &card, 0, nonce,
                at_session_clock_ns() - 120000ull * kMs);
  assert_true(at_party_say(&p));
  assert_true(recv(p.fd, more, sizeof more, 0) <= 0);
  close(p.fd);
  close_house(h);
}

// ---- Ends
// Over TCP, the caller goes before its second connection has come.
static void callers_may_think_better_of_it(void **state) {
  house *h = open_house("127.0.0.1:0");
  const at_session_request r = a_request();  // shares no memory
  at_party p;
  const at_card card = at_session_card(1, 0, false);
  assert_int_equal(prove_by_hand(&p, port_of(h), card), AT_PROOF_MET);
  at_session_answer a = ask_by_hand(&p, &r);
  assert_int_equal(a.code, 0);
  assert_int_equal(a.medium, AT_SESSION_TCP);
  assert_int_equal(h->broken, 0);
  at_party_drop(&p);
  wait_until(is_broken, h);
  assert_int_equal(h->asked, 1);
  // A second connection of no session is turned away.
  at_session_request bulk = r;
  bulk.lane = AT_WIRE_BULK;
  assert_int_equal(prove_by_hand(&p, port_of(h), card), AT_PROOF_MET);
  a = ask_by_hand(&p, &bulk);
  assert_int_equal(a.code, AT_DEADLINE_EXCEEDED);
  at_party_drop(&p);
  close_house(h);
}

// A child: calls, answers once, and waits to be killed.
static void call_and_wait(int from) {
  char address[64] = {0};
  end e = {0};
  if (read(from, address, sizeof address) <= 0) _exit(1);
  at_status st = call(address, &e);
  if (st.err) _exit(2);
  while (!e.messages[AT_WIRE_CONTROL]) usleep(1000);
  send_one(&e, AT_WIRE_CONTROL, 0, 10);
  for (;;) pause();
}

static bool has_spoken(const void *e) { return ((const end *)e)->messages[0]; }

// The listener's end hears of it over either medium.
static void killed_callers_are_lost(void **state) {
  for (int tcp = 0; tcp < 2; tcp++) {
    int to[2], status;
    if (tcp) setenv("ATOLL_POD_WIRE", "tcp", 1);
    assert_false(pipe(to));
    pid_t pid = fork();  // of one that has no threads now
    if (!pid) call_and_wait(to[0]);
    house *h = open_house("127.0.0.1:0");
    const char *address = at_listener_address(h->l);
    assert_true(write(to[1], address, strlen(address)) > 0);
    wait_until(is_opened, h);
    send_one(&h->ends[0], AT_WIRE_CONTROL, 0, 10);
    wait_until(has_spoken, &h->ends[0]);  // so its poller is there
    assert_int_equal(h->ends[0].lost, 0);
    kill(pid, SIGKILL);
    wait_until(is_lost, &h->ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(to[0]), close(to[1]);
    close_house(h);
  }
}

// Whoever is on the way in gets in or hears of it in time, and nothing is
// called any more (close_house).
static void closing_is_no_accident(void **state) {
  enum { kCallers = 12 };
  static caller c[kCallers];
  for (int tcp = 0; tcp < 2; tcp++) {
    if (tcp) setenv("ATOLL_POD_WIRE", "tcp", 1);
    for (uint32_t slow_ms = 0; slow_ms < 60; slow_ms += 20) {
      house *h = open_house("127.0.0.1:0");
      char address[64];
      snprintf(address, sizeof address, "%s", at_listener_address(h->l));
      h->slow_ms = slow_ms;
      for (int i = 0; i < kCallers; i++) c[i] = (caller){.address = address};
      start_callers(c, kCallers, address);
      usleep(10000);
      at_listener_close(h->l);
      h->l = NULL;
      h->open = false;
      house *later = open_house(address);  // lets in who is left
      for (int i = 0; i < kCallers; i++) {
        pthread_join(c[i].thread, NULL);
        at_wire_close(c[i].e.w);
        at_status_free(c[i].st);
      }
      close_house(h);
      close_house(later);
    }
  }
}

// ---- Descriptors
static int count_fds(void) {
  DIR *d = opendir("/proc/self/fd");
  int n = 0;
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

// Each test begins with the default wire and network.
static int setup(void **state) {
  static int before;
  unsetenv("ATOLL_POD_WIRE");
  unsetenv("ATOLL_POD_NETWORK");
  before = count_fds();
  *state = &before;
  return 0;
}

// As many descriptors as before the test.
static int teardown(void **state) {
  int now = count_fds();
  if (now == *(int *)*state) return 0;
  print_error("%d descriptors before, %d behind\n", *(int *)*state, now);
  return 1;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(networks_are_private_or_trusted),
      TEST(killed_callers_are_lost),
      TEST(over_shared_memory),
      TEST(over_tcp),
      TEST(over_tls),
      TEST(twenty_come_at_once),
      TEST(listeners_may_be_late),
      TEST(wildcards_keep_their_name),
      TEST(numbers_of_ipv6_have_brackets),
      TEST(another_token_is_a_stranger),
      TEST(nobody_listens),
      TEST(addresses_are_of_one_listener),
      TEST(refusals_travel),
      TEST(other_options_are_refused),
      TEST(other_versions_are_told),
      TEST(strangers_change_nothing),
      TEST(repeated_words_get_nothing),
      TEST(callers_may_think_better_of_it),
      TEST(closing_is_no_accident),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
