// TCP as a medium: a connection for each lane between two members, so that
// small messages never queue behind data. Senders write to the socket
// themselves; what it does not take waits in a buffer of fixed size, which the
// poller empties. Over TLS all of it goes through that buffer, encrypted.
//
// A carrier (pod/wire_carrier.h) may move the data of BULK instead. Its
// connection then carries nothing, and ends with the member.
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/linger.h"
#include "base/log.h"
#include "pod/address.h"
#include "pod/meet.h"
#include "pod/wire_carrier.h"
#include "pod/wire_meet.h"
#include "pod/wire_stream.h"

enum {
  kFrame = 1 << 20,
  kChecked = 128 << 10,  // hashed while it is in a core's cache
  kMany = 64,            // members; with more of them buffers stay small
  kTogether = 16 << 10,  // the poller's messages below this leave together
  kEvents = 64,          // of one look at the sockets
  kSmallRead = 4096,     // of BULK: a header, a seal, the end of a body
  kHeadAhead = 128,      // behind a large body: its seal and the next header
  kCreditParts = 8,      // a credit frame for each such part of a window
  kLingerMs = 1000,      // for others to take what was sent before a close
  kHeldBack = 2,         // `stuck_ms` without any of the data that was sent
  kTlsOver = 1024,       // of a lane's buffer: what TLS adds to what is in it
  kMs = 1000000,         // ns
};
static const size_t kOut[AT_WIRE_LANES] = {64 << 10, 2 << 20};
static const size_t kIn[AT_WIRE_LANES] = {16 << 10, 64 << 10};
// Events that are not of a connection: the poller's own, the carrier's.
static const uint64_t kBell = UINT64_MAX, kCarrier = UINT64_MAX - 1;

typedef struct socket_lane {
  int fd;       // -1: none, or lost; changed under the lane's lock
  at_tls *tls;  // NULL: in clear
  // The poller's:
  uint8_t *in;
  size_t in_at, in_end;
  bool ready, closing, ended;
  uint64_t received;
  // Under the lane's lock:
  uint8_t *out;
  size_t out_at, out_end, out_room;
  uint64_t sent;
  // Any thread:
  _Atomic uint32_t room;
  at_stream_credit credit, released;
  _Atomic uint64_t told_messages, told_bytes;  // of `released`
} socket_lane;

typedef struct peer {
  socket_lane lanes[AT_WIRE_LANES];
  bool heard;    // since the last check
  bool carried;  // BULK is
  // What BULK had received then, and when that grew, or was all, last.
  uint64_t came, came_ns;
} peer;

typedef struct tcp {
  const at_wire_options *options;  // while it opens
  at_addresses addresses;
  int epoll, bell;
  at_linger sleeps;
  at_carrier *carrier;  // NULL: none
  peer peers[];
} tcp;

static tcp *tcp_of(const at_stream *s) { return s->own; }

// Who carries a lane in place of its connection; NULL: nobody.
static at_carrier *carrier_of(const at_stream *s, uint32_t member,
                              at_wire_lane lane) {
  const tcp *t = tcp_of(s);
  return lane == AT_WIRE_BULK && t->peers[member].carried ? t->carrier : NULL;
}

// ---- Sending
static size_t waiting_bytes(const socket_lane *l) {
  return l->out_end - l->out_at;
}

// How much the socket takes now; what is wrong with it is found by its reader.
static size_t try_send(at_stream *s, socket_lane *l, const struct iovec *v,
                       int n) {
  const struct msghdr m = {.msg_iov = (struct iovec *)v,
                           .msg_iovlen = (size_t)n};
  for (;;) {
    ssize_t k = sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    at_tally(&s->tally.syscalls, 1);
    if (k >= 0) return l->sent += (size_t)k, (size_t)k;
    if (errno != EINTR) return 0;
  }
}

// As much as the socket takes.
static void flush(at_stream *s, socket_lane *l) {
  if (!waiting_bytes(l) || l->fd < 0) return;
  const struct iovec v = {l->out + l->out_at, waiting_bytes(l)};
  l->out_at += try_send(s, l, &v, 1);
  if (l->out_at == l->out_end) l->out_at = l->out_end = 0;
}

