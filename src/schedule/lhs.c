// List scheduling from the end. Time runs backwards: a done takes its resource,
// the start gives it back; a start is ready, without stalling, its latency
// after its done. Of the ready instructions the first by these rules is placed:
//   forced ones · over the memory limit, what frees most · what keeps the peak
//   under it · a done that is ready · the least stall · a start whose resource
//   others wait for · preference · what makes more ready · what frees memory ·
//   the order found
// A second list, in which what frees memory comes before what makes more ready,
// is taken where it is as good.
#include "schedule/lhs.h"

#include <math.h>

#include "base/verify.h"

// Candidates in the order found. Of compute and of dones the last kWindow are
// looked at, so that a wide program does not cost the square of its width; the
// starts that are ready are few, one for each op in flight.
enum { kWindow = 256 };
// Below this, nobody misses the memory by which a schedule grows.
static const double kSmallBytes = 64 << 20;
typedef enum ready_kind {
  READY_COMPUTE,
  READY_DONE,
  READY_START,
  READY_LISTS
} ready_kind;
typedef struct ready_list {
  uint32_t *list;  // ascending
  uint32_t len;
} ready_list;

// A list schedule under way. Time runs backwards: `now` is the time to the end
// of the program.
typedef struct state {
  const at_lhs_node *nodes;
  uint32_t n;
  const at_lhs_options *options;
  int64_t limit;
  bool thrifty;      // what frees memory comes before what makes more ready
  uint32_t *waits;   // readers and followers not yet placed
  double *ready_at;  // backwards time from which placing it does not stall
  bool *live;        // its results are live at this point
  ready_list ready[READY_LISTS];
  uint32_t *nops;  // ready instructions that take no time
  uint32_t num_nops;
  uint32_t in_flight[AT_LHS_RESOURCES];
  uint32_t queued[AT_LHS_RESOURCES];  // dones that are ready
  double now;
  double taken[AT_LHS_RESOURCES];  // backwards time until which a link is
  int64_t bytes;
} state;

static uint32_t limit_of(const at_lhs_options *o, uint32_t resource) {
  return o->limits[resource] ? o->limits[resource] : 1;
}

// How many of those in flight move at a time.
static uint32_t places_of(const at_lhs_options *o, uint32_t resource) {
  return o->in_turn[resource] ? 1 : limit_of(o, resource);
}

// INVALID_ARGUMENT unless all edges of instruction i go backwards.
static at_status check_edges(const at_lhs_node *x, uint32_t i,
                             const uint32_t *list, uint32_t n) {
  for (uint32_t k = 0; k < n; k++)
    if (list[k] >= i)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "schedule: instruction %u waits for %u, which comes later",
                     i, list[k]);
  return AT_OK;
}

// INVALID_ARGUMENT for edges that go forward, costs that are negative or NaN,
// and starts and dones that are not each other's partners.
static at_status check(const at_lhs_node *nodes, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const at_lhs_node *x = &nodes[i];
    AT_TRY(check_edges(x, i, x->reads, x->num_reads));
    AT_TRY(check_edges(x, i, x->after, x->num_after));
    if (!(x->cost >= 0) || !(x->latency >= 0) || x->bytes < 0)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "schedule: instruction %u costs %g s and %g s of latency "
                     "for %g bytes",
                     i, x->cost, x->latency, (double)x->bytes);
    if (x->kind != AT_LHS_START && x->kind != AT_LHS_DONE) continue;
    bool good = x->partner < n && nodes[x->partner].bytes == x->bytes &&
                x->resource < AT_LHS_RESOURCES &&
                nodes[x->partner].partner == i &&
                nodes[x->partner].kind ==
                    (x->kind == AT_LHS_START ? AT_LHS_DONE : AT_LHS_START) &&
                nodes[x->partner].resource == x->resource;
    if (good && x->kind == AT_LHS_DONE) {
      good = false;
      for (uint32_t k = 0; k < x->num_reads; k++)
        good |= x->reads[k] == x->partner;
    }
    if (!good)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "schedule: instruction %u is not paired with its %s", i,
                     x->kind == AT_LHS_START ? "done" : "start");
  }
  return AT_OK;
}

