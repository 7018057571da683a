// How the members of a wire find out whom a carrier reaches: three rounds over
// connections that they have already.
#include "pod/wire_carrier.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "pod/meet.h"

enum {
  kHelloMs = 3000,  // for hellos, once everybody has all cards
  kMs = 1000000,    // ns
};

typedef struct meeting {
  const at_wire_options *options;
  const int *fds;
  at_carrier *carrier;  // NULL: none
  bool *called;         // [count]: both have a carrier, and it knows the card
  bool *reached;
  uint64_t until_ns;
  uint8_t *buffer;  // for what is said and heard
} meeting;

enum {
  kLength = sizeof(uint32_t),
  kBuffer = kLength + AT_CARRIER_CARD + AT_SEAL_BYTES
};

// For the seals; NULL: the connection has none.
static at_pod_link *link_of(const meeting *m, uint32_t member) {
  at_pod_link *links = m->options->links;
  return links ? &links[member * AT_WIRE_LANES + AT_WIRE_BULK] : NULL;
}

// ---- Bytes
// What is said fits into the buffer of a connection that has been idle.
static at_status say(meeting *m, uint32_t to, at_bytes text) {
  at_pod_link *l = link_of(m, to);
  const uint32_t length = (uint32_t)text.len;
  size_t n = kLength + text.len;
  AT_ASSERT(text.len <= AT_CARRIER_CARD);
  memmove(m->buffer + kLength, text.ptr, text.len);
  memcpy(m->buffer, &length, kLength);
  const at_bytes all = {m->buffer, n};
  if (l) at_seal_next(&l->send, &all, 1, m->buffer + n);
  if (l) n += AT_SEAL_BYTES;
  if (send(m->fds[to], m->buffer, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n)
    return AT_OK;
  return AT_FAIL(AT_UNAVAILABLE, "process %u has ended while the processes met",
                 to);
}

// Until something comes over the connection (fd -1: only by the carrier), or
// nothing does for a while. The carrier goes on meanwhile: others may need it
// to.
static void wait_a_little(const meeting *m, int fd, uint64_t until_ns) {
  at_carrier *c = m->carrier;
  const uint64_t now_ns = at_clock_ns();
  if (c && (c->vtable->turn(c) || !c->vtable->arm(c))) return;
  struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
                        {.fd = c ? c->fd : -1, .events = POLLIN}};
  uint64_t ms = until_ns > now_ns ? (until_ns - now_ns) / kMs + 1 : 0;
  (void)poll(p, 2, (int)AT_MIN(ms, (uint64_t)100));
}

// All n, or an error once time is over or the member is gone.
static at_status hear_bytes(const meeting *m, uint32_t from, uint8_t *p,
                            size_t n) {
  const int fd = m->fds[from];
  while (n) {
    ssize_t k = recv(fd, p, n, MSG_DONTWAIT);
    if (k > 0) {
      p += k;
      n -= (size_t)k;
    } else if (!k || (errno != EAGAIN && errno != EINTR)) {
      return AT_FAIL(AT_UNAVAILABLE,
                     "process %u has ended while the processes met", from);
    } else if (at_clock_ns() >= m->until_ns) {
      return AT_FAIL(AT_DEADLINE_EXCEEDED,
                     "process %u has met others, and went no further", from);
    } else {
      wait_a_little(m, fd, m->until_ns);
    }
  }
  return AT_OK;
}

// *out is valid until the next call.
static at_status hear(meeting *m, uint32_t from, at_bytes *out) {
  at_pod_link *l = link_of(m, from);
  uint32_t length;
  AT_TRY(hear_bytes(m, from, m->buffer, kLength));
  memcpy(&length, m->buffer, kLength);
  if (length > AT_CARRIER_CARD)
    return AT_FAIL(AT_DATA_LOSS, "process %u meets in another way", from);
  const size_t all = kLength + length;
  AT_TRY(hear_bytes(m, from, m->buffer + kLength,
                    length + (l ? AT_SEAL_BYTES : 0)));
  if (l &&
      !at_seal_check(&l->recv, (at_bytes){m->buffer, all}, m->buffer + all))
    return AT_FAIL(AT_DATA_LOSS, "what process %u said was changed on its way",
                   from);
  *out = (at_bytes){m->buffer + kLength, length};
  return AT_OK;
}

