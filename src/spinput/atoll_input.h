// libatoll_input: host preprocessing for SparseCores, for C and for whoever
// calls C (python/atoll/sparsecore). A batch of ids per feature becomes the
// buffers that the chip's lookup reads ("CSR wrapped COO"), one set per stack
// of tables: row pointers, embedding ids, sample ids, gains. docs/sparsecore.md
// explains the words.
//
// Words used here. N: SparseCores of the whole job (a power of two), s: those
// of one chip, L: chips of this host. A stack is one or more tables that are
// looked up as one; it has a part on every SparseCore, row r of it on core r %
// N, there as local row r / N. Partition g of a SparseCore's ids: those that
// core g owns.
//
// Functions that return an int return 0, or a code of absl::Status (3:
// INVALID_ARGUMENT, 8: RESOURCE_EXHAUSTED, ...) and write its text to `message`
// (size bytes at most, cut there). Any number of threads may call.
#ifndef ATOLL_INPUT_H_
#define ATOLL_INPUT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Nothing else is exported: the library keeps its other symbols to itself.
#define ATOLL_INPUT_API __attribute__((visibility("default")))

// Numbers of the chip's buffers, which callers see.
enum {
  AT_SPINPUT_ALIGN = 8,        // partitions start at multiples of this
  AT_SPINPUT_BUCKETS = 64,     // mini-batches at most
  AT_SPINPUT_PAD = INT32_MAX,  // id and sample of a padding element
};

// ---- What comes in

// How a batch lies in memory.
// The number is part of the interface; new forms come behind.
typedef enum at_spinput_form {
  AT_SPINPUT_RAGGED,  // ids[splits[samples]], splits[samples + 1]
  AT_SPINPUT_DENSE,   // ids[samples, width]
  AT_SPINPUT_ROWS,    // rows[samples]: each sample's ids anywhere in memory
  AT_SPINPUT_SPARSE,  // a SparseTensor [samples, width]: indices[nnz, 2] in
                      // row-major order, ids[nnz]; no weights
  AT_SPINPUT_COO,     // row_ids[nnz] in any order, ids[nnz], weights[nnz]
} at_spinput_form;

// NULL where len is 0.
// The ids, or the weights, of one sample of ROWS.
typedef struct at_spinput_row {
  const void *ptr;  // len elements
  int64_t len;
} at_spinput_row;

// One feature's batch on this host. Everything is borrowed and read in place;
// ids are s32 or s64 as id_bytes says, index arrays s64, weights f32.
typedef struct at_spinput_batch {
  int32_t form;      // at_spinput_form
  int32_t id_bytes;  // 4 or 8
  int64_t samples;
  // Samples of this host, over all of its chips.
  int64_t width;  // DENSE and SPARSE
  int64_t nnz;    // RAGGED: length of ids; SPARSE, COO: length of everything
  const void *ids;
  const float *weights;               // NULL: 1 each
  const int64_t *index;               // splits, indices or row_ids
  const at_spinput_row *rows;         // ROWS
  const at_spinput_row *weight_rows;  // ROWS; NULL: 1 each
} at_spinput_batch;

// What the weights of a sample's ids become: themselves, divided by their sum,
// or by the root of the sum of their squares.
typedef enum at_spinput_combiner {
  AT_SPINPUT_SUM,
  AT_SPINPUT_MEAN,
  AT_SPINPUT_SQRTN,
} at_spinput_combiner;

// Where a feature lies in its stack. Offsets are global.
// Borrowed for the call.
typedef struct at_spinput_feature {
  const char *name, *table;  // for messages
  int64_t vocabulary;        // ids are 0 .. vocabulary - 1
  // An index into the batches of the call; several features may read one.
  int32_t input;       // which batch
  int32_t row_offset;  // samples of the features before it
  int32_t col_offset;  // rows of the tables before it; a multiple of N
  int32_t col_shift;   // rotation of its table, in SparseCores
} at_spinput_feature;

// Tables that are looked up as one, with the features that read them.
typedef struct at_spinput_stack {
  const char *name;
  const at_spinput_feature *features;  // ordered by row_offset
  int32_t feature_count;
  int32_t combiner;             // at_spinput_combiner
  int32_t max_ids, max_unique;  // per partition
  int32_t coo_per_device;  // size wanted for the id buffers; 0: what the limits
                           // can need at most
  int32_t reserved;
} at_spinput_stack;

// How a batch is cut into mini-batches; all hosts must choose the same.
typedef enum at_spinput_split {
  AT_SPINPUT_BY_VOCABULARY,  // ids fall into 64 buckets by their hash
  AT_SPINPUT_BY_SAMPLE,      // each mini-batch holds some of the samples
} at_spinput_split;

