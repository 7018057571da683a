#include "pod/meet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"

enum {
  kAtOnce = 64,     // accepted before others have their turn
  kBacklog = 4096,  // the system may make it less
  kCallMs = 10000,  // for who is called to do so
  kFirstRetryMs = 5,
  kMostRetryMs = 200,
  kTickMs = 100,  // between two looks at who is late
  kDoorMs = 250,  // the same, at a door
  kMs = 1000000,  // ns
};

// A connection that this process makes: `call` of those to `host`.
typedef struct callee {
  uint32_t host, call;
  struct addrinfo *all, *next;  // all its addresses, and which to try
  uint64_t pause_ms;
  bool met;
  at_party party;  // fd -1: until_ns says when to try again
} callee;

typedef struct meeting {
  const at_pod_meeting *about;
  const at_pod_door *door;  // NULL: the processes meet
  at_pod_link *links;       // with `door`: NULL
  uint32_t missing;
  uint32_t newer;  // than this epoch: the one in which others meet
  uint64_t late, astray, broken;
  uint64_t since_ns;  // who called before is late
  at_proof_heard *heard;
  at_guests *guests;
  callee *callees;  // [num_callees]
  uint32_t num_callees;
  struct pollfd *polls;  // the listener, guests, callees, and a door's `wake`
  bool ready;
  char why[200];  // the last handshake of TLS failed, of `broken`
} meeting;

// A clock that all processes share: this machine's, or the world's.
static uint64_t shared_clock_ns(const meeting *m) {
  struct timespec t;
  if (m->about->local) return at_clock_ns();
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000 * kMs + (uint64_t)t.tv_nsec;
}

// This process, or one that is to be met?
static bool takes_part(const meeting *m, uint32_t host) {
  return at_address_is_there(m->about->addresses->text, host);
}

static uint32_t num_others(const meeting *m) {
  uint32_t n = 0;
  for (uint32_t h = 0; h < m->about->card.count; h++)
    n += h != m->about->card.me && takes_part(m, h);
  return n;
}

// ---- Links
static at_pod_link *link_of(const meeting *m, uint32_t host, uint32_t call) {
  return &m->links[host * m->about->calls + call];
}

// The proved connection becomes a link; one that was made twice replaces the
// former.
static at_status link_up(meeting *m, uint32_t host, uint32_t call,
                         at_party *p) {
  at_pod_link *l = link_of(m, host, call), up;
  at_status st = at_party_link(p, &up);
  if (st.err) return at_status_prefix(st, "the connection to process %u", host);
  if (l->fd < 0) m->missing--;
  at_pod_link_close(l);
  *l = up;
  return AT_OK;
}

// ---- TLS, of who is proved and welcome
// It may have been the network, or somebody in it: its caller tries again.
static void note_broken(meeting *m, const at_party *p) {
  at_status st = at_party_broken(p);
  snprintf(m->why, sizeof m->why, "%s", at_status_message(st));
  at_status_free(st);
  m->broken++;
}

// AT_TLS_MET: the link is up.
static at_status shake(meeting *m, uint32_t host, uint32_t call, at_party *p,
                       at_tls_state *out) {
  *out = at_party_shake(p);
  if (*out == AT_TLS_BROKEN) note_broken(m, p);
  return *out == AT_TLS_MET ? link_up(m, host, call, p) : AT_OK;
}

// ---- Epochs
// Of another process that has proved the token, and has or hears EPOCH.
static void note_epoch(meeting *m, const at_card *theirs) {
  if (m->door)
    m->door->heard(m->door->arg, theirs->me, theirs->epoch);
  else if (m->about->newer && theirs->epoch > m->about->card.epoch)
    m->newer = AT_MAX(m->newer, theirs->epoch);
}

// at_pod_meeting.newer gets the epoch to try next.
static at_status came_back(const meeting *m) {
  *m->about->newer = m->newer;
  return AT_FAIL(AT_ABORTED,
                 "process %u comes back: the others meet in epoch %u, not %u",
                 m->about->card.me, m->newer, m->about->card.epoch);
}

// ---- Guests
// A process that calls again has lost the call before.
static at_verdict judge(const meeting *m, const at_proof *p) {
  if (p->verdict) return p->verdict;
  if (m->door || p->theirs.call == AT_CALL_KNOCKS) return AT_VERDICT_EPOCH;
  if (p->theirs.me < m->about->card.me || p->theirs.call >= m->about->calls ||
      !takes_part(m, p->theirs.me))
    return AT_VERDICT_PLACE;
  int fd = link_of(m, p->theirs.me, p->theirs.call)->fd;
  if (fd >= 0 && at_party_is_open(fd)) return AT_VERDICT_TAKEN;
  for (uint32_t i = 0; i < AT_GUESTS; i++) {
    const at_party *g = &m->guests->all[i];
    if (g->tls && g->proof.theirs.me == p->theirs.me &&
        g->proof.theirs.call == p->theirs.call && at_party_is_open(g->fd))
      return AT_VERDICT_TAKEN;
  }
  return AT_VERDICT_WELCOME;
}

