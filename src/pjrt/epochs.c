// Processes of the job that were lost and come back: the client goes on, with
// its arrays, in the pod's next epoch. Programs of several processes are loaded
// anew when they are launched.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "pjrt/pjrt_internal.h"
#include "pod/again.h"

enum {
  kMostPods = 256,  // that a client has had
  kRestMs = 100,    // for what is under way to end
  kLookUs = 500,
  kMs = 1000000  // ns
};

struct at_pjrt_epochs {
  // Shared by whoever has to do with other processes; exclusive at rest.
  pthread_rwlock_t lock;
  pthread_mutex_t loading;  // one program at a time
  at_pod_again *again;
  at_pod_hosts *pods[kMostPods];  // since the client's first
  uint32_t num_pods;
  _Atomic bool heard;   // somebody has read that one is lost, who still is
  _Atomic bool owed[];  // by process: it was lost, which nobody has read yet
};

// The pod of the current epoch. Under the lock, or where no process can come
// back.
static at_pod_hosts *pod_now(const PJRT_Client *c) {
  const at_pjrt_epochs *e = c->epochs;
  return e->num_pods ? e->pods[e->num_pods - 1] : c->hosts;
}

// ---- At rest
// Sleeps a little, so that it can be a loop's condition.
static bool is_over(uint64_t until_ns) {
  if (at_clock_ns() >= until_ns) return true;
  usleep(kLookUs);
  return false;
}

// What is under way between processes may need what another thread of this one
// is yet to launch: so no launch waits for long.
static bool rest(void *arg) {
  PJRT_Client *c = arg;
  const uint64_t until = at_clock_ns() + (uint64_t)kRestMs * kMs;
  while (pthread_rwlock_trywrlock(&c->epochs->lock))
    if (is_over(until)) return false;
  while (at_runtime_far_work(c->runtime)) {
    if (!is_over(until)) continue;
    pthread_rwlock_unlock(&c->epochs->lock);
    return false;
  }
  return true;
}

// The runtime goes on: those who wait in at_pjrt_epoch_hold are let in.
static void go(void *arg) {
  PJRT_Client *c = arg;
  pthread_rwlock_unlock(&c->epochs->lock);
}

// Marks the processes that were lost in `before`, unless somebody has read of
// the loss in the meantime.
static void note_owed(at_pjrt_epochs *e, at_pod_hosts *before) {
  const at_hosts *h = at_pod_hosts_of(before);
  for (uint32_t i = 0; i < h->count; i++)
    if (i != h->me && !at_pod_hosts_has(before, i) && !atomic_load(&e->heard))
      atomic_store(&e->owed[i], true);
  atomic_store(&e->heard, false);
}

// The island and the runtime go over to `now`, or neither does. The pods before
// stay until the client ends, since events of theirs may still be read.
// RESOURCE_EXHAUSTED: too many of them.
static at_status move(void *arg, at_pod_hosts *now) {
  PJRT_Client *c = arg;
  at_pjrt_epochs *e = c->epochs;
  at_pod_hosts *before = pod_now(c);
  if (e->num_pods == kMostPods)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "processes have come back %u times",
                   e->num_pods);
  AT_TRY(at_island_rehost(c->island, now));
  at_status st = at_runtime_rehost(c->runtime, at_pod_hosts_of(now));
  if (!at_ok(st)) {
    at_status back = at_island_rehost(c->island, before);
    AT_ASSERT(at_ok(back));
    return st;
  }
  note_owed(e, before);
  at_pjrt_hosts_replace(before, now);
  at_pod_hosts_leave(before);
  e->pods[e->num_pods++] = now;
  return AT_OK;
}

// ---- Whoever has to do with other processes
void at_pjrt_epoch_hold(PJRT_Client *c) {
  if (c->epochs) (void)pthread_rwlock_rdlock(&c->epochs->lock);
}

void at_pjrt_epoch_release(PJRT_Client *c) {
  if (c->epochs) (void)pthread_rwlock_unlock(&c->epochs->lock);
}

uint32_t at_pjrt_epoch(const PJRT_Client *c) {
  return c->epochs ? c->epochs->num_pods : 0;
}