// at_tls_io.write: into the lane's buffer. False: it is full.
static bool keep(void *arg, const void *p, size_t n) {
  socket_lane *l = arg;
  if (l->out_end + n > l->out_room) {
    memmove(l->out, l->out + l->out_at, waiting_bytes(l));
    l->out_end -= l->out_at;
    l->out_at = 0;
  }
  if (l->out_end + n > l->out_room) return false;
  memcpy(l->out + l->out_end, p, n);
  l->out_end += n;
  return true;
}

// at_stream_medium.room. A sender that may wait does so until the
// lane's own buffer is empty.
static size_t tcp_room(at_stream *s, uint32_t to, at_wire_lane lane,
                       bool waits) {
  socket_lane *l = &tcp_of(s)->peers[to].lanes[lane];
  at_carrier *c = carrier_of(s, to, lane);
  if (c) return c->vtable->room(c, to);
  if (!at_stream_polls(s)) flush(s, l);
  size_t used = waiting_bytes(l);
  if (waits && used) return 0;
  if (l->tls) used += kTlsOver;
  return used < kOut[lane] ? kOut[lane] - used : 0;
}

// A broken session is found by tcp_check, as a sender cannot end a member.
static void write_tls(at_stream *s, socket_lane *l, const struct iovec *v,
                      int n, bool together) {
  const at_tls_io io = {l, NULL, keep};
  if (!at_tls_write(l->tls, &io, v, n)) {
    atomic_store(&s->urgent, true);  // tcp_check finds out why
    s->medium->wake(s);
  } else if (!together) {
    flush(s, l);
  }
}

// at_stream_medium.write: to the carrier, through TLS, or straight to the
// socket; what it does not take is kept.
static void tcp_write(at_stream *s, uint32_t to, at_wire_lane lane,
                      const struct iovec *v, int n) {
  socket_lane *l = &tcp_of(s)->peers[to].lanes[lane];
  at_carrier *c = carrier_of(s, to, lane);
  size_t bytes = 0, sent = 0;
  for (int i = 0; i < n; i++) bytes += v[i].iov_len;
  if (l->fd < 0) return;
  if (c) return c->vtable->write(c, to, v, n);
  if (l->tls)
    return write_tls(s, l, v, n, at_stream_polls(s) && bytes < kTogether);
  if (!waiting_bytes(l) && !(at_stream_polls(s) && bytes < kTogether))
    sent = try_send(s, l, v, n);
  for (int i = 0; i < n; i++) {
    size_t skip = AT_MIN(sent, v[i].iov_len);
    sent -= skip;
    bool kept =
        keep(l, (const uint8_t *)v[i].iov_base + skip, v[i].iov_len - skip);
    AT_ASSERT(kept);  // there was room
    (void)kept;
  }
}

// at_stream_medium.push.
static void tcp_push(at_stream *s, uint32_t to, at_wire_lane lane) {
  socket_lane *l = &tcp_of(s)->peers[to].lanes[lane];
  at_carrier *c = carrier_of(s, to, lane);
  if (c && l->fd >= 0)
    c->vtable->push(c, to);
  else
    flush(s, l);
}

// The poller hears of room in sockets, and of credits, in any case.
static void tcp_want(at_stream *s, uint32_t to, at_wire_lane lane, size_t bytes,
                     bool poller) {
  (void)s, (void)to, (void)lane, (void)bytes, (void)poller;
}

// ---- Credits
// Where there is no room for it now, the next beat says it.
static void tell_credit(at_stream *s, uint32_t from, at_wire_lane lane) {
  socket_lane *l = &tcp_of(s)->peers[from].lanes[lane];
  uint64_t messages = atomic_load(&l->released.messages);
  uint64_t bytes = atomic_load(&l->released.bytes);
  if (!at_stream_notice(s, from, AT_WIRE_CONTROL, AT_FRAME_CREDIT, lane, 0))
    return;
  atomic_store(&l->told_messages, messages);
  atomic_store(&l->told_bytes, bytes);
}

// Not for each message: a frame for every eighth of a window.
static void tcp_released(at_stream *s, uint32_t from, at_wire_lane lane) {
  socket_lane *l = &tcp_of(s)->peers[from].lanes[lane];
  uint64_t messages =
      atomic_load(&l->released.messages) - atomic_load(&l->told_messages);
  uint64_t bytes =
      atomic_load(&l->released.bytes) - atomic_load(&l->told_bytes);
  if (messages >= AT_MAX(s->options.window_messages / kCreditParts, 1u) ||
      bytes >= AT_MAX(s->options.window_bytes / kCreditParts, (uint64_t)1))
    tell_credit(s, from, lane);
}

