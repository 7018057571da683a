// The host processes of a pod that `atoll pod up` started: those that end are
// started again.
#ifndef ATOLL_CLI_POD_PROCESSES_H_
#define ATOLL_CLI_POD_PROCESSES_H_

#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

// Hosts of one pod, and how patient a pod is with one that keeps ending.
enum {
  AT_POD_MOST_HOSTS = 1024,
  AT_POD_MOST_RESTARTS = 5,  // of one host in a minute
};

// One host of the pod, whether or not its process runs.
typedef struct at_pod_process {
  // At most one process at a time for each host.
  pid_t pid;         // 0: it has ended
  bool rests;        // it has been drained: it does not start again
  uint64_t due_ns;   // when it starts again
  uint64_t lost_ns;  // since when the controller says that it is lost; 0: not
  uint64_t starts[AT_POD_MOST_RESTARTS];  // again, the last ones
  uint32_t num_starts;                    // again, so far
} at_pod_process;

// All hosts that are started here. Zeroed but for the names, and used by one
// thread, which waits for children itself.
typedef struct at_pod_processes {
  // Borrowed; the controller's address, as HOST:PORT.
  const char *controller, *log_dir;  // log_dir NULL: our own stderr
  uint32_t count;
  at_pod_process hosts[AT_POD_MOST_HOSTS];
} at_pod_processes;

// Starts argv, which ends with this process, however that ends. log NULL: it
// writes where this process does.
// RESOURCE_EXHAUSTED: no process. A program that cannot be started ends with
// status 127, or 126 without its log.
at_status at_pod_start(char *const *argv, const char *log, pid_t *out);
// "exited with status 1", "was ended by signal 9 (Killed)".
const char *at_pod_end_text(int status, char out[96]);

// All of them. On failure some may run: at_pod_end_hosts.
at_status at_pod_start_hosts(at_pod_processes *p);
// The host whose process this was; count: none's.
uint32_t at_pod_host_of(const at_pod_processes *p, pid_t pid);
// A host has ended: it starts again after half a second, then after twice as
// long each time that it ends within a minute.
void at_pod_restart_later(at_pod_processes *p, uint32_t host, int status);
// Starts those that are due and do not rest.
// Called every now and then.
void at_pod_restart_due(at_pod_processes *p);
// The processes that the controller has lost and that have not ended since
// (stopped, stuck) are killed. status: the controller's JSON.
void at_pod_kill_lost(at_pod_processes *p, const char *status);
// Waits until they have ended by themselves, then ends them.
void at_pod_end_hosts(at_pod_processes *p);

#endif
