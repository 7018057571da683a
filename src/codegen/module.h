// LLVM modules: one context each, filled with functions, optimised, turned into
// an object. A module belongs to one thread at a time.
#ifndef ATOLL_CODEGEN_MODULE_H_
#define ATOLL_CODEGEN_MODULE_H_

#include "codegen/job.h"

typedef struct at_unit {
  const at_cg_target *target;
  const at_job *const *jobs;
  uint32_t num_jobs;
  uint32_t index;  // distinguishes the objects of a compile
} at_unit;

typedef enum at_unit_form {
  AT_UNIT_OBJECT,
  AT_UNIT_IR,
  AT_UNIT_ASSEMBLY
} at_unit_form;
// Heap bytes in *out (free() them). A failure inside LLVM is INTERNAL.
at_status at_unit_compile(const at_unit *u, at_unit_form form, char **out,
                          size_t *out_len);

#endif
