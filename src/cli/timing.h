// Times a program of this process's devices, for `atoll cost collect` and
// `atoll doctor --measure`.
#ifndef ATOLL_CLI_TIMING_H_
#define ATOLL_CLI_TIMING_H_

#include "exec/exec.h"
#include "hlo/hlo.h"

// What an argument holds: zeros, floats in [0.5, 1.5) or random bits, or random
// integers below `below`.
// Zeros where it is neither random nor bounded.
typedef struct at_timing_argument {
  at_type type;
  int64_t below;  // 0: not an index
  bool random;
} at_timing_argument;

// How programs are timed: set by the caller, who owns the runtime.
typedef struct at_timing {
  // Borrowed; its chips are what programs run on.
  at_runtime *runtime;
  double seconds;  // spent on one program at most, once warm
  double share;    // 0: elapsed time counts; else CPU time, over so many cores
  // The shortest says what the machine can do, the median what it does.
  bool least;  // elapsed time: the shortest run, not the median
} at_timing;
enum { AT_TIMING_ARGUMENTS = 16 };  // of all devices

// INVALID_ARGUMENT: too many devices or arguments; else what compiling, loading
// or a launch fails with.
// Seconds of one launch of hlo text on these devices (NULL: 0, 1, ...) with the
// same `num` arguments each. Two launches warm up; at least three count, as
// many as fit the time (where one takes all of it, one warms up and two count).
// CPU time is a mean: the clock of a thread that runs elsewhere is late by up
// to a tick, so single launches are not to be trusted; of three batches the
// quietest counts.
at_status at_timing_run(const at_timing *t, const char *text,
                        const uint32_t *devices, uint32_t num_devices,
                        const at_timing_argument *arguments, uint32_t num,
                        double *out);

#endif
