// What the files of the engine share.
#ifndef ATOLL_SPARSECORE_ENGINE_INTERNAL_H_
#define ATOLL_SPARSECORE_ENGINE_INTERNAL_H_

#include "base/clock.h"
#include "sparsecore/engine.h"

// ---- Buffers of ids
// The operands that say who wants which rows, of one device.
typedef struct at_sc_ids {
  const int32_t *pointers, *ids, *samples;
  const float *gains;
  uint32_t batches;  // blocks of pointers of each SparseCore
} at_sc_ids;

// A step as its devices are cut into SparseCores. An "owner" is a SparseCore
// that has rows of the table, counted over all devices; a "source" is one that
// has samples.
typedef struct at_sc_plan {
  const at_sc_run *run;
  const at_x_sparse *x;
  uint32_t scs;           // of one device
  uint32_t first, here;   // devices of this host
  uint32_t num_scs, per;  // owners; row pointers of one block
  uint64_t shard_rows;    // of a table on one SparseCore
  uint64_t sc_samples;    // of a batch on one SparseCore
  at_sc_ids *devices;     // `here` entries
} at_sc_plan;
// Entries of run.bufs.
uint32_t at_sc_devices_here(const at_sc_run *r);
// Reads and checks all row pointers of this host. Memory is the run's scratch.
at_status at_sc_plan_make(const at_sc_run *r, at_sc_plan *out);

// Entries that SparseCore k of a device of this host (counted from its first)
// asks of an owner, in its batch m.
typedef struct at_sc_span {
  uint64_t begin, end;
} at_sc_span;
// The row pointers were checked by at_sc_plan_make; ids and samples were not.
// Empty where nothing is asked.
at_sc_span at_sc_span_of(const at_sc_plan *p, uint32_t device, uint32_t k,
                         uint32_t batch, uint32_t owner);

// The first entry of [begin, end) whose id or sample is out of range, else
// `end`.
uint64_t at_sc_first_bad(const at_sc_ids *b, uint64_t begin, uint64_t end,
                         uint64_t rows, uint64_t samples);
// Names it.
// INVALID_ARGUMENT with table, device, SparseCore, id and sample of the entry,
// which at_sc_first_bad found.
at_status at_sc_blame(const at_sc_plan *p, uint32_t device, uint32_t k,
                      uint32_t owner, uint64_t entry);

// ---- Other hosts
// The checks of all entries of this host, before anything is sent.
// INVALID_ARGUMENT of the first entry that is out of range.
at_status at_sc_check_ids(const at_sc_plan *p);

// Rows that other hosts own.
typedef struct at_sc_far {
  // By SparseCore of this host, batch (`most` of each), owner; NULL: no ids, or
  // the owner is here.
  const uint8_t **rows;
  uint32_t most;
  at_sc_ids *devices;  // ids of far rows are their places in `rows`
} at_sc_far;
// Two exchanges: ids there, rows back. Memory is the run's scratch and the
// transport's: it lasts until the next exchange.
at_status at_sc_fetch_rows(const at_sc_plan *p, at_sc_far *out);

// What the SparseCores of another host ask of one owner.
typedef struct at_sc_far_span {
  uint32_t owner, count;
  const uint32_t *ids, *places;  // rows of the owner; of `gradients`
  const float *gains, *gradients;
} at_sc_far_span;
typedef struct at_sc_far_spans {
  at_sc_far_span *list;  // in the order of its buffers
  uint32_t count;
} at_sc_far_spans;
// By host.
// One exchange. *out has an entry for each host, whose memory is the
// transport's.
at_status at_sc_send_gradients(const at_sc_plan *p, at_sc_far_spans **out);
// This host fails before the first exchange of a step, so that all others do.
// Returns st; NULL: there are no others.
at_status at_sc_tell(const at_sc_hosts *h, at_status st);

// ---- Checks
// The step with the checks that x->checks asks for before and after it.
at_status at_sc_run_checked(const at_sc_run *r,
                            at_status (*step)(const at_sc_run *r));

// ---- Rows
// One contribution to the gradient of a row.
typedef struct at_sc_entry {
  uint32_t id;  // local row
  float gain;
  const float *gradient;
} at_sc_entry;

// Where a gather reads and writes: rows of a shard, samples of a SparseCore, or
// columns of both.
typedef struct at_sc_gather {
  const at_sc_ids *ids;
  const float *table;
  float *out;
  uint64_t stride;  // floats of a whole row
} at_sc_gather;

// Loops over rows for one width, in the widest vectors of this CPU.
typedef struct at_sc_rows {
  uint64_t width;  // 0: any
  // out[samples[i]] += gains[i] * table[ids[i]] for the entries [begin, end)
  void (*gather)(const at_sc_gather *g, uint64_t begin, uint64_t end,
                 uint64_t width);
  // out = the sum of n >= 1 contributions, in their order
  void (*sum)(const at_sc_entry *e, uint64_t n, float *out, uint64_t width);
  // A row of another type, or quantised, as f32.
  void (*load)(const at_x_sparse *x, float *out, const void *row);
} at_sc_rows;
// Loops for just this width where there are some, else those for any. Static.
const at_sc_rows *at_sc_rows_of(uint64_t width);

// ---- Times
static inline uint64_t at_sc_now(const at_sc_run *r) {
  return r->times ? at_clock_ns() : 0;
}
// SparseCore `core` of all worked from `begin` until now.
void at_sc_worked(const at_sc_run *r, uint32_t core, uint64_t begin);

// ---- Steps
// Samples gather rows of all devices.
at_status at_sc_lookup(const at_sc_run *r);
// Samples of one device gather rows of its own table, without row pointers.
at_status at_sc_local(const at_sc_run *r);
// Rows gather the gradients of all samples that used them, and the optimizer
// runs on each once.
at_status at_sc_update(const at_sc_run *r);

// By lines of 64 bytes; a hint, so p may lie anywhere.
static inline void at_sc_prefetch(const void *p, uint64_t bytes) {
  for (uint64_t b = 0; b < bytes; b += 64)
    __builtin_prefetch((const char *)p + b);
}

#endif
