// Connections that never leave this kernel. Who knows that the other end of one
// is a socket of a certain process knows that nobody on the way reads or
// changes a byte: no seals are needed there. A relay, of whatever user, has a
// socket of its own at that end, which is found out.
//
// Threads: any.
#ifndef ATOLL_POD_LOOPBACK_H_
#define ATOLL_POD_LOOPBACK_H_

#include <stdbool.h>
#include <stdint.h>

// What a process says of its end of a connection to the process at the other
// end. A cookie is the kernel's number of a socket, never given twice between
// two boots; `place` tells kernels and networks apart.
typedef struct at_loopback_end {
  uint64_t cookie, place;  // cookie 0: the kernel does not say
} at_loopback_end;

// Of a TCP socket.
at_loopback_end at_loopback_end_of(int fd);
// Asks the kernel (sock_diag) which socket is at the other end of a TCP
// connection over the loopback device. False: another one than `there`, or it
// cannot be told.
bool at_loopback_reaches(int fd, at_loopback_end there);

#endif
