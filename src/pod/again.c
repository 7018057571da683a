#include "pod/again.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "pod/meet.h"

enum {
  kMs = 1000000,     // ns
  kThereMs = 3000,   // who has called that long ago may be gone again
  kDifferMs = 3000,  // of different views of who is lost, then nobody is left
  kFormSeconds = 10  // for all to meet once they want to
};
enum { kWho, kRests, kSteps };  // of an attempt

struct at_pod_again {
  at_pod_again_user user;
  at_pod_hosts *_Atomic hosts;
  uint32_t count, me;
  uint32_t next;              // the epoch in which the pod meets again
  uint64_t *heard;            // by process: when it was there last; 0: never
  _Atomic uint64_t attempts;  // in this epoch
  uint64_t differs_ns;        // since when views have differed; 0: they do not
  int wake;
  _Atomic bool ends;
  at_thread *thread;
};

// What those who are left tell each other.
typedef struct word {
  uint64_t lost;  // a digest of who is
  uint32_t next, rests;
} word;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                 "no memory for processes that come back");
}

// ---- Who is there
// at_pod_door.calls: only those that are lost.
static bool may_be_called(void *arg, uint32_t host) {
  const at_pod_again *g = arg;
  return !at_pod_hosts_has(g->hosts, host);
}

// at_pod_door.heard: a process that is lost has proved the token at the door.
// The pod meets in the latest epoch that anybody wants.
static void note_heard(void *arg, uint32_t host, uint32_t epoch) {
  at_pod_again *g = arg;
  if (host >= g->count || at_pod_hosts_has(g->hosts, host)) return;
  if (!g->heard[host])
    at_log(AT_LOG_INFO, "process %u: process %u is back", g->me, host);
  g->heard[host] = at_clock_ns();
  g->next = AT_MAX(g->next, epoch);
}

// Is somebody lost, and are all who are there again?
static bool all_are_back(const at_pod_again *g) {
  const uint64_t now = at_clock_ns();
  bool any = false;
  for (uint32_t h = 0; h < g->count; h++) {
    if (h == g->me || at_pod_hosts_has(g->hosts, h)) continue;
    any = true;
    if (!g->heard[h] || now - g->heard[h] > (uint64_t)kThereMs * kMs)
      return false;
  }
  return any;
}

// Do others try to meet, who miss somebody that this process does not?
static bool is_asked(const at_pod_again *g) {
  const at_hosts_tag tag = {.group = AT_POD_DOORS,
                            .launch = atomic_load(&g->attempts)};
  return at_pod_hosts_asked(g->hosts, &tag);
}

// at_pod_door.ends.
static bool has_to_look(void *arg) {
  const at_pod_again *g = arg;
  return atomic_load(&g->ends) || all_are_back(g) || is_asked(g);
}

// ---- Those who are left
typedef struct left {
  at_hosts_tag tag;  // of this attempt
  uint32_t count;
  uint32_t *hosts;
  at_hosts_mail *mails;
  word *heard;
  at_hosts_into *into;
} left;

// Who is still there, and a digest of who is not, by which all compare what
// they miss. What is allocated is freed by free_left, also on failure.
static at_status find_left(const at_pod_again *g, left *l, uint64_t *lost) {
  const size_t n = g->count;
  l->hosts = calloc(n, sizeof *l->hosts);
  l->mails = calloc(n, sizeof *l->mails);
  l->heard = calloc(n, sizeof *l->heard);
  l->into = calloc(n, sizeof *l->into);
  if (!l->hosts || !l->mails || !l->heard || !l->into) return no_memory();
  *lost = AT_HASH_SEED;
  for (uint32_t h = 0; h < g->count; h++) {
    if (h != g->me && at_pod_hosts_has(g->hosts, h))
      l->hosts[l->count++] = h;
    else if (h != g->me)
      *lost = at_hash(*lost, &h, sizeof h);
  }
  return AT_OK;
}

static void free_left(left *l) {
  free(l->hosts);
  free(l->mails);
  free(l->heard);
  free(l->into);
}

