// Which functions of a program LLVM compiles with all steps, and which quickly.
//
// The order: at_tier_measure for each job as it is planned, at_tier_choose once
// when all are known, at_tier_mark while functions are written, at_tier_apply
// behind the passes.
#ifndef ATOLL_CODEGEN_TIER_H_
#define ATOLL_CODEGEN_TIER_H_

#include "codegen/job.h"

// Sets `ops` and `work` of a job, once its plan is made.
void at_tier_measure(at_job *j);
// Sets `quick` and `plain` of all jobs. What is chosen depends on target and
// jobs alone, not on threads.
at_status at_tier_choose(const at_cg_target *t, at_arena *a,
                         at_job *const *jobs, size_t num_jobs);
// What compiling a job takes, in parts of an ordinary kernel's; over 0.
uint64_t at_tier_load(const at_job *j);

// Notes in the module that a function is to be compiled quickly.
void at_tier_mark(LLVMContextRef ctx, LLVMValueRef fn);
// Takes the note back.
void at_tier_unmark(LLVMValueRef fn);
// Is it there?
bool at_tier_is_marked(LLVMValueRef fn);
// Makes LLVM's later steps skip the marked functions. Call it behind the passes
// over the module, which would skip them, too.
void at_tier_apply(LLVMContextRef ctx, LLVMModuleRef module);

#endif
