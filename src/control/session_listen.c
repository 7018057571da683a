// The listener's end of sessions. One thread has a poll loop for all who
// connect, until they have proved the token and said what they want; from there
// on each has a thread of its own, which asks, answers, and opens the wire.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "control/session_internal.h"
#include "pod/address.h"
#include "pod/network.h"

enum {
  kBacklog = 4096,     // the system may make it less
  kAtOnce = 64,        // accepted before others have their turn
  kOpenings = 64,      // sessions that open at a time; others wait
  kOpeningMs = 30000,  // for a turn to be one of these
  kLaneMs = 5000,      // for the second connection
  kTickMs = 100,       // between two looks at who is late
  kMs = 1000000,       // ns
};

// What a guest is about to do. A place that is free has any.
typedef enum stage {
  PROVES,
  SHAKES,  // TLS
  SAYS,    // its request
  WAITS,   // for its turn
} stage;

typedef struct guest {
  stage stage;
  at_session_inbox in;
  at_session_request request;  // WAITS
} guest;

typedef enum progress { FREE, RUNS, DONE } progress;

// A session that opens. `missing` and the party of BULK change under the
// listener's lock.
typedef struct opening {
  at_listener *l;
  at_thread *thread;
  _Atomic progress progress;
  bool missing;  // its second connection is waited for
  at_session_request request;
  at_party parties[AT_WIRE_LANES];
  at_session_answer answer;
} opening;

struct at_listener {
  at_listener_options o;
  char *address;
  bool local;  // the address is of this machine
  int fd, bell;
  at_digest place;
  at_thread *thread;
  _Atomic bool stop;
  _Atomic uint64_t strangers;
  at_proof_heard heard;
  at_guests guests;
  guest more[AT_GUESTS];  // of guests.all
  struct pollfd polls[2 + AT_GUESTS];
  pthread_mutex_t lock;
  pthread_cond_t changed;
  opening openings[kOpenings];
};

// Wakes the loop. A full counter wakes it as well.
static void ring_bell(at_listener *l) {
  const uint64_t one = 1;
  (void)!write(l->bell, &one, sizeof one);
}

// ---- A session opens, on its thread
static bool answer(at_party *p, const at_session_answer *a) {
  return at_session_say(p, (at_bytes){(const uint8_t *)a, sizeof *a});
}

// Says why and closes the connection. Consumes why.
static void refuse(at_party *p, at_status why) {
  const at_session_answer a = at_session_refusal(why);
  (void)answer(p, &a);
  at_party_drop(p);
}

// Shared memory where both ends can.
static at_status choose_medium(opening *o) {
  const at_digest mine = o->l->place, theirs = o->request.place;
  uint64_t name[2];
  o->answer = (at_session_answer){.version = AT_SESSION_VERSION,
                                  .medium = AT_SESSION_TCP};
  if (at_digest_eq(mine, (at_digest){0}) || !at_digest_eq(mine, theirs))
    return AT_OK;
  AT_TRY(at_random(name, sizeof name));
  o->answer.medium = AT_SESSION_SHM;
  snprintf(o->answer.group, sizeof o->answer.group, "session-%016llx%016llx",
           (unsigned long long)name[0], (unsigned long long)name[1]);
  return AT_OK;
}

// Messages are structs: both ends must have the same.
static at_status check_build(const at_session_hello *h) {
  if (h->build == at_pod_build()) return AT_OK;
  return AT_FAIL(
      AT_FAILED_PRECONDITION,
      "process %u (%s) has another build of Atoll than process %d, "
      "which it wants to talk to\nhint: start the pod again, with the "
      "same build in all of its processes",
      h->pid, h->name, (int)getpid());
}

static at_status hung_up(void) {
  return AT_FAIL(AT_UNAVAILABLE, "the caller has hung up");
}