// Everybody's word, in l->heard.
static at_status swap(const at_pod_again *g, left *l, uint32_t step,
                      const word *mine) {
  const at_hosts *face = at_pod_hosts_of(g->hosts);
  const at_bytes out = {(const uint8_t *)mine, sizeof *mine};
  at_hosts_tag tag = l->tag;
  tag.step = step;
  for (uint32_t i = 0; i < l->count; i++) {
    l->into[i] = (at_hosts_into){(uint8_t *)&l->heard[i], sizeof l->heard[i]};
    l->mails[i] = (at_hosts_mail){.host = l->hosts[i],
                                  .num_out = 1,
                                  .num_in = 1,
                                  .out = &out,
                                  .in = &l->into[i]};
  }
  return face->exchange(face->arg, &tag, l->mails, l->count);
}

static at_status not_now(void) {
  return AT_FAIL(AT_ABORTED, "not all are ready");
}

// Two processes may have lost each other and not a third one, which has both.
// Views that stay different end with everybody at the door.
static void note_views(at_pod_again *g, const left *l, bool same) {
  const uint64_t now = at_clock_ns();
  if (same || !g->differs_ns) g->differs_ns = same ? 0 : now;
  if (same || now - g->differs_ns < (uint64_t)kDifferMs * kMs) return;
  at_log(AT_LOG_INFO,
         "process %u: who is lost is seen differently; all meet again", g->me);
  for (uint32_t i = 0; i < l->count; i++)
    at_pod_hosts_drop(g->hosts, l->hosts[i]);
}

// All who are left miss the same processes, and want the same epoch.
static at_status agree_who(at_pod_again *g, left *l, word *w) {
  AT_TRY(swap(g, l, kWho, w));
  bool same = true;
  for (uint32_t i = 0; i < l->count; i++) {
    same &= l->heard[i].lost == w->lost;
    w->next = AT_MAX(w->next, l->heard[i].next);
  }
  note_views(g, l, same);
  return same ? AT_OK : not_now();
}

// Asks the user to rest, then the others whether theirs do. Where not all do,
// or one is lost meanwhile, the user goes on.
static at_status agree_rest(const at_pod_again *g, left *l, word *w) {
  w->rests = g->user.rest(g->user.arg);
  at_status st = swap(g, l, kRests, w);
  bool all = w->rests;
  for (uint32_t i = 0; i < l->count && !st.err; i++) all &= l->heard[i].rests;
  if (!st.err && !all) st = not_now();
  if (st.err && w->rests) g->user.go(g->user.arg);
  return st;
}

// ---- All meet
static _Thread_local const at_pod_again *forming;
// at_pod_job.interrupted has no argument, hence `forming`.
static bool form_is_over(void) { return atomic_load(&forming->ends); }

// Meets everybody as at the beginning, with a duplicate of the listener, since
// the new hosts close theirs.
static at_status form(const at_pod_again *g, uint32_t epoch,
                      at_pod_hosts **out) {
  at_pod_job job = *at_pod_hosts_job(g->hosts);
  job.listener = fcntl(job.listener, F_DUPFD_CLOEXEC, 0);
  job.epoch = epoch;
  job.timeout_s = kFormSeconds;
  job.interrupted = form_is_over;
  forming = g;
  if (job.listener < 0)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no descriptor for a listener");
  return at_pod_hosts_open(&job, out);
}

// From here on those of `now` are the pod.
static void begin_epoch(at_pod_again *g, at_pod_hosts *now) {
  atomic_store(&g->hosts, now);
  g->next = at_pod_hosts_job(now)->epoch + 1;
  atomic_store(&g->attempts, 0);
  g->differs_ns = 0;
  memset(g->heard, 0, g->count * sizeof *g->heard);
}

// At rest. An epoch in which not all have met is over for those who were there.
static at_status move(at_pod_again *g, uint32_t epoch) {
  at_pod_hosts *now;
  g->next = epoch + 1;
  AT_TRY(form(g, epoch, &now));
  at_status st = g->user.move(g->user.arg, now);
  if (st.err) return at_pod_hosts_close(now), st;
  begin_epoch(g, now);
  at_log(AT_LOG_WARNING,
         "process %u: all %u processes are there again, and form the pod anew "
         "(epoch %u)",
         g->me, g->count, at_pod_hosts_job(now)->epoch);
  return AT_OK;
}

