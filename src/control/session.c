// The caller's end of a session: connects until somebody answers who knows the
// token, says what it wants, and opens the wire that the listener names.
#include "control/session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/session_internal.h"
#include "pod/address.h"
#include "pod/network.h"

enum {
  kTimeoutMs = 10000,  // where the options say nothing
  kProofMs = 10000,    // for who is called to prove itself
  kStrangeMs = 2000,
  kFirstRetryMs = 5,
  kMostRetryMs = 200,
  kTickMs = 100,  // between two questions whether to give up
  kMs = 1000000,  // ns
};

// How far any connection has come.
typedef enum reach { NOBODY, SOMEBODY, PROVED } reach;

// One attempt after another, until somebody answers.
typedef struct call {
  const at_session_options *o;
  at_session_request request;
  struct addrinfo *all;
  uint64_t until_ns;
  reach reach;
  char why[200];  // of the last connection that came to nothing
  at_party parties[AT_WIRE_LANES];
  at_session_answer answer;
} call;

static void note(call *c, const char *why) {
  snprintf(c->why, sizeof c->why, "%s", why);
}

// ---- Waiting
// CANCELLED, or OK. *left_ms 0: the time is over.
static at_status patience(const call *c, uint64_t until_ns, int *left_ms) {
  const uint64_t now_ns = at_clock_ns();
  if (c->o->interrupted && c->o->interrupted())
    return AT_FAIL(AT_CANCELLED, "interrupted while calling %s (%s)",
                   c->o->address, c->o->source);
  until_ns = AT_MIN(until_ns, c->until_ns);
  uint64_t left = until_ns > now_ns ? (until_ns - now_ns + kMs - 1) / kMs : 0;
  *left_ms = (int)AT_MIN(left, (uint64_t)kTickMs);
  return AT_OK;
}

// *ready false: not within the party's time.
static at_status wait_for(call *c, at_party *p, short events, bool *ready) {
  struct pollfd about = {.fd = p->fd, .events = events};
  for (;;) {
    int left_ms;
    AT_TRY(patience(c, p->until_ns, &left_ms));
    *ready = poll(&about, 1, left_ms) > 0;
    if (*ready || !left_ms) return AT_OK;
  }
}

// Between two attempts.
static at_status pause_for(call *c, uint64_t ms) {
  const uint64_t until_ns = at_clock_ns() + ms * kMs;
  for (int left_ms;;) {
    AT_TRY(patience(c, until_ns, &left_ms));
    if (!left_ms) return AT_OK;
    (void)poll(NULL, 0, left_ms);
  }
}

// ---- One connection. *good false: it came to nothing, and was noted.
// TCP only; p->fd stays with the party, for hang_up.
static at_status connect_to(call *c, const struct addrinfo *to, at_party *p,
                            bool *good) {
  bool ready = true;
  *p = (at_party){.fd = -1,
                  .until_ns = at_clock_ns() + (uint64_t)kProofMs * kMs};
  *good = at_party_ring(p, to);
  if (*good) {
    AT_TRY(wait_for(c, p, POLLOUT, &ready));
    *good = ready && at_party_arrived(p);
  }
  if (!*good) note(c, ready ? strerror(errno) : "no answer in time");
  if (*good) c->reach = AT_MAX(c->reach, SOMEBODY);
  return AT_OK;
}

// Whether the connection is to be encrypted depends on where the other end is;
// both ends must come to the same answer.
static at_status begin_proof(call *c, at_party *p, uint32_t lane) {
  const bool local = at_address_peer_is_local(p->fd);
  const bool tls = at_network_wants_tls(local);
  uint8_t nonce[AT_PROOF_NONCE];
  char because[200];
  snprintf(because, sizeof because, "%s (%.100s) is not of this machine",
           c->o->source, c->o->address);
  if (tls)
    AT_TRY(at_network_need_tls(local ? "ATOLL_POD_NETWORK is tls" : because));
  AT_TRY(at_random(nonce, sizeof nonce));
  const at_card card = at_session_card(1, lane, tls);
  at_proof_call(&p->proof, &c->o->token, &card, 0, nonce,
                at_session_clock_ns());
  return AT_OK;
}

