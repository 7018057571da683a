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

// Is a triangular solve of this type, with one column (one row where the
// triangle is on the right), for at_vector_solve?
bool at_vector_solve_fits(const at_k_linalg_params *p);
// at_k_triangular_solve for calls that fit and have been checked: reads the
// triangles where they are and takes no scratch memory. Matrices of a batch are
// shared out among threads.
void at_vector_solve(const at_k_call *c);

#endif
