// SparseCore calls of a program, as a step carries them: behind the tables of
// an at_x_collective of kind AT_COLL_SPARSE (abi/collective.h), whose one group
// is all devices in their order.
//
// SparseCores are numbered device by device. Rows of a table: owner SparseCore
// g = row % num_scs, local row = row / num_scs; a device holds the shards of
// its SparseCores one after the other. Buffers of ids: see
// sparsecore/README.md.
#ifndef ATOLL_ABI_SPARSECORE_H_
#define ATOLL_ABI_SPARSECORE_H_

#include <stdint.h>

// What a step does. Behind the arrow the result, in front of it the step's
// buffers in order; those in brackets are there where the struct says so.
typedef enum at_sparse_op {
  // (row pointers, ids, samples, gains, [minibatches], table, [init]) -> out
  AT_SPARSE_LOOKUP,
  // (ids, samples, gains, table, [init]) -> out; rows of this device, no owners
  AT_SPARSE_LOCAL,
  // (row pointers, ids, samples, gains, [minibatches], gradient, tables...,
  // hyperparameters...) -> tables...
  AT_SPARSE_UPDATE,
  AT_SPARSE_OPS
} at_sparse_op;

// A table and its slots; and hyperparameters of one optimizer.
enum { AT_SPARSE_MAX_TABLES = 8, AT_SPARSE_MAX_HYPERS = 32 };

// What a launch of the optimizer reads or writes. All rows are dense.
typedef enum at_sparse_place_kind {
  AT_SPARSE_GRADIENT,  // the summed gradient of the row, f32
  AT_SPARSE_TABLE,     // the row of table `index`
  AT_SPARSE_HYPER,     // hyperparameter `index`
  AT_SPARSE_SCRATCH,   // `index` bytes into the scratch of the row
  AT_SPARSE_CONST,     // `index` bytes into the constants
  AT_SPARSE_PLACES
} at_sparse_place_kind;
// kind: at_sparse_place_kind; what `index` counts goes by the kind.
typedef struct at_x_sparse_place {
  uint32_t kind, index;
} at_x_sparse_place;

// A compiled function of the optimizer, run for each row: `tasks` iterations
// over the places [places, places + num_places), as its buffers.
typedef struct at_x_sparse_launch {
  uint32_t kernel;  // KERNELS, AT_XK_RANGE
  uint32_t tasks;   // runs 0 to tasks
  uint32_t places, num_places;
} at_x_sparse_launch;

// After all launches: `bytes` from a place to the row of a table.
typedef struct at_x_sparse_copy {
  uint32_t table, bytes;
  at_x_sparse_place from;
} at_x_sparse_copy;

// Fixed size; its tail is found by the functions below. Written by
// `compile`, read by each device of the step. Zero fields: none.
typedef struct at_x_sparse {
  uint32_t op;  // at_sparse_op
  // 0 SparseCores (with minibatching): as many as the row pointers of the
  // minibatches that there are tell.
  uint32_t num_devices, scs_per_device;
  uint32_t
      minibatching;   // row pointers of minibatches; an operand tells how many
  uint32_t has_init;  // LOOKUP, LOCAL: else out begins as zeros
  uint32_t dtype;     // of the table: F32, BF16, S8, U8; of slots: F32
  uint32_t num_tables;  // UPDATE: the table and its slots; else 1
  // UPDATE: scalars that the optimizer reads, such as the learning rate.
  uint32_t num_hypers;
  // Simulated quantisation, or the scale of an integer table; 0 buckets: none.
  uint32_t num_buckets;
  float low, high;
  uint32_t checks;               // at_sparse_checks
  uint64_t pointers;             // entries of the row pointers
  uint64_t ids;                  // entries of ids, samples, gains
  uint64_t samples;              // rows of out or gradient on one device
  uint64_t rows, width;          // of the table on one device
  uint64_t max_ids, max_unique;  // per partition, as configured; 0: no limit
  uint32_t name;                 // string: of the table, for messages
  uint32_t dump;                 // string: folder of CHECK_DUMP
  // UPDATE: the optimizer on one row.
  uint32_t num_launches, num_places, num_copies;
  uint32_t scratch_bytes, const_bytes;
  uint32_t hyper_bytes[AT_SPARSE_MAX_HYPERS];
  // Then launches, places, copies, and, 64-byte aligned from the beginning of
  // this struct, the constants.
} at_x_sparse;

// Bits of at_x_sparse.checks.
typedef enum at_sparse_checks {
  AT_SPARSE_CHECK_NAN = 1,     // gains, rows, gradients, new rows
  AT_SPARSE_CHECK_LIMITS = 2,  // ids of a partition against max_ids, max_unique
  AT_SPARSE_CHECK_CONTENTS = 4,  // operands are as before when the step is done
  AT_SPARSE_CHECK_LAUNCH = 8,    // all devices bring the same launch
  AT_SPARSE_CHECK_DUMP = 16      // updates write their ids to files
} at_sparse_checks;

// The tail's parts, in order. x must have been checked (exec does so at load):
// counts say where each begins.
// num_launches rows, in the order in which they run. Borrowed from x.
static inline const at_x_sparse_launch *at_x_sparse_launches(
    const at_x_sparse *x) {
  return (const at_x_sparse_launch *)(x + 1);
}
// num_places entries, of which each launch has a range.
static inline const at_x_sparse_place *at_x_sparse_places(
    const at_x_sparse *x) {
  return (const at_x_sparse_place *)(at_x_sparse_launches(x) + x->num_launches);
}
// num_copies rows, done in order after all launches.
static inline const at_x_sparse_copy *at_x_sparse_copies(const at_x_sparse *x) {
  return (const at_x_sparse_copy *)(at_x_sparse_places(x) + x->num_places);
}
// Bytes from x to its constants, which are 64-byte aligned where x is.
static inline uint64_t at_x_sparse_const_offset(const at_x_sparse *x) {
  uint64_t n = sizeof *x +
               (uint64_t)x->num_launches * sizeof(at_x_sparse_launch) +
               (uint64_t)x->num_places * sizeof(at_x_sparse_place) +
               (uint64_t)x->num_copies * sizeof(at_x_sparse_copy);
  return (n + 63) & ~63ull;
}
// All of it, constants included.
static inline uint64_t at_x_sparse_bytes(const at_x_sparse *x) {
  return at_x_sparse_const_offset(x) + x->const_bytes;
}

// Where the buffers of a step are.
// The first table's index; for LOCAL the only one's.
static inline uint32_t at_x_sparse_table(const at_x_sparse *x) {
  if (x->op == AT_SPARSE_LOCAL) return 3;
  return 4 + (x->minibatching != 0) + (x->op == AT_SPARSE_UPDATE);
}
// How many operands there are; results follow them.
static inline uint32_t at_x_sparse_operands(const at_x_sparse *x) {
  return at_x_sparse_table(x) + x->num_tables + x->num_hypers +
         (x->has_init != 0);
}
// How many results: an update gives each table back, a lookup the rows.
static inline uint32_t at_x_sparse_results(const at_x_sparse *x) {
  return x->op == AT_SPARSE_UPDATE ? x->num_tables : 1;
}

#endif