// The other end has proved the token but is not who was called: why.
static at_status refused(const call *c, const at_proof *p) {
  if (p->verdict != AT_VERDICT_TLS)
    return AT_FAIL(
        AT_FAILED_PRECONDITION,
        "who listens at %s (%s) knows the token, but waits for other "
        "processes than this one: another version of Atoll, or a "
        "process of a job",
        c->o->address, c->o->source);
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "who listens at %s (%s) talks %s, this process %s\nhint: set "
                 "ATOLL_POD_NETWORK to the same in every process",
                 c->o->address, c->o->source,
                 p->mine.tls ? "in clear" : "over TLS",
                 p->mine.tls ? "over TLS" : "in clear");
}

// Both ends prove that they know the token (pod/proof.h). An error only where
// it makes no sense to try again.
static at_status prove(call *c, at_party *p, uint32_t lane, bool *good) {
  at_proof_state state = AT_PROOF_READS;
  AT_TRY(begin_proof(c, p, lane));
  *good = at_party_say(p);
  while (*good && state == AT_PROOF_READS) {
    AT_TRY(wait_for(c, p, POLLIN, good));
    if (*good) state = at_party_hear(p);
  }
  if (state == AT_PROOF_REFUSED) return refused(c, &p->proof);
  *good = state == AT_PROOF_MET;
  if (*good)
    c->reach = PROVED;
  else
    note(c, "it has not proved that it knows the token");
  return AT_OK;
}

// The handshake of TLS, behind the proof.
static at_status shake(call *c, at_party *p, bool *good) {
  at_tls_state state;
  AT_TRY(at_party_begin_tls(p));
  while ((state = at_party_shake(p)) == AT_TLS_READS) {
    AT_TRY(wait_for(c, p, POLLIN, good));
    if (!*good) break;
  }
  *good = state == AT_TLS_MET;
  if (*good) return AT_OK;
  at_status st = at_party_broken(p);
  note(c, state == AT_TLS_READS ? "TLS: no answer in time"
                                : at_status_message(st));
  return at_status_free(st), AT_OK;
}

// Says the request and hears the answer, which takes as long as the listener's
// `ask` does.
static at_status ask(call *c, at_party *p, uint32_t lane, bool *good) {
  at_session_inbox in = {0};
  at_bytes body;
  at_session_news news = AT_SESSION_WAITS;
  c->request.lane = lane;
  p->until_ns = c->until_ns;
  *good = at_session_say(
      p, (at_bytes){(const uint8_t *)&c->request, sizeof c->request});
  while (*good && news == AT_SESSION_WAITS) {
    AT_TRY(wait_for(c, p, POLLIN, good));
    if (*good) news = at_session_hear(p, &in, &body);
  }
  *good = news == AT_SESSION_CAME;
  if (*good) return at_session_read_answer(body, &c->answer);
  note(c, news == AT_SESSION_LOST ? "it ended the connection"
                                  : "no answer in time");
  return AT_OK;
}

// One connection of the session, up to the listener's answer in c->answer.
static at_status open_lane(call *c, const struct addrinfo *to, uint32_t lane,
                           bool *good) {
  at_party *p = &c->parties[lane];
  AT_TRY(connect_to(c, to, p, good));
  if (*good) AT_TRY(prove(c, p, lane, good));
  if (*good && p->proof.mine.tls) AT_TRY(shake(c, p, good));
  return *good ? ask(c, p, lane, good) : AT_OK;
}

// ---- All connections
// Also of connections that were never made.
static void hang_up(call *c) {
  for (uint32_t i = 0; i < AT_WIRE_LANES; i++) at_party_drop(&c->parties[i]);
}

// The listener's own error.
static at_status turned_away(const call *c) {
  return AT_FAIL((at_code)c->answer.code, "%s", c->answer.text);
}

// *good: both ends have agreed, and the connections are there.
static at_status try_once(call *c, const struct addrinfo *to, bool *good) {
  AT_TRY(at_random(&c->request.hello.id, sizeof c->request.hello.id));
  AT_TRY(open_lane(c, to, AT_WIRE_CONTROL, good));
  if (*good && c->answer.code) return turned_away(c);
  if (*good && c->answer.medium == AT_SESSION_TCP) {
    AT_TRY(open_lane(c, to, AT_WIRE_BULK, good));
    if (*good && c->answer.code) return turned_away(c);
  }
  if (!*good) hang_up(c);
  return AT_OK;
}

