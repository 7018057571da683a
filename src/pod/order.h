// One order of launches for the processes of a job: programs that several of
// them run enter the queues of chips in the same order everywhere, whatever the
// order in which the threads of each launch them (pod/turns.h).
//
// A launch is held until all of its processes have made it and its turn has
// come, and so is everything that needs its results; all else goes on. Where
// one of its processes is lost, or it has failed elsewhere, it needs no turn:
// it fails.
#ifndef ATOLL_POD_ORDER_H_
#define ATOLL_POD_ORDER_H_

#include "exec/exec.h"
#include "pod/hosts.h"

typedef struct at_order at_order;

// hosts: borrowed; of several processes. Thread-safe.
at_status at_order_create(at_pod_hosts *hosts, at_order **out);
// Waits until all that is held has had its turn or has failed, as it does where
// one of its processes ends without having made it.
void at_order_destroy(at_order *o);

// Takes over a task of at_launch_begin for this launch: enqueues it on all its
// chips, now or when its turn comes.
void at_order_enqueue(at_order *o, at_task *t, const at_launch *launch);
// Launches that are held now; for tests.
uint32_t at_order_held(at_order *o);

#endif
