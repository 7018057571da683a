// Rewrites of hlo. One file per pass; each is one function of this form and
// keeps the graph valid (at_verify after each, under ATOLL_VERIFY=1 and in
// tests).
//
// Errors: INVALID_ARGUMENT and UNIMPLEMENTED, with the op and its source line;
// RESOURCE_EXHAUSTED; INTERNAL: the verifier refuses what a pass left. After an
// error the module is good for nothing but its arena.
// Memory: nodes are made in the module's arena; what is replaced stays there.
// Threads: one at a time on a module; no pass has state of its own.
#ifndef ATOLL_PASSES_PASSES_H_
#define ATOLL_PASSES_PASSES_H_

#include "hlo/hlo.h"

// What the passes need to know of the target and of the compile options. The
// same options go to every pass.
typedef struct at_pass_options {
  bool fuse;            // false: one kernel per op (for tests and debugging)
  int64_t fold_budget;  // element operations for constant folding
  bool unroll;          // loops around collectives, so that they can be hidden
  bool small_products;  // those in loops as sums: for code of this machine
  bool eigen;           // JAX's program of eigenvectors as one op: likewise
  bool bf16_dots;       // f32 dots at default precision multiply in bf16
  // Calls that name a memory become copies to it; else they are identities.
  bool placements;
  bool keep_barriers;     // for who plans as a compiler that fuses across none
  uint32_t sparse_cores;  // of one device of the target; 0: none
  // What another room does to the program right before work is gathered; NULL:
  // nothing.
  at_status (*before_fuse)(at_module *m, void *user);
  // The same, before loops are unrolled and products in them changed.
  at_status (*before_unroll)(at_module *m, void *user);
  // The same, before ops become what other compilers have no op for.
  at_status (*before_recognise)(at_module *m, void *user);
  void *user;  // for all of them
} at_pass_options;
// A pass. After a failure m may be half rewritten.
typedef at_status (*at_pass_fn)(at_module *m, const at_pass_options *o);

// Each pass below has the form at_pass_fn: it rewrites m in place and only
// reads o. They run in the order of at_pipeline; what a pass may assume is what
// those before it leave.

// Calls and composites become their bodies; placement hints that mean nothing
// here become identities. UNIMPLEMENTED: recursion; INVALID_ARGUMENT: a call of
// nothing, or with other values than its callee takes.
at_status at_pass_inline(at_module *m, const at_pass_options *o);
// Custom calls that are ops under another name (MHLO's, image resizing).
at_status at_pass_named(at_module *m, const at_pass_options *o);
// A program with shardings becomes the program of one device. Does nothing for
// one partition or without shardings. Writes the shardings of arguments and
// results, and notes, into the module.
at_status at_pass_partition(at_module *m, const at_pass_options *o);
// Dynamic shapes become static ones; UNIMPLEMENTED names a size that stays
// unknown.
at_status at_pass_refine(at_module *m, const at_pass_options *o);
// Batch norms, maps, collectives of one device and known custom calls in
// simpler ops.
at_status at_pass_expand(at_module *m, const at_pass_options *o);
// Algebra, data movement, control flow, dead code and equal nodes, to a fixed
// point or a bound of sweeps.
at_status at_pass_simplify(at_module *m, const at_pass_options *o);
// Constants, by the evaluator, at most o->fold_budget element operations.
at_status at_pass_fold(at_module *m, const at_pass_options *o);
// Windows that are running reductions become SCANs; those that see one element
// each, repetitions. Calls o->before_recognise first.
at_status at_pass_recognise(at_module *m, const at_pass_options *o);
// With o->bf16_dots: operands of f32 products at default precision are rounded
// to bf16.
at_status at_pass_numerics(at_module *m, const at_pass_options *o);
// One collective where several send or sum the same.
at_status at_pass_collectives(at_module *m, const at_pass_options *o);
// Small collectives of one kind that do not wait for each other become one.
at_status at_pass_combine(at_module *m, const at_pass_options *o);
// Loops of known length say how many turns they make; with o->unroll those
// around collectives do several turns in one. Calls o->before_unroll first.
at_status at_pass_unroll(at_module *m, const at_pass_options *o);
// With o->small_products: small products, and those with banded matrices, as
// sums.
at_status at_pass_products(at_module *m, const at_pass_options *o);
// With o->small_products: operands of reductions in the order in which vectors
// read them.
at_status at_pass_turn(at_module *m, const at_pass_options *o);
// With o->small_products: scatters of one element a row into equal elements as
// selects.
at_status at_pass_scatters(at_module *m, const at_pass_options *o);
// With o->small_products: sums over all of an array that is made from
// reductions of its rows go by those rows.
at_status at_pass_sums(at_module *m, const at_pass_options *o);
// With o->small_products: gathers of a few neighbours each have one dimension
// of rows, and one index where several can be numbered.
at_status at_pass_gathers(at_module *m, const at_pass_options *o);
// With o->small_products: reductions over large windows, one dimension after
// the other.
at_status at_pass_windows(at_module *m, const at_pass_options *o);
// With o->small_products: results that a loop writes completely begin as memory
// without contents.
at_status at_pass_unfilled(at_module *m, const at_pass_options *o);
// Drops optimization barriers, but with o->keep_barriers.
at_status at_pass_barriers(at_module *m, const at_pass_options *o);
// Gathers per-element work into FUSION nodes, with o->fuse. Calls
// o->before_fuse first, in any case.
at_status at_pass_fuse(at_module *m, const at_pass_options *o);
// A transpose that code for elements does better than the kernel of transposes:
// it picks lanes from a few vectors.
bool at_transpose_is_narrow(const at_node *n);
// A FUSION of (left, right) -> `body` of every element, over arrays of `n`
// elements of type t, in a module of its own. *out NULL: the body is not
// elementwise.
at_status at_reduction_kernel(const at_comp *body, at_dtype t, int64_t n,
                              at_arena *a, at_node **out);
// A module of the optimizer of an embedding table: `body` on one row of the
// gradient and of each table (the first `rows` parameters), its other
// parameters from scalars of the types `hypers`. Passes may run on it.
at_status at_optimizer_program(const at_comp *body, uint32_t rows,
                               const at_dtype *hypers, at_arena *a,
                               at_module **out);

// A row of the pipeline.
typedef struct at_pass {
  const char *name;  // in dumps and errors
  at_pass_fn run;
} at_pass;
// In the order in which they run; a pass may occur twice. Ends with a NULL
// name.
extern const at_pass at_pipeline[];
// Runs one of them on m. Where checks are on (base/verify.h), what it leaves is
// valid, or the process ends.
at_status at_pass_run(const at_pass *p, at_module *m, const at_pass_options *o);
// Runs the pipeline on m and stops at the first error, which names its pass.
// verify_each: at_verify after every pass. `dump` (NULL: none) is called after
// every pass with `user` and the pass's name.
at_status at_passes_run(
    at_module *m, const at_pass_options *o, bool verify_each,
    void (*dump)(void *user, const char *pass, const at_module *m), void *user);

#endif
