// A program of many kernels is compiled in less time: the few that do the most
// work get all of LLVM's steps, up to a number of operations, and the others
// are compiled quickly. Their long elementwise ops are calls of functions that
// the module shares and that get all steps (outline.c). What remains, loops and
// addresses around them, is optimised as everything is but selected without
// LLVM's rewriting of the selection graph, loop strength reduction and
// scheduling; registers are allocated as ever.
#include "codegen/tier.h"

#include <llvm-c/Core.h>
#include <stdlib.h>
#include <string.h>

// LLVM knows nothing of this attribute.
static const char mark[] = "atoll-quick";
enum { kMark = sizeof mark - 1 };

static int more_work(const void *a, const void *b) {
  const at_job *x = *(at_job *const *)a, *y = *(at_job *const *)b;
  double v = x->external.work, w = y->external.work;
  if (v != w) return v > w ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

at_status at_tier_choose(at_arena *a, at_job *const *jobs, size_t num_jobs) {
  at_job **order;
  size_t n = 0;
  uint64_t ops = 0;
  AT_TRY_ALLOC(order, at_new(a, at_job *, num_jobs));
  for (size_t i = 0; i < num_jobs; i++)
    if (jobs[i]->external.ops) order[n++] = jobs[i];
  qsort(order, n, sizeof *order, more_work);
  for (size_t i = 0; i < n; i++) {
    order[i]->quick = ops >= AT_CG_FULL_OPS;
    ops += order[i]->external.ops;
  }
  return AT_OK;
}

uint64_t at_tier_load(const at_job *j) {
  uint64_t ops = AT_MAX(j->external.ops, AT_CG_ORDINARY);
  return j->quick ? ops : 3 * ops;
}

void at_tier_mark(LLVMContextRef ctx, LLVMValueRef fn) {
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                          LLVMCreateStringAttribute(ctx, mark, kMark, "", 0));
}

void at_tier_unmark(LLVMValueRef fn) {
  LLVMRemoveStringAttributeAtIndex(fn, LLVMAttributeFunctionIndex, mark, kMark);
}

bool at_tier_is_marked(LLVMValueRef fn) {
  return LLVMGetStringAttributeAtIndex(fn, LLVMAttributeFunctionIndex, mark,
                                       kMark) != NULL;
}

static void set(LLVMContextRef ctx, LLVMValueRef fn, const char *name) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(ctx, kind, 0));
}

void at_tier_apply(LLVMContextRef ctx, LLVMModuleRef module) {
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f;
       f = LLVMGetNextFunction(f)) {
    if (!at_tier_is_marked(f)) continue;
    set(ctx, f, "noinline");
    set(ctx, f, "optnone");
  }
}
