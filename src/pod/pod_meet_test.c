// Processes that meet, in clear and over TLS, while strangers of every kind are
// at their ports, and what strangers get; who is between them; tokens.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "pod/meet.h"
#include "pod/token.h"

enum { kSeconds = 30, kStrangers = 1000, kKinds = 7 };
static const at_token kToken = {{42}};

// ---- Places
// A socket that is bound but does not listen yet; *port 0: any, which is
// written back.
static int socket_at(uint16_t *port) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons(*port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  assert_true(!bind(fd, (void *)&at, len) &&
              !getsockname(fd, (void *)&at, &len));
  *port = ntohs(at.sin_port);
  return fd;
}

static int connect_to(uint16_t port) { return at_connect_here(port, 5); }

// A process of two that meets in a thread.
typedef struct member {
  uint32_t me;
  bool tls;
  const at_token *token;
  int listener;
  char addresses[64];
  uint32_t seconds;
  at_pod_link links[2];
  uint64_t strangers;
  at_status st;
  pthread_t thread;
} member;

// A member's thread. *m has the links or the status afterwards.
static void *meet(void *arg) {
  member *m = arg;
  const at_addresses list = {m->addresses, "addresses"};
  const at_pod_meeting about = {
      .addresses = &list,
      .token = m->token,
      .card = {.me = m->me, .count = 2, .tls = m->tls},
      .calls = 1,
      .listener = m->listener,
      .local = true,
      .until_ns = at_clock_ns() + m->seconds * 1000000000ull};
  m->st = at_pod_meet(&about, m->links, &m->strangers);
  return NULL;
}

static bool g_tls;  // of the test that runs

// Prepares member `me`, which listens at fd.
static void begin(member *m, uint32_t me, const uint16_t ports[2], int fd) {
  *m = (member){.me = me,
                .tls = g_tls,
                .token = &kToken,
                .listener = fd,
                .seconds = kSeconds};
  snprintf(m->addresses, sizeof m->addresses, "127.0.0.1:%u,127.0.0.1:%u",
           ports[0], ports[1]);
}

// The member meets in its thread; end waits for it.
static void start(member *m) {
  assert_false(pthread_create(&m->thread, NULL, meet, m));
}

static void end(member *m) {
  pthread_join(m->thread, NULL);
  close(m->listener);
}

// Links that were never made are none.
static void hang_up(member *m) {
  for (int h = 0; h < 2; h++) at_pod_link_close(&m->links[h]);
}

static size_t fd_read(void *arg, void *to, size_t n) {
  ssize_t k = recv(((at_pod_link *)arg)->fd, to, n, 0);
  return k > 0 ? (size_t)k : 0;
}

static bool fd_write(void *arg, const void *p, size_t n) {
  return write(((at_pod_link *)arg)->fd, p, n) == (ssize_t)n;
}

// A word goes with its seal, which the other end's seal must accept.
static void pass_sealed(at_pod_link *from, at_pod_link *to) {
  uint8_t seal[AT_SEAL_BYTES], got[AT_SEAL_BYTES + 4];
  at_seal_next(&from->send, &(at_bytes){(const uint8_t *)"word", 4}, 1, seal);
  assert_int_equal(write(from->fd, "word", 4), 4);
  assert_int_equal(write(from->fd, seal, sizeof seal), sizeof seal);
  assert_int_equal(recv(to->fd, got, sizeof got, MSG_WAITALL), sizeof got);
  assert_true(at_seal_check(&to->recv, (at_bytes){got, 4}, got + 4));
}

// A word goes through both ends' TLS.
static void pass_encrypted(at_pod_link *from, at_pod_link *to) {
  const at_tls_io in = {to, fd_read, NULL}, out = {from, NULL, fd_write};
  const struct iovec v = {"word", 4};
  char got[4];
  size_t n;
  assert_true(at_tls_write(from->tls, &out, &v, 1));
  assert_true(at_tls_read(to->tls, &in, got, 4, &n));
  assert_int_equal(n, 4);
  assert_memory_equal(got, "word", 4);
}