// The loop brings the connection. It is no guest any more, so nobody else looks
// whether the caller is still there.
static at_status wait_for_bulk(opening *o) {
  at_listener *l = o->l;
  const uint64_t until_ns = at_clock_ns() + (uint64_t)kLaneMs * kMs;
  at_status st = AT_OK;
  pthread_mutex_lock(&l->lock);
  while (o->missing && !st.err) {
    const uint64_t now_ns = at_clock_ns();
    const struct timespec tick = at_clock_timespec(now_ns + kTickMs * kMs);
    if (atomic_load(&l->stop))
      st = AT_FAIL(AT_CANCELLED, "who listens for sessions is ending");
    else if (now_ns >= until_ns)
      st = AT_FAIL(AT_DEADLINE_EXCEEDED, "its second connection did not come");
    else if (!at_party_is_open(o->parties[AT_WIRE_CONTROL].fd))
      st = hung_up();
    else
      pthread_cond_timedwait(&l->changed, &l->lock, &tick);
  }
  o->missing = false;
  pthread_mutex_unlock(&l->lock);
  return st;
}

// Behind it the caller opens its wire, too.
static at_status agree(opening *o) {
  AT_TRY(choose_medium(o));
  const bool tcp = o->answer.medium == AT_SESSION_TCP;
  pthread_mutex_lock(&o->l->lock);
  o->missing = tcp;
  pthread_mutex_unlock(&o->l->lock);
  if (!answer(&o->parties[AT_WIRE_CONTROL], &o->answer)) return hung_up();
  if (!tcp) return AT_OK;
  AT_TRY(wait_for_bulk(o));
  return answer(&o->parties[AT_WIRE_BULK], &o->answer) ? AT_OK : hung_up();
}

// The peer is the owner's: `opened` or `broken` follows in any case.
static void let_in(opening *o, const at_wire_sink *sink, void *peer) {
  const at_listener_options *about = &o->l->o;
  const at_wire_options w = {.me = 0,
                             .sink = *sink,
                             .stuck_ms = about->stuck_ms,
                             .max_bytes = about->max_bytes,
                             .window_bytes = about->window_bytes,
                             .window_messages = about->window_messages};
  at_wire *wire = NULL;
  at_status st = agree(o);
  if (!st.err) st = at_session_wire(&w, &o->answer, o->parties, &wire);
  if (st.err)
    about->calls.broken(about->calls.arg, peer, st);
  else
    about->calls.opened(about->calls.arg, peer, wire);
}

// On the opening's thread, since `ask` may take its time.
static void ask_and_open(opening *o) {
  const at_listener_calls *calls = &o->l->o.calls;
  at_wire_sink sink = {0};
  void *peer = NULL;
  if (atomic_load(&o->l->stop)) return;
  at_status st = check_build(&o->request.hello);
  if (!st.err) st = calls->ask(calls->arg, &o->request.hello, &sink, &peer);
  if (st.err)
    refuse(&o->parties[AT_WIRE_CONTROL], st);
  else
    let_in(o, &sink, peer);
}

// The thread of an opening: whatever is left of the connections is closed.
static void open_session(void *arg) {
  opening *o = arg;
  at_listener *l = o->l;
  ask_and_open(o);
  for (int i = 0; i < AT_WIRE_LANES; i++) at_party_drop(&o->parties[i]);
  atomic_store(&o->progress, DONE);
  ring_bell(l);
}

// ---- Turns, of the loop
// The guest's place is free afterwards.
static void move_party(at_party *from, at_party *to) {
  *to = *from;
  from->fd = -1;
  from->tls = NULL;
}

// A session that gets no thread is refused.
static void begin_opening(at_listener *l, opening *o, at_party *p) {
  *o = (opening){
      .l = l, .progress = RUNS, .request = l->more[p - l->guests.all].request};
  for (int i = 0; i < AT_WIRE_LANES; i++) o->parties[i].fd = -1;
  move_party(p, &o->parties[AT_WIRE_CONTROL]);
  at_status st = at_thread_start("atoll-session", AT_THREAD_STACK, open_session,
                                 o, &o->thread);
  if (!st.err) return;
  refuse(&o->parties[AT_WIRE_CONTROL], st);
  atomic_store(&o->progress, FREE);
}

// Joins the threads of openings that are done.
static void reap(at_listener *l) {
  for (int i = 0; i < kOpenings; i++) {
    opening *o = &l->openings[i];
    if (atomic_load(&o->progress) != DONE) continue;
    at_thread_join(o->thread);
    atomic_store(&o->progress, FREE);
  }
}