// ---- What an order takes
// The most bytes that live at once in that order. readers: scratch, n entries.
static int64_t peak_of(const at_lhs_node *nodes, uint32_t n,
                       const uint32_t *order, uint32_t *readers) {
  int64_t bytes = 0, peak = 0;
  memset(readers, 0, n * sizeof *readers);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < nodes[i].num_reads; k++)
      readers[nodes[i].reads[k]]++;
  for (uint32_t at = 0; at < n; at++) {
    uint32_t i = order ? order[at] : at;
    const at_lhs_node *x = &nodes[i];
    bytes += x->bytes;
    // Those of a done are its start's, which are still counted.
    peak = AT_MAX(peak, x->kind == AT_LHS_DONE ? bytes - x->bytes : bytes);
    for (uint32_t k = 0; k < x->num_reads; k++)
      if (!--readers[x->reads[k]] && !nodes[x->reads[k]].output)
        bytes -= nodes[x->reads[k]].bytes;
    if (!readers[i] && !x->output) bytes -= x->bytes;
    AT_ASSERT(bytes >= 0);
  }
  int64_t outputs = 0;  // all that is left
  for (uint32_t i = 0; i < n; i++)
    outputs += nodes[i].output ? nodes[i].bytes : 0;
  AT_ASSERT(bytes == outputs && peak >= outputs);
  return peak;
}

// Asynchronous ops under way: each has a place of its resource, or waits for
// one.
typedef struct flight {
  uint32_t node;
  double left;  // seconds of it, alone
} flight;
typedef struct network {
  const at_lhs_node *nodes;
  const at_lhs_options *options;
  flight *list;
  uint32_t *waiting, len, num_waiting;
  uint32_t busy[AT_LHS_RESOURCES];
  uint32_t sharing[AT_LHS_RESOURCES];  // of each link
  double now, *begin;
  double *end;  // of each START that is through; else below 0
} network;

// Seconds of transfer that pass in a second: of k transfers on one link each
// gets a k-th.
static double pace(const network *w, uint32_t node) {
  uint8_t link = w->options->link[w->nodes[node].resource];
  AT_ASSERT(!link || w->sharing[link]);
  return link ? 1.0 / w->sharing[link] : 1;
}

// A transfer takes a place of its resource.
static void set_off(network *w, uint32_t i) {
  uint32_t r = w->nodes[i].resource;
  AT_ASSERT(w->busy[r] < places_of(w->options, r));
  w->busy[r]++;
  w->sharing[w->options->link[r]]++;
  w->begin[i] = w->now;
  w->list[w->len++] = (flight){i, w->nodes[i].latency};
}

// A transfer is through; the first that waits for the same resource takes its
// place.
static void arrive(network *w, uint32_t at) {
  AT_ASSERT(at < w->len);
  uint32_t i = w->list[at].node, r = w->nodes[i].resource;
  AT_ASSERT(w->busy[r] > 0);
  w->end[i] = w->now;
  w->list[at] = w->list[--w->len];
  w->busy[r]--;
  w->sharing[w->options->link[r]]--;
  for (uint32_t k = 0; k < w->num_waiting; k++) {
    uint32_t next = w->waiting[k];
    if (w->nodes[next].resource != r) continue;
    w->num_waiting--;
    memmove(w->waiting + k, w->waiting + k + 1,
            (w->num_waiting - k) * sizeof *w->waiting);
    set_off(w, next);
    return;
  }
}

// To the time `to`, or only until START `until` is through, if that is sooner.
static void advance(network *w, double to, uint32_t until) {
  while (w->len) {
    uint32_t first = 0;
    double least = INFINITY;
    for (uint32_t k = 0; k < w->len; k++) {
      double takes = w->list[k].left / pace(w, w->list[k].node);
      if (takes < least) least = takes, first = k;
    }
    double step = fmin(least, fmax(0, to - w->now));
    for (uint32_t k = 0; k < w->len; k++)
      w->list[k].left -= step * pace(w, w->list[k].node);
    w->now += step;
    if (least > step) return;
    uint32_t node = w->list[first].node;
    arrive(w, first);
    if (node == until) return;
  }
  if (isfinite(to)) w->now = fmax(w->now, to);
}

