// Processes of one job, connected by a wire: the transport that exec's
// launches, and through them SparseCores, talk over. Thread-safe.
//
// A process that ends, is killed or stops (SIGSTOP), or to which the network is
// cut, is lost: whoever waits for it gets DATA_LOSS with its number and why.
// One that is there, but does not come to an exchange (it compiles, or its
// Python is slow), is waited for: after ten seconds that is said, and only
// ATOLL_POD_DEADLINE ends it.
//
// Errors: DATA_LOSS: a process is lost; ABORTED: the launch failed on another
// one; DEADLINE_EXCEEDED: ATOLL_POD_DEADLINE.
#ifndef ATOLL_POD_HOSTS_H_
#define ATOLL_POD_HOSTS_H_

#include "exec/exec.h"
#include "pod/address.h"
#include "pod/proof.h"

typedef struct at_pod_hosts at_pod_hosts;

// All of it borrowed for the call, but for the listener, which is taken.
typedef struct at_pod_job {
  at_addresses addresses;  // of every process; this one is `me`. "": it takes
                           // no part, and is lost from the beginning
  uint32_t me;
  int listener;        // bound to this process's address; -1: one is bound here
  bool local;          // all of them are on this machine
  const char *medium;  // of the wire (pod/wire.h); NULL: shm if local, else net
  bool share;          // collectives read the memory of others (pod/share.h)
  bool tls;            // over TCP: encrypted (pod/tls.h)
  at_token token;      // whoever knows it may be one of the processes
  const char *job;     // what all have to agree on (the target)
  uint32_t epoch;      // how often the group has been formed anew: who has
                       // another one is waited for
  bool one_user;       // of all processes: failures keep their code and words
  bool returns;  // who is lost may come back (pod/again.h): the listener stays
  uint32_t timeout_s;
  bool (*interrupted)(void);  // NULL, or asked now and then: true: give up
} at_pod_job;
// With `returns`, where the others have another epoch, in theirs if it is
// later: this process is one that comes back. Waits until all are there:
// DEADLINE_EXCEEDED after timeout_s, CANCELLED when interrupted. Strangers are
// dropped. INVALID_ARGUMENT for malformed addresses, FAILED_PRECONDITION when
// another process is of another job, or has the number of one that is there.
at_status at_pod_hosts_open(const at_pod_job *job, at_pod_hosts **out);
// For at_runtime_options; owned by p, NULL for NULL.
const at_hosts *at_pod_hosts_of(const at_pod_hosts *p);
// Ors *bits over all processes, beside launches: how inputs agree on the number
// of mini-batches. All call it equally often.
at_status at_pod_hosts_agree(at_pod_hosts *p, uint64_t *bits);
// Posts: small messages between schedulers of launches, in the order in which
// they are sent to one process. The listener is called on the wire's thread,
// and by at_pod_hosts_listen, one call at a time; it must not wait.
enum { AT_POD_POST_BYTES = 8192 };
typedef struct at_pod_listener {
  void *arg;
  void (*heard)(void *arg, uint32_t from, at_bytes body);
  void (*room)(void *arg);  // a post that was refused may go now
  void (*failed)(void *arg, const at_hosts_tag *tag);  // a launch, elsewhere
  void (*lost)(void *arg, uint32_t host);
  // Four times a second while it is watched for, on a thread of its own.
  void (*tick)(void *arg);
} at_pod_listener;
// From now on; posts that came before are heard at once. NULL: nobody listens,
// and no call is under way when this returns.
void at_pod_hosts_listen(at_pod_hosts *p, const at_pod_listener *l);
// wait: for room (not from the listener); else RESOURCE_EXHAUSTED where there
// is none. UNAVAILABLE: the process is lost.
at_status at_pod_hosts_post(at_pod_hosts *p, uint32_t to, at_bytes body,
                            bool wait);
void at_pod_hosts_watch(at_pod_hosts *p, bool on);  // calls of `tick`
// After how long a wait is said, and after how long it ends; 0: never.
void at_pod_hosts_patience(const at_pod_hosts *p, uint64_t *tell_ns,
                           uint64_t *end_ns);
bool at_pod_hosts_has(at_pod_hosts *p, uint32_t host);  // false: it is lost
// Soon the process is lost here, and this one is lost there.
void at_pod_hosts_drop(at_pod_hosts *p, uint32_t host);
// Has a message come for a launch of that tag's group, this one or a later one,
// that nobody here has asked for yet?
bool at_pod_hosts_asked(at_pod_hosts *p, const at_hosts_tag *tag);
// With `returns`: what it was opened with, in the epoch that it has; borrowed,
// constant, as long as p.
const at_pod_job *at_pod_hosts_job(const at_pod_hosts *p);
// What this process says of itself to others that it meets in that epoch.
at_card at_pod_job_card(const at_pod_job *job, uint32_t epoch);
// Of exchanges that are no launch's, but of those who keep the doors: no set of
// processes has this name.
#define AT_POD_DOORS (UINT64_MAX - 1)
// Others see this one as gone, and nothing is said or heard any more; what is
// shared with them stays until it is closed. Nobody waits for anything.
void at_pod_hosts_leave(at_pod_hosts *p);
void at_pod_hosts_close(at_pod_hosts *p);  // others see this one as gone

#endif
