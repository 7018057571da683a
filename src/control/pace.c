// How many launches of each client have ended here: the controller passes on
// only so many more. Told for groups of them, when the last one ends.
#include <stdlib.h>

#include "base/log.h"
#include "control/host_internal.h"

enum { kTold = 64 };

// Launches of which the last one is watched; the tenant has one user for it.
typedef struct group_of_launches {
  tenant *tenant;
  uint64_t launches;
} group_of_launches;

void at_pace_count(tenant *t, uint32_t launches) { t->counted += launches; }
bool at_pace_is_due(const tenant *t) { return t->counted >= kTold; }

// Adds to what the controller is to hear and wakes the stream's thread, which
// tells it.
static void have_ended(tenant *t, uint64_t launches) {
  host *h = t->host;
  atomic_fetch_add(&t->ended, launches);
  atomic_store(&h->some_ended, true);
  at_host_wake(h);
}

// An event's call: the last launch of a group has ended, so all before it have,
// as chips do them in order. Consumes s.
static void last_ended(at_status s, void *arg) {
  group_of_launches g = *(group_of_launches *)arg;
  host *h = g.tenant->host;
  at_status_free(s);
  free(arg);
  have_ended(g.tenant, g.launches);
  pthread_mutex_lock(&h->lock);
  at_tenant_release(g.tenant);
  pthread_mutex_unlock(&h->lock);
}

// Without an event or memory the group counts as ended now: the controller lets
// a little too much through, which is harmless.
void at_pace_close(tenant *t, at_event *last) {
  const uint64_t launches = t->counted;
  group_of_launches *g = last ? malloc(sizeof *g) : NULL;
  // The next launch begins a new group.
  t->counted = 0;
  if (!g) return have_ended(t, launches);
  *g = (group_of_launches){t, launches};
  pthread_mutex_lock(&t->host->lock);
  t->users++;
  pthread_mutex_unlock(&t->host->lock);
  at_status st = at_event_on(last, last_ended, g);
  if (st.err) last_ended(st, g);
}

// `some_ended` is cleared first: what ends meanwhile sets it again.
uint32_t at_pace_take(host *h, at_msg_did *out, uint32_t most) {
  uint32_t n = 0;
  if (!atomic_exchange(&h->some_ended, false)) return 0;
  pthread_mutex_lock(&h->lock);
  for (tenant *t = h->tenants; t; t = t->next) {
    if (n == most) {
      atomic_store(&h->some_ended, true);
      break;
    }
    uint64_t launches = atomic_exchange(&t->ended, 0);
    if (launches) out[n++] = (at_msg_did){t->client, launches};
  }
  pthread_mutex_unlock(&h->lock);
  return n;
}
