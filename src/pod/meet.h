// How the processes of a pod meet over TCP: each listens, calls those before it
// and is called by those behind it; all of that at once, so that nobody waits
// for anybody in particular. Who does not prove the token (pod/proof.h) in time
// is dropped without a word and costs a place in a table of fixed size.
#ifndef ATOLL_POD_MEET_H_
#define ATOLL_POD_MEET_H_

#include "pod/address.h"
#include "pod/party.h"

typedef struct at_pod_meeting {
  const at_addresses *addresses;  // who has none takes no part
  const at_token *token;
  at_card card;    // with `tls`: libssl has to be there (at_tls_ready)
  uint32_t calls;  // connections between any two
  int listener;    // bound to this process's address; stays the caller's
  bool local;      // all processes are on this machine, and share its clock
  uint64_t until_ns;
  bool (*interrupted)(void);  // NULL, or asked now and then: true: give up
  // NULL: who has another epoch is waited for. Else *newer becomes the epoch in
  // which the others meet, where it is past this one's, and the meeting ends
  // with ABORTED: this process is one that comes back.
  uint32_t *newer;
} at_pod_meeting;

// links[card.count][calls]: filled in, but for those of processes that take no
// part, and to be closed also on failure.
// *strangers: how many were dropped. Strangers never make it fail:
//   DEADLINE_EXCEEDED    names a process that did not come
//   FAILED_PRECONDITION  who knows the token is of another job, or two
//                        processes have the same number
//   CANCELLED            interrupted
//   INVALID_ARGUMENT     an address that stands for nothing
//   RESOURCE_EXHAUSTED, UNAVAILABLE  what the system refused; no libssl
//   ABORTED              only with `newer`
at_status at_pod_meet(const at_pod_meeting *m, at_pod_link *links,
                      uint64_t *strangers);

// The door of a pod that has met: who is lost and comes back calls, or is
// called to see whether he is there. Nobody is let in: whoever proves the token
// learns the card's epoch, in which the pod meets next.
typedef struct at_pod_door {
  void *arg;
  // Asked often. Is this process, one before this one, to be called?
  bool (*calls)(void *arg, uint32_t host);
  // It is there, and means to meet in that epoch or in a later one.
  void (*heard)(void *arg, uint32_t host, uint32_t epoch);
  bool (*ends)(void *arg);  // asked four times a second, and after `wake`
  int wake;                 // a descriptor that can be read: look at once
} at_pod_door;
// Until `ends` says so. m: `until_ns`, `interrupted` and `newer` do not count.
// UNAVAILABLE, INVALID_ARGUMENT, RESOURCE_EXHAUSTED: as at_pod_meet.
at_status at_pod_keep_door(const at_pod_meeting *m, const at_pod_door *d);

#endif
