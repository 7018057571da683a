// A client of a pod: what a runtime without chips of its own (exec/proxy.h)
// asks of the hosts, through the controller and from them.
//
// Errors: calls that wait for the controller fail with UNAVAILABLE or DATA_LOSS
// when it is gone.
// Memory: texts are the client's, as long as it.
// Threads: any.
#ifndef ATOLL_CONTROL_CLIENT_H_
#define ATOLL_CONTROL_CLIENT_H_

#include "control/message.h"
#include "exec/proxy.h"
#include "pod/proof.h"

// A process's connection to a pod: one session with the controller and, opened
// when they are first needed, one with each host.
typedef struct at_client at_client;

// All texts are borrowed for at_client_open alone.
typedef struct at_client_options {
  const char *address, *source;  // of the controller, "host:port"
  // What both ends prove to know.
  at_token token;
  // As `atoll pod status` shows it; cut to AT_SESSION_NAME.
  const char *name;           // for people
  uint32_t timeout_ms;        // until all hosts are there; 0: 120,000
  uint32_t spares;            // virtual devices behind the pod's chips
  bool (*interrupted)(void);  // NULL, or asked now and then: true: give up
} at_client_options;

// at_session_open's failures, and the controller's: why there is no pod.
// Blocks until the controller has welcomed the client, that is until all hosts
// are there. *out is written on success only and is the caller's to close; on
// failure nothing is left. UNAVAILABLE: not complete within timeout_ms.
// CANCELLED: `interrupted` returned true.
at_status at_client_open(const at_client_options *o, at_client **out);
// For at_runtime_options; lives as long as the client.
// The table of calls through which the runtime asks for arrays and programs.
const at_proxy *at_client_proxy(const at_client *c);
// The target of the whole pod, as the controller was given it: in
// ATOLL_TARGET's grammar; of several kinds of chips: by commas.
const char *at_client_target(const at_client *c);
// Does the pod have several kinds of chips?
// Mixed pods have one part of the topology per kind of chip.
bool at_client_is_mixed(const at_client *c);
// The target of the part of the pod that a device is of, a spare one included.
// device: below the number of chips plus at_client_spares.
const char *at_client_target_of(const at_client *c, uint32_t device);
uint64_t at_client_cpu(const at_client *c);  // at_cpu_features of all hosts
// May something new be placed on a chip? Not where people drain its host; what
// is there goes on.
// False for chips that the pod does not have. The answer may be out of date by
// the time a new array is placed: it is advice, and the hosts accept either.
bool at_client_drains(const at_client *c, uint32_t chip);
// The runtime is gone before. What waits fails.
// Sends the drops that are left, closes all sessions and frees the client, its
// programs included. Waits for host callbacks that are running. NULL: nothing.
// Not from a call of a session.
void at_client_close(at_client *c);

// ---- Slices of virtual devices
// Spare devices that stand for chips of the pod, several perhaps for one: *wish
// as at_msg_slice, but for its number, which it gets. Waits for the controller,
// which says why there is no such slice. When hosts are lost, devices that
// stood for their chips stand for others: what was on them is lost, launches of
// before load their program there.
// out_devices: [wish->count], device numbers of the runtime in the order of the
// slice's shape; without meaning on failure.
at_status at_client_add_slice(at_client *c, at_msg_slice *wish,
                              uint32_t *out_devices);
// What is on its devices is lost, and they may be of another slice.
// Gives a slice's devices back. slice: the number that at_client_add_slice
// wrote; unknown ones are ignored.
void at_client_close_slice(at_client *c, uint64_t slice);
// For which chip of the pod a device stands now, and which host has that.
// False: for none.
bool at_client_find_chip(const at_client *c, uint32_t device,
                         uint32_t *out_chip, uint32_t *out_host);
// Devices of virtual sets that the client can have at once; numbered behind the
// pod's chips. Constant.
uint32_t at_client_spares(const at_client *c);
// How many of the pod's chips, the first ones, had a host when the client was
// opened. Others are for slices, once their hosts have come.
uint32_t at_client_listed(const at_client *c);

// How long programs take on simulated hosts: whoever compiles says it in the
// executable (at_xheader.estimated_ns).
// What a compiler needs to estimate how long its programs take on simulated
// hosts.
typedef struct at_client_pace {
  const char *target;  // whose chips run them; NULL: hosts are not simulated
  double bandwidth;    // of its network, to what it says; 0: 1
  uint32_t chips_per_host;
  uint64_t meet_ns;  // beside that, for each collective over several hosts
} at_client_pace;
// How fast simulated hosts are; texts are borrowed from the client.
at_client_pace at_client_pace_of(const at_client *c);
// Virtual time; 0: hosts are not simulated.
uint64_t at_client_virtual_ns(const at_client *c);

// What the client has sent to the controller so far; for tests and benches.
typedef struct at_client_counts {
  uint64_t messages, bytes;
} at_client_counts;
// Any thread.
at_client_counts at_client_count(const at_client *c);

#endif
