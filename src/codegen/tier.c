// A program of many kernels is compiled in less time: the few that do the most
// work get all of LLVM's steps, up to a number of operations, and the others
// are compiled quickly. Their long elementwise ops are calls of functions that
// the module shares and that get all steps (outline.c). What remains, loops and
// addresses around them, is optimised as everything is but selected without
// LLVM's rewriting of the selection graph, loop strength reduction and
// scheduling; registers are allocated as ever. Kernels behind those that do
// little work in a call get modules that LLVM compiles with its least steps,
// where registers are allocated block by block.
#include "codegen/tier.h"

#include <llvm-c/Core.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// LLVM knows nothing of this attribute.
static const char mark[] = "atoll-quick";
enum { kMark = sizeof mark - 1 };

// ---- What a job takes to compile
// The loop and the addresses around what is computed; a function that becomes
// some thirty instructions; every other op.
enum { kAround = 32, kFunction = 32, kOp = 1 };

static uint64_t ops_of_comp(const at_comp *c);

// With what its regions hold.
static uint64_t ops_of_node(const at_node *n) {
  uint64_t ops =
      at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL ? kFunction : kOp;
  for (uint32_t i = 0; i < n->num_regions; i++)
    ops += ops_of_comp(n->regions[i]);
  return ops;
}

static uint64_t ops_of_comp(const at_comp *c) {
  uint64_t ops = 0;
  AT_FOR_NODES(n, c) ops += ops_of_node(n);
  return ops;
}

// Work is nanoseconds for kernels of nodes, elements for other rooms'
// functions: only like ones are compared.
void at_tier_measure(at_job *j) {
  if (j->kind == AT_JOB_EXTERNAL) {
    j->ops = j->external.ops;
    j->work = j->external.work;
  } else {
    j->ops =
        kAround + (j->node ? ops_of_node(j->node) : ops_of_comp(j->region));
    j->work = j->node ? j->ns : INFINITY;  // who sorts compares often
  }
}

// All steps take about three times as long as the quick ones, and the least
// steps half of those.
uint64_t at_tier_load(const at_job *j) {
  uint64_t ops = j->ops ? j->ops : AT_CG_ORDINARY;
  return j->plain ? (ops + 1) / 2 : j->quick ? ops : 3 * ops;
}

// ---- Which are compiled quickly
static int more_work(const void *a, const void *b) {
  const at_job *x = *(at_job *const *)a, *y = *(at_job *const *)b;
  if (x->work != y->work) return x->work > y->work ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

// Of the other rooms' functions, or of all others: `work` of the two has
// different units.
static void choose(at_job *const *jobs, size_t num_jobs, bool external,
                   uint64_t full, uint64_t quick, at_job **order) {
  size_t n = 0;
  uint64_t ops = 0;
  for (size_t i = 0; i < num_jobs; i++)
    if (jobs[i]->ops && (jobs[i]->kind == AT_JOB_EXTERNAL) == external)
      order[n++] = jobs[i];
  qsort(order, n, sizeof *order, more_work);
  for (size_t i = 0; i < n; i++) {
    order[i]->quick = ops >= full;
    order[i]->plain = ops >= quick &&
                      order[i]->work < AT_CG_PLAIN_WORK * (double)order[i]->ops;
    ops += order[i]->ops;
  }
}

// Jobs with ops 0 are always compiled with all steps, unless the target asks
// otherwise.
at_status at_tier_choose(const at_cg_target *t, at_arena *a,
                         at_job *const *jobs, size_t num_jobs) {
  at_job **order;
  AT_TRY_ALLOC(order, at_new(a, at_job *, num_jobs));
  bool quick = t->quick || t->plain;
  choose(jobs, num_jobs, true, quick ? 0 : AT_CG_FULL_OPS, AT_CG_QUICK_OPS,
         order);
  choose(jobs, num_jobs, false, quick ? 0 : AT_CG_FULL_NODES, UINT64_MAX,
         order);
  for (size_t i = 0; t->plain && i < num_jobs; i++)
    jobs[i]->quick = jobs[i]->plain = true;
  return AT_OK;
}

// Only until at_tier_apply, or text forms, read it.
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

// An enum attribute of a function.
static void set(LLVMContextRef ctx, LLVMValueRef fn, const char *name) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(ctx, kind, 0));
}

// optnone goes together with noinline, as LLVM's verifier wants.
void at_tier_apply(LLVMContextRef ctx, LLVMModuleRef module) {
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f;
       f = LLVMGetNextFunction(f)) {
    if (!at_tier_is_marked(f)) continue;
    set(ctx, f, "noinline");
    set(ctx, f, "optnone");
  }
}
