// Machine code for hlo nodes. The only room that sees LLVM. One generator per
// compile; nodes are added, equal ones share a kernel, and finish() emits
// objects on as many threads as it is given.
//
// Errors: INTERNAL where LLVM refuses what was emitted, UNIMPLEMENTED for ops
// without a form, RESOURCE_EXHAUSTED; LLVM's own fatal errors end in a status,
// too (base/guard.h).
#ifndef ATOLL_CODEGEN_CODEGEN_H_
#define ATOLL_CODEGEN_CODEGEN_H_

#include "abi/executable.h"
#include "base/digest.h"
#include "hlo/hlo.h"
#include "nest/nest.h"

// A generator: what was added, and the kernels that it shares.
typedef struct at_cg at_cg;

// Results from this size on do not stay in the part of a last-level cache that
// a core has on any machine that we know.
enum { AT_CG_STREAM_BYTES = 16 << 20 };

// What code is made for. Equal targets give equal code for equal nodes.
typedef struct at_cg_target {
  uint64_t cpu_features;  // base/cpu.h; what the code may use
  // Threads that run kernels, and that compile. Code does not depend on it.
  uint32_t threads;
  // 0 to 3, as LLVM's; 2 unless asked.
  uint32_t opt_level;
  size_t
      stream_bytes;  // results of so many bytes may be stored past the caches
  // Of a core's second and of the last cache; 0: unknown, and what a kernel
  // touches is taken to lie in memory. Decides how many tasks go together, no
  // more.
  size_t near_bytes, last_bytes;
  bool verify;  // run LLVM's verifier on every module
  bool quick;   // compile every function quickly (AT_CG_FULL_NODES): for tests
  bool plain;   // with LLVM's least steps (AT_CG_QUICK_OPS): for tests
} at_cg_target;

// An empty code generator for that CPU; the target is copied. The caller
// destroys it. One thread at a time uses it; at_cg_finish starts its own.
// RESOURCE_EXHAUSTED: no memory.
at_status at_cg_create(const at_cg_target *t, at_cg **out);
// NULL is allowed. What at_cg_finish gave stays.
void at_cg_destroy(at_cg *cg);

// What a kernel's i-th buffer is.
typedef enum at_cg_arg_kind {
  AT_CG_OPERAND,
  AT_CG_RESULT,
  AT_CG_SCRATCH
} at_cg_arg_kind;
typedef struct at_cg_arg {
  at_cg_arg_kind kind;
  uint32_t index;  // operand or result number; SCRATCH: byte offset
  uint64_t skip;   // OPERAND: bytes of it that lie before the address to pass
} at_cg_arg;
// One launch of one kernel for a node: tasks 0 to `tasks` - 1 in any order,
// `grain` at a time.
typedef struct at_cg_launch {
  uint32_t kernel;  // index, as in at_cg_output.kernels
  int64_t tasks, grain;
  double ns;  // single-thread estimate
  const at_cg_arg *args;
  uint32_t num_args;
} at_cg_launch;
// The launches of a node, each behind the one before. scratch_bytes: one block
// for all of them, 64-byte aligned; its contents do not matter before and
// after.
typedef struct at_cg_plan {
  const at_cg_launch *launches;  // in order
  uint32_t num_launches;
  size_t scratch_bytes;
} at_cg_plan;

// Can `n` be generated here at all (else it is a runtime kernel's or control
// flow)?
bool at_cg_supports(const at_node *n);
// May result r be written into operand o's buffer (every element is read only
// before, or at, the same index)? The planner asks before it shares memory.
bool at_cg_can_alias(const at_node *n, uint32_t result, uint32_t operand);
// alias[r]: operand whose buffer result r shares, or -1. Plan lives in `a`.
at_status at_cg_node(at_cg *cg, const at_node *n, const int32_t *alias,
                     at_arena *a, at_cg_plan *out);
// The same for a caller that can pass addresses inside operands (`skip`): nodes
// that differ only in where their slices of operands begin, as in an unrolled
// loop, are equal then.
at_status at_cg_node_skipping(at_cg *cg, const at_node *n, const int32_t *alias,
                              at_arena *a, at_cg_plan *out);
