// The exchange: which tile sends which bytes when. Time is known when the
// program is compiled, so nobody waits for anybody: a message starts at its
// cycle.
//
// A tile has one bus out and one in, each of `exchange_bytes` per cycle. A
// message may have many receivers; all listen at once. Tiles 2i and 2i + 1 are
// a pair: when every receiver's partner receives the same, the two buses of
// each pair carry half each, at twice the rate, and the sender's partner lends
// its bus out.
#include <string.h>

#include "base/verify.h"
#include "tiles/tiles_internal.h"

enum {
  kSendWords = 64,  // words that one send instruction moves
  kInstruction = 4,
  kCandidates = 16,  // messages of a sender weighed against each other
  kSlack = 24,       // cycles over the bound that are not worth a search
  kTries = 64,       // times that a sender waits for a better moment
  kLooks = 1024,     // receivers looked at for one message that is sent
};

// ---- Messages from needs
// By place first, so that needs of one stretch are neighbours; ties by tiles,
// for one order on every run.
static int by_need(const void *a, const void *b) {
  const at_tiles_need *x = a, *y = b;
  if (x->var != y->var) return x->var < y->var ? -1 : 1;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->to != y->to) return x->to < y->to ? -1 : 1;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

// Messages while they are gathered. Needs with the same sender and receivers
// share one message, found by `messages`.
typedef struct gather {
  at_arena *arena;
  at_map messages;  // (from, receivers...) to message index + 1
  AT_VEC(at_tiles_message) list;
  AT_VEC(uint32_t) receivers;
  AT_VEC(uint32_t) key;
  AT_VEC(at_tiles_sent) sent;
  int64_t *received;
} gather;

// Notes that message number `message` carries s.
static at_status add_sent(gather *g, uint32_t message, at_tiles_sent s) {
  s.message = message;
  return at_vec_push(g->arena, &g->sent, s) ? AT_OK : AT_NO_MEMORY("exchange");
}

// One interval of one sender, its receivers in g->key[1..].
static at_status add_interval(gather *g, uint32_t from, at_tiles_sent what,
                              int64_t bytes) {
  g->key.ptr[0] = from;
  at_str key = {(const char *)g->key.ptr, g->key.len * sizeof *g->key.ptr};
  for (size_t i = 1; i < g->key.len; i++) g->received[g->key.ptr[i]] += bytes;
  void **place = at_map_find(&g->messages, key);
  if (place) {
    g->list.ptr[(uintptr_t)*place - 1].bytes += bytes;
    return add_sent(g, (uint32_t)((uintptr_t)*place - 1), what);
  }
  AT_TRY_ALLOC(key.ptr, at_arena_copy(g->arena, key.ptr, key.len, 4));
  AT_TRY_ALLOC(place, at_map_put(&g->messages, key));
  at_tiles_message m = {from, (uint32_t)g->receivers.len,
                        (uint32_t)g->key.len - 1, bytes, 0};
  for (size_t i = 1; i < g->key.len; i++)
    if (!at_vec_push(g->arena, &g->receivers, g->key.ptr[i]))
      return AT_NO_MEMORY("exchange");
  if (!at_vec_push(g->arena, &g->list, m)) return AT_NO_MEMORY("exchange");
  *place = (void *)(uintptr_t)g->list.len;
  return add_sent(g, (uint32_t)g->list.len - 1, what);
}

