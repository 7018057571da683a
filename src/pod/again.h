// Processes that come back: a pod that has lost some and has all of them again
// forms anew, in its next epoch.
//
// Each process keeps a door (pod/meet.h): who is lost and comes back calls
// there, or is called at its address, proves the token and learns the epoch.
// Once all who are lost are waiting, those that are left agree on a moment at
// which none of them has work over several processes, and all meet again. Who
// is not ready is asked again; who has not come until then does not join, and
// the pod stays as it is. What arrives of an earlier epoch finds no connection.
//
// Errors: nothing that goes wrong at the door ends the pod: it is logged.
// Threads: one of its own, which calls `user`.
#ifndef ATOLL_POD_AGAIN_H_
#define ATOLL_POD_AGAIN_H_

#include "pod/hosts.h"

typedef struct at_pod_again at_pod_again;

typedef struct at_pod_again_user {
  void *arg;
  // Begin nothing over several processes from now until `go`. False: some of it
  // goes on, and will for a while; there is no `go` then.
  bool (*rest)(void *arg);
  // At rest: these are the processes from now on, and now is the user's to
  // close, after this door. The pod before is to be left (at_pod_hosts_leave).
  // On failure `now` stays the door's, and the process is lost to the others.
  at_status (*move)(void *arg, at_pod_hosts *now);
  void (*go)(void *arg);
} at_pod_again_user;

// hosts: a pod with `returns`, borrowed, as those of `move` are. Free with
// at_pod_again_end.
at_status at_pod_again_begin(at_pod_hosts *hosts, const at_pod_again_user *user,
                             at_pod_again **out);
// Before a pod of it is left or closed by anybody else than `move`. NULL is
// allowed.
void at_pod_again_end(at_pod_again *g);

#endif
