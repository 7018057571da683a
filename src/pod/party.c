#include "pod/party.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum {
  kGone = 64,       // that hang up before they are accepted, in a row
  kMs = 1000000,    // ns
  kPauseUs = 1000,  // for descriptors to become free
};

void at_pod_link_close(at_pod_link *l) {
  if (l->fd >= 0) close(l->fd);
  at_tls_free(l->tls);
  *l = (at_pod_link){.fd = -1};
}

// The place is free afterwards.
void at_party_drop(at_party *p) {
  if (p->fd >= 0) close(p->fd);
  at_tls_free(p->tls);
  p->tls = NULL;
  p->fd = -1;
}

// Bytes that wait also count as open: nothing is read.
bool at_party_is_open(int fd) {
  uint8_t byte;
  ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

// ---- Calls
// Without waiting; errno says why on failure.
bool at_party_ring(at_party *p, const struct addrinfo *to) {
  p->fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                 to->ai_protocol);
  if (p->fd < 0) return false;
  p->connecting = true;
  if (!connect(p->fd, to->ai_addr, to->ai_addrlen) || errno == EINPROGRESS)
    return true;
  int error = errno;
  at_party_drop(p);
  errno = error;
  return false;
}

// Writable after at_party_ring: has it connected? errno.
bool at_party_arrived(at_party *p) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &size)) return false;
  p->connecting = false;
  errno = error;
  return !error;
}

// ---- The proof
// False: it is gone, or reads nothing. The messages of a proof fit into any
// socket's buffer.
bool at_party_say(at_party *p) {
  at_bytes out = at_proof_take(&p->proof);
  return !out.len || send(p->fd, out.ptr, out.len,
                          MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)out.len;
}

// Reads exactly the bytes of the proof: what follows is not its own.
at_proof_state at_party_hear(at_party *p) {
  uint8_t *to;
  for (size_t room; (room = at_proof_room(&p->proof, &to));) {
    ssize_t n = recv(p->fd, to, room, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return AT_PROOF_READS;
    if (n <= 0) return AT_PROOF_STRANGER;
    at_proof_got(&p->proof, (size_t)n);
    if (!at_party_say(p)) return AT_PROOF_STRANGER;
  }
  return p->proof.state;
}

// ---- TLS
// at_tls_io.read without waiting.
static size_t tls_hears(void *arg, void *to, size_t n) {
  at_party *p = arg;
  ssize_t k;
  do k = recv(p->fd, to, n, MSG_DONTWAIT);
  while (k < 0 && errno == EINTR);
  p->cut |= k == 0 || (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  return k > 0 ? (size_t)k : 0;
}

// at_tls_io.write: all or the connection counts as cut.
static bool tls_says(void *arg, const void *bytes, size_t n) {
  at_party *p = arg;
  p->cut |= send(p->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n;
  return !p->cut;
}

at_tls_io at_party_io(at_party *p) {
  return (at_tls_io){p, tls_hears, tls_says};
}

// The key comes of the proof, so each end knows the other by it.
at_status at_party_begin_tls(at_party *p) {
  uint8_t key[AT_TLS_KEY];
  at_proof_key(&p->proof, key);
  p->cut = false;
  return at_tls_create(key, p->proof.calls, &p->tls);
}

// An end of the connection is a broken handshake, whatever libssl thinks.
at_tls_state at_party_shake(at_party *p) {
  const at_tls_io io = at_party_io(p);
  at_tls_state state = at_tls_shake(p->tls, &io);
  return p->cut ? AT_TLS_BROKEN : state;
}

// A new error that says why.
at_status at_party_broken(const at_party *p) {
  at_status st = at_tls_status(p->tls);
  return st.err ? st : AT_FAIL(AT_DATA_LOSS, "TLS: the connection ended");
}

// The socket blocks from here on, and sends small messages at once.
at_status at_party_link(at_party *p, at_pod_link *out) {
  int one = 1, flags = fcntl(p->fd, F_GETFL);
  if (flags < 0 || fcntl(p->fd, F_SETFL, flags & ~O_NONBLOCK))
    return AT_FAIL(AT_UNAVAILABLE, "%s", strerror(errno));
  (void)setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  *out = (at_pod_link){p->fd, p->proof.send, p->proof.recv, p->tls};
  p->fd = -1;
  p->tls = NULL;
  return AT_OK;
}

// ---- Guests
void at_guests_init(at_guests *g) {
  *g = (at_guests){0};
  for (uint32_t i = 0; i < AT_GUESTS; i++) g->all[i].fd = -1;
}

// Says nothing of who has proved the token, and is late with what follows.
void at_guests_turn_away(at_guests *g, at_party *p) {
  g->strangers +=
      p->proof.state == AT_PROOF_READS || p->proof.state == AT_PROOF_STRANGER;
  at_party_drop(p);
}

// NULL: all places for strangers are taken.
static at_party *free_place(at_guests *g) {
  for (uint32_t i = 0; i < AT_GUESTS; i++)
    if (g->all[i].fd < 0) return &g->all[i];
  return NULL;
}

// Turns away who has got least far, of these who has waited longest.
static void make_place(at_guests *g) {
  at_party *worst = NULL;
  for (uint32_t i = 0; i < AT_GUESTS; i++) {
    at_party *p = &g->all[i];
    if (p->fd < 0) continue;
    if (!worst || p->proof.step < worst->proof.step ||
        (p->proof.step == worst->proof.step && p->until_ns < worst->until_ns))
      worst = p;
  }
  if (worst) at_guests_turn_away(g, worst);
}

// Always finds one: a guest goes if need be.
static at_party *take_place(at_guests *g, int fd) {
  if (!free_place(g)) make_place(g);
  at_party *p = free_place(g);
  *p = (at_party){.fd = fd,
                  .until_ns = at_clock_ns() + (uint64_t)AT_GUEST_MS * kMs};
  return p;
}

// NULL: nobody is waiting now, or there are no descriptors; then a guest goes
// so that one becomes free.
at_party *at_guests_next(at_guests *g, int listener) {
  for (int i = 0; i < kGone; i++) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return take_place(g, fd);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return NULL;
    if (errno == EMFILE || errno == ENFILE) {
      make_place(g);
      usleep(kPauseUs);
      return NULL;
    }  // else: gone again
  }
  return NULL;
}

// Each guest has a time of its own by which it must have proved itself.
void at_guests_drop_late(at_guests *g, uint64_t now_ns) {
  for (uint32_t i = 0; i < AT_GUESTS; i++)
    if (g->all[i].fd >= 0 && now_ns >= g->all[i].until_ns)
      at_guests_turn_away(g, &g->all[i]);
}

void at_guests_drop_all(at_guests *g) {
  for (uint32_t i = 0; i < AT_GUESTS; i++) at_party_drop(&g->all[i]);
}
