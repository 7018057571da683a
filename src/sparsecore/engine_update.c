// Updates. First every owner SparseCore gathers what is asked of it and sorts
// it by row; when all of that was in range, tasks of whole rows sum the
// gradients of each row and run the optimizer on it, in place. No row belongs
// to two tasks.
#include <stdatomic.h>
#include <string.h>

#include "base/verify.h"
#include "sparsecore/engine_internal.h"

enum {
  kDigitBits = 11,  // of a pass of the sort
  kRowsAhead = 8,   // rows whose memory is on its way
  kPrefetchBytes = 1024,
  kTaskEntries = 2048,  // an owner's share is cut into tasks of about this
  kCopyBytes = 1 << 20
};

typedef struct owner {
  at_sc_entry *entries;  // sorted by id; equal ids in the order of the buffers
  uint64_t count, room;
  at_sc_entry *spare;  // of the sort
} owner;

// Of the rows that one thread works on.
typedef struct worker {
  void **places;
  float *gradient;
  uint8_t *scratch;
} worker;

typedef struct update {
  at_sc_plan plan;
  const at_sc_run *run;
  const at_sc_rows *rows;
  uint32_t first_table, first_result;  // buffers
  owner *owners;                       // of this host
  at_sc_far_spans *far;                // by host; NULL: there is one
  worker *workers;
  uint64_t *first_task;  // by owner; then how many there are
  _Atomic uint64_t bad;  // where + 1
} update;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an update");
}

// ---- Who is asked for what
typedef at_status (*span_fn)(update *u, uint32_t device, uint32_t k,
                             uint32_t owner, at_sc_span s);

// Every span of an owner of this host that this host asks of it, device by
// device.
static at_status each_span(update *u, uint32_t g, span_fn fn) {
  const at_sc_plan *p = &u->plan;
  for (uint32_t d = 0; d < p->here; d++)
    for (uint32_t k = 0; k < p->scs; k++)
      for (uint32_t m = 0; m < p->devices[d].batches; m++) {
        at_sc_span s = at_sc_span_of(p, d, k, m, p->first * p->scs + g);
        if (s.begin < s.end) AT_TRY(fn(u, d, k, g, s));
      }
  return AT_OK;
}

// A span_fn that only counts.
static at_status count_span(update *u, uint32_t device, uint32_t k, uint32_t g,
                            at_sc_span s) {
  u->owners[g].count += s.end - s.begin;
  return AT_OK;
}

// A span_fn: appends the entries to those of the owner, with pointers to their
// gradients.
static at_status take_span(update *u, uint32_t device, uint32_t k, uint32_t g,
                           at_sc_span s) {
  const at_sc_plan *p = &u->plan;
  const at_x_sparse *x = p->x;
  const at_sc_ids *b = &p->devices[device];
  uint64_t bad =
      at_sc_first_bad(b, s.begin, s.end, p->shard_rows, p->sc_samples);
  if (bad < s.end) return at_sc_blame(p, device, k, p->first * p->scs + g, bad);
  owner *o = &u->owners[g];
  const float *gradient =
      (const float *)u->run->bufs[device][u->first_table - 1] +
      k * p->sc_samples * x->width;
  at_sc_entry *to = o->entries + o->count;
  AT_ASSERT(s.end - s.begin <= o->room - o->count);  // count_span's sum
  for (uint64_t i = s.begin; i < s.end; i++)
    *to++ = (at_sc_entry){
        .id = (uint32_t)b->ids[i],
        .gain = b->gains[i],
        .gradient = gradient + (uint64_t)(uint32_t)b->samples[i] * x->width};
  o->count += s.end - s.begin;
  return AT_OK;
}

