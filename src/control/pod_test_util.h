// A pod on this machine for tests: a controller, hosts that are processes of
// their own (this program once more), and clients. Programs are written by
// hand: this room knows no compiler.
#ifndef ATOLL_CONTROL_POD_TEST_UTIL_H_
#define ATOLL_CONTROL_POD_TEST_UTIL_H_

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/collective.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "control/client.h"
#include "control/controller.h"
#include "control/host.h"
#include "exec/exec_test_util.h"

// A test opens a pod (pod_open), comes as one guest or several (guest_open),
// runs programs by run_make and run_try, and closes everything in the opposite
// order. Every wait has an end, so a hang is a failure with a line.
// kPodSpares: chips that a client may have beyond the pod's, for pods that
// grow.
enum { kPodHosts = 4, kPodChips = 8, kPodSpares = 16 };
// Any secret that all of a test know.
#define POD_TOKEN \
  (at_token) {    \
    { 3, 1, 4 }   \
  }

// The hosts come in any order: hosts[i] is not host i.
// A controller in this process and its hosts as children of it.
typedef struct pod {
  at_controller *controller;  // NULL: it is a process, too
  // host:port of the controller, on this machine.
  char address[64];
  // 0 for a host that was killed; `own`: the controller's process where it has
  // one.
  pid_t hosts[kPodHosts], own;
  uint32_t num_hosts, num_chips;
} pod;

// This program with other arguments (pod_test_main).
// a and b are its arguments behind `what`; b may be NULL. Never returns in the
// child.
pid_t pod_spawn(const char *what, const char *a, const char *b);

// What it exited with; 1000 + its signal.
int pod_join(pid_t pid);

// What a child does that is a host; its exit status is the code.
// Runs until the controller is gone or the host is drained. address: the
// controller's, host:port.
int pod_host_main(const char *address);

// Returns before the hosts have come; clients wait for them.
// target: as ATOLL_TARGET has it; chips: of all hosts together.
// The controller runs on threads of this process; its port is free and is
// written to `address`. Fails the test if a host cannot be started.
void pod_open(pod *p, const char *target, uint32_t hosts, uint32_t chips);

// Hosts that were not killed end well.
// Stops the controller, then waits for each host and asks that its exit status
// is 0.
void pod_close(pod *p);

// Returns when the process is gone, not when the controller knows.
// SIGKILL: the host has no time to say goodbye, as if its machine were gone.
void pod_kill_host(pod *p, uint32_t i);

// A client with a runtime, in this process.
typedef struct guest {
  at_client *client;
  at_runtime *rt;
} guest;

// Waits for the pod; an error: it did not let this client in.
// Where only the runtime fails, the client stays open.
at_status guest_try(const char *address, guest *g);

// Must be let in.
guest guest_open(const pod *p);

// The runtime goes before the client that it calls.
void guest_close(guest *g);

// Chips of the pod first, then spare ones.
// Borrowed from the runtime.
at_chip *guest_chip(const guest *g, uint32_t i);

// Bytes of HBM on the first chips, as their hosts tell.
uint64_t guest_in_use(const guest *g, uint32_t chips);

// Until nothing is left on any chip; arrays go some time after they are
// dropped.
void guest_expect_empty(const guest *g, uint32_t chips);

// ---- Waiting, but not for ever
// Two users: who waits, and the event. The last frees it.
// A wait that may be given up: the event's callback may come when the waiter is
// gone.
typedef struct patience {
  pthread_mutex_t lock;
  pthread_cond_t news;
  bool fired;
  at_status status;
  // Starts at 2.
  _Atomic int users;
} patience;

// DEADLINE_EXCEEDED: it has not fired for a minute.
// Consumes the reference. Otherwise the event's own status.
at_status pod_wait(at_event *e);

// OK once it is defined, or its error.
// Waits a minute at most, as pod_wait does. Borrows b.
at_status pod_ready(at_buffer *b);

// Bytes of an array on the hosts.
// offset and bytes: of the array, in bytes; out has room for them. Waits for
// the array as well.
at_status pod_fetch(at_buffer *b, void *out, size_t offset, size_t bytes);

// An array of one dimension on that chip, of n elements that are copied.
// The reference is the caller's. Fails the test where there is no memory.
at_buffer *pod_array(at_chip *c, at_dtype t, const void *v, int64_t n);

// ---- Programs
// result i = argument i; aliased: where it is donated, its memory.
// n elements of type t each, `values` of them, at most 8. The block is the
// caller's: run_make takes it.
at_bytes pod_copies(uint32_t devices, at_dtype t, int64_t n, uint32_t values,
                    bool aliased);

// Device d's result is what device d + 1 has.
// n floats on each device: a collective over all hosts, without arithmetic.
at_bytes pod_rotates(uint32_t devices, int64_t n);

// Sends its argument by channel 7; its result comes by channel 8.
// Both are host callbacks of the client. n floats.
at_bytes pod_calls(uint32_t devices, int64_t n);

// A program with its devices, arguments and results, by device.
typedef struct run {
  at_loaded *l;
  uint32_t devices, num_args, num_outs;
  // Device d's are at d * num_args, or d * num_outs.
  at_chip *chips[kPodChips];
  at_buffer *args[kPodChips * 8], *outs[kPodChips * 8];
  bool keeps[8];
  at_channel_list *channels;
} run;

// Loads the program on the guest's first chips. Arguments are the caller's to
// set; none is donated unless `keeps` says so.
// The block is freed. values: of arguments, and as many results.
run run_make(const guest *g, at_bytes block, uint32_t devices, uint32_t values);

// done NULL: nobody wants to hear when it is done.
// Results are buffers at once, ready or failed later; an error: there are none.
// One launch on all of its devices. The results go to r->outs and are the
// caller's to drop; *done is its to release.
at_status run_try(run *r, at_event **done);

// NULL entries are allowed, and all are NULL afterwards.
void run_drop(at_buffer **b, uint32_t n);
// run_drop of the arguments, and of the results, on all devices.
void run_drop_args(run *r);
void run_drop_outs(run *r);

#endif