// ---- Receiving
// How far to read past what is asked for: past a large body only as far as the
// next header, since bytes in the lane's buffer are copied once more.
static size_t read_ahead(at_wire_lane lane, size_t n) {
  return n < kSmallRead ? kIn[lane] : kHeadAhead;
}

// Into `to` and, what is more, into the lane's buffer.
static size_t receive(at_stream *s, peer *p, socket_lane *l, at_wire_lane lane,
                      void *to, size_t n) {
  const size_t ahead = read_ahead(lane, n);
  struct iovec v[2] = {{to, n}, {l->in, ahead}};
  struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
  ssize_t k;
  do {
    k = recvmsg(l->fd, &m, MSG_DONTWAIT);
    at_tally(&s->tally.syscalls, 1);
  } while (k < 0 && errno == EINTR);
  const bool full = k == (ssize_t)(n + ahead);
  l->ready = full || (k > 0 && l->closing);
  l->ended |= k == 0 || (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  if (l->ended) atomic_store(&s->urgent, true);
  if (k <= 0) return 0;
  p->heard = true;
  l->received += (size_t)k;
  l->in_at = 0;
  l->in_end = (size_t)k > n ? (size_t)k - n : 0;
  return AT_MIN((size_t)k, n);
}

static bool has_in(const socket_lane *l) {
  return l->in_at < l->in_end || (l->tls && at_tls_holds(l->tls));
}

// at_tls_io.read: from the lane's buffer.
static size_t give_in(void *arg, void *to, size_t n) {
  socket_lane *l = arg;
  n = AT_MIN(n, l->in_end - l->in_at);
  memcpy(to, l->in + l->in_at, n);
  l->in_at += n;
  return n;
}

// Decrypts until there is something, or the socket has no more.
static size_t read_tls(at_stream *s, peer *p, at_wire_lane lane, void *to,
                       size_t n) {
  socket_lane *l = &p->lanes[lane];
  const at_tls_io io = {l, give_in, NULL};
  for (size_t got;;) {
    if (!has_in(l)) {
      if (!l->ready || l->ended || l->fd < 0) return 0;
      receive(s, p, l, lane, NULL, 0);
      if (!has_in(l)) return 0;
    }
    if (!at_tls_read(l->tls, &io, to, n, &got)) {
      l->ended = true;
      l->in_at = l->in_end;
      atomic_store(&s->urgent, true);
    }
    if (got) return got;
  }
}

// All that a carried lane's connection says is its end.
static void look_for_end(at_stream *s, socket_lane *l) {
  char byte;
  if (!l->ready || l->ended) return;
  ssize_t k = recv(l->fd, &byte, 1, MSG_DONTWAIT);
  at_tally(&s->tally.syscalls, 1);
  l->ready = k < 0 && errno == EINTR;
  l->ended = k >= 0 || (errno != EAGAIN && errno != EINTR);
  if (l->ended) atomic_store(&s->urgent, true);
}

// at_stream_medium.read.
static size_t tcp_read(at_stream *s, uint32_t from, at_wire_lane lane, void *to,
                       size_t n) {
  peer *p = &tcp_of(s)->peers[from];
  socket_lane *l = &p->lanes[lane];
  if (l->tls) return read_tls(s, p, lane, to, n);
  size_t have = l->in_end - l->in_at;
  at_carrier *c = carrier_of(s, from, lane);
  if (c) {
    look_for_end(s, l);
    return c->vtable->read(c, from, to, n);
  }
  if (!have)
    return l->ready && !l->ended && l->fd >= 0 ? receive(s, p, l, lane, to, n)
                                               : 0;
  return give_in(l, to, n);
}

// ---- Sleep
// The socket takes bytes again.
static void on_room(at_stream *s, uint32_t to, at_wire_lane lane) {
  at_stream_lane *l = &s->members[to].lanes[lane];
  pthread_mutex_lock(&l->lock);
  tcp_push(s, to, lane);
  pthread_mutex_unlock(&l->lock);
  at_stream_roomy(s, to, lane);
}

// Takes what has come by the carrier. True: there was something.
static bool take_turn(at_stream *s) {
  at_carrier *c = tcp_of(s)->carrier;
  if (!c) return false;
  bool any = c->vtable->turn(c);
  for (uint32_t m = 0; m < s->face.count; m++) {
    if (!carrier_of(s, m, AT_WIRE_BULK) || !c->vtable->news(c, m)) continue;
    at_status st = c->vtable->check(c, m);
    if (st.err) atomic_store(&s->urgent, true);
    at_status_free(st);
    on_room(s, m, AT_WIRE_BULK);
    any = true;
  }
  return any;
}

// One event of epoll, which is edge-triggered: `ready` stays until a read finds
// nothing.
static void on_event(at_stream *s, const struct epoll_event *e) {
  tcp *t = tcp_of(s);
  uint64_t count;
  if (e->data.u64 == kBell) {
    (void)!read(t->bell, &count, sizeof count);
    at_tally(&s->tally.syscalls, 1);
    return;
  }
  if (e->data.u64 == kCarrier) {
    (void)take_turn(s);
    return;
  }
  const uint32_t from = (uint32_t)(e->data.u64 / AT_WIRE_LANES);
  const at_wire_lane lane = e->data.u64 % AT_WIRE_LANES;
  socket_lane *l = &t->peers[from].lanes[lane];
  if (e->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) l->closing = true;
  if (e->events & EPOLLIN || l->closing) l->ready = true;
  if (e->events & EPOLLOUT) on_room(s, from, lane);
}

// More than has been read so far.
static bool any_readable(at_stream *s) {
  for (uint32_t m = 0; m < s->face.count; m++) {
    for (int lane = 0; lane < AT_WIRE_LANES; lane++) {
      const socket_lane *l = &tcp_of(s)->peers[m].lanes[lane];
      if (l->fd < 0 || s->members[m].lanes[lane].left) continue;
      if ((l->ready && !l->ended) || has_in(l)) return true;
      at_carrier *c = carrier_of(s, m, lane);
      if (c && c->vtable->readable(c, m)) return true;
    }
  }
  return false;
}

// What epoll has told.
typedef struct news {
  at_stream *s;
  struct epoll_event events[kEvents];
  int count;
} news;

static void hear(news *n, int ms) {
  n->count = epoll_wait(tcp_of(n->s)->epoll, n->events, kEvents, ms);
  at_tally(&n->s->tally.syscalls, 1);
}

static bool hears(void *arg) {
  news *n = arg;
  hear(n, 0);
  return n->count > 0;
}

// at_stream_medium.sleep. A carrier is armed for one wait.
static void tcp_sleep(at_stream *s, uint64_t until_ns) {
  news n = {.s = s};
  at_carrier *c = tcp_of(s)->carrier;
  const bool turned = take_turn(s);
  uint64_t now_ns = at_clock_ns();
  int ms = 0;
  if (until_ns > now_ns && !turned && !any_readable(s) &&
      !at_stream_has_work(s) && (!c || c->vtable->arm(c)))
    ms = (int)((until_ns - now_ns + kMs - 1) / kMs);
  if (!ms || c ||
      !at_linger_for(&tcp_of(s)->sleeps, s->options.spin_ns, hears, &n)) {
    hear(&n, ms);
    at_tally(&s->tally.wakeups, ms != 0);
  }
  for (int i = 0; i < n.count; i++) on_event(s, &n.events[i]);
}

// at_stream_medium.wake, from any thread.
static void tcp_wake(at_stream *s) {
  const uint64_t one = 1;
  (void)!write(tcp_of(s)->bell, &one, sizeof one);
  at_tally(&s->tally.syscalls, 1);
}

// ---- Life
// Somebody on the way lets the small messages through, but not the data: a
// firewall that has forgotten that connection, or an attacker.
static at_status check_data(at_stream *s, uint32_t member, uint64_t now_ns) {
  peer *p = &tcp_of(s)->peers[member];
  const socket_lane *l = &p->lanes[AT_WIRE_BULK];
  const uint64_t all = s->members[member].bulk_bytes;
  if (l->received != p->came || l->received >= all) p->came_ns = now_ns;
  p->came = l->received;
  if (now_ns - p->came_ns < (uint64_t)s->options.stuck_ms * kHeldBack * kMs)
    return AT_OK;
  return AT_FAIL(AT_UNAVAILABLE,
                 "it has sent %llu bytes of data, of which only %llu have come",
                 (unsigned long long)all, (unsigned long long)l->received);
}

// at_stream_medium.check.
static at_status tcp_check(at_stream *s, uint32_t member, uint64_t now_ns) {
  peer *p = &tcp_of(s)->peers[member];
  if (p->heard) s->members[member].heard_ns = now_ns;
  p->heard = false;
  for (int lane = 0; lane < AT_WIRE_LANES; lane++) {
    const socket_lane *l = &p->lanes[lane];
    if (l->tls) AT_TRY(at_tls_status(l->tls));
    if (l->ended && !s->members[member].lanes[lane].left)
      return AT_FAIL(AT_UNAVAILABLE, "it has ended, or the connection broke");
  }
  at_carrier *c = carrier_of(s, member, AT_WIRE_BULK);
  return c ? c->vtable->check(c, member) : check_data(s, member, now_ns);
}

// What the beat says of the data connection.
static uint64_t bulk_bytes(at_stream *s, uint32_t to) {
  at_stream_lane *l = &s->members[to].lanes[AT_WIRE_BULK];
  pthread_mutex_lock(&l->lock);
  uint64_t bytes = tcp_of(s)->peers[to].lanes[AT_WIRE_BULK].sent;
  pthread_mutex_unlock(&l->lock);
  return bytes;
}

// Signs of life, with credits that have not been told.
static void tcp_beat(at_stream *s) {
  for (uint32_t m = 0; m < s->face.count; m++) {
    if (m == s->face.me || atomic_load(&s->members[m].lost)) continue;
    at_stream_notice(s, m, AT_WIRE_CONTROL, AT_FRAME_BEAT, AT_WIRE_BULK,
                     bulk_bytes(s, m));
    for (at_wire_lane lane = 0; lane < AT_WIRE_LANES; lane++) {
      socket_lane *l = &tcp_of(s)->peers[m].lanes[lane];
      if (atomic_load(&l->released.messages) != atomic_load(&l->told_messages))
        tell_credit(s, m, lane);
    }
  }
}

// at_stream_medium.drop. Under each lane's lock, as a sender may be writing.
static void tcp_drop(at_stream *s, uint32_t member) {
  for (at_wire_lane lane = 0; lane < AT_WIRE_LANES; lane++) {
    socket_lane *l = &tcp_of(s)->peers[member].lanes[lane];
    at_carrier *c = carrier_of(s, member, lane);
    pthread_mutex_lock(&s->members[member].lanes[lane].lock);
    if (c) c->vtable->drop(c, member);
    close(l->fd);
    l->fd = -1;
    l->out_at = l->out_end = 0;
    pthread_mutex_unlock(&s->members[member].lanes[lane].lock);
  }
}

// Until the other side has read everything and closed, or the time is over: a
// close with unread bytes would take back what is under way. The connection of
// a carried lane stays open meanwhile, as a sign that its data will come.
static void linger(at_stream *s, socket_lane *l, uint64_t until_ns) {
  at_carrier *c = tcp_of(s)->carrier;
  bool shut = false, open = true;
  char waste[4096];
  while (open && at_clock_ns() < until_ns) {
    const bool turned = take_turn(s);
    flush(s, l);
    if (!waiting_bytes(l) && !shut) shut = !shutdown(l->fd, SHUT_WR);
    const bool sleeps = !turned && (!c || c->vtable->arm(c));
    struct pollfd p[2] = {
        {.fd = l->fd, .events = POLLIN | (waiting_bytes(l) ? POLLOUT : 0)},
        {.fd = c ? c->fd : -1, .events = POLLIN}};
    uint64_t now_ns = at_clock_ns();
    int ms = now_ns < until_ns ? (int)((until_ns - now_ns) / kMs) : 0;
    if (poll(p, 2, sleeps ? ms : 0) <= 0 || !p[0].revents) continue;
    ssize_t k = recv(l->fd, waste, sizeof waste, MSG_DONTWAIT);
    open = k > 0 || (k < 0 && (errno == EAGAIN || errno == EINTR));
  }
}

// Also of one that is half made.
static void free_tcp(tcp *t, uint32_t count) {
  if (t->carrier) t->carrier->vtable->close(t->carrier);
  for (uint32_t m = 0; m < count; m++) {
    for (int lane = 0; lane < AT_WIRE_LANES; lane++) {
      socket_lane *l = &t->peers[m].lanes[lane];
      if (l->fd >= 0) close(l->fd);
      at_tls_free(l->tls);
      free(l->in);
      free(l->out);
    }
  }
  if (t->epoll >= 0) close(t->epoll);
  if (t->bell >= 0) close(t->bell);
  free(t);
}

// at_stream_medium.close.
static void tcp_close(at_stream *s) {
  tcp *t = tcp_of(s);
  // What a carrier has under way ends with this process: whoever is not stuck
  // takes it before.
  const uint64_t ms = kLingerMs + (t->carrier ? s->options.stuck_ms : 0);
  const uint64_t until_ns = at_clock_ns() + ms * kMs;
  // Every member reads what is left of all before the first one is waited for.
  for (uint32_t m = 0; m < s->face.count; m++)
    for (int lane = 0; lane < AT_WIRE_LANES; lane++)
      if (t->peers[m].lanes[lane].fd >= 0) flush(s, &t->peers[m].lanes[lane]);
  for (uint32_t m = 0; m < s->face.count; m++)
    for (at_wire_lane lane = 0; lane < AT_WIRE_LANES; lane++)
      if (t->peers[m].lanes[lane].fd >= 0 && !carrier_of(s, m, lane))
        linger(s, &t->peers[m].lanes[lane], until_ns);
  free_tcp(t, s->face.count);
}

// at_stream_medium.end.
static at_loopback_end tcp_end(at_stream *s, uint32_t member,
                               at_wire_lane lane) {
  return at_loopback_end_of(tcp_of(s)->peers[member].lanes[lane].fd);
}

// at_stream_medium.reaches.
static bool tcp_reaches(at_stream *s, uint32_t member, at_wire_lane lane,
                        at_loopback_end there) {
  return !carrier_of(s, member, lane) &&
         at_loopback_reaches(tcp_of(s)->peers[member].lanes[lane].fd, there);
}

static const at_stream_medium kTcp = {
    .name = "tcp",
    .sums = true,
    .max_frame = kFrame,
    .tick_ns = 100 * (uint64_t)kMs,
    .room = tcp_room,
    .write = tcp_write,
    .push = tcp_push,
    .want = tcp_want,
    .released = tcp_released,
    .wake = tcp_wake,
    .read = tcp_read,
    .sleep = tcp_sleep,
    .check = tcp_check,
    .beat = tcp_beat,
    .drop = tcp_drop,
    .end = tcp_end,
    .reaches = tcp_reaches,
    .close = tcp_close,
};

// ---- Meeting
// at_meeting.listen.
static at_status tcp_listen(void *arg, int *out) {
  tcp *t = arg;
  return at_address_listen(&t->addresses, t->options->me, out);
}

// at_meeting.call.
static at_status tcp_call(void *arg, uint32_t member, uint64_t until_ns,
                          int *out) {
  tcp *t = arg;
  struct addrinfo *all;
  AT_TRY(at_address_resolve(&t->addresses, member, &all));
  *out = at_address_connect(all, until_ns);
  freeaddrinfo(all);
  return AT_OK;
}

// at_meeting.met: `call` is the lane. The descriptor is t's also on failure.
static at_status tcp_met(void *arg, uint32_t member, uint32_t call, int fd,
                         const int *fds, int count) {
  tcp *t = arg;
  int one = 1;
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                          .data.u64 = member * AT_WIRE_LANES + call};
  socket_lane *l = &t->peers[member].lanes[call];
  l->fd = fd;
  l->in = malloc(kIn[call]);
  l->out_room = kOut[call] + AT_STREAM_RESERVE + (l->tls ? kTlsOver : 0);
  l->out = malloc(l->out_room);
  if (!l->in || !l->out)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to talk to process %u",
                   member);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, fd, &e))
    return AT_FAIL(AT_UNAVAILABLE, "cannot listen to process %u: %s", member,
                   strerror(errno));
  return AT_OK;
}

