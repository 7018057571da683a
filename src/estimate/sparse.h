// SparseCores in an estimate: how many ids and rows a lookup or update of an
// embedding table moves, and what that takes, stage by stage as the TPU
// compiler's program for SparseCores has them.
//
// Rates and sizes are the machine's figures (data/hw, sparse_*); how ids are
// distributed is told by the user, or bounded by the limits that the program
// was compiled for.
//
// Errors: what a line says, and RESOURCE_EXHAUSTED. Memory: in the arena that
// is given. Threads: any; pure functions.
#ifndef ATOLL_ESTIMATE_SPARSE_H_
#define ATOLL_ESTIMATE_SPARSE_H_

#include "cost/tpu.h"
#include "estimate/estimate.h"

// ---- How ids are distributed (sparse_ids.c)
// Of one stack of tables; what is not said is negative.
typedef struct at_est_ids {
  at_str stack;       // "*": every stack that has no entry of its own
  double per_sample;  // ids of a sample of a feature
  double unique;      // different rows that a SparseCore asks for, per id
  double shared;      // different rows that all of them ask for, per such row
  double zipf;        // exponent of the distribution over the rows; 0: even
} at_est_ids;
// The entry of a stack; NULL: nothing is said of it.
const at_est_ids *at_est_ids_of(const at_est_ids_spec *s, at_str stack);
// Different rows among `draws` of a table of `rows`, on average, when the r-th
// most frequent is drawn in proportion to r^-zipf. 0 <= zipf.
double at_est_distinct(double rows, double draws, double zipf);

// ---- What a call moves (sparse_time.c)
// Figures of the SparseCores of a device.
typedef struct at_est_sparse_chip {
  double cores, tiles, lanes;  // of a device, of a core, of a tile
  double granule;              // bytes that HBM moves at least
  double tile_rate;  // bytes per cycle between a tile and HBM, rows at random
  double launch;     // cycles of a kernel that does next to nothing
  double clock, hbm_rate;  // hertz; bytes per cycle of a device
} at_est_sparse_chip;
// FAILED_PRECONDITION: the machine lacks a figure (named), or SparseCores.
at_status at_est_sparse_chip_of(const at_tpu_chip *c, at_est_sparse_chip *out);

// Cycles of `kernels` kernels of one SparseCore, one after the other, that move
// so many bytes between HBM and its tiles and take in so many elements, where
// nobody else needs HBM: what the compiler estimates.
double at_est_sparse_kernel(const at_est_sparse_chip *c, double kernels,
                            double bytes, double elements);

// Of one SparseCore and one run, over all its partitions.
typedef struct at_est_sparse_work {
  // What kind of call it is, then counts, then sizes.
  bool update, local;    // local: no other SparseCore is asked
  double ids;            // of its samples
  double unique;         // different rows among them
  double touched;        // different rows of its own that anybody asks for
  double samples;        // rows of the result or of the gradient
  double width;          // elements of a row, padded
  double element_bytes;  // of the table
  double tables;         // with its slots
  double minibatches;
  double partitions;  // SparseCores of the job
  uint32_t devices;
} at_est_sparse_work;
// An update has ten stages, a lookup six.
enum { AT_EST_STAGES = 12 };
// stages[*num], at most AT_EST_STAGES, and their sum. Errors of
// at_cost_collective.
at_status at_est_sparse_time(const at_est_sparse_chip *c, const at_target *t,
                             const at_est_sparse_work *w,
                             at_estimate_stage *stages, uint32_t *num,
                             double *seconds);

// ---- Advice (sparse_advice.c)
// What would make the program's lookups cheaper, or what is wrong with its
// limits: lines of text in `a`, appended.
// Each line once.
typedef AT_VEC(const char *) at_est_lines;
// Each line once, even where several tables would give it.
at_status at_est_sparse_advice(const at_estimate *e, at_arena *a,
                               at_est_lines *out);

#endif
