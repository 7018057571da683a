#include "pod/address.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/span.h"

enum { kBacklog = 128 };

// Commas, not addresses that resolve: an empty text has none.
uint32_t at_address_count(const char *text) {
  uint32_t n = *text != 0;
  for (const char *p = text; *p; p++) n += *p == ',';
  return n;
}

// i must be below the count.
static const char *find(const char *text, uint32_t i) {
  for (; i; i--) text = strchr(text, ',') + 1;
  return text;
}

bool at_address_is_there(const char *text, uint32_t i) {
  const char first = *find(text, i);
  return first && first != ',';
}

// getaddrinfo may ask a name server, so this can take seconds.
at_status at_address_resolve(const at_addresses *a, uint32_t i,
                             struct addrinfo **out) {
  const char *at = find(a->text, i);
  const char *end = strchr(at, ',');
  size_t n = end ? (size_t)(end - at) : strlen(at);
  char text[256], *colon = NULL;
  if (n < sizeof text) {
    memcpy(text, at, n);
    text[n] = 0;
    colon = strrchr(text, ':');
  }
  if (!colon || colon == text || !colon[1])
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: %.*s is not host:port", a->source,
                   (int)AT_MIN(n, (size_t)100), at);
  *colon = 0;
  char *host = text;
  if (*host == '[' && colon[-1] == ']') host++, colon[-1] = 0;  // of IPv6
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  int code = getaddrinfo(host, colon + 1, &hints, out);
  if (code)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: %s:%s: %s", a->source, host,
                   colon + 1, gai_strerror(code));
  return AT_OK;
}

// Closed on exec, as all descriptors here.
static int socket_of(const struct addrinfo *to, int flags) {
  return socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | flags,
                to->ai_protocol);
}

// The first of its addresses that can be bound. SO_REUSEADDR: a process that
// comes back binds the port of the one before.
at_status at_address_bind(const at_addresses *a, uint32_t i, int *out) {
  struct addrinfo *all;
  AT_TRY(at_address_resolve(a, i, &all));
  int fd = -1, one = 1, error = 0;
  for (struct addrinfo *to = all; to && fd < 0; to = to->ai_next) {
    fd = socket_of(to, 0);
    if (fd < 0) {
      error = errno;
      continue;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(fd, to->ai_addr, to->ai_addrlen)) break;
    error = errno;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(all);
  if (fd < 0)
    return AT_FAIL(AT_UNAVAILABLE,
                   "process %u cannot listen at its address of %s (%s): %s", i,
                   a->source, a->text, strerror(error));
  *out = fd;
  return AT_OK;
}

// Callers queue up from here on.
at_status at_address_listen(const at_addresses *a, uint32_t me, int *out) {
  int fd;
  AT_TRY(at_address_bind(a, me, &fd));
  if (listen(fd, kBacklog)) {
    at_status st =
        AT_FAIL(AT_UNAVAILABLE,
                "process %u cannot listen at its address of %s (%s): %s", me,
                a->source, a->text, strerror(errno));
    return close(fd), st;
  }
  *out = fd;
  return AT_OK;
}

// Address and port as numbers, so that two spellings of one address digest
// alike.
static void add_place(at_digest *d, const struct sockaddr *at) {
  if (at->sa_family == AF_INET) {
    const struct sockaddr_in *in = (const void *)at;
    at_digest_add_u64(d, ntohl(in->sin_addr.s_addr));
    at_digest_add_u64(d, ntohs(in->sin_port));
  } else if (at->sa_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const void *)at;
    at_digest_add(d, (at_bytes){in->sin6_addr.s6_addr, 16});
    at_digest_add_u64(d, ntohs(in->sin6_port));
  }
}

// Every process digests the same list; of names with several addresses the
// first IPv4 one counts.
at_status at_address_digest(const at_addresses *a, at_digest *d) {
  for (uint32_t i = 0; i < at_address_count(a->text); i++) {
    struct addrinfo *all;
    if (!at_address_is_there(a->text, i)) {
      at_digest_add_u64(d, UINT64_MAX);
      continue;
    }
    AT_TRY(at_address_resolve(a, i, &all));
    const struct sockaddr *best = NULL;
    for (const struct addrinfo *x = all; x; x = x->ai_next)
      if (!best || (best->sa_family != AF_INET && x->ai_family == AF_INET))
        best = x->ai_addr;
    if (best) add_place(d, best);
    freeaddrinfo(all);
  }
  return AT_OK;
}

// The port that the system chose, where 0 was bound.
at_status at_address_port(int fd, uint32_t *out) {
  struct sockaddr_storage at;
  socklen_t size = sizeof at;
  if (getsockname(fd, (struct sockaddr *)&at, &size))
    return AT_FAIL(AT_UNAVAILABLE, "a socket without an address: %s",
                   strerror(errno));
  *out = ntohs(at.ss_family == AF_INET6
                   ? ((const struct sockaddr_in6 *)&at)->sin6_port
                   : ((const struct sockaddr_in *)&at)->sin_port);
  return AT_OK;
}

// 127.0.0.0/8, ::1, or the former mapped into IPv6.
static bool is_local(const struct sockaddr *at) {
  if (at->sa_family == AF_INET) {
    const struct sockaddr_in *in = (const void *)at;
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
  }
  const struct sockaddr_in6 *in = (const void *)at;
  return at->sa_family == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&in->sin6_addr) ||
                                       (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr) &&
                                        in->sin6_addr.s6_addr[12] == 127));
}

// All of them: one address that others reach is enough to need a token.
bool at_address_is_local(const struct addrinfo *all) {
  for (; all; all = all->ai_next)
    if (!is_local(all->ai_addr)) return false;
  return true;
}

// Is the other end of a connection on this machine? False where that cannot be
// told.
bool at_address_peer_is_local(int fd) {
  struct sockaddr_storage at;
  socklen_t n = sizeof at;
  return !getpeername(fd, (struct sockaddr *)&at, &n) &&
         is_local((struct sockaddr *)&at);
}

// A connection that is under way: has it come about in time?
static bool comes(int fd, uint64_t until_ns) {
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  int err = 0;
  socklen_t size = sizeof err;
  for (;;) {
    uint64_t left = until_ns - AT_MIN(until_ns, at_clock_ns());
    int n = poll(&p, 1, (int)AT_MIN(left / 1000000 + 1, (uint64_t)INT32_MAX));
    if (n < 0 && errno == EINTR) continue;
    return n > 0 && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size) && !err;
  }
}

// Tries the addresses in turn, all within the one deadline. The socket blocks
// afterwards. -1: none answered.
int at_address_connect(const struct addrinfo *to, uint64_t until_ns) {
  for (; to; to = to->ai_next) {
    int fd = socket_of(to, SOCK_NONBLOCK);
    if (fd < 0) continue;
    int bad = connect(fd, to->ai_addr, to->ai_addrlen);
    if (bad && errno == EINPROGRESS) bad = !comes(fd, until_ns);
    if (!bad && !fcntl(fd, F_SETFL, 0)) return fd;
    close(fd);
  }
  return -1;
}
