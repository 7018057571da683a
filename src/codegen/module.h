// LLVM modules: one context each, filled with functions, optimised, turned into
// an object. A module belongs to one thread at a time.
#ifndef ATOLL_CODEGEN_MODULE_H_
#define ATOLL_CODEGEN_MODULE_H_

#include "codegen/job.h"

// A module to be: its jobs are of one sort (codegen.c), at least one. All of it
// is borrowed while at_unit_compile runs.
typedef struct at_unit {
  // Of the generator.
  const at_cg_target *target;
  const at_job *const *jobs;
  uint32_t num_jobs;
  uint32_t index;  // distinguishes the objects of a compile
} at_unit;

// An ELF object, LLVM's text before code is selected, or the target's assembly.
typedef enum at_unit_form {
  AT_UNIT_OBJECT,
  AT_UNIT_IR,
  AT_UNIT_ASSEMBLY
} at_unit_form;
// Heap bytes in *out (free() them), *out_len without a terminator. On failure
// *out is NULL: INTERNAL inside LLVM, CANCELLED where the thread was
// interrupted, RESOURCE_EXHAUSTED, or what a job's emission says. Thread-safe;
// the thread has the stack of base/guard.h.
at_status at_unit_compile(const at_unit *u, at_unit_form form, char **out,
                          size_t *out_len);

#endif
