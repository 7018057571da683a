// Which connections stay in this kernel: the right socket at the other end,
// another one, a relay between; and lanes that go on without seals.
#include "pod/loopback.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "pod/wire_test_util.h"

// ---- The kernel's answer
// Two ends of a connection over the loopback device.
static void make_pair(int family, int out[2]) {
  struct sockaddr_in6 at6 = {.sin6_family = AF_INET6,
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  struct sockaddr_in at4 = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const bool six = family == AF_INET6;
  struct sockaddr *at = six ? (void *)&at6 : (void *)&at4;
  socklen_t n = six ? sizeof at6 : sizeof at4;
  int listener = socket(family, SOCK_STREAM, 0);
  if (bind(listener, at, n)) {  // a machine without IPv6
    close(listener);
    out[0] = out[1] = -1;
    return;
  }
  assert_false(listen(listener, 1));
  assert_false(getsockname(listener, at, &n));
  out[0] = socket(family, SOCK_STREAM, 0);
  assert_false(connect(out[0], at, n));
  out[1] = accept(listener, NULL, NULL);
  assert_true(out[1] >= 0);
  close(listener);
}

// Does this kernel answer at all? Where it does not, seals stay.
static bool answers(void) {
  int fds[2];
  make_pair(AF_INET, fds);
  bool good = at_loopback_reaches(fds[0], at_loopback_end_of(fds[1]));
  close(fds[0]), close(fds[1]);
  if (!good) print_message("the kernel does not tell sockets\n");
  return good;
}

static void the_other_end_is_known(void **state) {
  if (!answers()) skip();
  static const int families[] = {AF_INET, AF_INET6};
  for (size_t i = 0; i < 2; i++) {
    int fds[2], others[2];
    make_pair(families[i], fds);
    make_pair(families[i], others);
    if (fds[0] < 0) continue;
    const at_loopback_end a = at_loopback_end_of(fds[0]),
                          b = at_loopback_end_of(fds[1]);
    assert_true(a.cookie && b.cookie && a.cookie != b.cookie);
    assert_true(at_loopback_reaches(fds[0], b));
    assert_true(at_loopback_reaches(fds[1], a));
    // Its own end, another socket, another kernel, nobody.
    assert_false(at_loopback_reaches(fds[0], a));
    assert_false(at_loopback_reaches(fds[0], at_loopback_end_of(others[1])));
    assert_false(
        at_loopback_reaches(fds[0], (at_loopback_end){b.cookie, b.place + 1}));
    assert_false(at_loopback_reaches(fds[0], (at_loopback_end){0, b.place}));
    // A relay: what the caller calls is the relay's socket.
    assert_false(at_loopback_reaches(fds[0], at_loopback_end_of(others[0])));
    for (int k = 0; k < 2; k++) close(fds[k]), close(others[k]);
  }
}

static void what_is_no_connection_reaches_nobody(void **state) {
  int fds[2];
  make_pair(AF_INET, fds);
  const at_loopback_end b = at_loopback_end_of(fds[1]);
  int udp = socket(AF_INET, SOCK_DGRAM, 0), local[2];
  assert_false(socketpair(AF_UNIX, SOCK_STREAM, 0, local));
  assert_false(at_loopback_reaches(udp, b));
  assert_false(at_loopback_reaches(local[0], b));
  assert_false(at_loopback_reaches(-1, b));
  assert_int_equal(at_loopback_end_of(-1).cookie, 0);
  close(udp), close(local[0]), close(local[1]), close(fds[0]), close(fds[1]);
}

// ---- Lanes
enum { kLarge = 300000, kTurns = 60 };

// Who needs no seals says so before the first message, so frames come without
// them soon; everything comes as it was sent, also what was under way
// meanwhile.
static int goes_bare(box *b, uint32_t me) {
  at_wire_counts n = {0};
  for (uint64_t tag = 0; tag < kTurns; tag++) {
    const size_t bytes = tag % 3 ? 100 : kLarge;
    const at_wire_lane lane = tag % 3 ? AT_WIRE_CONTROL : AT_WIRE_BULK;
    uint8_t *body = make_body(me, tag, bytes);
    if (send_one(b, !me, lane, tag, body, bytes, UINT64_MAX)) return 1;
    free(body);
    letter *m = take(b);
    if (!m || m->head.bytes != (m->head.tag % 3 ? 100 : kLarge)) return 2;
    for (size_t i = 0; i < m->head.bytes; i++)
      if (m->body[i] != byte_of(!me, m->head.tag, i)) return 3;
    free_letter(m);
  }
  at_wire_counts_of(b->w, &n);
  meet(b, 0);
  return n.received_bare >= kTurns / 2 ? 0 : 4;
}

static void connections_of_one_kernel_give_up_their_seals(void **state) {
  if (!answers()) skip();
  run("sealed", NULL, 2, goes_bare);
}

// Over TLS, and where nothing was proved, there are no seals to give up.
static int stays_as_it_is(box *b, uint32_t me) {
  at_wire_counts n;
  for (uint64_t tag = 0; tag < 50; tag++) {
    if (send_one(b, !me, AT_WIRE_CONTROL, tag, "hello", 5, UINT64_MAX))
      return 1;
    letter *m = take(b);
    if (!m) return 2;
    free_letter(m);
  }
  at_wire_counts_of(b->w, &n);
  meet(b, 0);
  return n.received_bare ? 3 : 0;
}

static void others_have_none_to_give_up(void **state) {
  run("tcp", NULL, 2, stays_as_it_is);
  run("tls", NULL, 2, stays_as_it_is);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_other_end_is_known),
      cmocka_unit_test(what_is_no_connection_reaches_nobody),
      cmocka_unit_test(connections_of_one_kernel_give_up_their_seals),
      cmocka_unit_test(others_have_none_to_give_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
