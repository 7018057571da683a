#include "pod/loopback.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "pod/address.h"
#include "pod/network.h"

enum { kAnswerMs = 100 };  // the kernel answers at once, if at all

at_loopback_end at_loopback_end_of(int fd) {
  at_loopback_end e = {0};
  char place[AT_PLACE_TEXT + 1];
  socklen_t n = sizeof e.cookie;
  if (!at_network_place(place) ||
      getsockopt(fd, SOL_SOCKET, SO_COOKIE, &e.cookie, &n))
    return (at_loopback_end){0};
  place[16] = 0;  // 64 bits of it
  e.place = strtoull(place, NULL, 16);
  return e;
}

// ---- The question
typedef struct question {
  struct nlmsghdr head;
  struct inet_diag_req_v2 body;
} question;

// One end of the connection, as the kernel's table has it.
static bool put_end(const struct sockaddr_storage *at, __be16 *port,
                    __be32 addr[4]) {
  if (at->ss_family == AF_INET) {
    const struct sockaddr_in *in = (const void *)at;
    *port = in->sin_port;
    addr[0] = in->sin_addr.s_addr;
    return true;
  }
  const struct sockaddr_in6 *in = (const void *)at;
  if (at->ss_family != AF_INET6) return false;
  *port = in->sin6_port;
  memcpy(addr, &in->sin6_addr, sizeof in->sin6_addr);
  return true;
}

// For the socket whose own address is our peer's, and whose peer is us.
static bool ask_about(int fd, question *q) {
  struct sockaddr_storage me = {0}, peer = {0};
  socklen_t n = sizeof me, m = sizeof peer;
  *q = (question){
      .head = {.nlmsg_len = sizeof *q,
               .nlmsg_type = SOCK_DIAG_BY_FAMILY,
               .nlmsg_flags = NLM_F_REQUEST},
      .body = {.sdiag_protocol = IPPROTO_TCP,
               .idiag_states = UINT32_MAX,
               .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
  if (getsockname(fd, (struct sockaddr *)&me, &n) ||
      getpeername(fd, (struct sockaddr *)&peer, &m))
    return false;
  q->body.sdiag_family = (uint8_t)peer.ss_family;
  return put_end(&peer, &q->body.id.idiag_sport, q->body.id.idiag_src) &&
         put_end(&me, &q->body.id.idiag_dport, q->body.id.idiag_dst);
}

// 0: the kernel knows no such socket, or does not answer.
static uint64_t ask_kernel(const question *q) {
  struct {
    struct nlmsghdr head;
    struct inet_diag_msg body;
    uint8_t more[1024];  // attributes that nobody asked for
  } answer = {0};
  const struct timeval wait = {.tv_usec = kAnswerMs * 1000};
  int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (s < 0) return 0;
  (void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  ssize_t n = -1;
  if (send(s, q, sizeof *q, 0) == (ssize_t)sizeof *q)
    n = recv(s, &answer, sizeof answer, 0);
  close(s);
  if (n < (ssize_t)(sizeof answer.head + sizeof answer.body) ||
      answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
    return 0;
  const uint32_t *cookie = answer.body.id.idiag_cookie;
  return (uint64_t)cookie[1] << 32 | cookie[0];
}

bool at_loopback_reaches(int fd, at_loopback_end there) {
  question q;
  return there.cookie && at_address_peer_is_local(fd) &&
         at_loopback_end_of(fd).place == there.place && ask_about(fd, &q) &&
         ask_kernel(&q) == there.cookie;
}