// ---- Opening
// Links, or as many addresses as members.
static at_status make_tcp(const at_wire_options *o, tcp **out) {
  if (!o->links &&
      (!o->addresses || at_address_count(o->addresses) != o->count))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%u processes need as many addresses; there are %u",
                   o->count, o->addresses ? at_address_count(o->addresses) : 0);
  tcp *t = calloc(1, sizeof *t + o->count * sizeof *t->peers);
  if (!t)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for a wire of %u processes", o->count);
  t->options = o;
  t->addresses = (at_addresses){o->addresses, "the addresses of the group"};
  for (uint32_t m = 0; m < o->count; m++)
    for (int lane = 0; lane < AT_WIRE_LANES; lane++)
      t->peers[m].lanes[lane].fd = -1;
  t->sleeps.polite = true;
  t->epoll = epoll_create1(EPOLL_CLOEXEC);
  t->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct epoll_event e = {.events = EPOLLIN, .data.u64 = kBell};
  if (t->epoll >= 0 && t->bell >= 0 &&
      !epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->bell, &e))
    return *out = t, AT_OK;
  at_status st =
      AT_FAIL(AT_RESOURCE_EXHAUSTED, "no descriptors: %s", strerror(errno));
  free_tcp(t, o->count);
  return st;
}

