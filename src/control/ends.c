// Which launches of a client have ended here, as the client is told: where more
// are under way, several by one message, so that a client that is ahead is not
// woken for each.
#include "control/host_internal.h"

#include "base/clock.h"

static const uint64_t kSoonNs = 1000000;

typedef struct ends {
  uint32_t count;
  uint64_t numbers[AT_MESSAGE_ENDS];
} ends;

// Under the lock.
static ends take(tenant *t) {
  ends out = {.count = t->num_ends};
  for (uint32_t i = 0; i < out.count; i++) out.numbers[i] = t->ends[i];
  t->num_ends = 0;
  return out;
}

// One DONE: the first number is the message's tag, the others are its body.
static void say(tenant *t, const ends *e) {
  if (!e->count) return;
  const at_bytes rest = {(const uint8_t *)(e->numbers + 1),
                         (e->count - 1) * sizeof *e->numbers};
  at_tenant_say(t, AT_WIRE_CONTROL, AT_MSG_DONE, e->numbers[0], &rest,
                rest.len ? 1 : 0);
}

// Both counts are taken back by at_ends_add.
void at_ends_begin(tenant *t) {
  t->users++;
  t->running++;
}

// A client without other launches under way waits for this one, so it is told
// at once; otherwise it is told with others, at the latest kSoonNs from now.
// The tenant has one user less.
void at_ends_add(tenant *t, uint64_t number, bool now) {
  host *h = t->host;
  ends told = {0};
  bool wakes = false;
  pthread_mutex_lock(&h->lock);
  AT_ASSERT(t->running && t->num_ends < AT_MESSAGE_ENDS);
  t->running--;
  if (number) t->ends[t->num_ends++] = number;
  if (now || t->num_ends == AT_MESSAGE_ENDS ||
      (!t->running && !atomic_load(&h->launches_more))) {
    told = take(t);
  } else if (t->num_ends && !atomic_load(&h->ends_ns)) {
    atomic_store(&h->ends_ns, at_clock_ns() + kSoonNs);
    wakes = true;
  }
  pthread_mutex_unlock(&h->lock);
  say(t, &told);
  if (wakes) at_host_wake(h);  // the stream's thread sleeps until then at most
  pthread_mutex_lock(&h->lock);
  at_tenant_release(t);
  pthread_mutex_unlock(&h->lock);
}

// Under the lock: one who is to be told. *waits: others are told later.
static tenant *next_tenant(const host *h, bool all, bool *waits) {
  for (tenant *t = h->tenants; t; t = t->next) {
    if (!t->num_ends) continue;
    if (all || !t->running) return t;
    *waits = true;
  }
  return NULL;
}

// Called between two jobs of the stream; costs one load where nothing is due.
// The lock is left while a client is told, so the search begins anew each time.
void at_ends_tell(host *h) {
  const uint64_t soon = atomic_load(&h->ends_ns);
  if (AT_LIKELY(!soon)) return;
  const bool all = at_clock_ns() >= soon;
  if (!all && atomic_load(&h->launches_more)) return;
  bool waits = false;
  pthread_mutex_lock(&h->lock);
  for (tenant *t; (t = next_tenant(h, all, &waits));) {
    const ends told = take(t);
    t->users++;
    pthread_mutex_unlock(&h->lock);
    say(t, &told);
    pthread_mutex_lock(&h->lock);
    at_tenant_release(t);
  }
  if (!waits) atomic_store(&h->ends_ns, 0);
  pthread_mutex_unlock(&h->lock);
}