// Who has waited longest comes first.
static at_party *next_to_open(at_listener *l) {
  at_party *first = NULL;
  for (int i = 0; i < AT_GUESTS; i++) {
    at_party *p = &l->guests.all[i];
    if (p->fd < 0 || l->more[i].stage != WAITS) continue;
    if (!first || p->until_ns < first->until_ns) first = p;
  }
  return first;
}

// As many guests as there are free openings.
static void give_turns(at_listener *l) {
  reap(l);
  for (int i = 0; i < kOpenings; i++) {
    if (atomic_load(&l->openings[i].progress) != FREE) continue;
    at_party *p = next_to_open(l);
    if (!p) return;
    begin_opening(l, &l->openings[i], p);
  }
}

// ---- Requests
// Both ends lay out the wire by these numbers.
static at_status settings_differ(const char *what, uint64_t theirs,
                                 uint64_t mine) {
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "the two ends of the session have other options: %s is %llu "
                 "for who calls, %llu for who listens (0: the default)",
                 what, (unsigned long long)theirs, (unsigned long long)mine);
}

// The options of both ends are the same, or FAILED_PRECONDITION.
static at_status fits(const at_listener *l, const at_session_request *r) {
  const at_listener_options *o = &l->o;
  if (r->stuck_ms != o->stuck_ms)
    return settings_differ("stuck_ms", r->stuck_ms, o->stuck_ms);
  if (r->max_bytes != o->max_bytes)
    return settings_differ("max_bytes", r->max_bytes, o->max_bytes);
  if (r->window_bytes != o->window_bytes)
    return settings_differ("window_bytes", r->window_bytes, o->window_bytes);
  if (r->window_messages != o->window_messages)
    return settings_differ("window_messages", r->window_messages,
                           o->window_messages);
  return AT_OK;
}

// The second connection of a session that opens.
static at_status bring_bulk(at_listener *l, const at_session_request *r,
                            at_party *p) {
  bool found = false;
  pthread_mutex_lock(&l->lock);
  for (int i = 0; i < kOpenings && !found; i++) {
    opening *o = &l->openings[i];
    found =
        o->progress == RUNS && o->missing && o->request.hello.id == r->hello.id;
    if (!found) continue;
    move_party(p, &o->parties[AT_WIRE_BULK]);
    o->missing = false;
    pthread_cond_broadcast(&l->changed);
  }
  pthread_mutex_unlock(&l->lock);
  if (found) return AT_OK;
  return AT_FAIL(AT_DEADLINE_EXCEEDED,
                 "the second connection of the session came too late");
}

// The guest waits for its turn from here on, or is refused.
static void take_request(at_listener *l, at_party *p, guest *g, at_bytes body) {
  at_status st = at_session_read_request(body, &g->request);
  if (!st.err) st = fits(l, &g->request);
  if (!st.err && g->request.lane == AT_WIRE_BULK)
    st = bring_bulk(l, &g->request, p);
  if (st.err) return refuse(p, st);
  g->stage = WAITS;
  p->until_ns = at_clock_ns() + (uint64_t)kOpeningMs * kMs;
}

// ---- Guests
static void hear_request(at_listener *l, at_party *p, guest *g) {
  at_bytes body;
  at_session_news news = at_session_hear(p, &g->in, &body);
  if (news == AT_SESSION_CAME) take_request(l, p, g, body);
  if (news == AT_SESSION_LOST) at_party_drop(p);
}

// May be called whenever the connection is readable.
static void shake(at_listener *l, at_party *p, guest *g) {
  at_tls_state state = at_party_shake(p);
  if (state == AT_TLS_BROKEN) at_party_drop(p);
  if (state != AT_TLS_MET) return;
  g->stage = SAYS;
  hear_request(l, p, g);
}