// The program anew, for the processes that there are now. The old one is given
// back only when the new one is there, so a failure leaves the handle as it
// was.
static at_status load_again(PJRT_LoadedExecutable *l) {
  PJRT_Client *c = l->client;
  at_loaded *now = NULL;
  at_chip **chips = calloc(l->num_assigned, sizeof *chips);
  if (!chips) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  for (uint32_t i = 0; i < l->num_assigned; i++)
    for (uint32_t d = 0; d < c->num_devices && !chips[i]; d++)
      if (c->devices[d].description->info.id == l->assigned[i])
        chips[i] = c->devices[d].chip;
  at_status st = at_loaded_create(c->runtime, l->program->executable, &now);
  if (at_ok(st)) st = at_loaded_span(now, chips);
  free(chips);
  if (!at_ok(st)) {
    if (now) at_loaded_release(now);
    return st;
  }
  at_loaded_release(l->loaded);
  l->loaded = now;
  return AT_OK;
}

// One thread loads, others that launch the same program wait for it. Nothing to
// do in the epoch it was loaded in, which is the common case.
at_status at_pjrt_epoch_span(PJRT_LoadedExecutable *l) {
  const uint32_t now = at_pjrt_epoch(l->client);
  at_status st = AT_OK;
  if (AT_LIKELY(atomic_load(&l->epoch) == now)) return AT_OK;
  pthread_mutex_lock(&l->client->epochs->loading);
  if (atomic_load(&l->epoch) != now) st = load_again(l);
  if (at_ok(st)) atomic_store(&l->epoch, now);
  pthread_mutex_unlock(&l->client->epochs->loading);
  return st;
}

// The devices of the program are looked up by their ids, and their processes in
// `owed`. *why names the last one.
bool at_pjrt_epoch_owes(const PJRT_LoadedExecutable *l, at_status *why) {
  PJRT_Client *c = l->client;
  uint32_t who = UINT32_MAX;
  if (AT_LIKELY(!at_pjrt_epoch(c))) return false;
  for (uint32_t i = 0; i < l->num_assigned; i++)
    for (uint32_t d = 0; d < c->num_devices; d++) {
      const at_chip_info *info = &c->devices[d].description->info;
      if (info->id == l->assigned[i] &&
          atomic_load(&c->epochs->owed[info->host]))
        who = info->host;
    }
  if (who == UINT32_MAX) return false;
  *why = AT_FAIL(AT_DATA_LOSS,
                 "process %u was lost and is back: this launch of %s was not "
                 "made, as nobody here has read of the loss before",
                 who,
                 at_pjrt_program_string(l->program, l->program->header->name));
  return true;
}

// Has a process of the current pod been lost? Under the lock.
static bool one_is_lost(const PJRT_Client *c) {
  at_pod_hosts *p = pod_now(c);
  const at_hosts *h = at_pod_hosts_of(p);
  bool any = false;
  for (uint32_t i = 0; i < h->count && !any; i++)
    any = i != h->me && !at_pod_hosts_has(p, i);
  return any;
}

// Nothing is owed any more. Where nothing was owed but a process is lost, that
// it was heard of is noted for when it comes back.
void at_pjrt_epochs_heard(PJRT_Client *c) {
  at_pjrt_epochs *e = c->epochs;
  bool any = false;
  // At rest nobody launches: it is read again.
  if (!e || pthread_rwlock_tryrdlock(&e->lock)) return;
  const uint32_t n = at_pod_hosts_of(c->hosts)->count;
  for (uint32_t i = 0; i < n; i++) any |= atomic_exchange(&e->owed[i], false);
  if (!any && one_is_lost(c)) atomic_store(&e->heard, true);
  pthread_rwlock_unlock(&e->lock);
}

// ---- Made and freed
at_status at_pjrt_epochs_begin(PJRT_Client *c) {
  const uint32_t n = at_pod_hosts_of(c->hosts)->count;
  at_pjrt_epochs *e = calloc(1, sizeof *e + n * sizeof *e->owed);
  if (!e) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  pthread_rwlock_init(&e->lock, NULL);
  pthread_mutex_init(&e->loading, NULL);
  c->epochs = e;
  const at_pod_again_user user = {c, rest, move, go};
  return at_pod_again_begin(c->hosts, &user, &e->again);
}

// Waits for a move that is under way, so nothing changes hosts after it.
void at_pjrt_epochs_stop(PJRT_Client *c) {
  if (!c->epochs) return;
  at_pod_again_end(c->epochs->again);
  c->epochs->again = NULL;
}

// Closes the pods since the client's first, which its own field has.
void at_pjrt_epochs_free(PJRT_Client *c) {
  at_pjrt_epochs *e = c->epochs;
  if (!e) return;
  for (uint32_t i = 0; i < e->num_pods; i++) at_pjrt_hosts_close(e->pods[i]);
  pthread_rwlock_destroy(&e->lock);
  pthread_mutex_destroy(&e->loading);
  free(e);
  c->epochs = NULL;
}
