// Many chips under one controller. Today: the gang scheduler of the chips of
// this process. Thread-safe.
//
// Errors: at_loaded_execute's, and those of hosts.h.
// Memory: as at_loaded_execute has it.
#ifndef ATOLL_POD_POD_H_
#define ATOLL_POD_POD_H_

#include "exec/exec.h"
#include "pod/hosts.h"

// The scheduler of one island: chips that exchange data with each other. It
// decides in which order the launches of all clients and threads enter the
// queues of chips, the same on every chip, so that collectives of different
// launches can never wait for each other.
typedef struct at_island at_island;
// hosts: the processes of the job, borrowed; NULL: this one is alone. With
// several there is one order for all of them (order.h).
at_status at_island_create(at_pod_hosts *hosts, at_island **out);
// Launches that are held go on first, so the runtime is there.
void at_island_destroy(at_island *s);
// From now on these are the processes. Borrowed; those before are still there.
// There is no launch over several of them, and no call that makes one.
// RESOURCE_EXHAUSTED: nothing has changed.
at_status at_island_rehost(at_island *s, at_pod_hosts *hosts);

// As at_loaded_execute, for programs over several chips too. Launches that have
// nothing to wait for run at once on the caller's thread, outside the queues.
at_status at_island_launch(at_island *s, at_loaded *l, const at_launch *launch,
                           at_buffer **outputs, at_event **out_done);

// Test hook (ATOLL_GANG=0 sets it for a process): without a common order,
// launches enter the queue of one chip after another, and may end up in
// different orders. What waits for ever then is reported as ABORTED.
void at_island_set_ordered(at_island *s, bool ordered);

#endif