// A caller has proved itself: welcome it, or say why not. Requests may come
// right behind, so they are looked for at once.
static void decide(at_listener *l, at_party *p, guest *g) {
  at_verdict v = p->proof.verdict;
  if (!v && p->proof.theirs.call >= AT_WIRE_LANES) v = AT_VERDICT_PLACE;
  at_proof_decide(&p->proof, v);
  bool good = at_party_say(p) && v == AT_VERDICT_WELCOME;
  if (good && p->proof.mine.tls) {
    at_status st = at_party_begin_tls(p);
    good = !st.err;
    at_status_free(st);
    g->stage = SHAKES;
  } else {
    g->stage = SAYS;
  }
  if (!good) return at_party_drop(p);
  if (p->tls)
    shake(l, p, g);
  else
    hear_request(l, p, g);
}

// Strangers are dropped without a word.
static void hear_proof(at_listener *l, at_party *p, guest *g) {
  at_proof_state state = at_party_hear(p);
  if (state == AT_PROOF_READS) return;
  if (state == AT_PROOF_ASKS) return decide(l, p, g);
  if (p->proof.late)
    at_log_once(AT_LOG_WARNING,
                "who knows the token called %s, but was turned away: the clock "
                "there is more than %d s behind, or somebody repeats what he "
                "has recorded",
                l->address, AT_GUEST_SKEW_MS / 1000);
  at_guests_turn_away(&l->guests, p);
}

// The connection is readable: the next step of whatever the guest is doing.
static void serve(at_listener *l, at_party *p) {
  guest *g = &l->more[p - l->guests.all];
  switch (g->stage) {
    case PROVES:
      return hear_proof(l, p, g);
    case SHAKES:
      return shake(l, p, g);
    case SAYS:
      return hear_request(l, p, g);
    case WAITS:  // it has hung up, or says more than it may
      return at_party_drop(p);
  }
}

// How old a first message may be moves on with the time: a listener lives long.
static void welcome(at_listener *l, at_party *p) {
  guest *g = &l->more[p - l->guests.all];
  const bool local = at_address_peer_is_local(p->fd);
  const at_card card = at_session_card(0, 0, at_network_wants_tls(local));
  uint8_t nonce[AT_PROOF_NONCE];
  at_status st = at_random(nonce, sizeof nonce);
  if (st.err) return at_status_free(st), at_party_drop(p);
  g->stage = PROVES;
  g->in.have = 0;
  at_proof_listen(&p->proof, &l->o.token, &card, &l->heard, nonce,
                  at_session_clock_ns() - (uint64_t)AT_GUEST_SKEW_MS * kMs);
  serve(l, p);
}

// Not all at once, so that guests are served in between.
static void accept_some(at_listener *l) {
  for (int i = 0; i < kAtOnce; i++) {
    at_party *p = at_guests_next(&l->guests, l->fd);
    if (!p) return;
    welcome(l, p);
  }
}

// ---- The loop
// For ever where nobody is here.
static int fill_polls(at_listener *l) {
  int patience_ms = -1;
  l->polls[0] = (struct pollfd){.fd = l->bell, .events = POLLIN};
  l->polls[1] = (struct pollfd){.fd = l->fd, .events = POLLIN};
  for (int i = 0; i < AT_GUESTS; i++) {
    l->polls[2 + i] =
        (struct pollfd){.fd = l->guests.all[i].fd, .events = POLLIN};
    if (l->guests.all[i].fd >= 0) patience_ms = kTickMs;
  }
  return patience_ms;
}

// One turn of the loop. Guests are served before new ones are accepted, as
// these may take a place that was polled.
static void take_turn(at_listener *l) {
  uint64_t rings;
  int patience_ms = fill_polls(l);
  if (poll(l->polls, AT_LEN(l->polls), patience_ms) < 0) {
    if (errno != EINTR) usleep(kTickMs * 1000);  // no memory: not for long
    return;
  }
  if (l->polls[0].revents) (void)!read(l->bell, &rings, sizeof rings);
  for (int i = 0; i < AT_GUESTS; i++)
    if (l->polls[2 + i].revents) serve(l, &l->guests.all[i]);
  if (l->polls[1].revents) accept_some(l);
  at_guests_drop_late(&l->guests, at_clock_ns());
  give_turns(l);
  atomic_store(&l->strangers, l->guests.strangers);
}

