// Which kernels a node takes, and how each walks its elements.
#ifndef ATOLL_CODEGEN_PLAN_H_
#define ATOLL_CODEGEN_PLAN_H_

#include "codegen/job.h"

typedef struct at_planned {
  at_job **jobs;  // in launch order
  uint32_t num_jobs;
  size_t scratch_bytes;
} at_planned;

at_status at_plan_node(const at_cg_target *t, at_arena *a, const at_node *n,
                       const int32_t *alias, at_planned *out);
// A job with the fields that all kinds share.
at_status at_plan_job(at_arena *a, at_job_kind kind, const at_node *n,
                      const int32_t *alias, at_planned *p, at_job **out);

// Kernels for results that are reduces (and elementwise steps after them).
at_status at_plan_reduces(const at_cg_target *t, at_arena *a, const at_node *n,
                          const int32_t *alias, bool *taken, at_planned *p);

// Kernels that write parts of a result; false: not such an op.
bool at_plan_updates(const at_cg_target *t, at_arena *a, const at_node *n,
                     const int32_t *alias, at_planned *p, at_status *st);
// A loop over `count` elements of type d, or over the digits of c.
at_status at_plan_linear(const at_cg_target *t, at_job *j, int64_t count,
                         at_dtype d);
at_status at_plan_cuts(const at_cg_target *t, at_job *j, const at_cuts *c,
                       at_dtype d);

// A value that a body uses though it is computed outside of it, and is not a
// constant; node NULL: none.
at_value at_body_capture(const at_comp *body);
at_status at_body_refuse(const char *what, at_value captured);

#endif
