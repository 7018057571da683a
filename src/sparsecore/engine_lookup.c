// Lookups. A task is the samples of one SparseCore, or some of their columns:
// it alone writes them, and reads rows wherever they live.
#include <stdatomic.h>
#include <string.h>

#include "abi/dtype.h"
#include "sparsecore/engine_internal.h"

enum { kColumns = 16 };  // the least that a task takes: a line of memory

typedef struct lookup {
  at_sc_plan plan;
  at_sc_far far;  // all zero: one host
  const at_sc_run *run;
  const at_sc_rows *rows;
  uint64_t part;              // columns of a task
  uint32_t parts;             // tasks of one SparseCore
  uint32_t init, table, out;  // buffers
  float *row;                 // by worker: a row as f32
  _Atomic uint64_t bad;       // where + 1, of the first device that has any
} lookup;

// A whole table is f32 and needs no conversion.
static bool is_plain(const at_x_sparse *x) {
  return x->dtype == AT_F32 && !x->num_buckets;
}

// Of an element of the table.
static uint64_t bytes_of(const at_x_sparse *x) {
  return x->dtype == AT_F32 ? 4 : x->dtype == AT_BF16 ? 2 : 1;
}

// Rows that are converted one at a time; equal ids follow each other.
static void gather_converted(const lookup *l, const at_sc_ids *b,
                             uint64_t begin, uint64_t end, const uint8_t *table,
                             float *out, float *row) {
  const at_x_sparse *x = l->run->x;
  uint64_t bytes = x->width * bytes_of(x);
  AT_ASSERT(l->rows->load && row);
  for (uint64_t i = begin; i < end; i++) {
    uint64_t id = (uint32_t)b->ids[i];
    if (i + 8 < end)
      at_sc_prefetch(table + (uint64_t)(uint32_t)b->ids[i + 8] * bytes,
                     AT_MIN(bytes, (uint64_t)1024));
    if (i == begin || b->ids[i] != b->ids[i - 1])
      l->rows->load(x, row, table + id * bytes);
    at_sc_entry e = {.gain = b->gains[i], .gradient = row};
    float *to = out + (uint64_t)(uint32_t)b->samples[i] * x->width;
    for (uint64_t c = 0; c < x->width; c++) to[c] += e.gradient[c] * e.gain;
  }
}

// Samples [first, first + count), columns [column, column + columns): the
// initial value or 0.
static void start_rows(const lookup *l, uint32_t device, uint64_t first,
                       uint64_t count, uint64_t column, uint64_t columns) {
  const at_x_sparse *x = l->run->x;
  AT_ASSERT(first + count <= x->samples && column + columns <= x->width);
  float *out = (float *)l->run->bufs[device][l->out] + first * x->width;
  const float *init =
      x->has_init
          ? (const float *)l->run->bufs[device][l->init] + first * x->width
          : NULL;
  // An initial value that lies in the result already.
  if (init == out) return;
  if (columns == x->width) {
    if (init)
      memcpy(out, init, count * x->width * sizeof *out);
    else
      memset(out, 0, count * x->width * sizeof *out);
    return;
  }
  for (uint64_t s = 0; s < count; s++) {
    uint64_t at = s * x->width + column;
    if (init)
      memcpy(out + at, init + at, columns * sizeof *out);
    else
      memset(out + at, 0, columns * sizeof *out);
  }
}

// Keeps the least, so that the message does not depend on the threads.
static void report(lookup *l, uint64_t where) {
  uint64_t old = atomic_load(&l->bad);
  while ((!old || where + 1 < old) &&
         !atomic_compare_exchange_weak(&l->bad, &old, where + 1))
    continue;
}

// Entries of one owner added into the samples of one source.
static void lookup_span(lookup *l, const at_sc_ids *b, at_sc_span s,
                        const void *table, float *out, uint64_t column,
                        uint64_t columns, uint32_t worker) {
  const at_x_sparse *x = l->run->x;
  if (!is_plain(x)) {
    gather_converted(l, b, s.begin, s.end, table, out,
                     l->row + worker * x->width);
    return;
  }
  at_sc_gather g = {b, (const float *)table + column, out + column, x->width};
  l->rows->gather(&g, s.begin, s.end, columns);
}

// Rows of owner g for a batch of a source, and what its ids count from there.
static const uint8_t *rows_of(const lookup *l, uint32_t source, uint32_t batch,
                              uint32_t g, const at_sc_ids **b) {
  const at_sc_plan *p = &l->plan;
  const at_x_sparse *x = p->x;
  *b = &p->devices[source / p->scs];
  uint32_t device = g / p->scs - p->first;
  if (device >= p->here) {
    AT_ASSERT(l->far.devices && batch < l->far.most);
    *b = &l->far.devices[source / p->scs];
    uint64_t batches = (uint64_t)source * l->far.most + batch;
    const uint8_t *rows = l->far.rows[batches * p->num_scs + g];
    AT_ASSERT(rows);  // each span with ids has asked for some
    return rows;
  }
  return (const uint8_t *)l->run->bufs[device][l->table] +
         (g % p->scs) * p->shard_rows * x->width * bytes_of(x);
}

