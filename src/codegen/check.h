// For tests of this room: generates kernels for nodes, links and runs them, and
// compares every result with the reference evaluator. Buffers end at a guard
// page.
//
// How a test is written:
//   ck c;
//   ck_begin(&c, features);     the CPU features that code may use
//   ck_text(&c, ...), ck_op(&c, ...) or ck_add(&c, ...)     as often as needed
//   ck_end(&c);                 compiles, runs and compares all of them
// All cases of one checker are added to one generator, so equal nodes share a
// kernel here as they do in a program. Each is compiled three ways (ck_tier),
// and all must give what the evaluator gives, within the case's tolerance: 0
// ulps means the same bits, for floats the same value.
#ifndef ATOLL_CODEGEN_CHECK_H_
#define ATOLL_CODEGEN_CHECK_H_

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/special.h"
// Objects are linked by the system's linker, not by exec's loader.
#include "codegen/check_link.h"

// Bounds of the tables below; a test that needs more fails.
enum { CK_MAX_CASES = 4096, CK_MAX_ARGS = 640 };

// A node to run, its arguments, and what the evaluator makes of them. Literals
// are the checker's arena's.
typedef struct ck_case {
  // Of the checker's module, or of one that lives in its arena.
  const at_node *node;
  const at_literal *args[CK_MAX_ARGS];
  const at_literal *want[CK_MAX_ARGS];
  // Per result: the operand whose buffer it is written to; -1: a buffer of its
  // own. Tests set it after ck_add.
  int32_t alias[CK_MAX_ARGS];
  // Allowed distance of floats, in units in the last place; types narrower than
  // f32 get one at most.
  double ulps;
  // Or this much, whatever the size.
  double absolute;
  // Of the compile at hand.
  at_cg_plan plan;
} ck_case;

// One generator's worth of cases. A test begins it, adds cases, and ends it,
// which compiles and runs all of them.
typedef struct ck {
  at_arena *arena;
  at_module *module;
  // Where nodes are built: the module's only function. It is never returned
  // from or run as a whole.
  at_comp *comp;
  // at_cpu_features that code may use; the state of ck_random.
  uint64_t features, random;
  ck_case *cases;
  uint32_t num_cases;
  // Of the cases added next.
  double ulps, absolute;
  // Also runs them with all results stored past the caches.
  bool streams;
  // Begins the messages of failures.
  char title[96];
} ck;

// features: what the test wants; what the CPU lacks is left out, so a test for
// AVX-512 runs on AVX2 where there is no more. Fails the test without memory.
// ulps: 4 where a test does not set another tolerance.
void ck_begin(ck *c, uint64_t features);

// Xorshift: the same numbers in every run of a test.
// Never 0, as its state is not.
uint64_t ck_random(ck *c);

// A dense array type; dims are copied.
// Refuses what no program may have: the test fails.
at_type ck_type(ck *c, at_dtype t, uint32_t rank, const int64_t *dims);

// A literal of such elements in the checker's arena. Tests may write to its
// data.
// specials: with numbers that arithmetic treats apart (ck_fill_one).
const at_literal *ck_random_literal(ck *c, at_type t, bool specials);

// A new parameter of the checker's function.
// Its number is the order of the calls; the case's arguments are in operand
// order.
at_value ck_param(ck *c, at_type t);
// Indices of type t below `limit`, some outside on both sides, as clamping and
// dropping must be seen.
// n elements of an integer type.
// The literal is the arena's. limit > 0.
const at_literal *ck_indices(ck *c, at_type t, int64_t limit);

// Adds n with args, one for each operand, and evaluates it. The case may be
// changed until ck_end. args are copied.
// The evaluator's result is kept, so every tier is compared with one judgement.
ck_case *ck_add(ck *c, at_node *n, const at_literal *const *args);

// How the code is compiled: all steps, quickly (tier.c), or with LLVM's least
// steps.
typedef enum ck_tier { CK_FULL, CK_QUICK, CK_PLAIN } ck_tier;

// Runs all cases, compiled with all of LLVM's steps, quickly and plainly; then
// frees everything.
void ck_end(ck *c);

// A function in hlo text: its parameters, result types and lines. Every node of
// it that reads parameters only becomes a case with random arguments; equal
// operands get equal ones. The module lives in the checker's arena. Returns the
// last case.
ck_case *ck_text(ck *c, const char *params, const char *results,
                 const char *lines);

// One node of an op on n fresh parameters, with random arguments. result NULL:
// the type is inferred.
// The case may be changed until ck_end, and is the checker's. specials: as in
// ck_random_literal.
ck_case *ck_op(ck *c, at_op op, const at_type *types, uint32_t n,
               const at_attr *attrs, uint32_t num_attrs, const at_type *result,
               bool specials);

#endif
