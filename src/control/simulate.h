// Simulated hosts: they take what the controller and clients say to hosts, run
// nothing, and answer at once; but they know when real hosts would have
// answered. That is virtual time.
//
// Client and controller are the real ones. The client's clock is the CPU time
// of its threads, and comes with what it says (virtual_clock.h). The
// controller's CPU time of each message is measured. A host takes what a real
// one was measured to take (at_charges), programs what their executables say
// (at_xheader.estimated_ns, which a client of simulated hosts sets to the
// target's prediction), bytes what the network does. A client that waits for an
// answer goes on at the answer's time.
//
// One object stands for all hosts of a pod, beside its controller:
//
//   at_simulated_create, at_controller_open with it, ..., at_controller_close,
//   at_simulated_free
//
// Errors: RESOURCE_EXHAUSTED, and FAILED_PRECONDITION for what the target's
// description lacks.
// Threads: any, but for creating and freeing.
#ifndef ATOLL_CONTROL_SIMULATE_H_
#define ATOLL_CONTROL_SIMULATE_H_

#include "base/json.h"
#include "control/session.h"

// Owns a listener for clients' sessions with hosts and the thread of virtual
// time.
typedef struct at_simulated at_simulated;

// Nanoseconds, unless they say otherwise.
typedef struct at_charges {
  // Of a client, for each message; 0: the CPU time of its thread.
  uint64_t client_message;
  uint64_t client_beside;  // ... of its other threads, where cores are shared
  // Of the controller, for each message, and for each host that it goes to;
  // both 0: as measured.
  uint64_t controller_message, controller_host;
  uint64_t controller_send;  // to each host, beside these: what the wire takes
  uint64_t host_message;     // of a host: any message
  uint64_t host_launch;      // ... a launch, and each of its chips there
  uint64_t host_chip;
  uint64_t host_copy;  // ... a copy to or from another host, at each end
  uint64_t host_load;  // ... a program
  // A READ, WATCH or STATS.
  uint64_t host_answer;  // ... a question
  uint64_t chip_launch;  // of a chip, beside the program
  // Where processes share cores, of a collective over several hosts: of each
  // host, and of each chip.
  uint64_t host_meet, chip_meet;
} at_charges;

typedef struct at_simulated_options {
  const char *target;  // ATOLL_TARGET's grammar
  // The target's chips are shared out among them evenly.
  uint32_t num_hosts;
  at_token token;
  at_charges charges;
  uint32_t cores;        // that all processes share; 0: each has its own
  double bandwidth;      // to the target's, in what programs take; 0: 1
  bool sequential;       // a host begins its work for a launch when those that
                         // make its arguments have ended theirs
  uint64_t latency;      // ns of a message between processes
  double bytes_per_s;    // of a process, each way; 0: no limit
  uint64_t ici_latency;  // between chips of a slice; 0: as between processes
  double ici_bytes_per_s;
} at_simulated_options;

// Figures of the network from the target's description (data/hw), and where
// they come from. FAILED_PRECONDITION: it has none.
// Sets latency, bytes_per_s, ici_latency and ici_bytes_per_s; target and
// num_hosts are read. sources may be NULL.
at_status at_simulated_network(at_simulated_options *o, at_strbuf *sources);

// o is copied; texts in it are borrowed for as long as it lives. On failure
// nothing is left.
at_status at_simulated_create(const at_simulated_options *o,
                              at_simulated **out);
void at_simulated_free(
    at_simulated *s);  // the controller is closed. NULL: nothing

// ---- For the controller
// As they were given; owned by s.
const at_simulated_options *at_simulated_options_of(const at_simulated *s);
// All hosts call, as hosts call a listener, and take part.
// Once. The calls come from this thread, before it returns.
at_status at_simulated_join(at_simulated *s, const at_listener_calls *calls);
// What this thread sends to hosts in between is because of a client's message
// with that virtual time.
// Not nested. clock_ns 0: the message has no time of its own.
void at_simulated_begin(at_simulated *s, uint64_t client, uint64_t clock_ns);
// The messages since at_simulated_begin, on this thread, happen after the time
// that it took. Every begin has its end.
void at_simulated_end(at_simulated *s);
// A member of the object that is being written: virtual time, how busy who has
// been, the last programs.
void at_simulated_print(at_simulated *s, at_json_writer *w);

#endif
