// Shared by the files of this room only.
#ifndef ATOLL_SPINPUT_SPINPUT_INTERNAL_H_
#define ATOLL_SPINPUT_SPINPUT_INTERNAL_H_

#include "base/arena.h"  // AT_NO_MEMORY
#include "spinput/spinput.h"

// A batch with its samples findable: what every form becomes.
// Forms differ in how a sample's ids are found: DENSE by width, RAGGED and COO
// by splits, ROWS by a pointer each.
typedef struct at_spi_view {
  const at_spinput_batch *b;
  const void *ids;        // of every form but ROWS; own when sorted anew
  const float *weights;   // likewise; NULL: 1 each
  const int64_t *splits;  // s64[samples + 1]; NULL: DENSE or ROWS
  // Freed by at_spi_close.
  void *own;  // NULL, or what ids, weights and splits lie in
} at_spi_view;

// The ids of one sample, borrowed from the batch or its view.
typedef struct at_spi_sample {
  // Elements are of the batch's id type.
  const void *ids;
  const float *weights;  // NULL: 1 each
  int64_t len;
} at_spi_sample;

// Sample r, which must be one of the batch's.
// Constant time.
static inline at_spi_sample at_spi_sample_of(const at_spi_view *v, int64_t r) {
  const at_spinput_batch *b = v->b;
  if (b->form == AT_SPINPUT_ROWS)
    return (at_spi_sample){
        b->rows[r].ptr,
        b->weight_rows ? (const float *)b->weight_rows[r].ptr : NULL,
        b->rows[r].len};
  int64_t at = v->splits ? v->splits[r] : r * b->width;
  int64_t len = v->splits ? v->splits[r + 1] - at : b->width;
  return (at_spi_sample){(const char *)v->ids + at * b->id_bytes,
                         v->weights ? v->weights + at : NULL, len};
}
// Id i of a sample, whatever its width; not checked.
static inline int64_t at_spi_id(const at_spi_view *v, const void *ids,
                                int64_t i) {
  return v->b->id_bytes == 8 ? ((const int64_t *)ids)[i]
                             : ((const int32_t *)ids)[i];
}
// Does the batch bring weights?
static inline bool at_spi_weighted(const at_spinput_batch *b) {
  return b->weights || b->weight_rows;
}

// Checks the batch's own shape and makes the view; free it with at_spi_close.
// `f` names it in messages.
// INVALID_ARGUMENT: splits that run backward or past the ids, rows of no
// address, counts that do not agree. RESOURCE_EXHAUSTED.
at_status at_spi_open(const at_spinput_batch *b, const at_spinput_feature *f,
                      at_spi_view *out);
// Zero: nothing.
void at_spi_close(at_spi_view *v);

// Sorts by the upper 32 bits, of which the lowest `bits` are in use; keeps the
// order of equal ones. The result is in the array that is returned, `a` or `b`.
// Radix sort: linear in n times bits. n elements in both arrays.
// b is scratch; nothing is allocated.
uint64_t *at_spi_sort(uint64_t *a, uint64_t *b, int64_t n, int bits);

// A worker's memory; grows, is never given back before the run ends.
// One per worker, so no lock is needed.
typedef struct at_spi_scratch {
  char *ptr;
  size_t cap;
} at_spi_scratch;
// NULL: no memory. 64-byte aligned; the old contents are gone.
// The memory is the worker's until it asks again.
void *at_spi_scratch_of(at_spi_scratch *s, size_t bytes);

// The ids of one stack for one SparseCore, ordered by (owner, local row,
// sample), equal ones merged.
typedef struct at_spi_task {
  const at_spinput_stack *stack;
  at_spinput_out *out;
  int32_t device, core;  // of this host, of the device
  int64_t samples;       // of this core, all features
  // Of entry i: its local row in the owner's part of the table, and the sample
  // of this core.
  uint32_t *local, *row;
  // The weight after the combiner; sums where ids were merged.
  float *gain;
  uint32_t *times;  // how many ids were merged into one; only with dropping
  uint8_t *bucket;  // mini-batching: bucket, or DROPPED
  // Entries that are there after merging and dropping.
  int64_t n;
  // N: SparseCores of all devices. Before anything is dropped.
  int32_t *ids, *unique;  // s32[N]: observed
  int32_t *kept;          // s32[N], or s32[N, 64] once buckets are known
  int64_t dropped;
  bool over;       // some partition is over its limits
  uint64_t split;  // where buckets must not be merged; see split.c
  void *block;     // owns the arrays above when the task outlives its worker
  at_status st;
} at_spi_task;

