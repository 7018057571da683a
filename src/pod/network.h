// What processes have to know of the network between them: who may read what
// they say (ATOLL_POD_NETWORK), whether they may share memory (ATOLL_POD_WIRE),
// and where this process is.
//
// Threads: any.
#ifndef ATOLL_POD_NETWORK_H_
#define ATOLL_POD_NETWORK_H_

#include <stdbool.h>

#include "base/status.h"

enum { AT_PLACE_TEXT = 32 };  // hexadecimal digits

// Do connections over TCP go through TLS? local: they stay on this machine.
bool at_network_wants_tls(bool local);
// FAILED_PRECONDITION: "<because>, but ... cannot be encrypted": no libssl.
at_status at_network_need_tls(const char *because);
// What tells machines, and networks inside one, apart: an address that means
// this machine is of use only where both have the same. False: the system does
// not say on which machine this is.
bool at_network_place(char out[AT_PLACE_TEXT + 1]);

#endif
