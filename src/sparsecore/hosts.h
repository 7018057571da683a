// SparseCores of several hosts. What a pod's transport has to do for lookups
// and updates: one exchange among all hosts of a job. In one process there are
// none of these (at_sc_run.hosts is NULL): memory is shared then.
//
// Errors: DATA_LOSS and others of the transport: the step fails here.
// Threads: one exchange at a time.
#ifndef ATOLL_SPARSECORE_HOSTS_H_
#define ATOLL_SPARSECORE_HOSTS_H_

#include "base/span.h"
#include "base/status.h"

typedef struct at_sc_hosts {
  // Devices of a program are numbered host by host, equally many on each.
  uint32_t count, me;
  void *arg;
  // Sends send[h] to host h and waits for recv[h] of every host h but `me`,
  // whose entries stay as they are. All hosts call it equally often, for the
  // same steps in one order. recv is the transport's, 8-byte aligned, and lasts
  // until the next call. An error (a host is gone) fails the step here; nothing
  // of the step has been written then.
  at_status (*exchange)(void *arg, const at_bytes *send, at_bytes *recv);
} at_sc_hosts;

// Ors *bits over all hosts: how they agree on the number of minibatches.
// `hosts` is an at_sc_hosts: with it, this is an at_spinput_options.agree.
at_status at_sc_hosts_agree(void *hosts, uint64_t *bits);

#endif