// Begins a transfer, or has it wait for a place.
static void start(network *w, uint32_t i) {
  uint32_t r = w->nodes[i].resource;
  w->end[i] = -1;
  if (w->busy[r] >= places_of(w->options, r))
    w->waiting[w->num_waiting++] = i;
  else
    set_off(w, i);
}

// Nothing under way at time 0.
static at_status network_of(const at_lhs_node *nodes, uint32_t n,
                            const at_lhs_options *o, at_arena *a,
                            network *out) {
  *out = (network){.nodes = nodes, .options = o};
  AT_TRY_ALLOC(out->begin, at_new(a, double, (size_t)n + 1));
  AT_TRY_ALLOC(out->end, at_new(a, double, (size_t)n + 1));
  AT_TRY_ALLOC(out->list, at_new(a, flight, (size_t)n + 1));
  AT_TRY_ALLOC(out->waiting, at_new(a, uint32_t, (size_t)n + 1));
  return AT_OK;
}

// Runs an order: what it takes, how long it waits for transfers, and the most
// memory that lives at a time. The judge of every order that is found.
static at_status simulate(const at_lhs_node *nodes, uint32_t n,
                          const at_lhs_options *o, const uint32_t *order,
                          at_arena *a, network *w, at_lhs_stats *stats) {
  uint32_t *readers;
  AT_TRY(check(nodes, n));
  AT_TRY_ALLOC(readers, at_new(a, uint32_t, (size_t)n + 1));
  AT_TRY(network_of(nodes, n, o, a, w));
  at_lhs_stats s = {0};
  double now = 0, compute_between = 0, *compute_at;
  AT_TRY_ALLOC(compute_at, at_new(a, double, (size_t)n + 1));
  for (uint32_t at = 0; at < n; at++) {
    uint32_t i = order ? order[at] : at;
    const at_lhs_node *x = &nodes[i];
    if (x->kind == AT_LHS_START || x->kind == AT_LHS_DONE)
      advance(w, now, UINT32_MAX);
    if (x->kind == AT_LHS_DONE) {
      if (w->end[x->partner] < 0) advance(w, INFINITY, x->partner);
      s.exposed += fmax(0, w->end[x->partner] - now);
      now = fmax(now, w->end[x->partner]);
      s.pairs += compute_between > compute_at[x->partner];
    }
    if (x->kind != AT_LHS_START) w->begin[i] = now, w->end[i] = now + x->cost;
    now += x->cost;
    if (x->kind == AT_LHS_COMPUTE) compute_between += x->cost;
    if (x->kind != AT_LHS_START) continue;
    compute_at[i] = compute_between;
    advance(w, now, UINT32_MAX);
    start(w, i);
  }
  AT_ASSERT(s.exposed >= 0 && s.exposed <= now * (1 + 1e-9));
  s.seconds = now;
  s.peak = peak_of(nodes, n, order, readers);
  *stats = s;
  return AT_OK;
}

// See lhs.h.
at_status at_lhs_simulate(const at_lhs_node *nodes, uint32_t n,
                          const at_lhs_options *o, const uint32_t *order,
                          at_arena *a, at_lhs_stats *stats) {
  network w;
  return simulate(nodes, n, o, order, a, &w, stats);
}

at_status at_lhs_times(const at_lhs_node *nodes, uint32_t n,
                       const at_lhs_options *o, const uint32_t *order,
                       at_arena *a, double **begin, double **end) {
  network w;
  at_lhs_stats stats;
  AT_TRY(simulate(nodes, n, o, order, a, &w, &stats));
  advance(&w, INFINITY, UINT32_MAX);  // what nobody waits for
  *begin = w.begin, *end = w.end;
  return AT_OK;
}

// ---- Candidates
typedef struct candidate {
  uint32_t node;
  double stall;
  int64_t increase, peak;  // of live bytes, and while it runs
  uint32_t unlocks;
  bool done, frees;
} candidate;