// A guest in the middle of the handshake.
static at_status serve_tls(meeting *m, at_party *p) {
  at_tls_state state;
  AT_TRY(shake(m, p->proof.theirs.me, p->proof.theirs.call, p, &state));
  if (state == AT_TLS_BROKEN) at_party_drop(p);
  return AT_OK;
}

// Who knows the token but was late or called the wrong process is counted
// apart, as people can mend that.
static void turn_away(meeting *m, at_party *p) {
  m->late += p->proof.late;
  if (p->proof.astray && !m->astray++)
    at_log(AT_LOG_WARNING,
           "process %u was called in the place of another one by who says to "
           "be process %u: the addresses have another order there, or somebody "
           "repeats what he has recorded",
           m->about->card.me, p->proof.theirs.me);
  at_guests_turn_away(m->guests, p);
}

// A door stays, whoever comes to it.
static at_status do_not_fit(const meeting *m, const at_party *p) {
  at_status st = at_proof_status(&p->proof);
  if (!m->door) return st;
  at_log(AT_LOG_WARNING, "%s", at_status_message(st));
  return at_status_free(st), AT_OK;
}

// A guest's socket is readable.
static at_status serve(meeting *m, at_party *p) {
  if (p->tls) return serve_tls(m, p);
  at_proof_state state = at_party_hear(p);
  if (state == AT_PROOF_READS) return AT_OK;
  if (state != AT_PROOF_ASKS) return turn_away(m, p), AT_OK;
  at_verdict v = judge(m, &p->proof);
  at_proof_decide(&p->proof, v);
  bool said = at_party_say(p);
  at_status st = AT_OK;
  if (v == AT_VERDICT_EPOCH) note_epoch(m, &p->proof.theirs);
  if (v == AT_VERDICT_WELCOME && said && m->about->card.tls) {
    AT_TRY(at_party_begin_tls(p));
    return serve_tls(m, p);
  }
  if (v == AT_VERDICT_WELCOME && said)
    st = link_up(m, p->proof.theirs.me, p->proof.theirs.call, p);
  else if (v != AT_VERDICT_WELCOME && v != AT_VERDICT_EPOCH)
    st = do_not_fit(m, p);
  return at_party_drop(p), st;
}

// A new connection: begins the proof as its listener.
static at_status welcome(meeting *m, at_party *p) {
  uint8_t nonce[AT_PROOF_NONCE];
  at_status st = at_random(nonce, sizeof nonce);
  if (st.err) return at_party_drop(p), st;
  at_proof_listen(&p->proof, m->about->token, &m->about->card, m->heard, nonce,
                  m->since_ns);
  return serve(m, p);
}

// At most kAtOnce, then others have their turn.
static at_status accept_some(meeting *m) {
  for (int i = 0; i < kAtOnce && (m->missing || m->door); i++) {
    at_party *p = at_guests_next(m->guests, m->about->listener);
    if (!p) return AT_OK;
    AT_TRY(welcome(m, p));
  }
  return AT_OK;
}

// ---- Calls
// Not there, or not one of ours: the next address, or the first once more.
static void hang_up(callee *c) {
  at_party_drop(&c->party);
  if (c->next) c->next = c->next->ai_next;
  c->party.until_ns = 0;
  if (c->next) return;
  c->next = c->all;
  c->party.until_ns = at_clock_ns() + c->pause_ms * kMs;
  c->pause_ms = AT_MIN(2 * c->pause_ms, (uint64_t)kMostRetryMs);
}

// Begins to connect; poll tells when it has.
static void ring(callee *c) {
  c->party.until_ns = at_clock_ns() + (uint64_t)kCallMs * kMs;
  if (!at_party_ring(&c->party, c->next)) hang_up(c);
}

// Connected: says the hello of the proof.
static at_status introduce(meeting *m, callee *c) {
  at_card mine = m->about->card;
  uint8_t nonce[AT_PROOF_NONCE];
  if (!at_party_arrived(&c->party)) return hang_up(c), AT_OK;
  AT_TRY(at_random(nonce, sizeof nonce));
  mine.call = c->call;
  at_proof_call(&c->party.proof, m->about->token, &mine, c->host, nonce,
                shared_clock_ns(m));
  if (!at_party_say(&c->party)) hang_up(c);
  return AT_OK;
}

// A call in the middle of the handshake.
static at_status follow_tls(meeting *m, callee *c) {
  at_tls_state state;
  AT_TRY(shake(m, c->host, c->call, &c->party, &state));
  c->met = state == AT_TLS_MET;
  if (state == AT_TLS_BROKEN) hang_up(c);
  return AT_OK;
}