// The message says how far the best connection came: that is what people have
// to mend.
static at_status too_late(const call *c) {
  const char *where = c->o->address, *source = c->o->source;
  if (c->reach == NOBODY)
    return AT_FAIL(AT_UNAVAILABLE,
                   "nobody listens at %s (%s): %s\nhint: start who listens "
                   "there, and check that the address is reached from here",
                   where, source, c->why);
  if (c->reach == SOMEBODY)
    return AT_FAIL(
        AT_PERMISSION_DENIED,
        "somebody listens at %s (%s), but has not proved that they know the "
        "token of this process\nhint: give both the same token "
        "(ATOLL_POD_TOKEN_FILE). The clocks of two machines may differ by %d s",
        where, source, AT_GUEST_SKEW_MS / 1000);
  return AT_FAIL(AT_UNAVAILABLE,
                 "who listens at %s (%s) knows the token, but did not let this "
                 "process in in time: %s",
                 where, source, c->why);
}

// Tries all addresses, with pauses that double up to kMostRetryMs. Somebody who
// listens but does not know the token is given kStrangeMs: a former process may
// still be ending there.
static at_status call_until_answered(call *c) {
  uint64_t pause_ms = kFirstRetryMs, strange_ns = 0;
  for (bool good = false;;) {
    for (const struct addrinfo *to = c->all; to; to = to->ai_next) {
      AT_TRY(try_once(c, to, &good));
      if (good) return AT_OK;
      if (at_clock_ns() >= c->until_ns) return too_late(c);
    }
    if (c->reach == NOBODY && c->o->at_once) return too_late(c);
    // Somebody listens, and is none of ours: one who ends is gone by then.
    if (c->reach != SOMEBODY) strange_ns = 0;
    if (c->reach == SOMEBODY && !strange_ns) strange_ns = at_clock_ns();
    if (strange_ns && at_clock_ns() - strange_ns >= (uint64_t)kStrangeMs * kMs)
      return too_late(c);
    AT_TRY(pause_for(c, pause_ms));
    pause_ms = AT_MIN(2 * pause_ms, (uint64_t)kMostRetryMs);
  }
}

// ---- The session
// What this process says of itself. Control characters of the name become '?',
// as the listener would refuse them.
static void prepare(call *about) {
  const at_session_options *o = about->o;
  at_session_request *r = &about->request;
  r->hello = o->hello;
  r->hello.version = AT_SESSION_VERSION;
  r->hello.pid = (uint32_t)getpid();
  r->hello.build = at_pod_build();
  r->hello.uid = (uint32_t)getuid();
  r->hello.zero = 0;
  memset(r->hello.name, 0, sizeof r->hello.name);
  for (int i = 0; i < AT_SESSION_NAME - 1 && o->hello.name[i]; i++) {
    const char c = o->hello.name[i];
    r->hello.name[i] = (uint8_t)c < ' ' || c == 0x7f ? '?' : c;
  }
  r->stuck_ms = o->stuck_ms;
  r->max_bytes = o->max_bytes;
  r->window_bytes = o->window_bytes;
  r->window_messages = o->window_messages;
  r->place = at_session_place();
}

// The connections have become the wire's, or are closed, when this returns.
at_status at_session_open(const at_session_options *o, at_wire **out) {
  const uint32_t ms = o->timeout_ms ? o->timeout_ms : kTimeoutMs;
  call c = {.o = o, .until_ns = at_clock_ns() + (uint64_t)ms * kMs};
  const at_addresses where = {o->address, o->source};
  const at_wire_options w = {.me = 1,
                             .sink = o->sink,
                             .stuck_ms = o->stuck_ms,
                             .max_bytes = o->max_bytes,
                             .window_bytes = o->window_bytes,
                             .window_messages = o->window_messages};
  *out = NULL;
  AT_TRY(at_address_resolve(&where, 0, &c.all));
  for (uint32_t i = 0; i < AT_WIRE_LANES; i++) c.parties[i].fd = -1;
  prepare(&c);
  at_status st = call_until_answered(&c);
  if (!st.err) {
    st = at_session_wire(&w, &c.answer, c.parties, out);
    if (st.err)
      st = at_status_prefix(st, "the session with %s (%s)", o->address,
                            o->source);
  }
  hang_up(&c);
  freeaddrinfo(c.all);
  return st;
}

void *at_session_block(void *arg, uint32_t from, const at_wire_head *head) {
  return malloc(head->bytes);
}

void at_session_unblock(void *arg, uint32_t from, const at_wire_head *head,
                        void *body) {
  free(body);
}