// What it would mean to place instruction i now, reckoned from the end: stall,
// memory, and what it makes ready.
static candidate candidate_of(const state *s, uint32_t i) {
  const at_lhs_node *x = &s->nodes[i];
  candidate c = {.node = i, .stall = fmax(0, s->ready_at[i] - s->now)};
  int64_t more = s->live[i] ? 0 : x->bytes;
  c.peak = s->bytes + more;
  for (uint32_t k = 0; k < x->num_reads; k++) {
    uint32_t r = x->reads[k];
    if (!s->live[r]) c.increase += s->nodes[r].bytes;
    c.unlocks += s->waits[r] == 1;
  }
  c.peak += c.increase;
  if (x->kind == AT_LHS_DONE) c.peak -= x->bytes;  // they are its start's
  if (s->live[i]) c.increase -= x->bytes;
  c.done = x->kind == AT_LHS_DONE;
  c.frees = x->kind == AT_LHS_START && s->queued[x->resource] > 0;
  return c;
}

// Which of two goes first (nearer to the end): below 0: a.
static int compare(const state *s, const candidate *a, const candidate *b) {
  const at_lhs_node *x = &s->nodes[a->node], *y = &s->nodes[b->node];
  if (x->force != y->force) return x->force < y->force ? -1 : 1;
  if (s->limit > 0 && (a->peak > s->limit / 2 || b->peak > s->limit / 2)) {
    bool over_a = a->peak > s->limit, over_b = b->peak > s->limit;
    if (over_a != over_b) return over_a ? 1 : -1;
    if (over_a && a->increase != b->increase)
      return a->increase < b->increase ? -1 : 1;
  }
  if (a->done != b->done) return a->done ? -1 : 1;
  if (a->stall != b->stall) return a->stall < b->stall ? -1 : 1;
  if (a->frees != b->frees) return a->frees ? -1 : 1;
  if (x->preference != y->preference)
    return x->preference > y->preference ? -1 : 1;
  bool frees = a->increase < 0, differ = frees != (b->increase < 0);
  if (s->thrifty && differ) return frees ? -1 : 1;
  if (a->unlocks != b->unlocks) return a->unlocks > b->unlocks ? -1 : 1;
  if (differ) return frees ? -1 : 1;
  return a->node > b->node ? -1 : 1;
}

// Would its start be one too many in flight?
static bool blocked(const state *s, uint32_t i) {
  const at_lhs_node *x = &s->nodes[i];
  return x->kind == AT_LHS_DONE &&
         s->in_flight[x->resource] >= limit_of(s->options, x->resource);
}

// Ready instructions are kept by kind, since each kind is looked through
// separately.
static ready_list *list_of(state *s, uint32_t i) {
  at_lhs_kind kind = s->nodes[i].kind;
  return &s->ready[kind == AT_LHS_DONE    ? READY_DONE
                   : kind == AT_LHS_START ? READY_START
                                          : READY_COMPUTE];
}

