// How processes hand each other the memory that they share.
#ifndef ATOLL_POD_SHARE_MEET_H_
#define ATOLL_POD_SHARE_MEET_H_

#include "pod/share.h"

// What a process gives away: descriptors.
typedef struct at_share_gift {
  int arena;  // read-only
  int page;
} at_share_gift;

// What happens to the gift of another process, whose descriptors are closed
// after it. A failure: it is of no use.
typedef struct at_share_taker {
  void *arg;
  at_status (*take)(void *arg, uint32_t host, at_share_gift gift);
} at_share_taker;

// Asks every process of the job whether it is on this machine and of this user,
// and swaps gifts with those that are. mine.arena -1: this process has nothing
// to give. with[i * count + j]: have i and j taken each other's? Alike on all
// processes. *why: the last reason why this process has not taken one, for a
// log; OK: there was none. Fails as the exchange does.
at_status at_share_meet(const at_pod_job *job, const at_hosts *hosts,
                        at_share_gift mine, at_share_taker taker, uint8_t *with,
                        at_status *why);

#endif
