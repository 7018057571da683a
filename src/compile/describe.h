// What runs when an executable runs, for profilers: its ops with what each of
// them asks of the machine, and the program with its buffers.
//
// Errors: as at_compile's.
// Memory: the description lives in the caller's arena.
// Threads: any, side by side.
#ifndef ATOLL_COMPILE_DESCRIBE_H_
#define ATOLL_COMPILE_DESCRIBE_H_

#include "compile/compile.h"
#include "cost/count.h"

// One op; every text lives in the description's arena.
typedef struct at_described_op {
  const char *name;      // the first word of its steps' texts: "fusion.12"
  const char *text;      // as an HLO instruction
  const char *category;  // as XLA's profilers sort instructions
  const char *scope;     // of the program's op names; ""
  const char *source;    // "file:line"; ""
  double flops, transcendentals, bytes_read, bytes_written;  // of one run
} at_described_op;

// An executable, ops of control flow's regions included.
typedef struct at_described {
  at_str hlo;  // HloProto; empty: an op has no form there
  const at_described_op *ops;
  uint32_t num_ops;
} at_described;

// Passes run again, code is not made. temp_bytes: of the executable, on its
// target. Buffers have the sizes that they have there. Everything lives in `a`.
at_status at_compile_describe(at_bytes program, const at_compile_options *o,
                              uint64_t temp_bytes, at_arena *a,
                              at_described *out);

// What cost_analysis() of the program says, without compiling it.
at_status at_compile_costs(at_bytes program, const at_compile_options *o,
                           at_arena *a, at_count *out);

#endif