// In the order of minibatches and owners, whichever thread runs it: sums have
// the same bits.
static void lookup_task(lookup *l, int64_t task, uint32_t worker) {
  const at_sc_plan *p = &l->plan;
  const at_x_sparse *x = p->x;
  uint32_t source = (uint32_t)(task / l->parts);
  uint64_t column = (uint64_t)(task % l->parts) * l->part;
  uint64_t columns = AT_MIN(l->part, x->width - column);
  uint32_t device = source / p->scs, k = source % p->scs;
  AT_ASSERT(device < p->here && column < x->width);
  const at_sc_ids *b = &p->devices[device];
  uint64_t first = k * p->sc_samples;
  float *out = (float *)l->run->bufs[device][l->out] + first * x->width;
  start_rows(l, device, first, p->sc_samples, column, columns);
  for (uint32_t m = 0; m < b->batches; m++)
    for (uint32_t g = 0; g < p->num_scs; g++) {
      at_sc_span s = at_sc_span_of(p, device, k, m, g);
      if (s.begin == s.end) continue;
      if (at_sc_first_bad(b, s.begin, s.end, p->shard_rows, p->sc_samples) !=
          s.end) {
        report(l, source);
        return;
      }
      const at_sc_ids *at;
      const uint8_t *rows = rows_of(l, source, m, g, &at);
      lookup_span(l, at, s, rows, out, column, columns, worker);
    }
}

// Tasks [begin, end) of a worker, with their times.
static void lookup_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  lookup *l = arg;
  for (int64_t t = begin; t < end; t++) {
    uint64_t start = at_sc_now(l->run);
    lookup_task(l, t, worker);
    uint32_t first = l->plan.first * l->plan.scs;
    at_sc_worked(l->run, first + (uint32_t)(t / l->parts), start);
  }
}

// The first bad entry of a source SparseCore, in the order of the buffers.
static at_status blame_source(const at_sc_plan *p, uint32_t source) {
  uint32_t device = source / p->scs;
  uint32_t k = source % p->scs;
  const at_sc_ids *b = &p->devices[device];
  for (uint32_t m = 0; m < b->batches; m++)
    for (uint32_t g = 0; g < p->num_scs; g++) {
      at_sc_span s = at_sc_span_of(p, device, k, m, g);
      uint64_t i =
          at_sc_first_bad(b, s.begin, s.end, p->shard_rows, p->sc_samples);
      if (i < s.end) return at_sc_blame(p, device, k, g, i);
    }
  return AT_OK;
}

// Cuts rows by columns where there are fewer SparseCores than threads; not
// tables that are converted row by row.
static at_status prepare(lookup *l, uint32_t sources) {
  const at_x_sparse *x = l->run->x;
  uint32_t threads = at_par_threads(l->run->par);
  l->table = at_x_sparse_table(x);
  l->init = l->table + 1;
  l->out = at_x_sparse_operands(x);
  l->part = x->width;
  l->parts = 1;
  // As many parts as leave each thread something to do, in whole lines of
  // memory.
  if (is_plain(x) && sources && sources < threads && x->width >= 2 * kColumns) {
    uint64_t most = x->width / kColumns;
    uint64_t want = AT_MIN((uint64_t)at_ceil_div(threads, sources), most);
    l->part = at_align_up(at_ceil_div(x->width, want), kColumns);
    l->parts = (uint32_t)at_ceil_div(x->width, l->part);
  }
  AT_ASSERT(l->parts >= 1 && l->part * l->parts >= x->width);
  l->rows = at_sc_rows_of(l->part);
  if (is_plain(x)) return AT_OK;
  l->row = at_par_scratch(l->run->par, threads * x->width * sizeof *l->row);
  return l->row ? AT_OK
                : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a lookup");
}

// Everything that can fail before the hosts talk.
static at_status make(lookup *l) {
  AT_TRY(at_sc_plan_make(l->run, &l->plan));
  AT_TRY(prepare(l, l->plan.here * l->plan.scs));
  return l->run->hosts ? at_sc_check_ids(&l->plan) : AT_OK;
}

// Bad ids of one host are found by its workers as they go; with several hosts
// before anything is sent.
at_status at_sc_lookup(const at_sc_run *r) {
  lookup l = {.run = r};
  at_status st = make(&l);
  if (st.err) return at_sc_tell(r->hosts, st);
  uint32_t sources = l.plan.here * l.plan.scs;
  // Also where there is nothing to look up: another host may have failed.
  if (r->hosts) AT_TRY(at_sc_fetch_rows(&l.plan, &l.far));
  if (!r->x->width || !r->x->samples) return AT_OK;
  at_par_for(r->par, (int64_t)sources * l.parts, 1, lookup_range, &l);
  uint64_t bad = atomic_load(&l.bad);
  return bad ? blame_source(&l.plan, (uint32_t)(bad - 1)) : AT_OK;
}

// ---- Rows of the device itself
// One thread: it is called for each device, and those run side by side.
at_status at_sc_local(const at_sc_run *r) {
  const at_x_sparse *x = r->x;
  void *const *bufs = r->bufs[0];
  lookup l = {.run = r};
  AT_TRY(prepare(&l, 0));
  at_sc_ids b = {.ids = bufs[0], .samples = bufs[1], .gains = bufs[2]};
  // The buffer's tail may be padding.
  uint64_t end = x->ids;
  while (end && b.ids[end - 1] == INT32_MAX) end--;
  uint64_t i = at_sc_first_bad(&b, 0, end, x->rows, x->samples);
  if (i < end)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table %s: entry %llu asks for row %d for sample %d; there "
                   "are %llu rows and %llu samples",
                   r->name, (unsigned long long)i, b.ids[i], b.samples[i],
                   (unsigned long long)x->rows, (unsigned long long)x->samples);
  uint64_t start = at_sc_now(r);
  start_rows(&l, 0, 0, x->samples, 0, x->width);
  lookup_span(&l, &b, (at_sc_span){0, end}, bufs[l.table], bufs[l.out], 0,
              x->width, 0);
  at_sc_worked(r, 0, start);
  return AT_OK;
}