// The same for a node that is part of a nest: kernels[i], in
// at_nest_stmt.kernel, is what launch i calls, and launches[i].kernel means
// nothing.
at_status at_cg_node_inside(at_cg *cg, const at_node *n, const int32_t *alias,
                            at_arena *a, at_cg_plan *out,
                            const void *const **kernels);
// A verified nest as a kernel of one task; its buffers are the nest's
// parameters. It and what it calls must live until finish().
at_status at_cg_nest(at_cg *cg, const at_nest *n, uint32_t *out_kernel);
// A sort comparator region as AT_XK_COMPARATOR.
at_status at_cg_comparator(at_cg *cg, const at_comp *region,
                           uint32_t *out_kernel);

// A function that another room writes with emit.h and build.h. `emit` runs on a
// compile thread, once or more often (text forms), while finish() or print()
// runs: `arg` must live until then and not change. It begins with the builder
// in an empty block behind the entry block and must end every block.
enum { AT_CG_MAX_PARAMS = 8, AT_CG_ORDINARY = 64 };
// Functions are compiled with all of LLVM's steps while they have fewer than so
// many operations together, those with the most work first. What comes after in
// a program is compiled quickly (tier.c): in about a third of the time, and it
// may take a third longer to run. Results are the same. Functions of other
// rooms (`ops` below) and kernels of nodes are counted apart; those that take
// thirty instructions count as 32.
enum { AT_CG_FULL_OPS = 16384, AT_CG_FULL_NODES = 65536 };
// Other rooms' functions behind so many operations get LLVM's least steps, in
// half of the time again, where a hundred calls do not cost what that saves:
// where they make fewer than AT_CG_PLAIN_WORK elements for each operation.
enum { AT_CG_QUICK_OPS = 3 * AT_CG_FULL_OPS, AT_CG_PLAIN_WORK = 2048 };
typedef struct at_em at_em;
// A function that another room writes with emit.h and build.h. `emit` runs on a
// compile thread, once or more often (text forms), while finish() or print()
// runs: `arg` must live until then and not change. It begins with the builder
// in an empty block behind the entry block and must end every block. Its
// failure fails the compile.
typedef struct at_cg_function {
  at_status (*emit)(at_em *e, void *arg);
  void *arg;
  uint32_t kind;        // at_xkernel_kind of the output's row
  uint32_t num_params;  // pointers; the function returns nothing
  // Operations it is written from: how long it takes to compile; 0: as an
  // ordinary kernel, AT_CG_ORDINARY.
  uint32_t ops;
  double
      work;  // elements that these make in a call: how much its speed matters
} at_cg_function;
// f is copied; what it points to is borrowed until at_cg_finish, on whose
// threads its emit is called. INTERNAL: a number of parameters that no launch
// has.
at_status at_cg_external(at_cg *cg, const at_cg_function *f,
                         uint32_t *out_kernel);

// A function that makes a box of the result of `n`, an elementwise FUSION of
// one, from its operands: at_core_fill_fn. `n` must live until finish().
at_status at_cg_fill(at_cg *cg, const at_node *n, uint32_t *out_kernel);

// What at_cg_finish made: kernels by number, each in one of the objects under a
// symbol's name.
typedef struct at_cg_output {
  at_xkernel *kernels;  // symbol: offset into `strings`
  uint32_t num_kernels;
  at_bytes *objects;  // ELF relocatable
  uint32_t num_objects;
  at_str strings;
} at_cg_output;
// Emits everything added so far; output lives in `a`.
at_status at_cg_finish(at_cg *cg, at_arena *a, at_cg_output *out);
// LLVM modules that this process has made. Thread-safe.
uint64_t at_cg_modules_made(void);
// LLVM instructions in them, before any were optimised, and those of them that
// were compiled quickly. Thread-safe.
uint64_t at_cg_instructions_made(void);
// See at_cg_instructions_made.
uint64_t at_cg_instructions_quick(void);
// Of the function that has the most of them, since the last such call.
uint64_t at_cg_instructions_most(void);
// The build of LLVM that makes the code: what at_digest_build says of it.
at_status at_cg_build(at_digest *out);
// LLVM IR (or assembly) of what was added so far, for ATOLL_DUMP and `atoll
// dump`.
at_status at_cg_print(at_cg *cg, bool assembly, at_strbuf *out);

#endif
