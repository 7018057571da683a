// Memory that the processes of a job share where they are on one machine: the
// at_hosts_share of exec.h. Each process has one arena, which the others map
// read-only, and one small page that they write to wake it. Thread-safe.
//
// The arena and the page are handed over by a unix socket whose other end is
// of the same user and has proved the token (pod/proof.h). Nobody ever writes
// into another process's arena, so what a process that is lost has mapped can
// be given out again at once.
#ifndef ATOLL_POD_SHARE_H_
#define ATOLL_POD_SHARE_H_

#include "exec/exec.h"
#include "pod/hosts.h"

typedef struct at_pod_share at_pod_share;

// All processes of the job call it, once; it talks by hosts->exchange, which
// must work, and keeps `hosts`. *out NULL: nobody shares with this process.
// Fails only as the exchange does.
at_status at_pod_share_open(const at_pod_job *job, const at_hosts *hosts,
                            at_pod_share **out);
const at_hosts_share *at_pod_share_of(const at_pod_share *s);  // NULL of NULL
// A process is lost, or a launch has failed elsewhere: who waits asks at once
// rather than a few milliseconds later. NULL: nothing.
void at_pod_share_tell(at_pod_share *s);
void at_pod_share_close(at_pod_share *s);

#endif