// What another host asks of an owner; `take` false: only how much it is. Ids
// and places were checked when the message was read.
static void take_far(update *u, uint32_t host, uint32_t g, bool take) {
  const at_sc_far_spans *f = &u->far[host];
  owner *o = &u->owners[g];
  for (uint32_t i = 0; i < f->count; i++) {
    const at_sc_far_span *s = &f->list[i];
    if (s->owner != u->plan.first * u->plan.scs + g) continue;
    AT_ASSERT(!take || s->count <= o->room - o->count);
    for (uint32_t e = 0; take && e < s->count; e++)
      o->entries[o->count + e] = (at_sc_entry){
          .id = s->ids[e],
          .gain = s->gains[e],
          .gradient = s->gradients + s->places[e] * u->run->x->width};
    o->count += s->count;
  }
}

// All that is asked of an owner, host by host, which is device by device. That
// order is the order of the sums.
static at_status each_source(update *u, uint32_t g, span_fn fn) {
  AT_ASSERT(g < u->plan.here * u->plan.scs);
  const at_sc_hosts *h = u->far ? u->run->hosts : NULL;
  for (uint32_t i = 0; h && i < h->me; i++) take_far(u, i, g, fn == take_span);
  AT_TRY(each_span(u, g, fn));
  for (uint32_t i = h ? h->me + 1 : 0; h && i < h->count; i++)
    take_far(u, i, g, fn == take_span);
  return AT_OK;
}

// By id.
static bool is_sorted(const owner *o) {
  for (uint64_t i = 1; i < o->count; i++)
    if (o->entries[i].id < o->entries[i - 1].id) return false;
  return true;
}

// Stable, by digits of the id from the least significant on. A radix sort with
// digits of up to 11 bits, as many passes as the rows of a shard need; small
// lists take small digits. `entries` and `spare` change roles.
static void sort_entries(owner *o, uint64_t shard_rows) {
  if (is_sorted(o)) return;
  // Digits grow with the list until counters cost as much as entries.
  uint32_t bits = 64 - (uint32_t)__builtin_clzll(shard_rows | 1), digit = 4;
  while (digit < kDigitBits && (1ull << digit) < o->count) digit++;
  uint32_t passes = (bits + digit - 1) / digit;
  digit = (bits + passes - 1) / passes;
  for (uint32_t shift = 0; shift < bits; shift += digit) {
    // Counts of a digit, then where each value begins.
    uint32_t begin[1u << kDigitBits] = {0}, mask = (1u << digit) - 1, at = 0;
    for (uint64_t i = 0; i < o->count; i++)
      begin[(o->entries[i].id >> shift) & mask]++;
    for (uint32_t b = 0; b <= mask; b++) {
      uint32_t n = begin[b];
      begin[b] = at;
      at += n;
    }
    for (uint64_t i = 0; i < o->count; i++)
      o->spare[begin[(o->entries[i].id >> shift) & mask]++] = o->entries[i];
    at_sc_entry *t = o->entries;
    o->entries = o->spare;
    o->spare = t;
  }
}

// Owners [begin, end). The first that finds a bad entry is remembered, and
// blamed when all are done.
static void collect_range(void *arg, int64_t begin, int64_t end,
                          uint32_t thread) {
  update *u = arg;
  for (int64_t g = begin; g < end; g++) {
    owner *o = &u->owners[g];
    uint64_t start = at_sc_now(u->run);
    o->count = 0;
    if (at_code_take(each_source(u, (uint32_t)g, take_span))) {
      uint64_t old = atomic_load(&u->bad);
      while ((!old || (uint64_t)g + 1 < old) &&
             !atomic_compare_exchange_weak(&u->bad, &old, (uint64_t)g + 1))
        continue;
      continue;
    }
    AT_ASSERT(o->count == o->room);
    sort_entries(o, u->plan.shard_rows);
    AT_VERIFY(is_sorted(o));
    AT_ASSERT(!o->count || o->entries[o->count - 1].id < u->plan.shard_rows);
    at_sc_worked(u->run, u->plan.first * u->plan.scs + (uint32_t)g, start);
  }
}

