#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/config.h"
#include "control/session_internal.h"
#include "pod/network.h"

enum { kJob = 2, kNs = 1000000000 };
static const uint8_t kMagic[4] = {'a', 't', 's', '1'};

_Static_assert(sizeof(at_session_hello) == 128, "no padding");
_Static_assert(sizeof(at_session_request) == 176, "no padding");
_Static_assert(sizeof(at_session_answer) <= AT_SESSION_BODY, "a body");

// ---- What is said
static at_status nonsense(const char *what) {
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "what the other end of the session says is malformed: %s",
                 what);
}

// The version comes first in all versions.
static at_status check_version(at_bytes b) {
  uint32_t version;
  if (b.len < sizeof version) return nonsense("it is too short");
  memcpy(&version, b.ptr, sizeof version);
  if (version == AT_SESSION_VERSION) return AT_OK;
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "the two ends of the session are of other versions of Atoll: "
                 "%u there, %d here\nhint: install the same one in both",
                 version, AT_SESSION_VERSION);
}

// A text that ends, for people: no control characters, or only ends of line.
static bool is_text(const char *text, size_t room, bool lines) {
  const char *end = memchr(text, 0, room);
  for (const char *p = text; end && p < end; p++)
    if (((uint8_t)*p < ' ' && !(lines && *p == '\n')) || *p == 0x7f)
      return false;
  return end;
}

// The bytes come from somebody who knows the token, but may be of another
// version.
at_status at_session_read_request(at_bytes b, at_session_request *out) {
  AT_TRY(check_version(b));
  if (b.len != sizeof *out) return nonsense("the size of a request");
  memcpy(out, b.ptr, sizeof *out);
  const at_session_hello *h = &out->hello;
  if (h->kind < AT_SESSION_CLIENT || h->kind > AT_SESSION_TOOL)
    return nonsense("no such kind of process");
  if (!is_text(h->name, sizeof h->name, false)) return nonsense("a name");
  if (out->lane >= AT_WIRE_LANES) return nonsense("no such lane");
  if (h->zero || out->zero) return nonsense("a request");
  return AT_OK;
}

// A refusal has a text, an acceptance a medium, and shared memory the name of
// its group.
at_status at_session_read_answer(at_bytes b, at_session_answer *out) {
  AT_TRY(check_version(b));
  if (b.len != sizeof *out) return nonsense("the size of an answer");
  memcpy(out, b.ptr, sizeof *out);
  const bool shm = out->medium == AT_SESSION_SHM;
  if (out->code > AT_UNAUTHENTICATED || out->zero) return nonsense("an answer");
  if (!is_text(out->text, sizeof out->text, true) ||
      !is_text(out->group, sizeof out->group, false))
    return nonsense("a text");
  if (out->code) return *out->text ? AT_OK : nonsense("no reason is given");
  if (!shm && out->medium != AT_SESSION_TCP) return nonsense("no such medium");
  return shm == !!*out->group ? AT_OK : nonsense("the name of a group");
}

// What is_text does not take becomes '?'.
static void put_text(char *out, size_t room, const char *text) {
  size_t n = 0;
  for (; text[n] && n + 1 < room; n++) {
    bool plain = (uint8_t)text[n] >= ' ' && text[n] != 0x7f;
    out[n] = plain || text[n] == '\n' ? text[n] : '?';
  }
  out[n] = 0;
}

// A refusal without a text would be malformed, so it gets one.
at_session_answer at_session_refusal(at_status why) {
  at_session_answer a = {.version = AT_SESSION_VERSION,
                         .code = at_status_code(why)};
  const char *text = at_status_message(why);
  put_text(a.text, sizeof a.text, *text ? text : "no reason is given");
  at_status_free(why);
  return a;
}

// ---- Messages
// 0: no message, or a longer one than there are.
static uint32_t body_bytes(const at_session_inbox *in) {
  uint32_t n;
  memcpy(&n, in->bytes + sizeof kMagic, sizeof n);
  return memcmp(in->bytes, kMagic, sizeof kMagic) || n > AT_SESSION_BODY ? 0
                                                                         : n;
}

// The bytes of the message as far as its head tells.
static size_t want_bytes(const at_party *p, const at_session_inbox *in) {
  if (in->have < AT_SESSION_HEAD) return AT_SESSION_HEAD;
  return AT_SESSION_HEAD + body_bytes(in) + (p->tls ? 0 : AT_SEAL_BYTES);
}

