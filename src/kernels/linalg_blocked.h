// Factorisations of large real matrices: narrow panels here, the rest in
// products on all threads. Bits depend on shapes alone.
#ifndef ATOLL_KERNELS_LINALG_BLOCKED_H_
#define ATOLL_KERNELS_LINALG_BLOCKED_H_

#include "kernels/kernels_internal.h"

// Is a call of this type, and of matrices whose smaller side is `side`, for
// them?
bool at_blocked_fits(const at_k_linalg_params *p, int64_t side);
// Each is the kernel of its name (abi/kernels.h) for calls that fit and have
// been checked. RESOURCE_EXHAUSTED without scratch memory.
at_status at_blocked_cholesky(const at_k_call *c);
at_status at_blocked_solve(const at_k_call *c);
at_status at_blocked_qr(const at_k_call *c);
at_status at_blocked_product(const at_k_call *c);
at_status at_blocked_lu(const at_k_call *c);

#endif