// Those that nobody has taken.
static void close_links(const at_wire_options *o) {
  for (uint32_t i = 0; o->links && i < o->count * AT_WIRE_LANES; i++)
    at_pod_link_close(&o->links[i]);
}

// Connections that others have made.
static at_status take_links(tcp *t, const at_wire_options *o) {
  for (uint32_t m = 0; m < o->count; m++) {
    for (uint32_t lane = 0; lane < AT_WIRE_LANES && at_wire_meets(o, m);
         lane++) {
      at_pod_link *l = &o->links[m * AT_WIRE_LANES + lane];
      const int fd = l->fd;
      AT_ASSERT(fd >= 0);
      t->peers[m].lanes[lane].tls = l->tls;
      l->fd = -1;
      l->tls = NULL;
      AT_TRY(tcp_met(t, m, lane, fd, NULL, 0));
    }
  }
  return AT_OK;
}

// TLS keeps its promise about bytes by itself; all lanes have it, or none.
static void protect_lanes(tcp *t, at_stream *s, const at_wire_options *o) {
  for (uint32_t m = 0; m < o->count; m++) {
    for (uint32_t lane = 0; lane < AT_WIRE_LANES && at_wire_meets(o, m);
         lane++) {
      const at_pod_link *l = &o->links[m * AT_WIRE_LANES + lane];
      if (t->peers[m].lanes[lane].tls)
        s->members[m].lanes[lane].in.limits.check_bodies = false;
      else
        at_stream_seal(s, m, lane, &l->send, &l->recv);
    }
  }
}