// Counts, then takes: entries of all owners lie in one array, with as much room
// again for the sort.
static at_status collect(update *u) {
  uint32_t n = u->plan.here * u->plan.scs;
  uint64_t total = 0;
  u->owners = at_par_scratch(u->run->par, n * sizeof *u->owners);
  if (!u->owners) return no_memory();
  memset(u->owners, 0, n * sizeof *u->owners);
  for (uint32_t g = 0; g < n; g++) {
    AT_TRY(each_source(u, g, count_span));
    total += u->owners[g].count;
  }
  // The sort counts in 32 bits.
  if (total > UINT32_MAX)
    return AT_FAIL(AT_UNIMPLEMENTED, "an update with %llu ids",
                   (unsigned long long)total);
  at_sc_entry *all =
      at_par_scratch(u->run->par, at_mul(2 * total + 1, sizeof *all));
  if (!all) return no_memory();
  for (uint32_t g = 0; g < n; g++) {
    u->owners[g].room = u->owners[g].count;
    u->owners[g].entries = all;
    u->owners[g].spare = all + total;
    all += u->owners[g].count;
  }
  at_par_for(u->run->par, n, 1, collect_range, u);
  uint64_t bad = atomic_load(&u->bad);
  if (!bad) return AT_OK;
  u->owners[bad - 1].count = 0;  // again, for the message
  return each_source(u, (uint32_t)bad - 1, take_span);
}

// ---- Tables that are not updated in place

// Pieces of 1 MiB of all tables of all devices.
static void copy_range(void *arg, int64_t begin, int64_t end, uint32_t thread) {
  const update *u = arg;
  const at_x_sparse *x = u->run->x;
  uint64_t bytes = x->rows * x->width * sizeof(float);
  uint64_t chunks = at_ceil_div(bytes, kCopyBytes);
  for (int64_t i = begin; i < end; i++) {
    // Table by table, device by device.
    uint64_t chunk = (uint64_t)i % chunks, which = (uint64_t)i / chunks;
    AT_ASSERT(which < x->num_tables * u->plan.here);
    void *const *bufs = u->run->bufs[which / x->num_tables];
    uint32_t t = (uint32_t)(which % x->num_tables);
    const uint8_t *from = bufs[u->first_table + t];
    uint8_t *to = bufs[u->first_result + t];
    uint64_t at = chunk * kCopyBytes;
    AT_ASSERT(at < bytes);
    if (from != to)
      memcpy(to + at, from + at, AT_MIN(bytes - at, (uint64_t)kCopyBytes));
  }
}

// A result that is its table needs no copy.
static void copy_tables(update *u) {
  const at_x_sparse *x = u->run->x;
  uint64_t chunks = at_ceil_div(x->rows * x->width * sizeof(float), kCopyBytes);
  bool needed = false;
  for (uint32_t d = 0; d < u->plan.here; d++)
    for (uint32_t t = 0; t < x->num_tables; t++)
      needed |= u->run->bufs[d][u->first_table + t] !=
                u->run->bufs[d][u->first_result + t];
  if (needed)
    at_par_for(u->run->par, (int64_t)(chunks * x->num_tables * u->plan.here), 1,
               copy_range, u);
}

// ---- The optimizer
// Everything but the rows of the tables stays where it is. Hyperparameters are
// those of the device that holds the row.
static void set_places(const update *u, worker *w, uint32_t device) {
  const at_x_sparse *x = u->run->x;
  const at_x_sparse_place *p = at_x_sparse_places(x);
  for (uint32_t i = 0; i < x->num_places; i++) switch (p[i].kind) {
      case AT_SPARSE_GRADIENT:
        w->places[i] = w->gradient;
        break;
      case AT_SPARSE_HYPER:
        w->places[i] =
            u->run->bufs[device][u->first_table + x->num_tables + p[i].index];
        break;
      case AT_SPARSE_SCRATCH:
        w->places[i] = w->scratch + p[i].index;
        break;
      case AT_SPARSE_CONST:
        w->places[i] = (uint8_t *)x + at_x_sparse_const_offset(x) + p[i].index;
        break;
      default:
        break;
    }
}

