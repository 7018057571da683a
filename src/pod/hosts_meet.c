// How the processes of a job meet before there is a wire between them: what
// they show each other, in which epoch, and by which name they find each other
// in shared memory.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pod/build.h"
#include "pod/hosts_internal.h"
#include "pod/meet.h"

void at_pod_links_close(at_pod_link *links, size_t n) {
  for (size_t i = 0; i < n; i++) at_pod_link_close(&links[i]);
}

// Where nothing is set: shared memory on one machine, else TCP, or UCX where it
// works.
const char *at_pod_job_medium(const at_pod_job *job) {
  return job->medium ? job->medium : job->local ? "shm" : "net";
}

// Processes that differ in it turn each other away.
static at_digest what_of(const at_pod_job *job, uint32_t count) {
  at_digest what = at_digest_start(count);
  at_digest_add_str(&what, at_str_of(job->job));
  at_digest_add_str(&what, at_str_of(at_pod_job_medium(job)));
  at_digest_add_u64(&what, at_pod_build());
  return what;
}

// What a process shows the others when they meet: all of it must fit to theirs.
at_card at_pod_job_card(const at_pod_job *job, uint32_t epoch) {
  const uint32_t count = at_address_count(job->addresses.text);
  return (at_card){.me = job->me,
                   .count = count,
                   .epoch = epoch,
                   .tls = job->tls,
                   .job = what_of(job, count)};
}

// Everybody proves the token: each with each, once for each lane.
static at_status meet_once(const at_pod_job *job, int listener,
                           uint64_t until_ns, at_pod_link *links,
                           uint32_t *newer) {
  const at_pod_meeting m = {
      .addresses = &job->addresses,
      .token = &job->token,
      .card = at_pod_job_card(job, job->epoch),
      .calls = AT_WIRE_LANES,
      .listener = listener,
      .local = job->local,
      .until_ns = until_ns,
      .interrupted = job->interrupted,
      .newer = job->returns ? newer : NULL,
  };
  uint64_t strangers = 0;
  at_status st = at_pod_meet(&m, links, &strangers);
  if (strangers)
    at_log(AT_LOG_INFO,
           "process %u dropped %llu connections of strangers while the "
           "processes met",
           job->me, (unsigned long long)strangers);
  return st;
}

// In the epoch of those that are there already, where this process comes back.
at_status at_pod_job_meet(at_pod_job *job, uint32_t count, int listener,
                          at_pod_link *links) {
  const size_t n = (size_t)count * AT_WIRE_LANES;
  const uint64_t until = at_clock_ns() + job->timeout_s * 1000000000ull;
  for (;;) {
    uint32_t newer = 0;
    at_status st = meet_once(job, listener, until, links, &newer);
    if (!newer) return st;
    at_pod_links_close(links, n);
    at_log(AT_LOG_INFO, "%s", at_status_message(st));
    at_status_free(st);
    job->epoch = newer;
  }
}

// In shared memory members find each other by a name that comes of the token
// and of this meeting, which all of them have proved to know; others of this
// user could learn it, other users cannot join by it.
at_status at_pod_job_group(const at_pod_job *job, uint32_t count,
                           char out[80]) {
  at_digest d = what_of(job, count);
  at_digest_add(&d, (at_bytes){job->token.bytes, AT_TOKEN_BYTES});
  AT_TRY(at_address_digest(&job->addresses, &d));
  at_digest_add_u64(&d, job->epoch);
  snprintf(out, 80, "atoll-%016llx%016llx", (unsigned long long)d.h[0],
           (unsigned long long)d.h[1]);
  return AT_OK;
}
