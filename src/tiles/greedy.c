// An exchange without idle waits: whenever buses fall free, the messages that
// they held up and that can start now do, those first whose receivers have the
// most left to receive.
#include <stdlib.h>
#include <string.h>

#include "tiles/tiles_internal.h"

enum { kMostUses = 200000 };  // beyond, it would take too long

// A message ends.
typedef struct event {
  int64_t end;
  uint32_t message;
} event;

// A message that could start, and how much its busiest bus has left.
typedef struct wish {
  int64_t urgency;
  uint32_t message;
} wish;

typedef struct greedy {
  const at_tiles_machine *m;
  at_tiles_exchange *x;
  const uint8_t *pair;  // per message: on both buses of each pair
  // Buses: 2 tile sends, 2 tile + 1 receives.
  uint8_t *busy;
  int64_t *left;           // cycles that a bus still has to carry
  uint32_t *first, *list;  // messages of bus b: list[first[b] ..)
  uint32_t *pending;       // how many of them have not started
  uint8_t *started;
  event *heap;
  size_t heap_len;
  wish *ready;  // messages that can start
  uint32_t num_ready;
  uint32_t *ended, *stamp, now;
} greedy;

// Cycles of a message.
static int64_t length_of(const greedy *g, uint32_t message) {
  return at_ceil_div(g->x->messages[message].bytes,
                     g->m->exchange_bytes * (g->pair[message] ? 2 : 1));
}

// The k-th bus of a message.
static uint32_t bus_of(const greedy *g, uint32_t message, uint32_t k) {
  const at_tiles_message *x = &g->x->messages[message];
  if (k < x->count) return 2 * g->x->receivers[x->first + k] + 1;
  return 2 * (k == x->count ? x->from : x->from ^ 1u);
}
// How many buses it takes: receivers, its sender's, and the partner's where it
// is lent.
static uint32_t buses_of(const greedy *g, uint32_t message) {
  const at_tiles_message *x = &g->x->messages[message];
  bool lent = g->pair[message] && (x->from ^ 1u) < (uint64_t)g->m->tiles;
  return x->count + 1 + lent;
}

// Order of the heap of ends; ties by number.
static bool earlier(const greedy *g, size_t a, size_t b) {
  const event *x = &g->heap[a], *y = &g->heap[b];
  return x->end != y->end ? x->end < y->end : x->message < y->message;
}

// Adds an end to the heap.
static void push(greedy *g, event e) {
  size_t i = g->heap_len++;
  g->heap[i] = e;
  for (; i && earlier(g, i, (i - 1) / 2); i = (i - 1) / 2) {
    event t = g->heap[i];
    g->heap[i] = g->heap[(i - 1) / 2];
    g->heap[(i - 1) / 2] = t;
  }
}

// Takes the earliest end.
static event pop(greedy *g) {
  event top = g->heap[0];
  g->heap[0] = g->heap[--g->heap_len];
  for (size_t i = 0;;) {
    size_t c = 2 * i + 1;
    if (c >= g->heap_len) return top;
    if (c + 1 < g->heap_len && earlier(g, c + 1, c)) c++;
    if (!earlier(g, c, i)) return top;
    event t = g->heap[c];
    g->heap[c] = g->heap[i];
    g->heap[i] = t;
    i = c;
  }
}

// Are all its buses free?
static bool can_start(const greedy *g, uint32_t message) {
  for (uint32_t k = buses_of(g, message); k-- > 0;)
    if (g->busy[bus_of(g, message, k)]) return false;
  return true;
}

// Takes its buses from `now` on.
static void start(greedy *g, uint32_t message, int64_t now) {
  int64_t n = length_of(g, message);
  for (uint32_t k = buses_of(g, message); k-- > 0;) {
    uint32_t b = bus_of(g, message, k);
    g->busy[b] = 1;
    g->left[b] -= n;
  }
  g->started[message] = 1;
  g->x->messages[message].start = now;
  g->x->cycles = AT_MAX(g->x->cycles, now + n);
  push(g, (event){now + n, message});
}

// Cycles that the busiest of its buses still has to carry.
static int64_t urgency(const greedy *g, uint32_t message) {
  int64_t most = 0;
  for (uint32_t k = buses_of(g, message); k-- > 0;)
    most = AT_MAX(most, g->left[bus_of(g, message, k)]);
  return most;
}