// One try: who is left agrees on who is lost, rests, meets. An error is no
// reason to give up.
static at_status attempt(at_pod_again *g, left *l) {
  word w = {.next = g->next};
  AT_TRY(find_left(g, l, &w.lost));
  AT_TRY(agree_who(g, l, &w));
  AT_TRY(agree_rest(g, l, &w));
  at_status st = move(g, w.next);
  g->user.go(g->user.arg);
  return st;
}

// Who gives up says so: the others wait for nothing.
static void try_again(at_pod_again *g) {
  const at_hosts *face = at_pod_hosts_of(g->hosts);
  left l = {.tag = {.group = AT_POD_DOORS,
                    .launch = atomic_fetch_add(&g->attempts, 1)}};
  at_status st = attempt(g, &l);
  if (st.err) {
    (face->fail)(face->arg, &l.tag, l.hosts, l.count, st);
    at_log(AT_LOG_INFO, "process %u: the pod does not form anew yet: %s", g->me,
           at_status_message(st));
    at_status_free(st);
    usleep(100 * 1000);
  }
  free_left(&l);
}

// ---- The door
// The thread: stands at the door until somebody is back, then tries; goes back
// to the door.
static void keep(void *arg) {
  at_pod_again *g = arg;
  const at_pod_door door = {g, may_be_called, note_heard, has_to_look, g->wake};
  while (!atomic_load(&g->ends)) {
    const at_pod_job *job = at_pod_hosts_job(g->hosts);
    const at_pod_meeting m = {.addresses = &job->addresses,
                              .token = &job->token,
                              .card = at_pod_job_card(job, g->next),
                              .calls = 1,
                              .listener = job->listener,
                              .local = job->local};
    at_status st = at_pod_keep_door(&m, &door);
    if (!st.err && !atomic_load(&g->ends)) {
      try_again(g);
    } else if (st.err) {
      at_log(AT_LOG_WARNING, "processes that are lost cannot come back: %s",
             at_status_message(st));
      at_status_free(st);
      return;
    }
  }
}

// hosts were opened with at_pod_job.returns, so their listener is still there.
at_status at_pod_again_begin(at_pod_hosts *hosts, const at_pod_again_user *user,
                             at_pod_again **out) {
  const at_hosts *face = at_pod_hosts_of(hosts);
  at_pod_again *g = calloc(1, sizeof *g);
  uint64_t *heard = calloc(face->count, sizeof *heard);
  AT_ASSERT(at_pod_hosts_job(hosts)->returns);
  at_status st = g && heard ? AT_OK : no_memory();
  if (st.err) {
    free(g);
    free(heard);
    return st;
  }
  *g = (at_pod_again){.user = *user,
                      .count = face->count,
                      .me = face->me,
                      .heard = heard,
                      .wake = eventfd(0, EFD_CLOEXEC)};
  begin_epoch(g, hosts);
  if (g->wake < 0)
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no descriptor for a door");
  if (!st.err)
    st = at_thread_start("atoll-door", AT_THREAD_STACK, keep, g, &g->thread);
  if (st.err)
    at_pod_again_end(g);
  else
    *out = g;
  return st;
}

// An attempt that waits for others fails; so does one that begins now.
static void end_attempts(at_pod_again *g) {
  const at_hosts *face = at_pod_hosts_of(g->hosts);
  at_status st = AT_FAIL(AT_CANCELLED, "process %u ends", g->me);
  const uint64_t next = atomic_load(&g->attempts);
  for (uint64_t i = next ? next - 1 : 0; i <= next; i++) {
    const at_hosts_tag tag = {.group = AT_POD_DOORS, .launch = i};
    (face->fail)(face->arg, &tag, NULL, 0, st);
  }
  at_status_free(st);
}

// Wakes the thread from the door, or out of an attempt, and joins it.
void at_pod_again_end(at_pod_again *g) {
  if (!g) return;
  atomic_store(&g->ends, true);
  if (g->thread) {
    (void)eventfd_write(g->wake, 1);
    end_attempts(g);
  }
  at_thread_join(g->thread);
  if (g->wake >= 0) close(g->wake);
  free(g->heard);
  free(g);
}