// The two have met: a word goes each way.
static void assert_met(member m[2]) {
  for (int i = 0; i < 2; i++) {
    if (m[i].st.err) fail_msg("%d: %s", i, at_status_message(m[i].st));
    assert_true(m[i].links[!i].fd >= 0 && m[i].links[i].fd < 0);
  }
  for (int i = 0; i < 2; i++) {
    at_pod_link *from = &m[i].links[!i], *to = &m[!i].links[i];
    assert_int_equal(from->tls != NULL, g_tls);
    (g_tls ? pass_encrypted : pass_sealed)(from, to);
  }
}

// ---- Strangers
// What a kind says; 0: it hangs up, 1: nothing, 2 and on: bytes.
static size_t words_of(int kind, uint8_t out[4096]) {
  static const char kHttp[] = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
  at_status_free(at_random(out, 4096));
  switch (kind) {
    case 2:
      memcpy(out, kHttp, sizeof kHttp);
      return sizeof kHttp;
    case 3:
      return 4096;
    case 4:
      return 1;
    case 5:  // half a hello
      memcpy(out, "atollpo2", 8);
      return 60;
    case 6:  // a whole one of somebody without the token
      memcpy(out, "atollpo2", 8);
      return AT_PROOF_HELLO;
    default:
      return 0;
  }
}

typedef struct crowd {
  uint16_t port;
  _Atomic uint32_t came;
  _Atomic uint64_t heard;  // bytes that any of them got
  _Atomic bool stop;
} crowd;

// Keeps up to kOpen connections to the port, each of which behaves as its kind
// does, and counts what they get to hear.
static void *be_strangers(void *arg) {
  crowd *c = arg;
  enum { kOpen = 300 };
  static int fds[kOpen];
  uint8_t words[4096];
  memset(fds, -1, sizeof fds);
  for (uint32_t i = 0; i < kStrangers * kKinds && !c->stop; i++) {
    int *fd = &fds[i % kOpen];
    if (*fd >= 0) {
      ssize_t n = recv(*fd, words, sizeof words, MSG_DONTWAIT);
      if (n > 0) c->heard += (uint64_t)n;
      close(*fd);
    }
    *fd = connect_to(c->port);
    if (*fd < 0) break;  // the meeting is over
    c->came++;
    size_t n = words_of((int)(i % kKinds), words);
    if (n && send(*fd, words, n, MSG_NOSIGNAL) < 0) continue;
    if (i % kKinds) continue;
    close(*fd);
    *fd = -1;
  }
  for (int i = 0; i < kOpen; i++)
    if (fds[i] >= 0) close(fds[i]);
  return NULL;
}

// Strangers hear not one byte, and the two that know the token meet within
// seconds.
static void thousands_of_strangers_change_nothing(void **state) {
  member m[2];
  uint16_t ports[2] = {0, 0};
  int fds[2] = {socket_at(&ports[0]), socket_at(&ports[1])};
  crowd c = {.port = ports[0]};
  pthread_t crowd_thread;
  begin(&m[0], 0, ports, fds[0]);
  begin(&m[1], 1, ports, fds[1]);
  start(&m[0]);
  while (connect_to(ports[0]) < 0) usleep(1000);  // one more, who stays
  pthread_create(&crowd_thread, NULL, be_strangers, &c);
  while (c.came < kStrangers * kKinds / 2) usleep(1000);
  // Among them the other process comes, and the two meet at once.
  uint64_t before = at_clock_ns();
  start(&m[1]);
  end(&m[1]);
  assert_true(at_clock_ns() - before < 5000000000ull);
  end(&m[0]);
  c.stop = true;
  pthread_join(crowd_thread, NULL);
  assert_met(m);
  assert_int_equal(c.heard, 0);
  assert_true(m[0].strangers >= kStrangers);
  hang_up(&m[0]), hang_up(&m[1]);
}