// Source of a copy that follows the optimizer.
static const void *copied_from(const at_x_sparse *x, const worker *w,
                               const at_x_sparse_copy *c, void *const *rows,
                               void *const *hypers) {
  switch (c->from.kind) {
    case AT_SPARSE_GRADIENT:
      return w->gradient;
    case AT_SPARSE_TABLE:
      return rows[c->from.index];
    case AT_SPARSE_HYPER:
      return hypers[c->from.index];
    case AT_SPARSE_SCRATCH:
      return w->scratch + c->from.index;
    default:
      return (const uint8_t *)x + at_x_sparse_const_offset(x) + c->from.index;
  }
}

// Runs the optimizer's kernels on one row of the table and its slots, then its
// copies.
static void optimise_row(const update *u, worker *w, void *const *rows,
                         void *const *hypers) {
  const at_x_sparse *x = u->run->x;
  const at_x_sparse_place *p = at_x_sparse_places(x);
  for (uint32_t i = 0; i < x->num_places; i++)
    if (p[i].kind == AT_SPARSE_TABLE) w->places[i] = rows[p[i].index];
  const at_x_sparse_launch *l = at_x_sparse_launches(x);
  for (uint32_t i = 0; i < x->num_launches; i++)
    u->run->kernels[i](w->places + l[i].places, 0, l[i].tasks);
  const at_x_sparse_copy *c = at_x_sparse_copies(x);
  for (uint32_t i = 0; i < x->num_copies; i++)
    memcpy(rows[c[i].table], copied_from(x, w, &c[i], rows, hypers),
           c[i].bytes);
}

// Asks for the memory of the next row of [*at, end), and moves behind it.
static void fetch_row(const at_sc_entry *e, uint64_t *at, uint64_t end,
                      uint8_t *const *shards, uint32_t tables, uint64_t bytes) {
  if (*at == end) return;
  uint32_t id = e[*at].id;
  uint64_t ahead = AT_MIN(bytes, (uint64_t)kPrefetchBytes);
  for (uint32_t t = 0; t < tables; t++)
    at_sc_prefetch(shards[t] + (uint64_t)id * bytes, ahead);
  for (; *at < end && e[*at].id == id; (*at)++)
    at_sc_prefetch(e[*at].gradient, ahead);
}

// Rows [begin, end) of an owner's entries, whole rows only.
static void update_rows(const update *u, uint32_t g, uint64_t begin,
                        uint64_t end, worker *w) {
  const at_sc_plan *p = &u->plan;
  const at_x_sparse *x = p->x;
  uint32_t device = g / p->scs;
  uint64_t bytes = x->width * sizeof(float), at = begin;
  uint64_t shard = (g % p->scs) * p->shard_rows * bytes;
  uint8_t *shards[AT_SPARSE_MAX_TABLES];
  void *rows[AT_SPARSE_MAX_TABLES];
  void *const *bufs = u->run->bufs[device];
  for (uint32_t t = 0; t < x->num_tables; t++)
    shards[t] = (uint8_t *)bufs[u->first_result + t] + shard;
  const at_sc_entry *e = u->owners[g].entries;
  AT_ASSERT(begin <= end && end <= u->owners[g].count);
  AT_ASSERT(!begin || begin == end || e[begin].id != e[begin - 1].id);
  set_places(u, w, device);
  // Memory of the first rows is asked for before any is worked on.
  for (int i = 0; i < kRowsAhead; i++)
    fetch_row(e, &at, end, shards, x->num_tables, bytes);
  for (uint64_t i = begin, next; i < end; i = next) {
    fetch_row(e, &at, end, shards, x->num_tables, bytes);
    for (next = i + 1; next < end && e[next].id == e[i].id;) next++;
    // The gradient of the row, then the optimizer in place.
    u->rows->sum(e + i, next - i, w->gradient, x->width);
    for (uint32_t t = 0; t < x->num_tables; t++)
      rows[t] = shards[t] + (uint64_t)e[i].id * bytes;
    optimise_row(u, w, rows, bufs + u->first_table + x->num_tables);
  }
}

