// Which kernels a node takes, and how each walks its elements.
#ifndef ATOLL_CODEGEN_PLAN_H_
#define ATOLL_CODEGEN_PLAN_H_

#include "codegen/job.h"

// The kernels of one node; in the generator's arena, where equal nodes share
// it.
typedef struct at_planned {
  // In launch order: a kernel may read what an earlier one has written.
  at_job **jobs;
  uint32_t num_jobs;
  // Of one launch of the node; 0: none. All jobs get the same block.
  size_t scratch_bytes;
} at_planned;

// Chooses the node's kernels; alias as in at_cg_node, one for each result.
// UNIMPLEMENTED: no form; INVALID_ARGUMENT: a fusion of rows that is none.
at_status at_plan_node(const at_cg_target *t, at_arena *a, const at_node *n,
                       const int32_t *alias, at_planned *out);
// Appends a job with the fields that all kinds share; the caller fills in the
// rest. UNIMPLEMENTED: too many.
at_status at_plan_job(at_arena *a, at_job_kind kind, const at_node *n,
                      const int32_t *alias, at_planned *p, at_job **out);

// Kernels for results that are reduces (and elementwise steps after them).
// taken[r] is set for the results that have one; others are left.
at_status at_plan_reduces(const at_cg_target *t, at_arena *a, const at_node *n,
                          const int32_t *alias, bool *taken, at_planned *p);

// Kernels of ops that write parts of a result; *st is their status. False: not
// such an op, nothing is planned.
bool at_plan_updates(const at_cg_target *t, at_arena *a, const at_node *n,
                     const int32_t *alias, at_planned *p, at_status *st);
// A loop over `count` elements of type d, which are moved and not computed.
at_status at_plan_linear(const at_cg_target *t, at_job *j, int64_t count,
                         at_dtype d);
// The same over the digits of c.
at_status at_plan_cuts(const at_cg_target *t, at_job *j, const at_cuts *c,
                       at_dtype d);

// A value that a body uses though it is computed outside of it, and is not a
// constant; node NULL: none.
at_value at_body_capture(const at_comp *body);
// The status for such a body: UNIMPLEMENTED, naming `what` and the value.
at_status at_body_refuse(const char *what, at_value captured);

// The laws of a plan that was made (plan_verify.c). INTERNAL: what is broken.
at_status at_plan_kernels_verify(const at_node *n, const at_planned *p);

#endif