// More that say nothing than there are places: the places go round.
static void silence_costs_nobody_a_place(void **state) {
  enum { kSilent = 900 };
  static int silent[kSilent];
  member m[2];
  uint16_t ports[2] = {0, 0};
  int fds[2] = {socket_at(&ports[0]), socket_at(&ports[1])};
  begin(&m[0], 0, ports, fds[0]);
  begin(&m[1], 1, ports, fds[1]);
  start(&m[0]);
  for (int i = 0; i < kSilent; i++)
    while ((silent[i] = connect_to(ports[0])) < 0) usleep(1000);
  uint64_t before = at_clock_ns();
  start(&m[1]);
  end(&m[0]), end(&m[1]);
  assert_true(at_clock_ns() - before < 5000000000ull);
  assert_met(m);
  for (int i = 0; i < kSilent; i++) close(silent[i]);
  hang_up(&m[0]), hang_up(&m[1]);
}

// In the place of process 0: says back what it hears, keeps a recording, plays
// that to the real one, which comes later.
static void imposters_get_nothing(void **state) {
  member m[2];
  uint16_t ports[2] = {0, 0};
  int fake = socket_at(&ports[0]), other = socket_at(&ports[1]);
  uint8_t hello[AT_PROOF_HELLO], more[64];
  assert_false(listen(fake, 16));
  begin(&m[1], 1, ports, other);
  start(&m[1]);
  for (int i = 0; i < 3; i++) {
    int fd = accept(fake, NULL, NULL);
    assert_int_equal(recv(fd, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_true(recv(fd, more, sizeof more, 0) <= 0);  // not a byte more
    close(fd);
  }
  close(fake);
  begin(&m[0], 0, ports, socket_at(&ports[0]));
  start(&m[0]);
  for (bool heard = false; !heard;) {
    int fd = connect_to(ports[0]);
    if (fd < 0) {
      if (m[1].links[0].fd > 0) break;  // they have met already
      usleep(1000);
      continue;
    }
    (void)send(fd, hello, sizeof hello, MSG_NOSIGNAL);
    assert_true(recv(fd, more, sizeof more, 0) <= 0);
    close(fd);
    heard = true;
  }
  end(&m[0]), end(&m[1]);
  assert_met(m);
  hang_up(&m[0]), hang_up(&m[1]);
}

// Both hear that the other did not prove itself, and neither that it was close.
static void another_token_is_a_stranger(void **state) {
  static const at_token other = {{43}};
  member m[2];
  uint16_t ports[2] = {0, 0};
  int fds[2] = {socket_at(&ports[0]), socket_at(&ports[1])};
  for (uint32_t i = 0; i < 2; i++) {
    begin(&m[i], i, ports, fds[i]);
    m[i].seconds = 1;
  }
  m[1].token = &other;
  start(&m[0]), start(&m[1]);
  end(&m[0]), end(&m[1]);
  assert_true(m[0].strangers > 0);
  assert_non_null(strstr(at_status_message(m[0].st), "process 1 did not come"));
  assert_non_null(
      strstr(at_status_message(m[0].st), "did not prove that they know"));
  for (int i = 0; i < 2; i++) {
    assert_int_equal(at_code_take(m[i].st), AT_DEADLINE_EXCEEDED);
    hang_up(&m[i]);
  }
}

// ---- Who is between
// Carries what process 1 and process 0 say to each other, but changes byte `at`
// (from 0) of what 1 says in the first `connections`.
typedef struct between {
  int listener;
  uint16_t to;
  size_t at;
  uint32_t connections;
  _Atomic uint32_t came;
  _Atomic bool stop;
} between;

// One connection, in both directions, until one side is through.
static void carry(between *b, int caller, int listener, size_t at) {
  struct pollfd p[2] = {{caller, POLLIN, 0}, {listener, POLLIN, 0}};
  uint8_t bytes[4096];
  size_t said = 0;
  while (!b->stop) {
    if (poll(p, 2, 20) <= 0) continue;
    for (int i = 0; i < 2; i++) {
      if (!p[i].revents) continue;
      ssize_t n = recv(p[i].fd, bytes, sizeof bytes, 0);
      if (n <= 0) return;
      if (!i && at >= said && at < said + (size_t)n) bytes[at - said] ^= 1;
      said += i ? 0 : (size_t)n;
      if (send(p[!i].fd, bytes, (size_t)n, MSG_NOSIGNAL) != n) return;
    }
  }
}

// Takes calls at its own door and passes them on; changes bytes in the first of
// them.
static void *be_between(void *arg) {
  between *b = arg;
  while (!b->stop) {
    struct pollfd p = {b->listener, POLLIN, 0};
    if (poll(&p, 1, 20) <= 0) continue;
    int caller = accept(b->listener, NULL, NULL), to = connect_to(b->to);
    if (to >= 0)
      carry(b, caller, to, b->came++ < b->connections ? b->at : SIZE_MAX);
    close(caller);
    if (to >= 0) close(to);
  }
  return NULL;
}

// Behind the proof it is TLS that a changed byte breaks; the next call is as
// good as the first.
static void who_changes_bytes_is_outlived(void **state) {
  static const size_t kProved = AT_PROOF_HELLO + AT_PROOF_ANSWER;
  const size_t at[] = {100, AT_PROOF_HELLO + 5, kProved + 20, kProved + 150};
  for (size_t i = 0; i < (g_tls ? AT_LEN(at) : 2); i++) {
    member m[2];
    uint16_t ports[2] = {0, 0}, door = 0;
    int fds[2] = {socket_at(&ports[0]), socket_at(&ports[1])};
    between b = {.listener = socket_at(&door), .to = ports[0], .at = at[i], 2};
    const uint16_t seen[2] = {door, ports[1]};
    pthread_t thread;
    assert_false(listen(b.listener, 16));
    begin(&m[0], 0, ports, fds[0]);
    begin(&m[1], 1, seen, fds[1]);
    start(&m[0]), start(&m[1]);
    pthread_create(&thread, NULL, be_between, &b);
    end(&m[0]), end(&m[1]);
    assert_met(m);
    b.stop = true;
    pthread_join(thread, NULL);
    close(b.listener);
    assert_true(b.came >= 3);
    hang_up(&m[0]), hang_up(&m[1]);
  }
}

// Where every call fails, that is said.
static void broken_handshakes_are_told(void **state) {
  member m[2];
  uint16_t ports[2] = {0, 0}, door = 0;
  int fds[2] = {socket_at(&ports[0]), socket_at(&ports[1])};
  between b = {.listener = socket_at(&door),
               .to = ports[0],
               .at = AT_PROOF_HELLO + AT_PROOF_ANSWER + 20,
               .connections = UINT32_MAX};
  const uint16_t seen[2] = {door, ports[1]};
  pthread_t thread;
  assert_false(listen(b.listener, 16));
  begin(&m[0], 0, ports, fds[0]);
  begin(&m[1], 1, seen, fds[1]);
  m[0].seconds = m[1].seconds = 1;
  start(&m[0]), start(&m[1]);
  pthread_create(&thread, NULL, be_between, &b);
  end(&m[0]), end(&m[1]);
  b.stop = true;
  pthread_join(thread, NULL);
  close(b.listener);
  for (int i = 0; i < 2; i++) {
    const char *text = at_status_message(m[i].st);
    assert_non_null(strstr(text, "ended in the handshake of TLS; the last: "));
    assert_int_equal(at_code_take(m[i].st), AT_DEADLINE_EXCEEDED);
    hang_up(&m[i]);
  }
}

// One wants TLS, the other does not: both hear of it, whoever calls.
static void in_clear_is_not_agreed_on(void **state) {
  for (int who = 0; who < 2; who++) {
    member m[2];
    uint16_t ports[2] = {0, 0};
    int fds[2] = {socket_at(&ports[0]), socket_at(&ports[1])};
    for (uint32_t i = 0; i < 2; i++) {
      begin(&m[i], i, ports, fds[i]);
      m[i].tls = (int)i == who;
    }
    start(&m[0]), start(&m[1]);
    end(&m[0]), end(&m[1]);
    for (int i = 0; i < 2; i++) {
      const char *text = at_status_message(m[i].st);
      assert_non_null(strstr(text, i == who ? "it talks in clear, this one over"
                                            : "it talks over TLS, this one"));
      assert_non_null(strstr(text, "hint: set ATOLL_POD_NETWORK"));
      assert_int_equal(at_code_take(m[i].st), AT_FAILED_PRECONDITION);
      hang_up(&m[i]);
    }
  }
}

// ---- Tokens
static void write_file(const char *path, const char *text, mode_t mode) {
  unlink(path);
  FILE *f = fopen(path, "w");
  fputs(text, f);
  fclose(f);
  chmod(path, mode);
}

// Who may read the file decides, before what is in it. A user's token is made
// once, however many processes ask for it at the same time.
static void tokens_are_of_private_files(void **state) {
  char folder[] = "/tmp/atoll_token_XXXXXX", path[64], deep[96];
  at_token a, b;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/token", folder);
  snprintf(deep, sizeof deep, "%s/a/b/pod.token", folder);
  static const struct {
    const char *text;
    mode_t mode;
    at_code code;
    const char *why;
  } cases[] = {{"0123456789abcdef\n", 0600, AT_OK_CODE, ""},
               {"0123456789abcdef", 0400, AT_OK_CODE, ""},
               {"0123456789abcdef", 0640, AT_PERMISSION_DENIED, "chmod 600"},
               {"0123456789abcdef", 0604, AT_PERMISSION_DENIED, "chmod 600"},
               {"0123456789abcde\n\n", 0600, AT_INVALID_ARGUMENT, "has 15"},
               {"", 0600, AT_INVALID_ARGUMENT, "has 0"}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    write_file(path, cases[i].text, cases[i].mode);
    at_status st = at_token_read(path, "KNOB", i ? &b : &a);
    assert_true(!*cases[i].why || strstr(at_status_message(st), cases[i].why));
    assert_int_equal(at_code_take(st), cases[i].code);
    if (i == 1) assert_memory_equal(&a, &b, sizeof a);
  }
  assert_int_equal(at_code_take(at_token_read(deep, "KNOB", &a)), AT_NOT_FOUND);
  assert_int_equal(at_code_take(at_token_read(folder, "KNOB", &a)),
                   AT_INVALID_ARGUMENT);
  // Made once, then the same for all of the user.
  pid_t pids[8];
  for (int i = 0; i < 8; i++) {
    pids[i] = fork();
    if (!pids[i]) _exit((int)at_code_take(at_token_of_user(deep, &a)));
  }
  for (int i = 0; i < 8; i++) {
    int status;
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
  assert_int_equal(at_code_take(at_token_of_user(deep, &a)), 0);
  assert_int_equal(at_code_take(at_token_of_user(deep, &b)), 0);
  assert_memory_equal(&a, &b, sizeof a);
  chmod(deep, 0644);
  assert_int_equal(at_code_take(at_token_of_user(deep, &b)),
                   AT_PERMISSION_DENIED);
  assert_int_equal(at_code_take(at_token_of_user("/proc/none/pod.token", &b)),
                   AT_FAILED_PRECONDITION);
  char clean[128];
  snprintf(clean, sizeof clean, "rm -r %s", folder);
  assert_int_equal(system(clean), 0);
}

// The text form, which stores carry.
static void tokens_are_read_as_written(void **state) {
  at_token a, b = {{0}};
  char text[AT_TOKEN_TEXT + 1];
  assert_int_equal(at_code_take(at_token_make(&a)), 0);
  at_token_write(&a, text);
  assert_int_equal(at_code_take(at_token_parse(at_str_of(text), &b)), 0);
  assert_memory_equal(&a, &b, sizeof a);
  text[9] = 'g';
  assert_int_equal(at_code_take(at_token_parse(at_str_of(text), &b)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_token_parse(AT_STR("ab"), &b)),
                   AT_INVALID_ARGUMENT);
}

static int in_clear(void **state) { return g_tls = false; }
static int over_tls(void **state) { return g_tls = true, 0; }

#define BOTH(fn) \
  cmocka_unit_test_setup(fn, in_clear), cmocka_unit_test_setup(fn, over_tls)

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(thousands_of_strangers_change_nothing),
      BOTH(silence_costs_nobody_a_place),
      BOTH(imposters_get_nothing),
      BOTH(another_token_is_a_stranger),
      BOTH(who_changes_bytes_is_outlived),
      cmocka_unit_test_setup(broken_handshakes_are_told, over_tls),
      cmocka_unit_test(in_clear_is_not_agreed_on),
      cmocka_unit_test(tokens_are_of_private_files),
      cmocka_unit_test(tokens_are_read_as_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
