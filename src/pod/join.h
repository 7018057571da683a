// Which processes make a pod, where they listen and which token they share:
// from what the client says (JAX: jax.distributed.initialize) and the
// environment.
//
// Memory: what the client says is borrowed for the call; the pod is the
// caller's (at_pod_hosts_close).
// Threads: the caller's waits until all have met.
#ifndef ATOLL_POD_JOIN_H_
#define ATOLL_POD_JOIN_H_

#include "base/strbuf.h"
#include "pod/hosts.h"

// The client's key-value store, which all processes of the job share. It is as
// secret as whoever runs it keeps it.
typedef struct at_pod_store {
  void *arg;
  // ALREADY_EXISTS: a process that comes back has put it when it was there
  // before.
  at_status (*put)(void *arg, const char *key, at_str value);
  // Waits for the key. The value is appended.
  at_status (*get)(void *arg, const char *key, uint64_t timeout_ms,
                   at_strbuf *out);
} at_pod_store;

// What the client says; borrowed.
typedef struct at_pod_said {
  uint32_t count, me;         // count 0: not how many processes there are
  const at_pod_store *store;  // NULL: none
  const char *job;            // what all have to agree on (the target)
  const char *user_token;     // path of at_token_of_user
  bool returns;               // as in at_pod_job
  uint32_t timeout_s;
  bool (*interrupted)(void);  // as in at_pod_job
} at_pod_said;

// Meets the other processes. *out NULL: there are none.
//   FAILED_PRECONDITION  client and environment contradict each other,
//   addresses
//                        beyond this machine without a token, or without
//                        libssl and ATOLL_POD_NETWORK=trusted,
//                        at_pod_hosts_open's
//   others               at_pod_hosts_open's, at_token_read's, the store's
at_status at_pod_join(const at_pod_said *said, at_pod_hosts **out);

// A pod whose processes somebody else has counted (control/controller.h).
// Borrowed, but for the listener, which is taken.
typedef struct at_pod_roll {
  uint32_t count, me;
  const char *addresses;  // of all, by commas; "": that one takes no part
  int listener;           // bound to this process's
  at_token token;
  bool of_user;     // the token is one of all this user's pods
  const char *job;  // what all have to agree on
  uint32_t epoch;   // at_pod_job's
  bool one_user;    // at_pod_job's
  uint32_t timeout_s;
  bool (*interrupted)(void);
} at_pod_roll;
// Fails as at_pod_join, and closes the listener in any case of failure.
at_status at_pod_join_roll(const at_pod_roll *r, at_pod_hosts **out);

#endif
