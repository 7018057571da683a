// For tests and benches: ports of this machine's loopback device that nobody
// has at the moment, and connections to those that somebody has.
#ifndef ATOLL_BASE_FREE_PORTS_H_
#define ATOLL_BASE_FREE_PORTS_H_

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

// As many sockets are open at the same time.
enum { AT_FREE_PORTS = 64 };  // at most, at a time

// False: the system refuses one.
// Nobody holds the ports afterwards, so another process may take one before the
// test does: tests that listen on port 0 themselves are safer.
static inline bool at_free_ports(uint32_t count, uint16_t *ports) {
  int fd[AT_FREE_PORTS];
  uint32_t n = 0;
  bool good = count <= AT_FREE_PORTS;
  for (; n < count && good; n++) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    fd[n] = socket(AF_INET, SOCK_STREAM, 0);
    good = !bind(fd[n], (void *)&at, len) &&
           !getsockname(fd[n], (void *)&at, &len);
    ports[n] = ntohs(at.sin_port);
  }
  while (n) close(fd[--n]);  // all at once, else one comes twice
  return good;
}

// "127.0.0.1:port,127.0.0.1:port,...", cut off at n bytes.
// False: no ports, or out is too small.
static inline bool at_free_addresses(uint32_t count, char *out, size_t n) {
  uint16_t ports[AT_FREE_PORTS];
  size_t at = 0;
  if (!at_free_ports(count, ports)) return false;
  for (uint32_t i = 0; i < count && at < n; i++)
    at += (size_t)snprintf(out + at, n - at, "%s127.0.0.1:%u", i ? "," : "",
                           ports[i]);
  return at < n;
}

// A connection to a port of this machine, on which reads give up after some
// seconds. -1: nobody listens.
// The caller closes it.
static inline int at_connect_here(uint16_t port, int seconds) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons(port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct timeval patience = {.tv_sec = seconds};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (!connect(fd, (void *)&at, sizeof at)) return fd;
  close(fd);
  return -1;
}

#endif