// A call's socket is ready: the next step.
static at_status follow_call(meeting *m, callee *c) {
  if (c->party.connecting) return introduce(m, c);
  if (c->party.tls) return follow_tls(m, c);
  switch (at_party_hear(&c->party)) {
    case AT_PROOF_READS:
      return AT_OK;
    case AT_PROOF_MET:
      if (m->about->card.tls) {
        AT_TRY(at_party_begin_tls(&c->party));
        return follow_tls(m, c);
      }
      c->met = true;
      return link_up(m, c->host, c->call, &c->party);
    case AT_PROOF_REFUSED:
      // It is about to form the group that this one has, or the other way
      // round.
      if (c->party.proof.verdict != AT_VERDICT_EPOCH) {
        at_status st = do_not_fit(m, &c->party);
        return hang_up(c), st;
      }
      note_epoch(m, &c->party.proof.theirs);
      return hang_up(c), AT_OK;
    default:  // who listens there is none of ours, or not any more
      return hang_up(c), AT_OK;
  }
}

// Calls that have waited long enough, and those that got no answer in time.
static void ring_who_is_due(meeting *m, uint64_t now_ns) {
  for (uint32_t i = 0; i < m->num_callees; i++) {
    callee *c = &m->callees[i];
    if (c->met || now_ns < c->party.until_ns) continue;
    if (m->door && !m->door->calls(m->door->arg, c->host)) continue;
    if (c->party.fd >= 0) hang_up(c);  // it has not answered in time
    if (now_ns >= c->party.until_ns) ring(c);
  }
}

// ---- The meeting
// The first process that is missing, and what has been seen of others
// meanwhile.
static at_status too_late(const meeting *m) {
  uint32_t i = 0, calls = m->about->calls;
  while (i / calls == m->about->card.me || !takes_part(m, i / calls) ||
         m->links[i].fd >= 0)
    i++;
  const uint32_t h = i / calls;
  at_strbuf about = {0};
  if (m->guests->strangers)
    at_strbuf_addf(&about,
                   "\ndetail: %llu connections did not prove that they know "
                   "the token of the pod, and were dropped",
                   (unsigned long long)m->guests->strangers);
  if (m->late)
    at_strbuf_addf(&about,
                   "; %llu of them do know it, but their clocks are more than "
                   "%d s behind, or they repeat what they have recorded",
                   (unsigned long long)m->late, AT_GUEST_SKEW_MS / 1000);
  if (m->astray)
    at_strbuf_addf(&about,
                   "; %llu of them do know it, but called another process "
                   "than this one: the addresses have another order there",
                   (unsigned long long)m->astray);
  if (m->broken)
    at_strbuf_addf(&about,
                   "\ndetail: %llu connections that were proved ended in the "
                   "handshake of TLS; the last: %s",
                   (unsigned long long)m->broken, m->why);
  at_status st = AT_FAIL(
      AT_DEADLINE_EXCEEDED,
      "process %u did not come%s\nhint: start all %u processes (%s), each "
      "with its own number (CLOUD_TPU_TASK_ID, or process_id of "
      "jax.distributed.initialize) and with the same token",
      h, about.ptr ? about.ptr : "", m->about->card.count,
      m->about->addresses->source);
  at_strbuf_free(&about);
  return st;
}

// Places without a descriptor are -1.
static uint32_t fill_polls(meeting *m) {
  m->polls[0] = (struct pollfd){.fd = m->about->listener, .events = POLLIN};
  for (uint32_t i = 0; i < AT_GUESTS; i++)
    m->polls[1 + i] =
        (struct pollfd){.fd = m->guests->all[i].fd, .events = POLLIN};
  for (uint32_t i = 0; i < m->num_callees; i++)
    m->polls[1 + AT_GUESTS + i] = (struct pollfd){
        .fd = m->callees[i].party.fd,
        .events = m->callees[i].party.connecting ? POLLOUT : POLLIN};
  m->polls[1 + AT_GUESTS + m->num_callees] =
      (struct pollfd){.fd = m->door ? m->door->wake : -1, .events = POLLIN};
  return 2 + AT_GUESTS + m->num_callees;
}

// Until there is something to do.
static int patience_ms(const meeting *m, uint64_t now_ns) {
  uint64_t until = now_ns + (uint64_t)(m->door ? kDoorMs : kTickMs) * kMs;
  if (!m->door) until = AT_MIN(until, m->about->until_ns);
  for (uint32_t i = 0; i < m->num_callees; i++)
    if (!m->door && !m->callees[i].met && m->callees[i].party.fd < 0)
      until = AT_MIN(until, m->callees[i].party.until_ns);
  return until > now_ns ? (int)((until - now_ns + kMs - 1) / kMs) : 0;
}

