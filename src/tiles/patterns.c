// The patterns whose cost is known in closed form.
#include "tiles/tiles_internal.h"

static const char *const texts[] = {"all-to-all", "broadcast", "gather",
                                    "neighbour",  "transpose", "all-gather"};
const char *at_tiles_pattern_text(at_tiles_pattern p) {
  return (unsigned)p < AT_TILES_PATTERNS ? texts[p] : "?";
}

// An exchange while it is made; arrays were reserved at their full size.
typedef struct maker {
  at_tiles_exchange *x;
  uint32_t *receivers, num;
} maker;

// Room for so many messages and receivers.
static at_status reserve(maker *k, at_arena *a, size_t messages,
                         size_t receivers) {
  AT_TRY_ALLOC(k->x->messages, at_new(a, at_tiles_message, messages + 1));
  AT_TRY_ALLOC(k->receivers, at_new(a, uint32_t, receivers + 1));
  k->x->receivers = k->receivers;
  return AT_OK;
}

// A message to one tile.
static void send(maker *k, uint32_t from, uint32_t to, int64_t bytes) {
  k->receivers[k->num] = to;
  k->x->messages[k->x->num_messages++] =
      (at_tiles_message){from, k->num++, 1, bytes, 0};
}

// A message from one tile to all others of n.
static void send_all(maker *k, uint32_t from, uint32_t n, int64_t bytes) {
  uint32_t first = k->num;
  for (uint32_t i = 0; i < n; i++)
    if (i != from) k->receivers[k->num++] = i;
  k->x->messages[k->x->num_messages++] =
      (at_tiles_message){from, first, k->num - first, bytes, 0};
}

// word: cycles of one message.
at_status at_tiles_pattern_make(at_arena *a, at_tiles_pattern which, uint32_t n,
                                int64_t bytes, int64_t rate,
                                at_tiles_exchange *out, int64_t *closed_form) {
  int64_t word = at_ceil_div(bytes, rate);
  size_t all = (size_t)n * n;
  maker k = {.x = out};
  *out = (at_tiles_exchange){0};
  switch (which) {
    case AT_TILES_ALL_TO_ALL:
      AT_TRY(reserve(&k, a, all, all));
      for (uint32_t i = 0; i < n; i++)
        for (uint32_t to = 0; to < n; to++)
          if (i != to) send(&k, i, to, bytes);
      return *closed_form = (n - 1) * word, AT_OK;
    case AT_TILES_BROADCAST:
      AT_TRY(reserve(&k, a, 1, n));
      if (n > 1) send_all(&k, 0, n, bytes);
      return *closed_form = n > 1 ? word : 0, AT_OK;
    case AT_TILES_GATHER:
      AT_TRY(reserve(&k, a, n, n));
      for (uint32_t i = 1; i < n; i++) send(&k, i, 0, bytes);
      return *closed_form = (n - 1) * word, AT_OK;
    case AT_TILES_NEIGHBOUR:
      AT_TRY(reserve(&k, a, 2 * (size_t)n, 2 * (size_t)n));
      for (uint32_t i = 0; n > 1 && i < n; i++) {
        send(&k, i, (i + 1) % n, bytes);
        send(&k, i, (i + n - 1) % n, bytes);
      }
      return *closed_form = n > 1 ? 2 * word : 0, AT_OK;
    case AT_TILES_TRANSPOSE: {  // a grid of s x s tiles: (r, c) to (c, r)
      uint32_t s = 1;
      while ((s + 1) * (s + 1) <= n) s++;
      AT_TRY(reserve(&k, a, n, n));
      for (uint32_t r = 0; r < s; r++)
        for (uint32_t c = 0; c < s; c++)
          if (r != c) send(&k, r * s + c, c * s + r, bytes);
      return *closed_form = s > 1 ? word : 0, AT_OK;
    }
    default:  // every tile's piece to all others
      AT_TRY(reserve(&k, a, n, all));
      for (uint32_t i = 0; n > 1 && i < n; i++) send_all(&k, i, n, bytes);
      // From three tiles on any two of these messages share a receiver, so they
      // go one after the other.
      return *closed_form = n > 1 ? (n > 2 ? n : 1) * word : 0, AT_OK;
  }
}

// INTERNAL if an order does not pass the check.
at_status at_tiles_patterns_text(const at_tiles_machine *m, uint32_t most,
                                 at_strbuf *b) {
  static const struct {
    uint32_t n;
    int64_t bytes;
  } sizes[] = {{2, 4}, {16, 1024}, {37, 100}, {368, 64}, {1472, 16}};
  at_strbuf_addf(b, "%-10s %6s %8s %10s %12s %12s %9s %12s\n", "pattern",
                 "tiles", "bytes", "cycles", "closed form", "lower bound",
                 "over it", "B/cycle/tile");
  for (int p = 0; p < AT_TILES_PATTERNS; p++)
    for (size_t i = 0; i < AT_LEN(sizes); i++) {
      uint32_t n = (uint32_t)AT_MIN((int64_t)sizes[i].n, m->tiles);
      if (n > most) continue;
      at_arena *a = at_arena_create();
      at_tiles_exchange x;
      int64_t want = 0;
      if (!a) return AT_NO_MEMORY("exchange");
      at_status st =
          at_tiles_pattern_make(a, (at_tiles_pattern)p, n, sizes[i].bytes,
                                m->exchange_bytes, &x, &want);
      if (at_ok(st)) st = at_tiles_exchange_plan(m, &x);
      if (at_ok(st)) st = at_tiles_exchange_verify(m, &x);
      if (at_ok(st))
        at_strbuf_addf(
            b, "%-10s %6u %8lld %10lld %12lld %12lld %8.2f%% %12.2f\n",
            texts[p], n, (long long)sizes[i].bytes, (long long)x.cycles,
            (long long)want, (long long)x.lower_bound,
            100.0 * (double)(x.cycles - x.lower_bound) /
                (double)AT_MAX(x.lower_bound, 1),
            x.cycles ? (double)m->exchange_bytes * (double)x.lower_bound /
                           (double)x.cycles
                     : 0);
      at_arena_destroy(a);
      AT_TRY(st);
    }
  return AT_OK;
}