// A call of at_spinput_run. Tasks are independent: each thread writes only to
// those that it was given.
// Made and ended by at_spinput_run; tasks run on the pool's threads.
typedef struct at_spi_run {
  at_pool *pool;
  const at_spinput_options *o;
  const at_spinput_stack *stacks;
  const at_spinput_batch *batches;
  at_spi_view *views;  // one per batch
  at_spi_task *tasks;  // stack-major, then device, then core
  // stacks x devices of this host x SparseCores of a device.
  int64_t task_count;
  int32_t cores, core_bits;  // N, log2 N
  at_spi_scratch *scratch;   // one per worker
  int32_t *counts;           // s32[tasks, 2N]
  bool awaited;              // the other hosts are about to agree once more
  // How many the batch is cut into; 1: it is whole.
  int32_t minibatches;
  uint8_t minibatch_of[AT_SPINPUT_BUCKETS];  // of a bucket
} at_spi_run;

// A task's bucket for ids that no mini-batch takes.
enum { AT_SPI_DROPPED = 255 };

// Ors bits over all hosts, which agree once more after this time if `again` or
// any of the bits says so. ABORTED: another host has failed.
at_status at_spi_agree(at_spi_run *r, bool again, uint64_t *bits);

// Sorts and merges a task's ids; drops what is over the limits, or fails, when
// there is no mini-batching; then fills the buffers too.
// The status is the task's.
at_status at_spi_group(at_spi_run *r, at_spi_task *t, uint32_t worker);
// Over the limits: the status that names the first id that does not fit.
// `sample_of` rows are the task's; bucket -1: no mini-batching.
at_status at_spi_over(const at_spi_run *r, const at_spi_task *t, int32_t owner,
                      int32_t bucket);
// Which feature a row of a task belongs to, and which sample of its batch.
const at_spinput_feature *at_spi_feature_of(const at_spi_run *r,
                                            const at_spi_task *t, uint32_t row,
                                            int64_t *sample);

// Mini-batches: finds buckets, what is kept, and the cuts (all tasks).
// INVALID_ARGUMENT: another host cuts by something else. ABORTED: another host
// has failed. Else the first task's status that is none.
at_status at_spi_split(at_spi_run *r);
// Writes a task's mini-batches; `begin` is where its elements start.
at_status at_spi_fill_split(at_spi_run *r, at_spi_task *t, int64_t begin,
                            uint32_t worker);
// Elements that the task's buffers take, padding included.
int64_t at_spi_padded(const at_spi_run *r, const at_spi_task *t);
// The same once there are several mini-batches.
int64_t at_spi_padded_split(const at_spi_run *r, const at_spi_task *t);

// One run of partitions (a SparseCore's mini-batch) into the buffers.
// The arrays are the task's, from the segment's first element on.
typedef struct at_spi_segment {
  const uint32_t *local, *row;
  const float *gain;
  const int32_t *counts;  // s32[N], elements of each partition
  int64_t rows;           // where its row pointers start
  int64_t begin, end;     // its elements
  int64_t base;           // what row pointers count from
} at_spi_segment;
// Returns the elements that did not fit.
// Partitions begin at multiples of AT_SPINPUT_ALIGN; what is between them is
// padding.
int64_t at_spi_fill(const at_spi_run *r, const at_spi_task *t,
                    const at_spi_segment *s);
// Row pointers of one segment: one per core, at least 8.
static inline int64_t at_spi_row_block(const at_spi_run *r) {
  return AT_MAX(r->cores, AT_SPINPUT_ALIGN);
}
// With more elements than the buffer holds: a status, or OK to drop.
at_status at_spi_too_small(const at_spi_run *r, const at_spi_task *t);

#endif