// ---- Rounds
// Everybody says something to everybody.
static at_status hold_round(meeting *m,
                            at_status (*tell)(meeting *m, uint32_t to),
                            at_status (*take)(meeting *m, uint32_t from,
                                              at_bytes text)) {
  const at_wire_options *o = m->options;
  for (uint32_t i = 0; i < o->count; i++)
    if (at_wire_meets(o, i)) AT_TRY(tell(m, i));
  for (uint32_t i = 0; i < o->count; i++) {
    at_bytes text;
    if (!at_wire_meets(o, i)) continue;
    AT_TRY(hear(m, i, &text));
    AT_TRY(take(m, i, text));
  }
  return AT_OK;
}

// An empty card: this process has no carrier.
static at_status tell_card(meeting *m, uint32_t to) {
  at_carrier *c = m->carrier;
  uint8_t *at = m->buffer + kLength;
  return say(m, to, (at_bytes){at, c ? c->vtable->card(c, to, at) : 0});
}

// Whom the carrier cannot reach is talked to over TCP.
static at_status take_card(meeting *m, uint32_t from, at_bytes card) {
  at_carrier *c = m->carrier;
  if (c && card.len)
    m->called[from] = !at_code_take(c->vtable->call(c, from, card));
  return AT_OK;
}

static at_status tell_ready(meeting *m, uint32_t to) {
  return say(m, to, (at_bytes){m->buffer + kLength, 0});
}

// Everybody has all cards.
static at_status take_ready(meeting *m, uint32_t from, at_bytes text) {
  (void)m;
  return text.len
             ? AT_FAIL(AT_DATA_LOSS, "process %u meets in another way", from)
             : AT_OK;
}

static at_status tell_verdict(meeting *m, uint32_t to) {
  const uint8_t heard = m->reached[to];
  return say(m, to, (at_bytes){&heard, 1});
}

// A pair uses the carrier only if both have heard each other by it.
static at_status take_verdict(meeting *m, uint32_t from, at_bytes text) {
  if (text.len != 1 || *text.ptr > 1)
    return AT_FAIL(AT_DATA_LOSS, "process %u meets in another way", from);
  m->reached[from] &= *text.ptr;
  return AT_OK;
}

// True: everybody that was called has been heard.
static bool hear_hellos(meeting *m) {
  bool all = true;
  for (uint32_t i = 0; i < m->options->count; i++) {
    if (m->called[i] && !m->reached[i])
      m->reached[i] = m->carrier->vtable->heard(m->carrier, i);
    all &= m->called[i] == m->reached[i];
  }
  return all;
}

// Cards, readiness, hellos by the carrier itself, verdicts.
static at_status meet(meeting *m) {
  AT_TRY(hold_round(m, tell_card, take_card));
  // From here on everybody makes turns of its carrier.
  AT_TRY(hold_round(m, tell_ready, take_ready));
  const uint64_t until_ns =
      AT_MIN(m->until_ns, at_clock_ns() + (uint64_t)kHelloMs * kMs);
  while (!hear_hellos(m) && at_clock_ns() < until_ns)
    wait_a_little(m, -1, until_ns);
  return hold_round(m, tell_verdict, take_verdict);
}

// Every member has to call it, also without a carrier.
at_status at_carrier_meet(const at_wire_options *o, const int *fds,
                          at_carrier *c, bool *reached) {
  meeting m = {.options = o,
               .fds = fds,
               .carrier = c,
               .reached = reached,
               .called = calloc(o->count, sizeof *m.called),
               .buffer = malloc(kBuffer),
               .until_ns = at_clock_ns() + (uint64_t)o->meet_ms * kMs};
  at_status st = AT_OK;
  memset(reached, 0, o->count * sizeof *reached);
  if (!m.called || !m.buffer)
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to meet %u processes",
                 o->count);
  if (!st.err) st = meet(&m);
  free(m.called);
  free(m.buffer);
  return st;
}