// Words and credits of the lanes are this process's own: they come by frames.
static void connect_lanes(tcp *t, at_stream *s) {
  for (uint32_t m = 0; m < s->face.count; m++) {
    for (int lane = 0; lane < AT_WIRE_LANES; lane++) {
      at_stream_lane *l = &s->members[m].lanes[lane];
      l->room = &t->peers[m].lanes[lane].room;
      l->credit = &t->peers[m].lanes[lane].credit;
      l->released = &t->peers[m].lanes[lane].released;
    }
  }
}

// ---- The carrier
// Whether UCX moves the data of BULK.
typedef enum carriage {
  NEVER,
  WHERE_IT_WORKS,  // pair by pair
  ALWAYS,
} carriage;

// Is everybody at the other end of the loopback device?
static bool all_local(const tcp *t, const at_wire_options *o) {
  for (uint32_t m = 0; m < o->count; m++)
    if (at_wire_meets(o, m) &&
        !at_address_peer_is_local(t->peers[m].lanes[AT_WIRE_BULK].fd))
      return false;
  return true;
}

// The poller sleeps on the carrier's descriptor as well.
static at_status watch_carrier(tcp *t) {
  struct epoll_event e = {.events = EPOLLIN, .data.u64 = kCarrier};
  if (!epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->carrier->fd, &e)) return AT_OK;
  return AT_FAIL(AT_UNAVAILABLE, "cannot listen to UCX: %s", strerror(errno));
}