// Where i stands, or would, in a list that is sorted by number.
static uint32_t place_in(const ready_list *l, uint32_t i) {
  uint32_t low = 0, high = l->len;
  while (low < high) {
    uint32_t mid = low + (high - low) / 2;
    if (l->list[mid] < i)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

// i has become ready.
static void insert(state *s, uint32_t i) {
  ready_list *l = list_of(s, i);
  uint32_t at = place_in(l, i);
  AT_ASSERT(l->len < s->n);
  memmove(l->list + at + 1, l->list + at, (l->len++ - at) * sizeof *l->list);
  l->list[at] = i;
  if (s->nodes[i].kind == AT_LHS_DONE) s->queued[s->nodes[i].resource]++;
}

// i is placed, and is no longer in its list.
static void take(state *s, uint32_t i) {
  ready_list *l = list_of(s, i);
  uint32_t at = place_in(l, i);
  AT_ASSERT(at < l->len && l->list[at] == i);
  memmove(l->list + at, l->list + at + 1, (--l->len - at) * sizeof *l->list);
  if (s->nodes[i].kind == AT_LHS_DONE) s->queued[s->nodes[i].resource]--;
}

// The best candidate. Where control edges leave nothing but dones of full
// resources, the limit gives way: the list must end. UINT32_MAX: nothing is
// ready.
static uint32_t choose(const state *s) {
  candidate best = {0};
  bool any = false;
  uint32_t full = UINT32_MAX;
  for (int kind = 0; kind < READY_LISTS; kind++) {
    const ready_list *l = &s->ready[kind];
    uint32_t seen = 0;
    for (uint32_t k = l->len; k-- > 0 && seen < kWindow;) {
      if (blocked(s, l->list[k])) {
        full = l->list[k];
        continue;
      }
      candidate c = candidate_of(s, l->list[k]);
      if (!any || compare(s, &c, &best) < 0) best = c;
      any = true;
      seen++;
    }
  }
  return any ? best.node : full;
}

// One user of i has been placed; the last one makes i ready, no earlier than
// `when`.
static void release(state *s, uint32_t i, double when) {
  AT_ASSERT(s->waits[i] > 0);  // each is placed once
  s->ready_at[i] = fmax(s->ready_at[i], when);
  if (--s->waits[i]) return;
  if (s->nodes[i].kind == AT_LHS_NOP)
    s->nops[s->num_nops++] = i;
  else
    insert(s, i);
}

// Puts instruction i in front of those that are placed already: time goes
// backwards. Its operands come alive, its own results end.
static void place(state *s, uint32_t i) {
  const at_lhs_node *x = &s->nodes[i];
  s->now = fmax(s->now, s->ready_at[i]) + x->cost;
  if (x->kind == AT_LHS_DONE) s->in_flight[x->resource]++;
  if (x->kind == AT_LHS_START) s->in_flight[x->resource]--;
  for (uint32_t k = 0; k < x->num_reads; k++)
    if (!s->live[x->reads[k]]) {
      s->live[x->reads[k]] = true;
      s->bytes += s->nodes[x->reads[k]].bytes;
    }
  if (s->live[i]) s->bytes -= x->bytes;
  for (uint32_t k = 0; k < x->num_reads; k++) {
    bool pair = x->kind == AT_LHS_DONE && x->reads[k] == x->partner;
    double from = s->now;
    // On one link transfers are best one after another.
    uint8_t link = pair ? s->options->link[x->resource] : 0;
    if (link) from = fmax(from, s->taken[link]);
    if (pair) from += s->nodes[x->partner].latency;
    if (link) s->taken[link] = from;
    release(s, x->reads[k], from);
  }
  for (uint32_t k = 0; k < x->num_after; k++) release(s, x->after[k], s->now);
}

// Where the program begins nothing is live, in flight or ready.
static bool is_drained(const state *s) {
  uint32_t left = s->num_nops;
  for (int k = 0; k < READY_LISTS; k++) left += s->ready[k].len;
  for (int r = 0; r < AT_LHS_RESOURCES; r++)
    left += s->in_flight[r] + s->queued[r];
  return !left && s->bytes == 0;
}

// Does `order` have each instruction once, behind what it reads and waits for?
static bool is_order(const at_lhs_node *nodes, uint32_t n,
                     const uint32_t *order, at_arena *a) {
  uint32_t *place = at_new(a, uint32_t, (size_t)n + 1);
  if (!place) return true;  // no memory to look
  for (uint32_t k = 0; k < n; k++) {
    if (order[k] >= n || place[order[k]]) return false;
    place[order[k]] = k + 1;
  }
  for (uint32_t i = 0; i < n; i++) {
    const at_lhs_node *x = &nodes[i];
    for (uint32_t k = 0; k < x->num_reads; k++)
      if (place[x->reads[k]] >= place[i]) return false;
    for (uint32_t k = 0; k < x->num_after; k++)
      if (place[x->after[k]] >= place[i]) return false;
  }
  return true;
}

// List scheduling from the end: of all that is ready, the best (compare) goes
// last. Fails for a graph with a cycle, which check() has refused before.
static at_status list(const at_lhs_node *nodes, uint32_t n,
                      const at_lhs_options *o, int64_t limit, bool thrifty,
                      at_arena *a, uint32_t *order) {
  state s = {
      .nodes = nodes, .n = n, .options = o, .limit = limit, .thrifty = thrifty};
  AT_TRY_ALLOC(s.waits, at_new(a, uint32_t, (size_t)n + 1));
  AT_TRY_ALLOC(s.ready_at, at_new(a, double, (size_t)n + 1));
  AT_TRY_ALLOC(s.live, at_new(a, bool, (size_t)n + 1));
  for (int k = 0; k < READY_LISTS; k++)
    AT_TRY_ALLOC(s.ready[k].list, at_new(a, uint32_t, (size_t)n + 1));
  AT_TRY_ALLOC(s.nops, at_new(a, uint32_t, (size_t)n + 1));
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t k = 0; k < nodes[i].num_reads; k++)
      s.waits[nodes[i].reads[k]]++;
    for (uint32_t k = 0; k < nodes[i].num_after; k++)
      s.waits[nodes[i].after[k]]++;
    if (!nodes[i].output) continue;
    s.live[i] = true;
    s.bytes += nodes[i].bytes;
  }
  for (uint32_t i = 0; i < n; i++) {
    if (s.waits[i]) continue;
    s.waits[i] = 1;
    release(&s, i, 0);
  }
  for (uint32_t left = n; left--;) {
    uint32_t i;
    if (s.num_nops) {
      i = s.nops[--s.num_nops];
    } else {
      i = choose(&s);
      AT_ENSURE(i != UINT32_MAX);
      take(&s, i);
    }
    place(&s, i);
    order[left] = i;
  }
  AT_ASSERT(is_drained(&s));
  AT_VERIFY(is_order(nodes, n, order, a));
  return AT_OK;
}

