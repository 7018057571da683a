// Processes of one job, connected by a wire: the transport that exec's
// launches, and through them SparseCores, talk over. Thread-safe.
//
// A process that ends, is killed or stops (SIGSTOP), or to which the network is
// cut, is lost: whoever waits for it gets DATA_LOSS with its number and why.
// One that is there, but does not come to an exchange (it compiles, or its
// Python is slow), is waited for: after ten seconds that is said, and only
// ATOLL_POD_DEADLINE ends it.
#ifndef ATOLL_POD_HOSTS_H_
#define ATOLL_POD_HOSTS_H_

#include "exec/exec.h"
#include "pod/address.h"
#include "pod/proof.h"

typedef struct at_pod_hosts at_pod_hosts;

// All of it borrowed for the call, but for the listener, which is taken.
typedef struct at_pod_job {
  at_addresses addresses;  // of every process; this one is `me`
  uint32_t me;
  int listener;        // bound to this process's address; -1: one is bound here
  bool local;          // all of them are on this machine
  const char *medium;  // of the wire (pod/wire.h); NULL: shm if local, else tcp
  at_token token;      // whoever knows it may be one of the processes
  const char *job;     // what all have to agree on (the target)
  uint32_t timeout_s;
  bool (*interrupted)(void);  // NULL, or asked now and then: true: give up
} at_pod_job;
// Waits until all are there: DEADLINE_EXCEEDED after timeout_s, CANCELLED when
// interrupted. Strangers are
// dropped. INVALID_ARGUMENT for malformed addresses, FAILED_PRECONDITION when
// another process is of another job, or has the number of one that is there.
at_status at_pod_hosts_open(const at_pod_job *job, at_pod_hosts **out);
const at_hosts *at_pod_hosts_of(const at_pod_hosts *p);
// Ors *bits over all processes, beside launches: how inputs agree on the number
// of mini-batches. All call it equally often.
at_status at_pod_hosts_agree(at_pod_hosts *p, uint64_t *bits);
void at_pod_hosts_close(at_pod_hosts *p);  // others see this one as gone

#endif
