// The virtual time of a client of simulated hosts (control/simulate.h): the CPU
// time of the threads that say something to the pod, and no less than when the
// answers that it has had were there. It goes with what the client says.
#ifndef ATOLL_CONTROL_VIRTUAL_CLOCK_H_
#define ATOLL_CONTROL_VIRTUAL_CLOCK_H_

#include "control/message.h"
#include "pod/wire.h"

typedef struct at_virtual_clock at_virtual_clock;

// m: what the controller has said. NULL: no memory.
// Begins at 0. Any thread may use it.
at_virtual_clock *at_virtual_clock_create(const at_msg_simulated *m);
void at_virtual_clock_free(
    at_virtual_clock *c);  // no wire has it. NULL: nothing
uint64_t at_virtual_clock_ns(at_virtual_clock *c);  // with this thread's work
// The clock is at least ns from here on.
void at_virtual_clock_reach(at_virtual_clock *c, uint64_t ns);

// A wire that takes all that is sent to `inner`, which it owns, and says when.
// host UINT32_MAX: the controller, in the messages' tags; else a host, before
// each batch. NULL: no memory.
// At most 8 messages can be sent in one call. On failure inner is the caller's
// still.
at_wire *at_virtual_wire(at_virtual_clock *c, at_wire *inner, uint32_t host);

#endif