// Calls before guests before new connections: a place that is freed is not
// polled for its former guest.
static at_status take_turn(meeting *m) {
  uint64_t now = at_clock_ns();
  at_guests_drop_late(m->guests, now);
  ring_who_is_due(m, now);
  uint32_t n = fill_polls(m);
  if (poll(m->polls, n, patience_ms(m, now)) < 0 && errno != EINTR)
    return AT_FAIL(AT_UNAVAILABLE, "cannot wait for other processes: %s",
                   strerror(errno));
  for (uint32_t i = 0; i < m->num_callees; i++)
    if (m->polls[1 + AT_GUESTS + i].revents)
      AT_TRY(follow_call(m, &m->callees[i]));
  for (uint32_t i = 0; i < AT_GUESTS; i++)
    if (m->polls[1 + i].revents) AT_TRY(serve(m, &m->guests->all[i]));
  return m->polls[0].revents ? accept_some(m) : AT_OK;
}

// Everything that the loop needs; clean_up frees it, also half made.
static at_status prepare(meeting *m) {
  const at_pod_meeting *about = m->about;
  const uint32_t calls = m->door ? 1 : about->calls;
  const uint32_t n = about->card.me * calls;
  m->heard = calloc(1, sizeof *m->heard);
  m->guests = malloc(sizeof *m->guests);
  m->callees = calloc(n + 1, sizeof *m->callees);
  m->polls = calloc(2 + AT_GUESTS + n, sizeof *m->polls);
  if (!m->heard || !m->guests || !m->callees || !m->polls)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to meet %u processes",
                   about->card.count);
  at_guests_init(m->guests);
  for (uint32_t i = 0; i < n; i++)
    if (takes_part(m, i / calls))
      m->callees[m->num_callees++] =
          (callee){.host = i / calls,
                   .call = m->door ? AT_CALL_KNOCKS : i % calls,
                   .party.fd = -1,
                   .pause_ms = kFirstRetryMs};
  m->ready = true;
  for (uint32_t i = 0; i < m->num_callees; i++) {
    callee *c = &m->callees[i];
    AT_TRY(at_address_resolve(about->addresses, c->host, &c->all));
    c->next = c->all;
  }
  int flags = fcntl(about->listener, F_GETFL);
  if (flags < 0 || fcntl(about->listener, F_SETFL, flags | O_NONBLOCK) ||
      listen(about->listener, kBacklog))
    return AT_FAIL(AT_UNAVAILABLE, "process %u cannot listen: %s",
                   about->card.me, strerror(errno));
  return AT_OK;
}

// Connections that were not made into links are closed.
static void clean_up(meeting *m) {
  if (m->ready) at_guests_drop_all(m->guests);
  for (uint32_t i = 0; m->ready && i < m->num_callees; i++) {
    at_party_drop(&m->callees[i].party);
    if (m->callees[i].all) freeaddrinfo(m->callees[i].all);
  }
  free(m->heard);
  free(m->guests);
  free(m->callees);
  free(m->polls);
}

// One poll loop until nobody is missing. Links are the caller's to close, also
// after a failure.
at_status at_pod_meet(const at_pod_meeting *about, at_pod_link *links,
                      uint64_t *strangers) {
  meeting m = {.about = about, .links = links};
  m.missing = num_others(&m) * about->calls;
  AT_ASSERT(about->calls);
  for (uint32_t i = 0; i < about->card.count * about->calls; i++)
    links[i] = (at_pod_link){.fd = -1};
  // Before it listens: nobody calls earlier.
  m.since_ns = shared_clock_ns(&m) -
               (about->local ? 0 : (uint64_t)AT_GUEST_SKEW_MS * kMs);
  at_status st = prepare(&m);
  while (!st.err && m.missing) {
    st = take_turn(&m);
    if (!st.err && m.newer) st = came_back(&m);
    if (!st.err && about->interrupted && about->interrupted())
      st = AT_FAIL(
          AT_CANCELLED, "interrupted while %u of %u processes were missing",
          (uint32_t)at_ceil_div(m.missing, about->calls), about->card.count);
    if (!st.err && m.missing && at_clock_ns() >= about->until_ns)
      st = too_late(&m);
  }
  *strangers = m.ready ? m.guests->strangers : 0;
  clean_up(&m);
  return st;
}

// The same loop without an end of its own: callers learn the epoch and go away.
at_status at_pod_keep_door(const at_pod_meeting *about, const at_pod_door *d) {
  meeting m = {.about = about, .door = d};
  m.since_ns = shared_clock_ns(&m) -
               (about->local ? 0 : (uint64_t)AT_GUEST_SKEW_MS * kMs);
  at_status st = prepare(&m);
  while (!st.err && !d->ends(d->arg)) st = take_turn(&m);
  clean_up(&m);
  return st;
}