// The job. All hosts must have the same, but for `agree`.
// Chips are alike; N = global_devices * cores_per_device.
typedef struct at_spinput_options {
  int32_t local_devices, global_devices, cores_per_device;
  int32_t allow_dropping;      // 0: ids over the limits are an error
  int32_t minibatching;        // 1: the batch is cut up before ids are dropped
  int32_t split;               // at_spinput_split
  int32_t max_ids_per_sample;  // ids of one sample over all features; 0: any
  int32_t reserved;
  // Ors `bits` over all hosts; every host calls it equally often. NULL: one
  // host. Called from the thread that called at_spinput_run. Bit 63: a host has
  // failed, with which its part in the batch ends; the others fail with
  // ABORTED.
  struct at_status (*agree)(void *arg, uint64_t *bits);
  void *agree_arg;
} at_spinput_options;

// ---- What goes out

// One stack's buffers on this host, device after device. The caller allocates
// them (at_spinput_sizes). Elements behind the last partition and row pointers
// of mini-batches that are not there are left as they are.
typedef struct at_spinput_out {
  int32_t *row_pointers;                    // s32[L, rows]
  int32_t *embedding_ids;                   // s32[L, coo]
  int32_t *sample_ids;                      // s32[L, coo]
  float *gains;                             // f32[L, coo]
  int64_t rows_per_device, coo_per_device;  // lengths, from at_spinput_sizes
  // Observed before anything was dropped, after equal ids of a sample were
  // merged; NULL: not wanted.
  int32_t *max_ids, *max_unique;  // s32[L, N]: maximum over the device's cores
  int32_t *required;  // s32[L, s]: buffer elements, padding included
  // Ids that were left out, by all cores of this host.
  int64_t dropped;
} at_spinput_out;

// Lengths of one device's buffers, in elements of 4 bytes.
// For the buffers of a stack, of one chip.
typedef struct at_spinput_sizes {
  int64_t rows_per_device, coo_per_device;
  int64_t coo_limit;  // the most that the limits can need
} at_spinput_sizes;

// One device's buffers, to be read back.
// Borrowed; not changed.
typedef struct at_spinput_coo {
  const int32_t *row_pointers, *embedding_ids, *sample_ids;
  const float *gains;
  int64_t rows, coo;  // lengths
  int32_t cores, cores_per_device, minibatches;
  bool minibatching;  // row pointers are absolute, one block per mini-batch
  // Bounds that ids and samples are checked against.
  int64_t samples_per_core;  // batch of one core
  int64_t rows_per_core;     // local rows of the stack's table on a core
} at_spinput_coo;

// An id that occurs often.
// By the feature's own numbering, before its table is put into the stack.
typedef struct at_spinput_hot {
  int32_t id;  // of the feature's table
  int64_t count;
} at_spinput_hot;

// Makes the pool of threads (0: one per core), if it is not there. Others do so
// too.
ATOLL_INPUT_API int atoll_input_start(int32_t threads, char *message,
                                      size_t size);

// The sizes of one stack's buffers. INVALID_ARGUMENT: counts that make no
// sense, a size wanted that is over the limits' need, a buffer of 2^31 elements
// or more.
ATOLL_INPUT_API int atoll_input_sizes(const at_spinput_options *o,
                                      const at_spinput_stack *stack,
                                      at_spinput_sizes *out, char *message,
                                      size_t size);

// Preprocesses one batch into outs[stack_count]. A message names table,
// feature, sample and figure; the output is then undefined. INVALID_ARGUMENT:
// wrong input. RESOURCE_EXHAUSTED: over the limits without leave to drop; no
// memory.
ATOLL_INPUT_API int atoll_input_run(
    const at_spinput_options *o, const at_spinput_stack *stacks,
    int32_t stack_count, const at_spinput_batch *batches, int32_t batch_count,
    at_spinput_out *outs, int32_t *num_minibatches, char *message, size_t size);

// Checks one device's buffers: row pointers only move forward and stay inside;
// `ids` not 0: every id and sample is inside the table and the batch, no gain
// is NaN. table: for messages.
ATOLL_INPUT_API int atoll_input_read(const at_spinput_coo *c, const char *table,
                                     int32_t ids, char *message, size_t size);

// Counts one feature's ids: histogram[N] of the partitions that its ids go to
// (N: all SparseCores of the job), `hot`: the hot_len ids that occur most, most
// frequent first; *hot_found of them exist.
ATOLL_INPUT_API int atoll_input_skew(const at_spinput_options *o,
                                     const at_spinput_feature *f,
                                     const at_spinput_batch *batch,
                                     int64_t *histogram, at_spinput_hot *hot,
                                     int32_t hot_len, int32_t *hot_found,
                                     char *message, size_t size);

// The buckets, 0 .. 63, of rows of a stack, by which mini-batches are cut.
ATOLL_INPUT_API void atoll_input_buckets(const uint32_t *cols, size_t n,
                                         uint8_t *out);

#ifdef __cplusplus
}
#endif

#endif
