#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/config.h"
#include "pod/order.h"
#include "pod/pod.h"

struct at_island {
  pthread_mutex_t order;  // held while a launch enters the queues of its chips
  _Atomic bool ordered;
  _Atomic uint32_t launches;  // unordered: where the next one begins
  at_order *between;          // processes; NULL: there is one
};

// hosts NULL: one process, and order is a mutex.
at_status at_island_create(at_pod_hosts *hosts, at_island **out) {
  at_island *s = calloc(1, sizeof *s);
  if (!s) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a scheduler");
  pthread_mutex_init(&s->order, NULL);
  atomic_store(&s->ordered, at_config_flag(AT_CONFIG_GANG));
  at_status st = hosts ? at_order_create(hosts, &s->between) : AT_OK;
  if (st.err)
    at_island_destroy(s);
  else
    *out = s;
  return st;
}

void at_island_destroy(at_island *s) {
  if (!s) return;
  at_order_destroy(s->between);
  pthread_mutex_destroy(&s->order);
  free(s);
}

// No launch is under way, and none begins: the caller rests.
at_status at_island_rehost(at_island *s, at_pod_hosts *hosts) {
  at_order *now;
  AT_TRY(at_order_create(hosts, &now));
  at_order_destroy(s->between);
  s->between = now;
  return AT_OK;
}

void at_island_set_ordered(at_island *s, bool ordered) {
  atomic_store(&s->ordered, ordered);
}

// All queues or none: two launches never interleave.
static void enqueue_in_order(at_island *s, at_task *t, uint32_t n) {
  pthread_mutex_lock(&s->order);
  for (uint32_t d = 0; d < n; d++) at_launch_enqueue(t, d);
  pthread_mutex_unlock(&s->order);
}

// What clients without a common scheduler do: each begins somewhere, and others
// come in between.
static void enqueue_anyhow(at_island *s, at_task *t, uint32_t n) {
  uint32_t first = atomic_fetch_add(&s->launches, 1);
  for (uint32_t i = 0; i < n; i++) {
    at_launch_enqueue(t, (first + i) % n);
    if (i + 1 < n) sched_yield();
  }
}

// For at_launch_enter.
typedef struct entry {
  at_island *island;
  const at_launch *launch;
} entry;

static void enter(void *arg, at_task *t) {
  const entry *e = arg;
  at_island *s = e->island;
  if (s->between)
    at_order_enqueue(s->between, t, e->launch);
  else if (atomic_load(&s->ordered))
    enqueue_in_order(s, t, e->launch->num_chips);
  else
    enqueue_anyhow(s, t, e->launch->num_chips);
}

// Buffers are prepared (at_launch_begin) before the order is taken, so nothing
// waits while it is held.
at_status at_island_launch(at_island *s, at_loaded *l, const at_launch *launch,
                           at_buffer **outputs, at_event **out_done) {
  // One chip waits for no other: its own queue is order enough.
  if (launch->num_chips <= 1 && !s->between)
    return at_loaded_execute(l, launch, outputs, out_done);
  at_task *t;
  AT_TRY(at_launch_begin(l, launch, outputs, out_done, &t));
  if (t) at_launch_enter(t, enter, &(entry){s, launch});
  return AT_OK;
}
