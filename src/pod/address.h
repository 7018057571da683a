// Addresses of the processes of a job, "host:port" by commas, and connections
// to them. Messages name where they come from, a variable or an option.
//
// Errors: INVALID_ARGUMENT for what is no address, UNAVAILABLE for what the
// system refuses.
// Memory: texts are borrowed; sockets and lists are the caller's to close and
// free.
// Threads: any.
#ifndef ATOLL_POD_ADDRESS_H_
#define ATOLL_POD_ADDRESS_H_

#include <netdb.h>
#include <stdbool.h>

#include "base/digest.h"
#include "base/status.h"

typedef struct at_addresses {
  const char *text, *source;
} at_addresses;

// How many of them a text by commas names; an empty one names none. They are
// not looked at.
uint32_t at_address_count(const char *text);
// Is address i there? An empty one is of a process that takes no part.
bool at_address_is_there(const char *text, uint32_t i);
// Address i, resolved; free with freeaddrinfo. INVALID_ARGUMENT.
at_status at_address_resolve(const at_addresses *a, uint32_t i,
                             struct addrinfo **out);
// Adds where all of them are to *d, alike however they are spelled: of each an
// address of IPv4, where it has one, and the port; and which are not there.
// INVALID_ARGUMENT.
at_status at_address_digest(const at_addresses *a, at_digest *d);
// A socket of address i that does not listen yet. UNAVAILABLE: the system
// refuses.
at_status at_address_bind(const at_addresses *a, uint32_t i, int *out);
// A socket that listens at address `me`. UNAVAILABLE: the system refuses it.
at_status at_address_listen(const at_addresses *a, uint32_t me, int *out);
// Tries each of the resolved addresses once, at_clock_ns() being until_ns at
// most. The socket blocks. -1: none answers.
int at_address_connect(const struct addrinfo *to, uint64_t until_ns);

at_status at_address_port(int fd, uint32_t *out);  // where a socket is bound
// Is all that the address stands for reached without leaving this machine?
bool at_address_is_local(const struct addrinfo *all);
// Is the other end of a connection, by its address?
bool at_address_peer_is_local(int fd);

#endif
