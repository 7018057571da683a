// One kernel on a GPU, after XLA's performance model: compute and memory
// overlap, re-reads come from caches, few blocks cannot fill the memory's
// bandwidth.
// Memory: figures live in the arena that is given. Threads: any; pure but for
// memory.
#ifndef ATOLL_COST_GPU_H_
#define ATOLL_COST_GPU_H_

#include "cost/cost.h"

// The figures of one chip that the model needs.
typedef struct at_gpu {
  double cores, fpus, clock;  // multiprocessors, FP32 lanes of each, hertz
  double hbm, l2, l1;         // bytes/s, bytes, bytes per multiprocessor
  double block_rate;          // bytes/s that one block can ask for
  double launch;              // seconds per kernel
  uint16_t cycles[AT_OP_COUNT][AT_DTYPE_COUNT];  // per element
} at_gpu;
// FAILED_PRECONDITION names a figure that is missing.
at_status at_gpu_of(const at_machine *m, at_arena *a, const at_gpu **out);

// What a kernel does, and how long each part would take alone.
typedef struct at_gpu_time {
  double flops, bytes_read, bytes_written;
  double compute, read, write;  // seconds
  double exec;                  // combined, without the launch
} at_gpu_time;
// A fusion or a single op that runs as a kernel. Zero for what needs no kernel.
at_status at_gpu_kernel(const at_gpu *g, const at_node *n, at_gpu_time *out);
// Seconds that `flops` lane operations take on `blocks` blocks of `threads`.
double at_gpu_compute(const at_gpu *g, double flops, double blocks,
                      double threads);

#endif
