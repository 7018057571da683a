// Static sizing: what the TPU compiler decides from limits, widths and batch
// alone, before it compiles a SparseCore program: whether a lookup and its
// update fit, what they hold in HBM at a time (its "stack"), and how much of
// that is padding.
//
// Where its formulas come from: memory reports of libtpu 0.0.52's ahead-of-time
// compiler on some 150 programs (v5p, v6e). For one table of width 128 they
// agree to the byte, elsewhere within 2% (size_test.c has the figures).
//
// Memory: what is asked about is borrowed; results are the caller's.
// Threads: any; pure functions.
#ifndef ATOLL_SPINPUT_SIZE_H_
#define ATOLL_SPINPUT_SIZE_H_

#include "base/span.h"
#include "base/status.h"
#include "base/strbuf.h"

// The SparseCores of a target.
typedef struct at_spinput_chip {
  char name[16];
  int32_t cores;                     // of one device
  int32_t tiles;                     // of one core, behind one sequencer
  int32_t lanes_32bit, lanes_16bit;  // of a tile's vectors
  int64_t tile_bytes;                // TileSpmem that programs see
  int64_t shared_bytes;              // Spmem of a core
  int64_t hbm_bytes;  // of a device, without what the system keeps
} at_spinput_chip;
// By target ("v5p", "v6e:2x2", "2*v5p:2x2x1"). UNIMPLEMENTED, in the TPU
// compiler's words, where the target has no SparseCores; INVALID_ARGUMENT: no
// such target.
at_status at_spinput_chip_find(at_str target, at_spinput_chip *out);

// Each has slots of its own: rows of the table's width beside it.
typedef enum at_spinput_optimizer {
  AT_SPINPUT_LOOKUP_ONLY,  // no update
  AT_SPINPUT_SGD,
  AT_SPINPUT_ADAGRAD,
  AT_SPINPUT_LAPROP,
  AT_SPINPUT_ADAGRAD_MOMENTUM,
  AT_SPINPUT_ADAM,
  AT_SPINPUT_FTRL,
  AT_SPINPUT_F2A,
  AT_SPINPUT_CUSTOM,  // sized by its slots
} at_spinput_optimizer;
// By the name that jax-tpu-embedding gives its computation ("adagrad", ...), in
// any case; CUSTOM when it is another.
at_spinput_optimizer at_spinput_optimizer_of(at_str name);

// Names are for the report.
typedef struct at_spinput_table {  // a stack of tables, looked up as one
  const char *name;
  int64_t rows;                 // of all devices together, padded or not
  int64_t width;                // elements of a row, padded or not
  int64_t max_ids, max_unique;  // per partition
  int64_t coo_per_device;       // elements of its id buffers; 0: what max_ids
                                // can need
  int64_t samples;              // of one device, over all features
  int32_t element_bytes;        // 4: f32, 2: bf16, 1: int8
  int32_t optimizer;            // at_spinput_optimizer
  int32_t slots;  // of the optimizer; -1: as many as it has by itself
} at_spinput_table;

// What is sized: tables that are looked up together on equal devices.
// Devices are alike; sharding is by rows over all of their SparseCores.
typedef struct at_spinput_program {
  at_spinput_chip chip;
  int32_t devices;
  const at_spinput_table *tables;
  size_t table_count;
  // Tables whose stack memory is taken one after the other; 0 and 1: all at the
  // same time (xla_sc_num_serialized_tables_to_optimize_hbm).
  int32_t serialized;
  bool unstaged;  // gather operands must fit the tile, as before they were
                  // staged in HBM
  int64_t dense_bytes, constant_bytes, prefetch_bytes;  // HBM heap of a device
} at_spinput_program;

// What size_of computes for a table; bytes unless it says otherwise.
typedef struct at_spinput_table_size {
  int64_t replicas;  // logical replicas: SparseCores of all devices
  int64_t padded_width, padded_rows;  // multiples of 8, of 8 * replicas
  int64_t rows_per_core, rows_per_tile;
  int64_t gather_bytes;  // a tile's share of the gather operand
  bool gather_in_tile;   // else it is staged in HBM
  int64_t forward_bytes, backward_bytes;  // HBM stack of a device
  int64_t spmem_bytes;                    // of a tile, at least
  int64_t hbm_bytes;                      // table and slots on a device, padded
  int64_t waste_bytes;                    // of these, padding
  bool serialized;
} at_spinput_table_size;

// Of a whole program, on one device.
typedef struct at_spinput_size {
  int64_t forward_bytes, backward_bytes, shared_bytes;  // sums; shared: once
  int64_t stack_bytes;  // peak of the HBM stack of a device
  int64_t table_bytes, waste_bytes, heap_bytes;
  int64_t peak_bytes;  // everything
} at_spinput_size;

// Sizes a program; `tables` has table_count entries. A status is what the
// compiler would say, in its words: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. The
// outputs are filled as far as the check came.
at_status at_spinput_size_of(const at_spinput_program *p,
                             at_spinput_table_size *tables,
                             at_spinput_size *out);
// The report for people: per table and in sum, the peak with its owners.
// tables and s as at_spinput_size_of gave them for p; appended.
void at_spinput_size_print(const at_spinput_program *p,
                           const at_spinput_table_size *tables,
                           const at_spinput_size *s, at_strbuf *out);

#endif
