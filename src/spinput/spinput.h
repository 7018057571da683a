// Host preprocessing for SparseCores: a batch of ids per feature becomes the
// buffers that the chip's lookup reads ("CSR wrapped COO"), one set per stack
// of tables: row pointers, embedding ids, sample ids, gains.
//
// atoll_input.h has its types, and says what its words mean.
//
// The bytes equal those of jax-tpu-embedding 0.1.0's preprocessing.
#ifndef ATOLL_SPINPUT_SPINPUT_H_
#define ATOLL_SPINPUT_SPINPUT_H_

#include "base/parallel.h"
#include "base/span.h"
#include "base/status.h"
#include "spinput/atoll_input.h"  // the types that its callers share

// ---- Preprocessing
// INVALID_ARGUMENT: counts that make no sense, a size wanted that is over the
// limits' need, a buffer of 2^31 elements or more.
at_status at_spinput_sizes_of(const at_spinput_options *o,
                              const at_spinput_stack *stack,
                              at_spinput_sizes *out);

// Preprocesses one batch. A status names table, feature, sample and figure; the
// output is then undefined. INVALID_ARGUMENT: wrong input. RESOURCE_EXHAUSTED:
// over the limits without leave to drop; no memory.
at_status at_spinput_run(at_pool *pool, const at_spinput_options *o,
                         const at_spinput_stack *stacks, int32_t stack_count,
                         const at_spinput_batch *batches, int32_t batch_count,
                         at_spinput_out *outs, int32_t *num_minibatches);

// The bucket of a row of a stack (HighwayHash under a fixed key), 0 .. 63.
// Any thread; no memory.
uint32_t at_spinput_bucket(int32_t col);
void at_spinput_buckets(const uint32_t *cols, size_t n, uint8_t *out);

// ---- Reading the buffers back

typedef struct at_spinput_part {
  int32_t core, minibatch, owner;  // owner: the core that has these rows
  int64_t begin, end;              // elements
} at_spinput_part;
// Calls fn for every partition in order, after checking that row pointers only
// move forward and stay inside. `ids` also checks every id and sample against
// the table's and batch's size and every gain for NaN (table: for messages).
// An error of fn ends it and is returned; fn NULL only checks. OUT_OF_RANGE for
// ids and samples, INVALID_ARGUMENT for the rest.
at_status at_spinput_read(const at_spinput_coo *c, const char *table, bool ids,
                          at_status (*fn)(void *arg, const at_spinput_part *p),
                          void *arg);

// ---- Skew

// Counts one feature's ids: histogram[N] of the partitions that its ids go to,
// `hot`: the `hot_len` ids that occur most, most frequent first (id order
// between equals); *hot_found of them exist.
at_status at_spinput_skew(const at_spinput_options *o,
                          const at_spinput_feature *f,
                          const at_spinput_batch *batch, int64_t *histogram,
                          at_spinput_hot *hot, int32_t hot_len,
                          int32_t *hot_found);

#endif