// An order and what it takes.
typedef struct found {
  uint32_t *order;
  at_lhs_stats stats;
  int64_t most;  // memory that it should stay within; 0: any
} found;

// Is its peak within the memory that it should take?
static bool fits(const found *f) {
  return f->most <= 0 || f->stats.peak <= f->most;
}

// Caches like what lives shortly: a little of the time that was gained buys
// much memory.
static bool better(const found *x, const found *than, double given_seconds) {
  if (fits(x) != fits(than)) return fits(x);
  if (x->stats.seconds < than->stats.seconds) return true;
  return (double)x->stats.peak < .9 * (double)than->stats.peak &&
         x->stats.seconds < fmin(1.01 * than->stats.seconds, given_seconds);
}

// Replaces *best where an order that is found within the limits is better.
static at_status search(const at_lhs_node *nodes, uint32_t n,
                        const at_lhs_options *o, bool thrifty,
                        double given_seconds, at_arena *a, found *best,
                        found *next) {
  int64_t limit = best->most;
  for (uint32_t run = 0; run <= o->reruns; run++) {
    AT_TRY(list(nodes, n, o, limit, thrifty, a, next->order));
    AT_TRY(at_lhs_simulate(nodes, n, o, next->order, a, &next->stats));
    bool done = fits(next);
    if (better(next, best, given_seconds)) {
      found t = *best;
      *best = *next, *next = t;
    }
    if (done) break;
    limit = limit / 10 * 9;
  }
  return AT_OK;
}

// The first search is for time; a second, thrifty one follows where the first
// has gained any.
at_status at_lhs_run(const at_lhs_node *nodes, uint32_t n,
                     const at_lhs_options *o, at_arena *a, uint32_t **order,
                     at_lhs_stats *stats) {
  found best = {0}, next = {0};
  AT_TRY_ALLOC(best.order, at_new(a, uint32_t, (size_t)n + 1));
  AT_TRY_ALLOC(next.order, at_new(a, uint32_t, (size_t)n + 1));
  for (uint32_t i = 0; i < n; i++) best.order[i] = i;
  AT_TRY(at_lhs_simulate(nodes, n, o, NULL, a, &best.stats));
  int64_t most = o->memory_limit;
  int64_t grown =
      (int64_t)fmax(o->growth * (double)best.stats.peak, kSmallBytes);
  if (o->growth > 0 && (most <= 0 || grown < most)) most = grown;
  best.most = next.most = most;
  double given = best.stats.seconds;
  AT_TRY(search(nodes, n, o, false, given, a, &best, &next));
  // Is there anything to gain at all, then perhaps in less memory.
  if (best.stats.seconds < given)
    AT_TRY(search(nodes, n, o, true, given, a, &best, &next));
  AT_ASSERT(best.stats.seconds <= given || fits(&best));
  *order = best.order;
  *stats = best.stats;
  return AT_OK;
}
