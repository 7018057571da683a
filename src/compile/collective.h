// Collectives as steps: who belongs together, and which bytes go where.
#ifndef ATOLL_COMPILE_COLLECTIVE_H_
#define ATOLL_COMPILE_COLLECTIVE_H_

#include "codegen/codegen.h"

// Ops that become AT_STEP_COLLECTIVE.
bool at_is_collective_step(const at_node *n);
// Parameters of the step (abi/collective.h) in `a`; kernels of reductions are
// added to `cg`. *out_ns: an estimate for one device. INVALID_ARGUMENT: groups
// or shapes that do not fit; UNIMPLEMENTED: a body that is not elementwise.
at_status at_collective_params(const at_node *n, at_cg *cg, at_arena *a,
                               at_bytes *out, double *out_ns);

#endif