// *got: 0: none now. False: the connection has ended.
static bool read_some(at_party *p, void *to, size_t n, size_t *got) {
  *got = 0;
  if (p->tls) {
    const at_tls_io io = at_party_io(p);
    return at_tls_read(p->tls, &io, to, n, got) && (*got || !p->cut);
  }
  ssize_t k;
  do k = recv(p->fd, to, n, MSG_DONTWAIT);
  while (k < 0 && errno == EINTR);
  *got = k > 0 ? (size_t)k : 0;
  return k > 0 || (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

// Reads exactly one message: bytes behind it belong to the wire. May be called
// again after WAITS.
at_session_news at_session_hear(at_party *p, at_session_inbox *in,
                                at_bytes *body) {
  for (size_t want; in->have < (want = want_bytes(p, in));) {
    size_t got;
    if (!read_some(p, in->bytes + in->have, want - in->have, &got))
      return AT_SESSION_LOST;
    if (!got) return AT_SESSION_WAITS;
    in->have += (uint32_t)got;
    if (in->have >= AT_SESSION_HEAD && !body_bytes(in)) return AT_SESSION_LOST;
  }
  const uint32_t n = body_bytes(in);
  const at_bytes all = {in->bytes, AT_SESSION_HEAD + n};
  in->have = 0;
  if (!p->tls && !at_seal_check(&p->proof.recv, all, all.ptr + all.len))
    return AT_SESSION_LOST;
  *body = (at_bytes){in->bytes + AT_SESSION_HEAD, n};
  return AT_SESSION_CAME;
}

// All or nothing: a message is shorter than any socket's buffer, so a partial
// write means that the other end is not reading.
bool at_session_say(at_party *p, at_bytes body) {
  uint8_t out[sizeof((at_session_inbox *)NULL)->bytes];
  const uint32_t n = (uint32_t)body.len;
  AT_ASSERT(n && n <= AT_SESSION_BODY);
  memcpy(out, kMagic, sizeof kMagic);
  memcpy(out + sizeof kMagic, &n, sizeof n);
  memcpy(out + AT_SESSION_HEAD, body.ptr, n);
  at_bytes all = {out, AT_SESSION_HEAD + n};
  if (p->tls) {
    const at_tls_io io = at_party_io(p);
    return at_tls_write(p->tls, &io, &(struct iovec){out, all.len}, 1);
  }
  at_seal_next(&p->proof.send, &all, 1, out + all.len);
  all.len += AT_SEAL_BYTES;
  return send(p->fd, out, all.len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         (ssize_t)all.len;
}

// ---- What both ends do
// Both ends must have the same card but for `me`, or the proof fails.
at_card at_session_card(uint32_t me, uint32_t lane, bool tls) {
  at_card card = {.me = me, .count = 2, .call = lane, .tls = tls};
  card.job = at_digest_start(kJob);
  at_digest_add_str(&card.job, AT_STR("a session of Atoll"));
  return card;
}

// Wall-clock time: the proof bounds how old a first message may be.
uint64_t at_session_clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * kNs + (uint64_t)t.tv_nsec;
}

// A digest of machine, namespace and user: two processes with the same one can
// map each other's memory.
at_digest at_session_place(void) {
  char place[AT_PLACE_TEXT + 1];
  at_digest d = at_digest_start(kJob);
  const at_word wire = at_config_word(AT_CONFIG_POD_WIRE);
  if (wire == AT_WORD_POD_WIRE_TCP || wire == AT_WORD_POD_WIRE_UCX ||
      !at_network_place(place))
    return (at_digest){0};
  at_digest_add_str(&d, at_str_of(place));
  at_digest_add_u64(&d, geteuid());
  return d;
}

// Each party's connection becomes a link; the parties are empty then.
static at_status link_lanes(at_party *parties, at_pod_link *links) {
  for (uint32_t i = 0; i < AT_WIRE_LANES; i++)
    AT_TRY(at_party_link(&parties[i], &links[i]));
  return AT_OK;
}

// The listener has the links behind its own, as member 0 of two.
at_status at_session_wire(const at_wire_options *o, const at_session_answer *a,
                          at_party *parties, at_wire **out) {
  enum { kLinks = 2 * AT_WIRE_LANES };
  at_pod_link links[kLinks];
  at_wire_options w = *o;
  w.count = 2;
  w.meet_ms = AT_SESSION_MEET_MS;
  w.group = a->group;
  if (a->medium == AT_SESSION_SHM) return at_wire_open("shm", &w, out);
  for (int i = 0; i < kLinks; i++) links[i] = (at_pod_link){.fd = -1};
  w.links = links;
  at_status st = link_lanes(parties, links + (o->me ? 0 : AT_WIRE_LANES));
  if (!st.err) st = at_wire_open("tcp", &w, out);
  for (int i = 0; i < kLinks; i++) at_pod_link_close(&links[i]);
  return st;
}
