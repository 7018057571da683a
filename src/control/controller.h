// The controller of a pod: who takes part, and one order for all that clients
// ask of the hosts. Hosts come to it (control/host.h), clients see all their
// chips as one machine's (control/client.h), and tools ask it.
//
// It has no chips and holds no arrays: what it knows of them is where they are.
//
// Errors: INVALID_ARGUMENT for the address, the target, or hosts that do not
// divide its chips; UNAVAILABLE: the system refuses the address;
// RESOURCE_EXHAUSTED.
// Memory: texts are the controller's, as long as it.
// Threads: any; it has its own for what comes in.
#ifndef ATOLL_CONTROL_CONTROLLER_H_
#define ATOLL_CONTROL_CONTROLLER_H_

#include "base/strbuf.h"
#include "pod/proof.h"

// Owns its listener, the sessions of everybody who has come, and a thread that
// looks after them.
typedef struct at_controller at_controller;

// Texts are borrowed for at_controller_open alone.
// Texts are borrowed for at_controller_open.
typedef struct at_controller_options {
  const char *listen;  // "host:port"; port 0: any
  const char *target;  // ATOLL_TARGET's grammar
  uint32_t num_hosts;  // that make the pod
  // That may be of it in the end, and divide the target's chips; 0: num_hosts.
  uint32_t max_hosts;
  at_token token;
  // NULL, or its hosts, which take part from the beginning; outlives it.
  struct at_simulated *simulated;
} at_controller_options;

// Clients may call before all hosts are there; they wait.
// Listens when this returns. *out is written on success only; on failure
// nothing is left. max_hosts must not be below num_hosts, nor above
// AT_SESSION_MOST.
at_status at_controller_open(const at_controller_options *o,
                             at_controller **out);
// With the port that the system chose where `listen` had port 0.
const char *at_controller_address(const at_controller *c);  // as ATOLL_POD
// How many hosts take part now; fewer than num_hosts: not all have come, or
// some are lost.
uint32_t at_controller_hosts(at_controller *c);
// Has it been drained, and ended? Then it is not to be started again, until
// people want it back.
// False for hosts that the pod does not have.
bool at_controller_drained(at_controller *c, uint32_t host);
bool at_controller_stopped(at_controller *c);  // a tool has asked for it
// JSON, one object: hosts, clients, programs, arrays.
// Appends what is known at this moment; does not ask the hosts.
void at_controller_status(at_controller *c, at_strbuf *out);
// Hosts end, clients lose their arrays.
// Tells all hosts to end and returns when no thread of the controller is left;
// it does not wait for the host processes. NULL: nothing. Where it is
// simulated, at_simulated_free comes after.
void at_controller_close(at_controller *c);

#endif