// Lanes that are carried need no buffers.
static void carry(peer *p) {
  socket_lane *l = &p->lanes[AT_WIRE_BULK];
  p->carried = true;
  free(l->in);
  free(l->out);
  l->in = l->out = NULL;
}

// Tells where the data goes.
static at_status settle_carried(tcp *t, const at_wire_options *o, carriage how,
                                const bool *reached) {
  uint32_t num_carried = 0, missing = o->me;
  for (uint32_t m = 0; m < o->count; m++) {
    if (!at_wire_meets(o, m)) continue;
    if (reached[m])
      carry(&t->peers[m]);
    else
      missing = m;
    num_carried += reached[m];
  }
  if (how == ALWAYS && missing != o->me)
    return AT_FAIL(AT_UNAVAILABLE,
                   "process %u and process %u do not reach each other over UCX",
                   o->me, missing);
  if (!t->carrier) return AT_OK;
  at_log_once(AT_LOG_INFO,
              "data goes over UCX to %u of %u other processes, over TCP to the "
              "rest",
              num_carried, o->count - 1);
  if (num_carried) return watch_carrier(t);
  t->carrier->vtable->close(t->carrier);
  t->carrier = NULL;
  return AT_OK;
}

// All members come here with the same `how`, since they meet over it.
static at_status find_carrier(tcp *t, const at_wire_options *o, carriage how) {
  if (how == NEVER) return AT_OK;
  at_status st = at_ucx_open(o->count, o->me, how == ALWAYS || o->any_ucx,
                             all_local(t, o), &t->carrier);
  if (st.err && how == ALWAYS) return st;
  if (st.err)
    at_log_once(AT_LOG_INFO, "data goes over TCP: %s", at_status_message(st));
  at_status_free(st);
  int *fds = malloc(o->count * sizeof *fds);
  bool *reached = malloc(o->count * sizeof *reached);
  for (uint32_t m = 0; m < o->count && fds; m++)
    fds[m] = t->peers[m].lanes[AT_WIRE_BULK].fd;
  st = fds && reached ? at_carrier_meet(o, fds, t->carrier, reached)
                      : AT_FAIL(AT_RESOURCE_EXHAUSTED,
                                "no memory to meet %u processes", o->count);
  if (!st.err) st = settle_carried(t, o, how, reached);
  free(fds);
  free(reached);
  return st;
}

