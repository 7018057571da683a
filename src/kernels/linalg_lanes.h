// Linear algebra of many small matrices: 16 floats or 8 doubles at once, one
// matrix a lane.
#ifndef ATOLL_KERNELS_LINALG_LANES_H_
#define ATOLL_KERNELS_LINALG_LANES_H_

#include "kernels/kernels_internal.h"

enum { AT_LANES_MAX_SIDE = 64 };  // a group stays in the second-level cache

// Kernels that work on a matrix per lane.
typedef enum at_lanes_op {
  AT_LANES_CHOLESKY,
  AT_LANES_SOLVE,
  AT_LANES_QR,
  AT_LANES_PRODUCT,
  AT_LANES_LU,
  AT_LANES_EIGH,
  AT_LANES_OPS
} at_lanes_op;

// Is the call for lanes? By type and shape alone.
bool at_lanes_fit(at_lanes_op op, const at_k_linalg_params *p);
// Runs a call that fits and has been checked. RESOURCE_EXHAUSTED without
// scratch memory; a lane whose matrix cannot be factored becomes NaN.
at_status at_lanes_run(const at_k_call *c, at_lanes_op op);

#endif
