// What a host does and holds, for people: the answer to LOOK, on the thread
// that hears it, beside the stream.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/host_internal.h"

enum { kMs = 1000000, kEvery = 64 };

// ---- Launches that are measured
// Each program's 1st, 2nd, 4th, ... 64th, 128th, 192nd; all, while it is
// watched.
static bool is_measured(const host *h, uint64_t n) {
  return !(n & (n - 1)) || !(n % kEvery) ||
         AT_UNLIKELY(atomic_load_explicit(&h->watched, memory_order_relaxed));
}

// A ring of the last AT_LOOK_RUNS; a slot whose launch still runs is not
// reused, and that launch is not measured. The stream's thread.
sample *at_sample_begin(tenant *t, program *p) {
  host *h = t->host;
  uint64_t n = atomic_load_explicit(&p->launches, memory_order_relaxed) + 1;
  atomic_store_explicit(&p->launches, n, memory_order_relaxed);
  if (AT_LIKELY(!is_measured(h, n))) return NULL;
  pthread_mutex_lock(&h->samples_lock);
  sample *s = &h->samples[h->num_samples % AT_LOOK_RUNS];
  bool ended = !atomic_load(&s->times.left);
  if (ended) {
    h->num_samples++;
    s->client = t->client;
    s->program = p->name;
    s->given_ns = at_clock_ns();
    memcpy(s->name, p->title, sizeof s->name);
    atomic_store(&s->times.start_ns, 0);
    atomic_store(&s->times.end_ns, 0);
    atomic_store(&s->times.left, p->num_here);
  }
  pthread_mutex_unlock(&h->samples_lock);
  return ended ? s : NULL;
}

// Its place in the ring counts as empty.
void at_sample_cancel(sample *s) {
  if (!s) return;
  atomic_store(&s->times.start_ns, 0);
  atomic_store(&s->times.left, 0);
}

// Measuring everything costs time, so it ends by itself.
void at_look_tick(host *h) {
  if (atomic_load(&h->watched) &&
      at_clock_ns() > atomic_load(&h->watched_until_ns))
    atomic_store(&h->watched, false);
}

// ---- The parts of the answer
typedef struct looking {
  at_msg_looks head;
  at_look_chip *chips;
  at_look_tenant *tenants;
  at_look_program *programs;
  at_look_run *runs;
} looking;

// Memory in use and launches queued, as they are now.
static void look_at_chips(const host *h, looking *l) {
  uint32_t first, n = at_runtime_own_chips(h->runtime, &first);
  n = AT_MIN(n, (uint32_t)AT_LOOK_CHIPS);
  l->chips = calloc(n + 1, sizeof *l->chips);
  for (uint32_t i = 0; l->chips && i < n; i++) {
    const at_chip *c = at_runtime_chip(h->runtime, first + i);
    at_memory_stats s = at_chip_memory_stats(c);
    l->chips[l->head.num_chips++] = (at_look_chip){.chip = first + i,
                                                   .queued = at_chip_queued(c),
                                                   .in_use = s.in_use,
                                                   .peak = s.peak_in_use,
                                                   .limit = s.limit};
  }
}

// By address: arrays that share a buffer come together, to be counted once.
static int by_place(const void *a, const void *b) {
  const at_buffer *x = *(at_buffer *const *)a, *y = *(at_buffer *const *)b;
  return (x > y) - (x < y);
}

// Arrays may have shards in common: each counts once.
static void add_up(const tenant *t, at_look_tenant *out) {
  size_t n = 0, at = 0, room = 0;
  for (at_table_slot *s; (s = at_table_next(&t->arrays, &at));)
    room += ((const array *)s->value)->count;
  at_buffer **all = calloc(room + 1, sizeof(at_buffer *));
  at = 0;
  for (at_table_slot *s; all && (s = at_table_next(&t->arrays, &at));) {
    const array *a = s->value;
    for (uint32_t i = 0; i < a->count; i++)
      if (a->here[i].buffer) all[n++] = a->here[i].buffer;
  }
  if (n) qsort(all, n, sizeof(at_buffer *), by_place);
  for (size_t i = 0; i < n; i++) {
    if ((i && all[i] == all[i - 1]) || at_buffer_is_deleted(all[i])) continue;
    if (at_buffer_memory(all[i]) == AT_MEM_DEVICE)
      out->bytes += at_buffer_padded_bytes(all[i]);
    else
      out->host_bytes += at_buffer_bytes(all[i]);
  }
  free(all);
}

