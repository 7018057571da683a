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

typedef struct at_pass_options {
  bool fuse;            // false: one kernel per op (for tests and debugging)
  int64_t fold_budget;  // element operations for constant folding
  bool unroll;          // loops around collectives, so that they can be hidden
  bool small_products;  // those in loops as sums: for code of this machine
  bool eigen;           // JAX's program of eigenvectors as one op: likewise
  bool bf16_dots;       // f32 dots at default precision multiply in bf16
  bool placements;      // calls that name a memory become copies to it; else
                        // they are identities
  uint32_t sparse_cores;  // of one device of the target; 0: none
  // What another room does to the program right before work is gathered; NULL:
  // nothing.
  at_status (*before_fuse)(at_module *m, void *user);
  // The same, before loops are unrolled and products in them changed.
  at_status (*before_unroll)(at_module *m, void *user);
  void *user;
} at_pass_options;
typedef at_status (*at_pass_fn)(at_module *m, const at_pass_options *o);

at_status at_pass_inline(at_module *m,
                         const at_pass_options *o);  // calls, composites
at_status at_pass_named(at_module *m,
                        const at_pass_options *o);  // custom calls that are ops
at_status at_pass_partition(
    at_module *m,
    const at_pass_options *o);  // shardings: the program of one device
at_status at_pass_refine(at_module *m,
                         const at_pass_options *o);  // dynamic shapes
at_status at_pass_expand(
    at_module *m,
    const at_pass_options *o);  // batch norm, map, ... into simpler ops
at_status at_pass_simplify(
    at_module *m,
    const at_pass_options *o);  // algebra, reshapes, dead code, CSE
at_status at_pass_fold(
    at_module *m, const at_pass_options *o);  // constants, by the evaluator
// A pass, as all above and below: `o` is only read.
at_status at_pass_recognise(
    at_module *m, const at_pass_options *o);  // scans, top-k, argmax, ...
at_status at_pass_numerics(
    at_module *m, const at_pass_options *o);  // bf16 products where asked
at_status at_pass_collectives(
    at_module *m, const at_pass_options *o);  // one where several say the same
at_status at_pass_combine(
    at_module *m, const at_pass_options *o);  // collectives with collectives
at_status at_pass_unroll(
    at_module *m,
    const at_pass_options *o);  // loops with collectives: several turns in one
at_status at_pass_products(
    at_module *m,
    const at_pass_options *o);  // small ones in loops, as sums
at_status at_pass_turn(
    at_module *m,
    const at_pass_options *o);  // operands as vectors of a reduction read them
at_status at_pass_unfilled(
    at_module *m,
    const at_pass_options *o);  // no zeros where a loop writes all of it
at_status at_pass_barriers(
    at_module *m,
    const at_pass_options *o);  // optimization_barrier: done its work
at_status at_pass_fuse(at_module *m, const at_pass_options *o);  // FUSION nodes
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

typedef struct at_pass {
  const char *name;
  at_pass_fn run;
} at_pass;
extern const at_pass at_pipeline[];  // in order; ends with a NULL name
// Runs the pipeline; `dump` (may be NULL) is called after every pass.
at_status at_passes_run(
    at_module *m, const at_pass_options *o, bool verify_each,
    void (*dump)(void *user, const char *pass, const at_module *m), void *user);

#endif