// Where task t of n begins: at the first entry of a row. t <= n; 0 and n give
// the ends.
static uint64_t cut(const owner *o, uint64_t t, uint64_t n) {
  AT_ASSERT(t <= n && n);
  uint64_t i = t * o->count / n;
  if (t == n) return o->count;
  while (i && i < o->count && o->entries[i].id == o->entries[i - 1].id) i++;
  return i;
}

// Tasks [begin, end): first_task tells the owner of each.
static void update_range(void *arg, int64_t begin, int64_t end,
                         uint32_t thread) {
  const update *u = arg;
  uint32_t g = 0;
  for (int64_t t = begin; t < end; t++) {
    while (u->first_task[g + 1] <= (uint64_t)t) g++;
    AT_ASSERT(g < u->plan.here * u->plan.scs);
    uint64_t n = u->first_task[g + 1] - u->first_task[g];
    uint64_t i = (uint64_t)t - u->first_task[g];
    const owner *o = &u->owners[g];
    uint64_t start = at_sc_now(u->run);
    update_rows(u, g, cut(o, i, n), cut(o, i + 1, n), &u->workers[thread]);
    at_sc_worked(u->run, u->plan.first * u->plan.scs + g, start);
  }
}

// Memory of each thread, aligned to lines, and the cutting of owners into
// tasks.
static at_status make_workers(update *u) {
  const at_x_sparse *x = u->run->x;
  uint32_t threads = at_par_threads(u->run->par);
  uint32_t n = u->plan.here * u->plan.scs;
  // Nothing of two workers shares a line.
  uint64_t places = at_align_up(x->num_places * sizeof(void *) + 8, 64);
  uint64_t gradient = at_align_up(x->width * sizeof(float), 64) + 64;
  uint64_t each = places + gradient + at_align_up(x->scratch_bytes, 64) + 64;
  u->workers = at_par_scratch(u->run->par, threads * sizeof *u->workers);
  u->first_task = at_par_scratch(u->run->par, (n + 1) * sizeof(uint64_t));
  uint8_t *memory = at_par_scratch(u->run->par, at_mul(threads, each));
  if (!u->workers || !u->first_task || !memory) return no_memory();
  for (uint32_t i = 0; i < threads; i++, memory += each)
    u->workers[i] = (worker){(void **)memory, (float *)(memory + places),
                             memory + places + gradient};
  u->first_task[0] = 0;
  for (uint32_t g = 0; g < n; g++)
    u->first_task[g + 1] =
        u->first_task[g] + at_ceil_div(u->owners[g].count, kTaskEntries);
  return AT_OK;
}

// All that can fail comes before the first write to a table: row pointers, ids,
// exchanges, memory.
at_status at_sc_update(const at_sc_run *r) {
  const at_x_sparse *x = r->x;
  update u = {.run = r,
              .rows = at_sc_rows_of(x->width),
              .first_table = at_x_sparse_table(x),
              .first_result = at_x_sparse_operands(x)};
  at_status st = at_sc_plan_make(r, &u.plan);
  if (!st.err && r->hosts) st = at_sc_check_ids(&u.plan);
  if (st.err) return at_sc_tell(r->hosts, st);
  if (r->hosts) AT_TRY(at_sc_send_gradients(&u.plan, &u.far));
  AT_TRY(collect(&u));
  AT_TRY(make_workers(&u));
  copy_tables(&u);
  if (!x->width) return AT_OK;
  at_par_for(r->par, (int64_t)u.first_task[u.plan.here * u.plan.scs], 1,
             update_range, &u);
  return AT_OK;
}
