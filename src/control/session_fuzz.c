// What the two ends of a session say to each other: whatever comes is refused,
// or is what an honest end could have said, and says the same when it is read
// again. The first byte: 0 a request, 1 an answer, 2 the text of a refusal,
// else a whole message that comes in pieces over a connection, with or without
// the seal that it should have.
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/fuzz_input.h"
#include "control/session_internal.h"

// Everything that is refused has the same code, and a reason.
static bool refused(at_status st) {
  if (!st.err) return false;
  must(at_status_code(st) == AT_FAILED_PRECONDITION);
  must(*at_status_message(st));
  return at_status_free(st), true;
}

// What is accepted is within its bounds.
static void read_request(at_bytes b) {
  at_session_request r;
  if (refused(at_session_read_request(b, &r))) return;
  must(b.len == sizeof r && !memcmp(&r, b.ptr, b.len));
  must(r.hello.version == AT_SESSION_VERSION && r.lane < AT_WIRE_LANES);
  must(r.hello.kind >= AT_SESSION_CLIENT && r.hello.kind <= AT_SESSION_TOOL);
  must(memchr(r.hello.name, 0, sizeof r.hello.name));
  must(!strpbrk(r.hello.name, "\n\r\t\x1b\x7f"));
}

// Texts of an answer end.
static void check_answer(const at_session_answer *a) {
  must(memchr(a->text, 0, sizeof a->text) &&
       memchr(a->group, 0, sizeof a->group));
  must(!a->code || *a->text);
  must(a->code || a->medium == AT_SESSION_SHM || a->medium == AT_SESSION_TCP);
  must(a->code || (a->medium == AT_SESSION_SHM) == !!*a->group);
}

static void read_answer(at_bytes b) {
  at_session_answer a;
  if (refused(at_session_read_answer(b, &a))) return;
  must(b.len == sizeof a && !memcmp(&a, b.ptr, b.len));
  check_answer(&a);
}

// Whatever an error says, the other end can read why.
static void refuse(at_bytes b) {
  char text[3 * AT_SESSION_TEXT];
  size_t n = AT_MIN(b.len, sizeof text - 1);
  for (size_t i = 0; i < n; i++) text[i] = b.ptr[i] ? (char)b.ptr[i] : '0';
  text[n] = 0;
  at_session_answer a, back;
  a = at_session_refusal(AT_FAIL(AT_NOT_FOUND, "%s", text));
  at_bytes said = {(const uint8_t *)&a, sizeof a};
  must(!at_session_read_answer(said, &back).err);
  check_answer(&back);
  must(back.code == AT_NOT_FOUND && *back.text);
  must(n >= AT_SESSION_TEXT || !n || strlen(back.text) == n);
}

// Two parties that are proved, at the ends of a connection.
static void make_pair(at_party p[2]) {
  static const uint8_t key[AT_SEAL_KEY] = {7};
  int fds[2];
  must(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
  for (int i = 0; i < 2; i++) {
    p[i] = (at_party){.fd = fds[i]};
    p[i].proof.send = p[i].proof.recv = at_seal_of(key);
  }
}

// honest: sealed by the sender's key, so it arrives; otherwise it must not.
static void hear_bytes(at_bytes b, bool honest) {
  at_party p[2];
  at_session_inbox in = {0};
  at_bytes body = {0};
  at_session_news news = AT_SESSION_WAITS;
  make_pair(p);
  honest = honest && b.len && b.len <= AT_SESSION_BODY;
  if (honest) must(at_session_say(&p[0], b));
  for (size_t at = 0; !honest && at < b.len; at += 7)  // in pieces
    if (news == AT_SESSION_WAITS) {
      size_t n = AT_MIN(b.len - at, (size_t)7);
      must(write(p[0].fd, b.ptr + at, n) == (ssize_t)n);
      news = at_session_hear(&p[1], &in, &body);
    }
  if (honest) {
    must(at_session_hear(&p[1], &in, &body) == AT_SESSION_CAME);
    must(body.len == b.len && !memcmp(body.ptr, b.ptr, b.len));
    must(at_session_hear(&p[1], &in, &body) == AT_SESSION_WAITS);
  } else {
    must(news != AT_SESSION_CAME);  // nobody guesses a seal
  }
  for (int i = 0; i < 2; i++) close(p[i].fd);
}

// The first byte says what the rest is: a request, an answer, the text of a
// refusal, or bytes of a connection.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  const at_bytes rest = {data + 1, size - 1};
  switch (data[0]) {
    case 0:
      read_request(rest);
      break;
    case 1:
      read_answer(rest);
      break;
    case 2:
      refuse(rest);
      break;
    default:
      hear_bytes(rest, data[0] & 1);
  }
  return 0;
}