// For qsort: ascending.
static int by_tile(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

// Needs n[0..count) overlap in a chain; `size` is bytes per element. Every
// stretch between two of their ends has one set of receivers.
static at_status add_chain(gather *g, const at_tiles_need *n, size_t count,
                           int64_t size, int64_t *cuts) {
  size_t k = 0;
  for (size_t i = 0; i < count; i++)
    cuts[k++] = n[i].begin, cuts[k++] = n[i].end;
  for (size_t i = 1; i < k; i++)  // almost sorted: chains are short or equal
    for (size_t j = i; j > 0 && cuts[j] < cuts[j - 1]; j--) {
      int64_t t = cuts[j];
      cuts[j] = cuts[j - 1];
      cuts[j - 1] = t;
    }
  for (size_t c = 0; c + 1 < k; c++) {
    if (cuts[c] == cuts[c + 1]) continue;
    g->key.len = 0;
    uint32_t from = AT_TILES_NOWHERE;
    if (!at_vec_push(g->arena, &g->key, from)) return AT_NO_MEMORY("exchange");
    for (size_t i = 0; i < count && n[i].begin <= cuts[c]; i++) {
      if (n[i].end <= cuts[c]) continue;
      from = n[i].from;
      if (!at_vec_push(g->arena, &g->key, n[i].to))
        return AT_NO_MEMORY("exchange");
    }
    // Between two needs of a chain may be a stretch that nobody wants.
    if (g->key.len < 2) continue;
    qsort(g->key.ptr + 1, g->key.len - 1, sizeof *g->key.ptr, by_tile);
    size_t w = 1;
    for (size_t i = 1; i < g->key.len; i++)
      if (w == 1 || g->key.ptr[w - 1] != g->key.ptr[i])
        g->key.ptr[w++] = g->key.ptr[i];
    g->key.len = w;
    at_tiles_sent what = {0, n->var, cuts[c], cuts[c + 1]};
    AT_TRY(add_interval(g, from, what, (cuts[c + 1] - cuts[c]) * size));
  }
  return AT_OK;
}

// For qsort: by message, then variable, then place, so that neighbours can be
// united.
static int by_sent(const void *a, const void *b) {
  const at_tiles_sent *x = a, *y = b;
  if (x->message != y->message) return x->message < y->message ? -1 : 1;
  if (x->var != y->var) return x->var < y->var ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

// Two views of what is sent agree: the stretches of a message, and its bytes.
static at_status check_sent(const at_tiles_graph *g,
                            const at_tiles_exchange *x) {
  size_t k = 0;
  for (size_t i = 0; i < x->num_messages; i++) {
    int64_t bytes = 0;
    for (; k < x->num_sent && x->sent[k].message == i; k++) {
      const at_tiles_sent *s = &x->sent[k];
      bytes += (s->end - s->begin) * at_dtype_bytes(g->vars.ptr[s->var].dtype);
      if (s->begin >= s->end || (k && s[-1].message == i &&
                                 s[-1].var == s->var && s[-1].end > s->begin))
        return AT_FAIL(AT_INTERNAL, "exchange: message %zu sends twice", i);
    }
    if (bytes != x->messages[i].bytes)
      return AT_FAIL(AT_INTERNAL, "exchange: message %zu has other bytes", i);
  }
  return k == x->num_sent
             ? AT_OK
             : AT_FAIL(AT_INTERNAL, "exchange: bytes of no message");
}

// Needs of one variable that overlap are one chain; everything else cannot
// share a message's stretch.
at_status at_tiles_exchange_of(at_tiles_graph *graph, at_tiles_needs *n,
                               int64_t *received, int64_t *tile_code,
                               at_tiles_exchange *out) {
  *out = (at_tiles_exchange){.tile_code = tile_code};
  if (!n->len) return AT_OK;
  qsort(n->ptr, n->len, sizeof *n->ptr, by_need);
  gather g = {.arena = graph->arena, .received = received};
  g.messages = at_map_in(graph->arena);
  int64_t *cuts = malloc(2 * n->len * sizeof *cuts);
  if (!cuts) return AT_NO_MEMORY("exchange");
  at_status st = AT_OK;
  for (size_t i = 0; at_ok(st) && i < n->len;) {
    size_t k = i + 1;
    int64_t end = n->ptr[i].end;
    while (k < n->len && n->ptr[k].var == n->ptr[i].var &&
           n->ptr[k].begin < end) {
      end = AT_MAX(end, n->ptr[k].end);
      k++;
    }
    st = add_chain(&g, n->ptr + i, k - i,
                   at_dtype_bytes(graph->vars.ptr[n->ptr[i].var].dtype), cuts);
    i = k;
  }
  free(cuts);
  AT_TRY(st);
  out->messages = g.list.ptr;
  out->num_messages = g.list.len;
  out->receivers = g.receivers.ptr;
  out->sent = g.sent.ptr;
  out->num_sent = g.sent.len;
  if (g.sent.len) qsort(g.sent.ptr, g.sent.len, sizeof *g.sent.ptr, by_sent);
  AT_VERIFY_OK(check_sent(graph, out));
  return at_tiles_exchange_plan(&graph->machine, out);
}

// ---- The plan
// Do the receivers of m come as whole pairs of tiles? Receivers are ascending.
static bool paired(const at_tiles_exchange *x, const at_tiles_message *m) {
  if (m->count & 1) return false;
  for (uint32_t i = 0; i < m->count; i += 2)
    if (x->receivers[m->first + i] & 1 ||
        x->receivers[m->first + i + 1] != x->receivers[m->first + i] + 1)
      return false;
  return m->count > 0;
}

// Cycles of a message: half as many where pairs receive it.
static int64_t duration(const at_tiles_machine *m, const at_tiles_exchange *x,
                        const at_tiles_message *g) {
  return at_ceil_div(g->bytes, m->exchange_bytes * (paired(x, g) ? 2 : 1));
}

// State of one plan. Messages of a tile are a list through `next`, from
// `heads`; numbers there are index + 1.
typedef struct planner {
  const at_tiles_machine *m;
  at_tiles_exchange *x;
  int64_t *send_free, *receive_free, *send_busy, *receive_busy, *receive_left,
      *code;  // per tile
  uint32_t *next, *heads,
      *tries;      // per message; per tile: what it still has to send
  uint32_t *heap;  // tiles with something to send, by send_free
  size_t heap_len;
  uint8_t *pair;  // per message: two buses carry it
} planner;

// Order of the heap: who can send first; ties by number.
static bool before(const planner *p, uint32_t a, uint32_t b) {
  return p->send_free[a] != p->send_free[b] ? p->send_free[a] < p->send_free[b]
                                            : a < b;
}

// Restores the heap below i.
static void sift_down(planner *p, size_t i) {
  for (;;) {
    size_t c = 2 * i + 1;
    if (c >= p->heap_len) return;
    if (c + 1 < p->heap_len && before(p, p->heap[c + 1], p->heap[c])) c++;
    if (!before(p, p->heap[c], p->heap[i])) return;
    uint32_t t = p->heap[c];
    p->heap[c] = p->heap[i];
    p->heap[i] = t;
    i = c;
  }
}

// The tile whose bus out a message borrows, or its own sender.
static uint32_t lender(const planner *p, uint32_t message) {
  uint32_t from = p->x->messages[message].from;
  return p->pair[message] && (from ^ 1u) < (uint64_t)p->m->tiles ? from ^ 1u
                                                                 : from;
}

// Cycles for which a message holds its buses.
static int64_t length_of(const planner *p, uint32_t message) {
  return at_ceil_div(p->x->messages[message].bytes,
                     p->m->exchange_bytes * (p->pair[message] ? 2 : 1));
}

// The first cycle at which all buses of a message are free.
static int64_t earliest(const planner *p, uint32_t message) {
  const at_tiles_message *g = &p->x->messages[message];
  int64_t t = AT_MAX(p->send_free[g->from], p->send_free[lender(p, message)]);
  for (uint32_t i = 0; i < g->count; i++)
    t = AT_MAX(t, p->receive_free[p->x->receivers[g->first + i]]);
  return t;
}

// The message's buses are taken from `start` on.
static void book(planner *p, uint32_t message, int64_t start) {
  at_tiles_message *g = &p->x->messages[message];
  int64_t end = start + length_of(p, message);
  AT_ASSERT(start >= earliest(p, message));  // all buses are free
  g->start = start;
  p->send_free[g->from] = p->send_free[lender(p, message)] = end;
  for (uint32_t i = 0; i < g->count; i++) {
    uint32_t r = p->x->receivers[g->first + i];
    p->receive_free[r] = end;
    p->receive_left[r] -= end - start;
  }
  p->x->cycles = AT_MAX(p->x->cycles, end);
}

// The next message of tile s: of those that can start now, the one whose
// receivers have the most left to receive, so that the busiest finish in time.
// When none can, a message to several is booked for when they can; one to a
// single receiver is not, and s tries again when the first of them is free:
// somebody else may be better served meanwhile.
static void send_one(planner *p, uint32_t s) {
  uint32_t *best = NULL, *at = &p->heads[s];
  int64_t start = INT64_MAX, most = -1;
  uint32_t looks = 0;
  for (int k = 0; k < kCandidates && *at && looks < kLooks;
       k++, at = &p->next[*at - 1]) {
    const at_tiles_message *g = &p->x->messages[*at - 1];
    int64_t t = earliest(p, *at - 1), left = 0;
    looks += g->count;
    for (uint32_t i = 0; i < g->count; i++)
      left = AT_MAX(left, p->receive_left[p->x->receivers[g->first + i]]);
    if (t > start || (t == start && left <= most)) continue;
    start = t, most = left, best = at;
  }
  uint32_t which = *best - 1;
  const at_tiles_message *g = &p->x->messages[which];
  if (start > p->send_free[s] && g->count == 1 && p->tries[s]++ < kTries) {
    p->send_free[s] = start;
    return;
  }
  p->tries[s] = 0;
  *best = p->next[which];
  book(p, which, start);
}

// Fills in what does not depend on the order: bytes, who is paired, how long
// each bus is busy, send and receive code, and the lower bound.
static void account(planner *p) {
  at_tiles_exchange *x = p->x;
  x->sent_bytes = x->received_bytes = 0;
  for (size_t i = 0; i < x->num_messages; i++) {
    const at_tiles_message *g = &x->messages[i];
    p->pair[i] = paired(x, g);
    int64_t t = length_of(p, (uint32_t)i),
            words = at_ceil_div(g->bytes, kInstruction);
    bool both = lender(p, (uint32_t)i) != g->from;
    x->sent_bytes += g->bytes;
    x->received_bytes += g->bytes * g->count;
    p->send_busy[g->from] += t;
    if (both) p->send_busy[g->from ^ 1u] += t;
    p->code[g->from] += kInstruction * (1 + at_ceil_div(words, kSendWords));
    for (uint32_t k = 0; k < g->count; k++) {
      p->receive_busy[x->receivers[g->first + k]] += t;
      p->code[x->receivers[g->first + k]] += 2 * kInstruction;
    }
  }
  x->multicast_saved_bytes = x->received_bytes - x->sent_bytes;
  x->lower_bound = x->instruction_bytes = x->cycles = 0;
  for (int64_t t = 0; t < p->m->tiles; t++) {
    x->lower_bound =
        AT_MAX(x->lower_bound, AT_MAX(p->send_busy[t], p->receive_busy[t]));
    x->instruction_bytes = AT_MAX(x->instruction_bytes, p->code[t]);
    if (x->tile_code) x->tile_code[t] += p->code[t];
  }
}

// Bytes and bound without an order: for comparing plans that may lose anyway.
at_status at_tiles_exchange_bound(const at_tiles_machine *m,
                                  at_tiles_exchange *x) {
  size_t n = (size_t)m->tiles;
  int64_t *tiles = calloc(3 * n, sizeof *tiles);
  uint8_t *pair = calloc(x->num_messages + 1, 1);
  if (tiles && pair) {
    planner p = {.m = m,
                 .x = x,
                 .send_busy = tiles,
                 .receive_busy = tiles + n,
                 .code = tiles + 2 * n,
                 .pair = pair};
    account(&p);
    x->cycles = x->lower_bound;
  }
  bool fine = tiles && pair;
  free(tiles);
  free(pair);
  return fine ? AT_OK : AT_NO_MEMORY("exchange");
}

// Sender s begins with the receiver after it and goes round, so that senders of
// the same pattern do not all turn to one receiver.
static uint64_t turn(const planner *p, const at_tiles_message *g) {
  uint64_t n = (uint64_t)p->m->tiles;
  return g->count ? (p->x->receivers[g->first] + n - g->from) % n : 0;
}

typedef struct order {
  uint64_t key;
  uint32_t message;
} order;
// Ties by number: qsort is not stable.
static int by_order(const void *a, const void *b) {
  const order *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->message > y->message) - (x->message < y->message);
}

// OUT_OF_RANGE unless all tiles of all messages exist and no message has
// negative length.
static at_status check(const at_tiles_machine *m, const at_tiles_exchange *x) {
  for (size_t i = 0; i < x->num_messages; i++) {
    const at_tiles_message *g = &x->messages[i];
    bool bad = g->from >= (uint64_t)m->tiles || g->bytes < 0;
    for (uint32_t k = 0; !bad && k < g->count; k++)
      bad = x->receivers[g->first + k] >= (uint64_t)m->tiles;
    if (bad)
      return AT_FAIL(AT_OUT_OF_RANGE,
                     "exchange: message %zu from tile %u of %lld bytes names a "
                     "tile that is not among %lld",
                     i, g->from, (long long)g->bytes, (long long)m->tiles);
  }
  return AT_OK;
}

// Sends everything, each tile's messages in the order of o.
static void run(planner *p, order *o) {
  size_t n = (size_t)p->m->tiles, k = p->x->num_messages;
  memcpy(p->receive_left, p->receive_busy, n * sizeof *p->receive_left);
  qsort(o, k, sizeof *o, by_order);
  for (size_t i = k; i-- > 0;) {
    uint32_t g = o[i].message, from = p->x->messages[g].from;
    p->next[g] = p->heads[from];
    p->heads[from] = g + 1;
  }
  for (uint32_t t = 0; t < n; t++)
    if (p->heads[t]) p->heap[p->heap_len++] = t;
  while (p->heap_len) {
    uint32_t s = p->heap[0];
    send_one(p, s);
    if (!p->heads[s]) p->heap[0] = p->heap[--p->heap_len];
    sift_down(p, 0);
  }
}

// Round by round, where that ends earlier. `length`: room for one number a
// message.
static void use_rounds(planner *p, const uint32_t *round, int64_t *length) {
  at_tiles_exchange *x = p->x;
  int64_t total = 0;
  memset(length, 0, x->num_messages * sizeof *length);
  for (size_t i = 0; i < x->num_messages; i++) {
    int64_t *l = &length[round[i]];
    *l = AT_MAX(*l, length_of(p, (uint32_t)i));
  }
  for (size_t r = 0; r < x->num_messages; r++) {
    int64_t l = length[r];
    length[r] = total;
    total += l;
  }
  if (total >= x->cycles) return;
  x->cycles = total;
  for (size_t i = 0; i < x->num_messages; i++)
    x->messages[i].start = length[round[i]];
}

// The broadest messages first, each as early as it can: where many listen at
// once, anything narrow in between would leave gaps on all of them.
static void run_by_breadth(planner *p, order *o) {
  size_t k = p->x->num_messages;
  for (size_t i = 0; i < k; i++) {
    const at_tiles_message *g = &p->x->messages[i];
    o[i] = (order){(uint64_t)(UINT32_MAX - g->count) << 32 | turn(p, g),
                   (uint32_t)i};
  }
  qsort(o, k, sizeof *o, by_order);
  for (size_t i = 0; i < k; i++)
    book(p, o[i].message, earliest(p, o[i].message));
}

// No more than a sync is worth looking for.
static bool good(const at_tiles_exchange *x) {
  return x->cycles <= x->lower_bound + x->lower_bound / 20 + kSlack;
}

// Is there a message to several receivers?
static bool any_broad(const at_tiles_exchange *x) {
  for (size_t i = 0; i < x->num_messages; i++)
    if (x->messages[i].count > 1) return true;
  return false;
}

// Every sender's messages in the order of `turn`.
static void order_by_turn(planner *p, order *o) {
  for (size_t i = 0; i < p->x->num_messages; i++)
    o[i] = (order){turn(p, &p->x->messages[i]), (uint32_t)i};
}

// What there was before (in `kept`: a start each) stays if it ends earlier.
static void keep_better(at_tiles_exchange *x, int64_t before,
                        const int64_t *kept) {
  if (!before || x->cycles <= before) return;
  x->cycles = before;
  for (size_t i = 0; i < x->num_messages; i++) x->messages[i].start = kept[i];
}

// One plan from a clean slate, senders going round.
static void run_by_turn(planner *p, order *o) {
  size_t n = (size_t)p->m->tiles;
  memset(p->send_free, 0, n * sizeof *p->send_free);
  memset(p->receive_free, 0, n * sizeof *p->receive_free);
  p->x->cycles = 0;
  order_by_turn(p, o);
  run(p, o);
}

// Broadest first where there are broad messages; going round; rounds; greedy:
// each is tried only while the result is not good, and kept only if it is
// better.
at_status at_tiles_exchange_plan(const at_tiles_machine *m,
                                 at_tiles_exchange *x) {
  AT_TRY(check(m, x));
  size_t n = (size_t)m->tiles, k = x->num_messages;
  if (k >= UINT32_MAX) return AT_NO_MEMORY("exchange");
  int64_t *tiles = calloc(6 * n, sizeof *tiles);
  uint32_t *lists = calloc(3 * n + 2 * k + 1, sizeof *lists);
  order *o = malloc((k + 1) * sizeof *o);
  uint8_t *pair = calloc(k + 1, 1);
  int64_t *kept = malloc((k + 1) * sizeof *kept);
  at_status st = AT_OK;
  if (!tiles || !lists || !o || !pair || !kept) {
    st = AT_NO_MEMORY("exchange");
    goto out;
  }
  planner p = {.m = m,
               .x = x,
               .send_free = tiles,
               .receive_free = tiles + n,
               .send_busy = tiles + 2 * n,
               .receive_busy = tiles + 3 * n,
               .receive_left = tiles + 4 * n,
               .code = tiles + 5 * n,
               .heads = lists,
               .tries = lists + n,
               .heap = lists + 2 * n,
               .next = lists + 3 * n,
               .pair = pair};
  uint32_t *round = lists + 3 * n + k;
  account(&p);
  if (any_broad(x)) run_by_breadth(&p, o);
  int64_t before = x->cycles;
  if (!before || !good(x)) {
    for (size_t i = 0; i < k; i++) kept[i] = x->messages[i].start;
    run_by_turn(&p, o);
    keep_better(x, before, kept);
  }
  // Greedy leaves gaps on irregular patterns; rounds do not, if lengths are
  // alike.
  if (!good(x) && at_tiles_rounds(m, x, round)) use_rounds(&p, round, kept);
  if (!good(x)) {
    before = x->cycles;
    for (size_t i = 0; i < k; i++) kept[i] = x->messages[i].start;
    if (at_tiles_greedy(m, x, pair)) keep_better(x, before, kept);
  }
  AT_VERIFY_OK(at_tiles_exchange_verify(m, x));
out:
  free(tiles);
  free(lists);
  free(o);
  free(pair);
  free(kept);
  return st;
}

// ---- What every plan must pass
// A bus that is busy for [start, end).
typedef struct use {
  uint32_t tile;  // 2 tile: sends; 2 tile + 1: receives
  int64_t start, end;
} use;
// For qsort: by tile, then in the order of time.
static int by_use(const void *a, const void *b) {
  const use *x = a, *y = b;
  if (x->tile != y->tile) return x->tile < y->tile ? -1 : 1;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

// Sorts the use of every bus and looks for overlaps, then adds up what the plan
// claims.
at_status at_tiles_exchange_verify(const at_tiles_machine *m,
                                   const at_tiles_exchange *x) {
  size_t n = 0, k = 0;
  for (size_t i = 0; i < x->num_messages; i++) n += x->messages[i].count + 2;
  use *u = malloc((n + 1) * sizeof *u);
  if (!u) return AT_NO_MEMORY("exchange");
  for (size_t i = 0; i < x->num_messages; i++) {
    const at_tiles_message *g = &x->messages[i];
    int64_t end = g->start + duration(m, x, g);
    u[k++] = (use){2 * g->from, g->start, end};
    if (paired(x, g) && (g->from ^ 1u) < (uint64_t)m->tiles)
      u[k++] = (use){2 * (g->from ^ 1u), g->start, end};
    for (uint32_t r = 0; r < g->count; r++)
      u[k++] = (use){2 * x->receivers[g->first + r] + 1, g->start, end};
  }
  if (k) qsort(u, k, sizeof *u, by_use);
  at_status st = AT_OK;
  for (size_t i = 0; at_ok(st) && i < k; i++) {
    bool overlap = i && u[i].tile == u[i - 1].tile && u[i].start < u[i - 1].end;
    if (overlap || u[i].end > x->cycles)
      st = AT_FAIL(AT_INTERNAL,
                   "exchange: tile %u %s two messages at cycle %lld",
                   u[i].tile / 2, u[i].tile & 1 ? "receives" : "sends",
                   (long long)u[i].start);
  }
  int64_t last = 0, sent = 0, received = 0;
  for (size_t i = 0; i < k; i++) last = AT_MAX(last, u[i].end);
  for (size_t i = 0; i < x->num_messages; i++) {
    sent += x->messages[i].bytes;
    received += x->messages[i].bytes * x->messages[i].count;
  }
  if (at_ok(st) && (last != x->cycles || x->cycles < x->lower_bound ||
                    sent != x->sent_bytes || received != x->received_bytes ||
                    (k && u[0].start < 0)))
    st = AT_FAIL(AT_INTERNAL,
                 "exchange: %lld cycles for messages that end at %lld, and "
                 "%lld bytes sent, %lld received",
                 (long long)x->cycles, (long long)last, (long long)sent,
                 (long long)received);
  free(u);
  return st;
}
