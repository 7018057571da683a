// Processes of one job, connected by TCP: the transport that exec's launches,
// and through them SparseCores, talk over. Thread-safe.
#ifndef ATOLL_POD_HOSTS_H_
#define ATOLL_POD_HOSTS_H_

#include "exec/exec.h"

typedef struct at_pod_hosts at_pod_hosts;
// addresses: "host:port" of every process, comma-separated; `me` is one of
// them. `job`: what all have to agree on (the target). Waits until all are
// there: DEADLINE_EXCEEDED after timeout_s. INVALID_ARGUMENT for malformed
// addresses, FAILED_PRECONDITION when another process is of another job.
at_status at_pod_hosts_open(const char *addresses, uint32_t me, const char *job,
                            uint32_t timeout_s, at_pod_hosts **out);
const at_hosts *at_pod_hosts_of(const at_pod_hosts *p);
// Ors *bits over all processes, beside launches: how inputs agree on the number
// of mini-batches. All call it equally often.
at_status at_pod_hosts_agree(at_pod_hosts *p, uint64_t *bits);
void at_pod_hosts_close(at_pod_hosts *p);  // others see this one as gone
uint32_t at_pod_hosts_count(const char *addresses);

#endif