// Programs that were never launched are not shown.
static void add_program(const tenant *t, const program *p, looking *l) {
  uint64_t launches = atomic_load_explicit(&p->launches, memory_order_relaxed);
  if (!launches || l->head.num_programs == AT_LOOK_PROGRAMS) return;
  at_look_program *x = &l->programs[l->head.num_programs++];
  *x = (at_look_program){
      .client = t->client, .program = p->name, .launches = launches};
  memcpy(x->name, p->title, sizeof x->name);
}

// Under the host's lock, as the tables change; leaves out whoever has left.
static void look_at_tenants(host *h, looking *l) {
  l->tenants = calloc(AT_LOOK_TENANTS, sizeof *l->tenants);
  l->programs = calloc(AT_LOOK_PROGRAMS, sizeof *l->programs);
  pthread_mutex_lock(&h->lock);
  for (const tenant *t = h->tenants; t && l->tenants && l->programs;
       t = t->next) {
    if (t->left || l->head.num_tenants == AT_LOOK_TENANTS) continue;
    at_look_tenant *x = &l->tenants[l->head.num_tenants++];
    *x = (at_look_tenant){.client = t->client, .arrays = t->arrays.count};
    add_up(t, x);
    size_t at = 0;
    for (at_table_slot *s; (s = at_table_next(&t->programs, &at));)
      add_program(t, s->value, l);
  }
  pthread_mutex_unlock(&h->lock);
}

// Launches that have ended. Times are by this host's clock; the reader needs
// now_ns to place them.
static void look_at_runs(host *h, looking *l) {
  l->runs = calloc(AT_LOOK_RUNS, sizeof *l->runs);
  pthread_mutex_lock(&h->samples_lock);
  for (uint32_t i = 0; l->runs && i < AT_LOOK_RUNS; i++) {
    const sample *s = &h->samples[i];
    uint64_t start = atomic_load(&s->times.start_ns);
    if (!start || atomic_load(&s->times.left)) continue;
    at_look_run *r = &l->runs[l->head.num_runs++];
    *r = (at_look_run){.client = s->client,
                       .program = s->program,
                       .given_ns = s->given_ns,
                       .start_ns = start,
                       .end_ns = atomic_load(&s->times.end_ns)};
    memcpy(r->name, s->name, sizeof r->name);
  }
  pthread_mutex_unlock(&h->samples_lock);
}

// On the wire's poller: takes locks for a short time but waits for nothing.
void at_host_look(host *h, const at_msg_look *m) {
  looking l = {.head = {.number = m->number}};
  if (m->watch_ms) {
    uint64_t ms = AT_MIN(m->watch_ms, (uint64_t)AT_LOOK_MOST_MS);
    atomic_store(&h->watched_until_ns, at_clock_ns() + ms * kMs);
    atomic_store(&h->watched, true);
  }
  if (atomic_load(&h->there)) {
    look_at_chips(h, &l);
    look_at_tenants(h, &l);
    look_at_runs(h, &l);
  }
  l.head.now_ns = at_clock_ns();
  const at_bytes parts[] = {
      {(const uint8_t *)&l.head, sizeof l.head},
      {(const uint8_t *)l.chips, l.head.num_chips * sizeof *l.chips},
      {(const uint8_t *)l.tenants, l.head.num_tenants * sizeof *l.tenants},
      {(const uint8_t *)l.programs, l.head.num_programs * sizeof *l.programs},
      {(const uint8_t *)l.runs, l.head.num_runs * sizeof *l.runs}};
  at_outbox_send(h->answers, &(at_outbox_post){.lane = AT_WIRE_BULK,
                                               .message = {.kind = AT_MSG_LOOKS,
                                                           .num_parts = 5,
                                                           .parts = parts}});
  free(l.chips);
  free(l.tenants);
  free(l.programs);
  free(l.runs);
}
