// How the processes of a pod meet over TCP: each listens, calls those before it
// and is called by those behind it; all of that at once, so that nobody waits
// for anybody in particular. Who does not prove the token (pod/proof.h) in time
// is dropped without a word and costs a place in a table of fixed size.
#ifndef ATOLL_POD_MEET_H_
#define ATOLL_POD_MEET_H_

#include "pod/address.h"
#include "pod/party.h"

typedef struct at_pod_meeting {
  const at_addresses *addresses;
  const at_token *token;
  at_card card;    // with `tls`: libssl has to be there (at_tls_ready)
  uint32_t calls;  // connections between any two
  int listener;    // bound to this process's address; stays the caller's
  bool local;      // all processes are on this machine, and share its clock
  uint64_t until_ns;
  bool (*interrupted)(void);  // NULL, or asked now and then: true: give up
} at_pod_meeting;

// links[card.count][calls]: filled in, and to be closed also on failure.
// *strangers: how many were dropped. Strangers never make it fail:
//   DEADLINE_EXCEEDED    names a process that did not come
//   FAILED_PRECONDITION  who knows the token is of another job, or two
//                        processes have the same number
//   CANCELLED            interrupted
//   INVALID_ARGUMENT     an address that stands for nothing
//   RESOURCE_EXHAUSTED, UNAVAILABLE  what the system refused; no libssl
at_status at_pod_meet(const at_pod_meeting *m, at_pod_link *links,
                      uint64_t *strangers);

#endif