// What a carrier moves is not encrypted.
static at_status respect_tls(const at_wire_options *o, carriage *how) {
  bool tls = false;
  for (size_t i = 0; o->links && i < (size_t)o->count * AT_WIRE_LANES; i++)
    tls |= o->links[i].tls != NULL;
  if (tls && *how == ALWAYS)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "data that goes by UCX is not encrypted, but the processes "
                   "talk over TLS\nhint: ATOLL_POD_NETWORK=trusted in every "
                   "process, where nobody else listens on the network between "
                   "them, or ATOLL_POD_WIRE=tcp");
  if (tls) *how = NEVER;
  return AT_OK;
}

// ---- All of it
// Takes the options' links, also on failure.
static at_status open_tcp(const at_wire_options *o, carriage how,
                          at_wire **out) {
  tcp *t;
  at_stream *s = NULL;
  at_status st = respect_tls(o, &how);
  if (!st.err) st = make_tcp(o, &t);
  if (st.err) return close_links(o), st;
  const at_meeting meeting = {.options = o,
                              .arg = t,
                              .calls = AT_WIRE_LANES,
                              .listen = tcp_listen,
                              .call = tcp_call,
                              .met = tcp_met};
  st = o->links ? take_links(t, o) : at_wire_meet(&meeting);
  if (!st.err) st = find_carrier(t, o, how);
  if (!st.err) st = at_stream_create(&kTcp, o, t, &s);
  if (!st.err) {
    if (t->carrier) s->face.medium = "ucx";
    if (o->links) protect_lanes(t, s, o);
    s->checked_frame = kChecked;
    s->bare_frame = o->count > kMany ? kChecked : kFrame;
    t->options = NULL;
    connect_lanes(t, s);
    st = at_stream_start(s, out);
  }
  if (st.err) {
    if (s) at_stream_free(s);
    free_tcp(t, o->count);
    close_links(o);
  }
  return st;
}

at_status at_wire_tcp_open(const at_wire_options *o, at_wire **out) {
  return open_tcp(o, NEVER, out);
}

at_status at_wire_ucx_open(const at_wire_options *o, at_wire **out) {
  return open_tcp(o, ALWAYS, out);
}

at_status at_wire_net_open(const at_wire_options *o, at_wire **out) {
  return open_tcp(o, WHERE_IT_WORKS, out);
}