// The thread with the poll loop.
static void listen_for_all(void *arg) {
  at_listener *l = arg;
  while (!atomic_load(&l->stop)) take_turn(l);
}

// ---- Opened and closed
// An address that other machines reach needs TLS, unless the network is
// trusted: said when the listener is opened, not when somebody calls.
static at_status check_privacy(const at_listener *l) {
  char because[200];
  if (!at_network_wants_tls(l->local)) return AT_OK;
  if (l->local) return at_network_need_tls("ATOLL_POD_NETWORK is tls");
  snprintf(because, sizeof because, "%s (%.100s) is not of this machine alone",
           l->o.source, l->o.address);
  return at_network_need_tls(because);
}

// Whether the network must be private depends on where the address is.
static at_status check_address(at_listener *l, const at_addresses *where) {
  struct addrinfo *all;
  if (at_address_count(where->text) > 1)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: %.100s is not one host:port",
                   where->source, where->text);
  AT_TRY(at_address_resolve(where, 0, &all));
  l->local = at_address_is_local(all);
  freeaddrinfo(all);
  return check_privacy(l);
}

// The host part as it was given, the port as it is.
static at_status name_address(at_listener *l) {
  const char *text = l->o.address;
  const int host = (int)(strrchr(text, ':') - text);
  uint32_t port;
  AT_TRY(at_address_port(l->fd, &port));
  if (asprintf(&l->address, "%.*s:%u", host, text, port) >= 0) return AT_OK;
  l->address = NULL;
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to listen");
}

// What has been opened when it fails is closed by at_listener_close.
static at_status begin_to_listen(at_listener *l) {
  const at_addresses where = {l->o.address, l->o.source};
  AT_TRY(check_address(l, &where));
  AT_TRY(at_address_bind(&where, 0, &l->fd));
  AT_TRY(name_address(l));
  l->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int flags = fcntl(l->fd, F_GETFL);
  if (l->bell < 0 || flags < 0 || fcntl(l->fd, F_SETFL, flags | O_NONBLOCK) ||
      listen(l->fd, kBacklog))
    return AT_FAIL(AT_UNAVAILABLE, "cannot listen at %s (%s): %s", l->o.address,
                   l->o.source, strerror(errno));
  return at_thread_start("atoll-listener", AT_THREAD_STACK, listen_for_all, l,
                         &l->thread);
}

// The source and the address are borrowed for this call alone.
at_status at_listener_open(const at_listener_options *o, at_listener **out) {
  at_listener *l = calloc(1, sizeof *l);
  if (!l) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to listen");
  l->o = *o;
  l->fd = l->bell = -1;
  l->place = at_session_place();
  at_guests_init(&l->guests);
  pthread_mutex_init(&l->lock, NULL);
  at_clock_cond_init(&l->changed);
  at_status st = begin_to_listen(l);
  l->o.address = l->o.source = NULL;  // the caller's
  if (st.err)
    at_listener_close(l);
  else
    *out = l;
  return st;
}

const char *at_listener_address(const at_listener *l) { return l->address; }

uint64_t at_listener_strangers(const at_listener *l) {
  return atomic_load(&l->strangers);
}

// The loop first: it starts the others.
static void end_threads(at_listener *l) {
  pthread_mutex_lock(&l->lock);
  atomic_store(&l->stop, true);
  pthread_cond_broadcast(&l->changed);
  pthread_mutex_unlock(&l->lock);
  if (!l->thread) return;
  ring_bell(l);
  at_thread_join(l->thread);
  for (int i = 0; i < kOpenings; i++)
    if (atomic_load(&l->openings[i].progress) != FREE)
      at_thread_join(l->openings[i].thread);
}

// The token is wiped: memory of a process that ends may be read.
void at_listener_close(at_listener *l) {
  if (!l) return;
  end_threads(l);
  at_guests_drop_all(&l->guests);
  if (l->fd >= 0) close(l->fd);
  if (l->bell >= 0) close(l->bell);
  pthread_cond_destroy(&l->changed);
  pthread_mutex_destroy(&l->lock);
  explicit_bzero(&l->o.token, sizeof l->o.token);
  free(l->address);
  free(l);
}
