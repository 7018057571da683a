// The run side's face: lookups and updates of one gang of devices. `exec` calls
// it where the devices of a launch meet.
//
// Memory: tables, inputs and results are borrowed for the run.
// Threads: one run at a time of a gang; it shares its work over the pool.
#ifndef ATOLL_SPARSECORE_ENGINE_H_
#define ATOLL_SPARSECORE_ENGINE_H_

#include <stdatomic.h>

#include "abi/executable.h"
#include "abi/sparsecore.h"
#include "base/parallel.h"
#include "base/status.h"
#include "sparsecore/hosts.h"

// Chips have 2 or 4; input may be made for others.
enum { AT_SC_MAX_PER_DEVICE = 64 };  // SparseCores

// INVALID_ARGUMENT when the parameters contradict themselves. `bytes` is all
// that there is at `x`. After it, sizes of at_sc_buffer_bytes are exact.
at_status at_sc_check(const at_x_sparse *x, uint64_t bytes,
                      uint32_t num_devices);
// Bytes that buffer i of a step has (operands, then results; abi/sparsecore.h).
// Needs an x that at_sc_check took.
uint64_t at_sc_buffer_bytes(const at_x_sparse *x, uint32_t i);

// When each SparseCore worked on a step, from its first task to its last; what
// they do to each other's tables counts for the one whose samples or rows it
// is.
typedef struct at_sc_time {
  _Atomic uint64_t begin_ns, end_ns;  // begin_ns is UINT64_MAX: it did nothing
} at_sc_time;
typedef struct at_sc_times {
  uint32_t scs;      // set by the engine: SparseCores of a device
  uint32_t count;    // of `list`
  at_sc_time *list;  // by device, then SparseCore; set to {UINT64_MAX, 0}
} at_sc_times;

// One step. Everything is borrowed until at_sc_run_step has returned; memory
// for the run comes from `par`.
typedef struct at_sc_run {
  const at_x_sparse *x;         // checked
  const at_kernel_fn *kernels;  // of its launches
  const char *name;             // of the table, for messages
  const char *dump;             // folder of AT_SPARSE_CHECK_DUMP; NULL: none
  // By device of this host: operands, then results. LOCAL: of the one device
  // that calls.
  void *const *const *bufs;
  const at_sc_hosts *hosts;  // NULL: this process sees all devices
  const at_par *par;
  at_sc_times *times;  // NULL: nobody asks
} at_sc_run;
// A result may share the memory of its table (an update in place), else the
// table is copied first. INVALID_ARGUMENT, with table, SparseCore, id and
// sample, for row pointers, ids and samples that are out of range; an update
// then has written nothing but the copies. Bits do not depend on the number of
// threads or hosts: rows are summed device by device, SparseCore by SparseCore,
// in the order of the buffers, one rounding per product and sum. With several
// hosts all fail when one finds its input bad.
at_status at_sc_run_step(const at_sc_run *r);

#endif