// What waits for bus b is looked at; what has started leaves its list.
static void gather(greedy *g, uint32_t b) {
  uint32_t *l = g->list + g->first[b], n = 0;
  for (uint32_t i = 0; i < g->pending[b]; i++) {
    uint32_t message = l[i];
    if (g->started[message]) continue;
    l[n++] = message;
    if (g->stamp[message] == g->now) continue;
    g->stamp[message] = g->now;
    if (can_start(g, message))
      g->ready[g->num_ready++] = (wish){urgency(g, message), message};
  }
  g->pending[b] = n;
}

// Ties by number, as qsort is not stable.
static int by_urgency(const void *a, const void *b) {
  const wish *x = a, *y = b;
  if (x->urgency != y->urgency) return x->urgency > y->urgency ? -1 : 1;
  return (x->message > y->message) - (x->message < y->message);
}

// Starts what can, the urgent ones first; one may take a bus from another.
static void start_ready(greedy *g, int64_t now) {
  qsort(g->ready, g->num_ready, sizeof *g->ready, by_urgency);
  for (uint32_t i = 0; i < g->num_ready; i++)
    if (can_start(g, g->ready[i].message)) start(g, g->ready[i].message, now);
  g->num_ready = 0;
}

// From the first cycle: whenever messages end, only those that wait for their
// buses are looked at.
static void run(greedy *g) {
  g->now = 1;
  for (uint32_t b = 0; b < 2 * (uint64_t)g->m->tiles; b += 2) gather(g, b);
  start_ready(g, 0);
  while (g->heap_len) {
    int64_t now = g->heap[0].end;
    uint32_t n = 0;
    g->now++;
    while (g->heap_len && g->heap[0].end == now) {
      uint32_t message = g->ended[n++] = pop(g).message;
      for (uint32_t k = buses_of(g, message); k-- > 0;)
        g->busy[bus_of(g, message, k)] = 0;
    }
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t k = buses_of(g, g->ended[i]); k-- > 0;)
        gather(g, bus_of(g, g->ended[i], k));
    start_ready(g, now);
  }
}

// Lists of every bus's messages.
static void fill(greedy *g, size_t buses) {
  for (uint32_t i = 0; i < g->x->num_messages; i++)
    for (uint32_t k = buses_of(g, i); k-- > 0;) {
      uint32_t b = bus_of(g, i, k);
      g->pending[b]++;
      g->left[b] += length_of(g, i);
    }
  for (size_t b = 0; b < buses; b++)
    g->first[b + 1] = g->first[b] + g->pending[b];
  memset(g->pending, 0, buses * sizeof *g->pending);
  for (uint32_t i = 0; i < g->x->num_messages; i++)
    for (uint32_t k = buses_of(g, i); k-- > 0;) {
      uint32_t b = bus_of(g, i, k);
      g->list[g->first[b] + g->pending[b]++] = i;
    }
}

// See tiles_internal.h. kMostUses bounds the time: every start looks at the
// waiting messages of its buses.
bool at_tiles_greedy(const at_tiles_machine *m, at_tiles_exchange *x,
                     const uint8_t *pair) {
  size_t buses = 2 * (size_t)m->tiles, n = x->num_messages, uses = 0;
  greedy g = {.m = m, .x = x, .pair = pair};
  for (uint32_t i = 0; i < n; i++) uses += buses_of(&g, i);
  if (uses > kMostUses) return false;
  at_arena *a = at_arena_create();
  if (!a) return false;
  g.busy = at_new(a, uint8_t, buses);
  g.left = at_new(a, int64_t, buses);
  g.first = at_new(a, uint32_t, buses + 1);
  g.pending = at_new(a, uint32_t, buses);
  g.list = at_new(a, uint32_t, uses + 1);
  g.started = at_new(a, uint8_t, n + 1);
  g.heap = at_new(a, event, n + 1);
  g.ready = at_new(a, wish, n + 1);
  g.ended = at_new(a, uint32_t, n + 1);
  g.stamp = at_new(a, uint32_t, n + 1);
  bool fine = g.busy && g.left && g.first && g.pending && g.list && g.started &&
              g.heap && g.ready && g.ended && g.stamp;
  if (fine) {
    x->cycles = 0;
    fill(&g, buses);
    run(&g);
  }
  at_arena_destroy(a);
  return fine;
}
